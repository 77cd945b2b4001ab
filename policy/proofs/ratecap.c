/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Proofs of plimsoll/ratecap.h.
 *
 * Let P = TAT * cap (in CPU time, exact). The conservation lemma, that a run of
 * d advances P by d, and the bound that follows from it are proved in scaled.c.
 * They bound usage over any interval by the values that TAT may have when a run
 * begins (eligibility) and when the interval began.
 *
 * A solver cannot divide by every cap. Where the code divides by the cap, the
 * proof uses one or two powers of two, and small times; no constant of the code
 * depends on their magnitude. scaled.c proves the longest run; ratecap/tests.rs
 * tests it and charges with all other caps.
 */
#include "plimsoll/ratecap.h"
#include "proof.h"

static struct plim_ratecap_params any_params(void)
{
	struct plim_ratecap_params params;

	ASSUME(plim_ratecap_is_valid(&params));
	return params;
}

static struct plim_ratecap any_bucket(const struct plim_ratecap_params *params)
{
	struct plim_ratecap cap;

	ASSUME(cap.tat_ns <= LIFETIME_NS && cap.rate_updated_ns <= LIFETIME_NS);
	ASSUME(cap.rate_ppm <= PLIM_CPUS_MAX * PLIM_PPM);
	ASSUME(cap.tat_rest < plim_max(params->hard_permille, 1));
	return cap;
}

void prove_params_are_accepted_exactly_in_their_ranges(void)
{
	struct plim_ratecap_params params;

	PROVE((plim_ratecap_is_valid(&params)) ==
		      (params.hard_permille <= 8192000 &&
		       (!params.soft || params.soft_permille <= 8192000) &&
		       params.depth_ns <= 1000000000 && params.half_life_ns >= 50000000 &&
		       params.half_life_ns <= 60000000000),
	      "accepted exactly in range");
	PROOF_REACHED();
}

/* Any bucket, cap and run; the checks prove that nothing wraps. */
void prove_a_charge_never_wraps_nor_moves_back(void)
{
	struct plim_ratecap_params params = any_params();
	struct plim_ratecap cap = any_bucket(&params), before = cap;
	plim_u64 start_ns = any_u64(0, LIFETIME_NS);

	plim_ratecap_charge(&cap, &params, start_ns, nondet_u64());
	PROVE(cap.tat_ns >= before.tat_ns, "only forward");
	PROVE(!params.hard_permille || cap.tat_ns >= start_ns, "not before the run");
	PROOF_REACHED();
}

/* Any bucket. Narrowed: a cap of 25.6 % or of 4.096 CPUs. */
void prove_an_owner_that_may_run_is_within_the_depth(void)
{
	struct plim_ratecap_params params = any_params();
	struct plim_ratecap cap = any_bucket(&params);
	plim_u64 now_ns = any_u64(0, LIFETIME_NS), depth_ns;

	params.hard_permille = any_bool() ? 256 : 4096;
	ASSUME(cap.tat_rest < params.hard_permille);
	depth_ns = plim_ratecap_depth_ns(&params);
	PROVE(depth_ns <= params.depth_ns, "no more than the depth");
	PROVE(plim_ratecap_may_run(&cap, &params, now_ns) ==
		      (cap.tat_ns + (cap.tat_rest ? 1 : 0) <= now_ns + depth_ns),
	      "may run exactly while TAT <= now + depth");
	PROVE(plim_ratecap_may_run(&cap, &params,
				   plim_max(now_ns, plim_ratecap_eligible_ns(&cap, &params))),
	      "and so when it was said to");
	PROOF_REACHED();
}

void prove_no_cap_never_delays(void)
{
	struct plim_ratecap_params params = any_params();
	struct plim_ratecap cap = any_bucket(&params);

	params.hard_permille = 0;
	plim_ratecap_charge(&cap, &params, nondet_u64(), nondet_u64());
	PROVE(plim_ratecap_may_run(&cap, &params, nondet_u64()), "at any time");
	PROOF_REACHED();
}

/* Any bucket, cap, clock and number of CPUs; the checks prove that nothing wraps. */
void prove_run_ns_never_wraps(void)
{
	struct plim_ratecap_params params = any_params();
	struct plim_ratecap cap;
	plim_u32 nr_running = nondet_u32();
	plim_u64 now_ns = nondet_u64(), run_ns;

	run_ns = plim_ratecap_run_ns(&cap, &params, nr_running, now_ns);
	PROVE(params.hard_permille || run_ns == PLIM_UNLIMITED, "no cap, no limit");
	PROVE(!params.hard_permille || run_ns == 0 || run_ns == PLIM_UNLIMITED ||
		      plim_max(nr_running, 1) * PLIM_PERMILLE > params.hard_permille,
	      "a limit only where demand is above the cap");
	PROOF_REACHED();
}

/* Any bucket. Narrowed: a cap of 25.6 % or of 4.096 CPUs; at most 7 CPUs. */
void prove_running_below_the_cap_is_unlimited(void)
{
	struct plim_ratecap_params params = any_params();
	struct plim_ratecap cap = any_bucket(&params);
	plim_u64 now_ns = any_u64(0, LIFETIME_NS), run_ns;
	plim_u32 nr_running = nondet_u8() & 7;
	int may_run;

	params.hard_permille = any_bool() ? 256 : 4096;
	ASSUME(cap.tat_rest < params.hard_permille);
	may_run = plim_ratecap_may_run(&cap, &params, now_ns);
	run_ns = plim_ratecap_run_ns(&cap, &params, nr_running, now_ns);
	PROVE(may_run || run_ns == 0, "0 where it may not run");
	PROVE((run_ns == PLIM_UNLIMITED) ==
		      (may_run && params.hard_permille == 4096 && nr_running <= 4),
	      "without limit exactly where it may and stays within the cap");
	PROVE(run_ns == PLIM_UNLIMITED || run_ns <= 1000 * PLIM_NSEC_PER_SEC,
	      "else at most 1000 s");
	PROOF_REACHED();
}

#define RUNS 3

/*
 * Demand below the cap over every suffix: at the end of each run, the usage
 * since any earlier start took at least as long at the cap. Three runs in the
 * order of their starts, without any depth.
 */
static void prove_undelayed(plim_u32 hard)
{
	struct plim_ratecap_params params = any_params();
	struct plim_ratecap cap;
	plim_u64 clock_ns = nondet_u8(), starts[RUNS], sums[RUNS] = { 0 }, ran_ns, i, j;

	params.hard_permille = hard;
	params.depth_ns = 0;
	plim_ratecap_init(&cap, clock_ns);
	for (i = 0; i < RUNS; i++) {
		PROVE(plim_ratecap_may_run(&cap, &params, clock_ns), "never delayed");
		starts[i] = clock_ns;
		ran_ns = nondet_u8();
		plim_ratecap_charge(&cap, &params, clock_ns, ran_ns);
		clock_ns += ran_ns + nondet_u16();
		for (j = 0; j <= i; j++) {
			sums[j] += ran_ns;
			ASSUME(sums[j] * PLIM_PERMILLE <= (clock_ns - starts[j]) * hard);
		}
	}
	PROVE(plim_ratecap_may_run(&cap, &params, clock_ns), "never delayed");
}

void prove_a_task_below_its_cap_is_never_delayed(void)
{
	prove_undelayed(128);
	PROOF_REACHED();
}

void prove_a_group_below_its_cap_is_never_delayed(void)
{
	prove_undelayed(2048);
	PROOF_REACHED();
}

/* The debt in CPU time does not change by a nanosecond. */
static void prove_change(plim_u32 from, plim_u32 to)
{
	struct plim_ratecap_params old = { .hard_permille = from };
	struct plim_ratecap_params params = { .hard_permille = to };
	plim_u64 now_ns = nondet_u8(), owed;
	struct plim_ratecap cap;

	cap = any_bucket(&old);
	cap.tat_ns = now_ns + nondet_u16();
	owed = (cap.tat_ns - now_ns) * old.hard_permille + cap.tat_rest;
	plim_ratecap_set(&cap, &old, &params, now_ns);
	PROVE((cap.tat_ns - now_ns) * params.hard_permille + cap.tat_rest == owed, "exactly");
}

void prove_a_change_keeps_the_debt(void)
{
	prove_change(128, 1024);
	prove_change(4096, 256);
	PROOF_REACHED();
}

/* Any bucket and caps; the checks prove that nothing wraps. */
void prove_a_change_never_wraps(void)
{
	struct plim_ratecap_params old = any_params(), params = any_params();
	struct plim_ratecap cap = any_bucket(&old);
	plim_u64 now_ns = any_u64(0, LIFETIME_NS);

	plim_ratecap_set(&cap, &old, &params, now_ns);
	PROVE(cap.tat_rest < plim_max(params.hard_permille, 1), "the rest is below one");
	PROOF_REACHED();
}

/* Narrowed: a half-life of 2^26 ns (67 ms), followed in 256 steps of 2^20. */
void prove_decay_is_a_share_that_only_falls(void)
{
	plim_u64 half_life_ns = 1ULL << 26;
	plim_u64 sooner_ns = (plim_u64)nondet_u8() << 20, later_ns = sooner_ns + (1ULL << 20);

	PROVE(plim_ratecap_decay_ppm(0, half_life_ns) == PLIM_PPM, "all of it at once");
	PROVE(plim_ratecap_decay_ppm(half_life_ns, half_life_ns) == PLIM_PPM / 2, "then half");
	PROVE(plim_ratecap_decay_ppm(later_ns, half_life_ns) <=
		      plim_ratecap_decay_ppm(sooner_ns, half_life_ns),
	      "monotone");
	PROVE(plim_ratecap_decay_ppm(sooner_ns, half_life_ns) <= PLIM_PPM, "at most 1");
	PROOF_REACHED();
}

/*
 * Narrowed: an update after half a half-life; 256 values of old and observed
 * rate.
 */
void prove_the_rate_stays_between_old_and_observed_rate(void)
{
	struct plim_ratecap_params params = any_params();
	struct plim_ratecap cap = any_bucket(&params), before;
	plim_u64 elapsed_ns = 1ULL << 25, ran_ns, seen_ppm;

	params.half_life_ns = 1ULL << 26;
	cap.rate_ppm = (plim_u64)nondet_u8() << 12;
	cap.rate_updated_ns = 0;
	before = cap;
	ran_ns = (plim_u64)nondet_u8() << 17;
	seen_ppm = plim_min(ran_ns * PLIM_PPM / elapsed_ns, PLIM_CPUS_MAX * PLIM_PPM);
	plim_ratecap_rate_update(&cap, &params, ran_ns, elapsed_ns);
	PROVE(cap.rate_ppm >= plim_min(before.rate_ppm, seen_ppm), "not below both");
	PROVE(cap.rate_ppm <= plim_max(before.rate_ppm, seen_ppm), "not above both");
	PROOF_REACHED();
}

void prove_an_interval_of_no_length_keeps_the_rate(void)
{
	struct plim_ratecap_params params = any_params();
	struct plim_ratecap cap = any_bucket(&params), before;

	/* Any time will do; a constant spares the solver a division. */
	cap.rate_updated_ns = 5;
	before = cap;
	plim_ratecap_rate_update(&cap, &params, nondet_u64(), any_bool() ? 5 : 4);
	PROVE(cap.rate_ppm == before.rate_ppm && cap.rate_updated_ns == before.rate_updated_ns,
	      "unchanged");
	PROOF_REACHED();
}

/* Narrowed: soft caps below 256 per mille, rates below 4,294 CPUs. */
void prove_soft_caps_decide_about_the_background(void)
{
	struct plim_ratecap_params params = { .soft = (plim_u8)any_bool(),
					      .soft_permille = nondet_u8() };
	struct plim_ratecap cap = { .rate_ppm = nondet_u32() };
	int background = plim_ratecap_is_background(&cap, &params);

	PROVE(params.soft || !background, "no soft cap, never");
	PROVE(!params.soft || params.soft_permille || background, "soft cap 0, always");
	PROVE(!params.soft || !params.soft_permille ||
		      background == (cap.rate_ppm > (plim_u64)params.soft_permille * 1000),
	      "else above the cap");
	PROOF_REACHED();
}

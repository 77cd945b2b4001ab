/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Proofs of plimsoll/ratecap.h.
 *
 * With P = TAT * cap (in CPU time, exact), a run of d moves P by d: that is
 * the conservation lemma. It bounds usage over any interval through where TAT
 * may stand when a run begins (eligibility) and when the interval began.
 *
 * A solver cannot divide by every cap. Where the cap divides, it is one of
 * those in any_cap(), and times are small: the code has no constant that
 * depends on their magnitude.
 */
#include "plimsoll/ratecap.h"
#include "proof.h"

/* 12.8 %, 51.2 %, 1, 1.024, 2 and 4.096 CPUs. */
static plim_u32 any_cap(void)
{
	static const plim_u32 caps[6] = { 128, 512, 1000, 1024, 2000, 4096 };
	plim_u8 index = nondet_u8();

	ASSUME(index < 6);
	return caps[index];
}

static struct plim_ratecap_params any_params(void)
{
	struct plim_ratecap_params params;

	ASSUME(plim_ratecap_check(&params) == PLIM_RATECAP_OK);
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

	PROVE((plim_ratecap_check(&params) == PLIM_RATECAP_OK) ==
		      (params.hard_permille <= 8192000 &&
		       (!params.soft || params.soft_permille <= 8192000) &&
		       params.depth_ns <= 1000000000 && params.half_life_ns >= 50000000 &&
		       params.half_life_ns <= 60000000000),
	      "accepted exactly in range");
	PROOF_REACHED();
}

/* TAT and its rest together, in parts of 1 / cap; exact, no drift. */
void prove_a_charge_is_exact(void)
{
	struct plim_ratecap_params params = any_params();
	plim_u64 hard = params.hard_permille = any_cap();
	struct plim_ratecap cap = any_bucket(&params), before;
	plim_u64 start_ns = nondet_u16(), ran_ns = nondet_u16();

	cap.tat_ns = nondet_u16();
	before = cap;
	if (before.tat_ns < start_ns) {
		before.tat_ns = start_ns;
		before.tat_rest = 0;
	}
	plim_ratecap_charge(&cap, &params, start_ns, ran_ns);
	PROVE(cap.tat_ns * hard + cap.tat_rest ==
		      before.tat_ns * hard + before.tat_rest + ran_ns * PLIM_PERMILLE,
	      "TAT' = max(TAT, start) + ran / cap");
	PROVE(cap.tat_rest < hard, "the rest is below one");
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

/* Half the lemma for any bucket: who may run has TAT within the depth. */
void prove_who_may_run_is_within_the_depth(void)
{
	struct plim_ratecap_params params = any_params();
	struct plim_ratecap cap = any_bucket(&params);
	plim_u64 now_ns = any_u64(0, LIFETIME_NS), depth_ns;

	ASSUME(params.hard_permille > 0);
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

#define RUNS 3

/*
 * Any three runs from any bucket, on @cpus CPUs at a time: each is allowed at
 * its start and charged at its end, and overlaps the @cpus - 1 runs before.
 */
static void prove_usage(plim_u32 hard, plim_u64 cpus)
{
	struct plim_ratecap_params params = any_params();
	struct plim_ratecap cap;
	plim_u64 from_ns = nondet_u8(), grain_ns = nondet_u8(), clock_ns, usage_ns = 0;
	plim_u64 starts[RUNS], ran[RUNS], i;

	params.hard_permille = hard;
	params.depth_ns = nondet_u8();
	cap = any_bucket(&params);
	cap.tat_ns = nondet_u16();
	clock_ns = from_ns;
	for (i = 0; i < RUNS; i++) {
		if (i >= cpus) {
			plim_ratecap_charge(&cap, &params, starts[i - cpus], ran[i - cpus]);
			clock_ns = plim_max(clock_ns, starts[i - cpus] + ran[i - cpus]);
		}
		clock_ns += nondet_u8();
		starts[i] = clock_ns;
		ran[i] = nondet_u8();
		ASSUME(ran[i] <= grain_ns);
		ASSUME(plim_ratecap_may_run(&cap, &params, starts[i]));
		usage_ns += ran[i];
		PROVE(usage_ns * PLIM_PERMILLE <= (starts[i] - from_ns) * hard +
							  params.depth_ns * PLIM_PERMILLE +
							  cpus * grain_ns * PLIM_PERMILLE,
		      "usage <= cap t + depth + C grain");
	}
}

void prove_usage_of_a_task_is_bounded(void)
{
	prove_usage(128, 1);
	PROOF_REACHED();
}

void prove_usage_of_a_task_at_one_cpu_is_bounded(void)
{
	prove_usage(1000, 1);
	PROOF_REACHED();
}

void prove_usage_on_two_cpus_is_bounded(void)
{
	prove_usage(512, 2);
	PROOF_REACHED();
}

void prove_usage_above_one_cpu_is_bounded(void)
{
	prove_usage(2048, 2);
	PROOF_REACHED();
}

/*
 * Demand that stays below the cap over every suffix: whenever a run has
 * ended, what ran since any earlier start took at least as long at the cap.
 * Three runs in the order of their starts, without any depth.
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

/* What is owed in CPU time neither grows nor shrinks by a nanosecond. */
void prove_a_change_keeps_what_is_owed(void)
{
	struct plim_ratecap_params old = any_params(), params = any_params();
	plim_u64 now_ns = nondet_u8(), owed;
	struct plim_ratecap cap;

	old.hard_permille = any_cap();
	params.hard_permille = any_cap();
	cap = any_bucket(&old);
	cap.tat_ns = now_ns + nondet_u16();
	owed = (cap.tat_ns - now_ns) * old.hard_permille + cap.tat_rest;
	plim_ratecap_set(&cap, &old, &params, now_ns);
	PROVE((cap.tat_ns - now_ns) * params.hard_permille + cap.tat_rest == owed, "exactly");
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

/* Narrowed: a half-life of 2^26 ns (67 ms), by which the solver can divide. */
void prove_decay_is_a_share_that_only_falls(void)
{
	plim_u64 half_life_ns = 1ULL << 26;
	plim_u64 sooner_ns = nondet_u32(), later_ns = nondet_u32();

	ASSUME(sooner_ns <= later_ns);
	PROVE(plim_ratecap_decay_ppm(0, half_life_ns) == PLIM_PPM, "all of it at once");
	PROVE(plim_ratecap_decay_ppm(half_life_ns, half_life_ns) == PLIM_PPM / 2, "then half");
	PROVE(plim_ratecap_decay_ppm(later_ns, half_life_ns) <=
		      plim_ratecap_decay_ppm(sooner_ns, half_life_ns),
	      "monotone");
	PROVE(plim_ratecap_decay_ppm(sooner_ns, half_life_ns) <= PLIM_PPM, "at most 1");
	PROOF_REACHED();
}

/* The average lies between what it was and what was seen, for any weight. */
void prove_the_rate_stays_between_what_it_was_and_what_was_seen(void)
{
	struct plim_ratecap_params params = any_params();
	struct plim_ratecap cap = any_bucket(&params), before;
	plim_u64 elapsed_ns = 1ULL << (nondet_u8() % 32), ran_ns, seen_ppm;

	params.half_life_ns = 1ULL << 26;
	cap.rate_ppm = (plim_u64)nondet_u8() << 12;
	cap.rate_updated_ns = 0;
	before = cap;
	ran_ns = nondet_u16();
	seen_ppm = plim_min(ran_ns * PLIM_PPM / elapsed_ns, PLIM_CPUS_MAX * PLIM_PPM);
	plim_ratecap_rate_update(&cap, &params, ran_ns, elapsed_ns);
	PROVE(cap.rate_ppm >= plim_min(before.rate_ppm, seen_ppm), "not below both");
	PROVE(cap.rate_ppm <= plim_max(before.rate_ppm, seen_ppm), "not above both");
	PROOF_REACHED();
}

void prove_an_interval_of_no_length_keeps_the_rate(void)
{
	struct plim_ratecap_params params = any_params();
	struct plim_ratecap cap = any_bucket(&params), before = cap;

	plim_ratecap_rate_update(&cap, &params, nondet_u64(), any_u64(0, cap.rate_updated_ns));
	PROVE(cap.rate_ppm == before.rate_ppm && cap.rate_updated_ns == before.rate_updated_ns,
	      "unchanged");
	PROOF_REACHED();
}

void prove_soft_caps_decide_who_is_background(void)
{
	struct plim_ratecap_params params = any_params();
	struct plim_ratecap cap = any_bucket(&params);
	int background = plim_ratecap_is_background(&cap, &params);

	PROVE(params.soft || !background, "no soft cap, never");
	PROVE(!params.soft || params.soft_permille || background, "soft cap 0, always");
	PROVE(!params.soft || !params.soft_permille ||
		      background == (cap.rate_ppm > (plim_u64)params.soft_permille * 1000),
	      "else above the cap");
	PROOF_REACHED();
}

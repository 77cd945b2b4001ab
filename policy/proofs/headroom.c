/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Proofs of plimsoll/headroom.h.
 *
 * Let busy(t) be the usage of batch and other work since the start of the
 * window, which is of length t so far. After every update inside the window
 *
 *	credit + busy(t) <= (1 - H) * C * t + max(C * grain, what the CPUs
 *	can have run beyond it, less the debt carried on)
 *
 * which, with the debt of H * C * W, is the law; see
 * prove_a_step_keeps_the_law().
 */
#include "plimsoll/headroom.h"
#include "proof.h"

/* Type invariant of a controller. */
static int is_valid(const struct plim_headroom *headroom)
{
	const struct plim_headroom_params *params = &headroom->params;
	plim_s64 tolerance_ns = (plim_s64)params->tolerance_runtime_ns;

	return headroom->credit_ns <= (plim_s64)plim_headroom_credit_max_ns(params) &&
	       headroom->credit_ns >= -(plim_s64)plim_headroom_debt_max_ns(params) &&
	       headroom->tolerance_credit_ns <= tolerance_ns &&
	       headroom->tolerance_credit_ns >= -tolerance_ns &&
	       headroom->tolerance_rest < params->tolerance_period_ns;
}

static struct plim_headroom any_headroom(void)
{
	struct plim_headroom headroom;

	plim_s64 most_ns = (plim_s64)(PLIM_HEADROOM_WINDOW_MAX_NS * PLIM_CPUS_MAX);

	ASSUME(plim_headroom_is_valid(&headroom.params));
	ASSUME(headroom.credit_ns <= most_ns && headroom.credit_ns >= -most_ns);
	ASSUME(headroom.tolerance_credit_ns <= most_ns);
	ASSUME(headroom.tolerance_credit_ns >= -most_ns);
	ASSUME(headroom.tolerance_rest < headroom.params.tolerance_period_ns);
	ASSUME(headroom.updated_ns <= LIFETIME_NS && headroom.shortfall_ns <= LIFETIME_NS);
	return headroom;
}

/*
 * A controller of a machine on which a solver can multiply and divide: two
 * CPUs, window and grain of 2^24 and 2^20 ns (17 and 1 ms), a tolerance of 2^14
 * in 2^20 ns, and any credits.
 */
static struct plim_headroom small_headroom(plim_u32 headroom_ppm)
{
	struct plim_headroom headroom;

	headroom.params = (struct plim_headroom_params){
		.window_ns = 1ULL << 24,
		.grain_ns = 1ULL << 20,
		.tolerance_runtime_ns = 1ULL << 14,
		.tolerance_period_ns = 1ULL << 20,
		.headroom_ppm = headroom_ppm,
		.nr_cpus = 2,
	};
	headroom.shortfall_ns = 0;
	headroom.updated_ns = 0;
	headroom.interval_ns = 0;
	ASSUME(plim_headroom_is_valid(&headroom.params));
	ASSUME(is_valid(&headroom));
	return headroom;
}

void prove_params_are_accepted_exactly_in_their_ranges(void)
{
	struct plim_headroom_params params;

	PROVE((plim_headroom_is_valid(&params)) ==
		      (params.headroom_ppm <= 1000000 && params.nr_cpus >= 1 &&
		       params.nr_cpus <= 8192 && params.window_ns >= 10000000 &&
		       params.window_ns <= 10000000000 && params.grain_ns >= 100000 &&
		       params.grain_ns <= params.window_ns &&
		       params.tolerance_period_ns >= 1000000 &&
		       params.tolerance_period_ns <= 10000000000 &&
		       params.tolerance_runtime_ns <= params.tolerance_period_ns &&
		       params.tolerance_runtime_ns <= 1000000000),
	      "accepted exactly in range");
	PROOF_REACHED();
}

/* balance() alone, for any numbers: the basis of both credits. */
void prove_a_balance_is_exact_within_its_bounds(void)
{
	plim_u64 debt_max = any_u64(0, 1ULL << 50), credit_max = any_u64(0, 1ULL << 50);
	plim_u64 earned = any_u64(0, 1ULL << 50), spent = any_u64(0, 1ULL << 50);
	plim_s64 credit = any_s64(-(plim_s64)(1ULL << 50), (plim_s64)(1ULL << 50));
	plim_s64 exact = credit + (plim_s64)earned - (plim_s64)spent;
	plim_s64 balance = plim_headroom_balance(credit, earned, spent, debt_max, credit_max);

	PROVE(balance <= (plim_s64)credit_max && balance >= -(plim_s64)debt_max, "bounded");
	PROVE(balance == exact || exact > (plim_s64)credit_max || exact < -(plim_s64)debt_max,
	      "exact between the bounds");
	PROVE(exact <= (plim_s64)credit_max || balance == (plim_s64)credit_max, "cut above");
	PROVE(exact >= -(plim_s64)debt_max || balance == -(plim_s64)debt_max, "cut below");
	PROOF_REACHED();
}

/*
 * The largest parameters, any possible credits and any input; the checks prove
 * that nothing wraps.
 */
void prove_an_update_never_wraps(void)
{
	struct plim_headroom headroom = any_headroom();

	headroom.params.window_ns = headroom.params.grain_ns = PLIM_HEADROOM_WINDOW_MAX_NS;
	headroom.params.tolerance_runtime_ns = PLIM_TOLERANCE_RUNTIME_MAX_NS;
	headroom.params.tolerance_period_ns = PLIM_TOLERANCE_RUNTIME_MAX_NS;
	ASSUME(headroom.tolerance_rest < PLIM_TOLERANCE_RUNTIME_MAX_NS);
	headroom.params.headroom_ppm = 0;
	headroom.params.nr_cpus = PLIM_CPUS_MAX;

	plim_headroom_update(&headroom, nondet_u64(), nondet_u64(), any_u64(0, LIFETIME_NS));
	PROVE(headroom.tolerance_rest < headroom.params.tolerance_period_ns, "a rest");
	PROOF_REACHED();
}

/* Narrowed: from any credit to a headroom of 30 %, see small_headroom(). */
void prove_a_change_of_parameters_keeps_credit_within_bounds(void)
{
	struct plim_headroom headroom = any_headroom(), target = small_headroom(300000);

	plim_headroom_set(&headroom, &target.params);
	PROVE(is_valid(&headroom), "within the new bounds");
	PROOF_REACHED();
}

static plim_u64 any_ghost(void)
{
	return nondet_u8() & 15;
}

/*
 * One step of the induction for the law. Usable, reserved and busy time are
 * ghost variables. Narrowed: all below 2^4, of which only sums are taken; the
 * proof of balance() above is for all values.
 *
 * At time t after the start of the window, usable = (1 - H) * C * t may be
 * busy, and reserved = H * C * t is the remaining capacity of the CPUs. The
 * hypothesis holds at the start of the window, for a credit of at most
 * credit_max: credit + busy <= usable + credit_max, or all overdrawn time was
 * forgotten: credit + busy <= usable + reserved - debt.
 */
void prove_a_step_keeps_the_law(void)
{
	plim_u64 debt_max = any_ghost(), credit_max = any_ghost();
	plim_u64 earned = any_ghost(), kept = any_ghost(), spent = any_ghost();
	plim_s64 credit = (plim_s64)any_ghost() - (plim_s64)any_ghost(), after;
	plim_s64 usable = (plim_s64)any_ghost(), reserved = (plim_s64)any_ghost();
	plim_s64 busy = (plim_s64)any_ghost();

	ASSUME(credit <= (plim_s64)credit_max && credit >= -(plim_s64)debt_max);
	ASSUME(busy <= usable + reserved);
	ASSUME(credit + busy <= usable + (plim_s64)credit_max ||
	       credit + busy <= usable + reserved - (plim_s64)debt_max);
	/*
	 * No CPU runs longer than the clock: update() clamps the input to that.
	 */
	ASSUME(spent <= earned + kept);
	after = plim_headroom_balance(credit, earned, spent, debt_max, credit_max);
	usable += (plim_s64)earned;
	reserved += (plim_s64)kept;
	busy += (plim_s64)spent;
	PROVE(after + busy <= usable + (plim_s64)credit_max ||
		      after + busy <= usable + reserved - (plim_s64)debt_max,
	      "the hypothesis again");
	/*
	 * Within the window H * C * t <= H * C * W, which is the largest debt
	 * kept.
	 */
	if (reserved <= (plim_s64)debt_max)
		PROVE(after + busy <= usable + (plim_s64)credit_max,
		      "batch + grant <= (1 - H) C W - nonbatch + C grain");
	PROOF_REACHED();
}

/*
 * update() makes such a step, with the values it computes. Narrowed: see
 * small_headroom(); one elapsed time, of 2^16 ns.
 */
void prove_an_update_is_such_a_step(void)
{
	struct plim_headroom headroom = small_headroom(300000), before = headroom;
	const struct plim_headroom_params *params = &headroom.params;
	plim_u64 elapsed_ns = 1ULL << 16, nonbatch_ns = nondet_u16(), batch_ns = nondet_u16();
	plim_u64 usable_ns = plim_headroom_usable_ns(params, elapsed_ns);

	ASSUME(nonbatch_ns + batch_ns <= elapsed_ns * params->nr_cpus);
	plim_headroom_update(&headroom, nonbatch_ns, batch_ns, elapsed_ns);
	PROVE(headroom.credit_ns == plim_headroom_balance(before.credit_ns, usable_ns,
							  nonbatch_ns + batch_ns,
							  plim_headroom_debt_max_ns(params),
							  plim_headroom_credit_max_ns(params)),
	      "credit moves by usable - busy");
	PROVE(is_valid(&headroom), "within the bounds");
	PROOF_REACHED();
}

/*
 * The largest debt kept is the most that one window can overdraw, to the
 * nanosecond. Narrowed: a window of 100 ms on up to 255 CPUs, 30 % headroom.
 */
void prove_the_kept_debt_covers_a_window(void)
{
	struct plim_headroom_params params = {
		.window_ns = PLIM_HEADROOM_WINDOW_DEFAULT_NS,
		.headroom_ppm = 300000,
		.nr_cpus = nondet_u8(),
	};
	plim_u64 debt_ns;

	debt_ns = plim_headroom_debt_max_ns(&params);
	PROVE(debt_ns == 30 * PLIM_NSEC_PER_MSEC * params.nr_cpus, "H C W");
	PROOF_REACHED();
}

/*
 * Input is clamped to the capacity of the CPUs, and a clock that runs backwards
 * grants nothing more.
 */
void prove_usage_is_clamped_to_the_capacity_of_the_cpus(void)
{
	struct plim_headroom headroom = small_headroom(300000), before = headroom;

	headroom.updated_ns = before.updated_ns = any_u64(0, LIFETIME_NS);
	plim_headroom_update(&headroom, nondet_u64(), nondet_u64(), any_u64(0, before.updated_ns));
	PROVE(headroom.credit_ns == before.credit_ns, "no time, no credit");
	PROVE(headroom.updated_ns == before.updated_ns, "the clock stays");
	PROOF_REACHED();
}

/*
 * No other load, and batch work that always uses its grant: after the first
 * grain it gets exactly (1 - H) * C * elapsed each time. Narrowed: see
 * small_headroom(); updates after a quarter, a half and a whole grain.
 */
void prove_without_other_load_batch_work_gets_exactly_the_rest(void)
{
	struct plim_headroom headroom = small_headroom(300000);
	plim_u64 now_ns = 0, elapsed_ns, grant_ns, i;

	headroom.params.tolerance_runtime_ns = 0;
	headroom.credit_ns = 0;
	headroom.tolerance_credit_ns = 0;
	headroom.tolerance_rest = 0;
	grant_ns = 0;
	for (i = 0; i < 3; i++) {
		elapsed_ns = 1ULL << (18 + i);
		now_ns += elapsed_ns;
		/* It cannot run more than the capacity of the CPUs. */
		ASSUME(grant_ns <= elapsed_ns * headroom.params.nr_cpus);
		grant_ns = plim_headroom_update(&headroom, 0, grant_ns, now_ns);
		PROVE(grant_ns == plim_headroom_usable_ns(&headroom.params, elapsed_ns),
		      "(1 - H) C t");
	}
	PROOF_REACHED();
}

/* Narrowed: see small_headroom(); any period of the tolerance. */
void prove_batch_work_returns_once_in_a_grain_or_with_a_full_credit(void)
{
	struct plim_headroom headroom = small_headroom(300000);
	plim_u64 returned_ns = any_u64(0, LIFETIME_NS), since_ns, wait_ns = 1ULL << 20;
	int is_full = headroom.credit_ns == 2LL << 20;

	headroom.params.tolerance_period_ns = any_u64(PLIM_TOLERANCE_PERIOD_MIN_NS, 1ULL << 30);
	headroom.updated_ns = any_u64(returned_ns, LIFETIME_NS);
	since_ns = headroom.updated_ns - returned_ns;
	PROVE(plim_headroom_may_return(&headroom, returned_ns) || since_ns < wait_ns,
	      "never later than a grain");
	if (headroom.tolerance_credit_ns > headroom.credit_ns &&
	    headroom.params.tolerance_period_ns < wait_ns)
		wait_ns = headroom.params.tolerance_period_ns;
	PROVE(plim_headroom_may_return(&headroom, returned_ns) == (since_ns >= wait_ns || is_full),
	      "nor than a shorter period of a tolerance that is all; at once with a full credit");
	PROOF_REACHED();
}

/*
 * Narrowed: see small_headroom(); intervals of a quarter of a grain, in which
 * other work takes any time.
 */
void prove_what_is_left_of_a_grant_follows_the_other_load(void)
{
	struct plim_headroom headroom = small_headroom(300000);
	plim_u64 quarter_ns = 1ULL << 18, nonbatch_ns = any_u64(0, 1ULL << 19), rest_ns, usable_ns;
	plim_u64 returned_ns = any_u64(0, LIFETIME_NS);

	headroom.params.tolerance_runtime_ns = 0;
	headroom.tolerance_credit_ns = 0;
	headroom.tolerance_rest = 0;
	headroom.updated_ns = returned_ns;
	plim_headroom_update(&headroom, nonbatch_ns, nondet_u32(), returned_ns + quarter_ns);
	rest_ns = plim_headroom_rest_ns(&headroom, returned_ns);
	usable_ns = plim_headroom_usable_ns(&headroom.params, quarter_ns);
	PROVE(rest_ns <= plim_headroom_grant_ns(&headroom), "never more than the grant");
	PROVE(rest_ns <= 3 * usable_ns, "nor than the law gives until the return");
	if (headroom.allowance_ns == 0)
		PROVE(rest_ns == 0, "nothing, if other work takes all that is usable");
	PROVE(rest_ns == plim_min(plim_headroom_grant_ns(&headroom), 3 * headroom.allowance_ns),
	      "and one of them");
	PROOF_REACHED();
}

/* Narrowed: see small_headroom(); intervals of a quarter of a grain. */
void prove_a_return_has_no_credit_from_before_a_jump(void)
{
	struct plim_headroom headroom = small_headroom(300000);
	plim_u64 returned_ns, law_ns;

	headroom.interval_ns = 1ULL << 18;
	headroom.allowance_ns = any_u64(0, 1ULL << 19);
	law_ns = 4 * headroom.allowance_ns;
	returned_ns = plim_headroom_return_ns(&headroom);
	PROVE((plim_s64)returned_ns >= headroom.tolerance_credit_ns, "not below the tolerance");
	PROVE(returned_ns <= plim_headroom_grant_ns(&headroom), "never more than the grant");
	PROVE((plim_s64)returned_ns == headroom.tolerance_credit_ns || returned_ns <= 2 * law_ns,
	      "nor than twice what the law gives");
	if (headroom.credit_ns >= 0 && (plim_u64)headroom.credit_ns <= 2 * law_ns)
		PROVE((plim_s64)returned_ns >= headroom.credit_ns, "else all credit");
	PROOF_REACHED();
}

/*
 * For any sums: over any time, the usage of batch work beyond the law is at
 * most the unpaid overrun plus the tolerance earned, except for overruns longer
 * than PLIM_HEADROOM_OVERRUN_MAX_SLICES.
 */
void prove_an_overrun_is_paid_before_the_next_slice(void)
{
	struct plim_headroom headroom = small_headroom(1000000);
	plim_u64 most = 20 * headroom.params.tolerance_runtime_ns;
	plim_u64 before = any_u64(0, most), over = any_u64(0, 1ULL << 50);
	plim_u64 elapsed = nondet_u32(), earned, after;

	earned = plim_headroom_tolerance_ns(&headroom.params, elapsed);
	after = plim_headroom_overrun_ns(&headroom.params, before, over, elapsed);
	PROVE(after <= most, "bounded");
	PROVE(before + over > most || after + earned >= before + over, "nothing is forgiven");
	PROVE(after <= before + over && (!after || after + earned <= before + over),
	      "nothing is charged that was not run");
	PROOF_REACHED();
}

void prove_the_grant_is_never_below_the_tolerance(void)
{
	struct plim_headroom headroom;
	plim_u64 grant_ns = plim_headroom_grant_ns(&headroom);

	PROVE((plim_s64)grant_ns >= headroom.tolerance_credit_ns, "not below the tolerance");
	PROVE((plim_s64)grant_ns >= headroom.credit_ns, "nor the credit");
	PROVE(grant_ns == 0 || (plim_s64)grant_ns == headroom.tolerance_credit_ns ||
		      (plim_s64)grant_ns == headroom.credit_ns,
	      "and one of them");
	PROOF_REACHED();
}

/* Narrowed: 1,025 ns in 2^20 ns, by which the solver can divide. */
void prove_tolerance_is_earned_exactly(void)
{
	struct plim_headroom headroom;
	plim_u64 elapsed_ns = nondet_u16(), rest, earned_ns;

	headroom.params.tolerance_period_ns = 1ULL << 20;
	headroom.params.tolerance_runtime_ns = 1025;
	rest = headroom.tolerance_rest;
	ASSUME(rest < 1ULL << 20);
	earned_ns = plim_headroom_earn_tolerance(&headroom, elapsed_ns);
	PROVE((earned_ns << 20) + headroom.tolerance_rest ==
		      elapsed_ns * headroom.params.tolerance_runtime_ns + rest,
	      "no part of a nanosecond is lost");
	PROOF_REACHED();
}

void prove_shortfall_counts_only_above_the_tolerance(void)
{
	struct plim_headroom headroom = small_headroom(300000);
	plim_u64 elapsed_ns = 1ULL << 16, nonbatch_ns = nondet_u16(), batch_ns = nondet_u16();
	plim_u64 usable_ns = plim_headroom_usable_ns(&headroom.params, elapsed_ns);
	plim_u64 tolerance_ns = plim_headroom_tolerance_ns(&headroom.params, elapsed_ns);

	plim_headroom_count_shortfall(&headroom, elapsed_ns, nonbatch_ns, batch_ns);
	PROVE(headroom.shortfall_ns ==
		      (batch_ns <= tolerance_ns
			       ? 0
			       : plim_sub_floor(nonbatch_ns + batch_ns, usable_ns)),
	      "shortfall of idle time while batch work was above its tolerance");
	PROOF_REACHED();
}

/* Narrowed: up to 7 CPUs. */
void prove_a_headroom_of_whole_cpus_is_never_less(void)
{
	plim_u32 cpus = nondet_u8(), nr_cpus = nondet_u8() & 7, ppm;

	ppm = plim_headroom_from_cpus_ppm(cpus, nr_cpus);
	PROVE(ppm <= PLIM_PPM, "a share");
	PROVE((plim_u64)ppm * nr_cpus >= plim_min(cpus, nr_cpus) * PLIM_PPM, "never less");
	PROVE(cpus >= nr_cpus || (plim_u64)ppm * nr_cpus < cpus * PLIM_PPM + nr_cpus,
	      "and less than one part more");
	PROOF_REACHED();
}

/* A demand that any groups may have made: its type invariant. */
static struct plim_headroom_demand any_demand(void)
{
	struct plim_headroom_demand demand;

	ASSUME(demand.headroom_ppm <= PLIM_PPM && demand.has_tolerance <= 1);
	ASSUME(demand.tolerance_period_ns >= PLIM_TOLERANCE_PERIOD_MIN_NS &&
	       demand.tolerance_period_ns <= PLIM_TOLERANCE_PERIOD_MAX_NS &&
	       demand.tolerance_runtime_ns <= demand.tolerance_period_ns &&
	       demand.tolerance_runtime_ns <= PLIM_TOLERANCE_RUNTIME_MAX_NS);
	return demand;
}

/* The demand of one group. */
struct ask {
	enum plim_headroom_form form;
	plim_u32 value;
	plim_u64 runtime_ns, period_ns;
};

/* Anything, in range or not. */
static struct ask any_ask(void)
{
	struct ask ask;

	ask.form = any_bool()	? PLIM_HEADROOM_FORM_NONE
		   : any_bool() ? PLIM_HEADROOM_FORM_SHARE
				: PLIM_HEADROOM_FORM_CPUS;
	return ask;
}

/* Narrowed, so that a solver can multiply: a runtime of 0 to 3 in a period of 1 to 4 ms. */
static struct ask small_ask(void)
{
	struct ask ask = any_ask();

	ask.runtime_ns = (nondet_u8() & 3) * PLIM_NSEC_PER_MSEC;
	ask.period_ns = (1 + (nondet_u8() & 3)) * PLIM_NSEC_PER_MSEC;
	return ask;
}

static void add(struct plim_headroom_demand *demand, const struct ask *ask)
{
	plim_headroom_demand_add(demand, ask->form, ask->value, ask->runtime_ns, ask->period_ns);
}

/*
 * Headroom: the larger one of each form. Tolerance: in its range, that of the
 * group or the one before. For any number; the checks prove that nothing wraps.
 */
void prove_a_demand_is_the_largest_headroom_and_a_tolerance_in_range(void)
{
	struct plim_headroom_demand before = any_demand(), after = before;
	struct ask ask = any_ask();
	plim_u32 ppm = ask.form == PLIM_HEADROOM_FORM_SHARE ? ask.value : 0;
	plim_u32 cpus = ask.form == PLIM_HEADROOM_FORM_CPUS ? ask.value : 0;

	add(&after, &ask);
	PROVE(after.headroom_ppm == plim_max(before.headroom_ppm, plim_min(ppm, 1000000)),
	      "the larger share");
	PROVE(after.headroom_cpus == plim_max(before.headroom_cpus, cpus), "the larger number");
	PROVE(after.tolerance_period_ns >= 1000000 && after.tolerance_period_ns <= 10000000000 &&
		      after.tolerance_runtime_ns <= after.tolerance_period_ns &&
		      after.tolerance_runtime_ns <= 1000000000,
	      "a tolerance in range");
	PROVE((after.tolerance_runtime_ns == before.tolerance_runtime_ns &&
	       after.tolerance_period_ns == before.tolerance_period_ns) ||
		      ppm || cpus || ask.period_ns,
	      "a group without a demand changes nothing");
	PROVE(after.has_tolerance == (before.has_tolerance || ppm || cpus || ask.period_ns),
	      "every headroom brings a tolerance");
	PROOF_REACHED();
}

/* Narrowed: see small_ask(). Nothing a group says raises the tolerance, and its own counts. */
void prove_the_smallest_tolerance_counts(void)
{
	struct plim_headroom_demand demand;
	struct ask first = small_ask(), second = small_ask();
	plim_u64 runtime_ns, period_ns,
		of_second_ns = plim_min(second.runtime_ns, second.period_ns);

	plim_headroom_demand_init(&demand);
	add(&demand, &first);
	runtime_ns = demand.tolerance_runtime_ns;
	period_ns = demand.tolerance_period_ns;
	PROVE(runtime_ns == plim_min(first.runtime_ns, first.period_ns) &&
		      period_ns == first.period_ns,
	      "a single group has its own");
	add(&demand, &second);
	PROVE(demand.tolerance_runtime_ns * period_ns <= runtime_ns * demand.tolerance_period_ns,
	      "never raised");
	PROVE(demand.tolerance_runtime_ns * second.period_ns <=
		      of_second_ns * demand.tolerance_period_ns,
	      "no more than the second group's");
	PROVE((demand.tolerance_runtime_ns == runtime_ns &&
	       demand.tolerance_period_ns == period_ns) ||
		      (demand.tolerance_runtime_ns == of_second_ns &&
		       demand.tolerance_period_ns == second.period_ns),
	      "one of the two");
	PROOF_REACHED();
}

/* Narrowed: see small_ask(). */
void prove_the_order_of_groups_makes_no_difference(void)
{
	struct plim_headroom_demand one, other;
	struct ask first = small_ask(), second = small_ask();

	plim_headroom_demand_init(&one);
	other = one;
	add(&one, &first);
	add(&one, &second);
	add(&other, &second);
	add(&other, &first);
	PROVE(one.tolerance_runtime_ns == other.tolerance_runtime_ns &&
		      one.tolerance_period_ns == other.tolerance_period_ns &&
		      one.headroom_ppm == other.headroom_ppm &&
		      one.headroom_cpus == other.headroom_cpus,
	      "the same demand");
	PROOF_REACHED();
}

/* Narrowed: up to 15 CPUs, of any demand; the checks prove that nothing wraps. */
void prove_the_larger_form_of_headroom_is_in_force(void)
{
	struct plim_headroom_demand demand = any_demand();
	plim_u32 nr_cpus = nondet_u8() & 15;
	enum plim_headroom_form in_force = plim_headroom_demand_in_force(&demand, nr_cpus);
	enum plim_headroom_form overruled = plim_headroom_demand_overruled(&demand, nr_cpus);
	plim_u64 share = (plim_u64)demand.headroom_ppm * nr_cpus;
	plim_u64 cpus = demand.headroom_cpus * PLIM_PPM;
	int both = demand.headroom_ppm && cpus;

	PROVE(in_force != PLIM_HEADROOM_FORM_SHARE || !cpus || share > cpus,
	      "a share that is larger");
	PROVE(in_force != PLIM_HEADROOM_FORM_CPUS || (cpus && cpus >= share),
	      "or a number that is no smaller");
	PROVE((in_force == PLIM_HEADROOM_FORM_NONE) == (!demand.headroom_ppm && !cpus),
	      "or no group asks");
	PROVE((overruled != PLIM_HEADROOM_FORM_NONE) == both && (!both || overruled != in_force),
	      "the other form is overruled, if it is asked for");
	PROOF_REACHED();
}

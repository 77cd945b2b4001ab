/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Proofs of the bounds of usage, on a scale model.
 *
 * Here a millisecond is 2 ns long, and a whole CPU has 8 parts instead of a
 * thousand, so that a solver can follow any step of a group, and sequences of
 * runs under a cap, through every order and every rounding. The code takes
 * sums, minima and quotients of these units and does not depend on their size.
 * The proofs at full scale are in bandwidth.c and ratecap.c.
 */
#include "proof.h"

#undef PLIM_NSEC_PER_MSEC
#define PLIM_NSEC_PER_MSEC 2ULL
#undef PLIM_PERMILLE
#define PLIM_PERMILLE 8ULL

#include "plimsoll/bandwidth.h"
#include "plimsoll/ratecap.h"

static plim_u64 any_amount(void)
{
	return nondet_u8() & 15;
}

/* Runtime of a group: pool and CPUs, less debts. */
static plim_s64
all_held_ns(const struct plim_bandwidth *pool, const struct plim_bandwidth_cpu *cpus)
{
	return (plim_s64)pool->runtime_ns + cpus[0].runtime_ns + cpus[1].runtime_ns;
}

/*
 * Invariants that every step preserves, see the proofs of single steps in
 * bandwidth.c.
 */
static int is_reachable(const struct plim_bandwidth *pool, const struct plim_bandwidth_cpu *cpus,
			plim_u64 overrun_ns)
{
	int i;

	for (i = 0; i < 2; i++) {
		if (cpus[i].runtime_ns > (plim_s64)pool->params.slice_ns ||
		    cpus[i].runtime_ns < -(plim_s64)overrun_ns)
			return 0;
		if (cpus[i].throttled ? cpus[i].runtime_ns > 0 : cpus[i].runtime_ns < 0)
			return 0;
	}
	return pool->runtime_ns <= pool->params.quota_ns + pool->params.burst_ns;
}

/* Any state of a group on two CPUs. */
static struct plim_bandwidth any_group(struct plim_bandwidth_cpu *cpus, plim_u64 overrun_ns)
{
	struct plim_bandwidth pool = { 0 };
	int i;

	pool.params.quota_ns = any_amount();
	pool.params.burst_ns = any_amount();
	pool.params.slice_ns = 1 + any_amount();
	pool.runtime_ns = any_amount();
	pool.nr_throttled_cpus = 2;
	for (i = 0; i < 2; i++) {
		cpus[i] = (struct plim_bandwidth_cpu){ 0 };
		cpus[i].runtime_ns = (plim_s64)any_amount() - (plim_s64)any_amount();
		cpus[i].throttled = (plim_u8)any_bool();
	}
	ASSUME(is_reachable(&pool, cpus, overrun_ns));
	return pool;
}

/*
 * The induction for the window bound: after any step of a group on two CPUs,
 * usage and runtime grow by no more than the refill, and the invariants hold.
 */
void prove_any_step_keeps_usage_within_the_refill(void)
{
	struct plim_bandwidth_cpu cpus[2], *cpu = &cpus[any_bool()];
	plim_u64 overrun_ns = any_amount(), kind = any_u64(0, 3), refilled_ns = 0, ran_ns = 0;
	struct plim_bandwidth pool = any_group(cpus, overrun_ns);
	plim_s64 held_ns = all_held_ns(&pool, cpus);
	int may_run;

	if (kind == 0) {
		/*
		 * For one boundary, as proved in bandwidth.c; a refill for
		 * several gives no more than several refills. Without the
		 * divisions, which the solver would have to handle.
		 */
		refilled_ns = pool.params.quota_ns;
		pool.runtime_ns = plim_min(pool.runtime_ns + refilled_ns,
					   plim_bandwidth_capacity_ns(&pool.params, any_bool()));
	} else if (kind == 1) {
		plim_bandwidth_serve(&pool, cpu, 0);
	} else if (kind == 2) {
		plim_bandwidth_return(&pool, cpu, any_bool());
	} else if (!cpu->throttled) {
		/* As the caller does: checks before the first run. */
		may_run = cpu->runtime_ns > 0 || plim_bandwidth_charge(&pool, cpu, 0, 0);
		ran_ns = any_amount();
		ASSUME(ran_ns <= (may_run ? (plim_u64)cpu->runtime_ns + overrun_ns : 0));
		plim_bandwidth_charge(&pool, cpu, ran_ns, 0);
	}
	PROVE((plim_s64)ran_ns + all_held_ns(&pool, cpus) <= held_ns + (plim_s64)refilled_ns,
	      "usage + held' <= held + refilled");
	PROVE(is_reachable(&pool, cpus, overrun_ns), "the state is one of those");
	PROOF_REACHED();
}

#define RUNS 3

/*
 * Any three runs from any bucket, on @cpus CPUs at a time: each is allowed at
 * its start and charged at its end, and overlaps the @cpus - 1 previous runs.
 */
static void prove_usage(plim_u32 hard, plim_u64 cpus)
{
	struct plim_ratecap_params params = { 0 };
	struct plim_ratecap cap = { 0 };
	plim_u64 from_ns = any_amount(), grain_ns = any_amount(), clock_ns, usage_ns = 0;
	plim_u64 starts[RUNS], ran[RUNS], i;

	params.hard_permille = hard;
	params.depth_ns = any_amount();
	cap.tat_ns = any_amount() * 4;
	cap.tat_rest = any_amount();
	ASSUME(cap.tat_rest < hard);
	clock_ns = from_ns;
	for (i = 0; i < RUNS; i++) {
		if (i >= cpus) {
			plim_ratecap_charge(&cap, &params, starts[i - cpus], ran[i - cpus]);
			clock_ns = plim_max(clock_ns, starts[i - cpus] + ran[i - cpus]);
		}
		clock_ns += any_amount();
		starts[i] = clock_ns;
		ran[i] = any_amount();
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
	prove_usage(3, 1);
	PROOF_REACHED();
}

void prove_usage_of_a_task_at_one_cpu_is_bounded(void)
{
	prove_usage(8, 1);
	PROOF_REACHED();
}

void prove_usage_on_two_cpus_is_bounded(void)
{
	prove_usage(4, 2);
	PROOF_REACHED();
}

void prove_usage_above_one_cpu_is_bounded(void)
{
	prove_usage(12, 2);
	PROOF_REACHED();
}

/* TAT with its fraction, in units of 1 / cap; exact, without drift. */
void prove_a_charge_is_exact(void)
{
	struct plim_ratecap_params params = { .hard_permille = 3 };
	struct plim_ratecap cap = { .tat_ns = any_amount(), .tat_rest = any_amount() & 1 }, before;
	plim_u64 start_ns = any_amount(), ran_ns = any_amount();

	before = cap;
	if (before.tat_ns < start_ns) {
		before.tat_ns = start_ns;
		before.tat_rest = 0;
	}
	plim_ratecap_charge(&cap, &params, start_ns, ran_ns);
	PROVE(cap.tat_ns * 3 + cap.tat_rest ==
		      before.tat_ns * 3 + before.tat_rest + ran_ns * PLIM_PERMILLE,
	      "TAT' = max(TAT, start) + ran / cap");
	PROVE(cap.tat_rest < 3, "the rest is below one");
	PROOF_REACHED();
}

/*
 * @cpus CPUs that begin together and run for the time of plim_ratecap_run_ns(),
 * each charged at its end: then the bucket's owner may still run, but not after
 * a longer run. Any bucket.
 */
static void prove_run(plim_u32 hard, plim_u32 cpus)
{
	struct plim_ratecap_params params = { .hard_permille = hard };
	struct plim_ratecap cap = { 0 }, longer;
	plim_u64 now_ns = any_amount(), run_ns, i;

	params.depth_ns = any_amount();
	cap.tat_ns = any_amount() * 4;
	cap.tat_rest = any_amount();
	ASSUME(cap.tat_rest < hard);
	longer = cap;
	run_ns = plim_ratecap_run_ns(&cap, &params, cpus, now_ns);
	if (!plim_ratecap_may_run(&cap, &params, now_ns)) {
		PROVE(run_ns == 0, "0 where it may not run");
		return;
	}
	for (i = 0; i < cpus; i++) {
		plim_ratecap_charge(&cap, &params, now_ns, run_ns);
		plim_ratecap_charge(&longer, &params, now_ns, run_ns + 1);
	}
	PROVE(plim_ratecap_may_run(&cap, &params, now_ns + run_ns), "TAT <= now + d + depth");
	PROVE(!plim_ratecap_may_run(&longer, &params, now_ns + run_ns + 1), "and d is the longest");
}

void prove_run_ns_of_a_task_is_within_the_depth(void)
{
	prove_run(3, 1);
	PROOF_REACHED();
}

void prove_run_ns_of_two_cpus_is_within_the_depth(void)
{
	prove_run(4, 2);
	PROOF_REACHED();
}

void prove_run_ns_of_a_group_above_one_cpu_is_within_the_depth(void)
{
	prove_run(12, 2);
	PROOF_REACHED();
}

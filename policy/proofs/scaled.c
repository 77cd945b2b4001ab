/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Proofs of the bounds of usage under a rate cap, on a scale model.
 *
 * Here a millisecond is 2 ns long, and a whole CPU has 8 parts instead of a
 * thousand, so that a solver can follow sequences of runs through every order
 * and every rounding. The code takes sums, minima and quotients of these units
 * and does not depend on their size. The proofs at full scale are in ratecap.c;
 * bandwidth.c needs no model, because it adds up single steps.
 */
#include "proof.h"

#undef PLIM_NSEC_PER_MSEC
#define PLIM_NSEC_PER_MSEC 2ULL
#undef PLIM_PERMILLE
#define PLIM_PERMILLE 8ULL

#include "plimsoll/ratecap.h"

static plim_u64 any_amount(void)
{
	return nondet_u8() & 15;
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

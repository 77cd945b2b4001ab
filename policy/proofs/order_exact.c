/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Proofs of plimsoll/order.h that depend on the division: order.c has the others. */
#include "plimsoll/order.h"
#include "proof.h"

void prove_weights_fall_by_a_quarter_per_nice_level(void)
{
	plim_s32 nice = nondet_s32();
	plim_u64 weight, next;

	ASSUME(nice < PLIM_NICE_MAX && nice >= PLIM_NICE_MIN);
	weight = plim_order_nice_weight(nice);
	next = plim_order_nice_weight(nice + 1);
	PROVE(next > 0 && weight > next, "positive, and less for each level");
	PROVE(weight * 100 >= next * 115 && weight * 100 <= next * 135, "by 1.15 to 1.35");
	PROVE(plim_order_nice_weight(0) == PLIM_WEIGHT_NICE_0, "nice 0 is the unit");
	PROOF_REACHED();
}

void prove_nice_out_of_range_is_clamped(void)
{
	plim_s32 nice = nondet_s32();
	plim_u32 weight = plim_order_nice_weight(nice);

	PROVE(nice >= PLIM_NICE_MIN || weight == plim_order_nice_weight(PLIM_NICE_MIN),
	      "from below");
	PROVE(nice <= PLIM_NICE_MAX || weight == plim_order_nice_weight(PLIM_NICE_MAX),
	      "from above");
	PROOF_REACHED();
}

void prove_group_weights_are_positive_and_monotone(void)
{
	plim_u32 less = nondet_u32(), more = nondet_u32();

	ASSUME(less <= more);
	PROVE(plim_order_group_weight(less) > 0, "positive");
	PROVE(plim_order_group_weight(less) <= plim_order_group_weight(more), "monotone");
	PROVE(plim_order_group_weight(PLIM_GROUP_WEIGHT_DEFAULT) == PLIM_WEIGHT_NICE_0,
	      "the default is the unit");
	PROOF_REACHED();
}

/*
 * Narrowed: requests below 2^8 ns and 16 weights, by which the solver can divide.
 * checks off: unsigned-overflow conversion (virtual time wraps on purpose)
 */
void prove_a_request_that_runs_to_its_end_does_not_pass_its_deadline(void)
{
	plim_u64 effective = (plim_u64)((nondet_u8() & 15) + 1) << 17;
	struct plim_order task = { .start = nondet_u64(), .request_ns = nondet_u8() };
	plim_u64 left_ns, ran_ns = nondet_u8();

	plim_order_renew(&task, task.start, effective, PLIM_ORDER_PART_WHOLE);
	left_ns = plim_order_left_ns(&task, effective);
	PROVE(left_ns == task.request_ns, "all of it is left");
	ASSUME(ran_ns <= left_ns);
	plim_order_charge(&task, ran_ns, effective);
	PROVE(!plim_order_before(task.deadline, task.start), "not passed");
	PROVE(ran_ns < left_ns || plim_order_is_served(&task), "and served when all has run");
	PROVE(plim_order_left_ns(&task, effective) <=
		      left_ns - ran_ns + (effective >> PLIM_ORDER_UNIT_SHIFT),
	      "the rest, but for a rounding that costs no more than a nanosecond of the unit");
	PROOF_REACHED();
}

/* Narrowed: small weights and loads, by which the solver can divide. */
void prove_only_a_task_lighter_than_the_mean_asks_for_less(void)
{
	plim_u32 before = (plim_u32)nondet_u8() << 3, weight = nondet_u8() & 7;
	plim_u32 request_ns = (plim_u32)nondet_u8() << 13, nr = nondet_u8() & 3;
	plim_u64 load = nondet_u8() & 31, part_ns;
	plim_u32 most = (plim_u32)plim_max(plim_min(before, PLIM_ORDER_PART_WHOLE), 1);
	plim_u32 part = plim_order_part(before, weight, nr, load);

	PROVE(part >= 1 && part <= most, "a part");
	PROVE(weight * nr < load || part == most,
	      "lighter than the mean of all is so of the others");
	PROVE(nr > 1 || part == most, "one alone asks for its whole request");
	part_ns = plim_order_part_ns(request_ns, part);
	PROVE(part_ns <= request_ns, "no more than the request");
	PROVE(part_ns >= plim_min(request_ns, PLIM_ORDER_REQUEST_MIN_NS), "nor below the shortest");
	PROVE(part < PLIM_ORDER_PART_WHOLE || part_ns == request_ns, "the whole is the request");
	PROOF_REACHED();
}

/* Narrowed: weights of 1 to 4. */
void prove_tasks_of_a_group_have_its_share_together(void)
{
	plim_u32 weights[3];
	plim_u64 share = plim_order_share_at_top(nondet_u8() & 3);
	plim_u64 load = 0, sum = 0;
	int i;

	for (i = 0; i < 3; i++) {
		weights[i] = (nondet_u8() & 3) + 1;
		load += weights[i];
	}
	for (i = 0; i < 3; i++)
		sum += plim_order_weight(weights[i], share, load);
	PROVE(sum <= share + 3, "and no more");
	PROVE(plim_order_weight(PLIM_WEIGHT_NICE_0, plim_order_share_at_top(PLIM_WEIGHT_NICE_0),
				0) == PLIM_ORDER_WEIGHT_UNIT,
	      "nice 0 alone is the unit");
	PROOF_REACHED();
}

/* Narrowed: weights of 1 to 4, and a load that is as much too small as it likes. */
void prove_groups_in_a_group_have_its_share_together(void)
{
	plim_u32 weights[3], around = (nondet_u8() & 3) + 1;
	plim_u64 load = 0, sum = 0, stale = nondet_u8();
	int i;

	for (i = 0; i < 3; i++) {
		weights[i] = (nondet_u8() & 3) + 1;
		load += weights[i];
	}
	for (i = 0; i < 3; i++)
		sum += plim_order_share(plim_order_share_at_top(weights[i]), around, load);
	PROVE(sum <= plim_order_share_at_top(around), "and no more");
	ASSUME(stale < load);
	PROVE(plim_order_share(plim_order_share_at_top(weights[0]), around, stale) <=
		      plim_order_share_at_top(around),
	      "whatever is counted");
	PROOF_REACHED();
}

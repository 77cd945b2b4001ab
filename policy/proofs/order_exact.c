/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Proofs of plimsoll/order.h that depend on the division: order.c has the others. */
#include "plimsoll/order.h"
#include "proof.h"

/*
 * Narrowed: requests below 2^8 ns and 16 weights, by which the solver can divide.
 * checks off: unsigned-overflow conversion (virtual time wraps on purpose)
 */
void prove_a_request_that_runs_to_its_end_does_not_pass_its_deadline(void)
{
	plim_u64 effective = (plim_u64)((nondet_u8() & 15) + 1) << 17;
	struct plim_order task = { .start = nondet_u64(), .request_ns = nondet_u8() };
	plim_u64 left_ns, ran_ns = nondet_u8();

	plim_order_renew(&task, effective);
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

/* Narrowed: weights of 1 to 4. */
void prove_tasks_of_a_group_have_its_weight_together(void)
{
	plim_u32 weights[3], group_weight = nondet_u8() & 3;
	plim_u64 load = 0, sum = 0;
	int i;

	for (i = 0; i < 3; i++) {
		weights[i] = (nondet_u8() & 3) + 1;
		load += weights[i];
	}
	for (i = 0; i < 3; i++)
		sum += plim_order_weight(weights[i], group_weight, load);
	PROVE(sum <= ((plim_u64)group_weight << PLIM_ORDER_WEIGHT_SHIFT) + 3, "and no more");
	PROVE(plim_order_weight(PLIM_WEIGHT_NICE_0, PLIM_WEIGHT_NICE_0, 0) ==
		      PLIM_ORDER_WEIGHT_UNIT,
	      "nice 0 alone is the unit");
	PROOF_REACHED();
}

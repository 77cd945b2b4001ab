/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Proofs of plimsoll/sharing.h.
 */
#include "plimsoll/sharing.h"
#include "proof.h"

/*
 * The largest weight, any grant and any want in the order; the checks prove that
 * nothing wraps, here and in the proof below, where the group can be satisfied.
 */
void prove_sharing_never_wraps(void)
{
	struct plim_share group = { .want_ns = PLIM_UNLIMITED, .weight = 10000 };
	struct plim_share other = { .want_ns = nondet_u64(), .weight = 10000 };

	plim_share_before(&group, &other);
	plim_share_split(&group, 1, nondet_u64());
	PROOF_REACHED();
}

/* Two batch groups of any small weights, wants and grant, in any order. */
static plim_u64 split_two(struct plim_share *groups, plim_u64 grant_ns)
{
	int i;

	for (i = 0; i < 2; i++) {
		groups[i].want_ns = nondet_u8() & 15;
		groups[i].weight = 1 + (nondet_u8() & 3);
	}
	plim_share_split(groups, 2, grant_ns);
	return groups[0].share_ns + groups[1].share_ns;
}

/* Narrowed: two batch groups, weights up to 4, wants and grant below 16. */
void prove_shares_are_within_wants_and_grant_and_waste_nothing(void)
{
	struct plim_share groups[2];
	plim_u64 grant_ns = nondet_u8() & 15, sum_ns = split_two(groups, grant_ns);

	PROVE(sum_ns <= grant_ns, "within the grant");
	PROVE(groups[0].share_ns <= groups[0].want_ns && groups[1].share_ns <= groups[1].want_ns,
	      "within the wants");
	PROVE(plim_share_before(&groups[1], &groups[0]) ||
		      sum_ns + 2 > plim_min(grant_ns, groups[0].want_ns + groups[1].want_ns),
	      "in their order all that is wanted, but for rounding");
	PROOF_REACHED();
}

/* Narrowed as above. */
void prove_hungry_groups_share_by_weight(void)
{
	struct plim_share groups[2];
	plim_u64 grant_ns = nondet_u8() & 15, weights[2], i;

	split_two(groups, grant_ns);
	ASSUME(!plim_share_before(&groups[1], &groups[0]));
	for (i = 0; i < 2; i++) {
		weights[i] = plim_share_weight(&groups[i]);
		ASSUME(groups[i].share_ns < groups[i].want_ns);
	}
	for (i = 0; i < 2; i++) {
		PROVE(groups[i].share_ns * (weights[0] + weights[1]) <= grant_ns * weights[i],
		      "no more than its part");
		PROVE((groups[i].share_ns + 1) * (weights[0] + weights[1]) > grant_ns * weights[i],
		      "and no less");
	}
	PROOF_REACHED();
}

/*
 * Modest wants hold only where a group waits, and then a waiting group can run. Narrowed:
 * two batch groups of the least weight, one of which wants anything.
 */
void prove_modest_wants_hold_only_for_a_group_that_waits(void)
{
	struct plim_share groups[2] = { { .weight = 1, .index = 0 }, { .weight = 1, .index = 1 } };
	struct plim_share modest[2];
	plim_u64 grant_ns = any_u64(0, 4 * PLIM_SHARE_LEAST_NS);

	groups[0].want_ns = any_u64(0, 4 * PLIM_SHARE_LEAST_NS);
	groups[1].want_ns = PLIM_UNLIMITED;
	modest[0] = groups[0];
	modest[1] = groups[1];
	modest[0].want_ns = any_u64(0, groups[0].want_ns);
	if (plim_share_out(groups, modest, 2, grant_ns)) {
		PROVE(plim_share_waits(&groups[1]), "one waits by its own wants");
		PROVE(!plim_share_waits(&modest[1]), "it does not by modest ones");
		PROVE(modest[0].share_ns + modest[1].share_ns <= grant_ns, "within the grant");
		PROVE(modest[0].share_ns <= modest[0].want_ns, "within the want");
	} else {
		PROVE(groups[0].share_ns + groups[1].share_ns <= grant_ns, "within the grant");
	}
	PROOF_REACHED();
}

/* Narrowed: two batch groups, amounts below 16. */
void prove_overruns_are_paid_once_and_shares_are_within_the_grant(void)
{
	struct plim_share groups[2], before[2];
	plim_u64 grant_ns = nondet_u8() & 15, sum_ns = 0, i;

	for (i = 0; i < 2; i++) {
		groups[i].share_ns = nondet_u8() & 15;
		groups[i].debt_ns = nondet_u8() & 15;
		before[i] = groups[i];
	}
	plim_share_pay(groups, 2, grant_ns);
	for (i = 0; i < 2; i++) {
		plim_u64 paid_ns = before[i].debt_ns - groups[i].debt_ns;

		sum_ns += groups[i].share_ns;
		PROVE(groups[i].debt_ns <= before[i].debt_ns, "a debt does not grow");
		PROVE(groups[i].share_ns <= before[i].share_ns - paid_ns,
		      "what is paid is not given");
		PROVE(!groups[i].debt_ns || !groups[i].share_ns, "a debtor gets nothing");
	}
	PROVE(sum_ns <= grant_ns, "within the grant");
	PROVE(before[0].debt_ns || before[1].debt_ns ||
		      before[0].share_ns + before[1].share_ns > grant_ns ||
		      (groups[0].share_ns == before[0].share_ns &&
		       groups[1].share_ns == before[1].share_ns),
	      "without a debt no share changes");
	PROOF_REACHED();
}

/* The largest grant, and shares that split it and the debts. */
void prove_paying_never_wraps(void)
{
	struct plim_share groups[2];
	plim_u64 i;

	for (i = 0; i < 2; i++)
		ASSUME(groups[i].share_ns <= PLIM_RUNTIME_MAX_NS);
	plim_share_pay(groups, 2, nondet_u64());
	PROOF_REACHED();
}

/* Three groups that wait, with any shares and times, in any order. */
void prove_pooled_shares_are_pieces_of_the_least_and_none_is_lost(void)
{
	struct plim_share groups[3], before[3];
	plim_u64 sum_ns = 0, before_ns = 0, i;

	for (i = 0; i < 3; i++) {
		groups[i].want_ns = PLIM_UNLIMITED;
		ASSUME(plim_share_waits(&groups[i]) && groups[i].waited_ns <= LIFETIME_NS);
		before[i] = groups[i];
		before_ns += groups[i].share_ns;
	}
	plim_share_pool(groups, 3);
	for (i = 0; i < 3; i++) {
		sum_ns += groups[i].share_ns;
		PROVE(groups[i].share_ns == PLIM_SHARE_LEAST_NS || !groups[i].share_ns, "pieces");
		PROVE(groups[i].share_ns
			      ? !groups[i].waited_ns
			      : groups[i].waited_ns == before[i].waited_ns + before[i].share_ns,
		      "what is not given is waited for");
		PROVE(!i || groups[i - 1].share_ns >= groups[i].share_ns, "the first come first");
	}
	PROVE(sum_ns <= before_ns && before_ns < sum_ns + PLIM_SHARE_LEAST_NS,
	      "all whole pieces, and no more");
	PROOF_REACHED();
}

/* Alone, a group keeps its share until it is enough: the kernel's least is not exceeded. */
void prove_a_group_that_waits_alone_keeps_its_share(void)
{
	struct plim_share group, before;

	before = group;
	plim_share_pool(&group, 1);
	PROVE(group.share_ns == before.share_ns && group.waited_ns == before.waited_ns,
	      "as it was");
	PROOF_REACHED();
}

/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sharing: how batch groups share a grant of CPU time.
 *
 * plim_share_split() is the rule: by weight, and time that one group does not want
 * goes to the others. On stock kernels a share becomes a quota of the kernel, which
 * accepts none below PLIM_SHARE_LEAST_NS, lets a group run beyond it for up to a tick,
 * and shows no want beyond what was used. So three functions follow the rule:
 *
 * plim_share_out() keeps a grant from groups that hold the least quota and hardly use
 * it, while others would use it; plim_share_pay() deducts overruns; plim_share_pool()
 * gives shares below the least to one group after the other.
 *
 * The core has no memory in which to sort: each function says in which order it takes
 * the groups.
 */
#ifndef PLIMSOLL_SHARING_H
#define PLIMSOLL_SHARING_H

#include "units.h"

/* The kernel's least quota (min_cfs_quota_period in kernel/sched/core.c). */
#define PLIM_SHARE_LEAST_NS PLIM_NSEC_PER_MSEC

/* One batch group. */
struct plim_share {
	plim_u64 want_ns; /* the most it can use; PLIM_UNLIMITED: anything */
	plim_u64 share_ns; /* its part of the grant */
	plim_u64 debt_ns; /* overrun of earlier shares */
	plim_u64 waited_ns; /* sum of shares that were below the least, and not given */
	plim_u32 weight; /* out of PLIM_GROUP_WEIGHT_MIN … _MAX: the nearest in it */
	plim_u32 index; /* of the caller */
};

static __always_inline plim_u64 plim_share_weight(const struct plim_share *group)
{
	return plim_min(plim_max(group->weight, PLIM_GROUP_WEIGHT_MIN), PLIM_GROUP_WEIGHT_MAX);
}

/*
 * The order of plim_share_split(): whether @a wants less for its weight than @b.
 * Wants above every grant are equal, which keeps the products below 2^64.
 */
static __always_inline int plim_share_before(const struct plim_share *a, const struct plim_share *b)
{
	return plim_min(a->want_ns, PLIM_RUNTIME_MAX_NS + 1) * plim_share_weight(b) <
	       plim_min(b->want_ns, PLIM_RUNTIME_MAX_NS + 1) * plim_share_weight(a);
}

/*
 * Shares a grant among batch groups by weight; time that one does not want goes
 * to the others. @grant_ns: cut to PLIM_RUNTIME_MAX_NS.
 * @groups: in the order of plim_share_before(). Then a group that is not
 * satisfied by its part of what is left is followed by such groups only: each
 * gets its part of the same rest. In any other order no share is above the want,
 * and their sum not above the grant, but some of it may be left over.
 */
static __always_inline void
plim_share_split(struct plim_share *groups, plim_u32 nr_groups, plim_u64 grant_ns)
{
	plim_u64 left_ns = plim_min(grant_ns, PLIM_RUNTIME_MAX_NS), part_ns;
	/* The sum over the groups that are not satisfied yet: never 0 while there is one. */
	plim_u64 weight_sum = 0;
	plim_u32 i;

	for (i = 0; i < nr_groups; i++)
		weight_sum += plim_share_weight(&groups[i]);
	for (i = 0; i < nr_groups; i++) {
		part_ns = left_ns * plim_share_weight(&groups[i]) / weight_sum;
		if (groups[i].want_ns > part_ns)
			break;
		groups[i].share_ns = groups[i].want_ns;
		left_ns -= groups[i].want_ns;
		weight_sum -= plim_share_weight(&groups[i]);
	}
	for (; i < nr_groups; i++) {
		part_ns = left_ns * plim_share_weight(&groups[i]) / weight_sum;
		groups[i].share_ns = plim_min(groups[i].want_ns, part_ns);
	}
}

/* Whether a group has used up its quota, and its share is too little for another. */
static __always_inline int plim_share_waits(const struct plim_share *group)
{
	return group->want_ns == PLIM_UNLIMITED && group->share_ns < PLIM_SHARE_LEAST_NS;
}

/*
 * Shares a grant as plim_share_split() does. If a group then waits, and wants limited
 * to a modest amount change that, shares by those wants: many groups that hold the
 * least quota and hardly use it must not keep the grant from those that would use it.
 * @groups, @modest: the same groups, with wants and with modest wants, which are no
 * more; each in its order of plim_share_before().
 *
 * Returns whether the shares in @modest hold, and not those in @groups.
 */
static __always_inline int plim_share_out(struct plim_share *groups, struct plim_share *modest,
					  plim_u32 nr_groups, plim_u64 grant_ns)
{
	plim_u64 hungry_ns = 0;
	int any_waits = 0;
	plim_u32 i;

	plim_share_split(groups, nr_groups, grant_ns);
	for (i = 0; i < nr_groups; i++)
		any_waits |= plim_share_waits(&groups[i]);
	if (!any_waits)
		return 0;
	plim_share_split(modest, nr_groups, grant_ns);
	for (i = 0; i < nr_groups; i++)
		hungry_ns += modest[i].want_ns == PLIM_UNLIMITED ? modest[i].share_ns : 0;
	return hungry_ns >= PLIM_SHARE_LEAST_NS;
}

/*
 * Deducts from each share the group's overrun. The grant is net of all overruns, and
 * their sum was shared beside it: if a group cannot pay all of its own, the other
 * shares are too large, and all are cut to @grant_ns, in any order.
 */
static __always_inline void
plim_share_pay(struct plim_share *groups, plim_u32 nr_groups, plim_u64 grant_ns)
{
	plim_u64 total_ns = 0, paid_ns, ppm;
	plim_u32 i;

	grant_ns = plim_min(grant_ns, PLIM_RUNTIME_MAX_NS);
	for (i = 0; i < nr_groups; i++) {
		paid_ns = plim_min(groups[i].share_ns, groups[i].debt_ns);
		groups[i].debt_ns -= paid_ns;
		groups[i].share_ns -= paid_ns;
		total_ns += groups[i].share_ns;
	}
	if (total_ns <= grant_ns)
		return;
	ppm = grant_ns * PLIM_PPM / total_ns;
	for (i = 0; i < nr_groups; i++)
		groups[i].share_ns = plim_scale_ppm(groups[i].share_ns, ppm);
}

/* The order of plim_share_pool(): whether @a has waited for more than @b. */
static __always_inline int
plim_share_waits_longer(const struct plim_share *a, const struct plim_share *b)
{
	return plim_add_saturating(a->waited_ns, a->share_ns) >
	       plim_add_saturating(b->waited_ns, b->share_ns);
}

/*
 * Pools shares that are too small: if several groups wait, none of them could ever
 * run, not even for the tolerance. The sum of their shares goes, in pieces of the
 * least, to those that have waited for the most time.
 * @groups: those for which plim_share_waits(), in the order of
 * plim_share_waits_longer(); of one alone the share stays.
 */
static __always_inline void plim_share_pool(struct plim_share *groups, plim_u32 nr_groups)
{
	plim_u64 pool_ns = 0;
	plim_u32 i;

	if (nr_groups < 2)
		return;
	for (i = 0; i < nr_groups; i++)
		pool_ns += groups[i].share_ns;
	for (i = 0; i < nr_groups; i++) {
		if (pool_ns >= PLIM_SHARE_LEAST_NS) {
			pool_ns -= PLIM_SHARE_LEAST_NS;
			groups[i].share_ns = PLIM_SHARE_LEAST_NS;
			groups[i].waited_ns = 0;
		} else {
			groups[i].waited_ns =
				plim_add_saturating(groups[i].waited_ns, groups[i].share_ns);
			groups[i].share_ns = 0;
		}
	}
}

#endif /* PLIMSOLL_SHARING_H */

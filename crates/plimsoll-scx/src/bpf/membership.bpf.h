/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Membership: the group of a task.
 */
#ifndef PLIMSOLL_MEMBERSHIP_BPF_H
#define PLIMSOLL_MEMBERSHIP_BPF_H

#include "caps.bpf.h"
#include "order.bpf.h"

/* The slot of the group of the nearest cgroup at or above this one. */
static __noinline u32 slot_of_cgroup(struct cgroup *cgrp)
{
	u32 *slot = cgrp ? nearest_in(&group_of_cgroup, cgrp, cgrp->level) : NULL;

	return slot && *slot < PLIMSOLL_GROUPS_MAX ? *slot : PLIMSOLL_SLOT_DEFAULT;
}

/* Makes a task a member of a group and of a cgroup. */
static __always_inline void task_joins(struct task_ctx *t, u32 slot, u32 cgroup, u64 now)
{
	struct cgroup_record *record = record_at(cgroup);
	struct plimsoll_group *to = group_at(slot);
	u64 id = to ? to->params.cgroup_id : 0;
	u32 chain = slot, generation = record ? record->generation : 0;

	if (!to)
		return;
	if (t->slot != slot || t->generation != to->generation || t->cgroup != cgroup ||
	    t->cgroup_generation != generation)
		load_leaves(t);
	/* A group whose cgroup has no record has its own limits only. */
	if (slot == PLIMSOLL_SLOT_DEFAULT || bpf_map_lookup_elem(&record_of_cgroup, &id))
		chain = chain_at(cgroup);
	t->chain = chain < PLIMSOLL_SLOTS_MAX ? chain : slot;
	t->cgroup = cgroup;
	t->cgroup_generation = generation;
	if (t->slot != slot || t->generation != to->generation) {
		t->slot = slot;
		task_cap_reset(t, to, now);
	}
}

/* Looks a task's group up again. */
static __noinline void task_refresh(struct task_struct *p, struct task_ctx *t, u64 now)
{
	u32 changed = READ_ONCE(groups_changed);
	struct cgroup *cgrp;

	cgrp = scx_bpf_task_cgroup(p);
	task_joins(t, slot_of_cgroup(cgrp), record_near(cgrp, cgrp->level), now);
	bpf_cgroup_release(cgrp);
	t->groups_seen = changed;
}

#endif /* PLIMSOLL_MEMBERSHIP_BPF_H */

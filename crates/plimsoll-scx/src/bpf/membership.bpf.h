/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Membership: the group of a task.
 */
#ifndef PLIMSOLL_MEMBERSHIP_BPF_H
#define PLIMSOLL_MEMBERSHIP_BPF_H

#include "batch.bpf.h"
#include "caps.bpf.h"

/* The slot of the group of the nearest cgroup at or above this one. */
static __noinline u32 slot_of_cgroup(struct cgroup *cgrp)
{
	struct cgroup *ancestor;
	u32 *slot, i;
	s32 level;
	u64 id;

	if (!cgrp)
		return PLIMSOLL_SLOT_DEFAULT;
	level = cgrp->level;
	bpf_for (i, 0, PLIMSOLL_CGROUP_DEPTH_MAX) {
		if ((s32)i > level)
			break;
		ancestor = bpf_cgroup_ancestor(cgrp, level - i);
		if (!ancestor)
			break;
		id = ancestor->kn->id;
		bpf_cgroup_release(ancestor);
		slot = bpf_map_lookup_elem(&group_of_cgroup, &id);
		if (slot)
			return *slot < PLIMSOLL_GROUPS_MAX ? *slot : PLIMSOLL_SLOT_DEFAULT;
	}
	return PLIMSOLL_SLOT_DEFAULT;
}

/* Counts a runnable task in its group, once. */
static __always_inline void count_runnable(struct task_ctx *t, bool runnable)
{
	struct plimsoll_group *group;

	if (!!t->counted == runnable)
		return;
	group = group_at(t->slot);
	if (!group)
		return;
	t->counted = runnable;
	if (runnable)
		__sync_fetch_and_add(&group->nr_runnable, 1);
	else
		__sync_fetch_and_sub(&group->nr_runnable, 1);
}

/* Makes a task a member of a group. */
static __always_inline void task_joins(struct task_ctx *t, u32 slot, u64 now)
{
	struct plimsoll_group *from = group_at(t->slot), *to = group_at(slot);
	bool counted = t->counted;

	if (!from || !to)
		return;
	if (t->slot != slot || t->generation != to->generation) {
		count_runnable(t, false);
		t->vruntime = plim_batch_migrate(t->vruntime, from->min_vruntime, to->min_vruntime);
		t->slot = slot;
		count_runnable(t, counted);
		task_cap_reset(t, to, now);
	}
}

/* Looks a task's group up again if groups have changed since. */
static __noinline void task_refresh(struct task_struct *p, struct task_ctx *t, u64 now)
{
	u32 changed = READ_ONCE(groups_changed);
	struct cgroup *cgrp;

	if (t->groups_seen == changed)
		return;
	cgrp = scx_bpf_task_cgroup(p);
	task_joins(t, slot_of_cgroup(cgrp), now);
	bpf_cgroup_release(cgrp);
	t->groups_seen = changed;
}

#endif /* PLIMSOLL_MEMBERSHIP_BPF_H */

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * cpu.max of cgroups, whoever set it: a quota like that of a group, in a slot of its own.
 * Where a cgroup has both, both hold.
 */
#ifndef PLIMSOLL_CPU_MAX_BPF_H
#define PLIMSOLL_CPU_MAX_BPF_H

#include "control.bpf.h"
#include "tree.bpf.h"

/* RUNTIME_INF of kernel/sched/sched.h: "max". */
#define CPU_MAX_NONE (~0ULL)

/* Where the next search begins. Racy: a search that begins elsewhere takes longer. */
u32 limit_searched;

/* A free slot, marked as used; 0: there is none. Several cgroups may ask at once. */
static __noinline u32 limit_claims_slot(void)
{
	struct plimsoll_group *group;
	u32 slot, used, i, nr_limits = nr_slots - PLIMSOLL_GROUPS_MAX;

	bpf_for (i, 0, nr_limits) {
		slot = PLIMSOLL_GROUPS_MAX + (limit_searched + i) % nr_limits;
		group = group_at(slot);
		if (!group || READ_ONCE(group->params.flags) ||
		    __sync_val_compare_and_swap(&group->params.flags, 0, PLIMSOLL_USED))
			continue;
		limit_searched = slot + 1 - PLIMSOLL_GROUPS_MAX;
		bpf_for (i, 0, nr_limits) {
			used = READ_ONCE(nr_slots_used);
			if (slot < used ||
			    __sync_val_compare_and_swap(&nr_slots_used, used, slot + 1) == used)
				break;
		}
		return slot;
	}
	return 0;
}

/* The slot of a cgroup's limit, which it has afterwards; 0: there is none. */
static __always_inline u32 limit_slot_of(struct cgroup_record *record, bool *is_new)
{
	u32 slot = READ_ONCE(record->limit_slot), other;
	struct plimsoll_group *group;

	*is_new = false;
	if (slot)
		return slot;
	slot = limit_claims_slot();
	group = slot ? group_at(slot) : NULL;
	if (!group)
		return 0;
	other = __sync_val_compare_and_swap(&record->limit_slot, 0, slot);
	*is_new = !other;
	/* Two writes of one file at once. */
	if (other)
		WRITE_ONCE(group->params.flags, 0);
	return other ?: slot;
}

/* Frees a slot, once. */
static __always_inline void limit_is_gone(u32 slot, struct plimsoll_group *group, u64 now)
{
	if (__sync_val_compare_and_swap(&group->params.flags, PLIMSOLL_USED | PLIMSOLL_QUOTA, 0) !=
	    (PLIMSOLL_USED | PLIMSOLL_QUOTA))
		return;
	bandwidth_end(slot, now);
	__sync_fetch_and_add(&nr_limited, -1);
	/* Releases what it keeps from running. */
	group_timer_at(slot, now + 1);
}

static __noinline void limit_ends(struct cgroup_record *record, u64 now)
{
	u32 slot = __sync_lock_test_and_set(&record->limit_slot, 0);
	struct plimsoll_group *group = slot ? group_at(slot) : NULL;

	if (!group)
		return;
	chains_follow();
	__sync_fetch_and_add(&groups_changed, 1);
	limit_is_gone(slot, group, now);
}

/* A cgroup goes, with its limit. */
static __always_inline void limit_ends_of(struct cgroup *cgrp)
{
	u64 id = id_of_cgroup(cgrp);
	u32 *index = bpf_map_lookup_elem(&record_of_cgroup, &id);
	struct cgroup_record *record = index ? record_at(*index) : NULL;

	if (record)
		limit_ends(record, bpf_ktime_get_ns());
}

/*
 * Follows the file. Without a slot for a limit the scheduler ends, for the fair class keeps
 * it; loaded again, it has room for twice as many as there are. @is_empty: nothing is in the cgroup
 * yet, neither tasks nor cgroups.
 */
static __noinline void
limit_follows(struct cgroup *cgrp, u64 period_us, u64 quota_us, u64 burst_us, bool is_empty)
{
	u64 id = id_of_cgroup(cgrp), now = bpf_ktime_get_ns();
	u32 *index = bpf_map_lookup_elem(&record_of_cgroup, &id), slot;
	struct cgroup_record *record = index ? record_at(*index) : NULL;
	struct plimsoll_params params = {
		.cgroup_id = id,
		.flags = PLIMSOLL_USED | PLIMSOLL_QUOTA,
		.parent = PLIMSOLL_SLOT_NONE,
	};
	struct plimsoll_group *group;
	bool fresh = false;

	if (quota_us == CPU_MAX_NONE) {
		if (record)
			limit_ends(record, now);
		return;
	}
	slot = record ? limit_slot_of(record, &fresh) : 0;
	group = slot ? group_at(slot) : NULL;
	if (!record || !group) {
		scx_bpf_error("no room for cpu.max of another cgroup");
		return;
	}
	params.bandwidth = (struct plim_bandwidth_params){
		.period_ns = period_us * PLIM_NSEC_PER_USEC,
		.quota_ns = quota_us * PLIM_NSEC_PER_USEC,
		.burst_ns = burst_us * PLIM_NSEC_PER_USEC,
		.slice_ns = PLIM_SLICE_DEFAULT_NS,
	};
	if (!fresh)
		params.parent = group->params.parent;
	else
		/* Before the limit holds, so that no CPU overlooks it. */
		__sync_fetch_and_add(&nr_limited, 1);
	slot_set(slot, group, &params, fresh, now);
	if (fresh && !is_empty) {
		chains_follow();
		__sync_fetch_and_add(&groups_changed, 1);
	}
	chain_follow(slot);
	chain_follow(record->group_slot);
	/* Another writer of the file may have removed the limit meanwhile. */
	if (READ_ONCE(record->limit_slot) != slot) {
		if (fresh)
			limit_is_gone(slot, group, now);
		else
			WRITE_ONCE(group->params.flags, 0);
	}
	/* Wakes waiting CPUs and tasks: the limit may be larger. */
	group_timer_at(slot, now + 1);
}

#endif /* PLIMSOLL_CPU_MAX_BPF_H */

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * cpu.max of cgroups, whoever set it: a quota like that of a group, in a slot of its own.
 * Where a cgroup has both, both hold, unless the group's quota is in the file, too, for the time
 * without the scheduler.
 *
 * The kernel's callbacks, which may run side by side, write down what the files say. A timer
 * gives the limits their slots. It never runs beside itself, so slots of limits have one writer.
 */
#ifndef PLIMSOLL_CPU_MAX_BPF_H
#define PLIMSOLL_CPU_MAX_BPF_H

#include "control.bpf.h"
#include "tree.bpf.h"

/* RUNTIME_INF of kernel/sched/sched.h: "max". */
#define CPU_MAX_NONE (~0ULL)
/* New limits in one run of the timer, which keeps other work from its CPU. */
#define LIMITS_AT_ONCE 128
/* From a change to the run: one for many cgroups, as the scheduler is loaded or removed. */
#define LIMITS_AFTER_NS PLIM_NSEC_PER_MSEC

/* Whether a run of the timer is to come. Atomic. */
u32 limits_due;
/* Whether it has limits to end, or slots of such to free. Atomic. */
u32 limits_ended;
/* First slot of the timer's next search: one that was freed is used late. */
u32 limit_searched;

/* cgroup id → its cpu.max, if that is a limit. As many as there are slots; resized as those. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PLIMSOLL_LIMITS_MIN);
	__type(key, u64);
	__type(value, struct plim_bandwidth_params);
} cpu_max SEC(".maps");

/* Has the timer run, once for all changes until then. */
static __always_inline void limits_are_due(void)
{
	if (!__sync_lock_test_and_set(&limits_due, 1) &&
	    machine_timer_start(LIMITS_TIMER, LIMITS_AFTER_NS))
		WRITE_ONCE(limits_due, 0);
}

/* A cgroup has no limit any more. */
static __always_inline void cpu_max_ends(struct cgroup *cgrp)
{
	u64 id = id_of_cgroup(cgrp);

	if (bpf_map_delete_elem(&cpu_max, &id) == -ENOENT)
		return;
	__sync_lock_test_and_set(&limits_ended, 1);
	limits_are_due();
}

/*
 * Follows the file. Without room for a limit the scheduler ends, for the fair class keeps
 * it; loaded again, it has room for twice as many as there are. Where the tables are as large as
 * they can be that would not help: the limit does not hold.
 */
static __always_inline void
cpu_max_changes(struct cgroup *cgrp, u64 period_us, u64 quota_us, u64 burst_us)
{
	u64 id = id_of_cgroup(cgrp);
	u32 *index = bpf_map_lookup_elem(&record_of_cgroup, &id);
	struct cgroup_record *record = index ? record_at(*index) : NULL;
	struct plim_bandwidth_params limit = {
		.period_ns = period_us * PLIM_NSEC_PER_USEC,
		.quota_ns = quota_us * PLIM_NSEC_PER_USEC,
		.burst_ns = burst_us * PLIM_NSEC_PER_USEC,
		.slice_ns = PLIM_SLICE_DEFAULT_NS,
	};

	if (quota_us == CPU_MAX_NONE) {
		cpu_max_ends(cgrp);
		return;
	}
	if (is_too_deep(cgrp))
		return;
	if (!record || bpf_map_update_elem(&cpu_max, &id, &limit, BPF_ANY)) {
		if (record ? nr_slots < PLIMSOLL_SLOTS_MAX : nr_records < PLIMSOLL_RECORDS_MAX)
			scx_bpf_error("no room for cpu.max of another cgroup");
		return;
	}
	WRITE_ONCE(record->limit_is_due, 1);
	limits_are_due();
}

/* One run of the timer. */
struct limits_pass {
	u64 now;
	u32 nr_new;
	bool is_changed; /* chains have to follow */
	bool again;
};

/*
 * Ends the limit of a slot if the file has none any more, or if the cgroup has another slot.
 * The slot is free after the next run, when no chain leads there.
 */
static __noinline void limit_ends(u32 slot, struct limits_pass *pass)
{
	struct plimsoll_group *group = group_at(slot);
	struct cgroup_record *record;
	bool is_its_slot;
	u32 *index;
	u64 id;

	if (!group || !group->params.flags)
		return;
	if (!(group->params.flags & PLIMSOLL_QUOTA)) {
		WRITE_ONCE(group->params.flags, 0);
		return;
	}
	id = group->params.cgroup_id;
	index = bpf_map_lookup_elem(&record_of_cgroup, &id);
	record = index ? record_at(*index) : NULL;
	is_its_slot = record && record->limit_slot == slot;
	if (is_its_slot && bpf_map_lookup_elem(&cpu_max, &id))
		return;
	if (is_its_slot)
		WRITE_ONCE(record->limit_slot, 0);
	WRITE_ONCE(group->params.flags, PLIMSOLL_USED);
	__sync_fetch_and_add(&nr_limited, -1);
	bandwidth_end(slot, pass->now);
	/* Releases what it keeps from running. */
	group_timer_at(slot, pass->now + 1);
	pass->is_changed = pass->again = true;
}

/* A free slot; 0: there is none. */
static __always_inline u32 limit_slot_free(void)
{
	u32 slot, i, nr_limits = nr_slots - PLIMSOLL_GROUPS_MAX;
	struct plimsoll_group *group;

	bpf_for (i, 0, nr_limits) {
		slot = PLIMSOLL_GROUPS_MAX + (limit_searched + i) % nr_limits;
		group = group_at(slot);
		if (!group || group->params.flags)
			continue;
		limit_searched = slot + 1 - PLIMSOLL_GROUPS_MAX;
		return slot;
	}
	return 0;
}

/* Has the slot of a cgroup's limit follow it. */
static __noinline void limit_follows(struct cgroup_record *record, struct limits_pass *pass)
{
	u64 id = record->cgroup_id, now = bpf_ktime_get_ns();
	struct plim_bandwidth_params *limit = bpf_map_lookup_elem(&cpu_max, &id);
	struct plimsoll_params params = {
		.cgroup_id = id,
		.flags = PLIMSOLL_USED | PLIMSOLL_QUOTA,
		.parent = PLIMSOLL_SLOT_NONE,
	};
	u32 slot = record->limit_slot;
	struct plimsoll_group *group = slot ? group_at(slot) : NULL;
	bool is_new = !group || group->params.cgroup_id != id;

	if (!limit)
		return;
	params.bandwidth = *limit;
	if (is_new) {
		slot = limit_slot_free();
		group = slot ? group_at(slot) : NULL;
	}
	if (!group) {
		/* The map has room for no more limits: one has ended whose slot is not free yet. */
		__sync_lock_test_and_set(&limits_ended, 1);
		WRITE_ONCE(record->limit_is_due, 1);
		pass->again = true;
		return;
	}
	if (is_new) {
		/* Before the limit holds, so that no CPU overlooks it. */
		__sync_fetch_and_add(&nr_limited, 1);
		if (slot >= nr_slots_used)
			WRITE_ONCE(nr_slots_used, slot + 1);
		pass->is_changed = true;
		pass->nr_new++;
	} else {
		params.parent = group->params.parent;
	}
	slot_set(slot, group, &params, is_new, now);
	/* Before the limit holds, and also if a group around it has come or gone meanwhile. */
	chain_follow(slot);
	/* A barrier, too, before the record is looked at again. */
	__sync_lock_test_and_set(&record->limit_slot, slot);
	/* The cgroup has gone since, and the record is another's: the next run ends the limit. */
	if (READ_ONCE(record->cgroup_id) != id)
		WRITE_ONCE(record->limit_slot, 0);
	/* It may be the same as the quota of the cgroup's group now, or not any more. */
	if (record->group_slot)
		chain_follow(record->group_slot);
	/* Wakes waiting CPUs and tasks: the limit may be larger. */
	group_timer_at(slot, now + 1);
}

static int limits_timer(void *map, int *key, struct bpf_timer *timer)
{
	struct limits_pass pass = { .now = bpf_ktime_get_ns(), .nr_new = count_from };
	struct cgroup_record *record;
	u32 index;

	/* A barrier, too: what is written from here on is due again. */
	__sync_lock_test_and_set(&limits_due, 0);
	if (__sync_lock_test_and_set(&limits_ended, 0)) {
		bpf_for (index, PLIMSOLL_GROUPS_MAX, nr_slots_used) {
			limit_ends(index, &pass);
		}
		/* To free the slots. */
		if (pass.again)
			__sync_lock_test_and_set(&limits_ended, 1);
	}
	bpf_for (index, RECORD_ROOT + 1, nr_records_used) {
		record = record_at(index);
		if (!record || !READ_ONCE(record->limit_is_due))
			continue;
		if (pass.nr_new >= LIMITS_AT_ONCE) {
			pass.again = true;
			break;
		}
		/* The same. */
		__sync_lock_test_and_set(&record->limit_is_due, 0);
		limit_follows(record, &pass);
	}
	if (pass.is_changed) {
		chains_follow();
		__sync_fetch_and_add(&groups_changed, 1);
	}
	if (pass.again)
		limits_are_due();
	return 0;
}

#endif /* PLIMSOLL_CPU_MAX_BPF_H */

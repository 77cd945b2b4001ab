/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The tree of cgroups: the weight of a task among all, by cpu.weight of its cgroup and of
 * those above.
 *
 * Queues are flat. Each cgroup has a record of its load: the weights of its own tasks
 * that run or wait, and of the cgroups in it that have any. A cgroup's share of the
 * machine is that of the cgroup around it, times its weight, by the load there; a task's
 * effective weight is its part of that. Loads are apart for each tier: batch work takes
 * nothing from a cgroup's share of normal time. The share is refreshed when a task joins
 * a queue or begins to run, once a millisecond at most; the load of the task's own cgroup
 * is exact.
 *
 * A task counts from when it first joins a queue until it sleeps. A cgroup counts in the
 * one around it while anything in it does. Tasks of the root cgroup stand beside the
 * cgroups at the top, as in the fair class, so the root needs no record.
 *
 * The kernel creates and removes cgroups with cgroup_mutex locked, and shows those that
 * exist while none can change: records have one writer of what no CPU counts.
 */
#ifndef PLIMSOLL_TREE_BPF_H
#define PLIMSOLL_TREE_BPF_H

#include "state.bpf.h"

/* The root, which has none. */
#define RECORD_ROOT 0
/* Age at which shares are refreshed. */
#define SHARE_NS PLIM_NSEC_PER_MSEC

/* One tier of a cgroup. */
struct tier_load {
	/* Atomic: written by a CPU on which a task of the cgroup wakes or falls asleep. */
	u64 load;
	u32 nr_runnable; /* its tasks and cgroups in that load */
	u32 counted; /* its weight in the load of the cgroup around it; 0: it is idle */
	/* Written by a CPU on which a task of the cgroup is queued; any of two writes is right. */
	u64 share;
	u32 part; /* of a request, see plim_order_part(); written with the share */
};

struct cgroup_record {
	u32 parent; /* of a free one: the next free one */
	u32 generation; /* changes when it is freed */
	u32 weight; /* cpu.weight, in the unit of the weights of tasks */
	u32 group_weight; /* that of its group, before cpu.weight; 0: it names none */
	u32 is_batch; /* the cgroup of a batch group, whose class comes before cpu.idle */
	u32 group_slot; /* of its group; 0: none */
	u32 limit_slot; /* of its cpu.max; 0: none. Written by the timer of limits */
	u32 limit_is_due; /* its cpu.max was written. Atomic */
	u32 in_background; /* cpu.idle at any level; written with the shares */
	u64 known_at_ns; /* when shares were refreshed */
	u64 cgroup_id;
	struct tier_load tiers[PLIMSOLL_TIERS_PADDED];
};

/*
 * This map and the two below are resized by user space before loading. What is in a cgroup
 * without a record counts in the nearest one around that has one.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PLIMSOLL_RECORDS_MIN);
	__type(key, u32);
	__type(value, struct cgroup_record);
} records SEC(".maps");

/* cgroup id → record. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, PLIMSOLL_RECORDS_MIN);
	__type(key, u64);
	__type(value, u32);
} record_of_cgroup SEC(".maps");

/*
 * The service of a cgroup by its share, on an LLC's clock. Atomic: by each CPU of that
 * LLC that charges a task of the cgroup; of two that raise one that is far behind at
 * once, one does nothing.
 */
struct cgroup_clocks {
	u64 tiers[PLIMSOLL_TIERS_PADDED];
} PLIMSOLL_OWN_LINES;

/* record * nr_llcs + LLC. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PLIMSOLL_RECORDS_MIN);
	__type(key, u32);
	__type(value, struct cgroup_clocks);
} cgroup_clocks SEC(".maps");

/*
 * Records that were ever used, and the first and last free one of those; 0: none. The one
 * that was freed first is used first, so that a task which dies in it has gone.
 */
u32 nr_records_used = 1;
u32 first_free_record;
u32 last_free_record;

static __always_inline struct cgroup_record *record_at(u32 index)
{
	return index == RECORD_ROOT ? NULL : bpf_map_lookup_elem(&records, &index);
}

/* In the unit of the weights of tasks. */
static __always_inline u32 weight_of(const struct cgroup_record *record)
{
	u32 of_group = READ_ONCE(record->group_weight);

	return of_group ? plim_order_group_weight(of_group) : READ_ONCE(record->weight);
}

/* Never negative for long: a weight may change while its cgroup falls asleep. */
static __always_inline u64 load_of(const struct tier_load *load)
{
	s64 sum = READ_ONCE(load->load);

	return sum < 0 ? 0 : sum;
}

static __always_inline u32 weight_to_count(const struct cgroup_record *record, u32 tier)
{
	return READ_ONCE(record->tiers[tier].nr_runnable) ? weight_of(record) : 0;
}

/*
 * Brings the load of the cgroups around one up to date: with whether anything in it runs
 * or waits, and with its weight. Of several CPUs that do so at once the last one to write
 * finds that the others have changed something, and goes round again.
 */
__noinline int record_counts(u32 index, u32 tier)
{
	struct cgroup_record *record, *around;
	int has_crossed = count_from;
	u32 step, want, was;

	tier &= PLIMSOLL_TIER_MASK;
	bpf_for (step, 0, 2 * PLIMSOLL_CGROUP_DEPTH_MAX) {
		record = record_at(index);
		around = record ? record_at(record->parent) : NULL;
		if (!around)
			break;
		want = weight_to_count(record, tier);
		was = __sync_lock_test_and_set(&record->tiers[tier].counted, want);
		if (was != want)
			__sync_fetch_and_add(&around->tiers[tier].load, (u64)want - was);
		if (!was != !want) {
			__sync_fetch_and_add(&around->tiers[tier].nr_runnable, want ? 1 : -1);
			has_crossed++;
		}
		if (was != want && weight_to_count(record, tier) != want)
			continue;
		if (!has_crossed)
			break;
		has_crossed = count_from;
		index = record->parent;
	}
	return 0;
}

__noinline int record_counts_all(u32 index)
{
	u32 tier;

	bpf_for (tier, 0, PLIMSOLL_TIERS) {
		record_counts(index, tier);
	}
	return 0;
}

/*
 * Place where a task counts, in one word, so that it is exchanged at once: a writer takes the
 * old part out and puts the new one in, in whatever order two CPUs do so. 0: nowhere.
 */
#define COUNTED_TIER_SHIFT 24
#define COUNTED_SLOT_SHIFT 28
#define COUNTED_RECORD_SHIFT 44
#define COUNTED_GENERATION_SHIFT 60
#define COUNTED_WEIGHT_MASK ((1ULL << COUNTED_TIER_SHIFT) - 1)

static __always_inline u32 tier_counted(u64 counted)
{
	return (counted >> COUNTED_TIER_SHIFT) & PLIMSOLL_TIER_MASK;
}

/* Adds a part to the loads, or takes it out. Verified by itself. */
__noinline int load_changes(u64 counted, bool enters)
{
	u32 slot = (counted >> COUNTED_SLOT_SHIFT) & 0xffff;
	u32 index = (counted >> COUNTED_RECORD_SHIFT) & 0xffff, tier = tier_counted(counted), was;
	u64 weight = counted & COUNTED_WEIGHT_MASK;
	struct plimsoll_group *group = slot == PLIMSOLL_SLOT_DEFAULT ? NULL : group_at(slot);
	struct cgroup_record *record = record_at(index);

	if (group)
		__sync_fetch_and_add(&group->nr_runnable, enters ? 1 : -1);
	/* A dying task may outlive its cgroup. */
	if (!record || ((record->generation ^ (counted >> COUNTED_GENERATION_SHIFT)) & 0xf))
		return 0;
	__sync_fetch_and_add(&record->tiers[tier].load, enters ? weight : -weight);
	was = __sync_fetch_and_add(&record->tiers[tier].nr_runnable, enters ? 1 : -1);
	if (was == !enters)
		record_counts(index, tier);
	return 0;
}

static __always_inline void load_exchanges(u64 new, u64 old)
{
	if (new)
		load_changes(new, true);
	if (old)
		load_changes(old, false);
}

static __always_inline void load_leaves(struct task_ctx *t)
{
	u64 old = READ_ONCE(t->counted) ? __sync_lock_test_and_set(&t->counted, 0) : 0;

	if (old)
		load_exchanges(0, old);
}

/* Counts a task that runs or waits in the load of its cgroup, once, by its present weight. */
static __always_inline void load_enters(struct task_ctx *t, const struct task_struct *p, u32 tier)
{
	u64 new = plim_order_nice_weight(nice_of(p));

	/* Tasks of the root have a weight that does not depend on others. */
	if (t->slot == PLIMSOLL_SLOT_DEFAULT && t->cgroup == RECORD_ROOT)
		return;
	new |= (u64)tier << COUNTED_TIER_SHIFT | (u64)t->slot << COUNTED_SLOT_SHIFT |
	       (u64)t->cgroup << COUNTED_RECORD_SHIFT |
	       (u64)t->cgroup_generation << COUNTED_GENERATION_SHIFT;
	if (READ_ONCE(t->counted) != new)
		load_exchanges(new, __sync_lock_test_and_set(&t->counted, new));
}

/*
 * A task that a limit keeps from running weighs nothing, as in the fair class, but is one
 * of its group's that could run.
 */
static __always_inline void load_parks(struct task_ctx *t)
{
	u64 new = (u64)t->slot << COUNTED_SLOT_SHIFT;

	if (READ_ONCE(t->counted) != new)
		load_exchanges(new, __sync_lock_test_and_set(&t->counted, new));
}

static __always_inline u64 effective_weight(const struct task_ctx *t, const struct task_struct *p)
{
	struct cgroup_record *record = record_at(t->cgroup);
	u32 weight = plim_order_nice_weight(nice_of(p));
	struct tier_load *load;

	if (!record)
		return plim_order_share_at_top(weight);
	load = &record->tiers[tier_counted(t->counted)];
	return plim_order_weight(weight, READ_ONCE(load->share), load_of(load));
}

/* Part of its request that a task asks for at once. */
static __always_inline u32 request_part(const struct task_ctx *t, const struct task_struct *p)
{
	struct cgroup_record *record = record_at(t->cgroup);
	struct tier_load *load;

	if (!record)
		return PLIM_ORDER_PART_WHOLE;
	load = &record->tiers[tier_counted(t->counted)];
	return plim_order_part(READ_ONCE(load->part), plim_order_nice_weight(nice_of(p)),
			       READ_ONCE(load->nr_runnable), load_of(load));
}

/* SCHED_FIXEDPOINT_SHIFT of kernel/sched/sched.h, by which 64-bit kernels scale shares. */
#define FIXEDPOINT_SHIFT 10

/* The weight that the fair class has: the default after cpu.idle, which sched_ext overlooks. */
static __always_inline void
weight_follows(u32 index, struct cgroup_record *record, const struct task_group *tg)
{
	u32 weight = tg->shares >> FIXEDPOINT_SHIFT;

	if (!weight || tg->idle || READ_ONCE(record->weight) == weight)
		return;
	WRITE_ONCE(record->weight, weight);
	record_counts_all(index);
}

/* Verified by itself, as the next: the verifier would follow each way through it at each level. */
__noinline u64 share_around(u64 share, u32 weight, u64 load)
{
	return plim_order_share(share, weight, load);
}

__noinline u32 part_around(u32 part, u32 weight, u32 nr, u64 load)
{
	return plim_order_part(part, weight, nr, load);
}

/* Refreshes the part of a request in a cgroup, by the weights around it and those above. */
__noinline int part_follows(u32 index, u32 tier)
{
	struct cgroup_record *first = record_at(index), *record = first, *around;
	u32 depth, part = PLIM_ORDER_PART_WHOLE;
	struct tier_load *load;

	tier &= PLIMSOLL_TIER_MASK;
	if (!record)
		return 0;
	bpf_for (depth, 0, PLIMSOLL_CGROUP_DEPTH_MAX) {
		around = record_at(record->parent);
		if (!around)
			break;
		load = &around->tiers[tier];
		part = part_around(part, weight_of(record), READ_ONCE(load->nr_runnable),
				   load_of(load));
		record = around;
	}
	WRITE_ONCE(first->tiers[tier].part, part);
	return 0;
}

/* Refreshes the shares of a cgroup, and whether it is idle, by those of all above. */
__noinline int shares_follow(struct task_struct *p __arg_trusted, u32 index)
{
	struct cgroup_record *first = record_at(index), *record = first, *around;
	struct task_group *tg = UNTRUSTED(p)->sched_task_group;
	u64 normal, batch, background;
	int is_idle = count_from, is_decided = count_from;
	u32 depth, weight, first_index = index;

	if (!record)
		return 0;
	/* From a cgroup without a record up to the one in which it counts. */
	bpf_for (depth, 0, 4 * PLIMSOLL_CGROUP_DEPTH_MAX) {
		if (!tg || tg->css.cgroup->kn->id == record->cgroup_id)
			break;
		tg = tg->parent;
	}
	normal = batch = background = plim_order_share_at_top(weight_of(record));
	bpf_for (depth, 0, PLIMSOLL_CGROUP_DEPTH_MAX) {
		is_decided |= record->is_batch;
		/* One without a record counts in that of another. */
		if (tg && tg->css.cgroup->kn->id != record->cgroup_id)
			tg = NULL;
		if (tg) {
			is_idle |= !is_decided && tg->idle;
			weight_follows(index, record, tg);
			tg = tg->parent;
		}
		around = record_at(record->parent);
		if (!around)
			break;
		weight = weight_of(around);
		normal =
			share_around(normal, weight, load_of(&around->tiers[PLIMSOLL_TIER_NORMAL]));
		batch = share_around(batch, weight, load_of(&around->tiers[PLIMSOLL_TIER_BATCH]));
		background = share_around(background, weight,
					  load_of(&around->tiers[PLIMSOLL_TIER_BACKGROUND]));
		index = record->parent;
		record = around;
	}
	WRITE_ONCE(first->tiers[PLIMSOLL_TIER_NORMAL].share, normal);
	WRITE_ONCE(first->tiers[PLIMSOLL_TIER_BATCH].share, batch);
	WRITE_ONCE(first->tiers[PLIMSOLL_TIER_BACKGROUND].share, background);
	WRITE_ONCE(first->in_background, !!is_idle);
	bpf_for (depth, 0, PLIMSOLL_TIERS) {
		if (READ_ONCE(first->tiers[depth & PLIMSOLL_TIER_MASK].nr_runnable))
			part_follows(first_index, depth);
	}
	return 0;
}

/* Brings what a task that is being queued knows of its cgroup up to date. */
static __always_inline void cgroup_follow(struct task_struct *p, struct task_ctx *t, u64 now)
{
	struct cgroup_record *record = record_at(t->cgroup);

	if (!record) {
		t->in_idle = 0;
		return;
	}
	if (plim_elapsed_ns(now, READ_ONCE(record->known_at_ns)) >= SHARE_NS) {
		shares_follow(p, t->cgroup);
		WRITE_ONCE(record->known_at_ns, now);
	}
	t->in_idle = READ_ONCE(record->in_background);
}

/* Refreshes the shares again after the task has been counted, if they are as new as that. */
static __always_inline void
cgroup_follow_again(struct task_struct *p, const struct task_ctx *t, u64 now)
{
	struct cgroup_record *record = record_at(t->cgroup);

	if (record && READ_ONCE(record->known_at_ns) == now)
		shares_follow(p, t->cgroup);
}

/* Copies a group's weight and class to the record of its cgroup. Under user space's lock. */
static __always_inline void record_follows_group(u64 cgroup_id, u32 slot, u32 weight, bool is_batch)
{
	u32 *index = bpf_map_lookup_elem(&record_of_cgroup, &cgroup_id);
	struct cgroup_record *record = index ? record_at(*index) : NULL;

	if (!record)
		return;
	WRITE_ONCE(record->group_slot, slot);
	WRITE_ONCE(record->group_weight, weight);
	WRITE_ONCE(record->is_batch, is_batch);
	WRITE_ONCE(record->known_at_ns, 0);
	record_counts_all(*index);
}

/* Whether a cgroup is deeper than those that are told apart. */
static __always_inline bool is_too_deep(const struct cgroup *cgrp)
{
	return cgrp->level >= PLIMSOLL_CGROUP_DEPTH_MAX;
}

/* The value of the nearest cgroup in a map of their ids, from the ancestor at @level up. */
static __always_inline u32 *nearest_in(void *map, struct cgroup *cgrp, s32 level)
{
	struct cgroup *ancestor;
	u32 *value, i;
	u64 id;

	if (level >= PLIMSOLL_CGROUP_DEPTH_MAX)
		level = PLIMSOLL_CGROUP_DEPTH_MAX - 1;
	bpf_for (i, 0, PLIMSOLL_CGROUP_DEPTH_MAX) {
		if ((s32)i > level)
			break;
		ancestor = bpf_cgroup_ancestor(cgrp, level - i);
		if (!ancestor)
			break;
		id = id_of_cgroup(ancestor);
		bpf_cgroup_release(ancestor);
		value = bpf_map_lookup_elem(map, &id);
		if (value)
			return value;
	}
	return NULL;
}

/* The record of the nearest cgroup that has one. */
static __noinline u32 record_near(struct cgroup *cgrp, s32 level)
{
	u32 *index = nearest_in(&record_of_cgroup, cgrp, level);

	return index ? *index : RECORD_ROOT;
}

/*
 * The first slot whose limits hold at a cgroup, of those at it and above: of its group,
 * then of its cpu.max, then of the cgroup around it.
 */
__noinline u32 chain_at(u32 index)
{
	struct cgroup_record *record;
	u32 depth;

	bpf_for (depth, 0, PLIMSOLL_CGROUP_DEPTH_MAX) {
		record = record_at(index);
		if (!record)
			break;
		if (record->group_slot)
			return record->group_slot;
		if (record->limit_slot)
			return record->limit_slot;
		index = record->parent;
	}
	return PLIMSOLL_SLOT_NONE;
}

/* Whether cpu.max of a group's cgroup is the same as the group's own quota. */
static __always_inline bool limit_is_the_same(const struct plimsoll_group *group, u32 limit_slot)
{
	struct plimsoll_group *limit = limit_slot ? group_at(limit_slot) : NULL;

	return limit && group->params.flags & PLIMSOLL_QUOTA_IN_FILE &&
	       limit->params.bandwidth.quota_ns == group->params.bandwidth.quota_ns &&
	       limit->params.bandwidth.period_ns == group->params.bandwidth.period_ns;
}

/* Links a slot to the next whose limits hold. */
__noinline int chain_follow(u32 slot)
{
	struct plimsoll_group *group = group_at(slot);
	struct cgroup_record *record;
	u32 *index, next = 0;
	u64 id;

	if (!group || !(group->params.flags & PLIMSOLL_USED))
		return 0;
	id = group->params.cgroup_id;
	index = bpf_map_lookup_elem(&record_of_cgroup, &id);
	record = index ? record_at(*index) : NULL;
	if (!record)
		return 0;
	if (slot < PLIMSOLL_GROUPS_MAX && !limit_is_the_same(group, record->limit_slot))
		next = record->limit_slot;
	WRITE_ONCE(group->params.parent, next ?: chain_at(record->parent));
	return 0;
}

/*
 * Links all slots after a group or a limit has come or gone. Two changes at once may leave
 * a link of the first: housekeeping repeats it.
 */
__noinline int chains_follow(void)
{
	u32 slot;

	bpf_for (slot, PLIMSOLL_SLOT_DEFAULT + 1, READ_ONCE(nr_slots_used)) {
		chain_follow(slot);
	}
	return 0;
}

/* A new cgroup has had what the LLCs' clocks say. */
static __noinline void cgroup_clocks_begin(u32 index)
{
	struct cgroup_clocks *clocks;
	u32 llc, tier, key;

	bpf_for (llc, 0, nr_llcs) {
		key = index * nr_llcs + llc;
		clocks = bpf_map_lookup_elem(&cgroup_clocks, &key);
		if (!clocks)
			break;
		bpf_for (tier, 0, PLIMSOLL_TIERS) {
			clocks->tiers[tier & PLIMSOLL_TIER_MASK] = READ_ONCE(
				shards[llc % PLIMSOLL_LLCS_MAX].clocks[tier & PLIMSOLL_TIER_MASK]);
		}
	}
}

/*
 * A cgroup is there. Without a free record, or deeper than all that have one, it counts as the
 * one around it.
 */
static __always_inline void record_begins(struct cgroup *cgrp, u32 weight)
{
	u32 index = first_free_record, *slot, next = 0, generation, tier;
	struct cgroup_record *record;
	struct plimsoll_group *group;
	u64 id = id_of_cgroup(cgrp);

	if (cgrp->level == 0 || is_too_deep(cgrp))
		return;
	if (!index)
		index = nr_records_used;
	record = record_at(index);
	if (!record || bpf_map_update_elem(&record_of_cgroup, &id, &index, BPF_ANY))
		return;
	if (index == nr_records_used)
		nr_records_used++;
	else
		next = record->parent;
	first_free_record = next;
	generation = record->generation;
	__builtin_memset(record, 0, sizeof(*record));
	record->generation = generation;
	cgroup_clocks_begin(index);
	record->cgroup_id = id;
	record->weight = plim_order_group_weight(weight);
	bpf_for (tier, 0, PLIMSOLL_TIERS) {
		record->tiers[tier & PLIMSOLL_TIER_MASK].share =
			plim_order_share_at_top(weight_of(record));
		record->tiers[tier & PLIMSOLL_TIER_MASK].part = PLIM_ORDER_PART_WHOLE;
	}
	record->parent = record_near(cgrp, cgrp->level - 1);
	/* Groups are set up before the scheduler is shown the cgroups. */
	slot = bpf_map_lookup_elem(&group_of_cgroup, &id);
	group = slot ? group_at(*slot) : NULL;
	if (!group)
		return;
	record->group_slot = *slot;
	record->group_weight = group->params.weight;
	chain_follow(*slot);
	record->is_batch = !!(group->params.flags & PLIMSOLL_BATCH);
}

static __always_inline void record_ends(struct cgroup *cgrp)
{
	u64 id = id_of_cgroup(cgrp);
	u32 *found = bpf_map_lookup_elem(&record_of_cgroup, &id), index, tier, was;
	struct cgroup_record *record, *around, *last;
	struct tier_load *load;

	if (!found)
		return;
	index = *found;
	record = record_at(index);
	if (!record)
		return;
	bpf_map_delete_elem(&record_of_cgroup, &id);
	/* Its limit has ended, whoever still looks at the record. */
	WRITE_ONCE(record->cgroup_id, 0);
	/* Tasks that are dying there count no more, in it or around it. */
	record->generation++;
	around = record_at(record->parent);
	bpf_for (tier, 0, PLIMSOLL_TIERS) {
		if (!around)
			break;
		load = &record->tiers[tier & PLIMSOLL_TIER_MASK];
		WRITE_ONCE(load->nr_runnable, 0);
		was = __sync_lock_test_and_set(&load->counted, 0);
		if (!was)
			continue;
		load = &around->tiers[tier & PLIMSOLL_TIER_MASK];
		__sync_fetch_and_add(&load->load, -(u64)was);
		if (__sync_fetch_and_add(&load->nr_runnable, -1) == 1)
			record_counts(record->parent, tier);
	}
	record->parent = 0;
	last = record_at(last_free_record);
	if (last && first_free_record)
		last->parent = index;
	else
		first_free_record = index;
	last_free_record = index;
}

#endif /* PLIMSOLL_TREE_BPF_H */

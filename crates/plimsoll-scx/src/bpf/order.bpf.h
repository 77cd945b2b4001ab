/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Order: where a task stands among those of its queue, by the core.
 *
 * A place is a tier of a shard or of a CPU: its clock is the latest start of the tasks
 * that were picked there. Tasks that may run on one CPU only are at the place of that
 * CPU: where they overload it they fall behind the shard's clock, and one that sleeps
 * must not be placed behind that of another CPU. A task that changes its place keeps the distance
 * from the clock, but loses what it is owed if it changes its tier; else, if its CPUs have changed
 * since it ran, and it owes, it owes a request more. One that does not run in its turn, because it
 * has waited too long, holds a lock, or waited elsewhere, moves no clock: all others would forfeit
 * as much as it owes.
 *
 * A CPU compares the tasks of its own place with those of its shard by the shift, the
 * virtual time from one to the other. It grows when bound tasks have fallen further
 * behind than BEHIND_MAX_NS: what they could not use for want of that CPU is forfeited,
 * as the core has it for all tasks.
 */
#ifndef PLIMSOLL_ORDER_BPF_H
#define PLIMSOLL_ORDER_BPF_H

#include "tree.bpf.h"

/* include/uapi/linux/sched.h */
#define POLICY_BATCH 3
#define POLICY_IDLE 5

/* Longest request that sched_setattr() sets, as kernel/sched/fair.c has it. */
#define REQUEST_GIVEN_MAX_NS (100 * PLIM_NSEC_PER_MSEC)
/* A floor far in the past: of tasks of the root. */
#define ORDER_FLOOR_NONE (1ULL << 59)
/* Places of CPUs come behind those of shards. */
#define CPU_PLACES (PLIMSOLL_LLCS_MAX * PLIMSOLL_TIERS_PADDED)
/* How far a CPU's clock may be behind its shard's, at nice 0: some requests of each. */
#define BEHIND_MAX_NS (4 * PLIM_ORDER_CREDIT_NS)

static __always_inline struct shard *shard_of(u32 llc)
{
	return &shards[llc % PLIMSOLL_LLCS_MAX];
}

/* The tier of the task itself, without a boost. */
static __always_inline u32 own_tier_of(const struct plimsoll_group *group, const struct task_ctx *t,
				       const struct task_struct *p)
{
	if (t->background || t->in_idle || group->background || p->policy == POLICY_IDLE)
		return PLIMSOLL_TIER_BACKGROUND;
	return group->params.flags & PLIMSOLL_BATCH ? PLIMSOLL_TIER_BATCH : PLIMSOLL_TIER_NORMAL;
}

/* Whether a task is boosted to the normal tier, because it holds a lock that normal work waits for.
 */
static __always_inline bool is_boosted(const struct task_ctx *t)
{
	u64 until_ns = READ_ONCE(t->locks.boosted_until_ns);

	return until_ns && bpf_ktime_get_ns() < until_ns;
}

/* Whether no limit holds for it meanwhile. */
static __always_inline bool lifts_limits(const struct task_ctx *t)
{
	return is_boosted(t) && !(READ_ONCE(t->locks.boosted_for) & LOCK_IS_FUTEX);
}

static __always_inline u32 tier_of(const struct plimsoll_group *group, const struct task_ctx *t,
				   const struct task_struct *p)
{
	return is_boosted(t) ? PLIMSOLL_TIER_NORMAL : own_tier_of(group, t, p);
}

/* Whether a task has a request that does not follow what it does. */
static __always_inline bool has_fixed_request(const struct task_struct *p)
{
	return p->policy == POLICY_BATCH || p->se.custom_slice;
}

static __always_inline u32 shard_place(u32 llc, u32 tier)
{
	return llc * PLIMSOLL_TIERS_PADDED + tier + 1;
}

static __always_inline u32 cpu_place(s32 cpu, u32 tier)
{
	return CPU_PLACES + (u32)cpu * PLIMSOLL_TIERS_PADDED + tier + 1;
}

/* Whether it is that of a CPU. */
static __always_inline bool is_of_cpu(u32 place)
{
	return place > CPU_PLACES;
}

/* The place of a task of this tier that runs or waits on a CPU. */
static __always_inline u32 place_of(const struct task_ctx *t, s32 cpu, u32 tier)
{
	return t->in_own_queue ? cpu_place(cpu, tier) : shard_place(llc_of(cpu), tier);
}

/* Whether two places are of one tier. */
static __always_inline bool is_same_tier(u32 a, u32 b)
{
	return !(((a - 1) ^ (b - 1)) & PLIMSOLL_TIER_MASK);
}

static __always_inline u64 clock_at(u32 place)
{
	u32 index = place - 1, tier = index & PLIMSOLL_TIER_MASK, llc;
	struct plimsoll_cpu *c;

	if (index < CPU_PLACES) {
		llc = index / PLIMSOLL_TIERS_PADDED;
		/* Else the compiler knows its bound, and the verifier does not. */
		barrier_var(llc);
		return READ_ONCE(shard_of(llc)->clocks[tier]);
	}
	c = cpu_at((index - CPU_PLACES) / PLIMSOLL_TIERS_PADDED);
	return c ? READ_ONCE(c->clocks[tier]) : 0;
}

/* From the clock of a place to that of another. */
__noinline u64 clock_distance(u32 from, u32 to)
{
	return clock_at(to) - clock_at(from);
}

/*
 * A task is parked: until it returns, what it is owed or owes and its deadline stay as far from
 * the clock as they are. So they do in the fair class, for a task that is throttled.
 */
static __always_inline void order_parks(struct task_ctx *t)
{
	/* Not 0, which says that it is not parked. */
	WRITE_ONCE(t->parked_clock, t->place ? clock_at(t->place) | 1 : 0);
}

/*
 * A parked task returns: by a timer, or as it is queued anew. Of both at once one takes what it
 * has stood; if it is the timer, the order may follow when the task is queued or runs the next
 * time.
 */
static __always_inline void order_returns(struct task_ctx *t)
{
	u32 place = READ_ONCE(t->place);
	u64 parked;

	if (!READ_ONCE(t->parked_clock))
		return;
	parked = __sync_lock_test_and_set(&t->parked_clock, 0);
	if (parked)
		__sync_fetch_and_add(&t->stood, clock_at(place) - parked);
}

/*
 * Whether a task comes to this place because its CPUs have changed since it ran. That costs once
 * after each run, so that others cannot starve it by changing them. A wake-up on another of its
 * CPUs is free.
 */
static __always_inline bool
has_moved(const struct task_ctx *t, const struct task_struct *p, u32 place)
{
	return t->place != place && t->place && t->ran_on &&
	       (is_of_cpu(t->place) != is_of_cpu(place) ||
		!bpf_cpumask_test_cpu(t->ran_on - 1, p->cpus_ptr));
}

/* Moves a task to the clock of a place. */
static __always_inline void order_follow(struct task_ctx *t, u32 place)
{
	u64 stood = 0;

	order_returns(t);
	if (READ_ONCE(t->stood))
		stood = __sync_lock_test_and_set(&t->stood, 0);
	if (t->place == place) {
		if (stood)
			plim_order_move(&t->order, 0, stood);
		return;
	}
	if (t->place) {
		plim_order_move(&t->order, 0, stood + clock_distance(t->place, place));
		if (!is_same_tier(t->place, place))
			plim_order_forfeit(&t->order, clock_at(place));
	} else {
		plim_order_init(&t->order, clock_at(place));
		t->slept_ns = 1; /* for long */
	}
	t->place = place;
}

/*
 * The deadline that a waiting task has at a place. Its order stays as it is: it is
 * written with the run queue of the task locked only, and follows when the task runs.
 */
static __always_inline u64 deadline_at(const struct task_ctx *t, u32 place)
{
	u32 present = READ_ONCE(t->place);
	u64 deadline = READ_ONCE(t->order.deadline) + READ_ONCE(t->stood), start;

	if (!present || present == place)
		return deadline;
	if (!is_same_tier(present, place)) {
		/* See plim_order_forfeit(). */
		start = READ_ONCE(t->order.start) + READ_ONCE(t->stood);
		deadline += plim_order_owed(start, clock_at(present));
	}
	return deadline + clock_distance(present, place);
}

/* The deadline of a task as its shard compares it. */
static __always_inline u64 shared_deadline(const struct plimsoll_cpu *c, const struct task_ctx *t,
					   u32 tier)
{
	return t->order.deadline +
	       (t->in_own_queue ? READ_ONCE(c->shifts[tier & PLIMSOLL_TIER_MASK]) : 0);
}

/*
 * A CPU on which no bound task runs or waits has been left behind by its shard. Called
 * with the CPU's run queue locked.
 */
static __always_inline void cpu_clock_catches_up(struct plimsoll_cpu *c, u32 llc, u32 tier)
{
	u64 clock;

	tier &= PLIMSOLL_TIER_MASK;
	clock = READ_ONCE(shard_of(llc)->clocks[tier]) - c->shifts[tier];
	if (plim_order_before(c->clocks[tier], clock))
		WRITE_ONCE(c->clocks[tier], clock);
}

/* The clock of a task's cgroup on an LLC, beside that of the LLC; NULL: it needs none. */
static __always_inline u64 *cgroup_clock_of(const struct task_ctx *t, u32 llc)
{
	u32 key = t->cgroup * nr_llcs + llc;
	struct cgroup_clocks *clocks;

	if (t->cgroup == RECORD_ROOT)
		return NULL;
	clocks = bpf_map_lookup_elem(&cgroup_clocks, &key);
	return clocks ? &clocks->tiers[tier_counted(t->counted)] : NULL;
}

/* Charges a run, in its turn or before, to the clock of a task's cgroup. */
static __always_inline void
cgroup_clock_charge(const struct task_ctx *t, u32 llc, u64 ran_ns, bool is_early)
{
	u64 *clock = cgroup_clock_of(t, llc), was, least, share, llc_clock;
	struct cgroup_record *record = record_at(t->cgroup);
	u32 tier = tier_counted(t->counted);

	if (!clock || !record)
		return;
	was = READ_ONCE(*clock);
	share = READ_ONCE(record->tiers[tier].share);
	llc_clock = READ_ONCE(shard_of(llc)->clocks[tier]);
	least = plim_order_group_clock(was, llc_clock);
	if (least != was)
		__sync_val_compare_and_swap(clock, was, least);
	__sync_fetch_and_add(clock,
			     is_early ? plim_order_group_early(least, llc_clock, ran_ns, share)
				      : plim_order_delta(ran_ns, share));
}

/* The earliest start of a task that wakes, by what its cgroup has had. */
static __always_inline u64 floor_of(const struct task_ctx *t, u32 llc, u64 clock, u64 effective)
{
	u64 *group_clock = cgroup_clock_of(t, llc), floor;

	if (!group_clock)
		return clock - ORDER_FLOOR_NONE;
	floor = plim_order_group_floor(&t->order, READ_ONCE(*group_clock), effective);
	/* As far from the clock of its CPU: that may be behind the shard's for want of the CPU. */
	return floor - clock_at(shard_place(llc, tier_counted(t->counted))) + clock;
}

/* Brings a task that wakes, is new, or has run up to date with the queue that it joins. */
static __always_inline void
order_join(struct task_ctx *t, const struct task_struct *p, u32 llc, u64 now)
{
	u64 effective, clock;
	u32 part;

	if (p->policy == POLICY_BATCH)
		t->order.request_ns = PLIM_ORDER_REQUEST_MAX_NS;
	else if (p->se.custom_slice)
		t->order.request_ns = plim_min(p->se.slice, REQUEST_GIVEN_MAX_NS);
	/* It has joined, and is queued anew before it has run. */
	if (!t->slept_ns && !t->has_run)
		return;
	effective = effective_weight(t, p);
	clock = clock_at(t->place);
	part = has_fixed_request(p) ? PLIM_ORDER_PART_WHOLE : request_part(t, p);
	if (t->slept_ns) {
		plim_order_wake(&t->order, clock, floor_of(t, llc, clock, effective),
				plim_elapsed_ns(now, t->slept_ns), effective, part);
		t->slept_ns = 0;
	} else {
		if (t->has_yielded)
			plim_order_yield(&t->order);
		plim_order_requeue(&t->order, clock, has_fixed_request(p), effective, part);
	}
	t->has_run = 0;
	t->has_yielded = 0;
}

/* A task runs: the clocks of its CPU and of its shard follow. */
static __always_inline void
clocks_follow(struct task_ctx *t, struct plimsoll_cpu *c, u32 llc, u32 tier)
{
	struct shard *shard = shard_of(llc);
	u64 start = t->order.start, shift, clock;
	s64 behind;

	tier &= PLIMSOLL_TIER_MASK;
	/* Both on the shard's side of the shift. */
	shift = c->shifts[tier];
	clock = c->clocks[tier] + shift;
	if (t->in_own_queue)
		start += shift;
	if (plim_order_before(clock, start)) {
		clock = start;
		WRITE_ONCE(c->clocks[tier], start - shift);
	}
	behind = READ_ONCE(shard->clocks[tier]) - clock;
	if (behind > (s64)BEHIND_MAX_NS)
		WRITE_ONCE(c->shifts[tier], shift + behind - BEHIND_MAX_NS);
	/* While others wait for the shard, a bound task says nothing about their turn. */
	if (t->in_own_queue && READ_ONCE(shard->nr_waiting[tier]) > 0)
		return;
	clock = READ_ONCE(shard->clocks[tier]);
	if (plim_order_before(clock, start))
		WRITE_ONCE(shard->clocks[tier], plim_order_picked(clock, start));
}

static __always_inline void waiting_counts(u32 at, s32 change)
{
	u32 llc = (at - 1) / PLIMSOLL_TIERS_PADDED;

	if (at)
		__sync_fetch_and_add(&shard_of(llc)->nr_waiting[(at - 1) & PLIMSOLL_TIER_MASK],
				     change);
}

/* Also by a timer, while the task is queued or taken: each takes out what it replaces. */
static __always_inline void waiting_exchanges(struct task_ctx *t, u32 place)
{
	u32 was = __sync_lock_test_and_set(&t->waits_at, place);

	waiting_counts(place, 1);
	waiting_counts(was, -1);
}

/* Counts a task that waits for any CPU of its shard; see plimsoll_update_idle(). */
static __always_inline void waiting_enters(struct task_ctx *t, u32 llc, u32 tier)
{
	if (!t->waits_at)
		waiting_exchanges(t, shard_place(llc, tier));
}

static __always_inline void waiting_leaves(struct task_ctx *t)
{
	if (t->waits_at)
		waiting_exchanges(t, 0);
}

/* Whether a task that is counted so waits on an LLC. */
static __always_inline bool normal_waits(u32 llc)
{
	return READ_ONCE(shard_of(llc)->nr_waiting[PLIMSOLL_TIER_NORMAL]) > 0;
}

static __always_inline bool lower_tiers_wait(u32 llc)
{
	return READ_ONCE(shard_of(llc)->nr_waiting[PLIMSOLL_TIER_BATCH]) > 0 ||
	       READ_ONCE(shard_of(llc)->nr_waiting[PLIMSOLL_TIER_BACKGROUND]) > 0;
}

#endif /* PLIMSOLL_ORDER_BPF_H */

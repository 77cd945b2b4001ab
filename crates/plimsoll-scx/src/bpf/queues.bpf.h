/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Queues of waiting tasks.
 *
 * Each shard has one queue for each tier, ordered by virtual deadline. Each CPU has
 * the same for tasks that may run there only, so that no other CPU meets them. Tasks
 * that a limit keeps from running are parked in a queue of the group with that limit,
 * ordered by when they may run again, or by when they came. Tasks that have waited
 * too long, whatever the reason, are moved to the overdue queue of their LLC, which
 * is served first and regardless of all limits: a task that does not run for 30 s ends
 * the whole scheduler. Holders of locks that normal work waits for go there, too.
 *
 * All queues are created when the scheduler is loaded, so that a group costs no
 * allocation and no queue is ever freed under a task.
 */
#ifndef PLIMSOLL_QUEUES_BPF_H
#define PLIMSOLL_QUEUES_BPF_H

#include "bandwidth.bpf.h"
#include "order.bpf.h"
#include "state.bpf.h"
#include "watchdog.bpf.h"

/* Ids begin above 0, which is no id. */
#define SHARD_ID_BASE (1ULL << 32)
#define PARKED_ID_BASE (2ULL << 32)
#define OVERDUE_ID_BASE (3ULL << 32)
#define CPU_ID_BASE (4ULL << 32)

#define HOUSEKEEPING_NS PLIM_NSEC_PER_SEC
/* A task that sleeps for longer than this with a lock may not be found. */
#define LOWER_FORGET_NS (10 * PLIM_NSEC_PER_SEC)
/* In this time a task is in the queue that ops.enqueue() has chosen. */
#define INSERTION_NS PLIM_NSEC_PER_MSEC
/* Most looks for a CPU for one task. */
#define LOOKS_MAX 64
/* Most idle CPUs that are picked for one task: those on their way offline are not woken. */
#define PICKS_MAX 4
/* Most tasks of one queue that are checked in one pass. */
#define QUEUE_SCAN_MAX 512
/*
 * Most tasks of one queue among which a pass looks for overdue ones, for some milliseconds: a
 * task that starves behind more is not found, and ends the scheduler. Each pass moves only some
 * of the overdue ones before everybody, until they have waited for twice as long.
 */
#define OVERDUE_SCAN_MAX (1 << 14)
#define OVERDUE_MOVE_MAX 512

static __always_inline u64 shard_queue(u32 llc, u32 tier)
{
	return SHARD_ID_BASE + llc * PLIMSOLL_TIERS + tier;
}

static __always_inline u64 cpu_queue(s32 cpu, u32 tier)
{
	return CPU_ID_BASE + (u32)cpu * PLIMSOLL_TIERS + tier;
}

static __always_inline u64 parked_id(u32 slot)
{
	return PARKED_ID_BASE + slot;
}

static __always_inline u64 overdue_id(u32 llc)
{
	return OVERDUE_ID_BASE + llc;
}

/* Creates all queues; called when the scheduler is loaded. */
static int queues_create(void)
{
	u32 index, tier;
	int error;

	bpf_for (index, 0, nr_llcs) {
		error = scx_bpf_create_dsq(overdue_id(index), -1);
		bpf_for (tier, 0, PLIMSOLL_TIERS) {
			error = error ?: scx_bpf_create_dsq(shard_queue(index, tier), -1);
		}
		if (error)
			return error;
	}
	bpf_for (index, 0, nr_cpu_ids) {
		error = 0;
		bpf_for (tier, 0, PLIMSOLL_TIERS) {
			error = error ?: scx_bpf_create_dsq(cpu_queue(index, tier), -1);
		}
		if (error)
			return error;
	}
	bpf_for (index, 0, nr_slots) {
		error = scx_bpf_create_dsq(parked_id(index), -1);
		if (error)
			return error;
	}
	return 0;
}

/* The queue of a task of this tier. */
static __always_inline u64 queue_of(const struct task_ctx *t, s32 cpu, u32 tier)
{
	return t->in_own_queue ? cpu_queue(cpu, tier) : shard_queue(llc_of(cpu), tier);
}

/* Whether a task may run on one CPU only. */
static __always_inline bool is_bound(const struct task_struct *p)
{
	return nr_cpu_ids == 1 || p->nr_cpus_allowed == 1;
}

/* Whether any CPU may run a task. */
static __always_inline bool runs_anywhere(const struct task_struct *p)
{
	return p->nr_cpus_allowed >= nr_cpu_ids;
}

static __always_inline bool is_offline(s32 cpu)
{
	struct plimsoll_cpu *c = cpu_at(cpu);

	return c && !c->online;
}

/*
 * Whether a task waits for one CPU, which is offline and not asked to dispatch. In its
 * local queue the kernel finds the task, and takes it elsewhere.
 */
static __always_inline bool waits_offline(const struct task_ctx *t, s32 cpu)
{
	return t->in_own_queue && is_offline(cpu);
}

/* Wakes an idle CPU on which a task may run, for no other. Returns whether there is one. */
__noinline bool kick_idle_for(struct task_struct *p __arg_trusted)
{
	bool found = false;
	s32 cpu;
	u32 i;

	bpf_rcu_read_lock();
	bpf_for (i, 0, PICKS_MAX) {
		cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
		if (cpu < 0)
			break;
		/* One that picks idle again on its way offline is noted as idle again. */
		if (is_offline(cpu))
			continue;
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		found = true;
		break;
	}
	bpf_rcu_read_unlock();
	return found;
}

/*
 * Does so among the CPUs of the LLC of @cpu, at whose queue the others do not look. @p NULL: one on
 * which any task may run.
 */
__noinline bool kick_idle_of_llc(struct task_struct *p __arg_trusted __arg_nullable, s32 cpu)
{
	const volatile plim_u64 *of_llc = llc_cpus[llc_of(cpu)];
	const struct cpumask *allowed = NULL;
	u32 i, other = cpu, nr_ends = 0;
	struct plimsoll_cpu *c;
	bool found = false;

	bpf_rcu_read_lock();
	if (p)
		allowed = p->cpus_ptr;
	/* One more: the look that finds the end of the set. */
	bpf_for (i, 0, LOOKS_MAX + 1) {
		other = cpus_next(of_llc, NULL, false, other);
		c = cpu_at(other);
		if (!c) {
			if (nr_ends++)
				break;
			other = 0;
			continue;
		}
		if (c->online && c->state == PLIMSOLL_CPU_IDLE &&
		    (!allowed || bpf_cpumask_test_cpu(other, allowed)) &&
		    scx_bpf_test_and_clear_cpu_idle(other)) {
			scx_bpf_kick_cpu(other, SCX_KICK_IDLE);
			found = true;
			break;
		}
		other++;
	}
	bpf_rcu_read_unlock();
	return found;
}

/* Whether a CPU runs a task of a lower tier than this. */
static __always_inline bool runs_below(const struct plimsoll_cpu *c, u32 tier)
{
	u32 running = READ_ONCE(c->tier);

	return running > tier && running < PLIMSOLL_TIERS;
}

/* CPUs of the LLC from the task's on, those before it, and the others alike. */
#define NEAR_PASSES 4

/* A near CPU whose task of a lower tier a task preempts. -1: none. */
__noinline s32 cpu_of_lower_tier(struct task_struct *p __arg_trusted, s32 cpu, u32 tier)
{
	const plim_u64 *lower = lower_cpus[tier & PLIMSOLL_TIER_MASK];
	const volatile plim_u64 *of_llc = llc_cpus[llc_of(cpu)];
	u32 i, pass = 0, other = cpu;
	const struct cpumask *allowed;
	struct plimsoll_cpu *c;
	s32 found = -1;

	if (cpus_next(lower, NULL, false, 0) >= nr_cpu_ids)
		return -1;
	bpf_rcu_read_lock();
	allowed = p->cpus_ptr;
	bpf_for (i, 0, LOOKS_MAX) {
		other = cpus_next(lower, of_llc, pass / 2, other);
		c = cpu_at(other);
		if (!c || (pass % 2 && other >= (u32)cpu)) {
			if (++pass >= NEAR_PASSES)
				break;
			other = pass % 2 ? 0 : cpu;
			continue;
		}
		if (runs_below(c, tier) && !READ_ONCE(c->is_taken) &&
		    bpf_cpumask_test_cpu(other, allowed)) {
			found = other;
			break;
		}
		other++;
	}
	bpf_rcu_read_unlock();
	return found;
}

/* Has a CPU dispatch, although its task could go on. */
static __always_inline void take_cpu(s32 cpu)
{
	struct plimsoll_cpu *c = cpu_at(cpu);

	if (!c)
		return;
	WRITE_ONCE(c->is_taken, 1);
	scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

/* Moves a waiting task to the overdue queue, and has CPUs look for it. */
static __noinline void
to_overdue(struct bpf_iter_scx_dsq *waiting, struct task_struct *p, struct task_ctx *t, u32 why)
{
	s32 cpu = scx_bpf_task_cpu(p);
	/*
	 * Before a CPU that goes offline waits for its tasks it waits for RCU, and is not asked to
	 * dispatch any more.
	 */
	bool is_awaited =
		is_offline(cpu) || (t->in_own_queue && (p->flags & PF_KTHREAD || reads_rcu(p)));
	u64 queue = is_awaited ? SCX_DSQ_LOCAL_ON | cpu : overdue_id(llc_of(cpu));
	struct plimsoll_cpu *c;

	t->overdue = why;
	t->out_of_order = 1;
	if (!scx_bpf_dsq_move(waiting, p, queue, 0))
		return;
	waiting_leaves(t);
	/* Before a CPU looks. It is there already, so none has to look again. */
	WRITE_ONCE(overdue_since_ns[llc_of(cpu)], bpf_ktime_get_ns() - INSERTION_NS - 1);
	if (!is_awaited && kick_idle_of_llc(p, cpu))
		return;
	/* Not for each of many: the one before would be preempted before it has run. */
	c = cpu_at(cpu);
	if (c && !__sync_lock_test_and_set(&c->comes_to_overdue, 1))
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

/* Moves overdue tasks of one queue to the overdue queue of the LLC where each last ran. */
__noinline int move_overdue(u64 dsq_id)
{
	struct task_struct *p;
	struct task_ctx *t;
	int seen = count_from, moved = count_from;

	if (!scx_bpf_dsq_nr_queued(dsq_id))
		return 0;
	bpf_rcu_read_lock();
	bpf_for_each (scx_dsq, p, dsq_id, 0) {
		if (++seen > OVERDUE_SCAN_MAX)
			break;
		/* A CPU that goes offline waits for all tasks that it had. */
		if (!is_offline(scx_bpf_task_cpu(p))) {
			if (!is_overdue(p))
				continue;
			if (++moved > OVERDUE_MOVE_MAX && watchdog_waited_ns(p) < 2 * OVERDUE_NS)
				continue;
		}
		t = task_of(p);
		if (t)
			to_overdue(BPF_FOR_EACH_ITER, p, t, PLIMSOLL_OVERDUE);
	}
	bpf_rcu_read_unlock();
	return 0;
}

__noinline int check_parked(u32 slot, u64 now)
{
	if (!scx_bpf_dsq_nr_queued(parked_id(slot)))
		return 0;
	move_overdue(parked_id(slot));
	/* A task may have been parked, by the kernel, after the timer of its limit. */
	group_timer_at(slot, now + HOUSEKEEPING_NS);
	return 0;
}

/*
 * Has all CPUs look for overdue tasks that none has taken. Those of their LLC may be offline,
 * or busy with real-time tasks.
 */
__noinline int overdue_again(u32 llc, u64 now)
{
	u32 cpu;

	if (!scx_bpf_dsq_nr_queued(overdue_id(llc)))
		return 0;
	WRITE_ONCE(overdue_since_ns[llc % PLIMSOLL_LLCS_MAX], now);
	WRITE_ONCE(llc_overdue, llc + 1);
	bpf_for (cpu, 0, nr_cpu_ids) {
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	}
	return 0;
}

/* Time at which a task of a lower tier last ran or waited. Written by housekeeping only. */
static u64 lower_seen_ns;

static int housekeeping(void *map, int *key, struct bpf_timer *timer)
{
	u64 now = bpf_ktime_get_ns();
	u32 slot, llc, tier, cpu;

	watchdog_measure_jiffy(now);
	chains_follow();
	bpf_for (slot, 0, READ_ONCE(nr_slots_used)) {
		check_parked(slot, now);
	}
	bpf_for (llc, 0, nr_llcs) {
		overdue_again(llc, now);
	}
	bpf_for (tier, 0, PLIMSOLL_TIERS) {
		bpf_for (llc, 0, nr_llcs) {
			move_overdue(shard_queue(llc, tier));
		}
		bpf_for (cpu, 0, nr_cpu_ids) {
			move_overdue(cpu_queue(cpu, tier));
		}
	}
	if (__sync_lock_test_and_set(&lower_seen, 0))
		lower_seen_ns = now;
	else if (plim_elapsed_ns(now, lower_seen_ns) > LOWER_FORGET_NS)
		WRITE_ONCE(lower_exists, 0);
	bpf_timer_start(timer, HOUSEKEEPING_NS, 0);
	return 0;
}

#endif /* PLIMSOLL_QUEUES_BPF_H */

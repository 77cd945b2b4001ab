/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Queues of waiting tasks.
 *
 * Each group has two queues in each LLC, ordered by virtual runtime: one for
 * its tasks and one for those in the background. Tasks over a cap of their
 * own are parked in a queue of the group that is ordered by when they may run
 * again. Tasks that have waited too long, whatever the reason, are moved to
 * the overdue queue of their LLC, which is served first and regardless of all
 * limits: a task that does not run for 30 s ends the whole scheduler. Killed
 * tasks go there, too, for they have to run to die.
 *
 * All queues are created when the scheduler is loaded, so that a group costs no
 * allocation and no queue is ever freed under a task.
 */
#ifndef PLIMSOLL_QUEUES_BPF_H
#define PLIMSOLL_QUEUES_BPF_H

#include "state.bpf.h"
#include "watchdog.bpf.h"

/*
 * A queue's index: slot * 2, + 1 for background. Its id adds the LLC. Ids
 * begin above 0, which is no id.
 */
#define QUEUE_ID_BASE (1ULL << 32)
#define PARKED_ID_BASE (2ULL << 32)
#define OVERDUE_ID_BASE (3ULL << 32)

#define HOUSEKEEPING_NS PLIM_NSEC_PER_SEC
/* Most CPUs that are checked for one task. */
#define KICK_CPUS_MAX 64
/* Most tasks of one queue that are checked in one pass. */
#define QUEUE_SCAN_MAX 512

static __always_inline u32 queue_index(u32 slot, bool background)
{
	return slot * 2 + (background ? 1 : 0);
}

static __always_inline u64 queue_id(u32 index, u32 llc)
{
	return QUEUE_ID_BASE + (u64)index * PLIMSOLL_LLCS_MAX + llc;
}

static __always_inline u64 parked_id(u32 slot)
{
	return PARKED_ID_BASE + slot;
}

static __always_inline u64 overdue_id(u32 llc)
{
	return OVERDUE_ID_BASE + llc;
}

static __always_inline u64 *active_word(u32 llc, u32 index)
{
	return &active_queues[llc % PLIMSOLL_LLCS_MAX][index / 64 % PLIMSOLL_QUEUE_WORDS];
}

static __always_inline void queue_set_active(u32 llc, u32 index)
{
	u64 *word = active_word(llc, index);
	u64 bit = 1ULL << (index % 64);

	if (!(READ_ONCE(*word) & bit))
		__sync_fetch_and_or(word, bit);
}

/*
 * Whether a queue has tasks or is about to get one: the kernel queues a task only
 * after ops.enqueue() has returned, so a runnable task that does not run may be
 * about to be queued.
 */
static __always_inline bool queue_has_more(u32 llc, u32 index)
{
	struct plimsoll_group *group = group_at(index / 2);

	return scx_bpf_dsq_nr_queued(queue_id(index, llc)) > 0 ||
	       (group && READ_ONCE(group->nr_runnable) > READ_ONCE(group->nr_running));
}

/*
 * Clears the bit of a queue that had no task for this CPU, unless it has tasks, such
 * as those bound to other CPUs: a CPU that dispatched while the bit was clear would
 * go idle and leave them waiting.
 */
static __always_inline void queue_clear_active(u32 llc, u32 index)
{
	u64 *word = active_word(llc, index);
	u64 bit = 1ULL << (index % 64);

	if (queue_has_more(llc, index))
		return;
	__sync_fetch_and_and(word, ~bit);
	if (queue_has_more(llc, index))
		__sync_fetch_and_or(word, bit);
}

/* Creates all queues; called when the scheduler is loaded. */
static int queues_create(void)
{
	u32 index, llc;
	int error;

	bpf_for (llc, 0, nr_llcs) {
		bpf_for (index, 0, PLIMSOLL_GROUPS_MAX * 2) {
			error = scx_bpf_create_dsq(queue_id(index, llc), -1);
			if (error)
				return error;
		}
		error = scx_bpf_create_dsq(overdue_id(llc), -1);
		if (error)
			return error;
	}
	bpf_for (index, 0, PLIMSOLL_GROUPS_MAX) {
		error = scx_bpf_create_dsq(parked_id(index), -1);
		if (error)
			return error;
	}
	return 0;
}

/* include/linux/sched/signal.h: the whole process is about to die. */
#define SIGNAL_GROUP_EXIT 0x4

/* Whether a task was killed: it has to run to exit, regardless of limits. */
static __always_inline bool is_dying(const struct task_struct *p)
{
	return BPF_CORE_READ(p, signal, flags) & SIGNAL_GROUP_EXIT;
}

/* Wakes the first idle CPU, from @cpu on, on which a task may run. */
static __always_inline void kick_idle_for(struct task_struct *p, s32 cpu)
{
	struct plimsoll_cpu *c;
	u32 i, other;

	bpf_for (i, 0, KICK_CPUS_MAX) {
		if (i >= nr_cpu_ids)
			break;
		other = ((u32)cpu + i) % nr_cpu_ids;
		c = cpu_at(other);
		if (!c || !c->online || c->state != PLIMSOLL_CPU_IDLE ||
		    !bpf_cpumask_test_cpu(other, p->cpus_ptr))
			continue;
		scx_bpf_kick_cpu(other, SCX_KICK_IDLE);
		break;
	}
}

/*
 * Moves overdue and killed tasks of one queue to the overdue queue of the LLC where
 * each last ran.
 */
static __noinline int move_overdue(u64 dsq_id, u64 now)
{
	struct task_struct *p;
	struct task_ctx *t;
	int seen = count_from;
	s32 cpu;

	if (!scx_bpf_dsq_nr_queued(dsq_id))
		return 0;
	bpf_for_each (scx_dsq, p, dsq_id, 0) {
		if (++seen > QUEUE_SCAN_MAX)
			break;
		t = task_of(p);
		if (!t || !(is_overdue(t, now) || is_dying(p)))
			continue;
		cpu = scx_bpf_task_cpu(p);
		t->overdue = 1;
		if (!scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, overdue_id(llc_of(cpu)), 0))
			continue;
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		kick_idle_for(p, cpu);
	}
	return 0;
}

static int housekeeping(void *map, int *key, struct bpf_timer *timer)
{
	u64 now = bpf_ktime_get_ns();
	u32 slot, llc;

	watchdog_measure_jiffy(now);
	bpf_for (slot, 0, nr_slots_used) {
		bpf_for (llc, 0, nr_llcs) {
			move_overdue(queue_id(queue_index(slot, false), llc), now);
			move_overdue(queue_id(queue_index(slot, true), llc), now);
		}
		move_overdue(parked_id(slot), now);
	}
	bpf_for (llc, 0, nr_llcs) {
		if (scx_bpf_dsq_nr_queued(overdue_id(llc)))
			WRITE_ONCE(overdue_waits[llc % PLIMSOLL_LLCS_MAX], true);
	}
	bpf_timer_start(timer, HOUSEKEEPING_NS, 0);
	return 0;
}

#endif /* PLIMSOLL_QUEUES_BPF_H */

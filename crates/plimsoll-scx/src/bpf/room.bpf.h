/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Making room: in partial mode the fair class takes a CPU that runs batch work
 * for a busy one, and lets its own tasks wait for one another elsewhere. So a
 * CPU that runs batch work looks at each tick whether a fair task waits that
 * could run here, and if so goes idle for a moment: idle CPUs are what the
 * kernel's load balancer moves waiting tasks to.
 *
 * What is read of other CPUs' run queues is read without their locks. It may be
 * stale; then a CPU is idle for a moment in vain, or too late.
 */
#ifndef PLIMSOLL_ROOM_BPF_H
#define PLIMSOLL_ROOM_BPF_H

#include "state.bpf.h"

/* No more CPUs, and no more waiting tasks of each, are looked at. */
#define ROOM_CPUS_MAX 64
#define ROOM_TASKS_MAX 8
/* At so many ticks in a row one has to wait: most wait for a moment only. */
#define ROOM_TICKS 2
/* The balancer runs at ticks: two of them, at 250 Hz. */
#define ROOM_IDLE_NS (10 * PLIM_NSEC_PER_MSEC)
/* It ends as soon as nobody waits any more. */
#define ROOM_LOOK_NS (2 * PLIM_NSEC_PER_MSEC)
/* In vain, the next attempt comes later, up to a sixth of the time. */
#define ROOM_WAIT_MIN_NS (10 * PLIM_NSEC_PER_MSEC)
#define ROOM_WAIT_MAX_NS (50 * PLIM_NSEC_PER_MSEC)

static __always_inline bool task_may_use(struct task_struct *p, s32 cpu)
{
	const struct cpumask *allowed = BPF_CORE_READ(p, cpus_ptr);
	unsigned long word = 0;

	bpf_probe_read_kernel(&word, sizeof(word), &allowed->bits[(u32)cpu / 64]);
	return word >> ((u32)cpu % 64) & 1;
}

/* Whether a fair task waits on run queue @rq that could run on @cpu. */
static __always_inline bool movable_waits(struct rq *rq, s32 cpu)
{
	struct list_head *head = &rq->cfs_tasks, *node;
	struct task_struct *p, *curr = BPF_CORE_READ(rq, curr);
	u32 i;

	node = BPF_CORE_READ(rq, cfs_tasks.next);
	bpf_for (i, 0, ROOM_TASKS_MAX) {
		if (!node || node == head)
			break;
		p = container_of(node, struct task_struct, se.group_node);
		if (p != curr && task_may_use(p, cpu))
			return true;
		node = BPF_CORE_READ(node, next);
	}
	return false;
}

/* Whether anywhere a fair task waits that could run on this CPU. */
__noinline int fair_task_waits_for(s32 cpu)
{
	struct rq *rq;
	u32 i, other, runnable;

	bpf_for (i, 1, ROOM_CPUS_MAX) {
		if (i >= nr_cpu_ids)
			break;
		other = ((u32)cpu + i) % nr_cpu_ids;
		rq = (struct rq *)bpf_per_cpu_ptr(&runqueues, other);
		if (!rq)
			continue;
		runnable = BPF_CORE_READ(rq, cfs.h_nr_runnable);
		if (runnable < 2 || runnable - BPF_CORE_READ(rq, cfs.h_nr_idle) < 2)
			continue;
		if (movable_waits(rq, cpu))
			return true;
	}
	return false;
}

/* At a tick in which batch work runs. Returns whether it has to stop. */
static __always_inline bool room_tick(struct plimsoll_cpu *c, s32 cpu, u64 now)
{
	if (now < c->room_next_ns)
		return false;
	if (!fair_task_waits_for(cpu)) {
		c->room_ticks = 0;
		c->room_wait_ns = ROOM_WAIT_MIN_NS;
		return false;
	}
	if (++c->room_ticks < ROOM_TICKS)
		return false;
	c->room_ticks = 0;
	c->room_until_ns = now + ROOM_IDLE_NS;
	c->room_next_ns = c->room_until_ns + c->room_wait_ns;
	c->room_wait_ns = plim_min(c->room_wait_ns * 2, ROOM_WAIT_MAX_NS);
	c->nr_rooms++;
	return true;
}

/* For how long this CPU, which makes room, stays idle before it looks again; 0: no more. */
static __always_inline u64 room_left_ns(struct plimsoll_cpu *c, s32 cpu, u64 now)
{
	if (fair_task_waits_for(cpu))
		return plim_min(c->room_until_ns - now, ROOM_LOOK_NS);
	c->room_until_ns = now;
	return 0;
}

#endif /* PLIMSOLL_ROOM_BPF_H */

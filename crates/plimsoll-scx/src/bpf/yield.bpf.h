/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Yielding to fair tasks. In partial mode the fair class takes a CPU that runs
 * batch work for a busy one, and leaves its own tasks queued elsewhere. So a CPU
 * that runs batch work checks at each tick whether a fair task that could run
 * here waits, and if so goes idle for a moment, because the kernel's load
 * balancer moves waiting tasks to idle CPUs.
 *
 * Run queues of other CPUs are read without their locks. The values may be
 * stale; then a CPU goes idle in vain, or too late.
 */
#ifndef PLIMSOLL_YIELD_BPF_H
#define PLIMSOLL_YIELD_BPF_H

#include "state.bpf.h"

/* Most CPUs that are checked, and most waiting tasks of each. */
#define YIELD_CPUS_MAX 64
#define YIELD_TASKS_MAX 8
/* Ticks in a row at which a task must wait: most wait for a moment only. */
#define YIELD_TICKS 2
/* The load balancer runs at ticks: this is two of them at 250 Hz. */
#define YIELD_IDLE_NS (10 * PLIM_NSEC_PER_MSEC)
/* Interval of the check whether a task still waits; else yielding ends. */
#define YIELD_CHECK_NS (2 * PLIM_NSEC_PER_MSEC)
/* The pause doubles with each attempt, so that yielding takes up to a sixth of the time. */
#define YIELD_WAIT_MIN_NS (10 * PLIM_NSEC_PER_MSEC)
#define YIELD_WAIT_MAX_NS (50 * PLIM_NSEC_PER_MSEC)

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
	bpf_for (i, 0, YIELD_TASKS_MAX) {
		if (!node || node == head)
			break;
		p = container_of(node, struct task_struct, se.group_node);
		if (p != curr && task_may_use(p, cpu))
			return true;
		node = BPF_CORE_READ(node, next);
	}
	return false;
}

/* Whether a fair task that could run on this CPU waits on any other. */
__noinline int fair_task_waits_for(s32 cpu)
{
	struct rq *rq;
	u32 i, other, runnable;

	bpf_for (i, 1, YIELD_CPUS_MAX) {
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

/* Called at a tick while batch work runs. Returns whether it has to stop. */
static __always_inline bool yield_tick(struct plimsoll_cpu *c, s32 cpu, u64 now)
{
	if (now < c->yield_next_ns)
		return false;
	if (!fair_task_waits_for(cpu)) {
		c->yield_ticks = 0;
		c->yield_wait_ns = YIELD_WAIT_MIN_NS;
		return false;
	}
	if (++c->yield_ticks < YIELD_TICKS)
		return false;
	c->yield_ticks = 0;
	c->yield_until_ns = now + YIELD_IDLE_NS;
	c->yield_next_ns = c->yield_until_ns + c->yield_wait_ns;
	c->yield_wait_ns = plim_min(c->yield_wait_ns * 2, YIELD_WAIT_MAX_NS);
	c->nr_yields++;
	return true;
}

/* How long this CPU, which yields, stays idle before the next check; 0: it stops yielding. */
static __always_inline u64 yield_left_ns(struct plimsoll_cpu *c, s32 cpu, u64 now)
{
	if (fair_task_waits_for(cpu))
		return plim_min(c->yield_until_ns - now, YIELD_CHECK_NS);
	c->yield_until_ns = now;
	return 0;
}

#endif /* PLIMSOLL_YIELD_BPF_H */

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Bandwidth: quota, period and burst of groups, one inside the other.
 *
 * The core makes every decision. This file gathers its inputs: the pool under
 * the group's lock, this CPU's part, the timer of the next boundary. The
 * timer runs only while a CPU is throttled; otherwise passed boundaries are
 * handled when the pool is next used.
 */
#ifndef PLIMSOLL_BANDWIDTH_BPF_H
#define PLIMSOLL_BANDWIDTH_BPF_H

#include "state.bpf.h"

/*
 * So long after runtime was returned it is given to CPUs that are throttled: more may be
 * returned meanwhile. As that of cfs_bandwidth_slack_period in kernel/sched/fair.c.
 */
#define RETURNED_NS (5 * PLIM_NSEC_PER_MSEC)
/* Most tries to arm a timer that other CPUs arm, too. */
#define ARM_ATTEMPTS 4
/* A timer that has not fired by then was lost. */
#define TIMER_LATE_NS (20 * PLIM_NSEC_PER_MSEC)

/*
 * Arms a group's timer for @when_ns, unless it is due earlier. A timer that is due
 * and has not fired yet is left alone, because a restart would delay it.
 */
__noinline int group_timer_at(u32 slot, u64 when_ns)
{
	struct timer_value *value = bpf_map_lookup_elem(&group_timers, &slot);
	/* The caller's time may be older than the last expiry of the timer. */
	u64 now = bpf_ktime_get_ns(), at_ns;
	u32 attempt;

	if (!value)
		return 0;
	/* CPUs that arm it at once look again, so that the earliest time holds. */
	bpf_for (attempt, 0, ARM_ATTEMPTS) {
		at_ns = READ_ONCE(value->at_ns);
		if (at_ns && at_ns <= when_ns && plim_sub_floor(now, at_ns) < TIMER_LATE_NS)
			break;
		if (__sync_val_compare_and_swap(&value->at_ns, at_ns, when_ns) != at_ns)
			continue;
		/*
		 * With interrupts off it allocates memory, which may fail: the next caller tries
		 * again.
		 */
		if (bpf_timer_start(&value->timer, plim_sub_floor(when_ns, now), 0))
			__sync_val_compare_and_swap(&value->at_ns, when_ns, at_ns);
		at_ns = READ_ONCE(value->at_ns);
		if (at_ns && at_ns < when_ns)
			bpf_timer_start(&value->timer, plim_sub_floor(at_ns, now), 0);
		break;
	}
	return 0;
}

static __always_inline bool is_traced(u32 slot, u64 now)
{
	return slot == READ_ONCE(trace_slot) && now < READ_ONCE(trace_until_ns);
}

/*
 * A line of bandwidth_charge(), which is called too deep for it to lie on the stack.
 * That runs with the run queue locked, so no other call of this CPU comes between.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct plimsoll_trace);
} trace_lines SEC(".maps");

/* Completes a line of the trace, with the group locked, so that lines are in order. */
static __always_inline void trace_note(struct plimsoll_group *group, struct plimsoll_trace *line)
{
	line->pool_ns = group->pool.runtime_ns;
	line->boundary_ns = group->pool.boundary_ns;
	line->sequence = ++group->nr_traced;
}

/* Emits a completed line to the reader. A full buffer shows as a gap in the numbers. */
static __always_inline void trace_emit(struct plimsoll_trace *line)
{
	if (line->sequence)
		bpf_ringbuf_output(&trace, line, sizeof(*line), 0);
}

/*
 * Charges one group (0: asks) on one CPU. Returns for how long it may run
 * there now; 0: throttled.
 */
__noinline u64 bandwidth_charge(u32 slot, s32 cpu, u64 ran_ns, u64 now)
{
	struct plimsoll_group *group = group_at(slot);
	struct plimsoll_group_cpu *gc = group_cpu_at(slot, cpu);
	struct plimsoll_trace *line;
	bool was_throttled, may_run, traced = is_traced(slot, now);
	u64 left_ns = 0, refilled, boundary_ns, order = 0, before_ns = 0;
	u32 zero = 0;

	line = bpf_map_lookup_elem(&trace_lines, &zero);
	if (!group || !gc || !line)
		return PLIM_UNLIMITED;
	/*
	 * Without the lock. Other CPUs write this CPU's part while it is throttled, at the end
	 * of a quota, and when the slot begins anew. A write of the last two may be lost: the
	 * CPU then keeps up to a slice.
	 */
	if (!traced)
		left_ns = plim_bandwidth_charge_local(&group->pool, &gc->bandwidth, ran_ns, now);
	if (left_ns)
		return left_ns;
	line->sequence = 0;
	line->kind = PLIMSOLL_CHARGED;
	line->when_ns = now;
	line->ran_ns = ran_ns;
	line->slot = slot;
	line->cpu = cpu;
	bpf_spin_lock(&group->lock);
	line->local_ns = gc->bandwidth.runtime_ns;
	boundary_ns = plim_bandwidth_next_boundary_ns(&group->pool);
	if (now >= boundary_ns) {
		/* The part of the run, which ends now, before the boundary. */
		before_ns = plim_sub_floor(ran_ns, now - boundary_ns);
		plim_bandwidth_book(&group->pool, &gc->bandwidth, before_ns);
	}
	group->pool.params.slice_ns = READ_ONCE(bandwidth_slice_ns);
	/* Bursts stay switched on here: user space sets a burst of 0 instead. */
	refilled = plim_bandwidth_refill(&group->pool, true, now);
	was_throttled = gc->bandwidth.throttled;
	may_run = plim_bandwidth_charge(&group->pool, &gc->bandwidth, ran_ns - before_ns, now);
	if (gc->bandwidth.throttled && !was_throttled) {
		order = gc->bandwidth.throttled_order;
		group->throttled_ring[order % PLIMSOLL_CPUS_MAX] = cpu;
	}
	if (may_run)
		left_ns = plim_bandwidth_is_unlimited(&group->pool) ? PLIM_UNLIMITED
								    : (u64)gc->bandwidth.runtime_ns;
	boundary_ns = plim_bandwidth_next_boundary_ns(&group->pool);
	line->refilled = refilled;
	line->throttled = gc->bandwidth.throttled;
	if (traced && (ran_ns || refilled || line->throttled != was_throttled))
		trace_note(group, line);
	bpf_spin_unlock(&group->lock);

	trace_emit(line);
	if (!may_run) {
		/* After a refill the timer serves the CPUs that were throttled before. */
		group_timer_at(slot, refilled ? now : boundary_ns);
		if (!was_throttled)
			remember(cpu, PLIMSOLL_THROTTLED, slot, 0, ran_ns);
	}
	return left_ns;
}

/*
 * Whether as many CPUs are throttled already as the group has waiting tasks: one
 * more would wait for no task, but count throttled time, which is shown of groups and
 * not of others' cpu.max. Racy: at worst one CPU more is throttled, until the next
 * boundary.
 */
static __always_inline bool bandwidth_is_waited_for(u32 slot, s32 cpu)
{
	struct plimsoll_group_cpu *gc = group_cpu_at(slot, cpu);
	struct plimsoll_group *group = group_at(slot);

	if (!group || !gc || slot >= PLIMSOLL_GROUPS_MAX || gc->bandwidth.throttled ||
	    gc->bandwidth.runtime_ns > 0 || READ_ONCE(group->pool.runtime_ns))
		return false;
	return group->pool.nr_throttled_cpus &&
	       group->pool.nr_throttled_cpus + READ_ONCE(group->nr_running) >=
		       READ_ONCE(group->nr_runnable);
}

/* Unthrottles all CPUs of a group that has lost its quota. */
__noinline int bandwidth_end(u32 slot, u64 now)
{
	struct plimsoll_group *group = group_at(slot);
	struct plimsoll_group_cpu *gc;
	u32 cpu;

	if (!group)
		return 0;
	bpf_for (cpu, 0, nr_cpu_ids) {
		gc = group_cpu_at(slot, cpu);
		if (!gc)
			break;
		bpf_spin_lock(&group->lock);
		if (gc->bandwidth.throttled)
			plim_bandwidth_unthrottle(&group->pool, &gc->bandwidth, now);
		if (gc->bandwidth.runtime_ns > 0)
			gc->bandwidth.runtime_ns = 0;
		bpf_spin_unlock(&group->lock);
	}
	return 0;
}

/* Returns local runtime to the pool when the group has no task for this CPU. */
__noinline int bandwidth_return(u32 slot, s32 cpu)
{
	struct plimsoll_group *group = group_at(slot);
	struct plimsoll_group_cpu *gc = group_cpu_at(slot, cpu);

	if (!group || !gc || gc->bandwidth.runtime_ns <= (s64)PLIM_LOCAL_KEPT_NS)
		return 0;
	bpf_spin_lock(&group->lock);
	plim_bandwidth_return(&group->pool, &gc->bandwidth, true);
	bpf_spin_unlock(&group->lock);
	if (READ_ONCE(group->pool.nr_throttled_cpus))
		group_timer_at(slot, bpf_ktime_get_ns() + RETURNED_NS);
	return 0;
}

/*
 * Serves the CPU that was throttled first. Returns the CPU if it may run
 * again, -1 if there is none, -2 if the pool is empty.
 */
__noinline s32 bandwidth_serve_first(u32 slot, u64 now)
{
	struct plimsoll_trace line = { .kind = PLIMSOLL_SERVED, .when_ns = now, .slot = slot };
	struct plimsoll_group *group = group_at(slot);
	bool any, traced = is_traced(slot, now);
	struct plimsoll_group_cpu *gc;
	s32 cpu, served;
	u64 order;

	if (!group)
		return -1;
	/*
	 * With the lock: a CPU that is being throttled counts a moment before the ring has
	 * it, and one that is passed over then is not served any more.
	 */
	bpf_spin_lock(&group->lock);
	order = group->served_order;
	any = order < group->pool.nr_throttled_ever;
	cpu = group->throttled_ring[order % PLIMSOLL_CPUS_MAX];
	bpf_spin_unlock(&group->lock);
	gc = any ? group_cpu_at(slot, cpu) : NULL;
	if (!gc)
		return -1;
	line.cpu = cpu;
	bpf_spin_lock(&group->lock);
	line.local_ns = gc->bandwidth.runtime_ns;
	if (group->served_order != order) {
		/* The slot has begun anew. */
		served = -1;
	} else if (!gc->bandwidth.throttled || gc->bandwidth.throttled_order != order) {
		/* It was unthrottled in another way. */
		group->served_order = order + 1;
		served = cpu;
	} else if (plim_bandwidth_serve(&group->pool, &gc->bandwidth, now)) {
		group->served_order = order + 1;
		served = cpu;
		if (traced)
			trace_note(group, &line);
	} else {
		served = -2;
	}
	bpf_spin_unlock(&group->lock);
	trace_emit(&line);
	return served;
}

/* Refills the pool and serves throttled CPUs in their order; called by the timer. */
__noinline int bandwidth_serve_all(u32 slot, u64 now)
{
	struct plimsoll_trace line = { .kind = PLIMSOLL_REFILLED, .when_ns = now, .slot = slot };
	struct plimsoll_group *group = group_at(slot);
	bool more = false, traced = is_traced(slot, now);
	u64 boundary_ns;
	s32 cpu;
	u32 i;

	if (!group)
		return 0;
	bpf_spin_lock(&group->lock);
	line.refilled = plim_bandwidth_refill(&group->pool, true, now);
	boundary_ns = plim_bandwidth_next_boundary_ns(&group->pool);
	if (traced && line.refilled)
		trace_note(group, &line);
	bpf_spin_unlock(&group->lock);
	trace_emit(&line);

	bpf_for (i, 0, PLIMSOLL_CPUS_MAX) {
		cpu = bandwidth_serve_first(slot, now);
		if (cpu == -2)
			more = true;
		if (cpu < 0)
			break;
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	}
	if (more)
		group_timer_at(slot, boundary_ns);
	return 0;
}

#endif /* PLIMSOLL_BANDWIDTH_BPF_H */

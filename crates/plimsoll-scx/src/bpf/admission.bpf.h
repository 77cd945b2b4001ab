/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Admission: whether a group may run on a CPU now, and for how long. Charging: the
 * accounts that a run is charged to. All mechanisms are combined here only.
 */
#ifndef PLIMSOLL_ADMISSION_BPF_H
#define PLIMSOLL_ADMISSION_BPF_H

#include "bandwidth.bpf.h"
#include "caps.bpf.h"
#include "headroom.bpf.h"
#include "order.bpf.h"
#include "servers.bpf.h"

/*
 * Slice of a task that is queued; plimsoll_running() sets the slice that it gets, which is no
 * longer.
 */
#define SLICE_QUEUED_NS PLIM_BATCH_SLICE_DEFAULT_NS
/* Shortest slice: below it, the switch costs more than the slice gains. */
#define SLICE_MIN_NS (100 * PLIM_NSEC_PER_USEC)
/*
 * With less than this left a timer ends the slice. With more the tick ends it,
 * which comes up to 10 ms (at 100 Hz) too late.
 */
#define LEFT_BY_TICK_NS (PLIM_BATCH_SLICE_DEFAULT_NS + 10 * PLIM_NSEC_PER_MSEC)

/* Flags of a group, or of one above it, that need a check at admission. */
#define PLIMSOLL_LIMITED_FLAGS (PLIMSOLL_QUOTA | PLIMSOLL_CAP | PLIMSOLL_CPU_LIMIT)
/* Flags with which a task always goes through its queue. */
#define PLIMSOLL_QUEUED_FLAGS                                                                      \
	(PLIMSOLL_CAP | PLIMSOLL_SOFT_CAP | PLIMSOLL_PER_TASK | PLIMSOLL_CPU_LIMIT)

/* Has a group's timer wake this CPU. */
static __always_inline void remember_refused(struct plimsoll_group *group, s32 cpu)
{
	cpus_add(group->refused_cpus, cpu);
}

/* Charges a run to the CPU limit. Returns how long the group may still run in this window. */
static __always_inline u64 cpu_limit_charge(const struct plimsoll_group *group,
					    struct plimsoll_group_cpu *gc, u64 ran_ns, u64 now)
{
	return plim_batch_limit_charge(&gc->limit, group->params.cpu_limit_ppm, ran_ns, now);
}

/* Wakes the CPUs on which a group was refused. */
__noinline int wake_refused(u32 slot)
{
	struct plimsoll_group *group = group_at(slot);

	if (group)
		cpus_wake(group->refused_cpus, nr_cpu_ids);
	return 0;
}

/* Admits one group of the chain. Returns for how long it may run; 0: not now. */
__noinline u64 admit_one(u32 slot, s32 cpu, u64 now)
{
	struct plimsoll_group *group = group_at(slot);
	struct plimsoll_group_cpu *gc;
	u64 slice_ns = PLIM_UNLIMITED, left_ns;
	u32 flags;

	if (!group)
		return slice_ns;
	flags = group->params.flags;
	if (flags & PLIMSOLL_CPU_LIMIT) {
		gc = group_cpu_at(slot, cpu);
		if (!gc)
			return slice_ns;
		left_ns = cpu_limit_charge(group, gc, 0, now);
		if (!left_ns) {
			remember_refused(group, cpu);
			remember(cpu, PLIMSOLL_LIMITED, slot, 0, 0);
			group_timer_at(slot, plim_batch_limit_until_ns(&gc->limit));
			return 0;
		}
		slice_ns = plim_min(slice_ns, left_ns);
	}
	if (flags & PLIMSOLL_CAP) {
		left_ns = cap_run_ns(slot, now);
		if (!left_ns) {
			remember_refused(group, cpu);
			remember(cpu, PLIMSOLL_CAPPED, slot, 0,
				 plim_sub_floor(group->blocked_until_ns, now));
			group_timer_at(slot, group->blocked_until_ns);
			return 0;
		}
		slice_ns = plim_min(slice_ns, left_ns);
	}
	if (flags & PLIMSOLL_QUOTA) {
		left_ns = bandwidth_is_waited_for(slot, cpu) ? 0
							     : bandwidth_charge(slot, cpu, 0, now);
		if (!left_ns) {
			remember_refused(group, cpu);
			/* The timer, armed before, may have come in between. */
			if (READ_ONCE(group->pool.runtime_ns))
				group_timer_at(slot, now);
			return 0;
		}
		slice_ns = plim_min(slice_ns, left_ns);
	}
	return slice_ns;
}

/* Charges a run to a group and to all above it. */
__noinline int charge_chain(u32 slot, s32 cpu, u64 ran_ns, u64 start_ns, u64 now)
{
	struct plimsoll_group_cpu *gc;
	struct plimsoll_group *group;
	u32 depth, flags;

	bpf_for (depth, 0, PLIMSOLL_DEPTH_MAX) {
		group = group_at(slot);
		if (!group)
			break;
		flags = group->params.flags;
		if (flags & PLIMSOLL_QUOTA)
			bandwidth_charge(slot, cpu, ran_ns, now);
		if (flags & (PLIMSOLL_CAP | PLIMSOLL_SOFT_CAP) && !(flags & PLIMSOLL_PER_TASK))
			cap_charge(slot, ran_ns, start_ns, now);
		gc = flags & PLIMSOLL_CPU_LIMIT ? group_cpu_at(slot, cpu) : NULL;
		if (gc)
			cpu_limit_charge(group, gc, ran_ns, now);
		slot = group->params.parent;
		if (slot >= PLIMSOLL_SLOTS_MAX)
			break;
	}
	return 0;
}

/* Returns the local runtime of a group and of those above it when they leave a CPU. */
__noinline int return_chain(u32 slot, s32 cpu)
{
	struct plimsoll_group *group;
	u32 depth;

	bpf_for (depth, 0, PLIMSOLL_DEPTH_MAX) {
		group = group_at(slot);
		if (!group)
			break;
		if (group->params.flags & PLIMSOLL_QUOTA)
			bandwidth_return(slot, cpu);
		slot = group->params.parent;
		if (slot >= PLIMSOLL_SLOTS_MAX)
			break;
	}
	return 0;
}

/* Admits a group and all above it; PLIM_UNLIMITED: nothing limits it. */
static __always_inline u64 admit_chain(u32 slot, s32 cpu, u64 now)
{
	struct plimsoll_cpu *c = cpu_at(cpu);
	struct plimsoll_group *group;
	u64 slice_ns = PLIM_UNLIMITED, left_ns;
	u32 depth, first = slot;
	bool yields = false;

	bpf_for (depth, 0, PLIMSOLL_DEPTH_MAX) {
		group = group_at(slot);
		if (!group)
			break;
		yields |= group->params.flags & PLIMSOLL_BATCH;
		if (group->params.flags & PLIMSOLL_LIMITED_FLAGS) {
			left_ns = admit_one(slot, cpu, now);
			if (!left_ns)
				return 0;
			slice_ns = plim_min(slice_ns, left_ns);
		}
		slot = group->params.parent;
		if (slot >= PLIMSOLL_SLOTS_MAX)
			break;
	}
	if (yields && c && !token_take(c, cpu)) {
		remember(cpu, PLIMSOLL_HEADROOM, first, 0, 0);
		return 0;
	}
	return plim_max(slice_ns, SLICE_MIN_NS);
}

/*
 * Whether a group may run on this CPU now, and for how long; 0: not now. If one
 * group of the chain refuses, the local runtime of the others is returned.
 */
__noinline u64 admit(u32 slot, s32 cpu, u64 now)
{
	u64 left_ns = admit_chain(slot, cpu, now);

	if (!left_ns)
		return_chain(slot, cpu);
	return left_ns;
}

/* Admits a task, whose runs against its limits count anew then. */
static __always_inline u64 admit_task(struct task_ctx *t, s32 cpu, u64 now)
{
	u64 left_ns = admit(t->chain, cpu, now);

	if (left_ns)
		t->nr_lifted = 0;
	return left_ns;
}

/*
 * Whether a task of a group may bypass its queue and go straight to a CPU: if only
 * quotas limit it, and those have runtime. The check takes no locks; the task
 * is admitted in full when it begins. If the runtime is gone by then, the task runs
 * for the shortest slice, which is a debt.
 */
__noinline int admits_at_once(u32 slot, s32 cpu)
{
	struct plimsoll_group_cpu *gc;
	struct plimsoll_group *group;
	u32 depth, flags;

	bpf_for (depth, 0, PLIMSOLL_DEPTH_MAX) {
		group = group_at(slot);
		if (!group)
			break;
		flags = group->params.flags;
		/* A batch task would precede a normal one that wakes before that CPU dispatches. */
		if (flags & (PLIMSOLL_QUEUED_FLAGS | PLIMSOLL_BATCH))
			return 0;
		gc = flags & PLIMSOLL_QUOTA ? group_cpu_at(slot, cpu) : NULL;
		if (gc && (gc->bandwidth.throttled ||
			   gc->bandwidth.runtime_ns + (s64)group->pool.runtime_ns <= 0))
			return 0;
		slot = group->params.parent;
		if (slot >= PLIMSOLL_SLOTS_MAX)
			break;
	}
	return 1;
}

/* Charges a running task for its run time since the last charge. */
static __noinline void charge_task(struct task_struct *p, struct task_ctx *t, s32 cpu, u64 now)
{
	u64 ran_ns = p->se.sum_exec_runtime - t->charged_ns;
	struct plimsoll_group *group = group_at(t->slot), *chain = group_at(t->chain);
	struct plimsoll_group_cpu *gc = group_cpu_at(t->slot, cpu);
	struct plimsoll_cpu *c = cpu_at(cpu);

	if (!group || !chain || !gc || !c || !ran_ns)
		return;
	t->charged_ns += ran_ns;
	if (c->server)
		server_charge(c, ran_ns, now);
	else if (c->tier == PLIMSOLL_TIER_BATCH || c->tier == PLIMSOLL_TIER_BACKGROUND)
		server_counts(c, ran_ns, now);
	plim_order_charge(&t->order, ran_ns, effective_weight(t, p));
	cgroup_clock_charge(t, llc_of(cpu), ran_ns, c->runs_early);
	t->has_run = 1;
	t->ran_on = cpu + 1;
	gc->run_ns += ran_ns;
	if (is_unlimited(chain))
		return;
	if (group->params.flags & PLIMSOLL_CAPPED_FLAGS)
		task_cap_charge(t, group, ran_ns, plim_sub_floor(now, ran_ns), now);
	charge_chain(t->chain, cpu, ran_ns, plim_sub_floor(now, ran_ns), now);
}

/* For how long a task may run under a cap of its own; 0: not now. */
static __always_inline u64 task_run_ns(struct task_ctx *t, const struct plimsoll_group *group,
				       u64 now)
{
	struct plim_ratecap_params params;
	u64 run_ns;

	if (!(group->params.flags & PLIMSOLL_PER_TASK))
		return PLIM_UNLIMITED;
	task_cap_follow(t, group, now);
	params = group->params.cap;
	if (!plim_ratecap_may_run(&t->cap, &params, now))
		return 0;
	run_ns = plim_ratecap_run_ns(&t->cap, &params, 1, now);
	return plim_max(run_ns, CAP_RUN_MIN_NS);
}

#endif /* PLIMSOLL_ADMISSION_BPF_H */

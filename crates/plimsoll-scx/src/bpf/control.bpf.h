/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Control: the programs with which user space changes a group or the machine, reads a
 * task's usage rate and has a group traced.
 */
#ifndef PLIMSOLL_CONTROL_BPF_H
#define PLIMSOLL_CONTROL_BPF_H

#include "admission.bpf.h"
#include "bandwidth.bpf.h"
#include "caps.bpf.h"
#include "headroom.bpf.h"

static __always_inline void
group_begin(struct plimsoll_group *group, const struct plimsoll_params *params, u64 now)
{
	plim_bandwidth_init(&group->pool, &params->bandwidth, now);
	plim_ratecap_init(&group->cap, now);
	group->generation++;
	group->background = 0;
	group->in_background = 0;
	group->nr_background_switches = 0;
	group->blocked_until_ns = 0;
	group->rate_ran_ns = 0;
	group->served_order = 0;
}

/* Whether tasks of a group have to be looked at before they run. */
static __always_inline bool is_limited(u32 flags)
{
	return flags & (PLIMSOLL_LIMITED_FLAGS | PLIMSOLL_QUEUED_FLAGS);
}

static __always_inline void group_forget_cpus(u32 slot)
{
	struct plimsoll_group_cpu *gc;
	u32 cpu;

	bpf_for (cpu, 0, nr_cpu_ids) {
		gc = group_cpu_at(slot, cpu);
		if (gc)
			__builtin_memset(gc, 0, sizeof(*gc));
	}
}

static __always_inline bool
same_cap(const struct plimsoll_params *a, const struct plimsoll_params *b)
{
	return a->cap.hard_permille == b->cap.hard_permille && a->cap.depth_ns == b->cap.depth_ns &&
	       (a->flags & PLIMSOLL_PER_TASK) == (b->flags & PLIMSOLL_PER_TASK);
}

/* Sets the parameters of a slot; if it is @fresh, its counters start at 0. */
static __always_inline void slot_set(u32 slot, struct plimsoll_group *group,
				     const struct plimsoll_params *params, bool fresh, u64 now)
{
	if (fresh)
		group_forget_cpus(slot);
	bpf_spin_lock(&group->lock);
	if (fresh) {
		group_begin(group, params, now);
	} else {
		plim_bandwidth_set(&group->pool, &params->bandwidth, true, now);
		plim_ratecap_set(&group->cap, &group->params.cap, &params->cap, now);
		/* A new generation resets each task's own bucket. */
		if (!same_cap(&group->params, params))
			group->generation++;
	}
	group->params = *params;
	if (params->flags & PLIMSOLL_SOFT_CAP && !(params->flags & PLIMSOLL_PER_TASK))
		group->background = plim_ratecap_is_background(&group->cap, &params->cap);
	else
		group->background = 0;
	bpf_spin_unlock(&group->lock);
}

/*
 * A free slot for a group; 0: there is none. One in which tasks of an ended group still run or
 * wait is the last choice: until they are queued again they would be under the new one's limits.
 */
static __noinline u32 group_free_slot(void)
{
	struct plimsoll_group *group;
	u32 slot, left = 0;

	bpf_for (slot, PLIMSOLL_SLOT_DEFAULT + 1, PLIMSOLL_GROUPS_MAX) {
		group = group_at(slot);
		if (!group || group->params.flags & PLIMSOLL_USED)
			continue;
		if (!READ_ONCE(group->nr_runnable))
			return slot;
		left = left ?: slot;
	}
	return left;
}

/* Whether the cgroup with an id is deeper than those that are told apart. */
static __always_inline bool id_is_too_deep(u64 id)
{
	struct cgroup *cgrp = bpf_cgroup_from_id(id);
	bool is_deep = cgrp && is_too_deep(cgrp);

	if (cgrp)
		bpf_cgroup_release(cgrp);
	return is_deep;
}

/*
 * Creates, changes or ends the group of a cgroup. User space calls it with its lock held: a
 * slot has one writer of whose it is.
 */
SEC("syscall")
int plimsoll_apply(struct plimsoll_params *wanted)
{
	struct plimsoll_params params = *wanted;
	u64 now = bpf_ktime_get_ns(), id = params.cgroup_id;
	u32 *known = bpf_map_lookup_elem(&group_of_cgroup, &id);
	u32 slot = known ? *known : PLIMSOLL_SLOT_DEFAULT, was;
	bool fresh = !known, ends = !(params.flags & PLIMSOLL_USED);
	struct plimsoll_group *group;

	if (ends && bpf_map_delete_elem(&group_of_cgroup, &id))
		return 0;
	if (fresh) {
		if (id_is_too_deep(id))
			return -E2BIG;
		slot = group_free_slot();
		if (!slot || bpf_map_update_elem(&group_of_cgroup, &id, &slot, BPF_ANY))
			return -ENOSPC;
	}
	group = group_at(slot);
	if (!group)
		return -EINVAL;
	params.parent = fresh ? PLIMSOLL_SLOT_NONE : group->params.parent;
	was = group->params.flags;
	/* Before the limit holds, so that no CPU overlooks it. */
	if (is_limited(params.flags) != is_limited(was))
		__sync_fetch_and_add(&nr_limited, is_limited(params.flags) ? 1 : -1);
	slot_set(slot, group, &params, fresh, now);
	if (was & PLIMSOLL_QUOTA && !(params.flags & PLIMSOLL_QUOTA))
		bandwidth_end(slot, now);
	record_follows_group(id, ends ? 0 : slot, params.weight, !!(params.flags & PLIMSOLL_BATCH));
	if (fresh || ends)
		chains_follow();
	else
		chain_follow(slot);
	__sync_fetch_and_add(&groups_changed, 1);
	/* Wakes waiting CPUs and tasks: a limit may have changed. */
	group_timer_at(slot, now + 1);
	return 0;
}

SEC("syscall")
int plimsoll_set_machine(struct plimsoll_machine_change *change)
{
	u64 now = bpf_ktime_get_ns(), idle_ns, batch_ns;
	struct plim_headroom_params params = change->headroom;
	u32 key = HEADROOM_TIMER, zero = 0, cpus_wanted = change->headroom_cpus;
	struct timer_value *value = bpf_map_lookup_elem(&machine_timers, &key);
	struct plimsoll_machine *m = bpf_map_lookup_elem(&machine, &zero);
	bool was_on = headroom_on, on = params.headroom_ppm || cpus_wanted;

	if (!value || !m)
		return -EINVAL;
	WRITE_ONCE(bandwidth_slice_ns, change->bandwidth_slice_ns);
	plim_server_set(&machine_server, &params);
	headroom_cpus = cpus_wanted;
	if (cpus_wanted)
		params.headroom_ppm = PLIM_PPM;
	headroom_sum(now, &idle_ns, &batch_ns);
	bpf_spin_lock(&m->lock);
	if (on && !was_on) {
		plim_headroom_init(&m->headroom, &params, now);
		m->idle_ns = idle_ns;
		m->batch_ns = batch_ns;
		m->carry_ns = 0;
	} else if (on) {
		plim_headroom_set(&m->headroom, &params);
	} else {
		/* For those who read the tolerance. */
		m->headroom.params = params;
	}
	m->headroom_cpus = cpus_wanted;
	m->shortage_since_ns = 0;
	m->missing_cpus = 0;
	m->missing_ns = 0;
	m->over_cpus = 0;
	m->over_ns = 0;
	m->tolerated_ns = READ_ONCE(tolerated_apart_ns);
	if (!was_on)
		m->overrun_ns = 0;
	m->over_since_ns = now;
	bpf_spin_unlock(&m->lock);
	WRITE_ONCE(headroom_on, on);
	if (on)
		bpf_timer_start(&value->timer, 1, 0);
	if (on && !was_on)
		tokens_begin();
	return 0;
}

/*
 * Returns the usage rate of a scheduled task, up to now. The task's CPU may update
 * the rate meanwhile: then the run since the last update, at most a slice, counts
 * twice or not at all.
 */
SEC("syscall")
int plimsoll_task_rate(struct plimsoll_task_rate *rate)
{
	struct task_struct *p = bpf_task_from_pid(rate->tid);
	u64 now = bpf_ktime_get_ns(), ran_ns;
	struct plim_ratecap_params params;
	struct plimsoll_group *group;
	struct plim_ratecap cap;
	struct task_ctx *t;

	if (!p)
		return -ESRCH;
	t = task_of(p);
	group = t ? group_at(t->slot) : NULL;
	if (!group) {
		bpf_task_release(p);
		return -ESRCH;
	}
	params = group->params.cap;
	cap = t->cap;
	ran_ns = t->rate_ran_ns;
	if (t->started_ns)
		ran_ns += plim_elapsed_ns(p->se.sum_exec_runtime, t->charged_ns);
	rate->rate_ppm = plim_ratecap_rate_update(&cap, &params, ran_ns, now);
	rate->background =
		group->params.flags & PLIMSOLL_PER_TASK ? t->background : group->background;
	bpf_task_release(p);
	return 0;
}

SEC("syscall")
int plimsoll_set_trace(struct plimsoll_trace_request *request)
{
	WRITE_ONCE(trace_slot, request->slot);
	WRITE_ONCE(trace_until_ns, request->until_ns);
	return 0;
}

#endif /* PLIMSOLL_CONTROL_BPF_H */

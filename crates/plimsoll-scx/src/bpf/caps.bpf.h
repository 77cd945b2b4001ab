/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Rate caps, hard and soft, of a whole group and of each of its tasks.
 *
 * A group over its hard cap is not picked until its timer has fired; a task
 * over a cap of its own is parked. A group or task over its soft cap is served
 * in the background tier.
 */
#ifndef PLIMSOLL_CAPS_BPF_H
#define PLIMSOLL_CAPS_BPF_H

#include "bandwidth.bpf.h"
#include "queues.bpf.h"

/*
 * Shortest interval between updates of a usage rate: in shorter ones the core's
 * average, in ppm, would lose the run time.
 */
#define RATE_GRAIN_NS (5 * PLIM_NSEC_PER_MSEC)
/* Interval of checks of waiting tasks in the background. */
#define BACKGROUND_GRAIN_NS (50 * PLIM_NSEC_PER_MSEC)
/*
 * Shortest run of a capped task once it is eligible, to save switches: the bucket
 * pays an overrun back.
 */
#define CAP_RUN_MIN_NS PLIM_NSEC_PER_MSEC
/* A cap of either kind: its tasks have usage rates. */
#define PLIMSOLL_CAPPED_FLAGS (PLIMSOLL_CAP | PLIMSOLL_SOFT_CAP | PLIMSOLL_PER_TASK)
/* With more tasks than this in one bucket runs get shorter, so that each task gets one. */
#define CAP_CROWD 16
#define CAP_CROWD_RUN_MIN_NS (50 * PLIM_NSEC_PER_USEC)

/* Charges a run to the bucket of a group, and updates its usage rate. */
__noinline int cap_charge(u32 slot, u64 ran_ns, u64 start_ns, u64 now)
{
	struct plimsoll_group *group = group_at(slot);
	bool background;

	if (!group)
		return 0;
	bpf_spin_lock(&group->lock);
	if (group->params.flags & PLIMSOLL_CAP)
		plim_ratecap_charge(&group->cap, &group->params.cap, start_ns, ran_ns);
	group->rate_ran_ns += ran_ns;
	if (plim_elapsed_ns(now, group->cap.rate_updated_ns) >= RATE_GRAIN_NS) {
		plim_ratecap_rate_update(&group->cap, &group->params.cap, group->rate_ran_ns, now);
		group->rate_ran_ns = 0;
		background = plim_ratecap_is_background(&group->cap, &group->params.cap);
		group->nr_background_switches += background != !!group->background;
		group->background = background;
	}
	background = group->background;
	bpf_spin_unlock(&group->lock);
	/* Its rate falls while it waits without being charged: the timer updates it. */
	if (background)
		group_timer_at(slot, now + BACKGROUND_GRAIN_NS);
	return 0;
}

/*
 * For how long a group may run under its cap on one more CPU; 0: not before
 * group->blocked_until_ns.
 */
__noinline u64 cap_run_ns(u32 slot, u64 now)
{
	struct plimsoll_group *group = group_at(slot);
	u64 run_ns, until_ns;

	if (!group)
		return PLIM_UNLIMITED;
	bpf_spin_lock(&group->lock);
	run_ns = plim_ratecap_run_ns(&group->cap, &group->params.cap, group->nr_running + 1, now);
	until_ns = plim_ratecap_eligible_ns(&group->cap, &group->params.cap);
	group->blocked_until_ns = until_ns;
	bpf_spin_unlock(&group->lock);
	if (until_ns > now)
		return 0;
	return plim_max(run_ns, READ_ONCE(group->nr_runnable) > CAP_CROWD ? CAP_CROWD_RUN_MIN_NS
									  : CAP_RUN_MIN_NS);
}

/* A task that is new to its group starts with an empty bucket of its own. */
static __always_inline void
task_cap_reset(struct task_ctx *t, const struct plimsoll_group *group, u64 now)
{
	plim_ratecap_init(&t->cap, now);
	t->rate_ran_ns = 0;
	t->generation = group->generation;
	t->background = 0;
}

/* Resets the bucket of a task after a change of the cap, so that it applies at once. */
static __always_inline void
task_cap_follow(struct task_ctx *t, const struct plimsoll_group *group, u64 now)
{
	if (t->generation != READ_ONCE(group->generation))
		task_cap_reset(t, group, now);
}

/* Updates the usage rate of a task. */
static __always_inline void
task_rate_charge(struct task_ctx *t, const struct plim_ratecap_params *params, u64 ran_ns, u64 now)
{
	t->rate_ran_ns += ran_ns;
	if (plim_elapsed_ns(now, t->cap.rate_updated_ns) < RATE_GRAIN_NS)
		return;
	plim_ratecap_rate_update(&t->cap, params, t->rate_ran_ns, now);
	t->rate_ran_ns = 0;
}

/* Charges a run to a task of a capped group: to its own bucket if it has one. */
static __always_inline void task_cap_charge(struct task_ctx *t, const struct plimsoll_group *group,
					    u64 ran_ns, u64 start_ns, u64 now)
{
	struct plim_ratecap_params params = group->params.cap;

	task_cap_follow(t, group, now);
	task_rate_charge(t, &params, ran_ns, now);
	if (!(group->params.flags & PLIMSOLL_PER_TASK))
		return;
	plim_ratecap_charge(&t->cap, &params, start_ns, ran_ns);
	t->background = plim_ratecap_is_background(&t->cap, &params);
}

/* Accounts that a task has left the queue of parked tasks. */
static __always_inline void task_leaves_parked(struct task_ctx *t)
{
	struct plimsoll_group *group = group_at(t->slot);

	if (!t->parked)
		return;
	t->parked = 0;
	if (group)
		__sync_fetch_and_sub(&group->nr_parked, 1);
}

/* Moves eligible parked tasks back to their queue. */
static __noinline u64 unpark(u32 slot, u64 now)
{
	u64 next_ns = 0, eligible_ns;
	struct plimsoll_group *group = group_at(slot);
	struct plim_ratecap_params params;
	struct task_struct *p;
	struct task_ctx *t;
	u32 index, llc;
	int seen = count_from;

	if (!group)
		return 0;
	params = group->params.cap;
	bpf_for_each (scx_dsq, p, parked_id(slot), 0) {
		t = task_of(p);
		if (!t)
			continue;
		task_cap_follow(t, group, now);
		eligible_ns = plim_ratecap_eligible_ns(&t->cap, &params);
		if (eligible_ns > now || ++seen > QUEUE_SCAN_MAX) {
			/* The queue is ordered: all further tasks are eligible later. */
			next_ns = plim_max(eligible_ns, now + 1);
			break;
		}
		index = queue_index(slot, t->background);
		llc = llc_of(scx_bpf_task_cpu(p));
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, t->vruntime);
		if (scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, queue_id(index, llc), 0)) {
			task_leaves_parked(t);
			queue_set_active(llc, index);
			kick_idle_for(p, scx_bpf_task_cpu(p));
		}
	}
	return next_ns;
}

/* Moves waiting tasks whose usage rate has fallen out of the background. */
static __noinline bool leave_background(u32 slot, u32 llc, u64 now)
{
	u32 from = queue_index(slot, true), to = queue_index(slot, false);
	struct plimsoll_group *group = group_at(slot);
	struct plim_ratecap_params params;
	struct task_struct *p;
	struct task_ctx *t;
	int seen = count_from;

	if (!group)
		return false;
	params = group->params.cap;
	bpf_for_each (scx_dsq, p, queue_id(from, llc), 0) {
		if (++seen > QUEUE_SCAN_MAX)
			break;
		t = task_of(p);
		if (!t)
			continue;
		task_rate_charge(t, &params, 0, now);
		if (plim_ratecap_is_background(&t->cap, &params))
			continue;
		t->background = 0;
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, t->vruntime);
		if (scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, queue_id(to, llc), 0))
			queue_set_active(llc, to);
	}
	return seen > count_from;
}

#endif /* PLIMSOLL_CAPS_BPF_H */

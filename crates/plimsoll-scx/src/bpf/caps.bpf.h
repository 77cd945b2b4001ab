/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Rate caps, hard and soft, of a whole group and of each of its tasks.
 *
 * The tasks of a group over its hard cap, and a task over a cap of its own, are
 * parked (limits.bpf.h). A group or task over its soft cap is served in the
 * background tier.
 */
#ifndef PLIMSOLL_CAPS_BPF_H
#define PLIMSOLL_CAPS_BPF_H

#include "bandwidth.bpf.h"

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
/* With more tasks than this in one bucket runs get as short as a slice, so that each gets one. */
#define CAP_CROWD 16
#define CAP_CROWD_RUN_MIN_NS (100 * PLIM_NSEC_PER_USEC)

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

#endif /* PLIMSOLL_CAPS_BPF_H */

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Dispatch: which queue a CPU serves next, and for how long.
 */
#ifndef PLIMSOLL_DISPATCH_BPF_H
#define PLIMSOLL_DISPATCH_BPF_H

#include "admission.bpf.h"
#include "balance.bpf.h"
#include "pick.bpf.h"

/* Most groups that are tried in one dispatch. */
#define ATTEMPTS_MAX 64

/* The slice of a task that may run for @left_ns, and no longer. */
static __always_inline u64 slice_of_left(u64 left_ns)
{
	return plim_max(plim_min(left_ns, PLIM_BATCH_SLICE_DEFAULT_NS), CAP_CROWD_RUN_MIN_NS);
}

static __always_inline void slice_timer_start(struct timer_value *value, u64 end_ns, u64 now)
{
	value->at_ns = end_ns;
	bpf_timer_start(&value->timer, plim_sub_floor(end_ns, now), BPF_F_TIMER_CPU_PIN);
}

/*
 * Arms the timer that ends the slice of the task that begins now. Starting a timer
 * is the most expensive operation here, so it is skipped if the timer is due before
 * the end of the slice: of tasks that follow one another in a few microseconds
 * each, only the first starts it. This function and the timer always run on the
 * same CPU, and never both at once.
 */
static __always_inline void arm_slice(struct plimsoll_cpu *c, s32 cpu, u64 left_ns, u64 now)
{
	u64 slice_ns = slice_of_left(left_ns);
	struct timer_value *value;
	u32 key = cpu;

	if (left_ns >= LEFT_BY_TICK_NS) {
		c->slice_end_ns = 0;
		return;
	}
	c->slice_end_ns = now + slice_ns;
	value = bpf_map_lookup_elem(&slice_timers, &key);
	/* A timer that is due before then rearms itself: see slice_timer(). */
	if (value && (value->at_ns <= now || value->at_ns > c->slice_end_ns))
		slice_timer_start(value, c->slice_end_ns, now);
}

/* Timer callback: ends a slice that is shorter than a tick. */
static int slice_timer(void *map, int *key, struct bpf_timer *timer)
{
	u64 now = bpf_ktime_get_ns(), end_ns;
	s32 cpu = *key;
	struct plimsoll_cpu *c = cpu_at(cpu);
	u32 index = cpu;
	struct timer_value *value = bpf_map_lookup_elem(&slice_timers, &index);

	if (!c || !value)
		return 0;
	value->at_ns = 0;
	end_ns = READ_ONCE(c->slice_end_ns);
	if (!end_ns)
		return 0;
	/* Another task has started since, with a slice of its own. */
	if (end_ns > now + 20 * PLIM_NSEC_PER_USEC) {
		slice_timer_start(value, end_ns, now);
		return 0;
	}
	scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	return 0;
}

/* Serves tasks that have waited too long, regardless of limits. */
static __always_inline bool dispatch_overdue(struct plimsoll_cpu *c, s32 cpu)
{
	u32 llc = llc_of(cpu);

	if (!READ_ONCE(overdue_waits[llc]))
		return false;
	if (scx_bpf_dsq_move_to_local(overdue_id(llc), 0)) {
		c->left_ns = SLICE_MIN_NS;
		c->left_slot = PLIMSOLL_SLOT_NONE;
		return true;
	}
	if (!scx_bpf_dsq_nr_queued(overdue_id(llc))) {
		WRITE_ONCE(overdue_waits[llc], false);
		if (scx_bpf_dsq_nr_queued(overdue_id(llc)))
			WRITE_ONCE(overdue_waits[llc], true);
	}
	return false;
}

/*
 * Whether this CPU, whose own LLC has nothing for it, pulls the first task of a
 * queue of another LLC: the core's second input of load balancing. If it is too
 * early, a timer makes the CPU check again in time.
 */
static __always_inline bool should_pull(struct plimsoll_cpu *c, s32 cpu, u64 dsq_id, u64 now)
{
	struct plim_batch_cpu from = { .nr_queued = 1 }, to = {};
	struct first_task first = {};

	first_of(dsq_id, &first);
	if (!first.found)
		return false;
	from.waited_ns = plim_elapsed_ns(now, first.waiting_since_ns);
	if (plim_batch_should_pull(&from, &to, PLIM_BATCH_SLICE_DEFAULT_NS))
		return true;
	arm_slice(c, cpu, PLIM_BATCH_WAIT_MAX_NS - from.waited_ns, now);
	return false;
}

enum dispatch_verdict {
	DISPATCH_NONE, /* nothing here that may run */
	DISPATCH_MOVED, /* a task was moved to this CPU */
	DISPATCH_PREVIOUS, /* the present task comes first */
};

/* Serves the queues of one LLC, this CPU's own or not, on this CPU. */
__noinline int dispatch_from(u32 llc, s32 cpu, u64 now)
{
	struct plimsoll_cpu *c = cpu_at(cpu);
	struct pick_state *state;
	u32 attempt, zero = 0, index;
	u64 left_ns, picked;

	state = bpf_map_lookup_elem(&pick_states, &zero);
	if (!state || !c)
		return DISPATCH_NONE;
	if (!any_queue_active(llc))
		return state->previous.valid ? DISPATCH_PREVIOUS : DISPATCH_NONE;
	__builtin_memset(state->refused, 0, sizeof(state->refused));
	bpf_for (attempt, 0, ATTEMPTS_MAX) {
		picked = pick_queue(llc);
		if (picked == PICK_NONE)
			return state->previous.valid ? DISPATCH_PREVIOUS : DISPATCH_NONE;
		if (previous_comes_first(state, llc))
			return DISPATCH_PREVIOUS;
		index = picked;
		if (llc != c->llc && !should_pull(c, cpu, queue_id(index, llc), now)) {
			refuse(state, index);
			continue;
		}
		left_ns = admit(index / 2, cpu, now);
		if (!left_ns) {
			refuse(state, index);
			continue;
		}
		if (scx_bpf_dsq_move_to_local(queue_id(index, llc), 0)) {
			c->left_ns = left_ns;
			c->left_slot = index / 2;
			return DISPATCH_MOVED;
		}
		/* Empty, or all of its tasks are bound to other CPUs. */
		return_chain(index / 2, cpu);
		token_release(c, cpu);
		queue_clear_active(llc, index);
		refuse(state, index);
	}
	/* More groups are refused than were tried: try again soon. */
	arm_slice(c, cpu, PLIM_NSEC_PER_MSEC, now);
	return DISPATCH_NONE;
}

/* Extends the slice of the present task. Returns whether it may continue. */
static __always_inline bool extend_previous(struct task_struct *prev, struct task_ctx *t,
					    struct plimsoll_cpu *c, s32 cpu, u64 now)
{
	struct plimsoll_group *group = group_at(t->slot);
	u64 left_ns, own_ns;

	if (!group)
		return false;
	own_ns = task_run_ns(t, group, now);
	if (!own_ns)
		return false;
	left_ns = admit(t->slot, cpu, now);
	if (!left_ns)
		return false;
	left_ns = plim_min(left_ns, own_ns);
	c->behind = 0;
	scx_bpf_task_set_slice(prev, slice_of_left(left_ns));
	arm_slice(c, cpu, left_ns, now);
	return true;
}

/*
 * Makes the present task a candidate beside the queues, unless its group may have
 * changed: then it looks up its group again when it is queued.
 */
static __always_inline void previous_init(struct previous *previous, const struct task_ctx *t)
{
	struct plimsoll_group *group = t ? group_at(t->slot) : NULL;

	previous->valid = group && t->groups_seen == READ_ONCE(groups_changed);
	if (!previous->valid)
		return;
	previous->index = queue_index(t->slot, t->background);
	previous->tier = tier_of(group, t->background);
	previous->group_vruntime = group->vruntime;
	previous->vruntime = t->vruntime;
}

/* Serves the queues of another LLC. Returns whether a task was moved to this CPU. */
static __always_inline bool pull_from(u32 other, s32 cpu, u64 now)
{
	if (dispatch_from(other, cpu, now) != DISPATCH_MOVED)
		return false;
	remember(cpu, PLIMSOLL_PULLED, other, 0, 0);
	return true;
}

static __always_inline bool dispatch_pull(u32 llc, s32 cpu, u64 now)
{
	u32 i, other;

	bpf_for (i, 1, PLIMSOLL_LLCS_MAX) {
		if (i >= nr_llcs)
			break;
		other = (llc + i) % nr_llcs;
		if (pull_from(other, cpu, now))
			return true;
	}
	return false;
}

/* Pulls a task from an LLC whose tasks wait longer than those of this one. */
__noinline int dispatch_balance(u32 llc, s32 cpu, u64 now)
{
	u32 other = llc_to_pull_from(llc, now);
	struct pick_state *state;
	bool previous_valid, moved;
	u32 zero = 0;

	state = bpf_map_lookup_elem(&pick_states, &zero);
	if (!state || other == llc)
		return 0;
	previous_valid = state->previous.valid;
	state->previous.valid = false;
	moved = pull_from(other, cpu, now);
	state->previous.valid = previous_valid;
	return moved;
}

/* Gives batch work a server slice of its tolerance behind normal work that never pauses. */
static __always_inline bool
dispatch_server_slice(struct pick_state *state, struct plimsoll_cpu *c, u32 llc, s32 cpu, u64 now)
{
	bool moved, previous_valid = state->previous.valid;

	if (!server_period_ns || now < c->server_next_ns)
		return false;
	c->server_next_ns = now + server_period_ns;
	__builtin_memset(state->refused, 0, sizeof(state->refused));
	if (pick_queue(llc) == PICK_NONE)
		return false;
	if (state->best.tier != PLIMSOLL_TIER_NORMAL &&
	    !(previous_valid && state->previous.tier == PLIMSOLL_TIER_NORMAL))
		return false;
	state->previous.valid = false;
	state->tier_min = PLIMSOLL_TIER_BATCH;
	moved = dispatch_from(llc, cpu, now) == DISPATCH_MOVED;
	state->tier_min = PLIMSOLL_TIER_NORMAL;
	state->previous.valid = previous_valid;
	if (moved) {
		c->left_ns = plim_min(c->left_ns, server_slice_ns);
		c->server_granted = 1;
	}
	return moved;
}

/* Limits of the delay: after a pause of the whole machine the server must not stop for long. */
#define SERVER_DELAY_MAX_NS PLIM_NSEC_PER_SEC
#define SERVER_RAN_MAX_NS (100 * PLIM_NSEC_PER_MSEC)

/* Delays the next server slice after one that was too long. */
static __always_inline void server_slice_charge(struct plimsoll_cpu *c, u64 ran_ns)
{
	u64 late_ns = plim_sub_floor(plim_min(ran_ns, SERVER_RAN_MAX_NS), server_slice_ns);

	if (server_slice_ns)
		c->server_next_ns +=
			plim_min(late_ns * server_period_ns / server_slice_ns, SERVER_DELAY_MAX_NS);
}

/* Fast path: the kernel calls dispatch each time that a CPU goes idle. */
static __always_inline bool nothing_waits(u32 llc)
{
	return nr_llcs == 1 && !READ_ONCE(overdue_waits[llc]) && !any_queue_active(llc);
}

static __noinline void dispatch_cpu(s32 cpu, struct task_struct *prev, u64 now)
{
	struct plimsoll_cpu *c = cpu_at(cpu);
	struct pick_state *state;
	struct task_ctx *t = NULL;
	u32 llc = llc_of(cpu), zero = 0;
	bool previous_runs;
	int verdict;

	state = bpf_map_lookup_elem(&pick_states, &zero);
	if (!c || !state)
		return;
	c->nr_dispatches++;
	c->left_ns = 0;
	c->server_granted = 0;
	previous_runs = prev && prev->scx.flags & SCX_TASK_QUEUED;
	if (!previous_runs && !c->token && nothing_waits(llc))
		return;
	if (previous_runs) {
		t = task_of(prev);
		if (t)
			charge_task(prev, t, cpu, now);
	}
	if (tokens_exceeded())
		token_release(c, cpu);
	if (dispatch_overdue(c, cpu))
		return;
	previous_init(&state->previous, t);
	if (dispatch_server_slice(state, c, llc, cpu, now))
		return;
	if (balance_is_due(c, now) && dispatch_balance(llc, cpu, now))
		return;
	verdict = dispatch_from(llc, cpu, now);
	if (verdict == DISPATCH_PREVIOUS) {
		if (t && extend_previous(prev, t, c, cpu, now))
			return;
		state->previous.valid = false;
		verdict = dispatch_from(llc, cpu, now);
	}
	if (verdict == DISPATCH_MOVED)
		return;
	state->previous.valid = false;
	if (dispatch_pull(llc, cpu, now))
		return;
	token_release(c, cpu);
}

#endif /* PLIMSOLL_DISPATCH_BPF_H */

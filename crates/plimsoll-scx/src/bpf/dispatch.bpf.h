/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Dispatch: which queue a CPU serves next, and for how long.
 */
#ifndef PLIMSOLL_DISPATCH_BPF_H
#define PLIMSOLL_DISPATCH_BPF_H

#include "balance.bpf.h"
#include "limits.bpf.h"
#include "servers.bpf.h"

/* The slice of a task that may run for @left_ns, and no longer. */
static __always_inline u64 slice_of_left(u64 left_ns)
{
	return plim_max(plim_min(left_ns, PLIM_BATCH_SLICE_DEFAULT_NS), CAP_CROWD_RUN_MIN_NS);
}

static __always_inline void slice_timer_start(struct timer_value *value, u64 end_ns, u64 now)
{
	value->at_ns = end_ns;
	/* Without it the tick ends the slice. */
	if (bpf_timer_start(&value->timer, plim_sub_floor(end_ns, now), BPF_F_TIMER_CPU_PIN))
		value->at_ns = 0;
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

/* Serves tasks of an LLC that have waited too long, regardless of limits. */
static __always_inline bool take_overdue(struct plimsoll_cpu *c, u32 llc, u64 now)
{
	u64 since_ns = READ_ONCE(overdue_since_ns[llc % PLIMSOLL_LLCS_MAX]);

	if (!since_ns)
		return false;
	if (scx_bpf_dsq_move_to_local(overdue_id(llc), SCX_ENQ_IMMED)) {
		WRITE_ONCE(c->comes_to_overdue, 1);
		c->left_ns = SLICE_MIN_NS;
		return true;
	}
	if (plim_elapsed_ns(now, since_ns) > INSERTION_NS &&
	    !scx_bpf_dsq_nr_queued(overdue_id(llc)))
		__sync_val_compare_and_swap(&overdue_since_ns[llc % PLIMSOLL_LLCS_MAX], since_ns,
					    0);
	return false;
}

static __always_inline bool dispatch_overdue(struct plimsoll_cpu *c, s32 cpu, u64 now)
{
	u32 llc = llc_of(cpu), other;

	if (READ_ONCE(c->comes_to_overdue))
		__sync_lock_test_and_set(&c->comes_to_overdue, 0);
	if (take_overdue(c, llc, now))
		return true;
	other = READ_ONCE(llc_overdue);
	if (!other || other - 1 == llc)
		return false;
	if (take_overdue(c, other - 1, now))
		return true;
	if (!READ_ONCE(overdue_since_ns[(other - 1) % PLIMSOLL_LLCS_MAX]))
		WRITE_ONCE(llc_overdue, 0);
	return false;
}

/* The first task of a queue. */
struct first_task {
	u64 deadline;
	bool found;
};

__noinline int first_of(u64 dsq_id, struct first_task *first)
{
	struct task_struct *p;

	if (!first)
		return 0;
	p = __COMPAT_scx_bpf_dsq_peek(dsq_id);
	first->found = p;
	first->deadline = p ? p->scx.dsq_vtime : 0;
	return 0;
}

/* Moves the first task of a queue that may run on this CPU now to it. */
static __always_inline bool take(u64 dsq_id, u32 tier, s32 cpu, u64 now)
{
	/* A task whose group has become batch since it was queued still runs once as queued. */
	if (READ_ONCE(nr_limited) <= 0 && (tier == PLIMSOLL_TIER_NORMAL || !headroom_on))
		return scx_bpf_dsq_move_to_local(dsq_id, SCX_ENQ_IMMED);
	return take_limited(dsq_id, tier, cpu, now) == TAKE_MOVED;
}

/* Whether a task waits in the queue of a shard. On a machine with one CPU all are bound to it. */
static __always_inline bool shard_waits(u32 llc, u32 tier)
{
	return nr_cpu_ids > 1 && scx_bpf_dsq_nr_queued(shard_queue(llc, tier)) > 0;
}

/* Whether work of a tier waits for this CPU. */
static __always_inline bool tier_waits(u32 llc, s32 cpu, u32 tier)
{
	return shard_waits(llc, tier) || scx_bpf_dsq_nr_queued(cpu_queue(cpu, tier)) > 0;
}

/* Whether a CPU has work of a tier, which runs or waits. */
static __always_inline bool tier_has_work(u32 tier, u32 tier_of_prev, s32 cpu)
{
	return tier_of_prev == tier || tier_waits(llc_of(cpu), cpu, tier);
}

/*
 * The queue of a tier to serve first: that of this CPU or of its shard, whichever has
 * the earlier deadline, as the shard compares it. 0: neither, because both are empty, or
 * because the task of prev_deadline @keeps this CPU.
 */
__noinline u64 queue_to_serve(u32 tier, s32 cpu, bool keeps)
{
	u64 own = cpu_queue(cpu, tier), shared = shard_queue(llc_of(cpu), tier);
	struct first_task of_own = {}, of_shared = {}, first;
	struct plimsoll_cpu *c = cpu_at(cpu);
	bool own_first;

	if (!c)
		return 0;
	first_of(own, &of_own);
	first_of(shared, &of_shared);
	of_own.deadline += c->shifts[tier & PLIMSOLL_TIER_MASK];
	own_first = of_own.found &&
		    !(of_shared.found && plim_order_before(of_shared.deadline, of_own.deadline));
	first = own_first ? of_own : of_shared;
	if (!first.found || (keeps && !plim_order_before(first.deadline, c->prev_deadline)))
		return 0;
	return own_first ? own : shared;
}

/* Serves a tier, unless the present task comes first. */
static __always_inline bool serve(u32 tier, s32 cpu, bool keeps, u64 now)
{
	u64 own = cpu_queue(cpu, tier), shared = shard_queue(llc_of(cpu), tier), first, second;
	bool own_waits = scx_bpf_dsq_nr_queued(own) > 0;
	bool shared_waits = shard_waits(llc_of(cpu), tier);
	bool both = own_waits && shared_waits;

	if (!own_waits && !shared_waits)
		return false;
	first = own_waits ? own : shared;
	if (keeps || both)
		first = queue_to_serve(tier, cpu, keeps);
	if (!first)
		return false;
	second = both ? own + shared - first : 0;
	/* A loop: a second copy of the call would be verified once more. */
#pragma clang loop unroll(disable)
	while (!take(first, tier, cpu, now)) {
		if (!second)
			return false;
		first = second;
		second = 0;
	}
	return true;
}

/*
 * Whether this CPU, whose own LLC has nothing for it, pulls the first task of a
 * queue of another LLC. If it is too early, a timer makes the CPU check again in time.
 */
__noinline bool should_pull(s32 cpu, u32 tier, u64 dsq_id, u64 now)
{
	struct task_struct *p = __COMPAT_scx_bpf_dsq_peek(dsq_id);
	struct task_ctx *t = p ? task_of(p) : NULL;
	struct plimsoll_cpu *c = cpu_at(cpu);
	u64 waited_ns;

	if (!t || !c)
		return false;
	waited_ns = plim_elapsed_ns(now, t->waiting_since_ns);
	if (plim_batch_is_pulled(tier == PLIMSOLL_TIER_NORMAL, waited_ns))
		return true;
	arm_slice(c, cpu, PLIM_BATCH_WAIT_MAX_NS - waited_ns, now);
	return false;
}

/* Pulls work of a tier from another LLC. */
__noinline int pull(u32 tier, s32 cpu, u64 now)
{
	u32 i, other, llc = llc_of(cpu);
	u64 queue;

	bpf_for (i, 1, PLIMSOLL_LLCS_MAX) {
		if (i >= nr_llcs)
			break;
		other = (llc + i) % nr_llcs;
		queue = shard_queue(other, tier);
		if (!should_pull(cpu, tier, queue, now) || !take(queue, tier, cpu, now))
			continue;
		remember(cpu, PLIMSOLL_PULLED, other, 0, 0);
		return TAKE_MOVED;
	}
	return TAKE_NONE;
}

/* Pulls a task of a tier that gets more on this LLC than on its own. */
static __always_inline bool dispatch_balance(struct plimsoll_cpu *c, u32 tier, s32 cpu, u64 now)
{
	u32 other = llc_to_pull_from(cpu, tier, c->balance_first, now);

	if (other == llc_of(cpu) || !take(shard_queue(other, tier), tier, cpu, now))
		return false;
	remember(cpu, PLIMSOLL_PULLED, other, 0, 0);
	return true;
}

/*
 * A slice of a task begins, of @left_ns at most by its limits. Wakers are told of its
 * request. A timer ends the slice at a limit, or at the end of the request while others
 * wait for it. A tick would end it up to a tick late, of which a task of three that
 * wakes in turn would lose most of its share.
 */
static __always_inline void slice_begins(struct task_struct *p, const struct task_ctx *t,
					 struct plimsoll_cpu *c, s32 cpu, u32 tier, u64 left_ns,
					 u64 now)
{
	u64 effective = effective_weight(t, p);
	/* No shorter than a switch is worth. */
	u64 request_ns = plim_max(plim_order_left_ns(&t->order, effective), SLICE_MIN_NS);

	WRITE_ONCE(c->effective, effective);
	WRITE_ONCE(c->deadline, shared_deadline(c, t, tier));
	WRITE_ONCE(c->request_ns, t->order.request_ns);
	WRITE_ONCE(c->served_at_ns, now + request_ns);
	scx_bpf_task_set_slice(p, plim_min(request_ns, slice_of_left(left_ns)));
	if (left_ns >= LEFT_BY_TICK_NS && t->order.request_ns > PLIM_ORDER_REQUEST_NEW_NS &&
	    tier_waits(llc_of(cpu), cpu, tier))
		left_ns = request_ns;
	arm_slice(c, cpu, left_ns, now);
}

/*
 * Notes the slice that a task has begun. One whose policy, nice level, affinity or cgroup
 * changes while it runs stops and begins again without a dispatch, and has the rest.
 */
static __always_inline void
slice_is_of(struct plimsoll_cpu *c, const struct task_struct *p, u64 now)
{
	c->slice_pid = p->pid;
	c->slice_until_ns = now + p->scx.slice;
}

/* Extends the slice of the present task. Returns whether it may continue. */
__noinline int
extend_previous(struct task_struct *prev __arg_trusted __arg_nullable, u32 tier, s32 cpu, u64 now)
{
	struct plimsoll_cpu *c = cpu_at(cpu);
	struct task_ctx *t = prev ? task_of(prev) : NULL;
	struct plimsoll_group *group = t ? group_at(t->slot) : NULL;
	u64 left_ns, own_ns;

	if (!group || !c)
		return false;
	own_ns = task_run_ns(t, group, now);
	if (!own_ns)
		return false;
	left_ns = admit_task(t, cpu, now);
	if (!left_ns)
		return false;
	c->server = PLIMSOLL_SERVER_NONE;
	c->runs_early = 0;
	clocks_follow(t, c, llc_of(cpu), tier);
	slice_begins(prev, t, c, cpu, tier, plim_min(left_ns, own_ns), now);
	slice_is_of(c, prev, now);
	return true;
}

/*
 * Serves a tier. If limits refuse the present task, which @keeps this CPU unless another comes
 * first, the others of its tier may run.
 */
static __always_inline bool
serve_or_extend(struct task_struct *prev, u32 tier, s32 cpu, bool keeps, u64 now)
{
#pragma clang loop unroll(disable)
	while (!serve(tier, cpu, keeps, now)) {
		if (!keeps)
			return false;
		if (extend_previous(prev, tier, cpu, now))
			return true;
		keeps = false;
	}
	return true;
}

/* Whether work of a tier below waits for this CPU. */
static __always_inline bool lower_waits(u32 tier, s32 cpu)
{
	return (tier < PLIMSOLL_TIER_BATCH && tier_waits(llc_of(cpu), cpu, PLIMSOLL_TIER_BATCH)) ||
	       tier_waits(llc_of(cpu), cpu, PLIMSOLL_TIER_BACKGROUND);
}

/*
 * Whether a server slice is granted, behind a tier that has work. One that is due lapses where a
 * lower tier has run until now, or is served by this dispatch in any case. If none waits
 * it stays due: those that a limit has kept from running return at any moment. So it does
 * after a slice whose time went to interrupts: on a CPU that was idle these may take all.
 */
static __always_inline bool
server_begins(struct plimsoll_cpu *c, s32 cpu, u32 server, u32 tier_of_prev, u64 now)
{
	u32 before = tier_before(server);
	bool waits;

	if (!server_is_due(c, server, now))
		return false;
	waits = lower_waits(before, cpu);
	if (c->server == server)
		server_waits(c, server, now);
	else if (server_is_for(server, tier_of_prev) ||
		 (waits && !tier_has_work(before, tier_of_prev, cpu)))
		server_lapses(c, server, now);
	else if (!waits)
		server_is_unused(c, server, now);
	else
		return true;
	return false;
}

/*
 * Grants a server slice that is due. Behind batch work there is none while this CPU has normal
 * work; that which waits while batch work runs may not run here.
 */
static __always_inline void server_grant(struct plimsoll_cpu *c, s32 cpu, u32 tier_of_prev, u64 now)
{
	if (server_begins(c, cpu, PLIMSOLL_SERVER_BEHIND_NORMAL, tier_of_prev, now)) {
		c->nr_server_slices++;
		c->server_granted = PLIMSOLL_SERVER_BEHIND_NORMAL;
		return;
	}
	if (!server_is_due(c, PLIMSOLL_SERVER_BEHIND_BATCH, now))
		return;
	if (tier_of_prev != PLIMSOLL_TIER_BATCH &&
	    tier_has_work(PLIMSOLL_TIER_NORMAL, tier_of_prev, cpu))
		server_waits(c, PLIMSOLL_SERVER_BEHIND_BATCH, now);
	else if (server_begins(c, cpu, PLIMSOLL_SERVER_BEHIND_BATCH, tier_of_prev, now))
		c->server_granted = PLIMSOLL_SERVER_BEHIND_BATCH;
}

/* Steps of a dispatch: two of a server, then one for each tier. */
#define SERVER_STEPS 2
#define SERVE_STEPS (SERVER_STEPS + PLIMSOLL_TIERS)

/* The first step with this server. */
static __always_inline u32 step_of_server(u32 server)
{
	if (server == PLIMSOLL_SERVER_BEHIND_NORMAL)
		return 0;
	/* Serves the background alone. */
	return server == PLIMSOLL_SERVER_BEHIND_BATCH ? 1 : SERVER_STEPS;
}

/* The tier that a step serves. */
static __always_inline u32 tier_of_step(const struct plimsoll_cpu *c, u32 step)
{
	bool background_first = c->server_granted == PLIMSOLL_SERVER_BEHIND_NORMAL &&
				c->nr_server_slices % BACKGROUND_SLICES == 0;

	if (step >= SERVER_STEPS)
		return step - SERVER_STEPS;
	return !step == background_first ? PLIMSOLL_TIER_BACKGROUND : PLIMSOLL_TIER_BATCH;
}

/*
 * Serves the tiers in their order. Returns whether this CPU has a task to run. If it balances,
 * a task of another LLC may come before those of its own.
 */
static __always_inline bool
serve_all(struct task_struct *prev, struct plimsoll_cpu *c, u32 tier_of_prev, s32 cpu, u64 now)
{
	u32 step, tier;
	bool keeps;

	server_grant(c, cpu, tier_of_prev, now);
	bpf_for (step, step_of_server(c->server_granted), SERVE_STEPS) {
		tier = tier_of_step(c, step);
		if (step == SERVER_STEPS && c->server_granted) {
			server_waits(c, c->server_granted, now);
			c->server_granted = PLIMSOLL_SERVER_NONE;
		}
		keeps = step >= SERVER_STEPS && tier == tier_of_prev;
		if (step >= SERVER_STEPS && c->balances && tier_has_work(tier, tier_of_prev, cpu) &&
		    dispatch_balance(c, tier, cpu, now))
			return true;
		if (serve_or_extend(prev, tier, cpu, keeps, now))
			return true;
		if (step < SERVER_STEPS)
			continue;
		if (nr_llcs > 1 && pull(tier, cpu, now) == TAKE_MOVED)
			return true;
	}
	return false;
}

/* Looks for work in a row that a task which waits causes. */
#define ROUNDS_MAX 8

/*
 * Whether a task waits that this CPU, which is idle, may run. The kernel puts a task
 * into its queue only after ops.enqueue() has returned: this CPU may have found none,
 * and that one may have found no idle CPU. Each writes its side first and then reads the
 * other's, so one of them sees the other. Retries end with the insertion; a count that is
 * wrong costs a few looks each time that a CPU goes idle. Normal work of another LLC counts,
 * too: see should_pull(). Under headroom the CPU is woken for lower tiers when it may run them.
 */
static __always_inline bool work_waits(struct plimsoll_cpu *c, s32 cpu, u64 now)
{
	u32 nr_rounds, other;
	u64 since_ns;
	bool waits, lower_waits;

	/* Also the barrier between the write of the state and the reads. */
	nr_rounds = __sync_fetch_and_add(&c->nr_rounds, 1);
	since_ns = READ_ONCE(overdue_since_ns[llc_of(cpu) % PLIMSOLL_LLCS_MAX]);
	/* On its way into the queue; a round costs little, and this lasts no longer. */
	if (since_ns && plim_elapsed_ns(now, since_ns) <= INSERTION_NS) {
		c->nr_rounds = 0;
		return true;
	}
	if (nr_rounds >= ROUNDS_MAX)
		return false;
	waits = normal_waits(llc_of(cpu));
	lower_waits = lower_tiers_wait(llc_of(cpu));
	if (!headroom_on)
		waits |= lower_waits;
	else if (lower_waits && !cpus_have(token_refused_cpus, cpu))
		cpus_add(token_refused_cpus, cpu);
	bpf_for (other, 0, nr_llcs) {
		if (waits || nr_rounds)
			break;
		waits = normal_waits(other);
	}
	if (!waits)
		c->nr_rounds = 0;
	return waits;
}

/*
 * Ends the slice of the present task. Returns its tier, in which it may go on; PLIMSOLL_TIERS:
 * it may not, or there is none.
 */
__noinline u32 slice_ends(struct task_struct *prev __arg_trusted __arg_nullable, s32 cpu, u64 now)
{
	struct plimsoll_cpu *c = cpu_at(cpu);
	struct plimsoll_group *group;
	struct task_ctx *t = NULL;
	u32 tier;

	if (!c)
		return PLIMSOLL_TIERS;
	if (prev && prev->scx.flags & SCX_TASK_QUEUED)
		t = task_of(prev);
	if (!t) {
		c->slice_pid = 0;
		return PLIMSOLL_TIERS;
	}
	/* Its slice is over, also if it begins again while a task is moved here. */
	c->slice_until_ns = now;
	charge_task(prev, t, cpu, now);
	group = group_at(t->slot);
	if (!group)
		return PLIMSOLL_TIERS;
	cgroup_follow(prev, t, now);
	order_join(t, prev, llc_of(cpu), now);
	/* If its group may have changed, it looks that up when it is queued again. */
	if (t->groups_seen != READ_ONCE(groups_changed))
		return PLIMSOLL_TIERS;
	tier = tier_of(group, t, prev);
	/* In another tier it is queued anew. */
	if (tier != c->tier)
		return PLIMSOLL_TIERS;
	c->prev_deadline = shared_deadline(c, t, tier);
	return tier;
}

static __always_inline void dispatch_cpu(s32 cpu, struct task_struct *prev, u64 now)
{
	struct plimsoll_cpu *c = cpu_at(cpu);
	u32 tier_of_prev;

	if (!c)
		return;
	c->nr_dispatches++;
	c->left_ns = 0;
	c->left_slot = PLIMSOLL_SLOT_NONE;
	c->server_granted = PLIMSOLL_SERVER_NONE;
	/* A task for which another was preempted comes first. */
	c->balances = !c->is_taken && balance_is_due(c, now);
	c->is_taken = 0;
	tier_of_prev = slice_ends(prev, cpu, now);
	if (tokens_exceeded())
		token_release(c, cpu);
	if (dispatch_overdue(c, cpu, now))
		return;
	if (serve_all(prev, c, tier_of_prev, cpu, now))
		return;
	token_release(c, cpu);
	/* The kernel does not tell that an idle CPU stays idle: see plimsoll_update_idle(). */
	if (c->state == PLIMSOLL_CPU_IDLE && work_waits(c, cpu, now))
		scx_bpf_kick_cpu(cpu, 0);
}

#endif /* PLIMSOLL_DISPATCH_BPF_H */

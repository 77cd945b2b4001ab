/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Limits keep tasks from running: a task whose group, or one above it, has no
 * runtime left, or that is over a cap, is parked at the limit until that ends. So
 * the queues hold tasks that may run, and what is limited costs nothing there.
 *
 * A task that is preempted or wakes inside of the kernel may hold locks for which others
 * wait, and of which many have no owner, such as those of pages. So it is not parked: it
 * stays in its queue, and runs for the shortest slices, which are a debt, until it is
 * stopped outside. The fair class throttles a task on its way out, too.
 */
#ifndef PLIMSOLL_LIMITS_BPF_H
#define PLIMSOLL_LIMITS_BPF_H

#include "admission.bpf.h"
#include "queues.bpf.h"

/* Most tasks that ever return to their queues at once, and the pause before the next. */
#define UNPARK_MAX 64
#define UNPARK_PAUSE_NS (100 * PLIM_NSEC_PER_USEC)
/* Most tasks of a queue that may run on a CPU and are checked for one dispatch there. */
#define TAKE_MAX 64
/* Most tasks among which it looks: others may not run on this CPU, or are refused alike. */
#define TAKE_WALK_MAX 4096
/*
 * Most runs of a task against its limits, each of which ends inside of the kernel or begins
 * there, until they let it run: 20 ms. A task that spends 97 % of its time there is met
 * outside before, but for one time in 500.
 */
#define LIFTED_MAX 200

/* Whether the pool of a group is empty, and this CPU has nothing left from it. */
static __always_inline bool has_no_runtime(const struct plimsoll_group *group, u32 slot, s32 cpu)
{
	struct plimsoll_group_cpu *gc;

	/* Its timer is armed only while a CPU is throttled. */
	if (!READ_ONCE(group->pool.nr_throttled_cpus) || READ_ONCE(group->pool.runtime_ns))
		return false;
	gc = group_cpu_at(slot, cpu);
	return gc && (gc->bandwidth.throttled || gc->bandwidth.runtime_ns <= 0);
}

/*
 * The slot of the group, this one or one above it, of which a limit keeps its tasks
 * from running on this CPU; PLIMSOLL_SLOT_NONE: none does. Checked without locks: a
 * task that should have been parked runs for the shortest slice, which is a debt.
 */
__noinline u32 blocking_slot(u32 slot, s32 cpu, u64 now)
{
	struct plimsoll_group *group;
	u32 depth, flags;

	bpf_for (depth, 0, PLIMSOLL_DEPTH_MAX) {
		group = group_at(slot);
		if (!group)
			break;
		flags = group->params.flags;
		if (flags & PLIMSOLL_CAP && READ_ONCE(group->blocked_until_ns) > now)
			return slot;
		if (flags & PLIMSOLL_QUOTA && has_no_runtime(group, slot, cpu))
			return slot;
		slot = group->params.parent;
		if (slot >= PLIMSOLL_SLOTS_MAX)
			break;
	}
	return PLIMSOLL_SLOT_NONE;
}

/* Returns when a task over a cap of its own may run again; 0: now. */
static __always_inline u64 own_cap_until_ns(struct task_ctx *t, const struct plimsoll_group *group,
					    u64 now)
{
	struct plim_ratecap_params params;

	if (task_run_ns(t, group, now))
		return 0;
	params = group->params.cap;
	return plim_max(plim_ratecap_eligible_ns(&t->cap, &params), now + 1);
}

/*
 * Arms the timer of the limit at which a task is parked. That of a quota may have come
 * between the look at the pool and now: then it comes again a moment later. Housekeeping finds a
 * task that it misses.
 */
static __always_inline void park_timer(u32 slot, u64 until_ns)
{
	struct plimsoll_group *group = group_at(slot);

	if (!group)
		return;
	if (!until_ns && group->params.flags & PLIMSOLL_CAP)
		until_ns = READ_ONCE(group->blocked_until_ns);
	if (!until_ns && READ_ONCE(group->pool.runtime_ns))
		until_ns = bpf_ktime_get_ns() + INSERTION_NS;
	if (!until_ns)
		until_ns = plim_bandwidth_next_boundary_ns(&group->pool);
	group_timer_at(slot, until_ns);
}

/* include/linux/sched.h */
#define PF_USER_WORKER 0x4000
#define STATE_UNINTERRUPTIBLE 0x2
#define STATE_NOLOAD 0x400

/* A task that is a CPU of a virtual machine has a notifier. Kernels without KVM lack the field. */
struct task_struct___notified {
	struct hlist_head preempt_notifiers;
} __attribute__((preserve_access_index));

/*
 * Whether a task that stops may hold locks of the kernel: it is @runnable inside of a system
 * call, or its sleep is one that no signal ends, such as that for a lock or a page. An
 * interrupt or exception in user mode leaves -1 in orig_ax, as arch/x86/entry/entry_64.S has
 * it; so a runnable task in the midst of a page fault counts as outside. So do those that
 * never leave, as the workers of io_uring and the CPUs of virtual machines, whose limits
 * would always end too late.
 */
static __always_inline bool may_hold_locks(struct task_struct *p, bool runnable)
{
	const struct task_struct___notified *notified = (const void *)p;
	const struct pt_regs *entry;

	if (!runnable)
		return (p->__state & (STATE_UNINTERRUPTIBLE | STATE_NOLOAD)) ==
		       STATE_UNINTERRUPTIBLE;
	if (p->flags & (PF_KTHREAD | PF_USER_WORKER) ||
	    (bpf_core_field_exists(notified->preempt_notifiers) &&
	     notified->preempt_notifiers.first))
		return false;
	entry = (const struct pt_regs *)bpf_task_pt_regs(p);
	return (s32)entry->orig_ax >= 0;
}

/* Whether a task may leave the kernel before it is parked. */
static __always_inline bool leaves_kernel(const struct task_ctx *t)
{
	return t->in_kernel && t->nr_lifted < LIFTED_MAX;
}

/*
 * Whether headroom, which holds in the kernel, too, lets a task of a chain run against its
 * limits. No inline function, to keep the frame of its caller small.
 */
static __noinline bool headroom_lifts(u32 slot, s32 cpu)
{
	struct plimsoll_cpu *c = cpu_at(cpu);
	struct plimsoll_group *group;
	bool yields = false;
	u32 depth;

	bpf_for (depth, 0, PLIMSOLL_DEPTH_MAX) {
		group = group_at(slot);
		if (!group)
			break;
		yields |= group->params.flags & PLIMSOLL_BATCH;
		slot = group->params.parent;
		if (slot >= PLIMSOLL_SLOTS_MAX)
			break;
	}
	return c && (!yields || token_take(c, cpu));
}

/* A task that was killed has to run to exit, and holds its memory until it has. */
static __always_inline bool is_under_no_limit(const struct task_struct *p, const struct task_ctx *t)
{
	return lifts_limits(t) || is_dying(p);
}

/* Parks a task that is being queued, if a limit keeps it from running. */
static __always_inline bool park_if_limited(struct task_struct *p, struct task_ctx *t,
					    const struct plimsoll_group *group, s32 cpu,
					    u64 enq_flags, u64 now)
{
	u64 until_ns = own_cap_until_ns(t, group, now);
	u32 slot = until_ns ? t->slot : blocking_slot(t->chain, cpu, now);

	if (slot == PLIMSOLL_SLOT_NONE || leaves_kernel(t))
		return false;
	load_parks(t);
	order_parks(t);
	scx_bpf_dsq_insert_vtime(p, parked_id(slot), SLICE_QUEUED_NS, until_ns ?: now, enq_flags);
	park_timer(slot, until_ns);
	return true;
}

/*
 * Moves a waiting task of another queue to that of its tier. Called by timers and by
 * other CPUs: its order is not written. No inline function, to keep the frames of its
 * callers small.
 */
static __noinline bool
move_to_tier(struct bpf_iter_scx_dsq *waiting, struct task_struct *p, struct task_ctx *t, u32 tier)
{
	s32 cpu = scx_bpf_task_cpu(p);
	u32 place = place_of(t, cpu, tier);

	if (waits_offline(t, cpu))
		return scx_bpf_dsq_move(waiting, p, SCX_DSQ_LOCAL_ON | cpu, 0);
	/* Its order follows when it runs: until then its debt is that of another tier. */
	if (!is_same_tier(t->place, place))
		t->out_of_order = 1;
	scx_bpf_dsq_move_set_vtime(waiting, deadline_at(t, place));
	return scx_bpf_dsq_move_vtime(waiting, p, queue_of(t, cpu, tier), 0);
}

/* Parks a waiting task of another queue. No inline function, for the same reason. */
static __noinline void
park_waiting(struct bpf_iter_scx_dsq *waiting, struct task_struct *p, u32 slot, u64 until_ns)
{
	struct task_ctx *t = task_of(p);

	if (!t)
		return;
	/*
	 * First: a timer may return it at once. If another CPU has it, it runs now, and counts as
	 * it does.
	 */
	order_parks(t);
	load_parks(t);
	if (!scx_bpf_dsq_move_vtime(waiting, p, parked_id(slot), 0))
		return;
	park_timer(slot, until_ns);
}

enum take_verdict {
	TAKE_NONE, /* nothing here that may run on this CPU now */
	TAKE_MOVED, /* a task was moved to this CPU */
};

/* Whether a waiting task is of this tier still, and nothing keeps it from a CPU. */
static __always_inline bool is_free(struct task_struct *p, u32 tier, s32 cpu)
{
	struct task_ctx *t = task_of(p);
	struct plimsoll_group *group = t ? group_at(t->slot) : NULL;
	struct plimsoll_group *chain = t ? group_at(t->chain) : NULL;

	if (!group || !chain || !is_unlimited(chain))
		return false;
	if (chain->params.flags & PLIMSOLL_BATCH && headroom_on)
		return false;
	return bpf_cpumask_test_cpu(cpu, p->cpus_ptr) && tier_of(group, t, p) == tier;
}

/*
 * Takes the first task of a queue that may run on this CPU now. On the way, tasks that
 * a limit keeps from running are parked, and those over a soft cap go to the
 * background. None has migration disabled: without SCX_OPS_ENQ_MIGRATION_DISABLED the kernel
 * queues such tasks itself.
 */
__noinline int take_limited(u64 dsq_id, u32 tier, s32 cpu, u64 now)
{
	struct plimsoll_cpu *c = cpu_at(cpu);
	struct plimsoll_group *group;
	struct task_struct *p;
	struct task_ctx *t;
	int seen = count_from, tried = count_from;
	u64 left_ns, until_ns;
	u32 slot, now_tier;

	if (!c)
		return TAKE_NONE;
	c->refused_chain = PLIMSOLL_SLOT_NONE;
	p = __COMPAT_scx_bpf_dsq_peek(dsq_id);
	if (!p)
		return TAKE_NONE;
	/* If another CPU takes it before, the next one is admitted when it begins. */
	if (is_free(p, tier, cpu) && scx_bpf_dsq_move_to_local(dsq_id, SCX_ENQ_IMMED))
		return TAKE_MOVED;
	bpf_for_each (scx_dsq, p, dsq_id, 0) {
		if (++seen > TAKE_WALK_MAX)
			break;
		t = task_of(p);
		group = t ? group_at(t->slot) : NULL;
		if (!group || !bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			continue;
		/* The same limits keep those behind it from this CPU. */
		if (t->chain == c->refused_chain && !is_under_no_limit(p, t))
			continue;
		if (++tried > TAKE_MAX)
			break;
		now_tier = tier_of(group, t, p);
		if (now_tier > tier && now_tier < PLIMSOLL_TIERS) {
			waiting_leaves(t);
			move_to_tier(BPF_FOR_EACH_ITER, p, t, now_tier);
			continue;
		}
		until_ns = 0;
		left_ns = SLICE_MIN_NS;
		if (!is_under_no_limit(p, t)) {
			until_ns = own_cap_until_ns(t, group, now);
			left_ns = until_ns ? 0 : admit_task(t, cpu, now);
		}
		slot = until_ns ? t->slot : PLIMSOLL_SLOT_NONE;
		if (!left_ns && slot == PLIMSOLL_SLOT_NONE)
			slot = blocking_slot(t->chain, cpu, now);
		if (slot != PLIMSOLL_SLOT_NONE && leaves_kernel(t)) {
			if (!headroom_lifts(t->chain, cpu))
				continue;
			left_ns = SLICE_MIN_NS;
		}
		if (left_ns) {
			if (scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL_ON | cpu,
					     SCX_ENQ_IMMED)) {
				if (slot != PLIMSOLL_SLOT_NONE) {
					t->nr_lifted++;
					t->overdue = PLIMSOLL_HOLDER;
				}
				c->left_ns = left_ns;
				c->left_slot = t->chain;
				return TAKE_MOVED;
			}
			/* Another CPU has taken it. */
			return_chain(t->chain, cpu);
			token_release(c, cpu);
			continue;
		}
		/* Else this CPU may not run it: its limit here is reached, or headroom's. */
		if (slot == PLIMSOLL_SLOT_NONE) {
			c->refused_chain = t->chain;
			continue;
		}
		waiting_leaves(t);
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, until_ns ?: now);
		park_waiting(BPF_FOR_EACH_ITER, p, slot, until_ns);
	}
	return TAKE_NONE;
}

/*
 * Has a CPU look for a task that is back in its queue: an idle one, or, if it @may_take, one
 * that runs a lower tier.
 */
static __always_inline void
show_returned(struct task_struct *p, const struct task_ctx *t, s32 cpu, u32 tier, bool may_take)
{
	struct plimsoll_cpu *c = cpu_at(cpu);

	if (t->in_own_queue) {
		if (may_take && c && runs_below(c, tier))
			take_cpu(cpu);
		else /* The kernel itself looks whether it is idle: it may be about to be. */
			scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		return;
	}
	/* Headroom may keep an idle CPU from it. */
	if ((tier == PLIMSOLL_TIER_NORMAL || token_available(true)) &&
	    (kick_idle_of_llc(p, cpu) || kick_idle_for(p)))
		return;
	cpu = may_take ? cpu_of_lower_tier(p, cpu, tier) : -1;
	if (cpu >= 0)
		take_cpu(cpu);
}

/* Most tasks that may take a CPU at once: each of the others would find nothing left. */
static __always_inline u32 nr_to_take(const struct plimsoll_group *group, u64 granted_ns)
{
	u64 most = plim_max(granted_ns / CAP_RUN_MIN_NS, 1);

	if (group->params.flags & PLIMSOLL_QUOTA)
		most = plim_min(
			most,
			group->pool.runtime_ns / plim_max(READ_ONCE(bandwidth_slice_ns), 1) + 1);
	return plim_min(most, UNPARK_MAX);
}

/*
 * Returns parked tasks of a limit that has ended to their queues. Returns when to go on,
 * 0: none is left, or all wait for a boundary of the quota.
 *
 * This function and the next are verified by themselves, for a program that may sleep.
 */
__noinline u64 unpark(u32 slot, u64 now)
{
	struct plimsoll_group *group = group_at(slot), *own;
	struct plim_ratecap_params params;
	struct task_struct *p;
	struct task_ctx *t;
	u64 until_ns, next_ns = 0, granted_ns = PLIM_UNLIMITED;
	u32 tier, nr_max, nr_takes;
	int seen = count_from;
	s32 cpu;

	/* All wait for the next boundary, for which its timer is armed. */
	if (!group || (group->params.flags & PLIMSOLL_QUOTA &&
		       READ_ONCE(group->pool.nr_throttled_cpus) && !group->pool.runtime_ns))
		return 0;
	if (!scx_bpf_dsq_nr_queued(parked_id(slot)))
		return 0;
	if (group->params.flags & PLIMSOLL_CAP)
		granted_ns = cap_run_ns(slot, now);
	/*
	 * From a cap one for each CPU, or as many as have the shortest run each of what it grants
	 * now: of a crowd, all others would go to their queues, find nothing left and be parked
	 * again, at each grant.
	 */
	nr_max = plim_min(plim_max(granted_ns / CAP_CROWD_RUN_MIN_NS, nr_cpu_ids), UNPARK_MAX);
	nr_takes = nr_to_take(group, granted_ns);
	bpf_rcu_read_lock();
	bpf_for_each (scx_dsq, p, parked_id(slot), 0) {
		t = task_of(p);
		own = t ? group_at(t->slot) : NULL;
		if (!own)
			continue;
		cpu = scx_bpf_task_cpu(p);
		if (t->slot == slot && own->params.flags & PLIMSOLL_PER_TASK) {
			task_cap_follow(t, own, now);
			params = own->params.cap;
			until_ns = plim_ratecap_eligible_ns(&t->cap, &params);
			/* The queue is ordered: all further tasks are eligible later. */
			if (until_ns > now) {
				next_ns = until_ns;
				break;
			}
		}
		if (++seen > nr_max) {
			next_ns = now + UNPARK_PAUSE_NS;
			break;
		}
		tier = tier_of(own, t, p) & PLIMSOLL_TIER_MASK;
		/* First: once it is in that queue, it may run and sleep at once. */
		order_returns(t);
		load_enters(t, p, tier);
		if (tier == PLIMSOLL_TIER_NORMAL && !t->in_own_queue && runs_anywhere(p))
			waiting_enters(t, llc_of(cpu), tier);
		if (!move_to_tier(BPF_FOR_EACH_ITER, p, t, tier)) {
			waiting_leaves(t);
			/* Another CPU has it, or it has left for another class. */
			if (!(p->scx.flags & SCX_TASK_QUEUED))
				load_leaves(t);
			continue;
		}
		show_returned(p, t, cpu, tier, seen <= nr_takes);
	}
	bpf_rcu_read_unlock();
	return next_ns;
}

/* Whether a task that waits in the background is over a soft cap of its own still. */
__noinline bool stays_in_background(struct task_ctx *t, u64 now)
{
	struct plimsoll_group *group = t ? group_at(t->slot) : NULL;
	struct plim_ratecap_params params;

	if (!t || !group || !t->background)
		return false;
	params = group->params.cap;
	task_rate_charge(t, &params, 0, now);
	if (plim_ratecap_is_background(&t->cap, &params))
		return true;
	t->background = 0;
	return false;
}

/*
 * Moves the tasks of a group whose usage rate has fallen out of a queue of the
 * background. Returns whether any of its tasks is, or may be, there.
 */
__noinline bool leave_background(u32 slot, u64 dsq_id, u64 now)
{
	struct plimsoll_group *group = group_at(slot);
	struct task_struct *p;
	struct task_ctx *t;
	int any = count_from, seen = count_from;
	u32 tier;

	if (!group || !scx_bpf_dsq_nr_queued(dsq_id))
		return false;
	bpf_rcu_read_lock();
	bpf_for_each (scx_dsq, p, dsq_id, 0) {
		if (++seen > QUEUE_SCAN_MAX) {
			any++;
			break;
		}
		t = task_of(p);
		if (!t || t->slot != slot)
			continue;
		any++;
		if (stays_in_background(t, now))
			continue;
		tier = tier_of(group, t, p);
		if (tier >= PLIMSOLL_TIER_BACKGROUND)
			continue;
		waiting_leaves(t);
		move_to_tier(BPF_FOR_EACH_ITER, p, t, tier);
	}
	bpf_rcu_read_unlock();
	return any;
}

/* Does so with every queue of the background. */
__noinline int leave_background_all(u32 slot, u64 now)
{
	int any = count_from;
	u32 index;

	bpf_for (index, 0, nr_llcs) {
		any += leave_background(slot, shard_queue(index, PLIMSOLL_TIER_BACKGROUND), now);
	}
	bpf_for (index, 0, nr_cpu_ids) {
		any += leave_background(slot, cpu_queue(index, PLIMSOLL_TIER_BACKGROUND), now);
	}
	return any;
}

/* Timer callback of a group: a limit may have ended. */
static int group_timer(void *map, int *key, struct bpf_timer *timer)
{
	u64 now = bpf_ktime_get_ns(), next_ns = PLIM_UNLIMITED, unpark_ns;
	struct timer_value *value;
	struct plimsoll_group *group;
	u32 slot = *key, flags;
	bool is_blocked;

	group = group_at(slot);
	value = bpf_map_lookup_elem(&group_timers, &slot);
	if (!group || !value)
		return 0;
	/* First, so that a CPU that is refused from now on rearms the timer. */
	WRITE_ONCE(value->at_ns, 0);
	flags = group->params.flags;
	if (flags & PLIMSOLL_QUOTA)
		bandwidth_serve_all(slot, now);
	if (group->background)
		cap_charge(slot, 0, now, now);
	is_blocked = flags & PLIMSOLL_CAP && group->blocked_until_ns > now;
	if (is_blocked)
		next_ns = group->blocked_until_ns;
	if (READ_ONCE(group->in_background)) {
		if (leave_background_all(slot, now))
			next_ns = plim_min(next_ns, now + BACKGROUND_GRAIN_NS);
		else
			WRITE_ONCE(group->in_background, 0);
	}
	/* Also if the limit was removed while it kept some from running. */
	if (!is_blocked || flags & PLIMSOLL_PER_TASK) {
		unpark_ns = unpark(slot, now);
		if (unpark_ns)
			next_ns = plim_min(next_ns, unpark_ns);
	}
	if (next_ns != PLIM_UNLIMITED)
		group_timer_at(slot, next_ns);
	wake_refused(slot);
	return 0;
}

#endif /* PLIMSOLL_LIMITS_BPF_H */

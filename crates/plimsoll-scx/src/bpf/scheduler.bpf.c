/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Plimsoll's scheduler: the sched_ext callbacks for tasks and CPUs. Decisions
 * are made by the policy core; the headers beside this file gather the inputs of
 * each mechanism. docs/scheduler.md has a diagram.
 *
 * Every ordinary task is scheduled here: those of no group, and those of normal
 * groups, before those of batch groups. Real-time and deadline tasks are not.
 *
 * A task joins the queue of its CPU's shard, or of the CPU itself if it may run on
 * no other, at the virtual deadline that the core gives it.
 */
#include "kernel.bpf.h"

#include "accounting.bpf.h"
#include "admission.bpf.h"
#include "control.bpf.h"
#include "cpu_max.bpf.h"
#include "dispatch.bpf.h"
#include "dump.bpf.h"
#include "headroom.bpf.h"
#include "holders.bpf.h"
#include "limits.bpf.h"
#include "membership.bpf.h"
#include "order.bpf.h"
#include "queues.bpf.h"
#include "state.bpf.h"
#include "watchdog.bpf.h"

char _license[] SEC("license") = "GPL";

/* Age at which the recorded state of a CPU is audited, see audit_cpu(). */
#define STALE_STATE_NS (20 * PLIM_NSEC_PER_MSEC)

/* Each task has a soft cap of its own. */
#define SOFT_PER_TASK (PLIMSOLL_SOFT_CAP | PLIMSOLL_PER_TASK)

static __always_inline bool is_batch(const struct plimsoll_group *group)
{
	return group->params.flags & PLIMSOLL_BATCH;
}

/* Most CPUs whose normal task is compared with one that wakes. */
#define PREEMPT_CPUS_MAX 4

/*
 * Whether a task preempts the one that runs on a CPU, if there is one of ours. Its
 * @deadline is as the shard compares it.
 */
static __always_inline bool
preempts(const struct plimsoll_cpu *c, u32 tier, u64 deadline, u64 request_ns, u64 now)
{
	if (READ_ONCE(c->is_taken) || c->tier >= PLIMSOLL_TIERS)
		return false;
	if (c->tier != tier)
		return c->tier > tier;
	return plim_order_preempts(deadline, request_ns, READ_ONCE(c->deadline),
				   READ_ONCE(c->request_ns), now >= READ_ONCE(c->served_at_ns));
}

/*
 * The CPU whose task a waking normal task with this request may preempt: one of a lower tier,
 * else the one of a few in its LLC with the latest deadline. Else @cpu. Reads what runs on other
 * CPUs, which may have changed when the task gets there. ops.enqueue() decides, by the task's own
 * deadline, which is not before the clock.
 */
__noinline s32 cpu_to_preempt(struct task_struct *p __arg_trusted, s32 cpu, u64 request_ns, u64 now)
{
	s32 other, best = cpu_of_lower_tier(p, cpu, PLIMSOLL_TIER_NORMAL);
	const struct cpumask *allowed;
	struct plimsoll_cpu *c;
	u64 clock, latest = 0;
	u32 i;

	if (best >= 0)
		return best;
	allowed = p->cpus_ptr;
	clock = clock_at(shard_place(llc_of(cpu), PLIMSOLL_TIER_NORMAL));
	bpf_for (i, 0, PREEMPT_CPUS_MAX) {
		if (i >= nr_cpu_ids)
			break;
		other = ((u32)cpu + i) % nr_cpu_ids;
		c = cpu_at(other);
		if (!c || llc_of(other) != llc_of(cpu) || !bpf_cpumask_test_cpu(other, allowed))
			continue;
		if (!preempts(c, PLIMSOLL_TIER_NORMAL, clock, request_ns, now) ||
		    (best >= 0 && plim_order_before(READ_ONCE(c->deadline), latest)))
			continue;
		best = other;
		latest = READ_ONCE(c->deadline);
	}
	return best >= 0 ? best : cpu;
}

/* Brings a task up to date with the place that it joins. */
static __always_inline void task_joins_queue(struct task_struct *p, struct task_ctx *t,
					     struct plimsoll_cpu *c, s32 cpu, u32 tier, u64 now)
{
	u32 place = place_of(t, cpu, tier);
	bool moves;

	/*
	 * To the queue of a CPU, which then is locked. One that has run there comes back:
	 * the next may be on its way from the queue to the CPU, so it looks empty.
	 */
	if (t->in_own_queue && (t->slept_ns || t->place != place) &&
	    !(c->runs_bound && c->tier == tier) && !scx_bpf_dsq_nr_queued(cpu_queue(cpu, tier)))
		cpu_clock_catches_up(c, llc_of(cpu), tier);
	moves = has_moved(t, p, place);
	order_follow(t, place);
	load_enters(t, p, tier);
	if (moves) {
		plim_order_leave(&t->order, clock_at(place), effective_weight(t, p));
		t->ran_on = 0;
	}
	cgroup_follow_again(p, t, now);
	order_join(t, p, llc_of(cpu), now);
}

/* Whether at most @nr tasks run or wait on a CPU, be it in the queue of its shard. Cheap. */
static __always_inline bool has_at_most(s32 cpu, u32 nr)
{
	const struct rq *rq = bpf_per_cpu_ptr(&runqueues, (u32)cpu);

	return rq && rq->scx.nr_running <= nr;
}

/*
 * Whether a task, beside the one that comes or runs there, is in the kernel's own queue of a
 * CPU, where no idle CPU finds it: a second one would wait there for the first. Two meet if the
 * CPU finds one for itself while another is on its way there. Since Linux 7.1 the kernel takes
 * the second one back (SCX_ENQ_IMMED).
 */
static __always_inline bool has_local(s32 cpu)
{
	return !SCX_ENQ_IMMED && !has_at_most(cpu, 1) &&
	       scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu) > 0;
}

/* Whether a task waits for this CPU alone, beside the one that is being queued. */
static __always_inline bool others_wait(const struct plimsoll_cpu *c, s32 cpu)
{
	return !has_at_most(cpu, 1 + (c->tier < PLIMSOLL_TIERS)) &&
	       (scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu) > 0 ||
		scx_bpf_dsq_nr_queued(cpu_queue(cpu, PLIMSOLL_TIER_NORMAL)) > 0);
}

/*
 * Whether no normal task that waits for a CPU comes before one with this @deadline, as the shard
 * compares it. The deadline of the running task says nothing about them, least of all if that runs
 * before its turn or in a server slice. A task that owes much and preempts it would move the clock
 * past their deadlines.
 */
static __always_inline bool is_next(struct plimsoll_cpu *c, u32 llc, s32 cpu, u64 deadline)
{
	u64 of_prev = c->prev_deadline, first;

	if (!tier_waits(llc, cpu, PLIMSOLL_TIER_NORMAL))
		return true;
	/* A dispatch that has unlocked the run queue meanwhile wants its own again. */
	c->prev_deadline = deadline;
	first = queue_to_serve(PLIMSOLL_TIER_NORMAL, cpu, true);
	c->prev_deadline = of_prev;
	return !first;
}

/* Whether a task of a lower tier comes from that queue while normal work waits for its CPU. */
static __always_inline bool precedes_normal(const struct plimsoll_cpu *c, s32 cpu, u32 tier)
{
	return !SCX_ENQ_IMMED && tier > PLIMSOLL_TIER_NORMAL && !c->server &&
	       tier_waits(llc_of(cpu), cpu, PLIMSOLL_TIER_NORMAL);
}

/* Only chooses; whether the task goes straight to an idle CPU is for ops.enqueue(). */
s32 BPF_STRUCT_OPS(plimsoll_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct task_ctx *t = task_of(p);
	struct plimsoll_group *group = t ? group_at(t->slot) : NULL;
	bool is_idle = false;
	s32 cpu;

	if (!group)
		return prev_cpu;
	cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &is_idle);
	t->claimed = is_idle ? cpu + 1 : 0;
	if (is_idle)
		return cpu;
	/* The group of a task that is new, or has moved, is looked up when it is queued. */
	if (t->groups_seen != READ_ONCE(groups_changed) || p->policy == POLICY_BATCH ||
	    tier_of(group, t, p) != PLIMSOLL_TIER_NORMAL)
		return cpu;
	return cpu_to_preempt(p, cpu, t->order.request_ns, bpf_ktime_get_ns());
}

/*
 * Wakes an idle CPU for a queued task, unless one was woken already. Returns
 * whether a CPU will look for work.
 */
static __always_inline bool
wake_for(struct task_struct *p, const struct task_ctx *t, s32 cpu, bool is_claimed, u64 enq_flags)
{
	struct plimsoll_cpu *c = cpu_at(cpu);
	s32 idle;

	if (enq_flags & SCX_ENQ_LAST) {
		/*
		 * This CPU had no task that may run and is about to go idle. The
		 * limit may have ended since: dispatch once more.
		 */
		scx_bpf_kick_cpu(cpu, 0);
	}
	/* It comes for this task alone, or has the only CPU of the task woken by its coming. */
	if ((is_claimed || (enq_flags & SCX_ENQ_WAKEUP && t->in_own_queue)) && c &&
	    c->state == PLIMSOLL_CPU_IDLE && !has_local(cpu)) {
		if (!is_claimed)
			scx_bpf_test_and_clear_cpu_idle(cpu);
		return true;
	}
	/* Also for one that wakes: a CPU may have become idle since the selection. */
	idle = any_cpu_is_idle() ? scx_bpf_select_cpu_and(p, cpu, 0, p->cpus_ptr, 0) : -1;
	if (idle >= 0 && is_offline(idle))
		return kick_idle_for(p) || enq_flags & SCX_ENQ_LAST;
	if (idle >= 0)
		scx_bpf_kick_cpu(idle, SCX_KICK_IDLE);
	return idle >= 0 || enq_flags & SCX_ENQ_LAST;
}

/*
 * Whether a normal task that no limit holds up goes straight to its CPU, which saves a
 * dispatch: as the only one that waits there. Not while that CPU owes a dispatch to lower
 * tiers or to tasks that waited too long.
 */
static __always_inline bool
goes_direct(const struct task_ctx *t, struct plimsoll_cpu *c, u32 llc, s32 cpu, u64 now)
{
	if (!t->in_own_queue)
		return false;
	if (others_wait(c, cpu) || shard_waits(llc, PLIMSOLL_TIER_NORMAL) ||
	    READ_ONCE(overdue_since_ns[llc % PLIMSOLL_LLCS_MAX]))
		return false;
	if (!server_is_due(c, PLIMSOLL_SERVER_BEHIND_NORMAL, now))
		return true;
	if (lower_waits(PLIMSOLL_TIER_NORMAL, cpu))
		return false;
	server_is_unused(c, PLIMSOLL_SERVER_BEHIND_NORMAL, now);
	return true;
}

/* Queues a task in order, and has a CPU look for it. */
static __always_inline void queue_task(struct task_struct *p, struct task_ctx *t,
				       const struct plimsoll_group *chain, struct plimsoll_cpu *c,
				       u32 tier, s32 cpu, bool is_claimed, u64 enq_flags, u64 now)
{
	u32 llc = llc_of(cpu);
	bool is_first;
	s32 lower;

	/* Not one that some of the CPUs must leave, which would look for it in vain. */
	if (runs_anywhere(p) && (tier == PLIMSOLL_TIER_NORMAL || is_unlimited(chain)))
		waiting_enters(t, llc, tier);
	is_first = enq_flags & SCX_ENQ_WAKEUP && p->policy != POLICY_BATCH &&
		   preempts(c, tier, shared_deadline(c, t, tier), t->order.request_ns, now);
	scx_bpf_dsq_insert_vtime(p, queue_of(t, cpu, tier), SLICE_QUEUED_NS, t->order.deadline,
				 enq_flags);
	if (wake_for(p, t, cpu, is_claimed, enq_flags))
		return;
	lower = is_first ? cpu : cpu_of_lower_tier(p, cpu, tier);
	if (lower >= 0)
		take_cpu(lower);
}

static __always_inline void
queue_overdue(struct task_struct *p, struct task_ctx *t, s32 cpu, u64 enq_flags, u64 now)
{
	u32 llc = llc_of(cpu);

	t->overdue = PLIMSOLL_OVERDUE;
	t->out_of_order = 1;
	/* A barrier, too, before idle CPUs are looked for: see work_waits(). */
	__sync_lock_test_and_set(&overdue_since_ns[llc % PLIMSOLL_LLCS_MAX], now);
	scx_bpf_dsq_insert(p, overdue_id(llc), SLICE_MIN_NS, enq_flags);
	/* Other LLCs do not look at this queue. */
	if (!kick_idle_of_llc(p, cpu) && enq_flags & SCX_ENQ_LAST)
		scx_bpf_kick_cpu(cpu, 0);
}

/*
 * Whether a task goes straight to a CPU that was claimed for it. With SCX_ENQ_IMMED, to an idle
 * one: if other work takes that first, the task comes to ops.enqueue() again. Without, it would not
 * if a task of this class does: it is queued, and that CPU is the first to look. But where the
 * kernel has claimed the CPU of the waker, which is about to sleep, the task follows it.
 */
static __always_inline bool takes_at_once(const struct plimsoll_cpu *c, s32 cpu, u32 tier)
{
	if (SCX_ENQ_IMMED)
		return c->tier >= PLIMSOLL_TIERS;
	return c->tier <= tier && cpu == (s32)bpf_get_smp_processor_id();
}

/* Without memory for a context it is treated as a task of no group, until it is queued again. */
static __noinline struct task_ctx *task_begins(struct task_struct *p)
{
	struct task_ctx *t;

	t = bpf_task_storage_get(&tasks, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t)
		return NULL;
	__builtin_memset(t, 0, sizeof(*t));
	t->charged_ns = p->se.sum_exec_runtime;
	return t;
}

void BPF_STRUCT_OPS(plimsoll_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct task_ctx *t = task_of(p) ?: task_begins(p);
	struct plimsoll_group *group, *chain;
	u64 now = bpf_ktime_get_ns();
	s32 cpu = scx_bpf_task_cpu(p);
	struct plimsoll_cpu *c = cpu_at(cpu);
	u32 tier, llc = llc_of(cpu);
	bool is_claimed = t && t->claimed == (u32)cpu + 1, goes_at_once;

	if (t)
		t->claimed = 0;

	/* Tasks whose context could not be allocated, or for which this CPU may kick no other. */
	if (!t || !c || goes_offline()) {
		/* It has no place, where its run would move the clock. */
		if (t)
			t->place = 0;
		if (c && runs_below(c, PLIMSOLL_TIER_NORMAL))
			enq_flags |= SCX_ENQ_PREEMPT;
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, PLIM_BATCH_SLICE_DEFAULT_NS, enq_flags);
		return;
	}
	if (enq_flags & SCX_ENQ_WAKEUP)
		waker_lets_go(t);
	/* Admitted and taken back before it ran: see has_local(). */
	if (enq_flags & SCX_ENQ_REENQ) {
		return_chain(t->chain, cpu);
		c->left_ns = 0;
		c->server_granted = PLIMSOLL_SERVER_NONE;
		if (c->state != PLIMSOLL_CPU_BATCH)
			token_release(c, cpu);
	}
	waiting_leaves(t);
	if (!t->waiting_since_ns)
		t->waiting_since_ns = now;
	/* One that wakes has not waited; housekeeping finds those for which that is wrong. */
	if (!(enq_flags & SCX_ENQ_WAKEUP) && is_overdue(p)) {
		queue_overdue(p, t, cpu, enq_flags, now);
		return;
	}
	if (t->groups_seen != READ_ONCE(groups_changed))
		task_refresh(p, t, now);
	group = group_at(t->slot);
	chain = group_at(t->chain);
	if (!group || !chain)
		return;
	if ((group->params.flags & SOFT_PER_TASK) != SOFT_PER_TASK)
		t->background = 0;
	t->in_own_queue = is_bound(p);
	cgroup_follow(p, t, now);
	tier = tier_of(group, t, p) & PLIMSOLL_TIER_MASK;
	tier_is_seen(tier);
	task_joins_queue(p, t, c, cpu, tier, now);
	if (!is_plain(chain) && READ_ONCE(nr_limited) > 0 && !is_under_no_limit(p, t) &&
	    park_if_limited(p, t, group, cpu, enq_flags, now))
		return;
	goes_at_once = (is_claimed || tier == PLIMSOLL_TIER_NORMAL) &&
		       (is_plain(chain) || admits_at_once(t->chain, cpu));
	if (goes_at_once && is_claimed && takes_at_once(c, cpu, tier)) {
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SLICE_QUEUED_NS, enq_flags | SCX_ENQ_IMMED);
		return;
	}
	if (goes_at_once && tier == PLIMSOLL_TIER_NORMAL) {
		if (p->policy != POLICY_BATCH && enq_flags & SCX_ENQ_WAKEUP &&
		    preempts(c, tier, shared_deadline(c, t, tier), t->order.request_ns, now) &&
		    is_next(c, llc, cpu, shared_deadline(c, t, tier))) {
			c->is_taken = 1;
			enq_flags |= SCX_ENQ_PREEMPT;
			/* A bound task has no other CPU to go to. */
			if (!t->in_own_queue)
				enq_flags |= SCX_ENQ_IMMED;
			scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SLICE_QUEUED_NS, enq_flags);
			return;
		}
		if (!(enq_flags & SCX_ENQ_LAST) && goes_direct(t, c, llc, cpu, now)) {
			if (runs_below(c, PLIMSOLL_TIER_NORMAL))
				enq_flags |= SCX_ENQ_PREEMPT;
			scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SLICE_QUEUED_NS, enq_flags);
			return;
		}
	}
	if (tier == PLIMSOLL_TIER_BACKGROUND && group->params.flags & PLIMSOLL_SOFT_CAP) {
		WRITE_ONCE(group->in_background, 1);
		group_timer_at(t->slot, now + BACKGROUND_GRAIN_NS);
	}
	queue_task(p, t, chain, c, tier, cpu, is_claimed, enq_flags, now);
}

/* Whether a CPU that is asked for a task runs a real-time one all the same: sched_rt_runnable(). */
static __always_inline bool runs_real_time(s32 cpu)
{
	const struct rq *rq = bpf_per_cpu_ptr(&runqueues, (u32)cpu);

	return rq && rq->rt.rt_queued > 0;
}

void BPF_STRUCT_OPS(plimsoll_dispatch, s32 cpu, struct task_struct *prev)
{
	/*
	 * A task that is taken now would wait for it: an idle CPU looks in place of this one.
	 * With SCX_ENQ_IMMED the kernel takes the task back.
	 */
	if (!SCX_ENQ_IMMED && runs_real_time(cpu)) {
		scx_bpf_test_and_clear_cpu_idle(cpu);
		if (normal_waits(llc_of(cpu)) || lower_tiers_wait(llc_of(cpu)))
			kick_idle_of_llc(NULL, cpu);
		return;
	}
	dispatch_cpu(cpu, prev, bpf_ktime_get_ns());
}

bool BPF_STRUCT_OPS(plimsoll_yield, struct task_struct *from, struct task_struct *to)
{
	struct task_ctx *t = task_of(from);

	/* The run is charged when it ends, which is now. */
	if (t)
		t->has_yielded = 1;
	scx_bpf_task_set_slice(from, 0);
	return false;
}

/*
 * How long a task that begins to run may run: the least of its admission, its own
 * cap and the server slice, if it runs in one. A task that bypassed admission, as
 * one that goes straight to its CPU does, is admitted here; if refused, it runs for
 * the shortest slice, which is a debt.
 */
static __always_inline u64 left_of(struct task_ctx *t, const struct plimsoll_group *group,
				   struct plimsoll_cpu *c, s32 cpu, u64 now)
{
	/* A task that was woken directly to this CPU may precede the one that was admitted. */
	bool granted = (c->left_slot == t->chain || c->left_slot == PLIMSOLL_SLOT_NONE) &&
		       (!c->server_granted || server_is_for(c->server_granted, c->tier));
	struct plimsoll_group *chain = group_at(t->chain);
	u64 left_ns = granted ? c->left_ns : 0, own_ns;

	if (!left_ns)
		left_ns = !chain || is_plain(chain) ? PLIM_UNLIMITED : admit_task(t, cpu, now);
	c->left_ns = 0;
	own_ns = task_run_ns(t, group, now);
	left_ns = plim_max(plim_min(left_ns, own_ns), SLICE_MIN_NS);
	c->server = granted ? c->server_granted : PLIMSOLL_SERVER_NONE;
	if (c->server)
		left_ns = plim_min(left_ns, machine_server.slice_ns);
	return left_ns;
}

/* Whether a CPU runs a tier below another one. */
static __always_inline void show_below(u32 above, s32 cpu, u32 was, u32 tier)
{
	if (was <= above && tier > above)
		cpus_add(lower_cpus[above], cpu);
	else if (was > above && tier <= above)
		cpus_remove(lower_cpus[above], cpu);
}

/*
 * Shows the tiers above it that a CPU runs a lower one: until it runs another one or goes idle,
 * so that it writes nothing from one batch task to the next. A task of another class that runs
 * meanwhile costs a look in vain.
 */
static __always_inline void show_tier(struct plimsoll_cpu *c, s32 cpu, u32 tier)
{
	show_below(PLIMSOLL_TIER_NORMAL, cpu, c->tier_shown, tier);
	show_below(PLIMSOLL_TIER_BATCH, cpu, c->tier_shown, tier);
	c->tier_shown = tier;
}

void BPF_STRUCT_OPS(plimsoll_running, struct task_struct *p)
{
	u64 now = bpf_ktime_get_ns(), left_ns, waited_ns = 0;
	s32 cpu = scx_bpf_task_cpu(p);
	struct plimsoll_cpu *c = cpu_at(cpu);
	struct task_ctx *t = task_of(p);
	struct plimsoll_group_cpu *gc;
	struct plimsoll_group *group;
	bool goes_on, is_taken, in_order;
	u32 tier, place;

	group = t ? group_at(t->slot) : NULL;
	gc = t ? group_cpu_at(t->slot, cpu) : NULL;
	if (!c || !t || !group || !gc)
		return;
	if (t->waiting_since_ns)
		waited_ns = plim_elapsed_ns(now, t->waiting_since_ns);
	gc->wait_ns += waited_ns;
	gc->nr_switches++;
	in_order = !t->out_of_order;
	t->out_of_order = 0;
	if (t->overdue) {
		gc->nr_overdue += t->overdue == PLIMSOLL_OVERDUE;
		gc->nr_holders += t->overdue == PLIMSOLL_HOLDER;
		remember(cpu, t->overdue, t->slot, p->pid, waited_ns);
		t->overdue = 0;
	}
	waiting_leaves(t);
	t->waiting_since_ns = 0;
	t->started_ns = now;
	c->run_is_counted = is_limited(group->params.flags);
	if (c->run_is_counted)
		__sync_fetch_and_add(&group->nr_running, 1);
	tier = tier_of(group, t, p) & PLIMSOLL_TIER_MASK;
	place = place_of(t, cpu, tier);
	goes_on = c->slice_pid == p->pid;
	/*
	 * It may come from another LLC, or from a queue that does not keep its order; or the kernel
	 * has queued it, as it does with a task that may not migrate.
	 */
	in_order = in_order && t->place == place && (goes_on || !t->has_run);
	order_follow(t, place);
	load_enters(t, p, tier);
	/* Others have come and gone while it waited, by which it is charged. */
	cgroup_follow(p, t, now);
	/* A task that goes on after a change has moved the clock at its start. */
	if (!goes_on)
		c->runs_early = !in_order;
	if (in_order && !goes_on)
		clocks_follow(t, c, llc_of(cpu), tier);
	else if (!in_order)
		plim_order_forgive(&t->order, clock_at(place), effective_weight(t, p));
	tier_is_seen(tier);
	c->slot = t->slot;
	c->tier = tier;
	c->runs_bound = t->in_own_queue;
	is_taken = c->is_taken;
	c->is_taken = 0;
	c->nr_rounds = 0;
	show_tier(c, cpu, tier);
	left_ns = left_of(t, group, c, cpu, now);
	if (has_local(cpu) || precedes_normal(c, cpu, tier))
		left_ns = SLICE_MIN_NS;
	/* It has a token, unless it bypassed admission. */
	if (headroom_on && is_batch(group) && !c->token)
		token_force(c, cpu);
	cpu_enter(c, is_batch(group) ? PLIMSOLL_CPU_BATCH : PLIMSOLL_CPU_OTHER, now);
	if (goes_on)
		left_ns = plim_min(left_ns, plim_sub_floor(c->slice_until_ns, now));
	slice_begins(p, t, c, cpu, tier, left_ns, now);
	if (!goes_on)
		slice_is_of(c, p, now);
	else if (!left_ns || is_taken)
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	shortage_update(now);
}

void BPF_STRUCT_OPS(plimsoll_stopping, struct task_struct *p, bool runnable)
{
	s32 cpu = scx_bpf_task_cpu(p);
	u64 now = bpf_ktime_get_ns();
	struct plimsoll_cpu *c = cpu_at(cpu);
	struct task_ctx *t = task_of(p);
	struct plimsoll_group_cpu *gc;
	struct plimsoll_group *group, *chain;

	group = t ? group_at(t->slot) : NULL;
	gc = t ? group_cpu_at(t->slot, cpu) : NULL;
	if (!c || !t || !group || !gc || !t->started_ns)
		return;
	charge_task(p, t, cpu, now);
	chain = group_at(t->chain);
	t->in_kernel = 0;
	if (chain && !is_unlimited(chain)) {
		return_chain(t->chain, cpu);
		t->in_kernel = may_hold_locks(p, runnable);
	}
	c->server = PLIMSOLL_SERVER_NONE;
	t->started_ns = 0;
	if (!runnable) {
		plim_order_sleep(&t->order, clock_at(t->place), has_fixed_request(p));
		t->slept_ns = now;
		load_leaves(t);
	}
	c->tier = PLIMSOLL_TIERS;
	if (c->run_is_counted)
		__sync_fetch_and_sub(&group->nr_running, 1);
	cpu_enter(c, PLIMSOLL_CPU_OTHER, now);
	token_release(c, cpu);
	shortage_update(now);
	c->slice_end_ns = 0;
	if (!runnable)
		return;
	t->waiting_since_ns = now;
	c->slice_pid = 0;
	/* Its slice is taken from a task that is preempted. */
	if (p->scx.slice || c->is_taken) {
		gc->nr_preempted++;
		remember(cpu, PLIMSOLL_PREEMPTED, t->slot, p->pid, p->scx.slice);
	}
	/*
	 * With a slice left the kernel would keep it on this CPU, before all that
	 * waits. Without, it returns to its queue, where any CPU finds it.
	 */
	scx_bpf_task_set_slice(p, 0);
}

void BPF_STRUCT_OPS(plimsoll_update_idle, s32 cpu, bool idle)
{
	struct plimsoll_cpu *c = cpu_at(cpu);
	u64 now = bpf_ktime_get_ns();

	if (!c)
		return;
	cpu_enter(c, idle ? PLIMSOLL_CPU_IDLE : PLIMSOLL_CPU_OTHER, now);
	if (idle) {
		show_tier(c, cpu, PLIMSOLL_TIER_NORMAL);
		server_goes_idle(c, now);
	}
	/*
	 * Before Linux 7.1 a CPU that is not active yet, or no more, goes idle beside a task whose
	 * slice is over: it is not asked to dispatch, and the kernel puts the task into its own
	 * queue. At the last edge of one that goes offline there is none.
	 */
	if (idle && !SCX_ENQ_IMMED && scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu) > 0)
		scx_bpf_kick_cpu(cpu, 0);
	/*
	 * The last edge of a CPU that goes offline, which may not kick: see goes_offline(). Nor
	 * must others choose it: the kernel has noted it as idle before this.
	 */
	if (!c->online) {
		scx_bpf_test_and_clear_cpu_idle(cpu);
		return;
	}
	if (idle && work_waits(c, cpu, now))
		scx_bpf_kick_cpu(cpu, 0);
	if (!headroom_on)
		return;
	if (idle)
		headroom_on_idle(cpu);
	else
		headroom_on_busy(c->token);
	shortage_update(now);
}

/*
 * A task of a higher class takes this CPU: those that were inserted for it look for another.
 * User space leaves this to kernels with SCX_ENQ_IMMED where they have that, from Linux 7.1 on.
 */
void BPF_STRUCT_OPS(plimsoll_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	scx_bpf_reenqueue_local();
}

void BPF_STRUCT_OPS(plimsoll_enable, struct task_struct *p)
{
	task_begins(p);
}

void BPF_STRUCT_OPS(plimsoll_disable, struct task_struct *p)
{
	struct task_ctx *t = task_of(p);

	if (!t)
		return;
	load_leaves(t);
	waiting_leaves(t);
	t->waiting_since_ns = 0;
}

void BPF_STRUCT_OPS(plimsoll_cgroup_move, struct task_struct *p, struct cgroup *from,
		    struct cgroup *to)
{
	struct task_ctx *t = task_of(p);

	if (t)
		t->groups_seen = 0;
}

/*
 * The kernel shows all cgroups when the scheduler is loaded, those around others first,
 * and each new one afterwards.
 */
s32 BPF_STRUCT_OPS_SLEEPABLE(plimsoll_cgroup_init, struct cgroup *cgrp,
			     struct scx_cgroup_init_args *args)
{
	record_begins(cgrp, args->weight);
	cpu_max_changes(cgrp, args->bw_period_us, args->bw_quota_us, args->bw_burst_us);
	return 0;
}

void BPF_STRUCT_OPS(plimsoll_cgroup_set_bandwidth, struct cgroup *cgrp, u64 period_us, u64 quota_us,
		    u64 burst_us)
{
	cpu_max_changes(cgrp, period_us, quota_us, burst_us);
}

void BPF_STRUCT_OPS(plimsoll_cgroup_exit, struct cgroup *cgrp)
{
	cpu_max_ends(cgrp);
	record_ends(cgrp);
}

static __always_inline void set_online(s32 cpu, bool online)
{
	struct plimsoll_cpu *c = cpu_at(cpu);

	if (!c || !!c->online == online)
		return;
	c->online = online;
	__sync_fetch_and_add(&nr_online, online ? 1 : -1);
}

void BPF_STRUCT_OPS(plimsoll_cpu_online, s32 cpu)
{
	set_online(cpu, true);
}

void BPF_STRUCT_OPS(plimsoll_cpu_offline, s32 cpu)
{
	struct task_struct *p;
	u32 tier;

	set_online(cpu, false);
	/* It is not asked to dispatch any more: the kernel takes these elsewhere. */
	bpf_for (tier, 0, PLIMSOLL_TIERS) {
		bpf_for_each (scx_dsq, p, cpu_queue(cpu, tier), 0) {
			scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL_ON | cpu, 0);
		}
	}
	bpf_for_each (scx_dsq, p, overdue_id(llc_of(cpu)), 0) {
		if (scx_bpf_task_cpu(p) == cpu)
			scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL_ON | cpu, 0);
	}
}

/*
 * Audits the recorded state of a CPU. A CPU that was idle when the scheduler was
 * loaded, or changed while it was being enabled, had no edge. So a state that has
 * lasted for a while is compared with the current task.
 */
static __noinline void audit_cpu(s32 cpu, u64 now)
{
	struct rq *rq = (struct rq *)bpf_per_cpu_ptr(&runqueues, (u32)cpu);
	struct plimsoll_cpu *c = cpu_at(cpu);
	u64 sequence;
	bool idle;
	u32 state;

	if (!c || !rq)
		return;
	/* In this order: a CPU notes its state, and only then switches. */
	idle = BPF_CORE_READ(rq, curr, pid) == 0;
	sequence = READ_ONCE(c->sequence);
	state = READ_ONCE(c->state);
	if (sequence & 1 || plim_elapsed_ns(now, READ_ONCE(c->since_ns)) < STALE_STATE_NS)
		return;
	if (state == (idle ? PLIMSOLL_CPU_OTHER : PLIMSOLL_CPU_IDLE))
		cpu_enter(c, idle ? PLIMSOLL_CPU_IDLE : PLIMSOLL_CPU_OTHER, now);
	/* A task was dispatched there, but left, or normal work came first. */
	if (c->state == PLIMSOLL_CPU_IDLE ||
	    (c->state == PLIMSOLL_CPU_OTHER && c->tier == PLIMSOLL_TIERS))
		token_release(c, cpu);
}

static int housekeeping_timer(void *map, int *key, struct bpf_timer *timer)
{
	u64 now = bpf_ktime_get_ns();
	u32 cpu;

	bpf_for (cpu, 0, nr_cpu_ids) {
		audit_cpu(cpu, now);
	}
	return housekeeping(map, key, timer);
}

static void cpus_init(u64 now)
{
	const struct cpumask *online = scx_bpf_get_online_cpumask();
	struct plimsoll_cpu *c;
	u32 cpu;

	bpf_for (cpu, 0, nr_cpu_ids) {
		c = cpu_at(cpu);
		if (!c)
			break;
		c->llc = llc_of(cpu);
		c->room_ppm = PLIM_PPM;
		c->tier = PLIMSOLL_TIERS;
		c->since_ns = now;
		c->room_updated_ns = now;
		set_online(cpu, bpf_cpumask_test_cpu(cpu, online));
	}
	scx_bpf_put_cpumask(online);
}

/* Inline: the kernel wants to see the callback itself. */
static __always_inline struct timer_value *
machine_timer_init(u32 key, int (*callback)(void *map, int *key, struct bpf_timer *timer))
{
	struct timer_value *value = bpf_map_lookup_elem(&machine_timers, &key);

	if (!value)
		return NULL;
	bpf_timer_init(&value->timer, &machine_timers, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&value->timer, callback);
	return value;
}

static void timers_init(void)
{
	struct timer_value *value;
	u32 key;

	bpf_for (key, 0, nr_slots) {
		value = bpf_map_lookup_elem(&group_timers, &key);
		if (!value)
			break;
		bpf_timer_init(&value->timer, &group_timers, CLOCK_MONOTONIC);
		bpf_timer_set_callback(&value->timer, group_timer);
	}
	bpf_for (key, 0, nr_cpu_ids) {
		value = bpf_map_lookup_elem(&slice_timers, &key);
		if (!value)
			break;
		bpf_timer_init(&value->timer, &slice_timers, CLOCK_MONOTONIC);
		bpf_timer_set_callback(&value->timer, slice_timer);
	}
	machine_timer_init(HEADROOM_TIMER, headroom_update);
	machine_timer_init(LIMITS_TIMER, limits_timer);
	machine_timer_init(PASS_TIMER, pass_timer);
	machine_timer_init(URGENT_TIMER, urgent_timer);
	value = machine_timer_init(HOUSEKEEPING_TIMER, housekeeping_timer);
	if (value)
		bpf_timer_start(&value->timer, STALE_STATE_NS, 0);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(plimsoll_init)
{
	struct plimsoll_group *group = group_at(PLIMSOLL_SLOT_DEFAULT);

	if (!group)
		return -ENOENT;
	group->params.flags = PLIMSOLL_USED;
	group->params.parent = PLIMSOLL_SLOT_NONE;
	cpus_init(bpf_ktime_get_ns());
	timers_init();
	return queues_create();
}

void BPF_STRUCT_OPS(plimsoll_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(plimsoll_ops, .select_cpu = (void *)plimsoll_select_cpu,
	       .enqueue = (void *)plimsoll_enqueue, .dispatch = (void *)plimsoll_dispatch,
	       .running = (void *)plimsoll_running, .stopping = (void *)plimsoll_stopping,
	       .yield = (void *)plimsoll_yield, .update_idle = (void *)plimsoll_update_idle,
	       .cpu_release = (void *)plimsoll_cpu_release, .enable = (void *)plimsoll_enable,
	       .disable = (void *)plimsoll_disable, .cgroup_init = (void *)plimsoll_cgroup_init,
	       .cgroup_exit = (void *)plimsoll_cgroup_exit,
	       .cgroup_move = (void *)plimsoll_cgroup_move,
	       .cgroup_set_bandwidth = (void *)plimsoll_cgroup_set_bandwidth,
	       .cpu_online = (void *)plimsoll_cpu_online,
	       .cpu_offline = (void *)plimsoll_cpu_offline, .dump = (void *)plimsoll_dump,
	       .dump_cpu = (void *)plimsoll_dump_cpu, .dump_task = (void *)plimsoll_dump_task,
	       .init = (void *)plimsoll_init, .exit = (void *)plimsoll_exit,
	       /*
		* Without ENQ_EXITING the kernel has tasks that exit precede all tiers, and with two
		* of them a CPU is not asked to dispatch. None is looked up by its id.
		*/
	       .flags = SCX_OPS_ENQ_LAST | SCX_OPS_ENQ_EXITING | SCX_OPS_KEEP_BUILTIN_IDLE,
	       .timeout_ms = 30000, .name = "plimsoll");

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Plimsoll's scheduler: the sched_ext callbacks for tasks and CPUs. Decisions
 * are made by the policy core; the headers beside this file gather the inputs of
 * each mechanism. docs/scheduler.md has a diagram.
 *
 * Every ordinary task is scheduled here: those of no group, and those of normal
 * groups, before those of batch groups. Real-time and deadline tasks are not.
 */
#include <scx/common.bpf.h>

#include "accounting.bpf.h"
#include "admission.bpf.h"
#include "batch.bpf.h"
#include "control.bpf.h"
#include "dispatch.bpf.h"
#include "dump.bpf.h"
#include "headroom.bpf.h"
#include "membership.bpf.h"
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

/* Whether a group is normal and without limits: its tasks need no admission. */
static __always_inline bool is_plain(const struct plimsoll_group *group)
{
	return !(group->params.flags & ~(u32)PLIMSOLL_USED) &&
	       group->params.parent >= PLIMSOLL_GROUPS_MAX;
}

/* Places the group of a runnable task among the others of its tier. */
static __always_inline u32 group_joins(struct plimsoll_group *group, const struct task_ctx *t,
				       u32 llc)
{
	u32 tier = tier_of(group, t->background);
	u64 queue = queue_id(queue_index(t->slot, t->background), llc);
	bool had_work = READ_ONCE(group->nr_running) || scx_bpf_dsq_nr_queued(queue);

	group_place(group, tier, had_work ? GROUP_LAG_NS : PLIM_BATCH_SLICE_DEFAULT_NS);
	return tier;
}

s32 BPF_STRUCT_OPS(plimsoll_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct task_ctx *t = task_of(p);
	u64 now = bpf_ktime_get_ns();
	struct plimsoll_group *group;
	bool is_idle = false;
	s32 cpu;

	group = t ? group_at(t->slot) : NULL;
	if (!group)
		return prev_cpu;
	if (is_plain(group)) {
		cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &is_idle);
	} else {
		cpu = place_on_idle(p, prev_cpu, now);
		is_idle = cpu >= 0 && admits_at_once(t->slot, cpu);
		if (cpu < 0)
			cpu = prev_cpu;
	}
	if (is_idle && t->groups_seen == READ_ONCE(groups_changed)) {
		t->background = 0;
		group_joins(group, t, llc_of(cpu));
		/* If other work takes that CPU first, the task comes to ops.enqueue() after all. */
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, PLIM_BATCH_SLICE_DEFAULT_NS, SCX_ENQ_IMMED);
	}
	return cpu;
}

/* Preempts a task of a lower tier for one that found no idle CPU. */
__noinline int preempt_lower(struct task_struct *p __arg_trusted, s32 cpu, u32 tier)
{
	struct plimsoll_cpu *c;
	s32 other;
	u32 i;

	bpf_for (i, 0, PLACE_CPUS_MAX) {
		if (i >= nr_cpu_ids)
			break;
		other = ((u32)cpu + i) % nr_cpu_ids;
		c = cpu_at(other);
		if (!c || c->tier >= PLIMSOLL_TIERS || c->tier <= tier ||
		    !bpf_cpumask_test_cpu(other, p->cpus_ptr))
			continue;
		scx_bpf_kick_cpu(other, SCX_KICK_PREEMPT);
		return 0;
	}
	return 0;
}

/*
 * Wakes an idle CPU for a queued task, unless one was woken already. Returns
 * whether a CPU will look for work.
 */
static __always_inline bool wake_for(struct task_struct *p, s32 cpu, u64 enq_flags, u64 now)
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
	/* A waking task is on the idle CPU that was selected, if there was one. */
	if (enq_flags & SCX_ENQ_WAKEUP)
		return c && c->state == PLIMSOLL_CPU_IDLE;
	idle = place_on_idle(p, cpu, now);
	if (idle >= 0)
		scx_bpf_kick_cpu(idle, SCX_KICK_IDLE);
	return idle >= 0 || enq_flags & SCX_ENQ_LAST;
}

void BPF_STRUCT_OPS(plimsoll_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct task_ctx *t = task_of(p);
	struct plimsoll_group *group;
	u64 now = bpf_ktime_get_ns();
	s32 cpu = scx_bpf_task_cpu(p);
	u32 index, tier, llc = llc_of(cpu);

	/*
	 * Kernel threads bound to one CPU, and tasks whose context could not be
	 * allocated. (Exiting tasks do not come here.)
	 */
	if (!t || (p->flags & PF_KTHREAD && p->nr_cpus_allowed == 1)) {
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, PLIM_BATCH_SLICE_DEFAULT_NS, enq_flags);
		return;
	}
	if (is_dying(p) || is_overdue(t, now)) {
		t->overdue = !is_dying(p);
		scx_bpf_dsq_insert(p, overdue_id(llc), SLICE_MIN_NS, enq_flags);
		WRITE_ONCE(overdue_waits[llc % PLIMSOLL_LLCS_MAX], true);
		wake_for(p, cpu, enq_flags, now);
		return;
	}
	task_leaves_parked(t);
	task_refresh(p, t, now);
	group = group_at(t->slot);
	if (!group)
		return;
	if (!t->waiting_since_ns)
		t->waiting_since_ns = now;
	if (!task_run_ns(t, group, now)) {
		struct plim_ratecap_params params = group->params.cap;
		u64 eligible_ns = plim_ratecap_eligible_ns(&t->cap, &params);

		t->parked = 1;
		__sync_fetch_and_add(&group->nr_parked, 1);
		scx_bpf_dsq_insert_vtime(p, parked_id(t->slot), SLICE_MIN_NS, eligible_ns,
					 enq_flags);
		group_timer_at(t->slot, eligible_ns);
		return;
	}
	if ((group->params.flags & SOFT_PER_TASK) != SOFT_PER_TASK)
		t->background = 0;
	index = queue_index(t->slot, t->background);
	tier = group_joins(group, t, llc);
	scx_bpf_dsq_insert_vtime(p, queue_id(index, llc), PLIM_BATCH_SLICE_DEFAULT_NS, t->vruntime,
				 enq_flags);
	queue_set_active(llc, index);
	if (t->background)
		group_timer_at(t->slot, now + BACKGROUND_GRAIN_NS);
	if (wake_for(p, cpu, enq_flags, now))
		return;
	if (READ_ONCE(nr_lower[tier % PLIMSOLL_TIERS]) > 0)
		preempt_lower(p, cpu, tier);
}

void BPF_STRUCT_OPS(plimsoll_dispatch, s32 cpu, struct task_struct *prev)
{
	dispatch_cpu(cpu, prev, bpf_ktime_get_ns());
}

void BPF_STRUCT_OPS(plimsoll_runnable, struct task_struct *p, u64 enq_flags)
{
	struct task_ctx *t = task_of(p);
	struct plimsoll_group *group;
	u64 now = bpf_ktime_get_ns();

	if (!t)
		return;
	task_refresh(p, t, now);
	count_runnable(t, true);
	t->waiting_since_ns = now;
	t->watched_since_ns = watched_since_ns(p, now);
	group = group_at(t->slot);
	if (group)
		vruntime_place(t, group, p);
}

void BPF_STRUCT_OPS(plimsoll_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct task_ctx *t = task_of(p);

	if (!t)
		return;
	count_runnable(t, false);
	t->waiting_since_ns = 0;
	t->watched_since_ns = 0;
	/* The kernel has removed it from its queue. */
	task_leaves_parked(t);
}

/*
 * How long a task that begins to run may run: the least of its admission, its own
 * cap and the server slice, if it was granted one. A task that bypassed admission,
 * because one of its attributes was changed while it ran, is admitted here; if
 * refused, it runs for the shortest slice, which is a debt.
 */
static __always_inline u64 left_of(struct task_ctx *t, const struct plimsoll_group *group,
				   struct plimsoll_cpu *c, s32 cpu, u64 now)
{
	/* A task that was woken directly to this CPU may precede the one that was admitted. */
	bool granted = c->left_slot == t->slot || c->left_slot == PLIMSOLL_SLOT_NONE;
	u64 left_ns = granted ? c->left_ns : 0, own_ns;

	if (!left_ns)
		left_ns = admit(t->slot, cpu, now);
	c->left_ns = 0;
	own_ns = task_run_ns(t, group, now);
	left_ns = plim_max(plim_min(left_ns, own_ns), SLICE_MIN_NS);
	c->behind = server_slice_ns && c->server_granted && granted;
	c->server_granted = 0;
	if (c->behind)
		left_ns = plim_min(left_ns, server_slice_ns);
	return left_ns;
}

/* Counts the CPUs that run a tier, for the tiers above it. */
static __always_inline void count_tier(u32 tier, s32 change)
{
	if (tier > PLIMSOLL_TIER_NORMAL && tier < PLIMSOLL_TIERS)
		__sync_fetch_and_add(&nr_lower[PLIMSOLL_TIER_NORMAL], change);
	if (tier > PLIMSOLL_TIER_BATCH && tier < PLIMSOLL_TIERS)
		__sync_fetch_and_add(&nr_lower[PLIMSOLL_TIER_BATCH], change);
}

void BPF_STRUCT_OPS(plimsoll_running, struct task_struct *p)
{
	u64 now = bpf_ktime_get_ns(), left_ns, waited_ns = 0, watched_since_ns;
	s32 cpu = scx_bpf_task_cpu(p);
	struct plimsoll_cpu *c = cpu_at(cpu);
	struct task_ctx *t = task_of(p);
	struct plimsoll_group_cpu *gc;
	struct plimsoll_group *group;
	u32 tier;

	group = t ? group_at(t->slot) : NULL;
	gc = t ? group_cpu_at(t->slot, cpu) : NULL;
	if (!c || !t || !group || !gc)
		return;
	if (t->waiting_since_ns)
		waited_ns = plim_elapsed_ns(now, t->waiting_since_ns);
	gc->wait_ns += waited_ns;
	gc->nr_switches++;
	if (t->overdue) {
		t->overdue = 0;
		gc->nr_overdue++;
		remember(cpu, PLIMSOLL_OVERDUE, t->slot, p->pid, waited_ns);
	}
	task_leaves_parked(t);
	t->waiting_since_ns = 0;
	t->started_ns = now;
	/* Charges the run between ops.stopping() and the switch, when it went to sleep. */
	watched_since_ns = t->watched_since_ns;
	charge_task(p, t, cpu, now);
	t->watched_since_ns = watched_since_ns;
	__sync_fetch_and_add(&group->nr_running, 1);
	group->min_vruntime = plim_batch_later(group->min_vruntime, t->vruntime);
	tier = tier_of(group, t->background) % PLIMSOLL_TIERS;
	groups_min_vruntime[tier] = plim_batch_later(groups_min_vruntime[tier], group->vruntime);
	c->slot = t->slot;
	c->tier = tier;
	count_tier(tier, 1);
	left_ns = left_of(t, group, c, cpu, now);
	/* It has a token, unless it bypassed admission. */
	if (group->params.flags & PLIMSOLL_YIELDS && !c->token)
		token_force(c, cpu);
	cpu_enter(c, is_batch(group) ? PLIMSOLL_CPU_BATCH : PLIMSOLL_CPU_OTHER, now);
	scx_bpf_task_set_slice(p, slice_of_left(left_ns));
	arm_slice(c, cpu, left_ns, now);
	shortage_update(now);
}

void BPF_STRUCT_OPS(plimsoll_stopping, struct task_struct *p, bool runnable)
{
	s32 cpu = scx_bpf_task_cpu(p);
	u64 now = bpf_ktime_get_ns();
	struct plimsoll_cpu *c = cpu_at(cpu);
	struct task_ctx *t = task_of(p);
	struct plimsoll_group_cpu *gc;
	struct plimsoll_group *group;

	group = t ? group_at(t->slot) : NULL;
	gc = t ? group_cpu_at(t->slot, cpu) : NULL;
	if (!c || !t || !group || !gc || !t->started_ns)
		return;
	charge_task(p, t, cpu, now);
	return_chain(t->slot, cpu);
	if (c->behind)
		server_slice_charge(c, plim_elapsed_ns(now, t->started_ns));
	t->started_ns = 0;
	count_tier(c->tier, -1);
	c->tier = PLIMSOLL_TIERS;
	__sync_fetch_and_sub(&group->nr_running, 1);
	cpu_enter(c, PLIMSOLL_CPU_OTHER, now);
	token_release(c, cpu);
	shortage_update(now);
	c->slice_end_ns = 0;
	if (!runnable)
		return;
	t->waiting_since_ns = now;
	/* A task that was preempted before it ran at all continues to wait. */
	if (!t->watched_since_ns)
		t->watched_since_ns = now;
	if (p->scx.slice) {
		gc->nr_preempted++;
		remember(cpu, PLIMSOLL_PREEMPTED, t->slot, p->pid, p->scx.slice);
	}
	/*
	 * With a slice left the kernel would keep it on this CPU, behind normal
	 * work. Without, it returns to its queue, where any CPU finds it.
	 */
	if (is_batch(group))
		scx_bpf_task_set_slice(p, 0);
}

void BPF_STRUCT_OPS(plimsoll_update_idle, s32 cpu, bool idle)
{
	struct plimsoll_cpu *c = cpu_at(cpu);
	u64 now = bpf_ktime_get_ns();

	if (!c)
		return;
	cpu_enter(c, idle ? PLIMSOLL_CPU_IDLE : PLIMSOLL_CPU_OTHER, now);
	if (!headroom_on)
		return;
	if (idle)
		headroom_on_idle(cpu);
	else
		headroom_on_busy(c->token);
	shortage_update(now);
}

void BPF_STRUCT_OPS(plimsoll_enable, struct task_struct *p)
{
	struct task_ctx *t;

	/* Without a context it is treated as a task of no group; see enqueue. */
	t = bpf_task_storage_get(&tasks, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t)
		return;
	__builtin_memset(t, 0, sizeof(*t));
	t->charged_ns = p->se.sum_exec_runtime;
}

void BPF_STRUCT_OPS(plimsoll_disable, struct task_struct *p)
{
	struct task_ctx *t = task_of(p);

	if (!t)
		return;
	count_runnable(t, false);
	t->waiting_since_ns = 0;
	t->watched_since_ns = 0;
}

void BPF_STRUCT_OPS(plimsoll_cgroup_move, struct task_struct *p, struct cgroup *from,
		    struct cgroup *to)
{
	struct task_ctx *t = task_of(p);

	if (t)
		t->groups_seen = 0;
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
	set_online(cpu, false);
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
	bool idle;

	if (!c || !rq || plim_elapsed_ns(now, c->since_ns) < STALE_STATE_NS)
		return;
	idle = BPF_CORE_READ(rq, curr, pid) == 0;
	if (idle && c->state == PLIMSOLL_CPU_OTHER)
		cpu_enter(c, PLIMSOLL_CPU_IDLE, now);
	else if (!idle && c->state == PLIMSOLL_CPU_IDLE)
		cpu_enter(c, PLIMSOLL_CPU_OTHER, now);
	/* A task was dispatched there, but normal work came first. */
	if (c->state == PLIMSOLL_CPU_OTHER && c->tier == PLIMSOLL_TIERS)
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

static void timers_init(void)
{
	struct timer_value *value;
	u32 key;

	bpf_for (key, 0, PLIMSOLL_GROUPS_MAX) {
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
	key = HEADROOM_TIMER;
	value = bpf_map_lookup_elem(&machine_timers, &key);
	if (value) {
		bpf_timer_init(&value->timer, &machine_timers, CLOCK_MONOTONIC);
		bpf_timer_set_callback(&value->timer, headroom_update);
	}
	key = HOUSEKEEPING_TIMER;
	value = bpf_map_lookup_elem(&machine_timers, &key);
	if (value) {
		bpf_timer_init(&value->timer, &machine_timers, CLOCK_MONOTONIC);
		bpf_timer_set_callback(&value->timer, housekeeping_timer);
		bpf_timer_start(&value->timer, STALE_STATE_NS, 0);
	}
}

s32 BPF_STRUCT_OPS_SLEEPABLE(plimsoll_init)
{
	struct plimsoll_group *group = group_at(PLIMSOLL_SLOT_DEFAULT);

	if (!group)
		return -ENOENT;
	group->params.flags = PLIMSOLL_USED;
	group->params.parent = PLIMSOLL_SLOT_NONE;
	group->params.weight = PLIM_GROUP_WEIGHT_DEFAULT;
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
	       .runnable = (void *)plimsoll_runnable, .running = (void *)plimsoll_running,
	       .stopping = (void *)plimsoll_stopping, .quiescent = (void *)plimsoll_quiescent,
	       .update_idle = (void *)plimsoll_update_idle, .enable = (void *)plimsoll_enable,
	       .disable = (void *)plimsoll_disable, .cgroup_move = (void *)plimsoll_cgroup_move,
	       .cpu_online = (void *)plimsoll_cpu_online,
	       .cpu_offline = (void *)plimsoll_cpu_offline, .dump = (void *)plimsoll_dump,
	       .dump_cpu = (void *)plimsoll_dump_cpu, .dump_task = (void *)plimsoll_dump_task,
	       .init = (void *)plimsoll_init, .exit = (void *)plimsoll_exit,
	       .flags = SCX_OPS_ENQ_LAST | SCX_OPS_KEEP_BUILTIN_IDLE, .timeout_ms = 30000,
	       .name = "plimsoll");

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * State of the scheduler: its maps and globals, and access to them.
 */
#ifndef PLIMSOLL_STATE_BPF_H
#define PLIMSOLL_STATE_BPF_H

#include "intf.h"

/*
 * Functions that are neither static nor inline are verified once, by
 * themselves; the verifier would otherwise walk them anew for each state of
 * each caller. They take numbers and return one.
 */

/* Set by user space before loading. */
const volatile u32 nr_cpu_ids = 1;
const volatile u32 nr_llcs = 1;
/* Room for groups, and for cpu.max of cgroups. */
const volatile u32 nr_slots = PLIMSOLL_GROUPS_MAX;
const volatile u32 nr_records = PLIMSOLL_RECORDS_MIN;
/* The LLC of each CPU, counted from 0, and the CPUs of each LLC, a bit each. */
const volatile u32 cpu_llc[PLIMSOLL_CPUS_MAX];
const volatile plim_u64 llc_cpus[PLIMSOLL_LLCS_MAX][PLIMSOLL_CPU_WORDS];

/* Atomic: tasks look up their group again. Written when a group or a cpu.max changes. */
u32 groups_changed = 1;
/*
 * One more than the highest slot that has been used; those of groups count always. Written by
 * the timer of limits.
 */
u32 nr_slots_used = PLIMSOLL_GROUPS_MAX;
/*
 * The group whose bandwidth is traced, and until when. Written by plimsoll_set_trace, for the
 * only reader of the trace.
 */
u32 trace_slot = PLIMSOLL_SLOT_NONE;
u64 trace_until_ns = 1;
/*
 * Run time of batch work in server slices while as many CPUs were idle as demanded:
 * else over_ns counts it. Atomic, a few times for each server slice.
 */
u64 tolerated_apart_ns;

/* The queues that the CPUs of one LLC share. */
struct shard {
	/*
	 * The latest start of the tasks that were picked, per tier. Written by each CPU
	 * that begins to run one. Of two writes at once the earlier start may win: then
	 * a task that wakes is placed that much too early.
	 */
	u64 clocks[PLIMSOLL_TIERS_PADDED];
	/*
	 * Atomic: tasks that wait, or are about to, and that any of its CPUs may run.
	 * Written by each CPU that queues a task or begins to run one.
	 */
	s32 nr_waiting[PLIMSOLL_TIERS_PADDED];
} PLIMSOLL_OWN_LINES;

struct shard shards[PLIMSOLL_LLCS_MAX];
/*
 * Tasks of lower tiers have run or waited since the last housekeeping, and in the last
 * LOWER_FORGET_NS. Set by a CPU that sees one, cleared by housekeeping: a probe that reads the
 * old value misses one wait.
 */
u32 lower_seen;
u32 lower_exists;
/* Slots with a limit or a soft cap. Atomic: written by plimsoll_apply and the timer of limits. */
s32 nr_limited;
/*
 * Atomic: CPUs that hold a token for batch work, and how many may. Apart from what each switch
 * reads; without headroom nobody writes them.
 */
s32 nr_tokens PLIMSOLL_OWN_LINES;
s32 tokens_allowed;
s32 tokens_tolerated; /* of those, whatever the number of idle CPUs */
/* Atomic: CPUs that are idle, online. Written on idle edges and hotplug. */
s32 nr_idle;
s32 nr_online;
/* Set by plimsoll_set_machine; read anywhere. */
bool headroom_on PLIMSOLL_OWN_LINES;
u32 headroom_cpus;
/* Runtime that a CPU takes from a pool at a time. Written by plimsoll_set_machine. */
u64 bandwidth_slice_ns = PLIM_SLICE_DEFAULT_NS;
/* Server of batch work on each CPU that normal work keeps busy. */
struct plim_server machine_server;
/*
 * Atomic: CPUs with a server behind normal work, which share the tolerance. A CPU counts from its
 * first slice until it goes idle, or lower tiers need none for a period.
 */
s32 nr_with_servers;
/* CPUs that run tasks of a lower tier, for each tier, a bit each; atomic. See show_tier(). */
plim_u64 lower_cpus[PLIMSOLL_TIERS_PADDED][PLIMSOLL_CPU_WORDS] PLIMSOLL_OWN_LINES;
/*
 * Since when the overdue queue of an LLC may have tasks; 0: it has none. Set when one is
 * put there; cleared by a CPU that finds the queue empty a while later, because the kernel
 * puts a task there only after ops.enqueue() has returned. Housekeeping repairs it.
 */
u64 overdue_since_ns[PLIMSOLL_LLCS_MAX] PLIMSOLL_OWN_LINES;
/*
 * The LLC, from 1, whose overdue tasks all CPUs look for: housekeeping found some, a second
 * after the last look. 0: none. Cleared by a CPU that finds none.
 */
u32 llc_overdue;
/* CPUs that were refused a token, a bit each; atomic. */
plim_u64 token_refused_cpus[PLIMSOLL_CPU_WORDS] PLIMSOLL_OWN_LINES;
/* CPUs that hold a token, a bit each; atomic. */
plim_u64 token_cpus[PLIMSOLL_CPU_WORDS];

/*
 * Always 0. A count that begins with it is unknown to the verifier, which so
 * sees that a loop's rounds are alike instead of walking each.
 */
int count_from;

UEI_DEFINE(uei);

/* Maps of slots, here and below, are resized by user space before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PLIMSOLL_GROUPS_MAX);
	__type(key, u32);
	__type(value, struct plimsoll_group);
} groups SEC(".maps");

/* slot * nr_cpu_ids + cpu. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PLIMSOLL_GROUPS_MAX);
	__type(key, u32);
	__type(value, struct plimsoll_group_cpu);
} group_cpus SEC(".maps");

/* nr_cpu_ids of them. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct plimsoll_cpu);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct plimsoll_decisions);
} decisions SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct plimsoll_machine);
} machine SEC(".maps");

/* Written by plimsoll_apply: cgroup id → slot. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PLIMSOLL_GROUPS_MAX);
	__type(key, u64);
	__type(value, u32);
} group_of_cgroup SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} trace SEC(".maps");

struct timer_value {
	struct bpf_timer timer;
	/*
	 * When it is due. Atomic, by CPUs that arm it; cleared by the timer, which may come
	 * between the write and the start: then it comes once more than it has to.
	 */
	u64 at_ns;
};

/* One for each group: the next boundary, the end of a cap's wait. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PLIMSOLL_GROUPS_MAX);
	__type(key, u32);
	__type(value, struct timer_value);
} group_timers SEC(".maps");

/* One for each CPU: the end of a slice. nr_cpu_ids of them. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct timer_value);
} slice_timers SEC(".maps");

enum machine_timer_key {
	HEADROOM_TIMER,
	HOUSEKEEPING_TIMER,
	LIMITS_TIMER, /* of cpu.max */
	PASS_TIMER, /* of holders of locks */
	URGENT_TIMER, /* the same */
	MACHINE_TIMERS,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MACHINE_TIMERS);
	__type(key, u32);
	__type(value, struct timer_value);
} machine_timers SEC(".maps");

static __always_inline int machine_timer_start(u32 key, u64 after_ns)
{
	struct timer_value *value = bpf_map_lookup_elem(&machine_timers, &key);

	return value ? bpf_timer_start(&value->timer, after_ns, 0) : -ENOENT;
}

/* Set in the number of a futex: not in the address of a lock. */
#define LOCK_IS_FUTEX 1ULL

/*
 * A task and its locks, see holders.bpf.h. Written by itself as it waits, and by the timer of
 * holders: a look at an old value helps a task in vain, or comes with the next look.
 */
struct task_locks {
	u64 waits_for; /* 0: no lock */
	u64 waits_since_ns;
	u32 waits_flags; /* the kind of a lock of the kernel */
	u32 holder; /* that was found last; 0: none that is held up */
	u32 is_watched; /* atomic: the timer looks at it */
	/* As a holder: until when it is boosted to the normal tier, and for which lock. */
	u64 boosted_until_ns;
	u64 boosted_for;
	u64 let_go; /* the futex that it has let go last */
	u64 let_go_ns;
};

/*
 * One task. Written by the CPU that holds the lock of the run queue the task
 * is on; read by others for the dump.
 */
struct task_ctx {
	u32 slot;
	u32 groups_seen; /* groups_changed when the slot was looked up */
	struct plim_order order;
	u64 slept_ns; /* since when it sleeps; 0: it does not */
	u64 charged_ns; /* of its sum_exec_runtime */
	u64 started_ns; /* 0: does not run */
	u64 waiting_since_ns; /* 0: does not wait */
	struct plim_ratecap cap; /* of its own, with per-task caps; its rate with any cap */
	u64 rate_ran_ns; /* run since that rate was last updated */
	u32 generation; /* of the group in which the cap was set up */
	u8 background; /* over its own soft cap */
	u8 has_run; /* since it last joined a queue */
	u8 has_yielded; /* since then */
	u8 overdue; /* why it runs next, against its order or limits: PLIMSOLL_OVERDUE or
		       PLIMSOLL_HOLDER; 0: it does not */
	u8 out_of_order; /* it runs next before its turn */
	u8 in_kernel; /* where it was stopped, it may hold locks; see limits.bpf.h */
	u8 nr_lifted; /* runs against its limits since they last let it run */
	u8 in_own_queue; /* that of its CPU, on which alone it may run */
	u32 claimed; /* the idle CPU, from 1, that ops.select_cpu() has claimed for it; 0: none */
	u32 chain; /* the first slot whose limits hold: of its group, or of cpu.max below */
	u32 cgroup; /* the record of its cgroup */
	u32 cgroup_generation; /* of that record */
	u64 counted; /* where and with what weight it counts as running or waiting; see tree.bpf.h
		      */
	u8 in_idle; /* cpu.idle of its cgroup, or of one above, makes it background */
	u32 place; /* whose clock its order follows; 0: none yet */
	u32 ran_on; /* the last CPU, from 1; 0: none, or the move from there is paid */
	/*
	 * That clock as it was parked, 0: it is not; and the virtual time for which it was, which
	 * its order has not followed yet. Atomic: also by timers and by CPUs that park it while
	 * it waits. A task that is queued anew at that moment may lose what the clock advances
	 * until it runs.
	 */
	u64 parked_clock;
	u64 stood;
	u32 waits_at; /* the place whose nr_waiting counts it; 0: none */
	struct task_locks locks;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_ctx);
} tasks SEC(".maps");

static __always_inline struct plimsoll_group *group_at(u32 slot)
{
	return bpf_map_lookup_elem(&groups, &slot);
}

/* Whether a chain of slots is normal and without limits: its tasks need no admission. */
static __always_inline bool is_plain(const struct plimsoll_group *group)
{
	return !(group->params.flags & ~(u32)PLIMSOLL_USED) &&
	       group->params.parent >= PLIMSOLL_SLOTS_MAX;
}

/* Whether the only slot of a chain has no limit. */
static __always_inline bool is_unlimited(const struct plimsoll_group *group)
{
	return !(group->params.flags & ~(u32)(PLIMSOLL_USED | PLIMSOLL_BATCH)) &&
	       group->params.parent >= PLIMSOLL_SLOTS_MAX;
}

static __always_inline struct plimsoll_cpu *cpu_at(s32 cpu)
{
	u32 key = cpu;

	return bpf_map_lookup_elem(&cpus, &key);
}

static __always_inline struct plimsoll_group_cpu *group_cpu_at(u32 slot, s32 cpu)
{
	u32 key = slot * nr_cpu_ids + (u32)cpu;

	return bpf_map_lookup_elem(&group_cpus, &key);
}

static __always_inline struct task_ctx *task_of(struct task_struct *p)
{
	return bpf_task_storage_get(&tasks, p, NULL, 0);
}

static __always_inline u32 llc_of(s32 cpu)
{
	return cpu_llc[(u32)cpu % PLIMSOLL_CPUS_MAX] % PLIMSOLL_LLCS_MAX;
}

/* A CPU has a task of this tier. */
static __always_inline void tier_is_seen(u32 tier)
{
	if (tier == PLIMSOLL_TIER_NORMAL || READ_ONCE(lower_seen))
		return;
	WRITE_ONCE(lower_seen, 1);
	WRITE_ONCE(lower_exists, 1);
}

static __always_inline s32 nice_of(const struct task_struct *p)
{
	/* MAX_RT_PRIO + the 20 levels above nice 0; include/linux/sched/prio.h */
	return p->static_prio - 120;
}

/*
 * Sets of CPUs, a bit each; atomic. The word is chosen with a mask and not with
 * a comparison, which the compiler may put too late for the verifier.
 */
static __always_inline plim_u64 *cpus_word(plim_u64 *set, s32 cpu)
{
	return &set[(u32)cpu / 64 % PLIMSOLL_CPU_WORDS];
}

static __always_inline void cpus_add(plim_u64 *set, s32 cpu)
{
	__sync_fetch_and_or(cpus_word(set, cpu), 1ULL << ((u32)cpu % 64));
}

static __always_inline void cpus_remove(plim_u64 *set, s32 cpu)
{
	__sync_fetch_and_and(cpus_word(set, cpu), ~(1ULL << ((u32)cpu % 64)));
}

static __always_inline bool cpus_have(plim_u64 *set, s32 cpu)
{
	return READ_ONCE(*cpus_word(set, cpu)) >> ((u32)cpu % 64) & 1;
}

static __always_inline u64 cpus_of_word(const volatile plim_u64 *set,
					const volatile plim_u64 *within, bool without, u32 word)
{
	u64 others = within ? within[word] : ~0ULL;

	return READ_ONCE(set[word]) & (without ? ~others : others);
}

/*
 * The first CPU of a set from @cpu on, among those of @within, or, @without, among the others.
 * @within NULL: of all. nr_cpu_ids or more: none.
 */
static __always_inline u32 cpus_next(const volatile plim_u64 *set, const volatile plim_u64 *within,
				     bool without, u32 cpu)
{
	u32 word = cpu / 64 % PLIMSOLL_CPU_WORDS;
	u64 bits;

	if (cpu >= nr_cpu_ids)
		return nr_cpu_ids;
	bits = cpus_of_word(set, within, without, word) & ~0ULL << (cpu % 64);
	if (bits)
		return word * 64 + __builtin_ctzll(bits);
	if (nr_cpu_ids <= 64)
		return nr_cpu_ids;
	bpf_for (word, cpu / 64 + 1, (nr_cpu_ids + 63) / 64) {
		bits = cpus_of_word(set, within, without, word % PLIMSOLL_CPU_WORDS);
		if (bits)
			return word * 64 + __builtin_ctzll(bits);
	}
	return nr_cpu_ids;
}

/* Takes up to @count CPUs out of a set and wakes them. */
static __always_inline void cpus_wake(plim_u64 *set, s32 count)
{
	u32 i, cpu = 0;

	bpf_for (i, 0, nr_cpu_ids) {
		cpu = cpus_next(set, NULL, false, cpu);
		if (cpu >= nr_cpu_ids || count-- <= 0)
			break;
		cpus_remove(set, cpu);
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	}
}

/*
 * Whether the CPU that runs this is not online for the scheduler. A CPU on its way offline
 * handles no interrupt at the end, but still wakes the task that waits for the change. A kick
 * or the start of a timer then queues an irq_work that stays there, and keeps all later ones of
 * the CPU from running, also when it is back: kernel/irq_work.c.
 */
static __always_inline bool goes_offline(void)
{
	struct plimsoll_cpu *here;

	if (READ_ONCE(nr_online) >= nr_cpu_ids)
		return false;
	here = cpu_at(bpf_get_smp_processor_id());
	return here && !here->online;
}

/* Logs a decision of this CPU for `plimsoll debug` and the dump. */
__noinline int remember(s32 cpu, u32 kind, u32 slot, u32 pid, u64 detail_ns)
{
	u32 key = cpu;
	struct plimsoll_decisions *d = bpf_map_lookup_elem(&decisions, &key);

	if (!d)
		return 0;
	d->last[d->next++ % PLIMSOLL_DECISIONS] = (struct plimsoll_decision){
		.when_ns = bpf_ktime_get_ns(),
		.kind = kind,
		.slot = slot,
		.pid = pid,
		.detail = plim_min(detail_ns / PLIM_NSEC_PER_USEC, 0xffffffff),
	};
	return 0;
}

/* Whether any CPU is idle. */
static __always_inline bool any_cpu_is_idle(void)
{
	const struct cpumask *idle = scx_bpf_get_idle_cpumask();
	bool any = !bpf_cpumask_empty(idle);

	scx_bpf_put_idle_cpumask(idle);
	return any;
}

#endif /* PLIMSOLL_STATE_BPF_H */

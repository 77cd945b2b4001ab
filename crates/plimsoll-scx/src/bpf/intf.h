/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Interface of the scheduler and user space: limits, the layout of the maps,
 * the arguments of the programs that user space runs.
 *
 * Maps are written by the scheduler. User space reads them, and requests changes
 * through programs.
 */
#ifndef PLIMSOLL_INTF_H
#define PLIMSOLL_INTF_H

#ifndef __VMLINUX_H__
/* Opaque in user space. */
struct bpf_spin_lock {
	unsigned int val;
};
struct bpf_timer {
	unsigned long long opaque[2];
} __attribute__((aligned(8)));
#endif

#include "plimsoll/bandwidth.h"
#include "plimsoll/batch.h"
#include "plimsoll/headroom.h"
#include "plimsoll/order.h"
#include "plimsoll/ratecap.h"
#include "plimsoll/server.h"

/*
 * On elements of maps that different CPUs write: of two neighbours neither is in a cache
 * line of the other.
 */
#define PLIMSOLL_OWN_LINES __attribute__((aligned(64)))

enum plimsoll_limits {
	/* Slots for groups; a freed slot is used again. */
	PLIMSOLL_GROUPS_MAX = 1024,
	/* Behind them, those for cpu.max of cgroups: at least, and at most with groups. */
	PLIMSOLL_LIMITS_MIN = 1024,
	PLIMSOLL_SLOTS_MAX = 32768,
	/* Cgroups with a record, at least and at most. */
	PLIMSOLL_RECORDS_MIN = 8192,
	PLIMSOLL_RECORDS_MAX = 65535,
	/* Levels of cgroups that are told apart: a deeper one counts as the one around it. */
	PLIMSOLL_CGROUP_DEPTH_MAX = 32,
	/* Limits inside one another: of a group and of a cpu.max at each level. */
	PLIMSOLL_DEPTH_MAX = 2 * PLIMSOLL_CGROUP_DEPTH_MAX,
	PLIMSOLL_CPUS_MAX = 1024,
	PLIMSOLL_CPU_WORDS = PLIMSOLL_CPUS_MAX / 64,
	PLIMSOLL_LLCS_MAX = 64,
	/* Tasks of no group, which are normal. */
	PLIMSOLL_SLOT_DEFAULT = 0,
	PLIMSOLL_SLOT_NONE = 0xffffffff,
	/* Length of each CPU's log of decisions. */
	PLIMSOLL_DECISIONS = 32,
	/* Buckets of the histogram of shortages; the last begins with 32 ms. */
	PLIMSOLL_SHORTAGES = 16,
};

/* Treatment of a group. */
enum plimsoll_group_flags {
	PLIMSOLL_USED = 1 << 0,
	PLIMSOLL_BATCH = 1 << 1, /* else normal; yields to headroom */
	PLIMSOLL_QUOTA = 1 << 2,
	PLIMSOLL_CAP = 1 << 3, /* the whole tree shares a bucket */
	PLIMSOLL_SOFT_CAP = 1 << 4,
	PLIMSOLL_PER_TASK = 1 << 5, /* hard and soft cap are each task's own */
	PLIMSOLL_CPU_LIMIT = 1 << 6,
	PLIMSOLL_QUOTA_IN_FILE = 1 << 7, /* also by cpu.max, which is not charged then */
};

/* Activity of a CPU. */
enum plimsoll_cpu_state {
	PLIMSOLL_CPU_OTHER, /* normal work, or work of other classes */
	PLIMSOLL_CPU_IDLE,
	PLIMSOLL_CPU_BATCH,
};

/* Served from first to last. */
enum plimsoll_tier {
	PLIMSOLL_TIER_NORMAL,
	PLIMSOLL_TIER_BATCH,
	PLIMSOLL_TIER_BACKGROUND, /* over a soft cap */
	PLIMSOLL_TIERS,
	/* Arrays of tiers have this many entries: the verifier sees the bound of a mask. */
	PLIMSOLL_TIERS_PADDED = 4,
	PLIMSOLL_TIER_MASK = PLIMSOLL_TIERS_PADDED - 1,
};

/* The parameters of a group. Argument of the program plimsoll_apply. */
struct plimsoll_params {
	plim_u64 cgroup_id;
	plim_u32 flags; /* PLIMSOLL_USED …; 0: the cgroup is to have no group */
	plim_u32 parent; /* the next slot whose limits hold, or none; set by the scheduler */
	plim_u32 weight; /* as cgroup v2 cpu.weight; 0: that of the cgroup */
	plim_u32 cpu_limit_ppm; /* of each CPU */
	struct plim_bandwidth_params bandwidth;
	struct plim_ratecap_params cap;
};

/* Argument of the program plimsoll_set_trace: the group to trace, and until when. */
struct plimsoll_trace_request {
	plim_u32 slot;
	plim_u64 until_ns;
};

/* Argument and result of the program plimsoll_task_rate, for a task of a capped group. */
struct plimsoll_task_rate {
	plim_u32 tid; /* set by the caller */
	plim_u32 background; /* over a soft cap: its own, or its group's */
	plim_u64 rate_ppm; /* usage rate, of one CPU */
};

/* Argument of the program plimsoll_set_machine. */
struct plimsoll_machine_change {
	/* The share form if headroom_cpus is 0; 0 ppm: no headroom. */
	struct plim_headroom_params headroom;
	plim_u32 headroom_cpus; /* the instant form; the share is ignored */
	plim_u64 bandwidth_slice_ns; /* of all groups */
};

/* One group. */
struct plimsoll_group {
	struct bpf_spin_lock lock; /* of all fields up to the racy ones, but pool.ran_locally */
	plim_u32 generation; /* changes with the slot's group, and with a cap of each task */
	struct plimsoll_params params;
	struct plim_bandwidth pool;
	struct plim_ratecap cap; /* of the tree */
	plim_u64 nr_background_switches; /* into and out of the background */
	/*
	 * Racy from here on: written by any CPU that runs the group, without
	 * the lock. A lost update costs a slice of fairness.
	 */
	plim_u64 blocked_until_ns; /* its cap, as last seen */
	plim_u32 nr_running; /* atomic: CPUs on which it runs, while it has a limit */
	plim_u32 nr_runnable; /* atomic: tasks that run or wait */
	plim_u32 background; /* over its soft cap */
	plim_u32 in_background; /* some of its tasks may wait in the background */
	plim_u64 rate_ran_ns; /* atomic: run since the rate was last updated */
	/* Atomic: CPUs that were refused, a bit each; its timer wakes them. */
	plim_u64 refused_cpus[PLIMSOLL_CPU_WORDS];
	/* The order in which CPUs were throttled; written under the lock. */
	plim_u64 served_order;
	plim_u64 nr_traced; /* lines of its trace; under the lock */
	plim_u32 throttled_ring[PLIMSOLL_CPUS_MAX];
};

/* One group on one CPU. */
struct plimsoll_group_cpu {
	/* Under the group's lock, but for charges of its own CPU that need no pool. */
	struct plim_bandwidth_cpu bandwidth;
	/* Written by its own CPU only. */
	struct plim_batch_limit limit;
	plim_u64 run_ns;
	plim_u64 wait_ns; /* of tasks before they ran here */
	plim_u64 nr_switches; /* tasks that began to run */
	plim_u64 nr_preempted; /* of those, stopped with time left */
	plim_u64 nr_overdue; /* of those, run because they had waited too long */
	plim_u64 nr_holders; /* of those, run because others may wait for their lock */
} PLIMSOLL_OWN_LINES;

/*
 * Servers: slices in which a lower tier runs although a higher one, which never
 * pauses, has work.
 */
enum plimsoll_server {
	PLIMSOLL_SERVER_NONE,
	PLIMSOLL_SERVER_BEHIND_NORMAL, /* of batch work and the background */
	PLIMSOLL_SERVER_BEHIND_BATCH, /* of the background */
	PLIMSOLL_SERVERS = 4, /* padded to a power of 2 */
};

/*
 * One CPU. Written by itself with its run queue locked, unless noted otherwise; what an edge
 * missed, by audit_cpu().
 */
struct plimsoll_cpu {
	plim_u64 sequence; /* odd while the counters below change */
	plim_u64 since_ns; /* in the present state */
	plim_u64 idle_ns;
	plim_u64 batch_ns;
	plim_u64 other_ns; /* since room was updated */
	plim_u64 room_updated_ns;
	plim_u32 room_ppm;
	plim_u32 state; /* enum plimsoll_cpu_state */
	plim_u32 llc;
	plim_u32 slot; /* that runs, while a task of ours does */
	plim_u32 token; /* holds a token, the right to run batch work */
	plim_u32 online;
	plim_u64 left_ns; /* for the next task of that group that starts here; 0: ask */
	plim_u32 left_slot; /* PLIMSOLL_SLOT_NONE: of any */
	plim_u32 refused_chain; /* in the present look at a queue; see take_limited() */
	plim_u64 slice_end_ns; /* of the present task; 0: no timer */
	plim_u64 slice_until_ns; /* of the task that has begun it */
	plim_u32 slice_pid; /* that task; 0: it has stopped for another */
	/*
	 * For wakers, which read it without the lock and at worst choose the wrong
	 * CPU: the virtual deadline of the task that runs, its request, and when
	 * that will be served.
	 */
	plim_u64 deadline;
	plim_u64 request_ns;
	plim_u64 served_at_ns;
	plim_u64 effective; /* its weight, for the balance of LLCs */
	plim_u64 prev_deadline; /* of the task that a dispatch finds running, as the shard has it */
	/* The latest start that ran here, as bound tasks count, and from there to the LLC's clock.
	 */
	plim_u64 clocks[PLIMSOLL_TIERS_PADDED];
	plim_u64 shifts[PLIMSOLL_TIERS_PADDED];
	plim_u32 runs_bound; /* the task may run on this CPU only */
	plim_u32 runs_early; /* the task runs before its turn */
	plim_u32 is_taken; /* a task that preempts the present one comes; also by wakers */
	plim_u32 nr_server_slices; /* behind normal work */
	plim_u32 nr_rounds; /* looks for work that a waiting task has caused, since it last ran any
			     */
	plim_u64 server_next_ns[PLIMSOLL_SERVERS]; /* the next of each kind is due */
	plim_u64 balance_next_ns; /* LLCs are not compared before */
	plim_u32 balance_first; /* of the LLCs that are compared next */
	plim_u32 balances; /* the present dispatch compares LLCs */
	plim_u64 nr_dispatches;
	plim_u32 tier; /* of the task of ours that runs; PLIMSOLL_TIERS: none */
	plim_u32 tier_shown; /* by lower_cpus */
	plim_u32 run_is_counted; /* in nr_running of the group */
	plim_u32 server_granted; /* by the last dispatch */
	plim_u32 server; /* in which the present task runs */
	plim_u64 server_ran_ns; /* end of the last slice behind normal work; 0: shares none */
	/*
	 * The CPU comes to the overdue queue by itself: its task is from there, or was preempted
	 * for one. Set by the CPU that preempts it and at the look that finds a task, cleared
	 * before each look, so that a race costs a kick too many.
	 */
	plim_u32 comes_to_overdue;
} PLIMSOLL_OWN_LINES;

/* The machine. Under the lock, unless noted otherwise. */
struct plimsoll_machine {
	struct bpf_spin_lock lock;
	plim_u32 headroom_cpus; /* the instant form; 0: the share, or none */
	plim_u32 spare; /* share form: one token more than whole CPUs allow */
	struct plim_headroom headroom;
	plim_u64 idle_ns; /* of all CPUs, at the last update */
	plim_u64 batch_ns;
	plim_u64 carry_ns; /* idle and batch time carried to the next interval */
	plim_u64 nr_updates;
	plim_u64 nr_evictions; /* atomic: batch tasks preempted for headroom */
	/*
	 * Instant form: a shortage is a time in which fewer CPUs are idle than
	 * demanded although batch work runs above its tolerance.
	 */
	plim_u64 nr_takeovers; /* atomic: other tasks that took an idle CPU */
	plim_u64 shortage_since_ns; /* 0: there is none */
	plim_u64 shortage_ns;
	/* Ended shortages by length: under 2, 4, 8 … µs; the last: all longer. */
	plim_u64 nr_shortages[PLIMSOLL_SHORTAGES];
	/* Instant form, since the last change: idle CPUs missing, and CPUs of batch work in excess.
	 */
	plim_u32 missing_cpus;
	plim_u32 over_cpus;
	plim_u64 over_since_ns;
	plim_u64 missing_ns; /* in this interval, in shortages */
	plim_u64 over_ns; /* in this interval */
	plim_u64 tolerated_ns; /* behind normal work, at the last update */
	plim_u64 overrun_ns; /* see plim_headroom_overrun_ns() */
};

enum plimsoll_decision_kind {
	PLIMSOLL_THROTTLED = 1, /* out of quota */
	PLIMSOLL_CAPPED, /* over its cap */
	PLIMSOLL_LIMITED, /* at its limit of this CPU */
	PLIMSOLL_HEADROOM, /* refused for headroom */
	PLIMSOLL_PREEMPTED, /* by normal work */
	PLIMSOLL_OVERDUE, /* run because it had waited too long */
	PLIMSOLL_PULLED, /* from another LLC */
	PLIMSOLL_HOLDER, /* run because others may wait for its lock */
};

struct plimsoll_decision {
	plim_u64 when_ns;
	plim_u32 kind;
	plim_u32 slot;
	plim_u32 pid;
	plim_u32 detail; /* microseconds: left, waited or to wait */
};

struct plimsoll_decisions {
	plim_u64 next;
	struct plimsoll_decision last[PLIMSOLL_DECISIONS];
};

enum plimsoll_trace_kind {
	PLIMSOLL_CHARGED = 1, /* a run was charged or booked, or a CPU was throttled */
	PLIMSOLL_REFILLED, /* by the timer; a charge may find a boundary as well */
	PLIMSOLL_SERVED, /* a throttled CPU may run again */
};

/* One line of the trace of a group's bandwidth. */
struct plimsoll_trace {
	plim_u64 sequence; /* of the group's lines, without a gap */
	plim_u64 when_ns;
	plim_u64 ran_ns; /* until then */
	plim_s64 local_ns; /* left to the CPU before that */
	plim_u64 pool_ns; /* left in the pool afterwards */
	plim_u64 boundary_ns; /* of the period that has begun */
	plim_u64 refilled; /* boundaries that were found to have passed */
	plim_u32 kind;
	plim_u32 cpu;
	plim_u32 throttled; /* afterwards */
	plim_u32 slot;
};

#endif /* PLIMSOLL_INTF_H */

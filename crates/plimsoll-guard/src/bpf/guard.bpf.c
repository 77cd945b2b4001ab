/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The guard: notices that the fair class runs idle work before normal work, and wakes a
 * thread of user space on that CPU, which makes the kernel pick again, and if that was in
 * vain, moves the idle work to a CPU that has nothing else; or that normal work waits for
 * normal work while another CPU runs idle work, and wakes the thread there to move the task
 * that waits. It changes nothing itself. The decisions are in
 * plimsoll/guard.h.
 *
 * The run queue of a CPU is reached through the tasks on it: not every kernel tells the
 * address of the variable.
 */
#include "vmlinux.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "intf.h"
#include "plimsoll/guard.h"

/* include/uapi/linux/time.h */
#define CLOCK_MONOTONIC 1
/* include/uapi/linux/sched.h, include/linux/sched/prio.h */
#define POLICY_IDLE 5
#define PRIO_OF_FAIR 100
/* include/linux/sched.h */
#define PF_KTHREAD 0x00200000
#define PF_IO_WORKER 0x00000010
#define TASK_RUNNING 0
/* CPUs of the largest machine on which tasks are moved, in words of a mask. */
#define MASK_WORDS_MAX 16
/* Cgroups around a task that are looked at, from the innermost; as the scheduler has it. */
#define LEVELS_MAX 16
/* CPUs that are looked at for a task that is to be moved. */
#define NEIGHBOURS_MAX 64
/*
 * For so long after a move children of the task are looked at. A child that is bound by the
 * move was begun during it, for some microseconds, and comes to run soon.
 */
#define MOVED_FOR_NS (1000 * PLIM_NSEC_PER_MSEC)
/*
 * For so long the move may not have ended: the thread that makes it looks, afterwards. Later it is
 * the thread of their CPU, which keeps parent and child from running meanwhile.
 */
#define MOVING_NS (10 * PLIM_NSEC_PER_MSEC)
/* A move that was asked for earlier has lost its reason: the thread was starved or stopped. */
#define ASKED_NS (10 * PLIM_NSEC_PER_MSEC)

/* CPUs that there may ever be. Set by user space before the program is loaded. */
const volatile u32 nr_cpus = 1;
/* CPUs with a thread. Written before anything runs. */
u32 nr_prepared;

/* Since Linux 6.2, which keeps the CPUs that a task's user has asked for. */
struct affinity_context___since_6_2 {
} __attribute__((preserve_access_index));

/* Before Linux 6.14; 6.12 has the first of the new names by now. */
struct cfs_rq___before_6_14 {
	unsigned int h_nr_running;
	unsigned int idle_h_nr_running;
} __attribute__((preserve_access_index));

/* One CPU under watch. */
struct watched {
	struct bpf_timer timer;
	/* The run queue, which stays where it is. Always the same value is written. */
	u64 rq;
	/*
	 * Written by the CPUs that notice an inversion here, and by the timer, without a
	 * lock. Of two that notice one at once each starts the timer: it is one look.
	 */
	struct plim_guard guard;
	/*
	 * A normal task that waits here. Written by this CPU, by those that wake tasks here,
	 * and by the timer, without a lock. A torn record names a task that does not wait
	 * here, which the look finds out, or one that waits for less long, which then moves
	 * early.
	 */
	struct plim_guard_wait wait;
	u64 waiter;
	u32 waiter_tid;
	/* This CPU, and the next one that has a thread. Written before anything runs. */
	u32 cpu;
	u32 next;
	/*
	 * The kind of work that runs here. This CPU writes it at a switch, and those that wake
	 * normal work here do. A lost write, or a task whose class changes while it runs, is
	 * noticed at the next switch.
	 */
	u32 runs;
} __attribute__((aligned(64)));

/* Values of runs. */
#define RUNS_UNKNOWN 0 /* the first switch is still to come */
#define RUNS_NORMAL 1 /* or nothing of the fair class */
#define RUNS_IDLE 2 /* idle work, at some level */
#define RUNS_IDLE_ONLY 3 /* and no normal work is runnable */

/* One for each CPU: user space says how many. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct watched);
} watched SEC(".maps");

/* The kernel takes one timer in a value. */
struct wait_timer {
	struct bpf_timer timer;
};

/* One for each CPU, too. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct wait_timer);
} wait_timers SEC(".maps");

/* A task that was moved, or is about to be. */
struct moved {
	u64 at_ns;
	u32 cpu;
	/* Another one, of an earlier move: a child may have been begun then, and take until now. */
	u32 cpu_before;
	u32 mover; /* the CPU whose thread has moved it */
};

/* By their ids; those that were moved last. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct moved);
} moved SEC(".maps");

struct ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};

/* For each CPU the ring on which its thread sleeps. Made by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, u32);
	__array(values, struct ring);
} rings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct plimsoll_guard_counts);
} counts SEC(".maps");

static __always_inline struct plimsoll_guard_counts *counts_here(void)
{
	u32 key = 0;

	return bpf_map_lookup_elem(&counts, &key);
}

/* A field by a plain load where the verifier knows the type of the pointer. */
#define FIELD(is_known, pointer, field)                                                            \
	((is_known) ? (pointer)->field : BPF_CORE_READ(pointer, field))

/*
 * Tasks below a queue. Of those that sleep and are still queued, because they have had more
 * than their share, the kernel counts the idle ones as idle.
 */
struct tasks {
	u32 nr_queued;
	u32 nr_runnable;
	u32 nr_idle;
};

static __always_inline struct tasks tasks_below(struct cfs_rq *queue, const bool is_known)
{
	struct cfs_rq___before_6_14 *old = (void *)queue;
	u32 nr_queued, nr_runnable, nr_idle;

	/*
	 * The barriers keep each load in its branch. The compiler would move what the two
	 * have in common, and with it the name of a field that this kernel has not.
	 */
	if (bpf_core_field_exists(queue->h_nr_runnable)) {
		nr_queued = FIELD(is_known, queue, h_nr_queued);
		nr_runnable = FIELD(is_known, queue, h_nr_runnable);
		barrier_var(nr_queued);
		barrier_var(nr_runnable);
	} else {
		nr_queued = FIELD(is_known, old, h_nr_running);
		barrier_var(nr_queued);
		nr_runnable = nr_queued;
	}
	if (bpf_core_field_exists(queue->h_nr_idle)) {
		nr_idle = FIELD(is_known, queue, h_nr_idle);
		barrier_var(nr_idle);
	} else {
		nr_idle = FIELD(is_known, old, idle_h_nr_running);
		barrier_var(nr_idle);
	}
	return (struct tasks){ nr_queued, nr_runnable, nr_idle };
}

/* Whether a task that runs does so at the cost of normal work. */
static __always_inline bool is_inverted(struct task_struct *p, const bool is_known)
{
	int counts_as_idle = FIELD(is_known, p, policy) == POLICY_IDLE, level;
	struct sched_entity *entity = &p->se;
	struct cfs_rq *queue;
	struct tasks tasks;

	for (level = 0; level < LEVELS_MAX; level++) {
		queue = FIELD(is_known, entity, cfs_rq);
		if (!queue)
			break;
		tasks = tasks_below(queue, is_known);
		if (plim_guard_is_inverted(counts_as_idle, tasks.nr_runnable, tasks.nr_idle))
			return true;
		counts_as_idle = FIELD(is_known, queue, idle) > 0;
		entity = FIELD(is_known, entity, parent);
		if (!entity)
			break;
	}
	return false;
}

/* Whether a task counts as idle at some level. */
static __always_inline bool is_idle_work(struct task_struct *p, const bool is_known)
{
	struct sched_entity *entity = &p->se;
	struct cfs_rq *queue;
	int level;

	if (FIELD(is_known, p, policy) == POLICY_IDLE)
		return true;
	for (level = 0; level < LEVELS_MAX; level++) {
		queue = FIELD(is_known, entity, cfs_rq);
		if (!queue)
			break;
		if (FIELD(is_known, queue, idle) > 0)
			return true;
		entity = FIELD(is_known, entity, parent);
		if (!entity)
			break;
	}
	return false;
}

/* The idle task is none. */
static __always_inline bool is_of_fair_class(struct task_struct *p, const bool is_known)
{
	return FIELD(is_known, p, prio) >= PRIO_OF_FAIR && FIELD(is_known, p, pid);
}

/* Wakes the thread of a CPU, if it has one, for this task or for none. */
static __always_inline bool wake(u32 cpu, struct plimsoll_guard_task *task)
{
	void *ring = bpf_map_lookup_elem(&rings, &cpu);

	return ring && !bpf_ringbuf_output(ring, task, sizeof(*task), BPF_RB_FORCE_WAKEUP);
}

static __always_inline bool has_thread(u32 cpu)
{
	return bpf_map_lookup_elem(&rings, &cpu);
}

/* Whether a task can run on this run queue, and does not. */
static __always_inline bool waits_on(struct rq *rq, struct task_struct *p)
{
	struct cfs_rq *queue = BPF_CORE_READ(p, se.cfs_rq);

	if (bpf_core_field_exists(p->se.sched_delayed) && BPF_CORE_READ(p, se.sched_delayed))
		return false;
	/* A limit of a cgroup holds it. */
	if (bpf_core_field_exists(queue->throttle_count) && BPF_CORE_READ(queue, throttle_count))
		return false;
	return BPF_CORE_READ(p, se.on_rq) && BPF_CORE_READ(queue, rq) == rq &&
	       BPF_CORE_READ(rq, curr) != p;
}

/* The place of a task, or of a cgroup around it, in its queue. */
struct place {
	struct sched_entity *entity;
	bool counts_as_idle;
};

static __always_inline struct place above(struct sched_entity *entity)
{
	return (struct place){ BPF_CORE_READ(entity, parent),
			       BPF_CORE_READ(entity, cfs_rq, idle) > 0 };
}

/* Whether a task counts as idle, and another one does not, where both meet. */
static __always_inline bool is_below(struct task_struct *p, struct task_struct *other)
{
	struct place a = { &p->se, BPF_CORE_READ(p, policy) == POLICY_IDLE };
	struct place b = { &other->se, BPF_CORE_READ(other, policy) == POLICY_IDLE };
	struct sched_entity *mine, *theirs;
	int level;

	for (level = 0; level < 2 * LEVELS_MAX; level++) {
		mine = a.entity;
		theirs = b.entity;
		if (!mine || !theirs)
			break;
		if (BPF_CORE_READ(mine, cfs_rq) == BPF_CORE_READ(theirs, cfs_rq))
			return a.counts_as_idle && !b.counts_as_idle;
		if (BPF_CORE_READ(mine, depth) >= BPF_CORE_READ(theirs, depth))
			a = above(mine);
		else
			b = above(theirs);
	}
	return false;
}

/* The task on record, if it is normal work and still waits. */
static __always_inline struct task_struct *waiter_of(struct watched *w)
{
	struct task_struct *p = (struct task_struct *)w->waiter;

	if (!w->wait.since_ns || BPF_CORE_READ(p, pid) != w->waiter_tid)
		return NULL;
	return waits_on((struct rq *)w->rq, p) && !is_idle_work(p, false) ? p : NULL;
}

#define ALL_CPUS (~0U)

/* Whether a mask has exactly one of the CPUs that there may be, or ALL_CPUS. */
static __always_inline bool has_exactly(struct cpumask *mask, u32 cpu)
{
	u64 bits, all, expected;
	u32 word, nr_left;

	for (word = 0; word < MASK_WORDS_MAX && word * 64 < nr_cpus; word++) {
		nr_left = nr_cpus - word * 64;
		all = nr_left < 64 ? (1ULL << nr_left) - 1 : ~0ULL;
		expected = cpu / 64 == word ? 1ULL << (cpu % 64) : 0;
		if (cpu == ALL_CPUS)
			expected = all;
		bits = 0;
		bpf_probe_read_kernel(&bits, sizeof(bits), (u64 *)mask + word);
		if ((bits & all) != expected)
			return false;
	}
	return true;
}

/*
 * Whether nobody has chosen the CPUs of a task, so that they can be set and set back. Those of
 * its cgroup limit it in any case.
 */
static __always_inline bool is_free(struct task_struct *p)
{
	struct cpumask *asked;

	/* The CPUs of a worker of io_uring are not among those that its user has asked for. */
	if (BPF_CORE_READ(p, flags) & (PF_KTHREAD | PF_IO_WORKER))
		return false;
	/* It would be waited for until it runs. */
	if (bpf_core_field_exists(p->migration_disabled) && BPF_CORE_READ(p, migration_disabled))
		return false;
	/* These kernels give back only the CPUs that are online. */
	if (!bpf_core_type_exists(struct affinity_context___since_6_2))
		return nr_prepared == nr_cpus && BPF_CORE_READ(p, nr_cpus_allowed) >= nr_cpus;
	asked = BPF_CORE_READ(p, user_cpus_ptr);
	return !asked || has_exactly(asked, ALL_CPUS);
}

/* Whether the CPUs of a task are as a move sets them, whatever its cgroup makes of that. */
static __always_inline bool is_bound(struct task_struct *p, u32 cpu)
{
	struct cpumask *asked;

	if (!bpf_core_type_exists(struct affinity_context___since_6_2))
		return has_exactly((struct cpumask *)BPF_CORE_READ(p, cpus_ptr), cpu);
	asked = BPF_CORE_READ(p, user_cpus_ptr);
	return asked && has_exactly(asked, cpu);
}

static __always_inline bool may_run_on(struct task_struct *p, u32 cpu)
{
	u64 *allowed = (u64 *)BPF_CORE_READ(p, cpus_ptr), bits = 0;

	bpf_probe_read_kernel(&bits, sizeof(bits), allowed + cpu / 64);
	return bits >> (cpu % 64) & 1;
}

/* The nearest CPU after this one that runs nothing but idle work, and where a task may run. */
static __always_inline struct watched *room_beside(struct watched *w, struct task_struct *p)
{
	u32 cpu = w->cpu, candidate = w->next;
	int i;

	for (i = 0; i < NEIGHBOURS_MAX && candidate != cpu; i++) {
		w = bpf_map_lookup_elem(&watched, &candidate);
		if (!w)
			break;
		if (w->runs == RUNS_IDLE_ONLY && may_run_on(p, candidate))
			return w;
		candidate = w->next;
	}
	return NULL;
}

/* Wakes the thread of a CPU to move a task. */
static __always_inline bool wake_to_move(u32 cpu, struct task_struct *p, const struct watched *to)
{
	struct plimsoll_guard_task task = {
		.tid = BPF_CORE_READ(p, pid),
		.tgid = BPF_CORE_READ(p, tgid),
		.started_ns = BPF_CORE_READ(p, start_boottime),
		.address = (u64)p,
		.cpu = to->cpu,
		.asked_ns = bpf_ktime_get_ns(),
	};

	return wake(cpu, &task);
}

static int look(void *map, u32 *cpu, struct watched *w)
{
	struct plimsoll_guard_counts *here = counts_here();
	struct plimsoll_guard_task none = {};
	struct rq *rq = (struct rq *)w->rq;
	struct task_struct *curr, *waiter;
	u64 now = bpf_ktime_get_ns(), again_ns;
	struct watched *room = NULL;
	bool stands = false;
	int wakes, pushes;

	/* A barrier, too: whoever notices an inversion from here on starts the timer again. */
	__sync_lock_test_and_set(&w->guard.look_at_ns, 0);
	curr = BPF_CORE_READ(rq, curr);
	if (is_of_fair_class(curr, false) && is_idle_work(curr, false)) {
		/* Idle work that sleeps, and is counted as idle, can hide one from the counts. */
		waiter = waiter_of(w);
		stands = (waiter && is_below(curr, waiter)) || is_inverted(curr, false);
	}
	again_ns = plim_guard_look(&w->guard, stands, now, &wakes, &pushes);
	if (pushes && is_free(curr))
		room = room_beside(w, curr);
	/* That CPU pays for what it gets, as for a pull; its thread may have to free a child. */
	if (room && (!has_thread(room->cpu) || !plim_guard_pay(&room->guard, now)))
		room = NULL;
	if (wakes)
		wakes = room ? wake_to_move(*cpu, curr, room) : wake(*cpu, &none);
	if (here) {
		here->nr_inverted += stands;
		here->nr_woken += wakes;
	}
	if (again_ns)
		bpf_timer_start(&w->timer, again_ns, 0);
	return 0;
}

static int look_at_wait(void *map, u32 *cpu, struct wait_timer *timer)
{
	struct watched *w = bpf_map_lookup_elem(&watched, cpu), *room = NULL;
	struct task_struct *p;
	u64 again_ns;
	int pulls;

	if (!w)
		return 0;
	/* A barrier, too: whatever begins to wait from here on starts the timer again. */
	__sync_lock_test_and_set(&w->wait.look_at_ns, 0);
	p = waiter_of(w);
	/* The thread here is what helps against idle work. */
	if (p && w->runs == RUNS_NORMAL && is_free(p))
		room = room_beside(w, p);
	again_ns = plim_guard_wait_look(&w->wait, !!p, room ? &room->guard : NULL,
					bpf_ktime_get_ns(), &pulls);
	if (pulls && room)
		wake_to_move(room->cpu, p, room);
	if (again_ns)
		bpf_timer_start(&timer->timer, again_ns, 0);
	return 0;
}

/*
 * Prepares the timers of a CPU. Run by user space before the rest is attached, because it
 * takes memory, which must not be asked for with a run queue locked.
 */
SEC("syscall")
int plimsoll_guard_prepare(struct plimsoll_guard_cpu *argument)
{
	u32 cpu = argument->cpu;
	struct watched *w = bpf_map_lookup_elem(&watched, &cpu);
	struct wait_timer *waits = bpf_map_lookup_elem(&wait_timers, &cpu);
	int error;

	if (!w || !waits)
		return -1;
	w->cpu = cpu;
	w->next = argument->next;
	nr_prepared++;
	argument->tid = bpf_get_current_pid_tgid();
	error = bpf_timer_init(&w->timer, &watched, CLOCK_MONOTONIC);
	error = error ?: bpf_timer_init(&waits->timer, &wait_timers, CLOCK_MONOTONIC);
	error = error ?: bpf_timer_set_callback(&w->timer, look);
	return error ?: bpf_timer_set_callback(&waits->timer, look_at_wait);
}

/*
 * Begins a move, and returns 0, if the task may still be moved: its user may have chosen its
 * CPUs since it was found. Run by the thread that moves it, with nothing but the move to follow.
 */
SEC("syscall")
int plimsoll_guard_begin_move(struct plimsoll_guard_task *task)
{
	struct task_struct *p = (struct task_struct *)task->address;
	struct moved now = { .at_ns = bpf_ktime_get_ns(), .cpu = task->cpu };
	u32 tid = task->tid;
	struct moved *last = bpf_map_lookup_elem(&moved, &tid);

	if (BPF_CORE_READ(p, pid) != tid || BPF_CORE_READ(p, start_boottime) != task->started_ns ||
	    !is_free(p) || plim_sub_floor(now.at_ns, task->asked_ns) > ASKED_NS)
		return -1;
	now.mover = bpf_get_smp_processor_id();
	now.cpu_before = now.cpu;
	if (last)
		now.cpu_before = last->cpu != now.cpu ? last->cpu : last->cpu_before;
	return bpf_map_update_elem(&moved, &tid, &now, BPF_ANY);
}

/*
 * Returns 0, and the id of the task, if a move has left it bound. A thread that executes another
 * program gets the id of its process; a user may have chosen other CPUs.
 */
SEC("syscall")
int plimsoll_guard_end_move(struct plimsoll_guard_task *task)
{
	struct task_struct *p = (struct task_struct *)task->address;

	if (BPF_CORE_READ(p, tgid) != task->tgid || !is_bound(p, task->cpu))
		return -1;
	task->tid = BPF_CORE_READ(p, pid);
	return 0;
}

static __always_inline void begin(struct watched *w, struct rq *rq)
{
	struct plimsoll_guard_counts *here = counts_here();
	u64 delay_ns;

	if (!here)
		return;
	delay_ns = plim_guard_begin(&w->guard, bpf_ktime_get_ns());
	if (!delay_ns)
		return;
	w->rq = (u64)rq;
	/* It is refused on a CPU that has no thread. */
	if (!bpf_timer_start(&w->timer, delay_ns, 0))
		here->nr_begun++;
}

/* A normal task begins to wait. */
static __always_inline void begin_wait(struct watched *w, struct rq *rq, struct task_struct *p)
{
	struct wait_timer *timer;
	u64 delay_ns;
	u32 cpu = rq->cpu;

	if (!w->wait.since_ns) {
		w->rq = (u64)rq;
		w->waiter = (u64)p;
		w->waiter_tid = p->pid;
	}
	delay_ns = plim_guard_wait_begin(&w->wait, bpf_ktime_get_ns());
	if (!delay_ns)
		return;
	timer = bpf_map_lookup_elem(&wait_timers, &cpu);
	/* It is refused as that of begin(). */
	if (timer)
		bpf_timer_start(&timer->timer, delay_ns, 0);
}

static __always_inline void task_wakes(struct task_struct *p)
{
	struct tasks tasks;
	struct watched *w;
	struct rq *rq;
	u32 cpu;

	if (p->prio < PRIO_OF_FAIR || !p->se.cfs_rq)
		return;
	rq = p->se.cfs_rq->rq;
	cpu = rq->cpu;
	w = bpf_map_lookup_elem(&watched, &cpu);
	if (!w)
		return;
	tasks = tasks_below(&rq->cfs, true);
	if (w->runs == RUNS_NORMAL) {
		if (plim_guard_has_waiting(tasks.nr_runnable, tasks.nr_idle) &&
		    !(tasks.nr_idle && is_idle_work(p, true)))
			begin_wait(w, rq, p);
	} else if (tasks.nr_queued != tasks.nr_idle) {
		if (!is_idle_work(p, true)) {
			w->runs = RUNS_IDLE;
			begin_wait(w, rq, p);
			begin(w, rq);
		} else if (is_inverted(rq->curr, true)) {
			begin(w, rq);
		}
	}
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(plimsoll_guard_wakeup, struct task_struct *p)
{
	task_wakes(p);
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(plimsoll_guard_new, struct task_struct *p)
{
	struct task_struct *parent = bpf_get_current_task_btf();
	struct plimsoll_guard_task task = {};
	u32 cpu, parent_tid = parent->pid;
	struct moved *last;
	u64 since_ns;

	task_wakes(p);
	if (p->nr_cpus_allowed > 1 || !p->se.cfs_rq)
		return 0;
	/* It has been bound if it was started while its parent was moved. */
	cpu = p->se.cfs_rq->rq->cpu;
	last = bpf_map_lookup_elem(&moved, &parent_tid);
	if (!last || (last->cpu != cpu && last->cpu_before != cpu))
		return 0;
	since_ns = plim_sub_floor(bpf_ktime_get_ns(), last->at_ns);
	if (since_ns > MOVED_FOR_NS)
		return 0;
	task.tid = p->pid;
	task.started_ns = p->start_boottime;
	task.cpu = cpu;
	task.parent_tid = parent_tid;
	wake(since_ns < MOVING_NS ? last->mover : cpu, &task);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(plimsoll_guard_switch, bool preempt, struct task_struct *prev,
	     struct task_struct *next)
{
	u32 cpu = bpf_get_smp_processor_id(), runs = RUNS_NORMAL;
	struct watched *w = bpf_map_lookup_elem(&watched, &cpu);
	struct tasks tasks;
	struct rq *rq;

	if (!w)
		return 0;
	if (w->wait.since_ns && w->waiter == (u64)next)
		w->wait.since_ns = 0;
	if (is_of_fair_class(next, true) && next->se.cfs_rq) {
		rq = next->se.cfs_rq->rq;
		tasks = tasks_below(&rq->cfs, true);
		if (tasks.nr_queued == tasks.nr_idle) {
			/* 0 of 0: the task is in another scheduler. */
			if (tasks.nr_queued)
				runs = RUNS_IDLE_ONLY;
		} else if (tasks.nr_idle && is_idle_work(next, true)) {
			runs = RUNS_IDLE;
			if (w->wait.since_ns || is_inverted(next, true))
				begin(w, rq);
			else if (tasks.nr_runnable <= tasks.nr_idle)
				runs = RUNS_IDLE_ONLY;
		} else if (w->runs == RUNS_NORMAL && prev->__state == TASK_RUNNING &&
			   is_of_fair_class(prev, true) &&
			   plim_guard_has_waiting(tasks.nr_runnable, tasks.nr_idle)) {
			begin_wait(w, rq, prev);
		}
	}
	if (w->runs != runs)
		w->runs = runs;
	return 0;
}

char _license[] SEC("license") = "GPL";

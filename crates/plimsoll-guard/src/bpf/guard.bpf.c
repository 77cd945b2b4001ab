/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The guard: notices that the fair class runs idle work before normal work, and wakes a
 * thread of user space on that CPU, which makes the kernel pick again. It changes nothing
 * itself. The decisions are in plimsoll/guard.h.
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
/* Cgroups around a task that are looked at, from the innermost; as the scheduler has it. */
#define LEVELS_MAX 16

/* Before Linux 6.14. */
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
} __attribute__((aligned(64)));

/* One for each CPU: user space says how many. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct watched);
} watched SEC(".maps");

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

static __always_inline bool
queue_is_inverted(struct cfs_rq *queue, int counts_as_idle, const bool is_known)
{
	struct cfs_rq___before_6_14 *old = (void *)queue;

	if (bpf_core_field_exists(queue->h_nr_runnable))
		return plim_guard_is_inverted(counts_as_idle, FIELD(is_known, queue, h_nr_runnable),
					      FIELD(is_known, queue, h_nr_idle));
	return plim_guard_is_inverted(counts_as_idle, FIELD(is_known, old, h_nr_running),
				      FIELD(is_known, old, idle_h_nr_running));
}

/* Whether a task that runs does so at the cost of normal work. */
static __always_inline bool is_inverted(struct task_struct *p, const bool is_known)
{
	int counts_as_idle = FIELD(is_known, p, policy) == POLICY_IDLE, level;
	struct sched_entity *entity = &p->se;
	struct cfs_rq *queue;

	for (level = 0; level < LEVELS_MAX; level++) {
		queue = FIELD(is_known, entity, cfs_rq);
		if (!queue)
			break;
		if (queue_is_inverted(queue, counts_as_idle, is_known))
			return true;
		counts_as_idle = FIELD(is_known, queue, idle) > 0;
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

/* Wakes the thread of a CPU, if it has one. */
static __always_inline void wake(u32 cpu, struct plimsoll_guard_counts *here)
{
	void *ring = bpf_map_lookup_elem(&rings, &cpu);
	u32 nothing = 0;

	if (ring && !bpf_ringbuf_output(ring, &nothing, sizeof(nothing), BPF_RB_FORCE_WAKEUP))
		here->nr_woken++;
}

static int look(void *map, u32 *cpu, struct watched *w)
{
	struct plimsoll_guard_counts *here = counts_here();
	struct rq *rq = (struct rq *)w->rq;
	struct task_struct *curr;
	u64 again_ns;
	bool stands;
	int wakes;

	/* A barrier, too: whoever notices an inversion from here on starts the timer again. */
	__sync_lock_test_and_set(&w->guard.look_at_ns, 0);
	curr = BPF_CORE_READ(rq, curr);
	stands = is_of_fair_class(curr, false) && is_inverted(curr, false);
	again_ns = plim_guard_look(&w->guard, stands, bpf_ktime_get_ns(), &wakes);
	if (here) {
		here->nr_inverted += stands;
		if (wakes)
			wake(*cpu, here);
	}
	if (again_ns)
		bpf_timer_start(&w->timer, again_ns, 0);
	return 0;
}

/*
 * Prepares the timer of a CPU. Run by user space before the rest is attached, because it
 * takes memory, which must not be asked for with a run queue locked.
 */
SEC("syscall")
int plimsoll_guard_prepare(struct plimsoll_guard_cpu *argument)
{
	u32 cpu = argument->cpu;
	struct watched *w = bpf_map_lookup_elem(&watched, &cpu);
	int error;

	if (!w)
		return -1;
	error = bpf_timer_init(&w->timer, &watched, CLOCK_MONOTONIC);
	return error ?: bpf_timer_set_callback(&w->timer, look);
}

static __always_inline void begin(struct rq *rq)
{
	u32 cpu = rq->cpu;
	struct watched *w = bpf_map_lookup_elem(&watched, &cpu);
	struct plimsoll_guard_counts *here = counts_here();
	u64 delay_ns;

	if (!w || !here)
		return;
	delay_ns = plim_guard_begin(&w->guard, bpf_ktime_get_ns());
	if (!delay_ns)
		return;
	w->rq = (u64)rq;
	/* It is refused on a CPU that has no thread. */
	if (!bpf_timer_start(&w->timer, delay_ns, 0))
		here->nr_begun++;
}

static __always_inline void task_wakes(struct task_struct *p)
{
	struct task_struct *curr;
	struct rq *rq;

	if (p->prio < PRIO_OF_FAIR || !p->se.cfs_rq)
		return;
	rq = p->se.cfs_rq->rq;
	curr = rq->curr;
	if (is_of_fair_class(curr, true) && is_inverted(curr, true))
		begin(rq);
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
	task_wakes(p);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(plimsoll_guard_switch, bool preempt, struct task_struct *prev,
	     struct task_struct *next)
{
	if (next->se.cfs_rq && is_of_fair_class(next, true) && is_inverted(next, true))
		begin(next->se.cfs_rq->rq);
	return 0;
}

char _license[] SEC("license") = "GPL";

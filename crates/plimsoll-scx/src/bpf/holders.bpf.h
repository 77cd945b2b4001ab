/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Holders of locks: a batch task that waits for a CPU behind normal work may
 * hold a kernel lock that normal work waits for. If the kernel records the owner
 * of the lock, the holder is reported to user space, which boosts it
 * (supervisor/boost.rs). The kernel does so for mutexes and rw_semaphores: the
 * locks of files, folders, memory and pipes. It does not for futexes, which user
 * space takes without the kernel.
 *
 * Only contended locks come here. In mode all every task is of one class, and
 * nothing is reported.
 */
#ifndef PLIMSOLL_HOLDERS_BPF_H
#define PLIMSOLL_HOLDERS_BPF_H

#include "state.bpf.h"
#include "watchdog.bpf.h"

/* include/uapi/linux/sched.h */
#define POLICY_BATCH 3
#define POLICY_DEADLINE 6
#define POLICY_EXT 7
/*
 * Runtime of a boosted task: a value that no other program uses, to recognise the
 * task by. The same as BOOSTED_RUNTIME_NS in tasks.rs.
 */
#define BOOST_RUNTIME_NS 5000011
/* Kinds of locks, include/trace/events/lock.h. */
#define LOCK_SPIN (1U << 0)
#define LOCK_READ (1U << 1)
#define LOCK_WRITE (1U << 2)
#define LOCK_RT (1U << 3)
#define LOCK_PERCPU (1U << 4)
#define LOCK_MUTEX (1U << 5)
/* Flag bits of an owner; kernel/locking/mutex.h and rwsem.c. */
#define OWNER_FLAGS 0x7UL

/*
 * The holder of each lock that normal work waits for. With too many the oldest is
 * evicted: its holder is not boosted, or for longer.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, u64);
	__type(value, u32);
} awaited SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} holders SEC(".maps");

/* Tasks that the watchdog takes for late as soon as they wake; see report_late(). */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 14);
} late SEC(".maps");

static __always_inline void report_holder(u32 kind, u32 tid)
{
	struct plimsoll_event *event = bpf_ringbuf_reserve(&holders, sizeof(*event), 0);

	/* A full buffer loses the event: the holder still gets its server slices. */
	if (!event)
		return;
	*event = (struct plimsoll_event){ .kind = kind, .tid = tid };
	bpf_ringbuf_submit(event, 0);
}

/* Whether user space has moved a task to the fair class; FALLBACK in tasks.rs. */
static __always_inline bool is_fallback(struct task_struct *p)
{
	return BPF_CORE_READ(p, policy) == POLICY_BATCH &&
	       BPF_CORE_READ_BITFIELD_PROBED(p, sched_reset_on_fork);
}

/* Whether user space has boosted a task that holds a lock; BOOSTED in tasks.rs. */
static __always_inline bool is_boosted(struct task_struct *p)
{
	return BPF_CORE_READ(p, policy) == POLICY_DEADLINE &&
	       BPF_CORE_READ(p, dl.dl_runtime) == BOOST_RUNTIME_NS;
}

/* Whether a task is of this scheduler, also while user space has moved it to another class. */
static __always_inline bool is_scheduled_task(struct task_struct *p)
{
	return BPF_CORE_READ(p, policy) == POLICY_EXT || is_fallback(p) || is_boosted(p);
}

/* Before Linux 7.1. */
struct rw_semaphore___list {
	struct list_head wait_list;
} __attribute__((preserve_access_index));

/*
 * The next owner of a semaphore without owner: after some time the kernel reserves
 * it for the first waiter, until that runs.
 */
static __always_inline struct task_struct *next_holder(struct rw_semaphore *semaphore)
{
	struct rw_semaphore___list *old = (void *)semaphore;
	struct rwsem_waiter *first;

	if (bpf_core_field_exists(semaphore->first_waiter))
		first = BPF_CORE_READ(semaphore, first_waiter);
	else
		first = container_of(BPF_CORE_READ(old, wait_list.next), struct rwsem_waiter, list);
	return first ? BPF_CORE_READ(first, task) : NULL;
}

/*
 * Thread id of the holder of a lock; 0: none, or the kernel does not record it. Read
 * without the lock: the holder may have changed, then a task is boosted in vain.
 */
static __always_inline u32 holder_of(void *lock, u32 flags)
{
	struct rw_semaphore *semaphore = lock;
	struct task_struct *owner;
	struct mutex *mutex = lock;
	unsigned long word;

	if (flags & LOCK_MUTEX)
		word = BPF_CORE_READ(mutex, owner.counter);
	else if (flags & (LOCK_READ | LOCK_WRITE) && !(flags & (LOCK_SPIN | LOCK_RT | LOCK_PERCPU)))
		word = BPF_CORE_READ(semaphore, owner.counter);
	else
		return 0;
	owner = (struct task_struct *)(word & ~OWNER_FLAGS);
	if (!owner && !(flags & LOCK_MUTEX))
		owner = next_holder(semaphore);
	/* Also a boosted task: it may still hold this lock when its boost ends. */
	if (!owner || !is_scheduled_task(owner))
		return 0;
	return BPF_CORE_READ(owner, pid);
}

/* Reports a task that waits for a CPU and holds a lock, once. */
static __always_inline void report_holds(struct task_ctx *t, u32 tid)
{
	if (t->reported)
		return;
	t->reported = 1;
	report_holder(PLIMSOLL_HOLDS, tid);
}

/* Reports that a task has released a lock for which normal work waits. */
static __always_inline void released(u32 tid, u64 key)
{
	struct task_struct *holder = bpf_task_from_pid(tid);
	struct task_ctx *t;

	if (!holder)
		return;
	t = task_of(holder);
	if (t && t->awaited == key) {
		WRITE_ONCE(t->awaited, 0);
		if (t->reported)
			report_holder(PLIMSOLL_RELEASED, tid);
		t->reported = 0;
	}
	bpf_task_release(holder);
}

/* Records the holder of a lock, and clears the former holder. */
static __always_inline void mark_holder(struct task_ctx *t, u64 key, u32 tid)
{
	u32 *found = bpf_map_lookup_elem(&awaited, &key), former;

	if (found && *found == tid && t->awaited == key)
		return;
	former = found ? *found : tid;
	bpf_map_update_elem(&awaited, &key, &tid, BPF_ANY);
	if (former != tid)
		released(former, key);
	WRITE_ONCE(t->awaited, key);
}

/* A task begins to wait for a lock. */
SEC("tp_btf/contention_begin")
int BPF_PROG(plimsoll_contended, void *lock, unsigned int flags)
{
	struct task_struct *waiter = bpf_get_current_task_btf(), *holder;
	struct task_ctx *t;
	u32 tid;

	if (mode_all || is_scheduled_task(waiter))
		return 0;
	tid = holder_of(lock, flags);
	if (!tid)
		return 0;
	holder = bpf_task_from_pid(tid);
	if (!holder)
		return 0;
	t = task_of(holder);
	if (t) {
		mark_holder(t, (u64)lock, tid);
		/* A holder that runs is reported when it has to wait: holder_waits(). */
		if (READ_ONCE(t->waiting_since_ns) || holder->policy != POLICY_EXT)
			report_holds(t, tid);
	}
	bpf_task_release(holder);
	return 0;
}

/*
 * A task that waited for a lock has acquired it, or (@ret) has given up: the former
 * holder has released it. If a scheduled task acquires it, that is the new holder
 * for which normal work waits.
 */
SEC("tp_btf/contention_end")
int BPF_PROG(plimsoll_acquired, void *lock, int ret)
{
	struct task_struct *taker = bpf_get_current_task_btf();
	u64 key = (u64)lock;
	struct task_ctx *t;
	u32 *found, tid;

	if (mode_all)
		return 0;
	found = bpf_map_lookup_elem(&awaited, &key);
	if (!found)
		return 0;
	tid = *found;
	t = is_scheduled_task(taker) ? task_of(taker) : NULL;
	if (!t) {
		bpf_map_delete_elem(&awaited, &key);
		released(tid, key);
	} else if (!ret) {
		/* It runs; it is reported when it has to wait. */
		mark_holder(t, key, taker->pid);
	}
	return 0;
}

/* Reports a scheduled task that waits for a CPU if normal work waits for its lock. */
static __always_inline void holder_waits(const struct task_struct *p, struct task_ctx *t)
{
	u64 key = READ_ONCE(t->awaited);
	u32 *found;

	if (!key)
		return;
	found = bpf_map_lookup_elem(&awaited, &key);
	if (found && *found == p->pid) {
		report_holds(t, p->pid);
		return;
	}
	/* Another task holds that lock now. */
	WRITE_ONCE(t->awaited, 0);
	t->reported = 0;
}

/*
 * Reports a waking task that has waited for long to the watchdog, because it was
 * moved back from another class while it slept. It has to be run now.
 */
static __always_inline void report_late(const struct task_struct *p)
{
	struct plimsoll_event *event;

	if (mode_all || p->scx.flags & SCX_TASK_RESET_RUNNABLE_AT ||
	    watchdog_waited_ns(p) < OVERDUE_NS)
		return;
	event = bpf_ringbuf_reserve(&late, sizeof(*event), 0);
	if (!event)
		return;
	*event = (struct plimsoll_event){ .kind = PLIMSOLL_LATE, .tid = p->pid };
	bpf_ringbuf_submit(event, 0);
}

#endif /* PLIMSOLL_HOLDERS_BPF_H */

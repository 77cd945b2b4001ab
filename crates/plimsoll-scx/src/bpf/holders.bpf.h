/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Holders of locks: a batch task that waits for a CPU behind normal work may
 * hold a lock of the kernel that normal work waits for. Where the kernel shows
 * who holds it, user space is told, and has the holder run at once
 * (supervisor/promote.rs). It shows it for mutexes and for semaphores of readers and
 * writers: the locks of files, folders, memory and pipes. It does not for
 * futexes, which user space takes without it.
 *
 * Only waiting for a lock that is taken comes here. In mode all everything is of
 * one class, and nothing is told.
 */
#ifndef PLIMSOLL_HOLDERS_BPF_H
#define PLIMSOLL_HOLDERS_BPF_H

#include "state.bpf.h"
#include "watchdog.bpf.h"

/* include/uapi/linux/sched.h */
#define POLICY_BATCH 3
#define POLICY_DEADLINE 6
#define POLICY_EXT 7
/* What a promoted task may run at a time, and nobody else; PROMOTED_RUNTIME_NS in tasks.rs. */
#define PROMOTED_RUNTIME_NS 5000011
/* include/trace/events/lock.h: what kind of lock it is. */
#define LOCK_SPIN (1U << 0)
#define LOCK_READ (1U << 1)
#define LOCK_WRITE (1U << 2)
#define LOCK_RT (1U << 3)
#define LOCK_PERCPU (1U << 4)
#define LOCK_MUTEX (1U << 5)
/* The bits of an owner that are flags; kernel/locking/mutex.h and rwsem.c. */
#define OWNER_FLAGS 0x7UL

/*
 * The holder of each lock that normal work waits for. Of too many the oldest is
 * forgotten: its holder is not run at once, or is for longer.
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

/* Tasks that the watchdog takes for late as soon as they wake; see tell_late(). */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 14);
} late SEC(".maps");

static __always_inline void tell_holder(u32 kind, u32 tid)
{
	struct plimsoll_event *event = bpf_ringbuf_reserve(&holders, sizeof(*event), 0);

	/* A full buffer loses it: the holder has its turns all the same. */
	if (!event)
		return;
	*event = (struct plimsoll_event){ .kind = kind, .tid = tid };
	bpf_ringbuf_submit(event, 0);
}

/* Whether user space has put a task into the fair class; LENT in tasks.rs. */
static __always_inline bool is_lent(struct task_struct *p)
{
	return BPF_CORE_READ(p, policy) == POLICY_BATCH &&
	       BPF_CORE_READ_BITFIELD_PROBED(p, sched_reset_on_fork);
}

/* Whether user space has it run at once, for it holds a lock; PROMOTED in tasks.rs. */
static __always_inline bool is_promoted(struct task_struct *p)
{
	return BPF_CORE_READ(p, policy) == POLICY_DEADLINE &&
	       BPF_CORE_READ(p, dl.dl_runtime) == PROMOTED_RUNTIME_NS;
}

/* Whether a task is one of ours, also while another class runs it. */
static __always_inline bool may_be_told(struct task_struct *p)
{
	return BPF_CORE_READ(p, policy) == POLICY_EXT || is_lent(p) || is_promoted(p);
}

/* Before Linux 7.1. */
struct rw_semaphore___list {
	struct list_head wait_list;
} __attribute__((preserve_access_index));

/*
 * Who is the next to have a semaphore that nobody has: after some time the kernel
 * keeps it for who has waited for longest, until that runs.
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
 * Who holds a lock, by its number; 0: nobody, or the kernel does not show it. Read
 * without the lock: it may be somebody else by now, who is then run for nothing.
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
	/* One that runs at once for another lock may be taken back while it holds this. */
	if (!owner || !may_be_told(owner))
		return 0;
	return BPF_CORE_READ(owner, pid);
}

/* Tells of a task that waits for a CPU and holds a lock, once. */
static __always_inline void tell_holds(struct task_ctx *t, u32 tid)
{
	if (t->told)
		return;
	t->told = 1;
	tell_holder(PLIMSOLL_HOLDS, tid);
}

/* A task does not hold a lock any more for which normal work waits. */
static __always_inline void released(u32 tid, u64 key)
{
	struct task_struct *holder = bpf_task_from_pid(tid);
	struct task_ctx *t;

	if (!holder)
		return;
	t = task_of(holder);
	if (t && t->awaited == key) {
		WRITE_ONCE(t->awaited, 0);
		if (t->told)
			tell_holder(PLIMSOLL_RELEASED, tid);
		t->told = 0;
	}
	bpf_task_release(holder);
}

/* Marks the holder of a lock, in place of another if there was one. */
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

	if (mode_all || may_be_told(waiter))
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
		/* One that runs is told of when it has to wait: holder_waits(). */
		if (READ_ONCE(t->waiting_since_ns) || holder->policy != POLICY_EXT)
			tell_holds(t, tid);
	}
	bpf_task_release(holder);
	return 0;
}

/*
 * A task has waited for a lock, and has it now, or (@ret) has given up: who held it
 * does so no more. If one of ours has it, normal work goes on waiting, for this one.
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
	t = may_be_told(taker) ? task_of(taker) : NULL;
	if (!t) {
		bpf_map_delete_elem(&awaited, &key);
		released(tid, key);
	} else if (!ret) {
		/* It runs; told of when it has to wait. */
		mark_holder(t, key, taker->pid);
	}
	return 0;
}

/* A task of ours waits for a CPU: does normal work wait for it? */
static __always_inline void holder_waits(const struct task_struct *p, struct task_ctx *t)
{
	u64 key = READ_ONCE(t->awaited);
	u32 *found;

	if (!key)
		return;
	found = bpf_map_lookup_elem(&awaited, &key);
	if (found && *found == p->pid) {
		tell_holds(t, p->pid);
		return;
	}
	/* Another has that lock since. */
	WRITE_ONCE(t->awaited, 0);
	t->told = 0;
}

/*
 * A task wakes that the watchdog takes for one that has waited for long: it was
 * taken back from another class while it slept. It has to be run now.
 */
static __always_inline void tell_late(const struct task_struct *p)
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

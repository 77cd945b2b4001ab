/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Holders of locks: a batch task that waits for a CPU behind normal work may
 * hold a lock of the kernel that normal work waits for. Where the kernel shows
 * who holds it, user space is told, and has the holder run at once
 * (leader/promote.rs). It shows it for mutexes and for semaphores of readers and
 * writers: the locks of files, folders, memory and pipes. It does not for
 * futexes, which user space takes without it.
 *
 * Only waiting for a lock that is taken comes here. In mode all everything is of
 * one class, and nothing is told.
 */
#ifndef PLIMSOLL_HOLDERS_BPF_H
#define PLIMSOLL_HOLDERS_BPF_H

#include "state.bpf.h"

/* include/uapi/linux/sched.h */
#define POLICY_BATCH 3
#define POLICY_DEADLINE 6
#define POLICY_EXT 7
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

static __always_inline void tell_holder(u32 kind, u32 tid)
{
	struct plimsoll_event *event = bpf_ringbuf_reserve(&holders, sizeof(*event), 0);

	/* A full buffer loses it: the holder has its turns all the same. */
	if (!event)
		return;
	*event = (struct plimsoll_event){ .kind = kind, .tid = tid };
	bpf_ringbuf_submit(event, 0);
}

/* Whether a task is one of ours, also while another class runs it. */
static __always_inline bool may_be_told(struct task_struct *p)
{
	u32 policy = BPF_CORE_READ(p, policy);

	return policy == POLICY_EXT || ((policy == POLICY_BATCH || policy == POLICY_DEADLINE) &&
					BPF_CORE_READ_BITFIELD_PROBED(p, sched_reset_on_fork));
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

/* A task begins to wait for a lock. */
SEC("tp_btf/contention_begin")
int BPF_PROG(plimsoll_contended, void *lock, unsigned int flags)
{
	struct task_struct *waiter = bpf_get_current_task_btf(), *holder;
	struct task_ctx *t;
	u64 key = (u64)lock;
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
	if (t && t->awaited != key) {
		WRITE_ONCE(t->awaited, key);
		bpf_map_update_elem(&awaited, &key, &tid, BPF_ANY);
		/* One that runs is told when it has to wait: holder_waits(). */
		if (READ_ONCE(t->waiting_since_ns) || holder->policy != POLICY_EXT)
			tell_holder(PLIMSOLL_HOLDS, tid);
	}
	bpf_task_release(holder);
	return 0;
}

/* A task does not hold a lock any more for which normal work waits. */
static __always_inline void released(u32 tid, u64 key)
{
	struct task_struct *holder = bpf_task_from_pid(tid);
	struct task_ctx *t;

	tell_holder(PLIMSOLL_RELEASED, tid);
	if (!holder)
		return;
	t = task_of(holder);
	if (t && t->awaited == key)
		WRITE_ONCE(t->awaited, 0);
	bpf_task_release(holder);
}

/*
 * A task has waited for a lock, and has it now: who held it does so no more. If
 * that is one of ours, normal work goes on waiting, for this one.
 */
SEC("tp_btf/contention_end")
int BPF_PROG(plimsoll_acquired, void *lock, int ret)
{
	struct task_struct *taker = bpf_get_current_task_btf();
	u64 key = (u64)lock;
	struct task_ctx *t;
	u32 *found, tid, taker_tid;

	if (mode_all)
		return 0;
	found = bpf_map_lookup_elem(&awaited, &key);
	if (!found)
		return 0;
	tid = *found;
	taker_tid = taker->pid;
	t = may_be_told(taker) ? task_of(taker) : NULL;
	if (!t) {
		bpf_map_delete_elem(&awaited, &key);
		released(tid, key);
		return 0;
	}
	if (tid == taker_tid)
		return 0;
	bpf_map_update_elem(&awaited, &key, &taker_tid, BPF_ANY);
	released(tid, key);
	/* It runs; told when it has to wait. */
	WRITE_ONCE(t->awaited, key);
	return 0;
}

/* A task of ours is queued: does normal work wait for it? */
static __always_inline void holder_waits(const struct task_struct *p, const struct task_ctx *t)
{
	if (READ_ONCE(t->awaited))
		tell_holder(PLIMSOLL_HOLDS, p->pid);
}

#endif /* PLIMSOLL_HOLDERS_BPF_H */

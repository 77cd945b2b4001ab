/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Holders of locks: a task of a lower tier, or one that a limit keeps from running, may
 * hold a lock that a normal task waits for. While that waits, a timer looks every few
 * milliseconds for the holder, and for the one that the holder itself waits for. It runs
 * them at once, and boosts them to the normal tier until the next look. The first look comes
 * at once where the probe of the wait has found a holder.
 *
 * The kernel shows who holds its mutexes and rw_semaphores, which are the locks of files,
 * folders, memory and pipes. It does not know who holds a futex. Of one of the waiter's own
 * process its memory may tell. Else the holder is guessed: tasks of lower tiers that last
 * used this futex; of one that processes share, those that have waited longest. A guess may be
 * wrong, and a futex may be no lock: such a task gets a short slice at a time, from a budget.
 *
 * No limit holds for a task that is boosted for a lock of the kernel, as in the fair
 * class. A futex lifts none: the waiter could be of the group that is limited. Nor does a
 * lock that readers hold: the kernel shows the last of them, which may have let go.
 */
#ifndef PLIMSOLL_HOLDERS_BPF_H
#define PLIMSOLL_HOLDERS_BPF_H

#include "limits.bpf.h"
#include "membership.bpf.h"
#include "queues.bpf.h"

/* Kinds of locks, include/trace/events/lock.h. */
#define LOCK_SPIN (1U << 0)
#define LOCK_READ (1U << 1)
#define LOCK_WRITE (1U << 2)
#define LOCK_RT (1U << 3)
#define LOCK_PERCPU (1U << 4)
#define LOCK_MUTEX (1U << 5)
/* Flag bits of an owner; kernel/locking/mutex.h and rwsem.c. */
#define OWNER_FLAGS 0x7UL
#define OWNED_BY_READERS 0x1UL

/* Between two looks at a task that waits, and how long a boost lasts: until the next but one. */
#define LOOK_NS (5 * PLIM_NSEC_PER_MSEC)
#define BOOST_NS (2 * LOOK_NS + PLIM_NSEC_PER_MSEC)
/*
 * For how long one wait is looked at. User space may hold a futex for as long as it likes; the
 * other bound is for a wait of which the end was not seen.
 */
#define FUTEX_LOOKS_NS (200 * PLIM_NSEC_PER_MSEC)
#define KERNEL_LOOKS_NS (10 * PLIM_NSEC_PER_SEC)
/* Most tasks of one kind that are watched, and that are looked at without delay. */
#define WATCHED_MAX 1024
#define URGENT_MAX 256
/* Holders that wait for one another. */
#define HOLDERS_CHAIN_MAX 4
/* Tasks of lower tiers that last used a futex. */
#define FUTEX_USERS 4
/* No pass, and no guess, looks at a wait before: most are shorter. */
#define FIRST_LOOK_NS PLIM_NSEC_PER_MSEC
/*
 * The budget of all guesses, each of which runs a task for SLICE_MIN_NS: one in this time, a
 * twentieth of one CPU, and some at once.
 */
#define GUESS_COST_NS (20 * SLICE_MIN_NS)
#define GUESS_AT_ONCE_NS (8 * GUESS_COST_NS)
/*
 * The budget of holders that are known, whose runs come before everybody's, too: user space may
 * name any thread of its process as the holder of a futex. A tenth of each CPU, and some at once;
 * beyond it they wait among normal tasks.
 */
#define HELP_COST_NS (10 * SLICE_MIN_NS)
#define HELP_AT_ONCE_NS (8 * HELP_COST_NS)

/* A task that waits for a lock. */
struct watched {
	u32 tid;
	u32 pass; /* the last one that has looked at it */
};

/* Waits with a known holder, or one that can be found. Beyond this number none is looked at. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, WATCHED_MAX);
	__type(value, struct watched);
} watched SEC(".maps");

/* Waits with a holder that is guessed. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, WATCHED_MAX / 4);
	__type(value, struct watched);
} guessed SEC(".maps");

/* Tasks of the first kind that have begun to wait, to be looked at without delay, too. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, URGENT_MAX);
	__type(value, u32);
} urgent SEC(".maps");

/* Tasks that may hold a futex. Racy: of two that use it at once one may be left out. */
struct futex_users {
	u32 tids[FUTEX_USERS]; /* the last one first */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u64);
	__type(value, struct futex_users);
} futex_users SEC(".maps");

/* The timer of passes is armed. Racy: see watch(). */
u32 pass_is_due;
/* Passes over all that is watched, so far. Written by the timer only. */
u32 nr_passes;
/* Time at which the budget of guesses is whole again. Written by the timer only. */
u64 guesses_until_ns;
/* Budget of known holders, likewise. Racy: of two timers at once one run may be free. */
u64 helps_until_ns;

/* Before Linux 7.1 the lists of waiters were these. */
struct rw_semaphore___list {
	struct list_head wait_list;
} __attribute__((preserve_access_index));

struct mutex___list {
	struct list_head wait_list;
} __attribute__((preserve_access_index));

struct mutex___first {
	struct mutex_waiter *first_waiter;
} __attribute__((preserve_access_index));

struct rw_semaphore___first {
	struct rwsem_waiter *first_waiter;
} __attribute__((preserve_access_index));

/* The first waiter of a mutex without owner, which has been woken to take it. */
static __always_inline struct task_struct *next_of_mutex(void *lock)
{
	struct mutex___first *with_first = lock;
	struct mutex___list *with_list = lock;
	struct mutex_waiter *first;

	if (bpf_core_field_exists(with_first->first_waiter))
		first = BPF_CORE_READ(with_first, first_waiter);
	else
		first = container_of(BPF_CORE_READ(with_list, wait_list.next), struct mutex_waiter,
				     list);
	return first ? BPF_CORE_READ(first, task) : NULL;
}

/* The first waiter of a semaphore without owner, in the same way. */
static __always_inline struct task_struct *next_of_semaphore(void *lock)
{
	struct rw_semaphore___first *with_first = lock;
	struct rw_semaphore___list *with_list = lock;
	struct rwsem_waiter *first;

	if (bpf_core_field_exists(with_first->first_waiter))
		first = BPF_CORE_READ(with_first, first_waiter);
	else
		first = container_of(BPF_CORE_READ(with_list, wait_list.next), struct rwsem_waiter,
				     list);
	return first ? BPF_CORE_READ(first, task) : NULL;
}

/*
 * Id of the thread that holds a lock of the kernel, or has been woken to take it, and
 * whether readers share it; 0: the kernel does not show it. Read without the lock: it may
 * have changed, then a task is helped in vain.
 */
static __noinline u32 holder_of_kernel_lock(u64 lock, u32 flags, bool *is_shared)
{
	struct rw_semaphore *semaphore = (void *)lock;
	struct mutex *mutex = (void *)lock;
	struct task_struct *holder, *p;
	unsigned long word;
	u32 tid;

	/* With CONFIG_PREEMPT_RT these are other locks. */
	if (flags & LOCK_MUTEX && bpf_core_field_exists(mutex->owner)) {
		word = BPF_CORE_READ(mutex, owner.counter);
		holder = (void *)(word & ~OWNER_FLAGS);
		holder = holder ?: next_of_mutex(mutex);
	} else if (flags & (LOCK_READ | LOCK_WRITE) && bpf_core_field_exists(semaphore->owner)) {
		word = BPF_CORE_READ(semaphore, owner.counter);
		*is_shared = word & OWNED_BY_READERS;
		holder = (void *)(word & ~OWNER_FLAGS);
		holder = holder ?: next_of_semaphore(semaphore);
	} else {
		return 0;
	}
	tid = holder ? BPF_CORE_READ(holder, pid) : 0;
	p = tid ? bpf_task_from_pid(tid) : NULL;
	if (!p)
		return 0;
	/* A reader may be long gone, and its memory another's. */
	if ((u64)p != (u64)holder)
		tid = 0;
	bpf_task_release(p);
	return tid;
}

/* The holder of the lock that a task waits for; 0: it waits for none, or that is unknown. */
static __always_inline u32 holder_for(const struct task_ctx *t, bool *is_shared)
{
	u64 lock = READ_ONCE(t->locks.waits_for);

	if (!lock || lock & LOCK_IS_FUTEX)
		return lock ? READ_ONCE(t->locks.holder) : 0;
	return holder_of_kernel_lock(lock, t->locks.waits_flags, is_shared);
}

/* include/uapi/linux/sched.h: the policies of this scheduler's tasks are none of these. */
#define POLICY_FIFO 1
#define POLICY_RR 2
#define POLICY_DEADLINE 6

/* Whether a task is of a lower tier, unless it is boosted. */
static __always_inline bool is_lower(const struct task_struct *p, const struct task_ctx *t)
{
	struct plimsoll_group *group = group_at(t->slot);
	u32 policy = p->policy;

	if (policy == POLICY_FIFO || policy == POLICY_RR || policy == POLICY_DEADLINE)
		return false;
	return group && own_tier_of(group, t, p) != PLIMSOLL_TIER_NORMAL;
}

/* Whether more than its place in the order may keep a task from running. */
static __always_inline bool
is_held_up(const struct task_struct *p, const struct task_ctx *t, u64 lock)
{
	struct plimsoll_group *chain = group_at(t->chain);

	return is_lower(p, t) || (!(lock & LOCK_IS_FUTEX) && chain && !is_plain(chain));
}

/* Whether the thread with an id is. */
__noinline bool thread_is_held_up(u32 tid, u64 lock)
{
	struct task_struct *p = tid ? bpf_task_from_pid(tid) : NULL;
	struct task_ctx *t = p ? task_of(p) : NULL;
	bool held_up = t && is_held_up(p, t, lock);

	if (p)
		bpf_task_release(p);
	return held_up;
}

/* Whether any task may be held up: otherwise the probes have nothing to do. */
static __always_inline bool any_is_held_up(void)
{
	return READ_ONCE(lower_exists) || READ_ONCE(nr_limited) > 0;
}

/* The present task begins to wait for a lock. */
static __always_inline void
wait_begins(struct task_ctx *t, u64 lock, u32 flags, u32 holder, u64 now)
{
	t->locks.waits_flags = flags;
	t->locks.waits_since_ns = now;
	WRITE_ONCE(t->locks.holder, holder);
	WRITE_ONCE(t->locks.waits_for, lock);
}

/* Has passes look at a task that waits, until the wait ends. */
static __always_inline void watch(struct task_ctx *t, void *queue, u32 tid)
{
	struct watched entry = { .tid = tid };

	/* Also the barrier between the write of the wait and this. */
	if (__sync_lock_test_and_set(&t->locks.is_watched, 1))
		return;
	if (bpf_map_push_elem(queue, &entry, 0)) {
		WRITE_ONCE(t->locks.is_watched, 0);
		return;
	}
	/* A pass clears the mark before it looks into the queue. */
	if (!goes_offline() && !__sync_lock_test_and_set(&pass_is_due, 1) &&
	    machine_timer_start(PASS_TIMER, FIRST_LOOK_NS))
		WRITE_ONCE(pass_is_due, 0);
}

/* Watches a task, with the first look at once. */
static __always_inline void watch_at_once(struct task_ctx *t, u32 tid)
{
	watch(t, &watched, tid);
	if (!goes_offline() && !bpf_map_push_elem(&urgent, &tid, 0))
		machine_timer_start(URGENT_TIMER, 0);
}

/* A task no longer holds a lock for which it was boosted. */
__noinline int let_go(u32 tid, u64 lock)
{
	struct task_struct *p = tid ? bpf_task_from_pid(tid) : NULL;
	struct task_ctx *t = p ? task_of(p) : NULL;

	if (t && READ_ONCE(t->locks.boosted_for) == lock && READ_ONCE(t->locks.boosted_until_ns)) {
		WRITE_ONCE(t->locks.boosted_until_ns, 0);
		if (READ_ONCE(t->started_ns) && is_lower(p, t))
			scx_bpf_kick_cpu(scx_bpf_task_cpu(p), SCX_KICK_PREEMPT);
	}
	if (p)
		bpf_task_release(p);
	return 0;
}

/*
 * A watched task wakes. If the holder of its lock wakes it, that has let go, and is what it was:
 * else it might take the lock again first.
 */
static __always_inline void waker_lets_go(const struct task_ctx *t)
{
	u32 holder = READ_ONCE(t->locks.holder);
	struct task_struct *waker;

	if (!holder || !t->locks.is_watched)
		return;
	waker = bpf_get_current_task_btf();
	if ((u32)waker->pid == holder)
		let_go(holder, t->locks.waits_for);
}

/* The present task no longer waits. */
static __always_inline void wait_ends(struct task_ctx *t)
{
	u64 lock = t->locks.waits_for;
	u32 holder = READ_ONCE(t->locks.holder);

	WRITE_ONCE(t->locks.waits_for, 0);
	WRITE_ONCE(t->locks.holder, 0);
	if (holder && t->locks.is_watched)
		let_go(holder, lock);
}

SEC("tp_btf/contention_begin")
int BPF_PROG(plimsoll_wait_begins, void *lock, unsigned int flags)
{
	u64 address = (u64)lock;
	struct task_struct *waiter;
	bool is_shared = false;
	struct task_ctx *t;
	u32 holder;

	/* A task sleeps while it waits for one of the locks that are left. */
	if (flags & (LOCK_SPIN | LOCK_RT | LOCK_PERCPU) ||
	    !(flags & (LOCK_READ | LOCK_WRITE | LOCK_MUTEX)) || !any_is_held_up())
		return 0;
	waiter = bpf_get_current_task_btf();
	t = task_of(waiter);
	if (!t)
		return 0;
	wait_begins(t, address, flags, 0, bpf_ktime_get_ns());
	if (is_lower(waiter, t))
		return 0;
	holder = holder_of_kernel_lock(address, flags, &is_shared);
	if (thread_is_held_up(holder, address)) {
		WRITE_ONCE(t->locks.holder, holder);
		watch_at_once(t, waiter->pid);
	} else {
		/* One of a lower tier may be the next to take it. */
		watch(t, &watched, waiter->pid);
	}
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(plimsoll_wait_ends, void *lock, int error)
{
	struct task_ctx *t;

	if (!any_is_held_up())
		return 0;
	t = task_of(bpf_get_current_task_btf());
	if (t && t->locks.waits_for == (u64)lock)
		wait_ends(t);
	return 0;
}

/*
 * A number for a futex, which no address of a lock is. Of two futexes with the same number
 * either may be taken for the other.
 */
static __always_inline u64 futex_id(const struct futex_q *q)
{
	u64 id = q->key.both.ptr ^ (q->key.both.word + q->key.both.offset) * 0x9e3779b97f4a7c15;

	return id | LOCK_IS_FUTEX;
}

/* include/uapi/linux/futex.h and kernel/futex/futex.h. */
#define FUTEX_WAITERS 0x80000000
#define FUTEX_TID_MASK 0x3fffffff
#define FUT_OFF_INODE 1
#define FUT_OFF_FLAGS 3
/* From the word of a mutex of glibc to the id of its owner. */
#define FUTEX_OWNER_AT 8

struct task_struct *bpf_task_from_vpid(s32 vpid) __ksym;

/*
 * The thread of the same process that holds a futex; 0: unknown. The word of a robust
 * mutex has its id, as the reader's namespace of processes counts; that of another one
 * may be followed by it.
 */
static __always_inline u32 holder_of_futex(const struct futex_q *q)
{
	u64 address = q->key.private.address + (q->key.private.offset & ~FUT_OFF_FLAGS);
	struct task_struct *waiter = bpf_get_current_task_btf(), *p;
	u32 words[3] = {}, tid = 0;

	if (q->key.both.offset & FUT_OFF_INODE ||
	    bpf_probe_read_user(words, sizeof(words), (void *)address))
		return 0;
	p = bpf_task_from_vpid(words[0] & FUTEX_WAITERS ? words[0] & FUTEX_TID_MASK
							: words[FUTEX_OWNER_AT / sizeof(u32)]);
	if (!p)
		return 0;
	if (p->tgid == waiter->tgid && p->pid != waiter->pid)
		tid = p->pid;
	bpf_task_release(p);
	return tid;
}

/* Remembers that a task of a lower tier uses a futex. */
static __always_inline void futex_used_by(u64 lock, u32 tid)
{
	struct futex_users *users = bpf_map_lookup_elem(&futex_users, &lock);
	struct futex_users fresh = { .tids = { tid } };
	u32 before, i, found = tid;

	if (!users) {
		bpf_map_update_elem(&futex_users, &lock, &fresh, BPF_ANY);
		return;
	}
	/* To the front; the others move back as far as it was. */
	for (i = 0, before = tid; i < FUTEX_USERS; i++) {
		found = users->tids[i];
		users->tids[i] = before;
		if (found == tid)
			break;
		before = found;
	}
}

SEC("fentry/futex_do_wait")
int BPF_PROG(plimsoll_futex_begins, struct futex_q *q)
{
	struct task_struct *waiter;
	struct task_ctx *t;
	u64 lock, now;
	u32 holder;

	if (!any_is_held_up())
		return 0;
	waiter = bpf_get_current_task_btf();
	t = task_of(waiter);
	if (!t)
		return 0;
	lock = futex_id(q);
	now = bpf_ktime_get_ns();
	holder = holder_of_futex(q);
	if (is_lower(waiter, t)) {
		/* It may be the next that holds it. */
		futex_used_by(lock, waiter->pid);
		wait_begins(t, lock, 0, holder, now);
	} else if (thread_is_held_up(holder, lock)) {
		wait_begins(t, lock, 0, holder, now);
		watch_at_once(t, waiter->pid);
	} else if (q->key.both.offset & FUT_OFF_INODE || bpf_map_lookup_elem(&futex_users, &lock)) {
		wait_begins(t, lock, 0, 0, now);
		watch(t, &guessed, waiter->pid);
	}
	return 0;
}

SEC("fexit/futex_do_wait")
int BPF_PROG(plimsoll_futex_ends, struct futex_q *q)
{
	struct task_ctx *t;

	if (!any_is_held_up())
		return 0;
	t = task_of(bpf_get_current_task_btf());
	if (t && t->locks.waits_for & LOCK_IS_FUTEX)
		wait_ends(t);
	return 0;
}

/* A task wakes one that waits for a futex, which it has let go if it held it. */
SEC("fentry/futex_wake_mark")
int BPF_PROG(plimsoll_futex_wakes, struct wake_q_head *wake, struct futex_q *q)
{
	struct task_struct *waker;
	struct task_ctx *t;
	u64 lock;

	if (!any_is_held_up())
		return 0;
	waker = bpf_get_current_task_btf();
	t = task_of(waker);
	if (!t || !is_lower(waker, t))
		return 0;
	lock = futex_id(q);
	futex_used_by(lock, waker->pid);
	t->locks.let_go = lock;
	WRITE_ONCE(t->locks.let_go_ns, bpf_ktime_get_ns());
	return 0;
}

/*
 * Moves a waiting task out of its queue, to run at once or to wait among normal tasks; if it is
 * parked, only to run at once, and only if the lock lifts limits. Returns whether it was there.
 */
__noinline int run_from_queue(u64 dsq_id, u32 tid, u64 lock, u32 at_once)
{
	bool is_parked = dsq_id >= PARKED_ID_BASE && dsq_id < OVERDUE_ID_BASE;
	struct task_struct *p;
	struct task_ctx *t;
	int seen = count_from, found = count_from;

	/* The overdue queue comes to it anyway. */
	if ((dsq_id >= OVERDUE_ID_BASE && dsq_id < CPU_ID_BASE) ||
	    (is_parked && (!at_once || lock & LOCK_IS_FUTEX)))
		return 0;
	bpf_rcu_read_lock();
	bpf_for_each (scx_dsq, p, dsq_id, 0) {
		if (++seen > QUEUE_SCAN_MAX)
			break;
		if ((u32)p->pid != tid)
			continue;
		t = task_of(p);
		if (!t)
			break;
		if (at_once)
			to_overdue(BPF_FOR_EACH_ITER, p, t, PLIMSOLL_HOLDER);
		else if (dsq_id != queue_of(t, scx_bpf_task_cpu(p), PLIMSOLL_TIER_NORMAL))
			move_to_tier(BPF_FOR_EACH_ITER, p, t, PLIMSOLL_TIER_NORMAL);
		found++;
		break;
	}
	bpf_rcu_read_unlock();
	return found;
}

/* Whether a task waits for a CPU. */
static __always_inline bool waits_for_cpu(const struct task_ctx *t)
{
	return READ_ONCE(t->waiting_since_ns) && !READ_ONCE(t->started_ns);
}

/*
 * Boosts a holder of a lock to the normal tier, and runs it if it waits. Returns the holder of the
 * lock that it waits for itself; 0: there is none.
 */
__noinline u32 help(u32 tid, u64 lock, u64 now)
{
	struct task_struct *p = bpf_task_from_pid(tid);
	struct task_ctx *t = p ? task_of(p) : NULL;
	bool is_shared = false, at_once;
	u32 next = 0;

	if (t && is_held_up(p, t, lock)) {
		WRITE_ONCE(t->locks.boosted_for, lock);
		WRITE_ONCE(t->locks.boosted_until_ns, now + BOOST_NS);
		at_once = READ_ONCE(helps_until_ns) <= now + HELP_AT_ONCE_NS;
		if (waits_for_cpu(t) &&
		    run_from_queue(BPF_CORE_READ(p, scx.dsq, id), tid, lock, at_once) && at_once)
			WRITE_ONCE(helps_until_ns, plim_max(helps_until_ns, now) +
							   HELP_COST_NS / plim_max(nr_online, 1));
	}
	if (t && !waits_for_cpu(t) && !READ_ONCE(t->started_ns)) {
		next = holder_for(t, &is_shared);
		WRITE_ONCE(t->locks.holder, next);
	}
	if (p)
		bpf_task_release(p);
	return next;
}

/* Runs a task that may hold a futex, if it is of a lower tier and waits. */
__noinline int run_guess(u32 tid, u64 lock)
{
	struct task_struct *p = tid ? bpf_task_from_pid(tid) : NULL;
	struct task_ctx *t = p ? task_of(p) : NULL;
	int found = 0;

	if (t && waits_for_cpu(t) && is_lower(p, t))
		found = run_from_queue(BPF_CORE_READ(p, scx.dsq, id), tid, lock, true);
	if (p)
		bpf_task_release(p);
	return found;
}

/* Whether a thread has let go of a futex since then. */
__noinline bool has_let_go(u32 tid, u64 lock, u64 since_ns)
{
	struct task_struct *p = tid ? bpf_task_from_pid(tid) : NULL;
	struct task_ctx *t = p ? task_of(p) : NULL;
	bool has = !t || (t->locks.let_go == lock && READ_ONCE(t->locks.let_go_ns) > since_ns);

	if (p)
		bpf_task_release(p);
	return has;
}

/* The task that has waited longest in a queue; 0: none waits. */
__noinline u32 longest_waiting(u64 dsq_id)
{
	u64 since_ns, first_ns = PLIM_UNLIMITED;
	u32 seen = count_from, tid = count_from;
	struct task_struct *p;
	struct task_ctx *t;

	bpf_rcu_read_lock();
	bpf_for_each (scx_dsq, p, dsq_id, 0) {
		if (++seen > QUEUE_SCAN_MAX)
			break;
		t = task_of(p);
		since_ns = t ? READ_ONCE(t->waiting_since_ns) : PLIM_UNLIMITED;
		if (since_ns >= first_ns)
			continue;
		first_ns = since_ns;
		tid = p->pid;
	}
	bpf_rcu_read_unlock();
	return tid;
}

/* The queues of lower tiers that a guess without knowledge looks at, and tasks of each. */
#define BLIND_QUEUES 4
#define BLIND_EACH 2

static __always_inline u64 blind_queue(s32 cpu, u32 index)
{
	u32 tier = index & 1 ? PLIMSOLL_TIER_BACKGROUND : PLIMSOLL_TIER_BATCH;

	return index & 2 ? cpu_queue(cpu, tier) : shard_queue(llc_of(cpu), tier);
}

/* Runs tasks that last used a futex, else of each queue those that have waited longest. */
__noinline int guess_holder(u64 lock, s32 cpu, u64 now)
{
	struct futex_users *users = bpf_map_lookup_elem(&futex_users, &lock);
	u32 i, tid;

	bpf_for (i, 0, users ? FUTEX_USERS : BLIND_QUEUES * BLIND_EACH) {
		if (guesses_until_ns > now + GUESS_AT_ONCE_NS)
			break;
		tid = users ? users->tids[i % FUTEX_USERS]
			    : longest_waiting(blind_queue(cpu, i / BLIND_EACH));
		if (run_guess(tid, lock))
			guesses_until_ns = plim_max(guesses_until_ns, now) + GUESS_COST_NS;
	}
	return 0;
}

/* Whether a task waits for a lock, and not for too long. */
static __always_inline bool is_to_be_looked_at(const struct task_ctx *t, u64 now)
{
	u64 lock = READ_ONCE(t->locks.waits_for);
	u64 most_ns = lock & LOCK_IS_FUTEX ? FUTEX_LOOKS_NS : KERNEL_LOOKS_NS;

	return lock && plim_elapsed_ns(now, t->locks.waits_since_ns) <= most_ns;
}

/* Looks for the holder of the lock that a task waits for, or is @about_to. */
static __always_inline void look(struct task_struct *p, struct task_ctx *t, bool about_to, u64 now)
{
	u64 lock = READ_ONCE(t->locks.waits_for), since_ns = READ_ONCE(t->locks.waits_since_ns);
	bool is_shared = false;
	u32 depth, tid;

	/* It has been woken. */
	if (!about_to && (READ_ONCE(t->waiting_since_ns) || READ_ONCE(t->started_ns)))
		return;
	tid = holder_for(t, &is_shared);
	if (lock & LOCK_IS_FUTEX && has_let_go(tid, lock, since_ns))
		tid = 0;
	WRITE_ONCE(t->locks.holder, tid);
	if (!tid) {
		if (lock & LOCK_IS_FUTEX && plim_elapsed_ns(now, since_ns) >= FIRST_LOOK_NS)
			guess_holder(lock, scx_bpf_task_cpu(p), now);
		return;
	}
	if (is_shared)
		lock |= LOCK_IS_FUTEX;
	bpf_for (depth, 0, HOLDERS_CHAIN_MAX) {
		tid = help(tid, lock, now);
		if (!tid)
			break;
	}
}

/* Looks at a watched task, which is @about_to wait. Returns whether it is watched on. */
__noinline bool look_on(u32 tid, bool about_to, u64 now)
{
	struct task_struct *p = bpf_task_from_pid(tid);
	struct task_ctx *t = p ? task_of(p) : NULL;
	bool goes_on = t;

	if (t && is_to_be_looked_at(t, now)) {
		look(p, t, about_to, now);
	} else if (t && !about_to) {
		__sync_lock_test_and_set(&t->locks.is_watched, 0);
		/* It may have begun to wait since, and found itself watched. */
		goes_on = is_to_be_looked_at(t, now) &&
			  !__sync_lock_test_and_set(&t->locks.is_watched, 1);
	}
	if (p)
		bpf_task_release(p);
	return goes_on;
}

/* A task that is watched has lost its place, because others have filled the queue. */
__noinline int unwatch(u32 tid)
{
	struct task_struct *p = bpf_task_from_pid(tid);
	struct task_ctx *t = p ? task_of(p) : NULL;

	if (t)
		WRITE_ONCE(t->locks.is_watched, 0);
	if (p)
		bpf_task_release(p);
	return 0;
}

/* Looks at each task of a queue once. Returns whether any is left. */
static __always_inline bool look_at_all(void *queue, u32 pass, u64 now)
{
	u32 nr_left = count_from, i;
	struct watched entry;

	bpf_for (i, 0, WATCHED_MAX) {
		if (bpf_map_pop_elem(queue, &entry))
			break;
		if (entry.pass != pass && !look_on(entry.tid, false, now))
			continue;
		nr_left++;
		if (bpf_map_push_elem(queue, &(struct watched){ .tid = entry.tid, .pass = pass },
				      0))
			unwatch(entry.tid);
		/* The queue has gone round. */
		if (entry.pass == pass)
			break;
	}
	return nr_left;
}

/* Timer callback: looks at all that is watched. */
static int pass_timer(void *map, int *key, struct bpf_timer *timer)
{
	u64 now = bpf_ktime_get_ns();
	u32 pass = ++nr_passes;
	bool any;

	__sync_lock_test_and_set(&pass_is_due, 0);
	any = look_at_all(&watched, pass, now);
	any |= look_at_all(&guessed, pass, now);
	if (any && !__sync_lock_test_and_set(&pass_is_due, 1))
		bpf_timer_start(timer, LOOK_NS, 0);
	return 0;
}

/* Timer callback: looks at those that have begun to wait. */
static int urgent_timer(void *map, int *key, struct bpf_timer *timer)
{
	u64 now = bpf_ktime_get_ns();
	u32 i, tid;

	bpf_for (i, 0, URGENT_MAX) {
		if (bpf_map_pop_elem(&urgent, &tid))
			break;
		look_on(tid, true, now);
	}
	return 0;
}

#endif /* PLIMSOLL_HOLDERS_BPF_H */

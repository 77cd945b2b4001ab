/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The wait of a task as the kernel's watchdog sees it.
 *
 * It counts from p->scx.runnable_at, which is renewed only when a task has run
 * in this class. So a task that waited here, was made a real-time task and came
 * back, or had its nice level changed, is still waiting to the watchdog,
 * however often it ran elsewhere or was queued again.
 */
#ifndef PLIMSOLL_WATCHDOG_BPF_H
#define PLIMSOLL_WATCHDOG_BPF_H

#include "state.bpf.h"

/*
 * Wait after which a task runs regardless of limits. The watchdog's limit is 30 s. A task
 * that waits inside a section that RCU waits for is a stall after 21 s, which ends the
 * scheduler, too (CONFIG_RCU_CPU_STALL_TIMEOUT), and may need several turns to leave it.
 */
#define OVERDUE_NS (8 * PLIM_NSEC_PER_SEC)
#define OVERDUE_READER_NS PLIM_NSEC_PER_SEC

/* Length of a jiffy, which depends on the kernel's build. Written by housekeeping only. */
u64 first_jiffies, first_ns;
u64 jiffy_ns;

static __always_inline void watchdog_measure_jiffy(u64 now)
{
	u64 jiffies = bpf_jiffies64();

	if (!first_ns) {
		first_jiffies = jiffies;
		first_ns = now;
	} else if (jiffies > first_jiffies) {
		WRITE_ONCE(jiffy_ns, plim_elapsed_ns(now, first_ns) / (jiffies - first_jiffies));
	}
}

/* How long a waiting task has waited, as the watchdog sees it. */
static __always_inline u64 watchdog_waited_ns(const struct task_struct *p)
{
	return plim_elapsed_ns(bpf_jiffies64(), p->scx.runnable_at) * READ_ONCE(jiffy_ns);
}

/* include/linux/sched/signal.h: the whole process is about to die. */
#define SIGNAL_GROUP_EXIT 0x4

/* Whether a task was killed, or exits. */
static __always_inline bool is_dying(const struct task_struct *p)
{
	return p->flags & PF_EXITING || UNTRUSTED(p)->signal->flags & SIGNAL_GROUP_EXIT;
}

/*
 * Whether a task stands inside of a section that RCU waits for. Only a preemptible kernel has the
 * count, where a reader can be preempted.
 */
static __always_inline bool reads_rcu(const struct task_struct *p)
{
	return bpf_core_field_exists(p->rcu_read_lock_nesting) && p->rcu_read_lock_nesting > 0;
}

/* Whether a task that is queued has to run now, regardless of limits. */
static __always_inline bool is_overdue(const struct task_struct *p)
{
	u64 overdue_ns = OVERDUE_NS;

	if (p->scx.flags & SCX_TASK_RESET_RUNNABLE_AT)
		return false;
	/* No event tells that no limit holds any more for a killed task that is parked or refused.
	 */
	if (reads_rcu(p) || is_dying(p))
		overdue_ns = OVERDUE_READER_NS;
	return watchdog_waited_ns(p) >= overdue_ns;
}

#endif /* PLIMSOLL_WATCHDOG_BPF_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The guard of stock kernels: when the fair class has to look again.
 *
 * An inversion is idle work that runs although normal work waits on the same CPU: the
 * fair class picks what is eligible, which normal work that has just run is not, and
 * looks again at the next tick only. To have it look again, a thread of a higher class
 * is woken on that CPU, runs and sleeps.
 *
 * Source: SCHED_IDLE and cpu.idle in kernel/sched/fair.c, whose pick_eevdf() tests
 * eligibility before weight.
 *
 * Promise: of an inversion that stands for longer than PLIM_GUARD_DELAY_NS the CPU
 * looks again; in any time T a CPU is made to look at most
 * T / PLIM_GUARD_WAKE_PERIOD_NS + PLIM_GUARD_WAKES_AT_ONCE times.
 *
 * Proofs: policy/proofs/guard.c
 */
#ifndef PLIMSOLL_GUARD_H
#define PLIMSOLL_GUARD_H

#include "units.h"

/*
 * From the begin of an inversion to the first look: most end by themselves, as the
 * task that was woken interrupts the one that runs.
 */
#define PLIM_GUARD_DELAY_NS (20 * PLIM_NSEC_PER_USEC)
/* Until it is seen whether a wake-up has ended the inversion. */
#define PLIM_GUARD_AGAIN_NS (100 * PLIM_NSEC_PER_USEC)
/* A look that is so late was lost: the CPU of its timer went offline. */
#define PLIM_GUARD_LOST_NS PLIM_NSEC_PER_MSEC
/* In the long run one wake-up in this time, and so many at once, on each CPU. */
#define PLIM_GUARD_WAKE_PERIOD_NS (500 * PLIM_NSEC_PER_USEC)
#define PLIM_GUARD_WAKES_AT_ONCE 64
#define PLIM_GUARD_CREDIT_MAX_NS (PLIM_GUARD_WAKES_AT_ONCE * PLIM_GUARD_WAKE_PERIOD_NS)

/* The guard of one CPU. Initialised to zero. */
struct plim_guard {
	plim_u64 look_at_ns; /* when the next look is due; 0: none is */
	plim_u64 spent_until_ns; /* wake-ups are paid for up to this time */
};

/*
 * Whether a task runs at the cost of normal work of one of the cgroups around it. At that
 * level it counts as idle if its own policy, or that of the cgroup that it is in there,
 * is. Of the @nr_runnable tasks there @nr_idle are idle at that level. An idle cgroup in a
 * normal one has a right to that one's share, so each level counts for itself.
 */
static __always_inline int
plim_guard_is_inverted(int counts_as_idle, plim_u32 nr_runnable, plim_u32 nr_idle)
{
	return counts_as_idle && nr_runnable > nr_idle;
}

/* An inversion may have begun. Returns the time until it is looked at; 0: it is already. */
static __always_inline plim_u64 plim_guard_begin(struct plim_guard *guard, plim_u64 now_ns)
{
	if (guard->look_at_ns &&
	    now_ns < plim_add_saturating(guard->look_at_ns, PLIM_GUARD_LOST_NS))
		return 0;
	guard->look_at_ns = plim_add_saturating(now_ns, PLIM_GUARD_DELAY_NS);
	return PLIM_GUARD_DELAY_NS;
}

/*
 * Looks at a CPU: @is_inverted now. @wakes: whether its thread is woken. Returns the time
 * until the next look, as long as the inversion stands; 0: there is none. The caller has
 * cleared look_at_ns before it looked, so that what begins meanwhile is looked at.
 */
static __always_inline plim_u64 plim_guard_look(struct plim_guard *guard, int is_inverted,
						plim_u64 now_ns, int *wakes)
{
	plim_u64 paid_ns, again_ns;

	*wakes = 0;
	if (!is_inverted)
		return 0;
	paid_ns = plim_max(guard->spent_until_ns, plim_sub_floor(now_ns, PLIM_GUARD_CREDIT_MAX_NS));
	paid_ns = plim_add_saturating(paid_ns, PLIM_GUARD_WAKE_PERIOD_NS);
	if (paid_ns <= now_ns) {
		guard->spent_until_ns = paid_ns;
		*wakes = 1;
		again_ns = PLIM_GUARD_AGAIN_NS;
	} else {
		again_ns = plim_min(paid_ns - now_ns, PLIM_GUARD_WAKE_PERIOD_NS);
	}
	guard->look_at_ns = plim_add_saturating(now_ns, again_ns);
	return again_ns;
}

#endif /* PLIMSOLL_GUARD_H */

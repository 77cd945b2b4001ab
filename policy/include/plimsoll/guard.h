/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The guard of stock kernels: when the fair class has to look again, and when a task
 * that waits has to move.
 *
 * An inversion is idle work that runs although normal work waits on the same CPU: the
 * fair class picks what is eligible, which normal work that has just run is not, and
 * looks again at the next tick only. To have it look again, a thread of a higher class
 * is woken on that CPU, runs and sleeps.
 *
 * Normal work also waits for normal work on one CPU while another runs nothing but idle
 * work. The fair class pulls when a CPU becomes idle, which a CPU with idle work never
 * does, and else balances busy CPUs after tens of milliseconds. So the guard pulls.
 *
 * Idle work that is owed more than it asks for at a time precedes normal work at each look,
 * until it has had that. A CPU with nothing but idle work can give it that, too. So where a
 * look follows a wake-up, what runs is pushed there.
 *
 * Source: SCHED_IDLE and cpu.idle in kernel/sched/fair.c, whose pick_eevdf() tests
 * eligibility before weight, and sched_balance_newidle() of which an idle CPU pulls.
 *
 * Promise: of an inversion that stands for longer than PLIM_GUARD_DELAY_NS the CPU
 * looks again; in any time T the thread of a CPU is woken, to look or to move, at most
 * T / PLIM_GUARD_WAKE_PERIOD_NS + PLIM_GUARD_WAKES_AT_ONCE times, and the CPU loses at most
 * T / PLIM_GUARD_PULL_NS + 1 normal tasks to others. Idle work is pushed only at a wake-up that
 * follows another one.
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
/*
 * A normal task that has waited so long behind normal work is pulled. Not earlier: beside
 * idle work it is often not eligible at first where it comes to, for as long as that.
 */
#define PLIM_GUARD_PULL_NS (500 * PLIM_NSEC_PER_USEC)

/* The guard of one CPU. Initialised to zero. */
struct plim_guard {
	plim_u64 look_at_ns; /* when the next look is due; 0: none is */
	plim_u64 spent_until_ns; /* wake-ups are paid for up to this time */
	plim_u64 has_woken; /* at a look since the inversion began */
};

/* One normal task that waits on a CPU, behind whatever work. Initialised to zero. */
struct plim_guard_wait {
	plim_u64 since_ns; /* 0: none is known */
	plim_u64 look_at_ns; /* when the next look is due; 0: none is */
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

/* Pays for a wake-up of the thread of this CPU. Returns false if there is no credit. */
static __always_inline int plim_guard_pay(struct plim_guard *guard, plim_u64 now_ns)
{
	plim_u64 paid_ns =
		plim_max(guard->spent_until_ns, plim_sub_floor(now_ns, PLIM_GUARD_CREDIT_MAX_NS));

	paid_ns = plim_add_saturating(paid_ns, PLIM_GUARD_WAKE_PERIOD_NS);
	if (paid_ns > now_ns)
		return 0;
	guard->spent_until_ns = paid_ns;
	return 1;
}

/*
 * Looks at a CPU: @is_inverted now. @wakes: whether its thread is woken. @pushes: whether that also
 * moves the task that runs to a CPU with nothing but idle work, if there is one that can pay, too
 * (plim_guard_pay()). Returns the time until the next look, as long as the inversion stands; 0:
 * there is none. The caller has cleared look_at_ns before it looked, so that what begins meanwhile
 * is looked at.
 */
static __always_inline plim_u64 plim_guard_look(struct plim_guard *guard, int is_inverted,
						plim_u64 now_ns, int *wakes, int *pushes)
{
	plim_u64 again_ns;

	*wakes = is_inverted && plim_guard_pay(guard, now_ns);
	*pushes = *wakes && guard->has_woken;
	if (*wakes || !is_inverted)
		guard->has_woken = (plim_u64)*wakes;
	if (!is_inverted)
		return 0;
	again_ns = *wakes ? PLIM_GUARD_AGAIN_NS : PLIM_GUARD_WAKE_PERIOD_NS;
	guard->look_at_ns = plim_add_saturating(now_ns, again_ns);
	return again_ns;
}

/*
 * Whether normal work waits behind normal work: a CPU runs one of its @nr_runnable tasks,
 * of which @nr_idle are idle ones.
 */
static __always_inline int plim_guard_has_waiting(plim_u32 nr_runnable, plim_u32 nr_idle)
{
	return nr_runnable > nr_idle && nr_runnable - nr_idle > 1;
}

/*
 * A normal task begins to wait. Returns the time until the look that is to be arranged;
 * 0: one is due already. Another task may be waiting there: that one is looked at.
 */
static __always_inline plim_u64 plim_guard_wait_begin(struct plim_guard_wait *wait, plim_u64 now_ns)
{
	if (!wait->since_ns)
		wait->since_ns = now_ns;
	if (wait->look_at_ns && now_ns < plim_add_saturating(wait->look_at_ns, PLIM_GUARD_LOST_NS))
		return 0;
	wait->look_at_ns = plim_add_saturating(now_ns, PLIM_GUARD_PULL_NS);
	return PLIM_GUARD_PULL_NS;
}

/*
 * Looks at the task that waits: @waits, if it still does behind normal work; @room, the
 * guard of another CPU that runs nothing but idle work, or NULL. @pulls: whether it goes
 * there. Returns the time until the next look, as long as it waits; 0: none, the next one
 * that begins to wait is looked at. The caller has cleared look_at_ns before it looked, as
 * for plim_guard_look().
 */
static __always_inline plim_u64 plim_guard_wait_look(struct plim_guard_wait *wait, int waits,
						     struct plim_guard *room, plim_u64 now_ns,
						     int *pulls)
{
	plim_u64 due_ns = plim_add_saturating(wait->since_ns, PLIM_GUARD_PULL_NS);

	*pulls = 0;
	if (!waits || !wait->since_ns) {
		wait->since_ns = 0;
		return 0;
	}
	if (now_ns >= due_ns) {
		*pulls = room && plim_guard_pay(room, now_ns);
		if (*pulls) {
			wait->since_ns = 0;
			return 0;
		}
		due_ns = plim_add_saturating(now_ns, PLIM_GUARD_PULL_NS);
	}
	wait->look_at_ns = due_ns;
	return due_ns - now_ns;
}

#endif /* PLIMSOLL_GUARD_H */

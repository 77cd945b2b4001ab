/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Order: which of the tasks that wait in one queue runs next, for how long, and
 * which task preempts which.
 *
 * A task has a start, its position in virtual time, and a request, the CPU time
 * that it asks for at once. Virtual time passes for a task while it runs, the
 * faster the smaller its effective weight. Its deadline is the virtual time at
 * which the request is served if it gets its share. The task with the earliest
 * deadline runs. A queue has a clock: the latest start of the tasks that were
 * picked from it.
 *
 * All virtual times of one queue lie within 2^60 of each other, so they may wrap.
 *
 * Source: weights of kernel/sched/core.c; "Earliest Eligible Virtual Deadline First" (Stoica and
 * Abdel-Wahab, 1995), as in kernel/sched/fair.c, without the test of eligibility: a kernel queue
 * cannot skip its head. The clock, the floors at wake-up and requeue, and short requests take its
 * place.
 *
 * Promise: a task without debt that has effective weight e and request R, among
 * n tasks of the effective weights E, waits at most (R * sum(E) / e + n * K) / C, and
 * one request more, of the time that its queue gets on C CPUs. K is what a task can
 * be owed: PLIM_ORDER_CREDIT_NS, or its request if that is longer.
 *
 * Proofs: policy/proofs/order.c
 */
#ifndef PLIMSOLL_ORDER_H
#define PLIMSOLL_ORDER_H

#include "units.h"

#define PLIM_NICE_MIN (-20)
#define PLIM_NICE_MAX 19
#define PLIM_NICE_LEVELS 40
/* The weight of nice 0. */
#define PLIM_WEIGHT_NICE_0 1024U

/* Largest effective weight: no more than 100 times the unit; rounded up. */
#define PLIM_ORDER_WEIGHT_MAX (1ULL << 27)
/* Binary digits after the point of an effective weight. */
#define PLIM_ORDER_WEIGHT_SHIFT 10
/* The effective weight for which virtual time passes like run time: nice 0, alone. */
#define PLIM_ORDER_WEIGHT_UNIT ((plim_u64)PLIM_WEIGHT_NICE_0 << PLIM_ORDER_WEIGHT_SHIFT)
/* log2 of PLIM_ORDER_WEIGHT_UNIT. */
#define PLIM_ORDER_UNIT_SHIFT 20

/*
 * Requests: from a few switches' worth to less than a tick at 250 Hz, which ends
 * them. The kernel's base slice is 0.7 to 3 ms.
 */
#ifndef PLIM_ORDER_REQUEST_MIN_NS
#define PLIM_ORDER_REQUEST_MIN_NS (100 * PLIM_NSEC_PER_USEC)
#endif
#define PLIM_ORDER_REQUEST_MAX_NS (32 * PLIM_ORDER_REQUEST_MIN_NS)
#define PLIM_ORDER_REQUEST_NEW_NS (8 * PLIM_ORDER_REQUEST_MIN_NS)
/* Runs in a row, each shorter than half the request, after which that is halved. */
#define PLIM_ORDER_SHORT_RUNS 4
/* Requests that a task uses up without a sleep, after which they get longer. */
#define PLIM_ORDER_LONG_RUN 8
/*
 * Most that a task can be owed: the longest request, or its own if that is longer. A
 * task with short requests is owed as much as the others.
 */
#define PLIM_ORDER_CREDIT_NS PLIM_ORDER_REQUEST_MAX_NS
/* Most that a task can owe that runs before its turn: no less than the longest request. */
#define PLIM_ORDER_DEBT_MAX_NS (100 * PLIM_NSEC_PER_MSEC)
/* Most virtual time that a move costs: the longest request at a 340,000th of the unit's weight. */
#define PLIM_ORDER_MOVE_MAX (1ULL << 40)
/* Longest run that is charged at once (68 s): bounds a step of virtual time by 2^56. */
#define PLIM_ORDER_RUN_MAX_NS (1ULL << 36)
/* Sleep after which a task is placed like a new one. */
#define PLIM_ORDER_FORGET_NS PLIM_NSEC_PER_SEC

/* One task. Initialised to zero, then plim_order_init(). */
struct plim_order {
	plim_u64 start; /* virtual: its service so far */
	plim_u64 deadline; /* virtual: of the present request */
	plim_u64 credit; /* virtual: owed to it when it fell asleep */
	plim_u64 ran_ns; /* since it woke */
	plim_u32 request_ns;
	plim_u32 nr_short_runs; /* in a row */
};

/*
 * Weight of a nice level: the kernel's sched_prio_to_weight, 1.25 per level, so
 * that one level is about 10 % of CPU between two tasks. A value out of range
 * is clamped.
 */
static __always_inline plim_u32 plim_order_nice_weight(plim_s32 nice)
{
	static const plim_u32 weights[PLIM_NICE_LEVELS] = {
		88761, 71755, 56483, 46273, 36291, /* -20 … -16 */
		29154, 23254, 18705, 14949, 11916, /* -15 … -11 */
		9548,  7620,  6100,  4904,  3906, /* -10 … -6 */
		3121,  2501,  1991,  1586,  1277, /* -5 … -1 */
		1024,  820,   655,   526,   423, /* 0 … 4 */
		335,   272,   215,   172,   137, /* 5 … 9 */
		110,   87,    70,    56,    45, /* 10 … 14 */
		36,    29,    23,    18,    15, /* 15 … 19 */
	};
	plim_u32 index;

	if (nice < PLIM_NICE_MIN)
		nice = PLIM_NICE_MIN;
	if (nice > PLIM_NICE_MAX)
		nice = PLIM_NICE_MAX;
	/* The verifier wants an unsigned index with a bound it can see. */
	index = (plim_u32)(nice - PLIM_NICE_MIN);
	return weights[index < PLIM_NICE_LEVELS ? index : PLIM_NICE_LEVELS - 1];
}

/* Weight of a group in the unit of task weights (100 becomes 1024), as sched_weight_from_cgroup().
 */
static __always_inline plim_u32 plim_order_group_weight(plim_u32 group_weight)
{
	plim_u64 weight =
		plim_min(plim_max(group_weight, PLIM_GROUP_WEIGHT_MIN), PLIM_GROUP_WEIGHT_MAX);

	return (plim_u32)((weight * PLIM_WEIGHT_NICE_0 + PLIM_GROUP_WEIGHT_DEFAULT / 2) /
			  PLIM_GROUP_WEIGHT_DEFAULT);
}

/* The share of a group at the top, whose surroundings are the machine. */
static __always_inline plim_u64 plim_order_share_at_top(plim_u32 weight)
{
	return (plim_u64)weight << PLIM_ORDER_WEIGHT_SHIFT;
}

/*
 * Share, among all, of a group that has @share among what is in the group around it. That
 * one has @weight, and what is runnable in it weighs @load, this group included; all
 * weights in the unit of plim_order_nice_weight(). Applied once for each level up to the top.
 * At least 1, and no more than the group around has.
 */
static __always_inline plim_u64 plim_order_share(plim_u64 share, plim_u32 weight, plim_u64 load)
{
	plim_u64 own = (share + (1U << PLIM_ORDER_WEIGHT_SHIFT) - 1) >> PLIM_ORDER_WEIGHT_SHIFT;

	return plim_max(share * weight / plim_max(load, plim_max(own, 1)), 1);
}

/*
 * Effective weight of a task of @weight in a group that has @share among all, in which
 * tasks and groups of the weights @load compete, this one included. At least 1.
 */
static __always_inline plim_u64 plim_order_weight(plim_u32 weight, plim_u64 share, plim_u64 load)
{
	load = plim_max(load, plim_max(weight, 1));
	return plim_max(share * weight / load, 1);
}

/* All of a request; see plim_order_part(). */
#define PLIM_ORDER_PART_SHIFT 10
#define PLIM_ORDER_PART_WHOLE (1U << PLIM_ORDER_PART_SHIFT)

/*
 * Part of its request that a task asks for at once, from what it is without one of its
 * groups, @part. That group, or the task, has @weight among @nr tasks and groups of the
 * weights @load, this one included. One that is lighter than the mean of the others asks
 * for less, in proportion: its share grows at once when a heavier one stops, which is of no
 * use to it until the virtual time of its request has passed. Slices by weight are those of
 * the fair class up to Linux 6.5, there also among many of equal weights. At least 1.
 */
static __always_inline plim_u32 plim_order_part(plim_u32 part, plim_u32 weight, plim_u32 nr,
						plim_u64 load)
{
	plim_u64 others = plim_sub_floor(load, weight), if_alike;

	part = plim_min(part, PLIM_ORDER_PART_WHOLE);
	if (nr <= 1)
		return plim_max(part, 1);
	if_alike = (plim_u64)weight * (nr - 1);
	if (if_alike < others)
		part = (plim_u32)(part * if_alike / others);
	return plim_max(part, 1);
}

/*
 * Part of a request, down to the shortest. Whether a task preempts another is decided by
 * whole requests.
 */
static __always_inline plim_u64 plim_order_part_ns(plim_u32 request_ns, plim_u32 part)
{
	plim_u64 part_ns = (plim_u64)request_ns * part >> PLIM_ORDER_PART_SHIFT;

	return plim_min(request_ns, plim_max(part_ns, PLIM_ORDER_REQUEST_MIN_NS));
}

/* The proofs put any quotient in its place: divisions are what a solver is slow at. */
#ifndef PLIM_ORDER_DIVIDE
#define PLIM_ORDER_DIVIDE(dividend, divisor) ((dividend) / (divisor))
#endif

/* Virtual time that a run of @ran_ns takes. Rounded up, so that no run is free. */
static __always_inline plim_u64 plim_order_delta(plim_u64 ran_ns, plim_u64 effective)
{
	effective = plim_max(effective, 1);
	ran_ns = plim_min(ran_ns, PLIM_ORDER_RUN_MAX_NS);
	return PLIM_ORDER_DIVIDE((ran_ns << PLIM_ORDER_UNIT_SHIFT) + effective - 1, effective);
}

/* Whether virtual time @a is before @b. */
static __always_inline int plim_order_before(plim_u64 a, plim_u64 b)
{
	return (plim_s64)(a - b) < 0;
}

/* The later of two virtual times. */
static __always_inline plim_u64 plim_order_later(plim_u64 a, plim_u64 b)
{
	return plim_order_before(a, b) ? b : a;
}

/* Virtual time that a task with this start is owed by a queue. */
static __always_inline plim_u64 plim_order_owed(plim_u64 start, plim_u64 clock)
{
	return plim_order_before(start, clock) ? clock - start : 0;
}

/* The clock of a queue from which a task with this start was picked. */
static __always_inline plim_u64 plim_order_picked(plim_u64 clock, plim_u64 start)
{
	return plim_order_later(clock, start);
}

/* A task that is new to the scheduler: at the clock, with neither credit nor debt. */
static __always_inline void plim_order_init(struct plim_order *task, plim_u64 clock)
{
	task->start = clock;
	task->deadline = clock;
	task->credit = 0;
	task->ran_ns = 0;
	task->request_ns = (plim_u32)PLIM_ORDER_REQUEST_NEW_NS;
	task->nr_short_runs = 0;
}

/* Virtual time that a task can be owed at most. */
static __always_inline plim_u64 plim_order_credit_max(const struct plim_order *task,
						      plim_u64 effective)
{
	return plim_order_delta(plim_max(task->request_ns, PLIM_ORDER_CREDIT_NS), effective);
}

/*
 * Begins a request, or a @part of it, at the task's start. Its deadline is not before the clock,
 * however much the task is owed: until it has caught up with that, the request goes on.
 */
static __always_inline void
plim_order_renew(struct plim_order *task, plim_u64 clock, plim_u64 effective, plim_u32 part)
{
	plim_u64 request_ns = plim_order_part_ns(task->request_ns, part);

	task->deadline =
		plim_order_later(task->start + plim_order_delta(request_ns, effective), clock);
}

/*
 * The clock of a group with several tasks, before one of them is charged to it: the
 * service of all by the group's share. The group forfeits its unused share but for
 * the credit that any task of the unit's weight may have.
 */
static __always_inline plim_u64 plim_order_group_clock(plim_u64 group_clock, plim_u64 clock)
{
	return plim_order_later(group_clock, clock - PLIM_ORDER_CREDIT_NS);
}

/*
 * Virtual time that a run of @ran_ns before its turn adds to the clock of a group with this
 * @share: no more than a task may owe for such runs. They move no other clock, and the group's
 * tasks that wake wait until that clock has passed the group's.
 */
static __always_inline plim_u64 plim_order_group_early(plim_u64 group_clock, plim_u64 clock,
						       plim_u64 ran_ns, plim_u64 share)
{
	plim_u64 most = clock + plim_order_delta(PLIM_ORDER_DEBT_MAX_NS, share);

	if (!plim_order_before(group_clock, most))
		return 0;
	return plim_min(plim_order_delta(ran_ns, share), most - group_clock);
}

/*
 * The floor for a task of a group that wakes: a request behind the group's clock. Else
 * tasks that wake in turn would each begin without what the others have had.
 */
static __always_inline plim_u64 plim_order_group_floor(const struct plim_order *task,
						       plim_u64 group_clock, plim_u64 effective)
{
	return group_clock - plim_order_delta(task->request_ns, effective);
}

/*
 * A task wakes, or is new: it joins a queue with this @clock. It keeps its debt
 * until the clock has passed it, and its credit. @floor: it starts no earlier,
 * whatever its credit.
 * @asleep_ns: how long it slept.
 */
static __always_inline void plim_order_wake(struct plim_order *task, plim_u64 clock, plim_u64 floor,
					    plim_u64 asleep_ns, plim_u64 effective, plim_u32 part)
{
	plim_u64 credit = plim_min(task->credit, plim_order_credit_max(task, effective));

	if (asleep_ns >= PLIM_ORDER_FORGET_NS)
		task->start = clock;
	else
		task->start = plim_order_later(task->start, clock - credit);
	task->start = plim_order_later(task->start, floor);
	task->credit = 0;
	plim_order_renew(task, clock, effective, part);
}

/* Charges a run. */
static __always_inline void
plim_order_charge(struct plim_order *task, plim_u64 ran_ns, plim_u64 effective)
{
	task->start += plim_order_delta(ran_ns, effective);
	task->ran_ns = plim_add_saturating(task->ran_ns, ran_ns);
}

/* Whether the present request is served. */
static __always_inline int plim_order_is_served(const struct plim_order *task)
{
	return !plim_order_before(task->start, task->deadline);
}

/*
 * A task that could run on, and was charged, returns to its queue. A served
 * request is followed by the next, twice as long if the task has used up some
 * without a sleep: more than a burst of a service. Otherwise the deadline stays.
 * The task forfeits what it could not use for want of CPUs but for the credit that
 * any task may have, so that it cannot hold up the others later.
 */
static __always_inline void plim_order_requeue(struct plim_order *task, plim_u64 clock,
					       int fixed_request, plim_u64 effective, plim_u32 part)
{
	task->start = plim_order_later(task->start, clock - plim_order_credit_max(task, effective));
	if (!plim_order_is_served(task)) {
		task->deadline = plim_order_later(task->deadline, clock);
		return;
	}
	if (!fixed_request && task->ran_ns / PLIM_ORDER_LONG_RUN >= task->request_ns)
		task->request_ns = (plim_u32)plim_min((plim_u64)task->request_ns * 2,
						      PLIM_ORDER_REQUEST_MAX_NS);
	plim_order_renew(task, clock, effective, part);
}

/*
 * A task that was charged falls asleep. What it is owed becomes its credit. Some
 * short runs in a row halve its request.
 */
static __always_inline void
plim_order_sleep(struct plim_order *task, plim_u64 clock, int fixed_request)
{
	task->credit = plim_order_owed(task->start, clock);
	if (task->ran_ns >= task->request_ns / 2)
		task->nr_short_runs = 0;
	else
		task->nr_short_runs++;
	task->ran_ns = 0;
	if (task->nr_short_runs < PLIM_ORDER_SHORT_RUNS)
		return;
	task->nr_short_runs = 0;
	if (!fixed_request)
		task->request_ns = (plim_u32)plim_max((plim_u64)task->request_ns / 2,
						      PLIM_ORDER_REQUEST_MIN_NS);
}

/*
 * A task gives up the rest of its request, as sched_yield() does in the fair class, or as much as
 * any task may be owed: else a light task that yields in a loop would make virtual time wrap.
 */
static __always_inline void plim_order_yield(struct plim_order *task)
{
	if (plim_order_before(task->start, task->deadline))
		task->start += plim_min(task->deadline - task->start, PLIM_ORDER_CREDIT_NS);
}

/* Moves a task to another queue: the distance from the clock stays the same. */
static __always_inline void
plim_order_move(struct plim_order *task, plim_u64 from_clock, plim_u64 to_clock)
{
	task->start += to_clock - from_clock;
	task->deadline += to_clock - from_clock;
}

/*
 * A task that has run has left a queue for another, with this @clock. Clocks are behind the mean of
 * their tasks by up to a request: one that owes would come before those that have had less, at each
 * move anew, and get twice its share. It owes a request more.
 */
static __always_inline void
plim_order_leave(struct plim_order *task, plim_u64 clock, plim_u64 effective)
{
	plim_u64 request =
		plim_min(plim_order_delta(task->request_ns, effective), PLIM_ORDER_MOVE_MAX);

	if (!plim_order_before(clock, task->start))
		return;
	task->start += request;
	task->deadline += request;
}

/*
 * A task comes to a queue of another tier, with this @clock, where time is worth more or less: what
 * it was owed is forfeited, a debt stays.
 */
static __always_inline void plim_order_forfeit(struct plim_order *task, plim_u64 clock)
{
	plim_u64 owed = plim_order_owed(task->start, clock);

	task->start += owed;
	task->deadline += owed;
	task->credit = 0;
}

/*
 * Bounds the debt of a task that runs before its turn, at each of which runs it grows: one in
 * turn owes no more than a request, or two if it moves. At the lowest weight it is below 2^47.
 */
static __always_inline void
plim_order_forgive(struct plim_order *task, plim_u64 clock, plim_u64 effective)
{
	plim_u64 most = clock + plim_order_delta(PLIM_ORDER_DEBT_MAX_NS, effective);

	if (!plim_order_before(most, task->start))
		return;
	task->deadline -= task->start - most;
	task->start = most;
}

/* Run time that is left of the present request, at most all of it. */
static __always_inline plim_u64 plim_order_left_ns(const struct plim_order *task,
						   plim_u64 effective)
{
	plim_u64 left = task->deadline - task->start;

	if (plim_order_is_served(task))
		return 0;
	/* At a weight of a 20,000th and less the product might not fit: then all of it. */
	if (left >> 36)
		return task->request_ns;
	effective = plim_min(effective, PLIM_ORDER_WEIGHT_MAX);
	return plim_min((left * effective) >> PLIM_ORDER_UNIT_SHIFT, task->request_ns);
}

/*
 * Whether a task that comes to a queue preempts the one that runs, of the same
 * tier. Its deadline has to be earlier, and the running request served, or a long one
 * of at least twice its own: equals do not interrupt one another, and a short request
 * ends soon. Where a service and what feeds it fill the CPUs, each interruption is two
 * switches for nothing.
 */
static __always_inline int plim_order_preempts(plim_u64 deadline, plim_u64 request_ns,
					       plim_u64 running_deadline,
					       plim_u64 running_request_ns, int running_is_served)
{
	if (!plim_order_before(deadline, running_deadline))
		return 0;
	return running_is_served || (running_request_ns > PLIM_ORDER_REQUEST_NEW_NS &&
				     request_ns <= running_request_ns / 2);
}

#endif /* PLIMSOLL_ORDER_H */

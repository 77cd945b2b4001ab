/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The batch class: per-CPU limit, and load balancing.
 *
 * The order of tasks is not decided here but in order.h, and the position of the
 * class (below normal, above background) by the scheduler. This header decides
 * how much of a CPU batch work may use, and to which CPU a batch task should go.
 *
 * Source: "BT scheduling class" (2019); placement follows kernel/sched/fair.c.
 *
 * Proofs: policy/proofs/batch.c
 */
#ifndef PLIMSOLL_BATCH_H
#define PLIMSOLL_BATCH_H

#include "units.h"

#define PLIM_BATCH_SLICE_DEFAULT_NS (4 * PLIM_NSEC_PER_MSEC)
/* The window of the per-CPU limit, and of the average of room_ppm. */
#define PLIM_BATCH_WINDOW_NS (100 * PLIM_NSEC_PER_MSEC)
/* Larger loads are clamped to this, 2^22 tasks of nice 0: keeps load * ppm below 2^62. */
#define PLIM_BATCH_LOAD_MAX (1ULL << 42)
/* Least room that is told apart: behind normal work that never pauses there is little. */
#define PLIM_BATCH_ROOM_MIN_PPM (PLIM_PPM / 1000)
/* Wait after which a batch task moves to a CPU that is free for it. */
#define PLIM_BATCH_WAIT_MAX_NS PLIM_NSEC_PER_MSEC

/* Per-CPU limit: usage of one CPU by the batch work of a group. */
struct plim_batch_limit {
	plim_u64 window_ns; /* start of the current window */
	plim_u64 used_ns; /* charged to it, including the last one's excess */
};

/* Time that a limit of @limit_ppm (of one CPU) allows in one window. */
static __always_inline plim_u64 plim_batch_limit_ns(plim_u32 limit_ppm)
{
	return plim_scale_ppm(PLIM_BATCH_WINDOW_NS, plim_min(limit_ppm, PLIM_PPM));
}

/*
 * Advances to the window that contains @now_ns. Usage in excess of a window's
 * limit counts against the next, so that the long-run share is exact.
 */
static __always_inline void
plim_batch_limit_advance(struct plim_batch_limit *limit, plim_u32 limit_ppm, plim_u64 now_ns)
{
	plim_u64 elapsed_ns = plim_sub_floor(now_ns, limit->window_ns);
	plim_u64 windows = elapsed_ns / PLIM_BATCH_WINDOW_NS;
	plim_u64 allowed_ns = plim_batch_limit_ns(limit_ppm);

	if (!windows)
		return;
	limit->window_ns += windows * PLIM_BATCH_WINDOW_NS;
	if (!allowed_ns || limit->used_ns / allowed_ns < windows)
		limit->used_ns = allowed_ns ? 0 : limit->used_ns;
	else
		limit->used_ns -= windows * allowed_ns;
}

/*
 * Charges @ran_ns of batch work to one CPU (0: only checks).
 *
 * Returns how long batch work may still run there in this window; if 0, it may
 * not run before plim_batch_limit_until_ns().
 */
static __always_inline plim_u64 plim_batch_limit_charge(struct plim_batch_limit *limit,
							plim_u32 limit_ppm, plim_u64 ran_ns,
							plim_u64 now_ns)
{
	plim_batch_limit_advance(limit, limit_ppm, now_ns);
	limit->used_ns = plim_add_saturating(limit->used_ns, plim_min(ran_ns, PLIM_ELAPSED_MAX_NS));
	return plim_sub_floor(plim_batch_limit_ns(limit_ppm), limit->used_ns);
}

/* End of the current window. */
static __always_inline plim_u64 plim_batch_limit_until_ns(const struct plim_batch_limit *limit)
{
	return limit->window_ns + PLIM_BATCH_WINDOW_NS;
}

/*
 * First input of load balancing: the share of a CPU that is left for batch
 * work, 1 - usage of normal tasks, averaged over about PLIM_BATCH_WINDOW_NS.
 *
 * The average moves by elapsed / window towards the last observation, and
 * equals it after a whole window. @room_ppm: the average so far. @normal_ns:
 * run time of normal tasks in the last @elapsed_ns.
 */
static __always_inline plim_u32 plim_batch_room_ppm(plim_u32 room_ppm, plim_u64 normal_ns,
						    plim_u64 elapsed_ns)
{
	plim_u64 weight_ppm, seen_ppm;

	if (!elapsed_ns)
		return room_ppm;
	elapsed_ns = plim_min(elapsed_ns, PLIM_ELAPSED_MAX_NS);
	normal_ns = plim_min(normal_ns, elapsed_ns);
	seen_ppm = (elapsed_ns - normal_ns) * PLIM_PPM / elapsed_ns;
	if (elapsed_ns >= PLIM_BATCH_WINDOW_NS)
		return (plim_u32)seen_ppm;
	weight_ppm = elapsed_ns * PLIM_PPM / PLIM_BATCH_WINDOW_NS;
	return (plim_u32)((plim_min(room_ppm, PLIM_PPM) * (PLIM_PPM - weight_ppm) +
			   seen_ppm * weight_ppm) /
			  PLIM_PPM);
}

/*
 * Whether a CPU that has no work takes a task that waits for other CPUs. A normal one waits for
 * normal tasks only: at once. One of a lower tier after PLIM_BATCH_WAIT_MAX_NS.
 */
static __always_inline int plim_batch_is_pulled(int is_normal, plim_u64 waited_ns)
{
	return is_normal || waited_ns >= PLIM_BATCH_WAIT_MAX_NS;
}

/* The CPUs of one queue, and the tasks of a tier that run there or wait in it. */
struct plim_batch_llc {
	plim_u64 load; /* sum of their effective weights, see plim_order_weight() */
	plim_u64 most; /* the largest of these */
	plim_u32 nr_cpus;
	plim_u32 room_ppm; /* mean of the CPUs; for the normal tier all of it */
};

/* Time of its CPUs that a tier has on an LLC: PLIM_PPM for each CPU at all times. */
static __always_inline plim_u64 plim_batch_cpus_ppm(const struct plim_batch_llc *llc)
{
	plim_u64 room_ppm = plim_max(plim_min(llc->room_ppm, PLIM_PPM), PLIM_BATCH_ROOM_MIN_PPM);

	return plim_max(llc->nr_cpus, 1) * room_ppm;
}

/*
 * Weight of a tier on an LLC, with a task of the weight @more. A task runs on one CPU at a time:
 * the heaviest weighs no more than the others do on each of the other CPUs.
 */
static __always_inline plim_u64 plim_batch_weighed(const struct plim_batch_llc *llc, plim_u64 more)
{
	plim_u64 load = plim_min(plim_add_saturating(llc->load, more), PLIM_BATCH_LOAD_MAX);
	plim_u64 rest = plim_sub_floor(load, plim_max(llc->most, more));
	plim_u64 cpus_ppm = plim_batch_cpus_ppm(llc);

	if (cpus_ppm <= PLIM_PPM)
		return load;
	return plim_min(load, rest + rest * PLIM_PPM / (cpus_ppm - PLIM_PPM));
}

/*
 * Load for each CPU of that which the tier has there. Virtual time passes the slower the
 * larger it is: a task of weight e gets e by this of a CPU.
 */
static __always_inline plim_u64 plim_batch_crowding(const struct plim_batch_llc *llc, plim_u64 more)
{
	return plim_batch_weighed(llc, more) * PLIM_PPM / plim_batch_cpus_ppm(llc);
}

/*
 * Second input of load balancing: whether a CPU of @to, which has work of that tier, pulls a task
 * of this effective weight that waits in @from. It does if that gets more there than it has now.
 */
static __always_inline int plim_batch_should_pull(const struct plim_batch_llc *from,
						  const struct plim_batch_llc *to,
						  plim_u64 effective)
{
	return plim_batch_crowding(from, 0) > plim_batch_crowding(to, effective);
}

#endif /* PLIMSOLL_BATCH_H */

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
/* Longer queues are clamped to this: keeps tasks * slice * ppm below 2^62. */
#define PLIM_BATCH_QUEUE_MAX 4096U
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

/* State of one CPU for load balancing. */
struct plim_batch_cpu {
	plim_u64 waited_ns; /* wait of its first batch task */
	plim_u32 nr_queued; /* batch tasks queued there */
	plim_u32 room_ppm; /* plim_batch_room_ppm() */
	plim_u8 running_normal; /* a normal task runs there now */
	plim_u8 running_batch; /* a batch task runs there now */
};

/*
 * Expected wait of a batch task that joins this CPU's queue: one slice for each
 * task before it, scaled by the share of the CPU that is left for batch work.
 */
static __always_inline plim_u64 plim_batch_expected_wait_ns(const struct plim_batch_cpu *cpu,
							    plim_u64 slice_ns)
{
	plim_u64 ahead = (plim_u64)cpu->nr_queued + (cpu->running_batch ? 1 : 0);
	plim_u64 room_ppm = plim_max(plim_min(cpu->room_ppm, PLIM_PPM), PLIM_PPM / 1000);

	/* The current normal task must sleep first. */
	if (cpu->running_normal)
		ahead += 1;
	ahead = plim_min(ahead, PLIM_BATCH_QUEUE_MAX);
	return ahead * plim_min(slice_ns, PLIM_NSEC_PER_SEC) * PLIM_PPM / room_ppm;
}

/*
 * Second input of load balancing: the waits of batch tasks. Whether CPU @to,
 * about to go idle or to run batch work, takes the first waiting task of CPU
 * @from. An otherwise idle CPU takes a task that has waited
 * PLIM_BATCH_WAIT_MAX_NS, or at once if it cannot run where it is; a CPU with
 * batch work of its own takes a task only if that task would wait for more than
 * a slice longer.
 */
static __always_inline int plim_batch_should_pull(const struct plim_batch_cpu *from,
						  const struct plim_batch_cpu *to,
						  plim_u64 slice_ns)
{
	if (!from->nr_queued || to->running_normal)
		return 0;
	if (!to->nr_queued && !to->running_batch)
		return from->running_normal || from->waited_ns >= PLIM_BATCH_WAIT_MAX_NS;
	return plim_batch_expected_wait_ns(from, slice_ns) >
	       plim_add_saturating(plim_batch_expected_wait_ns(to, slice_ns), slice_ns);
}

#endif /* PLIMSOLL_BATCH_H */

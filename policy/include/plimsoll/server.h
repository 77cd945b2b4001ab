/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Server: runs a lower tier for a slice in each period of a CPU, although a higher tier has work.
 *
 * Each CPU has an equal part of the tolerance (headroom.h). Its slices are short and frequent,
 * because a normal task may wait for a lock, say, that a waiting batch task holds. A CPU that is
 * the only one that needs slices has the tolerance of all.
 */
#ifndef PLIMSOLL_SERVER_H
#define PLIMSOLL_SERVER_H

#include "headroom.h"

/* Shortest slice: less is not worth a switch to a task and back. */
#define PLIM_SERVER_SLICE_MIN_NS (100 * PLIM_NSEC_PER_USEC)
/* Shortest period. It bounds the wait for a resource that a batch task holds for a moment. */
#define PLIM_SERVER_PERIOD_MIN_NS (20 * PLIM_NSEC_PER_MSEC)
/* Longest period: also without a tolerance no task waits until the kernel's watchdog fires. */
#define PLIM_SERVER_PERIOD_MAX_NS (4 * PLIM_NSEC_PER_SEC)
/*
 * The longest delay by one run, beside the period: after a pause of the whole machine servers
 * must not stop for long. Only what ran longer than a slice is forgiven.
 */
#define PLIM_SERVER_DELAY_MAX_NS PLIM_NSEC_PER_SEC

struct plim_server {
	plim_u64 slice_ns;
	plim_u64 period_ns; /* while all CPUs have slices */
	plim_u64 alone_ns; /* the period while one CPU has them */
};

/*
 * Each CPU's part of a tolerance. Alone, a CPU has the whole tolerance, up to half of its time
 * or, if that is more, its own part.
 */
static __always_inline void
plim_server_set(struct plim_server *server, const struct plim_headroom_params *params)
{
	plim_u64 runtime_ns = params->tolerance_runtime_ns, period_ns, slice_ns, alone_ns;
	/* The period in which one CPU's part is a whole runtime: at most 2^47. */
	plim_u64 all_ns = params->tolerance_period_ns * params->nr_cpus;

	slice_ns =
		plim_max(PLIM_SERVER_PERIOD_MIN_NS * runtime_ns / all_ns, PLIM_SERVER_SLICE_MIN_NS);
	period_ns = alone_ns = PLIM_SERVER_PERIOD_MAX_NS;
	if (runtime_ns) {
		period_ns = plim_min(slice_ns * all_ns / runtime_ns, period_ns);
		alone_ns = slice_ns * params->tolerance_period_ns / runtime_ns;
	}
	server->slice_ns = slice_ns;
	server->period_ns = plim_max(period_ns, PLIM_SERVER_PERIOD_MIN_NS);
	server->alone_ns = plim_min(plim_max(alone_ns, 2 * slice_ns), server->period_ns);
}

/* The period while @nr_cpus CPUs have slices. */
static __always_inline plim_u64 plim_server_shared_period_ns(plim_u64 period_ns, plim_u64 alone_ns,
							     plim_s32 nr_cpus)
{
	return plim_min(period_ns, alone_ns * (plim_u64)(nr_cpus > 1 ? nr_cpus : 1));
}

/*
 * Time of the next slice after a run of @ran_ns, which ends at @now_ns and was due at @next_ns:
 * in the long run a server has the part slice / period of a CPU, however short or long runs are.
 */
static __always_inline plim_u64 plim_server_next_ns(plim_u64 next_ns, plim_u64 ran_ns,
						    plim_u64 slice_ns, plim_u64 period_ns,
						    plim_u64 now_ns)
{
	plim_u64 delay_ns;

	/* The product is below 2^62: a period has at most 4 s. */
	ran_ns = plim_min(ran_ns, PLIM_SERVER_DELAY_MAX_NS);
	delay_ns = ran_ns * period_ns / plim_max(slice_ns, 1);
	delay_ns = plim_min(delay_ns, period_ns + PLIM_SERVER_DELAY_MAX_NS);
	return plim_max(next_ns, plim_sub_floor(now_ns, ran_ns)) + delay_ns;
}

#endif /* PLIMSOLL_SERVER_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Bandwidth: quota, period and burst of one group.
 *
 * A group has a pool of runtime, which each period boundary refills by the
 * quota, up to quota + burst. A CPU on which the group runs acquires slices of
 * runtime from the pool, and the run time of tasks is charged to this local
 * runtime. A CPU is throttled when both its local runtime and the pool are
 * empty. Local runtime may go negative: the overrun of a task is a debt that
 * later refills pay first, so that the long-run rate is exactly quota / period.
 *
 * Source: "Burstable CFS bandwidth controller" (2021) for burst; pool, slices
 * and order of service follow kernel/sched/fair.c.
 *
 * The caller serialises calls on one pool and its CPUs, but for
 * plim_bandwidth_charge_local(), which a CPU calls for its own part. All times come from one
 * clock that does not run backwards.
 *
 * Proofs: policy/proofs/bandwidth.c
 */
#ifndef PLIMSOLL_BANDWIDTH_H
#define PLIMSOLL_BANDWIDTH_H

#include "units.h"

#define PLIM_PERIOD_MIN_NS PLIM_NSEC_PER_MSEC
#define PLIM_PERIOD_MAX_NS PLIM_NSEC_PER_SEC
#define PLIM_PERIOD_DEFAULT_NS (100 * PLIM_NSEC_PER_MSEC)
#define PLIM_QUOTA_MIN_NS PLIM_NSEC_PER_MSEC
/* Slice that a CPU acquires at a time, as sched_cfs_bandwidth_slice_us. */
#define PLIM_SLICE_DEFAULT_NS (5 * PLIM_NSEC_PER_MSEC)
#define PLIM_SLICE_MIN_NS (100 * PLIM_NSEC_PER_USEC)
#define PLIM_SLICE_MAX_NS PLIM_NSEC_PER_SEC
/*
 * Runtime that a CPU keeps when the group goes idle on it, as
 * min_cfs_rq_runtime: saves an access to the pool at the next wake-up.
 */
#define PLIM_LOCAL_KEPT_NS PLIM_NSEC_PER_MSEC

struct plim_bandwidth_params {
	plim_u64 period_ns; /* PLIM_PERIOD_MIN_NS … PLIM_PERIOD_MAX_NS */
	plim_u64 quota_ns; /* >= PLIM_QUOTA_MIN_NS, or PLIM_UNLIMITED */
	plim_u64 burst_ns; /* quota + burst <= PLIM_RUNTIME_MAX_NS */
	plim_u64 slice_ns; /* PLIM_SLICE_MIN_NS … PLIM_SLICE_MAX_NS */
};

struct plim_bandwidth_stats {
	plim_u64 nr_periods; /* periods elapsed while the group was active */
	plim_u64 nr_throttled; /* periods that ended with a throttled CPU */
	plim_u64 throttled_ns; /* summed over CPUs */
	plim_u64 nr_bursts; /* periods whose usage exceeded the quota */
	plim_u64 burst_ns; /* usage above the quota, summed */
};

/* Runtime pool of a group. */
struct plim_bandwidth {
	struct plim_bandwidth_params params;
	plim_u64 runtime_ns; /* left in the pool, <= quota + burst */
	plim_u64 boundary_ns; /* the last period boundary */
	plim_u64 dealt_ns; /* quota dealt to this period */
	plim_u64 period_usage_ns; /* charged since that boundary, but for local charges */
	plim_u64 nr_throttled_ever; /* counter behind throttled_order */
	plim_u32 nr_throttled_cpus; /* throttled now */
	plim_u32 ran_locally; /* a CPU made a local charge since that boundary */
	struct plim_bandwidth_stats stats;
};

/* State of a group on one CPU. */
struct plim_bandwidth_cpu {
	plim_s64 runtime_ns; /* negative: debt */
	plim_u64 throttled_at_ns; /* valid while throttled */
	plim_u64 throttled_order; /* order of service, valid while throttled */
	plim_u8 throttled;
};

/* Whether all parameters are in their ranges. */
static __always_inline int plim_bandwidth_is_valid(const struct plim_bandwidth_params *params)
{
	if (params->period_ns < PLIM_PERIOD_MIN_NS || params->period_ns > PLIM_PERIOD_MAX_NS ||
	    params->slice_ns < PLIM_SLICE_MIN_NS || params->slice_ns > PLIM_SLICE_MAX_NS ||
	    params->burst_ns > PLIM_RUNTIME_MAX_NS)
		return 0;
	return params->quota_ns == PLIM_UNLIMITED ||
	       (params->quota_ns >= PLIM_QUOTA_MIN_NS &&
		params->quota_ns <= PLIM_RUNTIME_MAX_NS - params->burst_ns);
}

static __always_inline int plim_bandwidth_is_unlimited(const struct plim_bandwidth *pool)
{
	return pool->params.quota_ns == PLIM_UNLIMITED;
}

/*
 * Capacity of the pool. @burst_on is the global switch, which disables burst
 * for all groups without changing their settings.
 */
static __always_inline plim_u64
plim_bandwidth_capacity_ns(const struct plim_bandwidth_params *params, int burst_on)
{
	return params->quota_ns + (burst_on ? params->burst_ns : 0);
}

/*
 * Initialises a group with valid @params: the pool holds the first quota, and
 * no burst is saved yet.
 */
static __always_inline void plim_bandwidth_init(struct plim_bandwidth *pool,
						const struct plim_bandwidth_params *params,
						plim_u64 now_ns)
{
	*pool = (struct plim_bandwidth){ 0 };
	pool->params = *params;
	pool->boundary_ns = now_ns;
	pool->runtime_ns = plim_bandwidth_is_unlimited(pool) ? 0 : params->quota_ns;
	pool->dealt_ns = pool->runtime_ns;
}

/* Counts the periods that have just ended; @elapsed_periods >= 1. */
static __always_inline void
plim_bandwidth_count_periods(struct plim_bandwidth *pool, plim_u64 elapsed_periods)
{
	struct plim_bandwidth_stats *stats = &pool->stats;

	/* A throttled CPU has work in each of these periods. */
	if (pool->nr_throttled_cpus) {
		stats->nr_periods += elapsed_periods;
		stats->nr_throttled += elapsed_periods;
	} else if (pool->period_usage_ns || pool->ran_locally) {
		stats->nr_periods += 1;
	}
	/*
	 * Without a burst, usage above the quota is a debt to the next period.
	 */
	if (pool->params.burst_ns && pool->period_usage_ns > pool->params.quota_ns) {
		stats->nr_bursts += 1;
		stats->burst_ns += pool->period_usage_ns - pool->params.quota_ns;
	}
	pool->period_usage_ns = 0;
	pool->ran_locally = 0;
}

/*
 * Refills the pool for every boundary passed since the last call, including
 * those that passed while nothing ran and no timer was armed.
 *
 * Returns the number of boundaries passed. If it is not 0 and CPUs are
 * throttled, the caller serves them, see plim_bandwidth_serve().
 */
static __always_inline plim_u64 plim_bandwidth_refill(struct plim_bandwidth *pool, int burst_on,
						      plim_u64 now_ns)
{
	const struct plim_bandwidth_params *params = &pool->params;
	plim_u64 elapsed_ns = plim_sub_floor(now_ns, pool->boundary_ns);
	plim_u64 elapsed_periods, refill_ns;

	if (elapsed_ns < params->period_ns)
		return 0;
	elapsed_periods = elapsed_ns / params->period_ns;
	pool->boundary_ns += elapsed_periods * params->period_ns;
	if (plim_bandwidth_is_unlimited(pool))
		return elapsed_periods;
	plim_bandwidth_count_periods(pool, elapsed_periods);

	/* No pool takes more than the cap on the product, after any sleep. */
	refill_ns = plim_mul_capped(elapsed_periods, params->quota_ns, PLIM_RUNTIME_MAX_NS);
	pool->runtime_ns = plim_min(pool->runtime_ns + refill_ns,
				    plim_bandwidth_capacity_ns(params, burst_on));
	pool->dealt_ns = params->quota_ns;
	return elapsed_periods;
}

/*
 * Adjusts the current period to a changed quota: a raised quota adds the
 * difference to the pool, a lowered one takes it back as far as the pool still
 * holds it. The part that could not be taken back counts as dealt, so that
 * lowering and raising the quota repeatedly creates no runtime.
 */
static __always_inline void plim_bandwidth_deal_again(struct plim_bandwidth *pool)
{
	plim_u64 quota_ns = pool->params.quota_ns;
	plim_u64 taken_back_ns;

	if (pool->dealt_ns < quota_ns) {
		pool->runtime_ns += quota_ns - pool->dealt_ns;
		pool->dealt_ns = quota_ns;
		return;
	}
	taken_back_ns = plim_min(pool->dealt_ns - quota_ns, pool->runtime_ns);
	pool->runtime_ns -= taken_back_ns;
	pool->dealt_ns -= taken_back_ns;
}

/*
 * Changes parameters of a live group; @params is valid. A changed quota takes
 * effect in the current period. A changed period, or a change from or to no
 * limit, ends the current period and starts a new one; otherwise the boundary
 * stays, so that repeated changes do not delay the next refill. Never leaves
 * more than quota + burst in the pool; no debt is forgiven.
 */
static __always_inline void plim_bandwidth_set(struct plim_bandwidth *pool,
					       const struct plim_bandwidth_params *params,
					       int burst_on, plim_u64 now_ns)
{
	int was_unlimited = plim_bandwidth_is_unlimited(pool);
	int new_period = pool->params.period_ns != params->period_ns ||
			 was_unlimited != (params->quota_ns == PLIM_UNLIMITED);

	plim_bandwidth_refill(pool, burst_on, now_ns);
	if (new_period && !was_unlimited)
		plim_bandwidth_count_periods(pool, 1);
	if (new_period)
		pool->boundary_ns = now_ns;
	pool->params = *params;
	if (plim_bandwidth_is_unlimited(pool)) {
		pool->runtime_ns = 0;
		pool->dealt_ns = 0;
		return;
	}
	plim_bandwidth_deal_again(pool);
	pool->runtime_ns = plim_min(pool->runtime_ns, plim_bandwidth_capacity_ns(params, burst_on));
}

/* Moves up to @want_ns from the pool to a CPU. */
static __always_inline void
plim_bandwidth_take(struct plim_bandwidth *pool, struct plim_bandwidth_cpu *cpu, plim_u64 want_ns)
{
	plim_u64 taken_ns = plim_min(want_ns, pool->runtime_ns);

	pool->runtime_ns -= taken_ns;
	cpu->runtime_ns += (plim_s64)taken_ns;
}

static __always_inline void plim_bandwidth_throttle(struct plim_bandwidth *pool,
						    struct plim_bandwidth_cpu *cpu, plim_u64 now_ns)
{
	cpu->throttled = 1;
	cpu->throttled_at_ns = now_ns;
	cpu->throttled_order = pool->nr_throttled_ever++;
	pool->nr_throttled_cpus += 1;
}

static __always_inline void plim_bandwidth_unthrottle(struct plim_bandwidth *pool,
						      struct plim_bandwidth_cpu *cpu,
						      plim_u64 now_ns)
{
	cpu->throttled = 0;
	pool->nr_throttled_cpus -= 1;
	pool->stats.throttled_ns += plim_sub_floor(now_ns, cpu->throttled_at_ns);
}

/*
 * Charges @ran_ns to a CPU without acquiring runtime. The first step of a
 * charge; called separately for the part of a run before a boundary, ahead of
 * the refill, so that each period counts its own usage.
 */
static __always_inline void
plim_bandwidth_book(struct plim_bandwidth *pool, struct plim_bandwidth_cpu *cpu, plim_u64 ran_ns)
{
	if (plim_bandwidth_is_unlimited(pool))
		return;
	ran_ns = plim_min(ran_ns, PLIM_ELAPSED_MAX_NS);
	pool->period_usage_ns += ran_ns;
	cpu->runtime_ns -= (plim_s64)ran_ns;
}

/*
 * Charges @ran_ns to the local runtime alone, as long as that lasts and no boundary has
 * passed: of the pool, which other CPUs may be changing, it writes no more than that the
 * group ran, and that once a period. (A run that began before a boundary, behind which
 * another CPU has refilled the pool since, so marks the new period only.) Not with a burst,
 * whose statistics need the usage of each period; that in which it is set counts what is
 * charged afterwards.
 *
 * Returns for how long the group may continue here; 0: nothing was charged, it takes
 * plim_bandwidth_charge().
 */
static __always_inline plim_u64 plim_bandwidth_charge_local(struct plim_bandwidth *pool,
							    struct plim_bandwidth_cpu *cpu,
							    plim_u64 ran_ns, plim_u64 now_ns)
{
	plim_s64 runtime_ns = PLIM_READ_ONCE(cpu->runtime_ns);

	if (plim_bandwidth_is_unlimited(pool) || (ran_ns && pool->params.burst_ns) ||
	    cpu->throttled || runtime_ns <= 0 || ran_ns >= (plim_u64)runtime_ns ||
	    plim_sub_floor(now_ns, pool->boundary_ns) >= pool->params.period_ns)
		return 0;
	runtime_ns -= (plim_s64)ran_ns;
	cpu->runtime_ns = runtime_ns;
	if (ran_ns && !pool->ran_locally)
		pool->ran_locally = 1;
	return (plim_u64)runtime_ns;
}

/*
 * Charges @ran_ns to a CPU and, if its local runtime is used up, acquires the
 * debt and a slice from the pool. With @ran_ns 0: checks whether the group may
 * start to run on this CPU.
 *
 * Returns whether the group may continue here; if not, the CPU is throttled. In
 * a hierarchy, the caller charges every ancestor, and the group runs only if
 * all of them allow it.
 */
static __always_inline int plim_bandwidth_charge(struct plim_bandwidth *pool,
						 struct plim_bandwidth_cpu *cpu, plim_u64 ran_ns,
						 plim_u64 now_ns)
{
	plim_u64 debt_ns;

	if (plim_bandwidth_is_unlimited(pool)) {
		if (cpu->throttled)
			plim_bandwidth_unthrottle(pool, cpu, now_ns);
		return 1;
	}
	plim_bandwidth_book(pool, cpu, ran_ns);
	if (cpu->runtime_ns > 0)
		return 1;
	if (cpu->throttled)
		return 0;
	debt_ns = (plim_u64)-cpu->runtime_ns;
	plim_bandwidth_take(pool, cpu, debt_ns + pool->params.slice_ns);
	if (cpu->runtime_ns > 0)
		return 1;
	plim_bandwidth_throttle(pool, cpu, now_ns);
	return 0;
}

/*
 * Serves one throttled CPU from the pool: its debt and one nanosecond, so that
 * every CPU gets out of debt before any gets a slice. The caller serves CPUs in
 * the order of throttled_order, after each refill and whenever runtime was
 * returned, and stops at the first that stays throttled, because then the pool
 * is empty.
 *
 * Returns whether the CPU may run again.
 */
static __always_inline int
plim_bandwidth_serve(struct plim_bandwidth *pool, struct plim_bandwidth_cpu *cpu, plim_u64 now_ns)
{
	if (!cpu->throttled)
		return 1;
	if (!plim_bandwidth_is_unlimited(pool) && cpu->runtime_ns <= 0)
		plim_bandwidth_take(pool, cpu, (plim_u64)-cpu->runtime_ns + 1);
	if (!plim_bandwidth_is_unlimited(pool) && cpu->runtime_ns <= 0)
		return 0;
	plim_bandwidth_unthrottle(pool, cpu, now_ns);
	return 1;
}

/*
 * Returns all local runtime but PLIM_LOCAL_KEPT_NS to the pool, up to its
 * capacity, when the group has nothing left to run on this CPU. Debt stays.
 */
static __always_inline void
plim_bandwidth_return(struct plim_bandwidth *pool, struct plim_bandwidth_cpu *cpu, int burst_on)
{
	plim_u64 capacity_ns, returned_ns;

	if (plim_bandwidth_is_unlimited(pool) || cpu->runtime_ns <= (plim_s64)PLIM_LOCAL_KEPT_NS)
		return;
	capacity_ns = plim_bandwidth_capacity_ns(&pool->params, burst_on);
	returned_ns = (plim_u64)cpu->runtime_ns - PLIM_LOCAL_KEPT_NS;
	cpu->runtime_ns = (plim_s64)PLIM_LOCAL_KEPT_NS;
	pool->runtime_ns =
		plim_min(pool->runtime_ns + returned_ns, plim_max(pool->runtime_ns, capacity_ns));
}

/* Time of the next boundary, for which the caller arms a refill timer. */
static __always_inline plim_u64 plim_bandwidth_next_boundary_ns(const struct plim_bandwidth *pool)
{
	return plim_add_saturating(pool->boundary_ns, pool->params.period_ns);
}

#endif /* PLIMSOLL_BANDWIDTH_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Headroom: keep a share of the CPUs idle for latency-critical work,
 * independent of the demand of batch work.
 *
 * Law: over a window W on C CPUs, batch work may use
 *
 *	max(tolerance, (1 - H) * C * W - nonbatch(W))
 *
 * where nonbatch(W) is the usage of all other work. A signed credit enforces the
 * law: every interval adds (1 - H) * C * elapsed and subtracts the actual usage
 * of nonbatch and batch work. A positive credit may be granted. So a jump of the
 * other load stops batch work at the next update, an overrun is paid back, and
 * the idle share is exact on average.
 *
 * An enforcer whose returns of batch work cost the work beside it has batch work
 * that has used up its grant return once in a grain, and stops it at any update.
 *
 * The credit has two bounds. The upper bound is the capacity of all CPUs for
 * one grain: idle time is not saved up. The lower bound is -H * C * W, the most
 * that one window can overdraw: older debt is forgotten. With these bounds,
 * whenever more than the tolerance is granted, for any past usage, the usage of
 * batch work in the window that ends now and the grant together satisfy
 *
 *	batch(W) + grant <= (1 - H) * C * W - nonbatch(W) + C * grain
 *
 * if the window starts at an update. If it starts within an interval of length
 * d, the bound is larger by H * (1 - H) * C * d, at most C * d / 4, because the
 * distribution of the usage within the interval is unknown. No controller can
 * keep the law in a window in which the other load has jumped after batch work
 * had used its full allowance. It can only grant no more than the tolerance
 * until the law holds again, which this one does.
 *
 * While only the tolerance is granted, batch usage plus grant over any time t
 * is at most tolerance(t) + tolerance_runtime. Batch work that uses its full
 * grant gets at least tolerance(t) - tolerance_runtime.
 *
 * Source: "cpu.headroom" (2019).
 */
#ifndef PLIMSOLL_HEADROOM_H
#define PLIMSOLL_HEADROOM_H

#include "units.h"

#define PLIM_HEADROOM_WINDOW_DEFAULT_NS (100 * PLIM_NSEC_PER_MSEC)
#define PLIM_HEADROOM_WINDOW_MIN_NS (10 * PLIM_NSEC_PER_MSEC)
#define PLIM_HEADROOM_WINDOW_MAX_NS (10 * PLIM_NSEC_PER_SEC)
#define PLIM_HEADROOM_GRAIN_MIN_NS (100 * PLIM_NSEC_PER_USEC)
/* Tolerance of all batch work together: 1 ms per 100 ms. */
#define PLIM_TOLERANCE_RUNTIME_DEFAULT_NS PLIM_NSEC_PER_MSEC
#define PLIM_TOLERANCE_PERIOD_DEFAULT_NS (100 * PLIM_NSEC_PER_MSEC)
#define PLIM_TOLERANCE_PERIOD_MIN_NS PLIM_NSEC_PER_MSEC
#define PLIM_TOLERANCE_PERIOD_MAX_NS (10 * PLIM_NSEC_PER_SEC)
/* Keeps the product of a window and the runtime below 2^64. */
#define PLIM_TOLERANCE_RUNTIME_MAX_NS PLIM_NSEC_PER_SEC

struct plim_headroom_params {
	plim_u64 window_ns; /* W */
	plim_u64 grain_ns; /* between two returns of batch work, at most W */
	plim_u64 tolerance_runtime_ns; /* <= the period; 0: batch work may starve */
	plim_u64 tolerance_period_ns;
	plim_u32 headroom_ppm; /* H, 0 … PLIM_PPM, of nr_cpus */
	plim_u32 nr_cpus; /* C, 1 … PLIM_CPUS_MAX */
};

struct plim_headroom {
	struct plim_headroom_params params;
	plim_s64 credit_ns; /* credit of batch work under the law */
	plim_s64 tolerance_credit_ns; /* credit of batch work under the tolerance */
	plim_u64 tolerance_rest; /* its fraction, in units of 1 / period */
	plim_u64 updated_ns; /* time of the last update */
	plim_u64 interval_ns; /* between the last two updates */
	plim_u64 allowance_ns; /* CPU time by the law for that interval */
	/* Integral of (H - idle) while batch work ran above its tolerance. */
	plim_u64 shortfall_ns;
};

/* Whether all parameters are in their ranges. */
static __always_inline int plim_headroom_is_valid(const struct plim_headroom_params *params)
{
	return params->headroom_ppm <= PLIM_PPM && params->nr_cpus &&
	       params->nr_cpus <= PLIM_CPUS_MAX &&
	       params->window_ns >= PLIM_HEADROOM_WINDOW_MIN_NS &&
	       params->window_ns <= PLIM_HEADROOM_WINDOW_MAX_NS &&
	       params->grain_ns >= PLIM_HEADROOM_GRAIN_MIN_NS &&
	       params->grain_ns <= params->window_ns &&
	       params->tolerance_period_ns >= PLIM_TOLERANCE_PERIOD_MIN_NS &&
	       params->tolerance_period_ns <= PLIM_TOLERANCE_PERIOD_MAX_NS &&
	       params->tolerance_runtime_ns <= params->tolerance_period_ns &&
	       params->tolerance_runtime_ns <= PLIM_TOLERANCE_RUNTIME_MAX_NS;
}

/* A headroom of @cpus whole CPUs as a share of @nr_cpus. */
static __always_inline plim_u32 plim_headroom_from_cpus_ppm(plim_u32 cpus, plim_u32 nr_cpus)
{
	if (cpus >= nr_cpus)
		return PLIM_PPM;
	/* Rounded up: never less idle than demanded. */
	return (plim_u32)((cpus * PLIM_PPM + nr_cpus - 1) / nr_cpus);
}

/* (1 - H) * C * @elapsed_ns: CPU time for all work together. */
static __always_inline plim_u64 plim_headroom_usable_ns(const struct plim_headroom_params *params,
							plim_u64 elapsed_ns)
{
	return plim_scale_ppm(elapsed_ns, PLIM_PPM - params->headroom_ppm) * params->nr_cpus;
}

/* CPU time by the tolerance for @elapsed_ns (at most one window counts). */
static __always_inline plim_u64
plim_headroom_tolerance_ns(const struct plim_headroom_params *params, plim_u64 elapsed_ns)
{
	return plim_min(elapsed_ns, PLIM_HEADROOM_WINDOW_MAX_NS) * params->tolerance_runtime_ns /
	       params->tolerance_period_ns;
}

/*
 * The law for one interval: max(tolerance, usable - nonbatch).
 */
static __always_inline plim_u64 plim_headroom_allowance_ns(
	const struct plim_headroom_params *params, plim_u64 elapsed_ns, plim_u64 nonbatch_ns)
{
	return plim_max(plim_headroom_tolerance_ns(params, elapsed_ns),
			plim_sub_floor(plim_headroom_usable_ns(params, elapsed_ns), nonbatch_ns));
}

/* The largest grant: all CPUs for one grain. */
static __always_inline plim_u64
plim_headroom_credit_max_ns(const struct plim_headroom_params *params)
{
	return params->grain_ns * params->nr_cpus;
}

/*
 * The largest debt that is kept: the most that one window can overdraw. Rounded
 * up, because a nanosecond forgiven too early would exceed the law.
 */
static __always_inline plim_u64 plim_headroom_debt_max_ns(const struct plim_headroom_params *params)
{
	return params->window_ns * params->nr_cpus -
	       plim_headroom_usable_ns(params, params->window_ns);
}

/* @credit_ns + @earned_ns - @spent_ns, clamped to -@debt_max … @credit_max. */
static __always_inline plim_s64 plim_headroom_balance(plim_s64 credit_ns, plim_u64 earned_ns,
						      plim_u64 spent_ns, plim_u64 debt_max_ns,
						      plim_u64 credit_max_ns)
{
	plim_s64 balance_ns = credit_ns + (plim_s64)earned_ns - (plim_s64)spent_ns;

	if (balance_ns < -(plim_s64)debt_max_ns)
		return -(plim_s64)debt_max_ns;
	if (balance_ns > (plim_s64)credit_max_ns)
		return (plim_s64)credit_max_ns;
	return balance_ns;
}

/*
 * The most tolerance that is saved up: a whole tolerance runtime, for enforcers
 * that cannot grant less than that at a time.
 */
static __always_inline plim_u64
plim_headroom_tolerance_max_ns(const struct plim_headroom_params *params)
{
	return params->tolerance_runtime_ns;
}

/* Initialises a controller without a grant; @params is valid. */
static __always_inline void plim_headroom_init(struct plim_headroom *headroom,
					       const struct plim_headroom_params *params,
					       plim_u64 now_ns)
{
	*headroom = (struct plim_headroom){ 0 };
	headroom->params = *params;
	headroom->updated_ns = now_ns;
}

/* Changes parameters of a live controller; @params is valid. */
static __always_inline void
plim_headroom_set(struct plim_headroom *headroom, const struct plim_headroom_params *params)
{
	headroom->params = *params;
	headroom->tolerance_rest = 0;
	headroom->credit_ns =
		plim_headroom_balance(headroom->credit_ns, 0, 0, plim_headroom_debt_max_ns(params),
				      plim_headroom_credit_max_ns(params));
	headroom->tolerance_credit_ns = plim_headroom_balance(
		headroom->tolerance_credit_ns, 0, 0, plim_headroom_tolerance_max_ns(params),
		plim_headroom_tolerance_max_ns(params));
}

/*
 * Tolerance earned in @elapsed_ns. The remainder of the division is carried,
 * because a small tolerance would otherwise never add up to a nanosecond.
 */
static __always_inline plim_u64 plim_headroom_earn_tolerance(struct plim_headroom *headroom,
							     plim_u64 elapsed_ns)
{
	const struct plim_headroom_params *params = &headroom->params;
	plim_u64 parts = elapsed_ns * params->tolerance_runtime_ns + headroom->tolerance_rest;

	headroom->tolerance_rest = parts % params->tolerance_period_ns;
	return parts / params->tolerance_period_ns;
}

/* Adds the shortfall of idle time in the interval that has just ended. */
static __always_inline void plim_headroom_count_shortfall(struct plim_headroom *headroom,
							  plim_u64 elapsed_ns, plim_u64 nonbatch_ns,
							  plim_u64 batch_ns)
{
	const struct plim_headroom_params *params = &headroom->params;

	if (batch_ns <= plim_headroom_tolerance_ns(params, elapsed_ns))
		return;
	headroom->shortfall_ns +=
		plim_sub_floor(nonbatch_ns + batch_ns, plim_headroom_usable_ns(params, elapsed_ns));
}

/*
 * CPU time that batch work may use from now on: the larger of credit
 * and tolerance.
 */
static __always_inline plim_u64 plim_headroom_grant_ns(const struct plim_headroom *headroom)
{
	plim_s64 grant_ns = headroom->credit_ns;

	if (headroom->tolerance_credit_ns > grant_ns)
		grant_ns = headroom->tolerance_credit_ns;
	return grant_ns > 0 ? (plim_u64)grant_ns : 0;
}

/*
 * Ends the interval since the last update. @nonbatch_ns: CPU time of all work
 * but batch work. @batch_ns: CPU time of batch work. Both are clamped to the
 * capacity of the CPUs.
 *
 * Returns the CPU time that batch work may use from now on,
 * plim_headroom_grant_ns().
 */
static __always_inline plim_u64 plim_headroom_update(struct plim_headroom *headroom,
						     plim_u64 nonbatch_ns, plim_u64 batch_ns,
						     plim_u64 now_ns)
{
	const struct plim_headroom_params *params = &headroom->params;
	plim_u64 elapsed_ns = plim_elapsed_ns(now_ns, headroom->updated_ns);
	plim_u64 tolerance_max_ns = plim_headroom_tolerance_max_ns(params);
	plim_u64 capacity_ns;

	elapsed_ns = plim_min(elapsed_ns, PLIM_HEADROOM_WINDOW_MAX_NS);
	capacity_ns = elapsed_ns * params->nr_cpus;
	batch_ns = plim_min(batch_ns, capacity_ns);
	nonbatch_ns = plim_min(nonbatch_ns, capacity_ns - batch_ns);
	headroom->updated_ns = plim_max(now_ns, headroom->updated_ns);
	headroom->interval_ns = elapsed_ns;
	headroom->allowance_ns = plim_headroom_allowance_ns(params, elapsed_ns, nonbatch_ns);
	headroom->credit_ns = plim_headroom_balance(
		headroom->credit_ns, plim_headroom_usable_ns(params, elapsed_ns),
		nonbatch_ns + batch_ns, plim_headroom_debt_max_ns(params),
		plim_headroom_credit_max_ns(params));
	headroom->tolerance_credit_ns = plim_headroom_balance(
		headroom->tolerance_credit_ns, plim_headroom_earn_tolerance(headroom, elapsed_ns),
		batch_ns, tolerance_max_ns, tolerance_max_ns);
	plim_headroom_count_shortfall(headroom, elapsed_ns, nonbatch_ns, batch_ns);
	return plim_headroom_grant_ns(headroom);
}

/*
 * Whether batch work may return: whether a group that has used up its share of
 * an earlier grant may have a share of the present one. @returned_ns: when one
 * last had. Until then batch work may go on with plim_headroom_rest_ns().
 *
 * A tolerance of a shorter period than a grain is given once in its period, if
 * it is all that there is. A full credit returns at once: batch work did not
 * use what it had.
 */
static __always_inline int
plim_headroom_may_return(const struct plim_headroom *headroom, plim_u64 returned_ns)
{
	const struct plim_headroom_params *params = &headroom->params;
	plim_u64 wait_ns = params->grain_ns;

	if (headroom->tolerance_credit_ns > headroom->credit_ns)
		wait_ns = plim_min(wait_ns, params->tolerance_period_ns);
	return plim_elapsed_ns(headroom->updated_ns, returned_ns) >= wait_ns ||
	       headroom->credit_ns >= (plim_s64)plim_headroom_credit_max_ns(params);
}

/*
 * CPU time that the law gives batch work in @time_ns if other work goes on as in
 * the last interval, which was longer than 0. In whole intervals, rounded up.
 */
static __always_inline plim_u64 plim_headroom_law_ns(const struct plim_headroom *headroom,
						     plim_u64 time_ns)
{
	plim_u64 interval_ns = headroom->interval_ns;

	return headroom->allowance_ns * ((time_ns + interval_ns - 1) / interval_ns);
}

/*
 * The most that batch work may use of an earlier grant until it returns: the
 * present grant, and no more than the law gives until then if other work goes on
 * as in the last interval. So a jump of the other load stops batch work at the
 * next update, although a grant is for a whole grain and used first.
 * @returned_ns: as in plim_headroom_may_return().
 */
static __always_inline plim_u64 plim_headroom_rest_ns(const struct plim_headroom *headroom,
						      plim_u64 returned_ns)
{
	plim_u64 since_ns = plim_elapsed_ns(headroom->updated_ns, returned_ns);
	plim_u64 until_ns = plim_sub_floor(headroom->params.grain_ns, since_ns);
	plim_u64 grant_ns = plim_headroom_grant_ns(headroom);

	if (!headroom->interval_ns)
		return grant_ns;
	return plim_min(grant_ns, plim_headroom_law_ns(headroom, until_ns));
}

/*
 * The share of the grant for a return that is now: all credit, unless it is more
 * than twice what the law gives in a grain if other work goes on as in the last
 * interval. Then it is from before a jump of the other load, and batch work has
 * what the law gives; the rest of the credit stays. Never less than the tolerance.
 */
static __always_inline plim_u64 plim_headroom_return_ns(const struct plim_headroom *headroom)
{
	plim_u64 credit_ns = headroom->credit_ns > 0 ? (plim_u64)headroom->credit_ns : 0;
	plim_u64 law_ns;

	if (headroom->interval_ns) {
		law_ns = plim_headroom_law_ns(headroom, headroom->params.grain_ns);
		if (credit_ns > 2 * law_ns)
			credit_ns = law_ns;
	}
	if (headroom->tolerance_credit_ns > (plim_s64)credit_ns)
		credit_ns = (plim_u64)headroom->tolerance_credit_ns;
	return credit_ns;
}

/*
 * The longest overrun that is carried on, in server slices of the tolerance.
 * Bounds the number of tolerance periods for which batch work goes without its
 * tolerance after it has briefly overrun on every CPU.
 */
#define PLIM_HEADROOM_OVERRUN_MAX_SLICES 20

/*
 * Overrun for enforcers that grant the tolerance as server slices of a whole
 * CPU and cannot end one in time: on a virtual CPU that its host delays, a
 * slice of 1 ms may last 10. Usage beyond the law is carried on, and the next
 * slice is due only when the tolerance of the time since has paid for it. The
 * bucket above forgives overruns longer than one slice.
 *
 * @overrun_ns: not paid yet. @over_ns: usage beyond the law in @elapsed_ns.
 * Returns the overrun that is not paid now; if 0, batch work may have a slice.
 */
static __always_inline plim_u64 plim_headroom_overrun_ns(const struct plim_headroom_params *params,
							 plim_u64 overrun_ns, plim_u64 over_ns,
							 plim_u64 elapsed_ns)
{
	overrun_ns = plim_min(overrun_ns + over_ns,
			      PLIM_HEADROOM_OVERRUN_MAX_SLICES * params->tolerance_runtime_ns);
	return plim_sub_floor(overrun_ns, plim_headroom_tolerance_ns(params, elapsed_ns));
}

/* The two forms of a headroom. */
enum plim_headroom_form {
	PLIM_HEADROOM_FORM_NONE = 0,
	PLIM_HEADROOM_FORM_SHARE, /* ppm of all CPUs, on average */
	PLIM_HEADROOM_FORM_CPUS, /* CPUs that are idle at every instant */
};

/*
 * Demand of any number of groups: the largest headroom of each form, and the
 * smallest tolerance. The order in which groups are added makes no difference.
 */
struct plim_headroom_demand {
	plim_u64 tolerance_runtime_ns; /* always in range; the default if unset */
	plim_u64 tolerance_period_ns;
	plim_u32 headroom_ppm; /* the largest share; 0: none */
	plim_u32 headroom_cpus; /* the largest number of CPUs; 0: none */
	plim_u32 has_tolerance; /* a group has brought one */
};

/* Demand of no group: no headroom, the default tolerance. */
static __always_inline void plim_headroom_demand_init(struct plim_headroom_demand *demand)
{
	*demand = (struct plim_headroom_demand){ 0 };
	demand->tolerance_runtime_ns = PLIM_TOLERANCE_RUNTIME_DEFAULT_NS;
	demand->tolerance_period_ns = PLIM_TOLERANCE_PERIOD_DEFAULT_NS;
}

/*
 * Whether tolerance a is smaller than b: a lower rate, runtime / period. Of
 * equal rates the one with the shorter period is smaller: batch work runs for
 * less time at once. Exact: both are in range, and the largest product,
 * PLIM_TOLERANCE_RUNTIME_MAX_NS * PLIM_TOLERANCE_PERIOD_MAX_NS, is below 2^64.
 */
static __always_inline int
plim_headroom_tolerance_before(plim_u64 a_runtime_ns, plim_u64 a_period_ns, plim_u64 b_runtime_ns,
			       plim_u64 b_period_ns)
{
	plim_u64 a = a_runtime_ns * b_period_ns, b = b_runtime_ns * a_period_ns;

	return a < b || (a == b && a_period_ns < b_period_ns);
}

/* Counts a tolerance. Out of its range it is cut to the nearest in range. */
static __always_inline void plim_headroom_demand_add_tolerance(struct plim_headroom_demand *demand,
							       plim_u64 runtime_ns,
							       plim_u64 period_ns)
{
	period_ns = plim_min(plim_max(period_ns, PLIM_TOLERANCE_PERIOD_MIN_NS),
			     PLIM_TOLERANCE_PERIOD_MAX_NS);
	runtime_ns = plim_min(plim_min(runtime_ns, period_ns), PLIM_TOLERANCE_RUNTIME_MAX_NS);
	if (demand->has_tolerance &&
	    !plim_headroom_tolerance_before(runtime_ns, period_ns, demand->tolerance_runtime_ns,
					    demand->tolerance_period_ns))
		return;
	demand->tolerance_runtime_ns = runtime_ns;
	demand->tolerance_period_ns = period_ns;
	demand->has_tolerance = 1;
}

/*
 * Counts one group.
 * @form, @value: the headroom that it asks for, in ppm or CPUs. A headroom of
 * 0 is none, a share above PLIM_PPM is all CPUs.
 * @runtime_ns, @period_ns: its tolerance; a period of 0: it names none. With a
 * headroom it then has the default, which counts like any other: a group is not
 * worse protected because another group tolerates more.
 */
static __always_inline void plim_headroom_demand_add(struct plim_headroom_demand *demand,
						     enum plim_headroom_form form, plim_u32 value,
						     plim_u64 runtime_ns, plim_u64 period_ns)
{
	if (!value)
		form = PLIM_HEADROOM_FORM_NONE;
	if (form == PLIM_HEADROOM_FORM_SHARE)
		demand->headroom_ppm =
			(plim_u32)plim_max(demand->headroom_ppm, plim_min(value, PLIM_PPM));
	if (form == PLIM_HEADROOM_FORM_CPUS)
		demand->headroom_cpus = (plim_u32)plim_max(demand->headroom_cpus, value);
	if (period_ns)
		plim_headroom_demand_add_tolerance(demand, runtime_ns, period_ns);
	else if (form != PLIM_HEADROOM_FORM_NONE)
		plim_headroom_demand_add_tolerance(demand, PLIM_TOLERANCE_RUNTIME_DEFAULT_NS,
						   PLIM_TOLERANCE_PERIOD_DEFAULT_NS);
}

/*
 * The form that is in force on @nr_cpus CPUs: the larger demand. Of two that are
 * equal it is the number of CPUs, which is kept at every instant and not on
 * average.
 */
static __always_inline enum plim_headroom_form
plim_headroom_demand_in_force(const struct plim_headroom_demand *demand, plim_u32 nr_cpus)
{
	plim_u64 share = (plim_u64)demand->headroom_ppm * nr_cpus;

	if (demand->headroom_cpus && demand->headroom_cpus * PLIM_PPM >= share)
		return PLIM_HEADROOM_FORM_CPUS;
	return demand->headroom_ppm ? PLIM_HEADROOM_FORM_SHARE : PLIM_HEADROOM_FORM_NONE;
}

/* The form that is asked for as well, and is not in force. */
static __always_inline enum plim_headroom_form
plim_headroom_demand_overruled(const struct plim_headroom_demand *demand, plim_u32 nr_cpus)
{
	if (!demand->headroom_ppm || !demand->headroom_cpus)
		return PLIM_HEADROOM_FORM_NONE;
	if (plim_headroom_demand_in_force(demand, nr_cpus) == PLIM_HEADROOM_FORM_CPUS)
		return PLIM_HEADROOM_FORM_SHARE;
	return PLIM_HEADROOM_FORM_CPUS;
}

#endif /* PLIMSOLL_HEADROOM_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Rate caps, hard and soft, of a task or of a group that shares one bucket.
 *
 * Hard: virtual scheduling (the generic cell rate algorithm, ITU-T I.371). The
 * theoretical arrival time (TAT) of a bucket is the time at which it would be
 * empty if it drained at the cap. A run of d advances it by d / cap. The owner
 * of the bucket may run while TAT is ahead of the clock by at most the depth.
 * Exact from the first nanosecond, because there is no average that has to warm
 * up.
 *
 * Soft: an owner whose usage rate, an exponentially decaying average, is above
 * its soft cap belongs to the background.
 *
 * Source: "CPU rate caps" (2006) for the two kinds of cap and their meaning;
 * its Kalman filters and sinbin are replaced.
 *
 * Proofs: policy/proofs/ratecap.c
 */
#ifndef PLIMSOLL_RATECAP_H
#define PLIMSOLL_RATECAP_H

#include "units.h"

/* Caps are per mille of one CPU: 0.1 % up to all CPUs. */
#define PLIM_CAP_MIN_PERMILLE 1U
#define PLIM_CAP_MAX_PERMILLE (PLIM_CPUS_MAX * 1000U)
#define PLIM_CAP_DEPTH_DEFAULT_NS PLIM_NSEC_PER_MSEC
#define PLIM_CAP_DEPTH_MAX_NS PLIM_NSEC_PER_SEC
/*
 * Limit of TAT ahead of the clock when a cap changes, about 18 minutes: keeps
 * its product with the cap below 2^63.
 */
#define PLIM_CAP_AHEAD_MAX_NS (1ULL << 40)
/* The half-life of the usage rate. */
#define PLIM_HALF_LIFE_DEFAULT_NS PLIM_NSEC_PER_SEC
#define PLIM_HALF_LIFE_MIN_NS (50 * PLIM_NSEC_PER_MSEC)
#define PLIM_HALF_LIFE_MAX_NS (60 * PLIM_NSEC_PER_SEC)

struct plim_ratecap_params {
	plim_u64 depth_ns; /* at least one timer grain */
	plim_u64 half_life_ns;
	plim_u32 hard_permille; /* 0: no hard cap */
	plim_u32 soft_permille; /* valid if soft is set; 0: always background */
	plim_u8 soft; /* there is a soft cap */
};

struct plim_ratecap {
	plim_u64 tat_ns; /* theoretical arrival time, whole nanoseconds */
	plim_u64 tat_rest; /* its fraction, in units of 1 / hard_permille */
	plim_u64 rate_ppm; /* usage rate, of one CPU */
	plim_u64 rate_updated_ns;
};

/* Whether all parameters are in their ranges. */
static __always_inline int plim_ratecap_is_valid(const struct plim_ratecap_params *params)
{
	return params->hard_permille <= PLIM_CAP_MAX_PERMILLE &&
	       (!params->soft || params->soft_permille <= PLIM_CAP_MAX_PERMILLE) &&
	       params->depth_ns <= PLIM_CAP_DEPTH_MAX_NS &&
	       params->half_life_ns >= PLIM_HALF_LIFE_MIN_NS &&
	       params->half_life_ns <= PLIM_HALF_LIFE_MAX_NS;
}

static __always_inline void plim_ratecap_init(struct plim_ratecap *cap, plim_u64 now_ns)
{
	*cap = (struct plim_ratecap){ 0 };
	cap->tat_ns = now_ns;
	cap->rate_updated_ns = now_ns;
}

/*
 * Limit of TAT ahead of the clock. The depth is wall time; above one whole CPU
 * it is reduced so that a bucket never holds more than the depth in CPU time.
 */
static __always_inline plim_u64 plim_ratecap_depth_ns(const struct plim_ratecap_params *params)
{
	if (params->hard_permille <= PLIM_PERMILLE)
		return params->depth_ns;
	return params->depth_ns * PLIM_PERMILLE / params->hard_permille;
}

/*
 * Earliest time at which the bucket's owner may run; may be in the past. Not
 * called for an exiting task, which may always run.
 */
static __always_inline plim_u64 plim_ratecap_eligible_ns(const struct plim_ratecap *cap,
							 const struct plim_ratecap_params *params)
{
	if (!params->hard_permille)
		return 0;
	/* A fraction above 0 ends only at the next whole nanosecond. */
	return plim_sub_floor(plim_add_saturating(cap->tat_ns, cap->tat_rest ? 1 : 0),
			      plim_ratecap_depth_ns(params));
}

static __always_inline int plim_ratecap_may_run(const struct plim_ratecap *cap,
						const struct plim_ratecap_params *params,
						plim_u64 now_ns)
{
	return plim_ratecap_eligible_ns(cap, params) <= now_ns;
}

/*
 * How long @nr_running CPUs (0 counts as 1) may run together before the bucket
 * is full: the longest d for which, after a run of d from @now_ns is charged
 * for each, the owner may still run at @now_ns + d. Exact in whole nanoseconds.
 * Earlier runs that are not charged yet are not included.
 *
 * 0 if the owner may not run for a whole nanosecond. PLIM_UNLIMITED if it may
 * and the bucket never fills, because there is no cap or the CPUs do not exceed
 * it. Otherwise at most 1000 s.
 */
static __always_inline plim_u64 plim_ratecap_run_ns(const struct plim_ratecap *cap,
						    const struct plim_ratecap_params *params,
						    plim_u32 nr_running, plim_u64 now_ns)
{
	plim_u64 demand_permille, full_ns, slack_ns, rest;

	if (!params->hard_permille)
		return PLIM_UNLIMITED;
	if (!plim_ratecap_may_run(cap, params, now_ns))
		return 0;
	demand_permille = plim_max(nr_running, 1) * PLIM_PERMILLE;
	if (demand_permille <= params->hard_permille)
		return PLIM_UNLIMITED;
	full_ns = plim_add_saturating(now_ns, plim_ratecap_depth_ns(params));
	slack_ns = plim_sub_floor(full_ns, plim_max(cap->tat_ns, now_ns));
	/* Like a charge: a bucket that was empty before now holds no rest. */
	rest = cap->tat_ns < now_ns ? 0 : cap->tat_rest;
	/* max(TAT, now) + demand d / cap <= now + depth + d, solved for d. */
	return plim_sub_floor(slack_ns * params->hard_permille, rest) /
	       (demand_permille - params->hard_permille);
}

/*
 * Charges a run of @ran_ns that began at @start_ns (with a hard cap): TAT =
 * max(TAT, start) + ran / cap, exactly.
 *
 * If several CPUs share a bucket, runs may be charged out of the order of their
 * starts. TAT is then later than by exact accounting, by at most the longest
 * run: if plim_ratecap_depth_ns() is at least that, a group below its cap is
 * still never delayed.
 */
static __always_inline void plim_ratecap_charge(struct plim_ratecap *cap,
						const struct plim_ratecap_params *params,
						plim_u64 start_ns, plim_u64 ran_ns)
{
	plim_u64 parts;

	if (!params->hard_permille)
		return;
	if (cap->tat_ns < start_ns) {
		cap->tat_ns = start_ns;
		cap->tat_rest = 0;
	}
	parts = plim_min(ran_ns, PLIM_ELAPSED_MAX_NS) * PLIM_PERMILLE + cap->tat_rest;
	cap->tat_ns = plim_add_saturating(cap->tat_ns, parts / params->hard_permille);
	cap->tat_rest = parts % params->hard_permille;
}

/*
 * Changes the parameters from @old to @params. The fill level of the bucket
 * stays the same in CPU time, so that repeated changes create no allowance, and
 * both a raised and a lowered cap take effect at once.
 */
static __always_inline void
plim_ratecap_set(struct plim_ratecap *cap, const struct plim_ratecap_params *old,
		 const struct plim_ratecap_params *params, plim_u64 now_ns)
{
	plim_u64 parts;

	if (old->hard_permille == params->hard_permille)
		return;
	if (cap->tat_ns < now_ns) {
		/*
		 * Empty. The unit of the fraction changes with the cap, so it
		 * is rounded up.
		 */
		cap->tat_ns += cap->tat_rest ? 1 : 0;
		cap->tat_rest = 0;
		return;
	}
	parts = plim_min(cap->tat_ns - now_ns, PLIM_CAP_AHEAD_MAX_NS) * old->hard_permille +
		cap->tat_rest;
	cap->tat_ns = now_ns;
	cap->tat_rest = 0;
	if (!params->hard_permille)
		return;
	cap->tat_ns = plim_add_saturating(now_ns, parts / params->hard_permille);
	cap->tat_rest = parts % params->hard_permille;
}

/*
 * 2^(-@elapsed_ns / @half_life_ns) in ppm. Whole half-lives are shifts; the
 * fraction is looked up in 2^(-i/16) and interpolated (error below 0.03 %).
 */
static __always_inline plim_u64 plim_ratecap_decay_ppm(plim_u64 elapsed_ns, plim_u64 half_life_ns)
{
	static const plim_u32 table_ppm[17] = {
		1000000, 957603, 917004, 878126, 840896, 805245, 771105, 738413, 707107,
		677128,	 648420, 620929, 594604, 569394, 545254, 522137, 500000,
	};
	plim_u64 halvings, step_ns, index, into_ns, upper_ppm, lower_ppm;

	half_life_ns = plim_max(half_life_ns, PLIM_HALF_LIFE_MIN_NS);
	halvings = elapsed_ns / half_life_ns;
	if (halvings >= 20)
		return 0;
	step_ns = half_life_ns / 16;
	index = plim_min(elapsed_ns % half_life_ns / step_ns, 15);
	into_ns = plim_min(elapsed_ns % half_life_ns - index * step_ns, step_ns);
	upper_ppm = table_ppm[index & 15];
	lower_ppm = table_ppm[(index & 15) + 1];
	return (upper_ppm - (upper_ppm - lower_ppm) * into_ns / step_ns) >> halvings;
}

/*
 * Advances the usage rate to @now_ns; since the last update the owner ran
 * @ran_ns (over all its CPUs). An empty interval changes nothing; its run time
 * must be added to the next one.
 *
 * Returns the rate in ppm of one CPU.
 */
static __always_inline plim_u64 plim_ratecap_rate_update(struct plim_ratecap *cap,
							 const struct plim_ratecap_params *params,
							 plim_u64 ran_ns, plim_u64 now_ns)
{
	plim_u64 elapsed_ns = plim_elapsed_ns(now_ns, cap->rate_updated_ns);
	plim_u64 seen_ppm, kept_ppm;

	if (!elapsed_ns)
		return cap->rate_ppm;
	ran_ns = plim_min(ran_ns, PLIM_ELAPSED_MAX_NS);
	seen_ppm = ran_ns * PLIM_PPM / elapsed_ns;
	seen_ppm = plim_min(seen_ppm, PLIM_CPUS_MAX * PLIM_PPM);
	kept_ppm = plim_ratecap_decay_ppm(elapsed_ns, params->half_life_ns);
	cap->rate_ppm = (plim_min(cap->rate_ppm, PLIM_CPUS_MAX * PLIM_PPM) * kept_ppm +
			 seen_ppm * (PLIM_PPM - kept_ppm)) /
			PLIM_PPM;
	cap->rate_updated_ns = now_ns;
	return cap->rate_ppm;
}

/* Whether the owner is over its soft cap and so belongs to the background. */
static __always_inline int
plim_ratecap_is_background(const struct plim_ratecap *cap, const struct plim_ratecap_params *params)
{
	if (!params->soft)
		return 0;
	if (!params->soft_permille)
		return 1;
	return cap->rate_ppm > params->soft_permille * (PLIM_PPM / PLIM_PERMILLE);
}

#endif /* PLIMSOLL_RATECAP_H */

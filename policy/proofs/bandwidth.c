/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Proofs of plimsoll/bandwidth.h.
 *
 * State and parameters are any that the type invariants below admit, and every
 * operation is proved to preserve the invariants. So a property proved for one
 * step holds after any number of steps.
 *
 * The window bound: let held be the runtime of the pool and of all CPUs, less
 * their debts. A charge, a booking, a service or a return changes the pool and
 * one CPU, of which the conservation lemmas prove what they hold together, and
 * leaves all other CPUs as they were. So over all CPUs, however many, each
 * step has usage + held' <= held, and a refill adds a quota for each boundary
 * at most. The sum over the steps of a window is usage <= refills + held -
 * held', of which held is at most quota + burst and a slice for each CPU, and
 * held' at least minus the overrun of each CPU.
 */
#include "proof.h"

plim_u64 __CPROVER_uninterpreted_product(plim_u64 a, plim_u64 b, plim_u64 max);

/*
 * Stands in for plim_mul_capped(), which is proved in units.c: an uninterpreted
 * function, bounded by max. Spares every proof here the multiplication of wide
 * numbers.
 */
static plim_u64 some_product(plim_u64 a, plim_u64 b, plim_u64 max)
{
	plim_u64 product = __CPROVER_uninterpreted_product(a, b, max);

	ASSUME(product <= max);
	return product;
}

#define plim_mul_capped some_product
#include "plimsoll/bandwidth.h"

/* Type invariant of a pool. */
static int pool_is_valid(const struct plim_bandwidth *pool)
{
	if (!plim_bandwidth_is_valid(&pool->params))
		return 0;
	if (plim_bandwidth_is_unlimited(pool))
		return pool->runtime_ns == 0 && pool->dealt_ns == 0;
	return pool->runtime_ns <= pool->params.quota_ns + pool->params.burst_ns &&
	       pool->dealt_ns <= PLIM_RUNTIME_MAX_NS;
}

/* Type invariant of the state of a group on one CPU. */
static int cpu_is_valid(const struct plim_bandwidth_cpu *cpu)
{
	if (cpu->throttled && cpu->runtime_ns > 0)
		return 0;
	return cpu->throttled <= 1 && cpu->runtime_ns <= (plim_s64)PLIM_SLICE_MAX_NS;
}

static struct plim_bandwidth any_pool(void)
{
	struct plim_bandwidth pool;

	ASSUME(pool_is_valid(&pool));
	ASSUME(pool.boundary_ns <= LIFETIME_NS && pool.period_usage_ns <= LIFETIME_NS);
	ASSUME(pool.nr_throttled_ever <= LIFETIME_NS);
	ASSUME(pool.nr_throttled_cpus < PLIM_CPUS_MAX);
	ASSUME(pool.stats.nr_periods <= LIFETIME_NS && pool.stats.throttled_ns <= LIFETIME_NS / 4);
	ASSUME(pool.stats.nr_throttled <= pool.stats.nr_periods);
	ASSUME(pool.stats.nr_bursts <= pool.stats.nr_periods);
	ASSUME(pool.stats.burst_ns <= LIFETIME_NS);
	return pool;
}

static struct plim_bandwidth any_limited_pool(void)
{
	struct plim_bandwidth pool = any_pool();

	ASSUME(!plim_bandwidth_is_unlimited(&pool));
	return pool;
}

static struct plim_bandwidth_cpu any_cpu(const struct plim_bandwidth *pool)
{
	struct plim_bandwidth_cpu cpu;

	ASSUME(cpu_is_valid(&cpu));
	ASSUME(cpu.runtime_ns >= -(plim_s64)LIFETIME_NS);
	ASSUME(cpu.throttled_at_ns <= LIFETIME_NS);
	ASSUME(!cpu.throttled || pool->nr_throttled_cpus >= 1);
	return cpu;
}

static struct plim_bandwidth_params any_params(void)
{
	struct plim_bandwidth_params params;

	ASSUME(plim_bandwidth_is_valid(&params));
	return params;
}

/* Sum of the runtime of a pool and one CPU. */
static wide held_ns(const struct plim_bandwidth *pool, const struct plim_bandwidth_cpu *cpu)
{
	return (wide)pool->runtime_ns + cpu->runtime_ns;
}

void prove_params_are_accepted_exactly_in_their_ranges(void)
{
	struct plim_bandwidth_params params;
	int ok = plim_bandwidth_is_valid(&params);
	int unlimited = params.quota_ns == PLIM_UNLIMITED;
	wide sum_ns = (wide)params.burst_ns + (unlimited ? 0 : params.quota_ns);

	PROVE(ok == (params.period_ns >= 1000000 && params.period_ns <= 1000000000 &&
		     params.slice_ns >= 100000 && params.slice_ns <= 1000000000 &&
		     params.quota_ns >= 1000000 && sum_ns <= (wide)1 << 44),
	      "accepted exactly in range");
	PROOF_REACHED();
}

void prove_a_new_pool_holds_its_first_quota(void)
{
	struct plim_bandwidth_params params = any_params();
	struct plim_bandwidth pool;

	plim_bandwidth_init(&pool, &params, any_u64(0, LIFETIME_NS));
	PROVE(pool_is_valid(&pool), "valid");
	PROVE(pool.runtime_ns == (params.quota_ns == PLIM_UNLIMITED ? 0 : params.quota_ns),
	      "one quota");
	PROOF_REACHED();
}

void prove_set_never_exceeds_quota_plus_burst(void)
{
	struct plim_bandwidth pool = any_pool();
	struct plim_bandwidth_params params = any_params();

	plim_bandwidth_set(&pool, &params, any_bool(), any_u64(0, LIFETIME_NS));
	PROVE(pool_is_valid(&pool), "R <= Q + B");
	PROVE(pool.params.quota_ns == params.quota_ns, "felt at once");
	PROOF_REACHED();
}

void prove_no_cpu_makes_a_pool_exceed_quota_plus_burst(void)
{
	struct plim_bandwidth pool = any_pool();
	struct plim_bandwidth_cpu cpu = any_cpu(&pool);

	if (any_bool())
		plim_bandwidth_charge(&pool, &cpu, nondet_u64(), any_u64(0, LIFETIME_NS));
	else if (any_bool())
		plim_bandwidth_serve(&pool, &cpu, any_u64(0, LIFETIME_NS));
	else
		plim_bandwidth_return(&pool, &cpu, any_bool());
	PROVE(pool_is_valid(&pool), "R <= Q + B");
	PROVE(cpu_is_valid(&cpu), "the CPU is valid");
	PROOF_REACHED();
}

/*
 * A sleep of k periods gives min(R + k * Q, Q + B), for any k. The product is
 * that of plim_mul_capped(), which units.c proves to be exact.
 */
void prove_refill_after_any_sleep_is_exact(void)
{
	struct plim_bandwidth pool = any_limited_pool(), before = pool;
	int burst_on = any_bool();
	plim_u64 now_ns = any_u64(0, LIFETIME_NS);
	plim_u64 capacity_ns = before.params.quota_ns + (burst_on ? before.params.burst_ns : 0);
	plim_u64 periods = plim_bandwidth_refill(&pool, burst_on, now_ns);
	plim_u64 refill_ns = some_product(periods, before.params.quota_ns, PLIM_RUNTIME_MAX_NS);

	if (periods)
		PROVE(pool.runtime_ns == plim_min(before.runtime_ns + refill_ns, capacity_ns),
		      "min(R + k Q, Q + B)");
	else
		PROVE(pool.runtime_ns == before.runtime_ns, "no boundary, no refill");
	PROOF_REACHED();
}

/* Narrowed: a period of 2^27 ns (134 ms), by which the solver can divide. */
void prove_refill_counts_every_boundary(void)
{
	struct plim_bandwidth pool = any_pool(), before = pool;
	plim_u64 now_ns = any_u64(pool.boundary_ns, LIFETIME_NS), periods;
	plim_u64 period_ns = 1ULL << 27;

	pool.params.period_ns = period_ns;
	periods = plim_bandwidth_refill(&pool, any_bool(), now_ns);
	PROVE(pool.boundary_ns <= now_ns && now_ns - pool.boundary_ns < period_ns,
	      "the boundary is the last before now");
	PROVE(pool.boundary_ns - before.boundary_ns == periods * period_ns,
	      "and a whole number of periods on");
	PROVE(plim_bandwidth_next_boundary_ns(&pool) > now_ns, "the next is to come");
	PROVE(pool_is_valid(&pool), "R <= Q + B");
	PROOF_REACHED();
}

void prove_charge_conserves_runtime(void)
{
	struct plim_bandwidth pool = any_limited_pool(), pool_before = pool;
	struct plim_bandwidth_cpu cpu = any_cpu(&pool), cpu_before = cpu;
	plim_u64 ran_ns = any_u64(0, PLIM_ELAPSED_MAX_NS);

	plim_bandwidth_charge(&pool, &cpu, ran_ns, any_u64(0, LIFETIME_NS));
	PROVE(held_ns(&pool, &cpu) + ran_ns == held_ns(&pool_before, &cpu_before),
	      "R' + local' + ran == R + local");
	PROVE(pool.runtime_ns <= pool_before.runtime_ns, "the pool only gives");
	PROVE(pool.period_usage_ns == pool_before.period_usage_ns + ran_ns, "usage is exact");
	PROOF_REACHED();
}

void prove_booking_conserves_runtime(void)
{
	struct plim_bandwidth pool = any_limited_pool(), pool_before = pool;
	struct plim_bandwidth_cpu cpu = any_cpu(&pool), cpu_before = cpu;
	plim_u64 ran_ns = any_u64(0, PLIM_ELAPSED_MAX_NS);

	plim_bandwidth_book(&pool, &cpu, ran_ns);
	PROVE(held_ns(&pool, &cpu) + ran_ns == held_ns(&pool_before, &cpu_before),
	      "R' + local' + ran == R + local");
	PROVE(pool.runtime_ns == pool_before.runtime_ns, "nothing is taken from the pool");
	PROVE(pool.period_usage_ns == pool_before.period_usage_ns + ran_ns, "usage is exact");
	PROOF_REACHED();
}

/* For a limit without a burst, which so has no statistics of usage. */
void prove_a_local_charge_is_a_charge_without_the_pool(void)
{
	struct plim_bandwidth pool = any_pool(), same = pool, before = pool;
	struct plim_bandwidth_cpu cpu = any_cpu(&pool), other = cpu;
	plim_u64 ran_ns = nondet_u64(), now_ns = any_u64(0, LIFETIME_NS), left_ns;
	int passed = now_ns >= plim_bandwidth_next_boundary_ns(&pool);

	left_ns = plim_bandwidth_charge_local(&pool, &cpu, ran_ns, now_ns);
	PROVE(pool.runtime_ns == before.runtime_ns && pool.dealt_ns == before.dealt_ns &&
		      pool.period_usage_ns == before.period_usage_ns &&
		      pool.boundary_ns == before.boundary_ns &&
		      pool.nr_throttled_cpus == before.nr_throttled_cpus &&
		      pool.nr_throttled_ever == before.nr_throttled_ever,
	      "the pool is as it was");
	if (!left_ns) {
		PROVE(passed || cpu.throttled || cpu.runtime_ns <= 0 ||
			      ran_ns >= (plim_u64)cpu.runtime_ns ||
			      (ran_ns && pool.params.burst_ns) ||
			      plim_bandwidth_is_unlimited(&pool),
		      "refused for a boundary, want of runtime, a burst or no limit only");
		PROVE(cpu.runtime_ns == other.runtime_ns && pool.ran_locally == before.ran_locally,
		      "and then nothing is charged");
		return;
	}
	PROVE(!passed, "never across a boundary");
	PROVE((!ran_ns || !pool.params.burst_ns) && !plim_bandwidth_is_unlimited(&pool),
	      "of limits only, without a burst");
	PROVE(plim_bandwidth_charge(&same, &other, ran_ns, now_ns), "it may run on as well");
	PROVE((plim_s64)left_ns == cpu.runtime_ns && cpu.runtime_ns == other.runtime_ns &&
		      pool.runtime_ns == same.runtime_ns,
	      "the same runtime");
	PROVE((pool.period_usage_ns || pool.ran_locally) ==
		      (same.period_usage_ns || same.ran_locally),
	      "and the period counts as well");
	PROOF_REACHED();
}

void prove_serve_conserves_runtime(void)
{
	struct plim_bandwidth pool = any_limited_pool(), pool_before = pool;
	struct plim_bandwidth_cpu cpu = any_cpu(&pool), cpu_before = cpu;

	plim_bandwidth_serve(&pool, &cpu, any_u64(0, LIFETIME_NS));
	PROVE(held_ns(&pool, &cpu) == held_ns(&pool_before, &cpu_before),
	      "R' + local' == R + local");
	PROVE(pool.runtime_ns <= pool_before.runtime_ns, "the pool only gives");
	PROOF_REACHED();
}

void prove_return_makes_no_runtime(void)
{
	struct plim_bandwidth pool = any_limited_pool(), pool_before = pool;
	struct plim_bandwidth_cpu cpu = any_cpu(&pool), cpu_before = cpu;
	int burst_on = any_bool();
	plim_u64 capacity_ns = plim_bandwidth_capacity_ns(&pool.params, burst_on);

	plim_bandwidth_return(&pool, &cpu, burst_on);
	PROVE(held_ns(&pool, &cpu) <= held_ns(&pool_before, &cpu_before),
	      "R' + local' <= R + local");
	if (pool.runtime_ns < capacity_ns)
		PROVE(held_ns(&pool, &cpu) == held_ns(&pool_before, &cpu_before),
		      "nothing is lost but to a full pool");
	PROVE(pool.runtime_ns >= pool_before.runtime_ns, "the pool only takes");
	PROVE(cpu_before.runtime_ns > (plim_s64)PLIM_LOCAL_KEPT_NS ||
		      cpu.runtime_ns == cpu_before.runtime_ns,
	      "debt stays");
	PROOF_REACHED();
}

/*
 * R - dealt never grows by a change, because runtime that a change adds counts
 * as dealt for this period, and a raised quota is dealt at once. So any number
 * of changes in one period raises a group's runtime by the largest quota among
 * them, and no more. (A due refill comes first; it is proved above.)
 */
void prove_set_deals_no_quota_twice(void)
{
	struct plim_bandwidth pool = any_limited_pool(), before = pool;
	struct plim_bandwidth_params params = any_params();
	plim_u64 now_ns = any_u64(0, LIFETIME_NS);
	int burst_on = any_bool();

	ASSUME(params.quota_ns != PLIM_UNLIMITED);
	ASSUME(plim_sub_floor(now_ns, pool.boundary_ns) < pool.params.period_ns);
	plim_bandwidth_set(&pool, &params, burst_on, now_ns);
	PROVE((wide)pool.runtime_ns + before.dealt_ns <= (wide)before.runtime_ns + pool.dealt_ns,
	      "R' - dealt' <= R - dealt");
	PROVE(pool.runtime_ns == plim_bandwidth_capacity_ns(&params, burst_on) ||
		      (wide)pool.runtime_ns + before.dealt_ns ==
			      (wide)before.runtime_ns + pool.dealt_ns,
	      "and less by what a full pool loses only");
	PROVE(pool.dealt_ns <= plim_max(before.dealt_ns, params.quota_ns), "dealt the largest");
	PROVE(pool.dealt_ns >= params.quota_ns, "and at least the new one");
	PROVE(params.period_ns != before.params.period_ns || pool.boundary_ns == before.boundary_ns,
	      "a change does not put the refill off");
	PROOF_REACHED();
}

void prove_refill_deals_one_quota(void)
{
	struct plim_bandwidth pool = any_limited_pool(), before = pool;

	if (plim_bandwidth_refill(&pool, any_bool(), any_u64(0, LIFETIME_NS)))
		PROVE(pool.dealt_ns == pool.params.quota_ns, "a new period deals one quota");
	else
		PROVE(pool.dealt_ns == before.dealt_ns, "within a period nothing is dealt");
	PROOF_REACHED();
}

void prove_cpu_runtime_is_at_most_a_slice_and_debt_at_most_the_overrun(void)
{
	struct plim_bandwidth pool = any_limited_pool();
	struct plim_bandwidth_cpu cpu = any_cpu(&pool);
	plim_u64 overrun_ns = any_u64(0, PLIM_ELAPSED_MAX_NS / 2);
	plim_u64 ran_ns = any_u64(0, PLIM_ELAPSED_MAX_NS), room_ns;

	ASSUME(cpu.runtime_ns <= (plim_s64)pool.params.slice_ns);
	ASSUME(cpu.runtime_ns >= -(plim_s64)overrun_ns);
	ASSUME(cpu.throttled || cpu.runtime_ns >= 0);
	/* A throttled CPU runs nothing, and no run overruns by more. */
	room_ns = (plim_u64)(cpu.runtime_ns > 0 ? cpu.runtime_ns : 0) + overrun_ns;
	ASSUME(ran_ns == 0 || (!cpu.throttled && ran_ns <= room_ns));
	if (any_bool())
		plim_bandwidth_charge(&pool, &cpu, ran_ns, any_u64(0, LIFETIME_NS));
	else if (any_bool())
		plim_bandwidth_serve(&pool, &cpu, any_u64(0, LIFETIME_NS));
	else
		plim_bandwidth_return(&pool, &cpu, any_bool());
	PROVE(cpu.runtime_ns <= (plim_s64)plim_max(pool.params.slice_ns, 1), "at most a slice");
	PROVE(cpu.runtime_ns >= -(plim_s64)overrun_ns, "at most the overrun");
	PROVE(cpu.throttled || cpu.runtime_ns >= 0, "a CPU that runs owes nothing");
	PROOF_REACHED();
}

void prove_a_cpu_is_throttled_only_when_the_pool_is_empty(void)
{
	struct plim_bandwidth pool = any_limited_pool();
	struct plim_bandwidth_cpu cpu = any_cpu(&pool), before = cpu;
	int may_run = plim_bandwidth_charge(&pool, &cpu, nondet_u64(), any_u64(0, LIFETIME_NS));

	PROVE(may_run == !cpu.throttled, "throttled or running");
	PROVE(may_run == (cpu.runtime_ns > 0), "it runs on runtime of its own");
	if (cpu.throttled && !before.throttled)
		PROVE(pool.runtime_ns == 0, "throttled on an empty pool");
	PROOF_REACHED();
}

void prove_without_a_limit_nothing_is_throttled(void)
{
	struct plim_bandwidth pool = any_pool();
	struct plim_bandwidth_cpu cpu = any_cpu(&pool), other = cpu;
	struct plim_bandwidth copy = pool;

	ASSUME(plim_bandwidth_is_unlimited(&pool));
	PROVE(plim_bandwidth_charge(&pool, &cpu, nondet_u64(), any_u64(0, LIFETIME_NS)),
	      "it runs on");
	PROVE(plim_bandwidth_serve(&copy, &other, any_u64(0, LIFETIME_NS)), "it runs again");
	PROVE(!cpu.throttled && !other.throttled, "and is not throttled");
	PROOF_REACHED();
}

#define SERVED 3

/*
 * Three CPUs in any state and order of throttling. Acts as the caller does:
 * refills, then serves in order until a CPU stays throttled.
 */
void prove_no_cpu_stays_throttled_past_a_boundary_with_runtime_left(void)
{
	struct plim_bandwidth pool = any_limited_pool();
	struct plim_bandwidth_cpu cpus[SERVED];
	plim_u64 now_ns = any_u64(0, LIFETIME_NS);
	int i, stopped = 0;

	ASSUME(pool.nr_throttled_cpus == SERVED);
	for (i = 0; i < SERVED; i++) {
		cpus[i] = any_cpu(&pool);
		ASSUME(cpus[i].throttled);
		ASSUME(now_ns <= LIFETIME_NS / 4);
		ASSUME(cpus[i].throttled_order < pool.nr_throttled_ever);
		ASSUME(i == 0 || cpus[i - 1].throttled_order < cpus[i].throttled_order);
	}
	plim_bandwidth_refill(&pool, any_bool(), now_ns);
	for (i = 0; i < SERVED && !stopped; i++)
		stopped = !plim_bandwidth_serve(&pool, &cpus[i], now_ns);
	PROVE(pool.runtime_ns == 0 || pool.nr_throttled_cpus == 0,
	      "the pool is empty or no CPU is throttled");
	for (i = 1; i < SERVED; i++)
		PROVE(cpus[i].throttled || !cpus[i - 1].throttled, "first throttled, first served");
	PROOF_REACHED();
}

void prove_throttled_cpus_queue_in_the_order_of_throttling(void)
{
	struct plim_bandwidth pool = any_pool();
	struct plim_bandwidth_cpu first = any_cpu(&pool), second = first;
	plim_u64 before = pool.nr_throttled_ever;

	plim_bandwidth_throttle(&pool, &first, any_u64(0, LIFETIME_NS));
	plim_bandwidth_throttle(&pool, &second, any_u64(0, LIFETIME_NS));
	PROVE(first.throttled_order == before && second.throttled_order == before + 1,
	      "one after the other, and none left out");
	PROOF_REACHED();
}

void prove_statistics_of_periods_are_exact(void)
{
	struct plim_bandwidth pool = any_limited_pool(), before = pool;
	const struct plim_bandwidth_stats *was = &before.stats, *is = &pool.stats;
	plim_u64 now_ns = any_u64(0, LIFETIME_NS);
	plim_u64 periods = plim_bandwidth_refill(&pool, any_bool(), now_ns);
	plim_u64 active = periods && (before.period_usage_ns || before.ran_locally) ? 1 : 0;
	plim_u64 excess_ns = before.params.burst_ns ? plim_sub_floor(before.period_usage_ns,
								     before.params.quota_ns)
						    : 0;

	PROVE(is->nr_throttled - was->nr_throttled == (before.nr_throttled_cpus ? periods : 0),
	      "periods that ended with a throttled CPU");
	PROVE(is->nr_periods - was->nr_periods == (before.nr_throttled_cpus ? periods : active),
	      "periods elapsed while active");
	PROVE(is->nr_bursts - was->nr_bursts == (periods && excess_ns ? 1 : 0),
	      "periods whose usage exceeded the quota");
	PROVE(is->burst_ns - was->burst_ns == (periods ? excess_ns : 0), "the excess");
	PROVE(pool.period_usage_ns == (periods ? 0 : before.period_usage_ns), "usage starts over");
	PROVE(pool.ran_locally == (periods ? 0 : before.ran_locally), "of local charges, too");
	PROVE(is->nr_throttled <= is->nr_periods && is->nr_bursts <= is->nr_periods,
	      "no more of them than periods");
	PROOF_REACHED();
}

void prove_statistics_of_throttling_are_exact(void)
{
	struct plim_bandwidth pool = any_pool(), before = pool;
	struct plim_bandwidth_cpu cpu = any_cpu(&pool), was = cpu;
	plim_u64 now_ns = any_u64(was.throttled_at_ns, LIFETIME_NS);

	if (any_bool())
		plim_bandwidth_charge(&pool, &cpu, nondet_u64(), now_ns);
	else
		plim_bandwidth_serve(&pool, &cpu, now_ns);
	PROVE(pool.nr_throttled_cpus + was.throttled == before.nr_throttled_cpus + cpu.throttled,
	      "throttled CPUs are counted");
	PROVE(pool.stats.throttled_ns - before.stats.throttled_ns ==
		      (was.throttled && !cpu.throttled ? now_ns - was.throttled_at_ns : 0),
	      "throttled time is counted once");
	PROVE(!cpu.throttled || was.throttled || cpu.throttled_at_ns == now_ns, "from now on");
	PROOF_REACHED();
}

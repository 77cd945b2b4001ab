/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Headroom: CPUs kept idle for latency-critical work.
 *
 * A CPU needs a token to run batch work; at most tokens_allowed CPUs hold one.
 * In the share form, a timer ends an interval of the core's credit every
 * millisecond and converts the grant to whole tokens; the rest stays in the
 * credit, so that the share is exact on average. In the instant form (a number
 * of CPUs), tokens follow from the number of idle CPUs at every instant, driven
 * by the idle edges.
 */
#ifndef PLIMSOLL_HEADROOM_BPF_H
#define PLIMSOLL_HEADROOM_BPF_H

#include "accounting.bpf.h"

/* Length of an interval of the share form. */
#define CONTROL_NS PLIM_NSEC_PER_MSEC
/* See tokens_of_credit(). It bounds how late batch work yields. */
#define SPARE_NS (3 * CONTROL_NS)

/*
 * Whether one more CPU, @from_idle or not, may start batch work now. In the
 * instant form an idle CPU that starts batch work is one idle CPU less.
 */
static __always_inline bool token_available(bool from_idle)
{
	if (!headroom_on || READ_ONCE(nr_tokens) < READ_ONCE(tokens_tolerated))
		return true;
	if (READ_ONCE(nr_tokens) >= READ_ONCE(tokens_allowed))
		return false;
	return !headroom_cpus || READ_ONCE(nr_idle) - (from_idle ? 1 : 0) >= (s32)headroom_cpus;
}

/*
 * Takes a token for this CPU. Returns false if there is none; the CPU is woken
 * when there is one. Without headroom it needs none.
 */
static __always_inline bool token_take(struct plimsoll_cpu *c, s32 cpu)
{
	bool from_idle = c->state == PLIMSOLL_CPU_IDLE;
	s32 taken;

	if (!headroom_on || c->token)
		return true;
	if (!token_available(from_idle)) {
		cpus_add(token_refused_cpus, cpu);
		return false;
	}
	/* Two CPUs may have seen the same last token: the later one returns it. */
	taken = __sync_fetch_and_add(&nr_tokens, 1);
	if (taken >= READ_ONCE(tokens_allowed) && taken >= READ_ONCE(tokens_tolerated)) {
		__sync_fetch_and_sub(&nr_tokens, 1);
		cpus_add(token_refused_cpus, cpu);
		return false;
	}
	c->token = 1;
	cpus_add(token_cpus, cpu);
	return true;
}

/* Takes a token beyond the limit if need be. */
static __always_inline void token_force(struct plimsoll_cpu *c, s32 cpu)
{
	c->token = 1;
	cpus_add(token_cpus, cpu);
	__sync_fetch_and_add(&nr_tokens, 1);
}

/* Called by the CPU itself or, if the task of the token did not run, by audit_cpu(). */
static __always_inline void token_release(struct plimsoll_cpu *c, s32 cpu)
{
	if (!READ_ONCE(c->token) || !__sync_lock_test_and_set(&c->token, 0))
		return;
	cpus_remove(token_cpus, cpu);
	__sync_fetch_and_sub(&nr_tokens, 1);
}

/* Headroom begins: CPUs that run batch work without a token ask for one. */
static __always_inline void tokens_begin(void)
{
	struct plimsoll_cpu *c;
	u32 cpu;

	bpf_for (cpu, 0, nr_cpu_ids) {
		c = cpu_at(cpu);
		if (c && READ_ONCE(c->state) == PLIMSOLL_CPU_BATCH)
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
}

/* Whether batch work on this CPU has to stop. */
static __always_inline bool tokens_exceeded(void)
{
	if (!headroom_on || READ_ONCE(nr_tokens) <= READ_ONCE(tokens_tolerated))
		return false;
	if (READ_ONCE(nr_tokens) > READ_ONCE(tokens_allowed))
		return true;
	return headroom_cpus && READ_ONCE(nr_idle) < (s32)headroom_cpus;
}

/* Index of the histogram of lengths: under 2, 4, 8 … µs. */
static __always_inline u32 shortage_length(u64 length_ns)
{
	u64 length_us = length_ns / PLIM_NSEC_PER_USEC;
	u32 i;

	for (i = 0; i < PLIMSOLL_SHORTAGES - 1; i++) {
		if (length_us < 2ULL << i)
			break;
	}
	return i;
}

/* Accounts the time since the last change of idle CPUs or tokens. Under the lock. */
static __always_inline void over_account(struct plimsoll_machine *m, u64 now)
{
	s32 idle = READ_ONCE(nr_idle), tokens = READ_ONCE(nr_tokens);
	u64 elapsed_ns = plim_elapsed_ns(now, m->over_since_ns);

	if (m->shortage_since_ns)
		m->missing_ns += elapsed_ns * m->missing_cpus;
	m->over_ns += elapsed_ns * m->over_cpus;
	m->over_since_ns = plim_max(now, m->over_since_ns);
	m->missing_cpus = idle < (s32)headroom_cpus ? headroom_cpus - idle : 0;
	/* Also while they run on the tolerance. */
	m->over_cpus = tokens > 0 ? plim_min(m->missing_cpus, tokens) : 0;
}

/*
 * Measures shortages of idle CPUs, which it reads under the lock: the last caller sees all
 * changes.
 */
__noinline int shortage_measure(u64 now)
{
	struct plimsoll_machine *m;
	bool is_short;
	u32 key = 0;

	m = bpf_map_lookup_elem(&machine, &key);
	if (!m)
		return 0;
	if (!READ_ONCE(m->shortage_since_ns) && !READ_ONCE(m->over_cpus) &&
	    READ_ONCE(nr_idle) >= (s32)headroom_cpus)
		return 0;
	bpf_spin_lock(&m->lock);
	over_account(m, now);
	is_short = READ_ONCE(nr_idle) < (s32)headroom_cpus &&
		   READ_ONCE(nr_tokens) > READ_ONCE(tokens_tolerated);
	if (is_short && !m->shortage_since_ns) {
		m->shortage_since_ns = now;
	} else if (!is_short && m->shortage_since_ns) {
		u64 length_ns = plim_elapsed_ns(now, m->shortage_since_ns);

		m->shortage_since_ns = 0;
		m->shortage_ns += length_ns;
		m->nr_shortages[shortage_length(length_ns) % PLIMSOLL_SHORTAGES]++;
	}
	bpf_spin_unlock(&m->lock);
	return 0;
}

/* Called after each change of idle CPUs or tokens. */
static __always_inline void shortage_update(u64 now)
{
	if (headroom_cpus)
		shortage_measure(now);
}

/* Preempts batch work on up to @count CPUs. */
__noinline int batch_evict(s32 count)
{
	struct plimsoll_machine *m;
	u32 i, cpu = 0, key = 0;

	m = bpf_map_lookup_elem(&machine, &key);
	bpf_for (i, 0, nr_cpu_ids) {
		cpu = cpus_next(token_cpus, NULL, false, cpu);
		if (cpu >= nr_cpu_ids || count-- <= 0)
			break;
		scx_bpf_kick_cpu(cpu++, SCX_KICK_PREEMPT);
		if (m)
			__sync_fetch_and_add(&m->nr_evictions, 1);
	}
	return 0;
}

/* Wakes up to @count CPUs that were refused a token. */
__noinline int batch_invite(s32 count)
{
	cpus_wake(token_refused_cpus, count);
	return 0;
}

/*
 * Converts the allowance to tokens: as many whole CPUs as the law left in the
 * last interval, and a spare one while there is credit for it. The spare token
 * is granted when SPARE_NS have been saved and revoked when they are used up,
 * and not in every interval, because preempting and resuming a task costs more
 * than it gains by running for a moment. A debt of SPARE_NS costs a token. Less
 * than a whole token counts as one if it is the tolerance.
 */
static __always_inline s32 tokens_of_credit(const struct plim_headroom *headroom, u64 elapsed_ns,
					    bool *spare)
{
	s64 credit_ns = headroom->credit_ns, tolerance_ns = headroom->tolerance_credit_ns;
	s32 places = headroom->allowance_ns / plim_max(elapsed_ns, 1);

	if (credit_ns >= (s64)SPARE_NS)
		*spare = true;
	else if (credit_ns <= 0)
		*spare = false;
	if (*spare)
		places++;
	else if (credit_ns <= -(s64)SPARE_NS)
		places--;
	if (places <= 0)
		places = tolerance_ns > 0 &&
			 tolerance_ns >= (s64)headroom->params.tolerance_runtime_ns;
	return places;
}

/*
 * Sums the times of all CPUs. Also recounts the idle CPUs, which repairs edges
 * that were lost while headroom was off.
 */
static __always_inline void headroom_sum(u64 now, u64 *idle_ns, u64 *batch_ns)
{
	struct plimsoll_cpu *c;
	u64 idle = 0, token = 0;
	s32 idle_cpus = count_from;
	u32 cpu;

	*idle_ns = 0;
	*batch_ns = 0;
	bpf_for (cpu, 0, nr_cpu_ids) {
		c = cpu_at(cpu);
		if (!c)
			break;
		cpu_times(c, now, &idle, &token);
		/* The state of a CPU that went offline while idle stays idle. */
		if (c->online)
			*idle_ns += idle;
		*batch_ns += token;
		if (c->online && c->state == PLIMSOLL_CPU_IDLE)
			idle_cpus++;
	}
	WRITE_ONCE(nr_idle, idle_cpus);
}

/* Repairs the tokens of the instant form after edges that coincided. */
static __always_inline void tokens_reconcile(void)
{
	s32 spare = READ_ONCE(nr_idle) - (s32)headroom_cpus;

	if (spare > 0)
		batch_invite(spare);
	else if (READ_ONCE(nr_tokens) > READ_ONCE(tokens_tolerated))
		batch_evict(plim_min(-spare, READ_ONCE(nr_tokens) - READ_ONCE(tokens_tolerated)));
}

/*
 * Time of all other work, given @free_ns of idle time and batch work. CPUs whose
 * state changes while they are read are ahead of the others; the excess of this
 * interval is carried to the next. If it was cut off instead, other work would
 * appear where there is none.
 */
static __always_inline u64 nonbatch_of(struct plimsoll_machine *m, u64 elapsed_ns, u64 free_ns)
{
	u64 capacity_ns = elapsed_ns * m->headroom.params.nr_cpus;

	free_ns += m->carry_ns;
	m->carry_ns = plim_min(plim_sub_floor(free_ns, capacity_ns), capacity_ns);
	return plim_sub_floor(capacity_ns, free_ns);
}

/*
 * Ends an interval of the instant form, for which the core only knows that no
 * share is left. Batch work ran for @ran_ns in it, which may be less than the time
 * of the tokens, because the task of a token may not run yet. Returns whether
 * batch work still has to pay back an overrun of its tolerance.
 */
static __always_inline bool
over_update(struct plimsoll_machine *m, u64 shortfall_ns, u64 ran_ns, u64 elapsed_ns, u64 now)
{
	u64 tolerated = READ_ONCE(tolerated_apart_ns);

	over_account(m, now);
	/* Time behind normal work counts against the same tolerance. */
	m->over_ns = plim_min(m->over_ns, ran_ns) + tolerated - m->tolerated_ns;
	m->tolerated_ns = tolerated;
	m->headroom.shortfall_ns = shortfall_ns + m->missing_ns;
	m->overrun_ns = plim_headroom_overrun_ns(&m->headroom.params, m->overrun_ns, m->over_ns,
						 elapsed_ns);
	m->missing_ns = 0;
	m->over_ns = 0;
	return m->overrun_ns > 0;
}

/* Timer callback: ends an interval. */
static int headroom_update(void *map, int *key, struct bpf_timer *timer)
{
	u64 now = bpf_ktime_get_ns(), idle_ns, batch_ns, ran_ns, elapsed_ns, nonbatch_ns,
	    shortfall_ns;
	struct plimsoll_machine *m;
	s32 allowed, over;
	u32 zero = 0, cpu;
	bool spare;

	m = bpf_map_lookup_elem(&machine, &zero);
	if (!m)
		return 0;
	if (!headroom_on) {
		/* It has ended, also for a CPU that is about to be refused. */
		bpf_for (cpu, 0, nr_cpu_ids) {
			scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		}
		return 0;
	}
	headroom_sum(now, &idle_ns, &batch_ns);

	bpf_spin_lock(&m->lock);
	m->headroom.params.nr_cpus = plim_max(READ_ONCE(nr_online), 1);
	elapsed_ns = plim_elapsed_ns(now, m->headroom.updated_ns);
	ran_ns = plim_sub_floor(batch_ns, m->batch_ns);
	nonbatch_ns = nonbatch_of(m, elapsed_ns, plim_sub_floor(idle_ns, m->idle_ns) + ran_ns);
	shortfall_ns = m->headroom.shortfall_ns;
	plim_headroom_update(&m->headroom, nonbatch_ns, ran_ns, now);
	m->idle_ns = idle_ns;
	m->batch_ns = batch_ns;
	m->nr_updates++;
	spare = m->spare;
	allowed = tokens_of_credit(&m->headroom, elapsed_ns, &spare);
	m->spare = spare;
	if (headroom_cpus && over_update(m, shortfall_ns, ran_ns, elapsed_ns, now))
		allowed = 0;
	bpf_spin_unlock(&m->lock);

	/*
	 * In the instant form the share is all of the machine, so that the grant
	 * is the tolerance; beyond it the number of idle CPUs decides.
	 */
	WRITE_ONCE(tokens_tolerated, headroom_cpus ? allowed : 0);
	if (headroom_cpus)
		allowed = READ_ONCE(nr_online);
	WRITE_ONCE(tokens_allowed, allowed);
	over = READ_ONCE(nr_tokens) - allowed;
	if (over > 0)
		batch_evict(over);
	else if (over < 0 && !headroom_cpus)
		batch_invite(-over);
	else if (headroom_cpus && READ_ONCE(nr_idle) != (s32)headroom_cpus)
		tokens_reconcile();
	shortage_update(now);
	bpf_timer_start(timer, CONTROL_NS, 0);
	return 0;
}

/* A CPU has gone idle: wakes it for batch work if more CPUs are idle than demanded. */
static __always_inline void headroom_on_idle(s32 cpu)
{
	__sync_fetch_and_add(&nr_idle, 1);
	if (headroom_cpus && READ_ONCE(nr_idle) > (s32)headroom_cpus)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

/* A CPU has left idle; @for_batch: to run batch work. */
static __always_inline void headroom_on_busy(bool for_batch)
{
	struct plimsoll_machine *m;
	u32 key = 0;

	__sync_fetch_and_sub(&nr_idle, 1);
	if (!headroom_cpus || for_batch)
		return;
	if (READ_ONCE(nr_idle) >= (s32)headroom_cpus || READ_ONCE(nr_tokens) <= 0)
		return;
	m = bpf_map_lookup_elem(&machine, &key);
	if (m)
		__sync_fetch_and_add(&m->nr_takeovers, 1);
	batch_evict((s32)headroom_cpus - READ_ONCE(nr_idle));
}

#endif /* PLIMSOLL_HEADROOM_BPF_H */

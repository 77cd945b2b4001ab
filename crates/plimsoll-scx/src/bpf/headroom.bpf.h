/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Headroom: CPUs kept idle for the main workload.
 *
 * Side work needs a place: no more than side_allowed CPUs run it at once. For
 * a share of the machine, a timer closes an interval of the core's credit
 * every millisecond and turns what it grants into places; what a whole place
 * leaves over stays in the credit, so that the share is exact on average. For
 * a number of CPUs, places follow from how many CPUs are idle at every
 * instant; the edges of idle drive it.
 */
#ifndef PLIMSOLL_HEADROOM_BPF_H
#define PLIMSOLL_HEADROOM_BPF_H

#include "accounting.bpf.h"

/* How often the share form closes an interval. */
#define CONTROL_NS PLIM_NSEC_PER_MSEC
/* See places_of_credit(). It bounds how late side work makes room. */
#define SPARE_NS (3 * CONTROL_NS)

/*
 * Whether one more CPU, @from_idle or not, may start side work now.
 * In the instant form a CPU that is idle now and starts side work is one idle
 * CPU less.
 */
static __always_inline bool side_may_start(bool from_idle)
{
	if (!headroom_on || READ_ONCE(nr_side) < READ_ONCE(side_tolerated))
		return true;
	if (READ_ONCE(nr_side) >= READ_ONCE(side_allowed))
		return false;
	return !headroom_cpus || READ_ONCE(nr_idle) - (from_idle ? 1 : 0) >= (s32)headroom_cpus;
}

/*
 * Takes a place for this CPU; false: there is none, and the CPU is woken when
 * there is one.
 */
static __always_inline bool side_take_place(struct plimsoll_cpu *c, s32 cpu)
{
	bool from_idle = c->state == PLIMSOLL_CPU_IDLE;
	s32 taken;

	if (c->side)
		return true;
	if (!side_may_start(from_idle)) {
		cpus_add(side_refused, cpu);
		return false;
	}
	/* Two CPUs may have seen the same last place: the later gives it back. */
	taken = __sync_fetch_and_add(&nr_side, 1);
	if (headroom_on && taken >= READ_ONCE(side_allowed) && taken >= READ_ONCE(side_tolerated)) {
		__sync_fetch_and_sub(&nr_side, 1);
		cpus_add(side_refused, cpu);
		return false;
	}
	c->side = 1;
	cpus_add(side_cpus, cpu);
	return true;
}

/* Takes a place whether there is one or not. */
static __always_inline void side_force_place(struct plimsoll_cpu *c, s32 cpu)
{
	c->side = 1;
	cpus_add(side_cpus, cpu);
	__sync_fetch_and_add(&nr_side, 1);
}

/* By the CPU itself or, if it has not run what it took the place for, by the audit. */
static __always_inline void side_give_place(struct plimsoll_cpu *c, s32 cpu)
{
	if (!READ_ONCE(c->side) || !__sync_lock_test_and_set(&c->side, 0))
		return;
	cpus_remove(side_cpus, cpu);
	__sync_fetch_and_sub(&nr_side, 1);
}

/* Whether side work on this CPU has to make room. */
static __always_inline bool side_is_over(void)
{
	if (!headroom_on || READ_ONCE(nr_side) <= READ_ONCE(side_tolerated))
		return false;
	if (READ_ONCE(nr_side) > READ_ONCE(side_allowed))
		return true;
	return headroom_cpus && READ_ONCE(nr_idle) < (s32)headroom_cpus;
}

/* Under 2, 4, 8 … µs. */
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

/* Books what has been since the last change of who is idle and what runs. Under the lock. */
static __always_inline void over_book(struct plimsoll_machine *m, u64 now)
{
	s32 idle = READ_ONCE(nr_idle), side = READ_ONCE(nr_side);
	u64 elapsed_ns = plim_elapsed_ns(now, m->over_since_ns);

	if (m->shortage_since_ns)
		m->missing_ns += elapsed_ns * m->missing_cpus;
	m->over_ns += elapsed_ns * m->over_cpus;
	m->over_since_ns = plim_max(now, m->over_since_ns);
	m->missing_cpus = idle < (s32)headroom_cpus ? headroom_cpus - idle : 0;
	/* Be it on their tolerance. */
	m->over_cpus = side > 0 ? plim_min(m->missing_cpus, side) : 0;
}

/*
 * Measures shortages: to be called after each change of what one is made of.
 * Looks under the lock, so that whoever comes last sees what all have done.
 */
__noinline int shortage_look(u64 now)
{
	struct plimsoll_machine *m;
	bool is_short;
	u32 key = 0;

	if (!headroom_cpus)
		return 0;
	m = bpf_map_lookup_elem(&machine, &key);
	if (!m)
		return 0;
	if (!READ_ONCE(m->shortage_since_ns) && !READ_ONCE(m->over_cpus) &&
	    READ_ONCE(nr_idle) >= (s32)headroom_cpus)
		return 0;
	bpf_spin_lock(&m->lock);
	over_book(m, now);
	is_short = READ_ONCE(nr_idle) < (s32)headroom_cpus &&
		   READ_ONCE(nr_side) > READ_ONCE(side_tolerated);
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

/* Takes side work off up to @count CPUs. */
__noinline int side_evict(s32 count)
{
	struct plimsoll_machine *m;
	u32 cpu, key = 0;

	m = bpf_map_lookup_elem(&machine, &key);
	bpf_for (cpu, 0, nr_cpu_ids) {
		if (count <= 0)
			break;
		if (!cpus_have(side_cpus, cpu))
			continue;
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		if (m)
			__sync_fetch_and_add(&m->nr_evictions, 1);
		count--;
	}
	return 0;
}

/* Wakes up to @count CPUs that would have run side work. */
__noinline int side_invite(s32 count)
{
	u32 cpu;

	bpf_for (cpu, 0, nr_cpu_ids) {
		if (count <= 0)
			break;
		if (cpus_wake(side_refused, cpu))
			count--;
	}
	return 0;
}

/*
 * Turns what may be run into places: as many whole CPUs as the law left in the
 * last interval, and one more while there is credit for it. That one comes when
 * SPARE_NS have been saved and goes when they are used up, and not in every
 * interval: to take a task off a CPU and to bring it back costs more than it
 * gives if it runs for a moment only. A debt of as much costs a place. Less than a
 * whole place is one, too, if it is all that there will be: tolerance.
 */
static __always_inline s32 places_of_credit(const struct plim_headroom *headroom, u64 elapsed_ns,
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
 * Adds up all CPUs. Counts the idle ones anew, too: edges that were lost while
 * nobody asked for headroom are so made good.
 */
static __always_inline void headroom_sum(u64 now, u64 *idle_ns, u64 *side_ns)
{
	struct plimsoll_cpu *c;
	u64 idle = 0, side = 0;
	s32 idle_cpus = count_from;
	u32 cpu;

	*idle_ns = 0;
	*side_ns = 0;
	bpf_for (cpu, 0, nr_cpu_ids) {
		c = cpu_at(cpu);
		if (!c)
			break;
		cpu_times(c, now, &idle, &side);
		/* A CPU that went offline while idle would be idle for ever. */
		if (c->online)
			*idle_ns += idle;
		*side_ns += side;
		if (c->online && c->state == PLIMSOLL_CPU_IDLE)
			idle_cpus++;
	}
	WRITE_ONCE(nr_idle, idle_cpus);
}

/* Mends in the instant form what two edges at once may have left behind. */
static __always_inline void side_settle(void)
{
	s32 spare = READ_ONCE(nr_idle) - (s32)headroom_cpus;

	if (spare > 0)
		side_invite(spare);
	else if (READ_ONCE(nr_side) > READ_ONCE(side_tolerated))
		side_evict(plim_min(-spare, READ_ONCE(nr_side) - READ_ONCE(side_tolerated)));
}

/*
 * What is neither idle nor side work, of @free_ns of both. CPUs that change while
 * they are read are further than the others; what is so too much in this interval is
 * missing in the next. Cut off at 0 instead, main work would be seen where there is none.
 */
static __always_inline u64 nonside_of(struct plimsoll_machine *m, u64 elapsed_ns, u64 free_ns)
{
	u64 capacity_ns = elapsed_ns * m->headroom.params.nr_cpus;

	free_ns += m->carry_ns;
	m->carry_ns = plim_min(plim_sub_floor(free_ns, capacity_ns), capacity_ns);
	return plim_sub_floor(capacity_ns, free_ns);
}

/*
 * Closes an interval of the instant form, of which the core knows no more than
 * that nothing is left. Side work ran @ran_ns in it: a place may be held for a task
 * that does not run yet. Returns whether side work still has to pay for what it ran
 * beyond its tolerance.
 */
static __always_inline bool
over_update(struct plimsoll_machine *m, u64 shortfall_ns, u64 ran_ns, u64 elapsed_ns, u64 now)
{
	u64 tolerated = READ_ONCE(tolerated_apart_ns);

	over_book(m, now);
	/* What runs behind normal work is of the same tolerance. */
	m->over_ns = plim_min(m->over_ns, ran_ns) + tolerated - m->tolerated_ns;
	m->tolerated_ns = tolerated;
	m->headroom.shortfall_ns = shortfall_ns + m->missing_ns;
	m->overrun_ns = plim_headroom_overrun_ns(&m->headroom.params, m->overrun_ns, m->over_ns,
						 elapsed_ns);
	m->missing_ns = 0;
	m->over_ns = 0;
	return m->overrun_ns > 0;
}

/* Closes an interval; in the share form every millisecond. */
static int headroom_update(void *map, int *key, struct bpf_timer *timer)
{
	u64 now = bpf_ktime_get_ns(), idle_ns, side_ns, ran_ns, elapsed_ns, nonside_ns,
	    shortfall_ns;
	struct plimsoll_machine *m;
	s32 allowed, over;
	u32 zero = 0;
	bool spare;

	m = bpf_map_lookup_elem(&machine, &zero);
	if (!m || !headroom_on)
		return 0;
	headroom_sum(now, &idle_ns, &side_ns);

	bpf_spin_lock(&m->lock);
	m->headroom.params.nr_cpus = plim_max(READ_ONCE(nr_online), 1);
	elapsed_ns = plim_elapsed_ns(now, m->headroom.updated_ns);
	ran_ns = plim_sub_floor(side_ns, m->side_ns);
	nonside_ns = nonside_of(m, elapsed_ns, plim_sub_floor(idle_ns, m->idle_ns) + ran_ns);
	shortfall_ns = m->headroom.shortfall_ns;
	plim_headroom_update(&m->headroom, nonside_ns, ran_ns, now);
	m->idle_ns = idle_ns;
	m->side_ns = side_ns;
	m->nr_updates++;
	spare = m->spare;
	allowed = places_of_credit(&m->headroom, elapsed_ns, &spare);
	m->spare = spare;
	if (headroom_cpus && over_update(m, shortfall_ns, ran_ns, elapsed_ns, now))
		allowed = 0;
	bpf_spin_unlock(&m->lock);

	/*
	 * In the instant form the share is all of the machine, so that the grant
	 * is the tolerance; beyond it the number of idle CPUs decides.
	 */
	WRITE_ONCE(side_tolerated, headroom_cpus ? allowed : 0);
	if (headroom_cpus)
		allowed = READ_ONCE(nr_online);
	WRITE_ONCE(side_allowed, allowed);
	over = READ_ONCE(nr_side) - allowed;
	if (over > 0)
		side_evict(over);
	else if (over < 0 && !headroom_cpus)
		side_invite(-over);
	else if (headroom_cpus && READ_ONCE(nr_idle) != (s32)headroom_cpus)
		side_settle();
	shortage_look(now);
	bpf_timer_start(timer, CONTROL_NS, 0);
	return 0;
}

/* A CPU has gone idle: is there room for one more side task? */
static __always_inline void headroom_on_idle(s32 cpu)
{
	__sync_fetch_and_add(&nr_idle, 1);
	if (headroom_cpus && READ_ONCE(nr_idle) > (s32)headroom_cpus)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

/* A CPU has left idle; @for_side: to run side work. */
static __always_inline void headroom_on_busy(bool for_side)
{
	struct plimsoll_machine *m;
	u32 key = 0;

	__sync_fetch_and_sub(&nr_idle, 1);
	if (!headroom_cpus || for_side)
		return;
	if (READ_ONCE(nr_idle) >= (s32)headroom_cpus || READ_ONCE(nr_side) <= 0)
		return;
	m = bpf_map_lookup_elem(&machine, &key);
	if (m)
		__sync_fetch_and_add(&m->nr_takeovers, 1);
	side_evict((s32)headroom_cpus - READ_ONCE(nr_idle));
}

#endif /* PLIMSOLL_HEADROOM_BPF_H */

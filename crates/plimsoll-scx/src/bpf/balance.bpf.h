/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Balance between LLCs whose CPUs all have work: at intervals a CPU looks at some of the
 * others, in turn, and pulls a task that gets more here than there, by the core's decision.
 * (A CPU without work pulls any task: see should_pull() in dispatch.bpf.h.)
 */
#ifndef PLIMSOLL_BALANCE_BPF_H
#define PLIMSOLL_BALANCE_BPF_H

#include "accounting.bpf.h"
#include "queues.bpf.h"

/* Interval at which a CPU compares LLCs. */
#define BALANCE_NS PLIM_BATCH_SLICE_DEFAULT_NS
/* Most LLCs that it looks at then. */
#define BALANCE_LLCS_MAX 8
/* Most waiting tasks of which it looks at the weights. */
#define LOAD_TASKS_MAX 16

static __always_inline bool balance_is_due(struct plimsoll_cpu *c, u64 now)
{
	if (nr_llcs == 1 || now < c->balance_next_ns)
		return false;
	c->balance_next_ns = now + BALANCE_NS;
	c->balance_first += BALANCE_LLCS_MAX;
	return true;
}

/* What the core knows of an LLC, and the weight of the task that is pulled from there. */
struct llc_load {
	struct plim_batch_llc llc;
	u64 first; /* 0: none waits */
};

/* Adds what waits in a queue. Of more than LOAD_TASKS_MAX tasks those stand for all. */
static __always_inline void waiting_load_of(u64 dsq_id, struct llc_load *load)
{
	u32 seen = count_from, queued;
	u64 weight, sum = count_from;
	struct task_struct *p;
	struct task_ctx *t;

	bpf_rcu_read_lock();
	bpf_for_each (scx_dsq, p, dsq_id, 0) {
		t = task_of(p);
		if (!t)
			continue;
		weight = effective_weight(t, p);
		sum += weight;
		if (!seen)
			load->first = weight;
		if (++seen >= LOAD_TASKS_MAX)
			break;
	}
	bpf_rcu_read_unlock();
	queued = plim_max(scx_bpf_dsq_nr_queued(dsq_id), 0);
	load->llc.load += seen < LOAD_TASKS_MAX ? sum : sum / LOAD_TASKS_MAX * queued;
}

/* Describes an LLC to the core: its CPUs, and what of a tier runs and waits there. */
__noinline int llc_load_of(u32 llc, u32 tier, u64 now, struct llc_load *load)
{
	u64 room_ppm = count_from, running = count_from;
	u32 cpus = count_from, cpu = 0, i;
	struct plimsoll_cpu *c;

	if (!load)
		return 0;
	bpf_for (i, 0, nr_cpu_ids) {
		cpu = cpus_next(llc_cpus[llc % PLIMSOLL_LLCS_MAX], NULL, false, cpu);
		if (cpu >= nr_cpu_ids)
			break;
		c = cpu_at(cpu++);
		if (!c || !c->online)
			continue;
		room_ppm += tier == PLIMSOLL_TIER_NORMAL ? PLIM_PPM : cpu_room_ppm(c, now);
		if (READ_ONCE(c->tier) == tier)
			running += READ_ONCE(c->effective);
		cpus++;
	}
	/* Where all CPUs are offline, tasks would wait for ever. */
	cpus = plim_max(cpus, 1);
	load->first = 0;
	load->llc.nr_cpus = cpus;
	load->llc.room_ppm = room_ppm / cpus;
	load->llc.load = running;
	waiting_load_of(shard_queue(llc, tier), load);
	return 0;
}

/* The first of some other LLCs from which a CPU of @llc should pull a task; @llc itself: none. */
__noinline u32 llc_to_pull_from(u32 llc, u32 tier, u32 first, u64 now)
{
	struct llc_load from = {}, to = {};
	u32 i, other, nr_others = nr_llcs - 1;

	llc_load_of(llc, tier, now, &to);
	bpf_for (i, 0, BALANCE_LLCS_MAX) {
		if (i >= nr_others)
			break;
		other = (llc + 1 + (first + i) % nr_others) % nr_llcs;
		llc_load_of(other, tier, now, &from);
		if (from.first && plim_batch_should_pull(&from.llc, &to.llc, from.first))
			return other;
	}
	return llc;
}

#endif /* PLIMSOLL_BALANCE_BPF_H */

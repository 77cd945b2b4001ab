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
#define BALANCE_LLCS_MAX 2
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

/* An LLC as the core knows it, and the weight of the task that is pulled from there. */
struct llc_load {
	struct plim_batch_llc llc;
	u64 first; /* that may run on the CPU that looks; 0: none waits */
};

/* Adds tasks of which one runs at a time. */
static __always_inline void load_adds(struct llc_load *load, u64 weight, u32 nr)
{
	load->llc.load += weight * nr;
	load->llc.most = plim_max(load->llc.most, weight * nr);
}

/*
 * Adds what waits in a queue. Of more than LOAD_TASKS_MAX tasks those stand for all. A heavy task
 * is more often among the first: if they differ, a task comes from @elsewhere only for a gain of
 * more than a quarter.
 */
static __always_inline void
waiting_load_of(u64 dsq_id, s32 cpu, bool elsewhere, struct llc_load *load)
{
	u64 weight = count_from, sum = count_from;
	u32 seen = count_from;
	struct task_struct *p;
	struct task_ctx *t;

	bpf_rcu_read_lock();
	bpf_for_each (scx_dsq, p, dsq_id, 0) {
		t = task_of(p);
		if (!t)
			continue;
		weight = effective_weight(t, p);
		sum += weight;
		load_adds(load, weight, 1);
		if (!load->first && bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			load->first = weight;
		if (++seen >= LOAD_TASKS_MAX)
			break;
	}
	bpf_rcu_read_unlock();
	if (seen < LOAD_TASKS_MAX)
		return;
	load->llc.load += plim_sub_floor(scx_bpf_dsq_nr_queued(dsq_id), LOAD_TASKS_MAX) *
			  (sum / LOAD_TASKS_MAX);
	if (elsewhere && sum != weight * LOAD_TASKS_MAX)
		load->llc.load -= load->llc.load / 4;
}

/* Part of a CPU's time that a tier has. That of normal groups in the background counts as normal.
 */
static __always_inline u64 tier_room_ppm(struct plimsoll_cpu *c, u32 tier, u64 now)
{
	if (tier == PLIMSOLL_TIER_NORMAL ||
	    (tier == PLIMSOLL_TIER_BACKGROUND && READ_ONCE(c->tier) == tier))
		return PLIM_PPM;
	return cpu_room_ppm(c, now);
}

/*
 * Describes an LLC to the core: its CPUs, and what of a tier runs and waits there, for @cpu. Of
 * tasks that are bound to a CPU, those that wait count as the one that runs.
 */
__noinline int llc_load_of(u32 llc, u32 tier, s32 cpu, u64 now, struct llc_load *load)
{
	u32 nr_cpus = count_from, other = 0, i, nr;
	u64 room_ppm = count_from;
	struct plimsoll_cpu *c;

	if (!load)
		return 0;
	load->first = load->llc.load = load->llc.most = 0;
	bpf_for (i, 0, nr_cpu_ids) {
		other = cpus_next(llc_cpus[llc % PLIMSOLL_LLCS_MAX], NULL, false, other);
		if (other >= nr_cpu_ids)
			break;
		c = cpu_at(other);
		if (c && c->online) {
			room_ppm += tier_room_ppm(c, tier, now);
			nr = c->runs_bound ? scx_bpf_dsq_nr_queued(cpu_queue(other, tier)) : 0;
			if (READ_ONCE(c->tier) == tier)
				load_adds(load, READ_ONCE(c->effective), 1 + nr);
			nr_cpus++;
		}
		other++;
	}
	/* Where all CPUs are offline, tasks would wait for ever. */
	nr_cpus = plim_max(nr_cpus, 1);
	load->llc.nr_cpus = nr_cpus;
	load->llc.room_ppm = room_ppm / nr_cpus;
	waiting_load_of(shard_queue(llc, tier), cpu, llc != llc_of(cpu), load);
	return 0;
}

/* The first of some other LLCs from which a CPU should pull a task; its own: none. */
__noinline u32 llc_to_pull_from(s32 cpu, u32 tier, u32 first, u64 now)
{
	struct llc_load from = {}, to = {};
	u32 i, other, llc = llc_of(cpu), nr_others = nr_llcs - 1;

	llc_load_of(llc, tier, cpu, now, &to);
	bpf_for (i, 0, BALANCE_LLCS_MAX) {
		if (i >= nr_others)
			break;
		other = (llc + 1 + (first + i) % nr_others) % nr_llcs;
		llc_load_of(other, tier, cpu, now, &from);
		if (from.first && plim_batch_should_pull(&from.llc, &to.llc, from.first))
			return other;
	}
	return llc;
}

#endif /* PLIMSOLL_BALANCE_BPF_H */

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Balance between LLCs whose CPUs all have work: at intervals a CPU looks at some of the
 * others, in turn, and pulls a task from one whose tasks wait longer, by the core's
 * decision. (A CPU without work pulls any task: see should_pull() in dispatch.bpf.h.)
 */
#ifndef PLIMSOLL_BALANCE_BPF_H
#define PLIMSOLL_BALANCE_BPF_H

#include "accounting.bpf.h"
#include "queues.bpf.h"

/* Interval at which a CPU compares LLCs. */
#define BALANCE_NS PLIM_BATCH_SLICE_DEFAULT_NS
/* Most LLCs that it looks at then. */
#define BALANCE_LLCS_MAX 8

static __always_inline bool balance_is_due(struct plimsoll_cpu *c, u64 now)
{
	if (nr_llcs == 1 || now < c->balance_next_ns)
		return false;
	c->balance_next_ns = now + BALANCE_NS;
	c->balance_first += BALANCE_LLCS_MAX;
	return true;
}

/*
 * Describes an LLC to the core as if it were one CPU: the mean room of its CPUs, and
 * the number of waiting tasks per CPU of the first tier that has any.
 */
__noinline int llc_wait_of(u32 llc, u64 now, struct plim_batch_cpu *known)
{
	u64 room_ppm = count_from;
	u32 cpus = count_from, cpu = 0, i, tier;
	s32 queued;
	struct plimsoll_cpu *c;

	if (!known)
		return 0;
	known->nr_queued = 0;
	known->running_batch = 1;
	known->running_normal = 0;
	bpf_for (i, 0, nr_cpu_ids) {
		cpu = cpus_next(llc_cpus[llc % PLIMSOLL_LLCS_MAX], NULL, false, cpu);
		if (cpu >= nr_cpu_ids)
			break;
		c = cpu_at(cpu++);
		if (!c || !c->online)
			continue;
		room_ppm += cpu_room_ppm(c, now);
		cpus++;
	}
	/* Where all CPUs are offline, tasks would wait for ever. */
	cpus = plim_max(cpus, 1);
	known->room_ppm = room_ppm / cpus;
	bpf_for (tier, 0, PLIMSOLL_TIERS) {
		queued = scx_bpf_dsq_nr_queued(shard_queue(llc, tier));
		if (queued <= 0)
			continue;
		known->nr_queued = ((u32)queued + cpus - 1) / cpus;
		break;
	}
	return 0;
}

/* The first of some other LLCs from which a CPU of @llc should pull a task; @llc itself: none. */
__noinline u32 llc_to_pull_from(u32 llc, u32 first, u64 now)
{
	struct plim_batch_cpu from = {}, to = {};
	u32 i, other, nr_others = nr_llcs - 1;

	llc_wait_of(llc, now, &to);
	bpf_for (i, 0, BALANCE_LLCS_MAX) {
		if (i >= nr_others)
			break;
		other = (llc + 1 + (first + i) % nr_others) % nr_llcs;
		llc_wait_of(other, now, &from);
		if (plim_batch_should_pull(&from, &to, PLIM_BATCH_SLICE_DEFAULT_NS))
			return other;
	}
	return llc;
}

#endif /* PLIMSOLL_BALANCE_BPF_H */

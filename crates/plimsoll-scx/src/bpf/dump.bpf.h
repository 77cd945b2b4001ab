/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The dump: the state of the scheduler on request, or when it ends. `plimsoll debug`
 * prints the same from the maps.
 */
#ifndef PLIMSOLL_DUMP_BPF_H
#define PLIMSOLL_DUMP_BPF_H

#include "queues.bpf.h"

#define DUMP_DECISIONS 8

static __noinline void dump_machine(void)
{
	u32 zero = 0;
	struct plimsoll_machine *m = bpf_map_lookup_elem(&machine, &zero);

	if (!m)
		return;
	scx_bpf_dump("plimsoll: cpus=%d idle=%d tokens=%d/%d", nr_online, nr_idle, nr_tokens,
		     tokens_allowed);
	if (headroom_on)
		scx_bpf_dump("headroom: ppm=%u cpus=%u credit_ns=%ld shortfall_ns=%lu updates=%lu",
			     m->headroom.params.headroom_ppm, headroom_cpus, m->headroom.credit_ns,
			     m->headroom.shortfall_ns, m->nr_updates);
}

static __noinline void dump_group(u32 slot)
{
	struct plimsoll_group *group = group_at(slot);

	if (!group || !(group->params.flags & PLIMSOLL_USED))
		return;
	scx_bpf_dump("group %u: flags=%x weight=%u running=%u runnable=%u parked=%d", slot,
		     group->params.flags, group->params.weight, group->nr_running,
		     group->nr_runnable, scx_bpf_dsq_nr_queued(parked_id(slot)));
	if (group->params.flags & PLIMSOLL_QUOTA)
		scx_bpf_dump(
			"  quota_ns=%lu period_ns=%lu burst_ns=%lu pool_ns=%lu throttled_cpus=%u",
			group->pool.params.quota_ns, group->pool.params.period_ns,
			group->pool.params.burst_ns, group->pool.runtime_ns,
			group->pool.nr_throttled_cpus);
	if (group->params.flags & (PLIMSOLL_CAP | PLIMSOLL_SOFT_CAP))
		scx_bpf_dump("  hard_permille=%u soft_permille=%u rate_ppm=%lu background=%u",
			     group->params.cap.hard_permille, group->params.cap.soft_permille,
			     group->cap.rate_ppm, group->background);
}

void BPF_STRUCT_OPS(plimsoll_dump, struct scx_dump_ctx *dctx)
{
	u32 slot;

	dump_machine();
	bpf_for (slot, 0, nr_slots_used) {
		dump_group(slot);
	}
}

void BPF_STRUCT_OPS(plimsoll_dump_cpu, struct scx_dump_ctx *dctx, s32 cpu, bool idle)
{
	struct plimsoll_cpu *c = cpu_at(cpu);
	u32 key = cpu, i, index;
	struct plimsoll_decisions *d = bpf_map_lookup_elem(&decisions, &key);

	if (!c || !d)
		return;
	scx_bpf_dump("state=%u slot=%u token=%u room_ppm=%u dispatches=%lu", c->state, c->slot,
		     c->token, c->room_ppm, c->nr_dispatches);
	bpf_for (i, 0, DUMP_DECISIONS) {
		index = (d->next - 1 - i) % PLIMSOLL_DECISIONS;
		if (!d->last[index].kind)
			break;
		scx_bpf_dump("  %lu: decision=%u slot=%u pid=%u us=%u", d->last[index].when_ns,
			     d->last[index].kind, d->last[index].slot, d->last[index].pid,
			     d->last[index].detail);
	}
}

void BPF_STRUCT_OPS(plimsoll_dump_task, struct scx_dump_ctx *dctx, struct task_struct *p)
{
	struct task_ctx *t = task_of(p);

	if (!t)
		return;
	scx_bpf_dump("slot=%u start=%lu deadline=%lu request_ns=%u waiting_since=%lu", t->slot,
		     t->order.start, t->order.deadline, t->order.request_ns,
		     (unsigned long)t->waiting_since_ns);
}

#endif /* PLIMSOLL_DUMP_BPF_H */

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Choice of the queue of an LLC to serve first, and of its first task.
 */
#ifndef PLIMSOLL_PICK_BPF_H
#define PLIMSOLL_PICK_BPF_H

#include "batch.bpf.h"
#include "queues.bpf.h"

/* No queue; an index is much smaller. */
#define PICK_NONE (~0ULL)
/* The best queue so far. */
struct candidate {
	u64 vruntime;
	u32 index;
	u32 tier;
	bool valid;
};

/* The task that runs on this CPU and could continue. */
struct previous {
	u64 group_vruntime;
	u64 vruntime;
	u32 index; /* of its queue */
	u32 tier;
	bool valid;
};

/* A CPU's work space: too large for the stack. */
struct pick_state {
	u64 refused[PLIMSOLL_QUEUE_WORDS]; /* queues that may not run here now */
	u32 tier_min; /* tiers before it are skipped */
	struct candidate best; /* of the last pick */
	struct previous previous;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct pick_state);
} pick_states SEC(".maps");

static __always_inline bool comes_before(u32 tier, u64 vruntime, const struct candidate *best)
{
	if (!best->valid || tier != best->tier)
		return !best->valid || tier < best->tier;
	return plim_batch_before(vruntime, best->vruntime);
}

static __always_inline void consider(u32 index, u32 tier_min, struct candidate *best)
{
	struct plimsoll_group *group = group_at(index / 2);
	u32 tier;

	if (!group)
		return;
	tier = tier_of(group, index & 1);
	if (tier < tier_min || !comes_before(tier, group->vruntime, best))
		return;
	best->vruntime = group->vruntime;
	best->index = index;
	best->tier = tier;
	best->valid = true;
}

/*
 * Whether any queue of an LLC may have tasks. Called each time that a CPU goes
 * idle, when usually none has.
 */
__noinline int any_queue_active(u32 llc)
{
	u32 word, words = nr_slots_used / 32 + 1;

	llc %= PLIMSOLL_LLCS_MAX;
	/* Low slots are assigned first. */
	if (READ_ONCE(active_queues[llc][0]))
		return 1;
	if (words == 1)
		return 0;
	bpf_for (word, 0, PLIMSOLL_QUEUE_WORDS) {
		if (word >= words)
			break;
		if (READ_ONCE(active_queues[llc][word]))
			return 1;
	}
	return 0;
}

/* The queue of an LLC to serve first, of those not refused yet. */
__noinline u64 pick_queue(u32 llc)
{
	u32 word, words = nr_slots_used / 32 + 1, bit, zero = 0;
	struct candidate best = {};
	struct pick_state *state;
	u64 bits;

	state = bpf_map_lookup_elem(&pick_states, &zero);
	if (!state)
		return PICK_NONE;
	llc %= PLIMSOLL_LLCS_MAX;
	bpf_for (word, 0, PLIMSOLL_QUEUE_WORDS) {
		if (word >= words)
			break;
		bits = READ_ONCE(active_queues[llc][word]) & ~state->refused[word];
		if (!bits)
			continue;
		bpf_for (bit, 0, 64) {
			if (bits >> bit & 1)
				consider(word * 64 + bit, state->tier_min, &best);
			if (!(bits >> bit >> 1))
				break;
		}
	}
	state->best = best;
	return best.valid ? best.index : PICK_NONE;
}

static __always_inline void refuse(struct pick_state *state, u32 index)
{
	state->refused[index / 64 % PLIMSOLL_QUEUE_WORDS] |= 1ULL << (index % 64);
}

/* The first task of a queue. */
struct first_task {
	u64 vruntime;
	u64 waiting_since_ns;
	bool found;
};

__noinline int first_of(u64 dsq_id, struct first_task *first)
{
	struct task_struct *p;
	struct task_ctx *t;

	if (!first)
		return 0;
	first->found = false;
	if (!scx_bpf_dsq_nr_queued(dsq_id))
		return 0;
	bpf_for_each (scx_dsq, p, dsq_id, 0) {
		first->found = true;
		first->vruntime = p->scx.dsq_vtime;
		t = task_of(p);
		first->waiting_since_ns = t ? t->waiting_since_ns : 0;
		break;
	}
	return 0;
}

/*
 * Whether the task that has just used up its slice comes before the queue that
 * was picked: by its group, and within the same group by itself.
 */
static __always_inline bool previous_comes_first(const struct pick_state *state, u32 llc)
{
	const struct previous *previous = &state->previous;
	struct first_task first = {};

	if (!previous->valid)
		return false;
	if (state->best.index != previous->index)
		return comes_before(previous->tier, previous->group_vruntime, &state->best);
	first_of(queue_id(previous->index, llc), &first);
	return !first.found || !plim_batch_before(first.vruntime, previous->vruntime);
}

#endif /* PLIMSOLL_PICK_BPF_H */

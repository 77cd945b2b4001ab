/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The batch class: the limit of each CPU, and where a task goes.
 */
#ifndef PLIMSOLL_BATCH_BPF_H
#define PLIMSOLL_BATCH_BPF_H

#include "accounting.bpf.h"

/* Most CPUs that are compared for one task. */
#define PLACE_CPUS_MAX 64

/* Charges a run to the CPU limit. Returns how long the group may still run in this window. */
static __always_inline u64 cpu_limit_charge(const struct plimsoll_group *group,
					    struct plimsoll_group_cpu *gc, u64 ran_ns, u64 now)
{
	return plim_batch_limit_charge(&gc->limit, group->params.cpu_limit_ppm, ran_ns, now);
}

/* Fills in the state of a CPU for load balancing. */
static __always_inline void
batch_cpu_of(struct plimsoll_cpu *c, s32 cpu, bool core_idle, u64 now, struct plim_batch_cpu *known)
{
	*known = (struct plim_batch_cpu){
		.room_ppm = cpu_room_ppm(c, now),
		.running_normal = c->state == PLIMSOLL_CPU_OTHER,
		.running_batch = c->state == PLIMSOLL_CPU_BATCH,
		.core_idle = core_idle,
	};
}

/*
 * A CPU's work space. In a map and not on the stack, so that the verifier does
 * not follow what each round of the loop leaves in it.
 */
struct place_state {
	struct plim_batch_cpu known, best_known;
	s32 best;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct place_state);
} place_states SEC(".maps");

/* Whether the CPU just looked at is better than the best one before. Verified by itself. */
__noinline bool is_better_place(struct place_state *state)
{
	if (!state)
		return false;
	return state->best < 0 || plim_batch_better_cpu(&state->known, &state->best_known,
							PLIM_BATCH_SLICE_DEFAULT_NS);
}

/*
 * The best idle CPU for a task, by the core's order: where it runs soonest,
 * then a whole idle core, then the most room. -1: none is idle.
 */
__noinline s32 place_on_idle(struct task_struct *p __arg_trusted, s32 prev_cpu, u64 now)
{
	const struct cpumask *idle_cores, *allowed;
	struct place_state *state;
	struct plimsoll_cpu *c;
	u32 i, zero = 0;
	s32 cpu;

	state = bpf_map_lookup_elem(&place_states, &zero);
	if (!state)
		return -1;
	if (!any_cpu_is_idle())
		return -1;
	state->best = -1;
	allowed = p->cpus_ptr;
	idle_cores = scx_bpf_get_idle_smtmask();
	bpf_for (i, 0, PLACE_CPUS_MAX) {
		if (i >= nr_cpu_ids)
			break;
		cpu = ((u32)prev_cpu + i) % nr_cpu_ids;
		c = cpu_at(cpu);
		if (!c || !c->online || c->state != PLIMSOLL_CPU_IDLE ||
		    !bpf_cpumask_test_cpu(cpu, allowed))
			continue;
		batch_cpu_of(c, cpu, bpf_cpumask_test_cpu(cpu, idle_cores), now, &state->known);
		if (!is_better_place(state))
			continue;
		state->best = cpu;
		state->best_known = state->known;
		/* No CPU is better than that. */
		if (state->known.core_idle && state->known.room_ppm >= PLIM_PPM)
			break;
	}
	scx_bpf_put_idle_cpumask(idle_cores);
	/* Claimed, so that each of several tasks that wake at once gets its own CPU. */
	if (state->best >= 0 && scx_bpf_test_and_clear_cpu_idle(state->best))
		return state->best;
	return scx_bpf_pick_idle_cpu(allowed, 0);
}

#endif /* PLIMSOLL_BATCH_BPF_H */

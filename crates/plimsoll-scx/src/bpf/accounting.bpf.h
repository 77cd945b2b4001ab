/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Accounting: time of each CPU by state, and run time of each task.
 *
 * Time of a CPU is accounted on edges, so that it is exact. Run time of a task is
 * read from the kernel's own sum_exec_runtime, so that it equals cpu.stat to the
 * nanosecond, without a second clock.
 */
#ifndef PLIMSOLL_ACCOUNTING_BPF_H
#define PLIMSOLL_ACCOUNTING_BPF_H

#include "state.bpf.h"

/* Shortest interval between updates of the room, see plim_batch_room_ppm(). */
#define ROOM_GRAIN_NS (4 * PLIM_NSEC_PER_MSEC)

/* Ends the present interval of this CPU and begins one in @state. */
static __always_inline void cpu_enter(struct plimsoll_cpu *c, u32 state, u64 now)
{
	u64 elapsed_ns, room_elapsed_ns;

	/* From one task to the next it is one interval, until the room is due. */
	if (state == PLIMSOLL_CPU_OTHER && c->state == PLIMSOLL_CPU_OTHER &&
	    plim_elapsed_ns(now, c->room_updated_ns) < ROOM_GRAIN_NS)
		return;
	elapsed_ns = plim_elapsed_ns(now, c->since_ns);
	WRITE_ONCE(c->sequence, c->sequence + 1);
	barrier();
	if (c->state == PLIMSOLL_CPU_IDLE) {
		c->idle_ns += elapsed_ns;
	} else if (c->state == PLIMSOLL_CPU_BATCH) {
		c->batch_ns += elapsed_ns;
	} else {
		c->other_ns += elapsed_ns;
	}
	c->state = state;
	c->since_ns = now;
	barrier();
	WRITE_ONCE(c->sequence, c->sequence + 1);

	room_elapsed_ns = plim_elapsed_ns(now, c->room_updated_ns);
	if (room_elapsed_ns < ROOM_GRAIN_NS)
		return;
	c->room_ppm = plim_batch_room_ppm(c->room_ppm, c->other_ns, room_elapsed_ns);
	c->other_ns = 0;
	c->room_updated_ns = now;
}

/* Reads the idle time and the batch time of any CPU, up to @now. */
static __always_inline void cpu_times(struct plimsoll_cpu *c, u64 now, u64 *idle_ns, u64 *batch_ns)
{
	u64 sequence, elapsed_ns;
	u32 attempt;

	/* A writer takes nanoseconds: after 8 attempts take what is there. */
	bpf_for (attempt, 0, 8) {
		sequence = READ_ONCE(c->sequence);
		barrier();
		*idle_ns = c->idle_ns;
		*batch_ns = c->batch_ns;
		elapsed_ns = plim_elapsed_ns(now, c->since_ns);
		if (c->state == PLIMSOLL_CPU_IDLE)
			*idle_ns += elapsed_ns;
		else if (c->state == PLIMSOLL_CPU_BATCH)
			*batch_ns += elapsed_ns;
		barrier();
		if (!(sequence & 1) && sequence == READ_ONCE(c->sequence))
			break;
	}
}

/* The room of a CPU including the interval that has not ended yet. */
__noinline u32 cpu_room_ppm(struct plimsoll_cpu *c, u64 now)
{
	u64 elapsed_ns, other_ns;

	if (!c)
		return 0;
	elapsed_ns = plim_elapsed_ns(now, c->room_updated_ns);
	other_ns = c->other_ns;
	if (elapsed_ns < ROOM_GRAIN_NS)
		return c->room_ppm;
	if (c->state == PLIMSOLL_CPU_OTHER)
		other_ns += plim_elapsed_ns(now, c->since_ns);
	return plim_batch_room_ppm(c->room_ppm, other_ns, elapsed_ns);
}

#endif /* PLIMSOLL_ACCOUNTING_BPF_H */

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Turns: server slices in which a lower tier runs although a higher one, which never
 * pauses, has work. Of batch work behind normal work it is the tolerance; the background
 * comes first in each fourth of these, and has turns of its own behind batch work.
 *
 * A turn that is due is granted by a dispatch, and what it runs moves the next one: in
 * the long run turns of a kind have no more than the part slice / period of a CPU, however
 * short or long they are. They have less where dispatches come late.
 *
 * The tolerance is the machine's. Each CPU has an equal part of it, and those that need turns
 * share the parts of the others: the first turn comes as late as if all CPUs needed some, and
 * further ones come sooner.
 */
#ifndef PLIMSOLL_TURNS_BPF_H
#define PLIMSOLL_TURNS_BPF_H

#include "state.bpf.h"

/* The background comes first in one turn of this number behind normal work. */
#define BACKGROUND_TURNS 4
/* The longest time between two of its turns behind batch work. */
#define BACKGROUND_PERIOD_MAX_NS PLIM_NSEC_PER_SEC
/* Until a turn that could not be used is tried again: each try reads the queues. */
#define TURN_RETRY_NS PLIM_NSEC_PER_MSEC
/*
 * The longest delay by one run, beside the period: after a pause of the whole machine
 * turns must not stop for long. Only what ran longer than a slice is forgiven.
 */
#define TURN_DELAY_MAX_NS PLIM_NSEC_PER_SEC

static __always_inline u64 turn_period_ns(u32 turn)
{
	if (turn == PLIMSOLL_TURN_BEHIND_NORMAL)
		return server_period_ns;
	return plim_min(BACKGROUND_TURNS * server_period_ns, BACKGROUND_PERIOD_MAX_NS);
}

/* This CPU has had a turn at @ran_ns, or, with 0, is not one of those that share the tolerance. */
static __always_inline void turns_share(struct plimsoll_cpu *c, u64 ran_ns)
{
	s32 change = !!ran_ns - !!c->turn_ran_ns;

	c->turn_ran_ns = ran_ns;
	if (change)
		__sync_fetch_and_add(&nr_with_turns, change);
}

/* The period in which a CPU that has turns has one, with what the other CPUs leave. */
static __always_inline u64 turn_shared_period_ns(u32 turn)
{
	u64 period_ns = turn_period_ns(turn);
	s32 nr_sharing = READ_ONCE(nr_with_turns);

	if (turn != PLIMSOLL_TURN_BEHIND_NORMAL)
		return period_ns;
	return plim_min(period_ns, server_alone_ns * plim_max(nr_sharing, 1));
}

static __always_inline bool turn_is_due(const struct plimsoll_cpu *c, u32 turn, u64 now)
{
	return server_slice_ns && now >= c->turn_next_ns[turn];
}

/* A turn that is due is not needed, because all tiers are served: it has passed. */
static __always_inline void turn_lapses(struct plimsoll_cpu *c, u32 turn, u64 now)
{
	c->turn_next_ns[turn] = now + turn_period_ns(turn);
	if (turn == PLIMSOLL_TURN_BEHIND_NORMAL)
		turns_share(c, 0);
}

/*
 * The CPU goes idle: the next turn comes as late as the first. Else a CPU that goes idle
 * after each of its turns would have them as often as if no other CPU had any.
 */
static __always_inline void turns_end(struct plimsoll_cpu *c, u64 now)
{
	if (c->turn_ran_ns)
		turn_lapses(c, PLIMSOLL_TURN_BEHIND_NORMAL, now);
}

/* A turn that is due cannot be used. */
static __always_inline void turn_waits(struct plimsoll_cpu *c, u32 turn, u64 now)
{
	c->turn_next_ns[turn & (PLIMSOLL_TURNS - 1)] = now + TURN_RETRY_NS;
}

/*
 * A turn that is due is not needed, because no lower tier waits: for a moment, in which the
 * CPU counts on, or for a period.
 */
static __always_inline void turn_is_unused(struct plimsoll_cpu *c, u32 turn, u64 now)
{
	turn_waits(c, turn, now);
	if (turn == PLIMSOLL_TURN_BEHIND_NORMAL && c->turn_ran_ns &&
	    plim_elapsed_ns(now, c->turn_ran_ns) > turn_period_ns(turn))
		turns_share(c, 0);
}

/* The tier behind which a turn is. */
static __always_inline u32 tier_before(u32 turn)
{
	return turn == PLIMSOLL_TURN_BEHIND_NORMAL ? PLIMSOLL_TIER_NORMAL : PLIMSOLL_TIER_BATCH;
}

/* Whether a turn is for a task of a tier, which may be none: PLIMSOLL_TIERS. */
static __always_inline bool turn_is_for(u32 turn, u32 tier)
{
	return turn && tier > tier_before(turn) && tier < PLIMSOLL_TIERS;
}

/* Charges a run that ends now to the turn in which it was. */
static __always_inline void turn_charge(struct plimsoll_cpu *c, u64 ran_ns, u64 now)
{
	u64 slice_ns = plim_max(server_slice_ns, 1), period_ns;
	plim_u64 *next_ns = &c->turn_next_ns[c->turn & (PLIMSOLL_TURNS - 1)];
	u64 delay_ns;

	if (c->turn == PLIMSOLL_TURN_BEHIND_NORMAL)
		turns_share(c, now);
	period_ns = turn_shared_period_ns(c->turn);
	/* No product of these is above 2^63: a period has at most 4 s. */
	ran_ns = plim_min(ran_ns, TURN_DELAY_MAX_NS);
	delay_ns = plim_min(ran_ns * period_ns / slice_ns, period_ns + TURN_DELAY_MAX_NS);
	*next_ns = plim_max(*next_ns, plim_sub_floor(now, ran_ns)) + delay_ns;
	if (c->turn == PLIMSOLL_TURN_BEHIND_NORMAL && READ_ONCE(nr_idle) >= (s32)headroom_cpus)
		__sync_fetch_and_add(&tolerated_apart_ns, ran_ns);
}

/*
 * A lower tier has run where no normal work was: no turn is due for a period, because the
 * tolerance is the least that it gets and no addition.
 */
static __always_inline void turn_counts(struct plimsoll_cpu *c, u64 ran_ns, u64 now)
{
	const u32 turn = PLIMSOLL_TURN_BEHIND_NORMAL;

	if (ran_ns >= server_slice_ns && c->turn_next_ns[turn] < now + turn_period_ns(turn))
		turn_lapses(c, turn, now);
}

#endif /* PLIMSOLL_TURNS_BPF_H */

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Servers: a lower tier runs for a slice of them although a higher one, which never
 * pauses, has work. That of batch work behind normal work is the tolerance; the background
 * comes first in each fourth of its slices, and has a server of its own behind batch work.
 *
 * A slice that is due is granted by a dispatch, and what it runs moves the next one: in
 * the long run a server has no more than the part slice / period of a CPU, however short or
 * long its slices are. It has less where dispatches come late.
 *
 * The tolerance is the machine's. Each CPU has an equal part of it, and those that need a
 * server share the parts of the others: the first slice comes as late as if all CPUs needed
 * one, and further ones come sooner.
 */
#ifndef PLIMSOLL_SERVERS_BPF_H
#define PLIMSOLL_SERVERS_BPF_H

#include "state.bpf.h"

/* The background comes first in one slice of this number behind normal work. */
#define BACKGROUND_SLICES 4
/* The longest period of its server behind batch work. */
#define BACKGROUND_PERIOD_MAX_NS PLIM_NSEC_PER_SEC
/* Until a slice that could not be used is tried again: each try reads the queues. */
#define SERVER_RETRY_NS PLIM_NSEC_PER_MSEC

static __always_inline u64 server_period_of(u32 server)
{
	if (server == PLIMSOLL_SERVER_BEHIND_NORMAL)
		return machine_server.period_ns;
	return plim_min(BACKGROUND_SLICES * machine_server.period_ns, BACKGROUND_PERIOD_MAX_NS);
}

/* This CPU has had a slice at @ran_ns, or, with 0, is not one of those that share the tolerance. */
static __always_inline void server_shares(struct plimsoll_cpu *c, u64 ran_ns)
{
	s32 change = !!ran_ns - !!c->server_ran_ns;

	c->server_ran_ns = ran_ns;
	if (change)
		__sync_fetch_and_add(&nr_with_servers, change);
}

/* The period of a CPU that has had a slice, with what the other CPUs leave. */
static __always_inline u64 server_shared_period_ns(u32 server)
{
	u64 period_ns = server_period_of(server);

	if (server != PLIMSOLL_SERVER_BEHIND_NORMAL)
		return period_ns;
	return plim_server_shared_period_ns(period_ns, machine_server.alone_ns,
					    READ_ONCE(nr_with_servers));
}

static __always_inline bool server_is_due(const struct plimsoll_cpu *c, u32 server, u64 now)
{
	return machine_server.slice_ns && now >= c->server_next_ns[server];
}

/* A slice that is due is not needed, because all tiers are served: it has passed. */
static __always_inline void server_lapses(struct plimsoll_cpu *c, u32 server, u64 now)
{
	c->server_next_ns[server] = now + server_period_of(server);
	if (server == PLIMSOLL_SERVER_BEHIND_NORMAL)
		server_shares(c, 0);
}

/*
 * The CPU goes idle: the next slice comes as late as the first. Else a CPU that goes idle
 * after each of its slices would have them as often as if no other CPU had any.
 */
static __always_inline void server_goes_idle(struct plimsoll_cpu *c, u64 now)
{
	if (c->server_ran_ns)
		server_lapses(c, PLIMSOLL_SERVER_BEHIND_NORMAL, now);
}

/* A slice that is due cannot be used. */
static __always_inline void server_waits(struct plimsoll_cpu *c, u32 server, u64 now)
{
	c->server_next_ns[server & (PLIMSOLL_SERVERS - 1)] = now + SERVER_RETRY_NS;
}

/*
 * A slice that is due is not needed, because no lower tier waits: for a moment, in which the
 * CPU counts on, or for a period.
 */
static __always_inline void server_is_unused(struct plimsoll_cpu *c, u32 server, u64 now)
{
	server_waits(c, server, now);
	if (server == PLIMSOLL_SERVER_BEHIND_NORMAL && c->server_ran_ns &&
	    plim_elapsed_ns(now, c->server_ran_ns) > server_period_of(server))
		server_shares(c, 0);
}

/* The tier behind which a server is. */
static __always_inline u32 tier_before(u32 server)
{
	return server == PLIMSOLL_SERVER_BEHIND_NORMAL ? PLIMSOLL_TIER_NORMAL : PLIMSOLL_TIER_BATCH;
}

/* Whether a server is for a task of a tier, which may be none: PLIMSOLL_TIERS. */
static __always_inline bool server_is_for(u32 server, u32 tier)
{
	return server && tier > tier_before(server) && tier < PLIMSOLL_TIERS;
}

/* Charges a run that ends now to the server in whose slice it was. */
static __always_inline void server_charge(struct plimsoll_cpu *c, u64 ran_ns, u64 now)
{
	plim_u64 *next_ns = &c->server_next_ns[c->server & (PLIMSOLL_SERVERS - 1)];

	if (c->server == PLIMSOLL_SERVER_BEHIND_NORMAL)
		server_shares(c, now);
	*next_ns = plim_server_next_ns(*next_ns, ran_ns, machine_server.slice_ns,
				       server_shared_period_ns(c->server), now);
	if (c->server == PLIMSOLL_SERVER_BEHIND_NORMAL && READ_ONCE(nr_idle) >= (s32)headroom_cpus)
		__sync_fetch_and_add(&tolerated_apart_ns, ran_ns);
}

/*
 * A lower tier has run where no normal work was: no slice is due for a period, because the
 * tolerance is the least that it gets and no addition.
 */
static __always_inline void server_counts(struct plimsoll_cpu *c, u64 ran_ns, u64 now)
{
	const u32 server = PLIMSOLL_SERVER_BEHIND_NORMAL;

	if (ran_ns >= machine_server.slice_ns &&
	    c->server_next_ns[server] < now + server_period_of(server))
		server_lapses(c, server, now);
}

#endif /* PLIMSOLL_SERVERS_BPF_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Proofs of plimsoll/server.h.
 */
#include "plimsoll/server.h"
#include "proof.h"

/* Any runtime; periods and numbers of CPUs that are powers of two. */
static struct plim_headroom_params any_tolerance(void)
{
	struct plim_headroom_params params;

	params.tolerance_period_ns = 1ULL << any_u64(20, 33);
	params.nr_cpus = 1U << any_u64(0, 13);
	ASSUME(plim_headroom_is_valid(&params));
	return params;
}

void prove_server_slices_are_in_their_ranges(void)
{
	struct plim_headroom_params params = any_tolerance();
	struct plim_server server;

	plim_server_set(&server, &params);
	PROVE(server.slice_ns >= PLIM_SERVER_SLICE_MIN_NS &&
		      server.slice_ns <= PLIM_SERVER_PERIOD_MIN_NS,
	      "a slice");
	PROVE(server.period_ns >= PLIM_SERVER_PERIOD_MIN_NS &&
		      server.period_ns <= PLIM_SERVER_PERIOD_MAX_NS,
	      "a period");
	PROVE(server.alone_ns <= server.period_ns, "alone no less often");
	PROVE(server.alone_ns >= 2 * server.slice_ns || server.alone_ns == server.period_ns,
	      "alone half of the CPU at most, or its own part");
	PROOF_REACHED();
}

/* The default runtime. */
void prove_server_slices_are_within_the_tolerance(void)
{
	struct plim_headroom_params params = any_tolerance();
	struct plim_server server;
	plim_u64 all_ns = params.tolerance_period_ns * params.nr_cpus;

	params.tolerance_runtime_ns = PLIM_TOLERANCE_RUNTIME_DEFAULT_NS;
	plim_server_set(&server, &params);
	PROVE(server.period_ns == PLIM_SERVER_PERIOD_MAX_NS ||
		      server.slice_ns * all_ns <
			      (server.period_ns + 1) * params.tolerance_runtime_ns,
	      "no more than a CPU's part, to within a nanosecond of the period");
	PROOF_REACHED();
}

/* The shortest slice in the longest or the shortest period. */
void prove_a_server_pays_for_each_run(void)
{
	plim_u64 now_ns = any_u64(0, LIFETIME_NS), due_ns = any_u64(0, LIFETIME_NS);
	plim_u64 ran_ns = nondet_u64(), slice_ns = PLIM_SERVER_SLICE_MIN_NS;
	plim_u64 period_ns = any_bool() ? PLIM_SERVER_PERIOD_MIN_NS : PLIM_SERVER_PERIOD_MAX_NS;
	plim_u64 next_ns = plim_server_next_ns(due_ns, ran_ns, slice_ns, period_ns, now_ns);
	plim_u64 begun_ns = plim_sub_floor(now_ns, ran_ns);

	PROVE(next_ns >= due_ns && next_ns >= begun_ns, "later than it began");
	PROVE(ran_ns > slice_ns || next_ns - plim_max(due_ns, begun_ns) <= period_ns,
	      "a slice delays by a period at most");
	PROVE(ran_ns < slice_ns || next_ns - plim_max(due_ns, begun_ns) >= period_ns ||
		      ran_ns > PLIM_SERVER_DELAY_MAX_NS,
	      "and a whole one by no less");
	PROOF_REACHED();
}

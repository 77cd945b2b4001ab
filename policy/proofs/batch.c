/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Proofs of plimsoll/batch.h. */
#include "plimsoll/batch.h"
#include "proof.h"

static struct plim_batch_limit any_limit(void)
{
	struct plim_batch_limit limit = {
		.window_ns = any_u64(0, LIFETIME_NS),
		.used_ns = any_u64(0, LIFETIME_NS),
	};

	return limit;
}

void prove_a_limit_allows_its_share_of_a_window(void)
{
	plim_u32 limit_ppm = nondet_u32();
	plim_u64 allowed_ns = plim_batch_limit_ns(limit_ppm);

	PROVE(allowed_ns == plim_min(limit_ppm, PLIM_PPM) * 100, "100 ms times the share");
	PROOF_REACHED();
}

/*
 * Batch work that runs no longer than allowed, except for an overrun, never
 * uses more of a window than the limit and the overrun, debt included.
 * Narrowed: a limit of 2^16 * 10 ppm, one window; the next proof covers more
 * windows.
 */
void prove_a_window_uses_no_more_than_the_limit_and_an_overrun(void)
{
	struct plim_batch_limit limit = { .window_ns = 5, .used_ns = nondet_u32() };
	plim_u32 limit_ppm = 655360;
	plim_u64 overrun_ns = nondet_u16();
	plim_u64 allowed_ns = plim_batch_limit_ns(limit_ppm);
	plim_u64 now_ns = limit.window_ns + nondet_u16();
	plim_u64 ran_ns = nondet_u32(), left_ns;

	ASSUME(limit.used_ns <= allowed_ns + overrun_ns);
	left_ns = plim_batch_limit_charge(&limit, limit_ppm, 0, now_ns);
	PROVE(left_ns == plim_sub_floor(allowed_ns, limit.used_ns), "the rest of the limit");
	ASSUME(ran_ns <= (left_ns ? left_ns + overrun_ns : 0));
	plim_batch_limit_charge(&limit, limit_ppm, ran_ns, now_ns);
	PROVE(limit.used_ns <= allowed_ns + overrun_ns, "limit + overrun");
	PROVE(plim_batch_limit_until_ns(&limit) > now_ns, "asked again later");
	PROOF_REACHED();
}

/*
 * used' = max(0, used - windows * allowed). Narrowed: up to 3 windows at once
 * and a limit of 2^16 * 10 ppm, by which the solver can divide.
 */
void prove_excess_is_carried_into_the_next_windows(void)
{
	struct plim_batch_limit limit = any_limit(), before = limit;
	plim_u64 windows = any_u64(0, 3);
	plim_u32 limit_ppm = 655360;
	plim_u64 allowed_ns = plim_batch_limit_ns(limit_ppm);
	plim_u64 into_ns = any_u64(0, PLIM_BATCH_WINDOW_NS - 1);

	ASSUME(before.used_ns <= 1ULL << 36);
	plim_batch_limit_advance(&limit, limit_ppm,
				 before.window_ns + windows * PLIM_BATCH_WINDOW_NS + into_ns);
	PROVE(limit.used_ns == plim_sub_floor(before.used_ns, windows * allowed_ns),
	      "the excess is carried");
	PROVE(limit.window_ns == before.window_ns + windows * PLIM_BATCH_WINDOW_NS,
	      "windows stay aligned");
	PROOF_REACHED();
}

void prove_a_limit_of_zero_allows_nothing(void)
{
	struct plim_batch_limit limit = any_limit();

	PROVE(plim_batch_limit_charge(&limit, 0, nondet_u64(), any_u64(0, LIFETIME_NS)) == 0,
	      "nothing");
	PROOF_REACHED();
}

/* Narrowed: an interval of an 8th of the window. */
void prove_room_is_a_share(void)
{
	plim_u32 room_ppm = any_u32(0, PLIM_PPM);

	room_ppm = plim_batch_room_ppm(room_ppm, nondet_u64(), PLIM_BATCH_WINDOW_NS / 8);
	PROVE(room_ppm <= PLIM_PPM, "0 to 1");
	PROOF_REACHED();
}

/* Narrowed: half a window, normal work in 8th parts, 64 values of room. */
void prove_room_moves_towards_the_observed_value(void)
{
	plim_u64 eighth_ns = PLIM_BATCH_WINDOW_NS / 8;
	plim_u64 elapsed = 4, normal = nondet_u8() & 7;
	plim_u32 before_ppm = (plim_u32)(nondet_u8() & 63) * 15625, seen_ppm, after_ppm;

	ASSUME(normal <= elapsed);
	seen_ppm = (plim_u32)((elapsed - normal) * PLIM_PPM / elapsed);
	after_ppm = plim_batch_room_ppm(before_ppm, normal * eighth_ns, elapsed * eighth_ns);
	PROVE(after_ppm >= plim_min(before_ppm, seen_ppm), "not beyond, from above");
	PROVE(after_ppm <= plim_max(before_ppm, seen_ppm), "not beyond, from below");
	PROOF_REACHED();
}

void prove_lower_tiers_are_pulled_after_a_while(void)
{
	plim_u64 waited_ns = nondet_u64();

	PROVE(plim_batch_is_pulled(1, waited_ns), "normal work at once");
	PROVE(plim_batch_is_pulled(0, waited_ns) == (waited_ns >= PLIM_NSEC_PER_MSEC),
	      "after 1 ms");
	PROOF_REACHED();
}

static struct plim_batch_llc any_llc(void)
{
	struct plim_batch_llc llc;

	return llc;
}

/* Any state; the checks prove that nothing wraps. */
void prove_crowding_never_wraps(void)
{
	struct plim_batch_llc llc = any_llc();

	PROVE(plim_batch_crowding(&llc, nondet_u64()) <= PLIM_BATCH_LOAD_MAX * 1000,
	      "at most that of the largest load");
	PROOF_REACHED();
}

/* Narrowed: four CPUs without normal work, and loads below 2^10. */
void prove_the_heaviest_weighs_no_more_than_a_cpu(void)
{
	plim_u64 load = any_u64(0, 1023), most = any_u64(0, load), weighed;
	struct plim_batch_llc llc = { load, most, 4, PLIM_PPM };

	weighed = plim_batch_weighed(&llc, 0);
	PROVE(weighed <= load && weighed >= load - most,
	      "no more than all, no less than the others");
	PROVE(weighed - (load - most) <= (load - most) / 3,
	      "no more than the others on each other CPU");
	PROOF_REACHED();
}

void prove_a_task_that_has_little_time_is_pulled_to_more(void)
{
	plim_u64 effective = any_u64(1, PLIM_BATCH_LOAD_MAX / 8);
	struct plim_batch_llc from = { effective, effective, 4, PLIM_BATCH_ROOM_MIN_PPM };
	struct plim_batch_llc to = { 4 * effective, effective, 4, PLIM_PPM };

	PROVE(plim_batch_should_pull(&from, &to, effective), "also the last one");
	PROOF_REACHED();
}

/* Narrowed: two CPUs each without normal work, and weights below 2^8. */
void prove_a_pulled_task_is_not_pulled_back(void)
{
	plim_u64 effective = nondet_u8();
	struct plim_batch_llc from = { nondet_u8(), nondet_u8(), 2, PLIM_PPM };
	struct plim_batch_llc to = { nondet_u8(), nondet_u8(), 2, PLIM_PPM };

	ASSUME(from.load >= from.most && from.most >= effective && to.load >= to.most);
	ASSUME(plim_batch_should_pull(&from, &to, effective));
	from.load -= effective;
	to.load += effective;
	to.most = plim_max(to.most, effective);
	PROVE(!plim_batch_should_pull(&to, &from, effective), "it has more where it is now");
	PROOF_REACHED();
}

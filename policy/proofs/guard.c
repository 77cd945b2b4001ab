/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Proofs of plimsoll/guard.h. */
#include "plimsoll/guard.h"
#include "proof.h"

static struct plim_guard any_guard(void)
{
	struct plim_guard guard = {
		.look_at_ns = nondet_u64(),
		.spent_until_ns = nondet_u64(),
		.has_woken = nondet_u8(),
	};

	return guard;
}

void prove_only_idle_work_beside_normal_work_is_inverted(void)
{
	plim_u32 nr_normal = any_u32(0, 1U << 22), nr_idle = any_u32(0, 1U << 22);
	int counts_as_idle = nondet_u8();

	PROVE(!plim_guard_is_inverted(counts_as_idle, nr_normal + nr_idle, nr_idle) ==
		      !(counts_as_idle && nr_normal),
	      "idle work that runs, and normal work that waits");
	PROOF_REACHED();
}

/*
 * Each wake-up moves the time up to which they are paid for by a period, and never beyond
 * now, nor is that time before now less the credit. So in any time T there are at most
 * T / period + credit / period of them.
 */
void prove_each_wake_up_is_paid_for(void)
{
	struct plim_guard guard = any_guard(), before = guard;
	plim_u64 now_ns = any_u64(0, LIFETIME_NS);
	int wakes, pushes;

	ASSUME(before.spent_until_ns <= now_ns);
	plim_guard_look(&guard, nondet_u8(), now_ns, &wakes, &pushes);
	PROVE(guard.spent_until_ns <= now_ns, "none is paid for in advance");
	if (wakes) {
		PROVE(guard.spent_until_ns >= before.spent_until_ns + PLIM_GUARD_WAKE_PERIOD_NS,
		      "a period for each");
		PROVE(now_ns - guard.spent_until_ns <=
			      PLIM_GUARD_CREDIT_MAX_NS - PLIM_GUARD_WAKE_PERIOD_NS,
		      "no more credit than so many at once");
	} else {
		PROVE(guard.spent_until_ns == before.spent_until_ns, "else nothing is paid");
	}
	PROOF_REACHED();
}

/* While it stands; and it is ended at once if there is credit. */
void prove_an_inversion_is_looked_at_until_it_ends(void)
{
	struct plim_guard guard = any_guard(), before = guard;
	plim_u64 now_ns = any_u64(PLIM_GUARD_WAKE_PERIOD_NS, LIFETIME_NS);
	int is_inverted = nondet_u8(), wakes, pushes;
	plim_u64 again_ns;

	ASSUME(before.spent_until_ns <= now_ns && !before.look_at_ns);
	again_ns = plim_guard_look(&guard, is_inverted, now_ns, &wakes, &pushes);
	PROVE(!again_ns == !is_inverted, "as long as it stands");
	PROVE(again_ns <= PLIM_GUARD_WAKE_PERIOD_NS, "within a period");
	PROVE(guard.look_at_ns == (is_inverted ? now_ns + again_ns : 0), "noted");
	PROVE(!wakes || is_inverted, "none in vain");
	if (is_inverted && now_ns - before.spent_until_ns >= PLIM_GUARD_WAKE_PERIOD_NS)
		PROVE(wakes, "with credit, at once");
	PROOF_REACHED();
}

/* Whatever looks without credit come between. */
void prove_idle_work_is_pushed_only_at_a_wake_up_after_another(void)
{
	struct plim_guard guard = any_guard();
	plim_u64 now_ns = any_u64(PLIM_GUARD_WAKE_PERIOD_NS, LIFETIME_NS);
	int had_woken = !!guard.has_woken, is_inverted = nondet_u8(), wakes, pushes;

	ASSUME(guard.spent_until_ns <= now_ns);
	plim_guard_look(&guard, is_inverted, now_ns, &wakes, &pushes);
	PROVE(!pushes == !(had_woken && wakes), "and at each of those");
	PROVE(!guard.has_woken == !(is_inverted && (had_woken || wakes)), "as long as it stands");
	PROOF_REACHED();
}

void prove_whatever_begins_is_looked_at(void)
{
	struct plim_guard guard = any_guard(), before = guard;
	plim_u64 now_ns = any_u64(0, LIFETIME_NS), delay_ns;

	ASSUME(before.look_at_ns <= now_ns + PLIM_GUARD_WAKE_PERIOD_NS);
	delay_ns = plim_guard_begin(&guard, now_ns);
	if (delay_ns) {
		PROVE(delay_ns == PLIM_GUARD_DELAY_NS, "after the delay");
		PROVE(guard.look_at_ns == now_ns + delay_ns, "noted");
	} else {
		PROVE(guard.look_at_ns == before.look_at_ns && before.look_at_ns,
		      "there is a look already");
		PROVE(now_ns < before.look_at_ns + PLIM_GUARD_LOST_NS, "that is not lost");
	}
	PROOF_REACHED();
}

void prove_waiting_takes_two_normal_tasks(void)
{
	plim_u32 nr_normal = any_u32(0, 1U << 22), nr_idle = any_u32(0, 1U << 22);

	PROVE(!plim_guard_has_waiting(nr_normal + nr_idle, nr_idle) == (nr_normal < 2),
	      "one runs and one waits");
	PROVE(!plim_guard_has_waiting(nr_normal, nr_normal + nr_idle), "counts of two moments");
	PROOF_REACHED();
}

/*
 * A CPU loses a task only a pull time after one began to wait there, and the next one
 * begins later: so in any time T at most T / pull time + 1. The CPU that gains it pays for
 * the wake-up as for any other.
 */
void prove_only_a_task_that_has_waited_is_pulled(void)
{
	struct plim_guard_wait wait = { .since_ns = nondet_u64() }, before = wait;
	struct plim_guard room = any_guard(), room_before = room;
	plim_u64 now_ns = any_u64(PLIM_GUARD_WAKE_PERIOD_NS, LIFETIME_NS), again_ns;
	int waits = nondet_u8(), has_room = nondet_u8(), pulls;

	ASSUME(before.since_ns <= now_ns && room.spent_until_ns <= now_ns);
	again_ns = plim_guard_wait_look(&wait, waits, has_room ? &room : 0, now_ns, &pulls);
	if (pulls) {
		PROVE(waits && has_room && before.since_ns, "none in vain");
		PROVE(now_ns - before.since_ns >= PLIM_GUARD_PULL_NS, "not before");
		PROVE(!wait.since_ns && !again_ns, "the next one begins anew");
		PROVE(room.spent_until_ns >= room_before.spent_until_ns + PLIM_GUARD_WAKE_PERIOD_NS,
		      "paid for");
	} else {
		PROVE(room.spent_until_ns == room_before.spent_until_ns, "nothing is paid");
		PROVE(!again_ns == !(waits && before.since_ns), "looked at until it ends");
	}
	if (again_ns) {
		PROVE(wait.since_ns == before.since_ns, "the same one");
		PROVE(wait.look_at_ns == now_ns + again_ns, "noted");
		PROVE(again_ns <= PLIM_GUARD_PULL_NS, "within a pull time");
	}
	if (waits && has_room && before.since_ns &&
	    now_ns - before.since_ns >= PLIM_GUARD_PULL_NS &&
	    now_ns - room_before.spent_until_ns >= PLIM_GUARD_WAKE_PERIOD_NS)
		PROVE(pulls, "with room and credit, at once");
	PROOF_REACHED();
}

/* Within the pull time, so that with room it is pulled when that is over. */
void prove_a_task_that_begins_to_wait_is_looked_at(void)
{
	struct plim_guard_wait wait = { .since_ns = nondet_u64(), .look_at_ns = nondet_u64() };
	struct plim_guard_wait before = wait;
	plim_u64 now_ns = any_u64(1, LIFETIME_NS), delay_ns;

	ASSUME(before.since_ns <= now_ns);
	ASSUME(before.look_at_ns <= now_ns + PLIM_GUARD_PULL_NS);
	delay_ns = plim_guard_wait_begin(&wait, now_ns);
	PROVE(wait.since_ns == (before.since_ns ? before.since_ns : now_ns), "the earlier one");
	PROVE(wait.look_at_ns && wait.look_at_ns <= now_ns + PLIM_GUARD_PULL_NS, "in time");
	if (delay_ns)
		PROVE(wait.look_at_ns == now_ns + delay_ns, "noted");
	else
		PROVE(now_ns < before.look_at_ns + PLIM_GUARD_LOST_NS, "there is one, not lost");
	PROOF_REACHED();
}

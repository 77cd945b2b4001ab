/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Definitions shared by all proofs. Each function prove_*() is one proof: it
 * constructs any input that ASSUME() admits, calls the core, and asserts
 * properties with PROVE().
 *
 * The last line of every proof is PROOF_REACHED(): the proofs run a second time
 * with CHECK_REACHABLE, and then must fail there. Otherwise the assumptions
 * contradict each other and the proof is vacuous.
 */
#ifndef PLIMSOLL_PROOF_H
#define PLIMSOLL_PROOF_H

#include "plimsoll/units.h"

#define ASSUME(condition) __CPROVER_assume(condition)

#ifdef CHECK_REACHABLE
#define PROVE(condition, promise) ((void)(condition))
#define PROOF_REACHED() __CPROVER_assert(0, "the end is reached")
#else
#define PROVE(condition, promise) __CPROVER_assert(condition, promise)
#define PROOF_REACHED() ((void)0)
#endif

/*
 * Bound of clocks and of sums of run time since the start (146 years). Applies
 * only to sums over the whole lifetime of a group.
 */
#define LIFETIME_NS (1ULL << 62)

typedef __int128 wide;

/* Any value. */
plim_u64 nondet_u64(void);
plim_s64 nondet_s64(void);
plim_u32 nondet_u32(void);
__UINT16_TYPE__ nondet_u16(void);
plim_s32 nondet_s32(void);
plim_u8 nondet_u8(void);

/* Any value from @low to @high. */
static plim_u64 any_u64(plim_u64 low, plim_u64 high)
{
	plim_u64 value = nondet_u64();

	ASSUME(value >= low && value <= high);
	return value;
}

static plim_u32 any_u32(plim_u32 low, plim_u32 high)
{
	plim_u32 value = nondet_u32();

	ASSUME(value >= low && value <= high);
	return value;
}

static plim_s64 any_s64(plim_s64 low, plim_s64 high)
{
	plim_s64 value = nondet_s64();

	ASSUME(value >= low && value <= high);
	return value;
}

static int any_bool(void)
{
	return nondet_u8() & 1;
}

#endif /* PLIMSOLL_PROOF_H */

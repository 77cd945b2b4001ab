/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Proofs of plimsoll/units.h. */
#include "plimsoll/units.h"
#include "proof.h"

/*
 * min(a * b, max), compared with the product itself. Narrowed: b below 2^8, max
 * below 2^10, because a solver cannot multiply and divide wide numbers. The
 * function does not depend on the magnitude.
 */
void prove_a_capped_product_is_exact(void)
{
	plim_u64 a = nondet_u64(), b = nondet_u8(), max = any_u64(0, 1023);
	plim_u64 product = plim_mul_capped(a, b, max);

	if (a <= 1023)
		PROVE(product == plim_min(a * b, max), "min(a b, max)");
	else
		PROVE(product == (b ? max : 0), "min(a b, max)");
	PROOF_REACHED();
}

/* For any numbers; the checks prove it. */
void prove_a_capped_product_never_wraps(void)
{
	plim_mul_capped(nondet_u64(), nondet_u64(), PLIM_RUNTIME_MAX_NS);
	PROOF_REACHED();
}

/* Any time by a share, or 26 days by 4,294 CPUs; the checks prove it. */
void prove_scaling_by_a_share_never_wraps(void)
{
	plim_u64 time_ns = any_u64(0, 1ULL << 51), ppm = any_u64(0, PLIM_PPM);

	PROVE(plim_scale_ppm(nondet_u64(), 0) == 0, "nothing of it");
	plim_scale_ppm(nondet_u64(), ppm);
	plim_scale_ppm(time_ns, nondet_u32());
	PROOF_REACHED();
}

void prove_elapsed_time_is_never_negative_nor_above_its_cap(void)
{
	plim_u64 now_ns = nondet_u64(), then_ns = nondet_u64();
	plim_u64 elapsed_ns = plim_elapsed_ns(now_ns, then_ns);

	PROVE(elapsed_ns <= PLIM_ELAPSED_MAX_NS, "capped");
	PROVE(now_ns > then_ns || elapsed_ns == 0, "0 where the clock ran backwards");
	PROVE(elapsed_ns == PLIM_ELAPSED_MAX_NS || now_ns <= then_ns ||
		      then_ns + elapsed_ns == now_ns,
	      "else the difference");
	PROVE(plim_add_saturating(now_ns, then_ns) >= plim_max(now_ns, then_ns), "saturates");
	PROOF_REACHED();
}

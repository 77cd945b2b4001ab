/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Units, limits and saturating arithmetic shared by the policy core.
 *
 * The core is compiled three times: for the kernel (clang -target bpf), for
 * user space and for the proofs. Therefore it includes no other header, not
 * even stdint.h; integer types come from the compiler's predefined macros.
 *
 * Times are nanoseconds. Shares are parts per million of one CPU (ppm) or, for
 * rate caps, per mille of one CPU. The core uses no floating point, 128-bit
 * types or signed division, which BPF does not have.
 */
#ifndef PLIMSOLL_UNITS_H
#define PLIMSOLL_UNITS_H

typedef __UINT64_TYPE__ plim_u64;
typedef __INT64_TYPE__ plim_s64;
typedef __UINT32_TYPE__ plim_u32;
typedef __INT32_TYPE__ plim_s32;
typedef __UINT8_TYPE__ plim_u8;

#ifdef __cplusplus
#error "the policy core is C"
#endif

#ifndef __always_inline
#define __always_inline inline __attribute__((__always_inline__))
#endif

/* Reads once what another CPU may be writing. */
#define PLIM_READ_ONCE(x) (*(const volatile __typeof__(x) *)&(x))

#define PLIM_NSEC_PER_USEC 1000ULL
#define PLIM_NSEC_PER_MSEC 1000000ULL
#define PLIM_NSEC_PER_SEC 1000000000ULL

/* Parts per million in a whole. */
#define PLIM_PPM 1000000ULL
#define PLIM_PERMILLE 1000ULL

/* Stands for "no limit" in place of a quota. */
#define PLIM_UNLIMITED (~0ULL)

/*
 * Maximum of a runtime, a quota and a burst (4.9 hours). The kernel bounds its
 * own bandwidth at 2^44 ns for the same reason (kernel/sched/core.c, MAX_BW):
 * sums of a few of them cannot wrap.
 */
#define PLIM_RUNTIME_MAX_NS (1ULL << 44)

/*
 * Maximum of an elapsed time and of a single run (13 days); longer ones are
 * clamped. Keeps elapsed * ppm below 2^64.
 */
#define PLIM_ELAPSED_MAX_NS (1ULL << 43)

/* A group's weight, as cgroup v2 cpu.weight. */
#define PLIM_GROUP_WEIGHT_MIN 1U
#define PLIM_GROUP_WEIGHT_MAX 10000U
#define PLIM_GROUP_WEIGHT_DEFAULT 100U

/* Maximum number of CPUs of a host, as in the kernel's own NR_CPUS for x86. */
#define PLIM_CPUS_MAX 8192U

static __always_inline plim_u64 plim_min(plim_u64 a, plim_u64 b)
{
	return a < b ? a : b;
}

static __always_inline plim_u64 plim_max(plim_u64 a, plim_u64 b)
{
	return a > b ? a : b;
}

/* a - b, or 0 if b is larger. */
static __always_inline plim_u64 plim_sub_floor(plim_u64 a, plim_u64 b)
{
	return a > b ? a - b : 0;
}

/* a + b, or the largest value if the sum would wrap. */
static __always_inline plim_u64 plim_add_saturating(plim_u64 a, plim_u64 b)
{
	return a > ~0ULL - b ? ~0ULL : a + b;
}

/* min(a * b, @max), without a wrap. */
static __always_inline plim_u64 plim_mul_capped(plim_u64 a, plim_u64 b, plim_u64 max)
{
	if (b && a > max / b)
		return max;
	return a * b;
}

/*
 * Time since @then_ns, or 0 if that is later: the clocks of two CPUs may differ
 * by a few hundred nanoseconds.
 */
static __always_inline plim_u64 plim_elapsed_ns(plim_u64 now_ns, plim_u64 then_ns)
{
	return plim_min(plim_sub_floor(now_ns, then_ns), PLIM_ELAPSED_MAX_NS);
}

/*
 * @time_ns * @ppm / 1,000,000, rounded down, without a 128-bit product: whole
 * milliseconds and the remainder are scaled separately. @time_ns: at most 2^51
 * (26 days), or any if @ppm is at most PLIM_PPM. @ppm: at most 2^32 (4,294
 * CPUs).
 */
static __always_inline plim_u64 plim_scale_ppm(plim_u64 time_ns, plim_u64 ppm)
{
	plim_u64 whole = time_ns / PLIM_PPM;
	plim_u64 rest = time_ns % PLIM_PPM;

	return whole * ppm + rest * ppm / PLIM_PPM;
}

#endif /* PLIMSOLL_UNITS_H */

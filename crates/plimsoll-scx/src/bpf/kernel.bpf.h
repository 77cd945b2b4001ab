/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The enumerators of sched_ext, whose values differ between kernels: libbpf puts those
 * of the running kernel into the program. It refuses a kernel that lacks one.
 */
#ifndef PLIMSOLL_KERNEL_BPF_H
#define PLIMSOLL_KERNEL_BPF_H

/* These headers would make each a variable, for user space to set. */
#define __SCX_ENUMS_BPF_H
#include <scx/common.bpf.h>

/* Without the barrier, clang keeps such values on the stack, which is short. */
#define AT_HAND(value)                                                                             \
	({                                                                                         \
		u64 __at_hand = (value);                                                           \
		barrier_var(__at_hand);                                                            \
		__at_hand;                                                                         \
	})
#define OF_KERNEL(type, name) AT_HAND(bpf_core_enum_value(enum type, name))

#define SCX_DSQ_LOCAL OF_KERNEL(scx_dsq_id_flags, SCX_DSQ_LOCAL)
#define SCX_DSQ_LOCAL_ON OF_KERNEL(scx_dsq_id_flags, SCX_DSQ_LOCAL_ON)
#define SCX_ENQ_LAST OF_KERNEL(scx_enq_flags, SCX_ENQ_LAST)
#define SCX_ENQ_PREEMPT OF_KERNEL(scx_enq_flags, SCX_ENQ_PREEMPT)
#define SCX_ENQ_REENQ OF_KERNEL(scx_enq_flags, SCX_ENQ_REENQ)
#define SCX_ENQ_WAKEUP OF_KERNEL(scx_enq_flags, SCX_ENQ_WAKEUP)
#define SCX_KICK_IDLE OF_KERNEL(scx_kick_flags, SCX_KICK_IDLE)
#define SCX_KICK_PREEMPT OF_KERNEL(scx_kick_flags, SCX_KICK_PREEMPT)
#define SCX_TASK_QUEUED OF_KERNEL(scx_ent_flags, SCX_TASK_QUEUED)
#define SCX_TASK_RESET_RUNNABLE_AT OF_KERNEL(scx_ent_flags, SCX_TASK_RESET_RUNNABLE_AT)
/* 0, and without effect, before Linux 7.1; then that of the headers. */
#define SCX_ENQ_IMMED                                                                              \
	(AT_HAND(bpf_core_enum_value_exists(enum scx_enq_flags, SCX_ENQ_IMMED)) * SCX_ENQ_IMMED)

/*
 * An object of the kernel whose pointers may be followed, but not given to the kernel. For each
 * pointer that is followed from a trusted object, Linux 6.18 searches all its types four times.
 */
#define UNTRUSTED(object) bpf_core_cast(object, typeof(*(object)))

/* The id of a cgroup (cgroup_id()). */
static __always_inline u64 id_of_cgroup(const struct cgroup *cgrp)
{
	return UNTRUSTED(cgrp)->kn->id;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* Interface of the guard and user space. */
#ifndef PLIMSOLL_GUARD_INTF_H
#define PLIMSOLL_GUARD_INTF_H

#include "plimsoll/units.h"

/* Inversions, on the CPU that noticed them or looked at them. */
struct plimsoll_guard_counts {
	plim_u64 nr_begun; /* inversions that were to be looked at */
	plim_u64 nr_inverted; /* looks at which one stood */
	plim_u64 nr_woken; /* wake-ups of a thread, to have its CPU pick again */
};

/* Argument of the program plimsoll_guard_prepare. */
struct plimsoll_guard_cpu {
	plim_u32 cpu;
	plim_u32 next; /* the next CPU that has a thread; it may be the same */
	plim_u32 tid; /* returned: the calling thread, as the kernel counts */
};

/* A thread is woken for this task. Also the argument of the programs that begin and end a move. */
struct plimsoll_guard_task {
	plim_u64 tid; /* 0: for none, but to have its CPU pick again */
	plim_u64 tgid;
	plim_u64 started_ns; /* on CLOCK_BOOTTIME */
	plim_u64 address; /* of the kernel's task; it may have ended */
	plim_u64 cpu; /* to which the task is moved, or was */
	/* The task is to be freed if it is bound and this one is not. 0: it is to be moved. */
	plim_u64 parent_tid;
	plim_u64 asked_ns; /* when the move was asked for */
};

#endif /* PLIMSOLL_GUARD_INTF_H */

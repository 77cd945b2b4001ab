/* SPDX-License-Identifier: GPL-2.0-only */
/* Interface of the guard and user space. */
#ifndef PLIMSOLL_GUARD_INTF_H
#define PLIMSOLL_GUARD_INTF_H

#include "plimsoll/units.h"

/* Inversions, on the CPU that noticed them or looked at them. */
struct plimsoll_guard_counts {
	plim_u64 nr_begun; /* inversions that were to be looked at */
	plim_u64 nr_inverted; /* looks at which one stood */
	plim_u64 nr_woken; /* wake-ups of the thread of a CPU */
};

/* Argument of the program plimsoll_guard_prepare. */
struct plimsoll_guard_cpu {
	plim_u32 cpu;
};

#endif /* PLIMSOLL_GUARD_INTF_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the binding is generated from. */
#include "plimsoll/bandwidth.h"
#include "plimsoll/batch.h"
#include "plimsoll/headroom.h"
#include "plimsoll/ratecap.h"
#include "plimsoll/units.h"

/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Headers from which the binding is generated. */
#include "plimsoll/bandwidth.h"
#include "plimsoll/batch.h"
#include "plimsoll/guard.h"
#include "plimsoll/headroom.h"
#include "plimsoll/order.h"
#include "plimsoll/ratecap.h"
#include "plimsoll/server.h"
#include "plimsoll/sharing.h"
#include "plimsoll/units.h"

// SPDX-License-Identifier: GPL-2.0
/* The bodies of the tracepoints that core/trace.h declares, and what they look into. */

#include "export.h"
#include "memory/memory.h"
#include "peer.h"
#include "queue.h"
#include "session.h"

#define CREATE_TRACE_POINTS
#include "core/trace.h"

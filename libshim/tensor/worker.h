/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/* Workers, as edges see them: a pump, and where memory comes from. */
#ifndef TOW_WORKER_INSIDE_H
#define TOW_WORKER_INSIDE_H

#include <towline/tensor.h>

#include "../pump/pump.h"
#include "check.h"

struct tow_worker {
	struct towi_pump pump;
	struct tow_device *dev;
	struct tow_arena *arena;
	/* Tensors travel with their sums, and those are compared; or NULL. */
	towi_crc32c *crc32c;
	_Atomic uint64_t copied;
};

#endif /* TOW_WORKER_INSIDE_H */

/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/* Workers, as edges see them: a pump, a mailbox, and where memory comes from. */
#ifndef TOW_WORKER_INSIDE_H
#define TOW_WORKER_INSIDE_H

#include <towline/tensor.h>

#include "../pump/pump.h"
#include "check.h"

struct tow_worker {
	struct towi_pump pump;
	struct tow_device *dev;
	struct tow_arena *arena;		/* where tensors come to */
	/* And where the processor reads and writes: the same, unless that is a device's memory. */
	struct tow_arena *words;
	/* Tensors travel with their sums, and those are compared; or NULL. */
	towi_crc32c *crc32c;
	_Atomic uint64_t copied;
	/* With the pump's lock. */
	uint32_t edges;
	struct tow_mailbox *box;		/* its own, as long as it has edges */
	uint32_t strangers;			/* that may begin a line before anybody looks; 0: some */
};

/* ---- way.c: without the pump's lock ---- */

/* One more edge; then there is a mailbox: 0 or a negative errno.  One less. */
int towi_worker_join(struct tow_worker *worker);
void towi_worker_leave(struct tow_worker *worker);

/*
 * So many other processes may connect senders at once while nobody drives the worker; before its
 * first edge.
 */
void towi_worker_expect(struct tow_worker *worker, uint32_t strangers);

#endif /* TOW_WORKER_INSIDE_H */

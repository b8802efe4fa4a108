/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * What the tensors of keys were the last time: so many, and those that were used longest ago are
 * forgotten first.  Forgetting costs a letter the next time, and nothing else.
 */
#ifndef TOW_KNOWN_INSIDE_H
#define TOW_KNOWN_INSIDE_H

#include <bsd/sys/queue.h>
#include <stdbool.h>
#include <stdint.h>

#include "names.h"

struct towi_known {
	struct towi_named named;		/* first; of step 0 */
	TAILQ_ENTRY(towi_known) turn;
	struct tow_tensor_type type;
};

TAILQ_HEAD(towi_known_turns, towi_known);

struct towi_knowns {
	struct towi_names names;
	struct towi_known_turns turns;		/* the first was used longest ago */
	uint32_t count, most;
};

/* Of @most keys. */
void towi_knowns_begin(struct towi_knowns *knowns, uint32_t most);
void towi_knowns_end(struct towi_knowns *knowns);

/* What the tensor of that key was, of whichever step; false: nobody knows. */
bool towi_known(struct towi_knowns *knowns, const struct towi_name *name,
		struct tow_tensor_type *type);

/* It is that now. */
void towi_remember(struct towi_knowns *knowns, const struct towi_name *name,
		   const struct tow_tensor_type *type);

#endif /* TOW_KNOWN_INSIDE_H */

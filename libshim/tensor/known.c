// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/* What the tensors of keys were the last time. */
#include <stdlib.h>

#include "known.h"

static struct towi_known *find(struct towi_knowns *knowns, struct towi_name key)
{
	struct towi_known *known;

	key.step = 0;
	known = (struct towi_known *)towi_names_find(&knowns->names, &key);
	if (!known)
		return NULL;
	TAILQ_REMOVE(&knowns->turns, known, turn);
	TAILQ_INSERT_TAIL(&knowns->turns, known, turn);
	return known;
}

static void forget(struct towi_knowns *knowns, struct towi_known *known)
{
	towi_names_remove(&knowns->names, &known->named);
	TAILQ_REMOVE(&knowns->turns, known, turn);
	knowns->count--;
	free(known);
}

void towi_knowns_begin(struct towi_knowns *knowns, uint32_t most)
{
	*knowns = (struct towi_knowns){ .most = most };
	TAILQ_INIT(&knowns->turns);
}

void towi_knowns_end(struct towi_knowns *knowns)
{
	while (knowns->count)
		forget(knowns, TAILQ_FIRST(&knowns->turns));
}

bool towi_known(struct towi_knowns *knowns, const struct towi_name *name,
		struct tow_tensor_type *type)
{
	const struct towi_known *known = find(knowns, *name);

	if (known)
		*type = known->type;
	return known;
}

void towi_remember(struct towi_knowns *knowns, const struct towi_name *name,
		   const struct tow_tensor_type *type)
{
	struct towi_known *known = find(knowns, *name);

	if (known) {
		known->type = *type;
		return;
	}
	if (knowns->count >= knowns->most)
		forget(knowns, TAILQ_FIRST(&knowns->turns));
	known = calloc(1, sizeof(*known));
	if (!known)
		return;
	known->named.name = *name;
	known->named.name.step = 0;
	known->type = *type;
	towi_names_add(&knowns->names, &known->named);
	TAILQ_INSERT_TAIL(&knowns->turns, known, turn);
	knowns->count++;
}

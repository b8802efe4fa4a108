// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/* What is found by a key and a step. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "names.h"

static int compare(const struct towi_named *one, const struct towi_named *other)
{
	if (one->name.step != other->name.step)
		return one->name.step < other->name.step ? -1 : 1;
	return strcmp(one->name.key, other->name.key);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
RB_GENERATE_INTERNAL(towi_names, towi_named, node, compare, static)
#pragma GCC diagnostic pop

int towi_name_of(const char *key, uint64_t step, struct towi_name *name)
{
	size_t length = key ? strnlen(key, TOW_KEY_MAX + 1) : 0;

	if (!length || length > TOW_KEY_MAX)
		return -EINVAL;
	memset(name, 0, sizeof(*name));
	name->step = step;
	memcpy(name->key, key, length);
	return 0;
}

struct towi_named *towi_names_find(struct towi_names *names, const struct towi_name *name)
{
	struct towi_named look = { .name = *name };

	return RB_FIND(towi_names, names, &look);
}

void towi_names_add(struct towi_names *names, struct towi_named *named)
{
	RB_INSERT(towi_names, names, named);
}

void towi_names_remove(struct towi_names *names, struct towi_named *named)
{
	RB_REMOVE(towi_names, names, named);
}

struct towi_named *towi_names_first(struct towi_names *names)
{
	return RB_MIN(towi_names, names);
}

struct towi_named *towi_names_next(struct towi_named *named)
{
	return RB_NEXT(towi_names, NULL, named);
}

/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/* What is found by a key and a step: records that begin with struct towi_named. */
#ifndef TOW_NAMES_INSIDE_H
#define TOW_NAMES_INSIDE_H

#include <bsd/sys/tree.h>
#include <stdint.h>

#include <towline/tensor.h>

struct towi_name {
	uint64_t step;
	char key[TOW_KEY_MAX + 1];
};

struct towi_named {
	RB_ENTRY(towi_named) node;
	struct towi_name name;
};

RB_HEAD(towi_names, towi_named);

/* 0 or -EINVAL. */
int towi_name_of(const char *key, uint64_t step, struct towi_name *name);

/* NULL: there is none. */
struct towi_named *towi_names_find(struct towi_names *names, const struct towi_name *name);

/* Of a name that is not there. */
void towi_names_add(struct towi_names *names, struct towi_named *named);
void towi_names_remove(struct towi_names *names, struct towi_named *named);

/* In their order; NULL: there is none, or no other one. */
struct towi_named *towi_names_first(struct towi_names *names);
struct towi_named *towi_names_next(struct towi_named *named);

#endif /* TOW_NAMES_INSIDE_H */

/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * Updates of a variable by a gradient, element by element.
 *
 * Each operation is rounded to the type, and none is fused with another one: what comes out is
 * what whoever does the same in that order gets.  What is new overlaps with nothing else.
 */
#ifndef TOW_OPTIMIZE_H
#define TOW_OPTIMIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <towline/server.h>

/* What an optimizer has of a variable, at most: momentum; or Adam's two moments. */
#define TOWI_STATES_MAX	2U

/* Elements before and after an update; @states of what the optimizer has are used. */
struct towi_elements {
	const void *value;
	const void *state[TOWI_STATES_MAX];
	void *new_value;
	void *new_state[TOWI_STATES_MAX];
	const void *gradient;
	size_t count;
};

/* How many states of a variable there are. */
uint32_t towi_optimizer_states(const struct tow_store_attr *attr);

/* Update number @update, from 1, of float64 if @wide, or else of float32. */
void towi_optimize(const struct tow_store_attr *attr, bool wide, uint64_t update,
		   const struct towi_elements *elements);

#endif /* TOW_OPTIMIZE_H */

// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Stores: variables, and what an optimizer has of them, on two sides.  An update reads one side
 * and writes the other one: what is on its way to workers is not changed, and one update can be
 * taken back.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../alloc/arena.h"
#include "../collective/reduce.h"
#include "inside.h"
#include "optimize.h"

#define SIDES	2U
/* Elements that are added up and used while a processor's cache has them. */
#define BLOCK	4096U

struct variable {
	struct tow_tensor_type type;
	bool wide;			/* float64 */
	size_t count;
	void *value[SIDES];
	void *state[SIDES][TOWI_STATES_MAX];
	uint64_t updates;
	uint32_t side;			/* where the value is */
	bool may_go_back;
};

struct tow_store {
	struct tow_arena *arena;
	struct tow_store_attr attr;
	uint32_t states;
	bool served;
	uint32_t count;
	double sum[BLOCK];
	struct variable variables[];
};

static size_t element_bytes(const struct variable *variable)
{
	return variable->wide ? sizeof(double) : sizeof(float);
}

static const void *at(const void *elements, const struct variable *variable, size_t index)
{
	return (const char *)elements + index * element_bytes(variable);
}

static void *new_at(void *elements, const struct variable *variable, size_t index)
{
	return (char *)elements + index * element_bytes(variable);
}

/* ---- updates ------------------------------------------------------------------ */

/* The average of a block of gradients, or the only one where it is. */
static const void *average(struct tow_store *store, const struct variable *variable,
			   const void *const *gradients, uint32_t count, size_t from, size_t block)
{
	enum towi_reduce_type type = variable->wide ? TOWI_REDUCE_F64 : TOWI_REDUCE_F32;
	const void *sum = at(gradients[0], variable, from);
	uint32_t i;

	for (i = 1; i < count; i++) {
		towi_reduce(TOW_SUM, type, store->sum, sum, at(gradients[i], variable, from),
			    block);
		sum = store->sum;
	}
	if (count > 1)
		towi_divide(type, store->sum, block, count);
	return sum;
}

static void update_block(struct tow_store *store, const struct variable *variable,
			 const void *const *gradients, uint32_t count, size_t from, size_t block)
{
	uint32_t side = variable->side, other = !side, i;
	struct towi_elements elements = {
		.value = at(variable->value[side], variable, from),
		.new_value = new_at(variable->value[other], variable, from),
		.gradient = average(store, variable, gradients, count, from, block),
		.count = block,
	};

	for (i = 0; i < store->states; i++) {
		elements.state[i] = at(variable->state[side][i], variable, from);
		elements.new_state[i] = new_at(variable->state[other][i], variable, from);
	}
	towi_optimize(&store->attr, variable->wide, variable->updates + 1, &elements);
}

void towi_store_update(struct tow_store *store, uint32_t number, const void *const *gradients,
		       uint32_t count)
{
	struct variable *variable = &store->variables[number];
	size_t from, left;

	for (from = 0; from < variable->count; from += BLOCK) {
		left = variable->count - from;
		update_block(store, variable, gradients, count, from, left < BLOCK ? left : BLOCK);
	}
	variable->side = !variable->side;
	variable->updates++;
	variable->may_go_back = true;
}

TOW_PUBLIC int tow_store_update(struct tow_store *store, uint32_t variable,
				const void *const *gradients, uint32_t count)
{
	uint32_t i;

	if (!store || variable >= store->count || !gradients || !count)
		return -EINVAL;
	for (i = 0; i < count; i++)
		if (!gradients[i] && store->variables[variable].count)
			return -EINVAL;
	/* A child shares both sides. */
	if (!towi_arena_ours(store->arena))
		return -EPERM;
	if (store->served)
		return -EBUSY;
	towi_store_update(store, variable, gradients, count);
	return 0;
}

/* ---- what servers ask --------------------------------------------------------- */

uint32_t towi_store_count(const struct tow_store *store)
{
	return store->count;
}

const struct tow_tensor_type *towi_store_type(const struct tow_store *store, uint32_t variable)
{
	return &store->variables[variable].type;
}

bool towi_store_serve(struct tow_store *store)
{
	bool was = store->served;

	store->served = true;
	return !was;
}

void towi_store_served(struct tow_store *store)
{
	store->served = false;
}

void towi_store_range(const struct tow_store *store, uint64_t *least, uint64_t *lowest)
{
	uint32_t i;

	*least = UINT64_MAX;
	*lowest = 0;
	for (i = 0; i < store->count; i++) {
		const struct variable *variable = &store->variables[i];
		uint64_t back = variable->updates - variable->may_go_back;

		*least = variable->updates < *least ? variable->updates : *least;
		*lowest = back > *lowest ? back : *lowest;
	}
}

void towi_store_go_back(struct tow_store *store, uint64_t updates)
{
	uint32_t i;

	for (i = 0; i < store->count; i++) {
		struct variable *variable = &store->variables[i];

		if (variable->updates == updates)
			continue;
		variable->side = !variable->side;
		variable->updates--;
		variable->may_go_back = false;
	}
}

void *towi_store_now(const struct tow_store *store, uint32_t variable)
{
	return store->variables[variable].value[store->variables[variable].side];
}

uint32_t towi_store_side(const struct tow_store *store, uint32_t variable)
{
	return store->variables[variable].side;
}

TOW_PUBLIC const void *tow_store_value(const struct tow_store *store, uint32_t variable)
{
	return store && variable < store->count ? towi_store_now(store, variable) : NULL;
}

TOW_PUBLIC uint64_t tow_store_updates(const struct tow_store *store, uint32_t variable)
{
	return store && variable < store->count ? store->variables[variable].updates : UINT64_MAX;
}

/* ---- begin and end ------------------------------------------------------------ */

/* What is no number is in no range. */
static bool is_below_1(double number)
{
	return number >= 0 && number < 1;
}

static bool is_finite(double number)
{
	return number - number == 0;
}

static bool may_be(const struct tow_store_attr *attr)
{
	if (!(attr->rate > 0) || !is_finite(attr->rate))
		return false;
	if (attr->optimizer == TOW_SGD)
		return is_below_1(attr->momentum);
	return attr->optimizer == TOW_ADAM && is_below_1(attr->beta1) && is_below_1(attr->beta2) &&
	       attr->epsilon >= 0 && is_finite(attr->epsilon);
}

static int find_type(struct variable *variable, const struct tow_tensor_type *type)
{
	struct tow_dtype dtype = type->dtype;
	uint64_t bytes;
	int ret;

	if (dtype.code != TOW_DTYPE_FLOAT || dtype.lanes != 1 ||
	    (dtype.bits != 32 && dtype.bits != 64))
		return -EOPNOTSUPP;
	ret = tow_tensor_bytes(type, &bytes);
	if (ret)
		return ret;
	variable->type = *type;
	variable->wide = dtype.bits == 64;
	variable->count = bytes / element_bytes(variable);
	return 0;
}

static int make_variable(struct tow_store *store, struct variable *variable, const void *initial)
{
	size_t bytes = element_bytes(variable);
	uint32_t side, i;

	for (side = 0; side < SIDES; side++) {
		variable->value[side] = tow_arena_zeroed(store->arena, variable->count, bytes);
		if (!variable->value[side])
			return -errno;
		for (i = 0; i < store->states; i++) {
			variable->state[side][i] = tow_arena_zeroed(store->arena, variable->count,
								    bytes);
			if (!variable->state[side][i])
				return -errno;
		}
	}
	if (initial)
		memcpy(variable->value[0], initial, variable->count * bytes);
	return 0;
}

static void free_store(struct tow_store *store)
{
	uint32_t number, side, i;

	for (number = 0; number < store->count; number++) {
		struct variable *variable = &store->variables[number];

		for (side = 0; side < SIDES; side++) {
			tow_arena_free(store->arena, variable->value[side]);
			for (i = 0; i < TOWI_STATES_MAX; i++)
				tow_arena_free(store->arena, variable->state[side][i]);
		}
	}
	free(store);
}

static int make_variables(struct tow_store *store, const struct tow_tensor_type *types,
			  const void *const *initial)
{
	uint32_t i;
	int ret = 0;

	for (i = 0; i < store->count && !ret; i++) {
		if (initial && !initial[i])
			return -EINVAL;
		ret = find_type(&store->variables[i], &types[i]);
	}
	for (i = 0; i < store->count && !ret; i++)
		ret = make_variable(store, &store->variables[i], initial ? initial[i] : NULL);
	return ret;
}

TOW_PUBLIC int tow_store_create(struct tow_arena *arena, const struct tow_store_attr *attr,
				const struct tow_tensor_type *types, const void *const *initial,
				uint32_t count, struct tow_store **store)
{
	struct tow_store_attr known;
	struct tow_store *made;
	int ret;

	if (!arena || !attr || !types || !store || !count || count > TOW_VARIABLES_MAX)
		return -EINVAL;
	ret = towi_take(attr, TOWI_STORE_ATTR_SIZE_FIRST, &known, sizeof(known));
	if (ret)
		return ret;
	if (!may_be(&known))
		return -EINVAL;
	made = calloc(1, sizeof(*made) + count * sizeof(made->variables[0]));
	if (!made)
		return -ENOMEM;
	made->arena = arena;
	made->attr = known;
	made->states = towi_optimizer_states(&known);
	made->count = count;
	ret = make_variables(made, types, initial);
	if (ret)
		free_store(made);
	else
		*store = made;
	return ret;
}

TOW_PUBLIC int tow_store_destroy(struct tow_store *store)
{
	bool ours;

	if (!store)
		return 0;
	ours = towi_arena_ours(store->arena);
	if (ours && store->served)
		return -EBUSY;
	free_store(store);
	return ours ? 0 : -EPERM;
}

// SPDX-License-Identifier: GPL-2.0
/*
 * Updates of variables, against the same arithmetic done one operation at a time, so that nothing
 * is fused: every optimizer and type, any length; not-a-number and infinity.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kselftest.h>

#include "../server/optimize.h"

#define LENGTHS		70
#define UPDATES		5

static uint64_t state = 0x6f7074696d697a65;

static uint64_t chance(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

/* Of any magnitude; now and then none. */
static double number(void)
{
	uint64_t bits = chance();

	if (bits % 61 == 0)
		return bits % 2 ? INFINITY : NAN;
	return ldexp((double)(int32_t)bits, (int)(bits >> 40 & 31) - 40);
}

struct example {
	const char *name;
	struct tow_store_attr attr;
	uint32_t states;
};

static const struct example examples[] = {
	{ "SGD", { .optimizer = TOW_SGD, .rate = 0.3 }, 0 },
	{ "SGD with momentum", { .optimizer = TOW_SGD, .rate = 0.1, .momentum = 0.9 }, 1 },
	{ "Adam", { .optimizer = TOW_ADAM, .rate = 0.001, .beta1 = 0.9, .beta2 = 0.999,
		    .epsilon = 1e-8 }, 2 },
};

/* What each element has, before and after. */
struct element {
	double value, state[TOWI_STATES_MAX];
};

/* A number of the type, kept in memory between any two operations. */
#define REFERENCE(type, root)								\
static struct element update_##type(const struct tow_store_attr *attr, uint64_t update,	\
				    struct element from, double with)			\
{											\
	volatile type value = (type)from.value, gradient = (type)with, first, second, a, b; \
											\
	first = (type)from.state[0];							\
	second = (type)from.state[1];							\
	if (attr->optimizer == TOW_ADAM) {						\
		a = (type)attr->beta1 * first;						\
		b = (type)(1 - attr->beta1) * gradient;					\
		first = a + b;								\
		a = (type)attr->beta2 * second;						\
		b = (type)(1 - attr->beta2) * gradient;					\
		b = b * gradient;							\
		second = a + b;								\
		a = first / (type)(1 - pow(attr->beta1, (double)update));		\
		a = (type)attr->rate * a;						\
		b = second / (type)(1 - pow(attr->beta2, (double)update));		\
		b = root(b);								\
		b = b + (type)attr->epsilon;						\
		a = a / b;								\
	} else if (attr->momentum > 0) {						\
		a = (type)attr->momentum * first;					\
		first = a + gradient;							\
		a = (type)attr->rate * first;						\
	} else {									\
		a = (type)attr->rate * gradient;					\
	}										\
	value = value - a;								\
	return (struct element){ (double)value, { (double)first, (double)second } };	\
}

REFERENCE(float, sqrtf)
REFERENCE(double, sqrt)

static size_t width(bool wide)
{
	return wide ? sizeof(double) : sizeof(float);
}

static double get(const void *array, size_t at, bool wide)
{
	return wide ? ((const double *)array)[at] : (double)((const float *)array)[at];
}

static void put(void *array, size_t at, bool wide, double value)
{
	if (wide)
		((double *)array)[at] = value;
	else
		((float *)array)[at] = (float)value;
}

static bool same(double one, double other)
{
	return isnan(one) ? isnan(other) : one == other && signbit(one) == signbit(other);
}

/* Of just that length, so that nothing around them is touched; and two sides of what changes. */
struct arrays {
	void *gradient, *value[2], *state[2][TOWI_STATES_MAX];
};

static void make_arrays(struct arrays *arrays, size_t count, bool wide)
{
	size_t bytes = count * width(wide) + !count;

	arrays->gradient = malloc(bytes);
	for (int side = 0; side < 2; side++) {
		arrays->value[side] = malloc(bytes);
		for (uint32_t i = 0; i < TOWI_STATES_MAX; i++)
			arrays->state[side][i] = calloc(1, bytes);
	}
	for (size_t i = 0; i < count; i++)
		put(arrays->value[0], i, wide, number());
}

static void free_arrays(const struct arrays *arrays)
{
	free(arrays->gradient);
	for (int side = 0; side < 2; side++) {
		free(arrays->value[side]);
		for (uint32_t i = 0; i < TOWI_STATES_MAX; i++)
			free(arrays->state[side][i]);
	}
}

static struct element element_at(const struct towi_elements *elements, uint32_t states, size_t at,
				 bool wide)
{
	struct element element = { get(elements->value, at, wide), { 0, 0 } };

	for (uint32_t i = 0; i < states; i++)
		element.state[i] = get(elements->state[i], at, wide);
	return element;
}

/* How many elements are not what they should be after an update from that side. */
static size_t wrong_after(const struct example *example, const struct arrays *arrays, size_t count,
			  uint64_t update, bool wide)
{
	int side = update % 2 == 0, other = !side;
	struct towi_elements elements = {
		.value = arrays->value[side], .new_value = arrays->value[other],
		.state = { arrays->state[side][0], arrays->state[side][1] },
		.new_state = { arrays->state[other][0], arrays->state[other][1] },
		.gradient = arrays->gradient, .count = count,
	};
	size_t wrong = 0;

	for (size_t i = 0; i < count; i++)
		put(arrays->gradient, i, wide, number());
	towi_optimize(&example->attr, wide, update, &elements);
	for (size_t i = 0; i < count; i++) {
		struct element want = (wide ? update_double : update_float)(
			&example->attr, update, element_at(&elements, example->states, i, wide),
			get(arrays->gradient, i, wide));

		wrong += !same(want.value, get(elements.new_value, i, wide));
		for (uint32_t s = 0; s < example->states; s++)
			wrong += !same(want.state[s], get(elements.new_state[s], i, wide));
	}
	return wrong;
}

static size_t of_length(const struct example *example, size_t count, bool wide)
{
	struct arrays arrays;
	size_t wrong = 0;

	make_arrays(&arrays, count, wide);
	for (uint64_t update = 1; update <= UPDATES; update++)
		wrong += wrong_after(example, &arrays, count, update, wide);
	free_arrays(&arrays);
	return wrong;
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(2 * sizeof(examples) / sizeof(examples[0]));
	for (size_t e = 0; e < sizeof(examples) / sizeof(examples[0]); e++) {
		for (int wide = 0; wide < 2; wide++) {
			size_t wrong = towi_optimizer_states(&examples[e].attr) != examples[e].states;

			for (size_t count = 0; count < LENGTHS; count++)
				wrong += of_length(&examples[e], count, wide);
			ksft_test_result(!wrong, "%s of float%d\n", examples[e].name, wide ? 64 : 32);
		}
	}
	ksft_finished();
}

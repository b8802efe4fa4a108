// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Updates of a variable by a gradient: a loop for each optimizer and type, which the compiler
 * makes vectors of.  The Makefile has flags for this file: square roots set no errno, as that would be
 * a call for each element, and nothing is fused.
 */
#include <math.h>

#include "optimize.h"

uint32_t towi_optimizer_states(const struct tow_store_attr *attr)
{
	if (attr->optimizer == TOW_ADAM)
		return 2;
	return attr->momentum > 0;
}

/* What is the same for all elements, computed once, in float64. */
struct numbers {
	double rate, momentum;
	double beta1, rest1, beta2, rest2;
	double whole1, whole2;		/* 1 - beta^t */
	double epsilon;
};

/* NOLINTBEGIN(bugprone-macro-parentheses): types have none */
#define OPTIMIZERS(type, root)								\
static void momentum_loop_##type(type rate, type momentum, size_t count,		\
				 const type *restrict gradient,				\
				 const type *restrict value,				\
				 const type *restrict velocity,				\
				 type *restrict new_value,				\
				 type *restrict new_velocity)				\
{											\
	for (size_t i = 0; i < count; i++) {						\
		new_velocity[i] = momentum * velocity[i] + gradient[i];			\
		new_value[i] = value[i] - rate * new_velocity[i];			\
	}										\
}											\
											\
static void momentum_##type(const struct towi_elements *elements,			\
			    const struct numbers *numbers)				\
{											\
	momentum_loop_##type((type)numbers->rate, (type)numbers->momentum,		\
			     elements->count, elements->gradient, elements->value,	\
			     elements->state[0], elements->new_value,			\
			     elements->new_state[0]);					\
}											\
											\
static void plain_loop_##type(type rate, size_t count, const type *restrict gradient,	\
			      const type *restrict value, type *restrict new_value)	\
{											\
	for (size_t i = 0; i < count; i++)						\
		new_value[i] = value[i] - rate * gradient[i];				\
}											\
											\
static void plain_##type(const struct towi_elements *elements,				\
			 const struct numbers *numbers)					\
{											\
	plain_loop_##type((type)numbers->rate, elements->count, elements->gradient,	\
			  elements->value, elements->new_value);			\
}											\
											\
static void adam_loop_##type(const struct numbers *numbers, size_t count,		\
			     const type *restrict gradient, const type *restrict value,	\
			     const type *restrict first, const type *restrict second,	\
			     type *restrict new_value, type *restrict new_first,	\
			     type *restrict new_second)					\
{											\
	const type beta1 = (type)numbers->beta1, rest1 = (type)numbers->rest1;		\
	const type beta2 = (type)numbers->beta2, rest2 = (type)numbers->rest2;		\
	const type whole1 = (type)numbers->whole1, whole2 = (type)numbers->whole2;	\
	const type rate = (type)numbers->rate, epsilon = (type)numbers->epsilon;	\
											\
	for (size_t i = 0; i < count; i++) {						\
		new_first[i] = beta1 * first[i] + rest1 * gradient[i];			\
		new_second[i] = beta2 * second[i] + rest2 * gradient[i] * gradient[i];	\
		new_value[i] = value[i] - rate * (new_first[i] / whole1) /		\
					  (root(new_second[i] / whole2) + epsilon);	\
	}										\
}											\
											\
static void adam_##type(const struct towi_elements *elements,				\
			const struct numbers *numbers)					\
{											\
	adam_loop_##type(numbers, elements->count, elements->gradient, elements->value,	\
			 elements->state[0], elements->state[1], elements->new_value,	\
			 elements->new_state[0], elements->new_state[1]);		\
}
/* NOLINTEND(bugprone-macro-parentheses) */

OPTIMIZERS(float, sqrtf)
OPTIMIZERS(double, sqrt)

static void adam(const struct tow_store_attr *attr, bool wide, uint64_t update,
		 const struct towi_elements *elements, struct numbers *numbers)
{
	numbers->beta1 = attr->beta1;
	numbers->rest1 = 1 - attr->beta1;
	numbers->whole1 = 1 - pow(attr->beta1, (double)update);
	numbers->beta2 = attr->beta2;
	numbers->rest2 = 1 - attr->beta2;
	numbers->whole2 = 1 - pow(attr->beta2, (double)update);
	numbers->epsilon = attr->epsilon;
	(wide ? adam_double : adam_float)(elements, numbers);
}

void towi_optimize(const struct tow_store_attr *attr, bool wide, uint64_t update,
		   const struct towi_elements *elements)
{
	struct numbers numbers = { .rate = attr->rate, .momentum = attr->momentum };

	if (attr->optimizer == TOW_ADAM)
		adam(attr, wide, update, elements, &numbers);
	else if (attr->momentum > 0)
		(wide ? momentum_double : momentum_float)(elements, &numbers);
	else
		(wide ? plain_double : plain_float)(elements, &numbers);
}

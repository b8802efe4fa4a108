/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * Elements of one buffer combined with those of another.
 *
 * What comes out depends on nothing but what goes in and in which order:
 * - float16 and bfloat16 are added and multiplied in float32 and rounded to nearest, ties to even,
 *   each time;
 * - integers wrap around;
 * - bool: what is not 0 is true; sum, maximum and bor are its or, product, minimum and band its and;
 *   results are 0 or 1;
 * - with a NaN the result is a NaN, which one is not said;
 * - of two that are equal, as 0 and -0, minimum and maximum are the other.
 */
#ifndef TOW_REDUCE_H
#define TOW_REDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <towline/collective.h>

/* What can be reduced: float32, float64, float16, bfloat16, int32, int64, int8, uint8, bool. */
enum towi_reduce_type {
	TOWI_REDUCE_F32,
	TOWI_REDUCE_F64,
	TOWI_REDUCE_F16,
	TOWI_REDUCE_BF16,
	TOWI_REDUCE_I32,
	TOWI_REDUCE_I64,
	TOWI_REDUCE_I8,
	TOWI_REDUCE_U8,
	TOWI_REDUCE_BOOL,
	TOWI_REDUCE_TYPES
};

/* For tests: without the processor's instructions for float16. */
extern bool towi_reduce_plainly;

/* 0, and *type; or -EOPNOTSUPP: no such type, or bits of floats, or the average of bools. */
int towi_reduce_type(struct tow_dtype dtype, enum tow_reduction op, enum towi_reduce_type *type);

/* Of an element, in bytes. */
size_t towi_reduce_bytes(enum towi_reduce_type type);

/*
 * to[i] = one[i] op other[i], for @count elements, each aligned to its size.  @to may be @one or
 * @other.  TOW_AVG only adds.
 */
void towi_reduce(enum tow_reduction op, enum towi_reduce_type type, void *to, const void *one,
		 const void *other, size_t count);

/* values[i] /= divisor; integers are cut off towards 0; no bools. */
void towi_divide(enum towi_reduce_type type, void *values, size_t count, uint32_t divisor);

/*
 * The average of what @ranks have, which are added one after the other by towi_avg_add(); then
 * towi_avg_end() makes the average of the sum.
 *
 * A sum of float16 may be more than float16 can hold where the average is not.  So a power of two is
 * taken out of each rank's numbers before: no bit of a sum is another one by that, but where
 * it is so small that it is not normalised.  The average of finite numbers is finite.
 */

/* to[i] = one[i] + other[i]: each is as a rank gave it, or else it is a sum. */
void towi_avg_add(enum towi_reduce_type type, uint32_t ranks, bool one_is_ranks,
		  bool other_is_ranks, void *to, const void *one, const void *other, size_t count);
void towi_avg_end(enum towi_reduce_type type, uint32_t ranks, void *values, size_t count);

#endif /* TOW_REDUCE_H */

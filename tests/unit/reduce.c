// SPDX-License-Identifier: GPL-2.0
/*
 * Elements combined with others: every type and operation, against what arithmetic of more bits
 * says; all numbers of 16 bits; not-a-number and infinity; any length, at any place.
 */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kselftest.h>

#include "../collective/reduce.h"

#define LENGTHS		67
#define PARTNERS	24
#define LARGEST		65504.0

static const char *const op_names[] = { "sum", "min", "max" };

static uint64_t state = 0x726564756365;

static uint64_t chance(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

/* ---- numbers of 16 bits, decoded by their definition ---------------------------------- */

struct format {
	const char *name;
	enum towi_reduce_type type;
	int fraction;			/* bits of it */
	int bias;
};

static const struct format formats[] = {
	{ "float16", TOWI_REDUCE_F16, 10, 15 },
	{ "bfloat16", TOWI_REDUCE_BF16, 7, 127 },
};

static double decode(const struct format *format, uint16_t bits)
{
	int top = (1 << (15 - format->fraction)) - 1;
	int exponent = bits >> format->fraction & top;
	double fraction = bits & ((1 << format->fraction) - 1), value;

	if (exponent == top)
		value = fraction != 0 ? NAN : INFINITY;
	else if (exponent)
		value = ldexp(fraction + (1 << format->fraction),
			      exponent - format->bias - format->fraction);
	else
		value = ldexp(fraction, 1 - format->bias - format->fraction);
	return bits & 0x8000 ? -value : value;
}

/* What is halfway between two that are neighbours belongs to the even one. */
static bool is_nearest(const struct format *format, uint16_t bits, double exact)
{
	uint16_t magnitude = bits & 0x7fff;
	double own = fabs(decode(format, magnitude)), want = fabs(exact), low, high;
	uint16_t infinite = (uint16_t)(((1 << (15 - format->fraction)) - 1) << format->fraction);

	if (isnan(exact) || isnan(own))
		return isnan(exact) && isnan(own);
	if (!signbit(exact) != !(bits & 0x8000) && want != 0)
		return false;
	low = magnitude ? decode(format, (uint16_t)(magnitude - 1)) : 0;
	if (magnitude == infinite) {
		/* From halfway to what would come next on. */
		if (isinf(want))
			return true;
		high = decode(format, (uint16_t)(infinite - 1)) * 2 -
		       decode(format, (uint16_t)(infinite - 2));
		return want >= (low + high) / 2;
	}
	high = decode(format, (uint16_t)(magnitude + 1));
	if (isinf(high))
		high = own * 2 - low;
	if (isinf(want))
		return false;
	if (want < own)
		return want > (low + own) / 2 || (want == (low + own) / 2 && !(bits & 1));
	return want < (own + high) / 2 || (want == (own + high) / 2 && !(bits & 1));
}

static double combined(enum towi_reduce_op op, double one, double other)
{
	if (op == TOWI_SUM)
		return one + other;
	if (isnan(one) || isnan(other))
		return NAN;
	return op == TOWI_MIN ? (one < other ? one : other) : (one > other ? one : other);
}

static uint16_t ones[65536], others[65536], sums[65536];

static bool all_of_format(const struct format *format, enum towi_reduce_op op)
{
	for (int partner = 0; partner < PARTNERS; partner++) {
		for (int i = 0; i < 65536; i++) {
			ones[i] = (uint16_t)i;
			/* Some are alike, some lie near, most do not. */
			others[i] = partner == 0 ? (uint16_t)i :
				    partner == 1 ? (uint16_t)(i ^ 0x8000) :
				    partner == 2 ? (uint16_t)(i + 1) : (uint16_t)chance();
		}
		towi_reduce(op, format->type, sums, ones, others, 65536);
		for (int i = 0; i < 65536; i++) {
			double exact = combined(op, decode(format, ones[i]),
						decode(format, others[i]));

			if (is_nearest(format, sums[i], exact))
				continue;
			ksft_print_msg("%s %s: %04x and %04x are %04x\n", format->name,
				       op_names[op], ones[i], others[i], sums[i]);
			return false;
		}
	}
	return true;
}

static bool divides(const struct format *format)
{
	for (uint32_t by = 1; by <= 16; by++) {
		for (int i = 0; i < 65536; i++)
			sums[i] = (uint16_t)i;
		towi_divide(format->type, sums, 65536, by);
		for (int i = 0; i < 65536; i++) {
			if (is_nearest(format, sums[i], decode(format, (uint16_t)i) / by))
				continue;
			ksft_print_msg("%s: %04x by %u is %04x\n", format->name, i, by, sums[i]);
			return false;
		}
	}
	return true;
}

/* What becomes of 1 before it is added. */
static double part_of(uint32_t ranks)
{
	uint16_t one = 0x3c00, none = 0, part;

	towi_avg_add(TOWI_REDUCE_F16, ranks, true, &part, &one, &none, 1);
	return decode(&formats[0], part);
}

/* What is added to a sum, and what that becomes, of all numbers; infinity and NaN stay what they are. */
static bool averages(uint32_t ranks)
{
	const struct format *format = &formats[0];
	double part = part_of(ranks), exact;

	for (int i = 0; i < 65536; i++) {
		ones[i] = (uint16_t)i;
		others[i] = (uint16_t)chance();
	}
	for (int first = 0; first < 2; first++) {
		towi_avg_add(TOWI_REDUCE_F16, ranks, first, sums, ones, others, 65536);
		for (int i = 0; i < 65536; i++) {
			exact = decode(format, ones[i]) * (first ? part : 1) +
				decode(format, others[i]) * part;
			if (is_nearest(format, sums[i], exact))
				continue;
			ksft_print_msg("of %u: %04x and %04x are %04x\n", ranks, ones[i],
				       others[i], sums[i]);
			return false;
		}
	}
	memcpy(sums, ones, sizeof(sums));
	towi_avg_end(TOWI_REDUCE_F16, ranks, sums, 65536);
	for (int i = 0; i < 65536; i++) {
		exact = decode(format, ones[i]) / part / ranks;
		if (isfinite(exact) && fabs(exact) > LARGEST)
			exact = exact < 0 ? -LARGEST : LARGEST;
		if (is_nearest(format, sums[i], exact))
			continue;
		ksft_print_msg("of %u: %04x ends as %04x\n", ranks, i, sums[i]);
		return false;
	}
	return true;
}

/* As many ranks have the same, or nearly: so is their average.  Each step rounds. */
static bool stays_in_range(uint32_t ranks)
{
	const struct format *format = &formats[0];
	uint16_t sum, next;
	double exact, is;

	/* The largest, those below it, and such as have room for less than themselves. */
	for (uint16_t bits = 0x7bff; bits >= 0x7400; bits -= 61) {
		sum = bits;
		exact = decode(format, bits);
		for (uint32_t rank = 1; rank < ranks; rank++) {
			next = bits ^ (rank & 1);
			exact += decode(format, next);
			towi_avg_add(TOWI_REDUCE_F16, ranks, rank == 1, &sum, &sum, &next, 1);
		}
		towi_avg_end(TOWI_REDUCE_F16, ranks, &sum, 1);
		exact /= ranks;
		is = decode(format, sum);
		if (isfinite(is) && fabs(is - exact) <= exact * ranks / 2048)
			continue;
		ksft_print_msg("of %u: %04x is %04x, and the average %g\n", ranks, bits, sum, exact);
		return false;
	}
	return true;
}

static void test_averages(const char *how)
{
	static const uint32_t ranks[] = { 2, 3, 4, 7, 16, 100, 700, 1023, 1024 };
	bool good = true, in_range = true;

	for (size_t i = 0; i < ARRAY_SIZE(ranks); i++) {
		good = good && averages(ranks[i]);
		in_range = in_range && stays_in_range(ranks[i]);
	}
	ksft_test_result(good, "float16, averages%s\n", how);
	ksft_test_result(in_range, "float16, averages of what has no room for its sum%s\n", how);
}

static void test_formats(const char *how)
{
	for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
		for (enum towi_reduce_op op = TOWI_SUM; op <= TOWI_MAX; op++)
			ksft_test_result(all_of_format(&formats[i], op), "%s, %s%s\n",
					 formats[i].name, op_names[op], how);
		ksft_test_result(divides(&formats[i]), "%s, divided%s\n", formats[i].name, how);
	}
}

static bool differ(const void *one, const void *other, size_t bytes)
{
	return memcmp(one, other, bytes);
}

/* ---- the others ----------------------------------------------------------------------- */

#define DEFINE_WIDE(name, type, what, equal)						\
	static bool wide_##name(enum towi_reduce_op op)						\
	{											\
		type one[LENGTHS + 2], other[LENGTHS + 2], to[LENGTHS + 2], want;		\
												\
		for (size_t length = 0; length < LENGTHS; length++) {				\
			for (size_t i = 0; i < LENGTHS + 2; i++) {				\
				one[i] = some_##name();						\
				other[i] = some_##name();					\
				to[i] = 42;							\
			}									\
			towi_reduce(op, what, to + 1, one + 1, other + 1, length);		\
			if (!equal(to[0], (type)42) || !equal(to[length + 1], (type)42))	\
				return false;							\
			for (size_t i = 1; i <= length; i++) {					\
				want = op == TOWI_SUM ? sum_##name(one[i], other[i]) :		\
				       op == TOWI_MIN ? (one[i] < other[i] ? one[i] : other[i]) : \
							(one[i] > other[i] ? one[i] : other[i]); \
				if (!equal(to[i], want))					\
					return false;						\
			}									\
			/* To where one of them is. */						\
			memcpy(to, one, sizeof(to));						\
			towi_reduce(op, what, to, to, other, length);				\
			towi_reduce(op, what, one, one, other, length);				\
			if (differ(to, one, sizeof(to)))					\
				return false;							\
		}										\
		return true;									\
	}

#define SAME(one, other)	((one) == (other))

static float some_f32(void)
{
	return ldexpf((float)(int32_t)chance(), (int)(chance() % 60) - 45);
}

static double some_f64(void)
{
	return ldexp((double)(int64_t)chance(), (int)(chance() % 600) - 300);
}

static int32_t some_i32(void)
{
	return (int32_t)chance();
}

static int64_t some_i64(void)
{
	return (int64_t)chance();
}

static float sum_f32(float one, float other)
{
	return one + other;
}

static double sum_f64(double one, double other)
{
	return one + other;
}

static int32_t sum_i32(int32_t one, int32_t other)
{
	return (int32_t)(uint32_t)((uint64_t)(uint32_t)one + (uint32_t)other);
}

static int64_t sum_i64(int64_t one, int64_t other)
{
	int64_t sum;

	return __builtin_add_overflow(one, other, &sum) ? sum : one + other;
}

DEFINE_WIDE(f32, float, TOWI_REDUCE_F32, SAME)
DEFINE_WIDE(f64, double, TOWI_REDUCE_F64, SAME)
DEFINE_WIDE(i32, int32_t, TOWI_REDUCE_I32, SAME)
DEFINE_WIDE(i64, int64_t, TOWI_REDUCE_I64, SAME)

/* A NaN on either side is one; infinities are what they are. */
static bool specials(void)
{
	float one[] = { NAN, 1, INFINITY, INFINITY, -INFINITY }, other[] = { 1, NAN, -INFINITY, 1, 1 };
	float sum[5], min[5], max[5];
	double wide_one[] = { NAN, 1 }, wide_other[] = { 1, NAN }, wide[2];

	towi_reduce(TOWI_SUM, TOWI_REDUCE_F32, sum, one, other, 5);
	towi_reduce(TOWI_MIN, TOWI_REDUCE_F32, min, one, other, 5);
	towi_reduce(TOWI_MAX, TOWI_REDUCE_F32, max, one, other, 5);
	for (enum towi_reduce_op op = TOWI_SUM; op <= TOWI_MAX; op++) {
		towi_reduce(op, TOWI_REDUCE_F64, wide, wide_one, wide_other, 2);
		if (!isnan(wide[0]) || !isnan(wide[1]))
			return false;
	}
	return isnan(sum[0]) && isnan(sum[1]) && isnan(sum[2]) && isinf(sum[3]) && isinf(sum[4]) &&
	       isnan(min[0]) && isnan(min[1]) && min[2] < 0 && min[3] == 1 && isinf(min[4]) &&
	       isnan(max[0]) && isnan(max[1]) && max[2] > 0 && isinf(max[3]) && max[4] == 1;
}

static bool divisions(void)
{
	float f32[] = { 9, -1, 1 };
	double f64[] = { 9, -1, 1 };
	int32_t i32[] = { 10, -10, INT32_MIN };
	int64_t i64[] = { 10, -10, INT64_MIN };

	towi_divide(TOWI_REDUCE_F32, f32, 3, 3);
	towi_divide(TOWI_REDUCE_F64, f64, 3, 3);
	towi_divide(TOWI_REDUCE_I32, i32, 3, 3);
	towi_divide(TOWI_REDUCE_I64, i64, 3, 3);
	return f32[0] == 3 && f32[1] == -1.0F / 3 && f32[2] == 1.0F / 3 && f64[0] == 3 &&
	       f64[1] == -1.0 / 3 && i32[0] == 3 && i32[1] == -3 && i32[2] == -715827882 &&
	       i64[0] == 3 && i64[1] == -3 && i64[2] == -3074457345618258602;
}

static bool types(void)
{
	static const struct {
		struct tow_dtype dtype;
		int ret;
		size_t bytes;
	} cases[] = {
		{ { TOW_DTYPE_FLOAT, 32, 1 }, 0, 4 }, { { TOW_DTYPE_FLOAT, 64, 1 }, 0, 8 },
		{ { TOW_DTYPE_FLOAT, 16, 1 }, 0, 2 }, { { TOW_DTYPE_BFLOAT, 16, 1 }, 0, 2 },
		{ { TOW_DTYPE_INT, 32, 1 }, 0, 4 }, { { TOW_DTYPE_INT, 64, 1 }, 0, 8 },
		{ { TOW_DTYPE_INT, 8, 1 }, -EOPNOTSUPP, 0 },
		{ { TOW_DTYPE_UINT, 32, 1 }, -EOPNOTSUPP, 0 },
		{ { TOW_DTYPE_FLOAT, 32, 2 }, -EOPNOTSUPP, 0 },
		{ { TOW_DTYPE_BFLOAT, 32, 1 }, -EOPNOTSUPP, 0 },
	};
	enum towi_reduce_type type;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		if (towi_reduce_type(cases[i].dtype, &type) != cases[i].ret)
			return false;
		if (!cases[i].ret && towi_reduce_bytes(type) != cases[i].bytes)
			return false;
	}
	return true;
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(35);
	test_formats("");
	test_averages("");
	/* Without the processor's instructions for it. */
	towi_reduce_plainly = true;
	test_formats(", plainly");
	test_averages(", plainly");
	towi_reduce_plainly = false;
	for (enum towi_reduce_op op = TOWI_SUM; op <= TOWI_MAX; op++) {
		ksft_test_result(wide_f32(op), "float32, %s\n", op_names[op]);
		ksft_test_result(wide_f64(op), "float64, %s\n", op_names[op]);
		ksft_test_result(wide_i32(op), "int32, %s\n", op_names[op]);
		ksft_test_result(wide_i64(op), "int64, %s\n", op_names[op]);
	}
	ksft_test_result(specials(), "not-a-number and infinity\n");
	ksft_test_result(divisions(), "divisions\n");
	ksft_test_result(types(), "types\n");
	ksft_finished();
}

// SPDX-License-Identifier: GPL-2.0
/*
 * Elements combined with others: every type and operation, against what arithmetic of more bits
 * says; all numbers of 16 bits; not-a-number, infinity, zeros with their signs, and what is not
 * normalised; any length, at any place.
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

static const char *const op_names[] = {
	"sum", "avg", "min", "max", "product", "band", "bor", "bxor",
};

/* Of averages towi_reduce() has the sum. */
#define FLOATS_END	(TOW_PRODUCT + 1)
#define OPS_END		(TOW_BXOR + 1)

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
	if (!signbit(exact) != !(bits & 0x8000))
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

static double combined(enum tow_reduction op, double one, double other)
{
	/* Of numbers of up to 11 bits it is exact, but where float32 has no room for what is small. */
	if (op == TOW_PRODUCT)
		return (double)(float)(one * other);
	if (op == TOW_SUM || op == TOW_AVG)
		return one + other;
	if (isnan(one) || isnan(other))
		return NAN;
	return op == TOW_MIN ? (one < other ? one : other) : (one > other ? one : other);
}

static uint16_t ones[65536], others[65536], sums[65536];

static bool all_of_format(const struct format *format, enum tow_reduction op)
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

	towi_avg_add(TOWI_REDUCE_F16, ranks, true, true, &part, &one, &none, 1);
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
	for (int given = 0; given < 4; given++) {
		towi_avg_add(TOWI_REDUCE_F16, ranks, given & 1, given & 2, sums, ones, others,
			     65536);
		for (int i = 0; i < 65536; i++) {
			exact = decode(format, ones[i]) * (given & 1 ? part : 1) +
				decode(format, others[i]) * (given & 2 ? part : 1);
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
			towi_avg_add(TOWI_REDUCE_F16, ranks, rank == 1, true, &sum, &sum, &next,
				     1);
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
		for (enum tow_reduction op = TOW_SUM; op < FLOATS_END; op++)
			ksft_test_result(all_of_format(&formats[i], op), "%s, %s%s\n",
					 formats[i].name, op_names[op], how);
		ksft_test_result(divides(&formats[i]), "%s, divided%s\n", formats[i].name, how);
	}
}

static bool differ(const void *one, const void *other, size_t bytes)
{
	return memcmp(one, other, bytes);
}

/* As the processor has them, and as it is done without: the same bits, but for which NaN. */
static bool same_bits(enum tow_reduction op)
{
	static uint16_t plainly[65536];

	for (int partner = 0; partner < PARTNERS; partner++) {
		for (int i = 0; i < 65536; i++) {
			ones[i] = (uint16_t)i;
			others[i] = (uint16_t)chance();
		}
		towi_reduce(op, TOWI_REDUCE_F16, sums, ones, others, 65536);
		towi_reduce_plainly = true;
		towi_reduce(op, TOWI_REDUCE_F16, plainly, ones, others, 65536);
		towi_reduce_plainly = false;
		for (int i = 0; i < 65536; i++)
			if (sums[i] != plainly[i] && !isnan(decode(&formats[0], sums[i])))
				return false;
	}
	return true;
}

/* ---- the others ----------------------------------------------------------------------- */

/* What integers are, of which the lowest bits count. */
static __int128 whole(enum tow_reduction op, __int128 one, __int128 other)
{
	switch (op) {
	case TOW_MIN:
		return one < other ? one : other;
	case TOW_MAX:
		return one > other ? one : other;
	case TOW_PRODUCT:
		return one * other;
	case TOW_BAND:
		return one & other;
	case TOW_BOR:
		return one | other;
	case TOW_BXOR:
		return one ^ other;
	default:
		return one + other;
	}
}

static bool truth(enum tow_reduction op, bool one, bool other)
{
	if (op == TOW_BXOR)
		return one != other;
	return op == TOW_PRODUCT || op == TOW_MIN || op == TOW_BAND ? one && other : one || other;
}

static double exact(enum tow_reduction op, double one, double other)
{
	return op == TOW_PRODUCT ? one * other : combined(op, one, other);
}

#define DEFINE_WIDE(name, type, what, some, wanted, equal)					\
	static bool wide_##name(enum tow_reduction op)						\
	{											\
		type one[LENGTHS + 2], other[LENGTHS + 2], to[LENGTHS + 2];			\
												\
		for (size_t length = 0; length < LENGTHS; length++) {				\
			for (size_t i = 0; i < LENGTHS + 2; i++) {				\
				one[i] = some;							\
				other[i] = some;						\
				to[i] = 42;							\
			}									\
			towi_reduce(op, what, to + 1, one + 1, other + 1, length);		\
			if (!equal(to[0], (type)42) || !equal(to[length + 1], (type)42))	\
				return false;							\
			for (size_t i = 1; i <= length; i++)					\
				if (!equal(to[i], (type)wanted(op, one[i], other[i])))		\
					return false;						\
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
/* Of floats the sign of 0, too; a NaN is a NaN. */
#define ALIKE(one, other)	(isnan(other) ? isnan(one) : (one) == (other) &&		\
				 !signbit(one) == !signbit(other))

static float some_f32(void)
{
	static const float specials[] = {
		0, -0.0F, NAN, -NAN, INFINITY, -INFINITY, 0x1p-149F, -0x1p-130F, 0x1.fffffep127F, 1,
	};

	if (chance() % 2)
		return specials[chance() % ARRAY_SIZE(specials)];
	return ldexpf((float)(int32_t)chance(), (int)(chance() % 60) - 45);
}

static double some_f64(void)
{
	static const double specials[] = {
		0, -0.0, NAN, -NAN, INFINITY, -INFINITY, 0x1p-1074, -0x1p-1030, 0x1.fffffffffffffp1023, 1,
	};

	if (chance() % 2)
		return specials[chance() % ARRAY_SIZE(specials)];
	return ldexp((double)(int64_t)chance(), (int)(chance() % 600) - 300);
}

DEFINE_WIDE(f32, float, TOWI_REDUCE_F32, some_f32(), exact, ALIKE)
DEFINE_WIDE(f64, double, TOWI_REDUCE_F64, some_f64(), exact, ALIKE)
DEFINE_WIDE(i32, int32_t, TOWI_REDUCE_I32, (int32_t)chance(), whole, SAME)
DEFINE_WIDE(i64, int64_t, TOWI_REDUCE_I64, (int64_t)chance(), whole, SAME)
DEFINE_WIDE(i8, int8_t, TOWI_REDUCE_I8, (int8_t)chance(), whole, SAME)
DEFINE_WIDE(u8, uint8_t, TOWI_REDUCE_U8, (uint8_t)chance(), whole, SAME)
/* Half of them false. */
DEFINE_WIDE(bool, uint8_t, TOWI_REDUCE_BOOL, (uint8_t)(chance() % 2 * chance()), truth, SAME)

static void test_others(void)
{
	for (enum tow_reduction op = TOW_SUM; op < FLOATS_END; op++) {
		ksft_test_result(same_bits(op), "float16, %s, the same both ways\n", op_names[op]);
		ksft_test_result(wide_f32(op), "float32, %s\n", op_names[op]);
		ksft_test_result(wide_f64(op), "float64, %s\n", op_names[op]);
	}
	for (enum tow_reduction op = TOW_SUM; op < OPS_END; op++) {
		ksft_test_result(wide_i32(op), "int32, %s\n", op_names[op]);
		ksft_test_result(wide_i64(op), "int64, %s\n", op_names[op]);
		ksft_test_result(wide_i8(op), "int8, %s\n", op_names[op]);
		ksft_test_result(wide_u8(op), "uint8, %s\n", op_names[op]);
		if (op != TOW_AVG)
			ksft_test_result(wide_bool(op), "bool, %s\n", op_names[op]);
	}
}

static bool divisions(void)
{
	float f32[] = { 9, -1, 1 };
	double f64[] = { 9, -1, 1 };
	int32_t i32[] = { 10, -10, INT32_MIN };
	int64_t i64[] = { 10, -10, INT64_MIN };
	int8_t i8[] = { 10, -10, INT8_MIN };
	uint8_t u8[] = { 10, 11, UINT8_MAX };

	towi_divide(TOWI_REDUCE_F32, f32, 3, 3);
	towi_divide(TOWI_REDUCE_F64, f64, 3, 3);
	towi_divide(TOWI_REDUCE_I32, i32, 3, 3);
	towi_divide(TOWI_REDUCE_I64, i64, 3, 3);
	towi_divide(TOWI_REDUCE_I8, i8, 3, 3);
	towi_divide(TOWI_REDUCE_U8, u8, 3, 1024);
	if (u8[0] || u8[1] || u8[2])
		return false;
	return f32[0] == 3 && f32[1] == -1.0F / 3 && f32[2] == 1.0F / 3 && f64[0] == 3 &&
	       f64[1] == -1.0 / 3 && i32[0] == 3 && i32[1] == -3 && i32[2] == -715827882 &&
	       i64[0] == 3 && i64[1] == -3 && i64[2] == -3074457345618258602 &&
	       i8[0] == 3 && i8[1] == -3 && i8[2] == -42;
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
		{ { TOW_DTYPE_INT, 8, 1 }, 0, 1 }, { { TOW_DTYPE_UINT, 8, 1 }, 0, 1 },
		{ { TOW_DTYPE_BOOL, 8, 1 }, 0, 1 },
		{ { TOW_DTYPE_INT, 16, 1 }, -EOPNOTSUPP, 0 },
		{ { TOW_DTYPE_UINT, 32, 1 }, -EOPNOTSUPP, 0 },
		{ { TOW_DTYPE_BOOL, 32, 1 }, -EOPNOTSUPP, 0 },
		{ { TOW_DTYPE_FLOAT, 32, 2 }, -EOPNOTSUPP, 0 },
		{ { TOW_DTYPE_BFLOAT, 32, 1 }, -EOPNOTSUPP, 0 },
		{ { TOW_DTYPE_FLOAT8_E5M2, 8, 1 }, -EOPNOTSUPP, 0 },
	};
	enum towi_reduce_type type;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		if (towi_reduce_type(cases[i].dtype, TOW_SUM, &type) != cases[i].ret)
			return false;
		if (!cases[i].ret && towi_reduce_bytes(type) != cases[i].bytes)
			return false;
	}
	return true;
}

/* Bits of floats, and averages of bools. */
static bool ops(void)
{
	static const uint8_t codes[] = {
		TOW_DTYPE_FLOAT, TOW_DTYPE_BFLOAT, TOW_DTYPE_INT, TOW_DTYPE_UINT, TOW_DTYPE_BOOL,
	};
	enum towi_reduce_type type;
	struct tow_dtype dtype;
	int want;

	for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
		dtype = (struct tow_dtype){ codes[i], i < 2 ? 16 : 8, 1 };
		for (enum tow_reduction op = TOW_SUM; op < OPS_END; op++) {
			want = (i < 2 && op >= TOW_BAND) ||
			       (codes[i] == TOW_DTYPE_BOOL && op == TOW_AVG) ? -EOPNOTSUPP : 0;
			if (towi_reduce_type(dtype, op, &type) != want)
				return false;
		}
	}
	return true;
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(85);
	test_formats("");
	test_averages("");
	/* Without the processor's instructions for it. */
	towi_reduce_plainly = true;
	test_formats(", plainly");
	test_averages(", plainly");
	towi_reduce_plainly = false;
	test_others();
	ksft_test_result(divisions(), "divisions\n");
	ksft_test_result(types(), "types\n");
	ksft_test_result(ops(), "operations\n");
	ksft_finished();
}

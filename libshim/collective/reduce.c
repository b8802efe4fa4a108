// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Elements of one buffer combined with those of another: a loop for each operation and type,
 * which the compiler makes vectors of.
 */
#include <errno.h>
#include <math.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "reduce.h"

/* Clang makes vectors anyway. */
#ifdef __clang__
#define LOOPS
#else
#define LOOPS	__attribute__((optimize("O3")))
#endif

/* ---- elements ----------------------------------------------------------------- */

/* Numbers of 16 bits, as they lie in memory. */
typedef uint16_t half;
typedef uint16_t brain;

#define SIGN		0x80000000U
#define INFINITE	0x7f800000U
/* What a float16's exponent is less than that of a float. */
#define HALF_BIAS	(112U << 23)
#define HALF_LEAST	0x38800000U	/* 2^-14: less is not normalised */
#define HALF_MOST	0x47800000U	/* 2^16: this and more is infinite */

static inline float float_of_bits(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static inline uint32_t bits_of_float(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline float float_of_half(half value)
{
	uint32_t sign = (uint32_t)(value & 0x8000U) << 16, bits = (value & 0x7fffU) << 13;

	/* What is not normalised there is here, too, and is by this. */
	if (bits < INFINITE - HALF_BIAS * 2)
		bits = bits_of_float(float_of_bits(bits) * 0x1p112F);
	else
		bits |= INFINITE;
	return float_of_bits(sign | bits);
}

/* To nearest, ties to even; a NaN stays one. */
static inline half half_of_float(float value)
{
	uint32_t bits = bits_of_float(value), sign = (bits & SIGN) >> 16, rounded;

	bits &= ~SIGN;
	if (bits > INFINITE)
		rounded = 0x7e00U | (bits >> 13 & 0x3ffU);
	else if (bits >= HALF_MOST)
		rounded = 0x7c00;
	else if (bits < HALF_LEAST)
		/* The processor rounds: so large a number has no finer bits. */
		rounded = bits_of_float(float_of_bits(bits) + 0.5F) - bits_of_float(0.5F);
	else
		rounded = (bits - HALF_BIAS + 0xfffU + (bits >> 13 & 1)) >> 13;
	return (half)(sign | rounded);
}

static inline float float_of_brain(brain value)
{
	return float_of_bits((uint32_t)value << 16);
}

static inline brain brain_of_float(float value)
{
	uint32_t bits = bits_of_float(value);

	if ((bits & ~SIGN) > INFINITE)
		return (brain)(bits >> 16 | 0x40U);
	return (brain)((bits + 0x7fffU + (bits >> 16 & 1)) >> 16);
}

#define AS_IT_IS(value)		(value)

/* ---- loops -------------------------------------------------------------------- */

#define SUM(one, other)		((one) + (other))
#define PRODUCT(one, other)	((one) * (other))
#define MIN(one, other)		((one) < (other) || (one) != (one) ? (one) : (other))
#define MAX(one, other)		((one) > (other) || (one) != (one) ? (one) : (other))
#define BAND(one, other)	((one) & (other))
#define BOR(one, other)		((one) | (other))
#define BXOR(one, other)	((one) ^ (other))

/* NOLINTBEGIN(bugprone-macro-parentheses): types have none */
#define DEFINE_LOOP(name, type, wide, load, store, combine)					\
	LOOPS static void name(void *to, const void *one, const void *other, size_t count)	\
	{											\
		const type *a = one, *b = other;						\
		type *out = to;									\
												\
		for (size_t i = 0; i < count; i++) {						\
			wide left = (wide)load(a[i]), right = (wide)load(b[i]);			\
												\
			out[i] = store(combine(left, right));					\
		}										\
	}

#define DEFINE_DIVISION(name, type, wide, load, store)						\
	LOOPS static void divide_##name(void *values, size_t count, uint32_t by)		\
	{											\
		type *out = values;								\
												\
		for (size_t i = 0; i < count; i++)						\
			out[i] = store((wide)load(out[i]) / (wide)by);				\
	}

#define DEFINE_FLOATS(name, type, wide, load, store)						\
	DEFINE_LOOP(sum_##name, type, wide, load, store, SUM)					\
	DEFINE_LOOP(product_##name, type, wide, load, store, PRODUCT)				\
	DEFINE_LOOP(min_##name, type, wide, load, store, MIN)					\
	DEFINE_LOOP(max_##name, type, wide, load, store, MAX)					\
	DEFINE_DIVISION(name, type, wide, load, store)

/* Signed numbers may not overflow; those without a sign, as which they are added, wrap around. */
#define DEFINE_INTEGERS(name, type, wraps)							\
	DEFINE_LOOP(sum_##name, type, wraps, AS_IT_IS, (type), SUM)				\
	DEFINE_LOOP(product_##name, type, wraps, AS_IT_IS, (type), PRODUCT)			\
	DEFINE_LOOP(min_##name, type, type, AS_IT_IS, AS_IT_IS, MIN)				\
	DEFINE_LOOP(max_##name, type, type, AS_IT_IS, AS_IT_IS, MAX)				\
	DEFINE_LOOP(band_##name, type, wraps, AS_IT_IS, (type), BAND)				\
	DEFINE_LOOP(bor_##name, type, wraps, AS_IT_IS, (type), BOR)				\
	DEFINE_LOOP(bxor_##name, type, wraps, AS_IT_IS, (type), BXOR)				\
	DEFINE_DIVISION(name, type, int64_t, AS_IT_IS, (type))
/* NOLINTEND(bugprone-macro-parentheses) */

DEFINE_FLOATS(f32, float, float, AS_IT_IS, AS_IT_IS)
DEFINE_FLOATS(f64, double, double, AS_IT_IS, AS_IT_IS)
DEFINE_FLOATS(f16, half, float, float_of_half, half_of_float)
DEFINE_FLOATS(bf16, brain, float, float_of_brain, brain_of_float)
DEFINE_INTEGERS(i32, int32_t, uint32_t)
DEFINE_INTEGERS(i64, int64_t, uint64_t)
DEFINE_INTEGERS(i8, int8_t, uint32_t)
DEFINE_INTEGERS(u8, uint8_t, uint32_t)
/* As bool, whatever is not 0 is 1. */
DEFINE_LOOP(and_bool, uint8_t, bool, AS_IT_IS, (uint8_t), BAND)
DEFINE_LOOP(or_bool, uint8_t, bool, AS_IT_IS, (uint8_t), BOR)
DEFINE_LOOP(xor_bool, uint8_t, bool, AS_IT_IS, (uint8_t), BXOR)

/* ---- averages of float16 ------------------------------------------------------- */

/* The largest that is finite. */
#define HALF_LARGEST	65504.0F

/*
 * What is taken out of each rank's numbers: a power of two, less than half of their share.  Sums are
 * rounded at each step, so they may become larger by (1 + 2^-11)^(ranks - 1): less than twice as
 * large, with up to 1,024 ranks.
 */
static float part_of(uint32_t ranks)
{
	float part = 0.5F;

	for (uint32_t whole = 1; whole < ranks; whole *= 2)
		part /= 2;
	return part;
}

/* Rounding makes no infinite number of a finite one. */
static inline half finite_half_of(float value)
{
	if (value > HALF_LARGEST && value < (float)INFINITY)
		value = HALF_LARGEST;
	else if (value < -HALF_LARGEST && value > -(float)INFINITY)
		value = -HALF_LARGEST;
	return half_of_float(value);
}

LOOPS static void add_parts(half *to, const half *one, float part_of_one, const half *other,
			    float part, size_t count)
{
	for (size_t i = 0; i < count; i++)
		to[i] = half_of_float(float_of_half(one[i]) * part_of_one +
				      float_of_half(other[i]) * part);
}

LOOPS static void end_parts(half *values, float part, float ranks, size_t count)
{
	for (size_t i = 0; i < count; i++)
		values[i] = finite_half_of(float_of_half(values[i]) / part / ranks);
}

/* ---- float16, by the processor ------------------------------------------------- */

#ifdef __x86_64__
#define AT_ONCE		8U
/* All processors with AVX2 have F16C, which compilers have no name for in questions. */
#define F16C		__attribute__((target("avx2,f16c")))

F16C static inline __m256 load_halves(const half *from)
{
	return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)from));
}

F16C static inline void store_halves(half *to, __m256 values)
{
	_mm_storeu_si128((__m128i *)(void *)to,
			 _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
}

/* The first of both where that is so, or where it is a NaN. */
F16C static inline __m256 choose(__m256 one, __m256 other, __m256 so)
{
	return _mm256_blendv_ps(other, one,
				_mm256_or_ps(so, _mm256_cmp_ps(one, one, _CMP_UNORD_Q)));
}

F16C static inline __m256 least(__m256 one, __m256 other)
{
	return choose(one, other, _mm256_cmp_ps(one, other, _CMP_LT_OQ));
}

F16C static inline __m256 most(__m256 one, __m256 other)
{
	return choose(one, other, _mm256_cmp_ps(one, other, _CMP_GT_OQ));
}

#define DEFINE_F16C(name, combine)								\
	F16C static void name##_f16c(void *to, const void *one, const void *other, size_t count) \
	{											\
		const half *a = one, *b = other;						\
		half *out = to;									\
		size_t i;									\
												\
		for (i = 0; i + AT_ONCE <= count; i += AT_ONCE)					\
			store_halves(out + i, combine(load_halves(a + i), load_halves(b + i)));	\
		name##_f16(out + i, a + i, b + i, count - i);					\
	}

DEFINE_F16C(sum, _mm256_add_ps)
DEFINE_F16C(product, _mm256_mul_ps)
DEFINE_F16C(min, least)
DEFINE_F16C(max, most)

F16C static void divide_f16c(void *values, size_t count, uint32_t by)
{
	__m256 divisor = _mm256_set1_ps((float)by);
	half *out = values;
	size_t i;

	for (i = 0; i + AT_ONCE <= count; i += AT_ONCE)
		store_halves(out + i, _mm256_div_ps(load_halves(out + i), divisor));
	divide_f16(out + i, count - i, by);
}

F16C static void add_parts_f16c(half *to, const half *one, float part_of_one, const half *other,
				float part, size_t count)
{
	__m256 first = _mm256_set1_ps(part_of_one), second = _mm256_set1_ps(part);
	size_t i;

	for (i = 0; i + AT_ONCE <= count; i += AT_ONCE)
		store_halves(to + i, _mm256_add_ps(_mm256_mul_ps(load_halves(one + i), first),
						   _mm256_mul_ps(load_halves(other + i), second)));
	add_parts(to + i, one + i, part_of_one, other + i, part, count - i);
}

F16C static void end_parts_f16c(half *values, float part, float ranks, size_t count)
{
	__m256 by = _mm256_set1_ps(ranks), whole = _mm256_set1_ps(1 / part);
	__m256 largest = _mm256_set1_ps(HALF_LARGEST), sign = _mm256_set1_ps(-0.0F), value, finite;
	size_t i;

	for (i = 0; i + AT_ONCE <= count; i += AT_ONCE) {
		value = _mm256_div_ps(_mm256_mul_ps(load_halves(values + i), whole), by);
		finite = _mm256_cmp_ps(_mm256_andnot_ps(sign, value),
				       _mm256_set1_ps((float)INFINITY), _CMP_LT_OQ);
		store_halves(values + i, _mm256_blendv_ps(value, _mm256_max_ps(
			_mm256_min_ps(value, largest), _mm256_xor_ps(largest, sign)), finite));
	}
	end_parts(values + i, part, ranks, count - i);
}
#endif

/* ---- which --------------------------------------------------------------------- */

typedef void loop(void *to, const void *one, const void *other, size_t count);
typedef void division(void *values, size_t count, uint32_t by);

/* What has no loop is refused.  Averages are sums at first. */
struct type {
	size_t bytes;
	loop *loops[TOW_BXOR + 1];
	division *divide;
};

#define NUMBERS(name)										\
	[TOW_SUM] = sum_##name, [TOW_AVG] = sum_##name, [TOW_PRODUCT] = product_##name,		\
	[TOW_MIN] = min_##name, [TOW_MAX] = max_##name
#define BITS(name)										\
	[TOW_BAND] = band_##name, [TOW_BOR] = bor_##name, [TOW_BXOR] = bxor_##name

static const struct type types[TOWI_REDUCE_TYPES] = {
	[TOWI_REDUCE_F32] = { 4, { NUMBERS(f32) }, divide_f32 },
	[TOWI_REDUCE_F64] = { 8, { NUMBERS(f64) }, divide_f64 },
	[TOWI_REDUCE_F16] = { 2, { NUMBERS(f16) }, divide_f16 },
	[TOWI_REDUCE_BF16] = { 2, { NUMBERS(bf16) }, divide_bf16 },
	[TOWI_REDUCE_I32] = { 4, { NUMBERS(i32), BITS(i32) }, divide_i32 },
	[TOWI_REDUCE_I64] = { 8, { NUMBERS(i64), BITS(i64) }, divide_i64 },
	[TOWI_REDUCE_I8] = { 1, { NUMBERS(i8), BITS(i8) }, divide_i8 },
	[TOWI_REDUCE_U8] = { 1, { NUMBERS(u8), BITS(u8) }, divide_u8 },
	[TOWI_REDUCE_BOOL] = { 1, {
		[TOW_SUM] = or_bool, [TOW_MAX] = or_bool, [TOW_BOR] = or_bool,
		[TOW_PRODUCT] = and_bool, [TOW_MIN] = and_bool, [TOW_BAND] = and_bool,
		[TOW_BXOR] = xor_bool,
	}, NULL },
};

bool towi_reduce_plainly;

#ifdef __x86_64__
static bool has_f16c(void)
{
	return !towi_reduce_plainly && __builtin_cpu_supports("avx2");
}
#endif

static const struct type *type_of(enum towi_reduce_type type)
{
#ifdef __x86_64__
	static const struct type f16c = { 2, { NUMBERS(f16c) }, divide_f16c };

	if (type == TOWI_REDUCE_F16 && has_f16c())
		return &f16c;
#endif
	return &types[type];
}

int towi_reduce_type(struct tow_dtype dtype, enum tow_reduction op, enum towi_reduce_type *type)
{
	static const struct {
		uint8_t code, bits;
		enum towi_reduce_type type;
	} known[] = {
		{ TOW_DTYPE_FLOAT, 32, TOWI_REDUCE_F32 }, { TOW_DTYPE_FLOAT, 64, TOWI_REDUCE_F64 },
		{ TOW_DTYPE_FLOAT, 16, TOWI_REDUCE_F16 }, { TOW_DTYPE_BFLOAT, 16, TOWI_REDUCE_BF16 },
		{ TOW_DTYPE_INT, 32, TOWI_REDUCE_I32 }, { TOW_DTYPE_INT, 64, TOWI_REDUCE_I64 },
		{ TOW_DTYPE_INT, 8, TOWI_REDUCE_I8 }, { TOW_DTYPE_UINT, 8, TOWI_REDUCE_U8 },
		{ TOW_DTYPE_BOOL, 8, TOWI_REDUCE_BOOL },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (known[i].code == dtype.code && known[i].bits == dtype.bits &&
		    dtype.lanes == 1) {
			*type = known[i].type;
			return types[*type].loops[op] ? 0 : -EOPNOTSUPP;
		}
	}
	return -EOPNOTSUPP;
}

size_t towi_reduce_bytes(enum towi_reduce_type type)
{
	return types[type].bytes;
}

void towi_reduce(enum tow_reduction op, enum towi_reduce_type type, void *to, const void *one,
		 const void *other, size_t count)
{
	type_of(type)->loops[op](to, one, other, count);
}

void towi_divide(enum towi_reduce_type type, void *values, size_t count, uint32_t divisor)
{
	type_of(type)->divide(values, count, divisor);
}

void towi_avg_add(enum towi_reduce_type type, uint32_t ranks, bool one_is_ranks,
		  bool other_is_ranks, void *to, const void *one, const void *other, size_t count)
{
	float of_one = one_is_ranks ? part_of(ranks) : 1;
	float of_other = other_is_ranks ? part_of(ranks) : 1;

	if (type != TOWI_REDUCE_F16) {
		towi_reduce(TOW_SUM, type, to, one, other, count);
		return;
	}
#ifdef __x86_64__
	if (has_f16c()) {
		add_parts_f16c(to, one, of_one, other, of_other, count);
		return;
	}
#endif
	add_parts(to, one, of_one, other, of_other, count);
}

void towi_avg_end(enum towi_reduce_type type, uint32_t ranks, void *values, size_t count)
{
	if (type != TOWI_REDUCE_F16) {
		towi_divide(type, values, count, ranks);
		return;
	}
#ifdef __x86_64__
	if (has_f16c()) {
		end_parts_f16c(values, part_of(ranks), (float)ranks, count);
		return;
	}
#endif
	end_parts(values, part_of(ranks), (float)ranks, count);
}

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Elements that ranks combine: of each type, as numbers and as bits; and what comes out, as one
 * process computes it.
 */
#ifndef TOW_ELEMENTS_H
#define TOW_ELEMENTS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <towline/collective.h>
#include <towline/towline.h>

/* All that can be reduced. */
static const struct tow_dtype tow_dtypes[] = {
	{ TOW_DTYPE_FLOAT, 32, 1 }, { TOW_DTYPE_FLOAT, 64, 1 }, { TOW_DTYPE_FLOAT, 16, 1 },
	{ TOW_DTYPE_BFLOAT, 16, 1 }, { TOW_DTYPE_INT, 32, 1 }, { TOW_DTYPE_INT, 64, 1 },
	{ TOW_DTYPE_INT, 8, 1 }, { TOW_DTYPE_UINT, 8, 1 }, { TOW_DTYPE_BOOL, 8, 1 },
};

/* So many of them, the first ones, are floats. */
#define TOW_FLOATS	4U

/* Of numbers that it has exactly. */
static inline uint16_t tow_half_of(double value)
{
	int exponent;
	double fraction = frexp(fabs(value), &exponent);

	if (fraction == 0)
		return 0;
	return (uint16_t)((value < 0 ? 0x8000 : 0) | (exponent + 14) << 10 |
			  ((int)(fraction * 2048) & 0x3ff));
}

static inline double tow_of_half(uint16_t bits)
{
	double value = bits & 0x7fff ? ldexp((bits & 0x3ff) + 1024, (bits >> 10 & 31) - 25) : 0;

	return bits & 0x8000 ? -value : value;
}

static inline void tow_put(void *array, size_t at, struct tow_dtype dtype, double value)
{
	float narrow = (float)value;
	uint32_t bits;

	if (dtype.bits == 8) {
		((uint8_t *)array)[at] = (uint8_t)(int)value;
	} else if (dtype.code == TOW_DTYPE_BFLOAT) {
		memcpy(&bits, &narrow, sizeof(bits));
		((uint16_t *)array)[at] = (uint16_t)(bits >> 16);
	} else if (dtype.code == TOW_DTYPE_INT && dtype.bits == 32) {
		((int32_t *)array)[at] = (int32_t)value;
	} else if (dtype.code == TOW_DTYPE_INT) {
		((int64_t *)array)[at] = (int64_t)value;
	} else if (dtype.bits == 16) {
		((uint16_t *)array)[at] = tow_half_of(value);
	} else if (dtype.bits == 32) {
		((float *)array)[at] = narrow;
	} else {
		((double *)array)[at] = value;
	}
}

static inline double tow_get(const void *array, size_t at, struct tow_dtype dtype)
{
	uint32_t bits;
	float narrow;

	if (dtype.code == TOW_DTYPE_BFLOAT) {
		bits = (uint32_t)((const uint16_t *)array)[at] << 16;
		memcpy(&narrow, &bits, sizeof(narrow));
		return (double)narrow;
	}
	if (dtype.bits == 8)
		return dtype.code == TOW_DTYPE_INT ? ((const int8_t *)array)[at] :
						     ((const uint8_t *)array)[at];
	if (dtype.code == TOW_DTYPE_INT)
		return dtype.bits == 32 ? ((const int32_t *)array)[at] :
					  (double)((const int64_t *)array)[at];
	if (dtype.bits == 16)
		return tow_of_half(((const uint16_t *)array)[at]);
	return dtype.bits == 32 ? (double)((const float *)array)[at] : ((const double *)array)[at];
}

static inline bool tow_is_float(struct tow_dtype dtype)
{
	return dtype.code == TOW_DTYPE_FLOAT || dtype.code == TOW_DTYPE_BFLOAT;
}

/* Bits of floats, and averages of bools. */
static inline bool tow_never_reduced(struct tow_dtype dtype, uint32_t reduction)
{
	if (tow_is_float(dtype))
		return reduction >= TOW_BAND;
	return dtype.code == TOW_DTYPE_BOOL && reduction == TOW_AVG;
}

/* Integers wrap around, and whatever is not 0 is true, before and after. */
static inline int64_t tow_of_type(struct tow_dtype dtype, int64_t value)
{
	if (dtype.code == TOW_DTYPE_BOOL)
		return !!value;
	if (dtype.code == TOW_DTYPE_INT && dtype.bits == 32)
		return (int32_t)value;
	if (dtype.bits == 8)
		return dtype.code == TOW_DTYPE_INT ? (int8_t)value : (uint8_t)value;
	return value;
}

/* Averages are sums, so far. */
static inline int64_t tow_reduced(uint32_t reduction, int64_t one, int64_t other)
{
	switch (reduction) {
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

static inline uint64_t tow_digest(const void *data, size_t bytes)
{
	uint64_t hash = 0xcbf29ce484222325ULL;

	for (size_t i = 0; i < bytes; i++)
		hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3ULL;
	return hash;
}

/* Zeroed memory that is a region of its own; ended by tow_end_import(). */
static inline void *tow_import(struct tow_device *dev, uint64_t bytes)
{
	struct tow_region *region;
	void *at = calloc(1, bytes);

	if (!at || tow_region_from_memory(dev, at, bytes, 0, &region))
		_exit(60);
	return at;
}

static inline void tow_end_import(struct tow_device *dev, void *at)
{
	struct tow_region *region;
	uint64_t offset;

	if (tow_region_find(dev, at, &region, &offset, NULL) || offset ||
	    tow_region_destroy(region))
		_exit(61);
	free(at);
}

#endif /* TOW_ELEMENTS_H */

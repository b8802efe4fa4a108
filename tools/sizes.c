// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Sizes in bytes, as people say and write them.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tool.h"

const char *size_words(uint64_t bytes, char text[SIZE_TEXT])
{
	static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	uint64_t whole, part;
	size_t unit = 0;

	while (unit + 1 < COUNT(units) && bytes >> (10 * (unit + 1)))
		unit++;
	whole = bytes >> (10 * unit);
	/* Cut off, not rounded: what is there is never said to be more. */
	part = bytes - (whole << (10 * unit));
	if (part)
		snprintf(text, SIZE_TEXT, "%" PRIu64 ".%" PRIu64 " %s", whole,
			 part * 10 >> (10 * unit), units[unit]);
	else
		snprintf(text, SIZE_TEXT, "%" PRIu64 " %s", whole, units[unit]);
	return text;
}

/* The suffix's power of two; -1 when there is no such suffix. */
static int suffix_shift(const char *suffix)
{
	if (!suffix[0])
		return 0;
	if (suffix[1])
		return -1;
	switch (suffix[0]) {
	case 'k':
	case 'K':
		return 10;
	case 'm':
	case 'M':
		return 20;
	case 'g':
	case 'G':
		return 30;
	case 't':
	case 'T':
		return 40;
	default:
		return -1;
	}
}

int size_parse(const char *text, uint64_t *bytes)
{
	unsigned long long number;
	char *end;
	int shift;

	/* strtoull would take a sign, and spaces before it. */
	if (text[0] < '0' || text[0] > '9')
		return -EINVAL;
	errno = 0;
	number = strtoull(text, &end, 10);
	shift = suffix_shift(end);
	if (shift < 0)
		return -EINVAL;
	if (errno == ERANGE || number > UINT64_MAX >> shift)
		return -ERANGE;
	*bytes = (uint64_t)number << shift;
	return 0;
}

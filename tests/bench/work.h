/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What bench programs are told to do, in the same words whatever does it, and
 * what they say about it.
 *
 *	-d DEVICE	the RDMA device
 *	-o write|read	what one operation does
 *	-s BYTES	how much
 *	-g BYTES	between one place and the next; 0: they are neighbours
 *	-p PLACES	operation I is at place I modulo this, at both ends
 *	-r		places follow one another in no order
 *	-n COUNT	how many, a multiple of -b
 *	-b BATCH	how many are posted at a time; only the last one tells when it
 *			has completed
 *	-w WINDOW	how many are in flight at most, a multiple of -b
 *	-z		sleep until something has completed; only one after the other
 */
#ifndef TOW_WORK_H
#define TOW_WORK_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sample.h"

#define WORK_OPTIONS	"d:o:s:g:p:rn:b:w:z"
#define WORK_USAGE	"-d DEVICE [-o write|read] [-s BYTES] [-g GAP] [-p PLACES]\n" \
			"            [-r] [-n COUNT] [-b BATCH] [-w WINDOW] [-z]"

/* Memory at each end: so much at least, and as much as the work takes. */
#define WORK_MEMORY	((size_t)2 << 20)
#define WORK_MEMORY_MAX	((size_t)64 << 20)

/* Most work has no more in flight than this; what is posted as one list may have. */
#define WORK_WINDOW_MAX	1024U
#define WORK_LIST_MAX	2048U

/* A prime: places that are so far apart follow one another. */
#define WORK_STRIDE	7919ULL

struct work {
	const char *device;
	bool read, scattered, asleep;
	uint32_t bytes, gap, places, count, batch, window;
};

#define WORK_DEFAULT	{ .bytes = 8, .places = 1, .count = 1000, .batch = 1, .window = 1 }

static inline void __attribute__((noreturn)) die(const char *what, int error)
{
	fprintf(stderr, "%s: %s\n", what, strerror(error));
	exit(1);
}

/* A number as an option has it; false if it is none, or none of these. */
static inline bool work_number(const char *text, unsigned long least, unsigned long most,
			       uint32_t *number)
{
	unsigned long value;
	char *end;

	value = strtoul(text, &end, 10);
	*number = (uint32_t)value;
	return *text && !*end && value >= least && value <= most;
}

/* False: not an option of ours, or its value is not as it must be. */
static inline bool work_option(struct work *work, int option, const char *value)
{
	switch (option) {
	case 'd':
		work->device = value;
		return true;
	case 'o':
		work->read = !strcmp(value, "read");
		return work->read || !strcmp(value, "write");
	case 's': return work_number(value, 1, WORK_MEMORY_MAX, &work->bytes);
	case 'g': return work_number(value, 0, WORK_MEMORY_MAX, &work->gap);
	case 'p': return work_number(value, 1, WORK_MEMORY_MAX, &work->places);
	case 'r':
		work->scattered = true;
		return true;
	case 'n': return work_number(value, 1, 100000000, &work->count);
	case 'b': return work_number(value, 1, WORK_LIST_MAX, &work->batch);
	case 'w': return work_number(value, 1, WORK_LIST_MAX, &work->window);
	case 'z':
		work->asleep = true;
		return true;
	default: return false;
	}
}

/* From the first place to the end of the last one. */
static inline uint64_t work_span(const struct work *work)
{
	return ((uint64_t)work->bytes + work->gap) * (work->places - 1) + work->bytes;
}

static inline size_t work_memory(const struct work *work)
{
	uint64_t span = work_span(work);

	return span > WORK_MEMORY ? (size_t)span : WORK_MEMORY;
}

/* Does it all fit together? */
static inline bool work_valid(const struct work *work)
{
	return work->device && !(work->window % work->batch) && !(work->count % work->batch) &&
	       (work->window <= WORK_WINDOW_MAX || work->window == work->batch) &&
	       work_span(work) <= WORK_MEMORY_MAX;
}

/* Where the operation of a number is, at both ends. */
static inline uint64_t work_offset(const struct work *work, uint32_t number)
{
	uint64_t place = work->scattered ? number * WORK_STRIDE : number;

	return ((uint64_t)work->bytes + work->gap) * (place % work->places);
}

/* What @count operations of @bytes in so much time come to. */
static inline void work_report(double time_us, double count, double bytes)
{
	printf("us_each %.4f per_second %.0f mib_per_second %.3f\n", time_us / count,
	       count / time_us * 1e6, count * bytes / time_us * 1e6 / (1 << 20));
}

#endif /* TOW_WORK_H */

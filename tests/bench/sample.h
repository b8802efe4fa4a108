/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the bench programs share: the time, and what many measurements of it
 * come to.
 */
#ifndef TOW_SAMPLE_H
#define TOW_SAMPLE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static inline int by_value(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

/* Print the median, the 99th percentile and the mean; sorts the samples. */
static inline void report(double *sample, unsigned long count)
{
	double sum = 0;

	for (unsigned long i = 0; i < count; i++)
		sum += sample[i];
	qsort(sample, count, sizeof(*sample), by_value);
	printf("median_us %.2f p99_us %.2f mean_us %.2f\n", sample[count / 2],
	       sample[count * 99 / 100], sum / (double)count);
}

/* So many multiplications, one after the other, of which nobody wants to know what comes out. */
static inline void do_work(unsigned long count)
{
	volatile uint64_t end;
	uint64_t value = 1;

	while (count--)
		value = value * 6364136223846793005ULL + 1442695040888963407ULL;
	end = value;
	(void)end;
}

#endif /* TOW_SAMPLE_H */

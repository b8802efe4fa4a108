/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * towline perf: what is measured (perf_run.c), and what is said about it (perf.c).
 */
#ifndef TOW_PERF_H
#define TOW_PERF_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct answerer;
struct json_object;
struct tow_device;
struct tow_region;

/* By which name the one side finds the other's memory. */
#define PERF_NAME	"towline.perf"

/* As many entries as a queue can have in flight, half of them a batch. */
#define PERF_BATCH_MAX		32768
#define PERF_QPS_MAX		256
#define PERF_ITERATIONS_MAX	10000000

enum perf_type { PERF_WRITE, PERF_READ, PERF_ATOMIC, PERF_NOTIFY };

/*
 * What is measured: @iterations operations of @bytes each, @batch handed over at a
 * time, over @qps queue pairs in turn; @bidir: every other one in the other
 * direction.  @polls: the kernel takes entries without a call.  Notifications go one by
 * one, and both sides sleep for them if @sleeps.
 */
struct perf_plan {
	enum perf_type type;
	uint64_t bytes;
	uint64_t iterations;
	uint32_t batch;
	uint32_t qps;
	bool bidir;
	bool polls;
	bool sleeps;
};

struct perf_result {
	double seconds;
	double latency_min_us;
	double latency_median_us;
	double latency_p99_us;
	double operations_per_s;
	double bytes_per_s;
};

/* Why it could not be measured: which step failed (NULL: the peer), and how. */
struct perf_failure {
	const char *what;
	int error;
};

/*
 * Measure against the node at @address, where somebody listens.  True, or false
 * with @failure.
 */
bool perf_measure(struct tow_device *dev, const char *address, const struct perf_plan *plan,
		  struct perf_result *result, struct perf_failure *failure);

/* The same of notifications, there and back. */
bool perf_measure_notify(struct tow_device *dev, const char *address,
			 const struct perf_plan *plan, struct perf_result *result,
			 struct perf_failure *failure);

/*
 * Who answers notifications, with @bytes of @memory: 0, and then perf_answer() does it
 * until one of the signals @ends comes, which are blocked, and ends him; -EOPNOTSUPP
 * where the device cannot; or another negative errno.
 */
int perf_answer_make(struct tow_device *dev, struct tow_region *memory, uint64_t bytes,
		     const sigset_t *ends, struct answerer **result);
int perf_answer(struct answerer *answerer);

/* ---- what needs no peer ---- */

/*
 * Where operation number @number goes in a range of @room bytes, of which @window
 * are in flight: apart from each other, so that they stay operations of their own,
 * as far as there is room for that.
 */
uint64_t perf_place(uint64_t number, uint64_t bytes, uint64_t room, uint32_t window);

/* How much memory those places take, at most @room. */
uint64_t perf_room(uint64_t bytes, uint64_t room, uint32_t window);

/* What @count times in nanoseconds come to, which are sorted here; @seconds in all. */
void perf_sum_up(uint64_t *times, size_t count, uint64_t bytes, double seconds,
		 struct perf_result *result);

struct json_object *perf_object(const char *device, const char *address,
				const struct perf_plan *plan, const struct perf_result *result);

#endif /* TOW_PERF_H */

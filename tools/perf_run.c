// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * towline perf: operations on the memory of whoever listens, and how long they take.
 *
 * One at a time, each is handed over and waited for.  In batches, the next batch is
 * handed over while the last is on its way, so there is always one; an operation's
 * time is from when it was handed over until its completion was seen.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include <towline/queue.h>

#include "perf.h"
#include "tool.h"

#define FIND_MS		5000
/* Before the clock runs: what is made when it is first needed is made then. */
#define WARM_UP		100U
/* Between two places; merged are those that touch. */
#define GAP		64ULL
#define NS_PER_S	1000000000ULL

/* An operation in flight. */
struct flight {
	uint64_t began_ns;
	struct flight *free;
};

struct bench {
	const struct perf_plan *plan;
	struct tow_device *dev;
	struct tow_peer *peer;
	struct tow_remote *remote;
	struct tow_region *region;
	struct tow_queue *queue;
	struct tow_channel **channels;
	uint32_t window;
	uint64_t room;
	struct flight *flights;
	struct flight *free;
	/* Of the present run. */
	uint64_t wanted;
	uint64_t begun;
	uint64_t ended;
	uint64_t *times;
};

/* ---- what needs no peer ---- */

static uint64_t stride_of(uint64_t bytes)
{
	return (bytes + 2 * GAP - 1) / GAP * GAP;
}

static uint64_t places_in(uint64_t bytes, uint64_t room, uint32_t window)
{
	uint64_t places = room / stride_of(bytes);

	if (places > window)
		places = window;
	return places ? places : 1;
}

uint64_t perf_place(uint64_t number, uint64_t bytes, uint64_t room, uint32_t window)
{
	return number % places_in(bytes, room, window) * stride_of(bytes);
}

uint64_t perf_room(uint64_t bytes, uint64_t room, uint32_t window)
{
	return (places_in(bytes, room, window) - 1) * stride_of(bytes) + bytes;
}

static int compare_times(const void *left, const void *right)
{
	const uint64_t *a = left, *b = right;

	return *a < *b ? -1 : *a > *b;
}

static double us_of(const uint64_t *times, size_t index)
{
	return (double)times[index] / 1e3;
}

void perf_sum_up(uint64_t *times, size_t count, uint64_t bytes, double seconds,
		 struct perf_result *result)
{
	qsort(times, count, sizeof(*times), compare_times);
	result->seconds = seconds;
	result->latency_min_us = us_of(times, 0);
	result->latency_median_us = us_of(times, count / 2);
	result->latency_p99_us = us_of(times, count * 99 / 100);
	result->operations_per_s = (double)count / seconds;
	result->bytes_per_s = result->operations_per_s * (double)bytes;
}

/* ---- one run ---- */

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static void prepare(const struct bench *bench, struct tow_sqe *sqe)
{
	const struct perf_plan *plan = bench->plan;
	const struct tow_channel *channel = bench->channels[bench->begun % plan->qps];
	uint64_t place = perf_place(bench->begun, plan->bytes, bench->room, bench->window);
	/* Pairs, so that each queue pair gets both directions. */
	bool reversed = plan->bidir && bench->begun / plan->qps % 2;

	if (plan->type == PERF_ATOMIC)
		tow_prep_fetch_add(sqe, channel, bench->region, place, bench->remote, place, 1);
	else if ((plan->type == PERF_WRITE) != reversed)
		tow_prep_write(sqe, channel, bench->region, place, bench->remote, place,
			       plan->bytes);
	else
		tow_prep_read(sqe, channel, bench->region, place, bench->remote, place,
			      plan->bytes);
}

/* Fill in a batch, if there is room for a whole one in flight. */
static void begin_batch(struct bench *bench)
{
	uint64_t now, flying = bench->begun - bench->ended, left = bench->wanted - bench->begun;
	uint64_t i, count = left < bench->plan->batch ? left : bench->plan->batch;
	struct flight *flight;
	struct tow_sqe *sqe;

	if (flying + count > bench->window)
		return;
	now = now_ns();
	for (i = 0; i < count; i++) {
		sqe = tow_queue_get_sqe(bench->queue);
		/* The kernel has not taken all of the last batch. */
		if (!sqe)
			break;
		flight = bench->free;
		bench->free = flight->free;
		flight->began_ns = now;
		prepare(bench, sqe);
		tow_sqe_set_data(sqe, (uint64_t)(flight - bench->flights));
		bench->begun++;
	}
}

/* Deal with what has completed: 0, or the first status that is none. */
static int end_some(struct bench *bench)
{
	struct tow_queue *queue = bench->queue;
	uint64_t now = now_ns();
	const struct tow_cqe *cqe;
	struct flight *flight;
	uint32_t index;
	int ret = 0;

	tow_queue_for_each_cqe(queue, index, cqe) {
		flight = &bench->flights[cqe->user_data];
		bench->times[bench->ended++] = now - flight->began_ns;
		flight->free = bench->free;
		bench->free = flight;
		if (!ret)
			ret = cqe->status;
	}
	tow_queue_advance(queue, index - queue->cq_head);
	return ret;
}

/* 0 or a negative errno. */
static int run(struct bench *bench, uint64_t count)
{
	uint64_t flying;
	int ret = 0;

	bench->wanted = count;
	bench->begun = 0;
	bench->ended = 0;
	while (!ret && bench->ended < count) {
		begin_batch(bench);
		flying = bench->begun - bench->ended;
		ret = tow_queue_submit_and_wait(bench->queue,
						flying < bench->plan->batch ?
						(uint32_t)flying : bench->plan->batch);
		/* Cut short by a signal: what has completed is there. */
		if (ret >= 0 || ret == -EINTR)
			ret = end_some(bench);
	}
	return ret;
}

static int run_timed(struct bench *bench, struct perf_result *result)
{
	uint64_t warm = bench->plan->iterations < WARM_UP ? bench->plan->iterations : WARM_UP;
	uint64_t began;
	int ret;

	ret = run(bench, warm);
	if (ret)
		return ret;
	began = now_ns();
	ret = run(bench, bench->plan->iterations);
	if (!ret)
		perf_sum_up(bench->times, bench->plan->iterations, bench->plan->bytes,
			    (double)(now_ns() - began) / (double)NS_PER_S, result);
	return ret;
}

/* ---- what it takes ---- */

static uint32_t rights_for(const struct perf_plan *plan)
{
	if (plan->bidir)
		return TOW_RIGHT_READ | TOW_RIGHT_WRITE;
	if (plan->type == PERF_ATOMIC)
		return TOW_RIGHT_WRITE | TOW_RIGHT_ATOMIC;
	return plan->type == PERF_WRITE ? TOW_RIGHT_WRITE : TOW_RIGHT_READ;
}

static int make_memory(struct bench *bench)
{
	const struct perf_plan *plan = bench->plan;

	bench->room = tow_remote_bytes(bench->remote);
	if (bench->room < plan->bytes)
		return -ERANGE;
	return tow_region_create(bench->dev, perf_room(plan->bytes, bench->room, bench->window),
				 NULL, &bench->region);
}

static int make_queue(struct bench *bench)
{
	const struct tow_queue_attr attr = {
		.size = sizeof(attr),
		.flags = bench->plan->polls ? TOW_QUEUE_POLL : 0,
	};

	return tow_queue_create_with(bench->dev, bench->plan->batch, bench->window, &attr,
				     &bench->queue);
}

static int make_channels(struct bench *bench)
{
	int ret = 0;

	bench->channels = calloc(bench->plan->qps, sizeof(struct tow_channel *));
	if (!bench->channels)
		return -ENOMEM;
	for (uint32_t i = 0; i < bench->plan->qps && !ret; i++)
		ret = tow_channel_get(bench->queue, bench->peer, i, &bench->channels[i]);
	return ret;
}

static int make_records(struct bench *bench)
{
	uint64_t count = bench->plan->iterations < WARM_UP ? WARM_UP : bench->plan->iterations;

	bench->times = calloc(count, sizeof(*bench->times));
	bench->flights = calloc(bench->window, sizeof(*bench->flights));
	if (!bench->times || !bench->flights)
		return -ENOMEM;
	for (uint32_t i = bench->window; i > 0; i--) {
		bench->flights[i - 1].free = bench->free;
		bench->free = &bench->flights[i - 1];
	}
	return 0;
}

/* What could not be had, and why in @error; 0 there: all is there. */
static const char *make_bench(struct bench *bench, const char *address, int *error)
{
	*error = tow_peer_connect(bench->dev, address, NULL, 0, &bench->peer);
	if (*error)
		return NULL;
	*error = tow_resolve(bench->peer, PERF_NAME, rights_for(bench->plan), FIND_MS,
			     &bench->remote);
	if (*error)
		return "nothing to measure with: is 'towline perf --listen' running there?";
	*error = make_memory(bench);
	if (*error)
		return *error == -ERANGE ? "more than who listens has: start it with -s, too" :
					   "no memory";
	*error = make_queue(bench);
	if (*error)
		return bench->plan->polls && *error == -EPERM ?
		       "no poller: that takes CAP_SYS_NICE, or a poller_limit" : "no queue";
	*error = make_channels(bench);
	if (*error)
		return *error == -EINVAL ? "there are not as many queue pairs (see qps_per_peer)" :
					   "no channel";
	*error = make_records(bench);
	return "no memory";
}

static void free_bench(struct bench *bench)
{
	free(bench->times);
	free(bench->flights);
	free(bench->channels);
	tow_queue_destroy(bench->queue);
	tow_region_destroy(bench->region);
	tow_remote_release(bench->remote);
	tow_peer_release(bench->peer);
}

bool perf_measure(struct tow_device *dev, const char *address, const struct perf_plan *plan,
		  struct perf_result *result, struct perf_failure *failure)
{
	struct bench bench = {
		.plan = plan,
		.dev = dev,
		.window = plan->batch == 1 ? 1 : 2 * plan->batch,
	};

	failure->what = make_bench(&bench, address, &failure->error);
	if (!failure->error) {
		failure->what = "an operation failed";
		failure->error = run_timed(&bench, result);
	}
	free_bench(&bench);
	return !failure->error;
}

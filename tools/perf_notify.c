// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * towline perf: notifications, there and back.
 *
 * The side that measures writes to who listens and notifies him; he does the same
 * back, to memory and a slot that he finds on the node that the notification came
 * from.  Half of that is a notification's time.
 *
 * Both sides either look at the number in their memory until it is there, or sleep
 * until it is: the answer and the wait for what follows are one call.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include <towline/slot.h>

#include "perf.h"
#include "perf_notify.h"

#define FIND_MS		5000
#define WARM_UP		100U
#define REGION_SLOT	0
/* In a cache line of their own, behind the slot. */
#define REGION_DATA	64ULL
#define NS_PER_S	1000000000ULL
#define US_PER_S	1000000U
/* Nobody answers. */
#define SILENCE_S	10U
/* How often a look at memory is one at the clock, too. */
#define LOOKS		1024U

/* The side that measures. */
struct pinger {
	const struct perf_plan *plan;
	struct tow_device *dev;
	struct tow_region *region;
	struct tow_slot *slot;
	struct tow_exported *back;
	struct tow_peer *peer;
	struct tow_remote *ping;
	struct tow_remote *remote;
	struct perf_talk talk;
	uint64_t *times;
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* ---- what both sides do ---- */

static int put_notification(const struct perf_talk *talk)
{
	struct tow_sqe *sqe = tow_queue_get_sqe(talk->queue);

	if (!sqe)
		return -EBUSY;
	tow_prep_write_notify(sqe, talk->channel, talk->region, talk->offset, talk->to, 0,
			      talk->bytes, talk->notifies);
	tow_sqe_set_flags(sqe, TOW_SQE_SILENT);
	tow_sqe_set_data(sqe, PERF_SAID);
	return 0;
}

static int put_wait(struct perf_talk *talk, uint64_t number)
{
	struct tow_sqe *sqe = tow_queue_get_sqe(talk->queue);

	if (!sqe)
		return -EBUSY;
	tow_prep_wait(sqe, talk->slot, number);
	tow_sqe_set_data(sqe, PERF_HEARD);
	talk->waits = true;
	return 0;
}

/* As tow_queue_submit_and_wait(), for a while only. */
static int hand_over(struct tow_queue *queue, uint32_t count, uint32_t timeout_us)
{
	uint32_t taken = tow_load_acquire(&queue->ring->sq_head);

	tow_store_release(&queue->ring->sq_tail, queue->sq_tail);
	return tow_queue_enter(queue, queue->sq_tail - taken, count, timeout_us);
}

int perf_take_one(struct perf_talk *talk)
{
	const struct tow_cqe *cqe;
	int ret = tow_queue_peek_cqe(talk->queue, &cqe);

	if (ret)
		return ret;
	ret = cqe->status;
	if (cqe->user_data == PERF_HEARD)
		talk->waits = false;
	tow_queue_cqe_seen(talk->queue);
	return ret;
}

int perf_begin_wait(struct perf_talk *talk, uint64_t number)
{
	int ret = put_wait(talk, number);

	if (!ret)
		ret = tow_queue_submit(talk->queue);
	return ret < 0 ? ret : 0;
}

/* Sleep until the number is there. */
static int sleep_for(struct perf_talk *talk, uint64_t number)
{
	int ret = put_wait(talk, number);

	if (!ret)
		ret = hand_over(talk->queue, 1, talk->silence_us);
	if (ret < 0)
		return ret;
	ret = perf_take_one(talk);
	return ret == -EAGAIN ? -ETIMEDOUT : ret;
}

/* Look for it; a completion says that what was said last has failed. */
static int look_for(struct perf_talk *talk, uint64_t number)
{
	uint64_t end = now_ns() + talk->silence_us * 1000ULL;
	uint32_t looks = 0;
	int ret;

	ret = tow_queue_submit(talk->queue);
	while (ret >= 0 && tow_slot_value(talk->slot) < number) {
		if (++looks % LOOKS)
			continue;
		ret = perf_take_one(talk);
		if (ret == -EAGAIN)
			ret = now_ns() < end ? 0 : -ETIMEDOUT;
	}
	return ret < 0 ? ret : 0;
}

int perf_say_and_hear(struct perf_talk *talk, uint64_t number)
{
	int ret = put_notification(talk);

	if (ret)
		return ret;
	return talk->sleeps ? sleep_for(talk, number) : look_for(talk, number);
}

/* ---- the side that measures ---- */

static int run(struct pinger *pinger)
{
	uint64_t number = 0, count = WARM_UP + pinger->plan->iterations;
	uint64_t before, after;
	int ret = 0;

	/* The first answer takes whatever its sender has to find. */
	before = now_ns();
	while (!ret && number < count) {
		ret = perf_say_and_hear(&pinger->talk, number + 1);
		after = now_ns();
		if (number >= WARM_UP)
			pinger->times[number - WARM_UP] = (after - before) / 2;
		before = after;
		number++;
	}
	return ret;
}

static int run_timed(struct pinger *pinger, struct perf_result *result)
{
	uint64_t all = 0;
	int ret = run(pinger);

	if (ret)
		return ret;
	for (uint64_t i = 0; i < pinger->plan->iterations; i++)
		all += 2 * pinger->times[i];
	perf_sum_up(pinger->times, pinger->plan->iterations, pinger->plan->bytes,
		    (double)all / (double)NS_PER_S, result);
	return 0;
}

/* What the other side finds here. */
static int publish(struct pinger *pinger)
{
	uint64_t bytes = pinger->plan->bytes;
	int ret;

	ret = tow_region_create(pinger->dev, REGION_DATA + 2 * bytes, NULL, &pinger->region);
	if (!ret)
		ret = tow_export(pinger->region, REGION_DATA, bytes, PERF_BACK, TOW_RIGHT_WRITE,
				 &pinger->back);
	if (!ret)
		ret = tow_slot_create(pinger->region, REGION_SLOT, PERF_PONG, &pinger->slot);
	return ret;
}

/* What is there of the other side. */
static int find(struct pinger *pinger)
{
	const char *name = pinger->plan->sleeps ? PERF_PING_SLEEP : PERF_PING_LOOK;
	int ret;

	ret = tow_resolve(pinger->peer, PERF_NAME, TOW_RIGHT_WRITE, FIND_MS, &pinger->remote);
	if (!ret)
		ret = tow_resolve(pinger->peer, name, TOW_RIGHT_NOTIFY, FIND_MS, &pinger->ping);
	if (!ret && tow_remote_bytes(pinger->remote) < pinger->plan->bytes)
		ret = -ERANGE;
	return ret;
}

static int make_talk(struct pinger *pinger)
{
	struct perf_talk *talk = &pinger->talk;
	int ret;

	ret = tow_queue_create(pinger->dev, 4, 0, &talk->queue);
	if (!ret)
		ret = tow_channel_get(talk->queue, pinger->peer, 0, &talk->channel);
	talk->sleeps = pinger->plan->sleeps;
	talk->silence_us = SILENCE_S * US_PER_S;
	talk->region = pinger->region;
	talk->offset = REGION_DATA + pinger->plan->bytes;
	talk->bytes = pinger->plan->bytes;
	talk->slot = pinger->slot;
	talk->to = pinger->remote;
	talk->notifies = pinger->ping;
	return ret;
}

/* What could not be had, and why in @error; 0 there: all is there. */
static const char *make_pinger(struct pinger *pinger, const char *address, int *error)
{
	*error = tow_peer_connect(pinger->dev, address, NULL, 0, &pinger->peer);
	if (*error)
		return NULL;
	*error = publish(pinger);
	if (*error)
		return "nothing to be notified by";
	*error = find(pinger);
	if (*error)
		return *error == -ERANGE ? "more than who listens has: start it with -s, too" :
					   "nothing to measure with: is 'towline perf --listen' "
					   "running there, for nobody else?";
	*error = make_talk(pinger);
	if (*error)
		return "no queue";
	pinger->times = calloc(pinger->plan->iterations, sizeof(*pinger->times));
	if (!pinger->times)
		*error = -ENOMEM;
	return "no memory";
}

static void free_pinger(struct pinger *pinger)
{
	free(pinger->times);
	tow_queue_destroy(pinger->talk.queue);
	tow_remote_release(pinger->ping);
	tow_remote_release(pinger->remote);
	tow_slot_destroy(pinger->slot);
	tow_unexport(pinger->back);
	tow_region_destroy(pinger->region);
	tow_peer_release(pinger->peer);
}

bool perf_measure_notify(struct tow_device *dev, const char *address,
			 const struct perf_plan *plan, struct perf_result *result,
			 struct perf_failure *failure)
{
	struct pinger pinger = { .plan = plan, .dev = dev };

	failure->what = make_pinger(&pinger, address, &failure->error);
	if (!failure->error) {
		failure->what = "no answer";
		failure->error = run_timed(&pinger, result);
	}
	free_pinger(&pinger);
	return !failure->error;
}

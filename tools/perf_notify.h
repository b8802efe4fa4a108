/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * towline perf: what the side that measures notifications (perf_notify.c) and the one
 * that answers them (perf_answer.c) have in common.
 */
#ifndef TOW_PERF_NOTIFY_H
#define TOW_PERF_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

#include <towline/slot.h>

/* Slots of who listens: he looks for notifications in one, sleeps for the other. */
#define PERF_PING_LOOK	PERF_NAME ".look"
#define PERF_PING_SLEEP	PERF_NAME ".sleep"

/* A slot of who measures, and memory. */
#define PERF_PONG	PERF_NAME ".pong"
#define PERF_BACK	PERF_NAME ".back"

/* What entries' completions say: one that notifies has one only if it failed. */
#define PERF_SAID	1
#define PERF_HEARD	2

/*
 * A notification with @bytes at @offset of @region, and the wait for one: asleep, or
 * with an eye on @slot, for @silence_us at most.  @waits: an entry waits in @queue, and
 * has not completed.
 */
struct perf_talk {
	struct tow_queue *queue;
	struct tow_channel *channel;
	struct tow_region *region;
	uint64_t offset;
	uint64_t bytes;
	struct tow_remote *to;
	struct tow_remote *notifies;
	struct tow_slot *slot;
	bool sleeps;
	uint32_t silence_us;
	bool waits;
};

/*
 * Notify the other side, and wait until we have been notified so often: 0, -ETIMEDOUT,
 * or what went wrong.
 */
int perf_say_and_hear(struct perf_talk *talk, uint64_t number);

/* Have an entry wait until we have been notified so often: 0 or a negative errno. */
int perf_begin_wait(struct perf_talk *talk, uint64_t number);

/* A completion of @queue, if there is one: its status, or -EAGAIN. */
int perf_take_one(struct perf_talk *talk);

#endif /* TOW_PERF_NOTIFY_H */

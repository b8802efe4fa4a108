/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * What the library remembers about a queue: queue.c makes and ends it, copy.c has
 * the copies.
 */
#ifndef TOW_CORE_QUEUE_H
#define TOW_CORE_QUEUE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <towline/queue.h>

struct channel;
struct copies;
struct tow_device;

struct towi_queue {
	const struct tow_device *dev;
	int fd;
	size_t map_bytes;
	uint32_t results_offset;	/* in the rings; 0: it has no results */
	/* Protects everything below, and of a queue that copies the rest of it, too. */
	pthread_mutex_t lock;
	struct channel *channels;
	uint32_t closed;		/* channels, ever */
	bool keeps;			/* the module closes none */
	/* NULL until the first copy. */
	struct copies *copies;
};

/* Also in a child, where the queue is empty and this is not. */
struct towi_queue *towi_queue_of(const struct tow_queue *queue);

/*
 * Publish the entries that were taken, and see that somebody looks: 0 or a negative
 * errno.  With TOW_QUEUE_POLL.
 */
int towi_queue_publish(struct tow_queue *queue);

/* Wait for a completion after @since, whoever deals with it: as tow_queue_enter(). */
int towi_queue_wait_since(struct tow_queue *queue, uint32_t since, uint32_t timeout_us);

/*
 * Channels to the peer of @channel, which is the first, of a queue pair each, @count of which it
 * has.  Those that are missing are opened, if that takes no waiting; without the lock.
 */
void towi_channels_open_beside(struct tow_channel *channel, uint32_t count);

/* Up to @count of them that there are: how many @numbers.  With the lock, as others close them. */
uint32_t towi_channels_beside(struct tow_channel *channel, uint32_t count, uint16_t *numbers);

#endif /* TOW_CORE_QUEUE_H */

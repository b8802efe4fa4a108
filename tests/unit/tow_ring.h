/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A queue in memory, whose other side the test plays.  For one source file of a program, which is
 * linked with -Wl,--wrap=tow_queue_enter; after <kselftest.h>.
 *
 * It is one with TOW_QUEUE_POLL, so what is submitted is there without a call; whoever waits for
 * completions calls ring_turn(), which the test has.
 */
#ifndef TOW_RING_H
#define TOW_RING_H

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include <towline/queue.h>

#include "libshim/core/queue.h"

/* Where the library has what programs do not see of a queue. */
#define RING_BYTES	(((size_t)64 << 10) + sizeof(struct towi_queue))

/* The kernel's turn: somebody waits. */
static void ring_turn(struct tow_queue *queue);

static inline struct tow_queue *ring_make(uint32_t entries)
{
	struct tow_queue *queue = calloc(1, RING_BYTES);

	if (!queue)
		ksft_exit_fail_perror("calloc");
	towi_queue_of(queue)->fd = -1;
	queue->flags = TOW_QUEUE_POLL;
	queue->sq_entries = entries;
	queue->cq_entries = 2 * entries;
	queue->ring = calloc(1, sizeof(*queue->ring));
	queue->sqes = calloc(queue->sq_entries, sizeof(*queue->sqes));
	queue->cqes = calloc(queue->cq_entries, sizeof(*queue->cqes));
	if (!queue->ring || !queue->sqes || !queue->cqes)
		ksft_exit_fail_perror("calloc");
	return queue;
}

static inline void ring_free(struct tow_queue *queue)
{
	free(queue->ring);
	free(queue->sqes);
	free(queue->cqes);
	free(queue);
}

/* The next entry that was submitted, which is taken; NULL: there is none. */
static inline const struct tow_sqe *ring_take(struct tow_queue *queue)
{
	uint32_t head = queue->ring->sq_head;

	if (head == tow_load_acquire(&queue->ring->sq_tail))
		return NULL;
	tow_store_release(&queue->ring->sq_head, head + 1);
	return &queue->sqes[head % queue->sq_entries];
}

static inline void ring_complete(struct tow_queue *queue, uint64_t user_data, int status)
{
	uint32_t tail = queue->ring->cq_tail;
	struct tow_cqe *cqe = &queue->cqes[tail % queue->cq_entries];

	cqe->user_data = user_data;
	cqe->status = status;
	cqe->flags = 0;
	tow_store_release(&queue->ring->cq_tail, tail + 1);
}

int __wrap_tow_queue_enter(struct tow_queue *queue, uint32_t to_submit, uint32_t min_complete,
			   uint32_t timeout_us);

int __wrap_tow_queue_enter(struct tow_queue *queue, uint32_t to_submit, uint32_t min_complete,
			   uint32_t timeout_us)
{
	uint32_t before = tow_load_acquire(&queue->ring->cq_tail);

	(void)to_submit;
	(void)timeout_us;
	ring_turn(queue);
	return min_complete && tow_load_acquire(&queue->ring->cq_tail) == before ? -ETIMEDOUT : 0;
}

#endif /* TOW_RING_H */

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of this folder share and nobody else needs.
 */
#ifndef TOW_RING_INTERNAL_H
#define TOW_RING_INTERNAL_H

#include "device.h"
#include "queue.h"

/**
 * tow_queue_put - give a reference back
 * @queue: the queue; may be gone afterwards.  May sleep
 */
static inline void tow_queue_put(struct tow_queue *queue)
{
	kref_put(&queue->refs, queue->release);
}

static inline void tow_queue_release_later(struct kref *refs)
{
	struct tow_queue *queue = container_of(refs, struct tow_queue, refs);

	queue_work(tow_wq, &queue->free_work);
}

/**
 * tow_queue_put_later - give a reference back
 * @queue: the queue; may be gone afterwards
 *
 * In any context.
 */
static inline void tow_queue_put_later(struct tow_queue *queue)
{
	kref_put(&queue->refs, tow_queue_release_later);
}

#endif /* TOW_RING_INTERNAL_H */

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What sending and receiving messages have in common: their memory.
 */
#ifndef TOW_MESSAGE_H
#define TOW_MESSAGE_H

#include <linux/types.h>
#include <rdma/ib_verbs.h>

struct tow_session;

/**
 * struct tow_buffer - one message that is being sent or received
 * @cqe: its completion
 * @session: whose
 * @index: in the session's buffers
 * @mapped: @dma holds
 * @dma: of @data
 * @data: the message, TOW_WIRE_MESSAGE_BYTES; those of all buffers are one piece
 *	of memory, the first one's
 */
struct tow_buffer {
	struct ib_cqe		cqe;
	struct tow_session	*session;
	unsigned int		index;
	bool			mapped;
	u64			dma;
	u8			*data;
};

int tow_buffers_make(struct tow_session *session);
void tow_buffers_free(struct tow_session *session);

#endif /* TOW_MESSAGE_H */

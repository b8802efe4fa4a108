// SPDX-License-Identifier: GPL-2.0
/*
 * Messages of a session: the memory that they are sent from and received in.
 */
#include <linux/slab.h>

#include "device.h"
#include "message.h"
#include "session.h"

static struct tow_buffer *tow_buffers_alloc(void)
{
	struct tow_buffer *buffers;
	unsigned int i;
	u8 *data;

	buffers = kcalloc(TOW_WIRE_CREDITS, sizeof(*buffers), GFP_KERNEL);
	data = kcalloc(TOW_WIRE_CREDITS, TOW_WIRE_MESSAGE_BYTES, GFP_KERNEL);
	if (!buffers || !data) {
		kfree(buffers);
		kfree(data);
		return NULL;
	}
	for (i = 0; i < TOW_WIRE_CREDITS; i++)
		buffers[i].data = data + i * TOW_WIRE_MESSAGE_BYTES;
	return buffers;
}

static int tow_buffers_map(struct tow_session *session,
			   struct tow_buffer *buffers,
			   enum dma_data_direction direction)
{
	struct ib_device *ibdev = session->dev->ibdev;
	unsigned int i;

	for (i = 0; i < TOW_WIRE_CREDITS; i++) {
		struct tow_buffer *buffer = &buffers[i];

		buffer->session = session;
		buffer->index = i;
		buffer->dma = ib_dma_map_single(ibdev, buffer->data,
						TOW_WIRE_MESSAGE_BYTES,
						direction);
		if (ib_dma_mapping_error(ibdev, buffer->dma))
			return -ENOMEM;
		buffer->mapped = true;
	}
	return 0;
}

static void tow_buffers_unmap(struct tow_session *session,
			      struct tow_buffer *buffers,
			      enum dma_data_direction direction)
{
	unsigned int i;

	if (!buffers)
		return;
	for (i = 0; i < TOW_WIRE_CREDITS; i++) {
		if (buffers[i].mapped)
			ib_dma_unmap_single(session->dev->ibdev,
					    buffers[i].dma,
					    TOW_WIRE_MESSAGE_BYTES, direction);
	}
	kfree(buffers[0].data);
	kfree(buffers);
}

/**
 * tow_buffers_make - memory for a session's messages
 * @session: the session
 *
 * tow_buffers_free() undoes it, after errors too.
 *
 * Return: 0 or -ENOMEM.
 */
int tow_buffers_make(struct tow_session *session)
{
	int ret;

	session->send = tow_buffers_alloc();
	session->receive = tow_buffers_alloc();
	if (!session->send || !session->receive)
		return -ENOMEM;
	ret = tow_buffers_map(session, session->send, DMA_TO_DEVICE);
	if (!ret)
		ret = tow_buffers_map(session, session->receive,
				      DMA_FROM_DEVICE);
	return ret;
}

/**
 * tow_buffers_free - undo tow_buffers_make()
 * @session: the session; its control queue pair is destroyed
 */
void tow_buffers_free(struct tow_session *session)
{
	tow_buffers_unmap(session, session->send, DMA_TO_DEVICE);
	tow_buffers_unmap(session, session->receive, DMA_FROM_DEVICE);
	session->send = NULL;
	session->receive = NULL;
}

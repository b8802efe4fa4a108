// SPDX-License-Identifier: GPL-2.0
/*
 * Messages of a session: sending.
 *
 * Each end keeps TOW_WIRE_CREDITS receives posted and tells, in every message,
 * how many messages it has dealt with; so each knows how many it may send, and
 * never more are on their way than there are receives.  The last credit is kept
 * for the message that gives credit back (and for a session's last one), the last
 * but one for heartbeats: two ends that have much to say cannot lock each other
 * out.
 */
#include <linux/jiffies.h>
#include <linux/slab.h>

#include "device.h"
#include "message.h"
#include "tie.h"
#include "trace.h"

/* Credit is given back without anything else to say when so much is due. */
#define TOW_CREDITS_DUE		(TOW_WIRE_CREDITS / 2)

/* How long the last message may take before the queue pair goes. */
#define TOW_GOODBYE_MS		200

/**
 * struct tow_message - what waits to be sent
 * @link: in tow_session.queue
 * @type: enum tow_wire_type
 * @request: as in the header
 * @bytes: of @body
 * @body: the message but its header
 */
struct tow_message {
	struct list_head	link;
	u8			type;
	u32			request;
	size_t			bytes;
	u8			body[];
};

static u32 tow_credits_left(struct tow_session *session)
{
	return TOW_WIRE_CREDITS -
	       (session->credits_used - READ_ONCE(session->granted));
}

static struct tow_buffer *tow_buffer_get(struct tow_session *session)
{
	unsigned int index;

	lockdep_assert_held(&session->pump);
	index = find_first_zero_bit(&session->busy_buffers, TOW_WIRE_CREDITS);
	if (index >= TOW_WIRE_CREDITS)
		return NULL;
	set_bit(index, &session->busy_buffers);
	return &session->send[index];
}

static void tow_message_sent(struct ib_cq *cq, struct ib_wc *wc)
{
	struct tow_session *session = cq->cq_context;
	struct tow_buffer *buffer = container_of(wc->wr_cqe, struct tow_buffer,
						 cqe);

	clear_bit(buffer->index, &session->busy_buffers);
	if (wc->status == IB_WC_SUCCESS)
		WRITE_ONCE(session->heard_at, jiffies);
	else
		tow_session_fail(session, -ECONNRESET, TOW_WIRE_FAILED,
				 "a message could not be sent");
	wake_up_all(&session->wait);
	tow_session_kick(session);
}

/* Number it, sign it, post it. */
static int tow_message_post(struct tow_session *session,
			    struct tow_buffer *buffer, u8 type, u32 request,
			    size_t bytes)
{
	struct ib_device *ibdev = session->dev->ibdev;
	struct tow_wire_header *header = (void *)buffer->data;
	struct ib_sge sge = {
		.addr	= buffer->dma,
		.length	= sizeof(*header) + bytes,
		.lkey	= session->dev->peers.control_pd->local_dma_lkey,
	};
	struct ib_send_wr wr = {
		.wr_cqe		= &buffer->cqe,
		.sg_list	= &sge,
		.num_sge	= 1,
		.opcode		= IB_WR_SEND,
		.send_flags	= IB_SEND_SIGNALED,
	};
	u32 received = READ_ONCE(session->received);
	int ret;

	lockdep_assert_held(&session->pump);
	memset(header, 0, sizeof(*header));
	header->bytes = cpu_to_le16(sge.length);
	header->type = type;
	header->request = cpu_to_le32(request);
	header->counter = cpu_to_le64(session->counter_out + 1);
	header->credits = cpu_to_le32(received);
	ib_dma_sync_single_for_cpu(ibdev, buffer->dma, TOW_WIRE_MESSAGE_BYTES,
				   DMA_TO_DEVICE);
	ret = tow_auth_sign(&session->auth, buffer->data, sge.length);
	ib_dma_sync_single_for_device(ibdev, buffer->dma,
				      TOW_WIRE_MESSAGE_BYTES, DMA_TO_DEVICE);
	if (ret)
		goto err_free_buffer;
	buffer->cqe.done = tow_message_sent;
	/* Before it is posted: its answer may be there before we are back. */
	WRITE_ONCE(session->credits_used, session->credits_used + 1);
	ret = ib_post_send(session->control.id->qp, &wr, NULL);
	if (ret)
		goto err_take_credit;
	session->counter_out++;
	session->credits_told = received;
	WRITE_ONCE(session->said_at, jiffies);
	if (type != TOW_WIRE_HEARTBEAT && type != TOW_WIRE_CREDIT)
		WRITE_ONCE(session->busy_at, jiffies);
	if (session->peer)
		atomic64_inc(&session->peer->sent);
	trace_tow_message(session, true, type, request, sge.length);
	return 0;

err_take_credit:
	WRITE_ONCE(session->credits_used, session->credits_used - 1);
err_free_buffer:
	clear_bit(buffer->index, &session->busy_buffers);
	return ret;
}

static struct tow_message *tow_message_next(struct tow_session *session)
{
	struct tow_message *message;
	unsigned long flags;

	spin_lock_irqsave(&session->lock, flags);
	message = list_first_entry_or_null(&session->queue, struct tow_message,
					   link);
	if (message) {
		list_del(&message->link);
		session->queued--;
	}
	spin_unlock_irqrestore(&session->lock, flags);
	return message;
}

/*
 * What the directory has to say.  SYNC comes after what it says to resolvers, by
 * which these know what was revoked.
 */
static size_t tow_message_of_tie(struct tow_session *session, u8 *type,
				 u32 *request, void *body)
{
	struct tow_tie *tie = session->tie;
	size_t bytes;

	bytes = tow_directory_fill(tie, session->synced, type, request, body);
	if (*type) {
		tow_tie_log_add(session, *type, *request, body, bytes);
	} else if (!session->synced) {
		session->synced = true;
		*type = TOW_WIRE_SYNC;
		bytes = tow_replay_fill(tie, body);
	}
	return bytes;
}

/* Put what is to be sent next into a buffer.  Return: false: there is nothing. */
static bool tow_message_take(struct tow_session *session,
			     struct tow_buffer *buffer, u8 *type, u32 *request,
			     size_t *bytes)
{
	void *body = buffer->data + sizeof(struct tow_wire_header);
	struct tow_message *message = tow_message_next(session);

	if (message) {
		*type = message->type;
		*request = message->request;
		*bytes = message->bytes;
		memcpy(body, message->body, message->bytes);
		kfree(message);
		return true;
	}
	if (READ_ONCE(session->state) != TOW_SESSION_READY)
		return false;
	if (tow_tie_log_next(session, type, request, body, bytes))
		return true;
	*type = 0;
	*request = 0;
	*bytes = tow_window_fill(session, type, body);
	if (!*type && tow_tie_log_has_room(session))
		*bytes = tow_message_of_tie(session, type, request, body);
	return *type;
}

static int tow_pump_messages(struct tow_session *session)
{
	struct tow_buffer *buffer;
	size_t bytes;
	u32 request;
	u8 type;
	int ret;

	while (tow_credits_left(session) > 2) {
		buffer = tow_buffer_get(session);
		if (!buffer)
			return 0;
		if (!tow_message_take(session, buffer, &type, &request,
				      &bytes)) {
			clear_bit(buffer->index, &session->busy_buffers);
			return 0;
		}
		ret = tow_message_post(session, buffer, type, request, bytes);
		if (ret)
			return ret;
		if (tow_wire_lasts(type))
			tow_tie_log_posted(session);
	}
	return 0;
}

/*
 * A message without a body, that leaves @reserve credits.  Return: -ENOBUFS: it
 * cannot be sent now.
 */
static int tow_pump_bare(struct tow_session *session, u8 type, u32 reserve)
{
	struct tow_buffer *buffer;

	if (tow_credits_left(session) <= reserve)
		return -ENOBUFS;
	buffer = tow_buffer_get(session);
	if (!buffer)
		return -ENOBUFS;
	return tow_message_post(session, buffer, type, 0, 0);
}

static int tow_pump_credit(struct tow_session *session)
{
	int ret;

	if (READ_ONCE(session->received) - session->credits_told <
	    TOW_CREDITS_DUE)
		return 0;
	ret = tow_pump_bare(session, TOW_WIRE_CREDIT, 0);
	/* There will be a buffer, and then we are called again. */
	return ret == -ENOBUFS ? 0 : ret;
}

/**
 * tow_session_kick - send what there is to send
 * @session: the session
 *
 * In process context.  Not with locks that tow_directory_fill() takes.
 */
void tow_session_kick(struct tow_session *session)
{
	int ret = 0;

	mutex_lock(&session->pump);
	if (!session->closed) {
		ret = tow_pump_messages(session);
		if (!ret)
			ret = tow_pump_credit(session);
	}
	mutex_unlock(&session->pump);
	if (ret)
		tow_session_fail(session, ret, TOW_WIRE_FAILED,
				 "a message could not be posted");
}

/**
 * tow_session_heartbeat - say that we are there
 * @session: the session
 */
void tow_session_heartbeat(struct tow_session *session)
{
	int ret = 0;

	mutex_lock(&session->pump);
	if (!session->closed)
		ret = tow_pump_bare(session, TOW_WIRE_HEARTBEAT, 1);
	mutex_unlock(&session->pump);
	/* What is on its way says that we are there as well. */
	if (ret && ret != -ENOBUFS)
		tow_session_fail(session, ret, TOW_WIRE_FAILED,
				 "a heartbeat could not be posted");
}

/**
 * tow_session_say_ready - the responder's session is READY, and says so
 * @session: the session, AUTHENTICATED or further
 *
 * At once for everybody who sends: nothing that needs a READY session goes out
 * before READY does, and nothing comes in before we are.
 */
void tow_session_say_ready(struct tow_session *session)
{
	bool done;
	int ret = 0;

	mutex_lock(&session->pump);
	done = !session->closed &&
	       tow_session_set_state(session, TOW_SESSION_READY);
	if (done)
		ret = tow_pump_bare(session, TOW_WIRE_READY, 0);
	mutex_unlock(&session->pump);
	if (ret)
		tow_session_fail(session, ret, TOW_WIRE_FAILED,
				 "READY could not be posted");
	if (!done)
		return;
	tow_session_beats(session);
	tow_peer_session_ready(session);
	/* What is said again need not wait until the other end says something. */
	tow_session_kick(session);
}

/**
 * tow_session_send - send a message
 * @session: the session
 * @type: enum tow_wire_type
 * @request: for the header
 * @body: the message but its header
 * @bytes: of @body; at most TOW_WIRE_BODY_BYTES
 *
 * It is sent, in order, as soon as the other end has room for it.  In process
 * context; see tow_session_kick() for locks.
 *
 * Return: 0; -ECONNRESET: the session has ended; -ENOBUFS: too much waits to be
 * sent already; -ENOMEM.
 */
int tow_session_send(struct tow_session *session, u8 type, u32 request,
		     const void *body, size_t bytes)
{
	struct tow_message *message;
	unsigned long flags;
	int ret = 0;

	if (WARN_ON_ONCE(bytes > TOW_WIRE_BODY_BYTES))
		return -EINVAL;
	message = kmalloc(struct_size(message, body, bytes), GFP_KERNEL);
	if (!message)
		return -ENOMEM;
	message->type = type;
	message->request = request;
	message->bytes = bytes;
	if (bytes)
		memcpy(message->body, body, bytes);
	spin_lock_irqsave(&session->lock, flags);
	if (session->state >= TOW_SESSION_ENDING) {
		ret = -ECONNRESET;
	} else if (session->queued >= TOW_SESSION_QUEUE_MAX) {
		ret = -ENOBUFS;
	} else {
		list_add_tail(&message->link, &session->queue);
		session->queued++;
	}
	spin_unlock_irqrestore(&session->lock, flags);
	if (ret) {
		kfree(message);
		return ret;
	}
	tow_session_kick(session);
	return 0;
}

static void tow_session_say_goodbye(struct tow_session *session)
{
	struct tow_wire_goodbye *goodbye;
	struct tow_buffer *buffer;

	lockdep_assert_held(&session->pump);
	if (!tow_credits_left(session))
		return;
	buffer = tow_buffer_get(session);
	if (!buffer)
		return;
	goodbye = (void *)(buffer->data + sizeof(struct tow_wire_header));
	goodbye->reason = cpu_to_le32(session->reason);
	goodbye->reserved = 0;
	tow_message_post(session, buffer, TOW_WIRE_GOODBYE, 0,
			 sizeof(*goodbye));
}

/**
 * tow_session_close - the last message, and none after it
 * @session: the session, ENDING
 *
 * Waits, not for long, until the other end has it.
 */
void tow_session_close(struct tow_session *session)
{
	/* What comes in may overtake the connection manager's word of it. */
	bool connected = (session->control.step == TOW_LINK_ESTABLISHED ||
			  session->counter_in) && session->auth.send;
	/* Somebody who does not answer is not told why. */
	bool silent = session->error == -ETIMEDOUT &&
		      session->reason == TOW_WIRE_FAILED;
	struct tow_message *message;

	mutex_lock(&session->pump);
	if (connected && !session->told && !session->hung_up && !silent)
		tow_session_say_goodbye(session);
	session->closed = true;
	mutex_unlock(&session->pump);
	wait_event_timeout(session->wait, !READ_ONCE(session->busy_buffers),
			   msecs_to_jiffies(TOW_GOODBYE_MS));
	while ((message = tow_message_next(session)))
		kfree(message);
}

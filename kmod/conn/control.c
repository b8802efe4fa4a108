// SPDX-License-Identifier: GPL-2.0
/*
 * The control channel: messages of a session, and the memory that they are sent
 * from and received in.
 *
 * Sending
 *
 * Each end keeps TOW_WIRE_CREDITS receives posted, and every message says how
 * many messages its sender has handled.  So each end knows how many it may
 * send, and no more are on their way than there are receives.  The last credit
 * is kept for CREDIT, READY and GOODBYE, the last but one for HEARTBEAT: two
 * ends that both send a lot cannot block each other.
 *
 * Receiving
 *
 * The completion queue's work item handles messages one by one.  A message of
 * the wrong type, sender or size for the session's state is refused, although
 * its MAC is valid.  HEARTBEAT, CREDIT and GOODBYE are handled here, QPS and
 * READY by data.c; peer/ handles all others (tow_session_ops.receive), and
 * chooses what is sent next when no message is queued (tow_session_ops.fill).
 *
 * The session owns the buffers, from tow_buffers_make() until its control queue
 * pair is destroyed.
 */
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/slab.h>

#include "core/core.h"
#include "core/trace.h"
#include "peer.h"
#include "session.h"

/*
 * CREDIT is sent when so many messages were handled since the last message out.
 */
#define TOW_CREDITS_DUE		(TOW_WIRE_CREDITS / 2)

/* How long sends may take to complete before the queue pair is destroyed. */
#define TOW_GOODBYE_MS		200

/**
 * struct tow_buffer - one message that is being sent or received
 * @cqe: called on completion
 * @session: the session, which owns the buffer
 * @index: in the session's buffers
 * @mapped: @dma is valid
 * @posted_ns: when the message was posted, by ktime_get_ns()
 * @dma: DMA address of @data
 * @data: the message, TOW_WIRE_MESSAGE_BYTES.  All buffers share one
 *	allocation, which the first one's @data frees
 */
struct tow_buffer {
	struct ib_cqe		cqe;
	struct tow_session	*session;
	unsigned int		index;
	bool			mapped;
	u64			posted_ns;
	u64			dma;
	u8			*data;
};

/**
 * struct tow_message - a message that waits to be sent
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

/* ---- memory --------------------------------------------------------------- */

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

/* ---- sending -------------------------------------------------------------- */

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

/*
 * A message was acknowledged after @ns.  Smoothed as TCP does (RFC 6298).  Two
 * sessions of one peer may both be here: one of their times is lost then.
 */
static void tow_peer_measured(struct tow_peer *peer, u64 ns)
{
	u32 now = clamp_t(u64, ns, 1, U32_MAX);
	u32 least = READ_ONCE(peer->rtt_min_ns);
	s64 mean = READ_ONCE(peer->rtt_ns);

	WRITE_ONCE(peer->rtt_ns, mean ? mean + (now - mean) / 8 : now);
	if (!least || now < least)
		WRITE_ONCE(peer->rtt_min_ns, now);
}

static void tow_message_sent(struct ib_cq *cq, struct ib_wc *wc)
{
	struct tow_session *session = cq->cq_context;
	struct tow_buffer *buffer = container_of(wc->wr_cqe, struct tow_buffer,
						 cqe);
	u64 ns = ktime_get_ns() - buffer->posted_ns;
	struct tow_peer *peer = READ_ONCE(session->peer);

	clear_bit(buffer->index, &session->busy_buffers);
	if (wc->status == IB_WC_SUCCESS) {
		WRITE_ONCE(session->heard_at, jiffies);
		if (peer)
			tow_peer_measured(peer, ns);
	} else {
		tow_session_fail(session, -ECONNRESET, TOW_WIRE_FAILED,
				 "a message could not be sent");
	}
	wake_up_all(&session->wait);
	tow_session_kick(session);
}

/*
 * Number, sign and post the message in @buffer.  Frees the buffer after an
 * error.
 */
static int tow_message_post(struct tow_session *session,
			    struct tow_buffer *buffer, u8 type, u32 request,
			    size_t bytes)
{
	struct ib_device *ibdev = session->dev->ibdev;
	struct tow_wire_header *header = (void *)buffer->data;
	struct ib_sge sge = {
		.addr	= buffer->dma,
		.length	= sizeof(*header) + bytes,
		.lkey	= session->dev->peers->control_pd->local_dma_lkey,
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
	buffer->posted_ns = ktime_get_ns();
	/* Before posting: the answer may come before ib_post_send() returns. */
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

/* Put the next message into @buffer.  Return: false: nothing is to be sent. */
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
	return READ_ONCE(session->state) == TOW_SESSION_READY &&
	       tow_session_ops(session)->fill(session, type, request, body,
					      bytes);
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
	}
	return 0;
}

/*
 * Send a message without a body, and leave @reserve credits.  Return: -ENOBUFS:
 * it cannot be sent now.
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
	/*
	 * tow_message_sent() frees a buffer, and calls tow_session_kick()
	 * again.
	 */
	return ret == -ENOBUFS ? 0 : ret;
}

/**
 * tow_session_kick - send what is to be sent, as far as credits allow
 * @session: the session
 *
 * In process context.  Caller holds no lock that tow_session_ops.fill takes.
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
 * tow_session_heartbeat - send HEARTBEAT
 * @session: the session
 */
void tow_session_heartbeat(struct tow_session *session)
{
	int ret = 0;

	mutex_lock(&session->pump);
	if (!session->closed)
		ret = tow_pump_bare(session, TOW_WIRE_HEARTBEAT, 1);
	mutex_unlock(&session->pump);
	/* -ENOBUFS: messages are on their way, which serve as well. */
	if (ret && ret != -ENOBUFS)
		tow_session_fail(session, ret, TOW_WIRE_FAILED,
				 "a heartbeat could not be posted");
}

/**
 * tow_session_say_ready - make the responder's session READY, and send READY
 * @session: the session, AUTHENTICATED or further
 *
 * Both under @pump: no other sender can put a message that needs a READY session
 * before READY, and no such message comes in before the session is READY.
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
	tow_session_ops(session)->ready(session);
	/*
	 * What is said again does not wait for the other end's next message.
	 */
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
 * Messages are sent in order, as credits allow.  In process context; see
 * tow_session_kick() for locks.
 *
 * Return: 0; -ECONNRESET: the session is ENDING; -ENOBUFS: too many messages
 * wait to be sent; -ENOMEM.
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
 * tow_session_close - send GOODBYE, and nothing after it
 * @session: the session, ENDING
 *
 * Waits at most TOW_GOODBYE_MS until all sends have completed.
 */
void tow_session_close(struct tow_session *session)
{
	/* A message may overtake the connection manager's ESTABLISHED event. */
	bool connected = (session->control.step == TOW_LINK_ESTABLISHED ||
			  session->counter_in) && session->auth.send;
	/* No GOODBYE to a peer that has not answered. */
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

/* ---- what may be received ------------------------------------------------- */

#define TOW_IN_OPENING		BIT(TOW_SESSION_OPENING)
#define TOW_IN_AUTHENTICATED	BIT(TOW_SESSION_AUTHENTICATED)
#define TOW_IN_READY		BIT(TOW_SESSION_READY)

/**
 * struct tow_rule - when a message of one type may be received
 * @states: bits of the session's states in which it may come
 * @from_initiator: the initiator may send it
 * @from_responder: the responder may send it
 * @bytes: size of its body
 * @more: the body may be larger than @bytes
 */
struct tow_rule {
	u32	states;
	bool	from_initiator;
	bool	from_responder;
	size_t	bytes;
	bool	more;
};

/*
 * TOW_FIXED(): a body of exactly @size bytes.  TOW_AT_LEAST(): from either end.
 */
#define TOW_FIXED(where, initiator, responder, size)			\
	{ .states = (where), .from_initiator = (initiator),		\
	  .from_responder = (responder), .bytes = (size) }
#define TOW_AT_LEAST(where, size)					\
	{ .states = (where), .from_initiator = true,			\
	  .from_responder = true, .bytes = (size), .more = true }

static const struct tow_rule tow_rules[] = {
	[TOW_WIRE_AUTH] = TOW_FIXED(TOW_IN_OPENING, true, false,
				    sizeof(struct tow_wire_auth)),
	[TOW_WIRE_AUTHED] = TOW_FIXED(TOW_IN_OPENING, false, true,
				      sizeof(struct tow_wire_authed)),
	[TOW_WIRE_READY] = TOW_FIXED(TOW_IN_AUTHENTICATED, false, true, 0),
	[TOW_WIRE_QPS] = TOW_AT_LEAST(TOW_IN_AUTHENTICATED,
				      sizeof(struct tow_wire_qps)),
	[TOW_WIRE_HEARTBEAT] = TOW_FIXED(TOW_IN_AUTHENTICATED | TOW_IN_READY,
					 true, true, 0),
	[TOW_WIRE_CREDIT] = TOW_FIXED(TOW_IN_AUTHENTICATED | TOW_IN_READY,
				      true, true, 0),
	[TOW_WIRE_GOODBYE] = TOW_FIXED(TOW_IN_OPENING | TOW_IN_AUTHENTICATED |
				       TOW_IN_READY, true, true,
				       sizeof(struct tow_wire_goodbye)),
	[TOW_WIRE_RESOLVE] = TOW_AT_LEAST(TOW_IN_READY,
					  sizeof(struct tow_wire_resolve)),
	[TOW_WIRE_RESOLVE_MORE] = TOW_FIXED(TOW_IN_READY, true, true,
					    sizeof(struct tow_wire_resolve_more)),
	[TOW_WIRE_RESOLVED] = TOW_AT_LEAST(TOW_IN_READY,
					   sizeof(struct tow_wire_resolved)),
	[TOW_WIRE_CANCEL] = TOW_AT_LEAST(TOW_IN_READY, sizeof(__le32)),
	[TOW_WIRE_REVOKE] = TOW_AT_LEAST(TOW_IN_READY,
					 sizeof(struct tow_wire_grants)),
	[TOW_WIRE_REVOKED] = TOW_AT_LEAST(TOW_IN_READY,
					  sizeof(struct tow_wire_grants)),
	[TOW_WIRE_RELEASE] = TOW_AT_LEAST(TOW_IN_READY,
					  sizeof(struct tow_wire_grants)),
	[TOW_WIRE_NOTIFIED] = TOW_FIXED(TOW_IN_READY, true, true,
					sizeof(struct tow_wire_notified)),
	[TOW_WIRE_SYNC] = TOW_AT_LEAST(TOW_IN_READY,
				       sizeof(struct tow_wire_sync)),
};

static bool tow_message_in_place(struct tow_session *session, u8 type,
				 size_t bytes)
{
	enum tow_session_state state = READ_ONCE(session->state);
	const struct tow_rule *rule;

	if (type >= ARRAY_SIZE(tow_rules))
		return false;
	rule = &tow_rules[type];
	if (!(rule->states & BIT(state)))
		return false;
	if (session->initiator ? !rule->from_responder : !rule->from_initiator)
		return false;
	return rule->more ? bytes >= rule->bytes : bytes == rule->bytes;
}

/* ---- receiving ------------------------------------------------------------ */

static void tow_message_received(struct ib_cq *cq, struct ib_wc *wc);

static int tow_buffer_post_receive(struct tow_session *session,
				   struct tow_buffer *buffer)
{
	struct ib_sge sge = {
		.addr	= buffer->dma,
		.length	= TOW_WIRE_MESSAGE_BYTES,
		.lkey	= session->dev->peers->control_pd->local_dma_lkey,
	};
	struct ib_recv_wr wr = {
		.wr_cqe		= &buffer->cqe,
		.sg_list	= &sge,
		.num_sge	= 1,
	};

	buffer->cqe.done = tow_message_received;
	return ib_post_recv(session->control.id->qp, &wr, NULL);
}

/**
 * tow_session_post_receives - post all receives of the control queue pair
 * @session: the session; its control queue pair is new
 *
 * Return: 0, or the provider's error.
 */
int tow_session_post_receives(struct tow_session *session)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < TOW_WIRE_CREDITS && !ret; i++)
		ret = tow_buffer_post_receive(session, &session->receive[i]);
	return ret;
}

static int tow_message_goodbye(struct tow_session *session,
			       const struct tow_wire_goodbye *goodbye)
{
	u32 reason = le32_to_cpu(goodbye->reason);

	if (goodbye->reserved)
		return -EPROTO;
	WRITE_ONCE(session->told, true);
	tow_session_fail(session, tow_session_error_of(reason), reason,
			 "the other end said goodbye");
	return 0;
}

static int tow_message_dispatch(struct tow_session *session, u8 type,
				u32 request, void *body, size_t bytes)
{
	if (!tow_message_in_place(session, type, bytes))
		return -EPROTO;
	if (request && type != TOW_WIRE_RESOLVE_MORE)
		return -EPROTO;
	switch (type) {
	case TOW_WIRE_READY:
		return tow_data_ready(session);
	case TOW_WIRE_QPS:
		return tow_data_receive(session, body, bytes);
	case TOW_WIRE_HEARTBEAT:
	case TOW_WIRE_CREDIT:
		return 0;
	case TOW_WIRE_GOODBYE:
		return tow_message_goodbye(session, body);
	default:
		return tow_session_ops(session)->receive(session, type, request,
							 body, bytes);
	}
}

/* Check a message's header, and take the credits in it. */
static int tow_message_check(struct tow_session *session,
			     struct tow_wire_header *header, size_t bytes)
{
	u32 credits;

	if (bytes < sizeof(*header) || le16_to_cpu(header->bytes) != bytes)
		return -EPROTO;
	if (!tow_auth_verify(&session->auth, header, bytes))
		return -EKEYREJECTED;
	if (le64_to_cpu(header->counter) != session->counter_in + 1)
		return -EPROTO;
	session->counter_in++;
	if (header->reserved || header->reserved2)
		return -EPROTO;
	/* At most as many as we have sent, at least as many as before. */
	credits = le32_to_cpu(header->credits);
	if (credits - session->granted >
	    READ_ONCE(session->credits_used) - session->granted)
		return -EPROTO;
	WRITE_ONCE(session->granted, credits);
	return 0;
}

static int tow_message_handle(struct tow_session *session,
			      struct tow_buffer *buffer, size_t bytes)
{
	struct tow_wire_header *header = (void *)buffer->data;
	int ret;

	ret = tow_message_check(session, header, bytes);
	if (ret)
		return ret;
	if (header->type != TOW_WIRE_HEARTBEAT &&
	    header->type != TOW_WIRE_CREDIT)
		WRITE_ONCE(session->busy_at, jiffies);
	if (session->peer)
		atomic64_inc(&session->peer->received);
	trace_tow_message(session, false, header->type,
			  le32_to_cpu(header->request), bytes);
	return tow_message_dispatch(session, header->type,
				    le32_to_cpu(header->request), header + 1,
				    bytes - sizeof(*header));
}

/*
 * End a session because of a message that could not be handled.  It counts as
 * hostile if the peer has proved itself and the session was not ENDING; a node
 * without proof is counted by tow_session_end().
 */
static void tow_message_refused(struct tow_session *session, int error)
{
	bool hostile = error == -EPROTO || error == -EKEYREJECTED;

	if (tow_session_fail(session, error, tow_session_reason_of(error),
			     hostile ? "a message that must not be" :
			     "a message that could not be dealt with") &&
	    hostile && session->peer)
		tow_stat_inc(session->dev, TOW_STAT_HOSTILE);
}

static void tow_message_received(struct ib_cq *cq, struct ib_wc *wc)
{
	struct tow_session *session = cq->cq_context;
	struct ib_device *ibdev = session->dev->ibdev;
	struct tow_buffer *buffer = container_of(wc->wr_cqe, struct tow_buffer,
						 cqe);
	int ret;

	if (wc->status != IB_WC_SUCCESS) {
		if (wc->status != IB_WC_WR_FLUSH_ERR)
			tow_session_fail(session, -EPROTO, TOW_WIRE_PROTOCOL,
					 "a message that could not be received");
		return;
	}
	if (tow_session_invalidated(session, wc)) {
		tow_message_refused(session, -EPROTO);
		return;
	}
	/* Messages to a session that is ENDING are dropped. */
	if (!tow_session_alive(session))
		return;
	/*
	 * The responder sends nothing before AUTH.  Pairs with
	 * tow_peer_install(): the keys are visible here when the peer is.
	 */
	if (session->initiator && !smp_load_acquire(&session->peer)) {
		/*
		 * Most likely GOODBYE: -ECONNRESET, so that connecting is
		 * retried.
		 */
		tow_session_fail(session, -ECONNRESET, TOW_WIRE_PROTOCOL,
				 "a message before its time");
		return;
	}
	WRITE_ONCE(session->heard_at, jiffies);
	ib_dma_sync_single_for_cpu(ibdev, buffer->dma, TOW_WIRE_MESSAGE_BYTES,
				   DMA_FROM_DEVICE);
	ret = tow_message_handle(session, buffer, wc->byte_len);
	ib_dma_sync_single_for_device(ibdev, buffer->dma,
				      TOW_WIRE_MESSAGE_BYTES, DMA_FROM_DEVICE);
	if (ret) {
		tow_message_refused(session, ret);
		return;
	}
	ret = tow_buffer_post_receive(session, buffer);
	if (ret) {
		tow_session_fail(session, ret, TOW_WIRE_FAILED,
				 "a receive could not be posted");
		return;
	}
	WRITE_ONCE(session->received, session->received + 1);
	tow_session_kick(session);
}

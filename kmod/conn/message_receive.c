// SPDX-License-Identifier: GPL-2.0
/*
 * Messages of a session: receiving.
 *
 * What comes in is dealt with one by one, by the completion queue's work item.
 * Each step that a message has to take is refused if it is not its turn: a
 * message is never believed because it was authenticated.
 */
#include <linux/jiffies.h>

#include "device.h"
#include "message.h"
#include "tie.h"
#include "trace.h"

/* ---- what may be received ------------------------------------------------- */

#define TOW_IN_OPENING		BIT(TOW_SESSION_OPENING)
#define TOW_IN_AUTHENTICATED	BIT(TOW_SESSION_AUTHENTICATED)
#define TOW_IN_READY		BIT(TOW_SESSION_READY)

/**
 * struct tow_rule - when a message is in its place
 * @states: bits of the states that it may come in
 * @from_initiator: the initiator may send it
 * @from_responder: the responder may
 * @bytes: of its body
 * @more: it may have more
 */
struct tow_rule {
	u32	states;
	bool	from_initiator;
	bool	from_responder;
	size_t	bytes;
	bool	more;
};

/* A body of one size, or of one at least; who sends it is told by the others. */
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
	[TOW_WIRE_READY] = TOW_FIXED(TOW_IN_AUTHENTICATED, true, true, 0),
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
	[TOW_WIRE_CANCEL] = TOW_FIXED(TOW_IN_READY, true, true, 0),
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
		.lkey	= session->dev->peers.control_pd->local_dma_lkey,
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
 * tow_session_post_receives - be ready for the other end's first messages
 * @session: the session; its control queue pair was just made
 *
 * Return: 0, or what the provider says.
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

static int tow_message_authed(struct tow_session *session,
			      const struct tow_wire_authed *authed)
{
	int ret = tow_tie_answered(session, authed);

	if (ret == -EPROTO)
		return ret;
	if (ret)
		tow_session_fail(session, ret, tow_session_reason_of(ret),
				 "it cannot go on");
	else
		tow_session_set_state(session, TOW_SESSION_AUTHENTICATED);
	return 0;
}

static int tow_message_ready(struct tow_session *session)
{
	unsigned long flags;

	if (session->initiator) {
		/* The responder answers ours with its own. */
		if (!READ_ONCE(session->ready_said))
			return -EPROTO;
		if (tow_session_set_state(session, TOW_SESSION_READY)) {
			tow_session_beats(session);
			tow_peer_session_ready(session);
		}
		return 0;
	}
	spin_lock_irqsave(&session->lock, flags);
	session->ready_heard = true;
	spin_unlock_irqrestore(&session->lock, flags);
	tow_accept_check_ready(session);
	return 0;
}

static int tow_message_dispatch(struct tow_session *session, u8 type,
				u32 request, void *body, size_t bytes)
{
	if (!tow_message_in_place(session, type, bytes))
		return -EPROTO;
	if (request && (type < TOW_WIRE_RESOLVE || type > TOW_WIRE_CANCEL))
		return -EPROTO;
	switch (type) {
	case TOW_WIRE_AUTH:
		return tow_accept_auth(session, body);
	case TOW_WIRE_AUTHED:
		return tow_message_authed(session, body);
	case TOW_WIRE_READY:
		return tow_message_ready(session);
	case TOW_WIRE_HEARTBEAT:
	case TOW_WIRE_CREDIT:
		return 0;
	case TOW_WIRE_GOODBYE:
		return tow_message_goodbye(session, body);
	case TOW_WIRE_NOTIFIED:
		return tow_window_told(session, body);
	case TOW_WIRE_SYNC:
		return tow_replay_receive(session, body, bytes);
	default:
		return tow_directory_receive(session->tie, type, request, body,
					     bytes);
	}
}

/* Is the header as it must be?  Takes the credits that it gives. */
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
	/* Not more than was sent, and never less than before. */
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
	ret = tow_message_dispatch(session, header->type,
				   le32_to_cpu(header->request), header + 1,
				   bytes - sizeof(*header));
	if (!ret)
		tow_tie_log_received(session, header->type);
	return ret;
}

/*
 * Who has not proved himself is counted when his session ends.  A message that comes
 * when we have ended it is nobody's fault, nor is one that we have no memory for.
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
	/* What comes after the end is nobody's. */
	if (!tow_session_alive(session))
		return;
	/* The responder has nothing to say before we have proved ourselves. */
	if (session->initiator && !smp_load_acquire(&session->peer)) {
		/* Its goodbye, most likely: then another try is worth while. */
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

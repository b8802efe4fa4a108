// SPDX-License-Identifier: GPL-2.0
/*
 * One queue pair of a session: making, connecting and destroying it; data queue
 * pairs are made and destroyed by those above (struct tow_link_ops).
 *
 * Normal operation
 *
 * The connection manager's handler only notes the link's step and wakes
 * waiters.  The initiator (active.c) or the responder (passive.c) does the
 * rest; data.c connects data queue pairs, of which the handler knows nothing.
 *
 * The end
 *
 * A queue pair is moved to the error state first, where all of its work
 * requests complete.  Then it is destroyed, which waits until the RDMA device
 * is done with it: from then on nothing that the other end has sent takes
 * effect.  Only then may memory that the queue pair reached be used for
 * something else.
 */
#include <linux/slab.h>
#include <linux/string.h>
#include <rdma/ib_cm.h>

#include "core/core.h"
#include "peer.h"
#include "session.h"

/*
 * Retries when the peer has no receive posted, as credits prevent.  7: no
 * limit.
 */
#define TOW_LINK_RNR_RETRIES	6

/* Between them; the connection manager's own is 655 ms. */
#define TOW_LINK_RNR_TIMER	IB_RNR_TIMER_000_64

/**
 * tow_link_init - initialise a data queue pair's link, without a queue pair
 * @link: the link
 * @assoc: the association that owns it
 * @index: which of the association's data queue pairs
 *
 * tow_link_cleanup() undoes it.
 */
void tow_link_init(struct tow_link *link, struct tow_assoc *assoc, int index)
{
	memset(link, 0, sizeof(*link));
	link->assoc = assoc;
	link->index = index;
	spin_lock_init(&link->lock);
	link->shares_end = &link->shares;
	link->starved_end = &link->starved;
}

/**
 * tow_link_cleanup - free what posting on a link needed
 * @link: the link, on which nothing is posted; there may be nothing to free
 */
void tow_link_cleanup(struct tow_link *link)
{
	kfree(link->works);
	link->works = NULL;
	kvfree(link->posts);
	link->posts = NULL;
}

/**
 * tow_link_init_control - initialise a control queue pair's link, without a
 *	queue pair
 * @link: the link
 * @session: the session that owns it
 */
void tow_link_init_control(struct tow_link *link, struct tow_session *session)
{
	tow_link_init(link, NULL, TOW_LINK_CONTROL);
	link->session = session;
}

/**
 * tow_link_carry - set the session that makes a link's next queue pair
 * @link: the link of a data queue pair; has no queue pair
 * @session: the session
 */
void tow_link_carry(struct tow_link *link, struct tow_session *session)
{
	spin_lock_bh(&link->lock);
	link->session = session;
	spin_unlock_bh(&link->lock);
}

/**
 * tow_link_qp_event - a queue pair's handler of events
 * @event: what happened
 * @context: the queue pair's link
 *
 * Called in any context, maybe with the provider's locks held.
 */
void tow_link_qp_event(struct ib_event *event, void *context)
{
	struct tow_link *link = context;

	switch (event->event) {
	case IB_EVENT_QP_FATAL:
	case IB_EVENT_QP_REQ_ERR:
	case IB_EVENT_QP_ACCESS_ERR:
		tow_session_fail(link->session, -EIO, TOW_WIRE_FAILED,
				 "queue pair error");
		break;
	case IB_EVENT_COMM_EST:
		/*
		 * A message came, but the connection manager's last one did not.
		 */
		if (link->id)
			rdma_notify(link->id, IB_EVENT_COMM_EST);
		break;
	default:
		break;
	}
}

/**
 * tow_link_create_control - create a session's control queue pair
 * @link: its link; @id is bound to our device
 *
 * tow_link_destroy_control() undoes it.
 *
 * Return: 0, or the provider's error.
 */
int tow_link_create_control(struct tow_link *link)
{
	struct tow_session *session = link->session;
	struct ib_qp_init_attr attr = {
		.event_handler		= tow_link_qp_event,
		.qp_context		= link,
		.send_cq		= session->cq,
		.recv_cq		= session->cq,
		.cap.max_send_wr	= TOW_WIRE_CREDITS + 1,
		.cap.max_recv_wr	= TOW_WIRE_CREDITS + 1,
		.cap.max_send_sge	= 1,
		.cap.max_recv_sge	= 1,
		.sq_sig_type		= IB_SIGNAL_REQ_WR,
		.qp_type		= IB_QPT_RC,
	};

	return rdma_create_qp(link->id, session->dev->peers->control_pd, &attr);
}

/**
 * tow_link_conn_param - fill in the parameters of a connection
 * @link: the link, with its identifier
 * @param: where to
 * @data: private data
 * @bytes: its size
 *
 * One read, which nobody makes: without any, data queue pairs would get no right
 * to reads from the connection manager, either.
 */
void tow_link_conn_param(struct tow_link *link, struct rdma_conn_param *param,
			 const void *data, u8 bytes)
{
	memset(param, 0, sizeof(*param));
	param->private_data = data;
	param->private_data_len = bytes;
	param->responder_resources = 1;
	param->initiator_depth = 1;
	rdma_set_min_rnr_timer(link->id, TOW_LINK_RNR_TIMER);
	param->retry_count = link->session->settings.retry_count;
	param->rnr_retry_count = TOW_LINK_RNR_RETRIES;
}

static void tow_link_note_step(struct tow_link *link, enum tow_link_step step)
{
	struct tow_session *session = link->session;
	unsigned long flags;

	spin_lock_irqsave(&session->lock, flags);
	link->step = step;
	spin_unlock_irqrestore(&session->lock, flags);
	wake_up_all(&session->wait);
}

static void tow_link_note_error(struct tow_link *link, int error)
{
	struct tow_session *session = link->session;
	unsigned long flags;

	spin_lock_irqsave(&session->lock, flags);
	if (!link->error)
		link->error = error;
	spin_unlock_irqrestore(&session->lock, flags);
	wake_up_all(&session->wait);
}

/*
 * Until the queue pair is connected the initiator waits, and decides on the
 * error; any other session ends here.
 */
static void tow_link_failed(struct tow_link *link, int error)
{
	tow_link_note_error(link, error);
	if (!link->session->initiator || link->step == TOW_LINK_ESTABLISHED)
		tow_session_fail(link->session, error, TOW_WIRE_FAILED,
				 "connection manager error");
}

/* Keep the responder's reply; active.c checks it. */
static void tow_link_accepted(struct tow_link *link,
			      const struct rdma_conn_param *param)
{
	struct tow_wire_reply *reply = &link->session->handshake.reply;

	if (param->private_data_len < sizeof(*reply)) {
		tow_link_note_error(link, -EPROTO);
		return;
	}
	memcpy(reply, param->private_data, sizeof(*reply));
	/*
	 * The reply's queue pair must be the one that the transport connects.
	 */
	if (param->qp_num != le32_to_cpu(reply->qp_num)) {
		tow_link_note_error(link, -EPROTO);
		return;
	}
	tow_link_note_step(link, TOW_LINK_ESTABLISHED);
}

/*
 * Why the other end's connection manager rejects a request: is it worth while to
 * ask again?  A node that was restarted may have a queue pair's number that
 * belongs to a connection which the other end has not given up yet.
 */
static bool tow_link_may_ask_again(int reason)
{
	return reason == IB_CM_REJ_NO_QP || reason == IB_CM_REJ_NO_RESOURCES ||
	       reason == IB_CM_REJ_TIMEOUT || reason == IB_CM_REJ_STALE_CONN;
}

/*
 * Our own rejection has a reason; any other means that no towline listens
 * there, or is for now only.
 */
static int tow_link_rejected(struct rdma_cm_id *id,
			     struct rdma_cm_event *event)
{
	const struct tow_wire_reject *reject;
	u8 bytes;

	reject = rdma_consumer_reject_data(id, event, &bytes);
	if (!reject || bytes < sizeof(*reject) ||
	    reject->magic != cpu_to_le32(TOW_WIRE_MAGIC))
		return tow_link_may_ask_again(event->status) ? -EAGAIN :
							       -ECONNREFUSED;
	if (reject->version < TOW_WIRE_LOWEST || reject->lowest > TOW_WIRE_VERSION)
		return -EPROTONOSUPPORT;
	return tow_session_error_of(le16_to_cpu(reject->reason));
}

static int tow_link_status(struct rdma_cm_event *event, int otherwise)
{
	return event->status < 0 ? event->status : otherwise;
}

/**
 * tow_link_event - the connection manager's handler
 * @id: the link's identifier
 * @event: what happened
 *
 * Return: 0 always: identifiers are destroyed with their links.
 */
int tow_link_event(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct tow_link *link = id->context;

	/* tow_parting_begin() has cleared it. */
	if (!link)
		return 0;
	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		tow_link_note_step(link, TOW_LINK_ADDRESS);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		tow_link_note_step(link, TOW_LINK_ROUTE);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (link->session->initiator)
			tow_link_accepted(link, &event->param.conn);
		else
			tow_link_note_step(link, TOW_LINK_ESTABLISHED);
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		/* Of a connection: the next hop's Ethernet address is another. */
		tow_link_failed(link, tow_link_status(event, -EHOSTUNREACH));
		break;
	case RDMA_CM_EVENT_CONNECT_ERROR:
		tow_link_failed(link, tow_link_status(event, -ECONNRESET));
		break;
	case RDMA_CM_EVENT_REJECTED:
		tow_link_failed(link, tow_link_rejected(id, event));
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		tow_link_note_error(link, -ECONNRESET);
		tow_session_hung_up(link->session);
		break;
	case RDMA_CM_EVENT_ADDR_CHANGE:
		tow_session_fail(link->session, -ECONNRESET, TOW_WIRE_FAILED,
				 "our Ethernet address is another");
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		tow_session_fail(link->session, -ENODEV, TOW_WIRE_GOING,
				 "device removed");
		break;
	default:
		break;
	}
	return 0;
}

/**
 * tow_link_disconnect - disconnect, and let everything that was posted complete
 * @link: the link, on which nothing is posted any more; may have no queue pair
 */
void tow_link_disconnect(struct tow_link *link)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };

	if (link->qp)
		ib_modify_qp(link->qp, &attr, IB_QP_STATE);
	if (!link->id || !link->id->qp)
		return;
	if (tow_parting_possible(link->id)) {
		rdma_disconnect(link->id);
		link->parted = link->step == TOW_LINK_ESTABLISHED;
	}
	ib_modify_qp(link->id->qp, &attr, IB_QP_STATE);
}

/**
 * tow_link_destroy_control - destroy a control queue pair and its identifier
 * @link: its link, disconnected; may have no queue pair or identifier
 */
void tow_link_destroy_control(struct tow_link *link)
{
	struct rdma_cm_id *id = link->id;
	bool asked;

	if (!id)
		return;
	/* No connection was requested or accepted without a queue pair. */
	asked = id->qp;
	if (asked)
		rdma_destroy_qp(id);
	if (asked && !link->parted)
		tow_parting_begin(link->session->dev, id);
	else
		rdma_destroy_id(id);
	link->id = NULL;
}

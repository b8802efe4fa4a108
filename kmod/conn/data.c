// SPDX-License-Identifier: GPL-2.0
/*
 * A session's data queue pairs, which both ends connect without the connection
 * manager.
 *
 * Each end makes its own, and says in QPS which they are.  The responder does so
 * when it has sent AUTHED.  The initiator connects its own to those, and says
 * which they are; then the responder connects its own, and says READY.  So
 * nobody posts before the other end's queue pair is able to receive.
 *
 * Before READY the path is proved, as what both ports take may still be more than what
 * is between them carries, which would go unnoticed until the first long operation: on
 * each queue pair each end sends a short packet, and one as long as the path MTU.  The
 * responder does so when its own are connected, the initiator when all of those have
 * come.  A queue pair's packets arrive in order: where the short one has and the long
 * one does not, it is too long.
 *
 * All else (address, path, partition, time-outs) is as the connection manager
 * knows it of the control queue pair, but for the path MTU, on which both ends have
 * agreed, and on RoCE the flow label: from 0 the driver makes one of the queue pairs'
 * numbers, so that each may go another way through the network.
 *
 * Devices take long to make queue pairs, so neither end does it in the handler of
 * a message: the initiator has a work item already, which connects; the responder
 * has tow_session.data_work.
 */
#include <linux/minmax.h>
#include <linux/random.h>
#include <rdma/rdma_cm.h>

#include "core/core.h"
#include "link.h"
#include "peer.h"
#include "session.h"

/* Reads in flight on one data queue pair, in each direction. */
#define TOW_DATA_READS		16

/* From when the connection manager knows that the other end has gone until we do. */
#define TOW_DATA_LAST_MS	200

/* Numbers of queue pairs and of packets. */
#define TOW_DATA_NUMBERS	BIT(24)

/*
 * Least ACK timeout to our own device, as an exponent: 1.07 s.  On the way there
 * no packet is lost, and an ACK is late only because a processor is.  Sending
 * again gains nothing then, and may make soft-RoCE break the connection
 * (Documentation/design/rings.md).
 */
#define TOW_DATA_SELF_TIMEOUT	18

static_assert(sizeof(struct tow_wire_qps) +
	      TOW_QPS_MAX * sizeof(__le32) <= TOW_WIRE_BODY_BYTES);

static u16 tow_data_reads(int most)
{
	return min(most, TOW_DATA_READS);
}

/**
 * tow_data_modify - move a data queue pair on
 * @link: its link; its session's control queue pair is connected
 * @state: to IB_QPS_INIT, IB_QPS_RTR or IB_QPS_RTS
 *
 * Return: 0; -ECONNRESET: the other end has disconnected the control queue pair; the
 * provider's error.
 */
int tow_data_modify(struct tow_link *link, enum ib_qp_state state)
{
	const struct tow_session *session = link->session;
	const struct ib_device_attr *attrs = &session->dev->ibdev->attrs;
	struct ib_qp_attr attr = { .qp_state = state };
	int mask = 0;

	/* It has none any more for what the other end has disconnected. */
	if (rdma_init_qp_attr(session->control.id, &attr, &mask))
		return -ECONNRESET;
	if (state == IB_QPS_RTR) {
		attr.path_mtu = session->handshake.reply.mtu;
		/* That of InfiniBand is the subnet manager's. */
		if (attr.ah_attr.type == RDMA_AH_ATTR_TYPE_ROCE)
			attr.ah_attr.grh.flow_label = 0;
		attr.dest_qp_num = link->far_qp;
		attr.rq_psn = session->far.psn;
		attr.max_dest_rd_atomic =
			min(tow_data_reads(attrs->max_qp_rd_atom),
			    session->far.asks);
	} else if (state == IB_QPS_RTS) {
		attr.sq_psn = session->psn;
		/* 0: none. */
		if (session->loopback && attr.timeout)
			attr.timeout = max_t(u8, attr.timeout,
					     TOW_DATA_SELF_TIMEOUT);
		attr.max_rd_atomic =
			min(tow_data_reads(attrs->max_qp_init_rd_atom),
			    session->far.answers);
	}
	return ib_modify_qp(link->qp, &attr, mask);
}

/* Do something with each of the session's links, unless it is ENDING. */
static int tow_data_each(struct tow_session *session,
			 int (*step)(struct tow_link *link))
{
	unsigned int i;
	int ret = 0;

	/* Let go of for each: whoever looks for what is cut off does not wait. */
	for (i = 0; !ret && i < session->qps; i++) {
		mutex_lock(&session->setup);
		ret = tow_session_alive(session) ? step(&session->data[i]) :
						   session->error;
		mutex_unlock(&session->setup);
	}
	return ret;
}

static int tow_data_join(struct tow_link *link)
{
	int ret = tow_data_modify(link, IB_QPS_RTR);

	return ret ?: tow_data_modify(link, IB_QPS_RTS);
}

/* Make this end's. */
static int tow_data_make(struct tow_session *session)
{
	session->psn = get_random_u32() % TOW_DATA_NUMBERS;
	return tow_data_each(session, session->dev->peers->link_ops->create);
}

/* Say which they are. */
static int tow_data_tell(struct tow_session *session)
{
	const struct ib_device_attr *attrs = &session->dev->ibdev->attrs;
	struct tow_wire_qps *qps;
	unsigned int i;
	int ret;

	qps = kzalloc(struct_size(qps, qp_num, session->qps), GFP_KERNEL);
	if (!qps)
		return -ENOMEM;
	qps->psn = cpu_to_le32(session->psn);
	qps->answers = cpu_to_le16(tow_data_reads(attrs->max_qp_rd_atom));
	qps->asks = cpu_to_le16(tow_data_reads(attrs->max_qp_init_rd_atom));
	qps->count = cpu_to_le32(session->qps);
	/* When the session is ENDING they may be gone, and be others. */
	mutex_lock(&session->setup);
	ret = tow_session_alive(session) ? 0 : session->error;
	for (i = 0; !ret && i < session->qps; i++)
		qps->qp_num[i] = cpu_to_le32(session->data[i].qp->qp_num);
	mutex_unlock(&session->setup);
	if (!ret)
		ret = tow_session_send(session, TOW_WIRE_QPS, 0, qps,
				       struct_size(qps, qp_num, session->qps));
	kfree(qps);
	return ret;
}

/* ---- proofs of the path ---------------------------------------------------- */

/*
 * Did a short packet arrive, here or there, and the long one after it not?  Where only
 * some queue pairs have that, packets got lost.
 */
static bool tow_data_too_long(const struct tow_session *session)
{
	unsigned int i;

	for (i = 0; i < session->qps; i++)
		if (READ_ONCE(session->data[i].proofs_acked) != 1 &&
		    READ_ONCE(session->data[i].proofs_in) != 1)
			return false;
	return true;
}

static void tow_data_proved(struct ib_cq *cq, struct ib_wc *wc)
{
	struct tow_link *link = container_of(wc->wr_cqe, struct tow_link,
					     proof_out);
	struct tow_session *session = link->session;

	tow_cq_retired(link->cq, 1);
	WRITE_ONCE(link->proofs_done, link->proofs_done + 1);
	if (wc->status == IB_WC_SUCCESS)
		WRITE_ONCE(link->proofs_acked, link->proofs_acked + 1);
	else if (wc->status == IB_WC_RETRY_EXC_ERR && link->proofs_acked)
		tow_session_fail(session, -EMSGSIZE, TOW_WIRE_TOO_LONG,
				 "packets of the path MTU do not arrive");
	else if (wc->status == IB_WC_RETRY_EXC_ERR)
		tow_session_fail(session, -ETIMEDOUT, TOW_WIRE_FAILED,
				 "packets to a data queue pair do not arrive");
	else if (wc->status != IB_WC_WR_FLUSH_ERR)
		tow_session_fail(session, -ECONNRESET, TOW_WIRE_FAILED,
				 "the path could not be proved");
}

static int tow_data_prove(struct tow_link *link)
{
	struct tow_session *session = link->session;
	struct tow_device *dev = session->dev;
	struct ib_sge sge = {
		.addr	= dev->peers->pads.out,
		.length	= 1,
		.lkey	= dev->pd->local_dma_lkey,
	};
	struct ib_send_wr wr = {
		.wr_cqe		= &link->proof_out,
		.sg_list	= &sge,
		.num_sge	= 1,
		.opcode		= IB_WR_SEND,
		.send_flags	= IB_SEND_SIGNALED,
	};
	int ret = 0;

	link->proof_out.done = tow_data_proved;
	while (!ret && link->proofs_posted < TOW_WIRE_PROOFS) {
		tow_cq_post(link->cq, 1);
		ret = ib_post_send(link->qp, &wr, NULL);
		if (!ret)
			WRITE_ONCE(link->proofs_posted, link->proofs_posted + 1);
		else
			tow_cq_retired(link->cq, 1);
		tow_cq_posted(link->cq);
		sge.length = ib_mtu_enum_to_int(session->handshake.reply.mtu);
	}
	return ret;
}

static bool tow_data_proofs_came(const struct tow_session *session)
{
	return atomic_read(&session->proofs) == session->qps;
}

static int tow_data_await(struct tow_session *session,
			  bool (*come)(const struct tow_session *session))
{
	return wait_event_timeout(session->wait, come(session) ||
				  !tow_session_alive(session),
				  msecs_to_jiffies(TOW_HANDSHAKE_MS)) ?
	       0 : tow_data_too_long(session) ? -EMSGSIZE : -ETIMEDOUT;
}

static bool tow_data_told(const struct tow_session *session)
{
	/* Pairs with tow_data_receive(). */
	return smp_load_acquire(&session->far.told);
}

/* Operations may be posted, but for those that SYNC decides on. */
static void tow_data_open(struct tow_session *session)
{
	unsigned int i;

	for (i = 0; !session->syncs && i < session->qps; i++) {
		struct tow_link *link = &session->data[i];

		/* Links are closed after their session has ceased to be alive. */
		spin_lock_bh(&link->lock);
		if (tow_session_alive(session))
			link->open = !link->over;
		spin_unlock_bh(&link->lock);
	}
}

/*
 * What the other end says of why it has disconnected comes soon, if it says something.
 * Return: @error.
 */
static int tow_data_hear_why(struct tow_session *session, int error)
{
	if (error == -ECONNRESET)
		wait_event_timeout(session->wait, !tow_session_alive(session),
				   msecs_to_jiffies(TOW_DATA_LAST_MS));
	return error;
}

/* ---- the initiator --------------------------------------------------------- */

static bool tow_data_is_ready(const struct tow_session *session)
{
	return READ_ONCE(session->state) == TOW_SESSION_READY;
}

/**
 * tow_data_connect - connect the initiator's data queue pairs
 * @session: the session, AUTHENTICATED
 *
 * Waits for the responder's.
 *
 * Return: 0: the session is READY; -ENOSPC; -ENOMEM; -ECONNRESET; the provider's
 * error; -ETIMEDOUT: the other end says nothing; -EMSGSIZE: packets of the path MTU do
 * not arrive; the session's error if it is ENDING.
 */
int tow_data_connect(struct tow_session *session)
{
	int ret = tow_data_make(session);

	if (!ret)
		ret = tow_data_await(session, tow_data_told);
	if (!ret)
		ret = tow_data_each(session, tow_data_join);
	if (!ret)
		ret = tow_data_tell(session);
	if (!ret)
		ret = tow_data_await(session, tow_data_proofs_came);
	if (!ret) {
		/* Before READY can come. */
		WRITE_ONCE(session->ready_due, true);
		ret = tow_data_each(session, tow_data_prove);
	}
	if (!ret)
		ret = tow_data_await(session, tow_data_is_ready);
	tow_data_hear_why(session, ret);
	return tow_session_alive(session) ? ret : session->error;
}

/**
 * tow_data_ready - the responder has said READY
 * @session: the initiator's session
 *
 * Return: 0; -EPROTO: it does not know our queue pairs yet, or the path is not proved.
 */
int tow_data_ready(struct tow_session *session)
{
	if (!READ_ONCE(session->ready_due))
		return -EPROTO;
	tow_data_open(session);
	if (tow_session_set_state(session, TOW_SESSION_READY)) {
		tow_session_beats(session);
		tow_session_ops(session)->ready(session);
	}
	return 0;
}

/* ---- the responder --------------------------------------------------------- */

static int tow_data_answer(struct tow_session *session)
{
	int ret = 0;

	if (!session->made) {
		session->made = true;
		ret = tow_data_make(session) ?: tow_data_tell(session);
	}
	/* What comes while this is running queues it again: QPS, or the last proof. */
	if (!ret && !session->joined && tow_data_told(session)) {
		session->joined = true;
		ret = tow_data_each(session, tow_data_join) ?:
		      tow_data_each(session, tow_data_prove);
	}
	if (ret || session->opened || !tow_data_proofs_came(session))
		return ret;
	session->opened = true;
	tow_data_open(session);
	tow_session_say_ready(session);
	return 0;
}

static void tow_data_work(struct work_struct *work)
{
	struct tow_session *session = container_of(work, struct tow_session,
						   data_work);
	int ret = tow_data_hear_why(session, tow_data_answer(session));

	if (ret)
		tow_session_fail(session, ret, tow_session_reason_of(ret),
				 "data queue pairs could not be connected");
	tow_session_put(session);
}

/**
 * tow_data_accept - have the responder go on with its data queue pairs
 * @session: the session, AUTHENTICATED
 */
void tow_data_accept(struct tow_session *session)
{
	tow_session_get(session);
	if (!queue_work(tow_accept_wq, &session->data_work))
		tow_session_put(session);
}

/* ---- both ------------------------------------------------------------------ */

/**
 * tow_data_receive - handle QPS: which data queue pairs the other end has
 * @session: the session, AUTHENTICATED
 * @qps: the message's body
 * @bytes: its size
 *
 * Return: 0; -EPROTO: the message is not valid.
 */
int tow_data_receive(struct tow_session *session,
		     const struct tow_wire_qps *qps, size_t bytes)
{
	u32 i, psn = le32_to_cpu(qps->psn);

	if (session->far.told || qps->reserved || psn >= TOW_DATA_NUMBERS ||
	    le32_to_cpu(qps->count) != session->qps ||
	    bytes != struct_size(qps, qp_num, session->qps) ||
	    !qps->answers || !qps->asks)
		return -EPROTO;
	for (i = 0; i < session->qps; i++) {
		session->data[i].far_qp = le32_to_cpu(qps->qp_num[i]);
		if (session->data[i].far_qp >= TOW_DATA_NUMBERS)
			return -EPROTO;
	}
	session->far.psn = psn;
	session->far.answers = le16_to_cpu(qps->answers);
	session->far.asks = le16_to_cpu(qps->asks);
	/* Pairs with tow_data_told(). */
	smp_store_release(&session->far.told, true);
	wake_up_all(&session->wait);
	if (!session->initiator)
		tow_data_accept(session);
	return 0;
}

/**
 * tow_data_end - wait until nobody makes or connects data queue pairs
 * @session: the session, ENDING; whoever connects waits for nothing any more
 */
void tow_data_end(struct tow_session *session)
{
	if (cancel_work_sync(&session->data_work))
		tow_session_put(session);
}

/**
 * tow_data_init - prepare a session's data queue pairs
 * @session: the session, new
 */
void tow_data_init(struct tow_session *session)
{
	INIT_WORK(&session->data_work, tow_data_work);
}

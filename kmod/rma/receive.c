// SPDX-License-Identifier: GPL-2.0
/*
 * Receives of data queue pairs: where notifications come in.
 *
 * Normal operation
 *
 * The peer may send all notifications that may be on their way in a session by
 * one queue pair, so each queue pair has TOW_NOTIFY_WINDOW receives.  They carry
 * no data: the immediate is in the completion.  Completions are handled in a
 * softirq (conn/cq.c), so that a consumer that sleeps is woken at once; each
 * receive is posted again before anything else.
 *
 * The first of them are for the other end's proofs of the path (conn/data.c),
 * whose bytes nobody looks at: those of all queue pairs share a place.
 *
 * The end
 *
 * Receives of a session that is ENDING are not posted again.  In the error state
 * all that are left complete, after the notifications that came before.  So
 * tow_link.arrived is final when no receive is posted any more.
 */
#include <rdma/ib_verbs.h>

#include "assoc.h"
#include "core/core.h"
#include "link.h"
#include "notify.h"
#include "sequence.h"
#include "slot.h"

static int tow_receive_post(struct tow_link *link, struct ib_qp *qp)
{
	struct ib_recv_wr wr = { .wr_cqe = &link->receive };

	return ib_post_recv(qp, &wr, NULL);
}

/* The peer broke the protocol.  @why: a string that stays, for the log. */
static void tow_receive_refuse(struct tow_session *session, const char *why)
{
	if (!tow_session_alive(session))
		return;
	tow_stat_inc(session->dev, TOW_STAT_HOSTILE);
	tow_session_fail(session, -EPROTO, TOW_WIRE_PROTOCOL, why);
}

/* Is it the completion of a notification? */
static bool tow_receive_notifies(const struct ib_wc *wc)
{
	return wc->opcode == IB_WC_RECV_RDMA_WITH_IMM &&
	       wc->wc_flags & IB_WC_WITH_IMM;
}

/* Count a notification of a session, on any of its queue pairs. */
static void tow_receive_count(struct tow_session *session)
{
	struct tow_session_notify *notify = &session->notify;
	u32 arrived = atomic_inc_return(&notify->arrived);
	/* Read second: it may be ahead of @arrived, but not too far behind. */
	u32 told = READ_ONCE(notify->told);

	WRITE_ONCE(session->heard_at, jiffies);
	WRITE_ONCE(session->busy_at, jiffies);
	if (tow_credit_exceeded(arrived, told))
		tow_receive_refuse(session,
				   "more notifications than it may send");
	else if (tow_credit_due(arrived, told))
		queue_work(tow_cq_wq, &notify->tell);
}

static void tow_receive_notification(struct tow_link *link, u32 imm)
{
	struct tow_device *dev = link->session->dev;
	bool counted = tow_slot_notify(dev, link->assoc->index, link->index, imm,
				       TOW_IMM_NUMBERS);

	tow_stat_inc(dev, counted ? TOW_STAT_NOTIFICATIONS :
		     TOW_STAT_NOTIFICATIONS_IGNORED);
	/* Received twice, sent once: Documentation/design/rings.md.  On RoCE only. */
	if (!counted && link->last_imm == imm &&
	    rdma_protocol_roce(dev->ibdev, dev->port))
		return;
	link->last_imm = imm;
	WRITE_ONCE(link->arrived, link->arrived + 1);
	tow_receive_count(link->session);
}

/* The receive is not posted any more: post it again, or count it out. */
static void tow_receive_again(struct tow_link *link, const struct ib_wc *wc)
{
	struct tow_session *session = link->session;
	bool ends = wc->status == IB_WC_WR_FLUSH_ERR ||
		    !tow_session_alive(session);

	if (!ends && !tow_receive_post(link, wc->qp))
		return;
	WRITE_ONCE(link->receives, link->receives - 1);
	if (!ends)
		tow_session_fail(session, -EIO, TOW_WIRE_FAILED,
				 "a receive could not be posted");
}

/*
 * Is it what was to come?  @as_agreed: if it succeeded; @why_not: as of
 * tow_receive_refuse().
 */
static bool tow_receive_valid(struct tow_link *link, const struct ib_wc *wc,
			      bool as_agreed, const char *why_not)
{
	tow_receive_again(link, wc);
	/* Flushed, as the queue pair broke: reported elsewhere. */
	if (wc->status == IB_WC_WR_FLUSH_ERR)
		return false;
	/* Soft-RoCE sends this when it retransmits twice; it may pass. */
	if (wc->status == IB_WC_REM_INV_REQ_ERR)
		tow_session_fail(link->session, -ECONNRESET, TOW_WIRE_FAILED,
				 "what came was no valid request");
	else if (tow_session_invalidated(link->session, wc))
		tow_receive_refuse(link->session, "it invalidated a key");
	else if (wc->status != IB_WC_SUCCESS || !as_agreed)
		tow_receive_refuse(link->session, why_not);
	else
		return true;
	return false;
}

/* Called with bottom halves off, by one processor at a time for each link. */
static void tow_receive_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct tow_link *link = container_of(wc->wr_cqe, struct tow_link,
					     receive);

	if (tow_receive_valid(link, wc, tow_receive_notifies(wc),
			      "what came was no notification"))
		tow_receive_notification(link, be32_to_cpu(wc->ex.imm_data));
}

static void tow_receive_proved(struct tow_link *link, u32 bytes)
{
	struct tow_session *session = link->session;
	u32 expected = link->proofs_in ?
		       ib_mtu_enum_to_int(session->handshake.reply.mtu) : 1;

	WRITE_ONCE(link->proofs_in, link->proofs_in + 1);
	if (bytes != expected) {
		tow_receive_refuse(session, "what came was no proof of the path");
		return;
	}
	if (link->proofs_in < TOW_WIRE_PROOFS)
		return;
	/* Pairs with tow_data_await(). */
	if (atomic_inc_return(&session->proofs) == session->qps)
		wake_up_all(&session->wait);
	if (!session->initiator && tow_session_alive(session))
		tow_data_accept(session);
}

/* As tow_receive_done(), of the first receives. */
static void tow_receive_proof(struct ib_cq *cq, struct ib_wc *wc)
{
	struct tow_link *link = container_of(wc->wr_cqe, struct tow_link,
					     proof_in);
	bool sent = wc->opcode == IB_WC_RECV &&
		    !(wc->wc_flags & IB_WC_WITH_IMM);

	if (tow_receive_valid(link, wc, sent,
			      "what came was no proof of the path"))
		tow_receive_proved(link, wc->byte_len);
}

static int tow_receive_post_proof(struct tow_link *link)
{
	struct tow_device *dev = link->session->dev;
	struct ib_sge sge = {
		.addr	= dev->peers->pads.in,
		.length	= TOW_WIRE_PROOF_BYTES,
		.lkey	= dev->pd->local_dma_lkey,
	};
	struct ib_recv_wr wr = {
		.wr_cqe = &link->proof_in, .sg_list = &sge, .num_sge = 1,
	};

	link->proof_in.done = tow_receive_proof;
	return ib_post_recv(link->qp, &wr, NULL);
}

/**
 * tow_receives_post - let the other end's proofs and notifications come in
 * @link: the link of a data queue pair, INIT
 *
 * Return: 0; the provider's error: some receives may be posted.
 */
int tow_receives_post(struct tow_link *link)
{
	int ret = 0;

	link->receive.done = tow_receive_done;
	link->last_imm = U64_MAX;
	link->receives = 0;
	while (!ret && link->receives < link->receive_depth) {
		ret = link->receives < TOW_WIRE_PROOFS ?
		      tow_receive_post_proof(link) :
		      tow_receive_post(link, link->qp);
		link->receives += !ret;
	}
	return ret;
}

// SPDX-License-Identifier: GPL-2.0
/*
 * What becomes of operations when another session carries their association.
 *
 * Work requests that had not completed with success when their queue pair broke
 * are still listed in their link.  The peer's SYNC says how many notifications
 * have ever arrived on each queue pair: all work requests up to the last of
 * these were executed, so the writes among them are complete.  Reads are posted
 * once more, as their data has not arrived, and so are all work requests after
 * that point.  An atomic is never posted again: if it has no answer nobody
 * knows whether it was executed.  An operation is posted again as a whole,
 * before the later operations of its flow.  Documentation/models/epochs.pml
 * checks these rules, and shows what happens without each.
 *
 * The old queue pairs of both ends were destroyed before: nothing is in flight
 * on them, and nothing arrives any more in memory that is put here.
 */
#include "assoc.h"
#include "core/core.h"
#include "internal.h"
#include "remote.h"

/* ---- outcome -------------------------------------------------------------- */

/* Caller holds link->lock. */
static struct tow_post *tow_replay_post(struct tow_link *link, u32 number)
{
	return &link->posts[number & link->post_mask];
}

/*
 * Caller holds link->lock.  @count notifications have arrived at the peer.  Set
 * @known to the number of the first work request that may not have been
 * executed.
 */
static int tow_replay_find(struct tow_link *link, u32 count, u32 *known)
{
	u32 number, sent = link->notified;

	for (number = link->retired; number != link->posted; number++)
		sent -= tow_replay_post(link, number)->tells;
	*known = link->retired;
	/* Those that completed have arrived; the others may have. */
	if (count - sent > link->notified - sent)
		return -EPROTO;
	for (number = link->retired; sent != count; number++) {
		sent += tow_replay_post(link, number)->tells;
		*known = number + 1;
	}
	return 0;
}

/* Caller holds link->lock.  Work request @post of operation @op has ended. */
static void tow_replay_note(struct tow_link *link, struct tow_post *post,
			    struct tow_op *op, u32 number, bool known)
{
	op->mark = number;
	if (op->pieces)
		op->pieces--;
	if (post->tells && !known) {
		/* The next notification gets this number. */
		link->notified--;
		--*tow_remote_lane(op->slot, link->index);
		op->told = true;
	}
	if (op->status)
		return;
	/* A write that was counted was executed, whatever it heard. */
	if (post->status && (!known || post->status != -ETIMEDOUT || tow_op_is_read(op)))
		op->status = post->status;
	else if (tow_op_is_atomic(op))
		op->status = -ECONNRESET;
	else if (!known || tow_op_is_read(op))
		op->again = true;
}

/* Caller holds link->lock. */
static void tow_replay_note_all(struct tow_link *link, u32 known)
{
	struct tow_post *post;
	struct tow_op *op;
	u32 number;

	for (number = link->retired; number != link->posted; number++) {
		post = tow_replay_post(link, number);
		for (op = post->ops; ; op = op->next) {
			tow_replay_note(link, post, op, number,
					(s32)(number - known) < 0);
			if (op == post->last)
				break;
		}
	}
}

/*
 * Caller holds link->lock.  Was something of the operation not posted so far?
 * Then it is in its flow.
 */
static bool tow_replay_in_flow(const struct tow_op *op)
{
	return op->cursor != op->bytes || op->to_tell;
}

/*
 * Caller holds link->lock; no work request of @op is in flight.  Return: true:
 * the caller puts @op back into its flow.
 */
static bool tow_replay_decide(struct tow_op *op, struct tow_op_list *ended)
{
	bool in_flow = tow_replay_in_flow(op);

	if (op->again && !op->status) {
		if (in_flow || !tow_op_refused(op)) {
			tow_op_begin_again(op);
			return !in_flow;
		}
		op->status = tow_op_refused(op);
	}
	/* An operation in its flow ends, or is posted, when its turn comes. */
	if (in_flow)
		return false;
	if (op->slot && op->status)
		tow_remote_missed(op->slot, op->told);
	tow_op_try_complete(op, ended);
	return false;
}

/* Caller holds link->lock.  Decide on operations that @post is the last of. */
static void tow_replay_decide_post(struct tow_link *link, struct tow_post *post,
				   u32 number, struct tow_op_list *ended)
{
	struct tow_op *op = post->ops, *next, *last = NULL;
	struct tow_op_list back;
	bool more;

	tow_op_list_init(&back);
	do {
		more = op != post->last;
		next = op->next;
		if (op->mark == number && tow_replay_decide(op, ended)) {
			tow_op_list_add(&back, op, op);
			last = op;
		}
		op = next;
	} while (more);
	if (last)
		tow_flow_return(link, back.first, last);
}

/* Decide on all work requests of a link. */
static int tow_replay_link(struct tow_link *link, u32 count)
{
	struct tow_op_list ended;
	u32 known, number;
	int ret;

	tow_op_list_init(&ended);
	spin_lock_bh(&link->lock);
	ret = tow_replay_find(link, count, &known);
	if (ret)
		goto out_unlock;
	tow_replay_note_all(link, known);
	/* From the end, as each is put before the later ones of its flow. */
	for (number = link->posted; number != link->retired; number--)
		tow_replay_decide_post(link, tow_replay_post(link, number - 1),
				       number - 1, &ended);
	link->retired = link->posted;
	link->kept = 0;
	link->inflight = 0;
out_unlock:
	spin_unlock_bh(&link->lock);
	tow_ops_end(&ended);
	return ret;
}

static void tow_replay_open(struct tow_link *link, struct tow_session *session)
{
	struct tow_op_list ended;

	tow_op_list_init(&ended);
	spin_lock_bh(&link->lock);
	/* Links are closed after their session has ceased to be alive. */
	if (tow_session_alive(session))
		link->open = !link->over;
	tow_flows_unpark(link);
	tow_link_push(link, &ended);
	spin_unlock_bh(&link->lock);
	tow_ops_end(&ended);
}

/**
 * tow_replay_receive - handle SYNC: what the peer had received before
 * @session: the session, which carries the association
 * @body: the message
 * @bytes: its size
 *
 * Operations are posted again, or have ended.
 *
 * Return: 0; -EPROTO: the message is not valid.
 */
int tow_replay_receive(struct tow_session *session,
		       const struct tow_wire_sync *body, size_t bytes)
{
	struct tow_assoc *assoc = session->assoc;
	unsigned int i;
	int ret = 0;

	if (!session->syncs || le32_to_cpu(body->count) != assoc->qps ||
	    bytes != struct_size(body, notified, assoc->qps))
		return -EPROTO;
	WRITE_ONCE(session->syncs, false);
	for (i = 0; i < assoc->qps && !ret; i++)
		ret = tow_replay_link(&assoc->data[i],
				      le32_to_cpu(body->notified[i]));
	if (ret)
		return ret;
	tow_assoc_went_on(session);
	for (i = 0; i < assoc->qps; i++)
		tow_replay_open(&assoc->data[i], session);
	return 0;
}

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * One queue pair of a session, and its connection.  A data queue pair's link
 * belongs to the association (assoc.h) and outlives the queue pair, with the
 * operations that wait there.
 */
#ifndef TOW_LINK_H
#define TOW_LINK_H

#include <linux/spinlock.h>
#include <linux/types.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

struct tow_cq;
struct tow_device;
struct tow_flow;
struct tow_post;
struct tow_session;
struct tow_share;
struct tow_assoc;
struct tow_work;

/**
 * enum tow_link_step - how far connecting has come
 * @TOW_LINK_NEW: nothing has happened
 * @TOW_LINK_ADDRESS: the address is resolved (initiator)
 * @TOW_LINK_ROUTE: the route is resolved (initiator)
 * @TOW_LINK_ESTABLISHED: it is connected
 */
enum tow_link_step {
	TOW_LINK_NEW,
	TOW_LINK_ADDRESS,
	TOW_LINK_ROUTE,
	TOW_LINK_ESTABLISHED
};

/* tow_link.index of the control queue pair. */
#define TOW_LINK_CONTROL	(-1)

/**
 * struct tow_link - one queue pair of a session and its connection
 * @session: the session that made the present or the last queue pair, without a
 *	reference: it outlives the queue pair.  Data: NULL before the first;
 *	changed under @lock while there is no queue pair
 * @assoc: data: the association, which owns the link; control: NULL
 * @index: number of the data queue pair, or TOW_LINK_CONTROL
 * @id: control: the connection manager's identifier, owned, with the queue
 *	pair; NULL: none
 * @qp: data: the queue pair, owned; NULL: none
 * @far_qp: data: number of the other end's
 * @cq: data: completion queue of what is sent; NULL: none
 * @receive_cq: data: completion queue of receives; NULL: none
 * @depth: data: work requests that may be posted
 * @receive_depth: data: receives
 * @inline_bytes: data: writes up to this size are sent inline
 * @payloads: data: of @qp: inline data of its work requests, TOW_INLINE_MAX for each
 *	of @posts
 * @payloads_dma: data: @payloads as the RDMA device sees it
 * @step: how far connecting has come; this and @error are under the session's
 *	lock
 * @error: the first error before the queue pair was connected, a negative errno
 * @parted: rdma_disconnect() was called for an established connection
 * @lock: protects what follows, up to @batch; taken in process context.  Bottom
 *	halves are off while it is held: softirqs that posting raises run at the
 *	unlock
 * @open: operations may be posted
 * @over: the link takes no operations, and never will again
 * @shares: those whose flows may post, the next one first; NULL: none
 * @shares_end: where the next one is added
 * @starved: parked flows, whose next notification has no credit; NULL: none
 * @starved_end: where the next one is added
 * @posts: posted work requests, by number modulo their count, a power of two
 * @post_mask: count of @posts, less one
 * @posted: number of work requests that were posted; this, @retired and
 *	@drained wrap around, and count over all queue pairs of the link
 * @retired: number of them that are finished: those before it have ended
 * @drained: number of them whose completion has come, with success or without
 * @kept: work requests that were posted to an earlier queue pair and are not
 *	@retired
 * @notified: notifications posted in the association, less those whose number
 *	was taken back; wraps around
 * @inflight: bytes of work requests that are not @retired
 * @watched: @retired when tow_link_stalls() last saw it change
 * @watched_at: when that was, in jiffies; 0: nothing was in flight
 * @works: work requests that are about to be posted
 * @batch: count of @works
 * @proof_out: completion of our proofs of the path
 * @proofs_posted: how many of them were posted
 * @proofs_done: how many have completed
 * @proofs_acked: with success
 * @proof_in: completion of the receives for the other end's, the first ones
 * @proofs_in: how many of them have come
 * @receive: completion of all others; their handlers write what follows
 * @receives: receives that are posted
 * @arrived: notifications that have come in the association, wrapping around
 * @last_imm: immediate of the queue pair's last notification; U64_MAX: none has
 *	come
 */
struct tow_link {
	struct tow_session	*session;
	struct tow_assoc	*assoc;
	int			index;
	struct rdma_cm_id	*id;
	struct ib_qp		*qp;
	u32			far_qp;
	struct tow_cq		*cq;
	struct tow_cq		*receive_cq;
	u32			depth;
	u32			receive_depth;
	u32			inline_bytes;
	u8			*payloads;
	u64			payloads_dma;
	enum tow_link_step	step;
	int			error;
	bool			parted;
	/* protects open to batch */
	spinlock_t		lock;
	bool			open;
	bool			over;
	struct tow_share	*shares;
	struct tow_share	**shares_end;
	struct tow_flow		*starved;
	struct tow_flow		**starved_end;
	struct tow_post		*posts;
	u32			post_mask;
	u32			posted;
	u32			retired;
	u32			drained;
	u32			kept;
	u32			notified;
	u64			inflight;
	u32			watched;
	unsigned long		watched_at;
	struct tow_work		*works;
	u32			batch;
	struct ib_cqe		proof_out;
	u8			proofs_posted;
	u8			proofs_done;
	u8			proofs_acked;
	u8			proofs_in;
	struct ib_cqe		proof_in;
	struct ib_cqe		receive;
	u32			receives;
	u32			arrived;
	u64			last_imm;
};

void tow_link_init_control(struct tow_link *link, struct tow_session *session);
void tow_link_init(struct tow_link *link, struct tow_assoc *assoc, int index);
void tow_link_cleanup(struct tow_link *link);
void tow_link_carry(struct tow_link *link, struct tow_session *session);
int tow_link_create_control(struct tow_link *link);
void tow_link_disconnect(struct tow_link *link);
void tow_link_destroy_control(struct tow_link *link);
int tow_link_event(struct rdma_cm_id *id, struct rdma_cm_event *event);
void tow_link_conn_param(struct tow_link *link, struct rdma_conn_param *param,
			 const void *data, u8 bytes);
void tow_link_qp_event(struct ib_event *event, void *context);

/* All of a queue pair in the error state completes at once, or never. */
#define TOW_LINK_DRAIN_MS	1000

/**
 * struct tow_link_ops - how data queue pairs are made and destroyed
 * @create: give a link its data queue pair; its session's control queue pair is
 *	connected.  -ENOSPC: the device has no room; -ENOMEM; -ECONNRESET: see
 *	tow_data_modify(); the provider's error.  @destroy follows after errors,
 *	too
 * @destroy: wait until the queue pair of a link, which is disconnected, is
 *	drained, but no longer than until so many jiffies, and destroy it: the
 *	other end reaches no memory by it any more.  There may be none.
 *	Operations that have not completed stay in the link, for the association
 */
struct tow_link_ops {
	int	(*create)(struct tow_link *link);
	void	(*destroy)(struct tow_link *link, unsigned long end);
};

/* Completion queues that one call looks at, at most. */
#define TOW_CQS_SEEN		4

/**
 * struct tow_cqs - completion queues
 * @count: how many
 * @cq: each once
 */
struct tow_cqs {
	unsigned int	count;
	struct tow_cq	*cq[TOW_CQS_SEEN];
};

/* cq.c: the completion queues of data queue pairs */
struct tow_cq_pool;

struct tow_cq_pool *tow_cq_pool_new(void);
void tow_cq_pool_free(struct tow_cq_pool *pool);
struct tow_cq *tow_cq_get(struct tow_device *dev, bool receives,
			  unsigned int entries);
void tow_cq_put(struct tow_device *dev, struct tow_cq *cq,
		unsigned int entries);
struct ib_cq *tow_cq_device_cq(struct tow_cq *cq);
void tow_cq_ref(struct tow_cq *cq);
void tow_cq_unref(struct tow_cq *cq);
bool tow_cqs_have(const struct tow_cqs *cqs, const struct tow_cq *cq);
void tow_cqs_ref(const struct tow_cqs *cqs);
void tow_cqs_unref(struct tow_cqs *cqs);
void tow_cq_look_begin(struct tow_cq *cq);
void tow_cq_look(struct tow_cq *cq);
void tow_cq_look_end(struct tow_cq *cq, bool looked);
void tow_cq_post(struct tow_cq *cq, u32 count);
void tow_cq_posted(struct tow_cq *cq);
void tow_cq_retired(struct tow_cq *cq, u32 count);
void tow_cq_flush(struct tow_cq *cq);

#endif /* TOW_LINK_H */

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * One queue pair of a session, and its connection.  A data queue pair's link stays
 * when the queue pair goes, with what its association has to do there (assoc.h).
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
struct tow_assoc;
struct tow_work;

/**
 * enum tow_link_step - how far connecting has come
 * @TOW_LINK_NEW: nothing has happened
 * @TOW_LINK_ADDRESS: the address is resolved (initiator)
 * @TOW_LINK_ROUTE: the route is (initiator)
 * @TOW_LINK_ESTABLISHED: it is connected
 */
enum tow_link_step {
	TOW_LINK_NEW,
	TOW_LINK_ADDRESS,
	TOW_LINK_ROUTE,
	TOW_LINK_ESTABLISHED
};

/* Of a data queue pair's index: it is the control queue pair. */
#define TOW_LINK_CONTROL	(-1)

/**
 * struct tow_link - one queue pair of a session and its connection
 * @session: whose queue pair it has, or had last; lives longer, as the session destroys
 *	it.  Data: NULL before the first; changed under @lock, while there is none
 * @assoc: data: whose; lives longer
 * @index: of a data queue pair, or TOW_LINK_CONTROL
 * @id: the connection manager's; NULL: not there.  Its queue pair is ours
 * @cq: data: where it completes; NULL: not there
 * @depth: data: work requests that may be posted
 * @inline_bytes: data: writes up to that size go along with their work request
 * @step: how far it is; with @error under the session's lock
 * @error: the first thing that went wrong before it was connected
 * @parted: the connection manager has been told that it is over
 * @silent: data: the RDMA device says that nothing comes any more
 * @lock: protects what follows; in process context only.  Bottom halves are off
 *	while it is held: what a provider does in one, when something was posted,
 *	it does at once when the lock is let go of
 * @open: posts operations
 * @over: takes none, nor ever will
 * @flows: those that have something to post; the first one's turn it is; NULL:
 *	none
 * @flows_end: where the next one goes
 * @starved: those that have a notification to send first, and no room for it
 * @starved_end: where the next one goes
 * @posts: what was posted, by number, and what completes; a power of two of them
 * @post_mask: their number less one
 * @posted: work requests that were posted, wrapping around
 * @retired: those of them that have completed; what came back otherwise has not
 * @drained: those of them that have come back
 * @kept: those that were posted to an earlier queue pair, and are not @retired
 * @notified: notifications that were posted, in the association, but for those
 *	whose number was taken back; wrapping around
 * @inflight: bytes of those that are not @retired
 * @watched: what @retired was when somebody last looked whether it moves
 * @watched_at: since when it has been that while something was on its way, in
 *	jiffies; 0: nothing was
 * @works: work requests that are about to be posted
 * @batch: how many there may be
 * @srq_node: where notifications come in, in its table; this and what follows is
 *	under the lock of that
 * @srq_qp: its queue pair; NULL: nothing of it is looked for there
 * @arrived: notifications that have come, in the association, wrapping around
 * @last_imm: the immediate of the one that came last to its queue pair; U64_MAX: none
 *	has
 */
struct tow_link {
	struct tow_session	*session;
	struct tow_assoc	*assoc;
	int			index;
	struct rdma_cm_id	*id;
	struct tow_cq		*cq;
	u32			depth;
	u32			inline_bytes;
	enum tow_link_step	step;
	int			error;
	bool			parted;
	bool			silent;
	/* protects everything below */
	spinlock_t		lock;
	bool			open;
	bool			over;
	struct tow_flow		*flows;
	struct tow_flow		**flows_end;
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
	struct hlist_node	srq_node;
	struct ib_qp		*srq_qp;
	u32			arrived;
	u64			last_imm;
};

void tow_link_init_control(struct tow_link *link, struct tow_session *session);
void tow_link_init(struct tow_link *link, struct tow_assoc *assoc, int index);
void tow_link_carry(struct tow_link *link, struct tow_session *session);
int tow_link_create_qp(struct tow_link *link);
void tow_link_disconnect(struct tow_link *link, bool over);
void tow_link_destroy(struct tow_link *link);
int tow_link_event(struct rdma_cm_id *id, struct rdma_cm_event *event);
void tow_link_conn_param(struct tow_link *link, struct rdma_conn_param *param,
			 const void *data, u8 bytes);
void tow_link_qp_event(struct ib_event *event, void *context);

/* rma/qp.c: data queue pairs */
int tow_link_create_data(struct tow_link *link);
void tow_qp_drain(struct tow_link *link);
void tow_qp_gone(struct tow_link *link);

/* cq.c: the completion queues of data queue pairs */
struct tow_cq_pool;

struct tow_cq_pool *tow_cq_pool_new(void);
void tow_cq_pool_free(struct tow_cq_pool *pool);
struct tow_cq *tow_cq_get(struct tow_device *dev, unsigned int entries);
void tow_cq_put(struct tow_device *dev, struct tow_cq *cq,
		unsigned int entries);
struct ib_cq *tow_cq_device_cq(struct tow_cq *cq);
void tow_cq_ref(struct tow_cq *cq);
void tow_cq_unref(struct tow_cq *cq);
void tow_cq_look_begin(struct tow_cq *cq);
void tow_cq_look(struct tow_cq *cq);
void tow_cq_look_end(struct tow_cq *cq, bool looked);
void tow_cq_post(struct tow_cq *cq, u32 count);
void tow_cq_posted(struct tow_cq *cq);
void tow_cq_retired(struct tow_cq *cq, u32 count);
void tow_cq_flush(struct tow_cq *cq);

#endif /* TOW_LINK_H */

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A session: one life of the connection to a peer, as one end sees it.
 *
 * A session has a control queue pair, for messages (wire.h), and data queue
 * pairs, whose links belong to the association that the session carries
 * (assoc.h).  The loopback peer has two sessions here, one for each end.
 * Documentation/protocol says how a session begins and ends.
 */
#ifndef TOW_SESSION_H
#define TOW_SESSION_H

#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

#include "auth.h"
#include "conn/wire.h"
#include "link.h"
#include "notify.h"
#include "peer.h"

struct tow_buffer;
struct tow_device;
struct tow_peer;
struct tow_session;
struct tow_assoc;

/* Data queue pairs of one session. */
#define TOW_QPS_MAX		64

/**
 * enum tow_session_state - where a session is
 * @TOW_SESSION_OPENING: the control queue pair is being connected
 * @TOW_SESSION_AUTHENTICATED: the other end has proved that it holds the key;
 *	data queue pairs are being connected
 * @TOW_SESSION_READY: all data queue pairs are connected
 * @TOW_SESSION_ENDING: nothing begins any more; the queue pairs are being
 *	destroyed
 * @TOW_SESSION_ENDED: the queue pairs are destroyed
 *
 * Each state leads to the next; the first two also to ENDING.
 */
enum tow_session_state {
	TOW_SESSION_OPENING,
	TOW_SESSION_AUTHENTICATED,
	TOW_SESSION_READY,
	TOW_SESSION_ENDING,
	TOW_SESSION_ENDED
};

/* A session that is not AUTHENTICATED after so long ends. */
#define TOW_HANDSHAKE_MS	5000

/* Messages in tow_session.queue; the directory queues its own elsewhere. */
#define TOW_SESSION_QUEUE_MAX	256

/**
 * struct tow_session - one end of one connection
 * @refs: held by the device's list until ENDED, which covers @timer and
 *	@end_work; by a peer (@session, @other_end); by an association
 *	(@session); and by callers
 * @dev: the device, with a reference
 * @peer: the peer, with a reference; NULL before the other end has proved
 *	itself
 * @index: number in tow_peers.sessions
 * @initiator: our end made the request
 * @loopback: the other end is our own device
 * @handshake: request and reply of the control queue pair
 * @auth: the keys
 * @settings: how to connect; a copy, which does not change
 * @opened_at: responder: when the request came; initiator: when the other end had
 *	proved itself; by tow_peers.clock, under tow_peers.lock
 * @target: initiator: where the other end listens
 * @scope_id: responder: as in struct tow_address
 * @deadline: when the session must have reached its next state, in jiffies
 * @hung_up: the connection manager says that the other end has disconnected
 * @asked: initiator: the association named in AUTH, with a reference; or NULL
 * @assoc: the association that the session carries, or carried, with a
 *	reference; NULL before; set once, under @setup
 * @syncs: another session carried the association before, and the other end's
 *	SYNC has not come
 * @synced: SYNC was sent, or is not due; under @pump
 *
 * @lock: protects @state to @why, @queue and @queued
 * @state: changed by tow_session_set_state(), tow_session_fail() and
 *	tow_session_end()
 * @error: why the session ended, a negative errno; does not change after
 *	ENDING, nor do @reason and @why
 * @reason: why it ended, as sent to or received from the other end: enum
 *	tow_wire_reason
 * @why: why it ended, for the log; a string that is never freed
 * @told: the other end sent GOODBYE
 * @ready_at: when the session became READY, by tow_peers.clock; 0: not yet;
 *	under tow_peers.lock
 * @half_open: the session counts in tow_peers.half_open; under tow_peers.lock
 * @ready_due: initiator: the other end may know our data queue pairs
 * @queue: struct tow_message that wait for credit, owned
 * @queued: entries of @queue
 * @wait: woken when @state (but to ENDED), @control's @step or @error, or @far
 *	changes, and when a send completes
 *
 * @setup: held while links are made, connected or accepted, after a check that
 *	the session is alive.  Accepting takes it in the connection manager's
 *	handler, so no identifier may be destroyed while it is held
 * @pump: held while messages are sent; protects what follows, up to @closed
 * @counter_out: counter of the last message sent
 * @credits_used: messages sent, wrapping around
 * @credits_told: @received as of the last message sent
 * @busy_buffers: bit mask of send buffers in use; completions clear bits
 *	without @pump
 * @closed: no message is sent any more
 *
 * @received: messages handled, wrapping around; written by the handler of
 *	received messages only, like @counter_in and @granted
 * @counter_in: counter of the last message received
 * @granted: our messages that the other end has handled, wrapping around
 * @heard_at: when the other end was last heard: a message, a notification, or
 *	the completion of a send or an operation; in jiffies
 * @heard_then: @heard_at when @timer last ran
 * @looks: times that @timer has found @heard_at unchanged
 * @said_at: when a message was last sent, in jiffies
 * @moved: an operation of ours has completed with success
 * @busy_at: when the session was last used: a message other than HEARTBEAT and
 *	CREDIT, a notification or the completion of an operation; in jiffies
 *
 * @control: the control queue pair's link
 * @cq: the control queue pair's completion queue, owned
 * @send: send buffers, owned
 * @receive: receive buffers, owned
 * @qps: how many data queue pairs
 * @data: their links, which the association owns; NULL before @assoc
 * @data_work: responder: makes and connects data queue pairs, and READY
 * @made: responder: they are made; this and @joined are for @data_work only
 * @joined: responder: they are being connected, or are
 * @psn: number of the first packet on each
 * @opened: responder: READY was said; for @data_work only
 * @proofs: data queue pairs on which both proofs of the path have come
 * @far: of the other end's data queue pairs
 * @far.psn: likewise
 * @far.answers: reads of ours that it can have in flight on each
 * @far.asks: reads of its own
 * @far.told: the other end has said QPS
 * @timer: checks @deadline until READY, then silence and idleness; sends
 *	heartbeats
 * @end_work: leads from ENDING to ENDED
 * @notify: state of notifications
 */
struct tow_session {
	struct kref		refs;
	struct tow_device	*dev;
	struct tow_peer		*peer;
	u64			index;
	bool			initiator;
	bool			loopback;
	struct tow_handshake	handshake;
	struct tow_auth		auth;
	struct tow_conn_settings settings;
	u64			opened_at;
	struct tow_address	target;
	u32			scope_id;
	unsigned long		deadline;
	bool			hung_up;
	struct tow_assoc	*asked;
	struct tow_assoc	*assoc;
	bool			syncs;
	bool			synced;

	/* protects state to why, queue, queued */
	spinlock_t		lock;
	enum tow_session_state	state;
	int			error;
	u32			reason;
	const char		*why;
	bool			told;
	u64			ready_at;
	bool			half_open;
	bool			ready_due;
	struct list_head	queue;
	unsigned int		queued;
	wait_queue_head_t	wait;

	/* serialises the making of links with the session's end */
	struct mutex		setup;
	/* protects counter_out to closed */
	struct mutex		pump;
	u64			counter_out;
	u32			credits_used;
	u32			credits_told;
	unsigned long		busy_buffers;
	bool			closed;

	u32			received;
	u64			counter_in;
	u32			granted;
	unsigned long		heard_at;
	unsigned long		heard_then;
	unsigned int		looks;
	unsigned long		said_at;
	bool			moved;
	unsigned long		busy_at;

	struct tow_link		control;
	struct ib_cq		*cq;
	struct tow_buffer	*send;
	struct tow_buffer	*receive;
	unsigned int		qps;
	struct tow_link		*data;
	struct work_struct	data_work;
	bool			made;
	bool			joined;
	bool			opened;
	u32			psn;
	atomic_t		proofs;
	struct {
		u32		psn;
		u16		answers;
		u16		asks;
		bool		told;
	} far;
	struct delayed_work	timer;
	struct work_struct	end_work;
	struct tow_session_notify notify;
};

/**
 * struct tow_session_ops - what a session asks of its peer
 * @add: a session begins: give it a number, and put it into the device's list,
 *	with a reference.  -ENODEV: the device is going; -EAGAIN: too many are
 *	half open; -ENOMEM
 * @receive: handle a message that is not the control channel's own; one at a
 *	time.  Its type is allowed in the session's state, and its body is not
 *	shorter than the type says.  -EPROTO, -EKEYREJECTED: the message breaks
 *	the protocol; another negative errno: it could not be handled
 * @fill: choose the next message of a session that is READY; caller holds its
 *	@pump.  The body has room for TOW_WIRE_BODY_BYTES.  false: there is no
 *	message to be sent
 * @ready: the session has become READY
 * @tick: end a READY session that has to end; called twice in a heartbeat's
 *	interval, with whether its other end was silent for too long
 * @closing: the session is ENDING, and its links are not changed any more: let
 *	nothing begin.  true: another session may carry its association; this is
 *	told the next two as well
 * @closed: its queue pairs are destroyed: release what the other end reached
 * @gone: it is ENDED: take it from the device's list, and put the list's
 *	reference
 * @release: it is about to be freed: put the references that it has
 */
struct tow_session_ops {
	int	(*add)(struct tow_session *session);
	int	(*receive)(struct tow_session *session, u8 type, u32 request,
			   void *body, size_t bytes);
	bool	(*fill)(struct tow_session *session, u8 *type, u32 *request,
			void *body, size_t *bytes);
	void	(*ready)(struct tow_session *session);
	void	(*tick)(struct tow_session *session, bool silent);
	bool	(*closing)(struct tow_session *session);
	void	(*closed)(struct tow_session *session, bool keep);
	void	(*gone)(struct tow_session *session, bool keep);
	void	(*release)(struct tow_session *session);
};

static inline const struct tow_session_ops *
tow_session_ops(const struct tow_session *session)
{
	return session->dev->peers->session_ops;
}

/* init.c */
void tow_conn_init(struct tow_peers *peers, struct ib_device *ibdev);
int tow_conn_start(struct tow_device *dev);
void tow_conn_stop(struct tow_device *dev);
void tow_conn_cleanup(struct tow_peers *peers);

/* session_state.c */
bool tow_session_alive(const struct tow_session *session);
bool tow_session_set_state(struct tow_session *session,
			   enum tow_session_state state);
bool tow_session_fail(struct tow_session *session, int error, u32 reason,
		      const char *why);
void tow_session_note(struct tow_session *session, const char *stage,
		      u64 subject, int error);
void tow_session_watch(struct tow_session *session);
void tow_session_beats(struct tow_session *session);
void tow_session_hung_up(struct tow_session *session);
int tow_session_error_of(u32 reason);
const char *tow_session_explain(int error);
u32 tow_session_reason_of(int error);
bool tow_session_orderly(u32 reason);
bool tow_session_may_pass(struct tow_session *session);

/* Has the peer, by what was received, invalidated a key?  It must not. */
static inline bool tow_session_invalidated(struct tow_session *session,
					   const struct ib_wc *wc)
{
	struct tow_device *dev = session->dev;

	if (wc->status != IB_WC_SUCCESS ||
	    !(wc->wc_flags & IB_WC_WITH_INVALIDATE))
		return false;
	dev->key_invalidated(dev, wc->ex.invalidate_rkey);
	return true;
}

/*
 * For tow_session_handled(), of the message that is filled in now.  Caller holds
 * @pump.
 */
static inline u32 tow_session_mark(const struct tow_session *session)
{
	lockdep_assert_held(&session->pump);
	return session->credits_used + 1;
}

/* Has the other end handled our message with this mark, in this session? */
static inline bool tow_session_handled(const struct tow_session *session,
				       u32 mark)
{
	return (s32)(READ_ONCE(session->granted) - mark) >= 0;
}

void tow_conn_settings_init(struct tow_conn_settings *settings,
			    struct ib_device *ibdev);
void tow_conn_settings_read(const struct tow_peers *peers,
			    struct tow_conn_settings *settings);

/* session.c */
struct tow_session *tow_session_new(struct tow_device *dev, bool initiator,
				    const struct tow_conn_settings *settings);
int tow_session_prepare(struct tow_session *session, struct rdma_cm_id *id);
void tow_session_get(struct tow_session *session);
void tow_session_put(struct tow_session *session);
void tow_accept_refused(struct tow_device *dev, const struct in6_addr *from,
			int error);

/* control.c */
int tow_session_send(struct tow_session *session, u8 type, u32 request,
		     const void *body, size_t bytes);
void tow_session_kick(struct tow_session *session);
void tow_session_close(struct tow_session *session);
void tow_session_heartbeat(struct tow_session *session);
int tow_session_post_receives(struct tow_session *session);
int tow_buffers_make(struct tow_session *session);
void tow_buffers_free(struct tow_session *session);
void tow_session_say_ready(struct tow_session *session);

/* active.c */

/* How long to wait for one answer of the network or the connection manager. */
#define TOW_CONNECT_STEP_MS	2000

int tow_connect_control(struct tow_session *session, unsigned int answer_ms);
int tow_connect_wait_state(struct tow_session *session,
			   enum tow_session_state state);

/* data.c */
void tow_data_init(struct tow_session *session);
void tow_data_end(struct tow_session *session);
int tow_data_modify(struct tow_link *link, enum ib_qp_state state);
int tow_data_connect(struct tow_session *session);
void tow_data_accept(struct tow_session *session);
int tow_data_receive(struct tow_session *session,
		     const struct tow_wire_qps *qps, size_t bytes);
int tow_data_ready(struct tow_session *session);

#endif /* TOW_SESSION_H */

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A session: one life of the connection to a peer, as one of its ends has it.
 *
 * It consists of a control queue pair, which carries messages (wire.h), and of
 * the data queue pairs, whose links are those of the association that it carries
 * (assoc.h). The loopback peer has two sessions here, one for each end.
 * Documentation/protocol tells how a session begins and ends.
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
 * @TOW_SESSION_READY: all are
 * @TOW_SESSION_ENDING: nothing begins any more; the queue pairs are being
 *	destroyed
 * @TOW_SESSION_ENDED: they are
 *
 * Each leads to the next; the first two also to ENDING.
 */
enum tow_session_state {
	TOW_SESSION_OPENING,
	TOW_SESSION_AUTHENTICATED,
	TOW_SESSION_READY,
	TOW_SESSION_ENDING,
	TOW_SESSION_ENDED
};

/* Who does not prove himself in so long, is not waited for. */
#define TOW_HANDSHAKE_MS	5000

/* What may wait to be sent, beside what the directory keeps for itself. */
#define TOW_SESSION_QUEUE_MAX	256

/**
 * struct tow_session - one end of one connection
 * @refs: held by the device's list until ENDED, by the connection manager's
 *	identifiers, by queued work, by a peer for its present session, and by the
 *	association that it carries or carried last
 * @dev: the device, with a reference
 * @peer: whose it is; NULL before it is AUTHENTICATED; with a reference
 * @index: its number in tow_peers.sessions
 * @id: what both ends call it: the responder's @index
 * @initiator: our end made the request
 * @loopback: the other end is our own device
 * @handshake: who said what
 * @data_reply: initiator: the answer to the last request for a data queue pair
 * @auth: the keys
 * @settings: how it is connected and kept; a copy, as they may change
 * @opened_at: responder: when the request came; initiator: when the other end had
 *	proved itself; by tow_peers.clock
 * @target: initiator: where the other end listens
 * @scope_id: responder: as in struct tow_address
 * @deadline: when it must have come to the next state, in jiffies
 * @hung_up: the connection manager says that the other end has gone
 * @full: our own device had no room for it
 * @asked: initiator: the association that it was to carry, with a reference; or NULL
 * @assoc: the association that it carries, or did, with a reference; NULL before it is
 *	AUTHENTICATED
 * @syncs: the association was carried by another one before: SYNC is due from the
 *	other end
 * @synced: SYNC was sent, or is not due; under @pump
 *
 * @lock: protects what follows, up to @pump
 * @state: changed by tow_session_set_state() only
 * @error: why it ended
 * @reason: what the other end is told, or has told us: enum tow_wire_reason
 * @why: the same, for people
 * @told: the other end said goodbye
 * @ready_at: when it became READY, by tow_peers.clock; 0: not yet
 * @half_open: it counts in tow_peers.half_open; under tow_peers.lock
 * @connected: data queue pairs that are
 * @ready_heard: responder: the other end says that all are
 * @ready_said: initiator: we say so
 * @queue: struct tow_message that wait for credit
 * @queued: how many
 * @wait: woken when @state, but to ENDED, or a link's @step changes
 *
 * @setup: held by whoever makes, connects or accepts links, after a look whether
 *	the session is alive.  Whoever accepts does so in the connection
 *	manager's handler, so never destroy an identifier with it
 * @pump: held by whoever sends; protects what follows, up to @closed
 * @counter_out: of the last message sent
 * @credits_used: messages sent, wrapping around
 * @credits_told: messages dealt with that the other end knows of
 * @busy_buffers: bit mask of send buffers that are in use
 * @closed: nothing is sent any more
 *
 * @received: messages dealt with, wrapping around; written by the receiving
 *	end's completions only, like @counter_in
 * @counter_in: of the last message received
 * @granted: credits: messages that the other end has dealt with
 * @heard_at: when something came, in jiffies
 * @heard_then: the same, when @timer looked last
 * @looks: how often @timer has seen the same @heard_at, but for the first time
 * @said_at: when something was sent, in jiffies
 * @busy_at: when something but a heartbeat came or went, in jiffies
 *
 * @control: the control queue pair
 * @cq: its completion queue
 * @send: send buffers
 * @receive: receive buffers
 * @qps: how many data queue pairs
 * @data: the data queue pairs: the association's; NULL before there is one
 * @timer: half open for too long; heartbeats; idleness
 * @end_work: from ENDING to ENDED
 * @notify: what notifications need
 */
struct tow_session {
	struct kref		refs;
	struct tow_device	*dev;
	struct tow_peer		*peer;
	u64			index;
	u64			id;
	bool			initiator;
	bool			loopback;
	struct tow_handshake	handshake;
	struct tow_wire_reply	data_reply;
	struct tow_auth		auth;
	struct tow_conn_settings settings;
	u64			opened_at;
	struct tow_address	target;
	u32			scope_id;
	unsigned long		deadline;
	bool			hung_up;
	bool			full;
	struct tow_assoc	*asked;
	struct tow_assoc	*assoc;
	bool			syncs;
	bool			synced;

	/* protects state to queued */
	spinlock_t		lock;
	enum tow_session_state	state;
	int			error;
	u32			reason;
	const char		*why;
	bool			told;
	u64			ready_at;
	bool			half_open;
	unsigned int		connected;
	bool			ready_heard;
	bool			ready_said;
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
	unsigned long		busy_at;

	struct tow_link		control;
	struct ib_cq		*cq;
	struct tow_buffer	*send;
	struct tow_buffer	*receive;
	unsigned int		qps;
	struct tow_link		*data;
	struct delayed_work	timer;
	struct work_struct	end_work;
	struct tow_session_notify notify;
};

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
void tow_conn_settings_init(struct tow_conn_settings *settings,
			    struct ib_device *ibdev);
void tow_conn_settings_read(const struct tow_peers *peers,
			    struct tow_conn_settings *settings);

/* session.c */
struct tow_session *tow_session_new(struct tow_device *dev, bool initiator,
				    const struct tow_conn_settings *settings);
int tow_session_prepare(struct tow_session *session, struct rdma_cm_id *id);
int tow_session_create_qp(struct tow_link *link);
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
void tow_accept_check_ready(struct tow_session *session);

/* active.c */

/* For one answer of the network or of the connection manager. */
#define TOW_CONNECT_STEP_MS	2000

int tow_connect_control(struct tow_session *session, unsigned int answer_ms);
int tow_connect_data(struct tow_link *link);
int tow_connect_wait_state(struct tow_session *session,
			   enum tow_session_state state);

#endif /* TOW_SESSION_H */

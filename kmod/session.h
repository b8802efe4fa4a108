/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A session: one life of the connection to a peer, as one of its ends has it.
 *
 * It consists of a control queue pair, which carries messages (wire.h), and of
 * the data queue pairs.  The loopback peer has two sessions here, one for each
 * end.  Documentation/protocol tells how a session begins and ends.
 */
#ifndef TOW_SESSION_H
#define TOW_SESSION_H

#include <linux/completion.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

#include "auth.h"
#include "directory.h"
#include "wire.h"

struct tow_cq;
struct tow_device;
struct tow_peer;
struct tow_session;

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

/**
 * struct tow_link - one queue pair of a session and its connection
 * @session: whose; the connection manager's identifier holds a reference to it
 * @index: of a data queue pair; -1: the control queue pair
 * @id: the connection manager's; NULL: not there
 * @cq: data: where it completes
 * @step: what the connection manager said last: see connect.c
 * @established: it is connected
 * @error: the first thing that went wrong with it
 * @lock: protects @ops and @closed
 * @ops: operations that the RDMA device has not completed
 * @closed: takes no more operations
 */
struct tow_link {
	struct tow_session	*session;
	int			index;
	struct rdma_cm_id	*id;
	struct tow_cq		*cq;
	unsigned int		step;
	bool			established;
	int			error;
	/* protects ops, closed */
	spinlock_t		lock;
	struct list_head	ops;
	bool			closed;
};

/* What may wait to be sent, beside what the directory keeps for itself. */
#define TOW_SESSION_QUEUE_MAX	256

/**
 * struct tow_session - one end of one connection
 * @refs: held by the device's list until ENDED, by the connection manager's
 *	identifiers, by queued work, by a peer for its present session, and by
 *	whatever the directory keeps of it
 * @dev: the device, with a reference
 * @peer: whose it is; NULL before it is AUTHENTICATED; with a reference
 * @link_sessions: in tow_peers.sessions, under tow_peers.lock
 * @id: what both ends call it
 * @initiator: our end made the request
 * @loopback: the other end is our own device
 * @handshake: who said what
 * @auth: the keys
 * @settings: see struct tow_peer_settings
 *
 * @lock: protects what follows, up to @pump
 * @state: changed by tow_session_set_state() only
 * @error: why it ended
 * @reason: what the other end is told, or has told us: enum tow_wire_reason
 * @told: the other end said goodbye
 * @connected: data queue pairs that are
 * @ready_heard: the other end says that all are
 * @queue: struct tow_message that wait for credit
 * @queued: how many
 * @wait: woken when @state or a link's @step changes
 *
 * @pump: held by whoever sends; protects what follows, up to @received
 * @counter_out: of the last message sent
 * @credits_used: messages sent, wrapping around
 * @credits_told: messages dealt with that the other end knows of
 * @free_buffers: bit mask of send buffers that are not in use
 *
 * @received: messages dealt with, wrapping around; written by the receiving
 *	end's completions only, like @counter_in
 * @counter_in: of the last message received
 * @granted: credits: messages that the other end has dealt with
 * @heard_at: when something came, in jiffies
 * @said_at: when something was sent, in jiffies
 * @busy_at: when something but a heartbeat came or went, in jiffies
 * @users: remote ranges and grants: while there are any it is not idle
 *
 * @control: the control queue pair
 * @cq: its completion queue
 * @send: send buffers
 * @receive: receive buffers
 * @qps: how many data queue pairs
 * @data: the data queue pairs
 * @timer: half open for too long; heartbeats; idleness
 * @end_work: from ENDING to ENDED
 * @ended: it is ENDED
 * @dir: what the directory keeps of it
 */
struct tow_session {
	struct kref		refs;
	struct tow_device	*dev;
	struct tow_peer		*peer;
	struct list_head	link_sessions;
	u64			id;
	bool			initiator;
	bool			loopback;
	struct tow_handshake	handshake;
	struct tow_auth		auth;

	/* protects state to queued */
	spinlock_t		lock;
	enum tow_session_state	state;
	int			error;
	u32			reason;
	bool			told;
	unsigned int		connected;
	bool			ready_heard;
	struct list_head	queue;
	unsigned int		queued;
	wait_queue_head_t	wait;

	/* protects counter_out to free_buffers */
	struct mutex		pump;
	u64			counter_out;
	u32			credits_used;
	u32			credits_told;
	u64			free_buffers;

	u32			received;
	u64			counter_in;
	u32			granted;
	unsigned long		heard_at;
	unsigned long		said_at;
	unsigned long		busy_at;
	atomic_t		users;

	struct tow_link		control;
	struct ib_cq		*cq;
	struct tow_buffer	*send;
	struct tow_buffer	*receive;
	unsigned int		qps;
	struct tow_link		*data;
	struct delayed_work	timer;
	struct work_struct	end_work;
	struct completion	ended;
	struct tow_session_dir	dir;
};

/* session.c */
void tow_session_get(struct tow_session *session);
void tow_session_put(struct tow_session *session);
int tow_session_send(struct tow_session *session, u8 type, u32 request,
		     const void *body, size_t bytes);
void tow_session_kick(struct tow_session *session);
void tow_session_fail(struct tow_session *session, int error, u32 reason,
		      const char *why);
bool tow_session_alive(struct tow_session *session);

#endif /* TOW_SESSION_H */

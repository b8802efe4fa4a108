/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Peers: the nodes that this node knows, and the state of the connection to
 * each.
 */
#ifndef TOW_PEER_H
#define TOW_PEER_H

#include <linux/in6.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/log2.h>
#include <linux/mutex.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "auth.h"
#include "core/address.h"
#include "core/core.h"
#include "parting.h"
#include "peer_sysfs.h"
#include "state.h"
#include "uapi/towline.h"

struct ib_device;
struct tow_assoc;
struct tow_assoc_client;
struct tow_client;
struct tow_cq_pool;
struct tow_device;
struct tow_link_ops;
struct tow_session;
struct tow_session_ops;

/**
 * struct tow_conn_settings - how to connect, and how to keep a connection
 * @peer_limit: peers in the table, connected or not
 * @qps_per_peer: data queue pairs of a session
 * @cqs: completion queues that are made before queue pairs share them
 * @queue_depth: work requests of one data queue pair
 * @listen_port: the port that we listen on
 * @peer_idle_s: unused sessions end after so many seconds; 0: never
 * @heartbeat_ms: longest time between two messages of a peer
 * @heartbeat_misses: missed heartbeats in a row that end a session
 * @reconnect_timeout_ms: how long an attempt to connect may take; and how long
 *	an association waits for another session
 * @revoke_timeout_ms: how long a peer may take to acknowledge a revoke
 * @gid_index: which GID of the port; -1: see tow_connect_source()
 * @pkey_index: partition
 * @sl: service level; 0: that of the path
 * @traffic_class: of the IP header; -1: the connection manager's default
 * @mtu: in bytes; 0: that of the path
 * @timeout: ACK timeout: 4.096 us * 2^timeout; 0: none
 * @retry_count: how often a packet is sent again
 * @allow_unauthenticated: connect without cluster keys
 *
 * Each of the device's settings is a file in sysfs and may be written at any
 * time: they are read with READ_ONCE(), or all together by
 * tow_conn_settings_read().
 */
struct tow_conn_settings {
	u32	peer_limit;
	u32	qps_per_peer;
	u32	cqs;
	u32	queue_depth;
	u32	listen_port;
	u32	peer_idle_s;
	u32	heartbeat_ms;
	u32	heartbeat_misses;
	u32	reconnect_timeout_ms;
	u32	revoke_timeout_ms;
	s32	gid_index;
	u32	pkey_index;
	u32	sl;
	s32	traffic_class;
	u32	mtu;
	u32	timeout;
	u32	retry_count;
	u32	allow_unauthenticated;
};

/* Bounds of settings, whether they are the device's or a call's. */

/* Fewer work requests than one large operation takes make no sense. */
#define TOW_QUEUE_DEPTH_MIN	16
#define TOW_QUEUE_DEPTH_MAX	4096

/* No port of any RDMA device has as many addresses. */
#define TOW_GID_INDEX_MAX	255

#define TOW_MTU_MAX		4096
#define TOW_PKEY_INDEX_MAX	65535
#define TOW_SL_MAX		15
#define TOW_TRAFFIC_CLASS_MAX	255
#define TOW_TIMEOUT_MAX		31
#define TOW_RETRY_COUNT_MAX	6

/* A port has the powers of two from 256 to TOW_MTU_MAX; 0: its own. */
static inline bool tow_mtu_valid(u32 mtu)
{
	return !mtu || (mtu >= 256 && mtu <= TOW_MTU_MAX && is_power_of_2(mtu));
}

/* Peers that one device can remember. */
#define TOW_PEERS_MAX		65536

/* Addresses that one peer is known by. */
#define TOW_PEER_ALIASES	8

/**
 * struct tow_peer_events - what has happened to a peer
 * @broken: how often its connection has failed; wraps around, like the next two
 * @back: how often another session has carried its association
 * @lost: how often its association was lost
 * @error: why, the last time, a negative errno
 * @broken_ns: when it broke last, CLOCK_MONOTONIC
 * @lost_ns: when it was lost last, CLOCK_MONOTONIC
 *
 * A peer's are under tow_peers.lock.
 */
struct tow_peer_events {
	u32	broken;
	u32	back;
	u32	lost;
	int	error;
	u64	broken_ns;
	u64	lost_ns;
};

/**
 * struct tow_peer - one life of another node, or of this one as its own peer
 * @refs: held by tow_peers.by_id, by sessions, by associations, by flows, by
 *	attempts to connect, and by callers
 * @dev: the device, with a reference
 * @id: number of the peer
 * @loopback: the peer is our own device
 * @incarnation: name of this life of the peer's device
 * @state: changed by tow_peer_transition() only; this and what follows, up to
 *	@settings, is under tow_peers.lock
 * @error: last_error of struct tow_peer_info
 * @events: events for programs
 * @channels: struct tow_channel of queues that have channels to the peer
 * @epoch: number of sessions so far
 * @order: the largest @order in the peer's AUTH so far; 0: none
 * @aliases: how many of @addresses
 * @addresses: addresses that the peer was found at or connected from; the first
 *	names its folder
 * @moved: those of @addresses that lead to other peers now, by bit
 * @made_at: when the peer was made, in jiffies
 * @heard_at: when the last session that has ended heard of it, in jiffies
 * @used_at: when the last session was used last, or the peer was made, in
 *	jiffies
 * @session: the present session, with a reference; NULL: none
 * @assoc: the association that may outlive @session, with a reference; NULL:
 *	none
 * @other_end: loopback: the responder's session, with a reference; NULL: none
 * @removed: the peer is not in tow_peers.by_id any more
 * @taken: in a caller's list of peers that were taken out
 * @overridden: @settings are used, not the device's
 * @settings: how to connect to the peer
 * @sent: control messages to the peer, of all sessions
 * @received: control messages from the peer, of all sessions
 * @bytes_written: bytes that operations wrote to the peer, of all sessions
 * @bytes_read: bytes that operations read from the peer, of all sessions
 * @operations: operations of all sessions
 * @replayed: how often operations were posted again, in all sessions
 * @rtt_ns: how long the peer's device takes to acknowledge a control message,
 *	smoothed; 0: it never did
 * @rtt_min_ns: the least of all times that went into @rtt_ns
 * @recorder: what happened last
 * @next_qp: the data queue pair of the next channel that may have any
 * @node: its folder in sysfs, under tow_peer_dirs.lock; NULL: none
 */
struct tow_peer {
	struct kref		refs;
	struct tow_device	*dev;
	u64			id;
	bool			loopback;
	u8			incarnation[TOW_INCARNATION_BYTES];
	enum tow_peer_state	state;
	int			error;
	struct tow_peer_events	events;
	struct list_head	channels;
	u32			epoch;
	u64			order;
	unsigned int		aliases;
	struct tow_address	addresses[TOW_PEER_ALIASES];
	unsigned long		moved;
	unsigned long		made_at;
	unsigned long		heard_at;
	unsigned long		used_at;
	struct tow_session	*session;
	struct tow_assoc	*assoc;
	struct tow_session	*other_end;
	bool			removed;
	struct list_head	taken;
	bool			overridden;
	struct tow_conn_settings settings;
	atomic64_t		sent;
	atomic64_t		received;
	atomic64_t		bytes_written;
	atomic64_t		bytes_read;
	atomic64_t		operations;
	atomic64_t		replayed;
	u32			rtt_ns;
	u32			rtt_min_ns;
	struct tow_recorder	recorder;
	atomic_t		next_qp;
	struct tow_peer_node	*node;
};

/**
 * struct tow_pads - what the packets that prove a path are sent from and received in
 * @memory: TOW_WIRE_PROOF_BYTES of zeroes, and as many of what came; owned
 * @out: DMA address of the first half
 * @in: of the second
 */
struct tow_pads {
	u8	*memory;
	u64	out;
	u64	in;
};

/**
 * struct tow_seeker - somebody who wants to be connected to a peer
 * @link: in tow_attempt.seekers while it is to be woken
 * @wake: called with tow_peers.lock held when to look again; does not sleep; NULL:
 *	the seeker waits for tow_peers.wait
 * @attempt: the attempt that it waits for, with a reference; NULL: none
 */
struct tow_seeker {
	struct list_head	link;
	void			(*wake)(struct tow_seeker *seeker);
	struct tow_attempt	*attempt;
};

static inline void tow_seeker_init(struct tow_seeker *seeker,
				   void (*wake)(struct tow_seeker *seeker))
{
	INIT_LIST_HEAD(&seeker->link);
	seeker->wake = wake;
	seeker->attempt = NULL;
}

/**
 * struct tow_peers - a device's peers
 * @lock: protects what follows, up to @stopping; tow_session.lock may be taken
 *	within
 * @by_id: peers by number, each with a reference
 * @last_id: number of the youngest peer
 * @count: peers in @by_id
 * @attempts: struct tow_attempt that are in progress, or wait for their place
 * @sessions: sessions that are not ENDED, by number, each with a reference
 * @last_session: number of the youngest session
 * @clock: counts requests that came, sessions that became READY, and AUTH that
 *	were sent, to know their order
 * @assocs: associations that have not ended
 * @half_open: responder's sessions whose other end has not proved itself
 * @stopping: the device is going; also read without @lock
 * @wait: woken when a peer, an attempt, a session or an association changes
 * @seek: tow_peer_seek(), called by associations, which are a layer below it
 * @session_ops: for sessions
 * @link_ops: for data queue pairs
 * @clients: of associations, in the order in which they are called; then NULL
 * @settings: see struct tow_conn_settings
 * @listening: the port that we listen on; 0: none; under tow_listen_lock
 * @key: the cluster keys
 * @self: a random key, for the loopback peer: needs no cluster key
 * @control_pd: protection domain of control queue pairs; no program's memory is
 *	in it
 * @pads: for the proofs of paths
 * @cq_pool: completion queues of data queue pairs
 * @partings: identifiers that wait to be destroyed
 * @dirs: the peers' folders in sysfs
 */
struct tow_peers {
	/* protects by_id to stopping */
	struct mutex			lock;
	struct xarray			by_id;
	u64				last_id;
	unsigned int			count;
	struct list_head		attempts;
	struct xarray			sessions;
	u64				last_session;
	u64				clock;
	unsigned int			assocs;
	unsigned int			half_open;
	bool				stopping;
	wait_queue_head_t		wait;
	void (*seek)(struct tow_peer *peer, u32 limit_ms);
	const struct tow_session_ops	*session_ops;
	const struct tow_link_ops	*link_ops;
	const struct tow_assoc_client	*const *clients;
	struct tow_conn_settings	settings;
	u16				listening;
	struct tow_cluster_key		key;
	struct tow_cluster_key		self;
	struct ib_pd			*control_pd;
	struct tow_pads			pads;
	struct tow_cq_pool		*cq_pool;
	struct tow_partings		partings;
	struct tow_peer_dirs		dirs;
};

/* init.c */
int tow_peers_init(struct tow_device *dev, const struct tow_link_ops *link_ops,
		   const struct tow_assoc_client *const *clients);
int tow_peers_start(struct tow_device *dev);
void tow_peers_quiesce(struct tow_device *dev);
void tow_peers_stop(struct tow_device *dev);
void tow_peers_cleanup(struct tow_device *dev);

/* table.c */
void tow_peer_get(struct tow_peer *peer);
void tow_peer_put(struct tow_peer *peer);
struct tow_peer *tow_peer_find(struct tow_device *dev, u64 id);
struct tow_peer *tow_peer_next(struct tow_device *dev, u64 *cursor);
struct tow_peer *tow_peer_by_address(struct tow_device *dev,
				     const struct tow_address *address);

void tow_peer_forget(struct list_head *taken);
bool tow_peer_forget_idle(struct tow_peer *peer);
bool tow_peer_forget_oldest(struct tow_device *dev);

/* table.c: caller holds tow_peers.lock */
void tow_peer_transition(struct tow_peer *peer, enum tow_peer_event event);
struct tow_peer *tow_peer_obtain(struct tow_device *dev, const u8 *incarnation);
void tow_peer_take_out(struct tow_peer *peer);
bool tow_peer_lose_address(struct tow_peer *peer,
			   const struct tow_address *address);
struct tow_address tow_peer_session_address(const struct tow_session *session);
bool tow_peer_session_leads(const struct tow_session *session,
			    const struct tow_address *address);
struct tow_address tow_peer_address(const struct tow_peer *peer);
void tow_peer_add_address(struct tow_peer *peer,
			  const struct tow_address *address);
void tow_peer_waits_no_more(struct tow_peer *peer, bool orderly);
void tow_peer_broken(struct tow_peer *peer, int error);
void tow_peer_back(struct tow_peer *peer);
void tow_peer_lost(struct tow_peer *peer, int error);

/* sysfs.c */
void tow_peer_describe(struct tow_peer *peer, struct tow_peer_info *info);
void tow_peer_dump(struct tow_peer *peer, const char *why);

/* assoc.c */
struct tow_assoc *tow_peer_assoc(struct tow_peer *peer);

/* assoc.c: caller holds tow_peers.lock */
void tow_peer_drop_assoc(struct tow_peer *peer, int error, bool orderly);

/* collision.c */
int tow_peer_session_add(struct tow_session *session);
struct tow_session *tow_peer_session_next(struct tow_device *dev, u64 *cursor);
void tow_sessions_look(struct tow_device *dev, u32 down);
int tow_peer_begin(struct tow_session *session,
		   const struct tow_address *address, struct tow_peer **result);
int tow_peer_authenticated(struct tow_session *session, u64 order);
void tow_peer_session_ready(struct tow_session *session);
void tow_peer_session_ending(struct tow_session *session, bool orderly,
			     bool keep);
void tow_peer_session_gone(struct tow_session *session, bool keep);

/* connect.c */
void tow_attempts_init(struct tow_device *dev);
void tow_attempts_stop(struct tow_peers *peers);
int tow_peer_reach(struct tow_device *dev, struct tow_account *account,
		   const struct tow_address *address,
		   const struct tow_conn_settings *settings, u32 timeout_ms,
		   struct tow_peer **result);
int tow_peer_reach_begin(struct tow_device *dev, struct tow_account *account,
			 const struct tow_address *address,
			 struct tow_seeker *seeker, struct tow_peer **result);
int tow_peer_use(struct tow_peer *peer, struct tow_account *account,
		 u32 timeout_ms, struct tow_session **result);
int tow_peer_use_begin(struct tow_peer *peer, struct tow_account *account,
		       struct tow_seeker *seeker, struct tow_session **result);
int tow_seeker_late(const struct tow_seeker *seeker);
void tow_seeker_end(struct tow_seeker *seeker, struct tow_device *dev);
void tow_peer_seek(struct tow_peer *peer, u32 limit_ms);
void tow_peer_remember(struct tow_peer *peer,
		       const struct tow_conn_settings *settings);
int tow_peer_disconnect(struct tow_peer *peer);

/* try.c */
struct tow_session *tow_peer_session(struct tow_peer *peer);

/* ioctl.c */
int tow_address_take(struct tow_address *address,
		     const u8 bytes[TOW_ADDRESS_BYTES], u32 scope_id, u16 port);
extern const struct tow_listing tow_peer_listing;
int tow_call_peer_connect(struct tow_client *client, void *data,
			  const struct tow_answer *answer);
int tow_call_peer_disconnect(struct tow_client *client, void *data,
			     const struct tow_answer *answer);

/* conn/passive.c */
int tow_listen_move(struct tow_device *dev, u16 port);

#endif /* TOW_PEER_H */

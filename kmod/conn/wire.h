/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The wire protocol between nodes: the layout of every message.  Their order is
 * in Documentation/protocol.  All numbers are little endian; all fields are
 * naturally aligned; all padding is an explicit field, sent as zero, and a
 * message with other padding is refused.
 *
 * Every field is checked before it is used: a valid MAC proves only that the
 * sender holds the cluster key, not that the message makes sense.
 */
#ifndef TOW_WIRE_H
#define TOW_WIRE_H

#include <linux/align.h>
#include <linux/build_bug.h>
#include <linux/types.h>

#include "uapi/towline.h"

#define TOW_WIRE_MAGIC		0x4c574f54	/* "TOWL" */
/* What this node speaks: the present version, and those down to the lowest. */
#define TOW_WIRE_VERSION	7
#define TOW_WIRE_LOWEST		6
/* The first in which slots have a width. */
#define TOW_WIRE_WIDTHS		7

#define TOW_WIRE_NONCE_BYTES	16
#define TOW_WIRE_MAC_BYTES	32
/*
 * Truncated MACs, where there is little room and a sender has one guess only: of
 * messages, and of requests.
 */
#define TOW_WIRE_SHORT_MAC_BYTES 16
#define TOW_WIRE_REQUEST_MAC_BYTES 8
#define TOW_WIRE_ASSOC_BYTES	16

/* ---- connecting ----------------------------------------------------------- */

/* Bits that request and reply must have in common. */
enum tow_wire_feature {
	TOW_WIRE_AUTHENTICATED	= 1 << 0	/* the sender has a cluster key */
};

/**
 * struct tow_wire_request - private data of a connection request
 * @magic: TOW_WIRE_MAGIC
 * @version: the highest version that the sender speaks
 * @lowest: the lowest one
 * @qps: data queue pairs that the sender asks for
 * @mtu: enum ib_mtu: the largest packet that the sender's port and path take
 * @incarnation: of the sender's device
 * @nonce: random, new for each request
 * @qp_num: the sender's control queue pair
 * @features: bits of enum tow_wire_feature
 * @mac: of all of the above and both addresses: see auth.c.  Also says which of
 *	two cluster keys the session is made with
 *
 * 56 bytes: all that the connection manager leaves of 92.
 */
struct tow_wire_request {
	__le32	magic;
	__u8	version;
	__u8	lowest;
	__u8	qps;
	__u8	mtu;
	__u8	incarnation[TOW_INCARNATION_BYTES];
	__u8	nonce[TOW_WIRE_NONCE_BYTES];
	__le32	qp_num;
	__le32	features;
	__u8	mac[TOW_WIRE_REQUEST_MAC_BYTES];
};

/**
 * struct tow_wire_reply - private data of an acceptance
 * @magic: TOW_WIRE_MAGIC
 * @version: the highest version that both ends speak
 * @qps: how many data queue pairs there will be
 * @mtu: enum ib_mtu: their path MTU, not more than the request's
 * @reserved0: zero
 * @incarnation: of the sender's device
 * @nonce: random, new for each reply
 * @qp_num: the sender's control queue pair
 * @features: as in the request
 * @reserved: zero
 * @mac: of all of the above and of the request: see auth.c
 */
struct tow_wire_reply {
	__le32	magic;
	__u8	version;
	__u8	qps;
	__u8	mtu;
	__u8	reserved0;
	__u8	incarnation[TOW_INCARNATION_BYTES];
	__u8	nonce[TOW_WIRE_NONCE_BYTES];
	__le32	qp_num;
	__le32	features;
	__u8	reserved[8];
	__u8	mac[TOW_WIRE_MAC_BYTES];
};

/* Why a request is rejected, or why a session ends. */
enum tow_wire_reason {
	TOW_WIRE_MALFORMED	= 1,	/* not a valid request */
	TOW_WIRE_BAD_VERSION	= 2,	/* the versions are in the reject */
	TOW_WIRE_NO_KEY		= 3,	/* only one end has a cluster key; or
					 * none has, which is not allowed here
					 */
	TOW_WIRE_BAD_MAC	= 4,	/* the ends' cluster keys differ */
	TOW_WIRE_BUSY		= 5,	/* no room now; try again soon */
	TOW_WIRE_CROSSED	= 7,	/* our own request goes on instead */
	TOW_WIRE_GOING		= 8,	/* the device is going */
	TOW_WIRE_NO_ROOM	= 9,	/* no more queue pairs, or no memory */
	TOW_WIRE_IDLE		= 10,	/* the session was unused for long */
	TOW_WIRE_ADMIN		= 11,	/* an administrator ended the session */
	TOW_WIRE_REPLACED	= 12,	/* a newer session takes its place */
	TOW_WIRE_PROTOCOL	= 13,	/* a message broke the protocol */
	TOW_WIRE_REVOKE_LATE	= 14,	/* a revoke was not acknowledged in time */
	TOW_WIRE_FAILED		= 15,	/* something else */
	TOW_WIRE_TOO_LONG	= 16	/* packets as long as the path MTU got lost */
};

/**
 * struct tow_wire_reject - private data of a rejection
 * @magic: TOW_WIRE_MAGIC
 * @version: the highest version that the sender speaks
 * @lowest: the lowest one
 * @reason: enum tow_wire_reason
 *
 * Not authenticated: it ends an attempt to connect, but no session.
 */
struct tow_wire_reject {
	__le32	magic;
	__u8	version;
	__u8	lowest;
	__le16	reason;
};

/* ---- messages on the control queue pair ----------------------------------- */

#define TOW_WIRE_MESSAGE_BYTES	512

/* Receives that each end keeps posted, hence messages on their way. */
#define TOW_WIRE_CREDITS	16

enum tow_wire_type {
	TOW_WIRE_AUTH		= 1,	/* initiator: tow_wire_auth; the first */
	TOW_WIRE_AUTHED		= 2,	/* responder: tow_wire_authed, then QPS */
	TOW_WIRE_READY		= 3,	/* responder: all data queue pairs are
					 * connected
					 */
	TOW_WIRE_HEARTBEAT	= 4,	/* nothing else was sent for a while */
	TOW_WIRE_CREDIT		= 5,	/* only for its header's credits */
	TOW_WIRE_GOODBYE	= 6,	/* tow_wire_goodbye; the last */
	TOW_WIRE_QPS		= 7,	/* tow_wire_qps */

	TOW_WIRE_RESOLVE	= 16,	/* tow_wire_resolve, one or more */
	TOW_WIRE_RESOLVE_MORE	= 17,	/* tow_wire_resolve_more */
	TOW_WIRE_RESOLVED	= 18,	/* tow_wire_resolved, one or more:
					 * answers both
					 */
	/*
	 * The sender does not wait for that name any more.  The other end
	 * answers the request with NOT_FOUND, unless its answer is on its way
	 * already: each request is answered once.
	 */
	TOW_WIRE_CANCEL		= 19,
	TOW_WIRE_REVOKE		= 20,	/* tow_wire_grants: owner to resolver */
	TOW_WIRE_REVOKED	= 21,	/* tow_wire_grants: answers REVOKE */
	TOW_WIRE_RELEASE	= 22,	/* tow_wire_grants: not used any more */
	TOW_WIRE_NOTIFIED	= 23,	/* tow_wire_notified */
	TOW_WIRE_SYNC		= 24	/* tow_wire_sync: association resumes */
};

/**
 * struct tow_wire_header - how every message begins
 * @bytes: of the whole message
 * @type: enum tow_wire_type
 * @reserved: zero
 * @request: RESOLVE_MORE: a number of the sender's choice; others: zero
 * @counter: 1 for a direction's first message of a session, one more for each
 * @credits: how many of the receiver's messages the sender has handled in this
 *	session, wrapping around
 * @reserved2: zero
 * @mac: of the message, with this field zero: see auth.c
 */
struct tow_wire_header {
	__le16	bytes;
	__u8	type;
	__u8	reserved;
	__le32	request;
	__le64	counter;
	__le32	credits;
	__le32	reserved2;
	__u8	mac[TOW_WIRE_SHORT_MAC_BYTES];
};

#define TOW_WIRE_BODY_BYTES \
	(TOW_WIRE_MESSAGE_BYTES - sizeof(struct tow_wire_header))

/**
 * struct tow_wire_auth - the initiator proves that it has the cluster key
 * @mac: see auth.c
 * @order: not 0; larger than in every AUTH that the initiator's device has sent
 *	to this responder before
 * @assoc: the association that the initiator has with the responder; zeroes:
 *	none
 *
 * The sender has given up every earlier connection that it sent AUTH for.  AUTH
 * of two connections may arrive in any order, hence @order.
 */
struct tow_wire_auth {
	__u8	mac[TOW_WIRE_MAC_BYTES];
	__le64	order;
	__u8	assoc[TOW_WIRE_ASSOC_BYTES];
};

/**
 * struct tow_wire_authed - the responder's answer
 * @assoc: the initiator's association, which resumes; zeroes: a new one begins,
 *	and any other ends
 */
struct tow_wire_authed {
	__u8	assoc[TOW_WIRE_ASSOC_BYTES];
};

/**
 * struct tow_wire_qps - the sender's data queue pairs
 * @psn: number of the first packet on each, 24 bits
 * @answers: reads of the receiver's that the sender can have in flight, on each
 * @asks: reads of its own that it can have
 * @count: how many queue pairs: as in the reply
 * @reserved: zero
 * @qp_num: their numbers, 24 bits
 *
 * Sent once by each end: by the initiator when its own are connected to the
 * responder's.
 */
struct tow_wire_qps {
	__le32	psn;
	__le16	answers;
	__le16	asks;
	__le32	count;
	__le32	reserved;
	__le32	qp_num[];
};

/**
 * struct tow_wire_goodbye - this session ends
 * @reason: enum tow_wire_reason
 * @reserved: zero
 */
struct tow_wire_goodbye {
	__le32	reason;
	__le32	reserved;
};

/* Longest name, without a terminating zero. */
#define TOW_WIRE_NAME_MAX	255

/**
 * struct tow_wire_resolve - a request for the export of a name
 * @job_id: the job, checked by the asking kernel; zero: the own job of user
 *	@uid
 * @uid: the user, in the initial user namespace; 0 if @job_id is not zero
 * @rights: bits of enum tow_right that the asker wants, a slot's width among them
 * @wait: 1: answer when the name is there; 0: now
 * @name_bytes: 1 to TOW_WIRE_NAME_MAX
 * @reserved: zero
 * @request: a number of the asker's choice
 * @name: the name, and up to three zeroes: see tow_wire_resolve_bytes()
 *
 * RESOLVE has as many of them as fit, one behind the other.
 */
struct tow_wire_resolve {
	__u8	job_id[TOW_JOB_ID_BYTES];
	__le32	uid;
	__le32	rights;
	__u8	wait;
	__u8	name_bytes;
	__u8	reserved[2];
	__le32	request;
	__u8	name[];
};

static inline size_t tow_wire_resolve_bytes(u8 name_bytes)
{
	return sizeof(struct tow_wire_resolve) + ALIGN(name_bytes, 4);
}

/* CANCEL: the numbers of requests for names, __le32, at least one. */
#define TOW_WIRE_CANCELS_MAX	(TOW_WIRE_BODY_BYTES / sizeof(__le32))

/**
 * struct tow_wire_resolve_more - asks for segments that did not fit the answer
 * @grant: from the answer
 * @first: number of the first segment wanted
 * @reserved: zero
 */
struct tow_wire_resolve_more {
	__le64	grant;
	__le32	first;
	__le32	reserved;
};

/**
 * struct tow_wire_segment - a range of memory under one remote key
 * @address: where the range begins, an address of the key
 * @key: the remote key
 * @bytes: size of the range, not 0
 *
 * A slot has one segment.  @address: notifications counted so far; @key: the
 * slot's number, below TOW_SLOTS_MAX; @bytes: 8.
 */
struct tow_wire_segment {
	__le64	address;
	__le32	key;
	__le32	bytes;
};

enum tow_wire_status {
	TOW_WIRE_OK		= 0,
	TOW_WIRE_NOT_FOUND	= 1,	/* no such name in that job */
	TOW_WIRE_FORBIDDEN	= 2,	/* the export does not have those rights */
	TOW_WIRE_STALE		= 3,	/* the grant has ended or is revoked */
	TOW_WIRE_TOO_MANY	= 4,	/* requests that wait, or grants */
	TOW_WIRE_NO_MEMORY	= 5,
	TOW_WIRE_TAKEN		= 6	/* that slot has a grant already */
};

/**
 * struct tow_wire_resolved - the answer to a request
 * @grant: number of the grant, larger than those of all grants that the sender
 *	has given before in this association; not OK: 0
 * @bytes: size of the export
 * @status: enum tow_wire_status
 * @rights: the granted rights: those asked for
 * @total: segments of the export
 * @first: number of the first segment here
 * @count: segments here
 * @request: the request's number
 * @segments: in the order of the export's bytes
 *
 * RESOLVED has as many of them as fit, one behind the other.
 */
struct tow_wire_resolved {
	__le64	grant;
	__le64	bytes;
	__le32	status;
	__le32	rights;
	__le32	total;
	__le32	first;
	__le32	count;
	__le32	request;
	struct tow_wire_segment segments[];
};

#define TOW_WIRE_SEGMENTS_MAX \
	((TOW_WIRE_BODY_BYTES - sizeof(struct tow_wire_resolved)) / \
	 sizeof(struct tow_wire_segment))

/**
 * struct tow_wire_grants - REVOKE, REVOKED, RELEASE: which grants
 * @count: how many, at least 1
 * @reserved: zero
 * @grants: their names
 */
struct tow_wire_grants {
	__le32	count;
	__le32	reserved;
	__le64	grants[];
};

#define TOW_WIRE_GRANTS_MAX \
	((TOW_WIRE_BODY_BYTES - sizeof(struct tow_wire_grants)) / \
	 sizeof(__le64))

/*
 * Notifications are no messages: they come on data queue pairs, with RDMA
 * writes or alone.  rma/sequence.h has their numbers and credits.
 *
 * Nor is what each end sends first on each data queue pair: a SEND of one byte, and
 * one as long as the path MTU.  Their bytes do not matter.
 */

#define TOW_WIRE_PROOFS		2
/* The longest. */
#define TOW_WIRE_PROOF_BYTES	4096

/**
 * struct tow_wire_notified - credits for notifications
 * @count: how many notifications of the receiver the sender has handled in this
 *	session, wrapping around; more than in the last NOTIFIED
 * @reserved: zero
 */
struct tow_wire_notified {
	__le32	count;
	__le32	reserved;
};

/**
 * struct tow_wire_sync - an association resumes in this session
 * @epoch: sessions that the sender has had with the receiver
 * @count: data queue pairs
 * @grant: the last grant of the receiver's that the sender was told of; 0: none.
 *	Those after it end: their RESOLVED was lost
 * @notified: for each data queue pair: notifications from the receiver that
 *	have come by it in the life of the association, wrapping around
 *
 * Sent once by each end, after REVOKE of all that was revoked meanwhile, and
 * before it asks for anything.
 */
struct tow_wire_sync {
	__le32	epoch;
	__le32	count;
	__le64	grant;
	__le32	notified[];
};

/* The first three fit the private data that the connection manager leaves. */
static_assert(sizeof(struct tow_wire_request) == 56);
static_assert(sizeof(struct tow_wire_reply) == 88);
static_assert(sizeof(struct tow_wire_reject) == 8);
static_assert(sizeof(struct tow_wire_header) == 40);
static_assert(sizeof(struct tow_wire_auth) == 56);
static_assert(sizeof(struct tow_wire_authed) == 16);
static_assert(sizeof(struct tow_wire_resolve) == 32);
static_assert(sizeof(struct tow_wire_resolve) + TOW_WIRE_NAME_MAX + 1 <=
	      TOW_WIRE_BODY_BYTES);
static_assert(sizeof(struct tow_wire_resolved) == 40);

#endif /* TOW_WIRE_H */

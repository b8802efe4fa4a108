/* SPDX-License-Identifier: GPL-2.0 */
/*
 * tow_hostile: what the tests ask of tow_hostile.ko, a node that says whatever
 * it is told to.  Each open file is one connection, made by it or by others, or
 * listens for those, or is a data queue pair of another file's connection.
 */
#ifndef TOW_HOSTILE_H
#define TOW_HOSTILE_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define TOW_HOSTILE_NODE	"/dev/tow_hostile"

/* Of a message; twice what towline.ko takes. */
#define TOW_HOSTILE_BYTES_MAX	1024

/* What a queue pair of soft-RoCE takes, and a few messages. */
#define TOW_HOSTILE_NOTIFICATIONS_MAX	1000

/* Of what travels with a request, which carries 56 bytes, or its answer. */
#define TOW_HOSTILE_DATA_MAX	240

/**
 * struct tow_hostile_prepare - find the way, and have a queue pair
 * @address: in: where to; IPv4 as IPv4-mapped
 * @source: out: our address on that way
 * @gid: in: the GID that the request says it is from; zeroes: that of @source
 * @scope_id: in: interface of a link-local address
 * @port: in: where it listens
 * @reserved: not used
 * @qp_num: out: our queue pair
 */
struct tow_hostile_prepare {
	__u8		address[16];
	__u8		source[16];
	__u8		gid[16];
	__u32		scope_id;
	__u16		port;
	__u16		reserved;
	__u32		qp_num;
};

/**
 * struct tow_hostile_connect - make the request
 * @timeout_ms: in: how long to wait for its answer
 * @bytes: in: of @data; out: likewise
 * @data: in: what travels with the request; out: with its answer
 *
 * 0: connected; ECONNREFUSED: rejected, @data says why; ETIMEDOUT; or what the
 * connection manager says.
 */
struct tow_hostile_connect {
	__u32		timeout_ms;
	__u32		bytes;
	__u8		data[TOW_HOSTILE_DATA_MAX];
};

/**
 * struct tow_hostile_derive - make the keys of the session
 * @key_bytes: in: of @key; 0: those without a cluster key
 * @answered: in: 1: this end answered the request; 0: it made it
 * @key: in: the cluster key
 * @request: in: struct tow_wire_request
 * @reply: in: struct tow_wire_reply
 * @initiator: in: whose request it was
 * @responder: in: who answered
 * @request_mac: out: what must be in the request
 * @reply_mac: out: what must be in the reply
 * @initiator_mac: out: what belongs into AUTH
 */
struct tow_hostile_derive {
	__u32		key_bytes;
	__u32		answered;
	__u8		key[64];
	__u8		request[56];
	__u8		reply[88];
	__u8		initiator[16];
	__u8		responder[16];
	__u8		request_mac[8];
	__u8		reply_mac[32];
	__u8		initiator_mac[32];
};

/**
 * struct tow_hostile_data - have a data queue pair
 * @control: in: the file of the session's control queue pair, connected; it
 *	stays open until this one is closed
 * @notifications: in: how many may come at once; up to
 *	TOW_HOSTILE_NOTIFICATIONS_MAX
 * @qp_num: out: ours
 */
struct tow_hostile_data {
	__s32		control;
	__u32		notifications;
	__u32		qp_num;
};

/**
 * struct tow_hostile_join - connect a data queue pair to one of the other end's
 * @qp_num: in: the other end's
 * @far_psn: in: number of the first packet from there
 * @psn: in: of ours
 * @mtu: in: the path MTU, enum ib_mtu
 */
struct tow_hostile_join {
	__u32		qp_num;
	__u32		far_psn;
	__u32		psn;
	__u32		mtu;
};

/**
 * struct tow_hostile_message - say or hear something
 * @timeout_ms: in: RECEIVE: how long to wait
 * @bytes: in: SEND: of @data; out: RECEIVE: likewise
 * @sign: in: SEND: put the MAC there; out: RECEIVE: there was a good one
 * @key: in: SEND: the key that it invalidates; 0: none
 * @data: the message
 *
 * SEND: 0: the other end's queue pair has it; EIO: it did not take it.
 * RECEIVE: ETIMEDOUT: nothing came; ENOTCONN: nothing will come any more.
 */
struct tow_hostile_message {
	__u32		timeout_ms;
	__u32		bytes;
	__u32		sign;
	__u32		key;
	__u8		data[TOW_HOSTILE_BYTES_MAX];
};

/**
 * struct tow_hostile_listen - take connections that others make
 * @address: in: of ours; IPv4 as IPv4-mapped
 * @port: in: where
 * @reserved: not used
 */
struct tow_hostile_listen {
	__u8		address[16];
	__u16		port;
	__u16		reserved[3];
};

/**
 * struct tow_hostile_take - have the next connection that somebody makes
 * @listener: in: the file that listens
 * @timeout_ms: in: how long to wait for it
 * @source: out: whose it is
 * @address: out: ours
 * @qp_num: out: our queue pair
 * @bytes: out: of @data
 * @data: out: what came with the request
 *
 * ETIMEDOUT: nobody came; ENOTCONN: who came has gone again.
 */
struct tow_hostile_take {
	__s32		listener;
	__u32		timeout_ms;
	__u8		source[16];
	__u8		address[16];
	__u32		qp_num;
	__u32		bytes;
	__u8		data[TOW_HOSTILE_DATA_MAX];
};

/**
 * struct tow_hostile_answer - answer the request that was taken
 * @reject: in: no, for this reason (enum ib_cm_rej_reason), and @data says why;
 *	0: yes
 * @bytes: in: of @data
 * @timeout_ms: in: yes: how long to wait until the other end knows; 0: not at all
 * @reserved: not used
 * @data: in: what travels with the answer
 */
struct tow_hostile_answer {
	__u32		reject;
	__u32		bytes;
	__u32		timeout_ms;
	__u32		reserved;
	__u8		data[TOW_HOSTILE_DATA_MAX];
};

/**
 * struct tow_hostile_notify - notify on a data queue pair, as on InfiniBand
 * @immediate: in: of the first one
 * @step: in: the next one's is larger by so much
 * @count: in: how many, one after the other; out: those that the other end took
 * @reserved: not used
 *
 * 0; EIO: one was not taken.
 */
struct tow_hostile_notify {
	__u32		immediate;
	__u32		step;
	__u32		count;
	__u32		reserved;
};

/**
 * struct tow_hostile_noted - notifications that have come on a data queue pair
 * @timeout_ms: in: how long to wait for them
 * @count: in: for how many in all; out: how many there were
 * @immediate: out: the last one's
 * @reserved: not used
 */
struct tow_hostile_noted {
	__u32		timeout_ms;
	__u32		count;
	__u32		immediate;
	__u32		reserved;
};

#define TOW_HOSTILE_TYPE	0xBC
#define TOW_HOSTILE_PREPARE	_IO(TOW_HOSTILE_TYPE, 0)
#define TOW_HOSTILE_CONNECT	_IO(TOW_HOSTILE_TYPE, 1)
#define TOW_HOSTILE_DERIVE	_IO(TOW_HOSTILE_TYPE, 2)
#define TOW_HOSTILE_DATA	_IO(TOW_HOSTILE_TYPE, 3)
#define TOW_HOSTILE_SEND	_IO(TOW_HOSTILE_TYPE, 4)
#define TOW_HOSTILE_RECEIVE	_IO(TOW_HOSTILE_TYPE, 5)
#define TOW_HOSTILE_LISTEN	_IO(TOW_HOSTILE_TYPE, 6)
#define TOW_HOSTILE_TAKE	_IO(TOW_HOSTILE_TYPE, 7)
#define TOW_HOSTILE_ANSWER	_IO(TOW_HOSTILE_TYPE, 8)
#define TOW_HOSTILE_NOTIFY	_IO(TOW_HOSTILE_TYPE, 9)
#define TOW_HOSTILE_NOTED	_IO(TOW_HOSTILE_TYPE, 10)
/* Say nothing on this queue pair any more, not even that something has come; __u32: not used */
#define TOW_HOSTILE_DEAF	_IO(TOW_HOSTILE_TYPE, 11)
#define TOW_HOSTILE_JOIN	_IO(TOW_HOSTILE_TYPE, 12)

#endif /* TOW_HOSTILE_H */

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The cluster key, and what is proved with it.
 *
 * A node holds the cluster key or it does not; what one of those says is told
 * from what anybody else says by MACs (HMAC-SHA256).  Each MAC covers a label
 * of its own, so that none can be used for anything else, nor be sent back to
 * whom it came from; and both ends' nonces, so that none can be used again.
 *
 * What is covered, byte by byte, is in auth.c and in Documentation/security.md.
 */
#ifndef TOW_AUTH_H
#define TOW_AUTH_H

#include <linux/in6.h>
#include <linux/mutex.h>
#include <linux/types.h>

#include "conn/wire.h"

struct crypto_shash;

/* A key's description, with the terminating zero. */
#define TOW_KEY_NAME_MAX	128

/* What a cluster key may consist of. */
#define TOW_KEY_BYTES_MIN	16
#define TOW_KEY_BYTES_MAX	1024

/**
 * struct tow_cluster_key - a device's cluster key
 * @lock: protects the others
 * @hmac: keyed with it; NULL: there is none.  The key itself is kept nowhere
 * @always: it is used whatever both ends say that they have
 * @name: what it is called in the kernel's key service; empty: there is none
 */
struct tow_cluster_key {
	/* protects hmac, name */
	struct mutex		lock;
	struct crypto_shash	*hmac;
	bool			always;
	char			name[TOW_KEY_NAME_MAX];
};

/**
 * struct tow_handshake - what both ends of a session know when they have said
 *	who they are
 * @request: the initiator's
 * @reply: the responder's; its MAC is not covered by anything
 * @initiator: the initiator's address; IPv4 as IPv4-mapped
 * @responder: the responder's address
 */
struct tow_handshake {
	struct tow_wire_request	request;
	struct tow_wire_reply	reply;
	struct in6_addr		initiator;
	struct in6_addr		responder;
};

/**
 * struct tow_auth - the keys of one session
 * @send: HMAC keyed for what we send
 * @receive: HMAC keyed for what we receive
 * @data: HMAC keyed for requests and replies of data queue pairs
 * @initiator_mac: what the initiator must send first
 *
 * All NULL before tow_auth_derive().
 */
struct tow_auth {
	struct crypto_shash	*send;
	struct crypto_shash	*receive;
	struct crypto_shash	*data;
	u8			initiator_mac[TOW_WIRE_MAC_BYTES];
};

void tow_cluster_key_init(struct tow_cluster_key *key);
void tow_cluster_key_cleanup(struct tow_cluster_key *key);
int tow_cluster_key_random(struct tow_cluster_key *key);
int tow_cluster_key_set(struct tow_cluster_key *key, const char *name);
bool tow_cluster_key_there(struct tow_cluster_key *key);
void tow_cluster_key_name(struct tow_cluster_key *key,
			  char name[TOW_KEY_NAME_MAX]);

int tow_auth_derive(struct tow_auth *auth, struct tow_cluster_key *key,
		    const struct tow_handshake *handshake, bool initiator,
		    u8 reply_mac[TOW_WIRE_MAC_BYTES]);
void tow_auth_cleanup(struct tow_auth *auth);
int tow_auth_data_mac(struct tow_auth *auth, bool initiator, u64 session,
		      u32 index, u32 qp_num,
		      u8 mac[TOW_WIRE_SHORT_MAC_BYTES]);
int tow_auth_assoc_name(struct tow_auth *auth, u8 name[TOW_WIRE_ASSOC_BYTES]);
int tow_auth_sign(struct tow_auth *auth, void *message, size_t bytes);
bool tow_auth_verify(struct tow_auth *auth, void *message, size_t bytes);
bool tow_auth_equal(const u8 *one, const u8 *other, size_t bytes);

#endif /* TOW_AUTH_H */

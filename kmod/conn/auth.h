/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The cluster key, and the MACs that are made with it.
 *
 * MACs (HMAC-SHA256) prove that a message comes from a node that holds the
 * cluster key.  Each kind of MAC covers its own label, so that a MAC is good
 * for one purpose and cannot be sent back to its sender; and, but for that of a
 * request, both ends' nonces, so that it cannot be used again.
 *
 * auth.c and Documentation/security.md say what is covered, byte by byte.
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

/* Size of a cluster key. */
#define TOW_KEY_BYTES_MIN	16
#define TOW_KEY_BYTES_MAX	1024

/**
 * enum tow_key_use - what a device's two cluster keys are for
 * @TOW_KEY_CURRENT: to connect, and to be connected to
 * @TOW_KEY_NEXT: only to be connected to, while all nodes get another key
 * @TOW_KEY_USES: how many there are
 */
enum tow_key_use {
	TOW_KEY_CURRENT,
	TOW_KEY_NEXT,
	TOW_KEY_USES
};

/**
 * struct tow_cluster_key - a device's cluster keys
 * @lock: protects @hmac and @name
 * @hmac: transforms with the keys, owned; NULL: no key is set.  The keys
 *	themselves are not kept
 * @always: the current key is used whatever the handshake says; set before first
 *	use
 * @name: their descriptions in the kernel's key service; "": no key is set
 */
struct tow_cluster_key {
	/* protects hmac, name */
	struct mutex		lock;
	struct crypto_shash	*hmac[TOW_KEY_USES];
	bool			always;
	char			name[TOW_KEY_USES][TOW_KEY_NAME_MAX];
};

/**
 * struct tow_handshake - request and reply of a control queue pair
 * @request: the initiator's
 * @reply: the responder's; no MAC covers the MAC in it
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
 * @initiator_mac: the initiator's proof: the MAC in AUTH
 * @assoc: name of the association that may begin with the session
 *
 * Owned by the session.  All are NULL or zeroes before tow_auth_derive().
 */
struct tow_auth {
	struct crypto_shash	*send;
	struct crypto_shash	*receive;
	u8			initiator_mac[TOW_WIRE_MAC_BYTES];
	u8			assoc[TOW_WIRE_ASSOC_BYTES];
};

void tow_cluster_key_init(struct tow_cluster_key *key);
void tow_cluster_key_cleanup(struct tow_cluster_key *key);
int tow_cluster_key_random(struct tow_cluster_key *key);
int tow_cluster_key_set(struct tow_cluster_key *key, enum tow_key_use use,
			const char *name);
bool tow_cluster_key_there(struct tow_cluster_key *key);
void tow_cluster_key_name(struct tow_cluster_key *key, enum tow_key_use use,
			  char name[TOW_KEY_NAME_MAX]);

int tow_auth_sign_request(struct tow_cluster_key *key,
			  struct tow_handshake *handshake);
int tow_auth_check_request(struct tow_cluster_key *key,
			   const struct tow_handshake *handshake);
int tow_auth_derive(struct tow_auth *auth, struct tow_cluster_key *key,
		    const struct tow_handshake *handshake, bool initiator,
		    u8 reply_mac[TOW_WIRE_MAC_BYTES]);
void tow_auth_cleanup(struct tow_auth *auth);
int tow_auth_sign(struct tow_auth *auth, void *message, size_t bytes);
bool tow_auth_verify(struct tow_auth *auth, void *message, size_t bytes);
bool tow_auth_equal(const u8 *one, const u8 *other, size_t bytes);

#endif /* TOW_AUTH_H */

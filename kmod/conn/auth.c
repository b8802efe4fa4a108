// SPDX-License-Identifier: GPL-2.0
/*
 * The cluster key, and the MACs that are made with it.
 *
 * Every MAC is HMAC-SHA256 over a label, its terminating zero included (so no
 * label is the beginning of another), and then over exactly these bytes:
 *
 *	key		label, each after "towline 1 "	then
 *	cluster key	"request"			the request, without its
 *							MAC, and both addresses
 *	cluster key	"responder"			transcript
 *	cluster key	"initiator"			transcript
 *	cluster key	"initiator to responder"	transcript
 *	cluster key	"responder to initiator"	transcript
 *	cluster key	"association"			transcript
 *	direction key	"message"			the message, MAC zero
 *
 * The first keeps strangers away, and says which of two cluster keys the session
 * is made with; who repeats a request gets no further.  The next two are the
 * proofs of responder and initiator, and travel in the handshake; the two after
 * them are the keys of one session and never leave this file.  "association" gives
 * the name of the association that may begin with the session.  Both ends' nonces
 * are in the transcript, so no MAC of one session is valid in another.
 *
 * Nodes without a cluster key, where that is allowed, use a key of zeroes.  So
 * there is one code path, and transmission errors are found either way.
 */
#include <crypto/algapi.h>
#include <crypto/hash.h>
#include <keys/user-type.h>
#include <linux/ctype.h>
#include <linux/err.h>
#include <linux/key.h>
#include <linux/rwsem.h>
#include <linux/random.h>
#include <linux/string.h>

#include "auth.h"

#if !IS_ENABLED(CONFIG_KEYS)
#error "towline: the cluster key comes from the kernel's key service (CONFIG_KEYS)"
#endif

/* The key of nodes without a cluster key: zeroes. */
static const u8 tow_auth_no_key[TOW_WIRE_MAC_BYTES];

/* What both ends saw of each other.  No padding: every byte counts. */
struct tow_auth_transcript {
	struct tow_wire_request	request;
	u8			reply[offsetof(struct tow_wire_reply, mac)];
	struct in6_addr		initiator;
	struct in6_addr		responder;
};

static_assert(sizeof(struct tow_auth_transcript) == 56 + 56 + 16 + 16);

/* What the MAC of a request is of.  No padding here, either. */
struct tow_auth_asked {
	u8			request[offsetof(struct tow_wire_request, mac)];
	struct in6_addr		initiator;
	struct in6_addr		responder;
};

static_assert(sizeof(struct tow_auth_asked) == 48 + 16 + 16);

/* ---- HMAC ----------------------------------------------------------------- */

/* A transform with a key; or ERR_PTR(): -ENOMEM; -ENOENT: no HMAC-SHA256. */
static struct crypto_shash *tow_auth_keyed(const void *key, size_t bytes)
{
	struct crypto_shash *hmac;
	int ret;

	hmac = crypto_alloc_shash("hmac(sha256)", 0, 0);
	if (IS_ERR(hmac))
		return hmac;
	ret = crypto_shash_setkey(hmac, key, bytes);
	if (ret) {
		crypto_free_shash(hmac);
		return ERR_PTR(ret);
	}
	return hmac;
}

/* The MAC over a label and @count bytes. */
static int tow_auth_mac(struct crypto_shash *hmac, const char *label,
			const void *bytes, size_t count,
			u8 mac[TOW_WIRE_MAC_BYTES])
{
	SHASH_DESC_ON_STACK(desc, hmac);
	int ret;

	desc->tfm = hmac;
	ret = crypto_shash_init(desc);
	if (!ret)
		ret = crypto_shash_update(desc, label, strlen(label) + 1);
	if (!ret)
		ret = crypto_shash_finup(desc, bytes, count, mac);
	shash_desc_zero(desc);
	return ret;
}

/* A transform whose key is the MAC of a label and the transcript. */
static int tow_auth_session_key(struct crypto_shash *cluster, const char *label,
				const struct tow_auth_transcript *transcript,
				struct crypto_shash **result)
{
	u8 key[TOW_WIRE_MAC_BYTES];
	struct crypto_shash *hmac;
	int ret;

	ret = tow_auth_mac(cluster, label, transcript, sizeof(*transcript), key);
	if (ret)
		return ret;
	hmac = tow_auth_keyed(key, sizeof(key));
	memzero_explicit(key, sizeof(key));
	if (IS_ERR(hmac))
		return PTR_ERR(hmac);
	*result = hmac;
	return 0;
}

/* ---- the cluster key ------------------------------------------------------ */

/**
 * tow_cluster_key_init - initialise cluster keys that are not set
 * @key: zeroed memory
 */
void tow_cluster_key_init(struct tow_cluster_key *key)
{
	mutex_init(&key->lock);
}

/**
 * tow_cluster_key_random - make a random key that is always used
 * @key: the key, not set
 *
 * A proof with this key comes from this device itself.  After an error every
 * tow_auth_derive() with it fails.
 *
 * Return: 0; -ENOMEM; -ENOENT: the kernel has no HMAC-SHA256.
 */
int tow_cluster_key_random(struct tow_cluster_key *key)
{
	u8 bytes[TOW_WIRE_MAC_BYTES];
	struct crypto_shash *hmac;

	/*
	 * Also after an error, or tow_auth_derive() would use a key of zeroes.
	 */
	key->always = true;
	get_random_bytes(bytes, sizeof(bytes));
	hmac = tow_auth_keyed(bytes, sizeof(bytes));
	memzero_explicit(bytes, sizeof(bytes));
	if (IS_ERR(hmac))
		return PTR_ERR(hmac);
	key->hmac[TOW_KEY_CURRENT] = hmac;
	return 0;
}

/**
 * tow_cluster_key_cleanup - undo tow_cluster_key_init()
 * @key: the keys, not in use
 */
void tow_cluster_key_cleanup(struct tow_cluster_key *key)
{
	int use;

	for (use = 0; use < TOW_KEY_USES; use++) {
		crypto_free_shash(key->hmac[use]);
		key->hmac[use] = NULL;
	}
	mutex_destroy(&key->lock);
}

/*
 * The key service wants "prefix:description"; sysfs wants no control character.
 */
static bool tow_cluster_key_name_valid(const char *name)
{
	const char *c;

	if (strlen(name) >= TOW_KEY_NAME_MAX)
		return false;
	for (c = name; *c; c++) {
		if (iscntrl(*c))
			return false;
	}
	return name[0] != ':' && strchr(name, ':');
}

/* Copies the key material from the key service to a transform, nowhere else. */
static struct crypto_shash *tow_cluster_key_use(struct key *key)
{
	const struct user_key_payload *payload;
	struct crypto_shash *hmac;

	down_read(&key->sem);
	payload = user_key_payload_locked(key);
	if (!payload)
		hmac = ERR_PTR(-EKEYREVOKED);
	else if (payload->datalen < TOW_KEY_BYTES_MIN ||
		 payload->datalen > TOW_KEY_BYTES_MAX ||
		 !memchr_inv(payload->data, 0, payload->datalen))
		hmac = ERR_PTR(-EINVAL);
	else
		hmac = tow_auth_keyed(payload->data, payload->datalen);
	up_read(&key->sem);
	return hmac;
}

static struct crypto_shash *tow_cluster_key_fetch(const char *name)
{
	struct crypto_shash *hmac;
	struct key *key;

	if (!tow_cluster_key_name_valid(name))
		return ERR_PTR(-EINVAL);
	key = request_key(&key_type_logon, name, NULL);
	if (IS_ERR(key))
		return ERR_CAST(key);
	hmac = tow_cluster_key_use(key);
	key_put(key);
	return hmac;
}

/**
 * tow_cluster_key_set - take another key, or none
 * @key: the keys
 * @use: which of them
 * @name: description of a key of type "logon" that the calling process can find;
 *	"" or "none": no key
 *
 * The key is read now: later changes to it in the key service do not matter.
 * Sessions that exist keep their own keys.  If the next key becomes the current
 * one, that becomes the next: nodes that connect with it still can.
 *
 * Return: 0; -EINVAL: @name is no valid description, or the key has less than
 * 16 or more than 1024 bytes, or consists of zeroes; -ENOKEY: there is no such
 * key; -EKEYREVOKED, -EKEYEXPIRED, -EACCES: the caller may not use it any more,
 * or not at all (the key service returns -ENOKEY instead if it has searched
 * several keyrings); -ENOMEM; -ENOENT: the kernel has no HMAC-SHA256.  After an
 * error the old key stays.
 */
int tow_cluster_key_set(struct tow_cluster_key *key, enum tow_key_use use,
			const char *name)
{
	struct crypto_shash *hmac = NULL;

	if (!strcmp(name, "none"))
		name = "";
	if (name[0]) {
		hmac = tow_cluster_key_fetch(name);
		if (IS_ERR(hmac))
			return PTR_ERR(hmac);
	}
	mutex_lock(&key->lock);
	if (use == TOW_KEY_CURRENT && name[0] &&
	    !strcmp(name, key->name[TOW_KEY_NEXT]) &&
	    strcmp(name, key->name[TOW_KEY_CURRENT])) {
		swap(key->hmac[TOW_KEY_CURRENT], key->hmac[TOW_KEY_NEXT]);
		memcpy(key->name[TOW_KEY_NEXT], key->name[TOW_KEY_CURRENT],
		       TOW_KEY_NAME_MAX);
	}
	swap(key->hmac[use], hmac);
	strscpy_pad(key->name[use], name, TOW_KEY_NAME_MAX);
	mutex_unlock(&key->lock);
	crypto_free_shash(hmac);
	return 0;
}

/**
 * tow_cluster_key_there - is a current key set?
 * @key: the keys
 *
 * Return: true: a key is set now.  That may change: tow_auth_derive() goes by
 * the handshake, not by this.
 */
bool tow_cluster_key_there(struct tow_cluster_key *key)
{
	bool there;

	mutex_lock(&key->lock);
	there = key->hmac[TOW_KEY_CURRENT];
	mutex_unlock(&key->lock);
	return there;
}

/**
 * tow_cluster_key_name - copy a key's description
 * @key: the keys
 * @use: which of them
 * @name: where to; "" if no key is set
 */
void tow_cluster_key_name(struct tow_cluster_key *key, enum tow_key_use use,
			  char name[TOW_KEY_NAME_MAX])
{
	mutex_lock(&key->lock);
	memcpy(name, key->name[use], TOW_KEY_NAME_MAX);
	mutex_unlock(&key->lock);
}

/* ---- requests ---------------------------------------------------------------- */

static int tow_auth_request_mac(struct crypto_shash *hmac,
				const struct tow_handshake *handshake,
				u8 mac[TOW_WIRE_MAC_BYTES])
{
	struct tow_auth_asked asked = {
		.initiator = handshake->initiator,
		.responder = handshake->responder,
	};

	memcpy(asked.request, &handshake->request, sizeof(asked.request));
	return tow_auth_mac(hmac, "towline 1 request", &asked, sizeof(asked),
			    mac);
}

static bool tow_auth_request_valid(struct crypto_shash *hmac,
				   const struct tow_handshake *handshake)
{
	u8 mac[TOW_WIRE_MAC_BYTES];

	return hmac && !tow_auth_request_mac(hmac, handshake, mac) &&
	       tow_auth_equal(mac, handshake->request.mac,
			      sizeof(handshake->request.mac));
}

/*
 * The cluster key that a request was made with.  Caller holds the lock.  Return:
 * NULL: none of them.
 */
static struct crypto_shash *tow_auth_key_of(struct tow_cluster_key *key,
					    const struct tow_handshake *handshake)
{
	int use;

	if (key->always)
		return key->hmac[TOW_KEY_CURRENT];
	for (use = 0; use < TOW_KEY_USES; use++) {
		if (tow_auth_request_valid(key->hmac[use], handshake))
			return key->hmac[use];
	}
	return NULL;
}

static bool tow_auth_keyed_request(const struct tow_handshake *handshake)
{
	return handshake->request.features &
	       cpu_to_le32(TOW_WIRE_AUTHENTICATED);
}

/**
 * tow_auth_sign_request - put the MAC into a request
 * @key: the keys; the current one is used, or zeroes if the request says that
 *	there is none
 * @handshake: with both addresses, and the request but its MAC
 *
 * Return: 0; -EAGAIN: the key is not set any more; -ENOMEM; -ENOENT: the kernel
 * has no HMAC-SHA256.
 */
int tow_auth_sign_request(struct tow_cluster_key *key,
			  struct tow_handshake *handshake)
{
	struct crypto_shash *nobody = NULL, *hmac;
	u8 mac[TOW_WIRE_MAC_BYTES];
	int ret;

	if (!tow_auth_keyed_request(handshake)) {
		nobody = tow_auth_keyed(tow_auth_no_key,
					sizeof(tow_auth_no_key));
		if (IS_ERR(nobody))
			return PTR_ERR(nobody);
	}
	mutex_lock(&key->lock);
	hmac = nobody ?: key->hmac[TOW_KEY_CURRENT];
	ret = hmac ? tow_auth_request_mac(hmac, handshake, mac) : -EAGAIN;
	mutex_unlock(&key->lock);
	crypto_free_shash(nobody);
	if (!ret)
		memcpy(handshake->request.mac, mac,
		       sizeof(handshake->request.mac));
	return ret;
}

/**
 * tow_auth_check_request - does who makes a request have a cluster key of ours?
 * @key: the keys
 * @handshake: with both addresses and the request
 *
 * Return: 0: it does, or has recorded the request of somebody who does, or neither
 * end has a key, and the caller checks whether that is allowed; -ENOKEY: only one
 * end has one; -EKEYREJECTED: it has another one.
 */
int tow_auth_check_request(struct tow_cluster_key *key,
			   const struct tow_handshake *handshake)
{
	bool says = tow_auth_keyed_request(handshake), have, valid;

	mutex_lock(&key->lock);
	/* Without a current key we have none, but for those who have the next. */
	have = key->hmac[TOW_KEY_CURRENT] || (says && key->hmac[TOW_KEY_NEXT]);
	valid = !says || tow_auth_key_of(key, handshake);
	mutex_unlock(&key->lock);
	if (says != have)
		return -ENOKEY;
	return valid ? 0 : -EKEYREJECTED;
}

/* ---- a session's keys ----------------------------------------------------- */

static void tow_auth_write_down(struct tow_auth_transcript *transcript,
				const struct tow_handshake *handshake)
{
	transcript->request = handshake->request;
	memcpy(transcript->reply, &handshake->reply, sizeof(transcript->reply));
	transcript->initiator = handshake->initiator;
	transcript->responder = handshake->responder;
}

static int tow_auth_derive_from(struct tow_auth *auth,
				struct crypto_shash *cluster,
				const struct tow_handshake *handshake,
				bool initiator,
				u8 reply_mac[TOW_WIRE_MAC_BYTES])
{
	struct tow_auth_transcript transcript;
	u8 name[TOW_WIRE_MAC_BYTES];
	int ret;

	tow_auth_write_down(&transcript, handshake);
	ret = tow_auth_mac(cluster, "towline 1 responder", &transcript,
			   sizeof(transcript), reply_mac);
	if (ret)
		return ret;
	ret = tow_auth_mac(cluster, "towline 1 initiator", &transcript,
			   sizeof(transcript), auth->initiator_mac);
	if (ret)
		return ret;
	ret = tow_auth_session_key(cluster, "towline 1 initiator to responder",
				   &transcript,
				   initiator ? &auth->send : &auth->receive);
	if (ret)
		return ret;
	ret = tow_auth_session_key(cluster, "towline 1 responder to initiator",
				   &transcript,
				   initiator ? &auth->receive : &auth->send);
	if (ret)
		return ret;
	ret = tow_auth_mac(cluster, "towline 1 association", &transcript,
			   sizeof(transcript), name);
	if (!ret)
		memcpy(auth->assoc, name, sizeof(auth->assoc));
	return ret;
}

/*
 * Have both ends said that they have a cluster key?  The handshake decides, not
 * whether a key is set now: if an administrator removes the key meanwhile, a
 * session that says it is authenticated must not be made with zeroes.
 */
static int tow_auth_says_key(const struct tow_handshake *handshake, bool *says)
{
	u32 initiator = le32_to_cpu(handshake->request.features);
	u32 responder = le32_to_cpu(handshake->reply.features);

	if ((initiator ^ responder) & TOW_WIRE_AUTHENTICATED)
		return -ENOKEY;
	*says = initiator & TOW_WIRE_AUTHENTICATED;
	return 0;
}

/**
 * tow_auth_derive - make the keys of a session
 * @auth: where to; zeroed, or after tow_auth_cleanup()
 * @key: tow_peers.key, or tow_peers.self for the loopback peer
 * @handshake: complete, but for the MAC in its reply.  The request's MAC says which
 *	of the keys is used
 * @initiator: our end is the initiator
 * @reply_mac: where to: the reply's MAC.  The responder sends it, the initiator
 *	compares it with tow_auth_equal()
 *
 * @key is used if it is @always used, or if both ends said that they have a
 * cluster key (TOW_WIRE_AUTHENTICATED).  If both said that they have none, a
 * key of zeroes is used; the caller checks whether that is allowed.
 *
 * Return: 0; -ENOKEY: only one end said that it has a key, or there is no key that
 * is @always used; -EAGAIN: the request's key is not set any more; -ENOMEM;
 * -ENOENT: the kernel has no HMAC-SHA256.  After an error @auth has no keys.
 */
int tow_auth_derive(struct tow_auth *auth, struct tow_cluster_key *key,
		    const struct tow_handshake *handshake, bool initiator,
		    u8 reply_mac[TOW_WIRE_MAC_BYTES])
{
	struct crypto_shash *nobody, *hmac;
	bool keyed;
	int ret;

	ret = tow_auth_says_key(handshake, &keyed);
	if (ret)
		return ret;
	if (keyed || key->always) {
		mutex_lock(&key->lock);
		hmac = tow_auth_key_of(key, handshake);
		ret = hmac ? tow_auth_derive_from(auth, hmac, handshake,
						  initiator, reply_mac) :
			     key->always ? -ENOKEY : -EAGAIN;
		mutex_unlock(&key->lock);
	} else {
		nobody = tow_auth_keyed(tow_auth_no_key,
					sizeof(tow_auth_no_key));
		if (IS_ERR(nobody))
			return PTR_ERR(nobody);
		ret = tow_auth_derive_from(auth, nobody, handshake, initiator,
					   reply_mac);
		crypto_free_shash(nobody);
	}
	if (ret)
		tow_auth_cleanup(auth);
	return ret;
}

/**
 * tow_auth_cleanup - free a session's keys
 * @auth: the keys, not in use; may be zeroed
 */
void tow_auth_cleanup(struct tow_auth *auth)
{
	crypto_free_shash(auth->send);
	crypto_free_shash(auth->receive);
	memzero_explicit(auth, sizeof(*auth));
}

/* ---- uses of a session's keys --------------------------------------------- */

/* A message's MAC, computed as if the header's @mac were zero. */
static int tow_auth_message_mac(struct crypto_shash *hmac, const void *message,
				size_t bytes, u8 mac[TOW_WIRE_MAC_BYTES])
{
	static const char label[] = "towline 1 message";
	static const u8 zeroes[TOW_WIRE_SHORT_MAC_BYTES];
	const size_t before = offsetof(struct tow_wire_header, mac);
	const size_t after = before + sizeof(zeroes);
	SHASH_DESC_ON_STACK(desc, hmac);
	int ret;

	if (!hmac)
		return -ENOKEY;
	if (bytes < sizeof(struct tow_wire_header))
		return -EINVAL;
	desc->tfm = hmac;
	ret = crypto_shash_init(desc);
	if (!ret)
		ret = crypto_shash_update(desc, label, sizeof(label));
	if (!ret)
		ret = crypto_shash_update(desc, message, before);
	if (!ret)
		ret = crypto_shash_update(desc, zeroes, sizeof(zeroes));
	if (!ret)
		ret = crypto_shash_finup(desc, message + after, bytes - after,
					 mac);
	shash_desc_zero(desc);
	return ret;
}

/**
 * tow_auth_sign - put the MAC into a message that we send
 * @auth: the session's keys
 * @message: begins with a complete struct tow_wire_header
 * @bytes: of the whole message
 *
 * Allocates nothing and does not sleep; may run several times at once.
 *
 * Return: 0; -ENOKEY: there are no keys yet; -EINVAL: shorter than a header;
 * the hash's error.  After an error the message must not be sent.
 */
int tow_auth_sign(struct tow_auth *auth, void *message, size_t bytes)
{
	struct tow_wire_header *header = message;
	u8 mac[TOW_WIRE_MAC_BYTES];
	int ret;

	ret = tow_auth_message_mac(auth->send, message, bytes, mac);
	if (!ret)
		memcpy(header->mac, mac, sizeof(header->mac));
	return ret;
}

/**
 * tow_auth_verify - is a message from the other end, and as it was sent?
 * @auth: the session's keys
 * @message: the message; is not changed
 * @bytes: of the message
 *
 * Does not check the contents, nor whether the message is a repetition: the
 * caller compares the counter.  Allocates nothing and does not sleep.
 *
 * Return: true: it is; false: it is not, or is shorter than a header, or there
 * are no keys yet.
 */
bool tow_auth_verify(struct tow_auth *auth, void *message, size_t bytes)
{
	const struct tow_wire_header *header = message;
	u8 mac[TOW_WIRE_MAC_BYTES];

	if (tow_auth_message_mac(auth->receive, message, bytes, mac))
		return false;
	return tow_auth_equal(header->mac, mac, sizeof(header->mac));
}

/**
 * tow_auth_equal - are two MACs the same?
 * @one: a MAC
 * @other: another
 * @bytes: of each
 *
 * Takes the same time for all contents, so that it does not reveal how much of
 * a guess was right.
 *
 * Return: true: they are equal.
 */
bool tow_auth_equal(const u8 *one, const u8 *other, size_t bytes)
{
	return !crypto_memneq(one, other, bytes);
}

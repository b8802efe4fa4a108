// SPDX-License-Identifier: GPL-2.0
/*
 * tow_auth: the code that proves who has the cluster key, by itself.
 *
 *	/sys/kernel/debug/tow_auth/key		write: tow_cluster_key_set(), with the
 *						writer's keyrings and its errors
 *	/sys/kernel/debug/tow_auth/answers	read: "NAME HEX", what it makes of one
 *						handshake with that key
 *	/sys/kernel/debug/tow_auth/checks	read: "ok NAME" or "not ok NAME", what
 *						must and must not be taken
 *
 * tests/lab/auth has the other half, and says what the answers should be.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>

#include "kmod/conn/auth.c"

/* One message: a header, and something behind it. */
#define MESSAGE_BYTES	(sizeof(struct tow_wire_header) + 24)

/* Both ends of a session. */
struct tow_auth_ends {
	struct tow_handshake	handshake;
	struct tow_auth		initiator;
	struct tow_auth		responder;
	u8			initiator_says[TOW_WIRE_MAC_BYTES];
	u8			responder_says[TOW_WIRE_MAC_BYTES];
};

static struct dentry *tow_auth_dir;
static struct tow_cluster_key tow_auth_key;

static void tow_auth_fill(void *to, size_t bytes, u8 first)
{
	u8 *byte = to;

	while (bytes--)
		*byte++ = first++;
}

/* tests/lab/auth packs the same numbers by itself. */
static void tow_auth_example(struct tow_handshake *handshake, bool keyed)
{
	struct tow_wire_request *request = &handshake->request;
	struct tow_wire_reply *reply = &handshake->reply;

	memset(handshake, 0, sizeof(*handshake));
	request->magic = cpu_to_le32(TOW_WIRE_MAGIC);
	request->version = TOW_WIRE_VERSION;
	request->lowest = TOW_WIRE_LOWEST;
	tow_auth_fill(request->incarnation, sizeof(request->incarnation), 0x10);
	tow_auth_fill(request->nonce, sizeof(request->nonce), 0x20);
	request->qp_num = cpu_to_le32(0x123456);
	request->qps = 4;
	request->mtu = 3;
	reply->magic = cpu_to_le32(TOW_WIRE_MAGIC);
	reply->version = TOW_WIRE_VERSION;
	tow_auth_fill(reply->incarnation, sizeof(reply->incarnation), 0x30);
	tow_auth_fill(reply->nonce, sizeof(reply->nonce), 0x40);
	reply->qp_num = cpu_to_le32(0x654321);
	reply->qps = 3;
	reply->mtu = 2;
	if (keyed) {
		request->features = cpu_to_le32(TOW_WIRE_AUTHENTICATED);
		reply->features = cpu_to_le32(TOW_WIRE_AUTHENTICATED);
	}
	/* Not covered, so whatever is there must not matter. */
	tow_auth_fill(reply->mac, sizeof(reply->mac), 0x99);
	tow_auth_fill(&handshake->initiator, 16, 0x50);
	tow_auth_fill(&handshake->responder, 16, 0x60);
}

static int tow_auth_meet(struct tow_auth_ends *ends, struct tow_cluster_key *key)
{
	int ret;

	ret = tow_auth_sign_request(key, &ends->handshake);
	if (ret)
		return ret;
	ret = tow_auth_derive(&ends->initiator, key, &ends->handshake, true,
			      ends->initiator_says);
	if (ret)
		return ret;
	ret = tow_auth_derive(&ends->responder, key, &ends->handshake, false,
			      ends->responder_says);
	if (ret)
		tow_auth_cleanup(&ends->initiator);
	return ret;
}

static void tow_auth_part(struct tow_auth_ends *ends)
{
	tow_auth_cleanup(&ends->initiator);
	tow_auth_cleanup(&ends->responder);
}

static void tow_auth_message(u8 message[MESSAGE_BYTES])
{
	struct tow_wire_header *header = (void *)message;

	memset(header, 0, sizeof(*header));
	header->bytes = cpu_to_le16(MESSAGE_BYTES);
	header->type = TOW_WIRE_RESOLVE;
	header->request = cpu_to_le32(7);
	header->counter = cpu_to_le64(1);
	header->credits = cpu_to_le32(2);
	/* Counts as zero. */
	tow_auth_fill(header->mac, sizeof(header->mac), 0x99);
	tow_auth_fill(header + 1, MESSAGE_BYTES - sizeof(*header), 0x70);
}

/* ---- answers -------------------------------------------------------------- */

static void tow_auth_answer(struct seq_file *file, const char *name,
			    const u8 *mac, size_t bytes)
{
	seq_printf(file, "%s %*phN\n", name, (int)bytes, mac);
}

static int tow_auth_answer_signed(struct seq_file *file, const char *name,
				  struct tow_auth *auth)
{
	u8 message[MESSAGE_BYTES] __aligned(8);
	struct tow_wire_header *header = (void *)message;
	int ret;

	tow_auth_message(message);
	ret = tow_auth_sign(auth, message, sizeof(message));
	if (!ret)
		tow_auth_answer(file, name, header->mac, sizeof(header->mac));
	return ret;
}

static int answers_show(struct seq_file *file, void *unused)
{
	struct tow_auth_ends *ends;
	int ret;

	ends = kzalloc(sizeof(*ends), GFP_KERNEL);
	if (!ends)
		return -ENOMEM;
	tow_auth_example(&ends->handshake, tow_cluster_key_there(&tow_auth_key));
	ret = tow_auth_meet(ends, &tow_auth_key);
	if (ret)
		goto out_free;
	tow_auth_answer(file, "request", ends->handshake.request.mac,
			TOW_WIRE_REQUEST_MAC_BYTES);
	tow_auth_answer(file, "reply", ends->responder_says, TOW_WIRE_MAC_BYTES);
	tow_auth_answer(file, "initiator", ends->responder.initiator_mac,
			TOW_WIRE_MAC_BYTES);
	ret = tow_auth_answer_signed(file, "to_responder", &ends->initiator);
	if (!ret)
		ret = tow_auth_answer_signed(file, "to_initiator",
					     &ends->responder);
	tow_auth_answer(file, "association", ends->initiator.assoc,
			sizeof(ends->initiator.assoc));
	tow_auth_part(ends);
out_free:
	kfree(ends);
	return ret;
}
DEFINE_SHOW_ATTRIBUTE(answers);

/* ---- checks --------------------------------------------------------------- */

static bool tow_auth_ends_agree(struct tow_auth_ends *ends)
{
	return tow_auth_equal(ends->initiator_says, ends->responder_says,
			      TOW_WIRE_MAC_BYTES) &&
	       tow_auth_equal(ends->initiator.initiator_mac,
			      ends->responder.initiator_mac,
			      TOW_WIRE_MAC_BYTES) &&
	       !memcmp(ends->initiator.assoc, ends->responder.assoc,
		       sizeof(ends->initiator.assoc)) &&
	       !tow_auth_equal(ends->initiator_says,
			       ends->initiator.initiator_mac,
			       TOW_WIRE_MAC_BYTES);
}

static bool tow_auth_messages_pass(struct tow_auth_ends *ends)
{
	u8 message[MESSAGE_BYTES], copy[MESSAGE_BYTES];

	tow_auth_message(message);
	if (tow_auth_sign(&ends->initiator, message, sizeof(message)))
		return false;
	memcpy(copy, message, sizeof(copy));
	return tow_auth_verify(&ends->responder, message, sizeof(message)) &&
	       !memcmp(copy, message, sizeof(copy));
}

/* Neither its own, nor any other bit, nor another length. */
static bool tow_auth_messages_fail(struct tow_auth_ends *ends)
{
	u8 message[MESSAGE_BYTES + 1] = {};
	unsigned int bit;

	tow_auth_message(message);
	if (tow_auth_sign(&ends->initiator, message, MESSAGE_BYTES) ||
	    tow_auth_verify(&ends->initiator, message, MESSAGE_BYTES) ||
	    tow_auth_verify(&ends->responder, message, MESSAGE_BYTES + 1) ||
	    tow_auth_verify(&ends->responder, message, MESSAGE_BYTES - 1))
		return false;
	for (bit = 0; bit < MESSAGE_BYTES * 8; bit++) {
		message[bit / 8] ^= 1 << bit % 8;
		if (tow_auth_verify(&ends->responder, message, MESSAGE_BYTES))
			return false;
		message[bit / 8] ^= 1 << bit % 8;
	}
	return tow_auth_verify(&ends->responder, message, MESSAGE_BYTES);
}

static bool tow_auth_short_fails(struct tow_auth_ends *ends)
{
	u8 message[MESSAGE_BYTES] = {};
	const size_t bytes = sizeof(struct tow_wire_header) - 1;

	return tow_auth_sign(&ends->initiator, message, bytes) == -EINVAL &&
	       !tow_auth_verify(&ends->responder, message, bytes) &&
	       !tow_auth_verify(&ends->responder, message, 0);
}

static bool tow_auth_no_keys_fail(struct tow_auth_ends *ends)
{
	u8 message[MESSAGE_BYTES];
	struct tow_auth nothing = {};

	tow_auth_message(message);
	return tow_auth_sign(&nothing, message, sizeof(message)) == -ENOKEY &&
	       !tow_auth_verify(&nothing, message, sizeof(message));
}

/* Is it the request's MAC? */
static bool tow_auth_request_signature(size_t i)
{
	const size_t mac = offsetof(struct tow_handshake, request.mac);

	return i >= mac && i < mac + TOW_WIRE_REQUEST_MAC_BYTES;
}

/* Does any other handshake lead to the same MACs? */
static bool tow_auth_handshake_covered(struct tow_auth_ends *ends)
{
	const size_t mac = offsetof(struct tow_handshake, reply.mac);
	struct tow_handshake *handshake = &ends->handshake;
	u8 says[TOW_WIRE_MAC_BYTES];
	struct tow_auth other = {};
	bool same;
	size_t i;
	int ret;

	for (i = 0; i < sizeof(*handshake); i++) {
		((u8 *)handshake)[i] ^= 0x80;
		if (tow_auth_request_signature(i)) {
			ret = tow_auth_check_request(&tow_auth_key, handshake);
			((u8 *)handshake)[i] ^= 0x80;
			if (ret != -EKEYREJECTED)
				return false;
			continue;
		}
		ret = tow_auth_sign_request(&tow_auth_key, handshake) ?:
		      tow_auth_derive(&other, &tow_auth_key, handshake, true,
				      says);
		((u8 *)handshake)[i] ^= 0x80;
		if (ret)
			return false;
		same = tow_auth_equal(says, ends->initiator_says,
				      sizeof(says)) ||
		       tow_auth_equal(other.initiator_mac,
				      ends->initiator.initiator_mac,
				      sizeof(says)) ||
		       !memcmp(other.assoc, ends->initiator.assoc,
			       sizeof(other.assoc));
		tow_auth_cleanup(&other);
		if (same != (i >= mac && i < mac + TOW_WIRE_MAC_BYTES))
			return false;
	}
	return !tow_auth_sign_request(&tow_auth_key, handshake);
}

/* Of two keys that counts with which the request was made. */
static bool tow_auth_either_key(struct tow_auth_ends *ends)
{
	const struct tow_handshake *handshake = &ends->handshake;
	struct tow_cluster_key keys = {};
	u8 says[TOW_WIRE_MAC_BYTES];
	struct tow_auth other = {};
	bool good;

	tow_cluster_key_init(&keys);
	if (tow_cluster_key_random(&keys))
		return false;
	keys.always = false;
	good = tow_auth_check_request(&keys, handshake) == -EKEYREJECTED &&
	       tow_auth_derive(&other, &keys, handshake, false, says) == -EAGAIN;
	keys.hmac[TOW_KEY_NEXT] = tow_auth_key.hmac[TOW_KEY_CURRENT];
	good &= !tow_auth_check_request(&keys, handshake) &&
		!tow_auth_derive(&other, &keys, handshake, false, says) &&
		tow_auth_equal(says, ends->responder_says, sizeof(says));
	tow_auth_cleanup(&other);
	keys.hmac[TOW_KEY_NEXT] = NULL;
	tow_cluster_key_cleanup(&keys);
	return good;
}

/* A key that only one has, or that is gone, is no key. */
static bool tow_auth_claims_fail(struct tow_auth_ends *ends)
{
	struct tow_handshake *handshake = &ends->handshake;
	u8 says[TOW_WIRE_MAC_BYTES];
	struct tow_auth other = {};
	struct tow_cluster_key none = {};
	bool good;

	tow_cluster_key_init(&none);
	good = tow_auth_derive(&other, &none, handshake, true, says) == -EAGAIN &&
	       tow_auth_check_request(&none, handshake) == -ENOKEY;
	tow_cluster_key_cleanup(&none);
	handshake->reply.features ^= cpu_to_le32(TOW_WIRE_AUTHENTICATED);
	good &= tow_auth_derive(&other, &tow_auth_key, handshake, true,
				says) == -ENOKEY;
	good &= tow_auth_derive(&other, &tow_auth_key, handshake, false,
				says) == -ENOKEY;
	handshake->reply.features ^= cpu_to_le32(TOW_WIRE_AUTHENTICATED);
	return good && !other.send && !other.receive;
}

static const struct {
	const char *name;
	bool (*good)(struct tow_auth_ends *ends);
} tow_auth_checks[] = {
	{ "ends agree", tow_auth_ends_agree },
	{ "messages pass, as they were", tow_auth_messages_pass },
	{ "other messages do not, nor reflected ones", tow_auth_messages_fail },
	{ "less than a header does not", tow_auth_short_fails },
	{ "nothing works without keys", tow_auth_no_keys_fail },
	{ "every byte of a handshake matters", tow_auth_handshake_covered },
	{ "either key will do, and no other", tow_auth_either_key },
	{ "a key that only one has is none", tow_auth_claims_fail },
};

static int checks_show(struct seq_file *file, void *unused)
{
	struct tow_auth_ends *ends;
	size_t i;
	int ret;

	ends = kzalloc(sizeof(*ends), GFP_KERNEL);
	if (!ends)
		return -ENOMEM;
	tow_auth_example(&ends->handshake, true);
	ret = tow_auth_meet(ends, &tow_auth_key);
	if (ret)
		goto out_free;
	for (i = 0; i < ARRAY_SIZE(tow_auth_checks); i++)
		seq_printf(file, "%s %s\n",
			   tow_auth_checks[i].good(ends) ? "ok" : "not ok",
			   tow_auth_checks[i].name);
	tow_auth_part(ends);
out_free:
	kfree(ends);
	return ret;
}
DEFINE_SHOW_ATTRIBUTE(checks);

/* ---- the key -------------------------------------------------------------- */

static ssize_t key_write(struct file *file, const char __user *buf,
			 size_t count, loff_t *pos)
{
	char *name;
	int ret;

	name = memdup_user_nul(buf, count);
	if (IS_ERR(name))
		return PTR_ERR(name);
	ret = tow_cluster_key_set(&tow_auth_key, TOW_KEY_CURRENT, name);
	kfree(name);
	return ret ?: count;
}

static const struct file_operations key_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = key_write,
	.llseek = noop_llseek,
};

static int __init tow_auth_init(void)
{
	tow_cluster_key_init(&tow_auth_key);
	tow_auth_dir = debugfs_create_dir("tow_auth", NULL);
	debugfs_create_file("key", 0200, tow_auth_dir, NULL, &key_fops);
	debugfs_create_file("answers", 0400, tow_auth_dir, NULL, &answers_fops);
	debugfs_create_file("checks", 0400, tow_auth_dir, NULL, &checks_fops);
	return 0;
}

static void __exit tow_auth_exit(void)
{
	debugfs_remove(tow_auth_dir);
	tow_cluster_key_cleanup(&tow_auth_key);
}

module_init(tow_auth_init);
module_exit(tow_auth_exit);

MODULE_DESCRIPTION("the code that proves who has the cluster key, by itself");
MODULE_LICENSE("GPL");

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A node that keeps to the protocol as far as the test wants: tow_hostile.ko's
 * connections, and the words to say on them.
 *
 * What is on the wire is written down here once more, by another hand than
 * kmod/conn/wire.h: whoever changes it there finds out.
 */
#ifndef TOW_EVIL_H
#define TOW_EVIL_H

#include <arpa/inet.h>
#include <endian.h>
#include <stdint.h>
#include <sys/syscall.h>

#include "tests/modules/tow_hostile.h"
#include "tow_identity.h"
#include "tow_test.h"

#define EVIL_PORT	18600
/* Its incarnation; the last byte tells several apart. */
#define EVIL_LIFE	"an evil node"

#define EVIL_WAIT_MS	10000

/* The window of the protocol: who keeps to it finds a receive. */
#define EVIL_NOTIFICATIONS	128
/* Messages that a node has receives for. */
#define EVIL_CREDITS	16
#define EVIL_QPS_MAX	4
#define EVIL_MAGIC	0x4c574f54
#define EVIL_VERSION	7
#define EVIL_LOWEST	6
#define EVIL_KEYED	1
/* The path MTU, and what is sent first on each data queue pair. */
#define EVIL_MTU	3
#define EVIL_MTU_BYTES	1024
#define EVIL_HEADER	40

enum { R_MALFORMED = 1, R_BAD_VERSION, R_NO_KEY, R_BAD_MAC, R_BUSY, R_CROSSED = 7, R_GOING,
       R_PROTOCOL = 13 };

enum {
	T_AUTH = 1, T_AUTHED, T_READY, T_HEARTBEAT, T_CREDIT, T_GOODBYE, T_QPS,
	T_RESOLVE = 16, T_RESOLVE_MORE, T_RESOLVED, T_CANCEL, T_REVOKE, T_REVOKED, T_RELEASE,
	T_NOTIFIED, T_SYNC
};

static const uint8_t evil_key[32] = "the key of the cluster, 32 bytes";

struct evil_request {
	uint32_t magic;
	uint8_t version, lowest;
	uint8_t qps, mtu;
	uint8_t incarnation[16];
	uint8_t nonce[16];
	uint32_t qp_num;
	uint32_t features;
	uint8_t mac[8];
};

struct evil_reply {
	uint32_t magic;
	uint8_t version;
	uint8_t qps, mtu;
	uint8_t reserved0;
	uint8_t incarnation[16];
	uint8_t nonce[16];
	uint32_t qp_num;
	uint32_t features;
	uint8_t reserved[8];
	uint8_t mac[32];
};

struct evil_header {
	uint16_t bytes;
	uint8_t type;
	uint8_t reserved;
	uint32_t request;
	uint64_t counter;
	uint32_t credits;
	uint32_t reserved2;
	uint8_t mac[16];
};

struct evil_auth {
	uint8_t mac[32];
	uint64_t order;
	uint8_t tie[16];
};

struct evil_authed {
	uint8_t tie[16];
};

/* Of one data queue pair. */
struct evil_sync {
	uint32_t epoch, count;
	uint64_t grant;
	uint32_t notified;
	uint32_t none;			/* does not travel */
};

#define EVIL_SYNC_BYTES	20

_Static_assert(sizeof(struct evil_request) == 56, "a request");
_Static_assert(sizeof(struct evil_reply) == 88, "a reply");
_Static_assert(sizeof(struct evil_header) == EVIL_HEADER, "a header");

struct evil_qps {
	uint32_t psn;
	uint16_t answers, asks;
	uint32_t count, reserved;
	uint32_t qp_num[EVIL_QPS_MAX];
};

#define EVIL_PSN	0xabcdef

/* One connection: its control queue pair, and what it knows. */
struct evil {
	int fd;
	int data[EVIL_QPS_MAX];
	int qps;			/* asked for, then agreed on */
	struct evil_qps own, far;	/* data queue pairs, as each end says them */
	struct tow_hostile_prepare way;
	struct evil_request request;
	struct evil_reply reply;
	struct evil_auth auth;
	struct evil_authed authed;	/* what it answers to that */
	uint64_t counter;
	uint32_t heard;			/* messages that came */
	uint32_t credits;		/* of its own, those that were dealt with */
	bool ready;			/* it was: who goes without a word is waited for */
	struct tow_hostile_message last;	/* of those */
};

/* ---- the node that it talks to -------------------------------------------- */

static inline int evil_set(const char *file, const char *text)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "/sys/class/towline/%s/%s", tow_test_device(), file);
	return tow_write_file(path, text);
}

/*
 * Whom a connection broke with is waited for: for as long as usual, which connecting may
 * take, too, or hardly, as nobody comes back here.
 */
#define EVIL_PATIENT	"10000"
#define EVIL_HASTY	"100"

static inline int evil_patience(const char *milliseconds)
{
	return evil_set("reconnect_timeout_ms", milliseconds);
}

static inline long long evil_count(const char *file)
{
	char path[PATH_MAX], line[64];

	snprintf(path, sizeof(path), "/sys/class/towline/%s/stats/%s", tow_test_device(), file);
	tow_test_read_line(path, line, sizeof(line));
	return line[0] ? strtoll(line, NULL, 10) : -1;
}

static inline long long evil_wait(const char *file, long long wanted)
{
	struct tow_patience patience = tow_patience(30);
	long long seen;

	while ((seen = evil_count(file)) != wanted && tow_patient(&patience))
		tow_test_sleep_ms(10);
	return seen;
}

/* It has our cluster key from now on. */
static inline int evil_share_key(void)
{
	if (syscall(SYS_add_key, "logon", "towline:evil", evil_key, sizeof(evil_key), -3) < 0)
		return -errno;
	return evil_set("cluster_key", "towline:evil");
}

/* The node's own address in the lab. */
static inline void evil_address(uint8_t address[16])
{
	const char *all = getenv("TOW_LAB_ADDRS");
	char first[64];
	struct in_addr in = {};

	memset(address, 0, 16);
	snprintf(first, sizeof(first), "%.*s", all ? (int)strcspn(all, ",") : 0, all ? all : "");
	if (inet_pton(AF_INET, first, &in) != 1)
		return;
	address[10] = 0xff;
	address[11] = 0xff;
	memcpy(address + 12, &in, sizeof(in));
}

/* ---- connecting ------------------------------------------------------------ */

/* A file with a queue pair that can be connected; or a negative errno. */
static inline int evil_open(struct tow_hostile_prepare *way)
{
	int fd = open(TOW_HOSTILE_NODE, O_RDWR | O_CLOEXEC);
	int ret;

	memset(way, 0, sizeof(*way));
	if (fd < 0)
		return -errno;
	evil_address(way->address);
	way->port = EVIL_PORT;
	ret = tow_test_ioctl(fd, TOW_HOSTILE_PREPARE, way);
	if (!ret)
		return fd;
	close(fd);
	return ret;
}

/* 0, or -ECONNREFUSED and why. */
static inline int evil_connect(int fd, const void *data, size_t bytes, void *answer, size_t room,
			       int *reason)
{
	struct tow_hostile_connect call = {
		.timeout_ms = EVIL_WAIT_MS, .bytes = (uint32_t)bytes,
	};
	uint16_t said;
	int ret;

	memcpy(call.data, data, bytes);
	ret = tow_test_ioctl(fd, TOW_HOSTILE_CONNECT, &call);
	if (!ret)
		memcpy(answer, call.data, room);
	*reason = -1;
	if (ret != -ECONNREFUSED || call.bytes < 8)
		return ret;
	memcpy(&said, call.data + 6, sizeof(said));
	*reason = said;
	return ret;
}

/* A request as it should be, to be spoilt. */
static inline int evil_prepare(struct evil *e, int qps)
{
	static uint8_t life;

	memset(e, 0, sizeof(*e));
	e->qps = qps;
	for (int i = 0; i < EVIL_QPS_MAX; i++)
		e->data[i] = -1;
	e->fd = evil_open(&e->way);
	if (e->fd < 0)
		return e->fd;
	e->request = (struct evil_request) {
		.magic = EVIL_MAGIC, .version = EVIL_VERSION, .lowest = EVIL_LOWEST,
		.qps = (uint8_t)qps, .mtu = EVIL_MTU, .incarnation = EVIL_LIFE, .nonce = "a nonce", .qp_num = e->way.qp_num,
		.features = EVIL_KEYED,
	};
	e->request.nonce[15] = ++life;
	return 0;
}

static inline void evil_hang_up(struct evil *e)
{
	for (int i = 0; i < EVIL_QPS_MAX; i++) {
		if (e->data[i] >= 0)
			close(e->data[i]);
		e->data[i] = -1;
	}
	if (e->fd >= 0)
		close(e->fd);
	e->fd = -1;
}

static inline void evil_address_of(uint8_t address[16], char name)
{
	memset(address, 0, 16);
	memset(address + 10, 0xff, 2);
	inet_pton(AF_INET, "198.51.100.0", address + 12);
	address[15] = (uint8_t)name;
}

/*
 * A node with a name and an address, 198.51.100.'a' and so on, to be connected: see
 * tests/lab/evil-nodes.  @said: the address that its request says its packets come from.
 */
static inline int evil_appear_at(struct evil *e, char name, char address, char said)
{
	int ret = evil_prepare(e, 1);

	if (ret)
		return ret;
	close(e->fd);
	e->fd = open(TOW_HOSTILE_NODE, O_RDWR | O_CLOEXEC);
	if (e->fd < 0)
		return -errno;
	/* To ourselves, as each of our addresses is. */
	evil_address_of(e->way.address, address);
	evil_address_of(e->way.gid, said);
	ret = tow_test_ioctl(e->fd, TOW_HOSTILE_PREPARE, &e->way);
	if (ret)
		evil_hang_up(e);
	e->request.qp_num = e->way.qp_num;
	e->request.incarnation[15] = (uint8_t)name;
	return ret;
}

static inline int evil_macs(struct evil *e, struct tow_hostile_derive *call)
{
	call->key_bytes = sizeof(evil_key);
	memcpy(call->key, evil_key, sizeof(evil_key));
	memcpy(call->request, &e->request, sizeof(call->request));
	memcpy(call->reply, &e->reply, sizeof(call->reply));
	memcpy(call->initiator, e->way.source, sizeof(call->initiator));
	memcpy(call->responder, e->way.address, sizeof(call->responder));
	return tow_test_ioctl(e->fd, TOW_HOSTILE_DERIVE, call);
}

/* The session's keys, of the end that made the request or of that which answered. */
static inline int evil_make_keys(struct evil *e, bool answered, uint8_t reply_mac[32])
{
	struct tow_hostile_derive call = { .answered = answered };
	int ret = evil_macs(e, &call);

	memcpy(e->auth.mac, call.initiator_mac, sizeof(e->auth.mac));
	memcpy(reply_mac, call.reply_mac, sizeof(call.reply_mac));
	return ret;
}

/* The request is of somebody who has the key. */
static inline int evil_sign(struct evil *e)
{
	struct tow_hostile_derive call = {};
	int ret = evil_macs(e, &call);

	memcpy(e->request.mac, call.request_mac, sizeof(e->request.mac));
	return ret;
}

/* The request as it is, signed, and its answer: as evil_connect(). */
static inline int evil_ask(struct evil *e, int *reason)
{
	int ret = evil_sign(e);

	*reason = -1;
	return ret ? ret : evil_connect(e->fd, &e->request, sizeof(e->request), &e->reply,
					sizeof(e->reply), reason);
}

static inline int evil_derive(struct evil *e)
{
	uint8_t mac[32];
	int ret = evil_make_keys(e, false, mac);

	/* Of one life of a node, however many processes play it. */
	e->auth.order = (uint64_t)(tow_test_now() * 1e9);
	return ret ? ret : memcmp(mac, e->reply.mac, sizeof(mac)) ? -EKEYREJECTED : 0;
}

/* To where the other end has proved itself; @version: the highest that is spoken. */
static inline int evil_begin_as(struct evil *e, int qps, uint8_t version)
{
	int reason, ret = evil_prepare(e, qps);

	e->request.version = version;
	if (!ret)
		ret = evil_ask(e, &reason);
	if (ret)
		return ret;
	e->qps = e->reply.qps;
	return evil_derive(e);
}

static inline int evil_begin(struct evil *e, int qps)
{
	return evil_begin_as(e, qps, EVIL_VERSION);
}

/* ---- saying and hearing ---------------------------------------------------- */

/* As it is, without a number or a MAC of ours. */
static inline int evil_say_raw(struct evil *e, const void *message, size_t bytes, bool sign)
{
	struct tow_hostile_message call = { .bytes = (uint32_t)bytes, .sign = sign };

	memcpy(call.data, message, bytes);
	return tow_test_ioctl(e->fd, TOW_HOSTILE_SEND, &call);
}

/* What the next message's header must be. */
static inline struct evil_header evil_header(struct evil *e, int type, uint32_t request,
					     size_t bytes)
{
	return (struct evil_header) {
		.bytes = (uint16_t)(EVIL_HEADER + bytes), .type = (uint8_t)type,
		.request = request, .counter = e->counter + 1, .credits = e->heard,
	};
}

static inline int evil_say(struct evil *e, int type, uint32_t request, const void *body,
			   size_t bytes)
{
	uint8_t message[TOW_HOSTILE_BYTES_MAX];
	struct evil_header header = evil_header(e, type, request, bytes);

	memcpy(message, &header, sizeof(header));
	if (bytes)
		memcpy(message + sizeof(header), body, bytes);
	e->counter++;
	return evil_say_raw(e, message, sizeof(header) + bytes, true);
}

/*
 * What has been judged may end the connection before what says that it arrived: soft-RoCE
 * completes the receive first and acknowledges then.
 */
static inline int evil_heard(int said)
{
	return said == -EIO ? 0 : said;
}

/* As evil_say(), of a message that ends it. */
static inline int evil_say_last(struct evil *e, int type, uint32_t request, const void *body,
				size_t bytes)
{
	return evil_heard(evil_say(e, type, request, body, bytes));
}

/* The next message, whatever it is: its type, or a negative errno. */
static inline int evil_hear_any(struct evil *e, uint32_t timeout_ms)
{
	struct evil_header header;
	int ret;

	e->last.timeout_ms = timeout_ms;
	ret = tow_test_ioctl(e->fd, TOW_HOSTILE_RECEIVE, &e->last);
	if (ret)
		return ret;
	e->heard++;
	if (!e->last.sign || e->last.bytes < EVIL_HEADER)
		return -EKEYREJECTED;
	memcpy(&header, e->last.data, sizeof(header));
	e->credits = header.credits;
	/* Nobody hears us any more. */
	e->ready &= header.type != T_GOODBYE;
	return header.type;
}

/* The next message but heartbeats: its type, or a negative errno. */
static inline int evil_hear(struct evil *e, uint32_t timeout_ms)
{
	struct tow_patience patience = tow_patience(timeout_ms / 1e3);
	int ret;

	do {
		ret = evil_hear_any(e, timeout_ms);
		if (ret < 0)
			return ret;
	} while ((ret == T_HEARTBEAT || ret == T_CREDIT) && tow_patient(&patience));
	return ret;
}

/*
 * There is room for another message: 0, or a negative errno.  Whoever says more finds no
 * receive, tries again a few times within milliseconds, and loses the connection.  What comes
 * meanwhile is dropped.
 */
static inline int evil_await_room(struct evil *e)
{
	int type = 0;

	while (type >= 0 && (uint32_t)e->counter - e->credits >= EVIL_CREDITS)
		type = evil_hear_any(e, EVIL_WAIT_MS);
	return type < 0 ? type : 0;
}

/* How it ends: the reason of its goodbye, or a negative errno. */
static inline int evil_how_it_ends(struct evil *e)
{
	uint32_t reason;
	int type;

	do {
		type = evil_hear(e, EVIL_WAIT_MS);
	} while (type > 0 && type != T_GOODBYE);
	if (type < 0)
		return type;
	memcpy(&reason, e->last.data + EVIL_HEADER, sizeof(reason));
	return (int)reason;
}

/* It takes leave, if there is somebody still, so that it is not waited for. */
static inline void evil_end(struct evil *e)
{
	const uint32_t body[2] = { R_GOING };
	int type = e->ready ? 0 : -ENOTCONN;

	while (type >= 0)
		type = evil_hear_any(e, 0);
	if (type == -ETIMEDOUT)
		evil_say_last(e, T_GOODBYE, 0, body, sizeof(body));
	evil_hang_up(e);
}

static inline int evil_prove(struct evil *e)
{
	int ret = evil_say(e, T_AUTH, 0, &e->auth, sizeof(e->auth));

	if (!ret)
		ret = evil_hear(e, EVIL_WAIT_MS);
	return ret < 0 ? ret : ret == T_AUTHED ? 0 : -EPROTO;
}

/* A data queue pair of ours. */
static inline int evil_data_make(struct evil *e, int index)
{
	struct tow_hostile_data call = {
		.control = e->fd, .notifications = EVIL_NOTIFICATIONS,
	};
	int fd = open(TOW_HOSTILE_NODE, O_RDWR | O_CLOEXEC);
	int ret;

	if (fd < 0)
		return -errno;
	ret = tow_test_ioctl(fd, TOW_HOSTILE_DATA, &call);
	if (ret) {
		close(fd);
		return ret;
	}
	e->data[index] = fd;
	e->own.qp_num[index] = call.qp_num;
	return 0;
}

/* All of them, and what is said of them. */
static inline int evil_data_make_all(struct evil *e)
{
	int ret = 0;

	e->own.psn = EVIL_PSN;
	e->own.answers = 1;
	e->own.asks = 1;
	e->own.count = (uint32_t)e->qps;
	for (int i = 0; !ret && i < e->qps; i++)
		ret = evil_data_make(e, i);
	return ret;
}

/* What the other end says of its. */
static inline int evil_hear_qps(struct evil *e)
{
	int type = evil_hear(e, EVIL_WAIT_MS);
	size_t bytes;

	/* Refused; why is in the message. */
	if (type == T_GOODBYE)
		return -ECONNREFUSED;
	if (type != T_QPS)
		return type < 0 ? type : -EPROTO;
	bytes = e->last.bytes - EVIL_HEADER;
	if (bytes != 16 + 4 * (size_t)e->qps)
		return -EPROTO;
	memcpy(&e->far, e->last.data + EVIL_HEADER, bytes);
	return e->far.count == (uint32_t)e->qps && !e->far.reserved ? 0 : -EPROTO;
}

static inline int evil_join(struct evil *e)
{
	int ret = 0;

	for (int i = 0; !ret && i < e->qps; i++) {
		struct tow_hostile_join call = {
			.qp_num = e->far.qp_num[i], .far_psn = e->far.psn, .psn = e->own.psn,
			.mtu = e->reply.mtu,
		};

		ret = tow_test_ioctl(e->data[i], TOW_HOSTILE_JOIN, &call);
	}
	return ret;
}

/* In what QPS differs from what it should be. */
struct evil_qps_change {
	const char *name;
	size_t offset;		/* of a field in struct evil_qps */
	size_t bytes;		/* of that field */
	uint32_t value;		/* its value */
	int more;		/* bytes that the message has too many */
};

#define EVIL_QPS_CHANGE(field, to, more) \
	{ "QPS whose " #field " is " #to ", " #more " bytes more", \
	  offsetof(struct evil_qps, field), sizeof(((struct evil_qps *)0)->field), to, more }

/* Of one data queue pair: neither end may take any of these. */
static const struct evil_qps_change evil_bad_qps[] = {
	EVIL_QPS_CHANGE(psn, 0x1000000, 0),
	EVIL_QPS_CHANGE(psn, 0xffffffff, 0),
	EVIL_QPS_CHANGE(answers, 0, 0),
	EVIL_QPS_CHANGE(asks, 0, 0),
	EVIL_QPS_CHANGE(count, 0, 0),
	EVIL_QPS_CHANGE(count, 0, -4),
	EVIL_QPS_CHANGE(count, 2, 0),
	EVIL_QPS_CHANGE(count, 2, 4),
	EVIL_QPS_CHANGE(count, 0x40000001, 0),
	EVIL_QPS_CHANGE(reserved, 1, 0),
	EVIL_QPS_CHANGE(qp_num[0], 0x1000000, 0),
	EVIL_QPS_CHANGE(qp_num[0], 0xffffffff, 0),
	/* The count is right, and the size is not. */
	EVIL_QPS_CHANGE(count, 1, 4),
	EVIL_QPS_CHANGE(count, 1, 1),
	EVIL_QPS_CHANGE(count, 1, -1),
	EVIL_QPS_CHANGE(count, 1, -4),
	EVIL_QPS_CHANGE(count, 1, -5),
};

/* @change: NULL: as it should be. */
static inline int evil_say_qps_with(struct evil *e, const struct evil_qps_change *change)
{
	size_t bytes = 16 + 4 * (size_t)e->qps;
	struct evil_qps says = e->own;

	if (change) {
		memcpy((char *)&says + change->offset, &change->value, change->bytes);
		bytes += (size_t)change->more;
	}
	return evil_say(e, T_QPS, 0, &says, bytes);
}

static inline int evil_say_qps(struct evil *e)
{
	return evil_say_qps_with(e, NULL);
}

/* A short packet, and one of @bytes, on each data queue pair. */
static inline int evil_say_proofs(struct evil *e, uint32_t bytes)
{
	int ret = 0;

	for (int i = 0; !ret && i < e->qps; i++) {
		struct tow_hostile_message call = { .bytes = 1 };

		ret = tow_test_ioctl(e->data[i], TOW_HOSTILE_SEND, &call);
		call.bytes = bytes;
		if (!ret)
			ret = tow_test_ioctl(e->data[i], TOW_HOSTILE_SEND, &call);
	}
	return ret;
}

/* The other end's. */
static inline int evil_hear_proofs(struct evil *e)
{
	int ret = 0;

	for (int i = 0; !ret && i < 2 * e->qps; i++) {
		struct tow_hostile_message call = { .timeout_ms = EVIL_WAIT_MS };

		ret = tow_test_ioctl(e->data[i / 2], TOW_HOSTILE_RECEIVE, &call);
		if (!ret && call.bytes != (i % 2 ? EVIL_MTU_BYTES : 1))
			ret = -EPROTO;
	}
	return ret;
}

/* From AUTHENTICATED to READY. */
static inline int evil_complete(struct evil *e)
{
	int ret = evil_data_make_all(e);

	if (!ret)
		ret = evil_hear_qps(e);
	if (!ret)
		ret = evil_join(e);
	if (!ret)
		ret = evil_say_qps(e);
	if (!ret)
		ret = evil_hear_proofs(e);
	if (!ret)
		ret = evil_say_proofs(e, EVIL_MTU_BYTES);
	if (!ret)
		ret = evil_hear(e, EVIL_WAIT_MS);
	e->ready = ret == T_READY;
	return ret < 0 ? ret : !ret || ret == T_READY ? 0 : -EPROTO;
}

/* All of it: a session that is READY. */
static inline int evil_ready(struct evil *e, int qps)
{
	int ret = evil_begin(e, qps);

	if (!ret)
		ret = evil_prove(e);
	return ret ? ret : evil_complete(e);
}

/* A node, and its address: READY; -ECONNREFUSED, and why. */
static inline int evil_come(struct evil *e, char name, char address, int *reason)
{
	int ret = evil_appear_at(e, name, address, address);

	*reason = -1;
	if (!ret)
		ret = evil_ask(e, reason);
	if (!ret)
		ret = evil_derive(e);
	if (ret)
		return ret;
	e->qps = e->reply.qps;
	ret = evil_say_last(e, T_AUTH, 0, &e->auth, sizeof(e->auth));
	if (!ret)
		ret = evil_hear(e, EVIL_WAIT_MS);
	if (ret == T_AUTHED)
		ret = evil_complete(e);
	else if (ret >= 0)
		ret = ret == T_GOODBYE ? -ECONNREFUSED : -EPROTO;
	if (ret == -ECONNREFUSED)
		memcpy(reason, e->last.data + EVIL_HEADER, sizeof(*reason));
	return ret;
}

/* A request for a name of one letter; a message may have several. */
struct evil_resolve {
	uint8_t job[16];
	uint32_t uid, rights;
	uint8_t wait, name_bytes, reserved[2];
	uint32_t request;
	char name[4];
};

_Static_assert(sizeof(struct evil_resolve) == 36, "a name of one letter, and its padding");

static inline struct evil_resolve evil_resolve(char name, uint32_t request, uint32_t rights)
{
	return (struct evil_resolve) {
		.rights = rights, .name_bytes = 1, .request = request, .name = { name },
	};
}

/* Nobody waits for one name any more. */
static inline int evil_cancel(struct evil *e, uint32_t request)
{
	return evil_say(e, T_CANCEL, 0, &request, sizeof(request));
}

/* Asks what there is not, and is answered. */
static inline int evil_use(struct evil *e)
{
	struct evil_resolve body = evil_resolve('?', 1, TOW_RIGHT_READ);

	if (evil_say(e, T_RESOLVE, 0, &body, sizeof(body)))
		return -EIO;
	return evil_hear(e, EVIL_WAIT_MS) == T_RESOLVED ? 0 : -EPROTO;
}

/* The number of the first request in the RESOLVE that came last. */
static inline uint32_t evil_asked(const struct evil *e)
{
	struct evil_resolve first;

	memcpy(&first, e->last.data + EVIL_HEADER, sizeof(first));
	return first.request;
}

#endif /* TOW_EVIL_H */

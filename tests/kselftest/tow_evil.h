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
#define EVIL_VERSION	5
#define EVIL_CONTROL	1
#define EVIL_DATA	2
#define EVIL_KEYED	1
#define EVIL_HEADER	40

enum { R_MALFORMED = 1, R_BAD_VERSION, R_NO_KEY, R_BAD_MAC, R_BUSY, R_CROSSED = 7, R_GOING,
       R_PROTOCOL = 13 };

enum {
	T_AUTH = 1, T_AUTHED, T_READY, T_HEARTBEAT, T_CREDIT, T_GOODBYE,
	T_RESOLVE = 16, T_RESOLVE_MORE, T_RESOLVED, T_CANCEL, T_REVOKE, T_REVOKED, T_RELEASE,
	T_NOTIFIED, T_SYNC
};

static const uint8_t evil_key[32] = "the key of the cluster, 32 bytes";

struct evil_request {
	uint32_t magic;
	uint16_t version;
	uint8_t kind;
	uint8_t index;
	uint8_t incarnation[16];
	union {
		struct {
			uint8_t nonce[16];
			uint32_t qp_num;
			uint32_t features;
			uint16_t qps;
			uint8_t reserved[6];
		} control;
		struct {
			uint64_t session;
			uint32_t qp_num;
			uint32_t reserved;
			uint8_t mac[16];
		} data;
	};
};

struct evil_reply {
	uint32_t magic;
	uint16_t version;
	uint8_t kind;
	uint8_t index;
	uint8_t incarnation[16];
	uint64_t session;
	uint8_t nonce[16];
	uint32_t qp_num;
	uint32_t features;
	uint16_t qps;
	uint8_t reserved[6];
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
	uint64_t dealt;
};

struct evil_authed {
	uint8_t tie[16];
	uint64_t dealt;
};

_Static_assert(sizeof(struct evil_request) == 56, "a request");
_Static_assert(sizeof(struct evil_reply) == 96, "a reply");
_Static_assert(sizeof(struct evil_header) == EVIL_HEADER, "a header");

/* One connection: its control queue pair, and what it knows. */
struct evil {
	int fd;
	int data[EVIL_QPS_MAX];
	int qps;			/* asked for, then agreed on */
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

/*
 * A file with a queue pair that can be connected, where so many notifications may come
 * at once; or a negative errno.
 */
static inline int evil_open(struct tow_hostile_prepare *way, uint16_t notifications)
{
	int fd = open(TOW_HOSTILE_NODE, O_RDWR | O_CLOEXEC);
	int ret;

	memset(way, 0, sizeof(*way));
	if (fd < 0)
		return -errno;
	evil_address(way->address);
	way->port = EVIL_PORT;
	way->notifications = notifications;
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
	e->fd = evil_open(&e->way, 0);
	if (e->fd < 0)
		return e->fd;
	e->request = (struct evil_request) {
		.magic = EVIL_MAGIC, .version = EVIL_VERSION, .kind = EVIL_CONTROL,
		.incarnation = EVIL_LIFE,
		.control = { .nonce = "a nonce", .qp_num = e->way.qp_num, .features = EVIL_KEYED,
			     .qps = (uint16_t)qps },
	};
	e->request.control.nonce[15] = ++life;
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
	e->request.control.qp_num = e->way.qp_num;
	e->request.incarnation[15] = (uint8_t)name;
	return ret;
}

/* One whose address has its name. */
static inline int evil_appear(struct evil *e, char name)
{
	return evil_appear_at(e, name, name, name);
}

/* The session's keys, of the end that made the request or of that which answered. */
static inline int evil_make_keys(struct evil *e, bool answered, uint8_t reply_mac[32])
{
	struct tow_hostile_derive call = {
		.key_bytes = sizeof(evil_key), .answered = answered,
	};
	int ret;

	memcpy(call.key, evil_key, sizeof(evil_key));
	memcpy(call.request, &e->request, sizeof(call.request));
	memcpy(call.reply, &e->reply, sizeof(call.reply));
	memcpy(call.initiator, e->way.source, sizeof(call.initiator));
	memcpy(call.responder, e->way.address, sizeof(call.responder));
	ret = tow_test_ioctl(e->fd, TOW_HOSTILE_DERIVE, &call);
	memcpy(e->auth.mac, call.initiator_mac, sizeof(e->auth.mac));
	memcpy(reply_mac, call.reply_mac, sizeof(call.reply_mac));
	return ret;
}

static inline int evil_derive(struct evil *e)
{
	uint8_t mac[32];
	int ret = evil_make_keys(e, false, mac);

	/* Of one life of a node, however many processes play it. */
	e->auth.order = (uint64_t)(tow_test_now() * 1e9);
	return ret ? ret : memcmp(mac, e->reply.mac, sizeof(mac)) ? -EKEYREJECTED : 0;
}

/* To where the other end has proved itself. */
static inline int evil_begin(struct evil *e, int qps)
{
	int reason, ret = evil_prepare(e, qps);

	if (!ret)
		ret = evil_connect(e->fd, &e->request, sizeof(e->request), &e->reply,
				   sizeof(e->reply), &reason);
	if (ret)
		return ret;
	e->qps = e->reply.qps;
	return evil_derive(e);
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

/* A request for a data queue pair, as it should be. */
static inline int evil_data_request(struct evil *e, int index, struct evil_request *request)
{
	struct tow_hostile_prepare way;
	struct tow_hostile_data call = {
		.session = e->reply.session, .index = (uint32_t)index,
	};
	int fd = evil_open(&way, EVIL_NOTIFICATIONS);
	int ret;

	if (fd < 0)
		return fd;
	call.qp_num = way.qp_num;
	ret = tow_test_ioctl(e->fd, TOW_HOSTILE_DATA_MAC, &call);
	if (ret) {
		close(fd);
		return ret;
	}
	*request = (struct evil_request) {
		.magic = EVIL_MAGIC, .version = EVIL_VERSION, .kind = EVIL_DATA,
		.index = (uint8_t)index,
		.data = { .session = e->reply.session, .qp_num = way.qp_num },
	};
	memcpy(request->incarnation, e->request.incarnation, sizeof(request->incarnation));
	memcpy(request->data.mac, call.mac, sizeof(call.mac));
	return fd;
}

static inline int evil_connect_data(struct evil *e, int index)
{
	struct evil_request request;
	struct evil_reply reply;
	int fd = evil_data_request(e, index, &request);
	int ret, reason;

	if (fd < 0)
		return fd;
	ret = evil_connect(fd, &request, sizeof(request), &reply, sizeof(reply), &reason);
	e->data[index] = fd;
	return ret;
}

/* From AUTHENTICATED to READY. */
static inline int evil_complete(struct evil *e)
{
	int ret = 0;

	for (int i = 0; !ret && i < e->qps; i++)
		ret = evil_connect_data(e, i);
	if (!ret)
		ret = evil_say(e, T_READY, 0, NULL, 0);
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
		ret = evil_connect(e->fd, &e->request, sizeof(e->request), &e->reply,
				   sizeof(e->reply), reason);
	if (!ret)
		ret = evil_derive(e);
	if (ret)
		return ret;
	e->qps = e->reply.qps;
	ret = evil_say_last(e, T_AUTH, 0, &e->auth, sizeof(e->auth));
	if (!ret)
		ret = evil_hear(e, EVIL_WAIT_MS);
	if (ret == T_AUTHED)
		return evil_complete(e);
	if (ret != T_GOODBYE)
		return ret < 0 ? ret : -EPROTO;
	memcpy(reason, e->last.data + EVIL_HEADER, sizeof(*reason));
	return -ECONNREFUSED;
}

/* Asks what there is not, and is answered. */
static inline int evil_use(struct evil *e)
{
	uint8_t body[33] = { [20] = TOW_RIGHT_READ, [25] = 1, [32] = '?' };

	if (evil_say(e, T_RESOLVE, 1, body, sizeof(body)))
		return -EIO;
	return evil_hear(e, EVIL_WAIT_MS) == T_RESOLVED ? 0 : -EPROTO;
}

#endif /* TOW_EVIL_H */

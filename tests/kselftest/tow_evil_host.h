/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The other role of a node that keeps to the protocol as far as the test wants: it
 * listens (tow_hostile.ko), and the node under test connects to it.
 */
#ifndef TOW_EVIL_HOST_H
#define TOW_EVIL_HOST_H

#include "tow_evil.h"

/* How far it keeps to the protocol. */
enum evil_stage {
	EVIL_CALLED,		/* there is a request */
	EVIL_ACCEPTED,		/* it was answered, with a proof */
	EVIL_PROVED,		/* the other end has proved itself */
	EVIL_AUTHED,		/* and was told so */
	EVIL_TOLD,		/* and which data queue pairs we have */
	EVIL_HEARD,		/* the other end has said which it has */
	EVIL_PACKETS,		/* long packets have gone both ways */
	EVIL_READY		/* we have said READY */
};

/* A file that takes connections to a port of ours; or a negative errno. */
static inline int evil_listen(uint16_t port)
{
	struct tow_hostile_listen call = { .port = port };
	int fd = open(TOW_HOSTILE_NODE, O_RDWR | O_CLOEXEC);
	int ret;

	if (fd < 0)
		return -errno;
	evil_address(call.address);
	ret = tow_test_ioctl(fd, TOW_HOSTILE_LISTEN, &call);
	if (!ret)
		return fd;
	close(fd);
	return ret;
}

/* The next connection: a file, and what came with it; or a negative errno. */
static inline int evil_take(int listener, uint32_t timeout_ms, struct tow_hostile_take *call)
{
	int fd = open(TOW_HOSTILE_NODE, O_RDWR | O_CLOEXEC);
	int ret;

	if (fd < 0)
		return -errno;
	*call = (struct tow_hostile_take) { .listener = listener, .timeout_ms = timeout_ms };
	ret = tow_test_ioctl(fd, TOW_HOSTILE_TAKE, call);
	if (!ret)
		return fd;
	close(fd);
	return ret;
}

/* EVIL_CALLED: 0, and the answer as it should be but for its MAC. */
static inline int evil_called(struct evil *e, int listener, uint32_t timeout_ms)
{
	static uint8_t life;
	struct tow_hostile_take call;

	memset(e, 0, sizeof(*e));
	for (int i = 0; i < EVIL_QPS_MAX; i++)
		e->data[i] = -1;
	e->fd = evil_take(listener, timeout_ms, &call);
	if (e->fd < 0)
		return e->fd;
	memcpy(&e->request, call.data, sizeof(e->request));
	memcpy(e->way.source, call.source, sizeof(call.source));
	memcpy(e->way.address, call.address, sizeof(call.address));
	e->qps = 1;
	e->reply = (struct evil_reply) {
		.magic = EVIL_MAGIC, .version = EVIL_VERSION, .qps = 1, .mtu = EVIL_MTU,
		.incarnation = "an evil host", .nonce = "its nonce", .qp_num = call.qp_num,
		.features = e->request.features,
	};
	e->reply.nonce[15] = ++life;
	return 0;
}

/* Yes, and what travels with it; it is known over there when this returns. */
static inline int evil_accept(int fd, const void *data, size_t bytes)
{
	struct tow_hostile_answer call = {
		.timeout_ms = EVIL_WAIT_MS, .bytes = (uint32_t)bytes,
	};

	memcpy(call.data, data, bytes);
	return tow_test_ioctl(fd, TOW_HOSTILE_ANSWER, &call);
}

/* No: for @reason of the connection manager's, and what travels with it. */
static inline int evil_reject(int fd, uint32_t reason, const void *data, size_t bytes)
{
	struct tow_hostile_answer call = { .reject = reason, .bytes = (uint32_t)bytes };

	memcpy(call.data, data, bytes);
	return tow_test_ioctl(fd, TOW_HOSTILE_ANSWER, &call);
}

/* The other end's proof. */
static inline int evil_hear_proof(struct evil *e)
{
	int type = evil_hear(e, EVIL_WAIT_MS);

	if (type != T_AUTH)
		return type < 0 ? type : -EPROTO;
	return memcmp(e->last.data + EVIL_HEADER, e->auth.mac, sizeof(e->auth.mac)) ?
	       -EKEYREJECTED : 0;
}

static inline int evil_serve_step(struct evil *e, enum evil_stage stage)
{
	int ret;

	switch (stage) {
	case EVIL_ACCEPTED:
		ret = evil_make_keys(e, true, e->reply.mac);
		return ret ? ret : evil_accept(e->fd, &e->reply, sizeof(e->reply));
	case EVIL_PROVED:
		return evil_hear_proof(e);
	case EVIL_AUTHED:
		return evil_say(e, T_AUTHED, 0, &e->authed, sizeof(e->authed));
	case EVIL_TOLD:
		ret = evil_data_make_all(e);
		return ret ? ret : evil_say_qps(e);
	case EVIL_HEARD:
		ret = evil_hear_qps(e);
		return ret ? ret : evil_join(e);
	case EVIL_PACKETS:
		ret = evil_say_proofs(e, EVIL_MTU_BYTES);
		return ret ? ret : evil_hear_proofs(e);
	case EVIL_READY:
		e->ready = true;
		return evil_say(e, T_READY, 0, NULL, 0);
	default:
		return 0;
	}
}

/* From EVIL_CALLED on, honestly, up to a stage. */
static inline int evil_serve(struct evil *e, enum evil_stage until)
{
	int ret = 0;

	for (int stage = EVIL_ACCEPTED; !ret && stage <= (int)until; stage++)
		ret = evil_serve_step(e, (enum evil_stage)stage);
	return ret;
}

#endif /* TOW_EVIL_HOST_H */

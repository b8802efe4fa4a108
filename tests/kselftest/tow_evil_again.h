/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A node that listens (tow_evil_host.h), to which the node under test connects, and connects
 * again when that connection has broken: what both have goes on.
 */
#ifndef TOW_EVIL_AGAIN_H
#define TOW_EVIL_AGAIN_H

#include <pthread.h>
#include <stdatomic.h>

#include "tow_evil_host.h"
#include "tow_sysfs.h"

#define EVIL_HOST_PORT	18700
/* For so long the node waits for each step of the other end's. */
#define EVIL_STEP_S	2.0

/* PEER_CONNECT, by a thread. */
struct evil_connecting {
	int fd;
	struct tow_peer_connect call;
	int ret;
	atomic_bool done;
	pthread_t thread;
};

/* The one that listens, and the node's client that wants it. */
struct evil_host {
	int fd;
	int listener;
	struct evil_connecting work;
};

static inline void *evil_host_connect(void *arg)
{
	struct evil_connecting *work = arg;

	work->ret = tow_test_ioctl(work->fd, TOW_IOCTL_PEER_CONNECT, &work->call);
	atomic_store(&work->done, true);
	return NULL;
}

static inline int evil_host_begin(struct evil_connecting *work, int fd)
{
	*work = (struct evil_connecting) {
		.fd = fd,
		.call = { .size = sizeof(work->call), .port = EVIL_HOST_PORT, .timeout_ms = 60000 },
	};
	evil_address(work->call.address);
	return -pthread_create(&work->thread, NULL, evil_host_connect, work);
}

static inline int evil_host_disconnect(int fd, __u64 peer)
{
	struct tow_peer_disconnect call = { .size = sizeof(call), .peer = peer };

	return tow_test_ioctl(fd, TOW_IOCTL_PEER_DISCONNECT, &call);
}

/*
 * Where the guest stood still in the middle of a try, the node may have given it up, and
 * tries again: that one says nothing.  @since: what was there before it; then its end.
 */
static inline bool evil_stood_still(double *since)
{
	double before = *since;

	*since = tow_test_now();
	return *since - before >= EVIL_STEP_S;
}

/* The next that calls for a session. */
static inline int evil_host_called(struct evil_host *host, struct evil *e)
{
	int ret;

	do {
		ret = evil_called(e, host->listener, EVIL_WAIT_MS);
		if (ret)
			evil_end(e);
	} while (ret == -ENOTCONN);
	return ret;
}

/* Both ends are honest: the connection, READY; it keeps the incarnation @life. */
static inline int evil_host_serve(struct evil_host *host, struct evil *e, uint8_t life)
{
	double since = tow_test_now();
	int ret = evil_host_begin(&host->work, host->fd);

	if (ret)
		return ret;
	while (true) {
		ret = evil_host_called(host, e);
		if (ret)
			break;
		e->reply.incarnation[15] = life;
		ret = evil_serve(e, EVIL_READY);
		if (!ret || !evil_stood_still(&since))
			break;
		evil_end(e);
	}
	pthread_join(host->work.thread, NULL);
	return ret ? ret : host->work.ret;
}

/*
 * The node under test is connected to one that listens, says nothing by itself and is given
 * time, and has a pool of so many bytes.
 */
static inline int evil_host_start(struct evil_host *host, struct evil *e, uint64_t pool_bytes)
{
	int ret = evil_share_key();

	ret = ret ? ret : evil_set("heartbeat_misses", "100");
	ret = ret ? ret : tow_pool_fresh(pool_bytes);
	ret = ret ? ret : evil_patience(EVIL_PATIENT);
	if (ret)
		return ret;
	host->listener = evil_listen(EVIL_HOST_PORT);
	if (host->listener < 0)
		return host->listener;
	host->fd = tow_test_open(O_RDWR);
	return host->fd < 0 ? host->fd : evil_host_serve(host, e, 0);
}

/* Called once more: what both have goes on, as we say. */
static inline int evil_host_serve_again(struct evil_host *host, struct evil *e)
{
	struct evil_auth auth;
	int ret = evil_host_called(host, e);

	if (!ret)
		ret = evil_serve(e, EVIL_PROVED);
	if (ret)
		return ret;
	memcpy(&auth, e->last.data + EVIL_HEADER, sizeof(auth));
	memcpy(e->authed.tie, auth.tie, sizeof(auth.tie));
	return evil_serve_step(e, EVIL_AUTHED);
}

/*
 * From AUTHED on: to READY, and SYNC, by which operations go on.  @grant: the last one that we
 * were told of; @deaf: operations get no answer.
 */
static inline int evil_resume(struct evil *e, uint64_t grant, bool deaf)
{
	const struct evil_sync sync = { .count = 1, .grant = grant };
	__u32 unused = 0;
	int ret = 0;

	for (int stage = EVIL_TOLD; !ret && stage <= EVIL_READY; stage++)
		ret = evil_serve_step(e, (enum evil_stage)stage);
	if (!ret && deaf)
		ret = tow_test_ioctl(e->data[0], TOW_HOSTILE_DEAF, &unused);
	return ret ? ret : evil_say(e, T_SYNC, 0, &sync, EVIL_SYNC_BYTES);
}

/* The connection breaks without a word, and is made again. */
static inline int evil_break(struct evil_host *host, struct evil *e, uint64_t grant)
{
	int ret;

	evil_hang_up(e);
	ret = evil_host_serve_again(host, e);
	return ret ? ret : evil_resume(e, grant, false);
}

#endif /* TOW_EVIL_AGAIN_H */

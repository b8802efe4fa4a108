/* SPDX-License-Identifier: GPL-2.0 */
/* What the tests of edges have in common: a node that is its own peer, tensors, notes. */
#ifndef TOW_LIBEDGE_H
#define TOW_LIBEDGE_H

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <towline/queue.h>
#include <towline/tensor.h>

#include "tow_libpeer.h"

#define MIB		((size_t)1 << 20)
#define REGION_BYTES	(8 * MIB)
#define SOON_US		20000U
#define LATE_US		30000000U
#define LATE_MS		30000U
#define FLOATS(...)	{ { TOW_DTYPE_FLOAT, 32, 1 }, __VA_ARGS__ }

struct side {
	struct tow_device *dev;
	struct tow_arena *arena;
	struct tow_worker *worker;
	struct tow_peer *peer;
};

static inline int make_side(struct side *side)
{
	struct tow_arena_attr attr = { .size = sizeof(attr), .region_bytes = REGION_BYTES };
	int ret;

	ret = tow_device_open(tow_test_device(), 0, &side->dev);
	if (!ret)
		ret = tow_arena_create(side->dev, &attr, &side->arena);
	if (!ret)
		ret = tow_worker_create(side->dev, side->arena, NULL, &side->worker);
	if (!ret)
		ret = tow_peer_connect(side->dev, tow_own_address(), NULL, TOW_PEER_WAIT_MS,
				       &side->peer);
	return ret;
}

static inline int end_side(struct side *side)
{
	int ret = tow_worker_destroy(side->worker);

	tow_peer_release(side->peer);
	tow_arena_destroy(side->arena);
	tow_device_close(side->dev);
	return ret;
}

static inline unsigned char value_of(uint64_t step, size_t at)
{
	return (unsigned char)(step * 37 + at * 11 + (at >> 8));
}

static inline void fill(unsigned char *tensor, size_t bytes, uint64_t step)
{
	for (size_t i = 0; i < bytes; i++)
		tensor[i] = value_of(step, i);
}

static inline bool holds(const unsigned char *tensor, size_t bytes, uint64_t step)
{
	for (size_t i = 0; i < bytes; i++)
		if (tensor[i] != value_of(step, i))
			return false;
	return true;
}

/* What tow_edge_send()'s function was told. */
struct sent {
	uint64_t last;
	int count, wrong;
	int status;
};

static inline void note_sent(void *arg, uint64_t step, int status)
{
	struct sent *sent = arg;

	sent->wrong += step != sent->last + 1;
	sent->last = step;
	sent->count++;
	if (status)
		sent->status = status;
}

static inline int finish(struct side *side, const struct tow_edge *edge)
{
	struct tow_patience patience = tow_patience(TOW_PEER_SETTLE_SECONDS);

	while (tow_edge_pending(edge) && tow_patient(&patience))
		if (tow_worker_progress(side->worker, SOON_US) < 0)
			return -EIO;
	return tow_edge_pending(edge) ? -ETIMEDOUT : 0;
}

/*
 * An end in a process of its own, which says in a pipe that it is there, and goes on until it
 * is killed.
 */
static inline pid_t begin_end(void (*be_end)(bool sends, int says), bool sends, int *says)
{
	int pipes[2];
	pid_t child;

	if (pipe(pipes))
		return -1;
	child = fork();
	if (!child) {
		be_end(sends, pipes[1]);
		_exit(1);
	}
	close(pipes[1]);
	*says = pipes[0];
	return child;
}

/* Once it has said so it is killed: true. */
static inline bool end_end(pid_t child, int says)
{
	char byte;
	bool came = read(says, &byte, 1) == 1;

	close(says);
	kill(child, SIGKILL);
	return waitpid(child, NULL, 0) == child && came;
}

/* Until what was said before has arrived; the edges' looks, once a second, are heard, too. */
static inline bool goes_quiet(struct tow_worker *worker, struct pollfd *look)
{
	for (int tries = 0; tries < 5; tries++) {
		while (tow_worker_progress(worker, 10 * SOON_US) > 0)
			;
		if (!poll(look, 1, 20))
			return true;
	}
	return false;
}

#endif /* TOW_LIBEDGE_H */

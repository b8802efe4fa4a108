/* SPDX-License-Identifier: GPL-2.0 */
/* What the tests of edges have in common: a node that is its own peer, tensors, notes. */
#ifndef TOW_LIBEDGE_H
#define TOW_LIBEDGE_H

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
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

/* Regions that no arena has made. */
enum given_kind { GIVEN_IMPORTED, GIVEN_READONLY, GIVEN_PASSED, GIVEN_ATTACHED, GIVEN_KINDS };

#define GIVEN_BYTES	((size_t)256 << 10)

struct given {
	struct tow_region *region;
	char *memory;			/* of the process's own */
	unsigned char *at, *end;
};

static inline int import_given(struct side *side, uint32_t flags, struct given *given)
{
	given->memory = calloc(1, GIVEN_BYTES);
	if (!given->memory)
		return -ENOMEM;
	given->at = (unsigned char *)given->memory + 100;
	given->end = given->at + GIVEN_BYTES / 2;
	return tow_region_from_memory(side->dev, given->at, GIVEN_BYTES / 2, flags,
				      &given->region);
}

/* Another client's, of which only a descriptor is left. */
static inline int pass_given(struct side *side, struct tow_device *dev, struct given *given)
{
	struct tow_region *region;
	int fd, ret;

	ret = tow_region_create(dev, GIVEN_BYTES, NULL, &region);
	if (ret)
		return ret;
	ret = tow_region_fd(region, 0, &fd);
	tow_region_destroy(region);
	if (ret)
		return ret;
	ret = tow_region_from_fd(side->dev, fd, &given->region);
	close(fd);
	return ret;
}

/* A persistent one of a client that has ended. */
static inline int leave_given(struct tow_device *dev)
{
	struct tow_region_attr attr = { .size = sizeof(attr), .flags = TOW_REGION_PERSISTENT,
					.name = "given" };
	struct tow_region *region;
	int ret = tow_region_create(dev, GIVEN_BYTES, &attr, &region);

	if (!ret)
		tow_region_release(region);
	return ret;
}

static inline int attach_given(struct side *side, struct given *given)
{
	struct tow_patience patience = tow_patience(TOW_PEER_SETTLE_SECONDS);
	int ret;

	while ((ret = tow_region_attach(side->dev, "given", 0, &given->region)) == -EBUSY &&
	       tow_patient(&patience))
		tow_test_sleep_ms(10);
	return ret;
}

/* 0 or a negative errno. */
static inline int give_region(struct side *side, enum given_kind kind, struct given *given)
{
	struct tow_device *dev;
	int ret;

	*given = (struct given){ 0 };
	if (kind == GIVEN_IMPORTED || kind == GIVEN_READONLY)
		return import_given(side, kind == GIVEN_READONLY ? TOW_REGION_READONLY : 0, given);
	ret = tow_device_open(tow_test_device(), 0, &dev);
	if (ret)
		return ret;
	ret = kind == GIVEN_PASSED ? pass_given(side, dev, given) : leave_given(dev);
	tow_device_close(dev);
	if (!ret && kind == GIVEN_ATTACHED)
		ret = attach_given(side, given);
	if (!ret)
		ret = tow_region_map(given->region, 0, 0, PROT_READ | PROT_WRITE,
				     (void **)&given->at);
	if (!ret)
		given->end = given->at + GIVEN_BYTES;
	return ret;
}

static inline int end_given(struct given *given)
{
	int ret = tow_region_destroy(given->region);

	free(given->memory);
	return ret;
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

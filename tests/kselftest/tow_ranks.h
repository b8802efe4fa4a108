/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Ranks that are processes of one node: they are started, meet in a group, end or are killed.
 * A program that includes it is linked with libtowline.
 */
#ifndef TOW_RANKS_H
#define TOW_RANKS_H

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <towline/arena.h>
#include <towline/bootstrap.h>

#include "tow_libpeer.h"

#define TOW_RANKS_TESTED	32
#define TOW_RANKS_WAIT_MS	30000U

/* Processes that were started. */
struct tow_ranks {
	char session[32];
	uint32_t started;
	pid_t pids[TOW_RANKS_TESTED];
};

/* What a rank has of its own. */
struct tow_me {
	uint32_t rank, ranks;
	struct tow_device *dev;
	struct tow_group *group;
	struct tow_arena *arena;
};

/* A node as these tests need it, and what their processes call their run: 0 or a negative errno. */
static inline int tow_ranks_begin(struct tow_ranks *ranks, const char *pool_bytes)
{
	int ret = tow_set_file("pool_bytes", pool_bytes);

	snprintf(ranks->session, sizeof(ranks->session), "ranks of %d", (int)getpid());
	return ret ? ret : tow_set_file("allow_unauthenticated", "1");
}

/* Whoever is left is killed. */
static inline void tow_ranks_end(struct tow_ranks *ranks)
{
	for (uint32_t i = 0; i < ranks->started; i++) {
		if (ranks->pids[i]) {
			kill(ranks->pids[i], SIGKILL);
			waitpid(ranks->pids[i], NULL, 0);
		}
	}
}

/* What all processes see: NULL: there is no memory. */
static inline void *tow_ranks_share(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

/* Does it become so much, or more? */
static inline bool tow_becomes(const _Atomic uint32_t *number, uint32_t wanted)
{
	for (uint32_t ms = 0; ms < TOW_RANKS_WAIT_MS; ms++) {
		if (atomic_load(number) >= wanted)
			return true;
		usleep(1000);
	}
	return false;
}

/* A process that calls @run with @part, and ends with what it returns. */
static inline void tow_ranks_start(struct tow_ranks *ranks,
				   int (*run)(const void *part, const char *session),
				   const void *part)
{
	pid_t pid = fork();

	if (!pid)
		_exit(run(part, ranks->session));
	ranks->pids[ranks->started++] = pid;
}

/* How it ended: as waitpid(2) says, 0 if all went as it wanted. */
static inline int tow_ranks_end_of(struct tow_ranks *ranks, uint32_t which)
{
	int status = -1;

	waitpid(ranks->pids[which], &status, 0);
	ranks->pids[which] = 0;
	return status;
}

/* Meet the others, of that start: 0 or a negative errno. */
static inline int tow_meet(struct tow_me *me, uint32_t restart, const char *session)
{
	struct tow_world world = { .size = sizeof(world), .rank = me->rank,
				   .world_size = me->ranks, .local_rank = me->rank,
				   .restart = restart };

	snprintf(world.session, sizeof(world.session), "%s", session);
	return tow_group_create(me->dev, &world, NULL, &me->group, NULL);
}

/* The device and an arena before: 0 or a negative errno. */
static inline int tow_meet_anew(struct tow_me *me, uint32_t restart, const char *session)
{
	int ret = tow_device_open(tow_test_device(), 0, &me->dev);

	if (!ret)
		ret = tow_arena_create(me->dev, NULL, &me->arena);
	return ret ? ret : tow_meet(me, restart, session);
}

/* 0, or -EBUSY and the like: something of it is used still. */
static inline int tow_part(struct tow_me *me)
{
	int ret;

	tow_group_destroy(me->group);
	ret = tow_arena_destroy(me->arena);
	tow_device_close(me->dev);
	return ret;
}

#endif /* TOW_RANKS_H */

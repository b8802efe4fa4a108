/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Ranks which are threads here and processes of a node that is played, and what they do together:
 * what each is given, and what is to come out.  After <kselftest.h>, in one source file.
 */
#ifndef TOW_CALLS_TEST_H
#define TOW_CALLS_TEST_H

#include <string.h>

#include <towline/collective.h>

#include "../collective/made.h"
#include "tow_node.h"

/* No call takes so long. */
#define ENDS_MS		60000U
#define RANKS_MAX	17U
/* A prime: what comes to another place, in pieces of any size, is wrong there. */
#define PERIOD		251U
/* What looks for races takes many times as long. */
#ifdef __SANITIZE_THREAD__
#define SLOW		1U
#else
#define SLOW		0U
#endif

/* A rank: what it is, and what came of it. */
struct rank {
	pthread_t thread;
	int index;			/* of its process */
	uint32_t rank, ranks;
	uint32_t seed;
	int (*then)(struct rank *rank);	/* the line at which it went wrong, or 0 */
	void (*before)(struct rank *rank);	/* it has a communicator; or NULL */
	struct tow_group *group;
	struct tow_arena *arena;
	struct tow_comm *comm;
	int ret;			/* of meeting, or what its calls failed with, */
	uint32_t blamed;		/* and who is to blame for that */
	int wrong;			/* a line */
};

static struct rank ranks[RANKS_MAX];
static pthread_barrier_t told;

/* What this test's ranks do depends on it. */
static uint32_t variant;

static inline uint32_t chance(uint32_t *seed, uint32_t below)
{
	*seed = *seed * 1103515245 + 12345;
	return (*seed >> 16) % below;
}

/* For a while, or not at all. */
static inline void linger(struct rank *me)
{
	if (!chance(&me->seed, 4))
		usleep(chance(&me->seed, 2000));
}

/* What their communicators are made with. */
static struct tow_comm_attr comm_attr = { .size = sizeof(comm_attr), .timeout_ms = ENDS_MS };

/* ---- ranks ------------------------------------------------------------------- */

static inline void make_comm(struct rank *me)
{
	const struct tow_arena_attr arena = { .size = sizeof(arena), .region_bytes = 16 << 20 };

	if (tow_arena_create(&node_device[me->index], &arena, &me->arena))
		ksft_exit_fail_msg("no arena\n");
	if (me->before)
		me->before(me);
	me->ret = tow_comm_create(me->group, me->arena, &comm_attr, &me->comm, &me->blamed);
}

/* All of it that there is. */
static inline void end_comm(struct rank *me)
{
	int ret = tow_comm_destroy(me->comm);

	if (ret && !me->wrong)
		me->wrong = __LINE__;
	ret = tow_arena_destroy(me->arena);
	if (ret && !me->wrong && !node.processes[me->index].dead)
		me->wrong = __LINE__;
	tow_group_destroy(me->group);
}

static inline void *take_part(void *arg)
{
	struct rank *me = arg;
	struct tow_world world = { .size = sizeof(world), .rank = me->rank, .world_size = me->ranks,
				   .session = "unit" };
	const struct tow_group_attr attr = { .size = sizeof(attr), .timeout_ms = ENDS_MS,
					     .address = "192.0.2.1" };

	if (tow_group_create(&node_device[me->index], &world, &attr, &me->group, &me->blamed))
		ksft_exit_fail_msg("no group\n");
	make_comm(me);
	pthread_barrier_wait(&told);
	if (!me->ret)
		me->wrong = me->then(me);
	end_comm(me);
	return NULL;
}

static inline void start(uint32_t count, int (*then)(struct rank *rank),
		  void (*before)(struct rank *rank))
{
	pthread_barrier_init(&told, NULL, count + 1);
	for (uint32_t i = 0; i < count; i++) {
		ranks[i] = (struct rank){ .index = (int)i, .rank = i, .ranks = count,
					  .seed = variant * 1000 + i, .then = then,
					  .before = before, .blamed = TOW_NO_RANK };
		if (pthread_create(&ranks[i].thread, NULL, take_part, &ranks[i]))
			ksft_exit_fail_msg("no thread\n");
	}
	pthread_barrier_wait(&told);
}

/* Nothing of all these processes is left, but for the memory of those that were killed. */
static inline bool all_gone(uint32_t count)
{
	bool good = true;

	for (uint32_t i = 1; i <= node.used; i++) {
		struct node_object *object = &node.objects[i];

		if (!object->kind)
			continue;
		good = good && node.processes[object->process].dead;
		if (object->kind == NODE_REGION) {
			munmap(object->memory, object->bytes);
			close(object->fd);
		}
		object->kind = 0;
	}
	node.used = 0;
	for (uint32_t i = 0; i < count; i++) {
		good = good && !node_waits((int)i);
		node_forget((int)i);
	}
	if (!good)
		ksft_print_msg("something stays\n");
	return good;
}

static inline bool ended(uint32_t count)
{
	bool good = true;

	for (uint32_t i = 0; i < count; i++)
		pthread_join(ranks[i].thread, NULL);
	for (uint32_t i = 0; i < count; i++) {
		if (!ranks[i].wrong)
			continue;
		ksft_print_msg("rank %u of %u: line %d: %d, and %d is to blame\n", i, count,
			       ranks[i].wrong, ranks[i].ret, (int)ranks[i].blamed);
		good = false;
	}
	pthread_barrier_destroy(&told);
	return all_gone(count) && good;
}

static inline bool all_do(uint32_t count, int (*then)(struct rank *rank))
{
	start(count, then, NULL);
	return ended(count);
}

/* ---- what is given, and what is to come out ---------------------------------- */

/* enum tow_collective_kind, and tow_reduce(). */
#define REDUCE		(TOW_BARRIER + 1U)
#define KINDS		(REDUCE + 1U)
/* Reduced, and not one rank's. */
#define ALL_RANKS	UINT32_MAX

/* A call: 0 is AllReduce, by any algorithm, in the arena, in place. */
struct how {
	uint32_t kind, algorithm, root;
	uint64_t count, piece_bytes;
	bool outside, apart;
	uint32_t salt;			/* calls of another one have other elements */
};

struct call {
	struct how how;
	float *in, *out;		/* one of them is in the other, unless they are apart */
	struct tow_work *work;
	struct tow_collective *made;	/* or NULL */
};

static inline int number(uint32_t rank, uint32_t section, uint32_t salt, uint32_t at)
{
	return (int)((at * 7 + rank * 5 + section * 3 + salt * 11 + at * at) % 17) - 8;
}

static inline uint64_t draw(float *pattern, const struct call *call, uint32_t rank, uint32_t count,
		     uint32_t section)
{
	uint32_t least = call->how.count < PERIOD ? (uint32_t)call->how.count : PERIOD;

	for (uint32_t at = 0; at < least; at++) {
		int sum = 0;

		for (uint32_t i = 0; i < count; i++)
			if (rank == i || rank == ALL_RANKS)
				sum += number(i, section, call->how.salt, at);
		pattern[at] = (float)sum;
	}
	return least;
}

static inline void fill(const struct rank *me, const struct call *call, float *to, uint32_t section)
{
	uint64_t count = call->how.count, done, step;
	float pattern[PERIOD];

	done = draw(pattern, call, me->rank, me->ranks, section);
	memcpy(to, pattern, done * sizeof(*to));
	for (; done < count; done += step) {
		step = done < count - done ? done / PERIOD * PERIOD : count - done;
		memcpy(to + done, to, step * sizeof(*to));
	}
}

static inline bool holds(const struct rank *me, const struct call *call, const float *from,
		  uint32_t rank, uint32_t section)
{
	float pattern[PERIOD];
	uint64_t least = draw(pattern, call, rank, me->ranks, section);

	return !memcmp(from, pattern, least * sizeof(*from)) &&
	       (least == call->how.count ||
		!memcmp(from + least, from, (call->how.count - least) * sizeof(*from)));
}

static inline bool scatters(const struct call *call)
{
	return call->how.kind == TOW_REDUCE_SCATTER;
}

static inline bool gathers(const struct call *call)
{
	return call->how.kind == TOW_ALLGATHER;
}

static inline float *take(const struct rank *me, const struct call *call, bool all)
{
	uint64_t bytes = call->how.count * sizeof(float) * (all ? me->ranks : 1) + 1;
	float *at = call->how.outside ? malloc(bytes) : tow_arena_alloc(me->arena, bytes);

	if (!at)
		ksft_exit_fail_msg("no memory\n");
	return at;
}

static inline void give(const struct rank *me, const struct call *call, float *at)
{
	if (call->how.outside)
		free(at);
	else
		tow_arena_free(me->arena, at);
}

/* What this rank gives. */
static inline void give_in(const struct rank *me, const struct call *call)
{
	for (uint32_t i = 0; i < (scatters(call) ? me->ranks : 1); i++)
		fill(me, call, call->in + i * call->how.count, i);
}

static inline void prepare(const struct rank *me, struct call *call)
{
	uint64_t own = me->rank * call->how.count;

	call->work = NULL;
	call->made = NULL;
	call->in = NULL;
	if (!gathers(call) || call->how.apart)
		call->in = take(me, call, scatters(call));
	if (call->how.apart || gathers(call))
		call->out = take(me, call, gathers(call));
	else
		call->out = call->in + (scatters(call) ? own : 0);
	if (!call->in)
		call->in = call->out + own;
	give_in(me, call);
}

static inline void end_call(const struct rank *me, struct call *call)
{
	if (call->how.apart || !gathers(call))
		give(me, call, call->in);
	if (call->how.apart || gathers(call))
		give(me, call, call->out);
}

static const struct tow_dtype f32 = { .code = TOW_DTYPE_FLOAT, .bits = 32, .lanes = 1 };

static inline int make(const struct rank *me, struct call *call, bool waits)
{
	const struct tow_call_attr attr = { .size = sizeof(attr), .algorithm = call->how.algorithm,
					    .piece_bytes = call->how.piece_bytes };
	struct tow_work **work = waits ? NULL : &call->work;
	uint64_t count = call->how.count;
	uint32_t root = call->how.root;

	switch (call->how.kind) {
	case TOW_ALLREDUCE:
		return tow_allreduce(me->comm, call->in, call->out, count, f32, TOW_SUM, &attr, work);
	case TOW_REDUCE_SCATTER:
		return tow_reduce_scatter(me->comm, call->in, call->out, count, f32, TOW_SUM, &attr,
					  work);
	case TOW_ALLGATHER:
		return tow_allgather(me->comm, call->in, call->out, count, f32, &attr, work);
	case TOW_BROADCAST:
		return tow_broadcast(me->comm, call->in, count, f32, root, &attr, work);
	case REDUCE:
		return tow_reduce(me->comm, call->in, call->out, count, f32, TOW_SUM, root, &attr,
				  work);
	default:
		return tow_barrier(me->comm, NULL, work);
	}
}

static inline bool came(const struct rank *me, const struct call *call)
{
	switch (call->how.kind) {
	case TOW_ALLREDUCE:
	case TOW_REDUCE_SCATTER:
		return holds(me, call, call->out, ALL_RANKS, scatters(call) ? me->rank : 0);
	case TOW_ALLGATHER:
		for (uint32_t i = 0; i < me->ranks; i++)
			if (!holds(me, call, call->out + i * call->how.count, i, 0))
				return false;
		return true;
	case TOW_BROADCAST:
		return holds(me, call, call->made ? call->out : call->in, call->how.root, 0);
	case REDUCE:
		return me->rank != call->how.root || holds(me, call, call->out, ALL_RANKS, 0);
	default:
		return true;
	}
}

/* Its result is there, and what is only read was not written to. */
static inline bool is_right(const struct rank *me, const struct call *call)
{
	bool kept = call->how.apart && (call->made || call->how.kind != TOW_BROADCAST);

	for (uint32_t i = 0; kept && i < (scatters(call) ? me->ranks : 1); i++)
		if (!holds(me, call, call->in + i * call->how.count, me->rank, i))
			return false;
	return came(me, call);
}

/* It has ended well, and is freed: the line at which it has not. */
static inline int finish(struct rank *me, struct call *call)
{
	me->ret = tow_work_wait(call->work, TOW_WAIT_FOREVER, &me->blamed);
	if (me->ret != 1)
		return __LINE__;
	tow_work_free(call->work);
	if (!is_right(me, call))
		return __LINE__;
	end_call(me, call);
	return 0;
}

/* ---- what is done ------------------------------------------------------------ */

/* By kind: a bit for each algorithm that does it. */
static const uint32_t ways[KINDS] = {
	[TOW_ALLREDUCE] = 0xf,
	[TOW_REDUCE_SCATTER] = 0x7,
	[TOW_ALLGATHER] = 0x7,
	[TOW_BROADCAST] = 0xb,
	[TOW_BARRIER] = 0x1,
	[REDUCE] = 0x9,
};

/* All ranks have the same. */
static inline struct how nth(uint32_t n, uint32_t count)
{
	static const uint32_t counts[] = { 5, 20000, 1000, 0, 3001, 40000, 70001 };
	uint32_t seed = n * 77 + variant, kind, way;

	chance(&seed, 2);
	kind = chance(&seed, KINDS);
	do {
		way = chance(&seed, TOW_ALGORITHM_TREE + 1);
	} while (!(ways[kind] & 1U << way));
	return (struct how){ .kind = kind, .algorithm = way, .count = counts[chance(&seed, 7)],
			     .root = chance(&seed, count), .salt = n };
}

/* Each its own. */
static inline struct how own(struct rank *me, struct how how)
{
	how.outside = chance(&me->seed, 2);
	how.apart = chance(&me->seed, 2);
	return how;
}

static inline int do_one(struct rank *me, struct how how)
{
	struct call call = { .how = how };
	bool right;

	prepare(me, &call);
	linger(me);
	me->ret = make(me, &call, true);
	right = !me->ret && is_right(me, &call);
	end_call(me, &call);
	if (right)
		return 0;
	ksft_print_msg("kind %u, algorithm %u, %u elements%s%s\n", how.kind, how.algorithm,
		       (uint32_t)how.count, how.outside ? ", outside" : "",
		       how.apart ? ", apart" : "");
	return __LINE__;
}

/* One rank is refused that from now on. */
static inline void lack_channels(struct rank *me)
{
	if (me->rank == 1)
		node_refuse(&node.processes[me->index].no_channel, -ENOSPC);
}

static inline void lack_exports(struct rank *me)
{
	if (me->rank == 1)
		node_refuse(&node.processes[me->index].no_export, -EDQUOT);
}

static inline void wait_for_entries(uint64_t entries)
{
	bool there = false;

	while (!there) {
		usleep(100);
		pthread_mutex_lock(&node.lock);
		there = node.entries >= entries;
		pthread_mutex_unlock(&node.lock);
	}
}

#endif /* TOW_CALLS_TEST_H */

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Jobs: calls (tow_allreduce() and its like) of ranks that are processes of one node, with arrays,
 * what is given in them, and what one process computes that is to come out.
 */
#ifndef TOW_JOBS_H
#define TOW_JOBS_H

#include <inttypes.h>

#include "tow_elements.h"
#include "tow_mates.h"

#define POOL_BYTES	"256m"
#define RANKS_MAX	5U
/* No call takes so long. */
#define ENDS_MS		60000U

/* What is done: enum tow_collective_kind, and tow_reduce(). */
#define REDUCE		(TOW_BARRIER + 1U)
#define KINDS		(REDUCE + 1U)
/* enum tow_algorithm. */
#define WAYS		(TOW_ALGORITHM_TREE + 1U)

/* ---- ranks ------------------------------------------------------------------- */

#define DIGESTS		128U

/* What all processes see. */
struct board {
	_Atomic uint32_t there;
	_Atomic uint64_t abort_ns;
	_Atomic uint64_t sent, staged, copied;
	_Atomic uint64_t digests[RANKS_MAX][DIGESTS];
};

static struct board *board;

FIXTURE(calls)
{
	struct tow_ranks ranks;
	uint32_t sets;			/* of processes that have met */
};

FIXTURE_SETUP(calls)
{
	ASSERT_EQ(0, tow_ranks_begin(&self->ranks, POOL_BYTES));
	board = tow_ranks_share(sizeof(*board));
	ASSERT_TRUE(board);
}

FIXTURE_TEARDOWN(calls)
{
	tow_ranks_end(&self->ranks);
	munmap(board, sizeof(*board));
}

static inline struct tow_part next_part(FIXTURE_DATA(calls) *self, uint32_t ranks,
					int (*then)(struct tow_mate *me, uint32_t arg),
					uint32_t arg)
{
	memset(board, 0, sizeof(*board));
	return (struct tow_part){ .ranks = ranks, .restart = self->sets++, .timeout_ms = ENDS_MS,
				  .then = then, .arg = arg };
}

static inline void all_play(struct __test_metadata *_metadata, FIXTURE_DATA(calls) *self,
			    uint32_t ranks, int (*then)(struct tow_mate *me, uint32_t arg),
			    uint32_t arg)
{
	tow_all_meet(_metadata, &self->ranks, next_part(self, ranks, then, arg));
}

/* What a rank's process ends with. */
static inline int wrong(const struct tow_mate *me, int line)
{
	fprintf(stderr, "# rank %u of %u: line %d\n", me->rank, me->ranks, line);
	return 20;
}

#define WRONG(me)	wrong(me, __LINE__)

/* Nobody goes on before all have come, without the library: false: somebody does not. */
static inline bool all_here(const struct tow_mate *me)
{
	static uint32_t times;

	atomic_fetch_add(&board->there, 1);
	return tow_becomes(&board->there, ++times * me->ranks);
}

/* ---- what is given and what is to come out ----------------------------------- */

enum where { ARENA, OUTSIDE, IMPORTED, PLACES };

/* A call: what is 0 is AllReduce, sum, float32, any algorithm, in the arena, in place. */
struct how {
	uint32_t kind, reduction, algorithm, dtype, root, where;
	uint32_t timeout_ms;
	uint64_t count, piece_bytes;
	bool apart;			/* not in place */
	bool named;			/* arrays that may be NULL are not */
	uint32_t salt;			/* calls of another one have other elements */
};

/* A prime: what is moved to another place, in pieces of any size, is wrong there. */
#define PERIOD		251U
/* Reduced, and not one rank's. */
#define ALL_RANKS	UINT32_MAX

/* Those that have elements. */
static const uint32_t kinds[] = { TOW_ALLREDUCE, TOW_REDUCE_SCATTER, TOW_ALLGATHER, TOW_BROADCAST,
				  REDUCE };

static inline bool reduces(uint32_t kind)
{
	return kind == TOW_ALLREDUCE || kind == TOW_REDUCE_SCATTER || kind == REDUCE;
}

static inline bool goes_by(uint32_t kind, uint32_t algorithm)
{
	switch (algorithm) {
	case TOW_ALGORITHM_RING:
		return kind != REDUCE;
	case TOW_ALGORITHM_DIRECT:
		return kind != REDUCE && kind != TOW_BROADCAST;
	case TOW_ALGORITHM_TREE:
		return kind != TOW_REDUCE_SCATTER && kind != TOW_ALLGATHER;
	default:
		return true;
	}
}

static inline struct tow_dtype dtype_of(const struct how *how)
{
	return tow_dtypes[how->dtype];
}

static inline uint64_t element_of(const struct how *how)
{
	return dtype_of(how).bits / 8;
}

/* Of one rank's part, or of all where nothing has parts. */
static inline uint64_t bytes_of(const struct how *how)
{
	return how->count * element_of(how);
}

/*
 * Elements are in sections, as many as ranks where each has a part, else one.  Floats are such that
 * all that comes out is exact; integers may wrap around.
 */
static inline int64_t given(const struct how *how, uint32_t ranks, uint32_t rank, uint32_t section,
			    uint32_t at)
{
	uint32_t mixed = (at + 1) * 0x9e3779b1U ^ (rank + 1) * 0x85ebca6bU ^
			 (section + 1) * 0xc2b2ae35U ^ (how->salt + 1) * 0x27d4eb2fU;
	int64_t small;

	mixed = (mixed ^ mixed >> 15) * 0x2c1b3c6dU;
	small = (int64_t)((mixed ^ mixed >> 12) % 9) - 4;
	if (!tow_is_float(dtype_of(how)))
		return small * 37;
	if (how->reduction == TOW_PRODUCT)
		return small < 0 ? -1 : 1 + small % 2;
	return how->reduction == TOW_AVG ? small * ranks : small;
}

static inline int64_t wanted(const struct how *how, uint32_t ranks, uint32_t section, uint32_t at)
{
	struct tow_dtype dtype = dtype_of(how);
	int64_t value = tow_of_type(dtype, given(how, ranks, 0, section, at));

	for (uint32_t rank = 1; rank < ranks; rank++)
		value = tow_reduced(how->reduction, value,
				    tow_of_type(dtype, given(how, ranks, rank, section, at)));
	value = tow_of_type(dtype, value);
	return how->reduction == TOW_AVG ? value / (int64_t)ranks : value;
}

/* The first ones of a section, which come again and again: how many bytes. */
static inline uint64_t draw(void *pattern, const struct how *how, uint32_t ranks, uint32_t rank,
			    uint32_t section)
{
	uint32_t count = how->count < PERIOD ? (uint32_t)how->count : PERIOD;

	for (uint32_t at = 0; at < count; at++)
		tow_put(pattern, at, dtype_of(how),
			rank == ALL_RANKS ? (double)wanted(how, ranks, section, at) :
					    (double)given(how, ranks, rank, section, at));
	return count * element_of(how);
}

static inline void fill(const struct tow_mate *me, const struct how *how, char *to, uint32_t rank,
			uint32_t section)
{
	uint64_t pattern[PERIOD], all = bytes_of(how), step;
	uint64_t bytes = draw(pattern, how, me->ranks, rank, section);

	memcpy(to, pattern, bytes);
	for (uint64_t done = bytes; done < all; done += step) {
		step = done < all - done ? done : all - done;
		memcpy(to + done, to, step);
	}
}

static inline bool holds(const struct tow_mate *me, const struct how *how, const char *from,
			 uint32_t rank, uint32_t section)
{
	uint64_t pattern[PERIOD], all = bytes_of(how);
	uint64_t bytes = draw(pattern, how, me->ranks, rank, section);

	return !memcmp(from, pattern, bytes) && !memcmp(from + bytes, from, all - bytes);
}

/* ---- arrays ------------------------------------------------------------------ */

#define GUARD		64U
/* What is around arrays, and in them before anything else is. */
#define BLANK		0xa5

struct array {
	char *block, *at;
	uint64_t block_bytes, bytes;
};

struct job {
	struct how how;
	struct array in, out;		/* one only: in place, and of a broadcast */
	struct tow_work *work;
	int begun;			/* 0, or what the call returned */
};

static inline void *allocate(const struct tow_mate *me, uint32_t where, uint64_t bytes)
{
	if (where == IMPORTED)
		return tow_import(me->dev, bytes);
	return where == OUTSIDE ? malloc(bytes) : tow_arena_alloc(me->arena, bytes);
}

static inline bool take(const struct tow_mate *me, const struct how *how, uint32_t sections,
			struct array *array)
{
	array->bytes = bytes_of(how) * sections;
	array->block_bytes = array->bytes + 3ULL * GUARD;
	array->block = allocate(me, how->where, array->block_bytes);
	if (!array->block)
		return false;
	memset(array->block, BLANK, array->block_bytes);
	/* Each second one is aligned to its elements only. */
	array->at = array->block + GUARD + (how->salt % 2 ? element_of(how) : 0);
	return true;
}

static inline void release(const struct tow_mate *me, const struct how *how, struct array *array)
{
	if (!array->block)
		return;
	if (how->where == IMPORTED)
		tow_end_import(me->dev, array->block);
	else if (how->where == OUTSIDE)
		free(array->block);
	else
		tow_arena_free(me->arena, array->block);
	array->block = NULL;
}

static inline bool all_are(const char *from, const char *end, int value)
{
	/* Each is what the one before it is. */
	return from == end ||
	       (*from == (char)value && !memcmp(from, from + 1, (size_t)(end - from) - 1));
}

static inline bool guarded(const struct array *array)
{
	return !array->block ||
	       (all_are(array->block, array->at, BLANK) &&
		all_are(array->at + array->bytes, array->block + array->block_bytes, BLANK));
}

/* Where this rank's elements are, and where it gets others. */
static inline char *own(const struct tow_mate *me, const struct job *job)
{
	if (job->in.block)
		return job->in.at;
	return job->out.at + (job->how.kind == TOW_ALLGATHER ? me->rank * bytes_of(&job->how) : 0);
}

static inline char *result(const struct tow_mate *me, const struct job *job)
{
	bool within = job->how.kind == TOW_REDUCE_SCATTER && !job->in.block;

	return job->out.at + (within ? me->rank * bytes_of(&job->how) : 0);
}

/* All that this rank gives; or does it hold that still? */
static inline void give(const struct tow_mate *me, const struct job *job)
{
	const struct how *how = &job->how;
	char *to = own(me, job);

	if (how->kind == TOW_ALLGATHER)
		fill(me, how, to, me->rank, me->rank);
	else if (how->kind != TOW_REDUCE_SCATTER)
		fill(me, how, to, me->rank, 0);
	else
		for (uint32_t rank = 0; rank < me->ranks; rank++)
			fill(me, how, to + rank * bytes_of(how), me->rank, rank);
}

static inline bool gives_still(const struct tow_mate *me, const struct job *job)
{
	const struct how *how = &job->how;
	const char *from = own(me, job);
	bool same = true;

	if (how->kind == TOW_ALLGATHER)
		return holds(me, how, from, me->rank, me->rank);
	if (how->kind != TOW_REDUCE_SCATTER)
		return holds(me, how, from, me->rank, 0);
	for (uint32_t rank = 0; rank < me->ranks; rank++)
		same &= holds(me, how, from + rank * bytes_of(how), me->rank, rank);
	return same;
}

/* ---- one call ---------------------------------------------------------------- */

static inline bool make(const struct tow_mate *me, const struct how *how, struct job *job)
{
	uint32_t in = how->kind == TOW_REDUCE_SCATTER ? me->ranks : 1;
	uint32_t out = how->kind == TOW_ALLGATHER ? me->ranks : 1;

	*job = (struct job){ .how = *how };
	if (how->kind == TOW_BARRIER)
		return true;
	if (how->apart && !take(me, how, in, &job->in))
		return false;
	if (!take(me, how, how->apart || out > in ? out : in, &job->out))
		return false;
	if (how->kind != TOW_BROADCAST || me->rank == how->root)
		give(me, job);
	return true;
}

static inline void unmake(const struct tow_mate *me, struct job *job)
{
	release(me, &job->how, &job->in);
	release(me, &job->how, &job->out);
}

static inline struct tow_call_attr attr_of(const struct how *how)
{
	return (struct tow_call_attr){ .size = sizeof(struct tow_call_attr),
				       .algorithm = how->algorithm,
				       .piece_bytes = how->piece_bytes,
				       .timeout_ms = how->timeout_ms };
}

/* All that may be left out is, unless it is to be named. */
static inline int call(const struct tow_mate *me, const struct job *job, struct tow_work **work)
{
	const struct how *how = &job->how;
	const struct tow_call_attr attr = attr_of(how);
	bool plain = !attr.algorithm && !attr.piece_bytes && !attr.timeout_ms;
	const struct tow_call_attr *as = plain ? NULL : &attr;
	const void *in = job->in.block || how->named ? own(me, job) : NULL;
	void *out = job->out.at;

	switch (how->kind) {
	case TOW_ALLREDUCE:
		return tow_allreduce(me->comm, in, out, how->count, dtype_of(how), how->reduction,
				     as, work);
	case TOW_REDUCE_SCATTER:
		return tow_reduce_scatter(me->comm, own(me, job), result(me, job), how->count,
					  dtype_of(how), how->reduction, as, work);
	case TOW_ALLGATHER:
		return tow_allgather(me->comm, in, out, how->count, dtype_of(how), as, work);
	case TOW_BROADCAST:
		return tow_broadcast(me->comm, out, how->count, dtype_of(how), how->root, as,
				     work);
	case TOW_BARRIER:
		return tow_barrier(me->comm, as, work);
	default:
		if (me->rank != how->root && in && !how->named)
			out = NULL;
		return tow_reduce(me->comm, in, out, how->count, dtype_of(how), how->reduction,
				  how->root, as, work);
	}
}

static inline bool gathered(const struct tow_mate *me, const struct job *job)
{
	bool right = true;

	for (uint32_t rank = 0; rank < me->ranks; rank++)
		right &= holds(me, &job->how, job->out.at + rank * bytes_of(&job->how), rank,
			       rank);
	return right;
}

/* Who gets nothing has what it had. */
static inline bool untouched(const struct tow_mate *me, const struct job *job)
{
	if (job->in.block)
		return all_are(job->out.at, job->out.at + job->out.bytes, BLANK);
	return gives_still(me, job);
}

static inline bool came_out(const struct tow_mate *me, const struct job *job)
{
	const struct how *how = &job->how;

	switch (how->kind) {
	case TOW_BARRIER:
		return true;
	case TOW_ALLREDUCE:
		return holds(me, how, job->out.at, ALL_RANKS, 0);
	case TOW_REDUCE_SCATTER:
		return holds(me, how, result(me, job), ALL_RANKS, me->rank);
	case TOW_ALLGATHER:
		return gathered(me, job);
	case TOW_BROADCAST:
		return holds(me, how, job->out.at, how->root, 0);
	default:
		return me->rank == how->root ? holds(me, how, job->out.at, ALL_RANKS, 0) :
					       untouched(me, job);
	}
}

static inline void say(const struct tow_mate *me, const struct job *job, const char *what, int ret)
{
	const struct how *how = &job->how;

	fprintf(stderr, "# rank %u of %u, kind %u, op %u, by %u, type %u, root %u, place %u%s, "
		"%" PRIu64 " elements, pieces of %" PRIu64 ", salt %u: %s: %d\n", me->rank,
		me->ranks, how->kind, how->reduction, how->algorithm, how->dtype, how->root,
		how->where, how->apart ? ", apart" : "", how->count, how->piece_bytes, how->salt,
		what, ret);
}

/* What there is to say of one that has ended well: that it is not. */
static inline bool is_right(const struct tow_mate *me, const struct job *job)
{
	const char *what = NULL;

	if (!came_out(me, job))
		what = "not what is wanted";
	else if (job->in.block && !gives_still(me, job))
		what = "what was given is another";
	else if (!guarded(&job->in) || !guarded(&job->out))
		what = "written beside it";
	if (what)
		say(me, job, what, 0);
	return !what;
}

static inline bool begin(const struct tow_mate *me, struct job *job)
{
	job->begun = call(me, job, &job->work);
	if (job->begun)
		say(me, job, "not begun", job->begun);
	return !job->begun;
}

/* It ends well, and so it stays. */
static inline bool ends(const struct tow_mate *me, const struct job *job)
{
	uint32_t blamed = 0;
	int ret = tow_work_wait(job->work, TOW_WAIT_FOREVER, &blamed);

	if (ret == 1 && blamed == TOW_NO_RANK && tow_work_test(job->work, NULL) == 1)
		return is_right(me, job);
	say(me, job, "not ended", ret);
	fprintf(stderr, "# blamed: %d\n", (int)blamed);
	return false;
}

static inline bool finish(const struct tow_mate *me, struct job *job)
{
	bool well = ends(me, job);

	tow_work_free(job->work);
	unmake(me, job);
	return well;
}

static inline bool one(const struct tow_mate *me, const struct how *how)
{
	struct job job;

	return make(me, how, &job) && begin(me, &job) && finish(me, &job);
}

/* The same without a work. */
static inline bool one_at_once(const struct tow_mate *me, const struct how *how)
{
	struct job job;
	bool well;
	int ret;

	if (!make(me, how, &job))
		return false;
	ret = call(me, &job, NULL);
	if (ret)
		say(me, &job, "not done", ret);
	well = !ret && is_right(me, &job);
	unmake(me, &job);
	return well;
}

/* ---- several ------------------------------------------------------------------- */

/* All are there before the first one begins. */
static inline bool make_all(const struct tow_mate *me, struct job *jobs, uint32_t count,
			    struct how (*how)(const struct tow_mate *me, uint32_t number))
{
	for (uint32_t i = 0; i < count; i++) {
		struct how this = how(me, i);

		if (!make(me, &this, &jobs[i]))
			return false;
	}
	return true;
}

static inline bool begin_all(const struct tow_mate *me, struct job *jobs, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (!begin(me, &jobs[i]))
			return false;
	return true;
}

/* A thread that waits. */
struct waiter {
	pthread_t thread;
	const struct tow_mate *me;
	struct job *jobs;
	uint32_t number;
	bool well;
};

#endif /* TOW_JOBS_H */

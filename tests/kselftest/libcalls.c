// SPDX-License-Identifier: GPL-2.0
/*
 * Calls (tow_allreduce() and its like) against the real module: the ranks are processes of one
 * node.  What comes out is compared with what one process computes; then many are on their way at
 * once, threads wait, ranks make different calls, die, are late, leave or abort; and what is
 * refused.
 */
/* build: link -ltowline */
#include <inttypes.h>

#include "tow_elements.h"
#include "tow_mates.h"

#define POOL_BYTES	"256m"
#define RANKS_MAX	5U
/* No call takes so long. */
#define ENDS_MS		60000U
/* What goes wrong is told in this time, and below any time-out but LATE_MS. */
#define TOLD_MS		15000U
#define AT_ONCE_MS	5000U
#define LATE_MS		(tow_test_slow() ? 6000U : 2000U)

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

static struct tow_part next_part(FIXTURE_DATA(calls) *self, uint32_t ranks,
				 int (*then)(struct tow_mate *me, uint32_t arg), uint32_t arg)
{
	memset(board, 0, sizeof(*board));
	return (struct tow_part){ .ranks = ranks, .restart = self->sets++, .timeout_ms = ENDS_MS,
				  .then = then, .arg = arg };
}

static void all_play(struct __test_metadata *_metadata, FIXTURE_DATA(calls) *self, uint32_t ranks,
		     int (*then)(struct tow_mate *me, uint32_t arg), uint32_t arg)
{
	tow_all_meet(_metadata, &self->ranks, next_part(self, ranks, then, arg));
}

/* What a rank's process ends with. */
static int wrong(const struct tow_mate *me, int line)
{
	fprintf(stderr, "# rank %u of %u: line %d\n", me->rank, me->ranks, line);
	return 20;
}

#define WRONG(me)	wrong(me, __LINE__)

/* Nobody goes on before all have come, without the library: false: somebody does not. */
static bool all_here(const struct tow_mate *me)
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

static bool reduces(uint32_t kind)
{
	return kind == TOW_ALLREDUCE || kind == TOW_REDUCE_SCATTER || kind == REDUCE;
}

static struct tow_dtype dtype_of(const struct how *how)
{
	return tow_dtypes[how->dtype];
}

static uint64_t element_of(const struct how *how)
{
	return dtype_of(how).bits / 8;
}

/* Of one rank's part, or of all where nothing has parts. */
static uint64_t bytes_of(const struct how *how)
{
	return how->count * element_of(how);
}

/*
 * Elements are in sections, as many as ranks where each has a part, else one.  Floats are such that
 * all that comes out is exact; integers may wrap around.
 */
static int64_t given(const struct how *how, uint32_t ranks, uint32_t rank, uint32_t section,
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

static int64_t wanted(const struct how *how, uint32_t ranks, uint32_t section, uint32_t at)
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
static uint64_t draw(void *pattern, const struct how *how, uint32_t ranks, uint32_t rank,
		     uint32_t section)
{
	uint32_t count = how->count < PERIOD ? (uint32_t)how->count : PERIOD;

	for (uint32_t at = 0; at < count; at++)
		tow_put(pattern, at, dtype_of(how),
			rank == ALL_RANKS ? (double)wanted(how, ranks, section, at) :
					    (double)given(how, ranks, rank, section, at));
	return count * element_of(how);
}

static void fill(const struct tow_mate *me, const struct how *how, char *to, uint32_t rank,
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

static bool holds(const struct tow_mate *me, const struct how *how, const char *from,
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

static void *allocate(const struct tow_mate *me, uint32_t where, uint64_t bytes)
{
	if (where == IMPORTED)
		return tow_import(me->dev, bytes);
	return where == OUTSIDE ? malloc(bytes) : tow_arena_alloc(me->arena, bytes);
}

static bool take(const struct tow_mate *me, const struct how *how, uint32_t sections,
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

static void release(const struct tow_mate *me, const struct how *how, struct array *array)
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

static bool all_are(const char *from, const char *end, int value)
{
	/* Each is what the one before it is. */
	return from == end ||
	       (*from == (char)value && !memcmp(from, from + 1, (size_t)(end - from) - 1));
}

static bool guarded(const struct array *array)
{
	return !array->block ||
	       (all_are(array->block, array->at, BLANK) &&
		all_are(array->at + array->bytes, array->block + array->block_bytes, BLANK));
}

/* Where this rank's elements are, and where it gets others. */
static char *own(const struct tow_mate *me, const struct job *job)
{
	if (job->in.block)
		return job->in.at;
	return job->out.at + (job->how.kind == TOW_ALLGATHER ? me->rank * bytes_of(&job->how) : 0);
}

static char *result(const struct tow_mate *me, const struct job *job)
{
	bool within = job->how.kind == TOW_REDUCE_SCATTER && !job->in.block;

	return job->out.at + (within ? me->rank * bytes_of(&job->how) : 0);
}

/* All that this rank gives; or does it hold that still? */
static void give(const struct tow_mate *me, const struct job *job)
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

static bool gives_still(const struct tow_mate *me, const struct job *job)
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

static bool make(const struct tow_mate *me, const struct how *how, struct job *job)
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

static void unmake(const struct tow_mate *me, struct job *job)
{
	release(me, &job->how, &job->in);
	release(me, &job->how, &job->out);
}

static struct tow_call_attr attr_of(const struct how *how)
{
	return (struct tow_call_attr){ .size = sizeof(struct tow_call_attr),
				       .algorithm = how->algorithm,
				       .piece_bytes = how->piece_bytes,
				       .timeout_ms = how->timeout_ms };
}

/* All that may be left out is, unless it is to be named. */
static int call(const struct tow_mate *me, const struct job *job, struct tow_work **work)
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

static bool gathered(const struct tow_mate *me, const struct job *job)
{
	bool right = true;

	for (uint32_t rank = 0; rank < me->ranks; rank++)
		right &= holds(me, &job->how, job->out.at + rank * bytes_of(&job->how), rank,
			       rank);
	return right;
}

/* Who gets nothing has what it had. */
static bool untouched(const struct tow_mate *me, const struct job *job)
{
	if (job->in.block)
		return all_are(job->out.at, job->out.at + job->out.bytes, BLANK);
	return gives_still(me, job);
}

static bool came_out(const struct tow_mate *me, const struct job *job)
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

static void say(const struct tow_mate *me, const struct job *job, const char *what, int ret)
{
	const struct how *how = &job->how;

	fprintf(stderr, "# rank %u of %u, kind %u, op %u, by %u, type %u, root %u, place %u%s, "
		"%" PRIu64 " elements, pieces of %" PRIu64 ", salt %u: %s: %d\n", me->rank,
		me->ranks, how->kind, how->reduction, how->algorithm, how->dtype, how->root,
		how->where, how->apart ? ", apart" : "", how->count, how->piece_bytes, how->salt,
		what, ret);
}

/* What there is to say of one that has ended well: that it is not. */
static bool is_right(const struct tow_mate *me, const struct job *job)
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

static bool begin(const struct tow_mate *me, struct job *job)
{
	job->begun = call(me, job, &job->work);
	if (job->begun)
		say(me, job, "not begun", job->begun);
	return !job->begun;
}

/* It ends well, and so it stays. */
static bool ends(const struct tow_mate *me, const struct job *job)
{
	uint32_t blamed = 0;
	int ret = tow_work_wait(job->work, TOW_WAIT_FOREVER, &blamed);

	if (ret == 1 && blamed == TOW_NO_RANK && tow_work_test(job->work, NULL) == 1)
		return is_right(me, job);
	say(me, job, "not ended", ret);
	fprintf(stderr, "# blamed: %d\n", (int)blamed);
	return false;
}

static bool finish(const struct tow_mate *me, struct job *job)
{
	bool well = ends(me, job);

	tow_work_free(job->work);
	unmake(me, job);
	return well;
}

static bool one(const struct tow_mate *me, const struct how *how)
{
	struct job job;

	return make(me, how, &job) && begin(me, &job) && finish(me, &job);
}

/* The same without a work. */
static bool one_at_once(const struct tow_mate *me, const struct how *how)
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

/* ---- all that may be asked for ----------------------------------------------- */

enum { KIND, DTYPE, REDUCTION, ALGORITHM, COUNT, PLACE, PIECE, APART, FACTORS };

#define LEVELS		9U
#define NO_REDUCTION	8U
#define DRAWS		30000U

static const uint32_t kinds[] = { TOW_ALLREDUCE, TOW_REDUCE_SCATTER, TOW_ALLGATHER, TOW_BROADCAST,
				  REDUCE };
static const uint64_t counts[] = { 0, 1, 2, 7, 1003, 65537, UINT64_MAX /* large_bytes() */ };
static const uint64_t pieces[] = { 0, 64, 4096 };
static const uint32_t choices[FACTORS] = {
	ARRAY_SIZE(kinds), ARRAY_SIZE(tow_dtypes), NO_REDUCTION + 1, WAYS,
	ARRAY_SIZE(counts), PLACES, ARRAY_SIZE(pieces), 2,
};

/*
 * Of a kind with what else may be chosen: types, reductions, algorithms, counts, places, pieces,
 * in place and not; see may_be().
 */
#define KIND_PAIRS	((9 + 8 + 4 + 7 + 3 + 3 + 2) /* AllReduce */ + \
			 (9 + 8 + 3 + 7 + 3 + 3 + 2) /* reduce-scatter */ + \
			 (9 + 1 + 3 + 7 + 3 + 3 + 2) /* all-gather */ + \
			 (9 + 1 + 3 + 7 + 3 + 3 + 1) /* broadcast */ + \
			 (9 + 8 + 2 + 7 + 3 + 3 + 2) /* reduce */)

static bool seen[FACTORS][LEVELS][FACTORS][LEVELS];

static uint64_t large_bytes(void)
{
	return tow_test_slow() ? 300000 : 3U << 20;
}

static bool goes_by(uint32_t kind, uint32_t algorithm)
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

static bool may_be(const uint32_t choice[FACTORS])
{
	uint32_t kind = kinds[choice[KIND]];

	if (reduces(kind) != (choice[REDUCTION] != NO_REDUCTION) ||
	    !goes_by(kind, choice[ALGORITHM]) || (kind == TOW_BROADCAST && choice[APART]))
		return false;
	if (reduces(kind) && tow_never_reduced(tow_dtypes[choice[DTYPE]], choice[REDUCTION]))
		return false;
	/* Thousands of pieces say no more than a hundred. */
	return pieces[choice[PIECE]] != 64 || counts[choice[COUNT]] <= 1003;
}

/* How many pairs of choices, or those with kinds only, are new by it. */
static uint32_t new_pairs(const uint32_t choice[FACTORS], bool only_kinds)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < (only_kinds ? KIND + 1 : FACTORS); i++)
		for (uint32_t j = i + 1; j < FACTORS; j++)
			count += !seen[i][choice[i]][j][choice[j]];
	return count;
}

static void see(const uint32_t choice[FACTORS])
{
	for (uint32_t i = 0; i < FACTORS; i++)
		for (uint32_t j = i + 1; j < FACTORS; j++)
			seen[i][choice[i]][j][choice[j]] = true;
}

static uint32_t kind_pairs(void)
{
	const bool *all = &seen[KIND][0][0][0];
	uint32_t count = 0;

	for (uint32_t i = 0; i < LEVELS * FACTORS * LEVELS; i++)
		count += all[i];
	return count;
}

static uint64_t count_of(const struct tow_mate *me, uint32_t kind, uint32_t dtype, uint64_t count)
{
	uint64_t parts = kind == TOW_REDUCE_SCATTER || kind == TOW_ALLGATHER ? me->ranks : 1;

	if (count != UINT64_MAX)
		return count;
	return large_bytes() / (tow_dtypes[dtype].bits / 8) / parts + 1;
}

static struct how how_of(const struct tow_mate *me, const uint32_t choice[FACTORS], uint32_t number)
{
	uint32_t kind = kinds[choice[KIND]];

	return (struct how){
		.kind = kind,
		.dtype = choice[DTYPE],
		.reduction = choice[REDUCTION] % NO_REDUCTION,
		.algorithm = choice[ALGORITHM],
		.count = count_of(me, kind, choice[DTYPE], counts[choice[COUNT]]),
		.where = choice[PLACE],
		.piece_bytes = pieces[choice[PIECE]],
		.apart = choice[APART],
		.root = number % me->ranks,
		.named = number >> 1 & 1,
		.salt = number,
	};
}

struct draws {
	uint64_t state;
	uint32_t left;
	bool only_kinds;
};

/* The same ones at all ranks; first those that try much that is new, and in the end all that do. */
static bool next_choice(struct draws *draws, uint32_t choice[FACTORS])
{
	uint64_t most = draws->only_kinds ? FACTORS - 1 : FACTORS * (FACTORS - 1) / 2;

	while (draws->left--) {
		for (uint32_t i = 0; i < FACTORS; i++) {
			draws->state = draws->state * 6364136223846793005ULL +
				       1442695040888963407ULL;
			choice[i] = (uint32_t)(draws->state >> 33) % choices[i];
		}
		if (may_be(choice) &&
		    new_pairs(choice, draws->only_kinds) >
		    most * draws->left / DRAWS * draws->left / DRAWS)
			return true;
	}
	return false;
}

/* @arg: all pairs of what may be chosen; or those of a kind and something else. */
static int all_pairs(struct tow_mate *me, uint32_t arg)
{
	struct draws draws = { .state = me->ranks, .left = DRAWS,
			       .only_kinds = !arg || tow_test_slow() };
	uint32_t choice[FACTORS], number = 0;
	struct how how;
	bool well;

	while (next_choice(&draws, choice)) {
		see(choice);
		how = how_of(me, choice, number);
		well = number++ % 4 ? one(me, &how) : one_at_once(me, &how);
		if (!well)
			return WRONG(me);
	}
	return kind_pairs() == KIND_PAIRS ? 0 : WRONG(me);
}

TEST_F_TIMEOUT(calls, pairs_of_one, 120)
{
	all_play(_metadata, self, 1, all_pairs, false);
}

TEST_F_TIMEOUT(calls, pairs_of_two, 120)
{
	all_play(_metadata, self, 2, all_pairs, false);
}

TEST_F_TIMEOUT(calls, pairs_of_three, 180)
{
	all_play(_metadata, self, 3, all_pairs, true);
}

TEST_F_TIMEOUT(calls, pairs_of_five, 180)
{
	all_play(_metadata, self, 5, all_pairs, false);
}

/* ---- floats: what is no number, and averages of large ones ------------------- */

/* Not a multiple of the ranks' number. */
#define FEW		1003U

/* By tow_dtypes[]. */
static const uint64_t exponents[TOW_FLOATS] = { 0x7f800000, 0x7ff0000000000000, 0x7c00, 0x7f80 };
static const uint64_t fractions[TOW_FLOATS] = { 0x7fffff, 0xfffffffffffff, 0x3ff, 0x7f };

static bool is_nan(uint32_t dtype, uint64_t bits)
{
	return (bits & exponents[dtype]) == exponents[dtype] && bits & fractions[dtype];
}

/* Any bits; of each rank some, and of some all, are not a number, quiet or not. */
static uint64_t bits_of(uint32_t dtype, uint32_t rank, uint32_t at)
{
	uint64_t bits = (rank + 1) * 0x9e3779b97f4a7c15ULL + at * 0xbf58476d1ce4e5b9ULL;

	bits = (bits ^ bits >> 31) * 0x94d049bb133111ebULL;
	bits = (bits ^ bits >> 29) * 0xbf58476d1ce4e5b9ULL;
	bits ^= bits >> 32;
	if (at % 16 == rank || at % 16 == 15)
		bits |= exponents[dtype] | 1;
	return bits;
}

static void put_bits(char *array, uint32_t dtype, uint32_t rank, uint32_t count)
{
	size_t element = tow_dtypes[dtype].bits / 8;

	for (uint32_t at = 0; at < count; at++) {
		uint64_t bits = bits_of(dtype, rank, at);

		memcpy(array + at * element, &bits, element);
	}
}

/* What is one of them where any rank has one; and else not, where it is one rank's. */
static bool nans_are_right(const struct tow_mate *me, const struct how *how, const char *array,
			   uint32_t first)
{
	bool one_ranks = how->reduction == TOW_MIN || how->reduction == TOW_MAX;
	size_t element = element_of(how);

	for (uint32_t at = 0; at < FEW; at++) {
		uint64_t bits = 0;
		bool any = false, is;

		for (uint32_t rank = 0; rank < me->ranks; rank++)
			any |= is_nan(how->dtype, bits_of(how->dtype, rank, first + at));
		memcpy(&bits, array + at * element, element);
		is = is_nan(how->dtype, bits);
		if (any ? !is : one_ranks && is)
			return false;
	}
	return true;
}

/* What all get is alike: its digest is the @which-th; and that which one gets is right, too. */
static bool nan_call(const struct tow_mate *me, const struct how *how, uint32_t which)
{
	bool scatters = how->kind == TOW_REDUCE_SCATTER, well;
	struct job job;

	if (!make(me, how, &job))
		return false;
	put_bits(job.in.at, how->dtype, me->rank, scatters ? FEW * me->ranks : FEW);
	well = !call(me, &job, NULL) &&
	       ((how->kind == REDUCE && me->rank != how->root) ||
		nans_are_right(me, how, job.out.at, scatters ? FEW * me->rank : 0));
	if (how->kind == TOW_ALLREDUCE)
		atomic_store(&board->digests[me->rank][which],
			     tow_digest(job.out.at, job.out.bytes));
	if (!well)
		say(me, &job, "not a number, or one", 0);
	unmake(me, &job);
	return well;
}

static bool digests_alike(const struct tow_mate *me)
{
	for (uint32_t i = 0; i < DIGESTS; i++) {
		if (atomic_load(&board->digests[me->rank][i]) == atomic_load(&board->digests[0][i]))
			continue;
		fprintf(stderr, "# rank %u: digest %u is another than rank 0's\n", me->rank, i);
		return false;
	}
	return true;
}

/* In each way that reduces; @number: of those types and reductions. */
static bool nan_calls(const struct tow_mate *me, struct how how, uint32_t number)
{
	bool well = true;

	for (uint32_t i = 0; i < KINDS * WAYS; i++) {
		how.kind = i / WAYS;
		how.algorithm = i % WAYS;
		if (reduces(how.kind) && goes_by(how.kind, how.algorithm))
			well &= nan_call(me, &how, number * WAYS + how.algorithm);
	}
	return well;
}

static int not_numbers(struct tow_mate *me, uint32_t arg)
{
	struct how how = { .count = FEW, .apart = true, .named = true };
	uint32_t number = 0;
	bool well = true;

	(void)arg;
	for (how.dtype = 0; how.dtype < TOW_FLOATS; how.dtype++) {
		for (how.reduction = TOW_SUM; how.reduction <= TOW_PRODUCT; how.reduction++) {
			how.root = number % me->ranks;
			well &= nan_calls(me, how, number++);
		}
	}
	return well && all_here(me) && digests_alike(me) ? 0 : WRONG(me);
}

TEST_F_TIMEOUT(calls, not_a_number, 60)
{
	all_play(_metadata, self, 4, not_numbers, 0);
}

/* Their sums are no float16. */
static double large(uint32_t rank, uint32_t at)
{
	return (40000.0 + 32 * rank + at % 7 * 32) * (at % 2 ? -1 : 1);
}

static bool averages_are_near(const struct tow_mate *me, const struct how *how, const char *array,
			      uint32_t first)
{
	for (uint32_t at = 0; at < FEW; at++) {
		double want = 0, is = tow_get(array, at, dtype_of(how));

		for (uint32_t rank = 0; rank < me->ranks; rank++)
			want += large(rank, first + at) / me->ranks;
		/* Infinity is 65,536 here; each rank may round to the next one. */
		if (fabs(is - want) <= 32.0 * me->ranks)
			continue;
		fprintf(stderr, "# rank %u: [%u] is %g, and the average %g\n", me->rank, at, is,
			want);
		return false;
	}
	return true;
}

static bool average_call(const struct tow_mate *me, const struct how *how)
{
	uint32_t parts = how->kind == TOW_REDUCE_SCATTER ? me->ranks : 1, at;
	struct job job;
	bool well;

	if (!make(me, how, &job))
		return false;
	for (at = 0; at < FEW * parts; at++)
		tow_put(job.in.at, at, dtype_of(how), large(me->rank, at));
	well = !call(me, &job, NULL) &&
	       ((how->kind == REDUCE && me->rank != how->root) ||
		averages_are_near(me, how, job.out.at, parts > 1 ? FEW * me->rank : 0));
	if (!well)
		say(me, &job, "not near", 0);
	unmake(me, &job);
	return well;
}

static int averages(struct tow_mate *me, uint32_t arg)
{
	struct how how = { .count = FEW, .apart = true, .named = true, .dtype = 2,
			   .reduction = TOW_AVG, .root = 1 };
	bool well = true;

	(void)arg;
	for (uint32_t i = 0; i < KINDS * WAYS; i++) {
		how.kind = i / WAYS;
		how.algorithm = i % WAYS;
		if (reduces(how.kind) && goes_by(how.kind, how.algorithm))
			well &= average_call(me, &how);
	}
	return well ? 0 : WRONG(me);
}

TEST_F(calls, averages_of_large_halves)
{
	all_play(_metadata, self, 4, averages, 0);
}

/* ---- many at once ------------------------------------------------------------ */

#define MANY		580U
#define MIXED		40U

static struct how many_sizes(const struct tow_mate *me, uint32_t number)
{
	(void)me;
	return (struct how){ .count = 1 + 7 * number % 1999, .salt = number };
}

/* Each seventh has 1 MiB. */
static struct how all_kinds(const struct tow_mate *me, uint32_t number)
{
	uint32_t dtype = number % ARRAY_SIZE(tow_dtypes), kind = number % KINDS;
	uint64_t bytes = number % 7 == 6 ? 1U << 20 : 1 + number * 3989;
	bool parts = kind == TOW_REDUCE_SCATTER || kind == TOW_ALLGATHER;

	return (struct how){
		.kind = kind,
		.dtype = dtype,
		.reduction = reduces(kind) && number / KINDS % 2 ? TOW_MAX : TOW_SUM,
		.count = bytes / (tow_dtypes[dtype].bits / 8) / (parts ? me->ranks : 1),
		.where = number / 2 % PLACES,
		.apart = kind != TOW_BROADCAST && number % 5 < 2,
		.named = number % 3,
		.root = number % me->ranks,
		.salt = number,
	};
}

/* All are there before the first one begins. */
static bool make_all(const struct tow_mate *me, struct job *jobs, uint32_t count,
		     struct how (*how)(const struct tow_mate *me, uint32_t number))
{
	for (uint32_t i = 0; i < count; i++) {
		struct how this = how(me, i);

		if (!make(me, &this, &jobs[i]))
			return false;
	}
	return true;
}

static bool begin_all(const struct tow_mate *me, struct job *jobs, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (!begin(me, &jobs[i]))
			return false;
	return true;
}

/* They begin at different times, and wait in different orders. */
static int at_once(struct tow_mate *me, uint32_t count,
		   struct how (*how)(const struct tow_mate *me, uint32_t number))
{
	/* None of them divides a number of calls. */
	static const uint32_t steps[] = { 3, 7, 11, 13, 17 };
	static struct job jobs[MANY];
	bool well = true;

	if (!make_all(me, jobs, count, how))
		return WRONG(me);
	usleep(me->rank * 5000);
	if (!begin_all(me, jobs, count))
		return WRONG(me);
	for (uint32_t i = 0; i < count; i++)
		well &= finish(me, &jobs[(i * steps[me->rank] + me->rank) % count]);
	return well ? 0 : WRONG(me);
}

static int many_at_once(struct tow_mate *me, uint32_t arg)
{
	(void)arg;
	return at_once(me, MANY, many_sizes) ?: at_once(me, MIXED, all_kinds);
}

TEST_F_TIMEOUT(calls, many_at_once, 120)
{
	all_play(_metadata, self, 3, many_at_once, 0);
}

TEST_F_TIMEOUT(calls, many_at_once_of_four, 120)
{
	all_play(_metadata, self, 4, many_at_once, 0);
}

/* ---- works ------------------------------------------------------------------- */

static bool waits(const struct job *job, uint32_t timeout_us)
{
	uint32_t blamed = 0;

	return tow_work_wait(job->work, timeout_us, &blamed) == 0 && blamed == TOW_NO_RANK;
}

/* Rank 1 begins when others have seen that it has not. */
static int while_one_is_late(struct tow_mate *me, const struct how *how)
{
	struct job job;
	bool well = true;

	if (!make(me, how, &job) || (me->rank == 1 && !all_here(me)) || !begin(me, &job))
		return WRONG(me);
	if (me->rank != 1) {
		well = tow_work_test(job.work, NULL) == 0 && waits(&job, 0) && waits(&job, 20000) &&
		       tow_work_test(job.work, NULL) == 0;
		well &= all_here(me);
	}
	well &= ends(me, &job) && tow_work_wait(job.work, 0, NULL) == 1;
	return finish(me, &job) && well ? 0 : WRONG(me);
}

static uint64_t calls_ended(const struct tow_mate *me)
{
	struct tow_comm_stats stats = { .size = sizeof(stats) };

	return tow_comm_stats(me->comm, &stats) ? UINT64_MAX : stats.calls;
}

/* All ranks know whether all are. */
static bool all_are_so(const struct tow_mate *me, bool so, bool *all)
{
	int32_t value = so;

	if (tow_allreduce(me->comm, NULL, &value, 1, (struct tow_dtype){ TOW_DTYPE_INT, 32, 1 },
			  TOW_MIN, NULL, NULL))
		return false;
	*all = value;
	return true;
}

/* What was freed goes on, and ends. */
static int freed_early(struct tow_mate *me)
{
	const struct how how = { .count = 100003, .salt = 1 }, other = { .count = 1003, .salt = 2 };
	uint64_t ended = calls_ended(me) + 2;
	bool well, all = false;
	struct job job;

	if (!make(me, &how, &job) || !begin(me, &job))
		return WRONG(me);
	tow_work_free(job.work);
	well = one_at_once(me, &other);
	/* Those that ask whether all have ended count, too. */
	for (uint32_t i = 0; well && !all && i < 10000; i++)
		well = all_are_so(me, calls_ended(me) == ended + i, &all);
	well &= all && is_right(me, &job);
	unmake(me, &job);
	return well ? 0 : WRONG(me);
}

/* Nobody is through before the last one has come. */
static int barriers(struct tow_mate *me)
{
	uint32_t begun = atomic_load(&board->there);

	if (tow_barrier(me->comm, NULL, NULL))
		return WRONG(me);
	for (uint32_t i = 1; i <= 20; i++) {
		if (me->rank == i % me->ranks)
			usleep(2000);
		atomic_fetch_add(&board->there, 1);
		if (tow_barrier(me->comm, NULL, NULL) ||
		    atomic_load(&board->there) < begun + i * me->ranks)
			return WRONG(me);
	}
	return 0;
}

static int works(struct tow_mate *me, uint32_t arg)
{
	struct how how = { .count = 1003 };
	int ret = 0;

	(void)arg;
	tow_work_free(NULL);
	for (how.algorithm = 0; !ret && how.algorithm < WAYS; how.algorithm++)
		ret = while_one_is_late(me, &how);
	ret = ret ?: while_one_is_late(me, &(struct how){ .kind = TOW_BARRIER });
	ret = ret ?: while_one_is_late(me, &(struct how){ .kind = TOW_ALLGATHER, .count = 70001 });
	ret = ret ?: freed_early(me);
	/* It counts what all_here() does, and comes last. */
	if (!ret && !all_here(me))
		ret = WRONG(me);
	return ret ?: barriers(me);
}

TEST_F_TIMEOUT(calls, works, 60)
{
	all_play(_metadata, self, 3, works, 0);
}

/* ---- threads ----------------------------------------------------------------- */

#define THREADS		4U
#define ROUNDS		4U

struct waiter {
	pthread_t thread;
	const struct tow_mate *me;
	struct job *jobs;
	uint32_t number;
	bool well;
};

/* The last one first; one thread looks, the others sleep. */
static void *wait_for_some(void *arg)
{
	struct waiter *waiter = arg;
	uint32_t i = MIXED - THREADS + waiter->number;

	waiter->well = true;
	for (;; i -= THREADS) {
		struct job *job = &waiter->jobs[i];

		while (!waiter->number && !tow_work_test(job->work, NULL))
			usleep(200);
		waiter->well &= ends(waiter->me, job);
		if (i < THREADS)
			return NULL;
	}
}

static int wait_by_threads(struct tow_mate *me, struct job *jobs)
{
	struct waiter waiters[THREADS];
	bool well = true;

	for (uint32_t i = 0; i < THREADS; i++) {
		waiters[i] = (struct waiter){ .me = me, .jobs = jobs, .number = i };
		if (pthread_create(&waiters[i].thread, NULL, wait_for_some, &waiters[i]))
			return WRONG(me);
	}
	for (uint32_t i = 0; i < THREADS; i++) {
		pthread_join(waiters[i].thread, NULL);
		well &= waiters[i].well;
	}
	return well ? 0 : WRONG(me);
}

static int threads(struct tow_mate *me, uint32_t arg)
{
	static struct job jobs[MIXED];
	int ret = 0;

	for (uint32_t round = 0; !ret && round < arg; round++) {
		if (!make_all(me, jobs, MIXED, all_kinds) || !begin_all(me, jobs, MIXED))
			return WRONG(me);
		ret = wait_by_threads(me, jobs);
		for (uint32_t i = 0; i < MIXED; i++) {
			tow_work_free(jobs[i].work);
			unmake(me, &jobs[i]);
		}
	}
	return ret;
}

TEST_F_TIMEOUT(calls, threads_wait, 120)
{
	all_play(_metadata, self, 3, threads, tow_test_slow() ? 1 : ROUNDS);
}

/* ---- what was sent and copied ------------------------------------------------ */

#define MEBIBYTE	(1ULL << 20)

/* All that ranks send together, of what has 1 MiB in all. */
static uint64_t least_sent(uint32_t kind, uint64_t ranks)
{
	uint64_t once = (ranks - 1) * MEBIBYTE;

	return kind == TOW_ALLREDUCE ? 2 * once : once;
}

/* Of what is in no region: what was given, and what comes and is not reduced. */
static bool copies_are_right(uint32_t kind, uint32_t where)
{
	uint64_t staged = atomic_load(&board->staged), copied = atomic_load(&board->copied);

	if (where != OUTSIDE)
		return !staged && !copied;
	return staged && (copied || kind == TOW_REDUCE_SCATTER || kind == REDUCE);
}

static bool count_one(const struct tow_mate *me, const struct how *how)
{
	struct tow_comm_stats before = { .size = sizeof(before) }, after = before;
	bool well = !tow_comm_stats(me->comm, &before) && one(me, how) &&
		    !tow_comm_stats(me->comm, &after) && after.calls == before.calls + 1;

	atomic_fetch_add(&board->sent, after.sent_bytes - before.sent_bytes);
	atomic_fetch_add(&board->staged, after.staged_bytes - before.staged_bytes);
	atomic_fetch_add(&board->copied, after.copied_bytes - before.copied_bytes);
	return all_here(me) && well;
}

static bool counts_are_right(const struct tow_mate *me, const struct how *how)
{
	bool well = atomic_load(&board->sent) == least_sent(how->kind, me->ranks) &&
		    copies_are_right(how->kind, how->where);

	if (!well && !me->rank)
		fprintf(stderr, "# kind %u, by %u, place %u: sent %" PRIu64 ", staged %" PRIu64
			", copied %" PRIu64 "\n", how->kind, how->algorithm, how->where,
			atomic_load(&board->sent), atomic_load(&board->staged),
			atomic_load(&board->copied));
	/* All have looked. */
	if (!all_here(me))
		return false;
	if (!me->rank) {
		atomic_store(&board->sent, 0);
		atomic_store(&board->staged, 0);
		atomic_store(&board->copied, 0);
	}
	return all_here(me) && well;
}

static int stats(struct tow_mate *me, uint32_t arg)
{
	struct how how = { .apart = true, .root = 1 };
	bool well = true;

	(void)arg;
	for (uint32_t i = 0; i < ARRAY_SIZE(kinds) * PLACES; i++) {
		how.kind = kinds[i % ARRAY_SIZE(kinds)];
		how.where = i / ARRAY_SIZE(kinds);
		how.algorithm = how.kind == REDUCE ? TOW_ALGORITHM_TREE : TOW_ALGORITHM_RING;
		how.apart = how.kind != TOW_BROADCAST;
		how.count = MEBIBYTE / element_of(&how);
		if (how.kind == TOW_REDUCE_SCATTER || how.kind == TOW_ALLGATHER)
			how.count /= me->ranks;
		well &= count_one(me, &how) && counts_are_right(me, &how);
	}
	return well ? 0 : WRONG(me);
}

TEST_F_TIMEOUT(calls, sends_and_copies_no_more_than_it_must, 60)
{
	all_play(_metadata, self, 4, stats, 0);
}

/* ---- ranks that make different calls ----------------------------------------- */

#define SMALL_COUNT	64U
#define LARGE_COUNT	200003U

/* What most do, and what one does instead. */
static const struct mismatch {
	struct how most, odd;
} mismatches[] = {
	{ { .count = SMALL_COUNT }, { .count = SMALL_COUNT - 1 } },
	{ { .count = LARGE_COUNT }, { .count = LARGE_COUNT / 2 } },
	{ { .count = LARGE_COUNT }, { .count = 1 } },
	{ { .count = 1 }, { .count = LARGE_COUNT } },
	{ { .count = 0 }, { .count = SMALL_COUNT } },
	{ { .count = SMALL_COUNT }, { .count = SMALL_COUNT, .dtype = 4 } },
	{ { .count = LARGE_COUNT }, { .count = LARGE_COUNT, .dtype = 2 } },
	{ { .count = SMALL_COUNT }, { .count = SMALL_COUNT, .reduction = TOW_MAX } },
	{ { .count = LARGE_COUNT }, { .count = LARGE_COUNT, .reduction = TOW_AVG } },
	{ { .count = SMALL_COUNT }, { .count = SMALL_COUNT, .kind = TOW_ALLGATHER } },
	{ { .count = LARGE_COUNT }, { .kind = TOW_BARRIER } },
	{ { .kind = TOW_BARRIER }, { .count = LARGE_COUNT } },
	{ { .kind = TOW_REDUCE_SCATTER, .count = LARGE_COUNT / 4, .apart = true },
	  { .kind = TOW_ALLGATHER, .count = LARGE_COUNT / 4, .apart = true } },
	{ { .count = LARGE_COUNT }, { .count = LARGE_COUNT, .kind = REDUCE } },
	{ { .kind = REDUCE, .count = SMALL_COUNT },
	  { .kind = REDUCE, .count = SMALL_COUNT, .root = 2 } },
	{ { .kind = REDUCE, .count = LARGE_COUNT },
	  { .kind = REDUCE, .count = LARGE_COUNT, .root = 2 } },
	{ { .kind = TOW_BROADCAST, .count = SMALL_COUNT },
	  { .kind = TOW_BROADCAST, .count = SMALL_COUNT, .root = 1 } },
	{ { .kind = TOW_BROADCAST, .count = LARGE_COUNT },
	  { .kind = TOW_BROADCAST, .count = LARGE_COUNT, .root = 1 } },
	{ { .kind = TOW_BROADCAST, .count = LARGE_COUNT, .where = OUTSIDE },
	  { .kind = TOW_BROADCAST, .count = LARGE_COUNT / 2, .where = OUTSIDE } },
	{ { .count = LARGE_COUNT, .where = OUTSIDE }, { .count = 7, .where = OUTSIDE } },
	{ { .count = LARGE_COUNT, .piece_bytes = 4096 }, { .count = LARGE_COUNT } },
	{ { .count = LARGE_COUNT, .algorithm = TOW_ALGORITHM_RING },
	  { .count = LARGE_COUNT, .algorithm = TOW_ALGORITHM_DIRECT } },
};

/* A rank may have done its part, and know no better. */
static bool may_end(const struct how *how)
{
	return how->kind == TOW_BROADCAST || how->kind == REDUCE ||
	       (how->kind != TOW_BARRIER && !how->count);
}

/* What is the caller's again is written by nobody else. */
static void mark(const struct array *array, int value)
{
	if (array->block)
		memset(array->at, value, array->bytes);
}

static bool is_marked(const struct array *array, int value)
{
	return !array->block || all_are(array->at, array->at + array->bytes, value);
}

/* Of those that differ from rank 0, which all do if it is the odd one, it is any. */
static bool is_to_blame(uint32_t blamed, uint32_t who)
{
	return who ? blamed == who : blamed && blamed != TOW_NO_RANK;
}

/* All are told within seconds who differs, while calls before and behind it go well. */
static bool is_told(const struct tow_mate *me, const struct job *job, uint32_t who)
{
	double begin_at = tow_clock_begin();
	uint32_t blamed = TOW_NO_RANK;
	int ret = tow_work_wait(job->work, TOW_WAIT_FOREVER, &blamed);

	if (tow_clock_end(begin_at, TOLD_MS) == TOW_MISSED)
		say(me, job, "not told at once", ret);
	else if ((ret == -EPROTO && is_to_blame(blamed, who)) || (ret == 1 && may_end(&job->how)))
		return tow_work_test(job->work, NULL) == ret;
	say(me, job, "not told", ret);
	fprintf(stderr, "# blamed %d, not %u\n", (int)blamed, who);
	return false;
}

static int differ(struct tow_mate *me, const struct mismatch *mismatch, uint32_t who)
{
	const struct how before = { .count = 5003, .salt = 1 };
	const struct how behind = { .count = 30011, .salt = 2 };
	const struct how *between = me->rank == who ? &mismatch->odd : &mismatch->most;
	struct job jobs[3];
	bool well;

	if (!make(me, &before, &jobs[0]) || !make(me, between, &jobs[1]) ||
	    !make(me, &behind, &jobs[2]) || !begin_all(me, jobs, 3))
		return WRONG(me);
	well = is_told(me, &jobs[1], who) && guarded(&jobs[1].in) && guarded(&jobs[1].out);
	tow_work_free(jobs[1].work);
	mark(&jobs[1].in, 0x77);
	mark(&jobs[1].out, 0x77);
	well &= finish(me, &jobs[2]);
	well &= finish(me, &jobs[0]);
	/* As many calls later as it takes. */
	well &= one(me, &behind) && all_here(me) && is_marked(&jobs[1].in, 0x77) &&
		is_marked(&jobs[1].out, 0x77);
	if (!well)
		say(me, &jobs[1], "what differs", 0);
	unmake(me, &jobs[1]);
	return well ? 0 : WRONG(me);
}

static int all_mismatches(struct tow_mate *me, uint32_t arg)
{
	uint32_t passes = tow_test_slow() ? 1 : me->ranks;
	int ret = 0;

	(void)arg;
	for (uint32_t i = 0; !ret && i < ARRAY_SIZE(mismatches) * passes; i++)
		ret = differ(me, &mismatches[i / passes], (i + i / passes) % me->ranks);
	return ret;
}

TEST_F_TIMEOUT(calls, of_different_minds, 120)
{
	all_play(_metadata, self, 3, all_mismatches, 0);
}

/* ---- ranks that do not go on ------------------------------------------------- */

#define WAITED		5U
#define WITHIN_COUNT	(tow_test_slow() ? 1U << 20 : 4U << 20)

/* None of them ends without all ranks. */
static struct how all_ways(const struct tow_mate *me, uint32_t number)
{
	static const struct how hows[WAITED] = {
		{ .count = 1003, .algorithm = TOW_ALGORITHM_RING },
		{ .count = 1003, .algorithm = TOW_ALGORITHM_DIRECT },
		{ .count = 70001, .algorithm = TOW_ALGORITHM_TREE, .where = OUTSIDE },
		{ .kind = TOW_BARRIER },
		{ .count = 20011, .kind = TOW_ALLGATHER, .apart = true },
	};

	(void)me;
	return hows[number];
}

static bool begin_or_fail(const struct tow_mate *me, struct job *job, int error)
{
	job->begun = call(me, job, &job->work);
	if (job->begun && job->begun != error)
		say(me, job, "not begun", job->begun);
	return !job->begun || job->begun == error;
}

/* It does so, at once or in the end, and blames that rank. */
static bool fails(const struct tow_mate *me, const struct job *job, int error, uint32_t rank)
{
	uint32_t blamed = TOW_NO_RANK;
	int ret;

	if (job->begun)
		return job->begun == error;
	ret = tow_work_wait(job->work, TOW_WAIT_FOREVER, &blamed);
	if (ret == error && blamed == rank && tow_work_test(job->work, NULL) == error)
		return true;
	say(me, job, "not failed so", ret);
	fprintf(stderr, "# blamed: %d\n", (int)blamed);
	return false;
}

/* So do all that the communicator is asked for later. */
static bool has_failed(const struct tow_mate *me, int error)
{
	struct tow_work *work = NULL;
	float data[4] = { 0 };
	int ret = tow_allreduce(me->comm, NULL, data, 4, tow_dtypes[0], TOW_SUM, NULL, &work);

	return ret == error && !work && tow_barrier(me->comm, NULL, NULL) == error;
}

/* All that waits is told; nothing is left of it. */
static bool all_fail(const struct tow_mate *me, struct job *jobs, uint32_t count, int error,
		     uint32_t rank)
{
	bool well = true;

	for (uint32_t i = 0; i < count; i++)
		well &= begin_or_fail(me, &jobs[i], error);
	for (uint32_t i = count; well && i--;)
		well &= fails(me, &jobs[i], error, rank);
	for (uint32_t i = 0; i < count; i++)
		if (!jobs[i].begun)
			tow_work_free(jobs[i].work);
	return well && has_failed(me, error);
}

static void unmake_all(const struct tow_mate *me, struct job *jobs, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		unmake(me, &jobs[i]);
}

static int dies_before(struct tow_mate *me, uint32_t arg)
{
	struct job jobs[WAITED];
	bool well;

	(void)arg;
	if (!make_all(me, jobs, WAITED, all_ways) || !all_here(me))
		return WRONG(me);
	if (me->rank == 1)
		raise(SIGKILL);
	well = all_fail(me, jobs, WAITED, -ESTALE, 1) && !tow_comm_destroy(me->comm);
	me->comm = NULL;
	unmake_all(me, jobs, WAITED);
	return well ? 0 : WRONG(me);
}

static uint64_t sent_bytes(const struct tow_mate *me)
{
	struct tow_comm_stats stats = { .size = sizeof(stats) };

	return tow_comm_stats(me->comm, &stats) ? 0 : stats.sent_bytes;
}

/* It has sent some, and not all. */
static int die_within(const struct tow_mate *me, struct job *job)
{
	uint64_t before = sent_bytes(me);

	if (!begin(me, job))
		return WRONG(me);
	while (sent_bytes(me) - before < job->out.bytes / 16)
		if (tow_work_test(job->work, NULL))
			return WRONG(me);
	raise(SIGKILL);
	return WRONG(me);
}

static int dies_within(struct tow_mate *me, uint32_t arg)
{
	const struct how how = { .count = WITHIN_COUNT, .algorithm = arg };
	struct job job;
	bool well;

	/* One goes well before. */
	if (!one(me, &(struct how){ .count = 1003 }) || !make(me, &how, &job) || !all_here(me))
		return WRONG(me);
	if (me->rank == 1)
		return die_within(me, &job);
	well = all_fail(me, &job, 1, -ESTALE, 1) && !tow_comm_destroy(me->comm);
	me->comm = NULL;
	unmake(me, &job);
	return well ? 0 : WRONG(me);
}

static void one_dies(struct __test_metadata *_metadata, FIXTURE_DATA(calls) *self,
		     int (*then)(struct tow_mate *me, uint32_t arg), uint32_t arg)
{
	uint32_t first = tow_all_start(&self->ranks, next_part(self, 3, then, arg));
	double begin_at;

	EXPECT_EQ(SIGKILL, tow_ranks_end_of(&self->ranks, first + 1));
	begin_at = tow_clock_begin();
	EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, first));
	EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, first + 2));
	TOW_WITHIN(begin_at, TOLD_MS) {
		TH_LOG("by %u", arg);
	}
}

TEST_F_TIMEOUT(calls, a_rank_dies_before, 60)
{
	one_dies(_metadata, self, dies_before, 0);
}

TEST_F_TIMEOUT(calls, a_rank_dies_within, 120)
{
	for (uint32_t by = TOW_ALGORITHM_RING; by <= TOW_ALGORITHM_TREE; by++)
		one_dies(_metadata, self, dies_within, by);
}

/* ---- ranks that live, and do not go on either -------------------------------- */

/* Another communicator, as the last one has failed. */
static bool renew(struct tow_mate *me, uint32_t timeout_ms)
{
	struct tow_comm_attr attr = { .size = sizeof(attr), .timeout_ms = timeout_ms };
	int ret = tow_comm_destroy(me->comm);

	me->comm = NULL;
	/* Who was told that something is wrong has been told so by all. */
	if (!ret && all_here(me))
		ret = tow_comm_create(me->group, me->arena, &attr, &me->comm, NULL);
	if (ret)
		fprintf(stderr, "# rank %u: anew: %d\n", me->rank, ret);
	return !ret && one(me, &(struct how){ .count = 1003 });
}

/* Rank 2 comes when the others have given up: in the communicator's time, or in that of calls. */
static int is_late(struct tow_mate *me, uint32_t timeout_ms, uint32_t call_ms)
{
	struct job jobs[WAITED];
	bool well;

	if (!renew(me, timeout_ms) || !make_all(me, jobs, WAITED, all_ways))
		return WRONG(me);
	for (uint32_t i = 0; i < WAITED; i++)
		jobs[i].how.timeout_ms = call_ms;
	if (me->rank == 2 && !all_here(me))
		return WRONG(me);
	well = all_fail(me, jobs, WAITED, -ETIMEDOUT, 2);
	if (me->rank != 2)
		well &= all_here(me);
	/* Nobody has left before it has heard. */
	well &= all_here(me) && !tow_comm_destroy(me->comm);
	me->comm = NULL;
	unmake_all(me, jobs, WAITED);
	return well ? 0 : WRONG(me);
}

/* Rank 1 ends its communicator, while others call. */
static int leaves(struct tow_mate *me)
{
	struct job jobs[WAITED];
	bool well = true;

	if (!renew(me, ENDS_MS) || !make_all(me, jobs, WAITED, all_ways))
		return WRONG(me);
	if (me->rank != 1)
		well = all_fail(me, jobs, WAITED, -ESTALE, 1);
	well &= !tow_comm_destroy(me->comm);
	me->comm = NULL;
	unmake_all(me, jobs, WAITED);
	return well ? 0 : WRONG(me);
}

static uint64_t now_ns(void)
{
	return (uint64_t)(tow_test_now() * 1e9);
}

static void note_abort(void)
{
	atomic_store(&board->abort_ns, now_ns());
}

static bool told_at_once(void)
{
	double begin_at = (double)atomic_load(&board->abort_ns) / 1e9;

	return tow_clock_end(begin_at, AT_ONCE_MS) != TOW_MISSED;
}

/* When the communicator has ended nobody writes to arrays of what was on its way. */
static bool ends_with_arrays(struct tow_mate *me, struct job *jobs, uint32_t count)
{
	bool well = !tow_comm_destroy(me->comm);

	me->comm = NULL;
	for (uint32_t i = 0; i < count; i++)
		mark(&jobs[i].out, 0x33);
	well &= all_here(me);
	usleep(20000);
	for (uint32_t i = 0; i < count; i++)
		well &= is_marked(&jobs[i].out, 0x33) && guarded(&jobs[i].out);
	unmake_all(me, jobs, count);
	return well;
}

#define ABORTED		3U

static struct how large_ways(const struct tow_mate *me, uint32_t number)
{
	(void)me;
	return (struct how){ .count = WITHIN_COUNT / 4, .algorithm = TOW_ALGORITHM_RING + number,
			     .salt = number };
}

/* Rank 1 does that, while large ones are on their way.  The last call it has not made. */
static int aborts(struct tow_mate *me)
{
	bool aborter = me->rank == 1, well;
	struct job jobs[ABORTED];
	uint32_t blamed;
	int ret;

	if (!renew(me, ENDS_MS) || !make_all(me, jobs, ABORTED, large_ways) ||
	    !begin_all(me, jobs, aborter ? ABORTED - 1 : ABORTED) || !all_here(me))
		return WRONG(me);
	if (aborter) {
		usleep(10000);
		note_abort();
		well = !tow_comm_abort(me->comm) && told_at_once() &&
		       call(me, &jobs[ABORTED - 1], &jobs[ABORTED - 1].work) == -ECANCELED;
	} else {
		well = fails(me, &jobs[ABORTED - 1], -ECANCELED, 1) && told_at_once();
		tow_work_free(jobs[ABORTED - 1].work);
	}
	for (uint32_t i = 0; i < ABORTED - 1; i++) {
		ret = tow_work_wait(jobs[i].work, TOW_WAIT_FOREVER, &blamed);
		well &= ret == 1 || (ret == -ECANCELED && blamed == 1);
		tow_work_free(jobs[i].work);
	}
	well &= has_failed(me, -ECANCELED) && all_here(me);
	return ends_with_arrays(me, jobs, ABORTED) && well ? 0 : WRONG(me);
}

static void *wait_to_fail(void *arg)
{
	struct waiter *waiter = arg;

	waiter->well = fails(waiter->me, &waiter->jobs[0], -ECANCELED, 0) && told_at_once();
	return NULL;
}

static bool abort_from_here(struct tow_mate *me, struct job *job)
{
	struct waiter waiter = { .me = me, .jobs = job };

	if (pthread_create(&waiter.thread, NULL, wait_to_fail, &waiter))
		return false;
	usleep(50000);
	note_abort();
	if (tow_comm_abort(me->comm))
		return false;
	pthread_join(waiter.thread, NULL);
	return waiter.well;
}

/* A thread of rank 0's waits for rank 2, which comes when all is over. */
static int aborts_while_it_waits(struct tow_mate *me)
{
	const struct how how = { .count = 1003 };
	struct job job;
	bool well;

	if (!renew(me, ENDS_MS) || !make(me, &how, &job))
		return WRONG(me);
	if (me->rank == 2 && !all_here(me))
		return WRONG(me);
	if (!begin_or_fail(me, &job, -ECANCELED))
		return WRONG(me);
	well = me->rank ? fails(me, &job, -ECANCELED, 0) : abort_from_here(me, &job);
	if (me->rank != 2)
		well &= all_here(me);
	if (!job.begun)
		tow_work_free(job.work);
	well &= has_failed(me, -ECANCELED) && all_here(me);
	return ends_with_arrays(me, &job, 1) && well ? 0 : WRONG(me);
}

static int all_live(struct tow_mate *me, uint32_t arg)
{
	int ret = is_late(me, LATE_MS, 0);

	(void)arg;
	ret = ret ?: is_late(me, ENDS_MS, LATE_MS);
	ret = ret ?: leaves(me);
	ret = ret ?: aborts(me);
	ret = ret ?: aborts_while_it_waits(me);
	return ret || renew(me, ENDS_MS) ? ret : WRONG(me);
}

TEST_F_TIMEOUT(calls, ranks_are_late_leave_and_abort, 120)
{
	all_play(_metadata, self, 3, all_live, 0);
}

/* ---- what is refused --------------------------------------------------------- */

static int says(const struct tow_mate *me, const char *what, int wanted_ret, int ret,
		struct tow_work *work)
{
	if (ret == wanted_ret && !work)
		return 0;
	fprintf(stderr, "# rank %u: %s: %d, not %d%s\n", me->rank, what, ret, wanted_ret,
		work ? ", and a work" : "");
	return 1;
}

/* In functions with @me, @work, which is NULL, and @wrongs. */
#define REFUSES(error, ...)	(wrongs += says(me, #__VA_ARGS__, error, __VA_ARGS__, work))

static int refused_arguments(const struct tow_mate *me)
{
	const struct tow_dtype f32 = tow_dtypes[0], none = { 0 }, wide = { TOW_DTYPE_UINT, 32, 1 };
	const struct tow_dtype two = { TOW_DTYPE_FLOAT, 32, 2 }, nibble = { TOW_DTYPE_INT, 4, 1 };
	const uint64_t many = UINT64_MAX / 4;
	struct tow_comm *comm = me->comm;
	struct tow_work *work = NULL;
	uint32_t ranks = me->ranks;
	float in[16] = { 0 }, out[16] = { 0 };
	int wrongs = 0;

	REFUSES(-EINVAL, tow_allreduce(NULL, in, out, 4, f32, TOW_SUM, NULL, &work));
	REFUSES(-EINVAL, tow_allreduce(comm, in, NULL, 4, f32, TOW_SUM, NULL, &work));
	REFUSES(-EINVAL, tow_allreduce(comm, in, out, 4, none, TOW_SUM, NULL, &work));
	REFUSES(-EINVAL, tow_allreduce(comm, in, out, 4, f32, TOW_BXOR + 1, NULL, &work));
	REFUSES(-EOPNOTSUPP, tow_allreduce(comm, in, out, 4, f32, TOW_BXOR, NULL, &work));
	REFUSES(-EOPNOTSUPP, tow_allreduce(comm, in, out, 4, wide, TOW_SUM, NULL, &work));
	REFUSES(-EOPNOTSUPP, tow_allreduce(comm, in, out, 4, two, TOW_SUM, NULL, &work));
	REFUSES(-EOPNOTSUPP, tow_allreduce(comm, in, out, 4, tow_dtypes[8], TOW_AVG, NULL, &work));
	REFUSES(-EOVERFLOW, tow_allreduce(comm, in, out, many, f32, TOW_SUM, NULL, &work));
	REFUSES(-EOVERFLOW, tow_allreduce(comm, in, out, 1ULL << 60, f32, TOW_SUM, NULL, NULL));
	REFUSES(-EINVAL, tow_reduce_scatter(NULL, in, out, 2, f32, TOW_SUM, NULL, &work));
	REFUSES(-EINVAL, tow_reduce_scatter(comm, NULL, out, 2, f32, TOW_SUM, NULL, &work));
	REFUSES(-EINVAL, tow_reduce_scatter(comm, in, NULL, 2, f32, TOW_SUM, NULL, &work));
	REFUSES(-EOVERFLOW, tow_reduce_scatter(comm, in, out, many, f32, TOW_SUM, NULL, &work));
	REFUSES(-EINVAL, tow_allgather(NULL, in, out, 2, f32, NULL, &work));
	REFUSES(-EINVAL, tow_allgather(comm, in, NULL, 2, f32, NULL, &work));
	REFUSES(-EINVAL, tow_allgather(comm, in, out, 2, none, NULL, &work));
	REFUSES(-EOPNOTSUPP, tow_allgather(comm, in, out, 2, nibble, NULL, &work));
	REFUSES(-EOVERFLOW, tow_allgather(comm, in, out, many, f32, NULL, &work));
	REFUSES(-EINVAL, tow_broadcast(NULL, in, 4, f32, 0, NULL, &work));
	REFUSES(-EINVAL, tow_broadcast(comm, NULL, 4, f32, 0, NULL, &work));
	REFUSES(-EINVAL, tow_broadcast(comm, in, 4, f32, ranks, NULL, &work));
	REFUSES(-EOPNOTSUPP, tow_broadcast(comm, in, 4, nibble, 0, NULL, &work));
	REFUSES(-EOVERFLOW, tow_broadcast(comm, in, many, f32, 0, NULL, &work));
	REFUSES(-EINVAL, tow_reduce(NULL, in, out, 4, f32, TOW_SUM, 0, NULL, &work));
	REFUSES(-EINVAL, tow_reduce(comm, NULL, NULL, 4, f32, TOW_SUM, me->rank, NULL, &work));
	REFUSES(-EINVAL, tow_reduce(comm, NULL, NULL, 4, f32, TOW_SUM, !me->rank, NULL, &work));
	REFUSES(-EINVAL, tow_reduce(comm, in, NULL, 4, f32, TOW_SUM, me->rank, NULL, &work));
	REFUSES(-EINVAL, tow_reduce(comm, in, out, 4, f32, TOW_SUM, ranks, NULL, &work));
	REFUSES(-EOPNOTSUPP, tow_reduce(comm, in, out, 4, f32, TOW_BAND, 0, NULL, &work));
	REFUSES(-EOVERFLOW, tow_reduce(comm, in, out, many, f32, TOW_SUM, 0, NULL, &work));
	REFUSES(-EINVAL, tow_barrier(NULL, NULL, &work));
	return wrongs;
}

/* Not aligned, or one upon the other: what is written would be read, too. */
static int refused_places(const struct tow_mate *me)
{
	const struct tow_dtype f32 = tow_dtypes[0];
	struct tow_comm *comm = me->comm;
	struct tow_work *work = NULL;
	float data[16] = { 0 }, other[16] = { 0 };
	char *odd = (char *)data + 1;
	/* One element beside this rank's place. */
	float *beside = &data[2 * me->rank + 1];
	int wrongs = 0;

	REFUSES(-EINVAL, tow_allreduce(comm, NULL, odd, 4, f32, TOW_SUM, NULL, &work));
	REFUSES(-EINVAL, tow_allreduce(comm, odd, other, 4, f32, TOW_SUM, NULL, &work));
	REFUSES(-EINVAL, tow_allreduce(comm, data, data + 1, 4, f32, TOW_SUM, NULL, &work));
	REFUSES(-EINVAL, tow_allreduce(comm, data + 3, data, 4, f32, TOW_SUM, NULL, &work));
	REFUSES(-EINVAL, tow_reduce_scatter(comm, odd, other, 2, f32, TOW_SUM, NULL, &work));
	REFUSES(-EINVAL, tow_reduce_scatter(comm, other, odd, 2, f32, TOW_SUM, NULL, &work));
	REFUSES(-EINVAL, tow_reduce_scatter(comm, data, beside, 2, f32, TOW_SUM, NULL, &work));
	REFUSES(-EINVAL, tow_allgather(comm, beside, data, 2, f32, NULL, &work));
	REFUSES(-EINVAL, tow_reduce(comm, odd, other, 4, f32, TOW_SUM, me->rank, NULL, &work));
	REFUSES(-EINVAL, tow_reduce(comm, other, odd, 4, f32, TOW_SUM, me->rank, NULL, &work));
	REFUSES(-EINVAL, tow_reduce(comm, data, data + 1, 4, f32, TOW_SUM, me->rank, NULL, &work));
	return wrongs;
}

/* Of a later version: with something that this one does not know, which is there or not. */
struct later_attr {
	struct tow_call_attr known;
	uint64_t unknown;
};

static int refused_attrs(const struct tow_mate *me)
{
	struct tow_call_attr attr = { .size = sizeof(attr) };
	struct later_attr later = { .known = { .size = sizeof(later) }, .unknown = 1 };
	const struct tow_dtype f32 = tow_dtypes[0];
	struct tow_comm *comm = me->comm;
	struct tow_work *work = NULL;
	float in[16] = { 0 }, out[16] = { 0 };
	int wrongs = 0;

	REFUSES(-E2BIG, tow_allreduce(comm, in, out, 4, f32, TOW_SUM, &later.known, &work));
	REFUSES(-E2BIG, tow_barrier(comm, &later.known, &work));
	attr.size = 4;
	REFUSES(-EINVAL, tow_allreduce(comm, in, out, 4, f32, TOW_SUM, &attr, &work));
	REFUSES(-EINVAL, tow_barrier(comm, &attr, &work));
	attr = (struct tow_call_attr){ .size = sizeof(attr), .piece_bytes = 100 };
	REFUSES(-EINVAL, tow_allreduce(comm, in, out, 4, f32, TOW_SUM, &attr, &work));
	REFUSES(-EINVAL, tow_broadcast(comm, in, 4, f32, 0, &attr, &work));
	attr.piece_bytes = (256U << 10) + 64;
	REFUSES(-EINVAL, tow_allreduce(comm, in, out, 4, f32, TOW_SUM, &attr, &work));
	attr.piece_bytes = 64;
	REFUSES(-EINVAL, tow_barrier(comm, &attr, &work));
	attr = (struct tow_call_attr){ .size = sizeof(attr), .algorithm = TOW_ALGORITHM_TREE + 1 };
	REFUSES(-EINVAL, tow_allreduce(comm, in, out, 4, f32, TOW_SUM, &attr, &work));
	attr.algorithm = TOW_ALGORITHM_TREE;
	REFUSES(-EOPNOTSUPP, tow_reduce_scatter(comm, in, out, 2, f32, TOW_SUM, &attr, &work));
	REFUSES(-EOPNOTSUPP, tow_allgather(comm, in, out, 2, f32, &attr, &work));
	attr.algorithm = TOW_ALGORITHM_DIRECT;
	REFUSES(-EOPNOTSUPP, tow_broadcast(comm, in, 4, f32, 0, &attr, &work));
	REFUSES(-EOPNOTSUPP, tow_reduce(comm, in, out, 4, f32, TOW_SUM, 0, &attr, &work));
	attr.algorithm = TOW_ALGORITHM_RING;
	REFUSES(-EOPNOTSUPP, tow_reduce(comm, in, out, 4, f32, TOW_SUM, 0, &attr, &work));
	REFUSES(-EINVAL, tow_barrier(comm, &attr, &work));
	return wrongs;
}

static int refused_elsewhere(const struct tow_mate *me)
{
	struct tow_comm_stats stats = { .size = 4 };
	struct tow_work *work = NULL;
	int wrongs = 0;

	REFUSES(-EINVAL, tow_work_test(NULL, NULL));
	REFUSES(-EINVAL, tow_work_wait(NULL, 0, NULL));
	REFUSES(-EINVAL, tow_comm_abort(NULL));
	REFUSES(-EINVAL, tow_comm_stats(me->comm, NULL));
	REFUSES(-EINVAL, tow_comm_stats(me->comm, &stats));
	stats.size = sizeof(stats);
	REFUSES(-EINVAL, tow_comm_stats(NULL, &stats));
	return wrongs;
}

/* Of nothing: no arrays; and what is 0 of a later version. */
static bool accepted(const struct tow_mate *me)
{
	struct later_attr later = { .known = { .size = sizeof(later) } };
	const struct tow_call_attr *attr = &later.known;
	const struct tow_dtype f32 = tow_dtypes[0];
	struct tow_comm *comm = me->comm;

	return !tow_allreduce(comm, NULL, NULL, 0, f32, TOW_SUM, NULL, NULL) &&
	       !tow_reduce_scatter(comm, NULL, NULL, 0, f32, TOW_SUM, attr, NULL) &&
	       !tow_allgather(comm, NULL, NULL, 0, f32, attr, NULL) &&
	       !tow_broadcast(comm, NULL, 0, f32, 1, attr, NULL) &&
	       !tow_reduce(comm, NULL, NULL, 0, f32, TOW_MAX, 1, attr, NULL) &&
	       !tow_barrier(comm, attr, NULL);
}

/* What is there is the parent's, on which the child calls. */
static int refused_in_a_child(const struct tow_mate *me, struct tow_work *waited)
{
	struct tow_comm_stats stats = { .size = sizeof(stats) };
	const struct tow_dtype f32 = tow_dtypes[0];
	struct tow_comm *comm = me->comm;
	struct tow_work *work = NULL;
	float in[16] = { 0 }, out[16] = { 0 };
	int wrongs = 0;

	REFUSES(-EPERM, tow_allreduce(comm, in, out, 4, f32, TOW_SUM, NULL, &work));
	REFUSES(-EPERM, tow_reduce_scatter(comm, in, out, 2, f32, TOW_SUM, NULL, &work));
	REFUSES(-EPERM, tow_allgather(comm, in, out, 2, f32, NULL, &work));
	REFUSES(-EPERM, tow_broadcast(comm, in, 4, f32, 0, NULL, &work));
	REFUSES(-EPERM, tow_reduce(comm, in, out, 4, f32, TOW_SUM, 0, NULL, NULL));
	REFUSES(-EPERM, tow_barrier(comm, NULL, &work));
	REFUSES(-EPERM, tow_work_test(waited, NULL));
	REFUSES(-EPERM, tow_work_wait(waited, TOW_WAIT_FOREVER, NULL));
	REFUSES(-EPERM, tow_comm_stats(comm, &stats));
	REFUSES(-EPERM, tow_comm_abort(comm));
	tow_work_free(waited);
	REFUSES(-EPERM, tow_comm_destroy(comm));
	return wrongs;
}

/* Rank 1's child comes while it waits for rank 0, and does no harm. */
static bool in_a_child(const struct tow_mate *me)
{
	const struct how how = { .count = 1003 };
	struct job job;
	int status = 0;
	pid_t pid;

	if (!make(me, &how, &job) || (!me->rank && !all_here(me)) || !begin(me, &job))
		return false;
	if (me->rank) {
		pid = fork();
		if (!pid)
			_exit(refused_in_a_child(me, job.work));
		if (waitpid(pid, &status, 0) != pid || !all_here(me))
			return false;
	}
	return finish(me, &job) && !status;
}

static int refused(struct tow_mate *me, uint32_t arg)
{
	int wrongs = refused_arguments(me) + refused_places(me) + refused_attrs(me) +
		     refused_elsewhere(me);

	(void)arg;
	if (!accepted(me) || wrongs || !in_a_child(me))
		return WRONG(me);
	/* Nothing of it did any harm. */
	return one(me, &(struct how){ .count = 1003 }) ? 0 : WRONG(me);
}

TEST_F(calls, refused)
{
	all_play(_metadata, self, 2, refused, 0);
}

TEST_HARNESS_MAIN

// SPDX-License-Identifier: GPL-2.0
/*
 * Collectives against the real module: the ranks are processes of one node.  What comes out is
 * compared with what one process computes; then what is refused, and ranks that die, are late, or
 * leave.
 */
/* build: link -ltowline */
#include <math.h>

#include "tow_elements.h"
#include "tow_mates.h"

#define SOON_MS		5000U
#define RANKS_MAX	8
#define POOL_BYTES	"192m"
/* Who is told of a rank that died is told in this time, below any time-out. */
#define TOLD_MS		15000U

/* ---- ranks ------------------------------------------------------------------- */

/* What all processes see. */
struct board {
	_Atomic uint32_t there;
	_Atomic uint32_t go_on;
	_Atomic uint64_t digests[RANKS_MAX];
};

static struct board *board;

FIXTURE(collective)
{
	struct tow_ranks ranks;
};

FIXTURE_SETUP(collective)
{
	ASSERT_EQ(0, tow_ranks_begin(&self->ranks, POOL_BYTES));
	board = tow_ranks_share(sizeof(*board));
	ASSERT_TRUE(board);
}

FIXTURE_TEARDOWN(collective)
{
	tow_ranks_end(&self->ranks);
	munmap(board, sizeof(*board));
}

/* ---- elements ---------------------------------------------------------------- */

/* As many of them hold all sums of given(). */
#define ROOMY	6

/*
 * Small enough that all sums are exact in all types, and that averages are whole; not the same
 * for any two ranks, calls or neighbours.
 */
static double given(uint32_t rank, uint32_t ranks, uint64_t at, uint32_t call)
{
	return (double)((int)((at * 7 + rank * 5ULL + call * 3ULL) % 9) - 4) * ranks;
}

static double wanted(uint32_t ranks, uint64_t at, uint32_t call, uint32_t reduction)
{
	double value = given(0, ranks, at, call), other;

	for (uint32_t rank = 1; rank < ranks; rank++) {
		other = given(rank, ranks, at, call);
		if (reduction == TOW_MIN)
			value = other < value ? other : value;
		else if (reduction == TOW_MAX)
			value = other > value ? other : value;
		else
			value += other;
	}
	return reduction == TOW_AVG ? value / ranks : value;
}

/* ---- one collective, called a few times -------------------------------------- */

/* How it is asked for: what is 0 is AllReduce, sum, any algorithm, in the arena, in place. */
struct how {
	uint32_t kind, reduction, algorithm, dtype, root;
	uint64_t count, piece_bytes;
	uint32_t calls;
	bool apart;			/* not in place */
	bool outside;			/* of the arena */
	bool imported;			/* nor in it, but in a region */
	bool delays;
};

struct arrays {
	char *in, *out;			/* of the whole allocation */
	char *given;			/* what is given to the library: NULL: in place */
	char *result;
	uint64_t own, whole;		/* elements: of this rank, of all */
	size_t element;
};

static void *allocate(const struct tow_mate *me, const struct how *how, uint64_t bytes)
{
	if (how->imported)
		return tow_import(me->dev, bytes + 64);
	return how->outside ? calloc(1, bytes + 64) : tow_arena_zeroed(me->arena, 1, bytes + 64);
}

static void release(const struct tow_mate *me, const struct how *how, void *at)
{
	if (how->imported)
		tow_end_import(me->dev, at);
	else if (how->outside)
		free(at);
	else
		tow_arena_free(me->arena, at);
}

static void make_arrays(const struct tow_mate *me, const struct how *how, struct arrays *arrays)
{
	bool scatters = how->kind == TOW_REDUCE_SCATTER, gathers = how->kind == TOW_ALLGATHER;

	memset(arrays, 0, sizeof(*arrays));
	arrays->element = tow_dtypes[how->dtype].bits / 8;
	arrays->own = how->count;
	arrays->whole = scatters || gathers ? how->count * me->ranks : how->count;
	arrays->out = allocate(me, how, arrays->whole * arrays->element);
	arrays->in = how->apart ? allocate(me, how, arrays->whole * arrays->element) : NULL;
	arrays->given = arrays->in;
	arrays->result = arrays->out;
	if (how->apart)
		return;
	/* In place: reduce-scatter has its whole there, and its part within. */
	if (scatters) {
		arrays->given = arrays->out;
		arrays->result = arrays->out + me->rank * arrays->own * arrays->element;
	}
}

/* Where the rank's own elements are before the call, and which of the whole they are. */
static char *before(const struct tow_mate *me, const struct how *how, const struct arrays *arrays,
		    uint64_t *first, uint64_t *count)
{
	*first = 0;
	*count = arrays->whole;
	if (how->kind == TOW_ALLGATHER) {
		*first = me->rank * arrays->own;
		*count = arrays->own;
		return how->apart ? arrays->in : arrays->out + *first * arrays->element;
	}
	return how->apart ? arrays->in : arrays->out;
}

static void fill(const struct tow_mate *me, const struct how *how, const struct arrays *arrays,
		 uint32_t call)
{
	uint64_t first, count;
	char *at = before(me, how, arrays, &first, &count);

	if (!how->apart && how->kind == TOW_ALLGATHER)
		memset(arrays->out, 0x5a, arrays->whole * arrays->element);
	if (how->kind == TOW_BROADCAST && me->rank != how->root) {
		memset(arrays->out, 0x5a, arrays->whole * arrays->element);
		return;
	}
	for (uint64_t i = 0; i < count; i++)
		tow_put(at, i, tow_dtypes[how->dtype], given(me->rank, me->ranks, first + i, call));
}

static double want(const struct tow_mate *me, const struct how *how, const struct arrays *arrays,
		   uint64_t at, uint32_t call)
{
	if (how->kind == TOW_ALLGATHER)
		return given((uint32_t)(at / arrays->own), me->ranks, at, call);
	if (how->kind == TOW_BROADCAST)
		return given(how->root, me->ranks, at, call);
	if (how->kind == TOW_REDUCE_SCATTER)
		at += me->rank * arrays->own;
	return wanted(me->ranks, at, call, how->reduction);
}

static bool is_right(const struct tow_mate *me, const struct how *how, const struct arrays *arrays,
		     uint32_t call)
{
	uint64_t count = how->kind == TOW_REDUCE_SCATTER ? arrays->own : arrays->whole;

	for (uint64_t i = 0; i < count; i++) {
		double is = tow_get(arrays->result, i, tow_dtypes[how->dtype]);

		if (is == want(me, how, arrays, i, call))
			continue;
		fprintf(stderr, "# rank %u of %u, kind %u, op %u, by %u, type %u, %llu elements, "
			"call %u: [%llu] is %g, not %g\n", me->rank, me->ranks, how->kind,
			how->reduction, how->algorithm, how->dtype, (unsigned long long)how->count,
			call, (unsigned long long)i, is, want(me, how, arrays, i, call));
		return false;
	}
	return true;
}

static struct tow_collective_attr attr_of(const struct how *how, const struct arrays *arrays)
{
	return (struct tow_collective_attr){
		.size = sizeof(struct tow_collective_attr),
		.kind = how->kind,
		.reduction = how->reduction,
		.algorithm = how->algorithm,
		.dtype = tow_dtypes[how->dtype],
		.root = how->root,
		.count = how->count,
		.in = arrays->given,
		.out = arrays->result,
		.piece_bytes = how->piece_bytes,
	};
}

static int do_calls(const struct tow_mate *me, const struct how *how, const struct arrays *arrays,
		    struct tow_collective *collective)
{
	uint32_t blamed;
	int ret;

	for (uint32_t call = 0; call < how->calls; call++) {
		fill(me, how, arrays, call);
		if (how->delays)
			usleep((me->rank * 37 + call * 11) % 5 * 500);
		if (tow_collective_start(collective))
			return 20;
		/* One rank asks, others wait. */
		if (me->rank == call % me->ranks)
			while (!tow_collective_test(collective, &blamed))
				usleep(100);
		ret = tow_collective_wait(collective, &blamed);
		if (ret || blamed != TOW_NO_RANK) {
			fprintf(stderr, "# rank %u: %d, blamed %d\n", me->rank, ret, (int)blamed);
			return 21;
		}
		if (!is_right(me, how, arrays, call))
			return 22;
	}
	return 0;
}

/* As many copies as there are arrays outside that others reach, and no call without its bytes. */
static int look_at_stats(const struct tow_mate *me, const struct how *how,
			 const struct arrays *arrays, const struct tow_collective *collective)
{
	struct tow_collective_stats stats = { .size = sizeof(stats) };

	if (tow_collective_stats(collective, &stats) || stats.calls != how->calls)
		return 30;
	if (!how->outside && (stats.copies || stats.copied_bytes))
		return 31;
	if (how->outside && arrays->whole && me->ranks > 1 &&
	    (!stats.copies || (!stats.copied_bytes && how->calls)))
		return 32;
	return 0;
}

static int do_one(const struct tow_mate *me, const struct how *how)
{
	struct tow_collective *collective;
	struct tow_collective_attr attr;
	struct arrays arrays;
	uint32_t blamed;
	int ret;

	make_arrays(me, how, &arrays);
	attr = attr_of(how, &arrays);
	ret = tow_collective_create(me->comm, &attr, &collective, &blamed);
	if (ret) {
		fprintf(stderr, "# rank %u, kind %u: %d, blamed %d\n", me->rank, how->kind, ret,
			(int)blamed);
		return 40;
	}
	ret = do_calls(me, how, &arrays, collective);
	if (!ret)
		ret = look_at_stats(me, how, &arrays, collective);
	tow_collective_destroy(collective);
	if (arrays.in)
		release(me, how, arrays.in);
	release(me, how, arrays.out);
	return ret;
}

/* ---- what all do ------------------------------------------------------------- */

/* Sizes of arrays; primes, what is just more than a line, and pieces that do not come out even. */
static const uint64_t counts[] = { 0, 1, 2, 7, 31, 1021, 65537, 131101 };

#define FACTORS	6

/* All pairs of what may be chosen are tried, and in as few runs as chance finds. */
static const uint32_t choices[FACTORS] = {
	2 /* algorithm */, 4 /* reduction */, ROOMY, ARRAY_SIZE(counts), 2 /* apart */,
	2 /* outside */
};

static bool tries_new_pairs(bool seen[FACTORS][8][FACTORS][8], const uint32_t choice[FACTORS])
{
	bool any = false;

	for (uint32_t i = 0; i < FACTORS; i++) {
		for (uint32_t j = i + 1; j < FACTORS; j++) {
			any |= !seen[i][choice[i]][j][choice[j]];
			seen[i][choice[i]][j][choice[j]] = true;
		}
	}
	return any;
}

static uint32_t pairs(void)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < FACTORS; i++)
		for (uint32_t j = i + 1; j < FACTORS; j++)
			count += choices[i] * choices[j];
	return count;
}

static int all_pairs(struct tow_mate *me, uint32_t arg)
{
	static bool seen[FACTORS][8][FACTORS][8];
	uint32_t choice[FACTORS], tried = 0;
	uint64_t state = 0x7061697273 + arg;
	int ret;

	/* Far more than it takes. */
	for (uint32_t i = 0; i < 20000; i++) {
		for (uint32_t j = 0; j < FACTORS; j++) {
			state = state * 6364136223846793005ULL + 1442695040888963407ULL;
			choice[j] = (uint32_t)(state >> 33) % choices[j];
		}
		if (!tries_new_pairs(seen, choice))
			continue;
		ret = do_one(me, &(struct how){
			.algorithm = TOW_ALGORITHM_RING + choice[0],
			.reduction = choice[1],
			.dtype = choice[2],
			.count = counts[choice[3]],
			.apart = choice[4],
			.outside = choice[5],
			.piece_bytes = choice[3] % 2 ? 4096 : 0,
			.calls = 2,
		});
		if (ret)
			return ret;
	}
	for (uint32_t i = 0; i < FACTORS; i++)
		for (uint32_t j = i + 1; j < FACTORS; j++)
			for (uint32_t k = 0; k < choices[i]; k++)
				for (uint32_t l = 0; l < choices[j]; l++)
					tried += seen[i][k][j][l];
	return tried == pairs() ? 0 : 50;
}

TEST_F_TIMEOUT(collective, all_pairs_of_two, 120)
{
	tow_all_meet(_metadata, &self->ranks, (struct tow_part){ .ranks = 2, .then = all_pairs });
}

TEST_F_TIMEOUT(collective, all_pairs_of_three, 120)
{
	tow_all_meet(_metadata, &self->ranks,
		     (struct tow_part){ .ranks = 3, .then = all_pairs, .arg = 1 });
}

TEST_F_TIMEOUT(collective, all_pairs_of_four, 120)
{
	tow_all_meet(_metadata, &self->ranks,
		     (struct tow_part){ .ranks = 4, .then = all_pairs, .arg = 2 });
}

TEST_F_TIMEOUT(collective, all_pairs_of_one, 60)
{
	tow_all_meet(_metadata, &self->ranks, (struct tow_part){ .ranks = 1, .then = all_pairs });
}

/* The other kinds: in place or not, in the arena or not, for each root. */
static int other_kinds(struct tow_mate *me, uint32_t arg)
{
	const uint64_t sizes[] = { 0, 1, 1021, 65537 };
	struct how how = { .calls = 3, .piece_bytes = 16384 };
	int ret = 0;

	for (uint32_t i = 0; !ret && i < ARRAY_SIZE(sizes) * 4; i++) {
		how.count = sizes[i / 4];
		how.apart = i & 1;
		how.outside = i & 2;
		how.dtype = (i + arg) % ROOMY;
		how.kind = TOW_REDUCE_SCATTER;
		how.reduction = i % 4;
		how.root = 0;
		ret = do_one(me, &how);
		how.reduction = 0;
		how.kind = TOW_ALLGATHER;
		if (!ret)
			ret = do_one(me, &how);
		how.kind = TOW_BROADCAST;
		for (how.root = 0; !ret && how.root < me->ranks; how.root++)
			ret = do_one(me, &how);
	}
	return ret;
}

TEST_F_TIMEOUT(collective, other_kinds, 120)
{
	tow_all_meet(_metadata, &self->ranks, (struct tow_part){ .ranks = 3, .then = other_kinds });
}

TEST_F_TIMEOUT(collective, other_kinds_of_two, 120)
{
	tow_all_meet(_metadata, &self->ranks,
		     (struct tow_part){ .ranks = 2, .then = other_kinds, .arg = 1 });
}

TEST_F_TIMEOUT(collective, other_kinds_of_one, 60)
{
	tow_all_meet(_metadata, &self->ranks, (struct tow_part){ .ranks = 1, .then = other_kinds });
}

/* Nothing is copied: look_at_stats(). */
static int imported(struct tow_mate *me, uint32_t arg)
{
	struct how how = { .imported = true, .calls = 3, .count = 65537, .algorithm = arg,
			   .piece_bytes = 16384 };
	int ret = 0;

	for (int apart = 0; !ret && apart < 2; apart++) {
		how.apart = apart;
		how.kind = TOW_ALLREDUCE;
		how.algorithm = arg;
		ret = do_one(me, &how);
		how.algorithm = 0;
		how.kind = TOW_REDUCE_SCATTER;
		if (!ret)
			ret = do_one(me, &how);
		how.kind = TOW_ALLGATHER;
		if (!ret)
			ret = do_one(me, &how);
		how.kind = TOW_BROADCAST;
		if (!ret)
			ret = do_one(me, &how);
	}
	return ret;
}

TEST_F_TIMEOUT(collective, in_other_regions, 60)
{
	tow_all_meet(_metadata, &self->ranks,
		     (struct tow_part){ .ranks = 3, .then = imported, .arg = TOW_ALGORITHM_RING });
	tow_all_meet(_metadata, &self->ranks,
		     (struct tow_part){ .ranks = 3, .then = imported, .arg = TOW_ALGORITHM_DIRECT,
					.restart = 1 });
}

/* What others must not write is copied, and written by this process. */
static int readonly(struct tow_mate *me, uint32_t arg)
{
	struct how how = { .outside = true, .apart = true, .calls = 2, .count = 5000 };
	struct tow_region *in = NULL, *out = NULL;
	struct tow_collective *collective = NULL;
	struct tow_collective_attr attr;
	struct arrays arrays;
	int ret = 70;

	(void)arg;
	make_arrays(me, &how, &arrays);
	attr = attr_of(&how, &arrays);
	if (!tow_region_from_memory(me->dev, arrays.in, 20000, TOW_REGION_READONLY, &in) &&
	    !tow_region_from_memory(me->dev, arrays.out, 20000, TOW_REGION_READONLY, &out) &&
	    !tow_collective_create(me->comm, &attr, &collective, NULL))
		ret = do_calls(me, &how, &arrays, collective);
	if (!ret)
		ret = look_at_stats(me, &how, &arrays, collective);
	tow_collective_destroy(collective);
	tow_region_destroy(in);
	tow_region_destroy(out);
	release(me, &how, arrays.in);
	release(me, &how, arrays.out);
	return ret;
}

TEST_F_TIMEOUT(collective, in_readonly_regions, 60)
{
	tow_all_meet(_metadata, &self->ranks, (struct tow_part){ .ranks = 2, .then = readonly });
}

static int many_calls(struct tow_mate *me, uint32_t arg)
{
	return do_one(me, &(struct how){ .algorithm = arg, .count = 10007, .calls = 150,
					 .piece_bytes = 4096, .delays = true });
}

TEST_F_TIMEOUT(collective, again_and_again, 120)
{
	tow_all_meet(_metadata, &self->ranks,
		     (struct tow_part){ .ranks = 4, .then = many_calls,
					.arg = TOW_ALGORITHM_RING });
	tow_all_meet(_metadata, &self->ranks,
		     (struct tow_part){ .ranks = 4, .then = many_calls, .arg = TOW_ALGORITHM_DIRECT,
					.restart = 1 });
}

static int large_one(struct tow_mate *me, uint32_t arg)
{
	return do_one(me, &(struct how){ .algorithm = arg, .count = 4U << 20, .calls = 2 });
}

TEST_F_TIMEOUT(collective, of_16_mib, 120)
{
	tow_all_meet(_metadata, &self->ranks,
		     (struct tow_part){ .ranks = 2, .then = large_one, .arg = TOW_ALGORITHM_RING });
	tow_all_meet(_metadata, &self->ranks,
		     (struct tow_part){ .ranks = 2, .then = large_one, .arg = TOW_ALGORITHM_DIRECT,
					.restart = 1 });
}

static int of_many(struct tow_mate *me, uint32_t arg)
{
	(void)arg;
	for (uint32_t by = TOW_ALGORITHM_RING; by <= TOW_ALGORITHM_DIRECT; by++)
		if (do_one(me, &(struct how){ .algorithm = by, .count = 5003, .calls = 3 }))
			return 60 + (int)by;
	return 0;
}

TEST_F_TIMEOUT(collective, of_eight_ranks, 120)
{
	tow_all_meet(_metadata, &self->ranks,
		     (struct tow_part){ .ranks = RANKS_MAX, .then = of_many });
}

/* ---- several at once --------------------------------------------------------- */

#define SEVERAL	5

/* Each rank starts and waits in another order. */
static int several(struct tow_mate *me, uint32_t arg)
{
	static const struct how hows[SEVERAL] = {
		{ .count = 40009, .algorithm = TOW_ALGORITHM_RING, .piece_bytes = 8192 },
		{ .count = 17, .algorithm = TOW_ALGORITHM_DIRECT, .dtype = 4 },
		{ .count = 30011, .kind = TOW_ALLGATHER, .dtype = 1 },
		{ .count = 20011, .kind = TOW_BROADCAST, .root = 1, .dtype = 3 },
		{ .count = 9973, .kind = TOW_REDUCE_SCATTER, .reduction = TOW_MAX },
	};
	struct tow_collective *made[SEVERAL];
	struct arrays arrays[SEVERAL];
	uint32_t i, which;

	for (i = 0; i < SEVERAL; i++) {
		struct tow_collective_attr attr;

		make_arrays(me, &hows[i], &arrays[i]);
		attr = attr_of(&hows[i], &arrays[i]);
		if (tow_collective_create(me->comm, &attr, &made[i], NULL))
			return 70;
	}
	if (tow_comm_destroy(me->comm) != -EBUSY)
		return 71;
	for (uint32_t call = 0; call < arg; call++) {
		for (i = 0; i < SEVERAL; i++) {
			which = (i * (me->rank + 1) + call) % SEVERAL;
			fill(me, &hows[which], &arrays[which], call);
			if (tow_collective_start(made[which]))
				return 72;
		}
		for (i = 0; i < SEVERAL; i++) {
			which = (i * (me->rank + 2) + call) % SEVERAL;
			if (tow_collective_wait(made[which], NULL) ||
			    !is_right(me, &hows[which], &arrays[which], call))
				return 73;
		}
	}
	for (i = 0; i < SEVERAL; i++) {
		tow_collective_destroy(made[i]);
		release(me, &hows[i], arrays[i].out);
	}
	return 0;
}

TEST_F_TIMEOUT(collective, several_at_once, 120)
{
	/* Steps of up to 3 through 5 find them all. */
	tow_all_meet(_metadata, &self->ranks,
		     (struct tow_part){ .ranks = 3, .then = several, .arg = 20 });
}

/* ---- bits -------------------------------------------------------------------- */

#define BITS	4099

static float odd_number(uint32_t rank, uint32_t at)
{
	uint64_t state = (rank + 1) * 0x9e3779b97f4a7c15ULL + at * 0xbf58476d1ce4e5b9ULL;

	state ^= state >> 31;
	state *= 0x94d049bb133111ebULL;
	state ^= state >> 29;
	if (at % 97 == rank)
		return at % 2 ? NAN : INFINITY;
	return ldexpf((float)(int32_t)state, (int)(state >> 40 & 31) - 31);
}

/* Sums that depend on the order; not a number, and infinity.  Alike, and from call to call. */
static int same_bits(struct tow_mate *me, uint32_t arg)
{
	float *data = tow_arena_zeroed(me->arena, BITS, sizeof(*data)), *first = NULL;
	struct tow_collective_attr attr = {
		.size = sizeof(attr), .dtype = tow_dtypes[0], .count = BITS, .out = data,
		.algorithm = arg, .piece_bytes = 1024,
	};
	struct tow_collective *collective;
	uint32_t wrong = 0;

	if (tow_collective_create(me->comm, &attr, &collective, NULL))
		return 80;
	first = malloc(BITS * sizeof(*first));
	for (uint32_t call = 0; call < 5; call++) {
		for (uint32_t i = 0; i < BITS; i++)
			data[i] = odd_number(me->rank, i);
		usleep((me->rank * 7 + call * 5) % 4 * 1000);
		if (tow_collective_start(collective) || tow_collective_wait(collective, NULL))
			return 81;
		if (!call)
			memcpy(first, data, BITS * sizeof(*data));
		wrong += tow_digest(first, BITS * sizeof(*data)) !=
			 tow_digest(data, BITS * sizeof(*data));
	}
	for (uint32_t i = 0; i < BITS; i++) {
		uint32_t rank = i % 97;

		if (rank < me->ranks && (rank % 2 == 0 || i % 2) && i % 2 && !isnan(data[i]))
			wrong++;
	}
	atomic_store(&board->digests[me->rank], tow_digest(data, BITS * sizeof(*data)));
	atomic_fetch_add(&board->there, 1);
	if (!tow_becomes(&board->there, me->ranks))
		return 82;
	for (uint32_t rank = 0; rank < me->ranks; rank++)
		wrong += atomic_load(&board->digests[rank]) != atomic_load(&board->digests[0]);
	tow_collective_destroy(collective);
	tow_arena_free(me->arena, data);
	free(first);
	return wrong ? 83 : 0;
}

TEST_F_TIMEOUT(collective, same_bits_by_ring, 60)
{
	tow_all_meet(_metadata, &self->ranks,
		     (struct tow_part){ .ranks = 4, .then = same_bits, .arg = TOW_ALGORITHM_RING });
}

TEST_F_TIMEOUT(collective, same_bits_directly, 60)
{
	tow_all_meet(_metadata, &self->ranks,
		     (struct tow_part){ .ranks = 4, .then = same_bits,
					.arg = TOW_ALGORITHM_DIRECT });
}

/* ---- types and operations ---------------------------------------------------- */

/* Not a multiple of the ranks' number. */
#define FEW	1021

/* Of up to three ranks floats have all products, 8 bits do not; averages are whole. */
static int small(uint32_t rank, uint32_t at)
{
	return (int)((at * 7 + rank * 5) % 3) * 6;
}

static int small_wanted(uint32_t ranks, uint32_t at, struct tow_dtype dtype, uint32_t reduction)
{
	int value = tow_of_type(dtype, small(0, at));

	for (uint32_t rank = 1; rank < ranks; rank++)
		value = tow_reduced(reduction, value, tow_of_type(dtype, small(rank, at)));
	return tow_of_type(dtype, reduction == TOW_AVG ? value / (int)ranks : value);
}

static int one_type(const struct tow_mate *me, struct tow_collective_attr *attr)
{
	struct tow_collective *collective;
	int ret = 0;

	for (uint32_t i = 0; i < FEW; i++)
		tow_put(attr->out, i, attr->dtype, small(me->rank, i));
	if (tow_collective_create(me->comm, attr, &collective, NULL))
		return 75;
	if (tow_collective_start(collective) || tow_collective_wait(collective, NULL))
		ret = 76;
	for (uint32_t i = 0; !ret && i < FEW; i++) {
		int want = small_wanted(me->ranks, i, attr->dtype, attr->reduction);
		double is = tow_get(attr->out, i, attr->dtype);

		if (is == want)
			continue;
		fprintf(stderr, "# type %u of %u bits, op %u: [%u] is %g, not %d\n",
			attr->dtype.code, attr->dtype.bits, attr->reduction, i, is, want);
		ret = 77;
	}
	tow_collective_destroy(collective);
	return ret;
}

static int all_types(struct tow_mate *me, uint32_t arg)
{
	struct tow_collective_attr attr = {
		.size = sizeof(attr), .count = FEW, .algorithm = arg,
		.out = tow_arena_zeroed(me->arena, FEW, sizeof(double)),
	};
	struct tow_collective *collective;
	int ret = 0;

	for (uint32_t i = 0; !ret && i < ARRAY_SIZE(tow_dtypes) * (TOW_BXOR + 1); i++) {
		attr.dtype = tow_dtypes[i / (TOW_BXOR + 1)];
		attr.reduction = i % (TOW_BXOR + 1);
		if (!tow_never_reduced(attr.dtype, attr.reduction))
			ret = one_type(me, &attr);
		else if (tow_collective_create(me->comm, &attr, &collective, NULL) != -EOPNOTSUPP)
			ret = 78;
	}
	tow_arena_free(me->arena, attr.out);
	return ret;
}

TEST_F_TIMEOUT(collective, all_types_by_ring, 60)
{
	tow_all_meet(_metadata, &self->ranks,
		     (struct tow_part){ .ranks = 3, .then = all_types, .arg = TOW_ALGORITHM_RING });
}

TEST_F_TIMEOUT(collective, all_types_directly, 60)
{
	tow_all_meet(_metadata, &self->ranks,
		     (struct tow_part){ .ranks = 2, .then = all_types,
					.arg = TOW_ALGORITHM_DIRECT });
}

TEST_F_TIMEOUT(collective, all_types_of_one, 60)
{
	tow_all_meet(_metadata, &self->ranks, (struct tow_part){ .ranks = 1, .then = all_types });
}

/* ---- barriers, and what is sent ---------------------------------------------- */

/* Nobody is through before the last one has come. */
static int barriers(struct tow_mate *me, uint32_t arg)
{
	struct tow_collective_attr attr = { .size = sizeof(attr), .kind = TOW_BARRIER };
	struct tow_collective *barrier;

	(void)arg;
	if (tow_collective_create(me->comm, &attr, &barrier, NULL))
		return 90;
	for (uint32_t call = 0; call < 20; call++) {
		if (me->rank == call % me->ranks)
			usleep(2000);
		atomic_fetch_add(&board->there, 1);
		if (tow_collective_start(barrier) || tow_collective_wait(barrier, NULL))
			return 91;
		if (atomic_load(&board->there) < (call + 1) * me->ranks)
			return 92;
	}
	tow_collective_destroy(barrier);
	return 0;
}

TEST_F_TIMEOUT(collective, barriers, 60)
{
	tow_all_meet(_metadata, &self->ranks, (struct tow_part){ .ranks = 4, .then = barriers });
}

/* 2 N (P - 1) / P bytes, within 2 %, and nothing allocated for calls. */
static int counts_bytes(struct tow_mate *me, uint32_t arg)
{
	struct tow_arena_stats before = { .size = sizeof(before) }, after = { .size = sizeof(after) };
	struct tow_collective_stats stats = { .size = sizeof(stats) };
	struct how how = { .algorithm = arg, .count = 1000003, .calls = 3 };
	struct tow_collective *collective;
	struct tow_collective_attr attr;
	struct arrays arrays;
	double ideal;

	make_arrays(me, &how, &arrays);
	attr = attr_of(&how, &arrays);
	if (tow_collective_create(me->comm, &attr, &collective, NULL))
		return 100;
	if (tow_arena_stats(me->arena, &before) || do_calls(me, &how, &arrays, collective) ||
	    tow_arena_stats(me->arena, &after))
		return 101;
	if (before.in_use_bytes != after.in_use_bytes || before.allocations != after.allocations)
		return 102;
	if (tow_collective_stats(collective, &stats) || stats.algorithm != arg)
		return 103;
	ideal = 2.0 * 4 * 1000003 * (me->ranks - 1) / me->ranks * how.calls;
	if (fabs((double)stats.sent_bytes / ideal - 1) > 0.02)
		return 104;
	tow_collective_destroy(collective);
	release(me, &how, arrays.out);
	return 0;
}

TEST_F_TIMEOUT(collective, sends_no_more_than_it_must, 60)
{
	tow_all_meet(_metadata, &self->ranks,
		     (struct tow_part){ .ranks = 4, .then = counts_bytes,
					.arg = TOW_ALGORITHM_RING });
	tow_all_meet(_metadata, &self->ranks,
		     (struct tow_part){ .ranks = 4, .then = counts_bytes,
					.arg = TOW_ALGORITHM_DIRECT, .restart = 1 });
}

/* ---- what is refused --------------------------------------------------------- */

static int refuses_attr(struct tow_mate *me, const struct tow_collective_attr *attr, int error)
{
	struct tow_collective *collective = NULL;

	return tow_collective_create(me->comm, attr, &collective, NULL) != error || collective;
}

static int refused(struct tow_mate *me, uint32_t arg)
{
	static float data[16];
	const struct tow_collective_attr good = { .size = sizeof(good), .dtype = tow_dtypes[0],
						  .count = 4, .out = data };
	struct tow_collective_attr attr;
	struct tow_collective *collective;
	struct tow_comm *comm = NULL;
	int wrong = 0;

	(void)arg;
#define REFUSES(error, ...) do {					\
		attr = good;						\
		__VA_ARGS__;						\
		if (refuses_attr(me, &attr, error)) {			\
			fprintf(stderr, "# %s\n", #__VA_ARGS__);	\
			wrong++;					\
		}							\
	} while (0)
	REFUSES(-EINVAL, attr.size = 4);
	REFUSES(-EINVAL, attr.kind = 5);
	REFUSES(-EINVAL, attr.reduction = TOW_BXOR + 1);
	REFUSES(-EINVAL, attr.algorithm = TOW_ALGORITHM_TREE + 1);
	REFUSES(-EINVAL, attr.root = 1);
	REFUSES(-EINVAL, attr.out = NULL);
	REFUSES(-EINVAL, attr.out = (char *)data + 1);
	REFUSES(-EINVAL, attr.in = (char *)data + 2);
	REFUSES(-EINVAL, attr.in = data + 1);
	REFUSES(-EINVAL, attr.kind = TOW_ALLGATHER, attr.count = 2, attr.in = data + 1);
	REFUSES(-EINVAL, attr.kind = TOW_REDUCE_SCATTER, attr.count = 2,
		attr.in = me->rank ? data : data + 1);
	REFUSES(-EINVAL, attr.piece_bytes = 100);
	REFUSES(-EINVAL, attr.dtype.lanes = 0);
	REFUSES(-EINVAL, attr.dtype.bits = 0);
	REFUSES(-EINVAL, attr.kind = TOW_REDUCE_SCATTER);
	REFUSES(-EINVAL, attr.kind = TOW_ALLGATHER, attr.reduction = TOW_MAX);
	REFUSES(-EOPNOTSUPP, attr.kind = TOW_ALLGATHER, attr.algorithm = TOW_ALGORITHM_TREE);
	REFUSES(-EOPNOTSUPP, attr.kind = TOW_BROADCAST, attr.algorithm = TOW_ALGORITHM_DIRECT);
	REFUSES(-EINVAL, attr.kind = TOW_BROADCAST, attr.root = me->ranks);
	REFUSES(-EINVAL, attr.kind = TOW_BARRIER);
	REFUSES(-EOPNOTSUPP, attr.dtype = (struct tow_dtype){ TOW_DTYPE_UINT, 32, 1 });
	REFUSES(-EOPNOTSUPP, attr.dtype = (struct tow_dtype){ TOW_DTYPE_FLOAT, 32, 2 });
	REFUSES(-EOPNOTSUPP, attr.kind = TOW_BROADCAST,
		attr.dtype = (struct tow_dtype){ TOW_DTYPE_INT, 4, 1 });
	REFUSES(-EOVERFLOW, attr.count = UINT64_MAX / 4);
	wrong += tow_collective_create(NULL, &good, &collective, NULL) != -EINVAL;
	wrong += tow_collective_create(me->comm, NULL, &collective, NULL) != -EINVAL;
	wrong += tow_collective_create(me->comm, &good, NULL, NULL) != -EINVAL;
	wrong += tow_collective_start(NULL) != -EINVAL || tow_collective_wait(NULL, NULL) != -EINVAL ||
		 tow_collective_test(NULL, NULL) != -EINVAL ||
		 tow_collective_stats(NULL, NULL) != -EINVAL;
	wrong += tow_comm_create(NULL, me->arena, NULL, &comm, NULL) != -EINVAL ||
		 tow_comm_create(me->group, NULL, NULL, &comm, NULL) != -EINVAL ||
		 tow_comm_create(me->group, me->arena, NULL, NULL, NULL) != -EINVAL || comm;
	tow_collective_destroy(NULL);
	wrong += tow_comm_destroy(NULL) != 0;
	/* Nothing of it did any harm. */
	return wrong ? 110 : do_one(me, &(struct how){ .count = 100, .calls = 1 });
}

TEST_F(collective, refused)
{
	tow_all_meet(_metadata, &self->ranks, (struct tow_part){ .ranks = 2, .then = refused });
}

/* Ranks ask for different things: all are told who does. */
static int disagree(struct tow_mate *me, uint32_t arg)
{
	float *data = tow_arena_zeroed(me->arena, 64, sizeof(*data));
	struct tow_collective_attr attr = { .size = sizeof(attr), .dtype = tow_dtypes[0],
					    .count = 64, .out = data };
	struct tow_collective *collective = NULL;
	uint32_t blamed;

	(void)arg;
	for (uint32_t i = 0; i < 3; i++) {
		struct tow_collective_attr mine = attr;

		if (me->rank == 1) {
			mine.count -= i == 0;
			mine.reduction += i == 1;
			mine.piece_bytes += i == 2 ? 64 : 0;
		}
		if (tow_collective_create(me->comm, &mine, &collective, &blamed) != -EPROTO ||
		    blamed != 1 || collective)
			return 120;
	}
	tow_arena_free(me->arena, data);
	return do_one(me, &(struct how){ .count = 100, .calls = 1 });
}

TEST_F(collective, of_one_mind)
{
	tow_all_meet(_metadata, &self->ranks, (struct tow_part){ .ranks = 3, .then = disagree });
}

/* Started twice; in a child. */
static int at_the_wrong_time(struct tow_mate *me, uint32_t arg)
{
	struct tow_collective_attr attr = { .size = sizeof(attr), .kind = TOW_BARRIER };
	struct tow_collective *barrier, *other = NULL;
	int status = -1;
	pid_t pid;

	(void)arg;
	if (tow_collective_create(me->comm, &attr, &barrier, NULL) ||
	    tow_collective_wait(barrier, NULL) || tow_collective_test(barrier, NULL) != 1)
		return 130;
	if (me->rank) {
		if (tow_collective_start(barrier) || tow_collective_start(barrier) != -EBUSY)
			return 131;
		pid = fork();
		if (!pid)
			_exit(tow_collective_create(me->comm, &attr, &other, NULL) != -EPERM ||
			      tow_collective_start(barrier) != -EPERM ||
			      tow_collective_wait(barrier, NULL) != -EPERM ||
			      tow_collective_test(barrier, NULL) != -EPERM);
		if (waitpid(pid, &status, 0) != pid || status)
			return 132;
		atomic_fetch_add(&board->there, 1);
	} else if (!tow_becomes(&board->there, 1)) {
		return 133;
	}
	/* One is made while another one has begun, here or there. */
	if (tow_collective_create(me->comm, &attr, &other, NULL) ||
	    (!me->rank && tow_collective_start(barrier)) || tow_collective_start(other) ||
	    tow_collective_wait(barrier, NULL) || tow_collective_wait(other, NULL))
		return 134;
	tow_collective_destroy(other);
	tow_collective_destroy(barrier);
	return 0;
}

TEST_F(collective, at_the_wrong_time)
{
	tow_all_meet(_metadata, &self->ranks,
		     (struct tow_part){ .ranks = 2, .then = at_the_wrong_time });
}

/* ---- ranks that do not go on ------------------------------------------------- */

/* Calls until something is wrong: which, and who is to blame. */
static int call_on(struct tow_mate *me, uint32_t algorithm, int *ret, uint32_t *blamed)
{
	struct how how = { .count = 50021, .algorithm = algorithm, .piece_bytes = 4096 };
	struct tow_collective *collective;
	struct tow_collective_attr attr;
	struct arrays arrays;

	make_arrays(me, &how, &arrays);
	attr = attr_of(&how, &arrays);
	if (tow_collective_create(me->comm, &attr, &collective, NULL))
		return 140;
	for (uint32_t call = 0;; call++) {
		fill(me, &how, &arrays, call);
		*ret = tow_collective_start(collective);
		if (!*ret)
			*ret = tow_collective_wait(collective, blamed);
		else
			tow_collective_test(collective, blamed);
		if (*ret)
			break;
		if (!is_right(me, &how, &arrays, call))
			return 141;
		if (call == 3)
			atomic_fetch_add(&board->there, 1);
	}
	/* It stays like that. */
	if (tow_collective_start(collective) != *ret || tow_collective_wait(collective, NULL) != *ret)
		return 142;
	tow_collective_destroy(collective);
	release(me, &how, arrays.out);
	return 0;
}

static int until_one_dies(struct tow_mate *me, uint32_t arg)
{
	uint32_t blamed = TOW_NO_RANK;
	int ret, end = call_on(me, arg, &ret, &blamed);

	if (end)
		return end;
	if (ret != -ESTALE || blamed != 1) {
		fprintf(stderr, "# rank %u: %d, blamed %d\n", me->rank, ret, (int)blamed);
		return 150;
	}
	return 0;
}

/* What a rank that dies has sent before, of the last call's bytes, in eighths: EIGHTHS: all. */
#define EIGHTHS		8U
/* Calls that go well. */
#define CALLS_BEFORE	3U

static uint64_t sent_by(const struct tow_collective *collective)
{
	struct tow_collective_stats stats = { .size = sizeof(stats) };

	return tow_collective_stats(collective, &stats) ? 0 : stats.sent_bytes;
}

/* @arg: the algorithm, and the eighths behind which rank 1 dies.  It does not come back. */
static int die_behind(struct tow_mate *me, uint32_t arg)
{
	struct how how = { .count = 50021, .algorithm = arg & 0xff, .piece_bytes = 4096 };
	struct tow_collective *collective;
	struct tow_collective_attr attr;
	struct arrays arrays;
	uint64_t of_one;

	make_arrays(me, &how, &arrays);
	attr = attr_of(&how, &arrays);
	if (tow_collective_create(me->comm, &attr, &collective, NULL))
		return 140;
	for (uint32_t call = 0; call < CALLS_BEFORE; call++) {
		fill(me, &how, &arrays, call);
		if (tow_collective_start(collective) || tow_collective_wait(collective, NULL))
			return 143;
	}
	of_one = sent_by(collective) / CALLS_BEFORE;
	fill(me, &how, &arrays, CALLS_BEFORE);
	if (tow_collective_start(collective))
		return 144;
	while (sent_by(collective) < of_one * CALLS_BEFORE + of_one * (arg >> 8) / EIGHTHS)
		if (tow_collective_test(collective, NULL) < 0)
			return 145;
	raise(SIGKILL);
	return 146;
}

static int until_rank_1_dies(struct tow_mate *me, uint32_t arg)
{
	return me->rank == 1 ? die_behind(me, arg) : until_one_dies(me, arg & 0xff);
}

/* In each phase: when it has begun; while sums are made; when its own is; while they are spread. */
static void one_dies(struct __test_metadata *_metadata, FIXTURE_DATA(collective) *self,
		     uint32_t algorithm)
{
	static const uint32_t behind[] = { 0, 1, EIGHTHS / 2, EIGHTHS - 1, EIGHTHS };
	struct tow_part part = { .ranks = 4, .then = until_rank_1_dies };
	uint32_t first;
	double begin;

	for (uint32_t i = 0; i < ARRAY_SIZE(behind); i++) {
		part.arg = algorithm | behind[i] << 8;
		part.restart = i;
		first = tow_all_start(&self->ranks, part);
		EXPECT_EQ(SIGKILL, tow_ranks_end_of(&self->ranks, first + 1));
		begin = tow_test_now();
		EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, first));
		EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, first + 2));
		EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, first + 3));
		TOW_WITHIN(begin, TOLD_MS) {
			TH_LOG("behind %u eighths", behind[i]);
		}
	}
}

TEST_F_TIMEOUT(collective, a_rank_dies_in_the_ring, 120)
{
	one_dies(_metadata, self, TOW_ALGORITHM_RING);
}

TEST_F_TIMEOUT(collective, a_rank_dies_directly, 120)
{
	one_dies(_metadata, self, TOW_ALGORITHM_DIRECT);
}

/* One of them stops, and lives: all, itself as well, are told that it was late. */
static int until_one_is_late(struct tow_mate *me, uint32_t arg)
{
	struct tow_collective_attr attr = { .size = sizeof(attr), .kind = TOW_ALLREDUCE,
					    .dtype = tow_dtypes[0], .count = 1024 };
	struct tow_collective *collective;
	uint32_t blamed;
	int ret;

	attr.algorithm = arg;
	attr.out = tow_arena_zeroed(me->arena, 1024, 4);
	if (tow_collective_create(me->comm, &attr, &collective, NULL))
		return 160;
	if (me->rank == 2 && !tow_becomes(&board->go_on, 3))
		return 161;
	ret = tow_collective_start(collective);
	if (!ret)
		ret = tow_collective_wait(collective, &blamed);
	else
		tow_collective_test(collective, &blamed);
	atomic_fetch_add(&board->go_on, 1);
	if (ret != -ETIMEDOUT || blamed != 2) {
		fprintf(stderr, "# rank %u: %d, blamed %d\n", me->rank, ret, (int)blamed);
		return 162;
	}
	/* Others have not left before it has heard. */
	if (!tow_becomes(&board->go_on, 4))
		return 163;
	tow_collective_destroy(collective);
	return 0;
}

TEST_F_TIMEOUT(collective, a_rank_is_late_in_the_ring, 60)
{
	tow_all_meet(_metadata, &self->ranks,
		     (struct tow_part){ .ranks = 4, .then = until_one_is_late,
					.timeout_ms = SOON_MS, .arg = TOW_ALGORITHM_RING });
}

TEST_F_TIMEOUT(collective, a_rank_is_late_directly, 60)
{
	tow_all_meet(_metadata, &self->ranks,
		     (struct tow_part){ .ranks = 4, .then = until_one_is_late,
					.timeout_ms = SOON_MS, .arg = TOW_ALGORITHM_DIRECT });
}

/* Who has ended a call, and destroyed what it was of, is not late in it: another one is. */
static int until_one_sleeps_in_it(struct tow_mate *me, uint32_t arg)
{
	struct tow_collective_attr attr = { .size = sizeof(attr), .kind = TOW_BROADCAST,
					    .algorithm = TOW_ALGORITHM_RING,
					    .dtype = tow_dtypes[0], .count = 1024 };
	struct tow_collective *collective;
	uint32_t blamed = TOW_NO_RANK;
	int ret;

	(void)arg;
	attr.out = tow_arena_zeroed(me->arena, 1024, 4);
	if (tow_collective_create(me->comm, &attr, &collective, NULL) ||
	    tow_collective_start(collective))
		return 190;
	/* The elements go from 0 to 1, and from there to 2. */
	if (me->rank == 1 && !tow_becomes(&board->go_on, 1))
		return 191;
	ret = tow_collective_wait(collective, &blamed);
	if (me->rank == 0) {
		tow_collective_destroy(collective);
		return ret || !tow_becomes(&board->go_on, 1) ? 192 : 0;
	}
	if (me->rank == 2)
		atomic_fetch_add(&board->go_on, 1);
	tow_collective_destroy(collective);
	if (me->rank == 2 && (ret != -ETIMEDOUT || blamed != 1)) {
		fprintf(stderr, "# %d, blamed %d\n", ret, (int)blamed);
		return 193;
	}
	return 0;
}

TEST_F_TIMEOUT(collective, who_has_ended_is_not_late, 60)
{
	tow_all_meet(_metadata, &self->ranks,
		     (struct tow_part){ .ranks = 3, .timeout_ms = SOON_MS,
					.then = until_one_sleeps_in_it });
}

/* One breaks off what it has started: the others are told who. */
static int until_one_breaks_off(struct tow_mate *me, uint32_t arg)
{
	struct tow_collective_attr attr = { .size = sizeof(attr), .kind = TOW_BARRIER };
	struct tow_collective *first, *second;
	uint32_t blamed;
	int ret;

	(void)arg;
	if (tow_collective_create(me->comm, &attr, &first, NULL) ||
	    tow_collective_create(me->comm, &attr, &second, NULL))
		return 170;
	if (tow_collective_start(me->rank == 1 ? first : second))
		return 171;
	if (me->rank == 1) {
		tow_collective_destroy(first);
		ret = tow_collective_start(second);
		tow_collective_test(second, &blamed);
	} else {
		ret = tow_collective_wait(second, &blamed);
		tow_collective_destroy(first);
	}
	tow_collective_destroy(second);
	return ret == -ECANCELED && blamed == 1 ? 0 : 172;
}

TEST_F_TIMEOUT(collective, a_rank_breaks_off, 60)
{
	tow_all_meet(_metadata, &self->ranks,
		     (struct tow_part){ .ranks = 3, .then = until_one_breaks_off });
}

/* Some have ended all and left, while others have not heard of it: nobody has died. */
static int leave_early(struct tow_mate *me, uint32_t arg)
{
	(void)arg;
	if (do_one(me, &(struct how){ .count = 1000, .calls = 3 }))
		return 180;
	return 0;
}

TEST_F_TIMEOUT(collective, leaving_is_not_dying, 60)
{
	for (uint32_t i = 0; i < 5; i++)
		tow_all_meet(_metadata, &self->ranks,
			     (struct tow_part){ .ranks = 4, .then = leave_early, .restart = i });
}

/* Whoever is left goes on without it; then with its next life. */
TEST_F_TIMEOUT(collective, going_on_without_one, 60)
{
	struct tow_part part = { .ranks = 3, .then = until_one_dies, .arg = TOW_ALGORITHM_RING };

	tow_all_start(&self->ranks, part);
	ASSERT_TRUE(tow_becomes(&board->there, 3));
	kill(self->ranks.pids[1], SIGKILL);
	EXPECT_NE(0, tow_ranks_end_of(&self->ranks, 1));
	EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, 0));
	EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, 2));
	tow_all_meet(_metadata, &self->ranks,
		     (struct tow_part){ .ranks = 2, .then = leave_early, .restart = 1 });
	tow_all_meet(_metadata, &self->ranks,
		     (struct tow_part){ .ranks = 3, .then = leave_early, .restart = 2 });
}

TEST_HARNESS_MAIN

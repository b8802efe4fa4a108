// SPDX-License-Identifier: GPL-2.0
/*
 * Calls (tow_allreduce() and its like) against the real module: what comes out, of all that may be
 * asked for, is compared with what one process computes.
 */
/* build: link -ltowline */
#include "tow_jobs.h"

/* ---- all that may be asked for ----------------------------------------------- */

enum { KIND, DTYPE, REDUCTION, ALGORITHM, COUNT, PLACE, PIECE, APART, FACTORS };

#define LEVELS		9U
#define NO_REDUCTION	8U
#define DRAWS		30000U

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

	if (!make(me, how, &job) || !job.in.at)
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

TEST_HARNESS_MAIN

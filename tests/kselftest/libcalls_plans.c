// SPDX-License-Identifier: GPL-2.0
/*
 * How calls (tow_allreduce() and its like) are done, against the real module: as rank 0's
 * communicator says, or as the call does; and what comes of it, bit for bit.
 */
/* build: link -ltowline */
#include "tow_jobs.h"

#define RANKS		4U
#define HUGE_BYTES	(1ULL << 30)

/* Small and large, by default. */
static const uint64_t sizes[] = { 1003, 100003 };

/* What a communicator says, and what it makes of AllReduces and broadcasts of those sizes. */
struct table {
	uint32_t direct_ranks;
	uint64_t direct_bytes, tree_bytes;
	uint32_t reduced[2], sent[2];
};

#define RING		TOW_ALGORITHM_RING
#define DIRECT		TOW_ALGORITHM_DIRECT
#define TREE		TOW_ALGORITHM_TREE

static const struct table tables[] = {
	{ 0, 0, 0, { DIRECT, RING }, { TREE, RING } },
	{ 1, 0, 1, { RING, RING }, { RING, RING } },
	{ RANKS - 1, HUGE_BYTES, HUGE_BYTES, { TREE, TREE }, { TREE, TREE } },
	{ RANKS, HUGE_BYTES, 0, { DIRECT, DIRECT }, { TREE, RING } },
	{ 0, 4ULL * 1003 - 1, 4ULL * 1003, { TREE, RING }, { RING, RING } },
	{ 0, 4ULL * 1003 - 1, 16ULL * 1003, { TREE, RING }, { TREE, RING } },
};

static struct tow_comm_attr attr_of_table(const struct table *table)
{
	return (struct tow_comm_attr){ .size = sizeof(struct tow_comm_attr),
				       .timeout_ms = ENDS_MS,
				       .direct_ranks = table->direct_ranks,
				       .direct_bytes = table->direct_bytes,
				       .tree_bytes = table->tree_bytes };
}

/* ---- one call ---------------------------------------------------------------- */

/* Their sums depend on the order. */
static void put_rough(const struct tow_mate *me, float *to, uint64_t count)
{
	uint64_t mixed = me->rank + 1;

	for (uint64_t at = 0; at < count; at++) {
		mixed = mixed * 6364136223846793005ULL + 1442695040888963407ULL;
		to[at] = (float)(mixed >> 32) / (float)(3 << at % 8);
	}
}

/* That it goes by @algorithm, in pieces of that size; 0: of any. */
static bool tells(const struct tow_mate *me, const struct tow_work *work, uint32_t algorithm,
		  uint64_t piece_bytes)
{
	struct tow_work_info info = { .size = sizeof(info) };
	int ret = tow_work_info(work, &info);

	if (!ret && info.size == sizeof(info) && info.rank == TOW_NO_RANK && !info.tag &&
	    !info.bytes && info.algorithm == algorithm &&
	    (piece_bytes ? info.piece_bytes == piece_bytes :
			   info.piece_bytes && info.piece_bytes <= 256U << 10) &&
	    info.piece_bytes % 64 == 0)
		return true;
	fprintf(stderr, "# rank %u: %d: by %u in pieces of %" PRIu64 ", not by %u of %" PRIu64 "\n",
		me->rank, ret, info.algorithm, info.piece_bytes, algorithm, piece_bytes);
	return false;
}

static bool ends_so(const struct tow_mate *me, struct tow_work *work, uint32_t algorithm,
		    uint64_t piece_bytes)
{
	bool well = tow_work_wait(work, TOW_WAIT_FOREVER, NULL) == 1 &&
		    tells(me, work, algorithm, piece_bytes);

	tow_work_free(work);
	return well;
}

/* By what @asked asks for, which is @algorithm: a digest of what comes out, or 0. */
static uint64_t reduced(const struct tow_mate *me, uint64_t count,
			const struct tow_call_attr *asked, uint32_t algorithm)
{
	/* Of some ranks, where others may not write. */
	bool outside = me->rank % 2;
	float *data = outside ? malloc(count * sizeof(*data)) :
				tow_arena_alloc(me->arena, count * sizeof(*data));
	struct tow_work *work;
	uint64_t digest = 0;

	put_rough(me, data, count);
	if (!tow_allreduce(me->comm, NULL, data, count, tow_dtypes[0], TOW_SUM, asked, &work) &&
	    ends_so(me, work, algorithm, asked ? asked->piece_bytes : 0))
		digest = tow_digest(data, count * sizeof(*data));
	if (outside)
		free(data);
	else
		tow_arena_free(me->arena, data);
	return digest;
}

static bool is_sent(const struct tow_mate *me, uint64_t count, uint32_t algorithm)
{
	float *data = tow_arena_alloc(me->arena, count * sizeof(*data));
	struct tow_work *work;
	bool well;

	well = data && !tow_broadcast(me->comm, data, count, tow_dtypes[0], 1, NULL, &work) &&
	       ends_so(me, work, algorithm, 0);
	tow_arena_free(me->arena, data);
	return well;
}

/* ---- by whichever table ------------------------------------------------------ */

/* By size and algorithm, as the first communicator had them. */
static uint64_t digests[ARRAY_SIZE(sizes)][WAYS];

/* All ranks have the same, and so has each communicator. */
static bool is_kept(const struct tow_mate *me, uint32_t size, uint32_t algorithm, uint64_t digest)
{
	bool well;

	atomic_store(&board->digests[me->rank][0], digest);
	if (!all_here(me))
		return false;
	well = digest && digest == atomic_load(&board->digests[0][0]);
	if (!digests[size][algorithm])
		digests[size][algorithm] = digest;
	well &= digest == digests[size][algorithm];
	if (!well)
		fprintf(stderr, "# rank %u: other bits of %" PRIu64 " elements by %u\n", me->rank,
			sizes[size], algorithm);
	/* All have looked. */
	return all_here(me) && well;
}

static bool goes_as_asked(const struct tow_mate *me, uint32_t size)
{
	static const uint64_t asked_pieces[] = { 64U << 10, 4096 };
	bool well = true;

	for (uint32_t i = 0; i < ARRAY_SIZE(asked_pieces); i++) {
		for (uint32_t algorithm = RING; algorithm < WAYS; algorithm++) {
			const struct tow_call_attr asked = {
				.size = sizeof(asked), .algorithm = algorithm,
				.piece_bytes = asked_pieces[i],
			};

			well &= is_kept(me, size, algorithm,
					reduced(me, sizes[size], &asked, algorithm));
		}
	}
	return well;
}

static bool goes_by_table(const struct tow_mate *me, const struct table *table)
{
	bool well = true;

	for (uint32_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		well &= goes_as_asked(me, i);
		well &= is_kept(me, i, table->reduced[i],
				reduced(me, sizes[i], NULL, table->reduced[i]));
		well &= is_sent(me, sizes[i], table->sent[i]);
	}
	return well;
}

/* It is as the one that it is of, whatever it is told. */
static bool splits_as(const struct tow_mate *me, const struct table *table)
{
	static const uint32_t all[] = { 0, 1, 2, 3 };
	struct tow_comm_attr attr = attr_of_table(table);
	struct tow_mate split = *me;
	bool said = attr.direct_ranks || attr.direct_bytes || attr.tree_bytes, well = true;

	split.comm = NULL;
	if (said)
		well = tow_comm_split(me->comm, all, RANKS, 1, &attr, &split.comm) == -EINVAL;
	if (tow_comm_split(me->comm, all, RANKS, 1, NULL, &split.comm))
		return false;
	well &= goes_by_table(&split, table);
	return !tow_comm_destroy(split.comm) && well;
}

/* Rank 0 says that, and each other one something else. */
static bool by_table(const struct tow_mate *me, uint32_t number)
{
	const struct table *table = &tables[number];
	struct tow_comm_attr attr = attr_of_table(&tables[(number + me->rank) % ARRAY_SIZE(tables)]);
	struct tow_mate with = *me;
	bool well;

	if (tow_comm_create(me->group, me->arena, &attr, &with.comm, NULL))
		return false;
	well = goes_by_table(&with, table) && splits_as(&with, table);
	return !tow_comm_destroy(with.comm) && well;
}

/* Else nothing of this says anything. */
static bool orders_matter(void)
{
	for (uint32_t i = 0; i < ARRAY_SIZE(sizes); i++)
		if (digests[i][RING] == digests[i][DIRECT] || digests[i][RING] == digests[i][TREE] ||
		    digests[i][DIRECT] == digests[i][TREE])
			return false;
	return true;
}

static bool barrier_has_none(const struct tow_mate *me)
{
	struct tow_work_info info = { .size = sizeof(info), .algorithm = 1, .piece_bytes = 1 };
	struct tow_work *work;
	bool well;

	if (tow_barrier(me->comm, NULL, &work))
		return false;
	well = tow_work_wait(work, TOW_WAIT_FOREVER, NULL) == 1 && !tow_work_info(work, &info) &&
	       info.algorithm == TOW_ALGORITHM_ANY && !info.piece_bytes;
	tow_work_free(work);
	return well;
}

static int plans(struct tow_mate *me, uint32_t arg)
{
	(void)arg;
	if (!goes_by_table(me, &tables[0]) || !orders_matter() || !barrier_has_none(me))
		return WRONG(me);
	for (uint32_t number = 0; number < ARRAY_SIZE(tables); number++)
		if (!by_table(me, number))
			return WRONG(me);
	return 0;
}

TEST_F_TIMEOUT(calls, plans_are_those_of_rank_0, 120)
{
	all_play(_metadata, self, RANKS, plans, 0);
}

TEST_HARNESS_MAIN

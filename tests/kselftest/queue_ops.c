// SPDX-License-Identifier: GPL-2.0
/*
 * What entries of a queue do: every byte that is to be moved is, and no other
 * changes: lengths and places of every kind, at both ends; runs of neighbours,
 * which may go as one; atomics; entries without a completion.
 *
 * queue_status.c has what is refused, queue_order.c what comes after what.
 */
#include <pthread.h>
#include "tow_places.h"

#define POOL_BYTES	(8 * TOW_SLAB)
#define ENTRIES		64

FIXTURE(ops)
{
	struct tow_user user;
	struct tow_random random;
	struct tow_place ours[TOW_PLACE_KINDS];
	struct tow_place theirs[TOW_PLACE_KINDS];
};

FIXTURE_SETUP(ops)
{
	__u32 rights = TOW_RIGHT_READ | TOW_RIGHT_WRITE;
	int kind;

	self->random.state = 0x7175657565;
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_user_make(&self->user, ENTRIES, 0));
	if (tow_has_atomics(self->user.fd))
		rights |= TOW_RIGHT_ATOMIC;
	for (kind = 0; kind < TOW_PLACE_KINDS; kind++) {
		ASSERT_EQ(0, tow_place_make(self->user.fd, kind, &self->random,
					    &self->ours[kind]));
		ASSERT_EQ(0, tow_place_make(self->user.fd, kind, &self->random,
					    &self->theirs[kind]));
		ASSERT_EQ(0, tow_place_publish(&self->user, tow_place_name[kind], rights,
					       &self->theirs[kind]));
	}
}

/* That nothing stays when the process ends, the next case's beginning shows. */
FIXTURE_TEARDOWN(ops)
{
	int kind;

	for (kind = 0; kind < TOW_PLACE_KINDS; kind++) {
		EXPECT_TRUE(tow_place_good(&self->ours[kind]))
			TH_LOG("our %s: a byte changed that nobody wrote", tow_place_name[kind]);
		EXPECT_TRUE(tow_place_good(&self->theirs[kind]))
			TH_LOG("their %s: a byte changed that nobody wrote",
			       tow_place_name[kind]);
	}
}

/* ---- one entry at a time ----------------------------------------------------------- */

static struct tow_sqe move(const FIXTURE_DATA(ops) *self, __u8 opcode,
			   const struct tow_place *ours, size_t offset,
			   const struct tow_place *theirs, size_t remote_offset, size_t bytes)
{
	return tow_move(&self->user, opcode, ours->region, offset, theirs->remote, remote_offset,
			bytes);
}

/* New bytes at the source, and what comes of them. */
static void expect_move(FIXTURE_DATA(ops) *self, __u8 opcode, struct tow_place *ours,
			size_t offset, struct tow_place *theirs, size_t remote_offset,
			size_t bytes)
{
	if (opcode == TOW_OP_WRITE) {
		tow_place_renew(ours, offset, bytes, &self->random);
		tow_place_expect(theirs, remote_offset, ours, offset, bytes);
	} else {
		tow_place_renew(theirs, remote_offset, bytes, &self->random);
		tow_place_expect(ours, offset, theirs, remote_offset, bytes);
	}
}

static void check_move(struct __test_metadata *_metadata, FIXTURE_DATA(ops) *self, __u8 opcode,
		       struct tow_place *ours, size_t offset, struct tow_place *theirs,
		       size_t remote_offset, size_t bytes)
{
	struct tow_sqe sqe = move(self, opcode, ours, offset, theirs, remote_offset, bytes);

	sqe.user_data = tow_random(&self->random);
	expect_move(self, opcode, ours, offset, theirs, remote_offset, bytes);
	ASSERT_EQ(0, tow_rings_do(&self->user.rings, &sqe))
		TH_LOG("opcode %u, %zu bytes, %zu, %zu", opcode, bytes, offset, remote_offset);
	ASSERT_TRUE(tow_place_good_around(ours, offset, bytes) &&
		    tow_place_good_around(theirs, remote_offset, bytes))
		TH_LOG("opcode %u, %zu bytes, %zu, %zu", opcode, bytes, offset, remote_offset);
}

/* Where a range of so many bytes is put: at the beginning, over a border, at the end. */
static size_t put_at(const struct tow_place *place, size_t where, size_t bytes)
{
	if (!where || (where == 1 && bytes / 2 > place->border))
		return 0;
	return where == 1 ? place->border - bytes / 2 : place->bytes - bytes;
}

static void check_lengths(struct __test_metadata *_metadata, FIXTURE_DATA(ops) *self,
			  struct tow_place *ours, struct tow_place *theirs)
{
	const size_t lengths[] = {
		0, 1, 2, 3, 7, 13, 61, 127, 509, 1021, 4093, 4096, 4099, 16381, 65536, 65537,
	};
	size_t i, place;

	for (i = 0; i < ARRAY_SIZE(lengths); i++) {
		for (place = 0; place < 9; place++) {
			size_t offset = put_at(ours, place / 3, lengths[i]);
			size_t remote_offset = put_at(theirs, place % 3, lengths[i]);

			check_move(_metadata, self, TOW_OP_WRITE, ours, offset, theirs,
				   remote_offset, lengths[i]);
			check_move(_metadata, self, TOW_OP_READ, ours, offset, theirs,
				   remote_offset, lengths[i]);
		}
	}
}

FIXTURE_VARIANT(ops)
{
	enum tow_place_kind ours, theirs;
};

FIXTURE_VARIANT_ADD(ops, large_to_large)
{
	.ours = TOW_PLACE_LARGE, .theirs = TOW_PLACE_LARGE,
};

FIXTURE_VARIANT_ADD(ops, large_to_small)
{
	.ours = TOW_PLACE_LARGE, .theirs = TOW_PLACE_SMALL,
};

FIXTURE_VARIANT_ADD(ops, small_to_import)
{
	.ours = TOW_PLACE_SMALL, .theirs = TOW_PLACE_IMPORT,
};

FIXTURE_VARIANT_ADD(ops, import_to_large)
{
	.ours = TOW_PLACE_IMPORT, .theirs = TOW_PLACE_LARGE,
};

FIXTURE_VARIANT_ADD(ops, import_to_import)
{
	.ours = TOW_PLACE_IMPORT, .theirs = TOW_PLACE_IMPORT,
};

TEST_F_TIMEOUT(ops, lengths_and_borders, 120)
{
	check_lengths(_metadata, self, &self->ours[variant->ours], &self->theirs[variant->theirs]);
}

/* As much as the smaller of the two has, over all their borders. */
TEST_F_TIMEOUT(ops, whole, 120)
{
	struct tow_place *theirs = &self->theirs[variant->theirs];
	struct tow_place *ours = &self->ours[variant->ours];
	size_t bytes = ours->bytes < theirs->bytes ? ours->bytes : theirs->bytes;

	check_move(_metadata, self, TOW_OP_WRITE, ours, 0, theirs, 0, bytes);
	check_move(_metadata, self, TOW_OP_READ, ours, ours->bytes - bytes, theirs,
		   theirs->bytes - bytes, bytes);
}

/* ---- many at a time ------------------------------------------------------------------ */

#define RUN	32

/* A range in pieces, and in which order they are submitted. */
struct pieces {
	size_t start[RUN + 1];		/* of each; the last one is the end */
	unsigned int order[RUN];
};

enum arrangement { ASCENDING, DESCENDING, SHUFFLED, ARRANGEMENTS };

static void cut(struct tow_random *random, size_t bytes, enum arrangement arrangement,
		struct pieces *pieces)
{
	unsigned int i, other, kept;

	pieces->start[0] = 0;
	for (i = 1; i <= RUN; i++)
		pieces->start[i] = bytes * i / RUN + (i < RUN ? tow_random_below(random, 8) : 0);
	for (i = 0; i < RUN; i++)
		pieces->order[i] = arrangement == DESCENDING ? RUN - 1 - i : i;
	for (i = RUN - 1; i && arrangement == SHUFFLED; i--) {
		other = (unsigned int)tow_random_below(random, i + 1);
		kept = pieces->order[i];
		pieces->order[i] = pieces->order[other];
		pieces->order[other] = kept;
	}
}

/*
 * Each entry of a run ends once, successfully, unless it is silent: those of which
 * the bits are in @silent do not say anything.
 */
static void check_run(struct __test_metadata *_metadata, struct tow_rings *rings, uint32_t silent)
{
	__u32 wanted = RUN - (__u32)__builtin_popcount(silent);
	struct tow_sqe last = { .flags = TOW_SQE_FENCE, .user_data = RUN };
	uint64_t seen = 0;
	struct tow_cqe cqe;
	__u32 i;

	/* When this one has ended, all have. */
	ASSERT_TRUE(tow_rings_put(rings, &last));
	ASSERT_EQ(RUN + 1, tow_rings_enter(rings, wanted + 1, TOW_LONG_US));
	ASSERT_EQ(wanted + 1, tow_rings_ready(rings));
	for (i = 0; i <= wanted; i++) {
		ASSERT_TRUE(tow_rings_take(rings, &cqe));
		ASSERT_GE(RUN, cqe.user_data);
		EXPECT_EQ(0, cqe.status);
		seen |= 1ULL << cqe.user_data;
	}
	EXPECT_EQ(((1ULL << (RUN + 1)) - 1) & ~(uint64_t)silent, seen);
}

static void put_run(struct __test_metadata *_metadata, FIXTURE_DATA(ops) *self, __u8 opcode,
		    struct tow_place *ours, size_t offset, struct tow_place *theirs,
		    size_t remote_offset, const struct pieces *pieces, uint32_t silent)
{
	unsigned int i;

	for (i = 0; i < RUN; i++) {
		unsigned int piece = pieces->order[i];
		size_t start = pieces->start[piece];
		struct tow_sqe sqe = move(self, opcode, ours, offset + start, theirs,
					  remote_offset + start, pieces->start[piece + 1] - start);

		sqe.user_data = piece;
		if (silent & 1U << piece)
			sqe.flags = TOW_SQE_SILENT;
		ASSERT_TRUE(tow_rings_put(&self->user.rings, &sqe));
	}
}

/*
 * Neighbours at both ends, in every order, over borders: what goes as one is, for
 * whoever looks, what it would have been by itself.
 */
TEST_F_TIMEOUT(ops, runs_of_neighbours, 120)
{
	const size_t lengths[] = { 1024, 40000, 150000 };
	struct tow_place *theirs = &self->theirs[variant->theirs];
	struct tow_place *ours = &self->ours[variant->ours];
	struct pieces pieces;
	size_t i, how;

	for (i = 0; i < ARRAY_SIZE(lengths) * ARRANGEMENTS * 2; i++) {
		__u8 opcode = i & 1 ? TOW_OP_READ : TOW_OP_WRITE;
		size_t bytes = lengths[i / 2 % ARRAY_SIZE(lengths)];
		size_t offset, remote_offset;
		uint32_t silent;

		how = i / 2 / ARRAY_SIZE(lengths);
		offset = tow_random_below(&self->random, ours->bytes - bytes);
		remote_offset = how == SHUFFLED ? put_at(theirs, 1, bytes) : 0;
		silent = i & 2 ? (uint32_t)tow_random(&self->random) : 0;
		cut(&self->random, bytes, how, &pieces);
		expect_move(self, opcode, ours, offset, theirs, remote_offset, bytes);
		put_run(_metadata, self, opcode, ours, offset, theirs, remote_offset, &pieces,
			silent);
		check_run(_metadata, &self->user.rings, silent);
		ASSERT_TRUE(tow_place_good_around(ours, offset, bytes) &&
			    tow_place_good_around(theirs, remote_offset, bytes))
			TH_LOG("%zu bytes, arrangement %zu, opcode %u", bytes, how, opcode);
	}
}

/* The same bytes again and again in one batch: what came last is there. */
TEST_F(ops, later_writes_win)
{
	struct tow_place *theirs = &self->theirs[variant->theirs];
	struct tow_place *ours = &self->ours[variant->ours];
	size_t bytes = 300, i;

	for (i = 0; i < RUN; i++) {
		struct tow_sqe sqe = move(self, TOW_OP_WRITE, ours, i * bytes, theirs, i % 3,
					  bytes);

		sqe.user_data = i;
		tow_place_renew(ours, i * bytes, bytes, &self->random);
		tow_place_expect(theirs, i % 3, ours, i * bytes, bytes);
		ASSERT_TRUE(tow_rings_put(&self->user.rings, &sqe));
	}
	check_run(_metadata, &self->user.rings, 0);
	EXPECT_TRUE(tow_place_good_around(theirs, 0, bytes + 3));
}

/* ---- atomics ---------------------------------------------------------------------------- */

static struct tow_sqe atomic(const FIXTURE_DATA(ops) *self, __u8 opcode,
			     const struct tow_place *ours, size_t offset,
			     const struct tow_place *theirs, size_t remote_offset,
			     uint64_t compare, uint64_t operand)
{
	struct tow_sqe sqe = move(self, opcode, ours, offset, theirs, remote_offset, 0);

	sqe.compare = compare;
	sqe.operand = operand;
	return sqe;
}

/* A word of a place, and what must be in it. */
static uint64_t word_at(const char *at, size_t offset)
{
	uint64_t word;

	memcpy(&word, at + offset, sizeof(word));
	return word;
}

static void expect_word(struct tow_place *place, size_t offset, uint64_t word)
{
	memcpy(place->shadow + offset, &word, sizeof(word));
}

/* The first offset from here on that is a multiple of 8 as an address. */
static size_t aligned(const struct tow_place *place, size_t offset)
{
	return offset + (-(uintptr_t)(place->at + offset) & 7);
}

static void check_atomic(struct __test_metadata *_metadata, FIXTURE_DATA(ops) *self,
			 struct tow_sqe sqe, struct tow_place *ours, struct tow_place *theirs)
{
	uint64_t before = word_at(theirs->shadow, sqe.remote_offset), after = before;

	if (sqe.opcode == TOW_OP_FETCH_ADD)
		after += sqe.operand;
	else if (before == sqe.compare)
		after = sqe.operand;
	expect_word(theirs, sqe.remote_offset, after);
	expect_word(ours, sqe.offset, before);
	ASSERT_EQ(0, tow_rings_do(&self->user.rings, &sqe));
	EXPECT_EQ(before, word_at(ours->at, sqe.offset));
	EXPECT_EQ(after, word_at(theirs->at, sqe.remote_offset));
	EXPECT_TRUE(tow_place_good_around(ours, sqe.offset, 8));
	EXPECT_TRUE(tow_place_good_around(theirs, sqe.remote_offset, 8));
}

TEST_F(ops, atomics)
{
	const uint64_t numbers[] = { 0, 1, 7, ~0ULL, 1ULL << 32, 1ULL << 63, 0x0123456789abcdef };
	struct tow_place *theirs = &self->theirs[variant->theirs];
	struct tow_place *ours = &self->ours[variant->ours];
	size_t i, place;

	/* queue_status.c has what becomes of them. */
	if (!tow_has_atomics(self->user.fd))
		return;
	for (place = 0; place < 9; place++) {
		size_t offset = aligned(ours, put_at(ours, place / 3, 32));
		size_t at = aligned(theirs, put_at(theirs, place % 3, 32));

		for (i = 0; i < ARRAY_SIZE(numbers); i++) {
			check_atomic(_metadata, self,
				     atomic(self, TOW_OP_FETCH_ADD, ours, offset, theirs, at, 0,
					    numbers[i]), ours, theirs);
			/* It is what it is compared with; then it is not. */
			check_atomic(_metadata, self,
				     atomic(self, TOW_OP_COMPARE_SWAP, ours, offset, theirs, at,
					    word_at(theirs->at, at), numbers[i]), ours, theirs);
			check_atomic(_metadata, self,
				     atomic(self, TOW_OP_COMPARE_SWAP, ours, offset, theirs, at,
					    numbers[i] + 1, 5), ours, theirs);
		}
	}
}

/* ---- several queues and threads at one word ------------------------------------------------ */

#define ADDERS		4
#define ADDITIONS	200

struct adder {
	struct tow_user user;
	struct tow_mapped own;
	__u64 remote;
	uint64_t seen[ADDITIONS];	/* what was there before */
	int wrong;
	pthread_t thread;
};

static void *add(void *arg)
{
	struct adder *adder = arg;
	struct tow_sqe sqe = {
		.opcode = TOW_OP_FETCH_ADD, .channel = adder->user.channel,
		.region = adder->own.made.handle, .remote = adder->remote, .operand = 1,
	};
	int i;

	for (i = 0; i < ADDITIONS; i++) {
		sqe.user_data = (__u64)i;
		adder->wrong += tow_rings_do(&adder->user.rings, &sqe) != 0;
		adder->seen[i] = adder->own.words[0];
	}
	return NULL;
}

/* Every number from 0 on is somebody's, and nobody else's. */
TEST_F_TIMEOUT(ops, additions_of_several_clients, 60)
{
	struct tow_place *counter = &self->theirs[TOW_PLACE_SMALL];
	static struct adder adders[ADDERS];
	static bool seen[ADDERS * ADDITIONS];
	int i, j;

	if (variant->ours != TOW_PLACE_LARGE || variant->theirs != TOW_PLACE_LARGE ||
	    !tow_has_atomics(self->user.fd))
		return;
	memset(counter->at, 0, sizeof(uint64_t));
	expect_word(counter, 0, (uint64_t)ADDERS * ADDITIONS);
	for (i = 0; i < ADDERS; i++) {
		ASSERT_EQ(0, tow_user_make(&adders[i].user, 1, 0));
		ASSERT_EQ(0, tow_mapped_make(adders[i].user.fd, 64, &adders[i].own));
		ASSERT_EQ(0, tow_find_for(adders[i].user.fd, adders[i].user.peer,
					  tow_place_name[TOW_PLACE_SMALL], TOW_ALL_RIGHTS,
					  &adders[i].remote));
	}
	for (i = 0; i < ADDERS; i++)
		ASSERT_EQ(0, pthread_create(&adders[i].thread, NULL, add, &adders[i]));
	for (i = 0; i < ADDERS; i++) {
		ASSERT_EQ(0, pthread_join(adders[i].thread, NULL));
		EXPECT_EQ(0, adders[i].wrong);
		for (j = 0; j < ADDITIONS; j++) {
			ASSERT_GT(ADDERS * ADDITIONS, adders[i].seen[j]);
			EXPECT_FALSE(seen[adders[i].seen[j]]);
			seen[adders[i].seen[j]] = true;
		}
		EXPECT_EQ(0, tow_mapped_end(&adders[i].own));
		tow_user_end(&adders[i].user);
	}
}

/* ---- entries that say nothing ---------------------------------------------------------------- */

/* Far more of them than there is room for completions: none is kept for them. */
TEST_F(ops, silent_ones_need_no_room)
{
	struct tow_place *theirs = &self->theirs[variant->theirs];
	struct tow_place *ours = &self->ours[variant->ours];
	struct tow_sqe fence = { .flags = TOW_SQE_FENCE, .user_data = 1 };
	struct tow_rings *rings = &self->user.rings;
	__u32 i;

	for (i = 0; i < 5 * rings->made.cq_entries; i++) {
		struct tow_sqe sqe = move(self, TOW_OP_WRITE, ours, i, theirs, i, 1);

		sqe.flags = TOW_SQE_SILENT;
		sqe.user_data = 2;
		tow_place_expect(theirs, i, ours, i, 1);
		ASSERT_TRUE(tow_rings_put(rings, &sqe));
		if (tow_rings_next(rings)) {
			rings->tail--;
			continue;
		}
		/* Full; when the fence has ended all have. */
		ASSERT_EQ(rings->made.sq_entries, tow_rings_enter(rings, 0, 0));
		ASSERT_EQ(0, tow_rings_do(rings, &fence));
		EXPECT_EQ(0, tow_rings_ready(rings));
	}
	EXPECT_TRUE(tow_place_good_around(theirs, 0, i));
}

TEST_HARNESS_MAIN

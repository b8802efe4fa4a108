// SPDX-License-Identifier: GPL-2.0
/*
 * Entries that move many pieces: every byte of each piece is moved, and no other is,
 * whatever the pieces are, and wherever the list of them is; all of an entry is checked
 * before any of it is moved; the list is read once.  In all else each is one entry: it is
 * told of once, notifies once, is late once, and ends with what it is of.
 */
#include "tow_deadline.h"

#define PIECE_BYTES	sizeof(struct tow_vector)
#define LIST_BYTES	(TOW_VECTOR_MAX * PIECE_BYTES)

/* ---- every byte ---------------------------------------------------------------------- */

FIXTURE(pieces)
{
	struct tow_user user;
	struct tow_random random;
	struct tow_place ours, theirs, list;
};

FIXTURE_VARIANT(pieces)
{
	enum tow_place_kind ours, theirs, list;
	unsigned int most;
};

FIXTURE_VARIANT_ADD(pieces, large)
{
	.ours = TOW_PLACE_LARGE, .theirs = TOW_PLACE_LARGE, .list = TOW_PLACE_LARGE,
	.most = TOW_VECTOR_MAX,
};

FIXTURE_VARIANT_ADD(pieces, small)
{
	.ours = TOW_PLACE_LARGE, .theirs = TOW_PLACE_SMALL, .list = TOW_PLACE_SMALL,
	.most = 500,
};

FIXTURE_VARIANT_ADD(pieces, import)
{
	.ours = TOW_PLACE_IMPORT, .theirs = TOW_PLACE_IMPORT, .list = TOW_PLACE_IMPORT,
	.most = 500,
};

FIXTURE_SETUP(pieces)
{
	self->random.state = 0x766563746f72;
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_user_make(&self->user, ENTRIES, 0));
	ASSERT_EQ(0, tow_place_make(self->user.fd, variant->ours, &self->random, &self->ours));
	ASSERT_EQ(0, tow_place_make(self->user.fd, variant->theirs, &self->random,
				    &self->theirs));
	ASSERT_EQ(0, tow_place_make(self->user.fd, variant->list, &self->random, &self->list));
	ASSERT_EQ(0, tow_place_publish(&self->user, "theirs", TOW_RIGHT_READ | TOW_RIGHT_WRITE,
				       &self->theirs));
}

FIXTURE_TEARDOWN(pieces)
{
	EXPECT_TRUE(tow_place_good(&self->list));
}

struct piece {
	size_t from, to, bytes;
};

/* From anywhere; to all over a place, without overlap, in any order. */
static void plan(struct tow_random *random, const struct tow_place *from,
		 const struct tow_place *to, unsigned int count, struct piece *pieces)
{
	size_t room = to->bytes / count, most = room < from->bytes ? room : from->bytes;
	struct piece kept;
	unsigned int i, other;

	for (i = 0; i < count; i++) {
		pieces[i].bytes = 1 + tow_random_below(random, i % 3 ? most : most / 16 + 1);
		pieces[i].to = i * room + tow_random_below(random, room - pieces[i].bytes + 1);
		pieces[i].from = tow_random_below(random, from->bytes - pieces[i].bytes + 1);
		other = (unsigned int)tow_random_below(random, i + 1);
		kept = pieces[other];
		pieces[other] = pieces[i];
		pieces[i] = kept;
	}
}

/* In the middle of the list's place, over a border. */
static size_t write_list(struct tow_place *place, const struct piece *pieces, unsigned int count,
			 bool reads)
{
	size_t at = (place->border - count / 2 * PIECE_BYTES) & ~(size_t)7;
	struct tow_vector *list = (struct tow_vector *)(place->shadow + at);
	unsigned int i;

	for (i = 0; i < count; i++)
		list[i] = (struct tow_vector) {
			.offset = reads ? pieces[i].to : pieces[i].from,
			.remote_offset = reads ? pieces[i].from : pieces[i].to,
			.bytes = pieces[i].bytes,
		};
	memcpy(place->at + at, list, count * PIECE_BYTES);
	return at;
}

static void check_pieces(struct __test_metadata *_metadata, FIXTURE_DATA(pieces) *self,
			 __u8 opcode, unsigned int count)
{
	static struct piece pieces[TOW_VECTOR_MAX];
	bool reads = opcode == TOW_OP_READ;
	struct tow_place *from = reads ? &self->theirs : &self->ours;
	struct tow_place *to = reads ? &self->ours : &self->theirs;
	struct tow_sqe sqe = {
		.opcode = opcode, .flags = TOW_SQE_VECTOR, .channel = self->user.channel,
		.user_data = count, .region = self->ours.region, .remote = self->theirs.remote,
		.vector = self->list.region, .bytes = count * PIECE_BYTES,
	};
	unsigned int i;

	tow_place_renew(from, 0, from->bytes, &self->random);
	plan(&self->random, from, to, count, pieces);
	for (i = 0; i < count; i++)
		tow_place_expect(to, pieces[i].to, from, pieces[i].from, pieces[i].bytes);
	sqe.vector_offset = write_list(&self->list, pieces, count, reads);
	ASSERT_EQ(0, tow_rings_do(&self->user.rings, &sqe))
		TH_LOG("opcode %u, %u pieces", opcode, count);
	ASSERT_TRUE(tow_place_good(from) && tow_place_good(to))
		TH_LOG("opcode %u, %u pieces", opcode, count);
}

TEST_F_TIMEOUT(pieces, random_places, 120)
{
	const unsigned int counts[] = { 1, 2, 3, 61, variant->most };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(counts); i++) {
		check_pieces(_metadata, self, TOW_OP_WRITE, counts[i]);
		check_pieces(_metadata, self, TOW_OP_READ, counts[i]);
	}
}

/* ---- one of many entries ------------------------------------------------------------- */

FIXTURE(vector)
{
	struct tow_timed timed;
	struct tow_mapped list;
	struct tow_vector *pieces;
};

FIXTURE_SETUP(vector)
{
	ASSERT_EQ(0, tow_timed_make(&self->timed));
	ASSERT_EQ(0, tow_mapped_make(self->timed.user.fd, LIST_BYTES, &self->list));
	self->pieces = (struct tow_vector *)self->list.at;
}

FIXTURE_TEARDOWN_PARENT(vector)
{
	EXPECT_EQ(0, tow_timed_restore(&self->timed));
}

/* Where pieces are; the slot is before. */
#define FIRST		4096
#define AREA_BYTES	(LARGE_BYTES - FIRST)

/* Pieces, where it need not be as many as can be. */
#define SOME		512U

/* Of so many pieces, which the list has from number @first on. */
static struct tow_sqe vector(const FIXTURE_DATA(vector) *self, __u8 opcode, unsigned int first,
			     unsigned int count)
{
	struct tow_sqe sqe = tow_move(&self->timed.user, opcode, self->timed.own.made.handle,
				      self->list.made.handle, self->timed.remote,
				      first * PIECE_BYTES, count * PIECE_BYTES);

	sqe.flags = TOW_SQE_VECTOR;
	if (opcode == TOW_OP_WRITE_NOTIFY)
		sqe.operand = self->timed.slot;
	return sqe;
}

/* All of the area in so many pieces of the same size, the last one first. */
static size_t cut(const FIXTURE_DATA(vector) *self, unsigned int count)
{
	size_t size = AREA_BYTES / count;
	unsigned int i;

	for (i = 0; i < count; i++) {
		self->pieces[i].offset = FIRST + (count - 1 - i) * size;
		self->pieces[i].remote_offset = self->pieces[i].offset;
		self->pieces[i].bytes = size;
	}
	return count * size;
}

/* Other bytes here than there. */
static void renew(const FIXTURE_DATA(vector) *self, char byte)
{
	memset(self->timed.own.at + FIRST, byte, AREA_BYTES);
	memset(self->timed.target.at, 0, LARGE_BYTES);
}

/* Bytes of the area that were moved. */
static size_t arrived(const FIXTURE_DATA(vector) *self)
{
	const char *own = self->timed.own.at, *target = self->timed.target.at;
	size_t at, count = 0;

	for (at = FIRST; at < LARGE_BYTES; at++)
		count += own[at] == target[at];
	return count;
}

static void refused(struct __test_metadata *_metadata, FIXTURE_DATA(vector) *self, int status,
		    struct tow_sqe sqe)
{
	struct tow_rings *rings = &self->timed.user.rings;

	sqe.user_data++;
	EXPECT_EQ(status, tow_rings_do(rings, &sqe))
		TH_LOG("opcode %u, list at %llu, %llu bytes", sqe.opcode, sqe.vector_offset,
		       sqe.bytes);
}

/* ---- what is refused ----------------------------------------------------------------- */

static const __u8 moves[] = { TOW_OP_WRITE, TOW_OP_READ, TOW_OP_WRITE_NOTIFY };

TEST_F(vector, opcodes)
{
	const __u8 others[] = { TOW_OP_NOP, TOW_OP_FETCH_ADD, TOW_OP_COMPARE_SWAP, TOW_OP_WAIT };
	struct tow_sqe sqe;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(others); i++) {
		sqe = (struct tow_sqe){ .opcode = others[i], .flags = TOW_SQE_VECTOR };
		refused(_metadata, self, -EINVAL, sqe);
		sqe = vector(self, TOW_OP_WRITE, 0, 1);
		sqe.opcode = others[i];
		refused(_metadata, self, -EINVAL, sqe);
	}
	/* What has no list is no vector. */
	sqe = notify(&self->timed);
	sqe.flags = TOW_SQE_VECTOR;
	refused(_metadata, self, -EINVAL, sqe);
	sqe = vector(self, TOW_OP_WRITE, 0, 1);
	sqe.operand = 1;
	refused(_metadata, self, -EINVAL, sqe);
}

TEST_F(vector, lists)
{
	const __u64 sizes[] = {
		0, 1, 8, 23, 25, 24 * 7 + 8, 24 * (TOW_VECTOR_MAX + 1ULL), ~0ULL, 24ULL << 32,
	};
	const __u64 beyond[] = { 1, 24, 1ULL << 40, 1ULL << 63 };
	struct tow_sqe good = vector(self, TOW_OP_WRITE, 0, 3), sqe;
	size_t i;

	cut(self, 3);
	renew(self, 'x');
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		sqe = good;
		sqe.bytes = sizes[i];
		refused(_metadata, self, -EINVAL, sqe);
	}
	for (i = 1; i < 8; i++) {
		sqe = good;
		sqe.vector_offset = i;
		refused(_metadata, self, -EINVAL, sqe);
	}
	for (i = 0; i < ARRAY_SIZE(beyond); i++) {
		sqe = good;
		sqe.vector_offset = (self->list.bytes - 3 * PIECE_BYTES + beyond[i] + 7) & ~7ULL;
		refused(_metadata, self, -ERANGE, sqe);
	}
	sqe = good;
	sqe.vector = self->timed.remote;
	refused(_metadata, self, -EBADF, sqe);
	sqe.vector = 0;
	refused(_metadata, self, -EBADF, sqe);
	EXPECT_EQ(0, arrived(self));
	/* As far behind as it can be. */
	sqe = good;
	sqe.vector_offset = (self->list.bytes - 3 * PIECE_BYTES) & ~7ULL;
	memmove(self->list.at + sqe.vector_offset, self->pieces, 3 * PIECE_BYTES);
	EXPECT_EQ(0, tow_rings_do(&self->timed.user.rings, &sqe));
	EXPECT_EQ(AREA_BYTES, arrived(self));
}

TEST_F(vector, handles)
{
	struct tow_sqe good, sqe;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(moves); i++) {
		cut(self, 3);
		good = vector(self, moves[i], 0, 3);
		sqe = good;
		sqe.region = self->timed.remote;
		refused(_metadata, self, -EBADF, sqe);
		sqe = good;
		sqe.remote = self->timed.own.made.handle;
		refused(_metadata, self, -EBADF, sqe);
		sqe = good;
		sqe.channel += 77;
		refused(_metadata, self, -EBADF, sqe);
	}
	sqe = vector(self, TOW_OP_WRITE, 0, 3);
	sqe.remote = self->timed.slot;
	refused(_metadata, self, -EACCES, sqe);
}

/* One of many that is wrong: nothing of it is moved. */
TEST_F(vector, pieces)
{
	const struct {
		int status;
		struct tow_vector piece;
	} wrong[] = {
		{ -EINVAL, { FIRST, FIRST, 0 } },
		{ -ERANGE, { LARGE_BYTES - 7, FIRST, 8 } },
		{ -ERANGE, { FIRST, LARGE_BYTES - 7, 8 } },
		{ -ERANGE, { LARGE_BYTES, FIRST, 1 } },
		{ -ERANGE, { FIRST, LARGE_BYTES, 1 } },
		{ -ERANGE, { 0, 0, LARGE_BYTES + 1 } },
		{ -ERANGE, { 1, 1, ~0ULL } },
		{ -ERANGE, { ~0ULL, FIRST, 2 } },
		{ -ERANGE, { FIRST, ~0ULL, 2 } },
		{ -ERANGE, { 1ULL << 63, FIRST, 1ULL << 63 } },
	};
	const unsigned int places[] = { 0, 77, TOW_VECTOR_MAX - 1 };
	unsigned int i, place;

	renew(self, 'x');
	for (i = 0; i < ARRAY_SIZE(wrong) * ARRAY_SIZE(places); i++) {
		place = places[i % ARRAY_SIZE(places)];
		cut(self, TOW_VECTOR_MAX);
		self->pieces[place] = wrong[i / ARRAY_SIZE(places)].piece;
		refused(_metadata, self, wrong[i / ARRAY_SIZE(places)].status,
			vector(self, i % 2 ? TOW_OP_READ : TOW_OP_WRITE, 0, TOW_VECTOR_MAX));
	}
	EXPECT_EQ(0, arrived(self));
	refused(_metadata, self, 0, vector(self, TOW_OP_WRITE, 0, 3));
}

/* A list may be where nothing can be written; what is read may not. */
TEST_F(vector, read_only)
{
	struct tow_timed *timed = &self->timed;
	void *memory = mmap(NULL, TOW_SLAB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);
	struct tow_sqe sqe;
	uint64_t region;

	ASSERT_NE(MAP_FAILED, memory);
	cut(self, 3);
	renew(self, 'x');
	memcpy(memory, self->pieces, 3 * PIECE_BYTES);
	ASSERT_EQ(0, tow_region_import(timed->user.fd, memory, TOW_SLAB, TOW_REGION_READONLY,
				       &region));
	sqe = vector(self, TOW_OP_WRITE, 0, 3);
	sqe.vector = region;
	refused(_metadata, self, 0, sqe);
	EXPECT_EQ(AREA_BYTES, arrived(self));
	self->pieces[0] = (struct tow_vector){ 0, 0, 8 };
	sqe = vector(self, TOW_OP_READ, 0, 1);
	sqe.region = region;
	refused(_metadata, self, -EACCES, sqe);
	EXPECT_EQ(0, tow_region_destroy(timed->user.fd, region));
	munmap(memory, TOW_SLAB);
}

/*
 * What the kernel remembers of them counts as entries do, and is given back, however they
 * end: with room for one, one after the other goes.
 */
TEST_F(vector, limits)
{
	struct tow_timed *timed = &self->timed;
	struct tow_rings *rings = &timed->user.rings;
	uint64_t have = rings->made.cq_entries + timed->side.made.cq_entries;
	struct tow_sqe sqe = vector(self, TOW_OP_WRITE, 0, SOME);
	const struct tow_vector beyond = { LARGE_BYTES, FIRST, 8 };
	int i;

	cut(self, SOME);
	ASSERT_EQ(0, tow_sysfs_set("client_queue_entries_limit", have + 63));
	refused(_metadata, self, -EDQUOT, sqe);
	sqe.bytes -= 8 * PIECE_BYTES;
	refused(_metadata, self, 0, sqe);
	sqe.bytes += PIECE_BYTES;
	refused(_metadata, self, -EDQUOT, sqe);
	sqe.bytes += 7 * PIECE_BYTES;
	ASSERT_EQ(0, tow_sysfs_set("client_queue_entries_limit", have + 64));
	for (i = 0; i < 5; i++) {
		refused(_metadata, self, 0, sqe);
		self->pieces[SOME - 1].bytes = 0;
		refused(_metadata, self, -EINVAL, sqe);
		cut(self, SOME);
		sqe.vector_offset = 8;
		sqe.vector = timed->own.made.handle;
		memcpy(timed->own.at + 8, &beyond, sizeof(beyond));
		refused(_metadata, self, -ERANGE, sqe);
		sqe = vector(self, TOW_OP_WRITE, 0, SOME);
	}
	ASSERT_EQ(0, tow_sysfs_set("client_queue_entries_limit", 1 << 18));
	ASSERT_EQ(0, tow_sysfs_set("queue_entries_limit", have));
	refused(_metadata, self, -ENOSPC, vector(self, TOW_OP_READ, 0, 1));
	ASSERT_EQ(0, tow_sysfs_set("queue_entries_limit", have + 1));
	refused(_metadata, self, 0, vector(self, TOW_OP_READ, 0, 8));
	refused(_metadata, self, -ENOSPC, vector(self, TOW_OP_READ, 0, 9));
}

/* ---- the list ------------------------------------------------------------------------ */

/* It is read once: from then on it may be another one, and its region may go. */
TEST_F(vector, list_may_change)
{
	struct tow_timed *timed = &self->timed;
	struct tow_rings *rings = &timed->user.rings;
	struct tow_sqe sqe = vector(self, TOW_OP_WRITE, 0, TOW_VECTOR_MAX);
	struct fate fates[2] = {};
	size_t bytes = cut(self, TOW_VECTOR_MAX);

	renew(self, 'x');
	put(_metadata, rings, sqe, TOW_SQE_VECTOR, 0);
	submit(_metadata, rings, 1);
	memset(self->pieces, 0xff, LIST_BYTES);
	sqe.opcode = TOW_OP_READ;
	put(_metadata, rings, sqe, TOW_SQE_VECTOR, 1);
	submit(_metadata, rings, 1);
	EXPECT_EQ(0, tow_mapped_end(&self->list));
	ASSERT_EQ(0, collect(rings, fates, 2, 2));
	EXPECT_EQ(0, fates[0].status);
	EXPECT_EQ(-ERANGE, fates[1].status);
	EXPECT_EQ(bytes, arrived(self));
	refused(_metadata, self, -EBADF, sqe);
}

/* The same entry twice, with another list; and a list beside what it is of. */
TEST_F(vector, again)
{
	struct tow_timed *timed = &self->timed;
	struct tow_rings *rings = &timed->user.rings;
	struct tow_sqe sqe = vector(self, TOW_OP_WRITE, 0, 1000);
	struct fate fates[2] = {};
	size_t bytes = cut(self, 2000);

	renew(self, 'x');
	put(_metadata, rings, sqe, TOW_SQE_VECTOR, 0);
	submit(_metadata, rings, 1);
	memmove(self->pieces, self->pieces + 1000, 1000 * PIECE_BYTES);
	put(_metadata, rings, sqe, TOW_SQE_VECTOR, 1);
	submit(_metadata, rings, 1);
	ASSERT_EQ(0, collect(rings, fates, 2, 2));
	EXPECT_EQ(0, fates[0].status);
	EXPECT_EQ(0, fates[1].status);
	EXPECT_EQ(bytes, arrived(self));
	renew(self, 'y');
	self->pieces[0] = (struct tow_vector){ FIRST, FIRST, AREA_BYTES };
	memcpy(timed->own.at + 8, self->pieces, PIECE_BYTES);
	sqe.vector = timed->own.made.handle;
	sqe.vector_offset = 8;
	sqe.bytes = PIECE_BYTES;
	refused(_metadata, self, 0, sqe);
	EXPECT_EQ(AREA_BYTES, arrived(self));
}

/* ---- as any entry -------------------------------------------------------------------- */

TEST_F(vector, copied)
{
	uint64_t copied = tow_sysfs_get("stats/copied_bytes");
	struct tow_sqe sqe = vector(self, TOW_OP_WRITE, 0, 100);
	size_t bytes = cut(self, 100);

	sqe.flags |= TOW_SQE_COPIED;
	refused(_metadata, self, 0, sqe);
	EXPECT_EQ(copied + bytes, tow_sysfs_get("stats/copied_bytes"));
}

/* Once, when all of it is there. */
TEST_F(vector, notifies)
{
	struct tow_timed *timed = &self->timed;
	struct tow_sqe sqe = vector(self, TOW_OP_WRITE_NOTIFY, 0, SOME);
	size_t bytes = cut(self, SOME);
	struct tow_cqe cqe;
	__u64 step;

	sqe.channel = timed->side_channel;
	for (step = 1; step <= 3; step++) {
		renew(self, (char)step);
		ASSERT_TRUE(tow_rings_put(&timed->side, &sqe));
		submit(_metadata, &timed->side, 1);
		ASSERT_EQ(step, tow_slot_await(timed->own.at, step));
		EXPECT_EQ(bytes, arrived(self));
		ASSERT_EQ(0, tow_rings_wait(&timed->side, &cqe));
		EXPECT_EQ(0, cqe.status);
	}
	EXPECT_EQ(0, go_on(timed));
	EXPECT_EQ(step, tow_slot_await(timed->own.at, step));
}

/* Linked, fenced, and silent. */
TEST_F(vector, chains)
{
	struct tow_timed *timed = &self->timed;
	struct tow_rings *rings = &timed->user.rings;
	struct fate fates[6] = {};
	size_t bytes = cut(self, 1000);

	renew(self, 'x');
	put(_metadata, rings, nop(0, 0), TOW_SQE_LINK, 0);
	put(_metadata, rings, vector(self, TOW_OP_WRITE, 0, 1000),
	    TOW_SQE_VECTOR | TOW_SQE_LINK | TOW_SQE_SILENT, 1);
	put(_metadata, rings, vector(self, TOW_OP_READ, 0, 1000), TOW_SQE_VECTOR, 2);
	put(_metadata, rings, nop(0, 0), TOW_SQE_FENCE, 3);
	submit(_metadata, rings, 4);
	ASSERT_EQ(0, collect(rings, fates, 6, 3));
	EXPECT_EQ(0, fates[0].status);
	EXPECT_EQ(0, fates[2].status);
	EXPECT_EQ(1, fates[2].order);
	EXPECT_EQ(0, fates[3].status);
	EXPECT_EQ(bytes, arrived(self));
	EXPECT_TRUE(silence(rings));
	/* One that is wrong: none of them begins. */
	renew(self, 'y');
	put(_metadata, rings, vector(self, TOW_OP_WRITE, 0, 999),
	    TOW_SQE_VECTOR | TOW_SQE_LINK | TOW_SQE_SILENT, 4);
	put(_metadata, rings, vector(self, TOW_OP_WRITE, 0, 1001), TOW_SQE_VECTOR, 5);
	submit(_metadata, rings, 2);
	ASSERT_EQ(0, collect(rings, fates, 6, 2));
	EXPECT_EQ(-ECANCELED, fates[4].status);
	EXPECT_EQ(-EINVAL, fates[5].status);
	EXPECT_EQ(0, arrived(self));
}

/* Late while some of it is on its way: HELD, until that is over; and no more of it is sent. */
TEST_F_TIMEOUT(vector, late, 60)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	struct tow_timed *timed = &self->timed;
	struct tow_sqe sqe = vector(self, TOW_OP_WRITE, 0, TOW_VECTOR_MAX);
	size_t bytes = cut(self, TOW_VECTOR_MAX), there;
	struct fate fate = {};

	sqe.timeout_ms = 1;
	do {
		memset(&fate, 0, sizeof(fate));
		renew(self, 'x');
		put(_metadata, &timed->user.rings, sqe, TOW_SQE_VECTOR, 0);
		submit(_metadata, &timed->user.rings, 1);
		ASSERT_EQ(0, collect(&timed->user.rings, &fate, 1, 1));
		/* Before any of it was sent, or not at all. */
		sqe.timeout_ms = fate.status ? 2 * sqe.timeout_ms : (sqe.timeout_ms + 1) / 2;
	} while (!(fate.held && fate.released) && tow_patient(&patience));
	EXPECT_TRUE(fate.held);
	EXPECT_EQ(-ETIMEDOUT, fate.released);
	there = arrived(self);
	EXPECT_GT(bytes, there);
	tow_test_sleep_ms(20);
	EXPECT_EQ(there, arrived(self));
	expect_works(_metadata, timed);
}

#define CROWD	8U

/* What it is of ends while they are under way: then nothing of it changes any more. */
TEST_F_TIMEOUT(vector, revoked, 60)
{
	struct tow_timed *timed = &self->timed;
	struct tow_user *user = &timed->user;
	struct fate fates[CROWD] = {};
	unsigned int i, stale = 0;
	__u64 exported, remote;

	cut(self, TOW_VECTOR_MAX);
	renew(self, 'x');
	ASSERT_EQ(0, tow_publish_for(user->fd, timed->target.made.handle, "revoked", LARGE_BYTES,
				     TOW_ALL_RIGHTS, &exported));
	ASSERT_EQ(0, tow_find_for(user->fd, user->peer, "revoked", TOW_ALL_RIGHTS, &remote));
	for (i = 0; i < CROWD; i++) {
		struct tow_sqe sqe = vector(self, TOW_OP_WRITE, 0, TOW_VECTOR_MAX);

		sqe.remote = remote;
		put(_metadata, &user->rings, sqe, TOW_SQE_VECTOR, i);
	}
	submit(_metadata, &user->rings, CROWD);
	ASSERT_EQ(0, tow_end_handle(user->fd, TOW_IOCTL_UNEXPORT, exported));
	memset(timed->target.at, 0, LARGE_BYTES);
	ASSERT_EQ(0, collect(&user->rings, fates, CROWD, CROWD));
	for (i = 0; i < CROWD; i++) {
		EXPECT_TRUE(!fates[i].status || fates[i].status == -ESTALE);
		stale += !!fates[i].status;
	}
	EXPECT_LT(0, stale);
	EXPECT_EQ(0, arrived(self));
}

/* Nothing is left of a queue that ends while they are under way. */
TEST_F(vector, queue_ends)
{
	struct tow_timed *timed = &self->timed;
	struct tow_sqe sqe = vector(self, TOW_OP_WRITE, 0, TOW_VECTOR_MAX);
	struct tow_rings rings;
	struct tow_channel_open channel;
	unsigned int i;

	cut(self, TOW_VECTOR_MAX);
	ASSERT_EQ(0, tow_rings_make(timed->user.fd, CROWD, CROWD, &rings));
	ASSERT_EQ(0, tow_channel_open(rings.made.fd, timed->user.peer, 0, &channel));
	sqe.channel = (__u16)channel.channel;
	for (i = 0; i < CROWD; i++)
		put(_metadata, &rings, sqe, TOW_SQE_VECTOR, i);
	submit(_metadata, &rings, CROWD);
	tow_rings_end(&rings);
	EXPECT_EQ(2, tow_sysfs_wait("stats/queues", 2));
	ASSERT_EQ(0, tow_sysfs_set("client_queue_entries_limit",
				   timed->user.rings.made.cq_entries +
				   timed->side.made.cq_entries + SOME / 8));
	refused(_metadata, self, 0, vector(self, TOW_OP_WRITE, 0, SOME));
	/* That was all there was room for. */
	ASSERT_EQ(0, tow_sysfs_set("client_queue_entries_limit",
				   timed->user.rings.made.cq_entries +
				   timed->side.made.cq_entries));
	refused(_metadata, self, -EDQUOT, vector(self, TOW_OP_WRITE, 0, 1));
}

TEST_HARNESS_MAIN

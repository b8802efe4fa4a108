// SPDX-License-Identifier: GPL-2.0
/*
 * Arenas on the real module's pool: regions come and go, limits and an empty pool are
 * told apart, what was allocated is sent from where it is, and a device that goes takes
 * nothing that is in use.  (What an arena does with its regions: tests/unit/arena.c.)
 */
/* build: link -ltowline */
#include <sys/mman.h>

#include <towline/queue.h>
#include <towline/tracer.h>

#include "tow_libpeer.h"
#include "tow_rdma.h"

#define MIB		((size_t)1 << 20)
#define POOL_BYTES	(64 * MIB)
#define REGION_BYTES	(8 * MIB)
#define TENSOR_BYTES	((size_t)300 << 10)
#define ENTRIES		8U
#define LATE_US		30000000U

FIXTURE(arena)
{
	struct tow_device *dev;
	struct tow_arena *arena;
};

FIXTURE_SETUP(arena)
{
	struct tow_arena_attr attr = { .size = sizeof(attr), .region_bytes = REGION_BYTES };

	ASSERT_EQ(0, tow_set_file("pool_bytes", "0"));
	ASSERT_EQ(0, tow_set_file("pool_bytes", TOW_PEER_POOL));
	ASSERT_EQ(0, tow_set_file("allow_unauthenticated", "1"));
	ASSERT_EQ(0, tow_device_open(tow_test_device(), 0, &self->dev));
	ASSERT_EQ(0, tow_arena_create(self->dev, &attr, &self->arena));
}

FIXTURE_TEARDOWN(arena)
{
	tow_arena_destroy(self->arena);
	tow_device_close(self->dev);
}

static struct tow_arena_stats stats_of(struct tow_arena *arena)
{
	struct tow_arena_stats stats = { .size = sizeof(stats) };

	tow_arena_stats(arena, &stats);
	return stats;
}

static bool is_full_of(const unsigned char *at, size_t bytes, unsigned char value)
{
	return at[0] == value && !memcmp(at, at + 1, bytes - 1);
}

TEST_F(arena, takes_and_gives_back)
{
	long long used = tow_get_count("pool_used_bytes");
	void *small, *large;

	EXPECT_EQ(0, used);
	small = tow_arena_alloc(self->arena, 1);
	ASSERT_NE(NULL, small);
	EXPECT_EQ(REGION_BYTES, tow_get_count("pool_used_bytes"));
	large = tow_arena_alloc(self->arena, 2 * REGION_BYTES);
	ASSERT_NE(NULL, large);
	EXPECT_EQ(3 * REGION_BYTES, tow_get_count("pool_used_bytes"));
	EXPECT_EQ(2, stats_of(self->arena).regions);
	EXPECT_EQ(0, tow_arena_free(self->arena, large));
	EXPECT_EQ(2 * REGION_BYTES, tow_arena_trim(self->arena, 0));
	EXPECT_EQ(REGION_BYTES, tow_wait_count("pool_used_bytes", REGION_BYTES));
	EXPECT_EQ(0, tow_arena_free(self->arena, small));
	EXPECT_EQ(REGION_BYTES, tow_arena_trim(self->arena, 0));
	EXPECT_EQ(0, tow_wait_count("pool_used_bytes", 0));
}

/* Every byte of the pool, in pieces that are nobody else's; then none is left. */
TEST_F(arena, all_of_the_pool)
{
	unsigned char *pieces[POOL_BYTES / MIB];
	size_t count;

	for (count = 0; count < ARRAY_SIZE(pieces); count++) {
		pieces[count] = tow_arena_alloc(self->arena, MIB);
		ASSERT_NE(NULL, pieces[count]);
		memset(pieces[count], (int)count, MIB);
	}
	EXPECT_EQ(NULL, tow_arena_alloc(self->arena, 1));
	EXPECT_EQ(ENOSPC, errno);
	while (count--) {
		EXPECT_TRUE(is_full_of(pieces[count], MIB, (unsigned char)count));
		EXPECT_EQ(0, tow_arena_free(self->arena, pieces[count]));
	}
	/* Regions are not neighbours: one of the whole pool is another region. */
	EXPECT_EQ(NULL, tow_arena_alloc(self->arena, POOL_BYTES));
	EXPECT_EQ(ENOSPC, errno);
	EXPECT_EQ(POOL_BYTES, tow_arena_trim(self->arena, 0));
	EXPECT_EQ(0, tow_wait_count("pool_used_bytes", 0));
	EXPECT_NE(NULL, tow_arena_alloc(self->arena, POOL_BYTES));
}

/* A limit is no empty pool, and what it leaves is had. */
TEST_F(arena, a_limit_of_the_client)
{
	ASSERT_EQ(0, tow_set_file("client_bytes_limit", "12m"));
	EXPECT_NE(NULL, tow_arena_alloc(self->arena, 5 * MIB));
	EXPECT_NE(NULL, tow_arena_alloc(self->arena, 4 * MIB));
	EXPECT_EQ(NULL, tow_arena_alloc(self->arena, 4 * MIB));
	EXPECT_EQ(EDQUOT, errno);
	ASSERT_EQ(0, tow_set_file("client_bytes_limit", "max"));
	EXPECT_NE(NULL, tow_arena_alloc(self->arena, 4 * MIB));
}

/* Exports of an arena's regions, by their order. */
struct exports {
	struct tow_exported *of[8];
	int count;
};

static int export_region(void *data, struct tow_region *region, void *addr, uint64_t bytes)
{
	struct exports *exports = data;
	char name[32];
	int ret;

	(void)addr;
	snprintf(name, sizeof(name), "arena-%d", exports->count);
	ret = tow_export(region, 0, bytes, name, TOW_RIGHT_READ | TOW_RIGHT_WRITE,
			 &exports->of[exports->count]);
	exports->count += !ret;
	return ret;
}

/* The order in which they go is the arena's; here all go. */
static void unexport_region(void *data, struct tow_region *region, void *addr, uint64_t bytes)
{
	struct exports *exports = data;

	(void)region;
	(void)addr;
	(void)bytes;
	tow_unexport(exports->of[--exports->count]);
}

/* From one tensor into the other, where they are. */
static int send_tensor(struct tow_queue *queue, struct tow_channel *channel,
		       struct tow_arena *arena, const void *from, struct tow_remote *remote,
		       const void *to)
{
	struct tow_region *region, *there;
	uint64_t offset, place;
	const struct tow_cqe *cqe = NULL;
	struct tow_sqe *sqe = tow_queue_get_sqe(queue);
	int ret;

	ret = tow_arena_find(arena, from, &region, &offset);
	if (!ret)
		ret = tow_arena_find(arena, to, &there, &place);
	if (ret || !sqe)
		return ret ? ret : -EXFULL;
	tow_prep_write(sqe, channel, region, offset, remote, place, TENSOR_BYTES);
	ret = tow_queue_submit(queue);
	if (ret < 0)
		return ret;
	ret = tow_queue_wait_cqe(queue, &cqe, LATE_US);
	if (ret)
		return ret;
	ret = cqe->status;
	tow_queue_cqe_seen(queue);
	return ret;
}

TEST_F_TIMEOUT(arena, sent_from_where_it_is, 120)
{
	struct exports exports = { .count = 0 };
	struct tow_arena_attr attr = {
		.size = sizeof(attr), .region_bytes = REGION_BYTES,
		.grown = export_region, .shrinks = unexport_region, .data = &exports,
	};
	struct tow_remote *remote;
	struct tow_channel *channel;
	struct tow_arena *arena;
	struct tow_queue *queue;
	struct tow_peer *peer;
	unsigned char *tensors[10];

	ASSERT_EQ(0, tow_arena_create(self->dev, &attr, &arena));
	for (size_t i = 0; i < ARRAY_SIZE(tensors); i++) {
		tensors[i] = tow_arena_alloc(arena, TENSOR_BYTES);
		ASSERT_NE(NULL, tensors[i]);
		memset(tensors[i], (int)i + 1, TENSOR_BYTES);
	}
	EXPECT_EQ(1, exports.count);
	ASSERT_EQ(0, tow_peer_connect(self->dev, tow_own_address(), NULL, TOW_PEER_WAIT_MS, &peer));
	ASSERT_EQ(0, tow_resolve(peer, "arena-0", TOW_RIGHT_WRITE, 0, &remote));
	ASSERT_EQ(0, tow_queue_create(self->dev, ENTRIES, 0, &queue));
	ASSERT_EQ(0, tow_channel_get(queue, peer, 0, &channel));
	for (size_t i = 0; i < ARRAY_SIZE(tensors); i += 2)
		EXPECT_EQ(0, send_tensor(queue, channel, arena, tensors[i], remote,
					 tensors[i + 1]));
	for (size_t i = 0; i < ARRAY_SIZE(tensors); i++)
		EXPECT_TRUE(is_full_of(tensors[i], TENSOR_BYTES, (unsigned char)(i / 2 * 2 + 1)));
	tow_queue_destroy(queue);
	tow_remote_release(remote);
	tow_peer_release(peer);
	EXPECT_EQ(0, tow_arena_destroy(arena));
	EXPECT_EQ(0, exports.count);
}

/* The program's own memory and a region of the pool's, before the arena takes more of that. */
TEST_F(arena, adopted)
{
	char *memory = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct tow_region *imported, *pool, *readonly, *region;
	unsigned char *large, *larger;
	uint64_t offset;
	int fd;

	ASSERT_NE(MAP_FAILED, memory);
	ASSERT_EQ(0, tow_region_from_memory(self->dev, memory, REGION_BYTES, 0, &imported));
	ASSERT_EQ(0, tow_region_create(self->dev, 2 * REGION_BYTES, NULL, &pool));
	ASSERT_EQ(0, tow_region_fd(pool, TOW_REGION_READONLY, &fd));
	ASSERT_EQ(0, tow_region_from_fd(self->dev, fd, &readonly));
	EXPECT_EQ(-EACCES, tow_arena_adopt(self->arena, readonly));
	EXPECT_EQ(0, tow_arena_adopt(self->arena, imported));
	EXPECT_EQ(0, tow_arena_adopt(self->arena, pool));
	EXPECT_EQ(-EBUSY, tow_arena_adopt(self->arena, pool));
	large = tow_arena_alloc(self->arena, REGION_BYTES - 2 * MIB);
	larger = tow_arena_alloc(self->arena, 2 * REGION_BYTES);
	ASSERT_NE(NULL, large);
	ASSERT_NE(NULL, larger);
	EXPECT_EQ(2 * REGION_BYTES, tow_get_count("pool_used_bytes"));
	EXPECT_EQ(0, tow_arena_find(self->arena, large, &region, &offset));
	EXPECT_EQ(imported, region);
	EXPECT_EQ((uint64_t)((char *)large - memory), offset);
	EXPECT_EQ(0, tow_arena_find(self->arena, larger, &region, &offset));
	EXPECT_EQ(pool, region);
	EXPECT_EQ(0, offset);
	memset(large, 1, REGION_BYTES - 2 * MIB);
	memset(larger, 2, 2 * REGION_BYTES);
	EXPECT_EQ(0, tow_arena_free(self->arena, large));
	EXPECT_EQ(0, tow_arena_free(self->arena, larger));
	EXPECT_EQ(0, tow_arena_trim(self->arena, 0));
	EXPECT_EQ(0, tow_arena_destroy(self->arena));
	self->arena = NULL;
	EXPECT_EQ(0, close(fd));
	EXPECT_EQ(0, tow_region_destroy(readonly));
	EXPECT_EQ(0, tow_region_destroy(imported));
	EXPECT_EQ(0, tow_region_destroy(pool));
	EXPECT_EQ(0, tow_wait_count("pool_used_bytes", 0));
	munmap(memory, REGION_BYTES);
}

/* The second step's buffer is in a region that can be sent, the first one's is not. */
TEST_F(arena, traced)
{
	struct tow_tracer *tracer;
	struct tow_region *region;
	uint64_t offset;
	uint32_t node;
	void *ptr;

	ASSERT_EQ(0, tow_tracer_create(self->arena, &tracer));
	ASSERT_EQ(0, tow_tracer_node(tracer, "dense", &node));
	for (int step = 1; step <= 3; step++) {
		ASSERT_EQ(0, tow_tracer_step_begin(tracer));
		ptr = tow_tracer_alloc(tracer, node, TENSOR_BYTES);
		ASSERT_NE(NULL, ptr);
		EXPECT_EQ(step == 1 ? -ENOENT : 0,
			  tow_arena_find(self->arena, ptr, &region, &offset));
		EXPECT_EQ(step == 1 ? TOW_TRACER_JOINS : TOW_TRACER_ZERO_COPY,
			  tow_tracer_transferred(tracer, ptr, TENSOR_BYTES));
		EXPECT_EQ(0, tow_tracer_free(tracer, ptr));
		ASSERT_EQ(0, tow_tracer_step_end(tracer));
	}
	tow_tracer_destroy(tracer);
}

/* What is there stays, and is given out; there is no more of it. */
TEST_F_TIMEOUT(arena, the_device_goes, 60)
{
	unsigned char *before = tow_arena_alloc(self->arena, MIB), *after;

	ASSERT_NE(NULL, before);
	memset(before, 1, MIB);
	ASSERT_EQ(0, tow_rdma_link_del("rxe0"));
	EXPECT_TRUE(is_full_of(before, MIB, 1));
	after = tow_arena_alloc(self->arena, MIB);
	EXPECT_NE(NULL, after);
	if (after)
		memset(after, 2, MIB);
	EXPECT_TRUE(is_full_of(before, MIB, 1));
	EXPECT_EQ(NULL, tow_arena_alloc(self->arena, REGION_BYTES));
	EXPECT_EQ(ENODEV, errno);
	EXPECT_EQ(-ENODEV, tow_arena_destroy(self->arena));
	self->arena = NULL;
	ASSERT_EQ(0, tow_rdma_link_add("rxe0", "rxe", "eth0"));
}

TEST_HARNESS_MAIN

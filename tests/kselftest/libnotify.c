// SPDX-License-Identifier: GPL-2.0
/*
 * libtowline's slots against the real module, with the node as its own peer: each
 * function, what its errors are, memory of both kinds, and children.
 */
/* build: link -ltowline */
#include <sys/mman.h>
#include <sys/wait.h>

#include <towline/slot.h>

#include "tow_libpeer.h"

#define BYTES		((size_t)256 << 10)
#define NUMBER_AT	4096
#define NAME		"libnotify"
#define LATE_US		30000000U

FIXTURE(slot)
{
	struct tow_device *dev;
	struct tow_peer *peer;
	struct tow_region *region;
	unsigned char *memory;
	struct tow_slot *slot;
	struct tow_exported *exported;
	struct tow_remote *counts;
	struct tow_remote *remote;
	struct tow_queue *queue;
	struct tow_channel *channel;
};

FIXTURE_SETUP(slot)
{
	void *memory = NULL;

	ASSERT_EQ(0, tow_set_file("pool_bytes", TOW_PEER_POOL));
	ASSERT_EQ(0, tow_set_file("allow_unauthenticated", "1"));
	ASSERT_EQ(0, tow_device_open(tow_test_device(), 0, &self->dev));
	ASSERT_EQ(0, tow_peer_connect(self->dev, tow_own_address(), NULL, TOW_PEER_WAIT_MS,
				      &self->peer));
	ASSERT_EQ(0, tow_region_create(self->dev, BYTES, NULL, &self->region));
	ASSERT_EQ(0, tow_region_map(self->region, 0, 0, PROT_READ | PROT_WRITE, &memory));
	self->memory = memory;
	ASSERT_EQ(0, tow_slot_create(self->region, NUMBER_AT, NAME, &self->slot));
	ASSERT_EQ(0, tow_export(self->region, BYTES / 2, BYTES / 2, NAME "/data", TOW_RIGHT_WRITE,
				&self->exported));
	ASSERT_EQ(0, tow_resolve(self->peer, NAME, TOW_RIGHT_NOTIFY, 0, &self->counts));
	ASSERT_EQ(0, tow_resolve(self->peer, NAME "/data", TOW_RIGHT_WRITE, 0, &self->remote));
	ASSERT_EQ(0, tow_queue_create(self->dev, 16, 0, &self->queue));
	ASSERT_EQ(0, tow_channel_get(self->queue, self->peer, 0, &self->channel));
}

FIXTURE_TEARDOWN(slot)
{
	tow_queue_destroy(self->queue);
	tow_remote_release(self->remote);
	tow_remote_release(self->counts);
	tow_unexport(self->exported);
	tow_slot_destroy(self->slot);
	tow_region_destroy(self->region);
	tow_peer_release(self->peer);
	tow_device_close(self->dev);
}

static struct tow_sqe *next_entry(struct tow_queue *queue)
{
	struct tow_sqe *sqe = tow_queue_get_sqe(queue);

	if (!sqe)
		abort();
	return sqe;
}

/* Hand over what was prepared, and wait for one: what it says. */
static int finish(struct tow_queue *queue)
{
	const struct tow_cqe *cqe = NULL;
	int ret = tow_queue_submit(queue);

	if (ret >= 0)
		ret = tow_queue_wait_cqe(queue, &cqe, LATE_US);
	if (!cqe)
		return ret;
	ret = cqe->status;
	tow_queue_cqe_seen(queue);
	return ret;
}

static int notify(FIXTURE_DATA(slot) *self, const struct tow_remote *counts)
{
	tow_prep_notify(next_entry(self->queue), self->channel, counts);
	return finish(self->queue);
}

static int wait_for(FIXTURE_DATA(slot) *self, const struct tow_slot *slot, uint64_t number)
{
	tow_prep_wait(next_entry(self->queue), slot, number);
	return finish(self->queue);
}

/* ---- what works ---- */

TEST_F(slot, counts)
{
	struct tow_sqe *sqe;

	EXPECT_EQ(0, tow_slot_value(self->slot));
	EXPECT_EQ(8, tow_remote_bytes(self->counts));
	EXPECT_EQ(0, notify(self, self->counts));
	EXPECT_EQ(0, wait_for(self, self->slot, 1));
	EXPECT_EQ(1, tow_slot_value(self->slot));
	/* The word that the program has mapped by itself, too. */
	EXPECT_EQ(1, *(volatile uint64_t *)(self->memory + NUMBER_AT));
	memset(self->memory, 0x42, 1000);
	sqe = next_entry(self->queue);
	tow_prep_write_notify(sqe, self->channel, self->region, 0, self->remote, 24, 1000,
			      self->counts);
	EXPECT_EQ(0, finish(self->queue));
	EXPECT_EQ(0, wait_for(self, self->slot, 2));
	EXPECT_EQ(2, tow_slot_value(self->slot));
	EXPECT_EQ(0, memcmp(self->memory, self->memory + BYTES / 2 + 24, 1000));
	EXPECT_EQ(0, self->memory[BYTES / 2 + 23]);
	EXPECT_EQ(0, self->memory[BYTES / 2 + 1024]);
}

/* One chain: it waits for the number, and tells another slot. */
TEST_F(slot, chains)
{
	struct tow_remote *second_counts = NULL;
	struct tow_slot *second = NULL;

	ASSERT_EQ(0, tow_slot_create(self->region, 0, NAME "/second", &second));
	ASSERT_EQ(0, tow_resolve(self->peer, NAME "/second", TOW_RIGHT_NOTIFY, 0, &second_counts));
	for (uint64_t i = 1; i <= 4; i++) {
		struct tow_sqe *sqe = next_entry(self->queue);

		tow_prep_wait(sqe, self->slot, i);
		tow_sqe_set_flags(sqe, TOW_SQE_LINK | TOW_SQE_SILENT);
		sqe = next_entry(self->queue);
		tow_prep_notify(sqe, self->channel, second_counts);
		tow_sqe_set_flags(sqe, TOW_SQE_SILENT);
	}
	EXPECT_EQ(8, tow_queue_submit(self->queue));
	for (uint64_t i = 1; i <= 4; i++) {
		EXPECT_EQ(i - 1, tow_slot_value(second));
		EXPECT_EQ(0, notify(self, self->counts));
		EXPECT_EQ(0, wait_for(self, second, i));
	}
	EXPECT_EQ(0, tow_remote_release(second_counts));
	EXPECT_EQ(0, tow_slot_destroy(second));
}

/* The region, its mapping and its handle go before the slot. */
TEST_F(slot, outlives_its_region)
{
	struct tow_region *region = NULL;
	struct tow_remote *counts = NULL;
	struct tow_slot *slot = NULL;

	ASSERT_EQ(0, tow_region_create(self->dev, 64, NULL, &region));
	ASSERT_EQ(0, tow_slot_create(region, 56, NAME "/own", &slot));
	ASSERT_EQ(0, tow_region_destroy(region));
	ASSERT_EQ(0, tow_resolve(self->peer, NAME "/own", TOW_RIGHT_NOTIFY, 0, &counts));
	EXPECT_EQ(0, notify(self, counts));
	EXPECT_EQ(0, wait_for(self, slot, 1));
	EXPECT_EQ(1, tow_slot_value(slot));
	EXPECT_EQ(0, tow_slot_destroy(slot));
	EXPECT_EQ(-ESTALE, notify(self, counts));
	EXPECT_EQ(-ESTALE, tow_remote_release(counts));
}

TEST_F(slot, in_memory_of_the_process)
{
	static uint64_t numbers[4] __attribute__((aligned(64)));
	struct tow_region *region = NULL, *odd = NULL, *locked = NULL;
	struct tow_remote *counts = NULL;
	struct tow_slot *slot = NULL;

	numbers[1] = 77;
	ASSERT_EQ(0, tow_region_from_memory(self->dev, numbers, sizeof(numbers), 0, &region));
	ASSERT_EQ(0, tow_region_from_memory(self->dev, (char *)numbers + 4, 16, 0, &odd));
	ASSERT_EQ(0, tow_region_from_memory(self->dev, numbers, sizeof(numbers),
					    TOW_REGION_READONLY, &locked));
	EXPECT_EQ(-EINVAL, tow_slot_create(odd, 0, NAME "/own", &slot));
	EXPECT_EQ(-EACCES, tow_slot_create(locked, 0, NAME "/own", &slot));
	EXPECT_EQ(NULL, slot);
	ASSERT_EQ(0, tow_slot_create(region, 8, NAME "/own", &slot));
	EXPECT_EQ(0, numbers[1]);
	ASSERT_EQ(0, tow_resolve(self->peer, NAME "/own", TOW_RIGHT_NOTIFY, 0, &counts));
	EXPECT_EQ(0, notify(self, counts));
	EXPECT_EQ(0, wait_for(self, slot, 1));
	EXPECT_EQ(1, tow_slot_value(slot));
	EXPECT_EQ(0, tow_remote_release(counts));
	EXPECT_EQ(0, tow_slot_destroy(slot));
	EXPECT_EQ(0, tow_region_destroy(locked));
	EXPECT_EQ(0, tow_region_destroy(odd));
	EXPECT_EQ(0, tow_region_destroy(region));
}

/* It reads the number, and can do nothing else. */
TEST_F(slot, in_a_child)
{
	struct tow_slot *slot = NULL;
	int status = -1;
	pid_t child;

	EXPECT_EQ(0, notify(self, self->counts));
	EXPECT_EQ(0, wait_for(self, self->slot, 1));
	child = fork();
	if (!child) {
		if (tow_slot_value(self->slot) != 1)
			_exit(1);
		if (tow_slot_create(self->region, 0, NAME "/child", &slot) != -EPERM)
			_exit(2);
		_exit(tow_slot_destroy(self->slot) != -EPERM ? 3 : 0);
	}
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(0, notify(self, self->counts));
	EXPECT_EQ(0, wait_for(self, self->slot, 2));
	EXPECT_EQ(2, tow_slot_value(self->slot));
}

/* ---- what does not ---- */

TEST_F(slot, refusals)
{
	struct tow_region_info info = { .size = sizeof(info) };
	struct tow_remote *other = NULL;
	struct tow_slot *slot = NULL;

	EXPECT_EQ(-EINVAL, tow_slot_create(NULL, 0, NAME "/x", &slot));
	EXPECT_EQ(-EINVAL, tow_slot_create(self->region, 0, NAME "/x", NULL));
	EXPECT_EQ(-EINVAL, tow_slot_create(self->region, 0, NULL, &slot));
	EXPECT_EQ(-EINVAL, tow_slot_create(self->region, 0, "", &slot));
	EXPECT_EQ(-EINVAL, tow_slot_create(self->region, 4, NAME "/x", &slot));
	ASSERT_EQ(0, tow_region_info(self->region, &info));
	EXPECT_EQ(-EINVAL, tow_slot_create(self->region, info.map_bytes, NAME "/x", &slot));
	EXPECT_EQ(-EINVAL, tow_slot_create(self->region, UINT64_MAX - 7, NAME "/x", &slot));
	EXPECT_EQ(-EEXIST, tow_slot_create(self->region, 0, NAME, &slot));
	EXPECT_EQ(NULL, slot);
	EXPECT_EQ(0, tow_slot_destroy(NULL));
	EXPECT_EQ(-EBUSY, tow_resolve(self->peer, NAME, TOW_RIGHT_NOTIFY, 0, &other));
	EXPECT_EQ(-EACCES, tow_resolve(self->peer, NAME, TOW_RIGHT_WRITE, 0, &other));
	EXPECT_EQ(-EACCES, tow_resolve(self->peer, NAME "/data", TOW_RIGHT_NOTIFY, 0, &other));
	EXPECT_EQ(-EINVAL, tow_resolve(self->peer, NAME, TOW_RIGHT_NOTIFY | TOW_RIGHT_WRITE, 0,
				       &other));
	EXPECT_EQ(NULL, other);
	EXPECT_EQ(-EACCES, notify(self, self->remote));
}

TEST_HARNESS_MAIN

// SPDX-License-Identifier: GPL-2.0
/*
 * Memory for a device that has DMA of its own, behind something as an IOMMU (tow_dma.ko):
 * what can be reached as it is, is used; what would have to be copied is refused.
 */
#define TOW_ONLY_SOFT_ROCE
#include "tow_hotplug.h"
#include "tow_peer.h"
#include "tow_queue.h"
#include "tow_region.h"

#define BYTES	(8 * TOW_MB)
#define NAME	"over DMA"

FIXTURE(dma)
{
	int fd;
	void *memory;
};

FIXTURE_VARIANT(dma)
{
	const char *options;
	int error;
};

FIXTURE_VARIANT_ADD(dma, as_it_is)
{
	.options = "",
	.error = 0,
};

/* The largest that the kernel copies at once. */
FIXTURE_VARIANT_ADD(dma, by_copies)
{
	.options = "max_bytes=262144",
	.error = -EOPNOTSUPP,
};

FIXTURE_SETUP(dma)
{
	ASSERT_EQ(0, tow_module_load("tow_dma", variant->options));
	ASSERT_EQ(0, tow_module_load("towline", ""));
	ASSERT_TRUE(tow_wait_path(TOW_TEST_DEVICES "/rxe0", true));
	self->fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->fd);
	self->memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);
	ASSERT_NE(MAP_FAILED, self->memory);
}

FIXTURE_TEARDOWN(dma)
{
	munmap(self->memory, BYTES);
	close(self->fd);
	EXPECT_EQ(0, tow_module_unload("towline"));
	EXPECT_EQ(0, tow_module_unload("tow_dma"));
}

TEST_F(dma, pool)
{
	ASSERT_EQ(variant->error, tow_sysfs_set("pool_bytes", BYTES));
	EXPECT_EQ(variant->error ? 0 : BYTES, tow_sysfs_get("pool_bytes"));
}

TEST_F(dma, import)
{
	uint64_t handle;

	ASSERT_EQ(variant->error, tow_region_import(self->fd, self->memory, BYTES, 0, &handle));
	if (!variant->error)
		EXPECT_EQ(0, tow_region_destroy(self->fd, handle));
}

/* The addresses are the device's. */
TEST_F(dma, what_is_written_arrives)
{
	struct tow_sqe read = { .opcode = TOW_OP_READ, .bytes = TOW_MB };
	struct tow_region_create made;
	struct tow_channel_open channel;
	struct tow_rings rings;
	__u64 peer, published, found;
	uint64_t there;
	char *from;

	if (variant->error)
		return;
	ASSERT_EQ(0, tow_sysfs_set("pool_bytes", BYTES));
	ASSERT_EQ(0, tow_sysfs_put("allow_unauthenticated", "1"));
	ASSERT_EQ(0, tow_region_create(self->fd, 2 * TOW_MB, &made));
	from = mmap(NULL, 2 * TOW_MB, PROT_READ | PROT_WRITE, MAP_SHARED, made.fd, 0);
	ASSERT_NE(MAP_FAILED, from);
	memset(from, 'x', 2 * TOW_MB);
	ASSERT_EQ(0, tow_region_import(self->fd, self->memory, BYTES, 0, &there));
	ASSERT_EQ(0, tow_connect_self(self->fd, &peer));
	ASSERT_EQ(0, tow_publish_for(self->fd, made.handle, NAME, 2 * TOW_MB, TOW_RIGHT_READ,
				     &published));
	ASSERT_EQ(0, tow_find_for(self->fd, peer, NAME, TOW_RIGHT_READ, &found));
	ASSERT_EQ(0, tow_rings_make(self->fd, 8, 8, &rings));
	ASSERT_EQ(0, tow_channel_open(rings.made.fd, peer, 0, &channel));
	read.channel = channel.channel;
	read.region = there;
	read.remote = found;
	EXPECT_EQ(0, tow_rings_do(&rings, &read));
	EXPECT_EQ('x', ((char *)self->memory)[TOW_MB - 1]);
	EXPECT_EQ(0, ((char *)self->memory)[TOW_MB]);
	tow_rings_end(&rings);
	munmap(from, 2 * TOW_MB);
	close(made.fd);
}

TEST_HARNESS_MAIN

// SPDX-License-Identifier: GPL-2.0
/*
 * A device with DMA of its own for which memory would have to be copied (providers
 * dma-swiotlb and dma-low): that is refused, and said why.
 */
#define TOW_ONLY_SOFT_ROCE
#include "tow_region.h"

#define BYTES	(8 * TOW_MB)

FIXTURE(dma)
{
	int fd;
};

FIXTURE_SETUP(dma)
{
	self->fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(dma)
{
	close(self->fd);
}

TEST_F(dma, no_pool)
{
	int log = tow_log_open();

	ASSERT_LE(0, log);
	EXPECT_EQ(-EOPNOTSUPP, tow_sysfs_set("pool_bytes", BYTES));
	EXPECT_EQ(0, tow_sysfs_get("pool_bytes"));
	EXPECT_TRUE(tow_log_says(log, "the device reaches memory by copies only"));
	close(log);
}

/* Neither much nor little: that could be copied, but nobody does. */
TEST_F(dma, no_import)
{
	const uint64_t sizes[] = { BYTES, 4096 };
	void *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);
	uint64_t handle;
	size_t i;

	ASSERT_NE(MAP_FAILED, memory);
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		EXPECT_EQ(-EOPNOTSUPP, tow_region_import(self->fd, memory, sizes[i], 0, &handle));
	}
	munmap(memory, BYTES);
}

TEST_HARNESS_MAIN

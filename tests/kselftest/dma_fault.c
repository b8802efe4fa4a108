// SPDX-License-Identifier: GPL-2.0
/*
 * A device reaches for memory that it was told about, and that is not mapped for it any
 * more: who asked hears of a protection error, and the kernel complains, which must fail
 * whatever runs this.  For the lab's provider dma; house/run-exit-codes runs it.
 */
#include "tow_hotplug.h"
#include "tests/modules/tow_raw.h"

/* Of enum ib_wc_status. */
#define LOC_PROT_ERR	4
#define REM_ACCESS_ERR	10

static long faults(void)
{
	char line[32] = "";

	tow_test_read_line("/sys/module/rxe_dma/parameters/faults", line, sizeof(line));
	return strtol(line, NULL, 10);
}

/* What became of it, or a negative errno. */
static int reach(uint32_t op, uint32_t unmapped)
{
	struct tow_raw_run run = {
		.device = "rxe0", .op = op, .unmapped = unmapped,
		.bytes = 64, .places = 1, .count = 1, .batch = 1, .window = 1,
	};
	int fd = open(TOW_RAW_NODE, O_RDWR | O_CLOEXEC);
	int ret = fd < 0 ? -errno : 0;

	if (!ret && ioctl(fd, TOW_RAW_RUN, &run) && errno != EIO)
		ret = -errno;
	if (fd >= 0)
		close(fd);
	return ret ?: (int)run.status;
}

FIXTURE(fault)
{
	long before;
};

FIXTURE_SETUP(fault)
{
	ASSERT_EQ(0, tow_module_load("tow_probe", ""));
	ASSERT_TRUE(tow_wait_path(TOW_RAW_NODE, true));
	self->before = faults();
}

FIXTURE_TEARDOWN(fault)
{
	EXPECT_EQ(0, tow_module_unload("tow_probe"));
}

TEST_F(fault, none)
{
	EXPECT_EQ(0, reach(TOW_RAW_WRITE, 0));
	EXPECT_EQ(0, reach(TOW_RAW_READ, 0));
	EXPECT_EQ(self->before, faults());
}

TEST_F(fault, far)
{
	EXPECT_EQ(REM_ACCESS_ERR, reach(TOW_RAW_WRITE, TOW_RAW_FAR));
	EXPECT_EQ(self->before + 1, faults());
	EXPECT_EQ(REM_ACCESS_ERR, reach(TOW_RAW_READ, TOW_RAW_FAR));
	EXPECT_EQ(self->before + 2, faults());
}

TEST_F(fault, near)
{
	EXPECT_EQ(LOC_PROT_ERR, reach(TOW_RAW_WRITE, TOW_RAW_NEAR));
	EXPECT_EQ(self->before + 1, faults());
	EXPECT_EQ(LOC_PROT_ERR, reach(TOW_RAW_READ, TOW_RAW_NEAR));
	EXPECT_EQ(self->before + 2, faults());
}

TEST_HARNESS_MAIN

// SPDX-License-Identifier: GPL-2.0
/*
 * Which devices towline takes, and which of their ports.
 */
#include "tow_hotplug.h"
#include "tow_sysfs.h"

FIXTURE(choose)
{
	char name[NAME_MAX + 1];
	char second[NAME_MAX + 8];
};

/* towline again, with such options. */
static int reload(const char *options)
{
	int ret = access("/sys/module/towline", F_OK) ? 0 : tow_module_unload("towline");

	return ret ? ret : tow_module_load("towline", options);
}

/* Soft-RoCE beside the lab's device. */
FIXTURE_SETUP(choose)
{
	snprintf(self->name, sizeof(self->name), "%s", tow_test_device());
	snprintf(self->second, sizeof(self->second), "%s_two", self->name);
	ASSERT_STRNE("none", self->name);
	ASSERT_TRUE(tow_second_add(self->second));
}

FIXTURE_TEARDOWN_PARENT(choose)
{
	EXPECT_TRUE(tow_second_del());
	EXPECT_EQ(0, reload(""));
	EXPECT_TRUE(tow_wait_path(tow_test_path(), true));
}

/* Which of the two there are, as bits; what is there is there when the module is. */
static int taken(FIXTURE_DATA(choose) *self, const char *options)
{
	char path[512];
	int ret = reload(options);

	if (ret)
		return ret;
	snprintf(path, sizeof(path), "/sys/class/towline/%s", self->name);
	ret = !access(path, F_OK);
	snprintf(path, sizeof(path), "/sys/class/towline/%s", self->second);
	return ret | !access(path, F_OK) << 1;
}

TEST_F_TIMEOUT(choose, devices, 60)
{
	int log = tow_log_open();

	ASSERT_LE(0, log);
	EXPECT_EQ(3, taken(self, ""));
	EXPECT_EQ(3, taken(self, "devices=*"));
	EXPECT_EQ(0, tow_log_count(log, "towline", "left alone"));
	EXPECT_EQ(2, taken(self, "devices=*_two"));
	EXPECT_TRUE(tow_log_says(log, "\"devices\" does not name it"));
	EXPECT_EQ(1, taken(self, "devices=nosuch,rxe?"));
	EXPECT_EQ(3, taken(self, "devices=rxe[0-9],rxe[0-9]_*"));
	EXPECT_EQ(0, taken(self, "devices=mlx5_*"));
	EXPECT_EQ(0, taken(self, "devices="));
}

TEST_F(choose, port)
{
	struct tow_query query;
	int fd = tow_test_open(O_RDWR);

	ASSERT_LE(0, fd);
	EXPECT_EQ(0, tow_sysfs_get("port"));
	ASSERT_EQ(0, tow_test_query(fd, &query));
	EXPECT_EQ(1, query.port);
	EXPECT_EQ(0, tow_sysfs_put("port", "1"));
	EXPECT_EQ(1, tow_sysfs_get("port"));
	EXPECT_EQ(-ERANGE, tow_sysfs_put("port", "2"));
	EXPECT_EQ(-ERANGE, tow_sysfs_put("port", "4294967295"));
	EXPECT_EQ(-EINVAL, tow_sysfs_put("port", "one"));
	EXPECT_EQ(1, tow_sysfs_get("port"));
	EXPECT_EQ(0, tow_sysfs_put("port", "0"));
	ASSERT_EQ(0, tow_test_query(fd, &query));
	EXPECT_EQ(1, query.port);
	EXPECT_EQ(TOW_MAINT_READY, query.maint_state);
	EXPECT_EQ(0, query.maint_rebuilds);
	close(fd);
}

TEST_HARNESS_MAIN

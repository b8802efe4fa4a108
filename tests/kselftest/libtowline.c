// SPDX-License-Identifier: GPL-2.0
/*
 * libtowline against the real module: open, list, query, their errors, and a
 * device that goes away under an open handle.
 */
/* build: link -ltowline */
#include <towline/towline.h>

#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "tow_test.h"

#define NOBODY 65534
#define THREADS 8
#define ROUNDS 50

/* The descriptor that stands for the device, or -1. */
static int device_fd(void)
{
	char link[64], target[PATH_MAX];
	ssize_t length;

	for (int fd = 3; fd < 64; fd++) {
		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		length = readlink(link, target, sizeof(target) - 1);
		if (length < 0)
			continue;
		target[length] = '\0';
		if (strcmp(target, tow_test_path()) == 0)
			return fd;
	}
	return -1;
}

static int open_query_close(const char *name, struct tow_device_attr *attr)
{
	struct tow_device *dev;
	int ret;

	ret = tow_device_open(name, 0, &dev);
	if (ret)
		return ret;
	memset(attr, 0, sizeof(*attr));
	attr->size = sizeof(*attr);
	ret = tow_device_query(dev, attr);
	tow_device_close(dev);
	return ret;
}

/* Run as soft-RoCE's owner; a name that cannot be run is a failure, too. */
static bool run(const char *command)
{
	return system(command) == 0;	/* NOLINT(cert-env33-c): a fixed command */
}

TEST(list_holds_the_device)
{
	struct tow_device_list *list = NULL;
	bool found = false;

	ASSERT_EQ(0, tow_device_list_get(&list));
	for (size_t i = 0; i < tow_device_list_count(list); i++) {
		found |= strcmp(tow_device_list_name(list, i), tow_test_device()) == 0;
		if (i)
			EXPECT_GT(0, strcmp(tow_device_list_name(list, i - 1),
					    tow_device_list_name(list, i)));
	}
	EXPECT_TRUE(found);
	tow_device_list_free(list);
}

TEST(query_says_what_the_kernel_says)
{
	struct tow_device_attr attr;
	struct tow_query query;
	int fd = tow_test_open(O_RDWR);

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, tow_test_query(fd, &query));
	close(fd);

	ASSERT_EQ(0, open_query_close(tow_test_device(), &attr));
	EXPECT_EQ(sizeof(attr), attr.size);
	EXPECT_STREQ(tow_test_device(), attr.device_name);
	EXPECT_EQ(0, memcmp(attr.incarnation, query.incarnation, sizeof(attr.incarnation)));
	EXPECT_EQ(query.max_mr, attr.max_mr);
	EXPECT_EQ(query.features, attr.features);
	EXPECT_EQ(TOW_UAPI_VERSION, attr.uapi_version);
}

TEST(query_checks_the_size)
{
	struct tow_device_attr attr;
	struct tow_device *dev;

	ASSERT_EQ(0, tow_device_open(tow_test_device(), 0, &dev));
	attr.size = 0;
	EXPECT_EQ(-EINVAL, tow_device_query(dev, &attr));
	attr.size = sizeof(attr) - 1;
	EXPECT_EQ(-EINVAL, tow_device_query(dev, &attr));
	attr.size = 5000;
	EXPECT_EQ(-EINVAL, tow_device_query(dev, &attr));
	EXPECT_EQ(-EINVAL, tow_device_query(dev, NULL));
	tow_device_close(dev);
}

TEST(environment_names_the_device)
{
	struct tow_device_attr attr;

	ASSERT_EQ(0, setenv("TOW_DEVICE", "nosuch0", 1));
	EXPECT_EQ(-ENOENT, open_query_close(NULL, &attr));
	EXPECT_EQ(0, open_query_close("rxe0", &attr));
	ASSERT_EQ(0, setenv("TOW_DEVICE", "../null", 1));
	EXPECT_EQ(-EINVAL, open_query_close(NULL, &attr));
	ASSERT_EQ(0, setenv("TOW_DEVICE", "rxe0", 1));
	EXPECT_EQ(0, open_query_close(NULL, &attr));
	EXPECT_STREQ("rxe0", attr.device_name);
	ASSERT_EQ(0, unsetenv("TOW_DEVICE"));
	EXPECT_EQ(0, open_query_close(NULL, &attr));
}

TEST(descriptor_closes_on_exec_and_with_the_device)
{
	struct tow_device *dev;
	int fd;

	ASSERT_EQ(-1, device_fd());
	ASSERT_EQ(0, tow_device_open(tow_test_device(), 0, &dev));
	fd = device_fd();
	ASSERT_LE(0, fd);
	EXPECT_EQ(FD_CLOEXEC, fcntl(fd, F_GETFD));
	tow_device_close(dev);
	EXPECT_EQ(-1, device_fd());
}

TEST(nobody_has_no_permission)
{
	struct tow_device_attr attr;
	struct stat status;

	ASSERT_EQ(0, stat(tow_test_path(), &status));
	ASSERT_EQ(0, status.st_mode & S_IRWXO);
	ASSERT_EQ(0, setegid(NOBODY));
	ASSERT_EQ(0, seteuid(NOBODY));
	EXPECT_EQ(-EACCES, open_query_close(tow_test_device(), &attr));
	/* The list is no secret. */
	EXPECT_EQ(-ENOENT, open_query_close("nosuch0", &attr));
}

TEST(no_descriptor_left_is_no_device)
{
	struct tow_device *dev = NULL;
	struct rlimit none = { 3, 3 };

	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &none));
	EXPECT_EQ(-EMFILE, tow_device_open(tow_test_device(), 0, &dev));
	EXPECT_EQ(NULL, dev);
}

static void *many_times(void *failures)
{
	struct tow_device_attr attr;

	for (int i = 0; i < ROUNDS; i++)
		if (open_query_close("rxe0", &attr))
			__atomic_add_fetch((int *)failures, 1, __ATOMIC_RELAXED);
	return NULL;
}

TEST(threads_open_and_query_at_once)
{
	pthread_t threads[THREADS];
	int failures = 0;

	for (int i = 0; i < THREADS; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, many_times, &failures));
	for (int i = 0; i < THREADS; i++)
		ASSERT_EQ(0, pthread_join(threads[i], NULL));
	EXPECT_EQ(0, failures);
	EXPECT_EQ(-1, device_fd());
}

TEST(a_device_that_goes_away)
{
	struct tow_device_attr attr = { .size = sizeof(attr) };
	struct tow_device_list *list = NULL;
	struct tow_device *dev;

	ASSERT_EQ(0, tow_device_open("rxe0", 0, &dev));
	ASSERT_TRUE(run("rdma link del rxe0"));
	EXPECT_EQ(-ENODEV, tow_device_query(dev, &attr));
	EXPECT_EQ(-ENOENT, open_query_close("rxe0", &attr));
	EXPECT_EQ(-ENXIO, open_query_close(NULL, &attr));
	EXPECT_EQ(0, tow_device_list_get(&list));
	EXPECT_EQ(0, tow_device_list_count(list));
	tow_device_list_free(list);

	ASSERT_TRUE(run("rdma link add rxe0 type rxe netdev eth0"));
	attr.size = sizeof(attr);
	EXPECT_EQ(-ENODEV, tow_device_query(dev, &attr));
	tow_device_close(dev);
	EXPECT_EQ(0, open_query_close("rxe0", &attr));
}

TEST(several_devices_want_a_name)
{
	struct tow_device_attr attr;

	ASSERT_TRUE(run("ip link add tow0 type dummy && ip link set tow0 up && "
			"rdma link add atow0 type rxe netdev tow0"));
	EXPECT_EQ(-ENOTUNIQ, open_query_close(NULL, &attr));
	EXPECT_EQ(0, open_query_close("atow0", &attr));
	EXPECT_STREQ("atow0", attr.device_name);
	EXPECT_TRUE(run("rdma link del atow0 && ip link del tow0"));
	EXPECT_EQ(0, open_query_close(NULL, &attr));
}

TEST_HARNESS_MAIN

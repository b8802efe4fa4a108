// SPDX-License-Identifier: GPL-2.0
/*
 * Who may open the device, and what each gets to hear: root, a member of group
 * rdma, nobody, root of a user namespace, and all of them from another network
 * namespace.  There is no udev in the lab, so the test gives the node the
 * owner and mode of the rule that `make install` installs.
 */
#include <sys/stat.h>
#include "tow_test.h"
#include "tow_identity.h"

#define RULE_MODE	0660

FIXTURE(access)
{
	struct stat before;
	int fd;		/* root's */
};

FIXTURE_SETUP(access)
{
	/* Debian's kernels can refuse user namespaces to all but root. */
	tow_write_file("/proc/sys/kernel/unprivileged_userns_clone", "1");
	ASSERT_EQ(0, stat(tow_test_path(), &self->before))
		TH_LOG("%s: %s", tow_test_path(), strerror(errno));
	self->fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(access)
{
	close(self->fd);
	if (chown(tow_test_path(), self->before.st_uid, self->before.st_gid) ||
	    chmod(tow_test_path(), self->before.st_mode & 07777))
		TH_LOG("cannot restore %s", tow_test_path());
}

static int apply_rule(void)
{
	if (chown(tow_test_path(), 0, tow_rdma_group()))
		return -errno;
	return chmod(tow_test_path(), RULE_MODE) ? -errno : 0;
}

static int open_and_query(void *arg)
{
	int flags = *(int *)arg;
	struct tow_query query;
	int fd = tow_test_open(flags);
	int ret;

	if (fd < 0)
		return fd;
	ret = tow_test_query(fd, &query);
	close(fd);
	return ret;
}

static int open_as(enum tow_who who, int flags)
{
	return tow_as(who, open_and_query, &flags);
}

/* Without a rule the node is root's alone. */
TEST_F(access, default_is_root_only)
{
	struct stat dir;

	EXPECT_TRUE(S_ISCHR(self->before.st_mode));
	EXPECT_EQ(0600, self->before.st_mode & 07777);
	EXPECT_EQ(0, self->before.st_uid);
	EXPECT_EQ(0, self->before.st_gid);
	ASSERT_EQ(0, stat(TOW_TEST_DEVICES, &dir));
	EXPECT_EQ(0755, dir.st_mode & 07777);

	EXPECT_EQ(0, open_as(TOW_ROOT, O_RDWR));
	EXPECT_EQ(0, open_as(TOW_ROOT, O_RDONLY));
	EXPECT_EQ(0, open_as(TOW_REAL_ROOT_IN_USERNS, O_RDWR));
	EXPECT_EQ(-EACCES, open_as(TOW_GROUP, O_RDWR));
	EXPECT_EQ(-EACCES, open_as(TOW_GROUP, O_RDONLY));
	EXPECT_EQ(-EACCES, open_as(TOW_EXTRA_GROUP, O_RDWR));
	EXPECT_EQ(-EACCES, open_as(TOW_NOBODY, O_RDONLY));
	EXPECT_EQ(-EACCES, open_as(TOW_ROOT_IN_USERNS, O_RDONLY));
	EXPECT_EQ(-EACCES, open_as(TOW_GROUP_IN_USERNS, O_RDONLY));
}

TEST_F(access, with_the_rule_the_group_may)
{
	ASSERT_EQ(0, apply_rule());
	EXPECT_EQ(0, open_as(TOW_ROOT, O_RDWR));
	EXPECT_EQ(0, open_as(TOW_REAL_ROOT_IN_USERNS, O_RDWR));
	EXPECT_EQ(0, open_as(TOW_GROUP, O_RDWR));
	EXPECT_EQ(0, open_as(TOW_GROUP, O_RDONLY));
	EXPECT_EQ(0, open_as(TOW_EXTRA_GROUP, O_RDWR));
	EXPECT_EQ(0, open_as(TOW_GROUP_IN_USERNS, O_RDWR));
	EXPECT_EQ(-EACCES, open_as(TOW_NOBODY, O_RDWR));
	EXPECT_EQ(-EACCES, open_as(TOW_NOBODY, O_RDONLY));
	EXPECT_EQ(-EACCES, open_as(TOW_ROOT_IN_USERNS, O_RDWR));
	EXPECT_EQ(-EACCES, open_as(TOW_ROOT_IN_USERNS, O_RDONLY));
}

/* Who may not open it does not hear EINVAL either; who may, does. */
TEST_F(access, write_only)
{
	ASSERT_EQ(0, apply_rule());
	EXPECT_EQ(-EINVAL, open_as(TOW_ROOT, O_WRONLY));
	EXPECT_EQ(-EINVAL, open_as(TOW_GROUP, O_WRONLY));
	EXPECT_EQ(-EINVAL, open_as(TOW_GROUP_IN_USERNS, O_WRONLY));
	EXPECT_EQ(-EINVAL, open_as(TOW_REAL_ROOT_IN_USERNS, O_WRONLY));
	EXPECT_EQ(-EACCES, open_as(TOW_NOBODY, O_WRONLY));
	EXPECT_EQ(-EACCES, open_as(TOW_ROOT_IN_USERNS, O_WRONLY));
}

static int open_missing(void *arg)
{
	int fd = open(TOW_TEST_DEVICES "/no-such-device", O_RDWR | O_CLOEXEC);

	(void)arg;
	if (fd >= 0)
		close(fd);
	return fd < 0 ? -errno : 0;
}

static int widen_mode(void *arg)
{
	(void)arg;
	return chmod(tow_test_path(), 0666) ? -errno : 0;
}

/*
 * The errors of QUERY do not depend on who asks.  The file is root's: opening
 * is what is checked, and whoever is handed an open file may use it.
 */
static int every_error(void *arg)
{
	struct tow_query query;
	int fd = *(int *)arg;
	char tail[sizeof(query) + 8];

	if (tow_test_query(fd, &query))
		return -1;
	query = (struct tow_query){ .size = sizeof(query) - 1 };
	if (tow_test_ioctl(fd, TOW_IOCTL_QUERY, &query) != -EINVAL)
		return -2;
	query = (struct tow_query){ .size = sizeof(query), .flags = 1 };
	if (tow_test_ioctl(fd, TOW_IOCTL_QUERY, &query) != -EINVAL)
		return -3;
	query = (struct tow_query){ .size = sizeof(query), .reserved = 1 };
	if (tow_test_ioctl(fd, TOW_IOCTL_QUERY, &query) != -EINVAL)
		return -4;
	memset(tail, 0, sizeof(tail));
	memcpy(tail, &(__u32){ sizeof(tail) }, sizeof(__u32));
	if (tow_test_ioctl(fd, TOW_IOCTL_QUERY, tail))
		return -5;
	memcpy(tail, &(__u32){ sizeof(tail) }, sizeof(__u32));
	tail[sizeof(query)] = 1;
	if (tow_test_ioctl(fd, TOW_IOCTL_QUERY, tail) != -E2BIG)
		return -6;
	if (tow_test_ioctl(fd, TOW_IOCTL_QUERY, NULL) != -EFAULT)
		return -7;
	if (tow_test_ioctl(fd, _IO(TOW_IOCTL_TYPE, 255), &query) != -ENOTTY)
		return -8;
	return 0;
}

TEST_F(access, same_errors_for_everybody)
{
	int who;

	for (who = 0; who < TOW_WHO_COUNT; who++) {
		EXPECT_EQ(0, tow_as(who, every_error, &self->fd))
			TH_LOG("%s", tow_who_name[who]);
		EXPECT_EQ(-ENOENT, tow_as(who, open_missing, NULL))
			TH_LOG("%s", tow_who_name[who]);
		if (who != TOW_ROOT && who != TOW_REAL_ROOT_IN_USERNS) {
			EXPECT_EQ(-EPERM, tow_as(who, widen_mode, NULL))
				TH_LOG("%s", tow_who_name[who]);
		}
	}
}

static int open_from_new_netns(void *arg)
{
	if (unshare(CLONE_NEWNET))
		return TOW_NOT_BECOME;
	return open_and_query(arg);
}

static int query_from_new_netns(void *arg)
{
	struct tow_query query;

	if (unshare(CLONE_NEWNET))
		return TOW_NOT_BECOME;
	return tow_test_query(*(int *)arg, &query);
}

/* A namespace that ended goes away a little later; until then: busy. */
static int set_rdma_netns(const char *mode)
{
	char command[80];
	int tries;

	snprintf(command, sizeof(command), "rdma system set netns %s 2>/dev/null", mode);
	for (tries = 0; tries < 400; tries++) {
		if (!system(command))
			return 0;
		tow_test_sleep_ms(50);
	}
	return -EBUSY;
}

TEST_F(access, network_namespace_shared)
{
	int flags = O_RDWR;

	EXPECT_EQ(0, tow_as(TOW_ROOT, open_from_new_netns, &flags));
	EXPECT_EQ(0, tow_as(TOW_ROOT, query_from_new_netns, &self->fd));
}

TEST_F(access, network_namespace_exclusive)
{
	int flags = O_RDWR;

	ASSERT_EQ(0, set_rdma_netns("exclusive"));
	EXPECT_EQ(-EPERM, tow_as(TOW_ROOT, open_from_new_netns, &flags));
	EXPECT_EQ(0, tow_as(TOW_ROOT, query_from_new_netns, &self->fd));
	EXPECT_EQ(0, open_as(TOW_ROOT, O_RDWR));
	ASSERT_EQ(0, set_rdma_netns("shared"));
	EXPECT_EQ(0, tow_as(TOW_ROOT, open_from_new_netns, &flags));
}

/* A user namespace's root may make network namespaces; that opens nothing. */
TEST_F(access, root_of_user_and_network_namespace)
{
	int flags = O_RDWR;

	EXPECT_EQ(-EACCES, tow_as(TOW_ROOT_IN_USERNS, open_from_new_netns, &flags));
	ASSERT_EQ(0, apply_rule());
	EXPECT_EQ(-EACCES, tow_as(TOW_ROOT_IN_USERNS, open_from_new_netns, &flags));
	EXPECT_EQ(0, tow_as(TOW_GROUP_IN_USERNS, open_from_new_netns, &flags));
}

/*
 * Soft-RoCE on an interface of another network namespace: its packets would
 * leave through the initial one.  Answers the errno of opening it.
 */
static int open_rxe_elsewhere(void *arg)
{
	int fd, ret, tries;

	(void)arg;
	if (unshare(CLONE_NEWNET))
		return TOW_NOT_BECOME;
	if (system("ip link add towdummy type dummy && ip link set towdummy up && "
		   "rdma link add rxe_else type rxe netdev towdummy"))
		return TOW_NOT_BECOME;
	for (tries = 0; tries < 400 && access(TOW_TEST_DEVICES "/rxe_else", F_OK); tries++)
		tow_test_sleep_ms(50);
	fd = open(TOW_TEST_DEVICES "/rxe_else", O_RDWR | O_CLOEXEC);
	ret = fd < 0 ? -errno : 0;
	if (fd >= 0)
		close(fd);
	if (system("rdma link del rxe_else && ip link del towdummy"))
		return TOW_NOT_BECOME;
	return ret;
}

TEST_F(access, soft_roce_in_another_network_namespace)
{
	if (strncmp(tow_test_device(), "rxe", 3)) {
		SKIP(return, "the lab's device is not soft-RoCE");
	}
	EXPECT_EQ(-EOPNOTSUPP, tow_as(TOW_ROOT, open_rxe_elsewhere, NULL));
}

TEST_HARNESS_MAIN

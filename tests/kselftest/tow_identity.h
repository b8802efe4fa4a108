/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Doing things as somebody else, each time in a child of its own.
 */
#ifndef TOW_IDENTITY_H
#define TOW_IDENTITY_H

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum tow_who {
	TOW_ROOT,
	TOW_GROUP,		/* nobody, with rdma as his group */
	TOW_EXTRA_GROUP,	/* nobody, with rdma as one of his other groups */
	TOW_NOBODY,
	TOW_ROOT_IN_USERNS,	/* nobody, who made himself root of a namespace */
	TOW_GROUP_IN_USERNS,	/* the same with rdma as his group */
	TOW_REAL_ROOT_IN_USERNS,	/* root mapped to root, capabilities gone */
	TOW_WHO_COUNT
};

static const char * const tow_who_name[] = {
	"root", "rdma group", "rdma as extra group", "nobody", "root in a user namespace",
	"rdma group in a user namespace", "real root in a user namespace",
};

/* Something that cannot be an errno: the child did not get that far. */
#define TOW_NOT_BECOME	(-250)

static inline gid_t tow_rdma_group(void)
{
	struct group *group = getgrnam("rdma");

	/* Without the udev rule's group any number serves. */
	return group ? group->gr_gid : 4711;
}

static inline int tow_write_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "we");
	int ret;

	if (!file)
		return -errno;
	ret = fputs(text, file) < 0 ? -EIO : 0;
	if (fclose(file) && !ret)
		ret = -errno;
	return ret;
}

/* Root of a new user namespace. */
static inline int tow_enter_userns(uid_t uid, gid_t gid)
{
	char map[64];

	if (unshare(CLONE_NEWUSER))
		return -errno;
	if (tow_write_file("/proc/self/setgroups", "deny"))
		return -EIO;
	snprintf(map, sizeof(map), "0 %u 1", uid);
	if (tow_write_file("/proc/self/uid_map", map))
		return -EIO;
	snprintf(map, sizeof(map), "0 %u 1", gid);
	if (tow_write_file("/proc/self/gid_map", map))
		return -EIO;
	return getuid() || getgid() ? -EIO : 0;
}

static inline int tow_become(enum tow_who who)
{
	gid_t rdma = tow_rdma_group();
	uid_t uid = 65534;
	gid_t gid = 65534;
	size_t extra = 0;

	switch (who) {
	case TOW_ROOT:
		return 0;
	case TOW_REAL_ROOT_IN_USERNS:
		return tow_enter_userns(0, 0);
	case TOW_GROUP:
	case TOW_GROUP_IN_USERNS:
		gid = rdma;
		break;
	case TOW_EXTRA_GROUP:
		extra = 1;
		break;
	default:
		break;
	}
	if (setgroups(extra, &rdma) || setresgid(gid, gid, gid) || setresuid(uid, uid, uid))
		return -errno;
	if (who == TOW_ROOT_IN_USERNS || who == TOW_GROUP_IN_USERNS) {
		/* Changing identity made /proc/self root's: take it back. */
		if (prctl(PR_SET_DUMPABLE, 1))
			return -errno;
		return tow_enter_userns(uid, gid);
	}
	return 0;
}

/* Call what(arg) as somebody; its answer must be 0 or a negative errno. */
static inline int tow_as(enum tow_who who, int (*what)(void *arg), void *arg)
{
	int status, ret;
	pid_t child;

	fflush(NULL);
	child = fork();
	if (child < 0)
		return TOW_NOT_BECOME;
	if (!child) {
		ret = tow_become(who);
		if (ret) {
			fprintf(stderr, "# cannot become %s: %s\n", tow_who_name[who],
				strerror(-ret));
			_exit(250);
		}
		_exit(-what(arg));
	}
	if (waitpid(child, &status, 0) != child || !WIFEXITED(status))
		return TOW_NOT_BECOME;
	return -WEXITSTATUS(status);
}

#endif /* TOW_IDENTITY_H */

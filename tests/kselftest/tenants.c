// SPDX-License-Identifier: GPL-2.0
/*
 * Whom memory is charged to, and whose names are whose: users, containers with user
 * namespaces of their own, and cgroups where the module was loaded with
 * account_by=cgroup.
 */
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "tow_hotplug.h"
#include "tow_identity.h"
#include "tow_peer.h"
#include "tow_region.h"

/* More than any case takes, so that it is the limit that refuses. */
#define POOL_BYTES	(16 * TOW_SLAB)
#define LIMIT		3	/* slabs, of a user */
#define MANY		8

/* ---- tenants: processes in a place, which do as they are told ----------------- */

enum namespace {
	INITIAL,
	ROOTS,			/* root's container, in which the user has number 1 */
	ALONE,			/* a namespace of root's with that user only */
	OWN,			/* the user has made one for himself */
};

struct place {
	uid_t user;		/* as the initial namespace has it */
	enum namespace namespace;
	const char *cgroup;	/* NULL: the root */
	int job;		/* 0: none */
};

enum what {
	TAKE,			/* so many slabs: how many there were */
	NAME,			/* a region that lingers */
	ATTACH,
	LIST,			/* how many regions it sees */
	EXPORT,			/* its region, by this name */
	RESOLVE,
	EXPORTS,		/* how many it sees */
	ACCOUNTS,		/* how many it sees */
	JOIN,
	DEEPER,			/* a namespace in its namespace, and another client */
};

struct order {
	enum what what;
	int number;
	char name[16];
};

struct tenant {
	pid_t child;
	int end;
};

static int take(int fd, int wanted)
{
	struct tow_region_create made;
	int count = 0;

	while (count < wanted && !tow_region_create(fd, TOW_SLAB, &made))
		count++;
	return count;
}

static int resolve(int fd, const char *name)
{
	struct tow_resolve found;
	__u64 peer;
	int ret = tow_connect_self(fd, &peer);

	return ret ? ret : tow_find(fd, peer, name, &found);
}

static int count_accounts(int fd)
{
	struct tow_account_info entries[MANY];
	struct tow_account_list call = {
		.size = sizeof(call), .entries = (uintptr_t)entries,
		.entry_size = sizeof(*entries), .count = MANY,
	};
	int ret = tow_test_ioctl(fd, TOW_IOCTL_ACCOUNT_LIST, &call);

	return ret ? ret : (int)call.count;
}

/* What the old owner began may be under way for a while. */
static int attach(int fd, const char *name, __u64 *handle)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	struct tow_region_attach attached;
	int ret;

	while ((ret = tow_region_attach(fd, name, &attached)) == -EBUSY && tow_patient(&patience))
		tow_test_sleep_ms(10);
	*handle = attached.handle;
	return ret;
}

static int obey(int *fd, const struct order *order)
{
	struct tow_region_create made;
	static __u64 region;
	__u64 handle;
	int ret;

	switch (order->what) {
	case TAKE:
		return take(*fd, order->number);
	case NAME:
		ret = tow_region_create_named(*fd, TOW_SLAB, TOW_REGION_PERSISTENT, 60,
					      order->name, &made);
		region = made.handle;
		return ret;
	case ATTACH:
		return attach(*fd, order->name, &region);
	case LIST:
		return tow_region_count(*fd);
	case EXPORT:
		return tow_publish(*fd, region, order->name, 8, &handle);
	case RESOLVE:
		return resolve(*fd, order->name);
	case EXPORTS:
		return tow_count_exports(*fd, 0);
	case ACCOUNTS:
		return count_accounts(*fd);
	case JOIN:
		return tow_enter_job(*fd, (__u8)order->number);
	case DEEPER:
		if (unshare(CLONE_NEWUSER))
			return -errno;
		*fd = tow_test_open(O_RDWR);
		return *fd < 0 ? *fd : 0;
	}
	return -EINVAL;
}

static int become(const struct place *place, int end)
{
	uid_t user = place->user;
	char byte;

	if (place->namespace == ROOTS || place->namespace == ALONE)
		return unshare(CLONE_NEWUSER) || write(end, "1", 1) != 1 ||
		       read(end, &byte, 1) != 1 || setresuid(1, 1, 1);
	if (user && (setgroups(0, NULL) || setresgid(user, user, user) ||
		     setresuid(user, user, user)))
		return -1;
	if (place->namespace == OWN)
		return prctl(PR_SET_DUMPABLE, 1) || tow_enter_userns(user, user);
	return 0;
}

static void be_tenant(const struct place *place, int end)
{
	struct order order;
	int fd, ret;

	/* What a case that failed leaves behind ends with it. */
	if (become(place, end) || prctl(PR_SET_PDEATHSIG, SIGKILL))
		_exit(2);
	fd = tow_test_open(O_RDWR);
	ret = fd < 0 ? fd : 0;
	if (!ret && place->job)
		ret = tow_enter_job(fd, (__u8)place->job);
	/* Until the other end is closed. */
	do {
		if (write(end, &ret, sizeof(ret)) != sizeof(ret))
			_exit(3);
		if (read(end, &order, sizeof(order)) != sizeof(order))
			_exit(0);
		ret = obey(&fd, &order);
	} while (true);
}

static int hear(const struct tenant *tenant)
{
	int ret;

	return read(tenant->end, &ret, sizeof(ret)) == sizeof(ret) ? ret : TOW_NOT_BECOME;
}

/* What it answers: a number or a negative errno. */
static int tell_named(const struct tenant *tenant, enum what what, const char *name, int number)
{
	struct order order = { .what = what, .number = number };

	snprintf(order.name, sizeof(order.name), "%s", name);
	if (write(tenant->end, &order, sizeof(order)) != sizeof(order))
		return -EPIPE;
	return hear(tenant);
}

static int tell(const struct tenant *tenant, enum what what, int number)
{
	return tell_named(tenant, what, "w", number);
}

/* The child maps no user itself, as it is root's namespace and not root's user. */
static int map_users(const struct tenant *tenant, uid_t user, unsigned int count)
{
	char path[64], map[64];

	if (read(tenant->end, map, 1) != 1)
		return -EPIPE;
	snprintf(path, sizeof(path), "/proc/%d/gid_map", tenant->child);
	if (tow_write_file(path, "0 0 1"))
		return -EIO;
	snprintf(path, sizeof(path), "/proc/%d/uid_map", tenant->child);
	snprintf(map, sizeof(map), "1 %u %u", user, count);
	return tow_write_file(path, map) || write(tenant->end, "1", 1) != 1;
}

static int move_to(const char *cgroup, pid_t pid)
{
	char path[300], text[32];

	snprintf(path, sizeof(path), "/sys/fs/cgroup%s/cgroup.procs", cgroup);
	snprintf(text, sizeof(text), "%d", (int)pid);
	return tow_write_file(path, text);
}

static struct tenant start(struct __test_metadata *_metadata, const struct place *place)
{
	struct tenant tenant;
	int ends[2];

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
	tenant.child = fork();
	if (!tenant.child) {
		close(ends[0]);
		if (place->cgroup && move_to(place->cgroup, getpid()))
			_exit(4);
		be_tenant(place, ends[1]);
	}
	close(ends[1]);
	tenant.end = ends[0];
	if (place->namespace == ROOTS || place->namespace == ALONE) {
		EXPECT_EQ(0, map_users(&tenant, place->user, place->namespace == ROOTS ? 2 : 1));
	}
	EXPECT_EQ(0, hear(&tenant));
	return tenant;
}

static void end(struct tenant *tenant)
{
	kill(tenant->child, SIGKILL);
	waitpid(tenant->child, NULL, 0);
	close(tenant->end);
}

/* What a place is given just now, of more than it may have. */
static int can_take(struct __test_metadata *_metadata, const struct place *place)
{
	struct tenant tenant = start(_metadata, place);
	int count = tell(&tenant, TAKE, MANY);

	end(&tenant);
	return count;
}

/* ---- the module ------------------------------------------------------------------ */

static int reload(const char *by)
{
	char now[32], options[32];
	int ret = 0;

	tow_test_read_line("/sys/module/towline/parameters/account_by", now, sizeof(now));
	snprintf(options, sizeof(options), "account_by=%s", by);
	if (now[0])
		ret = tow_module_unload("towline");
	return ret ? ret : tow_module_load("towline", options);
}

struct module {
	struct tow_knobs before;
	const char *by;
	bool lingers;		/* something does that nobody attaches any more */
};

/* Accounts by users or by cgroups: they are changed between cases, not for each. */
static void set_up(struct __test_metadata *_metadata, struct module *module, const char *by)
{
	char now[32];

	tow_write_file("/proc/sys/kernel/unprivileged_userns_clone", "1");
	tow_test_read_line("/sys/module/towline/parameters/account_by", now, sizeof(now));
	ASSERT_EQ(0, strcmp(now, by) ? reload(by) : 0);
	ASSERT_TRUE(tow_wait_path(tow_test_path(), true));
	module->by = by;
	tow_knobs_save(&module->before);
	ASSERT_EQ(0, tow_pool_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_sysfs_set("user_bytes_limit", LIMIT * TOW_SLAB));
	ASSERT_EQ(0, tow_sysfs_put("allow_unauthenticated", "1"));
	ASSERT_EQ(0, chmod(tow_test_path(), 0666));
}

static void tear_down(struct __test_metadata *_metadata, const struct module *module)
{
	if (module->lingers) {
		EXPECT_EQ(0, reload(module->by));
		EXPECT_TRUE(tow_wait_path(tow_test_path(), true));
	}
	EXPECT_TRUE(tow_pool_unused());
	EXPECT_EQ(0, tow_knobs_restore(&module->before));
	EXPECT_EQ(0, chmod(tow_test_path(), 0600));
}

/* ---- cgroups ------------------------------------------------------------------------ */

static const char * const groups[] = { "/tow_a", "/tow_a/x", "/tow_a/y", "/tow_b" };

#define DEEP	40	/* more than are looked at */

FIXTURE(cgroups)
{
	struct module module;
	int log;
};

static int make_group(const char *cgroup)
{
	char path[600];

	snprintf(path, sizeof(path), "/sys/fs/cgroup%s", cgroup);
	return mkdir(path, 0755) ? -errno : 0;
}

/* Whose processes were killed has them for a moment still. */
static int remove_group(const char *cgroup)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	char path[600];
	int ret;

	snprintf(path, sizeof(path), "/sys/fs/cgroup%s", cgroup);
	while ((ret = rmdir(path)) && errno == EBUSY && tow_patient(&patience))
		tow_test_sleep_ms(10);
	return ret ? -errno : 0;
}

FIXTURE_SETUP(cgroups)
{
	size_t i;

	set_up(_metadata, &self->module, "cgroup");
	for (i = 0; i < ARRAY_SIZE(groups); i++) {
		ASSERT_EQ(0, make_group(groups[i]));
	}
	self->log = tow_log_open();
	ASSERT_LE(0, self->log);
}

FIXTURE_TEARDOWN_PARENT(cgroups)
{
	size_t i;

	for (i = ARRAY_SIZE(groups); i-- > 0;) {
		EXPECT_EQ(0, remove_group(groups[i]));
	}
	EXPECT_EQ(0, tow_sysfs_put("cgroup_bytes_limit", "/tow_a default"));
	tear_down(_metadata, &self->module);
}

static const struct place in_x = { .cgroup = "/tow_a/x" };
static const struct place in_y = { .cgroup = "/tow_a/y", .user = 1000 };
static const struct place in_b = { .cgroup = "/tow_b" };
static const struct place in_root = {};

/* Dividing a cgroup, and users and namespaces in it, make no more memory. */
TEST_F_TIMEOUT(cgroups, ancestors_are_charged, 60)
{
	const struct place deeper = { .cgroup = "/tow_a/x", .user = 1000, .namespace = OWN };
	const struct place container = { .cgroup = "/tow_a/x", .user = 1000, .namespace = ROOTS };
	struct tenant x = start(_metadata, &in_x);

	EXPECT_EQ(2, tell(&x, TAKE, 2));
	EXPECT_EQ(1, can_take(_metadata, &in_y));
	EXPECT_EQ(1, can_take(_metadata, &deeper));
	EXPECT_EQ(1, can_take(_metadata, &container));
	EXPECT_EQ(LIMIT, can_take(_metadata, &in_b));
	EXPECT_EQ(1, tell(&x, TAKE, MANY));
	EXPECT_TRUE(tow_log_says(self->log, "by cgroup /tow_a/x: raise"));
	EXPECT_EQ(LIMIT * TOW_SLAB, tow_sysfs_wait("pool_used_bytes", LIMIT * TOW_SLAB));
	end(&x);
	EXPECT_EQ(LIMIT, can_take(_metadata, &in_y));
}

TEST_F_TIMEOUT(cgroups, made_anew_is_no_more, 60)
{
	const struct place with_key = { .cgroup = "/tow_a/x", .job = 1 };
	struct tenant x = start(_metadata, &with_key), again;

	self->module.lingers = true;
	ASSERT_EQ(0, tell_named(&x, NAME, "w", 0));
	end(&x);
	ASSERT_EQ(0, remove_group("/tow_a/x"));
	ASSERT_EQ(0, make_group("/tow_a/x"));
	again = start(_metadata, &in_x);
	/* Another one, though it is called so; what is above both pays for both. */
	EXPECT_EQ(0, tell(&again, LIST, 0));
	EXPECT_EQ(-ENOENT, tell_named(&again, ATTACH, "w", 0));
	EXPECT_EQ(LIMIT - 1, tell(&again, TAKE, MANY));
	end(&again);
}

/* A cgroup that the administrator names has that limit, and no user's. */
TEST_F_TIMEOUT(cgroups, named_by_the_administrator, 60)
{
	struct tenant x, y;
	char line[64];

	ASSERT_EQ(0, tow_sysfs_put("cgroup_bytes_limit", "/tow_a max\n"));
	tow_sysfs_line("cgroup_bytes_limit", line, sizeof(line));
	EXPECT_STREQ("/tow_a max", line);
	x = start(_metadata, &in_x);
	y = start(_metadata, &in_y);
	EXPECT_EQ(LIMIT, tell(&x, TAKE, MANY));
	EXPECT_EQ(1, tell(&y, TAKE, 1));
	/* It holds for accounts that there are, and is a limit of bytes only. */
	ASSERT_EQ(0, tow_sysfs_put("cgroup_bytes_limit", "/tow_a 10m"));
	tow_sysfs_line("cgroup_bytes_limit", line, sizeof(line));
	EXPECT_STREQ("/tow_a 10485760", line);
	EXPECT_EQ(1, tell(&y, TAKE, MANY));
	EXPECT_TRUE(tow_log_says(self->log, "by cgroup /tow_a: raise"));
	/* Enough for y, but not for x and y. */
	ASSERT_EQ(0, tow_sysfs_put("cgroup_bytes_limit", "/tow_a 1g"));
	ASSERT_EQ(0, tow_sysfs_set("user_mr_limit", LIMIT * TOW_SLAB_MRS));
	EXPECT_EQ(0, tell(&y, TAKE, 1));
	EXPECT_TRUE(tow_log_says(self->log, "user_mr_limit"));
	ASSERT_EQ(0, tow_sysfs_put("user_mr_limit", "max"));
	EXPECT_EQ(LIMIT, can_take(_metadata, &in_b));
	ASSERT_EQ(0, tow_sysfs_put("cgroup_bytes_limit", "/tow_a default"));
	tow_sysfs_line("cgroup_bytes_limit", line, sizeof(line));
	EXPECT_STREQ("", line);
	end(&x);
	EXPECT_EQ(0, tell(&y, TAKE, 0));
	EXPECT_EQ(1, tell(&y, TAKE, MANY));
	end(&y);
}

TEST_F(cgroups, lines_that_are_none)
{
	static const char * const wrong[] = {
		"/tow_a", "/tow_a ", " /tow_a max", "tow_a max", "/ max", "/tow_a/ max",
		"/tow_a  max", "/tow_a -1", "/tow_a 1 2", "/tow_a maximum", "max", "/tow_a 1x",
	};
	char line[64];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(wrong); i++) {
		EXPECT_EQ(-EINVAL, tow_sysfs_put("cgroup_bytes_limit", wrong[i]))
			TH_LOG("\"%s\"", wrong[i]);
	}
	EXPECT_EQ(-EINVAL, tow_sysfs_put_bytes("cgroup_bytes_limit", "/tow_a max\0", 11));
	EXPECT_EQ(-ERANGE, tow_sysfs_put("cgroup_bytes_limit", "/tow_a 999999999g"));
	tow_sysfs_line("cgroup_bytes_limit", line, sizeof(line));
	EXPECT_STREQ("", line);
}

/* So deep that it is not looked at any more: it is its ancestor's. */
TEST_F_TIMEOUT(cgroups, very_deep, 60)
{
	struct place place = { .cgroup = NULL };
	char path[400] = "/tow_b";
	struct tenant first;
	int i;

	for (i = 1; i < DEEP; i++) {
		snprintf(path + strlen(path), sizeof(path) - strlen(path), "/d%d", i);
		ASSERT_EQ(0, make_group(path));
		if (i == DEEP - 2)
			place.cgroup = strdup(path);
	}
	first = start(_metadata, &place);
	EXPECT_EQ(2, tell(&first, TAKE, 2));
	place.cgroup = path;
	EXPECT_EQ(1, can_take(_metadata, &place));
	end(&first);
	EXPECT_EQ(LIMIT, can_take(_metadata, &place));
	while (--i >= 1) {
		EXPECT_EQ(0, remove_group(path));
		*strrchr(path, '/') = '\0';
	}
}

/* Processes in the root are their users', as everywhere else. */
TEST_F_TIMEOUT(cgroups, in_the_root_users_are_charged, 60)
{
	const struct place user = { .user = 1000 };
	struct tenant root = start(_metadata, &in_root);

	self->module.lingers = true;
	EXPECT_EQ(LIMIT, can_take(_metadata, &user));
	EXPECT_EQ(0, tell(&root, NAME, 0));
	EXPECT_EQ(0, tell(&root, EXPORT, 0));
	EXPECT_EQ(0, tell(&root, RESOLVE, 0));
	EXPECT_EQ(LIMIT - 1, tell(&root, TAKE, MANY));
	end(&root);
	root = start(_metadata, &in_root);
	EXPECT_EQ(0, tell(&root, ATTACH, 0));
	EXPECT_EQ(1, tell(&root, LIST, 0));
	end(&root);
}

/* @job: and the next, which nobody has been in. */
static void check_strangers(struct __test_metadata *_metadata, const struct place *one,
			    const struct place *other, int job)
{
	struct tenant first = start(_metadata, one), second = start(_metadata, other);

	ASSERT_EQ(0, tow_sysfs_set("user_bytes_limit", TOW_SYSFS_MAX));
	/* No job without a key. */
	EXPECT_EQ(-ENOKEY, tell(&first, NAME, 0));
	EXPECT_EQ(-ENOKEY, tell(&first, EXPORT, 0));
	EXPECT_EQ(-ENOKEY, tell(&second, RESOLVE, 0));
	EXPECT_EQ(1, tell(&first, TAKE, 1));
	EXPECT_EQ(1, tell(&first, LIST, 0));
	EXPECT_EQ(0, tell(&second, LIST, 0));
	EXPECT_EQ(-ENOENT, tell(&second, ATTACH, 0));
	/* Jobs of different keys. */
	ASSERT_EQ(0, tell(&first, JOIN, job));
	ASSERT_EQ(0, tell(&second, JOIN, job + 1));
	ASSERT_EQ(0, tell(&first, NAME, 0));
	/* The name is the other's, too. */
	EXPECT_EQ(0, tell(&second, NAME, 0));
	EXPECT_EQ(1, tell(&second, LIST, 0));
	ASSERT_EQ(0, tell(&first, EXPORT, 0));
	EXPECT_EQ(0, tell(&first, RESOLVE, 0));
	EXPECT_EQ(1, tell(&first, EXPORTS, 0));
	EXPECT_EQ(-ENOENT, tell(&second, RESOLVE, 0));
	EXPECT_EQ(0, tell(&second, EXPORTS, 0));
	ASSERT_EQ(0, tell_named(&first, NAME, "v", 0));
	EXPECT_EQ(3, tell(&first, LIST, 0));
	EXPECT_EQ(1, tell(&second, LIST, 0));
	end(&first);
	/* What lingers in the job is the job's. */
	EXPECT_EQ(1, tell(&second, LIST, 0));
	EXPECT_EQ(-ENOENT, tell_named(&second, ATTACH, "v", 0));
	end(&second);
}

/* In one cgroup users pay together, and see their own clients only. */
TEST_F_TIMEOUT(cgroups, accounts_of_the_same_user, 60)
{
	const struct place other = { .cgroup = "/tow_a/x", .user = 1000 };
	struct tenant root = start(_metadata, &in_x);
	struct tenant first = start(_metadata, &other), second = start(_metadata, &other);
	struct tenant elsewhere = start(_metadata, &in_y);

	EXPECT_EQ(1, tell(&root, ACCOUNTS, 0));
	EXPECT_EQ(2, tell(&first, ACCOUNTS, 0));
	EXPECT_EQ(1, tell(&elsewhere, ACCOUNTS, 0));
	end(&root);
	end(&first);
	end(&second);
	end(&elsewhere);
}

TEST_F_TIMEOUT(cgroups, strangers, 60)
{
	const struct place above = { .cgroup = "/tow_a" };
	const struct place below = { .cgroup = "/tow_a/y" };

	self->module.lingers = true;
	check_strangers(_metadata, &in_x, &in_b, 1);
	/* Neither what is below, nor what is above. */
	check_strangers(_metadata, &above, &below, 3);
}

/* The same key and the same user: the region goes to the other, and the charge. */
static void check_successor(struct __test_metadata *_metadata, const struct place *old,
			    const struct place *new)
{
	struct tenant first = start(_metadata, old), second = start(_metadata, new);

	ASSERT_EQ(0, tell(&first, NAME, 0));
	EXPECT_EQ(LIMIT - 1, can_take(_metadata, old));
	EXPECT_EQ(LIMIT, tell(&second, TAKE, MANY));
	end(&first);
	EXPECT_EQ(1, tell(&second, LIST, 0) - LIMIT);
	/* It has all that it may have: the region lingers on, charged as it was. */
	EXPECT_EQ(-EDQUOT, tell(&second, ATTACH, 0));
	EXPECT_EQ(LIMIT - 1, can_take(_metadata, old));
	end(&second);
	second = start(_metadata, new);
	ASSERT_EQ(0, tell(&second, ATTACH, 0));
	EXPECT_EQ(LIMIT, can_take(_metadata, old));
	EXPECT_EQ(LIMIT - 1, tell(&second, TAKE, MANY));
	EXPECT_EQ(0, tell(&second, EXPORT, 0));
	/* Once more, back to where it came from. */
	end(&second);
	first = start(_metadata, old);
	ASSERT_EQ(0, tell(&first, ATTACH, 0));
	EXPECT_EQ(LIMIT - 1, can_take(_metadata, old));
	EXPECT_EQ(LIMIT, can_take(_metadata, new));
	end(&first);
}

TEST_F_TIMEOUT(cgroups, a_successor_with_the_key, 60)
{
	const struct place old = { .cgroup = "/tow_a/x", .job = 1 };
	const struct place new = { .cgroup = "/tow_b", .job = 1 };

	self->module.lingers = true;
	check_successor(_metadata, &old, &new);
}

/* ---- containers --------------------------------------------------------------------- */

FIXTURE(containers)
{
	struct module module;
};

FIXTURE_SETUP(containers)
{
	set_up(_metadata, &self->module, "user");
}

FIXTURE_TEARDOWN_PARENT(containers)
{
	tear_down(_metadata, &self->module);
}

/* Numbers of a user of one container, of one of another, and of one who has an account. */
static const struct place here = { .user = 100001, .namespace = ROOTS };
static const struct place there = { .user = 200001, .namespace = ROOTS };
static const struct place outside = { .user = 100001 };

TEST_F_TIMEOUT(containers, each_of_roots_has_a_quota, 60)
{
	struct tenant first = start(_metadata, &here);

	EXPECT_EQ(2, tell(&first, TAKE, 2));
	EXPECT_EQ(LIMIT, can_take(_metadata, &there));
	/* One with the same users, too; and neither root's nor theirs is used up. */
	EXPECT_EQ(LIMIT, can_take(_metadata, &here));
	EXPECT_EQ(LIMIT, can_take(_metadata, &in_root));
	EXPECT_EQ(LIMIT, can_take(_metadata, &outside));
	/* A container in it is part of it. */
	ASSERT_EQ(0, tell(&first, DEEPER, 0));
	EXPECT_EQ(1, tell(&first, TAKE, MANY));
	end(&first);
}

/* A sandbox that a setuid program has made for a user, or root for itself. */
TEST_F_TIMEOUT(containers, of_one_user_is_the_users, 60)
{
	const struct place alone = { .user = 100001, .namespace = ALONE };
	struct tenant first = start(_metadata, &alone), second = start(_metadata, &outside);

	EXPECT_EQ(1, tell(&first, TAKE, 1));
	EXPECT_EQ(1, tell(&second, TAKE, 1));
	EXPECT_EQ(LIMIT - 2, can_take(_metadata, &alone));
	end(&first);
	end(&second);
}

/* As many namespaces as he makes: they are his. */
TEST_F_TIMEOUT(containers, a_users_are_his, 60)
{
	const struct place own = { .user = 100001, .namespace = OWN };
	struct tenant first = start(_metadata, &own), second = start(_metadata, &outside);

	EXPECT_EQ(1, tell(&first, TAKE, 1));
	EXPECT_EQ(1, tell(&second, TAKE, 1));
	EXPECT_EQ(1, can_take(_metadata, &own));
	ASSERT_EQ(0, tell(&first, DEEPER, 0));
	EXPECT_EQ(1, tell(&first, TAKE, MANY));
	EXPECT_EQ(0, can_take(_metadata, &outside));
	end(&first);
	end(&second);
}

TEST_F_TIMEOUT(containers, strangers, 60)
{
	const struct place own = { .user = 100001, .namespace = OWN };

	self->module.lingers = true;
	check_strangers(_metadata, &here, &here, 1);
	check_strangers(_metadata, &own, &own, 3);
}

/* A user of the host's has a job without a key; who has his number elsewhere has not. */
TEST_F_TIMEOUT(containers, no_job_without_a_key, 60)
{
	struct tenant host = start(_metadata, &outside), inside = start(_metadata, &here);

	self->module.lingers = true;
	ASSERT_EQ(0, tell(&host, NAME, 0));
	EXPECT_EQ(0, tell(&host, EXPORT, 0));
	EXPECT_EQ(0, tell(&host, RESOLVE, 0));
	EXPECT_EQ(1, tell(&host, EXPORTS, 0));
	EXPECT_EQ(-ENOKEY, tell(&inside, RESOLVE, 0));
	EXPECT_EQ(0, tell(&inside, EXPORTS, 0));
	EXPECT_EQ(0, tell(&inside, LIST, 0));
	EXPECT_EQ(-ENOENT, tell(&inside, ATTACH, 0));
	ASSERT_EQ(0, tell(&inside, JOIN, 1));
	EXPECT_EQ(-ENOENT, tell(&inside, RESOLVE, 0));
	end(&host);
	EXPECT_EQ(-ENOENT, tell(&inside, ATTACH, 0));
	end(&inside);
}

/* A container that was killed and made anew: another namespace, the same users. */
TEST_F_TIMEOUT(containers, a_successor_with_the_key, 60)
{
	const struct place container = { .user = 100001, .namespace = ROOTS, .job = 1 };
	const struct place own = { .user = 100001, .namespace = OWN, .job = 1 };

	self->module.lingers = true;
	check_successor(_metadata, &own, &container);
}

TEST_F_TIMEOUT(containers, made_anew, 60)
{
	const struct place container = { .user = 100001, .namespace = ROOTS, .job = 1 };
	const struct place other_user = { .user = 200001, .namespace = ROOTS, .job = 1 };
	const struct place other_key = { .user = 100001, .namespace = ROOTS, .job = 2 };
	const struct place * const strangers[] = { &other_user, &other_key, &here };
	struct tenant first = start(_metadata, &container), again;
	size_t i;

	self->module.lingers = true;
	ASSERT_EQ(0, tell(&first, NAME, 0));
	end(&first);
	for (i = 0; i < ARRAY_SIZE(strangers); i++) {
		again = start(_metadata, strangers[i]);
		EXPECT_EQ(-ENOENT, tell(&again, ATTACH, 0));
		EXPECT_EQ(0, tell(&again, LIST, 0));
		end(&again);
	}
	again = start(_metadata, &container);
	EXPECT_EQ(0, tell(&again, ATTACH, 0));
	EXPECT_EQ(1, tell(&again, LIST, 0));
	EXPECT_EQ(LIMIT - 1, tell(&again, TAKE, MANY));
	end(&again);
}

TEST_F(containers, cgroups_cannot_be_named)
{
	EXPECT_EQ(-EOPNOTSUPP, tow_sysfs_put("cgroup_bytes_limit", "/a max"));
	EXPECT_EQ(-EINVAL, tow_sysfs_put("cgroup_bytes_limit", "/a"));
}

TEST_F(containers, accounts_by_what_is_not_known)
{
	/* Loaded again by the teardown. */
	self->module.lingers = true;
	ASSERT_EQ(0, tow_module_unload("towline"));
	EXPECT_EQ(-EINVAL, tow_module_load("towline", "account_by=users"));
	EXPECT_EQ(-EINVAL, tow_module_load("towline", "account_by="));
}

TEST_HARNESS_MAIN

// SPDX-License-Identifier: GPL-2.0
/*
 * Limits: of bytes, memory regions and regions, for a client, a user and the
 * device; exactly at each limit and beside it; whose error it is; that all of
 * it comes back; who counts as one user, and who may turn the knobs.
 */

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include "tow_test.h"
#include "tow_identity.h"
#include "tow_peer.h"
#include "tow_region.h"

/* More than any case takes, so that it is the limit that refuses. */
#define POOL_BYTES	(16 * TOW_SLAB)
#define MANY		16

/* What the rule of `make install` gives the node. */
#define RULE_MODE	0660

static void set_up(struct __test_metadata *_metadata, struct tow_knobs *before, uint64_t pool)
{
	tow_write_file("/proc/sys/kernel/unprivileged_userns_clone", "1");
	tow_knobs_save(before);
	ASSERT_EQ(0, tow_pool_fresh(pool));
	ASSERT_EQ(0, chown(tow_test_path(), 0, tow_rdma_group()));
	ASSERT_EQ(0, chmod(tow_test_path(), RULE_MODE));
}

static void tear_down(struct __test_metadata *_metadata, const struct tow_knobs *before)
{
	EXPECT_TRUE(tow_pool_unused())
		TH_LOG("regions of processes that have ended are still there");
	EXPECT_EQ(0, tow_knobs_restore(before));
	EXPECT_EQ(0, chown(tow_test_path(), 0, 0));
	EXPECT_EQ(0, chmod(tow_test_path(), 0600));
}

/* ---- somebody who holds regions ----------------------------------------------- */

struct holder {
	pid_t child;
	int end;
	int made;	/* regions it has */
	int error;	/* why it has no more; 0: it has what it was asked for */
};

/* As many regions of one large slab as are asked for, or as can be had. */
static int hold_regions(int fd, int wanted, struct tow_region_create *made, int *error)
{
	int count = 0;

	*error = 0;
	while (count < wanted) {
		*error = tow_region_create(fd, TOW_SLAB, &made[count]);
		if (*error)
			break;
		count++;
	}
	return count;
}

static void be_holder(int end, int wanted)
{
	struct tow_region_create made[MANY];
	int answer[2] = { -1, 0 };
	int fd = tow_test_open(O_RDWR);
	char byte;

	if (fd < 0)
		answer[1] = fd;
	else
		answer[0] = hold_regions(fd, wanted, made, &answer[1]);
	if (write(end, answer, sizeof(answer)) != sizeof(answer))
		_exit(1);
	/* Until it is told, or the other end is gone. */
	_exit(read(end, &byte, 1) < 0);
}

static void hear_holder(struct holder *holder)
{
	int answer[2] = { -1, TOW_NOT_BECOME };

	if (read(holder->end, answer, sizeof(answer)) != sizeof(answer))
		answer[0] = -1;
	holder->made = answer[0];
	holder->error = answer[1];
}

static struct holder hold(enum tow_who who, int wanted)
{
	struct holder holder = { .child = -1 };
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return holder;
	holder.child = fork();
	if (!holder.child) {
		close(ends[0]);
		if (tow_become(who))
			_exit(2);
		be_holder(ends[1], wanted);
	}
	close(ends[1]);
	holder.end = ends[0];
	hear_holder(&holder);
	return holder;
}

static void let_go(struct holder *holder)
{
	close(holder->end);
	if (holder->child > 0)
		waitpid(holder->child, NULL, 0);
}

/* What a user gets just now. */
static int can_have(enum tow_who who, int wanted, int *error)
{
	struct holder holder = hold(who, wanted);

	let_go(&holder);
	*error = holder.error;
	return holder.made;
}

/* ---- what the log says ----------------------------------------------------------- */

/*
 * Comes before all other cases: the kernel's log takes ten lines of a kind in
 * five seconds, and they refuse more often than that.
 */
FIXTURE(refused)
{
	struct tow_knobs before;
	struct tow_region_create made;
	int fd;
	int log;
};

FIXTURE_SETUP(refused)
{
	set_up(_metadata, &self->before, POOL_BYTES);
	self->fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->fd);
	self->log = tow_log_open();
	ASSERT_LE(0, self->log);
	ASSERT_EQ(0, tow_region_create(self->fd, TOW_SLAB, &self->made));
}

FIXTURE_TEARDOWN_PARENT(refused)
{
	tear_down(_metadata, &self->before);
}

/* Each limit in turn is as high as what there is. */
TEST_F(refused, log_names_the_knob)
{
	static const struct {
		const char *file;
		uint64_t value;
		int error;
	} knobs[] = {
		{ "client_bytes_limit", TOW_SLAB, -EDQUOT },
		{ "user_bytes_limit", TOW_SLAB, -EDQUOT },
		{ "client_mr_limit", TOW_SLAB_MRS, -EDQUOT },
		{ "user_mr_limit", TOW_SLAB_MRS, -EDQUOT },
		{ "client_region_limit", 1, -EDQUOT },
		{ "user_region_limit", 1, -EDQUOT },
		{ "device_region_limit", 1, -ENOSPC },
	};
	struct tow_region_create more;
	__u64 handle;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(knobs); i++) {
		ASSERT_EQ(0, tow_sysfs_set(knobs[i].file, knobs[i].value));
		EXPECT_EQ(knobs[i].error, tow_region_create(self->fd, TOW_SLAB, &more))
			TH_LOG("%s", knobs[i].file);
		EXPECT_TRUE(tow_log_says(self->log, knobs[i].file))
			TH_LOG("no line says %s", knobs[i].file);
		ASSERT_EQ(0, tow_sysfs_put(knobs[i].file, "max"));
	}
	EXPECT_EQ(-ENOSPC, tow_region_create(self->fd, POOL_BYTES, &more));
	EXPECT_TRUE(tow_log_says(self->log, "pool_bytes"));
	ASSERT_EQ(0, tow_sysfs_set("mr_limit", 0));
	ASSERT_EQ(0, tow_region_create(self->fd, 1, &more));
	EXPECT_EQ(-ENOSPC, tow_publish(self->fd, more.handle, "more", 1, &handle));
	EXPECT_TRUE(tow_log_says(self->log, "mr_limit"));
}

/* A program that does not stop asking does not fill the log. */
TEST_F(refused, log_is_not_flooded)
{
	double start = tow_test_now();
	struct tow_region_create more;
	int i, lines;

	for (i = 0; i < 100; i++) {
		EXPECT_EQ(-ENOSPC, tow_region_create(self->fd, POOL_BYTES, &more));
	}
	lines = tow_log_count(self->log, "towline", "pool_bytes");
	EXPECT_LE(1, lines);
	EXPECT_GE(10 * (2 + (int)(tow_test_now() - start) / 5), lines);
}

/* ---- every limit --------------------------------------------------------------- */

enum level { CLIENT, USER, DEVICE };

FIXTURE(limit)
{
	struct tow_knobs before;
	struct tow_region_create made[MANY];
	int fd;
};

FIXTURE_VARIANT(limit)
{
	const char *file;
	enum level level;
	uint64_t each;		/* what a region of one slab takes of it */
};

FIXTURE_VARIANT_ADD(limit, client_bytes) { "client_bytes_limit", CLIENT, TOW_SLAB };
FIXTURE_VARIANT_ADD(limit, user_bytes) { "user_bytes_limit", USER, TOW_SLAB };
FIXTURE_VARIANT_ADD(limit, client_mrs) { "client_mr_limit", CLIENT, TOW_SLAB_MRS };
FIXTURE_VARIANT_ADD(limit, user_mrs) { "user_mr_limit", USER, TOW_SLAB_MRS };
FIXTURE_VARIANT_ADD(limit, client_regions) { "client_region_limit", CLIENT, 1 };
FIXTURE_VARIANT_ADD(limit, user_regions) { "user_region_limit", USER, 1 };
FIXTURE_VARIANT_ADD(limit, device_regions) { "device_region_limit", DEVICE, 1 };
FIXTURE_VARIANT_ADD(limit, device_bytes) { "pool_bytes", DEVICE, TOW_SLAB };

FIXTURE_SETUP(limit)
{
	set_up(_metadata, &self->before, POOL_BYTES);
	self->fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN_PARENT(limit)
{
	tear_down(_metadata, &self->before);
}

static int refusal(const FIXTURE_VARIANT(limit) *variant)
{
	return variant->level == DEVICE ? -ENOSPC : -EDQUOT;
}

static const char *refusals(const FIXTURE_VARIANT(limit) *variant)
{
	return variant->level == DEVICE ? "stats/pool_refusals" : "stats/quota_refusals";
}

static int set_limit(const FIXTURE_VARIANT(limit) *variant, uint64_t value)
{
	if (!strcmp(variant->file, "pool_bytes"))
		return tow_pool_fresh(value);
	return tow_sysfs_set(variant->file, value);
}

static void end_all(struct __test_metadata *_metadata, int fd, struct tow_region_create *made,
		    int count)
{
	while (count-- > 0) {
		EXPECT_EQ(0, tow_region_end(fd, &made[count]));
	}
}

/* With this limit so many regions are to be had, not one more; and again. */
static void check_exact(struct __test_metadata *_metadata, FIXTURE_DATA(limit) *self,
			const FIXTURE_VARIANT(limit) *variant, uint64_t limit, int fit)
{
	int round, error;

	ASSERT_EQ(0, set_limit(variant, limit))
		TH_LOG("%s = %llu", variant->file, (unsigned long long)limit);
	for (round = 0; round < 3; round++) {
		uint64_t before = tow_sysfs_get(refusals(variant));
		int count = hold_regions(self->fd, MANY, self->made, &error);

		EXPECT_EQ(fit, count)
			TH_LOG("%s = %llu, round %d", variant->file, (unsigned long long)limit,
			       round);
		EXPECT_EQ(refusal(variant), error);
		EXPECT_EQ(before + 1, tow_sysfs_get(refusals(variant)));
		end_all(_metadata, self->fd, self->made, count);
		EXPECT_TRUE(tow_pool_unused());
	}
}

TEST_F_TIMEOUT(limit, exactly, 60)
{
	uint64_t three = 3 * variant->each;

	check_exact(_metadata, self, variant, three, 3);
	if (!strcmp(variant->file, "pool_bytes"))
		return;
	check_exact(_metadata, self, variant, three - 1, 2);
	check_exact(_metadata, self, variant, three + 1, variant->each == 1 ? 4 : 3);
	check_exact(_metadata, self, variant, 0, 0);
	/* One slab more, one slab less. */
	check_exact(_metadata, self, variant, 2 * variant->each, 2);
	check_exact(_metadata, self, variant, 4 * variant->each, 4);
}

/* Slabs of one region count like those of many. */
TEST_F(limit, one_large_region)
{
	struct tow_region_create made;

	if (variant->each == 1)
		return;
	ASSERT_EQ(0, set_limit(variant, 3 * variant->each));
	EXPECT_EQ(refusal(variant), tow_region_create(self->fd, 3 * TOW_SLAB + 1, &made));
	ASSERT_EQ(0, tow_region_create(self->fd, 3 * TOW_SLAB, &made));
	EXPECT_EQ(refusal(variant), tow_region_create(self->fd, 1, &made));
}

/* What is below the limit now is enough, whatever there was before. */
TEST_F(limit, recovers_one_by_one)
{
	int error, i;

	ASSERT_EQ(0, set_limit(variant, 3 * variant->each));
	ASSERT_EQ(3, hold_regions(self->fd, MANY, self->made, &error));
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(0, tow_region_end(self->fd, &self->made[i]));
		/* The pool's comes back when it is clean: a caller waits for that. */
		EXPECT_EQ(0, tow_region_create(self->fd, TOW_SLAB, &self->made[i]))
			TH_LOG("after one was given back");
		EXPECT_EQ(refusal(variant), tow_region_create(self->fd, TOW_SLAB,
							      &self->made[3]));
	}
	end_all(_metadata, self->fd, self->made, 3);
}

/* It is the memory that is charged, not the handle. */
TEST_F(limit, charged_until_the_memory_is_gone)
{
	int error;
	char *at;

	/* Regions are counted by handles, too: another case. */
	if (variant->each == 1)
		return;
	ASSERT_EQ(0, set_limit(variant, variant->each));
	ASSERT_EQ(1, hold_regions(self->fd, MANY, self->made, &error));
	at = tow_region_map(self->made[0].fd, TOW_SLAB, PROT_READ | PROT_WRITE);
	ASSERT_NE(MAP_FAILED, (void *)at);
	ASSERT_EQ(0, tow_region_destroy(self->fd, self->made[0].handle));
	EXPECT_EQ(refusal(variant), tow_region_create(self->fd, TOW_SLAB, &self->made[1]));
	close(self->made[0].fd);
	EXPECT_EQ(refusal(variant), tow_region_create(self->fd, TOW_SLAB, &self->made[1]));
	munmap(at, TOW_SLAB);
	EXPECT_EQ(0, tow_region_create(self->fd, TOW_SLAB, &self->made[1]));
}

/* Lowered below what is in use: that stays, nothing is added. */
TEST_F(limit, lowered_below_use)
{
	struct tow_region_info info;
	int error, i;

	if (!strcmp(variant->file, "pool_bytes"))
		return;
	ASSERT_EQ(4, hold_regions(self->fd, 4, self->made, &error));
	ASSERT_EQ(0, set_limit(variant, 2 * variant->each));
	EXPECT_EQ(2 * variant->each, tow_sysfs_get(variant->file));
	EXPECT_EQ(refusal(variant), tow_region_create(self->fd, TOW_SLAB, &self->made[4]));
	for (i = 0; i < 4; i++) {
		EXPECT_EQ(0, tow_region_query(self->fd, self->made[i].handle, &info));
	}
	end_all(_metadata, self->fd, self->made + 1, 3);
	EXPECT_EQ(0, tow_region_create(self->fd, TOW_SLAB, &self->made[1]));
	EXPECT_EQ(refusal(variant), tow_region_create(self->fd, TOW_SLAB, &self->made[2]));
	ASSERT_EQ(0, tow_sysfs_put(variant->file, "max"));
	EXPECT_EQ(0, tow_region_create(self->fd, TOW_SLAB, &self->made[2]));
}

/* Whom it hits, and whom not. */
TEST_F_TIMEOUT(limit, others, 60)
{
	int fd = tow_test_open(O_RDWR);
	int error;

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, set_limit(variant, 3 * variant->each));
	ASSERT_EQ(3, hold_regions(self->fd, MANY, self->made, &error));
	/* Another client of the same user: this process, and another one. */
	EXPECT_EQ(variant->level == CLIENT ? 0 : refusal(variant),
		  tow_region_create(fd, TOW_SLAB, &self->made[3]));
	close(fd);
	EXPECT_EQ(variant->level == CLIENT ? 3 : 0, can_have(TOW_ROOT, 3, &error));
	EXPECT_EQ(variant->level == CLIENT ? 0 : refusal(variant), error);
	/* Another user, who has a limit of his own of the same size. */
	EXPECT_EQ(variant->level == DEVICE ? 0 : 3, can_have(TOW_GROUP, 3, &error));
	EXPECT_EQ(variant->level == DEVICE ? refusal(variant) : 0, error);
	if (variant->level != DEVICE) {
		EXPECT_EQ(3, can_have(TOW_GROUP, 4, &error));
		EXPECT_EQ(-EDQUOT, error);
	}
}

/* ---- what is not the same for all of them ---------------------------------------- */

/* It may be charged still what is just being let go of. */
static int create_until(int fd, uint64_t bytes, struct tow_region_create *made)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	int ret;

	while ((ret = tow_region_create(fd, bytes, made)) == -EDQUOT && tow_patient(&patience))
		tow_test_sleep_ms(50);
	return ret;
}

FIXTURE(limits)
{
	struct tow_knobs before;
	int fd;
};

FIXTURE_SETUP(limits)
{
	set_up(_metadata, &self->before, POOL_BYTES);
	self->fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN_PARENT(limits)
{
	tear_down(_metadata, &self->before);
}

/* Three errors for three things that are missing. */
TEST_F(limits, three_errors)
{
	struct rlimit none = { 0, 0 };
	struct tow_region_create made;
	uint64_t handle;
	int status;
	pid_t child;

	EXPECT_EQ(-ENOSPC, tow_region_create(self->fd, POOL_BYTES + 1, &made));
	ASSERT_EQ(0, tow_sysfs_put("client_bytes_limit", "1m"));
	EXPECT_EQ(-EDQUOT, tow_region_create(self->fd, TOW_SLAB, &made));
	ASSERT_EQ(0, tow_sysfs_put("client_bytes_limit", "max"));
	child = fork();
	if (!child) {
		int fd;

		if (setrlimit(RLIMIT_MEMLOCK, &none) || tow_become(TOW_GROUP))
			_exit(9);
		fd = tow_test_open(O_RDWR);
		_exit(-tow_region_import(fd, &none, sizeof(none), 0, &handle));
	}
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(ENOMEM, WEXITSTATUS(status));
}

/* Small slabs count what they are, not what a large one is. */
TEST_F(limits, small_slabs_count_as_such)
{
	struct tow_region_create made;

	ASSERT_EQ(0, tow_sysfs_set("client_bytes_limit", 5 * TOW_SMALL_SLAB));
	ASSERT_EQ(0, tow_region_create(self->fd, TOW_SMALL_REGION, &made));
	ASSERT_EQ(0, tow_region_create(self->fd, 1, &made));
	EXPECT_EQ(-EDQUOT, tow_region_create(self->fd, 1, &made));
	ASSERT_EQ(0, tow_sysfs_put("client_bytes_limit", "max"));
	ASSERT_EQ(0, tow_sysfs_set("client_mr_limit", 6 * TOW_SLAB_MRS));
	ASSERT_EQ(0, tow_region_create(self->fd, 1, &made));
	EXPECT_EQ(-EDQUOT, tow_region_create(self->fd, 1, &made));
}

/* Whoever keeps a page in a pipe keeps the slab, and pays for it. */
TEST_F_TIMEOUT(limits, what_others_hold_is_charged, 60)
{
	const uint64_t pool = tow_sysfs_get("pool_bytes");
	struct tow_region_create again;
	struct tow_mapped mapped;
	struct iovec part;
	int ends[2];

	ASSERT_EQ(0, tow_sysfs_set("user_bytes_limit", 2 * TOW_SLAB));
	ASSERT_EQ(0, pipe(ends));
	ASSERT_EQ(0, tow_mapped_make(self->fd, TOW_SLAB, &mapped));
	part = (struct iovec){ .iov_base = mapped.at, .iov_len = 1 };
	ASSERT_EQ(1, vmsplice(ends[1], &part, 1, 0));
	ASSERT_EQ(0, tow_mapped_end(&mapped));
	EXPECT_EQ(-EDQUOT, tow_region_create(self->fd, 2 * TOW_SLAB, &again));
	EXPECT_EQ(TOW_SLAB, tow_sysfs_get("pool_held_bytes"));
	EXPECT_EQ(TOW_SLAB, tow_sysfs_get("pool_used_bytes"));
	EXPECT_EQ(pool, tow_sysfs_get("pool_bytes"));
	EXPECT_EQ(-EDQUOT, tow_region_create(self->fd, 2 * TOW_SLAB, &again));
	/* The rest is had as before. */
	ASSERT_EQ(0, tow_region_create(self->fd, TOW_SLAB, &again));
	EXPECT_EQ(0, tow_region_end(self->fd, &again));
	close(ends[0]);
	close(ends[1]);
	EXPECT_EQ(0, create_until(self->fd, 2 * TOW_SLAB, &again));
	EXPECT_EQ(0, tow_region_end(self->fd, &again));
	EXPECT_EQ(pool, tow_sysfs_get("pool_bytes"));
}

/* A handle of somebody else's region is one region, and no memory. */
TEST_F(limits, handles_count_as_regions)
{
	struct tow_region_create made;
	uint64_t handle, second;
	int other = tow_test_open(O_RDWR);

	ASSERT_LE(0, other);
	ASSERT_EQ(0, tow_region_create(other, 3 * TOW_SLAB, &made));
	ASSERT_EQ(0, tow_sysfs_put("client_bytes_limit", "0"));
	ASSERT_EQ(0, tow_sysfs_put("client_mr_limit", "0"));
	ASSERT_EQ(0, tow_sysfs_put("client_region_limit", "1"));
	ASSERT_EQ(0, tow_region_from_fd(self->fd, made.fd, &handle));
	EXPECT_EQ(-EDQUOT, tow_region_from_fd(self->fd, made.fd, &second));
	ASSERT_EQ(0, tow_region_destroy(self->fd, handle));
	ASSERT_EQ(0, tow_region_from_fd(self->fd, made.fd, &handle));
	/* The first owner goes, the handle stays; the memory is still his. */
	close(other);
	close(made.fd);
	EXPECT_EQ(3 * TOW_SLAB, tow_sysfs_get("pool_used_bytes"));
	EXPECT_EQ(-EDQUOT, tow_region_create(self->fd, 1, &made));
	EXPECT_EQ(0, tow_region_destroy(self->fd, handle));
	EXPECT_TRUE(tow_pool_unused());
	/* Of the device, too: its error is another. */
	ASSERT_EQ(0, tow_sysfs_put("client_region_limit", "max"));
	ASSERT_EQ(0, tow_sysfs_put("client_bytes_limit", "max"));
	ASSERT_EQ(0, tow_sysfs_put("client_mr_limit", "max"));
	ASSERT_EQ(0, tow_sysfs_put("device_region_limit", "1"));
	ASSERT_EQ(0, tow_region_create(self->fd, 1, &made));
	EXPECT_EQ(-ENOSPC, tow_region_from_fd(self->fd, made.fd, &handle));
}

/* The device's memory regions are made as exports need them, and stay with the slabs. */
TEST_F(limits, device_mrs)
{
	struct tow_region_create made;
	__u64 whole, slab;

	EXPECT_EQ(0, tow_sysfs_get("mr_used"));
	ASSERT_EQ(0, tow_region_create(self->fd, 3 * TOW_SLAB, &made));
	EXPECT_EQ(0, tow_sysfs_get("mr_used"));
	ASSERT_EQ(0, tow_publish(self->fd, made.handle, "whole", 3 * TOW_SLAB, &whole));
	EXPECT_EQ(3, tow_sysfs_get("mr_used"));
	/* A second export takes none. */
	ASSERT_EQ(0, tow_publish(self->fd, made.handle, "slab", TOW_SLAB, &slab));
	EXPECT_EQ(3, tow_sysfs_get("mr_used"));
	EXPECT_EQ(0, tow_end_handle(self->fd, TOW_IOCTL_UNEXPORT, whole));
	EXPECT_EQ(0, tow_end_handle(self->fd, TOW_IOCTL_UNEXPORT, slab));
	EXPECT_EQ(0, tow_region_end(self->fd, &made));
	EXPECT_TRUE(tow_pool_unused());
	EXPECT_EQ(3, tow_sysfs_get("mr_used"));
	/* Never more than the hardware has. */
	EXPECT_EQ(-ERANGE, tow_sysfs_set("mr_limit", 1ULL << 40));
	ASSERT_EQ(0, tow_pool_fresh(POOL_BYTES));
	EXPECT_EQ(0, tow_sysfs_get("mr_used"));
}

/* At the limit what nobody exports any more serves others; what is in use does not. */
TEST_F(limits, device_mrs_go_round)
{
	struct tow_region_create made;
	__u64 first, second;
	int slab;

	ASSERT_EQ(0, tow_sysfs_set("mr_limit", 1));
	ASSERT_EQ(0, tow_region_create(self->fd, 3 * TOW_SLAB, &made));
	for (slab = 0; slab < 3; slab++) {
		ASSERT_EQ(0, tow_publish_part(self->fd, made.handle, "first", slab * TOW_SLAB,
					      TOW_SLAB, &first));
		EXPECT_EQ(1, tow_sysfs_get("mr_used"));
		EXPECT_EQ(-ENOSPC, tow_publish_part(self->fd, made.handle, "second",
						    (slab + 1) % 3 * TOW_SLAB, TOW_SLAB, &second));
		EXPECT_EQ(0, tow_end_handle(self->fd, TOW_IOCTL_UNEXPORT, first));
	}
	/* All of it or nothing, and what was begun is undone. */
	EXPECT_EQ(-ENOSPC, tow_publish(self->fd, made.handle, "first", 3 * TOW_SLAB, &first));
	EXPECT_EQ(0, tow_publish(self->fd, made.handle, "first", TOW_SLAB, &first));
	EXPECT_EQ(1, tow_sysfs_get("mr_used"));
}

/* ---- users ----------------------------------------------------------------------- */

/* A namespace's root is its owner; what root makes for many users is not (tenants.c). */
TEST_F_TIMEOUT(limits, user_namespaces_are_their_owners, 60)
{
	struct holder nobody;
	int error;

	ASSERT_EQ(0, tow_sysfs_set("user_bytes_limit", 3 * TOW_SLAB));
	nobody = hold(TOW_GROUP, 2);
	ASSERT_EQ(2, nobody.made);
	EXPECT_EQ(1, can_have(TOW_GROUP_IN_USERNS, 3, &error));
	EXPECT_EQ(-EDQUOT, error);
	EXPECT_EQ(3, can_have(TOW_REAL_ROOT_IN_USERNS, 4, &error));
	EXPECT_EQ(-EDQUOT, error);
	let_go(&nobody);
	EXPECT_EQ(3, can_have(TOW_GROUP_IN_USERNS, 4, &error));
	nobody = hold(TOW_REAL_ROOT_IN_USERNS, 2);
	ASSERT_EQ(2, nobody.made);
	EXPECT_EQ(1, can_have(TOW_ROOT, 3, &error));
	let_go(&nobody);
}

/* A container of root's: its users have kuids of their own. */
static struct holder hold_in_container(uid_t outside, int wanted)
{
	struct holder holder = { .child = -1 };
	char path[64], map[64];
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return holder;
	holder.child = fork();
	if (!holder.child) {
		char byte;

		close(ends[0]);
		if (unshare(CLONE_NEWUSER) || write(ends[1], "1", 1) != 1 ||
		    read(ends[1], &byte, 1) != 1 || setresuid(1, 1, 1))
			_exit(2);
		be_holder(ends[1], wanted);
	}
	close(ends[1]);
	holder.end = ends[0];
	snprintf(path, sizeof(path), "/proc/%d/uid_map", holder.child);
	snprintf(map, sizeof(map), "1 %u 2", outside);
	if (read(ends[0], map + sizeof(map) - 1, 1) == 1 && !tow_write_file(path, map) &&
	    write(ends[0], "1", 1) == 1)
		hear_holder(&holder);
	return holder;
}

/* Each has its own quota; that of its owner is what is listed. */
TEST_F_TIMEOUT(limits, containers_are_their_owners, 60)
{
	struct holder first, second;
	struct tow_region_info info;
	uint64_t cursor = 0;

	ASSERT_EQ(0, chmod(tow_test_path(), 0666));
	ASSERT_EQ(0, tow_sysfs_set("user_bytes_limit", 3 * TOW_SLAB));
	first = hold_in_container(100001, 2);
	EXPECT_EQ(2, first.made)
		TH_LOG("%s", strerror(-first.error));
	ASSERT_EQ(1, tow_region_list(self->fd, TOW_LIST_ALL, &cursor, &info, 1));
	EXPECT_EQ(0, info.uid);
	EXPECT_EQ(first.child, info.pid);
	second = hold_in_container(200001, 2);
	EXPECT_EQ(2, second.made);
	/* The second was forked with the first one's end open: it goes first. */
	let_go(&second);
	let_go(&first);
}

/* Each user has his own, both at once, again and again. */
TEST_F_TIMEOUT(limits, users_do_not_disturb_each_other, 60)
{
	struct holder root, nobody;
	int i, error;

	ASSERT_EQ(0, tow_sysfs_set("user_bytes_limit", POOL_BYTES / 2));
	for (i = 0; i < 3; i++) {
		root = hold(TOW_ROOT, MANY);
		EXPECT_EQ(POOL_BYTES / 2 / TOW_SLAB, root.made);
		EXPECT_EQ(-EDQUOT, root.error);
		nobody = hold(TOW_GROUP, MANY);
		EXPECT_EQ(POOL_BYTES / 2 / TOW_SLAB, nobody.made);
		EXPECT_EQ(-EDQUOT, nobody.error);
		let_go(&nobody);
		/* What one gave back is not the other's. */
		EXPECT_EQ(0, can_have(TOW_ROOT, 1, &error));
		EXPECT_EQ(-EDQUOT, error);
		let_go(&root);
		EXPECT_TRUE(tow_pool_unused());
	}
}

/* Killed, with everything a user may have: at once he may have it again. */
TEST_F_TIMEOUT(limits, killed_processes_owe_nothing, 60)
{
	int i;

	ASSERT_EQ(0, tow_sysfs_set("user_bytes_limit", 4 * TOW_SLAB));
	for (i = 0; i < 5; i++) {
		struct holder holder = hold(TOW_GROUP, 4);

		EXPECT_EQ(4, holder.made)
			TH_LOG("round %d: %s", i, strerror(-holder.error));
		kill(holder.child, SIGKILL);
		let_go(&holder);
	}
}

/* ---- who may turn the knobs -------------------------------------------------------- */

static int put_every_knob(void *arg)
{
	size_t i;
	int ret;

	(void)arg;
	for (i = 0; i < ARRAY_SIZE(tow_knobs); i++) {
		ret = tow_sysfs_put(tow_knobs[i], "1");
		if (ret != -EPERM && ret != -EACCES)
			return -(int)i - 1;
	}
	return 0;
}

/* A file that root had opened, written by somebody else. */
static int put_open_file(void *arg)
{
	return write(*(int *)arg, "1", 1) < 0 ? -errno : 0;
}

TEST_F(limits, knobs_are_the_administrators)
{
	struct tow_knobs before, after;
	char path[TOW_SYSFS_PATH];
	int fd, who;

	tow_knobs_save(&before);
	tow_sysfs_path(path, sizeof(path), "client_bytes_limit");
	fd = open(path, O_WRONLY | O_CLOEXEC);
	ASSERT_LE(0, fd);
	for (who = 0; who < TOW_WHO_COUNT; who++) {
		if (who == TOW_ROOT)
			continue;
		EXPECT_EQ(0, tow_as(who, put_every_knob, NULL))
			TH_LOG("%s may write a limit", tow_who_name[who]);
		EXPECT_EQ(-EPERM, tow_as(who, put_open_file, &fd))
			TH_LOG("%s may write a limit", tow_who_name[who]);
	}
	tow_knobs_save(&after);
	EXPECT_EQ(0, memcmp(&before, &after, sizeof(before)));
	EXPECT_EQ(0, tow_as(TOW_ROOT, put_open_file, &fd));
	close(fd);
}

TEST_HARNESS_MAIN

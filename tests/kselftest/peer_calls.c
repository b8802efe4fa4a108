// SPDX-License-Identifier: GPL-2.0
/*
 * The calls about peers, exports and remote ranges: sizes, flags, reserved fields
 * and memory that is not there, by the same rules for each (tow_calls.h);
 * permissions; handles of another kind, stale, somebody else's
 * or made up; names; limits, exactly; and that jobs see nothing of each other.
 * The node is its own peer.
 */
/* build: also 32-bit */

#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>
#include "tow_test.h"
#include "tow_calls.h"
#include "tow_identity.h"
#include "tow_region.h"
#include "tow_peer.h"

/* An answer has 27 segments, one for each slab. */
#define MANY_SLABS	40
#define POOL_BYTES	((MANY_SLABS + 8) * TOW_SLAB)
#define REGION_BYTES	(64 * TOW_KB)

FIXTURE(peers)
{
	struct tow_knobs before;
	struct tow_calls set;
	struct tow_region_create region;
	__u64 peer;
	__u64 exported;			/* "there" */
	int named;			/* names that were made up */
	struct tow_peer_info nodes[4];
	struct tow_export_info exports[4];
};

/* ---- every call, and a good request of each ---------------------------------- */

enum { CONNECT, DISCONNECT, PEERS, EXPORT, UNEXPORT, EXPORTS, RESOLVE, RELEASE, CALLS };

static const struct tow_call calls[CALLS] = {
	[CONNECT] = { TOW_CALL(PEER_CONNECT, 96, tow_peer_connect), .flags = (1 << 9) - 1,
		TOW_RESERVED(tow_peer_connect, reserved), .answers = true },
	[DISCONNECT] = { TOW_CALL(PEER_DISCONNECT, 16, tow_peer_disconnect) },
	[PEERS] = { TOW_CALL(PEER_LIST, 32, tow_peer_list), .looks = true, .answers = true },
	[EXPORT] = { TOW_CALL(EXPORT, 304, tow_export), .answers = true },
	[UNEXPORT] = { TOW_CALL(UNEXPORT, 16, tow_unexport) },
	[EXPORTS] = { TOW_CALL(EXPORT_LIST, 32, tow_export_list), .flags = TOW_LIST_ALL,
		.looks = true, .answers = true },
	[RESOLVE] = { TOW_CALL(RESOLVE, 304, tow_resolve), TOW_RESERVED(tow_resolve, reserved),
		.answers = true },
	[RELEASE] = { TOW_CALL(RELEASE, 16, tow_release) },
};

/* A request as each of them. */
union request {
	union tow_request any;
	struct tow_peer_connect connect;
	struct tow_peer_disconnect disconnect;
	struct tow_peer_list peers;
	struct tow_export export;
	struct tow_unexport unexport;
	struct tow_export_list exports;
	struct tow_resolve resolve;
	struct tow_release release;
};

/* A request that succeeds, or what it is answered: no peer has the number 0. */
static int prepare(void *arg, size_t call, union tow_request *any)
{
	FIXTURE_DATA(peers) *self = arg;
	union request *request = (union request *)any;
	struct tow_resolve found;
	char name[32];

	switch (call) {
	case CONNECT:
		tow_own_address(request->connect.address);
		request->connect.timeout_ms = TOW_WAIT_MS;
		return 0;
	case DISCONNECT:
		return -ENOENT;
	case PEERS:
		request->peers.entries = (uintptr_t)self->nodes;
		request->peers.entry_size = sizeof(self->nodes[0]);
		request->peers.count = 1;
		return 0;
	case EXPORT:
		snprintf(name, sizeof(name), "name %d", self->named++);
		request->export.region = self->region.handle;
		request->export.bytes = 1;
		request->export.rights = TOW_RIGHT_READ;
		request->export.name_bytes = (__u32)strlen(name);
		memcpy(request->export.name, name, strlen(name));
		return 0;
	case UNEXPORT:
		snprintf(name, sizeof(name), "name %d", self->named++);
		return tow_publish(self->set.fd, self->region.handle, name, 1, (__u64 *)
			      &request->unexport.handle) ? -EIO : 0;
	case EXPORTS:
		request->exports.entries = (uintptr_t)self->exports;
		request->exports.entry_size = sizeof(self->exports[0]);
		request->exports.count = 1;
		return 0;
	case RESOLVE:
		request->resolve.peer = self->peer;
		request->resolve.rights = TOW_RIGHT_READ;
		request->resolve.name_bytes = 5;
		memcpy(request->resolve.name, "there", 5);
		return 0;
	default:
		if (tow_find(self->set.fd, self->peer, "there", &found))
			return -EIO;
		request->release.handle = found.handle;
		return 0;
	}
}

/* What a request that succeeded has made. */
static int undo(void *arg, size_t call, const union tow_request *any)
{
	const union request *request = (const union request *)any;
	FIXTURE_DATA(peers) *self = arg;

	if (call == EXPORT)
		return tow_end_handle(self->set.fd, TOW_IOCTL_UNEXPORT, request->export.handle);
	if (call == RESOLVE)
		return tow_end_handle(self->set.fd, TOW_IOCTL_RELEASE, request->resolve.handle);
	return 0;
}

FIXTURE_SETUP(peers)
{
	tow_knobs_save(&self->before);
	ASSERT_EQ(0, tow_pool_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_sysfs_put("allow_unauthenticated", "1"));
	self->named = 0;
	self->set = (struct tow_calls){
		.calls = calls, .count = CALLS, .self = self, .prepare = prepare, .undo = undo,
		.fd = tow_test_open(O_RDWR), .looking = tow_test_open(O_RDONLY),
	};
	ASSERT_LE(0, self->set.fd);
	ASSERT_LE(0, self->set.looking);
	ASSERT_EQ(0, tow_area_make(&self->set.area));
	ASSERT_EQ(0, tow_region_create(self->set.fd, REGION_BYTES, &self->region));
	ASSERT_EQ(0, tow_connect_self(self->set.fd, &self->peer));
	ASSERT_EQ(0, tow_publish(self->set.fd, self->region.handle, "there", 100,
				 &self->exported));
}

FIXTURE_TEARDOWN_PARENT(peers)
{
	if (!tow_pool_unused() || tow_sysfs_wait("stats/exports", 0))
		TH_LOG("what a process had that has ended is still there");
	if (tow_knobs_restore(&self->before))
		TH_LOG("cannot restore the limits");
}

static int ready(FIXTURE_DATA(peers) *self, size_t call, union request *request)
{
	return tow_call_prepare(&self->set, call, &request->any);
}

static int ask(FIXTURE_DATA(peers) *self, size_t call, union request *request)
{
	return tow_call_ask(&self->set, call, request);
}

TEST(the_longest_answers)
{
	EXPECT_EQ(112, sizeof(struct tow_peer_info));
	EXPECT_EQ(336, sizeof(struct tow_export_info));
}

TOW_CALL_CASES(peers)

/* Where the answer cannot be written, nothing may stay. */
TEST_F(peers, answer_cannot_be_written)
{
	union request request;

	tow_calls_unwritable(_metadata, &self->set);
	EXPECT_EQ(1, tow_sysfs_wait("stats/exports", 1));
	EXPECT_EQ(1, tow_count_exports(self->set.fd, 0));
	/* The name of the export that nobody knows is free again. */
	ready(self, EXPORT, &request);
	snprintf((char *)request.export.name, sizeof(request.export.name), "name %d",
		 self->named - 2);
	EXPECT_EQ(0, ask(self, EXPORT, &request));
	EXPECT_EQ(0, undo(self, EXPORT, &request.any));
}

/* ---- who may -------------------------------------------------------------------- */

TEST_F(peers, read_only_file)
{
	union request request;
	size_t call;

	TOW_EACH_CALL(&self->set, call) {
		int good = ready(self, call, &request);

		EXPECT_EQ(calls[call].looks ? good : -EBADF,
			  tow_test_ioctl(self->set.looking, calls[call].command, &request))
			TH_LOG("%s", calls[call].name);
	}
}

/* The file is another process's: the number of the first call that is wrong. */
static int ask_as_child(void *arg)
{
	FIXTURE_DATA(peers) *self = arg;
	union request request;
	size_t call;

	TOW_EACH_CALL(&self->set, call) {
		int good = 0;

		/* What takes a call to prepare: any number serves. */
		if (call == UNEXPORT || call == RELEASE) {
			memset(&request, 0, sizeof(request));
			request.any.size = calls[call].size;
			request.unexport.handle = self->exported;
		} else {
			good = ready(self, call, &request);
		}
		if (!calls[call].looks)
			good = -EPERM;
		if (ask(self, call, &request) != good)
			return -(int)call - 1;
	}
	return 0;
}

TEST_F(peers, other_process)
{
	int who, ret;

	tow_write_file("/proc/sys/kernel/unprivileged_userns_clone", "1");
	for (who = 0; who < TOW_WHO_COUNT; who++) {
		ret = tow_as(who, ask_as_child, self);
		EXPECT_EQ(0, ret)
			TH_LOG("as %d: call %d was answered wrongly", who, -ret - 1);
	}
	EXPECT_EQ(0, tow_end_handle(self->set.fd, TOW_IOCTL_UNEXPORT, self->exported));
}

/* ---- handles ---------------------------------------------------------------------- */

TEST_F(peers, handles_of_another_kind)
{
	__u64 made_up[] = { 0, 1, 1ULL << 32, self->exported + 1, ~0ULL, self->peer };
	struct tow_region_info info;
	struct tow_resolve found;
	__u64 handle;
	size_t i;

	ASSERT_EQ(0, tow_find(self->set.fd, self->peer, "there", &found));
	EXPECT_EQ(-ENOENT, tow_end_handle(self->set.fd, TOW_IOCTL_RELEASE, self->exported));
	EXPECT_EQ(-ENOENT, tow_end_handle(self->set.fd, TOW_IOCTL_UNEXPORT, found.handle));
	EXPECT_EQ(-ENOENT, tow_end_handle(self->set.fd, TOW_IOCTL_UNEXPORT, self->region.handle));
	EXPECT_EQ(-ENOENT, tow_end_handle(self->set.fd, TOW_IOCTL_RELEASE, self->region.handle));
	EXPECT_EQ(-ENOENT, tow_region_destroy(self->set.fd, self->exported));
	EXPECT_EQ(-ENOENT, tow_region_destroy(self->set.fd, found.handle));
	EXPECT_EQ(-ENOENT, tow_region_query(self->set.fd, self->exported, &info));
	EXPECT_EQ(-ENOENT, tow_publish(self->set.fd, self->exported, "x", 1, &handle));
	EXPECT_EQ(-ENOENT, tow_publish(self->set.fd, found.handle, "x", 1, &handle));
	for (i = 0; i < ARRAY_SIZE(made_up); i++) {
		if (made_up[i] == self->exported || made_up[i] == found.handle)
			continue;
		EXPECT_EQ(-ENOENT, tow_end_handle(self->set.fd, TOW_IOCTL_UNEXPORT, made_up[i]));
		EXPECT_EQ(-ENOENT, tow_end_handle(self->set.fd, TOW_IOCTL_RELEASE, made_up[i]));
	}
	EXPECT_EQ(-ENOENT, tow_find(self->set.fd, 0, "there", &found));
	EXPECT_EQ(-ENOENT, tow_find(self->set.fd, self->peer + 1, "there", &found));
	EXPECT_EQ(-ENOENT, tow_find(self->set.fd, ~0ULL, "there", &found));
}

TEST_F(peers, stale_and_somebody_elses_handles)
{
	struct tow_resolve found;
	__u64 handle;
	int fd, i;

	ASSERT_EQ(0, tow_find(self->set.fd, self->peer, "there", &found));
	fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, fd);
	EXPECT_EQ(-ENOENT, tow_end_handle(fd, TOW_IOCTL_UNEXPORT, self->exported));
	EXPECT_EQ(-ENOENT, tow_end_handle(fd, TOW_IOCTL_RELEASE, found.handle));
	EXPECT_EQ(-ENOENT, tow_publish(fd, self->region.handle, "x", 1, &handle));
	close(fd);
	EXPECT_EQ(0, tow_end_handle(self->set.fd, TOW_IOCTL_RELEASE, found.handle));
	EXPECT_EQ(-ENOENT, tow_end_handle(self->set.fd, TOW_IOCTL_RELEASE, found.handle));
	EXPECT_EQ(0, tow_end_handle(self->set.fd, TOW_IOCTL_UNEXPORT, self->exported));
	/* Its place is taken again and again, its number never. */
	for (i = 0; i < 300; i++) {
		ASSERT_EQ(0, tow_publish(self->set.fd, self->region.handle, "x", 1, &handle));
		EXPECT_NE(self->exported, handle);
		EXPECT_EQ(-ENOENT,
			  tow_end_handle(self->set.fd, TOW_IOCTL_UNEXPORT, self->exported));
		ASSERT_EQ(0, tow_end_handle(self->set.fd, TOW_IOCTL_UNEXPORT, handle));
	}
}

/* Two answers: the range is found when all of it is known. */
TEST_F(peers, more_segments_than_an_answer_has)
{
	__u64 bytes = MANY_SLABS * (__u64)TOW_SLAB, handle;
	struct tow_region_create region;
	struct tow_resolve found;

	ASSERT_EQ(0, tow_region_create(self->set.fd, bytes, &region));
	ASSERT_EQ(0, tow_publish(self->set.fd, region.handle, "large", bytes, &handle));
	ASSERT_EQ(0, tow_find(self->set.fd, self->peer, "large", &found));
	EXPECT_EQ(bytes, found.bytes);
	EXPECT_EQ(0, tow_end_handle(self->set.fd, TOW_IOCTL_RELEASE, found.handle));
	EXPECT_EQ(0, tow_end_handle(self->set.fd, TOW_IOCTL_UNEXPORT, handle));
	EXPECT_EQ(0, tow_region_end(self->set.fd, &region));
}

/* ---- names ------------------------------------------------------------------------ */

TEST_F(peers, names_of_every_length)
{
	__u32 bad[] = { 0, TOW_EXPORT_NAME_MAX + 1, 300, INT_MAX, UINT_MAX };
	union request request;
	size_t i;
	int byte;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		ready(self, EXPORT, &request);
		memset(request.export.name, 'n', sizeof(request.export.name));
		request.export.name_bytes = bad[i];
		EXPECT_EQ(-EINVAL, ask(self, EXPORT, &request));
		ready(self, RESOLVE, &request);
		memset(request.resolve.name, 'n', sizeof(request.resolve.name));
		request.resolve.name_bytes = bad[i];
		EXPECT_EQ(-EINVAL, ask(self, RESOLVE, &request));
	}
	ready(self, EXPORT, &request);
	memset(request.export.name, 'n', TOW_EXPORT_NAME_MAX);
	request.export.name_bytes = TOW_EXPORT_NAME_MAX;
	ASSERT_EQ(0, ask(self, EXPORT, &request));
	EXPECT_EQ(0, undo(self, EXPORT, &request.any));
	for (byte = 0; byte < 256; byte++) {
		bool control = byte < 32 || byte == 127;

		ready(self, EXPORT, &request);
		request.export.name[1] = (__u8)byte;
		EXPECT_EQ(control ? -EINVAL : 0, ask(self, EXPORT, &request))
			TH_LOG("byte %d", byte);
		if (!control) {
			EXPECT_EQ(0, undo(self, EXPORT, &request.any));
		}
		ready(self, RESOLVE, &request);
		request.resolve.name[1] = (__u8)byte;
		EXPECT_EQ(control ? -EINVAL : byte == 'h' ? 0 : -ENOENT,
			  ask(self, RESOLVE, &request));
	}
}

/* ---- limits ----------------------------------------------------------------------- */

FIXTURE(limit)
{
	int fd;
	struct tow_region_create region;
};

FIXTURE_SETUP(limit)
{
	ASSERT_EQ(0, tow_pool_fresh(POOL_BYTES));
	self->fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, tow_region_create(self->fd, REGION_BYTES, &self->region));
}

FIXTURE_TEARDOWN(limit)
{
	close(self->fd);
	close(self->region.fd);
	EXPECT_EQ(0, tow_sysfs_wait("stats/exports", 0));
}

FIXTURE_VARIANT(limit)
{
	const char *file;
	int error;
};

FIXTURE_VARIANT_ADD(limit, client) { .file = "client_export_limit", .error = -EDQUOT };
FIXTURE_VARIANT_ADD(limit, user) { .file = "user_export_limit", .error = -EDQUOT };
FIXTURE_VARIANT_ADD(limit, device) { .file = "export_limit", .error = -ENOSPC };

#define LIMIT 5

TEST_F(limit, exactly)
{
	__u64 handles[LIMIT + 1], none;
	char before[32], name[8];
	int i, log;

	tow_sysfs_line(variant->file, before, sizeof(before));
	ASSERT_EQ(0, tow_sysfs_set(variant->file, LIMIT));
	log = tow_log_open();
	ASSERT_LE(0, log);
	for (i = 0; i < LIMIT; i++) {
		snprintf(name, sizeof(name), "%d", i);
		ASSERT_EQ(0, tow_publish(self->fd, self->region.handle, name, 1, &handles[i]));
	}
	EXPECT_EQ(variant->error, tow_publish(self->fd, self->region.handle, "more", 1, &none));
	EXPECT_TRUE(tow_log_says(log, variant->file));
	close(log);
	/* One less is room for one; a refusal took nothing. */
	ASSERT_EQ(0, tow_end_handle(self->fd, TOW_IOCTL_UNEXPORT, handles[2]));
	ASSERT_EQ(0, tow_publish(self->fd, self->region.handle, "more", 1, &handles[2]));
	EXPECT_EQ(variant->error, tow_publish(self->fd, self->region.handle, "most", 1, &none));
	ASSERT_EQ(0, tow_sysfs_set(variant->file, LIMIT + 1));
	ASSERT_EQ(0, tow_publish(self->fd, self->region.handle, "most", 1, &handles[LIMIT]));
	/* Below what there is: nothing goes, nothing comes. */
	ASSERT_EQ(0, tow_sysfs_set(variant->file, 1));
	EXPECT_EQ(LIMIT + 1, tow_count_exports(self->fd, 0));
	EXPECT_EQ(variant->error, tow_publish(self->fd, self->region.handle, "x", 1, &none));
	for (i = 0; i <= LIMIT; i++)
		ASSERT_EQ(0, tow_end_handle(self->fd, TOW_IOCTL_UNEXPORT, handles[i]));
	ASSERT_EQ(0, tow_publish(self->fd, self->region.handle, "x", 1, &none));
	ASSERT_EQ(0, tow_sysfs_put(variant->file, before));
}

/* Of one user's exports, all together, peers have so many and no more. */
TEST_F(peers, grants_of_a_user)
{
	const char *file = "user_grant_limit";
	struct tow_resolve found;
	char before[32], name[8];
	__u64 handle;
	int i;

	tow_sysfs_line(file, before, sizeof(before));
	ASSERT_EQ(0, tow_sysfs_get("stats/grants"));
	/* A peer has no more than are left. */
	ASSERT_EQ(0, tow_sysfs_set(file, 2 * LIMIT - 1));
	for (i = 0; i < LIMIT; i++) {
		snprintf(name, sizeof(name), "%d", i);
		ASSERT_EQ(0, tow_publish(self->set.fd, self->region.handle, name, 1, &handle));
		ASSERT_EQ(0, tow_find(self->set.fd, self->peer, name, &found));
	}
	EXPECT_EQ(-ENOSPC, tow_find(self->set.fd, self->peer, "there", &found));
	/* The peer lets go of one: there is room for one. */
	ASSERT_EQ(0, tow_end_handle(self->set.fd, TOW_IOCTL_UNEXPORT, handle));
	EXPECT_EQ(LIMIT - 1, tow_sysfs_wait("stats/grants", LIMIT - 1));
	EXPECT_EQ(0, tow_find(self->set.fd, self->peer, "there", &found));
	ASSERT_EQ(0, tow_publish(self->set.fd, self->region.handle, "more", 1, &handle));
	EXPECT_EQ(-ENOSPC, tow_find(self->set.fd, self->peer, "more", &found));
	ASSERT_EQ(0, tow_sysfs_put(file, before));
	EXPECT_EQ(0, tow_find(self->set.fd, self->peer, "more", &found));
}

/* ---- jobs ------------------------------------------------------------------------- */

#define JOBS 3

/* The same name in each: its own for everybody, and no sight of another's. */
TEST_F(peers, jobs)
{
	struct tow_region_create regions[JOBS];
	struct tow_resolve found;
	__u64 handles[JOBS];
	int fds[JOBS], i;

	for (i = 0; i < JOBS; i++) {
		fds[i] = tow_test_open(O_RDWR);
		ASSERT_LE(0, fds[i]);
		ASSERT_EQ(0, tow_enter_job(fds[i], (__u8)(i + 1)));
		ASSERT_EQ(0, tow_region_create(fds[i], REGION_BYTES, &regions[i]));
		EXPECT_EQ(-ENOENT, tow_find(fds[i], self->peer, "same", &found));
		EXPECT_EQ(-ENOENT, tow_find(fds[i], self->peer, "there", &found));
		EXPECT_EQ(0, tow_count_exports(fds[i], 0));
		ASSERT_EQ(0, tow_publish(fds[i], regions[i].handle, "same", (__u64)i + 10,
				    &handles[i]));
	}
	for (i = 0; i < JOBS; i++) {
		ASSERT_EQ(0, tow_find(fds[i], self->peer, "same", &found));
		EXPECT_EQ((__u64)i + 10, found.bytes);
		EXPECT_EQ(1, tow_count_exports(fds[i], 0));
		EXPECT_EQ(JOBS + 1, tow_count_exports(fds[i], TOW_LIST_ALL));
	}
	/* One ends; the others do not notice, and his name is not theirs. */
	ASSERT_EQ(0, tow_end_handle(fds[0], TOW_IOCTL_UNEXPORT, handles[0]));
	EXPECT_EQ(-ENOENT, tow_find(fds[0], self->peer, "same", &found));
	ASSERT_EQ(0, tow_find(fds[1], self->peer, "same", &found));
	EXPECT_EQ(11, found.bytes);
	EXPECT_EQ(-ENOENT, tow_find(self->set.fd, self->peer, "same", &found));
	/* The zero job is the user's own, and no key leads there. */
	ASSERT_EQ(0, tow_find(self->set.fd, self->peer, "there", &found));
	EXPECT_EQ(-EBUSY, tow_enter_job(fds[1], 9));
	for (i = 0; i < JOBS; i++) {
		close(regions[i].fd);
		close(fds[i]);
	}
}

/* Who has agreed to hear of each other more often than a handshake is looked at. */
TEST_F(peers, quiet_with_fast_heartbeats)
{
	struct tow_peer_info before, after;
	__u64 again;

	/* Five that are missed end it before a handshake would be looked at. */
	ASSERT_EQ(0, tow_sysfs_put("heartbeat_ms", "200"));
	ASSERT_EQ(0, tow_disconnect(self->set.fd, self->peer));
	ASSERT_EQ(0, tow_connect_self(self->set.fd, &again));
	ASSERT_EQ(self->peer, again);
	ASSERT_EQ(0, tow_peer_look(self->set.fd, self->peer, &before));
	tow_test_sleep_ms(2500);
	ASSERT_EQ(0, tow_peer_look(self->set.fd, self->peer, &after));
	EXPECT_EQ(TOW_PEER_READY, after.state);
	EXPECT_EQ(before.epoch, after.epoch);
	EXPECT_EQ(0, after.last_error);
}

/* ---- what is seen of it ------------------------------------------------------------ */

#define EVENTS_KEPT	32

/* Lines of a history, each later than the one before; -1: one is not. */
static int lines_in_order(const char *path)
{
	FILE *file = fopen(path, "re");
	double then = 0, now;
	char line[256];
	int lines = 0;

	while (file && lines >= 0 && fgets(line, sizeof(line), file)) {
		bool good = sscanf(line, "%lf epoch=", &now) == 1 && now >= then;

		lines = good ? lines + 1 : -1;
		then = now;
	}
	if (file)
		fclose(file);
	return lines;
}

/* It is kept without being asked for, and is no longer than it may be. */
TEST_F(peers, history)
{
	struct tow_peer_info info;
	int lines, most = 0;
	char ready[32];
	glob_t files;
	__u64 again;

	/* Each connection is some events at both of its ends. */
	for (int i = 0; i < 6; i++) {
		ASSERT_EQ(0, tow_disconnect(self->set.fd, self->peer));
		ASSERT_EQ(0, tow_connect_self(self->set.fd, &again));
	}
	ASSERT_EQ(0, tow_peer_look(self->set.fd, again, &info));
	snprintf(ready, sizeof(ready), " epoch=%u ready", info.epoch);
	EXPECT_TRUE(tow_peer_recorded(ready));
	ASSERT_EQ(0, glob("/sys/class/towline/*/peers/*/history", 0, NULL, &files));
	for (size_t i = 0; i < files.gl_pathc; i++) {
		lines = lines_in_order(files.gl_pathv[i]);
		EXPECT_LE(1, lines);
		EXPECT_GE(EVENTS_KEPT, lines);
		most = lines > most ? lines : most;
	}
	globfree(&files);
	EXPECT_EQ(EVENTS_KEPT, most);
}

/* ---- a node that stands still ------------------------------------------------------ */

#define PROCESSORS_MAX	64
#define STILL_S		2.5

/* Who comes first there takes it, but for a twentieth of each second: 0 or a negative errno. */
static void *take_processor(void *arg)
{
	const struct sched_param first = { .sched_priority = 50 };
	double end = tow_test_now() + STILL_S;
	cpu_set_t set;
	intptr_t ret;

	CPU_ZERO(&set);
	CPU_SET((size_t)(intptr_t)arg, &set);
	ret = sched_setaffinity(0, sizeof(set), &set) ||
	      sched_setscheduler(0, SCHED_FIFO, &first) ? -errno : 0;
	while (!ret && tow_test_now() < end)
		;
	return (void *)ret;
}

/* Nobody has heard the other end, as nobody has looked. */
TEST_F(peers, that_stood_still)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	pthread_t threads[PROCESSORS_MAX];
	struct tow_peer_info before, after;
	void *wrong;

	ASSERT_GE(PROCESSORS_MAX, processors);
	/* Five that are missed are less than such a second. */
	ASSERT_EQ(0, tow_sysfs_put("heartbeat_ms", "150"));
	/* Those that were to be slower have been said. */
	tow_test_sleep_ms(1000);
	ASSERT_EQ(0, tow_peer_look(self->set.fd, self->peer, &before));
	for (intptr_t i = 0; i < processors; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, take_processor, (void *)i));
	for (long i = 0; i < processors; i++) {
		pthread_join(threads[i], &wrong);
		EXPECT_EQ(NULL, wrong);
	}
	tow_test_sleep_ms(1500);
	ASSERT_EQ(0, tow_peer_look(self->set.fd, self->peer, &after));
	EXPECT_EQ(TOW_PEER_READY, after.state);
	EXPECT_EQ(before.epoch, after.epoch);
	EXPECT_EQ(0, after.last_error);
}

struct finder {
	__u64 peer;
	int answer;	/* what RESOLVE says */
};

/* Another user, in no job: what he cannot see he cannot find. */
static int find_as_nobody(void *arg)
{
	struct finder *finder = arg;
	struct tow_resolve found;
	int fd = tow_test_open(O_RDWR);

	if (fd < 0)
		return fd;
	if (tow_count_exports(fd, 0) != 0)
		return -EXFULL;
	if (tow_count_exports(fd, TOW_LIST_ALL) != -EPERM)
		return -EPERM;
	if (tow_find(fd, finder->peer, "there", &found) != finder->answer)
		return -EILSEQ;
	close(fd);
	return 0;
}

TEST_F(peers, another_users_own_job)
{
	struct finder finder = { .peer = self->peer, .answer = -ENOENT };

	ASSERT_EQ(0, chmod(tow_test_path(), 0666));
	EXPECT_EQ(0, tow_as(TOW_NOBODY, find_as_nobody, &finder));
	/* In a container a user has no job of his own. */
	finder.answer = -ENOKEY;
	EXPECT_EQ(0, tow_as(TOW_ROOT_IN_USERNS, find_as_nobody, &finder));
}

/* ---- settings ---------------------------------------------------------------- */

static const struct {
	const char *file;
	__u32 flag;
	size_t offset;
	__u32 wrong;
} out_of_bounds[] = {
	{ "gid_index", TOW_PEER_SET_GID_INDEX, offsetof(struct tow_peer_connect, gid_index), 256 },
	{ "pkey_index", TOW_PEER_SET_PKEY_INDEX, offsetof(struct tow_peer_connect, pkey_index),
	  65536 },
	{ "sl", TOW_PEER_SET_SL, offsetof(struct tow_peer_connect, sl), 16 },
	{ "traffic_class", TOW_PEER_SET_TRAFFIC_CLASS,
	  offsetof(struct tow_peer_connect, traffic_class), 256 },
	{ "mtu", TOW_PEER_SET_MTU, offsetof(struct tow_peer_connect, mtu), 8192 },
	{ "mtu", TOW_PEER_SET_MTU, offsetof(struct tow_peer_connect, mtu), 128 },
	{ "mtu", TOW_PEER_SET_MTU, offsetof(struct tow_peer_connect, mtu), 1025 },
	{ "timeout", TOW_PEER_SET_TIMEOUT, offsetof(struct tow_peer_connect, timeout), 32 },
	{ "retry_count", TOW_PEER_SET_RETRY_COUNT, offsetof(struct tow_peer_connect, retry_count),
	  7 },
	{ "queue_depth", TOW_PEER_SET_QUEUE_DEPTH, offsetof(struct tow_peer_connect, queue_depth),
	  15 },
	{ "queue_depth", TOW_PEER_SET_QUEUE_DEPTH, offsetof(struct tow_peer_connect, queue_depth),
	  4097 },
	{ "qps_per_peer", TOW_PEER_SET_QPS, offsetof(struct tow_peer_connect, qps), 0 },
	{ "qps_per_peer", TOW_PEER_SET_QPS, offsetof(struct tow_peer_connect, qps), 65 },
};

/* A call's settings have the bounds of the files that are the device's. */
TEST_F(peers, settings_out_of_bounds)
{
	struct tow_peer_connect call;
	int error;

	for (size_t i = 0; i < sizeof(out_of_bounds) / sizeof(*out_of_bounds); i++) {
		error = tow_sysfs_set(out_of_bounds[i].file, out_of_bounds[i].wrong);
		EXPECT_TRUE(error == -ERANGE || error == -EINVAL)
			TH_LOG("%s takes %u: %d", out_of_bounds[i].file, out_of_bounds[i].wrong, error);
		call = (struct tow_peer_connect){
			.size = sizeof(call), .timeout_ms = TOW_WAIT_MS,
			.flags = out_of_bounds[i].flag,
		};
		tow_own_address(call.address);
		memcpy((char *)&call + out_of_bounds[i].offset, &out_of_bounds[i].wrong,
		       sizeof(out_of_bounds[i].wrong));
		EXPECT_EQ(-EINVAL, tow_test_ioctl(self->set.fd, TOW_IOCTL_PEER_CONNECT, &call))
			TH_LOG("a call's %s is %u", out_of_bounds[i].file, out_of_bounds[i].wrong);
	}
}

TEST_HARNESS_MAIN

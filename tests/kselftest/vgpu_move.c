// SPDX-License-Identifier: GPL-2.0
/*
 * Another device's memory (tow_vgpu.ko) moves while there are regions of it:
 *
 *	The exporter waits for what is under way, and no longer than revoke_timeout_ms and a
 *	little, also where a peer never lets go; then nothing maps the buffer any more.
 *	Nothing lands in the old place afterwards.
 *	Entries end with EFAULT, of which the region is the near end, and with ESTALE, of which
 *	an export of it is the far one; what was under way may have ended well.  What others
 *	do goes on, by the same connection.
 *	The region can be destroyed, and the buffer be imported anew, with what was in it.
 *	So it is when the device is unplugged; and in the middle of imports and their ends.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "tow_evil.h"
#include "tow_gpu.h"
#include "tow_rdma.h"

#define POOL_BYTES	(16 * TOW_SLAB)
#define OWN_BYTES	(2 * TOW_SLAB)
#define PAGE		TOW_GPU_PAGE
#define ENTRIES		64U
#define PIECE		(256 * TOW_KB)
#define AT_ONCE_MS	(tow_test_slow() ? 4000 : 1500)
/* For the exporter, where it is not what is looked at. */
#define MOVE_MS		30000U
/* When late packets would have come. */
#define LATE_MS		1000
#define REVOKE_MS	2000

FIXTURE(move)
{
	struct tow_knobs before;
	struct tow_gpu gpu;
	__u32 epoch;
};

FIXTURE_SETUP(move)
{
	tow_knobs_save(&self->before);
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_gpu_make(&self->gpu, OWN_BYTES, ENTRIES));
	self->epoch = tow_peer_epoch(self->gpu.user.fd, self->gpu.user.peer);
	ASSERT_NE(0, self->epoch);
}

/* A buffer that somebody still held would keep the module, and the lab would say so. */
FIXTURE_TEARDOWN_PARENT(move)
{
	EXPECT_EQ(0, tow_sysfs_wait("stats/regions", 0))
		TH_LOG("regions of a process that has ended are still there");
	EXPECT_EQ(0, tow_knobs_restore(&self->before));
}

static bool nothing_landed(const struct tow_gpu *gpu)
{
	struct tow_vgpu_status status;

	return !tow_gpu_status(gpu->node, gpu->buffer, &status) && !status.landed;
}

/* Neither way, nor by new exports. */
static void is_over(struct __test_metadata *_metadata, struct tow_gpu *gpu)
{
	struct tow_region_info info;
	__u64 exported;

	EXPECT_EQ(-EFAULT, tow_gpu_do(gpu, tow_gpu_near(gpu, TOW_OP_WRITE, 0, 0, PAGE)));
	EXPECT_EQ(-EFAULT, tow_gpu_do(gpu, tow_gpu_near(gpu, TOW_OP_READ, 0, 0, PAGE)));
	EXPECT_EQ(-ESTALE, tow_gpu_do(gpu, tow_gpu_far(gpu, TOW_OP_WRITE, 0, 0, PAGE)));
	EXPECT_EQ(-ESTALE, tow_gpu_do(gpu, tow_gpu_far(gpu, TOW_OP_READ, 0, 0, PAGE)));
	EXPECT_EQ(-EFAULT, tow_publish_for(gpu->user.fd, gpu->region, "anew", PAGE,
					   TOW_RIGHT_READ, &exported));
	/* It is still a region, and charged. */
	EXPECT_EQ(0, tow_region_query(gpu->user.fd, gpu->region, &info));
	EXPECT_EQ(TOW_REGION_DMABUF | TOW_REGION_INVALID, info.flags);
	EXPECT_LE(PAGE, info.charged_bytes);
}

/* Once more, with what was in it before it moved. */
static void is_there_again(struct __test_metadata *_metadata, struct tow_gpu *gpu, uint64_t bytes,
			   uint64_t seed)
{
	ASSERT_EQ(0, tow_region_destroy(gpu->user.fd, gpu->region));
	ASSERT_EQ(0, tow_gpu_import(gpu, 0, bytes));
	memset(gpu->own.at, 0, bytes);
	EXPECT_EQ(0, tow_gpu_do(gpu, tow_gpu_far(gpu, TOW_OP_READ, 0, 0, bytes)));
	EXPECT_EQ(0, tow_differs(gpu->own.at, bytes, seed));
	EXPECT_EQ(0, tow_gpu_do(gpu, tow_gpu_near(gpu, TOW_OP_READ, 0, 0, bytes)));
	EXPECT_EQ(0, tow_region_destroy(gpu->user.fd, gpu->region));
}

TEST_F_TIMEOUT(move, idle, 120)
{
	struct tow_gpu *gpu = &self->gpu;
	struct tow_vgpu_move move;
	double begin, end;

	ASSERT_EQ(0, tow_gpu_have(gpu, TOW_SLAB, 0, 0, TOW_VGPU_REFUSE_STATIC));
	tow_fill(gpu->own.at, TOW_SLAB, 3);
	ASSERT_EQ(0, tow_gpu_do(gpu, tow_gpu_far(gpu, TOW_OP_WRITE, 0, 0, TOW_SLAB)));
	begin = tow_clock_begin();
	ASSERT_EQ(0, tow_gpu_move(gpu->node, gpu->buffer, MOVE_MS, &move));
	end = tow_test_now();
	EXPECT_EQ(1, move.signaled);
	EXPECT_EQ(0, move.mappings);
	TH_LOG("waited %.3f s, unmapped after %.3f s", (double)move.waited_us / 1e6,
	       (double)move.unmapped_us / 1e6);
	is_over(_metadata, gpu);
	EXPECT_TRUE(nothing_landed(gpu));
	is_there_again(_metadata, gpu, TOW_SLAB, 3);
	EXPECT_EQ(self->epoch, tow_peer_epoch(gpu->user.fd, gpu->user.peer));
	TOW_WITHIN_AT(begin, end, AT_ONCE_MS);
}

/* A region that nobody has used, or exported. */
TEST_F(move, unused)
{
	struct tow_gpu *gpu = &self->gpu;
	struct tow_vgpu_move move;
	int round;

	gpu->buffer = tow_gpu_alloc(gpu->node, TOW_SLAB, 0, 0);
	ASSERT_LE(0, gpu->buffer);
	for (round = 0; round < 3; round++) {
		ASSERT_EQ(0, tow_import_dmabuf(gpu->user.fd, gpu->buffer, 0, TOW_SLAB, 0,
					       &gpu->region));
		ASSERT_EQ(0, tow_gpu_move(gpu->node, gpu->buffer, MOVE_MS, &move));
		EXPECT_EQ(1, move.signaled);
		EXPECT_EQ(0, move.mappings);
		/* And again, of what is no longer there. */
		ASSERT_EQ(0, tow_gpu_move(gpu->node, gpu->buffer, MOVE_MS, &move));
		EXPECT_EQ(1, move.signaled);
		ASSERT_EQ(0, tow_region_destroy(gpu->user.fd, gpu->region));
	}
}

/* ---- in the middle --------------------------------------------------------------- */

/* Another program's, in pool memory: not an operation of it fails. */
struct bystander {
	struct tow_user user;
	struct tow_mapped own, target;
	__u64 remote;
	atomic_bool over;
	unsigned int done;
	int first_error;
	pthread_t thread;
};

static void *stand_by(void *arg)
{
	struct bystander *other = arg;
	__u8 opcode = TOW_OP_WRITE;
	struct tow_sqe sqe;

	while (!other->first_error && !atomic_load(&other->over)) {
		sqe = tow_move(&other->user, opcode, other->own.made.handle, 0, other->remote, 0,
			       PIECE);
		other->first_error = tow_rings_do(&other->user.rings, &sqe);
		other->done += !other->first_error;
		opcode = opcode == TOW_OP_WRITE ? TOW_OP_READ : TOW_OP_WRITE;
	}
	return NULL;
}

static int bystander_begin(struct bystander *other)
{
	int ret;

	memset(other, 0, sizeof(*other));
	ret = tow_user_make(&other->user, 4, 0);
	if (!ret)
		ret = tow_make_target(&other->user, PIECE, &other->own, &other->target,
				      &other->remote);
	return ret ? ret : -pthread_create(&other->thread, NULL, stand_by, other);
}

static void bystander_end(struct __test_metadata *_metadata, struct bystander *other)
{
	unsigned int before = other->done;

	/* It still does something. */
	tow_test_sleep_ms(AT_ONCE_MS);
	atomic_store(&other->over, true);
	ASSERT_EQ(0, pthread_join(other->thread, NULL));
	EXPECT_EQ(0, other->first_error);
	EXPECT_LT(before, other->done);
	EXPECT_EQ(0, tow_mapped_end(&other->own));
	EXPECT_EQ(0, tow_mapped_end(&other->target));
	tow_user_end(&other->user);
}

/* All the ring has room for; the buffer is one of the ends. */
static int flood(struct tow_gpu *gpu, bool far, __u8 opcode)
{
	const __u32 places = OWN_BYTES / PIECE;
	struct tow_sqe sqe;
	__u32 i;

	for (i = 0; i < ENTRIES; i++) {
		__u64 own = i % places * PIECE, there = (i * 7 + 3) % places * PIECE;

		sqe = far ? tow_gpu_far(gpu, opcode, own, there, PIECE) :
			    tow_gpu_near(gpu, opcode, there, own, PIECE);
		sqe.user_data = i;
		if (!tow_rings_put(&gpu->user.rings, &sqe))
			return -EXFULL;
	}
	return tow_rings_enter(&gpu->user.rings, 0, 0) == (int)ENTRIES ? 0 : -EXFULL;
}

/* Each ends once, well or because it was too late: how many of the latter. */
static unsigned int collect(struct __test_metadata *_metadata, struct tow_gpu *gpu, bool far,
			    unsigned int count)
{
	const int too_late = far ? -ESTALE : -EFAULT;
	unsigned int i, late = 0;
	struct tow_cqe cqe;

	for (i = 0; i < count; i++) {
		int ret = tow_rings_wait(&gpu->user.rings, &cqe);

		EXPECT_EQ(0, ret);
		if (ret)
			break;
		EXPECT_TRUE(!cqe.status || cqe.status == too_late)
			TH_LOG("entry %llu: %s", cqe.user_data, strerror(-cqe.status));
		late += cqe.status == too_late;
	}
	return late;
}

static void in_the_middle(struct __test_metadata *_metadata, FIXTURE_DATA(move) *self, bool far,
			  __u8 opcode)
{
	struct tow_gpu *gpu = &self->gpu;
	struct tow_vgpu_move move;
	struct bystander other;
	struct tow_cqe first;
	unsigned int late;

	ASSERT_EQ(0, tow_gpu_have(gpu, OWN_BYTES, PAGE, 0, 0));
	ASSERT_EQ(0, bystander_begin(&other));
	memset(gpu->own.at, 0x11, OWN_BYTES);
	ASSERT_EQ(0, flood(gpu, far, opcode));
	ASSERT_EQ(0, tow_rings_wait(&gpu->user.rings, &first));
	EXPECT_EQ(0, first.status);
	EXPECT_EQ(0, tow_gpu_move(gpu->node, gpu->buffer, MOVE_MS, &move));
	EXPECT_EQ(1, move.signaled);
	EXPECT_EQ(0, move.mappings);
	late = collect(_metadata, gpu, far, ENTRIES - 1);
	TH_LOG("waited %.3f s, unmapped after %.3f s; %u of %u were too late",
	       (double)move.waited_us / 1e6, (double)move.unmapped_us / 1e6, late, ENTRIES);
	EXPECT_LT(0, late);
	tow_test_sleep_ms(LATE_MS);
	EXPECT_TRUE(nothing_landed(gpu));
	is_over(_metadata, gpu);
	bystander_end(_metadata, &other);
	EXPECT_EQ(self->epoch, tow_peer_epoch(gpu->user.fd, gpu->user.peer));
	EXPECT_EQ(0, tow_region_destroy(gpu->user.fd, gpu->region));
}

TEST_F_TIMEOUT(move, while_it_is_written_from_afar, 120)
{
	in_the_middle(_metadata, self, true, TOW_OP_WRITE);
}

TEST_F_TIMEOUT(move, while_it_is_read_from_afar, 120)
{
	in_the_middle(_metadata, self, true, TOW_OP_READ);
}

TEST_F_TIMEOUT(move, while_it_is_sent, 120)
{
	in_the_middle(_metadata, self, false, TOW_OP_WRITE);
}

TEST_F_TIMEOUT(move, while_it_is_fetched, 120)
{
	in_the_middle(_metadata, self, false, TOW_OP_READ);
}

/* ---- a peer that does not let go --------------------------------------------------- */

/* It has found the export: was it given a grant? */
static bool evil_finds(struct evil *e, const char *name)
{
	const size_t length = strlen(name);
	/* RESOLVE: see struct evil_resolve. */
	uint8_t body[32 + 8] = { [20] = TOW_RIGHT_READ, [25] = (uint8_t)length, [28] = 1 };
	uint32_t status;
	size_t i;

	for (i = 0; i < length; i++)
		body[32 + i] = (uint8_t)name[i];
	if (evil_say(e, T_RESOLVE, 0, body, 32 + (length + 3) / 4 * 4) ||
	    evil_hear(e, EVIL_WAIT_MS) != T_RESOLVED)
		return false;
	memcpy(&status, e->last.data + EVIL_HEADER + 16, sizeof(status));
	return !status;
}

static int evil_meet(struct evil *e)
{
	int ret = tow_module_load("tow_hostile", "");

	if (!ret)
		ret = evil_share_key();
	if (!ret)
		ret = evil_set("revoke_timeout_ms", "2000");
	/* It says nothing by itself: that is not what ends it here. */
	if (!ret)
		ret = evil_set("heartbeat_misses", "100");
	return ret ? ret : evil_ready(e, 1);
}

TEST_F_TIMEOUT(move, a_peer_never_lets_go, 120)
{
	struct tow_gpu *gpu = &self->gpu;
	struct tow_vgpu_move move;
	double begin, end;
	struct evil e;

	ASSERT_EQ(0, tow_gpu_have(gpu, TOW_SLAB, 0, 0, 0));
	ASSERT_EQ(0, evil_meet(&e));
	ASSERT_TRUE(evil_finds(&e, "gpu"));
	begin = tow_clock_begin();
	ASSERT_EQ(0, tow_gpu_move(gpu->node, gpu->buffer, MOVE_MS, &move));
	end = tow_test_now();
	TH_LOG("waited %.3f s", (double)move.waited_us / 1e6);
	EXPECT_EQ(1, move.signaled);
	EXPECT_EQ(0, move.mappings);
	EXPECT_LE(REVOKE_MS * 1000, move.waited_us);
	EXPECT_EQ(1, evil_count("revokes_late"));
	EXPECT_TRUE(nothing_landed(gpu));
	/* Who did nothing wrong is still connected. */
	EXPECT_EQ(self->epoch, tow_peer_epoch(gpu->user.fd, gpu->user.peer));
	is_over(_metadata, gpu);
	evil_end(&e);
	EXPECT_EQ(0, tow_region_destroy(gpu->user.fd, gpu->region));
	EXPECT_EQ(0, tow_module_unload("tow_hostile"));
	TOW_WITHIN_AT(begin, end, REVOKE_MS + AT_ONCE_MS);
}

struct moving {
	int node, buffer, ret;
	struct tow_vgpu_move move;
	pthread_t thread;
};

static void *move_it(void *arg)
{
	struct moving *work = arg;

	work->ret = tow_gpu_move(work->node, work->buffer, MOVE_MS, &work->move);
	return NULL;
}

/* Another buffer, which that peer knows nothing of, moves meanwhile. */
TEST_F_TIMEOUT(move, nobody_else_waits_for_such_a_peer, 120)
{
	struct tow_gpu *gpu = &self->gpu;
	struct moving slow = { .node = gpu->node };
	struct tow_vgpu_move move;
	double begin, end;
	uint64_t region;
	struct evil e;
	int other;

	ASSERT_EQ(0, tow_gpu_have(gpu, TOW_SLAB, 0, 0, 0));
	other = tow_gpu_alloc(gpu->node, PAGE, 0, 0);
	ASSERT_EQ(0, tow_import_dmabuf(gpu->user.fd, other, 0, PAGE, 0, &region));
	ASSERT_EQ(0, evil_meet(&e));
	ASSERT_EQ(0, evil_set("revoke_timeout_ms", "8000"));
	ASSERT_TRUE(evil_finds(&e, "gpu"));
	slow.buffer = gpu->buffer;
	ASSERT_EQ(0, pthread_create(&slow.thread, NULL, move_it, &slow));
	tow_test_sleep_ms(300);
	begin = tow_clock_begin();
	EXPECT_EQ(0, tow_gpu_move(gpu->node, other, MOVE_MS, &move));
	end = tow_test_now();
	EXPECT_EQ(1, move.signaled);
	ASSERT_EQ(0, pthread_join(slow.thread, NULL));
	EXPECT_EQ(0, slow.ret);
	EXPECT_EQ(1, slow.move.signaled);
	evil_end(&e);
	EXPECT_EQ(0, tow_region_destroy(gpu->user.fd, region));
	EXPECT_EQ(0, tow_region_destroy(gpu->user.fd, gpu->region));
	EXPECT_EQ(0, tow_module_unload("tow_hostile"));
	TOW_WITHIN_AT(begin, end, AT_ONCE_MS);
}

/* ---- at the same time ------------------------------------------------------------ */

struct coming {
	struct tow_gpu *gpu;
	atomic_bool over;
	unsigned int imports;
	int first_error;
	pthread_t thread;
};

/* Imports that may be over before they are used, and end in the middle of it. */
static void *come_and_go(void *arg)
{
	struct coming *work = arg;
	uint64_t region;
	__u64 exported;
	int ret = 0;

	while (!ret && !atomic_load(&work->over)) {
		ret = tow_import_dmabuf(work->gpu->user.fd, work->gpu->buffer, 0, OWN_BYTES, 0,
					&region);
		if (ret)
			break;
		ret = tow_publish_for(work->gpu->user.fd, region, "here", OWN_BYTES,
				      TOW_GPU_RIGHTS, &exported);
		if (!ret)
			tow_end_handle(work->gpu->user.fd, TOW_IOCTL_UNEXPORT, exported);
		/* It has moved meanwhile. */
		ret = ret == -EFAULT ? 0 : ret;
		if (!ret)
			ret = tow_region_destroy(work->gpu->user.fd, region);
		work->imports++;
	}
	work->first_error = ret;
	return NULL;
}

TEST_F_TIMEOUT(move, while_imports_come_and_go, 120)
{
	struct coming work = { .gpu = &self->gpu };
	int moves = tow_test_count(40), i;
	struct tow_vgpu_move move;

	self->gpu.buffer = tow_gpu_alloc(self->gpu.node, OWN_BYTES, PAGE, 0);
	ASSERT_LE(0, self->gpu.buffer);
	ASSERT_EQ(0, pthread_create(&work.thread, NULL, come_and_go, &work));
	for (i = 0; i < moves; i++) {
		tow_test_sleep_ms(i % 7);
		EXPECT_EQ(0, tow_gpu_move(self->gpu.node, self->gpu.buffer, MOVE_MS, &move));
		EXPECT_EQ(1, move.signaled);
	}
	atomic_store(&work.over, true);
	ASSERT_EQ(0, pthread_join(work.thread, NULL));
	EXPECT_EQ(0, work.first_error);
	EXPECT_LT(0, work.imports);
}

/* More than there are work items that run at a time: none may need another one's turn. */
TEST_F_TIMEOUT(move, very_many_imports_at_once, 120)
{
	const unsigned int many = 600;
	struct tow_gpu *gpu = &self->gpu;
	struct tow_vgpu_move move;
	uint64_t regions[600];
	__u64 exported;
	char name[16];
	unsigned int i;

	gpu->buffer = tow_gpu_alloc(gpu->node, PAGE, 0, 0);
	ASSERT_LE(0, gpu->buffer);
	for (i = 0; i < many; i++) {
		snprintf(name, sizeof(name), "many %u", i);
		ASSERT_EQ(0, tow_import_dmabuf(gpu->user.fd, gpu->buffer, 0, PAGE, 0,
					       &regions[i]));
		ASSERT_EQ(0, tow_publish_for(gpu->user.fd, regions[i], name, PAGE,
					     TOW_RIGHT_READ, &exported));
	}
	ASSERT_EQ(0, tow_gpu_move(gpu->node, gpu->buffer, MOVE_MS, &move));
	TH_LOG("waited %.3f s", (double)move.waited_us / 1e6);
	EXPECT_EQ(1, move.signaled);
	EXPECT_EQ(0, move.mappings);
	for (i = 0; i < many; i++)
		EXPECT_EQ(0, tow_region_destroy(gpu->user.fd, regions[i]));
}

/* ---- the device goes ------------------------------------------------------------- */

TEST_F_TIMEOUT(move, it_is_unplugged, 120)
{
	struct tow_gpu *gpu = &self->gpu;
	struct tow_vgpu_status status;
	char pci[32];
	double begin, end;

	ASSERT_EQ(0, tow_gpu_have(gpu, OWN_BYTES, PAGE, 0, 0));
	ASSERT_TRUE(tow_gpu_pci(pci, sizeof(pci)));
	ASSERT_EQ(0, flood(gpu, true, TOW_OP_WRITE));
	begin = tow_clock_begin();
	ASSERT_EQ(0, tow_gpu_driver("unbind", pci));
	end = tow_test_now();
	collect(_metadata, gpu, true, ENTRIES);
	is_over(_metadata, gpu);
	ASSERT_EQ(0, tow_gpu_status(gpu->node, gpu->buffer, &status));
	EXPECT_EQ(0, status.mappings);
	/* What is left of it says so. */
	EXPECT_EQ(-ENODEV, tow_gpu_alloc(gpu->node, PAGE, 0, 0));
	EXPECT_EQ(0, tow_region_destroy(gpu->user.fd, gpu->region));
	EXPECT_GT(0, tow_import_dmabuf(gpu->user.fd, gpu->buffer, 0, PAGE, 0, &gpu->region));
	EXPECT_EQ(0, tow_gpu_driver("bind", pci));
	EXPECT_TRUE(tow_wait_path(TOW_VGPU_NODE, true));
	TOW_WITHIN_AT(begin, end, 2 * AT_ONCE_MS);
}

TEST_HARNESS_MAIN

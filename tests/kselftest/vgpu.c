// SPDX-License-Identifier: GPL-2.0
/*
 * Regions of another device's memory (tow_vgpu.ko), for which there are no pages:
 *
 *	What ring entries write to it, and read from it, is there byte for byte: as the near
 *	end and as the far one, all of a buffer or a part from an offset on, in one piece or
 *	in many.  It is in the device, also where that would move it to host memory for an
 *	importer that does not take it as it is.  A read-only region can only be read from.
 *	An import waits until the buffer is not busy any more, and can be killed meanwhile.
 *	Nothing else of the device waits with it: regions, other imports, its removal.
 *	What an import is charged is given back with its region, and nothing is left of a
 *	program that was killed.
 *
 * What becomes of them when the buffer moves is vgpu_move.c's.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "tow_gpu.h"

#define POOL_BYTES	(16 * TOW_SLAB)
#define OWN_BYTES	(3 * TOW_SLAB)
#define PAGE		TOW_GPU_PAGE
/* What takes no longer where nobody waits, on whatever kernel. */
#define AT_ONCE_MS	(tow_test_slow() ? 4000 : 1500)
#define BUSY_MS		(3 * AT_ONCE_MS)

FIXTURE(vgpu)
{
	struct tow_knobs before;
	struct tow_random random;
	struct tow_gpu gpu;
	char name[NAME_MAX + 1];
	char interface[64];
};

FIXTURE_SETUP(vgpu)
{
	snprintf(self->name, sizeof(self->name), "%s", tow_test_device());
	snprintf(self->interface, sizeof(self->interface), "%s", tow_link_interface());
	tow_knobs_save(&self->before);
	self->random.state = 0x7467;
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_gpu_make(&self->gpu, OWN_BYTES, 32));
}

/* A buffer that somebody still held would keep the module, and the lab would say so. */
FIXTURE_TEARDOWN_PARENT(vgpu)
{
	EXPECT_TRUE(tow_link_restore(self->name, self->interface))
		TH_LOG("%s does not come back", self->name);
	EXPECT_EQ(0, tow_sysfs_wait("stats/regions", 0))
		TH_LOG("regions of a process that has ended are still there");
	EXPECT_EQ(0, tow_knobs_restore(&self->before));
}

/* ---- every byte ---------------------------------------------------------------- */

/* A buffer, byte for byte as it must be, and room to see it. */
struct image {
	size_t bytes;
	size_t skip;		/* where the region begins in it */
	char *must;
	char *seen;
};

static bool is_right(const struct tow_gpu *gpu, const struct image *image)
{
	return !tow_gpu_read(gpu->node, gpu->buffer, 0, image->seen, image->bytes) &&
	       !memcmp(image->seen, image->must, image->bytes);
}

/* To the buffer and back again, which is the far end and then the near one. */
static void range(struct __test_metadata *_metadata, FIXTURE_DATA(vgpu) *self,
		  const struct image *image, size_t at, size_t bytes)
{
	const size_t own_at = 77;
	char *must = image->must + image->skip + at, *own = self->gpu.own.at + own_at;
	struct tow_gpu *gpu = &self->gpu;

	TH_LOG("%zu bytes at %zu", bytes, at);
	tow_random_fill(&self->random, own, bytes);
	memcpy(must, own, bytes);
	ASSERT_EQ(0, tow_gpu_do(gpu, tow_gpu_far(gpu, TOW_OP_WRITE, own_at, at, bytes)));
	ASSERT_TRUE(is_right(gpu, image));
	memset(own, 0, bytes);
	ASSERT_EQ(0, tow_gpu_do(gpu, tow_gpu_far(gpu, TOW_OP_READ, own_at, at, bytes)));
	ASSERT_EQ(0, memcmp(own, must, bytes));
	memset(own, 0, bytes);
	ASSERT_EQ(0, tow_gpu_do(gpu, tow_gpu_near(gpu, TOW_OP_WRITE, at, own_at, bytes)));
	ASSERT_EQ(0, memcmp(own, must, bytes));
	tow_random_fill(&self->random, own, bytes);
	memcpy(must, own, bytes);
	ASSERT_EQ(0, tow_gpu_do(gpu, tow_gpu_near(gpu, TOW_OP_READ, at, own_at, bytes)));
	ASSERT_TRUE(is_right(gpu, image));
}

static void ranges(struct __test_metadata *_metadata, FIXTURE_DATA(vgpu) *self, size_t bytes,
		   size_t skip)
{
	struct image image = { .bytes = bytes, .skip = skip };
	struct tow_gpu *gpu = &self->gpu;
	size_t all = bytes - skip;

	image.must = malloc(bytes);
	image.seen = malloc(bytes);
	ASSERT_NE(NULL, image.must);
	ASSERT_NE(NULL, image.seen);
	tow_random_fill(&self->random, image.must, bytes);
	ASSERT_EQ(0, tow_gpu_write(gpu->node, gpu->buffer, 0, image.must, bytes));
	range(_metadata, self, &image, 0, all);
	range(_metadata, self, &image, all - 1, 1);
	range(_metadata, self, &image, PAGE - 3, 7);
	range(_metadata, self, &image, TOW_SLAB - 4999, 9999);
	/* As the processor has it mapped, and not by way of the driver. */
	EXPECT_TRUE(tow_gpu_shows(gpu->buffer, image.must, bytes));
	free(image.must);
	free(image.seen);
}

TEST_F_TIMEOUT(vgpu, whole, 120)
{
	struct tow_region_info info;

	ASSERT_EQ(0, tow_gpu_have(&self->gpu, TOW_GPU_BYTES, 0, 0, 0));
	ASSERT_EQ(0, tow_region_query(self->gpu.user.fd, self->gpu.region, &info));
	EXPECT_EQ(TOW_REGION_DMABUF, info.flags);
	EXPECT_EQ(TOW_GPU_BYTES, info.bytes);
	EXPECT_EQ(TOW_GPU_BYTES, info.charged_bytes);
	EXPECT_EQ(0, info.map_bytes);
	ranges(_metadata, self, TOW_GPU_BYTES, 0);
	EXPECT_EQ(0, tow_region_destroy(self->gpu.user.fd, self->gpu.region));
}

/* Of pages that are not beside one another. */
TEST_F_TIMEOUT(vgpu, from_an_offset_in_pieces, 120)
{
	ASSERT_EQ(0, tow_gpu_have(&self->gpu, TOW_GPU_BYTES, PAGE, 3 * PAGE, 0));
	ranges(_metadata, self, TOW_GPU_BYTES, 3 * PAGE);
	EXPECT_EQ(0, tow_region_destroy(self->gpu.user.fd, self->gpu.region));
}

/* More pieces than one registration takes. */
TEST_F_TIMEOUT(vgpu, in_very_many_pieces, 120)
{
	const size_t bytes = 12 * TOW_MB;
	struct tow_gpu *gpu = &self->gpu;
	size_t at;

	ASSERT_EQ(0, tow_gpu_have(gpu, bytes, PAGE, 0, 0));
	for (at = 0; at < bytes; at += OWN_BYTES) {
		tow_fill(gpu->own.at, OWN_BYTES, at + 1);
		ASSERT_EQ(0, tow_gpu_do(gpu, tow_gpu_far(gpu, TOW_OP_WRITE, 0, at, OWN_BYTES)));
	}
	for (at = 0; at < bytes; at += OWN_BYTES) {
		memset(gpu->own.at, 0, OWN_BYTES);
		ASSERT_EQ(0, tow_gpu_do(gpu, tow_gpu_near(gpu, TOW_OP_WRITE, at, 0, OWN_BYTES)));
		EXPECT_EQ(0, tow_differs(gpu->own.at, OWN_BYTES, at + 1));
	}
	EXPECT_EQ(0, tow_region_destroy(gpu->user.fd, gpu->region));
}

/* ---- what exporters want ------------------------------------------------------- */

/* The dma-buf's descriptor may be closed: the region keeps what it needs. */
TEST_F(vgpu, without_its_descriptor)
{
	struct tow_gpu *gpu = &self->gpu;

	ASSERT_EQ(0, tow_gpu_have(gpu, TOW_SLAB, 0, 0, 0));
	close(gpu->buffer);
	gpu->buffer = -1;
	tow_fill(gpu->own.at, TOW_SLAB, 1);
	EXPECT_EQ(0, tow_gpu_do(gpu, tow_gpu_far(gpu, TOW_OP_WRITE, 0, 0, TOW_SLAB)));
	tow_fill(gpu->own.at, TOW_SLAB, 2);
	EXPECT_EQ(0, tow_gpu_do(gpu, tow_gpu_far(gpu, TOW_OP_READ, 0, 0, TOW_SLAB)));
	EXPECT_EQ(0, tow_differs(gpu->own.at, TOW_SLAB, 1));
	EXPECT_EQ(0, tow_region_destroy(gpu->user.fd, gpu->region));
}

TEST_F(vgpu, read_only)
{
	struct tow_gpu *gpu = &self->gpu;
	__u64 exported;

	gpu->buffer = tow_gpu_alloc(gpu->node, TOW_SLAB, 0, 0);
	ASSERT_LE(0, gpu->buffer);
	tow_fill(gpu->own.at, TOW_SLAB, 5);
	ASSERT_EQ(0, tow_gpu_write(gpu->node, gpu->buffer, 0, gpu->own.at, TOW_SLAB));
	ASSERT_EQ(0, tow_import_dmabuf(gpu->user.fd, gpu->buffer, 0, TOW_SLAB,
				       TOW_REGION_READONLY, &gpu->region));
	EXPECT_EQ(-EACCES, tow_publish_for(gpu->user.fd, gpu->region, "gpu", TOW_SLAB,
					   TOW_GPU_RIGHTS, &exported));
	EXPECT_EQ(-EACCES, tow_gpu_do(gpu, tow_gpu_near(gpu, TOW_OP_READ, 0, 0, PAGE)));
	memset(gpu->own.at, 0, TOW_SLAB);
	EXPECT_EQ(0, tow_gpu_do(gpu, tow_gpu_near(gpu, TOW_OP_WRITE, 0, 0, TOW_SLAB)));
	EXPECT_EQ(0, tow_differs(gpu->own.at, TOW_SLAB, 5));
	EXPECT_EQ(0, tow_publish_for(gpu->user.fd, gpu->region, "gpu", TOW_SLAB, TOW_RIGHT_READ,
				     &exported));
	EXPECT_EQ(0, tow_region_destroy(gpu->user.fd, gpu->region));
}

/* Pieces of an entry are in it as anywhere; the list of them, which the kernel reads, is not. */
TEST_F(vgpu, vectors)
{
	struct tow_gpu *gpu = &self->gpu;
	struct tow_vector *list = (struct tow_vector *)gpu->own.at;
	const size_t there = TOW_SLAB - PAGE / 2;
	struct tow_sqe sqe;

	ASSERT_EQ(0, tow_gpu_have(gpu, TOW_GPU_BYTES, 0, 0, 0));
	tow_fill(gpu->own.at + PAGE, 2 * PAGE, 5);
	list[0] = (struct tow_vector){ 2 * PAGE, there + PAGE, PAGE };
	list[1] = (struct tow_vector){ PAGE, there, PAGE };
	sqe = tow_gpu_far(gpu, TOW_OP_WRITE, gpu->own.made.handle, 0, 2 * sizeof(*list));
	sqe.flags = TOW_SQE_VECTOR;
	ASSERT_EQ(0, tow_gpu_do(gpu, sqe));
	memset(gpu->own.at + PAGE, 0, 2 * PAGE);
	ASSERT_EQ(0, tow_gpu_read(gpu->node, gpu->buffer, there, gpu->own.at + PAGE, 2 * PAGE));
	EXPECT_EQ(0, tow_differs(gpu->own.at + PAGE, 2 * PAGE, 5));
	sqe.vector = gpu->region;
	EXPECT_EQ(-EOPNOTSUPP, tow_gpu_do(gpu, sqe));
	EXPECT_EQ(0, tow_region_destroy(gpu->user.fd, gpu->region));
}

/* As amdgpu does it: who does not say that it can do peer-to-peer gets a copy. */
TEST_F(vgpu, stays_in_the_device)
{
	struct tow_gpu *gpu = &self->gpu;
	struct tow_vgpu_status status;

	ASSERT_EQ(0, tow_gpu_have(gpu, TOW_SLAB, 0, 0, TOW_VGPU_HOST_UNLESS_P2P));
	ASSERT_EQ(0, tow_gpu_status(gpu->node, gpu->buffer, &status));
	EXPECT_EQ(0, status.host);
	EXPECT_EQ(0, status.moves);
	EXPECT_LE(1, status.pins);
	EXPECT_LE(1, status.mappings);
	EXPECT_EQ(0, tow_region_destroy(gpu->user.fd, gpu->region));
}

/* As vfio and habanalabs do it. */
TEST_F(vgpu, is_accepted)
{
	ASSERT_EQ(0, tow_gpu_have(&self->gpu, TOW_SLAB, 0, 0, TOW_VGPU_REFUSE_STATIC));
	EXPECT_EQ(0, tow_region_destroy(self->gpu.user.fd, self->gpu.region));
}

TEST_F(vgpu, beyond_its_end)
{
	struct tow_gpu *gpu = &self->gpu;
	const uint64_t wrong[][2] = {
		{ 0, TOW_SLAB + 1 }, { TOW_SLAB, 1 }, { PAGE, TOW_SLAB },
		{ ~0ULL - PAGE + 1, 2 * PAGE }, { 1, PAGE }, { 0, 0 },
	};
	size_t i;

	gpu->buffer = tow_gpu_alloc(gpu->node, TOW_SLAB, 0, 0);
	ASSERT_LE(0, gpu->buffer);
	for (i = 0; i < ARRAY_SIZE(wrong); i++)
		EXPECT_EQ(-EINVAL, tow_import_dmabuf(gpu->user.fd, gpu->buffer, wrong[i][0],
						     wrong[i][1], 0, &gpu->region))
			TH_LOG("case %zu", i);
	/* The last page, and not all of it. */
	EXPECT_EQ(0, tow_import_dmabuf(gpu->user.fd, gpu->buffer, TOW_SLAB - PAGE, PAGE - 1, 0,
				       &gpu->region));
	EXPECT_EQ(0, tow_region_destroy(gpu->user.fd, gpu->region));
}

/* ---- waiting ------------------------------------------------------------------- */

struct importing {
	int client, buffer;
	uint64_t region;
	int ret;
	double end;
	pthread_t thread;
};

static void *import(void *arg)
{
	struct importing *work = arg;

	work->ret = tow_import_dmabuf(work->client, work->buffer, 0, TOW_SLAB, 0, &work->region);
	work->end = tow_test_now();
	return NULL;
}

/* It has begun to wait, as far as one can tell from outside. */
static int begin_import(struct tow_gpu *gpu, struct importing *work)
{
	*work = (struct importing) { .client = gpu->user.fd, .buffer = gpu->buffer };
	if (pthread_create(&work->thread, NULL, import, work))
		return -EAGAIN;
	tow_test_sleep_ms(200);
	return 0;
}

static int have_busy(struct tow_gpu *gpu, uint32_t flags)
{
	gpu->buffer = tow_gpu_alloc(gpu->node, TOW_SLAB, 0, flags);
	if (gpu->buffer < 0)
		return gpu->buffer;
	return tow_gpu_busy(gpu->node, gpu->buffer, (uint32_t)BUSY_MS, 0x5c);
}

/* Memory of all kinds comes and goes on that device: 0 or the first error. */
static int do_others(const struct tow_gpu *gpu)
{
	struct tow_mapped mapped;
	uint64_t handle;
	int other = tow_gpu_alloc(gpu->node, PAGE, 0, 0), ret;

	if (other < 0)
		return other;
	ret = tow_mapped_make(gpu->user.fd, TOW_SLAB, &mapped);
	if (!ret)
		ret = tow_mapped_end(&mapped);
	if (!ret)
		ret = tow_region_import(gpu->user.fd, &mapped, 1, TOW_REGION_READONLY, &handle);
	if (!ret)
		ret = tow_region_destroy(gpu->user.fd, handle);
	if (!ret)
		ret = tow_import_dmabuf(gpu->user.fd, other, 0, PAGE, 0, &handle);
	if (!ret)
		ret = tow_region_destroy(gpu->user.fd, handle);
	close(other);
	return ret;
}

static void wait_while_busy(struct __test_metadata *_metadata, FIXTURE_DATA(vgpu) *self,
			    uint32_t flags)
{
	double begin = tow_clock_begin(), others;
	struct tow_gpu *gpu = &self->gpu;
	struct importing work;
	char *bytes = gpu->own.at;
	size_t i, wrong = 0;

	ASSERT_EQ(0, have_busy(gpu, flags));
	ASSERT_EQ(0, begin_import(gpu, &work));
	ASSERT_EQ(0, do_others(gpu));
	others = tow_test_now();
	ASSERT_EQ(0, pthread_join(work.thread, NULL));
	ASSERT_EQ(0, work.ret);
	EXPECT_LE(BUSY_MS, (work.end - begin) * 1e3);
	/* What the buffer was busy with is in it before anybody reads. */
	gpu->region = work.region;
	ASSERT_EQ(0, tow_gpu_do(gpu, tow_gpu_near(gpu, TOW_OP_WRITE, 0, 0, TOW_SLAB)));
	for (i = 0; i < TOW_SLAB; i++)
		wrong += bytes[i] != 0x5c;
	EXPECT_EQ(0, wrong);
	EXPECT_EQ(0, tow_region_destroy(gpu->user.fd, gpu->region));
	TOW_WITHIN_AT(begin, others, AT_ONCE_MS);
}

TEST_F_TIMEOUT(vgpu, waits_while_it_is_busy, 120)
{
	wait_while_busy(_metadata, self, 0);
}

/* The exporter waits, and not the importer. */
TEST_F_TIMEOUT(vgpu, waits_to_pin, 120)
{
	wait_while_busy(_metadata, self, TOW_VGPU_PIN_WAITS);
}

static void killed_while_busy(struct __test_metadata *_metadata, FIXTURE_DATA(vgpu) *self,
			      uint32_t flags)
{
	struct tow_gpu *gpu = &self->gpu;
	uint64_t handle;
	double begin;
	pid_t child;

	ASSERT_EQ(0, have_busy(gpu, flags));
	child = fork();
	ASSERT_LE(0, child);
	if (!child) {
		int client = tow_test_open(O_RDWR);

		tow_import_dmabuf(client, gpu->buffer, 0, TOW_SLAB, 0, &handle);
		_exit(1);
	}
	tow_test_sleep_ms(300);
	begin = tow_clock_begin();
	ASSERT_EQ(0, kill(child, SIGKILL));
	ASSERT_EQ(child, waitpid(child, NULL, 0));
	TOW_WITHIN(begin, AT_ONCE_MS);
	EXPECT_TRUE(tow_gpu_let_go(gpu->node, gpu->buffer));
}

TEST_F_TIMEOUT(vgpu, killed_while_it_waits, 120)
{
	killed_while_busy(_metadata, self, 0);
}

TEST_F_TIMEOUT(vgpu, killed_while_it_pins, 120)
{
	killed_while_busy(_metadata, self, TOW_VGPU_PIN_WAITS);
}

/* The RDMA device goes, in time, and the import says so in the end. */
static void removed_while_busy(struct __test_metadata *_metadata, FIXTURE_DATA(vgpu) *self,
			       uint32_t flags)
{
	struct tow_gpu *gpu = &self->gpu;
	struct importing work;
	double begin, end;

	ASSERT_EQ(0, have_busy(gpu, flags));
	ASSERT_EQ(0, begin_import(gpu, &work));
	begin = tow_clock_begin();
	ASSERT_TRUE(tow_link_del(self->name));
	end = tow_test_now();
	ASSERT_EQ(0, pthread_join(work.thread, NULL));
	EXPECT_EQ(-ENODEV, work.ret);
	TOW_WITHIN_AT(begin, end, AT_ONCE_MS);
}

TEST_F_TIMEOUT(vgpu, removed_while_it_waits, 120)
{
	removed_while_busy(_metadata, self, 0);
}

TEST_F_TIMEOUT(vgpu, removed_while_it_pins, 120)
{
	removed_while_busy(_metadata, self, TOW_VGPU_PIN_WAITS);
}

/* It is off the device before that has gone, and the region's end is late. */
TEST_F(vgpu, removed_while_it_is_there)
{
	struct tow_gpu *gpu = &self->gpu;

	ASSERT_EQ(0, tow_gpu_have(gpu, TOW_GPU_BYTES, PAGE, 0, 0));
	ASSERT_TRUE(tow_link_del(self->name));
	EXPECT_TRUE(tow_gpu_let_go(gpu->node, gpu->buffer));
	EXPECT_EQ(-ENODEV, tow_region_destroy(gpu->user.fd, gpu->region));
}

/* ---- what is charged, and what is left ----------------------------------------- */

TEST_F(vgpu, charge)
{
	struct tow_gpu *gpu = &self->gpu;
	uint64_t second;
	int round;

	gpu->buffer = tow_gpu_alloc(gpu->node, TOW_SLAB, 0, 0);
	ASSERT_LE(0, gpu->buffer);
	/* What the pool's memory is charged, and one import. */
	ASSERT_EQ(0, tow_sysfs_set("client_bytes_limit", gpu->own.bytes + TOW_SLAB));
	for (round = 0; round < 3; round++) {
		ASSERT_EQ(0, tow_import_dmabuf(gpu->user.fd, gpu->buffer, 0, TOW_SLAB, 0,
					       &gpu->region));
		EXPECT_EQ(-EDQUOT, tow_import_dmabuf(gpu->user.fd, gpu->buffer, 0, PAGE, 0,
						     &second));
		EXPECT_EQ(0, tow_region_destroy(gpu->user.fd, gpu->region));
	}
}

/* With a region, and its export found; nothing tells the kernel but its end. */
TEST_F_TIMEOUT(vgpu, killed, 120)
{
	struct tow_gpu *gpu = &self->gpu;
	int said[2];
	pid_t child;
	char word;

	gpu->buffer = tow_gpu_alloc(gpu->node, TOW_SLAB, PAGE, 0);
	ASSERT_LE(0, gpu->buffer);
	ASSERT_EQ(0, pipe2(said, O_CLOEXEC));
	child = fork();
	ASSERT_LE(0, child);
	if (!child) {
		struct tow_gpu other;
		int ret = tow_user_make(&other.user, 4, 0);

		other.buffer = gpu->buffer;
		if (ret || tow_gpu_import(&other, 0, TOW_SLAB) || write(said[1], "1", 1) != 1)
			_exit(1);
		pause();
		_exit(1);
	}
	close(said[1]);
	EXPECT_EQ(1, read(said[0], &word, 1));
	EXPECT_FALSE(!kill(child, 0) && tow_sysfs_get("stats/regions") < 2);
	ASSERT_EQ(0, kill(child, SIGKILL));
	ASSERT_EQ(child, waitpid(child, NULL, 0));
	EXPECT_TRUE(tow_gpu_let_go(gpu->node, gpu->buffer));
	EXPECT_EQ(1, tow_sysfs_wait("stats/regions", 1));
}

TEST_HARNESS_MAIN

// SPDX-License-Identifier: GPL-2.0
/*
 * Regions of what the kernel's own exporters have, all of which stays where it is: udmabuf,
 * the system heap, vgem, and towline for another device.
 *
 *	What ring entries write to such a region, and read from it, is what the exporter's
 *	own mapping shows, byte for byte, whichever end it is.
 *	A read-only import can be read from; of a descriptor that is only for reading no
 *	other is made.
 *	The exporter's memory outlives the RDMA device, and its region ends as ever.
 *
 * Which of them a kernel has is its configuration's business: tests/skips.
 */
#include <linux/dma-buf.h>
#include <linux/dma-heap.h>
#include <linux/udmabuf.h>

#include "tow_gpu.h"
#include "tow_rdma.h"

#define POOL_BYTES	(16 * TOW_SLAB)
/* More than one registration, and no multiple of anything. */
#define BYTES		TOW_GPU_BYTES
#define OTHER		"rxe1"

/* ---- exporters: each a dma-buf of BYTES, -ENOENT where the kernel has none ----------- */

static int make_udmabuf(void)
{
	struct udmabuf_create create = { .flags = UDMABUF_FLAGS_CLOEXEC, .size = BYTES };
	int node = open("/dev/udmabuf", O_RDWR | O_CLOEXEC), fd;

	if (node < 0)
		return -errno;
	fd = memfd_create("udmabuf", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || ftruncate(fd, BYTES) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK))
		return -EIO;
	create.memfd = (__u32)fd;
	fd = ioctl(node, UDMABUF_CREATE, &create);
	return fd < 0 ? -errno : fd;
}

static int make_heap(void)
{
	struct dma_heap_allocation_data alloc = { .len = BYTES, .fd_flags = O_RDWR | O_CLOEXEC };
	int node = open("/dev/dma_heap/system", O_RDONLY | O_CLOEXEC), ret;

	if (node < 0)
		return -errno;
	ret = tow_test_ioctl(node, DMA_HEAP_IOCTL_ALLOC, &alloc);
	return ret ? ret : (int)alloc.fd;
}

/* Of the kernel's drm_mode.h and drm.h, which come with no package of headers. */
struct drm_dumb {
	__u32 height, width, bpp, flags, handle, pitch;
	__u64 size;
};

struct drm_prime {
	__u32 handle, flags;
	__s32 fd;
};

#define DRM_CREATE_DUMB		_IOWR('d', 0xb2, struct drm_dumb)
#define DRM_HANDLE_TO_FD	_IOWR('d', 0x2d, struct drm_prime)

static int make_vgem(void)
{
	struct drm_dumb dumb = { .width = BYTES / 4096, .height = 1024, .bpp = 32 };
	struct drm_prime prime = { .flags = O_CLOEXEC | O_RDWR };
	int node, ret;

	if (tow_module_load("vgem", "") || !tow_wait_path("/dev/dri/card0", true))
		return -ENOENT;
	node = open("/dev/dri/card0", O_RDWR | O_CLOEXEC);
	if (node < 0)
		return -errno;
	ret = tow_test_ioctl(node, DRM_CREATE_DUMB, &dumb);
	prime.handle = dumb.handle;
	if (!ret)
		ret = tow_test_ioctl(node, DRM_HANDLE_TO_FD, &prime);
	return ret ? ret : prime.fd;
}

/* A region of another RDMA device's pool. */
static int make_other_region(int *client, struct tow_region_create *made)
{
	int fd, ret;

	if (!tow_second_add(OTHER) || !tow_wait_path(TOW_TEST_DEVICES "/" OTHER, true))
		return -ENODEV;
	fd = open("/sys/class/towline/" OTHER "/pool_bytes", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "8m", 2) != 2)
		return -EIO;
	close(fd);
	*client = open(TOW_TEST_DEVICES "/" OTHER, O_RDWR | O_CLOEXEC);
	if (*client < 0)
		return -errno;
	ret = tow_region_create(*client, BYTES, made);
	return ret;
}

static int make_region(void)
{
	struct tow_region_create made = { .fd = -1 };
	int client = -1, ret = make_other_region(&client, &made);

	return ret ? ret : made.fd;
}

FIXTURE(import_dmabuf)
{
	struct tow_knobs before;
	struct tow_random random;
	struct tow_gpu gpu;
	char name[NAME_MAX + 1];
	char interface[64];
	char *memory;			/* as the exporter shows it */
};

FIXTURE_VARIANT(import_dmabuf)
{
	int (*make)(void);
};

FIXTURE_VARIANT_ADD(import_dmabuf, udmabuf) { .make = make_udmabuf };
FIXTURE_VARIANT_ADD(import_dmabuf, heap) { .make = make_heap };
FIXTURE_VARIANT_ADD(import_dmabuf, vgem) { .make = make_vgem };
FIXTURE_VARIANT_ADD(import_dmabuf, region) { .make = make_region };

FIXTURE_SETUP(import_dmabuf)
{
	snprintf(self->name, sizeof(self->name), "%s", tow_test_device());
	snprintf(self->interface, sizeof(self->interface), "%s", tow_link_interface());
	tow_knobs_save(&self->before);
	self->random.state = 0x6275;
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_gpu_make(&self->gpu, 3 * TOW_SLAB, 32));
	self->gpu.buffer = variant->make();
	if (self->gpu.buffer == -ENOENT)
		SKIP(return, "this kernel has no such exporter");
	ASSERT_LE(0, self->gpu.buffer);
	self->memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, self->gpu.buffer, 0);
	ASSERT_NE(MAP_FAILED, (void *)self->memory);
}

FIXTURE_TEARDOWN_PARENT(import_dmabuf)
{
	EXPECT_TRUE(tow_second_del());
	EXPECT_TRUE(tow_link_restore(self->name, self->interface))
		TH_LOG("%s does not come back", self->name);
	EXPECT_EQ(0, tow_sysfs_wait("stats/regions", 0))
		TH_LOG("regions of a process that has ended are still there");
	EXPECT_EQ(0, tow_knobs_restore(&self->before));
	/* A region's end does not wait for the exporter: an import is given back a moment later. */
	if (!access("/sys/module/vgem", F_OK)) {
		struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
		int ret;

		while ((ret = tow_module_unload("vgem")) == -EAGAIN && tow_patient(&patience))
			tow_test_sleep_ms(10);
		EXPECT_EQ(0, ret);
	}
}

/*
 * The processor begins to look at it, and to write, or ends that.  Always both: udmabuf keeps to
 * the direction that it was told first, which DMA debugging minds.
 */
static void look(const struct tow_gpu *gpu, __u64 when)
{
	struct dma_buf_sync sync = { .flags = when | DMA_BUF_SYNC_RW };

	/* Not every exporter has to do something. */
	ioctl(gpu->buffer, DMA_BUF_IOCTL_SYNC, &sync);
}

static bool shows(FIXTURE_DATA(import_dmabuf) *self, size_t at, const char *bytes, size_t count)
{
	bool same;

	look(&self->gpu, DMA_BUF_SYNC_START);
	same = !memcmp(self->memory + at, bytes, count);
	look(&self->gpu, DMA_BUF_SYNC_END);
	return same;
}

TEST_F_TIMEOUT(import_dmabuf, every_byte, 120)
{
	const size_t skip = TOW_GPU_PAGE, all = BYTES - skip;
	const size_t ranges[][2] = { { 0, all }, { all - 1, 1 }, { TOW_SLAB - 4999, 9999 } };
	struct tow_gpu *gpu = &self->gpu;
	char *own = gpu->own.at;
	size_t i, at, bytes;

	ASSERT_EQ(0, tow_gpu_import(gpu, skip, all));
	for (i = 0; i < ARRAY_SIZE(ranges); i++) {
		at = ranges[i][0];
		bytes = ranges[i][1];
		tow_random_fill(&self->random, own, bytes);
		ASSERT_EQ(0, tow_gpu_do(gpu, tow_gpu_far(gpu, TOW_OP_WRITE, 0, at, bytes)));
		ASSERT_TRUE(shows(self, skip + at, own, bytes));
		look(gpu, DMA_BUF_SYNC_START);
		tow_random_fill(&self->random, self->memory + skip + at, bytes);
		look(gpu, DMA_BUF_SYNC_END);
		ASSERT_EQ(0, tow_gpu_do(gpu, tow_gpu_far(gpu, TOW_OP_READ, 0, at, bytes)));
		ASSERT_TRUE(shows(self, skip + at, own, bytes));
		tow_random_fill(&self->random, own, bytes);
		ASSERT_EQ(0, tow_gpu_do(gpu, tow_gpu_near(gpu, TOW_OP_READ, at, 0, bytes)));
		ASSERT_TRUE(shows(self, skip + at, own, bytes));
		memset(own, 0, bytes);
		ASSERT_EQ(0, tow_gpu_do(gpu, tow_gpu_near(gpu, TOW_OP_WRITE, at, 0, bytes)));
		ASSERT_TRUE(shows(self, skip + at, own, bytes));
	}
	EXPECT_EQ(0, tow_region_destroy(gpu->user.fd, gpu->region));
}

TEST_F(import_dmabuf, read_only)
{
	struct tow_gpu *gpu = &self->gpu;

	tow_fill(self->memory, TOW_SLAB, 5);
	ASSERT_EQ(0, tow_import_dmabuf(gpu->user.fd, gpu->buffer, 0, TOW_SLAB,
				       TOW_REGION_READONLY, &gpu->region));
	EXPECT_EQ(-EACCES, tow_gpu_do(gpu, tow_gpu_near(gpu, TOW_OP_READ, 0, 0, 8)));
	EXPECT_EQ(0, tow_gpu_do(gpu, tow_gpu_near(gpu, TOW_OP_WRITE, 0, 0, TOW_SLAB)));
	EXPECT_EQ(0, tow_differs(gpu->own.at, TOW_SLAB, 5));
	EXPECT_EQ(0, tow_region_destroy(gpu->user.fd, gpu->region));
}

TEST_F_TIMEOUT(import_dmabuf, without_the_device, 120)
{
	struct tow_gpu *gpu = &self->gpu;

	ASSERT_EQ(0, tow_gpu_import(gpu, 0, BYTES));
	tow_fill(self->memory, BYTES, 6);
	ASSERT_TRUE(tow_link_del(self->name));
	EXPECT_EQ(0, tow_differs(self->memory, BYTES, 6));
	EXPECT_EQ(-ENODEV, tow_region_destroy(gpu->user.fd, gpu->region));
}

/* ---- only for reading ------------------------------------------------------------ */

FIXTURE(another)
{
	struct tow_knobs before;
	struct tow_gpu gpu;
};

FIXTURE_SETUP(another)
{
	tow_knobs_save(&self->before);
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_gpu_make(&self->gpu, 3 * TOW_SLAB, 32));
}

FIXTURE_TEARDOWN_PARENT(another)
{
	EXPECT_TRUE(tow_second_del());
	EXPECT_EQ(0, tow_sysfs_wait("stats/regions", 0));
	EXPECT_EQ(0, tow_knobs_restore(&self->before));
}

/* A descriptor of another device's region. */
TEST_F(another, readers_descriptor)
{
	struct tow_gpu *gpu = &self->gpu;
	struct tow_region_create made = { .fd = -1 };
	int client = -1, reader;
	char *memory;

	ASSERT_EQ(0, make_other_region(&client, &made));
	memory = tow_region_map(made.fd, BYTES, PROT_READ | PROT_WRITE);
	ASSERT_NE(MAP_FAILED, (void *)memory);
	tow_fill(memory, BYTES, 7);
	reader = tow_region_fd(client, made.handle, TOW_REGION_READONLY);
	ASSERT_LE(0, reader);
	EXPECT_EQ(-EACCES, tow_import_dmabuf(gpu->user.fd, reader, 0, BYTES, 0, &gpu->region));
	ASSERT_EQ(0, tow_import_dmabuf(gpu->user.fd, reader, 0, BYTES, TOW_REGION_READONLY,
				       &gpu->region));
	EXPECT_EQ(0, tow_gpu_do(gpu, tow_gpu_near(gpu, TOW_OP_WRITE, 0, 0, BYTES)));
	EXPECT_EQ(0, tow_differs(gpu->own.at, BYTES, 7));
	EXPECT_EQ(0, tow_region_destroy(gpu->user.fd, gpu->region));
}

TEST_HARNESS_MAIN

// SPDX-License-Identifier: GPL-2.0
/*
 * Memory runs out at every point of importing another device's memory (tow_vgpu.ko), and of
 * being told that it moves.  For kernels with fault injection; faults.c says how it is done.
 *
 *	An import that fails says ENOMEM, leaves nothing, and succeeds when it is tried again.
 *	Who is told that memory moves does without: the exporter's wait ends as ever, nothing
 *	maps the buffer any more, and nothing lands in the old place.
 */
#include "tow_faults.h"
#include "tow_gpu.h"

#define POOL_BYTES	(8 * TOW_SLAB)
#define BYTES		(256 * TOW_KB)
#define MOVE_MS		30000U

FIXTURE(vgpu_faults)
{
	struct tow_knobs before;
	struct tow_gpu gpu;
};

FIXTURE_VARIANT(vgpu_faults)
{
	enum fault fault;
};

FIXTURE_VARIANT_ADD(vgpu_faults, slab) { FAIL_SLAB };
FIXTURE_VARIANT_ADD(vgpu_faults, page) { FAIL_PAGE };

FIXTURE_SETUP(vgpu_faults)
{
	ASSERT_EQ(0, access(fault_dir[FAIL_SLAB], F_OK))
		TH_LOG("this kernel has no fault injection");
	tow_knobs_save(&self->before);
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_gpu_make(&self->gpu, TOW_SLAB, 8));
	self->gpu.buffer = tow_gpu_alloc(self->gpu.node, BYTES, TOW_GPU_PAGE, 0);
	ASSERT_LE(0, self->gpu.buffer);
}

FIXTURE_TEARDOWN_PARENT(vgpu_faults)
{
	EXPECT_TRUE(filter(FAULTS, nothing));
	EXPECT_EQ(0, tow_sysfs_wait("stats/regions", 0));
	EXPECT_EQ(0, tow_knobs_restore(&self->before));
}

static int import(void *arg)
{
	struct tow_gpu *gpu = &((FIXTURE_DATA(vgpu_faults) *)arg)->gpu;

	return tow_import_dmabuf(gpu->user.fd, gpu->buffer, 0, BYTES, 0, &gpu->region);
}

static int destroy(void *arg)
{
	struct tow_gpu *gpu = &((FIXTURE_DATA(vgpu_faults) *)arg)->gpu;

	return tow_region_destroy(gpu->user.fd, gpu->region);
}

static bool nothing_left(void *arg)
{
	struct tow_gpu *gpu = &((FIXTURE_DATA(vgpu_faults) *)arg)->gpu;

	return tow_gpu_let_go(gpu->node, gpu->buffer);
}

TEST_F_TIMEOUT(vgpu_faults, import, 300)
{
	const struct action action = {
		.name = "import", .act = import, .undo = destroy,
		.allocates = { [FAIL_SLAB] = true },
	};

	all_rounds(_metadata, self, &action, variant->fault, nothing_left);
}

/* The n-th fails of who is told, not of the exporter: did one? */
static bool move_without(struct __test_metadata *_metadata, FIXTURE_DATA(vgpu_faults) *self,
			 enum fault fault, long nth)
{
	struct tow_gpu *gpu = &self->gpu;
	struct tow_vgpu_status status;
	struct tow_vgpu_move move;
	bool injected;
	int ret;

	EXPECT_EQ(0, tow_gpu_import(gpu, 0, BYTES));
	EXPECT_EQ(0, tow_gpu_do(gpu, tow_gpu_far(gpu, TOW_OP_WRITE, 0, 0, BYTES)));
	EXPECT_TRUE(filter(fault, module_text()));
	EXPECT_TRUE(begin_nth(nth));
	ret = tow_gpu_move(gpu->node, gpu->buffer, MOVE_MS, &move);
	injected = end_nth();
	EXPECT_TRUE(filter(FAULTS, nothing));
	EXPECT_EQ(0, ret);
	EXPECT_EQ(1, move.signaled);
	EXPECT_EQ(0, move.mappings);
	EXPECT_EQ(0, tow_gpu_status(gpu->node, gpu->buffer, &status));
	EXPECT_EQ(0, status.landed);
	EXPECT_EQ(0, destroy(self));
	EXPECT_TRUE(nothing_left(self));
	return injected;
}

TEST_F_TIMEOUT(vgpu_faults, move, 300)
{
	long nth = 1;

	while (nth < ROUNDS_MAX && move_without(_metadata, self, variant->fault, nth))
		nth++;
	TH_LOG("%ld were made to fail", nth - 1);
	EXPECT_GT(ROUNDS_MAX, nth);
}

TEST_HARNESS_MAIN

// SPDX-License-Identifier: GPL-2.0
/*
 * The inline functions of <towline/queue.h>, on a ring in memory whose other side
 * is played here: what entries become, a ring that is full or empty, indices that
 * wrap around at 2^32; and what is refused before the kernel is asked.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kselftest.h>
#include <towline/slot.h>

#include "internal.h"
#include "libshim/core/queue.h"

#define SQ_ENTRIES	4U
#define CQ_ENTRIES	8U
#define ROUNDS		40U
/* So that the rounds pass 2^32. */
#define NEAR_THE_END	(0U - 50U)

/* What a region and a remote range begin with, and no more. */
struct object {
	uint64_t handle;
};

static struct object region_object = { 0x1122334455667788 };
static struct object remote_object = { 0x99aabbccddeeff00 };

static const struct tow_region *a_region(void)
{
	return (const struct tow_region *)&region_object;
}

static const struct tow_remote *a_remote(void)
{
	return (const struct tow_remote *)&remote_object;
}

/* ---- a ring, each part of it on the heap, so that the sanitizer sees its ends ---- */

static void make_queue(struct tow_queue *queue, uint32_t start)
{
	memset(queue, 0, sizeof(*queue));
	queue->ring = calloc(1, sizeof(*queue->ring));
	queue->sqes = calloc(SQ_ENTRIES, sizeof(*queue->sqes));
	queue->cqes = calloc(CQ_ENTRIES, sizeof(*queue->cqes));
	if (!queue->ring || !queue->sqes || !queue->cqes)
		ksft_exit_fail_perror("calloc");
	queue->sq_entries = SQ_ENTRIES;
	queue->cq_entries = CQ_ENTRIES;
	queue->sq_tail = start;
	queue->sq_head = start;
	queue->cq_head = start;
	queue->cq_tail = start;
	queue->ring->sq_tail = start;
	queue->ring->sq_head = start;
	queue->ring->cq_head = start;
	queue->ring->cq_tail = start;
}

static void free_queue(struct tow_queue *queue)
{
	free(queue->ring);
	free(queue->sqes);
	free(queue->cqes);
}

/* The kernel's part: a completion. */
static void complete(struct tow_queue *queue, uint64_t data, int status)
{
	struct tow_cqe *cqe = &queue->cqes[queue->ring->cq_tail % CQ_ENTRIES];

	cqe->user_data = data;
	cqe->status = status;
	cqe->flags = 0;
	tow_store_release(&queue->ring->cq_tail, queue->ring->cq_tail + 1);
}

/* ---- entries ---- */

static struct tow_sqe filled_with(uint8_t byte)
{
	struct tow_sqe sqe;

	memset(&sqe, byte, sizeof(sqe));
	return sqe;
}

static bool is(const struct tow_sqe *sqe, const struct tow_sqe *want)
{
	return memcmp(sqe, want, sizeof(*sqe)) == 0;
}

static void test_prepare(void)
{
	struct tow_channel channel = { .number = 0x1234 };
	struct tow_sqe sqe = filled_with(0xa5), want = { .opcode = TOW_OP_NOP };

	tow_prep_nop(&sqe);
	ksft_test_result(is(&sqe, &want), "nop: all else is 0\n");

	want.opcode = TOW_OP_WRITE;
	want.channel = 0x1234;
	want.region = region_object.handle;
	want.offset = 1ULL << 40;
	want.remote = remote_object.handle;
	want.remote_offset = 3;
	want.bytes = 1ULL << 35;
	sqe = filled_with(0xa5);
	tow_prep_write(&sqe, &channel, a_region(), 1ULL << 40, a_remote(), 3, 1ULL << 35);
	ksft_test_result(is(&sqe, &want), "write\n");

	want.opcode = TOW_OP_READ;
	sqe = filled_with(0xa5);
	tow_prep_read(&sqe, &channel, a_region(), 1ULL << 40, a_remote(), 3, 1ULL << 35);
	ksft_test_result(is(&sqe, &want), "read\n");

	want.opcode = TOW_OP_FETCH_ADD;
	want.bytes = 0;
	want.operand = UINT64_MAX;
	sqe = filled_with(0xa5);
	tow_prep_fetch_add(&sqe, &channel, a_region(), 1ULL << 40, a_remote(), 3, UINT64_MAX);
	ksft_test_result(is(&sqe, &want), "fetch_add\n");

	want.opcode = TOW_OP_COMPARE_SWAP;
	want.compare = 5;
	want.operand = 7;
	sqe = filled_with(0xa5);
	tow_prep_compare_swap(&sqe, &channel, a_region(), 1ULL << 40, a_remote(), 3, 5, 7);
	ksft_test_result(is(&sqe, &want), "compare_swap: what is expected, then what it becomes\n");

	want.user_data = UINT64_MAX;
	want.flags = TOW_SQE_LINK | TOW_SQE_SILENT;
	tow_sqe_set_data(&sqe, UINT64_MAX);
	tow_sqe_set_flags(&sqe, TOW_SQE_LINK | TOW_SQE_SILENT);
	ksft_test_result(is(&sqe, &want), "data and flags\n");

	want.timeout_ms = UINT32_MAX - 1;
	tow_sqe_set_timeout(&sqe, UINT32_MAX - 1);
	ksft_test_result(is(&sqe, &want), "a time-out\n");

	want.opcode = TOW_OP_WRITE;
	want.flags = TOW_SQE_VECTOR | TOW_SQE_FENCE;
	want.user_data = 0;
	want.timeout_ms = 0;
	want.vector = remote_object.handle;
	want.vector_offset = 1ULL << 41;
	want.bytes = TOW_VECTOR_MAX * sizeof(struct tow_vector);
	want.operand = 0;
	tow_prep_write(&sqe, &channel, a_region(), 1, a_remote(), 3, 5);
	tow_sqe_set_vector(&sqe, (const struct tow_region *)a_remote(), 1ULL << 41,
			   TOW_VECTOR_MAX);
	tow_sqe_set_flags(&sqe, TOW_SQE_FENCE);
	ksft_test_result(is(&sqe, &want), "a vector, which it stays\n");

	want.flags = TOW_SQE_INLINE | TOW_SQE_FENCE;
	memset(want.payload, 0, sizeof(want.payload));
	memcpy(want.payload, "seventeen letters", 9);
	want.remote_offset = 3;
	want.bytes = 9;
	tow_prep_write(&sqe, &channel, NULL, 1, a_remote(), 3, 5);
	tow_sqe_set_inline(&sqe, "seventeen letters", 9);
	tow_sqe_set_flags(&sqe, TOW_SQE_FENCE);
	ksft_test_result(is(&sqe, &want), "inline data, which it stays\n");
}

static void test_prepare_notify(void)
{
	static const struct tow_slot slot = { .handle = 0x0fedcba987654321 };
	struct tow_channel channel = { .number = 0xfedc };
	struct object counts = { 0x123456789abcdef0 };
	struct tow_sqe sqe = filled_with(0xa5);
	struct tow_sqe want = { .opcode = TOW_OP_WRITE_NOTIFY, .channel = 0xfedc };

	want.operand = counts.handle;
	tow_prep_notify(&sqe, &channel, (const struct tow_remote *)&counts);
	ksft_test_result(is(&sqe, &want), "notify: nothing is written\n");

	want.region = region_object.handle;
	want.offset = 1ULL << 40;
	want.remote = remote_object.handle;
	want.remote_offset = 3;
	want.bytes = 1ULL << 35;
	sqe = filled_with(0xa5);
	tow_prep_write_notify(&sqe, &channel, a_region(), 1ULL << 40, a_remote(), 3, 1ULL << 35,
			      (const struct tow_remote *)&counts);
	ksft_test_result(is(&sqe, &want), "write_notify\n");

	want = (struct tow_sqe){ .opcode = TOW_OP_WAIT };
	want.region = slot.handle;
	want.operand = UINT64_MAX;
	sqe = filled_with(0xa5);
	tow_prep_wait(&sqe, &slot, UINT64_MAX);
	ksft_test_result(is(&sqe, &want), "wait: a slot and a number, and no channel\n");
}

/* ---- the submission ring ---- */

/* All entries in their order, once; then none. */
static bool takes_all(struct tow_queue *queue)
{
	uint32_t first = queue->sq_tail;

	for (uint32_t i = 0; i < SQ_ENTRIES; i++)
		if (tow_queue_get_sqe(queue) != &queue->sqes[(first + i) % SQ_ENTRIES])
			return false;
	/* Asking makes no room. */
	for (uint32_t i = 0; i < 2; i++)
		if (tow_queue_get_sqe(queue))
			return false;
	return queue->sq_tail == first + SQ_ENTRIES;
}

static void test_submission(void)
{
	struct tow_queue queue;
	bool good = true;

	make_queue(&queue, 0);
	ksft_test_result(takes_all(&queue), "as many entries as the ring has\n");
	/* The kernel takes one. */
	tow_store_release(&queue.ring->sq_head, 1);
	ksft_test_result(tow_queue_get_sqe(&queue) == &queue.sqes[0] && !tow_queue_get_sqe(&queue),
			 "one more for each that the kernel took\n");
	free_queue(&queue);

	make_queue(&queue, NEAR_THE_END);
	for (uint32_t i = 0; i < ROUNDS && good; i++) {
		good = takes_all(&queue);
		tow_store_release(&queue.ring->sq_head, queue.sq_tail);
	}
	ksft_test_result(good && queue.sq_tail == NEAR_THE_END + ROUNDS * SQ_ENTRIES,
			 "entries wrap around\n");
	free_queue(&queue);
}

/* ---- the completion ring ---- */

static bool peeks(struct tow_queue *queue, uint64_t data, int status)
{
	const struct tow_cqe *cqe = NULL;

	return tow_queue_peek_cqe(queue, &cqe) == 0 && cqe->user_data == data &&
	       cqe->status == status;
}

static bool is_empty(struct tow_queue *queue)
{
	const struct tow_cqe *cqe = &queue->cqes[0];

	return tow_queue_peek_cqe(queue, &cqe) == -EAGAIN && !cqe;
}

static void test_completion(void)
{
	const struct tow_cqe *cqe = NULL;
	struct tow_queue queue;

	make_queue(&queue, 0);
	ksft_test_result(is_empty(&queue), "nothing is there\n");
	complete(&queue, 17, -EIO);
	ksft_test_result(peeks(&queue, 17, -EIO) && peeks(&queue, 17, -EIO) &&
			 queue.ring->cq_head == 0, "a peek leaves it there\n");
	ksft_test_result(tow_queue_wait_cqe(&queue, &cqe, 0) == 0 && cqe->user_data == 17,
			 "what is there is not waited for\n");
	tow_queue_cqe_seen(&queue);
	ksft_test_result(is_empty(&queue) && queue.ring->cq_head == 1, "seen: the kernel is told\n");
	free_queue(&queue);
}

/* A full ring, gone over in one go: how many there were, in order from @first on. */
static uint32_t count_all(struct tow_queue *queue, uint64_t first)
{
	const struct tow_cqe *cqe;
	uint32_t index, count = 0;

	tow_queue_for_each_cqe(queue, index, cqe) {
		if (cqe->user_data != first + count)
			return UINT32_MAX;
		count++;
	}
	return count;
}

static void test_many(void)
{
	uint64_t data = 0;
	struct tow_queue queue;
	bool good = true;

	make_queue(&queue, NEAR_THE_END);
	for (uint32_t i = 0; i < ROUNDS && good; i++) {
		uint32_t count = i % CQ_ENTRIES + 1;

		for (uint32_t j = 0; j < count; j++)
			complete(&queue, data + j, 0);
		good = count_all(&queue, data) == count && queue.ring->cq_head == queue.cq_head;
		tow_queue_advance(&queue, count);
		data += count;
		good = good && is_empty(&queue) && queue.ring->cq_head == queue.ring->cq_tail;
	}
	ksft_test_result(good && queue.cq_head == (uint32_t)(NEAR_THE_END + data) &&
			 queue.cq_head < NEAR_THE_END, "all that are there, and indices wrap around\n");
	free_queue(&queue);

	make_queue(&queue, 0);
	complete(&queue, 1, 0);
	complete(&queue, 2, 0);
	/* Seen by who goes over them is what came before only. */
	good = count_all(&queue, 1) == 2;
	complete(&queue, 3, 0);
	tow_queue_advance(&queue, 2);
	ksft_test_result(good && peeks(&queue, 3, 0), "what comes meanwhile is not lost\n");
	free_queue(&queue);
}

/* ---- what the kernel is not asked ---- */

static void done(void *arg, int status)
{
	(void)arg;
	(void)status;
}

static void test_refused(void)
{
	struct tow_device dev = { .fd = -1 };
	struct tow_queue_event event = { .size = sizeof(event) };
	struct tow_channel *channel = NULL, some = { 0 };
	struct tow_queue *queue = NULL;
	struct tow_queue ring;

	make_queue(&ring, 0);
	some.queue = &ring;
	ksft_test_result(tow_queue_create(NULL, 1, 0, &queue) == -EINVAL &&
			 tow_queue_create(&dev, 1, 0, NULL) == -EINVAL &&
			 tow_queue_create(&dev, 1, 0, &queue) == -EBADF && !queue, "create\n");
	tow_queue_destroy(NULL);
	ksft_test_result(tow_queue_fd(NULL) == -EINVAL && tow_queue_progress(NULL, 0) == -EINVAL &&
			 tow_queue_event(NULL, &event) == -EINVAL &&
			 tow_queue_event(&ring, NULL) == -EINVAL, "no queue\n");
	ksft_test_result(tow_channel_get(&ring, NULL, 0, &channel) == -EINVAL &&
			 tow_channel_get(NULL, NULL, 0, &channel) == -EINVAL && !channel,
			 "no peer\n");
	ksft_test_result(tow_memcpy(NULL, a_region(), 0, a_remote(), 0, 1, TOW_TO_REMOTE, done,
				    NULL) == -EINVAL &&
			 tow_memcpy(&some, NULL, 0, a_remote(), 0, 1, TOW_TO_REMOTE, done,
				    NULL) == -EINVAL &&
			 tow_memcpy(&some, a_region(), 0, NULL, 0, 1, TOW_TO_REMOTE, done,
				    NULL) == -EINVAL &&
			 tow_memcpy(&some, a_region(), 0, a_remote(), 0, 1, TOW_TO_REMOTE, NULL,
				    NULL) == -EINVAL &&
			 tow_memcpy(&some, a_region(), 0, a_remote(), 0, 1, (enum tow_direction)2,
				    done, NULL) == -EINVAL, "memcpy\n");
	/* Enough are there, and nothing is to be handed over. */
	complete(&ring, 1, 0);
	ksft_test_result(tow_queue_submit(&ring) == 0 && tow_queue_submit_and_wait(&ring, 1) == 0,
			 "nothing to do\n");
	free_queue(&ring);
}

/* What a forked child finds where its queue was. */
static void test_child(void)
{
	const struct tow_cqe *cqe = NULL;
	struct tow_queue child = { 0 };
	struct tow_channel channel = { .queue = &child };
	uint32_t index;
	int count = 0;

	tow_queue_for_each_cqe(&child, index, cqe)
		count++;
	ksft_test_result(!tow_queue_get_sqe(&child) && tow_queue_submit(&child) == -EPERM &&
			 tow_queue_submit_and_wait(&child, 1) == -EPERM, "a child submits nothing\n");
	ksft_test_result(count == 0 && tow_queue_peek_cqe(&child, &cqe) == -EPERM &&
			 tow_queue_progress(&child, 0) == -EPERM, "a child finds nothing\n");
	ksft_test_result(tow_memcpy(&channel, a_region(), 0, a_remote(), 0, 1, TOW_TO_REMOTE, done,
				    NULL) == -EPERM, "a child copies nothing\n");
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(9 + 3 + 3 + 4 + 2 + 5 + 3);
	test_prepare();
	test_prepare_notify();
	test_submission();
	test_completion();
	test_many();
	test_refused();
	test_child();
	ksft_finished();
}

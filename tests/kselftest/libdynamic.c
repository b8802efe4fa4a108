// SPDX-License-Identifier: GPL-2.0
/*
 * Dynamic edges on one node, which is its own peer: what tensors are changes with each step;
 * the sender's stay as they are until they were read; memory that is not there; ends that go;
 * bytes that are not what was sent.
 */
/* build: link -ltowline */
#include <poll.h>
#include <sys/prctl.h>

#include "tow_libedge.h"

#define POOL	"256m"

/* Both ends; the receiver has a worker and an arena of its own. */
struct ends {
	struct side from, to;
	struct tow_edge *sender, *receiver;
};

static int make_ends(struct ends *ends, uint64_t limit_bytes)
{
	struct tow_arena_attr attr = { .size = sizeof(attr), .region_bytes = REGION_BYTES,
				       .limit_bytes = limit_bytes };
	int ret;

	ret = make_side(&ends->from);
	if (ret)
		return ret;
	ends->to = ends->from;
	ret = tow_arena_create(ends->to.dev, &attr, &ends->to.arena);
	if (!ret)
		ret = tow_worker_create(ends->to.dev, ends->to.arena, NULL, &ends->to.worker);
	return ret;
}

static int connect_ends(struct ends *ends, const char *name, uint32_t slots)
{
	int ret;

	ret = tow_dynamic_receiver(ends->to.worker, ends->to.peer, name, slots, &ends->receiver);
	if (!ret)
		ret = tow_dynamic_sender(ends->from.worker, ends->from.peer, name,
					 &ends->sender);
	return ret ? ret : tow_edge_connect(ends->sender, LATE_MS);
}

/* How much of both arenas is in use still: 0, or it was never there. */
static uint64_t end_ends(struct ends *ends, int *error)
{
	struct tow_arena_stats from = { .size = sizeof(from) }, to = { .size = sizeof(to) };

	*error = tow_edge_close(ends->sender);
	if (!*error)
		*error = tow_edge_close(ends->receiver);
	tow_arena_stats(ends->from.arena, &from);
	tow_arena_stats(ends->to.arena, &to);
	if (!*error)
		*error = tow_worker_destroy(ends->to.worker);
	tow_arena_destroy(ends->to.arena);
	if (!*error)
		*error = end_side(&ends->from);
	return from.in_use_bytes + to.in_use_bytes;
}

/* Both workers, until all was sent. */
static int finish_both(struct ends *ends)
{
	struct tow_patience patience = tow_patience(TOW_PEER_SETTLE_SECONDS);

	while (tow_edge_pending(ends->sender) && tow_patient(&patience))
		if (tow_worker_progress(ends->to.worker, 1000) < 0 ||
		    tow_worker_progress(ends->from.worker, 1000) < 0)
			return -EIO;
	return tow_edge_pending(ends->sender) ? -ETIMEDOUT : 0;
}

FIXTURE(dynamic)
{
	struct ends ends;
};

FIXTURE_SETUP(dynamic)
{
	ASSERT_EQ(0, tow_set_file("pool_bytes", POOL));
	ASSERT_EQ(0, tow_set_file("allow_unauthenticated", "1"));
	ASSERT_EQ(0, make_ends(&self->ends, 0));
}

FIXTURE_TEARDOWN(dynamic)
{
	int error = 0;

	EXPECT_EQ(0, end_ends(&self->ends, &error));
	EXPECT_EQ(0, error);
}

FIXTURE_VARIANT(dynamic)
{
	uint32_t slots;
};

FIXTURE_VARIANT_ADD(dynamic, one) { .slots = 1 };
FIXTURE_VARIANT_ADD(dynamic, two) { .slots = 2 };
FIXTURE_VARIANT_ADD(dynamic, three) { .slots = 3 };
FIXTURE_VARIANT_ADD(dynamic, four) { .slots = 4 };

/* Another one each step: all of DLPack's types, 0 to 8 dimensions, nothing, much. */
static struct tow_tensor_type type_at(uint64_t step)
{
	static const uint8_t bits[TOW_DTYPE_FLOAT4_E2M1FN + 1] = {
		32, 64, 32, 64, 16, 128, 8, 8, 8, 8, 8, 8, 8, 8, 8, 6, 6, 4,
	};
	struct tow_tensor_type type = { .ndim = (uint32_t)(step % (TOW_DIMS_MAX + 1)) };

	type.dtype.code = (uint8_t)(step % (TOW_DTYPE_FLOAT4_E2M1FN + 1));
	type.dtype.bits = bits[type.dtype.code];
	type.dtype.lanes = (uint16_t)(1 + step % 2);
	for (uint32_t i = 0; i < type.ndim; i++)
		type.dims[i] = (int64_t)(1 + (step + i) % 4);
	if (type.ndim && step % 5 == 0)
		type.dims[type.ndim - 1] = 0;
	if (type.ndim && step % 7 == 0)
		type.dims[0] = 100000;
	return type;
}

static bool same(const struct tow_tensor_type *one, const struct tow_tensor_type *other)
{
	return !memcmp(&one->dtype, &other->dtype, sizeof(one->dtype)) &&
	       one->ndim == other->ndim &&
	       !memcmp(one->dims, other->dims, one->ndim * sizeof(one->dims[0]));
}

/* A tensor of that step, sent; the caller frees it. */
static unsigned char *send_at(struct ends *ends, uint64_t step, struct sent *sent, int *ret)
{
	struct tow_tensor_type type = type_at(step);
	unsigned char *tensor;
	uint64_t bytes = 0;

	tow_tensor_bytes(&type, &bytes);
	tensor = tow_arena_alloc(ends->from.arena, bytes);
	*ret = -ENOMEM;
	if (!tensor)
		return NULL;
	fill(tensor, bytes, step);
	*ret = tow_dynamic_send(ends->sender, &type, tensor, note_sent, sent);
	return tensor;
}

static void expect_at(struct __test_metadata *_metadata, struct ends *ends, uint64_t step)
{
	struct tow_tensor_type type = { 0 }, wanted = type_at(step);
	uint64_t bytes = 0, number = 0;
	void *data = NULL;

	ASSERT_EQ(0, tow_edge_wait(ends->receiver, LATE_US, &data, &number));
	EXPECT_EQ(step, number);
	EXPECT_EQ(0, tow_edge_type(ends->receiver, &type));
	EXPECT_TRUE(same(&wanted, &type));
	tow_tensor_bytes(&wanted, &bytes);
	EXPECT_TRUE(holds(data, bytes, step));
}

TEST_F_TIMEOUT(dynamic, changes_each_step, 180)
{
	enum { STEPS = 60 };
	long long copied = tow_get_count("stats/copied_bytes");
	struct sent sent = { 0 };
	unsigned char *tensor;
	void *data, *kept;
	int ret;

	ASSERT_EQ(0, connect_ends(&self->ends, "changes", variant->slots));
	ASSERT_EQ(0, tow_edge_connect(self->ends.receiver, LATE_MS));
	EXPECT_EQ(0, tow_edge_test(self->ends.receiver, &data, NULL));
	EXPECT_EQ(-EINVAL, tow_edge_consumed(self->ends.receiver));
	for (uint64_t step = 1; step <= STEPS; step++) {
		tensor = send_at(&self->ends, step, &sent, &ret);
		ASSERT_EQ(0, ret);
		expect_at(_metadata, &self->ends, step);
		if (step & 1) {
			EXPECT_EQ(0, tow_edge_consumed(self->ends.receiver));
		} else {
			EXPECT_EQ(1, tow_edge_test(self->ends.receiver, &data, NULL));
			EXPECT_EQ(0, tow_edge_take(self->ends.receiver, &kept));
			EXPECT_EQ(data, kept);
			EXPECT_EQ(0, tow_arena_free(self->ends.to.arena, kept));
		}
		EXPECT_EQ(0, finish_both(&self->ends));
		EXPECT_EQ((int)step, sent.count);
		EXPECT_EQ(0, tow_arena_free(self->ends.from.arena, tensor));
	}
	EXPECT_EQ(0, sent.wrong);
	EXPECT_EQ(0, sent.status);
	EXPECT_EQ(0, tow_worker_copied(self->ends.from.worker));
	EXPECT_EQ(copied, tow_get_count("stats/copied_bytes"));
}

/* All at once: no more than there are slots for is read before it is consumed. */
TEST_F_TIMEOUT(dynamic, no_further_ahead, 120)
{
	enum { AHEAD = 20 };
	unsigned char *tensors[AHEAD + 1];
	struct sent sent = { 0 };
	int ret;

	ASSERT_EQ(0, connect_ends(&self->ends, "ahead", variant->slots));
	ASSERT_EQ(0, tow_edge_connect(self->ends.receiver, LATE_MS));
	for (uint64_t step = 1; step <= AHEAD; step++) {
		tensors[step] = send_at(&self->ends, step, &sent, &ret);
		ASSERT_EQ(0, ret);
	}
	for (uint64_t step = 1; step <= AHEAD; step++) {
		expect_at(_metadata, &self->ends, step);
		for (int i = 0; i < 3; i++) {
			ASSERT_LE(0, tow_worker_progress(self->ends.to.worker, 1000));
			ASSERT_LE(0, tow_worker_progress(self->ends.from.worker, 1000));
		}
		EXPECT_GE((int)(step - 1 + variant->slots), sent.count);
		EXPECT_EQ(0, tow_edge_consumed(self->ends.receiver));
	}
	EXPECT_EQ(0, finish_both(&self->ends));
	EXPECT_EQ(AHEAD, sent.count);
	EXPECT_EQ(0, sent.wrong);
	EXPECT_EQ(0, sent.status);
	for (uint64_t step = 1; step <= AHEAD; step++)
		EXPECT_EQ(0, tow_arena_free(self->ends.from.arena, tensors[step]));
}

/* ---- one number of slots is enough ---- */

FIXTURE(pair)
{
	struct ends ends;
};

FIXTURE_SETUP(pair)
{
	ASSERT_EQ(0, tow_set_file("pool_bytes", POOL));
	ASSERT_EQ(0, tow_set_file("allow_unauthenticated", "1"));
}

FIXTURE_TEARDOWN(pair)
{
	int error = 0;

	unsetenv("TOW_VALIDATE");
	EXPECT_EQ(0, end_ends(&self->ends, &error));
	EXPECT_EQ(0, error);
}

static struct tow_tensor_type bytes_type(uint64_t bytes)
{
	struct tow_tensor_type type = { { TOW_DTYPE_UINT, 8, 1 }, 1, { (int64_t)bytes } };

	return type;
}

static int send_bytes(struct ends *ends, const void *data, uint64_t bytes, struct sent *sent)
{
	struct tow_tensor_type type = bytes_type(bytes);

	return tow_dynamic_send(ends->sender, &type, data, note_sent, sent);
}

TEST_F(pair, arguments)
{
	struct tow_tensor_type type = bytes_type(4), bad = { .ndim = 1, .dims = { -1 } };
	struct tow_edge *none = NULL;
	struct ends *ends = &self->ends;
	void *data;

	ASSERT_EQ(0, make_ends(ends, 0));
	EXPECT_EQ(-EINVAL, tow_dynamic_receiver(ends->to.worker, ends->to.peer, "none", 0, &none));
	EXPECT_EQ(-EINVAL, tow_dynamic_receiver(ends->to.worker, ends->to.peer, "many",
						TOW_EDGE_SLOTS_MAX + 1, &none));
	EXPECT_EQ(-EINVAL, tow_dynamic_sender(ends->to.worker, NULL, "none", &none));
	EXPECT_EQ(NULL, none);
	ASSERT_EQ(0, tow_dynamic_receiver(ends->to.worker, ends->to.peer, "good", 1,
					  &ends->receiver));
	ASSERT_EQ(0, tow_dynamic_sender(ends->from.worker, ends->from.peer, "good",
					&ends->sender));
	EXPECT_EQ(-ENOTCONN, tow_dynamic_send(ends->sender, &type, self, NULL, NULL));
	/* Its sender has not said anything yet. */
	EXPECT_EQ(-ETIMEDOUT, tow_edge_connect(ends->receiver, 20));
	EXPECT_EQ(-ENOTCONN, tow_edge_test(ends->receiver, &data, NULL));
	EXPECT_EQ(-ENOTCONN, tow_edge_wait(ends->receiver, LATE_US, &data, NULL));
	EXPECT_EQ(-EINVAL, tow_dynamic_send(ends->receiver, &type, self, NULL, NULL));
	EXPECT_EQ(-EINVAL, tow_dynamic_send(ends->sender, &bad, self, NULL, NULL));
	EXPECT_EQ(-EINVAL, tow_dynamic_send(ends->sender, &type, NULL, NULL, NULL));
	EXPECT_EQ(-EINVAL, tow_edge_send(ends->sender, self, NULL, NULL));
	EXPECT_EQ(-EINVAL, tow_edge_test(ends->sender, &data, NULL));
	EXPECT_EQ(-EINVAL, tow_edge_type(ends->sender, &type));
	EXPECT_EQ(-EINVAL, tow_edge_type(ends->receiver, &type));
	EXPECT_EQ(-EINVAL, tow_edge_take(ends->receiver, &data));
	EXPECT_EQ(-EINVAL, tow_edge_take(ends->sender, &data));
}

/* The ends of two kinds of edges. */
TEST_F(pair, of_another_kind)
{
	struct tow_tensor_type type = bytes_type(4);

	ASSERT_EQ(0, make_ends(&self->ends, 0));
	ASSERT_EQ(0, tow_static_receiver(self->ends.to.worker, self->ends.to.peer, "kind", &type, 1,
					 &self->ends.receiver));
	ASSERT_EQ(0, tow_dynamic_sender(self->ends.from.worker, self->ends.from.peer, "kind",
					&self->ends.sender));
	EXPECT_EQ(-EPROTO, tow_edge_connect(self->ends.sender, LATE_MS));
}

TEST_F_TIMEOUT(pair, large, 120)
{
	const size_t sizes[] = { 1, 64 << 10, 4 * MIB + 1, 64 * MIB };
	struct sent sent = { 0 };
	unsigned char *tensor;
	void *data;

	ASSERT_EQ(0, make_ends(&self->ends, 0));
	ASSERT_EQ(0, connect_ends(&self->ends, "large", 2));
	ASSERT_EQ(0, tow_edge_connect(self->ends.receiver, LATE_MS));
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		tensor = tow_arena_alloc(self->ends.from.arena, sizes[i]);
		ASSERT_NE(NULL, tensor);
		fill(tensor, sizes[i], i);
		ASSERT_EQ(0, send_bytes(&self->ends, tensor, sizes[i], &sent));
		ASSERT_EQ(0, tow_edge_wait(self->ends.receiver, LATE_US, &data, NULL));
		EXPECT_EQ(0, memcmp(tensor, data, sizes[i]));
		EXPECT_EQ(0, tow_edge_consumed(self->ends.receiver));
		EXPECT_EQ(0, finish_both(&self->ends));
		EXPECT_EQ(0, tow_arena_free(self->ends.from.arena, tensor));
	}
	EXPECT_EQ(0, sent.status);
	EXPECT_EQ(0, tow_worker_copied(self->ends.from.worker));
}

/* The sender's memory is the edge's until it was read. */
TEST_F(pair, held_until_it_was_read)
{
	struct sent sent = { 0 };
	unsigned char *tensor;
	void *data;

	ASSERT_EQ(0, make_ends(&self->ends, 0));
	ASSERT_EQ(0, connect_ends(&self->ends, "held", 2));
	tensor = tow_arena_alloc(self->ends.from.arena, 1000);
	ASSERT_NE(NULL, tensor);
	fill(tensor, 1000, 1);
	ASSERT_EQ(0, send_bytes(&self->ends, tensor, 1000, &sent));
	for (int i = 0; i < 10; i++)
		ASSERT_LE(0, tow_worker_progress(self->ends.from.worker, SOON_US));
	EXPECT_EQ(0, sent.count);
	EXPECT_EQ(1, tow_edge_pending(self->ends.sender));
	ASSERT_EQ(0, tow_edge_connect(self->ends.receiver, LATE_MS));
	ASSERT_EQ(0, tow_edge_wait(self->ends.receiver, LATE_US, &data, NULL));
	EXPECT_EQ(0, finish_both(&self->ends));
	EXPECT_EQ(1, sent.count);
	memset(tensor, 0, 1000);
	EXPECT_TRUE(holds(data, 1000, 1));
	EXPECT_EQ(0, tow_arena_free(self->ends.from.arena, tensor));
}

/* Nobody waits for ever, and what may be read still is not given back. */
TEST_F(pair, late)
{
	struct tow_worker_attr attr = { .size = sizeof(attr), .timeout_ms = 200 };
	struct sent sent = { 0 };
	struct tow_worker *hasty;
	struct tow_patience patience = tow_patience(TOW_PEER_SETTLE_SECONDS);
	unsigned char *tensor;
	int ret = 0;

	ASSERT_EQ(0, make_ends(&self->ends, 0));
	ASSERT_EQ(0, tow_worker_create(self->ends.from.dev, self->ends.from.arena, &attr, &hasty));
	ASSERT_EQ(0, tow_dynamic_receiver(self->ends.to.worker, self->ends.to.peer, "late", 2,
					  &self->ends.receiver));
	ASSERT_EQ(0, tow_dynamic_sender(hasty, self->ends.from.peer, "late", &self->ends.sender));
	ASSERT_EQ(0, tow_edge_connect(self->ends.sender, LATE_MS));
	tensor = tow_arena_zeroed(self->ends.from.arena, 1, 1000);
	ASSERT_NE(NULL, tensor);
	ASSERT_EQ(0, send_bytes(&self->ends, tensor, 1000, &sent));
	while (!ret && tow_patient(&patience)) {
		ASSERT_LE(0, tow_worker_progress(hasty, SOON_US));
		ret = send_bytes(&self->ends, tensor, 0, &sent);
		if (ret == -EAGAIN)
			ret = 0;
	}
	EXPECT_EQ(-ETIMEDOUT, ret);
	EXPECT_EQ(0, sent.count);
	EXPECT_EQ(0, tow_edge_close(self->ends.sender));
	self->ends.sender = NULL;
	EXPECT_LT(0, sent.count);
	EXPECT_EQ(-ETIMEDOUT, sent.status);
	EXPECT_EQ(0, sent.wrong);
	EXPECT_EQ(0, tow_worker_destroy(hasty));
	EXPECT_EQ(0, tow_arena_free(self->ends.from.arena, tensor));
}

/* The receiver has no room: both are told, and may go on without that one. */
TEST_F(pair, no_memory_for_it)
{
	struct sent sent = { 0 };
	unsigned char *tensor;
	void *data;

	ASSERT_EQ(0, make_ends(&self->ends, REGION_BYTES));
	ASSERT_EQ(0, connect_ends(&self->ends, "exhausted", 2));
	ASSERT_EQ(0, tow_edge_connect(self->ends.receiver, LATE_MS));
	tensor = tow_arena_alloc(self->ends.from.arena, 2 * REGION_BYTES);
	ASSERT_NE(NULL, tensor);
	fill(tensor, 1000, 2);
	ASSERT_EQ(0, send_bytes(&self->ends, tensor, 2 * REGION_BYTES, &sent));
	ASSERT_EQ(0, send_bytes(&self->ends, tensor, 1000, &sent));
	EXPECT_EQ(-EDQUOT, tow_edge_wait(self->ends.receiver, LATE_US, &data, NULL));
	EXPECT_EQ(-EDQUOT, tow_edge_wait(self->ends.receiver, LATE_US, &data, NULL));
	EXPECT_EQ(-EDQUOT, tow_edge_test(self->ends.receiver, &data, NULL));
	EXPECT_EQ(-EINVAL, tow_edge_take(self->ends.receiver, &data));
	EXPECT_EQ(0, sent.count);
	EXPECT_EQ(0, tow_edge_consumed(self->ends.receiver));
	ASSERT_EQ(0, tow_edge_wait(self->ends.receiver, LATE_US, &data, NULL));
	EXPECT_TRUE(holds(data, 1000, 2));
	EXPECT_EQ(0, finish_both(&self->ends));
	EXPECT_EQ(2, sent.count);
	EXPECT_EQ(-EDQUOT, sent.status);
	EXPECT_EQ(0, tow_arena_free(self->ends.from.arena, tensor));
}

/* Regions come and go: each is found anew. */
TEST_F_TIMEOUT(pair, from_other_regions, 60)
{
	struct sent sent = { 0 };
	unsigned char *tensor;
	void *data;

	ASSERT_EQ(0, make_ends(&self->ends, 0));
	ASSERT_EQ(0, connect_ends(&self->ends, "regions", 2));
	ASSERT_EQ(0, tow_edge_connect(self->ends.receiver, LATE_MS));
	for (uint64_t step = 1; step <= 40; step++) {
		tensor = tow_arena_alloc(self->ends.from.arena, REGION_BYTES);
		ASSERT_NE(NULL, tensor);
		fill(tensor, 1000, step);
		ASSERT_EQ(0, send_bytes(&self->ends, tensor, 1000, &sent));
		ASSERT_EQ(0, tow_edge_wait(self->ends.receiver, LATE_US, &data, NULL));
		EXPECT_TRUE(holds(data, 1000, step));
		EXPECT_EQ(0, tow_edge_consumed(self->ends.receiver));
		EXPECT_EQ(0, finish_both(&self->ends));
		EXPECT_EQ(0, tow_arena_free(self->ends.from.arena, tensor));
		EXPECT_EQ(REGION_BYTES, tow_arena_trim(self->ends.from.arena, 0));
	}
	EXPECT_EQ(0, sent.status);
}

/* Whoever made them: nothing is copied, and the next one at the same place is another. */
TEST_F_TIMEOUT(pair, from_any_region, 60)
{
	long long copied = tow_get_count("stats/copied_bytes");
	struct sent sent = { 0 };
	struct given given;
	uint64_t step = 0;
	void *data;

	ASSERT_EQ(0, make_ends(&self->ends, 0));
	ASSERT_EQ(0, connect_ends(&self->ends, "given", 2));
	ASSERT_EQ(0, tow_edge_connect(self->ends.receiver, LATE_MS));
	for (int kind = 0; kind < 3 * GIVEN_KINDS; kind++) {
		ASSERT_EQ(0, give_region(&self->ends.from, kind % GIVEN_KINDS, &given));
		fill(given.at, 5000, ++step);
		ASSERT_EQ(0, send_bytes(&self->ends, given.at, 5000, &sent));
		ASSERT_EQ(0, tow_edge_wait(self->ends.receiver, LATE_US, &data, NULL));
		EXPECT_TRUE(holds(data, 5000, step));
		EXPECT_EQ(0, tow_edge_consumed(self->ends.receiver));
		EXPECT_EQ(0, finish_both(&self->ends));
		EXPECT_EQ(-EINVAL, send_bytes(&self->ends, given.end - 4999, 5000, &sent));
		EXPECT_EQ(0, end_given(&given));
	}
	EXPECT_EQ(step, sent.count);
	EXPECT_EQ(0, sent.status);
	EXPECT_EQ(0, tow_worker_copied(self->ends.from.worker));
	EXPECT_EQ(copied, tow_get_count("stats/copied_bytes"));
}

/* A byte that changes after it was sent is noticed. */
TEST_F(pair, another_byte)
{
	struct sent sent = { 0 };
	unsigned char *tensor;
	void *data;

	ASSERT_EQ(0, setenv("TOW_VALIDATE", "1", 1));
	ASSERT_EQ(0, make_ends(&self->ends, 0));
	ASSERT_EQ(0, connect_ends(&self->ends, "flipped", 2));
	tensor = tow_arena_alloc(self->ends.from.arena, 5000);
	ASSERT_NE(NULL, tensor);
	fill(tensor, 5000, 1);
	ASSERT_EQ(0, send_bytes(&self->ends, tensor, 2000, &sent));
	ASSERT_EQ(0, send_bytes(&self->ends, tensor + 2000, 3000, &sent));
	tensor[4999] ^= 1;
	ASSERT_EQ(0, tow_edge_connect(self->ends.receiver, LATE_MS));
	ASSERT_EQ(0, tow_edge_wait(self->ends.receiver, LATE_US, &data, NULL));
	EXPECT_EQ(0, memcmp(tensor, data, 2000));
	EXPECT_EQ(0, tow_edge_consumed(self->ends.receiver));
	EXPECT_EQ(-EBADMSG, tow_edge_wait(self->ends.receiver, LATE_US, &data, NULL));
	EXPECT_EQ(-EBADMSG, tow_edge_test(self->ends.receiver, &data, NULL));
	EXPECT_EQ(0, tow_edge_consumed(self->ends.receiver));
	EXPECT_EQ(0, finish_both(&self->ends));
	EXPECT_EQ(2, sent.count);
	ASSERT_EQ(0, send_bytes(&self->ends, tensor, 5000, &sent));
	ASSERT_EQ(0, tow_edge_wait(self->ends.receiver, LATE_US, &data, NULL));
	EXPECT_EQ(0, memcmp(tensor, data, 5000));
	EXPECT_EQ(0, finish_both(&self->ends));
	EXPECT_EQ(3, sent.count);
	EXPECT_EQ(-EBADMSG, sent.status);
	EXPECT_EQ(0, tow_arena_free(self->ends.from.arena, tensor));
}

/* Ordinary memory is copied, at once, and that is counted. */
TEST_F(pair, copied_where_it_must_be)
{
	long long copied = tow_get_count("stats/copied_bytes");
	struct sent sent = { 0 };
	unsigned char *tensor = malloc(5000);
	void *data;

	ASSERT_NE(NULL, tensor);
	ASSERT_EQ(0, make_ends(&self->ends, 0));
	ASSERT_EQ(0, connect_ends(&self->ends, "copied", 2));
	ASSERT_EQ(0, tow_edge_connect(self->ends.receiver, LATE_MS));
	fill(tensor, 5000, 1);
	ASSERT_EQ(0, send_bytes(&self->ends, tensor, 5000, &sent));
	memset(tensor, 0, 5000);
	ASSERT_EQ(0, tow_edge_wait(self->ends.receiver, LATE_US, &data, NULL));
	EXPECT_TRUE(holds(data, 5000, 1));
	EXPECT_EQ(0, finish_both(&self->ends));
	EXPECT_EQ(5000, tow_worker_copied(self->ends.from.worker));
	EXPECT_EQ(copied + 5000, tow_get_count("stats/copied_bytes"));
	free(tensor);
}

/* What was not read is told of; ordinary memory is copied at once. */
TEST_F(pair, closed_before_it_was_read)
{
	unsigned char tensor[1000] = { 0 };
	struct sent sent = { 0 };

	ASSERT_EQ(0, make_ends(&self->ends, 0));
	ASSERT_EQ(0, connect_ends(&self->ends, "closed", 2));
	for (int i = 0; i < 5; i++)
		ASSERT_EQ(0, send_bytes(&self->ends, tensor, sizeof(tensor), &sent));
	EXPECT_EQ(5 * sizeof(tensor), tow_worker_copied(self->ends.from.worker));
	EXPECT_EQ(0, tow_edge_close(self->ends.sender));
	self->ends.sender = NULL;
	EXPECT_EQ(5, sent.count);
	EXPECT_EQ(0, sent.wrong);
	EXPECT_EQ(-ECANCELED, sent.status);
}

/* One who only looks at the descriptor and never waits. */
TEST_F(pair, a_descriptor_says_when)
{
	struct pollfd look = { .events = POLLIN };
	struct sent sent = { 0 };
	unsigned char *tensor;
	void *data;

	ASSERT_EQ(0, make_ends(&self->ends, 0));
	ASSERT_EQ(0, connect_ends(&self->ends, "poll", 2));
	ASSERT_EQ(0, tow_edge_connect(self->ends.receiver, LATE_MS));
	tensor = tow_arena_alloc(self->ends.from.arena, 1000);
	ASSERT_NE(NULL, tensor);
	look.fd = tow_worker_fd(self->ends.to.worker);
	for (uint64_t step = 1; step <= 5; step++) {
		ASSERT_EQ(0, tow_edge_arm(self->ends.receiver));
		EXPECT_TRUE(goes_quiet(self->ends.to.worker, &look));
		fill(tensor, 1000, step);
		ASSERT_EQ(0, send_bytes(&self->ends, tensor, 1000, &sent));
		while (!tow_edge_test(self->ends.receiver, &data, NULL)) {
			ASSERT_EQ(1, poll(&look, 1, LATE_MS));
			ASSERT_LE(0, tow_worker_progress(self->ends.to.worker, 0));
		}
		/* It is there already. */
		while (tow_worker_progress(self->ends.to.worker, 5 * SOON_US) > 0)
			;
		ASSERT_EQ(0, tow_edge_arm(self->ends.receiver));
		EXPECT_EQ(1, poll(&look, 1, LATE_MS));
		EXPECT_LE(1, tow_worker_progress(self->ends.to.worker, 0));
		EXPECT_EQ(1, tow_edge_test(self->ends.receiver, &data, NULL));
		EXPECT_TRUE(holds(data, 1000, step));
		EXPECT_EQ(0, tow_edge_consumed(self->ends.receiver));
		EXPECT_EQ(0, finish_both(&self->ends));
	}
	EXPECT_EQ(0, tow_arena_free(self->ends.from.arena, tensor));
}

/* Its window is gone before it was looked for: whoever sleeps by the descriptor is told. */
TEST_F(pair, the_sender_was_closed)
{
	struct pollfd look = { .events = POLLIN };
	unsigned char tensor[1000] = { 0 };
	struct sent sent = { 0 };
	double start;
	void *data;
	int ret;

	ASSERT_EQ(0, make_ends(&self->ends, 0));
	ASSERT_EQ(0, connect_ends(&self->ends, "gone", 2));
	ASSERT_EQ(0, send_bytes(&self->ends, tensor, sizeof(tensor), &sent));
	ASSERT_EQ(0, tow_edge_connect(self->ends.receiver, LATE_MS));
	start = tow_test_now();
	EXPECT_EQ(0, tow_edge_close(self->ends.sender));
	self->ends.sender = NULL;
	look.fd = tow_worker_fd(self->ends.to.worker);
	tow_edge_arm(self->ends.receiver);
	while (!(ret = tow_edge_test(self->ends.receiver, &data, NULL))) {
		ASSERT_EQ(1, poll(&look, 1, LATE_MS));
		ASSERT_LE(0, tow_worker_progress(self->ends.to.worker, 0));
	}
	/* It was read before, or not. */
	EXPECT_TRUE(ret == 1 || ret == -ESTALE);
	EXPECT_EQ(0, tow_edge_close(self->ends.receiver));
	self->ends.receiver = NULL;
	TOW_WITHIN(start, TOW_PEER_SETTLE_SECONDS * 1e3);
	EXPECT_EQ(1, sent.count);
}

/* What a function has taken. */
static void *data_of[3];

static void take_it(void *arg, struct tow_edge *edge, int status)
{
	int *count = arg;
	void *data;

	if (!status && !tow_edge_take(edge, &data))
		data_of[(*count)++] = data;
}

/* All are there at once, and nothing ends but what the function does. */
TEST_F(pair, a_function_takes_them_all)
{
	struct tow_patience patience = tow_patience(TOW_PEER_SETTLE_SECONDS);
	enum { STEPS = 3 };
	struct pollfd look = { .events = POLLIN };
	unsigned char *tensor;
	struct sent sent = { 0 };
	int count = 0;

	ASSERT_EQ(0, make_ends(&self->ends, 0));
	ASSERT_EQ(0, connect_ends(&self->ends, "function", STEPS));
	ASSERT_EQ(0, tow_edge_connect(self->ends.receiver, LATE_MS));
	tensor = tow_arena_zeroed(self->ends.from.arena, 1, 1000);
	ASSERT_NE(NULL, tensor);
	for (int i = 0; i < STEPS; i++)
		ASSERT_EQ(0, send_bytes(&self->ends, tensor, 1000, &sent));
	/* Until they have been read. */
	while (sent.count < STEPS && tow_patient(&patience)) {
		tow_worker_progress(self->ends.from.worker, SOON_US);
		tow_worker_progress(self->ends.to.worker, SOON_US);
	}
	EXPECT_EQ(STEPS, sent.count);
	look.fd = tow_worker_fd(self->ends.to.worker);
	ASSERT_EQ(0, tow_edge_watch(self->ends.receiver, take_it, &count));
	while (count < STEPS) {
		ASSERT_EQ(1, poll(&look, 1, LATE_MS));
		ASSERT_LE(0, tow_worker_progress(self->ends.to.worker, 0));
	}
	while (count--)
		EXPECT_EQ(0, tow_arena_free(self->ends.to.arena, data_of[count]));
	EXPECT_EQ(0, tow_arena_free(self->ends.from.arena, tensor));
}

/* In a child nothing is begun. */
TEST_F(pair, in_a_child)
{
	struct tow_edge *none = NULL;
	int status = -1;
	pid_t child;

	ASSERT_EQ(0, make_ends(&self->ends, 0));
	child = fork();
	ASSERT_LE(0, child);
	if (!child)
		_exit(tow_dynamic_sender(self->ends.from.worker, self->ends.from.peer, "child",
					 &none) != -EPERM ||
		      tow_dynamic_receiver(self->ends.to.worker, self->ends.to.peer, "child", 1,
					   &none) != -EPERM || none);
	EXPECT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, status);
}

/* The letter, in the receiver's arena: step 1, 4321 bytes, and then the place: that is none now. */
static int spoil_letters(struct ends *ends)
{
	uint64_t *end = tow_arena_alloc(ends->to.arena, 64), *word;
	int found = 0;

	if (!end)
		return -ENOMEM;
	for (word = (uint64_t *)((uintptr_t)end & ~(uintptr_t)(2 * MIB - 1)); word < end; word++) {
		if (word[0] == 1 && word[1] == 4321 && word[2] && word[3] == 1) {
			word[2] = 0;
			word[3] = 0;
			found++;
		}
	}
	return tow_arena_free(ends->to.arena, end) ?: found;
}

/* A letter that tells of no place at all. */
TEST_F(pair, nowhere)
{
	struct tow_patience patience = tow_patience(TOW_PEER_SETTLE_SECONDS);
	struct sent sent = { 0 };
	unsigned char *tensor;
	int found = 0;
	void *data;

	ASSERT_EQ(0, make_ends(&self->ends, 0));
	ASSERT_EQ(0, connect_ends(&self->ends, "nowhere", 1));
	tensor = tow_arena_alloc(self->ends.from.arena, 4321);
	ASSERT_NE(NULL, tensor);
	ASSERT_EQ(0, send_bytes(&self->ends, tensor, 4321, &sent));
	/* Until it has arrived; the receiver has not looked yet. */
	while (!found && tow_patient(&patience)) {
		ASSERT_LE(0, tow_worker_progress(self->ends.from.worker, SOON_US));
		found = spoil_letters(&self->ends);
	}
	EXPECT_EQ(1, found);
	ASSERT_EQ(0, tow_edge_connect(self->ends.receiver, LATE_MS));
	EXPECT_EQ(-EPROTO, tow_edge_wait(self->ends.receiver, LATE_US, &data, NULL));
	EXPECT_EQ(0, tow_edge_close(self->ends.sender));
	self->ends.sender = NULL;
	EXPECT_EQ(0, tow_arena_free(self->ends.from.arena, tensor));
}

/* An end in a process of its own, until it is killed. */
static void be_end(bool sends, int says)
{
	struct ends ends = { 0 };
	unsigned char tensor[1000] = { 0 };
	struct sent sent = { 0 };
	void *data;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (make_ends(&ends, 0))
		_exit(1);
	if (sends && (tow_dynamic_sender(ends.from.worker, ends.from.peer, "process",
					 &ends.sender) ||
		      tow_edge_connect(ends.sender, LATE_MS) ||
		      send_bytes(&ends, tensor, sizeof(tensor), &sent)))
		_exit(2);
	if (!sends && (tow_dynamic_receiver(ends.to.worker, ends.to.peer, "process", 2,
					    &ends.receiver) ||
		       tow_edge_connect(ends.receiver, LATE_MS) ||
		       tow_edge_wait(ends.receiver, LATE_US, &data, NULL)))
		_exit(3);
	if (write(says, "!", 1) != 1)
		_exit(4);
	for (;;)
		tow_worker_progress(sends ? ends.from.worker : ends.to.worker, LATE_US);
}

TEST_F_TIMEOUT(pair, the_sender_dies, 60)
{
	pid_t child;
	int says = -1;
	void *data;

	child = begin_end(be_end, true, &says);
	ASSERT_LT(0, child);
	ASSERT_EQ(0, make_ends(&self->ends, 0));
	ASSERT_EQ(0, tow_dynamic_receiver(self->ends.to.worker, self->ends.to.peer, "process", 2,
					  &self->ends.receiver));
	ASSERT_EQ(0, tow_edge_connect(self->ends.receiver, LATE_MS));
	ASSERT_EQ(0, tow_edge_wait(self->ends.receiver, LATE_US, &data, NULL));
	EXPECT_TRUE(end_end(child, says));
	/* What has come stays. */
	EXPECT_EQ(1, tow_edge_test(self->ends.receiver, &data, NULL));
	EXPECT_EQ(0, ((char *)data)[999]);
	tow_edge_consumed(self->ends.receiver);
	EXPECT_EQ(-ESTALE, tow_edge_wait(self->ends.receiver, LATE_US, &data, NULL));
}

TEST_F_TIMEOUT(pair, the_receiver_dies, 60)
{
	unsigned char tensor[1000] = { 0 };
	struct sent sent = { 0 };
	int says = -1;
	pid_t child;

	child = begin_end(be_end, false, &says);
	ASSERT_LT(0, child);
	ASSERT_EQ(0, make_ends(&self->ends, 0));
	ASSERT_EQ(0, tow_dynamic_sender(self->ends.from.worker, self->ends.from.peer, "process",
					&self->ends.sender));
	ASSERT_EQ(0, tow_edge_connect(self->ends.sender, LATE_MS));
	for (int i = 0; i < 6; i++)
		ASSERT_EQ(0, send_bytes(&self->ends, tensor, sizeof(tensor), &sent));
	EXPECT_TRUE(end_end(child, says));
	/* It has read as many as it has slots, and consumed none. */
	EXPECT_EQ(0, finish(&self->ends.from, self->ends.sender));
	EXPECT_EQ(6, sent.count);
	EXPECT_EQ(0, sent.wrong);
	EXPECT_EQ(-ESTALE, sent.status);
}

TEST_HARNESS_MAIN

// SPDX-License-Identifier: GPL-2.0
/*
 * Static edges on one node, which is its own peer: every byte of every step, in order,
 * for sizes and numbers of slots; what is unread is not overwritten; ends that do not
 * fit, do not come, or go; waiting of every kind.
 */
/* build: link -ltowline */
#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>

#include "tow_libedge.h"

FIXTURE(edge)
{
	struct side side;
	struct tow_edge *sender, *receiver;
};

FIXTURE_SETUP(edge)
{
	ASSERT_EQ(0, tow_set_file("pool_bytes", "128m"));
	ASSERT_EQ(0, tow_set_file("allow_unauthenticated", "1"));
	ASSERT_EQ(0, make_side(&self->side));
}

FIXTURE_TEARDOWN(edge)
{
	struct tow_arena_stats stats = { .size = sizeof(stats) };

	EXPECT_EQ(0, tow_edge_close(self->sender));
	EXPECT_EQ(0, tow_edge_close(self->receiver));
	EXPECT_EQ(0, tow_arena_stats(self->side.arena, &stats));
	EXPECT_EQ(0, stats.in_use_bytes);
	EXPECT_EQ(0, end_side(&self->side));
}

/* Both ends of an edge, connected: 0 or a negative errno. */
static int make_edge(struct side *side, const char *name, const struct tow_tensor_type *type,
		     uint32_t slots, struct tow_edge **sender, struct tow_edge **receiver)
{
	int ret;

	ret = tow_static_receiver(side->worker, side->peer, name, type, slots, receiver);
	if (!ret)
		ret = tow_static_sender(side->worker, side->peer, name, type, sender);
	if (!ret)
		ret = tow_edge_connect(*sender, LATE_MS);
	if (!ret)
		ret = tow_edge_connect(*receiver, LATE_MS);
	return ret;
}

FIXTURE_VARIANT(edge)
{
	struct tow_tensor_type type;
	uint32_t slots;
	int steps;
	int lanes;			/* 0: it goes by one queue pair */
};

FIXTURE_VARIANT_ADD(edge, nothing) { .type = FLOATS(2, { 5, 0 }), .slots = 2, .steps = 10 };
FIXTURE_VARIANT_ADD(edge, scalar) { .type = FLOATS(0, { 0 }), .slots = 1, .steps = 20 };
FIXTURE_VARIANT_ADD(edge, bits) {
	.type = { { TOW_DTYPE_FLOAT4_E2M1FN, 4, 1 }, 1, { 77 } }, .slots = 3, .steps = 20,
};
FIXTURE_VARIANT_ADD(edge, eight_dims) {
	.type = FLOATS(8, { 1, 2, 3, 2, 1, 2, 3, 2 }), .slots = 4, .steps = 30,
};
FIXTURE_VARIANT_ADD(edge, large) { .type = FLOATS(2, { 512, 1024 }), .slots = 2, .steps = 6 };
/* TOW_CUT_BYTES and more, by four queue pairs. */
FIXTURE_VARIANT_ADD(edge, in_parts) {
	.type = FLOATS(2, { 1025, 1031 }), .slots = 2, .steps = 6, .lanes = 4,
};

/* Each step is read by who waits for it, and sent from where it is. */
TEST_F_TIMEOUT(edge, every_byte_in_order, 120)
{
	long long notified = tow_get_count("stats/notifications");
	long long copied = tow_get_count("stats/copied_bytes");
	struct sent sent = { 0 };
	unsigned char *tensor;
	uint64_t bytes, step;
	void *data;

	ASSERT_EQ(0, tow_tensor_bytes(&variant->type, &bytes));
	ASSERT_EQ(0, make_edge(&self->side, "steps", &variant->type, variant->slots, &self->sender,
			       &self->receiver));
	tensor = tow_arena_alloc(self->side.arena, bytes);
	ASSERT_NE(NULL, tensor);
	EXPECT_EQ(0, tow_edge_test(self->receiver, &data, NULL));
	for (int i = 1; i <= variant->steps; i++) {
		fill(tensor, bytes, (uint64_t)i);
		ASSERT_EQ(0, tow_edge_send(self->sender, tensor, note_sent, &sent));
		ASSERT_EQ(0, tow_edge_wait(self->receiver, LATE_US, &data, &step));
		EXPECT_EQ((uint64_t)i, step);
		EXPECT_TRUE(holds(data, bytes, step));
		EXPECT_EQ(1, tow_edge_test(self->receiver, &data, &step));
		EXPECT_EQ(0, tow_edge_consumed(self->receiver));
		EXPECT_EQ(0, finish(&self->side, self->sender));
	}
	EXPECT_EQ(variant->steps, sent.count);
	EXPECT_EQ(0, sent.wrong);
	EXPECT_EQ(0, sent.status);
	EXPECT_EQ(0, tow_worker_copied(self->side.worker));
	ASSERT_LE(0, copied);
	EXPECT_EQ(copied, tow_get_count("stats/copied_bytes"));
	/* The greeting and each step, by each queue pair. */
	EXPECT_LE(notified + (long long)variant->lanes * (variant->steps + 1),
		  tow_get_count("stats/notifications"));
	EXPECT_EQ(-EINVAL, tow_edge_consumed(self->receiver));
	EXPECT_EQ(0, tow_arena_free(self->side.arena, tensor));
}

/* All steps at once: the receiver's memory is not written before it was read. */
TEST_F_TIMEOUT(edge, what_is_unread_stays, 120)
{
	const int ahead = (int)variant->slots + 5;
	struct sent sent = { 0 };
	unsigned char *tensors[16];
	uint64_t bytes, step;
	void *data;

	ASSERT_EQ(0, tow_tensor_bytes(&variant->type, &bytes));
	ASSERT_EQ(0, make_edge(&self->side, "ahead", &variant->type, variant->slots, &self->sender,
			       &self->receiver));
	for (int i = 0; i < ahead; i++) {
		tensors[i] = tow_arena_alloc(self->side.arena, bytes);
		ASSERT_NE(NULL, tensors[i]);
		fill(tensors[i], bytes, (uint64_t)i + 1);
		ASSERT_EQ(0, tow_edge_send(self->sender, tensors[i], note_sent, &sent));
	}
	for (int i = 0; i < ahead; i++) {
		ASSERT_EQ(0, tow_edge_wait(self->receiver, LATE_US, &data, &step));
		/* Whatever comes meanwhile. */
		tow_worker_progress(self->side.worker, SOON_US);
		EXPECT_GE(i + (int)variant->slots, sent.count);
		EXPECT_EQ((uint64_t)i + 1, step);
		EXPECT_TRUE(holds(data, bytes, step));
		EXPECT_EQ(0, tow_edge_consumed(self->receiver));
	}
	EXPECT_EQ(0, finish(&self->side, self->sender));
	EXPECT_EQ(ahead, sent.count);
	EXPECT_EQ(0, sent.wrong);
	EXPECT_EQ(0, sent.status);
	for (int i = 0; i < ahead; i++)
		EXPECT_EQ(0, tow_arena_free(self->side.arena, tensors[i]));
}

/* ---- one kind of tensor is enough ---- */

FIXTURE(pair)
{
	struct side side;
	struct tow_edge *sender, *receiver;
	struct tow_tensor_type type;
	uint64_t bytes;
};

FIXTURE_SETUP(pair)
{
	self->type = (struct tow_tensor_type)FLOATS(2, { 10, 100 });
	ASSERT_EQ(0, tow_set_file("pool_bytes", "64m"));
	ASSERT_EQ(0, tow_set_file("allow_unauthenticated", "1"));
	ASSERT_EQ(0, make_side(&self->side));
	ASSERT_EQ(0, tow_tensor_bytes(&self->type, &self->bytes));
	ASSERT_EQ(4000, self->bytes);
}

FIXTURE_TEARDOWN(pair)
{
	struct tow_arena_stats stats = { .size = sizeof(stats) };

	tow_edge_close(self->sender);
	tow_edge_close(self->receiver);
	EXPECT_EQ(0, tow_arena_stats(self->side.arena, &stats));
	EXPECT_EQ(0, stats.in_use_bytes);
	EXPECT_EQ(0, end_side(&self->side));
}

TEST_F(pair, arguments)
{
	struct tow_tensor_type bad = self->type;
	struct tow_edge *none = NULL;
	char name[TOW_EDGE_NAME_MAX + 2];
	void *data;

	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	bad.ndim = 9;
	EXPECT_EQ(-EINVAL, tow_static_receiver(self->side.worker, self->side.peer, "bad", &bad, 1,
					       &none));
	EXPECT_EQ(-EINVAL, tow_static_receiver(self->side.worker, self->side.peer, name,
					       &self->type, 1, &none));
	EXPECT_EQ(-EINVAL, tow_static_receiver(self->side.worker, self->side.peer, "none",
					       &self->type, 0, &none));
	EXPECT_EQ(-EINVAL, tow_static_receiver(self->side.worker, self->side.peer, "many",
					       &self->type, TOW_EDGE_SLOTS_MAX + 1, &none));
	EXPECT_EQ(-EINVAL, tow_static_sender(self->side.worker, NULL, "none", &self->type, &none));
	EXPECT_EQ(-EINVAL, tow_static_sender(self->side.worker, self->side.peer, "", &self->type,
					     &none));
	EXPECT_EQ(NULL, none);
	ASSERT_EQ(0, tow_static_receiver(self->side.worker, self->side.peer, "good", &self->type,
					 1, &self->receiver));
	EXPECT_EQ(-EEXIST, tow_static_receiver(self->side.worker, self->side.peer, "good",
					       &self->type, 1, &none));
	ASSERT_EQ(0, tow_static_sender(self->side.worker, self->side.peer, "good", &self->type,
				       &self->sender));
	EXPECT_EQ(-ENOTCONN, tow_edge_send(self->sender, name, NULL, NULL));
	EXPECT_EQ(-EINVAL, tow_edge_send(self->receiver, name, NULL, NULL));
	EXPECT_EQ(-EINVAL, tow_edge_send(self->sender, NULL, NULL, NULL));
	EXPECT_EQ(-EINVAL, tow_edge_test(self->sender, &data, NULL));
	EXPECT_EQ(-EINVAL, tow_edge_wait(self->sender, 0, &data, NULL));
	EXPECT_EQ(-EINVAL, tow_edge_consumed(self->sender));
	EXPECT_EQ(-EINVAL, tow_edge_arm(self->sender));
	EXPECT_EQ(-EBUSY, tow_worker_destroy(self->side.worker));
}

#define COPIED_BYTES	(256UL << 10)

/* Ordinary memory is copied, at once, and that is counted. */
TEST_F(pair, copied_where_it_must_be)
{
	const struct tow_tensor_type type = FLOATS(1, { COPIED_BYTES / 4 });
	long long copied = tow_get_count("stats/copied_bytes");
	unsigned char *tensor = malloc(COPIED_BYTES);
	struct tow_arena_stats stats = { .size = sizeof(stats) };
	uint64_t before;
	void *data;

	ASSERT_NE(NULL, tensor);
	ASSERT_EQ(0, make_edge(&self->side, "copied", &type, 2, &self->sender, &self->receiver));
	ASSERT_EQ(0, tow_arena_stats(self->side.arena, &stats));
	before = stats.in_use_bytes;
	for (uint64_t step = 1; step <= 2; step++) {
		fill(tensor, COPIED_BYTES, step);
		ASSERT_EQ(0, tow_edge_send(self->sender, tensor, NULL, NULL));
	}
	memset(tensor, 0, COPIED_BYTES);
	for (uint64_t step = 1; step <= 2; step++) {
		ASSERT_EQ(0, tow_edge_wait(self->receiver, LATE_US, &data, NULL));
		EXPECT_TRUE(holds(data, COPIED_BYTES, step));
		EXPECT_EQ(0, tow_edge_consumed(self->receiver));
	}
	EXPECT_EQ(0, finish(&self->side, self->sender));
	EXPECT_EQ(2 * COPIED_BYTES, tow_worker_copied(self->side.worker));
	EXPECT_EQ(copied + 2 * (long long)COPIED_BYTES, tow_get_count("stats/copied_bytes"));
	/* They have gone, whatever the worker's mailbox has taken meanwhile. */
	ASSERT_EQ(0, tow_arena_stats(self->side.arena, &stats));
	EXPECT_GT(before + COPIED_BYTES, stats.in_use_bytes);
	free(tensor);
}

static void mismatch(struct __test_metadata *_metadata, FIXTURE_DATA(pair) *self,
		     const struct tow_tensor_type *other, int error)
{
	struct tow_patience patience = tow_patience(TOW_PEER_SETTLE_SECONDS);
	void *data;
	int ret;

	ASSERT_EQ(0, tow_static_receiver(self->side.worker, self->side.peer, "mismatch",
					 &self->type, 1, &self->receiver));
	ASSERT_EQ(0, tow_static_sender(self->side.worker, self->side.peer, "mismatch", other,
				       &self->sender));
	EXPECT_EQ(error, tow_edge_connect(self->sender, LATE_MS));
	EXPECT_EQ(error, tow_edge_connect(self->sender, LATE_MS));
	EXPECT_EQ(error, tow_edge_send(self->sender, self, NULL, NULL));
	while (!(ret = tow_edge_test(self->receiver, &data, NULL)) && tow_patient(&patience))
		tow_test_sleep_ms(5);
	EXPECT_EQ(error, ret);
	EXPECT_EQ(error, tow_edge_wait(self->receiver, LATE_US, &data, NULL));
}

/* Nothing is copied that is in a region, whoever made it; nor is what is in part. */
TEST_F_TIMEOUT(pair, from_any_region, 60)
{
	long long copied = tow_get_count("stats/copied_bytes");
	unsigned char *places[2];
	struct sent sent = { 0 };
	struct given given;
	uint64_t step = 0;
	void *data;

	ASSERT_EQ(0, make_edge(&self->side, "given", &self->type, 2, &self->sender,
			       &self->receiver));
	for (int kind = 0; kind < 2 * GIVEN_KINDS; kind++) {
		ASSERT_EQ(0, give_region(&self->side, kind % GIVEN_KINDS, &given));
		places[0] = given.at;
		places[1] = given.end - self->bytes;
		for (int i = 0; i < 2; i++) {
			fill(places[i], self->bytes, ++step);
			ASSERT_EQ(0, tow_edge_send(self->sender, places[i], note_sent, &sent));
			ASSERT_EQ(0, tow_edge_wait(self->receiver, LATE_US, &data, NULL));
			EXPECT_TRUE(holds(data, self->bytes, step));
			EXPECT_EQ(0, tow_edge_consumed(self->receiver));
			EXPECT_EQ(0, finish(&self->side, self->sender));
		}
		EXPECT_EQ(-EINVAL, tow_edge_send(self->sender, given.end - self->bytes + 1,
						 note_sent, &sent));
		EXPECT_EQ(-EINVAL, tow_edge_send(self->sender, given.end - 1, note_sent, &sent));
		EXPECT_EQ(0, end_given(&given));
	}
	EXPECT_EQ(step, sent.count);
	EXPECT_EQ(0, sent.status);
	EXPECT_EQ(0, tow_worker_copied(self->side.worker));
	EXPECT_EQ(copied, tow_get_count("stats/copied_bytes"));
}

TEST_F(pair, another_shape)
{
	struct tow_tensor_type other = self->type;

	other.dims[0] = 100;
	other.dims[1] = 10;
	mismatch(_metadata, self, &other, -EMSGSIZE);
}

TEST_F(pair, another_type)
{
	struct tow_tensor_type other = self->type;

	other.dtype.code = TOW_DTYPE_INT;
	mismatch(_metadata, self, &other, -EPROTOTYPE);
}

TEST_F(pair, nobody_comes_and_then_somebody)
{
	void *data;

	ASSERT_EQ(0, tow_static_sender(self->side.worker, self->side.peer, "late", &self->type,
				       &self->sender));
	EXPECT_EQ(-ETIMEDOUT, tow_edge_connect(self->sender, 50));
	ASSERT_EQ(0, tow_static_receiver(self->side.worker, self->side.peer, "late", &self->type,
					 1, &self->receiver));
	EXPECT_EQ(-ETIMEDOUT, tow_edge_wait(self->receiver, SOON_US, &data, NULL));
	EXPECT_EQ(0, tow_edge_connect(self->sender, LATE_MS));
	EXPECT_EQ(0, tow_edge_connect(self->sender, LATE_MS));
	EXPECT_EQ(-ETIMEDOUT, tow_edge_wait(self->receiver, SOON_US, &data, NULL));
}

static void *send_soon(void *arg)
{
	struct tow_edge *sender = arg;
	static unsigned char tensor[4000];

	tow_test_sleep_ms(50);
	fill(tensor, sizeof(tensor), 1);
	return tow_edge_send(sender, tensor, NULL, NULL) ? sender : NULL;
}

/* Another thread sends while this one sleeps. */
TEST_F(pair, waits_for_a_thread)
{
	pthread_t thread;
	void *data, *failed;

	ASSERT_EQ(0, make_edge(&self->side, "thread", &self->type, 1, &self->sender,
			       &self->receiver));
	ASSERT_EQ(0, pthread_create(&thread, NULL, send_soon, self->sender));
	EXPECT_EQ(0, tow_edge_wait(self->receiver, LATE_US, &data, NULL));
	EXPECT_TRUE(holds(data, self->bytes, 1));
	pthread_join(thread, &failed);
	EXPECT_EQ(NULL, failed);
}

/* Its descriptor says that there is something to do, and then there is. */
TEST_F(pair, a_descriptor_says_when)
{
	struct pollfd look = { .events = POLLIN };
	static unsigned char tensor[4000];
	void *data;

	ASSERT_EQ(0, make_edge(&self->side, "poll", &self->type, 2, &self->sender,
			       &self->receiver));
	look.fd = tow_worker_fd(self->side.worker);
	for (uint64_t step = 1; step <= 3; step++) {
		ASSERT_EQ(0, tow_edge_arm(self->receiver));
		ASSERT_EQ(0, tow_edge_arm(self->receiver));
		EXPECT_TRUE(goes_quiet(self->side.worker, &look));
		ASSERT_EQ(0, tow_edge_send(self->sender, tensor, NULL, NULL));
		while (!tow_edge_test(self->receiver, &data, NULL)) {
			ASSERT_EQ(1, poll(&look, 1, LATE_MS));
			ASSERT_LE(0, tow_worker_progress(self->side.worker, 0));
		}
		EXPECT_EQ(0, tow_edge_consumed(self->receiver));
		EXPECT_EQ(0, finish(&self->side, self->sender));
	}
}

/* Steps that wait for room are told that they will not be sent. */
TEST_F(pair, closed_before_it_was_read)
{
	static unsigned char tensor[4000];
	struct sent sent = { 0 };

	ASSERT_EQ(0, make_edge(&self->side, "closed", &self->type, 2, &self->sender,
			       &self->receiver));
	for (int i = 0; i < 5; i++)
		ASSERT_EQ(0, tow_edge_send(self->sender, tensor, note_sent, &sent));
	EXPECT_EQ(0, tow_edge_close(self->sender));
	self->sender = NULL;
	EXPECT_EQ(5, sent.count);
	EXPECT_EQ(0, sent.wrong);
	EXPECT_EQ(-ECANCELED, sent.status);
}

/* A worker has channels to those only that it has edges to: of others it hears nothing. */
TEST_F(pair, channels_go_with_the_last_edge)
{
	struct pollfd fd = { .fd = tow_worker_fd(self->side.worker), .events = POLLPRI };
	struct tow_edge *sender, *receiver;
	uint64_t step;
	void *data;

	ASSERT_EQ(0, make_edge(&self->side, "first", &self->type, 2, &self->sender,
			       &self->receiver));
	ASSERT_EQ(0, make_edge(&self->side, "second", &self->type, 2, &sender, &receiver));
	EXPECT_EQ(0, tow_edge_close(self->sender));
	EXPECT_EQ(0, tow_edge_close(self->receiver));
	self->sender = NULL;
	self->receiver = NULL;
	/* Those that are left have theirs. */
	data = tow_arena_zeroed(self->side.arena, 1, self->bytes);
	ASSERT_NE(NULL, data);
	ASSERT_EQ(0, tow_edge_send(sender, data, NULL, NULL));
	EXPECT_EQ(0, finish(&self->side, sender));
	EXPECT_EQ(0, tow_arena_free(self->side.arena, data));
	ASSERT_EQ(0, tow_edge_wait(receiver, LATE_US, &data, &step));
	EXPECT_EQ(1, step);
	EXPECT_EQ(0, tow_edge_close(sender));
	EXPECT_EQ(0, tow_edge_close(receiver));
	ASSERT_EQ(0, tow_peer_disconnect(self->side.peer));
	self->side.peer = NULL;
	EXPECT_EQ(0, poll(&fd, 1, 0));
	EXPECT_EQ(0, fd.revents);
}

TEST_F(pair, too_far_ahead)
{
	struct tow_patience patience = tow_patience(TOW_PEER_SETTLE_SECONDS);
	static unsigned char tensor[4000];
	struct sent sent = { 0 };

	ASSERT_EQ(0, make_edge(&self->side, "far", &self->type, 1, &self->sender,
			       &self->receiver));
	for (uint32_t i = 0; i < TOW_EDGE_SLOTS_MAX; i++)
		ASSERT_EQ(0, tow_edge_send(self->sender, tensor, note_sent, &sent));
	while (!sent.count && tow_patient(&patience))
		ASSERT_LE(0, tow_worker_progress(self->side.worker, SOON_US));
	EXPECT_EQ(1, sent.count);
	EXPECT_EQ(0, tow_edge_send(self->sender, tensor, note_sent, &sent));
	EXPECT_EQ(-EAGAIN, tow_edge_send(self->sender, tensor, note_sent, &sent));
}

/* One worker, one thread, many edges: each gets its turn. */
TEST_F_TIMEOUT(pair, many_edges, 120)
{
	enum { EDGES = 20, STEPS = 10 };
	struct tow_edge *senders[EDGES], *receivers[EDGES];
	static unsigned char tensor[4000];
	int seen[EDGES] = { 0 }, left = EDGES * STEPS;
	struct tow_patience patience = tow_patience(60);
	char name[32];
	void *data;

	for (int i = 0; i < EDGES; i++) {
		snprintf(name, sizeof(name), "many-%d", i);
		ASSERT_EQ(0, make_edge(&self->side, name, &self->type, 2, &senders[i],
				       &receivers[i]));
		for (int step = 0; step < STEPS; step++)
			ASSERT_EQ(0, tow_edge_send(senders[i], tensor, NULL, NULL));
	}
	while (left && tow_patient(&patience)) {
		ASSERT_LE(0, tow_worker_progress(self->side.worker, SOON_US));
		for (int i = 0; i < EDGES; i++) {
			if (tow_edge_test(receivers[i], &data, NULL) != 1)
				continue;
			EXPECT_EQ(0, tow_edge_consumed(receivers[i]));
			seen[i]++;
			left--;
		}
	}
	EXPECT_EQ(0, left);
	for (int i = 0; i < EDGES; i++) {
		EXPECT_EQ(STEPS, seen[i]);
		EXPECT_EQ(0, tow_edge_close(senders[i]));
		EXPECT_EQ(0, tow_edge_close(receivers[i]));
	}
}

/* A receiver in a process of its own, until it is killed. */
static void receive(const struct tow_tensor_type *type, bool consumes)
{
	struct tow_edge *receiver;
	struct side side;
	void *data;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (make_side(&side) || tow_static_receiver(side.worker, side.peer, "process", type, 2,
						    &receiver) ||
	    tow_edge_connect(receiver, LATE_MS))
		_exit(1);
	while (consumes && !tow_edge_wait(receiver, TOW_WAIT_FOREVER, &data, NULL))
		tow_edge_consumed(receiver);
	if (consumes)
		_exit(2);
	for (;;)
		pause();
}

TEST_F_TIMEOUT(pair, the_receiver_dies, 60)
{
	static unsigned char tensor[4000];
	struct sent sent = { 0 };
	struct tow_patience patience;
	pid_t child = fork();
	int status, ret = 0;

	ASSERT_LE(0, child);
	if (!child)
		receive(&self->type, true);
	ASSERT_EQ(0, tow_static_sender(self->side.worker, self->side.peer, "process", &self->type,
				       &self->sender));
	ASSERT_EQ(0, tow_edge_connect(self->sender, LATE_MS));
	for (int i = 0; i < 20; i++) {
		ASSERT_EQ(0, tow_edge_send(self->sender, tensor, note_sent, &sent));
		EXPECT_EQ(0, finish(&self->side, self->sender));
	}
	EXPECT_EQ(0, sent.status);
	kill(child, SIGKILL);
	EXPECT_EQ(child, waitpid(child, &status, 0));
	patience = tow_patience(TOW_PEER_SETTLE_SECONDS);
	while (!ret && tow_patient(&patience)) {
		ret = tow_edge_send(self->sender, tensor, note_sent, &sent);
		if (ret == -EAGAIN)
			ret = 0;
		tow_worker_progress(self->side.worker, SOON_US);
	}
	EXPECT_EQ(-ESTALE, ret);
	/* It may be that of one whose turn to be told of has not come. */
	EXPECT_EQ(0, finish(&self->side, self->sender));
	/* Or of the line, before anything was sent. */
	if (sent.count > 20)
		EXPECT_EQ(-ESTALE, sent.status);
	EXPECT_EQ(0, sent.wrong);
}

/* While the sender waits for room, and nothing is on its way that would fail. */
TEST_F_TIMEOUT(pair, the_receiver_dies_without_reading, 60)
{
	static unsigned char tensor[4000];
	struct sent sent = { 0 };
	pid_t child = fork();
	int status;

	ASSERT_LE(0, child);
	if (!child)
		receive(&self->type, false);
	ASSERT_EQ(0, tow_static_sender(self->side.worker, self->side.peer, "process", &self->type,
				       &self->sender));
	ASSERT_EQ(0, tow_edge_connect(self->sender, LATE_MS));
	for (int i = 0; i < 5; i++)
		ASSERT_EQ(0, tow_edge_send(self->sender, tensor, note_sent, &sent));
	while (sent.count < 2)
		ASSERT_LE(0, tow_worker_progress(self->side.worker, LATE_US));
	/* The clock's looks find it alive. */
	tow_test_sleep_ms(1200);
	ASSERT_LE(0, tow_worker_progress(self->side.worker, SOON_US));
	EXPECT_EQ(2, sent.count);
	EXPECT_EQ(0, sent.status);
	kill(child, SIGKILL);
	EXPECT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, finish(&self->side, self->sender));
	EXPECT_EQ(5, sent.count);
	EXPECT_EQ(0, sent.wrong);
	EXPECT_EQ(-ESTALE, sent.status);
}

/* What tow_edge_watch()'s function was told, and whether it consumes what is shown. */
struct came {
	bool consumes;
	uint64_t steps;
	int count, wrong, status;
};

static void note_came(void *arg, struct tow_edge *edge, int status)
{
	struct came *came = arg;
	uint64_t step;
	void *data;

	came->count++;
	if (status) {
		came->status = status;
		return;
	}
	if (tow_edge_test(edge, &data, &step) != 1 || step != came->steps + 1 ||
	    !holds(data, 4000, step))
		came->wrong++;
	came->steps = step;
	if (came->consumes)
		came->wrong += tow_edge_consumed(edge) != 0;
}

/* A sender of two steps, until it is killed. */
static void send_two(bool sends, int says)
{
	static const struct tow_tensor_type type = FLOATS(2, { 10, 100 });
	static unsigned char tensor[4000];
	struct tow_edge *sender;
	struct side side;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!sends || make_side(&side) ||
	    tow_static_sender(side.worker, side.peer, "process", &type, &sender) ||
	    tow_edge_connect(sender, LATE_MS) || tow_edge_send(sender, tensor, NULL, NULL) ||
	    tow_edge_send(sender, tensor, NULL, NULL) || finish(&side, sender) ||
	    write(says, "!", 1) != 1)
		_exit(1);
	for (;;)
		tow_worker_progress(side.worker, LATE_US);
}

/* What it has sent is there; what it has not never comes, and nobody waits for it. */
TEST_F_TIMEOUT(pair, the_sender_dies, 60)
{
	struct came came = { 0 };
	uint64_t step;
	int says = -1;
	pid_t child;
	void *data;

	child = begin_end(send_two, true, &says);
	ASSERT_LT(0, child);
	ASSERT_EQ(0, tow_static_receiver(self->side.worker, self->side.peer, "process",
					 &self->type, 2, &self->receiver));
	ASSERT_EQ(0, tow_edge_connect(self->receiver, LATE_MS));
	ASSERT_EQ(0, tow_edge_wait(self->receiver, LATE_US, &data, &step));
	EXPECT_EQ(1, step);
	EXPECT_EQ(0, tow_edge_consumed(self->receiver));
	ASSERT_EQ(0, tow_edge_wait(self->receiver, LATE_US, &data, &step));
	EXPECT_EQ(2, step);
	EXPECT_EQ(0, tow_edge_consumed(self->receiver));
	/* The clock's looks find it alive, and nothing is on its way that would fail. */
	tow_test_sleep_ms(1200);
	while (tow_worker_progress(self->side.worker, 10 * SOON_US) > 0)
		;
	EXPECT_EQ(0, tow_edge_test(self->receiver, &data, NULL));
	EXPECT_TRUE(end_end(child, says));
	EXPECT_EQ(0, tow_edge_watch(self->receiver, note_came, &came));
	while (!came.count)
		ASSERT_LE(0, tow_worker_progress(self->side.worker, LATE_US));
	EXPECT_EQ(-ESTALE, came.status);
	EXPECT_EQ(1, came.count);
	EXPECT_EQ(-ESTALE, tow_edge_wait(self->receiver, LATE_US, &data, NULL));
}

/* Steps that are consumed where they are told of, as many as come, by nobody but progress. */
TEST_F(pair, a_function_for_each_step)
{
	enum { STEPS = 200 };
	struct tow_patience patience = tow_patience(TOW_PEER_SETTLE_SECONDS);
	unsigned char *tensors[3];
	struct came came = { .consumes = true };
	struct sent sent = { 0 };
	uint64_t step;

	for (int i = 0; i < 3; i++) {
		tensors[i] = tow_arena_alloc(self->side.arena, self->bytes);
		ASSERT_NE(NULL, tensors[i]);
	}
	ASSERT_EQ(0, tow_static_receiver(self->side.worker, self->side.peer, "watched",
					 &self->type, 2, &self->receiver));
	EXPECT_EQ(-ENOTCONN, tow_edge_watch(self->receiver, note_came, &came));
	ASSERT_EQ(0, tow_static_sender(self->side.worker, self->side.peer, "watched", &self->type,
				       &self->sender));
	ASSERT_EQ(0, tow_edge_connect(self->sender, LATE_MS));
	ASSERT_EQ(0, tow_edge_connect(self->receiver, LATE_MS));
	EXPECT_EQ(-EINVAL, tow_edge_watch(self->sender, note_came, &came));
	/* One that is there already. */
	fill(tensors[1], self->bytes, 1);
	ASSERT_EQ(0, tow_edge_send(self->sender, tensors[1], note_sent, &sent));
	EXPECT_EQ(0, finish(&self->side, self->sender));
	ASSERT_EQ(0, tow_edge_watch(self->receiver, note_came, &came));
	EXPECT_EQ(0, came.count);
	while (came.count < 1)
		ASSERT_LT(0, tow_worker_progress(self->side.worker, LATE_US));
	for (step = 2; step <= STEPS; step++) {
		while (tow_edge_pending(self->sender) > 2)
			ASSERT_LT(0, tow_worker_progress(self->side.worker, LATE_US));
		fill(tensors[step % 3], self->bytes, step);
		ASSERT_EQ(0, tow_edge_send(self->sender, tensors[step % 3], note_sent, &sent));
	}
	while (came.count < STEPS && tow_patient(&patience))
		ASSERT_LT(0, tow_worker_progress(self->side.worker, LATE_US));
	EXPECT_EQ(STEPS, came.count);
	EXPECT_EQ(0, came.wrong);
	EXPECT_EQ(0, came.status);
	EXPECT_EQ(0, finish(&self->side, self->sender));
	for (int i = 0; i < 3; i++)
		EXPECT_EQ(0, tow_arena_free(self->side.arena, tensors[i]));
}

/* The function is called until then, and not again while the worker goes on a little. */
static bool is_told_once(struct tow_worker *worker, const struct came *came,
			 struct tow_patience *patience)
{
	int ret = 0;

	while (!came->count && tow_patient(patience) && ret >= 0)
		ret = tow_worker_progress(worker, SOON_US);
	for (int i = 0; i < 5 && ret >= 0; i++)
		ret = tow_worker_progress(worker, SOON_US);
	return ret >= 0 && came->count == 1;
}

/* What was consumed before the function could be called is not told; nothing is told twice. */
TEST_F(pair, a_function_that_comes_late)
{
	struct tow_patience patience = tow_patience(TOW_PEER_SETTLE_SECONDS);
	static unsigned char tensor[4000];
	struct came came = { 0 }, other = { 0 };
	void *data;

	ASSERT_EQ(0, make_edge(&self->side, "late", &self->type, 3, &self->sender,
			       &self->receiver));
	for (uint64_t step = 1; step <= 2; step++) {
		fill(tensor, sizeof(tensor), step);
		ASSERT_EQ(0, tow_edge_send(self->sender, tensor, NULL, NULL));
		EXPECT_EQ(0, finish(&self->side, self->sender));
	}
	ASSERT_EQ(0, tow_edge_wait(self->receiver, LATE_US, &data, NULL));
	ASSERT_EQ(0, tow_edge_watch(self->receiver, note_came, &other));
	came.steps = 1;
	ASSERT_EQ(0, tow_edge_watch(self->receiver, note_came, &came));
	EXPECT_EQ(0, tow_edge_consumed(self->receiver));
	EXPECT_TRUE(is_told_once(self->side.worker, &came, &patience));
	EXPECT_EQ(0, other.count);
	EXPECT_EQ(1, came.count);
	EXPECT_EQ(0, came.wrong);
	EXPECT_EQ(0, tow_edge_consumed(self->receiver));
}

/* Of what is not consumed there it is told once; of the next one when that was. */
TEST_F(pair, a_function_that_consumes_nothing)
{
	static unsigned char tensor[4000];
	struct tow_patience patience = tow_patience(TOW_PEER_SETTLE_SECONDS);
	struct came came = { 0 }, other = { 0 };

	ASSERT_EQ(0, make_edge(&self->side, "shown", &self->type, 3, &self->sender,
			       &self->receiver));
	ASSERT_EQ(0, tow_edge_watch(self->receiver, note_came, &came));
	for (uint64_t step = 1; step <= 3; step++) {
		fill(tensor, sizeof(tensor), step);
		ASSERT_EQ(0, tow_edge_send(self->sender, tensor, NULL, NULL));
		EXPECT_EQ(0, finish(&self->side, self->sender));
	}
	EXPECT_TRUE(is_told_once(self->side.worker, &came, &patience));
	EXPECT_EQ(1, came.count);
	EXPECT_EQ(0, tow_edge_consumed(self->receiver));
	while (came.count < 2 && tow_patient(&patience))
		ASSERT_LE(0, tow_worker_progress(self->side.worker, SOON_US));
	EXPECT_EQ(2, came.steps);
	/* Another function is told of what is shown. */
	ASSERT_EQ(0, tow_edge_watch(self->receiver, note_came, &other));
	other.steps = 1;
	while (!other.count && tow_patient(&patience))
		ASSERT_LE(0, tow_worker_progress(self->side.worker, SOON_US));
	EXPECT_EQ(2, other.steps);
	EXPECT_EQ(0, other.wrong);
	EXPECT_EQ(0, tow_edge_consumed(self->receiver));
	EXPECT_EQ(0, tow_edge_watch(self->receiver, NULL, NULL));
	EXPECT_EQ(0, tow_edge_consumed(self->receiver));
	EXPECT_EQ(0, tow_edge_watch(self->receiver, note_came, &came));
	/* Nobody is told that he has closed it himself. */
	EXPECT_EQ(0, tow_edge_close(self->receiver));
	self->receiver = NULL;
	EXPECT_EQ(2, came.count);
	EXPECT_EQ(0, came.wrong);
}

#define KEPT_SLOTS	4U
#define KEPT_READ	2U
#define KEPT_CAME	(KEPT_READ + KEPT_SLOTS)
#define KEPT_STEPS	((uint64_t)3 * KEPT_CAME)

/* A receiver in a region that outlives it: reads two steps, and looks at the third. */
static void receive_kept(const struct tow_tensor_type *type)
{
	struct tow_region_attr attr = { .size = sizeof(attr), .flags = TOW_REGION_PERSISTENT,
					.name = "kept" };
	struct tow_region *region;
	struct tow_edge *receiver;
	struct side side;
	uint64_t bytes;
	void *data;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (make_side(&side) || tow_static_bytes(type, KEPT_SLOTS, &bytes) ||
	    tow_region_create(side.dev, bytes, &attr, &region) ||
	    tow_static_receiver_in(side.worker, side.peer, "kept", type, KEPT_SLOTS, region,
				   &receiver) ||
	    tow_edge_connect(receiver, LATE_MS))
		_exit(1);
	for (uint32_t i = 0; i < KEPT_READ; i++)
		if (tow_edge_wait(receiver, LATE_US, &data, NULL) || tow_edge_consumed(receiver))
			_exit(2);
	for (;;)
		if (tow_edge_wait(receiver, TOW_WAIT_FOREVER, &data, NULL) ||
		    tow_worker_progress(side.worker, LATE_US) < 0)
			_exit(3);
}

/* Sends as much as there is room for, to a receiver that is killed then. */
static void send_until_killed(struct __test_metadata *_metadata, FIXTURE_DATA(pair) *self,
			      unsigned char *tensor)
{
	struct sent sent = { 0 };
	pid_t child = fork();
	int status;

	ASSERT_LE(0, child);
	if (!child)
		receive_kept(&self->type);
	ASSERT_EQ(0, tow_static_sender(self->side.worker, self->side.peer, "kept", &self->type,
				       &self->sender));
	ASSERT_EQ(0, tow_edge_connect(self->sender, LATE_MS));
	for (uint64_t step = 1; step <= KEPT_CAME; step++) {
		fill(tensor, self->bytes, step);
		ASSERT_EQ(0, tow_edge_send(self->sender, tensor, note_sent, &sent));
		ASSERT_EQ(0, finish(&self->side, self->sender));
	}
	EXPECT_EQ(0, sent.status);
	kill(child, SIGKILL);
	EXPECT_EQ(child, waitpid(child, &status, 0));
	EXPECT_TRUE(WIFSIGNALED(status));
	EXPECT_EQ(0, tow_edge_close(self->sender));
	self->sender = NULL;
}

static int attach_kept(struct side *side, struct tow_region **region)
{
	struct tow_patience patience = tow_patience(TOW_PEER_SETTLE_SECONDS);
	int ret;

	/* Until the kernel has ended who was killed. */
	while ((ret = tow_region_attach(side->dev, "kept", 0, region)) == -EBUSY &&
	       tow_patient(&patience))
		tow_test_sleep_ms(10);
	return ret;
}

/* The next receiver reads what was not read, and the next sender goes on behind it. */
TEST_F_TIMEOUT(pair, taken_over, 60)
{
	struct tow_tensor_type other = self->type;
	struct tow_region *region, *found = NULL;
	unsigned char *tensor;
	uint64_t step = 0;
	void *data;

	tensor = tow_arena_alloc(self->side.arena, self->bytes);
	ASSERT_NE(NULL, tensor);
	send_until_killed(_metadata, self, tensor);
	ASSERT_EQ(0, attach_kept(&self->side, &region));
	other.dims[0]++;
	EXPECT_EQ(-EMSGSIZE, tow_static_receiver_in(self->side.worker, self->side.peer, "kept",
						    &other, KEPT_SLOTS, region,
						    &self->receiver));
	EXPECT_EQ(-EMSGSIZE, tow_static_receiver_in(self->side.worker, self->side.peer, "kept",
						    &self->type, KEPT_SLOTS - 1, region,
						    &self->receiver));
	ASSERT_EQ(0, tow_static_receiver_in(self->side.worker, self->side.peer, "kept", &self->type,
					    KEPT_SLOTS, region, &self->receiver));
	ASSERT_EQ(0, tow_static_sender(self->side.worker, self->side.peer, "kept", &self->type,
				       &self->sender));
	ASSERT_EQ(0, tow_edge_connect(self->sender, LATE_MS));
	ASSERT_EQ(0, tow_edge_connect(self->receiver, LATE_MS));
	EXPECT_EQ(0, tow_edge_next(self->sender, &step));
	EXPECT_EQ(KEPT_CAME + 1, step);
	EXPECT_EQ(0, tow_edge_next(self->receiver, &step));
	EXPECT_EQ(KEPT_READ + 1, step);
	for (uint64_t wanted = KEPT_READ + 1; wanted <= KEPT_STEPS; wanted++) {
		/* There is no room for it before one of the others was read. */
		if (wanted > KEPT_READ + 1 && wanted + KEPT_SLOTS - 1 <= KEPT_STEPS) {
			fill(tensor, self->bytes, wanted + KEPT_SLOTS - 1);
			ASSERT_EQ(0, tow_edge_send(self->sender, tensor, NULL, NULL));
			ASSERT_EQ(0, finish(&self->side, self->sender));
		}
		ASSERT_EQ(0, tow_edge_wait(self->receiver, LATE_US, &data, &step));
		EXPECT_EQ(wanted, step);
		EXPECT_TRUE(holds(data, self->bytes, step));
		EXPECT_EQ(0, tow_edge_consumed(self->receiver));
	}
	EXPECT_EQ(0, tow_region_find(self->side.dev, data, &found, &step, NULL));
	EXPECT_EQ(region, found);
	EXPECT_EQ(-ETIMEDOUT, tow_edge_wait(self->receiver, SOON_US, &data, NULL));
	EXPECT_EQ(0, tow_edge_close(self->sender));
	self->sender = NULL;
	EXPECT_EQ(0, tow_edge_close(self->receiver));
	self->receiver = NULL;
	/* Its mapping was the receiver's. */
	EXPECT_EQ(-ENOENT, tow_region_find(self->side.dev, data, &found, &step, NULL));
	EXPECT_EQ(0, tow_region_destroy(region));
	EXPECT_EQ(0, tow_arena_free(self->side.arena, tensor));
}

/* A region that is too small, or none. */
TEST_F(pair, no_region_for_it)
{
	struct tow_tensor_type large = { { TOW_DTYPE_INT, 8, 1 }, 1, { 100000 } };
	struct tow_region *region;
	uint64_t bytes = 0;

	EXPECT_EQ(-EINVAL, tow_static_bytes(&self->type, 0, &bytes));
	EXPECT_EQ(-EINVAL, tow_static_bytes(&self->type, 1, NULL));
	ASSERT_EQ(0, tow_static_bytes(&large, 2, &bytes));
	EXPECT_LT(200000, bytes);
	ASSERT_EQ(0, tow_region_create(self->side.dev, 65536, NULL, &region));
	EXPECT_EQ(-EINVAL, tow_static_receiver_in(self->side.worker, self->side.peer, "none",
						  &large, 2, NULL, &self->receiver));
	EXPECT_EQ(-ERANGE, tow_static_receiver_in(self->side.worker, self->side.peer, "small",
						  &large, 2, region, &self->receiver));
	EXPECT_EQ(NULL, self->receiver);
	EXPECT_EQ(0, tow_region_destroy(region));
}

static void *wait_for_step(void *arg)
{
	struct tow_edge *receiver = arg;
	void *data;

	return tow_edge_wait(receiver, LATE_US, &data, NULL) ? NULL : data;
}

/* Two threads sleep by one worker, each for another edge. */
TEST_F(pair, two_threads_wait)
{
	struct tow_edge *sender = NULL, *receiver = NULL;
	static unsigned char tensor[4000];
	double start = tow_test_now(), end;
	pthread_t threads[2];
	void *data;

	ASSERT_EQ(0, make_edge(&self->side, "one", &self->type, 1, &self->sender,
			       &self->receiver));
	ASSERT_EQ(0, make_edge(&self->side, "other", &self->type, 1, &sender, &receiver));
	for (int round = 0; round < 10; round++) {
		ASSERT_EQ(0, pthread_create(&threads[0], NULL, wait_for_step, self->receiver));
		ASSERT_EQ(0, pthread_create(&threads[1], NULL, wait_for_step, receiver));
		tow_test_sleep_ms(round * 3L);
		/* The one that began to wait first is the last to get something. */
		ASSERT_EQ(0, tow_edge_send(round & 1 ? self->sender : sender, tensor, NULL, NULL));
		pthread_join(threads[!(round & 1)], &data);
		EXPECT_NE(NULL, data);
		ASSERT_EQ(0, tow_edge_send(round & 1 ? sender : self->sender, tensor, NULL, NULL));
		pthread_join(threads[round & 1], &data);
		EXPECT_NE(NULL, data);
		EXPECT_EQ(0, tow_edge_consumed(self->receiver));
		EXPECT_EQ(0, tow_edge_consumed(receiver));
		EXPECT_EQ(0, finish(&self->side, sender));
		EXPECT_EQ(0, finish(&self->side, self->sender));
	}
	end = tow_test_now();
	EXPECT_EQ(0, tow_edge_close(sender));
	EXPECT_EQ(0, tow_edge_close(receiver));
	TOW_WITHIN_AT(start, end, LATE_US / 1e3);
}

#define LARGE_BYTES	(16 * MIB)

struct large {
	struct tow_edge *sender;
	unsigned char *tensor;
	_Atomic int state;		/* 1: it is being sent; 2: it was */
	int ret;
};

static void *send_large(void *arg)
{
	struct large *large = arg;

	large->state = 1;
	large->ret = tow_edge_send(large->sender, large->tensor, NULL, NULL);
	large->state = 2;
	return NULL;
}

/* A tensor that has to be copied first: the worker's other edges can be asked meanwhile. */
TEST_F_TIMEOUT(pair, a_copy_keeps_nobody_out, 60)
{
	struct tow_tensor_type type = FLOATS(1, { LARGE_BYTES / 4 });
	struct large large = { .tensor = calloc(1, LARGE_BYTES) };
	struct tow_edge *receiver = NULL;
	uint64_t step, calls = 0;
	pthread_t thread;
	double begin;

	ASSERT_NE(NULL, large.tensor);
	ASSERT_EQ(0, make_edge(&self->side, "small", &self->type, 1, &self->sender,
			       &self->receiver));
	ASSERT_EQ(0, make_edge(&self->side, "large", &type, 1, &large.sender, &receiver));
	begin = tow_clock_begin();
	ASSERT_EQ(0, pthread_create(&thread, NULL, send_large, &large));
	while (!large.state)
		;
	while (large.state == 1)
		calls += !tow_edge_next(self->sender, &step);
	pthread_join(thread, NULL);
	EXPECT_EQ(0, large.ret);
	EXPECT_EQ(0, finish(&self->side, large.sender));
	EXPECT_EQ(0, tow_edge_close(large.sender));
	EXPECT_EQ(0, tow_edge_close(receiver));
	free(large.tensor);
	TOW_SEEN(calls > 100, begin);
}

/* It would count on from the first one's steps. */
TEST_F(pair, another_sender)
{
	static unsigned char tensor[4000];
	void *data;

	ASSERT_EQ(0, make_edge(&self->side, "again", &self->type, 2, &self->sender,
			       &self->receiver));
	ASSERT_EQ(0, tow_edge_send(self->sender, tensor, NULL, NULL));
	EXPECT_EQ(0, finish(&self->side, self->sender));
	EXPECT_EQ(0, tow_edge_close(self->sender));
	self->sender = NULL;
	ASSERT_EQ(0, tow_static_sender(self->side.worker, self->side.peer, "again", &self->type,
				       &self->sender));
	EXPECT_EQ(-EBUSY, tow_edge_connect(self->sender, LATE_MS));
	EXPECT_EQ(0, tow_edge_wait(self->receiver, LATE_US, &data, NULL));
	/* Nobody is there to be told of that. */
	EXPECT_EQ(0, tow_edge_consumed(self->receiver));
	EXPECT_EQ(-ESTALE, tow_edge_wait(self->receiver, LATE_US, &data, NULL));
}

/* Whichever it is, the other one is told; and no other edge between the two workers. */
TEST_F(pair, an_end_that_is_closed)
{
	struct tow_edge *sender = NULL, *receiver = NULL;
	static unsigned char tensor[4000];
	struct tow_patience patience;
	void *data;
	int ret;

	ASSERT_EQ(0, make_edge(&self->side, "stays", &self->type, 2, &self->sender,
			       &self->receiver));
	ASSERT_EQ(0, make_edge(&self->side, "sender", &self->type, 2, &sender, &receiver));
	ASSERT_EQ(0, tow_edge_send(sender, tensor, NULL, NULL));
	EXPECT_EQ(0, finish(&self->side, sender));
	EXPECT_EQ(0, tow_edge_close(sender));
	/* What had come is there first. */
	EXPECT_EQ(0, tow_edge_wait(receiver, LATE_US, &data, NULL));
	EXPECT_EQ(0, tow_edge_consumed(receiver));
	EXPECT_EQ(-ESTALE, tow_edge_wait(receiver, LATE_US, &data, NULL));
	EXPECT_EQ(0, tow_edge_close(receiver));
	ASSERT_EQ(0, make_edge(&self->side, "receiver", &self->type, 2, &sender, &receiver));
	EXPECT_EQ(0, tow_edge_close(receiver));
	patience = tow_patience(TOW_PEER_SETTLE_SECONDS);
	do {
		ASSERT_LE(0, tow_worker_progress(self->side.worker, SOON_US));
		ret = tow_edge_send(sender, tensor, NULL, NULL);
	} while ((!ret || ret == -EAGAIN) && tow_patient(&patience));
	EXPECT_EQ(-ESTALE, ret);
	EXPECT_EQ(0, tow_edge_close(sender));
	ASSERT_EQ(0, tow_edge_send(self->sender, tensor, NULL, NULL));
	EXPECT_EQ(0, tow_edge_wait(self->receiver, LATE_US, &data, NULL));
	EXPECT_EQ(0, finish(&self->side, self->sender));
}

/* Nobody counts what arrives there: what cannot be found ends the edge as all else does. */
TEST_F(pair, no_slot)
{
	static unsigned char tensor[4000];
	struct tow_exported *range = NULL, *arrived = NULL;
	char *memory = tow_arena_zeroed(self->side.arena, 1, 65536);
	struct tow_region *region;
	uint64_t offset;
	int ret;

	ASSERT_NE(NULL, memory);
	ASSERT_EQ(0, tow_arena_find(self->side.arena, memory, &region, &offset));
	ASSERT_EQ(0, tow_export(region, offset, 65536, "no slot",
				TOW_RIGHT_READ | TOW_RIGHT_WRITE, &range));
	ASSERT_EQ(0, tow_export(region, offset, 64, "no slot/arrived", TOW_RIGHT_READ, &arrived));
	ASSERT_EQ(0, tow_static_sender(self->side.worker, self->side.peer, "no slot", &self->type,
				       &self->sender));
	ret = tow_edge_connect(self->sender, LATE_MS);
	EXPECT_EQ(-EACCES, ret);
	EXPECT_EQ(ret, tow_edge_send(self->sender, tensor, NULL, NULL));
	EXPECT_EQ(0, tow_unexport(arrived));
	EXPECT_EQ(ret, tow_edge_connect(self->sender, LATE_MS));
	EXPECT_EQ(0, tow_unexport(range));
	EXPECT_EQ(0, tow_arena_free(self->side.arena, memory));
}

/* For the next step before the last one's completion was seen to. */
TEST_F(pair, armed_again)
{
	struct pollfd look = { .events = POLLIN };
	static unsigned char tensor[4000];
	struct tow_patience patience = tow_patience(TOW_PEER_SETTLE_SECONDS);
	void *data;

	ASSERT_EQ(0, make_edge(&self->side, "armed", &self->type, 2, &self->sender,
			       &self->receiver));
	look.fd = tow_worker_fd(self->side.worker);
	ASSERT_EQ(0, tow_edge_arm(self->receiver));
	ASSERT_EQ(0, tow_edge_send(self->sender, tensor, NULL, NULL));
	while (!tow_edge_test(self->receiver, &data, NULL) && tow_patient(&patience))
		;
	EXPECT_EQ(0, tow_edge_consumed(self->receiver));
	ASSERT_EQ(0, tow_edge_arm(self->receiver));
	EXPECT_TRUE(goes_quiet(self->side.worker, &look));
	ASSERT_EQ(0, tow_edge_send(self->sender, tensor, NULL, NULL));
	while (!tow_edge_test(self->receiver, &data, NULL)) {
		ASSERT_EQ(1, poll(&look, 1, LATE_MS));
		ASSERT_LE(0, tow_worker_progress(self->side.worker, 0));
	}
}

/* ---- as many as may wait ---- */

#define FEW_ENTRIES	16U
/* At least; and lines beside them, of which there is one here. */
#define MANY_WAIT	32U
#define CROWD_MAX	100U

struct crowd {
	struct tow_worker *worker;
	struct tow_edge *senders[CROWD_MAX + 1], *receivers[CROWD_MAX + 1];
	uint32_t count;
};

/* A sender of @crowd's worker, which has its own, and a receiver of the side's. */
static int make_one(struct side *side, const struct tow_tensor_type *type, struct crowd *crowd)
{
	uint32_t index = crowd->count;
	char name[32];
	int ret;

	snprintf(name, sizeof(name), "crowd/%u", index);
	ret = tow_static_receiver(side->worker, side->peer, name, type, 1,
				  &crowd->receivers[index]);
	if (!ret)
		ret = tow_static_sender(crowd->worker, side->peer, name, type,
					&crowd->senders[index]);
	if (!ret)
		ret = tow_edge_connect(crowd->senders[index], LATE_MS);
	crowd->count += !ret;
	return ret;
}

/* All wait for room; of each that gets some it is known at once, whoever waited first. */
TEST_F_TIMEOUT(pair, as_many_wait_as_may, 120)
{
	struct tow_worker_attr few = { .size = sizeof(few), .entries = FEW_ENTRIES };
	static unsigned char tensor[4000];
	struct crowd crowd = { 0 };
	double begin;
	void *data;
	int ret = 0;

	ASSERT_EQ(0, tow_worker_create(self->side.dev, self->side.arena, &few, &crowd.worker));
	while (!ret && crowd.count < CROWD_MAX) {
		ret = make_one(&self->side, &self->type, &crowd);
		if (!ret)
			ASSERT_EQ(0, tow_edge_connect(crowd.receivers[crowd.count - 1], LATE_MS));
	}
	EXPECT_EQ(-EOVERFLOW, ret);
	ASSERT_LE(MANY_WAIT, crowd.count);
	for (uint32_t i = 0; i < crowd.count; i++) {
		ASSERT_EQ(0, tow_edge_send(crowd.senders[i], tensor, NULL, NULL));
		ASSERT_EQ(0, tow_edge_send(crowd.senders[i], tensor, NULL, NULL));
		while (tow_edge_pending(crowd.senders[i]) > 1)
			ASSERT_LE(0, tow_worker_progress(crowd.worker, LATE_US));
	}
	begin = tow_clock_begin();
	for (uint32_t i = crowd.count; i--;) {
		ASSERT_EQ(0, tow_edge_wait(crowd.receivers[i], LATE_US, &data, NULL));
		ASSERT_EQ(0, tow_edge_consumed(crowd.receivers[i]));
		while (tow_edge_pending(crowd.senders[i]))
			ASSERT_LE(0, tow_worker_progress(crowd.worker, LATE_US));
	}
	/* By the clock each would have taken half a second. */
	TOW_WITHIN(begin, crowd.count * 60.0);
	/* When one has gone, there is room for another one. */
	EXPECT_EQ(0, tow_edge_close(crowd.senders[0]));
	crowd.senders[0] = NULL;
	EXPECT_EQ(0, tow_edge_connect(crowd.senders[crowd.count], LATE_MS));
	for (uint32_t i = 0; i <= crowd.count; i++) {
		EXPECT_EQ(0, tow_edge_close(crowd.senders[i]));
		EXPECT_EQ(0, tow_edge_close(crowd.receivers[i]));
	}
	EXPECT_EQ(0, tow_worker_destroy(crowd.worker));
}

TEST_F(pair, larger_than_anything)
{
	struct tow_tensor_type large = { { TOW_DTYPE_INT, 8, 1 }, 1, { 1LL << 62 } };

	EXPECT_EQ(-EOVERFLOW, tow_static_receiver(self->side.worker, self->side.peer, "large",
						  &large, 4, &self->receiver));
	large.dims[0] = 1LL << 50;
	EXPECT_EQ(-ENOSPC, tow_static_receiver(self->side.worker, self->side.peer, "large",
					       &large, 4, &self->receiver));
	EXPECT_EQ(NULL, self->receiver);
}

/* A child has the parent's edges, and can do nothing with them. */
TEST_F(pair, in_a_child)
{
	static unsigned char tensor[4000];
	int status = -1;
	pid_t child;
	void *data;

	ASSERT_EQ(0, make_edge(&self->side, "child", &self->type, 2, &self->sender,
			       &self->receiver));
	child = fork();
	ASSERT_LE(0, child);
	if (!child)
		_exit(tow_edge_send(self->sender, tensor, NULL, NULL) != -EPERM ||
		      tow_edge_test(self->receiver, &data, NULL) != -EPERM ||
		      tow_edge_wait(self->receiver, LATE_US, &data, NULL) != -EPERM ||
		      tow_edge_close(self->sender) != -EPERM ||
		      tow_worker_progress(self->side.worker, LATE_US) != -EPERM);
	EXPECT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, status);
	ASSERT_EQ(0, tow_edge_send(self->sender, tensor, NULL, NULL));
	EXPECT_EQ(0, tow_edge_wait(self->receiver, LATE_US, &data, NULL));
}

TEST_HARNESS_MAIN

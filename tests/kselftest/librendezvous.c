// SPDX-License-Identifier: GPL-2.0
/*
 * Rendezvous on one node, which is its own peer: request and tensor in both orders, a
 * thousand keys at once, shapes that change now and then, errors, cancellation, ends that go,
 * bytes that are not what was offered.
 */
/* build: link -l:libtowline.a -lm */
#include <sys/mman.h>
#include <sys/prctl.h>

#include "libshim/tensor/rendezvous.h"
#include "tow_libedge.h"

#define POOL		"256m"
#define REQUESTS	64U

FIXTURE(rendezvous)
{
	struct side from, to;
	struct tow_edge *sender, *receiver;
};

static int make_to(const struct side *from, struct side *to, uint64_t limit_bytes)
{
	struct tow_arena_attr attr = { .size = sizeof(attr), .region_bytes = REGION_BYTES,
				       .limit_bytes = limit_bytes };
	int ret;

	*to = *from;
	ret = tow_arena_create(to->dev, &attr, &to->arena);
	return ret ? ret : tow_worker_create(to->dev, to->arena, NULL, &to->worker);
}

FIXTURE_SETUP(rendezvous)
{
	ASSERT_EQ(0, tow_set_file("pool_bytes", POOL));
	ASSERT_EQ(0, tow_set_file("allow_unauthenticated", "1"));
}

FIXTURE_TEARDOWN(rendezvous)
{
	struct tow_arena_stats from = { .size = sizeof(from) }, to = { .size = sizeof(to) };

	unsetenv("TOW_VALIDATE");
	EXPECT_EQ(0, tow_edge_close(self->sender));
	EXPECT_EQ(0, tow_edge_close(self->receiver));
	EXPECT_EQ(0, tow_arena_stats(self->from.arena, &from));
	EXPECT_EQ(0, tow_arena_stats(self->to.arena, &to));
	EXPECT_EQ(0, from.in_use_bytes);
	EXPECT_EQ(0, to.in_use_bytes);
	EXPECT_EQ(0, tow_worker_destroy(self->to.worker));
	EXPECT_EQ(0, tow_arena_destroy(self->to.arena));
	EXPECT_EQ(0, end_side(&self->from));
}

static int connect_both(FIXTURE_DATA(rendezvous) *self, uint32_t requests)
{
	int ret;

	ret = tow_rendezvous_receiver(self->to.worker, self->to.peer, "meet", requests,
				      &self->receiver);
	if (!ret)
		ret = tow_rendezvous_sender(self->from.worker, self->from.peer, "meet", requests,
					    &self->sender);
	if (!ret)
		ret = tow_edge_connect(self->sender, LATE_MS);
	return ret ? ret : tow_edge_connect(self->receiver, LATE_MS);
}

static int make_both(FIXTURE_DATA(rendezvous) *self, uint32_t requests, uint64_t limit_bytes)
{
	int ret;

	ret = make_side(&self->from);
	if (!ret)
		ret = make_to(&self->from, &self->to, limit_bytes);
	return ret ? ret : connect_both(self, requests);
}

/* Both workers, until there is nothing that was offered or asked for; or SETTLE. */
static int settle(FIXTURE_DATA(rendezvous) *self)
{
	struct tow_patience patience = tow_patience(TOW_PEER_SETTLE_SECONDS);

	while ((tow_edge_pending(self->sender) || tow_edge_pending(self->receiver)) &&
	       tow_patient(&patience))
		if (tow_worker_progress(self->from.worker, 1000) < 0 ||
		    tow_worker_progress(self->to.worker, 1000) < 0)
			return -EIO;
	return tow_edge_pending(self->sender) || tow_edge_pending(self->receiver) ? -ETIMEDOUT
										   : 0;
}

/* Turns of both. */
static void turn(FIXTURE_DATA(rendezvous) *self, int turns)
{
	while (turns--) {
		tow_worker_progress(self->from.worker, 2000);
		tow_worker_progress(self->to.worker, 2000);
	}
}

struct got {
	struct tow_arena *arena;
	int count, status, wrong;
	uint64_t step;
	uint64_t bytes;			/* that it is to have; filled in with its step */
	struct tow_tensor_type type;
	void *data;			/* of the last one */
};

static void note_got(void *arg, const struct tow_rendezvous_tensor *tensor)
{
	struct got *got = arg;
	uint64_t bytes = 0;

	got->count++;
	got->step = tensor->step;
	got->type = tensor->type;
	if (tensor->status) {
		got->status = tensor->status;
		got->wrong += tensor->data != NULL;
		return;
	}
	tow_tensor_bytes(&tensor->type, &bytes);
	got->wrong += bytes != got->bytes || !holds(tensor->data, bytes, tensor->step);
	got->wrong += tow_arena_free(got->arena, tensor->data) != 0;
}

static void note_done(void *arg, uint64_t step, int status)
{
	struct sent *sent = arg;

	sent->last = step;
	sent->count++;
	if (status)
		sent->status = status;
}

static struct tow_tensor_type bytes_type(uint64_t bytes)
{
	struct tow_tensor_type type = { { TOW_DTYPE_UINT, 8, 1 }, 1, { (int64_t)bytes } };

	return type;
}

static int put(FIXTURE_DATA(rendezvous) *self, const char *key, uint64_t step, const void *data,
	       uint64_t bytes, struct sent *sent)
{
	struct tow_tensor_type type = bytes_type(bytes);

	return tow_rendezvous_put(self->sender, key, step, &type, data, 0, note_done, sent);
}

TEST_F(rendezvous, arguments)
{
	struct tow_tensor_type type = bytes_type(4);
	struct tow_edge *none = NULL;
	char key[TOW_KEY_MAX + 2];
	struct got got = { 0 };
	void *data;

	memset(key, 'k', sizeof(key) - 1);
	key[sizeof(key) - 1] = '\0';
	ASSERT_EQ(0, make_side(&self->from));
	ASSERT_EQ(0, make_to(&self->from, &self->to, 0));
	EXPECT_EQ(-EINVAL, tow_rendezvous_receiver(self->to.worker, self->to.peer, "none", 0,
						   &none));
	EXPECT_EQ(-EINVAL, tow_rendezvous_sender(self->from.worker, self->from.peer, "many",
						 TOW_REQUESTS_MAX + 1, &none));
	EXPECT_EQ(NULL, none);
	ASSERT_EQ(0, tow_rendezvous_receiver(self->to.worker, self->to.peer, "meet", 4,
					     &self->receiver));
	ASSERT_EQ(0, tow_rendezvous_sender(self->from.worker, self->from.peer, "meet", 4,
					   &self->sender));
	EXPECT_EQ(-ENOTCONN, tow_rendezvous_get(self->receiver, "key", 1, note_got, &got));
	EXPECT_EQ(-ENOTCONN, tow_rendezvous_wait(self->receiver, "key", 1, 0, NULL, &data));
	EXPECT_EQ(-EINVAL, tow_rendezvous_get(self->receiver, "key", 1, NULL, &got));
	EXPECT_EQ(-EINVAL, tow_rendezvous_get(self->receiver, "", 1, note_got, &got));
	EXPECT_EQ(-EINVAL, tow_rendezvous_get(self->receiver, key, 1, note_got, &got));
	EXPECT_EQ(-EINVAL, tow_rendezvous_get(self->sender, "key", 1, note_got, &got));
	EXPECT_EQ(-EINVAL, tow_rendezvous_put(self->receiver, "key", 1, &type, key, 0, NULL, NULL));
	EXPECT_EQ(-EINVAL, tow_rendezvous_put(self->sender, "key", 1, &type, NULL, 0, NULL, NULL));
	EXPECT_EQ(-EINVAL, tow_rendezvous_put(self->sender, "key", 1, &type, key, 2, NULL, NULL));
	EXPECT_EQ(-EINVAL, tow_rendezvous_put(self->sender, key, 1, &type, key, 0, NULL, NULL));
	EXPECT_EQ(-EINVAL, tow_rendezvous_fail(self->sender, "key", 1, 0));
	EXPECT_EQ(-EINVAL, tow_rendezvous_fail(self->receiver, "key", 1, -EIO));
	EXPECT_EQ(-ENOENT, tow_rendezvous_cancel(self->receiver, "key", 1));
	EXPECT_EQ(-EINVAL, tow_edge_test(self->receiver, &data, NULL));
	EXPECT_EQ(-EINVAL, tow_edge_arm(self->receiver));
	EXPECT_EQ(-EINVAL, tow_edge_consumed(self->receiver));
	/* The longest. */
	key[TOW_KEY_MAX] = '\0';
	EXPECT_EQ(0, tow_rendezvous_put(self->sender, key, 1, &type, key, 0, NULL, NULL));
	EXPECT_EQ(-EEXIST, tow_rendezvous_put(self->sender, key, 1, &type, key, 0, NULL, NULL));
	ASSERT_EQ(0, tow_edge_connect(self->sender, LATE_MS));
	ASSERT_EQ(0, tow_edge_connect(self->receiver, LATE_MS));
	ASSERT_EQ(0, tow_rendezvous_get(self->receiver, key, 1, note_got, &got));
	EXPECT_EQ(-EEXIST, tow_rendezvous_get(self->receiver, key, 1, note_got, &got));
	got.arena = self->to.arena;
	got.bytes = 4;
	EXPECT_EQ(0, settle(self));
	EXPECT_EQ(1, got.count);
	EXPECT_EQ(0, got.status);
}

/* Whoever comes first; the same key each step, whose shape changes every fifth. */
TEST_F_TIMEOUT(rendezvous, both_orders, 120)
{
	enum { STEPS = 60 };
	long long copied;
	struct got got = { 0 };
	struct sent sent = { 0 };
	unsigned char *tensor;

	ASSERT_EQ(0, make_both(self, REQUESTS, 0));
	copied = tow_get_count("stats/copied_bytes");
	got.arena = self->to.arena;
	tensor = tow_arena_alloc(self->from.arena, 20000);
	ASSERT_NE(NULL, tensor);
	for (uint64_t step = 1; step <= STEPS; step++) {
		got.bytes = step / 5 * 1000;
		fill(tensor, got.bytes, step);
		if (step & 1) {
			ASSERT_EQ(0, put(self, "weights", step, tensor, got.bytes, &sent));
			turn(self, 1);
		}
		ASSERT_EQ(0, tow_rendezvous_get(self->receiver, "weights", step, note_got, &got));
		if (!(step & 1)) {
			turn(self, 1);
			EXPECT_EQ((int)step - 1, got.count);
			ASSERT_EQ(0, put(self, "weights", step, tensor, got.bytes, &sent));
		}
		ASSERT_EQ(0, settle(self));
		EXPECT_EQ((int)step, got.count);
		EXPECT_EQ((int)step, sent.count);
		EXPECT_EQ(step, got.step);
	}
	EXPECT_EQ(0, got.wrong);
	EXPECT_EQ(0, got.status);
	EXPECT_EQ(0, sent.status);
	EXPECT_EQ(0, tow_worker_copied(self->from.worker));
	EXPECT_EQ(copied, tow_get_count("stats/copied_bytes"));
	EXPECT_EQ(0, tow_arena_free(self->from.arena, tensor));
}

/* More keys than there are requests at once, in another order than they were asked for. */
TEST_F_TIMEOUT(rendezvous, a_thousand_keys, 240)
{
	enum { KEYS = 1000, BYTES = 3000, ROUNDS = 3 };
	struct got got = { 0 };
	struct sent sent = { 0 };
	unsigned char *tensor[ROUNDS];
	char key[32];

	ASSERT_EQ(0, make_both(self, REQUESTS, 0));
	got.arena = self->to.arena;
	got.bytes = BYTES;
	for (uint64_t step = 0; step < ROUNDS; step++) {
		tensor[step] = tow_arena_alloc(self->from.arena, BYTES);
		ASSERT_NE(NULL, tensor[step]);
		fill(tensor[step], BYTES, step);
		for (int i = 0; i < KEYS; i++) {
			snprintf(key, sizeof(key), "key/%d", i);
			ASSERT_EQ(0, tow_rendezvous_get(self->receiver, key, step, note_got, &got));
		}
		for (int i = 0; i < KEYS; i++) {
			snprintf(key, sizeof(key), "key/%d", (i * 7 + 3) % KEYS);
			ASSERT_EQ(0, put(self, key, step, tensor[step], BYTES, &sent));
		}
		EXPECT_EQ(KEYS, tow_edge_pending(self->receiver));
		while (tow_edge_pending(self->sender) || tow_edge_pending(self->receiver))
			turn(self, 1);
		EXPECT_EQ(KEYS * (int)(step + 1), got.count);
		EXPECT_EQ(KEYS * (int)(step + 1), sent.count);
	}
	EXPECT_EQ(0, got.wrong);
	EXPECT_EQ(0, got.status);
	EXPECT_EQ(0, sent.status);
	for (int i = 0; i < ROUNDS; i++)
		EXPECT_EQ(0, tow_arena_free(self->from.arena, tensor[i]));
}

/*
 * More than the sender's queue has room for: no reply comes before its tensor.  Of a ring of
 * 32 completions one is a WAIT's, so that half a pair is left over.
 */
TEST_F_TIMEOUT(rendezvous, a_full_queue, 120)
{
	enum { KEYS = 48, ROUNDS = 8 };
	const size_t bytes = 65536;
	struct tow_worker_attr attr = { .size = sizeof(attr), .entries = 16 };
	struct got got = { 0 };
	struct sent sent = { 0 };
	unsigned char *tensors[KEYS];
	char key[32];

	ASSERT_EQ(0, make_side(&self->from));
	ASSERT_EQ(0, tow_worker_destroy(self->from.worker));
	ASSERT_EQ(0, tow_worker_create(self->from.dev, self->from.arena, &attr,
				       &self->from.worker));
	ASSERT_EQ(0, make_to(&self->from, &self->to, 0));
	ASSERT_EQ(0, tow_rendezvous_receiver(self->to.worker, self->to.peer, "meet", KEYS,
					     &self->receiver));
	ASSERT_EQ(0, tow_rendezvous_sender(self->from.worker, self->from.peer, "meet", KEYS,
					   &self->sender));
	ASSERT_EQ(0, tow_edge_connect(self->sender, LATE_MS));
	ASSERT_EQ(0, tow_edge_connect(self->receiver, LATE_MS));
	got.arena = self->to.arena;
	got.bytes = bytes;
	for (int i = 0; i < KEYS; i++) {
		tensors[i] = tow_arena_alloc(self->from.arena, bytes);
		ASSERT_NE(NULL, tensors[i]);
	}
	for (uint64_t step = 0; step < ROUNDS; step++) {
		for (int i = 0; i < KEYS; i++) {
			snprintf(key, sizeof(key), "%d", i);
			fill(tensors[i], bytes, step);
			ASSERT_EQ(0, tow_rendezvous_get(self->receiver, key, step, note_got, &got));
			ASSERT_EQ(0, put(self, key, step, tensors[i], bytes, &sent));
		}
		while (tow_edge_pending(self->sender) || tow_edge_pending(self->receiver))
			turn(self, 1);
	}
	EXPECT_EQ(KEYS * ROUNDS, got.count);
	EXPECT_EQ(0, got.wrong);
	EXPECT_EQ(0, got.status);
	EXPECT_EQ(0, sent.status);
	for (int i = 0; i < KEYS; i++)
		EXPECT_EQ(0, tow_arena_free(self->from.arena, tensors[i]));
}

/* One that is late holds up no other one. */
TEST_F_TIMEOUT(rendezvous, one_is_late, 60)
{
	enum { OTHERS = 50 };
	struct got late = { 0 }, got = { 0 };
	unsigned char tensor[100];
	struct sent sent = { 0 };

	ASSERT_EQ(0, make_both(self, 2, 0));
	late.arena = self->to.arena;
	late.bytes = sizeof(tensor);
	got = late;
	ASSERT_EQ(0, tow_rendezvous_get(self->receiver, "late", 7, note_got, &late));
	for (uint64_t step = 0; step < OTHERS; step++) {
		fill(tensor, sizeof(tensor), step);
		ASSERT_EQ(0, tow_rendezvous_get(self->receiver, "other", step, note_got, &got));
		ASSERT_EQ(0, put(self, "other", step, tensor, sizeof(tensor), &sent));
		while (tow_edge_pending(self->receiver) > 1)
			turn(self, 1);
	}
	EXPECT_EQ(0, late.count);
	fill(tensor, sizeof(tensor), 7);
	ASSERT_EQ(0, put(self, "late", 7, tensor, sizeof(tensor), &sent));
	EXPECT_EQ(0, settle(self));
	EXPECT_EQ(1, late.count);
	EXPECT_EQ(OTHERS, got.count);
	EXPECT_EQ(0, got.wrong + late.wrong);
	EXPECT_EQ(0, got.status);
	/* Ordinary memory, which was copied. */
	EXPECT_EQ((OTHERS + 1) * sizeof(tensor), tow_worker_copied(self->from.worker));
}

/* A copy is offered: the tensor may change at once. */
TEST_F(rendezvous, cloned)
{
	struct tow_tensor_type type = bytes_type(5000);
	long long copied = tow_get_count("stats/copied_bytes");
	struct got got = { 0 };
	unsigned char *tensor;

	ASSERT_EQ(0, make_both(self, REQUESTS, 0));
	got.arena = self->to.arena;
	got.bytes = 5000;
	tensor = tow_arena_alloc(self->from.arena, 5000);
	ASSERT_NE(NULL, tensor);
	fill(tensor, 5000, 3);
	ASSERT_EQ(0, tow_rendezvous_put(self->sender, "clone", 3, &type, tensor, TOW_PUT_CLONE,
					NULL, NULL));
	memset(tensor, 0, 5000);
	EXPECT_EQ(0, tow_arena_free(self->from.arena, tensor));
	ASSERT_EQ(0, tow_rendezvous_get(self->receiver, "clone", 3, note_got, &got));
	EXPECT_EQ(0, settle(self));
	EXPECT_EQ(1, got.count);
	EXPECT_EQ(0, got.wrong);
	EXPECT_EQ(5000, tow_worker_copied(self->from.worker));
	EXPECT_EQ(copied + 5000, tow_get_count("stats/copied_bytes"));
}

TEST_F(rendezvous, errors_travel)
{
	struct got got = { 0 };

	ASSERT_EQ(0, make_both(self, REQUESTS, 0));
	ASSERT_EQ(0, tow_rendezvous_get(self->receiver, "bad", 1, note_got, &got));
	turn(self, 2);
	EXPECT_EQ(0, got.count);
	ASSERT_EQ(0, tow_rendezvous_fail(self->sender, "bad", 1, -EDOM));
	ASSERT_EQ(0, tow_rendezvous_fail(self->sender, "bad", 2, -EDOM));
	EXPECT_EQ(-EEXIST, tow_rendezvous_fail(self->sender, "bad", 2, -EIO));
	ASSERT_EQ(0, tow_rendezvous_get(self->receiver, "bad", 2, note_got, &got));
	EXPECT_EQ(0, settle(self));
	EXPECT_EQ(2, got.count);
	EXPECT_EQ(-EDOM, got.status);
	EXPECT_EQ(0, got.wrong);
}

TEST_F(rendezvous, cancelled)
{
	struct got got = { 0 };
	struct sent sent = { 0 };
	unsigned char tensor[100];
	void *data;

	ASSERT_EQ(0, make_both(self, 2, 0));
	got.arena = self->to.arena;
	got.bytes = sizeof(tensor);
	/* Two are on their way, the third waits here. */
	for (uint64_t step = 1; step <= 3; step++)
		ASSERT_EQ(0, tow_rendezvous_get(self->receiver, "never", step, note_got, &got));
	turn(self, 2);
	ASSERT_EQ(0, tow_rendezvous_cancel(self->receiver, "never", 3));
	turn(self, 1);
	EXPECT_EQ(1, got.count);
	EXPECT_EQ(-ENOENT, tow_rendezvous_cancel(self->receiver, "never", 3));
	for (uint64_t step = 1; step <= 2; step++)
		ASSERT_EQ(0, tow_rendezvous_cancel(self->receiver, "never", step));
	EXPECT_EQ(0, settle(self));
	EXPECT_EQ(3, got.count);
	EXPECT_EQ(-ECANCELED, got.status);
	EXPECT_EQ(-ETIMEDOUT, tow_rendezvous_wait(self->receiver, "never", 4, SOON_US, NULL,
						  &data));
	EXPECT_EQ(0, settle(self));
	/* It goes on. */
	for (uint64_t step = 5; step <= 20; step++) {
		fill(tensor, sizeof(tensor), step);
		ASSERT_EQ(0, put(self, "ever", step, tensor, sizeof(tensor), &sent));
		ASSERT_EQ(0, tow_rendezvous_get(self->receiver, "ever", step, note_got, &got));
		/* Too late, or not. */
		if (step & 1)
			tow_rendezvous_cancel(self->receiver, "ever", step);
		turn(self, 4);
	}
	while (tow_edge_pending(self->receiver))
		turn(self, 1);
	EXPECT_EQ(19, got.count);
	EXPECT_EQ(0, got.wrong);
}

/* Nobody waits for ever, also for a sender that does nothing at all; later it goes on. */
TEST_F_TIMEOUT(rendezvous, late, 60)
{
	struct tow_worker_attr attr = { .size = sizeof(attr), .timeout_ms = 5000 };
	struct tow_patience patience = tow_patience(40);
	double start;
	struct sent sent = { 0 };
	struct got got = { 0 };
	unsigned char tensor[100];

	ASSERT_EQ(0, make_side(&self->from));
	ASSERT_EQ(0, make_to(&self->from, &self->to, 0));
	ASSERT_EQ(0, tow_worker_destroy(self->to.worker));
	self->to.worker = NULL;
	ASSERT_EQ(0, tow_worker_create(self->to.dev, self->to.arena, &attr, &self->to.worker));
	ASSERT_EQ(0, connect_both(self, 2));
	got.arena = self->to.arena;
	got.bytes = sizeof(tensor);
	start = tow_test_now();
	/* Two are on their way, the third waits here. */
	for (uint64_t step = 1; step <= 3; step++)
		ASSERT_EQ(0, tow_rendezvous_get(self->receiver, "late", step, note_got, &got));
	while (got.count < 3 && tow_patient(&patience))
		ASSERT_LE(0, tow_worker_progress(self->to.worker, SOON_US));
	EXPECT_EQ(3, got.count);
	EXPECT_EQ(-ETIMEDOUT, got.status);
	EXPECT_LT(5.0, tow_test_now() - start);
	EXPECT_EQ(-EEXIST, tow_rendezvous_get(self->receiver, "late", 1, note_got, &got));
	EXPECT_EQ(0, settle(self));
	EXPECT_EQ(3, got.count);
	/* One whose memory has gone with the request, too. */
	for (uint64_t step = 1; step <= 5; step++) {
		fill(tensor, sizeof(tensor), step);
		got.status = 0;
		ASSERT_EQ(0, tow_rendezvous_get(self->receiver, "late", step, note_got, &got));
		if (step == 3)
			while (got.count < 6 && tow_patient(&patience))
				ASSERT_LE(0, tow_worker_progress(self->to.worker, SOON_US));
		ASSERT_EQ(0, put(self, "late", step, tensor, sizeof(tensor), &sent));
		while (tow_edge_pending(self->receiver) && tow_patient(&patience))
			turn(self, 1);
		EXPECT_EQ(step == 3 ? -ETIMEDOUT : 0, got.status);
	}
	EXPECT_EQ(8, got.count);
	EXPECT_EQ(0, got.wrong);
}

/* The same key and step again, asked for before the last one has ended over there. */
TEST_F(rendezvous, the_same_again)
{
	struct got got = { 0 };
	struct sent sent = { 0 };
	unsigned char tensor[100];

	ASSERT_EQ(0, make_both(self, REQUESTS, 0));
	got.arena = self->to.arena;
	got.bytes = sizeof(tensor);
	fill(tensor, sizeof(tensor), 1);
	for (int i = 1; i <= 20; i++) {
		ASSERT_EQ(0, tow_rendezvous_get(self->receiver, "same", 1, note_got, &got));
		while (put(self, "same", 1, tensor, sizeof(tensor), &sent) == -EEXIST)
			tow_worker_progress(self->from.worker, 1000);
		while (got.count < i) {
			tow_worker_progress(self->from.worker, 1000);
			tow_worker_progress(self->to.worker, 1000);
		}
	}
	EXPECT_EQ(0, settle(self));
	EXPECT_EQ(20, got.count);
	EXPECT_EQ(20, sent.count);
	EXPECT_EQ(0, got.status);
	EXPECT_EQ(0, got.wrong);
}

TEST_F_TIMEOUT(rendezvous, large, 120)
{
	const size_t bytes = 64 * MIB;
	struct sent sent = { 0 };
	struct tow_tensor_type type;
	unsigned char *tensor;
	void *data;

	ASSERT_EQ(0, make_both(self, REQUESTS, 0));
	tensor = tow_arena_alloc(self->from.arena, bytes);
	ASSERT_NE(NULL, tensor);
	fill(tensor, bytes, 1);
	ASSERT_EQ(0, put(self, "large", 1, tensor, bytes, &sent));
	/* Its sender is asked by nobody else. */
	ASSERT_EQ(-ETIMEDOUT, tow_rendezvous_wait(self->receiver, "large", 1, SOON_US, &type,
						  &data));
	while (tow_edge_pending(self->receiver))
		turn(self, 1);
	if (tow_edge_pending(self->sender)) {
		struct got got = { .arena = self->to.arena, .bytes = bytes };

		ASSERT_EQ(0, tow_rendezvous_get(self->receiver, "large", 1, note_got, &got));
		while (tow_edge_pending(self->receiver) || tow_edge_pending(self->sender))
			turn(self, 1);
		EXPECT_EQ(1, got.count);
		EXPECT_EQ(0, got.wrong);
	}
	EXPECT_EQ(1, sent.count);
	EXPECT_EQ(0, sent.status);
	EXPECT_EQ(0, tow_arena_free(self->from.arena, tensor));
}

/* There is no memory for what has come. */
TEST_F(rendezvous, no_memory_for_it)
{
	struct got got = { 0 };
	struct sent sent = { 0 };
	unsigned char *tensor;

	ASSERT_EQ(0, make_both(self, 4, REGION_BYTES));
	tensor = tow_arena_alloc(self->from.arena, 2 * REGION_BYTES);
	ASSERT_NE(NULL, tensor);
	ASSERT_EQ(0, put(self, "much", 1, tensor, 2 * REGION_BYTES, &sent));
	ASSERT_EQ(0, tow_rendezvous_get(self->receiver, "much", 1, note_got, &got));
	while (tow_edge_pending(self->receiver))
		turn(self, 1);
	EXPECT_EQ(1, got.count);
	EXPECT_EQ(-EDQUOT, got.status);
	EXPECT_EQ(0, sent.count);
	/* It is offered still, and the edge goes on. */
	got = (struct got){ .arena = self->to.arena, .bytes = 1000 };
	fill(tensor, 1000, 2);
	ASSERT_EQ(0, put(self, "little", 2, tensor, 1000, &sent));
	ASSERT_EQ(0, tow_rendezvous_get(self->receiver, "little", 2, note_got, &got));
	while (tow_edge_pending(self->receiver) || !sent.count)
		turn(self, 1);
	EXPECT_EQ(1, got.count);
	EXPECT_EQ(0, got.wrong);
	EXPECT_EQ(0, tow_edge_close(self->sender));
	self->sender = NULL;
	EXPECT_EQ(2, sent.count);
	EXPECT_EQ(-ECANCELED, sent.status);
	EXPECT_EQ(0, tow_arena_free(self->from.arena, tensor));
}

TEST_F(rendezvous, another_byte)
{
	struct got got = { 0 };
	struct sent sent = { 0 };
	unsigned char *tensor;

	ASSERT_EQ(0, setenv("TOW_VALIDATE", "1", 1));
	ASSERT_EQ(0, make_both(self, REQUESTS, 0));
	got.arena = self->to.arena;
	got.bytes = 5000;
	tensor = tow_arena_alloc(self->from.arena, 5000);
	ASSERT_NE(NULL, tensor);
	for (uint64_t step = 1; step <= 3; step++) {
		fill(tensor, 5000, step);
		ASSERT_EQ(0, put(self, "flipped", step, tensor, 5000, &sent));
		if (step == 2)
			tensor[1234] ^= 0x10;
		ASSERT_EQ(0, tow_rendezvous_get(self->receiver, "flipped", step, note_got, &got));
		EXPECT_EQ(0, settle(self));
		EXPECT_EQ(step == 1 ? 0 : -EBADMSG, got.status);
	}
	EXPECT_EQ(3, got.count);
	EXPECT_EQ(0, got.wrong);
	EXPECT_EQ(0, tow_arena_free(self->from.arena, tensor));
}

/* What was asked for and not offered, and the reverse, is told of. */
TEST_F(rendezvous, closed)
{
	struct got got = { 0 };
	struct sent sent = { 0 };
	unsigned char tensor[100] = { 0 };

	ASSERT_EQ(0, make_both(self, 2, 0));
	for (uint64_t step = 1; step <= 5; step++) {
		ASSERT_EQ(0, tow_rendezvous_get(self->receiver, "asked", step, note_got, &got));
		ASSERT_EQ(0, put(self, "offered", step, tensor, sizeof(tensor), &sent));
	}
	turn(self, 2);
	EXPECT_EQ(0, tow_edge_close(self->receiver));
	self->receiver = NULL;
	EXPECT_EQ(5, got.count);
	EXPECT_EQ(-ECANCELED, got.status);
	EXPECT_EQ(0, tow_edge_close(self->sender));
	self->sender = NULL;
	EXPECT_EQ(5, sent.count);
	EXPECT_GT(0, sent.status);
}

/* ---- a sender that is played here ----------------------------------------------- */

#define PLAYED_BYTES	65536U
#define PLAYED_REQUESTS	4U
#define PLAYED_TENSOR	1000U

struct played {
	struct tow_region *region;
	char *memory;
	struct tow_queue *queue;
	struct tow_channel *channel;
	struct tow_peer *peer;
	struct tow_remote *range, *data, *window;
	struct tow_mailbox *box;
	struct tow_line *line;
	struct towi_header header;	/* the receiver's */
};

static int make_played(struct played *played, const struct side *side)
{
	void *memory;
	int ret;

	played->peer = side->peer;
	ret = tow_region_create(side->dev, PLAYED_BYTES, NULL, &played->region);
	if (!ret)
		ret = tow_region_map(played->region, 0, PLAYED_BYTES, PROT_READ | PROT_WRITE,
				     &memory);
	if (ret)
		return ret;
	played->memory = memory;
	ret = tow_queue_create(side->dev, 4, 0, &played->queue);
	if (!ret)
		ret = tow_channel_get(played->queue, side->peer, 0, &played->channel);
	if (!ret)
		ret = tow_resolve(side->peer, "meet", TOW_RIGHT_READ | TOW_RIGHT_WRITE, LATE_MS,
				  &played->range);
	if (!ret)
		ret = tow_resolve(side->peer, "meet/data", TOW_RIGHT_NOTIFY, LATE_MS,
				  &played->data);
	return ret ? ret : tow_mailbox_create(side->worker, NULL, NULL, &played->box);
}

static void end_played(struct played *played)
{
	tow_mailbox_close(played->line);
	tow_mailbox_destroy(played->box);
	tow_remote_release(played->range);
	tow_remote_release(played->data);
	tow_remote_release(played->window);
	tow_queue_destroy(played->queue);
	if (played->memory)
		tow_region_unmap(played->region, played->memory, PLAYED_BYTES);
	tow_region_destroy(played->region);
}

static int carry_out(struct played *played)
{
	const struct tow_cqe *cqe;
	int ret = tow_queue_submit_and_wait(played->queue, 1);

	if (ret < 0)
		return ret;
	ret = tow_queue_peek_cqe(played->queue, &cqe);
	if (ret)
		return ret;
	ret = cqe->status;
	tow_queue_cqe_seen(played->queue);
	return ret;
}

/* A message to the receiver's port. */
static int say(struct played *played, enum towi_tag tag, const void *data, uint32_t bytes)
{
	const struct towi_record record = {
		.kind = TOWI_MESSAGE, .tag = (uint8_t)tag, .port = played->header.port,
		.generation = played->header.generation,
	};
	struct towi_pump *pump = played->line->runner.pump;
	int ret;

	towi_pump_lock(pump);
	ret = towi_line_send(played->line, &record, data, bytes);
	towi_pump_unlock(pump);
	return ret;
}

/* To the receiver's worker. */
static int begin_line(struct played *played)
{
	char name[TOW_MAILBOX_NAME_MAX + 1];
	int ret;

	snprintf(name, sizeof(name), "tow/box/%016llx", (unsigned long long)played->header.box);
	ret = tow_mailbox_connect(played->box, played->peer, name, LATE_MS, &played->line);
	if (!ret)
		ret = tow_mailbox_wait(played->box, played->line, TOW_MAILBOX_ROOM, LATE_US);
	return ret < 0 ? ret : 0;
}

/*
 * What the receiver says that it is, with this one's line, is what this one is.  It has no port: what
 * it is sent is for the program.
 */
static int greet(struct played *played)
{
	struct towi_header *header = (void *)played->memory;
	int ret;

	tow_prep_read(tow_queue_get_sqe(played->queue), played->channel, played->region, 0,
		      played->range, TOWI_HEADER_AT, sizeof(*header));
	ret = carry_out(played);
	if (ret)
		return ret;
	played->header = *header;
	ret = begin_line(played);
	if (ret)
		return ret;
	header->box = played->line->box->number;
	header->line = played->line->index;
	header->port = 0;
	tow_prep_write_notify(tow_queue_get_sqe(played->queue), played->channel, played->region, 0,
			      played->range, TOWI_HELLO_AT, sizeof(*header), played->data);
	return carry_out(played);
}

/* The next request: 0 or a negative errno. */
static int take_request(struct played *played, struct tow_worker *asks,
			struct towi_request *request)
{
	struct tow_patience patience = tow_patience(TOW_PEER_SETTLE_SECONDS);
	uint32_t bytes;
	int ret;

	memset(request, 0, sizeof(*request));
	while (!(ret = tow_mailbox_receive(played->line, request, sizeof(*request), &bytes)) &&
	       tow_patient(&patience)) {
		tow_worker_progress(asks, 2000);
		tow_worker_progress(played->box->worker, 2000);
	}
	return ret == 1 ? 0 : ret ? ret : -ETIMEDOUT;
}

static int reply(struct played *played, const struct towi_request *request, uint64_t number,
		 uint32_t flags)
{
	const struct towi_reply reply = { .number = number, .tag = request->tag, .flags = flags,
					  .type = bytes_type(PLAYED_TENSOR) };

	return say(played, TOWI_TAG_REPLY, &reply, sizeof(reply));
}

/* The tensor, to where it is wanted; and that is counted, or not. */
static int write_tensor(struct played *played, const struct towi_request *request, bool counts)
{
	char name[64];
	int ret = 0;

	snprintf(name, sizeof(name), "tow/%016llx/%llu/w",
		 (unsigned long long)request->target.edge,
		 (unsigned long long)request->target.window);
	if (!played->window)
		ret = tow_resolve(played->peer, name, TOW_RIGHT_WRITE, LATE_MS, &played->window);
	if (ret)
		return ret;
	fill((unsigned char *)played->memory, PLAYED_TENSOR, 7);
	if (counts)
		tow_prep_write_notify(tow_queue_get_sqe(played->queue), played->channel,
				      played->region, 0, played->window, request->target.offset,
				      PLAYED_TENSOR, played->data);
	else
		tow_prep_write(tow_queue_get_sqe(played->queue), played->channel, played->region, 0,
			       played->window, request->target.offset, PLAYED_TENSOR);
	return carry_out(played);
}

/* What is in memory is no tensor before it was counted, whatever was said of it. */
TEST_F_TIMEOUT(rendezvous, not_counted, 60)
{
	struct tow_patience patience = tow_patience(TOW_PEER_SETTLE_SECONDS);
	struct played played = { 0 };
	struct towi_request request;
	struct got got = { 0 };

	ASSERT_EQ(0, make_side(&self->from));
	ASSERT_EQ(0, make_to(&self->from, &self->to, 0));
	got.arena = self->to.arena;
	got.bytes = PLAYED_TENSOR;
	ASSERT_EQ(0, tow_rendezvous_receiver(self->to.worker, self->to.peer, "meet",
					     PLAYED_REQUESTS, &self->receiver));
	ASSERT_EQ(0, make_played(&played, &self->from));
	ASSERT_EQ(0, greet(&played));
	ASSERT_EQ(0, tow_edge_connect(self->receiver, LATE_MS));
	ASSERT_EQ(0, tow_rendezvous_get(self->receiver, "key", 7, note_got, &got));
	ASSERT_EQ(0, take_request(&played, self->to.worker, &request));
	EXPECT_STREQ("key", request.name.key);
	EXPECT_EQ(0, request.flags);
	ASSERT_EQ(0, reply(&played, &request, 0, TOWI_REPLY_TYPE));
	ASSERT_EQ(0, take_request(&played, self->to.worker, &request));
	EXPECT_EQ(TOWI_REQUEST_TARGET, request.flags);
	ASSERT_EQ(0, reply(&played, &request, TOWI_HELLO + 1, 0));
	ASSERT_EQ(0, write_tensor(&played, &request, false));
	for (int i = 0; i < 5; i++)
		turn(self, 1);
	EXPECT_EQ(0, got.count);
	ASSERT_EQ(0, write_tensor(&played, &request, true));
	while (!got.count && tow_patient(&patience))
		turn(self, 1);
	EXPECT_EQ(1, got.count);
	EXPECT_EQ(0, got.status);
	EXPECT_EQ(0, got.wrong);
	/* One that never is has not come when the sender goes. */
	ASSERT_EQ(0, tow_rendezvous_get(self->receiver, "key", 8, note_got, &got));
	ASSERT_EQ(0, take_request(&played, self->to.worker, &request));
	ASSERT_EQ(0, write_tensor(&played, &request, false));
	ASSERT_EQ(0, reply(&played, &request, TOWI_HELLO + 2, 0));
	turn(self, 2);
	EXPECT_EQ(1, got.count);
	end_played(&played);
	while (got.count < 2 && tow_patient(&patience))
		turn(self, 1);
	EXPECT_EQ(2, got.count);
	EXPECT_EQ(-ESTALE, got.status);
	EXPECT_EQ(0, got.wrong);
}

/* An end in a process of its own. */
static void be_end(bool sends, int says)
{
	FIXTURE_DATA(rendezvous) own = { 0 };
	struct side *side = sends ? &own.from : &own.to;
	unsigned char tensor[100] = { 0 };
	struct tow_edge **edge = sends ? &own.sender : &own.receiver;
	struct sent sent = { 0 };
	int ret;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (make_side(side))
		_exit(1);
	ret = sends ? tow_rendezvous_sender(side->worker, side->peer, "process", 4, edge) :
		      tow_rendezvous_receiver(side->worker, side->peer, "process", 4, edge);
	if (ret || tow_edge_connect(*edge, LATE_MS))
		_exit(2);
	if (sends && put(&own, "first", 1, tensor, sizeof(tensor), &sent))
		_exit(3);
	if (write(says, "!", 1) != 1)
		_exit(4);
	for (;;)
		tow_worker_progress(side->worker, LATE_US);
}

TEST_F_TIMEOUT(rendezvous, the_sender_dies, 60)
{
	pid_t child;
	int says = -1;
	void *data = NULL;

	child = begin_end(be_end, true, &says);
	ASSERT_LT(0, child);
	ASSERT_EQ(0, make_side(&self->from));
	ASSERT_EQ(0, make_to(&self->from, &self->to, 0));
	ASSERT_EQ(0, tow_rendezvous_receiver(self->to.worker, self->to.peer, "process", 4,
					     &self->receiver));
	ASSERT_EQ(0, tow_edge_connect(self->receiver, LATE_MS));
	EXPECT_EQ(0, tow_rendezvous_wait(self->receiver, "first", 1, LATE_US, NULL, &data));
	EXPECT_EQ(0, tow_arena_free(self->to.arena, data));
	EXPECT_TRUE(end_end(child, says));
	EXPECT_EQ(-ESTALE, tow_rendezvous_wait(self->receiver, "second", 1, LATE_US, NULL, &data));
	EXPECT_EQ(-ESTALE, tow_rendezvous_wait(self->receiver, "third", 1, LATE_US, NULL, &data));
}

TEST_F_TIMEOUT(rendezvous, the_receiver_dies, 60)
{
	unsigned char tensor[100] = { 0 };
	struct sent sent = { 0 };
	int says = -1;
	pid_t child;

	child = begin_end(be_end, false, &says);
	ASSERT_LT(0, child);
	ASSERT_EQ(0, make_side(&self->from));
	ASSERT_EQ(0, make_to(&self->from, &self->to, 0));
	ASSERT_EQ(0, tow_rendezvous_sender(self->from.worker, self->from.peer, "process", 4,
					   &self->sender));
	ASSERT_EQ(0, tow_edge_connect(self->sender, LATE_MS));
	ASSERT_EQ(0, put(self, "unasked", 1, tensor, sizeof(tensor), &sent));
	EXPECT_TRUE(end_end(child, says));
	EXPECT_EQ(0, finish(&self->from, self->sender));
	EXPECT_EQ(1, sent.count);
	EXPECT_EQ(-ESTALE, sent.status);
	EXPECT_EQ(-ESTALE, put(self, "later", 1, tensor, sizeof(tensor), &sent));
}

TEST_HARNESS_MAIN

// SPDX-License-Identifier: GPL-2.0
/*
 * The device goes while edges of all kinds have much under way: everybody is told, once, and
 * closing them waits for nothing.
 */
/* build: link -ltowline */
#include "tow_hotplug.h"
#include "tow_libedge.h"

#define STEPS		40
#define BYTES		65536
#define KINDS		3
/* The last of them has nothing under way. */
#define EDGES		(KINDS + 1)
#define SECONDS_MAX	15.0

FIXTURE(end)
{
	char name[256], interface[64];
	struct side side;
	struct tow_edge *sender[EDGES], *receiver[EDGES];
	struct sent sent[KINDS], got;
};

FIXTURE_SETUP(end)
{
	snprintf(self->name, sizeof(self->name), "%s", tow_test_device());
	snprintf(self->interface, sizeof(self->interface), "%s", tow_link_interface());
	ASSERT_EQ(0, tow_set_file("pool_bytes", "64m"));
	ASSERT_EQ(0, tow_set_file("allow_unauthenticated", "1"));
	ASSERT_EQ(0, make_side(&self->side));
}

FIXTURE_TEARDOWN_PARENT(end)
{
	EXPECT_TRUE(tow_link_restore(self->name, self->interface))
		TH_LOG("%s does not come back", self->name);
}

static const struct tow_tensor_type type = { { TOW_DTYPE_UINT, 8, 1 }, 1, { BYTES } };

static int make_edges(FIXTURE_DATA(end) *self)
{
	struct tow_worker *worker = self->side.worker;
	struct tow_peer *peer = self->side.peer;
	int ret;

	ret = tow_static_receiver(worker, peer, "static", &type, 2, &self->receiver[0]) ?:
	      tow_static_sender(worker, peer, "static", &type, &self->sender[0]) ?:
	      tow_dynamic_receiver(worker, peer, "dynamic", 2, &self->receiver[1]) ?:
	      tow_dynamic_sender(worker, peer, "dynamic", &self->sender[1]) ?:
	      tow_rendezvous_receiver(worker, peer, "meet", 8, &self->receiver[2]) ?:
	      tow_rendezvous_sender(worker, peer, "meet", 8, &self->sender[2]) ?:
	      tow_static_receiver(worker, peer, "idle", &type, 2, &self->receiver[3]) ?:
	      tow_static_sender(worker, peer, "idle", &type, &self->sender[3]);
	for (int i = 0; i < EDGES && !ret; i++)
		ret = tow_edge_connect(self->sender[i], LATE_MS) ?:
		      tow_edge_connect(self->receiver[i], LATE_MS);
	return ret;
}

static void note_got(void *arg, const struct tow_rendezvous_tensor *tensor)
{
	FIXTURE_DATA(end) *self = arg;

	self->got.count++;
	if (tensor->status)
		self->got.status = tensor->status;
	else
		tow_arena_free(self->side.arena, tensor->data);
}

static void note_put(void *arg, uint64_t step, int status)
{
	struct sent *sent = arg;

	(void)step;
	sent->count++;
	if (status)
		sent->status = status;
}

static int begin_steps(FIXTURE_DATA(end) *self, const void *tensor)
{
	int ret = 0;

	for (uint64_t step = 1; step <= STEPS && !ret; step++)
		ret = tow_edge_send(self->sender[0], tensor, note_sent, &self->sent[0]) ?:
		      tow_dynamic_send(self->sender[1], &type, tensor, note_sent,
				       &self->sent[1]) ?:
		      tow_rendezvous_put(self->sender[2], "key", step, &type, tensor, 0, note_put,
					 &self->sent[2]) ?:
		      tow_rendezvous_get(self->receiver[2], step % 2 ? "key" : "other", step,
					 note_got, self);
	return ret;
}

/* Told, or to be told when they are closed: what a receiver might be reading. */
static uint32_t left(FIXTURE_DATA(end) *self)
{
	return tow_edge_pending(self->sender[0]) + tow_edge_pending(self->sender[2]) +
	       tow_edge_pending(self->receiver[2]);
}

TEST_F_TIMEOUT(end, the_device_goes, 60)
{
	void *tensor, *data;
	struct tow_patience patience;
	double start, end;
	int ret;

	ASSERT_EQ(0, make_edges(self));
	tensor = tow_arena_zeroed(self->side.arena, 1, BYTES);
	ASSERT_NE(NULL, tensor);
	ASSERT_EQ(0, begin_steps(self, tensor));
	for (int i = 0; i < 3; i++)
		ASSERT_LE(0, tow_worker_progress(self->side.worker, 2000));
	ASSERT_TRUE(tow_link_del(self->name));
	start = tow_clock_begin();
	patience = tow_patience(SECONDS_MAX);
	while (left(self) && tow_patient(&patience))
		tow_worker_progress(self->side.worker, SOON_US);
	EXPECT_EQ(0, left(self));
	/* What had come is there still. */
	for (int i = 0; i < EDGES; i++) {
		if (i == 2)
			continue;
		for (int step = 0; !(ret = tow_edge_wait(self->receiver[i], LATE_US, &data, NULL));
		     step++) {
			ASSERT_GT(STEPS, step);
			EXPECT_EQ(0, tow_edge_consumed(self->receiver[i]));
		}
		EXPECT_NE(-ETIMEDOUT, ret);
	}
	EXPECT_GT(0, tow_rendezvous_get(self->receiver[2], "late", 1, note_got, self));
	EXPECT_EQ(-ENODEV, tow_edge_send(self->sender[3], tensor, NULL, NULL));
	for (int i = 0; i < EDGES; i++) {
		tow_edge_close(self->sender[i]);
		tow_edge_close(self->receiver[i]);
	}
	end = tow_test_now();
	for (int i = 0; i < KINDS; i++) {
		EXPECT_EQ(STEPS, self->sent[i].count);
		EXPECT_GT(0, self->sent[i].status);
		EXPECT_EQ(0, self->sent[i].wrong);
	}
	EXPECT_EQ(STEPS, self->got.count);
	EXPECT_GT(0, self->got.status);
	EXPECT_EQ(0, tow_worker_destroy(self->side.worker));
	EXPECT_EQ(0, tow_arena_free(self->side.arena, tensor));
	tow_peer_release(self->side.peer);
	tow_arena_destroy(self->side.arena);
	tow_device_close(self->side.dev);
	TOW_WITHIN_AT(start, end, SECONDS_MAX * 1e3);
}

TEST_HARNESS_MAIN

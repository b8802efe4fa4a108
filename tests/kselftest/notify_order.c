// SPDX-License-Identifier: GPL-2.0
/*
 * Many notifications, each with data: the number counts every one of them once, never
 * goes back, and says nothing before all the data that came with it is in place.
 *
 * Who is notified polls memory, and at each sighting looks at every byte of what the
 * number says has arrived since the last.  The places of the data are used again and
 * again, when they have been looked at.  Also two such streams at the same time, on
 * queue pairs of their own, and data of many lengths.
 *
 * TOW_COUNT: how many notifications in the first case; the others have a part of it.
 */
#include <pthread.h>
#include <sched.h>
#include "tow_notify.h"

#define POOL_BYTES	(12 * TOW_SLAB)
#define ENTRIES		256U
#define PLACES		192U
#define PIECE_MOST	(4 * TOW_KB)
#define USUAL		100000
#define USUAL_SLOW	2000
#define STREAMS		2U

static int usual_count(int share)
{
	return tow_test_count(tow_test_slow() ? USUAL_SLOW : USUAL) / share;
}

struct stream {
	struct tow_ends ends;
	pthread_t sender, consumer;
	__u64 count;
	size_t piece;			/* 0: of many lengths */
	unsigned int batch;
	unsigned int ahead;		/* how many at most that were not looked at */
	/* The sender's. */
	int error;
	/* The consumer's; read by the sender. */
	__u64 checked;
	__u64 sightings;
	__u64 wrong;			/* pieces that were not what they must be */
	bool went_back;
	bool stop;
};

/* How long the piece of a notification is: a multiple of 8. */
static size_t length_of(const struct stream *stream, __u64 number)
{
	if (stream->piece)
		return stream->piece;
	return (size_t)(number * 0x9e3779b97f4a7c15ULL >> 32) % (PIECE_MOST / 8) * 8 + 8;
}

static size_t place_of(__u64 number)
{
	return (size_t)(number % PLACES) * PIECE_MOST;
}

/* ---- who is notified --------------------------------------------------------------- */

static bool is_there(const struct stream *stream, __u64 number)
{
	const char *at = stream->ends.memory.at + TOW_DATA_AT + place_of(number);
	size_t bytes = length_of(stream, number), i;

	for (i = 0; i < bytes; i += 8)
		if (*(const volatile uint64_t *)(at + i) != number)
			return false;
	return true;
}

static void *consume(void *arg)
{
	struct stream *stream = arg;
	__u64 seen = 0, number;

	while (seen < stream->count && !__atomic_load_n(&stream->stop, __ATOMIC_RELAXED)) {
		number = tow_ends_number(&stream->ends);
		if (number == seen) {
			sched_yield();
			continue;
		}
		stream->went_back |= number < seen || number > stream->count;
		if (stream->went_back)
			break;
		stream->sightings++;
		while (seen < number)
			stream->wrong += !is_there(stream, ++seen);
		__atomic_store_n(&stream->checked, seen, __ATOMIC_RELEASE);
	}
	return NULL;
}

/* ---- who notifies ------------------------------------------------------------------- */

static int put(struct stream *stream, __u64 number)
{
	struct tow_ends *ends = &stream->ends;
	size_t place = place_of(number), bytes = length_of(stream, number), i;
	struct tow_sqe sqe = tow_write_notify(&ends->from, ends->own.made.handle, place,
					      ends->remote, place, bytes, ends->found);

	for (i = 0; i < bytes; i += 8)
		*(uint64_t *)(ends->own.at + place + i) = number;
	return tow_rings_put(&ends->from.rings, &sqe) ? 0 : -EXFULL;
}

static int take_all(struct stream *stream, __u64 *completed)
{
	struct tow_cqe cqe;

	for (; tow_rings_take(&stream->ends.from.rings, &cqe); ++*completed)
		if (cqe.status)
			return cqe.status;
	return 0;
}

/* A place is used again when its last write is over, and has been looked at. */
static bool may_put(const struct stream *stream, __u64 number, __u64 completed)
{
	__u64 checked = __atomic_load_n(&stream->checked, __ATOMIC_ACQUIRE);

	return number <= stream->count && number <= completed + stream->ahead &&
	       number <= checked + stream->ahead;
}

static void *produce(void *arg)
{
	struct stream *stream = arg;
	struct tow_patience patience = tow_patience(600);
	__u64 next = 1, completed = 0, batch;
	int ret = 0;

	while (!ret && completed < stream->count) {
		for (batch = 0; !ret && batch < stream->batch &&
		     may_put(stream, next, completed); batch++)
			ret = put(stream, next++);
		if (!ret && batch)
			ret = tow_rings_enter(&stream->ends.from.rings, 0, 0);
		else if (!ret && completed < next - 1)
			ret = tow_enter(stream->ends.from.rings.made.fd, 0, 1, TOW_LONG_US);
		else
			sched_yield();
		if (ret >= 0)
			ret = take_all(stream, &completed);
		if (!ret && !tow_patient(&patience))
			ret = -ETIMEDOUT;
	}
	stream->error = ret;
	return NULL;
}

/* ---- both ------------------------------------------------------------------------------ */

FIXTURE(order)
{
	struct stream streams[STREAMS];
	uint64_t arrived;
};

FIXTURE_SETUP(order)
{
	static const char * const names[STREAMS][2] = { { "slot", "data" }, { "slot2", "data2" } };
	struct tow_channel_open channel;
	__u32 i;

	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	for (i = 0; i < STREAMS; i++) {
		struct tow_ends *ends = &self->streams[i].ends;

		ASSERT_EQ(0, tow_ends_make_named(ends, names[i][0], names[i][1], ENTRIES,
						 PLACES * PIECE_MOST));
		ASSERT_EQ(0, tow_channel_open(ends->from.rings.made.fd, ends->from.peer, i,
					      &channel));
		ends->from.channel = (__u16)channel.channel;
	}
	self->arrived = tow_sysfs_get("stats/notifications");
}

FIXTURE_TEARDOWN(order)
{
	__u32 i;

	for (i = 0; i < STREAMS; i++)
		tow_ends_end(&self->streams[i].ends);
}

static void start(struct __test_metadata *_metadata, struct stream *stream, int share,
		  size_t piece, unsigned int batch, unsigned int ahead)
{
	stream->count = (__u64)usual_count(share);
	stream->piece = piece;
	stream->batch = batch;
	stream->ahead = ahead;
	ASSERT_EQ(0, pthread_create(&stream->consumer, NULL, consume, stream));
	ASSERT_EQ(0, pthread_create(&stream->sender, NULL, produce, stream));
}

static void finish(struct __test_metadata *_metadata, struct stream *stream)
{
	ASSERT_EQ(0, pthread_join(stream->sender, NULL));
	EXPECT_EQ(0, stream->error)
		TH_LOG("%s", strerror(-stream->error));
	/* All have arrived, so it sees them; a moment, if it does not. */
	tow_slot_await(tow_ends_word(&stream->ends), stream->count);
	if (tow_ends_number(&stream->ends) < stream->count)
		__atomic_store_n(&stream->stop, true, __ATOMIC_RELAXED);
	ASSERT_EQ(0, pthread_join(stream->consumer, NULL));
	EXPECT_FALSE(stream->went_back);
	EXPECT_EQ(0, stream->wrong);
	EXPECT_EQ(stream->count, stream->checked);
	/* And none twice. */
	tow_test_sleep_ms(50);
	EXPECT_EQ(stream->count, tow_ends_number(&stream->ends));
	TH_LOG("%llu notifications in %llu sightings", (unsigned long long)stream->count,
	       (unsigned long long)stream->sightings);
}

static void expect_counted(struct __test_metadata *_metadata, FIXTURE_DATA(order) *self,
			   __u64 count)
{
	EXPECT_EQ(self->arrived + count,
		  tow_sysfs_wait("stats/notifications", self->arrived + count));
}

TEST_F_TIMEOUT(order, one_stream, 600)
{
	start(_metadata, &self->streams[0], 1, 64, 16, PLACES - 1);
	finish(_metadata, &self->streams[0]);
	expect_counted(_metadata, self, self->streams[0].count);
}

/* One at a time: each is looked for before there is another. */
TEST_F_TIMEOUT(order, one_by_one, 600)
{
	start(_metadata, &self->streams[0], 25, 1024, 1, 1);
	finish(_metadata, &self->streams[0]);
	EXPECT_EQ(self->streams[0].count, self->streams[0].sightings);
	expect_counted(_metadata, self, self->streams[0].count);
}

/* Over several packets; the next one may overtake none of them. */
TEST_F_TIMEOUT(order, many_lengths, 600)
{
	start(_metadata, &self->streams[0], 20, 0, 16, PLACES - 1);
	finish(_metadata, &self->streams[0]);
	expect_counted(_metadata, self, self->streams[0].count);
}

TEST_F_TIMEOUT(order, two_streams, 600)
{
	start(_metadata, &self->streams[0], 10, 64, 16, PLACES - 1);
	start(_metadata, &self->streams[1], 10, 512, 8, PLACES - 1);
	finish(_metadata, &self->streams[0]);
	finish(_metadata, &self->streams[1]);
	expect_counted(_metadata, self,
		       self->streams[0].count + self->streams[1].count);
}

TEST_HARNESS_MAIN

// SPDX-License-Identifier: GPL-2.0
/*
 * What comes after what on a queue: chains (LINK), fences, entries of one channel;
 * several threads that submit and wait at the same time; poll().
 *
 * tests/unit/order.c has the rules alone, for every sequence that chance brings.
 */
#include <poll.h>
#include <pthread.h>
#include "tow_queue.h"

#define POOL_BYTES	(12 * TOW_SLAB)
#define ENTRIES		64
/* Takes far longer than submitting what follows. */
#define LONG_BYTES	(2 * TOW_SLAB)

FIXTURE(order)
{
	struct tow_user user;
	struct tow_mapped ours;
	struct tow_mapped theirs;
	__u64 remote;
	__u64 stale;
};

FIXTURE_SETUP(order)
{
	struct tow_user *user = &self->user;
	__u32 rights = TOW_RIGHT_READ | TOW_RIGHT_WRITE;
	__u64 exported;

	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_user_make(user, ENTRIES, 0));
	ASSERT_EQ(0, tow_mapped_make(user->fd, 2 * LONG_BYTES, &self->ours));
	ASSERT_EQ(0, tow_mapped_make(user->fd, LONG_BYTES, &self->theirs));
	ASSERT_EQ(0, tow_publish_for(user->fd, self->theirs.made.handle, "x", LONG_BYTES, rights,
				     &exported));
	ASSERT_EQ(0, tow_find_for(user->fd, user->peer, "x", rights, &self->remote));
	ASSERT_EQ(0, tow_publish_for(user->fd, self->ours.made.handle, "gone", 64, rights,
				     &exported));
	ASSERT_EQ(0, tow_find_for(user->fd, user->peer, "gone", rights, &self->stale));
	ASSERT_EQ(0, tow_end_handle(user->fd, TOW_IOCTL_UNEXPORT, exported));
}

FIXTURE_TEARDOWN(order)
{
	struct tow_sqe nop = { .user_data = 99 };

	if (self->user.rings.ring) {
		EXPECT_EQ(0, tow_rings_do(&self->user.rings, &nop));
	}
}

/* ---- entries, in short ----------------------------------------------------------------- */

enum what {
	NOP,
	LONG,		/* takes a while */
	STALE,		/* begins, and fails */
	BAD,		/* cannot begin */
	BEYOND,		/* nor can this: it is not within the remote range */
};

static struct tow_sqe entry(const FIXTURE_DATA(order) *self, enum what what)
{
	switch (what) {
	case LONG:
		return tow_move(&self->user, TOW_OP_WRITE, self->ours.made.handle, 0, self->remote,
				0, LONG_BYTES);
	case STALE:
		return tow_move(&self->user, TOW_OP_WRITE, self->ours.made.handle, 0, self->stale,
				0, 8);
	case BAD:
		return tow_move(&self->user, TOW_OP_WRITE, 0, 0, self->remote, 0, 8);
	case BEYOND:
		return tow_move(&self->user, TOW_OP_WRITE, self->ours.made.handle, 0, self->remote,
				LONG_BYTES - 7, 8);
	default:
		return (struct tow_sqe){ .opcode = TOW_OP_NOP };
	}
}

/* An entry of a case, and what it must end with. */
struct step {
	enum what what;
	__u8 flags;
	int status;
};

#define STEPS_MAX	8
#define LINK		TOW_SQE_LINK
#define FENCE		TOW_SQE_FENCE
#define SILENT		TOW_SQE_SILENT
#define NO_STATUS	1	/* says nothing */
/* Of what a busy machine may hide. */
#define TRIES		8

/* Fill in, from @first on; nothing is submitted. */
static void fill(struct __test_metadata *_metadata, FIXTURE_DATA(order) *self,
		 const struct step *steps, unsigned int count, unsigned int first)
{
	unsigned int i;

	for (i = 0; i < count; i++) {
		struct tow_sqe sqe = entry(self, steps[i].what);

		sqe.flags = steps[i].flags;
		sqe.user_data = first + i;
		ASSERT_TRUE(tow_rings_put(&self->user.rings, &sqe));
	}
}

/* All of them have ended, once each, as they must; @place: when each one did. */
static void collect(struct __test_metadata *_metadata, FIXTURE_DATA(order) *self,
		    const struct step *steps, unsigned int count, unsigned int *place)
{
	struct tow_rings *rings = &self->user.rings;
	struct tow_sqe last = { .flags = FENCE, .user_data = count };
	unsigned int i, seen = 0, when;
	struct tow_cqe cqe;

	ASSERT_TRUE(tow_rings_put(rings, &last));
	ASSERT_EQ(1, tow_rings_enter(rings, 0, 0));
	for (when = 0; !(seen & 1U << count); when++) {
		ASSERT_EQ(0, tow_rings_wait(rings, &cqe));
		ASSERT_GE(count, cqe.user_data);
		ASSERT_EQ(0, seen & 1U << cqe.user_data)
			TH_LOG("entry %llu ended twice", cqe.user_data);
		seen |= 1U << cqe.user_data;
		if (cqe.user_data == count)
			continue;
		EXPECT_EQ(steps[cqe.user_data].status, cqe.status)
			TH_LOG("entry %llu", cqe.user_data);
		place[cqe.user_data] = when;
	}
	for (i = 0; i < count; i++) {
		EXPECT_EQ(steps[i].status == NO_STATUS, !(seen & 1U << i))
			TH_LOG("entry %u", i);
	}
	EXPECT_EQ(0, tow_rings_ready(rings));
}

/* All in one batch. */
static void check(struct __test_metadata *_metadata, FIXTURE_DATA(order) *self,
		  const struct step *steps, unsigned int count, unsigned int *place)
{
	fill(_metadata, self, steps, count, 0);
	ASSERT_EQ(count, tow_rings_enter(&self->user.rings, 0, 0));
	collect(_metadata, self, steps, count, place);
}

#define CHECK(STEPS) \
	check(_metadata, self, STEPS, ARRAY_SIZE(STEPS), place)

/* ---- chains ------------------------------------------------------------------------------- */

TEST_F(order, chains_that_succeed)
{
	const struct step chain[] = {
		{ LONG, LINK, 0 }, { NOP, LINK, 0 }, { LONG, LINK, 0 }, { NOP, 0, 0 },
	};
	const struct step beside[] = { { LONG, LINK, 0 }, { NOP, 0, 0 }, { NOP, 0, 0 } };
	unsigned int place[STEPS_MAX], tries;
	struct tow_patience patience;
	bool waits = true;

	CHECK(chain);
	EXPECT_LT(place[0], place[1]);
	EXPECT_LT(place[1], place[2]);
	EXPECT_LT(place[2], place[3]);
	/*
	 * Who is not in it does not wait for it.  It may have to wait for a processor, in
	 * the middle of the call: then the next time tells.
	 */
	patience = tow_patience(TOW_SETTLE_SECONDS);
	for (tries = 0; waits && (tries < TRIES || tow_patient(&patience)); tries++) {
		CHECK(beside);
		waits = place[2] > place[1];
	}
	EXPECT_FALSE(waits);
}

TEST_F(order, chains_that_fail_in_the_middle)
{
	const struct step first[] = {
		{ STALE, LINK, -ESTALE }, { NOP, LINK, -ECANCELED }, { LONG, 0, -ECANCELED },
		{ NOP, 0, 0 },
	};
	const struct step middle[] = {
		{ NOP, LINK, 0 }, { LONG, LINK, 0 }, { STALE, LINK, -ESTALE },
		{ NOP, LINK, -ECANCELED }, { NOP, 0, -ECANCELED }, { NOP, 0, 0 },
	};
	const struct step last[] = { { LONG, LINK, 0 }, { STALE, 0, -ESTALE }, { NOP, 0, 0 } };
	const struct step two[] = {
		{ STALE, LINK, -ESTALE }, { NOP, 0, -ECANCELED }, { NOP, LINK, 0 }, { NOP, 0, 0 },
	};
	unsigned int place[STEPS_MAX];

	CHECK(first);
	CHECK(middle);
	CHECK(last);
	CHECK(two);
}

/* None of it has begun, wherever the bad one is. */
TEST_F(order, chains_with_a_bad_entry)
{
	const struct step first[] = {
		{ BAD, LINK, -EBADF }, { LONG, LINK, -ECANCELED }, { NOP, 0, -ECANCELED },
	};
	const struct step last[] = {
		{ LONG, LINK, -ECANCELED }, { NOP, LINK, -ECANCELED }, { BAD, 0, -EBADF },
		{ NOP, 0, 0 },
	};
	const struct step both[] = {
		{ NOP, LINK, -ECANCELED }, { BAD, LINK, -EBADF }, { NOP, LINK, -ECANCELED },
		{ BAD, LINK, -EBADF }, { LONG, 0, -ECANCELED },
	};
	const struct step beyond[] = {
		{ LONG, LINK, -ECANCELED }, { BEYOND, LINK | SILENT, -ERANGE },
		{ LONG, 0, -ECANCELED }, { NOP, 0, 0 },
	};
	const struct step two_kinds[] = {
		{ BEYOND, LINK, -ERANGE }, { BAD, LINK, -EBADF }, { LONG, 0, -ECANCELED },
	};
	unsigned int place[STEPS_MAX];

	tow_fill(self->ours.at, LONG_BYTES, 1);
	tow_fill(self->theirs.at, LONG_BYTES, 2);
	CHECK(first);
	CHECK(last);
	CHECK(both);
	CHECK(beyond);
	CHECK(two_kinds);
	EXPECT_EQ(0, tow_differs(self->theirs.at, LONG_BYTES, 2));
}

/* Silent ones: who succeeds says nothing, who was cancelled does. */
TEST_F(order, silent_chains)
{
	const struct step good[] = {
		{ NOP, LINK | SILENT, NO_STATUS }, { LONG, LINK | SILENT, NO_STATUS },
		{ NOP, 0, 0 },
	};
	const struct step stale[] = {
		{ NOP, LINK | SILENT, NO_STATUS }, { STALE, LINK | SILENT, -ESTALE },
		{ NOP, LINK | SILENT, -ECANCELED }, { NOP, SILENT, -ECANCELED },
	};
	unsigned int place[STEPS_MAX];

	CHECK(good);
	CHECK(stale);
}

/* The last one that a call takes ends a chain, whatever it says. */
TEST_F(order, chains_end_with_the_batch)
{
	const struct step two[] = { { STALE, LINK, -ESTALE }, { NOP, 0, 0 } };
	const struct step bad[] = { { LONG, LINK, 0 }, { BAD, 0, -EBADF } };
	unsigned int place[STEPS_MAX];
	struct tow_rings *rings = &self->user.rings;

	fill(_metadata, self, two, 2, 0);
	tow_rings_publish(rings);
	ASSERT_EQ(1, tow_enter(rings->made.fd, 1, 0, 0));
	ASSERT_EQ(1, tow_enter(rings->made.fd, 1, 0, 0));
	collect(_metadata, self, two, 2, place);
	fill(_metadata, self, bad, 2, 0);
	tow_rings_publish(rings);
	ASSERT_EQ(1, tow_enter(rings->made.fd, 1, 0, 0));
	ASSERT_EQ(1, tow_enter(rings->made.fd, 1, 0, 0));
	collect(_metadata, self, bad, 2, place);
}

/* A chain is taken as a whole, when there is room for all its completions. */
TEST_F(order, chains_are_whole)
{
	struct tow_sqe sqe = { 0 };
	struct tow_rings rings;
	struct tow_cqe cqe;
	unsigned int i;

	ASSERT_EQ(0, tow_rings_make(self->user.fd, 4, 4, &rings));
	for (i = 0; i < 2; i++)
		ASSERT_TRUE(tow_rings_put(&rings, &sqe));
	ASSERT_EQ(2, tow_rings_enter(&rings, 2, TOW_LONG_US));
	for (i = 0; i < 3; i++) {
		sqe.flags = i < 2 ? LINK : 0;
		sqe.user_data = i;
		sqe.operand = i == 2;
		ASSERT_TRUE(tow_rings_put(&rings, &sqe));
	}
	EXPECT_EQ(-EBUSY, tow_rings_enter(&rings, 0, 0));
	EXPECT_EQ(3, tow_rings_untaken(&rings));
	tow_rings_seen(&rings, 1);
	ASSERT_EQ(3, tow_rings_enter(&rings, 4, TOW_LONG_US));
	tow_rings_seen(&rings, 1);
	/* Had the first two been taken before, they would have begun. */
	for (i = 0; i < 3; i++) {
		ASSERT_TRUE(tow_rings_take(&rings, &cqe));
		EXPECT_EQ(cqe.user_data == 2 ? -EINVAL : -ECANCELED, cqe.status);
	}
	tow_rings_end(&rings);
}

/* Two completions for each of three entries are more than the ring ever has. */
TEST_F(order, chains_without_room)
{
	struct tow_sqe sqe = { .timeout_ms = TOW_LONG_US / 1000 };
	struct tow_rings rings;
	unsigned int i;

	ASSERT_EQ(0, tow_rings_make(self->user.fd, 4, 4, &rings));
	for (i = 0; i < 3; i++) {
		sqe.flags = i < 2 ? LINK : 0;
		ASSERT_TRUE(tow_rings_put(&rings, &sqe));
	}
	EXPECT_EQ(-EINVAL, tow_rings_enter(&rings, 0, 0));
	EXPECT_EQ(3, tow_rings_untaken(&rings));
	rings.sqes[0].timeout_ms = 0;
	rings.sqes[1].timeout_ms = 0;
	EXPECT_EQ(3, tow_rings_enter(&rings, 3, TOW_LONG_US));
	for (i = 0; i < 3; i++)
		EXPECT_EQ(0, tow_rings_look(&rings, i).status);
	tow_rings_end(&rings);
}

/* A chain as long as the ring. */
TEST_F(order, long_chains)
{
	struct tow_rings *rings = &self->user.rings;
	struct tow_cqe cqe;
	unsigned int i;

	for (i = 0; i < ENTRIES; i++) {
		struct tow_sqe sqe = entry(self, i % 2 ? NOP : LONG);

		if (i % 2 == 0)
			sqe.bytes = 4096;
		sqe.flags = LINK;
		sqe.user_data = i;
		ASSERT_TRUE(tow_rings_put(rings, &sqe));
	}
	ASSERT_EQ(ENTRIES, tow_rings_enter(rings, ENTRIES, TOW_LONG_US));
	for (i = 0; i < ENTRIES; i++) {
		ASSERT_TRUE(tow_rings_take(rings, &cqe));
		EXPECT_EQ(0, cqe.status);
		EXPECT_EQ(i, cqe.user_data);
	}
}

/* ---- fences -------------------------------------------------------------------------------- */

TEST_F(order, fences)
{
	const struct step waits[] = { { LONG, 0, 0 }, { LONG, 0, 0 }, { NOP, FENCE, 0 } };
	const struct step holds[] = {
		{ LONG, 0, 0 }, { NOP, FENCE, 0 }, { NOP, 0, 0 }, { NOP, FENCE, 0 },
	};
	const struct step chain[] = {
		{ LONG, 0, 0 }, { NOP, LINK, 0 }, { NOP, FENCE | LINK, 0 }, { NOP, 0, 0 },
		{ NOP, 0, 0 },
	};
	unsigned int place[STEPS_MAX];

	CHECK(waits);
	EXPECT_EQ(2, place[2]);
	/* Those behind it do not begin before it. */
	CHECK(holds);
	EXPECT_EQ(0, place[0]);
	EXPECT_LT(place[0], place[1]);
	EXPECT_LT(place[0], place[2]);
	EXPECT_EQ(3, place[3]);
	/* Wherever in a chain it stands, the chain waits. */
	CHECK(chain);
	EXPECT_EQ(0, place[0]);
}

TEST_F(order, fences_behind_failures)
{
	const struct step stale[] = {
		{ STALE, 0, -ESTALE }, { NOP, FENCE, -ECANCELED }, { NOP, 0, 0 },
	};
	const struct step bad[] = {
		{ BAD, 0, -EBADF }, { LONG, 0, 0 }, { LONG, FENCE, -ECANCELED }, { NOP, 0, 0 },
	};
	const struct step chain[] = {
		{ LONG, LINK, 0 }, { STALE, 0, -ESTALE }, { NOP, FENCE | LINK, -ECANCELED },
		{ NOP, 0, -ECANCELED }, { NOP, FENCE, -ECANCELED }, { NOP, 0, 0 },
	};
	const struct step later[] = { { NOP, FENCE, 0 }, { LONG, 0, 0 }, { NOP, FENCE, 0 } };
	unsigned int place[STEPS_MAX];

	/* collect() ends with a fence: a failure may still be on its way to it. */
	fill(_metadata, self, stale, 3, 0);
	ASSERT_EQ(3, tow_rings_enter(&self->user.rings, 3, TOW_LONG_US));
	collect(_metadata, self, stale, 3, place);
	fill(_metadata, self, bad, 4, 0);
	ASSERT_EQ(4, tow_rings_enter(&self->user.rings, 4, TOW_LONG_US));
	collect(_metadata, self, bad, 4, place);
	fill(_metadata, self, chain, 6, 0);
	ASSERT_EQ(6, tow_rings_enter(&self->user.rings, 6, TOW_LONG_US));
	collect(_metadata, self, chain, 6, place);
	/* What had ended before it was taken does not matter any more. */
	CHECK(later);
}

/* Of a completion that is there. */
static int status_of(struct tow_rings *rings, __u64 number)
{
	__u32 i;

	for (i = 0; i < tow_rings_ready(rings); i++)
		if (tow_rings_look(rings, i).user_data == number)
			return tow_rings_look(rings, i).status;
	return -ENOMSG;
}

/*
 * A failure that is seen only when the fence waits already.  Who submits the fence may
 * have to wait for a processor until all has ended: then it knows of no failure.
 */
TEST_F_TIMEOUT(order, fences_taken_before_the_failure, 60)
{
	struct step first[] = {
		{ LONG, LINK, 0 }, { LONG, LINK, 0 }, { LONG, LINK, 0 }, { LONG, LINK, 0 },
		{ STALE, 0, -ESTALE }, { NOP, FENCE, -ECANCELED },
	};
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	struct tow_rings *rings = &self->user.rings;
	unsigned int place[STEPS_MAX], tries;
	int told = 0;

	for (tries = 0; !told && (tries < TRIES || tow_patient(&patience)); tries++) {
		fill(_metadata, self, first, 6, 0);
		tow_rings_publish(rings);
		ASSERT_EQ(5, tow_enter(rings->made.fd, 5, 0, 0));
		ASSERT_EQ(1, tow_enter(rings->made.fd, 1, 6, TOW_LONG_US));
		told = status_of(rings, 5);
		first[5].status = told ? -ECANCELED : 0;
		collect(_metadata, self, first, 6, place);
	}
	EXPECT_EQ(-ECANCELED, told);
}

static void mark(struct tow_mapped *mapped, size_t offset, size_t bytes, unsigned char with)
{
	memset(mapped->at + offset, with, bytes);
}

/* A read behind a fence, or linked to the write, brings what was written. */
TEST_F_TIMEOUT(order, reads_see_writes, 60)
{
	struct tow_rings *rings = &self->user.rings;
	unsigned int round;

	for (round = 0; round < 20; round++) {
		bool fenced = round & 1;
		unsigned char with = (unsigned char)(round + 1);
		size_t bytes = round < 16 ? 4096 * (round + 1) - 5 : LONG_BYTES;
		struct tow_sqe write = entry(self, LONG);
		struct tow_sqe read = entry(self, LONG);

		write.bytes = bytes;
		write.flags = fenced ? 0 : LINK;
		read.opcode = TOW_OP_READ;
		read.offset = LONG_BYTES;
		read.bytes = bytes;
		read.flags = fenced ? FENCE : 0;
		mark(&self->ours, 0, bytes, with);
		mark(&self->ours, LONG_BYTES, bytes, 0xee);
		mark(&self->theirs, 0, bytes, 0xdd);
		ASSERT_TRUE(tow_rings_put(rings, &write));
		ASSERT_TRUE(tow_rings_put(rings, &read));
		ASSERT_EQ(2, tow_rings_enter(rings, 2, TOW_LONG_US));
		EXPECT_EQ(0, tow_rings_look(rings, 0).status);
		EXPECT_EQ(0, tow_rings_look(rings, 1).status);
		tow_rings_seen(rings, 2);
		ASSERT_EQ(0, memcmp(self->ours.at, self->ours.at + LONG_BYTES, bytes))
			TH_LOG("round %u: %zu bytes", round, bytes);
	}
}

/* Entries of one channel take effect in their order, without a word. */
TEST_F_TIMEOUT(order, one_channel, 60)
{
	struct tow_rings *rings = &self->user.rings;
	unsigned int round, i;

	for (round = 0; round < 10; round++) {
		for (i = 0; i < ENTRIES; i++) {
			struct tow_sqe sqe = entry(self, LONG);

			/* Of every size, all over the same bytes. */
			sqe.bytes = 1U << (i * 7 + round) % 18;
			sqe.offset = (__u64)i * 64;
			self->ours.at[sqe.offset] = (char)(i + round);
			sqe.flags = i < ENTRIES - 1 ? SILENT : 0;
			ASSERT_TRUE(tow_rings_put(rings, &sqe));
		}
		ASSERT_EQ(ENTRIES, tow_rings_enter(rings, 1, TOW_LONG_US));
		EXPECT_EQ(0, tow_rings_look(rings, 0).status);
		tow_rings_seen(rings, 1);
		EXPECT_EQ((char)(ENTRIES - 1 + round), self->theirs.at[0]);
	}
}

/* ---- several threads on one queue ------------------------------------------------------------ */

#define THREADS		4
#define EACH		500

struct crowd {
	struct tow_rings *rings;
	pthread_mutex_t lock;		/* of the program's side of the rings */
	struct tow_sqe write;
	unsigned char seen[THREADS * EACH];
	unsigned int count;
	int wrong;
};

struct member {
	struct crowd *crowd;
	unsigned int first;
	pthread_t thread;
};

/* Called with the lock held. */
static void crowd_collect(struct crowd *crowd)
{
	struct tow_cqe cqe;

	while (tow_rings_take(crowd->rings, &cqe)) {
		if (cqe.user_data >= (__u64)THREADS * EACH || cqe.status) {
			crowd->wrong++;
			continue;
		}
		crowd->seen[cqe.user_data]++;
		crowd->count++;
	}
}

/* One after the other fills in; all of them submit, and wait, whenever they like. */
static void *submit(void *arg)
{
	struct member *member = arg;
	struct crowd *crowd = member->crowd;
	unsigned int i = 0;
	int ret;

	while (i < EACH) {
		pthread_mutex_lock(&crowd->lock);
		crowd->write.user_data = member->first + i;
		crowd->write.offset = ((__u64)member->first + i) * 8;
		crowd->write.remote_offset = ((__u64)member->first + i) * 8;
		if (tow_rings_put(crowd->rings, &crowd->write)) {
			tow_rings_publish(crowd->rings);
			i++;
		}
		crowd_collect(crowd);
		pthread_mutex_unlock(&crowd->lock);
		ret = tow_enter(crowd->rings->made.fd, 1 + i % 3, i % 2, 1000);
		if (ret < 0 && ret != -EBUSY && ret != -ETIMEDOUT)
			__atomic_fetch_add(&crowd->wrong, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

TEST_F_TIMEOUT(order, threads, 60)
{
	struct member members[THREADS];
	static struct crowd crowd = { .lock = PTHREAD_MUTEX_INITIALIZER };
	struct tow_patience patience = tow_patience(30);
	unsigned int i;

	crowd.rings = &self->user.rings;
	crowd.write = entry(self, LONG);
	crowd.write.bytes = 8;
	for (i = 0; i < THREADS * EACH; i++)
		self->ours.words[i] = tow_stamp(3, i);
	for (i = 0; i < THREADS; i++) {
		members[i] = (struct member){ .crowd = &crowd, .first = i * EACH };
		ASSERT_EQ(0, pthread_create(&members[i].thread, NULL, submit, &members[i]));
	}
	for (i = 0; i < THREADS; i++)
		ASSERT_EQ(0, pthread_join(members[i].thread, NULL));
	while (crowd.count < THREADS * EACH && tow_patient(&patience)) {
		tow_enter(crowd.rings->made.fd, ENTRIES, 1, 1000);
		crowd_collect(&crowd);
	}
	EXPECT_EQ(0, crowd.wrong);
	EXPECT_EQ(THREADS * EACH, crowd.count);
	for (i = 0; i < THREADS * EACH; i++) {
		ASSERT_EQ(1, crowd.seen[i])
			TH_LOG("entry %u", i);
		ASSERT_EQ(tow_stamp(3, i), self->theirs.words[i])
			TH_LOG("entry %u", i);
	}
}

/* ---- waiting ----------------------------------------------------------------------------------- */

static void *submit_later(void *arg)
{
	struct tow_rings *rings = arg;

	tow_test_sleep_ms(100);
	return (void *)(intptr_t)tow_rings_enter(rings, 0, 0);
}

static short polled(const struct tow_rings *rings, int timeout_ms)
{
	struct pollfd waiter = { .fd = rings->made.fd, .events = POLLIN };

	return poll(&waiter, 1, timeout_ms) < 0 ? -1 : waiter.revents;
}

TEST_F(order, polling)
{
	struct tow_rings *rings = &self->user.rings;
	struct tow_sqe sqe = entry(self, LONG);
	pthread_t thread;
	void *ret;

	EXPECT_EQ(0, polled(rings, 0));
	EXPECT_EQ(0, polled(rings, 50));
	ASSERT_TRUE(tow_rings_put(rings, &sqe));
	ASSERT_EQ(0, pthread_create(&thread, NULL, submit_later, rings));
	EXPECT_EQ(POLLIN, polled(rings, TOW_WAIT_MS));
	ASSERT_EQ(0, pthread_join(thread, &ret));
	EXPECT_EQ(1, (intptr_t)ret);
	EXPECT_EQ(1, tow_rings_ready(rings));
	/* As long as it is not dealt with. */
	EXPECT_EQ(POLLIN, polled(rings, 0));
	tow_rings_seen(rings, 1);
	EXPECT_EQ(0, polled(rings, 0));
}

/* Another thread waits for more than there are; each is woken when it is time. */
static void *wait_for_three(void *arg)
{
	struct tow_rings *rings = arg;

	return (void *)(intptr_t)tow_enter(rings->made.fd, 0, 3, TOW_LONG_US);
}

TEST_F(order, each_waits_for_his_own)
{
	struct tow_rings *rings = &self->user.rings;
	struct tow_sqe nop = { 0 };
	double start = tow_test_now();
	pthread_t thread;
	void *ret;

	ASSERT_EQ(0, pthread_create(&thread, NULL, wait_for_three, rings));
	tow_test_sleep_ms(50);
	ASSERT_TRUE(tow_rings_put(rings, &nop));
	ASSERT_EQ(1, tow_rings_enter(rings, 1, TOW_LONG_US));
	EXPECT_EQ(-ETIMEDOUT, tow_enter(rings->made.fd, 0, 2, 10000));
	ASSERT_TRUE(tow_rings_put(rings, &nop));
	ASSERT_TRUE(tow_rings_put(rings, &nop));
	ASSERT_EQ(2, tow_rings_enter(rings, 0, 0));
	ASSERT_EQ(0, pthread_join(thread, &ret));
	EXPECT_EQ(0, (intptr_t)ret);
	TOW_WITHIN(start, 10000);
	tow_rings_seen(rings, 3);
}

/* ---- what the RDMA device does not take --------------------------------------------------------- */

#define UNPOSTABLE	4093

/*
 * The operation that the device refuses to post ends with that, and no other: those before it
 * are on their way, those behind it go, and the connection stays.
 */
TEST_F(order, what_cannot_be_posted)
{
	__u32 epoch = tow_peer_epoch(self->user.fd, self->user.peer);
	struct tow_rings *rings = &self->user.rings;
	unsigned int i, at, too, round;
	bool refuses;
	struct tow_cqe cqe;

	refuses = !tow_hostile_set("unpostable", "4093");
	for (round = 0; round < 16; round++) {
		/* Wherever it is; and two of them. */
		at = round % 8;
		too = round < 8 ? at : 7 - at;
		for (i = 0; i < 8; i++) {
			struct tow_sqe sqe = entry(self, LONG);

			sqe.bytes = i == at || i == too ? UNPOSTABLE : 8 * i + 8;
			sqe.offset = (__u64)i * 8 * TOW_KB;
			sqe.remote_offset = sqe.offset;
			sqe.user_data = i;
			self->ours.at[sqe.offset] = (char)(i + round + 1);
			ASSERT_TRUE(tow_rings_put(rings, &sqe));
		}
		ASSERT_EQ(8, tow_rings_enter(rings, 8, TOW_LONG_US));
		while (tow_rings_take(rings, &cqe)) {
			bool bad = refuses && (cqe.user_data == at || cqe.user_data == too);

			EXPECT_EQ(bad ? -EINVAL : 0, cqe.status)
				TH_LOG("round %u, entry %llu", round, cqe.user_data);
			EXPECT_EQ(!bad, self->theirs.at[cqe.user_data * 8 * TOW_KB] ==
				  (char)(cqe.user_data + round + 1));
		}
	}
	EXPECT_EQ(refuses ? 0 : -ENOENT, tow_hostile_set("unpostable", "0"));
	EXPECT_EQ(epoch, tow_peer_epoch(self->user.fd, self->user.peer));
}

/* ---- two that deal with completions of one queue ----------------------------------------------- */

static int enter_since(const struct tow_rings *rings, __u32 since, __u32 complete, __u32 timeout_us)
{
	struct tow_enter call = {
		.size = sizeof(call), .flags = TOW_ENTER_SINCE, .since = since,
		.min_complete = complete, .timeout_us = timeout_us,
	};

	return ioctl(rings->made.fd, TOW_IOCTL_ENTER, &call) < 0 ? -errno : 0;
}

struct since {
	struct tow_rings *rings;
	__u32 tail;
};

static void *wait_since(void *arg)
{
	const struct since *since = arg;

	return (void *)(intptr_t)enter_since(since->rings, since->tail, 1, TOW_LONG_US);
}

/* Who waits for what comes after what he has seen is woken, though another one has dealt with it. */
TEST_F(order, waits_for_what_others_deal_with)
{
	struct since since = { .rings = &self->user.rings };
	struct tow_sqe nop = { 0 };
	double start = tow_test_now();
	pthread_t thread;
	unsigned int i;
	void *ret;

	since.tail = __atomic_load_n(&since.rings->ring->cq_tail, __ATOMIC_ACQUIRE);
	for (i = 0; i < 20; i++) {
		ASSERT_EQ(0, pthread_create(&thread, NULL, wait_since, &since));
		tow_test_sleep_ms(i % 2 ? 20 : 0);
		ASSERT_EQ(0, tow_rings_do(since.rings, &nop));
		EXPECT_EQ(0, tow_rings_ready(since.rings));
		ASSERT_EQ(0, pthread_join(thread, &ret));
		EXPECT_EQ(0, (intptr_t)ret);
		EXPECT_EQ(-ETIMEDOUT, enter_since(since.rings, since.tail, 2, 1000));
		EXPECT_EQ(0, enter_since(since.rings, since.tail++, 1, 0));
	}
	TOW_WITHIN(start, 10000);
}

/* ---- room -------------------------------------------------------------------------------------- */

/* @count entries that say nothing, of which the first takes a while. */
static void put_silent(struct __test_metadata *_metadata, FIXTURE_DATA(order) *self,
		       struct tow_rings *rings, unsigned int count, __u16 channel)
{
	struct tow_sqe sqe = entry(self, LONG);

	sqe.channel = channel;
	for (sqe.flags = SILENT; count; count--) {
		ASSERT_TRUE(tow_rings_put(rings, &sqe));
		sqe.bytes = 8;
	}
}

static int enter_room(struct tow_rings *rings, __u32 timeout_us)
{
	struct tow_enter call = {
		.size = sizeof(call), .flags = TOW_ENTER_ROOM, .timeout_us = timeout_us,
		.to_submit = tow_rings_untaken(rings),
	};
	int ret;

	tow_rings_publish(rings);
	ret = ioctl(rings->made.fd, TOW_IOCTL_ENTER, &call);
	return ret < 0 ? -errno : ret;
}

TEST_F_TIMEOUT(order, waits_for_room, 60)
{
	struct tow_channel_open open;
	struct tow_sqe nop = { 0 };
	struct tow_rings rings;
	unsigned int i, waited = 0;
	int ret;

	ASSERT_EQ(0, tow_rings_make(self->user.fd, 4, 4, &rings));
	ASSERT_EQ(0, tow_channel_open(rings.made.fd, self->user.peer, 0, &open));
	for (i = 0; i < 50; i++) {
		put_silent(_metadata, self, &rings, 4, (__u16)open.channel);
		ret = enter_room(&rings, TOW_LONG_US);
		ASSERT_LT(0, ret);
		while (tow_rings_untaken(&rings)) {
			ret = enter_room(&rings, TOW_LONG_US);
			ASSERT_LT(0, ret);
			waited++;
		}
	}
	/* Nothing says that they have ended, but that there is room. */
	nop.flags = FENCE;
	ASSERT_TRUE(tow_rings_put(&rings, &nop));
	ASSERT_EQ(1, enter_room(&rings, TOW_LONG_US));
	ASSERT_EQ(0, tow_enter(rings.made.fd, 0, 1, TOW_LONG_US));
	nop.flags = 0;
	/* What is to be dealt with first is. */
	for (i = 0; i < 3; i++)
		ASSERT_TRUE(tow_rings_put(&rings, &nop));
	ASSERT_EQ(3, tow_rings_enter(&rings, 4, TOW_LONG_US));
	ASSERT_TRUE(tow_rings_put(&rings, &nop));
	EXPECT_EQ(-EBUSY, enter_room(&rings, TOW_LONG_US));
	tow_rings_end(&rings);
	TH_LOG("waited %u times", waited);
}

static short writable(const struct tow_rings *rings, int timeout_ms)
{
	struct pollfd waiter = { .fd = rings->made.fd, .events = POLLOUT };

	return poll(&waiter, 1, timeout_ms) < 0 ? -1 : waiter.revents;
}

/* Silent entries end without a word; who polls for room is told. */
TEST_F_TIMEOUT(order, polling_for_room, 60)
{
	struct tow_channel_open open;
	struct tow_sqe nop = { 0 };
	struct tow_rings rings;
	unsigned int i;

	ASSERT_EQ(0, tow_rings_make(self->user.fd, 4, 4, &rings));
	ASSERT_EQ(0, tow_channel_open(rings.made.fd, self->user.peer, 0, &open));
	EXPECT_EQ(POLLOUT, writable(&rings, 0));
	for (i = 0; i < 4; i++)
		ASSERT_TRUE(tow_rings_put(&rings, &nop));
	ASSERT_EQ(4, tow_rings_enter(&rings, 4, TOW_LONG_US));
	EXPECT_EQ(0, writable(&rings, 0));
	tow_rings_seen(&rings, 4);
	for (i = 0; i < 50; i++) {
		put_silent(_metadata, self, &rings, 4, (__u16)open.channel);
		ASSERT_LT(0, tow_rings_enter(&rings, 0, 0));
		while (tow_rings_untaken(&rings)) {
			ASSERT_EQ(POLLOUT, writable(&rings, TOW_WAIT_MS));
			ASSERT_LT(0, tow_rings_enter(&rings, 0, 0));
		}
		ASSERT_EQ(POLLOUT, writable(&rings, TOW_WAIT_MS));
	}
	tow_rings_end(&rings);
}

TEST_HARNESS_MAIN

// SPDX-License-Identifier: GPL-2.0
/*
 * The memory of a queue is the program's to write, whenever it likes: threads write
 * anything over the entries, the completions and all indices while others submit.
 * Nothing of anybody else changes, the kernel keeps quiet (the lab looks), the next
 * queue works, and nothing stays.
 *
 * $TOW_COUNT (soak): how many entries the kernel is to take; a usual run has a part
 * of a million.
 */
#include <pthread.h>
#include "tow_places.h"

#define POOL_BYTES	(6 * TOW_SLAB)
#define SQ_ENTRIES	256U
#define ENTERERS	2
#define SCRIBBLERS	1
#define USUAL_ENTRIES	150000

/* One queue is attacked so long, or until it stands still for so long. */
#define QUEUE_SECONDS	1.0
#define STILL_SECONDS	0.1

FIXTURE(attack)
{
	struct tow_user user;		/* who attacks */
	struct tow_mapped own;
	struct tow_mapped target;
	__u64 remotes[3];
	struct tow_user other;		/* who has nothing to do with it */
	struct tow_mapped others;
	struct tow_mapped others_too;
	__u64 others_remote;
};

#define OWN_BYTES	65536U
#define OTHERS_BYTES	TOW_SMALL_REGION

FIXTURE_SETUP(attack)
{
	const __u32 rights[] = {
		TOW_ALL_RIGHTS, TOW_RIGHT_READ, TOW_RIGHT_WRITE,
	};
	__u64 exported;
	int i;

	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_user_make(&self->user, SQ_ENTRIES, 0));
	ASSERT_EQ(0, tow_mapped_make(self->user.fd, OWN_BYTES, &self->own));
	ASSERT_EQ(0, tow_mapped_make(self->user.fd, OWN_BYTES, &self->target));
	ASSERT_EQ(0, tow_publish_for(self->user.fd, self->target.made.handle, "target", OWN_BYTES,
				     TOW_ALL_RIGHTS, &exported));
	for (i = 0; i < 3; i++) {
		ASSERT_EQ(0, tow_find_for(self->user.fd, self->user.peer, "target", rights[i],
					  &self->remotes[i]));
	}
	ASSERT_EQ(0, tow_user_make(&self->other, 64, 0));
	ASSERT_EQ(0, tow_enter_job(self->other.fd, 7));
	ASSERT_EQ(0, tow_mapped_make(self->other.fd, OTHERS_BYTES, &self->others));
	ASSERT_EQ(0, tow_mapped_make(self->other.fd, OTHERS_BYTES, &self->others_too));
	ASSERT_EQ(0, tow_publish_for(self->other.fd, self->others.made.handle, "others",
				     OTHERS_BYTES, TOW_ALL_RIGHTS, &exported));
	ASSERT_EQ(0, tow_find_for(self->other.fd, self->other.peer, "others",
				  TOW_RIGHT_READ | TOW_RIGHT_WRITE, &self->others_remote));
	tow_fill(self->others.at, OTHERS_BYTES, 1);
	tow_fill(self->others_too.at, OTHERS_BYTES, 2);
}

FIXTURE_TEARDOWN(attack)
{
	tow_user_end(&self->user);
	EXPECT_EQ(0, tow_mapped_end(&self->others));
	EXPECT_EQ(0, tow_mapped_end(&self->others_too));
	tow_user_end(&self->other);
	munmap(self->own.at, self->own.bytes);
	munmap(self->target.at, self->target.bytes);
	close(self->own.made.fd);
	close(self->target.made.fd);
	EXPECT_EQ(0, tow_sysfs_wait("stats/queues", 0));
	EXPECT_TRUE(tow_pool_unused());
}

struct attack {
	const FIXTURE_DATA(attack) *self;
	uint64_t taken;
	bool stop;
	int wrong;			/* an answer that no ENTER may give */
};

struct attacker {
	struct attack *attack;
	struct tow_random random;
	pthread_t thread;
};

/* ---- scribbling ------------------------------------------------------------------------ */

/* Something that may even be good. */
static void likely_entry(const FIXTURE_DATA(attack) *self, struct tow_random *random,
			 struct tow_sqe *sqe)
{
	uint64_t roll = tow_random(random);

	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = (__u8)(roll % 5);
	sqe->flags = (__u8)(roll >> 8) & (__u8)(roll >> 16) & 7;
	if (sqe->opcode == TOW_OP_NOP)
		return;
	sqe->channel = self->user.channel;
	sqe->region = roll >> 20 & 3 ? self->own.made.handle : self->target.made.handle;
	sqe->remote = self->remotes[(roll >> 24) % 3];
	sqe->offset = tow_random_below(random, OWN_BYTES + 1000) & ~(roll & 7);
	sqe->remote_offset = tow_random_below(random, OWN_BYTES + 1000) & ~(roll & 7);
	sqe->bytes = (roll >> 32) % 512;
	if (sqe->opcode >= TOW_OP_FETCH_ADD)
		sqe->operand = tow_random(random);
	if (sqe->opcode == TOW_OP_FETCH_ADD)
		sqe->compare = 0;
	/* One of sixteen goes out; the others are found to be wrong, each in its way. */
	if (roll >> 48 & 15)
		*((__u8 *)sqe + (roll >> 52) % sizeof(*sqe)) ^= (__u8)(1 + (roll >> 58));
}

/*
 * There are entries, and room for what comes of them, as far as a program can say
 * so; the others disagree at once.
 */
static void make_room(const struct tow_rings *rings, uint64_t roll)
{
	__u32 head = __atomic_load_n(&rings->ring->sq_head, __ATOMIC_RELAXED);
	__u32 done = __atomic_load_n(&rings->ring->cq_tail, __ATOMIC_RELAXED);

	__atomic_store_n(&rings->ring->cq_head, done, __ATOMIC_RELEASE);
	__atomic_store_n(&rings->ring->sq_tail, head + 1 + (__u32)(roll % SQ_ENTRIES),
			 __ATOMIC_RELEASE);
}

/*
 * The program's indices stay as they are made.  The kernel's are put back as a rule:
 * it does not read them, but a program that does not know them knows no place for
 * its own, and the ring stands still.
 */
static void scribble_index(const struct tow_rings *rings, uint64_t roll)
{
	volatile __u32 *indices[] = {
		&rings->ring->sq_tail, &rings->ring->cq_head, &rings->ring->sq_head,
		&rings->ring->cq_tail,
	};
	unsigned int which = (roll >> 8) % 4;
	__u32 before = *indices[which];

	/* Anything, or a little more, or less, than it was. */
	*indices[which] = roll & 1 << 10 ? (__u32)(roll >> 32) :
				(__u32)(roll >> 40) % (2 * SQ_ENTRIES) + before - SQ_ENTRIES;
	if (which >= 2 && (roll >> 12) % 65536)
		*indices[which] = before;
}

/* A word of an entry, or of an index, as if by an accident. */
static void scribble(struct attacker *attacker)
{
	const FIXTURE_DATA(attack) *self = attacker->attack->self;
	const struct tow_rings *rings = &self->user.rings;
	struct tow_random *random = &attacker->random;
	uint64_t roll = tow_random(random);
	volatile __u64 *words = (volatile __u64 *)rings->ring;
	struct tow_sqe sqe;

	switch (roll % 8) {
	case 0:
	case 1:
		scribble_index(rings, roll >> 3);
		break;
	case 4:
	case 5:
		/* Else the ring would look full nearly all the time. */
		make_room(rings, roll >> 8);
		break;
	case 2:
		/* All but the indices: entries, completions, what is behind them. */
		words[sizeof(struct tow_ring) / 8 +
		      tow_random_below(random, (rings->made.map_bytes - sizeof(struct tow_ring)) /
					       8)] = tow_random(random);
		break;
	case 3:
		words[rings->made.sqes_offset / 8 + (roll >> 8) % (8ULL * SQ_ENTRIES)] ^=
			1ULL << (roll >> 32) % 64;
		break;
	default:
		likely_entry(self, random, &sqe);
		rings->sqes[(roll >> 8) % SQ_ENTRIES] = sqe;
		break;
	}
}

static bool over(struct attack *attack)
{
	return __atomic_load_n(&attack->stop, __ATOMIC_RELAXED);
}

static void *scribble_all(void *arg)
{
	struct attacker *attacker = arg;

	while (!over(attacker->attack))
		scribble(attacker);
	return NULL;
}

/* ---- submitting ------------------------------------------------------------------------ */

static bool may_be_answered(int ret)
{
	return ret == -EBUSY || ret == -ETIMEDOUT || ret == -EINTR;
}

static void *enter_all(void *arg)
{
	struct attacker *attacker = arg;
	struct attack *attack = attacker->attack;
	const struct tow_rings *rings = &attack->self->user.rings;
	int ret;

	while (!over(attack)) {
		uint64_t roll = tow_random(&attacker->random);

		if (roll % 4)
			make_room(rings, roll >> 8);
		ret = tow_enter(rings->made.fd, (__u32)(roll % 8 ? SQ_ENTRIES : roll >> 32),
				(__u32)(roll >> 16) % 4, (__u32)(roll >> 20) % 256);
		if (ret < 0) {
			attack->wrong = may_be_answered(ret) ? attack->wrong : ret;
		} else if (ret > (int)SQ_ENTRIES) {
			attack->wrong = ret;
		} else {
			__atomic_fetch_add(&attack->taken, (uint64_t)ret, __ATOMIC_RELAXED);
		}
	}
	return NULL;
}

/* ---- whoever has nothing to do with it ---------------------------------------------------- */

/* Both ways, checked: how often it went wrong. */
static unsigned int use_quietly(FIXTURE_DATA(attack) *self, unsigned int round)
{
	struct tow_sqe sqe = tow_move(&self->other, round & 1 ? TOW_OP_READ : TOW_OP_WRITE,
				      self->others_too.made.handle, 0, self->others_remote, 0,
				      OTHERS_BYTES);
	unsigned int wrong;

	tow_fill(self->others_too.at, OTHERS_BYTES, round);
	tow_fill(self->others.at, OTHERS_BYTES, round + 1);
	wrong = tow_rings_do(&self->other.rings, &sqe) != 0;
	round += round & 1;
	wrong += tow_differs(self->others.at, OTHERS_BYTES, round) != 0;
	wrong += tow_differs(self->others_too.at, OTHERS_BYTES, round) != 0;
	return wrong;
}

/* One queue, until it stands still or its time is over: entries that were taken. */
static uint64_t attack_one(FIXTURE_DATA(attack) *self, uint64_t seed, int *error)
{
	struct attacker attackers[ENTERERS + SCRIBBLERS];
	struct attack attack = { .self = self };
	double start = tow_test_now(), moved = start, now = start;
	uint64_t seen = 0, taken;
	unsigned int i;

	for (i = 0; i < ENTERERS + SCRIBBLERS; i++) {
		attackers[i] = (struct attacker) {
			.attack = &attack, .random = { seed * 16 + i + 1 },
		};
		pthread_create(&attackers[i].thread, NULL,
			       i < ENTERERS ? enter_all : scribble_all, &attackers[i]);
	}
	while (now - start < QUEUE_SECONDS && now - moved < STILL_SECONDS) {
		tow_test_sleep_ms(10);
		now = tow_test_now();
		taken = __atomic_load_n(&attack.taken, __ATOMIC_RELAXED);
		if (taken != seen)
			moved = now;
		seen = taken;
	}
	__atomic_store_n(&attack.stop, true, __ATOMIC_RELAXED);
	for (i = 0; i < ENTERERS + SCRIBBLERS; i++)
		pthread_join(attackers[i].thread, NULL);
	if (attack.wrong)
		*error = attack.wrong;
	return attack.taken;
}

/* The next queue, of the same client. */
static int renew(FIXTURE_DATA(attack) *self)
{
	struct tow_channel_open channel = { .channel = 0 };
	int ret;

	tow_rings_end(&self->user.rings);
	ret = tow_rings_make(self->user.fd, SQ_ENTRIES, 0, &self->user.rings);
	if (!ret)
		ret = tow_channel_open(self->user.rings.made.fd, self->user.peer, 0, &channel);
	self->user.channel = (__u16)channel.channel;
	return ret;
}

TEST_F_TIMEOUT(attack, anything_anywhere, 3600)
{
	uint64_t wanted = (uint64_t)tow_test_count(USUAL_ENTRIES), taken = 0;
	__u32 epoch = tow_peer_epoch(self->user.fd, self->user.peer);
	struct tow_sqe nop = { .user_data = 6 };
	double start = tow_test_now();
	unsigned int round;
	int error = 0;

	ASSERT_NE(0, epoch);
	for (round = 1; taken < wanted; round++) {
		taken += attack_one(self, round, &error);
		/* It may have stood in his way, but changed nothing of his. */
		ASSERT_EQ(0, use_quietly(self, round));
		ASSERT_EQ(0, renew(self));
	}
	TH_LOG("%llu entries of %u queues in %.1f s", (unsigned long long)taken, round - 1,
	       tow_test_now() - start);
	EXPECT_EQ(0, error);
	/* It hurt no connection either. */
	EXPECT_EQ(epoch, tow_peer_epoch(self->user.fd, self->user.peer));
	/* The client has done nothing that is forbidden: it may go on. */
	EXPECT_EQ(0, tow_rings_do(&self->user.rings, &nop));
}

TEST_HARNESS_MAIN

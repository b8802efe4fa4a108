// SPDX-License-Identifier: GPL-2.0
/*
 * Polled queues: who may have one; that entries are taken without a call, in order, as
 * whole chains, and never without room for their completions; when the poller sleeps,
 * and that nobody waits for one who does; that it is in its client's cgroup.
 *
 * What entries do, and end with, is the same as with ENTER: queue_status.c,
 * queue_order.c and queue_data.c run with pollers, too ($TOW_POLLED).
 */
#include <sys/mount.h>
#include <sys/stat.h>
#include "tow_identity.h"
#include "tow_mute.h"
#include "tow_notify.h"
#include "tow_poller.h"

#define POOL_BYTES	(4 * TOW_SLAB)
#define REGION_BYTES	(64 * TOW_KB)
#define ENTRIES		64U

/* The least: the poller sleeps as often as it can. */
#define RESTLESS_US	1

FIXTURE(poller)
{
	struct tow_knobs knobs;
	struct tow_user user;		/* its queue has no poller */
	struct tow_rings rings;
};

FIXTURE_SETUP(poller)
{
	tow_knobs_save(&self->knobs);
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_user_make(&self->user, ENTRIES, 0));
	ASSERT_EQ(0, tow_sysfs_wait("stats/pollers", 0));
}

FIXTURE_TEARDOWN(poller)
{
	tow_rings_end(&self->user.rings);
	close(self->user.fd);
	EXPECT_EQ(0, tow_sysfs_wait("stats/queues", 0));
	EXPECT_EQ(0, tow_sysfs_wait("stats/pollers", 0));
	EXPECT_TRUE(tow_poller_ends(getpid()));
	EXPECT_EQ(0, tow_knobs_restore(&self->knobs));
}

static int make(FIXTURE_DATA(poller) *self, __u32 sq, __u32 cq, __u32 idle_us)
{
	return tow_rings_make_polled(self->user.fd, sq, cq, idle_us, &self->rings);
}

/* So many completions are there, before long, without a call. */
static bool come(const struct tow_rings *rings, __u32 count)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);

	while (tow_rings_ready(rings) < count && tow_patient(&patience))
		sched_yield();
	return tow_rings_ready(rings) >= count;
}

/* NOPs, numbered: were they all put? */
static bool put_nops(struct tow_rings *rings, __u32 count, __u8 flags)
{
	struct tow_sqe nop = { .opcode = TOW_OP_NOP, .flags = flags };

	for (; count && tow_rings_put(rings, &nop); count--)
		nop.user_data++;
	return !count;
}

/* ---- who may ------------------------------------------------------------------------- */

/* Two clients, of one who has just opened the device: the second's answer, or the first's. */
static int ask_twice(enum tow_who who, int *second)
{
	int one = tow_test_open(O_RDWR), two = tow_test_open(O_RDWR), ret;
	struct tow_queue_create made;

	if (one < 0 || two < 0)
		return -EBADF;
	if (tow_become(who))
		return -ESRCH;
	ret = tow_polled_make(one, 1, 0, 0, &made);
	*second = tow_polled_make(two, 1, 0, 0, &made);
	/* Once it has ended somebody else may have one. */
	close(one);
	if (!ret && *second == -ENOSPC && tow_polled_make(two, 1, 0, 0, &made))
		return -EXFULL;
	return ret;
}

struct answers {
	int first, second;
};

static int ask_as(enum tow_who who, struct answers *answers)
{
	struct answers *said = mmap(NULL, sizeof(*said), PROT_READ | PROT_WRITE,
				    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status;
	pid_t child;

	if (said == MAP_FAILED)
		return -ENOMEM;
	fflush(NULL);
	child = fork();
	if (!child) {
		said->first = ask_twice(who, &said->second);
		_exit(0);
	}
	if (waitpid(child, &status, 0) != child || status)
		return -ECHILD;
	*answers = *said;
	return munmap(said, sizeof(*said));
}

/* Who has the right is not counted. */
TEST_F(poller, limit_is_for_others)
{
	int log = tow_log_open();	/* says it ten times in five seconds */
	struct answers got;

	ASSERT_EQ(0, make(self, 1, 0, 0));
	ASSERT_EQ(0, tow_sysfs_put("poller_limit", "1"));
	ASSERT_EQ(0, ask_as(TOW_NOBODY, &got));
	EXPECT_EQ(0, got.first);
	EXPECT_EQ(-ENOSPC, got.second);
	EXPECT_EQ(1, tow_log_count(log, "poller_limit", "with 1 used of 1"));
	EXPECT_EQ(1, tow_sysfs_get("stats/pollers"));
	close(log);
	tow_rings_end(&self->rings);
}

TEST_F(poller, who_may)
{
	static const char * const limits[] = { "0", "1", "max" };
	struct answers got;
	size_t limit;
	int who;

	tow_write_file("/proc/sys/kernel/unprivileged_userns_clone", "1");
	for (limit = 0; limit < ARRAY_SIZE(limits); limit++) {
		ASSERT_EQ(0, tow_sysfs_put("poller_limit", limits[limit]));
		for (who = 0; who < TOW_WHO_COUNT; who++) {
			bool any = who == TOW_ROOT;

			ASSERT_EQ(0, ask_as(who, &got));
			EXPECT_EQ(any || limit ? 0 : -EPERM, got.first)
				TH_LOG("%s, limit %s", tow_who_name[who], limits[limit]);
			EXPECT_EQ(any || limit > 1 ? 0 : limit ? -ENOSPC : -EPERM, got.second)
				TH_LOG("%s, limit %s", tow_who_name[who], limits[limit]);
			ASSERT_EQ(0, tow_sysfs_wait("stats/pollers", 0));
		}
	}
}

TEST_F(poller, numbers)
{
	static const struct {
		__u32 flags, idle_us;
		int ret;
		__u32 made_us;
	} cases[] = {
		{ 0, 1, -EINVAL, 0 }, { 0, 0, 0, 0 }, { TOW_QUEUE_RESULTS, 0, 0, 0 },
		{ TOW_QUEUE_RESULTS, 1, -EINVAL, 0 }, { 4, 0, -EINVAL, 0 }, { 5, 5, -EINVAL, 0 },
		{ TOW_QUEUE_POLL, 0, 0, TOW_POLL_IDLE_US }, { TOW_QUEUE_POLL, 1, 0, 1 },
		{ TOW_QUEUE_POLL, TOW_POLL_IDLE_MAX_US, 0, TOW_POLL_IDLE_MAX_US },
		{ TOW_QUEUE_POLL, TOW_POLL_IDLE_MAX_US + 1, -EINVAL, 0 },
		{ TOW_QUEUE_POLL, ~0U, -EINVAL, 0 },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		struct tow_queue_create made = {
			.size = sizeof(made), .flags = cases[i].flags, .sq_entries = 1,
			.idle_us = cases[i].idle_us,
		};

		ASSERT_EQ(cases[i].ret, tow_test_ioctl(self->user.fd, TOW_IOCTL_QUEUE_CREATE,
						       &made))
			TH_LOG("flags %u, %u us", cases[i].flags, cases[i].idle_us);
		if (cases[i].ret)
			continue;
		EXPECT_EQ(cases[i].made_us, made.idle_us);
		close(made.fd);
	}
	/* One for all, for as long as the client is there. */
	EXPECT_EQ(1, tow_sysfs_get("stats/pollers"));
}

/* ENTER takes nothing, and does not say that it would. */
TEST_F(poller, enter_takes_nothing)
{
	ASSERT_EQ(0, make(self, 4, 0, 0));
	EXPECT_EQ(-EINVAL, tow_enter(self->rings.made.fd, 1, 0, 0));
	ASSERT_TRUE(put_nops(&self->rings, 2, 0));
	ASSERT_LE(0, tow_rings_offer(&self->rings));
	EXPECT_EQ(-EINVAL, tow_enter(self->rings.made.fd, 2, 2, TOW_LONG_US));
	EXPECT_EQ(0, tow_enter(self->rings.made.fd, 0, 2, TOW_LONG_US));
	EXPECT_EQ(2, tow_rings_ready(&self->rings));
	EXPECT_EQ(-ETIMEDOUT, tow_enter(self->rings.made.fd, 0, 3, 1000));
	tow_rings_end(&self->rings);
}

/* ---- no calls ------------------------------------------------------------------------ */

#define MUTE_WRITES	300
/* Looks for a completion: many seconds, on any machine. */
#define PATIENCE	1000000000UL

struct mute {
	volatile __u64 *from, *to;
	struct tow_sqe sqe;
	int done;
};

/* Until one goes wrong, or the poller sleeps, which had to wait for a processor. */
static void write_mutely(FIXTURE_DATA(poller) *self, struct mute *mute)
{
	unsigned long patience;
	struct tow_cqe cqe;

	for (; mute->done < MUTE_WRITES; mute->done++) {
		*mute->from = (__u64)mute->done + 1;
		/* What was left when it slept is there already. */
		if (!tow_rings_untaken(&self->rings) && !tow_rings_ready(&self->rings))
			tow_rings_put(&self->rings, &mute->sqe);
		tow_rings_publish(&self->rings);
		for (patience = PATIENCE; patience && !tow_rings_ready(&self->rings); patience--)
			if (tow_rings_untaken(&self->rings) && tow_rings_need_wakeup(&self->rings))
				return;
		if (!tow_rings_take(&self->rings, &cqe) || cqe.status ||
		    *mute->to != (__u64)mute->done + 1)
			return;
	}
}

TEST_F_TIMEOUT(poller, writes_without_a_call, 60)
{
	struct tow_channel_open channel;
	struct tow_mapped own, target;
	struct mute mute = { .done = 0 };
	int woken = 0;
	__u64 remote;

	/* Long enough for whatever else the machine has to do, most of the time. */
	ASSERT_EQ(0, make(self, 8, 0, TOW_POLL_IDLE_MAX_US));
	ASSERT_EQ(0, tow_make_target(&self->user, REGION_BYTES, &own, &target, &remote));
	ASSERT_EQ(0, tow_channel_open(self->rings.made.fd, self->user.peer, 0, &channel));
	self->user.channel = (__u16)channel.channel;
	/* Awake from here on. */
	ASSERT_TRUE(put_nops(&self->rings, 1, 0));
	ASSERT_LE(0, tow_rings_offer(&self->rings));
	ASSERT_TRUE(come(&self->rings, 1));
	tow_rings_seen(&self->rings, 1);
	mute.from = (volatile __u64 *)own.at;
	mute.to = (volatile __u64 *)target.at;
	mute.sqe = tow_move(&self->user, TOW_OP_WRITE, own.made.handle, 0, remote, 0, 8);
	do {
		ASSERT_EQ(0, tow_mute_begin());
		write_mutely(self, &mute);
		ASSERT_EQ(0, tow_mute_end());
		woken += tow_rings_untaken(&self->rings) && tow_rings_offer(&self->rings) == 1;
	} while (mute.done < MUTE_WRITES && woken < MUTE_WRITES / 10 &&
		 (tow_rings_untaken(&self->rings) || come(&self->rings, 1)));
	EXPECT_EQ(MUTE_WRITES, mute.done)
		TH_LOG("not taken: %u, completed: %u, last status %d, %s, %d times before",
		       tow_rings_untaken(&self->rings), tow_rings_ready(&self->rings),
		       tow_rings_look(&self->rings, ~0U).status,
		       tow_rings_need_wakeup(&self->rings) ? "asleep" : "awake", woken);
	/* A call would have been heard. */
	ASSERT_EQ(0, tow_mute_begin());
	tow_enter(self->rings.made.fd, 0, 0, 0);
	EXPECT_EQ(1, tow_mute_end());
	tow_rings_end(&self->rings);
}

/* ---- sleeping ------------------------------------------------------------------------ */

#define RACES		1000

/* The poller goes to sleep all the time, also at that moment: no entry is left alone. */
TEST_F_TIMEOUT(poller, need_wakeup, 60)
{
	unsigned int round, woken = 0, awake = 0;
	volatile unsigned int wait;
	int ret;

	ASSERT_EQ(0, make(self, 8, 0, RESTLESS_US));
	for (round = 0; round < RACES; round++) {
		for (wait = round * 37 % 2000; wait; wait--)
			;
		ASSERT_TRUE(put_nops(&self->rings, 1, 0));
		ret = tow_rings_offer(&self->rings);
		ASSERT_LE(0, ret);
		woken += ret == 1;
		awake += ret == 0;
		ASSERT_TRUE(come(&self->rings, 1))
			TH_LOG("round %u: %s", round, ret ? "woken" : "thought to be awake");
		tow_rings_seen(&self->rings, 1);
	}
	TH_LOG("%u times it slept, %u times not", woken, awake);
	EXPECT_LT(0, woken);
	EXPECT_LT(0, awake);
	tow_rings_end(&self->rings);
}

#define TURNS		5

/*
 * It does not run.  Where it is seen to say that it sleeps it may be about to be switched
 * away, which is counted later: then another look tells.
 */
static void expect_asleep(struct __test_metadata *_metadata, const struct tow_rings *rings)
{
	pid_t poller = tow_poller_of(getpid());
	unsigned long switches = 0, later = 1;
	int turn;

	ASSERT_LT(0, poller);
	for (turn = 0; turn < TURNS && switches != later; turn++) {
		ASSERT_TRUE(tow_poller_sleeps(rings, poller));
		switches = tow_poller_switches(poller);
		ASSERT_LT(0, switches);
		tow_test_sleep_ms(200);
		later = tow_poller_switches(poller);
	}
	EXPECT_EQ(switches, later);
	EXPECT_EQ('I', tow_poller_state(poller));
}

TEST_F(poller, sleeps_when_idle)
{
	ASSERT_EQ(0, make(self, 8, 0, 0));
	expect_asleep(_metadata, &self->rings);
	ASSERT_TRUE(put_nops(&self->rings, 1, 0));
	ASSERT_LE(0, tow_rings_offer(&self->rings));
	ASSERT_TRUE(come(&self->rings, 1));
	expect_asleep(_metadata, &self->rings);
	tow_rings_end(&self->rings);
}

/*
 * Looks for as long as it was told to, which this thread may sleep away on a machine that
 * stands still now and then: what was seen too late shows nothing.
 */
TEST_F(poller, stays_awake_for_a_while)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	double began, took = 0;
	bool awake = false;
	char state = 0;
	int turns = 0;

	ASSERT_EQ(0, make(self, 8, 0, TOW_POLL_IDLE_MAX_US));
	for (; !awake && tow_patient(&patience); turns++) {
		began = tow_test_now();
		ASSERT_TRUE(put_nops(&self->rings, 1, 0));
		ASSERT_LE(0, tow_rings_offer(&self->rings));
		ASSERT_TRUE(come(&self->rings, 1));
		tow_rings_seen(&self->rings, 1);
		tow_test_sleep_ms(100);
		state = tow_poller_state(tow_poller_of(getpid()));
		awake = state == 'R' && !tow_rings_need_wakeup(&self->rings);
		took = tow_test_now() - began;
	}
	EXPECT_TRUE(awake)
		TH_LOG("%d turns, the last of %.3f s: state %c", turns, took, state);
	expect_asleep(_metadata, &self->rings);
	tow_rings_end(&self->rings);
}

/* A WAIT is in flight; it completes without the poller. */
TEST_F(poller, sleeps_while_something_is_on_its_way)
{
	struct tow_ends ends = { .slot_name = "slot", .data_name = "data" };
	struct tow_rings rings;
	struct tow_sqe sqe;
	uint64_t woken;

	ASSERT_EQ(0, tow_ends_make(&ends, 8, 8 * TOW_KB));
	ASSERT_EQ(0, tow_rings_make_polled(ends.to.fd, 8, 0, 0, &rings));
	sqe = tow_wait_for(ends.slot, tow_ends_number(&ends) + 1);
	sqe.flags = TOW_SQE_LINK;
	ASSERT_TRUE(tow_rings_put(&rings, &sqe));
	ASSERT_TRUE(put_nops(&rings, 1, 0));
	ASSERT_LE(0, tow_rings_offer(&rings));
	expect_asleep(_metadata, &rings);
	EXPECT_EQ(0, tow_rings_untaken(&rings));
	EXPECT_EQ(0, tow_rings_ready(&rings));
	woken = tow_sysfs_get("stats/poller_wakeups");
	sqe = tow_notify(&ends.from, ends.found);
	ASSERT_EQ(0, tow_rings_do(&ends.from.rings, &sqe));
	EXPECT_TRUE(come(&rings, 2));
	EXPECT_EQ(0, tow_rings_look(&rings, 0).status);
	EXPECT_EQ(0, tow_rings_look(&rings, 1).status);
	EXPECT_EQ(woken, tow_sysfs_get("stats/poller_wakeups"));
	tow_rings_end(&rings);
	tow_ends_end(&ends);
}

/* ---- turns, room, chains ------------------------------------------------------------- */

#define MANY		(TOW_SQ_ENTRIES_MAX / 2)

/* How many of the big one's were left to be taken when the small ones had been served. */
static void take_turns(struct __test_metadata *_metadata, struct tow_rings *big,
		       struct tow_rings small[2], __u32 *left)
{
	struct tow_cqe cqe;
	__u32 i;

	ASSERT_TRUE(put_nops(big, MANY, 0));
	ASSERT_TRUE(put_nops(&small[0], 1, 0));
	ASSERT_TRUE(put_nops(&small[1], 1, 0));
	ASSERT_TRUE(tow_poller_sleeps(big, tow_poller_of(getpid())));
	/* It has been told of the big one's first. */
	tow_rings_publish(big);
	ASSERT_EQ(0, tow_enter(big->made.fd, 0, 0, 0));
	ASSERT_LE(0, tow_rings_offer(&small[0]));
	ASSERT_LE(0, tow_rings_offer(&small[1]));
	for (i = 0; i < 2; i++)
		ASSERT_TRUE(come(&small[i], 1));
	*left = tow_rings_untaken(big);
	TH_LOG("%u of %u were left to be taken", *left, MANY);
	ASSERT_TRUE(come(big, MANY));
	for (i = 0; i < 2; i++)
		ASSERT_TRUE(tow_rings_take(&small[i], &cqe));
	for (i = 0; i < MANY; i++) {
		ASSERT_TRUE(tow_rings_take(big, &cqe));
		ASSERT_EQ(i, cqe.user_data);
	}
}

/*
 * Who has little is not kept waiting by who has much, wherever he stands.  This thread may
 * be kept from offering, and from looking, as long as the poller runs: then the next time
 * tells.
 */
TEST_F_TIMEOUT(poller, each_queue_has_its_turn, 60)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	struct tow_rings big, small[2];
	__u32 left = 0, turns;

	ASSERT_EQ(0, tow_rings_make_polled(self->user.fd, 1, 0, RESTLESS_US, &small[0]));
	ASSERT_EQ(0, tow_rings_make_polled(self->user.fd, MANY, MANY, RESTLESS_US, &big));
	ASSERT_EQ(0, tow_rings_make_polled(self->user.fd, 1, 0, RESTLESS_US, &small[1]));
	for (turns = 0; left <= MANY / 4 && (turns < TURNS || tow_patient(&patience)); turns++)
		take_turns(_metadata, &big, small, &left);
	EXPECT_LT(MANY / 4, left);
	tow_rings_end(&big);
	tow_rings_end(&small[0]);
	tow_rings_end(&small[1]);
}

/* Completions that nobody has dealt with are not written over. */
TEST_F(poller, no_room_for_completions)
{
	struct tow_cqe cqe;
	__u32 i;

	ASSERT_EQ(0, make(self, 8, 8, RESTLESS_US));
	ASSERT_TRUE(put_nops(&self->rings, 8, 0));
	ASSERT_LE(0, tow_rings_offer(&self->rings));
	ASSERT_TRUE(come(&self->rings, 8));
	ASSERT_TRUE(put_nops(&self->rings, 8, 0));
	ASSERT_LE(0, tow_rings_offer(&self->rings));
	/* It does not run for what it cannot take. */
	expect_asleep(_metadata, &self->rings);
	EXPECT_EQ(8, tow_rings_untaken(&self->rings));
	EXPECT_EQ(8, tow_rings_ready(&self->rings));
	for (i = 0; i < 16; i++) {
		ASSERT_TRUE(come(&self->rings, 1));
		ASSERT_TRUE(tow_rings_take(&self->rings, &cqe));
		EXPECT_EQ(i % 8, cqe.user_data);
		/* Room was made: as after an entry. */
		if (tow_rings_untaken(&self->rings))
			ASSERT_LE(0, tow_rings_offer(&self->rings));
	}
	EXPECT_EQ(0, tow_rings_ready(&self->rings));
	tow_rings_end(&self->rings);
}

/* Silent entries make room that the program knows nothing of. */
TEST_F_TIMEOUT(poller, room_that_silent_ones_make, 60)
{
	struct tow_mapped own, target;
	struct tow_channel_open channel;
	unsigned int round, i;
	struct tow_sqe sqe;
	__u64 remote;

	ASSERT_EQ(0, make(self, 8, 8, RESTLESS_US));
	ASSERT_EQ(0, tow_make_target(&self->user, TOW_SLAB, &own, &target, &remote));
	ASSERT_EQ(0, tow_channel_open(self->rings.made.fd, self->user.peer, 0, &channel));
	self->user.channel = (__u16)channel.channel;
	sqe = tow_move(&self->user, TOW_OP_WRITE, own.made.handle, 0, remote, 0, 32 * TOW_KB);
	sqe.flags = TOW_SQE_SILENT;
	for (round = 0; round < 10; round++) {
		for (i = 0; i < 8; i++)
			ASSERT_TRUE(tow_rings_put(&self->rings, &sqe));
		ASSERT_LE(0, tow_rings_offer(&self->rings));
		while (tow_rings_untaken(&self->rings))
			sched_yield();
		ASSERT_TRUE(put_nops(&self->rings, 8, 0));
		ASSERT_LE(0, tow_rings_offer(&self->rings));
		ASSERT_TRUE(come(&self->rings, 8))
			TH_LOG("round %u: %u", round, tow_rings_ready(&self->rings));
		tow_rings_seen(&self->rings, 8);
	}
	tow_rings_end(&self->rings);
}

/* Of 256 entries, the last of which is not valid: all of them end so. */
static void expect_refused(struct __test_metadata *_metadata, struct tow_rings *rings)
{
	struct tow_cqe cqe;
	__u32 i;

	ASSERT_TRUE(come(rings, 256));
	for (i = 0; i < 256; i++) {
		ASSERT_TRUE(tow_rings_take(rings, &cqe));
		ASSERT_EQ(cqe.user_data == 255 ? -EINVAL : -ECANCELED, cqe.status)
			TH_LOG("entry %llu", cqe.user_data);
	}
}

/* However long they are: none of it is taken before there is room for all of it. */
TEST_F(poller, chains_are_whole)
{
	struct tow_sqe *last;

	ASSERT_EQ(0, make(self, 256, 256, RESTLESS_US));
	last = &self->rings.sqes[255];
	ASSERT_TRUE(put_nops(&self->rings, 128, 0));
	ASSERT_LE(0, tow_rings_offer(&self->rings));
	ASSERT_TRUE(come(&self->rings, 128));
	tow_rings_seen(&self->rings, 127);
	ASSERT_TRUE(put_nops(&self->rings, 128, 0));
	ASSERT_LE(0, tow_rings_offer(&self->rings));
	ASSERT_TRUE(come(&self->rings, 129));
	tow_rings_seen(&self->rings, 128);
	ASSERT_TRUE(put_nops(&self->rings, 256, TOW_SQE_LINK));
	last->flags = 0;
	last->operand = 1;
	ASSERT_LE(0, tow_rings_offer(&self->rings));
	expect_asleep(_metadata, &self->rings);
	EXPECT_EQ(256, tow_rings_untaken(&self->rings));
	tow_rings_seen(&self->rings, 1);
	ASSERT_LE(0, tow_rings_offer(&self->rings));
	expect_refused(_metadata, &self->rings);
	tow_rings_end(&self->rings);
}

/* A chain whose end is not there waits for it; one that cannot have an end is no chain. */
TEST_F(poller, chains_have_an_end)
{
	ASSERT_EQ(0, make(self, 4, 4, RESTLESS_US));
	ASSERT_TRUE(put_nops(&self->rings, 1, TOW_SQE_LINK));
	ASSERT_LE(0, tow_rings_offer(&self->rings));
	expect_asleep(_metadata, &self->rings);
	EXPECT_EQ(0, tow_enter(self->rings.made.fd, 0, 0, 0));
	EXPECT_EQ(1, tow_rings_untaken(&self->rings));
	ASSERT_TRUE(put_nops(&self->rings, 1, 0));
	ASSERT_LE(0, tow_rings_offer(&self->rings));
	ASSERT_TRUE(come(&self->rings, 2));
	tow_rings_seen(&self->rings, 2);
	ASSERT_TRUE(put_nops(&self->rings, 4, TOW_SQE_LINK));
	tow_rings_publish(&self->rings);
	EXPECT_EQ(-EINVAL, tow_enter(self->rings.made.fd, 0, 0, 0));
	expect_asleep(_metadata, &self->rings);
	EXPECT_EQ(4, tow_rings_untaken(&self->rings));
	/* The last one is at place 1. */
	self->rings.sqes[1].flags = 0;
	EXPECT_EQ(0, tow_enter(self->rings.made.fd, 0, 4, TOW_LONG_US));
	EXPECT_EQ(4, tow_rings_ready(&self->rings));
	tow_rings_end(&self->rings);
}

/* ---- cgroups -------------------------------------------------------------------------- */

#define GROUP	"tow_poller_test"

/* The line of the one hierarchy that we have mounted: 0::PATH */
static bool is_in_group(pid_t pid)
{
	char path[64], line[512];
	bool found = false;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		found |= !strcmp(line, "0::/" GROUP "\n");
	if (file)
		fclose(file);
	return found;
}

/* 0, or the number of what was wrong. */
static int ask_in_group(void *arg)
{
	char file[300], pid[32];
	struct tow_rings rings;
	int fd;

	snprintf(file, sizeof(file), "%s/" GROUP "/cgroup.procs", (const char *)arg);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	if (tow_write_file(file, pid) || !is_in_group(getpid()))
		return -1;
	fd = tow_test_open(O_RDWR);
	if (fd < 0 || tow_rings_make_polled(fd, 1, 0, 0, &rings))
		return -2;
	return is_in_group(tow_poller_of(getpid())) ? 0 : -3;
}

TEST_F(poller, is_in_its_clients_cgroup)
{
	char root[] = "/tmp/tow_cgroup_XXXXXX", group[300];
	struct tow_patience patience;
	int ret;

	ASSERT_NE(NULL, mkdtemp(root));
	ASSERT_EQ(0, mount("none", root, "cgroup2", 0, NULL));
	snprintf(group, sizeof(group), "%s/" GROUP, root);
	ASSERT_EQ(0, mkdir(group, 0755));
	EXPECT_EQ(0, tow_as(TOW_ROOT, ask_in_group, root));
	patience = tow_patience(TOW_SETTLE_SECONDS);
	/* Nobody is left there, before long: its process has ended, and its poller ends. */
	while ((ret = rmdir(group)) && errno == EBUSY && tow_patient(&patience))
		tow_test_sleep_ms(10);
	EXPECT_EQ(0, ret);
	EXPECT_EQ(0, umount(root));
	EXPECT_EQ(0, rmdir(root));
}

TEST_HARNESS_MAIN

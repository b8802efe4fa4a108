// SPDX-License-Identifier: GPL-2.0
/*
 * The ranks of groups, which are threads here and processes of a node that is played: they meet, tell
 * each other things, and are too many, or leave, or die, or stand still.
 */
/* build: also tsan */
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

#include <kselftest.h>
#include <towline/bootstrap.h>

#include "../pump/line.h"
#include "tow_node.h"

#define WAIT_MS		30000U
#define SOON_MS		2000U
#define MANY		20U
#define RANKS_MAX	MANY
/* More than the first has lines for. */
#define STRANGERS	80

/* A rank: what it is, what it does when all have met, and what came of it. */
struct rank {
	pthread_t thread;
	int index;			/* of its process */
	uint32_t rank, ranks;
	uint32_t timeout_ms;
	const char *name;
	int (*then)(struct rank *rank);
	bool stands, ends;		/* what it does when it may: stand still; end its call */
	struct tow_group *group;
	int ret;			/* of meeting, or else of what it does then, */
	uint32_t blamed;		/* and who is to blame for that */
	sem_t go_on;
	bool joined;
};

static struct rank ranks[NODE_PROCESSES];
static int processes;

/* Who has met. */
static sem_t there;

/* Asked in a call that waits, whenever it goes on. */
static int ask(void *arg)
{
	struct rank *me = arg;

	if (me->stands) {
		me->stands = false;
		sem_post(&there);
		sem_wait(&me->go_on);
	}
	return me->ends;
}

static void *take_part(void *arg)
{
	struct rank *me = arg;
	struct tow_world world = { .size = sizeof(world), .rank = me->rank, .world_size = me->ranks,
				   .session = "unit" };
	const struct tow_group_attr attr = { .size = sizeof(attr), .timeout_ms = me->timeout_ms,
					     .name = me->name, .address = "192.0.2.1" };

	tow_on_signal(ask, me);
	me->ret = tow_group_create(&node_device[me->index], &world, &attr, &me->group, &me->blamed);
	if (me->ret)
		return NULL;
	sem_post(&there);
	me->ret = me->then(me);
	return NULL;
}

static struct rank *start(struct rank given)
{
	struct rank *me = &ranks[processes];

	*me = given;
	me->index = processes++;
	me->timeout_ms = me->timeout_ms ? me->timeout_ms : WAIT_MS;
	sem_init(&me->go_on, 0, 0);
	if (pthread_create(&me->thread, NULL, take_part, me))
		ksft_exit_fail_msg("no thread\n");
	return me;
}

static void wait_until_there(uint32_t count)
{
	while (count--)
		sem_wait(&there);
}

static void join(struct rank *me)
{
	if (!me->joined)
		pthread_join(me->thread, NULL);
	me->joined = true;
}

/* It ended so, and its group with it. */
static bool ended(struct rank *me, int ret, uint32_t blamed)
{
	join(me);
	if (!node.processes[me->index].dead)
		tow_group_destroy(me->group);
	if (me->ret == ret && me->blamed == blamed)
		return true;
	ksft_print_msg("rank %u: %d, and %d is to blame\n", me->rank, me->ret, (int)me->blamed);
	return false;
}

/* Nothing of all these processes is left, and they may be others. */
static bool all_gone(void)
{
	bool good = true;

	for (uint32_t i = 1; i <= node.used; i++) {
		if (!node.objects[i].kind)
			continue;
		good = good && node.processes[node.objects[i].process].dead;
		node.objects[i].kind = 0;
	}
	for (int i = 0; i < processes; i++) {
		good = good && !node_waits(i);
		node_forget(i);
	}
	processes = 0;
	while (!sem_trywait(&there))
		;
	return good;
}

/* ---- what they do ---- */

static int gather_bytes(struct rank *me, uint32_t round, size_t bytes)
{
	unsigned char mine[TOW_GROUP_GATHER_MAX], all[RANKS_MAX * TOW_GROUP_GATHER_MAX];
	int ret;

	memset(mine, (int)(me->rank * 5 + round), sizeof(mine));
	ret = tow_group_gather(me->group, bytes ? mine : NULL, bytes, bytes ? all : NULL,
			       &me->blamed);
	for (size_t i = 0; !ret && i < me->ranks * bytes; i++)
		if (all[i] != (unsigned char)(i / bytes * 5 + round))
			ret = -EBADMSG;
	return ret;
}

static int tell_each_other(struct rank *me)
{
	static const size_t sizes[] = { 8, 1, TOW_GROUP_GATHER_MAX, 0, 100 };
	int ret = 0;

	for (uint32_t round = 0; !ret && round < 10; round++)
		ret = gather_bytes(me, round, sizes[round % 5]);
	return ret;
}

static int tell_once(struct rank *me)
{
	sem_wait(&me->go_on);
	return gather_bytes(me, 0, 8);
}

static int tell_less(struct rank *me)
{
	sem_wait(&me->go_on);
	return gather_bytes(me, 0, 4);
}

static int stand_still(struct rank *me)
{
	me->stands = true;
	return gather_bytes(me, 0, 8);
}

static int be_ended(struct rank *me)
{
	sem_wait(&me->go_on);
	me->ends = true;
	return gather_bytes(me, 0, 8);
}

static int leave(struct rank *me)
{
	sem_wait(&me->go_on);
	tow_group_destroy(me->group);
	me->group = NULL;
	return 0;
}

static int nothing(struct rank *me)
{
	sem_wait(&me->go_on);
	return 0;
}

/* ---- they meet ---- */

static bool meet(uint32_t count, int (*then)(struct rank *rank))
{
	bool good = true;

	for (uint32_t rank = count; rank--;)
		start((struct rank){ .rank = rank, .ranks = count, .then = then });
	for (uint32_t i = 0; i < count; i++)
		good = ended(&ranks[i], 0, TOW_NO_RANK) && good;
	return all_gone() && good;
}

static void test_meeting(void)
{
	bool good = true;

	ksft_test_result(meet(1, tell_each_other), "one\n");
	ksft_test_result(meet(5, tell_each_other), "some, the first one last\n");
	ksft_test_result(meet(MANY, tell_each_other), "more than there is room to tell of at once\n");
	for (uint32_t rank = 0; rank < 2; rank++)
		for (int i = 0; i < 2; i++)
			start((struct rank){ .rank = rank, .ranks = 2, .then = tell_each_other,
					     .name = i ? "other" : NULL });
	for (int i = 0; i < 4; i++)
		good = ended(&ranks[i], 0, TOW_NO_RANK) && good;
	ksft_test_result(all_gone() && good, "two groups\n");
}

/* ---- who does not come ---- */

static void test_missing(void)
{
	bool good;

	for (uint32_t rank = 0; rank < 2; rank++)
		start((struct rank){ .rank = rank, .ranks = 3, .timeout_ms = SOON_MS });
	good = ended(&ranks[0], -ETIMEDOUT, 2);
	good = ended(&ranks[1], -ETIMEDOUT, 2) && good;
	ksft_test_result(all_gone() && good, "one does not come, and all say which\n");
	/* Rank 0's time would not be over for long. */
	for (uint32_t rank = 0; rank < 2; rank++)
		start((struct rank){ .rank = rank, .ranks = 3, .timeout_ms = rank ? SOON_MS : 0 });
	good = ended(&ranks[1], -ETIMEDOUT, 2);
	good = ended(&ranks[0], -ETIMEDOUT, 2) && good;
	ksft_test_result(all_gone() && good, "who has less time hears it, too\n");
	start((struct rank){ .rank = 1, .ranks = 2, .timeout_ms = SOON_MS });
	good = ended(&ranks[0], -ETIMEDOUT, 0);
	ksft_test_result(all_gone() && good, "the first does not come\n");
	for (uint32_t rank = 0; rank < 2; rank++)
		start((struct rank){ .rank = rank, .ranks = 2, .timeout_ms = rank ? SOON_MS : 0,
				     .then = rank ? tell_once : nothing });
	wait_until_there(2);
	sem_post(&ranks[1].go_on);
	good = ended(&ranks[1], -ETIMEDOUT, 0);
	sem_post(&ranks[0].go_on);
	good = ended(&ranks[0], 0, TOW_NO_RANK) && good;
	ksft_test_result(all_gone() && good, "the first does something else\n");
}

/* One joins when the first's time is over, and is told so before it knows that it has joined. */
static void test_joins_late(void)
{
	bool good;

	/* It has begun a line, and joins. */
	node_freeze(1, 2);
	start((struct rank){ .rank = 0, .ranks = 3, .timeout_ms = SOON_MS });
	start((struct rank){ .rank = 1, .ranks = 3, .timeout_ms = 5 * SOON_MS });
	good = ended(&ranks[0], -ETIMEDOUT, 1);
	node_freeze(1, 0);
	good = ended(&ranks[1], -ETIMEDOUT, 1) && good;
	ksft_test_result(all_gone() && good, "one joins late\n");
}

/* What the first has said last is there when it has gone. */
static void test_late(void)
{
	int (*const then[])(struct rank *rank) = { tell_once, stand_still, nothing };
	bool good;

	for (uint32_t rank = 0; rank < 3; rank++)
		start((struct rank){ .rank = rank, .ranks = 3, .then = then[rank],
				     .timeout_ms = rank ? 0 : SOON_MS });
	/* All have met, and the second has told. */
	wait_until_there(4);
	sem_post(&ranks[0].go_on);
	good = ended(&ranks[0], -ETIMEDOUT, 2);
	sem_post(&ranks[1].go_on);
	good = ended(&ranks[1], -ETIMEDOUT, 2) && good;
	sem_post(&ranks[2].go_on);
	good = ended(&ranks[2], 0, TOW_NO_RANK) && good;
	ksft_test_result(all_gone() && good, "who stands still meanwhile hears it, too\n");
}

/* ---- others of that name ---- */

static void test_twins(void)
{
	struct rank *twin;
	bool good = true;

	for (int i = 0; i < 2; i++)
		start((struct rank){ .rank = 0, .ranks = 2 });
	good = ended(&ranks[0], -EEXIST, TOW_NO_RANK);
	good = ended(&ranks[1], -EEXIST, TOW_NO_RANK) && good;
	ksft_test_result(all_gone() && good, "two that are first\n");
	for (int i = 0; i < 3; i++)
		start((struct rank){ .rank = (uint32_t)!!i, .ranks = 3 });
	good = true;
	for (int i = 0; i < 3; i++)
		good = ended(&ranks[i], -EEXIST, TOW_NO_RANK) && good;
	ksft_test_result(all_gone() && good, "two that are second\n");
	for (uint32_t rank = 0; rank < 2; rank++)
		start((struct rank){ .rank = rank, .ranks = 2, .then = tell_once });
	wait_until_there(2);
	good = true;
	for (uint32_t i = 0; i < 6; i++) {
		twin = start((struct rank){ .rank = i % 2, .ranks = 2 });
		good = ended(twin, -EEXIST, TOW_NO_RANK) && good;
	}
	for (int i = 0; i < 2; i++)
		sem_post(&ranks[i].go_on);
	good = ended(&ranks[0], 0, TOW_NO_RANK) && good;
	good = ended(&ranks[1], 0, TOW_NO_RANK) && good;
	ksft_test_result(all_gone() && good, "ranks that have met are left alone\n");
	start((struct rank){ .rank = 0, .ranks = 2, .then = tell_each_other });
	good = true;
	for (int i = 0; i < STRANGERS; i++) {
		twin = start((struct rank){ .rank = 1, .ranks = 3 });
		good = ended(twin, -EPROTO, TOW_NO_RANK) && good;
	}
	twin = start((struct rank){ .rank = 1, .ranks = 2, .then = tell_each_other });
	good = ended(&ranks[0], 0, TOW_NO_RANK) && good;
	good = ended(twin, 0, TOW_NO_RANK) && good;
	ksft_test_result(all_gone() && good, "many that have another number of ranks in mind\n");
}

/* ---- they end ---- */

enum how { LEAVES, IS_ENDED, DIES };

/* Of those who were killed: nobody ends them. */
static struct tow_group *lost[RANKS_MAX];
static uint32_t lost_count;

static bool goes(uint32_t who, enum how how, int others)
{
	int (*const then[])(struct rank *rank) = { leave, be_ended, nothing };
	bool good = true;

	for (uint32_t rank = 0; rank < 3; rank++)
		start((struct rank){ .rank = rank, .ranks = 3,
				     .then = rank == who ? then[how] : tell_once });
	wait_until_there(3);
	if (how == DIES) {
		lost[lost_count++] = ranks[who].group;
		node_kill(ranks[who].index);
	}
	sem_post(&ranks[who].go_on);
	good = ended(&ranks[who], how == IS_ENDED ? -EINTR : 0, TOW_NO_RANK);
	for (uint32_t rank = 0; rank < 3; rank++) {
		if (rank == who)
			continue;
		sem_post(&ranks[rank].go_on);
	}
	for (uint32_t rank = 0; rank < 3; rank++)
		good = (rank == who || ended(&ranks[rank], others, who)) && good;
	return all_gone() && good;
}

/* What it has begun is over, though nobody waits. */
static void let_end(const struct rank *me)
{
	pthread_mutex_lock(&node.lock);
	while (node_is_busy(me->index))
		node_turn_locked();
	pthread_mutex_unlock(&node.lock);
}

/* As the signal may be for something else. */
static void test_signal(void)
{
	bool good;

	for (uint32_t rank = 0; rank < 3; rank++)
		start((struct rank){ .rank = rank, .ranks = 3,
				     .then = rank == 1 ? be_ended : tell_once });
	wait_until_there(3);
	sem_post(&ranks[1].go_on);
	join(&ranks[1]);
	let_end(&ranks[1]);
	sem_post(&ranks[0].go_on);
	sem_post(&ranks[2].go_on);
	good = ended(&ranks[0], -ECANCELED, 1);
	good = ended(&ranks[2], -ECANCELED, 1) && good;
	good = ended(&ranks[1], -EINTR, TOW_NO_RANK) && good;
	ksft_test_result(all_gone() && good, "one is interrupted, and does something else\n");
}

static void test_disagreement(void)
{
	bool good = true;

	for (uint32_t rank = 0; rank < 3; rank++) {
		start((struct rank){ .rank = rank, .ranks = 3,
				     .then = rank == 2 ? tell_less : tell_once });
		sem_post(&ranks[rank].go_on);
	}
	for (uint32_t rank = 0; rank < 3; rank++)
		good = ended(&ranks[rank], -EPROTO, 2) && good;
	ksft_test_result(all_gone() && good, "one tells less than others\n");
}

static void test_ends(void)
{
	ksft_test_result(goes(1, LEAVES, -ECANCELED), "one leaves\n");
	ksft_test_result(goes(0, LEAVES, -ESTALE), "the first leaves\n");
	ksft_test_result(goes(1, IS_ENDED, -ECANCELED), "one is interrupted\n");
	ksft_test_result(goes(0, IS_ENDED, -ECANCELED), "the first is interrupted\n");
	ksft_test_result(goes(1, DIES, -ESTALE), "one is killed\n");
	ksft_test_result(goes(0, DIES, -ESTALE), "the first is killed\n");
}

/* ---- what the first lacks ---- */

/* It ended soon, in one of two ways, and the first is to blame. */
static bool ended_by_first(struct rank *me, int one, int other)
{
	uint64_t before = towi_now_ns();

	join(me);
	return ended(me, me->ret == one ? one : other, 0) &&
	       towi_now_ns() - before < WAIT_MS * 500000ULL;
}

static void test_lacks(void)
{
	bool good;

	for (uint32_t rank = 0; rank < 3; rank++)
		start((struct rank){ .rank = rank, .ranks = 3, .then = tell_once });
	wait_until_there(3);
	sem_post(&ranks[0].go_on);
	usleep(100000);
	node_refuse(&node.processes[0].no_enter, -ENODEV);
	good = ended(&ranks[0], -ENODEV, 0);
	for (uint32_t rank = 1; rank < 3; rank++) {
		sem_post(&ranks[rank].go_on);
		good = ended(&ranks[rank], -ESTALE, 0) && good;
	}
	ksft_test_result(all_gone() && good, "the first has no device any more\n");
	node_refuse(&node.processes[0].no_channel, -ENOSPC);
	start((struct rank){ .rank = 0, .ranks = 2, .then = nothing });
	start((struct rank){ .rank = 1, .ranks = 2, .then = nothing, .timeout_ms = SOON_MS });
	good = ended_by_first(&ranks[0], -ENOSPC, -ENOSPC);
	/* It may have tried again, and not have found it. */
	good = ended_by_first(&ranks[1], -ESTALE, -ETIMEDOUT) && good;
	ksft_test_result(all_gone() && good, "the first cannot answer\n");
	start((struct rank){ .rank = 0, .ranks = 2, .then = nothing });
	while (!node_knows("towline/group/unit/0/"))
		usleep(1000);
	node_refuse(&node.processes[0].no_export, -EDQUOT);
	/* They have what two ranks need. */
	for (int i = 1; i < 3; i++) {
		start((struct rank){ .rank = 1, .ranks = 3 });
		join(&ranks[i]);
	}
	good = ended_by_first(&ranks[0], -EDQUOT, -EDQUOT);
	ksft_test_result(all_gone() && good, "nobody can come to the first any more\n");
}

/* ---- who is of no group ---- */

/* One that is not in any says there what only lines say. */
static bool say_bye(int index)
{
	const struct tow_worker_attr attr = { .size = sizeof(attr), .entries = 16 };
	const struct tow_arena_attr small = { .size = sizeof(small), .region_bytes = 1 << 21 };
	const struct towi_record record = { .kind = TOWI_MESSAGE, .port = 1, .generation = 1,
					    .tag = TOWI_PORT_BYE };
	struct tow_worker *worker;
	struct tow_mailbox *box;
	struct tow_arena *arena;
	struct tow_peer *peer;
	struct tow_line *line;
	int ret;

	if (tow_arena_create(&node_device[index], &small, &arena) ||
	    tow_worker_create(&node_device[index], arena, &attr, &worker) ||
	    tow_mailbox_create(worker, NULL, NULL, &box) ||
	    tow_peer_connect(&node_device[index], "192.0.2.1", NULL, WAIT_MS, &peer) ||
	    tow_mailbox_connect(box, peer, "towline/group/unit/0/", WAIT_MS, &line) ||
	    tow_mailbox_wait(box, line, TOW_MAILBOX_ROOM, SOON_MS * 1000) < 0)
		return false;
	towi_pump_lock(&worker->pump);
	ret = towi_line_send(line, &record, "", 1);
	towi_pump_unlock(&worker->pump);
	/* It is there when the line is closed. */
	tow_mailbox_close(line);
	tow_mailbox_destroy(box);
	tow_worker_destroy(worker);
	tow_peer_release(peer);
	return !tow_arena_destroy(arena) && !ret;
}

static void test_stranger(void)
{
	bool good;

	for (uint32_t rank = 0; rank < 2; rank++)
		start((struct rank){ .rank = rank, .ranks = 2, .then = tell_once });
	wait_until_there(2);
	good = say_bye(processes++);
	for (uint32_t rank = 0; rank < 2; rank++)
		sem_post(&ranks[rank].go_on);
	for (uint32_t rank = 0; rank < 2; rank++)
		good = ended(&ranks[rank], 0, TOW_NO_RANK) && good;
	ksft_test_result(all_gone() && good, "who is of no group cannot end it\n");
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(26);
	node_begin();
	sem_init(&there, 0, 0);
	test_meeting();
	test_missing();
	test_joins_late();
	test_late();
	test_twins();
	test_disagreement();
	test_ends();
	test_signal();
	test_lacks();
	test_stranger();
	ksft_finished();
}

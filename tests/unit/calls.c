// SPDX-License-Identifier: GPL-2.0
/*
 * Calls (tow_allreduce() and its like) of ranks which are threads here and processes of a node that
 * is played: all kinds, many at once, together, by many threads; ranks that make different calls,
 * die, abort, leave early, or are refused something; and rank 0's numbers by which all choose.
 */
/* build: also tsan */
/* build: link -Wl,--wrap=towi_group_gather */
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

#include <kselftest.h>
#include <towline/collective.h>

#include "../bootstrap/inside.h"
#include "tow_calls.h"

#define KILLS		(SLOW ? 12U : 50U)
#define ABORTS		(SLOW ? 8U : 20U)

/* ---- all kinds --------------------------------------------------------------- */

static int do_count(struct rank *me, uint64_t count)
{
	uint32_t salt = 0;
	int wrong = 0;

	for (uint32_t kind = 0; kind < KINDS; kind++)
		for (uint32_t way = 0; way <= TOW_ALGORITHM_TREE; way++)
			for (uint32_t i = 0; !wrong && i < 4 && ways[kind] & 1U << way; i++)
				wrong = do_one(me, (struct how){
					.kind = kind, .algorithm = way, .count = count,
					.root = salt % me->ranks, .outside = i & 1,
					.apart = i & 2, .salt = salt++ });
	return wrong;
}

static int do_all_kinds(struct rank *me)
{
	static const uint32_t counts[] = { 0, 1, 1000, 70001 };
	int wrong = 0;

	for (uint32_t i = 0; !wrong && i < 4 - SLOW; i++)
		wrong = do_count(me, counts[i]);
	return wrong;
}

/* What would take too long with all of it. */
static int do_large(struct rank *me)
{
	int wrong = 0;

	for (uint32_t kind = 0; kind < KINDS; kind++)
		for (uint32_t way = 0; way <= TOW_ALGORITHM_TREE; way++)
			if (!wrong && ways[kind] & 1U << way)
				wrong = do_one(me, (struct how){
					.kind = kind, .algorithm = way, .count = SLOW ? 100003 : 400003,
					.root = kind % me->ranks, .outside = (kind + way) & 1,
					.apart = way & 2, .salt = way });
	return wrong;
}

static int do_small(struct rank *me)
{
	static const uint32_t counts[] = { 0, 1, 1000 };
	int wrong = 0;

	for (uint32_t i = 0; !wrong && i < 3; i++)
		wrong = do_count(me, counts[i]);
	return wrong;
}

static void test_kinds(void)
{
	for (uint32_t count = 1; count <= 5; count++) {
		ksft_test_result(all_do(count, do_all_kinds), "all kinds: %u\n", count);
		ksft_test_result(all_do(count, do_large), "large ones: %u\n", count);
	}
	ksft_test_result(all_do(9, do_small), "all kinds: 9\n");
	ksft_test_result(all_do(17, do_small), "all kinds: 17\n");
}

/* ---- many at once ------------------------------------------------------------ */

#define AT_ONCE		200U

static int do_many(struct rank *me)
{
	struct call calls[AT_ONCE];
	uint32_t i, other;
	int wrong = 0;

	for (i = 0; i < AT_ONCE; i++) {
		calls[i].how = own(me, nth(i, me->ranks));
		prepare(me, &calls[i]);
		linger(me);
		me->ret = make(me, &calls[i], false);
		if (me->ret)
			return __LINE__;
	}
	for (i = AT_ONCE; !wrong && i; i--) {
		struct call last = calls[i - 1];

		other = chance(&me->seed, i);
		wrong = finish(me, &calls[other]);
		calls[other] = last;
	}
	return wrong;
}

/* Nobody waits for others when all is done. */
static int do_and_leave(struct rank *me)
{
	struct call call;
	int wrong = 0;

	for (uint32_t i = 0; !wrong && i < 10; i++) {
		call.how = own(me, nth(i + 1000, me->ranks));
		prepare(me, &call);
		linger(me);
		me->ret = make(me, &call, true);
		wrong = !me->ret && is_right(me, &call) ? 0 : __LINE__;
		end_call(me, &call);
	}
	return wrong;
}

static void test_many(void)
{
	bool good = true;

	ksft_test_result(all_do(2, do_many) && all_do(4, do_many), "many at once\n");
	for (variant = 0; variant < 8; variant++)
		good = all_do(2 + variant % 3, do_and_leave) && good;
	variant = 0;
	ksft_test_result(good, "they leave after the last one\n");
}

/* ---- threads ----------------------------------------------------------------- */

#define HELPERS		5U
#define EACH		24U

struct helper {
	pthread_t thread;
	uint32_t what;			/* 3: tests; 4: frees; else: waits */
	struct rank *rank;
	struct call calls[EACH];
	sem_t made;
	int wrong;
};

static int look_after(struct helper *helper, struct call *call)
{
	int ret = 0;

	if (helper->what == 4) {
		tow_work_free(call->work);
		return 0;
	}
	while (!ret) {
		if (helper->what == 3)
			node_turn();
		ret = helper->what == 3 ? tow_work_test(call->work, NULL) :
					  tow_work_wait(call->work, 3000, NULL);
	}
	if (ret != 1)
		return __LINE__;
	tow_work_free(call->work);
	return is_right(helper->rank, call) ? 0 : __LINE__;
}

static void *help(void *arg)
{
	struct helper *helper = arg;

	for (uint32_t i = 0; i < EACH; i++) {
		sem_wait(&helper->made);
		if (!helper->wrong)
			helper->wrong = look_after(helper, &helper->calls[i]);
	}
	return NULL;
}

/* Until all have ended at all ranks: those that were freed do while there are others. */
static int end_freed(struct rank *me, uint64_t made)
{
	struct tow_comm_stats stats = { .size = sizeof(stats) };
	float left;

	do {
		me->ret = tow_comm_stats(me->comm, &stats);
		left = stats.calls < made;
		if (!me->ret)
			me->ret = tow_allreduce(me->comm, NULL, &left, 1, f32, TOW_SUM, NULL, NULL);
		made++;
	} while (!me->ret && left > 0);
	return me->ret ? __LINE__ : 0;
}

static int join_helpers(struct rank *me, struct helper *helpers)
{
	int wrong = 0;

	for (uint32_t i = 0; i < HELPERS; i++) {
		pthread_join(helpers[i].thread, NULL);
		if (!wrong)
			wrong = helpers[i].wrong;
	}
	if (!wrong)
		wrong = end_freed(me, (uint64_t)HELPERS * EACH);
	for (uint32_t i = 0; !wrong && i < HELPERS * EACH; i++) {
		struct call *call = &helpers[i % HELPERS].calls[i / HELPERS];

		wrong = is_right(me, call) ? 0 : __LINE__;
		end_call(me, call);
	}
	return wrong;
}

static int do_with_helpers(struct rank *me)
{
	struct helper *helpers = calloc(HELPERS, sizeof(*helpers));
	int wrong;

	for (uint32_t i = 0; i < HELPERS; i++) {
		helpers[i].what = i;
		helpers[i].rank = me;
		sem_init(&helpers[i].made, 0, 0);
		if (pthread_create(&helpers[i].thread, NULL, help, &helpers[i]))
			ksft_exit_fail_msg("no thread\n");
	}
	for (uint32_t i = 0; i < HELPERS * EACH; i++) {
		struct helper *helper = &helpers[i % HELPERS];
		struct call *call = &helper->calls[i / HELPERS];

		call->how = own(me, nth(i + 2000, me->ranks));
		prepare(me, call);
		linger(me);
		if (make(me, call, false))
			ksft_exit_fail_msg("a call cannot be made\n");
		sem_post(&helper->made);
	}
	wrong = join_helpers(me, helpers);
	free(helpers);
	return wrong;
}

/* Threads that make the same calls, in whatever order. */
static void *make_same(void *arg)
{
	struct rank me = *(struct rank *)arg;
	intptr_t wrong = 0;

	for (uint32_t i = 0; !wrong && i < 20; i++) {
		struct call call = { .how = { .count = 40000 } };

		prepare(&me, &call);
		wrong = make(&me, &call, false) ? __LINE__ : finish(&me, &call);
	}
	return (void *)wrong;
}

static int do_by_threads(struct rank *me)
{
	pthread_t threads[3];
	void *wrong;
	int any = 0;

	for (uint32_t i = 0; i < 3; i++)
		if (pthread_create(&threads[i], NULL, make_same, me))
			ksft_exit_fail_msg("no thread\n");
	for (uint32_t i = 0; i < 3; i++) {
		pthread_join(threads[i], &wrong);
		any = any ? any : (int)(intptr_t)wrong;
	}
	return any;
}

static void test_threads(void)
{
	ksft_test_result(all_do(3, do_with_helpers), "threads wait, test and free\n");
	ksft_test_result(all_do(3, do_by_threads), "threads make calls\n");
}

/* ---- calls that begin together ----------------------------------------------- */

#define TOGETHER	12U

/* Another rank's may have come long before. */
static int make_together(struct rank *me, struct call *calls, uint32_t round)
{
	for (uint32_t i = 0; i < TOGETHER; i++) {
		calls[i].how = own(me, nth(i + 4000 + round * TOGETHER, me->ranks));
		prepare(me, &calls[i]);
		if (i == round % TOGETHER && (round + me->rank) % 2)
			usleep(20000);
		me->ret = make(me, &calls[i], false);
		if (me->ret)
			return __LINE__;
	}
	return tow_barrier(me->comm, NULL, NULL) == -EBUSY ? 0 : __LINE__;
}

/* Twice, of which the first end ends nothing. */
static int do_round_together(struct rank *me, uint32_t round, struct call *calls)
{
	struct tow_comm_stats before = { .size = sizeof(before) }, after = before;
	int wrong = 0;

	for (uint32_t i = 0; !wrong && i < 2; i++)
		wrong = tow_calls_begin(me->comm);
	if (wrong || tow_comm_stats(me->comm, &before))
		return __LINE__;
	wrong = make_together(me, calls, round);
	if (wrong)
		return wrong;
	if (tow_calls_end(me->comm) || tow_comm_stats(me->comm, &after))
		return __LINE__;
	/* Another thread may have been going on. */
	if (!comm_attr.flags && memcmp(&before, &after, sizeof(after)))
		return __LINE__;
	if (tow_calls_end(me->comm) || tow_calls_end(me->comm) != -EINVAL)
		return __LINE__;
	for (uint32_t i = 0; !wrong && i < TOGETHER; i++)
		wrong = finish(me, &calls[i]);
	return wrong;
}

static int do_together(struct rank *me)
{
	struct call calls[TOGETHER];
	int wrong = 0;

	for (uint32_t round = 0; !wrong && round < EACH; round++)
		wrong = do_round_together(me, round, calls);
	return wrong;
}

/* What began before goes on, or not, and somebody waits for it. */
static int do_together_and_wait(struct rank *me)
{
	struct helper *helper = calloc(1, sizeof(*helper));
	struct call calls[TOGETHER];
	int wrong = 0;

	helper->rank = me;
	sem_init(&helper->made, 0, 0);
	if (pthread_create(&helper->thread, NULL, help, helper))
		ksft_exit_fail_msg("no thread\n");
	for (uint32_t round = 0; round < EACH; round++) {
		struct call *call = &helper->calls[round];

		call->how = own(me, nth(round + 5000, me->ranks));
		prepare(me, call);
		if (make(me, call, false))
			ksft_exit_fail_msg("a call cannot be made\n");
		sem_post(&helper->made);
		if (!wrong)
			wrong = do_round_together(me, round, calls);
	}
	pthread_join(helper->thread, NULL);
	wrong = wrong ? wrong : helper->wrong;
	for (uint32_t round = 0; round < EACH; round++)
		end_call(me, &helper->calls[round]);
	free(helper);
	return wrong;
}

/* Longer than a rank waits before it doubts others. */
#define A_WHILE_US	(3 * TOWI_PROBE_US)

/* What comes meanwhile is there afterwards, also of a rank that has left. */
static int do_while_one_leaves(struct rank *me)
{
	struct call call = { .how = { .kind = TOW_BROADCAST, .count = 10, .root = 1 } };
	int wrong;

	prepare(me, &call);
	if (!me->rank && tow_calls_begin(me->comm))
		return __LINE__;
	me->ret = make(me, &call, false);
	if (me->ret)
		return __LINE__;
	if (!me->rank) {
		usleep(A_WHILE_US);
		if (tow_calls_end(me->comm))
			return __LINE__;
	}
	wrong = finish(me, &call);
	tow_comm_destroy(me->comm);
	me->comm = NULL;
	return wrong;
}

/* A letter whose time is over before they begin. */
static int do_late_letter(struct rank *me)
{
	const struct tow_call_attr soon = { .size = sizeof(soon), .timeout_ms = 1 };
	struct tow_work *work;
	float nothing;
	int ret;

	if (tow_calls_begin(me->comm) ||
	    tow_receive(me->comm, &nothing, 1, f32, TOW_ANY_RANK, 5, &soon, &work))
		return __LINE__;
	usleep(A_WHILE_US);
	if (tow_calls_end(me->comm))
		return __LINE__;
	ret = tow_work_wait(work, TOW_WAIT_FOREVER, NULL);
	tow_work_free(work);
	return ret == -ETIMEDOUT ? do_one(me, (struct how){ .count = 10 }) : __LINE__;
}

static void test_together(void)
{
	ksft_test_result(all_do(3, do_together), "calls begin together\n");
	comm_attr.flags = TOW_COMM_THREAD;
	ksft_test_result(all_do(3, do_together_and_wait) && all_do(2, do_together_and_wait),
			 "calls begin together, and a thread goes on\n");
	ksft_test_result(all_do(2, do_while_one_leaves), "one leaves before they begin\n");
	ksft_test_result(all_do(2, do_late_letter), "a letter is late before they begin\n");
	comm_attr.flags = 0;
}

/* ---- different calls --------------------------------------------------------- */

#define SPOILT		12U

/* What one rank makes of a call that others make. */
static struct how spoil(struct how how, uint32_t n)
{
	switch (n % 6) {
	case 0:
		how.count++;
		break;
	case 1:
		how.count = how.count > 10000 ? 1 : 50000;
		break;
	case 2:
		how.kind = how.kind == TOW_BROADCAST ? TOW_ALLREDUCE : TOW_BROADCAST;
		how.algorithm = TOW_ALGORITHM_ANY;
		break;
	case 3:
		how.kind = how.kind == TOW_BARRIER ? REDUCE : TOW_BARRIER;
		how.algorithm = TOW_ALGORITHM_ANY;
		break;
	case 4:
		how.kind = TOW_BROADCAST;
		how.algorithm = TOW_ALGORITHM_TREE;
		how.root = 1;
		break;
	default:
		how.kind = TOW_ALLGATHER;
		how.algorithm = TOW_ALGORITHM_ANY;
	}
	return how;
}

static uint32_t odd_one(const struct rank *me, uint32_t n)
{
	return (n + variant) % me->ranks;
}

/* It may have ended before anybody knew. */
static int finish_spoilt(struct rank *me, struct call *call, uint32_t n)
{
	uint32_t odd = odd_one(me, n);
	int ret = tow_work_wait(call->work, TOW_WAIT_FOREVER, &me->blamed);

	me->ret = ret;
	tow_work_free(call->work);
	if (ret == 1 && !is_right(me, call))
		return __LINE__;
	if (ret != 1 && ret != -EPROTO)
		return __LINE__;
	if (ret == -EPROTO && (odd ? me->blamed != odd : !me->blamed || me->blamed >= me->ranks))
		return __LINE__;
	end_call(me, call);
	return 0;
}

static int do_different(struct rank *me)
{
	struct call calls[SPOILT * 3];
	int wrong = 0;

	for (uint32_t i = 0; i < SPOILT * 3; i++) {
		struct how how = nth(i + 3000, me->ranks);

		if (i % 3 == 1 && how.count < 2)
			how.count = 30000;
		if (i % 3 == 1 && odd_one(me, i) == me->rank)
			how = spoil(how, i / 3 + variant);
		calls[i].how = own(me, how);
		prepare(me, &calls[i]);
		linger(me);
		me->ret = make(me, &calls[i], false);
		if (me->ret)
			return __LINE__;
	}
	for (uint32_t i = 0; !wrong && i < SPOILT * 3; i++)
		wrong = i % 3 == 1 ? finish_spoilt(me, &calls[i], i) : finish(me, &calls[i]);
	return wrong;
}

/* The last one waits for the second, who has ended that call, and knows nothing of it. */
static int do_wrong_root(struct rank *me)
{
	struct call call = { .how = { .kind = TOW_BROADCAST, .algorithm = TOW_ALGORITHM_TREE,
				      .count = 70001, .root = me->rank == 2 } };
	int wrong;

	prepare(me, &call);
	if (me->rank == 2)
		usleep(50000);
	me->ret = make(me, &call, false);
	wrong = me->ret ? __LINE__ : finish_spoilt(me, &call, 2);
	if (!wrong)
		wrong = do_one(me, (struct how){ .count = 1000 });
	return wrong;
}

/* Many small pieces, while the other end has not begun: it is to keep few of them. */
static int do_early(struct rank *me)
{
	if (me->rank)
		usleep(50000);
	return do_one(me, (struct how){ .kind = TOW_BROADCAST, .algorithm = TOW_ALGORITHM_RING,
					.count = SLOW ? 1 << 20 : 6 << 20, .piece_bytes = 16384 });
}

/* What was freed ends before the communicator does. */
static int do_freed(struct rank *me)
{
	struct call call = { .how = { .count = 70001 } };
	int wrong = 0;

	prepare(me, &call);
	if (me->rank)
		usleep(50000);
	me->ret = make(me, &call, false);
	if (me->ret)
		return __LINE__;
	tow_work_free(call.work);
	me->ret = tow_comm_destroy(me->comm);
	me->comm = NULL;
	if (me->ret || !is_right(me, &call))
		wrong = __LINE__;
	end_call(me, &call);
	return wrong;
}

static void test_different(void)
{
	bool good = true;

	for (variant = 0; variant < (SLOW ? 6 : 12); variant++)
		good = all_do(2 + variant % 4, do_different) && good;
	ksft_test_result(good, "ranks make different calls\n");
	variant = 0;
	ksft_test_result(all_do(3, do_wrong_root), "one waits for another root\n");
	ksft_test_result(all_do(2, do_early), "many small pieces come early\n");
	ksft_test_result(all_do(3, do_freed), "works are freed before the communicator ends\n");
}

/* ---- ranks that die, and abort ----------------------------------------------- */

#define OPEN		8U

/* Until something goes wrong: all that is open ends alike. */
static int do_for_ever(struct rank *me)
{
	struct call calls[OPEN] = { 0 };
	uint32_t blamed, i;
	int ret;

	for (i = 0;; i++) {
		struct call *call = &calls[i % OPEN];

		if (call->work && finish(me, call))
			break;
		call->how = own(me, nth(i, me->ranks));
		prepare(me, call);
		linger(me);
		ret = make(me, call, false);
		if (!ret)
			continue;
		end_call(me, call);
		call->work = NULL;
		me->ret = ret;
		break;
	}
	for (i = 0; i < OPEN; i++) {
		if (!calls[i].work)
			continue;
		ret = tow_work_wait(calls[i].work, TOW_WAIT_FOREVER, &blamed);
		tow_work_free(calls[i].work);
		if (ret < 0 && me->ret != ret)
			return __LINE__;
		if (ret < 0)
			me->blamed = blamed;
	}
	tow_comm_destroy(me->comm);
	me->comm = NULL;
	for (i = 0; i < OPEN; i++)
		if (calls[i].work)
			end_call(me, &calls[i]);
	return 0;
}

static bool one_goes(uint32_t round, bool dies)
{
	uint32_t count = 2 + round % 4, seed = round, who = chance(&seed, count);
	int first = dies ? -ESTALE : -ECANCELED;
	bool good;

	variant = round;
	node.entries = 0;
	start(count, do_for_ever, NULL);
	wait_for_entries(chance(&seed, 400));
	if (dies)
		node_kill((int)who);
	else
		tow_comm_abort(ranks[who].comm);
	good = ended(count);
	for (uint32_t i = 0; i < count; i++) {
		if (i == who && dies)
			continue;
		/* Whose calls had all ended has nobody to ask. */
		if (ranks[i].ret == first &&
		    (ranks[i].blamed == who || ranks[i].blamed == TOW_NO_RANK))
			continue;
		ksft_print_msg("round %u, rank %u of %u: %d, and %d is to blame, not %u\n", round, i,
			       count, ranks[i].ret, (int)ranks[i].blamed, who);
		good = false;
	}
	return good;
}

static void test_going(void)
{
	bool good = true;

	for (uint32_t round = 0; round < KILLS; round++)
		good = one_goes(round, true) && good;
	ksft_test_result(good, "one is killed\n");
	good = true;
	for (uint32_t round = 0; round < ABORTS; round++)
		good = one_goes(round, false) && good;
	ksft_test_result(good, "one aborts\n");
	variant = 0;
}

/* ---- what is refused --------------------------------------------------------- */

static int nothing(struct rank *me)
{
	(void)me;
	return __LINE__;
}

/* One cannot, and says why; others are told so, or find that it has left. */
static bool only_second(int ret, int others)
{
	bool good = ended(3);

	for (uint32_t i = 0; i < 3; i++) {
		bool as_told = i == 1 ? ranks[i].ret == ret :
			       ranks[i].ret == others && ranks[i].blamed == 1;

		if (!as_told)
			ksft_print_msg("rank %u: %d, and %d is to blame\n", i, ranks[i].ret,
				       (int)ranks[i].blamed);
		good = good && as_told;
	}
	return good;
}

static int fail_with(struct rank *me, struct how how)
{
	struct call call = { .how = how };

	prepare(me, &call);
	me->ret = make(me, &call, false);
	if (!me->ret) {
		me->ret = tow_work_wait(call.work, TOW_WAIT_FOREVER, &me->blamed);
		tow_work_free(call.work);
	}
	tow_comm_destroy(me->comm);
	me->comm = NULL;
	end_call(me, &call);
	return 0;
}

/* Ranks are found by the first call that needs them. */
static int do_without(struct rank *me)
{
	return fail_with(me, (struct how){ .count = 10 });
}

/* What is large needs channels that there are not yet. */
static int do_without_more(struct rank *me)
{
	if (do_one(me, (struct how){ .count = 10 }))
		return __LINE__;
	lack_channels(me);
	return fail_with(me, (struct how){ .count = 70001, .outside = true });
}

static void test_refused(void)
{
	start(3, do_without, lack_channels);
	/* It has no way to tell them. */
	ksft_test_result(only_second(-ENOSPC, -ESTALE), "no channels\n");
	start(3, nothing, lack_exports);
	ksft_test_result(only_second(-EDQUOT, -ECANCELED), "no communicator without names\n");
	start(3, do_without_more, NULL);
	ksft_test_result(only_second(-ENOSPC, -ECANCELED), "no more channels\n");
}

/* ---- rank 0's numbers -------------------------------------------------------- */

/* Rank 0 has told that; or NULL: what it does. */
static const struct towi_choices *told_choices;

int __real_towi_group_gather(struct tow_group *group, const void *mine, size_t bytes, void **all,
			     uint32_t *blamed);
int __wrap_towi_group_gather(struct tow_group *group, const void *mine, size_t bytes, void **all,
			     uint32_t *blamed);

/* They are the last thing in a card (comm.c). */
int __wrap_towi_group_gather(struct tow_group *group, const void *mine, size_t bytes, void **all,
			     uint32_t *blamed)
{
	int ret = __real_towi_group_gather(group, mine, bytes, all, blamed);

	if (!ret && told_choices)
		memcpy((char *)*all + bytes - sizeof(*told_choices), told_choices,
		       sizeof(*told_choices));
	return ret;
}

static const struct towi_choices plain = {
	.direct_bytes = 1000, .tree_bytes = 1000, .piece_bytes_min = 4096, .direct_ranks = 2,
	.pieces = 4, .window = 2, .window_gather = 2,
};

#define BUT(number, value)	(choices = plain, choices.number = (value), choices)

/* All say who has told what makes no sense. */
static bool is_refused(struct towi_choices choices)
{
	bool good = true;

	told_choices = &choices;
	start(3, nothing, NULL);
	for (uint32_t i = 0; i < 3; i++)
		good = good && ranks[i].ret == -EPROTO && !ranks[i].blamed;
	good = ended(3) && good;
	told_choices = NULL;
	return good;
}

static bool bad_are_refused(void)
{
	struct towi_choices choices;

	return is_refused((struct towi_choices){ 0 }) && is_refused(BUT(direct_bytes, 0)) &&
	       is_refused(BUT(tree_bytes, 0)) && is_refused(BUT(direct_ranks, 0)) &&
	       is_refused(BUT(pieces, 0)) && is_refused(BUT(piece_bytes_min, 0)) &&
	       is_refused(BUT(piece_bytes_min, 4097)) &&
	       is_refused(BUT(piece_bytes_min, TOWI_SLOT_BYTES + TOWI_LINE)) &&
	       is_refused(BUT(piece_bytes_min, UINT64_MAX - TOWI_LINE + 1)) &&
	       is_refused(BUT(window, 0)) && is_refused(BUT(window, TOWI_PLAN_WINDOW_MAX + 1)) &&
	       is_refused(BUT(window_gather, 0)) && is_refused(BUT(window_gather, UINT32_MAX));
}

static int do_some(struct rank *me)
{
	int wrong = 0;

	for (uint32_t kind = 0; !wrong && kind < KINDS; kind++)
		wrong = do_one(me, (struct how){ .kind = kind, .count = 1000, .salt = kind });
	for (uint32_t kind = 0; !wrong && kind < KINDS; kind++)
		wrong = do_one(me, (struct how){ .kind = kind, .count = 10001, .root = 1,
						 .outside = kind & 1, .apart = kind & 2 });
	return wrong;
}

/* What is strange, and can be done. */
static bool strange_are_done(void)
{
	static const struct towi_choices strange[] = {
		{ 1, 1, TOWI_LINE, 1, UINT32_MAX, TOWI_PLAN_WINDOW_MAX, 1 },
		{ UINT64_MAX, UINT64_MAX, TOWI_SLOT_BYTES, 1, 1, 1, TOWI_PLAN_WINDOW_MAX },
		{ UINT64_MAX, 1, TOWI_LINE, UINT32_MAX, UINT32_MAX, 1, 1 },
	};
	bool good = true;

	for (uint32_t i = 0; i < sizeof(strange) / sizeof(strange[0]); i++) {
		told_choices = &strange[i];
		good = all_do(2, do_some) && all_do(5, do_some) && good;
	}
	told_choices = NULL;
	return good;
}

static void test_choices(void)
{
	ksft_test_result(bad_are_refused(), "rank 0 tells what makes no sense\n");
	ksft_test_result(strange_are_done(), "rank 0 tells what is strange\n");
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(31);
	node_begin();
	node.qps = 2;
	test_kinds();
	test_many();
	test_threads();
	test_together();
	test_different();
	test_going();
	test_refused();
	test_choices();
	ksft_finished();
}

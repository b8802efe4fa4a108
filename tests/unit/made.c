// SPDX-License-Identifier: GPL-2.0
/*
 * Collectives that are made once, of ranks which are threads here and processes of a node that is
 * played: all kinds, several at once in any order, while others are made, and among calls and
 * letters; and what the kernel passes on.
 */
/* build: also tsan */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <kselftest.h>
#include <towline/collective.h>

#include "tow_made.h"

/* ---- all kinds --------------------------------------------------------------- */

static int make_kinds(struct rank *me, uint64_t count, uint64_t piece_bytes)
{
	uint32_t salt = 0;
	int wrong = 0;

	for (uint32_t kind = 0; kind <= TOW_BARRIER; kind++)
		for (uint32_t way = 0; way <= TOW_ALGORITHM_TREE; way++)
			for (uint32_t i = 0; !wrong && i < 4 && ways[kind] & 1U << way; i++)
				wrong = make_one(me, (struct how){
					.kind = kind, .algorithm = way, .count = count,
					.root = salt % me->ranks, .piece_bytes = piece_bytes,
					.outside = i & 1, .apart = i & 2, .salt = salt++ });
	return wrong;
}

static int do_all_kinds(struct rank *me)
{
	int wrong = make_kinds(me, 0, 0);

	if (!wrong)
		wrong = make_kinds(me, 1, 0);
	if (!wrong)
		wrong = make_kinds(me, 1009, SMALL_PIECE);
	return wrong || SLOW ? wrong : make_kinds(me, 20011, PIECE);
}

static int do_few_kinds(struct rank *me)
{
	int wrong = make_kinds(me, 1, 0);

	return wrong ? wrong : make_kinds(me, 1009, SMALL_PIECE);
}

static void test_kinds(void)
{
	for (uint32_t count = 1; count <= 5; count++)
		ksft_test_result(all_do(count, do_all_kinds), "all kinds: %u\n", count);
	ksft_test_result(all_do(9, do_few_kinds), "all kinds: 9\n");
}

/* ---- several at once --------------------------------------------------------- */

#define AT_ONCE		30U
#define EACH		(SLOW ? 3U : 6U)
/* Calls, and what is made meanwhile: all ranks have them in one order. */
#define ORDERED		(SLOW ? 8U : 24U)
#define LETTERS		20U

/* Several that each rank starts in an order of its own. */
struct many {
	struct call calls[AT_ONCE];
	uint32_t begun[AT_ONCE];
	bool runs[AT_ONCE];
	uint32_t ended;			/* calls of them, in all */
};

/* A call, or one that is made; which run meanwhile. */
struct ordered {
	uint32_t next;			/* number, of those that have begun */
	struct call call;
	bool runs;
};

/* To the next rank, and from the one before. */
struct letters {
	uint32_t next;
	struct tow_work *sends, *receives;
	float out[1000], in[1000];
};

static int make_many(struct rank *me, struct many *many)
{
	int wrong = 0;

	for (uint32_t i = 0; !wrong && i < AT_ONCE; i++) {
		many->calls[i].how = own(me, nth_made(i, me->ranks));
		prepare(me, &many->calls[i]);
		wrong = create(me, &many->calls[i]);
	}
	return wrong;
}

static void end_many(const struct rank *me, struct many *many)
{
	for (uint32_t i = 0; i < AT_ONCE; i++)
		end_made(me, &many->calls[i]);
}

/* One of them begins, or has ended, or goes on. */
static int turn_many(struct rank *me, struct many *many)
{
	uint32_t i = chance(&me->seed, AT_ONCE);
	struct call *call = &many->calls[i];

	if (!many->runs[i] && many->begun[i] == EACH)
		return 0;
	if (!many->runs[i]) {
		many->runs[i] = true;
		return begin(me, call, i * EACH + many->begun[i]++);
	}
	me->ret = chance(&me->seed, 2) ? tow_collective_test(call->made, &me->blamed) :
					 tow_collective_wait_for(call->made, 500, &me->blamed);
	if (!me->ret)
		return 0;
	many->runs[i] = false;
	many->ended++;
	return me->ret != 1 || !is_right(me, call) ? __LINE__ : 0;
}

static int turn_ordered(struct rank *me, struct ordered *ordered)
{
	struct call *call = &ordered->call;

	if (ordered->runs) {
		me->ret = tow_work_wait(call->work, 500, &me->blamed);
		ordered->runs = !me->ret;
		return me->ret ? finish(me, call) : 0;
	}
	if (ordered->next == ORDERED)
		return 0;
	if (ordered->next % 3 == 2)
		return make_one(me, own(me, nth_made(100 + ordered->next++, me->ranks)));
	call->how = own(me, nth(200 + ordered->next++, me->ranks));
	prepare(me, call);
	ordered->runs = true;
	me->ret = make(me, call, false);
	return me->ret ? __LINE__ : 0;
}

static int post(struct rank *me, struct letters *letters)
{
	uint32_t to = (me->rank + 1) % me->ranks, from = (me->rank + me->ranks - 1) % me->ranks;
	uint32_t count = letters->next % 2 ? 1000 : 3;

	for (uint32_t i = 0; i < count; i++)
		letters->out[i] = (float)(letters->next + i);
	memset(letters->in, 0, sizeof(letters->in));
	me->ret = tow_send(me->comm, letters->out, count, f32, to, 1, NULL, &letters->sends);
	if (!me->ret)
		me->ret = tow_receive(me->comm, letters->in, count, f32, from, 1, NULL,
				      &letters->receives);
	letters->next++;
	return me->ret ? __LINE__ : 0;
}

static int turn_letters(struct rank *me, struct letters *letters)
{
	if (!letters->sends)
		return letters->next < LETTERS ? post(me, letters) : 0;
	me->ret = tow_work_wait(letters->receives, 500, &me->blamed);
	if (me->ret == 1)
		me->ret = tow_work_wait(letters->sends, 500, &me->blamed);
	if (!me->ret)
		return 0;
	tow_work_free(letters->receives);
	tow_work_free(letters->sends);
	letters->sends = NULL;
	for (uint32_t i = 0; i < (letters->next % 2 ? 3 : 1000); i++)
		if (letters->in[i] != (float)(letters->next - 1 + i))
			return __LINE__;
	return me->ret != 1 ? __LINE__ : 0;
}

static int do_many(struct rank *me)
{
	struct many *many = calloc(1, sizeof(*many));
	int wrong = make_many(me, many);

	while (!wrong && many->ended < AT_ONCE * EACH)
		wrong = turn_many(me, many);
	end_many(me, many);
	free(many);
	return wrong;
}

static int do_mixed(struct rank *me)
{
	struct many *many = calloc(1, sizeof(*many));
	struct ordered ordered = { 0 };
	struct letters letters = { 0 };
	int wrong = make_many(me, many);

	while (!wrong && (many->ended < AT_ONCE * EACH || ordered.next < ORDERED || ordered.runs ||
			  letters.next < LETTERS || letters.sends)) {
		switch (chance(&me->seed, 6)) {
		case 0:
			wrong = turn_ordered(me, &ordered);
			break;
		case 1:
			wrong = turn_letters(me, &letters);
			break;
		default:
			wrong = turn_many(me, many);
		}
	}
	end_many(me, many);
	free(many);
	return wrong;
}

static void *make_in_order(void *arg)
{
	struct ordered ordered = { 0 };
	intptr_t wrong = 0;

	while (!wrong && (ordered.next < ORDERED || ordered.runs))
		wrong = turn_ordered(arg, &ordered);
	return (void *)wrong;
}

/* A second thread makes calls, and others that are made once. */
static int do_by_two(struct rank *me)
{
	struct many *many = calloc(1, sizeof(*many));
	int wrong = make_many(me, many);
	struct rank same = *me;
	pthread_t second;
	void *its;

	if (wrong || pthread_create(&second, NULL, make_in_order, &same))
		ksft_exit_fail_msg("nothing can be made\n");
	while (!wrong && many->ended < AT_ONCE * EACH)
		wrong = turn_many(me, many);
	pthread_join(second, &its);
	end_many(me, many);
	free(many);
	return wrong ? wrong : (int)(intptr_t)its;
}

#define ONE_WAY		40U

/*
 * Each begins those that are its own, and sleeps for a while; then the other's.  If it slept with
 * all the room that it has, neither would ever begin those.  One of them waits once, others twice.
 */
static int do_both_ways(struct rank *me)
{
	struct call calls[2 * ONE_WAY];
	int wrong = 0;

	for (uint32_t i = 0; !wrong && i < 2 * ONE_WAY; i++) {
		calls[i].how = (struct how){
			.kind = i / 2 < variant ? TOW_BROADCAST : TOW_REDUCE_SCATTER,
			.root = i / 2 < variant ? 1 - i % 2 : 0, .count = 5 };
		prepare(me, &calls[i]);
		wrong = create(me, &calls[i]);
	}
	for (uint32_t i = me->rank; !wrong && i < 2 * ONE_WAY; i += 2)
		wrong = begin(me, &calls[i], i);
	if (!wrong && tow_collective_wait_for(calls[me->rank].made, 400000, NULL) < 0)
		wrong = __LINE__;
	for (uint32_t i = 1 - me->rank; !wrong && i < 2 * ONE_WAY; i += 2)
		wrong = begin(me, &calls[i], i);
	for (uint32_t i = 0; !wrong && i < 2 * ONE_WAY; i++)
		wrong = await(me, &calls[i]);
	for (uint32_t i = 0; i < 2 * ONE_WAY; i++)
		end_made(me, &calls[i]);
	return wrong;
}

/* Nobody waits for others when all is done. */
static int do_and_leave(struct rank *me)
{
	int wrong = 0;

	for (uint32_t i = 0; !wrong && i < 4; i++)
		wrong = make_one(me, own(me, nth_made(i + variant * 4, me->ranks)));
	return wrong;
}

static void test_many(void)
{
	bool good = true;

	for (uint32_t n = 0; n < 4; n++) {
		choose_attr(n);
		good = all_do(2 + n, do_many) && good;
	}
	ksft_test_result(good, "several at once\n");
	choose_attr(3);
	good = all_do(2, do_both_ways);
	variant = 1;
	good = all_do(2, do_both_ways) && good;
	variant = 0;
	ksft_test_result(good, "more than there is room for\n");
	good = true;
	for (uint32_t n = 0; n < 4; n++) {
		choose_attr(n);
		good = all_do(2 + n % 3, do_mixed) && good;
	}
	ksft_test_result(good, "among calls and letters, while others are made\n");
	good = true;
	for (uint32_t n = 0; n < 3; n++) {
		choose_attr(n);
		good = all_do(2 + n, do_by_two) && good;
	}
	ksft_test_result(good, "a second thread makes others\n");
	good = true;
	for (variant = 0; variant < 12; variant++) {
		choose_attr(variant);
		good = all_do(2 + variant % 4, do_and_leave) && good;
	}
	variant = 0;
	choose_attr(0);
	ksft_test_result(good, "they leave after the last one\n");
}

/* ---- what the kernel passes on ------------------------------------------------ */

static atomic_uint_fast64_t forwarded;

#define ELEMENTS	10007ULL
#define PART		2503ULL

/* While the first one is late the others sleep. */
static int pass_on(struct rank *me, struct how how, uint64_t sent)
{
	struct tow_collective_stats stats = { .size = sizeof(stats) };
	struct call call = { .how = how };
	int wrong;

	prepare(me, &call);
	wrong = create(me, &call);
	for (uint32_t i = 0; !wrong && i < TIMES; i++) {
		usleep(me->rank ? 0 : 20000);
		wrong = begin(me, &call, i);
		if (!wrong)
			wrong = await(me, &call);
	}
	if (!wrong && (tow_collective_stats(call.made, &stats) || stats.calls != TIMES ||
		       stats.sent_bytes != TIMES * sent * sizeof(float)))
		wrong = __LINE__;
	atomic_fetch_add(&forwarded, stats.forwarded);
	end_made(me, &call);
	return wrong;
}

static int do_broadcast(struct rank *me)
{
	return pass_on(me, (struct how){
		.kind = TOW_BROADCAST, .algorithm = TOW_ALGORITHM_RING, .count = ELEMENTS,
		.piece_bytes = SMALL_PIECE << variant },
		me->rank + 1 < me->ranks ? ELEMENTS : 0);
}

static int do_tree(struct rank *me)
{
	static const uint32_t children[] = { 2, 0, 1, 0 };

	return pass_on(me, (struct how){
		.kind = TOW_BROADCAST, .algorithm = TOW_ALGORITHM_TREE, .count = ELEMENTS,
		.piece_bytes = SMALL_PIECE << variant }, children[me->rank] * ELEMENTS);
}

static int do_allgather(struct rank *me)
{
	return pass_on(me, (struct how){
		.kind = TOW_ALLGATHER, .algorithm = TOW_ALGORITHM_RING, .count = ELEMENTS,
		.piece_bytes = SMALL_PIECE << variant }, (me->ranks - 1) * ELEMENTS);
}

static int do_allreduce(struct rank *me)
{
	return pass_on(me, (struct how){
		.kind = TOW_ALLREDUCE, .algorithm = TOW_ALGORITHM_RING, .count = 4 * PART,
		.piece_bytes = SMALL_PIECE << variant }, 2 * PART * (me->ranks - 1));
}

static bool is_passed_on(int (*then)(struct rank *rank), const char *what)
{
	bool good = true;

	atomic_store(&forwarded, 0);
	for (variant = 0; variant < 4; variant += 2)
		good = all_do(4, then) && good;
	variant = 0;
	if (!atomic_load(&forwarded))
		ksft_print_msg("nothing was passed on: %s\n", what);
	return good && atomic_load(&forwarded);
}

static void test_passing(void)
{
	comm_attr.spin_us = 1;
	ksft_test_result(is_passed_on(do_broadcast, "a broadcast's ring") &&
			 is_passed_on(do_tree, "a broadcast's tree"),
			 "broadcasts are passed on\n");
	ksft_test_result(is_passed_on(do_allgather, "an all-gather"),
			 "what is gathered is passed on\n");
	ksft_test_result(is_passed_on(do_allreduce, "an AllReduce"),
			 "an AllReduce's second half is passed on\n");
	choose_attr(0);
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(14);
	node_begin();
	node.qps = 2;
	choose_attr(0);
	test_kinds();
	test_many();
	test_passing();
	ksft_finished();
}

// SPDX-License-Identifier: GPL-2.0
/*
 * Collectives that are made once, of ranks which are threads here and processes of a node that is
 * played: all kinds, several at once in any order, while others are made, and among calls and letters;
 * what the kernel passes on; ranks that ask for different things, cannot, come late, leave early,
 * die, abort, or break one off.
 */
/* build: also tsan */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <kselftest.h>
#include <towline/collective.h>

#include "tow_calls.h"

#define TIMES		3U
#define KILLS		(SLOW ? 12U : 60U)
#define ABORTS		(SLOW ? 6U : 24U)
#define BREAKS		(SLOW ? 6U : 24U)
/* How many messages there are in pieces of that. */
#define PIECE		4096U
#define SMALL_PIECE	256U

/* ---- one of them ------------------------------------------------------------- */

/* As nth(); what only calls can do is an AllReduce. */
static struct how nth_made(uint32_t n, uint32_t count)
{
	struct how how = nth(n, count);

	if (how.kind == REDUCE)
		how.kind = TOW_ALLREDUCE;
	how.piece_bytes = n % 2 ? PIECE : 0;
	return how;
}

/* Its arrays are there: the line at which it cannot be made, or 0. */
static int create(struct rank *me, struct call *call)
{
	const struct how *how = &call->how;
	struct tow_collective_attr attr = { .size = sizeof(attr), .kind = how->kind };

	if (how->kind != TOW_BARRIER) {
		attr.algorithm = how->algorithm;
		attr.dtype = f32;
		attr.count = how->count;
		attr.piece_bytes = how->piece_bytes;
		attr.out = call->out;
		/* What is in the other array need not be named. */
		if (how->apart || scatters(call) || how->outside)
			attr.in = call->in;
	}
	if (how->kind == TOW_BROADCAST)
		attr.root = how->root;
	me->ret = tow_collective_create(me->comm, &attr, &call->made, &me->blamed);
	return me->ret ? __LINE__ : 0;
}

static void end_made(const struct rank *me, struct call *call)
{
	tow_collective_destroy(call->made);
	end_call(me, call);
}

/* Once more, with other numbers. */
static int begin(struct rank *me, struct call *call, uint32_t salt)
{
	call->how.salt = salt;
	give_in(me, call);
	me->ret = tow_collective_start(call->made);
	return me->ret ? __LINE__ : 0;
}

static int await(struct rank *me, struct call *call)
{
	me->ret = tow_collective_wait(call->made, &me->blamed);
	return me->ret || !is_right(me, call) ? __LINE__ : 0;
}

static int repeat(struct rank *me, struct call *call, uint32_t salt, uint32_t times)
{
	int wrong = 0;

	for (uint32_t i = 0; !wrong && i < times; i++) {
		linger(me);
		/* Others have begun it, maybe; and have written nothing there. */
		wrong = i && !is_right(me, call) ? __LINE__ : begin(me, call, salt + i);
		if (!wrong)
			wrong = await(me, call);
	}
	return wrong;
}

static int make_one(struct rank *me, struct how how)
{
	struct call call = { .how = how };
	int wrong;

	prepare(me, &call);
	wrong = create(me, &call);
	if (!wrong)
		wrong = repeat(me, &call, how.salt, TIMES);
	end_made(me, &call);
	if (wrong)
		ksft_print_msg("kind %u, algorithm %u, %u elements in pieces of %u%s%s\n", how.kind,
			       how.algorithm, (uint32_t)how.count, (uint32_t)how.piece_bytes,
			       how.outside ? ", outside" : "", how.apart ? ", apart" : "");
	return wrong;
}

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
	return me->ret != 1 || memcmp(letters->in, letters->out, sizeof(letters->in[0])) ? __LINE__ :
											  0;
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
 * Each begins those that are its own, and sleeps for a while; then the other's.  If it slept with all the
 * room that it has, neither would ever begin those.  One of them waits once, others twice.
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

/* Communicators that sleep at once, that have little room, and that have threads. */
static void choose_attr(uint32_t n)
{
	comm_attr.timeout_ms = ENDS_MS;
	comm_attr.spin_us = n & 1;
	comm_attr.entries = n & 2 ? 16 : 0;
	comm_attr.flags = n % 3 == 2 ? TOW_COMM_THREAD : 0;
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
		.kind = TOW_BROADCAST, .algorithm = TOW_ALGORITHM_RING, .count = 10007,
		.piece_bytes = SMALL_PIECE << variant },
		me->rank + 1 < me->ranks ? 10007 : 0);
}

static int do_tree(struct rank *me)
{
	static const uint32_t children[] = { 2, 0, 1, 0 };

	return pass_on(me, (struct how){
		.kind = TOW_BROADCAST, .algorithm = TOW_ALGORITHM_TREE, .count = 10007,
		.piece_bytes = SMALL_PIECE << variant }, children[me->rank] * 10007);
}

static int do_allgather(struct rank *me)
{
	return pass_on(me, (struct how){
		.kind = TOW_ALLGATHER, .algorithm = TOW_ALGORITHM_RING, .count = 10007,
		.piece_bytes = SMALL_PIECE << variant }, (me->ranks - 1) * 10007);
}

static int do_allreduce(struct rank *me)
{
	return pass_on(me, (struct how){
		.kind = TOW_ALLREDUCE, .algorithm = TOW_ALGORITHM_RING, .count = 4 * 2503,
		.piece_bytes = SMALL_PIECE << variant }, 2 * (me->ranks - 1) * 2503);
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

/* ---- ranks that differ, or cannot -------------------------------------------- */

static uint32_t odd_one(const struct rank *me, uint32_t n)
{
	return (n + variant) % me->ranks;
}

/* What is asked for: by one rank something else. */
static struct how differ(uint32_t n, bool odd)
{
	struct how how = { .kind = TOW_ALLREDUCE, .algorithm = TOW_ALGORITHM_RING, .count = 20000,
			   .piece_bytes = PIECE };

	switch (n % 5) {
	case 0:
		how.count += odd;
		break;
	case 1:
		how.kind = odd ? TOW_BARRIER : TOW_ALLREDUCE;
		break;
	case 2:
		how.piece_bytes <<= odd;
		break;
	case 3:
		how.kind = TOW_BROADCAST;
		how.root = odd;
		break;
	default:
		how.algorithm = odd ? TOW_ALGORITHM_TREE : TOW_ALGORITHM_RING;
	}
	return how;
}

/* It goes on while something cannot be made: with that error, as far as it is told. */
static int fail_meanwhile(struct rank *me, struct call *steady, struct how how, int error,
			  uint32_t blamed)
{
	struct call call = { .how = own(me, how) };
	int wrong = begin(me, steady, how.salt);

	prepare(me, &call);
	linger(me);
	if (!wrong && (!create(me, &call) || me->ret != error ||
		       (blamed != TOW_NO_RANK && me->blamed != blamed)))
		wrong = __LINE__;
	end_call(me, &call);
	return wrong ? wrong : await(me, steady);
}

static int do_different(struct rank *me)
{
	struct call steady = { .how = { .count = 30011, .piece_bytes = PIECE } };
	int wrong;

	prepare(me, &steady);
	wrong = create(me, &steady);
	for (uint32_t n = 0; !wrong && n < 10; n++) {
		uint32_t odd = odd_one(me, n);

		wrong = fail_meanwhile(me, &steady, differ(n, odd == me->rank), -EPROTO,
				       odd ? odd : 1);
	}
	if (!wrong)
		wrong = make_one(me, (struct how){ .count = 1009 });
	end_made(me, &steady);
	return wrong;
}

/* The second cannot; the others are told, and all go on. */
static int lack(struct rank *me, struct call *steady, int error)
{
	struct node_process *own = &node.processes[me->index];
	struct how how = { .count = 1009, .piece_bytes = SMALL_PIECE };
	int wrong;

	wrong = fail_meanwhile(me, steady, how, me->rank == 1 ? error : -ECANCELED,
			       me->rank == 1 ? TOW_NO_RANK : 1);
	node_refuse(&own->no_channel, 0);
	node_refuse(&own->no_export, 0);
	return wrong;
}

static int lack_places(struct rank *me, struct call *steady)
{
	uint64_t used[TOW_COLLECTIVES_MAX / 64];
	int wrong;

	memcpy(used, me->comm->used, sizeof(used));
	if (me->rank == 1)
		memset(me->comm->used, 0xff, sizeof(used));
	wrong = lack(me, steady, -EMLINK);
	memcpy(me->comm->used, used, sizeof(used));
	return wrong;
}

static int do_without(struct rank *me)
{
	/* By one channel. */
	struct call steady = { .how = { .kind = TOW_BARRIER } };
	int wrong;

	prepare(me, &steady);
	wrong = create(me, &steady);
	lack_channels(me);
	if (!wrong)
		wrong = lack(me, &steady, -ENOSPC);
	lack_exports(me);
	if (!wrong)
		wrong = lack(me, &steady, -EDQUOT);
	if (!wrong)
		wrong = lack_places(me, &steady);
	if (!wrong)
		wrong = make_one(me, (struct how){ .count = 1009, .piece_bytes = SMALL_PIECE });
	end_made(me, &steady);
	return wrong;
}

/* Others wait until it is asked for rightly. */
static int do_at_second_try(struct rank *me)
{
	struct call call = { .how = { .kind = TOW_ALLGATHER, .count = 1009,
				      .algorithm = TOW_ALGORITHM_TREE } };
	int wrong = 0;

	prepare(me, &call);
	if (!me->rank && (!create(me, &call) || me->ret != -EOPNOTSUPP))
		wrong = __LINE__;
	call.how.algorithm = TOW_ALGORITHM_RING;
	if (!wrong)
		wrong = create(me, &call);
	if (!wrong)
		wrong = repeat(me, &call, 0, TIMES);
	end_made(me, &call);
	return wrong;
}

static atomic_uint others_ended;

/* Others cannot go on without the second, who does not start it before they have ended. */
static int wait_for_second(struct rank *me, struct call *call)
{
	uint32_t late = TOW_NO_RANK;
	int wrong = begin(me, call, 0), ret = 0;

	/* The first may be slow. */
	do {
		if (!wrong)
			ret = tow_collective_late(call->made, &late);
	} while (!wrong && !ret && !late);
	/* That may have taken too long. */
	if (!wrong && ret != -ETIMEDOUT && (ret || late != 1))
		wrong = __LINE__;
	me->ret = tow_collective_wait(call->made, &me->blamed);
	atomic_fetch_add(&others_ended, 1);
	return wrong;
}

static int do_late(struct rank *me)
{
	struct call call = { .how = { .count = 1009 } };
	int wrong;

	prepare(me, &call);
	wrong = create(me, &call);
	if (!wrong && me->rank != 1)
		wrong = wait_for_second(me, &call);
	while (me->rank == 1 && atomic_load(&others_ended) < me->ranks - 1)
		usleep(1000);
	/* It may have heard of it by now. */
	if (!wrong && me->rank == 1 && !begin(me, &call, 0))
		me->ret = tow_collective_wait(call.made, NULL);
	if (!wrong && (me->ret != -ETIMEDOUT || tow_comm_error(me->comm, &me->blamed) != me->ret ||
		       me->blamed != 1))
		wrong = __LINE__;
	end_made(me, &call);
	return wrong;
}

static void test_refused(void)
{
	bool good = true;

	for (variant = 0; variant < 4; variant++) {
		choose_attr(variant);
		good = all_do(2 + variant, do_different) && good;
	}
	variant = 0;
	choose_attr(0);
	ksft_test_result(good, "ranks ask for different things\n");
	ksft_test_result(all_do(3, do_without), "one cannot\n");
	ksft_test_result(all_do(3, do_at_second_try), "one asks for what there is not, first\n");
	comm_attr.timeout_ms = 300;
	ksft_test_result(all_do(3, do_late), "one is late\n");
	choose_attr(0);
}

/* ---- ranks that die, abort, and break off ------------------------------------- */

#define RUNNING		5U
#define FILLER		0x5a

/* Who breaks one off, after how many entries. */
static uint32_t breaks;
static uint64_t breaks_after;

static bool is_time(void)
{
	bool is;

	pthread_mutex_lock(&node.lock);
	is = node.entries >= breaks_after;
	pthread_mutex_unlock(&node.lock);
	return is;
}

/* What others see of it, if they had ended it all, is that the communicator is. */
static void break_one_off(struct rank *me, struct call *call)
{
	tow_collective_destroy(call->made);
	call->made = NULL;
	tow_comm_abort(me->comm);
}

/* Until one fails. */
static int run(struct rank *me, struct call *calls)
{
	uint32_t begun[RUNNING] = { 0 };
	bool runs[RUNNING] = { false };

	for (;;) {
		uint32_t i = chance(&me->seed, RUNNING);

		if (!runs[i]) {
			if (begin(me, &calls[i], i * 1000 + begun[i]++))
				break;
			runs[i] = true;
			linger(me);
		}
		if (me->rank == breaks && is_time()) {
			break_one_off(me, &calls[i]);
			break;
		}
		me->ret = tow_collective_wait_for(calls[i].made, 500, &me->blamed);
		if (me->ret < 0 && me->ret != tow_comm_error(me->comm, NULL))
			return __LINE__;
		if (me->ret < 0)
			break;
		runs[i] = !me->ret;
		if (me->ret && !is_right(me, &calls[i]))
			return __LINE__;
	}
	return 0;
}

static uint64_t elements(const struct rank *me, const struct call *call, bool all)
{
	return call->how.count * (all ? me->ranks : 1);
}

/* Both arrays, one of which may be in the other: true: they are all @filler. */
static bool is_filled(const struct rank *me, const struct call *call, bool fills)
{
	uint64_t in = elements(me, call, scatters(call)) * sizeof(float);
	uint64_t out = elements(me, call, gathers(call)) * sizeof(float);
	const char *arrays[] = { (char *)call->in, (char *)call->out };
	const uint64_t bytes[] = { in, out };

	if (fills) {
		memset(call->in, FILLER, in);
		memset(call->out, FILLER, out);
	}
	for (uint32_t i = 0; i < 2; i++)
		for (uint64_t at = 0; at < bytes[i]; at++)
			if (arrays[i][at] != FILLER)
				return false;
	return true;
}

/* All say the same; then nobody reads what they have, and when they have ended nobody writes there. */
static int end_failed(struct rank *me, struct call *calls, uint32_t count)
{
	uint32_t blamed;
	int wrong = 0;

	for (uint32_t i = 0; i < count; i++) {
		if (!calls[i].made)
			continue;
		if (tow_collective_wait(calls[i].made, &blamed) != me->ret || blamed != me->blamed)
			wrong = __LINE__;
		is_filled(me, &calls[i], true);
	}
	linger(me);
	for (uint32_t i = 0; i < count; i++) {
		tow_collective_destroy(calls[i].made);
		is_filled(me, &calls[i], true);
	}
	usleep(chance(&me->seed, 3000));
	for (uint32_t i = 0; i < count; i++)
		if (!is_filled(me, &calls[i], false))
			wrong = __LINE__;
	return wrong;
}

static int do_for_ever(struct rank *me)
{
	struct call calls[RUNNING] = { 0 };
	uint32_t count;
	int wrong = 0;

	for (count = 0; count < RUNNING && !wrong; count++) {
		calls[count].how = own(me, nth_made(count, me->ranks));
		/* What waits for nobody would go on for ever. */
		calls[count].how.kind %= TOW_BROADCAST;
		if (!(ways[calls[count].how.kind] & 1U << calls[count].how.algorithm))
			calls[count].how.algorithm = 0;
		prepare(me, &calls[count]);
		wrong = create(me, &calls[count]);
	}
	/* Or why it could not be made. */
	wrong = wrong ? 0 : run(me, calls);
	if (!wrong)
		me->ret = tow_comm_error(me->comm, &me->blamed);
	if (!wrong && !node.processes[me->index].dead)
		wrong = end_failed(me, calls, count);
	else
		for (uint32_t i = 0; i < count; i++)
			tow_collective_destroy(calls[i].made);
	for (uint32_t i = 0; i < count; i++)
		end_call(me, &calls[i]);
	return wrong;
}

enum going { DIES, ABORTS_IT, BREAKS_OFF };

static void let_go(enum going going, uint32_t who, uint64_t after)
{
	if (going == BREAKS_OFF)
		return;
	wait_for_entries(after);
	if (going == DIES)
		node_kill((int)who);
	else
		tow_comm_abort(ranks[who].comm);
}

static bool one_goes(uint32_t round, enum going going)
{
	uint32_t count = 2 + round % 4, seed = round, who = chance(&seed, count);
	int first = going == DIES ? -ESTALE : -ECANCELED;
	bool good;

	variant = round;
	choose_attr(round / 4);
	node.entries = 0;
	breaks = going == BREAKS_OFF ? who : TOW_NO_RANK;
	breaks_after = chance(&seed, 1500);
	start(count, do_for_ever, NULL);
	let_go(going, who, breaks_after);
	good = ended(count);
	for (uint32_t i = 0; i < count; i++) {
		if ((i == who && going == DIES) || (ranks[i].ret == first && ranks[i].blamed == who))
			continue;
		ksft_print_msg("round %u, rank %u of %u: %d, and %d is to blame, not %u\n", round, i,
			       count, ranks[i].ret, (int)ranks[i].blamed, who);
		good = false;
	}
	return good;
}

static bool rounds(uint32_t count, enum going going)
{
	bool good = true;

	for (uint32_t round = 0; round < count; round++)
		good = one_goes(round, going) && good;
	return good;
}

static void test_going(void)
{
	ksft_test_result(rounds(KILLS, DIES), "one is killed\n");
	ksft_test_result(rounds(ABORTS, ABORTS_IT), "one aborts\n");
	ksft_test_result(rounds(BREAKS, BREAKS_OFF), "one breaks one off\n");
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(21);
	node_begin();
	node.qps = 2;
	choose_attr(0);
	test_kinds();
	test_many();
	test_passing();
	test_refused();
	test_going();
	ksft_finished();
}

// SPDX-License-Identifier: GPL-2.0
/*
 * How collectives that are made once end badly, of ranks which are threads here and processes of a
 * node that is played: they ask for different things, cannot, come late, die, abort, or break one
 * off.
 */
/* build: also tsan */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <kselftest.h>
#include <towline/collective.h>

#include "tow_made.h"

#define KILLS		(SLOW ? 12U : 60U)
#define ABORTS		(SLOW ? 6U : 24U)
#define BREAKS		(SLOW ? 6U : 24U)

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

/*
 * All say the same; then nobody reads what they have, and when they have ended nobody writes
 * there.
 */
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
	ksft_set_plan(7);
	node_begin();
	node.qps = 2;
	choose_attr(0);
	test_refused();
	test_going();
	ksft_finished();
}

// SPDX-License-Identifier: GPL-2.0
/*
 * A rank that says what makes no sense, in records of all kinds, while all do calls and write letters.
 *
 * What comes out is anything, of what it took part in; but whoever waits is told something, in time, and
 * nothing is read, written or kept that must not be.  The ranks are threads of this process, on a node
 * that is played.
 */
/* build: also tsan */
#include <stdio.h>

#include <kselftest.h>

#include "tow_calls.h"

#define ROUNDS		(SLOW ? 15U : 60U)
/* What one round has of each. */
#define CALLS		6U
#define LETTERS		6U
#define WORDS		12U
#define LATE_MS		200U
/* From the first tag to one that there is not. */
#define TAGS		(TOWI_TAG_REFUSED + 2U)
#define HOSTILE		1U

_Static_assert(sizeof(struct towi_credit) <= WORDS * sizeof(uint64_t), "a record of any kind");

/* A number that may be one of something. */
static uint64_t near(struct rank *me)
{
	static const uint64_t some[] = { 0, 1, 2, 3, 15, 16, 63, 64, 65, 1023, 4096, 16384, 16385,
					 262144, 1ULL << 32, 1ULL << 46, UINT64_MAX - 1, UINT64_MAX };
	uint64_t number = some[chance(&me->seed, sizeof(some) / sizeof(some[0]))];

	switch (chance(&me->seed, 4)) {
	case 0:
		return me->comm->calls->made + number;
	case 1:
		return me->comm->calls->made - number;
	case 2:
		return number << 32 | chance(&me->seed, 4);
	default:
		return number;
	}
}

/* As long as one of that kind is, or not. */
static uint16_t length(struct rank *me, uint8_t tag)
{
	static const uint16_t lengths[TAGS] = {
		[TOWI_TAG_MESSAGE] = sizeof(struct towi_part) + 8,
		[TOWI_TAG_CREDIT] = sizeof(struct towi_credit),
		[TOWI_TAG_ENDED] = sizeof(uint64_t),
		[TOWI_TAG_MARK] = sizeof(struct towi_mark),
		[TOWI_TAG_DISPUTE] = sizeof(struct towi_dispute),
		[TOWI_TAG_VERDICT] = sizeof(struct towi_verdict),
		[TOWI_TAG_VOID] = sizeof(uint64_t),
		[TOWI_TAG_HEARD] = sizeof(uint64_t),
		[TOWI_TAG_LETTER] = sizeof(struct towi_letter_head) + 8,
		[TOWI_TAG_REQUEST] = sizeof(struct towi_letter_head),
		[TOWI_TAG_WANTED] = sizeof(uint64_t),
		[TOWI_TAG_LETTER_CREDIT] = sizeof(struct towi_credit),
		[TOWI_TAG_TAKEN] = sizeof(uint64_t),
		[TOWI_TAG_REFUSED] = sizeof(uint64_t),
	};

	return (uint16_t)(chance(&me->seed, 8) ? lengths[tag] :
						 chance(&me->seed, WORDS * sizeof(uint64_t)));
}

static void say_nonsense(struct rank *me)
{
	uint8_t tag = (uint8_t)chance(&me->seed, TAGS);
	uint64_t words[WORDS];
	struct towi_pair *pair;
	uint16_t bytes;

	towi_pump_lock(&me->comm->pump);
	for (uint32_t i = 0; i < WORDS; i++)
		words[i] = near(me);
	bytes = length(me, tag);
	pair = me->comm->error ? NULL : towi_pair_of(me->comm, chance(&me->seed, 2) ? 0 : 2);
	if (pair) {
		towi_pair_tell(pair, tag, UINT64_MAX, words, bytes);
		towi_pump_ready(&me->comm->calls->runner);
	}
	towi_pump_unlock(&me->comm->pump);
}

/* A few of each, small and large, of which those that are not waited for are left to the end. */
static void do_some(struct rank *me, uint32_t letters)
{
	static char data[RANKS_MAX][2 * LETTERS][40000];
	static const struct tow_dtype u8 = { TOW_DTYPE_UINT, 8, 1 };
	struct tow_work *works[2 * LETTERS] = { NULL };
	uint32_t other = (me->rank + 1) % me->ranks;

	for (uint32_t i = 0; i < letters; i++) {
		uint64_t count = i % 2 ? 100 : sizeof(data[0][0]);

		tow_send(me->comm, data[me->rank][i], count, u8, other, i, NULL, &works[i]);
		tow_receive(me->comm, data[me->rank][LETTERS + i], count, u8, TOW_ANY_RANK, i, NULL,
			    &works[LETTERS + i]);
	}
	for (uint32_t i = 0; i < CALLS; i++) {
		struct call call = { .how = own(me, nth(i + variant, me->ranks)) };

		prepare(me, &call);
		make(me, &call, true);
		end_call(me, &call);
	}
	for (uint32_t i = 0; i < 2 * LETTERS; i++) {
		tow_work_wait(works[i], TOW_WAIT_FOREVER, NULL);
		tow_work_free(works[i]);
	}
}

static int go_on_with_it(struct rank *me)
{
	uint32_t nonsense = chance(&me->seed, 6) + 1;

	for (uint32_t i = 0; me->rank == HOSTILE && i < nonsense; i++) {
		linger(me);
		say_nonsense(me);
	}
	do_some(me, variant % 3 ? LETTERS : 0);
	me->ret = tow_comm_error(me->comm, &me->blamed);
	return 0;
}

/* What it said was seen to make no sense, in some of them. */
static uint32_t seen;

/* Whose fault it is cannot always be known; that it has ended can. */
static bool all_end(void)
{
	bool good = true;

	comm_attr.timeout_ms = LATE_MS;
	for (variant = 0; variant < ROUNDS; variant++) {
		good = all_do(3, go_on_with_it) && good;
		seen += (ranks[0].ret == -EPROTO && ranks[0].blamed == HOSTILE) ||
			(ranks[2].ret == -EPROTO && ranks[2].blamed == HOSTILE);
	}
	return good;
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(2);
	node_begin();
	ksft_test_result(all_end(), "whatever it says, all others are told something\n");
	ksft_print_msg("%u of %u were blamed\n", seen, ROUNDS);
	ksft_test_result(seen > ROUNDS / 4, "and often who has said it\n");
	ksft_finished();
}

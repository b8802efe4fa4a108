// SPDX-License-Identifier: GPL-2.0
/* Chains that the kernel carries out for a collective: how each may end, and what is counted then. */
/* build: link -Wl,--wrap=tow_queue_enter */
#include <errno.h>
#include <string.h>

#include <kselftest.h>

#include "../collective/made.h"
#include "tow_ring.h"

#define ENTRIES		64U
#define MESSAGES	4U
/* Of which one chain has some, and the next one the others. */
#define MORE		(TOWI_RELAY_MAX + 4U)
#define STEPS		(2 * MESSAGES)
#define FROM		1U
#define OWN		2U
#define TO		3U
#define RANKS		5U

static void ring_turn(struct tow_queue *queue)
{
	(void)queue;
}

static void go_on(struct towi_runner *runner)
{
	(void)runner;
}

struct chain {
	struct tow_comm comm;
	struct tow_collective collective;
	struct towi_path *path[RANKS];	/* the collective's */
	struct towi_path from, to;
	uint64_t data[STEPS];		/* of its entries */
};

static void look_first(struct towi_cursor *cursor, const struct towi_plan *plan,
		       enum towi_side side)
{
	if (towi_schedule_begin(&cursor->schedule, plan, side))
		ksft_exit_fail_msg("there is no such plan\n");
	cursor->more = towi_schedule_next(&cursor->schedule, &cursor->step);
}

/* A rank in the middle of a broadcast, of which nothing has come. */
static void begin_joint(struct towi_joint *joint, uint32_t messages)
{
	static const struct { uint64_t handle; } region;
	const struct towi_plan plan = {
		.kind = TOWI_PLAN_BROADCAST, .way = TOWI_PLAN_RING, .rank = OWN, .ranks = RANKS,
		.count = messages, .piece = 1, .window = 1,
	};

	joint->element = 1;
	joint->out = (struct towi_array){ .region = (void *)&region, .bytes = messages };
	STAILQ_INIT(&joint->work.open);
	look_first(&joint->sends, &plan, TOWI_SENDS);
	look_first(&joint->writes, &plan, TOWI_WRITES);
}

/* All that goes has one lane. */
static void begin_paths(struct chain *chain)
{
	static const struct { uint64_t handle; } remote;
	static struct tow_channel channel;
	static struct tow_slot slot;

	towi_path_init(&chain->from, &chain->collective, FROM);
	towi_path_init(&chain->to, &chain->collective, TO);
	chain->collective.path[FROM] = &chain->from;
	chain->collective.path[TO] = &chain->to;
	chain->from.comes.messages = MESSAGES;
	for (uint32_t i = 0; i < TOWI_LANES; i++)
		chain->from.lanes[i].slot = &slot;
	chain->to.goes.messages = 1;
	chain->to.out = (void *)&remote;
	chain->to.lanes[0].there = (void *)&remote;
	chain->to.lanes[0].channel = &channel;
}

static void begin_comm(struct chain *chain, uint32_t messages)
{
	static const struct towi_runner_ops ops = { .go_on = go_on };

	memset(chain, 0, sizeof(*chain));
	towi_pump_init(&chain->comm.pump, ring_make(ENTRIES), 0, 0);
	towi_pump_lock(&chain->comm.pump);
	chain->comm.rank = OWN;
	chain->comm.blamed = TOW_NO_RANK;
	chain->collective.joint.work.comm = &chain->comm;
	chain->collective.runner.ops = &ops;
	chain->collective.begun = 1;
	STAILQ_INIT(&chain->collective.free_sents);
	towi_pump_join(&chain->comm.pump, &chain->collective.runner);
	begin_joint(&chain->collective.joint, messages);
	begin_paths(chain);
}

static void begin(struct chain *chain)
{
	const struct tow_sqe *sqe;

	begin_comm(chain, MESSAGES);
	towi_relays_begin(&chain->collective);
	towi_pump_submit(&chain->comm.pump);
	for (uint32_t i = 0; i < STEPS; i++) {
		sqe = ring_take(chain->comm.pump.queue);
		if (!sqe)
			ksft_exit_fail_msg("an entry is missing\n");
		chain->data[i] = sqe->user_data;
	}
}

/* Its entries from @first on end so, in their order, as the kernel says it. */
static void fail(struct chain *chain, uint32_t first, const int *status)
{
	for (uint32_t i = first; i < STEPS; i++)
		ring_complete(chain->comm.pump.queue, chain->data[i], *status++);
	towi_pump_look(&chain->comm.pump);
}

/* Nothing is on its way, and the communicator knows that. */
static bool is_over(const struct chain *chain)
{
	return !chain->to.lanes[0].relay->entries && !chain->collective.runner.busy &&
	       !chain->comm.pump.in_flight && STAILQ_EMPTY(&chain->collective.joint.work.open);
}

static bool fails_so(uint32_t first, const int *status, int error, uint32_t blamed)
{
	struct chain chain;
	bool right;

	begin(&chain);
	fail(&chain, first, status);
	right = is_over(&chain) && chain.comm.error == error && chain.comm.blamed == blamed;
	if (!right)
		ksft_print_msg("%u of the chain, %u of the collective, %d of the communicator are on their way; error %d, rank %d\n",
			       chain.to.lanes[0].relay->entries, chain.collective.runner.busy,
			       (int)chain.comm.pump.in_flight, chain.comm.error, (int)chain.comm.blamed);
	towi_pump_unlock(&chain.comm.pump);
	ring_free(chain.comm.pump.queue);
	free(chain.to.lanes[0].relay);
	return right;
}

static bool succeeds(void)
{
	struct chain chain;
	bool right;

	begin(&chain);
	ring_complete(chain.comm.pump.queue, chain.data[STEPS - 1], 0);
	towi_pump_look(&chain.comm.pump);
	right = is_over(&chain) && !chain.comm.error && chain.collective.stats.forwarded == MESSAGES;
	towi_pump_unlock(&chain.comm.pump);
	ring_free(chain.comm.pump.queue);
	free(chain.to.lanes[0].relay);
	return right;
}

/* Another chain: how many entries it has, and what the last one is known by. */
static uint32_t begin_chain(struct chain *chain, uint64_t *last)
{
	const struct tow_sqe *sqe;
	uint32_t count = 0;

	towi_relays_begin(&chain->collective);
	towi_pump_submit(&chain->comm.pump);
	while ((sqe = ring_take(chain->comm.pump.queue))) {
		*last = sqe->user_data;
		count++;
	}
	return count;
}

/* One that has ended behind another send that has not is known until that has, too. */
static bool waits_for_send(void)
{
	struct chain chain;
	struct towi_made_sent before = { 0 };
	uint64_t last;
	bool right;

	begin_comm(&chain, MORE);
	before.sent.work = &chain.collective.joint.work;
	STAILQ_INSERT_TAIL(&chain.collective.joint.work.open, &before.sent, next);
	right = begin_chain(&chain, &last) == 2 * TOWI_RELAY_MAX;
	ring_complete(chain.comm.pump.queue, last, 0);
	towi_pump_look(&chain.comm.pump);
	right = right && !begin_chain(&chain, &last);
	before.sent.ended = true;
	towi_made_sents_end(&chain.collective);
	right = right && begin_chain(&chain, &last) == 2 * (MORE - TOWI_RELAY_MAX);
	ring_complete(chain.comm.pump.queue, last, 0);
	towi_pump_look(&chain.comm.pump);
	right = right && is_over(&chain) && chain.collective.stats.forwarded == MORE;
	towi_pump_unlock(&chain.comm.pump);
	ring_free(chain.comm.pump.queue);
	free(chain.to.lanes[0].relay);
	return right;
}

#define CUT	(-ECANCELED)

int main(void)
{
	static const int stale[STEPS] = { -ESTALE, CUT, CUT, CUT, CUT, CUT, CUT, CUT };
	static const int cut[STEPS] = { CUT, CUT, CUT, CUT, CUT, CUT, CUT, CUT };
	static const int one_is_wrong[STEPS] = { CUT, CUT, CUT, -ERANGE, CUT, CUT, CUT, CUT };
	static const int gone[STEPS] = { -ENODEV, CUT, CUT, CUT, CUT, CUT, CUT, CUT };

	ksft_print_header();
	ksft_set_plan(9);
	ksft_test_result(succeeds(), "all goes well, and the last one says so\n");
	ksft_test_result(fails_so(0, stale, -ESTALE, FROM), "the first wait fails\n");
	ksft_test_result(fails_so(3, stale, -ESTALE, TO), "a send fails in the middle\n");
	ksft_test_result(fails_so(STEPS - 1, stale, -ESTALE, TO), "the last send fails\n");
	ksft_test_result(fails_so(0, cut, CUT, FROM), "all are cut\n");
	/* Its slot is closed. */
	ksft_test_result(fails_so(3, cut, CUT, TO), "a send in the middle ends as if it was cut\n");
	/* Then none is begun. */
	ksft_test_result(fails_so(0, one_is_wrong, -ERANGE, TO), "one is as it must not be\n");
	ksft_test_result(fails_so(2, gone, -ENODEV, OWN), "the device is gone\n");
	ksft_test_result(waits_for_send(), "the next one waits for what was sent before the first\n");
	ksft_finished();
}

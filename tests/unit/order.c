// SPDX-License-Identifier: GPL-2.0
/*
 * The order in which a queue's entries begin, compiled from the module's own source:
 * what the contract says of LINK and FENCE, for sequences written down and for
 * hundreds of thousands that chance brings, each step of which is held against the
 * rules.
 */
#include <string.h>

#include <kselftest.h>

#include "tests/unit/tow_kernel.h"
#include "kmod/ring/order.h"

#define CHAIN_MAX	5
#define CHAINS_MAX	24
#define SEQUENCES	20000
#define MOVES		60

/* ---- what the rules say of what happens -------------------------------------------- */

enum state { WAITS, RUNS, SUCCEEDED, FAILED, GOES, CUT };	/* GOES: is being CUT off */

/* A chain, and what has become of its steps. */
struct chain {
	struct tow_step steps[CHAIN_MAX];
	enum state states[CHAIN_MAX];
	bool told[CHAIN_MAX];	/* it has failed before its end */
	unsigned int length;
	bool fence;
	bool doomed;		/* one before it, that had not failed when it was added, has */
};

struct world {
	struct tow_order order;
	struct chain chains[CHAINS_MAX];
	unsigned int count;
	const char *wrong;	/* the first rule that was broken */
};

static void expect(struct world *world, bool good, const char *rule)
{
	if (!good && !world->wrong)
		world->wrong = rule;
}

static bool has_ended(const struct chain *chain)
{
	for (unsigned int i = 0; i < chain->length; i++)
		if (chain->states[i] == WAITS || chain->states[i] == RUNS ||
		    chain->states[i] == GOES)
			return false;
	return true;
}

/* The step that is the chain's turn; -1: one of them runs, or all have ended. */
static int turn_of(const struct chain *chain)
{
	for (unsigned int i = 0; i < chain->length; i++) {
		if (chain->states[i] == RUNS)
			return -1;
		if (chain->states[i] == WAITS)
			return (int)i;
	}
	return -1;
}

static bool has_begun(const struct chain *chain)
{
	return chain->states[0] != WAITS;
}

static bool all_before_ended(const struct world *world, unsigned int number)
{
	for (unsigned int i = 0; i < number; i++)
		if (!has_ended(&world->chains[i]))
			return false;
	return true;
}

/* May the chain's next step begin, as the contract has it? */
static bool may_begin(const struct world *world, unsigned int number)
{
	const struct chain *chain = &world->chains[number];

	if (turn_of(chain) < 0)
		return false;
	if (has_begun(chain))
		return true;
	for (unsigned int i = 0; i < number; i++)
		if (!has_begun(&world->chains[i]))
			return false;
	return !chain->fence || all_before_ended(world, number);
}

/* ---- moves -------------------------------------------------------------------------- */

static void begin_world(struct world *world)
{
	memset(world, 0, sizeof(*world));
	tow_order_init(&world->order);
}

static struct chain *make(struct world *world, unsigned int length, bool fence)
{
	struct chain *chain = &world->chains[world->count++];

	chain->length = length;
	chain->fence = fence;
	for (unsigned int i = 0; i < length; i++) {
		/* What is not set must not matter. */
		memset(&chain->steps[i], 0xa5, sizeof(chain->steps[i]));
		chain->steps[i].next = i + 1 < length ? &chain->steps[i + 1] : NULL;
		chain->steps[i].fence = !i && fence;
		chain->steps[i].failed = false;
	}
	return chain;
}

static void add(struct world *world, unsigned int length, bool fence)
{
	tow_order_add(&world->order, &make(world, length, fence)->steps[0]);
}

/* Chains without a fence that begin at once, if they may.  Return: their number. */
static unsigned int pass(struct world *world, unsigned int count)
{
	unsigned int first = world->count;
	bool passed;

	for (unsigned int i = 0; i < count; i++)
		make(world, 1 + i % CHAIN_MAX, false);
	passed = tow_order_pass(&world->order, count);
	expect(world, passed == may_begin(world, first) ||
	       (!passed && world->order.ready.first), "they begin at once, and may not; or wait");
	for (unsigned int i = 0; i < count; i++) {
		struct chain *chain = &world->chains[first + i];

		if (passed)
			chain->states[0] = RUNS;
		else
			tow_order_add(&world->order, &chain->steps[0]);
	}
	return passed ? count : 0;
}

static bool find(const struct world *world, const struct tow_step *step, unsigned int *number,
		 unsigned int *place)
{
	for (unsigned int i = 0; i < world->count; i++) {
		for (unsigned int j = 0; j < world->chains[i].length; j++) {
			if (step != &world->chains[i].steps[j])
				continue;
			*number = i;
			*place = j;
			return true;
		}
	}
	return false;
}

/* What begins is what may, and if anything may something does. */
static struct tow_step *next(struct world *world, bool *cancel)
{
	struct tow_step *step = tow_order_next(&world->order, cancel);
	unsigned int number, place;
	struct chain *chain;

	if (!step) {
		for (unsigned int i = 0; i < world->count; i++)
			expect(world, !may_begin(world, i), "nothing begins, and something may");
		return NULL;
	}
	if (!find(world, step, &number, &place)) {
		expect(world, false, "a step that there is not");
		return NULL;
	}
	chain = &world->chains[number];
	expect(world, may_begin(world, number), "it may not begin");
	expect(world, (int)place == turn_of(chain), "it is not its turn");
	expect(world, *cancel == (chain->told[place] ||
				  (!place && chain->fence && chain->doomed)),
	       "it, or what a fence waited for, has failed, or has not");
	chain->states[place] = RUNS;
	return step;
}

/*
 * With a step that fails the rest of its chain ends, unbegun: it comes back whole and
 * in its order.
 */
static void expect_whole(struct world *world, struct chain *chain, unsigned int place,
			 struct tow_step *rest)
{
	for (unsigned int i = place + 1; i < chain->length; i++) {
		expect(world, rest == &chain->steps[i], "the rest of a chain is another");
		if (world->wrong)
			return;
		rest = rest->next;
		/* It is somebody else's by now. */
		memset(&chain->steps[i], 0x5a, sizeof(chain->steps[i]));
	}
	expect(world, !rest, "more than the rest of a chain");
}

static void cut_off(struct chain *chain, unsigned int place)
{
	for (unsigned int i = place + 1; i < chain->length; i++)
		chain->states[i] = GOES;
}

/* Chains after this one that have not begun when one of its steps fails, or is cut off. */
static void doom(struct world *world, unsigned int number)
{
	for (unsigned int i = number + 1; i < world->count; i++)
		if (!has_begun(&world->chains[i]))
			world->chains[i].doomed = true;
}

/* The next that is being cut off of a chain has ended: true, if there was one. */
static bool cut_next(struct world *world, struct chain *chain)
{
	for (unsigned int i = 1; i < chain->length; i++) {
		if (chain->states[i] != GOES)
			continue;
		chain->states[i] = CUT;
		tow_order_abort(&world->order);
		doom(world, (unsigned int)(chain - world->chains));
		if (i + 1 == chain->length)
			tow_order_end(&world->order);
		return true;
	}
	return false;
}

/* Until that is said to be over nothing fenced begins. */
static void expect_rest(struct world *world, struct chain *chain, unsigned int place,
			struct tow_step *rest)
{
	bool cancel;

	expect_whole(world, chain, place, rest);
	if (world->order.chains.first && world->order.chains.first->fence &&
	    !world->order.ready.first)
		expect(world, !tow_order_next(&world->order, &cancel),
		       "a fence does not wait for what is cut off");
	cut_off(chain, place);
}

/* A step fails, and keeps its place; what is cut off with it goes by cut_next(). */
static void fail(struct world *world, unsigned int number, unsigned int place)
{
	struct chain *chain = &world->chains[number];
	bool begun = chain->states[place] == RUNS;
	struct tow_step *rest = tow_order_fail(&world->order, &chain->steps[place], begun);

	chain->told[place] = true;
	if (begun) {
		expect_whole(world, chain, place, rest);
		cut_off(chain, place);
	} else {
		expect(world, !rest, "a chain ends before it has come so far");
	}
	doom(world, number);
}

/* What is cut off with it goes by cut_next(). */
static void end(struct world *world, struct tow_step *step, bool failed)
{
	unsigned int number, place;
	struct chain *chain;
	struct tow_step *rest;

	if (!find(world, step, &number, &place))
		return;
	chain = &world->chains[number];
	rest = tow_order_done(&world->order, step, failed);
	failed |= chain->told[place];
	chain->states[place] = failed ? FAILED : SUCCEEDED;
	if (failed && place + 1 < chain->length && chain->states[place + 1] == WAITS)
		expect_rest(world, chain, place, rest);
	else
		expect(world, !rest, "the rest of a chain that goes on, or has none");
	if (failed && !chain->told[place])
		doom(world, number);
}

/* And so it does at once. */
static void done(struct world *world, struct tow_step *step, bool failed)
{
	unsigned int number, place;

	end(world, step, failed);
	if (find(world, step, &number, &place))
		while (cut_next(world, &world->chains[number]))
			;
}

/* ---- by chance ------------------------------------------------------------------------ */

static uint64_t state = 0x6f72646572;

static unsigned int chance(unsigned int end)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (unsigned int)(state >> 20) % end;
}

/* Steps that have begun and not ended. */
struct running {
	struct tow_step *steps[CHAINS_MAX];
	bool cancel[CHAINS_MAX];
	unsigned int count;
};

static bool begin_one(struct world *world, struct running *running)
{
	bool cancel;
	struct tow_step *step = next(world, &cancel);

	if (!step || world->wrong)
		return false;
	running->steps[running->count] = step;
	running->cancel[running->count++] = cancel;
	return true;
}

static void pass_some(struct world *world, struct running *running)
{
	unsigned int room = CHAINS_MAX - world->count;
	unsigned int count = 1 + chance(3);

	if (count > room)
		count = room;
	if (!count)
		return;
	count = pass(world, count);
	for (unsigned int i = world->count - count; i < world->count; i++) {
		running->steps[running->count] = &world->chains[i].steps[0];
		running->cancel[running->count++] = false;
	}
}

static void end_one(struct world *world, struct running *running)
{
	unsigned int which = chance(running->count);
	struct tow_step *step = running->steps[which];
	bool failed = running->cancel[which] || !chance(6);

	running->count--;
	running->steps[which] = running->steps[running->count];
	running->cancel[which] = running->cancel[running->count];
	end(world, step, failed);
}

/* One that has not ended: it may run, or be where nothing has begun. */
static void fail_one(struct world *world)
{
	unsigned int number = chance(world->count);
	struct chain *chain = &world->chains[number];
	unsigned int place = chance(chain->length);

	if (!chain->told[place] &&
	    (chain->states[place] == WAITS || chain->states[place] == RUNS))
		fail(world, number, place);
}

static bool end_a_cut(struct world *world)
{
	for (unsigned int i = 0; i < world->count; i++)
		if (cut_next(world, &world->chains[i]))
			return true;
	return false;
}

/* One of its steps may have failed before the chain is complete. */
static void add_one(struct world *world)
{
	unsigned int length = 1 + chance(2) * chance(CHAIN_MAX);
	struct chain *chain = make(world, length, !chance(4));

	if (!chance(8))
		fail(world, world->count - 1, chance(length));
	tow_order_add(&world->order, &chain->steps[0]);
}

static const char *one_sequence(void)
{
	static struct world world;
	struct running running = { .count = 0 };

	begin_world(&world);
	for (int i = 0; i < MOVES && !world.wrong; i++) {
		unsigned int roll = chance(9) / 2;

		if (roll == 0 && world.count < CHAINS_MAX)
			add_one(&world);
		else if (roll == 1 && running.count)
			end_one(&world, &running);
		else if (roll == 2)
			pass_some(&world, &running);
		else if (roll == 4 && world.count)
			fail_one(&world);
		else if (!chance(4))
			end_a_cut(&world);
		else
			begin_one(&world, &running);
	}
	/* All of it comes to an end. */
	while (!world.wrong &&
	       (begin_one(&world, &running) || end_a_cut(&world) || running.count))
		if (running.count)
			end_one(&world, &running);
	expect(&world, all_before_ended(&world, world.count), "a chain that never ends");
	return world.wrong;
}

static bool chance_breaks_no_rule(void)
{
	for (int i = 0; i < SEQUENCES; i++) {
		const char *wrong = one_sequence();

		if (!wrong)
			continue;
		ksft_print_msg("sequence %d: %s\n", i, wrong);
		return false;
	}
	return true;
}

/* ---- written down ---------------------------------------------------------------------- */

static bool empty_order_has_nothing(void)
{
	struct tow_order order;
	bool cancel = true;

	tow_order_init(&order);
	return !tow_order_next(&order, &cancel) && !cancel;
}

/* Without LINK and FENCE all begin at once, in their order. */
static bool single_steps_begin_in_order(void)
{
	static struct world world;
	bool cancel;

	begin_world(&world);
	for (int i = 0; i < 10; i++)
		add(&world, 1, false);
	for (int i = 0; i < 10; i++)
		if (next(&world, &cancel) != &world.chains[i].steps[0] || cancel)
			return false;
	return !next(&world, &cancel) && !world.wrong;
}

/* Those that need not wait pass by; behind a chain that waits they queue up. */
static bool chains_pass_by_nobody(void)
{
	static struct world world;
	bool cancel;

	begin_world(&world);
	if (pass(&world, 2) != 2 || next(&world, &cancel))
		return false;
	add(&world, 1, true);
	if (pass(&world, 1) || next(&world, &cancel))
		return false;
	done(&world, &world.chains[0].steps[0], false);
	/* The fence waits for all of those that passed. */
	if (next(&world, &cancel))
		return false;
	done(&world, &world.chains[1].steps[0], false);
	if (next(&world, &cancel) != &world.chains[1].steps[1])
		return false;
	done(&world, &world.chains[1].steps[1], false);
	return next(&world, &cancel) == &world.chains[2].steps[0] &&
	       next(&world, &cancel) == &world.chains[3].steps[0] && !world.wrong;
}

static bool chains_go_on_one_by_one(void)
{
	static struct world world;
	bool cancel;

	begin_world(&world);
	add(&world, 3, false);
	for (int i = 0; i < 3; i++) {
		if (next(&world, &cancel) != &world.chains[0].steps[i] ||
		    next(&world, &cancel))
			return false;
		done(&world, &world.chains[0].steps[i], false);
	}
	return !next(&world, &cancel) && !world.wrong;
}

static bool failures_cut_chains(void)
{
	static struct world world;
	bool cancel;

	begin_world(&world);
	add(&world, 4, false);
	next(&world, &cancel);
	done(&world, &world.chains[0].steps[0], false);
	next(&world, &cancel);
	done(&world, &world.chains[0].steps[1], true);
	return !next(&world, &cancel) && world.chains[0].states[2] == CUT &&
	       world.chains[0].states[3] == CUT && !world.wrong;
}

/* Those behind it do not begin before it; then they do not wait for it. */
static bool fences_hold_back(void)
{
	static struct world world;
	bool cancel;

	begin_world(&world);
	add(&world, 2, false);
	add(&world, 1, true);
	add(&world, 1, false);
	if (next(&world, &cancel) != &world.chains[0].steps[0] || next(&world, &cancel))
		return false;
	done(&world, &world.chains[0].steps[0], false);
	if (next(&world, &cancel) != &world.chains[0].steps[1] || next(&world, &cancel))
		return false;
	done(&world, &world.chains[0].steps[1], false);
	return next(&world, &cancel) == &world.chains[1].steps[0] && !cancel &&
	       next(&world, &cancel) == &world.chains[2].steps[0] && !world.wrong;
}

/* A failure before it was added is no concern of it; one after is. */
static bool fences_behind_failures(void)
{
	static struct world world;
	bool cancel;

	begin_world(&world);
	add(&world, 1, false);
	next(&world, &cancel);
	done(&world, &world.chains[0].steps[0], true);
	add(&world, 1, true);
	if (next(&world, &cancel) != &world.chains[1].steps[0] || cancel)
		return false;
	add(&world, 2, true);
	add(&world, 1, true);
	done(&world, &world.chains[1].steps[0], true);
	if (next(&world, &cancel) != &world.chains[2].steps[0] || !cancel)
		return false;
	done(&world, &world.chains[2].steps[0], true);
	return next(&world, &cancel) == &world.chains[3].steps[0] && cancel && !world.wrong;
}

/*
 * One that fails before it begins keeps its place: it is not done when that comes, the
 * rest of its chain ends then, and those before it know of nothing.  Nor do those that
 * were added after it.
 */
static bool failures_before_the_beginning(void)
{
	static struct world world;
	bool cancel;

	begin_world(&world);
	add(&world, 1, false);
	next(&world, &cancel);
	add(&world, 1, true);
	add(&world, 3, true);
	add(&world, 1, true);
	fail(&world, 2, 1);
	add(&world, 1, true);
	done(&world, &world.chains[0].steps[0], false);
	if (next(&world, &cancel) != &world.chains[1].steps[0] || cancel)
		return false;
	done(&world, &world.chains[1].steps[0], false);
	if (next(&world, &cancel) != &world.chains[2].steps[0] || cancel)
		return false;
	done(&world, &world.chains[2].steps[0], false);
	if (next(&world, &cancel) != &world.chains[2].steps[1] || !cancel)
		return false;
	/* With it the chain's last step fails, which the fences were to wait for, too. */
	done(&world, &world.chains[2].steps[1], true);
	add(&world, 1, true);
	for (int i = 3; i < 5; i++) {
		if (next(&world, &cancel) != &world.chains[i].steps[0] || !cancel)
			return false;
		/* If it failed, too, the last one would have waited for that. */
		done(&world, &world.chains[i].steps[0], false);
	}
	return next(&world, &cancel) == &world.chains[5].steps[0] && !cancel && !world.wrong;
}

/*
 * One that fails while it is done: its chain ends at once, and a fence waits for it all
 * the same, and for the rest of its chain, of which it fails, too, as long as there is
 * any.  Whatever it says at its end, it has failed.
 */
static bool failures_before_the_end(void)
{
	static struct world world;
	bool cancel;

	begin_world(&world);
	add(&world, 3, false);
	add(&world, 1, true);
	next(&world, &cancel);
	fail(&world, 0, 0);
	add(&world, 1, true);
	if (world.chains[0].states[1] != GOES || world.chains[0].states[2] != GOES ||
	    next(&world, &cancel))
		return false;
	end(&world, &world.chains[0].steps[0], false);
	for (int i = 0; i < 2; i++)
		if (next(&world, &cancel) || !cut_next(&world, &world.chains[0]))
			return false;
	add(&world, 1, true);
	for (int i = 1; i < 3; i++) {
		if (next(&world, &cancel) != &world.chains[i].steps[0] || !cancel)
			return false;
		/* If it failed, too, the last one would have waited for that. */
		done(&world, &world.chains[i].steps[0], false);
	}
	return next(&world, &cancel) == &world.chains[3].steps[0] && !cancel && !world.wrong;
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(10);
	ksft_test_result(empty_order_has_nothing(), "nothing begins where there is nothing\n");
	ksft_test_result(single_steps_begin_in_order(), "single steps begin in their order\n");
	ksft_test_result(chains_pass_by_nobody(), "chains pass by nobody\n");
	ksft_test_result(chains_go_on_one_by_one(), "chains go on one by one\n");
	ksft_test_result(failures_cut_chains(), "failures cut chains\n");
	ksft_test_result(fences_hold_back(), "fences hold back\n");
	ksft_test_result(fences_behind_failures(), "fences know of failures\n");
	ksft_test_result(failures_before_the_beginning(), "failures before the beginning\n");
	ksft_test_result(failures_before_the_end(), "failures before the end\n");
	ksft_test_result(chance_breaks_no_rule(), "chance breaks no rule\n");
	ksft_finished();
}

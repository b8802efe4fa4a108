// SPDX-License-Identifier: GPL-2.0
/*
 * A parameter server against the real module: servers and workers are processes of one node.
 * What comes out is compared with what one process computes; then staleness, ranks that die, are
 * late or leave, training that goes on after that, and what is refused.
 */
/* build: link -ltowline */
#include <math.h>

#include <towline/server.h>

#include "tow_ranks.h"

#define POOL_BYTES	"192m"
#define STEPS		10U
#define SOON_MS		5000U
/* Who is told of a rank that died is told in this time, far below any time-out. */
#define TOLD_MS		15000U

/* What all processes see. */
struct board {
	_Atomic uint32_t there;
	_Atomic uint32_t go_on;
	_Atomic uint32_t pushes[TOW_RANKS_TESTED];
};

static struct board *board;

/* ---- variables ---------------------------------------------------------------- */

#define VARIABLES	6U

static const struct tow_tensor_type types[VARIABLES] = {
	{ { TOW_DTYPE_FLOAT, 32, 1 }, 2, { 64, 33 } },
	{ { TOW_DTYPE_FLOAT, 32, 1 }, 1, { 1 } },
	{ { TOW_DTYPE_FLOAT, 64, 1 }, 1, { 4097 } },
	{ { TOW_DTYPE_FLOAT, 32, 1 }, 0, { 0 } },
	{ { TOW_DTYPE_FLOAT, 32, 1 }, 1, { 100003 } },
	{ { TOW_DTYPE_FLOAT, 32, 1 }, 2, { 7, 0 } },
};

static const struct tow_store_attr optimizers[] = {
	{ .size = sizeof(optimizers[0]), .optimizer = TOW_SGD, .rate = 0.1, .momentum = 0.9 },
	{ .size = sizeof(optimizers[0]), .optimizer = TOW_ADAM, .rate = 0.01, .beta1 = 0.9,
	  .beta2 = 0.999, .epsilon = 1e-8 },
	/* Updates of whole numbers, which come out the same in any order. */
	{ .size = sizeof(optimizers[0]), .optimizer = TOW_SGD, .rate = 1 },
};

static uint64_t bytes_of(uint32_t variable)
{
	uint64_t bytes = 0;

	tow_tensor_bytes(&types[variable], &bytes);
	return bytes;
}

static uint64_t chance(uint64_t state)
{
	state = (state ^ state >> 31) * 0x94d049bb133111ebULL;
	return state ^ state >> 29;
}

static void put(void *array, uint32_t variable, uint64_t at, double value)
{
	if (types[variable].dtype.bits == 64)
		((double *)array)[at] = value;
	else
		((float *)array)[at] = (float)value;
}

static uint64_t elements_of(uint32_t variable)
{
	return bytes_of(variable) / (types[variable].dtype.bits / 8);
}

/* Numbers that are none, at some places, of one worker each; and infinities of both, some opposite. */
static bool peculiar;

static void put_peculiar(void *array, uint32_t variable, uint32_t worker, uint64_t step)
{
	for (uint64_t i = step; i < elements_of(variable); i += 97) {
		if (i % 3 == worker % 3)
			put(array, variable, i, i % 2 ? NAN : -NAN);
		else if (i % 5 < 2)
			put(array, variable, i, (i + worker) % 2 ? INFINITY : -INFINITY);
	}
}

/* The gradient of a worker, from 0, in a step: whole numbers, or any. */
static void compute(void *array, uint32_t variable, uint32_t worker, uint64_t step, bool whole)
{
	for (uint64_t i = 0; i < elements_of(variable); i++) {
		uint64_t bits = chance((variable + 1) * 0x9e3779b97f4a7c15ULL + i * 131 +
				       worker * 0x1000003ULL + step * 0x5bd1e995ULL);

		put(array, variable, i, whole ? (double)(bits % 9) - 4 :
					(double)(int32_t)bits / (double)(1ULL << (20 + bits % 20)));
	}
	if (peculiar)
		put_peculiar(array, variable, worker, step);
}

static void *first_value(uint32_t variable)
{
	void *array = calloc(1, bytes_of(variable) + 64);

	for (uint64_t i = 0; i < elements_of(variable); i++)
		put(array, variable, i, (double)((i * 37 + variable) % 101) - 50);
	return array;
}

/* A server's own variables: of all those of number @first, and then every @step'th. */
static int make_store(struct tow_arena *arena, uint32_t optimizer, uint32_t first, uint32_t step,
		      struct tow_store **store)
{
	struct tow_tensor_type own[VARIABLES] = { 0 };
	void *values[VARIABLES] = { NULL };
	uint32_t count = 0, i;
	int ret;

	for (i = first; i < VARIABLES; i += step) {
		own[count] = types[i];
		values[count++] = first_value(i);
	}
	ret = tow_store_create(arena, &optimizers[optimizer], own, (const void *const *)values,
			       count, store);
	while (count)
		free(values[--count]);
	return ret;
}

/* ---- taking part -------------------------------------------------------------- */

struct part {
	uint32_t rank, ranks, servers, restart;
	uint32_t optimizer, staleness, timeout_ms;
	uint64_t steps;
	bool outside;			/* gradients are in no arena */
	/* A worker's: before it pushes in that step; what is not 0 ends it as it is. */
	int (*before)(const struct part *part, uint64_t step, uint32_t variable);
	/* What tow_ps_serve() and tow_ps_wait() end with; and by whom. */
	int want;
	uint32_t blamed;
	bool again;			/* after that, with the next start */
};

FIXTURE(server)
{
	struct tow_ranks ranks;
};

FIXTURE_SETUP(server)
{
	ASSERT_EQ(0, tow_ranks_begin(&self->ranks, POOL_BYTES));
	board = tow_ranks_share(sizeof(*board));
	ASSERT_TRUE(board);
}

FIXTURE_TEARDOWN(server)
{
	tow_ranks_end(&self->ranks);
	munmap(board, sizeof(*board));
}

static int make_ps(const struct part *part, const struct tow_me *me, struct tow_store *store,
		   struct tow_ps **ps)
{
	struct tow_ps_attr attr = {
		.size = sizeof(attr),
		.servers = part->servers,
		.staleness = part->staleness,
		.timeout_ms = part->timeout_ms,
		.count = VARIABLES,
		.types = types,
		.store = store,
	};

	return tow_ps_create(me->group, me->arena, &attr, ps, NULL);
}

/* What all workers together have made of a variable, computed here. */
static void *expected(const struct part *part, struct tow_arena *arena, uint32_t variable)
{
	uint32_t workers = part->ranks - part->servers, i;
	const void *gradients[TOW_RANKS_TESTED];
	struct tow_store *store;
	void *value;

	if (make_store(arena, part->optimizer, variable, VARIABLES, &store))
		return NULL;
	for (i = 0; i < workers; i++)
		gradients[i] = malloc(bytes_of(variable) + 1);
	for (uint64_t step = 0; step < part->steps; step++) {
		for (i = 0; i < workers; i++)
			compute((void *)(uintptr_t)gradients[i], variable, i, step,
				part->optimizer == 2);
		if (part->staleness == TOW_PS_SYNCHRONOUS) {
			tow_store_update(store, 0, gradients, workers);
			continue;
		}
		for (i = 0; i < workers; i++)
			tow_store_update(store, 0, &gradients[i], 1);
	}
	for (i = 0; i < workers; i++)
		free((void *)(uintptr_t)gradients[i]);
	value = malloc(bytes_of(variable) + 1);
	memcpy(value, tow_store_value(store, 0), bytes_of(variable));
	tow_store_destroy(store);
	return value;
}

/*
 * Has this rank what it should have at the end?  With staleness a worker may lack what others
 * have pushed last.
 */
static int is_right(const struct part *part, const struct tow_me *me, const struct tow_ps *ps,
		    const struct tow_store *store)
{
	bool serves = part->rank < part->servers;
	int wrong = 0;

	if (!serves && part->staleness && part->staleness != TOW_PS_SYNCHRONOUS)
		return 0;
	for (uint32_t i = serves ? part->rank : 0; i < VARIABLES; i += serves ? part->servers : 1) {
		const void *has = serves ? tow_store_value(store, i / part->servers) :
					   tow_ps_value(ps, i);
		void *want = expected(part, me->arena, i);

		wrong += !want || memcmp(want, has, bytes_of(i));
		free(want);
	}
	return wrong ? 40 : 0;
}

static int one_step(const struct part *part, struct tow_ps *ps, void **gradients, uint32_t *blamed)
{
	uint32_t worker = part->rank - part->servers, i, variable;
	uint64_t step = tow_ps_step(ps);
	int ret;

	for (i = 0; i < VARIABLES; i++) {
		/* In another order at each worker. */
		variable = (i * (worker % 2 ? 5 : 1) + worker) % VARIABLES;
		compute(gradients[variable], variable, worker, step, part->optimizer == 2);
		ret = part->before ? part->before(part, step, variable) : 0;
		if (!ret)
			ret = tow_ps_push(ps, variable, gradients[variable]);
		if (ret)
			break;
	}
	return ret > 0 ? ret : tow_ps_wait(ps, TOW_PS_ALL, blamed);
}

static int work(const struct part *part, const struct tow_me *me, struct tow_ps *ps,
		uint32_t *blamed)
{
	void *gradients[VARIABLES];
	uint32_t i;
	int ret;

	for (i = 0; i < VARIABLES; i++)
		gradients[i] = part->outside ? malloc(bytes_of(i) + 1) :
					       tow_arena_alloc(me->arena, bytes_of(i));
	ret = tow_ps_wait(ps, TOW_PS_ALL, blamed);
	while (!ret && tow_ps_step(ps) < part->steps) {
		if (tow_ps_push(ps, 0, NULL) != -EINVAL)
			return 31;
		ret = one_step(part, ps, gradients, blamed);
	}
	for (i = 0; i < VARIABLES && ret <= 0; i++) {
		if (part->outside)
			free(gradients[i]);
		else
			tow_arena_free(me->arena, gradients[i]);
	}
	return ret;
}

static int check_stats(const struct part *part, const struct tow_ps *ps)
{
	struct tow_ps_stats stats = { .size = sizeof(stats) };
	uint32_t workers = part->ranks - part->servers;
	uint64_t all = 0, own = 0;

	for (uint32_t i = 0; i < VARIABLES; i++) {
		all += bytes_of(i);
		own += i % part->servers == part->rank ? bytes_of(i) : 0;
	}
	if (tow_ps_stats(ps, &stats) || stats.servers != part->servers || stats.workers != workers)
		return 50;
	if (part->rank < part->servers)
		return stats.copied_bytes || stats.received_bytes != own * part->steps * workers ||
		       stats.sent_bytes != own * (part->steps + 1) * workers ? 51 : 0;
	return stats.copied_bytes != (part->outside ? all * part->steps : 0) ||
	       stats.sent_bytes != all * part->steps ||
	       stats.received_bytes != all * (part->steps + 1) ? 52 : 0;
}

/* With one tow_ps, from its begin to its end. */
static int train(const struct part *part, const struct tow_me *me, struct tow_store *store)
{
	uint32_t blamed = TOW_NO_RANK;
	bool whole = !part->restart;
	struct tow_ps *ps;
	int ret;

	ret = make_ps(part, me, store, &ps);
	if (ret) {
		fprintf(stderr, "# rank %u: %d\n", part->rank, ret);
		return 20;
	}
	if (part->rank < part->servers)
		ret = tow_ps_serve(ps, TOW_WAIT_FOREVER, &blamed);
	else
		ret = work(part, me, ps, &blamed);
	if (ret > 0)
		return ret;
	if (ret != part->want || blamed != (part->want ? part->blamed : TOW_NO_RANK)) {
		fprintf(stderr, "# rank %u: %d, blamed %d\n", part->rank, ret, (int)blamed);
		return 21;
	}
	if (!ret)
		ret = is_right(part, me, ps, store);
	if (!ret && whole)
		ret = check_stats(part, ps);
	tow_ps_destroy(ps);
	return ret > 0 ? ret : 0;
}

static int take_part(const void *arg, const char *session)
{
	const struct part *part = arg;
	struct tow_me me = { .rank = part->rank, .ranks = part->ranks };
	struct tow_store *store = NULL;
	struct part next = *part;
	int ret;

	ret = tow_meet_anew(&me, part->restart, session);
	if (!ret && part->rank < part->servers && part->rank < VARIABLES)
		ret = make_store(me.arena, part->optimizer, part->rank, part->servers, &store);
	if (ret) {
		fprintf(stderr, "# rank %u: %d\n", part->rank, ret);
		return 10;
	}
	ret = train(part, &me, store);
	if (!ret && part->again) {
		tow_group_destroy(me.group);
		next.want = 0;
		next.before = NULL;
		next.restart++;
		ret = tow_meet(&me, next.restart, session) ? 11 : train(&next, &me, store);
	}
	if (ret)
		return ret;
	if (tow_store_destroy(store))
		return 12;
	return tow_part(&me) ? 13 : 0;
}

static void all_take_part(struct __test_metadata *_metadata, struct tow_ranks *ranks,
			  struct part part)
{
	uint32_t first = ranks->started;

	for (part.rank = part.ranks; part.rank--;)
		tow_ranks_start(ranks, take_part, &part);
	for (uint32_t i = 0; i < part.ranks; i++)
		EXPECT_EQ(0, tow_ranks_end_of(ranks, first + i));
}

/* ---- synchronously: as one process does ---------------------------------------- */

static int delay(const struct part *part, uint64_t step, uint32_t variable)
{
	usleep((useconds_t)((part->rank * 7ULL + step * 5 + variable) % 4 * 1000));
	return 0;
}

TEST_F_TIMEOUT(server, one_of_each, 60)
{
	all_take_part(_metadata, &self->ranks, (struct part){
		.ranks = 2, .servers = 1, .staleness = TOW_PS_SYNCHRONOUS, .steps = STEPS });
}

TEST_F_TIMEOUT(server, workers_add_up, 60)
{
	all_take_part(_metadata, &self->ranks, (struct part){
		.ranks = 4, .servers = 1, .staleness = TOW_PS_SYNCHRONOUS, .steps = STEPS,
		.outside = true, .before = delay });
}

TEST_F_TIMEOUT(server, several_servers, 60)
{
	all_take_part(_metadata, &self->ranks, (struct part){
		.ranks = 5, .servers = 2, .staleness = TOW_PS_SYNCHRONOUS, .steps = STEPS,
		.optimizer = 1, .before = delay });
}

/* More servers than variables: some have nothing to do. */
TEST_F_TIMEOUT(server, idle_servers, 60)
{
	all_take_part(_metadata, &self->ranks, (struct part){
		.ranks = 8, .servers = 7, .staleness = TOW_PS_SYNCHRONOUS, .steps = STEPS });
}

/* They are carried as any other, and stay where they are. */
TEST_F_TIMEOUT(server, no_numbers, 60)
{
	peculiar = true;
	all_take_part(_metadata, &self->ranks, (struct part){
		.ranks = 4, .servers = 1, .staleness = TOW_PS_SYNCHRONOUS, .steps = STEPS });
	all_take_part(_metadata, &self->ranks, (struct part){
		.ranks = 3, .servers = 1, .staleness = TOW_PS_SYNCHRONOUS, .steps = STEPS,
		.optimizer = 1, .restart = 1 });
}

/* ---- staleness ----------------------------------------------------------------- */

/* Worker 0 waits until the others can go no further. */
static int dawdle(const struct part *part, uint64_t step, uint32_t variable)
{
	uint32_t worker = part->rank - part->servers, others = part->ranks - part->servers - 1;

	if (!worker && !step && !variable && !tow_becomes(&board->there, others))
		return 60;
	if (worker && variable == 0) {
		/* This step's value came: worker 0 is at most so far behind. */
		if (step > part->staleness &&
		    atomic_load(&board->pushes[0]) + part->staleness < step)
			return 61;
		if (step == part->staleness)
			atomic_fetch_add(&board->there, 1);
	}
	if (!worker)
		atomic_store(&board->pushes[0], (uint32_t)step + 1);
	return 0;
}

TEST_F_TIMEOUT(server, bounded_staleness, 60)
{
	all_take_part(_metadata, &self->ranks, (struct part){
		.ranks = 4, .servers = 1, .staleness = 3, .steps = STEPS, .optimizer = 2,
		.before = dawdle });
}

/* Nobody is ahead: all have all updates at the end. */
TEST_F_TIMEOUT(server, no_staleness, 60)
{
	all_take_part(_metadata, &self->ranks, (struct part){
		.ranks = 4, .servers = 2, .staleness = 0, .steps = STEPS, .optimizer = 2,
		.before = delay });
}

/* ---- ranks that end --------------------------------------------------------------- */

/* Rank 3 stays in step 2 for ever, when its first gradients were sent. */
static int stay(const struct part *part, uint64_t step, uint32_t variable)
{
	if (part->rank == 3 && step == 2 && variable == 3) {
		atomic_fetch_add(&board->there, 1);
		for (;;)
			pause();
	}
	return 0;
}

/* Of two servers and two workers one is killed, and all others know which. */
static void one_dies(struct __test_metadata *_metadata, struct tow_ranks *ranks, uint32_t dies,
		     int how, struct part part)
{
	double begin;

	part.ranks = 4;
	part.servers = 2;
	part.staleness = TOW_PS_SYNCHRONOUS;
	part.before = stay;
	part.steps = STEPS;
	part.blamed = dies;
	for (part.rank = 0; part.rank < 4; part.rank++)
		tow_ranks_start(ranks, take_part, &part);
	ASSERT_TRUE(tow_becomes(&board->there, 1));
	/* The others have sent what they can. */
	usleep(100000);
	begin = tow_test_now();
	kill(ranks->pids[dies], how);
	if (dies != 3)
		kill(ranks->pids[3], SIGKILL);
	for (uint32_t i = 0; i < 3; i++) {
		if (i != dies) {
			EXPECT_EQ(0, tow_ranks_end_of(ranks, i));
		}
	}
	TOW_WITHIN(begin, TOLD_MS);
}

TEST_F_TIMEOUT(server, a_worker_dies, 60)
{
	one_dies(_metadata, &self->ranks, 3, SIGKILL, (struct part){ .want = -ESTALE });
}

TEST_F_TIMEOUT(server, a_worker_is_late, 60)
{
	one_dies(_metadata, &self->ranks, 3, SIGSTOP,
		 (struct part){ .want = -ETIMEDOUT, .timeout_ms = SOON_MS });
}

/* Rank 0 dies while all wait for rank 3; that one would wait for it, too. */
static int stay_briefly(const struct part *part, uint64_t step, uint32_t variable)
{
	if (part->rank == 3 && step == 2 && variable == 3) {
		atomic_fetch_add(&board->there, 1);
		if (!tow_becomes(&board->go_on, 1))
			return 60;
	}
	return 0;
}

TEST_F_TIMEOUT(server, a_server_dies, 60)
{
	struct part part = { .ranks = 4, .servers = 2, .staleness = TOW_PS_SYNCHRONOUS,
			     .steps = STEPS, .before = stay_briefly, .want = -ESTALE };
	double begin;

	for (part.rank = 0; part.rank < 4; part.rank++)
		tow_ranks_start(&self->ranks, take_part, &part);
	ASSERT_TRUE(tow_becomes(&board->there, 1));
	begin = tow_test_now();
	kill(self->ranks.pids[0], SIGKILL);
	atomic_store(&board->go_on, 1);
	for (uint32_t i = 1; i < 4; i++)
		EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, i));
	TOW_WITHIN(begin, TOLD_MS);
}

/* A worker that has fewer steps to do than the others. */
TEST_F_TIMEOUT(server, a_worker_leaves, 60)
{
	struct part part = { .ranks = 3, .servers = 1, .staleness = TOW_PS_SYNCHRONOUS };

	for (part.rank = 0; part.rank < 3; part.rank++) {
		struct part own = part;

		own.steps = part.rank == 2 ? 2 : STEPS;
		own.want = part.rank == 2 ? 0 : -ESTALE;
		own.blamed = 2;
		tow_ranks_start(&self->ranks, take_part, &own);
	}
	for (uint32_t i = 0; i < 3; i++)
		EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, i));
}

/* ---- and training goes on ------------------------------------------------------------ */

/*
 * Worker 3 is killed in mid-step: of some variables its gradient came, of others not.  All
 * others meet its next life, and what comes out is what would have without that.
 */
TEST_F_TIMEOUT(server, goes_on, 60)
{
	struct part part = { .ranks = 4, .servers = 2, .staleness = TOW_PS_SYNCHRONOUS,
			     .steps = STEPS, .before = stay, .want = -ESTALE, .blamed = 3,
			     .again = true };

	for (part.rank = 0; part.rank < 4; part.rank++)
		tow_ranks_start(&self->ranks, take_part, &part);
	ASSERT_TRUE(tow_becomes(&board->there, 1));
	kill(self->ranks.pids[3], SIGKILL);
	tow_ranks_end_of(&self->ranks, 3);
	part = (struct part){ .rank = 3, .ranks = 4, .servers = 2, .restart = 1,
			      .staleness = TOW_PS_SYNCHRONOUS, .steps = STEPS };
	tow_ranks_start(&self->ranks, take_part, &part);
	for (uint32_t i = 0; i < 5; i++)
		if (i != 3) {
			EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, i));
		}
}

/* ---- what is refused ------------------------------------------------------------------ */

static int refused_stores(const struct tow_me *me)
{
	const struct tow_tensor_type integers = { { TOW_DTYPE_INT, 32, 1 }, 1, { 3 } };
	struct tow_store *store = NULL;
	struct tow_store_attr attr;
	const void *gradients[2] = { NULL, NULL };
	float gradient = 1;

	attr = optimizers[0];
	attr.rate = 0;
	if (tow_store_create(me->arena, &attr, types, NULL, 1, &store) != -EINVAL)
		return 70;
	attr.rate = 1;
	attr.momentum = 1;
	if (tow_store_create(me->arena, &attr, types, NULL, 1, &store) != -EINVAL)
		return 71;
	attr.momentum = 0;
	attr.optimizer = 2;
	if (tow_store_create(me->arena, &attr, types, NULL, 1, &store) != -EINVAL)
		return 72;
	attr.optimizer = TOW_ADAM;
	attr.beta2 = -1;
	if (tow_store_create(me->arena, &attr, types, NULL, 1, &store) != -EINVAL)
		return 73;
	attr.size = 1;
	if (tow_store_create(me->arena, &attr, types, NULL, 1, &store) != -EINVAL)
		return 74;
	if (tow_store_create(me->arena, &optimizers[0], &integers, NULL, 1, &store) != -EOPNOTSUPP)
		return 75;
	if (tow_store_create(me->arena, &optimizers[0], types, gradients, 1, &store) != -EINVAL ||
	    tow_store_create(me->arena, &optimizers[0], types, NULL, 0, &store) != -EINVAL)
		return 76;
	if (tow_store_create(me->arena, &optimizers[0], &types[1], NULL, 1, &store))
		return 77;
	if (tow_store_update(store, 1, gradients, 1) != -EINVAL ||
	    tow_store_update(store, 0, gradients, 1) != -EINVAL ||
	    tow_store_update(store, 0, gradients, 0) != -EINVAL || tow_store_value(store, 1) ||
	    tow_store_updates(store, 1) != UINT64_MAX)
		return 78;
	gradients[0] = &gradient;
	if (tow_store_update(store, 0, gradients, 1) || tow_store_updates(store, 0) != 1)
		return 79;
	return tow_store_destroy(store) ? 80 : 0;
}

/* A server asks for what cannot be; nobody else is asked. */
static int refused_attrs(const struct tow_me *me, struct tow_store *store)
{
	struct tow_ps_attr good = { .size = sizeof(good), .servers = 1, .count = VARIABLES,
				    .staleness = TOW_PS_SYNCHRONOUS, .types = types,
				    .store = store }, attr;
	struct tow_ps *ps = NULL;

	attr = good;
	attr.servers = 0;
	if (tow_ps_create(me->group, me->arena, &attr, &ps, NULL) != -EINVAL)
		return 90;
	attr.servers = me->ranks;
	if (tow_ps_create(me->group, me->arena, &attr, &ps, NULL) != -EINVAL)
		return 91;
	attr = good;
	attr.count--;
	/* The store has one more. */
	if (tow_ps_create(me->group, me->arena, &attr, &ps, NULL) != -EINVAL)
		return 92;
	attr = good;
	attr.store = NULL;
	if (tow_ps_create(me->group, me->arena, &attr, &ps, NULL) != -EINVAL)
		return 93;
	attr = good;
	attr.types = NULL;
	if (tow_ps_create(me->group, me->arena, &attr, &ps, NULL) != -EINVAL)
		return 94;
	attr = good;
	attr.size = 3;
	return tow_ps_create(me->group, me->arena, &attr, &ps, NULL) == -EINVAL && !ps ? 0 : 95;
}

static int refused_of_server(struct tow_ps *ps, struct tow_store *store)
{
	const void *gradient = store;
	uint32_t blamed;

	if (tow_ps_push(ps, 0, gradient) != -EINVAL || tow_ps_wait(ps, 0, NULL) != -EINVAL ||
	    tow_ps_value(ps, 0))
		return 100;
	if (tow_store_update(store, 0, &gradient, 1) != -EBUSY || tow_store_destroy(store) != -EBUSY)
		return 101;
	/* Nobody has pushed anything. */
	if (tow_ps_serve(ps, 1000, &blamed) != -ETIMEDOUT || blamed != TOW_NO_RANK)
		return 102;
	atomic_fetch_add(&board->there, 1);
	return tow_ps_serve(ps, TOW_WAIT_FOREVER, &blamed) ? 103 : 0;
}

static int refused_of_worker(struct tow_ps *ps)
{
	float gradient = 0;

	if (tow_ps_push(ps, 1, &gradient) != -EBUSY || tow_ps_value(ps, 1))
		return 110;
	if (tow_ps_wait(ps, VARIABLES, NULL) != -EINVAL || tow_ps_push(ps, VARIABLES, &gradient) != -EINVAL)
		return 111;
	if (tow_ps_serve(ps, 0, NULL) != -EINVAL)
		return 112;
	if (!tow_becomes(&board->there, 1) || tow_ps_wait(ps, 1, NULL))
		return 113;
	/* It has a value; but not all have. */
	if (tow_ps_push(ps, 1, &gradient) != -EBUSY || tow_ps_wait(ps, TOW_PS_ALL, NULL))
		return 117;
	if (tow_ps_push(ps, 1, &gradient) || tow_ps_push(ps, 1, &gradient) != -EBUSY)
		return 114;
	if (tow_ps_wait(ps, TOW_PS_ALL, NULL) || tow_ps_step(ps))
		return 115;
	tow_ps_leave(ps);
	tow_ps_leave(ps);
	/* What came stays. */
	return tow_ps_push(ps, 1, &gradient) != -ECANCELED || !tow_ps_value(ps, 1) ? 116 : 0;
}

static int refused(const void *arg, const char *session)
{
	const struct part *part = arg;
	struct tow_me me = { .rank = part->rank, .ranks = part->ranks };
	struct tow_store *store = NULL;
	struct tow_ps *ps = NULL;
	int ret;

	if (tow_meet_anew(&me, 0, session))
		return 10;
	if (!part->rank) {
		if (make_store(me.arena, 0, 0, 1, &store))
			return 11;
		ret = refused_stores(&me);
		ret = ret ? ret : refused_attrs(&me, store);
		if (ret)
			return ret;
	}
	if (make_ps(part, &me, store, &ps))
		return 12;
	ret = store ? refused_of_server(ps, store) : refused_of_worker(ps);
	tow_ps_destroy(ps);
	if (ret)
		return ret;
	return tow_store_destroy(store) || tow_part(&me) ? 13 : 0;
}

TEST_F_TIMEOUT(server, refused, 60)
{
	struct part part = { .ranks = 2, .servers = 1, .staleness = TOW_PS_SYNCHRONOUS };

	for (part.rank = 0; part.rank < 2; part.rank++)
		tow_ranks_start(&self->ranks, refused, &part);
	EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, 0));
	EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, 1));
}

/* Ranks that do not agree on what they do. */
static int disagree(const void *arg, const char *session)
{
	const struct part *part = arg;
	struct tow_me me = { .rank = part->rank, .ranks = part->ranks };
	struct tow_ps_attr attr = {
		.size = sizeof(attr),
		.servers = 1,
		.staleness = part->rank == 1 ? 2 : TOW_PS_SYNCHRONOUS,
		.count = VARIABLES,
		.types = types,
	};
	struct tow_ps *ps = NULL;
	uint32_t blamed;

	if (tow_meet_anew(&me, 0, session))
		return 10;
	if (!part->rank && make_store(me.arena, 0, 0, 1, &attr.store))
		return 11;
	if (tow_ps_create(me.group, me.arena, &attr, &ps, &blamed) != -EPROTO || blamed != 1 || ps)
		return 12;
	return tow_store_destroy(attr.store) || tow_part(&me) ? 13 : 0;
}

TEST_F_TIMEOUT(server, disagreement, 60)
{
	struct part part = { .ranks = 3 };

	for (part.rank = 0; part.rank < 3; part.rank++)
		tow_ranks_start(&self->ranks, disagree, &part);
	for (uint32_t i = 0; i < 3; i++)
		EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, i));
}

TEST_HARNESS_MAIN

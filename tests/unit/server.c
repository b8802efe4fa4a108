// SPDX-License-Identifier: GPL-2.0
/*
 * Parameter servers, a job server and their workers, which are threads here and processes of a node
 * that is played: what they do together, and what they are told when one leaves, fails, or dies.
 */
/* build: also tsan */
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

#include <kselftest.h>
#include <towline/feed.h>
#include <towline/server.h>

#include "tow_node.h"

#define MIB		((size_t)1 << 20)
#define WAIT_MS		60000U
#define SOON_MS		2000U
#define STEPS		5U
#define VARIABLES	3U
#define COUNT		8U
/* One more than may come while nobody looks. */
#define CROWD		65U
/* So many that one more line with each of them is too much. */
#define CROWD_MAX	97U
#define RANKS_MAX	(CROWD_MAX + 2)

enum how { GOES_ON, LEAVES, HASTENS, DIES };

/* What all do, but for one. */
static struct {
	uint32_t ranks, servers, staleness;
	uint32_t who;
	enum how how;			/* and that one, in its second step, */
	int fails;			/* or what its function returns then */
	uint32_t timeout_ms;
	/* When the first tells the so manieth time, it has no more channels; it says so. */
	uint32_t lacks_at, posts_at;
	pthread_barrier_t told;
	unsigned char cards[RANKS_MAX][TOW_GROUP_GATHER_MAX];
	sem_t there, go_on;
} job;

struct rank {
	pthread_t thread;
	uint32_t rank;
	struct tow_arena *arena;
	struct tow_group *group;
	struct tow_ps *ps;
	struct tow_feed *feed;
	struct tow_store *store;
	int ret;
	uint32_t blamed, told;
	uint64_t updates;		/* a server's */
	float value;			/* one of a worker's */
};

static struct rank ranks[RANKS_MAX];

static const struct tow_tensor_type types[VARIABLES] = {
	{ .dtype = { TOW_DTYPE_FLOAT, 32, 1 }, .ndim = 1, .dims = { COUNT } },
	{ .dtype = { TOW_DTYPE_FLOAT, 32, 1 }, .ndim = 1, .dims = { COUNT } },
	{ .dtype = { TOW_DTYPE_FLOAT, 32, 1 }, .ndim = 1, .dims = { COUNT } },
};

/* ---- what each does ---- */

static int gather(void *arg, const void *mine, size_t bytes, void *all)
{
	struct rank *me = arg;

	memcpy(job.cards[me->rank], mine, bytes);
	if (++me->told == job.posts_at && !me->rank)
		sem_post(&job.there);
	pthread_barrier_wait(&job.told);
	if (me->told == job.lacks_at && !me->rank)
		node_refuse(&node.processes[0].no_channel, -ENOSPC);
	for (uint32_t rank = 0; rank < job.ranks; rank++)
		memcpy((char *)all + rank * bytes, job.cards[rank], bytes);
	pthread_barrier_wait(&job.told);
	return 0;
}

/* It does nothing any more: it is killed, and nobody ends what is its own. */
static void die(void)
{
	sem_post(&job.there);
	sem_wait(&job.go_on);
}

static bool is_odd(const struct rank *me, uint64_t step)
{
	return job.how != GOES_ON && job.who == me->rank && step == 1;
}

static int make_ps(struct rank *me)
{
	static const struct tow_store_attr sgd = { .size = sizeof(sgd), .optimizer = TOW_SGD,
						   .rate = 1 };
	struct tow_ps_attr attr = { .size = sizeof(attr), .servers = job.servers,
				    .staleness = job.staleness, .timeout_ms = job.timeout_ms,
				    .count = VARIABLES, .types = types };
	uint32_t own = 0;

	for (uint32_t i = me->rank; me->rank < job.servers && i < VARIABLES; i += job.servers)
		own++;
	if (own && tow_store_create(me->arena, &sgd, types, NULL, own, &me->store))
		return -ENOMEM;
	attr.store = me->store;
	return tow_ps_create(me->group, me->arena, &attr, &me->ps, &me->blamed);
}

static int push_all(struct rank *me, const float *gradient)
{
	int ret = 0;

	for (uint32_t i = 0; !ret && i < VARIABLES; i++)
		ret = tow_ps_push(me->ps, i, gradient);
	return ret;
}

static int work(struct rank *me)
{
	float *gradient = tow_arena_alloc(me->arena, COUNT * sizeof(float));
	int ret = tow_ps_wait(me->ps, TOW_PS_ALL, &me->blamed);

	for (uint32_t i = 0; i < COUNT; i++)
		gradient[i] = (float)(me->rank - job.servers + 1);
	for (uint64_t step = 0; !ret && step < STEPS; step++) {
		if (is_odd(me, step) && job.how == LEAVES)
			break;
		ret = push_all(me, gradient);
		if (is_odd(me, step) && job.how == DIES) {
			die();
			return 0;
		}
		/* The word is right behind what was pushed. */
		if (is_odd(me, step) && job.how == HASTENS)
			break;
		if (!ret || ret == -ESTALE)
			ret = tow_ps_wait(me->ps, TOW_PS_ALL, &me->blamed);
	}
	if (!ret)
		me->value = *(float *)tow_ps_value(me->ps, 0);
	tow_ps_leave(me->ps);
	tow_arena_free(me->arena, gradient);
	return ret;
}

static int serve(struct rank *me)
{
	struct tow_ps_stats stats = { .size = sizeof(stats) };
	int ret;

	if (job.how == DIES && job.who == me->rank) {
		tow_ps_serve(me->ps, 0, NULL);
		die();
		return 0;
	}
	ret = tow_ps_serve(me->ps, TOW_WAIT_FOREVER, &me->blamed);
	tow_ps_stats(me->ps, &stats);
	me->updates = stats.updates;
	return ret;
}

static int fill(void *arg, uint32_t rank, uint64_t step, void *const *tensors)
{
	(void)arg;
	for (uint32_t i = 0; i < VARIABLES; i++)
		*(float *)tensors[i] = (float)(rank * 100ULL + step);
	if (job.fails && step == 1)
		return job.fails;
	/* Nobody has done with all before he hears of who was killed. */
	return step < STEPS || job.how == DIES;
}

static int eat(struct rank *me)
{
	void *const *tensors;
	int ret;

	for (uint64_t step = 0; (ret = tow_feed_next(me->feed, &tensors, &me->blamed)) == 1; step++) {
		if (*(float *)tensors[VARIABLES - 1] != (float)(me->rank * 100ULL + step))
			return -EBADMSG;
		if (is_odd(me, step) && job.how == DIES) {
			die();
			return 0;
		}
		if (is_odd(me, step))
			return 0;
	}
	return ret;
}

static int feed(struct rank *me)
{
	const struct tow_feed_attr attr = { .size = sizeof(attr), .depth = 2, .count = VARIABLES,
					    .timeout_ms = WAIT_MS, .types = types };
	int ret = tow_feed_create(me->group, me->arena, &attr, &me->feed, &me->blamed);

	if (ret)
		return ret;
	if (me->rank)
		return eat(me);
	if (job.how != DIES || job.who)
		return tow_feed_serve(me->feed, fill, me, TOW_WAIT_FOREVER, &me->blamed);
	tow_feed_serve(me->feed, fill, me, 0, NULL);
	die();
	return 0;
}

static void *take_part(void *arg)
{
	struct rank *me = arg;
	struct tow_device *dev = &node_device[me->rank];
	const struct tow_arena_attr arena = { .size = sizeof(arena), .region_bytes = 2 * MIB };
	const struct tow_group_attr attr = { .size = sizeof(attr), .address = "192.0.2.1",
					     .gather = gather, .arg = me };
	const struct tow_world world = { .size = sizeof(world), .rank = me->rank,
					 .world_size = job.ranks };

	if (tow_arena_create(dev, &arena, &me->arena) ||
	    tow_group_create(dev, &world, &attr, &me->group, NULL))
		ksft_exit_fail_msg("no group\n");
	if (!job.servers)
		me->ret = feed(me);
	else if (!(me->ret = make_ps(me)))
		me->ret = me->rank < job.servers ? serve(me) : work(me);
	/* What was killed stays, so that it is not freed by whom nobody answers. */
	if (node.processes[me->rank].dead)
		return NULL;
	tow_feed_destroy(me->feed);
	tow_ps_destroy(me->ps);
	tow_store_destroy(me->store);
	tow_group_destroy(me->group);
	if (tow_arena_destroy(me->arena))
		ksft_exit_fail_msg("an arena stays\n");
	return NULL;
}

/* ---- all of them ---- */

/* Of those who were killed. */
static struct rank lost[8];
static uint32_t lost_count;

/* Nothing of all these processes is left. */
static bool all_gone(void)
{
	bool good = true;

	job.lacks_at = 0;
	job.posts_at = 0;
	while (!sem_trywait(&job.there))
		;
	for (uint32_t i = 1; i <= node.used; i++) {
		if (!node.objects[i].kind)
			continue;
		good = good && node.processes[node.objects[i].process].dead;
		node.objects[i].kind = 0;
	}
	for (uint32_t rank = 0; rank < job.ranks; rank++) {
		good = good && !node_waits((int)rank);
		node_forget((int)rank);
	}
	return good;
}

static void start_all(uint32_t count, uint32_t servers)
{
	job.ranks = count;
	job.servers = servers;
	pthread_barrier_init(&job.told, NULL, count);
	memset(ranks, 0, sizeof(ranks));
	for (uint32_t rank = 0; rank < count; rank++) {
		ranks[rank].rank = rank;
		ranks[rank].blamed = TOW_NO_RANK;
		if (pthread_create(&ranks[rank].thread, NULL, take_part, &ranks[rank]))
			ksft_exit_fail_msg("no thread\n");
	}
}

/* Workers have begun a line with each server, and go on when the first of those waits. */
static void start_slowly(uint32_t count, uint32_t servers)
{
	struct timespec until;

	for (uint32_t rank = servers; rank < count; rank++)
		node_freeze((int)rank, 2ULL * servers);
	job.posts_at = 4;
	start_all(count, servers);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 5;
	sem_timedwait(&job.there, &until);
	for (uint32_t rank = servers; rank < count; rank++)
		node_freeze((int)rank, 0);
}

/* All return @ret, and blame @blamed for it; but for the one that is different. */
static bool end_all(int ret, uint32_t blamed)
{
	bool good = true;

	if (job.how == DIES) {
		sem_wait(&job.there);
		lost[lost_count++] = ranks[job.who];
		node_kill((int)job.who);
		sem_post(&job.go_on);
	}
	for (uint32_t rank = 0; rank < job.ranks; rank++) {
		pthread_join(ranks[rank].thread, NULL);
		if (job.how != GOES_ON && rank == job.who ? !ranks[rank].ret :
		    ranks[rank].ret == ret && ranks[rank].blamed == blamed)
			continue;
		ksft_print_msg("rank %u: %d, and %d is to blame\n", rank, ranks[rank].ret,
			       (int)ranks[rank].blamed);
		good = false;
	}
	pthread_barrier_destroy(&job.told);
	return all_gone() && good;
}

static bool run(uint32_t count, uint32_t servers, int ret, uint32_t blamed)
{
	start_all(count, servers);
	return end_all(ret, blamed);
}

static void all_go_on(uint32_t staleness)
{
	job.staleness = staleness;
	job.timeout_ms = WAIT_MS;
	job.how = GOES_ON;
	job.fails = 0;
}

static void one(uint32_t who, enum how how)
{
	job.who = who;
	job.how = how;
}

static void test_servers(void)
{
	bool good;

	all_go_on(TOW_PS_SYNCHRONOUS);
	good = run(4, 2, 0, TOW_NO_RANK);
	ksft_test_result(good && ranks[2].value == -1.5F * STEPS && ranks[3].value == ranks[2].value &&
			 ranks[0].updates == 2ULL * STEPS && ranks[1].updates == STEPS,
			 "servers and workers\n");
	one(3, LEAVES);
	ksft_test_result(run(4, 2, -ESTALE, 3), "a worker leaves, and others do not\n");
	one(3, DIES);
	ksft_test_result(run(4, 2, -ESTALE, 3), "a worker is killed\n");
	one(0, DIES);
	ksft_test_result(run(4, 2, -ESTALE, 0), "a server is killed\n");
	all_go_on(STEPS);
	one(2, HASTENS);
	good = run(3, 1, 0, TOW_NO_RANK);
	ksft_test_result(good && ranks[0].updates == VARIABLES * (STEPS + 2ULL),
			 "what a worker has pushed before it leaves counts\n");
	all_go_on(TOW_PS_SYNCHRONOUS);
	ksft_test_result(run(CROWD + 1, 1, 0, TOW_NO_RANK), "more workers than may come at once\n");
	start_slowly(CROWD_MAX + 2, 2);
	ksft_test_result(end_all(0, TOW_NO_RANK), "and more servers than one\n");
}

/* The server cannot connect with worker @blamed, or by its own fault: so all others say. */
static bool cannot_begin(int ret, uint32_t blamed)
{
	bool good;

	pthread_join(ranks[0].thread, NULL);
	good = ranks[0].ret == ret && ranks[0].blamed == blamed;
	for (uint32_t rank = 1; rank < job.ranks; rank++) {
		pthread_join(ranks[rank].thread, NULL);
		if (rank == blamed || (!ranks[rank].blamed && (ranks[rank].ret == -ECANCELED ||
							       ranks[rank].ret == -ETIMEDOUT)))
			continue;
		ksft_print_msg("rank %u: %d\n", rank, ranks[rank].ret);
		good = false;
	}
	pthread_barrier_destroy(&job.told);
	return all_gone() && good;
}

/* One worker has begun a line, and does not say whose it is until the server has an answer. */
static void start_but_one(uint32_t lacks_at)
{
	job.lacks_at = lacks_at;
	job.posts_at = 4;
	node_freeze(CROWD - 1, 1);
	start_all(CROWD + 1, 1);
	sem_wait(&job.there);
	node_freeze(CROWD - 1, 0);
}

static void test_beginning(void)
{
	all_go_on(TOW_PS_SYNCHRONOUS);
	job.timeout_ms = SOON_MS;
	start_but_one(0);
	ksft_test_result(cannot_begin(-ETIMEDOUT, CROWD - 1), "a worker stands still\n");
	/* All edges are made. */
	start_but_one(3);
	ksft_test_result(cannot_begin(-ENOSPC, 0), "a server cannot answer\n");
}

static void test_feed(void)
{
	all_go_on(0);
	ksft_test_result(run(4, 0, 0, TOW_NO_RANK), "a job server\n");
	one(2, LEAVES);
	ksft_test_result(run(4, 0, 0, TOW_NO_RANK), "a worker has had enough\n");
	one(2, DIES);
	ksft_test_result(run(4, 0, -ESTALE, 2), "a worker is killed\n");
	one(0, DIES);
	ksft_test_result(run(4, 0, -ESTALE, 0), "the server is killed\n");
	all_go_on(0);
	job.fails = -EBADF;
	ksft_test_result(run(4, 0, -EBADF, 0), "the server cannot go on\n");
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(14);
	node_begin();
	sem_init(&job.there, 0, 0);
	sem_init(&job.go_on, 0, 0);
	test_servers();
	test_beginning();
	test_feed();
	ksft_finished();
}

// SPDX-License-Identifier: GPL-2.0
/*
 * A rank of a job, as its launcher's variables say, that takes part in an AllReduce:
 *
 *	reduces ring|direct|calls|thread ELEMENTS CALLS TIMEOUT_MS
 *
 * of ELEMENTS numbers (float32) for CALLS times, and looks at all that comes out.  "goes" is said
 * after the first one, "done" after the last; or what is wrong, and who is to blame.
 *
 * "ring" and "direct" is one that was made once.  By "calls", or by calls that a "thread" goes on
 * with, it is each time one of every size up to ELEMENTS, at once, and a letter to the next rank.
 * Then the rank also obeys signals: SIGTERM: it is the last time, for all; SIGUSR1: abort; SIGUSR2:
 * begin nothing until the next one; "idles" is said then.
 */
/* build: link -ltowline */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <towline/collective.h>

#define ARRAY_SIZE(x)	(sizeof(x) / sizeof((x)[0]))
#define IDLE_US		10000U

static const struct tow_dtype f32 = { TOW_DTYPE_FLOAT, 32, 1 };
static struct tow_world world = { .size = sizeof(world) };

static void __attribute__((noreturn)) die(const char *what, int error, uint32_t blamed)
{
	printf("%s: %s", what, tow_strerror(error));
	if (blamed != TOW_NO_RANK)
		printf("; rank %" PRIu32 " is to blame", blamed);
	putchar('\n');
	exit(1);
}

/* Sums of these are exact. */
static float given(uint32_t rank, uint64_t at, uint64_t call)
{
	return (float)((at * 7 + rank * 5ULL + call * 3) % 17);
}

static float sum(uint64_t at, uint64_t call)
{
	float all = 0;

	for (uint32_t rank = 0; rank < world.world_size; rank++)
		all += given(rank, at, call);
	return all;
}

static void fill(float *data, uint64_t count, uint64_t call)
{
	for (uint64_t i = 0; i < count; i++)
		data[i] = given(world.rank, i, call);
}

static void check_sums(const float *data, uint64_t count, uint64_t call)
{
	for (uint64_t i = 0; i < count; i++)
		if (data[i] != sum(i, call))
			die("what came out", -EILSEQ, TOW_NO_RANK);
}

/* ---- made once --------------------------------------------------------------- */

static void reduce_once(struct tow_collective *collective, float *data, uint64_t count,
			uint64_t call)
{
	uint32_t blamed = TOW_NO_RANK;
	int ret;

	fill(data, count, call);
	ret = tow_collective_start(collective);
	if (!ret)
		ret = tow_collective_wait(collective, &blamed);
	else
		tow_collective_test(collective, &blamed);
	if (ret)
		die("reducing", ret, blamed);
	check_sums(data, count, call);
}

static void reduce_by(enum tow_algorithm algorithm, struct tow_comm *comm,
		      struct tow_arena *arena, uint64_t count, uint64_t calls)
{
	struct tow_collective_attr attr = {
		.size = sizeof(attr), .kind = TOW_ALLREDUCE, .algorithm = algorithm, .dtype = f32,
		.count = count,
	};
	struct tow_collective *collective;
	uint32_t blamed;
	int ret;

	attr.out = tow_arena_alloc(arena, attr.count * sizeof(float));
	if (!attr.out)
		die("memory", -errno, TOW_NO_RANK);
	ret = tow_collective_create(comm, &attr, &collective, &blamed);
	if (ret)
		die("preparing", ret, blamed);
	for (uint64_t call = 0; call < calls; call++) {
		reduce_once(collective, attr.out, attr.count, call);
		if (!call)
			puts("goes");
	}
	tow_collective_destroy(collective);
}

/* ---- calls ------------------------------------------------------------------- */

/* Primes, 4093 of which are just small enough to travel with messages; and a MiB. */
#define COUNT_MAX	262144U
static const uint64_t counts[] = { 1, 251, 4093, 4099, 65537, COUNT_MAX };

struct part {
	float *data;
	uint64_t count;
	struct tow_work *work;
};

struct calls {
	struct tow_comm *comm;
	uint32_t sizes;			/* of counts */
	struct part sums[ARRAY_SIZE(counts)];
	struct part sent, received;
};

/* What signals ask for. */
static atomic_bool ends, idles;

static void *obey(void *arg)
{
	struct tow_comm *comm = arg;
	sigset_t signals;
	int number;

	sigfillset(&signals);
	for (;;) {
		sigwait(&signals, &number);
		if (number == SIGUSR1)
			tow_comm_abort(comm);
		else if (number == SIGUSR2)
			atomic_store(&idles, !atomic_load(&idles));
		else if (number == SIGTERM)
			atomic_store(&ends, true);
	}
	return NULL;
}

/* Others are to hear of it before this rank has gone. */
static void __attribute__((noreturn)) fail(struct tow_comm *comm, int error, uint32_t blamed)
{
	uint32_t known;

	if (tow_comm_error(comm, &known) != error || known != blamed)
		die("a call alone", error, blamed);
	tow_comm_destroy(comm);
	die("reducing", error, blamed);
}

static void begin(const struct calls *calls, int ret)
{
	uint32_t blamed;

	if (!ret)
		return;
	tow_comm_error(calls->comm, &blamed);
	fail(calls->comm, ret, blamed);
}

static void finish(const struct calls *calls, struct part *part)
{
	uint32_t blamed;
	int ret = tow_work_wait(part->work, TOW_WAIT_FOREVER, &blamed);

	tow_work_free(part->work);
	if (ret != 1)
		fail(calls->comm, ret, blamed);
}

static uint32_t rank_before(void)
{
	return (world.rank ? world.rank : world.world_size) - 1;
}

static uint32_t rank_behind(void)
{
	return world.rank + 1 < world.world_size ? world.rank + 1 : 0;
}

static void begin_all(struct calls *calls, uint64_t call)
{
	uint64_t count = counts[call % calls->sizes];
	struct part *part;

	for (part = calls->sums; part < calls->sums + calls->sizes; part++) {
		fill(part->data, part->count, call);
		begin(calls, tow_allreduce(calls->comm, NULL, part->data, part->count, f32,
					   TOW_SUM, NULL, &part->work));
	}
	part = &calls->received;
	begin(calls, tow_receive(calls->comm, part->data, count, f32, rank_before(), 0,
				 NULL, &part->work));
	part = &calls->sent;
	fill(part->data, count, call);
	begin(calls, tow_send(calls->comm, part->data, count, f32, rank_behind(), 0, NULL,
			      &part->work));
}

static void finish_all(struct calls *calls, uint64_t call)
{
	struct part *part;

	finish(calls, &calls->sent);
	finish(calls, &calls->received);
	for (uint64_t i = 0; i < counts[call % calls->sizes]; i++)
		if (calls->received.data[i] != given(rank_before(), i, call))
			die("what was sent", -EILSEQ, TOW_NO_RANK);
	for (part = calls->sums + calls->sizes; part-- > calls->sums;) {
		finish(calls, part);
		check_sums(part->data, part->count, call);
	}
}

/* Is it for any rank? */
static bool is_last(const struct calls *calls)
{
	static const struct tow_dtype type = { TOW_DTYPE_BOOL, 8, 1 };
	bool any = atomic_load(&ends);

	begin(calls, tow_allreduce(calls->comm, NULL, &any, 1, type, TOW_BOR, NULL, NULL));
	return any;
}

/* Every other array is in no region. */
static void find_memory(struct calls *calls, struct tow_arena *arena, uint64_t elements)
{
	static float outside[ARRAY_SIZE(counts) / 2 + 1][COUNT_MAX];
	struct part *parts[ARRAY_SIZE(counts) + 2] = { &calls->sent, &calls->received };

	do {
		parts[calls->sizes + 2] = &calls->sums[calls->sizes];
		calls->sums[calls->sizes].count = counts[calls->sizes];
		calls->sizes++;
	} while (calls->sizes < ARRAY_SIZE(counts) && counts[calls->sizes] <= elements);
	for (uint32_t i = 0; i < calls->sizes + 2; i++) {
		parts[i]->data = i % 2 ? outside[i / 2] :
				 tow_arena_alloc(arena, parts[i]->count * sizeof(float));
		if (!parts[i]->data)
			die("memory", -errno, TOW_NO_RANK);
	}
}

static void say_waited(struct tow_comm *comm)
{
	uint64_t us[TOW_COMM_RANKS_MAX], all = 0;
	int ranks = tow_comm_waited(comm, us, TOW_COMM_RANKS_MAX);

	for (int rank = 0; rank < ranks; rank++)
		all += us[rank];
	printf("waited %" PRIu64 " ms\n", all / 1000);
}

static void idle(void)
{
	if (atomic_load(&idles))
		puts("idles");
	while (atomic_load(&idles))
		usleep(IDLE_US);
}

static void reduce_by_calls(struct tow_comm *comm, struct tow_arena *arena, uint64_t elements,
			    uint64_t times)
{
	struct calls calls = { .comm = comm, .sent.count = elements, .received.count = elements };
	pthread_t thread;
	bool over = false;

	find_memory(&calls, arena, elements);
	if (pthread_create(&thread, NULL, obey, comm))
		die("thread", -ENOMEM, TOW_NO_RANK);
	for (uint64_t call = 0; call < times && !over; call++) {
		idle();
		begin_all(&calls, call);
		finish_all(&calls, call);
		over = is_last(&calls);
		if (!call)
			puts("goes");
	}
	say_waited(comm);
}

/* ---- the job ----------------------------------------------------------------- */

static void meet(struct tow_group **group, struct tow_arena **arena, struct tow_comm **comm,
		 uint32_t timeout_ms, uint32_t flags)
{
	struct tow_comm_attr attr = { .size = sizeof(attr), .timeout_ms = timeout_ms,
				      .flags = flags };
	struct tow_device *dev;
	const char *variable;
	uint32_t blamed;
	int ret;

	ret = tow_world_detect(&world, &variable);
	if (ret)
		die(variable, ret, TOW_NO_RANK);
	ret = tow_device_open(NULL, 0, &dev);
	if (ret)
		die("device", ret, TOW_NO_RANK);
	ret = tow_group_create(dev, &world, NULL, group, &blamed);
	if (ret)
		die("meeting", ret, blamed);
	ret = tow_arena_create(dev, NULL, arena);
	if (!ret)
		ret = tow_comm_create(*group, *arena, &attr, comm, &blamed);
	if (ret)
		die("connecting", ret, blamed);
}

int main(int argc, char **argv)
{
	uint64_t elements, times;
	struct tow_group *group;
	struct tow_arena *arena;
	struct tow_comm *comm;
	sigset_t signals;
	bool thread;
	int ret;

	if (argc != 5)
		return 2;
	thread = !strcmp(argv[1], "thread");
	elements = strtoull(argv[2], NULL, 10);
	times = strtoull(argv[3], NULL, 10);
	setvbuf(stdout, NULL, _IOLBF, 0);
	sigfillset(&signals);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	meet(&group, &arena, &comm, (uint32_t)strtoul(argv[4], NULL, 10),
	     thread ? TOW_COMM_THREAD : 0);
	if (thread || !strcmp(argv[1], "calls"))
		reduce_by_calls(comm, arena, elements, times);
	else
		reduce_by(strcmp(argv[1], "ring") ? TOW_ALGORITHM_DIRECT : TOW_ALGORITHM_RING,
			  comm, arena, elements, times);
	ret = tow_comm_destroy(comm);
	if (ret)
		die("leaving", ret, TOW_NO_RANK);
	tow_group_destroy(group);
	puts("done");
	return 0;
}

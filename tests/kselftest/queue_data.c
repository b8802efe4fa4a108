// SPDX-License-Identifier: GPL-2.0
/*
 * Much data, both ways at once: two processes of four threads, each with a queue of
 * its own, write to and read from each other's memory: random bytes, lengths and
 * places, in batches.  Each thread knows what must be where; whoever has the memory
 * looks, too.
 *
 * $TOW_COUNT (soak): how many MiB in all.
 */
#include <pthread.h>
#include <sys/wait.h>
#include "tow_places.h"

#define PROCESSES	2U
#define THREADS		4U
#define SHARE		((size_t)1024 * 1024)	/* of a thread, at the other process */
#define STAGE		((size_t)512 * 1024)	/* of a thread, at home: what it sends */
#define POOL_BYTES	(20 * TOW_SLAB)
#define BATCH		8U
#define PIECE_MAX	(STAGE / BATCH)
#define USUAL_MB	256

/* What the processes tell each other, and the test; shared memory. */
struct board {
	pthread_barrier_t barrier;
	uint64_t moved[PROCESSES][THREADS];		/* bytes */
	uint64_t sums[PROCESSES][THREADS];		/* of what it left at the other's */
	unsigned int mismatches[PROCESSES];
	int error[PROCESSES];
};

struct process {
	struct board *board;
	unsigned int number;
	uint64_t bytes;					/* to be moved by each thread */
	struct tow_user user;
	struct tow_mapped stage;			/* what is sent, and comes back */
	struct tow_mapped target;			/* the other process's to write */
	__u64 remote;
};

struct worker {
	struct process *process;
	unsigned int number;
	struct tow_random random;
	struct tow_rings rings;
	__u16 channel;
	char *stage;					/* ours */
	char *shadow;					/* what must be at the other's */
	uint64_t moved;					/* bytes */
	unsigned int mismatches;
	int error;
	pthread_t thread;
};

static uint64_t sum_of(const char *at, size_t bytes)
{
	uint64_t sum = 0xcbf29ce484222325, word;
	size_t i;

	for (i = 0; i < bytes; i += sizeof(word)) {
		memcpy(&word, at + i, sizeof(word));
		sum = (sum ^ word) * 0x100000001b3;
		sum ^= sum >> 29;
	}
	return sum;
}

/* ---- one thread ------------------------------------------------------------------------ */

/* Ranges of a batch: at home one after the other, at the other's without overlap. */
struct batch {
	size_t from[BATCH], to[BATCH], bytes[BATCH];
};

/* Mostly some kilobytes; now and then as much, or as little, as there can be. */
static size_t random_length(struct tow_random *random)
{
	uint64_t roll = tow_random(random);

	if (roll % 16 == 0)
		return PIECE_MAX;
	if (roll % 16 == 1)
		return (roll >> 8) % 16;
	return (roll >> 8) % (roll % 3 ? PIECE_MAX : 2048);
}

/* Each in its own part of the share, anywhere in it. */
static void plan(struct worker *worker, struct batch *batch)
{
	size_t part = SHARE / BATCH, i;

	for (i = 0; i < BATCH; i++) {
		batch->bytes[i] = random_length(&worker->random);
		batch->from[i] = i * PIECE_MAX +
				 tow_random_below(&worker->random, PIECE_MAX - batch->bytes[i] + 1);
		batch->to[i] = i * part +
			       tow_random_below(&worker->random, part - batch->bytes[i] + 1);
	}
}

static int submit(struct worker *worker, const struct batch *batch, __u8 opcode)
{
	struct process *process = worker->process;
	__u64 home = worker->number * STAGE, there = worker->number * SHARE;
	struct tow_cqe cqe;
	unsigned int i;
	int ret;

	for (i = 0; i < BATCH; i++) {
		struct tow_sqe sqe = tow_move(&process->user, opcode, process->stage.made.handle,
					      home + batch->from[i], process->remote,
					      there + batch->to[i], batch->bytes[i]);

		sqe.channel = worker->channel;
		sqe.user_data = i;
		if (!tow_rings_put(&worker->rings, &sqe))
			return -EXFULL;
		worker->moved += batch->bytes[i];
	}
	ret = tow_rings_enter(&worker->rings, BATCH, TOW_LONG_US);
	if (ret != (int)BATCH || tow_rings_ready(&worker->rings) != BATCH)
		return ret < 0 ? ret : -ETIMEDOUT;
	for (i = 0; tow_rings_take(&worker->rings, &cqe); i++)
		if (cqe.status)
			return cqe.status;
	return 0;
}

/* New bytes go there; then they, or what was there before, come back. */
static int round_trip(struct worker *worker)
{
	struct batch batch;
	unsigned int i;
	int ret;

	plan(worker, &batch);
	for (i = 0; i < BATCH; i++) {
		tow_random_fill(&worker->random, worker->stage + batch.from[i], batch.bytes[i]);
		memcpy(worker->shadow + batch.to[i], worker->stage + batch.from[i],
		       batch.bytes[i]);
	}
	ret = submit(worker, &batch, TOW_OP_WRITE);
	if (ret)
		return ret;
	plan(worker, &batch);
	for (i = 0; i < BATCH; i++)
		memset(worker->stage + batch.from[i], 0xa5, batch.bytes[i]);
	ret = submit(worker, &batch, TOW_OP_READ);
	for (i = 0; i < BATCH && !ret; i++)
		worker->mismatches += !!memcmp(worker->stage + batch.from[i],
					       worker->shadow + batch.to[i], batch.bytes[i]);
	return ret;
}

static void *work(void *arg)
{
	struct worker *worker = arg;
	struct process *process = worker->process;

	while (worker->moved < process->bytes && !worker->error)
		worker->error = round_trip(worker);
	process->board->moved[process->number][worker->number] = worker->moved;
	process->board->sums[process->number][worker->number] = sum_of(worker->shadow, SHARE);
	return NULL;
}

static int worker_make(struct process *process, unsigned int number, struct worker *worker)
{
	struct tow_channel_open channel;
	int ret;

	*worker = (struct worker) {
		.process = process, .number = number,
		.random = { 0x9e3779b97f4a7c15 * (1ULL + number + (uint64_t)THREADS * process->number) },
		.stage = process->stage.at + number * STAGE,
		.shadow = calloc(1, SHARE),
	};
	if (!worker->shadow)
		return -ENOMEM;
	ret = tow_rings_make(process->user.fd, 2 * BATCH, 0, &worker->rings);
	if (ret)
		return ret;
	/* Whatever queue pair it is, others use it too. */
	ret = tow_channel_open(worker->rings.made.fd, process->user.peer, TOW_CHANNEL_ANY,
			       &channel);
	worker->channel = (__u16)channel.channel;
	return ret;
}

/* ---- one process -------------------------------------------------------------------------- */

static const char * const names[PROCESSES] = { "first", "second" };

static int process_make(struct process *process)
{
	__u32 rights = TOW_RIGHT_READ | TOW_RIGHT_WRITE;
	__u64 exported;
	int ret;

	ret = tow_user_make(&process->user, 2, 0);
	if (!ret)
		ret = tow_mapped_make(process->user.fd, THREADS * STAGE, &process->stage);
	if (!ret)
		ret = tow_mapped_make(process->user.fd, THREADS * SHARE, &process->target);
	if (!ret)
		ret = tow_publish_for(process->user.fd, process->target.made.handle,
				      names[process->number], THREADS * SHARE, rights, &exported);
	if (!ret)
		ret = tow_find_for(process->user.fd, process->user.peer,
				   names[!process->number], rights, &process->remote);
	return ret;
}

static int process_work(struct process *process)
{
	struct worker workers[THREADS];
	unsigned int i;
	int ret = 0;

	for (i = 0; i < THREADS && !ret; i++)
		ret = worker_make(process, i, &workers[i]);
	for (i = 0; i < THREADS && !ret; i++)
		ret = -pthread_create(&workers[i].thread, NULL, work, &workers[i]);
	if (ret)
		return ret;
	for (i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		process->board->mismatches[process->number] += workers[i].mismatches;
		if (workers[i].error)
			ret = workers[i].error;
	}
	return ret;
}

/* What the other process left here. */
static unsigned int process_look(const struct process *process)
{
	const uint64_t *sums = process->board->sums[!process->number];
	unsigned int i, wrong = 0;

	for (i = 0; i < THREADS; i++)
		wrong += sum_of(process->target.at + i * SHARE, SHARE) != sums[i];
	return wrong;
}

static void be_process(struct board *board, unsigned int number, uint64_t bytes)
{
	struct process process = { .board = board, .number = number, .bytes = bytes };
	int ret;

	ret = process_make(&process);
	if (!ret)
		ret = process_work(&process);
	board->error[number] = ret;
	/* Whoever failed comes here, too: the other does not wait for ever. */
	pthread_barrier_wait(&board->barrier);
	if (!ret && !board->error[!number])
		board->mismatches[number] += process_look(&process);
	pthread_barrier_wait(&board->barrier);
	_exit(0);
}

/* ---- the test ------------------------------------------------------------------------------- */

static struct board *make_board(void)
{
	pthread_barrierattr_t attributes;
	struct board *board;

	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (board == MAP_FAILED)
		return NULL;
	pthread_barrierattr_init(&attributes);
	pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&board->barrier, &attributes, PROCESSES);
	return board;
}

FIXTURE(data)
{
};

FIXTURE_SETUP(data)
{
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
}

FIXTURE_TEARDOWN(data)
{
	EXPECT_TRUE(tow_pool_unused());
	EXPECT_EQ(0, tow_sysfs_wait("stats/queues", 0));
}

TEST_F_TIMEOUT(data, both_ways, 3600)
{
	uint64_t each = (uint64_t)tow_test_count(USUAL_MB) * TOW_MB / PROCESSES / THREADS;
	struct board *board = make_board();
	pid_t children[PROCESSES];
	unsigned int i, wrong = 0;
	double start = tow_test_now(), seconds;
	uint64_t moved = 0;
	int status;

	ASSERT_NE(NULL, board);
	for (i = 0; i < PROCESSES; i++) {
		children[i] = fork();
		ASSERT_LE(0, children[i]);
		if (!children[i])
			be_process(board, i, each);
	}
	for (i = 0; i < PROCESSES; i++) {
		ASSERT_EQ(children[i], waitpid(children[i], &status, 0));
		EXPECT_EQ(0, status);
		EXPECT_EQ(0, board->error[i])
			TH_LOG("process %u: %s", i, strerror(-board->error[i]));
		wrong += board->mismatches[i];
	}
	seconds = tow_test_now() - start;
	for (i = 0; i < PROCESSES * THREADS; i++)
		moved += board->moved[i / THREADS][i % THREADS];
	EXPECT_LE(each * PROCESSES * THREADS, moved);
	TH_LOG("%llu MiB in %.1f s", (unsigned long long)(moved / TOW_MB), seconds);
	/* Soak adds these up. */
	printf("# mismatches %u\n", wrong);
	EXPECT_EQ(0, wrong);
}

TEST_HARNESS_MAIN

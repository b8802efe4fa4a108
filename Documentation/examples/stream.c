// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Steps of a tensor, from a writer on one node to a consumer on another who sleeps
 * until each has arrived.
 *
 *	stream take ADDR NAME [STEPS]	receives them from the node at ADDR
 *	stream give ADDR NAME [STEPS]	sends them to the node at ADDR
 *
 * The consumer has room for a few steps, and a slot in which the writer's notifications
 * are counted; the writer has one for what the consumer has taken.  So nothing is
 * written over before it was read, and both sleep when there is nothing to do.  Both
 * print the same checksum.  Exit status: 0 success, 1 failure, 2 wrong usage.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include <towline/slot.h>

#define STEP_BYTES	(64 * (uint64_t)1024)
#define ROOM		16U		/* steps under way */
#define STEPS		512
#define STEPS_MAX	1000000
#define WAIT_MS		10000
#define NAME_MAX_BYTES	64
/* In the region: the slot, then the steps. */
#define FIRST_STEP	((uint64_t)4096)
#define REGION_BYTES	(FIRST_STEP + ROOM * STEP_BYTES)

/* What both sides have. */
struct end {
	struct tow_device *dev;
	struct tow_peer *peer;
	struct tow_region *region;
	unsigned char *memory;
	struct tow_slot *slot;
	struct tow_queue *queue;
	struct tow_channel *channel;
	/* The other side's slot. */
	struct tow_remote *tells;
	uint64_t steps;
	uint64_t checksum;
};

static int say(const char *what, int error)
{
	fprintf(stderr, "stream: %s: %s\n", what, tow_strerror(error));
	return EXIT_FAILURE;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static uint64_t place_of(uint64_t step)
{
	return FIRST_STEP + step % ROOM * STEP_BYTES;
}

/* Says in which order the steps came, too. */
static void add_step(struct end *end, uint64_t step)
{
	const uint64_t *numbers = (const void *)(end->memory + place_of(step));

	for (uint64_t i = 0; i < STEP_BYTES / sizeof(*numbers); i += 64)
		end->checksum = (end->checksum ^ numbers[i]) * 1099511628211ULL;
}

/* ---- both ---- */

/* NAME and what of it. */
static const char *part(char text[NAME_MAX_BYTES], const char *name, const char *what)
{
	snprintf(text, NAME_MAX_BYTES, "%.40s/%s", name, what);
	return text;
}

static int make_end(struct end *end, const char *address, const char *name, const char *what)
{
	char text[NAME_MAX_BYTES];
	void *memory;
	int ret;

	ret = tow_device_open(NULL, 0, &end->dev);
	if (!ret)
		ret = tow_region_create(end->dev, REGION_BYTES, NULL, &end->region);
	if (!ret)
		ret = tow_region_map(end->region, 0, 0, PROT_READ | PROT_WRITE, &memory);
	if (ret)
		return ret;
	end->memory = memory;
	ret = tow_slot_create(end->region, 0, part(text, name, what), &end->slot);
	if (!ret)
		ret = tow_peer_connect(end->dev, address, NULL, 0, &end->peer);
	if (!ret)
		ret = tow_queue_create(end->dev, 4 * ROOM, 0, &end->queue);
	if (!ret)
		ret = tow_channel_get(end->queue, end->peer, 0, &end->channel);
	return ret;
}

static void free_end(struct end *end)
{
	tow_queue_destroy(end->queue);
	tow_remote_release(end->tells);
	tow_slot_destroy(end->slot);
	tow_region_destroy(end->region);
	tow_peer_release(end->peer);
	tow_device_close(end->dev);
}

/* Hand over what was prepared, and deal with so many completions: 0 or a negative errno. */
static int wait_for(struct end *end, uint64_t count)
{
	const struct tow_cqe *cqe;
	int ret = tow_queue_submit(end->queue);

	for (; ret >= 0 && count; count--) {
		ret = tow_queue_wait_cqe(end->queue, &cqe, TOW_WAIT_FOREVER);
		if (ret)
			return ret;
		ret = cqe->status;
		tow_queue_cqe_seen(end->queue);
	}
	return ret < 0 ? ret : 0;
}

/* ---- take ---- */

/* Sleep until it is there; then its place may be used again. */
static int take_step(struct end *end, uint64_t step)
{
	struct tow_sqe *sqe = tow_queue_get_sqe(end->queue);
	int ret;

	tow_prep_wait(sqe, end->slot, step + 1);
	ret = wait_for(end, 1);
	if (ret)
		return ret;
	add_step(end, step);
	sqe = tow_queue_get_sqe(end->queue);
	tow_prep_notify(sqe, end->channel, end->tells);
	/* Of the last one it is waited for. */
	if (step + 1 < end->steps)
		tow_sqe_set_flags(sqe, TOW_SQE_SILENT);
	return 0;
}

static double busy_seconds(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec / 1e6 +
	       (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec / 1e6;
}

static int take(struct end *end, const char *name)
{
	struct tow_exported *exported;
	char text[NAME_MAX_BYTES];
	double start = 0, busy = 0;
	int ret;

	ret = tow_export(end->region, FIRST_STEP, ROOM * STEP_BYTES, part(text, name, "data"),
			 TOW_RIGHT_WRITE, &exported);
	if (ret)
		return ret;
	ret = tow_resolve(end->peer, part(text, name, "taken"), TOW_RIGHT_NOTIFY, WAIT_MS,
			  &end->tells);
	for (uint64_t step = 0; !ret && step < end->steps; step++) {
		ret = take_step(end, step);
		if (step)
			continue;
		start = now();
		busy = busy_seconds();
	}
	if (!ret)
		ret = wait_for(end, 1);
	if (!ret)
		printf("took %" PRIu64 " steps, checksum %016" PRIx64 ", busy %.0f %% of the time\n",
		       end->steps, end->checksum, 100 * (busy_seconds() - busy) / (now() - start));
	tow_unexport(exported);
	return ret;
}

/* ---- give ---- */

static void make_steps(struct end *end)
{
	uint64_t *numbers = (void *)(end->memory + FIRST_STEP);
	uint64_t number = 88172645463325252ULL;

	for (uint64_t i = 0; i < ROOM * STEP_BYTES / sizeof(*numbers); i++) {
		number ^= number << 13;
		number ^= number >> 7;
		number ^= number << 17;
		numbers[i] = number;
	}
}

/* When the step that was there before has been taken: the kernel waits for that. */
static void give_step(struct end *end, const struct tow_remote *remote, uint64_t step)
{
	struct tow_sqe *sqe = tow_queue_get_sqe(end->queue);
	uint64_t place = place_of(step);

	tow_prep_wait(sqe, end->slot, step < ROOM ? 0 : step - ROOM + 1);
	tow_sqe_set_flags(sqe, TOW_SQE_LINK | TOW_SQE_SILENT);
	sqe = tow_queue_get_sqe(end->queue);
	tow_prep_write_notify(sqe, end->channel, end->region, place, remote, place - FIRST_STEP,
			      STEP_BYTES, end->tells);
	add_step(end, step);
}

static int give_all(struct end *end, const struct tow_remote *remote)
{
	uint64_t step, under_way = 0;
	double start = now();
	int ret = 0;

	make_steps(end);
	for (step = 0; !ret && step < end->steps; step++) {
		give_step(end, remote, step);
		ret = wait_for(end, ++under_way == ROOM);
		under_way -= under_way == ROOM;
	}
	if (!ret)
		ret = wait_for(end, under_way);
	if (!ret)
		printf("gave %" PRIu64 " steps, checksum %016" PRIx64 ", %.0f MiB/s\n", end->steps,
		       end->checksum,
		       (double)(end->steps * STEP_BYTES) / (1 << 20) / (now() - start));
	return ret;
}

static int give(struct end *end, const char *name)
{
	struct tow_remote *remote;
	char text[NAME_MAX_BYTES];
	int ret;

	ret = tow_resolve(end->peer, part(text, name, "data"), TOW_RIGHT_WRITE, WAIT_MS, &remote);
	if (ret)
		return ret;
	ret = tow_resolve(end->peer, part(text, name, "ready"), TOW_RIGHT_NOTIFY, WAIT_MS,
			  &end->tells);
	if (!ret)
		ret = give_all(end, remote);
	/* Until all of it has been taken: what waits for that would not be told. */
	if (!ret) {
		tow_prep_wait(tow_queue_get_sqe(end->queue), end->slot, end->steps);
		ret = wait_for(end, 1);
	}
	tow_remote_release(remote);
	return ret;
}

int main(int argc, char **argv)
{
	struct end end = { .steps = STEPS };
	bool takes;
	int ret;

	if (argc > 4)
		end.steps = strtoull(argv[4], NULL, 10);
	if (argc < 4 || argc > 5 || !end.steps || end.steps > STEPS_MAX ||
	    (strcmp(argv[1], "take") && strcmp(argv[1], "give"))) {
		fputs("usage: stream take|give ADDR NAME [STEPS]\n", stderr);
		return 2;
	}
	takes = !strcmp(argv[1], "take");
	ret = make_end(&end, argv[2], argv[3], takes ? "ready" : "taken");
	if (!ret)
		ret = takes ? take(&end, argv[3]) : give(&end, argv[3]);
	free_end(&end);
	return ret ? say(argv[3], ret) : EXIT_SUCCESS;
}

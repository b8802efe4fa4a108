// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Pieces of a tensor that one node keeps copying to another one, until that node is
 * lost: then it says who, when, and what became of the pieces.
 *
 *	mirror hold NAME	has room for them, and waits
 *	mirror keep ADDR NAME	writes them to the node at ADDR
 *
 * The writer sleeps in poll(2): for completions, and for what happens to the peer.
 * An outage that is over in time changes nothing but when they come.  Exit status: 0: the
 * peer was lost, and all that it had begun is accounted for; 1 failure, 2 wrong usage.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <towline/queue.h>

#define PIECE		(64 * (uint64_t)1024)
#define PIECES		16U
#define IN_FLIGHT	PIECES
#define WAIT_MS		10000
/* What has failed may be heard of before the peer's end is. */
#define SOON_MS		2000

struct keeper {
	struct tow_queue *queue;
	struct tow_channel *channel;
	struct tow_region *region;
	struct tow_remote *remote;
	double start;
	/* Pieces: how many were begun, and what came of them. */
	uint64_t begun;
	uint64_t arrived;
	uint64_t unknown;
	uint64_t unsent;
	int failed;
	bool lost;
};

static int say(const char *what, int error)
{
	fprintf(stderr, "mirror: %s: %s\n", what, tow_strerror(error));
	return EXIT_FAILURE;
}

static double seconds(uint64_t ns)
{
	return (double)ns / 1e9;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + seconds((uint64_t)time.tv_nsec);
}

/* ---- hold ---- */

static int hold(struct tow_device *dev, const char *name)
{
	struct tow_exported *exported;
	struct tow_region *region;
	int ret;

	ret = tow_region_create(dev, PIECES * PIECE, NULL, &region);
	if (!ret)
		ret = tow_export(region, 0, PIECES * PIECE, name, TOW_RIGHT_WRITE, &exported);
	if (ret)
		return ret;
	printf("process %d: room for %u pieces, as \"%s\"\n", (int)getpid(), PIECES, name);
	fflush(stdout);
	pause();
	return 0;
}

/* ---- keep ---- */

static void begin_pieces(struct keeper *keeper)
{
	struct tow_sqe *sqe;

	while (keeper->begun - keeper->arrived < IN_FLIGHT) {
		uint64_t place = keeper->begun % PIECES * PIECE;

		sqe = tow_queue_get_sqe(keeper->queue);
		if (!sqe)
			return;
		keeper->begun++;
		tow_prep_write(sqe, keeper->channel, keeper->region, place, keeper->remote, place,
			       PIECE);
	}
}

static void end_pieces(struct keeper *keeper)
{
	const struct tow_cqe *cqe;
	uint32_t index, seen = 0;

	tow_queue_for_each_cqe(keeper->queue, index, cqe) {
		seen++;
		if (!cqe->status)
			keeper->arrived++;
		else if (cqe->status == -ECONNRESET)
			keeper->unknown++;
		else if (cqe->status == -ESTALE)
			keeper->unsent++;
		else
			keeper->failed = cqe->status;
	}
	tow_queue_advance(keeper->queue, seen);
}

static const char *in_words(const uint8_t *address, char text[INET6_ADDRSTRLEN])
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	if (!memcmp(address, mapped, sizeof(mapped)))
		return inet_ntop(AF_INET, address + sizeof(mapped), text, INET6_ADDRSTRLEN);
	return inet_ntop(AF_INET6, address, text, INET6_ADDRSTRLEN);
}

static void describe(struct keeper *keeper, const struct tow_queue_event *event)
{
	double broken = seconds(event->broken_ns) - keeper->start;
	char text[INET6_ADDRSTRLEN];

	in_words(event->address, text);
	if (event->what & TOW_QUEUE_EVENT_BROKEN)
		printf("%s does not answer, since second %.1f (%s)\n", text, broken,
		       tow_strerror(event->error));
	if (event->what & TOW_QUEUE_EVENT_BACK && event->state == TOW_PEER_READY)
		printf("%s answers again, in second %.1f\n", text, now() - keeper->start);
	if (!(event->what & TOW_QUEUE_EVENT_LOST))
		return;
	keeper->lost = true;
	printf("%s is lost, its life ", text);
	for (size_t i = 0; i < 4; i++)
		printf("%02x", event->incarnation[i]);
	printf("... is over, in second %.1f (%s)\n",
	       seconds(event->lost_ns) - keeper->start, tow_strerror(event->error));
}

static int hear_events(struct keeper *keeper)
{
	struct tow_queue_event event = { .size = sizeof(event) };
	int ret;

	while ((ret = tow_queue_event(keeper->queue, &event)) == 1)
		describe(keeper, &event);
	fflush(stdout);
	return ret;
}

/* Sleep until something has happened; what was begun has ended otherwise: -ESTALE. */
static int sleep_until_told(const struct keeper *keeper, bool waits)
{
	struct pollfd poller = {
		.fd = tow_queue_fd(keeper->queue), .events = POLLIN | POLLPRI,
	};
	int ret = poll(&poller, 1, waits ? SOON_MS : -1);

	if (ret < 0)
		return -errno;
	/* The peer is there, and its room is not. */
	return ret ? 0 : -ESTALE;
}

static int keep_going(struct keeper *keeper)
{
	uint64_t over = 0;
	int ret = 0;

	while (ret >= 0 && !keeper->lost && !keeper->failed) {
		/* What failed is not begun again: there is nobody to take it. */
		if (!over)
			begin_pieces(keeper);
		ret = tow_queue_submit(keeper->queue);
		if (ret >= 0)
			ret = sleep_until_told(keeper, over &&
					       keeper->arrived + over == keeper->begun);
		if (ret >= 0)
			ret = hear_events(keeper);
		end_pieces(keeper);
		over = keeper->unknown + keeper->unsent;
	}
	return ret < 0 ? ret : keeper->failed;
}

/* All that was begun ends. */
static int account(struct keeper *keeper)
{
	const struct tow_cqe *cqe;
	int ret = 0;

	while (!ret && keeper->arrived + keeper->unknown + keeper->unsent < keeper->begun) {
		ret = tow_queue_wait_cqe(keeper->queue, &cqe, WAIT_MS * 1000);
		end_pieces(keeper);
		ret = ret ? ret : keeper->failed;
	}
	if (!ret)
		printf("%" PRIu64 " pieces were begun: %" PRIu64 " have arrived, of %" PRIu64
		       " nobody knows, %" PRIu64 " were not sent\n",
		       keeper->begun, keeper->arrived, keeper->unknown, keeper->unsent);
	return ret;
}

static int keep(struct tow_device *dev, const char *address, const char *name)
{
	struct keeper keeper = { .start = now() };
	struct tow_peer *peer;
	int ret;

	ret = tow_peer_connect(dev, address, NULL, 0, &peer);
	if (!ret)
		ret = tow_resolve(peer, name, TOW_RIGHT_WRITE, WAIT_MS, &keeper.remote);
	if (!ret)
		ret = tow_region_create(dev, PIECES * PIECE, NULL, &keeper.region);
	if (!ret)
		ret = tow_queue_create(dev, IN_FLIGHT, 0, &keeper.queue);
	if (!ret)
		ret = tow_channel_get(keeper.queue, peer, 0, &keeper.channel);
	if (!ret)
		ret = keep_going(&keeper);
	if (!ret)
		ret = account(&keeper);
	tow_queue_destroy(keeper.queue);
	return ret;
}

int main(int argc, char **argv)
{
	struct tow_device *dev;
	bool keeps;
	int ret;

	keeps = argc == 4 && !strcmp(argv[1], "keep");
	if (!keeps && (argc != 3 || strcmp(argv[1], "hold"))) {
		fputs("usage: mirror hold NAME | mirror keep ADDR NAME\n", stderr);
		return 2;
	}
	ret = tow_device_open(NULL, 0, &dev);
	if (!ret)
		ret = keeps ? keep(dev, argv[2], argv[3]) : hold(dev, argv[2]);
	/* What is left ends with the process. */
	return ret ? say(argv[argc - 1], ret) : EXIT_SUCCESS;
}

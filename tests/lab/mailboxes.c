// SPDX-License-Identifier: GPL-2.0
/*
 * One end of a line to another node, which sends COUNT messages of lengths by chance, and receives
 * as many at once, of which every byte is looked at:
 *
 *	mailboxes accept|connect ADDRESS NAME COUNT [TIMEOUT_MS]
 *
 * TIMEOUT_MS is the worker's.  Whoever connects looks for the name for half a minute.
 */
/* build: link -ltowline */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <towline/mailbox.h>

#define WAIT_MS		30000U
#define WAIT_US		30000000U
#define END_US		60000000U

static struct tow_device *dev;
static struct tow_arena *arena;
static struct tow_worker *worker;
static struct tow_peer *peer;
static struct tow_mailbox *box;
static struct tow_line *line;
static bool connects;

static void __attribute__((noreturn)) die(const char *doing, uint64_t number, int error)
{
	fflush(stdout);
	fprintf(stderr, "mailboxes: %s, %" PRIu64 ": %s\n", doing, number, tow_strerror(error));
	exit(1);
}

static void must(const char *doing, uint64_t number, int ret)
{
	if (ret < 0)
		die(doing, number, ret);
}

static uint64_t chance(uint64_t number, bool of_connecting)
{
	number = (2 * number + 1 + of_connecting) * 0x9e3779b97f4a7c15ULL;
	number ^= number >> 31;
	number *= 0xbf58476d1ce4e5b9ULL;
	return number ^ number >> 29;
}

static uint32_t fill(unsigned char *data, uint64_t number, bool of_connecting)
{
	uint64_t roll = chance(number, of_connecting);
	uint32_t bytes = 1 + (uint32_t)(roll % (roll >> 32 & 3 ? 100 : TOW_MESSAGE_MAX));

	for (uint32_t i = 0; i < bytes; i++)
		data[i] = (unsigned char)(roll >> i % 7 * 8) ^ (unsigned char)i;
	return bytes;
}

/* All that there is room for. */
static uint64_t send_from(uint64_t number, uint64_t count)
{
	unsigned char data[TOW_MESSAGE_MAX];
	int ret = 0;

	for (; number < count; number++) {
		ret = tow_mailbox_send(line, data, fill(data, number, connects));
		if (ret == -EAGAIN)
			break;
		must("sending", number, ret);
	}
	return number;
}

/* All that has come, and not what comes behind it: that the other end has gone. */
static uint64_t receive_from(uint64_t number, uint64_t count)
{
	unsigned char data[TOW_MESSAGE_MAX], expected[TOW_MESSAGE_MAX];
	uint32_t bytes;
	int ret = 1;

	while (number < count &&
	       (ret = tow_mailbox_receive(line, data, sizeof(data), &bytes)) == 1) {
		if (bytes != fill(expected, number, !connects) || memcmp(data, expected, bytes))
			die("what has come", number, -EBADMSG);
		number++;
	}
	must("receiving", number, ret);
	return number;
}

static void converse(uint64_t count)
{
	uint64_t sent = 0, came = 0;
	uint32_t what;

	for (;;) {
		sent = send_from(sent, count);
		came = receive_from(came, count);
		what = (sent < count ? TOW_MAILBOX_ROOM : 0) | (came < count ? TOW_MAILBOX_CAME : 0);
		if (!what)
			break;
		must("waiting", came, tow_mailbox_wait(box, line, what, END_US));
	}
	printf("%s: %" PRIu64 " sent, %" PRIu64 " came\n", connects ? "connect" : "accept", sent, came);
}

static void begin(const char *address, const char *name, uint32_t timeout_ms)
{
	const struct tow_worker_attr attr = { .size = sizeof(attr), .timeout_ms = timeout_ms };

	must("device", 0, tow_device_open(NULL, 0, &dev));
	must("arena", 0, tow_arena_create(dev, NULL, &arena));
	must("worker", 0, tow_worker_create(dev, arena, &attr, &worker));
	must("peer", 0, tow_peer_connect(dev, address, NULL, WAIT_MS, &peer));
	must("mailbox", 0, tow_mailbox_create(worker, connects ? NULL : name, NULL, &box));
	if (connects) {
		must("connecting", 0, tow_mailbox_connect(box, peer, name, WAIT_MS, &line));
		must("opening", 0, tow_mailbox_wait(box, line, TOW_MAILBOX_ROOM, WAIT_US));
	} else {
		must("nobody came", 0, tow_mailbox_wait(box, NULL, TOW_MAILBOX_CAME, END_US));
		must("accepting", 0, tow_mailbox_accept(box, &line));
	}
}

int main(int argc, char **argv)
{
	if (argc < 5)
		return 2;
	connects = !strcmp(argv[1], "connect");
	begin(argv[2], argv[3], argc > 5 ? (uint32_t)strtoul(argv[5], NULL, 10) : 0);
	converse(strtoull(argv[4], NULL, 10));
	/* Whoever accepted goes last: nothing of his is on its way then. */
	if (!connects)
		tow_mailbox_wait(box, line, TOW_MAILBOX_ENDED, END_US);
	must("closing", 0, tow_mailbox_close(line));
	must("mailbox", 0, tow_mailbox_destroy(box));
	must("worker", 0, tow_worker_destroy(worker));
	tow_peer_release(peer);
	tow_arena_destroy(arena);
	tow_device_close(dev);
	return 0;
}

// SPDX-License-Identifier: GPL-2.0
/* Mailboxes of several processes on a node that is played here. */
/* build: also tsan */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <kselftest.h>

#include "../pump/line.h"
#include "tow_node.h"

#define LATE_US		20000000U
#define LATE_MS		20000U
#define MIB		((size_t)1 << 20)
#define CROWD		70U

/* One process. */
struct side {
	struct tow_arena *arena;
	struct tow_worker *worker;
	struct tow_peer *peer;
	struct tow_mailbox *box;
	int index;
};

static int sides;

/* Never the same one twice. */
static void begin_side(struct side *side, const char *name, const struct tow_mailbox_attr *attr)
{
	const struct tow_arena_attr arena_attr = { .size = sizeof(arena_attr),
						   .region_bytes = 2 * MIB };
	const struct tow_worker_attr worker_attr = { .size = sizeof(worker_attr), .timeout_ms = 1000 };
	struct tow_device *dev = &node_device[sides];

	side->index = sides++;
	if (sides == NODE_PROCESSES || tow_arena_create(dev, &arena_attr, &side->arena) ||
	    tow_worker_create(dev, side->arena, &worker_attr, &side->worker) ||
	    tow_peer_connect(dev, "192.0.2.1", NULL, 0, &side->peer) ||
	    tow_mailbox_create(side->worker, name, attr, &side->box))
		ksft_exit_fail_msg("no process\n");
}

/* Everything is given back: its number can be had again. */
static bool end_side(struct side *side)
{
	bool good = !tow_mailbox_destroy(side->box);

	good = !tow_worker_destroy(side->worker) && good;
	tow_peer_release(side->peer);
	good = !tow_arena_destroy(side->arena) && good;
	pthread_mutex_lock(&node.lock);
	for (uint32_t i = 1; i <= node.used; i++)
		if (node.objects[i].kind && node.objects[i].process == side->index)
			good = false;
	good = good && !node_waits(side->index);
	node_forget(side->index);
	pthread_mutex_unlock(&node.lock);
	if (side->index == sides - 1)
		sides--;
	return good;
}

static int status_of(struct tow_line *line)
{
	struct tow_line_info info = { .size = sizeof(info) };

	return tow_mailbox_info(line, &info) ? 1 : info.status;
}

static struct tow_line *connect_to(struct side *side, const char *name)
{
	struct tow_line *line;

	if (tow_mailbox_connect(side->box, side->peer, name, LATE_MS, &line))
		ksft_exit_fail_msg("connecting failed\n");
	return line;
}

static struct tow_line *open_to(struct side *side, const char *name)
{
	struct tow_line *line = connect_to(side, name);

	if (tow_mailbox_wait(side->box, line, TOW_MAILBOX_ROOM, LATE_US) != TOW_MAILBOX_ROOM)
		ksft_exit_fail_msg("it does not open\n");
	return line;
}

static struct tow_line *accept_one(struct side *side)
{
	struct tow_line *line;

	if (tow_mailbox_wait(side->box, NULL, TOW_MAILBOX_CAME, LATE_US) != TOW_MAILBOX_CAME ||
	    tow_mailbox_accept(side->box, &line) != 1)
		ksft_exit_fail_msg("nobody comes\n");
	return line;
}

/* Send a number, with something behind it. */
static int send_number(struct tow_line *line, uint64_t number, uint32_t bytes)
{
	unsigned char data[TOW_MESSAGE_MAX];

	memcpy(data, &number, sizeof(number));
	for (uint32_t i = sizeof(number); i < bytes; i++)
		data[i] = (unsigned char)(number * 7 + i);
	return tow_mailbox_send(line, data, bytes);
}

/* 1: that number, and what is behind it; 0: nothing; -EBADMSG: another thing. */
static int receive_number(struct tow_line *line, uint64_t number, uint32_t wanted)
{
	unsigned char data[TOW_MESSAGE_MAX];
	uint64_t got = 0;
	uint32_t bytes;
	int ret = tow_mailbox_receive(line, data, sizeof(data), &bytes);

	if (ret != 1)
		return ret;
	memcpy(&got, data, sizeof(got));
	for (uint32_t i = sizeof(got); i < bytes; i++)
		if (data[i] != (unsigned char)(number * 7 + i))
			return -EBADMSG;
	return got == number && bytes == wanted ? 1 : -EBADMSG;
}

static int wait_for_number(struct side *side, struct tow_line *line, uint64_t number,
			   uint32_t bytes)
{
	int ret = tow_mailbox_wait(side->box, line, TOW_MAILBOX_CAME, LATE_US);

	return ret < 0 ? ret : receive_number(line, number, bytes);
}

static void drive(struct side *one, struct side *other)
{
	tow_worker_progress(one->worker, 100);
	tow_worker_progress(other->worker, 100);
}

/* The same of one that the other end has not sent all of, with both ends driven. */
static int pass_number(struct side *from, struct tow_line *out, struct side *to,
		       struct tow_line *in, uint64_t number, uint32_t bytes)
{
	int ret, turns = 0;

	while ((ret = send_number(out, number, bytes)) == -EAGAIN && turns++ < 10000)
		drive(from, to);
	if (ret)
		return ret;
	while (!(ret = receive_number(in, number, bytes)) && turns++ < 10000)
		drive(from, to);
	return ret;
}

static int wait_for_end(struct side *side, struct tow_line *line)
{
	int ret = tow_mailbox_wait(side->box, line, TOW_MAILBOX_ENDED, LATE_US);

	return ret < 0 ? ret : status_of(line);
}

/* ---- tests ---- */

static void test_begin(void)
{
	struct tow_line_info info = { .size = sizeof(info) };
	struct side one, other;
	struct tow_line *line, *accepted;
	uint64_t sent;
	bool good;

	begin_side(&one, "one", NULL);
	begin_side(&other, NULL, NULL);
	line = connect_to(&other, "one");
	good = send_number(line, 1, 8) == -ENOTCONN && status_of(line) == -EINPROGRESS;
	good = good && tow_mailbox_wait(other.box, line, TOW_MAILBOX_ROOM, LATE_US) == TOW_MAILBOX_ROOM;
	ksft_test_result(good && status_of(line) == 0 && send_number(line, 1, 8) == 0,
			 "messages go to a process that does nothing\n");
	good = tow_mailbox_destroy(other.box) == -EBUSY;
	accepted = accept_one(&one);
	ksft_test_result(good && wait_for_number(&one, accepted, 1, 8) == 1 &&
			 receive_number(accepted, 2, 8) == 0, "and are there when it looks\n");
	good = tow_mailbox_info(accepted, &info) == 0 && info.status == 0 && !info.waiting &&
	       info.room == TOW_MESSAGE_MAX && !*info.name && !memcmp(info.incarnation, "played", 7);
	good = good && tow_mailbox_info(line, &info) == 0 && !strcmp(info.name, "one") &&
	       !memcmp(info.incarnation, "played", 7);
	ksft_test_result(good, "each end knows the other\n");
	good = send_number(accepted, 3, TOW_MESSAGE_MAX) == 0 &&
	       wait_for_number(&other, line, 3, TOW_MESSAGE_MAX) == 1;
	ksft_test_result(good, "the other way\n");
	sent = info.sent;
	good = sent && send_number(line, 9, 8) == 0 && tow_mailbox_info(line, &info) == 0 && info.sent > sent;
	sent = info.sent;
	while (good && info.there < sent)
		good = tow_worker_progress(other.worker, LATE_US) >= 0 && tow_mailbox_info(line, &info) == 0;
	/* As old programs ask. */
	info = (struct tow_line_info){ .size = offsetof(struct tow_line_info, sent) };
	good = good && tow_mailbox_info(line, &info) == 0 && !info.sent && !info.there;
	ksft_test_result(good && wait_for_number(&one, accepted, 9, 8) == 1, "what was sent is there\n");
	good = send_number(line, 4, 8) == 0 && tow_mailbox_close(line) == 0;
	good = good && wait_for_number(&one, accepted, 4, 8) == 1 &&
	       wait_for_end(&one, accepted) == -ESTALE && send_number(accepted, 5, 8) == -ESTALE &&
	       receive_number(accepted, 5, 8) == -ESTALE;
	ksft_test_result(good, "what was sent before it was closed comes first\n");
	good = tow_mailbox_close(accepted) == 0;
	ksft_test_result(end_side(&other) && end_side(&one) && good, "nothing stays\n");
}

static void test_room(void)
{
	const struct tow_mailbox_attr small = { .size = sizeof(small), .bytes = TOW_LINE_BYTES_MIN };
	struct side one, other;
	struct tow_line *line, *accepted;
	uint64_t sent = 0, came = 0;
	bool good = true;
	int ret = 0;

	begin_side(&one, "one", &small);
	begin_side(&other, NULL, &small);
	line = open_to(&other, "one");
	while (!ret && sent < 1000) {
		ret = send_number(line, sent, 100);
		sent += !ret;
	}
	good = ret == -EAGAIN && sent == TOW_LINE_BYTES_MIN / 192;
	good = good && tow_mailbox_wait(other.box, line, TOW_MAILBOX_ROOM, 100000) == -ETIMEDOUT;
	ksft_test_result(good, "as many as there is memory for\n");
	accepted = accept_one(&one);
	while (wait_for_number(&one, accepted, came, 100) == 1 && ++came < sent)
		;
	good = came == sent && receive_number(accepted, came, 100) == 0;
	good = good && tow_mailbox_wait(other.box, line, TOW_MAILBOX_ROOM, LATE_US) == TOW_MAILBOX_ROOM;
	ksft_test_result(good && send_number(line, sent++, 2000) == 0, "and again when they were received\n");
	good = wait_for_number(&one, accepted, came++, 2000) == 1;
	for (uint64_t i = 0; good && i < 3000; i++) {
		uint32_t bytes = 8 + (uint32_t)(i * 37 % 1900);

		good = pass_number(&other, line, &one, accepted, i, bytes) == 1 &&
		       pass_number(&one, accepted, &other, line, i, bytes) == 1;
	}
	ksft_test_result(good, "round and round the ring\n");
	tow_mailbox_close(accepted);
	ksft_test_result(wait_for_end(&other, line) == -ESTALE, "the other end is told of the end\n");
	tow_mailbox_close(line);
	ksft_test_result(end_side(&other) && end_side(&one), "nothing stays\n");
}

static void test_crowd(void)
{
	const struct tow_mailbox_attr attr = { .size = sizeof(attr), .backlog = 8 };
	static struct tow_line *lines[CROWD], *accepted[CROWD];
	static bool there[CROWD];
	struct side one, others[2];
	uint32_t open = 0;
	bool good = true;

	begin_side(&one, "one", &attr);
	begin_side(&others[0], NULL, NULL);
	begin_side(&others[1], "two", NULL);
	for (uint32_t i = 0; i < CROWD; i++)
		lines[i] = connect_to(&others[i % 2], "one");
	/* While the first does nothing. */
	for (uint32_t turn = 0; turn < 2000; turn++)
		tow_worker_progress(others[turn % 2].worker, 100);
	for (uint32_t i = 0; i < CROWD; i++)
		open += !status_of(lines[i]);
	ksft_test_result(open == 8, "as many as its backlog\n");
	for (uint32_t count = 0, turn = 0; good && count < CROWD; turn++) {
		tow_worker_progress(others[turn % 2].worker, 100);
		tow_worker_progress(one.worker, 100);
		for (uint32_t i = 0; i < CROWD; i++)
			if (!there[i] && !status_of(lines[i]) && !send_number(lines[i], i, 8))
				there[i] = true;
		if (tow_mailbox_accept(one.box, &accepted[count]) == 1)
			count++;
		good = turn < 200000;
	}
	ksft_test_result(good, "all of %u when it is driven\n", CROWD);
	memset(there, 0, sizeof(there));
	for (uint32_t i = 0; good && i < CROWD; i++) {
		uint64_t number = 0;
		uint32_t bytes;

		tow_mailbox_wait(one.box, accepted[i], TOW_MAILBOX_CAME, LATE_US);
		good = tow_mailbox_receive(accepted[i], &number, sizeof(number), &bytes) == 1 &&
		       number < CROWD && !there[number];
		if (good)
			there[number] = true;
	}
	ksft_test_result(good, "each says another thing\n");
	for (uint32_t i = 0; i < CROWD; i++)
		tow_mailbox_close(i % 2 ? lines[i] : accepted[i]);
	for (uint32_t i = 0; i < CROWD; i++)
		tow_mailbox_close(i % 2 ? accepted[i] : lines[i]);
	ksft_test_result(end_side(&others[1]) && end_side(&others[0]) && end_side(&one),
			 "nothing stays\n");
}

/* Whoever connects dies after so many entries that have taken effect; and then others come. */
static bool dies_after(uint64_t entries, bool *opened)
{
	const struct tow_mailbox_attr attr = { .size = sizeof(attr), .backlog = 1 };
	static struct side dead[64];
	static uint32_t count;
	struct side *first = &dead[count++], one, other;
	struct tow_line *line, *second, *accepted = NULL;
	uint64_t until, number = 77;
	bool good = false;
	int ret;

	begin_side(&one, "one", &attr);
	begin_side(first, NULL, NULL);
	begin_side(&other, NULL, NULL);
	line = connect_to(first, "one");
	until = node.entries + entries;
	for (int i = 0; node.entries < until && i < 200; i++) {
		tow_worker_progress(first->worker, 100);
		if (!status_of(line) && number == 77)
			number = !send_number(line, 1, 8);
	}
	*opened = !status_of(line);
	node_kill(first->index);
	/* There is one spare only: if it was used it is another one's when the process looks. */
	second = connect_to(&other, "one");
	for (int i = 0; i < 300; i++)
		tow_worker_progress(other.worker, 100);
	for (int turns = 0; !good && turns < 10000; turns++) {
		drive(&one, &other);
		if (!status_of(second) && number != 78 && !send_number(second, 2, 8))
			number = 78;
		if (tow_mailbox_accept(one.box, &accepted) != 1)
			continue;
		/* Of the first: nothing, or what it had sent. */
		while (!(ret = receive_number(accepted, 2, 8)))
			drive(&one, &other);
		good = ret == 1;
		if (!good && ret != -ESTALE && receive_number(accepted, 1, 8) != -ESTALE)
			break;
		tow_mailbox_close(accepted);
	}
	if (!good)
		ksft_print_msg("after %llu: %d\n", (unsigned long long)entries, status_of(second));
	tow_mailbox_close(second);
	good = end_side(&other) && good;
	return end_side(&one) && good;
}

static void test_killed(void)
{
	bool good = true, opened = false, before = false, after = false;

	for (uint64_t entries = 0; good && entries < 8; entries++)
		for (int i = 0; good && i < 3; i++) {
			good = dies_after(entries, &opened);
			before = before || !opened;
			after = after || opened;
		}
	ksft_test_result(good && before && after,
			 "whoever dies as he connects keeps nobody out, and tells nobody lies\n");
}

/* Does anybody have the slot of its only spare? */
static bool is_claimed(const struct side *side)
{
	char name[TOWI_LINE_NAME_BYTES];
	bool claimed;

	towi_line_name(name, side->box->number, side->box->last, "!");
	pthread_mutex_lock(&node.lock);
	claimed = node.objects[node_named(name)].holder;
	pthread_mutex_unlock(&node.lock);
	return claimed;
}

/* The node of whoever has a spare, and has said nothing, is lost. */
static void test_claim_lost(void)
{
	const struct tow_mailbox_attr attr = { .size = sizeof(attr), .backlog = 1 };
	struct tow_line *line, *accepted;
	struct side one, other;
	bool good;

	begin_side(&one, "one", &attr);
	begin_side(&other, NULL, NULL);
	tow_worker_progress(one.worker, 100);
	/* The door is read, and nothing after that. */
	node_stop_after(1);
	line = connect_to(&other, "one");
	for (int i = 0; i < 20000 && !is_claimed(&one); i++)
		tow_worker_progress(other.worker, 100);
	good = is_claimed(&one);
	node_lose();
	usleep(20000);
	tow_worker_progress(one.worker, 100);
	node_stop(false);
	good = good && wait_for_end(&other, line) == -ECONNRESET;
	tow_mailbox_close(line);
	line = open_to(&other, "one");
	accepted = accept_one(&one);
	good = good && send_number(line, 1, 8) == 0 && wait_for_number(&one, accepted, 1, 8) == 1;
	ksft_test_result(good, "whoever is lost as he connects keeps nobody out\n");
	tow_mailbox_close(line);
	tow_mailbox_close(accepted);
	ksft_test_result(end_side(&other) && end_side(&one), "nothing stays\n");
}

static atomic_bool looks;

static void *look_after(void *arg)
{
	struct side *side = arg;

	while (atomic_load(&looks))
		tow_worker_progress(side->worker, 0);
	return NULL;
}

static uint32_t spares_of(struct side *side, const struct tow_mailbox *box)
{
	uint32_t count;

	towi_pump_lock(&side->worker->pump);
	count = box->spares_count;
	towi_pump_unlock(&side->worker->pump);
	return count;
}

/* Mailboxes begin while another thread looks, for whom all is due. */
static void test_beginning(void)
{
	const struct tow_mailbox_attr attr = { .size = sizeof(attr), .backlog = 8 };
	struct tow_mailbox *box;
	struct side one;
	pthread_t thread;
	bool good = true;

	begin_side(&one, NULL, NULL);
	one.worker->pump.tick_us = 0;
	atomic_store(&looks, true);
	pthread_create(&thread, NULL, look_after, &one);
	for (int i = 0; good && i < 20; i++) {
		if (tow_mailbox_create(one.worker, "two", &attr, &box))
			ksft_exit_fail_msg("no mailbox\n");
		usleep(2000);
		good = spares_of(&one, box) == 8;
		tow_mailbox_destroy(box);
	}
	atomic_store(&looks, false);
	pthread_join(thread, NULL);
	ksft_test_result(good, "as many spares as there are to be, whoever looks meanwhile\n");
	ksft_test_result(end_side(&one), "nothing stays\n");
}

struct told {
	struct tow_line *line;
	uint32_t what;
};

static struct told told[8];
static uint32_t told_count;

static void note(void *arg, struct tow_line *line, uint32_t what)
{
	(void)arg;
	if (told_count < ARRAY_SIZE(told))
		told[told_count] = (struct told){ line, what };
	told_count++;
}

static bool was_told(struct side *side, struct tow_line *line, uint32_t what)
{
	bool good;

	for (int i = 0; i < 5000 && !told_count; i++)
		tow_worker_progress(side->worker, 1000);
	/* And nothing else. */
	for (int i = 0; i < 20; i++)
		tow_worker_progress(side->worker, 100);
	good = told_count == 1 && told[0].line == line && told[0].what == what;
	told_count = 0;
	return good;
}

static void test_news(void)
{
	const struct tow_mailbox_attr small = { .size = sizeof(small), .bytes = TOW_LINE_BYTES_MIN };
	struct side one, other;
	struct tow_line *line, *accepted = NULL;
	uint64_t came = 0, sent = 1;
	bool good;

	begin_side(&one, "one", &small);
	begin_side(&other, NULL, NULL);
	good = tow_mailbox_watch(one.box, note, NULL) == 0 && tow_mailbox_watch(other.box, note, NULL) == 0;
	line = connect_to(&other, "one");
	good = good && was_told(&other, line, TOW_MAILBOX_ROOM);
	good = good && was_told(&one, NULL, TOW_MAILBOX_CAME) &&
	       tow_mailbox_accept(one.box, &accepted) == 1 && tow_mailbox_accept(one.box, &accepted) == 0;
	ksft_test_result(good, "of a line\n");
	send_number(line, 0, 8);
	good = was_told(&one, accepted, TOW_MAILBOX_CAME);
	while (!send_number(line, sent, 8))
		sent++;
	for (int i = 0; i < 100; i++)
		tow_worker_progress(one.worker, 100);
	ksft_test_result(good && !told_count, "of messages, once until somebody looks\n");
	for (int i = 0; i < 2000 && came < sent; i++) {
		came += receive_number(accepted, came, 8) == 1;
		drive(&one, &other);
	}
	ksft_test_result(came == sent && was_told(&other, line, TOW_MAILBOX_ROOM), "of room\n");
	node_kill(other.index);
	ksft_test_result(was_told(&one, accepted, TOW_MAILBOX_ENDED) &&
			 status_of(accepted) == -ESTALE, "of its end\n");
	tow_mailbox_close(accepted);
	ksft_test_result(end_side(&one), "nothing stays\n");
}

/* A long message finds none, and short ones do. */
static void test_room_for_long(void)
{
	const struct tow_mailbox_attr small = { .size = sizeof(small), .bytes = TOW_LINE_BYTES_MIN };
	struct side one, other;
	struct tow_line *line, *accepted;
	bool good;

	begin_side(&one, "one", &small);
	begin_side(&other, NULL, NULL);
	good = tow_mailbox_watch(other.box, note, NULL) == 0;
	line = connect_to(&other, "one");
	good = good && was_told(&other, line, TOW_MAILBOX_ROOM);
	accepted = accept_one(&one);
	good = good && send_number(line, 0, 2000) == 0 && send_number(line, 1, 8) == 0 &&
	       send_number(line, 2, 2000) == -EAGAIN && send_number(line, 2, 8) == 0;
	good = good && wait_for_number(&one, accepted, 0, 2000) == 1 &&
	       wait_for_number(&one, accepted, 1, 8) == 1 &&
	       wait_for_number(&one, accepted, 2, 8) == 1;
	for (int i = 0; i < 100; i++)
		drive(&one, &other);
	ksft_test_result(good && was_told(&other, line, TOW_MAILBOX_ROOM),
			 "of room for a long one, though a short one found some\n");
	good = send_number(line, 3, 8) == 0 && wait_for_number(&one, accepted, 3, 8) == 1;
	for (int i = 0; i < 100; i++)
		drive(&one, &other);
	ksft_test_result(good && !told_count, "and once\n");
	tow_mailbox_close(line);
	tow_mailbox_close(accepted);
	ksft_test_result(end_side(&other) && end_side(&one), "nothing stays\n");
}

static void test_ends(void)
{
	struct side one, other;
	struct tow_line *line, *accepted;
	bool good;

	begin_side(&one, "one", NULL);
	begin_side(&other, NULL, NULL);
	good = tow_mailbox_connect(other.box, other.peer, "nobody", 50, &line) == 0 &&
	       wait_for_end(&other, line) == -ETIMEDOUT && tow_mailbox_close(line) == 0;
	ksft_test_result(good, "nobody has that name\n");
	line = connect_to(&other, "nobody");
	ksft_test_result(tow_mailbox_close(line) == 0, "whoever looks may stop\n");
	line = open_to(&other, "one");
	accepted = accept_one(&one);
	send_number(line, 1, 8);
	good = wait_for_number(&one, accepted, 1, 8) == 1;
	send_number(line, 2, 8);
	/* It is there, and nobody has looked. */
	for (int i = 0; i < 50; i++)
		tow_worker_progress(other.worker, 100);
	node_lose();
	usleep(20000);
	tow_worker_progress(one.worker, 0);
	good = good && wait_for_end(&other, line) == -ECONNRESET &&
	       wait_for_number(&one, accepted, 2, 8) == 1 &&
	       wait_for_end(&one, accepted) == -ECONNRESET;
	ksft_test_result(good, "the connection is lost\n");
	tow_mailbox_close(line);
	tow_mailbox_close(accepted);
	line = open_to(&other, "one");
	accepted = accept_one(&one);
	node_stop(true);
	ksft_test_result(wait_for_end(&other, line) == -ETIMEDOUT, "the other node does not answer\n");
	node_stop(false);
	tow_mailbox_close(line);
	tow_mailbox_close(accepted);
	ksft_test_result(end_side(&other) && end_side(&one), "nothing stays\n");
}

static void test_limits(void)
{
	const struct tow_mailbox_attr few = { .size = sizeof(few), .lines = 3, .backlog = 2 };
	struct tow_mailbox_attr wrong = { .size = sizeof(wrong), .bytes = 5000 };
	struct tow_line *lines[4], *accepted[2];
	struct tow_mailbox *box = NULL;
	struct side one, other;
	bool good;

	begin_side(&one, "one", &few);
	begin_side(&other, NULL, NULL);
	good = tow_mailbox_create(other.worker, "one", NULL, &box) == -EEXIST &&
	       tow_mailbox_create(other.worker, "", NULL, &box) == -EINVAL &&
	       tow_mailbox_create(other.worker, NULL, &wrong, &box) == -EINVAL && !box;
	ksft_test_result(good, "mailboxes that cannot be\n");
	good = tow_mailbox_connect(one.box, one.peer, "two", 10, &lines[0]) == 0 &&
	       tow_mailbox_connect(one.box, one.peer, "two", 10, &lines[1]) == -EMLINK &&
	       tow_mailbox_close(lines[0]) == 0;
	ksft_test_result(good, "no more lines than it may have\n");
	for (int i = 0; i < 2; i++) {
		lines[i] = open_to(&other, "one");
		accepted[i] = accept_one(&one);
	}
	lines[2] = open_to(&other, "one");
	good = tow_mailbox_connect(other.box, other.peer, "one", 100, &lines[3]) == 0 &&
	       tow_mailbox_wait(one.box, NULL, TOW_MAILBOX_CAME, 1000000) == TOW_MAILBOX_CAME &&
	       wait_for_end(&other, lines[3]) == -ETIMEDOUT;
	tow_mailbox_close(lines[3]);
	tow_mailbox_close(accepted[0]);
	lines[3] = connect_to(&other, "one");
	for (int i = 0; i < 2000 && status_of(lines[3]); i++) {
		tow_worker_progress(one.worker, 100);
		tow_worker_progress(other.worker, 100);
	}
	ksft_test_result(good && !status_of(lines[3]), "others wait until one has ended\n");
	for (int i = 0; i < 4; i++)
		tow_mailbox_close(lines[i]);
	tow_mailbox_close(accepted[1]);
	ksft_test_result(end_side(&other) && end_side(&one), "nothing stays\n");
}

/* Whoever waits for room in one mailbox finds the next one of that name, of another size. */
static void test_next(void)
{
	const struct tow_mailbox_attr few = { .size = sizeof(few), .lines = 1, .backlog = 1 };
	const struct tow_mailbox_attr large = { .size = sizeof(large), .bytes = TOW_LINE_BYTES_MAX };
	struct tow_line *line, *waits, *accepted;
	struct side one, other;
	bool good;

	begin_side(&one, "one", &few);
	begin_side(&other, NULL, NULL);
	line = open_to(&other, "one");
	waits = connect_to(&other, "one");
	good = tow_mailbox_wait(other.box, waits, TOW_MAILBOX_ROOM, 50000) == -ETIMEDOUT;
	tow_mailbox_destroy(one.box);
	good = good && wait_for_end(&other, line) == -ESTALE &&
	       tow_mailbox_create(one.worker, "one", &large, &one.box) == 0 &&
	       tow_mailbox_wait(other.box, waits, TOW_MAILBOX_ROOM, LATE_US) == TOW_MAILBOX_ROOM;
	accepted = accept_one(&one);
	for (uint64_t i = 0; good && i < 100; i++)
		good = send_number(waits, i, 2000) == 0;
	for (uint64_t i = 0; good && i < 100; i++)
		good = pass_number(&one, accepted, &other, waits, i, 100) == 1 &&
		       wait_for_number(&one, accepted, i, 2000) == 1;
	ksft_test_result(good, "another mailbox takes its name\n");
	tow_mailbox_close(line);
	tow_mailbox_close(waits);
	tow_mailbox_close(accepted);
	ksft_test_result(end_side(&other) && end_side(&one), "nothing stays\n");
}

/* ---- whoever says what he likes ---- */

/* In the ring of one of its spares, as the first batch, or the next one. */
static void say(struct side *side, uint32_t index, uint64_t at, const void *data, size_t bytes)
{
	char name[2][TOWI_LINE_NAME_BYTES];
	uint32_t inbox, slot;

	towi_line_name(name[0], side->box->number, index, "");
	towi_line_name(name[1], side->box->number, index, "!");
	pthread_mutex_lock(&node.lock);
	inbox = node_named(name[0]);
	slot = node_named(name[1]);
	if (!inbox || !slot)
		ksft_exit_fail_msg("no such end\n");
	memcpy(node_at(&node.objects[inbox]) + TOWI_RING_AT + at, data, bytes);
	node_count(&node.objects[slot], slot);
	pthread_mutex_unlock(&node.lock);
}

struct first {
	struct towi_record record;
	struct towi_hello hello;
};

static struct first right_first(const struct side *side)
{
	struct first first = {
		.record = { .batch = 5, .bytes = sizeof(first.hello), .kind = TOWI_HELLO },
		.hello = { .magic = 0x6f6c6c6568776f74ULL, .version = 1, .units = 64, .number = 12345,
			   .index = 1, .name_bytes = 4, .name = "who?" },
	};

	memcpy(first.hello.incarnation, side->box->incarnation, sizeof(first.hello.incarnation));
	return first;
}

/* One that nobody has. */
static uint32_t spare_of(struct side *side)
{
	uint32_t i = 0;

	while (!side->box->door->spares[i]) {
		i = (i + 1) % side->box->backlog;
		tow_worker_progress(side->worker, 0);
	}
	return side->box->door->spares[i];
}

/* What becomes of a line that begins so; 1: nothing. */
static int begins_with(struct side *side, const struct first *first)
{
	struct tow_line *line;
	int status;

	say(side, spare_of(side), 0, first, sizeof(*first));
	if (tow_mailbox_wait(side->box, NULL, TOW_MAILBOX_CAME, LATE_US) != TOW_MAILBOX_CAME ||
	    tow_mailbox_accept(side->box, &line) != 1)
		return 1;
	status = wait_for_end(side, line);
	tow_mailbox_close(line);
	return status;
}

static void test_lies(void)
{
	static const struct {
		size_t at, bytes;
		uint64_t value;
		int status;
	} lies[] = {
		{ offsetof(struct first, record.kind), 1, TOWI_MESSAGE, -EPROTO },
		{ offsetof(struct first, record.bytes), 2, 200, -EPROTO },
		{ offsetof(struct first, record.position), 8, 1, -EPROTO },
		{ offsetof(struct first, record.batch), 4, 0, -EPROTO },
		{ offsetof(struct first, record.batch), 4, 1000, -EPROTO },
		{ offsetof(struct first, record.taken), 8, 1, -EPROTO },
		{ offsetof(struct first, hello.magic), 8, 1, -EPROTO },
		{ offsetof(struct first, hello.version), 4, 2, -EPROTO },
		{ offsetof(struct first, hello.units), 4, 32, -EPROTO },
		{ offsetof(struct first, hello.units), 4, 65, -EPROTO },
		{ offsetof(struct first, hello.units), 4, 1U << 20, -EPROTO },
		{ offsetof(struct first, hello.name_bytes), 4, TOW_MAILBOX_NAME_MAX + 1, -EPROTO },
		{ offsetof(struct first, hello.name), 1, '\n', -EPROTO },
		/* It may be so, but is not. */
		{ offsetof(struct first, hello.number), 8, 1, -ESTALE },
		{ offsetof(struct first, hello.incarnation), 1, 1, -ESTALE },
	};
	struct tow_line *line, *accepted;
	struct side one, other;
	struct first first;
	bool good = true;

	begin_side(&one, "one", NULL);
	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		int status;

		first = right_first(&one);
		memcpy((char *)&first + lies[i].at, &lies[i].value, lies[i].bytes);
		status = begins_with(&one, &first);
		if (status != lies[i].status)
			ksft_print_msg("lie %zu: %d\n", i, status);
		good = good && status == lies[i].status;
	}
	ksft_test_result(good, "a beginning that makes no sense is the end\n");
	begin_side(&other, NULL, NULL);
	line = open_to(&other, "one");
	accepted = accept_one(&one);
	/* Somebody else writes there, and notifies. */
	first = right_first(&one);
	first.record.position = 5;
	say(&one, accepted->index, (uint64_t)5 * TOWI_UNIT, &first, sizeof(first));
	good = wait_for_end(&one, accepted) == -EPROTO;
	tow_mailbox_close(accepted);
	ksft_test_result(good && wait_for_end(&other, line) == -ESTALE, "so is it later\n");
	tow_mailbox_close(line);
	line = open_to(&other, "one");
	accepted = accept_one(&one);
	good = send_number(line, 1, 8) == 0 && wait_for_number(&one, accepted, 1, 8) == 1;
	ksft_test_result(good, "others are none the worse\n");
	tow_mailbox_close(line);
	tow_mailbox_close(accepted);
	ksft_test_result(end_side(&other) && end_side(&one), "nothing stays\n");
}

/* ---- ports ---- */

struct port {
	struct towi_port port;
	uint32_t came, rooms;
	int error;
	uint64_t last;
};

static void port_came(struct towi_port *port, struct tow_line *line,
		      const struct towi_record *record, const void *data)
{
	struct port *own = (struct port *)port;

	if (!port->line)
		towi_port_attach(port, line);
	own->came += record->tag;
	memcpy(&own->last, data, sizeof(own->last));
}

static void port_room(struct towi_port *port)
{
	((struct port *)port)->rooms++;
}

static void port_ended(struct towi_port *port, int error)
{
	((struct port *)port)->error = error;
}

static void open_port(struct side *side, struct port *port)
{
	*port = (struct port){ .port = { .came = port_came, .room = port_room, .ended = port_ended } };
	towi_pump_lock(&side->worker->pump);
	if (towi_port_open(side->box, &port->port))
		ksft_exit_fail_msg("no port\n");
	towi_pump_unlock(&side->worker->pump);
}

static void close_port(struct side *side, struct port *port)
{
	towi_pump_lock(&side->worker->pump);
	towi_port_close(&port->port);
	towi_pump_unlock(&side->worker->pump);
}

static int send_to(struct side *side, struct port *from, const struct port *to, uint64_t number)
{
	const struct towi_record record = { .kind = TOWI_MESSAGE, .tag = 1, .port = to->port.number,
					    .generation = to->port.generation };
	int ret;

	towi_pump_lock(&side->worker->pump);
	ret = towi_port_send(&from->port, &record, &number, sizeof(number));
	towi_pump_unlock(&side->worker->pump);
	return ret;
}

/* A port is closed when there is no room to say so: its other end has all, and then is told. */
static bool tells_of_the_end(struct side *one, struct side *other, struct port *from,
			     struct port *to)
{
	uint32_t sent = 0;

	while (!send_to(other, from, to, 20))
		sent++;
	from->port.other = to->port.number;
	from->port.other_generation = to->port.generation;
	close_port(other, from);
	for (int i = 0; i < 2000 && !to->error; i++) {
		tow_worker_progress(other->worker, 100);
		tow_worker_progress(one->worker, 100);
	}
	open_port(other, from);
	return sent && to->came == sent && to->error == -ESTALE && !to->port.line;
}

/* Whoever waits for what a port has come to know looks again, whoever takes it out of the ring. */
static bool wakes(struct side *one, struct tow_line *line, struct side *other, struct port *from,
		  struct port *to)
{
	struct towi_pump *pump = &one->worker->pump;
	uint64_t news;
	bool good;

	towi_pump_lock(pump);
	good = send_to(other, from, to, 17) == 0;
	for (int i = 0; i < 100; i++)
		tow_worker_progress(other->worker, 100);
	news = pump->news;
	towi_line_look(line);
	good = good && to->last == 17 && pump->news != news;
	towi_pump_unlock(pump);
	return good;
}

static void test_ports(void)
{
	struct side one, other;
	struct port here[2], there[3];
	struct tow_line *line;
	uint32_t sent = 0;
	bool good;
	int ret;

	begin_side(&one, "one", NULL);
	begin_side(&other, NULL, NULL);
	for (int i = 0; i < 2; i++)
		open_port(&one, &here[i]);
	for (int i = 0; i < 3; i++)
		open_port(&other, &there[i]);
	good = send_to(&other, &there[0], &here[0], 1) == -ENOTCONN;
	line = open_to(&other, "one");
	towi_pump_lock(&other.worker->pump);
	for (int i = 0; i < 3; i++)
		towi_port_attach(&there[i].port, line);
	towi_pump_unlock(&other.worker->pump);
	good = good && send_to(&other, &there[0], &here[0], 11) == 0 &&
	       send_to(&other, &there[1], &here[1], 12) == 0 && send_to(&other, &there[2], &there[2], 13) == 0;
	for (int i = 0; i < 500 && !here[1].came; i++) {
		tow_worker_progress(other.worker, 100);
		tow_worker_progress(one.worker, 100);
	}
	ksft_test_result(good && here[0].came == 1 && here[0].last == 11 && here[1].last == 12,
			 "each has what is for it\n");
	good = wakes(&one, TAILQ_FIRST(&one.box->waiting), &other, &there[0], &here[0]);
	ksft_test_result(good, "who waits for that is told\n");
	sent++;
	while (!(ret = send_to(&other, &there[0], &here[0], 14)))
		sent++;
	good = ret == -EAGAIN && send_to(&other, &there[1], &here[0], 15) == -EAGAIN && !there[0].rooms;
	for (int i = 0; i < 2000 && !(there[1].rooms && here[0].came > sent); i++) {
		tow_worker_progress(other.worker, 100);
		tow_worker_progress(one.worker, 100);
	}
	ksft_test_result(good && there[0].rooms == 1 && there[1].rooms == 1 && !there[2].rooms &&
			 here[0].came == sent + 1, "who found no room is told when there is\n");
	close_port(&one, &here[1]);
	good = send_to(&other, &there[1], &here[1], 16) == 0;
	for (int i = 0; i < 200; i++) {
		tow_worker_progress(other.worker, 100);
		tow_worker_progress(one.worker, 100);
	}
	open_port(&one, &here[1]);
	good = good && here[1].port.number == 2 && here[1].port.generation == 3;
	good = good && tells_of_the_end(&one, &other, &there[2], &here[1]);
	close_port(&one, &here[1]);
	open_port(&one, &here[1]);
	for (int i = 0; i < 3; i++)
		close_port(&other, &there[i]);
	node_kill(other.index);
	for (int i = 0; i < 3000 && !here[0].error; i++)
		tow_worker_progress(one.worker, 1000);
	ksft_test_result(good && here[0].error == -ESTALE && !here[0].port.line && !here[1].came,
			 "of its line's end it is told, and of nothing that another one was sent\n");
	for (int i = 0; i < 2; i++)
		close_port(&one, &here[i]);
	ksft_test_result(end_side(&one), "nothing stays\n");
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(7 + 5 + 4 + 1 + 2 + 2 + 5 + 3 + 5 + 4 + 2 + 4 + 5);
	node_begin();
	test_begin();
	test_room();
	test_crowd();
	test_killed();
	test_claim_lost();
	test_beginning();
	test_news();
	test_room_for_long();
	test_ends();
	test_limits();
	test_next();
	test_lies();
	test_ports();
	ksft_finished();
}

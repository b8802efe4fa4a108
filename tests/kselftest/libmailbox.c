// SPDX-License-Identifier: GPL-2.0
/*
 * Mailboxes between processes of one node, against the real module: order, length, room; a crowd
 * that connects to one that sleeps and then does not; whoever is killed, at whichever moment; ends
 * of every kind.
 */
/* build: link -ltowline */
#include <pthread.h>
#include <sys/time.h>

#include <towline/mailbox.h>

#include "tow_hotplug.h"
#include "tow_libedge.h"

#define NAME		"libmailbox"
#define MESSAGES	6000U
#define CROWD		70U
#define BACKLOG		8U
/* The last of the crowd is accepted after all others were. */
#define CROWD_MS	120000U
#define KILLED		40U
#define THREADS		4U
#define OF_EACH		2000U

struct end {
	struct side side;
	struct tow_mailbox *box;
};

/* Small enough for a crowd. */
static int make_end(struct end *end, const char *name, const struct tow_mailbox_attr *attr)
{
	const struct tow_arena_attr arena = { .size = sizeof(arena), .region_bytes = 2 * MIB };
	struct side *side = &end->side;
	int ret;

	ret = tow_device_open(tow_test_device(), 0, &side->dev);
	ret = ret ?: tow_arena_create(side->dev, &arena, &side->arena);
	ret = ret ?: tow_worker_create(side->dev, side->arena, NULL, &side->worker);
	ret = ret ?: tow_peer_connect(side->dev, tow_own_address(), NULL, TOW_PEER_WAIT_MS,
				      &side->peer);
	return ret ?: tow_mailbox_create(side->worker, name, attr, &end->box);
}

static int end_end_of(struct end *end)
{
	int ret = tow_mailbox_destroy(end->box);

	return ret ?: end_side(&end->side);
}

static int status_of(struct tow_line *line)
{
	struct tow_line_info info = { .size = sizeof(info) };
	int ret = tow_mailbox_info(line, &info);

	return ret ? ret : info.status;
}

/* 0, and it is open; or its status. */
static int open_line_in(struct end *end, const char *name, uint32_t ms, struct tow_line **line)
{
	int ret = tow_mailbox_connect(end->box, end->side.peer, name, ms, line);

	if (ret)
		return ret;
	ret = tow_mailbox_wait(end->box, *line, TOW_MAILBOX_ROOM, ms * 1000);
	return ret == TOW_MAILBOX_ROOM ? 0 : ret < 0 ? ret : status_of(*line);
}

static int open_line(struct end *end, const char *name, struct tow_line **line)
{
	return open_line_in(end, name, LATE_MS, line);
}

static int accept_line(struct end *end, struct tow_line **line)
{
	int ret = tow_mailbox_wait(end->box, NULL, TOW_MAILBOX_CAME, LATE_US);

	if (ret != TOW_MAILBOX_CAME)
		return ret ?: -EIO;
	return tow_mailbox_accept(end->box, line) == 1 ? 0 : -EIO;
}

/* ---- messages: a number, and bytes that follow from it ---- */

static uint32_t length_of(uint64_t number)
{
	uint64_t mixed = (number + 1) * 0x9e3779b97f4a7c15ULL >> 33;

	return 8 + (uint32_t)(mixed % 3 ? mixed % 60 : mixed % (TOW_MESSAGE_MAX - 7));
}

static int send_number(struct tow_line *line, uint64_t number, uint32_t bytes)
{
	unsigned char data[TOW_MESSAGE_MAX];

	fill(data, bytes, number);
	memcpy(data, &number, sizeof(number));
	return tow_mailbox_send(line, data, bytes);
}

/* The same, when the other end has said that there is room. */
static int send_in_time(struct end *end, struct tow_line *line, uint64_t number, uint32_t bytes)
{
	int ret;

	while ((ret = send_number(line, number, bytes)) == -EAGAIN)
		if (tow_mailbox_wait(end->box, line, TOW_MAILBOX_ROOM, LATE_US) != TOW_MAILBOX_ROOM)
			return -ETIMEDOUT;
	return ret;
}

/* 1: a message, which is what it has to be; 0: none; -EBADMSG: it is not. */
static int receive_any(struct tow_line *line, uint64_t *number, uint32_t *bytes)
{
	unsigned char data[TOW_MESSAGE_MAX], expected[TOW_MESSAGE_MAX];
	int ret = tow_mailbox_receive(line, data, sizeof(data), bytes);

	if (ret != 1)
		return ret;
	memcpy(number, data, sizeof(*number));
	fill(expected, *bytes, *number);
	memcpy(expected, number, sizeof(*number));
	return memcmp(data, expected, *bytes) ? -EBADMSG : 1;
}

static int wait_for_number(struct end *end, struct tow_line *line, uint64_t number,
			   uint32_t length)
{
	uint64_t got = ~number;
	uint32_t bytes = 0;
	int ret = tow_mailbox_wait(end->box, line, TOW_MAILBOX_CAME, LATE_US);

	if (ret >= 0)
		ret = receive_any(line, &got, &bytes);
	return ret == 1 && (got != number || bytes != length) ? -EBADMSG : ret;
}

static int wait_for_end(struct end *end, struct tow_line *line)
{
	int ret = tow_mailbox_wait(end->box, line, TOW_MAILBOX_ENDED, LATE_US);

	return ret < 0 ? ret : status_of(line);
}

/* ---- another process ---- */

/* What it does; whatever it is not 0 is its exit status. */
static pid_t begin_child(int (*be)(void *arg), void *arg)
{
	pid_t child = fork();

	if (!child) {
		int ret = be(arg);

		if (ret)
			fprintf(stderr, "# a child: %d\n", ret);
		_exit(ret ? 1 : 0);
	}
	return child;
}

static bool ended_well(pid_t child)
{
	int status = -1;

	return waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status);
}

FIXTURE(mailbox)
{
	char name[256], interface[64];
	struct end one;
};

FIXTURE_SETUP(mailbox)
{
	snprintf(self->name, sizeof(self->name), "%s", tow_test_device());
	snprintf(self->interface, sizeof(self->interface), "%s", tow_link_interface());
	ASSERT_EQ(0, tow_set_file("pool_bytes", "192m"));
	ASSERT_EQ(0, tow_set_file("allow_unauthenticated", "1"));
}

FIXTURE_TEARDOWN_PARENT(mailbox)
{
	EXPECT_TRUE(tow_link_restore(self->name, self->interface))
		TH_LOG("%s does not come back", self->name);
}

/* ---- what works ---- */

TEST_F(mailbox, arguments)
{
	struct tow_mailbox_attr attr = { .size = sizeof(attr) };
	struct tow_line_info info = { .size = sizeof(info) };
	struct tow_line *line = NULL, *accepted = NULL;
	struct tow_mailbox *box = NULL;
	char text[TOW_MAILBOX_NAME_MAX + 2], data[8];
	struct end *one = &self->one;
	uint32_t bytes = 7;

	memset(text, 'n', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	ASSERT_EQ(0, make_end(one, NAME, NULL));
	EXPECT_EQ(-EINVAL, tow_mailbox_create(NULL, "x", NULL, &box));
	EXPECT_EQ(-EINVAL, tow_mailbox_create(one->side.worker, "x", NULL, NULL));
	EXPECT_EQ(-EINVAL, tow_mailbox_create(one->side.worker, "", NULL, &box));
	EXPECT_EQ(-EINVAL, tow_mailbox_create(one->side.worker, "a\nb", NULL, &box));
	EXPECT_EQ(-EINVAL, tow_mailbox_create(one->side.worker, text, NULL, &box));
	EXPECT_EQ(-EEXIST, tow_mailbox_create(one->side.worker, NAME, NULL, &box));
	attr.bytes = TOW_LINE_BYTES_MIN / 2;
	EXPECT_EQ(-EINVAL, tow_mailbox_create(one->side.worker, "x", &attr, &box));
	attr.bytes = 3 * TOW_LINE_BYTES_MIN;
	EXPECT_EQ(-EINVAL, tow_mailbox_create(one->side.worker, "x", &attr, &box));
	attr.bytes = 2 * TOW_LINE_BYTES_MAX;
	EXPECT_EQ(-EINVAL, tow_mailbox_create(one->side.worker, "x", &attr, &box));
	attr.bytes = 0;
	attr.backlog = TOW_BACKLOG_MAX + 1;
	EXPECT_EQ(-EINVAL, tow_mailbox_create(one->side.worker, "x", &attr, &box));
	EXPECT_EQ(NULL, box);
	attr = (struct tow_mailbox_attr){ .size = sizeof(attr), .bytes = TOW_LINE_BYTES_MAX,
					  .lines = 2, .backlog = 1 };
	text[TOW_MAILBOX_NAME_MAX] = '\0';
	ASSERT_EQ(0, tow_mailbox_create(one->side.worker, text, &attr, &box));
	EXPECT_EQ(-EINVAL, tow_mailbox_connect(one->box, one->side.peer, "", 0, &line));
	EXPECT_EQ(-EINVAL, tow_mailbox_connect(one->box, NULL, text, 0, &line));
	EXPECT_EQ(0, tow_mailbox_accept(one->box, &line));
	ASSERT_EQ(0, open_line(one, text, &line));
	EXPECT_EQ(-EINVAL, tow_mailbox_send(line, data, 0));
	EXPECT_EQ(-EINVAL, tow_mailbox_send(line, NULL, 1));
	EXPECT_EQ(-EINVAL, tow_mailbox_send(line, data, TOW_MESSAGE_MAX + 1));
	EXPECT_EQ(-EINVAL, tow_mailbox_receive(line, NULL, 1, &bytes));
	EXPECT_EQ(-EINVAL, tow_mailbox_receive(line, data, 1, NULL));
	EXPECT_EQ(0, tow_mailbox_receive(line, data, 1, &bytes));
	EXPECT_EQ(-EINVAL, tow_mailbox_wait(box, line, TOW_MAILBOX_CAME, 0));
	EXPECT_EQ(-EINVAL, tow_mailbox_wait(one->box, NULL, TOW_MAILBOX_ROOM, 0));
	EXPECT_EQ(-EINVAL, tow_mailbox_wait(one->box, line, 0, 0));
	EXPECT_EQ(-ETIMEDOUT, tow_mailbox_wait(one->box, line, TOW_MAILBOX_CAME, 1000));
	EXPECT_EQ(-EBUSY, tow_mailbox_destroy(one->box));
	EXPECT_EQ(0, tow_mailbox_info(line, &info));
	EXPECT_EQ(0, strcmp(info.name, text));
	EXPECT_EQ(TOW_MESSAGE_MAX, info.room);
	/* A message for which there is no room stays. */
	ASSERT_EQ(TOW_MAILBOX_CAME, tow_mailbox_wait(box, NULL, TOW_MAILBOX_CAME, LATE_US));
	ASSERT_EQ(1, tow_mailbox_accept(box, &accepted));
	EXPECT_EQ(0, tow_mailbox_info(accepted, &info));
	EXPECT_EQ(0, strcmp(info.name, NAME));
	EXPECT_EQ(0, tow_mailbox_send(accepted, "12345", 5));
	ASSERT_EQ(TOW_MAILBOX_CAME, tow_mailbox_wait(one->box, line, TOW_MAILBOX_CAME, LATE_US));
	EXPECT_EQ(0, tow_mailbox_info(line, &info));
	EXPECT_EQ(5, info.waiting);
	EXPECT_EQ(-EMSGSIZE, tow_mailbox_receive(line, data, 4, &bytes));
	EXPECT_EQ(5, bytes);
	EXPECT_EQ(1, tow_mailbox_receive(line, data, 5, &bytes));
	EXPECT_EQ(0, memcmp(data, "12345", 5));
	EXPECT_EQ(0, tow_mailbox_close(NULL));
	EXPECT_EQ(0, tow_mailbox_close(line));
	EXPECT_EQ(0, tow_mailbox_close(accepted));
	EXPECT_EQ(0, tow_mailbox_destroy(NULL));
	EXPECT_EQ(0, tow_mailbox_destroy(box));
	EXPECT_EQ(0, end_end_of(one));
}

/* In one thread: the other end is never driven until all was sent. */
TEST_F(mailbox, to_one_that_sleeps)
{
	struct tow_line *line = NULL, *accepted = NULL;
	struct end *one = &self->one, other;

	ASSERT_EQ(0, make_end(one, NAME, NULL));
	ASSERT_EQ(0, make_end(&other, NULL, NULL));
	ASSERT_EQ(0, open_line(&other, NAME, &line));
	for (uint64_t i = 0; i < 10; i++)
		EXPECT_EQ(0, send_number(line, i, 100));
	ASSERT_EQ(0, tow_mailbox_close(line));
	ASSERT_EQ(0, accept_line(one, &accepted));
	for (uint64_t i = 0; i < 10; i++)
		EXPECT_EQ(1, wait_for_number(one, accepted, i, 100));
	EXPECT_EQ(-ESTALE, wait_for_end(one, accepted));
	EXPECT_EQ(0, tow_mailbox_close(accepted));
	EXPECT_EQ(0, end_end_of(&other));
	EXPECT_EQ(0, end_end_of(one));
}

TEST_F(mailbox, every_length)
{
	struct tow_line *line = NULL, *accepted = NULL;
	struct end *one = &self->one;

	ASSERT_EQ(0, make_end(one, NAME, NULL));
	ASSERT_EQ(0, open_line(one, NAME, &line));
	ASSERT_EQ(0, accept_line(one, &accepted));
	for (uint32_t bytes = 8; bytes <= TOW_MESSAGE_MAX; bytes++) {
		ASSERT_EQ(0, send_in_time(one, line, bytes, bytes));
		ASSERT_EQ(1, wait_for_number(one, accepted, bytes, bytes));
	}
	EXPECT_EQ(0, tow_mailbox_close(line));
	EXPECT_EQ(0, tow_mailbox_close(accepted));
	EXPECT_EQ(0, end_end_of(one));
}

TEST_F(mailbox, room)
{
	const struct tow_mailbox_attr attr = { .size = sizeof(attr), .bytes = TOW_LINE_BYTES_MIN };
	struct tow_line_info info = { .size = sizeof(info) };
	struct tow_line *line = NULL, *accepted = NULL;
	struct end *one = &self->one, other;
	uint64_t sent = 0;

	ASSERT_EQ(0, make_end(one, NAME, &attr));
	ASSERT_EQ(0, make_end(&other, NULL, NULL));
	ASSERT_EQ(0, open_line(&other, NAME, &line));
	ASSERT_EQ(0, accept_line(one, &accepted));
	while (!send_number(line, sent, 32))
		sent++;
	EXPECT_EQ(TOW_LINE_BYTES_MIN / 64, sent);
	EXPECT_EQ(-EAGAIN, send_number(line, sent, 8));
	EXPECT_EQ(0, tow_mailbox_info(line, &info));
	EXPECT_EQ(0, info.room);
	/* It has come, and was not received: nothing changes. */
	EXPECT_EQ(TOW_MAILBOX_CAME, tow_mailbox_wait(one->box, accepted, TOW_MAILBOX_CAME, LATE_US));
	EXPECT_EQ(-ETIMEDOUT, tow_mailbox_wait(other.box, line, TOW_MAILBOX_ROOM, 200000));
	/* The other way is another matter. */
	for (uint64_t i = 0; i < 20; i++) {
		ASSERT_EQ(0, send_number(accepted, i, 50));
		ASSERT_EQ(1, wait_for_number(&other, line, i, 50));
	}
	EXPECT_EQ(-EAGAIN, send_number(line, sent, 8));
	for (uint64_t i = 0; i < sent; i++)
		ASSERT_EQ(1, wait_for_number(one, accepted, i, 32));
	EXPECT_EQ(TOW_MAILBOX_ROOM, tow_mailbox_wait(other.box, line, TOW_MAILBOX_ROOM, LATE_US));
	EXPECT_EQ(0, send_number(line, sent, TOW_MESSAGE_MAX));
	EXPECT_EQ(1, wait_for_number(one, accepted, sent, TOW_MESSAGE_MAX));
	EXPECT_EQ(0, tow_mailbox_close(line));
	EXPECT_EQ(0, tow_mailbox_close(accepted));
	EXPECT_EQ(0, end_end_of(&other));
	EXPECT_EQ(0, end_end_of(one));
}

/* Both send so many, and receive so many, at once. */
static int converse(struct end *end, struct tow_line *line)
{
	uint64_t sent = 0, came = 0, number;
	uint32_t what, bytes;
	int ret;

	while (sent < MESSAGES || came < MESSAGES) {
		while (sent < MESSAGES && !(ret = send_number(line, sent, length_of(sent))))
			sent++;
		if (sent < MESSAGES && ret != -EAGAIN)
			return ret;
		/* When all has come the other end may have gone. */
		while (came < MESSAGES && (ret = receive_any(line, &number, &bytes)) == 1) {
			if (number != came || bytes != length_of(came))
				return -EBADMSG;
			came++;
		}
		if (came < MESSAGES && ret)
			return ret;
		what = sent < MESSAGES ? TOW_MAILBOX_ROOM : 0;
		what |= came < MESSAGES ? TOW_MAILBOX_CAME : 0;
		ret = what ? tow_mailbox_wait(end->box, line, what, LATE_US) : 0;
		if (ret < 0)
			return ret;
	}
	return 0;
}

static int be_talker(void *arg)
{
	struct tow_line *line = NULL;
	struct end other;
	int ret;

	(void)arg;
	ret = make_end(&other, NULL, NULL);
	ret = ret ?: open_line(&other, NAME, &line);
	ret = ret ?: converse(&other, line);
	ret = ret ?: tow_mailbox_close(line);
	return ret ?: end_end_of(&other);
}

TEST_F_TIMEOUT(mailbox, order, 180)
{
	const struct tow_mailbox_attr attr = { .size = sizeof(attr), .bytes = TOW_LINE_BYTES_MIN };
	struct tow_line *accepted = NULL;
	struct end *one = &self->one;
	pid_t child = begin_child(be_talker, NULL);

	ASSERT_EQ(0, make_end(one, NAME, &attr));
	ASSERT_EQ(0, accept_line(one, &accepted));
	EXPECT_EQ(0, converse(one, accepted));
	EXPECT_EQ(-ESTALE, wait_for_end(one, accepted));
	EXPECT_TRUE(ended_well(child));
	EXPECT_EQ(0, tow_mailbox_close(accepted));
	EXPECT_EQ(0, end_end_of(one));
}

/* ---- many ---- */

struct crowd {
	int opened;			/* a byte for each that is open */
	int ends;			/* is closed when they may end */
	uint64_t number;
};

static int be_one_of_many(void *arg)
{
	struct crowd *crowd = arg;
	struct tow_line *line = NULL;
	struct end other;
	char byte = 0;
	int ret;

	ret = make_end(&other, NULL, NULL);
	ret = ret ?: open_line_in(&other, NAME, CROWD_MS, &line);
	ret = ret ?: send_number(line, crowd->number, 40);
	if (!ret && write(crowd->opened, &byte, 1) != 1)
		ret = -EIO;
	/* It is sent back. */
	if (!ret && wait_for_number(&other, line, crowd->number, 60) != 1)
		ret = -EBADMSG;
	if (!ret && read(crowd->ends, &byte, 1))
		ret = -EIO;
	ret = ret ?: tow_mailbox_close(line);
	return ret ?: end_end_of(&other);
}

/* They have said so, all of them. */
static uint32_t read_bytes(int from, uint32_t count)
{
	struct tow_patience patience = tow_patience(30);
	struct pollfd look = { from, POLLIN, 0 };
	char byte;

	for (uint32_t came = 0;; came++) {
		while (came < count && poll(&look, 1, 100) == 0 && tow_patient(&patience))
			;
		if (came == count || !(look.revents & POLLIN) || read(from, &byte, 1) != 1)
			return came;
	}
}

TEST_F_TIMEOUT(mailbox, a_crowd, 240)
{
	static struct tow_line *lines[CROWD];
	static bool seen[CROWD];
	struct crowd crowd = { .number = 0 };
	struct end *one = &self->one;
	int opened[2], ends[2];
	pid_t children[CROWD];
	struct pollfd look;
	uint64_t number;
	uint32_t bytes;

	ASSERT_EQ(0, pipe(opened));
	ASSERT_EQ(0, pipe(ends));
	crowd.opened = opened[1];
	crowd.ends = ends[0];
	for (uint32_t i = 0; i < CROWD; i++) {
		crowd.number = i;
		children[i] = fork();
		if (!children[i]) {
			int ret;

			close(ends[1]);
			ret = be_one_of_many(&crowd);
			if (ret)
				fprintf(stderr, "# number %u: %d\n", i, ret);
			_exit(ret ? 1 : 0);
		}
	}
	close(ends[0]);
	ASSERT_EQ(0, make_end(one, NAME, NULL));
	/* Nobody drives this end. */
	EXPECT_EQ(BACKLOG, read_bytes(opened[0], BACKLOG));
	look = (struct pollfd){ opened[0], POLLIN, 0 };
	EXPECT_EQ(0, poll(&look, 1, 500));
	for (uint32_t i = 0; i < CROWD; i++) {
		ASSERT_EQ(0, accept_line(one, &lines[i]));
		ASSERT_EQ(TOW_MAILBOX_CAME, tow_mailbox_wait(one->box, lines[i], TOW_MAILBOX_CAME,
							     LATE_US));
		ASSERT_EQ(1, receive_any(lines[i], &number, &bytes));
		ASSERT_GT(CROWD, number);
		EXPECT_FALSE(seen[number]);
		seen[number] = true;
		EXPECT_EQ(0, send_number(lines[i], number, 60));
	}
	close(ends[1]);
	for (uint32_t i = 0; i < CROWD; i++)
		EXPECT_EQ(-ESTALE, wait_for_end(one, lines[i]));
	for (uint32_t i = 0; i < CROWD; i++) {
		EXPECT_EQ(0, tow_mailbox_close(lines[i]));
		EXPECT_TRUE(ended_well(children[i]));
	}
	close(opened[0]);
	close(opened[1]);
	EXPECT_EQ(0, end_end_of(one));
}

struct sender {
	struct tow_line *line;
	struct tow_mailbox *box;
	uint64_t which;
	int ret;
};

static void *send_many(void *arg)
{
	struct sender *sender = arg;

	for (uint64_t i = 0; i < OF_EACH && !sender->ret;) {
		sender->ret = send_number(sender->line, i * THREADS + sender->which, length_of(i));
		if (sender->ret == -EAGAIN) {
			sender->ret = tow_mailbox_wait(sender->box, sender->line, TOW_MAILBOX_ROOM,
						       LATE_US);
			sender->ret = sender->ret < 0 ? sender->ret : 0;
			continue;
		}
		i++;
	}
	return NULL;
}

TEST_F_TIMEOUT(mailbox, threads, 120)
{
	struct tow_line *line = NULL, *accepted = NULL;
	struct sender senders[THREADS] = { 0 };
	struct end *one = &self->one, other;
	uint64_t next[THREADS] = { 0 }, number;
	pthread_t threads[THREADS];
	uint32_t bytes;

	ASSERT_EQ(0, make_end(one, NAME, NULL));
	ASSERT_EQ(0, make_end(&other, NULL, NULL));
	ASSERT_EQ(0, open_line(&other, NAME, &line));
	ASSERT_EQ(0, accept_line(one, &accepted));
	for (uint64_t i = 0; i < THREADS; i++) {
		senders[i] = (struct sender){ line, other.box, i, 0 };
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, send_many, &senders[i]));
	}
	for (uint32_t came = 0; came < THREADS * OF_EACH; came++) {
		ASSERT_EQ(TOW_MAILBOX_CAME, tow_mailbox_wait(one->box, accepted, TOW_MAILBOX_CAME,
							     LATE_US));
		ASSERT_EQ(1, receive_any(accepted, &number, &bytes));
		/* Each thread's in its order. */
		ASSERT_EQ(next[number % THREADS], number / THREADS);
		ASSERT_EQ(length_of(number / THREADS), bytes);
		next[number % THREADS]++;
	}
	for (uint32_t i = 0; i < THREADS; i++) {
		ASSERT_EQ(0, pthread_join(threads[i], NULL));
		EXPECT_EQ(0, senders[i].ret);
	}
	EXPECT_EQ(0, tow_mailbox_close(line));
	EXPECT_EQ(0, tow_mailbox_close(accepted));
	EXPECT_EQ(0, end_end_of(&other));
	EXPECT_EQ(0, end_end_of(one));
}

/* ---- news ---- */

struct told {
	struct tow_mailbox *box;
	struct tow_line *line;
	uint64_t next;
	uint32_t what;
	int wrong;
};

/* It does all that may be done there. */
static void take_news(void *arg, struct tow_line *line, uint32_t what)
{
	struct told *told = arg;
	uint64_t number;
	uint32_t bytes;

	if (!line)
		told->wrong += tow_mailbox_accept(told->box, &told->line) != 1;
	else
		told->wrong += line != told->line;
	told->what |= line ? what : 0;
	while (told->line && receive_any(told->line, &number, &bytes) == 1)
		told->wrong += number != told->next++;
}

TEST_F_TIMEOUT(mailbox, news, 60)
{
	struct end *one = &self->one, other;
	struct told told = { 0 };
	struct tow_line *line = NULL;
	struct tow_patience patience;

	ASSERT_EQ(0, make_end(one, NAME, NULL));
	ASSERT_EQ(0, make_end(&other, NULL, NULL));
	told.box = one->box;
	ASSERT_EQ(0, tow_mailbox_watch(one->box, take_news, &told));
	ASSERT_EQ(0, open_line(&other, NAME, &line));
	for (uint64_t i = 0; i < 100; i++) {
		ASSERT_EQ(0, send_number(line, i, 8));
		patience = tow_patience(30);
		while (told.next <= i && tow_patient(&patience)) {
			ASSERT_LE(0, tow_worker_progress(one->side.worker, SOON_US));
			ASSERT_LE(0, tow_worker_progress(other.side.worker, 0));
		}
		ASSERT_EQ(i + 1, told.next);
	}
	EXPECT_EQ(0, tow_mailbox_close(line));
	patience = tow_patience(30);
	while (!(told.what & TOW_MAILBOX_ENDED) && tow_patient(&patience))
		ASSERT_LE(0, tow_worker_progress(one->side.worker, SOON_US));
	EXPECT_EQ(TOW_MAILBOX_CAME | TOW_MAILBOX_ENDED, told.what);
	EXPECT_EQ(0, told.wrong);
	EXPECT_EQ(0, tow_mailbox_close(told.line));
	EXPECT_EQ(0, end_end_of(&other));
	EXPECT_EQ(0, end_end_of(one));
}

/* ---- ends ---- */

static void be_sender(bool sends, int says)
{
	struct tow_line *line = NULL;
	struct end other;
	char byte = 0;

	(void)sends;
	if (make_end(&other, NULL, NULL) || open_line(&other, NAME, &line))
		return;
	for (uint64_t i = 0; i < 10; i++)
		if (send_number(line, i, 100))
			return;
	/* All of it is there. */
	if (wait_for_number(&other, line, 77, 8) != 1 || write(says, &byte, 1) != 1)
		return;
	for (;;)
		tow_worker_progress(other.side.worker, LATE_US);
}

TEST_F_TIMEOUT(mailbox, the_other_dies, 60)
{
	struct tow_line *accepted = NULL;
	struct end *one = &self->one;
	pid_t child;
	int says;

	child = begin_end(be_sender, true, &says);
	ASSERT_LT(0, child);
	ASSERT_EQ(0, make_end(one, NAME, NULL));
	ASSERT_EQ(0, accept_line(one, &accepted));
	EXPECT_EQ(0, send_number(accepted, 77, 8));
	/* Nobody looks here before it is dead. */
	ASSERT_TRUE(end_end(child, says));
	for (uint64_t i = 0; i < 10; i++)
		EXPECT_EQ(1, wait_for_number(one, accepted, i, 100));
	EXPECT_EQ(-ESTALE, wait_for_end(one, accepted));
	EXPECT_EQ(-ESTALE, send_number(accepted, 78, 8));
	EXPECT_EQ(0, tow_mailbox_close(accepted));
	EXPECT_EQ(0, end_end_of(one));
}

/* They connect over and over, and send one message each time. */
static int be_restless(void *arg)
{
	struct tow_line *line;
	struct end other;
	int ret;

	(void)arg;
	ret = make_end(&other, NULL, NULL);
	while (!ret) {
		ret = open_line(&other, NAME, &line);
		ret = ret ?: send_number(line, 5, 16);
		ret = ret ?: tow_mailbox_close(line);
	}
	return ret;
}

/* Killed at any moment: what was sent is right, and others connect as if nothing had been. */
TEST_F_TIMEOUT(mailbox, killed_as_they_connect, 240)
{
	struct tow_line *line = NULL, *accepted = NULL;
	struct end *one = &self->one, other;
	uint64_t number;
	uint32_t bytes;
	int found = 0;

	ASSERT_EQ(0, make_end(one, NAME, NULL));
	for (uint32_t i = 0; i < KILLED; i++) {
		pid_t child = begin_child(be_restless, NULL);

		ASSERT_LT(0, child);
		/* Awake, and asleep. */
		if (i % 2)
			usleep(20000 + i * 3701 % 60000);
		else
			for (uint32_t j = 0; j < 5 + i % 7; j++)
				ASSERT_LE(0, tow_worker_progress(one->side.worker, 10000));
		kill(child, SIGKILL);
		ASSERT_EQ(child, waitpid(child, NULL, 0));
		while (tow_mailbox_wait(one->box, NULL, TOW_MAILBOX_CAME, 50000) == TOW_MAILBOX_CAME) {
			ASSERT_EQ(1, tow_mailbox_accept(one->box, &accepted));
			EXPECT_EQ(-ESTALE, wait_for_end(one, accepted));
			while (receive_any(accepted, &number, &bytes) == 1) {
				EXPECT_EQ(5, number);
				EXPECT_EQ(16, bytes);
				found++;
			}
			EXPECT_EQ(0, tow_mailbox_close(accepted));
		}
	}
	EXPECT_LT(0, found);
	ASSERT_EQ(0, make_end(&other, NULL, NULL));
	ASSERT_EQ(0, open_line(&other, NAME, &line));
	EXPECT_EQ(0, send_number(line, 1, 8));
	ASSERT_EQ(0, accept_line(one, &accepted));
	EXPECT_EQ(1, wait_for_number(one, accepted, 1, 8));
	EXPECT_EQ(0, tow_mailbox_close(line));
	EXPECT_EQ(0, tow_mailbox_close(accepted));
	EXPECT_EQ(0, end_end_of(&other));
	EXPECT_EQ(0, end_end_of(one));
}

TEST_F_TIMEOUT(mailbox, nobody_and_then_somebody, 60)
{
	struct tow_line *line = NULL, *accepted = NULL;
	struct end *one = &self->one, other;

	ASSERT_EQ(0, make_end(&other, NULL, NULL));
	ASSERT_EQ(0, tow_mailbox_connect(other.box, other.side.peer, NAME, 100, &line));
	EXPECT_EQ(-ENOTCONN, send_number(line, 1, 8));
	EXPECT_EQ(-ETIMEDOUT, wait_for_end(&other, line));
	EXPECT_EQ(0, tow_mailbox_close(line));
	/* Closed while it looks. */
	ASSERT_EQ(0, tow_mailbox_connect(other.box, other.side.peer, NAME, TOW_WAIT_FOREVER, &line));
	EXPECT_EQ(-EINPROGRESS, status_of(line));
	EXPECT_EQ(0, tow_mailbox_close(line));
	ASSERT_EQ(0, tow_mailbox_connect(other.box, other.side.peer, NAME, LATE_MS, &line));
	EXPECT_EQ(-ETIMEDOUT, tow_mailbox_wait(other.box, line, TOW_MAILBOX_ROOM, 100000));
	ASSERT_EQ(0, make_end(one, NAME, NULL));
	EXPECT_EQ(TOW_MAILBOX_ROOM, tow_mailbox_wait(other.box, line, TOW_MAILBOX_ROOM, LATE_US));
	ASSERT_EQ(0, accept_line(one, &accepted));
	EXPECT_EQ(0, tow_mailbox_close(accepted));
	EXPECT_EQ(-ESTALE, wait_for_end(&other, line));
	EXPECT_EQ(0, tow_mailbox_close(line));
	/* It is not accepted, and its mailbox ends. */
	ASSERT_EQ(0, open_line(&other, NAME, &line));
	EXPECT_EQ(0, tow_mailbox_destroy(one->box));
	EXPECT_EQ(-ESTALE, wait_for_end(&other, line));
	EXPECT_EQ(0, tow_mailbox_close(line));
	EXPECT_EQ(0, end_side(&one->side));
	EXPECT_EQ(0, end_end_of(&other));
}

TEST_F_TIMEOUT(mailbox, the_connection_ends, 60)
{
	struct tow_line *line = NULL, *accepted = NULL;
	struct end *one = &self->one;
	struct tow_peer *peer = NULL;
	int status;

	ASSERT_EQ(0, make_end(one, NAME, NULL));
	ASSERT_EQ(0, open_line(one, NAME, &line));
	ASSERT_EQ(0, accept_line(one, &accepted));
	EXPECT_EQ(0, send_number(line, 1, 8));
	EXPECT_EQ(TOW_MAILBOX_CAME, tow_mailbox_wait(one->box, accepted, TOW_MAILBOX_CAME, LATE_US));
	EXPECT_EQ(0, tow_peer_find(one->side.dev, tow_own_address(), &peer));
	EXPECT_EQ(0, tow_peer_disconnect(peer));
	status = wait_for_end(one, line);
	EXPECT_TRUE(status == -ECONNRESET || status == -ESTALE) TH_LOG("%d", status);
	EXPECT_EQ(1, wait_for_number(one, accepted, 1, 8));
	status = wait_for_end(one, accepted);
	EXPECT_TRUE(status == -ECONNRESET || status == -ESTALE) TH_LOG("%d", status);
	tow_mailbox_close(line);
	tow_mailbox_close(accepted);
	EXPECT_EQ(0, end_end_of(one));
}

static void no_handler(int signal)
{
	(void)signal;
}

static int ends_calls(void *arg)
{
	(void)arg;
	return 1;
}

/* A signal ends a wait if the program wants it to; and is nothing else that anybody notices. */
TEST_F_TIMEOUT(mailbox, signals, 120)
{
	const struct itimerval often = { { 0, 2000 }, { 0, 2000 } }, never = { 0 };
	const struct sigaction action = { .sa_handler = no_handler };
	struct tow_line *line = NULL, *accepted = NULL;
	struct end *one = &self->one;
	int interrupted;

	ASSERT_EQ(0, sigaction(SIGALRM, &action, NULL));
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &often, NULL));
	ASSERT_EQ(0, make_end(one, NAME, NULL));
	ASSERT_EQ(0, open_line(one, NAME, &line));
	ASSERT_EQ(0, accept_line(one, &accepted));
	for (uint64_t i = 0; i < 2000; i++) {
		ASSERT_EQ(0, send_in_time(one, line, i, length_of(i)));
		ASSERT_EQ(1, wait_for_number(one, accepted, i, length_of(i)));
	}
	EXPECT_EQ(-ETIMEDOUT, tow_mailbox_wait(one->box, line, TOW_MAILBOX_CAME, 50000));
	EXPECT_EQ(0, tow_on_signal(ends_calls, NULL));
	interrupted = tow_mailbox_wait(one->box, line, TOW_MAILBOX_CAME, LATE_US);
	EXPECT_EQ(0, tow_on_signal(NULL, NULL));
	EXPECT_EQ(-EINTR, interrupted);
	EXPECT_EQ(0, tow_mailbox_close(line));
	EXPECT_EQ(0, tow_mailbox_close(accepted));
	EXPECT_EQ(0, end_end_of(one));
	EXPECT_EQ(0, setitimer(ITIMER_REAL, &never, NULL));
}

/* The parent's go on, whatever a child does. */
TEST_F_TIMEOUT(mailbox, in_a_child, 60)
{
	struct tow_line *line = NULL, *accepted = NULL;
	struct end *one = &self->one;
	int status = -1;
	pid_t child;

	ASSERT_EQ(0, make_end(one, NAME, NULL));
	ASSERT_EQ(0, open_line(one, NAME, &line));
	ASSERT_EQ(0, accept_line(one, &accepted));
	child = fork();
	if (!child)
		_exit(send_number(line, 1, 8) != -EPERM || tow_mailbox_close(line) != -EPERM ||
		      tow_mailbox_close(accepted) != -EPERM ||
		      tow_mailbox_destroy(one->box) != -EPERM);
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(0, send_number(line, 2, 8));
	EXPECT_EQ(1, wait_for_number(one, accepted, 2, 8));
	EXPECT_EQ(0, tow_mailbox_close(line));
	EXPECT_EQ(0, tow_mailbox_close(accepted));
	EXPECT_EQ(0, end_end_of(one));
}

TEST_F_TIMEOUT(mailbox, the_device_goes, 60)
{
	struct tow_line *line = NULL, *accepted = NULL, *looking = NULL;
	struct end *one = &self->one;

	ASSERT_EQ(0, make_end(one, NAME, NULL));
	ASSERT_EQ(0, open_line(one, NAME, &line));
	ASSERT_EQ(0, accept_line(one, &accepted));
	ASSERT_EQ(0, tow_mailbox_connect(one->box, one->side.peer, "nobody", LATE_MS, &looking));
	EXPECT_EQ(0, send_number(line, 1, 8));
	EXPECT_EQ(TOW_MAILBOX_CAME, tow_mailbox_wait(one->box, accepted, TOW_MAILBOX_CAME, LATE_US));
	ASSERT_TRUE(tow_link_del(self->name));
	EXPECT_NE(-ETIMEDOUT, wait_for_end(one, line));
	EXPECT_NE(-ETIMEDOUT, wait_for_end(one, looking));
	/* What had come is there still. */
	EXPECT_EQ(1, wait_for_number(one, accepted, 1, 8));
	EXPECT_GT(0, wait_for_end(one, accepted));
	EXPECT_GT(0, send_number(accepted, 2, 8));
	tow_mailbox_close(looking);
	tow_mailbox_close(line);
	tow_mailbox_close(accepted);
	tow_mailbox_destroy(one->box);
	end_side(&one->side);
}

TEST_HARNESS_MAIN

// SPDX-License-Identifier: GPL-2.0
/*
 * Edges of several processes, on a node that is played here: which lines they are on, and what
 * becomes of them when an end is closed or a process dies.
 */
/* build: also tsan */
#include <stdio.h>
#include <string.h>

#include <kselftest.h>

#include "../tensor/rendezvous.h"
#include "tow_node.h"

#define LATE_US		20000000U
#define LATE_MS		20000U
#define MIB		((size_t)1 << 20)
#define MANY		40U
#define CROWD		150U
/* Of a rendezvous of four requests: the first to be given. */
#define LAST_TAG	3U
#define BYTES		100U

/* One process. */
struct side {
	struct tow_arena *arena;
	struct tow_worker *worker;
	struct tow_peer *peer;
	int index;
};

static int sides;

static const struct tow_tensor_type type = { { TOW_DTYPE_UINT, 8, 1 }, 1, { BYTES } };

static void begin_side(struct side *side)
{
	const struct tow_arena_attr arena_attr = { .size = sizeof(arena_attr),
						   .region_bytes = 2 * MIB };
	struct tow_device *dev = &node_device[sides];

	side->index = sides++;
	if (tow_arena_create(dev, &arena_attr, &side->arena) ||
	    tow_worker_create(dev, side->arena, NULL, &side->worker) ||
	    tow_peer_connect(dev, "192.0.2.1", NULL, 0, &side->peer))
		ksft_exit_fail_msg("no process\n");
}

static uint32_t count_objects(int process)
{
	uint32_t count = 0;

	pthread_mutex_lock(&node.lock);
	for (uint32_t i = 1; i <= node.used; i++)
		count += node.objects[i].kind && node.objects[i].process == process;
	pthread_mutex_unlock(&node.lock);
	return count;
}

/* Nothing stays of it. */
static bool end_side(struct side *side)
{
	struct tow_arena_stats stats = { .size = sizeof(stats) };
	bool good = !tow_arena_stats(side->arena, &stats) && !stats.in_use_bytes;

	good = !tow_worker_destroy(side->worker) && good;
	tow_peer_release(side->peer);
	good = !tow_arena_destroy(side->arena) && good;
	good = !count_objects(side->index) && !node_waits(side->index) && good;
	node_forget(side->index);
	sides--;
	return good;
}

static void drive(const struct side *one, const struct side *other)
{
	tow_worker_progress(one->worker, 100);
	tow_worker_progress(other->worker, 100);
}

static struct tow_edge *make_receiver(const struct side *side, const char *name)
{
	struct tow_edge *edge;

	if (tow_static_receiver(side->worker, side->peer, name, &type, 2, &edge))
		ksft_exit_fail_msg("no receiver\n");
	return edge;
}

static struct tow_edge *connect_sender(const struct side *side, const char *name)
{
	struct tow_edge *edge;

	if (tow_static_sender(side->worker, side->peer, name, &type, &edge) ||
	    tow_edge_connect(edge, LATE_MS))
		ksft_exit_fail_msg("no sender\n");
	return edge;
}

static void connect_pair(const struct side *from, const struct side *to, const char *name,
			 struct tow_edge **out, struct tow_edge **in)
{
	*in = make_receiver(to, name);
	*out = connect_sender(from, name);
	if (tow_edge_connect(*in, LATE_MS))
		ksft_exit_fail_msg("not connected\n");
}

/* Lines that are no spares. */
static uint32_t count_lines(const struct side *side, bool begun)
{
	struct tow_line *line;
	uint32_t count = 0;

	TAILQ_FOREACH(line, &side->worker->box->waiting, in_box)
		count += line->begun == begun && !line->error;
	return count;
}

/* A step goes from one to the other. */
static bool passes(const struct side *from, const struct side *to, struct tow_edge *out,
		   struct tow_edge *in)
{
	static const char tensor[BYTES] = { 1 };
	bool came = false;
	void *data;

	if (tow_edge_send(out, tensor, NULL, NULL))
		return false;
	for (int i = 0; i < 5000 && (!came || tow_edge_pending(out)); i++) {
		drive(from, to);
		if (!came && tow_edge_test(in, &data, NULL) == 1)
			came = !tow_edge_consumed(in);
	}
	return came && !tow_edge_pending(out);
}

/* The clock's turn, with what comes of it. */
static void take_turn(const struct side *one, const struct side *other)
{
	one->worker->pump.ticked_us = 0;
	other->worker->pump.ticked_us = 0;
	for (int i = 0; i < 50; i++)
		drive(one, other);
}

/* What ends an edge, once both processes had time to find out. */
static int error_of(const struct side *one, const struct side *other, const struct tow_edge *edge)
{
	for (int i = 0; i < 200 && !edge->error; i++)
		take_turn(one, other);
	return edge->error;
}

static void test_one_line(void)
{
	struct tow_edge *out[3], *in[3];
	struct side one, other;
	bool good;

	begin_side(&one);
	begin_side(&other);
	connect_pair(&one, &other, "first", &out[0], &in[0]);
	connect_pair(&one, &other, "second", &out[1], &in[1]);
	good = count_lines(&one, true) == 1 && count_lines(&other, false) == 1 &&
	       !count_lines(&one, false);
	connect_pair(&other, &one, "back", &out[2], &in[2]);
	ksft_test_result(good && count_lines(&other, true) == 1 && count_lines(&one, false) == 1,
			 "all edges from one process to another are on one line\n");
	tow_edge_close(out[0]);
	good = error_of(&one, &other, in[0]) == -ESTALE;
	ksft_test_result(good && passes(&one, &other, out[1], in[1]) &&
			 passes(&other, &one, out[2], in[2]),
			 "one that is closed ends for the other end, too, and nothing else does\n");
	tow_edge_close(in[0]);
	tow_edge_close(in[1]);
	good = error_of(&one, &other, out[1]) == -ESTALE && count_lines(&one, true) == 1;
	tow_edge_close(out[1]);
	good = good && !count_lines(&one, true) && passes(&other, &one, out[2], in[2]);
	ksft_test_result(good && !count_lines(&other, false),
			 "a line ends with the last edge of whoever has begun it\n");
	tow_edge_close(out[2]);
	tow_edge_close(in[2]);
	ksft_test_result(end_side(&other) && end_side(&one), "nothing stays\n");
}

/* One that the receiver has not looked at; what had come is there first. */
static void test_closed_early(void)
{
	static const char tensor[BYTES] = { 7 };
	struct tow_edge *out, *in;
	struct side one, other;
	void *data;
	bool good;

	begin_side(&one);
	begin_side(&other);
	in = make_receiver(&other, "early");
	out = connect_sender(&one, "early");
	good = !tow_edge_send(out, tensor, NULL, NULL) && !tow_edge_close(out) &&
	       tow_edge_test(in, &data, NULL) == 1 && !memcmp(data, tensor, BYTES);
	good = good && error_of(&one, &other, in) == -ESTALE &&
	       tow_edge_test(in, &data, NULL) == 1 && tow_edge_connect(in, LATE_MS) == -ESTALE;
	ksft_test_result(good, "a sender that has gone before anybody looked has\n");
	tow_edge_close(in);
	ksft_test_result(end_side(&other) && end_side(&one), "nothing stays\n");
}

static void test_killed(void)
{
	static struct tow_edge *out[MANY], *in[MANY], *back[2];
	static struct side one, other;
	const uint32_t turns = 6;
	uint64_t before;
	char name[32];
	bool good = true;

	begin_side(&one);
	begin_side(&other);
	for (uint32_t i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "many/%u", i);
		connect_pair(&one, &other, name, &out[i], &in[i]);
	}
	connect_pair(&other, &one, "back", &back[0], &back[1]);
	take_turn(&one, &other);
	before = node.entries;
	for (uint32_t i = 0; i < turns; i++)
		take_turn(&one, &other);
	/* Each end of two lines, in every other turn; those of the clock's own are some more. */
	good = node.entries - before >= turns && node.entries - before <= 4ULL * MANY;
	if (!good)
		ksft_print_msg("%d entries\n", (int)(node.entries - before));
	ksft_test_result(good, "a process is asked whether it is there, not its edges\n");
	node_kill(other.index);
	good = true;
	for (uint32_t i = 0; i < MANY; i++)
		good = error_of(&one, &one, out[i]) == -ESTALE && good;
	ksft_test_result(good && error_of(&one, &one, back[1]) == -ESTALE,
			 "with it all of its edges end\n");
	for (uint32_t i = 0; i < MANY; i++)
		tow_edge_close(out[i]);
	tow_edge_close(back[1]);
	/* Of the one that was killed nothing is freed here. */
	good = !one.worker->edges && !one.worker->box && !node_waits(one.index);
	good = !tow_worker_destroy(one.worker) && good;
	tow_peer_release(one.peer);
	ksft_test_result(!tow_arena_destroy(one.arena) && !count_objects(one.index) && good,
			 "and the mailbox with the last one\n");
}

/* Nobody has looked for a sender that was killed. */
static void test_killed_early(void)
{
	static struct tow_edge *out[2];
	static struct side one;
	struct tow_edge *in[2];
	struct side other;
	uint32_t before;
	bool good;
	int ret;

	begin_side(&one);
	begin_side(&other);
	in[0] = make_receiver(&other, "static");
	if (tow_dynamic_receiver(other.worker, other.peer, "dynamic", 2, &in[1]))
		ksft_exit_fail_msg("no receiver\n");
	before = count_objects(other.index);
	out[0] = connect_sender(&one, "static");
	good = !tow_dynamic_sender(one.worker, one.peer, "dynamic", &out[1]) &&
	       !tow_edge_connect(out[1], LATE_MS);
	node_kill(one.index);
	for (int i = 0; i < 50; i++)
		take_turn(&other, &other);
	ksft_test_result(good && TAILQ_EMPTY(&other.worker->box->waiting) &&
			 count_objects(other.index) == before,
			 "a line that has ended is given back though no edge is closed\n");
	for (int i = 0; i < 2; i++) {
		ret = tow_edge_connect(in[i], 50);
		if (ret != -ESTALE)
			ksft_print_msg("edge %d: %d\n", i, ret);
		good = ret == -ESTALE && good;
	}
	ksft_test_result(good, "a sender that was killed before anybody looked was\n");
	tow_edge_close(in[0]);
	tow_edge_close(in[1]);
	/* Of the one that was killed nothing is freed here. */
	ksft_test_result(end_side(&other), "nothing stays\n");
}

/* A process of which the header tells, and that is not there any more. */
static void test_gone(void)
{
	struct tow_edge *out, *in;
	struct side one, other;
	struct towi_header *header;
	bool good;

	begin_side(&one);
	begin_side(&other);
	in = make_receiver(&other, "gone");
	header = (struct towi_header *)(void *)(in->letters + TOWI_HEADER_AT);
	header->box++;
	good = !tow_static_sender(one.worker, one.peer, "gone", &type, &out) &&
	       tow_edge_connect(out, LATE_MS) == -ESTALE;
	ksft_test_result(good && tow_edge_connect(out, LATE_MS) == -ESTALE &&
			 !tow_edge_close(out),
			 "whoever looks for a process that has gone is told at once\n");
	/* Nobody has greeted it. */
	for (int i = 0; i < 200; i++)
		drive(&one, &other);
	header->box--;
	out = connect_sender(&one, "gone");
	ksft_test_result(!in->error && !tow_edge_connect(in, LATE_MS) &&
			 passes(&one, &other, out, in), "and another one finds the receiver\n");
	tow_edge_close(out);
	tow_edge_close(in);
	ksft_test_result(end_side(&other) && end_side(&one), "nothing stays\n");
}

/* What was asked for has come before whoever had it goes, and nobody has looked. */
struct got {
	struct tow_arena *arena;
	uint32_t count;
	int status;
};

static void note_got(void *arg, const struct tow_rendezvous_tensor *tensor)
{
	struct got *got = arg;

	got->count++;
	if (tensor->status)
		got->status = tensor->status;
	tow_arena_free(got->arena, tensor->data);
}

static bool drive_until(const struct side *one, const struct side *other, const uint32_t *count,
			uint32_t wanted)
{
	for (int i = 0; i < 5000 && *count < wanted; i++)
		drive(one, other);
	return *count == wanted;
}

/* Two that meet, and what is told to the receiver's. */
static bool begin_rendezvous(struct side *one, struct side *other, struct got *got,
			     struct tow_edge **out, struct tow_edge **in)
{
	begin_side(one);
	begin_side(other);
	got->arena = other->arena;
	return !tow_rendezvous_receiver(other->worker, other->peer, "keys", 4, in) &&
	       !tow_rendezvous_sender(one->worker, one->peer, "keys", 4, out) &&
	       !tow_edge_connect(*out, LATE_MS) && !tow_edge_connect(*in, LATE_MS);
}

static void test_rendezvous(void)
{
	static const char tensor[BYTES] = { 5 };
	struct tow_edge *out, *in;
	struct side one, other;
	struct got got = { 0 };
	bool good;

	good = begin_rendezvous(&one, &other, &got, &out, &in);
	for (uint64_t step = 1; good && step <= 2; step++)
		good = !tow_rendezvous_get(in, "key", step, note_got, &got) &&
		       !tow_rendezvous_put(out, "key", step, &type, tensor, 0, NULL, NULL) &&
		       drive_until(&one, &other, &got.count, (uint32_t)step);
	good = good && !tow_rendezvous_get(in, "key", 3, note_got, &got);
	for (int i = 0; i < 200; i++)
		drive(&one, &other);
	good = good && !tow_rendezvous_put(out, "key", 3, &type, tensor, 0, NULL, NULL);
	for (int i = 0; i < 5000 && tow_edge_pending(out); i++)
		tow_worker_progress(one.worker, 100);
	good = good && !tow_edge_pending(out) && !tow_edge_close(out);
	ksft_test_result(good && drive_until(&one, &other, &got.count, 3) && !got.status,
			 "what has come before the other end has gone is there\n");
	good = !tow_rendezvous_get(in, "key", 4, note_got, &got) ?
		       drive_until(&one, &other, &got.count, 4) && got.status == -ESTALE :
		       in->error == -ESTALE;
	ksft_test_result(good, "and nothing else\n");
	tow_edge_close(in);
	ksft_test_result(end_side(&other) && end_side(&one), "nothing stays\n");
}

static void note_done(void *arg, uint64_t step, int status)
{
	struct got *got = arg;

	(void)step;
	got->count++;
	if (status)
		got->status = status;
}

static int say_reply(const struct side *side, struct tow_edge *edge, uint64_t number)
{
	const struct towi_reply reply = { .number = number, .tag = LAST_TAG,
					  .flags = TOWI_REPLY_TYPE, .type = type };
	int ret;

	towi_pump_lock(&side->worker->pump);
	ret = towi_edge_tell(edge, TOWI_TAG_REPLY, &reply, sizeof(reply));
	towi_pump_unlock(&side->worker->pump);
	return ret;
}

/* A reply waits for the number that it says; a second one to the same request makes no sense. */
static void test_replies(void)
{
	struct tow_edge *out, *in;
	struct side one, other;
	struct got got = { 0 };
	bool good;

	good = begin_rendezvous(&one, &other, &got, &out, &in) &&
	       !tow_rendezvous_get(in, "key", 1, note_got, &got);
	for (int i = 0; i < 200; i++)
		drive(&one, &other);
	good = good && !say_reply(&one, out, TOWI_HELLO + 1);
	for (int i = 0; i < 200; i++)
		drive(&one, &other);
	good = good && !got.count && !in->error && !say_reply(&one, out, TOWI_HELLO + 1);
	ksft_test_result(good && drive_until(&one, &other, &got.count, 1) &&
			 got.status == -EPROTO && in->error == -EPROTO,
			 "a reply waits for its tensor, and is the only one\n");
	tow_edge_close(out);
	tow_edge_close(in);
	ksft_test_result(end_side(&other) && end_side(&one), "nothing stays\n");
}

/* A sender that says that it has no room for a request, and for one that cancels it. */
static void test_no_requests(void)
{
	struct tow_edge *out = NULL, *in = NULL;
	struct side one, other;
	bool good;

	begin_side(&one);
	begin_side(&other);
	good = !tow_rendezvous_receiver(other.worker, other.peer, "keys", 4, &in) &&
	       !tow_rendezvous_sender(one.worker, one.peer, "keys", 4, &out);
	if (good)
		out->mine.slots = 1;
	good = good && !tow_edge_connect(out, LATE_MS);
	ksft_test_result(good && tow_edge_connect(in, LATE_MS) == -EPROTO,
			 "a sender has room for a request\n");
	tow_edge_close(out);
	tow_edge_close(in);
	ksft_test_result(end_side(&other) && end_side(&one), "nothing stays\n");
}

/* More letters than the line has room for, while nobody looks at the other end. */
static void test_crowd(void)
{
	static struct tow_edge *out[CROWD], *in[CROWD];
	struct got done = { 0 };
	struct side one, other;
	uint32_t came = 0;
	char name[32], *tensor;
	bool good = true;
	void *data;

	begin_side(&one);
	begin_side(&other);
	tensor = tow_arena_zeroed(one.arena, CROWD, BYTES);
	for (uint32_t i = 0; i < CROWD; i++) {
		snprintf(name, sizeof(name), "crowd/%u", i);
		good = good && !tow_dynamic_receiver(other.worker, other.peer, name, 2, &in[i]);
	}
	for (uint32_t i = 0; i < CROWD; i++) {
		snprintf(name, sizeof(name), "crowd/%u", i);
		good = good && !tow_dynamic_sender(one.worker, one.peer, name, &out[i]) &&
		       !tow_edge_connect(out[i], LATE_MS);
		tensor[(size_t)i * BYTES] = (char)i;
		for (int step = 0; step < 3; step++)
			good = good && !tow_dynamic_send(out[i], &type, tensor + (size_t)i * BYTES,
							 note_done, &done);
	}
	ksft_test_result(good && !done.count && count_lines(&one, true) == 1,
			 "senders connect, and send, whether there is room or not\n");
	for (uint32_t i = 0; good && i < CROWD; i++)
		good = !tow_edge_connect(in[i], LATE_MS);
	for (int tries = 0; good && tries < 20000 && (came < 3 * CROWD || done.count < 3 * CROWD);
	     tries++) {
		for (uint32_t i = 0; i < CROWD; i++)
			while (tow_edge_test(in[i], &data, NULL) == 1) {
				good = good && ((char *)data)[0] == (char)i &&
				       !tow_edge_consumed(in[i]);
				came++;
			}
		drive(&one, &other);
	}
	if (came != 3 * CROWD || done.count != 3 * CROWD)
		ksft_print_msg("%u came, %u were sent, status %d\n", came, done.count, done.status);
	ksft_test_result(good && came == 3 * CROWD && done.count == 3 * CROWD && !done.status,
			 "and all of it comes\n");
	for (uint32_t i = 0; i < CROWD; i++) {
		tow_edge_close(out[i]);
		tow_edge_close(in[i]);
	}
	tow_arena_free(one.arena, tensor);
	ksft_test_result(end_side(&other) && end_side(&one), "nothing stays\n");
}

/* The line has room for nothing more: messages for nobody. */
static void fill_line(const struct side *side)
{
	const struct towi_record record = { .kind = TOWI_MESSAGE, .port = UINT32_MAX };

	towi_pump_lock(&side->worker->pump);
	while (!towi_line_send(TAILQ_FIRST(&side->worker->box->waiting), &record, "", 1))
		;
	towi_pump_unlock(&side->worker->pump);
}

static void *close_edge(void *arg)
{
	tow_edge_close(arg);
	return NULL;
}

/* A receiver that is closed has read what was sent, and found no room to say so. */
static void test_owed(bool last)
{
	struct tow_edge *out = NULL, *in = NULL, *beside = NULL;
	struct got done = { 0 };
	struct side one, other;
	pthread_t thread;
	char *tensor;
	bool good;
	void *data;

	begin_side(&one);
	begin_side(&other);
	tensor = tow_arena_zeroed(one.arena, 1, BYTES);
	if (!last)
		beside = make_receiver(&other, "beside");
	good = !tow_dynamic_receiver(other.worker, other.peer, "owed", 2, &in) &&
	       !tow_dynamic_sender(one.worker, one.peer, "owed", &out) &&
	       !tow_edge_connect(out, LATE_MS) && !tow_edge_connect(in, LATE_MS);
	for (int i = 0; good && i < 5000 && in->port.line->state != TOWI_OPEN; i++)
		drive(&one, &other);
	good = good && !tow_dynamic_send(out, &type, tensor, note_done, &done);
	fill_line(&other);
	good = good && !tow_edge_wait(in, LATE_US, &data, NULL) && !tow_edge_consumed(in) &&
	       in->port.starved;
	if (pthread_create(&thread, NULL, close_edge, in))
		ksft_exit_fail_msg("no thread\n");
	/* Nobody looks at the other end before it is being closed. */
	usleep(100000);
	for (int i = 0; i < 20000 && !done.count; i++)
		drive(&one, &other);
	pthread_join(thread, NULL);
	ksft_test_result(good && done.count == 1 && !done.status,
			 "a receiver that is closed says what it has read%s\n",
			 last ? ", also the last one" : "");
	tow_edge_close(beside);
	tow_edge_close(out);
	tow_arena_free(one.arena, tensor);
	good = end_side(&other);
	ksft_test_result(end_side(&one) && good, "nothing stays\n");
}

/* A letter, or an answer, that makes no sense ends the edge that it is to. */
static void test_nonsense(void)
{
	static const uint64_t nonsense[15] = { 2 };
	struct tow_edge *out[2] = { NULL }, *in[2] = { NULL };
	struct side one, other;
	char name[32], *tensor;
	struct got done = { 0 };
	bool good = true;
	void *data;

	begin_side(&one);
	begin_side(&other);
	tensor = tow_arena_zeroed(one.arena, 1, BYTES);
	for (int i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), "nonsense/%d", i);
		good = good && !tow_dynamic_receiver(other.worker, other.peer, name, 2, &in[i]) &&
		       !tow_dynamic_sender(one.worker, one.peer, name, &out[i]) &&
		       !tow_edge_connect(out[i], LATE_MS) && !tow_edge_connect(in[i], LATE_MS);
	}
	towi_pump_lock(&one.worker->pump);
	good = good && !towi_edge_tell(out[0], TOWI_TAG_STEP, nonsense, sizeof(nonsense));
	towi_pump_unlock(&one.worker->pump);
	good = good && error_of(&one, &other, in[0]) == -EPROTO && !in[1]->error;
	/* Until it can be told anything. */
	for (int i = 0; good && i < 5000 && in[1]->port.line->state != TOWI_OPEN; i++)
		drive(&one, &other);
	towi_pump_lock(&other.worker->pump);
	good = good && !towi_edge_tell(in[1], TOWI_TAG_ANSWER, nonsense, 2 * sizeof(uint64_t));
	towi_pump_unlock(&other.worker->pump);
	ksft_test_result(good && error_of(&one, &other, out[1]) == -EPROTO && !out[0]->error,
			 "a message that makes no sense ends its edge alone\n");
	/* Of the one that has failed nobody is told before it is closed. */
	good = !tow_dynamic_send(out[0], &type, tensor, note_done, &done);
	for (int i = 0; i < 200; i++)
		drive(&one, &other);
	good = good && tow_edge_test(in[0], &data, NULL) == -EPROTO && !done.count &&
	       !tow_edge_close(in[0]) && error_of(&one, &other, out[0]) == -ESTALE;
	for (int i = 0; i < 200 && !done.count; i++)
		drive(&one, &other);
	ksft_test_result(good && done.count == 1 && done.status == -ESTALE,
			 "and of what was sent to it somebody is told when it is closed\n");
	tow_edge_close(in[1]);
	tow_edge_close(out[0]);
	tow_edge_close(out[1]);
	tow_arena_free(one.arena, tensor);
	ksft_test_result(end_side(&other) && end_side(&one), "nothing stays\n");
}

/* Both have read that the receiver has no sender; its process looks at nothing meanwhile. */
static void test_two_senders(void)
{
	struct tow_edge *out[2] = { NULL }, *in = NULL;
	struct got done = { 0 };
	struct side three[3];
	char *tensor;
	bool good;
	void *data;

	for (int i = 0; i < 3; i++)
		begin_side(&three[i]);
	tensor = tow_arena_zeroed(three[0].arena, 1, BYTES);
	good = !tow_dynamic_receiver(three[2].worker, three[2].peer, "two", 2, &in);
	node_stop(true);
	for (int i = 0; i < 2; i++)
		good = good && !tow_dynamic_sender(three[i].worker, three[i].peer, "two", &out[i]) &&
		       tow_edge_connect(out[i], 50) == (i ? -EBUSY : -ETIMEDOUT);
	node_stop(false);
	good = good && !tow_edge_connect(out[0], LATE_MS) &&
	       tow_edge_connect(out[1], LATE_MS) == -EBUSY && !tow_edge_close(out[1]) &&
	       !tow_edge_connect(in, LATE_MS);
	ksft_test_result(good && !tow_dynamic_send(out[0], &type, tensor, note_done, &done) &&
			 drive_until(&three[0], &three[2], &done.count, 1) && !done.status &&
			 tow_edge_test(in, &data, NULL) == 1 && !tow_edge_consumed(in),
			 "of two senders that come at once one is refused\n");
	tow_edge_close(out[0]);
	tow_edge_close(in);
	tow_arena_free(three[0].arena, tensor);
	good = true;
	for (int i = 2; i >= 0; i--)
		good = end_side(&three[i]) && good;
	ksft_test_result(good, "nothing stays\n");
}

/* Whoever guesses a port's number says that its other end has gone, or something else. */
static int say_as_stranger(const struct side *side, const struct tow_edge *to, enum towi_tag tag)
{
	const struct towi_record record = { .kind = TOWI_MESSAGE, .tag = (uint8_t)tag,
					    .port = to->port.number,
					    .generation = to->port.generation };
	int ret;

	towi_pump_lock(&side->worker->pump);
	ret = towi_line_send(TAILQ_FIRST(&side->worker->box->waiting), &record, "", 1);
	towi_pump_unlock(&side->worker->pump);
	return ret;
}

static void test_stranger(void)
{
	struct tow_edge *first[2], *second[2];
	struct side one, other, third;
	bool good;

	begin_side(&one);
	begin_side(&other);
	begin_side(&third);
	connect_pair(&third, &other, "first", &first[0], &first[1]);
	second[1] = make_receiver(&other, "second");
	good = !say_as_stranger(&third, second[1], TOWI_PORT_BYE);
	for (int i = 0; i < 50; i++)
		drive(&third, &other);
	second[0] = connect_sender(&one, "second");
	good = !tow_edge_connect(second[1], LATE_MS) && good;
	good = !say_as_stranger(&third, second[1], TOWI_PORT_BYE) &&
	       !say_as_stranger(&third, second[1], TOWI_TAG_STEP) && good;
	for (int i = 0; i < 50; i++)
		drive(&third, &other);
	ksft_test_result(good && passes(&one, &other, second[0], second[1]),
			 "what another one says than the other end is of no account\n");
	for (int i = 0; i < 2; i++) {
		tow_edge_close(first[i]);
		tow_edge_close(second[i]);
	}
	good = end_side(&third);
	good = end_side(&other) && good;
	ksft_test_result(end_side(&one) && good, "nothing stays\n");
}

/* Of another kind than the sender's: that is found out at once, whichever two they are. */
static void test_kinds(void)
{
	struct tow_edge *in[3], *out;
	const char *names[] = { "static", "dynamic", "keys" };
	struct side one, other;
	bool good;
	int ret;

	begin_side(&one);
	begin_side(&other);
	in[0] = make_receiver(&other, "static");
	good = !tow_dynamic_receiver(other.worker, other.peer, "dynamic", 2, &in[1]) &&
	       !tow_rendezvous_receiver(other.worker, other.peer, "keys", 4, &in[2]);
	for (int i = 0; good && i < 9; i++) {
		if (i % 3 == i / 3)
			continue;
		if (i / 3 == 0)
			ret = tow_static_sender(one.worker, one.peer, names[i % 3], &type, &out);
		else if (i / 3 == 1)
			ret = tow_dynamic_sender(one.worker, one.peer, names[i % 3], &out);
		else
			ret = tow_rendezvous_sender(one.worker, one.peer, names[i % 3], 4, &out);
		good = !ret && tow_edge_connect(out, LATE_MS) == -EPROTO && !tow_edge_close(out);
	}
	for (int i = 0; i < 3; i++)
		tow_edge_close(in[i]);
	ksft_test_result(end_side(&other) && end_side(&one) && good,
			 "ends of two kinds do not meet\n");
}

/* A line ends, and there is room. */
static void *end_line(void *arg)
{
	const struct side *side = arg;
	struct towi_pump *pump = &side->worker->pump;

	usleep(100000);
	towi_pump_lock(pump);
	towi_line_fail(TAILQ_FIRST(&side->worker->box->waiting), -ETIMEDOUT);
	pump->in_flight_max = UINT32_MAX;
	towi_pump_wake(pump);
	towi_pump_unlock(pump);
	return NULL;
}

/* The line ends while there is no room for the header that would say which it is. */
static void test_line_lost(void)
{
	struct tow_edge *first[2], *out, *in;
	struct side one, other;
	pthread_t thread;
	bool good;

	begin_side(&one);
	begin_side(&other);
	connect_pair(&one, &other, "first", &first[0], &first[1]);
	in = make_receiver(&other, "lost");
	good = !tow_static_sender(one.worker, one.peer, "lost", &type, &out);
	/* It reads the receiver's. */
	node_stop(true);
	good = good && tow_edge_connect(out, 50) == -ETIMEDOUT;
	node_stop(false);
	while (out->once.busy)
		drive(&one, &other);
	one.worker->pump.in_flight_max = one.worker->pump.in_flight;
	if (pthread_create(&thread, NULL, end_line, &one))
		ksft_exit_fail_msg("no thread\n");
	good = !tow_edge_connect(out, LATE_MS) && out->port.line && good;
	pthread_join(thread, NULL);
	ksft_test_result(good && !tow_edge_connect(in, LATE_MS) && passes(&one, &other, out, in),
			 "a line that ends before the other end knows of it is another one\n");
	tow_edge_close(first[0]);
	tow_edge_close(first[1]);
	tow_edge_close(out);
	tow_edge_close(in);
	ksft_test_result(end_side(&other) && end_side(&one), "nothing stays\n");
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(4 + 2 + 3 + 3 + 3 + 3 + 3 + 1 + 2 + 2 + 2 + 2 + 2 + 3 + 4);
	node_begin();
	test_one_line();
	test_rendezvous();
	test_no_requests();
	test_crowd();
	test_owed(false);
	test_owed(true);
	test_nonsense();
	test_two_senders();
	test_stranger();
	test_kinds();
	test_replies();
	test_closed_early();
	test_line_lost();
	test_gone();
	test_killed_early();
	test_killed();
	ksft_finished();
}

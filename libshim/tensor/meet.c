// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/* How the two ends of an edge find each other, and what they say of themselves. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/internal.h"
#include "edge.h"

#define MAGIC		0x65676465776f74ULL	/* "towedge" */
#define VERSION		8U
/* How long a receiver's slot is looked for, which is there before its range is. */
#define SLOT_US		1000000U

const char *towi_edge_name(struct tow_edge *edge, const char *end)
{
	snprintf(edge->name + edge->name_length, sizeof(edge->name) - edge->name_length, "%s",
		 end);
	return edge->name;
}

int towi_edge_compare(const struct tow_edge *edge, const struct towi_header *header)
{
	if (header->magic != MAGIC || header->version != VERSION ||
	    header->kind != edge->kind->number)
		return -EPROTO;
	return edge->kind->compare ? edge->kind->compare(edge, header) : 0;
}

/* The receiver's letters are not in its range. */
static bool are_apart(const struct tow_edge *edge, uint64_t stride)
{
	return stride && tow_remote_bytes(edge->range) == TOWI_LETTERS_AT;
}

/* Is there room in the range for the letters that it is said to hold? */
static bool holds(const struct tow_edge *edge, const struct towi_header *header)
{
	uint64_t bytes = tow_remote_bytes(edge->range);

	if (!header->slots || bytes < TOWI_LETTERS_AT)
		return false;
	return are_apart(edge, header->stride) ||
	       header->stride <= (bytes - TOWI_LETTERS_AT) / header->slots;
}

struct towi_header towi_edge_header(const struct tow_edge *edge)
{
	return (struct towi_header){
		.magic = MAGIC, .version = VERSION, .kind = edge->kind->number,
		.slots = edge->mine.slots, .stride = edge->mine.stride, .bytes = edge->bytes,
		.type = edge->type, .before = edge->before,
		.consumed = edge->kept ? edge->kept->consumed : 0,
		.box = edge->port.box->number, .port = edge->port.number,
		.generation = edge->port.generation,
		.line = edge->port.line ? edge->port.line->index : 0,
	};
}

/* Read the receiver's header, or write this one's, and tell. */
static int begin_meeting(struct tow_edge *edge, enum towi_meeting meeting)
{
	uint32_t lane, lanes = meeting == TOWI_READING ? 1 : towi_edge_width(edge);
	struct tow_region *region;
	struct tow_sqe *sqe;
	uint64_t offset;
	int ret;

	ret = towi_edge_place(edge, edge->own + TOWI_SCRATCH_AT, &region, &offset);
	if (ret)
		return ret;
	/* Not only when it is its turn, as this thread would notice too late. */
	if (towi_pump_free(edge->runner.pump) < lanes && !towi_pump_room(&edge->runner, lanes))
		return -EBUSY;
	sqe = towi_pump_entry(&edge->runner);
	if (meeting == TOWI_READING)
		tow_prep_read(sqe, edge->channel, region, offset, edge->range, TOWI_HEADER_AT,
			      TOWI_HELLO_AT + sizeof(struct towi_header));
	else
		tow_prep_write_notify(sqe, edge->channel, region, offset + TOWI_HELLO_AT, edge->range,
				      TOWI_HELLO_AT, sizeof(struct towi_header), edge->other);
	towi_pump_begun(sqe, &edge->once);
	for (lane = 1; lane < lanes; lane++) {
		sqe = towi_pump_entry(&edge->runner);
		tow_prep_notify(sqe, towi_edge_lane(edge, lane), edge->other);
		edge->once.more++;
		towi_pump_begun(sqe, &edge->once);
	}
	edge->meeting = meeting;
	return 0;
}

static void note_port(struct tow_edge *edge, const struct towi_header *header)
{
	edge->their_box = header->box;
	edge->their_line = header->line;
	edge->port.other_generation = header->generation;
	edge->port.other = header->port;
}

/*
 * What the receiver says of itself: 0; -EPROTO: that cannot be; -EBUSY: it had a sender, and
 * counts on from that one's steps.
 */
static int take_header(struct tow_edge *edge)
{
	char *scratch = edge->own + TOWI_SCRATCH_AT;
	struct towi_header header, hello;
	int fits;

	memcpy(&header, scratch + TOWI_HEADER_AT, sizeof(header));
	memcpy(&hello, scratch + TOWI_HELLO_AT, sizeof(hello));
	fits = towi_edge_compare(edge, &header);
	if (fits == -EPROTO)
		return fits;
	if (hello.magic)
		return -EBUSY;
	if (!holds(edge, &header))
		return -EPROTO;
	edge->theirs = (struct towi_letters){ header.slots, header.stride };
	edge->fits = fits;
	if (!fits && edge->kind->resume && header.before)
		edge->kind->resume(edge, &header);
	note_port(edge, &header);
	return 0;
}

/* This end's header, which is to be written; who does not fit needs no line. */
static int write_header(struct tow_edge *edge, uint64_t until)
{
	int ret = edge->fits ? 0 : towi_edge_meet_line(edge, until);
	struct towi_header header = towi_edge_header(edge);

	memcpy(edge->own + TOWI_SCRATCH_AT + TOWI_HELLO_AT, &header, sizeof(header));
	return ret;
}

/* Begin one of them, and wait for it; after a time-out it goes on where it was. */
static int meet(struct tow_edge *edge, enum towi_meeting meeting, uint64_t until)
{
	struct towi_pump *pump = edge->runner.pump;
	int ret = 0, waited = 0;

	while (edge->meeting < meeting && !waited) {
		/* Each time: it may have ended while there was no room. */
		ret = meeting == TOWI_GREETING ? write_header(edge, until) : 0;
		if (!ret)
			ret = begin_meeting(edge, meeting);
		if (ret != -EBUSY)
			break;
		/* Until there is room. */
		waited = edge->error ? edge->error : towi_pump_sleep(pump, until);
		ret = waited;
	}
	if (!ret)
		ret = towi_pump_sleep_for(pump, &edge->once, until);
	return ret ? ret : edge->once_status;
}

static uint32_t ms_until(uint64_t until)
{
	uint64_t now = towi_until(0), left = until > now ? (until - now) / 1000 : 0;

	return left > UINT32_MAX ? UINT32_MAX : (uint32_t)left;
}

/*
 * In one go: a slot that was found as the time ran out is this end's for a moment, and
 * who asks again would be told that somebody has it.
 */
static int find(struct tow_edge *edge, const char *end, uint32_t rights, uint64_t until,
		struct tow_remote **remote)
{
	uint64_t before = towi_now_ns();
	int ret;

	if (*remote)
		return 0;
	ret = tow_resolve(edge->peer, towi_edge_name(edge, end), rights, ms_until(until), remote);
	if (!ret && !edge->found_ns)
		edge->found_ns = before;
	return ret == -ENOENT ? -ETIMEDOUT : ret;
}

/* Called with the lock, which is let go of meanwhile.  What has a header was there before that. */
static int find_tensors(struct tow_edge *edge)
{
	struct tow_remote *found = NULL;
	int ret;

	towi_pump_unlock(edge->runner.pump);
	ret = find(edge, TOWI_APART, TOW_RIGHT_WRITE, 0, &found);
	towi_pump_lock(edge->runner.pump);
	edge->tensors_there = found;
	if (!ret && edge->theirs.stride > tow_remote_bytes(found) / edge->theirs.slots)
		ret = -EPROTO;
	return ret == -ETIMEDOUT ? -ESTALE : ret;
}

/* What the receiver is, and then, whatever it is, what this is. */
static int exchange_headers(struct tow_edge *edge, uint64_t until)
{
	int ret = 0;

	/* Once: where it was read this end's own is written, for the greeting. */
	if (!edge->theirs.slots) {
		ret = meet(edge, TOWI_READING, until);
		if (!ret)
			ret = take_header(edge);
		/* It is being closed. */
		if (!ret && !edge->other)
			ret = -ESTALE;
	}
	if (!ret && !edge->fits && !edge->tensors_there && are_apart(edge, edge->theirs.stride))
		ret = find_tensors(edge);
	if (!ret)
		ret = meet(edge, TOWI_GREETING, until);
	if (!ret)
		ret = edge->fits;
	/* The line may have ended meanwhile. */
	return ret ? ret : edge->error;
}

/* 0: there is none; 1, or how it does not fit. */
static int read_greeting(const struct tow_edge *edge, struct towi_header *header)
{
	int ret;

	if (tow_slot_value(edge->slot) < TOWI_HELLO)
		return 0;
	memcpy(header, edge->letters + TOWI_HELLO_AT, sizeof(*header));
	ret = towi_edge_compare(edge, header);
	return ret ? ret : 1;
}

int towi_edge_greets(const struct tow_edge *edge)
{
	struct towi_header header;

	return edge->greeted ? 1 : read_greeting(edge, &header);
}

/* As that, and it is noted. */
static int take_greeting(struct tow_edge *edge)
{
	struct towi_header header;
	int ret;

	if (edge->greeted)
		return 1;
	ret = read_greeting(edge, &header);
	if (ret < 0)
		towi_edge_fail(edge, ret);
	if (ret <= 0)
		return ret;
	edge->theirs = (struct towi_letters){ header.slots, header.stride };
	note_port(edge, &header);
	edge->greeted = true;
	return ret;
}

/* The receiver: until the sender has said what it is, and on which line. */
static int wait_for_greeting(struct tow_edge *edge, uint64_t until)
{
	struct tow_worker *worker = edge->worker;
	int ret, waited = 0;

	towi_pump_lock(&worker->pump);
	while (!(ret = take_greeting(edge)) && !waited) {
		waited = edge->error;
		if (!waited)
			waited = towi_edge_wait_for(edge, TOWI_HELLO);
		if (!waited)
			waited = towi_pump_sleep(&worker->pump, until);
	}
	if (ret > 0)
		waited = towi_edge_meet_line(edge, until);
	towi_pump_unlock(&worker->pump);
	return ret < 0 ? ret : waited;
}

static int find_slot(struct tow_edge *edge, uint64_t until)
{
	int ret;

	if (!edge->kind->other)
		return 0;
	ret = find(edge, edge->kind->other, TOW_RIGHT_NOTIFY_BY(towi_edge_width(edge)), until,
		   &edge->other);
	/* There are fewer queue pairs by now, or the module knows of no width. */
	if (ret == -EINVAL && edge->lanes > 1) {
		edge->lanes = 1;
		ret = find(edge, edge->kind->other, TOW_RIGHT_NOTIFY, until, &edge->other);
	}
	/* Or the receiver knows of none: it has made all before it could be found. */
	if (!ret && edge->kind->large && edge->lanes > 1 &&
	    find(edge, edge->kind->large, TOW_RIGHT_NOTIFY_BY(edge->lanes), 0, &edge->large_other))
		edge->lanes = 1;
	return ret;
}

static int find_receiver(struct tow_edge *edge, uint64_t until)
{
	uint64_t soon = towi_until(SLOT_US);
	int ret = find(edge, "", TOW_RIGHT_READ | TOW_RIGHT_WRITE, until, &edge->range);

	if (ret)
		return ret;
	ret = find_slot(edge, soon < until ? soon : until);
	/* Perhaps it is an edge of another kind, as its header says. */
	return ret == -ETIMEDOUT ? 0 : ret;
}

static int find_sender(struct tow_edge *edge, uint64_t until)
{
	/* What is there before may be of a sender that is about to go. */
	int ret = wait_for_greeting(edge, until);

	/* Who found this end's memory gone does not say so: it has no word here yet. */
	if (ret == -ETIMEDOUT && edge->kind->lost && edge->kind->lost(edge))
		return -EFAULT;
	return ret ? ret : find_slot(edge, until);
}

/* With the lock, when what is there was found. */
static int meet_other(struct tow_edge *edge, uint64_t until)
{
	if (edge->error || edge->connected)
		return edge->error;
	return edge->sends ? exchange_headers(edge, until) : 0;
}

/* Called with the lock. */
static int end_meeting(struct tow_edge *edge, int ret)
{
	/* Another time it would be no better. */
	if (ret && ret != -ETIMEDOUT && ret != -EINTR && ret != -EOVERFLOW)
		towi_edge_fail(edge, ret);
	if (!ret) {
		edge->connected = true;
		towi_pump_ready(&edge->runner);
	}
	return ret;
}

TOW_PUBLIC int tow_edge_connect(struct tow_edge *edge, uint32_t timeout_ms)
{
	struct tow_worker *worker;
	uint64_t until;
	bool settled;
	int ret;

	if (!edge)
		return -EINVAL;
	worker = edge->worker;
	if (!towi_pump_usable(&worker->pump))
		return -EPERM;
	until = towi_until((uint64_t)timeout_ms * 1000);
	towi_pump_lock(&worker->pump);
	settled = edge->connected || edge->error;
	/* Whoever is connected can be waited for. */
	ret = edge->connecting ? -EALREADY : 0;
	if (!ret && !settled && edge->kind->slot)
		ret = towi_pump_reserve(&edge->wait);
	if (!ret)
		edge->connecting = true;
	towi_pump_unlock(&worker->pump);
	if (ret)
		return ret;
	/* Waits in the kernel, and keeps nobody out meanwhile. */
	if (settled)
		ret = 0;
	else
		ret = edge->sends ? find_receiver(edge, until) : find_sender(edge, until);
	towi_pump_lock(&worker->pump);
	ret = end_meeting(edge, ret ? ret : meet_other(edge, until));
	edge->connecting = false;
	towi_pump_unlock(&worker->pump);
	return ret;
}

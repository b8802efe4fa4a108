/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Collectives that are made once, of ranks which are threads here: one is made, called, and ended.
 * After <kselftest.h>, in one source file.
 */
#ifndef TOW_MADE_TEST_H
#define TOW_MADE_TEST_H

#include "tow_calls.h"

#define TIMES		3U
/* How many messages there are in pieces of that. */
#define PIECE		4096U
#define SMALL_PIECE	256U

/* ---- one of them ------------------------------------------------------------- */

/* As nth(); what only calls can do is an AllReduce. */
static inline struct how nth_made(uint32_t n, uint32_t count)
{
	struct how how = nth(n, count);

	if (how.kind == REDUCE)
		how.kind = TOW_ALLREDUCE;
	how.piece_bytes = n % 2 ? PIECE : 0;
	return how;
}

/* Its arrays are there: the line at which it cannot be made, or 0. */
static inline int create(struct rank *me, struct call *call)
{
	const struct how *how = &call->how;
	struct tow_collective_attr attr = { .size = sizeof(attr), .kind = how->kind };

	if (how->kind != TOW_BARRIER) {
		attr.algorithm = how->algorithm;
		attr.dtype = f32;
		attr.count = how->count;
		attr.piece_bytes = how->piece_bytes;
		attr.out = call->out;
		/* What is in the other array need not be named. */
		if (how->apart || scatters(call) || how->outside)
			attr.in = call->in;
	}
	if (how->kind == TOW_BROADCAST)
		attr.root = how->root;
	me->ret = tow_collective_create(me->comm, &attr, &call->made, &me->blamed);
	return me->ret ? __LINE__ : 0;
}

static inline void end_made(const struct rank *me, struct call *call)
{
	tow_collective_destroy(call->made);
	end_call(me, call);
}

/* Once more, with other numbers. */
static inline int begin(struct rank *me, struct call *call, uint32_t salt)
{
	call->how.salt = salt;
	give_in(me, call);
	me->ret = tow_collective_start(call->made);
	return me->ret ? __LINE__ : 0;
}

static inline int await(struct rank *me, struct call *call)
{
	me->ret = tow_collective_wait(call->made, &me->blamed);
	return me->ret || !is_right(me, call) ? __LINE__ : 0;
}

static inline int repeat(struct rank *me, struct call *call, uint32_t salt, uint32_t times)
{
	int wrong = 0;

	for (uint32_t i = 0; !wrong && i < times; i++) {
		linger(me);
		/* Others have begun it, maybe; and have written nothing there. */
		wrong = i && !is_right(me, call) ? __LINE__ : begin(me, call, salt + i);
		if (!wrong)
			wrong = await(me, call);
	}
	return wrong;
}

static inline int make_one(struct rank *me, struct how how)
{
	struct call call = { .how = how };
	int wrong;

	prepare(me, &call);
	wrong = create(me, &call);
	if (!wrong)
		wrong = repeat(me, &call, how.salt, TIMES);
	end_made(me, &call);
	if (wrong)
		ksft_print_msg("kind %u, algorithm %u, %u elements in pieces of %u%s%s\n", how.kind,
			       how.algorithm, (uint32_t)how.count, (uint32_t)how.piece_bytes,
			       how.outside ? ", outside" : "", how.apart ? ", apart" : "");
	return wrong;
}

/* Communicators that sleep at once, that have little room, and that have threads. */
static inline void choose_attr(uint32_t n)
{
	comm_attr.timeout_ms = ENDS_MS;
	comm_attr.spin_us = n & 1;
	comm_attr.entries = n & 2 ? 16 : 0;
	comm_attr.flags = n % 3 == 2 ? TOW_COMM_THREAD : 0;
}

#endif /* TOW_MADE_TEST_H */

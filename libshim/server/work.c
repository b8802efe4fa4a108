// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * A worker's side: gradients that it pushes, values that it waits for.
 */
#include <errno.h>

#include "inside.h"

/* How long a server's word may take when an edge says that it is gone. */
#define WORD_US		1000000U
/* What a worker waits longer than its servers do. */
#define LONGER_US	1000000U
/* Between two looks at what servers have said. */
#define LOOK_US		100000U
#define ROOM_US		1000U

static struct towi_way *way_of(const struct tow_ps *ps, uint32_t variable)
{
	return ps && !towi_ps_serves(ps) && variable < ps->count ? &ps->ways[variable] : NULL;
}

static void listen_to_all(struct tow_ps *ps)
{
	uint32_t i;

	for (i = 0; i < ps->partners; i++) {
		struct towi_partner *partner = &ps->others[i];

		towi_ps_listen(ps, partner);
		/* A server leaves when all workers have. */
		if (partner->left)
			towi_ps_fail(ps, -ESTALE, partner->rank);
	}
}

/* An edge with a server has failed; which worker that was for another server may know. */
static void edge_failed(struct tow_ps *ps, struct towi_partner *partner, int error)
{
	uint64_t until = towi_until(WORD_US);

	while (!ps->error && error != -ENODEV && error != -EPERM && towi_left_us(until)) {
		listen_to_all(ps);
		if (!ps->error)
			towi_ps_progress(ps, until);
	}
	towi_ps_edge_failed(ps, partner, error);
}

/* ---- gradients ---------------------------------------------------------------- */

static int give_back(struct tow_ps *ps, struct towi_way *way)
{
	while (!way->consumed && !ps->error) {
		way->consumed = towi_ps_consumed(way);
		if (!way->consumed && towi_ps_progress(ps, towi_until(ROOM_US)) == -EINTR)
			return -EINTR;
	}
	return ps->error;
}

static void pushed(void *arg, uint64_t step, int status)
{
	struct towi_way *way = arg;

	(void)step;
	(void)status;
	way->pushing = false;
	way->pushed_us = towi_until(0);
}

static int push(struct tow_ps *ps, struct towi_way *way, const void *gradient)
{
	int ret;

	/* The value is given back first: its server may send the next one at once. */
	ret = give_back(ps, way);
	if (ret)
		return ret;
	way->pushing = true;
	ret = tow_edge_send(way->out, gradient, pushed, way);
	if (ret)
		way->pushing = false;
	if (ret == -EDQUOT || ret == -ENOSPC || ret == -ENOMEM || ret == -EINVAL)
		return ret;
	if (ret) {
		edge_failed(ps, way->partner, ret);
		return ps->error;
	}
	way->consumed = false;
	way->came = NULL;
	ps->sent_bytes += ps->bytes[way->variable];
	return 0;
}

/*
 * Synchronously nobody begins a step of a variable before he has the last one of all: an update can
 * be taken back once.
 */
static bool may_push(struct tow_ps *ps, const struct towi_way *way)
{
	uint32_t i;

	if (ps->staleness != TOW_PS_SYNCHRONOUS || way->steps <= ps->level)
		return true;
	ps->level = way->steps;
	for (i = 0; i < ps->count; i++)
		if (ps->ways[i].steps < ps->level)
			ps->level = ps->ways[i].steps;
	return way->steps <= ps->level;
}

TOW_PUBLIC int tow_ps_push(struct tow_ps *ps, uint32_t variable, const void *gradient)
{
	struct towi_way *way = way_of(ps, variable);

	if (!way || (!gradient && ps->bytes[variable]))
		return -EINVAL;
	listen_to_all(ps);
	/* What could not go before may go now. */
	if (!ps->error)
		towi_ps_progress(ps, towi_until(0));
	if (ps->error)
		return ps->error;
	return way->came && may_push(ps, way) ? push(ps, way, gradient) : -EBUSY;
}

/* ---- values ------------------------------------------------------------------- */

/* One look, for a while: 0; -EINTR; -ETIMEDOUT: it is not there yet. */
static int look(struct tow_ps *ps, struct towi_way *way, uint64_t until)
{
	uint64_t soon = towi_until(LOOK_US), before = towi_now_ns();
	void *data;
	int ret;

	ret = tow_edge_wait(way->in, towi_left_us(until < soon ? until : soon), &data, NULL);
	ps->waited_ns += towi_now_ns() - before;
	if (ret == -EINTR || ret == -ETIMEDOUT)
		return ret;
	if (ret) {
		edge_failed(ps, way->partner, ret);
		return ps->error;
	}
	way->came = data;
	way->value = data;
	way->steps++;
	ps->received_bytes += ps->bytes[way->variable];
	return 0;
}

/*
 * Until when a value may take.  Servers count from when they have a gradient, and are to be the
 * first that blame anybody.
 */
static uint64_t latest(const struct tow_ps *ps, const struct towi_way *way)
{
	uint64_t timeout = ps->timeout_ms * 1000ULL, from = ps->waiting_us;

	if (way->pushing)
		from += timeout;
	else if (way->pushed_us > from)
		from = way->pushed_us;
	return from + timeout + LONGER_US;
}

static int wait_for(struct tow_ps *ps, struct towi_way *way)
{
	int ret;

	while (!way->came && !ps->error) {
		ret = look(ps, way, latest(ps, way));
		listen_to_all(ps);
		if (ret == -EINTR)
			return ret;
		if (ret == -ETIMEDOUT && !way->came && !towi_left_us(latest(ps, way)))
			towi_ps_fail(ps, -ETIMEDOUT, way->partner->rank);
	}
	return way->came ? 0 : ps->error;
}

TOW_PUBLIC int tow_ps_wait(struct tow_ps *ps, uint32_t variable, uint32_t *blamed)
{
	uint32_t i;
	int ret;

	if (blamed)
		*blamed = TOW_NO_RANK;
	if (!ps || towi_ps_serves(ps) || (variable != TOW_PS_ALL && variable >= ps->count))
		return -EINVAL;
	ret = ps->error;
	/* A call that a signal has ended is continued by the next one. */
	if (!ps->waiting_us)
		ps->waiting_us = towi_until(0);
	for (i = 0; i < ps->count && !ret; i++)
		if (variable == TOW_PS_ALL || variable == i)
			ret = wait_for(ps, &ps->ways[i]);
	if (ret == -EINTR)
		return ret;
	ps->waiting_us = 0;
	if (blamed && ret)
		*blamed = ps->blamed;
	return ret;
}

TOW_PUBLIC void *tow_ps_value(const struct tow_ps *ps, uint32_t variable)
{
	const struct towi_way *way = way_of(ps, variable);

	return way ? way->value : NULL;
}

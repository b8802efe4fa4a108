// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * A worker's side: gradients that it pushes, values that it waits for.
 */
#include <errno.h>

#include "inside.h"

/* What a worker waits longer than its servers do. */
#define LONGER_US	1000000U

static struct towi_way *way_of(const struct tow_ps *ps, uint32_t variable)
{
	return ps && !towi_party_serves(&ps->party) && variable < ps->count ? &ps->ways[variable] : NULL;
}

/* ---- gradients ---------------------------------------------------------------- */

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
	ret = towi_party_give_back(way->partner, way->in, &way->consumed);
	if (ret)
		return ret;
	way->pushing = true;
	ret = tow_edge_send(way->out, gradient, pushed, way);
	if (ret)
		way->pushing = false;
	if (ret == -EDQUOT || ret == -ENOSPC || ret == -ENOMEM || ret == -EINVAL)
		return ret;
	if (ret) {
		towi_party_partner_failed(&ps->party, way->partner, ret);
		return ps->party.error;
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
	if (!towi_party_ours(&ps->party))
		return -EPERM;
	/* What could not go before may go now. */
	if (!ps->party.error)
		towi_party_progress(&ps->party, towi_until(0));
	if (ps->party.error)
		return ps->party.error;
	return way->came && may_push(ps, way) ? push(ps, way, gradient) : -EBUSY;
}

/* ---- values ------------------------------------------------------------------- */

/* One look, for a while: 0; -EINTR; -ETIMEDOUT: it is not there yet. */
static int look(struct tow_ps *ps, struct towi_way *way, uint64_t until)
{
	void *data;
	int ret = towi_party_look(&ps->party, way->partner, way->in, until, &data);

	if (ret)
		return ret;
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
	uint64_t timeout = ps->party.timeout_ms * 1000ULL, from = ps->waiting_us;

	if (way->pushing)
		from += timeout;
	else if (way->pushed_us > from)
		from = way->pushed_us;
	return from + timeout + LONGER_US;
}

static int wait_for(struct tow_ps *ps, struct towi_way *way)
{
	int ret;

	while (!way->came && !ps->party.error) {
		ret = look(ps, way, latest(ps, way));
		towi_party_listen(&ps->party);
		if (ret == -EINTR)
			return ret;
		if (ret == -ETIMEDOUT && !way->came && !towi_left_us(latest(ps, way)))
			towi_party_fail(&ps->party, -ETIMEDOUT, way->partner->rank);
	}
	return way->came ? 0 : ps->party.error;
}

TOW_PUBLIC int tow_ps_wait(struct tow_ps *ps, uint32_t variable, uint32_t *blamed)
{
	uint32_t i;
	int ret;

	if (blamed)
		*blamed = TOW_NO_RANK;
	if (!ps || towi_party_serves(&ps->party) || (variable != TOW_PS_ALL && variable >= ps->count))
		return -EINVAL;
	if (!towi_party_ours(&ps->party))
		return -EPERM;
	ret = ps->party.error;
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
		*blamed = ps->party.blamed;
	return ret;
}

TOW_PUBLIC void *tow_ps_value(const struct tow_ps *ps, uint32_t variable)
{
	const struct towi_way *way = way_of(ps, variable);

	return way ? way->value : NULL;
}

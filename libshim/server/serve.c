// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * A server's work: gradients that have come, updates, values that are sent.
 *
 * What the worker calls notes what has happened; all else is done here, between its calls.
 */
#include <errno.h>

#include "inside.h"

static bool is_synchronous(const struct tow_ps *ps)
{
	return ps->staleness == TOW_PS_SYNCHRONOUS;
}

static struct towi_served *served_of(const struct towi_way *way)
{
	return &towi_ps_of(way->partner)->served[way->variable];
}

static void make_ready(struct tow_ps *ps, struct towi_served *served)
{
	if (served->ready)
		return;
	served->ready = true;
	TAILQ_INSERT_TAIL(&ps->ready, served, next);
}

static void make_all_ready(struct tow_ps *ps)
{
	uint32_t i;

	for (i = 0; i < ps->count; i++)
		make_ready(ps, &ps->served[i]);
}

/* ---- what is called ----------------------------------------------------------- */

static void gradient_came(void *arg, struct tow_edge *edge, int status)
{
	const struct towi_way *way = arg;

	(void)edge;
	if (status)
		towi_party_edge_failed(way->partner->party, way->partner, status);
	make_ready(towi_ps_of(way->partner), served_of(way));
}

static void value_sent(void *arg, uint64_t step, int status)
{
	const struct towi_sent *sent = arg;
	struct towi_served *served = served_of(sent->way);

	(void)step;
	served->sending[sent->side]--;
	make_ready(towi_ps_of(sent->way->partner), served);
	if (status && status != -ECANCELED)
		towi_party_edge_failed(sent->way->partner->party, sent->way->partner, status);
}

int towi_serve_watch(struct tow_ps *ps)
{
	uint32_t i;
	int ret = 0;

	TAILQ_INIT(&ps->ready);
	TAILQ_INIT(&ps->waited);
	for (i = 0; i < towi_ps_ways(ps) && !ret; i++)
		ret = tow_edge_watch(ps->ways[i].in, gradient_came, &ps->ways[i]);
	return ret;
}

/* ---- values ------------------------------------------------------------------- */

static void send_value(struct tow_ps *ps, struct towi_way *way)
{
	uint32_t side = towi_store_side(ps->store, way->variable);
	struct towi_served *served = served_of(way);
	int ret;

	/* It is counted before, as it may have ended when the call returns. */
	served->sending[side]++;
	ret = tow_edge_send(way->out, towi_store_now(ps->store, way->variable), value_sent,
			    &way->sent[side]);
	if (!ret) {
		way->due = false;
		ps->sent_bytes += ps->bytes[way->variable];
		return;
	}
	served->sending[side]--;
	if (ret != -EAGAIN)
		towi_party_edge_failed(&ps->party, way->partner, ret);
}

/* The least steps that a worker has done that has not left. */
static uint64_t slowest(const struct tow_ps *ps, const struct towi_served *served, uint32_t *who)
{
	uint64_t least = UINT64_MAX;
	uint32_t i;

	for (i = 0; i < ps->party.partners; i++) {
		if (ps->party.others[i].left || served->ways[i].steps >= least)
			continue;
		least = served->ways[i].steps;
		*who = ps->party.others[i].rank;
	}
	return least;
}

/* Does this worker have its next value now? */
static bool may_have(const struct tow_ps *ps, const struct towi_served *served,
		     const struct towi_way *way)
{
	uint32_t who;

	if (!way->due || way->partner->left)
		return false;
	return is_synchronous(ps) || way->steps <= ps->staleness ||
	       way->steps - ps->staleness <= slowest(ps, served, &who);
}

static void send_values(struct tow_ps *ps, struct towi_served *served)
{
	uint32_t i;

	for (i = 0; i < ps->party.partners; i++)
		if (may_have(ps, served, &served->ways[i]))
			send_value(ps, &served->ways[i]);
}

/* ---- updates ------------------------------------------------------------------ */

/* What has come: before its worker's last word, if that has. */
static void take_gradients(const struct tow_ps *ps, const struct towi_served *served)
{
	uint32_t i;

	for (i = 0; i < ps->party.partners; i++) {
		struct towi_way *way = &served->ways[i];
		void *data;

		if (!way->came && (way->consumed || !way->steps) &&
		    tow_edge_test(way->in, &data, NULL) == 1)
			way->came = data;
	}
}

/* It was used: its worker may send the next one, and is to have the value. */
static void used(struct tow_ps *ps, struct towi_way *way)
{
	way->came = NULL;
	way->steps++;
	way->due = true;
	ps->received_bytes += ps->bytes[way->variable];
	/* That there is no room for it now is tried again. */
	way->consumed = towi_party_consumed(way->partner, way->in);
}

static void update(struct tow_ps *ps, struct towi_served *served, uint32_t count)
{
	towi_store_update(ps->store, (uint32_t)(served - ps->served), ps->gradients, count);
	ps->updates++;
}

/* May the store's other side be written? */
static bool may_update(const struct tow_ps *ps, const struct towi_served *served)
{
	return !served->sending[!towi_store_side(ps->store, (uint32_t)(served - ps->served))];
}

/* Somebody waits for somebody else, or nobody does. */
static void set_clock(struct tow_ps *ps, struct towi_served *served, bool waits)
{
	if (waits == !!served->since)
		return;
	served->since = waits ? towi_now_ns() : 0;
	if (waits)
		TAILQ_INSERT_TAIL(&ps->waited, served, later);
	else
		TAILQ_REMOVE(&ps->waited, served, later);
}

/* Nobody waits for who has left. */
static void step_together(struct tow_ps *ps, struct towi_served *served)
{
	uint32_t i, here = 0, gone = TOW_NO_RANK;

	for (i = 0; i < ps->party.partners; i++) {
		ps->gradients[i] = served->ways[i].came;
		here += !!served->ways[i].came;
		if (!served->ways[i].came && ps->party.others[i].left)
			gone = ps->party.others[i].rank;
	}
	if (here && gone != TOW_NO_RANK)
		towi_party_fail(&ps->party, -ESTALE, gone);
	if (here < ps->party.partners || ps->party.error || !may_update(ps, served))
		return;
	update(ps, served, ps->party.partners);
	for (i = 0; i < ps->party.partners; i++)
		used(ps, &served->ways[i]);
	set_clock(ps, served, false);
}

static void step_alone(struct tow_ps *ps, struct towi_served *served)
{
	uint32_t i;

	for (i = 0; i < ps->party.partners && !ps->party.error; i++) {
		struct towi_way *way = &served->ways[i];

		if (!way->came || !may_update(ps, served))
			continue;
		ps->gradients[0] = way->came;
		update(ps, served, 1);
		used(ps, way);
	}
}

/* False: something of it has to be tried again. */
static bool give_back(struct tow_ps *ps, struct towi_served *served)
{
	bool all = true;
	uint32_t i;

	for (i = 0; i < ps->party.partners; i++) {
		struct towi_way *way = &served->ways[i];

		if (!way->consumed && way->steps && !way->came)
			way->consumed = towi_party_consumed(way->partner, way->in);
		all &= way->consumed || !way->steps || way->came;
	}
	return all;
}

static bool is_due(const struct tow_ps *ps, const struct towi_served *served, uint32_t *who)
{
	bool waits = false, all = true;
	uint32_t i;

	for (i = 0; i < ps->party.partners; i++) {
		const struct towi_way *way = &served->ways[i];

		waits |= is_synchronous(ps) ? !!way->came : way->due && !way->partner->left;
		all &= !!way->came;
		if (is_synchronous(ps) && !way->came && *who == TOW_NO_RANK)
			*who = way->partner->rank;
	}
	if (!is_synchronous(ps))
		slowest(ps, served, who);
	return waits && (!is_synchronous(ps) || !all) && *who != TOW_NO_RANK;
}

/* Somebody has waited for somebody else for too long. */
static void look_at_time(struct tow_ps *ps)
{
	const struct towi_served *served = TAILQ_FIRST(&ps->waited);
	uint32_t who = TOW_NO_RANK;

	if (served && is_due(ps, served, &who) &&
	    towi_passed(served->since, towi_now_ns()) > ps->party.timeout_ms * 1000000ULL)
		towi_party_fail(&ps->party, -ETIMEDOUT, who);
}

/* What can be done for a variable: false: something has to be tried again. */
static bool go_on(struct tow_ps *ps, struct towi_served *served)
{
	uint32_t who = TOW_NO_RANK;

	take_gradients(ps, served);
	if (is_synchronous(ps))
		step_together(ps, served);
	else
		step_alone(ps, served);
	if (ps->party.error)
		return true;
	send_values(ps, served);
	set_clock(ps, served, is_due(ps, served, &who));
	return give_back(ps, served);
}

static void go_on_all(struct tow_ps *ps)
{
	struct towi_served *served = NULL, *last;

	/* Others may wait for who has left, or not have to any more. */
	if (ps->left != ps->party.partners_left)
		make_all_ready(ps);
	ps->left = ps->party.partners_left;
	/* Who is ready again by then has his turn the next time. */
	last = TAILQ_LAST(&ps->ready, towi_serveds);
	while (served != last && !ps->party.error) {
		served = TAILQ_FIRST(&ps->ready);
		TAILQ_REMOVE(&ps->ready, served, next);
		served->ready = false;
		if (!go_on(ps, served))
			make_ready(ps, served);
	}
	look_at_time(ps);
}

/* ---- serving ------------------------------------------------------------------ */

/* Workers have nothing at first. */
static void begin(struct tow_ps *ps)
{
	uint32_t i;

	if (ps->begun)
		return;
	ps->begun = true;
	for (i = 0; i < towi_ps_ways(ps); i++)
		ps->ways[i].due = true;
	make_all_ready(ps);
}

/* How it ended: with the error all are told of. */
static int end(struct tow_ps *ps, uint32_t *blamed)
{
	if (ps->party.error) {
		towi_party_tell(&ps->party, ps->party.error, ps->party.blamed);
		*blamed = ps->party.blamed;
	}
	return ps->party.error;
}

/* Has a gradient come that was not used? */
static bool any_unused(const struct tow_ps *ps)
{
	uint32_t i;

	for (i = 0; i < towi_ps_ways(ps); i++)
		if (ps->ways[i].came)
			return true;
	return false;
}

/*
 * All have left: what came together with the last word; or waits until what is being sent has
 * been, as that is where the update goes.
 */
static int finish(struct tow_ps *ps, uint64_t until)
{
	int ret;

	while (!ps->party.error) {
		go_on_all(ps);
		if (ps->party.error || !any_unused(ps))
			break;
		ret = towi_party_progress(&ps->party, until);
		if (ret == -EINTR)
			return ret;
		if (!ps->party.error && !towi_left_us(until))
			return -ETIMEDOUT;
	}
	return 0;
}

static int serve(struct tow_ps *ps, uint64_t until, uint32_t *blamed)
{
	int ret;

	begin(ps);
	/* What has come since the last call, before anybody is late. */
	towi_party_progress(&ps->party, towi_until(0));
	while (!ps->party.error && ps->party.partners_left < ps->party.partners) {
		go_on_all(ps);
		if (ps->party.error)
			break;
		ret = towi_party_progress(&ps->party, TAILQ_EMPTY(&ps->ready) ? until : towi_until(0));
		if (ret == -EINTR)
			return ret;
		if (!ps->party.error && ps->party.partners_left < ps->party.partners && !towi_left_us(until))
			return -ETIMEDOUT;
	}
	ret = finish(ps, until);
	return ret ? ret : end(ps, blamed);
}

TOW_PUBLIC int tow_ps_serve(struct tow_ps *ps, uint32_t timeout_us, uint32_t *blamed)
{
	uint32_t who = TOW_NO_RANK;
	int ret;

	if (blamed)
		*blamed = who;
	if (!ps || !towi_party_serves(&ps->party))
		return -EINVAL;
	if (!towi_party_ours(&ps->party))
		return -EPERM;
	ret = serve(ps, towi_until(timeout_us), &who);
	if (blamed)
		*blamed = who;
	return ret;
}

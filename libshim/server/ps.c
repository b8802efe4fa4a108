// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * What servers and workers have in common: their edges, what they tell each other when one
 * leaves, how they begin and end.
 *
 * A variable has two static edges between its server and each worker, one for gradients and one
 * for values, of one letter each.  Who has a value was heard, and who pushes a gradient has read the
 * value: the other end has room, or will when the news of that are there.  Two more edges between each server and each worker
 * carry a word: that its sender leaves, or what went wrong.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "../bootstrap/inside.h"
#include "inside.h"

#define VERSION		1U
#define TIMEOUT_MS	30000U
#define ENTRIES_MIN	256U
#define ENTRIES_MAX	32768U
/* What an edge may have on its way: it waits, it sends or gives back, it asks. */
#define EDGE_ENTRIES	4U
/* How long partners are told that this rank leaves, at most. */
#define TELL_US		1000000U
/* How long the word of a worker may take whose edges are gone. */
#define LOST_US		500000U
/* Seen by whoever waits, at the latest. */
#define LOOK_US		100000U

/* What ranks tell each other of a step. */
struct card {
	uint32_t version;
	int32_t status;
	uint32_t servers, staleness, count;
	uint32_t reserved;
	uint64_t number;
	uint64_t least, lowest;		/* of a server's store */
};

/* ---- errors and words --------------------------------------------------------- */

void towi_ps_fail(struct tow_ps *ps, int error, uint32_t blamed)
{
	if (ps->error)
		return;
	ps->error = error;
	ps->blamed = blamed;
}

void towi_ps_listen(struct tow_ps *ps, struct towi_partner *partner)
{
	const struct towi_news *word;
	void *data;

	if (partner->left || tow_edge_test(partner->in, &data, NULL) != 1)
		return;
	word = data;
	partner->left = true;
	ps->workers_left++;
	if (word->status)
		towi_ps_fail(ps, word->status < 0 ? word->status : -EPROTO,
			     word->blamed < ps->ranks ? word->blamed : partner->rank);
}

/* Nobody else is to blame for that. */
static bool is_own(int error)
{
	return error == -ENODEV || error == -EPERM || error == -ENOSPC || error == -EDQUOT ||
	       error == -ENOMEM;
}

void towi_ps_edge_failed(struct tow_ps *ps, struct towi_partner *partner, int error)
{
	/* It may have said why. */
	towi_ps_listen(ps, partner);
	if (partner->left)
		return;
	if (is_own(error)) {
		towi_ps_fail(ps, error, ps->rank);
	} else if (!towi_ps_serves(ps)) {
		towi_ps_fail(ps, error, partner->rank);
	} else if (!partner->lost) {
		partner->lost = error;
		partner->lost_us = towi_until(0);
	}
}

void towi_ps_look_at_lost(struct tow_ps *ps)
{
	uint64_t now = towi_until(0);
	uint32_t i;

	for (i = 0; i < ps->partners; i++) {
		struct towi_partner *partner = &ps->others[i];

		if (!partner->lost)
			continue;
		towi_ps_listen(ps, partner);
		if (!partner->left && now - partner->lost_us > LOST_US)
			towi_ps_fail(ps, partner->lost, partner->rank);
	}
}

int towi_ps_progress(struct tow_ps *ps, uint64_t until)
{
	uint64_t look = towi_until(LOOK_US), before = towi_now_ns();
	int ret;

	ret = tow_worker_progress(ps->worker, towi_left_us(until < look ? until : look));
	ps->waited_ns += towi_now_ns() - before;
	if (ret < 0 && ret != -EINTR)
		towi_ps_fail(ps, ret, ps->rank);
	return ret < 0 ? ret : 0;
}

static bool was_told(const struct towi_partner *partner)
{
	return !partner->told || !tow_edge_pending(partner->out);
}

static bool has_pushed(const struct tow_ps *ps)
{
	uint32_t i;

	for (i = 0; i < ps->count; i++)
		if (ps->ways[i].pushing)
			return false;
	return true;
}

/* What a worker has pushed is there before it says that it leaves. */
static void flush(struct tow_ps *ps)
{
	uint64_t until = towi_until(TELL_US);
	int ret = 0;

	while (!has_pushed(ps) && towi_left_us(until) && (ret >= 0 || ret == -EINTR))
		ret = tow_worker_progress(ps->worker, towi_left_us(until));
}

void towi_ps_tell(struct tow_ps *ps, int status, uint32_t blamed)
{
	uint64_t until = towi_until(TELL_US);
	struct towi_partner *partner;
	uint32_t i;
	int ret;

	if (!towi_ps_serves(ps) && !ps->error)
		flush(ps);
	for (i = 0; i < ps->partners; i++) {
		partner = &ps->others[i];
		if (partner->told || (partner->left && towi_ps_serves(ps)))
			continue;
		*partner->word = (struct towi_news){ status, blamed };
		partner->told = !tow_edge_send(partner->out, partner->word, NULL, NULL);
	}
	for (i = 0; i < ps->partners; i++) {
		while (!was_told(&ps->others[i]) && towi_left_us(until)) {
			ret = tow_worker_progress(ps->worker, towi_left_us(until));
			if (ret < 0 && ret != -EINTR)
				return;
		}
	}
}

bool towi_ps_consumed(struct towi_way *way)
{
	struct tow_ps *ps = way->partner->ps;
	int ret = tow_edge_consumed(way->in);

	if (ret == -EBUSY)
		return false;
	if (ret)
		towi_ps_edge_failed(ps, way->partner, ret);
	return true;
}

/* ---- edges -------------------------------------------------------------------- */

struct name {
	char text[TOW_EDGE_NAME_MAX + 1];
};

static struct name name_of(const struct tow_ps *ps, const char *what, uint32_t variable,
			   uint32_t from, uint32_t to)
{
	struct name name;

	snprintf(name.text, sizeof(name.text),
		 "towline/ps/%016" PRIx64 "/%s/%" PRIu32 "/%" PRIu32 "/%" PRIu32, ps->number, what,
		 variable, from, to);
	return name;
}

/* Both edges with a partner of what this rank calls @out and @in, its whole number @variable. */
static int make_edges(struct tow_ps *ps, const struct towi_partner *partner, const char *out,
		      const char *in, uint32_t variable, const struct tow_tensor_type *type,
		      struct tow_edge **out_edge, struct tow_edge **in_edge)
{
	struct tow_peer *peer;
	int ret;

	ret = tow_group_peer(ps->group, partner->rank, &peer);
	if (!ret)
		ret = tow_static_receiver(ps->worker, peer,
					  name_of(ps, in, variable, partner->rank, ps->rank).text,
					  type, 1, in_edge);
	if (!ret)
		ret = tow_static_sender(ps->worker, peer,
					name_of(ps, out, variable, ps->rank, partner->rank).text,
					type, out_edge);
	return ret;
}

static int make_partner(struct tow_ps *ps, struct towi_partner *partner)
{
	static const struct tow_tensor_type words = {
		.dtype = { TOW_DTYPE_INT, 32, 1 },
		.ndim = 1,
		.dims = { sizeof(struct towi_news) / sizeof(int32_t) },
	};

	partner->word = tow_arena_alloc(ps->arena, sizeof(*partner->word));
	if (!partner->word)
		return -errno;
	return make_edges(ps, partner, "word", "word", 0, &words, &partner->out, &partner->in);
}

static int make_way(struct tow_ps *ps, struct towi_way *way)
{
	const struct tow_tensor_type *type = &ps->types[way->variable];
	bool serves = towi_ps_serves(ps);
	uint32_t whole = serves ? way->variable * ps->servers + ps->rank : way->variable;

	return make_edges(ps, way->partner, serves ? "value" : "gradient",
			  serves ? "gradient" : "value", whole, type, &way->out, &way->in);
}

static int make_all(struct tow_ps *ps, uint32_t *blamed)
{
	uint32_t i, ways = towi_ps_ways(ps);
	int ret = 0;

	for (i = 0; i < ps->partners && !ret; i++) {
		ret = make_partner(ps, &ps->others[i]);
		if (ret)
			*blamed = ps->others[i].rank;
	}
	for (i = 0; i < ways && !ret; i++) {
		ret = make_way(ps, &ps->ways[i]);
		if (ret)
			*blamed = ps->ways[i].partner->rank;
	}
	return ret;
}

/* All senders, or all receivers. */
static int connect_all(struct tow_ps *ps, bool senders, uint32_t *blamed)
{
	uint32_t i, ways = towi_ps_ways(ps);
	int ret = 0;

	for (i = 0; i < ps->partners && !ret; i++) {
		*blamed = ps->others[i].rank;
		ret = tow_edge_connect(senders ? ps->others[i].out : ps->others[i].in,
				       ps->timeout_ms);
	}
	for (i = 0; i < ways && !ret; i++) {
		*blamed = ps->ways[i].partner->rank;
		ret = tow_edge_connect(senders ? ps->ways[i].out : ps->ways[i].in, ps->timeout_ms);
	}
	if (!ret)
		*blamed = TOW_NO_RANK;
	return ret;
}

static void close_all(struct tow_ps *ps)
{
	uint32_t i, ways = towi_ps_ways(ps);

	/* Words first: that the others have gone is not to be known before. */
	for (i = 0; ps->others && i < ps->partners; i++)
		tow_edge_close(ps->others[i].out);
	for (i = 0; ps->ways && i < ways; i++) {
		tow_edge_close(ps->ways[i].in);
		tow_edge_close(ps->ways[i].out);
	}
	for (i = 0; ps->others && i < ps->partners; i++) {
		tow_edge_close(ps->others[i].in);
		tow_arena_free(ps->arena, ps->others[i].word);
	}
}

/* ---- agreement ---------------------------------------------------------------- */

static int gather(struct tow_ps *ps, const struct card *own, struct card *cards, uint32_t *blamed)
{
	uint32_t who = TOW_NO_RANK, rank;
	int ret = tow_group_gather(ps->group, own, sizeof(*own), cards, &who);

	for (rank = 0; !ret && rank < ps->ranks; rank++) {
		if (cards[rank].version == VERSION && !cards[rank].status)
			continue;
		ret = cards[rank].version == VERSION ? -ECANCELED : -EPROTO;
		who = rank;
	}
	if (*blamed == TOW_NO_RANK)
		*blamed = who;
	return own->status ? own->status : ret;
}

/* All say how it went: 0; the own error; or -ECANCELED and who could not. */
static int agree(struct tow_ps *ps, int status, uint32_t *blamed)
{
	struct card own = { .version = VERSION, .status = status };
	struct card *cards = calloc(ps->ranks + 1, sizeof(*cards));
	int ret;

	if (!cards)
		return -ENOMEM;
	ret = gather(ps, &own, cards, blamed);
	free(cards);
	return ret;
}

/* The step that all servers can go on from. */
static int find_base(struct tow_ps *ps, const struct card *cards, uint32_t *blamed)
{
	uint32_t rank;

	ps->base = UINT64_MAX;
	for (rank = 0; rank < ps->servers; rank++)
		if (cards[rank].least < ps->base)
			ps->base = cards[rank].least;
	for (rank = 0; rank < ps->servers; rank++) {
		if (cards[rank].lowest <= ps->base)
			continue;
		*blamed = rank;
		return -EPROTO;
	}
	if (ps->store)
		towi_store_go_back(ps->store, ps->base);
	return 0;
}

static int compare(struct tow_ps *ps, const struct card *cards, uint32_t *blamed)
{
	uint32_t rank;

	for (rank = 1; rank < ps->ranks; rank++) {
		if (cards[rank].servers == cards[0].servers &&
		    cards[rank].staleness == cards[0].staleness &&
		    cards[rank].count == cards[0].count)
			continue;
		*blamed = rank;
		return -EPROTO;
	}
	ps->number = cards[0].number;
	return ps->staleness == TOW_PS_SYNCHRONOUS ? find_base(ps, cards, blamed) : 0;
}

static int agree_on_all(struct tow_ps *ps, int status, uint32_t count, uint32_t *blamed)
{
	struct card own = {
		.version = VERSION,
		.servers = ps->servers,
		.staleness = ps->staleness,
		.count = count,
		/* Who has none goes on anywhere. */
		.least = UINT64_MAX,
	};
	struct card *cards = calloc(ps->ranks + 1, sizeof(*cards));
	int ret;

	if (!cards)
		return -ENOMEM;
	if (getrandom(&own.number, sizeof(own.number), 0) != sizeof(own.number))
		status = -errno;
	own.status = status;
	if (ps->store)
		towi_store_range(ps->store, &own.least, &own.lowest);
	ret = gather(ps, &own, cards, blamed);
	if (!ret)
		ret = compare(ps, cards, blamed);
	free(cards);
	return ret;
}

/* ---- begin and end ------------------------------------------------------------ */

static uint32_t first_worker(const struct tow_ps *ps)
{
	return ps->servers;
}

/* What is this rank's of @count variables. */
static uint32_t share(const struct tow_ps *ps, uint32_t count)
{
	if (!towi_ps_serves(ps))
		return count;
	return count / ps->servers + (ps->rank < count % ps->servers);
}

static int check(const struct tow_ps *ps, const struct tow_ps_attr *attr)
{
	if (!attr->servers || attr->servers >= ps->ranks || !attr->types || !attr->count ||
	    attr->count > TOW_VARIABLES_MAX)
		return -EINVAL;
	return !attr->store == (towi_ps_serves(ps) && share(ps, attr->count)) ? -EINVAL : 0;
}

static int take_types(struct tow_ps *ps, const struct tow_ps_attr *attr)
{
	uint32_t i, step = towi_ps_serves(ps) ? ps->servers : 1;
	uint32_t first = towi_ps_serves(ps) ? ps->rank : 0;
	int ret = 0;

	ps->types = calloc(ps->count + 1, sizeof(*ps->types));
	ps->bytes = calloc(ps->count + 1, sizeof(*ps->bytes));
	if (!ps->types || !ps->bytes)
		return -ENOMEM;
	for (i = 0; i < ps->count && !ret; i++) {
		ps->types[i] = attr->types[first + i * step];
		ret = tow_tensor_bytes(&ps->types[i], &ps->bytes[i]);
	}
	return ret;
}

/* Has the store what this server is to serve? */
static int check_store(const struct tow_ps *ps)
{
	uint32_t i, d;

	if (!ps->store)
		return 0;
	if (towi_store_count(ps->store) != ps->count)
		return -EINVAL;
	for (i = 0; i < ps->count; i++) {
		const struct tow_tensor_type *own = towi_store_type(ps->store, i);
		const struct tow_tensor_type *type = &ps->types[i];

		if (memcmp(&own->dtype, &type->dtype, sizeof(own->dtype)) || own->ndim != type->ndim)
			return -EINVAL;
		for (d = 0; d < own->ndim; d++)
			if (own->dims[d] != type->dims[d])
				return -EINVAL;
	}
	return 0;
}

static void init_way(struct tow_ps *ps, struct towi_way *way, uint32_t variable,
		     struct towi_partner *partner)
{
	uint32_t side;

	way->variable = variable;
	way->partner = partner;
	for (side = 0; side < 2; side++)
		way->sent[side] = (struct towi_sent){ way, side };
	if (towi_ps_serves(ps) && partner == ps->others)
		ps->served[variable].ways = way;
}

static int make_records(struct tow_ps *ps)
{
	bool serves = towi_ps_serves(ps);
	uint32_t i, ways, first = serves ? first_worker(ps) : 0;

	ps->partners = serves ? ps->ranks - ps->servers : ps->servers;
	ways = towi_ps_ways(ps);
	ps->others = calloc(ps->partners, sizeof(*ps->others));
	ps->ways = calloc(ways + 1, sizeof(*ps->ways));
	ps->served = calloc(ps->count + 1, sizeof(*ps->served));
	ps->gradients = calloc(ps->partners, sizeof(*ps->gradients));
	if (!ps->others || !ps->ways || !ps->served || !ps->gradients)
		return -ENOMEM;
	for (i = 0; i < ps->partners; i++) {
		ps->others[i].ps = ps;
		ps->others[i].rank = first + i;
	}
	for (i = 0; i < ways; i++)
		init_way(ps, &ps->ways[i], serves ? i / ps->partners : i,
			 &ps->others[i % ps->partners]);
	return 0;
}

static int make_worker(struct tow_ps *ps)
{
	uint64_t edges = 2ULL * towi_ps_ways(ps) + 2ULL * ps->partners;
	struct tow_worker_attr attr = { .size = sizeof(attr), .entries = ENTRIES_MIN };

	while (attr.entries < EDGE_ENTRIES * edges && attr.entries < ENTRIES_MAX)
		attr.entries *= 2;
	if (attr.entries < 2 * edges)
		return -EOVERFLOW;
	return tow_worker_create(towi_group_device(ps->group), ps->arena, &attr, &ps->worker);
}

static int make(struct tow_ps *ps, const struct tow_ps_attr *attr)
{
	int ret;

	ps->count = share(ps, attr->count);
	ret = take_types(ps, attr);
	if (!ret)
		ret = check_store(ps);
	if (!ret)
		ret = make_records(ps);
	return ret ? ret : make_worker(ps);
}

static int meet(struct tow_ps *ps, const struct tow_ps_attr *attr, uint32_t *blamed)
{
	int ret = make(ps, attr);

	/* What others cannot know of is for the caller alone. */
	if (ret == -EINVAL)
		return ret;
	ret = agree_on_all(ps, ret, attr->count, blamed);
	if (ret)
		return ret;
	ret = agree(ps, make_all(ps, blamed), blamed);
	if (ret)
		return ret;
	ret = agree(ps, connect_all(ps, true, blamed), blamed);
	if (ret)
		return ret;
	ret = connect_all(ps, false, blamed);
	if (!ret && towi_ps_serves(ps))
		ret = towi_serve_watch(ps);
	return agree(ps, ret, blamed);
}

static void free_ps(struct tow_ps *ps)
{
	close_all(ps);
	tow_worker_destroy(ps->worker);
	if (ps->store)
		towi_store_served(ps->store);
	free(ps->gradients);
	free(ps->served);
	free(ps->ways);
	free(ps->others);
	free(ps->bytes);
	free(ps->types);
	free(ps);
}

static struct tow_ps *new_ps(struct tow_group *group, struct tow_arena *arena,
			     const struct tow_ps_attr *attr)
{
	struct tow_ps *made = calloc(1, sizeof(*made));

	if (!made)
		return NULL;
	made->group = group;
	made->arena = arena;
	made->rank = tow_group_rank(group);
	made->ranks = tow_group_size(group);
	made->servers = attr->servers;
	made->staleness = attr->staleness;
	made->timeout_ms = attr->timeout_ms ? attr->timeout_ms : TIMEOUT_MS;
	made->blamed = TOW_NO_RANK;
	return made;
}

/* A signal at one rank is no reason for all others to begin again. */
static int meet_undisturbed(struct tow_ps *ps, const struct tow_ps_attr *attr, uint32_t *blamed)
{
	sigset_t all, before;
	int ret;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ret = meet(ps, attr, blamed);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return ret;
}

static int create(struct tow_ps *made, const struct tow_ps_attr *attr, uint32_t *blamed)
{
	int ret = check(made, attr);

	if (ret)
		return ret;
	if (attr->store && !towi_store_serve(attr->store))
		return -EBUSY;
	made->store = attr->store;
	return meet_undisturbed(made, attr, blamed);
}

TOW_PUBLIC int tow_ps_create(struct tow_group *group, struct tow_arena *arena,
			     const struct tow_ps_attr *attr, struct tow_ps **ps, uint32_t *blamed)
{
	uint32_t rank = TOW_NO_RANK;
	struct tow_ps_attr known;
	struct tow_ps *made;
	int ret;

	if (blamed)
		*blamed = rank;
	if (!group || !arena || !attr || !ps)
		return -EINVAL;
	ret = towi_take(attr, TOWI_PS_ATTR_SIZE_FIRST, &known, sizeof(known));
	if (ret)
		return ret;
	made = new_ps(group, arena, &known);
	if (!made)
		return -ENOMEM;
	ret = create(made, &known, &rank);
	if (blamed)
		*blamed = rank;
	if (ret)
		free_ps(made);
	else
		*ps = made;
	return ret;
}

TOW_PUBLIC void tow_ps_leave(struct tow_ps *ps)
{
	bool done;

	/* In a child that was forked the words are the parent's, too. */
	if (!ps || tow_worker_progress(ps->worker, 0) == -EPERM)
		return;
	done = !towi_ps_serves(ps) || ps->workers_left == ps->partners;
	if (ps->error)
		towi_ps_tell(ps, ps->error, ps->blamed);
	else
		towi_ps_tell(ps, done ? 0 : -ECANCELED, ps->rank);
	towi_ps_fail(ps, -ECANCELED, ps->rank);
}

TOW_PUBLIC void tow_ps_destroy(struct tow_ps *ps)
{
	if (!ps)
		return;
	tow_ps_leave(ps);
	free_ps(ps);
}

/* ---- questions ---------------------------------------------------------------- */

static uint64_t steps_done(const struct tow_ps *ps)
{
	uint64_t least = UINT64_MAX;
	uint32_t i, ways = towi_ps_ways(ps);

	for (i = 0; i < ways; i++)
		if (ps->ways[i].steps < least)
			least = ps->ways[i].steps;
	if (!ways)
		return 0;
	/* The first value that a worker has is of no step. */
	return towi_ps_serves(ps) || !least ? least : least - 1;
}

TOW_PUBLIC uint64_t tow_ps_step(const struct tow_ps *ps)
{
	return ps ? ps->base + steps_done(ps) : 0;
}

TOW_PUBLIC int tow_ps_stats(const struct tow_ps *ps, struct tow_ps_stats *stats)
{
	struct tow_ps_stats known;

	if (!ps || !stats)
		return -EINVAL;
	known = (struct tow_ps_stats){
		.size = sizeof(known),
		.servers = ps->servers,
		.workers = ps->ranks - ps->servers,
		.variables = ps->count,
		.sent_bytes = ps->sent_bytes,
		.received_bytes = ps->received_bytes,
		.copied_bytes = tow_worker_copied(ps->worker),
		.waited_ns = ps->waited_ns,
		.updates = ps->updates,
	};
	return towi_give(&known, TOWI_PS_STATS_SIZE_FIRST, stats);
}

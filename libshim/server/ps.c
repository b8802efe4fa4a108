// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * What servers and workers have in common: their edges, what they agree on, how they begin and
 * end.
 *
 * A variable has two static edges between its server and each worker, one for gradients and one
 * for values, of one letter each.  Who has a value was heard, and who pushes a gradient has read
 * the value: the other end has room, or will when the news of that are there.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../bootstrap/inside.h"
#include "inside.h"

#define VERSION		1U
/* How long what was pushed may take before this rank says that it leaves. */
#define FLUSH_US	1000000U

/* What ranks tell each other of a step. */
struct card {
	struct towi_card card;
	uint32_t servers, staleness, count;
	uint32_t reserved;
	uint64_t number;
	uint64_t least, lowest;		/* of a server's store */
};

/* ---- leaving ---------------------------------------------------------------- */

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
	uint64_t until = towi_until(FLUSH_US);
	int ret = 0;

	while (!has_pushed(ps) && towi_left_us(until) && (ret >= 0 || ret == -EINTR))
		ret = tow_worker_progress(ps->party.worker, towi_left_us(until));
}

/* ---- edges -------------------------------------------------------------------- */

static int make_way(struct tow_ps *ps, struct towi_way *way)
{
	bool serves = towi_party_serves(&ps->party);
	const struct towi_pair pair = {
		.out = serves ? "value" : "gradient",
		.in = serves ? "gradient" : "value",
		.number = serves ? way->variable * ps->party.servers + ps->party.rank
				 : way->variable,
		.type = &ps->types[way->variable],
		.slots = 1,
	};

	return towi_party_pair(&ps->party, way->partner, &pair, &way->out, &way->in);
}

static int make_all(struct tow_ps *ps, uint32_t *blamed)
{
	uint32_t i, ways = towi_ps_ways(ps);
	int ret = 0;

	for (i = 0; i < ways && !ret; i++) {
		ret = make_way(ps, &ps->ways[i]);
		if (ret)
			*blamed = ps->ways[i].partner->rank;
	}
	return ret ? ret : towi_party_make(&ps->party);
}

/* All senders, or all receivers. */
static int connect_all(struct tow_ps *ps, bool senders, uint32_t *blamed)
{
	uint32_t i, ways = towi_ps_ways(ps);
	int ret = towi_party_connect(&ps->party, senders, blamed);

	for (i = 0; i < ways && !ret; i++) {
		struct towi_way *way = &ps->ways[i];

		ret = towi_party_connect_one(&ps->party, senders ? way->out : way->in);
		if (ret)
			*blamed = way->partner->rank;
	}
	return ret;
}

static void close_ways(struct tow_ps *ps)
{
	uint32_t i, ways = towi_ps_ways(ps);

	for (i = 0; ps->ways && i < ways; i++) {
		tow_edge_close(ps->ways[i].in);
		tow_edge_close(ps->ways[i].out);
	}
}

/* ---- agreement ---------------------------------------------------------------- */

/* The step that all servers can go on from. */
static int find_base(struct tow_ps *ps, const struct card *cards, uint32_t *blamed)
{
	uint32_t rank;

	ps->base = UINT64_MAX;
	for (rank = 0; rank < ps->party.servers; rank++)
		if (cards[rank].least < ps->base)
			ps->base = cards[rank].least;
	for (rank = 0; rank < ps->party.servers; rank++) {
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

	for (rank = 1; rank < ps->party.ranks; rank++) {
		if (cards[rank].servers == cards[0].servers &&
		    cards[rank].staleness == cards[0].staleness &&
		    cards[rank].count == cards[0].count)
			continue;
		*blamed = rank;
		return -EPROTO;
	}
	ps->party.number = cards[0].number;
	return ps->staleness == TOW_PS_SYNCHRONOUS ? find_base(ps, cards, blamed) : 0;
}

static int agree_on_all(struct tow_ps *ps, int status, uint32_t count, uint32_t *blamed)
{
	struct card own = {
		.card = { .version = VERSION, .status = status },
		.servers = ps->party.servers,
		.staleness = ps->staleness,
		.count = count,
		/* Who has none goes on anywhere. */
		.least = UINT64_MAX,
	};
	void *cards;
	int ret;

	if (!own.card.status)
		own.card.status = towi_party_number(&own.number);
	if (ps->store)
		towi_store_range(ps->store, &own.least, &own.lowest);
	ret = towi_party_gather(&ps->party, &own.card, sizeof(own), &cards, blamed);
	return ret ? ret : compare(ps, cards, blamed);
}

/* ---- begin and end ------------------------------------------------------------ */

/* What is this rank's of @count variables. */
static uint32_t share(const struct tow_ps *ps, uint32_t count)
{
	if (!towi_party_serves(&ps->party))
		return count;
	return count / ps->party.servers + (ps->party.rank < count % ps->party.servers);
}

static int check(const struct tow_ps *ps, const struct tow_ps_attr *attr)
{
	if (!attr->servers || attr->servers >= ps->party.ranks || !attr->types || !attr->count ||
	    attr->count > TOW_VARIABLES_MAX)
		return -EINVAL;
	if (!attr->store == (towi_party_serves(&ps->party) && share(ps, attr->count)))
		return -EINVAL;
	return 0;
}

static int take_types(struct tow_ps *ps, const struct tow_ps_attr *attr)
{
	uint32_t i, step = towi_party_serves(&ps->party) ? ps->party.servers : 1;
	uint32_t first = towi_party_serves(&ps->party) ? ps->party.rank : 0;
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
	if (towi_party_serves(&ps->party) && partner == ps->party.others)
		ps->served[variable].ways = way;
}

static int make_records(struct tow_ps *ps)
{
	bool serves = towi_party_serves(&ps->party);
	int ret = towi_party_partners(&ps->party);
	uint32_t i, ways = towi_ps_ways(ps);

	if (ret)
		return ret;
	ps->ways = calloc(ways + 1, sizeof(*ps->ways));
	ps->served = calloc(ps->count + 1, sizeof(*ps->served));
	ps->gradients = calloc(ps->party.partners, sizeof(*ps->gradients));
	if (!ps->ways || !ps->served || !ps->gradients)
		return -ENOMEM;
	for (i = 0; i < ways; i++)
		init_way(ps, &ps->ways[i], serves ? i / ps->party.partners : i,
			 &ps->party.others[i % ps->party.partners]);
	return 0;
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
	return ret ? ret : towi_party_worker(&ps->party, 2ULL * towi_ps_ways(ps));
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
	ret = towi_party_agree(&ps->party, make_all(ps, blamed), blamed);
	if (ret)
		return ret;
	ret = connect_all(ps, true, blamed);
	/* Their senders come now, and this rank looks until they have. */
	if (!ret && towi_party_is_crowd(&ps->party))
		ret = connect_all(ps, false, blamed);
	ret = towi_party_agree(&ps->party, ret, blamed);
	if (ret)
		return ret;
	if (!towi_party_is_crowd(&ps->party))
		ret = connect_all(ps, false, blamed);
	if (!ret && towi_party_serves(&ps->party))
		ret = towi_serve_watch(ps);
	return towi_party_agree(&ps->party, ret, blamed);
}

static void free_ps(struct tow_ps *ps)
{
	close_ways(ps);
	towi_party_end(&ps->party);
	if (ps->store)
		towi_store_served(ps->store);
	free(ps->gradients);
	free(ps->served);
	free(ps->ways);
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
	made->party.kind = "ps";
	towi_party_init(&made->party, group, arena, attr->servers, attr->timeout_ms);
	made->staleness = attr->staleness;
	return made;
}

static int create(struct tow_ps *made, const struct tow_ps_attr *attr, uint32_t *blamed)
{
	int ret = check(made, attr);

	if (ret)
		return ret;
	if (attr->store && !towi_store_serve(attr->store))
		return -EBUSY;
	made->store = attr->store;
	return meet(made, attr, blamed);
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
	if (!towi_group_ours(group))
		return -EPERM;
	ret = towi_take(attr, TOWI_PS_ATTR_SIZE_FIRST, &known, sizeof(known));
	if (ret)
		return ret;
	made = new_ps(group, arena, &known);
	if (!made)
		return towi_party_decline(group, VERSION, sizeof(struct card), -ENOMEM);
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
	if (!ps || !towi_party_ours(&ps->party))
		return;
	if (!towi_party_serves(&ps->party) && !ps->party.error)
		flush(ps);
	towi_party_leave(&ps->party);
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
	return towi_party_serves(&ps->party) || !least ? least : least - 1;
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
		.servers = ps->party.servers,
		.workers = ps->party.ranks - ps->party.servers,
		.variables = ps->count,
		.sent_bytes = ps->sent_bytes,
		.received_bytes = ps->received_bytes,
		.copied_bytes = tow_worker_copied(ps->party.worker),
		.waited_ns = ps->party.waited_ns,
		.updates = ps->updates,
	};
	return towi_give(&known, TOWI_PS_STATS_SIZE_FIRST, stats);
}

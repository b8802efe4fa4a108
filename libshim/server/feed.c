// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * A job server: batches that are written into workers' memory before they ask.
 *
 * There is a static edge from the server to each worker, which has as many letters as the worker
 * has memory for batches.  A letter is a line that says whether it is one, and then the tensors.
 * The server has two letters for each worker, one to fill while the other is on its way, or waits
 * until the worker has done with one.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <towline/feed.h>

#include "../bootstrap/inside.h"
#include "../core/internal.h"
#include "../tensor/edge.h"
#include "party.h"

#define VERSION		1U
#define DEPTH		2U
/* A worker's letters at the server. */
#define LETTERS		2U
/* What a worker waits longer than the server does. */
#define LONGER_US	1000000U
/* Tensors' types that ranks tell each other at once. */
#define TYPES		2U

/* Of structures, when they were first published. */
#define FEED_ATTR_SIZE_FIRST	(offsetof(struct tow_feed_attr, step) + sizeof(uint64_t))
#define FEED_WORKER_SIZE_FIRST	(offsetof(struct tow_feed_worker, silent_us) + sizeof(uint64_t))
#define FEED_STATS_SIZE_FIRST	(offsetof(struct tow_feed_stats, waited_ns) + sizeof(uint64_t))

/* What ranks tell each other first. */
struct card {
	struct towi_card card;
	uint32_t depth, count;
	uint64_t number, step;
};

/* And then. */
struct types_card {
	struct towi_card card;
	struct tow_tensor_type types[TYPES];
};

_Static_assert(sizeof(struct types_card) <= TOW_GROUP_GATHER_MAX, "a card is not too large");

/* A letter's first line. */
struct head {
	uint32_t end;			/* 1: there are no more; 0: tensors follow */
	uint32_t reserved;
};

struct letter {
	struct way *way;
	struct head *head;		/* in the arena */
	void **tensors;
	bool busy;			/* on its way, or about to be */
};

/* A worker at the server; the server at a worker. */
struct way {
	struct towi_partner *partner;
	struct tow_edge *edge;
	struct letter letters[LETTERS];	/* the server's */
	bool over;			/* there are no more */
	uint64_t count;			/* batches that were sent, or shown */
	uint64_t done;			/* the server's: of those, what was done with, */
	uint64_t since_us;		/* and when that was another number, or all */
};

struct tow_feed {
	struct towi_party party;	/* first */
	uint32_t depth, count;
	struct tow_tensor_type *types;
	uint64_t *offsets;		/* of tensors in a letter */
	uint64_t batch_bytes;		/* of all tensors */
	struct tow_tensor_type letter_type;
	uint64_t base;			/* the step that all begin with */
	struct way *ways;		/* by partner */
	uint32_t turn;			/* the server's: who is fed next */
	void **tensors;			/* a worker's: of the batch that it was shown, */
	void *letter;			/* that came last */
	bool given;			/* and is given back; none is: that, too */
	uint64_t waiting_us;		/* a worker's: since when it waits, signals or not */
};

static bool serves(const struct tow_feed *feed)
{
	return towi_party_serves(&feed->party);
}

/* ---- letters ------------------------------------------------------------------ */

/* Where each tensor of a letter is. */
static void find_tensors(const struct tow_feed *feed, void *letter, void **tensors)
{
	uint32_t i;

	for (i = 0; i < feed->count; i++)
		tensors[i] = (char *)letter + feed->offsets[i];
}

static int take_type(struct tow_feed *feed, uint32_t number, const struct tow_tensor_type *given,
		     uint64_t *at)
{
	struct tow_tensor_type *type = &feed->types[number];
	uint64_t bytes;
	int ret = tow_tensor_bytes(given, &bytes);

	if (ret)
		return ret;
	type->dtype = given->dtype;
	type->ndim = given->ndim;
	memcpy(type->dims, given->dims, given->ndim * sizeof(given->dims[0]));
	feed->offsets[number] = *at;
	feed->batch_bytes += bytes;
	/* Each is less than 2^62, and so is the sum of those before it. */
	*at += (bytes + TOWI_LINE - 1) / TOWI_LINE * TOWI_LINE;
	return *at > INT64_MAX / 2 ? -EOVERFLOW : 0;
}

static int take_types(struct tow_feed *feed, const struct tow_tensor_type *types)
{
	uint64_t at = TOWI_LINE;
	uint32_t i;
	int ret = 0;

	feed->types = calloc(feed->count, sizeof(*feed->types));
	feed->offsets = calloc(feed->count, sizeof(*feed->offsets));
	feed->tensors = calloc(feed->count, sizeof(*feed->tensors));
	if (!feed->types || !feed->offsets || !feed->tensors)
		return -ENOMEM;
	for (i = 0; i < feed->count && !ret; i++)
		ret = take_type(feed, i, &types[i], &at);
	feed->letter_type = (struct tow_tensor_type){
		.dtype = { TOW_DTYPE_UINT, 8, 1 }, .ndim = 1, .dims = { (int64_t)at },
	};
	return ret;
}

static int make_letter(struct tow_feed *feed, struct letter *letter, struct way *way)
{
	char *memory = NULL;
	int ret;

	letter->way = way;
	letter->tensors = calloc(feed->count, sizeof(*letter->tensors));
	if (!letter->tensors)
		return -ENOMEM;
	ret = towi_take_memory(feed->party.arena, (uint64_t)feed->letter_type.dims[0], &memory);
	if (ret)
		return ret;
	letter->head = (void *)memory;
	find_tensors(feed, letter->head, letter->tensors);
	return 0;
}

/* ---- what is called ----------------------------------------------------------- */

static void letter_sent(void *arg, uint64_t step, int status)
{
	struct letter *letter = arg;
	struct towi_partner *partner = letter->way->partner;

	(void)step;
	letter->busy = false;
	if (status && status != -ECANCELED)
		towi_party_edge_failed(partner->party, partner, status);
}

/* ---- begin and end ------------------------------------------------------------ */

static int make_way(struct tow_feed *feed, struct way *way)
{
	const struct towi_pair pair = {
		.out = "batch", .in = "batch", .type = &feed->letter_type, .slots = feed->depth,
	};
	uint32_t i;
	int ret;

	ret = towi_party_pair(&feed->party, way->partner, &pair, serves(feed) ? &way->edge : NULL,
			      serves(feed) ? NULL : &way->edge);
	for (i = 0; i < LETTERS && serves(feed) && !ret; i++)
		ret = make_letter(feed, &way->letters[i], way);
	return ret;
}

static int make_all(struct tow_feed *feed, uint32_t *blamed)
{
	int ret = towi_party_make(&feed->party);
	uint32_t i;

	for (i = 0; i < feed->party.partners && !ret; i++) {
		ret = make_way(feed, &feed->ways[i]);
		if (ret)
			*blamed = feed->party.others[i].rank;
	}
	return ret;
}

static int connect_all(struct tow_feed *feed, bool senders, uint32_t *blamed)
{
	int ret = towi_party_connect(&feed->party, senders, blamed);
	uint32_t i;

	for (i = 0; i < feed->party.partners && serves(feed) == senders && !ret; i++) {
		ret = towi_party_connect_one(&feed->party, feed->ways[i].edge);
		if (ret)
			*blamed = feed->party.others[i].rank;
	}
	return ret;
}

static int agree_on_all(struct tow_feed *feed, int status, uint64_t step, uint32_t *blamed)
{
	struct card own = {
		.card = { .version = VERSION, .status = status },
		.depth = feed->depth,
		.count = feed->count,
		.step = serves(feed) ? UINT64_MAX : step,
	};
	const struct card *cards;
	uint32_t rank;
	void *told;
	int ret;

	if (!own.card.status)
		own.card.status = towi_party_number(&own.number);
	ret = towi_party_gather(&feed->party, &own.card, sizeof(own), &told, blamed);
	cards = told;
	feed->base = UINT64_MAX;
	for (rank = 0; rank < feed->party.ranks && !ret; rank++) {
		if (cards[rank].step < feed->base)
			feed->base = cards[rank].step;
		if (cards[rank].depth == cards[0].depth && cards[rank].count == cards[0].count)
			continue;
		*blamed = rank;
		ret = -EPROTO;
	}
	feed->party.number = cards[0].number;
	return ret;
}

/* All compare with rank 0's, and so find the same. */
static int agree_on_some_types(struct tow_feed *feed, uint32_t first, uint32_t *blamed)
{
	uint32_t rank, i, count = feed->count - first < TYPES ? feed->count - first : TYPES;
	struct types_card own = { .card = { .version = VERSION } };
	const struct types_card *cards;
	void *told;
	int ret;

	memcpy(own.types, &feed->types[first], count * sizeof(own.types[0]));
	ret = towi_party_gather(&feed->party, &own.card, sizeof(own), &told, blamed);
	cards = told;
	for (rank = 1; rank < feed->party.ranks && !ret; rank++) {
		for (i = 0; i < count && !ret; i++)
			ret = towi_type_compare(&cards[rank].types[i], &cards[0].types[i]);
		if (ret)
			*blamed = rank;
	}
	return ret;
}

static int agree_on_types(struct tow_feed *feed, uint32_t *blamed)
{
	uint32_t i;
	int ret = 0;

	for (i = 0; i < feed->count && !ret; i += TYPES)
		ret = agree_on_some_types(feed, i, blamed);
	return ret;
}

static int make(struct tow_feed *feed, const struct tow_feed_attr *attr)
{
	uint32_t i;
	int ret = take_types(feed, attr->types);

	if (!ret)
		ret = towi_party_partners(&feed->party);
	if (ret)
		return ret;
	feed->ways = calloc(feed->party.partners, sizeof(*feed->ways));
	if (!feed->ways)
		return -ENOMEM;
	for (i = 0; i < feed->party.partners; i++)
		feed->ways[i].partner = &feed->party.others[i];
	return towi_party_worker(&feed->party, feed->party.partners);
}

static int meet(struct tow_feed *feed, const struct tow_feed_attr *attr, uint32_t *blamed)
{
	int ret = make(feed, attr);

	/* What others cannot know of is for the caller alone. */
	if (ret == -EINVAL)
		return ret;
	ret = agree_on_all(feed, ret, attr->step, blamed);
	if (!ret)
		ret = agree_on_types(feed, blamed);
	if (ret)
		return ret;
	ret = towi_party_agree(&feed->party, make_all(feed, blamed), blamed);
	if (ret)
		return ret;
	ret = towi_party_agree(&feed->party, connect_all(feed, true, blamed), blamed);
	if (ret)
		return ret;
	return towi_party_agree(&feed->party, connect_all(feed, false, blamed), blamed);
}

static void end_way(struct tow_feed *feed, struct way *way)
{
	uint32_t i;

	/* Afterwards nothing is on its way from the letters. */
	tow_edge_close(way->edge);
	for (i = 0; i < LETTERS; i++) {
		tow_arena_free(feed->party.arena, way->letters[i].head);
		free(way->letters[i].tensors);
	}
}

static void free_feed(struct tow_feed *feed)
{
	uint32_t i;

	for (i = 0; feed->ways && i < feed->party.partners; i++)
		end_way(feed, &feed->ways[i]);
	towi_party_end(&feed->party);
	free(feed->ways);
	free(feed->tensors);
	free(feed->offsets);
	free(feed->types);
	free(feed);
}

static int check(const struct tow_feed *feed, const struct tow_feed_attr *attr)
{
	if (feed->party.ranks < 2 || attr->depth > TOW_EDGE_SLOTS_MAX || !attr->types ||
	    !attr->count || attr->count > TOW_FEED_TENSORS_MAX)
		return -EINVAL;
	return 0;
}

static int create(struct tow_feed *made, const struct tow_feed_attr *attr, uint32_t *blamed)
{
	int ret = check(made, attr);

	if (ret)
		return ret;
	made->given = true;
	made->depth = attr->depth ? attr->depth : DEPTH;
	made->count = attr->count;
	return meet(made, attr, blamed);
}

TOW_PUBLIC int tow_feed_create(struct tow_group *group, struct tow_arena *arena,
			       const struct tow_feed_attr *attr, struct tow_feed **feed,
			       uint32_t *blamed)
{
	uint32_t rank = TOW_NO_RANK;
	struct tow_feed_attr known;
	struct tow_feed *made;
	int ret;

	if (blamed)
		*blamed = rank;
	if (!group || !arena || !attr || !feed)
		return -EINVAL;
	if (!towi_group_ours(group))
		return -EPERM;
	ret = towi_take(attr, FEED_ATTR_SIZE_FIRST, &known, sizeof(known));
	if (ret)
		return ret;
	made = calloc(1, sizeof(*made));
	if (!made)
		return towi_party_decline(group, VERSION, sizeof(struct card), -ENOMEM);
	made->party.kind = "feed";
	towi_party_init(&made->party, group, arena, 1, known.timeout_ms);
	ret = create(made, &known, &rank);
	if (blamed)
		*blamed = rank;
	if (ret)
		free_feed(made);
	else
		*feed = made;
	return ret;
}

TOW_PUBLIC void tow_feed_leave(struct tow_feed *feed)
{
	if (feed && towi_party_ours(&feed->party))
		towi_party_leave(&feed->party);
}

TOW_PUBLIC void tow_feed_destroy(struct tow_feed *feed)
{
	if (!feed)
		return;
	tow_feed_leave(feed);
	free_feed(feed);
}

/* ---- the server --------------------------------------------------------------- */

/* They take turns. */
static struct letter *free_letter(struct way *way)
{
	struct letter *letter = &way->letters[way->count % LETTERS];

	return letter->busy ? NULL : letter;
}

/* What a worker has done with; the letter without a batch is none. */
static uint64_t done_of(const struct way *way)
{
	uint64_t read = towi_static_read(way->edge);

	return read < way->count ? read : way->count;
}

static void send(struct way *way, struct letter *letter, bool end)
{
	struct towi_party *party = way->partner->party;
	int ret;

	letter->head->end = end;
	/* It is busy before, as it may have ended when the call returns. */
	letter->busy = true;
	ret = tow_edge_send(way->edge, letter->head, letter_sent, letter);
	if (ret) {
		letter->busy = false;
		towi_party_edge_failed(party, way->partner, ret);
		return;
	}
	/* One that had nothing to work on has now. */
	if (done_of(way) == way->count)
		way->since_us = towi_until(0);
	way->over = end;
	way->count += !end;
}

/* One more batch for a worker: 1: there may be room for another one; 0: there is none; -EINTR. */
static int feed_one(struct tow_feed *feed, struct way *way, tow_feed_fill *fill, void *arg)
{
	struct letter *letter = free_letter(way);
	int ret;

	if (!letter || way->over || way->partner->left || way->partner->lost)
		return 0;
	ret = fill(arg, way->partner->rank, feed->base + way->count, letter->tensors);
	if (ret == -EINTR)
		return ret;
	if (ret < 0 || ret > 1)
		towi_party_fail(&feed->party, ret < 0 ? ret : -EINVAL, feed->party.rank);
	else
		send(way, letter, !ret);
	return 1;
}

/* The same for all, but for those that there is no time for: these are the first of the next call. */
static int feed_all(struct tow_feed *feed, tow_feed_fill *fill, void *arg, uint64_t until)
{
	int ret = 0, more = 0;
	uint32_t i;

	for (i = 0; i < feed->party.partners && !feed->party.error; i++) {
		ret = feed_one(feed, &feed->ways[feed->turn], fill, arg);
		if (ret < 0)
			return ret;
		feed->turn = (feed->turn + 1) % feed->party.partners;
		more |= ret;
		if (ret && !towi_left_us(until))
			break;
	}
	return more;
}

static void look_at_time(struct tow_feed *feed)
{
	uint64_t now = towi_until(0), timeout_us = feed->party.timeout_ms * 1000ULL;
	const struct way *late = NULL;
	uint32_t i;

	for (i = 0; i < feed->party.partners; i++) {
		struct way *way = &feed->ways[i];
		uint64_t done = done_of(way);

		if (!way->since_us || done != way->done || done == way->count)
			way->since_us = now;
		way->done = done;
		if (!way->partner->left && towi_passed(way->since_us, now) > timeout_us &&
		    (!late || done < late->done))
			late = way;
	}
	if (late)
		towi_party_fail(&feed->party, -ETIMEDOUT, late->partner->rank);
}

static int serve(struct tow_feed *feed, tow_feed_fill *fill, void *arg, uint64_t until)
{
	struct towi_party *party = &feed->party;
	int ret, more;

	/* What has come since the last call, before anybody is late. */
	towi_party_progress(party, towi_until(0));
	while (!party->error && party->partners_left < party->partners) {
		more = feed_all(feed, fill, arg, until);
		if (more < 0)
			return more;
		look_at_time(feed);
		if (party->error)
			break;
		ret = towi_party_progress(party, more ? towi_until(0) : until);
		if (ret == -EINTR)
			return ret;
		if (!party->error && party->partners_left < party->partners &&
		    !towi_left_us(until))
			return -ETIMEDOUT;
	}
	if (party->error)
		towi_party_tell(party, party->error, party->blamed);
	return party->error;
}

TOW_PUBLIC int tow_feed_serve(struct tow_feed *feed, tow_feed_fill *fill, void *arg,
			      uint32_t timeout_us, uint32_t *blamed)
{
	int ret;

	if (blamed)
		*blamed = TOW_NO_RANK;
	if (!feed || !serves(feed) || !fill)
		return -EINVAL;
	if (!towi_party_ours(&feed->party))
		return -EPERM;
	ret = serve(feed, fill, arg, towi_until(timeout_us));
	if (blamed && ret && ret == feed->party.error)
		*blamed = feed->party.blamed;
	return ret;
}

static uint32_t state_of(const struct way *way)
{
	if (way->partner->left)
		return TOW_FEED_LEFT;
	if (way->partner->lost)
		return TOW_FEED_LOST;
	return way->over && done_of(way) == way->count ? TOW_FEED_OVER : TOW_FEED_WORKS;
}

TOW_PUBLIC int tow_feed_worker(const struct tow_feed *feed, uint32_t rank,
			       struct tow_feed_worker *worker)
{
	struct tow_feed_worker known = { .size = sizeof(known) };
	const struct way *way;

	if (!feed || !serves(feed) || !rank || rank >= feed->party.ranks || !worker)
		return -EINVAL;
	way = &feed->ways[rank - 1];
	known.state = state_of(way);
	known.sent = way->count;
	known.done = done_of(way);
	known.step = feed->base + known.done;
	if (way->since_us && known.done == way->done && known.done < way->count)
		known.silent_us = towi_until(0) - way->since_us;
	return towi_give(&known, FEED_WORKER_SIZE_FIRST, worker);
}

/* ---- a worker ----------------------------------------------------------------- */

/* 1: a batch; 0: the end. */
static int show(struct tow_feed *feed, struct way *way)
{
	const struct head *head = feed->letter;

	feed->waiting_us = 0;
	way->over = !!head->end;
	if (way->over)
		return 0;
	feed->given = false;
	way->count++;
	find_tensors(feed, feed->letter, feed->tensors);
	return 1;
}

static int wait_for(struct tow_feed *feed, struct way *way)
{
	uint64_t latest;
	int ret = -ETIMEDOUT;

	/* A call that a signal has ended is continued by the next one. */
	if (!feed->waiting_us)
		feed->waiting_us = towi_until(0);
	latest = feed->waiting_us + feed->party.timeout_ms * 1000ULL + LONGER_US;
	while (ret == -ETIMEDOUT && !feed->party.error) {
		ret = towi_party_look(&feed->party, way->partner, way->edge, latest,
				      &feed->letter);
		towi_party_listen(&feed->party);
		if (ret == -ETIMEDOUT && !towi_left_us(latest))
			towi_party_fail(&feed->party, -ETIMEDOUT, way->partner->rank);
	}
	/* What has come counts, whatever has happened since. */
	return !ret || ret == -EINTR ? ret : feed->party.error;
}

TOW_PUBLIC int tow_feed_next(struct tow_feed *feed, void *const **tensors, uint32_t *blamed)
{
	struct way *way;
	int ret;

	if (blamed)
		*blamed = TOW_NO_RANK;
	if (!feed || serves(feed) || !tensors)
		return -EINVAL;
	if (!towi_party_ours(&feed->party))
		return -EPERM;
	way = feed->ways;
	ret = feed->party.error;
	if (!ret && way->over)
		return 0;
	if (!ret)
		ret = towi_party_give_back(way->partner, way->edge, &feed->given);
	if (!ret)
		ret = wait_for(feed, way);
	if (ret) {
		if (blamed && ret == feed->party.error)
			*blamed = feed->party.blamed;
		return ret;
	}
	*tensors = feed->tensors;
	return show(feed, way);
}

/* ---- questions ---------------------------------------------------------------- */

TOW_PUBLIC uint64_t tow_feed_step(const struct tow_feed *feed)
{
	uint64_t least = UINT64_MAX;
	uint32_t i;

	if (!feed)
		return 0;
	if (!serves(feed))
		return feed->base + feed->ways->count;
	for (i = 0; i < feed->party.partners; i++)
		if (done_of(&feed->ways[i]) < least)
			least = done_of(&feed->ways[i]);
	return feed->base + least;
}

TOW_PUBLIC int tow_feed_stats(const struct tow_feed *feed, struct tow_feed_stats *stats)
{
	struct tow_feed_stats known = { .size = sizeof(known) };
	uint32_t i;

	if (!feed || !stats)
		return -EINVAL;
	known.workers = feed->party.ranks - 1;
	for (i = 0; i < feed->party.partners; i++)
		known.batches += feed->ways[i].count;
	known.bytes = known.batches * feed->batch_bytes;
	known.copied_bytes = tow_worker_copied(feed->party.worker);
	known.waited_ns = feed->party.waited_ns;
	return towi_give(&known, FEED_STATS_SIZE_FIRST, stats);
}

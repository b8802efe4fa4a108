// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Ranks that serve and ranks that work: how they meet, what they tell each other, how they part.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "../bootstrap/inside.h"
#include "../core/internal.h"
#include "../tensor/edge.h"
#include "party.h"

#define VERSION		1U
#define ENTRIES_MIN	256U
#define ENTRIES_MAX	32768U
/* What an edge may have on its way: it waits, it sends or gives back, it asks. */
#define EDGE_ENTRIES	4U
/* How long partners are told that this rank leaves, at most. */
#define TELL_US		1000000U
/* How long the word of a worker may take whose edges are gone. */
#define LOST_US		500000U
/* How long a server's word may take when an edge says that it is gone. */
#define WORD_US		1000000U
/* Seen by whoever waits, at the latest. */
#define LOOK_US		100000U
/* For a queue's entry that something is given back by. */
#define ROOM_US		1000U

/* ---- errors and words --------------------------------------------------------- */

void towi_party_fail(struct towi_party *party, int error, uint32_t blamed)
{
	if (party->error)
		return;
	party->error = error;
	party->blamed = blamed;
}

void towi_party_listen(struct towi_party *party, struct towi_partner *partner)
{
	const struct towi_news *word;
	void *data;

	if (partner->left || tow_edge_test(partner->in, &data, NULL) != 1)
		return;
	word = data;
	partner->left = true;
	party->partners_left++;
	if (word->status)
		towi_party_fail(party, word->status < 0 ? word->status : -EPROTO,
				word->blamed < party->ranks ? word->blamed : partner->rank);
}

void towi_party_listen_to_servers(struct towi_party *party)
{
	uint32_t i;

	for (i = 0; i < party->partners; i++) {
		struct towi_partner *partner = &party->others[i];

		towi_party_listen(party, partner);
		/* A server leaves when all workers have. */
		if (partner->left)
			towi_party_fail(party, -ESTALE, partner->rank);
	}
}

/* Nobody else is to blame for that. */
static bool is_own(int error)
{
	return error == -ENODEV || error == -EPERM || error == -ENOSPC || error == -EDQUOT ||
	       error == -ENOMEM;
}

void towi_party_edge_failed(struct towi_party *party, struct towi_partner *partner, int error)
{
	/* It may have said why. */
	towi_party_listen(party, partner);
	if (partner->left)
		return;
	if (is_own(error)) {
		towi_party_fail(party, error, party->rank);
	} else if (!towi_party_serves(party)) {
		towi_party_fail(party, error, partner->rank);
	} else if (!partner->lost) {
		partner->lost = error;
		partner->lost_us = towi_until(0);
	}
}

void towi_party_server_failed(struct towi_party *party, struct towi_partner *partner, int error)
{
	uint64_t until = towi_until(WORD_US);

	while (!party->error && error != -ENODEV && error != -EPERM && towi_left_us(until)) {
		towi_party_listen_to_servers(party);
		if (!party->error)
			towi_party_progress(party, until);
	}
	towi_party_edge_failed(party, partner, error);
	/* What that heard last may be no more than that it leaves: an error, too. */
	towi_party_listen_to_servers(party);
}

void towi_party_look_at_lost(struct towi_party *party)
{
	uint64_t now = towi_until(0);
	uint32_t i;

	for (i = 0; i < party->partners; i++) {
		struct towi_partner *partner = &party->others[i];

		if (!partner->lost)
			continue;
		towi_party_listen(party, partner);
		if (!partner->left && towi_passed(partner->lost_us, now) > LOST_US)
			towi_party_fail(party, partner->lost, partner->rank);
	}
}

int towi_party_progress(struct towi_party *party, uint64_t until)
{
	uint64_t look = towi_until(LOOK_US), before = towi_now_ns();
	int ret;

	ret = tow_worker_progress(party->worker, towi_left_us(until < look ? until : look));
	party->waited_ns += towi_now_ns() - before;
	if (ret < 0 && ret != -EINTR)
		towi_party_fail(party, ret, party->rank);
	return ret < 0 ? ret : 0;
}

int towi_party_look(struct towi_party *party, struct towi_partner *partner, struct tow_edge *edge,
		    uint64_t until, void **data)
{
	uint64_t soon = towi_until(LOOK_US), before = towi_now_ns();
	int ret;

	ret = tow_edge_wait(edge, towi_left_us(until < soon ? until : soon), data, NULL);
	party->waited_ns += towi_now_ns() - before;
	if (!ret || ret == -EINTR || ret == -ETIMEDOUT)
		return ret;
	towi_party_server_failed(party, partner, ret);
	return party->error;
}

static bool was_told(const struct towi_partner *partner)
{
	return !partner->told || !tow_edge_pending(partner->out);
}

void towi_party_tell(struct towi_party *party, int status, uint32_t blamed)
{
	uint64_t until = towi_until(TELL_US);
	struct towi_partner *partner;
	uint32_t i;
	int ret;

	tow_worker_progress(party->worker, 0);
	for (i = 0; i < party->partners; i++) {
		partner = &party->others[i];
		if (partner->told || (partner->left && towi_party_serves(party)))
			continue;
		*partner->word = (struct towi_news){ status, blamed };
		partner->told = !tow_edge_send(partner->out, partner->word, NULL, NULL);
	}
	for (i = 0; i < party->partners; i++) {
		while (!was_told(&party->others[i]) && towi_left_us(until)) {
			ret = tow_worker_progress(party->worker, towi_left_us(until));
			if (ret < 0 && ret != -EINTR)
				return;
		}
	}
}

bool towi_party_consumed(struct towi_partner *partner, struct tow_edge *edge)
{
	int ret = tow_edge_consumed(edge);

	if (ret == -EBUSY)
		return false;
	if (ret)
		towi_party_edge_failed(partner->party, partner, ret);
	return true;
}

int towi_party_give_back(struct towi_partner *partner, struct tow_edge *edge, bool *given)
{
	struct towi_party *party = partner->party;

	while (!*given && !party->error) {
		*given = towi_party_consumed(partner, edge);
		if (!*given && towi_party_progress(party, towi_until(ROOM_US)) == -EINTR)
			return -EINTR;
	}
	return party->error;
}

void towi_party_word_came(void *arg, struct tow_edge *edge, int status)
{
	struct towi_partner *partner = arg;

	(void)edge;
	if (status)
		towi_party_edge_failed(partner->party, partner, status);
	else
		towi_party_listen(partner->party, partner);
}

void towi_party_leave(struct towi_party *party)
{
	bool done = !towi_party_serves(party) || party->partners_left == party->partners;

	if (party->error)
		towi_party_tell(party, party->error, party->blamed);
	else
		towi_party_tell(party, done ? 0 : -ECANCELED, party->rank);
	towi_party_fail(party, -ECANCELED, party->rank);
}

/* ---- edges -------------------------------------------------------------------- */

struct name {
	char text[TOW_EDGE_NAME_MAX + 1];
};

static struct name name_of(const struct towi_party *party, const char *what, uint32_t number,
			   uint32_t from, uint32_t to)
{
	struct name name;

	snprintf(name.text, sizeof(name.text),
		 "towline/%s/%016" PRIx64 "/%s/%" PRIu32 "/%" PRIu32 "/%" PRIu32, party->kind,
		 party->number, what, number, from, to);
	return name;
}

int towi_party_pair(struct towi_party *party, const struct towi_partner *partner,
		    const struct towi_pair *pair, struct tow_edge **out, struct tow_edge **in)
{
	struct tow_peer *peer;
	int ret;

	ret = tow_group_peer(party->group, partner->rank, &peer);
	if (!ret && in)
		ret = tow_static_receiver(party->worker, peer,
					  name_of(party, pair->in, pair->number, partner->rank,
						  party->rank).text,
					  pair->type, pair->slots, in);
	if (!ret && out)
		ret = tow_static_sender(party->worker, peer,
					name_of(party, pair->out, pair->number, party->rank,
						partner->rank).text,
					pair->type, out);
	return ret;
}

int towi_party_connect_one(struct towi_party *party, struct tow_edge *edge)
{
	uint32_t limit = towi_group_timeout_ms(party->group) / 2;

	return tow_edge_connect(edge, party->timeout_ms < limit ? party->timeout_ms : limit);
}

static int make_words(struct towi_party *party, struct towi_partner *partner)
{
	static const struct tow_tensor_type words = {
		.dtype = { TOW_DTYPE_INT, 32, 1 },
		.ndim = 1,
		.dims = { sizeof(struct towi_news) / sizeof(int32_t) },
	};
	static const struct towi_pair pair = {
		.out = "word", .in = "word", .type = &words, .slots = 1,
	};
	char *word = NULL;
	int ret = towi_take_memory(party->arena, sizeof(*partner->word), &word);

	if (ret)
		return ret;
	partner->word = (void *)word;
	return towi_party_pair(party, partner, &pair, &partner->out, &partner->in);
}

int towi_party_make(struct towi_party *party, uint32_t *blamed)
{
	uint32_t i;
	int ret = 0;

	for (i = 0; i < party->partners && !ret; i++) {
		ret = make_words(party, &party->others[i]);
		if (ret)
			*blamed = party->others[i].rank;
	}
	return ret;
}

int towi_party_connect(struct towi_party *party, bool senders, uint32_t *blamed)
{
	uint32_t i;
	int ret = 0;

	for (i = 0; i < party->partners && !ret; i++) {
		struct towi_partner *partner = &party->others[i];

		ret = towi_party_connect_one(party, senders ? partner->out : partner->in);
		if (ret)
			*blamed = partner->rank;
	}
	return ret;
}

void towi_party_close_words(struct towi_party *party)
{
	uint32_t i;

	for (i = 0; party->others && i < party->partners; i++)
		tow_edge_close(party->others[i].out);
}

/* ---- agreement ---------------------------------------------------------------- */

int towi_party_gather(struct towi_party *party, const struct towi_card *own, size_t bytes,
		      void **cards, uint32_t *blamed)
{
	uint32_t who = TOW_NO_RANK, rank;
	int ret = towi_group_gather(party->group, own, bytes, cards, &who);

	for (rank = 0; !ret && rank < party->ranks; rank++) {
		const struct towi_card *card = (void *)((char *)*cards + rank * bytes);

		if (card->version == own->version && !card->status)
			continue;
		ret = card->version == own->version ? -ECANCELED : -EPROTO;
		who = rank;
	}
	if (*blamed == TOW_NO_RANK)
		*blamed = who;
	return own->status ? own->status : ret;
}

int towi_party_agree(struct towi_party *party, int status, uint32_t *blamed)
{
	struct towi_card own = { .version = VERSION, .status = status };
	void *cards;

	if (is_own(status))
		*blamed = party->rank;
	return towi_party_gather(party, &own, sizeof(own), &cards, blamed);
}

int towi_party_decline(struct tow_group *group, uint32_t version, size_t bytes, int status)
{
	const struct towi_card card = { .version = version, .status = status };
	unsigned char own[TOW_GROUP_GATHER_MAX] = { 0 };
	void *cards;

	memcpy(own, &card, sizeof(card));
	towi_group_gather(group, own, bytes, &cards, NULL);
	return status;
}

int towi_party_number(uint64_t *number)
{
	return getrandom(number, sizeof(*number), 0) == sizeof(*number) ? 0 : -errno;
}

/* ---- begin and end ------------------------------------------------------------ */

void towi_party_init(struct towi_party *party, struct tow_group *group, struct tow_arena *arena,
		     uint32_t servers, uint32_t timeout_ms)
{
	party->group = group;
	party->arena = arena;
	party->rank = tow_group_rank(group);
	party->ranks = tow_group_size(group);
	party->servers = servers;
	party->timeout_ms = timeout_ms ? timeout_ms : TOWI_TIMEOUT_MS;
	party->blamed = TOW_NO_RANK;
}

int towi_party_partners(struct towi_party *party)
{
	bool serves = towi_party_serves(party);
	uint32_t i;

	party->partners = serves ? party->ranks - party->servers : party->servers;
	party->others = calloc(party->partners, sizeof(*party->others));
	if (!party->others)
		return -ENOMEM;
	for (i = 0; i < party->partners; i++) {
		party->others[i].party = party;
		party->others[i].rank = (serves ? party->servers : 0) + i;
	}
	return 0;
}

int towi_party_worker(struct towi_party *party, uint64_t edges)
{
	struct tow_worker_attr attr = { .size = sizeof(attr), .entries = ENTRIES_MIN };
	int ret;

	edges += 2ULL * party->partners;
	while (attr.entries < EDGE_ENTRIES * edges && attr.entries < ENTRIES_MAX)
		attr.entries *= 2;
	if (attr.entries < 2 * edges)
		return -EOVERFLOW;
	ret = tow_worker_create(towi_group_device(party->group), party->arena, &attr,
				&party->worker);
	/* While this rank waits for others nobody looks. */
	if (!ret)
		towi_worker_expect(party->worker, party->partners);
	return ret;
}

void towi_party_end(struct towi_party *party)
{
	uint32_t i;

	for (i = 0; party->others && i < party->partners; i++) {
		tow_edge_close(party->others[i].in);
		tow_arena_free(party->arena, party->others[i].word);
	}
	tow_worker_destroy(party->worker);
	free(party->others);
}

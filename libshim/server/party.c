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
#include "../pump/line.h"
#include "party.h"

#define VERSION		1U
#define ENTRIES_MIN	256U
#define ENTRIES_MAX	32768U
/* What an edge may have on its way: it waits, it sends or gives back, it asks. */
#define EDGE_ENTRIES	4U
/* How long partners are told that this rank leaves, at most. */
#define TELL_US		1000000U
/* How long a partner's line may take to say why an edge with it has failed, at most. */
#define WORD_US		10000000U
/* Seen by whoever waits, at the latest. */
#define LOOK_US		100000U
/* For a queue's entry that something is given back by. */
#define ROOM_US		1000U

/* What a worker says by a line first is its rank; after a word nothing follows. */
struct word {
	int32_t status;			/* 0: it leaves; or what went wrong, */
	uint32_t blamed;		/* and by whom */
};

/* ---- errors and words --------------------------------------------------------- */

void towi_party_fail(struct towi_party *party, int error, uint32_t blamed)
{
	if (party->error)
		return;
	party->error = error;
	party->blamed = blamed;
}

static void hear(struct towi_party *party, struct towi_partner *partner)
{
	struct word word = { 0 };
	uint32_t bytes;
	int ret = tow_mailbox_receive(partner->line, &word, sizeof(word), &bytes);

	if (!ret)
		return;
	if (ret < 0) {
		partner->lost = partner->lost ? partner->lost : ret;
		towi_party_fail(party, partner->lost,
				towi_is_own_error(ret) ? party->rank : partner->rank);
		return;
	}
	partner->left = true;
	party->partners_left++;
	if (bytes != sizeof(word) || (word.status && !towi_is_error(word.status)))
		towi_party_fail(party, -EPROTO, partner->rank);
	else if (word.status)
		towi_party_fail(party, word.status,
				word.blamed < party->ranks ? word.blamed : partner->rank);
	/* A server leaves when all workers have. */
	else if (!towi_party_serves(party))
		towi_party_fail(party, -ESTALE, partner->rank);
}

static void hear_all(struct towi_party *party)
{
	uint32_t i;

	for (i = 0; i < party->partners; i++)
		if (party->others[i].line && !party->others[i].left)
			hear(party, &party->others[i]);
}

void towi_party_listen(struct towi_party *party)
{
	/* Functions of edges are called while a word is received, before it counts. */
	if (party->listening)
		return;
	party->listening = true;
	while (party->heard) {
		party->heard = false;
		hear_all(party);
	}
	party->listening = false;
}

void towi_party_edge_failed(struct towi_party *party, struct towi_partner *partner, int error)
{
	/* It may have said why. */
	towi_party_listen(party);
	if (partner->left)
		return;
	if (error == -ESTALE || error == -ECONNRESET || error == -ETIMEDOUT)
		partner->lost = error;
	else
		towi_party_fail(party, error,
				towi_is_own_error(error) ? party->rank : partner->rank);
}

void towi_party_partner_failed(struct towi_party *party, struct towi_partner *partner, int error)
{
	uint64_t until = towi_until(WORD_US);

	towi_party_edge_failed(party, partner, error);
	while (!party->error && towi_left_us(until))
		towi_party_progress(party, until);
	towi_party_fail(party, error, partner->rank);
}

int towi_party_progress(struct towi_party *party, uint64_t until)
{
	uint64_t look = towi_until(LOOK_US), before = towi_now_ns();
	int ret;

	ret = tow_worker_progress(party->worker, towi_left_us(until < look ? until : look));
	party->waited_ns += towi_now_ns() - before;
	if (ret < 0 && ret != -EINTR)
		towi_party_fail(party, ret, party->rank);
	towi_party_listen(party);
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
	towi_party_partner_failed(party, partner, ret);
	return party->error;
}

/* Called with the pump's lock: what partners were told is there, or never will be. */
static bool all_told(const struct towi_party *party)
{
	const struct tow_line *line;
	uint32_t i;

	for (i = 0; i < party->partners; i++) {
		line = party->others[i].line;
		if (line && !line->error && !towi_wire_idle(&line->wire))
			return false;
	}
	return true;
}

void towi_party_tell(struct towi_party *party, int status, uint32_t blamed)
{
	const struct word word = { status, blamed };
	struct towi_pump *pump = &party->worker->pump;
	uint64_t until = towi_until(TELL_US);
	uint32_t i;
	int ret = 0;

	for (i = 0; i < party->partners; i++) {
		struct towi_partner *partner = &party->others[i];

		if (!partner->told && !(partner->left && towi_party_serves(party)))
			partner->told = !tow_mailbox_send(partner->line, &word, sizeof(word));
	}
	towi_pump_lock(pump);
	while (!all_told(party) && (!ret || ret == -EINTR))
		ret = towi_pump_sleep(pump, until);
	towi_pump_unlock(pump);
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

/* ---- connecting --------------------------------------------------------------- */

static uint32_t limit_ms(const struct towi_party *party)
{
	uint32_t limit = towi_group_timeout_ms(party->group) / 2;

	return party->timeout_ms < limit ? party->timeout_ms : limit;
}

int towi_party_connect_one(struct towi_party *party, struct tow_edge *edge)
{
	return tow_edge_connect(edge, limit_ms(party));
}

static void line_news(void *arg, struct tow_line *line, uint32_t what)
{
	struct towi_party *party = arg;

	(void)line;
	(void)what;
	party->heard = true;
}

/* By which a server is found. */
static struct name box_name(const struct towi_party *party, uint32_t server)
{
	return name_of(party, "word", 0, server, server);
}

int towi_party_make(struct towi_party *party)
{
	struct tow_mailbox_attr attr = { .size = sizeof(attr), .bytes = TOW_LINE_BYTES_MIN };
	struct name name = box_name(party, party->rank);
	int ret;

	attr.backlog = party->partners < TOW_BACKLOG_MAX ? party->partners : TOW_BACKLOG_MAX;
	attr.lines = party->partners;
	ret = tow_mailbox_create(party->worker, towi_party_serves(party) ? name.text : NULL, &attr,
				 &party->box);
	return ret ? ret : tow_mailbox_watch(party->box, line_news, party);
}

/* 0: what is waited for is so; or why not. */
static int wait_for(struct towi_party *party, struct tow_line *line, uint32_t what, uint64_t until)
{
	int ret = tow_mailbox_wait(party->box, line, what, towi_left_us(until));

	return ret < 0 ? ret : 0;
}

/* A worker's line with a server. */
static int begin_line(struct towi_party *party, struct towi_partner *server, uint64_t until)
{
	struct name name = box_name(party, server->rank);
	struct tow_peer *peer;
	int ret = tow_group_peer(party->group, server->rank, &peer);

	if (!ret)
		ret = tow_mailbox_connect(party->box, peer, name.text, towi_left_ms(until),
					  &server->line);
	if (!ret)
		ret = wait_for(party, server->line, TOW_MAILBOX_ROOM, until);
	return ret ? ret : tow_mailbox_send(server->line, &party->rank, sizeof(party->rank));
}

/* A line by which its rank was said, or that has ended: 0, or why there is none. */
static int accept_line(struct towi_party *party, uint64_t until, struct tow_line **line)
{
	struct towi_pump *pump = &party->worker->pump;
	int ret = 0;

	towi_pump_lock(pump);
	while (!(*line = towi_box_accept(party->box)) && !ret)
		ret = towi_pump_sleep(pump, until);
	towi_pump_unlock(pump);
	return *line ? 0 : ret;
}

/* A server's line with some worker. */
static int take_line(struct towi_party *party, uint64_t until)
{
	struct towi_partner *worker = NULL;
	uint32_t rank = 0, bytes = 0;
	struct tow_line *line;
	int ret = accept_line(party, until, &line);

	if (ret)
		return ret;
	ret = tow_mailbox_receive(line, &rank, sizeof(rank), &bytes);
	if (ret == 1 && bytes == sizeof(rank) && rank >= party->servers && rank < party->ranks)
		worker = &party->others[rank - party->servers];
	if (!worker || worker->line) {
		tow_mailbox_close(line);
		/* Nor would it with another one. */
		return towi_is_own_error(ret) ? ret : 0;
	}
	worker->line = line;
	party->heard = true;
	return 0;
}

/*
 * Workers begin lines as senders connect.  Servers take them as receivers do; at once if there are
 * more than may come while nobody looks.
 */
int towi_party_connect(struct towi_party *party, bool senders, uint32_t *blamed)
{
	uint64_t until = towi_until_ms(limit_ms(party));
	bool serves = towi_party_serves(party);
	uint32_t i;
	int ret = 0;

	if (serves == senders && !towi_party_is_crowd(party))
		return 0;
	for (i = 0; i < party->partners && !ret; i++) {
		struct towi_partner *partner = &party->others[i];

		while (serves && !partner->line && !ret)
			ret = take_line(party, until);
		if (!serves && !partner->line)
			ret = begin_line(party, partner, until);
		if (ret)
			*blamed = partner->rank;
	}
	return ret;
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

	if (towi_is_own_error(status))
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

	/* Gradients and values are computed with. */
	if (towi_arena_far(party->arena))
		return -EOPNOTSUPP;
	/* A line needs no more than that. */
	edges += party->partners;
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

	for (i = 0; party->others && i < party->partners; i++)
		tow_mailbox_close(party->others[i].line);
	tow_mailbox_destroy(party->box);
	tow_worker_destroy(party->worker);
	free(party->others);
}

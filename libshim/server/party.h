/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * Ranks that serve and ranks that work: what those tell each other that have edges between them.
 *
 * Each server has edges with each worker, but workers have none with each other, nor have servers.
 * A line between each pair carries a word: that its sender leaves, or what went wrong.  It comes
 * before the line's end, so one that ends without says that the other rank has died.
 */
#ifndef TOW_PARTY_INSIDE_H
#define TOW_PARTY_INSIDE_H

#include <stdbool.h>
#include <stdint.h>

#include <towline/bootstrap.h>
#include <towline/mailbox.h>
#include <towline/tensor.h>

#include "../tensor/worker.h"

/* A rank that this one has edges with: a server for workers, a worker for servers. */
struct towi_partner {
	struct towi_party *party;
	uint32_t rank;
	struct tow_line *line;
	bool told, left;
	int lost;			/* an edge with it says that it is gone; its line will say why */
};

struct towi_party {
	const char *kind;		/* in all names */
	struct tow_group *group;
	struct tow_arena *arena;
	struct tow_worker *worker;
	struct tow_mailbox *box;
	bool heard;			/* something by a line, that nobody has looked at */
	bool listening;			/* somebody is looking */
	uint32_t rank, ranks;
	uint32_t servers;		/* ranks 0 to servers - 1; all others work */
	uint32_t timeout_ms;
	uint64_t number;		/* in all names */
	int error;			/* the first one, */
	uint32_t blamed;		/* and who is to blame for it */
	uint32_t partners, partners_left;
	struct towi_partner *others;
	uint64_t waited_ns;
};

/* What each rank's card begins with: towi_party_gather(). */
struct towi_card {
	uint32_t version;
	int32_t status;
};

/* Both edges with a partner of one kind of thing. */
struct towi_pair {
	const char *out, *in;		/* what this rank calls them */
	uint32_t number;		/* which of several */
	const struct tow_tensor_type *type;
	uint32_t slots;			/* of what comes in */
};

static inline bool towi_party_serves(const struct towi_party *party)
{
	return party->rank < party->servers;
}

/* Are there more than may come while this rank does not look? */
static inline bool towi_party_is_crowd(const struct towi_party *party)
{
	return party->partners > TOW_BACKLOG_MAX;
}

/* Is it this process's?  The words, and all that edges carry, are no child's. */
static inline bool towi_party_ours(const struct towi_party *party)
{
	return towi_pump_usable(&party->worker->pump);
}

/* ---- begin and end ---- */

/* All but @kind is filled in; @timeout_ms: 0: as long as others wait. */
void towi_party_init(struct towi_party *party, struct tow_group *group, struct tow_arena *arena,
		     uint32_t servers, uint32_t timeout_ms);

/* Records of partners: 0 or -ENOMEM. */
int towi_party_partners(struct towi_party *party);

/* What drives @edges of them, and lines: 0 or a negative errno. */
int towi_party_worker(struct towi_party *party, uint64_t edges);

/*
 * All ranks tell each other @bytes, of which the first are a struct towi_card whose version is the
 * same; @cards is where all are, by rank, until the next time.  0; the own status; -ECANCELED and
 * whose status was an error; -EPROTO and whose version is another; what tow_group_gather() returns.
 */
int towi_party_gather(struct towi_party *party, const struct towi_card *own, size_t bytes,
		      void **cards, uint32_t *blamed);

/* Who has no memory for a party tells the others, who wait for it at the first such exchange: @status. */
int towi_party_decline(struct tow_group *group, uint32_t version, size_t bytes, int status);

/*
 * All say how it went: 0; the own error; or -ECANCELED and who could not.  What this rank alone can
 * lack is its own fault, whoever it was needed for.
 */
int towi_party_agree(struct towi_party *party, int status, uint32_t *blamed);

/* A number that no other party has: 0 or a negative errno. */
int towi_party_number(uint64_t *number);

/* A server can be found by workers from now on: 0 or a negative errno. */
int towi_party_make(struct towi_party *party);

/* Either edge may be NULL, and is not made then. */
int towi_party_pair(struct towi_party *party, const struct towi_partner *partner,
		    const struct towi_pair *pair, struct tow_edge **out, struct tow_edge **in);

/*
 * One edge; lines, when senders of edges connect, and when receivers do: 0, or a negative errno and
 * with whom not.  It takes at most half of what others wait for this rank, so that who did not come
 * is blamed, and not who waited for it.
 */
int towi_party_connect_one(struct towi_party *party, struct tow_edge *edge);
int towi_party_connect(struct towi_party *party, bool senders, uint32_t *blamed);

/* After its edges. */
void towi_party_end(struct towi_party *party);

/* ---- errors and words ---- */

/* The first error counts. */
void towi_party_fail(struct towi_party *party, int error, uint32_t blamed);

/*
 * An edge with @partner has failed: as it died, or has left, which its line says; or this rank has no
 * device or memory any more.
 */
void towi_party_edge_failed(struct towi_party *party, struct towi_partner *partner, int error);

/* The same, until it is known why. */
void towi_party_partner_failed(struct towi_party *party, struct towi_partner *partner, int error);

/* What partners have said, or that they have gone; to a worker any is an error. */
void towi_party_listen(struct towi_party *party);

/* Nothing is done any more, and partners know: that it is over, or what went wrong. */
void towi_party_leave(struct towi_party *party);

/* Tell all partners that have not left, and wait for a while until they know. */
void towi_party_tell(struct towi_party *party, int status, uint32_t blamed);

/* tow_worker_progress(), counted as waiting, and towi_party_listen(). */
int towi_party_progress(struct towi_party *party, uint64_t until);

/*
 * What comes by a worker's @edge with a server, for a while: 0 and where it is; -EINTR; -ETIMEDOUT:
 * nothing yet; or what has failed the party.
 */
int towi_party_look(struct towi_party *party, struct towi_partner *partner, struct tow_edge *edge,
		    uint64_t until, void **data);

/* Give back what @edge with @partner has shown; false: not now. */
bool towi_party_consumed(struct towi_partner *partner, struct tow_edge *edge);

/* The same until it is given back, which is noted there: 0, -EINTR, or what has failed the party. */
int towi_party_give_back(struct towi_partner *partner, struct tow_edge *edge, bool *given);

#endif /* TOW_PARTY_INSIDE_H */

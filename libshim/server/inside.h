/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/* What a parameter server is made of, inside. */
#ifndef TOW_SERVER_INSIDE_H
#define TOW_SERVER_INSIDE_H

#include <stdbool.h>
#include <sys/queue.h>

#include <towline/server.h>

#include "../core/internal.h"
#include "party.h"

/* Of structures, when they were first published. */
#define TOWI_STORE_ATTR_SIZE_FIRST \
	(offsetof(struct tow_store_attr, epsilon) + sizeof(double))
#define TOWI_PS_ATTR_SIZE_FIRST \
	(offsetof(struct tow_ps_attr, store) + sizeof(struct tow_store *))
#define TOWI_PS_STATS_SIZE_FIRST \
	(offsetof(struct tow_ps_stats, updates) + sizeof(uint64_t))

/* ---- store.c ---- */

/* How many variables there are, and what one is. */
uint32_t towi_store_count(const struct tow_store *store);
const struct tow_tensor_type *towi_store_type(const struct tow_store *store, uint32_t variable);

/* A tow_ps serves it from now on; false: another one does already.  And not any more. */
bool towi_store_serve(struct tow_store *store);
void towi_store_served(struct tow_store *store);

/* As tow_store_update(), of a store that is served. */
void towi_store_update(struct tow_store *store, uint32_t number, const void *const *gradients,
		       uint32_t count);

/*
 * How often the variable was updated least that was so least, and to how many updates all can go
 * back: an update may be taken back once.
 */
void towi_store_range(const struct tow_store *store, uint64_t *least, uint64_t *lowest);
void towi_store_go_back(struct tow_store *store, uint64_t updates);

/* The variable's value, and on which of two sides it is; the next one will be on the other. */
void *towi_store_now(const struct tow_store *store, uint32_t variable);
uint32_t towi_store_side(const struct tow_store *store, uint32_t variable);

/* ---- what servers and workers have in common ---- */

struct towi_way;

/* A value on its way, of that side of the store. */
struct towi_sent {
	struct towi_way *way;
	uint32_t side;
};

/* A variable, and one partner that it moves to and from. */
struct towi_way {
	struct towi_partner *partner;
	uint32_t variable;		/* a worker's number; or the store's */
	struct tow_edge *in, *out;
	void *came;			/* a gradient that was not used yet; a value that may be read */
	void *value;			/* a worker's: where values come to */
	bool consumed;			/* what came before was given back */
	bool pushing;			/* a worker's: its server does not have the gradient yet */
	uint64_t pushed_us;		/* when it had the last one */
	bool due;			/* a server's: is to be sent the value */
	uint64_t steps;			/* what came in, so often */
	struct towi_sent sent[2];
};

/* A server's variable: its ways are one for each worker. */
struct towi_served {
	TAILQ_ENTRY(towi_served) next, later;
	bool ready;			/* something has come, or a value was sent */
	uint32_t sending[2];		/* values on their way, of each side */
	uint64_t since;			/* when a worker began to wait for another one; 0: none does */
	struct towi_way *ways;
};

TAILQ_HEAD(towi_serveds, towi_served);

struct tow_ps {
	struct towi_party party;	/* first */
	struct tow_store *store;	/* a server's */
	uint32_t staleness;
	uint64_t base;			/* steps that were done before */
	bool begun;			/* a server's: first values were sent */
	uint64_t waiting_us;		/* a worker's: since when it waits, signals or not */
	uint64_t level;			/* a worker's: steps that it has of all variables, at least */
	uint32_t count;			/* variables of this rank's */
	struct tow_tensor_type *types;
	uint64_t *bytes;
	struct towi_way *ways;		/* a worker's: by variable; a server's: each one's by worker */
	struct towi_served *served;
	struct towi_serveds ready;	/* those of them that are */
	struct towi_serveds waited;	/* for which somebody waits, the longest first */
	uint32_t left;			/* workers that were known to have left */
	const void **gradients;		/* of one update */
	uint64_t sent_bytes, received_bytes, updates;
};

static inline struct tow_ps *towi_ps_of(const struct towi_partner *partner)
{
	return (struct tow_ps *)partner->party;
}

static inline uint32_t towi_ps_ways(const struct tow_ps *ps)
{
	return towi_party_serves(&ps->party) ? ps->count * ps->party.partners : ps->count;
}

/* ---- serve.c ---- */

/* Ask to be told of what comes, of a server whose edges are connected: 0 or a negative errno. */
int towi_serve_watch(struct tow_ps *ps);

#endif /* TOW_SERVER_INSIDE_H */

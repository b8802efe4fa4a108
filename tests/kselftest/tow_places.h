/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory of every kind that entries of a queue can work on, and what must be in it:
 * each byte is known all the time.
 */
#ifndef TOW_PLACES_H
#define TOW_PLACES_H

#include "tow_queue.h"

/* ---- bytes ----------------------------------------------------------------------- */

struct tow_random {
	uint64_t state;			/* not 0 */
};

static inline uint64_t tow_random(struct tow_random *random)
{
	random->state ^= random->state << 13;
	random->state ^= random->state >> 7;
	random->state ^= random->state << 17;
	return random->state;
}

/* Less than @end, which is not 0. */
static inline uint64_t tow_random_below(struct tow_random *random, uint64_t end)
{
	return tow_random(random) % end;
}

static inline void tow_random_fill(struct tow_random *random, void *at, size_t bytes)
{
	uint64_t word;
	char *to = at;

	for (; bytes >= sizeof(word); bytes -= sizeof(word), to += sizeof(word)) {
		word = tow_random(random);
		memcpy(to, &word, sizeof(word));
	}
	word = tow_random(random);
	memcpy(to, &word, bytes);
}

/* ---- places ---------------------------------------------------------------------- */

enum tow_place_kind {
	TOW_PLACE_LARGE,	/* slabs of the large class */
	TOW_PLACE_SMALL,	/* of the small one */
	TOW_PLACE_IMPORT,	/* memory of the process's own, from an odd byte on */
	TOW_PLACE_KINDS
};

static const char * const tow_place_name[] = { "large", "small", "import" };

/* An import begins so many bytes into a page. */
#define TOW_PLACE_ODD		1037

struct tow_place {
	char *at;
	size_t bytes;
	size_t border;		/* of two slabs, or in the middle of an import */
	__u64 region;
	__u64 exported;
	__u64 remote;		/* 0: not exported */
	char *shadow;		/* what must be there; one page more than @bytes */
	size_t beyond;		/* bytes behind it that are ours, too */
	struct tow_mapped mapped;	/* not an import's */
};

static inline int tow_place_make_pool(int client, enum tow_place_kind kind, struct tow_place *place)
{
	int ret;

	/* Several slabs, of which the last one's last bytes are not part of it. */
	place->bytes = (kind == TOW_PLACE_LARGE ? 2 * TOW_SLAB : TOW_SMALL_REGION) - 13;
	place->border = kind == TOW_PLACE_LARGE ? TOW_SLAB : TOW_SMALL_SLAB;
	ret = tow_mapped_make(client, place->bytes, &place->mapped);
	if (ret)
		return ret;
	place->at = place->mapped.at;
	place->region = place->mapped.made.handle;
	place->beyond = place->mapped.bytes - place->bytes;
	return 0;
}

static inline int tow_place_make_import(int client, struct tow_place *place)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *memory;

	place->bytes = TOW_SLAB + 100003;
	memory = mmap(NULL, place->bytes + 2 * page, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return -errno;
	place->at = memory + TOW_PLACE_ODD;
	place->border = TOW_SLAB - TOW_PLACE_ODD;
	place->beyond = page;
	return tow_region_import(client, place->at, place->bytes, 0, (uint64_t *)&place->region);
}

static inline int tow_place_make(int client, enum tow_place_kind kind, struct tow_random *random,
				 struct tow_place *place)
{
	int ret;

	*place = (struct tow_place) { 0 };
	if (kind == TOW_PLACE_IMPORT)
		ret = tow_place_make_import(client, place);
	else
		ret = tow_place_make_pool(client, kind, place);
	if (ret)
		return ret;
	place->shadow = malloc(place->bytes + place->beyond);
	if (!place->shadow)
		return -ENOMEM;
	tow_random_fill(random, place->shadow, place->bytes + place->beyond);
	memcpy(place->at, place->shadow, place->bytes + place->beyond);
	return 0;
}

/* All of it can be reached, under this name. */
static inline int tow_place_publish(const struct tow_user *user, const char *name, __u32 rights,
				    struct tow_place *place)
{
	int ret = tow_publish_for(user->fd, place->region, name, place->bytes, rights,
				  &place->exported);

	if (!ret)
		ret = tow_find_for(user->fd, user->peer, name, rights, &place->remote);
	return ret;
}

/* Every byte is what it must be, those behind its end included. */
static inline bool tow_place_good(const struct tow_place *place)
{
	return !memcmp(place->at, place->shadow, place->bytes + place->beyond);
}

/* The same, around a range. */
static inline bool tow_place_good_around(const struct tow_place *place, size_t offset,
					 size_t bytes)
{
	size_t from = offset > 256 ? offset - 256 : 0;
	size_t to = offset + bytes + 256;

	if (to > place->bytes + place->beyond)
		to = place->bytes + place->beyond;
	return !memcmp(place->at + from, place->shadow + from, to - from);
}

/* Other bytes than before. */
static inline void tow_place_renew(struct tow_place *place, size_t offset, size_t bytes,
				   struct tow_random *random)
{
	tow_random_fill(random, place->shadow + offset, bytes);
	memcpy(place->at + offset, place->shadow + offset, bytes);
}

/* What is in one is to be in the other. */
static inline void tow_place_expect(struct tow_place *to, size_t to_offset,
				    const struct tow_place *from, size_t from_offset, size_t bytes)
{
	memcpy(to->shadow + to_offset, from->shadow + from_offset, bytes);
}

#endif /* TOW_PLACES_H */

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Ranks (tow_ranks.h) that have a communicator.
 */
#ifndef TOW_MATES_H
#define TOW_MATES_H

#include <towline/collective.h>

#include "tow_ranks.h"

/* One of them. */
struct tow_mate {
	uint32_t rank, ranks;
	struct tow_device *dev;
	struct tow_group *group;
	struct tow_arena *arena;
	struct tow_comm *comm;
};

/* What it is to do. */
struct tow_part {
	uint32_t rank, ranks, restart;
	uint32_t timeout_ms;		/* of the communicator */
	uint32_t arg;
	int (*then)(struct tow_mate *me, uint32_t arg);
};

static inline int tow_mate_meet(struct tow_mate *me, const struct tow_part *part,
				const char *session)
{
	struct tow_comm_attr attr = { .size = sizeof(attr), .timeout_ms = part->timeout_ms };
	struct tow_me with = { .rank = part->rank, .ranks = part->ranks };
	int ret = tow_meet_anew(&with, part->restart, session);

	*me = (struct tow_mate){ with.rank, with.ranks, with.dev, with.group, with.arena, NULL };
	return ret ? ret : tow_comm_create(me->group, me->arena, &attr, &me->comm, NULL);
}

static inline int tow_take_part(const void *arg, const char *session)
{
	const struct tow_part *part = arg;
	struct tow_mate me = { 0 };
	int ret = tow_mate_meet(&me, part, session);

	if (ret) {
		fprintf(stderr, "# rank %u: %d\n", part->rank, ret);
		return 10;
	}
	ret = part->then(&me, part->arg);
	if (tow_comm_destroy(me.comm))
		return 11;
	tow_group_destroy(me.group);
	if (tow_arena_destroy(me.arena))
		return 12;
	tow_device_close(me.dev);
	return ret;
}

/* Rank R is what tow_ranks_end_of() counts as R from that on. */
static inline uint32_t tow_all_start(struct tow_ranks *ranks, struct tow_part part)
{
	uint32_t first = ranks->started;

	for (part.rank = 0; part.rank < part.ranks; part.rank++)
		tow_ranks_start(ranks, tow_take_part, &part);
	return first;
}

/* All, the last one first; each ends well. */
static inline void tow_all_meet(struct __test_metadata *_metadata, struct tow_ranks *ranks,
				struct tow_part part)
{
	uint32_t first = ranks->started;

	for (part.rank = part.ranks; part.rank--;)
		tow_ranks_start(ranks, tow_take_part, &part);
	for (uint32_t i = 0; i < part.ranks; i++)
		EXPECT_EQ(0, tow_ranks_end_of(ranks, first + i));
}

#endif /* TOW_MATES_H */

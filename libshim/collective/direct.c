// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Direct AllReduce: rank R reduces shard R, and all ranks send to all.
 *
 * A call has two messages for each piece and pair of ranks: what a rank gives to another one's
 * shard, to that one's scratch; and what came of its own, to the place where it belongs.  So a
 * slot counts all that one rank sends to another: first what it gives, then what it has reduced.
 *
 * Shards are reduced in the order of the ranks, whoever comes first.
 *
 * Nobody asks for leave to write.  Who has ended a call has all shards, each from who has reduced
 * it, and so does not need his scratch any more; and what came of a shard is made of what its
 * reader gave, when he began the call.
 */
#include <string.h>

#include "inside.h"

/* Another rank. */
struct source {
	struct towi_target target;
	struct towi_way way;
	struct towi_op sleeper;
	struct tow_remote *scratch, *out;
	struct tow_slot *slot;
	uint64_t sent;			/* messages of this call */
};

struct direct {
	struct tow_collective all;	/* first */
	uint32_t ranks;
	uint32_t reduced;		/* pieces of the own shard */
	uint32_t added;			/* ranks, of the next one */
	const char *sum;		/* of those */
	struct source sources[];	/* by rank, but for the own */
};

static struct direct *direct_of(struct tow_collective *collective)
{
	return (struct direct *)collective;
}

static const struct direct *const_direct_of(const struct tow_collective *collective)
{
	return (const struct direct *)collective;
}

/* Messages of a call, from each to each. */
static uint64_t messages(const struct direct *direct)
{
	return 2ULL * direct->all.pieces;
}

static uint64_t come(const struct direct *direct, uint32_t rank)
{
	return tow_slot_value(direct->sources[rank].slot) -
	       (direct->all.begun - 1) * messages(direct);
}

/* Where a rank's scratch has what @from gives. */
static uint64_t scratch_at(const struct direct *direct, uint32_t from, uint32_t piece)
{
	return (from * (uint64_t)direct->all.pieces + piece) * direct->all.piece_bytes;
}

/* ---- sending ------------------------------------------------------------------ */

static bool give(struct direct *direct, struct source *source, uint32_t piece)
{
	struct tow_collective *all = &direct->all;
	uint32_t to = source->target.rank;

	return towi_send(&source->target, &(struct towi_send){
		.way = &source->way,
		.from = &all->in,
		.from_at = towi_piece_at(all, to, piece),
		.to = source->scratch,
		.to_at = scratch_at(direct, all->comm->rank, piece),
		.bytes = towi_piece_bytes(all, to, piece),
	});
}

static bool give_back(struct direct *direct, struct source *source, uint32_t piece)
{
	struct tow_collective *all = &direct->all;
	uint32_t own = all->comm->rank;
	uint64_t at = towi_piece_at(all, own, piece);

	return towi_send(&source->target, &(struct towi_send){
		.way = &source->way,
		.from = &all->out,
		.from_at = at,
		.to = source->out,
		.to_at = at,
		.bytes = towi_piece_bytes(all, own, piece),
	});
}

static bool send_next(struct direct *direct, struct source *source)
{
	uint32_t pieces = direct->all.pieces;

	if (source->sent < pieces)
		return give(direct, source, (uint32_t)source->sent);
	if (source->sent < messages(direct) && source->sent - pieces < direct->reduced)
		return give_back(direct, source, (uint32_t)source->sent - pieces);
	return false;
}

/* To all, beginning behind the own rank: not all to the same one at first. */
static bool send_some(struct direct *direct)
{
	uint32_t i, own = direct->all.comm->rank;
	bool any = false;

	for (i = 1; i < direct->ranks; i++) {
		struct source *source = &direct->sources[(own + i) % direct->ranks];

		while (send_next(direct, source)) {
			source->sent++;
			any = true;
		}
	}
	return any;
}

/* ---- reducing ----------------------------------------------------------------- */

/* What a rank gives to the next piece; NULL: it has not come. */
static const char *part_of(struct direct *direct, uint32_t rank)
{
	struct tow_collective *all = &direct->all;
	uint32_t own = all->comm->rank, piece = direct->reduced;

	if (rank == own)
		return towi_at(&all->in, towi_piece_at(all, own, piece));
	return come(direct, rank) > piece ?
	       towi_at(&all->scratch, scratch_at(direct, rank, piece)) : NULL;
}

/* What a rank gives is added to what those before it did. */
static void add(struct direct *direct, uint32_t rank, const char *part, uint64_t bytes)
{
	struct tow_collective *all = &direct->all;
	uint32_t own = all->comm->rank, piece = direct->reduced;
	char *to;

	if (!rank) {
		direct->sum = part;
		return;
	}
	/* Nobody writes to the own place in the scratch. */
	to = rank + 1 < direct->ranks ? towi_at(&all->scratch, scratch_at(direct, own, piece)) :
					towi_at(&all->out, towi_piece_at(all, own, piece));
	towi_combine(all, to, direct->sum, rank == 1, part, bytes);
	direct->sum = to;
	if (rank + 1 == direct->ranks)
		towi_average(all, to, bytes);
}

static bool reduce_some(struct direct *direct)
{
	struct tow_collective *all = &direct->all;
	uint64_t bytes;
	const char *part;
	bool any = false;

	while (direct->reduced < all->pieces) {
		bytes = towi_piece_bytes(all, all->comm->rank, direct->reduced);
		part = bytes ? part_of(direct, direct->added) : NULL;
		if (bytes && !part)
			break;
		if (bytes)
			add(direct, direct->added, part, bytes);
		any = true;
		if (++direct->added < direct->ranks && bytes)
			continue;
		direct->added = 0;
		direct->reduced++;
		/* While it travels the next one is reduced. */
		if (send_some(direct))
			towi_pump_submit(&all->comm->pump);
	}
	return any;
}

/* ---- a call ------------------------------------------------------------------- */

static bool direct_goes_on(struct tow_collective *collective)
{
	struct direct *direct = direct_of(collective);
	bool any = send_some(direct);

	if (any)
		towi_pump_submit(&collective->comm->pump);
	return reduce_some(direct) || any;
}

/* The first that has not sent so much; the number of ranks: all have. */
static uint32_t first_without(const struct direct *direct, uint64_t count)
{
	uint32_t rank;

	for (rank = 0; rank < direct->ranks; rank++)
		if (rank != direct->all.comm->rank && come(direct, rank) < count)
			break;
	return rank;
}

static bool direct_done(const struct tow_collective *collective)
{
	const struct direct *direct = const_direct_of(collective);
	uint32_t rank;

	for (rank = 0; rank < direct->ranks; rank++)
		if (rank != collective->comm->rank &&
		    direct->sources[rank].sent < messages(direct))
			return false;
	return first_without(direct, messages(direct)) == direct->ranks;
}

static uint32_t direct_waits_for(const struct tow_collective *collective)
{
	const struct direct *direct = const_direct_of(collective);
	uint32_t rank = first_without(direct, collective->pieces);

	if (rank == direct->ranks)
		rank = first_without(direct, messages(direct));
	return rank < direct->ranks ? rank : TOW_NO_RANK;
}

static bool direct_arms(struct tow_collective *collective)
{
	struct direct *direct = direct_of(collective);
	uint64_t before = (collective->begun - 1) * messages(direct);
	uint64_t wanted = messages(direct);
	struct source *source;
	uint32_t rank;

	if (direct->reduced < collective->pieces) {
		rank = direct->added;
		wanted = direct->reduced + 1;
	} else {
		rank = first_without(direct, wanted);
	}
	/* All is there, and is on its way to others. */
	if (rank >= direct->ranks)
		return true;
	source = &direct->sources[rank];
	return source->slot && towi_sleep_for(&source->sleeper, source->slot, before + wanted);
}

static void direct_starts(struct tow_collective *collective)
{
	struct direct *direct = direct_of(collective);
	uint32_t rank;

	direct->reduced = 0;
	direct->added = 0;
	for (rank = 0; rank < direct->ranks; rank++)
		direct->sources[rank].sent = 0;
}

/* ---- life --------------------------------------------------------------------- */

static void plan(struct direct *direct)
{
	uint32_t rank;

	towi_cut(&direct->all, 1);
	direct->ranks = direct->all.comm->ranks;
	for (rank = 0; rank < direct->ranks; rank++) {
		towi_target_init(&direct->sources[rank].target, &direct->all, rank);
		towi_sleeper_init(&direct->sources[rank].sleeper, &direct->all.runner);
	}
}

static int make_slots(struct direct *direct)
{
	struct tow_collective *all = &direct->all;
	uint32_t rank;
	int ret;

	ret = towi_array_make(all->comm, direct->ranks * (uint64_t)TOWI_LINE, &all->numbers);
	for (rank = 0; !ret && rank < direct->ranks; rank++)
		if (rank != all->comm->rank)
			ret = towi_slot_make(all, "from", rank, rank, &direct->sources[rank].slot);
	return ret;
}

static uint64_t scratch_bytes(const struct direct *direct)
{
	return direct->all.shard_bytes ? scratch_at(direct, direct->ranks, 0) : 0;
}

static int direct_make(struct tow_collective *collective)
{
	struct direct *direct = direct_of(collective);
	int ret;

	plan(direct);
	ret = make_slots(direct);
	if (!ret)
		ret = towi_array_make(collective->comm, scratch_bytes(direct),
				      &collective->scratch);
	if (!ret)
		ret = towi_array_export(collective, "scratch", &collective->scratch,
					&collective->scratch_exported);
	return ret ? ret : towi_array_export(collective, "out", &collective->out,
					     &collective->out_exported);
}

static int find_source(struct direct *direct, struct source *source, uint64_t until)
{
	struct tow_collective *all = &direct->all;
	int ret;

	ret = towi_find_array(&source->target, "scratch", scratch_bytes(direct), until,
			      &source->scratch);
	if (!ret)
		ret = towi_find_array(&source->target, "out", all->whole_bytes, until,
				      &source->out);
	return ret ? ret : towi_find_way(&source->target, "from", all->comm->rank, until,
					 &source->way);
}

static int direct_find(struct tow_collective *collective, uint64_t until, uint32_t *blamed)
{
	struct direct *direct = direct_of(collective);
	uint32_t i, rank;
	int ret = 0;

	for (i = 1; !ret && i < direct->ranks; i++) {
		rank = (collective->comm->rank + i) % direct->ranks;
		ret = find_source(direct, &direct->sources[rank], until);
		*blamed = ret ? rank : TOW_NO_RANK;
	}
	return ret;
}

static void direct_close(struct tow_collective *collective)
{
	struct direct *direct = direct_of(collective);
	uint32_t rank;

	for (rank = 0; rank < direct->ranks; rank++) {
		tow_remote_release(direct->sources[rank].scratch);
		tow_remote_release(direct->sources[rank].out);
		towi_way_end(&direct->sources[rank].way);
		tow_slot_destroy(direct->sources[rank].slot);
	}
}

const struct towi_algorithm towi_direct = {
	.bytes = sizeof(struct direct),
	.rank_bytes = sizeof(struct source),
	.make = direct_make,
	.find = direct_find,
	.close = direct_close,
	.start = direct_starts,
	.go_on = direct_goes_on,
	.done = direct_done,
	.arm = direct_arms,
	.waits_for = direct_waits_for,
};

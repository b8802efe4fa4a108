// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Tensors that share memory.
 *
 * Within a step a receiver needs a tensor from the first node that takes it to the last one.  Tensors
 * of which no two are needed at once may have the same block, one after the other, and what has
 * come for one step must have been read before the next tenant's may be sent: the last one's before
 * the first one's of the next step.  That makes nobody wait for what waits for him: a tenant's
 * nodes run behind those of the tenant before it anyhow.
 *
 * A rank's nodes are gone through in their order.  A tensor gets the smallest free block that it fits
 * into, or else the largest one, which grows, or else a new one.
 */
#include <bsd/sys/tree.h>
#include <errno.h>
#include <stdlib.h>

#include "inside.h"

struct tenant {
	struct tow_plan_edge *edge;
	uint32_t block;		/* its number */
};

/* When one of them was read. */
struct leaving {
	uint32_t rank, last, tenant;
};

struct block {
	uint64_t bytes, offset;
	uint32_t rank;
	uint32_t first, last;	/* tenants: edges of the plan */
	RB_ENTRY(block) node;	/* free */
};

RB_HEAD(free_blocks, block);

struct sharing {
	struct tow_plan *plan;
	uint32_t count;
	struct tenant *begins;		/* by ranks, and by first nodes */
	struct leaving *ends;		/* by ranks, and by last nodes */
	struct block *blocks;
	uint32_t blocks_count;
	struct free_blocks free;	/* of the rank that is looked at */
};

static int by_size(const struct block *one, const struct block *other)
{
	if (one->bytes != other->bytes)
		return one->bytes < other->bytes ? -1 : 1;
	return (one > other) - (one < other);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
RB_GENERATE_INTERNAL(free_blocks, block, node, by_size, static)
#pragma GCC diagnostic pop

static int order_of(uint32_t one, uint32_t other)
{
	return (one > other) - (one < other);
}

static int by_first(const void *a, const void *b)
{
	const struct tow_plan_edge *one = ((const struct tenant *)a)->edge;
	const struct tow_plan_edge *other = ((const struct tenant *)b)->edge;
	int order = order_of(one->to_rank, other->to_rank);

	if (!order)
		order = order_of(one->first, other->first);
	/* They are in one array. */
	return order ? order : (one > other) - (one < other);
}

static int by_last(const void *a, const void *b)
{
	const struct leaving *one = a, *other = b;
	int order = order_of(one->rank, other->rank);

	if (!order)
		order = order_of(one->last, other->last);
	return order ? order : order_of(one->tenant, other->tenant);
}

/* A free block for a tensor, or a new one. */
static struct block *find(struct sharing *sharing, uint64_t bytes)
{
	struct block *found = RB_ROOT(&sharing->free), *fits = NULL;

	while (found) {
		if (found->bytes >= bytes) {
			fits = found;
			found = RB_LEFT(found, node);
		} else {
			found = RB_RIGHT(found, node);
		}
	}
	if (!fits)
		fits = RB_MAX(free_blocks, &sharing->free);
	if (fits)
		RB_REMOVE(free_blocks, &sharing->free, fits);
	else
		fits = &sharing->blocks[sharing->blocks_count++];
	return fits;
}

static void move_in(struct sharing *sharing, struct tenant *tenant)
{
	struct block *block = find(sharing, tenant->edge->tensors_bytes);
	uint32_t number = (uint32_t)(tenant->edge - sharing->plan->edges);

	if (tenant->edge->tensors_bytes > block->bytes) {
		/* The first one, too. */
		if (!block->bytes)
			block->first = number;
		block->bytes = tenant->edge->tensors_bytes;
	}
	if (block->first != number) {
		tenant->edge->after = block->last;
		tenant->edge->steps = 0;
	}
	block->last = number;
	block->rank = tenant->edge->to_rank;
	tenant->block = (uint32_t)(block - sharing->blocks);
}

/* Of the tenant that leaves. */
static struct block *block_of(const struct sharing *sharing, uint32_t gone)
{
	return &sharing->blocks[sharing->begins[sharing->ends[gone].tenant].block];
}

static void move_all(struct sharing *sharing)
{
	uint32_t gone = 0;

	for (uint32_t i = 0; i < sharing->count; i++) {
		const struct tow_plan_edge *edge = sharing->begins[i].edge;

		/* As many tenants leave as come: of ranks before this one all have. */
		if (!i || edge->to_rank != sharing->begins[i - 1].edge->to_rank) {
			RB_INIT(&sharing->free);
			gone = i;
		}
		for (; gone < i && sharing->ends[gone].last < edge->first; gone++)
			RB_INSERT(free_blocks, &sharing->free, block_of(sharing, gone));
		move_in(sharing, &sharing->begins[i]);
	}
}

static int place_blocks(struct sharing *sharing, uint32_t *wrong)
{
	struct tow_plan *plan = sharing->plan;
	struct tow_plan_rank *rank;
	int ret;

	for (uint32_t i = 0; i < sharing->blocks_count; i++) {
		struct block *block = &sharing->blocks[i];

		*wrong = block->first;
		rank = &plan->ranks[block->rank];
		ret = towi_plan_take(rank, block->bytes, &block->offset);
		if (ret)
			return ret;
		rank->receive_bytes = rank->region_bytes;
		if (block->first != block->last) {
			plan->edges[block->first].after = block->last;
			plan->edges[block->first].steps = 1;
		}
	}
	for (uint32_t i = 0; i < sharing->count; i++)
		sharing->begins[i].edge->tensors_offset =
			sharing->blocks[sharing->begins[i].block].offset;
	return 0;
}

static void take_tenants(struct sharing *sharing)
{
	for (uint32_t i = 0; i < sharing->plan->edges_count; i++)
		if (towi_plan_shares(&sharing->plan->edges[i]))
			sharing->begins[sharing->count++].edge = &sharing->plan->edges[i];
	qsort(sharing->begins, sharing->count, sizeof(*sharing->begins), by_first);
	for (uint32_t i = 0; i < sharing->count; i++)
		sharing->ends[i] = (struct leaving){ sharing->begins[i].edge->to_rank,
						     sharing->begins[i].edge->last, i };
	qsort(sharing->ends, sharing->count, sizeof(*sharing->ends), by_last);
}

int towi_plan_share(struct tow_plan *plan, uint32_t *wrong)
{
	size_t room = (size_t)plan->edges_count + 1;
	struct sharing sharing = {
		.plan = plan,
		.begins = calloc(room, sizeof(*sharing.begins)),
		.ends = calloc(room, sizeof(*sharing.ends)),
		.blocks = calloc(room, sizeof(*sharing.blocks)),
	};
	int ret = -ENOMEM;

	if (sharing.begins && sharing.ends && sharing.blocks) {
		take_tenants(&sharing);
		move_all(&sharing);
		ret = place_blocks(&sharing, wrong);
	}
	free(sharing.begins);
	free(sharing.ends);
	free(sharing.blocks);
	return ret;
}

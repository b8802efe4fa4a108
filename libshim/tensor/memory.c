// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/* What an edge has in memory: its slot, its range, and what outlives a receiver. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "../core/internal.h"
#include "edge.h"

#define KEPT_MAGIC	0x7470656b776f74ULL	/* "towkept" */
/* In memory that nobody reaches but the kernel. */
#define NUMBER_AT	0U
#define LARGE_NUMBER_AT	64U

static int make_slot(struct tow_edge *edge, const char *end, char *number, struct tow_slot **slot)
{
	struct tow_region *region;
	uint64_t offset;
	int ret = towi_edge_place(edge, number, &region, &offset);

	return ret ? ret : tow_slot_create(region, offset, towi_edge_name(edge, end), slot);
}

static int make_slots(struct tow_edge *edge)
{
	int ret = make_slot(edge, edge->kind->slot,
			    edge->kept ? (char *)&edge->kept->number : edge->own + NUMBER_AT,
			    &edge->slot);

	if (!ret && edge->kind->large)
		ret = make_slot(edge, edge->kind->large, edge->own + LARGE_NUMBER_AT,
				&edge->large_slot);
	return ret;
}

/* The letters, where the tensors are to come to. */
static int make_apart(struct tow_edge *edge)
{
	uint64_t size = edge->mine.slots * edge->mine.stride, offset;
	struct tow_region *region;
	int ret;

	edge->tensors = tow_arena_alloc(edge->worker->arena, size);
	if (!edge->tensors)
		return -errno;
	edge->apart = true;
	ret = towi_edge_place(edge, edge->tensors, &region, &offset);
	return ret ? ret : tow_export(region, offset, size, towi_edge_name(edge, TOWI_APART),
				      TOW_RIGHT_WRITE, &edge->tensors_exported);
}

static int take_range(struct tow_edge *edge, uint64_t *size)
{
	bool apart = edge->worker->words != edge->worker->arena && !edge->kept && edge->mine.stride;
	int ret = 0;

	*size = TOWI_LETTERS_AT + (apart ? 0 : edge->mine.slots * edge->mine.stride);
	if (edge->kept)
		edge->letters = (char *)edge->kept + TOWI_KEPT_BYTES;
	else
		ret = towi_take_memory(edge->worker->words, *size, &edge->letters);
	if (ret)
		return ret;
	edge->tensors = edge->letters + TOWI_LETTERS_AT;
	return apart ? make_apart(edge) : 0;
}

static int make_range(struct tow_edge *edge)
{
	struct tow_region *region;
	uint64_t size, offset;
	int ret = take_range(edge, &size);

	if (ret)
		return ret;
	/* Nobody has greeted yet. */
	memset(edge->letters + TOWI_HELLO_AT, 0, TOWI_HELLO_AT);
	*(struct towi_header *)(void *)(edge->letters + TOWI_HEADER_AT) = towi_edge_header(edge);
	if (edge->kept)
		__atomic_store_n(&edge->kept->magic, KEPT_MAGIC, __ATOMIC_SEQ_CST);
	ret = towi_edge_place(edge, edge->letters, &region, &offset);
	return ret ? ret : tow_export(region, offset, size, towi_edge_name(edge, ""),
				      TOW_RIGHT_READ | TOW_RIGHT_WRITE, &edge->exported);
}

/*
 * What an end before this one has left, or a beginning: 0; -EPROTO, -EPROTOTYPE, -EMSGSIZE: it
 * was of another edge.
 */
static int take_over(struct tow_edge *edge)
{
	struct towi_kept *kept = edge->kept;
	struct towi_header header;
	int ret;

	if (kept->magic != KEPT_MAGIC) {
		*kept = (struct towi_kept){ 0 };
		return 0;
	}
	memcpy(&header, (char *)kept + TOWI_KEPT_BYTES + TOWI_HEADER_AT, sizeof(header));
	ret = towi_edge_compare(edge, &header);
	if (!ret && header.slots != edge->mine.slots)
		ret = -EMSGSIZE;
	if (ret)
		return ret;
	/* The first notification is no step. */
	if (kept->number)
		edge->before = kept->before + kept->number - TOWI_HELLO;
	else
		edge->before = kept->next;
	/* Whenever this process is killed, the next one finds the same. */
	__atomic_store_n(&kept->next, edge->before, __ATOMIC_SEQ_CST);
	__atomic_store_n(&kept->number, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&kept->before, edge->before, __ATOMIC_SEQ_CST);
	return 0;
}

static int map_kept(struct tow_edge *edge)
{
	uint64_t size = TOWI_KEPT_BYTES + TOWI_LETTERS_AT + edge->mine.slots * edge->mine.stride;
	struct tow_region_info info = { .size = sizeof(info) };
	void *mapped;
	int ret;

	ret = tow_region_info(edge->kept_region, &info);
	/* A device's memory is no place for what is counted. */
	if (!ret && info.flags & TOW_REGION_DMABUF)
		ret = -EOPNOTSUPP;
	if (!ret && info.map_bytes < size)
		ret = -ERANGE;
	if (!ret)
		ret = tow_region_map(edge->kept_region, 0, 0, PROT_READ | PROT_WRITE, &mapped);
	if (ret)
		return ret;
	edge->kept = mapped;
	return take_over(edge);
}

int towi_edge_memory(struct tow_edge *edge)
{
	int ret = edge->kept_region ? map_kept(edge) : 0;

	if (!ret)
		ret = towi_take_memory(edge->worker->words, TOWI_OWN_BYTES, &edge->own);
	if (!ret && edge->kind->slot)
		ret = make_slots(edge);
	/* Last: who finds it finds all of it. */
	if (!ret && !edge->sends)
		ret = make_range(edge);
	return ret;
}

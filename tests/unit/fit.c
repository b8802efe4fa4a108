// SPDX-License-Identifier: GPL-2.0
/*
 * Best fit against a model that keeps the free pieces of each span in a row and looks
 * through all of them: the same piece is chosen, or one as good, what is given out is
 * aligned and free, and what comes back is one with its neighbours.
 */
#include <kselftest.h>

#include "tow_source.h"

#define SPANS		3
#define SPAN_BYTES	(2 * SPAN)
#define LIVE_MAX	200
#define PIECES		(LIVE_MAX * 2 + SPANS * 2)

static unsigned int seed = 1;

static size_t below(size_t bound)
{
	return (size_t)rand_r(&seed) % bound;
}

/* ---- the model -------------------------------------------------------------- */

static struct piece {
	const char *at;
	size_t bytes;
} pieces[PIECES];
static size_t pieces_count;

static void insert(size_t where, const char *at, size_t bytes)
{
	if (pieces_count == PIECES)
		ksft_exit_fail_msg("the model is full\n");
	memmove(&pieces[where + 1], &pieces[where], (pieces_count++ - where) * sizeof(pieces[0]));
	pieces[where] = (struct piece){ at, bytes };
}

static void erase(size_t where)
{
	memmove(&pieces[where], &pieces[where + 1],
		(--pieces_count - where) * sizeof(pieces[0]));
}

static bool same_span(const char *one, const char *other)
{
	return (uintptr_t)one / SPAN_BYTES == (uintptr_t)other / SPAN_BYTES;
}

static void model_give(const char *at, size_t bytes)
{
	size_t i = 0;

	while (i < pieces_count && pieces[i].at < at)
		i++;
	insert(i, at, bytes);
	if (i + 1 < pieces_count && at + bytes == pieces[i + 1].at &&
	    same_span(at, pieces[i + 1].at)) {
		pieces[i].bytes += pieces[i + 1].bytes;
		erase(i + 1);
	}
	if (i && pieces[i - 1].at + pieces[i - 1].bytes == at &&
	    same_span(at, pieces[i - 1].at)) {
		pieces[i - 1].bytes += pieces[i].bytes;
		erase(i);
	}
}

/* The piece that all of it is in, or the number of pieces. */
static size_t piece_of(const char *at, size_t bytes)
{
	size_t i = 0;

	while (i < pieces_count && (at < pieces[i].at || at + bytes > pieces[i].at +
									       pieces[i].bytes))
		i++;
	return i;
}

static bool model_take(const char *at, size_t bytes)
{
	size_t i = piece_of(at, bytes);
	struct piece piece;

	if (i == pieces_count)
		return false;
	piece = pieces[i];
	erase(i);
	if (at + bytes < piece.at + piece.bytes)
		insert(i, at + bytes, (size_t)(piece.at + piece.bytes - at) - bytes);
	if (piece.at < at)
		insert(i, piece.at, (size_t)(at - piece.at));
	return true;
}

static bool has_place(const struct piece *piece, size_t bytes, size_t alignment)
{
	size_t front = -(uintptr_t)piece->at & (alignment - 1);

	return front + bytes <= piece->bytes;
}

/* The size of the smallest piece with room; 0: there is none. */
static size_t model_smallest(size_t bytes, size_t alignment)
{
	size_t best = 0;

	for (size_t i = 0; i < pieces_count; i++)
		if (has_place(&pieces[i], bytes, alignment) && (!best || pieces[i].bytes < best))
			best = pieces[i].bytes;
	return best;
}

static size_t model_largest(void)
{
	size_t most = 0;

	for (size_t i = 0; i < pieces_count; i++)
		if (pieces[i].bytes > most)
			most = pieces[i].bytes;
	return most;
}

/* ---- both ------------------------------------------------------------------- */

static struct towi_fit fit;
static struct towi_block *live[LIVE_MAX];
static size_t live_count, wrong;

/* As the paper counts tensors: half over 10 KB, a fifth over 1 MB; and small ones. */
static size_t some_bytes(void)
{
	size_t kind = below(10), most = kind < 5 ? 160 : kind < 8 ? 4096 : 20000;

	return (below(most) + 1) * TOWI_GRAIN;
}

static void take(void)
{
	size_t alignment = below(4) ? TOWI_GRAIN : TOWI_GRAIN << below(14);
	size_t bytes = some_bytes(), smallest = model_smallest(bytes, alignment), i;
	struct towi_block *block = towi_fit_take(&fit, bytes, alignment);

	if (!block) {
		wrong += smallest != 0;
		return;
	}
	i = piece_of(block->at, bytes);
	wrong += block->bytes != bytes || (uintptr_t)block->at % alignment ||
		 i == pieces_count;
	if (i < pieces_count && alignment == TOWI_GRAIN)
		wrong += pieces[i].bytes != smallest;
	wrong += !model_take(block->at, bytes);
	live[live_count++] = block;
}

static void give(size_t i)
{
	model_give(live[i]->at, live[i]->bytes);
	towi_fit_give(&fit, live[i]);
	live[i] = live[--live_count];
}

static void resize(size_t i)
{
	struct towi_block *block = live[i];
	size_t before = block->bytes, bytes = some_bytes(), more;
	bool done = towi_fit_resize(&fit, block, bytes);

	wrong += block->bytes != (done ? bytes : before);
	if (bytes < before) {
		wrong += !done;
		model_give(block->at + bytes, before - bytes);
	} else if (bytes > before) {
		more = bytes - before;
		/* There is room behind it, and then it must be had. */
		wrong += done != (piece_of(block->at + before, more) < pieces_count &&
				  same_span(block->at, block->at + bytes - 1));
		wrong += done && !model_take(block->at + before, more);
	}
}

static void compare(void)
{
	size_t free_bytes = 0;

	for (size_t i = 0; i < pieces_count; i++)
		free_bytes += pieces[i].bytes;
	wrong += free_bytes != fit.reserved - fit.taken;
	wrong += pieces_count != fit.free_blocks;
	wrong += model_largest() != towi_fit_largest(&fit);
}

static void test_random(size_t rounds)
{
	for (size_t i = 0; i < rounds && !wrong; i++) {
		size_t what = below(8);

		if (live_count < LIVE_MAX && (!live_count || what < 4))
			take();
		else if (what < 7)
			give(below(live_count));
		else
			resize(below(live_count));
		if (i % 16 == 0)
			compare();
		if (wrong)
			ksft_print_msg("round %zu\n", i);
	}
	ksft_test_result(!wrong, "%zu random operations\n", rounds);
	while (live_count)
		give(0);
	compare();
	ksft_test_result(!wrong && fit.free_blocks == SPANS && !fit.taken,
			 "then each span is one piece\n");
}

/* One of 4 MiB at a multiple of that, so that the model knows spans from each other. */
static void add_span(void)
{
	char *at = source_map(2 * SPAN_BYTES);

	if (!at)
		ksft_exit_fail_msg("no memory\n");
	at += -(uintptr_t)at & (SPAN_BYTES - 1);
	if (towi_fit_add(&fit, at, SPAN_BYTES, at))
		ksft_exit_fail_msg("no span\n");
	model_give(at, SPAN_BYTES);
}

static void test_edges(void)
{
	char *at = source_map(SPAN);
	size_t bytes, kept = 2 * SPAN_BYTES, removed = 0;
	void *owner;

	ksft_test_result(towi_fit_add(&fit, at + 4096, SPAN, NULL) == -EINVAL &&
			 towi_fit_add(&fit, at, SPAN - 64, NULL) == -EINVAL &&
			 towi_fit_add(&fit, at, 0, NULL) == -EINVAL &&
			 towi_fit_add(&fit, (void *)((uintptr_t)1 << 60), SPAN, NULL) == -EINVAL,
			 "spans that are none\n");
	ksft_test_result(!towi_fit_span(&fit, at) && !towi_fit_span(&fit, NULL) &&
			 !towi_fit_span(&fit, (void *)((uintptr_t)1 << 60)) &&
			 !towi_fit_find(&fit, at),
			 "addresses of nobody's\n");
	while (towi_fit_remove(&fit, kept, &owner, &bytes))
		removed += owner && bytes == SPAN_BYTES;
	ksft_test_result(removed == SPANS - 2 && fit.reserved == kept,
			 "spans are given back as far as they may\n");
	towi_fit_take(&fit, TOWI_GRAIN, TOWI_GRAIN);
	while (towi_fit_remove(&fit, 0, &owner, &bytes))
		removed++;
	ksft_test_result(removed == SPANS - 1 && fit.reserved == SPAN_BYTES,
			 "one of which something is taken stays\n");
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(2 + 4);
	if (towi_fit_init(&fit))
		ksft_exit_fail_msg("no memory\n");
	for (int i = 0; i < SPANS; i++)
		add_span();
	test_random(1000000);
	test_edges();
	towi_fit_end(&fit);
	ksft_finished();
}

// SPDX-License-Identifier: GPL-2.0
/* Who is late, as boards tell it: all are asked at once, and nobody is blamed for another one. */
/* build: link -Wl,--wrap=tow_queue_enter -Wl,--wrap=tow_export */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <kselftest.h>

#include "../collective/inside.h"
#include "tow_ring.h"
#include "tow_source.h"

#define RANKS		40U
#define OWN		7U
#define CALLS		5U
#define PLACE		3U
#define TURN_US		1000U

static struct tow_comm comm;
static struct towi_member members[RANKS];
static uint64_t numbers[RANKS];
/* A rank's board is found by its rank: what a remote range begins with, and no more. */
static struct { uint64_t handle; } boards[RANKS];
static uint64_t calls[RANKS];
/* What was asked, and was not answered. */
static struct tow_sqe asked[RANKS];
static uint32_t count;
/* The kernel answers when so many are asked; these never. */
static uint32_t patience;
static bool silent[RANKS];

int __wrap_tow_export(struct tow_region *region, uint64_t offset, uint64_t bytes,
		      const char *name, uint32_t rights, struct tow_exported **exported);

int __wrap_tow_export(struct tow_region *region, uint64_t offset, uint64_t bytes,
		      const char *name, uint32_t rights, struct tow_exported **exported)
{
	(void)region;
	(void)offset;
	(void)bytes;
	(void)name;
	(void)rights;
	*exported = NULL;
	return 0;
}

/* A region's handle is where it is: see struct source_region. */
static void answer(struct tow_queue *queue, const struct tow_sqe *sqe)
{
	uint64_t *to = (uint64_t *)(uintptr_t)(sqe->region + sqe->offset);

	*to = calls[sqe->remote];
	ring_complete(queue, sqe->user_data, 0);
}

static void ring_turn(struct tow_queue *queue)
{
	const struct tow_sqe *sqe;
	uint32_t i;

	while ((sqe = ring_take(queue)))
		asked[count++] = *sqe;
	if (count < patience) {
		usleep(TURN_US);
		return;
	}
	for (i = 0; i < count; i++)
		if (!silent[asked[i].remote])
			answer(queue, &asked[i]);
	count = 0;
	patience = 0;
	usleep(TURN_US);
}

static void go_on(struct towi_runner *runner)
{
	(void)runner;
}

static void begin(struct tow_arena *arena, uint32_t entries)
{
	static struct tow_channel channel;
	static const struct towi_runner_ops ops = { .go_on = go_on };
	uint32_t rank;

	comm = (struct tow_comm){ .runner.ops = &ops, .pump.wake_fd = -1, .arena = arena,
				  .rank = OWN, .ranks = RANKS, .members = members };
	comm.numbers = numbers;
	towi_pump_init(&comm.pump, ring_make(entries), 0, 0);
	towi_pump_join(&comm.pump, &comm.runner);
	memset(members, 0, sizeof(members));
	memset(silent, 0, sizeof(silent));
	for (rank = 0; rank < RANKS; rank++) {
		boards[rank].handle = rank;
		calls[rank] = CALLS;
		members[rank].comm = &comm;
		members[rank].rank = rank;
		members[rank].channel = &channel;
	}
	if (towi_board_make(&comm))
		ksft_exit_fail_msg("no board\n");
	for (rank = 0; rank < RANKS; rank++)
		if (rank != OWN)
			members[rank].board = (struct tow_remote *)&boards[rank];
	count = 0;
	patience = 0;
}

static void end(void)
{
	uint32_t rank;

	for (rank = 0; rank < RANKS; rank++)
		members[rank].board = NULL;
	towi_board_free(&comm);
	ring_free(comm.pump.queue);
}

static bool blames(uint32_t wanted)
{
	uint64_t places[RANKS];
	uint32_t late;

	for (uint32_t rank = 0; rank < RANKS; rank++)
		places[rank] = PLACE;
	towi_pump_lock(&comm.pump);
	late = towi_board_late(&comm, places, CALLS);
	towi_pump_unlock(&comm.pump);
	end();
	if (late != wanted)
		ksft_print_msg("rank %d is late\n", (int)late);
	return late == wanted;
}

int main(void)
{
	struct source source = { 0 };
	struct tow_arena *arena = source_arena(&source, NULL);

	ksft_print_header();
	ksft_set_plan(6);
	begin(arena, 256);
	ksft_test_result(blames(TOW_NO_RANK), "nobody is\n");
	begin(arena, 256);
	calls[30] = CALLS - 1;
	calls[35] = 0;
	ksft_test_result(blames(30), "the first that has not called so often\n");
	begin(arena, 256);
	silent[12] = true;
	silent[13] = true;
	ksft_test_result(blames(12), "the first that does not answer\n");
	/* An answer takes as long as it takes, and there are many: nobody waits for another one's. */
	begin(arena, 256);
	calls[33] = 0;
	patience = RANKS - 1;
	ksft_test_result(blames(33), "all are asked at once\n");
	begin(arena, 4);
	calls[39] = 0;
	ksft_test_result(blames(39), "also where there is little room\n");
	/* Whoever is behind them was not asked. */
	begin(arena, 4);
	for (uint32_t rank = 20; rank < 30; rank++)
		silent[rank] = true;
	ksft_test_result(blames(20), "who could not be asked is not to blame\n");
	tow_arena_destroy(arena);
	ksft_finished();
}

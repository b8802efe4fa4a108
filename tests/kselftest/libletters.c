// SPDX-License-Identifier: GPL-2.0
/*
 * Letters (tow_send(), tow_receive()) against the real module: the ranks are processes of one node.
 * What comes is what was sent, in its order, whoever asks first; and what nobody asks for holds up
 * nothing else.
 */
/* build: link -ltowline */
#include "tow_letters.h"

/* ---- sizes and places ---------------------------------------------------------- */

enum { ARENA, OUTSIDE, IMPORTED, PLACES };

static void *take(const struct tow_mate *me, uint32_t where, uint64_t bytes)
{
	if (where == IMPORTED)
		return tow_import(me->dev, bytes);
	return where == OUTSIDE ? calloc(1, bytes) : tow_arena_alloc(me->arena, bytes);
}

static void give(const struct tow_mate *me, uint32_t where, void *at)
{
	if (where == IMPORTED)
		tow_end_import(me->dev, at);
	else if (where == OUTSIDE)
		free(at);
	else
		tow_arena_free(me->arena, at);
}

/* From each rank to the next one; whoever asks first.  Nothing is written behind it. */
static int pass(const struct tow_mate *me, unsigned char *out, unsigned char *in, uint64_t bytes,
		uint32_t number)
{
	uint32_t next = (me->rank + 1) % me->ranks, before = (me->rank + me->ranks - 1) % me->ranks;
	uint32_t from = number % 3 ? before : TOW_ANY_RANK, tag = number % 5 ? number : TOW_ANY_TAG;
	bool late = number % 2;
	struct tow_work *sent, *got = NULL;

	fill(out, bytes, me->rank + number);
	in[bytes] = 0xa5;
	if (!late)
		MUST((got = receives(me, in, bytes + 1, from, tag)) && all_here(me));
	MUST((sent = sends(me, out, bytes, next, number)));
	/* It has come, as what is behind it has. */
	if (late)
		MUST(!tow_barrier(me->comm, NULL, NULL) &&
		     (got = receives(me, in, bytes + 1, from, tag)));
	MUST(tow_work_wait(got, ENDS_MS * 1000, NULL) == 1 && tells(got, before, number, bytes));
	MUST(tow_work_wait(sent, ENDS_MS * 1000, NULL) == 1 && tells(sent, next, number, bytes));
	MUST(holds(in, bytes, before + number) && in[bytes] == 0xa5 && all_here(me));
	return 0;
}

static int pass_on(const struct tow_mate *me, const uint32_t places[2], uint64_t bytes,
		   uint32_t number)
{
	void *out = take(me, places[0], bytes + 1), *in = take(me, places[1], bytes + 1);
	int ret = out && in ? pass(me, out, in, bytes, number) : wrong(me, __LINE__);

	if (out)
		give(me, places[0], out);
	if (in)
		give(me, places[1], in);
	return ret;
}

static int all_sizes(struct tow_mate *me, uint32_t arg)
{
	static const uint64_t sizes[] = { 0, 1, 2016, SMALL, SMALL + 1, (256ULL << 10) + 1, 1000000 };
	uint32_t number = 0;
	int ret = 0;

	(void)arg;
	for (uint32_t i = 0; !ret && i < ARRAY_SIZE(sizes) * PLACES * PLACES; i++) {
		const uint32_t places[2] = { i % PLACES, i / PLACES % PLACES };

		ret = pass_on(me, places, sizes[i / (PLACES * PLACES)], number++);
		/* Each of them early and late. */
		if (!ret)
			ret = pass_on(me, places, sizes[i / (PLACES * PLACES)], number++);
	}
	return ret;
}

TEST_F_TIMEOUT(letters, of_all_sizes, 180)
{
	tow_all_meet(_metadata, &self->ranks, part_of(2, all_sizes));
}

TEST_F_TIMEOUT(letters, of_all_sizes_to_themselves, 60)
{
	tow_all_meet(_metadata, &self->ranks, part_of(1, all_sizes));
}

/* ---- which one is it? ------------------------------------------------------------ */

#define EACH		40U
#define TAGS		4U
#define OVERTAKES	(TAGS - 1)

static uint64_t mixed_bytes(uint32_t number)
{
	return number % 5 == 2 ? 20000 + number : number * 31ULL;
}

static int send_mixed(const struct tow_mate *me, char *all)
{
	struct tow_work *works[EACH];

	for (uint32_t i = 0; i < EACH; i++) {
		fill(all + i * LARGE, mixed_bytes(i), me->rank * EACH + i);
		works[i] = sends(me, all + i * LARGE, mixed_bytes(i), 0, i % TAGS);
		MUST(works[i]);
	}
	for (uint32_t i = 0; i < EACH; i++)
		MUST(ends_well(works[i]));
	return 0;
}

/* It is that rank's next one, of those that @tag is for. */
static bool is_next(const struct tow_mate *me, struct tow_work *work, const char *at, uint32_t tag)
{
	static bool gone[3][EACH];
	struct tow_work_info info = { .size = sizeof(info) };
	uint32_t i = 0;

	if (tow_work_wait(work, ENDS_MS * 1000, NULL) != 1 || tow_work_info(work, &info) ||
	    info.rank >= me->ranks)
		return false;
	while (i < EACH && (gone[info.rank][i] || (tag != TOW_ANY_TAG && i % TAGS != tag)))
		i++;
	if (i == EACH)
		return false;
	gone[info.rank][i] = true;
	return tells(work, info.rank, i % TAGS, mixed_bytes(i)) &&
	       holds(at, info.bytes, info.rank * EACH + i);
}

/* First those of one tag, half of them before anybody sends; then rank 2's; then what is left. */
static int receive_mixed(const struct tow_mate *me, char *all)
{
	const uint32_t tagged = 2 * EACH / TAGS;
	struct tow_work *works[2 * EACH];

	for (uint32_t i = 0; i < 2 * EACH; i++) {
		uint32_t from = i >= tagged && i < tagged + EACH - EACH / TAGS ? 2 : TOW_ANY_RANK;

		if (i == tagged / 2)
			MUST(all_here(me));
		works[i] = receives(me, all + i * LARGE, LARGE, from,
				    i < tagged ? OVERTAKES : TOW_ANY_TAG);
		MUST(works[i]);
	}
	for (uint32_t i = 0; i < 2 * EACH; i++)
		MUST(is_next(me, works[i], all + i * LARGE, i < tagged ? OVERTAKES : TOW_ANY_TAG));
	return 0;
}

static int by_tag(struct tow_mate *me, uint32_t arg)
{
	char *all = tow_arena_alloc(me->arena, 2ULL * EACH * LARGE);

	(void)arg;
	MUST(all);
	if (!me->rank)
		return receive_mixed(me, all);
	MUST(all_here(me));
	return send_mixed(me, all);
}

TEST_F_TIMEOUT(letters, by_rank_and_tag_in_their_order, 60)
{
	tow_all_meet(_metadata, &self->ranks, part_of(3, by_tag));
}

/* ---- what nobody has asked for ----------------------------------------------------- */

#define MANY		1000U
#define MANY_BYTES	150ULL

static int unexpected(struct tow_mate *me, uint32_t arg)
{
	char *all = tow_arena_alloc(me->arena, MANY * MANY_BYTES), got[MANY_BYTES];
	static struct tow_work *works[MANY];
	uint32_t other = !me->rank;

	(void)arg;
	MUST(all);
	for (uint32_t i = 0; i < MANY; i++) {
		fill(all + i * MANY_BYTES, MANY_BYTES, me->rank + i);
		MUST((works[i] = sends(me, all + i * MANY_BYTES, MANY_BYTES, other, i)));
	}
	MUST(calls_go(me) && calls_go(me));
	for (uint32_t i = MANY; i--;)
		MUST(comes(me, got, MANY_BYTES, other, i, other + i));
	for (uint32_t i = 0; i < MANY; i++)
		MUST(ends_well(works[i]));
	return 0;
}

TEST_F_TIMEOUT(letters, that_nobody_wants_hold_up_no_call, 60)
{
	tow_all_meet(_metadata, &self->ranks, part_of(2, unexpected));
}

#define FULL		30U

/* As many are kept as there is memory for; the others' works have not ended. */
static int fill_up(const struct tow_mate *me, char *all)
{
	struct tow_work *works[FULL], *large;

	for (uint32_t i = 0; i < FULL; i++) {
		fill(all + i * SMALL, SMALL, i);
		MUST((works[i] = sends(me, all + i * SMALL, SMALL, 1, 1)));
	}
	fill(all + FULL * SMALL, LARGE, 77);
	MUST((large = sends(me, all + FULL * SMALL, LARGE, 1, 2)));
	MUST(tow_work_wait(works[0], ENDS_MS * 1000, NULL) == 1 && calls_go(me));
	MUST(!tow_work_test(works[KEPT / SMALL], NULL) && !tow_work_test(large, NULL));
	MUST(all_here(me) && ends_well(large) && all_here(me));
	for (uint32_t i = 0; i < FULL; i++)
		MUST(ends_well(works[i]));
	return 0;
}

static int full(struct tow_mate *me, uint32_t arg)
{
	char *all = tow_arena_alloc(me->arena, FULL * SMALL + LARGE);

	(void)arg;
	MUST(all);
	if (!me->rank)
		return fill_up(me, all);
	MUST(calls_go(me) && all_here(me) && comes(me, all, LARGE, 0, 2, 77) && all_here(me));
	for (uint32_t i = 0; i < FULL; i++)
		MUST(comes(me, all, SMALL, 0, TOW_ANY_TAG, i));
	return 0;
}

TEST_F_TIMEOUT(letters, more_than_are_kept, 60)
{
	tow_all_meet(_metadata, &self->ranks, part_of(2, full));
}

/* ---- too long ------------------------------------------------------------------------ */

/* The other end has too little room; the sender hears of it unless it was kept there. */
static int too_long(struct tow_mate *me, uint32_t bytes, bool kept)
{
	static char out[LARGE], in[LARGE];
	uint32_t other = me->ranks - 1 - me->rank;
	struct tow_work *sent = sends(me, out, bytes, other, 5), *got;
	struct tow_work_info info = { .size = sizeof(info) };

	fill(in, bytes, 3);
	MUST(sent && (got = receives(me, in, bytes - 1, other, 5)));
	MUST(tow_work_wait(got, ENDS_MS * 1000, NULL) == -EMSGSIZE && !tow_work_info(got, &info));
	MUST(info.bytes == bytes && info.rank == other && ends(got, -EMSGSIZE, other));
	MUST(ends(sent, kept ? 1 : -EMSGSIZE, other) && holds(in, bytes, 3));
	MUST(goes_on(me, other, other));
	return 0;
}

/* Of small ones behind those for which there is memory the sender hears, too. */
static int too_long_behind_others(struct tow_mate *me)
{
	static char out[SMALL], in[SMALL];
	struct tow_work *works[KEPT / SMALL];
	uint32_t other = !me->rank;

	fill(out, SMALL, 0);
	for (uint32_t i = 0; i < KEPT / SMALL; i++)
		MUST((works[i] = sends(me, out, SMALL, other, 6)));
	if (too_long(me, SMALL, false))
		return 20;
	for (uint32_t i = 0; i < KEPT / SMALL; i++)
		MUST(comes(me, in, SMALL, other, 6, 0) && ends_well(works[i]));
	return 0;
}

static int all_too_long(struct tow_mate *me, uint32_t arg)
{
	bool alone = me->ranks == 1;
	int ret = too_long(me, 1, !alone) ?: too_long(me, SMALL, !alone);

	(void)arg;
	ret = ret ?: too_long(me, SMALL + 1, false) ?: too_long(me, LARGE, false);
	return ret || alone ? ret : too_long_behind_others(me);
}

TEST_F_TIMEOUT(letters, too_long, 60)
{
	tow_all_meet(_metadata, &self->ranks, part_of(2, all_too_long));
}

TEST_F_TIMEOUT(letters, too_long_to_themselves, 60)
{
	tow_all_meet(_metadata, &self->ranks, part_of(1, all_too_long));
}

TEST_HARNESS_MAIN

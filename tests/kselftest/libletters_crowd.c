// SPDX-License-Identifier: GPL-2.0
/*
 * Letters (tow_send(), tow_receive()) by several threads of a rank, and from any rank to any, of
 * any size, by any tag, among calls of all ranks: all that is sent comes, in its order.
 */
/* build: link -ltowline */
#include "tow_letters.h"

/* ---- threads --------------------------------------------------------------------------- */

#define TURNS		200U

struct writer {
	pthread_t thread;
	struct tow_mate *me;
	bool well;
};

static uint64_t turn_bytes(uint32_t number)
{
	return number % 10 == 7 ? LARGE - number : number * 97ULL;
}

static void *write_all(void *arg)
{
	struct writer *writer = arg;
	struct tow_mate *me = writer->me;
	char *out = malloc(LARGE);
	bool well = out;

	for (uint32_t i = 0; well && i < TURNS; i++) {
		fill(out, turn_bytes(i), me->rank + i);
		well = !tow_send(me->comm, out, turn_bytes(i), u8, !me->rank, i, NULL, NULL);
	}
	free(out);
	writer->well = well;
	return NULL;
}

static int at_once(struct tow_mate *me, uint32_t arg)
{
	struct writer writer = { .me = me };
	char *in = tow_arena_alloc(me->arena, LARGE);
	bool well = in;

	(void)arg;
	MUST(well && !pthread_create(&writer.thread, NULL, write_all, &writer));
	for (uint32_t i = 0; well && i < TURNS; i++)
		well = comes(me, in, turn_bytes(i), i % 2 ? !me->rank : TOW_ANY_RANK, i,
			     !me->rank + i);
	MUST(well);
	pthread_join(writer.thread, NULL);
	MUST(writer.well);
	return 0;
}

TEST_F_TIMEOUT(letters, of_one_thread_for_another, 60)
{
	tow_all_meet(_metadata, &self->ranks, part_of(2, at_once));
}

/* ---- any to any -------------------------------------------------------------------------- */

#define RANKS		4U
#define LETTERS		300U
#define REDUCES		50U
#define TAGS		3U
#define BATCH		4U

/* The @number-th one of a rank's. */
struct planned {
	uint32_t to, tag;
	uint64_t bytes;
};

static uint32_t hash(uint32_t rank, uint32_t number, uint32_t salt)
{
	uint32_t mixed = (rank + 1) * 0x85ebca6bU ^ (number + 1) * 0x9e3779b1U ^ salt * 0xc2b2ae35U;

	mixed = (mixed ^ mixed >> 15) * 0x2c1b3c6dU;
	return mixed ^ mixed >> 12;
}

static struct planned planned(uint32_t rank, uint32_t number)
{
	uint32_t size = hash(rank, number, 3);

	return (struct planned){
		.to = hash(rank, number, 1) % RANKS,
		.tag = hash(rank, number, 2) % TAGS,
		.bytes = size / 8 % (size % 8 < 5 ? 500 : size % 8 < 7 ? SMALL : LARGE / 3),
	};
}

/* What a rank has got, of those that were planned for it; all have sent so many by now, or will. */
struct got {
	bool gone[RANKS][LETTERS];
	uint32_t sent;
};

/* Which of them a receiver is for; @rank or @tag may be any. */
struct filter {
	uint32_t rank, tag;
};

static bool is_due(const struct tow_mate *me, const struct got *got, const struct filter *filter,
		   uint32_t rank, uint32_t number)
{
	struct planned plan = planned(rank, number);

	return !got->gone[rank][number] && plan.to == me->rank &&
	       (filter->rank == TOW_ANY_RANK || filter->rank == rank) &&
	       (filter->tag == TOW_ANY_TAG || filter->tag == plan.tag);
}

static uint32_t count_due(const struct tow_mate *me, const struct got *got,
			  const struct filter *filter)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < RANKS * got->sent; i++)
		count += is_due(me, got, filter, i % RANKS, i / RANKS);
	return count;
}

/* It is the first one of its rank, of those that are due. */
static bool is_right(const struct tow_mate *me, struct got *got, const struct filter *filter,
		     struct tow_work *work, const char *at)
{
	struct tow_work_info info = { .size = sizeof(info) };
	struct planned plan;
	uint32_t i = 0;

	if (tow_work_wait(work, ENDS_MS * 1000, NULL) != 1 || tow_work_info(work, &info) ||
	    info.rank >= RANKS)
		return false;
	while (i < LETTERS && !is_due(me, got, filter, info.rank, i))
		i++;
	if (i == LETTERS)
		return false;
	got->gone[info.rank][i] = true;
	plan = planned(info.rank, i);
	return tells(work, info.rank, plan.tag, plan.bytes) &&
	       holds(at, plan.bytes, info.rank * LETTERS + i);
}

/* As many as are due, and no more than a batch, at once; all of them come. */
static int receive_some(const struct tow_mate *me, struct got *got, uint32_t number, char *in)
{
	const struct filter filter = {
		number % 3 ? TOW_ANY_RANK : number / 3 % RANKS,
		number % 2 ? TOW_ANY_TAG : number / 2 % TAGS,
	};
	uint32_t due = count_due(me, got, &filter), count = due < BATCH ? due : BATCH;
	struct tow_work *works[BATCH];

	for (uint32_t i = 0; i < count; i++)
		MUST((works[i] = receives(me, in + i * LARGE, LARGE, filter.rank, filter.tag)));
	for (uint32_t i = 0; i < count; i++)
		MUST(is_right(me, got, &filter, works[i], in + i * LARGE));
	return 0;
}

struct sent {
	struct tow_work *work, *reduces;
	char *at;
	uint64_t sum;
};

/* And now and then all ranks reduce, and do not wait for it. */
static int send_one(const struct tow_mate *me, struct sent *sent, uint32_t number)
{
	const struct tow_dtype i64 = { TOW_DTYPE_INT, 64, 1 };
	struct planned plan = planned(me->rank, number);

	sent->at = number % 2 ? tow_arena_alloc(me->arena, plan.bytes + 1) : malloc(plan.bytes + 1);
	MUST(sent->at);
	fill(sent->at, plan.bytes, me->rank * LETTERS + number);
	MUST((sent->work = sends(me, sent->at, plan.bytes, plan.to, plan.tag)));
	if (number % REDUCES)
		return 0;
	sent->sum = me->rank + number;
	MUST(!tow_allreduce(me->comm, NULL, &sent->sum, 1, i64, TOW_SUM, NULL, &sent->reduces));
	return 0;
}

static int has_sent(const struct tow_mate *me, struct sent *sent, uint32_t number)
{
	MUST(ends_well(sent->work));
	if (number % 2)
		tow_arena_free(me->arena, sent->at);
	else
		free(sent->at);
	if (sent->reduces)
		MUST(ends_well(sent->reduces) &&
		     sent->sum == RANKS * (2ULL * number + RANKS - 1) / 2);
	return 0;
}

static int any_to_any(struct tow_mate *me, uint32_t arg)
{
	const struct filter any = { TOW_ANY_RANK, TOW_ANY_TAG };
	char *in = tow_arena_alloc(me->arena, BATCH * LARGE);
	static struct sent sent[LETTERS];
	static struct got got;
	int ret = 0;

	(void)arg;
	MUST(in);
	for (uint32_t number = 0; !ret && number < LETTERS; number++) {
		ret = send_one(me, &sent[number], number);
		got.sent = number + 1;
		if (!ret)
			ret = receive_some(me, &got, hash(me->rank, number, 4), in);
	}
	for (uint32_t number = 0; !ret && count_due(me, &got, &any); number++)
		ret = receive_some(me, &got, number, in);
	for (uint32_t number = 0; !ret && number < LETTERS; number++)
		ret = has_sent(me, &sent[number], number);
	return ret;
}

TEST_F_TIMEOUT(letters, from_any_rank_to_any, 180)
{
	tow_all_meet(_metadata, &self->ranks, part_of(RANKS, any_to_any));
}

TEST_HARNESS_MAIN

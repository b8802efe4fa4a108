/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What tests of letters (tow_send(), tow_receive()) share: ranks that write and read them.
 */
#ifndef TOW_LETTERS_H
#define TOW_LETTERS_H

#include "tow_elements.h"
#include "tow_mates.h"

/* No letter takes so long. */
#define ENDS_MS		60000U
/* The longest that goes in records, and what is kept of such at the other end. */
#define SMALL		(16ULL << 10)
#define KEPT		(64ULL << 10)
#define LARGE		300000ULL

static const struct tow_dtype u8 = { TOW_DTYPE_UINT, 8, 1 };

/* ---- ranks ------------------------------------------------------------------- */

/* What all processes see: how often somebody has come. */
static _Atomic uint32_t *there;

FIXTURE(letters)
{
	struct tow_ranks ranks;
};

FIXTURE_SETUP(letters)
{
	ASSERT_EQ(0, tow_ranks_begin(&self->ranks, "400m"));
	there = tow_ranks_share(sizeof(*there));
	ASSERT_TRUE(there);
}

FIXTURE_TEARDOWN(letters)
{
	tow_ranks_end(&self->ranks);
	munmap(there, sizeof(*there));
}

static inline struct tow_part part_of(uint32_t ranks,
				      int (*then)(struct tow_mate *me, uint32_t arg))
{
	return (struct tow_part){ .ranks = ranks, .timeout_ms = ENDS_MS, .then = then };
}

/* What a rank's process ends with. */
static inline int wrong(const struct tow_mate *me, int line)
{
	fprintf(stderr, "# rank %u of %u: line %d\n", me->rank, me->ranks, line);
	return 20;
}

#define MUST(that) do { \
	if (!(that)) \
		return wrong(me, __LINE__); \
} while (0)

/* Nobody goes on before all have come, without the library: false: somebody does not. */
static inline bool all_here(const struct tow_mate *me)
{
	static uint32_t times;

	atomic_fetch_add(there, 1);
	return tow_becomes(there, ++times * me->ranks);
}

/* Calls of all ranks go well. */
static inline bool calls_go(const struct tow_mate *me)
{
	uint64_t sum = me->rank + 1, root = me->rank;
	const struct tow_dtype i64 = { TOW_DTYPE_INT, 64, 1 };
	static float many[100000];

	many[99999] = 1;
	return !tow_allreduce(me->comm, NULL, &sum, 1, i64, TOW_SUM, NULL, NULL) &&
	       sum == (me->ranks + 1ULL) * me->ranks / 2 &&
	       !tow_broadcast(me->comm, &root, 1, i64, 1, NULL, NULL) && root == 1 &&
	       !tow_allreduce(me->comm, NULL, many, 100000, tow_dtypes[0], TOW_SUM, NULL, NULL) &&
	       many[99999] == (float)me->ranks && !tow_barrier(me->comm, NULL, NULL);
}

/* ---- letters ----------------------------------------------------------------- */

/* A prime: what is moved to another place is wrong there. */
#define PERIOD		251U

static inline void fill(void *to, uint64_t bytes, uint32_t salt)
{
	unsigned char *at = to;

	for (uint64_t i = 0; i < bytes && i < PERIOD; i++)
		at[i] = (unsigned char)(i * 3 + salt * 89ULL + salt / 256);
	for (uint64_t done = PERIOD, step; done < bytes; done += step) {
		step = done < bytes - done ? done : bytes - done;
		memcpy(at + done, at, step);
	}
}

static inline bool holds(const void *from, uint64_t bytes, uint32_t salt)
{
	unsigned char first[PERIOD];
	uint64_t least = bytes < PERIOD ? bytes : PERIOD;

	fill(first, least, salt);
	return !memcmp(from, first, least) &&
	       (bytes <= PERIOD || !memcmp((const char *)from + PERIOD, from, bytes - PERIOD));
}

static inline struct tow_work *sends(const struct tow_mate *me, const void *data, uint64_t bytes,
				     uint32_t to, uint32_t tag)
{
	struct tow_work *work = NULL;
	int ret = tow_send(me->comm, data, bytes, u8, to, tag, NULL, &work);

	if (ret)
		fprintf(stderr, "# rank %u: sends: %d\n", me->rank, ret);
	return work;
}

static inline struct tow_work *receives(const struct tow_mate *me, void *data, uint64_t bytes,
					uint32_t from, uint32_t tag)
{
	struct tow_work *work = NULL;
	int ret = tow_receive(me->comm, data, bytes, u8, from, tag, NULL, &work);

	if (ret)
		fprintf(stderr, "# rank %u: receives: %d\n", me->rank, ret);
	return work;
}

/* It ends so, blames that rank, if it fails, and is freed. */
static inline bool ends(struct tow_work *work, int wanted, uint32_t whom)
{
	uint32_t blamed = 0;
	int ret = tow_work_wait(work, ENDS_MS * 1000, &blamed);

	tow_work_free(work);
	if (ret == wanted && blamed == (wanted == 1 ? TOW_NO_RANK : whom))
		return true;
	fprintf(stderr, "# ended with %d, not %d; blamed: %d\n", ret, wanted, (int)blamed);
	return false;
}

static inline bool ends_well(struct tow_work *work)
{
	return ends(work, 1, TOW_NO_RANK);
}

/* It says so, and is freed. */
static inline bool tells(struct tow_work *work, uint32_t rank, uint32_t tag, uint64_t bytes)
{
	struct tow_work_info info = { .size = sizeof(info) };
	int ret = tow_work_info(work, &info);

	if (!ret && info.rank == rank && info.tag == tag && info.bytes == bytes)
		return ends_well(work);
	fprintf(stderr, "# %d: rank %u, tag %u, %u bytes; not %u, %u, %u\n", ret, info.rank,
		info.tag, (uint32_t)info.bytes, rank, tag, (uint32_t)bytes);
	return false;
}

/* One comes to @data, and has that. */
static inline bool comes(const struct tow_mate *me, void *data, uint64_t bytes, uint32_t from,
			 uint32_t tag, uint32_t salt)
{
	int ret = tow_receive(me->comm, data, bytes, u8, from, tag, NULL, NULL);

	if (!ret && holds(data, bytes, salt))
		return true;
	fprintf(stderr, "# rank %u: of rank %d, tag %u, %u bytes: %d\n", me->rank, (int)from, tag,
		(uint32_t)bytes, ret);
	return false;
}

/* To @to and from @from, of what is of use to nobody else: what follows works. */
static inline bool goes_on(const struct tow_mate *me, uint32_t to, uint32_t from)
{
	static char out[LARGE], in[LARGE];
	struct tow_work *work;
	bool well = true;

	for (uint64_t bytes = 100; bytes <= LARGE; bytes += LARGE - 100) {
		fill(out, bytes, me->rank);
		work = sends(me, out, bytes, to, 4000);
		well = well && work && comes(me, in, bytes, from, 4000, from) && ends_well(work);
	}
	return well;
}

#endif /* TOW_LETTERS_H */

// SPDX-License-Identifier: GPL-2.0
/*
 * Letters (tow_send(), tow_receive()) that do not come: they are late, their rank dies, leaves or
 * aborts; works, which may be freed before they have ended; and what is refused.
 */
/* build: link -ltowline */
#include "tow_letters.h"

#define TOLD_MS		15000U
#define LATE_MS		300U
#define TAG		7U

/* ---- works ------------------------------------------------------------------------ */

/* Nothing is known of it before it has ended. */
static int is_told(struct tow_mate *me)
{
	struct tow_work_info info = { .size = sizeof(info) };
	uint32_t other = !me->rank;
	struct tow_work *work;
	char in[16], out[16];

	fill(out, 10, 1);
	MUST((work = receives(me, in, 16, TOW_ANY_RANK, TOW_ANY_TAG)));
	MUST(tow_work_info(work, &info) == -EBUSY && all_here(me));
	MUST(!tow_send(me->comm, out, 10, u8, other, TAG, NULL, NULL));
	MUST(tow_work_wait(work, ENDS_MS * 1000, NULL) == 1 && holds(in, 10, 1));
	MUST(tow_work_info(NULL, &info) == -EINVAL && tow_work_info(work, NULL) == -EINVAL);
	info.size = 8;
	MUST(tow_work_info(work, &info) == -EINVAL && tells(work, other, TAG, 10));
	/* It is nobody's. */
	MUST(!tow_barrier(me->comm, NULL, &work));
	MUST(tow_work_wait(work, ENDS_MS * 1000, NULL) == 1 && tells(work, TOW_NO_RANK, 0, 0));
	return 0;
}

/* What nobody waits for comes nevertheless: before what is as large, and behind it. */
static int freed_early(struct tow_mate *me)
{
	static char out[LARGE], in[2][LARGE];
	uint32_t other = !me->rank;
	struct tow_work *works[2];

	fill(out, LARGE, me->rank);
	MUST((works[0] = receives(me, in[0], LARGE, other, TAG)));
	tow_work_free(works[0]);
	MUST((works[0] = sends(me, out, LARGE, other, TAG)));
	tow_work_free(works[0]);
	MUST((works[0] = receives(me, in[1], LARGE, other, TAG)));
	MUST((works[1] = sends(me, out, LARGE, other, TAG)));
	MUST(ends_well(works[0]) && ends_well(works[1]));
	MUST(holds(in[0], LARGE, other) && holds(in[1], LARGE, other));
	return 0;
}

/* When all that was freed has ended, too. */
static int end_in_time(struct tow_mate *me)
{
	struct tow_patience patience = tow_patience(ENDS_MS / 1e3);
	int ret;

	while ((ret = tow_comm_destroy(me->comm)) == -EBUSY && tow_patient(&patience))
		MUST(goes_on(me, me->rank, me->rank));
	MUST(!ret);
	me->comm = NULL;
	return 0;
}

static int all_works(struct tow_mate *me, uint32_t arg)
{
	(void)arg;
	return is_told(me) ?: freed_early(me) ?: end_in_time(me);
}

TEST_F_TIMEOUT(letters, works, 60)
{
	tow_all_meet(_metadata, &self->ranks, part_of(2, all_works));
}

/* ---- late --------------------------------------------------------------------------- */

static const struct tow_call_attr in_time = {
	.size = sizeof(struct tow_call_attr), .timeout_ms = LATE_MS,
};

/* One that nobody sends; what is sent later comes to who asks then. */
static int receives_late(struct tow_mate *me)
{
	uint32_t other = !me->rank;
	double begin_at = tow_clock_begin();
	char in[100], out[100];
	struct tow_work *work;

	MUST(!tow_receive(me->comm, in, 100, u8, other, TAG, &in_time, &work));
	MUST(ends(work, -ETIMEDOUT, other) && tow_test_now() - begin_at >= LATE_MS / 1e3);
	MUST(tow_receive(me->comm, in, 100, u8, TOW_ANY_RANK, TAG, &in_time, NULL) == -ETIMEDOUT);
	MUST(tow_receive(me->comm, in, 100, u8, me->rank, TAG, &in_time, NULL) == -ETIMEDOUT);
	fill(in, 100, 9);
	fill(out, 100, me->rank);
	MUST(calls_go(me) && (work = sends(me, out, 100, other, TAG)) && calls_go(me));
	MUST(holds(in, 100, 9) && comes(me, in, 100, other, TAG, other) && ends_well(work));
	return 0;
}

/* One to itself, which nobody receives any more. */
static int sends_itself_late(struct tow_mate *me)
{
	char in[100], out[100];
	struct tow_work *work;

	fill(out, 100, 1);
	MUST(tow_send(me->comm, out, 100, u8, me->rank, TAG, &in_time, NULL) == -ETIMEDOUT);
	fill(out, 100, 2);
	MUST((work = sends(me, out, 100, me->rank, TAG)));
	MUST(comes(me, in, 100, me->rank, TAG, 2) && ends_well(work));
	return 0;
}

/* More than there are records for, but not more than are kept. */
#define CROWD		600U
#define CROWD_BYTES	40U

/* Behind them one was not begun, while the other end, which has come, does not look. */
static int sends_late(struct tow_mate *me)
{
	static struct tow_work *works[CROWD];
	char out[CROWD_BYTES], last[CROWD_BYTES];

	fill(out, CROWD_BYTES, 3);
	MUST(all_here(me));
	for (uint32_t i = 0; i < CROWD; i++)
		MUST((works[i] = sends(me, out, CROWD_BYTES, 1, TAG)));
	MUST(tow_send(me->comm, out, CROWD_BYTES, u8, 1, TAG + 1, &in_time, NULL) == -ETIMEDOUT);
	fill(last, CROWD_BYTES, 4);
	MUST(all_here(me) && !tow_send(me->comm, last, CROWD_BYTES, u8, 1, TAG + 1, NULL, NULL));
	for (uint32_t i = 0; i < CROWD; i++)
		MUST(ends_well(works[i]));
	return 0;
}

static int looks_late(struct tow_mate *me)
{
	char in[CROWD_BYTES];

	MUST(all_here(me) && all_here(me) && comes(me, in, CROWD_BYTES, 0, TAG + 1, 4));
	for (uint32_t i = 0; i < CROWD; i++)
		MUST(comes(me, in, CROWD_BYTES, 0, TAG, 3));
	return 0;
}

/* What was begun, or may be, fails the communicator. */
static int begun_and_late(struct tow_mate *me)
{
	static char data[LARGE];
	uint32_t other = !me->rank;
	struct tow_work *work;

	if (me->rank)
		MUST((work = receives(me, data, LARGE, other, TAG)) && ends(work, -ETIMEDOUT, 1));
	else
		MUST(!tow_send(me->comm, data, LARGE, u8, other, TAG + 1, &in_time, &work) &&
		     ends(work, -ETIMEDOUT, 1));
	MUST(tow_barrier(me->comm, NULL, NULL) == -ETIMEDOUT);
	MUST(tow_send(me->comm, data, 1, u8, me->rank, TAG, NULL, NULL) == -ETIMEDOUT);
	return 0;
}

static int all_late(struct tow_mate *me, uint32_t arg)
{
	int ret = receives_late(me) ?: sends_itself_late(me);

	(void)arg;
	ret = ret ?: me->rank ? looks_late(me) : sends_late(me);
	MUST(ret || (calls_go(me) && goes_on(me, !me->rank, !me->rank)));
	return ret ?: begun_and_late(me);
}

TEST_F_TIMEOUT(letters, too_late, 60)
{
	tow_all_meet(_metadata, &self->ranks, part_of(2, all_late));
}

/* ---- ranks that do not go on ------------------------------------------------------------- */

/* A letter of rank 1's does not come; from any it would. */
static int dies(struct tow_mate *me, uint32_t arg)
{
	static char data[LARGE];
	struct tow_work *works[3];

	(void)arg;
	MUST(goes_on(me, (me->rank + 1) % 3, (me->rank + 2) % 3) && all_here(me));
	if (me->rank == 1)
		raise(SIGKILL);
	works[0] = receives(me, data, 100, me->rank ? TOW_ANY_RANK : 1, TAG);
	works[1] = sends(me, data, LARGE, 2 - me->rank, TAG + 1);
	works[2] = receives(me, data, 100, me->rank, TAG);
	for (uint32_t i = 0; i < 3; i++)
		MUST(works[i] && ends(works[i], -ESTALE, 1));
	MUST(tow_send(me->comm, data, 1, u8, 1, TAG, NULL, NULL) == -ESTALE);
	MUST(!tow_comm_destroy(me->comm));
	me->comm = NULL;
	return 0;
}

TEST_F_TIMEOUT(letters, of_a_rank_that_dies, 60)
{
	uint32_t first = tow_all_start(&self->ranks, part_of(3, dies));
	double begin_at;

	EXPECT_EQ(SIGKILL, tow_ranks_end_of(&self->ranks, first + 1));
	begin_at = tow_clock_begin();
	EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, first));
	EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, first + 2));
	TOW_WITHIN(begin_at, TOLD_MS);
}

/* Rank 1 does; what it has sent before is received, and others' letters come. */
static int leaves(struct tow_mate *me, uint32_t arg)
{
	char in[100], out[100];
	struct tow_work *work;

	(void)arg;
	fill(out, 100, me->rank);
	MUST(goes_on(me, (me->rank + 1) % 3, (me->rank + 2) % 3));
	if (me->rank == 1) {
		MUST(!tow_send(me->comm, out, 100, u8, 0, TAG, NULL, NULL));
		MUST(!tow_send(me->comm, out, 100, u8, 2, TAG, NULL, NULL));
		MUST(all_here(me) && !tow_comm_destroy(me->comm));
		me->comm = NULL;
		return 0;
	}
	MUST((work = receives(me, in, 100, 1, TAG + 1)) && all_here(me) && ends(work, -ESTALE, 1));
	MUST((work = receives(me, in, 100, 1, TAG + 1)) && ends(work, -ESTALE, 1));
	MUST(comes(me, in, 100, TOW_ANY_RANK, TAG, 1));
	MUST((work = sends(me, out, 100, 1, TAG)) && ends(work, -ESTALE, 1));
	MUST(goes_on(me, 2 - me->rank, 2 - me->rank));
	return 0;
}

TEST_F_TIMEOUT(letters, of_a_rank_that_leaves, 60)
{
	tow_all_meet(_metadata, &self->ranks, part_of(3, leaves));
}

/* Rank 1 does, while there are letters of all kinds. */
static int aborts(struct tow_mate *me, uint32_t arg)
{
	uint32_t next = (me->rank + 1) % me->ranks;
	static char data[LARGE];
	struct tow_work *works[6];

	(void)arg;
	works[0] = receives(me, data, 100, next, TAG);
	works[1] = receives(me, data, LARGE, TOW_ANY_RANK, TAG);
	works[2] = sends(me, data, LARGE, next, TAG + 1);
	works[3] = sends(me, data, LARGE, me->rank, TAG + 2);
	works[4] = sends(me, data, 100, me->rank, TAG + 3);
	works[5] = receives(me, data, LARGE, me->rank, TAG + 4);
	MUST(all_here(me));
	if (me->rank == 1)
		MUST(!usleep(50000) && !tow_comm_abort(me->comm));
	for (uint32_t i = 0; i < ARRAY_SIZE(works); i++)
		MUST(works[i] && ends(works[i], -ECANCELED, 1));
	MUST(tow_receive(me->comm, data, 100, u8, me->rank, TAG, NULL, NULL) == -ECANCELED);
	return 0;
}

TEST_F_TIMEOUT(letters, of_a_rank_that_aborts, 60)
{
	tow_all_meet(_metadata, &self->ranks, part_of(3, aborts));
}

/* ---- refused ----------------------------------------------------------------------------- */

static int says(const struct tow_mate *me, const char *what, int wanted, int ret,
		struct tow_work *work)
{
	if (ret == wanted && !work)
		return 0;
	fprintf(stderr, "# rank %u: %s: %d, not %d%s\n", me->rank, what, ret, wanted,
		work ? ", and a work" : "");
	return 1;
}

/* In functions with @me, @work, which is NULL, and @wrongs. */
#define REFUSES(error, ...)	(wrongs += says(me, #__VA_ARGS__, error, __VA_ARGS__, work))

/* Of a later version: with something that this one does not know. */
struct later_attr {
	struct tow_call_attr known;
	uint64_t unknown;
};

static int refused(struct tow_mate *me)
{
	const struct later_attr later = { .known = { .size = sizeof(later) }, .unknown = 1 };
	const struct tow_dtype none = { 0 }, nibble = { TOW_DTYPE_INT, 4, 1 }, f64 = tow_dtypes[1];
	struct tow_call_attr attr = { .size = 4 };
	struct tow_comm *comm = me->comm;
	struct tow_work *work = NULL;
	uint64_t many = UINT64_MAX / 4;
	int wrongs = 0;
	char c = 0;

	REFUSES(-EINVAL, tow_send(NULL, &c, 1, u8, 0, 0, NULL, &work));
	REFUSES(-EINVAL, tow_send(comm, NULL, 1, u8, 0, 0, NULL, &work));
	REFUSES(-EINVAL, tow_send(comm, &c, 1, none, 0, 0, NULL, &work));
	REFUSES(-EINVAL, tow_send(comm, &c, 1, u8, me->ranks, 0, NULL, &work));
	REFUSES(-EINVAL, tow_send(comm, &c, 1, u8, TOW_ANY_RANK, 0, NULL, &work));
	REFUSES(-EINVAL, tow_send(comm, &c, 1, u8, 0, TOW_ANY_TAG, NULL, NULL));
	REFUSES(-EOPNOTSUPP, tow_send(comm, &c, 1, nibble, 0, 0, NULL, &work));
	REFUSES(-EOVERFLOW, tow_send(comm, &c, many, f64, 0, 0, NULL, &work));
	REFUSES(-EOVERFLOW, tow_send(comm, &c, 1ULL << 62, u8, 0, 0, NULL, &work));
	REFUSES(-E2BIG, tow_send(comm, &c, 1, u8, 0, 0, &later.known, &work));
	REFUSES(-EINVAL, tow_send(comm, &c, 1, u8, 0, 0, &attr, &work));
	REFUSES(-EINVAL, tow_receive(NULL, &c, 1, u8, 0, 0, NULL, &work));
	REFUSES(-EINVAL, tow_receive(comm, NULL, 1, u8, 0, 0, NULL, &work));
	REFUSES(-EINVAL, tow_receive(comm, &c, 1, none, 0, 0, NULL, &work));
	REFUSES(-EINVAL, tow_receive(comm, &c, 1, u8, me->ranks, 0, NULL, &work));
	REFUSES(-EOPNOTSUPP, tow_receive(comm, &c, 1, nibble, 0, 0, NULL, NULL));
	REFUSES(-EOVERFLOW, tow_receive(comm, &c, many, f64, 0, 0, NULL, &work));
	REFUSES(-E2BIG, tow_receive(comm, &c, 1, u8, 0, 0, &later.known, &work));
	attr = (struct tow_call_attr){ .size = sizeof(attr), .algorithm = TOW_ALGORITHM_RING };
	REFUSES(-EINVAL, tow_send(comm, &c, 1, u8, 0, 0, &attr, &work));
	attr = (struct tow_call_attr){ .size = sizeof(attr), .piece_bytes = 64 };
	REFUSES(-EINVAL, tow_receive(comm, &c, 1, u8, 0, 0, &attr, &work));
	return wrongs;
}

static int in_a_child(struct tow_mate *me, struct tow_work *waited)
{
	struct tow_work *work = NULL;
	int wrongs = 0;
	char c = 0;

	REFUSES(-EPERM, tow_send(me->comm, &c, 1, u8, 0, 0, NULL, &work));
	REFUSES(-EPERM, tow_receive(me->comm, &c, 1, u8, 0, 0, NULL, NULL));
	REFUSES(-EPERM, tow_work_wait(waited, 0, NULL));
	tow_work_free(waited);
	return wrongs;
}

/* A child that comes and goes does no harm to what is waited for; nor does what was refused. */
static int all_refused(struct tow_mate *me, uint32_t arg)
{
	uint32_t other = !me->rank;
	char in[100], out[100];
	struct tow_work *work;
	int status = 1;
	pid_t pid;

	(void)arg;
	fill(out, 100, me->rank);
	MUST(!refused(me) && (work = receives(me, in, 100, other, TAG)));
	/* It has not ended: rank 1 is to be kept from leaving. */
	MUST(tow_comm_destroy(me->comm) == -EBUSY);
	pid = fork();
	if (!pid)
		_exit(in_a_child(me, work));
	MUST(waitpid(pid, &status, 0) == pid && !status && all_here(me));
	MUST(!tow_send(me->comm, out, 100, u8, other, TAG, NULL, NULL));
	MUST(ends_well(work) && holds(in, 100, other) && goes_on(me, other, other));
	return 0;
}

TEST_F(letters, refused)
{
	tow_all_meet(_metadata, &self->ranks, part_of(2, all_refused));
}

TEST_HARNESS_MAIN

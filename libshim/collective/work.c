// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/* Works: what a program has asked for, and waits for. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

/* Of structures, when they were first published. */
#define CALL_ATTR_SIZE_FIRST \
	(offsetof(struct tow_call_attr, timeout_ms) + sizeof(uint32_t))
#define WORK_INFO_SIZE_FIRST \
	(offsetof(struct tow_work_info, bytes) + sizeof(uint64_t))
#define COMM_STATS_SIZE_FIRST \
	(offsetof(struct tow_comm_stats, copied_bytes) + sizeof(uint64_t))

/* ---- life -------------------------------------------------------------------------------- */

int towi_take_call_attr(const struct tow_call_attr *attr, struct tow_call_attr *known)
{
	return towi_take(attr, CALL_ATTR_SIZE_FIRST, known, sizeof(*known));
}

int towi_comm_usable(const struct tow_comm *comm)
{
	return towi_comm_ours(comm) ? comm->error : -EPERM;
}

void towi_work_begin(struct tow_work *work)
{
	struct tow_comm *comm = work->comm;

	TAILQ_INIT(&work->open);
	work->blamed = TOW_NO_RANK;
	LIST_INSERT_HEAD(&comm->calls->all, work, all);
	comm->probe_us = towi_until(TOWI_PROBE_US);
	towi_pump_ready(&comm->calls->runner);
}

void towi_work_end(struct tow_work *work)
{
	struct tow_comm *comm = work->comm;

	work->ended = true;
	if (work->freed)
		free(work);
	/* Who waits for it may be another thread. */
	towi_pump_wake(&comm->pump);
}

void towi_works_leave(struct tow_comm *comm)
{
	struct tow_work *work;

	while ((work = LIST_FIRST(&comm->calls->all))) {
		LIST_REMOVE(work, all);
		work->comm = NULL;
	}
}

/* ---- waiting ----------------------------------------------------------------------------- */

/* Who has left does not send any more; what it had sent is there. */
static void look_who_left(struct tow_work *work)
{
	struct tow_comm *comm = work->comm;
	uint32_t rank = work->ops->waits_for(work);

	if (rank == TOW_NO_RANK || !towi_board_has_left(comm, rank))
		return;
	if (!towi_comm_progress(comm) && !work->ended && work->ops->waits_for(work) == rank)
		work->ops->gone(work, rank);
}

/* While nothing comes others may be gone, or late. */
static void doubt(struct tow_work *work, bool any, uint64_t now_us)
{
	struct tow_comm *comm = work->comm;

	if (comm->error)
		return;
	if (now_us >= work->until_us) {
		work->ops->late(work);
	} else if (any) {
		comm->probe_us = now_us + TOWI_PROBE_US;
	} else if (now_us >= comm->probe_us) {
		comm->probe_us = now_us + TOWI_PROBE_US;
		towi_board_probe(comm);
		look_who_left(work);
		if (!work->ended && work->ops->waits)
			work->ops->waits(work);
	}
}

/* How it is at @now_us: 1; 0: it has not ended; or what it has ended with. */
static int look(struct tow_work *work, bool *any, uint64_t *now_us)
{
	if (!work->ended)
		*any = towi_comm_progress(work->comm);
	*now_us = towi_now_ns() / 1000;
	if (!work->ended)
		doubt(work, *any, *now_us);
	if (!work->ended)
		return 0;
	return work->status ? work->status : 1;
}

static int sleep_for_it(struct tow_work *work, uint64_t end)
{
	struct tow_comm *comm = work->comm;

	/* What another thread goes on with it tells of. */
	if (!comm->calls->going && !towi_pairs_arm(comm))
		return 0;
	return towi_comm_sleep(comm, work->until_us < end ? work->until_us : end);
}

static int wait_until(struct tow_work *work, uint64_t end)
{
	struct towi_pump *pump = &work->comm->pump;
	uint64_t now, busy_until = 0;
	bool any = false;
	int ret, slept = 0;

	towi_pump_lock(pump);
	while (!(ret = look(work, &any, &now)) && now < end && !slept) {
		if (any || !busy_until)
			busy_until = now + work->comm->spin_us;
		else if (now >= busy_until)
			slept = sleep_for_it(work, end);
	}
	towi_pump_unlock(pump);
	return ret ? ret : slept;
}

/* Of a communicator that was destroyed it has ended. */
static int ask(struct tow_work *work, uint64_t end, uint32_t *blamed)
{
	int ret;

	if (blamed)
		*blamed = TOW_NO_RANK;
	if (!work)
		return -EINVAL;
	if (!work->comm)
		ret = work->status ? work->status : 1;
	else
		ret = towi_comm_ours(work->comm) ? wait_until(work, end) : -EPERM;
	if (blamed && ret < 0 && ret != -EPERM && ret != -EINTR)
		*blamed = work->blamed;
	return ret;
}

TOW_PUBLIC int tow_work_test(struct tow_work *work, uint32_t *blamed)
{
	return ask(work, 0, blamed);
}

TOW_PUBLIC int tow_work_wait(struct tow_work *work, uint32_t timeout_us, uint32_t *blamed)
{
	return ask(work, towi_until(timeout_us), blamed);
}

TOW_PUBLIC int tow_work_info(const struct tow_work *work, struct tow_work_info *info)
{
	struct tow_work_info known = { .size = sizeof(known), .rank = TOW_NO_RANK };

	if (!work || !info)
		return -EINVAL;
	if (!work->ended)
		return -EBUSY;
	if (work->ops->tell)
		work->ops->tell(work, &known);
	return towi_give(&known, WORK_INFO_SIZE_FIRST, info);
}

TOW_PUBLIC void tow_work_free(struct tow_work *work)
{
	struct towi_pump *pump;

	if (!work)
		return;
	if (!work->comm || !towi_comm_ours(work->comm)) {
		free(work);
		return;
	}
	pump = &work->comm->pump;
	towi_pump_lock(pump);
	LIST_REMOVE(work, all);
	work->freed = true;
	if (work->ended)
		free(work);
	towi_pump_unlock(pump);
}

int towi_work_give(struct tow_work *work, struct tow_work **given)
{
	int ret;

	if (given) {
		*given = work;
		return 0;
	}
	/* Nobody is to ask. */
	ret = tow_work_wait(work, TOW_WAIT_FOREVER, NULL);
	tow_work_free(work);
	return ret < 0 ? ret : 0;
}

/* ---- communicators ------------------------------------------------------------------------ */

TOW_PUBLIC int tow_comm_abort(struct tow_comm *comm)
{
	if (!comm)
		return -EINVAL;
	if (!towi_comm_ours(comm))
		return -EPERM;
	towi_pump_lock(&comm->pump);
	towi_comm_fail(comm, -ECANCELED, comm->rank);
	towi_pump_ready(&comm->calls->runner);
	towi_pump_wake(&comm->pump);
	towi_pump_unlock(&comm->pump);
	return 0;
}

TOW_PUBLIC int tow_comm_stats(struct tow_comm *comm, struct tow_comm_stats *stats)
{
	struct tow_comm_stats known;

	if (!comm || !stats)
		return -EINVAL;
	if (!towi_comm_ours(comm))
		return -EPERM;
	towi_pump_lock(&comm->pump);
	known = comm->calls->stats;
	towi_pump_unlock(&comm->pump);
	return towi_give(&known, COMM_STATS_SIZE_FIRST, stats);
}

// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/* Works: what a program has asked for, and waits for. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "calls.h"

/* How long the communicator's thread sleeps while nothing is asked for. */
#define IDLE_US		1000000U


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

/* It is in no list. */
static void discard(struct tow_work *work)
{
	if (work->fd)
		close(work->fd - 1);
	free(work);
}

void towi_work_leave(struct tow_work *work)
{
	struct towi_calls *calls = work->comm->calls;

	LIST_REMOVE(work, all);
	if (calls->late == work)
		calls->late = NULL;
}

static void forget(struct tow_work *work)
{
	towi_work_leave(work);
	discard(work);
}

static void tell_fd(const struct tow_work *work)
{
	static const uint64_t one = 1;

	/* It is empty. */
	if (work->fd && write(work->fd - 1, &one, sizeof(one)) < 0)
		return;
}

void towi_work_begin(struct tow_work *work)
{
	struct tow_comm *comm = work->comm;

	STAILQ_INIT(&work->open);
	work->blamed = TOW_NO_RANK;
	LIST_INSERT_HEAD(&comm->calls->all, work, all);
	/* Not put off by what begins while others wait. */
	if (!towi_left_us(comm->probe_us))
		comm->probe_us = towi_until(TOWI_PROBE_US);
	towi_pump_ready(&comm->calls->runner);
	/* It sleeps, and looks for what it knew of. */
	if (comm->driven)
		towi_pump_wake(&comm->pump);
}

void towi_work_end(struct tow_work *work)
{
	struct tow_comm *comm = work->comm;

	work->ended = true;
	tell_fd(work);
	if (work->freed)
		forget(work);
	/* Who waits for it may be another thread. */
	towi_pump_wake(&comm->pump);
}

bool towi_works_open(const struct tow_comm *comm, bool freed)
{
	const struct tow_work *work;

	LIST_FOREACH(work, &comm->calls->all, all)
		if (!work->ended && (freed || !work->freed))
			return true;
	return false;
}

void towi_works_leave(struct tow_comm *comm)
{
	struct tow_work *work, *next;

	LIST_FOREACH_SAFE(work, &comm->calls->all, all, next) {
		if (!work->ended && !work->status)
			work->status = -ECANCELED;
		work->ended = true;
		work->comm = NULL;
		if (work->freed)
			discard(work);
	}
	LIST_INIT(&comm->calls->all);
}

/* ---- waiting ----------------------------------------------------------------------------- */

/* Who has left does not send any more; what it had sent is there. */
static void look_who_left(struct tow_work *work)
{
	struct tow_comm *comm = work->comm;
	uint32_t rank = work->ops->waits_for(work);

	/* What was not looked at may be what it has sent. */
	if (rank == TOW_NO_RANK || !towi_board_has_left(comm, rank) || towi_calls_passed(comm))
		return;
	if (!towi_comm_progress(comm) && !towi_calls_passed(comm) && !work->ended &&
	    work->ops->waits_for(work) == rank)
		work->ops->gone(work, rank);
}

/* It waits, and others may be gone, or late, also while something comes of other works. */
static void doubt(struct tow_work *work, uint64_t now_us)
{
	struct tow_comm *comm = work->comm;

	if (comm->error)
		return;
	if (now_us >= work->until_us) {
		/* It may only have to be looked at. */
		if (!comm->calls->held)
			work->ops->late(work);
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
		doubt(work, *now_us);
	if (!work->ended)
		return 0;
	return work->status ? work->status : 1;
}

static int sleep_for_it(struct tow_work *work, uint64_t end)
{
	struct tow_comm *comm = work->comm;

	if (!towi_calls_arm(comm))
		return 0;
	/* Its time may be over, and another thread be about to end it. */
	return towi_comm_sleep(comm, work->until_us < end && towi_left_us(work->until_us) ?
					     work->until_us : end);
}

/* Nothing came since then. */
static void count_waiting(struct tow_work *work, uint64_t since_us, uint64_t now_us)
{
	uint32_t rank = work->ops->waits_for(work);

	if (since_us && rank != TOW_NO_RANK)
		work->comm->calls->waited_us[rank] += now_us - since_us;
}

static int wait_until(struct tow_work *work, uint64_t end)
{
	struct towi_pump *pump = &work->comm->pump;
	uint64_t now, before = 0, busy_until = 0;
	bool any = false;
	int ret, slept = 0;

	towi_pump_lock(pump);
	while (!(ret = look(work, &any, &now)) && now < end && !slept) {
		if (!any)
			count_waiting(work, before, now);
		before = now;
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

TOW_PUBLIC int tow_work_fd(struct tow_work *work)
{
	int fd;

	if (!work)
		return -EINVAL;
	if (work->comm && !towi_comm_ours(work->comm))
		return -EPERM;
	if (work->comm)
		towi_pump_lock(&work->comm->pump);
	fd = work->fd ? work->fd - 1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (fd < 0)
		fd = -errno;
	else if (!work->fd) {
		work->fd = fd + 1;
		if (work->ended)
			tell_fd(work);
	}
	if (work->comm)
		towi_pump_unlock(&work->comm->pump);
	return fd;
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
		discard(work);
		return;
	}
	pump = &work->comm->pump;
	towi_pump_lock(pump);
	work->freed = true;
	if (work->ended)
		forget(work);
	towi_pump_unlock(pump);
}

/* ---- by a thread of the communicator's ----------------------------------------------------- */

void towi_works_doubt(struct tow_comm *comm)
{
	uint64_t now_us = towi_now_ns() / 1000;
	struct tow_work *work;

	LIST_FOREACH(work, &comm->calls->all, all) {
		if (work->ended || (now_us < work->until_us && now_us < comm->probe_us))
			continue;
		doubt(work, now_us);
		/* That may have let go of the lock. */
		break;
	}
}

static void rest(struct tow_comm *comm)
{
	if (!towi_calls_arm(comm))
		return;
	if (towi_works_open(comm, true) || comm->pump.over)
		towi_comm_sleep(comm, UINT64_MAX);
	else
		towi_pump_sleep(&comm->pump, towi_until(IDLE_US));
}

static void *drive(void *arg)
{
	struct tow_comm *comm = arg;
	uint64_t now, busy_until = 0;
	bool any;

	towi_pump_lock(&comm->pump);
	while (!comm->drive_ends) {
		any = towi_comm_progress(comm);
		now = towi_now_ns() / 1000;
		towi_works_doubt(comm);
		if (any)
			busy_until = now + comm->spin_us;
		else if (now >= busy_until && !comm->drive_ends)
			rest(comm);
	}
	towi_pump_unlock(&comm->pump);
	return NULL;
}

int towi_comm_drive(struct tow_comm *comm)
{
	sigset_t all, before;
	int ret;

	/* Signals are the program's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ret = pthread_create(&comm->drives, NULL, drive, comm);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	comm->driven = !ret;
	return ret ? -ENOMEM : 0;
}

void towi_comm_drive_end(struct tow_comm *comm)
{
	if (!comm->driven)
		return;
	towi_pump_lock(&comm->pump);
	comm->drive_ends = true;
	towi_pump_wake(&comm->pump);
	towi_pump_unlock(&comm->pump);
	pthread_join(comm->drives, NULL);
	comm->driven = false;
}

/* ---- works, given ---------------------------------------------------------------------------- */

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
	comm->aborting++;
	towi_comm_fail(comm, -ECANCELED, comm->rank);
	towi_pump_wake(&comm->pump);
	towi_pump_unlock(&comm->pump);
	/* Whoever was told may want to destroy it. */
	towi_pump_lock(&comm->pump);
	comm->aborting--;
	towi_pump_wake(&comm->pump);
	towi_pump_unlock_plainly(&comm->pump);
	return 0;
}

int towi_calls_begun(struct tow_comm *comm)
{
	bool held;

	towi_pump_lock(&comm->pump);
	held = comm->calls->held;
	towi_pump_unlock_plainly(&comm->pump);
	return held ? -EBUSY : 0;
}

TOW_PUBLIC int tow_calls_begin(struct tow_comm *comm)
{
	if (!comm)
		return -EINVAL;
	if (!towi_comm_ours(comm))
		return -EPERM;
	towi_pump_lock(&comm->pump);
	comm->calls->held++;
	towi_pump_unlock(&comm->pump);
	return 0;
}

TOW_PUBLIC int tow_calls_end(struct tow_comm *comm)
{
	int ret = 0;

	if (!comm)
		return -EINVAL;
	if (!towi_comm_ours(comm))
		return -EPERM;
	towi_pump_lock(&comm->pump);
	if (!comm->calls->held)
		ret = -EINVAL;
	else if (!--comm->calls->held)
		towi_pump_ready(&comm->calls->runner);
	towi_pump_unlock(&comm->pump);
	return ret;
}

TOW_PUBLIC int tow_comm_error(struct tow_comm *comm, uint32_t *blamed)
{
	int ret;

	if (!comm)
		return -EINVAL;
	ret = towi_comm_usable(comm);
	if (blamed)
		*blamed = ret && ret != -EPERM ? comm->blamed : TOW_NO_RANK;
	return ret;
}

TOW_PUBLIC int tow_comm_waited(struct tow_comm *comm, uint64_t *us, uint32_t count)
{
	uint32_t rank;

	if (!comm || !us)
		return -EINVAL;
	if (!towi_comm_ours(comm))
		return -EPERM;
	towi_pump_lock(&comm->pump);
	for (rank = 0; rank < comm->ranks && rank < count; rank++)
		us[rank] = comm->calls->waited_us[rank];
	towi_pump_unlock(&comm->pump);
	return (int)comm->ranks;
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

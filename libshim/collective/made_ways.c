// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Collectives that are made once: their scratch, and how ranks find each other's.
 *
 * Whom a rank has to do with, and how much goes by each way, follows from its plan: it goes through
 * a call's steps once.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "../bootstrap/inside.h"
#include "made.h"

/* What is at the place of lanes. */
#define READY	TOWI_LANES
#define WORDS	(TOWI_LINE / sizeof(uint64_t))

_Static_assert(READY < WORDS, "a path's numbers are in a line");

/* ---- who has to do with whom ------------------------------------------------------------ */

static struct towi_path *path_with(struct tow_collective *collective, uint32_t rank)
{
	struct towi_path *path = collective->path[rank];

	if (path)
		return path;
	path = calloc(1, sizeof(*path));
	if (!path)
		return NULL;
	towi_path_init(path, collective, rank);
	path->index = collective->paths_count++;
	collective->path[rank] = path;
	STAILQ_INSERT_TAIL(&collective->paths, path, next);
	return path;
}

/* False: there is no memory. */
static bool count_step(struct tow_collective *collective, const struct towi_step *step)
{
	uint64_t bytes = step->count * collective->joint.element;
	struct towi_path *path;

	if (step->what == TOWI_STEP_LOCAL)
		return true;
	path = path_with(collective, step->peer);
	if (!path)
		return false;
	if (step->what == TOWI_STEP_RECEIVE) {
		towi_progressed(&path->comes, bytes, towi_is_stored(step));
		return true;
	}
	towi_progressed(&path->goes, bytes, step->stored);
	path->stores |= step->stored;
	return true;
}

static bool count_steps(struct tow_collective *collective, enum towi_side side)
{
	struct towi_schedule schedule;
	struct towi_step step;

	/* Its plan is good. */
	towi_schedule_begin(&schedule, &collective->joint.plan, side);
	while (towi_schedule_next(&schedule, &step))
		if (!count_step(collective, &step))
			return false;
	return true;
}

int towi_made_count(struct tow_collective *collective)
{
	return count_steps(collective, TOWI_SENDS) && count_steps(collective, TOWI_WRITES) ?
	       0 : -ENOMEM;
}

/* Does a rank wait for others to say that they have begun? */
static bool asks(const struct tow_collective *collective)
{
	enum towi_plan_kind kind = collective->joint.plan.kind;

	return kind != TOWI_PLAN_ALLREDUCE && kind != TOWI_PLAN_BARRIER;
}

/* ---- names ------------------------------------------------------------------------------- */

/* What rank @of has for rank @to. */
static struct towi_pair_name name_of(const struct tow_collective *collective, const char *what,
				     uint32_t index, uint32_t of, uint32_t to)
{
	char of_it[32];

	snprintf(of_it, sizeof(of_it), "%" PRIu64 "/%s", collective->number, what);
	return towi_pair_name(collective->joint.work.comm, of_it, index, of, to);
}

/* ---- this rank's ---------------------------------------------------------------------------- */

static int make_slot(const struct towi_path *path, const char *what, uint32_t index,
		     struct tow_slot **slot)
{
	const struct tow_collective *collective = path->collective;
	const struct towi_array *numbers = &collective->numbers;
	uint64_t word = (uint64_t)path->index * WORDS + index;

	return tow_slot_create(numbers->region, numbers->offset + word * sizeof(uint64_t),
			       name_of(collective, what, index, collective->joint.work.comm->rank,
				       path->rank).text, slot);
}

static int show_array(const struct tow_collective *collective, const struct towi_array *array,
		      const char *what, uint64_t at, uint64_t bytes, uint32_t to,
		      struct tow_exported **shown)
{
	return tow_export(array->region, array->offset + at, bytes,
			  name_of(collective, what, 0, collective->joint.work.comm->rank, to).text,
			  TOW_RIGHT_WRITE, shown);
}

static int show_path(struct towi_path *path)
{
	struct tow_collective *collective = path->collective;
	uint32_t i;
	int ret = 0;

	for (i = 0; !ret && i < towi_lanes(&path->comes); i++)
		ret = make_slot(path, "lane", i, &path->lanes[i].slot);
	if (!ret && path->goes.messages && asks(collective))
		ret = make_slot(path, "ready", READY, &path->ready.slot);
	if (!ret && path->comes.scratch)
		ret = show_array(collective, &collective->scratch, "scratch", path->scratch_at,
				 path->comes.scratch, path->rank, &path->shown);
	return ret;
}

static uint64_t place_scratch(struct tow_collective *collective)
{
	struct towi_path *path;
	uint64_t bytes = 0;

	STAILQ_FOREACH(path, &collective->paths, next) {
		path->scratch_at = bytes;
		bytes += (path->comes.scratch + TOWI_LINE - 1) / TOWI_LINE * TOWI_LINE;
	}
	return bytes;
}

/* Does any other rank store something in the result? */
static bool is_stored_to(const struct tow_collective *collective)
{
	enum towi_plan_kind kind = collective->joint.plan.kind;

	return collective->paths_count && collective->joint.out.bytes &&
	       kind != TOWI_PLAN_REDUCE_SCATTER && kind != TOWI_PLAN_REDUCE;
}

int towi_made_show(struct tow_collective *collective)
{
	const struct tow_comm *comm = collective->joint.work.comm;
	struct towi_path *path;
	int ret;

	ret = towi_array_make(comm, place_scratch(collective), &collective->scratch);
	if (!ret)
		ret = towi_array_make(comm, collective->paths_count * (uint64_t)TOWI_LINE,
				      &collective->numbers);
	STAILQ_FOREACH(path, &collective->paths, next)
		if (!ret)
			ret = show_path(path);
	if (!ret && is_stored_to(collective))
		ret = show_array(collective, &collective->joint.out, "out", 0,
				 collective->joint.out.bytes, comm->rank, &collective->shown);
	return ret;
}

/* ---- others' ------------------------------------------------------------------------------- */

static int find_array(const struct towi_path *path, const char *what, uint32_t to, uint64_t bytes,
		      struct tow_remote **remote)
{
	const struct tow_collective *collective = path->collective;
	int ret = tow_resolve(collective->joint.work.comm->members[path->rank].peer,
			      name_of(collective, what, 0, path->rank, to).text, TOW_RIGHT_WRITE,
			      0, remote);

	return !ret && tow_remote_bytes(*remote) < bytes ? -EPROTO : ret;
}

static int find_slot(const struct towi_path *path, const char *what, uint32_t index,
		     struct towi_made_lane *lane)
{
	const struct tow_collective *collective = path->collective;
	const struct tow_comm *comm = collective->joint.work.comm;
	const struct towi_member *member = &comm->members[path->rank];
	int ret = tow_channel_get(comm->pump.queue, member->peer, index % member->channel->qps,
				  &lane->channel);

	return ret ? ret : tow_resolve(member->peer,
				       name_of(collective, what, index, path->rank,
					       comm->rank).text,
				       TOW_RIGHT_NOTIFY, 0, &lane->there);
}

/* There were all of these names; so if there is one no more, its rank has ended. */
static int find_path(struct towi_path *path)
{
	const struct tow_collective *collective = path->collective;
	uint32_t i, own = collective->joint.work.comm->rank;
	int ret = 0;

	for (i = 0; !ret && i < towi_lanes(&path->goes); i++)
		ret = find_slot(path, "lane", i, &path->lanes[i]);
	if (!ret && path->comes.messages && asks(collective))
		ret = find_slot(path, "ready", READY, &path->ready);
	if (!ret && path->goes.scratch)
		ret = find_array(path, "scratch", own, path->goes.scratch, &path->scratch);
	if (!ret && path->stores)
		ret = find_array(path, "out", path->rank, collective->joint.out.bytes,
				 &path->out);
	return ret == -ENOENT || ret == -ETIMEDOUT ? -ESTALE : ret;
}

static int find_members(const struct tow_collective *collective, uint64_t until, uint32_t *blamed)
{
	struct tow_comm *comm = collective->joint.work.comm;
	const struct towi_path *path;
	int ret = 0;

	towi_pump_lock(&comm->pump);
	STAILQ_FOREACH(path, &collective->paths, next) {
		*blamed = path->rank;
		ret = towi_member_find(&comm->members[path->rank], until);
		if (ret)
			break;
	}
	towi_pump_unlock(&comm->pump);
	return ret;
}

int towi_made_find(struct tow_collective *collective, uint64_t until, uint32_t *blamed)
{
	int ret = find_members(collective, until, blamed);
	struct towi_path *path;

	if (ret)
		return ret;
	STAILQ_FOREACH(path, &collective->paths, next) {
		*blamed = path->rank;
		ret = find_path(path);
		if (ret)
			return ret;
	}
	return 0;
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void end_lane(struct towi_made_lane *lane)
{
	tow_remote_release(lane->there);
	tow_channel_put(lane->channel);
	tow_slot_destroy(lane->slot);
}

void towi_made_hide(struct tow_collective *collective)
{
	struct towi_path *path;
	uint32_t i;

	STAILQ_FOREACH(path, &collective->paths, next) {
		for (i = 0; i < TOWI_LANES; i++)
			end_lane(&path->lanes[i]);
		end_lane(&path->ready);
		tow_remote_release(path->scratch);
		tow_remote_release(path->out);
		tow_unexport(path->shown);
	}
	tow_unexport(collective->shown);
}

void towi_made_free_paths(struct tow_collective *collective)
{
	struct towi_path *path;
	uint32_t i;

	while ((path = STAILQ_FIRST(&collective->paths))) {
		STAILQ_REMOVE_HEAD(&collective->paths, next);
		for (i = 0; i < TOWI_LANES; i++)
			free(path->lanes[i].relay);
		free(path);
	}
}

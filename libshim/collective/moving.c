// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/* What algorithms are made of: pieces, names, sending, waiting, combining. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "inside.h"

/* ---- pieces ------------------------------------------------------------------- */

uint64_t towi_piece_at(const struct tow_collective *collective, uint32_t rank, uint32_t piece)
{
	return rank * collective->shard_bytes + piece * collective->piece_bytes;
}

static uint64_t least(uint64_t one, uint64_t other)
{
	return one < other ? one : other;
}

uint64_t towi_piece_bytes(const struct tow_collective *collective, uint32_t rank, uint32_t piece)
{
	uint64_t at = towi_piece_at(collective, rank, piece);
	uint64_t end = least((rank + 1ULL) * collective->shard_bytes, collective->whole_bytes);

	end = least(end, at + collective->piece_bytes);
	return end > at ? end - at : 0;
}

/* ---- arrays ------------------------------------------------------------------- */

int towi_array_make(const struct tow_comm *comm, uint64_t bytes, struct towi_array *array)
{
	int ret;

	*array = (struct towi_array){ .bytes = bytes };
	if (!bytes)
		return 0;
	if (bytes > SIZE_MAX)
		return -ENOMEM;
	array->at = tow_arena_zeroed(comm->arena, 1, (size_t)bytes);
	if (!array->at)
		return -errno;
	array->owned = true;
	ret = tow_arena_find(comm->arena, array->at, &array->region, &array->offset);
	/* The arena gave memory that is in no pool. */
	return ret ? -ENOSPC : 0;
}

void towi_array_free(const struct tow_comm *comm, struct towi_array *array)
{
	if (array->owned)
		tow_arena_free(comm->arena, array->at);
	array->owned = false;
}

/* ---- names -------------------------------------------------------------------- */

struct name {
	char text[TOW_EXPORT_NAME_MAX + 1];
};

/* What rank @of has made for @to. */
static struct name name_of(const struct tow_collective *collective, const char *what,
			   uint32_t index, uint32_t of, uint32_t to)
{
	struct name name;

	snprintf(name.text, sizeof(name.text),
		 "towline/comm/%016" PRIx64 "/%" PRIu64 "/%s/%" PRIu32 "/%" PRIu32 "/%" PRIu32,
		 collective->comm->numbers[of], collective->number, what, index, of, to);
	return name;
}

int towi_array_export(const struct tow_collective *collective, const char *what,
		      const struct towi_array *array, struct tow_exported **exported)
{
	uint32_t rank = collective->comm->rank;

	return array->bytes ? tow_export(array->region, array->offset, array->bytes,
					 name_of(collective, what, 0, rank, rank).text,
					 TOW_RIGHT_WRITE, exported) : 0;
}

int towi_slot_make(const struct tow_collective *collective, const char *what, uint32_t from,
		   uint32_t index, struct tow_slot **slot)
{
	const struct towi_array *numbers = &collective->numbers;

	return tow_slot_create(numbers->region, numbers->offset + index * (uint64_t)TOWI_LINE,
			       name_of(collective, what, index, collective->comm->rank, from).text,
			       slot);
}

int towi_find_array(const struct towi_target *target, const char *what, uint64_t bytes,
		    uint64_t until, struct tow_remote **remote)
{
	const struct tow_collective *collective = target->collective;
	uint32_t rank = target->rank;
	int ret;

	if (!bytes)
		return 0;
	ret = tow_resolve(collective->comm->members[rank].peer,
			  name_of(collective, what, 0, rank, rank).text, TOW_RIGHT_WRITE,
			  towi_left_ms(until), remote);
	return !ret && tow_remote_bytes(*remote) < bytes ? -EPROTO : ret;
}

int towi_find_way(const struct towi_target *target, const char *what, uint32_t index,
		  uint64_t until, struct towi_way *way)
{
	const struct tow_collective *collective = target->collective;
	const struct towi_member *member = &collective->comm->members[target->rank];
	const struct tow_comm *comm = collective->comm;
	int ret;

	ret = tow_channel_get(comm->pump.queue, member->peer, index % member->channel->qps,
			      &way->channel);
	return ret ? ret : tow_resolve(member->peer,
				       name_of(collective, what, index, target->rank,
					       comm->rank).text,
				       TOW_RIGHT_NOTIFY, towi_left_ms(until), &way->slot);
}

void towi_way_end(const struct towi_way *way)
{
	tow_remote_release(way->slot);
	tow_channel_put(way->channel);
}

/* ---- sending ------------------------------------------------------------------ */

static void sent(struct towi_op *op, int status)
{
	struct towi_target *target = (struct towi_target *)op;
	struct tow_comm *comm = target->collective->comm;

	if (!status)
		return;
	/* It may have said why. */
	towi_board_look(comm);
	/* One that could not be begun says nothing of others. */
	if (status != -ECANCELED)
		towi_comm_fail(comm, status, status == -ENODEV ? comm->rank : target->rank);
}

void towi_target_init(struct towi_target *target, struct tow_collective *collective, uint32_t rank)
{
	target->op = (struct towi_op){ .ended = sent, .runner = &collective->runner };
	target->collective = collective;
	target->rank = rank;
}

uint8_t towi_prep_send(const struct tow_collective *collective, struct tow_sqe *sqe,
		       const struct towi_send *send)
{
	const struct towi_array *from = send->from;

	if (!send->bytes) {
		tow_prep_notify(sqe, send->way->channel, send->way->slot);
		return 0;
	}
	tow_prep_write_notify(sqe, send->way->channel, from->region,
			      from->offset + (send->from_at - from->from), send->to, send->to_at,
			      send->bytes, send->way->slot);
	return from->given ? collective->comm->pump.copied_flag : 0;
}

bool towi_send(struct towi_target *target, const struct towi_send *send)
{
	struct tow_collective *collective = target->collective;
	struct tow_sqe *sqe = towi_comm_entry(&collective->runner);

	if (!sqe)
		return false;
	tow_sqe_set_flags(sqe, towi_prep_send(collective, sqe, send));
	towi_pump_begun(sqe, &target->op);
	collective->sent_bytes += send->bytes;
	return true;
}

bool towi_tell(struct towi_target *target, const struct towi_way *way)
{
	return towi_send(target, &(struct towi_send){ .way = way });
}

/* ---- waiting ------------------------------------------------------------------ */

static void waited(struct towi_op *op, int status)
{
	/* Whether a rank is lost is found out by asking it. */
	(void)op;
	(void)status;
}

void towi_sleeper_init(struct towi_op *sleeper, struct towi_runner *runner)
{
	*sleeper = (struct towi_op){ .ended = waited, .runner = runner, .waits = true };
}

bool towi_sleep_for(struct towi_op *sleeper, const struct tow_slot *slot, uint64_t number)
{
	struct tow_sqe *sqe;

	if (tow_slot_value(slot) >= number)
		return false;
	/* For less, and it has not come; or that is being told. */
	if (sleeper->busy)
		return true;
	sqe = towi_comm_entry(sleeper->runner);
	if (!sqe)
		return false;
	tow_prep_wait(sqe, slot, number);
	towi_pump_begun(sqe, sleeper);
	return true;
}

/* ---- combining ---------------------------------------------------------------- */

void towi_combine(const struct tow_collective *collective, void *to, const void *one,
		  bool one_is_ranks, const void *other, uint64_t bytes)
{
	uint64_t count = bytes / towi_reduce_bytes(collective->type);

	if (collective->attr.reduction == TOW_AVG)
		towi_avg_add(collective->type, collective->comm->ranks, one_is_ranks, true, to,
			     one, other, count);
	else
		towi_reduce(collective->attr.reduction, collective->type, to, one, other, count);
}

void towi_average(const struct tow_collective *collective, void *values, uint64_t bytes)
{
	if (collective->attr.reduction == TOW_AVG)
		towi_avg_end(collective->type, collective->comm->ranks, values,
			     bytes / towi_reduce_bytes(collective->type));
}

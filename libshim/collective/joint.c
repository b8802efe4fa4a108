// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/* Calls of all ranks, as programs make them: what they ask for. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../bootstrap/inside.h"
#include "calls.h"

/* A call, before it is one. */
struct asked {
	struct tow_collective_attr attr;
	uint32_t timeout_ms;
};

/* ---- what all ranks have to ask for alike --------------------------------------------- */

static uint64_t mark_of(const struct towi_joint *joint, const struct tow_collective_attr *attr)
{
	const struct tow_dtype *dtype = &attr->dtype;
	uint64_t mark = towi_mixed(1, attr->kind);

	mark = towi_mixed(mark, (uint64_t)dtype->code << 32 | (uint64_t)dtype->bits << 16 | dtype->lanes);
	mark = towi_mixed(mark, (uint64_t)attr->reduction << 32 | attr->root);
	mark = towi_mixed(mark, attr->count);
	return towi_mixed(towi_mixed(mark, joint->plan.way), joint->plan.piece);
}

int towi_joint_plan(struct towi_joint *joint, const struct tow_collective_attr *attr)
{
	struct towi_schedule schedule;

	towi_plan_call(joint, attr);
	if (towi_schedule_begin(&schedule, &joint->plan, TOWI_SENDS))
		return -EOPNOTSUPP;
	joint->mark = mark_of(joint, attr);
	return 0;
}

/* ---- arrays ----------------------------------------------------------------------------- */

static uint64_t part_bytes(const struct towi_joint *joint)
{
	return joint->plan.count / joint->plan.ranks * joint->element;
}

static int take_arrays(struct towi_joint *joint, const struct tow_collective_attr *attr)
{
	uint64_t whole = joint->plan.count * joint->element, part = part_bytes(joint);
	uint64_t own = joint->plan.rank * part;
	bool gathers = attr->kind == TOW_ALLGATHER, scatters = attr->kind == TOW_REDUCE_SCATTER;
	int ret;

	ret = towi_take_array(joint->work.comm, towi_in_of(attr), gathers ? part : whole, &joint->in);
	if (!ret)
		ret = towi_take_array(joint->work.comm, attr->out, scatters ? part : whole, &joint->out);
	joint->in.from = gathers ? own : 0;
	joint->out.from = scatters ? own : 0;
	return ret;
}

int towi_joint_take_sums(struct towi_joint *joint)
{
	struct tow_comm *comm = joint->work.comm;
	uint64_t bytes = towi_schedule_work(&joint->plan) * joint->element;

	if (!bytes)
		return 0;
	joint->sums.at = tow_arena_alloc(comm->arena, bytes);
	if (!joint->sums.at)
		return -errno;
	joint->sums.owned = true;
	return tow_arena_find(comm->arena, joint->sums.at, &joint->sums.region,
			      &joint->sums.offset) ? -ENOSPC : 0;
}

/* Of what is large, where it can land, and what it is sent from. */
static int take_places(struct towi_joint *joint)
{
	struct tow_comm *comm = joint->work.comm;
	struct towi_calls *calls = comm->calls;
	int ret;

	if (comm->ranks == 1 || (!joint->all_large && joint->plan.piece * joint->element <=
							calls->eager_bytes))
		return 0;
	/* Where others cannot write they write to the pool. */
	if (joint->out.region && towi_window(&calls->windows, joint->out.at, joint->out.bytes, true,
					    &joint->out_place))
		joint->out_place = (struct towi_place){ 0 };
	ret = towi_slots_need(comm, &calls->pools[TOWI_OF_CALLS], true);
	if (!ret && !(joint->in.region && joint->out.region))
		ret = towi_slots_need(comm, &calls->stage, false);
	return ret;
}

/* ---- a call ----------------------------------------------------------------------------- */

static int check(struct tow_comm *comm, const struct asked *asked, enum towi_reduce_type *type)
{
	if (asked->attr.kind == TOW_BARRIER)
		return 0;
	if (asked->attr.piece_bytes > TOWI_SLOT_BYTES)
		return -EINVAL;
	return towi_check_asked(comm, &asked->attr, type);
}

static int prepare(struct towi_joint *joint, const struct asked *asked)
{
	int ret = towi_joint_plan(joint, &asked->attr);

	if (!ret)
		ret = take_arrays(joint, &asked->attr);
	if (!ret)
		ret = towi_joint_take_sums(joint);
	return ret ? ret : take_places(joint);
}

static void begin(struct towi_joint *joint, uint32_t timeout_ms)
{
	struct tow_comm *comm = joint->work.comm;

	towi_pump_lock(&comm->pump);
	joint->work.until_us = towi_until((timeout_ms ? timeout_ms : comm->timeout_ms) * 1000ULL);
	towi_call_begin(joint);
	towi_pump_unlock(&comm->pump);
}

static int make(struct tow_comm *comm, const struct asked *asked, struct tow_work **made)
{
	enum towi_reduce_type type = TOWI_REDUCE_TYPES;
	struct towi_joint *joint;
	int ret = check(comm, asked, &type);

	if (ret)
		return ret;
	joint = calloc(1, sizeof(*joint));
	if (!joint)
		return -ENOMEM;
	joint->work.comm = comm;
	joint->work.ops = &towi_call_ops;
	joint->type = type;
	ret = prepare(joint, asked);
	if (ret) {
		towi_array_free(comm, &joint->sums);
		free(joint);
		return ret;
	}
	begin(joint, asked->timeout_ms);
	*made = &joint->work;
	return 0;
}

static int call(struct tow_comm *comm, const struct tow_call_attr *attr, struct asked asked,
		struct tow_work **work)
{
	struct tow_call_attr known;
	struct tow_work *made = NULL;
	int ret;

	if (!comm)
		return -EINVAL;
	ret = towi_take_call_attr(attr, &known);
	if (!ret && (known.algorithm > TOW_ALGORITHM_TREE ||
		     (asked.attr.kind == TOW_BARRIER && (known.algorithm || known.piece_bytes))))
		ret = -EINVAL;
	if (!ret)
		ret = towi_comm_usable(comm);
	if (!ret && !work)
		ret = towi_calls_begun(comm);
	if (ret)
		return ret;
	asked.attr.algorithm = known.algorithm;
	asked.attr.piece_bytes = known.piece_bytes;
	asked.timeout_ms = known.timeout_ms;
	ret = make(comm, &asked, &made);
	return ret ? ret : towi_work_give(made, work);
}

TOW_PUBLIC int tow_allreduce(struct tow_comm *comm, const void *in, void *out, uint64_t count,
			     struct tow_dtype dtype, enum tow_reduction reduction,
			     const struct tow_call_attr *attr, struct tow_work **work)
{
	struct asked asked = {
		.attr = { .kind = TOW_ALLREDUCE, .reduction = reduction, .dtype = dtype,
			  .count = count, .in = in ? in : out, .out = out },
	};

	return call(comm, attr, asked, work);
}

TOW_PUBLIC int tow_reduce_scatter(struct tow_comm *comm, const void *in, void *out, uint64_t count,
				  struct tow_dtype dtype, enum tow_reduction reduction,
				  const struct tow_call_attr *attr, struct tow_work **work)
{
	struct asked asked = {
		.attr = { .kind = TOW_REDUCE_SCATTER, .reduction = reduction, .dtype = dtype,
			  .count = count, .in = in, .out = out },
	};

	return call(comm, attr, asked, work);
}

TOW_PUBLIC int tow_allgather(struct tow_comm *comm, const void *in, void *out, uint64_t count,
			     struct tow_dtype dtype, const struct tow_call_attr *attr,
			     struct tow_work **work)
{
	uint64_t bytes = (uint64_t)dtype.bits * dtype.lanes / 8 * count;
	struct asked asked = {
		.attr = { .kind = TOW_ALLGATHER, .dtype = dtype, .count = count, .in = in,
			  .out = out },
	};

	if (comm && !in && out)
		asked.attr.in = (char *)out + comm->rank * bytes;
	return call(comm, attr, asked, work);
}

TOW_PUBLIC int tow_broadcast(struct tow_comm *comm, void *data, uint64_t count,
			     struct tow_dtype dtype, uint32_t root,
			     const struct tow_call_attr *attr, struct tow_work **work)
{
	struct asked asked = {
		.attr = { .kind = TOW_BROADCAST, .dtype = dtype, .root = root, .count = count,
			  .in = data, .out = data },
	};

	return call(comm, attr, asked, work);
}

TOW_PUBLIC int tow_reduce(struct tow_comm *comm, const void *in, void *out, uint64_t count,
			  struct tow_dtype dtype, enum tow_reduction reduction, uint32_t root,
			  const struct tow_call_attr *attr, struct tow_work **work)
{
	struct asked asked = {
		.attr = { .kind = TOWI_REDUCE, .reduction = reduction, .dtype = dtype,
			  .root = root, .count = count, .in = in ? in : out, .out = out },
	};

	/* Nobody writes there. */
	if (comm && comm->rank != root)
		asked.attr.out = towi_in_of(&asked.attr);
	return call(comm, attr, asked, work);
}

TOW_PUBLIC int tow_barrier(struct tow_comm *comm, const struct tow_call_attr *attr,
			   struct tow_work **work)
{
	return call(comm, attr, (struct asked){ .attr = { .kind = TOW_BARRIER } }, work);
}


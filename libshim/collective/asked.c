// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/* What is asked for: can it be done, and do arrays lie where they may? */
#include <errno.h>
#include <string.h>

#include "../alloc/arena.h"
#include "../bootstrap/inside.h"
#include "inside.h"

bool towi_is_reduction(uint32_t kind)
{
	return kind == TOW_ALLREDUCE || kind == TOW_REDUCE_SCATTER || kind == TOWI_REDUCE;
}

/* How large elements are. */
static int check_dtype(const struct tow_collective_attr *attr, uint64_t *bytes)
{
	uint64_t bits = (uint64_t)attr->dtype.bits * attr->dtype.lanes;

	if (!bits)
		return -EINVAL;
	*bytes = bits / 8;
	return bits % 8 || !*bytes ? -EOPNOTSUPP : 0;
}

/*
 * May they be where they are?  In the same place, or, where one of them is of all ranks, at
 * this one's place there: what is written is read no more.  @bytes is one rank's part.
 */
static bool lie_well(const struct tow_comm *comm, const struct tow_collective_attr *attr,
		     uint64_t bytes)
{
	uintptr_t in = (uintptr_t)attr->in, out = (uintptr_t)attr->out;
	uint64_t all = bytes * comm->ranks, place = bytes * comm->rank;

	switch (attr->kind) {
	case TOW_REDUCE_SCATTER:
		return out == in + place || out + bytes <= in || in + all <= out;
	case TOW_ALLGATHER:
		return in == out + place || in + bytes <= out || out + all <= in;
	case TOW_BROADCAST:
		if (comm->rank != attr->root)
			return true;
		/* fallthrough */
	default:
		return in == out || in + bytes <= out || out + bytes <= in;
	}
}

static int check_arrays(const struct tow_comm *comm, const struct tow_collective_attr *attr,
			uint64_t bytes)
{
	uint64_t all;

	if (__builtin_mul_overflow(attr->count, bytes * comm->ranks, &all) || all > TOWI_BYTES_MAX)
		return -EOVERFLOW;
	if (!attr->count)
		return 0;
	if (!attr->out || (attr->kind == TOW_REDUCE_SCATTER && !attr->in) ||
	    (attr->in && !lie_well(comm, attr, attr->count * bytes)))
		return -EINVAL;
	if (!towi_is_reduction(attr->kind))
		return 0;
	return (uintptr_t)attr->in % bytes || (uintptr_t)attr->out % bytes ? -EINVAL : 0;
}

int towi_check_asked(const struct tow_comm *comm, const struct tow_collective_attr *attr,
		     enum towi_reduce_type *type)
{
	uint64_t bytes;
	int ret;

	if (attr->reduction > TOW_BXOR || attr->piece_bytes % TOWI_LINE ||
	    attr->root >= comm->ranks)
		return -EINVAL;
	ret = check_dtype(attr, &bytes);
	if (!ret && towi_is_reduction(attr->kind))
		ret = towi_reduce_type(attr->dtype, attr->reduction, type);
	return ret ? ret : check_arrays(comm, attr, bytes);
}

int towi_take_array(const struct tow_comm *comm, void *given, uint64_t bytes,
		    struct towi_array *array)
{
	*array = (struct towi_array){ .at = given, .bytes = bytes };
	if (!bytes)
		return 0;
	if (towi_place(comm->arena, towi_group_device(comm->group), given, bytes, &array->region,
		       &array->offset)) {
		array->region = NULL;
		return 0;
	}
	/* Sums and copies are the processor's. */
	return towi_region_far(array->region, given) ? -EOPNOTSUPP : 0;
}

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

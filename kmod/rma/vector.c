// SPDX-License-Identifier: GPL-2.0
/*
 * Operations of many pieces, which a program lists in memory of its own.
 *
 * The list is copied once, before anything in it is looked at: the program may
 * change it at any time.
 */
#include <linux/overflow.h>
#include <linux/slab.h>

#include "core/core.h"
#include "memory/memory.h"
#include "ops.h"

/* So many pieces take as much memory as an entry of a completion ring, or less. */
#define TOW_VEC_PER_ENTRY	8

/**
 * tow_vec_new - copy a list of pieces
 * @account: of the client that is charged for the copy
 * @region: the region that the list is in
 * @offset: where it begins in @region, in bytes
 * @count: how many pieces it has, up to TOW_VECTOR_MAX
 *
 * May sleep.
 *
 * Return: the copy, of which nothing was checked, for tow_vec_free(); or an ERR_PTR():
 * -EDQUOT, -ENOSPC: see tow_charge(); -ENOMEM; and those of tow_region_read().
 */
struct tow_vec *tow_vec_new(struct tow_account *account,
			    const struct tow_region *region, u64 offset,
			    u32 count)
{
	const u64 amount[TOW_RESOURCES] = {
		[TOW_RES_QUEUE_ENTRIES] = DIV_ROUND_UP(count, TOW_VEC_PER_ENTRY),
	};
	struct tow_charge charge = {};
	struct tow_vec *vec;
	int ret;

	ret = tow_charge(&charge, account, amount);
	if (ret)
		return ERR_PTR(ret);
	vec = kvmalloc(struct_size(vec, pieces, count), GFP_KERNEL_ACCOUNT);
	if (!vec) {
		tow_uncharge(&charge);
		return ERR_PTR(-ENOMEM);
	}
	vec->charge = charge;
	vec->index = 0;
	vec->before = 0;
	vec->count = count;
	ret = tow_region_read(region, offset, vec->pieces,
			      count * sizeof(vec->pieces[0]));
	if (ret) {
		tow_vec_free(vec);
		return ERR_PTR(ret);
	}
	return vec;
}

/**
 * tow_vec_free - undo tow_vec_new()
 * @vec: the copy; the operation that had it has ended
 */
void tow_vec_free(struct tow_vec *vec)
{
	tow_uncharge(&vec->charge);
	kvfree(vec);
}

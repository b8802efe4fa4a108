// SPDX-License-Identifier: GPL-2.0
/*
 * A client's handles, and its end.
 *
 * A handle is an index and a generation: the index finds it, the generation
 * tells it from what had the index before.  Handles are made and given up under
 * the client's lock.  They are looked up without it, by RCU, as each entry of a
 * queue names one: whoever uses one takes a reference to its region, if that is
 * not about to go.
 */
#include <linux/slab.h>

#include "client.h"
#include "device.h"
#include "poller.h"

static u64 tow_client_number(u32 index, u32 generation)
{
	return (u64)generation << 32 | index;
}

/**
 * tow_client_add_handle - make a handle usable
 * @client: the client
 * @handle: allocated, complete but for its generation; the client's on success
 * @number: what the program calls it
 *
 * Return: 0; -EPERM: the client has ended; -ENOMEM.
 */
int tow_client_add_handle(struct tow_client *client, struct tow_handle *handle,
			  u64 *number)
{
	u32 index;
	int ret;

	mutex_lock(&client->lock);
	if (client->ended) {
		ret = -EPERM;
		goto out_unlock;
	}
	ret = xa_alloc(&client->handles, &index, handle, xa_limit_31b,
		       GFP_KERNEL_ACCOUNT);
	if (ret)
		goto out_unlock;
	/* Never 0, so that no number is. */
	if (!++client->generation)
		client->generation = 1;
	/* Pairs with tow_handle_is(). */
	smp_store_release(&handle->generation, client->generation);
	*number = tow_client_number(index, handle->generation);
out_unlock:
	mutex_unlock(&client->lock);
	return ret;
}

/* Called with the lock held. */
static struct tow_handle *tow_client_find(struct tow_client *client, u64 number)
{
	struct tow_handle *handle;

	lockdep_assert_held(&client->lock);
	handle = xa_load(&client->handles, lower_32_bits(number));
	if (handle && handle->generation != upper_32_bits(number))
		return NULL;
	return handle;
}

/**
 * tow_client_take_handle - take a handle away from its client
 * @client: the client
 * @number: what the program calls it
 *
 * Return: the handle, the caller's now; or NULL: there is no such.
 */
struct tow_handle *tow_client_take_handle(struct tow_client *client, u64 number)
{
	struct tow_handle *handle;

	mutex_lock(&client->lock);
	handle = tow_client_find(client, number);
	if (handle)
		xa_erase(&client->handles, lower_32_bits(number));
	mutex_unlock(&client->lock);
	return handle;
}

/**
 * tow_client_get_region - the region behind a handle
 * @client: the client
 * @number: what the program calls it
 * @flags: the handle's
 *
 * Return: the region with a reference for the caller, or NULL.
 */
struct tow_region *tow_client_get_region(struct tow_client *client, u64 number,
					 u32 *flags)
{
	struct tow_region *region = NULL;
	struct tow_handle *handle;

	rcu_read_lock();
	handle = xa_load(&client->handles, lower_32_bits(number));
	if (handle && tow_handle_is(&handle->generation, number) &&
	    tow_region_try_get(handle->region)) {
		region = handle->region;
		*flags = handle->flags;
	}
	rcu_read_unlock();
	return region;
}

/**
 * tow_client_drop_handle - the end of a handle
 * @handle: in no client's table; gone afterwards, with its reference
 * @destroy: its owner wants the region to end, even if it is persistent
 */
void tow_client_drop_handle(struct tow_handle *handle, bool destroy)
{
	if (handle->owner && destroy)
		tow_region_disown(handle->region);
	else if (handle->owner)
		tow_region_orphan(handle->region);
	tow_uncharge(&handle->charge);
	tow_region_put(handle->region);
	kfree_rcu(handle, rcu);
}

/**
 * tow_client_end - the client has no handles any more, and will have none
 * @client: the client; may have ended before
 */
void tow_client_end(struct tow_client *client)
{
	struct tow_handle *handle;
	unsigned long index;

	mutex_lock(&client->lock);
	WRITE_ONCE(client->ended, true);
	mutex_unlock(&client->lock);
	tow_poller_client_end(client);
	tow_queue_client_end(client);
	/* First: peers let go of what is exported before it is given up. */
	tow_directory_client_end(client);
	/* Nobody adds to it now; two who end it both may be here. */
	xa_for_each(&client->handles, index, handle) {
		/* Others may look still, and look at a handle under the lock. */
		mutex_lock(&client->lock);
		handle = xa_erase(&client->handles, index);
		mutex_unlock(&client->lock);
		if (handle)
			tow_client_drop_handle(handle, false);
	}
}

/**
 * tow_client_job - which job is it in?
 * @client: the client
 * @job_id: where to
 */
void tow_client_job(struct tow_client *client, u8 job_id[TOW_JOB_ID_BYTES])
{
	mutex_lock(&client->lock);
	memcpy(job_id, client->job_id, TOW_JOB_ID_BYTES);
	mutex_unlock(&client->lock);
}

// SPDX-License-Identifier: GPL-2.0
/*
 * Keys that peers invalidate.
 *
 * A SEND WITH INVALIDATE ends the registration whose key it names, at the device that
 * receives it, and asks nobody: any peer that has the key may send one, and to soft-RoCE
 * any peer at all that guesses it, as that does not look at the protection domain
 * (drivers/infiniband/sw/rxe/rxe_mr.c, rxe_invalidate_mr()).  towline sends none.  A
 * connection on which one comes ends, but until then, and for good, what others do by that
 * key would break their connections as well.  So the registration is made again with the
 * same key, which they all know.
 */
#include <linux/err.h>
#include <linux/kernel.h>
#include <linux/printk.h>
#include <rdma/ib_verbs.h>

#include "core/core.h"
#include "internal.h"

/* What is told about a key by its entry in tow_keys.invalidated. */
#define TOW_KEY_INVALID		xa_mk_value(0)
/* It was tried in vain, perhaps as it had been registered again already. */
#define TOW_KEY_UNKNOWN		xa_mk_value(1)
/* It is being tried. */
#define TOW_KEY_TRIED		xa_mk_value(2)

/*
 * Register again what has a key.  The lock keeps the slab: with a memory region it is not
 * freed before tow_keys_remove().  Return: 0: it is registered, or no peer needs the key;
 * -EBUSY; else an error of tow_maint_run().
 */
static int tow_keys_restore(struct tow_keys *keys, u32 key, bool unknown)
{
	struct tow_slab *slab;
	int ret = 0;

	mutex_lock(&keys->lock);
	slab = xa_load(&keys->slabs, tow_key_index(key));
	/* The other way round elsewhere. */
	if (slab && !mutex_trylock(&slab->lock)) {
		ret = -EBUSY;
	} else if (slab) {
		ret = tow_slab_restore(slab, key, unknown);
		mutex_unlock(&slab->lock);
	}
	mutex_unlock(&keys->lock);
	return ret;
}

/* The work item; removal waits for it. */
static void tow_keys_work(struct work_struct *work)
{
	struct tow_keys *keys = container_of(to_delayed_work(work),
					     struct tow_keys, work);
	void *entry, *next;
	unsigned long key;
	int ret;

	xa_for_each(&keys->invalidated, key, entry) {
		/* What is stored in the place of another needs no memory. */
		xa_store_bh(&keys->invalidated, key, TOW_KEY_TRIED, GFP_KERNEL);
		ret = tow_keys_restore(keys, key, entry == TOW_KEY_UNKNOWN);
		if (!ret || ret == -ENODEV)
			next = NULL;
		else
			next = ret == -EBUSY ? entry : TOW_KEY_UNKNOWN;
		/* Unless it was invalidated again meanwhile. */
		xa_cmpxchg_bh(&keys->invalidated, key, TOW_KEY_TRIED, next,
			      GFP_KERNEL);
		if (next)
			queue_delayed_work(tow_wq, &keys->work, TOW_MAINT_PAUSE);
	}
}

/**
 * tow_keys_invalidated - tow_device.key_invalidated
 * @dev: as there
 * @key: as there
 */
void tow_keys_invalidated(struct tow_device *dev, u32 key)
{
	struct tow_keys *keys = &dev->memory->keys;
	char name[TOW_DEVICE_NAME_MAX];
	void *before;

	tow_stat_inc(dev, TOW_STAT_INVALIDATED_BY_PEERS);
	before = xa_store_bh(&keys->invalidated, key, TOW_KEY_INVALID,
			     GFP_ATOMIC);
	/* Before it was registered again, or after that. */
	if (before == TOW_KEY_TRIED)
		xa_cmpxchg_bh(&keys->invalidated, key, TOW_KEY_INVALID,
			      TOW_KEY_UNKNOWN, GFP_ATOMIC);
	if (xa_err(before)) {
		tow_device_name(dev, name);
		pr_warn_ratelimited("%s: a peer invalidated a key, which stays so: no memory\n",
				    name);
	}
	queue_delayed_work(tow_wq, &keys->work, 0);
}

/**
 * tow_keys_init - prepare the structure
 * @keys: zeroed memory
 */
void tow_keys_init(struct tow_keys *keys)
{
	mutex_init(&keys->lock);
	/* Both alike: to lockdep it is one lock. */
	xa_init_flags(&keys->slabs, XA_FLAGS_LOCK_BH);
	xa_init_flags(&keys->invalidated, XA_FLAGS_LOCK_BH);
	INIT_DELAYED_WORK(&keys->work, tow_keys_work);
}

/**
 * tow_keys_stop - nothing is restored any more
 * @keys: of a device that is going, without peers
 */
void tow_keys_stop(struct tow_keys *keys)
{
	cancel_delayed_work_sync(&keys->work);
	xa_destroy(&keys->invalidated);
}

// SPDX-License-Identifier: GPL-2.0
/*
 * Regions: what clients have.  Documentation/design/memory.md says how long they live.
 *
 * A region is held by handles, descriptors and mappings, each in its own right;
 * the last one to go gives the slabs back.  A persistent region has a name, which
 * is its user's in a job.  In a job that has a key, the user has the name in any
 * container; in his own job, which has none, only outside of containers: see
 * tow_client_has_job().  When the client that has the region ends, the region begins
 * to linger: the table holds it, and a timer runs, which is set off when the device
 * ends.  Whoever clears "lingering" under the lock (the next owner, the timer, an
 * administrator) takes the table's reference over, so exactly one does.
 */
#include <linux/cred.h>
#include <linux/jhash.h>
#include <linux/mm.h>
#include <linux/pid_namespace.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/user_namespace.h>

#include "core/trace.h"
#include "internal.h"

/* Seconds, unless the administrator says otherwise. */
#define TOW_LINGER_MAX_S	300

/* Regions up to this size are made of small slabs. */
#define TOW_SMALL_REGION_MAX	(4 * TOW_SLAB_SMALL_BYTES)

static void tow_region_linger_expired(struct work_struct *work);

/**
 * tow_regions_init - prepare the structure
 * @regions: zeroed memory inside a tow_device
 */
void tow_regions_init(struct tow_regions *regions)
{
	mutex_init(&regions->lock);
	hash_init(regions->named);
	xa_init(&regions->by_id);
	regions->linger_max_s = TOW_LINGER_MAX_S;
}

static void tow_region_set_client(struct tow_region *region,
				  struct tow_client *client)
{
	region->key = client->key;
	region->user_ns = get_user_ns(client->user_ns);
	region->pid = get_pid(client->pid);
	region->cgroup_id = client->cgroup_id;
}

/**
 * tow_region_alloc - a region without slabs
 * @client: whose it is to be
 * @slab_count: how many slabs it will have
 * @name: what it is called
 *
 * Return: the region with the caller's reference, or NULL.  It is charged
 * nothing yet, and nobody finds it before tow_region_publish().
 */
struct tow_region *tow_region_alloc(struct tow_client *client,
				    unsigned int slab_count,
				    const char name[TOW_REGION_NAME_MAX])
{
	struct tow_region *region;

	region = tow_zalloc_long(struct_size(region, slabs, slab_count));
	if (!region)
		return NULL;
	kref_init(&region->refs);
	INIT_HLIST_NODE(&region->hashed);
	INIT_DELAYED_WORK(&region->linger_work, tow_region_linger_expired);
	kref_get(&client->dev->refs);
	region->dev = client->dev;
	memcpy(region->name, name, sizeof(region->name));
	region->kuid = client->kuid;
	tow_client_job(client, region->job_id);
	region->owner = client;
	tow_region_set_client(region, client);
	return region;
}

/**
 * tow_region_release - a region ends
 * @refs: its last reference is gone
 *
 * May sleep.
 */
void tow_region_release(struct kref *refs)
{
	struct tow_region *region = container_of(refs, struct tow_region, refs);
	struct tow_device *dev = region->dev;

	trace_tow_region_end(region);
	if (region->id) {
		xa_erase(&dev->memory->regions.by_id, region->id);
		tow_stat_dec(dev, TOW_STAT_REGIONS);
	}
	if (region->backing)
		region->backing->ops->release(region);
	else if (region->slab_count)
		tow_pool_give(&dev->memory->pool, region->slabs,
			      region->slab_count, &region->charge);
	tow_uncharge(&region->charge);
	put_pid(region->pid);
	put_user_ns(region->user_ns);
	/* tow_client_get_region() may look at it. */
	kvfree_rcu(region, rcu);
	tow_device_put(dev);
}

/* ---- names ---------------------------------------------------------------- */

static u32 tow_region_hash(kuid_t kuid, const u8 job_id[TOW_JOB_ID_BYTES],
			   const char *name)
{
	u32 hash = jhash(job_id, TOW_JOB_ID_BYTES, __kuid_val(kuid));

	return jhash(name, strnlen(name, TOW_REGION_NAME_MAX), hash);
}

/* Whose key is the same is the same; names without a key are only outside of containers. */
static bool tow_region_may_have(const struct tow_region *region,
				const struct tow_client *client,
				const u8 job_id[TOW_JOB_ID_BYTES])
{
	return uid_eq(region->kuid, client->kuid) &&
	       !memcmp(region->job_id, job_id, TOW_JOB_ID_BYTES) &&
	       tow_client_has_job(client, job_id);
}

/* Called with the lock held. */
static struct tow_region *tow_region_find(const struct tow_client *client,
					  const u8 job_id[TOW_JOB_ID_BYTES],
					  const char *name)
{
	struct tow_regions *regions = &client->dev->memory->regions;
	struct tow_region *region;

	lockdep_assert_held(&regions->lock);
	hash_for_each_possible(regions->named, region, hashed,
			       tow_region_hash(client->kuid, job_id, name)) {
		if (tow_region_may_have(region, client, job_id) &&
		    !strncmp(region->name, name, TOW_REGION_NAME_MAX))
			return region;
	}
	return NULL;
}

static int tow_region_give_name(struct tow_region *region)
{
	struct tow_regions *regions = &region->dev->memory->regions;
	int ret = 0;

	mutex_lock(&regions->lock);
	if (regions->stopped)
		ret = -ENODEV;
	else if (tow_region_find(region->owner, region->job_id, region->name))
		ret = -EEXIST;
	else
		hash_add(regions->named, &region->hashed,
			 tow_region_hash(region->kuid, region->job_id,
					 region->name));
	mutex_unlock(&regions->lock);
	return ret;
}

/* ---- making --------------------------------------------------------------- */

/**
 * tow_region_publish - let the region be found by its number and its name
 * @region: complete; an error leaves nothing to do but tow_region_put()
 *
 * Return: 0; -EEXIST: a persistent region's name is taken; -ENOMEM; -ENODEV.
 */
int tow_region_publish(struct tow_region *region)
{
	struct tow_regions *regions = &region->dev->memory->regions;
	int ret;

	xa_lock(&regions->by_id);
	region->id = ++regions->last_id;
	ret = xa_err(__xa_store(&regions->by_id, region->id, region,
				GFP_KERNEL_ACCOUNT));
	if (ret)
		region->id = 0;
	xa_unlock(&regions->by_id);
	if (ret)
		return ret;
	tow_stat_inc(region->dev, TOW_STAT_REGIONS);
	trace_tow_region_create(region);
	return region->flags & TOW_REGION_PERSISTENT ?
	       tow_region_give_name(region) : 0;
}

/* Charge first, then take: see core/limits.c. */
static int tow_region_fill(struct tow_region *region, struct tow_client *client,
			   enum tow_slab_class class, unsigned int count)
{
	struct tow_pool *pool = &region->dev->memory->pool;
	u64 amount[TOW_RESOURCES] = {
		[TOW_RES_BYTES]		= count * tow_pool_slab_bytes(pool, class),
		[TOW_RES_MRS]		= count * TOW_RIGHTS,
		[TOW_RES_REGIONS]	= 1,
	};
	int ret;

	ret = tow_memory_charge(&region->charge, client, amount);
	if (ret)
		return ret;
	ret = tow_pool_take(pool, class, count, region->slabs);
	if (ret)
		return ret;
	region->slab_count = count;
	region->slab_bytes = tow_pool_slab_bytes(pool, class);
	region->map_bytes = amount[TOW_RES_BYTES];
	return 0;
}

/**
 * tow_region_new - take a region from the pool
 * @client: whose it is to be; a user of the device
 * @bytes: how large, at least 1
 * @flags: TOW_REGION_PERSISTENT or 0
 * @linger_s: how long it lingers; 0: as long as it may
 * @name: what it is called
 *
 * Return: the region with the caller's reference, or an ERR_PTR(): see
 * TOW_IOCTL_REGION_CREATE.
 */
struct tow_region *tow_region_new(struct tow_client *client, u64 bytes,
				  u32 flags, u32 linger_s,
				  const char name[TOW_REGION_NAME_MAX])
{
	enum tow_slab_class class = bytes <= TOW_SMALL_REGION_MAX ?
				    TOW_SLAB_SMALL : TOW_SLAB_LARGE;
	struct tow_pool *pool = &client->dev->memory->pool;
	u64 count = DIV_ROUND_UP_ULL(bytes, tow_pool_slab_bytes(pool, class));
	struct tow_region *region;
	int ret;

	/* Cheaper to see now than to find no room for the list of slabs. */
	ret = tow_pool_too_small(pool, bytes);
	if (ret)
		return ERR_PTR(ret);
	region = tow_region_alloc(client, count, name);
	if (!region)
		return ERR_PTR(-ENOMEM);
	region->bytes = bytes;
	region->flags = flags;
	region->linger_s = linger_s ?: U32_MAX;
	ret = tow_region_fill(region, client, class, count);
	if (!ret)
		ret = tow_region_publish(region);
	if (ret) {
		tow_region_put(region);
		return ERR_PTR(ret);
	}
	return region;
}

/* ---- owners --------------------------------------------------------------- */

/**
 * tow_region_disown - its client gives it up
 * @region: the region; the caller has a reference
 *
 * It has no owner and no name any more, and does not linger.
 */
void tow_region_disown(struct tow_region *region)
{
	struct tow_regions *regions = &region->dev->memory->regions;

	mutex_lock(&regions->lock);
	region->owner = NULL;
	hash_del(&region->hashed);
	mutex_unlock(&regions->lock);
}

/* Called with the lock held: for how long it may linger, in seconds. */
static u32 tow_region_linger_s(const struct tow_region *region)
{
	return min(region->linger_s, region->dev->memory->regions.linger_max_s);
}

/* Called with the lock held: for how long one that lingers still may, in jiffies. */
static unsigned long tow_region_linger_left(const struct tow_region *region)
{
	unsigned long end = region->linger_begun +
			    (unsigned long)tow_region_linger_s(region) * HZ;
	unsigned long now = jiffies;

	return !region->dev->memory->regions.stopped && time_before(now, end) ?
	       end - now : 0;
}

/*
 * Nobody has it any more.  A region that has a name lingers from now on: the table has it,
 * with a reference.
 */
static void tow_region_linger(struct tow_region *region, unsigned long begun)
{
	struct tow_regions *regions = &region->dev->memory->regions;

	mutex_lock(&regions->lock);
	region->owner = NULL;
	if (regions->stopped)
		hash_del(&region->hashed);
	if (hash_hashed(&region->hashed)) {
		tow_region_get(region);
		region->lingering = true;
		region->linger_begun = begun;
		queue_delayed_work(tow_wq, &region->linger_work,
				   tow_region_linger_left(region));
		trace_tow_region_linger(region);
	}
	mutex_unlock(&regions->lock);
}

/* Called with the lock held: true if the table's reference is the caller's. */
static bool tow_region_claim(struct tow_region *region)
{
	bool lingering = region->lingering;

	lockdep_assert_held(&region->dev->memory->regions.lock);
	region->lingering = false;
	return lingering;
}

static void tow_region_linger_expired(struct work_struct *work)
{
	struct tow_region *region = container_of(to_delayed_work(work),
						 struct tow_region,
						 linger_work);
	struct tow_regions *regions = &region->dev->memory->regions;
	unsigned long left;
	bool claimed = false;

	/* Whoever claimed it waits for us before the region can go. */
	mutex_lock(&regions->lock);
	left = tow_region_linger_left(region);
	if (!left) {
		claimed = tow_region_claim(region);
	} else if (region->lingering) {
		/* No timer goes as far as some months. */
		queue_delayed_work(tow_wq, &region->linger_work, left);
	}
	if (claimed) {
		hash_del(&region->hashed);
		/* linger_max_s was written while this waited for the lock. */
		cancel_delayed_work(&region->linger_work);
	}
	mutex_unlock(&regions->lock);
	if (claimed)
		tow_region_put(region);
}

/*
 * Called with the lock held: will it soon linger?  Its client ends, or another one
 * is about to have it, and may not get it.
 */
static bool tow_region_ending(struct tow_region *region)
{
	return !region->owner || tow_client_is_ending(region->owner);
}

/* Finds it and claims it, with the table's reference. */
static struct tow_region *tow_region_claim_named(struct tow_client *client,
						 const char *name)
{
	struct tow_regions *regions = &client->dev->memory->regions;
	u8 job_id[TOW_JOB_ID_BYTES];
	struct tow_region *region;

	tow_client_job(client, job_id);
	mutex_lock(&regions->lock);
	region = tow_region_find(client, job_id, name);
	if (!region)
		region = ERR_PTR(-ENOENT);
	else if (!tow_region_claim(region))
		region = ERR_PTR(tow_region_ending(region) ? -EAGAIN : -EBUSY);
	mutex_unlock(&regions->lock);
	return region;
}

/**
 * tow_region_take_over - begin to take over a region that lingers
 * @client: who; a user of the device
 * @name: its name
 *
 * It is charged to the client, too, and does not linger.  What else can fail comes
 * next, then tow_region_taken() or tow_region_give_up(): a client that does not
 * get it changes nothing of it.
 *
 * Return: the region with the caller's reference, or an ERR_PTR(): see
 * TOW_IOCTL_REGION_ATTACH; -EAGAIN: not yet, as what its client had is ending.
 */
struct tow_region *tow_region_take_over(struct tow_client *client,
					const char name[TOW_REGION_NAME_MAX])
{
	struct tow_region *region = tow_region_claim_named(client, name);
	int ret;

	if (IS_ERR(region))
		return region;
	cancel_delayed_work_sync(&region->linger_work);
	/*
	 * Until all has ended by which the client that had it, or peers on its behalf, could
	 * still read it or write to it.  Looked for where it is, as a count would be paid for
	 * by each operation; ATTACH is rare.
	 */
	if (client->dev->memory->ops->in_use(region, region->charge.account))
		ret = -EAGAIN;
	else
		ret = tow_charge_move_begin(&region->charge, client->account);
	if (ret) {
		tow_region_linger(region, region->linger_begun);
		tow_region_put(region);
		return ERR_PTR(ret);
	}
	return region;
}

/**
 * tow_region_give_up - undo tow_region_take_over()
 * @region: the region; the caller keeps his reference
 * @client: as there
 *
 * It lingers as long as it would have, charged to whom it was.
 */
void tow_region_give_up(struct tow_region *region, struct tow_client *client)
{
	tow_charge_move_end(&region->charge, client->account, false);
	tow_region_linger(region, region->linger_begun);
}

/**
 * tow_region_taken - end tow_region_take_over(): the client has it
 * @region: the region
 * @client: who; its process is the one that calls
 * @linger_s: how long it will linger after this client
 */
void tow_region_taken(struct tow_region *region, struct tow_client *client,
		      u32 linger_s)
{
	struct tow_regions *regions = &region->dev->memory->regions;

	tow_charge_move_end(&region->charge, client->account, true);
	mutex_lock(&regions->lock);
	region->owner = client;
	put_pid(region->pid);
	put_user_ns(region->user_ns);
	tow_region_set_client(region, client);
	region->linger_s = linger_s ?: U32_MAX;
	mutex_unlock(&regions->lock);
	trace_tow_region_take_over(region);
}

/* Called with the lock held: how long regions may linger is another from now on. */
static void tow_regions_set_timers(struct tow_regions *regions)
{
	struct tow_region *region;
	int bucket;

	hash_for_each(regions->named, bucket, region, hashed) {
		if (region->lingering)
			mod_delayed_work(tow_wq, &region->linger_work, 0);
	}
}

/**
 * tow_regions_stop - the device is going
 * @regions: its regions
 *
 * What lingers ends soon; what is in use stays with its users, as plain memory.
 */
void tow_regions_stop(struct tow_regions *regions)
{
	mutex_lock(&regions->lock);
	regions->stopped = true;
	tow_regions_set_timers(regions);
	mutex_unlock(&regions->lock);
}

/* ---- what administrators do ----------------------------------------------- */

/**
 * tow_memory_set_linger_max - set linger_max_s
 * @dev: the device
 * @seconds: what it is to be
 *
 * It holds for what lingers, too: each timer looks anew.
 *
 * Return: 0.
 */
int tow_memory_set_linger_max(struct tow_device *dev, u32 seconds)
{
	struct tow_regions *regions = &dev->memory->regions;

	mutex_lock(&regions->lock);
	WRITE_ONCE(regions->linger_max_s, seconds);
	tow_regions_set_timers(regions);
	mutex_unlock(&regions->lock);
	return 0;
}

/**
 * tow_region_end - take a persistent region's name away, and have it linger no more
 * @region: the region; the caller has a reference
 * @pid: where to: its client's process; 0: it has none any more
 *
 * Return: 0; -EBUSY: it has no name: it ends with its handles, descriptors and
 * mappings; or somebody is just taking it over.
 */
int tow_region_end(struct tow_region *region, s32 *pid)
{
	struct tow_regions *regions = &region->dev->memory->regions;
	bool claimed, done;

	mutex_lock(&regions->lock);
	claimed = tow_region_claim(region);
	done = hash_hashed(&region->hashed) && (claimed || region->owner);
	if (done)
		hash_del(&region->hashed);
	*pid = region->owner ? tow_pid_number(region->pid) : 0;
	mutex_unlock(&regions->lock);
	if (claimed) {
		cancel_delayed_work_sync(&region->linger_work);
		tow_region_put(region);
	}
	return done ? 0 : -EBUSY;
}

/* ---- looking -------------------------------------------------------------- */

/**
 * tow_region_is_of - is it the client's user's, in the client's container or job?
 * @region: the region
 * @client: the client
 *
 * Return: true if it is.
 */
bool tow_region_is_of(struct tow_region *region, struct tow_client *client)
{
	struct tow_regions *regions = &region->dev->memory->regions;
	u8 job_id[TOW_JOB_ID_BYTES];
	bool result;

	tow_client_job(client, job_id);
	mutex_lock(&regions->lock);
	result = tow_region_may_have(region, client, job_id) ||
		 (uid_eq(region->kuid, client->kuid) &&
		  region->user_ns == client->user_ns &&
		  (!tow_accounts_by_cgroup() ||
		   region->cgroup_id == client->cgroup_id));
	mutex_unlock(&regions->lock);
	return result;
}

/**
 * tow_region_next - go through the regions
 * @regions: the device's
 * @cursor: 0, or where the last call was; moved on
 *
 * Return: a region with a reference for the caller, or NULL: there are no more.
 */
struct tow_region *tow_region_next(struct tow_regions *regions, u64 *cursor)
{
	unsigned long index = *cursor + 1;
	struct tow_region *region;

	/* No region has such an id; the next number is 0 again. */
	if (!index)
		return NULL;
	xa_lock(&regions->by_id);
	region = xa_find(&regions->by_id, &index, ULONG_MAX, XA_PRESENT);
	while (region && !kref_get_unless_zero(&region->refs))
		region = xa_find_after(&regions->by_id, &index, ULONG_MAX,
				       XA_PRESENT);
	xa_unlock(&regions->by_id);
	if (region)
		*cursor = index;
	return region;
}

static void tow_region_describe_owner(struct tow_region *region,
				      struct tow_region_info *info)
{
	u64 left_ms;

	info->cgroup_id = region->cgroup_id;
	info->uid = from_kuid_munged(current_user_ns(), region->key);
	info->pid = region->owner ? tow_pid_number(region->pid) : 0;
	info->linger_s = region->flags & TOW_REGION_PERSISTENT ?
			 tow_region_linger_s(region) : 0;
	if (!region->lingering)
		return;
	info->flags |= TOW_REGION_LINGERING;
	left_ms = jiffies64_to_nsecs(tow_region_linger_left(region)) / NSEC_PER_MSEC;
	/* As much as the field holds: it may be longer than 49 days. */
	info->linger_left_ms = min_t(u64, left_ms, U32_MAX);
}

/**
 * tow_region_describe - fill in what REGION_QUERY and REGION_LIST tell
 * @region: the region
 * @info: where to, zeroed
 */
void tow_region_describe(struct tow_region *region,
			 struct tow_region_info *info)
{
	struct tow_regions *regions = &region->dev->memory->regions;

	info->flags = region->flags;
	if (tow_region_invalid(region))
		info->flags |= TOW_REGION_INVALID;
	info->id = region->id;
	info->bytes = region->bytes;
	info->map_bytes = region->map_bytes;
	info->fds = atomic_read(&region->fds);
	if (!region->backing)
		info->slabs = region->slab_count;
	memcpy(info->name, region->name, sizeof(info->name));
	memcpy(info->job_id, region->job_id, sizeof(info->job_id));
	mutex_lock(&regions->lock);
	info->charged_bytes = region->charge.amount[TOW_RES_BYTES];
	info->mrs = region->charge.amount[TOW_RES_MRS];
	tow_region_describe_owner(region, info);
	mutex_unlock(&regions->lock);
}

static void tow_region_drop_handle(struct tow_handle *base, bool destroy)
{
	struct tow_region_handle *handle = (struct tow_region_handle *)base;

	if (handle->owner && destroy)
		tow_region_disown(handle->region);
	else if (handle->owner)
		tow_region_linger(handle->region, jiffies);
	tow_uncharge(&handle->charge);
	tow_region_put(handle->region);
}

/* A handle is freed, and found, by its beginning. */
static_assert(offsetof(struct tow_region_handle, handle) == 0);

const struct tow_handle_ops tow_region_handle_ops = {
	.drop	= tow_region_drop_handle,
};

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
	struct tow_region_handle *handle;
	struct tow_region *region = NULL;

	rcu_read_lock();
	handle = (struct tow_region_handle *)
		 tow_client_find_handle(client, number, &tow_region_handle_ops);
	if (handle && kref_get_unless_zero(&handle->region->refs)) {
		region = handle->region;
		*flags = handle->flags;
	}
	rcu_read_unlock();
	return region;
}

/* ---- bytes ------------------------------------------------------------------ */

/* Return: how many of the region's bytes from there on are in one page. */
static size_t tow_region_read_page(const struct tow_region *region, u64 offset,
				   void *to, size_t bytes)
{
	u64 rest;
	u32 index = div64_u64_rem(region->skip + offset, region->slab_bytes,
				  &rest);
	const char *from = page_address(tow_region_page(region, index, rest));

	bytes = min_t(size_t, bytes, PAGE_SIZE - offset_in_page(rest));
	memcpy(to, from + offset_in_page(rest), bytes);
	return bytes;
}

/**
 * tow_region_read - copy bytes of a region
 * @region: the region; programs may write to it meanwhile
 * @offset: of the first byte
 * @to: where to
 * @bytes: how many
 *
 * May sleep.
 *
 * Return: 0; -ERANGE: the bytes are not all in the region; -EOPNOTSUPP: it is another
 * device's memory.
 */
int tow_region_read(const struct tow_region *region, u64 offset, void *to,
		    size_t bytes)
{
	u64 size = max(region->bytes, region->map_bytes);
	size_t done;

	if (bytes > size || offset > size - bytes)
		return -ERANGE;
	if (region->backing && !region->backing->ops->page)
		return -EOPNOTSUPP;
	for (; bytes; bytes -= done, offset += done, to += done) {
		done = tow_region_read_page(region, offset, to, bytes);
		cond_resched();
	}
	return 0;
}

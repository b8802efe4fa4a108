// SPDX-License-Identifier: GPL-2.0
/*
 * Regions: what clients have.  Documentation/design/memory.md says how long they live.
 *
 * A region is held by handles, descriptors and mappings, each in its own right;
 * the last one to go gives the slabs back.  A persistent region has a name, which
 * is its user's in a job.  In a job that has a key, the user has the name in any
 * container; in his own job, which has none, a container's names are its own.  When
 * the client that has the region ends, the region begins to linger: the table holds
 * it, and a timer runs.  Whoever clears "lingering" under the lock (the next owner,
 * the timer, the device's end) takes the table's reference over, so exactly one
 * does.
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

/**
 * tow_regions_cleanup - the opposite
 * @regions: without regions
 */
void tow_regions_cleanup(struct tow_regions *regions)
{
	xa_destroy(&regions->by_id);
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

	region = kvzalloc(struct_size(region, slabs, slab_count),
			  GFP_KERNEL_ACCOUNT);
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

static void tow_region_give_memory(struct tow_region *region)
{
	if (region->backing)
		region->backing->ops->release(region);
	else if (region->slab_count)
		tow_pool_give(&region->dev->memory->pool, region->slabs,
			      region->slab_count, &region->charge);
}

static void tow_region_release(struct kref *refs)
{
	struct tow_region *region = container_of(refs, struct tow_region, refs);
	struct tow_device *dev = region->dev;

	trace_tow_region_end(region);
	if (region->id) {
		xa_erase(&dev->memory->regions.by_id, region->id);
		tow_stat_dec(dev, TOW_STAT_REGIONS);
	}
	tow_region_give_memory(region);
	tow_uncharge(&region->charge);
	put_pid(region->pid);
	put_user_ns(region->user_ns);
	/* tow_client_get_region() may look at it. */
	kvfree_rcu(region, rcu);
	tow_device_put(dev);
}

/**
 * tow_region_get - take another reference
 * @region: the region; the caller has one
 */
void tow_region_get(struct tow_region *region)
{
	kref_get(&region->refs);
}

/**
 * tow_region_get_many - take more references
 * @region: the region; the caller has one
 * @count: how many
 */
void tow_region_get_many(struct tow_region *region, u32 count)
{
	refcount_add(count, &region->refs.refcount);
}

/**
 * tow_region_try_get - take a reference, if it is not about to go
 * @region: the region; the caller is in an RCU read-side critical section
 *
 * Return: whether there is one.
 */
static bool tow_region_try_get(struct tow_region *region)
{
	return kref_get_unless_zero(&region->refs);
}

/**
 * tow_region_put - give a reference back
 * @region: the region; may be gone afterwards
 *
 * May sleep.
 */
void tow_region_put(struct tow_region *region)
{
	kref_put(&region->refs, tow_region_release);
}

/**
 * tow_region_put_many - give references back
 * @region: the region; may be gone afterwards
 * @count: how many
 *
 * May sleep.
 */
void tow_region_put_many(struct tow_region *region, u32 count)
{
	if (refcount_sub_and_test(count, &region->refs.refcount))
		tow_region_release(&region->refs);
}

/* ---- names ---------------------------------------------------------------- */

static u32 tow_region_hash(kuid_t kuid, const u8 job_id[TOW_JOB_ID_BYTES],
			   const char *name)
{
	u32 hash = jhash(job_id, TOW_JOB_ID_BYTES, __kuid_val(kuid));

	return jhash(name, strnlen(name, TOW_REGION_NAME_MAX), hash);
}

/* Called with the lock held: is the region's container the client's? */
static bool tow_region_same_tenant(const struct tow_region *region,
				   const struct tow_client *client)
{
	return region->user_ns == client->user_ns &&
	       (!tow_accounts_by_cgroup() ||
		region->cgroup_id == client->cgroup_id);
}

/* Called with the lock held: whose key is the same is the same. */
static bool tow_region_may_have(const struct tow_region *region,
				const struct tow_client *client,
				const u8 job_id[TOW_JOB_ID_BYTES])
{
	return uid_eq(region->kuid, client->kuid) &&
	       !memcmp(region->job_id, job_id, TOW_JOB_ID_BYTES) &&
	       (tow_job_has_key(job_id) ||
		tow_region_same_tenant(region, client));
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

/* The name is free from now on.  Called with the lock held. */
static void tow_region_unname(struct tow_region *region)
{
	lockdep_assert_held(&region->dev->memory->regions.lock);
	hash_del(&region->hashed);
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
 * @region: complete
 *
 * Return: 0; -EEXIST: a persistent region's name is taken; -ENOMEM; -ENODEV.
 */
int tow_region_publish(struct tow_region *region)
{
	struct tow_regions *regions = &region->dev->memory->regions;
	int ret;

	if (region->flags & TOW_REGION_PERSISTENT) {
		ret = tow_region_give_name(region);
		if (ret)
			return ret;
	}
	xa_lock(&regions->by_id);
	region->id = ++regions->last_id;
	ret = xa_err(__xa_store(&regions->by_id, region->id, region,
				GFP_KERNEL_ACCOUNT));
	if (ret)
		region->id = 0;
	xa_unlock(&regions->by_id);
	if (ret) {
		tow_region_disown(region);
		return ret;
	}
	tow_stat_inc(region->dev, TOW_STAT_REGIONS);
	trace_tow_region_create(region);
	return 0;
}

static enum tow_slab_class tow_region_class(u64 bytes)
{
	return bytes <= TOW_SMALL_REGION_MAX ? TOW_SLAB_SMALL : TOW_SLAB_LARGE;
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

/* Called with the lock held or before anybody else knows the region. */
static u32 tow_region_linger_time(struct tow_regions *regions, u32 linger_s)
{
	u32 max = READ_ONCE(regions->linger_max_s);

	return linger_s ? min(linger_s, max) : max;
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
	enum tow_slab_class class = tow_region_class(bytes);
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
	region->linger_s = tow_region_linger_time(&client->dev->memory->regions,
						  linger_s);
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
	tow_region_unname(region);
	mutex_unlock(&regions->lock);
}

/* Called with the lock held: when the time of one that lingers is over. */
static unsigned long tow_region_linger_end(struct tow_region *region)
{
	struct tow_regions *regions = &region->dev->memory->regions;

	return region->linger_begun +
	       (unsigned long)min(region->linger_s, regions->linger_max_s) * HZ;
}

/* Called with the lock held: have the timer look when its time is over. */
static void tow_region_set_timer(struct tow_region *region)
{
	unsigned long now = jiffies, end = tow_region_linger_end(region);

	lockdep_assert_held(&region->dev->memory->regions.lock);
	queue_delayed_work(tow_wq, &region->linger_work,
			   time_before(now, end) ? end - now : 0);
}

/* Called with the lock held: the table has it from now on, with a reference. */
static void tow_region_linger(struct tow_region *region, unsigned long begun)
{
	tow_region_get(region);
	region->lingering = true;
	region->linger_begun = begun;
	tow_region_set_timer(region);
}

/* Called with the lock held. */
static bool tow_region_may_linger(struct tow_region *region)
{
	return hash_hashed(&region->hashed) && !region->dev->memory->regions.stopped;
}

/**
 * tow_region_orphan - its client has ended
 * @region: the region; the caller has a reference
 *
 * A persistent region lingers from now on.
 */
static void tow_region_orphan(struct tow_region *region)
{
	struct tow_regions *regions = &region->dev->memory->regions;

	mutex_lock(&regions->lock);
	region->owner = NULL;
	if (tow_region_may_linger(region)) {
		tow_region_linger(region, jiffies);
		trace_tow_region_linger(region);
	} else {
		tow_region_unname(region);
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
	bool claimed;

	/* Whoever claimed it waits for us before the region can go. */
	mutex_lock(&regions->lock);
	/* No timer goes as far as some months. */
	if (region->lingering &&
	    time_before(jiffies, tow_region_linger_end(region))) {
		tow_region_set_timer(region);
		mutex_unlock(&regions->lock);
		return;
	}
	claimed = tow_region_claim(region);
	if (claimed)
		tow_region_unname(region);
	/* linger_max_s was written while this waited for the lock. */
	if (claimed)
		cancel_delayed_work(&region->linger_work);
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

/* Claimed, but not taken over: it lingers for the rest of its time. */
static void tow_region_linger_on(struct tow_region *region)
{
	struct tow_regions *regions = &region->dev->memory->regions;

	mutex_lock(&regions->lock);
	if (tow_region_may_linger(region))
		tow_region_linger(region, region->linger_begun);
	else
		tow_region_unname(region);
	mutex_unlock(&regions->lock);
}

/*
 * Has everything ended by which the client that had it, or peers on its behalf,
 * could still read it or write to it?  Looked for where it is, as a count would
 * be paid for by each operation; ATTACH is rare.
 */
static bool tow_region_drained(struct tow_region *region)
{
	const struct tow_memory_ops *ops = region->dev->memory->ops;

	return !ops->in_use(region, region->charge.account);
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
	ret = -EAGAIN;
	if (tow_region_drained(region))
		ret = tow_charge_move_begin(&region->charge, client->account);
	if (ret) {
		tow_region_linger_on(region);
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
	tow_region_linger_on(region);
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
	region->linger_s = tow_region_linger_time(regions, linger_s);
	mutex_unlock(&regions->lock);
	trace_tow_region_take_over(region);
}

/* One that lingers, claimed; or NULL. */
static struct tow_region *tow_regions_claim_any(struct tow_regions *regions)
{
	struct tow_region *region, *found = NULL;
	int bucket;

	mutex_lock(&regions->lock);
	hash_for_each(regions->named, bucket, region, hashed) {
		if (tow_region_claim(region)) {
			tow_region_unname(region);
			found = region;
			break;
		}
	}
	mutex_unlock(&regions->lock);
	return found;
}

/**
 * tow_regions_stop - the device is going
 * @regions: its regions
 *
 * What lingers ends; what is in use stays with its users, as plain memory.
 */
void tow_regions_stop(struct tow_regions *regions)
{
	struct tow_region *region;

	mutex_lock(&regions->lock);
	regions->stopped = true;
	mutex_unlock(&regions->lock);
	while ((region = tow_regions_claim_any(regions))) {
		cancel_delayed_work_sync(&region->linger_work);
		tow_region_put(region);
	}
}

/* ---- what administrators do ----------------------------------------------- */

/* As the caller's PID namespace has it; 0 if it has ended or is not there. */
static s32 tow_region_pid(struct tow_region *region)
{
	s32 number = 0;

	rcu_read_lock();
	if (pid_task(region->pid, PIDTYPE_TGID))
		number = pid_vnr(region->pid);
	rcu_read_unlock();
	return number;
}

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
	struct tow_region *region;
	int bucket;

	mutex_lock(&regions->lock);
	WRITE_ONCE(regions->linger_max_s, seconds);
	hash_for_each(regions->named, bucket, region, hashed) {
		if (region->lingering)
			mod_delayed_work(tow_wq, &region->linger_work, 0);
	}
	mutex_unlock(&regions->lock);
	return 0;
}

/**
 * tow_region_end - take a persistent region's name away, and have it linger no more
 * @region: the region; the caller has a reference
 * @pid: where to: its client's process; 0: it has none any more
 *
 * Return: 0; -EBUSY: it has no name: it ends with its handles, descriptors and
 * mappings.
 */
int tow_region_end(struct tow_region *region, s32 *pid)
{
	struct tow_regions *regions = &region->dev->memory->regions;
	bool named, claimed;

	mutex_lock(&regions->lock);
	named = hash_hashed(&region->hashed);
	claimed = tow_region_claim(region);
	tow_region_unname(region);
	*pid = region->owner ? tow_region_pid(region) : 0;
	mutex_unlock(&regions->lock);
	if (claimed) {
		cancel_delayed_work_sync(&region->linger_work);
		tow_region_put(region);
	}
	return named ? 0 : -EBUSY;
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

	if (!uid_eq(region->kuid, client->kuid))
		return false;
	tow_client_job(client, job_id);
	mutex_lock(&regions->lock);
	result = tow_region_same_tenant(region, client) ||
		 tow_region_may_have(region, client, job_id);
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

/* As much as the field holds: a linger time may be longer than 49 days. */
static u32 tow_region_left_ms(unsigned long left)
{
	u64 left_ms = jiffies64_to_nsecs(left) / NSEC_PER_MSEC;

	return min_t(u64, left_ms, U32_MAX);
}

static void tow_region_describe_owner(struct tow_region *region,
				      struct tow_region_info *info)
{
	unsigned long end;

	info->cgroup_id = region->cgroup_id;
	info->uid = from_kuid_munged(current_user_ns(), region->key);
	info->pid = region->owner ? tow_region_pid(region) : 0;
	info->linger_s = region->flags & TOW_REGION_PERSISTENT ?
			 region->linger_s : 0;
	if (!region->lingering)
		return;
	info->flags |= TOW_REGION_LINGERING;
	end = tow_region_linger_end(region);
	if (time_before(jiffies, end))
		info->linger_left_ms = tow_region_left_ms(end - jiffies);
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
		tow_region_orphan(handle->region);
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
	if (handle && tow_region_try_get(handle->region)) {
		region = handle->region;
		*flags = handle->flags;
	}
	rcu_read_unlock();
	return region;
}

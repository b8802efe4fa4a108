// SPDX-License-Identifier: GPL-2.0
/*
 * Limits: how much of each resource a client, a user and a device may have.
 *
 * A charge counts three times: for the client, for the client's user and for
 * the device.  It is made before the resource is taken and undone after the
 * resource was given back, so the counts are never too low.
 *
 * One lock protects all numbers of a device.  No operation takes it.
 *
 * The error says whose limit was reached: -EDQUOT: the client's or the user's;
 * -ENOSPC: the device's.  The kernel log names the file that raises the limit,
 * at most ten times in five seconds.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cgroup.h>
#include <linux/cred.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include "core/core.h"
#include "core/trace.h"

/*
 * Each region, and each export, costs the kernel some hundred bytes beside its
 * memory.  They are accounted to the client's cgroup; these limits bound them
 * where cgroups do not.
 */
#define TOW_CLIENT_REGIONS_MAX	SZ_64K
#define TOW_USER_REGIONS_MAX	SZ_256K
#define TOW_DEVICE_REGIONS_MAX	SZ_1M
#define TOW_USER_EXPORTS_MAX	SZ_128K
#define TOW_DEVICE_EXPORTS_MAX	SZ_1M

/* An entry of a queue costs a third of a KiB. */
#define TOW_CLIENT_QUEUE_ENTRIES_MAX	SZ_256K
#define TOW_USER_QUEUE_ENTRIES_MAX	SZ_1M
#define TOW_DEVICE_QUEUE_ENTRIES_MAX	SZ_4M

static const char * const tow_limits_files[TOW_LEVELS][TOW_RESOURCES] = {
	[TOW_LEVEL_CLIENT] = {
		[TOW_RES_BYTES]		= "client_bytes_limit",
		[TOW_RES_MRS]		= "client_mr_limit",
		[TOW_RES_REGIONS]	= "client_region_limit",
		[TOW_RES_EXPORTS]	= "client_export_limit",
		[TOW_RES_QUEUE_ENTRIES]	= "client_queue_entries_limit",
	},
	[TOW_LEVEL_USER] = {
		[TOW_RES_BYTES]		= "user_bytes_limit",
		[TOW_RES_MRS]		= "user_mr_limit",
		[TOW_RES_REGIONS]	= "user_region_limit",
		[TOW_RES_EXPORTS]	= "user_export_limit",
		[TOW_RES_QUEUE_ENTRIES]	= "user_queue_entries_limit",
	},
	[TOW_LEVEL_DEVICE] = {
		/* Not a limit: the size of the pool. */
		[TOW_RES_BYTES]		= "pool_bytes",
		[TOW_RES_MRS]		= "mr_limit",
		[TOW_RES_REGIONS]	= "device_region_limit",
		[TOW_RES_EXPORTS]	= "export_limit",
		[TOW_RES_QUEUE_ENTRIES]	= "queue_entries_limit",
		[TOW_RES_POLLERS]	= "poller_limit",
	},
};

/**
 * tow_limits_file - the file in sysfs that holds a limit
 * @level: whose limit
 * @resource: limit of what
 *
 * Return: the file's name; NULL: the limit has no file.
 */
const char *tow_limits_file(enum tow_level level, enum tow_resource resource)
{
	return tow_limits_files[level][resource];
}

static struct tow_device *tow_limits_device(struct tow_limits *limits)
{
	return container_of(limits, struct tow_device, limits);
}

/**
 * tow_limits_init - prepare the structure
 * @limits: zeroed memory inside a tow_device
 * @hardware_mrs: memory regions that the RDMA device has
 */
void tow_limits_init(struct tow_limits *limits, u32 hardware_mrs)
{
	int level;

	spin_lock_init(&limits->lock);
	INIT_LIST_HEAD(&limits->users);
	xa_init(&limits->clients);
	for (level = 0; level < TOW_LEVELS; level++) {
		limits->max[level][TOW_RES_BYTES] = TOW_UNLIMITED;
		limits->max[level][TOW_RES_MRS] = TOW_UNLIMITED;
		limits->max[level][TOW_RES_POLLERS] = TOW_UNLIMITED;
	}
	/* A poller may keep a processor busy: the administrator allows it. */
	limits->max[TOW_LEVEL_DEVICE][TOW_RES_POLLERS] = 0;
	/* Leave some to other users of the RDMA device. */
	limits->max[TOW_LEVEL_DEVICE][TOW_RES_MRS] =
		hardware_mrs - hardware_mrs / 8;
	limits->max[TOW_LEVEL_CLIENT][TOW_RES_REGIONS] = TOW_CLIENT_REGIONS_MAX;
	limits->max[TOW_LEVEL_USER][TOW_RES_REGIONS] = TOW_USER_REGIONS_MAX;
	limits->max[TOW_LEVEL_DEVICE][TOW_RES_REGIONS] = TOW_DEVICE_REGIONS_MAX;
	limits->max[TOW_LEVEL_CLIENT][TOW_RES_EXPORTS] = TOW_UNLIMITED;
	limits->max[TOW_LEVEL_USER][TOW_RES_EXPORTS] = TOW_USER_EXPORTS_MAX;
	limits->max[TOW_LEVEL_DEVICE][TOW_RES_EXPORTS] = TOW_DEVICE_EXPORTS_MAX;
	limits->max[TOW_LEVEL_CLIENT][TOW_RES_QUEUE_ENTRIES] =
		TOW_CLIENT_QUEUE_ENTRIES_MAX;
	limits->max[TOW_LEVEL_USER][TOW_RES_QUEUE_ENTRIES] =
		TOW_USER_QUEUE_ENTRIES_MAX;
	limits->max[TOW_LEVEL_DEVICE][TOW_RES_QUEUE_ENTRIES] =
		TOW_DEVICE_QUEUE_ENTRIES_MAX;
}

static struct tow_account *tow_account_alloc(struct tow_limits *limits)
{
	struct tow_account *account;

	account = kzalloc(sizeof(*account), GFP_KERNEL_ACCOUNT);
	if (!account)
		return NULL;
	kref_init(&account->refs);
	INIT_LIST_HEAD(&account->link);
	account->limits = limits;
	return account;
}

/* Caller holds the lock.  Return: the account with a reference, or NULL. */
static struct tow_account *tow_account_find_user(struct tow_limits *limits,
						 kuid_t key)
{
	struct tow_account *user;

	list_for_each_entry(user, &limits->users, link) {
		if (uid_eq(user->key, key) && kref_get_unless_zero(&user->refs))
			return user;
	}
	return NULL;
}

/*
 * Return: the user's account with a reference; NULL: no memory for a new one.
 */
static struct tow_account *tow_account_user(struct tow_limits *limits,
					    kuid_t key)
{
	struct tow_account *fresh = tow_account_alloc(limits);
	struct tow_account *user;

	if (!fresh)
		return NULL;
	fresh->key = key;
	spin_lock(&limits->lock);
	user = tow_account_find_user(limits, key);
	if (!user) {
		list_add(&fresh->link, &limits->users);
		user = fresh;
	}
	spin_unlock(&limits->lock);
	if (user != fresh)
		kfree(fresh);
	return user;
}

static void tow_account_release(struct kref *refs)
{
	struct tow_account *account = container_of(refs, struct tow_account,
						   refs);
	struct tow_account *user = account->user;
	int i;

	for (i = 0; i < TOW_RESOURCES; i++)
		WARN_ON_ONCE(account->used[i]);
	if (account->id)
		xa_erase(&account->limits->clients, account->id);
	spin_lock(&account->limits->lock);
	list_del(&account->link);
	spin_unlock(&account->limits->lock);
	kfree(account);
	if (user)
		tow_account_put(user);
}

/**
 * tow_account_put - give a reference back
 * @account: the account; the caller keeps its device's structure
 */
void tow_account_put(struct tow_account *account)
{
	kref_put(&account->refs, tow_account_release);
}

/**
 * tow_account_new - open a client's account
 * @limits: the device's
 * @key: the client's user
 *
 * Return: the account with a reference for the caller, or NULL: no memory.
 */
struct tow_account *tow_account_new(struct tow_limits *limits, kuid_t key)
{
	struct tow_account *account = tow_account_alloc(limits);

	if (!account)
		return NULL;
	account->key = key;
	account->user = tow_account_user(limits, key);
	if (!account->user) {
		kfree(account);
		return NULL;
	}
	return account;
}

static u64 *tow_limits_used(struct tow_limits *limits,
			    struct tow_account *account, enum tow_level level)
{
	switch (level) {
	case TOW_LEVEL_CLIENT:
		return account->used;
	case TOW_LEVEL_USER:
		return account->user->used;
	default:
		return limits->used;
	}
}

/* The limit that refused a charge: @used of @max. */
struct tow_refusal {
	enum tow_level		level;
	enum tow_resource	resource;
	u64			used;
	u64			max;
};

/*
 * A client and its user are charged for the MRs that a region may need; the
 * device's MRs outlive regions, and are counted when they are made:
 * tow_limits_take_mr().
 */
static bool tow_limits_counted(enum tow_level level, enum tow_resource resource)
{
	return level != TOW_LEVEL_DEVICE || resource != TOW_RES_MRS;
}

/* Caller holds the lock.  Does @amount fit, on the levels up to @top? */
static bool tow_limits_fit(struct tow_limits *limits,
			   struct tow_account *account,
			   const u64 amount[TOW_RESOURCES], enum tow_level top,
			   struct tow_refusal *refusal)
{
	int level, i;

	for (level = 0; level <= top; level++) {
		const u64 *used = tow_limits_used(limits, account, level);

		for (i = 0; i < TOW_RESOURCES; i++) {
			u64 max = limits->max[level][i];

			if (!tow_limits_counted(level, i) || !amount[i] ||
			    (used[i] <= max && amount[i] <= max - used[i]))
				continue;
			*refusal = (struct tow_refusal){ level, i, used[i], max };
			return false;
		}
	}
	return true;
}

/* Caller holds the lock.  A negative @sign subtracts @amount. */
static void tow_limits_adjust(struct tow_limits *limits,
			      struct tow_account *account,
			      const u64 amount[TOW_RESOURCES],
			      enum tow_level top, int sign)
{
	int level, i;

	for (level = 0; level <= top; level++) {
		u64 *used = tow_limits_used(limits, account, level);

		for (i = 0; i < TOW_RESOURCES; i++) {
			if (!tow_limits_counted(level, i))
				continue;
			used[i] = sign < 0 ? used[i] - amount[i] :
					     used[i] + amount[i];
		}
	}
}

/**
 * tow_limits_cgroup - the cgroup of the current process
 *
 * Return: the cgroup's id; 0: the kernel has no cgroups.
 */
u64 tow_limits_cgroup(void)
{
#ifdef CONFIG_CGROUPS
	u64 id;

	rcu_read_lock();
	id = cgroup_id(task_dfl_cgroup(current));
	rcu_read_unlock();
	return id;
#else
	return 0;
#endif
}

static int tow_limits_refuse(struct tow_limits *limits,
			     struct tow_account *account,
			     const struct tow_refusal *refusal, u64 amount)
{
	struct tow_device *dev = tow_limits_device(limits);
	const char *file = tow_limits_file(refusal->level, refusal->resource);
	bool own = refusal->level != TOW_LEVEL_DEVICE;
	char name[TOW_DEVICE_NAME_MAX];

	tow_device_name(dev, name);
	trace_tow_limit(dev, file, refusal->used, refusal->max, amount);
	tow_stat_inc(dev, own ? TOW_STAT_QUOTA_REFUSALS :
				TOW_STAT_POOL_REFUSALS);
	tow_uevent(dev, "limit", file);
	pr_notice_ratelimited("%s: process %d of user %u (cgroup %llu) asked for %llu, with %llu used of %llu: raise /sys/class/towline/%s/%s\n",
			      name, task_tgid_nr(current),
			      from_kuid(&init_user_ns, account->key),
			      tow_limits_cgroup(), amount, refusal->used,
			      refusal->max, name, file);
	return own ? -EDQUOT : -ENOSPC;
}

/**
 * tow_charge - charge a client
 * @charge: where to: the charge, for tow_uncharge()
 * @account: the client's account
 * @amount: how much of each resource
 *
 * Return: 0; -EDQUOT: a limit of the client or its user is reached; -ENOSPC:
 * one of the device is.  An error charges nothing.
 */
int tow_charge(struct tow_charge *charge, struct tow_account *account,
	       const u64 amount[TOW_RESOURCES])
{
	struct tow_limits *limits = account->limits;
	struct tow_refusal refusal;
	bool fits;

	spin_lock(&limits->lock);
	fits = tow_limits_fit(limits, account, amount, TOW_LEVEL_DEVICE,
			      &refusal);
	if (fits)
		tow_limits_adjust(limits, account, amount, TOW_LEVEL_DEVICE, 1);
	spin_unlock(&limits->lock);
	if (!fits)
		return tow_limits_refuse(limits, account, &refusal,
					 amount[refusal.resource]);
	kref_get(&account->refs);
	charge->account = account;
	memcpy(charge->amount, amount, sizeof(charge->amount));
	return 0;
}

/**
 * tow_uncharge - undo tow_charge()
 * @charge: the charge; without an account nothing happens
 */
void tow_uncharge(struct tow_charge *charge)
{
	struct tow_account *account = charge->account;

	if (!account)
		return;
	spin_lock(&account->limits->lock);
	tow_limits_adjust(account->limits, account, charge->amount,
			  TOW_LEVEL_DEVICE, -1);
	spin_unlock(&account->limits->lock);
	charge->account = NULL;
	tow_account_put(account);
}

/**
 * tow_charge_leave - separate bytes from a charge, which stay charged
 * @charge: the charge, of at least @bytes
 * @bytes: how many outlive tow_uncharge() of @charge
 *
 * Return: the charged account with a reference, for tow_account_uncharge();
 * NULL: @charge has no account.
 */
struct tow_account *tow_charge_leave(struct tow_charge *charge, u64 bytes)
{
	struct tow_account *account = charge->account;

	if (!account)
		return NULL;
	kref_get(&account->refs);
	charge->amount[TOW_RES_BYTES] -= bytes;
	spin_lock(&account->limits->lock);
	account->held_bytes += bytes;
	spin_unlock(&account->limits->lock);
	return account;
}

/**
 * tow_account_uncharge - uncharge the bytes of tow_charge_leave()
 * @account: the account that it returned; the reference is given back
 * @bytes: how many bytes
 */
void tow_account_uncharge(struct tow_account *account, u64 bytes)
{
	struct tow_charge left = {
		.account	= account,
		.amount		= { [TOW_RES_BYTES] = bytes },
	};

	spin_lock(&account->limits->lock);
	account->held_bytes -= bytes;
	spin_unlock(&account->limits->lock);
	tow_uncharge(&left);
}

/* Caller holds the lock. */
static void tow_charge_shift(struct tow_charge *charge,
			     struct tow_account *from, struct tow_account *to)
{
	struct tow_limits *limits = to->limits;

	tow_limits_adjust(limits, to, charge->amount, TOW_LEVEL_CLIENT, 1);
	tow_limits_adjust(limits, from, charge->amount, TOW_LEVEL_CLIENT, -1);
	charge->account = to;
}

/**
 * tow_charge_move - charge another client of the same user instead
 * @charge: the charge
 * @to: the other client's account; may be the charged one
 * @from: where to: the account that was charged, with the charge's reference
 *
 * The user's and the device's numbers do not change.
 *
 * Return: 0; -EDQUOT: a limit of @to is reached, and nothing has changed.
 */
int tow_charge_move(struct tow_charge *charge, struct tow_account *to,
		    struct tow_account **from)
{
	struct tow_account *account = charge->account;
	struct tow_limits *limits = to->limits;
	struct tow_refusal refusal;
	bool fits;

	if (WARN_ON_ONCE(account->user != to->user))
		return -EDQUOT;
	spin_lock(&limits->lock);
	/* An account that is charged already keeps the charge, at any limit. */
	fits = account == to || tow_limits_fit(limits, to, charge->amount,
					       TOW_LEVEL_CLIENT, &refusal);
	if (fits)
		tow_charge_shift(charge, account, to);
	spin_unlock(&limits->lock);
	if (!fits)
		return tow_limits_refuse(limits, to, &refusal,
					 charge->amount[refusal.resource]);
	kref_get(&to->refs);
	*from = account;
	return 0;
}

/**
 * tow_charge_move_back - undo tow_charge_move()
 * @charge: the charge
 * @from: the account that it stored; the charge takes its reference
 *
 * Limits are not checked: @from was charged before.
 */
void tow_charge_move_back(struct tow_charge *charge, struct tow_account *from)
{
	struct tow_account *account = charge->account;

	spin_lock(&from->limits->lock);
	tow_charge_shift(charge, account, from);
	spin_unlock(&from->limits->lock);
	tow_account_put(account);
}

/**
 * tow_limits_take_mr - count a memory region that is about to be made
 * @limits: the device's
 *
 * Return: 0, or -ENOSPC: the device's limit is reached.
 */
int tow_limits_take_mr(struct tow_limits *limits)
{
	int ret = -ENOSPC;

	spin_lock(&limits->lock);
	if (limits->used[TOW_RES_MRS] <
	    limits->max[TOW_LEVEL_DEVICE][TOW_RES_MRS]) {
		limits->used[TOW_RES_MRS]++;
		ret = 0;
	}
	spin_unlock(&limits->lock);
	return ret;
}

/**
 * tow_limits_give_mr - undo tow_limits_take_mr()
 * @limits: the device's
 */
void tow_limits_give_mr(struct tow_limits *limits)
{
	spin_lock(&limits->lock);
	limits->used[TOW_RES_MRS]--;
	spin_unlock(&limits->lock);
}

/**
 * tow_limits_refuse_mr - log that the limit of memory regions is reached
 * @limits: the device's, whose limit is reached
 */
void tow_limits_refuse_mr(struct tow_limits *limits)
{
	u64 max = tow_limits_get(limits, TOW_LEVEL_DEVICE, TOW_RES_MRS);
	struct tow_device *dev = tow_limits_device(limits);
	u64 used = tow_limits_mrs(limits);
	char name[TOW_DEVICE_NAME_MAX];

	tow_device_name(dev, name);
	trace_tow_limit(dev, "mr_limit", used, max, 1);
	tow_stat_inc(dev, TOW_STAT_POOL_REFUSALS);
	tow_uevent(dev, "limit", "mr_limit");
	pr_notice_ratelimited("%s: %llu memory regions used of %llu: raise /sys/class/towline/%s/mr_limit\n",
			      name, used, max, name);
}

/**
 * tow_limits_mrs - how many memory regions are counted?
 * @limits: the device's
 *
 * Return: their number.
 */
u64 tow_limits_mrs(struct tow_limits *limits)
{
	u64 used;

	spin_lock(&limits->lock);
	used = limits->used[TOW_RES_MRS];
	spin_unlock(&limits->lock);
	return used;
}

/**
 * tow_limits_get - read a limit
 * @limits: the device's
 * @level: whose limit
 * @resource: limit of what
 *
 * Return: the limit; TOW_UNLIMITED: there is none.
 */
u64 tow_limits_get(struct tow_limits *limits, enum tow_level level,
		   enum tow_resource resource)
{
	u64 max;

	spin_lock(&limits->lock);
	max = limits->max[level][resource];
	spin_unlock(&limits->lock);
	return max;
}

/**
 * tow_limits_set - change a limit
 * @limits: the device's
 * @level: whose limit
 * @resource: limit of what
 * @max: the new limit; charges that exceed it already stay
 */
void tow_limits_set(struct tow_limits *limits, enum tow_level level,
		    enum tow_resource resource, u64 max)
{
	spin_lock(&limits->lock);
	limits->max[level][resource] = max;
	spin_unlock(&limits->lock);
}

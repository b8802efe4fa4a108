// SPDX-License-Identifier: GPL-2.0
/*
 * Limits: how much of each resource a client, a user and a device may have.
 *
 * Accounts are a tree: a client's is below its user's, that below the device's.
 * The user of a process in a container is the container.  With
 * account_by=cgroup it is the process's cgroup, whose account is below that of
 * the cgroup above.  So nobody has more by making users, containers or cgroups
 * inside his own.  A charge counts in the client's account and in all above.  It
 * is made before the resource is taken and undone after the resource was given
 * back, so the counts are never too low.
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
#include <linux/moduleparam.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/sysfs.h>
#include <linux/user_namespace.h>

#include "core/core.h"
#include "core/trace.h"

/* See Documentation/ABI/testing/sysfs-module-towline. */
static char *tow_account_by = "user";
module_param_named(account_by, tow_account_by, charp, 0444);
MODULE_PARM_DESC(account_by, "whose limits the user_*_limit files are: user or cgroup");

/*
 * Limits at first.  What has no file is not limited.  Each region, and each
 * export, costs the kernel some hundred bytes beside its memory, an entry of a
 * queue a third of a KiB.  They are accounted to the client's cgroup; these
 * limits bound them where cgroups do not.
 */
static const struct {
	const char	*file;
	u64		max;
} tow_limits_known[TOW_LEVELS][TOW_RESOURCES] = {
	[TOW_LEVEL_CLIENT] = {
		[TOW_RES_BYTES]		= { "client_bytes_limit", TOW_UNLIMITED },
		[TOW_RES_MRS]		= { "client_mr_limit", TOW_UNLIMITED },
		[TOW_RES_REGIONS]	= { "client_region_limit", SZ_64K },
		[TOW_RES_EXPORTS]	= { "client_export_limit", TOW_UNLIMITED },
		[TOW_RES_QUEUE_ENTRIES]	= { "client_queue_entries_limit", SZ_256K },
	},
	[TOW_LEVEL_USER] = {
		[TOW_RES_BYTES]		= { "user_bytes_limit", TOW_UNLIMITED },
		[TOW_RES_MRS]		= { "user_mr_limit", TOW_UNLIMITED },
		[TOW_RES_REGIONS]	= { "user_region_limit", SZ_256K },
		[TOW_RES_EXPORTS]	= { "user_export_limit", SZ_128K },
		[TOW_RES_GRANTS]	= { "user_grant_limit", SZ_1M },
		[TOW_RES_QUEUE_ENTRIES]	= { "user_queue_entries_limit", SZ_1M },
	},
	[TOW_LEVEL_DEVICE] = {
		/* Not a limit: the size of the pool. */
		[TOW_RES_BYTES]		= { "pool_bytes", TOW_UNLIMITED },
		/* tow_limits_init() */
		[TOW_RES_MADE_MRS]	= { "mr_limit" },
		[TOW_RES_REGIONS]	= { "device_region_limit", SZ_1M },
		[TOW_RES_EXPORTS]	= { "export_limit", SZ_1M },
		[TOW_RES_QUEUE_ENTRIES]	= { "queue_entries_limit", SZ_4M },
		/* A poller may keep a processor busy: the administrator allows it. */
		[TOW_RES_POLLERS]	= { "poller_limit", 0 },
	},
};

/* A cgroup that is deeper down is the one of its ancestors that is so deep. */
#define TOW_CGROUP_LEVELS	32

/**
 * struct tow_cgroup_limit - a line of cgroup_bytes_limit
 * @link: in tow_limits.cgroups
 * @max: bytes that the cgroup may have
 * @path: of the cgroup
 */
struct tow_cgroup_limit {
	struct list_head	link;
	u64			max;
	char			path[];
};

/**
 * tow_limits_init - prepare the structure
 * @limits: zeroed memory inside a tow_device
 * @hardware_mrs: memory regions that the RDMA device has
 */
void tow_limits_init(struct tow_limits *limits, u32 hardware_mrs)
{
	int level, i;

	spin_lock_init(&limits->lock);
	hash_init(limits->users);
	INIT_LIST_HEAD(&limits->cgroups);
	kref_init(&limits->device.refs);
	limits->device.limits = limits;
	limits->device.level = TOW_LEVEL_DEVICE;
	xa_init(&limits->clients);
	for (level = 0; level < TOW_LEVELS; level++) {
		for (i = 0; i < TOW_RESOURCES; i++)
			limits->max[level][i] =
				tow_limits_known[level][i].file ?
				tow_limits_known[level][i].max : TOW_UNLIMITED;
	}
	/* Leave some to other users of the RDMA device. */
	limits->max[TOW_LEVEL_DEVICE][TOW_RES_MADE_MRS] =
		hardware_mrs - hardware_mrs / 8;
}

/**
 * tow_limits_cleanup - the opposite
 * @limits: without accounts
 */
void tow_limits_cleanup(struct tow_limits *limits)
{
	struct tow_cgroup_limit *limit, *next;

	list_for_each_entry_safe(limit, next, &limits->cgroups, link)
		kfree(limit);
	/* It has no accounts, but may have room that one did not get. */
	xa_destroy(&limits->clients);
}

/* ---- accounts ------------------------------------------------------------ */

/* Takes over the caller's reference of @parent.  NULL: no memory. */
static struct tow_account *tow_account_alloc(struct tow_account *parent,
					     enum tow_level level, kuid_t kuid)
{
	struct tow_account *account;

	account = kzalloc(sizeof(*account), GFP_KERNEL_ACCOUNT);
	if (!account) {
		tow_account_put(parent);
		return NULL;
	}
	kref_init(&account->refs);
	account->limits = parent->limits;
	account->parent = parent;
	account->level = level;
	account->kuid = kuid;
	return account;
}

static void tow_account_release(struct kref *refs)
{
	struct tow_account *account = container_of(refs, struct tow_account,
						   refs);
	int i;

	for (i = 0; i < TOW_RESOURCES; i++)
		WARN_ON_ONCE(account->used[i]);
	if (account->id)
		xa_erase(&account->limits->clients, account->id);
	spin_lock(&account->limits->lock);
	hash_del(&account->link);
	spin_unlock(&account->limits->lock);
	if (account->user_ns)
		put_user_ns(account->user_ns);
	kfree(account->path);
	kfree(account);
}

/**
 * tow_account_put - give a reference back
 * @account: the account; the caller keeps its device's structure
 */
void tow_account_put(struct tow_account *account)
{
	struct tow_account *parent;

	/* Its own was the last of the account below. */
	for (; account; account = parent) {
		parent = account->parent;
		if (!kref_put(&account->refs, tow_account_release))
			break;
	}
}

/* Caller holds the lock.  NULL: no line of the file says @path. */
static struct tow_cgroup_limit *tow_cgroup_limit_find(struct tow_limits *limits,
						      const char *path)
{
	struct tow_cgroup_limit *limit;

	list_for_each_entry(limit, &limits->cgroups, link) {
		if (!strcmp(limit->path, path))
			return limit;
	}
	return NULL;
}

static u64 tow_account_key(const struct tow_account *account)
{
	return account->cgroup_id ^ (uintptr_t)account->user_ns ^
	       __kuid_val(account->kuid);
}

static bool tow_account_equal(const struct tow_account *one,
			      const struct tow_account *other)
{
	return uid_eq(one->kuid, other->kuid) &&
	       one->user_ns == other->user_ns &&
	       one->cgroup_id == other->cgroup_id;
}

/*
 * The account of a user who may have one already: that, or else @fresh, which is
 * put if it is not the one.
 */
static struct tow_account *tow_account_share(struct tow_account *fresh)
{
	struct tow_limits *limits = fresh->limits;
	struct tow_account *user;

	spin_lock(&limits->lock);
	hash_for_each_possible(limits->users, user, link,
			       tow_account_key(fresh)) {
		if (tow_account_equal(user, fresh) &&
		    kref_get_unless_zero(&user->refs))
			goto out_unlock;
	}
	user = fresh;
	hash_add(limits->users, &user->link, tow_account_key(user));
	if (user->path)
		user->named = tow_cgroup_limit_find(limits, user->path);
out_unlock:
	spin_unlock(&limits->lock);
	if (user != fresh)
		tow_account_put(fresh);
	return user;
}

/* The outermost user namespace, but the initial one, that the process is in. */
static struct user_namespace *tow_user_ns(void)
{
	struct user_namespace *ns = current_user_ns();

	while (ns->parent && ns->parent != &init_user_ns)
		ns = ns->parent;
	return ns;
}

/*
 * Is it root's container?  A namespace of one user only is none: setuid programs
 * like bubblewrap make such ones as root for the user who runs them, and a process of
 * root's without capabilities can make any number of them.
 */
static bool tow_user_ns_is_container(struct user_namespace *ns)
{
	/* Pairs with map_write(), which writes the number last. */
	u32 extents = smp_load_acquire(&ns->uid_map.nr_extents);

	return ns != &init_user_ns && uid_eq(ns->owner, GLOBAL_ROOT_UID) &&
	       (extents > 1 || (extents && ns->uid_map.extent[0].count > 1));
}

/* The user that listings show as charged: of a container, its owner. */
static kuid_t tow_user(void)
{
	struct user_namespace *ns = tow_user_ns();

	if (ns == &init_user_ns || (uid_eq(ns->owner, GLOBAL_ROOT_UID) &&
				    !tow_user_ns_is_container(ns)))
		return current_euid();
	return ns->owner;
}

/*
 * A user namespace is its owner's, who could make more of them; but root's
 * containers are each for itself.  NULL: no memory; @device is put.
 */
static struct tow_account *tow_account_of_user(struct tow_account *device)
{
	struct user_namespace *ns = tow_user_ns();
	struct tow_account *account;

	account = tow_account_alloc(device, TOW_LEVEL_USER, tow_user());
	if (!account)
		return NULL;
	if (tow_user_ns_is_container(ns))
		account->user_ns = get_user_ns(ns);
	return tow_account_share(account);
}

#ifdef CONFIG_CGROUPS
static char *tow_cgroup_path(struct cgroup *cgroup)
{
	char *buffer = kzalloc(PATH_MAX, GFP_KERNEL);
	char *path;

	if (!buffer)
		return NULL;
	cgroup_path(cgroup, buffer, PATH_MAX);
	path = kstrdup(buffer, GFP_KERNEL_ACCOUNT);
	kfree(buffer);
	return path;
}

/* @account, of @cgroup's parent, is put.  NULL: no memory. */
static struct tow_account *tow_account_below(struct tow_account *account,
					     struct cgroup *cgroup)
{
	account = tow_account_alloc(account, TOW_LEVEL_USER, INVALID_UID);
	if (!account)
		return NULL;
	account->cgroup_id = cgroup_id(cgroup);
	account->path = tow_cgroup_path(cgroup);
	if (!account->path) {
		tow_account_put(account);
		return NULL;
	}
	return tow_account_share(account);
}

/* The process's cgroup, with a reference. */
static struct cgroup *tow_cgroup_get(void)
{
	struct cgroup *cgroup;

	rcu_read_lock();
	do {
		cgroup = task_dfl_cgroup(current);
	} while (!cgroup_tryget(cgroup));
	rcu_read_unlock();
	return cgroup;
}

/* The account of the root is @account, the device's.  NULL: no memory; it is put. */
static struct tow_account *tow_account_of_cgroup(struct tow_account *account)
{
	struct cgroup *cgroup = tow_cgroup_get();
	int level, depth = min(cgroup->level, TOW_CGROUP_LEVELS);

	for (level = 1; account && level <= depth; level++)
		account = tow_account_below(account,
					    cgroup_ancestor(cgroup, level));
	cgroup_put(cgroup);
	return account;
}
#else
static struct tow_account *tow_account_of_cgroup(struct tow_account *account)
{
	return account;
}
#endif

/**
 * tow_accounts_by_cgroup - is it cgroups that are charged, not users?
 *
 * Return: true if it is; -EINVAL: the module's parameter is neither.
 */
int tow_accounts_by_cgroup(void)
{
	if (!strcmp(tow_account_by, "user"))
		return false;
	if (IS_ENABLED(CONFIG_CGROUPS) && !strcmp(tow_account_by, "cgroup"))
		return true;
	return -EINVAL;
}

/**
 * tow_account_new - open an account for the current process, a client
 * @limits: the device's
 *
 * Return: the account with a reference for the caller, or NULL: no memory.
 */
struct tow_account *tow_account_new(struct tow_limits *limits)
{
	struct tow_account *account = &limits->device;

	kref_get(&account->refs);
	if (tow_accounts_by_cgroup())
		account = tow_account_of_cgroup(account);
	/* A process in the root cgroup is its user's. */
	if (account == &limits->device)
		account = tow_account_of_user(account);
	return account ? tow_account_alloc(account, TOW_LEVEL_CLIENT,
					   tow_user()) : NULL;
}

/**
 * tow_account_enrol - let a client's account be listed
 * @client: the client, complete
 *
 * tow_account_close() follows, also after an error.
 *
 * Return: 0 or -ENOMEM.
 */
int tow_account_enrol(struct tow_client *client)
{
	struct tow_account *account = client->account;
	struct tow_limits *limits = account->limits;
	int ret;

	account->opener = client->kuid;
	account->opener_cgroup = client->cgroup_id;
	xa_lock(&limits->clients);
	account->client = client;
	account->id = ++limits->last_id;
	ret = xa_err(__xa_store(&limits->clients, account->id, account,
				GFP_KERNEL_ACCOUNT));
	xa_unlock(&limits->clients);
	return ret;
}

/**
 * tow_account_close - the account's client is found by it no more
 * @account: the account of a client whose file is closed
 */
void tow_account_close(struct tow_account *account)
{
	xa_lock(&account->limits->clients);
	account->client = NULL;
	xa_unlock(&account->limits->clients);
}

/* ---- charges ------------------------------------------------------------- */

/* The limit that refused a charge: @used of @max. */
struct tow_refusal {
	const struct tow_account	*account;
	enum tow_resource		resource;
	u64				used;
	u64				max;
};

/* A cgroup that the administrator named has that limit of bytes; "max": none at all. */
static u64 tow_account_max(const struct tow_account *account,
			   enum tow_resource resource)
{
	if (account->named && (resource == TOW_RES_BYTES ||
			       account->named->max == TOW_UNLIMITED))
		return account->named->max;
	return READ_ONCE(account->limits->max[account->level][resource]);
}

/* Caller holds the lock.  Does @amount fit, in @account and above, below @top? */
static bool tow_limits_fit(const struct tow_account *account,
			   const struct tow_account *top,
			   const u64 amount[TOW_RESOURCES],
			   struct tow_refusal *refusal)
{
	int i;

	for (; account != top; account = account->parent) {
		for (i = 0; i < TOW_RESOURCES; i++) {
			u64 max = tow_account_max(account, i);
			u64 used = account->used[i];

			if (!amount[i] ||
			    (used <= max && amount[i] <= max - used))
				continue;
			*refusal = (struct tow_refusal){ account, i, used, max };
			return false;
		}
	}
	return true;
}

/* Caller holds the lock.  A negative @sign subtracts @amount. */
static void tow_limits_adjust(struct tow_account *account,
			      const struct tow_account *top,
			      const u64 amount[TOW_RESOURCES], int sign)
{
	int i;

	for (; account != top; account = account->parent) {
		for (i = 0; i < TOW_RESOURCES; i++)
			account->used[i] += sign * amount[i];
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

static int tow_limits_refuse(const struct tow_refusal *refusal,
			     const u64 amounts[TOW_RESOURCES])
{
	const struct tow_account *account = refusal->account;
	struct tow_device *dev = container_of(account->limits,
					      struct tow_device, limits);
	u64 amount = amounts[refusal->resource];
	const char *file = account->named &&
			   refusal->resource == TOW_RES_BYTES ?
		"cgroup_bytes_limit" :
		tow_limits_known[account->level][refusal->resource].file;
	bool own = account->level != TOW_LEVEL_DEVICE;
	char name[TOW_DEVICE_NAME_MAX];

	tow_device_name(dev, name);
	trace_tow_limit(dev, file, refusal->used, refusal->max, amount);
	tow_stat_inc(dev, own ? TOW_STAT_QUOTA_REFUSALS :
				TOW_STAT_POOL_REFUSALS);
	tow_uevent(dev, "limit", file);
	pr_notice_ratelimited("%s: process %d of user %u (cgroup %llu) asked for %llu, with %llu used of %llu%s%.300s: raise /sys/class/towline/%s/%s\n",
			      name, task_tgid_nr(current),
			      from_kuid(&init_user_ns, current_euid()),
			      tow_limits_cgroup(), amount, refusal->used,
			      refusal->max, account->path ? " by cgroup " : "",
			      account->path ?: "", name, file);
	return own ? -EDQUOT : -ENOSPC;
}

/*
 * Charge @account, and what is above it below @top.  Return: whether it fits; if not,
 * nothing is charged.  tow_account_give() follows.
 */
static bool tow_account_take(struct tow_account *account,
			     const struct tow_account *top,
			     const u64 amount[TOW_RESOURCES],
			     struct tow_refusal *refusal)
{
	bool fits;

	spin_lock(&account->limits->lock);
	fits = tow_limits_fit(account, top, amount, refusal);
	if (fits) {
		tow_limits_adjust(account, top, amount, 1);
		kref_get(&account->refs);
	}
	spin_unlock(&account->limits->lock);
	return fits;
}

/* Of what is uncharged, @held bytes were of tow_charge_leave(). */
static void tow_account_give(struct tow_account *account,
			     const struct tow_account *top,
			     const u64 amount[TOW_RESOURCES], u64 held)
{
	spin_lock(&account->limits->lock);
	account->held_bytes -= held;
	tow_limits_adjust(account, top, amount, -1);
	spin_unlock(&account->limits->lock);
	tow_account_put(account);
}

static bool tow_charge_fits(struct tow_charge *charge,
			    struct tow_account *account,
			    const u64 amount[TOW_RESOURCES],
			    struct tow_refusal *refusal)
{
	if (!tow_account_take(account, NULL, amount, refusal))
		return false;
	charge->account = account;
	memcpy(charge->amount, amount, sizeof(charge->amount));
	return true;
}

/**
 * tow_charge_try - charge a client; a refusal is not the last word
 * @charge: where to: the charge, for tow_uncharge()
 * @account: the client's account
 * @amount: how much of each resource
 *
 * Return: whether it is charged.  A refusal is neither counted nor logged.
 */
bool tow_charge_try(struct tow_charge *charge, struct tow_account *account,
		    const u64 amount[TOW_RESOURCES])
{
	struct tow_refusal refusal;

	return tow_charge_fits(charge, account, amount, &refusal);
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
	struct tow_refusal refusal;

	if (tow_charge_fits(charge, account, amount, &refusal))
		return 0;
	return tow_limits_refuse(&refusal, amount);
}

/**
 * tow_uncharge - undo tow_charge()
 * @charge: the charge; without an account nothing happens
 */
void tow_uncharge(struct tow_charge *charge)
{
	if (charge->account)
		tow_account_give(charge->account, NULL, charge->amount, 0);
	charge->account = NULL;
}

/**
 * tow_charge_more - charge one more for what is charged already
 * @charge: the charge
 * @resource: of what
 * @own: how many whoever takes it has, at most; none has more than are left
 *
 * Return: whether it is charged.  A refusal is counted, and logged.
 */
bool tow_charge_more(struct tow_charge *charge, enum tow_resource resource,
		     u64 own)
{
	struct tow_account *account = charge->account;
	struct tow_device *dev = container_of(account->limits,
					      struct tow_device, limits);
	u64 amount[TOW_RESOURCES] = {};
	char name[TOW_DEVICE_NAME_MAX];
	struct tow_refusal refusal;
	const char *file;
	bool fits;

	spin_lock(&account->limits->lock);
	/* Of which some may be others': not more than those above have. */
	amount[resource] = min(own, account->parent->used[resource]) + 1;
	fits = tow_limits_fit(account, NULL, amount, &refusal);
	amount[resource] = 1;
	if (fits) {
		tow_limits_adjust(account, NULL, amount, 1);
		kref_get(&account->refs);
		charge->amount[resource]++;
	}
	spin_unlock(&account->limits->lock);
	if (fits)
		return true;
	file = tow_limits_known[refusal.account->level][resource].file;
	trace_tow_limit(dev, file, refusal.used, refusal.max, 1);
	tow_stat_inc(dev, TOW_STAT_QUOTA_REFUSALS);
	tow_device_name(dev, name);
	pr_notice_ratelimited("%s: peers have %llu of %llu: raise /sys/class/towline/%s/%s\n",
			      name, refusal.used, refusal.max, name, file);
	return false;
}

/**
 * tow_charge_less - undo tow_charge_more()
 * @charge: the charge
 * @resource: of what
 */
void tow_charge_less(struct tow_charge *charge, enum tow_resource resource)
{
	u64 amount[TOW_RESOURCES] = {};

	amount[resource] = 1;
	charge->amount[resource]--;
	tow_account_give(charge->account, NULL, amount, 0);
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
	const u64 amount[TOW_RESOURCES] = { [TOW_RES_BYTES] = bytes };

	tow_account_give(account, NULL, amount, bytes);
}

/* The lowest account that is above both, or one of them: at most the device's. */
static const struct tow_account *tow_account_common(const struct tow_account *one,
						    const struct tow_account *other)
{
	const struct tow_account *above;

	for (;; one = one->parent) {
		for (above = other; above; above = above->parent) {
			if (above == one)
				return one;
		}
	}
}

/**
 * tow_charge_move_begin - charge another client, too
 * @charge: the charge
 * @to: the other client's account; may be the charged one
 *
 * What is above both accounts is charged already, and keeps that at any limit.
 * tow_charge_move_end() follows.
 *
 * Return: 0; -EDQUOT: a limit of @to or its user is reached, and nothing has
 * changed.
 */
int tow_charge_move_begin(struct tow_charge *charge, struct tow_account *to)
{
	struct tow_refusal refusal;

	if (tow_account_take(to, tow_account_common(charge->account, to),
			     charge->amount, &refusal))
		return 0;
	return tow_limits_refuse(&refusal, charge->amount);
}

/**
 * tow_charge_move_end - charge one client only again
 * @charge: the charge
 * @to: as in tow_charge_move_begin()
 * @moved: @to is charged from now on; else the one that was before
 */
void tow_charge_move_end(struct tow_charge *charge, struct tow_account *to,
			 bool moved)
{
	const struct tow_account *top = tow_account_common(charge->account, to);
	struct tow_account *other = moved ? charge->account : to;

	if (moved)
		charge->account = to;
	tow_account_give(other, top, charge->amount, 0);
}

/* ---- the device's memory regions ----------------------------------------- */

static const u64 tow_limits_mr[TOW_RESOURCES] = { [TOW_RES_MADE_MRS] = 1 };

/**
 * tow_limits_take_mr - count a memory region that is about to be made
 * @limits: the device's
 *
 * Return: 0, or -ENOSPC: the device's limit is reached.
 */
int tow_limits_take_mr(struct tow_limits *limits)
{
	struct tow_refusal refusal;

	return tow_account_take(&limits->device, NULL, tow_limits_mr,
				&refusal) ? 0 : -ENOSPC;
}

/**
 * tow_limits_give_mr - undo tow_limits_take_mr()
 * @limits: the device's
 */
void tow_limits_give_mr(struct tow_limits *limits)
{
	tow_account_give(&limits->device, NULL, tow_limits_mr, 0);
}

/**
 * tow_limits_refuse_mr - log that the limit of memory regions is reached
 * @limits: the device's, whose limit is reached
 */
void tow_limits_refuse_mr(struct tow_limits *limits)
{
	const struct tow_refusal refusal = {
		.account	= &limits->device,
		.resource	= TOW_RES_MADE_MRS,
		.used		= tow_limits_mrs(limits),
		.max		= tow_account_max(&limits->device,
						  TOW_RES_MADE_MRS),
	};

	tow_limits_refuse(&refusal, tow_limits_mr);
}

/**
 * tow_limits_mrs - how many memory regions are counted?
 * @limits: the device's
 *
 * Return: their number.
 */
u64 tow_limits_mrs(struct tow_limits *limits)
{
	return READ_ONCE(limits->device.used[TOW_RES_MADE_MRS]);
}

/* ---- the administrator's ------------------------------------------------- */

/**
 * tow_limits_set_cgroup - give a cgroup a limit of bytes instead of a user's
 * @limits: the device's
 * @path: of the cgroup, whether or not there is one
 * @max: the limit; NULL: it has a user's limits again
 *
 * Return: 0 or -ENOMEM.
 */
int tow_limits_set_cgroup(struct tow_limits *limits, const char *path,
			  const u64 *max)
{
	struct tow_cgroup_limit *limit = NULL, *old;
	size_t bytes = strlen(path) + 1;
	struct tow_account *user;
	int bucket;

	if (max) {
		limit = kmalloc(struct_size(limit, path, bytes), GFP_KERNEL);
		if (!limit)
			return -ENOMEM;
		limit->max = *max;
		memcpy(limit->path, path, bytes);
	}
	spin_lock(&limits->lock);
	old = tow_cgroup_limit_find(limits, path);
	if (old)
		list_del(&old->link);
	if (limit)
		list_add_tail(&limit->link, &limits->cgroups);
	hash_for_each(limits->users, bucket, user, link) {
		if (user->path && !strcmp(user->path, path))
			user->named = limit;
	}
	spin_unlock(&limits->lock);
	kfree(old);
	return 0;
}

/**
 * tow_limits_show_cgroups - what cgroup_bytes_limit says
 * @limits: the device's
 * @buf: where to; a page
 *
 * Return: the number of bytes.
 */
int tow_limits_show_cgroups(struct tow_limits *limits, char *buf)
{
	struct tow_cgroup_limit *limit;
	int bytes = 0;

	spin_lock(&limits->lock);
	list_for_each_entry(limit, &limits->cgroups, link) {
		bytes += sysfs_emit_at(buf, bytes, "%s ", limit->path);
		bytes += limit->max == TOW_UNLIMITED ?
			 sysfs_emit_at(buf, bytes, "max\n") :
			 sysfs_emit_at(buf, bytes, "%llu\n", limit->max);
	}
	spin_unlock(&limits->lock);
	return bytes;
}

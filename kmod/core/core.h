/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The core: devices, clients, calls, limits and the flight recorder, which all
 * layers use.
 *
 * A device is a structure that outlives its hardware; a client is an open file
 * and the process that opened it.  struct tow_device has a pointer to each
 * layer's part of a device; the layers below that one never follow the pointer.
 *
 * Who holds what: a reference (tow_device.refs) keeps the structure.  A user
 * (tow_device.users) keeps the hardware and all that is made on it: removal
 * waits for users, so a user never waits for user space.  A client holds its
 * device, and by its handles regions, exports and remote ranges; it ends with
 * its process or with its file, whichever goes first.  A charge holds an
 * account.
 *
 * Locks, outermost first: tow_process.lock; tow_client.poll_lock; the layers'
 * locks, among them tow_queue.submit; tow_client.lock; tow_directory.lock and those
 * below it, which publish a handle; tow_limits.lock.
 * tow_device.name_lock and tow_recorder.lock are innermost: they may be taken
 * in any context, with any other lock held.
 *
 * The core calls upper layers by tow_device.release, tow_client.end,
 * tow_handle_ops and tow_call.function.  To begin reading: device.c, client.c,
 * then limits.c.
 */
#ifndef TOW_CORE_H
#define TOW_CORE_H

#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/fs.h>
#include <linux/hashtable.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/percpu-refcount.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/types.h>
#include <linux/uidgid.h>
#include <linux/vmalloc.h>
#include <linux/user_namespace.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <rdma/ib_verbs.h>

#include "uapi/towline.h"

#ifndef CONFIG_64BIT
#error "towline: pools are larger than what a 32-bit kernel can address"
#endif

struct file;
struct pid;
struct tow_cgroup_limit;
struct tow_client;
struct tow_device;
struct tow_directory;
struct tow_listing;
struct tow_memory;
struct tow_notify;
struct tow_peers;
struct tow_poller;
struct tow_process;
struct tow_queues;

/* ---- limits ---------------------------------------------------------------- */

/* The resources that limits count. */
enum tow_resource {
	TOW_RES_BYTES,		/* of slabs and of imported pages */
	TOW_RES_MRS,		/* of the RDMA device, that regions may need; of no limit for all */
	TOW_RES_MADE_MRS,	/* that there are, as they outlive regions; the device's limit */
	TOW_RES_REGIONS,	/* regions, and handles of others' regions */
	TOW_RES_EXPORTS,	/* exports, until peers have let go of them */
	TOW_RES_GRANTS,		/* of exports, that peers have */
	TOW_RES_QUEUE_ENTRIES,	/* of completion rings: what may be in flight */
	TOW_RES_POLLERS,	/* of clients without CAP_SYS_NICE */
	TOW_RES_ATTEMPTS,	/* to connect to a peer, begun by programs */
	TOW_RES_SOUGHT,		/* peers that programs seek: those, and those that wait */
	TOW_RES_RECONNECTS,	/* the same, begun by associations */
	TOW_RESOURCES
};

/* The levels of a charge: for whom it counts. */
enum tow_level {
	TOW_LEVEL_CLIENT,
	TOW_LEVEL_USER,		/* and each container or cgroup that is one */
	TOW_LEVEL_DEVICE,
	TOW_LEVELS
};

/* No limit.  Half of a u64, so that sums do not wrap. */
#define TOW_UNLIMITED		(U64_MAX >> 1)

/**
 * struct tow_account - what one client, one user or the device is charged
 * @refs: of a client's account: held by the client and by each of its charges,
 *	which may outlive it; of the others: held by the accounts below
 * @limits: the device's
 * @parent: the account above, with a reference; NULL: this is the device's
 * @level: whose it is
 * @kuid: a client's or a user's: the user, or the owner of the user's container
 * @user_ns: the container that the user is, with a reference, so that no other
 *	gets its address; else NULL
 * @cgroup_id: the cgroup that the user is, which no other ever has; else 0
 * @path: the cgroup's; else NULL
 * @named: a limit that the cgroup has instead of a user's; under tow_limits.lock
 * @link: of a user's: in tow_limits.users, under tow_limits.lock; else unhashed
 * @used: the sum of all charges, by resource; under tow_limits.lock
 * @held_bytes: of those, what nobody has and somebody still uses; under that, too
 * @id: of a client's: in tow_limits.clients; else 0
 * @opener: of a client's: the user of its process
 * @opener_cgroup: of a client's: the cgroup of its process
 * @client: of a client's: the client until its file is closed, then NULL; without a
 *	reference, under the lock of tow_limits.clients
 */
struct tow_account {
	struct kref		refs;
	struct tow_limits	*limits;
	struct tow_account	*parent;
	enum tow_level		level;
	kuid_t			kuid;
	struct user_namespace	*user_ns;
	u64			cgroup_id;
	char			*path;
	struct tow_cgroup_limit	*named;
	struct hlist_node	link;
	u64			used[TOW_RESOURCES];
	u64			held_bytes;
	u64			id;
	kuid_t			opener;
	u64			opener_cgroup;
	struct tow_client	*client;
};

/**
 * struct tow_limits - a device's limits and what is used of them
 * @lock: protects what follows, and tow_account.used and tow_account.named
 * @max: for each level: what one account may have; TOW_UNLIMITED: all there is; read
 *	and written in one go, without the lock
 * @users: struct tow_account of users that have clients or charges
 * @cgroups: struct tow_cgroup_limit: what cgroup_bytes_limit says
 * @device: what the whole device has; there as long as the device
 * @clients: struct tow_account of clients, by id, without a reference; has a lock
 *	of its own, which is taken before @lock
 * @last_id: of the youngest; under the lock of @clients
 */
struct tow_limits {
	/* protects all that follows, tow_account.used and tow_account.named */
	spinlock_t		lock;
	u64			max[TOW_LEVELS][TOW_RESOURCES];
	DECLARE_HASHTABLE(users, 8);
	struct list_head	cgroups;
	struct tow_account	device;
	struct xarray		clients;
	u64			last_id;
};

/**
 * struct tow_charge - what a client is charged for one thing that it has
 * @account: the client's, with a reference; NULL: nothing is charged
 * @amount: how much of each resource
 */
struct tow_charge {
	struct tow_account	*account;
	u64			amount[TOW_RESOURCES];
};

void tow_limits_init(struct tow_limits *limits, u32 hardware_mrs);
void tow_limits_cleanup(struct tow_limits *limits);
int tow_accounts_by_cgroup(void);
struct tow_account *tow_account_new(struct tow_limits *limits);
void tow_account_put(struct tow_account *account);
int tow_account_enrol(struct tow_client *client);
void tow_account_close(struct tow_account *account);
bool tow_charge_try(struct tow_charge *charge, struct tow_account *account,
		    const u64 amount[TOW_RESOURCES]);
bool tow_charge_more(struct tow_charge *charge, enum tow_resource resource,
		     u64 own);
void tow_charge_less(struct tow_charge *charge, enum tow_resource resource);
int tow_charge(struct tow_charge *charge, struct tow_account *account,
	       const u64 amount[TOW_RESOURCES]);
void tow_uncharge(struct tow_charge *charge);
struct tow_account *tow_charge_leave(struct tow_charge *charge, u64 bytes);
void tow_account_uncharge(struct tow_account *account, u64 bytes);
int tow_charge_move_begin(struct tow_charge *charge, struct tow_account *to);
void tow_charge_move_end(struct tow_charge *charge, struct tow_account *to,
			 bool moved);
int tow_limits_take_mr(struct tow_limits *limits);
void tow_limits_give_mr(struct tow_limits *limits);
void tow_limits_refuse_mr(struct tow_limits *limits);
u64 tow_limits_mrs(struct tow_limits *limits);
u64 tow_limits_cgroup(void);
int tow_limits_set_cgroup(struct tow_limits *limits, const char *path,
			  const u64 *max);
int tow_limits_show_cgroups(struct tow_limits *limits, char *buf);

/* ---- devices --------------------------------------------------------------- */

/* Minor numbers, hence devices at a time, at most: as many as ib_uverbs has. */
#define TOW_DEVICES_MAX		1024

/* Counters of events and of things; sysfs.c names their files in stats/. */
enum tow_stat {
	TOW_STAT_REGIONS,
	TOW_STAT_DMA_MAPS,
	TOW_STAT_DMA_UNMAPS,
	TOW_STAT_REGISTRATIONS,
	TOW_STAT_INVALIDATIONS,
	TOW_STAT_INVALIDATED_BY_PEERS,
	TOW_STAT_POISONED_CHUNKS,
	TOW_STAT_QUOTA_REFUSALS,
	TOW_STAT_POOL_REFUSALS,
	TOW_STAT_MEMORY_REFUSALS,
	/* peers */
	TOW_STAT_PEERS,
	TOW_STAT_SESSIONS,
	TOW_STAT_HANDSHAKES,
	TOW_STAT_AUTH_REFUSED,
	TOW_STAT_HOSTILE,
	TOW_STAT_EVICTIONS,
	/* the directory */
	TOW_STAT_EXPORTS,
	TOW_STAT_GRANTS,
	TOW_STAT_REMOTES,
	TOW_STAT_RESOLVES,
	TOW_STAT_REVOKES,
	TOW_STAT_REVOKES_LATE,
	/* queues */
	TOW_STAT_QUEUES,
	TOW_STAT_POLLERS,
	TOW_STAT_POLLER_WAKEUPS,
	TOW_STAT_TIMEOUTS,
	TOW_STAT_STALLS,
	TOW_STAT_REPLAYED,
	TOW_STAT_COPIED_BYTES,
	TOW_STAT_LOOPBACK_COPIED_BYTES,
	/* notifications */
	TOW_STAT_NOTIFICATIONS,
	TOW_STAT_NOTIFICATIONS_SENT,
	TOW_STAT_NOTIFICATIONS_IGNORED,
	TOW_STATS
};

/* Different things that may have happened before the first is told. */
#define TOW_UEVENTS_MAX		24

/**
 * struct tow_uevent - what user space is told
 * @what: "drain", "undrain", "maint_ready", "maint_failed" or "limit"
 * @file: which limit; else ""
 */
struct tow_uevent {
	const char	*what;
	const char	*file;
};

/**
 * struct tow_uevents - what user space is still to be told of a device
 * @lock: protects @pending, @count, @next and @stopped; taken in any
 *	context
 * @pending: each different from the others; the oldest first
 * @count: how many
 * @next: in jiffies: nothing is told before
 * @stopped: the device is going
 * @node_lock: protects @node, and is held while that tells
 * @node: the device's entry in sysfs, which sends the events; NULL: none now
 * @work: has @node tell
 */
struct tow_uevents {
	/* protects pending, count, next, stopped */
	spinlock_t		lock;
	struct tow_uevent	pending[TOW_UEVENTS_MAX];
	unsigned int		count;
	unsigned long		next;
	bool			stopped;
	/* protects node */
	struct mutex		node_lock;
	struct device		*node;
	struct delayed_work	work;
};

/**
 * struct tow_device - one life of one RDMA device
 * @refs: held by the ib_client (from add to remove), by each open file, and by
 *	each object of a layer that has a pointer to the device and may outlive
 *	both (regions, imports, exports, peers, sessions, queues, queued work);
 *	keeps this structure, and nothing of the RDMA device
 * @release: frees the device; called when the last of @refs is put
 * @users: held by each task while it uses the RDMA device or anything made on
 *	it; killed by remove, which waits for the last.  Never held while user
 *	space can delay the holder, so never around copy_{to,from}_user()
 * @users_gone: completed when the last of @users is put
 * @ibdev: the RDMA device; only for holders of @users
 * @pd: the protection domain of all memory regions and queue pairs
 * @node: its entry in sysfs and in /dev; replaced when the device is renamed,
 *	NULL if that failed; only for add, rename and remove, which ib_core
 *	never runs at once
 * @node_going: @node is being removed, and the removal waits for writers of its
 *	files: a long write gives up
 * @minor: of the device node
 * @port: the RDMA port in use, counted from 1.  @port, @transport and
 *	@max_msg_bytes are written under tow_maint.use, and read without it
 * @port_wanted: the port that the administrator wants; 0: any
 * @transport: what carries RDMA on @port
 * @max_msg_bytes: largest message of @port
 * @incarnation: the random name of this life
 * @events: the subscription to the RDMA device's events
 * @name_lock: protects @name
 * @name: the RDMA device's name, for logs and queries, also when it is gone
 * @going: removal has begun: long loops end early
 * @drain: 1: the administrator wants nothing new to begin; 0: he does not
 * @limits: what clients and users may have
 * @uevents: what user space is still to be told
 * @memory: the layer of memory/
 * @key_invalidated: of memory/: a peer has ended the registration with a key, which may be
 *	nobody's; called with bottom halves off or on, while a connection is there
 * @peers: the layers of conn/ and peer/
 * @notify: of rma/: incoming notifications, and slots
 * @directory: the layer of directory/
 * @queues: the layer of ring/
 * @stats: counters, by enum tow_stat
 */
struct tow_device {
	struct kref		refs;
	void			(*release)(struct tow_device *dev);
	struct percpu_ref	users;
	struct completion	users_gone;
	struct ib_device	*ibdev;
	struct ib_pd		*pd;
	struct device		*node;
	bool			node_going;
	u32			minor;
	u32			port;
	u32			port_wanted;
	enum tow_transport	transport;
	u32			max_msg_bytes;
	u8			incarnation[TOW_INCARNATION_BYTES];
	struct ib_event_handler	events;
	/* protects name */
	spinlock_t		name_lock;
	char			name[TOW_DEVICE_NAME_MAX];
	bool			going;
	u32			drain;
	struct tow_limits	limits;
	struct tow_uevents	uevents;
	struct tow_memory	*memory;
	void			(*key_invalidated)(struct tow_device *dev, u32 key);
	struct tow_peers	*peers;
	struct tow_notify	*notify;
	struct tow_directory	*directory;
	struct tow_queues	*queues;
	atomic64_t		stats[TOW_STATS];
};

static inline void tow_stat_inc(struct tow_device *dev, enum tow_stat stat)
{
	atomic64_inc(&dev->stats[stat]);
}

static inline void tow_stat_add(struct tow_device *dev, enum tow_stat stat,
				u64 more)
{
	atomic64_add(more, &dev->stats[stat]);
}

static inline void tow_stat_dec(struct tow_device *dev, enum tow_stat stat)
{
	atomic64_dec(&dev->stats[stat]);
}

/* Has removal begun?  For long loops that removal would wait for. */
static inline bool tow_device_going(struct tow_device *dev)
{
	return READ_ONCE(dev->going);
}

/*
 * Is the device being drained?  Then programs begin nothing (-ESHUTDOWN), and no other
 * node connects.
 */
static inline bool tow_device_draining(struct tow_device *dev)
{
	return READ_ONCE(dev->drain);
}

/*
 * Zeroed memory that may be long, for kvfree(); it is charged to the caller's cgroup.  One
 * long piece would be zeroed in one go, and many pages by the page allocator with interrupts
 * off, which keeps everybody off the processor; here they are zeroed one by one.
 */
static inline void *tow_zalloc_long(size_t bytes)
{
	size_t at;
	void *to;

	if (bytes <= PAGE_SIZE << PAGE_ALLOC_COSTLY_ORDER)
		return kzalloc(bytes, GFP_KERNEL_ACCOUNT);
	to = __vmalloc(bytes, GFP_KERNEL_ACCOUNT);
	for (at = 0; to && at < bytes; at += PAGE_SIZE) {
		memset(to + at, 0, min_t(size_t, bytes - at, PAGE_SIZE));
		cond_resched();
	}
	return to;
}

extern struct workqueue_struct *tow_wq;
extern struct workqueue_struct *tow_import_wq;
extern struct workqueue_struct *tow_accept_wq;
extern struct workqueue_struct *tow_connect_wq;
extern struct workqueue_struct *tow_reconnect_wq;
extern struct workqueue_struct *tow_cq_wq;
extern struct workqueue_struct *tow_lookup_wq;
extern struct workqueue_struct *tow_end_wq;

/* device.c */
int tow_workqueues_init(void);
void tow_workqueues_cleanup(void);
bool tow_device_port_serves(struct ib_device *ibdev, u32 port);
u32 tow_device_choose_port(struct tow_device *dev);
int tow_device_use_port(struct tow_device *dev);
int tow_device_publish(struct tow_device *dev);
void tow_device_unpublish(struct tow_device *dev);
struct tow_device *tow_device_get(unsigned int minor);
struct tow_device *tow_device_find(struct ib_device *ibdev);
void tow_device_put(struct tow_device *dev);
bool tow_device_enter(struct tow_device *dev);
void tow_device_leave(struct tow_device *dev);
void tow_device_users_gone(struct percpu_ref *users);
void tow_device_take_name(struct tow_device *dev);
void tow_device_name(struct tow_device *dev, char name[TOW_DEVICE_NAME_MAX]);

/* uevent.c */
void tow_uevent(struct tow_device *dev, const char *what, const char *file);
void tow_uevents_init(struct tow_uevents *events);
void tow_uevents_use(struct tow_uevents *events, struct device *node);
void tow_uevents_stop(struct tow_uevents *events);

/* ---- calls ----------------------------------------------------------------- */

/* Bytes of the largest structure of a call, at most. */
#define TOW_CALL_BYTES		320

/**
 * struct tow_answer - where a call's answer goes
 * @user: the program's structure
 * @known: its size in bytes, as the module knows it
 * @user_size: its size in bytes, as the program knows it
 */
struct tow_answer {
	void __user	*user;
	u32		known;
	u32		user_size;
};

/**
 * struct tow_listing - how a call lists things
 * @flags: the flags that the call takes
 * @entry_published: published size of an entry, in bytes
 * @entry_bytes: size of an entry as the module knows it
 * @next: finds the next thing after @cursor and moves that; 1: it is described in
 *	@info, which was zeroed; 0: the client may not see it; -ENOENT: there is none
 */
struct tow_listing {
	u32	flags;
	u32	entry_published;
	u32	entry_bytes;
	int	(*next)(struct tow_client *client, u32 flags, u64 *cursor,
			void *info);
};

/**
 * struct tow_call - a call of the device's node
 * @cmd: its number
 * @known: bytes of its structure, as the module knows it
 * @published: bytes of its structure in the first version that had the call
 * @changes: it changes something, so only the process that opened the file, for
 *	writing, may call it
 * @begins: it gives the client something new: not while the device is being drained
 * @function: does the work, with the structure in @data; 0 or a negative errno
 * @listing: of a call that lists things, instead of @function
 */
struct tow_call {
	unsigned int			cmd;
	u32				known;
	u32				published;
	bool				changes;
	bool				begins;
	int				(*function)(struct tow_client *client,
						    void *data,
						    const struct tow_answer *answer);
	const struct tow_listing	*listing;
};

/* The first fields of a struct tow_call. */
#define TOW_CALL(_cmd, _struct, _published)				\
	.cmd = _cmd, .known = sizeof(struct _struct), .published = (_published)

int tow_call_run(const struct tow_call *call, struct tow_client *client,
		 void __user *user);
int tow_call_answer(const struct tow_answer *answer, void *data);
int tow_call_copy_in(void *to, u32 known, u32 published,
		     const void __user *from, u32 *user_size);
int tow_call_copy_out(void __user *user, void *from, u32 known, u32 user_size);

/* ---- clients --------------------------------------------------------------- */

/**
 * struct tow_client - one open file and its opener
 * @refs: held by the file, by those who look, and by lookups of queues; keeps the
 *	structure
 * @release: called when the last reference is put
 * @dev: the device, with a reference
 * @end: takes away all that the client has; called once, by @end_work
 * @end_work: queued to tow_end_wq when @ended is set
 * @process: the opener, with a reference
 * @link: in tow_process.clients until @ended, under tow_process.lock
 * @account: what it is charged, with a reference
 * @key: the user that people are told it is charged to: tow_account.kuid
 * @kuid: the opener's user: the owner of its regions and exports
 * @user_ns: the opener's user namespace, with a reference
 * @pid: the opener's PID, with a reference
 * @cgroup_id: the opener's cgroup, as it was then
 * @writable: opened with O_RDWR
 * @ended: its process has exited or executed another program, the file is
 *	closed, or an administrator ended it: it gets nothing more.  Set under
 *	tow_process.lock, before @end takes any lock under which something is given
 *	to the client
 * @queues: struct tow_queue that it has, under tow_queues.lock
 * @poll_lock: protects @poller
 * @poller: takes the entries of its polled queues, with a reference; NULL: none
 * @lock: protects all that follows; @job_id is read without it
 * @handles: struct tow_handle by index, of all kinds
 * @generation: of the handle that was made last
 * @joined: it has chosen a job
 * @job_id: its job, which does not change any more once it has @joined; all zero: its
 *	user's own
 */
struct tow_client {
	struct kref		refs;
	void			(*release)(struct kref *refs);
	struct tow_device	*dev;
	void			(*end)(struct tow_client *client);
	struct work_struct	end_work;
	struct tow_process	*process;
	struct list_head	link;
	struct tow_account	*account;
	kuid_t			key;
	kuid_t			kuid;
	struct user_namespace	*user_ns;
	struct pid		*pid;
	u64			cgroup_id;
	bool			writable;
	bool			ended;
	struct list_head	queues;
	/* protects poller */
	struct mutex		poll_lock;
	struct tow_poller	*poller;
	/* protects handles, generation, joined, job_id */
	struct mutex		lock;
	struct xarray		handles;
	u32			generation;
	bool			joined;
	u8			job_id[TOW_JOB_ID_BYTES];
};

/**
 * struct tow_handle - the first part of each kind of handle
 * @ops: its kind
 * @generation: tells it from handles that had its index before; 0 until the
 *	handle is in the client's table
 * @rcu: frees it: handles are looked up without the lock
 */
struct tow_handle {
	const struct tow_handle_ops	*ops;
	u32				generation;
	struct rcu_head			rcu;
};

/**
 * struct tow_handle_ops - a kind of handle
 * @publish: lets others find what the handle is of; NULL: there is nothing to do.  Called
 *	with the client's lock, of a client that has not ended
 * @drop: gives back what the handle holds; @destroy: the program wants that to
 *	end, even if it would outlive the client
 */
struct tow_handle_ops {
	int	(*publish)(struct tow_handle *handle);
	void	(*drop)(struct tow_handle *handle, bool destroy);
};

/**
 * tow_client_put - give a reference back
 * @client: the client; may be gone afterwards
 */
static inline void tow_client_put(struct tow_client *client)
{
	kref_put(&client->refs, client->release);
}

/**
 * tow_client_find_handle - the handle with a number
 * @client: the client; caller holds its lock, or is in an RCU read-side section
 * @number: the handle's number
 * @ops: the handle's kind
 *
 * Return: the handle; NULL: the client has no such handle.  Without the lock
 * the handle may be ending: what it holds may have no reference left.
 */
static inline struct tow_handle *
tow_client_find_handle(struct tow_client *client, u64 number,
		       const struct tow_handle_ops *ops)
{
	struct tow_handle *handle = xa_load(&client->handles,
					    lower_32_bits(number));
	u32 generation;

	if (!handle)
		return NULL;
	/* Pairs with tow_client_publish_handle(): the handle is complete. */
	generation = smp_load_acquire(&handle->generation);
	if (!generation || generation != upper_32_bits(number) ||
	    handle->ops != ops)
		return NULL;
	return handle;
}

/* Did a client join the job by its key?  Else it is its user's own. */
static inline bool tow_job_has_key(const u8 job_id[TOW_JOB_ID_BYTES])
{
	return memchr_inv(job_id, 0, TOW_JOB_ID_BYTES);
}

/*
 * May a client name things in a job?  In its user's own not from a container: other
 * nodes' may have users of the same numbers.
 */
static inline bool tow_client_has_job(const struct tow_client *client,
				      const u8 job_id[TOW_JOB_ID_BYTES])
{
	return tow_job_has_key(job_id) || (client->user_ns == &init_user_ns &&
					   !client->account->parent->cgroup_id);
}

/* client.c */
int tow_client_reserve_handle(struct tow_client *client,
			      struct tow_handle *handle, u64 *number);
void tow_client_unreserve_handle(struct tow_client *client, u64 number);
int tow_client_publish_handle(struct tow_client *client,
			      struct tow_handle *handle, u64 number);
int tow_client_add_handle(struct tow_client *client, struct tow_handle *handle,
			  u64 *number);
struct tow_handle *tow_client_take_handle(struct tow_client *client, u64 number,
					  const struct tow_handle_ops *ops);
void tow_handle_drop(struct tow_handle *handle, bool destroy);
void tow_client_drop_handles(struct tow_client *client,
			     const struct tow_handle_ops *ops);
void tow_client_job(struct tow_client *client, u8 job_id[TOW_JOB_ID_BYTES]);
int tow_client_join(struct tow_client *client,
		    const u8 job_id[TOW_JOB_ID_BYTES]);

struct tow_process *tow_process_get(void);
void tow_process_add(struct tow_process *process, struct tow_client *client);
void tow_process_put(struct tow_process *process);
bool tow_process_is_current(struct tow_process *process);
bool tow_client_is_ending(struct tow_client *client);
bool tow_client_end(struct tow_client *client);
s32 tow_pid_number(struct pid *pid);
void tow_process_cleanup(void);

/* ---- the flight recorder --------------------------------------------------- */

/*
 * The last events of a peer, in a ring.  Sysfs shows them; the log gets them
 * when something times out.
 */

/* Events that are kept for each peer. */
#define TOW_RECORDER_EVENTS	32

/* Events that go to the log when something times out. */
#define TOW_RECORDER_DUMPED	16

/**
 * struct tow_event - something that happened with a peer
 * @time_ns: when, by local_clock(), as in the log
 * @stage: what happened, "connect: address resolved"; a string that is never
 *	freed
 * @subject: an export's, grant's or request's number, or 0
 * @epoch: in which session of the peer
 * @error: a negative errno, or 0
 */
struct tow_event {
	u64		time_ns;
	const char	*stage;
	u64		subject;
	u32		epoch;
	int		error;
};

/**
 * struct tow_recorder - a ring of events
 * @dev: the device, for the trace; kept by the recorder's peer
 * @peer: the peer's number, for the trace
 * @lock: protects @count and @events; taken in any context
 * @count: events that were noted
 * @events: the last ones: event number n is at n modulo TOW_RECORDER_EVENTS
 */
struct tow_recorder {
	struct tow_device	*dev;
	u64			peer;
	/* protects count, events */
	spinlock_t		lock;
	u64			count;
	struct tow_event	events[TOW_RECORDER_EVENTS];
};

void tow_recorder_init(struct tow_recorder *recorder, struct tow_device *dev,
		       u64 peer);
void tow_recorder_note(struct tow_recorder *recorder, u32 epoch,
		       const char *stage, u64 subject, int error);
int tow_recorder_show(struct tow_recorder *recorder, char *buf);
void tow_recorder_dump(struct tow_recorder *recorder, const char *device,
		       const char *peer, const char *why);

#endif /* TOW_CORE_H */

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * One RDMA device as towline knows it.  Documentation/design/module.md says
 * how long everything lives, and why.
 */
#ifndef TOW_DEVICE_H
#define TOW_DEVICE_H

#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/fs.h>
#include <linux/kref.h>
#include <linux/percpu-refcount.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

#include "directory.h"
#include "limits.h"
#include "memory.h"
#include "notify.h"
#include "peer.h"
#include "queue.h"
#include "uapi/towline.h"

#ifndef CONFIG_64BIT
#error "towline: pools are larger than what a 32-bit kernel can address"
#endif

/* Minor numbers, hence devices at a time. */
#define TOW_DEVICES_MAX		256

/* What is counted as it happens: files in stats/ of the names in sysfs.c. */
enum tow_stat {
	TOW_STAT_REGIONS,
	TOW_STAT_DMA_MAPS,
	TOW_STAT_DMA_UNMAPS,
	TOW_STAT_REGISTRATIONS,
	TOW_STAT_INVALIDATIONS,
	TOW_STAT_RETIRED_SLABS,
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
	TOW_STAT_STRIPED,
	TOW_STAT_STRIPED_PARTS,
	TOW_STAT_REPLAYED,
	TOW_STAT_COPIED_BYTES,
	/* notifications */
	TOW_STAT_NOTIFICATIONS,
	TOW_STAT_NOTIFICATIONS_SENT,
	TOW_STAT_NOTIFICATIONS_IGNORED,
	TOW_STATS
};

/**
 * struct tow_device - one life of one RDMA device
 * @refs: held by the ib_client (from add to remove), by each open file and by
 *	each region and import; keeps this structure, and nothing of the RDMA
 *	device
 * @release: ends it with the last of @refs
 * @users: held by whoever touches the RDMA device or anything made on it;
 *	killed by remove, which waits for the last.  Never held while user
 *	space can make us wait, so never around copy_{to,from}_user()
 * @users_gone: the last of @users is
 * @ibdev: the RDMA device; only for holders of @users
 * @pd: where memory is registered
 * @node: its entry in sysfs and in /dev; replaced when the device is renamed,
 *	NULL if that failed; only for add, rename and remove, which ib_core
 *	never lets run at once
 * @node_going: it is being removed, which waits for those who write to its files
 * @minor: of the device node
 * @port: the RDMA port in use, counted from 1; it, @transport and @max_msg_bytes are
 *	written with tow_maint.use held
 * @port_wanted: which one the administrator wants; 0: any
 * @transport: what carries RDMA on that port
 * @max_msg_bytes: largest message of that port
 * @incarnation: what this life is called
 * @events: our subscription to the RDMA device's events
 * @name_lock: protects @name
 * @name: the RDMA device's name, for logs and queries, also after it is gone
 * @going: removal has begun: what goes on for long ends early
 * @limits: what its users may have
 * @memory: what it has of memory
 * @peers: the nodes that it is connected to
 * @notify: notifications: where they come in, and where they are counted
 * @directory: what it publishes
 * @queues: what programs submit operations with
 * @stats: what has happened
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
	struct tow_limits	limits;
	struct tow_memory	*memory;
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

/* Has removal begun?  For loops that would keep it waiting. */
static inline bool tow_device_going(struct tow_device *dev)
{
	return READ_ONCE(dev->going);
}

extern struct workqueue_struct *tow_wq;
extern struct workqueue_struct *tow_import_wq;
extern struct workqueue_struct *tow_connect_wq;
extern struct workqueue_struct *tow_cq_wq;

/* device.c */
int tow_workqueues_init(void);
void tow_workqueues_cleanup(void);
u32 tow_device_choose_port(struct tow_device *dev);
int tow_device_use_port(struct tow_device *dev);
int tow_device_publish(struct tow_device *dev);
void tow_device_unpublish(struct tow_device *dev);
struct tow_device *tow_device_get(unsigned int minor);
struct tow_device *tow_device_find(struct ib_device *ibdev);
void tow_device_put(struct tow_device *dev);
bool tow_device_enter(struct tow_device *dev);
void tow_device_leave(struct tow_device *dev);
bool towk_device_enter(struct tow_device *dev);
void towk_device_leave(struct tow_device *dev);
void tow_device_users_gone(struct percpu_ref *users);
void tow_device_take_name(struct tow_device *dev);
void tow_device_name(struct tow_device *dev, char name[TOW_DEVICE_NAME_MAX]);

/* main.c */
int tow_device_want_port(struct tow_device *dev, u32 port);

/* chardev.c */
extern const struct file_operations tow_file_fops;

/* sysfs.c */
extern const struct attribute_group *tow_sysfs_groups[];

#endif /* TOW_DEVICE_H */

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What can be seen of each peer: its folder in sysfs, its file in debugfs.
 */
#ifndef TOW_PEER_SYSFS_H
#define TOW_PEER_SYSFS_H

#include <linux/list.h>
#include <linux/mutex.h>

/* A peer's address as a file's name, with the terminating zero. */
#define TOW_PEER_NAME_MAX	64

struct dentry;
struct kobject;
struct tow_address;
struct tow_device;
struct tow_peer;

/**
 * struct tow_debugfs_device - a device's folders
 * @device: /sys/kernel/debug/towline/<ibdev>; NULL: not there
 * @peers: peers/ in it
 */
struct tow_debugfs_device {
	struct dentry	*device;
	struct dentry	*peers;
};

/**
 * struct tow_peer_dirs - where a device's peers are to be seen
 * @lock: protects all of this, and every peer's @node; held while folders come
 *	and go, hence while others read them: nothing that reads takes it.
 *	tow_peers.lock may be taken within
 * @peers: peers/ below the device's node; NULL: there is no node, or no memory
 *	for it
 * @debugfs: the same in debugfs
 * @nodes: struct tow_peer_node of those that there are
 */
struct tow_peer_dirs {
	/* protects the others, and tow_peer.node */
	struct mutex			lock;
	struct kobject			*peers;
	struct tow_debugfs_device	debugfs;
	struct list_head		nodes;
};

void tow_debugfs_setup(void);
void tow_debugfs_cleanup(void);
void tow_peer_dirs_init(struct tow_peer_dirs *dirs);
void tow_peer_sysfs_device_add(struct tow_device *dev);
void tow_peer_sysfs_device_remove(struct tow_device *dev);
void tow_peer_sysfs_add(struct tow_peer *peer);
void tow_peer_sysfs_remove(struct tow_peer *peer);

#endif /* TOW_PEER_SYSFS_H */

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Each peer's folder in sysfs.
 */
#ifndef TOW_PEER_SYSFS_H
#define TOW_PEER_SYSFS_H

#include <linux/list.h>
#include <linux/mutex.h>

/* A peer's address as a file's name, with the terminating zero. */
#define TOW_PEER_NAME_MAX	80

struct kobject;
struct tow_address;
struct tow_device;
struct tow_peer;

/**
 * struct tow_peer_dirs - folders of a device's peers in sysfs
 * @lock: protects all of this, and every peer's @node.  Held while folders are
 *	made and removed, and removing waits for readers: so no reader takes it.
 *	tow_peers.lock may be taken within
 * @peers: peers/ below the device's node; NULL: no node, or no memory
 * @nodes: struct tow_peer_node of all peers, owned
 */
struct tow_peer_dirs {
	/* protects the others, and tow_peer.node */
	struct mutex		lock;
	struct kobject		*peers;
	struct list_head	nodes;
};

void tow_peer_dirs_init(struct tow_peer_dirs *dirs);
void tow_peer_sysfs_device_add(struct tow_device *dev);
void tow_peer_sysfs_device_remove(struct tow_device *dev);
void tow_peer_sysfs_add(struct tow_peer *peer);
void tow_peer_sysfs_remove(struct tow_peer *peer);

#endif /* TOW_PEER_SYSFS_H */

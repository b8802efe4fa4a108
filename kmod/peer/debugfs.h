/* SPDX-License-Identifier: GPL-2.0 */
/*
 * /sys/kernel/debug/towline/<ibdev>/peers/<address>: what happened last with
 * each peer.  Nothing depends on it: where debugfs is not to be had, nothing else
 * changes.
 */
#ifndef TOW_DEBUGFS_H
#define TOW_DEBUGFS_H

struct dentry;
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

/* main.c */
void tow_debugfs_setup(void);
void tow_debugfs_cleanup(void);

/* sysfs.c */
void tow_debugfs_device_add(struct tow_debugfs_device *dir, const char *device);
void tow_debugfs_device_remove(struct tow_debugfs_device *dir);
struct dentry *tow_debugfs_peer_add(struct tow_debugfs_device *dir,
				    const char *name, struct tow_peer *peer);

#endif /* TOW_DEBUGFS_H */

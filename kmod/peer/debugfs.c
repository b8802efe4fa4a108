// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/kernel/debug/towline/<ibdev>/peers/<address>.
 *
 * debugfs itself makes sure that removing a file waits for those who read it, and
 * that later readers of an open file get -EIO: no reader sees a peer that is
 * gone.  Its functions take and give errors in the place of folders, so nothing
 * is checked here but what would put files into the wrong place.
 */
#include <linux/debugfs.h>
#include <linux/err.h>
#include <linux/seq_file.h>

#include "debugfs.h"
#include "peer.h"

static struct dentry *tow_debugfs_root;

/**
 * tow_debugfs_setup - make the module's folder
 */
void tow_debugfs_setup(void)
{
	tow_debugfs_root = debugfs_create_dir("towline", NULL);
}

/**
 * tow_debugfs_cleanup - remove it, and whatever is in it
 */
void tow_debugfs_cleanup(void)
{
	debugfs_remove_recursive(tow_debugfs_root);
}

/**
 * tow_debugfs_device_add - make a device's folders
 * @dir: which have been removed, or were never made
 * @device: the device's name
 */
void tow_debugfs_device_add(struct tow_debugfs_device *dir, const char *device)
{
	dir->device = debugfs_create_dir(device, tow_debugfs_root);
	dir->peers = debugfs_create_dir("peers", dir->device);
}

/**
 * tow_debugfs_device_remove - remove a device's folders and what is in them
 * @dir: the folders, if they are there
 *
 * Waits for those who are reading.
 */
void tow_debugfs_device_remove(struct tow_debugfs_device *dir)
{
	debugfs_remove_recursive(dir->device);
	dir->device = NULL;
	dir->peers = NULL;
}

static int tow_debugfs_peer_show(struct seq_file *file, void *unused)
{
	struct tow_peer *peer = file->private;

	tow_recorder_show(&peer->recorder, file);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(tow_debugfs_peer);

/**
 * tow_debugfs_peer_add - make a peer's file
 * @dir: the device's folders
 * @name: what it is called
 * @peer: the peer; must not go before the file
 *
 * Return: the file, for debugfs_remove(), which takes whatever this gives.
 */
struct dentry *tow_debugfs_peer_add(struct tow_debugfs_device *dir,
				    const char *name, struct tow_peer *peer)
{
	/* NULL would be the root of debugfs. */
	if (!dir->peers)
		return NULL;
	return debugfs_create_file(name, 0400, dir->peers, peer,
				   &tow_debugfs_peer_fops);
}

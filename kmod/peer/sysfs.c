// SPDX-License-Identifier: GPL-2.0
/*
 * What can be seen of a peer: by PEER_LIST, in the log, in sysfs and in debugfs.
 *
 * /sys/class/towline/<ibdev>/peers/<address>/, a folder for each peer;
 * Documentation/ABI/testing/sysfs-class-towline describes each file.
 *
 * A peer is seen from tow_peer_sysfs_add() to tow_peer_sysfs_remove().  Its folder
 * is a structure of its own (struct tow_peer_folder), because folders go with the
 * device's node, which is made anew when the device is renamed, and peers do not.
 * Removing a folder waits for those who read it, so they find the peer there; that
 * is why nobody who reads takes tow_peer_dirs.lock, and why nobody may remove a
 * folder with a lock that readers take (tow_peers.lock).
 *
 * /sys/kernel/debug/towline/<ibdev>/peers/<address>, a file for each peer: what
 * happened last.  Nothing depends on it: where debugfs is not to be had, nothing
 * else changes.
 *
 * debugfs itself makes sure that removing a file waits for those who read it, and
 * that later readers of an open file get -EIO: no reader sees a peer that is
 * gone.  Its functions take and give errors in the place of folders, so nothing
 * is checked here but what would put files into the wrong place.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/debugfs.h>
#include <linux/device.h>
#include <linux/err.h>
#include <linux/kernel.h>
#include <linux/kernfs.h>
#include <linux/kobject.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/sysfs.h>
#include <net/ipv6.h>

#include "assoc.h"
#include "core/core.h"
#include "peer.h"
#include "peer_sysfs.h"
#include "state.h"

/**
 * struct tow_peer_folder - a peer's folder
 * @kobj: the folder
 * @peer: the peer, without a reference: it outlives the folder's files
 */
struct tow_peer_folder {
	struct kobject	kobj;
	struct tow_peer	*peer;
};

/**
 * struct tow_peer_node - a peer that can be seen
 * @link: in tow_peer_dirs.nodes
 * @peer: the peer, without a reference
 * @folder: NULL: the device has no node, or something has that name already
 * @record: its file in debugfs
 */
struct tow_peer_node {
	struct list_head	link;
	struct tow_peer		*peer;
	struct tow_peer_folder	*folder;
	struct dentry		*record;
};

/* ---- numbers -------------------------------------------------------------- */

static void tow_peer_add_numbers(struct tow_assoc *assoc,
				 struct tow_peer_info *info)
{
	u32 grants, remotes;

	if (!assoc)
		return;
	tow_directory_assoc_numbers(assoc, &grants, &remotes);
	info->grants += grants;
	info->remotes += remotes;
}

/**
 * tow_peer_describe - what can be seen of a peer
 * @peer: the peer
 * @info: where to; all but its size is filled in
 */
void tow_peer_describe(struct tow_peer *peer, struct tow_peer_info *info)
{
	struct tow_peers *peers = peer->dev->peers;
	struct tow_session *session, *other;
	struct tow_assoc *assoc = tow_peer_assoc(peer);
	unsigned long busy_at;
	u32 size = info->size;

	memset(info, 0, sizeof(*info));
	info->size = size;
	info->peer = peer->id;
	memcpy(info->incarnation, peer->incarnation, sizeof(info->incarnation));
	info->messages_sent = atomic64_read(&peer->sent);
	info->messages_received = atomic64_read(&peer->received);
	if (peer->loopback)
		info->flags |= TOW_PEER_LOOPBACK;
	mutex_lock(&peers->lock);
	memcpy(info->address, &peer->addresses[0].in6, sizeof(info->address));
	info->scope_id = peer->addresses[0].scope_id;
	info->port = peer->addresses[0].port;
	info->state = peer->state;
	info->last_error = peer->error;
	info->epoch = peer->epoch;
	info->reconnects = peer->epoch ? peer->epoch - 1 : 0;
	session = peer->session;
	if (session)
		tow_session_get(session);
	other = peer->other_end;
	if (other)
		tow_session_get(other);
	mutex_unlock(&peers->lock);
	if (other) {
		/* The grants are its, as it is the one that is asked. */
		/* Pairs with tow_assoc_carry(). */
		tow_peer_add_numbers(smp_load_acquire(&other->assoc), info);
		tow_session_put(other);
	}
	tow_peer_add_numbers(assoc, info);
	if (assoc)
		tow_assoc_put(assoc);
	if (!session)
		return;
	info->qps = session->qps;
	/* First, as it may be set meanwhile. */
	busy_at = READ_ONCE(session->busy_at);
	info->idle_ms = jiffies_to_msecs(jiffies - busy_at);
	if (session->handshake.request.control.features &
	    cpu_to_le32(TOW_WIRE_AUTHENTICATED))
		info->flags |= TOW_PEER_AUTHENTICATED;
	tow_session_put(session);
}

/* ---- debugfs -------------------------------------------------------------- */

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
static void tow_debugfs_device_add(struct tow_debugfs_device *dir,
				   const char *device)
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
static void tow_debugfs_device_remove(struct tow_debugfs_device *dir)
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
static struct dentry *tow_debugfs_peer_add(struct tow_debugfs_device *dir,
					   const char *name,
					   struct tow_peer *peer)
{
	/* NULL would be the root of debugfs. */
	if (!dir->peers)
		return NULL;
	return debugfs_create_file(name, 0400, dir->peers, peer,
				   &tow_debugfs_peer_fops);
}

/* ---- files ---------------------------------------------------------------- */

/**
 * struct tow_peer_attr - a file in a peer's folder
 * @attr: the file
 * @show: what it says; @info is of this moment
 */
struct tow_peer_attr {
	struct attribute	attr;
	ssize_t (*show)(struct tow_peer *peer, const struct tow_peer_info *info,
			char *buf);
};

static ssize_t tow_peer_show_state(struct tow_peer *peer,
				   const struct tow_peer_info *info, char *buf)
{
	return sysfs_emit(buf, "%s\n", tow_peer_state_name(info->state));
}

static ssize_t tow_peer_show_incarnation(struct tow_peer *peer,
					 const struct tow_peer_info *info,
					 char *buf)
{
	return sysfs_emit(buf, "%*phN\n", TOW_INCARNATION_BYTES,
			  info->incarnation);
}

#define TOW_PEER_ATTR(_name)						\
	static struct tow_peer_attr tow_peer_attr_##_name = {		\
		.attr = { .name = #_name, .mode = 0444 },		\
		.show = tow_peer_show_##_name,				\
	}

#define TOW_PEER_NUMBER(_name, _format, _value)				\
	static ssize_t tow_peer_show_##_name(struct tow_peer *peer,	\
					     const struct tow_peer_info *info, \
					     char *buf)			\
	{								\
		return sysfs_emit(buf, _format "\n", _value);		\
	}								\
	TOW_PEER_ATTR(_name)

TOW_PEER_ATTR(state);
TOW_PEER_ATTR(incarnation);
TOW_PEER_NUMBER(epoch, "%u", info->epoch);
TOW_PEER_NUMBER(qps, "%u", info->qps);
TOW_PEER_NUMBER(reconnects, "%u", info->reconnects);
TOW_PEER_NUMBER(bytes_written, "%lld", atomic64_read(&peer->bytes_written));
TOW_PEER_NUMBER(bytes_read, "%lld", atomic64_read(&peer->bytes_read));
TOW_PEER_NUMBER(operations, "%lld", atomic64_read(&peer->operations));
TOW_PEER_NUMBER(last_error, "%d", info->last_error);

static struct attribute *tow_peer_attrs[] = {
	&tow_peer_attr_state.attr,
	&tow_peer_attr_incarnation.attr,
	&tow_peer_attr_epoch.attr,
	&tow_peer_attr_qps.attr,
	&tow_peer_attr_reconnects.attr,
	&tow_peer_attr_bytes_written.attr,
	&tow_peer_attr_bytes_read.attr,
	&tow_peer_attr_operations.attr,
	&tow_peer_attr_last_error.attr,
	NULL
};
ATTRIBUTE_GROUPS(tow_peer);

static ssize_t tow_peer_folder_show(struct kobject *kobj,
				    struct attribute *attr, char *buf)
{
	struct tow_peer_folder *folder =
		container_of(kobj, struct tow_peer_folder, kobj);
	struct tow_peer_attr *file = container_of(attr, struct tow_peer_attr,
						  attr);
	struct tow_peer_info info = {};

	tow_peer_describe(folder->peer, &info);
	return file->show(folder->peer, &info, buf);
}

static const struct sysfs_ops tow_peer_folder_ops = {
	.show = tow_peer_folder_show,
};

/* The peer may be gone: the last reference to a folder can be anybody's. */
static void tow_peer_folder_release(struct kobject *kobj)
{
	kfree(container_of(kobj, struct tow_peer_folder, kobj));
}

static const struct kobj_type tow_peer_folder_type = {
	.sysfs_ops	= &tow_peer_folder_ops,
	.release	= tow_peer_folder_release,
	.default_groups	= tow_peer_groups,
};

/* ---- folders -------------------------------------------------------------- */

/**
 * tow_peer_name - an address as people write it
 * @address: the address
 * @name: where to: "192.0.2.1", "2001:db8::1", "fe80::1%3", where 3 is the index
 *	of the interface
 */
static void tow_peer_name(const struct tow_address *address,
			  char name[TOW_PEER_NAME_MAX])
{
	const struct in6_addr *in6 = &address->in6;

	if (ipv6_addr_v4mapped(in6))
		snprintf(name, TOW_PEER_NAME_MAX, "%pI4", &in6->s6_addr[12]);
	else if (address->scope_id)
		snprintf(name, TOW_PEER_NAME_MAX, "%pI6c%%%u", in6,
			 address->scope_id);
	else
		snprintf(name, TOW_PEER_NAME_MAX, "%pI6c", in6);
}

/**
 * tow_peer_dump - write what happened last with a peer to the log
 * @peer: the peer; NULL: nobody
 * @why: what is wrong
 */
void tow_peer_dump(struct tow_peer *peer, const char *why)
{
	char device[TOW_DEVICE_NAME_MAX], name[TOW_PEER_NAME_MAX];
	struct tow_address address;

	if (!peer)
		return;
	mutex_lock(&peer->dev->peers->lock);
	address = peer->addresses[0];
	mutex_unlock(&peer->dev->peers->lock);
	tow_device_name(peer->dev, device);
	tow_peer_name(&address, name);
	tow_recorder_dump(&peer->recorder, device, name, why);
}

/* sysfs cries out loud about a second one of the same name. */
static bool tow_peer_folder_taken(struct kobject *parent, const char *name)
{
	struct kernfs_node *found = kernfs_find_and_get(parent->sd, name);

	kernfs_put(found);
	return found;
}

static int tow_peer_folder_add(struct tow_peer_node *node,
			       struct kobject *parent, const char *name)
{
	struct tow_peer_folder *folder;
	int ret;

	if (tow_peer_folder_taken(parent, name))
		return -EEXIST;
	folder = kzalloc(sizeof(*folder), GFP_KERNEL);
	if (!folder)
		return -ENOMEM;
	folder->peer = node->peer;
	ret = kobject_init_and_add(&folder->kobj, &tow_peer_folder_type, parent,
				   "%s", name);
	if (ret) {
		kobject_put(&folder->kobj);
		return ret;
	}
	node->folder = folder;
	return 0;
}

static void tow_peer_node_show(struct tow_peer_dirs *dirs,
			       struct tow_peer_node *node)
{
	struct tow_peer *peer = node->peer;
	char device[TOW_DEVICE_NAME_MAX];
	char name[TOW_PEER_NAME_MAX];
	int ret;

	tow_peer_name(&peer->addresses[0], name);
	ret = tow_peer_folder_add(node, dirs->peers, name);
	if (ret) {
		tow_device_name(peer->dev, device);
		pr_warn("%s: peer %s has no folder in sysfs: error %d\n",
			device, name, ret);
		return;
	}
	node->record = tow_debugfs_peer_add(&dirs->debugfs, name, peer);
}

/* Waits for those who read. */
static void tow_peer_node_hide(struct tow_peer_node *node)
{
	debugfs_remove(node->record);
	node->record = NULL;
	if (!node->folder)
		return;
	kobject_del(&node->folder->kobj);
	kobject_put(&node->folder->kobj);
	node->folder = NULL;
}

/**
 * tow_peer_dirs_init - nothing is to be seen yet
 * @dirs: the structure
 */
void tow_peer_dirs_init(struct tow_peer_dirs *dirs)
{
	mutex_init(&dirs->lock);
	dirs->peers = NULL;
	dirs->debugfs = (struct tow_debugfs_device){};
	INIT_LIST_HEAD(&dirs->nodes);
}

/**
 * tow_peer_sysfs_device_add - the device has a node now
 * @dev: the device
 *
 * Shows the peers that there are.  What cannot be shown, for want of memory, is
 * logged and otherwise of no consequence.
 */
void tow_peer_sysfs_device_add(struct tow_device *dev)
{
	struct tow_peer_dirs *dirs = &dev->peers->dirs;
	char name[TOW_DEVICE_NAME_MAX];
	struct tow_peer_node *node;

	tow_device_name(dev, name);
	mutex_lock(&dirs->lock);
	dirs->peers = kobject_create_and_add("peers", &dev->node->kobj);
	if (!dirs->peers) {
		pr_warn("%s: no folder for peers in sysfs\n", name);
		goto out_unlock;
	}
	tow_debugfs_device_add(&dirs->debugfs, name);
	list_for_each_entry(node, &dirs->nodes, link)
		tow_peer_node_show(dirs, node);
out_unlock:
	mutex_unlock(&dirs->lock);
}

/**
 * tow_peer_sysfs_device_remove - the device's node is about to go
 * @dev: the device
 *
 * Waits for those who read.
 */
void tow_peer_sysfs_device_remove(struct tow_device *dev)
{
	struct tow_peer_dirs *dirs = &dev->peers->dirs;
	struct tow_peer_node *node;

	mutex_lock(&dirs->lock);
	list_for_each_entry(node, &dirs->nodes, link)
		tow_peer_node_hide(node);
	tow_debugfs_device_remove(&dirs->debugfs);
	/* kobject_put() takes the folder away with the last reference. */
	kobject_put(dirs->peers);
	dirs->peers = NULL;
	mutex_unlock(&dirs->lock);
}

static void tow_peer_node_new(struct tow_peer_dirs *dirs, struct tow_peer *peer)
{
	struct tow_peer_node *node = kzalloc(sizeof(*node), GFP_KERNEL);
	char device[TOW_DEVICE_NAME_MAX];

	if (!node) {
		tow_device_name(peer->dev, device);
		pr_warn_ratelimited("%s: a peer has no folder in sysfs: no memory\n",
				    device);
		return;
	}
	node->peer = peer;
	peer->node = node;
	list_add_tail(&node->link, &dirs->nodes);
	if (dirs->peers)
		tow_peer_node_show(dirs, node);
}

/**
 * tow_peer_sysfs_add - let a peer be seen
 * @peer: the peer, seen or not; the caller has a reference.  Its first address
 *	must be there, and not change any more
 *
 * In process context, without tow_peers.lock.  If it cannot be shown, because
 * there is no memory or a folder of that name, that is of no other consequence.
 * A peer that was removed meanwhile is not shown.
 */
void tow_peer_sysfs_add(struct tow_peer *peer)
{
	struct tow_peer_dirs *dirs = &peer->dev->peers->dirs;

	mutex_lock(&dirs->lock);
	/*
	 * Whoever removes a peer says so first, and calls
	 * tow_peer_sysfs_remove() then: either that finds the node, or this
	 * finds out.
	 */
	if (!peer->node && !READ_ONCE(peer->removed))
		tow_peer_node_new(dirs, peer);
	mutex_unlock(&dirs->lock);
}

/**
 * tow_peer_sysfs_remove - let it not be seen any more
 * @peer: the peer, seen or not; the caller has a reference
 *
 * In process context, without tow_peers.lock, and after @peer->removed is set.
 * Waits for those who read.
 */
void tow_peer_sysfs_remove(struct tow_peer *peer)
{
	struct tow_peer_dirs *dirs = &peer->dev->peers->dirs;
	struct tow_peer_node *node;

	mutex_lock(&dirs->lock);
	node = peer->node;
	if (node) {
		tow_peer_node_hide(node);
		list_del(&node->link);
		peer->node = NULL;
	}
	mutex_unlock(&dirs->lock);
	kfree(node);
}

// SPDX-License-Identifier: GPL-2.0
/*
 * What a peer shows: in PEER_LIST, in the log and in sysfs.
 *
 * /sys/class/towline/<ibdev>/peers/<address>/ is a folder for each peer;
 * Documentation/ABI/testing/sysfs-class-towline describes each file.
 *
 * A peer is visible from tow_peer_sysfs_add() to tow_peer_sysfs_remove().  Its
 * folder is a separate structure (struct tow_peer_folder): folders are removed
 * with the device's node, which is made anew when the device is renamed, but
 * peers stay.  Removing a folder waits for readers of its files, so the peer
 * exists while it is read.  For the same reason readers do not take
 * tow_peer_dirs.lock, and folders are not removed under tow_peers.lock, which
 * readers take.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/capability.h>
#include <linux/device.h>
#include <linux/kernel.h>
#include <linux/kernfs.h>
#include <linux/kobject.h>
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
 * @peer: the peer, without a reference: it outlives the folder's files, but not
 *	always the folder
 */
struct tow_peer_folder {
	struct kobject	kobj;
	struct tow_peer	*peer;
};

/**
 * struct tow_peer_node - a visible peer; all of it is under tow_peer_dirs.lock
 * @link: in tow_peer_dirs.nodes
 * @peer: the peer, without a reference
 * @folder: its folder in sysfs, with a reference; NULL: the device has no node,
 *	or the folder could not be made
 */
struct tow_peer_node {
	struct list_head	link;
	struct tow_peer		*peer;
	struct tow_peer_folder	*folder;
};

/* ---- struct tow_peer_info ------------------------------------------------- */

static void tow_peer_add_numbers(struct tow_assoc *assoc,
				 struct tow_peer_info *info)
{
	if (!assoc)
		return;
	info->grants += READ_ONCE(assoc->dir.grant_count);
	info->remotes += READ_ONCE(assoc->dir.remote_count);
}

/**
 * tow_peer_describe - describe a peer
 * @peer: the peer
 * @info: where to; @size is kept, all else is filled in
 */
void tow_peer_describe(struct tow_peer *peer, struct tow_peer_info *info)
{
	struct tow_peers *peers = peer->dev->peers;
	struct tow_session *session, *other;
	struct tow_assoc *assoc = tow_peer_assoc(peer);
	struct tow_address address;
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
	address = tow_peer_address(peer);
	memcpy(info->address, &address.in6, sizeof(info->address));
	info->scope_id = address.scope_id;
	info->port = address.port;
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
		/*
		 * Loopback: the responder's association has the grants.  Pairs
		 * with tow_assoc_carry().
		 */
		tow_peer_add_numbers(smp_load_acquire(&other->assoc), info);
		tow_session_put(other);
	}
	tow_peer_add_numbers(assoc, info);
	if (assoc)
		tow_assoc_put(assoc);
	if (!session)
		return;
	info->qps = session->qps;
	/* Read before @jiffies, so that the difference is not negative. */
	busy_at = READ_ONCE(session->busy_at);
	info->idle_ms = jiffies_to_msecs(jiffies - busy_at);
	if (session->handshake.request.features &
	    cpu_to_le32(TOW_WIRE_AUTHENTICATED))
		info->flags |= TOW_PEER_AUTHENTICATED;
	tow_session_put(session);
}

/* ---- files ---------------------------------------------------------------- */

/**
 * struct tow_peer_attr - a file in a peer's folder
 * @attr: the file
 * @show: writes its contents; @info was just filled in
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

/* Names of exports are not in it, but the numbers of all tenants': for the administrator. */
static ssize_t tow_peer_show_history(struct tow_peer *peer,
				     const struct tow_peer_info *info,
				     char *buf)
{
	if (!capable(CAP_NET_ADMIN))
		return -EPERM;
	return tow_recorder_show(&peer->recorder, buf);
}

#define TOW_PEER_ATTR(_name, _mode)					\
	static struct tow_peer_attr tow_peer_attr_##_name = {		\
		.attr = { .name = #_name, .mode = (_mode) },		\
		.show = tow_peer_show_##_name,				\
	}

#define TOW_PEER_NUMBER(_name, _format, _value)				\
	static ssize_t tow_peer_show_##_name(struct tow_peer *peer,	\
					     const struct tow_peer_info *info, \
					     char *buf)			\
	{								\
		return sysfs_emit(buf, _format "\n", _value);		\
	}								\
	TOW_PEER_ATTR(_name, 0444)

TOW_PEER_ATTR(state, 0444);
TOW_PEER_ATTR(incarnation, 0444);
TOW_PEER_ATTR(history, 0400);
TOW_PEER_NUMBER(epoch, "%u", info->epoch);
TOW_PEER_NUMBER(qps, "%u", info->qps);
TOW_PEER_NUMBER(reconnects, "%u", info->reconnects);
TOW_PEER_NUMBER(bytes_written, "%lld", atomic64_read(&peer->bytes_written));
TOW_PEER_NUMBER(bytes_read, "%lld", atomic64_read(&peer->bytes_read));
TOW_PEER_NUMBER(operations, "%lld", atomic64_read(&peer->operations));
TOW_PEER_NUMBER(replayed, "%lld", atomic64_read(&peer->replayed));
TOW_PEER_NUMBER(rtt_ns, "%u", READ_ONCE(peer->rtt_ns));
TOW_PEER_NUMBER(rtt_min_ns, "%u", READ_ONCE(peer->rtt_min_ns));
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
	&tow_peer_attr_replayed.attr,
	&tow_peer_attr_rtt_ns.attr,
	&tow_peer_attr_rtt_min_ns.attr,
	&tow_peer_attr_last_error.attr,
	&tow_peer_attr_history.attr,
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

/* Does not use @peer, which may be gone: a folder may outlive its files. */
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
 * tow_peer_name - format an address
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
 * @peer: the peer; NULL: do nothing
 * @why: what is wrong
 */
void tow_peer_dump(struct tow_peer *peer, const char *why)
{
	char device[TOW_DEVICE_NAME_MAX], name[TOW_PEER_NAME_MAX];
	struct tow_address address;

	if (!peer)
		return;
	mutex_lock(&peer->dev->peers->lock);
	address = tow_peer_address(peer);
	mutex_unlock(&peer->dev->peers->lock);
	tow_device_name(peer->dev, device);
	tow_peer_name(&address, name);
	tow_recorder_dump(&peer->recorder, device, name, why);
}

/*
 * Is the name in use?  sysfs would warn about a second folder of the same name.
 */
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
	/* Another node was found at this address before, and is elsewhere now. */
	if (ret == -EEXIST) {
		snprintf(name + strlen(name), sizeof(name) - strlen(name),
			 "@%llu", peer->id);
		ret = tow_peer_folder_add(node, dirs->peers, name);
	}
	if (ret) {
		tow_device_name(peer->dev, device);
		pr_warn("%s: peer %s has no folder in sysfs: error %d\n",
			device, name, ret);
		return;
	}
}

/* Waits for readers. */
static void tow_peer_node_hide(struct tow_peer_node *node)
{
	if (!node->folder)
		return;
	kobject_del(&node->folder->kobj);
	kobject_put(&node->folder->kobj);
	node->folder = NULL;
}

/**
 * tow_peer_dirs_init - initialise, without folders
 * @dirs: the structure
 */
void tow_peer_dirs_init(struct tow_peer_dirs *dirs)
{
	mutex_init(&dirs->lock);
	dirs->peers = NULL;
	INIT_LIST_HEAD(&dirs->nodes);
}

/**
 * tow_peer_sysfs_device_add - make the folders of a device's peers
 * @dev: the device; it has a node now
 *
 * A folder that cannot be made is logged, and is no error.
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
	list_for_each_entry(node, &dirs->nodes, link)
		tow_peer_node_show(dirs, node);
out_unlock:
	mutex_unlock(&dirs->lock);
}

/**
 * tow_peer_sysfs_device_remove - remove the folders of a device's peers
 * @dev: the device; its node is about to be removed
 *
 * Waits for readers.
 */
void tow_peer_sysfs_device_remove(struct tow_device *dev)
{
	struct tow_peer_dirs *dirs = &dev->peers->dirs;
	struct tow_peer_node *node;

	mutex_lock(&dirs->lock);
	list_for_each_entry(node, &dirs->nodes, link)
		tow_peer_node_hide(node);
	/* kobject_put() removes the folder with the last reference. */
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
 * tow_peer_sysfs_add - make a peer's folder, if it has none
 * @peer: the peer, with a first address, which does not change any more; caller
 *	has a reference
 *
 * In process context; caller does not hold tow_peers.lock.  A folder that
 * cannot be made is logged, and is no error.  A peer that was removed meanwhile
 * gets none.
 */
void tow_peer_sysfs_add(struct tow_peer *peer)
{
	struct tow_peer_dirs *dirs = &peer->dev->peers->dirs;

	mutex_lock(&dirs->lock);
	/*
	 * @removed is set before tow_peer_sysfs_remove() is called, which takes
	 * @lock: so either that finds the node, or this sees @removed.
	 */
	if (!peer->node && !READ_ONCE(peer->removed))
		tow_peer_node_new(dirs, peer);
	mutex_unlock(&dirs->lock);
}

/**
 * tow_peer_sysfs_remove - remove a peer's folder, if it has one
 * @peer: the peer; @removed is set, and caller has a reference
 *
 * In process context; caller does not hold tow_peers.lock.  Waits for readers.
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

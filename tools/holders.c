// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * towline pool --by: who has how much of a pool, and where it is.
 *
 * Accounts tell what is charged and what is held, regions what lingers of it; the
 * rest is what clients have.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "holders.h"
#include "tool.h"

#define CGROUPS "/sys/fs/cgroup"

/* The kernel's FILEID_KERNFS: a handle is an inode number. */
#define HANDLE_KERNFS 0xfe

static const char *const words[] = {
	[HOLDERS_USER] = "user",
	[HOLDERS_CGROUP] = "cgroup",
	[HOLDERS_NODE] = "node",
};

enum holders holders_of(const char *word)
{
	size_t i;

	for (i = HOLDERS_USER; i < COUNT(words); i++) {
		if (strcmp(word, words[i]) == 0)
			return (enum holders)i;
	}
	return HOLDERS_NONE;
}

/* ---- by user or cgroup ---- */

/* "/user.slice/..." of the cgroup with that number, or NULL; for free(). */
static char *cgroup_path(uint64_t id)
{
	struct {
		struct file_handle head;
		uint64_t id;
	} handle = { .head = { .handle_bytes = sizeof(id), .handle_type = HANDLE_KERNFS } };
	char link[64], path[4096];
	ssize_t length = -1;
	int mount, fd = -1;

	memcpy(handle.head.f_handle, &id, sizeof(id));
	mount = open(CGROUPS, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (mount >= 0)
		fd = open_by_handle_at(mount, &handle.head, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		length = readlink(link, path, sizeof(path) - 1);
		close(fd);
	}
	if (mount >= 0)
		close(mount);
	if (length < (ssize_t)strlen(CGROUPS))
		return NULL;
	path[length] = '\0';
	return strdup(path[strlen(CGROUPS)] ? path + strlen(CGROUPS) : "/");
}

/* The list's entry for a user, or a cgroup; made if there is none. */
static struct json_object *holder_of(struct json_object *holders, const char *device,
				     enum holders by, uint64_t id)
{
	const char *key = by == HOLDERS_USER ? "uid" : "cgroup_id";
	struct json_object *holder;
	size_t i;
	char *path;

	for (i = 0; i < json_object_array_length(holders); i++) {
		holder = json_object_array_get_idx(holders, i);
		if (json_object_get_uint64(json_object_object_get(holder, key)) == id &&
		    strcmp(text_of(holder, "device"), device) == 0)
			return holder;
	}
	holder = json_object_new_object();
	json_object_object_add(holder, "device", json_object_new_string(device));
	json_object_object_add(holder, key, json_object_new_uint64(id));
	path = by == HOLDERS_CGROUP ? cgroup_path(id) : NULL;
	if (path)
		json_object_object_add(holder, "cgroup",
				       text_object((const uint8_t *)path, strlen(path)));
	free(path);
	json_object_array_add(holders, holder);
	return holder;
}

static void add_bytes(struct json_object *holder, const char *key, uint64_t bytes)
{
	bytes += json_object_get_uint64(json_object_object_get(holder, key));
	json_object_object_add(holder, key, json_object_new_uint64(bytes));
}

static void add_account(const char *device, const struct tow_account_info *info, const void *by,
			struct json_object *answers)
{
	enum holders holders = *(const enum holders *)by;
	struct json_object *holder = holder_of(answers, device, holders, holders == HOLDERS_USER ?
					       info->uid : info->cgroup_id);

	add_bytes(holder, "charged_bytes", info->charged_bytes);
	add_bytes(holder, "lingering_bytes", 0);
	add_bytes(holder, "held_bytes", info->held_bytes);
}

static void add_lingering(const char *device, const struct tow_region_info *info, const void *by,
			  struct json_object *answers)
{
	enum holders holders = *(const enum holders *)by;

	if (info->flags & TOW_REGION_LINGERING)
		add_bytes(holder_of(answers, device, holders, holders == HOLDERS_USER ?
				    info->uid : info->cgroup_id),
			  "lingering_bytes", info->charged_bytes);
}

static int users_add(const char *device, enum holders by, struct json_object *answers)
{
	struct tow_device *dev;
	int ret;

	/* Says what is wrong with the device, if something is. */
	ret = tow_device_open(device, 0, &dev);
	if (ret)
		return ret;
	ret = list_regions(dev, device, add_lingering, &by, answers);
	tow_device_close(dev);
	return ret ? ret : ask_accounts(device, TOW_LIST_ALL, add_account, &by, answers);
}

/* ---- by node ---- */

int nodes_add(const char *class_dir, const char *device, struct json_object *answers)
{
	char text[SYSFS_TEXT], *rest, *word, *end;
	struct json_object *node;
	unsigned long number;
	uint64_t bytes;
	int ret;

	ret = sysfs_read(class_dir, device, "pool_numa_bytes", text);
	for (rest = text; !ret && (word = strsep(&rest, " "));) {
		if (*word != 'N')
			continue;
		number = strtoul(word + 1, &end, 10);
		if (*end != '=' || size_parse(end + 1, &bytes))
			continue;
		node = json_object_new_object();
		json_object_object_add(node, "device", json_object_new_string(device));
		json_object_object_add(node, "node", json_object_new_uint64(number));
		json_object_object_add(node, "bytes", json_object_new_uint64(bytes));
		json_object_array_add(answers, node);
	}
	return ret;
}

int ask_holders(const char *device, const void *by, struct json_object *answers)
{
	enum holders holders = *(const enum holders *)by;
	int ret;

	if (holders == HOLDERS_NODE)
		return nodes_add(SYSFS_CLASS, device, answers);
	ret = users_add(device, holders, answers);
	if (ret == -EPERM)
		fprintf(stderr, "towline: to see everybody's takes CAP_NET_ADMIN: run it as root, outside any container\n");
	return ret;
}

/* ---- plain text ---- */

static void print_node(struct json_object *node)
{
	char text[SIZE_TEXT];

	printf("%-10s node %-5s %s\n", text_of(node, "device"), text_of(node, "node"),
	       size_of(node, "bytes", text));
}

#define ROW "%-10s %10s %10s %10s  %s\n"

static void print_holder(struct json_object *holder)
{
	char charged[SIZE_TEXT], lingering[SIZE_TEXT], held[SIZE_TEXT];
	const char *cgroup;

	if (json_object_object_get(holder, "node")) {
		print_node(holder);
		return;
	}
	cgroup = text_of(holder, json_object_object_get(holder, "cgroup") ? "cgroup" : "cgroup_id");
	printf(ROW, text_of(holder, "device"), size_of(holder, "charged_bytes", charged),
	       size_of(holder, "lingering_bytes", lingering), size_of(holder, "held_bytes", held),
	       json_object_object_get(holder, "uid") ? user_of(holder) : cgroup);
}

static void print_head(void)
{
	printf(ROW, "DEVICE", "CHARGED", "LINGERING", "HELD", "WHO");
}

static void print_nothing(void)
{
}

void print_holders(struct json_object *answers)
{
	bool nodes = json_object_array_length(answers) &&
		     json_object_object_get(json_object_array_get_idx(answers, 0), "node");

	print_rows(answers, nodes ? print_nothing : print_head, print_holder);
}

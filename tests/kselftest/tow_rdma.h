/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What rdma(8), modprobe(8) and rmmod(8) would be started for, without starting a
 * program: on an emulated debug kernel that takes half a second.
 *
 * Messages: <rdma/rdma_netlink.h>.  Each call returns 0 or a negative errno.
 */
#ifndef TOW_RDMA_H
#define TOW_RDMA_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

/* ---- netlink -------------------------------------------------------------- */

#define TOW_RDMA_TYPE(command)	((RDMA_NL_NLDEV << 10) | (command))

struct tow_rdma_request {
	struct nlmsghdr head;
	char attributes[512];
};

static inline void tow_rdma_begin(struct tow_rdma_request *request, int command, int flags)
{
	memset(request, 0, sizeof(*request));
	request->head.nlmsg_len = NLMSG_HDRLEN;
	request->head.nlmsg_type = TOW_RDMA_TYPE(command);
	request->head.nlmsg_flags = NLM_F_REQUEST | flags;
}

static inline void tow_rdma_attribute(struct tow_rdma_request *request, int type,
				      const void *value, size_t bytes)
{
	struct nlattr *attribute =
		(void *)((char *)request + NLMSG_ALIGN(request->head.nlmsg_len));

	attribute->nla_type = type;
	attribute->nla_len = NLA_HDRLEN + bytes;
	memcpy((char *)attribute + NLA_HDRLEN, value, bytes);
	request->head.nlmsg_len = NLMSG_ALIGN(request->head.nlmsg_len) +
				  NLA_ALIGN(attribute->nla_len);
}

static inline void tow_rdma_string(struct tow_rdma_request *request, int type,
				   const char *value)
{
	tow_rdma_attribute(request, type, value, strlen(value) + 1);
}

/* One attribute after the other: NULL after the last. */
static inline const struct nlattr *tow_rdma_next(const struct nlattr *at, size_t *left)
{
	size_t bytes = NLA_ALIGN(at->nla_len);

	if (bytes >= *left || *left - bytes < NLA_HDRLEN)
		return NULL;
	*left -= bytes;
	at = (const void *)((const char *)at + bytes);
	return at->nla_len < NLA_HDRLEN || at->nla_len > *left ? NULL : at;
}

static inline const void *tow_rdma_value(const struct nlattr *attribute, size_t *bytes)
{
	*bytes = attribute->nla_len - NLA_HDRLEN;
	return (const char *)attribute + NLA_HDRLEN;
}

/* The attribute of a type among those at a place; NULL: there is none. */
static inline const struct nlattr *tow_rdma_find(const void *place, size_t bytes, int type)
{
	const struct nlattr *at = place;

	if (bytes < NLA_HDRLEN || at->nla_len < NLA_HDRLEN || at->nla_len > bytes)
		return NULL;
	for (; at; at = tow_rdma_next(at, &bytes))
		if ((at->nla_type & NLA_TYPE_MASK) == type)
			return at;
	return NULL;
}

typedef void (*tow_rdma_answer)(void *context, const void *attributes, size_t bytes);

/* Read answers until the kernel says that it is done, or how it went. */
static inline int tow_rdma_read(int fd, tow_rdma_answer answer, void *context)
{
	static _Alignas(struct nlmsghdr) char buffer[1 << 16];

	for (;;) {
		ssize_t got = recv(fd, buffer, sizeof(buffer), 0);
		const struct nlmsghdr *head = (const void *)buffer;

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got ? -errno : -EIO;
		for (; NLMSG_OK(head, (size_t)got); head = NLMSG_NEXT(head, got)) {
			if (head->nlmsg_type == NLMSG_DONE)
				return 0;
			if (head->nlmsg_type == NLMSG_ERROR)
				return ((const struct nlmsgerr *)NLMSG_DATA(head))->error;
			if (answer)
				answer(context, NLMSG_DATA(head),
				       head->nlmsg_len - NLMSG_HDRLEN);
		}
	}
}

static inline int tow_rdma_talk(struct tow_rdma_request *request, tow_rdma_answer answer,
				void *context)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
	int ret;

	if (fd < 0)
		return -errno;
	if (send(fd, request, request->head.nlmsg_len, 0) < 0)
		ret = -errno;
	else
		ret = tow_rdma_read(fd, answer, context);
	close(fd);
	return ret;
}

/* ---- devices -------------------------------------------------------------- */

/* `rdma link add NAME type TYPE netdev INTERFACE` */
static inline int tow_rdma_link_add(const char *name, const char *type,
				    const char *interface)
{
	struct tow_rdma_request request;

	tow_rdma_begin(&request, RDMA_NLDEV_CMD_NEWLINK, NLM_F_ACK);
	tow_rdma_string(&request, RDMA_NLDEV_ATTR_DEV_NAME, name);
	tow_rdma_string(&request, RDMA_NLDEV_ATTR_LINK_TYPE, type);
	tow_rdma_string(&request, RDMA_NLDEV_ATTR_NDEV_NAME, interface);
	return tow_rdma_talk(&request, NULL, NULL);
}

struct tow_rdma_wanted {
	const char *name;
	bool found;
	uint32_t index;
};

static inline void tow_rdma_look(void *context, const void *attributes, size_t bytes)
{
	const struct nlattr *name, *index;
	struct tow_rdma_wanted *wanted = context;
	size_t length;

	name = tow_rdma_find(attributes, bytes, RDMA_NLDEV_ATTR_DEV_NAME);
	index = tow_rdma_find(attributes, bytes, RDMA_NLDEV_ATTR_DEV_INDEX);
	if (!name || !index || strcmp(tow_rdma_value(name, &length), wanted->name))
		return;
	memcpy(&wanted->index, tow_rdma_value(index, &length), sizeof(wanted->index));
	wanted->found = true;
}

static inline int tow_rdma_index(const char *name, uint32_t *index)
{
	struct tow_rdma_wanted wanted = { .name = name };
	struct tow_rdma_request request;
	int ret;

	tow_rdma_begin(&request, RDMA_NLDEV_CMD_GET, NLM_F_DUMP);
	ret = tow_rdma_talk(&request, tow_rdma_look, &wanted);
	*index = wanted.index;
	return ret ?: wanted.found ? 0 : -ENODEV;
}

/* `rdma link del NAME` */
static inline int tow_rdma_link_del(const char *name)
{
	struct tow_rdma_request request;
	uint32_t index;
	int ret = tow_rdma_index(name, &index);

	if (ret)
		return ret;
	tow_rdma_begin(&request, RDMA_NLDEV_CMD_DELLINK, NLM_F_ACK);
	tow_rdma_attribute(&request, RDMA_NLDEV_ATTR_DEV_INDEX, &index, sizeof(index));
	return tow_rdma_talk(&request, NULL, NULL);
}

/* `rdma dev set NAME name OTHER` */
static inline int tow_rdma_rename(const char *name, const char *other)
{
	struct tow_rdma_request request;
	uint32_t index;
	int ret = tow_rdma_index(name, &index);

	if (ret)
		return ret;
	tow_rdma_begin(&request, RDMA_NLDEV_CMD_SET, NLM_F_ACK);
	tow_rdma_attribute(&request, RDMA_NLDEV_ATTR_DEV_INDEX, &index, sizeof(index));
	tow_rdma_string(&request, RDMA_NLDEV_ATTR_DEV_NAME, other);
	return tow_rdma_talk(&request, NULL, NULL);
}

/* ---- modules -------------------------------------------------------------- */

/*
 * Load a module of the lab's.  What it needs is there already, or modprobe(8) is
 * asked after all.
 */
static inline int tow_module_load(const char *name, const char *options)
{
	char path[PATH_MAX], command[512];
	struct utsname kernel;
	int fd, ret;

	if (uname(&kernel))
		return -errno;
	snprintf(path, sizeof(path), "/lib/modules/%s/updates/%s.ko", kernel.release, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ret = fd < 0 ? -errno : 0;
	if (!ret && syscall(SYS_finit_module, fd, options, 0))
		ret = -errno;
	if (fd >= 0)
		close(fd);
	/* The kernel says so of a symbol that nobody has. */
	if (ret != -ENOENT)
		return ret == -EEXIST ? 0 : ret;
	snprintf(command, sizeof(command), "modprobe %s %s", name, options);
	return system(command) ? -ENOENT : 0;
}

/* `rmmod NAME` */
static inline int tow_module_unload(const char *name)
{
	return syscall(SYS_delete_module, name, O_NONBLOCK) ? -errno : 0;
}

#endif /* TOW_RDMA_H */

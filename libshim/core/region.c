// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Regions: how they are made, mapped, passed on and ended.
 *
 * A region is a handle of the kernel's.  The library adds the descriptor that it
 * is mapped by, and the list of its mappings, so that ending a region leaves
 * nothing of it in the process.  Memory of it that has an address is in its device's table
 * (mapped.c), where an address's region is found.
 *
 * Each call of the library is one call of the kernel's where that is enough.  A
 * region that came as a descriptor gets a descriptor of its own, and is asked
 * for its size, when it is first mapped.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

/* The size of struct tow_region_attr when it was first published. */
#define ATTR_SIZE_FIRST	(offsetof(struct tow_region_attr, name) + sizeof(const char *))

struct mapping {
	struct mapping *next;
	void *addr;
	uint64_t offset;	/* in the region */
	size_t length;		/* in bytes of the region */
	size_t asked;		/* as the caller gave it */
};

struct tow_region {
	/* First: tow_handle_of() reads it in programs, too. */
	uint64_t handle;
	struct tow_device *dev;
	/* The process's own memory, or a dma-buf: nothing to pass on. */
	bool imported;
	/* Of the former, which is in the device's table. */
	char *memory;
	/* Of the latter, whose descriptor is @fd: where the region begins in it. */
	uint64_t skip;
	/* Whose it is: towi_ours(). */
	uint64_t process;
	/* Protects everything below. */
	pthread_mutex_t lock;
	/* -1, and map_bytes 0: not known yet (or the process's own memory). */
	bool readonly;
	bool adopted;		/* by an arena */
	int fd;
	uint64_t map_bytes;
	struct mapping *mappings;
	/* Addresses that stand for it, while an arena has it; NULL: there are none such. */
	char *far;
	/* Most regions are mapped once; in use while it has an address. */
	struct mapping first;
};

int towi_region_name(const char *name, char to[TOW_REGION_NAME_MAX])
{
	size_t length = name ? strnlen(name, TOW_REGION_NAME_MAX) : 0;

	if (length == TOW_REGION_NAME_MAX)
		return -EINVAL;
	memset(to, 0, TOW_REGION_NAME_MAX);
	if (length)
		memcpy(to, name, length);
	return 0;
}

int towi_region_attr_take(const struct tow_region_attr *given, struct tow_region_attr *attr)
{
	int ret = towi_take(given, ATTR_SIZE_FIRST, attr, sizeof(*attr));

	return !ret && attr->reserved ? -EINVAL : ret;
}

struct tow_device *towi_region_device(const struct tow_region *region)
{
	return region->dev;
}

_Static_assert(offsetof(struct tow_region, handle) == 0, "programs read it there");

uint64_t towi_region_handle(const struct tow_region *region)
{
	return region->handle;
}

bool towi_region_readonly(const struct tow_region *region)
{
	return region->readonly;
}

static struct tow_region *new_region(struct tow_device *dev, bool imported)
{
	struct tow_region *region = calloc(1, sizeof(*region));

	if (!region)
		return NULL;
	region->process = towi_process();
	if (!region->process) {
		free(region);
		return NULL;
	}
	pthread_mutex_init(&region->lock, NULL);
	region->dev = dev;
	region->imported = imported;
	region->fd = -1;
	return region;
}

static void free_region(struct tow_region *region)
{
	pthread_mutex_destroy(&region->lock);
	free(region);
}

/* What is common to the calls that make a region: the object, and its end. */
static int make_region(struct tow_device *dev, bool imported, unsigned long command, void *arg,
		       struct tow_region **region)
{
	struct tow_region *made;
	int ret;

	made = new_region(dev, imported);
	if (!made)
		return -ENOMEM;
	ret = towi_call(dev, command, arg);
	if (ret)
		free_region(made);
	else
		*region = made;
	return ret;
}

TOW_PUBLIC int tow_region_create(struct tow_device *dev, uint64_t bytes,
				 const struct tow_region_attr *attr, struct tow_region **region)
{
	struct tow_region_create create = { .size = sizeof(create), .bytes = bytes };
	struct tow_region_attr known;
	struct tow_region *made;
	int ret;

	if (!dev || !region)
		return -EINVAL;
	ret = towi_region_attr_take(attr, &known);
	if (ret)
		return ret;
	ret = towi_region_name(known.name, create.name);
	if (ret)
		return ret;
	create.flags = known.flags;
	create.linger_s = known.linger_s;
	ret = make_region(dev, false, TOW_IOCTL_REGION_CREATE, &create, &made);
	if (ret)
		return ret;
	made->handle = create.handle;
	made->map_bytes = create.map_bytes;
	made->fd = create.fd;
	*region = made;
	return 0;
}

TOW_PUBLIC int tow_region_attach(struct tow_device *dev, const char *name, uint32_t linger_s,
				 struct tow_region **region)
{
	struct tow_region_attach attach = { .size = sizeof(attach), .linger_s = linger_s };
	struct tow_region *made;
	int ret;

	if (!dev || !name || !region)
		return -EINVAL;
	ret = towi_region_name(name, attach.name);
	if (ret)
		return ret;
	ret = make_region(dev, false, TOW_IOCTL_REGION_ATTACH, &attach, &made);
	if (ret)
		return ret;
	made->handle = attach.handle;
	made->map_bytes = attach.map_bytes;
	made->fd = attach.fd;
	*region = made;
	return 0;
}

TOW_PUBLIC int tow_region_from_memory(struct tow_device *dev, void *addr, uint64_t bytes,
				      uint32_t flags, struct tow_region **region)
{
	struct tow_region_import_user import = {
		.size = sizeof(import),
		.flags = flags,
		.address = (uintptr_t)addr,
		.bytes = bytes,
	};
	struct tow_region *made;
	int ret;

	if (!dev || !region)
		return -EINVAL;
	ret = make_region(dev, true, TOW_IOCTL_REGION_IMPORT_USER, &import, &made);
	if (ret)
		return ret;
	made->handle = import.handle;
	made->readonly = flags & TOW_REGION_READONLY;
	ret = towi_mapped_add(dev, made, addr, 0, bytes);
	if (ret) {
		tow_region_destroy(made);
		return ret;
	}
	made->memory = addr;
	*region = made;
	return 0;
}

TOW_PUBLIC int tow_region_from_dmabuf(struct tow_device *dev, int fd, uint64_t offset,
				      uint64_t bytes, uint32_t flags, struct tow_region **region)
{
	struct tow_region_import_dmabuf import = {
		.size = sizeof(import),
		.flags = flags,
		.fd = fd,
		.offset = offset,
		.bytes = bytes,
	};
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	struct tow_region *made;
	int ret;

	if (!dev || !region)
		return -EINVAL;
	ret = make_region(dev, true, TOW_IOCTL_REGION_IMPORT_DMABUF, &import, &made);
	if (ret)
		return ret;
	made->handle = import.handle;
	made->readonly = flags & TOW_REGION_READONLY;
	made->skip = offset;
	/* It is whole pages, as the kernel has looked that the range is within it. */
	made->map_bytes = (bytes + page - 1) & ~(page - 1);
	made->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (made->fd < 0) {
		ret = -errno;
		tow_region_destroy(made);
		return ret;
	}
	*region = made;
	return 0;
}

TOW_PUBLIC int tow_region_from_fd(struct tow_device *dev, int fd, struct tow_region **region)
{
	struct tow_region_from_fd from = { .size = sizeof(from), .fd = fd };
	int ret;

	if (!dev || !region)
		return -EINVAL;
	ret = make_region(dev, false, TOW_IOCTL_REGION_FROM_FD, &from, region);
	if (!ret)
		(*region)->handle = from.handle;
	return ret;
}

static void free_mapping(struct tow_region *region, struct mapping *mapping)
{
	if (mapping == &region->first)
		mapping->addr = NULL;
	else
		free(mapping);
}

/* Everything of the region's that this process has, but for its handle. */
static void forget_region(struct tow_region *region)
{
	bool ours = towi_ours(region->process);
	bool whole = ours || towi_at_rest(&region->lock);
	struct mapping *mapping;

	if (ours && region->memory)
		towi_mapped_drop(region->dev, region, region->memory);
	while (whole && (mapping = region->mappings)) {
		region->mappings = mapping->next;
		if (ours)
			towi_mapped_drop(region->dev, region, mapping->addr);
		towi_unmap(&region->dev->map_hint, mapping->addr, mapping->length);
		free_mapping(region, mapping);
	}
	if (region->fd >= 0)
		close(region->fd);
	free_region(region);
}

TOW_PUBLIC int tow_region_destroy(struct tow_region *region)
{
	struct tow_region_destroy destroy = { .size = sizeof(destroy) };
	struct tow_device *dev;

	if (!region)
		return 0;
	dev = region->dev;
	destroy.handle = region->handle;
	if (towi_ours(region->process))
		towi_tell_gone(dev, region->handle);
	forget_region(region);
	return towi_call(dev, TOW_IOCTL_REGION_DESTROY, &destroy);
}

TOW_PUBLIC void tow_region_release(struct tow_region *region)
{
	if (region)
		forget_region(region);
}

static int query_region(const struct tow_region *region, struct tow_region_info *info)
{
	memset(info, 0, sizeof(*info));
	info->size = sizeof(*info);
	info->handle = region->handle;
	return towi_call(region->dev, TOW_IOCTL_REGION_QUERY, info);
}

TOW_PUBLIC int tow_region_info(const struct tow_region *region, struct tow_region_info *info)
{
	struct tow_region_info known;
	int ret;

	if (!region || !info || !towi_size_valid(info->size, TOWI_INFO_SIZE_FIRST))
		return -EINVAL;
	ret = query_region(region, &known);
	return ret ? ret : towi_give(&known, TOWI_INFO_SIZE_FIRST, info);
}

static int make_fd(const struct tow_region *region, uint32_t flags, int *fd)
{
	struct tow_region_fd make = {
		.size = sizeof(make),
		.flags = flags,
		.handle = region->handle,
	};
	int ret = towi_call(region->dev, TOW_IOCTL_REGION_FD, &make);

	if (!ret)
		*fd = make.fd;
	return ret;
}

TOW_PUBLIC int tow_region_fd(struct tow_region *region, uint32_t flags, int *fd)
{
	if (!region || !fd)
		return -EINVAL;
	return make_fd(region, flags, fd);
}

/* Called with the lock. */
static int learn_region(struct tow_region *region)
{
	struct tow_region_info info;
	int ret;

	ret = query_region(region, &info);
	if (ret)
		return ret;
	region->readonly = info.flags & TOW_REGION_READONLY;
	ret = make_fd(region, info.flags & TOW_REGION_READONLY, &region->fd);
	if (!ret)
		region->map_bytes = info.map_bytes;
	return ret;
}

static int know_region(struct tow_region *region)
{
	int ret = 0;

	if (region->memory)
		return -EOPNOTSUPP;
	if (!towi_ours(region->process))
		return -EPERM;
	pthread_mutex_lock(&region->lock);
	if (region->fd < 0)
		ret = learn_region(region);
	pthread_mutex_unlock(&region->lock);
	/* Whoever has had the lock after it was known may read it without. */
	return ret;
}

/* The region's own record while it is free, or one more. */
static struct mapping *take_record(struct tow_region *region, void *addr)
{
	struct mapping *mapping = &region->first;

	if (mapping->addr)
		mapping = malloc(sizeof(*mapping));
	if (mapping)
		mapping->addr = addr;
	return mapping;
}

static int remember_mapping(struct tow_region *region, void *addr, uint64_t offset, size_t length,
			    size_t asked)
{
	struct mapping *mapping;

	pthread_mutex_lock(&region->lock);
	mapping = take_record(region, addr);
	if (mapping && towi_mapped_add(region->dev, region, addr, offset, length)) {
		free_mapping(region, mapping);
		mapping = NULL;
	}
	if (mapping) {
		mapping->offset = offset;
		mapping->length = length;
		mapping->asked = asked;
		mapping->next = region->mappings;
		region->mappings = mapping;
	}
	pthread_mutex_unlock(&region->lock);
	return mapping ? 0 : -ENOMEM;
}

/* Map a part, of @length bytes, or 0: all that is left.  How much that is, in @mapped. */
static int map_part(struct tow_region *region, uint64_t offset, size_t length, int prot,
		    size_t *mapped, void **addr)
{
	uint64_t left, wanted;
	int ret;

	ret = know_region(region);
	if (ret)
		return ret;
	/* A dma-buf's descriptor may allow more than the region. */
	if (region->imported && region->readonly && prot & PROT_WRITE)
		return -EACCES;
	if (offset >= region->map_bytes)
		return -EINVAL;
	left = region->map_bytes - offset;
	wanted = length ? length : left;
	if (wanted > left)
		return -EINVAL;
	if (wanted > SIZE_MAX)
		return -ENOMEM;
	*mapped = (size_t)wanted;
	return towi_map(&region->dev->map_hint, region->fd, prot, region->skip + offset, *mapped,
			addr);
}

TOW_PUBLIC int tow_region_map(struct tow_region *region, uint64_t offset, size_t length, int prot,
			      void **addr)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes;
	void *mapped;
	int ret;

	if (!region || !addr || offset % page)
		return -EINVAL;
	ret = map_part(region, offset, length, prot, &bytes, &mapped);
	if (ret)
		return ret;
	ret = remember_mapping(region, mapped, offset, bytes, length);
	if (ret)
		towi_unmap(&region->dev->map_hint, mapped, bytes);
	else
		*addr = mapped;
	return ret;
}

int towi_region_word(struct tow_region *region, uint64_t offset, struct towi_word *word)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t within = (size_t)(offset % page);
	void *mapped;
	int ret;

	if (region->memory) {
		/* That it is within the region, the kernel looks. */
		word->at = (const uint64_t *)(const void *)(region->memory + offset);
		word->mapped = NULL;
		return 0;
	}
	ret = map_part(region, offset - within, page, PROT_READ, &word->bytes, &mapped);
	if (ret)
		return ret;
	word->mapped = mapped;
	word->at = (const uint64_t *)(const void *)((const char *)mapped + within);
	return 0;
}

void towi_word_end(const struct towi_word *word)
{
	if (word->mapped)
		munmap(word->mapped, word->bytes);
}

/* Take the mapping off the list; NULL when there is none such. */
static struct mapping *find_mapping(struct tow_region *region, void *addr, size_t asked)
{
	struct mapping **link = &region->mappings, *mapping;

	while ((mapping = *link) && (mapping->addr != addr || mapping->asked != asked))
		link = &mapping->next;
	if (mapping)
		*link = mapping->next;
	return mapping;
}

TOW_PUBLIC int tow_region_unmap(struct tow_region *region, void *addr, size_t length)
{
	struct mapping *mapping;
	int ret = -EINVAL;

	if (!region || !addr)
		return -EINVAL;
	if (!towi_ours(region->process))
		return -EPERM;
	pthread_mutex_lock(&region->lock);
	mapping = find_mapping(region, addr, length);
	if (mapping) {
		/* Before somebody else may have the address. */
		towi_mapped_drop(region->dev, region, addr);
		ret = towi_unmap(&region->dev->map_hint, addr, mapping->length);
		if (ret) {
			towi_mapped_add(region->dev, region, addr, mapping->offset,
					mapping->length);
			mapping->next = region->mappings;
			region->mappings = mapping;
		} else {
			free_mapping(region, mapping);
		}
	}
	pthread_mutex_unlock(&region->lock);
	return ret;
}

/* ---- for arenas ------------------------------------------------------------- */

/* True: it was not so. */
static bool set_adopted(struct tow_region *region, bool adopted)
{
	bool before;

	pthread_mutex_lock(&region->lock);
	before = region->adopted;
	region->adopted = adopted;
	pthread_mutex_unlock(&region->lock);
	return before != adopted;
}

static bool is_dmabuf(const struct tow_region *region)
{
	return region->imported && !region->memory;
}

/* Addresses of its own, as nobody need be able to map it, and a device's is no place for bytes. */
static int stand_in(struct tow_region *region, uint64_t bytes, void **at)
{
	int ret;

	if (bytes > SIZE_MAX)
		return -ENOMEM;
	ret = towi_map_nothing((size_t)bytes, at);
	if (ret)
		return ret;
	ret = remember_mapping(region, *at, 0, (size_t)bytes, 0);
	if (ret)
		munmap(*at, (size_t)bytes);
	else
		region->far = *at;
	return ret;
}

static int adopt(struct tow_region *region, void **at, uint64_t *bytes, bool *far)
{
	struct tow_region_info info;
	int ret;

	ret = query_region(region, &info);
	if (ret)
		return ret;
	if (info.flags & TOW_REGION_READONLY)
		return -EACCES;
	*bytes = region->imported ? info.bytes : info.map_bytes;
	*far = is_dmabuf(region);
	if (*far)
		return stand_in(region, *bytes, at);
	*at = region->memory;
	return region->memory ? 0 : tow_region_map(region, 0, 0, PROT_READ | PROT_WRITE, at);
}

int towi_region_adopt(struct tow_region *region, void **at, uint64_t *bytes, bool *far)
{
	int ret;

	if (!towi_ours(region->process))
		return -EPERM;
	if (!set_adopted(region, true))
		return -EBUSY;
	ret = adopt(region, at, bytes, far);
	if (ret)
		set_adopted(region, false);
	return ret;
}

int towi_region_leave(struct tow_region *region, void *at)
{
	if (!towi_ours(region->process))
		return -EPERM;
	/* Before another may adopt it, whose addresses are others. */
	region->far = NULL;
	set_adopted(region, false);
	return region->memory ? 0 : tow_region_unmap(region, at, 0);
}

bool towi_region_far(const struct tow_region *region, const void *ptr)
{
	const char *at = ptr;

	return region->far && at >= region->far && at < region->far + region->map_bytes;
}

bool towi_region_lost(const struct tow_region *region)
{
	struct tow_region_info info;

	return is_dmabuf(region) && !query_region(region, &info) &&
	       info.flags & TOW_REGION_INVALID;
}

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tensors in another device's memory (tow_vgpu.ko), for one source file of a program: an arena
 * of a buffer of many parts that are not beside one another, which the processor sees elsewhere.
 */
#ifndef TOW_LAB_DEVICE_H
#define TOW_LAB_DEVICE_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <towline/arena.h>

#include "tests/modules/tow_vgpu.h"

#define DEVICE_PART	65536U
#define DEVICE_MOVE_MS	30000U

struct device {
	int buffer;		/* the dma-buf */
	struct tow_region *region;
	struct tow_arena *arena;
	char *seen;		/* where the processor sees it */
};

/* 0 or a negative errno. */
static inline int device_begin(struct tow_device *dev, uint64_t bytes, struct device *made)
{
	struct tow_vgpu_alloc alloc = { .bytes = bytes, .chunk_bytes = DEVICE_PART };
	int fd = open(TOW_VGPU_NODE, O_RDWR | O_CLOEXEC), ret;

	if (fd < 0 || ioctl(fd, TOW_VGPU_ALLOC, &alloc))
		return -errno;
	close(fd);
	made->buffer = alloc.fd;
	made->seen = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, alloc.fd, 0);
	if (made->seen == MAP_FAILED)
		return -errno;
	ret = tow_region_from_dmabuf(dev, alloc.fd, 0, bytes, 0, &made->region);
	if (!ret)
		ret = tow_arena_create(dev, NULL, &made->arena);
	return ret ? ret : tow_arena_adopt(made->arena, made->region);
}

/* Where the processor sees what the library says is at @ptr. */
static inline void *device_seen(const struct device *device, void *ptr)
{
	struct tow_region *region;
	uint64_t offset;

	if (!device->arena || tow_arena_find(device->arena, ptr, &region, &offset))
		return ptr;
	return device->seen + offset;
}

/* The device takes it back: 0 when nobody reaches it any more, or a negative errno. */
static inline int device_move(const struct device *device)
{
	struct tow_vgpu_move move = { .fd = device->buffer, .timeout_ms = DEVICE_MOVE_MS };
	int fd = open(TOW_VGPU_NODE, O_RDWR | O_CLOEXEC);

	if (fd < 0 || ioctl(fd, TOW_VGPU_MOVE, &move))
		return -errno;
	close(fd);
	printf("moved after %.3f s\n", (double)move.waited_us / 1e6);
	return move.signaled && !move.mappings ? 0 : -ETIMEDOUT;
}

/* Bytes that came to where it was, or a negative errno. */
static inline int64_t device_landed(const struct device *device)
{
	struct tow_vgpu_status status = { .fd = device->buffer };
	int fd = open(TOW_VGPU_NODE, O_RDWR | O_CLOEXEC);

	if (fd < 0 || ioctl(fd, TOW_VGPU_STATUS, &status))
		return -errno;
	close(fd);
	return (int64_t)status.landed;
}

/* 0 or a negative errno. */
static inline int device_end(struct device *device)
{
	int ret = tow_arena_destroy(device->arena), error;

	error = tow_region_destroy(device->region);
	close(device->buffer);
	return ret ? ret : error;
}

#endif /* TOW_LAB_DEVICE_H */

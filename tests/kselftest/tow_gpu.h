/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What tow_vgpu.ko does, as calls, and regions of dma-bufs.
 */
#ifndef TOW_GPU_H
#define TOW_GPU_H

#include "tow_hotplug.h"
#include "tow_places.h"
#include "tests/modules/tow_vgpu.h"

static inline int tow_gpu_open(void)
{
	int fd;

	if (access(TOW_VGPU_NODE, F_OK) && tow_module_load("tow_vgpu", ""))
		return -ENOPKG;
	if (!tow_wait_path(TOW_VGPU_NODE, true))
		return -ENOENT;
	fd = open(TOW_VGPU_NODE, O_RDWR | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/*
 * All cases of a program use the module; it goes when the program's first process ends,
 * and the last of what buffers were busy with is over.
 */
__attribute__((destructor))
static void tow_gpu_unload(void)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);

	while (!access("/sys/module/tow_vgpu", F_OK) && tow_module_unload("tow_vgpu") &&
	       tow_patient(&patience))
		tow_test_sleep_ms(20);
}

/* A dma-buf, or a negative errno. */
static inline int tow_gpu_alloc(int gpu, uint64_t bytes, uint64_t chunk_bytes, uint32_t flags)
{
	struct tow_vgpu_alloc call = {
		.bytes = bytes, .chunk_bytes = chunk_bytes, .flags = flags,
	};
	int ret = tow_test_ioctl(gpu, TOW_VGPU_ALLOC, &call);

	return ret ? ret : call.fd;
}

static inline int tow_gpu_write(int gpu, int buffer, uint64_t offset, const void *data,
				uint64_t bytes)
{
	struct tow_vgpu_access call = {
		.fd = buffer, .write = 1, .offset = offset, .bytes = bytes,
		.data = (uintptr_t)data,
	};

	return tow_test_ioctl(gpu, TOW_VGPU_ACCESS, &call);
}

static inline int tow_gpu_read(int gpu, int buffer, uint64_t offset, void *data, uint64_t bytes)
{
	struct tow_vgpu_access call = {
		.fd = buffer, .offset = offset, .bytes = bytes, .data = (uintptr_t)data,
	};

	return tow_test_ioctl(gpu, TOW_VGPU_ACCESS, &call);
}

static inline int tow_gpu_busy(int gpu, int buffer, uint32_t ms, uint8_t byte)
{
	struct tow_vgpu_busy call = { .fd = buffer, .ms = ms, .byte = byte };

	return tow_test_ioctl(gpu, TOW_VGPU_BUSY, &call);
}

static inline int tow_gpu_move(int gpu, int buffer, uint32_t timeout_ms,
			       struct tow_vgpu_move *call)
{
	*call = (struct tow_vgpu_move) { .fd = buffer, .timeout_ms = timeout_ms };
	return tow_test_ioctl(gpu, TOW_VGPU_MOVE, call);
}

static inline int tow_gpu_status(int gpu, int buffer, struct tow_vgpu_status *call)
{
	*call = (struct tow_vgpu_status) { .fd = buffer };
	return tow_test_ioctl(gpu, TOW_VGPU_STATUS, call);
}

/* Nobody has it pinned, mapped or attached any more: true, or false after a while. */
static inline bool tow_gpu_let_go(int gpu, int buffer)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	struct tow_vgpu_status status;

	do {
		if (tow_gpu_status(gpu, buffer, &status))
			return false;
		if (!status.attachments && !status.pins && !status.mappings)
			return true;
		tow_test_sleep_ms(10);
	} while (tow_patient(&patience));
	return false;
}

/* Through a mapping and not the driver: are these the bytes? */
static inline bool tow_gpu_shows(int buffer, const void *data, size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ, MAP_SHARED, buffer, 0);
	bool same;

	if (at == MAP_FAILED)
		return false;
	same = !memcmp(at, data, bytes);
	munmap(at, bytes);
	return same;
}

static inline int tow_import_dmabuf(int client, int dmabuf, uint64_t offset, uint64_t bytes,
				    uint32_t flags, uint64_t *handle)
{
	struct tow_region_import_dmabuf call = {
		.size = sizeof(call), .flags = flags, .fd = dmabuf,
		.offset = offset, .bytes = bytes,
	};
	int ret = tow_test_ioctl(client, TOW_IOCTL_REGION_IMPORT_DMABUF, &call);

	*handle = call.handle;
	return ret;
}

/* ---- between a buffer and the pool --------------------------------------------- */

#define TOW_GPU_PAGE	4096ULL
/* Of most buffers: more than one registration, and no multiple of anything. */
#define TOW_GPU_BYTES	(2 * TOW_SLAB + 5 * TOW_GPU_PAGE)
#define TOW_GPU_RIGHTS	(TOW_RIGHT_READ | TOW_RIGHT_WRITE)

/* A client whose node is its own peer, with memory of both kinds. */
struct tow_gpu {
	struct tow_user user;
	struct tow_mapped own;		/* of the pool */
	__u64 own_remote;		/* that, found at ourselves as "own" */
	int node;
	int buffer;			/* -1: none yet */
	uint64_t region;		/* the buffer's; 0: not imported */
	__u64 remote;			/* that region, found at ourselves as "gpu" */
};

static inline int tow_gpu_make(struct tow_gpu *gpu, uint64_t own_bytes, __u32 entries)
{
	__u64 exported;
	int ret;

	memset(gpu, 0, sizeof(*gpu));
	gpu->buffer = -1;
	ret = tow_user_make(&gpu->user, entries, 0);
	if (!ret)
		ret = tow_mapped_make(gpu->user.fd, own_bytes, &gpu->own);
	if (!ret)
		ret = tow_publish_for(gpu->user.fd, gpu->own.made.handle, "own", own_bytes,
				      TOW_GPU_RIGHTS, &exported);
	if (!ret)
		ret = tow_find_for(gpu->user.fd, gpu->user.peer, "own", TOW_GPU_RIGHTS,
				   &gpu->own_remote);
	if (ret)
		return ret;
	gpu->node = tow_gpu_open();
	return gpu->node < 0 ? gpu->node : 0;
}

/* A region of what the buffer has from @offset on, found as "gpu". */
static inline int tow_gpu_import(struct tow_gpu *gpu, uint64_t offset, uint64_t bytes)
{
	__u64 exported;
	int ret = tow_import_dmabuf(gpu->user.fd, gpu->buffer, offset, bytes, 0, &gpu->region);

	if (ret)
		return ret;
	ret = tow_publish_for(gpu->user.fd, gpu->region, "gpu", bytes, TOW_GPU_RIGHTS, &exported);
	return ret ? ret : tow_find_for(gpu->user.fd, gpu->user.peer, "gpu", TOW_GPU_RIGHTS,
					&gpu->remote);
}

/* A buffer and the region of it. */
static inline int tow_gpu_have(struct tow_gpu *gpu, uint64_t bytes, uint64_t chunk_bytes,
			       uint64_t offset, uint32_t flags)
{
	gpu->buffer = tow_gpu_alloc(gpu->node, bytes, chunk_bytes, flags);
	return gpu->buffer < 0 ? gpu->buffer : tow_gpu_import(gpu, offset, bytes - offset);
}

/* Between pool memory at hand and the buffer, which is the far end. */
static inline struct tow_sqe tow_gpu_far(const struct tow_gpu *gpu, __u8 opcode, __u64 own,
					 __u64 there, __u64 bytes)
{
	return tow_move(&gpu->user, opcode, gpu->own.made.handle, own, gpu->remote, there, bytes);
}

/* Between the buffer, which is at hand, and pool memory at the far end. */
static inline struct tow_sqe tow_gpu_near(const struct tow_gpu *gpu, __u8 opcode, __u64 here,
					  __u64 own, __u64 bytes)
{
	return tow_move(&gpu->user, opcode, gpu->region, here, gpu->own_remote, own, bytes);
}

static inline int tow_gpu_do(struct tow_gpu *gpu, struct tow_sqe entry)
{
	return tow_rings_do(&gpu->user.rings, &entry);
}

/* ---- the PCI device ---------------------------------------------------------- */

#define TOW_GPU_DRIVER	"/sys/bus/pci/drivers/tow_vgpu"

/* "0000:00:05.0", while it has its driver; false if it has not. */
static inline bool tow_gpu_pci(char *name, size_t size)
{
	DIR *dir = opendir(TOW_GPU_DRIVER);
	struct dirent *entry;
	bool found = false;

	while (dir && !found && (entry = readdir(dir))) {
		found = strchr(entry->d_name, ':');
		if (found)
			snprintf(name, size, "%.*s", (int)size - 1, entry->d_name);
	}
	if (dir)
		closedir(dir);
	return found;
}

/* "bind" or "unbind": 0 or a negative errno. */
static inline int tow_gpu_driver(const char *file, const char *pci)
{
	char path[64];
	ssize_t put;
	int fd, ret;

	snprintf(path, sizeof(path), TOW_GPU_DRIVER "/%s", file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	put = write(fd, pci, strlen(pci));
	ret = put < 0 ? -errno : 0;
	close(fd);
	return ret;
}

#endif /* TOW_GPU_H */

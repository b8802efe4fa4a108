/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * libtowline: programs' side of towline.
 *
 * towline keeps RDMA memory, registrations and connections once per node, in
 * the kernel; this library gives programs handles to them.
 *
 * Every function that can fail returns 0 or a negative errno value; each value
 * has one meaning, listed below and said in words by tow_strerror().  The
 * library never prints, never calls exit(), and keeps no state of its own: all
 * functions may be called from any number of threads at once, on the same
 * object too, except that nothing may use an object while it is closed or
 * freed, or afterwards.
 *
 *  -E2BIG		the program asks for something newer than what is installed
 *  -EACCES		no permission: for the device file, or to write a region
 *			that is read-only
 *  -EBADF		a descriptor is not open
 *  -EBUSY		taken: the region's client lives, or this client is in
 *			another job
 *  -EDQUOT		a limit of this client or its user is reached
 *  -EEXIST		the user has a persistent region of that name in this job
 *  -EFAULT		there is no such memory, or it cannot be written
 *  -EINVAL		an argument is invalid
 *  -EMFILE		this process has no descriptor left
 *  -ENFILE		the machine has no descriptor left
 *  -ENODEV		the RDMA device was removed
 *  -ENOENT		there is no towline device, or region, of that name
 *  -ENOMEM		out of the machine's memory, or of what this process may
 *			have of it
 *  -ENOPKG		the kernel module is not loaded
 *  -ENOSPC		the device's pool is empty, or a limit of the device is
 *			reached
 *  -ENOTUNIQ		several devices, and none was named
 *  -ENXIO		the module is loaded, but no RDMA device is usable
 *  -EOPNOTSUPP		this device, or this memory, cannot do that
 *  -EPERM		not for this process: another network namespace's device,
 *			a device that another process opened, or an
 *			administrator's call
 *  -EPROTONOSUPPORT	the module is older than the library
 *  -EXDEV		the region is another device's, or of an earlier life of
 *			this one
 */
#ifndef TOW_TOWLINE_H
#define TOW_TOWLINE_H

#include <stddef.h>
#include <stdint.h>

#include <towline/uapi.h>

#ifdef __cplusplus
/* Some functions are called like the structure of the kernel's call. */
#ifdef __GNUC__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif
extern "C" {
#endif

/* An open device.  Made by tow_device_open(), ended by tow_device_close(). */
struct tow_device;

/* The names of a node's devices at one moment. */
struct tow_device_list;

/*
 * Memory that RDMA can reach.  Made by tow_region_create() and the functions
 * that take memory from elsewhere, ended by tow_region_destroy() or let go by
 * tow_region_release().
 */
struct tow_region;

/* What a device's regions were at one moment. */
struct tow_regions;

/**
 * tow_strerror() - words for a result of this library
 * @error: 0, or a negative errno value that a function here returned
 *
 * Return: a string that lives as long as the program and must not be freed;
 * "unknown error" for values that no function returns.  Never NULL.
 */
const char *tow_strerror(int error);

/**
 * tow_device_list_get() - the devices that towline serves on this node
 * @list: where to put the list; the caller frees it with
 *	tow_device_list_free().  Left alone on failure.
 *
 * A list may be empty.  Devices come and go: the list is right for the moment
 * it was made.
 *
 * Return: 0; -ENOPKG when the module is not loaded; -EINVAL when @list is
 * NULL; -ENOMEM; or what reading sysfs returned.
 */
int tow_device_list_get(struct tow_device_list **list);

/**
 * tow_device_list_count() - how many names a list has
 * @list: from tow_device_list_get()
 *
 * Return: the number of names.
 */
size_t tow_device_list_count(const struct tow_device_list *list);

/**
 * tow_device_list_name() - one name of a list
 * @list: from tow_device_list_get()
 * @index: from 0; names are sorted
 *
 * Return: the name, owned by @list, or NULL when @index is past the end.
 */
const char *tow_device_list_name(const struct tow_device_list *list, size_t index);

/**
 * tow_device_list_free() - free a list and its names
 * @list: from tow_device_list_get(), or NULL
 */
void tow_device_list_free(struct tow_device_list *list);

/**
 * tow_device_open() - open an RDMA device through towline
 * @name: the RDMA device's name ("mlx5_0"), or NULL: the one that the
 *	environment's TOW_DEVICE names, or else the only one there is
 * @flags: 0; other values are kept for later
 * @dev: where to put the device; the caller closes it with
 *	tow_device_close().  Left alone on failure.
 *
 * The file behind it is closed on exec.  The process is the device's client: it
 * has what it makes on the device for as long as it lives and the device is
 * open, and its children have not.  When the environment has TOW_JOB, the
 * client is in that job, as if by tow_job_join().
 *
 * Implements "create device" of Xue et al., EuroSys '19, section 3 (a remote
 * machine is a device): what the paper makes per process exists once per node
 * here, so opening it only takes a handle.
 *
 * Return: 0; -EINVAL when @dev is NULL, @flags are unknown, @name cannot be
 * a device's or TOW_JOB is not 64 hexadecimal digits; -ENOPKG, -ENXIO, -ENOTUNIQ or -ENOENT when there is no such
 * device; -EACCES, -EPERM or -EOPNOTSUPP when this process may not use it, or
 * not from here; -ENODEV when it is just being removed; -EPROTONOSUPPORT when
 * the module is older than this library; -ENOMEM; or what open(2) returned
 * (-EMFILE, say).
 */
int tow_device_open(const char *name, uint32_t flags, struct tow_device **dev);

/**
 * tow_device_close() - close a device
 * @dev: from tow_device_open(), or NULL
 *
 * Its regions must have been destroyed or released before.  The client ends:
 * persistent regions that were released linger from now on.
 */
void tow_device_close(struct tow_device *dev);

/**
 * struct tow_device_attr - what a device is, and how it is
 * @size: in: sizeof(struct tow_device_attr), as the caller was compiled; out:
 *	bytes filled in
 * @uapi_version: the kernel's TOW_UAPI_VERSION
 * @driver_version: of the module: major << 16 | minor << 8 | patch
 * @transport: enum tow_transport: InfiniBand, RoCE or iWARP
 * @device_name: of the RDMA device; the present one if it was renamed
 * @incarnation: names this life of this device among all nodes: chosen at
 *	random whenever the device appears or the module is loaded
 * @features: bits of enum tow_feature
 * @max_mr_size: largest memory region, in bytes
 * @max_msg_size: largest message, in bytes
 * @port: the port of the RDMA device that towline uses, counted from 1
 * @page_size: the kernel's page size, in bytes
 * @numa_node: the memory node nearest to the device; -1 if there is none
 * @max_mr: memory regions, of the whole device
 * @max_fast_reg_pages: pages in one fast registration
 * @max_pd: protection domains
 * @max_qp: queue pairs
 * @max_qp_wr: work requests outstanding on one queue of a queue pair
 * @max_send_sge: local ranges in one send or write
 * @max_recv_sge: local ranges in one receive
 * @max_sge_rd: local ranges in one RDMA read
 * @max_cq: completion queues
 * @max_cqe: entries of one completion queue
 * @max_srq: shared receive queues
 * @max_srq_wr: work requests outstanding on one shared receive queue
 * @max_qp_rd_atom: reads and atomics in flight towards one queue pair
 * @max_qp_init_rd_atom: reads and atomics in flight from one queue pair
 * @maint_state: enum tow_maint_state: of the kernel's queue pair that
 *	registers memory
 * @maint_error: why that queue pair is not ready: a negative errno value, or 0
 * @maint_rebuilds: how often it became ready again after it had been broken
 *
 * The limits are the RDMA device's.  Later versions of the library add fields
 * at the end only.
 */
struct tow_device_attr {
	uint32_t size;
	uint32_t uapi_version;
	uint32_t driver_version;
	uint32_t transport;
	char device_name[TOW_DEVICE_NAME_MAX];
	uint8_t incarnation[TOW_INCARNATION_BYTES];
	uint64_t features;
	uint64_t max_mr_size;
	uint64_t max_msg_size;
	uint32_t port;
	uint32_t page_size;
	int32_t numa_node;
	uint32_t max_mr;
	uint32_t max_fast_reg_pages;
	uint32_t max_pd;
	uint32_t max_qp;
	uint32_t max_qp_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_sge_rd;
	uint32_t max_cq;
	uint32_t max_cqe;
	uint32_t max_srq;
	uint32_t max_srq_wr;
	uint32_t max_qp_rd_atom;
	uint32_t max_qp_init_rd_atom;
	uint32_t maint_state;
	int32_t maint_error;
	uint32_t maint_rebuilds;
};

/**
 * tow_device_query() - ask what a device is, and how it is
 * @dev: from tow_device_open()
 * @attr: answered here; @attr->size must be set.  A caller compiled against a
 *	later version than the library that runs gets the fields that the
 *	library knows, and zeroes after them.
 *
 * Return: 0; -EINVAL when @dev or @attr is NULL, or @attr->size is below that
 * of the first version or above 4096; -ENODEV when the device was removed: it will answer
 * nothing else any more.
 */
int tow_device_query(const struct tow_device *dev, struct tow_device_attr *attr);

/**
 * tow_job_join() - enter a job
 * @dev: from tow_device_open()
 * @key: the job's key, 32 random bytes that all of the job's processes share
 *	and nobody else knows
 *
 * Names of regions are looked up in the client's job; without a job, among
 * those of the same user.  tow_device_open() enters the job of the environment's
 * TOW_JOB by itself.  The key is not kept.
 *
 * Return: 0, also when the client is in that job already; -EINVAL when @dev or
 * @key is NULL; -EBUSY when it is in another one; -EPERM when another process
 * opened the device; -ENODEV; -EPROTONOSUPPORT; -ENOMEM.
 */
int tow_job_join(struct tow_device *dev, const uint8_t key[TOW_JOB_KEY_BYTES]);

/**
 * struct tow_region_attr - what a region is to be, but for its size
 * @size: sizeof(struct tow_region_attr), as the caller was compiled
 * @flags: 0 or TOW_REGION_PERSISTENT: it outlives its client, for a time, under
 *	its name; tow_region_attach() takes it over
 * @linger_s: of a persistent region: how many seconds it outlives its client; 0,
 *	or more than the device's linger_max_s: that many.  Otherwise 0
 * @reserved: 0
 * @name: of a persistent region: its name, not empty, and not that of another
 *	one of the user in the job.  Otherwise NULL, or a name for people who
 *	list regions.  Less than TOW_REGION_NAME_MAX characters: printable ASCII,
 *	but neither '/' nor a space
 *
 * Later versions of the library add fields at the end only.
 */
struct tow_region_attr {
	uint32_t size;
	uint32_t flags;
	uint32_t linger_s;
	uint32_t reserved;
	const char *name;
};

/**
 * tow_region_create() - take memory from the device's pool
 * @dev: from tow_device_open()
 * @bytes: how much, at least 1; rounded up to whole slabs, of 64 KiB for up to
 *	256 KiB and of the device's slab_bytes for more
 * @attr: what else there is to say, or NULL
 * @region: where to put the region; the caller ends it with
 *	tow_region_destroy() or tow_region_release().  Left alone on failure.
 *
 * The memory is zeroed, and pinned without counting as locked memory of the
 * process.  The pool is empty before an administrator gives it memory
 * (towline pool --set).
 *
 * Implements "allocate remote-accessible memory" of Xue et al., EuroSys '19,
 * section 3: what the paper registers per process comes ready from the node's
 * pool.
 *
 * Return: 0; -EINVAL when @dev or @region is NULL, @bytes is 0, or @attr is not
 * as above; -E2BIG when @attr asks for what this library does not know; -EEXIST
 * when the name of a persistent region is taken; -EDQUOT, -ENOSPC or -ENOMEM
 * when there is no more of something, for this user, on this device or on this
 * machine; -EMFILE or -ENFILE; -EPERM when another process opened the device;
 * -ENODEV; -EPROTONOSUPPORT.
 */
int tow_region_create(struct tow_device *dev, uint64_t bytes, const struct tow_region_attr *attr,
		      struct tow_region **region);

/**
 * tow_region_attach() - take over a persistent region whose client has ended
 * @dev: from tow_device_open()
 * @name: the region's name
 * @linger_s: as in struct tow_region_attr, from now on
 * @region: as in tow_region_create()
 *
 * The contents are as the last client left them.  The same user can do it, in
 * the same job.
 *
 * Return: 0; -EINVAL when @dev, @name or @region is NULL, or @name cannot be a
 * region's; -ENOENT when the user has no such region in this job; -EBUSY when
 * the client that has it lives; -EDQUOT; -ENOMEM; -EMFILE or -ENFILE; -EPERM;
 * -ENODEV; -EPROTONOSUPPORT.
 */
int tow_region_attach(struct tow_device *dev, const char *name, uint32_t linger_s,
		      struct tow_region **region);

/**
 * tow_region_from_memory() - make a region of memory that the process has
 * @dev: from tow_device_open()
 * @addr: where it begins, at any byte
 * @bytes: how much, at least 1
 * @flags: 0 or TOW_REGION_READONLY: can be read and sent from, not written
 * @region: as in tow_region_create()
 *
 * The pages are pinned until the region ends.  They count against
 * RLIMIT_MEMLOCK as well as against the device's limits.
 *
 * Return: 0; -EINVAL when @dev or @region is NULL, @bytes is 0, the memory wraps
 * around, or @flags are unknown; -EFAULT when there is no memory, or it cannot
 * be written and the region is not read-only; -EOPNOTSUPP when it cannot be
 * pinned; -ENOMEM, for RLIMIT_MEMLOCK too; -EDQUOT; -ENOSPC; -EPERM; -ENODEV;
 * -EPROTONOSUPPORT.
 */
int tow_region_from_memory(struct tow_device *dev, void *addr, uint64_t bytes, uint32_t flags,
			   struct tow_region **region);

/**
 * tow_region_from_dmabuf() - make a region of another device's memory
 * @dev: from tow_device_open()
 * @fd: a dma-buf's descriptor (a GPU's, say); stays the caller's
 * @offset: where to begin in it, in bytes, a multiple of the page size
 * @bytes: how much, at least 1
 * @flags: 0 or TOW_REGION_READONLY
 * @region: as in tow_region_create()
 *
 * The dma-buf is pinned until the region ends.
 *
 * Return: 0; -EINVAL when @dev or @region is NULL, @fd is no dma-buf, the range
 * is not within it, or @flags are unknown; -EBADF when @fd is not open;
 * -EOPNOTSUPP when the RDMA device is software, or the memory cannot stay in one
 * place; -EDQUOT; -ENOSPC; -ENOMEM; -EPERM; -ENODEV; -EPROTONOSUPPORT; or what
 * the dma-buf's exporter says.
 */
int tow_region_from_dmabuf(struct tow_device *dev, int fd, uint64_t offset, uint64_t bytes,
			   uint32_t flags, struct tow_region **region);

/**
 * tow_region_from_fd() - the region behind a descriptor that was passed on
 * @dev: from tow_device_open()
 * @fd: from tow_region_fd(), of whatever process; stays the caller's
 * @region: as in tow_region_create()
 *
 * The region stays charged to whom it was; it is read-only if the descriptor is.
 *
 * Return: 0; -EINVAL when @dev or @region is NULL, or @fd is no region's; -EBADF
 * when @fd is not open; -EXDEV when the region is another device's, or of an
 * earlier life of this one; -EDQUOT; -ENOSPC; -ENOMEM; -EPERM; -ENODEV;
 * -EPROTONOSUPPORT.
 */
int tow_region_from_fd(struct tow_device *dev, int fd, struct tow_region **region);

/**
 * tow_region_destroy() - end a region
 * @region: from the functions above, or NULL
 *
 * Unmaps what tow_region_map() mapped, gives up the client's hold of the region
 * and frees @region.  The region is over, also when it is persistent, as soon as
 * nobody else has a descriptor or a mapping of it; a region from
 * tow_region_from_fd() is its owner's still.
 *
 * Return: 0; -ENODEV when the device was removed; -EPERM when another process
 * opened the device, whose region it still is.  In this process everything of it
 * is gone in any case.
 */
int tow_region_destroy(struct tow_region *region);

/**
 * tow_region_release() - let a region go without ending it
 * @region: from the functions above, or NULL
 *
 * Unmaps what tow_region_map() mapped and frees @region.  The client keeps its
 * hold of the region, and what it is charged, until it ends: until
 * tow_device_close(), or the end of the process.  Then a persistent region
 * lingers, for tow_region_attach(), and others end.
 */
void tow_region_release(struct tow_region *region);

/**
 * tow_region_map() - make a region part of the process's memory
 * @region: from tow_region_create(), tow_region_attach() or tow_region_from_fd()
 * @offset: where to begin, in bytes, a multiple of the page size
 * @length: how much, or 0: up to the end, whole slabs
 * @prot: PROT_READ, or PROT_READ | PROT_WRITE, of mmap(2)
 * @addr: where to put the address
 *
 * May be called several times.  Mappings of 2 MiB and more lie in memory as they
 * lie in the region, modulo 2 MiB, so that the kernel maps 2 MiB at once.
 * Children that the process forks share them.  They stay when the device is
 * removed.
 *
 * Return: 0; -EINVAL when @region or @addr is NULL, @offset is no multiple of the
 * page size, or the range is not within the region; -EACCES when the region is
 * read-only and @prot is not; -EOPNOTSUPP when the region is of the process's own
 * memory or of a dma-buf; -ENOMEM; and for the first mapping of a region from
 * tow_region_from_fd(): -EMFILE or -ENFILE; -EPERM; -ENODEV.
 */
int tow_region_map(struct tow_region *region, uint64_t offset, size_t length, int prot,
		   void **addr);

/**
 * tow_region_unmap() - end one mapping
 * @region: what was mapped
 * @addr: from tow_region_map()
 * @length: as it was given to tow_region_map()
 *
 * Return: 0; -EINVAL when @region is NULL, or has no mapping of that length
 * there; or what munmap(2) returned: the mapping stays.
 */
int tow_region_unmap(struct tow_region *region, void *addr, size_t length);

/**
 * tow_region_fd() - a descriptor of a region, for passing it on
 * @region: from tow_region_create(), tow_region_attach() or tow_region_from_fd()
 * @flags: 0, or TOW_REGION_READONLY: who has it can map and attach the region
 *	only for reading
 * @fd: where to put the descriptor, a dma-buf; the caller closes it with
 *	close(2).  Left alone on failure.
 *
 * The descriptor is closed on exec.  The region does not end before it and its
 * copies are closed.
 *
 * Return: 0; -EINVAL when @region or @fd is NULL, or @flags are unknown; -EACCES
 * when the region is read-only and @flags is 0; -EOPNOTSUPP when the region is of
 * the process's own memory or of a dma-buf; -EMFILE or -ENFILE; -ENOMEM; -EPERM;
 * -ENODEV.
 */
int tow_region_fd(struct tow_region *region, uint32_t flags, int *fd);

/**
 * tow_region_info() - ask what a region is, and how it is
 * @region: from the functions above
 * @info: answered here (struct tow_region_info says what is in it);
 *	@info->size must be set, to what the caller was compiled with.  Fields
 *	that the library or the kernel does not know are zero, and @info->size
 *	is what was filled in.
 *
 * Return: 0; -EINVAL when @region or @info is NULL, or @info->size is below that
 * of the first version or above 4096; -ENODEV.  Then nothing but @info->size is
 * sure to be what it was.
 */
int tow_region_info(const struct tow_region *region, struct tow_region_info *info);

/**
 * tow_region_list_get() - the regions of a device
 * @dev: from tow_device_open()
 * @flags: 0: those of this user; TOW_LIST_ALL: everybody's, for who has
 *	CAP_NET_ADMIN
 * @list: where to put the list; the caller frees it with
 *	tow_region_list_free().  Left alone on failure.
 *
 * A list may be empty.  Regions come and go: the list is right for about the
 * moment it was made.
 *
 * Return: 0; -EINVAL when @dev or @list is NULL, or @flags are unknown; -EPERM
 * when TOW_LIST_ALL is not for this process; -ENOMEM; -ENODEV; -EPROTONOSUPPORT.
 */
int tow_region_list_get(const struct tow_device *dev, uint32_t flags,
			struct tow_regions **list);

/**
 * tow_region_list_count() - how many regions a list has
 * @list: from tow_region_list_get()
 *
 * Return: the number of regions.
 */
size_t tow_region_list_count(const struct tow_regions *list);

/**
 * tow_region_list_entry() - one region of a list
 * @list: from tow_region_list_get()
 * @index: from 0; regions are in the order of their ids
 * @info: answered here, as by tow_region_info(); the handle is 0
 *
 * Return: 0; -EINVAL when @index is past the end, @info is NULL, or @info->size
 * is below that of the first version or above 4096.
 */
int tow_region_list_entry(const struct tow_regions *list, size_t index,
			  struct tow_region_info *info);

/**
 * tow_region_list_free() - free a list
 * @list: from tow_region_list_get(), or NULL
 */
void tow_region_list_free(struct tow_regions *list);

#ifdef __cplusplus
}
#ifdef __GNUC__
#pragma GCC diagnostic pop
#endif
#endif

#endif /* TOW_TOWLINE_H */

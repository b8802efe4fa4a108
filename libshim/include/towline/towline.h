/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * libtowline: programs' side of towline.
 *
 * towline keeps RDMA memory, registrations and connections once per node, in
 * the kernel; this library gives programs handles to them.
 *
 * Every function that can fail returns 0 or a negative errno value; each value
 * has one meaning, listed below and said in words by tow_strerror().  The
 * library never prints, never calls exit(), and keeps no state of its own but
 * what a thread gives to tow_on_signal(): all functions may be called from any
 * number of threads at once, on the same object too, except that nothing may use
 * an object while it is closed or freed, or afterwards.
 *
 * <towline/queue.h> has the rest: queues, which carry reads and writes to peers, and
 * what is different about them; <towline/slot.h> how a peer tells that they arrived;
 * <towline/arena.h> and <towline/tracer.h> the memory of tensors, and <towline/tensor.h>
 * how they move.
 *
 * fork(2).  What a process has made is not its child's.  Functions that a child gives it to
 * return -EPERM, or NULL with EPERM in errno where they give memory, at once, whatever another
 * thread of the parent was doing; nobody is told anything in the parent's name, and nothing of
 * the parent's changes.  Those that end something give back the child's copy of it, and return
 * -EPERM, too.  Numbers, addresses and lists can still be asked for where a function says
 * nothing else.  Memory of regions, which tensors are in, is shared: what a child writes there
 * its parent has, and whoever reads it from elsewhere.  A child that wants to take part opens
 * the device itself.
 *
 *  -E2BIG		the program asks for something newer than what is installed
 *  -EACCES		no permission: for the device file, to write a region
 *			that is read-only, or beyond the rights of an export or a
 *			remote range
 *  -EADDRNOTAVAIL	this device has no address that leads there
 *  -EAGAIN		not at this moment: the device cannot register memory, the
 *			peer is busy, names are not resolved, or nothing has
 *			completed; try again
 *  -EBADF		a descriptor is not open; there is no such region, remote
 *			range or channel of this client
 *  -EBADMSG		a file, or a tensor, is not what it should be
 *  -EBUSY		taken: the region's client lives, this client is in
 *			another job, somebody else has the slot, or the queue is
 *			full
 *  -ECANCELED		not begun: what it was to wait for has failed, or its client
 *			ended
 *  -ECONNREFUSED	no towline listens at that address
 *  -ECONNRESET		the connection to the peer ended meanwhile
 *  -EDQUOT		a limit of this client or its user is reached
 *  -EEXIST		there is a persistent region of the user's, or an export, of
 *			that name in this job; or another process is that rank
 *  -EFAULT		there is no such memory, it cannot be written, or another device has taken it back
 *  -EHOSTUNREACH	the network has a route to that address, and nobody
 *			answers there
 *  -EINTR		a signal came while the call waited, and what was given to
 *			tow_on_signal() wanted it to end
 *  -EINVAL		an argument is invalid
 *  -EIO		the peer's RDMA device refused it, or ours
 *  -EKEYREJECTED	the peer's cluster key is another one
 *  -EMFILE		this process has no descriptor left
 *  -ELIBACC		a library that this needs is not installed
 *  -EMLINK		there are as many as there can be: a communicator's collectives,
 *			a mailbox's lines
 *  -EMSGSIZE		the other end's tensors have another shape, or a message is longer
 *			than the room for it, or packets as long as both ends' ports take
 *			do not arrive
 *  -ENFILE		the machine has no descriptor left
 *  -ENETUNREACH	the network has no route to that address
 *  -ENODEV		the RDMA device was removed
 *  -ENOENT		there is nothing of that name: no towline device, region,
 *			peer, export or host
 *  -ENOKEY		a cluster key is missing, here or at the peer; or, in a container,
 *			a job's key: see tow_job_join()
 *  -ENOMEM		out of the machine's memory, or of what this process may
 *			have of it
 *  -ENOMEDIUM		the device has no node in /dev/towline, as in a container
 *			that was not given one
 *  -ENOPKG		the kernel module is not loaded
 *  -ENOSPC		the device's pool is empty, or a limit of the device, or of
 *			the peer's, is reached
 *  -ENOTCONN		not connected so far
 *  -ENOTUNIQ		several devices, and none was named
 *  -ENXIO		the module is loaded, but no RDMA device is usable
 *  -EOPNOTSUPP		this device, or this memory, cannot do that
 *  -EOVERFLOW		larger than anything can be, or as many things wait as may
 *  -EPERM		not for this process: another network namespace's device,
 *			a device that another process opened, a device whose
 *			use by this one an administrator ended, or an
 *			administrator's call
 *  -EPROTO		what the peer said makes no sense
 *  -EPROTOTYPE		the other end's tensors have elements of another type
 *  -EPROTONOSUPPORT	versions do not fit: the module is older than the
 *			library, or the peer's speaks another language
 *  -ERANGE		not within the region, or not within the remote range
 *  -ESHUTDOWN		not begun: an administrator drains the device, so that the
 *			module can be replaced
 *  -ESTALE		what was exported is not any more, or the connection to it
 *			ended
 *  -ETIMEDOUT		nothing came in time: no answer of the peer's, nobody
 *			exported the name, or nothing completed
 *  -EUCLEAN		something was written before the begin of this memory, or behind
 *			its end
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

/*
 * A node that this one knows through one device, or this node itself.  Made by
 * tow_peer_connect() or tow_peer_find(), freed by tow_peer_release() or
 * tow_peer_disconnect().
 */
struct tow_peer;

/* What a device's peers were at one moment. */
struct tow_peers;

/*
 * A range of a region that peers may reach.  Made by tow_export(), ended by
 * tow_unexport().  (struct tow_export is the kernel's call.)
 */
struct tow_exported;

/* What a device's exports were at one moment. */
struct tow_exports;

/*
 * An export of a peer's.  Made by tow_resolve(), given up by
 * tow_remote_release().
 */
struct tow_remote;

/**
 * tow_strerror() - words for a result of this library
 * @error: 0, or a negative errno value that a function here returned
 *
 * Return: a string that lives as long as the program and must not be freed;
 * "unknown error" for values that no function returns.  Never NULL.
 */
const char *tow_strerror(int error);

/**
 * typedef tow_on_signal_fn - is the call that a signal has interrupted to end?
 * @arg: what was given with it
 *
 * Called by the thread that waits, when the signal's handler has run; and by calls that look now
 * and then for what they wait for, between two looks.  It may be called again before the call
 * that it is to end has ended.  It must not begin or end anything of the library's.
 *
 * Return: 0: the call goes on; else it ends with -EINTR.
 */
typedef int tow_on_signal_fn(void *arg);

/**
 * tow_on_signal() - what is asked when a signal has interrupted a call of this thread's
 * @ends: whether the call is to end, or NULL: none does
 * @arg: for @ends
 *
 * Calls that wait go on when a signal's handler has run, with what is left of their time, also
 * where it was not installed with SA_RESTART.  A program that wants one to end says so here, for
 * the calling thread.
 *
 * What such a call was to make is not made, as after any error.  Of what may be called again
 * nothing is lost: waiting goes on with the next call.  tow_queue_submit_and_wait(), which has
 * handed over entries, stops waiting whatever @ends says.
 *
 * Return: 0; -ENOMEM, which a thread that has said something before cannot get.
 */
int tow_on_signal(tow_on_signal_fn *ends, void *arg);

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
 * device; -ENOMEDIUM when it has no node in /dev/towline; -EACCES, -EPERM or -EOPNOTSUPP when this process may not use it, or
 * not from here; -ENODEV when it is just being removed; -ESHUTDOWN when an administrator
 * drains it; -EPROTONOSUPPORT when
 * the module is older than this library; -ENOMEM; or what open(2) returned
 * (-EMFILE, say).
 */
int tow_device_open(const char *name, uint32_t flags, struct tow_device **dev);

/**
 * tow_device_close() - close a device
 * @dev: from tow_device_open(), or NULL
 *
 * Its regions, peers, exports and remote ranges must have been freed before.  The
 * client ends: persistent regions that were released linger from now on.
 */
void tow_device_close(struct tow_device *dev);

/**
 * struct tow_device_attr - what a device is, and how it is
 * @size: in: sizeof(struct tow_device_attr), as the caller was compiled; out:
 *	bytes filled in
 * @uapi_version: the kernel's TOW_UAPI_VERSION
 * @driver_version: of the module: major << 16 | minor << 8 | patch
 * @transport: enum tow_transport: InfiniBand or RoCE
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
 * Names of regions and exports are looked up in the client's job; without a job,
 * among those of the same user.  tow_device_open() enters the job of the environment's
 * TOW_JOB by itself.  The key is not kept.
 *
 * Return: 0, also when the client is in that job already; -EINVAL when @dev or
 * @key is NULL, or the key all zero; -EBUSY when it is in another one; -EPERM when another process
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
 * when the name of a persistent region is taken; -ENOKEY when a persistent region is
 * asked for in a container, before a job was joined; -EDQUOT, -ENOSPC or -ENOMEM
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
 * the client that has it lives, or what it began was not over after a while: try again;
 * -EDQUOT; -ENOMEM; -EMFILE or -ENFILE; -EPERM; -ENODEV; -EPROTONOSUPPORT.
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
 * around, or @flags are unknown; -EFAULT when there is no memory, or only a
 * device's, or it cannot be written and the region is not read-only; -EOPNOTSUPP
 * when it is a file's that is mapped past the page cache; -ENOMEM, for
 * RLIMIT_MEMLOCK too; -EDQUOT; -ENOSPC; -EPERM; -ENODEV; -EPROTONOSUPPORT.
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
 * The dma-buf is pinned until the region ends.  If its exporter takes it back all the same,
 * the region is over, but for tow_region_destroy(): what uses it ends with -EFAULT, and who
 * found an export of it is told -ESTALE.
 *
 * Return: 0; -EINVAL when @dev or @region is NULL, @fd is no dma-buf, the range
 * is not within it, or @flags are unknown; -EBADF when @fd is not open;
 * -EOPNOTSUPP when the RDMA device is software, or needs copies of the memory, or that is
 * not in whole pages; -EDQUOT; -ENOSPC; -ENOMEM; -EMFILE or -ENFILE; -EPERM; -ENODEV;
 * -EPROTONOSUPPORT; or what the dma-buf's exporter says.
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
 * @region: from tow_region_create(), tow_region_attach(), tow_region_from_fd() or
 *	tow_region_from_dmabuf()
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
 * memory; -ENOMEM; -EPERM in a child that was forked; of a dma-buf, what its exporter says,
 * such as -ENODEV when the processor does not reach it; and for the first
 * mapping of a region from tow_region_from_fd(): -EMFILE or -ENFILE; -EPERM; -ENODEV.
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
 * there; -EPERM in a child that was forked; or what munmap(2) returned: the mapping stays.
 */
int tow_region_unmap(struct tow_region *region, void *addr, size_t length);

/**
 * tow_region_find() - which region an address is in
 * @dev: whose regions
 * @ptr: any address
 * @region: the region is stored here: from any of the functions above, as long as it is neither
 *	destroyed nor released
 * @offset: the address's offset in that region is stored here, in bytes, as tow_export() and
 *	tow_prep_write() take it
 * @bytes: how many bytes there are of the region from the address on is stored here; or NULL
 *
 * Memory of a region that has an address: what tow_region_map() mapped, arenas' memory, and what
 * tow_region_from_memory() was given, as that is the region's for as long as the region is.
 * Where several regions have the address it is the one that goes on furthest from there.
 *
 * Edges and collectives ask this for each tensor, and send it from where it is.  So a region of
 * the process's own memory must end before that memory is freed, or something else is mapped
 * there: what is sent is what was there when it was made.
 *
 * Return: 0; -EINVAL when @dev, @region or @offset is NULL; -ENOENT when none of the
 * device's regions has the address; -EPERM in a child that was forked.
 */
int tow_region_find(struct tow_device *dev, const void *ptr, struct tow_region **region,
		    uint64_t *offset, uint64_t *bytes);

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

/**
 * struct tow_peer_attr - how a peer is to be connected, where it matters
 * @size: sizeof(struct tow_peer_attr), as the caller was compiled
 * @flags: bits of enum tow_peer_setting: which of the fields below hold.  The
 *	others are 0; for them the device's settings hold, files of the same names
 *	in sysfs (qps_per_peer for @qps)
 * @gid_index: which of the port's addresses to use; -1: one that leads there
 * @pkey_index: partition
 * @sl: service level
 * @traffic_class: of the IP header
 * @mtu: bytes; 0: the port's
 * @timeout: for acknowledgements: 4.096 us * 2^timeout
 * @retry_count: sends of one packet after the first
 * @queue_depth: work requests of one queue pair
 * @qps: data queue pairs
 *
 * Later versions of the library add fields at the end only.
 */
struct tow_peer_attr {
	uint32_t size;
	uint32_t flags;
	int32_t gid_index;
	uint32_t pkey_index;
	uint32_t sl;
	uint32_t traffic_class;
	uint32_t mtu;
	uint32_t timeout;
	uint32_t retry_count;
	uint32_t queue_depth;
	uint32_t qps;
};

/**
 * tow_peer_connect() - find the node at an address, and connect if need be
 * @dev: from tow_device_open()
 * @address: where it listens: an IPv4 or IPv6 address or a host's name, and a
 *	port if it is not the one that this device listens at: "192.0.2.1",
 *	"192.0.2.1:18600", "[fe80::1%eth0]:18600", "node7".  An IPv6 address with
 *	a port has brackets, a link-local one its interface's name or number.  Of
 *	a host with several addresses the first is taken
 * @attr: settings for this peer only, or NULL; takes CAP_NET_ADMIN
 * @timeout_ms: how long to wait; 0: the device's reconnect_timeout_ms
 * @peer: where to put the peer; the caller frees it with tow_peer_release().
 *	Left alone on failure.
 *
 * The connection is the node's: where there is one, whoever made it, it is the
 * answer, as it is; and it stays when the process ends.  @attr holds for
 * connections to this peer that are made from now on.  The node's own address
 * gives the node as its own peer.
 *
 * Implements "create channel" of Xue et al., EuroSys '19, section 3, up to the
 * queue pairs, which the paper makes per process.
 *
 * Return: 0; -EINVAL when @dev, @address or @peer is NULL, @address is none, or
 * @attr is not as above; -E2BIG when @attr asks for what this library does not
 * know; -ENOENT when there is no host of that name; -EPERM when another process
 * opened the device, or @attr takes CAP_NET_ADMIN; -EADDRNOTAVAIL, -ENETUNREACH,
 * -EHOSTUNREACH, -ECONNREFUSED or -ETIMEDOUT when nobody can be reached there;
 * -ENOKEY or -EKEYREJECTED when the nodes do not trust each other;
 * -EPROTONOSUPPORT when they do not understand each other, or this node's module
 * has no peers; -EPROTO; -ENOSPC when the peer has no room, or this device is
 * connected to peer_limit others; -EAGAIN; -ECONNRESET; -EINTR; -ENOMEM, also when
 * queue pairs have run out here; -ENODEV.
 */
int tow_peer_connect(struct tow_device *dev, const char *address,
		     const struct tow_peer_attr *attr, uint32_t timeout_ms,
		     struct tow_peer **peer);

/**
 * tow_peer_find() - find the node at an address among those known
 * @dev: from tow_device_open()
 * @address: as for tow_peer_connect(); without a port any will do
 * @peer: as for tow_peer_connect()
 *
 * Connects to nobody.  Of several peers that were seen at the address, the one
 * that is connected is meant, or else the last.
 *
 * Return: 0; -EINVAL when @dev, @address or @peer is NULL, or @address is none;
 * -ENOENT when there is no such peer, or no host of that name; -EAGAIN when
 * names are not resolved at the moment; -ENOMEM; -ENODEV; -EPROTONOSUPPORT.
 */
int tow_peer_find(struct tow_device *dev, const char *address, struct tow_peer **peer);

/**
 * tow_peer_info() - ask how it stands with a peer
 * @peer: from tow_peer_connect() or tow_peer_find()
 * @info: answered here (struct tow_peer_info says what is in it); @info->size must
 *	be set, as for tow_region_info()
 *
 * Return: 0; -EINVAL when @peer or @info is NULL, or @info->size is below that of
 * the first version or above 4096; -ENOENT when the peer is not known any more;
 * -ENOMEM; -ENODEV; -EPROTONOSUPPORT.
 */
int tow_peer_info(const struct tow_peer *peer, struct tow_peer_info *info);

/**
 * tow_peer_disconnect() - end the connection to a peer, and free the peer
 * @peer: from tow_peer_connect() or tow_peer_find(), or NULL
 *
 * For everybody on this node who uses it: an administrator's call, for
 * CAP_NET_ADMIN.  @peer is freed in any case.
 *
 * Return: 0: the connection is gone; -EPERM; -ENOENT when the peer is not known
 * any more; -EINTR; -ENODEV; -EPROTONOSUPPORT.
 */
int tow_peer_disconnect(struct tow_peer *peer);

/**
 * tow_peer_release() - free a peer; the connection stays
 * @peer: from tow_peer_connect() or tow_peer_find(), or NULL
 *
 * What was resolved through it stays, too.
 */
void tow_peer_release(struct tow_peer *peer);

/**
 * tow_peer_list_get() - the peers of a device
 * @dev: from tow_device_open()
 * @flags: 0; other values are kept for later
 * @list: where to put the list; the caller frees it with tow_peer_list_free().
 *	Left alone on failure.
 *
 * Peers that were connected once are in it, too.  It is right for about the
 * moment it was made.
 *
 * Return: 0; -EINVAL when @dev or @list is NULL, or @flags are unknown; -ENOMEM;
 * -ENODEV; -EPROTONOSUPPORT.
 */
int tow_peer_list_get(const struct tow_device *dev, uint32_t flags, struct tow_peers **list);

/**
 * tow_peer_list_count() - how many peers a list has
 * @list: from tow_peer_list_get()
 *
 * Return: the number of peers.
 */
size_t tow_peer_list_count(const struct tow_peers *list);

/**
 * tow_peer_list_entry() - one peer of a list
 * @list: from tow_peer_list_get()
 * @index: from 0; peers are in the order of their numbers
 * @info: answered here, as by tow_peer_info()
 *
 * Return: 0; -EINVAL when @index is past the end, @info is NULL, or @info->size
 * is below that of the first version or above 4096.
 */
int tow_peer_list_entry(const struct tow_peers *list, size_t index, struct tow_peer_info *info);

/**
 * tow_peer_list_free() - free a list
 * @list: from tow_peer_list_get(), or NULL
 */
void tow_peer_list_free(struct tow_peers *list);

/**
 * tow_export() - let peers reach a range of a region, under a name
 * @region: what it is in
 * @offset: where it begins in the region, in bytes
 * @bytes: how much, at least 1
 * @name: by which processes of the same job find it; 1 to TOW_EXPORT_NAME_MAX
 *	bytes, any but control characters
 * @rights: bits of enum tow_right: what may be done with it
 * @exported: where to put the export; the caller ends it with tow_unexport().
 *	Left alone on failure.
 *
 * The name is this device's, in the client's job.  The export ends with the
 * client, if not before; @region may be destroyed while it is exported, and its
 * memory stays until the export ends.
 *
 * Implements "get remote access to memory" of Xue et al., EuroSys '19, section 3,
 * for the side that has the memory: the paper tells peers addresses and keys,
 * and towline names.
 *
 * Return: 0; -EINVAL when @region or @exported is NULL, the range is empty or not
 * within the region, or @name or @rights are not as above; -EACCES when the
 * region is read-only and @rights are more than TOW_RIGHT_READ; -EOPNOTSUPP when
 * the device has no atomics; -EFAULT when another device has taken the memory
 * back; -EEXIST when the name is taken; -EAGAIN when the device cannot register
 * memory at the moment; -EDQUOT; -ENOSPC; -ENOMEM; -EPERM
 * when another process opened the device; -ENODEV; -EPROTONOSUPPORT.
 */
int tow_export(struct tow_region *region, uint64_t offset, uint64_t bytes, const char *name,
	       uint32_t rights, struct tow_exported **exported);

/**
 * tow_unexport() - end an export
 * @exported: from tow_export(), or NULL
 *
 * Waits until no peer can reach the range by it; a peer that does not let go
 * within the device's revoke_timeout_ms loses its connection.  @exported is freed
 * in any case.
 *
 * Return: 0: no peer reads or writes the range by it any more, and none will;
 * -EPERM when another process opened the device, whose export it still is; -ENODEV
 * when the device was removed.
 */
int tow_unexport(struct tow_exported *exported);

/**
 * tow_export_list_get() - the exports of a device
 * @dev: from tow_device_open()
 * @flags: 0: those of this user in this client's job; TOW_LIST_ALL:
 *	everybody's, for who has CAP_NET_ADMIN
 * @list: where to put the list; the caller frees it with
 *	tow_export_list_free().  Left alone on failure.
 *
 * Return: 0; -EINVAL when @dev or @list is NULL, or @flags are unknown; -EPERM
 * when TOW_LIST_ALL is not for this process; -ENOMEM; -ENODEV; -EPROTONOSUPPORT.
 */
int tow_export_list_get(const struct tow_device *dev, uint32_t flags,
			struct tow_exports **list);

/**
 * tow_export_list_count() - how many exports a list has
 * @list: from tow_export_list_get()
 *
 * Return: the number of exports.
 */
size_t tow_export_list_count(const struct tow_exports *list);

/**
 * tow_export_list_entry() - one export of a list
 * @list: from tow_export_list_get()
 * @index: from 0; exports are in the order of their ids
 * @info: answered here (struct tow_export_info says what is in it); @info->size
 *	must be set, as for tow_region_info()
 *
 * Return: 0; -EINVAL when @index is past the end, @info is NULL, or @info->size
 * is below that of the first version or above 4096.
 */
int tow_export_list_entry(const struct tow_exports *list, size_t index,
			  struct tow_export_info *info);

/**
 * tow_export_list_free() - free a list
 * @list: from tow_export_list_get(), or NULL
 */
void tow_export_list_free(struct tow_exports *list);

/**
 * tow_resolve() - find an export on a peer by its name
 * @peer: whose export it is; connected to anew if it is not connected
 * @name: as for tow_export(); looked up in the client's job
 * @rights: bits of enum tow_right: what the caller will do with it, at least one; or
 *	TOW_RIGHT_NOTIFY_BY()
 * @timeout_ms: how long to wait for somebody to export the name; 0: not at all;
 *	TOW_WAIT_FOREVER
 * @remote: where to put the remote range; the caller gives it up with
 *	tow_remote_release().  Left alone on failure.
 *
 * Implements "get remote access to memory" of Xue et al., EuroSys '19, section 3,
 * for the side that uses it.
 *
 * Return: 0; -EINVAL when @peer, @name or @remote is NULL, @name or @rights
 * are not as above, or a slot is to be notified by more queue pairs than the peer has,
 * or than 1 and its module, or this node's, knows of no widths; -ENOENT when there is no
 * such export and @timeout_ms is 0, or the peer is not known any more; -ETIMEDOUT when nobody exported the name in
 * time; -EACCES when the export has not all of @rights; -ESTALE when it ended
 * meanwhile, or another node is at the peer's address now; -EBUSY when it is a slot
 * that somebody else has; -ECONNRESET when the connection ended; -ENOSPC when too many
 * requests wait at the peer, or have found something there; -EINTR; -EDQUOT; -ENOMEM;
 * -EPERM when another process opened the device; -ENODEV; and what tow_peer_connect()
 * returns when it cannot connect.
 */
int tow_resolve(struct tow_peer *peer, const char *name, uint32_t rights, uint32_t timeout_ms,
		struct tow_remote **remote);

/**
 * tow_remote_bytes() - how large a remote range is
 * @remote: from tow_resolve()
 *
 * Return: its size in bytes, as it was exported.
 */
uint64_t tow_remote_bytes(const struct tow_remote *remote);

/**
 * tow_remote_release() - give up a remote range
 * @remote: from tow_resolve(), or NULL
 *
 * @remote is freed in any case.
 *
 * Return: 0; -ESTALE when its export, or the connection to it, had ended; -EPERM
 * when another process opened the device; -ENODEV when the device was removed.
 */
int tow_remote_release(struct tow_remote *remote);

#ifdef __cplusplus
}
#ifdef __GNUC__
#pragma GCC diagnostic pop
#endif
#endif

#endif /* TOW_TOWLINE_H */

/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * towline: the contract between the kernel module and programs.
 *
 * Every structure here has the same layout for 32-bit and 64-bit programs, in
 * C and in C++: fields are naturally aligned, padding is spelled out, and
 * 64-bit fields are aligned to 8 bytes everywhere.
 *
 * The device node
 * ---------------
 * Each RDMA device that can register memory by work request ("fast
 * registration") has one node, /dev/towline/NAME, where NAME is the RDMA
 * device's name.  Renaming the RDMA device moves the node; open files stay
 * valid.
 *
 * open(2) with O_RDWR gives everything the caller's permissions allow; with
 * O_RDONLY it gives the calls that only look (QUERY, ACCOUNT_LIST, REGION_QUERY,
 * REGION_LIST, PEER_LIST, EXPORT_LIST).  Errors of open(2) that are towline's own:
 *
 *	EINVAL		O_WRONLY: no call could answer through such a file
 *	ENODEV		the RDMA device is gone, or is going
 *	EPERM		the RDMA device belongs to another network namespace, and
 *			the RDMA subsystem is in exclusive mode
 *	EOPNOTSUPP	soft-RoCE over a network interface outside the initial
 *			network namespace: soft-RoCE works in that one only
 *	ENOMEM		the machine has no memory
 *	ESHUTDOWN	an administrator drains the device (see "Draining" below), and
 *			the caller does not have CAP_NET_ADMIN in the initial user
 *			namespace
 *
 * Signals do not interrupt it, but for one that kills the caller.
 *
 * In the RDMA subsystem's shared mode (the default) the caller's own network
 * namespace does not matter: the kernel talks to peers, not the caller.
 *
 * The calls
 * ---------
 * Every ioctl takes a pointer to a structure whose first field is its size in
 * bytes, as the caller was compiled; the ioctl number holds no size.  With
 * "published size" meaning the size of the structure in the first version of
 * this header that had it, the kernel
 *
 *	refuses a size below the published size with EINVAL;
 *	takes a longer structure than it knows if the part it does not know is
 *	all zero, and refuses it with E2BIG otherwise (and always above 4096
 *	bytes);
 *	refuses unknown bits in flags, and non-zero reserved fields, with EINVAL;
 *	never writes beyond the size the caller gave; in calls that answer in
 *	the structure, "size" comes back as the number of bytes filled in,
 *	which is less than the caller's where the kernel is the older of the
 *	two.
 *
 * Errors that every call can give:
 *
 *	EFAULT		the structure is not readable, or not writable where
 *			the call answers in it
 *	EINVAL, E2BIG	as above
 *	ENODEV		the RDMA device is gone.  This file will answer nothing
 *			else any more; close it
 *	ENOTTY		no such call
 *
 * Errors that every call but those that only look can give:
 *
 *	EBADF		the file was opened with O_RDONLY
 *	EPERM		this process did not open the file (it was inherited, or
 *			passed on): a client is the process that opened it; or an
 *			administrator has ended the client (CLIENT_END)
 *	ESHUTDOWN	an administrator drains the device: only of calls that give
 *			the client something new, which "Draining" names
 *
 * Where several apply, the order is ENODEV, ENOTTY, EBADF, EPERM, ESHUTDOWN, then what
 * is wrong with the size, then what is wrong with the content.
 *
 * Clients
 * -------
 * A client is one open file and the process that opened it.  It ends when that
 * process exits or executes another program, when the file is closed, or when an
 * administrator ends it, whichever comes first; who else still holds the file does
 * not matter.  Its handles end with it.
 *
 * Regions
 * -------
 * A region is memory that RDMA can reach: taken from the device's pool, or
 * imported.  A client names its regions by handles: numbers that are not used
 * again when a region is destroyed, and that mean nothing to other clients.
 *
 * A region of the pool has file descriptors of its own, dma-bufs, for mmap(2)
 * and for passing on (fork(2), SCM_RIGHTS).  It lives as long as a handle, a
 * descriptor or a mapping of it does, or while it lingers (see
 * TOW_REGION_PERSISTENT).  When it ends, its memory goes back to the pool, is
 * zeroed, and only then goes to anybody else; memory that something else in
 * the kernel still uses (a pipe, a direct write, a registration of other
 * software) is never given to anybody else, but replaced.
 *
 * When the RDMA device is removed, mappings and their contents stay.
 *
 * Peers, exports, remote ranges
 * -----------------------------
 * A peer is another node, or this one as its own peer.  Connections to peers
 * are the node's: they are made when the first process needs them, stay when
 * processes end, and end when nobody has used them for peer_idle_s seconds.
 * Nodes prove to each other that they hold the cluster key.
 *
 * An export publishes a range of a region under a name, in the client's job.
 * Clients of the same job find it on their peer by that name, as a remote range:
 * a handle that reads and writes will be addressed to.  An export ends with
 * UNEXPORT, with its client, and with the connection to whoever found it.  When
 * it ends, those who found it use it no more before its memory goes to anybody
 * else.
 *
 * An export may be a slot instead of a range of memory: a number in which
 * notifications of a peer are counted.  The section "Notification" below has all
 * of it.
 *
 * Queues
 * ------
 * A queue carries a client's operations on remote ranges: entries of a submission
 * ring, which the program fills, and of a completion ring, which the kernel does,
 * in memory that both share.  It is a descriptor of its own, for mmap(2), poll(2)
 * and ENTER.  The section "Rings" below has all of it.
 *
 * Draining
 * --------
 * While an administrator drains a device (its file drain in sysfs is 1), so that the
 * module can be replaced, nothing new begins on it: REGION_CREATE, REGION_ATTACH,
 * REGION_FROM_FD, REGION_IMPORT_USER, REGION_IMPORT_DMABUF, PEER_CONNECT, EXPORT,
 * RESOLVE, QUEUE_CREATE, CHANNEL_OPEN and QUEUE_RESOLVE give ESHUTDOWN, and entries
 * of queues that are taken from then on, but for NOP, complete with it. What was
 * begun goes on, and all can be given back. Other nodes find what was exported, and
 * read and write there, as long as they are connected; no other connects.
 *
 * No event of a queue says so: a program learns it from the next thing that it begins,
 * and who looks after programs from a uevent of the device, TOWLINE_EVENT=drain.  When
 * the administrator waits no longer the peers are told that the device goes.  Then each
 * queue with a channel to one has an event, LOST with the error 0, and what was under way
 * ends as "Connections that fail" says of a device that goes.
 *
 * Three errors say that there is no more memory, or no more of something else
 * that is counted:
 *
 *	EDQUOT		the caller's own limit, of this client or this user
 *	ENOSPC		the device's: the pool is empty, or a limit for the whole
 *			device is reached
 *	ENOMEM		the machine's
 *
 * Exports and entries of queues are counted, too.  The kernel log says (not more
 * often than every few seconds) which file below /sys/class/towline/NAME/ raises
 * the limit.
 */
#ifndef _UAPI_TOWLINE_H
#define _UAPI_TOWLINE_H

#include <linux/ioctl.h>
#include <linux/types.h>

/*
 * Grows by one with every addition to this file.  Nothing here ever changes
 * its meaning, so a program needs a kernel that is at least as new as the
 * calls it makes, and nothing more.
 */
#define TOW_UAPI_VERSION	17

#define TOW_IOCTL_TYPE		0xBA

enum {
	TOW_CMD_QUERY			= 0x00,
	TOW_CMD_JOIN			= 0x01,
	/* 0x02, 0x03: calls of version 11 that are gone */
	TOW_CMD_CLIENT_END		= 0x04,
	TOW_CMD_ACCOUNT_LIST		= 0x05,
	TOW_CMD_REGION_CREATE		= 0x10,
	TOW_CMD_REGION_DESTROY		= 0x11,
	TOW_CMD_REGION_QUERY		= 0x12,
	TOW_CMD_REGION_LIST		= 0x13,
	TOW_CMD_REGION_FD		= 0x14,
	TOW_CMD_REGION_FROM_FD		= 0x15,
	TOW_CMD_REGION_ATTACH		= 0x16,
	TOW_CMD_REGION_IMPORT_USER	= 0x17,
	TOW_CMD_REGION_IMPORT_DMABUF	= 0x18,
	TOW_CMD_REGION_END		= 0x19,
	TOW_CMD_PEER_CONNECT		= 0x20,
	TOW_CMD_PEER_DISCONNECT		= 0x21,
	TOW_CMD_PEER_LIST		= 0x22,
	TOW_CMD_EXPORT			= 0x30,
	TOW_CMD_UNEXPORT		= 0x31,
	TOW_CMD_EXPORT_LIST		= 0x32,
	TOW_CMD_RESOLVE			= 0x33,
	TOW_CMD_RELEASE			= 0x34,
	TOW_CMD_QUEUE_CREATE		= 0x40,
	TOW_CMD_CHANNEL_OPEN		= 0x41,
	TOW_CMD_ENTER			= 0x42,
	TOW_CMD_QUEUE_EVENT		= 0x43,
	TOW_CMD_CHANNEL_CLOSE		= 0x44,
	TOW_CMD_QUEUE_RESOLVE		= 0x45
};

/* With the terminating zero; the RDMA subsystem's limit on device names. */
#define TOW_DEVICE_NAME_MAX	64

/* Bytes of the number that names one life of one RDMA device. */
#define TOW_INCARNATION_BYTES	16

/* A region's name, with the terminating zero. */
#define TOW_REGION_NAME_MAX	64

/* A job's secret, and the name that follows from it. */
#define TOW_JOB_KEY_BYTES	32
#define TOW_JOB_ID_BYTES	16

/* An export's name, without an end: it has a length. */
#define TOW_EXPORT_NAME_MAX	255

/* An address: IPv6, or IPv4 mapped into it (::ffff:192.0.2.1). */
#define TOW_ADDRESS_BYTES	16

/**
 * enum tow_transport - what carries RDMA on a device
 * @TOW_TRANSPORT_IB: InfiniBand
 * @TOW_TRANSPORT_ROCE: RDMA over Converged Ethernet, soft-RoCE included
 *
 * 3 was another's, and will not come back as anything else.
 */
enum tow_transport {
	TOW_TRANSPORT_IB	= 1,
	TOW_TRANSPORT_ROCE	= 2
};

/* What a device can do: bits of tow_query.features.  Bit 0 is not given again. */
enum tow_feature {
	/*
	 * 64-bit fetch-and-add and compare-and-swap, by us and by peers: tried by
	 * the kernel, as drivers may have none for it where the hardware has them.
	 * It may go when the device's port comes up for the first time, as it could
	 * not be tried before.
	 */
	TOW_FEATURE_ATOMICS	= 1 << 1,
	/* shared receive queues */
	TOW_FEATURE_SRQ		= 1 << 2,
	/*
	 * The device is software that uses the processor's own addresses: no
	 * DMA mapping takes place, and peer-to-peer DMA is impossible.
	 */
	TOW_FEATURE_VIRT_DMA	= 1 << 3
};

/**
 * enum tow_maint_state - the maintenance queue pair, which registers memory
 * @TOW_MAINT_WAITING: there is none, as an error broke it or its address is another;
 *	it is made when memory is to be registered, and at the latest after a
 *	short pause
 * @TOW_MAINT_CONNECTING: it is being made at this moment
 * @TOW_MAINT_READY: it works: what slabs need was tried and went through
 * @TOW_MAINT_FAILED: it could not be made.  It is tried again once by itself, after a
 *	short pause, later when memory is to be registered, and when something
 *	about the device changes (a port becomes active, an address comes or goes)
 *
 * From WAITING to CONNECTING; from CONNECTING to READY or FAILED; from READY to
 * WAITING; from FAILED to CONNECTING.
 */
enum tow_maint_state {
	TOW_MAINT_WAITING	= 0,
	TOW_MAINT_CONNECTING	= 1,
	TOW_MAINT_READY		= 2,
	TOW_MAINT_FAILED	= 3
};

/**
 * struct tow_query - what a device is, and how it is
 * @size: in: sizeof(struct tow_query); out: bytes filled in
 * @flags: in: 0
 * @uapi_version: the kernel's TOW_UAPI_VERSION
 * @driver_version: of the module: major << 16 | minor << 8 | patch
 * @device_name: of the RDMA device, terminated and filled up with zeroes; the
 *	present one if it was renamed after open
 * @incarnation: random, chosen anew whenever the RDMA device appears or the
 *	module is loaded; names this life of this device among all nodes
 * @features: bits of enum tow_feature; bits not named there are zero
 * @max_mr_size: largest memory region, in bytes
 * @max_msg_size: largest message, in bytes
 * @transport: enum tow_transport
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
 * @maint_state: enum tow_maint_state
 * @maint_error: why the last attempt to make the maintenance queue pair failed,
 *	or what broke it: a negative errno; 0 while it is ready, and before the
 *	first attempt has ended
 * @maint_rebuilds: how often it became ready again after it had been broken
 * @reserved: out: zero
 *
 * The limits are those of the RDMA device: what towline gives out of them is
 * never more.
 */
struct tow_query {
	__u32		size;
	__u32		flags;
	__u32		uapi_version;
	__u32		driver_version;
	char		device_name[TOW_DEVICE_NAME_MAX];
	__u8		incarnation[TOW_INCARNATION_BYTES];
	__aligned_u64	features;
	__aligned_u64	max_mr_size;
	__aligned_u64	max_msg_size;
	__u32		transport;
	__u32		port;
	__u32		page_size;
	__s32		numa_node;
	__u32		max_mr;
	__u32		max_fast_reg_pages;
	__u32		max_pd;
	__u32		max_qp;
	__u32		max_qp_wr;
	__u32		max_send_sge;
	__u32		max_recv_sge;
	__u32		max_sge_rd;
	__u32		max_cq;
	__u32		max_cqe;
	__u32		max_srq;
	__u32		max_srq_wr;
	__u32		max_qp_rd_atom;
	__u32		max_qp_init_rd_atom;
	__u32		maint_state;
	__s32		maint_error;
	__u32		maint_rebuilds;
	__u32		reserved;
};

/**
 * TOW_IOCTL_QUERY - describe the device behind this file
 *
 * Takes a struct tow_query with @size and @flags set; @reserved must be zero,
 * every other field is only written.  Never waits, for the device or for
 * anybody else.  Allowed on every open file.
 *
 * Errors: none but those of every call (above).
 */
#define TOW_IOCTL_QUERY		_IO(TOW_IOCTL_TYPE, TOW_CMD_QUERY)

/**
 * struct tow_join - enter a job
 * @size: in: sizeof(struct tow_join); out: bytes filled in
 * @flags: in: 0
 * @job_key: in: the job's key: 32 random bytes that all of the job's processes
 *	share and nobody else knows
 * @job_id: out: the job's public name: the first 16 bytes of the SHA-256 of
 *	the key
 */
struct tow_join {
	__u32		size;
	__u32		flags;
	__u8		job_key[TOW_JOB_KEY_BYTES];
	__u8		job_id[TOW_JOB_ID_BYTES];
};

/**
 * TOW_IOCTL_JOIN - enter a job
 *
 * Names are looked up in the client's job.  A client that never joins is in
 * its user's own job, whose id is all zero; but one in a user namespace other than
 * the initial one, or in a cgroup with account_by=cgroup, neither exports nor
 * resolves nor makes persistent regions before it joins, as elsewhere others may have
 * its user's number, and nobody could say who comes after it.  Names given before stay
 * where they were.
 *
 * Errors: EBUSY: the client is in another job already; EINVAL: the key is all zero.
 */
#define TOW_IOCTL_JOIN		_IO(TOW_IOCTL_TYPE, TOW_CMD_JOIN)

/* Bits of tow_account_info.flags. */
enum tow_account_flag {
	/* its client has ended; somebody may still hold the file */
	TOW_ACCOUNT_ENDED	= 1 << 0,
	/* nobody holds the file: something is still charged, or about to end */
	TOW_ACCOUNT_CLOSED	= 1 << 1
};

/**
 * struct tow_account_info - what a client is, and what it is charged
 * @size: out: bytes filled in
 * @flags: out: bits of enum tow_account_flag
 * @id: out: names the account on this device; never used again during the device's
 *	life
 * @cgroup_id: out: of the process that opened the file, as it was then: the inode
 *	number of its cgroup's folder; 0 where the kernel has no cgroups
 * @charged_bytes: out: what counts against the limits of bytes: of regions that it has,
 *	or that linger after it, and @held_bytes
 * @held_bytes: out: of slabs whose regions have ended, and whose pages somebody uses
 *	still
 * @pid: out: of the process that opened the file, as the caller's PID namespace has
 *	it; 0: it is not there, or has ended, or the file is closed
 * @uid: out: the user it is charged to, as the caller's user namespace has it
 * @mrs: out: what counts against the limits of memory regions of the RDMA device
 * @regions: out: of regions
 * @exports: out: of exports
 * @queue_entries: out: of entries of queues
 * @job_id: out: the job that it is in; all zero if the file is closed
 */
struct tow_account_info {
	__u32		size;
	__u32		flags;
	__aligned_u64	id;
	__aligned_u64	cgroup_id;
	__aligned_u64	charged_bytes;
	__aligned_u64	held_bytes;
	__s32		pid;
	__u32		uid;
	__u32		mrs;
	__u32		regions;
	__u32		exports;
	__u32		queue_entries;
	__u8		job_id[TOW_JOB_ID_BYTES];
};

/**
 * struct tow_account_list - the accounts of a device
 * @size: as in struct tow_region_list, as are the others
 * @flags: in: 0 or TOW_LIST_ALL
 * @cursor: in: 0, or what the last call left here; out: where to go on
 * @entries: in: address of an array of struct tow_account_info
 * @entry_size: in: bytes of one entry; out: bytes filled in of each
 * @count: in: entries that there is room for; out: entries filled in
 */
struct tow_account_list {
	__u32		size;
	__u32		flags;
	__aligned_u64	cursor;
	__aligned_u64	entries;
	__u32		entry_size;
	__u32		count;
};

/**
 * TOW_IOCTL_ACCOUNT_LIST - describe clients and what each is charged, in the order of
 * ids
 *
 * Each client has an account, which outlives it as long as something is charged to it:
 * regions that linger, memory that is held.  Only looks.  Accounts that come and go
 * between two calls may be missed, never told twice.
 *
 * Without TOW_LIST_ALL the caller sees the accounts of clients that the user who opened
 * this file has opened, and which are charged to whom this file is: in a container, or
 * with account_by=cgroup in a cgroup, neither other users' nor the same user's elsewhere.
 *
 * Errors: those of REGION_LIST.
 */
#define TOW_IOCTL_ACCOUNT_LIST	_IO(TOW_IOCTL_TYPE, TOW_CMD_ACCOUNT_LIST)

/**
 * struct tow_client_end - end a process's clients
 * @size: in: sizeof(struct tow_client_end); out: bytes filled in
 * @flags: in: 0
 * @pid: in: the process that opened the files, as the caller's PID namespace has it
 * @count: out: how many clients were ended
 */
struct tow_client_end {
	__u32		size;
	__u32		flags;
	__s32		pid;
	__u32		count;
};

/**
 * TOW_IOCTL_CLIENT_END - end all clients that a process has of this device
 *
 * As if the process had exited: handles, queues, exports and the poller end, and
 * persistent regions linger.  What the process calls afterwards says EPERM.  It
 * keeps what it has mapped and the descriptors of its regions: their memory comes
 * back, and stays charged to it, until it unmaps and closes them; who wants it back
 * at once kills the process.  The call waits for all of that, but not for peers, which
 * let go of what was exported, nor for operations that are on their way: both as ATTACH
 * says.
 *
 * Errors: EPERM: without CAP_NET_ADMIN; EINVAL: @pid is not positive; ESRCH: there
 * is no such process, or it has no client that had not ended.
 */
#define TOW_IOCTL_CLIENT_END	_IO(TOW_IOCTL_TYPE, TOW_CMD_CLIENT_END)

/* Bits of the regions' flags. */
enum tow_region_flag {
	/* can be read and sent from, not written */
	TOW_REGION_READONLY	= 1 << 0,
	/*
	 * Outlives its client by linger_s seconds, under its name, still charged
	 * to its user; REGION_ATTACH takes it over.
	 */
	TOW_REGION_PERSISTENT	= 1 << 1,
	/* its client has ended, and nobody took it over so far (only told) */
	TOW_REGION_LINGERING	= 1 << 2,
	/* a process's own memory (only told) */
	TOW_REGION_USER_MEMORY	= 1 << 3,
	/* somebody else's dma-buf (only told) */
	TOW_REGION_DMABUF	= 1 << 4,
	/* a dma-buf whose exporter has taken its memory back (only told) */
	TOW_REGION_INVALID	= 1 << 5
};

/**
 * struct tow_region_create - memory of the pool
 * @size: in: sizeof(struct tow_region_create); out: bytes filled in
 * @flags: in: 0 or TOW_REGION_PERSISTENT
 * @bytes: in: how much, at least 1
 * @handle: out: the region's handle
 * @map_bytes: out: what can be mapped and used: @bytes rounded up to whole
 *	slabs, which is what counts against the limits
 * @fd: out: a new descriptor of the region, closed on exec
 * @linger_s: in: PERSISTENT: seconds it outlives its client; 0 or more than the
 *	device's linger_max_s: that many.  Otherwise 0
 * @name: in: PERSISTENT: its name among the user's regions in this job, not
 *	empty.  Otherwise only for people who list regions, and may be empty.
 *	Terminated and filled up with zeroes, of printable ASCII characters but
 *	'/' and the space
 */
struct tow_region_create {
	__u32		size;
	__u32		flags;
	__aligned_u64	bytes;
	__aligned_u64	handle;
	__aligned_u64	map_bytes;
	__s32		fd;
	__u32		linger_s;
	char		name[TOW_REGION_NAME_MAX];
};

/**
 * TOW_IOCTL_REGION_CREATE - take memory from the pool
 *
 * The memory is zeroed.
 *
 * Errors: EINVAL: @bytes is 0, or what the flags ask of @name and @linger_s is
 * not so; EEXIST: PERSISTENT: the user has a region of that name in this job;
 * ENOKEY: PERSISTENT: the client has no job without a key (see JOIN);
 * EMFILE, ENFILE: no descriptor is left; EDQUOT, ENOSPC, ENOMEM: see above.
 */
#define TOW_IOCTL_REGION_CREATE	_IO(TOW_IOCTL_TYPE, TOW_CMD_REGION_CREATE)

/**
 * struct tow_region_destroy - end a region
 * @size: in: sizeof(struct tow_region_destroy)
 * @flags: in: 0
 * @handle: in: the region
 */
struct tow_region_destroy {
	__u32		size;
	__u32		flags;
	__aligned_u64	handle;
};

/**
 * TOW_IOCTL_REGION_DESTROY - give up a handle
 *
 * The region does not linger, even if it is PERSISTENT.  Its memory stays while
 * descriptors or mappings of it do.
 *
 * Errors: ENOENT: this client has no such handle.
 */
#define TOW_IOCTL_REGION_DESTROY _IO(TOW_IOCTL_TYPE, TOW_CMD_REGION_DESTROY)

/**
 * struct tow_region_info - what a region is
 * @size: in: sizeof(struct tow_region_info); out: bytes filled in
 * @flags: in: 0; out: bits of enum tow_region_flag
 * @handle: REGION_QUERY: in: the region; REGION_LIST: 0
 * @id: out: names the region on this device; never used again during the
 *	device's life
 * @bytes: out: as asked for
 * @map_bytes: out: what can be mapped; 0: nothing (imported memory)
 * @charged_bytes: out: what counts against the limits of bytes
 * @cgroup_id: out: of the process that created it or took it over: the inode
 *	number of its cgroup's folder; 0 where the kernel has no cgroups
 * @mrs: out: memory regions of the RDMA device that it may come to take: what counts
 *	against the limits of them
 * @slabs: out: slabs of the pool that it consists of
 * @uid: out: the user it is charged to, or the owner of the container that is, as
 *	the caller's user namespace has it
 * @pid: out: of the process that created it or took it over, as the caller's
 *	PID namespace has it; 0: it is not there, or has ended
 * @linger_s: out: PERSISTENT: seconds it outlives its client
 * @linger_left_ms: out: LINGERING: time that is left of them
 * @fds: out: descriptors of it that were made and are still open or mapped
 * @reserved: 0
 * @name: out: its name, terminated and filled up with zeroes
 * @job_id: out: the job that its name belongs to
 */
struct tow_region_info {
	__u32		size;
	__u32		flags;
	__aligned_u64	handle;
	__aligned_u64	id;
	__aligned_u64	bytes;
	__aligned_u64	map_bytes;
	__aligned_u64	charged_bytes;
	__aligned_u64	cgroup_id;
	__u32		mrs;
	__u32		slabs;
	__u32		uid;
	__s32		pid;
	__u32		linger_s;
	__u32		linger_left_ms;
	__u32		fds;
	__u32		reserved;
	char		name[TOW_REGION_NAME_MAX];
	__u8		job_id[TOW_JOB_ID_BYTES];
};

/**
 * TOW_IOCTL_REGION_QUERY - describe a region
 *
 * Takes a struct tow_region_info.  Only looks.
 *
 * Errors: ENOENT: this client has no such handle.
 */
#define TOW_IOCTL_REGION_QUERY	_IO(TOW_IOCTL_TYPE, TOW_CMD_REGION_QUERY)

/* Bits of tow_region_list.flags. */
enum tow_list_flag {
	/* everybody's regions, not only the client's user's; CAP_NET_ADMIN */
	TOW_LIST_ALL		= 1 << 0
};

/**
 * struct tow_region_list - the regions of a device
 * @size: in: sizeof(struct tow_region_list); out: bytes filled in
 * @flags: in: 0: those of the client's user in the same container, and in the job
 *	that the client has joined (see REGION_ATTACH); TOW_LIST_ALL
 * @cursor: in: 0, or what the last call left here; out: where to go on
 * @entries: in: address of an array of struct tow_region_info
 * @entry_size: in: bytes of one entry, as the caller was compiled; out: bytes
 *	filled in of each
 * @count: in: entries that the array has room for; out: entries filled in; 0:
 *	there are no more
 */
struct tow_region_list {
	__u32		size;
	__u32		flags;
	__aligned_u64	cursor;
	__aligned_u64	entries;
	__u32		entry_size;
	__u32		count;
};

/**
 * TOW_IOCTL_REGION_LIST - describe regions, in the order of their ids
 *
 * Only looks.  Regions that come and go between two calls may be missed, never
 * told twice.
 *
 * Errors: EINVAL: @entry_size is below the published size of struct
 * tow_region_info, above 4096 or no multiple of 8; EPERM: TOW_LIST_ALL without
 * CAP_NET_ADMIN.
 */
#define TOW_IOCTL_REGION_LIST	_IO(TOW_IOCTL_TYPE, TOW_CMD_REGION_LIST)

/**
 * struct tow_region_end - end a region that persists
 * @size: in: sizeof(struct tow_region_end); out: bytes filled in
 * @flags: in: 0
 * @id: in: the region, as REGION_LIST tells
 * @pid: out: of the process that has it, as in struct tow_region_info; 0: nobody had
 *	it, and nobody will
 * @fds: out: descriptors of it that were made and are still open or mapped
 */
struct tow_region_end {
	__u32		size;
	__u32		flags;
	__aligned_u64	id;
	__s32		pid;
	__u32		fds;
};

/**
 * TOW_IOCTL_REGION_END - have a persistent region linger no more
 *
 * One that lingers ends now, and its memory comes back when nobody has a descriptor
 * or a mapping of it any more (@fds).  One that a client has loses its name: nobody
 * can attach to it, and it will not linger.  Nothing else of it changes, and its
 * memory comes back when that client gives it up, at its end at the latest: see
 * CLIENT_END.
 *
 * Errors: EPERM: without CAP_NET_ADMIN; ENOENT: there is no such region; EBUSY: it
 * has no name, and ends with those who hold it; or somebody is just taking it over.
 */
#define TOW_IOCTL_REGION_END	_IO(TOW_IOCTL_TYPE, TOW_CMD_REGION_END)

/**
 * struct tow_region_fd - another descriptor of a region
 * @size: in: sizeof(struct tow_region_fd); out: bytes filled in
 * @flags: in: 0, or TOW_REGION_READONLY: it cannot be mapped for writing, nor
 *	attached to a device but for reading
 * @handle: in: the region
 * @fd: out: a new descriptor, closed on exec
 * @reserved: in: 0
 */
struct tow_region_fd {
	__u32		size;
	__u32		flags;
	__aligned_u64	handle;
	__s32		fd;
	__u32		reserved;
};

/**
 * TOW_IOCTL_REGION_FD - make a descriptor of a region
 *
 * Errors: ENOENT: this client has no such handle; EOPNOTSUPP: imported memory
 * has its own; EACCES: the handle is READONLY, and @flags is not; EMFILE,
 * ENFILE, ENOMEM.
 */
#define TOW_IOCTL_REGION_FD	_IO(TOW_IOCTL_TYPE, TOW_CMD_REGION_FD)

/**
 * struct tow_region_from_fd - the region behind a descriptor
 * @size: in: sizeof(struct tow_region_from_fd); out: bytes filled in
 * @flags: in: 0
 * @fd: in: a region's descriptor, from whatever process
 * @reserved: in: 0
 * @handle: out: a handle of this client; READONLY if the descriptor is
 */
struct tow_region_from_fd {
	__u32		size;
	__u32		flags;
	__s32		fd;
	__u32		reserved;
	__aligned_u64	handle;
};

/**
 * TOW_IOCTL_REGION_FROM_FD - a handle for a region that was passed on
 *
 * The region stays charged to whom it was; the handle counts as one region of
 * this client and its user.
 *
 * Errors: EBADF: @fd is not open; EINVAL: it is no region's; EXDEV: it is a
 * region of another device, or of an earlier life of this one; EDQUOT, ENOSPC,
 * ENOMEM.
 */
#define TOW_IOCTL_REGION_FROM_FD _IO(TOW_IOCTL_TYPE, TOW_CMD_REGION_FROM_FD)

/**
 * struct tow_region_attach - take over a region that lingers
 * @size: in: sizeof(struct tow_region_attach); out: bytes filled in
 * @flags: in: 0
 * @bytes: out: as in struct tow_region_create
 * @handle: out: the region's handle
 * @map_bytes: out: as in struct tow_region_create
 * @fd: out: a new descriptor of the region, closed on exec
 * @linger_s: in: as in struct tow_region_create
 * @name: in: its name
 */
struct tow_region_attach {
	__u32		size;
	__u32		flags;
	__aligned_u64	bytes;
	__aligned_u64	handle;
	__aligned_u64	map_bytes;
	__s32		fd;
	__u32		linger_s;
	char		name[TOW_REGION_NAME_MAX];
};

/**
 * TOW_IOCTL_REGION_ATTACH - take over a region whose client has ended
 *
 * For the same user (as the initial user namespace has him) in the same job: after
 * JOIN from anywhere, as from a container that was made anew.  The region, its
 * contents unchanged, is this client's from now on, and charged to it and its
 * user instead.  If the call fails the region lingers on as it would have.
 *
 * Where the client that had it has ended or its process was killed, the call waits
 * until nothing of it reaches the region: its end, operations of its queues that
 * are on their way, peers that have not let go of what it exported of the region.
 * It waits for twice the device's revoke_timeout_ms at most, and no signal ends the
 * wait but one that kills the caller.
 *
 * Errors: EINVAL: not a name; ENOENT: this user has no such region in this job;
 * EBUSY: the client that has it lives, or the wait was not long enough: try again;
 * EDQUOT: it would exceed limits of this client or its user; EINTR: the caller was killed;
 * EMFILE, ENFILE, ENOMEM.
 */
#define TOW_IOCTL_REGION_ATTACH	_IO(TOW_IOCTL_TYPE, TOW_CMD_REGION_ATTACH)

/**
 * struct tow_region_import_user - memory that the process has
 * @size: in: sizeof(struct tow_region_import_user); out: bytes filled in
 * @flags: in: 0 or TOW_REGION_READONLY
 * @address: in: where it begins, at any byte
 * @bytes: in: how much, at least 1
 * @handle: out: the region's handle
 */
struct tow_region_import_user {
	__u32		size;
	__u32		flags;
	__aligned_u64	address;
	__aligned_u64	bytes;
	__aligned_u64	handle;
};

/**
 * TOW_IOCTL_REGION_IMPORT_USER - make a region of the process's own memory
 *
 * The pages are pinned until the region ends, and count against RLIMIT_MEMLOCK
 * (unless the process has CAP_IPC_LOCK) as well as against the device's limits.
 *
 * Errors: EFAULT: there is no memory, or only a device's; or it cannot be written
 * and the region is not READONLY, which newer kernels (6.12, not 6.1) also say of a
 * shared mapping of a file that must know of writes; EINVAL: @bytes is 0, or it
 * wraps around; EOPNOTSUPP: a file that is mapped past the page cache (DAX);
 * ENOMEM: RLIMIT_MEMLOCK, or the machine; EDQUOT, ENOSPC.
 */
#define TOW_IOCTL_REGION_IMPORT_USER \
	_IO(TOW_IOCTL_TYPE, TOW_CMD_REGION_IMPORT_USER)

/**
 * struct tow_region_import_dmabuf - memory of another device
 * @size: in: sizeof(struct tow_region_import_dmabuf); out: bytes filled in
 * @flags: in: 0 or TOW_REGION_READONLY
 * @fd: in: a dma-buf
 * @reserved: in: 0
 * @offset: in: where to begin in it, in bytes, a multiple of the page size
 * @bytes: in: how much, at least 1
 * @handle: out: the region's handle
 */
struct tow_region_import_dmabuf {
	__u32		size;
	__u32		flags;
	__s32		fd;
	__u32		reserved;
	__aligned_u64	offset;
	__aligned_u64	bytes;
	__aligned_u64	handle;
};

/**
 * TOW_IOCTL_REGION_IMPORT_DMABUF - make a region of a dma-buf's memory
 *
 * The dma-buf is pinned until the region ends, where its exporter has it; memory of a
 * device is reached there (peer-to-peer), if the exporter can have that.  The call waits
 * for the exporter's fences.  For descriptors of towline's own regions there is
 * REGION_FROM_FD.
 *
 * An exporter may take its memory back all the same.  The region is INVALID from then on,
 * for good: its exports end as if they had been revoked, and what uses it here ends with
 * EFAULT.  The exporter waits until nobody reaches the memory any more, which takes
 * revoke_timeout_ms at most, and then the queue pairs that still use it are destroyed.
 *
 * Errors: EBADF: @fd is not open; EINVAL: it is no dma-buf, or the range is not
 * within it; EOPNOTSUPP: the RDMA device is software and reaches only the
 * processor's memory, or needs copies of it, or the exporter's memory is not in whole
 * pages; EDQUOT, ENOSPC, ENOMEM; or what the exporter says.
 */
#define TOW_IOCTL_REGION_IMPORT_DMABUF \
	_IO(TOW_IOCTL_TYPE, TOW_CMD_REGION_IMPORT_DMABUF)

/**
 * enum tow_peer_state - how we stand with a peer
 * @TOW_PEER_IDLE: known, not connected; made anew when it is needed
 * @TOW_PEER_CONNECTING: a session is being made
 * @TOW_PEER_READY: connected
 * @TOW_PEER_BROKEN: the session has ended; its queue pairs are being destroyed
 * @TOW_PEER_DEAD: the last session failed; made anew when it is needed
 * @TOW_PEER_RECONNECTING: the session has ended, and what was found and begun in it
 *	waits for the next one
 *
 * From IDLE to CONNECTING; from CONNECTING to READY or BROKEN; from READY to
 * BROKEN; from BROKEN to IDLE (an orderly end), to RECONNECTING (one that may pass), to
 * DEAD (any other), or to CONNECTING (the next session is being made already); from
 * RECONNECTING to CONNECTING, to DEAD (nobody came back in time), or to IDLE; from
 * DEAD to CONNECTING.
 */
enum tow_peer_state {
	TOW_PEER_IDLE		= 0,
	TOW_PEER_CONNECTING	= 1,
	TOW_PEER_READY		= 2,
	TOW_PEER_BROKEN		= 3,
	TOW_PEER_DEAD		= 4,
	TOW_PEER_RECONNECTING	= 5
};

/* Which of the settings in struct tow_peer_connect hold: bits of its flags. */
enum tow_peer_setting {
	TOW_PEER_SET_GID_INDEX		= 1 << 0,
	TOW_PEER_SET_PKEY_INDEX		= 1 << 1,
	TOW_PEER_SET_SL			= 1 << 2,
	TOW_PEER_SET_TRAFFIC_CLASS	= 1 << 3,
	TOW_PEER_SET_MTU		= 1 << 4,
	TOW_PEER_SET_TIMEOUT		= 1 << 5,
	TOW_PEER_SET_RETRY_COUNT	= 1 << 6,
	TOW_PEER_SET_QUEUE_DEPTH	= 1 << 7,
	TOW_PEER_SET_QPS		= 1 << 8
};

/**
 * struct tow_peer_connect - a node at an address
 * @size: in: sizeof(struct tow_peer_connect); out: bytes filled in
 * @flags: in: bits of enum tow_peer_setting: of the device's settings (files of
 *	the same names in sysfs), those that are to be different for this peer
 * @peer: out: the peer's number on this device
 * @address: in: where it listens
 * @scope_id: in: for a link-local address: the index of the interface; else 0
 * @port: in: where it listens; 0: the device's own listen_port
 * @reserved: in: 0
 * @timeout_ms: in: how long to wait; 0: the device's reconnect_timeout_ms
 * @gid_index: in: TOW_PEER_SET_GID_INDEX; -1: an address that leads there
 * @pkey_index: in: TOW_PEER_SET_PKEY_INDEX
 * @sl: in: TOW_PEER_SET_SL: service level
 * @traffic_class: in: TOW_PEER_SET_TRAFFIC_CLASS: of the IP header
 * @mtu: in: TOW_PEER_SET_MTU: bytes; 0: the port's
 * @timeout: in: TOW_PEER_SET_TIMEOUT: for acknowledgements, 4.096 us * 2^timeout
 * @retry_count: in: TOW_PEER_SET_RETRY_COUNT
 * @queue_depth: in: TOW_PEER_SET_QUEUE_DEPTH: work requests of one queue pair
 * @qps: in: TOW_PEER_SET_QPS: data queue pairs
 * @incarnation: out: the peer's
 */
struct tow_peer_connect {
	__u32		size;
	__u32		flags;
	__aligned_u64	peer;
	__u8		address[TOW_ADDRESS_BYTES];
	__u32		scope_id;
	__u16		port;
	__u16		reserved;
	__u32		timeout_ms;
	__s32		gid_index;
	__u32		pkey_index;
	__u32		sl;
	__u32		traffic_class;
	__u32		mtu;
	__u32		timeout;
	__u32		retry_count;
	__u32		queue_depth;
	__u32		qps;
	__u8		incarnation[TOW_INCARNATION_BYTES];
};

/**
 * TOW_IOCTL_PEER_CONNECT - find the peer at an address, connecting if need be
 *
 * Where there is a connection already, whoever made it, it is the answer: at once
 * if it leads to @address; at another address of the same peer when who is there
 * has proved itself.  Settings hold for connections that are made to that peer
 * later.
 *
 * Errors: EINVAL: @address is none that a node can have, or a setting is out of
 * range; EPERM: @flags without CAP_NET_ADMIN; EADDRNOTAVAIL: the device has no
 * address that leads there; ENETUNREACH, EHOSTUNREACH: no route, or no answer on
 * the link; ECONNREFUSED: nobody listens; ETIMEDOUT: no answer;
 * EPROTONOSUPPORT: the peer speaks another version; ENOKEY: this node or the
 * peer has no cluster key, and that is not allowed; EKEYREJECTED: the cluster
 * keys differ; EPROTO: what the peer said makes no sense; EMSGSIZE: packets as long
 * as both ends' ports take do not arrive: lower @mtu, or that of the device;
 * ENOSPC: the peer has no room, or this device is connected to peer_limit others;
 * EAGAIN: the peer is busy with too many others, or 32 other connections of the
 * user's programs, or 64 of all users', were being made here until the time was over,
 * or 1,024 others of the user's, or 2,048 of all users', are sought already;
 * ECONNRESET: it went away meanwhile; EINTR; ENOMEM; and what the driver says that
 * has no more queue pairs or completion queues, mostly ENOMEM.
 */
#define TOW_IOCTL_PEER_CONNECT	_IO(TOW_IOCTL_TYPE, TOW_CMD_PEER_CONNECT)

/**
 * struct tow_peer_disconnect - end a connection
 * @size: in: sizeof(struct tow_peer_disconnect)
 * @flags: in: 0
 * @peer: in: the peer's number
 */
struct tow_peer_disconnect {
	__u32		size;
	__u32		flags;
	__aligned_u64	peer;
};

/**
 * TOW_IOCTL_PEER_DISCONNECT - end the connection to a peer
 *
 * For everybody who uses it; it is gone when the call returns.  A peer that is
 * not connected is forgotten.
 *
 * Errors: EPERM: without CAP_NET_ADMIN; ENOENT: no such peer; EINTR.
 */
#define TOW_IOCTL_PEER_DISCONNECT _IO(TOW_IOCTL_TYPE, TOW_CMD_PEER_DISCONNECT)

/* Bits of tow_peer_info.flags. */
enum tow_peer_flag {
	/* this node itself */
	TOW_PEER_LOOPBACK	= 1 << 0,
	/* both sides hold the cluster key */
	TOW_PEER_AUTHENTICATED	= 1 << 1
};

/**
 * struct tow_peer_info - how a peer is
 * @size: as struct tow_peer_list.entry_size
 * @flags: bits of enum tow_peer_flag
 * @peer: its number on this device
 * @address: where it was found, or where it came from
 * @scope_id: as in struct tow_peer_connect
 * @port: where it listens; 0: not known, it connected to us
 * @reserved: 0
 * @incarnation: names this life of its device
 * @state: enum tow_peer_state
 * @last_error: why the last session ended: a negative errno; 0: nothing was
 *	wrong
 * @epoch: sessions that there were, the present one included
 * @qps: data queue pairs of the present session
 * @reconnects: sessions after the first
 * @grants: remote ranges that it was given and has not given back
 * @remotes: remote ranges that it gave us
 * @reserved2: 0
 * @messages_sent: control messages, of all sessions
 * @messages_received: control messages, of all sessions
 * @idle_ms: since something but heartbeats came or went
 */
struct tow_peer_info {
	__u32		size;
	__u32		flags;
	__aligned_u64	peer;
	__u8		address[TOW_ADDRESS_BYTES];
	__u32		scope_id;
	__u16		port;
	__u16		reserved;
	__u8		incarnation[TOW_INCARNATION_BYTES];
	__u32		state;
	__s32		last_error;
	__u32		epoch;
	__u32		qps;
	__u32		reconnects;
	__u32		grants;
	__u32		remotes;
	__u32		reserved2;
	__aligned_u64	messages_sent;
	__aligned_u64	messages_received;
	__aligned_u64	idle_ms;
};

/**
 * struct tow_peer_list - the peers of a device
 * @size: in: sizeof(struct tow_peer_list); out: bytes filled in
 * @flags: in: 0
 * @cursor: in: 0, or what the last call left here; out: where to go on
 * @entries: in: address of an array of struct tow_peer_info
 * @entry_size: as in struct tow_region_list
 * @count: as in struct tow_region_list
 */
struct tow_peer_list {
	__u32		size;
	__u32		flags;
	__aligned_u64	cursor;
	__aligned_u64	entries;
	__u32		entry_size;
	__u32		count;
};

/**
 * TOW_IOCTL_PEER_LIST - describe peers, in the order of their numbers
 *
 * Only looks.
 *
 * Errors: EINVAL: as in REGION_LIST.
 */
#define TOW_IOCTL_PEER_LIST	_IO(TOW_IOCTL_TYPE, TOW_CMD_PEER_LIST)

/* What may be done with a range. */
enum tow_right {
	TOW_RIGHT_READ		= 1 << 0,
	TOW_RIGHT_WRITE		= 1 << 1,
	/* fetch-and-add, compare-and-swap; not without WRITE */
	TOW_RIGHT_ATOMIC	= 1 << 2,
	/* notifications, and nothing else: a slot.  Not with other rights */
	TOW_RIGHT_NOTIFY	= 1 << 3,
	/*
	 * the bits of TOW_RIGHT_NOTIFY_BY().  (Before version 14 of this header:
	 * EINVAL)
	 */
	TOW_RIGHT_WIDTH		= 3 << 4
};

/* A slot's width, at most: see "Notification" below. */
#define TOW_SLOT_WIDTH_MAX	4

/* RESOLVE: NOTIFY a slot by @width queue pairs, 1 to TOW_SLOT_WIDTH_MAX. */
#define TOW_RIGHT_NOTIFY_BY(width)	(TOW_RIGHT_NOTIFY | ((width) - 1U) << 4)

/**
 * struct tow_export - publish a range of a region
 * @size: in: sizeof(struct tow_export); out: bytes filled in
 * @flags: in: 0
 * @region: in: handle of the region
 * @offset: in: where the range begins in it, in bytes
 * @bytes: in: the range's size, at least 1; NOTIFY: 8, and @offset is a multiple
 *	of it
 * @handle: out: the export's handle
 * @rights: in: bits of enum tow_right but WIDTH, at least one
 * @name_bytes: in: 1 to TOW_EXPORT_NAME_MAX
 * @name: in: the name: any bytes but control characters (0 to 31, and 127)
 */
struct tow_export {
	__u32		size;
	__u32		flags;
	__aligned_u64	region;
	__aligned_u64	offset;
	__aligned_u64	bytes;
	__aligned_u64	handle;
	__u32		rights;
	__u32		name_bytes;
	__u8		name[TOW_EXPORT_NAME_MAX + 1];
};

/**
 * TOW_IOCTL_EXPORT - let peers reach a range, under a name in the client's job
 *
 * Errors: ENOENT: this client has no such region; EINVAL: an empty range, or one
 * that is not within the region's bytes; a name as it must not be; no rights, or
 * ATOMIC without WRITE, or NOTIFY with others, or WIDTH; NOTIFY with a size that is
 * not 8, or not aligned; ENOKEY: the client has no job without a key (see JOIN);
 * EACCES: rights beyond READ for a region that is READONLY;
 * EOPNOTSUPP: ATOMIC on a device that has no atomics; NOTIFY for a dma-buf;
 * EFAULT: the region is INVALID; EEXIST: the job has an export of that name on
 * this device; EAGAIN: the device cannot register memory at the moment (see
 * tow_query.maint_state; not NOTIFY); EDQUOT, ENOSPC (NOTIFY: also if the device
 * has TOW_SLOTS_MAX of them), ENOMEM.
 */
#define TOW_IOCTL_EXPORT	_IO(TOW_IOCTL_TYPE, TOW_CMD_EXPORT)

/**
 * struct tow_unexport - end an export
 * @size: in: sizeof(struct tow_unexport)
 * @flags: in: 0
 * @handle: in: the export's handle
 */
struct tow_unexport {
	__u32		size;
	__u32		flags;
	__aligned_u64	handle;
};

/**
 * TOW_IOCTL_UNEXPORT - end an export
 *
 * When the call returns 0 no peer reads or writes the range by it any more,
 * and none will.  Peers that do not say so within revoke_timeout_ms lose their
 * connection.
 *
 * Errors: ENOENT: this client has no such export; EINTR: a signal came: the
 * handle is gone, and the rest goes on without the caller.
 */
#define TOW_IOCTL_UNEXPORT	_IO(TOW_IOCTL_TYPE, TOW_CMD_UNEXPORT)

/* Bits of tow_export_info.flags. */
enum tow_export_flag {
	/* it ends; peers that found it have not all said that they let go */
	TOW_EXPORT_REVOKING	= 1 << 0
};

/**
 * struct tow_export_info - what an export is
 * @size: as struct tow_export_list.entry_size
 * @flags: bits of enum tow_export_flag
 * @id: names it on this device; never used again during the device's life
 * @region_id: as in struct tow_region_info
 * @offset: as in struct tow_export
 * @bytes: as in struct tow_export
 * @rights: as in struct tow_export
 * @grants: how often peers found it and have not given it back
 * @uid: the user, as the caller's user namespace has it
 * @pid: of its client, as the caller's PID namespace has it; 0: not there
 * @reserved: 0
 * @name_bytes: as in struct tow_export
 * @job_id: the job
 * @name: as in struct tow_export; filled up with zeroes
 */
struct tow_export_info {
	__u32		size;
	__u32		flags;
	__aligned_u64	id;
	__aligned_u64	region_id;
	__aligned_u64	offset;
	__aligned_u64	bytes;
	__u32		rights;
	__u32		grants;
	__u32		uid;
	__s32		pid;
	__u32		reserved;
	__u32		name_bytes;
	__u8		job_id[TOW_JOB_ID_BYTES];
	__u8		name[TOW_EXPORT_NAME_MAX + 1];
};

/**
 * struct tow_export_list - the exports of a device
 * @size: in: sizeof(struct tow_export_list); out: bytes filled in
 * @flags: in: 0: those of the client's user in the client's job, if it may be in
 *	that (see JOIN); TOW_LIST_ALL
 * @cursor: in: 0, or what the last call left here; out: where to go on
 * @entries: in: address of an array of struct tow_export_info
 * @entry_size: as in struct tow_region_list
 * @count: as in struct tow_region_list
 */
struct tow_export_list {
	__u32		size;
	__u32		flags;
	__aligned_u64	cursor;
	__aligned_u64	entries;
	__u32		entry_size;
	__u32		count;
};

/**
 * TOW_IOCTL_EXPORT_LIST - describe exports, in the order of their ids
 *
 * Only looks.
 *
 * Errors: EINVAL: as in REGION_LIST; EPERM: TOW_LIST_ALL without CAP_NET_ADMIN.
 */
#define TOW_IOCTL_EXPORT_LIST	_IO(TOW_IOCTL_TYPE, TOW_CMD_EXPORT_LIST)

/* Wait for a name until a signal comes. */
#define TOW_WAIT_FOREVER	0xffffffffU

/**
 * struct tow_resolve - find an export on a peer
 * @size: in: sizeof(struct tow_resolve); out: bytes filled in
 * @flags: in: 0
 * @peer: in: the peer's number, from PEER_CONNECT
 * @handle: out: the remote range's handle
 * @bytes: out: the range's size
 * @rights: in: bits of enum tow_right: what the caller will do with it
 * @timeout_ms: in: how long to wait for the name to be exported; 0: not at all;
 *	TOW_WAIT_FOREVER
 * @name_bytes: in: 1 to TOW_EXPORT_NAME_MAX
 * @reserved: in: 0
 * @name: in: as in struct tow_export
 */
struct tow_resolve {
	__u32		size;
	__u32		flags;
	__aligned_u64	peer;
	__aligned_u64	handle;
	__aligned_u64	bytes;
	__u32		rights;
	__u32		timeout_ms;
	__u32		name_bytes;
	__u32		reserved;
	__u8		name[TOW_EXPORT_NAME_MAX + 1];
};

/**
 * TOW_IOCTL_RESOLVE - find an export on a peer by its name in the client's job
 *
 * A peer that is IDLE or DEAD is connected to anew.
 *
 * Errors: ENOENT: no such peer, or, with a @timeout_ms of 0, no such name;
 * ETIMEDOUT: nobody exported the name in time, or, with a @timeout_ms of 0, the peer has
 * not answered a minute after reconnect_timeout_ms; EACCES: the export does not have
 * those rights; EBUSY: NOTIFY: somebody else has the slot; EINVAL: rights as they
 * must not be, a width that is more than there are queue pairs, or than 1 if the peer's
 * module knows of none, or a name; ESTALE: the export ended meanwhile, or that life of
 * the peer is over and another node has its address; ECONNRESET: the connection ended
 * meanwhile; ENOSPC: too many requests wait at the peer, or have found something there;
 * ENOKEY: also if the client has no job without a key (see JOIN); EINTR; EDQUOT, ENOMEM;
 * and those of PEER_CONNECT.
 */
#define TOW_IOCTL_RESOLVE	_IO(TOW_IOCTL_TYPE, TOW_CMD_RESOLVE)

/**
 * struct tow_release - give up a remote range
 * @size: in: sizeof(struct tow_release)
 * @flags: in: 0
 * @handle: in: the remote range's handle
 */
struct tow_release {
	__u32		size;
	__u32		flags;
	__aligned_u64	handle;
};

/**
 * TOW_IOCTL_RELEASE - give up a remote range
 *
 * Errors: ENOENT: this client has no such remote range; ESTALE: its export or
 * its connection had ended (the handle is gone all the same).
 */
#define TOW_IOCTL_RELEASE	_IO(TOW_IOCTL_TYPE, TOW_CMD_RELEASE)

/*
 * Rings
 * -----
 * The memory of a queue is mapped once, whole, from offset 0 of its descriptor:
 *
 *	at 0			struct tow_ring: the indices
 *	at @sqes_offset		@sq_entries times struct tow_sqe
 *	at @cqes_offset		@cq_entries times struct tow_cqe
 *	at @results_offset	TOW_QUEUE_RESULTS: @cq_entries times struct tow_result
 *
 * Indices count from 0 and wrap around at 2^32; entry number I is at index
 * I & (entries - 1), as the numbers of entries are powers of two.
 *
 *	sq_tail		entries that the program has filled in.  It writes them
 *			first, then this, with release order
 *	sq_head		entries that the kernel has taken.  It reads each one once;
 *			when this has passed it the program may write it again
 *	cq_tail		completions that the kernel has written, with release
 *			order; the program reads this with acquire order
 *	cq_head		completions that the program has dealt with, written with
 *			release order
 *	sq_flags	bits of enum tow_ring_flag, which the kernel writes; for a
 *			queue with TOW_QUEUE_POLL.  See "Polling" below
 *
 * The kernel trusts none of what a program can write.  It takes an entry only
 * when there is room for its completion, so completions are never lost: an entry
 * in flight counts as one, one with a time-out as two, and a completion that is not
 * dealt with as one.
 *
 * An entry completes once (or twice: see "Deadlines" below), with what it brought in
 * struct tow_cqe.status: 0, or
 *
 *	EBADF		no such region, remote range, export or channel of this
 *			client
 *	EINVAL		an opcode, flag or channel as it must not be, or that our RDMA
 *			device's driver does not take; a field that is
 *			not used and not 0; a list, or a piece, as it must not be; an
 *			atomic whose 8 bytes are not aligned, at either end; the
 *			remote range, or slot, is not the
 *			channel's peer's; the slot was used on as many other queue
 *			pairs as its width is
 *	ERANGE		not within the region, or not within the remote range
 *	EACCES		the remote range was not resolved with that right, or the
 *			region is READONLY and would be written to; what should be
 *			a slot is none
 *	ETIMEDOUT	it took longer than its @timeout_ms; and see "Connections that
 *			fail" below
 *	EOPNOTSUPP	the device has no atomics, or its driver does not take them;
 *			the list of a vector is in another device's memory
 *	EDQUOT, ENOSPC, ENOMEM	there is no more memory for the list of a vector
 *	EFAULT		the region is INVALID: its exporter has taken the memory back.
 *			How much of it has taken place is not known
 *	ESTALE		the export or its connection had ended before; what was
 *			not on its way yet has not taken place.  WAIT: the export
 *			has ended
 *	ECONNRESET	the connection ended meanwhile, and see "Connections that
 *			fail" below; how much of it has taken place is not known
 *	EIO		the peer's RDMA device refused it, or ours; the connection ends
 *	ECANCELED	not begun: an entry that it was to wait for has failed, or
 *			the client ended.  WRITE_NOTIFY: its slot is closed, see
 *			"Connections that fail" and "Notification"
 *	ENODEV		not begun: the RDMA device is gone
 *	ESHUTDOWN	not begun: an administrator drains the device (see "Draining")
 *
 * Order.  Entries of one channel are sent in their order, and writes take effect
 * at the peer in that order.  A read may take effect later than a write that
 * follows it.  Completions come in no order that is promised; what must follow
 * something else says so by LINK or FENCE.
 *
 * An entry travels on the queue pair of its channel, however large it is.  Who wants
 * several of the peer's at once submits an entry, with a part, on a channel of each; that
 * is in no order, and "Notification" says how all of it is told of.
 *
 * A write may take effect more than once until it completes, so its target is not
 * used for anything else before; and in any order within, so no byte of it
 * tells that the others are there.
 *
 * Vectors
 * -------
 * A WRITE, READ or WRITE_NOTIFY with TOW_SQE_VECTOR moves many pieces, and is one entry in
 * all else: one completion, one deadline, one notification when all of them are there, one
 * place in a chain.  A list says which: an array of struct tow_vector, in a region of the
 * client's, which may be the one that they are in.  Of the entry
 *
 *	vector		is the handle of the region that has the list
 *	vector_offset	is where it begins there, in bytes, a multiple of 8
 *	bytes		is its size: sizeof(struct tow_vector) for each piece, 1 to
 *			TOW_VECTOR_MAX of them
 *
 * and all else is as ever, @region and @remote for all pieces.  Each of them is what an
 * entry of its own could be, but not of 0 bytes; if one is not, the entry ends with what
 * that would have ended with, and nothing is moved.  Pieces are moved in any order, and may
 * be so more than once: where two overlap, at the peer or in what is read, either may be
 * there in the end.  Neighbours are not made one: that is for who writes the list.
 *
 * The list is read once, when the entry is taken: from then on (sq_head has passed it) the
 * program may change it, or give up its region.  It is pool memory, or the process's own
 * that was imported.  While the entry is under way the copy counts against the limits of
 * queue entries, every 8 pieces as one entry; with TOW_QUEUE_POLL it is not charged to a
 * cgroup.
 *
 * Inline data
 * -----------
 * A WRITE or WRITE_NOTIFY with TOW_SQE_INLINE has its data in itself: the first @bytes of
 * @payload, 1 to TOW_INLINE_MAX.  It needs no region.
 *
 * Deadlines
 * ---------
 * An entry with a @timeout_ms that has not completed so many milliseconds after it was
 * taken completes with ETIMEDOUT, soon after.  That says nothing of the connection, and
 * does nothing to it: other entries do not notice.
 *
 *	Nothing of it was sent		It never will be.  It completes once.
 *	Some of it was, or all		TOW_CQE_HELD is set in tow_cqe.flags: the RDMA
 *			device may still read from the region, or write to it, and the
 *			peer's memory may still change.  No more of it is sent.  When
 *			that is over there is a second completion, with the same
 *			@user_data and TOW_CQE_RELEASED: its @status says what has
 *			become of it in the end, and is 0 if all of it has taken place,
 *			ETIMEDOUT if a part was not sent.  It comes when the peer's
 *			device has answered, or when the connection ends.
 *
 * There is one first completion, and one second after it if the first says HELD.  The
 * second comes for a SILENT entry, too, whatever its status.
 *
 * What is linked to it ends with ECANCELED: at once if it had begun; else when those
 * before it are done with.  To a FENCE it has failed if it had not completed, for the
 * first time, when the fence was taken; and until its second completion it is one that
 * the fence waits for.
 *
 * An entry that never was sent keeps its place: so much of the completion ring, what it
 * has of regions that were destroyed meanwhile, and its part in holding up a FENCE are
 * given back when its turn comes.
 *
 * WAIT: ETIMEDOUT says that the slot was not at the number in time.  A queue whose
 * completion ring has one entry takes no time-outs: EINVAL.
 *
 * Connections that fail
 * ---------------------
 * When the connection to a peer fails for a reason that may pass, the nodes make
 * another one, for reconnect_timeout_ms (sysfs, 10 s).  Entries wait meanwhile, those
 * that were begun and those that are submitted; what was found stays found.  Then all
 * goes on: what is known to have taken place completes, and what is not is sent
 * again, in its order, but for atomics, which end with ECONNRESET.  A notification
 * is counted once, however often it was sent.  Exports that were revoked meanwhile end
 * as ever (ESTALE).  An entry that breaks nine connections in a row itself, as nothing
 * of it gets an answer, ends with ETIMEDOUT; how much of it has taken place is not known,
 * and nothing of it is on its way any more.
 *
 * A notification that was on its way, and cannot be sent again, as what it was to
 * write to was revoked, or its queue has ended, closes its slot: later ones end with
 * ECANCELED, so that nobody takes their numbers for the one that is missing.  RELEASE,
 * and RESOLVE anew, opens it.
 *
 * When nobody comes back in time, or another life of the peer does, what was on its way
 * ends with ECONNRESET, what was not with ESTALE.  So it does at once with the node
 * itself as its peer, and when the connection ends for good: idle, by an administrator,
 * as the device goes, or as one end does what it must not.
 *
 * Polling
 * -------
 * A queue made with TOW_QUEUE_POLL needs no call to submit: a thread of the kernel's,
 * one for each client and in the caller's cgroups, looks at sq_tail and takes what is
 * there.  ENTER takes nothing of such a queue: its @to_submit is 0.
 *
 * When it has found no entry for a while (tow_queue_create.idle_us) the thread sets
 * TOW_RING_NEED_WAKEUP in sq_flags of all its queues, and sleeps, also when there are
 * operations on their way.  The kernel sets the bit, has a full barrier, and looks at
 * sq_tail once more.  The program
 *
 *	writes sq_tail, with release order,
 *	has a full barrier (C11: atomic_thread_fence(memory_order_seq_cst)),
 *	reads sq_flags, and calls ENTER if NEED_WAKEUP is set.
 *
 * So one of the two sees the other.  ENTER wakes the thread if there is an entry that
 * was not taken, whatever else it was called for.
 *
 * What has no room for its completion is not taken, and the thread may sleep
 * meanwhile.  So who has dealt with completions while there are entries that were not
 * taken does the same: cq_head, barrier, sq_flags.
 *
 * A chain (LINK) is taken when its last entry, the one without LINK, is there.  One that
 * is longer than the submission ring, or that needs more completions than the completion
 * ring has, never is: ENTER says so (EINVAL), whatever else it was called for.
 *
 * The bit stays set when there is no thread any more, as the client has ended or the
 * RDMA device is gone: ENTER says which (EPERM, ENODEV), and poll(2) says POLLERR and
 * POLLHUP.  What was not taken then never is, so who looks for completions without a
 * call looks at the bit now and then, too.
 *
 * Notification
 * ------------
 * A slot is an export with TOW_RIGHT_NOTIFY: 8 bytes of a region that hold one
 * number, in the processor's byte order: how many notifications have arrived.
 * EXPORT puts 0 there.  The kernel adds one for each, with release order, after
 * all data that came with it, or before it on the same channel, has been placed:
 * a consumer reads the number with acquire order, and then the data.  The number
 * never goes back, and no notification is counted twice.  The kernel never reads
 * it, so a program that writes there deceives only itself.  It stays as it is when
 * the slot ends.
 *
 * RESOLVE with TOW_RIGHT_NOTIFY finds it.  One at a time has a slot: others get
 * EBUSY until it was given back, by RELEASE, or by the end of that client or its
 * connection.  The count goes on from where it was.  Nobody else writes to the
 * number: READ, WRITE and atomics with such a handle are EACCES.
 *
 * WRITE_NOTIFY writes as WRITE does, and then counts one in a slot.  It has
 * succeeded when the peer's RDMA device has all of it; its kernel counts without
 * waiting for a consumer.  A slot's notifications travel on one queue pair, that of
 * the channel it was used with first.  After ECONNRESET it is not known whether it
 * was counted.
 *
 * A notification vouches for nothing that other queue pairs carry, even if that has
 * completed: an RDMA device may place it later.  So what is large, and goes by several
 * queue pairs at once, has a slot with a width: RESOLVE with TOW_RIGHT_NOTIFY_BY(width).
 * Its notifications travel on as many queue pairs, those of the channels it was used
 * with first.  The kernel counts those of each, and the slot's number is the least of
 * these counts.  So a step is one WRITE_NOTIFY by each of these channels, with a part of
 * the data, or none; the number grows when all of the step is there.  If one of them ends
 * with an error the slot closes, as parts of different steps would be counted together:
 * what was not sent by then ends with ECANCELED, be it of that step, of one before or
 * later.  It has closed when that error is told; of a chain that fails, when those of its
 * entries that notify it are told of, too.  What was sent by some of them only when the
 * slot is given back counts for nobody.  Who waits for the number need not know the width.
 *
 * WAIT completes when a slot of the client is at a number or beyond; at once, if it
 * is there already.  It holds back only what LINK or FENCE say: a WRITE that it is
 * linked to begins in the kernel, while the program sleeps.  ECONNRESET says that a
 * peer had the slot, and that the connection has ended before the number was
 * reached, and no other one took its place; a WAIT that begins after that waits for
 * the next one to have it.  So does one whose slot is given back while the connection
 * stays: when whoever had it is killed, or has released it, nobody is told, and the
 * next one counts on.
 *
 * Who sends more than the peer's kernel has room for waits, in the sending kernel.
 * Other queues' operations do not, but for notifications over the same connection,
 * which take turns.
 */

/**
 * struct tow_ring - the indices of a queue
 * @sq_tail: the program's
 * @reserved1: 0
 * @cq_head: the program's
 * @reserved2: 0
 * @sq_head: the kernel's
 * @sq_flags: the kernel's: bits of enum tow_ring_flag
 * @reserved3: 0
 * @cq_tail: the kernel's
 * @reserved4: 0
 *
 * Each has a cache line of its own, but @sq_flags.
 */
struct tow_ring {
	__u32		sq_tail;
	__u32		reserved1[15];
	__u32		cq_head;
	__u32		reserved2[15];
	__u32		sq_head;
	__u32		sq_flags;
	__u32		reserved3[14];
	__u32		cq_tail;
	__u32		reserved4[15];
};

/* Bits of tow_ring.sq_flags. */
enum tow_ring_flag {
	/* nobody looks for entries: ENTER wakes who does */
	TOW_RING_NEED_WAKEUP	= 1 << 0
};

/**
 * enum tow_opcode - what an entry does
 * @TOW_OP_NOP: nothing; completes
 * @TOW_OP_WRITE: write @bytes of a region to a remote range
 * @TOW_OP_READ: read @bytes of a remote range to a region
 * @TOW_OP_FETCH_ADD: add @operand to 8 bytes of a remote range, as one 64-bit
 *	number in the peer's byte order; what was there before comes to 8 bytes of
 *	the region, in this node's
 * @TOW_OP_COMPARE_SWAP: put @operand into 8 bytes of a remote range, if they are
 *	@compare; what was there before comes to the region
 * @TOW_OP_WRITE_NOTIFY: write, as WRITE, and then count one in the slot that
 *	@operand names, a handle from RESOLVE.  With @bytes 0 it only counts, and
 *	@region, @offset, @remote and @remote_offset are 0
 * @TOW_OP_WAIT: wait until a slot of this client, the handle @region from EXPORT,
 *	is at @operand or beyond.  All else is 0
 */
enum tow_opcode {
	TOW_OP_NOP		= 0,
	TOW_OP_WRITE		= 1,
	TOW_OP_READ		= 2,
	TOW_OP_FETCH_ADD	= 3,
	TOW_OP_COMPARE_SWAP	= 4,
	TOW_OP_WRITE_NOTIFY	= 5,
	TOW_OP_WAIT		= 6
};

/* Bits of tow_sqe.flags. */
enum tow_sqe_flag {
	/*
	 * Begins when all earlier entries of the queue have completed; later ones
	 * do not begin before it.  Of an entry in a chain: the chain does.  If
	 * one of those that had not completed when it was taken fails, it ends
	 * with ECANCELED.
	 */
	TOW_SQE_FENCE		= 1 << 0,
	/*
	 * The next entry begins when this one has succeeded; if it fails the rest
	 * of the chain ends with ECANCELED.  A chain ends with the first entry
	 * without LINK, or with the last that one ENTER is to take (see "Polling"
	 * for queues that need none).  It is taken as a whole, when there is room for
	 * all its completions, or not at all.  A chain with an
	 * entry as it must not be is not begun: that entry says why, the others
	 * end with ECANCELED.
	 */
	TOW_SQE_LINK		= 1 << 1,
	/* no completion if it succeeds */
	TOW_SQE_SILENT		= 1 << 2,
	/*
	 * What it moves was copied to where it is sent from, or will be copied from
	 * where it comes: not zero-copy.  Nothing follows from it but that its bytes
	 * are counted when it is taken (stats/copied_bytes in sysfs).  WRITE, READ,
	 * and WRITE_NOTIFY that writes.  (Before version 9 of this header: EINVAL)
	 */
	TOW_SQE_COPIED		= 1 << 3,
	/*
	 * it moves many pieces: see "Vectors" above.  WRITE, READ, WRITE_NOTIFY.  (Before
	 * version 16 of this header: EINVAL)
	 */
	TOW_SQE_VECTOR		= 1 << 4,
	/*
	 * its data is in itself: see "Inline data" above.  WRITE, and WRITE_NOTIFY that
	 * writes; without VECTOR.  (Before version 17 of this header: EINVAL)
	 */
	TOW_SQE_INLINE		= 1 << 5
};

/* Bytes of inline data, at most. */
#define TOW_INLINE_MAX	16

/* Pieces of a vector, at most. */
#define TOW_VECTOR_MAX		4096

/**
 * struct tow_vector - a piece of an entry with TOW_SQE_VECTOR
 * @offset: in the entry's region, in bytes
 * @remote_offset: in its remote range, in bytes
 * @bytes: how much, at least 1
 */
struct tow_vector {
	__aligned_u64	offset;
	__aligned_u64	remote_offset;
	__aligned_u64	bytes;
};

/**
 * struct tow_sqe - an entry of the submission ring
 * @opcode: enum tow_opcode
 * @flags: bits of enum tow_sqe_flag
 * @channel: from CHANNEL_OPEN
 * @timeout_ms: how long it may take, in milliseconds from when it is taken: see
 *	"Deadlines" above; 0: as long as it takes.  (Before version 7 of this header: 0)
 * @user_data: comes back in the completion
 * @region: handle of a region; WAIT: of an export
 * @offset: in the region, in bytes
 * @vector: VECTOR: handle of the region that has the list
 * @payload: INLINE: the data
 * @remote: handle of a remote range
 * @remote_offset: in the remote range, in bytes
 * @vector_offset: VECTOR: where the list begins in @vector, in bytes
 * @bytes: WRITE, READ: how much; 0: only checked.  WRITE_NOTIFY: how much.  VECTOR: size
 *	of the list.  INLINE: at least 1
 * @compare: COMPARE_SWAP
 * @operand: FETCH_ADD, COMPARE_SWAP; WRITE_NOTIFY: handle of a slot; WAIT: the
 *	number; else 0
 *
 * NOP: all but @opcode, @flags, @timeout_ms and @user_data is 0.
 */
struct tow_sqe {
	__u8		opcode;
	__u8		flags;
	__u16		channel;
	__u32		timeout_ms;
	__aligned_u64	user_data;

	/* private: for C99, which has no unnamed unions */
	__extension__
	/* public: */
	union {
		/* private: likewise */
		__extension__
		/* public: */
		struct {
			__aligned_u64	region;

			/* private: likewise */
			__extension__
			/* public: */
			union {
				__aligned_u64	offset;
				__aligned_u64	vector;
			};
		};
		__u8	payload[TOW_INLINE_MAX];
	};
	__aligned_u64	remote;

	/* private: likewise */
	__extension__
	/* public: */
	union {
		__aligned_u64	remote_offset;
		__aligned_u64	vector_offset;
	};

	/* private: likewise */
	__extension__
	/* public: */
	union {
		__aligned_u64	bytes;
		__aligned_u64	compare;
	};
	__aligned_u64	operand;
};

/* Bits of tow_cqe.flags: see "Deadlines" above. */
enum tow_cqe_flag {
	/* it was late and is not over: another completion will say that it is */
	TOW_CQE_HELD		= 1 << 0,
	/* that other completion */
	TOW_CQE_RELEASED	= 1 << 1,
	/* QUEUE_RESOLVE has found something: there is a struct tow_result */
	TOW_CQE_FOUND		= 1 << 2,
	/* QUEUE_RESOLVE has connected: likewise */
	TOW_CQE_CONNECTED	= 1 << 3
};

/**
 * struct tow_cqe - an entry of the completion ring
 * @user_data: of the entry that has completed
 * @status: 0, or a negative errno
 * @flags: bits of enum tow_cqe_flag; HELD and RELEASED: only of an entry with a time-out
 */
struct tow_cqe {
	__aligned_u64	user_data;
	__s32		status;
	__u32		flags;
};

/**
 * struct tow_result - what a completion of QUEUE_RESOLVE has found
 * @handle: TOW_CQE_FOUND: the remote range's handle; TOW_CQE_CONNECTED: the peer's
 *	number; else 0
 * @bytes: TOW_CQE_FOUND: the range's size; else 0
 *
 * Written before the completion, and by no other one.
 */
struct tow_result {
	__aligned_u64	handle;
	__aligned_u64	bytes;
};

/* Entries of a submission ring, and of a completion ring, at most. */
#define TOW_SQ_ENTRIES_MAX	32768
#define TOW_CQ_ENTRIES_MAX	65536

/* Channels of a queue, at most. */
#define TOW_CHANNELS_MAX	16384

/* Slots of a device, at most. */
#define TOW_SLOTS_MAX		1048576

/* Bits of tow_queue_create.flags. */
enum tow_queue_flag {
	/* entries are taken without a call: see "Polling" above */
	TOW_QUEUE_POLL		= 1 << 0,
	/*
	 * for QUEUE_RESOLVE: completions have a struct tow_result.  (Before version
	 * 13 of this header: EINVAL)
	 */
	TOW_QUEUE_RESULTS	= 1 << 1
};

/* How long a thread looks for entries in vain, in microseconds: by default, at most. */
#define TOW_POLL_IDLE_US	1000
#define TOW_POLL_IDLE_MAX_US	1000000

/**
 * struct tow_queue_create - a queue
 * @size: in: sizeof(struct tow_queue_create); out: bytes filled in
 * @flags: in: bits of enum tow_queue_flag
 * @sq_entries: in: entries of the submission ring, 1 to TOW_SQ_ENTRIES_MAX; out:
 *	the same, rounded up to a power of two
 * @cq_entries: in: entries of the completion ring, @sq_entries to
 *	TOW_CQ_ENTRIES_MAX; 0: twice @sq_entries; out: rounded up, too.  What may
 *	be in flight, and what counts against the limits
 * @map_bytes: out: what is to be mapped
 * @sqes_offset: out: where the submission ring begins
 * @cqes_offset: out: where the completion ring begins
 * @fd: out: the queue: a new descriptor, closed on exec
 * @idle_us: in: POLL: how long after the last entry of this queue the thread goes on
 *	looking, in microseconds, at most TOW_POLL_IDLE_MAX_US; 0: TOW_POLL_IDLE_US.
 *	It looks for as long as one of its queues wants it to.  Otherwise 0.  out: the
 *	same, with the default filled in
 * @results_offset: out: RESULTS: where the results begin: an array of struct
 *	tow_result, one for each entry of the completion ring, at the same index; else 0
 * @reserved: in: 0
 */
struct tow_queue_create {
	__u32		size;
	__u32		flags;
	__u32		sq_entries;
	__u32		cq_entries;
	__aligned_u64	map_bytes;
	__u32		sqes_offset;
	__u32		cqes_offset;
	__s32		fd;
	__u32		idle_us;
	__u32		results_offset;
	__u32		reserved;
};

/**
 * TOW_IOCTL_QUEUE_CREATE - make a queue
 *
 * It belongs to the client, and ends with it, or when its descriptor is closed:
 * then what has not begun ends with ECANCELED, and what has is waited for by the
 * kernel alone.  A child of the process does not get the mapping, and its calls
 * are refused with EPERM.  mmap(2) takes all of it, from offset 0, with
 * MAP_SHARED (EINVAL otherwise).
 *
 * poll(2) of the descriptor says POLLIN when there are completions, POLLPRI when
 * something has happened to a peer (QUEUE_EVENT), POLLOUT when there is room for the
 * completion of another entry (since version 15 of this header; who waits is not woken by
 * what the program itself deals with), and POLLERR and POLLHUP when the client has ended
 * or the RDMA device is gone.
 *
 * POLL is for who has CAP_SYS_NICE in the initial user namespace.  Clients without it
 * may have as many threads together as the device's file poller_limit says, at first
 * none.  The thread is made with the client's first such queue, and ends with the
 * client.
 *
 * Errors: EINVAL: a number of entries, @idle_us or @reserved as it must not be; EPERM: POLL:
 * the caller does not have CAP_SYS_NICE, and poller_limit is 0; EMFILE, ENFILE: no
 * descriptor is left; EDQUOT, ENOSPC (POLL: also where poller_limit is reached), ENOMEM;
 * EINTR: POLL: the caller was killed meanwhile.
 */
#define TOW_IOCTL_QUEUE_CREATE	_IO(TOW_IOCTL_TYPE, TOW_CMD_QUEUE_CREATE)

/* Any queue pair: the kernel takes one after the other. */
#define TOW_CHANNEL_ANY		0xffffffffU

/*
 * Only if the peer is connected now, without waiting.  (Before version 14 of this header:
 * EINVAL)
 */
#define TOW_CHANNEL_CONNECTED	1U

/**
 * struct tow_channel_open - a channel to a peer
 * @size: in: sizeof(struct tow_channel_open); out: bytes filled in
 * @flags: in: 0 or TOW_CHANNEL_CONNECTED
 * @peer: in: the peer's number, from PEER_CONNECT
 * @qp: in: which of its data queue pairs, counted from 0, or TOW_CHANNEL_ANY;
 *	out: which
 * @channel: out: for tow_sqe.channel
 * @qps: out: how many data queue pairs there are
 * @reserved: in: 0
 */
struct tow_channel_open {
	__u32		size;
	__u32		flags;
	__aligned_u64	peer;
	__u32		qp;
	__u32		channel;
	__u32		qps;
	__u32		reserved;
};

/**
 * TOW_IOCTL_CHANNEL_OPEN - a way to a peer, for a queue's entries
 *
 * A call on the queue's descriptor.  The same queue, peer and queue pair give the
 * same channel; it is there until CHANNEL_CLOSE, or for as long as the queue is.  It
 * stays when the connection is made anew; if there are fewer queue pairs then, channels
 * share them.  A peer that is IDLE or DEAD is connected to anew.
 *
 * Errors: ENOENT: no such peer; EINVAL: @qp is beyond its queue pairs; ESTALE:
 * that life of the peer is over; EPERM: the client has ended; ENOSPC:
 * TOW_CHANNELS_MAX are open; ENOTCONN: CONNECTED, and the peer is not; ENOMEM; and
 * those of PEER_CONNECT.
 */
#define TOW_IOCTL_CHANNEL_OPEN	_IO(TOW_IOCTL_TYPE, TOW_CMD_CHANNEL_OPEN)

/**
 * struct tow_channel_close - give a channel up
 * @size: in: sizeof(struct tow_channel_close)
 * @flags: in: 0
 * @channel: in: from CHANNEL_OPEN
 * @reserved: in: 0
 */
struct tow_channel_close {
	__u32		size;
	__u32		flags;
	__u32		channel;
	__u32		reserved;
};

/**
 * TOW_IOCTL_CHANNEL_CLOSE - give a channel up
 *
 * A call on the queue's descriptor.  It ends the channel however often it was opened.
 * The next CHANNEL_OPEN may give the same number to another one, so entries that were
 * not taken should not name it.  The connection stays, and what was found by it.  What
 * has happened to the peer is told (QUEUE_EVENT) if the queue has another channel to it.
 *
 * Errors: ENOENT: the queue has no such channel; EBUSY: an entry that names it was
 * taken and has not completed, or it was late, and is HELD or has its place (see
 * "Deadlines" above): nothing has happened; EPERM: the client has ended.
 */
#define TOW_IOCTL_CHANNEL_CLOSE	_IO(TOW_IOCTL_TYPE, TOW_CMD_CHANNEL_CLOSE)

/* Bits of tow_enter.flags.  (Before version 15 of this header: EINVAL) */
enum tow_enter_flag {
	/* wait for completions after @since, whoever has dealt with them meanwhile */
	TOW_ENTER_SINCE		= 1 << 0,
	/*
	 * If there is no room for the first chain, and all completions are dealt with,
	 * wait until entries that complete without a word have made room
	 */
	TOW_ENTER_ROOM		= 1 << 1
};

/**
 * struct tow_enter - submit entries, and wait for completions
 * @size: in: sizeof(struct tow_enter)
 * @flags: in: bits of enum tow_enter_flag
 * @to_submit: in: entries to take, at most; those between sq_head and sq_tail
 *	are there to be taken.  0 for a queue with TOW_QUEUE_POLL
 * @min_complete: in: completions to wait for: until as many are there that the
 *	program has not dealt with; 0: not at all.  At most the entries of the
 *	completion ring
 * @timeout_us: in: how long to wait, for room and completions, in microseconds;
 *	TOW_WAIT_FOREVER
 * @since: in: SINCE: a value of cq_tail: as many completions as @min_complete says are
 *	to be written after it; otherwise 0
 */
struct tow_enter {
	__u32		size;
	__u32		flags;
	__u32		to_submit;
	__u32		min_complete;
	__u32		timeout_us;
	__u32		since;
};

/**
 * TOW_IOCTL_ENTER - submit entries, and wait for completions
 *
 * A call on the queue's descriptor.  Answers the number of entries that were
 * taken, which is less than @to_submit if there were no more, or if there was no
 * room for more completions, of a chain for all of its own.  If one was taken, that
 * number is the answer also where waiting ends with one of the errors below.
 *
 * Of a queue with TOW_QUEUE_POLL nothing is taken here: if there are entries that were
 * not taken, the thread that takes them is woken, and waiting is as for others.
 *
 * Errors: EBUSY: none was taken, as there is no room for its completion, and, with
 * ROOM, there are completions to be dealt with;
 * ETIMEDOUT: none was to be taken, and there were not enough completions in
 * time, or there was no room in time; EINTR: the same, and a signal came; EINVAL:
 * @flags or @since are not as above, or ROOM was asked for with TOW_QUEUE_POLL,
 * @min_complete is beyond the
 * completion ring, or the first chain needs more completions than that has, or
 * @to_submit is not 0 and the queue has TOW_QUEUE_POLL; EPERM: the client has ended.
 */
#define TOW_IOCTL_ENTER		_IO(TOW_IOCTL_TYPE, TOW_CMD_ENTER)

/**
 * enum tow_queue_event_what - what has happened to a peer
 * @TOW_QUEUE_EVENT_BROKEN: its connection failed, or it has been silent for too long.
 *	Operations wait, for reconnect_timeout_ms at most
 * @TOW_QUEUE_EVENT_BACK: they go on, over another connection
 * @TOW_QUEUE_EVENT_LOST: they have ended, ECONNRESET or ESTALE, or are about to, and
 *	all that was resolved there until @lost_ns is stale
 */
enum tow_queue_event_what {
	TOW_QUEUE_EVENT_BROKEN	= 1 << 0,
	TOW_QUEUE_EVENT_BACK	= 1 << 1,
	TOW_QUEUE_EVENT_LOST	= 1 << 2
};

/**
 * struct tow_queue_event - something has happened to a peer
 * @size: in: sizeof(struct tow_queue_event); out: bytes filled in
 * @flags: in: 0
 * @peer: out: its number; 0: nothing has happened, and what follows is 0
 * @what: out: bits of enum tow_queue_event_what: all that has happened since the
 *	program was told last
 * @error: out: why, the last time, a negative errno.  ETIMEDOUT: it was silent;
 *	ECONNRESET: the connection failed, or no other one took its place in time; 0:
 *	that was wanted; and others of tow_peer_info.last_error
 * @state: out: enum tow_peer_state, now: whether operations wait, if it has broken and
 *	come back more than once
 * @scope_id: out: as in struct tow_peer_connect
 * @broken_ns: out: when it broke last, CLOCK_MONOTONIC in nanoseconds; 0: never
 * @lost_ns: out: when it was lost last; likewise
 * @address: out: where it was found, or where it came from
 * @incarnation: out: names that life of its device
 * @port: out: where it listens; 0: not known
 * @reserved: out: 0
 */
struct tow_queue_event {
	__u32		size;
	__u32		flags;
	__aligned_u64	peer;
	__u32		what;
	__s32		error;
	__u32		state;
	__u32		scope_id;
	__aligned_u64	broken_ns;
	__aligned_u64	lost_ns;
	__u8		address[TOW_ADDRESS_BYTES];
	__u8		incarnation[TOW_INCARNATION_BYTES];
	__u16		port;
	__u16		reserved[3];
};

/**
 * TOW_IOCTL_QUEUE_EVENT - has something happened to a peer?
 *
 * A call on the queue's descriptor, about peers that it has channels to; it does not
 * wait, poll(2) does (POLLPRI).  Each call tells of one peer, what happened first is
 * not told first, and what happened twice since the last time is told once.  If two
 * threads call at once both may be told the same.  What happened before the channel was
 * opened is not told, even if there was another one to that peer until then, nor that an
 * idle connection went that nobody used, nor what becomes of this node's own RDMA device
 * (POLLERR).
 *
 * Errors: EPERM: the caller is not the client's process.
 */
#define TOW_IOCTL_QUEUE_EVENT	_IO(TOW_IOCTL_TYPE, TOW_CMD_QUEUE_EVENT)

/* Requests that one QUEUE_RESOLVE takes, at most. */
#define TOW_QUEUE_RESOLVE_MAX	1024

/**
 * struct tow_resolve_request - a name that is looked for, or a peer that is connected to
 * @user_data: in: comes back in the completion
 * @peer: in: as in struct tow_resolve; 0: the peer at @address is connected to
 * @name: in: address of the name; without @peer it is 0, as are @name_bytes and @rights
 * @name_bytes: in: as in struct tow_resolve, as are the next two
 * @rights: in
 * @timeout_ms: in; without @peer as in struct tow_peer_connect
 * @reserved: in: 0
 * @address: in: as in struct tow_peer_connect, as are the next two; all are 0 with @peer
 * @scope_id: in
 * @port: in
 * @reserved1: in: 0
 */
struct tow_resolve_request {
	__aligned_u64	user_data;
	__aligned_u64	peer;
	__aligned_u64	name;
	__u32		name_bytes;
	__u32		rights;
	__u32		timeout_ms;
	__u32		reserved;
	__u8		address[TOW_ADDRESS_BYTES];
	__u32		scope_id;
	__u16		port;
	__u16		reserved1;
};

/**
 * struct tow_queue_resolve - look for many names, without waiting
 * @size: in: sizeof(struct tow_queue_resolve)
 * @flags: in: 0
 * @requests: in: address of an array of struct tow_resolve_request
 * @count: in: how many, 1 to TOW_QUEUE_RESOLVE_MAX
 * @request_size: in: sizeof(struct tow_resolve_request)
 */
struct tow_queue_resolve {
	__u32		size;
	__u32		flags;
	__aligned_u64	requests;
	__u32		count;
	__u32		request_size;
};

/**
 * TOW_IOCTL_QUEUE_RESOLVE - look for many names, without waiting
 *
 * A call on the descriptor of a queue with TOW_QUEUE_RESULTS.  Each request is a
 * RESOLVE, and has one completion, in any order, when RESOLVE would return: @status
 * is its error, or 0, then with TOW_CQE_FOUND, and struct tow_result has the handle.
 * Names of one peer share messages, as do their answers.  A request is no entry of the
 * submission ring: a FENCE does not wait for it.
 *
 * A request without a peer is a PEER_CONNECT without settings: its completion has
 * TOW_CQE_CONNECTED and the peer's number, or one of the errors of that.  As many as may
 * be are connected to at the same time, and others have their turn, 1,024 of a user.
 *
 * Answers how many requests were begun: those whose completions have room in the
 * completion ring; or as many as could be read.  When the queue ends, those that have
 * no answer end with ECANCELED, or ENODEV, and nothing was found.  When the descriptor is
 * closed, the handles in completions from @cq_head on are given up: where the program has
 * taken one over, and not gone on, it writes 0 there.
 *
 * Errors: EBUSY: none was begun, as there is no room for its completion; EFAULT;
 * EINVAL: @count or @request_size, or the queue has no results; EPERM: the client has
 * ended.  In completions, beside those of RESOLVE but EINTR: EFAULT: @name;
 * ECANCELED, ENODEV: the queue has ended.
 */
#define TOW_IOCTL_QUEUE_RESOLVE	_IO(TOW_IOCTL_TYPE, TOW_CMD_QUEUE_RESOLVE)

#endif /* _UAPI_TOWLINE_H */

/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * libtowline: queues, which carry reads, writes and atomics to peers.
 *
 * A queue is two rings in memory that the program and the kernel share: entries
 * that the program submits, and completions that the kernel answers with.  There
 * are two ways to use one, and a queue is used in one of them only:
 *
 *	Entries of one's own: take an entry with tow_queue_get_sqe(), say what it
 *	is to do with tow_prep_write() and its like, hand over everything that was
 *	taken with tow_queue_submit(), and find completions with
 *	tow_queue_wait_cqe() or tow_queue_peek_cqe(); say with tow_queue_cqe_seen()
 *	that one has been dealt with.  All but submitting and waiting happens in
 *	this header and makes no call.  With TOW_QUEUE_POLL submitting makes none,
 *	either, while the kernel's thread that takes entries is awake.
 *
 *	tow_memcpy(), which calls a function of the program's when a copy has ended;
 *	tow_queue_progress() is where that happens.
 *
 * Threads.  With entries of one's own a queue has two sides: entries, up to
 * tow_queue_submit(), and completions.  One thread at a time may be at each, and
 * tow_queue_submit_and_wait() is of the first.  tow_memcpy(), tow_queue_progress(),
 * tow_channel_get() and tow_channel_put() may be called by any number of threads at once.
 *
 * fork(2).  A child has no part in its parent's queues: functions that can fail
 * return -EPERM there, tow_queue_get_sqe() has no entry, and tow_queue_destroy()
 * gives back what the child had of it and harms nobody.  Entries and completions
 * that were taken before are not in the child's memory.
 *
 * <towline/uapi.h> says what an entry may be, what a completion tells, and what is
 * promised about order (section "Rings").
 */
#ifndef TOW_QUEUE_H
#define TOW_QUEUE_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <towline/barrier.h>
#include <towline/towline.h>
#include <towline/uapi.h>

#ifdef __cplusplus
/* Some functions are called like the structure of the kernel's call. */
#ifdef __GNUC__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif
extern "C" {
#endif

/**
 * struct tow_queue - a queue, as far as this header reads and writes it
 * @ring: the indices
 * @sqes: the submission ring
 * @cqes: the completion ring
 * @sq_entries: how many @sqes, a power of two
 * @cq_entries: how many @cqes, a power of two
 * @sq_tail: the entry that is taken next
 * @sq_head: up to where the kernel had taken entries when somebody last looked
 * @reserved1: 0
 * @cq_head: the completion that is dealt with next
 * @cq_tail: up to where the kernel had written when somebody last looked
 * @flags: bits of enum tow_queue_flag
 *
 * Made by tow_queue_create(), ended by tow_queue_destroy().  The fields are for the
 * functions of this header; later versions add some at the end only.  In a child
 * that was forked all of them are 0.
 */
struct tow_queue {
	struct tow_ring *ring;
	struct tow_sqe *sqes;
	struct tow_cqe *cqes;
	uint32_t sq_entries;
	uint32_t cq_entries;
	uint32_t sq_tail;
	uint32_t sq_head;
	/* So that one thread may submit while another waits: a line for each. */
	uint32_t reserved1[6];
	uint32_t cq_head;
	uint32_t cq_tail;
	uint32_t flags;
};

/**
 * struct tow_queue_attr - what a queue is to be like
 * @size: sizeof(struct tow_queue_attr), as the caller was compiled
 * @flags: TOW_QUEUE_POLL: a thread of the kernel's takes its entries;
 *	TOW_QUEUE_RESULTS: it is for tow_queue_resolve(); or 0
 * @idle_us: POLL: how long after the last entry it goes on looking for more, in
 *	microseconds, at most TOW_POLL_IDLE_MAX_US; 0: TOW_POLL_IDLE_US.  Otherwise 0
 *
 * Later versions of the library add fields at the end only.
 */
struct tow_queue_attr {
	uint32_t size;
	uint32_t flags;
	uint32_t idle_us;
};

/**
 * struct tow_channel - a way to a peer, for the entries of one queue
 * @queue: whose
 * @number: for tow_sqe.channel
 * @qp: which of the peer's data queue pairs, counted from 0
 * @qps: how many data queue pairs the peer had when the channel was got
 *
 * Got by tow_channel_get(), and there until it is given back by tow_channel_put(), or for
 * as long as @queue is.
 */
struct tow_channel {
	struct tow_queue *queue;
	uint32_t number;
	uint32_t qp;
	uint32_t qps;
};

/**
 * struct tow_name - a name that is looked for
 * @user_data: comes back in the completion
 * @peer: where: as for tow_resolve(), as are the others
 * @name: what name
 * @rights: bits of enum tow_right
 * @timeout_ms: how long to wait for somebody to export it
 * @flags: 0
 * @reserved: 0
 */
struct tow_name {
	uint64_t user_data;
	const struct tow_peer *peer;
	const char *name;
	uint32_t rights;
	uint32_t timeout_ms;
	uint32_t flags;
	uint32_t reserved;
};

/**
 * struct tow_node - a node that is to be connected to
 * @user_data: comes back in the completion
 * @address: where: as for tow_peer_connect(), as is the next one
 * @timeout_ms: how long it may take
 * @reserved: 0
 */
struct tow_node {
	uint64_t user_data;
	const char *address;
	uint32_t timeout_ms;
	uint32_t reserved;
};

/* ---- a queue, and its channels ---- */

/**
 * tow_queue_create() - make a queue
 * @dev: from tow_device_open()
 * @sq_entries: entries that can be filled in before they are submitted: 1 to
 *	TOW_SQ_ENTRIES_MAX, rounded up to a power of two
 * @cq_entries: entries that can be in flight: @sq_entries to TOW_CQ_ENTRIES_MAX,
 *	rounded up, too; 0: twice @sq_entries
 * @queue: where to put the queue; the caller ends it with tow_queue_destroy().
 *	Left alone on failure.
 *
 * Entries that have been taken by the kernel are in flight until their completion
 * has been dealt with.  They count against limits of the client, its user and the
 * device.
 *
 * Return: 0; -EINVAL when @dev or @queue is NULL, or a number of entries is not as
 * above; -EDQUOT, -ENOSPC or -ENOMEM when there is no more of something, for this
 * user, on this device or on this machine; -EMFILE or -ENFILE; -EPERM when another
 * process opened the device; -ENODEV; -EPROTONOSUPPORT.
 */
int tow_queue_create(struct tow_device *dev, uint32_t sq_entries, uint32_t cq_entries,
		     struct tow_queue **queue);

/**
 * tow_queue_create_with() - make a queue that is not as others are
 * @dev: as for tow_queue_create()
 * @sq_entries: as there
 * @cq_entries: as there
 * @attr: how it is to be; NULL: as one of tow_queue_create()
 * @queue: as there
 *
 * With TOW_QUEUE_POLL tow_queue_submit() makes a call only if the kernel's thread has
 * to be woken: it sleeps when it has found nothing for @attr->idle_us.  The thread is
 * one for each open device, takes its time from the caller's cgroups, and ends with
 * tow_device_close() or the process.  Waiting is as for other queues.
 *
 * Return: as tow_queue_create(); also -EINVAL when @attr is not as above, or the module
 * is older than this; -E2BIG when @attr asks for what this library does not know;
 * -EPERM when the caller has no CAP_SYS_NICE, and the administrator gave pollers to
 * nobody without it (poller_limit in sysfs); -ENOSPC when others have all of them.
 */
int tow_queue_create_with(struct tow_device *dev, uint32_t sq_entries, uint32_t cq_entries,
			  const struct tow_queue_attr *attr, struct tow_queue **queue);

/**
 * tow_queue_destroy() - end a queue, and its channels
 * @queue: from tow_queue_create(), or NULL
 *
 * Comes before tow_device_close().  What is in flight may still be carried out, and
 * nobody is told: memory that it reads or writes is not reused before it has
 * completed, so wait for it first.  tow_memcpy()'s functions are not called any
 * more.
 */
void tow_queue_destroy(struct tow_queue *queue);

/**
 * tow_queue_fd() - a queue's descriptor, for poll(2)
 * @queue: from tow_queue_create()
 *
 * POLLIN: there are completions; POLLOUT: there is room for the completion of another
 * entry; POLLPRI: tow_queue_event() has something to tell;
 * POLLERR and POLLHUP: the client has ended, or the RDMA device is gone.  The descriptor
 * stays the queue's.
 *
 * Return: the descriptor; -EINVAL when @queue is NULL.
 */
int tow_queue_fd(const struct tow_queue *queue);

/**
 * tow_queue_resolve() - look for many names, without waiting
 * @queue: from tow_queue_create_with(), with TOW_QUEUE_RESULTS
 * @names: the names, which may be of several peers; not needed after the call
 * @count: how many
 *
 * Each of @names that was begun has one completion, in any order, when tow_resolve()
 * would return: tow_queue_found() says what it has found.  They are no entries of the
 * submission ring: fences do not wait for them, and any thread may call this.  Names of
 * one peer share messages.
 *
 * Return: how many of @names were begun, from the first on: those whose completions have
 * room in the completion ring; -EBUSY when there is no room for one; -EINVAL when an
 * argument is NULL, @count is 0, @queue has no results, or a name or its peer is NULL or
 * of another device, or its @flags or @reserved is not 0; -EPERM in a child, or when the
 * client has ended; -ESHUTDOWN when an administrator drains the device; -ENODEV.
 */
int tow_queue_resolve(struct tow_queue *queue, const struct tow_name *names, uint32_t count);

/**
 * tow_queue_found() - what a name's completion has found
 * @queue: the queue
 * @cqe: from tow_queue_cqe(), of tow_queue_resolve(), before tow_queue_advance(); where
 *	it is, no copy
 * @remote: where to put the remote range; the caller gives it up with
 *	tow_remote_release().  Left alone on failure.
 *
 * Called once for each completion.  What was found and not asked for before
 * tow_queue_advance() stays until the device is closed; what the queue still has at its end
 * is given up.
 *
 * Return: 0; the errors of tow_resolve(), but -EINTR; -ECANCELED when the queue has ended
 * before; -EINVAL when an argument is NULL, @queue has no results, @cqe is not in it or
 * has found nothing, or this was called before; -ENOMEM: it may be called again; -EPERM in
 * a child.
 */
int tow_queue_found(const struct tow_queue *queue, const struct tow_cqe *cqe,
		    struct tow_remote **remote);

/**
 * tow_queue_connect() - connect to many nodes, without waiting
 * @queue: from tow_queue_create_with(), with TOW_QUEUE_RESULTS
 * @nodes: the nodes; not needed after the call
 * @count: how many
 *
 * Each of @nodes that was begun has one completion, in any order, when tow_peer_connect()
 * without settings would return: tow_queue_connected() says which peer it is.  Otherwise
 * as tow_queue_resolve().  A host's name is looked up in the call.  More than 1,024 nodes
 * of a user that are not connected complete with -EAGAIN.
 *
 * Return: how many of @nodes were begun, from the first on: those before one whose address
 * is none, or whose completion has no room; if that is the first: -EBUSY when there is no
 * room; -EINVAL when its address is NULL or none, or its @reserved is not 0; what else
 * tow_peer_connect() says of an address; -EINVAL when an argument is NULL, @count is 0, or
 * @queue has no results; -EPERM in a child, or when the client has ended; -ESHUTDOWN when
 * an administrator drains the device; -ENODEV.
 */
int tow_queue_connect(struct tow_queue *queue, const struct tow_node *nodes, uint32_t count);

/**
 * tow_queue_connected() - which peer a node's completion has connected to
 * @queue: the queue
 * @cqe: from tow_queue_cqe(), of tow_queue_connect(), before tow_queue_advance(); where it
 *	is, no copy
 * @peer: where to put the peer, freed by tow_peer_release().  Left alone on failure.
 *
 * Return: 0; the errors of tow_peer_connect(), but -EINTR; -ECANCELED when the queue has
 * ended before; -EINVAL when an argument is NULL, @queue has no results, or @cqe is not in
 * it or has not connected; -ENOMEM; -EPERM in a child.
 */
int tow_queue_connected(const struct tow_queue *queue, const struct tow_cqe *cqe,
			struct tow_peer **peer);

/**
 * tow_queue_event() - has something happened to a peer?
 * @queue: from tow_queue_create()
 * @event: where to tell it; @event->size is sizeof(struct tow_queue_event)
 *
 * Peers that @queue has channels to: their connections break, what was begun goes on
 * over another one, or has ended and all that was resolved there is stale.  Does not wait;
 * poll(2) of the descriptor does, for POLLPRI.  <towline/uapi.h> says what an event is.
 * May be called by any number of threads, of which several may be told the same.
 *
 * Return: 1: @event tells of one peer; there may be more to tell; 0: nothing has happened;
 * -EINVAL when @queue or @event is NULL, or @event->size too small; -EPERM in a child;
 * -ENODEV; -EPROTONOSUPPORT.
 */
int tow_queue_event(struct tow_queue *queue, struct tow_queue_event *event);

/**
 * tow_channel_get() - a way to a peer
 * @queue: for whose entries
 * @peer: of the device that @queue is of
 * @qp: which of the peer's data queue pairs, counted from 0, or TOW_CHANNEL_ANY: the
 *	kernel takes one after the other
 * @channel: where to put the channel, which is the queue's and ends with it, or when
 *	all who got it have given it back with tow_channel_put().  Left alone on failure.
 *
 * Entries of one channel are sent in their order, and channels of different queue
 * pairs do not wait for each other.  The same queue, peer and queue pair give the
 * same channel.  It stays when the connection to the peer is made anew; a peer that
 * is not connected is connected to.
 *
 * Implements "get channel" of Xue et al., EuroSys '19, section 3 (remote endpoint
 * and queue pair index), which takes no time here: the node is connected already.
 *
 * Return: 0; -EINVAL when @queue, @peer or @channel is NULL, @peer is another
 * device's, or it has no queue pair @qp; -ENOENT when the peer is not known any
 * more; -ECONNRESET when the connection ended meanwhile; -ENOSPC when the queue has
 * TOW_CHANNELS_MAX channels; -EPERM; -ENOMEM; -ENODEV; and what tow_peer_connect()
 * returns when it cannot connect.
 */
int tow_channel_get(struct tow_queue *queue, const struct tow_peer *peer, uint32_t qp,
		    struct tow_channel **channel);

/**
 * tow_channel_put() - give a channel back
 * @channel: from tow_channel_get(), once for each time that it gave it; or NULL
 *
 * Who has given it back prepares no entries with it any more, and has handed over those
 * that he had prepared, which are carried out.  When nobody has it, and its entries have
 * completed, it ends: the queue has room for another one, and tow_queue_event() does not
 * tell of the peer if there is no other channel to it.  If entries are under way at that
 * moment a later tow_channel_put() or tow_channel_get() of the queue ends it.
 *
 * A module that is older than this call keeps channels until the queue ends.
 *
 * Return: 0; -EPERM in a child, where nothing has changed.
 */
int tow_channel_put(struct tow_channel *channel);

/* ---- entries ---- */

/**
 * tow_queue_get_sqe() - take the next entry, to fill it in
 * @queue: from tow_queue_create()
 *
 * The entry holds what it held last; the tow_prep functions set all of it.  Entries
 * are submitted in the order in which they were taken.
 *
 * Return: the entry, the queue's, for use until it is submitted; NULL when all are
 * taken and none was submitted.
 */
static inline struct tow_sqe *tow_queue_get_sqe(struct tow_queue *queue)
{
	uint32_t tail = queue->sq_tail;

	/* Looked up only when it matters: the kernel's line is not disturbed. */
	if (tail - queue->sq_head >= queue->sq_entries) {
		if (!queue->ring)
			return NULL;
		queue->sq_head = tow_load_acquire(&queue->ring->sq_head);
		if (tail - queue->sq_head >= queue->sq_entries)
			return NULL;
	}
	queue->sq_tail = tail + 1;
	return &queue->sqes[tail & (queue->sq_entries - 1)];
}

/* What regions and remote ranges begin with: the kernel's handle. */
static inline uint64_t tow_handle_of(const void *object)
{
	return object ? *(const uint64_t *)object : 0;
}

/**
 * tow_prep_nop() - an entry that does nothing, and completes
 * @sqe: from tow_queue_get_sqe()
 */
static inline void tow_prep_nop(struct tow_sqe *sqe)
{
	sqe->opcode = TOW_OP_NOP;
	sqe->flags = 0;
	sqe->channel = 0;
	sqe->timeout_ms = 0;
	sqe->user_data = 0;
	sqe->region = 0;
	sqe->offset = 0;
	sqe->remote = 0;
	sqe->remote_offset = 0;
	sqe->bytes = 0;
	sqe->operand = 0;
}

/**
 * tow_prep_transfer() - what the functions below have in common
 * @sqe: from tow_queue_get_sqe()
 * @opcode: enum tow_opcode
 * @channel: from tow_channel_get() of the same queue
 * @region: memory on this side
 * @offset: where in it, in bytes
 * @remote: memory on the peer's side
 * @remote_offset: where in it, in bytes
 * @bytes: how much, or what to compare with
 * @operand: of an atomic, else 0
 */
static inline void tow_prep_transfer(struct tow_sqe *sqe, uint8_t opcode,
				     const struct tow_channel *channel,
				     const struct tow_region *region, uint64_t offset,
				     const struct tow_remote *remote, uint64_t remote_offset,
				     uint64_t bytes, uint64_t operand)
{
	sqe->opcode = opcode;
	sqe->flags = 0;
	sqe->channel = (uint16_t)channel->number;
	sqe->timeout_ms = 0;
	sqe->user_data = 0;
	sqe->region = tow_handle_of(region);
	sqe->offset = offset;
	sqe->remote = tow_handle_of(remote);
	sqe->remote_offset = remote_offset;
	sqe->bytes = bytes;
	sqe->operand = operand;
}

/**
 * tow_prep_write() - an entry that writes to a peer
 * @sqe: from tow_queue_get_sqe()
 * @channel: from tow_channel_get() of the same queue, to the peer of @remote
 * @region: what is written is in it
 * @offset: where, in bytes
 * @remote: where it is written; resolved with TOW_RIGHT_WRITE
 * @remote_offset: where in it, in bytes
 * @bytes: how much; 0: only checked
 *
 * Until the entry has completed, the bytes in @region are not changed, and those in
 * @remote are used by nobody: they may be written more than once.
 */
static inline void tow_prep_write(struct tow_sqe *sqe, const struct tow_channel *channel,
				  const struct tow_region *region, uint64_t offset,
				  const struct tow_remote *remote, uint64_t remote_offset,
				  uint64_t bytes)
{
	tow_prep_transfer(sqe, TOW_OP_WRITE, channel, region, offset, remote, remote_offset, bytes,
			  0);
}

/**
 * tow_prep_read() - an entry that reads from a peer
 * @sqe: from tow_queue_get_sqe()
 * @channel: from tow_channel_get() of the same queue, to the peer of @remote
 * @region: what is read goes there; not one that is read-only
 * @offset: where in it, in bytes
 * @remote: what is read; resolved with TOW_RIGHT_READ
 * @remote_offset: where in it, in bytes
 * @bytes: how much; 0: only checked
 */
static inline void tow_prep_read(struct tow_sqe *sqe, const struct tow_channel *channel,
				 const struct tow_region *region, uint64_t offset,
				 const struct tow_remote *remote, uint64_t remote_offset,
				 uint64_t bytes)
{
	tow_prep_transfer(sqe, TOW_OP_READ, channel, region, offset, remote, remote_offset, bytes,
			  0);
}

/**
 * tow_prep_fetch_add() - an entry that adds to a number of the peer's
 * @sqe: from tow_queue_get_sqe()
 * @channel: from tow_channel_get() of the same queue, to the peer of @remote
 * @region: what the number was before goes there, as 8 bytes
 * @offset: where in it: a multiple of 8
 * @remote: where the number is; resolved with TOW_RIGHT_ATOMIC
 * @remote_offset: where in it; the 8 bytes must be aligned at the peer
 * @addend: what to add; what does not fit into 64 bits is lost
 */
static inline void tow_prep_fetch_add(struct tow_sqe *sqe, const struct tow_channel *channel,
				      const struct tow_region *region, uint64_t offset,
				      const struct tow_remote *remote, uint64_t remote_offset,
				      uint64_t addend)
{
	tow_prep_transfer(sqe, TOW_OP_FETCH_ADD, channel, region, offset, remote, remote_offset, 0,
			  addend);
}

/**
 * tow_prep_compare_swap() - an entry that changes a number of the peer's if it is
 *	what it is thought to be
 * @sqe: from tow_queue_get_sqe()
 * @channel: from tow_channel_get() of the same queue, to the peer of @remote
 * @region: as for tow_prep_fetch_add()
 * @offset: as for tow_prep_fetch_add()
 * @remote: as for tow_prep_fetch_add()
 * @remote_offset: as for tow_prep_fetch_add()
 * @compare: what it is thought to be
 * @swap: what it becomes then
 */
static inline void tow_prep_compare_swap(struct tow_sqe *sqe, const struct tow_channel *channel,
					 const struct tow_region *region, uint64_t offset,
					 const struct tow_remote *remote, uint64_t remote_offset,
					 uint64_t compare, uint64_t swap)
{
	tow_prep_transfer(sqe, TOW_OP_COMPARE_SWAP, channel, region, offset, remote,
			  remote_offset, compare, swap);
}

/**
 * tow_sqe_set_vector() - the entry moves many pieces
 * @sqe: prepared by tow_prep_write(), tow_prep_read() or tow_prep_write_notify(), whose
 *	offsets and bytes do not matter then
 * @list: has an array of struct tow_vector, which says what is moved: where in the entry's
 *	region, where in its remote range, and how much
 * @list_offset: where in it: a multiple of 8
 * @count: how many there are: 1 to TOW_VECTOR_MAX
 *
 * It is one entry in all else: it completes once, and notifies once, when all of them are
 * there.  When the kernel has taken it (tow_queue_submit()) the array may be changed, and
 * @list given up.  @list is no memory of another device's.
 *
 * With a module older than version 16 of <towline/uapi.h> it completes with -EINVAL.
 */
static inline void tow_sqe_set_vector(struct tow_sqe *sqe, const struct tow_region *list,
				      uint64_t list_offset, uint32_t count)
{
	sqe->flags |= TOW_SQE_VECTOR;
	sqe->vector = tow_handle_of(list);
	sqe->vector_offset = list_offset;
	sqe->bytes = (uint64_t)count * sizeof(struct tow_vector);
}

/**
 * tow_sqe_set_inline() - the entry has its data in itself
 * @sqe: prepared by tow_prep_write() or tow_prep_write_notify(), whose region, offset and
 *	bytes do not matter then: the region may be NULL
 * @data: what is written
 * @bytes: how much of it: 1 to TOW_INLINE_MAX
 *
 * @data is copied here, and the program's again.
 *
 * With a module older than version 17 of <towline/uapi.h> it completes with -EINVAL.
 */
static inline void tow_sqe_set_inline(struct tow_sqe *sqe, const void *data, size_t bytes)
{
	sqe->flags |= TOW_SQE_INLINE;
	memset(sqe->payload, 0, sizeof(sqe->payload));
	memcpy(sqe->payload, data, bytes < sizeof(sqe->payload) ? bytes : sizeof(sqe->payload));
	sqe->bytes = bytes;
}

/**
 * tow_sqe_set_data() - what comes back in the entry's completion
 * @sqe: prepared
 * @data: any number
 */
static inline void tow_sqe_set_data(struct tow_sqe *sqe, uint64_t data)
{
	sqe->user_data = data;
}

/**
 * tow_sqe_set_flags() - how the entry stands to others
 * @sqe: prepared
 * @flags: bits of enum tow_sqe_flag; what tow_sqe_set_vector() and tow_sqe_set_inline() have
 *	set stays
 */
static inline void tow_sqe_set_flags(struct tow_sqe *sqe, uint8_t flags)
{
	sqe->flags = (uint8_t)((sqe->flags & (TOW_SQE_VECTOR | TOW_SQE_INLINE)) | flags);
}

/**
 * tow_sqe_set_timeout() - how long the entry may take
 * @sqe: prepared
 * @timeout_ms: so many milliseconds from when the kernel has taken it; 0: as long as it
 *	takes, as it is prepared
 *
 * After that it completes with -ETIMEDOUT.  If TOW_CQE_HELD is set in that completion's
 * flags its memory is still in use, and another completion with the same data follows,
 * with TOW_CQE_RELEASED, when it is not any more.  The entry takes room for two
 * completions.
 *
 * With a module older than version 7 of <towline/uapi.h> it completes with -EINVAL.
 */
static inline void tow_sqe_set_timeout(struct tow_sqe *sqe, uint32_t timeout_ms)
{
	sqe->timeout_ms = timeout_ms;
}

/**
 * tow_queue_submit() - hand over the entries that were taken
 * @queue: from tow_queue_create()
 *
 * Those that an earlier call could not hand over are among them.
 *
 * Return: how many the kernel has taken now, which are fewer than there are when
 * there is no room for more completions; -EBUSY when it has taken none of them, for
 * that reason: deal with some; -EPERM when another process opened the device;
 * -ENODEV when the RDMA device is gone.  With TOW_QUEUE_POLL: how many are there to be
 * taken now that were not before, whether there is room for them or not.
 */
int tow_queue_submit(struct tow_queue *queue);

/**
 * tow_queue_submit_room() - hand over entries, and wait for room
 * @queue: from tow_queue_create(), without TOW_QUEUE_POLL
 * @timeout_us: how long to wait, in microseconds; TOW_WAIT_FOREVER
 *
 * Where there is no room for the completion of any of them, and all completions are dealt
 * with, waits until entries that complete without one (TOW_SQE_SILENT) have ended.
 *
 * Return: as tow_queue_submit(): -EBUSY says that there are completions to be dealt with;
 * also -ETIMEDOUT when there was no room in time; -EINTR (tow_on_signal()); -EINVAL when
 * @queue has TOW_QUEUE_POLL: there poll(2) says POLLOUT; or the module is older than this.
 */
int tow_queue_submit_room(struct tow_queue *queue, uint32_t timeout_us);

/**
 * tow_queue_submit_and_wait() - hand over entries, and wait for completions
 * @queue: from tow_queue_create()
 * @count: wait until as many completions are there, those included that nobody has
 *	dealt with so far; at most as many as the completion ring has
 *
 * One call of the kernel's, or none if there is nothing to hand over and there are
 * enough completions.  If entries were taken, a signal ends the wait; else as for
 * tow_queue_wait_cqe().
 *
 * Return: as tow_queue_submit(); also -EINTR (tow_on_signal()) when there was nothing to
 * hand over; -EINVAL when @count is more than there can be.
 */
int tow_queue_submit_and_wait(struct tow_queue *queue, uint32_t count);

/**
 * tow_queue_enter() - the kernel's call, as it is
 * @queue: from tow_queue_create()
 * @to_submit: entries to take, at most; 0 with TOW_QUEUE_POLL
 * @min_complete: completions to wait for, those included that nobody has dealt with;
 *	0: none
 * @timeout_us: how long, in microseconds; TOW_WAIT_FOREVER
 *
 * For those who write the indices themselves; tow_queue_submit() and
 * tow_queue_wait_cqe() are what others use.
 *
 * Return: how many entries were taken; -EBUSY, -ETIMEDOUT, -EINVAL or -EPERM, as
 * TOW_IOCTL_ENTER has them; -EINTR (tow_on_signal()); -ENODEV.
 */
int tow_queue_enter(struct tow_queue *queue, uint32_t to_submit, uint32_t min_complete,
		    uint32_t timeout_us);

/**
 * tow_queue_need_wakeup() - does nobody look for entries at the moment?
 * @queue: with TOW_QUEUE_POLL, not in a child that was forked
 *
 * For those who write the indices themselves: asked after one was stored, as this has
 * the barrier between.  If so, and there are entries that were not taken,
 * tow_queue_enter() wakes who takes them.
 *
 * Return: not 0 if so.
 */
static inline int tow_queue_need_wakeup(const struct tow_queue *queue)
{
	tow_full_barrier();
	return (tow_load_acquire(&queue->ring->sq_flags) & TOW_RING_NEED_WAKEUP) != 0;
}

/* ---- completions ---- */

/**
 * tow_queue_cqe() - a completion by its index
 * @queue: from tow_queue_create()
 * @index: of the last one that was looked at, plus 1; at first @queue->cq_head
 *
 * What tow_queue_for_each_cqe() calls.
 *
 * Return: the completion, or NULL when it is not there yet.
 */
static inline const struct tow_cqe *tow_queue_cqe(struct tow_queue *queue, uint32_t index)
{
	if (index == queue->cq_tail) {
		if (!queue->ring)
			return NULL;
		queue->cq_tail = tow_load_acquire(&queue->ring->cq_tail);
		if (index == queue->cq_tail)
			return NULL;
	}
	return &queue->cqes[index & (queue->cq_entries - 1)];
}

/**
 * tow_queue_for_each_cqe() - go over the completions that are there
 * @queue: from tow_queue_create()
 * @index: a uint32_t variable
 * @cqe: a variable for the completion: const struct tow_cqe *
 *
 * Nothing is dealt with by it: count, and call tow_queue_advance() afterwards.
 */
#define tow_queue_for_each_cqe(queue, index, cqe) \
	for ((index) = (queue)->cq_head; ((cqe) = tow_queue_cqe(queue, index)) != NULL; (index)++)

/**
 * tow_queue_peek_cqe() - the next completion, if it is there
 * @queue: from tow_queue_create()
 * @cqe: where to put it; the queue's, until it has been dealt with.  NULL when there
 *	is none.
 *
 * Makes no call of the kernel's, so it may be asked over and over.
 *
 * Return: 0; -EAGAIN when there is none; -EPERM in a child that was forked.
 */
static inline int tow_queue_peek_cqe(struct tow_queue *queue, const struct tow_cqe **cqe)
{
	const struct tow_cqe *found = tow_queue_cqe(queue, queue->cq_head);

	*cqe = found;
	if (found)
		return 0;
	return queue->ring ? -EAGAIN : -EPERM;
}

/**
 * tow_queue_wait_cqe() - the next completion
 * @queue: from tow_queue_create()
 * @cqe: as for tow_queue_peek_cqe()
 * @timeout_us: how long to wait for it, in microseconds; TOW_WAIT_FOREVER
 *
 * Submits nothing.
 *
 * Return: 0; -ETIMEDOUT when none came in time; -EINTR (tow_on_signal()); -EPERM when
 * another process opened the device; -ENODEV when the RDMA device is gone.
 */
static inline int tow_queue_wait_cqe(struct tow_queue *queue, const struct tow_cqe **cqe,
				     uint32_t timeout_us)
{
	const struct tow_cqe *found = tow_queue_cqe(queue, queue->cq_head);
	int ret = 0;

	if (!found) {
		ret = tow_queue_enter(queue, 0, 1, timeout_us);
		/* Also when waiting failed: what has completed is told. */
		found = tow_queue_cqe(queue, queue->cq_head);
	}
	*cqe = found;
	if (found)
		return 0;
	return ret < 0 ? ret : -ETIMEDOUT;
}

/**
 * tow_queue_advance() - completions have been dealt with
 * @queue: from tow_queue_create()
 * @count: how many, the oldest; not more than were seen
 *
 * The kernel may write over them from now on.  With TOW_QUEUE_POLL, makes a call if
 * entries wait for this room, and nobody is awake to see it.
 */
static inline void tow_queue_advance(struct tow_queue *queue, uint32_t count)
{
	queue->cq_head += count;
	tow_store_release(&queue->ring->cq_head, queue->cq_head);
	if (queue->flags & TOW_QUEUE_POLL && tow_queue_need_wakeup(queue) &&
	    tow_load_acquire(&queue->ring->sq_tail) != tow_load_acquire(&queue->ring->sq_head))
		tow_queue_enter(queue, 0, 0, 0);
}

/**
 * tow_queue_cqe_seen() - the oldest completion has been dealt with
 * @queue: from tow_queue_create()
 */
static inline void tow_queue_cqe_seen(struct tow_queue *queue)
{
	tow_queue_advance(queue, 1);
}

/* ---- copies ---- */

/* What is so large goes by up to TOW_SLOT_WIDTH_MAX queue pairs of the peer at once. */
#define TOW_CUT_BYTES	((uint64_t)4 << 20)

/**
 * enum tow_direction - which way a copy goes
 * @TOW_TO_REMOTE: from the region to the remote range
 * @TOW_FROM_REMOTE: from the remote range to the region
 */
enum tow_direction {
	TOW_TO_REMOTE	= 0,
	TOW_FROM_REMOTE	= 1
};

/**
 * typedef tow_copy_done - called when a copy has ended
 * @arg: as it was given to tow_memcpy()
 * @status: 0, or a negative errno, as in struct tow_cqe
 */
typedef void tow_copy_done(void *arg, int status);

/**
 * tow_memcpy() - copy to a peer, or from one
 * @channel: from tow_channel_get()
 * @region: memory on this side
 * @offset: where in it, in bytes
 * @remote: memory on the side of the channel's peer, resolved with the right to do
 *	this
 * @remote_offset: where in it, in bytes
 * @bytes: how much
 * @direction: which way
 * @done: called once when the copy has ended, by tow_queue_progress()
 * @arg: for @done
 *
 * Begins the copy and returns.  Copies of one channel begin in their order, and end
 * in any.  One of TOW_CUT_BYTES or more is cut, and goes by queue pairs beside the channel's,
 * too: it is in no order with others, and takes up to TOW_SLOT_WIDTH_MAX of the queue's
 * completions.  A notification vouches for nothing of it, also if @done was called before:
 * who is to tell the peer fills in entries, by a slot with a width (tow_resolve()).  Until
 * one has ended, the same rules hold for its bytes as for tow_prep_write() and
 * tow_prep_read().  A queue that is used by it is used for no other entries.
 *
 * Implements Memcpy of Xue et al., EuroSys '19, section 3: (address, region) of both
 * sides are offsets in a region and in a remote range here, which name the same
 * bytes in every process.
 *
 * Return: 0: it has begun, and @done will be called; else it has not, and @done is
 * not called: -EINVAL when an argument but @arg is NULL, or there is no such
 * @direction; -EBUSY when the queue has no room for all of its parts, as too many have not
 * ended: call tow_queue_progress(); -ENOMEM; -EPERM; -ENODEV.
 */
int tow_memcpy(struct tow_channel *channel, const struct tow_region *region, uint64_t offset,
	       const struct tow_remote *remote, uint64_t remote_offset, uint64_t bytes,
	       enum tow_direction direction, tow_copy_done *done, void *arg);

/**
 * tow_queue_progress() - call the functions of copies that have ended
 * @queue: the channels'
 * @timeout_us: how long to wait for one to end, in microseconds; 0: not at all;
 *	TOW_WAIT_FOREVER
 *
 * A program calls it when it likes, or has a thread that does nothing else.
 * Functions are called by the thread that calls this, without a lock, and may copy
 * in turn.  One call makes at most as many as the queue has completions.
 *
 * Return: how many functions were called, 0 if no copy ended in time; -EINVAL when
 * @queue is NULL; -EINTR (tow_on_signal()); -EPERM; -ENODEV when the RDMA device is
 * gone and nothing is left to be told.
 */
int tow_queue_progress(struct tow_queue *queue, uint32_t timeout_us);

#ifdef __cplusplus
}
#ifdef __GNUC__
#pragma GCC diagnostic pop
#endif
#endif

#endif /* TOW_QUEUE_H */

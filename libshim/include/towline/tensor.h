/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * libtowline: tensors that move from a producer on one node to a consumer on another.
 *
 * An edge carries a tensor a step, from where it was computed, by one write of the
 * sender's.  Both ends have a worker, which drives any number of edges: nothing is done
 * for them but in the calls of this header, and no call waits unless it says so.
 *
 *	static edge	type and shape are known before, and the receiver has memory for
 *			some steps: section 3.2 of "Fast Distributed Deep Learning over
 *			RDMA" (EuroSys '19).  A step is one WRITE_NOTIFY, or with
 *			TOW_CUT_BYTES or more one by each of up to four queue pairs; a
 *			slot's number takes the place of the paper's flag byte, and a
 *			second one, at the sender, says how many steps were read, so that
 *			none is overwritten before.
 *
 *	dynamic edge	type and shape are known when the tensor is: section 3.3.  The sender
 *			writes what it is and where it is, the receiver allocates in its
 *			arena, reads it from there, and says so; until then the sender's
 *			tensor stays as it is.
 *
 *	rendezvous	the receiver asks, by key and step, for what it is about to need, and
 *			gets it when there is such a tensor: the contract of TensorFlow's
 *			rendezvous, as its verbs transport has it
 *
 *	receiver	tow_static_receiver(), tow_edge_connect(), then for each step
 *			tow_edge_test() or tow_edge_wait(), and tow_edge_consumed() when
 *			it was read
 *	sender		tow_static_sender(), tow_edge_connect(), then tow_edge_send() for
 *			each step; the tensor is the edge's until that has ended
 *
 * With dynamic edges, whose ends are made by tow_dynamic_receiver() and tow_dynamic_sender(),
 * tow_edge_type() says what has come, tow_edge_take() keeps it, and tow_dynamic_send() sends.
 *
 * With a rendezvous, whose ends are made by tow_rendezvous_receiver() and
 * tow_rendezvous_sender(), tow_rendezvous_put() offers, and tow_rendezvous_get() or
 * tow_rendezvous_wait() asks.
 *
 * With TOW_VALIDATE=1 in the environment of both ends when their workers are made, tensors of
 * dynamic edges and rendezvous travel with their CRC32C (as iSCSI has it, RFC 3720), of what they
 * were when they were given to the library.  It takes libisal2 of Debian.  Where either end has a
 * tensor in an arena of another device's memory, that one is not compared.
 *
 * All functions may be called by any number of threads at once.  In a child that was forked they
 * return -EPERM of its parent's workers and edges.
 */
#ifndef TOW_TENSOR_H
#define TOW_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include <towline/arena.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- types ---- */

/* The most dimensions that a tensor has. */
#define TOW_DIMS_MAX	8U

/* What tow_dtype.code says: the numbers of DLPack 1.1's DLDataTypeCode. */
enum tow_dtype_code {
	TOW_DTYPE_INT			= 0,
	TOW_DTYPE_UINT			= 1,
	TOW_DTYPE_FLOAT			= 2,
	TOW_DTYPE_OPAQUE		= 3,
	TOW_DTYPE_BFLOAT		= 4,
	TOW_DTYPE_COMPLEX		= 5,
	TOW_DTYPE_BOOL			= 6,
	TOW_DTYPE_FLOAT8_E3M4		= 7,
	TOW_DTYPE_FLOAT8_E4M3		= 8,
	TOW_DTYPE_FLOAT8_E4M3B11FNUZ	= 9,
	TOW_DTYPE_FLOAT8_E4M3FN		= 10,
	TOW_DTYPE_FLOAT8_E4M3FNUZ	= 11,
	TOW_DTYPE_FLOAT8_E5M2		= 12,
	TOW_DTYPE_FLOAT8_E5M2FNUZ	= 13,
	TOW_DTYPE_FLOAT8_E8M0FNU	= 14,
	TOW_DTYPE_FLOAT6_E2M3FN		= 15,
	TOW_DTYPE_FLOAT6_E3M2FN		= 16,
	TOW_DTYPE_FLOAT4_E2M1FN		= 17
};

/**
 * struct tow_dtype - what an element is: DLPack's DLDataType, byte for byte
 * @code: enum tow_dtype_code; others are carried as they are
 * @bits: of one of its lanes
 * @lanes: how many it has: 1, or more for vectors
 */
struct tow_dtype {
	uint8_t code;
	uint8_t bits;
	uint16_t lanes;
};

/**
 * struct tow_tensor_type - what a tensor is, but for its elements
 * @dtype: of the elements
 * @ndim: how many dimensions: 0 (one element) to TOW_DIMS_MAX
 * @dims: how many elements in each, 0 or more, the slowest first; row by row, without
 *	gaps
 */
struct tow_tensor_type {
	struct tow_dtype dtype;
	uint32_t ndim;
	int64_t dims[TOW_DIMS_MAX];
};

/**
 * tow_tensor_bytes() - how large a tensor is
 * @type: what it is
 * @bytes: stored here; elements of less than a byte are packed, and the last byte of the
 *	tensor filled up
 *
 * Return: 0; -EINVAL: an argument is NULL, an element has no bits or lanes, @ndim is
 * more than TOW_DIMS_MAX, or a dimension is negative; -EOVERFLOW: it is larger than 2^62
 * bytes.
 */
int tow_tensor_bytes(const struct tow_tensor_type *type, uint64_t *bytes);

/* ---- workers ---- */

/* Drives edges.  Made by tow_worker_create(), ended by tow_worker_destroy(). */
struct tow_worker;

struct tow_edge;

/**
 * struct tow_worker_attr - what a worker is to be like
 * @size: sizeof(struct tow_worker_attr)
 * @entries: of its queue: how many operations may be on their way at once, 16 at least; 0:
 *	256.  Twice as many edges may be connected, each of which may wait for something, and
 *	24 other processes may have edges to this worker, or it to them; each more of those
 *	counts as an edge.
 * @timeout_ms: how long a step of a static or dynamic edge may be on its way, in
 *	milliseconds; 0: as long as it takes.
 *	A late one ends its edge with -ETIMEDOUT, in the second after that if somebody is
 *	there: what follows is not begun, and what is on its way may still arrive.
 *	Also how long the other end's node may not answer.  And how long what
 *	tow_rendezvous_get() asks for may take: that alone ends so, and is cancelled.
 */
struct tow_worker_attr {
	uint32_t size;
	uint32_t entries;
	uint32_t timeout_ms;
};

/**
 * tow_worker_create() - make a worker
 * @dev: the device
 * @arena: where edges' buffers are; of @dev.  Both outlive the worker.
 * @attr: what it is to be like, or NULL
 * @worker: stored here
 *
 * @arena may be of another device's memory, which it was given before (tow_arena_adopt()): tensors
 * come to there, and what receivers show are addresses of that kind.  All that processors read and
 * write, which is what the two ends tell each other, and copies of tensors that are in no region,
 * is in an arena of the worker's own then, of 2 MiB of the pool at first.
 *
 * When that device takes its memory back edges end that have a tensor there, or memory for some:
 * with -EFAULT at this end, and -ESTALE at the other one.  An end that has nothing on its way learns
 * it when the other one is closed.  Other edges go on.
 *
 * Return: 0; -E2BIG, -EINVAL: @attr, or an argument, is none that there is; -EMFILE,
 * -ENFILE; -ELIBACC: TOW_VALIDATE is set, and ISA-L is not there; -EPERM: @dev or @arena is another
 * process's; and what tow_queue_create() returns.
 */
int tow_worker_create(struct tow_device *dev, struct tow_arena *arena,
		      const struct tow_worker_attr *attr, struct tow_worker **worker);

/**
 * tow_worker_destroy() - end a worker
 * @worker: the worker, or NULL
 *
 * Return: 0; -EBUSY: it has edges still, and nothing has changed; -EPERM: in a child that was
 * forked, where its copy is gone.
 */
int tow_worker_destroy(struct tow_worker *worker);

/**
 * tow_worker_fd() - a worker's descriptor, for poll(2)
 * @worker: the worker
 *
 * POLLIN, POLLPRI: tow_worker_progress() has something to do.  For a tensor to make it
 * readable, ask for it with tow_edge_arm() or tow_edge_watch().
 *
 * Return: the descriptor, which stays the worker's; -EINVAL: @worker is NULL.
 */
int tow_worker_fd(const struct tow_worker *worker);

/**
 * tow_worker_progress() - see to what has ended, and begin what may begin
 * @worker: the worker
 * @timeout_us: how long to wait until something has ended, in microseconds; 0: not at
 *	all; TOW_WAIT_FOREVER
 *
 * Functions of the program's are called from here, or from whichever other function of this
 * header is called for the worker or one of its edges, by that thread, before it returns; one
 * after the other as long as one thread does so.  Waiting takes no processor time.
 *
 * Return: how many operations have ended; -EINTR: tow_on_signal(); -ENODEV: the device is
 * gone; -EPERM: another process opened it; -EINVAL: @worker is NULL.
 */
int tow_worker_progress(struct tow_worker *worker, uint32_t timeout_us);

/**
 * tow_worker_copied() - how many bytes were copied before they were sent
 * @worker: the worker
 *
 * Tensors that are in no region of the device are.  The devices that move them count
 * those of all programs (stats/copied_bytes in sysfs): the sender's, but the receiver's
 * those of dynamic edges.
 *
 * Return: their sum, in bytes.
 */
uint64_t tow_worker_copied(const struct tow_worker *worker);

/* ---- edges ---- */

/* The most steps that an edge has memory for. */
#define TOW_EDGE_SLOTS_MAX	64U
/* The longest name, without the 0 at its end. */
#define TOW_EDGE_NAME_MAX	240U
/* The longest key of a rendezvous, likewise. */
#define TOW_KEY_MAX		255U
/* The most requests of a rendezvous that are on their way at once. */
#define TOW_REQUESTS_MAX	1024U

/**
 * tow_static_receiver() - the consumer's end of a static edge
 * @worker: what drives it
 * @peer: where the producer is; it must not be released before the edge is closed
 * @name: by which the producer finds it: the same at both ends, and of no other edge of
 *	the job between these nodes; 1 to TOW_EDGE_NAME_MAX bytes
 * @type: of the tensors
 * @slots: how many steps there is memory for, 1 to TOW_EDGE_SLOTS_MAX
 * @edge: stored here; ended with tow_edge_close()
 *
 * The producer may come now, or later.
 *
 * Return: 0; -EINVAL: an argument is NULL, or not as above; -EOVERFLOW: the tensors are
 * larger than anything, or the worker has as many edges as may be; -EDQUOT, -ENOSPC, -ENOMEM: no memory, as tow_arena_alloc(), and
 * -ENOSPC also when that was ordinary memory; and what tow_export(), tow_slot_create() and
 * tow_channel_get() return.
 */
int tow_static_receiver(struct tow_worker *worker, struct tow_peer *peer, const char *name,
			const struct tow_tensor_type *type, uint32_t slots,
			struct tow_edge **edge);

/**
 * tow_static_bytes() - how large a region tow_static_receiver_in() takes
 * @type: of the tensors
 * @slots: as tow_static_receiver()
 * @bytes: stored here
 *
 * Return: 0; -EINVAL; -EOVERFLOW.
 */
int tow_static_bytes(const struct tow_tensor_type *type, uint32_t slots, uint64_t *bytes);

/**
 * tow_static_receiver_in() - the same in a region that may outlive the process
 * @worker: as tow_static_receiver()
 * @peer: as tow_static_receiver()
 * @name: as tow_static_receiver()
 * @type: as tow_static_receiver()
 * @slots: as tow_static_receiver()
 * @region: all of it is the edge's until the edge is closed: zeroes, or what such an edge
 *	has left there.  It must be of @worker's device, and not end before the edge
 * @edge: as tow_static_receiver()
 *
 * Of a persistent region (tow_region_attach()) that a receiver was killed with, what had come
 * and was not consumed is shown, and then what comes: the sender makes its end anew, and goes
 * on at the next step (tow_edge_next()).  A step that was read and not consumed is shown
 * again.
 *
 * Return: as tow_static_receiver(); -ERANGE: @region is smaller than tow_static_bytes() says;
 * -EOPNOTSUPP: it is of another device's memory;
 * -EPROTOTYPE, -EMSGSIZE, -EPROTO: an edge of other elements, of another shape or number of
 * slots, or of another kind or version has left what is there, and it has not changed; and
 * what tow_region_map() returns.
 */
int tow_static_receiver_in(struct tow_worker *worker, struct tow_peer *peer, const char *name,
			   const struct tow_tensor_type *type, uint32_t slots,
			   struct tow_region *region, struct tow_edge **edge);

/**
 * tow_static_sender() - the producer's end of a static edge
 * @worker: what drives it
 * @peer: where the consumer is, as tow_static_receiver()
 * @name: as tow_static_receiver()
 * @type: of the tensors; as the consumer has it
 * @edge: stored here; ended with tow_edge_close()
 *
 * Return: as tow_static_receiver().
 */
int tow_static_sender(struct tow_worker *worker, struct tow_peer *peer, const char *name,
		      const struct tow_tensor_type *type, struct tow_edge **edge);

/**
 * tow_dynamic_receiver() - the consumer's end of a dynamic edge
 * @worker: what drives it
 * @peer: where the producer is, as tow_static_receiver()
 * @name: as tow_static_receiver()
 * @slots: how many tensors may be there, or on their way, before the first of them was
 *	consumed: 1 to TOW_EDGE_SLOTS_MAX
 * @edge: stored here; ended with tow_edge_close()
 *
 * Tensors come by themselves, into memory of the worker's arena, as long as somebody calls
 * tow_worker_progress() or tow_edge_wait().  A read goes over each region of the sender's
 * that a tensor was in, which this end finds once, by a thread of its own.
 *
 * Return: as tow_static_receiver().
 */
int tow_dynamic_receiver(struct tow_worker *worker, struct tow_peer *peer, const char *name,
			 uint32_t slots, struct tow_edge **edge);

/**
 * tow_dynamic_sender() - the producer's end of a dynamic edge
 * @worker: what drives it
 * @peer: where the consumer is, as tow_static_receiver()
 * @name: as tow_static_receiver()
 * @edge: stored here; ended with tow_edge_close()
 *
 * Regions that a tensor was sent from may be read, as a whole, by processes of the same job
 * on any node, until the edge is closed or the region ends.
 *
 * Return: as tow_static_receiver().
 */
int tow_dynamic_sender(struct tow_worker *worker, struct tow_peer *peer, const char *name,
		       struct tow_edge **edge);

/**
 * tow_rendezvous_receiver() - the end of a rendezvous that asks
 * @worker: what drives it
 * @peer: where the other end is, as tow_static_receiver()
 * @name: as tow_static_receiver()
 * @requests: how many are on their way at once, at most: 1 to TOW_REQUESTS_MAX; more wait
 *	here
 * @edge: stored here; ended with tow_edge_close()
 *
 * Tensors come into memory of the worker's arena.  Regions in which it was may be
 * written, as a whole, by processes of the same job on any node, until the edge is closed or
 * the region goes back to the pool.
 *
 * Return: as tow_static_receiver().
 */
int tow_rendezvous_receiver(struct tow_worker *worker, struct tow_peer *peer, const char *name,
			    uint32_t requests, struct tow_edge **edge);

/**
 * tow_rendezvous_sender() - the end of a rendezvous that offers
 * @worker: what drives it
 * @peer: where the other end is, as tow_static_receiver()
 * @name: as tow_static_receiver()
 * @requests: as tow_rendezvous_receiver(); of both ends' the smaller one counts
 * @edge: stored here; ended with tow_edge_close()
 *
 * Return: as tow_static_receiver().
 */
int tow_rendezvous_sender(struct tow_worker *worker, struct tow_peer *peer, const char *name,
			  uint32_t requests, struct tow_edge **edge);

/**
 * tow_edge_connect() - find the other end
 * @edge: the edge
 * @timeout_ms: how long to wait for it, in milliseconds
 *
 * Waits; while it looks for the other end nothing is done for the worker's other edges but
 * by other threads.  Who has both ends makes both before connecting one, and connects
 * the sender first: a receiver waits until its sender has connected.  A sender needs nobody at
 * the other end to look; but its worker's first one to a worker whose program does not look, when
 * eight others have come first, waits until it does.
 *
 * Return: 0, also when it is connected; -ETIMEDOUT: nobody came; -EPROTOTYPE: the other
 * end's tensors have elements of another type; -EMSGSIZE: they have another shape; -EBUSY:
 * the receiver had a sender before, and it is to be made anew; -EALREADY: another thread is
 * connecting it; -EOVERFLOW: the worker has as many edges as may wait for something (struct
 * tow_worker_attr); -EPROTO:
 * what is there is no edge, or of another version; -EINVAL; and what tow_resolve() and
 * operations on remote ranges return.  After a time-out, and when another edge was closed after
 * -EOVERFLOW, it may be called again; after other errors the edge is of no use.  After -EPROTOTYPE and -EMSGSIZE the other end knows
 * it, too.
 */
int tow_edge_connect(struct tow_edge *edge, uint32_t timeout_ms);

/**
 * typedef tow_edge_done - a step was sent
 * @arg: as it was given to tow_edge_send()
 * @step: its number
 * @status: 0: the receiver has it; or a negative errno, and it has it not, or not all of
 *	it, or nobody knows
 *
 * The tensor is the caller's again.  tow_worker_progress() says who calls it.  It may call any
 * function of this header but those that wait.
 */
typedef void tow_edge_done(void *arg, uint64_t step, int status);

/**
 * tow_edge_send() - send the next step
 * @edge: a sender that is connected
 * @data: the tensor, which nobody changes before it was sent.  In a region of the worker's arena,
 *	or any other of its device (tow_region_find()), it is sent from there, and the region
 *	stays until it was, or the edge ends with -EFAULT, as it does when another device takes
 *	the tensor's memory back; elsewhere it is copied first, and counted
 *	(tow_worker_copied()).
 * @done: called when it was sent, by who calls tow_worker_progress(); or NULL
 * @arg: passed to @done
 *
 * Steps count from 1, and arrive in their order.  One that finds all of the receiver's
 * memory unread waits, and is begun by who calls tow_worker_progress().
 *
 * Return: 0; -EAGAIN: TOW_EDGE_SLOTS_MAX steps are on their way already, or @done of the one
 * so many before is being called; -ENOTCONN:
 * tow_edge_connect() comes first; -EINVAL: it is a receiver, an argument is NULL, or one end of
 * @data is in a region and the other is not; -EPERM: another process opened the device;
 * -EDQUOT, -ENOSPC, -ENOMEM: there is no room for a copy; or the error that has ended the
 * edge, which all later steps have, too.
 */
int tow_edge_send(struct tow_edge *edge, const void *data, tow_edge_done *done, void *arg);

/**
 * tow_dynamic_send() - send the next tensor
 * @edge: a dynamic sender that is connected
 * @type: what it is, this time
 * @data: the tensor, as tow_edge_send(); NULL will do for one without elements
 * @done: called when the receiver has read it, or will not; or NULL.  It is told what went
 *	wrong there, too: -ENOSPC, -EDQUOT, -ENOMEM: it had no memory, and has left the tensor
 *	out; -EBADMSG: what it read is not what was sent (TOW_VALIDATE).  After those the edge
 *	goes on.  After -EFAULT (the tensor's memory is gone) and -ESTALE (the receiver's is) it
 *	does not.
 * @arg: passed to @done
 *
 * As tow_edge_send() in all else.  When the edge has failed and the receiver may still be
 * reading (-ETIMEDOUT, -EPROTO) the tensor is the caller's again, and @done is called, when
 * it is closed.
 *
 * Return: as tow_edge_send(); -EOVERFLOW: it is larger than anything; and what tow_export()
 * returns, of the region that @data is in.
 */
int tow_dynamic_send(struct tow_edge *edge, const struct tow_tensor_type *type, const void *data,
		     tow_edge_done *done, void *arg);

/* A copy is offered, and the tensor stays the caller's. */
#define TOW_PUT_CLONE		(1U << 0)

/**
 * tow_rendezvous_put() - offer a tensor
 * @edge: a rendezvous' sender, connected or not
 * @key: what it is called, 1 to TOW_KEY_MAX bytes
 * @step: of which step it is; any number
 * @type: what it is
 * @data: the tensor, which nobody changes before it was sent, as tow_edge_send(); with
 *	TOW_PUT_CLONE it is copied at once, and counted, wherever it is
 * @flags: TOW_PUT_CLONE, or 0
 * @done: called when the receiver has it, or will not, as tow_edge_send(); or NULL
 * @arg: passed to @done
 *
 * It waits for being asked for, or for how long the edge lives.  Once it was sent there may
 * be another one of the same key and step.
 *
 * Return: 0; -EEXIST: there is one, which has not ended; -EOVERFLOW; -EINVAL; -EPERM;
 * -EDQUOT, -ENOSPC, -ENOMEM: there is no room for a copy, or a record; -EOPNOTSUPP: TOW_PUT_CLONE,
 * of what is in an arena of another device's memory; or the error that has ended the edge.
 */
int tow_rendezvous_put(struct tow_edge *edge, const char *key, uint64_t step,
		       const struct tow_tensor_type *type, const void *data, uint32_t flags,
		       tow_edge_done *done, void *arg);

/**
 * tow_rendezvous_fail() - offer an error: there will be no such tensor
 * @edge: as tow_rendezvous_put()
 * @key: as tow_rendezvous_put()
 * @step: as tow_rendezvous_put()
 * @status: a negative errno, which who asks gets in its place
 *
 * Return: as tow_rendezvous_put().
 */
int tow_rendezvous_fail(struct tow_edge *edge, const char *key, uint64_t step, int status);

/**
 * struct tow_rendezvous_tensor - what has come
 * @key: as it was asked for
 * @step: as it was asked for
 * @status: 0; or why there is none: what tow_rendezvous_fail() was given; -ECANCELED:
 *	tow_rendezvous_cancel(), or the edge was closed; -ETIMEDOUT: it took longer than
 *	tow_worker_attr.timeout_ms; -EDQUOT, -ENOSPC, -ENOMEM: there is no
 *	memory for it here, as tow_arena_alloc(); -EBADMSG: it is not what was offered
 *	(TOW_VALIDATE); or what has ended the edge
 * @type: what it is
 * @data: the tensor: the caller's, in the worker's arena, freed with tow_arena_free(); NULL
 *	if there is none
 */
struct tow_rendezvous_tensor {
	const char *key;
	uint64_t step;
	int status;
	struct tow_tensor_type type;
	void *data;
};

/**
 * typedef tow_rendezvous_got - what was asked for has come, or will not
 * @arg: as it was given to tow_rendezvous_get()
 * @got: what it is, until the function returns
 *
 * tow_worker_progress() says who calls it.  It may call any function of this header but
 * those that wait.
 */
typedef void tow_rendezvous_got(void *arg, const struct tow_rendezvous_tensor *got);

/**
 * tow_rendezvous_get() - ask for a tensor
 * @edge: a rendezvous' receiver that is connected
 * @key: which one, as it is or will be offered
 * @step: which one
 * @got: called once
 * @arg: passed to @got
 *
 * Of which type and shape the last tensor of that @key was is remembered, of 65,536 keys:
 * memory for one like it is allocated, and where that is goes with the request.  If it is
 * another one, or nothing is known, that takes one more request.  If it takes longer than
 * tow_worker_attr.timeout_ms its status is -ETIMEDOUT.
 *
 * Return: 0; -EEXIST: it was asked for already, or that was cancelled and has not ended;
 * -ENOTCONN: tow_edge_connect() comes first; -EINVAL; -ENOMEM; -EPERM; or the error that has
 * ended the edge.
 */
int tow_rendezvous_get(struct tow_edge *edge, const char *key, uint64_t step,
		       tow_rendezvous_got *got, void *arg);

/**
 * tow_rendezvous_wait() - the same, and wait for it
 * @edge: as tow_rendezvous_get()
 * @key: as tow_rendezvous_get()
 * @step: as tow_rendezvous_get()
 * @timeout_us: how long, in microseconds; TOW_WAIT_FOREVER.  What was not there then is
 *	cancelled.
 * @type: what it is is stored here; or NULL
 * @data: the tensor is stored here, as tow_rendezvous_tensor.data
 *
 * Return: as tow_rendezvous_get(); tow_rendezvous_tensor.status; -ETIMEDOUT; -EINTR.
 */
int tow_rendezvous_wait(struct tow_edge *edge, const char *key, uint64_t step, uint32_t timeout_us,
			struct tow_tensor_type *type, void **data);

/**
 * tow_rendezvous_cancel() - do without a tensor
 * @edge: as tow_rendezvous_get()
 * @key: as tow_rendezvous_get()
 * @step: as tow_rendezvous_get()
 *
 * Whoever was to be told is: -ECANCELED; or that it has come, if it was on its way.
 *
 * Return: 0; -ENOENT: it was not asked for, or that has ended; -EINVAL; -EPERM.
 */
int tow_rendezvous_cancel(struct tow_edge *edge, const char *key, uint64_t step);

/**
 * tow_edge_pending() - how many steps are on their way
 * @edge: a static or dynamic sender; or an end of a rendezvous
 *
 * Return: how many were sent, offered, or asked for, and have not ended; 0 in a child that was
 * forked.
 */
uint32_t tow_edge_pending(const struct tow_edge *edge);

/**
 * tow_edge_test() - has the next step come?
 * @edge: a receiver
 * @data: the tensor is stored here: the edge's memory, to be read until
 *	tow_edge_consumed(), and changed if one likes; of a worker of another device's memory an
 *	address that stands for it (tow_arena_adopt())
 * @step: its number, from 1, is stored here; or NULL
 *
 * Waits for nobody.  Of a static edge it reads memory, takes no lock and makes no call.
 *
 * Return: 1: it has; the same one until it was consumed; 0: not yet; -EINVAL; -ENOTCONN: of a
 * dynamic edge tow_edge_connect() comes first; or the error that has ended the edge.  Of a static edge -EPROTOTYPE or -EMSGSIZE: the sender's tensors
 * are of another type, or another shape.  Of a dynamic one -ENOSPC, -EDQUOT, -ENOMEM: there was
 * no memory for it, as tow_arena_alloc(); each time a thread of the worker's is asked to try again, of
 * which later calls tell, and tow_edge_consumed() leaves it out; -EBADMSG: it is not what was sent (TOW_VALIDATE), and tow_edge_consumed() goes
 * on to the next one.
 */
int tow_edge_test(struct tow_edge *edge, void **data, uint64_t *step);

/**
 * tow_edge_wait() - wait for the next step
 * @edge: a receiver
 * @timeout_us: how long, in microseconds; TOW_WAIT_FOREVER
 * @data: as tow_edge_test()
 * @step: as tow_edge_test()
 *
 * Waits without taking processor time, and drives the worker's other edges meanwhile.
 *
 * Return: 0: it has come; -ETIMEDOUT; -EINTR; -ESTALE or -ECONNRESET: the peer, or the
 * sender's process, is lost; -EOVERFLOW: as tow_edge_connect(), of one that is not connected; and as
 * tow_edge_test() and tow_worker_progress().
 */
int tow_edge_wait(struct tow_edge *edge, uint32_t timeout_us, void **data, uint64_t *step);

/**
 * tow_edge_next() - which step is next
 * @edge: an end of a static or dynamic edge; a sender that is connected
 * @step: the number of what is sent, or shown, next is stored here: 1, unless the receiver
 *	is one of tow_static_receiver_in() that had steps before
 *
 * Return: 0; -EINVAL: an argument is NULL, or it is a rendezvous; -EPERM.
 */
int tow_edge_next(struct tow_edge *edge, uint64_t *step);

/**
 * tow_edge_type() - what a tensor is
 * @edge: a receiver or sender of a static edge; or a dynamic receiver, of which
 *	tow_edge_test() or tow_edge_wait() has shown a tensor: it is told of that one
 * @type: stored here
 *
 * Return: 0; -EINVAL: an argument is NULL, or no tensor was shown; -EPERM.
 */
int tow_edge_type(struct tow_edge *edge, struct tow_tensor_type *type);

/**
 * tow_edge_take() - keep a tensor
 * @edge: a dynamic receiver, of which tow_edge_test() or tow_edge_wait() has shown one
 * @data: the tensor is stored here: the caller's, in the worker's arena, freed with
 *	tow_arena_free()
 *
 * All else as tow_edge_consumed().
 *
 * Return: as tow_edge_consumed(); -EINVAL also when there is an error in its place.
 */
int tow_edge_take(struct tow_edge *edge, void **data);

/**
 * tow_edge_arm() - have the worker's descriptor say when the next step comes
 * @edge: a receiver
 *
 * Also if it is there already.  Once for each step; with a dynamic edge it is readable before,
 * too, when tow_worker_progress() has something to do for that to come.
 *
 * Return: 0; -EINVAL; -EOVERFLOW: as tow_edge_connect(), of one that is not connected; or the error
 * that has ended the edge.
 */
int tow_edge_arm(struct tow_edge *edge);

/**
 * typedef tow_edge_came - a step has come
 * @arg: as it was given to tow_edge_watch()
 * @edge: the edge
 * @status: 0: tow_edge_test() shows it; or the error that it says instead
 *
 * tow_worker_progress() says who calls it.  It may call any function of this header but
 * those that wait, and may not close @edge.
 */
typedef void tow_edge_came(void *arg, struct tow_edge *edge, int status);

/**
 * tow_edge_watch() - have a function called for each step that comes
 * @edge: a receiver of a static or dynamic edge that is connected
 * @came: called once for each step, when all before it were consumed; and once with the error
 *	that has ended the edge, but for tow_edge_close().  NULL: no more, but where another
 *	thread is calling it.
 * @arg: passed to @came
 *
 * What @came does not consume is shown as before, and the next step, of which @came is told,
 * is the one behind it.  A tensor for which there is no memory is told once, and tried again
 * when tow_edge_test() looks.
 *
 * Return: 0; -EINVAL; -ENOTCONN: tow_edge_connect() comes first; -EPERM: in a child; or the
 * error that has ended the edge before it was connected.
 */
int tow_edge_watch(struct tow_edge *edge, tow_edge_came *came, void *arg);

/**
 * tow_edge_consumed() - the step was read: its memory may be written again, or is freed
 * @edge: a receiver, of which tow_edge_test() or tow_edge_wait() has shown a step
 *
 * Return: 0; -EINVAL: it is a sender, or no step has come; -ENOTCONN: tow_edge_connect()
 * comes first; -EBUSY: too many operations are on their way; or the error that has ended
 * the edge.
 */
int tow_edge_consumed(struct tow_edge *edge);

/**
 * tow_edge_close() - end an edge
 * @edge: the edge, or NULL; no other thread uses it any more
 *
 * Waits until what is on its way has ended, and nobody can reach its memory any more.
 * Steps that were sent are carried out if the receiver is there; those that wait for
 * room, and tensors of a dynamic edge that were not read yet, fail with -ECANCELED.
 *
 * Return: 0; or what ending its exports returned; -EPERM: in a child that was forked, where
 * nothing but its copy ends.  The edge is gone in any case.
 */
int tow_edge_close(struct tow_edge *edge);

#ifdef __cplusplus
}
#endif

#endif /* TOW_TENSOR_H */

/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * libtowline: what all ranks of a group do together to their arrays.
 *
 * A communicator is what a group needs for that.  There are two ways to use one:
 *
 *	calls		tow_allreduce() and its like take any arrays at any time, as NCCL's and gloo's
 *			do; nothing was agreed upon before but that all ranks call them in the same
 *			order.  A call gives a work, which tow_work_test() and tow_work_wait() ask
 *	collectives	tow_collective_create() makes one for its arrays, to be called again and again
 *
 * A collective is one thing that its ranks do, as
 * often as they like, to the same arrays: AllReduce, reduce-scatter, all-gather, broadcast,
 * barrier.  All memory, names and ways to other ranks are found when it is made; then each
 *
 *	tow_collective_start(), tow_collective_wait() or tow_collective_test()
 *
 * moves and computes, and nothing else: nothing is allocated, registered or looked up.  MPI 4 has
 * the same as persistent collectives (MPI_Allreduce_init()).
 *
 * Arrays in the communicator's arena (tow_arena_alloc()), or in another region of its device that
 * may be written (tow_region_find()), are sent from where they are and written to where they are
 * to be; others are copied.
 *
 * Several collectives may be on their way at once, started in any order.  What a rank gets is
 * the same, bit for bit, as what all others get, and from run to run: each element is computed by
 * one rank, in an order that depends on nothing but the algorithm, the number of ranks and of
 * elements, and on which ranks are on one node.  tow_work_info() and
 * tow_collective_stats() tell the algorithm; who asks for one has it fixed.
 *
 * When a rank's process dies, its node does, or it comes too late, all others are told which rank
 * that was, and the communicator has failed: see tow_collective_wait().
 *
 * Calls and works may be used by any number of threads at once, and so may a communicator's
 * collectives, but each of them by one at a time.  In a child that was forked all functions
 * return -EPERM, and no other rank hears of what it destroys.
 */
#ifndef TOW_COLLECTIVE_H
#define TOW_COLLECTIVE_H

#include <stddef.h>
#include <stdint.h>

#include <towline/arena.h>
#include <towline/bootstrap.h>
#include <towline/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- communicators ---- */

/* Ranks that can do something together. */
#define TOW_COMM_RANKS_MAX	1024U

/* Collectives of a communicator, at the same time. */
#define TOW_COLLECTIVES_MAX	4096U

struct tow_comm;

/* For struct tow_comm_attr. */
enum tow_comm_flag {
	TOW_COMM_THREAD		= 1 << 0	/* calls go on by a thread of the communicator's */
};

/**
 * struct tow_comm_attr - how a communicator is to be made
 * @size: sizeof(struct tow_comm_attr), as the caller was compiled
 * @timeout_ms: how long a collective may take, in milliseconds from its start, before somebody
 *	is blamed; 0: 600,000
 * @entries: of its queue, at least 16; 0: 256
 * @spin_us: how long to look for what comes before sleeping, in microseconds; 0: 20
 * @flags: bits of enum tow_comm_flag
 * @direct_ranks: an AllReduce of up to so many ranks that does not say how is done directly; 0: 4.  A
 *	reduce-scatter and an all-gather are by up to 16
 * @direct_bytes: if all there is to it is up to so many bytes; 0: 256 KiB
 * @tree_bytes: any other AllReduce of up to so many bytes goes by the tree, and a broadcast of up to a
 *	quarter of that; 0: 128 KiB
 *
 * The last three are of calls that do not say how they are done; what is left goes by the ring.  Those
 * of rank 0 count, and those of others do not: all ranks do a call alike.
 *
 * Without TOW_COMM_THREAD calls go on in the library's functions only, of any thread: also when this
 * rank has ended its own, others may wait for what it passes on.  Later versions of the library
 * add fields at the end only.
 */
struct tow_comm_attr {
	uint32_t size;
	uint32_t timeout_ms;
	uint32_t entries;
	uint32_t spin_us;
	uint32_t flags;
	uint32_t direct_ranks;
	uint64_t direct_bytes;
	uint64_t tree_bytes;
};

/**
 * tow_comm_create() - make a communicator of a group
 * @group: from tow_group_create(); it must be there for as long as the communicator
 * @arena: from tow_arena_create(), of the group's device; for what the communicator needs, and
 *	for the arrays that are not copied
 * @attr: how, or NULL
 * @comm: where to put the communicator; ended by tow_comm_destroy().  Left alone on failure.
 * @blamed: where to put the rank that is to blame, or TOW_NO_RANK; or NULL
 *
 * All ranks call it, and tow_collective_create(), in the same order.
 *
 * Return: 0; -EINVAL: @group, @arena or @comm is NULL, or @attr is not as above; -E2BIG: @attr
 * asks for what this library does not know; -ENOSPC: the group has more ranks than
 * TOW_COMM_RANKS_MAX, or the pool has no room; -EPROTO: @blamed is of another version, or
 * is rank 0 and says what makes no sense; -ECANCELED: @blamed could not; what tow_group_gather(),
 * tow_group_peer(), tow_queue_create(), tow_arena_alloc(), tow_export() and tow_resolve() return.
 */
int tow_comm_create(struct tow_group *group, struct tow_arena *arena,
		    const struct tow_comm_attr *attr, struct tow_comm **comm, uint32_t *blamed);

/**
 * tow_comm_split() - make a communicator of some ranks
 * @comm: in which they are; they need it no more when this has returned
 * @ranks: which ranks of @comm, each once; in their order they are ranks 0, 1, 2 of the new one
 * @count: how many
 * @tag: a number that the same ranks have for no other one that there is
 * @attr: as for tow_comm_create(), without the last three, which are @comm's
 * @split: where to put it; ended by tow_comm_destroy().  Left alone on failure.
 *
 * Those ranks call it, with the same arguments but @attr, and no others; nobody waits for anybody:
 * who has not called it so far is waited for by the first call that needs it.
 *
 * Return: 0; -EINVAL: an argument is NULL, this rank is not among @ranks, one of them is none or is
 * there twice, or @attr is not as for tow_comm_create(); -E2BIG: @attr asks for what this library does
 * not know; -EEXIST: there is one of these ranks and @tag; -EPERM: in a child that was forked;
 * what @comm has failed with; what tow_queue_create(), tow_arena_alloc() and tow_export() return.
 */
int tow_comm_split(struct tow_comm *comm, const uint32_t *ranks, uint32_t count, uint64_t tag,
		   const struct tow_comm_attr *attr, struct tow_comm **split);

/**
 * tow_comm_error() - has it failed?
 * @comm: from tow_comm_create()
 * @blamed: where to put the rank that is to blame, or TOW_NO_RANK; or NULL
 *
 * Return: 0: not so far; what tow_collective_wait() returns of one that has failed; -EINVAL: @comm is
 * NULL; -EPERM: in a child that was forked.
 */
int tow_comm_error(struct tow_comm *comm, uint32_t *blamed);

/**
 * tow_comm_destroy() - end a communicator
 * @comm: from tow_comm_create(), or NULL
 *
 * Other ranks are told that this one has left, and not that it died.  Comes before the
 * group's and the arena's end.
 *
 * Return: 0; -EBUSY: it has collectives, or calls or letters that have not ended, and nothing was
 * done; -EPERM: in a child that was forked, where nothing but its copy ends.
 */
int tow_comm_destroy(struct tow_comm *comm);

/* ---- collectives ---- */

/**
 * enum tow_collective_kind - what is done
 * @TOW_ALLREDUCE: of @count elements each, all ranks get the reduction
 * @TOW_REDUCE_SCATTER: of ranks times @count elements each, rank R gets the reduction of those
 *	from R times @count on
 * @TOW_ALLGATHER: of @count elements each, all ranks get all, by rank
 * @TOW_BROADCAST: of @count elements, all ranks get what @root has
 * @TOW_BARRIER: nobody goes on before all have come; no arrays
 */
enum tow_collective_kind {
	TOW_ALLREDUCE		= 0,
	TOW_REDUCE_SCATTER	= 1,
	TOW_ALLGATHER		= 2,
	TOW_BROADCAST		= 3,
	TOW_BARRIER		= 4
};

/**
 * enum tow_reduction - how elements are combined
 * @TOW_SUM: they are added; integers wrap around; of bools it is their or
 * @TOW_AVG: the same, divided by the number of ranks; integers are cut off towards 0, after their
 *	sum has wrapped around.  Of finite float16 it is finite, whatever their sum is: they are added
 *	as a power of two smaller, which costs bits where the sum is less than 2^-12 times the number
 *	of ranks.  Not of bools
 * @TOW_MIN: the least; of a NaN and something else a NaN; of 0 and -0 either; of bools their and
 * @TOW_MAX: the greatest; the same holds; of bools their or
 * @TOW_PRODUCT: they are multiplied; integers wrap around; of bools it is their and
 * @TOW_BAND: bits that all have; of integers and bools
 * @TOW_BOR: bits that any has; of integers and bools
 * @TOW_BXOR: bits that an odd number of them have; of integers and bools
 *
 * Sums and products of float16 and bfloat16 are made in float32 and rounded to nearest, ties to even,
 * with each rank's.  A bool is true if it is not 0; what comes out is 0 or 1.
 */
enum tow_reduction {
	TOW_SUM			= 0,
	TOW_AVG			= 1,
	TOW_MIN			= 2,
	TOW_MAX			= 3,
	TOW_PRODUCT		= 4,
	TOW_BAND		= 5,
	TOW_BOR			= 6,
	TOW_BXOR		= 7
};

/**
 * enum tow_algorithm - how ranks do something together
 * @TOW_ALGORITHM_ANY: as suits its size and the number of ranks
 * @TOW_ALGORITHM_RING: each rank sends to the next one only: reduce-scatter and all-gather, in
 *	2 (P - 1) steps of 1/P of the bytes, in pieces that overlap ("Bringing HPC Techniques to
 *	Deep Learning", Baidu 2017)
 * @TOW_ALGORITHM_DIRECT: all to all.  Of an AllReduce rank R reduces 1/P of the elements, which all others write to it, and
 *	writes what comes out to all others: two steps ("MiMatrix", 2018)
 * @TOW_ALGORITHM_TREE: by a binomial tree of the ranks, whole arrays
 *
 * An AllReduce goes by any; reduce-scatter and all-gather by the ring or directly; a broadcast by the
 * ring or the tree; a reduction by the tree; a barrier has none.
 */
enum tow_algorithm {
	TOW_ALGORITHM_ANY	= 0,
	TOW_ALGORITHM_RING	= 1,
	TOW_ALGORITHM_DIRECT	= 2,
	TOW_ALGORITHM_TREE	= 3
};

struct tow_collective;

/**
 * struct tow_collective_attr - what a collective is to do
 * @size: sizeof(struct tow_collective_attr), as the caller was compiled
 * @kind: enum tow_collective_kind
 * @reduction: enum tow_reduction; 0 where nothing is reduced
 * @algorithm: enum tow_algorithm; 0 for barriers
 * @dtype: what an element is: of those with one lane float32, float64, float16, bfloat16, int64,
 *	int32, int8, uint8 and bool of 8 bits where something is reduced, else any of whole bytes;
 *	{0} for barriers
 * @root: of a broadcast: whose elements; else 0
 * @count: how many elements; see enum tow_collective_kind
 * @in: what this rank has; NULL: where it is in @out: there at once (AllReduce, broadcast), at
 *	its own place among all (all-gather).  Not NULL for reduce-scatter.  Ignored for who gets a
 *	broadcast
 * @out: where to put what this rank gets; may be @in, for an AllReduce or a broadcast, or, for an
 *	all-gather and reduce-scatter, be such that one's is at this rank's place among all; they
 *	overlap in no other way
 * @piece_bytes: how much is sent at once, a multiple of 64; 0: as suits its size
 *
 * All but @in and @out is the same at all ranks.  Arrays are aligned to their elements' size, and
 * there as long as the collective is.  Later versions of the library add fields at the end only.
 */
struct tow_collective_attr {
	uint32_t size;
	uint32_t kind;
	uint32_t reduction;
	uint32_t algorithm;
	struct tow_dtype dtype;
	uint32_t root;
	uint64_t count;
	const void *in;
	void *out;
	uint64_t piece_bytes;
};

/**
 * tow_collective_create() - make a collective
 * @comm: from tow_comm_create()
 * @attr: what it is to do
 * @collective: where to put it; ended by tow_collective_destroy().  Left alone on failure.
 * @blamed: where to put the rank that is to blame, or TOW_NO_RANK; or NULL
 *
 * Return: 0; -EINVAL: an argument but @blamed is NULL, or @attr is not as above; -E2BIG: it asks
 * for what this library does not know; -EOPNOTSUPP: elements cannot be reduced that way, the kind
 * does not go by that algorithm, or an array is in another device's memory, where this library neither
 * adds nor copies; -EOVERFLOW: there are too many; -EBUSY: calls are collected (tow_calls_begin());
 * -EMLINK: @comm has
 * TOW_COLLECTIVES_MAX of them; -ENOSPC: the pool has no room; -EPROTO: @blamed asks for something else;
 * -ECANCELED: @blamed could not, for a reason of its own; what tow_comm_create() returns.  After
 * what is refused (-EINVAL, -E2BIG, -EOPNOTSUPP, -EOVERFLOW, -EBUSY) other ranks wait until it is
 * made rightly; after another error no rank has it.
 *
 * In its turn among @comm's calls: it waits for all ranks, and what is on its way goes on meanwhile.
 */
int tow_collective_create(struct tow_comm *comm, const struct tow_collective_attr *attr,
			  struct tow_collective **collective, uint32_t *blamed);

/**
 * tow_collective_destroy() - end a collective
 * @collective: from tow_collective_create(), or NULL
 *
 * What was started and has not ended is broken off, which others may take for a rank that died.
 * Waits until nobody writes to its arrays any more.
 */
void tow_collective_destroy(struct tow_collective *collective);

/**
 * tow_collective_start() - begin
 * @collective: from tow_collective_create()
 *
 * Until it has ended @in is not changed, and @out is not used.
 *
 * Return: 0; -EINVAL: @collective is NULL; -EBUSY: it was started, and has not ended; what
 * tow_collective_wait() returns of a communicator that has failed.
 */
int tow_collective_start(struct tow_collective *collective);

/**
 * tow_collective_test() - has it ended?
 * @collective: from tow_collective_create()
 * @blamed: as for tow_collective_wait()
 *
 * Goes on with all that the communicator has on its way.
 *
 * Return: 1: it has, or was not started; 0: it has not; else as tow_collective_wait().
 */
int tow_collective_test(struct tow_collective *collective, uint32_t *blamed);

/**
 * tow_collective_wait() - until it has ended
 * @collective: from tow_collective_create()
 * @blamed: where to put the rank that is to blame, or TOW_NO_RANK; or NULL
 *
 * Goes on with all that the communicator has on its way, and sleeps meanwhile.
 *
 * Return: 0: @out is what it is to be, and may be used, as may @in; -ESTALE: rank @blamed has
 * died, or has left; -ECONNRESET: its node does not answer; -ETIMEDOUT: it did not come in time;
 * -ECANCELED: it could not go on, for a reason of its own; -EINTR: tow_on_signal(), it goes on and
 * may be waited for again; -ENODEV: this node's RDMA device is gone; -EPERM in a child that was forked; -EINVAL: @collective is NULL.  A communicator that has
 * failed has the same error and blames the same rank ever after, for all that it has; what is in
 * @out nobody knows.  Whoever is left makes a new group, under another name or with
 * another @restart of struct tow_world, without the one that died or with its next life.
 */
int tow_collective_wait(struct tow_collective *collective, uint32_t *blamed);

/**
 * tow_collective_wait_for() - the same, and not longer than that
 * @collective: from tow_collective_create()
 * @timeout_us: how long, in microseconds; TOW_WAIT_FOREVER
 * @blamed: as for tow_collective_wait()
 *
 * For who has something else to look after now and then.  Nothing has failed when the time is
 * over: it goes on, and tow_collective_late() says for whom others wait.
 *
 * Return: as tow_collective_test(); -EINTR as tow_collective_wait().
 */
int tow_collective_wait_for(struct tow_collective *collective, uint32_t timeout_us,
			    uint32_t *blamed);

/**
 * tow_collective_late() - who has not started it so far
 * @collective: from tow_collective_create()
 * @rank: the first that has not started it as often as this rank, or does not answer within a
 *	second, is stored here; or TOW_NO_RANK
 *
 * Asks all ranks at once, as far as there is room for that: a round trip, or a few.
 *
 * Return: 0; -EPERM in a child that was forked; -EINVAL: an argument is NULL; or what the communicator
 * has failed with.
 */
int tow_collective_late(struct tow_collective *collective, uint32_t *rank);

/**
 * struct tow_collective_stats - what a collective has done
 * @size: sizeof(struct tow_collective_stats), as the caller was compiled
 * @algorithm: enum tow_algorithm, which was chosen
 * @pieces: in how many pieces what goes to a rank in a step is sent
 * @copies: of @in and @out, how many are in no region that others may write
 * @calls: how often it has ended
 * @sent_bytes: by this rank to others, in all calls
 * @copied_bytes: to and from memory of the arena, as the arrays are in no such region
 * @forwarded: of what came from others, how many messages the kernel passed on while the
 *	process slept
 */
struct tow_collective_stats {
	uint32_t size;
	uint32_t algorithm;
	uint32_t pieces;
	uint32_t copies;
	uint64_t calls;
	uint64_t sent_bytes;
	uint64_t copied_bytes;
	uint64_t forwarded;
};

/**
 * tow_collective_stats() - what a collective has done
 * @collective: from tow_collective_create()
 * @stats: told here; @stats->size is set before
 *
 * Return: 0; -EINVAL: an argument is NULL, or the size is none that there ever was.
 */
int tow_collective_stats(const struct tow_collective *collective,
			 struct tow_collective_stats *stats);

/* ---- calls ---- */

struct tow_work;

/**
 * struct tow_call_attr - how a call is done
 * @size: sizeof(struct tow_call_attr), as the caller was compiled
 * @algorithm: enum tow_algorithm
 * @piece_bytes: how much is sent at once, at most, a multiple of 64; 0: as suits its size.  No
 *	more than 256 KiB
 * @timeout_ms: how long it may take, in milliseconds from its start, before somebody is blamed;
 *	0: as long as the communicator's may
 *
 * The first two are the same at all ranks.  Later versions of the library add fields at the end only.
 */
struct tow_call_attr {
	uint32_t size;
	uint32_t algorithm;
	uint64_t piece_bytes;
	uint32_t timeout_ms;
};

/**
 * tow_allreduce() - all ranks get the reduction of what each has
 * @comm: from tow_comm_create()
 * @in: @count elements of this rank's; NULL: they are in @out
 * @out: where @count elements go; may be @in, and overlaps it in no other way
 * @count: how many, the same at all ranks; may be 0
 * @dtype: what an element is: one of those that are reduced (struct tow_collective_attr)
 * @reduction: enum tow_reduction
 * @attr: how, or NULL
 * @work: where to put what asks for its end; ended by tow_work_free().  NULL: the call returns
 *	when it has ended, with what tow_work_wait() returns then, or 0.  Left alone on failure
 *
 * Begins, and waits for nobody: for no other rank, and for no call before it.  All ranks make the
 * same calls in the same order, which is that in which they take the communicator's lock; a call
 * that another one makes otherwise ends with -EPROTO at all ranks that have not ended it, and
 * those after it are as good as any.
 *
 * @in is not changed, and @out not used, until it has ended; both stay where they are until then,
 * also when @work was freed.  Arrays in regions that may be written, as tow_arena_alloc() gives
 * them, are sent from where they are and written where they are to be; what is in other memory is
 * copied to and from the communicator's.
 *
 * Return: 0; -EINVAL: an argument is NULL, or not as above; -E2BIG: @attr asks for what this
 * library does not know; -EOPNOTSUPP: elements cannot be reduced that way, the algorithm does not
 * do that, or an array is in another device's memory; -EOVERFLOW: there are too many; -ENOMEM;
 * -ENOSPC: the pool has no room; -EPERM: in a child that was forked; or what the communicator has
 * failed with.  After an error no call was made at this rank.
 */
int tow_allreduce(struct tow_comm *comm, const void *in, void *out, uint64_t count,
		  struct tow_dtype dtype, enum tow_reduction reduction,
		  const struct tow_call_attr *attr, struct tow_work **work);

/**
 * tow_reduce_scatter() - each rank gets its part of the reduction
 * @comm: as for tow_allreduce()
 * @in: of ranks times @count elements
 * @out: where @count elements go, of those from rank times @count on; may be that place in @in
 * @count: how many each rank gets
 * @dtype: as for tow_allreduce(), as are all that follow
 * @reduction: how
 * @attr: how
 * @work: what asks for its end
 *
 * Return: as tow_allreduce().
 */
int tow_reduce_scatter(struct tow_comm *comm, const void *in, void *out, uint64_t count,
		       struct tow_dtype dtype, enum tow_reduction reduction,
		       const struct tow_call_attr *attr, struct tow_work **work);

/**
 * tow_allgather() - all ranks get what all have
 * @comm: as for tow_allreduce()
 * @in: @count elements of this rank's; NULL: they are at their place in @out
 * @out: where ranks times @count elements go, by rank; @in may be this rank's place there
 * @count: how many each rank has
 * @dtype: any of whole bytes
 * @attr: as for tow_allreduce()
 * @work: as for tow_allreduce()
 *
 * Return: as tow_allreduce().
 */
int tow_allgather(struct tow_comm *comm, const void *in, void *out, uint64_t count,
		  struct tow_dtype dtype, const struct tow_call_attr *attr,
		  struct tow_work **work);

/**
 * tow_broadcast() - all ranks get what one has
 * @comm: as for tow_allreduce()
 * @data: @count elements: of @root what it has, of others where that goes
 * @count: how many
 * @dtype: any of whole bytes
 * @root: whose, by rank
 * @attr: as for tow_allreduce()
 * @work: as for tow_allreduce()
 *
 * Return: as tow_allreduce().
 */
int tow_broadcast(struct tow_comm *comm, void *data, uint64_t count, struct tow_dtype dtype,
		  uint32_t root, const struct tow_call_attr *attr, struct tow_work **work);

/**
 * tow_reduce() - one rank gets the reduction of what each has
 * @comm: as for tow_allreduce()
 * @in: @count elements of this rank's; NULL: they are in @out
 * @out: where @count elements go, of @root; may be @in.  Of others it is not touched, and may be
 *	NULL if @in is not
 * @count: how many
 * @dtype: as for tow_allreduce()
 * @reduction: how
 * @root: who gets it, by rank
 * @attr: as for tow_allreduce()
 * @work: as for tow_allreduce()
 *
 * Return: as tow_allreduce().
 */
int tow_reduce(struct tow_comm *comm, const void *in, void *out, uint64_t count,
	       struct tow_dtype dtype, enum tow_reduction reduction, uint32_t root,
	       const struct tow_call_attr *attr, struct tow_work **work);

/**
 * tow_barrier() - nobody ends it before all have begun
 * @comm: as for tow_allreduce()
 * @attr: how, or NULL; no algorithm and no piece_bytes
 * @work: as for tow_allreduce()
 *
 * Return: as tow_allreduce().
 */
int tow_barrier(struct tow_comm *comm, const struct tow_call_attr *attr, struct tow_work **work);

/* For tow_receive(): from whomever, and with whatever tag. */
#define TOW_ANY_RANK		UINT32_MAX
#define TOW_ANY_TAG		UINT32_MAX

/**
 * tow_send() - send to one rank
 * @comm: as for tow_allreduce()
 * @data: @count elements
 * @count: how many; may be 0
 * @dtype: any of whole bytes
 * @to: which rank; may be this one
 * @tag: by which it is received; not TOW_ANY_TAG
 * @attr: how, or NULL; no algorithm and no piece_bytes.  Without timeout_ms it takes as long as it
 *	takes; with it, what nobody has received by then ends with -ETIMEDOUT, and harms nobody if it
 *	was not begun; else the communicator fails
 * @work: as for tow_allreduce()
 *
 * Those of one rank to another are received in the order in which they were sent, of those that a
 * receiver's tag is for.  It has ended when @data may be used again: of up to 16 KiB, or less where
 * there are more than 16 ranks, when they are on their way and will be kept at the other end, which
 * keeps 64 KiB of each rank's; of more, and to itself, when they have been received.  What nobody
 * receives holds up no call of all ranks.
 *
 * Return: as tow_allreduce().  Its work ends with -EMSGSIZE if the receiver had too little room and
 * it was not kept there, and with -ESTALE if it has left.
 */
int tow_send(struct tow_comm *comm, const void *data, uint64_t count, struct tow_dtype dtype,
	     uint32_t to, uint32_t tag, const struct tow_call_attr *attr, struct tow_work **work);

/**
 * tow_receive() - receive from one rank
 * @comm: as for tow_allreduce()
 * @data: where it goes
 * @count: how many elements there is room for
 * @dtype: any of whole bytes
 * @from: which rank; or TOW_ANY_RANK
 * @tag: which tag; or TOW_ANY_TAG
 * @attr: as for tow_send()
 * @work: as for tow_allreduce(); tow_work_info() says what has come
 *
 * Return: as tow_allreduce().  Its work ends with -EMSGSIZE if it is longer, and then it is gone;
 * and with -ESTALE if @from has left.
 */
int tow_receive(struct tow_comm *comm, void *data, uint64_t count, struct tow_dtype dtype,
		uint32_t from, uint32_t tag, const struct tow_call_attr *attr,
		struct tow_work **work);

/**
 * struct tow_work_info - what has been sent or received, or how a call was done
 * @size: sizeof(struct tow_work_info), as the caller was compiled
 * @rank: from whom, or to whom; TOW_NO_RANK of calls of all ranks
 * @tag: with which tag; 0 of those
 * @algorithm: of calls of all ranks enum tow_algorithm, which was chosen, or asked for; of barriers,
 *	which have none, and letters 0
 * @bytes: how much; 0 of calls of all ranks
 * @piece_bytes: of calls of all ranks how much was sent at once, at most, a multiple of 64; of
 *	barriers and letters 0
 *
 * A call that asks for @algorithm and @piece_bytes (struct tow_call_attr) is done in that way, whatever
 * the communicator would choose.  Later versions of the library add fields at the end only.
 */
struct tow_work_info {
	uint32_t size;
	uint32_t rank;
	uint32_t tag;
	uint32_t algorithm;
	uint64_t bytes;
	uint64_t piece_bytes;
};

/**
 * tow_work_info() - what has been sent or received, or how a call was done
 * @work: that has ended
 * @info: told here; @info->size is set before
 *
 * Return: 0; -EINVAL: an argument is NULL, or the size is none that there ever was; -EBUSY: it has
 * not ended.
 */
int tow_work_info(const struct tow_work *work, struct tow_work_info *info);

/**
 * tow_calls_begin() - calls that are made from now on are to begin together
 * @comm: from tow_comm_create()
 *
 * What they have to say to a rank first travels in one write, and is handed over by one system call;
 * for many that are small that is most of their time.  Until tow_calls_end() nothing of the
 * communicator's goes on, but for what another thread has in hand, and calls without a work return
 * -EBUSY.  Their time goes on; that it is over is seen afterwards.  May be nested.
 *
 * Return: 0; -EINVAL: @comm is NULL; -EPERM: in a child that was forked.
 */
int tow_calls_begin(struct tow_comm *comm);

/**
 * tow_calls_end() - and now they begin
 * @comm: for which tow_calls_begin() was called
 *
 * Return: 0; -EINVAL: @comm is NULL, or they had begun; -EPERM: in a child that was forked.
 */
int tow_calls_end(struct tow_comm *comm);

/**
 * tow_work_test() - has the call ended?
 * @work: from tow_allreduce() and the like
 * @blamed: where to put the rank that is to blame, or TOW_NO_RANK; or NULL
 *
 * Goes on with all that the communicator has on its way.
 *
 * Return: 1: it has, and its arrays may be used; 0: it has not; -EPROTO: @blamed has made another
 * call than rank 0 in its place, and others are not disturbed; else as tow_collective_wait(), and
 * then all calls that had not ended have the same error.
 */
int tow_work_test(struct tow_work *work, uint32_t *blamed);

/**
 * tow_work_wait() - until the call has ended
 * @work: from tow_allreduce() and the like
 * @timeout_us: how long, in microseconds; TOW_WAIT_FOREVER
 * @blamed: as for tow_work_test()
 *
 * Goes on with all that the communicator has on its way, and sleeps meanwhile.
 *
 * Return: as tow_work_test(): 0 when the time is over and nothing has failed; -EINTR:
 * tow_on_signal(), it goes on and may be waited for again; a call without a work goes on, too, and
 * its arrays are in use until the communicator has been destroyed.
 */
int tow_work_wait(struct tow_work *work, uint32_t timeout_us, uint32_t *blamed);

/**
 * tow_work_fd() - a descriptor that can be read when the call has ended
 * @work: from tow_allreduce() and the like
 *
 * For poll(2) and event loops.  It is the work's, and is closed by tow_work_free(); nothing need be
 * read.  Something has to go on with the communicator meanwhile: its own thread (TOW_COMM_THREAD), or
 * other threads' calls.
 *
 * Return: the descriptor; -EINVAL: @work is NULL; -EMFILE, -ENFILE, -ENOMEM; -EPERM: in a child
 * that was forked.
 */
int tow_work_fd(struct tow_work *work);

/**
 * tow_work_free() - ask no more
 * @work: from tow_allreduce() and the like, which no other thread uses; or NULL
 *
 * A call that has not ended goes on.
 */
void tow_work_free(struct tow_work *work);

/**
 * tow_comm_abort() - end all that a communicator does
 * @comm: from tow_comm_create()
 *
 * Returns at once; may be called by any thread, while others wait.  All calls and collectives end
 * with -ECANCELED, here and at all other ranks, who blame this one; tow_comm_destroy() waits until
 * nobody reads or writes their arrays any more.
 *
 * Return: 0; -EINVAL: @comm is NULL; -EPERM: in a child that was forked.
 */
int tow_comm_abort(struct tow_comm *comm);

/**
 * struct tow_comm_stats - what a communicator's calls have done, at this rank
 * @size: sizeof(struct tow_comm_stats), as the caller was compiled
 * @calls: how many have ended
 * @sent_bytes: to other ranks
 * @eager_bytes: of these, what was small enough to travel with messages, by a copy at each end
 * @staged_bytes: copied before they were sent, as they were in no region
 * @copied_bytes: of what came and was not reduced, what was copied to its place, as that is in no
 *	region that may be written
 */
struct tow_comm_stats {
	uint32_t size;
	uint32_t reserved;
	uint64_t calls;
	uint64_t sent_bytes;
	uint64_t eager_bytes;
	uint64_t staged_bytes;
	uint64_t copied_bytes;
};

/**
 * tow_comm_waited() - for whom this rank has waited
 * @comm: from tow_comm_create()
 * @us: how long for each, by rank, in microseconds of tow_work_wait() and of calls without a work,
 *	is put here
 * @count: for how many ranks there is room
 *
 * Who comes late has others wait for it, and hardly waits itself.
 *
 * Return: how many ranks there are; -EINVAL: an argument is NULL; -EPERM: in a child that was forked.
 */
int tow_comm_waited(struct tow_comm *comm, uint64_t *us, uint32_t count);

/**
 * tow_comm_stats() - what a communicator's calls have done
 * @comm: from tow_comm_create()
 * @stats: told here; @stats->size is set before
 *
 * Return: 0; -EINVAL: an argument is NULL, or the size is none that there ever was; -EPERM: in a
 * child that was forked.
 */
int tow_comm_stats(struct tow_comm *comm, struct tow_comm_stats *stats);

#ifdef __cplusplus
}
#endif

#endif /* TOW_COLLECTIVE_H */

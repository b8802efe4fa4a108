/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Queues: rings of operations that a program and the kernel share.
 *
 *	init.c		a device's queues begin and stop; a client's queues end
 *	queue.c		a queue is made, mapped, polled, ended; its descriptor
 *	channel.c	channels: a queue's ways to peers
 *	event.c		events of peers
 *	sqpoll.c	pollers: entries are taken without a call
 *	enter.c		ENTER: entries begin, and are waited for
 *	lookup.c	RESOLVE without waiting: names that are looked for
 *	sqe.c		entries are taken, and checked
 *	timeout.c	entries that have a deadline
 *	op_wait.c	entries that wait for a slot
 *	request.c	an entry from its beginning to its completion
 *	cqe.c		the completion ring, and room in it
 *	order.c		which entry may begin
 *
 * Calls go down this list.  Below it are ops.c (operations on their way to a
 * peer) and post.c (how they share a queue pair).
 *
 * Documentation/design/rings.md says who holds what.
 */
#ifndef TOW_QUEUE_H
#define TOW_QUEUE_H

#include <linux/hrtimer.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/llist.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/timerqueue.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "core/core.h"
#include "link.h"
#include "memory/memory.h"
#include "ops.h"
#include "order.h"
#include "slot.h"
#include "uapi/towline.h"

struct page;
struct tow_assoc_client;
struct tow_client;
struct tow_cq;
struct tow_device;
struct tow_poller;
struct tow_process;
struct tow_queue;
struct tow_region;
struct tow_remote;

/**
 * struct tow_deadline - when an entry is late
 * @node: in tow_queue.deadlines, until the entry is late or ends; under
 *	tow_queue.lock
 * @entry: the entry
 * @next: the next deadline for tow_deadlines_start()
 */
struct tow_deadline {
	struct timerqueue_node	node;
	struct tow_req		*entry;
	struct tow_deadline	*next;
};

/**
 * struct tow_req - an entry that was taken and has not completed
 * @step: its place in the order
 * @free: of a free entry: the next one in tow_queue.free
 * @op: its operation, if it is one; others use some fields, as @op.claim
 * @deadline: of an entry that is another one's @spare: the deadline of that one
 * @wait: its wait, if it is a WAIT; of others @wait.slot is NULL
 * @run: 0; or so many entries, this one first, are for tow_ops_begin_run(), if they
 *	begin together.  They are linked by tow_step.later, too
 * @run_last: the last one of @run
 * @queue: its queue
 * @spare: of an entry with a deadline: the entry that stands for a second
 *	completion; NULL: it was given back
 * @claim: of an entry with a deadline: what @op.claim points to
 * @user_data: as the program said
 * @opcode: as the program said
 * @flags: as the program said
 * @told: the program knows that the entry is late; under tow_queue.lock, like
 *	@spare and @held
 * @held: the program knows, too, that some of the entry was posted
 * @error: 0; a negative errno: the entry must not begin
 */
struct tow_req {
	union {
		struct tow_step		step;
		struct tow_req		*free;
	};
	union {
		struct tow_op		op;
		struct tow_deadline	deadline;
	};
	struct tow_slot_wait	wait;
	u32			run;
	struct tow_req		*run_last;
	struct tow_queue	*queue;
	struct tow_req		*spare;
	atomic_t		claim;
	u64			user_data;
	u8			opcode;
	u8			flags;
	bool			told;
	bool			held;
	int			error;
};

/**
 * struct tow_channels - those of one client to a peer that are by the same queue pair
 * @share: they take turns together
 * @count: how many; under tow_peers.lock
 */
struct tow_channels {
	struct tow_share	share;
	unsigned int		count;
};

/**
 * struct tow_channel - a queue's way to a peer
 * @flow: the operations of its entries
 * @of_client: with others of the queue's client, owned by all of them together
 * @queue: the queue
 * @number: which of its channels; under tow_queue.submit
 * @of_peer: in tow_peer.channels; under tow_peers.lock, like the next two
 * @news: in tow_queue.news, while @told is not what has happened; else empty
 * @told: the events of the peer that the program knows
 * @taken: entries that named it when they were taken, wrapping around; under
 *	tow_queue.submit
 * @ended: those of @taken that have ended, wrapping around; under
 *	tow_queue.lock
 */
struct tow_channel {
	struct tow_flow		flow;
	struct tow_channels	*of_client;
	struct tow_queue	*queue;
	u32			number;
	struct list_head	of_peer;
	struct list_head	news;
	struct tow_peer_events	told;
	u32			taken;
	u32			ended;
};

static inline struct tow_channel *tow_channel_of(struct tow_flow *flow)
{
	return container_of(flow, struct tow_channel, flow);
}

/**
 * struct tow_queue - a queue
 * @refs: held by its descriptor, by queued work, and one by all @busy entries
 *	together
 * @release: called when the last reference is put; may sleep
 * @dev: the device, with a reference
 * @link: in tow_queues.list
 * @of_client: in tow_client.queues, or empty; under tow_queues.lock
 * @gone: tow_queues_stop() has ended the queue; under tow_queues.lock
 * @sq_entries: of the submission ring
 * @cq_entries: of the completion ring; entries that may be in flight
 * @charge: for @cq_entries
 * @atomics: the device's driver says that it has them
 * @process: the client's process, with a reference
 * @pages: the rings' memory, owned by the queue
 * @page_count: how many @pages
 * @ring: @pages, mapped; the program may write to it at any time
 * @sqes: the submission ring in @ring
 * @cqes: the completion ring in @ring
 * @results: the completions' results in @ring; NULL: it has none
 * @has_results: it has
 * @entries: all entries, @cq_entries of them
 * @channels: struct tow_channel by number; under @submit
 * @news: struct tow_channel with events to report, the first one first; under
 *	tow_peers.lock
 * @poller: takes the queue's entries, with a reference; NULL: ENTER does
 * @poll_link: in tow_poller.queues, until the queue is freed
 * @idle_us: how long the poller looks for more entries, in microseconds
 * @submit: held while entries are taken; protects @client, too
 * @client: the client; NULL: it has ended, or the descriptor is closed
 * @sqe: the copy of the entry that is being taken; under @submit
 * @sq_head: entries that were taken, wrapping around; written under @submit
 * @due: struct tow_slot_wait of entries that have ended, and were not dealt with;
 *	needs no lock
 * @callers: calls that will look at @due again
 * @deal: handles @due if there are no @callers; has a reference to the queue
 *	while it is queued
 * @timer: expires when an entry is late, or would have been
 * @late: handles entries that are late
 * @look: handles lookups that were woken or are late
 * @lookups: struct tow_queue_lookup that wait, by the time when they are late; used by
 *	@look only
 * @free_work: frees the queue if the last reference is put where nobody may
 *	sleep
 *
 * @lock: protects the fields below; in process context only
 * @order: which entries may begin
 * @running: a thread is beginning entries
 * @run: begins entries; has a reference to the queue while it is queued
 * @ended: 0; a negative errno: nothing begins any more
 * @free: entries that are free
 * @busy: how many entries are not free; the poller reads it without the lock
 * @starved: entries were not taken for want of room
 * @deadlines: struct tow_deadline by time
 * @alarm: when @timer expires; KTIME_MAX: it is not set
 * @cq_next: completions that were written, wrapping around
 * @cq_tail: those of them that the program may see
 * @waiters: calls that sleep
 * @wanted: completions that the least demanding of @waiters waits for; 0: each is
 *	to wake it
 * @waiting: struct tow_slot_wait of entries that have begun
 * @waited: those of @waiting that the queue's end has ended
 * @woken: struct tow_queue_lookup that were woken, or are new
 * @cqs: where operations complete, with references, the latest ones.  Changed
 *	only by the @running thread, under the lock; compared without
 * @cqs_turn: which of @cqs makes room for the next one
 * @penance: how many waits look only shortly for completions before they
 *	sleep; read and written without the lock, like @vain
 * @vain: how many longer looks were in vain, one after the other
 * @waits: some of the operations that began last wait for their turn; read and
 *	written without the lock
 * @wait: calls: woken when there are @wanted completions, when there is room where
 *	@starved, and at the queue's end
 * @poll_wait: poll(2): woken for each completion, for events, and as @wait
 */
struct tow_queue {
	struct kref		refs;
	void			(*release)(struct kref *refs);
	struct tow_device	*dev;
	struct list_head	link;
	struct list_head	of_client;
	bool			gone;
	u32			sq_entries;
	u32			cq_entries;
	struct tow_charge	charge;
	bool			atomics;
	struct tow_process	*process;
	struct page		**pages;
	unsigned int		page_count;
	struct tow_ring		*ring;
	struct tow_sqe		*sqes;
	struct tow_cqe		*cqes;
	struct tow_result	*results;
	bool			has_results;
	struct tow_req		*entries;
	struct xarray		channels;
	struct list_head	news;
	struct tow_poller	*poller;
	struct list_head	poll_link;
	u32			idle_us;
	/* protects channels, client, sqe, sq_head */
	struct mutex		submit;
	struct tow_client	*client;
	struct tow_sqe		sqe;
	u32			sq_head;
	struct llist_head	due;
	atomic_t		callers;
	struct work_struct	deal;
	struct hrtimer		timer;
	struct work_struct	late;
	struct delayed_work	look;
	struct timerqueue_head	lookups;
	struct work_struct	free_work;

	/* protects everything below */
	spinlock_t		lock;
	struct tow_order	order;
	bool			running;
	struct work_struct	run;
	int			ended;
	struct tow_req		*free;
	u32			busy;
	bool			starved;
	struct timerqueue_head	deadlines;
	ktime_t			alarm;
	u32			cq_next;
	u32			cq_tail;
	unsigned int		waiters;
	u32			wanted;
	struct list_head	waiting;
	struct list_head	waited;
	struct list_head	woken;
	struct tow_cqs		cqs;
	unsigned int		cqs_turn;
	u8			penance;
	u8			vain;
	bool			waits;
	wait_queue_head_t	wait;
	wait_queue_head_t	poll_wait;
};

/**
 * struct tow_queues - a device's queues
 * @lock: protects @list, @pollers and @stopped
 * @list: all queues, without a reference
 * @pollers: struct tow_poller that have not stopped, without a reference
 * @stopped: the device is going: nothing is added
 * @inflight_bytes: bytes that may be on their way on one queue pair; a file in
 *	sysfs, read with READ_ONCE()
 * @loopback_copy_bytes: operations of up to so many bytes to our own node are copied
 *	by the kernel; 0: none; likewise
 * @op_stall_ms: a session ends when nothing completes on one of its queue pairs
 *	for so many milliseconds; 0: it does not; likewise
 */
struct tow_queues {
	/* protects list, pollers, stopped */
	struct mutex		lock;
	struct list_head	list;
	struct list_head	pollers;
	bool			stopped;
	u32			inflight_bytes;
	u32			loopback_copy_bytes;
	u32			op_stall_ms;
};

/**
 * struct tow_taken - entries that tow_queue_submit() has taken
 * @count: how many
 * @step: from tow_queue_add()
 * @cqs: from tow_queue_add(), with references
 */
struct tow_taken {
	u32		count;
	struct tow_step	*step;
	struct tow_cqs	cqs;
};

/* init.c */
int tow_queues_init(struct tow_device *dev);
void tow_queues_stop(struct tow_queues *queues);
bool tow_queues_busy(struct tow_queues *queues,
		     const struct tow_account *account);
void tow_queues_cleanup(struct tow_device *dev);
void tow_queue_leave_client(struct tow_queue *queue);
void tow_queue_client_end(struct tow_client *client);

/* queue.c */
void tow_queue_end(struct tow_queue *queue, int error);
int tow_call_queue_create(struct tow_client *client, void *data,
			  const struct tow_answer *answer);

/* channel.c */
void tow_channels_init(struct tow_queue *queue);
void tow_channels_free(struct tow_queue *queue);
void tow_channels_stop(struct tow_queue *queue, int error);
int tow_queue_channel_open(struct tow_queue *queue, void __user *user);
int tow_queue_channel_close(struct tow_queue *queue, void __user *user);

/* sqe.c */
int tow_queue_ended_error(struct tow_queue *queue);
int tow_queue_submit(struct tow_queue *queue, u32 count,
		     struct tow_taken *result);
u32 tow_queue_needs(const struct tow_queue *queue, u32 most);
bool tow_queue_stuck(struct tow_queue *queue);

/* enter.c */
long tow_queue_enter(struct tow_queue *queue, void __user *user);
bool tow_queue_can_take(struct tow_queue *queue);
bool tow_queue_serve(struct tow_queue *queue);

/* lookup.c */
void tow_queue_init_lookups(struct tow_queue *queue);
void tow_queue_end_lookups(struct tow_queue *queue);
void tow_queue_stop_lookups(struct tow_queue *queue);
void tow_queue_drop_found(struct tow_queue *queue, struct tow_client *client);
long tow_queue_resolve(struct tow_queue *queue, void __user *user);

/* cqe.c */
u32 tow_queue_completions(struct tow_queue *queue);
bool tow_queue_has_room(struct tow_queue *queue, u32 completions);
u32 tow_reqs_take(struct tow_queue *queue, u32 count, u32 least,
		  struct tow_req **list);
struct tow_req *tow_req_take(struct tow_queue *queue);
void tow_reqs_return(struct tow_queue *queue, struct tow_req *list, u32 count);

/* request.c */
void tow_chain_end(struct tow_queue *queue, struct tow_step *rest);
void tow_reqs_finish(struct tow_op *ops);
void tow_reqs_end(struct tow_op *ops);
void tow_req_end(struct tow_req *entry, int status);
bool tow_req_answer(struct tow_req *entry, int status, u32 flag,
		    const struct tow_result *result);
void tow_queue_init_run(struct tow_queue *queue);
struct tow_step *tow_queue_add(struct tow_queue *queue,
			       struct tow_step *chains, u32 plain,
			       struct tow_cqs *cqs);
void tow_queue_cqs_get(struct tow_queue *queue, struct tow_cqs *cqs);
void tow_queue_begin(struct tow_queue *queue, struct tow_step *step);
void tow_queue_run(struct tow_queue *queue);

/* op_wait.c */
void tow_queue_init_waits(struct tow_queue *queue);
void tow_queue_wait_ended(struct tow_slot_wait *wait);
void tow_queue_hand_over(struct tow_req *entry);
void tow_queue_handle_waits(struct tow_queue *queue);
void tow_queue_call_begin(struct tow_queue *queue);
void tow_queue_call_end(struct tow_queue *queue);
void tow_queue_end_waits(struct tow_queue *queue, int error);

/* timeout.c */
void tow_queue_init_deadlines(struct tow_queue *queue);
void tow_queue_stop_deadlines(struct tow_queue *queue);
void tow_timeout_set(struct tow_req *entry, struct tow_req *spare,
		     ktime_t end);
void tow_deadlines_start(struct tow_queue *queue,
			 struct tow_deadline *deadlines);

/* event.c */
extern const struct tow_assoc_client tow_ring_client;
bool tow_queue_has_event(const struct tow_queue *queue);
int tow_queue_event(struct tow_queue *queue, void __user *user);

#endif /* TOW_QUEUE_H */

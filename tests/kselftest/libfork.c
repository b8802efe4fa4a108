// SPDX-License-Identifier: GPL-2.0
/*
 * A forked child calls every function of the library that takes an object, all of them its
 * parent's: it is refused, or told what it may know, at once, whatever another thread of the
 * parent is in the middle of; then it ends all objects.  The parent's memory is what it was, and
 * the parent and other ranks go on.
 *
 * tests/house/forked looks whether there is a function that is not tried here.
 */
/* build: link -ltowline */
#include <towline/collective.h>
#include <towline/feed.h>
#include <towline/mailbox.h>
#include <towline/numpy.h>
#include <towline/queue.h>
#include <towline/server.h>
#include <towline/slot.h>
#include <towline/tracer.h>

#include "tow_held.h"
#include "tow_ranks.h"

#define MIB		((size_t)1 << 20)
#define POOL_BYTES	"128m"
#define REGION_BYTES	(8 * MIB)
#define RANKS		2U
#define COUNT		1000U
#define BLOCK_BYTES	((size_t)4096)
#define LATE_US		30000000U
#define SOON_US		20000U
/* What nobody is late in, while the other rank has children. */
#define LONG_MS		300000U
/* What a child may take that is not refused at once. */
#define CHILD_SECONDS	20.0
#define KINDS		3
#define LAST_STEP	3U

/* What a child is in, and the first answer that was none it should have had. */
struct said {
	char doing[48];
	char wrong[48];
	long was, wanted;
};

/* What all processes see. */
struct board {
	_Atomic uint32_t there, steps, batches, may_reduce, failed;
	struct said said[RANKS];
};

static struct board *board;
static const struct tow_tensor_type floats = { { TOW_DTYPE_FLOAT, 32, 1 }, 1, { COUNT } };

/* Edges of a kind: both ends are this process's. */
struct pair {
	struct tow_edge *out, *in;
};

/* What a rank has. */
struct all {
	struct tow_me me;
	struct said *said;
	struct tow_peer *peer;
	struct tow_region *region, *spare;
	void *mapped;
	struct tow_exported *exported;
	struct tow_slot *slot;
	struct tow_remote *remote;
	struct tow_queue *queue, *copies;
	struct tow_channel *channel, *copying;
	/* With red zones; of 2 MiB, and then ordinary memory. */
	struct tow_arena *debug, *small;
	void *block[3];
	float *tensor;
	struct tow_tracer *tracer;
	uint32_t node;
	struct tow_numpy *numpy;
	void *array;
	struct tow_worker *worker;
	struct pair pairs[KINDS];	/* static, dynamic, a rendezvous */
	struct tow_mailbox *box;
	struct tow_line *line, *accepted;	/* its ends, both in that one */
	struct tow_group *lonely;
	struct tow_store *store, *served;
	struct tow_comm *comm;
	struct tow_collective *sum, *barrier;
	float *sums;
	struct tow_work *work;		/* of a call that is on its way */
	float *called;
	struct tow_ps *ps;
	struct tow_feed *feed;
	/* All of the arenas' memory, and what was in it. */
	struct {
		void *addr;
		uint64_t bytes;
		void *copy;
	} parts[16];
	unsigned int parts_count;
};

/* ---- what a child tries -------------------------------------------------------- */

static struct said *said;

static void begin_try(const char *function)
{
	snprintf(said->doing, sizeof(said->doing), "%s", function);
}

static void end_try(long was, long wanted)
{
	if (was == wanted || said->wrong[0])
		return;
	memcpy(said->wrong, said->doing, sizeof(said->wrong));
	said->was = was;
	said->wanted = wanted;
}

#define TRY(wanted, function, ...) do { \
	begin_try(#function); \
	end_try((long)function(__VA_ARGS__), wanted); \
} while (0)

/* What gives memory, and says in errno why it does not. */
#define TRY_NONE(function, ...) do { \
	begin_try(#function); \
	end_try(function(__VA_ARGS__) ? 1 : -errno, -EPERM); \
} while (0)

#define TRY_VOID(function, ...) do { \
	begin_try(#function); \
	function(__VA_ARGS__); \
} while (0)

static void nothing_done(void *arg, int status)
{
	(void)arg;
	(void)status;
}

static void try_memory(struct all *all)
{
	static const uint8_t key[TOW_JOB_KEY_BYTES] = { 1 };
	static char memory[4096];
	struct tow_device_attr attr = { .size = sizeof(attr) };
	struct tow_region_info info = { .size = sizeof(info) };
	struct tow_device *dev = all->me.dev;
	struct tow_exported *exported;
	struct tow_exports *exports;
	struct tow_regions *regions;
	struct tow_region *region;
	struct tow_slot *slot;
	uint64_t offset;
	void *at;
	int fd;

	TRY(0, tow_device_query, dev, &attr);
	TRY(-EPERM, tow_job_join, dev, key);
	TRY(-EPERM, tow_region_create, dev, 4096, NULL, &region);
	TRY(-EPERM, tow_region_attach, dev, "none", 0, &region);
	TRY(-EPERM, tow_region_from_memory, dev, memory, sizeof(memory), 0, &region);
	TRY(-EPERM, tow_region_from_dmabuf, dev, 0, 0, 4096, 0, &region);
	TRY(-EPERM, tow_region_from_fd, dev, 0, &region);
	TRY(-EPERM, tow_region_map, all->region, 0, 0, PROT_READ, &at);
	TRY(-EPERM, tow_region_unmap, all->region, all->mapped, 0);
	TRY(-EPERM, tow_region_find, dev, all->mapped, &region, &offset, NULL);
	TRY(-EPERM, tow_region_fd, all->region, 0, &fd);
	TRY(0, tow_region_info, all->region, &info);
	TRY(0, tow_region_list_get, dev, 0, &regions);
	TRY_VOID(tow_region_list_free, regions);
	TRY(-EPERM, tow_export, all->region, 0, 8, "child", TOW_RIGHT_READ, &exported);
	TRY(0, tow_export_list_get, dev, 0, &exports);
	TRY_VOID(tow_export_list_free, exports);
	TRY(-EPERM, tow_slot_create, all->region, 64, "child", &slot);
	TRY(0, tow_slot_value, all->slot);
}

static void try_peers(struct all *all)
{
	const struct tow_name name = { .peer = all->peer, .name = "w", .rights = TOW_RIGHT_READ };
	struct tow_queue_event event = { .size = sizeof(event) };
	const struct tow_cqe completion = { 0 };
	struct tow_peer_info info = { .size = sizeof(info) };
	const char *address = tow_own_address();
	const struct tow_node node = { .address = address };
	struct tow_device *dev = all->me.dev;
	struct tow_peer *peer, *found = NULL;
	struct tow_channel *channel;
	struct tow_remote *remote;
	const struct tow_cqe *cqe;
	struct tow_queue *queue;
	struct tow_peers *peers;

	TRY(-EPERM, tow_peer_connect, dev, address, NULL, TOW_PEER_WAIT_MS, &peer);
	TRY(0, tow_peer_find, dev, address, &found);
	TRY(0, tow_peer_info, all->peer, &info);
	TRY(-EPERM, tow_peer_disconnect, found);
	TRY(0, tow_peer_list_get, dev, 0, &peers);
	TRY_VOID(tow_peer_list_free, peers);
	TRY(-EPERM, tow_resolve, all->peer, "none", TOW_RIGHT_READ, TOW_PEER_WAIT_MS, &remote);
	TRY(TOW_PEER_REGION / 2, tow_remote_bytes, all->remote);
	TRY(-EPERM, tow_queue_create, dev, 8, 0, &queue);
	TRY(-EPERM, tow_queue_create_with, dev, 8, 0, NULL, &queue);
	begin_try("tow_queue_fd");
	end_try(tow_queue_fd(all->queue) >= 0, 1);
	TRY(-EPERM, tow_queue_event, all->queue, &event);
	TRY(-EPERM, tow_queue_resolve, all->queue, &name, 1);
	TRY(-EPERM, tow_queue_found, all->queue, &completion, &remote);
	TRY(-EPERM, tow_queue_connect, all->queue, &node, 1);
	TRY(-EPERM, tow_queue_connected, all->queue, &completion, &peer);
	TRY(-EPERM, tow_channel_get, all->queue, all->peer, 0, &channel);
	TRY(-EPERM, tow_channel_put, all->channel);
	TRY(0, tow_queue_get_sqe, all->queue);
	TRY(-EPERM, tow_queue_submit, all->queue);
	TRY(-EPERM, tow_queue_submit_and_wait, all->queue, 1);
	TRY(-EPERM, tow_queue_submit_room, all->queue, 0);
	TRY(-EPERM, tow_queue_enter, all->queue, 0, 1, LATE_US);
	TRY(-EPERM, tow_queue_peek_cqe, all->queue, &cqe);
	TRY(-EPERM, tow_queue_wait_cqe, all->queue, &cqe, LATE_US);
	if (!all->copies)
		return;
	TRY(-EPERM, tow_memcpy, all->copying, all->region, 0, all->remote, 0, 8, TOW_TO_REMOTE,
	    nothing_done, NULL);
	TRY(-EPERM, tow_queue_progress, all->copies, LATE_US);
}

static void try_arena(struct tow_arena *arena, void *block, size_t usable)
{
	struct tow_arena_stats stats = { .size = sizeof(stats) };
	struct tow_region *region;
	uint64_t offset;

	TRY_NONE(tow_arena_alloc, arena, 100);
	TRY_NONE(tow_arena_aligned, arena, 4096, 100);
	TRY_NONE(tow_arena_zeroed, arena, 10, 10);
	TRY_NONE(tow_arena_realloc, arena, block, 10);
	TRY(-EPERM, tow_arena_free, arena, block);
	TRY((long)usable, tow_arena_usable, arena, block);
	TRY(usable ? 0 : -ENOENT, tow_arena_find, arena, block, &region, &offset);
	TRY(-EPERM, tow_arena_adopt, arena, (struct tow_region *)block);
	TRY(0, tow_arena_trim, arena, 0);
	TRY(0, tow_arena_check, arena);
	TRY(-EPERM, tow_arena_stats, arena, &stats);
}

static void try_arenas(struct all *all)
{
	struct tow_arena *arena;

	TRY(-EPERM, tow_arena_create, all->me.dev, NULL, &arena);
	try_arena(all->me.arena, all->block[0], BLOCK_BYTES);
	try_arena(all->debug, all->block[1], BLOCK_BYTES);
	/* Ordinary memory, of which nothing is known without the lock. */
	try_arena(all->small, all->block[2], 0);
}

static void try_tracer(struct all *all)
{
	struct tow_tracer_report report = { .size = sizeof(report) };
	struct tow_region *region;
	struct tow_tracer *tracer;
	struct tow_numpy *numpy;
	uint64_t offset;
	uint32_t node;
	void *ptr;

	TRY(-EPERM, tow_tracer_create, all->me.arena, &tracer);
	TRY(-EPERM, tow_tracer_node, all->tracer, "child", &node);
	TRY(-EPERM, tow_tracer_step_begin, all->tracer);
	TRY(-EPERM, tow_tracer_step_end, all->tracer);
	TRY(-EPERM, tow_tracer_node_begin, all->tracer, all->node);
	TRY_NONE(tow_tracer_alloc, all->tracer, all->node, 100);
	TRY(-EPERM, tow_tracer_allocated, all->tracer, all->node, all, 100);
	TRY(-EPERM, tow_tracer_free, all->tracer, all->block[0]);
	TRY_VOID(tow_tracer_freed, all->tracer, all->block[0]);
	TRY(-EPERM, tow_tracer_transferred, all->tracer, all->block[0], 100);
	TRY(0, tow_tracer_report, all->tracer, &report);
	TRY(-EPERM, tow_tracer_save, all->tracer, "/dev/null");
	TRY(-EPERM, tow_tracer_load, all->tracer, "/dev/null");
	/* NumPy has ordinary memory there. */
	TRY(0, tow_numpy_create, all->me.arena, NULL, &numpy);
	begin_try("tow_numpy_malloc");
	ptr = tow_numpy_malloc(numpy, 100);
	end_try(!!ptr, 1);
	TRY(-ENOENT, tow_arena_find, all->me.arena, ptr, &region, &offset);
	TRY_VOID(tow_numpy_free, numpy, ptr, 100);
	TRY_VOID(tow_numpy_destroy, numpy);
	begin_try("tow_numpy_calloc");
	ptr = tow_numpy_calloc(all->numpy, 10, 10);
	end_try(!!ptr, 1);
	TRY(-ENOENT, tow_arena_find, all->me.arena, ptr, &region, &offset);
	TRY_VOID(tow_numpy_free, all->numpy, ptr, 100);
	TRY(-EPERM, tow_numpy_retire, all->numpy);
	TRY(UINT32_MAX, tow_numpy_node, all->numpy, UINT32_MAX);
	TRY_NONE(tow_numpy_realloc, all->numpy, all->array, 10);
	TRY_VOID(tow_numpy_free, all->numpy, all->array, 100);
}

static void nothing_sent(void *arg, uint64_t step, int status)
{
	(void)arg;
	(void)step;
	(void)status;
}

static void nothing_came(void *arg, struct tow_edge *edge, int status)
{
	(void)arg;
	(void)edge;
	(void)status;
}

static void nothing_got(void *arg, const struct tow_rendezvous_tensor *got)
{
	(void)arg;
	(void)got;
}

static void try_new_edges(struct all *all)
{
	struct tow_worker *worker;
	struct tow_edge *edge;

	TRY(-EPERM, tow_worker_create, all->me.dev, all->me.arena, NULL, &worker);
	begin_try("tow_worker_fd");
	end_try(tow_worker_fd(all->worker) >= 0, 1);
	TRY(-EPERM, tow_worker_progress, all->worker, LATE_US);
	TRY(0, tow_worker_copied, all->worker);
	TRY(-EPERM, tow_static_receiver, all->worker, all->peer, "child", &floats, 2, &edge);
	TRY(-EPERM, tow_static_receiver_in, all->worker, all->peer, "child", &floats, 2,
	    all->region, &edge);
	TRY(-EPERM, tow_static_sender, all->worker, all->peer, "child", &floats, &edge);
	TRY(-EPERM, tow_dynamic_receiver, all->worker, all->peer, "child", 2, &edge);
	TRY(-EPERM, tow_dynamic_sender, all->worker, all->peer, "child", &edge);
	TRY(-EPERM, tow_rendezvous_receiver, all->worker, all->peer, "child", 8, &edge);
	TRY(-EPERM, tow_rendezvous_sender, all->worker, all->peer, "child", 8, &edge);
}

static void try_receiver(struct tow_edge *edge)
{
	uint64_t step;
	void *data;

	TRY(-EPERM, tow_edge_test, edge, &data, &step);
	TRY(-EPERM, tow_edge_wait, edge, LATE_US, &data, &step);
	TRY(-EPERM, tow_edge_next, edge, &step);
	TRY(-EPERM, tow_edge_arm, edge);
	TRY(-EPERM, tow_edge_watch, edge, nothing_came, NULL);
	TRY(-EPERM, tow_edge_consumed, edge);
}

static void try_edges(struct all *all)
{
	struct pair *fixed = &all->pairs[0], *dynamic = &all->pairs[1], *asked = &all->pairs[2];
	struct tow_tensor_type type;
	void *data;

	try_new_edges(all);
	for (int i = 0; i < KINDS; i++) {
		TRY(-EPERM, tow_edge_connect, all->pairs[i].in, TOW_PEER_WAIT_MS);
		TRY(0, tow_edge_pending, all->pairs[i].out);
	}
	try_receiver(fixed->in);
	try_receiver(dynamic->in);
	TRY(-EPERM, tow_edge_type, dynamic->in, &type);
	TRY(-EPERM, tow_edge_take, dynamic->in, &data);
	TRY(-EPERM, tow_edge_send, fixed->out, all->tensor, nothing_sent, NULL);
	TRY(-EPERM, tow_dynamic_send, dynamic->out, &floats, all->tensor, nothing_sent, NULL);
	TRY(-EPERM, tow_rendezvous_put, asked->out, "child", 1, &floats, all->tensor, 0,
	    nothing_sent, NULL);
	TRY(-EPERM, tow_rendezvous_fail, asked->out, "child", 1, -ENOENT);
	TRY(-EPERM, tow_rendezvous_get, asked->in, "child", 1, nothing_got, NULL);
	TRY(-EPERM, tow_rendezvous_wait, asked->in, "child", 1, LATE_US, NULL, &data);
	TRY(-EPERM, tow_rendezvous_cancel, asked->in, "child", 1);
}

static void nothing_new(void *arg, struct tow_line *line, uint32_t what)
{
	(void)arg;
	(void)line;
	(void)what;
}

static void try_mailboxes(struct all *all)
{
	struct tow_line_info info = { .size = sizeof(info) };
	struct tow_mailbox *box;
	struct tow_line *line;
	uint32_t bytes;
	char byte;

	TRY(-EPERM, tow_mailbox_create, all->worker, "child", NULL, &box);
	TRY(-EPERM, tow_mailbox_connect, all->box, all->peer, "child", TOW_PEER_WAIT_MS, &line);
	TRY(-EPERM, tow_mailbox_accept, all->box, &line);
	TRY(-EPERM, tow_mailbox_info, all->line, &info);
	TRY(-EPERM, tow_mailbox_send, all->line, "", 1);
	TRY(-EPERM, tow_mailbox_receive, all->accepted, &byte, 1, &bytes);
	TRY(-EPERM, tow_mailbox_watch, all->box, nothing_new, NULL);
	TRY(-EPERM, tow_mailbox_wait, all->box, all->line, TOW_MAILBOX_CAME, LATE_US);
}

static int no_batch(void *arg, uint32_t rank, uint64_t step, void *const *tensors)
{
	(void)arg;
	(void)rank;
	(void)step;
	(void)tensors;
	return 0;
}

static void try_group(struct all *all)
{
	struct tow_world world = { .size = sizeof(world), .world_size = 1 };
	struct tow_group *group;
	struct tow_peer *peer;

	TRY(-EPERM, tow_group_create, all->me.dev, &world, NULL, &group, NULL);
	TRY(all->me.rank, tow_group_rank, all->me.group);
	TRY(RANKS, tow_group_size, all->me.group);
	TRY(-EPERM, tow_group_gather, all->me.group, NULL, 0, NULL, NULL);
	TRY(-EPERM, tow_group_peer, all->me.group, 0, &peer);
	if (all->lonely)
		TRY(-EPERM, tow_group_peer, all->lonely, 0, &peer);
}

static void try_collectives(struct all *all)
{
	struct tow_collective_stats stats = { .size = sizeof(stats) };
	struct tow_collective_attr attr = { .size = sizeof(attr), .kind = TOW_BARRIER };
	struct tow_collective *collective;
	uint32_t blamed;
	struct tow_comm *comm;

	TRY(-EPERM, tow_comm_create, all->me.group, all->me.arena, NULL, &comm, &blamed);
	TRY(-EPERM, tow_collective_create, all->comm, &attr, &collective, &blamed);
	TRY(-EPERM, tow_collective_start, all->sum);
	TRY(-EPERM, tow_collective_test, all->sum, &blamed);
	TRY(-EPERM, tow_collective_late, all->sum, &blamed);
	TRY(-EPERM, tow_collective_wait, all->sum, &blamed);
	TRY(-EPERM, tow_collective_wait_for, all->sum, LATE_US, &blamed);
	TRY(0, tow_collective_stats, all->sum, &stats);
}

static void try_calls(struct all *all)
{
	struct tow_comm_stats stats = { .size = sizeof(stats) };
	const struct tow_dtype type = floats.dtype;
	struct tow_comm *comm = all->comm;
	float *data = all->called;
	const uint32_t all_ranks[RANKS] = { 0, 1 };
	uint64_t waited[RANKS];
	struct tow_comm *split;
	struct tow_work *work;
	uint32_t blamed;

	TRY(-EPERM, tow_allreduce, comm, NULL, data, COUNT, type, TOW_SUM, NULL, &work);
	TRY(-EPERM, tow_allreduce, comm, NULL, data, COUNT, type, TOW_SUM, NULL, NULL);
	TRY(-EPERM, tow_reduce_scatter, comm, data, all->sums, COUNT / RANKS, type, TOW_SUM,
	    NULL, &work);
	TRY(-EPERM, tow_allgather, comm, NULL, data, COUNT / RANKS, type, NULL, &work);
	TRY(-EPERM, tow_broadcast, comm, data, COUNT, type, 0, NULL, &work);
	TRY(-EPERM, tow_reduce, comm, NULL, data, COUNT, type, TOW_SUM, 0, NULL, &work);
	TRY(-EPERM, tow_barrier, comm, NULL, &work);
	TRY(-EPERM, tow_send, comm, data, COUNT, type, 0, 0, NULL, &work);
	TRY(-EPERM, tow_receive, comm, data, COUNT, type, TOW_ANY_RANK, TOW_ANY_TAG, NULL, &work);
	TRY(-EINVAL, tow_work_info, all->work, NULL);
	TRY(-EPERM, tow_work_test, all->work, &blamed);
	TRY(-EPERM, tow_work_wait, all->work, LATE_US, &blamed);
	TRY(-EPERM, tow_work_fd, all->work);
	TRY(-EPERM, tow_calls_begin, comm);
	TRY(-EPERM, tow_calls_end, comm);
	TRY(-EPERM, tow_comm_split, comm, all_ranks, RANKS, 1, NULL, &split);
	TRY(-EPERM, tow_comm_error, comm, &blamed);
	TRY(-EPERM, tow_comm_waited, comm, waited, RANKS);
	TRY(-EPERM, tow_comm_abort, comm);
	TRY(-EPERM, tow_comm_stats, comm, &stats);
}

static void try_stores(struct all *all)
{
	const void *gradients[] = { all->tensor };
	struct tow_store_attr attr = { .size = sizeof(attr), .rate = 1 };
	struct tow_store *store;

	TRY(-EPERM, tow_store_create, all->me.arena, &attr, &floats, NULL, 1, &store);
	TRY(-EPERM, tow_store_update, all->store, 0, gradients, 1);
	begin_try("tow_store_value");
	end_try(!!tow_store_value(all->store, 0), 1);
	TRY(0, tow_store_updates, all->store, 0);
}

static void try_servers(struct all *all)
{
	struct tow_ps_attr ps_attr = { .size = sizeof(ps_attr), .servers = 1, .count = 1,
				       .types = &floats };
	struct tow_feed_attr feed_attr = { .size = sizeof(feed_attr), .count = 1,
					   .types = &floats };
	struct tow_feed_worker worker = { .size = sizeof(worker) };
	struct tow_feed_stats feed_stats = { .size = sizeof(feed_stats) };
	struct tow_ps_stats ps_stats = { .size = sizeof(ps_stats) };
	bool works = all->me.rank;
	void *const *tensors;
	struct tow_feed *feed;
	struct tow_ps *ps;
	uint32_t blamed;

	TRY(-EPERM, tow_ps_create, all->me.group, all->me.arena, &ps_attr, &ps, &blamed);
	TRY(works ? -EINVAL : -EPERM, tow_ps_serve, all->ps, LATE_US, &blamed);
	TRY(works ? -EPERM : -EINVAL, tow_ps_push, all->ps, 0, all->tensor);
	TRY(works ? -EPERM : -EINVAL, tow_ps_wait, all->ps, TOW_PS_ALL, &blamed);
	begin_try("tow_ps_value");
	end_try(!!tow_ps_value(all->ps, 0), works);
	begin_try("tow_ps_step");
	end_try(tow_ps_step(all->ps) >= 1, 1);
	TRY(0, tow_ps_stats, all->ps, &ps_stats);
	TRY_VOID(tow_ps_leave, all->ps);
	TRY(-EPERM, tow_feed_create, all->me.group, all->me.arena, &feed_attr, &feed, &blamed);
	TRY(works ? -EINVAL : -EPERM, tow_feed_serve, all->feed, no_batch, NULL, LATE_US, &blamed);
	TRY(works ? -EPERM : -EINVAL, tow_feed_next, all->feed, &tensors, &blamed);
	TRY(works ? -EINVAL : 0, tow_feed_worker, all->feed, 1, &worker);
	begin_try("tow_feed_step");
	end_try(tow_feed_step(all->feed) <= 2, 1);
	TRY(0, tow_feed_stats, all->feed, &feed_stats);
	TRY_VOID(tow_feed_leave, all->feed);
}

/* In the order in which a program ends, of which nobody hears. */
static void try_ends(struct all *all)
{
	TRY_VOID(tow_feed_destroy, all->feed);
	TRY_VOID(tow_ps_destroy, all->ps);
	TRY(all->served ? -EPERM : 0, tow_store_destroy, all->served);
	TRY(-EPERM, tow_store_destroy, all->store);
	TRY_VOID(tow_work_free, all->work);
	TRY_VOID(tow_collective_destroy, all->sum);
	TRY_VOID(tow_collective_destroy, all->barrier);
	TRY(-EPERM, tow_comm_destroy, all->comm);
	TRY_VOID(tow_group_destroy, all->lonely);
	TRY_VOID(tow_group_destroy, all->me.group);
	for (int i = 0; i < KINDS; i++) {
		TRY(-EPERM, tow_edge_close, all->pairs[i].out);
		TRY(-EPERM, tow_edge_close, all->pairs[i].in);
	}
	TRY(-EPERM, tow_mailbox_close, all->line);
	TRY(-EPERM, tow_mailbox_close, all->accepted);
	TRY(-EPERM, tow_mailbox_destroy, all->box);
	TRY(-EPERM, tow_worker_destroy, all->worker);
	TRY_VOID(tow_numpy_destroy, all->numpy);
	TRY_VOID(tow_tracer_destroy, all->tracer);
	TRY_VOID(tow_queue_destroy, all->copies);
	TRY_VOID(tow_queue_destroy, all->queue);
	TRY(-EPERM, tow_remote_release, all->remote);
	TRY(-EPERM, tow_slot_destroy, all->slot);
	TRY(-EPERM, tow_unexport, all->exported);
	TRY_VOID(tow_peer_release, all->peer);
	TRY(-EPERM, tow_region_destroy, all->region);
	TRY_VOID(tow_region_release, all->spare);
	TRY(-EPERM, tow_arena_destroy, all->small);
	TRY(-EPERM, tow_arena_destroy, all->debug);
	TRY(-EPERM, tow_arena_destroy, all->me.arena);
	TRY_VOID(tow_device_close, all->me.dev);
}

static void try_everything(struct all *all)
{
	try_memory(all);
	try_peers(all);
	try_arenas(all);
	try_tracer(all);
	try_edges(all);
	try_mailboxes(all);
	try_group(all);
	try_collectives(all);
	try_calls(all);
	try_stores(all);
	try_servers(all);
	try_ends(all);
}

/* ---- children ------------------------------------------------------------------ */

static int part_grown(void *data, struct tow_region *region, void *addr, uint64_t bytes)
{
	struct all *all = data;

	(void)region;
	if (all->parts_count == ARRAY_SIZE(all->parts))
		return -ENOSPC;
	all->parts[all->parts_count].addr = addr;
	all->parts[all->parts_count++].bytes = bytes;
	return 0;
}

static void part_shrinks(void *data, struct tow_region *region, void *addr, uint64_t bytes)
{
	struct all *all = data;

	(void)region;
	(void)bytes;
	for (unsigned int i = 0; i < all->parts_count; i++)
		if (all->parts[i].addr == addr)
			all->parts[i] = all->parts[--all->parts_count];
}

static bool memory_is_kept(struct all *all)
{
	bool same = true;

	for (unsigned int i = 0; i < all->parts_count; i++) {
		same &= !memcmp(all->parts[i].copy, all->parts[i].addr, all->parts[i].bytes);
		munmap(all->parts[i].copy, all->parts[i].bytes);
	}
	return same;
}

static bool copy_memory(struct all *all)
{
	for (unsigned int i = 0; i < all->parts_count; i++) {
		all->parts[i].copy = mmap(NULL, all->parts[i].bytes, PROT_READ | PROT_WRITE,
					  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (all->parts[i].copy == MAP_FAILED)
			return false;
		memcpy(all->parts[i].copy, all->parts[i].addr, all->parts[i].bytes);
	}
	return true;
}

/* Once what was on its way, as credits are, has come. */
static bool keep_memory(struct all *all)
{
	struct tow_patience patience = tow_patience(CHILD_SECONDS);
	bool changes = true;

	while (changes && tow_patient(&patience)) {
		if (!copy_memory(all))
			return false;
		tow_test_sleep_ms(20);
		changes = !memory_is_kept(all);
	}
	return !changes && copy_memory(all);
}

/* A child that does not end is killed: how it ended, or -1. */
static int end_of(pid_t pid)
{
	struct tow_patience patience = tow_patience(CHILD_SECONDS);
	int status = -1;

	while (!waitpid(pid, &status, WNOHANG)) {
		if (!tow_patient(&patience)) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			return -1;
		}
		tow_test_sleep_ms(1);
	}
	return status;
}

/* A child that tries everything, while another thread is there; @still: nothing is written now. */
static int refused(struct all *all, const char *when, bool still)
{
	pid_t pid;
	int status;

	*all->said = (struct said){ 0 };
	if (still && !keep_memory(all))
		return 1;
	pid = fork();
	if (!pid) {
		said = all->said;
		try_everything(all);
		_exit(0);
	}
	status = end_of(pid);
	if (status)
		fprintf(stderr, "# rank %u, %s: a child %s in %s()\n", all->me.rank, when,
			status == -1 ? "hangs" : "dies", all->said->doing);
	else if (all->said->wrong[0])
		fprintf(stderr, "# rank %u, %s: in a child %s() is %ld, not %ld\n", all->me.rank,
			when, all->said->wrong, all->said->was, all->said->wanted);
	if (still && !memory_is_kept(all)) {
		fprintf(stderr, "# rank %u, %s: a child has changed its parent's memory\n",
			all->me.rank, when);
		return 2;
	}
	return status || all->said->wrong[0];
}

/* ---- threads in a call --------------------------------------------------------- */

/* The arena grows: by a region, spans, records. */
static int hold_growing(void *arg, unsigned int hold_at)
{
	struct all *all = arg;
	void *at;

	tow_hold_at = hold_at;
	at = tow_arena_alloc(all->me.arena, REGION_BYTES + MIB);
	tow_hold_at = 0;
	tow_arena_free(all->me.arena, at);
	tow_arena_trim(all->me.arena, 0);
	return at ? 0 : -ENOMEM;
}

/* More small blocks than there are records, by a cache. */
static int hold_cache(void *arg, unsigned int hold_at)
{
	struct all *all = arg;
	void *at[400];
	int ret = 0;

	tow_hold_at = hold_at;
	for (size_t i = 0; i < ARRAY_SIZE(at); i++)
		at[i] = tow_arena_alloc(all->me.arena, 64 + 64 * (i % 8));
	tow_hold_at = 0;
	for (size_t i = 0; i < ARRAY_SIZE(at); i++)
		ret = at[i] ? ret ?: tow_arena_free(all->me.arena, at[i]) : -ENOMEM;
	return ret;
}

static int hold_ordinary(void *arg, unsigned int hold_at)
{
	struct all *all = arg;
	void *at;

	tow_hold_at = hold_at;
	at = tow_arena_alloc(all->small, 3 * MIB);
	tow_hold_at = 0;
	return at ? tow_arena_free(all->small, at) : -ENOMEM;
}

static int hold_region(void *arg, unsigned int hold_at)
{
	struct all *all = arg;
	void *at;
	int ret;

	tow_hold_at = hold_at;
	ret = tow_region_map(all->region, 0, 4096, PROT_READ, &at);
	tow_hold_at = 0;
	return ret ?: tow_region_unmap(all->region, at, 4096);
}

/* A queue that has copied nothing yet. */
static int hold_copy(void *arg, unsigned int hold_at)
{
	struct all *all = arg;
	int ret;

	ret = tow_queue_create(all->me.dev, 8, 0, &all->copies);
	ret = ret ?: tow_channel_get(all->copies, all->peer, 0, &all->copying);
	tow_hold_at = hold_at;
	ret = ret ?: tow_memcpy(all->copying, all->region, 0, all->remote, 0, 8, TOW_TO_REMOTE,
				nothing_done, NULL);
	tow_hold_at = 0;
	if (!ret && tow_queue_progress(all->copies, LATE_US) != 1)
		ret = -EIO;
	tow_queue_destroy(all->copies);
	all->copies = NULL;
	return ret;
}

static int hold_tracer(void *arg, unsigned int hold_at)
{
	struct all *all = arg;
	uint32_t node;
	char name[16];
	int ret;

	snprintf(name, sizeof(name), "node %u", hold_at);
	tow_hold_at = hold_at;
	ret = tow_tracer_node(all->tracer, name, &node);
	tow_hold_at = 0;
	return ret;
}

/* A group that knows no peer yet. */
static int hold_group(void *arg, unsigned int hold_at)
{
	struct tow_world world = { .size = sizeof(world), .world_size = 1 };
	struct tow_group_attr attr = { .size = sizeof(attr), .address = tow_own_address() };
	struct all *all = arg;
	struct tow_peer *peer;
	int ret;

	ret = tow_group_create(all->me.dev, &world, &attr, &all->lonely, NULL);
	tow_hold_at = hold_at;
	ret = ret ?: tow_group_peer(all->lonely, 0, &peer);
	tow_hold_at = 0;
	tow_group_destroy(all->lonely);
	all->lonely = NULL;
	return ret;
}

/* Something is asked for, with the worker's lock, and then done without. */
static int hold_worker(void *arg, unsigned int hold_at)
{
	struct tow_patience patience = tow_patience(CHILD_SECONDS);
	struct all *all = arg;
	struct tow_edge *edge = all->pairs[2].in;
	int ret;

	tow_hold_at = hold_at;
	ret = tow_rendezvous_get(edge, "held", hold_at, nothing_got, NULL);
	tow_hold_at = 0;
	ret = ret ?: tow_rendezvous_cancel(edge, "held", hold_at);
	while (!ret && tow_edge_pending(edge) && tow_patient(&patience))
		ret = tow_worker_progress(all->worker, SOON_US) < 0 ? -EIO : 0;
	return ret ?: tow_edge_pending(edge) ? -ETIMEDOUT : 0;
}

static const struct {
	const char *name;
	int (*call)(void *arg, unsigned int hold_at);
} calls[] = {
	{ "an arena grows", hold_growing }, { "a cache is filled", hold_cache },
	{ "ordinary memory is noted", hold_ordinary }, { "a region is mapped", hold_region },
	{ "a copy begins", hold_copy }, { "a tracer learns", hold_tracer },
	{ "a group connects", hold_group }, { "a worker asks", hold_worker },
};

/* A child at each allocation of a call, until it makes no more: how many, or -1. */
static int refused_in_call(struct all *all, size_t which)
{
	struct tow_held held = { .call = calls[which].call, .arg = all };
	int children = 0, bad = 0;
	bool stands = true;

	while (!bad && stands && children < 40) {
		held.hold_at++;
		if (!tow_held_begin(&held))
			return -1;
		stands = tow_hold_is;
		if (stands)
			bad = refused(all, calls[which].name, true);
		children += stands;
		if (tow_held_end(&held)) {
			fprintf(stderr, "# rank %u, %s: %d in the parent\n", all->me.rank,
				calls[which].name, held.ret);
			return -1;
		}
	}
	return bad ? -1 : children;
}

/* ---- and the parent goes on ---------------------------------------------------- */

static bool is_tensor(const struct all *all, const float *data)
{
	for (uint32_t i = 0; i < COUNT; i++)
		if (data[i] != all->tensor[i])
			return false;
	return true;
}

static int static_step(struct all *all)
{
	uint64_t step, next;
	void *data;
	int ret;

	ret = tow_edge_next(all->pairs[0].out, &next);
	ret = ret ?: tow_edge_send(all->pairs[0].out, all->tensor, nothing_sent, NULL);
	ret = ret ?: tow_edge_wait(all->pairs[0].in, LATE_US, &data, &step);
	if (!ret && (step != next || !is_tensor(all, data)))
		ret = -EIO;
	return ret ?: tow_edge_consumed(all->pairs[0].in);
}

static int dynamic_step(struct all *all)
{
	void *data;
	int ret;

	ret = tow_dynamic_send(all->pairs[1].out, &floats, all->tensor, nothing_sent, NULL);
	ret = ret ?: tow_edge_wait(all->pairs[1].in, LATE_US, &data, NULL);
	if (!ret && !is_tensor(all, data))
		ret = -EIO;
	return ret ?: tow_edge_consumed(all->pairs[1].in);
}

static int asked_step(struct all *all, uint64_t step)
{
	void *data;
	int ret;

	ret = tow_rendezvous_put(all->pairs[2].out, "step", step, &floats, all->tensor, 0,
				 nothing_sent, NULL);
	ret = ret ?: tow_rendezvous_wait(all->pairs[2].in, "step", step, LATE_US, NULL, &data);
	if (ret)
		return ret;
	ret = is_tensor(all, data) ? 0 : -EIO;
	return tow_arena_free(all->me.arena, data) ?: ret;
}

static int message_step(struct all *all)
{
	char byte = 0;
	uint32_t bytes;
	int ret;

	ret = tow_mailbox_send(all->line, "m", 1);
	if (!ret)
		ret = tow_mailbox_wait(all->box, all->accepted, TOW_MAILBOX_CAME, LATE_US);
	if (ret > 0)
		ret = tow_mailbox_receive(all->accepted, &byte, 1, &bytes);
	if (ret > 0)
		return byte == 'm' ? 0 : -EIO;
	return ret ?: -EIO;
}

/* Nothing is on its way any more. */
static int edges_rest(struct all *all)
{
	struct tow_patience patience = tow_patience(CHILD_SECONDS);
	uint32_t pending = 1;

	while (pending && tow_patient(&patience)) {
		if (tow_worker_progress(all->worker, SOON_US) < 0)
			return -EIO;
		pending = 0;
		for (int i = 0; i < KINDS; i++)
			pending += tow_edge_pending(all->pairs[i].out);
	}
	return pending ? -ETIMEDOUT : 0;
}

static int fill_batch(void *arg, uint32_t rank, uint64_t step, void *const *tensors)
{
	(void)arg;
	(void)rank;
	for (uint32_t i = 0; i < COUNT; i++)
		((float *)tensors[0])[i] = (float)step;
	return 1;
}

/* A step of the parameter server's, and a batch of the job server's. */
static int server_step(struct all *all, uint32_t number)
{
	int ret = 0;

	while ((!ret || ret == -ETIMEDOUT) && atomic_load(&board->steps) < number)
		ret = tow_ps_serve(all->ps, SOON_US, NULL);
	while ((!ret || ret == -ETIMEDOUT) && atomic_load(&board->batches) < number)
		ret = tow_feed_serve(all->feed, fill_batch, NULL, SOON_US, NULL);
	return ret == -ETIMEDOUT ? 0 : ret;
}

static int worker_step(struct all *all, uint32_t number)
{
	void *const *tensors;
	const float *value;
	int ret;

	if (number == 1)
		ret = tow_ps_wait(all->ps, TOW_PS_ALL, NULL);
	else
		ret = 0;
	ret = ret ?: tow_ps_push(all->ps, 0, all->tensor);
	ret = ret ?: tow_ps_wait(all->ps, TOW_PS_ALL, NULL);
	value = tow_ps_value(all->ps, 0);
	/* The rate is 1, and the gradient the same each time. */
	for (uint32_t i = 0; !ret && i < COUNT; i++)
		ret = value[i] == -(float)number * all->tensor[i] ? 0 : -EIO;
	atomic_fetch_add(&board->steps, 1);
	if (ret)
		return ret;
	ret = tow_feed_next(all->feed, &tensors, NULL);
	if (ret == 1)
		ret = *(const float *)tensors[0] == (float)(number - 1) ? 0 : -EIO;
	else
		ret = ret ?: -EIO;
	atomic_fetch_add(&board->batches, 1);
	return ret;
}

static int finish_sum(struct all *all)
{
	uint32_t blamed = TOW_NO_RANK;
	int ret = tow_collective_wait(all->sum, &blamed);

	if (ret)
		fprintf(stderr, "# rank %u: the sum ends with %d, blamed %d\n", all->me.rank, ret,
			(int)blamed);
	for (uint32_t i = 0; !ret && i < COUNT; i++)
		ret = all->sums[i] == RANKS * (float)i + 1 ? 0 : -EIO;
	return ret;
}

static int begin_sum(struct all *all)
{
	for (uint32_t i = 0; i < COUNT; i++)
		all->sums[i] = (float)(i + all->me.rank);
	return tow_collective_start(all->sum);
}

static int wait_for_barrier(struct all *all)
{
	int ret = tow_collective_start(all->barrier);

	return ret ?: tow_collective_wait(all->barrier, NULL);
}

static int begin_call(struct all *all)
{
	for (uint32_t i = 0; i < COUNT; i++)
		all->called[i] = (float)(i + all->me.rank);
	return tow_allreduce(all->comm, NULL, all->called, COUNT, floats.dtype, TOW_SUM, NULL,
			     &all->work);
}

static int end_call(struct all *all)
{
	int ret = tow_work_wait(all->work, LATE_US, NULL);

	for (uint32_t i = 0; ret == 1 && i < COUNT; i++)
		ret = all->called[i] == RANKS * (float)i + 1 ? 1 : -EIO;
	tow_work_free(all->work);
	all->work = NULL;
	if (ret == 1)
		return 0;
	return ret ?: -ETIMEDOUT;
}

/* Between two steps, when there are children, one is on its way. */
static int call_step(struct all *all, uint32_t number)
{
	int ret = number > 1 ? end_call(all) : 0;

	return ret ?: number < LAST_STEP ? begin_call(all) : 0;
}

/* Each of these says in its place which of them it was. */
static int go_on(struct all *all, uint32_t number)
{
	int ret[10];

	ret[0] = static_step(all);
	ret[1] = dynamic_step(all);
	ret[2] = asked_step(all, number);
	ret[3] = edges_rest(all);
	ret[4] = all->me.rank ? worker_step(all, number) : server_step(all, number);
	ret[5] = begin_sum(all) ?: finish_sum(all);
	ret[6] = wait_for_barrier(all);
	ret[7] = call_step(all, number);
	ret[8] = tow_group_gather(all->me.group, NULL, 0, NULL, NULL);
	ret[9] = message_step(all);
	for (size_t i = 0; i < ARRAY_SIZE(ret); i++) {
		if (!ret[i])
			continue;
		fprintf(stderr, "# rank %u, step %u: %d of what it goes on with is %d\n",
			all->me.rank, number, (int)i, ret[i]);
		return 30;
	}
	return 0;
}

/* ---- begin and end ------------------------------------------------------------- */

static const char *named(const char *what)
{
	static char name[64];

	snprintf(name, sizeof(name), "%s of %d", what, (int)getpid());
	return name;
}

/* Of the arena that has little room. */
static void expect_ordinary(void *data, const char *what)
{
	(void)data;
	(void)what;
}

static int make_arenas(struct all *all)
{
	struct tow_arena_attr attr = { .size = sizeof(attr), .region_bytes = REGION_BYTES,
				       .grown = part_grown, .shrinks = part_shrinks,
				       .warn = expect_ordinary, .data = all };
	int ret;

	ret = tow_arena_create(all->me.dev, &attr, &all->me.arena);
	attr.region_bytes = 2 * MIB;
	attr.flags = TOW_ARENA_DEBUG;
	ret = ret ?: tow_arena_create(all->me.dev, &attr, &all->debug);
	attr.limit_bytes = 2 * MIB;
	attr.flags = TOW_ARENA_FALLBACK;
	ret = ret ?: tow_arena_create(all->me.dev, &attr, &all->small);
	if (ret)
		return ret;
	all->block[0] = tow_arena_alloc(all->me.arena, BLOCK_BYTES);
	all->block[1] = tow_arena_alloc(all->debug, BLOCK_BYTES);
	all->block[2] = tow_arena_alloc(all->small, 3 * MIB);
	all->tensor = tow_arena_alloc(all->me.arena, COUNT * sizeof(float));
	all->sums = tow_arena_alloc(all->me.arena, COUNT * sizeof(float));
	all->called = tow_arena_alloc(all->me.arena, COUNT * sizeof(float));
	if (!all->block[0] || !all->block[1] || !all->block[2] || !all->tensor || !all->sums ||
	    !all->called)
		return -ENOMEM;
	for (uint32_t i = 0; i < COUNT; i++)
		all->tensor[i] = (float)(i % 100);
	memset(all->block[0], 0x5a, BLOCK_BYTES);
	return 0;
}

static int make_queue(struct all *all)
{
	const char *name = named("range");
	int ret;

	ret = tow_region_create(all->me.dev, TOW_PEER_REGION, NULL, &all->region);
	ret = ret ?: tow_region_create(all->me.dev, TOW_PEER_REGION, NULL, &all->spare);
	ret = ret ?: tow_region_map(all->region, 0, 0, PROT_READ | PROT_WRITE, &all->mapped);
	ret = ret ?: tow_peer_connect(all->me.dev, tow_own_address(), NULL, TOW_PEER_WAIT_MS,
				      &all->peer);
	ret = ret ?: tow_export(all->region, 0, TOW_PEER_REGION / 2, name,
				TOW_RIGHT_READ | TOW_RIGHT_WRITE, &all->exported);
	ret = ret ?: tow_resolve(all->peer, name, TOW_RIGHT_READ | TOW_RIGHT_WRITE,
				 TOW_PEER_WAIT_MS, &all->remote);
	ret = ret ?: tow_slot_create(all->region, TOW_PEER_REGION / 2, named("slot"),
				     &all->slot);
	ret = ret ?: tow_queue_create(all->me.dev, 8, 0, &all->queue);
	return ret ?: tow_channel_get(all->queue, all->peer, 0, &all->channel);
}

static int make_edges(struct all *all)
{
	struct pair *pairs = all->pairs;
	int ret;

	ret = tow_worker_create(all->me.dev, all->me.arena, NULL, &all->worker);
	ret = ret ?: tow_static_receiver(all->worker, all->peer, named("static"), &floats, 2,
					 &pairs[0].in);
	ret = ret ?: tow_static_sender(all->worker, all->peer, named("static"), &floats,
				       &pairs[0].out);
	ret = ret ?: tow_dynamic_receiver(all->worker, all->peer, named("dynamic"), 2,
					  &pairs[1].in);
	ret = ret ?: tow_dynamic_sender(all->worker, all->peer, named("dynamic"),
					&pairs[1].out);
	ret = ret ?: tow_rendezvous_receiver(all->worker, all->peer, named("asked"), 8,
					     &pairs[2].in);
	ret = ret ?: tow_rendezvous_sender(all->worker, all->peer, named("asked"), 8,
					   &pairs[2].out);
	for (int i = 0; i < KINDS; i++) {
		ret = ret ?: tow_edge_connect(pairs[i].out, TOW_PEER_WAIT_MS);
		ret = ret ?: tow_edge_connect(pairs[i].in, TOW_PEER_WAIT_MS);
	}
	return ret;
}

static int make_line(struct all *all)
{
	int ret;

	ret = tow_mailbox_create(all->worker, named("box"), NULL, &all->box);
	ret = ret ?: tow_mailbox_connect(all->box, all->peer, named("box"), TOW_PEER_WAIT_MS,
					 &all->line);
	if (!ret)
		ret = tow_mailbox_wait(all->box, all->line, TOW_MAILBOX_ROOM, LATE_US);
	if (ret == TOW_MAILBOX_ROOM)
		ret = tow_mailbox_wait(all->box, NULL, TOW_MAILBOX_CAME, LATE_US);
	if (ret == TOW_MAILBOX_CAME)
		ret = tow_mailbox_accept(all->box, &all->accepted);
	if (ret > 0)
		return all->accepted ? 0 : -EIO;
	return ret ?: -EIO;
}

static int make_tracer(struct all *all)
{
	int ret = tow_tracer_create(all->me.arena, &all->tracer);

	ret = ret ?: tow_tracer_node(all->tracer, "node", &all->node);
	ret = ret ?: tow_numpy_create(all->me.arena, NULL, &all->numpy);
	if (!ret)
		all->array = tow_numpy_malloc(all->numpy, 100);
	return ret ?: all->array ? 0 : -ENOMEM;
}

static int make_together(struct all *all)
{
	struct tow_collective_attr sum = { .size = sizeof(sum), .dtype = { TOW_DTYPE_FLOAT, 32, 1 },
					   .count = COUNT, .out = all->sums,
					   .algorithm = TOW_ALGORITHM_RING };
	struct tow_collective_attr barrier = { .size = sizeof(barrier), .kind = TOW_BARRIER };
	struct tow_comm_attr comm = { .size = sizeof(comm), .timeout_ms = LONG_MS };
	struct tow_store_attr store = { .size = sizeof(store), .rate = 1 };
	struct tow_ps_attr ps = { .size = sizeof(ps), .servers = 1, .timeout_ms = LONG_MS,
				  .staleness = TOW_PS_SYNCHRONOUS, .count = 1, .types = &floats };
	struct tow_feed_attr feed = { .size = sizeof(feed), .timeout_ms = LONG_MS, .count = 1,
				      .types = &floats };
	int ret;

	ret = tow_comm_create(all->me.group, all->me.arena, &comm, &all->comm, NULL);
	ret = ret ?: tow_collective_create(all->comm, &sum, &all->sum, NULL);
	ret = ret ?: tow_collective_create(all->comm, &barrier, &all->barrier, NULL);
	ret = ret ?: tow_store_create(all->me.arena, &store, &floats, NULL, 1, &all->store);
	if (!all->me.rank)
		ret = ret ?: tow_store_create(all->me.arena, &store, &floats, NULL, 1,
					      &all->served);
	ps.store = all->served;
	ret = ret ?: tow_ps_create(all->me.group, all->me.arena, &ps, &all->ps, NULL);
	return ret ?: tow_feed_create(all->me.group, all->me.arena, &feed, &all->feed, NULL);
}

static int make_all(struct all *all, const char *session)
{
	struct tow_world world = { .size = sizeof(world), .rank = all->me.rank,
				   .world_size = RANKS };
	struct tow_group_attr attr = { .size = sizeof(attr), .timeout_ms = LONG_MS };
	int ret;

	snprintf(world.session, sizeof(world.session), "%s", session);
	ret = tow_device_open(tow_test_device(), 0, &all->me.dev);
	ret = ret ?: make_arenas(all);
	ret = ret ?: make_queue(all);
	ret = ret ?: make_edges(all);
	ret = ret ?: make_line(all);
	ret = ret ?: make_tracer(all);
	ret = ret ?: tow_group_create(all->me.dev, &world, &attr, &all->me.group, NULL);
	ret = ret ?: make_together(all);
	if (ret)
		fprintf(stderr, "# rank %u cannot begin: %d\n", all->me.rank, ret);
	return ret;
}

/* Workers leave, and servers serve until they have. */
static int end_servers(struct all *all)
{
	int ret = 0;

	if (!all->me.rank)
		ret = tow_ps_serve(all->ps, LATE_US, NULL);
	tow_ps_destroy(all->ps);
	if (!all->me.rank && !ret)
		ret = tow_feed_serve(all->feed, fill_batch, NULL, LATE_US, NULL);
	tow_feed_destroy(all->feed);
	ret = ret ?: tow_store_destroy(all->served);
	return ret ?: tow_store_destroy(all->store);
}

static int end_all(struct all *all)
{
	int ret = end_servers(all);

	tow_collective_destroy(all->sum);
	tow_collective_destroy(all->barrier);
	ret = ret ?: tow_comm_destroy(all->comm);
	tow_group_destroy(all->me.group);
	for (int i = 0; i < KINDS; i++) {
		ret = ret ?: tow_edge_close(all->pairs[i].out);
		ret = ret ?: tow_edge_close(all->pairs[i].in);
	}
	ret = ret ?: tow_mailbox_close(all->line);
	ret = ret ?: tow_mailbox_close(all->accepted);
	ret = ret ?: tow_mailbox_destroy(all->box);
	ret = ret ?: tow_worker_destroy(all->worker);
	tow_numpy_free(all->numpy, all->array, 100);
	ret = ret ?: tow_numpy_retire(all->numpy);
	tow_numpy_destroy(all->numpy);
	tow_tracer_destroy(all->tracer);
	tow_queue_destroy(all->queue);
	ret = ret ?: tow_remote_release(all->remote);
	ret = ret ?: tow_slot_destroy(all->slot);
	ret = ret ?: tow_unexport(all->exported);
	tow_peer_release(all->peer);
	ret = ret ?: tow_region_destroy(all->region);
	tow_region_release(all->spare);
	ret = ret ?: tow_arena_destroy(all->small);
	ret = ret ?: tow_arena_destroy(all->debug);
	ret = ret ?: tow_arena_destroy(all->me.arena);
	tow_device_close(all->me.dev);
	if (ret)
		fprintf(stderr, "# rank %u does not end well: %d\n", all->me.rank, ret);
	return ret;
}

/* ---- the ranks ----------------------------------------------------------------- */

/* One that waits in the kernel, and one that waits for it. */
static void *progress(void *arg)
{
	struct all *all = arg;

	return tow_worker_progress(all->worker, LATE_US) < 0 ? arg : NULL;
}

static void *wait_for_sum(void *arg)
{
	return finish_sum(arg) ? arg : NULL;
}

/* Are all other threads of the process asleep? */
static bool others_sleep(void)
{
	char path[64], line[256], state;
	bool asleep = true;
	struct dirent *entry;
	DIR *dir = opendir("/proc/self/task");

	while (dir && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.' || strtol(entry->d_name, NULL, 10) == gettid())
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%.20s/stat", entry->d_name);
		tow_test_read_line(path, line, sizeof(line));
		state = strrchr(line, ')') ? strrchr(line, ')')[2] : 'S';
		asleep &= state == 'S';
	}
	if (dir)
		closedir(dir);
	return dir && asleep;
}

/* Threads wait, and this rank's part of the sum is there: the other one's is not. */
static int refused_to_waiting(struct all *all)
{
	struct tow_patience patience = tow_patience(CHILD_SECONDS);
	pthread_t threads[3];
	void *failed[3];
	bool asleep;
	int ret = 40;

	if (begin_sum(all) || pthread_create(&threads[0], NULL, progress, all) ||
	    pthread_create(&threads[1], NULL, progress, all) ||
	    pthread_create(&threads[2], NULL, wait_for_sum, all))
		return 41;
	/* Soon one of them may look at its clock again. */
	while (!(asleep = others_sleep()) && tow_patient(&patience))
		tow_test_sleep_ms(1);
	if (asleep)
		ret = refused(all, "while threads wait", false) ? 42 : 0;
	atomic_store(&board->may_reduce, 1);
	if (static_step(all))
		ret = 43;
	for (int i = 0; i < 3; i++) {
		pthread_join(threads[i], &failed[i]);
		ret = failed[i] ? 44 + i : ret;
	}
	return ret;
}

static int refused_to_rank(struct all *all)
{
	int children;

	if (refused(all, "when nobody calls", true))
		return 20;
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		children = refused_in_call(all, i);
		if (children < 0)
			return 21;
		if (!children) {
			fprintf(stderr, "# %s: no thread was stopped\n", calls[i].name);
			return 22;
		}
	}
	return 0;
}

/* All ranks have come so far; they may take their time. */
static bool together(uint32_t wanted)
{
	struct tow_patience patience = tow_patience(LONG_MS / 1e3);

	atomic_fetch_add(&board->there, 1);
	while (atomic_load(&board->there) < wanted && !board->failed && tow_patient(&patience))
		tow_test_sleep_ms(1);
	return atomic_load(&board->there) >= wanted;
}

static int be_rank(const void *part, const char *session)
{
	struct all *all = calloc(1, sizeof(*all));
	int ret;

	if (!all)
		return 10;
	all->me.rank = *(const uint32_t *)part;
	all->said = &board->said[all->me.rank];
	/* Looked up before there are threads. */
	tow_test_device();
	ret = make_all(all, session) ? 11 : 0;
	ret = ret ?: go_on(all, 1);
	ret = ret ?: refused_to_rank(all);
	ret = ret ?: together(RANKS) ? 0 : 12;
	ret = ret ?: go_on(all, 2);
	/* One rank's children have ended all while it waits for the other. */
	if (!ret && !all->me.rank)
		ret = refused_to_waiting(all);
	else if (!ret)
		ret = tow_becomes(&board->may_reduce, 1) ? begin_sum(all) ?: finish_sum(all) : 13;
	ret = ret ?: go_on(all, LAST_STEP);
	ret = ret ?: end_all(all) ? 14 : 0;
	/* The other one need not wait. */
	if (ret)
		board->failed = 1;
	return ret;
}

FIXTURE(forked)
{
	struct tow_ranks ranks;
};

FIXTURE_SETUP(forked)
{
	board = tow_ranks_share(sizeof(*board));
	ASSERT_NE(NULL, board);
	ASSERT_EQ(0, tow_ranks_begin(&self->ranks, POOL_BYTES));
}

FIXTURE_TEARDOWN(forked)
{
	tow_ranks_end(&self->ranks);
}

TEST_F_TIMEOUT(forked, everything_is_refused, 300)
{
	static const uint32_t ranks[RANKS] = { 0, 1 };

	for (uint32_t i = 0; i < RANKS; i++)
		tow_ranks_start(&self->ranks, be_rank, &ranks[i]);
	for (uint32_t i = 0; i < RANKS; i++)
		EXPECT_EQ(0, tow_ranks_end_of(&self->ranks, i));
}

/* A child's copy of what is known of memory is its own; the memory is not. */
TEST_F(forked, memory_is_shared)
{
	struct tow_device *dev;
	struct tow_arena *arena;
	unsigned char *tensor;
	pid_t pid;

	ASSERT_EQ(0, tow_device_open(tow_test_device(), 0, &dev));
	ASSERT_EQ(0, tow_arena_create(dev, NULL, &arena));
	tensor = tow_arena_zeroed(arena, 1, BLOCK_BYTES);
	ASSERT_NE(NULL, tensor);
	pid = fork();
	if (!pid) {
		tensor[7] = 7;
		_exit(0);
	}
	EXPECT_EQ(0, end_of(pid));
	EXPECT_EQ(7, tensor[7]);
	EXPECT_EQ(0, tow_arena_destroy(arena));
	tow_device_close(dev);
}

/* What a child has made itself is its own, and not its child's. */
static int has_its_own(void)
{
	struct tow_device *dev;
	struct tow_arena *arena;
	void *block;
	pid_t pid;

	if (tow_device_open(tow_test_device(), 0, &dev) || tow_arena_create(dev, NULL, &arena))
		return 1;
	block = tow_arena_alloc(arena, BLOCK_BYTES);
	pid = fork();
	if (!pid)
		_exit(tow_arena_alloc(arena, 1) || errno != EPERM ||
		      tow_arena_free(arena, block) != -EPERM);
	if (!block || end_of(pid) || tow_arena_free(arena, block))
		return 2;
	tow_arena_destroy(arena);
	tow_device_close(dev);
	return 0;
}

TEST_F(forked, a_childs_own)
{
	pid_t pid;

	EXPECT_EQ(0, has_its_own());
	pid = fork();
	if (!pid)
		_exit(has_its_own());
	EXPECT_EQ(0, end_of(pid));
}

TEST_HARNESS_MAIN

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A node that is played here, and its own peer: ioctl(2) and poll(2) are this file's.  After
 * <kselftest.h>, in one source file.
 *
 * Processes are devices: of node_device[I], which are opened by node_begin(), with a few queues
 * each.  Entries of a queue take effect in the order of their channel, in node_turn(), which
 * whoever waits calls, and who asks for events; of what is on its way a share goes on each time.
 * Of a chain (LINK) an entry begins when the one before it has succeeded.  Channels have one queue
 * pair, or node.qps.  node_kill() ends a process, node_lose() the connection.
 */
#ifndef TOW_NODE_H
#define TOW_NODE_H

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <towline/slot.h>

#include "internal.h"

#define NODE_PROCESSES	100
#define NODE_QUEUES	4
#define NODE_QPS	4
#define NODE_DEVICE_FD	100000
#define NODE_HANDLES	65536
#define NODE_PEER	7

enum node_kind { NODE_REGION = 1, NODE_EXPORT, NODE_REMOTE };

/* A handle, which is its index. */
struct node_object {
	enum node_kind kind;		/* 0: it is free */
	int process;
	/* a region; an export's is .of */
	int fd;
	char *memory;
	uint64_t bytes;
	/* an export, or a remote range, which is of one */
	uint32_t of;
	uint64_t offset;
	uint32_t rights;
	char name[TOW_EXPORT_NAME_MAX + 1];
	uint64_t count;
	uint32_t holder;		/* the remote range that has the slot */
	bool stale;
};

struct node_entry {
	struct node_entry *next;
	struct node_entry *linked;	/* it is held back until this one has ended */
	struct tow_sqe sqe;
};

/* What is on its way by a queue pair. */
struct node_way {
	struct node_entry *first, **last;
};

struct node_queue {
	int fd;				/* -1: it is closed */
	size_t map_bytes;
	struct tow_ring *ring;		/* NULL: there is no such queue */
	struct tow_sqe *sqes;
	struct tow_cqe *cqes;
	uint32_t sq_entries, cq_entries;
	struct node_way ways[NODE_QPS];
	struct node_entry *waits;
	uint64_t told;			/* how often the peer was lost */
};

struct node_process {
	bool dead;
	struct node_queue queues[NODE_QUEUES];
	int no_export, no_channel, no_enter;	/* what those calls of it return, or 0 */
	uint64_t notified;		/* how often it has begun to */
	uint64_t freezes_at;		/* it stands still when it has so often; 0: never */
};

static struct {
	pthread_mutex_t lock;
	struct node_object objects[NODE_HANDLES];
	struct node_process processes[NODE_PROCESSES];
	uint32_t used;
	uint32_t qps;			/* of a channel; 0: 1 */
	uint64_t lost, lost_ns;
	bool stopped;			/* nothing on its way goes on */
	uint64_t stops_at;		/* the same from so many entries on; 0: never */
	uint32_t seed;
	uint64_t entries;		/* that have taken effect, but for NOPs */
} node = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct tow_device node_device[NODE_PROCESSES];

static inline uint32_t node_chance(uint32_t below)
{
	node.seed = node.seed * 1103515245 + 12345;
	return (node.seed >> 16) % below;
}

/* ---- objects ---- */

static inline uint32_t node_new(enum node_kind kind, int process)
{
	for (uint32_t i = 1; i < NODE_HANDLES; i++) {
		if (node.objects[i].kind)
			continue;
		node.objects[i] = (struct node_object){ .kind = kind, .process = process };
		if (i > node.used)
			node.used = i;
		return i;
	}
	ksft_exit_fail_msg("too many objects\n");
}

static inline struct node_object *node_find(uint64_t handle, enum node_kind kind, int process)
{
	struct node_object *object = handle < NODE_HANDLES ? &node.objects[handle] : NULL;

	return object && object->kind == kind && object->process == process ? object : NULL;
}

static inline int node_region_create(int process, struct tow_region_create *create)
{
	uint64_t bytes = (create->bytes + ((1 << 21) - 1)) >> 21 << 21;
	uint32_t handle = node_new(NODE_REGION, process);
	struct node_object *region = &node.objects[handle];

	region->fd = memfd_create("region", MFD_CLOEXEC);
	if (region->fd < 0 || ftruncate(region->fd, (off_t)bytes))
		ksft_exit_fail_perror("memfd");
	region->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, region->fd, 0);
	if (region->memory == MAP_FAILED)
		ksft_exit_fail_perror("mmap");
	region->bytes = bytes;
	create->handle = handle;
	create->map_bytes = bytes;
	create->fd = dup(region->fd);
	return 0;
}

static inline int node_region_destroy(int process, const struct tow_region_destroy *destroy)
{
	struct node_object *region = node_find(destroy->handle, NODE_REGION, process);

	if (!region)
		return -ENOENT;
	munmap(region->memory, region->bytes);
	close(region->fd);
	region->kind = 0;
	return 0;
}

static inline int node_region_query(int process, struct tow_region_info *info)
{
	struct node_object *region = node_find(info->handle, NODE_REGION, process);

	if (!region)
		return -ENOENT;
	info->bytes = region->bytes;
	info->map_bytes = region->bytes;
	return 0;
}

static inline uint32_t node_named(const char *name)
{
	for (uint32_t i = 1; i <= node.used; i++)
		if (node.objects[i].kind == NODE_EXPORT && !strcmp(node.objects[i].name, name))
			return i;
	return 0;
}

static inline char *node_at(const struct node_object *export)
{
	return node.objects[export->of].memory + export->offset;
}

static inline int node_export(int process, struct tow_export *call)
{
	struct node_object *region = node_find(call->region, NODE_REGION, process), *export;
	uint32_t handle;

	if (!region)
		return -ENOENT;
	if (call->offset > region->bytes || call->bytes > region->bytes - call->offset)
		return -EINVAL;
	if (node_named((char *)call->name))
		return -EEXIST;
	handle = node_new(NODE_EXPORT, process);
	export = &node.objects[handle];
	export->of = (uint32_t)call->region;
	export->offset = call->offset;
	export->bytes = call->bytes;
	export->rights = call->rights;
	memcpy(export->name, call->name, call->name_bytes);
	if (call->rights == TOW_RIGHT_NOTIFY)
		__atomic_store_n((uint64_t *)(void *)node_at(export), 0, __ATOMIC_RELEASE);
	call->handle = handle;
	return 0;
}

static inline void node_complete(struct node_queue *queue, const struct tow_sqe *sqe,
				 int status)
{
	uint32_t tail = queue->ring->cq_tail;
	struct tow_cqe *cqe = &queue->cqes[tail & (queue->cq_entries - 1)];

	*cqe = (struct tow_cqe){ .user_data = sqe->user_data, .status = status };
	tow_store_release(&queue->ring->cq_tail, tail + 1);
}

static inline void node_start(int index, struct node_queue *queue, struct node_entry *entry);

/* An entry, which is in no list, has ended: what is linked to it begins, or never does. */
static inline void node_over(int index, struct node_queue *queue, struct node_entry *entry,
			     int status)
{
	struct node_entry *linked = entry->linked;

	if (status || !(entry->sqe.flags & TOW_SQE_SILENT))
		node_complete(queue, &entry->sqe, status);
	free(entry);
	if (!status && linked)
		node_start(index, queue, linked);
	for (; status && linked; linked = entry) {
		entry = linked->linked;
		node_complete(queue, &linked->sqe, -ECANCELED);
		free(linked);
	}
}

/* Of a queue, one that waits for it, if it is there, or the slot has ended so; or NULL. */
static inline struct node_entry *node_take_woken(struct node_queue *queue, uint64_t handle,
						 int status)
{
	struct node_entry **link = &queue->waits, *entry;

	for (; (entry = *link); link = &entry->next) {
		if (entry->sqe.region != handle ||
		    (!status && node.objects[handle].count < entry->sqe.operand))
			continue;
		*link = entry->next;
		return entry;
	}
	return NULL;
}

static inline void node_wake_queue(int index, struct node_queue *queue, uint64_t handle,
				   int status)
{
	struct node_entry *entry;

	while ((entry = node_take_woken(queue, handle, status)))
		node_over(index, queue, entry, status);
}

static inline void node_wake(int index, uint64_t handle, int status)
{
	for (int i = 0; i < NODE_QUEUES; i++)
		node_wake_queue(index, &node.processes[index].queues[i], handle, status);
}

static inline void node_end_export(uint32_t handle)
{
	struct node_object *export = &node.objects[handle];

	for (uint32_t i = 1; i <= node.used; i++)
		if (node.objects[i].kind == NODE_REMOTE && node.objects[i].of == handle)
			node.objects[i].stale = true;
	if (!node.processes[export->process].dead)
		node_wake(export->process, handle, -ESTALE);
	export->kind = 0;
}

static inline int node_unexport(int process, const struct tow_unexport *call)
{
	if (!node_find(call->handle, NODE_EXPORT, process))
		return -ENOENT;
	node_end_export((uint32_t)call->handle);
	return 0;
}

static inline int node_resolve(int process, struct tow_resolve *call)
{
	uint32_t found = node_named((char *)call->name), handle;
	struct node_object *export = &node.objects[found], *remote;

	if (!found)
		return -ENOENT;
	if ((export->rights & call->rights) != call->rights)
		return -EACCES;
	if (call->rights == TOW_RIGHT_NOTIFY && export->holder)
		return -EBUSY;
	handle = node_new(NODE_REMOTE, process);
	remote = &node.objects[handle];
	remote->of = found;
	remote->rights = call->rights;
	if (call->rights == TOW_RIGHT_NOTIFY)
		export->holder = handle;
	call->handle = handle;
	call->bytes = export->bytes;
	return 0;
}

static inline void node_end_remote(uint32_t handle)
{
	struct node_object *remote = &node.objects[handle];

	if (!remote->stale && node.objects[remote->of].holder == handle)
		node.objects[remote->of].holder = 0;
	remote->kind = 0;
}

static inline int node_release(int process, const struct tow_release *call)
{
	struct node_object *remote = node_find(call->handle, NODE_REMOTE, process);
	bool stale;

	if (!remote)
		return -ENOENT;
	stale = remote->stale;
	node_end_remote((uint32_t)call->handle);
	return stale ? -ESTALE : 0;
}

/* ---- queues ---- */

static inline void node_forget_entries(struct node_entry *entry)
{
	struct node_entry *next;

	for (; entry; entry = next) {
		next = entry->next;
		for (struct node_entry *linked = entry; linked; linked = entry) {
			entry = linked->linked;
			free(linked);
		}
	}
}

static inline void node_begin_ways(struct node_queue *queue)
{
	for (int i = 0; i < NODE_QPS; i++) {
		queue->ways[i].first = NULL;
		queue->ways[i].last = &queue->ways[i].first;
	}
}

/* It is none any more. */
static inline void node_forget_queue(struct node_queue *queue)
{
	if (!queue->ring)
		return;
	for (int i = 0; i < NODE_QPS; i++)
		node_forget_entries(queue->ways[i].first);
	node_forget_entries(queue->waits);
	munmap(queue->ring, queue->map_bytes);
	*queue = (struct node_queue){ 0 };
}

/* One that there is not, or that was closed. */
static inline struct node_queue *node_new_queue(int index)
{
	for (int i = 0; i < NODE_QUEUES; i++) {
		struct node_queue *queue = &node.processes[index].queues[i];

		if (queue->ring && queue->fd >= 0)
			continue;
		node_forget_queue(queue);
		return queue;
	}
	ksft_exit_fail_msg("too many queues\n");
}

/* Whose that descriptor was has closed it. */
static inline void node_take_fd(int fd)
{
	for (int i = 0; i < NODE_PROCESSES; i++)
		for (int j = 0; j < NODE_QUEUES; j++)
			if (node.processes[i].queues[j].fd == fd)
				node.processes[i].queues[j].fd = -1;
}

static inline int node_queue_create(int index, struct tow_queue_create *create)
{
	uint32_t sq = 1, cq = 1;
	struct node_queue *queue;
	char *rings;
	int fd;

	while (sq < create->sq_entries)
		sq *= 2;
	while (cq < (create->cq_entries ? create->cq_entries : 2 * sq))
		cq *= 2;
	create->sq_entries = sq;
	create->cq_entries = cq;
	create->sqes_offset = sizeof(struct tow_ring);
	create->cqes_offset = create->sqes_offset + sq * (uint32_t)sizeof(struct tow_sqe);
	create->map_bytes = create->cqes_offset + cq * sizeof(struct tow_cqe);
	create->map_bytes = (create->map_bytes + 4095) / 4096 * 4096;
	/* The library closes it. */
	fd = memfd_create("queue", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)create->map_bytes))
		ksft_exit_fail_perror("memfd");
	node_take_fd(fd);
	queue = node_new_queue(index);
	rings = mmap(NULL, create->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (rings == MAP_FAILED)
		ksft_exit_fail_perror("mmap");
	queue->map_bytes = create->map_bytes;
	queue->ring = (struct tow_ring *)(void *)rings;
	queue->sqes = (struct tow_sqe *)(void *)(rings + create->sqes_offset);
	queue->cqes = (struct tow_cqe *)(void *)(rings + create->cqes_offset);
	queue->sq_entries = sq;
	queue->cq_entries = cq;
	node_begin_ways(queue);
	queue->fd = fd;
	create->fd = fd;
	return 0;
}

static inline void node_count(struct node_object *slot, uint32_t handle)
{
	slot->count++;
	__atomic_store_n((uint64_t *)(void *)node_at(slot), slot->count, __ATOMIC_RELEASE);
	if (!node.processes[slot->process].dead)
		node_wake(slot->process, handle, 0);
}

static inline int node_move(int index, const struct tow_sqe *sqe)
{
	struct node_object *region = node_find(sqe->region, NODE_REGION, index);
	struct node_object *remote = node_find(sqe->remote, NODE_REMOTE, index), *export;

	if (!region || !remote)
		return -EBADF;
	if (remote->stale)
		return -ESTALE;
	export = &node.objects[remote->of];
	if (!(remote->rights & (sqe->opcode == TOW_OP_READ ? TOW_RIGHT_READ : TOW_RIGHT_WRITE)))
		return -EACCES;
	if (sqe->offset > region->bytes || sqe->bytes > region->bytes - sqe->offset ||
	    sqe->remote_offset > export->bytes || sqe->bytes > export->bytes - sqe->remote_offset)
		return -ERANGE;
	if (sqe->opcode == TOW_OP_READ)
		memcpy(region->memory + sqe->offset, node_at(export) + sqe->remote_offset, sqe->bytes);
	else
		memcpy(node_at(export) + sqe->remote_offset, region->memory + sqe->offset, sqe->bytes);
	return 0;
}

static inline int node_carry_out(int index, const struct tow_sqe *sqe)
{
	struct node_object *remote;
	int ret;

	if (sqe->opcode == TOW_OP_NOP)
		return 0;
	node.entries++;
	ret = sqe->bytes ? node_move(index, sqe) : 0;
	if (ret || sqe->opcode != TOW_OP_WRITE_NOTIFY)
		return ret;
	remote = node_find(sqe->operand, NODE_REMOTE, index);
	if (!remote || remote->rights != TOW_RIGHT_NOTIFY)
		return -EACCES;
	if (remote->stale)
		return -ESTALE;
	node_count(&node.objects[remote->of], remote->of);
	return 0;
}

static inline bool node_stands(void)
{
	return node.stopped || (node.stops_at && node.entries >= node.stops_at);
}

static inline void node_turn_way(int index, struct node_queue *queue, struct node_way *way)
{
	uint32_t most = node_chance(4);

	while (!node_stands() && way->first && most--) {
		struct node_entry *entry = way->first;

		way->first = entry->next;
		if (!way->first)
			way->last = &way->first;
		node_over(index, queue, entry, node_carry_out(index, &entry->sqe));
	}
}

/* Some of what is on its way. */
static inline void node_turn_locked(void)
{
	for (int i = 0; i < NODE_PROCESSES; i++)
		for (int j = 0; j < NODE_QUEUES; j++) {
			struct node_queue *queue = &node.processes[i].queues[j];

			for (uint32_t qp = 0; queue->ring && qp < NODE_QPS; qp++)
				if (queue->ways[qp].first)
					node_turn_way(i, queue, &queue->ways[qp]);
		}
}

/* For who only looks, and does not wait. */
static inline void node_turn(void)
{
	pthread_mutex_lock(&node.lock);
	node_turn_locked();
	pthread_mutex_unlock(&node.lock);
}

/* It goes its way, or waits; what it is to wait for may be there already, or be nothing. */
static inline void node_start(int index, struct node_queue *queue, struct node_entry *entry)
{
	uint64_t slot = entry->sqe.region;
	struct node_way *way;

	if (entry->sqe.opcode == TOW_OP_WAIT) {
		entry->next = queue->waits;
		queue->waits = entry;
		node_wake_queue(index, queue, slot,
				node_find(slot, NODE_EXPORT, index) ? 0 : -EBADF);
		return;
	}
	node.processes[index].notified += entry->sqe.opcode == TOW_OP_WRITE_NOTIFY;
	way = &queue->ways[entry->sqe.channel % NODE_QPS];
	*way->last = entry;
	way->last = &entry->next;
}

/* The first entry of those that it takes, with all that is linked to it; NULL: there is none. */
static inline struct node_entry *node_take_chain(struct node_queue *queue, uint32_t *count)
{
	struct node_entry *first = NULL, **link = &first, *entry;
	bool more = true;

	while (more && *count && queue->ring->sq_head != tow_load_acquire(&queue->ring->sq_tail)) {
		entry = calloc(1, sizeof(*entry));
		if (!entry)
			ksft_exit_fail_perror("calloc");
		entry->sqe = queue->sqes[queue->ring->sq_head & (queue->sq_entries - 1)];
		tow_store_release(&queue->ring->sq_head, queue->ring->sq_head + 1);
		*link = entry;
		link = &entry->linked;
		more = entry->sqe.flags & TOW_SQE_LINK;
		--*count;
	}
	return first;
}

/* A chain ends with what one call is to take, too. */
static inline void node_take(int index, struct node_queue *queue, uint32_t count)
{
	struct node_entry *first;

	while ((first = node_take_chain(queue, &count)))
		node_start(index, queue, first);
}

static inline int node_enter(int index, struct node_queue *queue, const struct tow_enter *enter)
{
	uint32_t before = queue->ring->sq_head, unseen;

	node_take(index, queue, enter->to_submit);
	if (enter->to_submit)
		return (int)(queue->ring->sq_head - before);
	node_turn_locked();
	unseen = queue->ring->cq_tail - tow_load_acquire(&queue->ring->cq_head);
	return unseen < enter->min_complete ? -ETIMEDOUT : 0;
}

/* Also who never waits asks that, now and then. */
static inline int node_event(struct node_queue *queue, struct tow_queue_event *event)
{
	node_turn_locked();
	if (queue->told == node.lost) {
		event->peer = 0;
		return 0;
	}
	queue->told = node.lost;
	event->peer = NODE_PEER;
	event->what = TOW_QUEUE_EVENT_LOST;
	event->error = -ECONNRESET;
	event->lost_ns = node.lost_ns;
	return 0;
}

/* A channel is a queue pair's. */
static inline int node_channel_open(struct tow_channel_open *open)
{
	open->qps = node.qps ? node.qps : 1;
	open->qp %= open->qps;
	open->channel = open->qp + 1;
	return 0;
}

/* ---- calls ---- */

static inline int node_peers(struct tow_peer_list *list)
{
	struct tow_peer_info info = { .size = sizeof(info), .peer = NODE_PEER,
				      .state = TOW_PEER_READY, .incarnation = "played" };

	if (!list->count || list->cursor >= NODE_PEER) {
		list->count = 0;
		return 0;
	}
	memcpy((void *)(uintptr_t)list->entries, &info, sizeof(info));
	list->entry_size = sizeof(info);
	list->cursor = NODE_PEER;
	list->count = 1;
	return 0;
}

static inline int node_query(struct tow_query *query)
{
	query->uapi_version = TOW_UAPI_VERSION;
	memcpy(query->incarnation, "played", 7);
	return 0;
}

static inline int node_call(int process, unsigned long command, void *arg)
{
	if (node.processes[process].dead)
		return -EPERM;
	switch (command) {
	case TOW_IOCTL_QUERY:
		return node_query(arg);
	case TOW_IOCTL_REGION_CREATE:
		return node_region_create(process, arg);
	case TOW_IOCTL_REGION_DESTROY:
		return node_region_destroy(process, arg);
	case TOW_IOCTL_REGION_QUERY:
		return node_region_query(process, arg);
	case TOW_IOCTL_EXPORT:
		if (node.processes[process].no_export)
			return node.processes[process].no_export;
		return node_export(process, arg);
	case TOW_IOCTL_UNEXPORT:
		return node_unexport(process, arg);
	case TOW_IOCTL_RESOLVE:
		return node_resolve(process, arg);
	case TOW_IOCTL_RELEASE:
		return node_release(process, arg);
	case TOW_IOCTL_PEER_CONNECT:
		((struct tow_peer_connect *)arg)->peer = NODE_PEER;
		return 0;
	case TOW_IOCTL_PEER_LIST:
		return node_peers(arg);
	case TOW_IOCTL_QUEUE_CREATE:
		return node_queue_create(process, arg);
	default:
		return -ENOTTY;
	}
}

static inline int node_queue_call(int process, struct node_queue *queue, unsigned long command,
				  void *arg)
{
	if (node.processes[process].dead)
		return -EPERM;
	switch (command) {
	case TOW_IOCTL_ENTER:
		if (node.processes[process].no_enter)
			return node.processes[process].no_enter;
		return node_enter(process, queue, arg);
	case TOW_IOCTL_QUEUE_EVENT:
		return node_event(queue, arg);
	case TOW_IOCTL_CHANNEL_OPEN:
		if (node.processes[process].no_channel)
			return node.processes[process].no_channel;
		return node_channel_open(arg);
	default:
		return -ENOTTY;
	}
}

/* Whose that descriptor is, and which queue, or NULL: the device; or -1. */
static inline int node_process_of(int fd, struct node_queue **queue)
{
	*queue = NULL;
	if (fd >= NODE_DEVICE_FD && fd < NODE_DEVICE_FD + NODE_PROCESSES)
		return fd - NODE_DEVICE_FD;
	for (int i = 0; i < NODE_PROCESSES; i++)
		for (int j = 0; j < NODE_QUEUES; j++) {
			*queue = &node.processes[i].queues[j];
			if ((*queue)->ring && (*queue)->fd == fd)
				return i;
		}
	return -1;
}

static inline bool node_is_frozen(int fd)
{
	struct node_queue *queue;
	int process = node_process_of(fd, &queue);

	return process >= 0 && node.processes[process].freezes_at &&
	       node.processes[process].notified >= node.processes[process].freezes_at;
}

/* Called with the lock, which is let go of as long as it stands still. */
static inline void node_wait_until_thawed(int fd)
{
	const struct timespec moment = { 0, 1000000 };

	while (node_is_frozen(fd)) {
		pthread_mutex_unlock(&node.lock);
		nanosleep(&moment, NULL);
		pthread_mutex_lock(&node.lock);
	}
}

static inline int node_answer(int fd, unsigned long command, void *arg)
{
	struct node_queue *queue;
	int process = node_process_of(fd, &queue);

	if (process < 0)
		return -ENOTTY;
	return queue ? node_queue_call(process, queue, command, arg) :
		       node_call(process, command, arg);
}

/* Instead of the C library's, for everything in this program. */
/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
int ioctl(int fd, unsigned long command, ...)
{
	va_list arguments;
	int ret;

	va_start(arguments, command);
	pthread_mutex_lock(&node.lock);
	node_wait_until_thawed(fd);
	ret = node_answer(fd, command, va_arg(arguments, void *));
	pthread_mutex_unlock(&node.lock);
	va_end(arguments);
	if (ret >= 0)
		return ret;
	errno = -ret;
	return -1;
}

/* Nothing is ready: whoever waits looks again soon. */
/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
int poll(struct pollfd *look, nfds_t count, int timeout)
{
	const struct timespec moment = { 0, 50000 };

	pthread_mutex_lock(&node.lock);
	for (nfds_t i = 0; i < count; i++) {
		node_wait_until_thawed(look[i].fd);
		look[i].revents = 0;
	}
	pthread_mutex_unlock(&node.lock);
	if (timeout)
		nanosleep(&moment, NULL);
	return 0;
}

/* ---- what happens to it ---- */

static inline void node_begin(void)
{
	for (int i = 0; i < NODE_PROCESSES; i++) {
		node_device[i].fd = NODE_DEVICE_FD + i;
		node_device[i].process = towi_process();
	}
}

/* One of a process's fields that say what its calls return. */
static inline void node_refuse(int *field, int error)
{
	pthread_mutex_lock(&node.lock);
	*field = error;
	pthread_mutex_unlock(&node.lock);
}

static inline bool node_knows(const char *name)
{
	bool known;

	pthread_mutex_lock(&node.lock);
	known = node_named(name);
	pthread_mutex_unlock(&node.lock);
	return known;
}

/* It stands still when it has begun to notify so often; 0: not any more. */
static inline void node_freeze(int process, uint64_t at)
{
	pthread_mutex_lock(&node.lock);
	node.processes[process].freezes_at = at;
	pthread_mutex_unlock(&node.lock);
}

static inline void node_stop(bool stop)
{
	pthread_mutex_lock(&node.lock);
	node.stopped = stop;
	node.stops_at = 0;
	pthread_mutex_unlock(&node.lock);
}

/* After so many more. */
static inline void node_stop_after(uint64_t entries)
{
	pthread_mutex_lock(&node.lock);
	node.stops_at = node.entries + entries;
	pthread_mutex_unlock(&node.lock);
}

/* Of a process: nothing waits; nothing is on its way; and there is none. */
static inline bool node_waits(int index)
{
	for (int i = 0; i < NODE_QUEUES; i++)
		if (node.processes[index].queues[i].waits)
			return true;
	return false;
}

static inline bool node_is_busy(int index)
{
	for (int i = 0; i < NODE_QUEUES; i++)
		for (int qp = 0; qp < NODE_QPS; qp++)
			if (node.processes[index].queues[i].ways[qp].first)
				return true;
	return false;
}

static inline void node_forget(int index)
{
	for (int i = 0; i < NODE_QUEUES; i++)
		node_forget_queue(&node.processes[index].queues[i]);
	node.processes[index] = (struct node_process){ 0 };
}

static inline void node_end_entries(int index, struct node_queue *queue, struct node_entry *first)
{
	struct node_entry *next;

	for (; first; first = next) {
		next = first->next;
		node_over(index, queue, first, -ENODEV);
	}
}

/* What it had begun has ended, one way or the other. */
static inline void node_end_queue(int index, struct node_queue *queue)
{
	for (int qp = 0; qp < NODE_QPS; qp++) {
		for (struct node_entry *entry = queue->ways[qp].first; entry; entry = entry->next)
			if (node_chance(2))
				node_carry_out(index, &entry->sqe);
			else
				break;
	}
	for (int qp = 0; qp < NODE_QPS; qp++)
		node_end_entries(index, queue, queue->ways[qp].first);
	node_end_entries(index, queue, queue->waits);
	queue->waits = NULL;
	node_begin_ways(queue);
}

/* What a process that is killed leaves behind; to itself its device seems to be gone. */
static inline void node_kill(int index)
{
	pthread_mutex_lock(&node.lock);
	node.processes[index].dead = true;
	for (int i = 0; i < NODE_QUEUES; i++)
		if (node.processes[index].queues[i].ring)
			node_end_queue(index, &node.processes[index].queues[i]);
	for (uint32_t i = 1; i <= node.used; i++) {
		if (node.objects[i].process != index)
			continue;
		if (node.objects[i].kind == NODE_EXPORT)
			node_end_export(i);
		else if (node.objects[i].kind == NODE_REMOTE)
			node_end_remote(i);
	}
	pthread_mutex_unlock(&node.lock);
}

/* All that was found is stale, and whoever asks is told. */
static inline void node_lose(void)
{
	pthread_mutex_lock(&node.lock);
	for (uint32_t i = 1; i <= node.used; i++) {
		if (node.objects[i].kind == NODE_REMOTE)
			node.objects[i].stale = true;
		if (node.objects[i].kind != NODE_EXPORT || !node.objects[i].holder)
			continue;
		node.objects[i].holder = 0;
		if (!node.processes[node.objects[i].process].dead)
			node_wake(node.objects[i].process, i, -ECONNRESET);
	}
	node.lost++;
	node.lost_ns = towi_now_ns();
	pthread_mutex_unlock(&node.lock);
}

#endif /* TOW_NODE_H */

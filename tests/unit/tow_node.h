/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A node that is played here, and its own peer: ioctl(2) and poll(2) are this file's.  After
 * <kselftest.h>, in one source file.
 *
 * Processes are devices: of node_device[I], which are opened by node_begin().  Entries of a queue
 * take effect in the order of its channel, in node_turn(), which whoever waits calls; of what is on
 * its way a share goes on each time.  node_kill() ends a process, node_lose() the connection.
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
	struct tow_sqe sqe;
};

struct node_process {
	bool dead;
	int queue_fd;
	size_t map_bytes;
	struct tow_ring *ring;
	struct tow_sqe *sqes;
	struct tow_cqe *cqes;
	uint32_t sq_entries, cq_entries;
	struct node_entry *first, **last;	/* on their way */
	struct node_entry *waits;
	uint64_t told;			/* how often the peer was lost */
	int no_export, no_channel, no_enter;	/* what those calls of it return, or 0 */
	uint64_t notified;		/* how often it has begun to */
	uint64_t freezes_at;		/* it stands still when it has so often; 0: never */
};

static struct {
	pthread_mutex_t lock;
	struct node_object objects[NODE_HANDLES];
	struct node_process processes[NODE_PROCESSES];
	uint32_t used;
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

static inline void node_complete(struct node_process *process, const struct tow_sqe *sqe,
				 int status)
{
	uint32_t tail = process->ring->cq_tail;
	struct tow_cqe *cqe = &process->cqes[tail & (process->cq_entries - 1)];

	*cqe = (struct tow_cqe){ .user_data = sqe->user_data, .status = status };
	tow_store_release(&process->ring->cq_tail, tail + 1);
}

/* Those that wait for it, if it is there; or have ended so. */
static inline void node_wake(int index, uint64_t handle, int status)
{
	struct node_process *process = &node.processes[index];
	struct node_entry **link = &process->waits, *entry;

	while ((entry = *link)) {
		if (entry->sqe.region != handle ||
		    (!status && node.objects[handle].count < entry->sqe.operand)) {
			link = &entry->next;
			continue;
		}
		*link = entry->next;
		node_complete(process, &entry->sqe, status);
		free(entry);
	}
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

static inline int node_queue_create(int index, struct tow_queue_create *create)
{
	struct node_process *process = &node.processes[index];
	uint32_t sq = 1, cq = 1;
	char *rings;

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
	process->queue_fd = memfd_create("queue", MFD_CLOEXEC);
	if (process->queue_fd < 0 || ftruncate(process->queue_fd, (off_t)create->map_bytes))
		ksft_exit_fail_perror("memfd");
	rings = mmap(NULL, create->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, process->queue_fd,
		     0);
	if (rings == MAP_FAILED)
		ksft_exit_fail_perror("mmap");
	process->map_bytes = create->map_bytes;
	process->ring = (struct tow_ring *)(void *)rings;
	process->sqes = (struct tow_sqe *)(void *)(rings + create->sqes_offset);
	process->cqes = (struct tow_cqe *)(void *)(rings + create->cqes_offset);
	process->sq_entries = sq;
	process->cq_entries = cq;
	process->last = &process->first;
	/* The library closes its own. */
	create->fd = dup(process->queue_fd);
	close(process->queue_fd);
	/* Whose it was has closed it. */
	for (int i = 0; i < NODE_PROCESSES; i++)
		if (node.processes[i].queue_fd == create->fd)
			node.processes[i].queue_fd = -1;
	process->queue_fd = create->fd;
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

/* Some of what is on its way. */
static inline void node_turn_locked(void)
{
	for (int i = 0; i < NODE_PROCESSES; i++) {
		struct node_process *process = &node.processes[i];
		uint32_t most = node_chance(4);

		while (!node_stands() && process->first && most--) {
			struct node_entry *entry = process->first;

			process->first = entry->next;
			if (!process->first)
				process->last = &process->first;
			node_complete(process, &entry->sqe, node_carry_out(i, &entry->sqe));
			free(entry);
		}
	}
}

static inline void node_take(int index, uint32_t count)
{
	struct node_process *process = &node.processes[index];

	for (; count && process->ring->sq_head != tow_load_acquire(&process->ring->sq_tail); count--) {
		struct node_entry *entry = calloc(1, sizeof(*entry));

		if (!entry)
			ksft_exit_fail_perror("calloc");
		entry->sqe = process->sqes[process->ring->sq_head & (process->sq_entries - 1)];
		tow_store_release(&process->ring->sq_head, process->ring->sq_head + 1);
		if (entry->sqe.opcode == TOW_OP_WAIT) {
			entry->next = process->waits;
			process->waits = entry;
			if (node_find(entry->sqe.region, NODE_EXPORT, index))
				node_wake(index, entry->sqe.region, 0);
			else
				node_wake(index, entry->sqe.region, -EBADF);
		} else {
			process->notified += entry->sqe.opcode == TOW_OP_WRITE_NOTIFY;
			*process->last = entry;
			process->last = &entry->next;
		}
	}
}

static inline int node_enter(int index, const struct tow_enter *enter)
{
	struct node_process *process = &node.processes[index];
	uint32_t before = process->ring->sq_head, unseen;

	node_take(index, enter->to_submit);
	if (enter->to_submit)
		return (int)(process->ring->sq_head - before);
	node_turn_locked();
	unseen = process->ring->cq_tail - tow_load_acquire(&process->ring->cq_head);
	return unseen < enter->min_complete ? -ETIMEDOUT : 0;
}

static inline int node_event(int index, struct tow_queue_event *event)
{
	if (node.processes[index].told == node.lost) {
		event->peer = 0;
		return 0;
	}
	node.processes[index].told = node.lost;
	event->peer = NODE_PEER;
	event->what = TOW_QUEUE_EVENT_LOST;
	event->error = -ECONNRESET;
	event->lost_ns = node.lost_ns;
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

static inline int node_queue_call(int process, unsigned long command, void *arg)
{
	struct tow_channel_open *open = arg;

	if (node.processes[process].dead)
		return -EPERM;
	switch (command) {
	case TOW_IOCTL_ENTER:
		if (node.processes[process].no_enter)
			return node.processes[process].no_enter;
		return node_enter(process, arg);
	case TOW_IOCTL_QUEUE_EVENT:
		return node_event(process, arg);
	case TOW_IOCTL_CHANNEL_OPEN:
		if (node.processes[process].no_channel)
			return node.processes[process].no_channel;
		open->qp = 0;
		open->channel = 1;
		open->qps = 1;
		return 0;
	default:
		return -ENOTTY;
	}
}

/* Whose that descriptor is; or -1. */
static inline int node_process_of(int fd)
{
	if (fd >= NODE_DEVICE_FD && fd < NODE_DEVICE_FD + NODE_PROCESSES)
		return fd - NODE_DEVICE_FD;
	for (int i = 0; i < NODE_PROCESSES; i++)
		if (node.processes[i].ring && node.processes[i].queue_fd == fd)
			return i;
	return -1;
}

static inline bool node_is_frozen(int fd)
{
	int process = node_process_of(fd);

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
	int process = node_process_of(fd);

	if (process < 0)
		return -ENOTTY;
	return fd >= NODE_DEVICE_FD ? node_call(process, command, arg) :
				      node_queue_call(process, command, arg);
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

static inline void node_forget_entries(struct node_entry *entry)
{
	struct node_entry *next;

	for (; entry; entry = next) {
		next = entry->next;
		free(entry);
	}
}

/* What a process that is killed leaves behind: what it had begun has ended, one way or the other. */
static inline void node_kill(int index)
{
	struct node_process *process = &node.processes[index];

	pthread_mutex_lock(&node.lock);
	for (struct node_entry *entry = process->first; entry; entry = entry->next)
		if (node_chance(2))
			node_carry_out(index, &entry->sqe);
		else
			break;
	process->dead = true;
	node_forget_entries(process->first);
	node_forget_entries(process->waits);
	process->first = NULL;
	process->last = &process->first;
	process->waits = NULL;
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

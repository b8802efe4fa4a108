// SPDX-License-Identifier: GPL-2.0
/*
 * Edges of all kinds from end to end, with a node that is played here and is its own peer: what is
 * exported is found, entries move memory, slots count.  Rings are so small that there is never room
 * enough.
 */
/* build: also tsan */
/* build: link -Wl,--wrap=tow_queue_enter -Wl,--wrap=tow_queue_destroy -Wl,--wrap=tow_channel_get -Wl,--wrap=tow_channel_put -Wl,--wrap=tow_slot_create -Wl,--wrap=tow_slot_destroy -Wl,--wrap=tow_export -Wl,--wrap=tow_unexport -Wl,--wrap=tow_resolve -Wl,--wrap=tow_remote_release -Wl,--wrap=tow_remote_bytes -Wl,--wrap=tow_region_info -Wl,--wrap=towi_region_far -Wl,--wrap=towi_region_lost -Wl,--wrap=towi_peer_number -Wl,--wrap=towi_peer_copy -Wl,--wrap=towi_peer_named -Wl,--wrap=tow_peer_release -Wl,--wrap=tow_device_query */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>

#include <kselftest.h>

#include "../tensor/edge.h"
#include "tow_ring.h"
#include "tow_source.h"

#define ENTRIES		16U
/* Edges that may wait; and of a mailbox eight ends of lines that nobody has, and a line. */
#define WAITS		((size_t)2 * ENTRIES)
#define LINES		9U
#define FD		1000
#define LATE_MS		20000U
#define LATE_US		20000000U
#define PEER		((struct tow_peer *)(void *)&node)
/* The first of them is what any is. */
#define QPS		3U
/* Where some have gone since channels were opened, of which any is the last one. */
#define QPS_BEFORE	5U
#define QPS_AFTER	4U

/* ---- the node ---- */

/* What was exported; what has gone stays, for who has found it. */
struct thing {
	struct tow_slot shown;		/* first: its handle is where this is */
	struct thing *next;
	char name[TOW_EXPORT_NAME_MAX + 1];
	char *at;			/* of a range; or */
	uint64_t *number;		/* of a slot, and by each of its queue pairs, */
	uint64_t lanes[QPS_AFTER];
	uint32_t width;			/* as many as who holds it said, and */
	uint32_t used;			/* a bit for each that was */
	uint64_t bytes;
	bool held;			/* somebody has the slot */
	bool gone;
};

/* An entry that waits. */
struct waiting {
	struct tow_queue *queue;
	struct tow_sqe sqe;
};

static struct {
	pthread_mutex_t lock;
	struct thing *things;
	struct waiting waiting[1024];
	uint32_t count;
	int cut;			/* chains that ended in the middle */
	bool spoils;			/* what is read is another byte */
	bool narrow;			/* it knows of no width */
	bool shrunk;			/* some of its queue pairs have gone */
	int parts;			/* that came by other queue pairs than the first */
	_Atomic int channels;		/* that edges and lines have, */
	_Atomic int peers;		/* and lines */
} node = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct thing *thing_of(uint64_t handle)
{
	/* NOLINTNEXTLINE(performance-no-int-to-ptr): entries have numbers */
	return (struct thing *)(uintptr_t)handle;
}

static int publish(const char *name, char *at, uint64_t *number, uint64_t bytes,
		   struct thing **made)
{
	struct thing *thing;

	pthread_mutex_lock(&node.lock);
	for (thing = node.things; thing; thing = thing->next)
		if (!thing->gone && !strcmp(thing->name, name))
			break;
	if (!thing) {
		*made = calloc(1, sizeof(**made));
		if (!*made)
			ksft_exit_fail_perror("calloc");
		snprintf((*made)->name, sizeof((*made)->name), "%s", name);
		(*made)->shown = (struct tow_slot){ (uintptr_t)*made, number };
		(*made)->at = at;
		(*made)->number = number;
		(*made)->bytes = bytes;
		(*made)->next = node.things;
		node.things = *made;
	}
	pthread_mutex_unlock(&node.lock);
	return thing ? -EEXIST : 0;
}

/* Called with the lock: what waited for that may go on. */
static void end_waits(const struct thing *thing)
{
	uint32_t i = 0;

	while (i < node.count) {
		struct waiting *one = &node.waiting[i];

		if (one->sqe.region != (uintptr_t)thing ||
		    (!thing->gone && *thing->number < one->sqe.operand)) {
			i++;
			continue;
		}
		ring_complete(one->queue, one->sqe.user_data, thing->gone ? -ECANCELED : 0);
		*one = node.waiting[--node.count];
	}
}

static int withdraw(struct thing *thing)
{
	if (!thing)
		return 0;
	pthread_mutex_lock(&node.lock);
	thing->gone = true;
	end_waits(thing);
	pthread_mutex_unlock(&node.lock);
	return 0;
}

/* A device's memory, and the addresses that stand for it. */
static struct source_region far;
static char *behind;
static bool taken_back;

static bool is_far(const void *at)
{
	return at >= far.at && (const char *)at < (char *)far.at + far.bytes;
}

/* Where the bytes are. */
static char *seen(char *at)
{
	return is_far(at) ? behind + (at - (char *)far.at) : at;
}

static void move(const struct tow_sqe *sqe, const struct thing *thing)
{
	/* NOLINTNEXTLINE(performance-no-int-to-ptr): a region's handle is where it is */
	char *own = seen((char *)(uintptr_t)sqe->region + sqe->offset);
	char *theirs = seen(thing->at + sqe->remote_offset);

	if (sqe->remote_offset + sqe->bytes > thing->bytes)
		ksft_exit_fail_msg("an entry goes behind %s\n", thing->name);
	if (sqe->opcode != TOW_OP_READ) {
		memcpy(theirs, own, sqe->bytes);
		return;
	}
	memcpy(own, theirs, sqe->bytes);
	own[0] = (char)(own[0] + node.spoils);
}

static uint64_t least(const struct thing *slot)
{
	uint64_t number = UINT64_MAX;

	if ((uint32_t)__builtin_popcount(slot->used) < slot->width)
		return *slot->number;
	for (uint32_t i = 0; i < QPS_AFTER; i++)
		if (slot->used & 1U << i && slot->lanes[i] < number)
			number = slot->lanes[i];
	return number;
}

/* Its status; 1: it waits. */
static int carry_out(struct tow_queue *queue, const struct tow_sqe *sqe)
{
	uint32_t qp = sqe->channel % (node.shrunk ? QPS_AFTER : QPS);
	struct thing *slot;

	if (sqe->opcode == TOW_OP_WAIT) {
		slot = thing_of(sqe->region);
		if (slot->gone)
			return -ECANCELED;
		if (*slot->number >= sqe->operand)
			return 0;
		node.waiting[node.count++] = (struct waiting){ queue, *sqe };
		return 1;
	}
	if (sqe->opcode != TOW_OP_NOP && sqe->bytes) {
		if (thing_of(sqe->remote)->gone ||
		    (taken_back && is_far(thing_of(sqe->remote)->at)))
			return -ESTALE;
		/* NOLINTNEXTLINE(performance-no-int-to-ptr): as above */
		if (taken_back && is_far((void *)(uintptr_t)sqe->region))
			return -EFAULT;
		move(sqe, thing_of(sqe->remote));
		node.parts += qp != 0;
	}
	if (sqe->opcode == TOW_OP_WRITE_NOTIFY) {
		slot = thing_of(sqe->operand);
		if (slot->gone)
			return -ESTALE;
		slot->used |= 1U << qp;
		if ((uint32_t)__builtin_popcount(slot->used) > slot->width)
			ksft_exit_fail_msg("a notification by another queue pair\n");
		slot->lanes[qp]++;
		__atomic_store_n(slot->number, least(slot), __ATOMIC_RELEASE);
		end_waits(slot);
	}
	return 0;
}

static void ring_turn(struct tow_queue *queue)
{
	const struct tow_sqe *sqe, *last = NULL;
	int status, before = 0;
	struct tow_sqe own;

	pthread_mutex_lock(&node.lock);
	while ((sqe = ring_take(queue))) {
		own = *sqe;
		last = sqe;
		status = before ? -ECANCELED : carry_out(queue, &own);
		before = own.flags & TOW_SQE_LINK ? status : 0;
		if (status <= 0)
			ring_complete(queue, own.user_data, status);
	}
	node.cut += last && last->flags & TOW_SQE_LINK;
	pthread_mutex_unlock(&node.lock);
}

/* Instead of the C library's: a queue is known by its descriptor. */
static struct tow_queue *queues[2];

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
int poll(struct pollfd *look, nfds_t count, int timeout_ms)
{
	static const struct timespec moment = { 0, 1000000 };
	uint64_t until = towi_until((uint64_t)timeout_ms * 1000);
	struct tow_queue *queue = queues[look[0].fd - FD];

	if (count != 2)
		ksft_exit_fail_msg("an unknown poll\n");
	do {
		if (tow_load_acquire(&queue->ring->cq_tail) !=
		    tow_load_acquire(&queue->ring->cq_head))
			look[0].revents = POLLIN;
		if (ppoll(&look[1], 1, &moment, NULL) > 0 || look[0].revents)
			return 1;
	} while (towi_left_us(until));
	return 0;
}

/* NOLINTBEGIN(readability-identifier-naming) */
int __wrap_tow_channel_get(struct tow_queue *queue, const struct tow_peer *peer, uint32_t qp,
			   struct tow_channel **channel);
int __wrap_tow_channel_put(struct tow_channel *channel);
void __wrap_tow_queue_destroy(struct tow_queue *queue);
int __wrap_tow_slot_create(struct tow_region *region, uint64_t offset, const char *name,
			   struct tow_slot **made);
int __wrap_tow_slot_destroy(struct tow_slot *of);
int __wrap_tow_export(struct tow_region *region, uint64_t offset, uint64_t bytes,
		      const char *name, uint32_t rights, struct tow_exported **exported);
int __wrap_tow_unexport(struct tow_exported *exported);
int __wrap_tow_resolve(struct tow_peer *peer, const char *name, uint32_t rights,
		       uint32_t timeout_ms, struct tow_remote **found);
int __wrap_tow_remote_release(struct tow_remote *of);
uint64_t __wrap_tow_remote_bytes(const struct tow_remote *of);
int __wrap_tow_region_info(const struct tow_region *region, struct tow_region_info *info);
bool __wrap_towi_region_far(const struct tow_region *region, const void *ptr);
bool __wrap_towi_region_lost(const struct tow_region *region);
uint64_t __wrap_towi_peer_number(const struct tow_peer *peer);
int __wrap_towi_peer_copy(const struct tow_peer *peer, struct tow_peer **copy);
int __wrap_towi_peer_named(const struct tow_device *dev,
			   const uint8_t incarnation[TOW_INCARNATION_BYTES], struct tow_peer **peer);
void __wrap_tow_peer_release(struct tow_peer *peer);
int __wrap_tow_device_query(const struct tow_device *dev, struct tow_device_attr *attr);
/* NOLINTEND(readability-identifier-naming) */

void __wrap_tow_queue_destroy(struct tow_queue *queue)
{
	ring_free(queue);
}

int __wrap_tow_channel_get(struct tow_queue *queue, const struct tow_peer *peer, uint32_t qp,
			   struct tow_channel **channel)
{
	static struct tow_channel all[QPS] = {
		{ .number = 0, .qp = 0, .qps = QPS }, { .number = 1, .qp = 1, .qps = QPS },
		{ .number = 2, .qp = 2, .qps = QPS },
	}, more[QPS_BEFORE] = {
		{ .number = 0, .qp = 0, .qps = QPS_BEFORE },
		{ .number = 1, .qp = 1, .qps = QPS_BEFORE },
		{ .number = 2, .qp = 2, .qps = QPS_BEFORE },
		{ .number = 3, .qp = 3, .qps = QPS_BEFORE },
		{ .number = 4, .qp = 4, .qps = QPS_BEFORE },
	};

	(void)queue;
	(void)peer;
	if (node.shrunk)
		*channel = &more[qp == TOW_CHANNEL_ANY ? QPS_BEFORE - 1 : qp];
	else
		*channel = &all[qp == TOW_CHANNEL_ANY ? 0 : qp];
	node.channels++;
	return 0;
}

int __wrap_tow_channel_put(struct tow_channel *channel)
{
	node.channels -= channel != NULL;
	return 0;
}

int __wrap_tow_slot_create(struct tow_region *region, uint64_t offset, const char *name,
			   struct tow_slot **made)
{
	char *at = ((struct source_region *)region)->at;
	struct thing *thing;
	int ret = publish(name, NULL, (uint64_t *)(void *)(at + offset), 0, &thing);

	if (!ret)
		*made = &thing->shown;
	return ret;
}

int __wrap_tow_slot_destroy(struct tow_slot *of)
{
	return withdraw((struct thing *)of);
}

int __wrap_tow_export(struct tow_region *region, uint64_t offset, uint64_t bytes,
		      const char *name, uint32_t rights, struct tow_exported **exported)
{
	char *at = ((struct source_region *)region)->at;

	(void)rights;
	return publish(name, at + offset, NULL, bytes, (struct thing **)exported);
}

int __wrap_tow_unexport(struct tow_exported *exported)
{
	return withdraw((struct thing *)exported);
}

int __wrap_tow_resolve(struct tow_peer *peer, const char *name, uint32_t rights,
		       uint32_t timeout_ms, struct tow_remote **found)
{
	struct thing *thing;
	int ret = -ENOENT;

	(void)peer;
	(void)timeout_ms;
	pthread_mutex_lock(&node.lock);
	for (thing = node.things; thing; thing = thing->next)
		if (!thing->gone && !strcmp(thing->name, name))
			break;
	if (rights & TOW_RIGHT_WIDTH && node.narrow) {
		ret = -EINVAL;
	} else if (thing) {
		ret = thing->held ? -EBUSY : 0;
		thing->held = rights & TOW_RIGHT_NOTIFY;
		thing->width = (rights & TOW_RIGHT_WIDTH) / (TOW_RIGHT_NOTIFY_BY(2) & TOW_RIGHT_WIDTH) + 1;
		thing->used = 0;
		for (uint32_t i = 0; thing->number && i < QPS_AFTER; i++)
			thing->lanes[i] = *thing->number;
		*found = ret ? NULL : (struct tow_remote *)thing;
	}
	pthread_mutex_unlock(&node.lock);
	return ret;
}

int __wrap_tow_remote_release(struct tow_remote *of)
{
	if (of)
		((struct thing *)(void *)of)->held = false;
	return 0;
}

uint64_t __wrap_tow_remote_bytes(const struct tow_remote *of)
{
	return ((const struct thing *)(const void *)of)->bytes;
}

int __wrap_tow_region_info(const struct tow_region *region, struct tow_region_info *info)
{
	info->map_bytes = ((const struct source_region *)(const void *)region)->bytes;
	return 0;
}

bool __wrap_towi_region_far(const struct tow_region *region, const void *ptr)
{
	(void)region;
	return is_far(ptr);
}

bool __wrap_towi_region_lost(const struct tow_region *region)
{
	return taken_back && region == (struct tow_region *)&far;
}

uint64_t __wrap_towi_peer_number(const struct tow_peer *peer)
{
	(void)peer;
	return 1;
}

int __wrap_towi_peer_copy(const struct tow_peer *peer, struct tow_peer **copy)
{
	*copy = (struct tow_peer *)(uintptr_t)peer;
	node.peers++;
	return 0;
}

int __wrap_towi_peer_named(const struct tow_device *dev,
			   const uint8_t incarnation[TOW_INCARNATION_BYTES], struct tow_peer **peer)
{
	(void)dev;
	(void)incarnation;
	return __wrap_towi_peer_copy(PEER, peer);
}

void __wrap_tow_peer_release(struct tow_peer *peer)
{
	node.peers -= peer != NULL;
}

int __wrap_tow_device_query(const struct tow_device *dev, struct tow_device_attr *attr)
{
	(void)dev;
	(void)attr;
	return 0;
}

/* ---- workers ---- */

/* Of no memory but the arenas'. */
static struct tow_device device = { .fd = -1 };
static struct source source, small_source;
static struct tow_worker workers[2];

static struct tow_queue *make_queue(int fd)
{
	struct tow_queue *queue = ring_make(ENTRIES);

	free(queue->cqes);
	queue->cq_entries = 4 * ENTRIES;
	queue->cqes = calloc(queue->cq_entries, sizeof(*queue->cqes));
	if (!queue->cqes)
		ksft_exit_fail_perror("calloc");
	towi_queue_of(queue)->fd = fd;
	return queue;
}

static unsigned int sum(unsigned char *data, int bytes, unsigned int before)
{
	while (bytes--)
		before = before * 31 + *data++;
	return before;
}

/* As of all regions that are mapped. */
static int note_grown(void *data, struct tow_region *region, void *addr, uint64_t bytes)
{
	(void)data;
	return towi_mapped_add(&device, region, addr, 0, bytes);
}

static void note_shrinks(void *data, struct tow_region *region, void *addr, uint64_t bytes)
{
	(void)data;
	(void)bytes;
	towi_mapped_drop(&device, region, addr);
}

/* The first has memory as it likes, and the second as much as that. */
static void begin(size_t pool, bool sums)
{
	struct tow_arena_attr attr = { .size = sizeof(attr), .region_bytes = 2 * MIB,
				       .grown = note_grown, .shrinks = note_shrinks };

	source = (struct source){ 0 };
	small_source = (struct source){ .pool = pool };
	for (int i = 0; i < 2; i++) {
		workers[i] = (struct tow_worker){
			.dev = &device,
			.arena = source_arena(i ? &small_source : &source, &attr),
			.crc32c = sums ? sum : NULL,
			.pump.wake_fd = eventfd(0, EFD_NONBLOCK),
		};
		workers[i].words = workers[i].arena;
		queues[i] = make_queue(FD + i);
		towi_pump_init(&workers[i].pump, queues[i], WAITS + LINES, 0);
	}
}

static bool end(void)
{
	struct tow_arena_stats stats = { .size = sizeof(stats) };
	struct thing *thing;
	bool good = !node.count && !node.cut && !node.channels && !node.peers &&
		    LIST_EMPTY(&device.watches);

	for (int i = 0; i < 2; i++) {
		good = good && TAILQ_EMPTY(&workers[i].pump.all) && !workers[i].pump.in_flight &&
		       !workers[i].pump.reserved;
		towi_pump_end(&workers[i].pump);
		tow_arena_stats(workers[i].arena, &stats);
		good = good && !stats.in_use_bytes;
		tow_arena_destroy(workers[i].arena);
	}
	while ((thing = node.things)) {
		node.things = thing->next;
		good = good && thing->gone;
		free(thing);
	}
	node.cut = 0;
	return good;
}

/* ---- edges ---- */

#define BIG		(5 * MIB)

struct pair {
	struct tow_edge *out, *in;
};

static const struct tow_tensor_type bytes_1000 = { { TOW_DTYPE_UINT, 8, 1 }, 1, { 1000 } };

static struct tow_tensor_type type_of(uint64_t bytes)
{
	return (struct tow_tensor_type){ { TOW_DTYPE_UINT, 8, 1 }, 1, { (int64_t)bytes } };
}

static void fill(unsigned char *at, uint64_t bytes, uint64_t step)
{
	for (uint64_t i = 0; i < bytes; i++)
		at[i] = (unsigned char)(step * 37 + i * 11 + (i >> 8));
}

static bool holds(const unsigned char *at, uint64_t bytes, uint64_t step)
{
	for (uint64_t i = 0; i < bytes; i++)
		if (at[i] != (unsigned char)(step * 37 + i * 11 + (i >> 8)))
			return false;
	return true;
}

static bool meet(struct pair *pair)
{
	return !tow_edge_connect(pair->out, LATE_MS) && !tow_edge_connect(pair->in, LATE_MS);
}

/* From the first worker to the second one. */
static bool make_static(struct pair *pair, const char *name, uint32_t slots)
{
	*pair = (struct pair){ 0 };
	return !tow_static_receiver(&workers[1], PEER, name, &bytes_1000, slots, &pair->in) &&
	       !tow_static_sender(&workers[0], PEER, name, &bytes_1000, &pair->out) && meet(pair);
}

static bool make_dynamic(struct pair *pair, const char *name, uint32_t slots)
{
	*pair = (struct pair){ 0 };
	return !tow_dynamic_receiver(&workers[1], PEER, name, slots, &pair->in) &&
	       !tow_dynamic_sender(&workers[0], PEER, name, &pair->out) && meet(pair);
}

static bool close_pair(struct pair *pair)
{
	return !tow_edge_close(pair->out) && !tow_edge_close(pair->in);
}

/* Until all that was sent has ended: others may be at work by the same workers. */
static bool finish(const struct tow_edge *edge)
{
	for (uint32_t tries = 0; tow_edge_pending(edge) && tries < 20000; tries++)
		for (int i = 0; i < 2; i++)
			tow_worker_progress(&workers[i], 500);
	return !tow_edge_pending(edge);
}

/* What functions were told. */
struct told {
	_Atomic uint64_t count, wrong;
	_Atomic int status;
};

static void note(void *arg, uint64_t step, int status)
{
	struct told *told = arg;

	(void)step;
	told->count++;
	if (status)
		told->status = status;
}

/* Until there is room for one more. */
static int send_static(const struct tow_edge *edge, const void *data, struct told *told)
{
	int ret;

	while ((ret = tow_edge_send((struct tow_edge *)(uintptr_t)edge, data, note, told)) == -EAGAIN)
		tow_worker_progress(&workers[0], 500);
	return ret;
}

static int send_dynamic(struct tow_edge *edge, uint64_t bytes, const void *data, struct told *told)
{
	struct tow_tensor_type type = type_of(bytes);
	int ret;

	while ((ret = tow_dynamic_send(edge, &type, data, note, told)) == -EAGAIN)
		tow_worker_progress(&workers[0], 500);
	return ret;
}

/* ---- one after the other ---- */

static void test_static(void)
{
	unsigned char tensor[1000];
	struct told told = { 0 };
	struct pair pair = { 0 };
	uint64_t step;
	void *data;
	bool good;

	begin(0, false);
	good = make_static(&pair, "static", 2);
	for (uint64_t i = 1; good && i <= 300; i++) {
		fill(tensor, sizeof(tensor), i);
		good = !send_static(pair.out, tensor, &told) &&
		       !tow_edge_wait(pair.in, LATE_US, &data, &step) && step == i &&
		       holds(data, sizeof(tensor), i) && !tow_edge_consumed(pair.in) &&
		       !tow_edge_test(pair.in, &data, &step) && finish(pair.out);
	}
	good = good && told.count == 300 && !told.status;
	good = close_pair(&pair) && good;
	ksft_test_result(end() && good, "static\n");
}

/* Large ones, which go by several queue pairs; and how many parts by others than the first. */
static void test_wide(const char *name, int parts)
{
	struct tow_tensor_type type = type_of(TOW_CUT_BYTES + 1000);
	unsigned char *tensor = malloc(TOW_CUT_BYTES + 1000);
	struct told told = { 0 };
	struct pair pair = { 0 };
	uint64_t step;
	void *data;
	bool good;

	begin(0, false);
	node.parts = 0;
	good = tensor && !tow_static_receiver(&workers[1], PEER, "wide", &type, 2, &pair.in) &&
	       !tow_static_sender(&workers[0], PEER, "wide", &type, &pair.out) && meet(&pair);
	for (uint64_t i = 1; good && i <= 10; i++) {
		fill(tensor, TOW_CUT_BYTES + 1000, i);
		good = !send_static(pair.out, tensor, &told) &&
		       !tow_edge_wait(pair.in, LATE_US, &data, &step) && step == i &&
		       holds(data, TOW_CUT_BYTES + 1000, i) && !tow_edge_consumed(pair.in) &&
		       !tow_edge_test(pair.in, &data, &step) && finish(pair.out);
	}
	good = good && told.count == 10 && !told.status && node.parts == 10 * parts;
	good = close_pair(&pair) && good;
	free(tensor);
	ksft_test_result(end() && good, "static, large, %s\n", name);
}

/* Of all sizes, from where it is or not; regions are made and windows found meanwhile. */
static void test_dynamic(bool sums)
{
	static const uint64_t sizes[] = { 1, 0, 1000, 64 << 10, (64 << 10) + 1, BIG };
	unsigned char *ordinary, *tensor;
	struct told told = { 0 };
	uint64_t step, bytes;
	struct pair pair = { 0 };
	void *data;
	bool good;

	begin(0, sums);
	node.parts = 0;
	ordinary = malloc(BIG);
	good = ordinary && make_dynamic(&pair, "dynamic", 2);
	for (uint64_t i = 1; good && i <= 60; i++) {
		bytes = sizes[i % 6];
		tensor = i % 7 < 3 ? ordinary : tow_arena_alloc(workers[0].arena, bytes);
		fill(tensor, bytes, i);
		good = !send_dynamic(pair.out, bytes, tensor, &told) &&
		       !tow_edge_wait(pair.in, LATE_US, &data, &step) && step == i &&
		       holds(data, bytes, i) && !tow_edge_consumed(pair.in) && finish(pair.out);
		if (tensor != ordinary)
			tow_arena_free(workers[0].arena, tensor);
		if (i % 20 == 0)
			tow_arena_trim(workers[1].arena, 0);
	}
	/* The large ones, by each queue pair. */
	good = good && told.count == 60 && !told.status && node.parts == 10 * ((int)QPS - 1);
	good = close_pair(&pair) && good;
	free(ordinary);
	ksft_test_result(end() && good, "dynamic, %s\n", sums ? "with sums" : "without");
}

static void test_spoilt(void)
{
	static const uint64_t sizes[] = { 1000, BIG };
	struct told told = { 0 };
	unsigned char *tensor;
	struct pair pair = { 0 };
	void *data;
	bool good;

	begin(0, true);
	tensor = tow_arena_zeroed(workers[0].arena, 1, BIG);
	good = tensor && make_dynamic(&pair, "spoilt", 2);
	node.spoils = true;
	for (int i = 0; good && i < 2; i++)
		good = !send_dynamic(pair.out, sizes[i], tensor, &told) &&
		       tow_edge_wait(pair.in, LATE_US, &data, NULL) == -EBADMSG &&
		       !tow_edge_consumed(pair.in) && finish(pair.out) && told.status == -EBADMSG;
	node.spoils = false;
	good = good && !send_dynamic(pair.out, 1000, tensor, &told) &&
	       !tow_edge_wait(pair.in, LATE_US, &data, NULL) && !tow_edge_consumed(pair.in) &&
	       finish(pair.out);
	tow_arena_free(workers[0].arena, tensor);
	good = close_pair(&pair) && good;
	ksft_test_result(end() && good, "what is not what was sent\n");
}

/* It is told, tried again each time, and left out; what comes then is there. */
static void test_no_memory(void)
{
	struct told told = { 0 };
	unsigned char *tensor;
	struct pair pair = { 0 };
	uint64_t step;
	void *data;
	bool good;

	begin(4 * MIB, false);
	tensor = tow_arena_zeroed(workers[0].arena, 1, 2 * BIG);
	good = tensor && make_dynamic(&pair, "no memory", 4);
	for (int i = 0; i < 3; i++)
		good = good && !send_dynamic(pair.out, 2 * BIG, tensor, &told);
	good = good && !send_dynamic(pair.out, 1000, tensor, &told) &&
	       tow_edge_wait(pair.in, LATE_US, &data, NULL) == -ENOSPC &&
	       tow_edge_wait(pair.in, LATE_US, &data, NULL) == -ENOSPC &&
	       tow_edge_test(pair.in, &data, NULL) == -ENOSPC && !tow_edge_consumed(pair.in) &&
	       tow_edge_wait(pair.in, LATE_US, &data, NULL) == -ENOSPC;
	/* There is some now. */
	small_source.pool = 0;
	good = good && !tow_edge_wait(pair.in, LATE_US, &data, &step) && step == 2 &&
	       !tow_edge_consumed(pair.in);
	/* While it is tried for what is left out. */
	tow_arena_trim(workers[1].arena, 0);
	good = good && !tow_edge_wait(pair.in, LATE_US, &data, &step) && step == 3 &&
	       !tow_edge_consumed(pair.in) &&
	       !tow_edge_wait(pair.in, LATE_US, &data, &step) && step == 4 &&
	       !tow_edge_consumed(pair.in) && finish(pair.out) && told.count == 4 &&
	       told.status == -ENOSPC;
	tow_arena_free(workers[0].arena, tensor);
	good = close_pair(&pair) && good;
	ksft_test_result(end() && good, "no memory for it, and then some\n");
}

/* ---- a region of the program's ---- */

/* What others can find, but for ends of lines, which are made when somebody has had time to. */
static uint32_t count_things(void)
{
	const struct thing *thing;
	uint32_t count = 0;

	pthread_mutex_lock(&node.lock);
	for (thing = node.things; thing; thing = thing->next)
		count += !thing->gone && strncmp(thing->name, "tow/line/", 9) != 0;
	pthread_mutex_unlock(&node.lock);
	return count;
}

/* Sent by both edges, from there. */
static bool both_come(const struct pair *fixed, const struct pair *dynamic, unsigned char *tensor,
		      uint64_t step, struct told *told)
{
	void *data;

	fill(tensor, 1000, step);
	return !send_static(fixed->out, tensor, told) &&
	       !tow_edge_wait(fixed->in, LATE_US, &data, NULL) && holds(data, 1000, step) &&
	       !tow_edge_consumed(fixed->in) && finish(fixed->out) &&
	       !send_dynamic(dynamic->out, 1000, tensor, told) &&
	       !tow_edge_wait(dynamic->in, LATE_US, &data, NULL) && holds(data, 1000, step) &&
	       !tow_edge_consumed(dynamic->in) && finish(dynamic->out);
}

/* Nothing of it is copied while it is there; and with it ends what others could read of it. */
static void test_other_region(void)
{
	struct source_region own = { source_map(SPAN), SPAN };
	struct tow_region *region = (struct tow_region *)&own;
	unsigned char *tensor = own.at, *last = tensor + SPAN - 1000;
	struct tow_tensor_type type = type_of(1000);
	struct pair fixed = { 0 }, dynamic = { 0 };
	struct told told = { 0 };
	uint32_t before;
	bool good;

	begin(0, false);
	if (!tensor || towi_mapped_add(&device, region, own.at, 0, SPAN))
		ksft_exit_fail_msg("no memory\n");
	good = make_static(&fixed, "static", 2) && make_dynamic(&dynamic, "dynamic", 2);
	before = count_things();
	good = good && both_come(&fixed, &dynamic, tensor, 1, &told) &&
	       both_come(&fixed, &dynamic, last, 2, &told) &&
	       tow_edge_send(fixed.out, last + 1, NULL, NULL) == -EINVAL &&
	       tow_dynamic_send(dynamic.out, &type, last + 1, NULL, NULL) == -EINVAL &&
	       !tow_worker_copied(&workers[0]) && count_things() == before + 1;
	towi_tell_gone(&device, towi_region_handle(region));
	towi_mapped_drop(&device, region, own.at);
	good = good && count_things() == before && both_come(&fixed, &dynamic, tensor, 3, &told) &&
	       tow_worker_copied(&workers[0]) == 2000 && told.count == 6 && !told.status;
	good = close_pair(&fixed) && close_pair(&dynamic) && good;
	munmap(own.at, SPAN);
	ksft_test_result(end() && good, "a region of the program's\n");
}

/* What waits for room, and is nowhere when there is some, is not sent; nor is anything after it. */
static void test_region_gone(void)
{
	struct source_region own = { source_map(SPAN), SPAN };
	struct tow_region *region = (struct tow_region *)&own;
	struct told told = { 0 };
	struct pair pair = { 0 };
	uint64_t step = 0;
	void *data;
	bool good;

	begin(0, false);
	if (!own.at || towi_mapped_add(&device, region, own.at, 0, SPAN))
		ksft_exit_fail_msg("no memory\n");
	good = make_static(&pair, "static", 1) && !send_static(pair.out, own.at, &told) &&
	       !send_static(pair.out, own.at, &told);
	towi_tell_gone(&device, towi_region_handle(region));
	towi_mapped_drop(&device, region, own.at);
	good = good && !tow_edge_wait(pair.in, LATE_US, &data, &step) && step == 1 &&
	       !tow_edge_consumed(pair.in) && finish(pair.out) && told.count == 2 &&
	       told.status == -EFAULT && !tow_edge_test(pair.in, &data, &step) &&
	       tow_edge_send(pair.out, own.at, NULL, NULL) == -EFAULT;
	good = close_pair(&pair) && good;
	munmap(own.at, SPAN);
	ksft_test_result(end() && good, "a region that goes too early\n");
}

/* ---- a device's memory ---- */

/* A worker's tensors come to there, and nowhere else does anything but tensors. */
static struct tow_arena *begin_far(struct tow_worker *worker, struct source *of)
{
	struct tow_arena *arena;

	behind = source_map(2 * SPAN);
	far = (struct source_region){ source_map(2 * SPAN), 2 * SPAN };
	if (!behind || !far.at || mprotect(far.at, far.bytes, PROT_NONE))
		ksft_exit_fail_msg("no memory\n");
	*of = (struct source){ .far = true };
	arena = source_arena(of, NULL);
	if (tow_arena_adopt(arena, (struct tow_region *)&far))
		ksft_exit_fail_msg("not adopted\n");
	worker->arena = arena;
	return arena;
}

static bool end_far(struct tow_worker *worker)
{
	struct tow_arena_stats stats = { .size = sizeof(stats) };
	bool good = !tow_arena_stats(worker->arena, &stats) && !stats.in_use_bytes &&
		    !tow_arena_destroy(worker->arena);

	worker->arena = worker->words;
	munmap(behind, far.bytes);
	munmap(far.at, far.bytes);
	far = (struct source_region){ 0 };
	taken_back = false;
	return good;
}

/* Both kinds, into there: what is shown is an address that stands for the tensor. */
static bool both_come_far(const struct pair *fixed, const struct pair *dynamic,
			  unsigned char *tensor, uint64_t step, struct told *told)
{
	void *data;

	fill(tensor, 1000, step);
	return !send_static(fixed->out, tensor, told) &&
	       !tow_edge_wait(fixed->in, LATE_US, &data, NULL) && is_far(data) &&
	       holds((unsigned char *)seen(data), 1000, step) && !tow_edge_consumed(fixed->in) &&
	       finish(fixed->out) && !send_dynamic(dynamic->out, 1000, tensor, told) &&
	       !tow_edge_wait(dynamic->in, LATE_US, &data, NULL) && is_far(data) &&
	       holds((unsigned char *)seen(data), 1000, step) && !tow_edge_consumed(dynamic->in) &&
	       finish(dynamic->out);
}

static void test_far_receivers(bool sums)
{
	unsigned char tensor[1000];
	struct pair fixed = { 0 }, dynamic = { 0 };
	struct told told = { 0 };
	struct source of;
	void *data;
	bool good;

	begin(0, sums);
	begin_far(&workers[1], &of);
	good = make_static(&fixed, "static", 2) && make_dynamic(&dynamic, "dynamic", 2);
	for (uint64_t step = 1; good && step < 7; step++)
		good = both_come_far(&fixed, &dynamic, tensor, step, &told);
	good = good && told.count == 12 && !told.status;
	/* The device takes it back: who has it is told so, and the other one that it is stale. */
	taken_back = true;
	good = good && !send_static(fixed.out, tensor, &told) && finish(fixed.out) &&
	       told.status == -ESTALE && !tow_edge_test(fixed.in, &data, NULL) &&
	       tow_edge_send(fixed.out, tensor, NULL, NULL) == -ESTALE &&
	       !tow_edge_close(fixed.out) &&
	       tow_edge_wait(fixed.in, LATE_US, &data, NULL) == -EFAULT && !tow_edge_close(fixed.in);
	told.status = 0;
	good = good && !send_dynamic(dynamic.out, 1000, tensor, &told) &&
	       tow_edge_wait(dynamic.in, LATE_US, &data, NULL) == -EFAULT &&
	       !tow_edge_close(dynamic.in) && finish(dynamic.out) && told.status == -ESTALE &&
	       send_dynamic(dynamic.out, 1000, tensor, &told) == -ESTALE &&
	       !tow_edge_close(dynamic.out);
	good = end_far(&workers[1]) && good;
	ksft_test_result(end() && good, "into a device's memory, %s\n",
			 sums ? "with sums" : "without");
}

/* The device has taken it back before a sender came. */
static void test_far_too_late(void)
{
	struct pair pair = { 0 };
	struct thing *thing;
	struct source of;
	bool good;

	begin(0, false);
	begin_far(&workers[1], &of);
	good = !tow_static_receiver(&workers[1], PEER, "late", &bytes_1000, 2, &pair.in) &&
	       !tow_static_sender(&workers[0], PEER, "late", &bytes_1000, &pair.out);
	for (thing = node.things; thing; thing = thing->next)
		if (!strcmp(thing->name, "late/tensors"))
			thing->gone = true;
	good = good && tow_edge_connect(pair.out, LATE_MS) == -ESTALE;
	good = close_pair(&pair) && good;
	good = end_far(&workers[1]) && good;
	ksft_test_result(end() && good, "memory that is taken back before that\n");
}

static void test_far_senders(void)
{
	struct pair fixed = { 0 }, dynamic = { 0 };
	struct told told = { 0 };
	struct tow_edge *keys;
	unsigned char *tensor;
	struct source of;
	void *data;
	bool good;

	begin(0, true);
	tensor = tow_arena_alloc(begin_far(&workers[0], &of), 1000);
	good = tensor && make_static(&fixed, "static", 2) && make_dynamic(&dynamic, "dynamic", 2) &&
	       !tow_rendezvous_sender(&workers[0], PEER, "keys", 1, &keys);
	fill((unsigned char *)seen((char *)tensor), 1000, 5);
	good = good && !send_static(fixed.out, tensor, &told) &&
	       !tow_edge_wait(fixed.in, LATE_US, &data, NULL) && holds(data, 1000, 5) &&
	       !tow_edge_consumed(fixed.in) && finish(fixed.out) &&
	       !send_dynamic(dynamic.out, 1000, tensor, &told) &&
	       !tow_edge_wait(dynamic.in, LATE_US, &data, NULL) && holds(data, 1000, 5) &&
	       !tow_edge_consumed(dynamic.in) && finish(dynamic.out) && told.count == 2 &&
	       !told.status && !tow_worker_copied(&workers[0]) &&
	       tow_rendezvous_put(keys, "a", 1, &bytes_1000, tensor, TOW_PUT_CLONE, NULL, NULL) ==
		       -EOPNOTSUPP && !tow_edge_close(keys);
	taken_back = true;
	good = good && !send_static(fixed.out, tensor, &told) && finish(fixed.out) &&
	       told.status == -EFAULT;
	told.status = 0;
	good = good && !send_dynamic(dynamic.out, 1000, tensor, &told) &&
	       tow_edge_wait(dynamic.in, LATE_US, &data, NULL) == -ESTALE &&
	       !tow_edge_close(dynamic.in) && finish(dynamic.out) && told.status == -EFAULT &&
	       !tow_edge_close(dynamic.out);
	tow_arena_free(workers[0].arena, tensor);
	good = close_pair(&fixed) && good;
	good = end_far(&workers[0]) && good;
	ksft_test_result(end() && good, "out of a device's memory\n");
}

/* ---- a rendezvous ---- */

static void got(void *arg, const struct tow_rendezvous_tensor *tensor)
{
	struct told *told = arg;

	if (tensor->status)
		told->status = tensor->status;
	else if (!holds((unsigned char *)seen(tensor->data), (uint64_t)tensor->type.dims[0],
			tensor->step))
		told->wrong++;
	tow_arena_free(workers[1].arena, tensor->data);
	told->count++;
}

static void test_rendezvous(bool sums)
{
	static const uint64_t sizes[] = { 1000, 0, (64 << 10) + 1, BIG };
	struct told told = { 0 }, asked = { 0 };
	struct tow_tensor_type type;
	unsigned char *tensor;
	struct pair pair = { 0 };
	bool good;

	begin(0, sums);
	node.parts = 0;
	tensor = malloc(BIG);
	good = tensor &&
	       !tow_rendezvous_receiver(&workers[1], PEER, "keys", 3, &pair.in) &&
	       !tow_rendezvous_sender(&workers[0], PEER, "keys", 3, &pair.out) && meet(&pair);
	for (uint64_t i = 1; good && i <= 60; i++) {
		/* Of the same key it is now and then another size. */
		type = type_of(sizes[i % 4 ^ (i / 16)]);
		fill(tensor, (uint64_t)type.dims[0], i);
		good = !tow_rendezvous_get(pair.in, i % 4 ? "one" : "other", i, got, &asked);
		good = good && !tow_rendezvous_put(pair.out, i % 4 ? "one" : "other", i, &type,
						   tensor, 0, note, &told);
	}
	good = good && finish(pair.in) && finish(pair.out) && asked.count == 60 && !asked.status &&
	       !asked.wrong && told.count == 60 && !told.status &&
	       /* The large ones, by each queue pair. */
	       node.parts == 16 * ((int)QPS - 1);
	if (!good)
		ksft_print_msg("%d came, %d of them wrong, status %d; %d were sent, status %d\n",
			       (int)asked.count, (int)asked.wrong, asked.status, (int)told.count,
			       told.status);
	/* Some are asked for when it ends, and some done without. */
	for (uint64_t i = 100; i < 110; i++) {
		good = good && !tow_rendezvous_get(pair.in, "one", i, got, &asked);
		if (i & 1)
			good = good && !tow_rendezvous_cancel(pair.in, "one", i);
	}
	good = close_pair(&pair) && good && asked.count == 70 && asked.status == -ECANCELED;
	free(tensor);
	ksft_test_result(end() && good, "a rendezvous, %s\n", sums ? "with sums" : "without");
}

/* The second time its place is known, and is taken back. */
static void test_far_rendezvous(void)
{
	struct told told = { 0 }, asked = { 0 };
	struct pair pair = { 0 };
	unsigned char tensor[1000];
	struct source of;
	bool good;

	begin(0, true);
	begin_far(&workers[1], &of);
	good = !tow_rendezvous_receiver(&workers[1], PEER, "keys", 3, &pair.in) &&
	       !tow_rendezvous_sender(&workers[0], PEER, "keys", 3, &pair.out) && meet(&pair);
	fill(tensor, sizeof(tensor), 1);
	good = good &&
	       !tow_rendezvous_put(pair.out, "a", 1, &bytes_1000, tensor, 0, note, &told) &&
	       !tow_rendezvous_get(pair.in, "a", 1, got, &asked) && finish(pair.out) &&
	       finish(pair.in) && told.count == 1 && !told.status && asked.count == 1 &&
	       !asked.status && !asked.wrong;
	taken_back = true;
	good = good &&
	       !tow_rendezvous_put(pair.out, "a", 2, &bytes_1000, tensor, 0, note, &told) &&
	       !tow_rendezvous_get(pair.in, "a", 2, got, &asked) && finish(pair.out) &&
	       told.status == -ESTALE && !tow_edge_close(pair.out) && finish(pair.in) &&
	       asked.count == 2 && asked.status == -EFAULT && !tow_edge_close(pair.in);
	good = end_far(&workers[1]) && good;
	ksft_test_result(end() && good, "a rendezvous in a device's memory\n");
}

/* ---- many, and several threads ---- */

#define THREADS		4U
#define STEPS		200U

struct player {
	struct pair fixed, dynamic;
	struct told told;
	pthread_t thread;
	uint32_t number;
	bool good;
};

static void *send_all(void *arg)
{
	struct player *player = arg;
	unsigned char *fixed = tow_arena_alloc(workers[0].arena, 1000);
	unsigned char *large = malloc(BIG);
	bool good = fixed && large;
	uint64_t bytes;

	for (uint64_t i = 1; good && i <= STEPS; i++) {
		/* Both kinds of a step are there before the next ones are. */
		while (player->told.count < 2 * (i - 1))
			tow_worker_progress(&workers[0], 500);
		bytes = i % 50 ? i * 31 % 3000 : BIG;
		fill(fixed, 1000, i);
		fill(large, bytes, i + player->number);
		good = !send_static(player->fixed.out, fixed, &player->told) &&
		       !send_dynamic(player->dynamic.out, bytes, large, &player->told);
	}
	while (good && player->told.count < 2ULL * STEPS)
		tow_worker_progress(&workers[0], 500);
	tow_arena_free(workers[0].arena, fixed);
	free(large);
	player->good = good && !player->told.status;
	return NULL;
}

static void *receive_all(void *arg)
{
	struct player *player = arg;
	uint64_t step, bytes;
	void *data;
	bool good = true;

	for (uint64_t i = 1; good && i <= STEPS; i++) {
		bytes = i % 50 ? i * 31 % 3000 : BIG;
		good = !tow_edge_wait(player->fixed.in, LATE_US, &data, &step) && step == i &&
		       holds(data, 1000, i) && !tow_edge_consumed(player->fixed.in) &&
		       !tow_edge_wait(player->dynamic.in, LATE_US, &data, &step) && step == i &&
		       holds(data, bytes, i + player->number);
		while (good && tow_edge_consumed(player->dynamic.in))
			tow_worker_progress(&workers[1], 500);
	}
	return good ? arg : NULL;
}

static void test_threads(void)
{
	struct player *players = calloc(THREADS, sizeof(*players));
	pthread_t receivers[THREADS];
	char name[32];
	void *ret;
	bool good = players;

	begin(0, true);
	for (uint32_t i = 0; good && i < THREADS; i++) {
		players[i].number = i;
		snprintf(name, sizeof(name), "static/%u", i);
		good = make_static(&players[i].fixed, name, 1);
		snprintf(name, sizeof(name), "dynamic/%u", i);
		good = good && make_dynamic(&players[i].dynamic, name, 1);
	}
	if (!good)
		ksft_exit_fail_msg("no edges\n");
	for (uint32_t i = 0; i < THREADS; i++)
		if (pthread_create(&receivers[i], NULL, receive_all, &players[i]) ||
		    pthread_create(&players[i].thread, NULL, send_all, &players[i]))
			ksft_exit_fail_msg("no thread\n");
	for (uint32_t i = 0; i < THREADS; i++) {
		pthread_join(players[i].thread, NULL);
		pthread_join(receivers[i], &ret);
		good = good && ret && players[i].good;
	}
	for (uint32_t i = 0; i < THREADS; i++)
		good = close_pair(&players[i].fixed) && close_pair(&players[i].dynamic) && good;
	ksft_test_result(end() && good, "several threads\n");
	free(players);
}

/* As many as may wait do, all of them want more room than there is, and each gets its turn. */
static void test_many(void)
{
	static unsigned char tensor[1000];
	static struct pair pairs[WAITS + 1];
	static const int all = 5 * (int)WAITS;
	struct told told = { 0 };
	uint32_t left = WAITS * 5;
	char name[32];
	void *data;
	bool good = true;

	begin(0, false);
	for (uint32_t i = 0; i < WAITS; i++) {
		snprintf(name, sizeof(name), "many/%u", i);
		good = good && make_static(&pairs[i], name, 1);
	}
	good = good && !tow_static_sender(&workers[0], PEER, "more", &bytes_1000,
					  &pairs[WAITS].out) &&
	       tow_edge_connect(pairs[WAITS].out, LATE_MS) == -EOVERFLOW;
	for (uint32_t i = 0; i < WAITS * 5; i++)
		good = good && !tow_edge_send(pairs[i % WAITS].out, tensor, note, &told);
	for (uint32_t tries = 0; left && tries < 20000; tries++) {
		for (uint32_t i = 0; i < WAITS; i++)
			while (tow_edge_test(pairs[i].in, &data, NULL) == 1 &&
			       !tow_edge_consumed(pairs[i].in))
				left--;
		tow_worker_progress(&workers[1], 0);
		tow_worker_progress(&workers[0], 500);
	}
	for (uint32_t i = 0; i < WAITS; i++)
		good = good && finish(pairs[i].out);
	good = good && !left && told.count == (uint64_t)all && !told.status;
	for (uint32_t i = 0; i <= WAITS; i++)
		good = close_pair(&pairs[i]) && good;
	ksft_test_result(end() && good, "as many as may wait\n");
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(19);
	device.process = towi_process();
	towi_mapped_begin(&device);
	test_static();
	test_wide("in parts", QPS - 1);
	node.narrow = true;
	test_wide("by one queue pair", 0);
	node.narrow = false;
	node.shrunk = true;
	test_wide("by fewer than there were", QPS_AFTER - 1);
	node.shrunk = false;
	test_dynamic(false);
	test_dynamic(true);
	test_spoilt();
	test_no_memory();
	test_other_region();
	test_region_gone();
	test_far_receivers(false);
	test_far_receivers(true);
	test_far_too_late();
	test_far_senders();
	test_rendezvous(false);
	test_rendezvous(true);
	test_far_rendezvous();
	test_many();
	test_threads();
	ksft_finished();
}

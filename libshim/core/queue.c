// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Queues and channels: how they are made and ended, and the calls that the inline
 * functions of <towline/queue.h> cannot do without.
 *
 * The kernel does not give a queue's rings to children, which must not touch them.
 * What programs' inline functions read, struct tow_queue, is in memory that is
 * zeroes in a child; they find out there, where they would otherwise find the ring
 * full or empty, and so at no cost.  What the library has to remember about a queue
 * is behind it, in memory that children do have.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"
#include "queue.h"

/* What is a page, on any machine: what is zeroed in children is whole pages. */
#define WIPED_BYTES	((size_t)64 << 10)
#define QUEUE_BYTES	(WIPED_BYTES + sizeof(struct towi_queue))

/* struct tow_queue_attr when it was first published. */
#define ATTR_SIZE_FIRST	(offsetof(struct tow_queue_attr, idle_us) + sizeof(uint32_t))

/*
 * A channel of the kernel's, which counts nobody.  With @users 0 nobody has it, and it is
 * closed as soon as its entries have ended; until then it is found again.  One that copies
 * by other channels to its peer use stays as long as somebody has one of these.
 */
struct channel {
	struct tow_channel shown;	/* first */
	struct channel *next;
	uint64_t peer;
	uint32_t users;
	bool beside;
};

struct towi_queue *towi_queue_of(const struct tow_queue *queue)
{
	return (struct towi_queue *)((char *)queue + WIPED_BYTES);
}

/* ---- making, ending ---- */

static struct tow_queue *new_queue(void)
{
	void *memory = towi_wiped(WIPED_BYTES, QUEUE_BYTES);
	struct towi_queue *own;

	if (!memory)
		return NULL;
	own = towi_queue_of(memory);
	own->fd = -1;
	pthread_mutex_init(&own->lock, NULL);
	return memory;
}

static void free_queue(struct tow_queue *queue)
{
	struct towi_queue *own = towi_queue_of(queue);
	struct channel *channel;

	if (queue->ring || towi_at_rest(&own->lock)) {
		while ((channel = own->channels)) {
			own->channels = channel->next;
			free(channel);
		}
		free(own->copies);
	}
	if (own->fd >= 0)
		close(own->fd);
	pthread_mutex_destroy(&own->lock);
	munmap(queue, QUEUE_BYTES);
}

static int map_rings(struct tow_queue *queue, const struct tow_queue_create *create)
{
	struct towi_queue *own = towi_queue_of(queue);
	void *rings;

	if (create->map_bytes > SIZE_MAX)
		return -ENOMEM;
	rings = mmap(NULL, (size_t)create->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, own->fd,
		     0);
	if (rings == MAP_FAILED)
		return -errno;
	own->map_bytes = (size_t)create->map_bytes;
	own->results_offset = create->results_offset;
	queue->ring = rings;
	queue->sqes = (struct tow_sqe *)((char *)rings + create->sqes_offset);
	queue->cqes = (struct tow_cqe *)((char *)rings + create->cqes_offset);
	queue->sq_entries = create->sq_entries;
	queue->cq_entries = create->cq_entries;
	queue->flags = create->flags;
	return 0;
}

TOW_PUBLIC int tow_queue_create_with(struct tow_device *dev, uint32_t sq_entries,
				     uint32_t cq_entries, const struct tow_queue_attr *attr,
				     struct tow_queue **queue)
{
	struct tow_queue_create create = {
		.size = sizeof(create),
		.sq_entries = sq_entries,
		.cq_entries = cq_entries,
	};
	struct tow_queue_attr known;
	struct tow_queue *made;
	int ret;

	if (!dev || !queue)
		return -EINVAL;
	ret = towi_take(attr, ATTR_SIZE_FIRST, &known, sizeof(known));
	if (ret)
		return ret;
	create.flags = known.flags;
	create.idle_us = known.idle_us;
	made = new_queue();
	if (!made)
		return -ENOMEM;
	ret = towi_call(dev, TOW_IOCTL_QUEUE_CREATE, &create);
	if (ret)
		goto free_made;
	towi_queue_of(made)->fd = create.fd;
	towi_queue_of(made)->dev = dev;
	ret = map_rings(made, &create);
	if (ret)
		goto free_made;
	*queue = made;
	return 0;

free_made:
	free_queue(made);
	return ret;
}

TOW_PUBLIC int tow_queue_create(struct tow_device *dev, uint32_t sq_entries, uint32_t cq_entries,
				struct tow_queue **queue)
{
	return tow_queue_create_with(dev, sq_entries, cq_entries, NULL, queue);
}

TOW_PUBLIC void tow_queue_destroy(struct tow_queue *queue)
{
	if (!queue)
		return;
	/* In a child there is nothing, or something else by now. */
	if (queue->ring)
		munmap(queue->ring, towi_queue_of(queue)->map_bytes);
	free_queue(queue);
}

TOW_PUBLIC int tow_queue_fd(const struct tow_queue *queue)
{
	return queue ? towi_queue_of(queue)->fd : -EINVAL;
}

TOW_PUBLIC int tow_queue_event(struct tow_queue *queue, struct tow_queue_event *event)
{
	int ret;

	if (!queue || !event)
		return -EINVAL;
	if (!queue->ring)
		return -EPERM;
	event->flags = 0;
	ret = towi_ioctl(towi_queue_of(queue)->fd, TOW_IOCTL_QUEUE_EVENT, event);
	return ret < 0 ? ret : event->peer != 0;
}

/* ---- channels ---- */

/* Called with the lock. */
static struct channel *find_channel(const struct towi_queue *own, uint32_t number)
{
	struct channel *channel;

	for (channel = own->channels; channel; channel = channel->next)
		if (channel->shown.number == number)
			break;
	return channel;
}

/* Called with the lock: is it the kernel's no more? */
static bool close_channel(struct towi_queue *own, const struct channel *channel)
{
	struct tow_channel_close call = {
		.size = sizeof(call), .channel = channel->shown.number,
	};
	int ret = towi_ioctl(own->fd, TOW_IOCTL_CHANNEL_CLOSE, &call);

	/* A module that is older than this has them until the queue's end. */
	if (ret == -EPROTONOSUPPORT)
		own->keeps = true;
	return !ret || ret == -ENOENT;
}

/* Called with the lock. */
static bool is_used(const struct towi_queue *own, const struct channel *channel)
{
	const struct channel *other = channel->beside ? own->channels : NULL;

	for (; other; other = other->next)
		if (other->peer == channel->peer && other->users)
			return true;
	return channel->users;
}

/* Called with the lock; @spare: those that others use beside their own, too. */
static void close_idle(struct towi_queue *own, bool spare)
{
	struct channel **link = &own->channels, *channel;

	while ((channel = *link) && !own->keeps) {
		if ((spare ? channel->users : is_used(own, channel)) ||
		    !close_channel(own, channel)) {
			link = &channel->next;
			continue;
		}
		own->closed++;
		*link = channel->next;
		free(channel);
	}
}

/*
 * The channel that the kernel has opened, with a user more, once in the list; *@fresh is taken
 * if it was not there.  NULL: one was closed after @closed of them, perhaps this one.
 */
static struct channel *keep_channel(struct tow_queue *queue, const struct tow_channel_open *open,
				    uint32_t closed, struct channel **fresh)
{
	struct towi_queue *own = towi_queue_of(queue);
	struct channel *channel = NULL;

	pthread_mutex_lock(&own->lock);
	if (own->closed != closed)
		goto unlock;
	channel = find_channel(own, open->channel);
	if (!channel) {
		channel = *fresh;
		channel->shown.queue = queue;
		channel->shown.number = open->channel;
		channel->shown.qp = open->qp;
		channel->shown.qps = open->qps;
		channel->peer = open->peer;
		channel->next = own->channels;
		own->channels = channel;
		*fresh = NULL;
	}
	channel->users++;
unlock:
	pthread_mutex_unlock(&own->lock);
	return channel;
}

/* It was opened for nobody, unless another one has it now; who is just given it asks again. */
static void drop_channel(struct towi_queue *own, uint32_t number)
{
	const struct channel unused = { .shown.number = number };

	pthread_mutex_lock(&own->lock);
	if (!own->keeps && !find_channel(own, number) && close_channel(own, &unused))
		own->closed++;
	pthread_mutex_unlock(&own->lock);
}

/* Without the lock while the kernel is asked, as it may have to connect first. */
static int open_channel(struct tow_queue *queue, struct tow_channel_open *open,
			struct channel **fresh, struct channel **channel)
{
	struct towi_queue *own = towi_queue_of(queue);
	bool opened = false, spare = false;
	uint32_t closed;
	int ret;

	for (*channel = NULL; !*channel;) {
		pthread_mutex_lock(&own->lock);
		close_idle(own, spare);
		closed = own->closed;
		pthread_mutex_unlock(&own->lock);
		ret = towi_ioctl(own->fd, TOW_IOCTL_CHANNEL_OPEN, open);
		/* One of the program's comes before those that only copies use. */
		if (ret == -ENOSPC && !spare && !open->flags) {
			spare = true;
			continue;
		}
		if (ret < 0 && opened)
			drop_channel(own, open->channel);
		if (ret < 0)
			return ret;
		opened = true;
		*channel = keep_channel(queue, open, closed, fresh);
	}
	return 0;
}

TOW_PUBLIC int tow_channel_get(struct tow_queue *queue, const struct tow_peer *peer, uint32_t qp,
			       struct tow_channel **channel)
{
	struct tow_channel_open open = { .size = sizeof(open), .qp = qp };
	struct channel *fresh, *opened;
	int ret;

	if (!queue || !peer || !channel || towi_peer_device(peer) != towi_queue_of(queue)->dev)
		return -EINVAL;
	if (!queue->ring)
		return -EPERM;
	fresh = calloc(1, sizeof(*fresh));
	if (!fresh)
		return -ENOMEM;
	open.peer = towi_peer_number(peer);
	ret = open_channel(queue, &open, &fresh, &opened);
	free(fresh);
	if (!ret)
		*channel = &opened->shown;
	return ret;
}

/* The queue pair that is so far beside that of @channel. */
static uint32_t qp_beside(const struct tow_channel *channel, uint32_t index)
{
	return (channel->qp + index) % channel->qps;
}

/* Called with the lock: one that is there already; or NULL. */
static struct channel *find_beside(const struct towi_queue *own, const struct tow_channel *first,
				   uint32_t index)
{
	uint64_t peer = ((const struct channel *)first)->peer;
	uint32_t qp = qp_beside(first, index);
	struct channel *channel;

	for (channel = own->channels; channel; channel = channel->next)
		if (channel->peer == peer && channel->shown.qp == qp)
			break;
	return channel;
}

static bool open_beside(const struct tow_channel *first, uint32_t index)
{
	/* A copy does not wait for that. */
	struct tow_channel_open open = {
		.size = sizeof(open), .flags = TOW_CHANNEL_CONNECTED,
		.peer = ((const struct channel *)first)->peer, .qp = qp_beside(first, index),
	};
	struct channel *fresh = calloc(1, sizeof(*fresh)), *opened;
	int ret;

	if (!fresh)
		return false;
	ret = open_channel(first->queue, &open, &fresh, &opened);
	free(fresh);
	if (ret)
		return false;
	pthread_mutex_lock(&towi_queue_of(first->queue)->lock);
	opened->beside = true;
	opened->users--;
	pthread_mutex_unlock(&towi_queue_of(first->queue)->lock);
	return true;
}

void towi_channels_open_beside(struct tow_channel *channel, uint32_t count)
{
	struct towi_queue *own = towi_queue_of(channel->queue);
	uint32_t i;
	bool there;

	for (i = 1; i < count; i++) {
		pthread_mutex_lock(&own->lock);
		there = find_beside(own, channel, i);
		pthread_mutex_unlock(&own->lock);
		if (!there && !open_beside(channel, i))
			break;
	}
}

uint32_t towi_channels_beside(struct tow_channel *channel, uint32_t count, uint16_t *numbers)
{
	struct channel *beside;
	uint32_t found;

	numbers[0] = (uint16_t)channel->number;
	for (found = 1; found < count; found++) {
		beside = find_beside(towi_queue_of(channel->queue), channel, found);
		if (!beside)
			break;
		beside->beside = true;
		numbers[found] = (uint16_t)beside->shown.number;
	}
	return found;
}

TOW_PUBLIC int tow_channel_put(struct tow_channel *channel)
{
	struct towi_queue *own;

	if (!channel)
		return 0;
	if (!channel->queue->ring)
		return -EPERM;
	own = towi_queue_of(channel->queue);
	pthread_mutex_lock(&own->lock);
	((struct channel *)channel)->users--;
	close_idle(own, false);
	pthread_mutex_unlock(&own->lock);
	return 0;
}

/* ---- names, nodes ---- */

/* Names that one call takes: they are on the stack. */
#define NAMES_AT_ONCE 256U

static bool names_valid(const struct tow_queue *queue, const struct tow_name *names, uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		if (!names[i].peer || !names[i].name || names[i].flags || names[i].reserved ||
		    towi_peer_device(names[i].peer) != towi_queue_of(queue)->dev)
			return false;
	return true;
}

static void fill_name(struct tow_resolve_request *request, const struct tow_name *name)
{
	request->user_data = name->user_data;
	request->peer = towi_peer_number(name->peer);
	request->name = (uintptr_t)name->name;
	/* One that is longer is refused by the kernel. */
	request->name_bytes = (uint32_t)strnlen(name->name, TOW_EXPORT_NAME_MAX + 1);
	request->rights = name->rights;
	request->timeout_ms = name->timeout_ms;
}

static int fill_node(struct tow_resolve_request *request, const struct tow_node *node)
{
	struct towi_address address;
	int ret;

	if (!node->address || node->reserved)
		return -EINVAL;
	ret = towi_address(node->address, &address);
	if (ret)
		return ret;
	request->user_data = node->user_data;
	request->timeout_ms = node->timeout_ms;
	memcpy(request->address, address.bytes, sizeof(request->address));
	request->scope_id = address.scope_id;
	request->port = address.port;
	return 0;
}

/* Some of @names or, if that is NULL, of @nodes: how many were begun, or a negative errno. */
static int begin_some(const struct tow_queue *queue, const struct tow_name *names,
		      const struct tow_node *nodes, uint32_t count)
{
	struct tow_resolve_request requests[NAMES_AT_ONCE] = { 0 };
	struct tow_queue_resolve call = {
		.size = sizeof(call),
		.requests = (uintptr_t)requests,
		.request_size = sizeof(requests[0]),
	};
	int ret = 0;

	while (!ret && call.count < count) {
		if (names)
			fill_name(&requests[call.count], &names[call.count]);
		else
			ret = fill_node(&requests[call.count], &nodes[call.count]);
		call.count += !ret;
	}
	return call.count ? towi_ioctl(towi_queue_of(queue)->fd, TOW_IOCTL_QUEUE_RESOLVE, &call) :
			    ret;
}

static int begin_all(struct tow_queue *queue, const struct tow_name *names,
		     const struct tow_node *nodes, uint32_t count)
{
	uint32_t begun = 0, some;
	int ret = 0;

	do {
		some = count - begun < NAMES_AT_ONCE ? count - begun : NAMES_AT_ONCE;
		ret = begin_some(queue, names ? names + begun : NULL, nodes ? nodes + begun : NULL,
				 some);
		if (ret > 0)
			begun += (uint32_t)ret;
	} while (ret == (int)some && begun < count);
	return begun ? (int)begun : ret;
}

/* 0, or why @queue takes no @count requests at @what. */
static int begin_check(const struct tow_queue *queue, const void *what, uint32_t count)
{
	if (!queue || !what || !count || count > INT_MAX)
		return -EINVAL;
	if (!queue->ring)
		return -EPERM;
	return towi_queue_of(queue)->results_offset ? 0 : -EINVAL;
}

TOW_PUBLIC int tow_queue_resolve(struct tow_queue *queue, const struct tow_name *names,
				 uint32_t count)
{
	int ret = begin_check(queue, names, count);

	if (!ret && !names_valid(queue, names, count))
		ret = -EINVAL;
	return ret ? ret : begin_all(queue, names, NULL, count);
}

TOW_PUBLIC int tow_queue_connect(struct tow_queue *queue, const struct tow_node *nodes,
				 uint32_t count)
{
	int ret = begin_check(queue, nodes, count);

	return ret ? ret : begin_all(queue, NULL, nodes, count);
}

/* What a completion with that flag has, in @result: 0 or a negative errno. */
static int result_of(const struct tow_queue *queue, const struct tow_cqe *cqe, uint32_t flag,
		     struct tow_result **result)
{
	const struct towi_queue *own;
	struct tow_result *results;

	if (!queue || !cqe)
		return -EINVAL;
	if (!queue->ring)
		return -EPERM;
	own = towi_queue_of(queue);
	if (!own->results_offset || cqe < queue->cqes || cqe >= queue->cqes + queue->cq_entries)
		return -EINVAL;
	if (cqe->status)
		return cqe->status;
	results = (struct tow_result *)((char *)queue->ring + own->results_offset);
	*result = &results[cqe - queue->cqes];
	return cqe->flags & flag && (*result)->handle ? 0 : -EINVAL;
}

TOW_PUBLIC int tow_queue_found(const struct tow_queue *queue, const struct tow_cqe *cqe,
			       struct tow_remote **remote)
{
	struct tow_result *found;
	int ret;

	ret = remote ? result_of(queue, cqe, TOW_CQE_FOUND, &found) : -EINVAL;
	if (!ret)
		ret = towi_remote_new(towi_queue_of(queue)->dev, found->handle, found->bytes,
				      remote);
	/* The queue's end does not give it up. */
	if (!ret)
		found->handle = 0;
	return ret;
}

TOW_PUBLIC int tow_queue_connected(const struct tow_queue *queue, const struct tow_cqe *cqe,
				   struct tow_peer **peer)
{
	struct tow_result *found;
	int ret;

	ret = peer ? result_of(queue, cqe, TOW_CQE_CONNECTED, &found) : -EINVAL;
	return ret ? ret : towi_peer_new(towi_queue_of(queue)->dev, found->handle, peer);
}

/* ---- submitting, waiting ---- */

static int enter_queue(const struct tow_queue *queue, struct tow_enter *enter)
{
	bool waits = enter->min_complete || enter->flags & TOW_ENTER_ROOM;
	uint64_t until = waits ? towi_until(enter->timeout_us) : 0;
	int ret;

	enter->size = sizeof(*enter);
	/* Nothing was taken, or that would be the answer. */
	while ((ret = towi_ioctl(towi_queue_of(queue)->fd, TOW_IOCTL_ENTER, enter)) == -EINTR &&
	       towi_goes_on())
		enter->timeout_us = towi_left_us(until);
	return ret;
}

TOW_PUBLIC int tow_queue_enter(struct tow_queue *queue, uint32_t to_submit, uint32_t min_complete,
			       uint32_t timeout_us)
{
	struct tow_enter enter = {
		.to_submit = to_submit,
		.min_complete = min_complete,
		.timeout_us = timeout_us,
	};

	return enter_queue(queue, &enter);
}

/* Of a module that does not know TOW_ENTER_SINCE: another thread may deal with what came. */
#define OLD_WAIT_US 100000U

int towi_queue_wait_since(struct tow_queue *queue, uint32_t since, uint32_t timeout_us)
{
	struct tow_enter enter = {
		.flags = TOW_ENTER_SINCE, .since = since, .min_complete = 1,
		.timeout_us = timeout_us,
	};
	int ret = enter_queue(queue, &enter);

	if (ret != -EINVAL)
		return ret;
	ret = tow_queue_enter(queue, 0, 1, timeout_us < OLD_WAIT_US ? timeout_us : OLD_WAIT_US);
	return ret == -ETIMEDOUT ? 0 : ret;
}

/*
 * Are there so many?  As the other side of the queue may be another thread's, asks the ring;
 * where that thread may be further than the tail that was read.
 */
static int has_completions(const struct tow_queue *queue, uint32_t count)
{
	uint32_t tail = tow_load_acquire(&queue->ring->cq_tail);
	int32_t unseen = (int32_t)(tail - tow_load_acquire(&queue->ring->cq_head));

	return !count || (unseen > 0 && (uint32_t)unseen >= count);
}

/* Entries that nobody has taken. */
static uint32_t untaken(const struct tow_queue *queue)
{
	return queue->sq_tail - tow_load_acquire(&queue->ring->sq_head);
}

int towi_queue_publish(struct tow_queue *queue)
{
	tow_store_release(&queue->ring->sq_tail, queue->sq_tail);
	if (!tow_queue_need_wakeup(queue) || !untaken(queue))
		return 0;
	return tow_queue_enter(queue, 0, 0, 0);
}

static int submit_polled(struct tow_queue *queue, uint32_t count)
{
	/* Only we write there. */
	uint32_t fresh = queue->sq_tail - queue->ring->sq_tail;
	int ret = towi_queue_publish(queue);

	if (!ret && count && !has_completions(queue, count))
		ret = tow_queue_enter(queue, 0, count, TOW_WAIT_FOREVER);
	/* Whoever waits in vain has handed over, though. */
	if (ret < 0 && (ret != -EINTR || !fresh))
		return ret;
	return (int)fresh;
}

TOW_PUBLIC int tow_queue_submit_and_wait(struct tow_queue *queue, uint32_t count)
{
	uint32_t to_submit;

	if (!queue->ring)
		return -EPERM;
	if (queue->flags & TOW_QUEUE_POLL)
		return submit_polled(queue, count);
	queue->sq_head = tow_load_acquire(&queue->ring->sq_head);
	to_submit = queue->sq_tail - queue->sq_head;
	if (!to_submit && has_completions(queue, count))
		return 0;
	tow_store_release(&queue->ring->sq_tail, queue->sq_tail);
	return tow_queue_enter(queue, to_submit, count, TOW_WAIT_FOREVER);
}

TOW_PUBLIC int tow_queue_submit_room(struct tow_queue *queue, uint32_t timeout_us)
{
	struct tow_enter enter = { .flags = TOW_ENTER_ROOM, .timeout_us = timeout_us };

	if (!queue->ring)
		return -EPERM;
	if (queue->flags & TOW_QUEUE_POLL)
		return -EINVAL;
	queue->sq_head = tow_load_acquire(&queue->ring->sq_head);
	enter.to_submit = queue->sq_tail - queue->sq_head;
	tow_store_release(&queue->ring->sq_tail, queue->sq_tail);
	return enter.to_submit ? enter_queue(queue, &enter) : 0;
}

TOW_PUBLIC int tow_queue_submit(struct tow_queue *queue)
{
	return tow_queue_submit_and_wait(queue, 0);
}

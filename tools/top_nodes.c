// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * towline top --cluster: which nodes there are, and reading their statistics pages.
 *
 * Every node whose peer is ready is asked for its page, which is then read once a
 * round, all at the same time: one READ for each is in flight at most, so one queue of
 * as many entries as it can have channels always has room.  Whoever does not answer
 * holds up nobody: the READ stays in flight, into memory that is that node's for good,
 * until the kernel ends it.
 *
 * A node that was seen once is never forgotten.  One that was lost comes back by
 * itself, or because it is called.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <towline/queue.h>

#include "top_nodes.h"

#define CHUNK_BYTES	65536UL
#define CHUNK_PAGES	(CHUNK_BYTES / TOP_PAGE_BYTES)
/* A node without a page is asked in each third round. */
#define REST_ROUNDS	2
/* Of those that were lost, in each round; and how long each is waited for. */
#define CALLS		16U
#define CALL_MS		10

/* ---- the nodes ---- */

static int add_chunk(struct top_nodes *nodes)
{
	struct tow_region **chunks, *region;
	int ret;

	chunks = realloc(nodes->chunks, (nodes->chunk_count + 1) * sizeof(struct tow_region *));
	if (!chunks)
		return -ENOMEM;
	nodes->chunks = chunks;
	ret = tow_region_create(nodes->dev, CHUNK_BYTES, NULL, &region);
	if (ret)
		return ret;
	ret = tow_region_map(region, 0, CHUNK_BYTES, PROT_READ, &nodes->chunk);
	if (ret) {
		tow_region_destroy(region);
		return ret;
	}
	chunks[nodes->chunk_count++] = region;
	return 0;
}

/* Another node, with memory for its page. */
static int add_node(struct top_nodes *nodes, struct top_node **added)
{
	struct top_node **all, *node;
	int ret;

	if (nodes->count == nodes->chunk_count * CHUNK_PAGES) {
		ret = add_chunk(nodes);
		if (ret)
			return ret;
	}
	all = realloc(nodes->all, (nodes->count + 1) * sizeof(struct top_node *));
	if (!all)
		return -ENOMEM;
	nodes->all = all;
	node = calloc(1, sizeof(*node));
	if (!node)
		return -ENOMEM;
	node->region = nodes->chunks[nodes->chunk_count - 1];
	node->offset = nodes->count % CHUNK_PAGES * TOP_PAGE_BYTES;
	node->copy = (const char *)nodes->chunk + node->offset;
	all[nodes->count++] = node;
	*added = node;
	return 0;
}

static struct top_node *find_node(const struct top_nodes *nodes, const struct tow_peer_info *info,
				  const char *address)
{
	for (size_t i = 0; i < nodes->count; i++)
		if (!memcmp(nodes->all[i]->incarnation, info->incarnation,
			    sizeof(info->incarnation)))
			return nodes->all[i];
	for (size_t i = 0; i < nodes->count; i++)
		if (strcmp(nodes->all[i]->address, address) == 0)
			return nodes->all[i];
	return NULL;
}

/* Let go of its page, for whatever reason. */
static void leave(struct top_node *node, enum node_state state, int error)
{
	/* What became of it does not matter any more, nor what is read of it still. */
	tow_remote_release(node->remote);
	tow_channel_put(node->channel);
	node->outdated = node->flying;
	node->remote = NULL;
	node->channel = NULL;
	node->reported = false;
	node->state = state;
	node->error = error;
}

static int learn_peer(struct top_nodes *nodes, const struct tow_peer_info *info)
{
	char address[ADDRESS_TEXT];
	struct top_node *node;
	int ret;

	/* This node speaks for itself. */
	if (info->flags & TOW_PEER_LOOPBACK)
		return 0;
	address_words(info->address, info->scope_id, address);
	node = find_node(nodes, info, address);
	if (info->state != TOW_PEER_READY) {
		if (node && !node->connected && info->last_error)
			node->error = info->last_error;
		return 0;
	}
	if (!node) {
		ret = add_node(nodes, &node);
		if (ret)
			return ret;
	}
	/* It began anew, or was lost: what is known of its page is of before. */
	if (node->peer != info->peer || node->state == NODE_LOST) {
		leave(node, NODE_NO_PAGE, 0);
		node->rest = 0;
	}
	memcpy(node->address, address, sizeof(node->address));
	memcpy(node->incarnation, info->incarnation, sizeof(node->incarnation));
	node->port = info->port;
	node->peer = info->peer;
	node->connected = true;
	return 0;
}

/* Who is there, and who is not any more. */
static int learn(struct top_nodes *nodes)
{
	struct tow_peer_info info;
	struct tow_peers *list;
	int ret;

	ret = tow_peer_list_get(nodes->dev, 0, &list);
	if (ret)
		return ret;
	for (size_t i = 0; i < nodes->count; i++)
		nodes->all[i]->connected = false;
	for (size_t i = 0; i < tow_peer_list_count(list) && !ret; i++) {
		info.size = sizeof(info);
		ret = tow_peer_list_entry(list, i, &info);
		if (!ret)
			ret = learn_peer(nodes, &info);
	}
	tow_peer_list_free(list);
	for (size_t i = 0; i < nodes->count && !ret; i++)
		if (!nodes->all[i]->connected && nodes->all[i]->state != NODE_LOST)
			leave(nodes->all[i], NODE_LOST, nodes->all[i]->error);
	return ret;
}

/*
 * Call some of those that were lost; next time the next ones.  The kernel's attempts go
 * on when nobody waits for them any more, and what comes of them the list of peers says.
 */
static void call_lost(struct top_nodes *nodes)
{
	char place[ADDRESS_TEXT + 16];
	struct top_node *node;
	struct tow_peer *peer;
	size_t called = 0;

	for (size_t i = 0; i < nodes->count && called < CALLS && !top_stopped(); i++) {
		node = nodes->all[nodes->turn++ % nodes->count];
		if (node->connected)
			continue;
		if (node->port)
			snprintf(place, sizeof(place),
				 strchr(node->address, ':') ? "[%s]:%u" : "%s:%u", node->address,
				 node->port);
		else
			snprintf(place, sizeof(place), "%s", node->address);
		called++;
		if (!tow_peer_connect(nodes->dev, place, NULL, CALL_MS, &peer))
			tow_peer_release(peer);
	}
}

/* ---- their pages ---- */

static bool is_loss(int error)
{
	return error == -ECONNRESET || error == -ETIMEDOUT || error == -EHOSTUNREACH ||
	       error == -ENETUNREACH || error == -ECONNREFUSED;
}

static int find_page(struct top_nodes *nodes, struct top_node *node)
{
	struct tow_peer *peer;
	int ret;

	ret = tow_peer_find(nodes->dev, node->address, &peer);
	if (ret)
		return ret;
	ret = tow_resolve(peer, TOP_PAGE_NAME, TOW_RIGHT_READ, 0, &node->remote);
	if (!ret && tow_remote_bytes(node->remote) < TOP_PAGE_BYTES)
		ret = -EPROTO;
	if (!ret)
		ret = tow_channel_get(nodes->queue, peer, TOW_CHANNEL_ANY, &node->channel);
	tow_peer_release(peer);
	return ret;
}

/*
 * A node that goes at this very moment may hold this up until the kernel gives it up, so
 * there is an end to it, and those that are left are asked next time: by then it is known
 * who else has gone.
 */
static void find_pages(struct top_nodes *nodes, uint64_t deadline_ns)
{
	struct top_node *node;
	int ret;

	for (size_t i = 0; i < nodes->count && !top_stopped(); i++) {
		node = nodes->all[i];
		if (top_now_ns() >= deadline_ns)
			break;
		if (!node->connected || node->remote)
			continue;
		if (node->rest) {
			node->rest--;
			continue;
		}
		ret = find_page(nodes, node);
		if (!ret)
			continue;
		if (ret == -ENOENT || ret == -ESTALE)
			leave(node, NODE_NO_PAGE, 0);
		else
			leave(node, is_loss(ret) ? NODE_LOST : NODE_FAILED, ret);
		node->rest = REST_ROUNDS;
	}
}

static int begin_reads(struct top_nodes *nodes)
{
	struct top_node *node;
	struct tow_sqe *sqe;
	int ret;

	for (size_t i = 0; i < nodes->count; i++) {
		node = nodes->all[i];
		if (!node->remote || node->flying)
			continue;
		sqe = tow_queue_get_sqe(nodes->queue);
		if (!sqe)
			break;
		tow_prep_read(sqe, node->channel, node->region, node->offset, node->remote, 0,
			      TOP_PAGE_BYTES);
		tow_sqe_set_data(sqe, i);
		node->flying = true;
	}
	ret = tow_queue_submit(nodes->queue);
	return ret < 0 && ret != -EBUSY ? ret : 0;
}

/* What was read is there. */
static void take_page(struct top_node *node)
{
	struct top_report report;
	int ret = top_page_read(node->copy, &report);

	/* Both copies were being written: what it said last still holds. */
	if (ret == -EAGAIN && node->reported)
		return;
	if (ret) {
		node->state = NODE_FAILED;
		node->error = ret;
		node->reported = false;
		return;
	}
	node->state = NODE_READY;
	node->error = 0;
	if (node->reported && report.sequence == node->report.sequence &&
	    report.time_ns == node->report.time_ns)
		return;
	node->rates = top_report_rates(&report, node->reported ? &node->report : NULL);
	node->report = report;
	node->reported_ns = top_now_ns();
	node->reported = true;
}

static void end_read(struct top_node *node, int status)
{
	node->flying = false;
	if (node->outdated) {
		node->outdated = false;
		return;
	}
	if (!status)
		take_page(node);
	else if (status == -ESTALE)
		leave(node, NODE_NO_PAGE, 0);
	else
		leave(node, is_loss(status) ? NODE_LOST : NODE_FAILED, status);
	node->rest = 0;
}

static bool all_read(const struct top_nodes *nodes)
{
	for (size_t i = 0; i < nodes->count; i++)
		if (nodes->all[i]->flying)
			return false;
	return true;
}

static int end_reads(struct top_nodes *nodes, uint64_t deadline_ns)
{
	const struct tow_cqe *cqe;
	uint64_t now;
	int ret = 0;

	while (!ret && !all_read(nodes) && !top_stopped()) {
		now = top_now_ns();
		ret = tow_queue_wait_cqe(nodes->queue, &cqe, now < deadline_ns ?
					 (uint32_t)((deadline_ns - now) / 1000) : 0);
		if (ret)
			break;
		end_read(nodes->all[cqe->user_data], cqe->status);
		tow_queue_cqe_seen(nodes->queue);
	}
	return ret == -ETIMEDOUT || ret == -EINTR ? 0 : ret;
}

/* ---- all of it ---- */

int top_nodes_open(struct top_nodes *nodes, struct tow_device *dev)
{
	memset(nodes, 0, sizeof(*nodes));
	nodes->dev = dev;
	return tow_queue_create(dev, TOW_CHANNELS_MAX, TOW_CHANNELS_MAX, &nodes->queue);
}

int top_nodes_round(struct top_nodes *nodes, uint64_t deadline_ns)
{
	int ret;

	ret = learn(nodes);
	if (ret)
		return ret;
	find_pages(nodes, deadline_ns);
	ret = begin_reads(nodes);
	if (!ret)
		ret = end_reads(nodes, deadline_ns);
	if (!ret)
		call_lost(nodes);
	return ret;
}

void top_nodes_close(struct top_nodes *nodes)
{
	tow_queue_destroy(nodes->queue);
	for (size_t i = 0; i < nodes->count; i++) {
		tow_remote_release(nodes->all[i]->remote);
		free(nodes->all[i]);
	}
	free(nodes->all);
	for (size_t i = 0; i < nodes->chunk_count; i++)
		tow_region_destroy(nodes->chunks[i]);
	free(nodes->chunks);
}

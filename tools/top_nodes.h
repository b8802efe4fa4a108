/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * towline top --cluster: the other nodes, and what their pages say (top_nodes.c).
 */
#ifndef TOW_TOP_NODES_H
#define TOW_TOP_NODES_H

#include "top_page.h"

struct tow_channel;
struct tow_queue;

/*
 * How it stands with a node.  From NO_PAGE to READY when its page is found; from there to
 * LOST when the connection ends, and to NO_PAGE when only the page does; from LOST to
 * NO_PAGE when it is connected again.  FAILED: another reason in @error, tried again.
 */
enum node_state { NODE_NO_PAGE, NODE_READY, NODE_LOST, NODE_FAILED };

struct top_node {
	/* Where it is; by its incarnation it is known again at another address. */
	char address[ADDRESS_TEXT];
	uint16_t port;
	uint8_t incarnation[TOW_INCARNATION_BYTES];
	uint64_t peer;
	/* The present list of peers says so. */
	bool connected;
	enum node_state state;
	int error;
	/* Rounds until it is asked for its page again. */
	unsigned int rest;
	/*
	 * Its page: found if not NULL; being read, that being of a page which it had
	 * before; and where what is read goes.
	 */
	struct tow_remote *remote;
	struct tow_channel *channel;
	bool flying;
	bool outdated;
	struct tow_region *region;
	uint64_t offset;
	const void *copy;
	/* What it said last, if anything, when that was new, and how it differed. */
	bool reported;
	struct top_report report;
	uint64_t reported_ns;
	struct top_rates rates;
};

struct top_nodes {
	struct tow_device *dev;
	struct tow_queue *queue;
	struct top_node **all;
	size_t count;
	/* Memory that pages are read into, so many of them each. */
	struct tow_region **chunks;
	size_t chunk_count;
	void *chunk;
	/* Whom to look at next when lost ones are called. */
	size_t turn;
};

/* 0 or a negative errno; top_nodes_close() in any case. */
int top_nodes_open(struct top_nodes *nodes, struct tow_device *dev);

/*
 * Look which nodes there are, find pages, read them, and wait for that until
 * @deadline_ns at most: 0, or a negative errno if nothing can be read any more.
 */
int top_nodes_round(struct top_nodes *nodes, uint64_t deadline_ns);

void top_nodes_close(struct top_nodes *nodes);

#endif /* TOW_TOP_NODES_H */

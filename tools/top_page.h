/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * The statistics page: what a node says of itself, for other nodes to READ.
 *
 * It is exported, to be read only, under TOP_PAGE_NAME.  It has two copies, at 0 and
 * at TOP_COPY_ROOM bytes; the writer renews them in turns, so that one of them always
 * stays as it is for a whole interval.  A READ promises nothing about the order in
 * which bytes are taken, so a reader believes a copy only if its checksum is right, and
 * takes the one with the higher sequence number.
 *
 * Numbers are little-endian.  Later versions of the tool add counts at the end, within
 * TOP_COPY_ROOM, and @bytes says how much of a copy there is: a reader takes what it
 * knows.  A change of anything else is another TOP_PAGE_VERSION.
 */
#ifndef TOW_TOP_PAGE_H
#define TOW_TOP_PAGE_H

#include <stdint.h>

#include <towline/towline.h>

#include "top.h"

#define TOP_PAGE_NAME		"towline.statistics"
#define TOP_PAGE_MAGIC		0x53544f57U	/* "WOTS" in memory */
#define TOP_PAGE_VERSION	1
#define TOP_COPY_ROOM		512UL
#define TOP_PAGE_BYTES		(2UL * TOP_COPY_ROOM)
#define TOP_NODE_NAME		64

/**
 * struct top_copy - one copy, as it lies in memory
 * @magic: TOP_PAGE_MAGIC
 * @version: TOP_PAGE_VERSION
 * @bytes: of this copy that mean something
 * @crc32: as in IEEE 802.3, over @bytes, with 0 in place of this field
 * @interval_ms: how long until the writer writes again
 * @sequence: 1 at first, one more each time; copy @sequence % 2 is written
 * @time_ns: when the counts were taken, by a clock of that node's that nobody sets
 * @incarnation: of the device
 * @device: its name, with a 0 behind it
 * @node: the node's name, the same
 * @counts: see enum top_count; TOP_ABSENT: that kernel does not count it
 */
struct top_copy {
	uint32_t magic;
	uint16_t version;
	uint16_t bytes;
	uint32_t crc32;
	uint32_t interval_ms;
	uint64_t sequence;
	uint64_t time_ns;
	uint8_t incarnation[TOW_INCARNATION_BYTES];
	char device[TOW_DEVICE_NAME_MAX];
	char node[TOP_NODE_NAME];
	uint64_t counts[TOP_COUNTS];
};

_Static_assert(sizeof(struct top_copy) <= TOP_COPY_ROOM, "a copy has room in its place");

/* What a copy says, in this machine's numbers. */
struct top_report {
	uint64_t sequence;
	uint64_t time_ns;
	uint64_t interval_ms;
	uint8_t incarnation[TOW_INCARNATION_BYTES];
	char device[TOW_DEVICE_NAME_MAX];
	char node[TOP_NODE_NAME];
	uint64_t counts[TOP_COUNTS];
};

/* Renew the copy whose turn it is; the other one stays as it is. */
void top_page_write(void *page, const struct top_report *report);

/*
 * The newest copy of a page that nobody writes meanwhile.  0; -EAGAIN: both were being
 * written when they were read; -EPROTONOSUPPORT: another version; -EPROTO: no page.
 */
int top_page_read(const void *page, struct top_report *report);

/* How fast a node's counts went up between two reports; unknown if they do not fit. */
struct top_rates top_report_rates(const struct top_report *report,
				  const struct top_report *before);

uint32_t top_crc32(const void *data, size_t count);

#endif /* TOW_TOP_PAGE_H */

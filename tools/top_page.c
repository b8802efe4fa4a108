// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * The statistics page: written, and read by those who do not trust it.
 */
#include <endian.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "top_page.h"

/* A page is small and written once a second: bit by bit is quick enough. */
uint32_t top_crc32(const void *data, size_t count)
{
	const uint8_t *bytes = data;
	uint32_t crc = ~0U;

	for (size_t i = 0; i < count; i++) {
		crc ^= bytes[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320U : 0);
	}
	return ~crc;
}

/* ---- the writer ---- */

void top_page_write(void *page, const struct top_report *report)
{
	struct top_copy copy = {
		.magic = htole32(TOP_PAGE_MAGIC),
		.version = htole16(TOP_PAGE_VERSION),
		.bytes = htole16(sizeof(copy)),
		.interval_ms = htole32((uint32_t)report->interval_ms),
		.sequence = htole64(report->sequence),
		.time_ns = htole64(report->time_ns),
	};

	memcpy(copy.incarnation, report->incarnation, sizeof(copy.incarnation));
	memcpy(copy.device, report->device, sizeof(copy.device));
	memcpy(copy.node, report->node, sizeof(copy.node));
	for (size_t i = 0; i < TOP_COUNTS; i++)
		copy.counts[i] = htole64(report->counts[i]);
	copy.crc32 = htole32(top_crc32(&copy, sizeof(copy)));
	memcpy((char *)page + report->sequence % 2 * TOP_COPY_ROOM, &copy, sizeof(copy));
}

/* ---- the reader ---- */

/* What lies at @place, if it is whole: 0, or why not. */
static int copy_read(const uint8_t *place, struct top_copy *copy)
{
	uint8_t whole[TOP_COPY_ROOM];
	uint32_t crc32;
	size_t bytes;

	memcpy(whole, place, sizeof(whole));
	memset(copy, 0, sizeof(*copy));
	/* What an older tool does not count. */
	memset(copy->counts, 0xff, sizeof(copy->counts));
	memcpy(copy, whole, offsetof(struct top_copy, counts));
	if (le32toh(copy->magic) != TOP_PAGE_MAGIC)
		return -EPROTO;
	if (le16toh(copy->version) != TOP_PAGE_VERSION)
		return -EPROTONOSUPPORT;
	bytes = le16toh(copy->bytes);
	if (bytes < offsetof(struct top_copy, counts) || bytes > sizeof(whole))
		return -EPROTO;
	crc32 = le32toh(copy->crc32);
	memset(whole + offsetof(struct top_copy, crc32), 0, sizeof(copy->crc32));
	if (top_crc32(whole, bytes) != crc32)
		return -EAGAIN;
	memcpy(copy, whole, bytes < sizeof(*copy) ? bytes : sizeof(*copy));
	return 0;
}

static void report_of(const struct top_copy *copy, struct top_report *report)
{
	report->sequence = le64toh(copy->sequence);
	report->time_ns = le64toh(copy->time_ns);
	report->interval_ms = le32toh(copy->interval_ms);
	memcpy(report->incarnation, copy->incarnation, sizeof(report->incarnation));
	memcpy(report->device, copy->device, sizeof(report->device));
	memcpy(report->node, copy->node, sizeof(report->node));
	/* Whoever wrote it: they end. */
	report->device[sizeof(report->device) - 1] = '\0';
	report->node[sizeof(report->node) - 1] = '\0';
	for (size_t i = 0; i < TOP_COUNTS; i++)
		report->counts[i] = le64toh(copy->counts[i]);
}

int top_page_read(const void *page, struct top_report *report)
{
	struct top_copy even, odd;
	int even_error = copy_read(page, &even);
	int odd_error = copy_read((const uint8_t *)page + TOP_COPY_ROOM, &odd);

	if (even_error && odd_error) {
		/* A page that has just begun has one copy: the other says nothing. */
		if (even_error == -EAGAIN || odd_error == -EAGAIN)
			return -EAGAIN;
		return even_error == -EPROTO ? odd_error : even_error;
	}
	if (even_error || (!odd_error && le64toh(odd.sequence) > le64toh(even.sequence)))
		report_of(&odd, report);
	else
		report_of(&even, report);
	return 0;
}

struct top_rates top_report_rates(const struct top_report *report,
				  const struct top_report *before)
{
	bool fits = before && report->sequence > before->sequence &&
		    report->time_ns > before->time_ns &&
		    !memcmp(report->incarnation, before->incarnation,
			    sizeof(report->incarnation));
	double seconds = fits ? (double)(report->time_ns - before->time_ns) / 1e9 : 1;

	return top_rates_of(report->counts, fits ? before->counts : NULL, seconds);
}

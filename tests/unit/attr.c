// SPDX-License-Identifier: GPL-2.0
/*
 * tow_device_query()'s answer: every field comes from the kernel's field of
 * the same name, and callers older and newer than the library get what fits.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <kselftest.h>

#include "internal.h"

#define FIRST_SIZE (offsetof(struct tow_device_attr, maint_rebuilds) + sizeof(uint32_t))

/* Room for a structure that is longer than today's. */
union room {
	struct tow_device_attr attr;
	unsigned char bytes[8192];
};

/* Every byte its own value, as far as 251 goes: a swapped field shows. */
static void fill(void *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		((unsigned char *)bytes)[i] = (unsigned char)(i % 251 + 1);
}

static bool fields_match(void)
{
	struct tow_device_attr attr;
	struct tow_query query;
	bool same = true;

	fill(&query, sizeof(query));
	memset(&attr, 0xff, sizeof(attr));
	towi_attr_from_query(&query, &attr);

#define SAME(field) do { \
	if (sizeof(attr.field) != sizeof(query.field) || \
	    memcmp(&attr.field, &query.field, sizeof(attr.field)) != 0) { \
		ksft_print_msg("%s differs\n", #field); \
		same = false; \
	} \
} while (0)
	SAME(uapi_version);
	SAME(driver_version);
	SAME(transport);
	SAME(device_name);
	SAME(incarnation);
	SAME(features);
	SAME(max_mr_size);
	SAME(max_msg_size);
	SAME(port);
	SAME(page_size);
	SAME(numa_node);
	SAME(max_mr);
	SAME(max_fast_reg_pages);
	SAME(max_pd);
	SAME(max_qp);
	SAME(max_qp_wr);
	SAME(max_send_sge);
	SAME(max_recv_sge);
	SAME(max_sge_rd);
	SAME(max_cq);
	SAME(max_cqe);
	SAME(max_srq);
	SAME(max_srq_wr);
	SAME(max_qp_rd_atom);
	SAME(max_qp_init_rd_atom);
	SAME(maint_state);
	SAME(maint_error);
	SAME(maint_rebuilds);
	return same && attr.size == sizeof(attr);
}

/* A field that the function forgot would still hold a zero. */
static bool no_byte_forgotten(void)
{
	struct tow_device_attr attr;
	struct tow_query query;

	fill(&query, sizeof(query));
	towi_attr_from_query(&query, &attr);
	for (size_t i = sizeof(attr.size); i < sizeof(attr); i++)
		if (!((unsigned char *)&attr)[i]) {
			ksft_print_msg("byte %zu is zero\n", i);
			return false;
		}
	return true;
}

/*
 * Ask for size bytes: the known part arrives, what lies between it and size is
 * zero, and nothing beyond size is touched.
 */
static bool gives(const struct tow_device_attr *known, uint32_t size, uint32_t filled)
{
	size_t from = sizeof(known->size);
	static union room room;

	memset(&room, 0xee, sizeof(room));
	room.attr.size = size;
	if (towi_attr_give(known, &room.attr) || room.attr.size != filled ||
	    memcmp(room.bytes + from, (const unsigned char *)known + from, filled - from) != 0)
		return false;
	for (size_t i = filled; i < size; i++)
		if (room.bytes[i])
			return false;
	for (size_t i = size; i < sizeof(room); i++)
		if (room.bytes[i] != 0xee)
			return false;
	return true;
}

static bool refuses(const struct tow_device_attr *known, uint32_t size)
{
	static union room room, before;

	memset(&room, 0xee, sizeof(room));
	room.attr.size = size;
	before = room;
	return towi_attr_give(known, &room.attr) == -EINVAL &&
	       memcmp(room.bytes, before.bytes, sizeof(room.bytes)) == 0;
}

int main(void)
{
	struct tow_device_attr known, attr = { .size = sizeof(attr) };

	fill(&known, sizeof(known));
	known.size = sizeof(known);

	ksft_print_header();
	ksft_set_plan(11);
	ksft_test_result(fields_match(), "fields are the kernel's of the same name\n");
	ksft_test_result(no_byte_forgotten(), "no field is forgotten\n");
	ksft_test_result(gives(&known, sizeof(known), sizeof(known)), "a caller of the same age\n");
	ksft_test_result(gives(&known, FIRST_SIZE, FIRST_SIZE), "the oldest caller\n");
	ksft_test_result(gives(&known, sizeof(known) + 64, sizeof(known)), "a newer caller\n");
	ksft_test_result(gives(&known, 4096, sizeof(known)), "the largest size\n");
	ksft_test_result(refuses(&known, FIRST_SIZE - 1), "one byte too short is refused\n");
	ksft_test_result(refuses(&known, 0), "a size that was not set is refused\n");
	ksft_test_result(refuses(&known, 4097) && refuses(&known, UINT32_MAX), "an absurd size is refused\n");
	ksft_test_result(tow_device_query(NULL, &attr) == -EINVAL, "no device\n");
	ksft_test_result(FIRST_SIZE == 200, "the first published size never changes\n");
	ksft_finished();
}

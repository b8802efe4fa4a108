// SPDX-License-Identifier: GPL-2.0
/*
 * What the library does about regions before it asks the kernel: attributes and
 * answers of older and newer callers, names, arguments that are missing.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <kselftest.h>

#include "internal.h"

/* Published sizes never change. */
#define ATTR_FIRST	(16 + sizeof(char *))
#define INFO_FIRST	168

/* Room for structures that are longer than today's. */
union attr_room {
	struct tow_region_attr attr;
	unsigned char bytes[8192];
};

union info_room {
	struct tow_region_info info;
	unsigned char bytes[8192];
};

static void fill(void *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		((unsigned char *)bytes)[i] = (unsigned char)(i % 251 + 1);
}

static int take(uint32_t size, size_t junk_at, struct tow_region_attr *attr)
{
	static union attr_room room;

	memset(&room, 0, sizeof(room));
	room.attr.size = size;
	room.attr.flags = 7;
	room.attr.linger_s = 8;
	room.attr.name = "weights";
	if (junk_at)
		room.bytes[junk_at] = 1;
	return towi_region_attr_take(&room.attr, attr);
}

static bool taken(uint32_t size)
{
	struct tow_region_attr attr;

	memset(&attr, 0xff, sizeof(attr));
	return !take(size, 0, &attr) && attr.flags == 7 && attr.linger_s == 8 &&
	       !strcmp(attr.name, "weights");
}

static void test_attr(void)
{
	struct tow_region_attr attr;

	memset(&attr, 0xff, sizeof(attr));
	ksft_test_result(!towi_region_attr_take(NULL, &attr) && !attr.flags && !attr.linger_s &&
			 !attr.name, "no attributes: nothing asked for\n");
	ksft_test_result(taken(sizeof(attr)) && taken(ATTR_FIRST), "attributes of today and of old\n");
	ksft_test_result(taken(sizeof(attr) + 8) && taken(4096), "longer ones, the rest zero\n");
	ksft_test_result(take(sizeof(attr) + 8, sizeof(attr), &attr) == -E2BIG &&
			 take(4096, 4095, &attr) == -E2BIG, "what is not known here is refused\n");
	ksft_test_result(taken(4088), "what lies behind the structure is not looked at\n");
	ksft_test_result(take(ATTR_FIRST - 1, 0, &attr) == -EINVAL && take(0, 0, &attr) == -EINVAL &&
			 take(4097, 0, &attr) == -EINVAL && take(UINT32_MAX, 0, &attr) == -EINVAL,
			 "sizes that no version has\n");
	ksft_test_result(take(sizeof(attr), offsetof(struct tow_region_attr, reserved), &attr) ==
			 -EINVAL, "a reserved field that is used\n");
}

static bool name_is(const char *name, size_t length)
{
	char to[TOW_REGION_NAME_MAX];

	memset(to, 'x', sizeof(to));
	if (towi_region_name(name, to) || strlen(to) != length || memcmp(to, name, length) != 0)
		return false;
	for (size_t i = length; i < sizeof(to); i++)
		if (to[i])
			return false;
	return true;
}

static void test_names(void)
{
	char name[TOW_REGION_NAME_MAX + 1], to[TOW_REGION_NAME_MAX];

	memset(name, 'n', sizeof(name));
	name[TOW_REGION_NAME_MAX] = '\0';
	ksft_test_result(towi_region_name(name, to) == -EINVAL, "a name without room for its end\n");
	name[TOW_REGION_NAME_MAX - 1] = '\0';
	ksft_test_result(name_is(name, TOW_REGION_NAME_MAX - 1), "the longest name\n");
	ksft_test_result(name_is("weights", 7) && name_is("", 0), "a name is filled up with zeroes\n");
	memset(to, 'x', sizeof(to));
	ksft_test_result(!towi_region_name(NULL, to) && !to[0] && !to[TOW_REGION_NAME_MAX - 1],
			 "no name is an empty one\n");
}

/*
 * A kernel that filled in known->size bytes, a caller with room for size: the
 * smaller of both arrives, the caller's rest is zero, nothing beyond is touched.
 */
static bool gives(const struct tow_region_info *known, uint32_t size)
{
	size_t from = sizeof(known->size), filled = known->size < size ? known->size : size;
	static union info_room room;

	memset(&room, 0xee, sizeof(room));
	room.info.size = size;
	if (towi_give(known, INFO_FIRST, &room.info) || room.info.size != filled ||
	    memcmp(room.bytes + from, (const unsigned char *)known + from, filled - from) != 0)
		return false;
	for (size_t i = filled; i < sizeof(room); i++)
		if (room.bytes[i] != (i < size ? 0 : 0xee))
			return false;
	return true;
}

static bool refuses(const struct tow_region_info *known, uint32_t size)
{
	static union info_room room;

	memset(&room, 0xee, sizeof(room));
	room.info.size = size;
	return towi_give(known, INFO_FIRST, &room.info) == -EINVAL && room.info.size == size &&
	       room.bytes[sizeof(size)] == 0xee;
}

static void test_info(void)
{
	struct tow_region_info known;

	fill(&known, sizeof(known));
	known.size = sizeof(known);
	ksft_test_result(sizeof(known) >= INFO_FIRST && TOWI_INFO_SIZE_FIRST == INFO_FIRST &&
			 towi_size_valid(INFO_FIRST, INFO_FIRST) &&
			 !towi_size_valid(INFO_FIRST - 1, INFO_FIRST), "the first published size\n");
	ksft_test_result(gives(&known, sizeof(known)) && gives(&known, INFO_FIRST) &&
			 gives(&known, sizeof(known) + 64) && gives(&known, 4096),
			 "callers of all ages\n");
	known.size = INFO_FIRST;
	ksft_test_result(gives(&known, sizeof(known) + 64), "a kernel that is the oldest of the three\n");
	ksft_test_result(refuses(&known, INFO_FIRST - 1) && refuses(&known, 0) &&
			 refuses(&known, 4097) && refuses(&known, UINT32_MAX),
			 "sizes that no version has\n");
}

/* A device that nothing is asked of: every call with it ends before. */
static void test_missing(void)
{
	struct tow_device dev = { .fd = -1 };
	struct tow_region_attr reserved = { .size = sizeof(reserved), .reserved = 1 };
	struct tow_region_info info = { .size = sizeof(info) };
	struct tow_region *region = NULL;
	char long_name[TOW_REGION_NAME_MAX + 1];
	void *addr = NULL;
	int fd = -1;

	memset(long_name, 'n', sizeof(long_name));
	long_name[TOW_REGION_NAME_MAX] = '\0';
	ksft_test_result(tow_region_create(NULL, 1, NULL, &region) == -EINVAL &&
			 tow_region_create(&dev, 1, NULL, NULL) == -EINVAL &&
			 tow_region_create(&dev, 1, &reserved, &region) == -EINVAL, "create\n");
	ksft_test_result(tow_region_attach(NULL, "a", 0, &region) == -EINVAL &&
			 tow_region_attach(&dev, NULL, 0, &region) == -EINVAL &&
			 tow_region_attach(&dev, "a", 0, NULL) == -EINVAL &&
			 tow_region_attach(&dev, long_name, 0, &region) == -EINVAL, "attach\n");
	ksft_test_result(tow_region_from_fd(NULL, 0, &region) == -EINVAL &&
			 tow_region_from_fd(&dev, 0, NULL) == -EINVAL, "from_fd\n");
	ksft_test_result(tow_region_from_memory(NULL, &dev, 1, 0, &region) == -EINVAL &&
			 tow_region_from_memory(&dev, &dev, 1, 0, NULL) == -EINVAL, "from_memory\n");
	ksft_test_result(tow_region_from_dmabuf(NULL, 0, 0, 1, 0, &region) == -EINVAL &&
			 tow_region_from_dmabuf(&dev, 0, 0, 1, 0, NULL) == -EINVAL, "from_dmabuf\n");
	ksft_test_result(tow_region_map(NULL, 0, 0, PROT_READ, &addr) == -EINVAL &&
			 tow_region_unmap(NULL, &dev, 0) == -EINVAL, "map and unmap\n");
	ksft_test_result(tow_region_fd(NULL, 0, &fd) == -EINVAL && fd == -1, "fd\n");
	ksft_test_result(tow_region_info(NULL, &info) == -EINVAL, "info\n");
	ksft_test_result(tow_region_list_get(NULL, 0, NULL) == -EINVAL &&
			 tow_region_list_get(&dev, 0, NULL) == -EINVAL, "list_get\n");
	tow_region_list_free(NULL);
	tow_region_release(NULL);
	ksft_test_result(tow_region_destroy(NULL) == 0, "ending nothing\n");
	/* The descriptor is bad, and the kernel's word for it comes through. */
	ksft_test_result(tow_region_create(&dev, 1, NULL, &region) == -EBADF && !region &&
			 tow_region_from_fd(&dev, 0, &region) == -EBADF && !region,
			 "on failure no region is left behind\n");
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(7 + 4 + 4 + 11);
	test_attr();
	test_names();
	test_info();
	test_missing();
	ksft_finished();
}

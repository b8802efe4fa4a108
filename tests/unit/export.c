// SPDX-License-Identifier: GPL-2.0
/*
 * What the library does about exports and remote ranges before it asks the
 * kernel: names, sizes of structures, arguments that are missing.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <kselftest.h>

#include "internal.h"

/* A published size never changes. */
#define INFO_FIRST	336

static bool name_is(const char *name, size_t length)
{
	uint8_t to[TOW_EXPORT_NAME_MAX + 1];
	uint32_t bytes = 0;

	memset(to, 'x', sizeof(to));
	if (towi_export_name(name, to, &bytes) || bytes != length || memcmp(to, name, length) != 0)
		return false;
	for (size_t i = length; i < sizeof(to); i++)
		if (to[i])
			return false;
	return true;
}

static void test_names(void)
{
	/* On the heap, so that the sanitizer sees a byte read past the end. */
	char *name = malloc(TOW_EXPORT_NAME_MAX + 2);
	uint8_t to[TOW_EXPORT_NAME_MAX + 1];
	uint32_t bytes;

	if (!name)
		ksft_exit_fail_perror("malloc");
	memset(name, 'n', TOW_EXPORT_NAME_MAX + 1);
	name[TOW_EXPORT_NAME_MAX + 1] = '\0';
	ksft_test_result(towi_export_name(name, to, &bytes) == -EINVAL, "a name that is too long\n");
	name[TOW_EXPORT_NAME_MAX] = '\0';
	ksft_test_result(name_is(name, TOW_EXPORT_NAME_MAX), "the longest name\n");
	ksft_test_result(name_is("w", 1) && name_is("layer 7/weights", 15) &&
			 name_is("gr\xc3\xb6\xc3\x9f" "e", 7), "a name is filled up with zeroes\n");
	ksft_test_result(towi_export_name("", to, &bytes) == -EINVAL &&
			 towi_export_name(NULL, to, &bytes) == -EINVAL, "no name\n");
	free(name);
}

static void test_missing(void)
{
	/* Never looked into: each call ends before. */
	struct tow_region *region = (struct tow_region *)&region;
	struct tow_peer *peer = (struct tow_peer *)&peer;
	struct tow_exported *exported = NULL;
	struct tow_device dev = { .fd = -1 };
	struct tow_remote *remote = NULL;
	struct tow_exports *list = NULL;

	ksft_test_result(tow_export(NULL, 0, 1, "a", TOW_RIGHT_READ, &exported) == -EINVAL &&
			 tow_export(region, 0, 1, NULL, TOW_RIGHT_READ, &exported) == -EINVAL &&
			 tow_export(region, 0, 1, "", TOW_RIGHT_READ, &exported) == -EINVAL &&
			 tow_export(region, 0, 1, "a", TOW_RIGHT_READ, NULL) == -EINVAL && !exported,
			 "export\n");
	ksft_test_result(tow_resolve(NULL, "a", TOW_RIGHT_READ, 0, &remote) == -EINVAL &&
			 tow_resolve(peer, NULL, TOW_RIGHT_READ, 0, &remote) == -EINVAL &&
			 tow_resolve(peer, "", TOW_RIGHT_READ, 0, &remote) == -EINVAL &&
			 tow_resolve(peer, "a", TOW_RIGHT_READ, 0, NULL) == -EINVAL && !remote,
			 "resolve\n");
	ksft_test_result(tow_export_list_get(NULL, 0, &list) == -EINVAL &&
			 tow_export_list_get(&dev, 0, NULL) == -EINVAL &&
			 tow_export_list_get(&dev, 0, &list) == -EBADF && !list, "list_get\n");
	tow_export_list_free(NULL);
	ksft_test_result(tow_unexport(NULL) == 0 && tow_remote_release(NULL) == 0,
			 "ending nothing\n");
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(1 + 4 + 4);
	ksft_test_result(TOWI_EXPORT_INFO_SIZE_FIRST == INFO_FIRST &&
			 sizeof(struct tow_export_info) >= INFO_FIRST, "the first published size\n");
	test_names();
	test_missing();
	ksft_finished();
}

// SPDX-License-Identifier: GPL-2.0
/*
 * Device names, the list of devices, and the choice of one, against made-up
 * class folders.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kselftest.h>

#include "internal.h"

static char scratch[] = "/tmp/towline-names.XXXXXX";

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *where)
{
	(void)status;
	(void)type;
	(void)where;
	return remove(path);
}

static void cleanup(void)
{
	nftw(scratch, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* A class folder with a link for each name; the caller frees the path. */
static char *class_folder(const char *folder, const char *const *names)
{
	char *path, *link;

	if (asprintf(&path, "%s/%s", scratch, folder) < 0 || mkdir(path, 0700))
		ksft_exit_fail_perror("mkdir");
	for (; *names; names++) {
		if (asprintf(&link, "%s/%s", path, *names) < 0 || symlink("device", link))
			ksft_exit_fail_perror("symlink");
		free(link);
	}
	return path;
}

static bool choice(const char *class_dir, const char *asked, const char *preferred,
		   int want, const char *want_name)
{
	char name[TOW_DEVICE_NAME_MAX];
	int ret = towi_choose(class_dir, asked, preferred, name);

	if (ret != want || (!ret && strcmp(name, want_name) != 0)) {
		ksft_print_msg("got %d %s\n", ret, ret ? "" : name);
		return false;
	}
	return true;
}

static void test_names(void)
{
	char longest[TOW_DEVICE_NAME_MAX + 1];

	memset(longest, 'x', sizeof(longest));
	longest[TOW_DEVICE_NAME_MAX] = '\0';
	ksft_test_result(!towi_name_valid(longest), "a name without room for its end is refused\n");
	longest[TOW_DEVICE_NAME_MAX - 1] = '\0';
	ksft_test_result(towi_name_valid(longest), "the longest name is taken\n");
	ksft_test_result(towi_name_valid("mlx5_0") && towi_name_valid("rocep1s0f0") &&
			 towi_name_valid("..."), "usual and odd names are taken\n");
	ksft_test_result(!towi_name_valid("") && !towi_name_valid(".") && !towi_name_valid(".."),
			 "nothing, . and .. are refused\n");
	ksft_test_result(!towi_name_valid("../null") && !towi_name_valid("a/b") &&
			 !towi_name_valid("/"), "a name cannot leave the folder\n");
}

static void test_list(const char *none, const char *many)
{
	struct tow_device_list *list;
	int error = 0;

	list = towi_list("/nonexistent/class", &error);
	ksft_test_result(!list && error == -ENOPKG, "no class folder: module not loaded\n");
	list = towi_list("/dev/null", &error);
	ksft_test_result(!list && error == -ENOTDIR, "a folder that is none keeps its errno\n");

	list = towi_list(none, &error);
	ksft_test_result(list && tow_device_list_count(list) == 0 && !tow_device_list_name(list, 0),
			 "an empty class is an empty list\n");
	tow_device_list_free(list);

	list = towi_list(many, &error);
	ksft_test_result(list && tow_device_list_count(list) == 6 &&
			 !strcmp(tow_device_list_name(list, 0), "mlx5_0") &&
			 !strcmp(tow_device_list_name(list, 5), "rxe1"),
			 "devices are listed in order, attributes are not devices\n");
	ksft_test_result(list && !tow_device_list_name(list, 6) &&
			 !tow_device_list_name(list, (size_t)-1), "no name past the end\n");
	tow_device_list_free(list);
	tow_device_list_free(NULL);
	ksft_test_result(tow_device_list_get(NULL) == -EINVAL, "nowhere to put a list\n");
}

static void test_choice(const char *none, const char *one, const char *many)
{
	ksft_test_result(choice(one, NULL, NULL, 0, "rxe0"), "the only device\n");
	ksft_test_result(choice(one, NULL, "", 0, "rxe0"), "an empty TOW_DEVICE is not set\n");
	ksft_test_result(choice(none, NULL, NULL, -ENXIO, NULL), "no device at all\n");
	ksft_test_result(choice(many, NULL, NULL, -ENOTUNIQ, NULL), "several and none named\n");
	ksft_test_result(choice(many, NULL, "rxe1", 0, "rxe1"), "TOW_DEVICE names one\n");
	ksft_test_result(choice(many, "rxe0", "rxe1", 0, "rxe0"), "an argument beats TOW_DEVICE\n");
	ksft_test_result(choice(one, "", NULL, -EINVAL, NULL), "an empty argument is a mistake\n");
	ksft_test_result(choice(one, NULL, "../mem", -EINVAL, NULL), "a path in TOW_DEVICE is refused\n");
	ksft_test_result(choice("/nonexistent/class", NULL, NULL, -ENOPKG, NULL), "no module\n");
}

static void test_open_arguments(void)
{
	struct tow_device *dev = NULL;

	ksft_test_result(tow_device_open("rxe0", 0, NULL) == -EINVAL, "open: nowhere to put a device\n");
	ksft_test_result(tow_device_open("rxe0", 1, &dev) == -EINVAL && !dev, "open: unknown flags\n");
	ksft_test_result(tow_device_open("a/b", 0, &dev) == -EINVAL && !dev, "open: a bad name\n");
	tow_device_close(NULL);
	ksft_test_result_pass("close: NULL is nothing to do\n");
}

int main(void)
{
	static const char *const no_names[] = { NULL };
	static const char *const one_name[] = { "rxe0", NULL };
	static const char *const many_names[] = { "rxe1", "rxe0", "mlx5_1", "mlx5_0", "mlx5_10", "mlx5_2", NULL };
	char *none, *one, *many, *attribute;

	if (!mkdtemp(scratch))
		ksft_exit_fail_perror("mkdtemp");
	atexit(cleanup);
	none = class_folder("none", no_names);
	one = class_folder("one", one_name);
	many = class_folder("many", many_names);
	if (asprintf(&attribute, "%s/version", many) < 0 || close(creat(attribute, 0600)))
		ksft_exit_fail_perror("creat");

	ksft_print_header();
	ksft_set_plan(5 + 6 + 9 + 4);
	test_names();
	test_list(none, many);
	test_choice(none, one, many);
	test_open_arguments();

	free(none);
	free(one);
	free(many);
	free(attribute);
	ksft_finished();
}

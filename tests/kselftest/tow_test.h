/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the kselftests share: finding the device, asking it, waiting.
 *
 * The device is $TOW_DEVICE, or the first one under /dev/towline.
 */
#ifndef TOW_TEST_H
#define TOW_TEST_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include <towline/uapi.h>

/* The harness makes global functions of fixtures. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#include "kselftest_harness.h"

#define TOW_TEST_DEVICES	"/dev/towline"

/* For each command its published size: what the first header had. */
#define TOW_TEST_QUERY_PUBLISHED	208

/*
 * Looked up once; a test that has threads looks before it starts them.
 */
static inline const char *tow_test_device(void)
{
	static char found[NAME_MAX + 1];
	const char *chosen = getenv("TOW_DEVICE");
	struct dirent *entry;
	DIR *dir;

	if (chosen && *chosen)
		return chosen;
	if (found[0])
		return found;
	dir = opendir(TOW_TEST_DEVICES);
	if (!dir)
		return "none";
	while (!found[0] && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			snprintf(found, sizeof(found), "%s", entry->d_name);
	closedir(dir);
	return found[0] ? found : "none";
}

static inline const char *tow_test_path(void)
{
	static char path[sizeof(TOW_TEST_DEVICES) + NAME_MAX + 1];

	if (!path[0])
		snprintf(path, sizeof(path), TOW_TEST_DEVICES "/%s", tow_test_device());
	return path;
}

/* A file descriptor, or a negative errno. */
static inline int tow_test_open(int flags)
{
	int fd = open(tow_test_path(), flags | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* 0 or a negative errno. */
static inline int tow_test_ioctl(int fd, unsigned long command, void *arg)
{
	return ioctl(fd, command, arg) < 0 ? -errno : 0;
}

static inline int tow_test_query(int fd, struct tow_query *query)
{
	memset(query, 0, sizeof(*query));
	query->size = sizeof(*query);
	return tow_test_ioctl(fd, TOW_IOCTL_QUERY, query);
}

/* The first line of a file; "" if it cannot be read. */
static inline void tow_test_read_line(const char *path, char *line, size_t size)
{
	FILE *file = fopen(path, "re");

	line[0] = '\0';
	if (!file)
		return;
	if (!fgets(line, (int)size, file))
		line[0] = '\0';
	fclose(file);
	line[strcspn(line, "\n")] = '\0';
}

static inline double tow_test_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static inline void tow_test_sleep_ms(long ms)
{
	struct timespec pause = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

	nanosleep(&pause, NULL);
}

/* $TOW_COUNT (set in soak), or a small default. */
static inline int tow_test_count(int usual)
{
	const char *asked = getenv("TOW_COUNT");

	return asked && *asked ? atoi(asked) : usual;
}

/* A kernel that checks everything, on which all takes several times as long. */
static inline bool tow_test_slow(void)
{
	const char *kernel = getenv("TOW_LAB_KERNEL");

	return kernel && strncmp(kernel, "6.", 2) != 0;
}

#endif /* TOW_TEST_H */

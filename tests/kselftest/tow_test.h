/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the kselftests share: finding the device, asking it; and time (tow_clock.h).
 *
 * The device is $TOW_DEVICE, or the first one under /dev/towline.
 */
#ifndef TOW_TEST_H
#define TOW_TEST_H

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include <towline/uapi.h>

#include "tow_clock.h"

/* ---- cases whose time is over ---------------------------------------------- */

static sem_t tow_case_over;

static inline void *tow_case_watch(void *seconds)
{
	struct tow_patience patience = tow_patience(*(unsigned int *)seconds);
	struct timespec until;

	do {
		until.tv_sec = (time_t)patience.end;
		until.tv_nsec = (long)((patience.end - (double)until.tv_sec) * 1e9);
		if (!sem_clockwait(&tow_case_over, CLOCK_MONOTONIC, &until))
			return NULL;
	} while (tow_patient(&patience));
	kill(getpid(), SIGALRM);
	return NULL;
}

/*
 * The harness waits for a case in a process that does nothing else, and has alarm() end
 * it.  This one has patience: it does not hear the signal itself, and is gone when the next
 * case is forked.
 */
static inline void tow_case_alarm(int case_seconds)
{
	static unsigned int seconds;
	static pthread_t watch;
	sigset_t all, before;

	if (!case_seconds) {
		sem_post(&tow_case_over);
		pthread_join(watch, NULL);
		return;
	}
	seconds = (unsigned int)case_seconds;
	sem_init(&tow_case_over, 0, 0);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (pthread_create(&watch, NULL, tow_case_watch, &seconds))
		abort();
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* The harness makes global functions of fixtures. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#define alarm(seconds)	tow_case_alarm(seconds)
#include "kselftest_harness.h"
#undef alarm

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

/* $TOW_COUNT (set in soak), or a small default. */
static inline int tow_test_count(int usual)
{
	const char *asked = getenv("TOW_COUNT");

	return asked && *asked ? atoi(asked) : usual;
}

/* A kernel that checks everything, on which all takes several times as long: it has a name. */
static inline bool tow_test_slow(void)
{
	const char *kernel = getenv("TOW_LAB_KERNEL");

	return kernel && !isdigit((unsigned char)*kernel);
}

#endif /* TOW_TEST_H */

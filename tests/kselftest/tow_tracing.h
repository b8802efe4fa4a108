/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Trace events with the stacks they come from, in a buffer of its own: who called?
 *
 * Switching an event on patches code, which QEMU's emulated processors do not survive
 * if another one runs it: meanwhile there is only one.  For the same reason the names
 * of processes are not recorded, and events are not limited to one process: both
 * would hook into the scheduler.
 */
#ifndef TOW_TRACING_H
#define TOW_TRACING_H

#include <glob.h>
#include <sys/stat.h>
#include "tow_identity.h"
#include "tow_test.h"

#define TOW_TRACEFS	"/sys/kernel/tracing"
#define TOW_TRACING	TOW_TRACEFS "/instances/tow_queue_trace"

/* 0 or a negative errno. */
static inline int tow_tracing_put(const char *file, const char *text)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), TOW_TRACING "/%s", file);
	return tow_write_file(path, text);
}

/* Take all processors but the first away, or have them again. */
static inline int tow_tracing_processors(const char *online)
{
	int ret = 0;
	glob_t found;
	size_t i;

	if (glob("/sys/devices/system/cpu/cpu[1-9]*/online", 0, NULL, &found))
		return 0;
	for (i = 0; !ret && i < found.gl_pathc; i++) {
		char now[8];

		tow_test_read_line(found.gl_pathv[i], now, sizeof(now));
		if (strcmp(now, online))
			ret = tow_write_file(found.gl_pathv[i], online);
	}
	globfree(&found);
	return ret;
}

/* Does the kernel have it? */
static inline bool tow_tracing_has(const char *event)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), TOW_TRACEFS "/events/%s/enable", event);
	return !access(path, F_OK);
}

/* On or off, each of them that the kernel has. */
static inline int tow_tracing_switch(const char * const *events, size_t count, const char *on)
{
	int ret = tow_tracing_processors("0"), again;
	char file[256];
	size_t i;

	for (i = 0; !ret && i < count; i++) {
		snprintf(file, sizeof(file), "events/%s/enable", events[i]);
		if (tow_tracing_has(events[i]))
			ret = tow_tracing_put(file, on);
	}
	again = tow_tracing_processors("1");
	return ret ? ret : again;
}

/* A buffer, in which nothing is traced yet. */
static inline int tow_tracing_make(const char * const *events, size_t count)
{
	int ret = tow_write_file(TOW_TRACEFS "/options/record-cmd", "0");

	if (ret)
		return ret;
	ret = mkdir(TOW_TRACING, 0700) ? -errno : 0;
	tow_write_file(TOW_TRACEFS "/options/record-cmd", "1");
	if (!ret)
		ret = tow_tracing_put("tracing_on", "0");
	if (!ret)
		ret = tow_tracing_put("buffer_size_kb", "8192");
	if (!ret)
		ret = tow_tracing_put("options/stacktrace", "1");
	/* With it a function's module is named, too. */
	if (!ret)
		ret = tow_tracing_put("options/sym-offset", "1");
	return ret ? ret : tow_tracing_switch(events, count, "1");
}

/* True too if there is none. */
static inline bool tow_tracing_end(const char * const *events, size_t count)
{
	if (access(TOW_TRACING, F_OK))
		return true;
	return !tow_tracing_switch(events, count, "0") && !rmdir(TOW_TRACING);
}

/* From here on, in an empty buffer. */
static inline int tow_tracing_on(void)
{
	int ret = tow_tracing_put("trace", "\n");

	return ret ? ret : tow_tracing_put("tracing_on", "1");
}

/* How many events were lost; -1: it is not known. */
static inline long tow_tracing_lost(void)
{
	long lost = 0;
	glob_t found;
	size_t i;

	if (glob(TOW_TRACING "/per_cpu/cpu*/stats", 0, NULL, &found))
		return -1;
	for (i = 0; i < found.gl_pathc; i++) {
		FILE *file = fopen(found.gl_pathv[i], "re");
		char line[128];
		long number;

		while (file && fgets(line, sizeof(line), file))
			if (sscanf(line, "overrun: %ld", &number) == 1 ||
			    sscanf(line, "dropped events: %ld", &number) == 1)
				lost += number;
		if (file)
			fclose(file);
	}
	globfree(&found);
	return lost;
}

#endif /* TOW_TRACING_H */

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Pollers as others see them: threads in /proc.
 */
#ifndef TOW_POLLER_H
#define TOW_POLLER_H

#include <glob.h>
#include <sys/types.h>
#include "tow_queue.h"

/* The poller of a process, which has one client with a polled queue; 0: there is none. */
static inline pid_t tow_poller_of(pid_t process)
{
	char wanted[32], name[32];
	pid_t found = 0;
	glob_t all;
	size_t i;

	snprintf(wanted, sizeof(wanted), "towpoll/%d", (int)process);
	if (glob("/proc/[0-9]*/comm", 0, NULL, &all))
		return 0;
	for (i = 0; !found && i < all.gl_pathc; i++) {
		tow_test_read_line(all.gl_pathv[i], name, sizeof(name));
		if (!strcmp(name, wanted))
			found = atoi(all.gl_pathv[i] + strlen("/proc/"));
	}
	globfree(&all);
	return found;
}

/* Its poller, if it had one, ends before long: a thread that was waited for is in /proc still. */
static inline bool tow_poller_ends(pid_t process)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);

	while (tow_poller_of(process)) {
		if (!tow_patient(&patience))
			return false;
		tow_test_sleep_ms(1);
	}
	return true;
}

/* 'R', 'I' (sleeps, and is no load), …; 0: there is none. */
static inline char tow_poller_state(pid_t poller)
{
	char path[64], line[512], *at;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)poller);
	tow_test_read_line(path, line, sizeof(line));
	at = strrchr(line, ')');
	return at && at[1] ? at[2] : 0;
}

/* How often it was switched to another thread, of its own accord or not. */
static inline unsigned long tow_poller_switches(pid_t poller)
{
	unsigned long number, switches = 0;
	char path[64], line[128];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)poller);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "voluntary_ctxt_switches: %lu", &number) == 1 ||
		    sscanf(line, "nonvoluntary_ctxt_switches: %lu", &number) == 1)
			switches += number;
	if (file)
		fclose(file);
	return switches;
}

/* It has said that it sleeps, and does. */
static inline bool tow_poller_sleeps(const struct tow_rings *rings, pid_t poller)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);

	while (tow_patient(&patience)) {
		if (tow_rings_need_wakeup(rings) && tow_poller_state(poller) == 'I')
			return true;
		tow_test_sleep_ms(1);
	}
	return false;
}

#endif /* TOW_POLLER_H */

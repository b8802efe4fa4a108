/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the kernel tells udev of towline's devices.
 */
#ifndef TOW_UEVENT_H
#define TOW_UEVENT_H

#include <linux/netlink.h>
#include <sys/socket.h>
#include "tow_test.h"

/* What is told from now on; or a negative errno. */
static inline int tow_uevent_open(void)
{
	struct sockaddr_nl address = { .nl_family = AF_NETLINK, .nl_groups = 1 };
	int room = 4 << 20;
	int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
			NETLINK_KOBJECT_UEVENT);

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room));
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)))
		return -errno;
	return fd;
}

/* Is "KEY=VALUE" one of the words of an event? */
static inline bool tow_uevent_has(const char *event, size_t bytes, const char *word)
{
	const char *at;

	for (at = event; at < event + bytes; at += strlen(at) + 1) {
		if (!strcmp(at, word))
			return true;
	}
	return false;
}

/* Does an event say that it is towline's, this, and of this file; NULL: of none? */
static inline bool tow_uevent_is(const char *event, size_t bytes, const char *what,
				 const char *file)
{
	char word[128];

	snprintf(word, sizeof(word), "TOWLINE_EVENT=%s", what);
	if (!tow_uevent_has(event, bytes, "SUBSYSTEM=towline") ||
	    !tow_uevent_has(event, bytes, "ACTION=change") || !tow_uevent_has(event, bytes, word))
		return false;
	snprintf(word, sizeof(word), "TOWLINE_FILE=%s", file ? file : "");
	return file ? tow_uevent_has(event, bytes, word) : !memmem(event, bytes, "TOWLINE_FILE", 12);
}

/* How many such events have come; reads all there are. */
static inline int tow_uevent_count(int fd, const char *what, const char *file)
{
	char event[4096];
	ssize_t got;
	int count = 0;

	while ((got = recv(fd, event, sizeof(event) - 1, 0)) > 0) {
		event[got] = '\0';
		count += tow_uevent_is(event, (size_t)got, what, file);
	}
	return count;
}

/* Such an event comes, sooner or later. */
static inline bool tow_uevent_wait(int fd, const char *what, const char *file)
{
	struct tow_patience patience = tow_patience(20.0);

	while (!tow_uevent_count(fd, what, file)) {
		if (!tow_patient(&patience))
			return false;
		tow_test_sleep_ms(20);
	}
	return true;
}

#endif /* TOW_UEVENT_H */

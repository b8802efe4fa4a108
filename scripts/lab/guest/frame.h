/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Frames between a guest's agent, the host, and programs that ask the host for
 * something: a type, a channel number and a length, then the payload.
 */
#ifndef LAB_FRAME_H
#define LAB_FRAME_H

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Where the agent listens. */
#define LAB_SOCK_PATH	"/run/towlab/sock"
#define LAB_MAX_PAYLOAD	(1u << 20)

struct lab_frame {
	uint8_t type;
	uint32_t chan;
	uint32_t len;
} __attribute__((packed));

static inline void lab_write(int fd, const void *buf, size_t len)
{
	const char *p = buf;

	while (len) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
			struct pollfd pfd = { fd, POLLOUT, 0 };

			poll(&pfd, 1, 1000);
			continue;
		}
		if (n <= 0)
			return;
		p += n;
		len -= (size_t)n;
	}
}

static inline bool lab_read(int fd, void *buf, size_t len)
{
	char *p = buf;

	while (len) {
		ssize_t n = read(fd, p, len);

		if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
			struct pollfd pfd = { fd, POLLIN, 0 };

			poll(&pfd, 1, 1000);
			continue;
		}
		if (n <= 0)
			return false;
		p += n;
		len -= (size_t)n;
	}
	return true;
}

static inline void lab_send(int fd, uint8_t type, uint32_t chan, const void *buf, uint32_t len)
{
	struct lab_frame f = { type, chan, len };

	lab_write(fd, &f, sizeof(f));
	lab_write(fd, buf, len);
}

/* -1 with errno where no agent listens, as outside the lab. */
static inline int lab_connect(void)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX, .sun_path = LAB_SOCK_PATH };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), error;

	if (fd < 0 || !connect(fd, (struct sockaddr *)&addr, sizeof(addr)))
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

#endif /* LAB_FRAME_H */

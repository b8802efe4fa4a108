// SPDX-License-Identifier: GPL-2.0
/*
 * lab-switch: the private Ethernet segment between lab guests.
 *
 *	lab-switch SOCKET
 *
 * Guests connect to SOCKET with QEMU's stream netdev: each frame is preceded
 * by its length, 32 bits big endian.  It learns addresses, floods what it does
 * not know, and drops what would take a port's backlog past MAX_BACKLOG (far
 * above what RC's window can have in flight).
 *
 * Guests are known by the last byte of their MAC address (node + 1).  Lines on
 * stdin, each answered by "ok":
 *
 *	cut NODE	nothing passes to or from NODE, silently: carrier stays
 *	heal NODE
 *	stats		one line per port, then ok
 *
 * It ends at the end of stdin, and so with whoever started it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>
#include <arpa/inet.h>

#define MAX_PORTS	64
#define MAX_NODES	254
#define MAX_FRAME	(65536 + 4096)
#define MAX_BACKLOG	(32u << 20)

struct port {
	int fd;				/* -1: free */
	int node;			/* -1 until its first frame */
	uint8_t in[2 * (MAX_FRAME + 4)];
	size_t nin;
	uint8_t *out;			/* backlog, a plain buffer */
	size_t nout, done, cap;
	unsigned long frames, dropped;
};

static struct port ports[MAX_PORTS];
static bool cut[MAX_NODES + 1];

static void port_close(struct port *p)
{
	close(p->fd);
	free(p->out);
	p->out = NULL;
	p->nout = p->done = p->cap = p->nin = 0;
	p->fd = -1;
}

static void port_flush(struct port *p)
{
	while (p->done < p->nout) {
		ssize_t n = write(p->fd, p->out + p->done, p->nout - p->done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0)
			break;	/* the reader notices and closes */
		p->done += n;
	}
	p->done = p->nout = 0;
}

static void port_queue(struct port *p, const uint8_t *buf, size_t len)
{
	if (p->nout - p->done + len > MAX_BACKLOG) {
		p->dropped++;
		return;
	}
	if (p->nout + len > p->cap) {
		memmove(p->out, p->out + p->done, p->nout - p->done);
		p->nout -= p->done;
		p->done = 0;
		if (p->nout + len > p->cap) {
			size_t cap = 2 * (p->nout + len);
			uint8_t *out = realloc(p->out, cap);

			if (!out) {
				p->dropped++;
				return;
			}
			p->out = out;
			p->cap = cap;
		}
	}
	memcpy(p->out + p->nout, buf, len);
	p->nout += len;
	p->frames++;
}

static void port_send(struct port *p, const uint8_t *buf, size_t len)
{
	size_t n = 0;

	if (!p->nout) {
		ssize_t r = write(p->fd, buf, len);

		n = r > 0 ? r : 0;
		if (n == len) {
			p->frames++;
			return;
		}
		if (n) {	/* the rest of a frame must follow */
			port_queue(p, buf + n, len - n);
			return;
		}
	}
	port_queue(p, buf, len);
}

static bool is_cut(struct port *p)
{
	return p->node >= 0 && p->node <= MAX_NODES && cut[p->node];
}

/* buf: length, then the frame. */
static void forward(struct port *from, const uint8_t *buf, size_t len)
{
	const uint8_t *dst = buf + 4, *src = buf + 10;
	bool group = dst[0] & 1;
	int to = dst[5] - 1;

	from->node = src[5] - 1;
	if (is_cut(from))
		return;
	for (int i = 0; i < MAX_PORTS; i++) {
		struct port *p = &ports[i];

		if (p->fd < 0 || p == from || is_cut(p))
			continue;
		if (group || p->node < 0 || p->node == to)
			port_send(p, buf, len);
	}
}

static void port_read(struct port *p)
{
	ssize_t n = read(p->fd, p->in + p->nin, sizeof(p->in) - p->nin);
	size_t at = 0;

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n <= 0) {
		port_close(p);
		return;
	}
	p->nin += n;
	while (p->nin - at >= 4) {
		uint32_t len;

		memcpy(&len, p->in + at, 4);
		len = ntohl(len);
		if (len > MAX_FRAME) {
			port_close(p);
			return;
		}
		if (p->nin - at < len + 4)
			break;
		if (len >= 14)
			forward(p, p->in + at, len + 4);
		at += len + 4;
	}
	memmove(p->in, p->in + at, p->nin - at);
	p->nin -= at;
}

static void port_accept(int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	int size = 4 << 20;

	if (fd < 0)
		return;
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	for (int i = 0; i < MAX_PORTS; i++) {
		if (ports[i].fd >= 0)
			continue;
		ports[i].fd = fd;
		ports[i].node = -1;
		ports[i].frames = ports[i].dropped = 0;
		return;
	}
	close(fd);
}

static void command(char *line)
{
	int node;

	if (sscanf(line, "cut %d", &node) == 1 && node >= 0 && node <= MAX_NODES) {
		cut[node] = true;
	} else if (sscanf(line, "heal %d", &node) == 1 && node >= 0 &&
		   node <= MAX_NODES) {
		cut[node] = false;
	} else if (!strcmp(line, "stats")) {
		for (int i = 0; i < MAX_PORTS; i++)
			if (ports[i].fd >= 0)
				printf("node %d frames %lu dropped %lu\n", ports[i].node,
				       ports[i].frames, ports[i].dropped);
	} else {
		printf("error unknown command\n");
		fflush(stdout);
		return;
	}
	printf("ok\n");
	fflush(stdout);
}

static void commands_readable(void)
{
	static char buf[4096];
	static size_t len;
	ssize_t n = read(0, buf + len, sizeof(buf) - 1 - len);
	char *nl;

	if (n <= 0)
		exit(0);
	len += n;
	buf[len] = 0;
	while ((nl = strchr(buf, '\n'))) {
		*nl = 0;
		command(buf);
		len -= nl + 1 - buf;
		memmove(buf, nl + 1, len + 1);
	}
	if (len == sizeof(buf) - 1)
		len = 0;
}

int main(int argc, char **argv)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct pollfd pfd[2 + MAX_PORTS];
	struct port *owner[2 + MAX_PORTS];
	int listener;

	if (argc != 2 || strlen(argv[1]) >= sizeof(addr.sun_path)) {
		fprintf(stderr, "usage: lab-switch SOCKET\n");
		return 2;
	}
	/* A guest may be killed while frames are on their way to it. */
	signal(SIGPIPE, SIG_IGN);
	memcpy(addr.sun_path, argv[1], strlen(argv[1]) + 1);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (listener < 0 || bind(listener, (void *)&addr, sizeof(addr)) < 0 ||
	    listen(listener, 16) < 0) {
		perror("lab-switch");
		return 1;
	}
	for (int i = 0; i < MAX_PORTS; i++)
		ports[i].fd = -1;
	printf("ok\n");
	fflush(stdout);
	for (;;) {
		int n = 0;

		pfd[n++] = (struct pollfd){ listener, POLLIN, 0 };
		pfd[n++] = (struct pollfd){ 0, POLLIN, 0 };
		for (int i = 0; i < MAX_PORTS; i++) {
			if (ports[i].fd < 0)
				continue;
			owner[n] = &ports[i];
			pfd[n++] = (struct pollfd){ ports[i].fd, POLLIN |
				(ports[i].nout ? POLLOUT : 0), 0 };
		}
		if (poll(pfd, n, -1) < 0)
			continue;
		for (int i = 2; i < n; i++) {
			if (owner[i]->fd >= 0 && (pfd[i].revents & POLLOUT))
				port_flush(owner[i]);
			if (owner[i]->fd >= 0 && (pfd[i].revents & ~POLLOUT))
				port_read(owner[i]);
		}
		if (pfd[0].revents)
			port_accept(listener);
		if (pfd[1].revents)
			commands_readable();
	}
}

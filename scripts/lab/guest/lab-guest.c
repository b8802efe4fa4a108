// SPDX-License-Identifier: GPL-2.0
/*
 * lab-guest: what a lab guest runs besides the kernel.
 *
 *	agent		process 1: runs commands for the host over a
 *			virtio-serial port, reaps orphans
 *	once		before that: has the kernel do what it does at the first use of
 *			a socket
 *	lab-exec	NODE CMD...: run CMD on another node, as ssh would
 *	lab-ctl		ARGS...: scripts/lab/ctl from inside a guest
 *
 * The console carries only the kernel's words, so commands and results have
 * a channel of their own.  It carries frames (frame.h).
 *
 * Host to guest:  E exec, I stdin, C end of stdin, K signal, L kernel log line
 * Guest to host:  H hello, O stdout, R stderr, X exit status
 * A program in the guest that asks the host for something (Q) has a channel
 * with LOCAL set, on which the same letters run the other way.  D says that
 * it went away.
 *
 * Single-threaded.  Writing to the port may block: the host always reads.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/udp.h>

#include "frame.h"

#define PORT_NAME	"towline.lab"
#define LOCAL		0x80000000u
#define CHUNK		65536
#define MAX_SESSIONS	256

/* A command run for the host, or (pid 0) a client's request to it. */
struct session {
	bool used;
	uint32_t chan;
	pid_t pid;		/* group leader; 0 for a client */
	bool exited;
	bool pty;
	int status;
	int in, out, err;	/* a client has only in == out, its socket */
	char *pending;		/* stdin not yet taken */
	size_t npending;
	bool in_eof;
};

static struct session sessions[MAX_SESSIONS];
static int port = -1;

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "lab-guest: %s: %s\n", what, strerror(errno));
	exit(125);
}

/* ------------------------------------------------------------- sessions */

static struct session *session_new(uint32_t chan)
{
	for (int i = 0; i < MAX_SESSIONS; i++) {
		struct session *s = &sessions[i];

		if (s->used)
			continue;
		memset(s, 0, sizeof(*s));
		s->used = true;
		s->chan = chan;
		s->in = s->out = s->err = -1;
		return s;
	}
	return NULL;
}

static struct session *session_find(uint32_t chan)
{
	for (int i = 0; i < MAX_SESSIONS; i++)
		if (sessions[i].used && sessions[i].chan == chan)
			return &sessions[i];
	return NULL;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void session_free(struct session *s)
{
	if (s->in == s->out)
		s->in = -1;
	close_fd(&s->in);
	close_fd(&s->out);
	close_fd(&s->err);
	free(s->pending);
	s->used = false;
}

/* Pass on what a stream holds; close it at its end. */
static void session_drain(struct session *s, int *fd, uint8_t type)
{
	static char buf[CHUNK];
	ssize_t n;

	while (*fd >= 0) {
		n = read(*fd, buf, sizeof(buf));
		if (n > 0) {
			lab_send(port, type, s->chan, buf, n);
			continue;
		}
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (s->in == *fd)
			s->in = -1;
		close_fd(fd);	/* end of file; EIO from a pty */
	}
}

/*
 * A command has ended when its first process has: a daemon that it leaves
 * behind and that holds its output must not hang the test.
 */
static void session_finish(struct session *s)
{
	int32_t status = s->status;

	session_drain(s, &s->out, 'O');
	session_drain(s, &s->err, 'R');
	lab_send(port, 'X', s->chan, &status, sizeof(status));
	session_free(s);
}

static void session_feed(struct session *s)
{
	while (s->npending && s->in >= 0) {
		ssize_t n = write(s->in, s->pending, s->npending);

		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			s->npending = 0;
			break;
		}
		memmove(s->pending, s->pending + n, s->npending - n);
		s->npending -= n;
	}
	if (s->in_eof && !s->npending && s->in != s->out)
		close_fd(&s->in);
}

static void session_stdin(struct session *s, const char *buf, size_t len)
{
	char *p = realloc(s->pending, s->npending + len + 1);

	if (!p)
		return;
	s->pending = p;
	memcpy(p + s->npending, buf, len);
	s->npending += len;
	session_feed(s);
}

/* ------------------------------------------------------------- commands */

static char *next_string(char **p, char *end)
{
	char *s = *p, *nul = memchr(s, 0, end - s);

	if (!nul)
		return NULL;
	*p = nul + 1;
	return s;
}

static void child_exec(const char *cwd, char **env, char **argv)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	if (chdir(cwd) < 0) {
		fprintf(stderr, "lab: cannot enter %s: %s\n", cwd, strerror(errno));
		_exit(126);
	}
	environ = env;
	execvp(argv[0], argv);
	fprintf(stderr, "lab: cannot run %s: %s\n", argv[0], strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

static int spawn_pipes(struct session *s, const char *cwd, char **env, char **argv)
{
	int in[2], out[2], err[2];

	if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 ||
	    pipe2(err, O_CLOEXEC) < 0)
		return -errno;
	s->pid = fork();
	if (s->pid < 0)
		return -errno;
	if (!s->pid) {
		setsid();
		dup2(in[0], 0);
		dup2(out[1], 1);
		dup2(err[1], 2);
		child_exec(cwd, env, argv);
	}
	close(in[0]);
	close(out[1]);
	close(err[1]);
	s->in = in[1];
	s->out = out[0];
	s->err = err[0];
	fcntl(s->in, F_SETFL, O_NONBLOCK);
	fcntl(s->out, F_SETFL, O_NONBLOCK);
	fcntl(s->err, F_SETFL, O_NONBLOCK);
	return 0;
}

static int spawn_pty(struct session *s, const char *cwd, char **env, char **argv,
		     struct winsize *ws)
{
	int master;

	s->pid = forkpty(&master, NULL, NULL, ws);
	if (s->pid < 0)
		return -errno;
	if (!s->pid)
		child_exec(cwd, env, argv);
	s->pty = true;
	s->in = s->out = master;
	fcntl(master, F_SETFL, O_NONBLOCK);
	fcntl(master, F_SETFD, FD_CLOEXEC);
	return 0;
}

/* Payload: "ROWS COLS" (0 0: no terminal), cwd, environment count, argument
 * count, then the strings, each ended by a NUL.
 */
static void command_start(uint32_t chan, char *buf, size_t len)
{
	char *p = buf, *end = buf + len, **strings, **argv;
	char *size = next_string(&p, end), *cwd = next_string(&p, end);
	char *nenv_s = next_string(&p, end), *narg_s = next_string(&p, end);
	unsigned int nenv, narg, rows = 0, cols = 0;
	int32_t status = 126 << 8;
	struct session *s = NULL;
	int ret = -EINVAL;

	if (!narg_s)
		goto refuse;
	nenv = strtoul(nenv_s, NULL, 10);
	narg = strtoul(narg_s, NULL, 10);
	if (!narg)
		goto refuse;
	strings = calloc(nenv + narg + 2, sizeof(*strings));
	if (!strings)
		goto refuse;
	argv = strings + nenv + 1;
	for (unsigned int i = 0; i < nenv; i++)
		strings[i] = next_string(&p, end);
	for (unsigned int i = 0; i < narg; i++)
		argv[i] = next_string(&p, end);
	s = session_new(chan);
	if (!s) {
		ret = -EMFILE;
		goto free_strings;
	}
	sscanf(size, "%u %u", &rows, &cols);
	if (rows) {
		struct winsize ws = { .ws_row = rows, .ws_col = cols };

		ret = spawn_pty(s, cwd, strings, argv, &ws);
	} else {
		ret = spawn_pipes(s, cwd, strings, argv);
	}
	if (ret)
		session_free(s);
free_strings:
	free(strings);
refuse:
	if (ret) {
		const char *why = strerror(-ret);

		lab_send(port, 'R', chan, why, strlen(why));
		lab_send(port, 'X', chan, &status, sizeof(status));
	}
}

static void signal_command(struct session *s, const char *buf, size_t len)
{
	int32_t sig = SIGKILL;

	if (len == sizeof(sig))
		memcpy(&sig, buf, sizeof(sig));
	if (s->pid > 0)
		kill(-s->pid, sig);
}

/* The host's markers: what a test did is told apart by them. */
static void log_line(const char *buf, size_t len)
{
	int fd = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	lab_write(fd, buf, len);
	close(fd);
}

/* A frame from the host. */
static void host_frame(struct lab_frame *f, char *buf)
{
	struct session *s = session_find(f->chan);

	if (f->type == 'E') {
		command_start(f->chan, buf, f->len);
		return;
	}
	if (f->type == 'L') {
		log_line(buf, f->len);
		return;
	}
	if (!s)
		return;		/* it ended while the frame was on its way */
	if (!s->pid) {		/* a client: pass it on */
		lab_send(s->in, f->type, f->chan, buf, f->len);
		if (f->type == 'X')
			session_free(s);
		return;
	}
	switch (f->type) {
	case 'I':
		session_stdin(s, buf, f->len);
		break;
	case 'C':
		s->in_eof = true;
		session_feed(s);
		break;
	case 'K':
		signal_command(s, buf, f->len);
		break;
	}
}

static void port_readable(void)
{
	static char buf[LAB_MAX_PAYLOAD];
	struct lab_frame f;

	if (!lab_read(port, &f, sizeof(f)) || f.len > LAB_MAX_PAYLOAD ||
	    !lab_read(port, buf, f.len)) {
		sleep(1);	/* the host is gone: wait for it to come back */
		return;
	}
	host_frame(&f, buf);
}

/* --------------------------------------------------------------- clients */

static void client_accept(int listener)
{
	static uint32_t next;
	struct session *s;
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		return;
	s = session_new(LOCAL | (next++ & 0x7fffffff));
	if (!s) {
		close(fd);
		return;
	}
	s->in = s->out = fd;
}

static void client_readable(struct session *s)
{
	static char buf[LAB_MAX_PAYLOAD];
	struct lab_frame f;

	if (!lab_read(s->in, &f, sizeof(f)) || f.len > LAB_MAX_PAYLOAD ||
	    !lab_read(s->in, buf, f.len)) {
		lab_send(port, 'D', s->chan, NULL, 0);
		session_free(s);
		return;
	}
	lab_send(port, f.type, s->chan, buf, f.len);
}

/* ----------------------------------------------------------------- agent */

static void reap(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		for (int i = 0; i < MAX_SESSIONS; i++)
			if (sessions[i].used && sessions[i].pid == pid) {
				sessions[i].status = status;
				session_finish(&sessions[i]);
			}
}

static int open_port(void)
{
	char path[512], name[64];
	struct dirent *d;
	DIR *dir;
	int fd;

	for (int tries = 0; tries < 200; tries++, usleep(50000)) {
		dir = opendir("/sys/class/virtio-ports");
		while (dir && (d = readdir(dir))) {
			ssize_t n;

			snprintf(path, sizeof(path),
				 "/sys/class/virtio-ports/%s/name", d->d_name);
			fd = open(path, O_RDONLY | O_CLOEXEC);
			if (fd < 0)
				continue;
			n = read(fd, name, sizeof(name) - 1);
			close(fd);
			name[n > 0 ? n : 0] = 0;
			if (strncmp(name, PORT_NAME, strlen(PORT_NAME)))
				continue;
			snprintf(path, sizeof(path), "/dev/%s", d->d_name);
			closedir(dir);
			return open(path, O_RDWR | O_CLOEXEC);
		}
		if (dir)
			closedir(dir);
	}
	errno = ENODEV;
	return -1;
}

static int open_listener(void)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX, .sun_path = LAB_SOCK_PATH };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	unlink(LAB_SOCK_PATH);
	if (fd < 0 || bind(fd, (void *)&addr, sizeof(addr)) < 0 || listen(fd, 64) < 0)
		die(LAB_SOCK_PATH);
	return fd;
}

static void agent_step(int listener, int sigfd)
{
	struct pollfd pfd[3 + 3 * MAX_SESSIONS];
	struct session *owner[3 + 3 * MAX_SESSIONS];
	struct signalfd_siginfo si;
	int n = 0;

	pfd[n++] = (struct pollfd){ port, POLLIN, 0 };
	pfd[n++] = (struct pollfd){ listener, POLLIN, 0 };
	pfd[n++] = (struct pollfd){ sigfd, POLLIN, 0 };
	for (int i = 0; i < MAX_SESSIONS; i++) {
		struct session *s = &sessions[i];

		if (!s->used)
			continue;
		for (int k = 0; k < 3; k++) {
			int fd = k == 0 ? s->out : k == 1 ? s->err : s->in;
			short ev = k == 2 ? POLLOUT : POLLIN;

			if (fd < 0 || (k == 2 && !s->npending))
				continue;
			owner[n] = s;
			pfd[n++] = (struct pollfd){ fd, ev, 0 };
		}
	}
	if (poll(pfd, n, -1) < 0)
		return;
	for (int i = 3; i < n; i++) {
		struct session *s = owner[i];

		if (!pfd[i].revents || !s->used)
			continue;
		if (!s->pid)
			client_readable(s);
		else if (pfd[i].events == POLLOUT)
			session_feed(s);
		else if (pfd[i].fd == s->out)
			session_drain(s, &s->out, 'O');
		else if (pfd[i].fd == s->err)
			session_drain(s, &s->err, 'R');
	}
	if (pfd[1].revents)
		client_accept(listener);
	if (pfd[2].revents && read(sigfd, &si, sizeof(si)) > 0)
		reap();
	if (pfd[0].revents)
		port_readable();
}

/*
 * Have the kernel's UDP receive path patched once, now, while nobody runs there.
 * It is patched whenever the first tunnel over UDP comes or the last one goes,
 * and soft-RoCE's is one: beside traffic, QEMU 7.2 may emulate an int3 that is no
 * longer there, and the guest oopses.  A socket that stays keeps the path as it is.
 */
static void hold_udp_path(void)
{
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0), type = UDP_ENCAP_L2TPINUDP;

	if (fd < 0 || setsockopt(fd, IPPROTO_UDP, UDP_ENCAP, &type, sizeof(type)))
		fprintf(stderr, "lab-guest: UDP_ENCAP: %s\n", strerror(errno));
}

static bool loopback_up(void)
{
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	bool up = fd >= 0 && !ioctl(fd, SIOCSIFFLAGS, &lo);

	close(fd);
	return up;
}

/* A socket is connected to another one, and sends to it. */
static bool meet(int family, int type)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} to = { .any.sa_family = family };
	socklen_t size = family == AF_INET ? sizeof(to.v4) : sizeof(to.v6);
	int one = socket(family, type, 0), other = socket(family, type, 0);
	bool met;

	if (family == AF_INET)
		to.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else
		to.v6.sin6_addr = in6addr_loopback;
	met = one >= 0 && other >= 0 && !bind(one, &to.any, size) &&
	      !getsockname(one, &to.any, &size) &&
	      (type != SOCK_STREAM || !listen(one, 1)) &&
	      !connect(other, &to.any, size) && send(other, "", 1, 0) == 1;
	close(one);
	close(other);
	return met;
}

/*
 * The first sockets of a kind have the kernel draw secrets, and patch the code that
 * asks whether there are any; which must not be beside traffic, see above.  So it is
 * done here, while one processor runs.
 */
static int once(void)
{
	static const int families[] = { AF_INET, AF_INET6 };
	bool good = loopback_up();

	for (int i = 0; i < 2; i++)
		good = meet(families[i], SOCK_STREAM) && meet(families[i], SOCK_DGRAM) && good;
	/* Work items patch. */
	usleep(100000);
	if (!good)
		fprintf(stderr, "lab-guest: sockets do not meet: %s\n", strerror(errno));
	return !good;
}

static _Noreturn void agent(void)
{
	sigset_t set;
	int sigfd, listener;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	sigfd = signalfd(-1, &set, SFD_CLOEXEC);
	port = open_port();
	if (port < 0)
		die("no port to the host");	/* the kernel panics: no init */
	listener = open_listener();
	hold_udp_path();
	lab_send(port, 'H', 0, "", 0);
	for (;;)
		agent_step(listener, sigfd);
}

/* --------------------------------------------------- lab-exec and lab-ctl */

static int exit_code(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int client(const char *verb, int argc, char **argv)
{
	static char buf[LAB_MAX_PAYLOAD];
	struct pollfd pfd[2];
	int fd = lab_connect(), status;
	char *cwd = getcwd(NULL, 0);
	size_t len = 0;
	struct lab_frame f;
	ssize_t n;

	if (fd < 0)
		die("this is not a lab guest (" LAB_SOCK_PATH ")");
	len += snprintf(buf, sizeof(buf), "%s", verb) + 1;
	len += snprintf(buf + len, sizeof(buf) - len, "%s", cwd ? cwd : "/") + 1;
	for (int i = 1; i < argc; i++) {
		size_t need = strlen(argv[i]) + 1;

		if (len + need > sizeof(buf)) {
			errno = E2BIG;
			die(verb);
		}
		memcpy(buf + len, argv[i], need);
		len += need;
	}
	lab_send(fd, 'Q', 0, buf, len);
	pfd[0] = (struct pollfd){ fd, POLLIN, 0 };
	pfd[1] = (struct pollfd){ 0, POLLIN, 0 };
	for (;;) {
		if (poll(pfd, 2, -1) < 0)
			continue;
		if (pfd[1].revents) {
			n = read(0, buf, CHUNK);
			/* It may have been answered already, and need no input. */
			signal(SIGPIPE, SIG_IGN);
			lab_send(fd, n > 0 ? 'I' : 'C', 0, buf, n > 0 ? n : 0);
			signal(SIGPIPE, SIG_DFL);
			if (n <= 0)
				pfd[1].fd = -1;
		}
		if (!pfd[0].revents)
			continue;
		if (!lab_read(fd, &f, sizeof(f)) || f.len > LAB_MAX_PAYLOAD ||
		    !lab_read(fd, buf, f.len)) {
			errno = ECONNRESET;
			die("the host went away");
		}
		if (f.type == 'O')
			lab_write(1, buf, f.len);
		else if (f.type == 'R')
			lab_write(2, buf, f.len);
		else if (f.type == 'X' && f.len == sizeof(status)) {
			memcpy(&status, buf, sizeof(status));
			return exit_code(status);
		}
	}
}

int main(int argc, char **argv)
{
	const char *name = strrchr(argv[0], '/');

	name = name ? name + 1 : argv[0];
	if (!strcmp(name, "lab-exec")) {
		if (argc < 3) {
			fprintf(stderr, "usage: lab-exec NODE CMD...\n");
			return 2;
		}
		return client("exec", argc, argv);
	}
	if (!strcmp(name, "lab-ctl"))
		return client("ctl", argc, argv);
	if (argc == 2 && !strcmp(argv[1], "agent"))
		agent();
	if (argc == 2 && !strcmp(argv[1], "once"))
		return once();
	fprintf(stderr, "usage: lab-guest agent | lab-guest once | lab-exec NODE CMD... | lab-ctl ARGS...\n");
	return 2;
}

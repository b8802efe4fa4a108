// SPDX-License-Identifier: GPL-2.0
/*
 * How long it takes from the death of a process until another one has its persistent
 * region: killed, waited for, taken over, destroyed, so many times.
 *
 *	region_attach DEVICE MIB ROUNDS
 *
 * Prints the median, the 99th percentile and the mean in microseconds.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sample.h"
#include "uapi/towline.h"

#define NAME	"bench-attach"

static void __attribute__((noreturn)) die(const char *what)
{
	perror(what);
	exit(1);
}

static int client_open(const char *device)
{
	char path[100];
	int fd;

	snprintf(path, sizeof(path), "/dev/towline/%s", device);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		die(path);
	return fd;
}

/* The region's first owner: says when it has touched all of it. */
static void __attribute__((noreturn)) own(const char *device, unsigned long bytes, int said)
{
	struct tow_region_create made = {
		.size = sizeof(made), .flags = TOW_REGION_PERSISTENT, .bytes = bytes,
		.name = NAME,
	};
	void *memory;

	if (ioctl(client_open(device), TOW_IOCTL_REGION_CREATE, &made))
		die("TOW_IOCTL_REGION_CREATE");
	memory = mmap(NULL, made.map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, made.fd, 0);
	if (memory == MAP_FAILED)
		die("mmap");
	memset(memory, 1, bytes);
	if (write(said, "", 1) != 1)
		die("write");
	for (;;)
		pause();
}

static void take_over(int client)
{
	struct tow_region_attach made = { .size = sizeof(made), .name = NAME };
	struct tow_region_destroy destroy = { .size = sizeof(destroy) };

	while (ioctl(client, TOW_IOCTL_REGION_ATTACH, &made)) {
		if (errno != EBUSY)
			die("TOW_IOCTL_REGION_ATTACH");
		usleep(50);
	}
	close(made.fd);
	destroy.handle = made.handle;
	if (ioctl(client, TOW_IOCTL_REGION_DESTROY, &destroy))
		die("TOW_IOCTL_REGION_DESTROY");
}

static double once(int client, const char *device, unsigned long bytes)
{
	double before;
	int said[2];
	char byte;
	pid_t pid;

	if (pipe(said))
		die("pipe");
	pid = fork();
	if (pid < 0)
		die("fork");
	if (!pid)
		own(device, bytes, said[1]);
	close(said[1]);
	if (read(said[0], &byte, 1) != 1)
		die("the owner");
	close(said[0]);
	before = now_us();
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	take_over(client);
	return now_us() - before;
}

int main(int argc, char **argv)
{
	unsigned long rounds = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
	double *sample;
	int client;

	if (!rounds) {
		fputs("usage: region_attach DEVICE MIB ROUNDS\n", stderr);
		return 2;
	}
	sample = calloc(rounds, sizeof(*sample));
	if (!sample)
		die("memory");
	client = client_open(argv[1]);
	for (unsigned long i = 0; i < rounds; i++)
		sample[i] = once(client, argv[1], strtoul(argv[2], NULL, 10) << 20);
	report(sample, rounds);
	free(sample);
	return 0;
}

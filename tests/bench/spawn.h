/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How long a process takes from its exec until it says that it is done: it
 * writes one byte to a descriptor whose number it is given.
 */
#ifndef TOW_SPAWN_H
#define TOW_SPAWN_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "work.h"

/* What comes behind it is the descriptor's number. */
#define SPAWN_OPTION	"-c"

static inline void __attribute__((noreturn)) spawn_exec(char **argv, int fd)
{
	char number[16];
	int last = 0;

	while (argv[last])
		last++;
	/* The caller has left room for two more. */
	snprintf(number, sizeof(number), "%d", fd);
	argv[last] = (char *)SPAWN_OPTION;
	argv[last + 1] = number;
	execv(argv[0], argv);
	die(argv[0], errno);
}

/*
 * Microseconds until it was done.  @argv ends with three times NULL.
 */
static inline double spawn_once(char **argv)
{
	double before, after;
	int ends[2], status;
	char byte;
	pid_t child;

	if (pipe(ends))
		die("pipe", errno);
	before = now_us();
	child = fork();
	if (child < 0)
		die("fork", errno);
	if (!child) {
		close(ends[0]);
		spawn_exec(argv, ends[1]);
	}
	close(ends[1]);
	if (read(ends[0], &byte, 1) != 1)
		die(argv[0], EPIPE);
	after = now_us();
	close(ends[0]);
	if (waitpid(child, &status, 0) != child || status)
		die(argv[0], ECHILD);
	return after - before;
}

/* Run it so often, after one time that does not count, and report. */
static inline void spawn_report(char **argv, uint32_t count)
{
	double *sample = calloc(count, sizeof(*sample));

	if (!sample)
		die("memory", ENOMEM);
	spawn_once(argv);
	for (uint32_t i = 0; i < count; i++)
		sample[i] = spawn_once(argv);
	report(sample, count);
	free(sample);
}

/* In the child. */
static inline void spawn_done(int fd)
{
	char byte = 0;

	if (write(fd, &byte, 1) != 1)
		die("pipe", errno);
}

#endif /* TOW_SPAWN_H */

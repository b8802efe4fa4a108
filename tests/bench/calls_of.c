// SPDX-License-Identifier: GPL-2.0
/*
 * How many system calls one operation of a bench program takes.
 *
 *	calls_of COUNT PROGRAM ARGS...
 *
 * Runs PROGRAM ARGS -n COUNT, and with twice as many, each with all its calls counted;
 * the difference is those of COUNT operations, without what it takes to start, which
 * is a call more or less each time: so the answer may be a little below 0, too.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGS_MAX	64

static void __attribute__((noreturn)) die(const char *what)
{
	fprintf(stderr, "calls_of: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void __attribute__((noreturn)) be_program(char **argv)
{
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		die("ptrace");
	raise(SIGSTOP);
	execv(argv[0], argv);
	die(argv[0]);
}

/* Until it has exited; the program is one thread. */
static unsigned long count_calls(pid_t child)
{
	unsigned long stops = 0;
	int status, number;

	for (;;) {
		if (waitpid(child, &status, 0) != child)
			die("wait");
		if (WIFEXITED(status) && !WEXITSTATUS(status))
			return stops / 2;
		if (!WIFSTOPPED(status)) {
			errno = ECHILD;
			die("the program");
		}
		number = WSTOPSIG(status);
		if (number == (SIGTRAP | 0x80))
			stops++;
		if (number == SIGSTOP &&
		    ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_TRACESYSGOOD))
			die("ptrace");
		number = number == SIGSTOP || (number & ~0x80) == SIGTRAP ? 0 : number;
		if (ptrace(PTRACE_SYSCALL, child, NULL, (long)number))
			die("ptrace");
	}
}

static unsigned long run(char **argv)
{
	pid_t child = fork();

	if (child < 0)
		die("fork");
	if (!child)
		be_program(argv);
	return count_calls(child);
}

int main(int argc, char **argv)
{
	static char option[] = "-n";
	unsigned long count = argc > 2 ? strtoul(argv[1], NULL, 10) : 0, once, twice;
	char *args[ARGS_MAX], number[32];

	if (!count || argc + 1 > ARGS_MAX) {
		fputs("usage: calls_of COUNT PROGRAM ARGS...\n", stderr);
		return 2;
	}
	memcpy(args, argv + 2, (size_t)(argc - 2) * sizeof(*args));
	args[argc - 2] = option;
	args[argc - 1] = number;
	args[argc] = NULL;
	snprintf(number, sizeof(number), "%lu", count);
	once = run(args);
	snprintf(number, sizeof(number), "%lu", 2 * count);
	twice = run(args);
	printf("calls_once %lu calls_twice %lu calls_per_operation %.4f\n", once, twice,
	       ((double)twice - (double)once) / (double)count);
	return 0;
}

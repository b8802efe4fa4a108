// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * towline top: every interval something is shown, until a signal comes or it was
 * often enough.
 *
 * A signal may come at any moment, also while a call of the library waits for a peer,
 * which it ends.  One that comes just before top_next() sleeps is not overlooked: it
 * is let in only while ppoll() waits.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "top.h"

#define NS_PER_S 1000000000ULL

static volatile sig_atomic_t stopped;

static void note_signal(int number)
{
	(void)number;
	stopped = 1;
}

static int ends(void *arg)
{
	(void)arg;
	return stopped;
}

uint64_t top_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

void top_begin(struct top_pace *pace)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };
	/* Without SA_RESTART: the library asks whether it ends a wait. */
	struct sigaction action = { .sa_handler = note_signal };

	sigemptyset(&action.sa_mask);
	for (size_t i = 0; i < COUNT(numbers); i++)
		sigaction(numbers[i], &action, NULL);
	tow_on_signal(ends, NULL);
	pace->next_ns = top_now_ns() + pace->interval_ns;
	pace->shown = 0;
}

bool top_stopped(void)
{
	return stopped;
}

bool top_next(struct top_pace *pace)
{
	uint64_t now = top_now_ns(), left;
	struct timespec wait;
	sigset_t all, before;

	/* Whoever was late does not hurry afterwards. */
	if (now >= pace->next_ns + pace->interval_ns)
		pace->next_ns = now;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	while (!stopped && (now = top_now_ns()) < pace->next_ns) {
		left = pace->next_ns - now;
		wait.tv_sec = (time_t)(left / NS_PER_S);
		wait.tv_nsec = (long)(left % NS_PER_S);
		ppoll(NULL, 0, &wait, &before);
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	pace->next_ns += pace->interval_ns;
	return !stopped;
}

int top_gone(int error)
{
	return error == -ENOENT || error == -ENOPKG ? -ENODEV : error;
}

bool top_show(struct top_pace *pace, struct json_object *answer,
	      void (*print)(struct json_object *answer))
{
	if (pace->json) {
		puts(json_object_to_json_string_ext(answer, JSON_C_TO_STRING_PLAIN |
							    JSON_C_TO_STRING_NOSLASHESCAPE));
	} else {
		if (isatty(STDOUT_FILENO))
			fputs("\033[H\033[J", stdout);
		else if (pace->shown)
			putchar('\n');
		print(answer);
	}
	json_object_put(answer);
	pace->shown++;
	return !fflush(stdout) && pace->shown != pace->count;
}

const char *top_bytes_words(struct json_object *object, const char *key, char text[SIZE_TEXT])
{
	struct json_object *value = json_object_object_get(object, key);

	if (!value)
		return "-";
	return size_words(json_object_get_uint64(value), text);
}

const char *top_rate_words(struct json_object *object, const char *key, char text[SIZE_TEXT])
{
	struct json_object *value = json_object_object_get(object, key);

	if (!value)
		return "-";
	snprintf(text, SIZE_TEXT, "%.0f", json_object_get_double(value));
	return text;
}

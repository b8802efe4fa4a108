// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Signals that come while a call waits.
 *
 * The call goes on when the signal's handler has run, until its own time is over: a
 * profiler's clock, or a child that has ended, is no reason to fail.  A program that wants
 * to stop says so to tow_on_signal().
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "internal.h"

/* What a thread has said: not a thread-local variable, which would need one more library. */
struct asked {
	tow_on_signal_fn *ends;
	void *arg;
};

static pthread_key_t key;
static bool has_key;

static void make_key(void)
{
	has_key = !pthread_key_create(&key, free);
}

static struct asked *asked_of_thread(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, make_key);
	return has_key ? pthread_getspecific(key) : NULL;
}

/* The key has it: GCC 12's analyzer does not know that pthread_setspecific() keeps a pointer. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
TOW_PUBLIC int tow_on_signal(tow_on_signal_fn *ends, void *arg)
{
	struct asked *asked = asked_of_thread();

	if (!asked && ends) {
		asked = malloc(sizeof(*asked));
		if (!asked || !has_key || pthread_setspecific(key, asked)) {
			free(asked);
			return -ENOMEM;
		}
	}
	if (asked)
		*asked = (struct asked){ .ends = ends, .arg = arg };
	return 0;
}
#pragma GCC diagnostic pop

bool towi_goes_on(void)
{
	const struct asked *asked = asked_of_thread();

	return !asked || !asked->ends || !asked->ends(asked->arg);
}

int towi_call_for(const struct tow_device *dev, unsigned long command, void *arg,
		  uint32_t *timeout_ms)
{
	uint64_t until = towi_until_ms(*timeout_ms);
	int ret;

	while ((ret = towi_call(dev, command, arg)) == -EINTR && towi_goes_on())
		if (*timeout_ms)
			*timeout_ms = towi_left_ms(until);
	return ret;
}

// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Signals that come while a call waits.
 *
 * The call goes on when the signal's handler has run, until its own time is over: a
 * profiler's clock, or a child that has ended, is no reason to fail.  A program that wants
 * to stop says so to tow_on_signal().
 */
#include <errno.h>

#include "internal.h"

static _Thread_local tow_on_signal_fn *asked;
static _Thread_local void *asked_arg;

TOW_PUBLIC void tow_on_signal(tow_on_signal_fn *ends, void *arg)
{
	asked = ends;
	asked_arg = arg;
}

bool towi_goes_on(void)
{
	return !asked || !asked(asked_arg);
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

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Doing something that makes no system call, and finding out whether it did: while it
 * is at it each call is a signal instead (syscall user dispatch).
 */
#ifndef TOW_MUTE_H
#define TOW_MUTE_H

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <linux/prctl.h>

static volatile char tow_mute_filter = SYSCALL_DISPATCH_FILTER_ALLOW;
static volatile int tow_mute_heard;

/* From here on they are allowed, or returning would be one. */
static inline void tow_mute_hear(int number)
{
	(void)number;
	tow_mute_heard++;
	tow_mute_filter = SYSCALL_DISPATCH_FILTER_ALLOW;
}

/* From here on, in this thread: 0 or a negative errno. */
static inline int tow_mute_begin(void)
{
	struct sigaction action = { .sa_handler = tow_mute_hear };

	tow_mute_heard = 0;
	if (sigaction(SIGSYS, &action, NULL) ||
	    prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, 0, &tow_mute_filter))
		return -errno;
	tow_mute_filter = SYSCALL_DISPATCH_FILTER_BLOCK;
	return 0;
}

/* 0: nothing was called; a negative errno. */
static inline int tow_mute_end(void)
{
	tow_mute_filter = SYSCALL_DISPATCH_FILTER_ALLOW;
	if (prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0))
		return -errno;
	return tow_mute_heard;
}

#endif /* TOW_MUTE_H */

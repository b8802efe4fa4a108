/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Having somebody wait at one of towline's functions: tow_halt.ko.
 */
#ifndef TOW_HALT_H
#define TOW_HALT_H

#include "tow_rdma.h"
#include "tow_sysfs.h"
#include "tow_test.h"

/* The first that calls it from now on waits there. */
static inline int tow_halt_begin(const char *function)
{
	char options[64];

	snprintf(options, sizeof(options), "at=%s", function);
	return tow_module_load("tow_halt", options);
}

/* Does anybody wait there?  For a while, if nobody does so far. */
static inline bool tow_halt_wait(void)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	char line[8];

	do {
		tow_test_sleep_ms(10);
		tow_test_read_line("/sys/module/tow_halt/parameters/halted", line, sizeof(line));
	} while (line[0] != 'Y' && tow_patient(&patience));
	return line[0] == 'Y';
}

/* It goes on, and has come back when this returns. */
static inline int tow_halt_end(void)
{
	return tow_module_unload("tow_halt");
}

#endif /* TOW_HALT_H */

// SPDX-License-Identifier: GPL-2.0
/*
 * How long reads and writes take inside the kernel, without towline
 * (tow_probe.ko): what no software on this device can be faster than.
 *
 * work.h has the options.  Prints what one operation takes, and how much that
 * makes in a second.
 */
#include <fcntl.h>
#include <getopt.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "tests/modules/tow_raw.h"
#include "work.h"

static void measure(const struct work *work)
{
	struct tow_raw_run run = {
		.op = work->read ? TOW_RAW_READ : TOW_RAW_WRITE,
		.bytes = work->bytes, .gap = work->gap, .places = work->places,
		.count = work->count, .batch = work->batch, .window = work->window,
	};
	int fd = open(TOW_RAW_NODE, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		die(TOW_RAW_NODE, errno);
	snprintf(run.device, sizeof(run.device), "%s", work->device);
	if (ioctl(fd, TOW_RAW_RUN, &run))
		die("tow_probe", errno);
	close(fd);
	work_report((double)run.time_ns / 1e3, work->count, work->bytes);
}

int main(int argc, char **argv)
{
	struct work work = WORK_DEFAULT;
	int option;

	while ((option = getopt(argc, argv, WORK_OPTIONS)) != -1) {
		if (!work_option(&work, option, optarg))
			goto usage;
	}
	if (optind == argc && work_valid(&work)) {
		measure(&work);
		return 0;
	}
usage:
	fputs("usage: raw " WORK_USAGE "\n", stderr);
	return 2;
}

// SPDX-License-Identifier: GPL-2.0
/*
 * Leak oracles: note what the kernel holds, do something, see what stayed.
 *
 *	oracle snapshot FILE [--exact]
 *	oracle compare FILE [--exact] [--ops N] [--kmemleak]
 *	oracle diff BEFORE AFTER [--ops N]
 *
 * Take both in the same state (module loaded or not, same RDMA devices, no test
 * program of yours running).  compare waits a moment for what is freed behind
 * RCU and work queues, then prints each difference and exits 1; 0: nothing
 * stayed; 2: usage, or the two states cannot be compared.  It leaves the second
 * state in FILE.now.  holds.h says what is looked at, and what counts as a leak.
 *
 *	--exact		without what the whole system uses: for things that read
 *			many files
 *	--ops N		how many operations ran in between
 *	--kmemleak	where the kernel has it, also objects that nothing points
 *			to any more and that were not reported before.  Any.  Takes
 *			15 s: younger objects are not reported, and a scan is slow
 *
 * One program that starts no other: each takes long on an emulated debug kernel.
 */
#include <getopt.h>
#include "holds.h"

static struct holds before, now;

static _Noreturn void usage(void)
{
	fputs("usage: oracle snapshot FILE [--exact]\n"
	      "       oracle compare FILE [--exact] [--ops N] [--kmemleak]\n"
	      "       oracle diff BEFORE AFTER [--ops N]\n", stderr);
	exit(2);
}

static void needed(struct holds *holds, const char *path)
{
	if (holds_read(holds, path))
		return;
	fprintf(stderr, "oracle: no snapshot %s\n", path);
	exit(2);
}

static void written(const char *path)
{
	if (holds_write(&now, path))
		return;
	fprintf(stderr, "oracle: %s: %s\n", path, strerror(errno));
	exit(2);
}

/* Does kmemleak know of something? */
static bool unreferenced(void)
{
	char *line = NULL;
	bool any = false;
	size_t room = 0;
	FILE *report;

	if (access(HOLDS_KMEMLEAK, F_OK))
		return false;
	usleep(5500000);
	/* A first look takes each object's checksum, a second reports it. */
	holds_say(HOLDS_KMEMLEAK, "scan");
	holds_say(HOLDS_KMEMLEAK, "scan");
	report = fopen(HOLDS_KMEMLEAK, "re");
	while (report && getline(&line, &room, report) > 0) {
		if (!any)
			puts("kmemleak:");
		any = true;
		fputs(line, stdout);
	}
	free(line);
	if (report)
		fclose(report);
	if (any)
		holds_say(HOLDS_KMEMLEAK, "clear");
	return any;
}

static int compare(const char *path, bool exact, long long ops, bool kmemleak)
{
	char second[PATH_MAX];
	int ret;

	needed(&before, path);
	ret = holds_compare(&before, &now, exact, ops, "");
	snprintf(second, sizeof(second), "%s.now", path);
	written(second);
	if (kmemleak && unreferenced())
		ret = 1;
	return ret;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "exact", no_argument, NULL, 'e' },
		{ "ops", required_argument, NULL, 'o' },
		{ "kmemleak", no_argument, NULL, 'k' },
		{ NULL, 0, NULL, 0 }
	};
	bool exact = false, kmemleak = false;
	long long ops = 0;
	int option, left;
	char *end;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'e':
			exact = true;
			break;
		case 'o':
			ops = strtoll(optarg, &end, 10);
			if (*end || end == optarg)
				usage();
			break;
		case 'k':
			kmemleak = true;
			break;
		default:
			usage();
		}
	}
	left = argc - optind;
	if (left == 2 && !strcmp(argv[optind], "snapshot")) {
		holds_take(&now, exact);
		written(argv[optind + 1]);
		return 0;
	}
	if (left == 2 && !strcmp(argv[optind], "compare"))
		return compare(argv[optind + 1], exact, ops, kmemleak);
	if (left != 3 || strcmp(argv[optind], "diff"))
		usage();
	needed(&before, argv[optind + 1]);
	needed(&now, argv[optind + 2]);
	return holds_differ(&before, &now, ops, "");
}

// SPDX-License-Identifier: GPL-2.0
/*
 * What surrounds a lab test, on every node.
 *
 *	around prepare module|none
 *	around finish module|none
 *
 * prepare notes what the kernel holds, then loads towline where the test wants
 * it.  finish unloads it and compares: a test may leave nothing behind, and
 * each thing that it did leave is a line of output.  Exit: 0, 1, 2 for usage.
 *
 * It runs around each test of each kernel, so it starts no other program.
 */
#include "holds.h"

#define BEFORE		"/run/towcheck.before"
#define NOW		BEFORE ".now"

static struct holds before, now;

static bool loaded(void)
{
	return !access("/sys/module/towline", F_OK);
}

static int unload(void)
{
	int ret = tow_module_unload("towline");

	if (ret)
		printf("towline does not unload: %s\n", strerror(-ret));
	return ret;
}

static int prepare(bool module)
{
	int ret;

	/* What the last test's end has seen is there still: nothing ran since. */
	if (rename(NOW, BEFORE)) {
		holds_take(&before, true);
		if (!holds_write(&before, BEFORE)) {
			perror(BEFORE);
			return 1;
		}
	}
	if (!module)
		return 0;
	ret = tow_module_load("towline", "");
	if (ret)
		printf("towline does not load: %s\n", strerror(-ret));
	return ret ? 1 : 0;
}

static int compare(void)
{
	int ret = holds_compare(&before, &now, true, 0, "left behind: ");

	if (!holds_write(&now, NOW)) {
		perror(NOW);
		return 1;
	}
	return ret ? 1 : 0;
}

static int finish(bool module)
{
	bool was_loaded = loaded();
	int ret = 0;

	/*
	 * A node that the test itself booted again has nothing to compare, but for
	 * the next test what every node has.
	 */
	if (!holds_read(&before, BEFORE))
		return was_loaded && unload();
	if (module && !was_loaded) {
		puts("the test unloaded towline");
		return 1;
	}
	if (!module && was_loaded) {
		puts("the test left towline loaded");
		ret = 1;
	}
	if (was_loaded && unload())
		return 1;
	return compare() || ret;
}

int main(int argc, char **argv)
{
	bool module = argc == 3 && !strcmp(argv[2], "module");

	if (argc == 3 && (module || !strcmp(argv[2], "none"))) {
		if (!strcmp(argv[1], "prepare"))
			return prepare(module);
		if (!strcmp(argv[1], "finish"))
			return finish(module);
	}
	fputs("usage: around prepare|finish module|none\n", stderr);
	return 2;
}

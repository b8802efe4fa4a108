// SPDX-License-Identifier: GPL-2.0
/* What is remembered of keys: the last so many that were used, of whichever step. */
#include <stdio.h>
#include <string.h>

#include <kselftest.h>

#include "../tensor/known.h"

#define MOST	100
#define NEW	1000

static struct towi_knowns knowns;

static struct towi_name name_of(int key, uint64_t step)
{
	struct towi_name name;
	char text[16];

	snprintf(text, sizeof(text), "key %d", key);
	if (towi_name_of(text, step, &name))
		ksft_exit_fail_msg("no name\n");
	return name;
}

static void remember(int key, uint64_t step, int64_t elements)
{
	const struct tow_tensor_type type = { .ndim = 1, .dims = { elements } };
	struct towi_name name = name_of(key, step);

	towi_remember(&knowns, &name, &type);
}

/* How many elements it had; -1: nobody knows. */
static int64_t elements_of(int key, uint64_t step)
{
	struct towi_name name = name_of(key, step);
	struct tow_tensor_type type;

	return towi_known(&knowns, &name, &type) ? type.dims[0] : -1;
}

int main(void)
{
	bool good = true;

	ksft_print_header();
	ksft_set_plan(4);
	towi_knowns_begin(&knowns, MOST);
	remember(0, 1, 10);
	remember(1, 1, 11);
	remember(0, 7, 20);
	ksft_test_result(elements_of(0, 3) == 20 && elements_of(1, 0) == 11 &&
			 elements_of(2, 1) == -1 && knowns.count == 2, "the last one of each key\n");
	/* Keys that are new each time, and one that is not. */
	for (int key = 0; key < NEW; key++) {
		remember(key, 1, key);
		good = good && elements_of(0, 1) == 0 && elements_of(key, 1) == key;
	}
	ksft_test_result(good, "what is used stays, and what is new is known\n");
	for (int key = NEW - MOST + 1; key < NEW; key++)
		good = good && elements_of(key, 1) == key;
	ksft_test_result(good && elements_of(NEW - MOST, 1) == -1 && knowns.count == MOST,
			 "what was used longest ago is forgotten\n");
	towi_knowns_end(&knowns);
	ksft_test_result(!knowns.count && elements_of(0, 1) == -1, "nothing stays in the end\n");
	ksft_finished();
}

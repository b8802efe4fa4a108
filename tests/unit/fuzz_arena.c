// SPDX-License-Identifier: GPL-2.0
/*
 * A program made of bytes: what it does to an arena, sensible or not, is answered, and
 * nobody's memory is another's.
 *
 * Here it runs a fixed number of programs by chance, the same each time.  make fuzz
 * builds it for libFuzzer, which looks for others as long as it is let.
 */
#include <kselftest.h>

#include "tow_source.h"

#define LIVE		32
#define PROGRAMS	4000
#define LENGTH		600

struct own {
	unsigned char *at;
	size_t bytes;
	unsigned char value;
};

struct input {
	const uint8_t *at;
	size_t left;
};

static uint8_t byte(struct input *input)
{
	if (!input->left)
		return 0;
	input->left--;
	return *input->at++;
}

static size_t some_bytes(struct input *input)
{
	size_t low = byte(input), high = byte(input);

	return (low << 8 | byte(input)) << high % 8;
}

static void must(bool good)
{
	if (!good)
		abort();
}

/* All of it if it is short; or else its begin and its end. */
static void mark(struct own *own, bool look)
{
	size_t ends = own->bytes < 256 ? own->bytes : 128;

	for (size_t i = 0; i < ends; i++) {
		unsigned char *last = &own->at[own->bytes - 1 - i];

		must(!look || (own->at[i] == own->value && *last == own->value));
		own->at[i] = own->value;
		*last = own->value;
	}
}

static void own_it(struct own *own, void *at, size_t bytes, uint8_t value)
{
	own->at = at;
	own->bytes = bytes;
	own->value = value;
	if (at)
		mark(own, false);
}

static void resize(struct tow_arena *arena, struct own *own, struct input *input)
{
	size_t bytes = some_bytes(input), both = bytes < own->bytes ? bytes : own->bytes;
	unsigned char *moved = tow_arena_realloc(arena, own->at, bytes);

	if (!moved)
		return;
	for (size_t i = 0; i < both && i < 128; i++)
		must(moved[i] == own->value);
	own_it(own, moved, bytes, own->value);
}

static void one_step(struct tow_arena *arena, struct own *live, struct input *input)
{
	struct own *own = &live[byte(input) % LIVE];
	struct tow_arena_stats stats = { .size = sizeof(stats) };
	struct tow_region *region;
	uint64_t offset;
	size_t bytes;
	uint8_t what = byte(input) % 12;

	if (own->at)
		mark(own, true);
	switch (what) {
	case 0:
		tow_arena_trim(arena, some_bytes(input));
		break;
	case 1:
		must(!tow_arena_stats(arena, &stats) && stats.reserved_bytes >= stats.in_use_bytes);
		break;
	case 2:
		/* The middle of something, or of nothing. */
		bytes = byte(input) + 1;
		must(!own->at || bytes >= own->bytes ||
		     tow_arena_free(arena, own->at + bytes) == -EINVAL);
		break;
	case 3:
		must(!tow_arena_check(arena));
		break;
	case 4:
	case 5:
		if (own->at)
			resize(arena, own, input);
		break;
	default:
		if (own->at) {
			must(!tow_arena_find(arena, own->at, &region, &offset));
			must(!tow_arena_free(arena, own->at));
			must(tow_arena_free(arena, own->at) == -EINVAL);
			own->at = NULL;
			break;
		}
		bytes = some_bytes(input);
		own_it(own, what < 8 ? tow_arena_aligned(arena, (size_t)1 << byte(input) % 23,
							 bytes) :
				       tow_arena_alloc(arena, bytes), bytes, byte(input));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input = { data, size };
	struct source source = { .pool = 24 * MIB };
	struct tow_arena_attr attr = {
		.size = sizeof(attr), .flags = byte(&input) & 1 ? TOW_ARENA_DEBUG : 0,
		.region_bytes = 4 * MIB,
	};
	struct tow_arena *arena = source_arena(&source, &attr);
	struct own live[LIVE] = { 0 };

	/* Nothing is allocated: there is room. */
	must(!tow_arena_free(arena, tow_arena_aligned(arena, 4096, 4 * MIB - 8192)));
	while (input.left)
		one_step(arena, live, &input);
	for (int i = 0; i < LIVE; i++) {
		if (live[i].at)
			mark(&live[i], true);
		must(!tow_arena_free(arena, live[i].at));
	}
	tow_arena_trim(arena, 0);
	must(!source.regions);
	tow_arena_destroy(arena);
	return 0;
}

#ifndef TOW_LIBFUZZER
int main(void)
{
	unsigned int seed = 1;
	uint8_t program[LENGTH];

	ksft_print_header();
	ksft_set_plan(1);
	for (int i = 0; i < PROGRAMS; i++) {
		for (size_t j = 0; j < LENGTH; j++)
			program[j] = (uint8_t)(rand_r(&seed) >> 8);
		/* Every tenth one with red zones: those fill all of a region. */
		program[0] = i % 10 == 0;
		LLVMFuzzerTestOneInput(program, (size_t)i % LENGTH);
	}
	ksft_test_result_pass("%d programs\n", PROGRAMS);
	ksft_finished();
}
#endif

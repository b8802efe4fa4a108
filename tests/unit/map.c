// SPDX-License-Identifier: GPL-2.0
/*
 * Where mappings go, on a memfd in place of a region: address and offset are
 * alike modulo 2 MiB, mappings are neighbours, nothing else is replaced, and
 * nothing is left over.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <kselftest.h>

#include "internal.h"

#define MIB		((size_t)1 << 20)
#define HUGE		(2 * MIB)
#define FILE_BYTES	(64 * MIB)
#define THREADS		4
#define ROUNDS		200

static int memory = -1;

/* Each page of the file begins with its number. */
static void make_memory(void)
{
	memory = memfd_create("map", MFD_CLOEXEC);
	if (memory < 0 || ftruncate(memory, FILE_BYTES))
		ksft_exit_fail_perror("memfd_create");
	for (uint64_t page = 0; page < FILE_BYTES / 4096; page++)
		if (pwrite(memory, &page, sizeof(page), (off_t)page * 4096) != sizeof(page))
			ksft_exit_fail_perror("pwrite");
}

static void *map(_Atomic uintptr_t *hint, uint64_t offset, size_t length)
{
	void *addr = NULL;
	int ret = towi_map(hint, memory, PROT_READ, offset, length, &addr);

	if (ret)
		ksft_print_msg("towi_map: %d\n", ret);
	return ret ? NULL : addr;
}

/* Whole pages of the file, the right ones, to the last. */
static bool shows(const char *addr, uint64_t offset, size_t length)
{
	for (size_t at = 0; at < length; at += 4096)
		if (*(const uint64_t *)(addr + at) != (offset + at) / 4096)
			return false;
	return true;
}

static bool placed(_Atomic uintptr_t *hint, uint64_t offset, size_t length)
{
	char *addr = map(hint, offset, length);
	bool right = addr && (uintptr_t)addr % HUGE == offset % HUGE && shows(addr, offset, length);

	if (addr && towi_unmap(hint, addr, length))
		return false;
	return right;
}

/* The number of mappings of the process. */
static int count_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	int lines = 0, c;

	if (!maps)
		ksft_exit_fail_perror("/proc/self/maps");
	while ((c = getc(maps)) != EOF)
		lines += c == '\n';
	fclose(maps);
	return lines;
}

static void test_places(void)
{
	_Atomic uintptr_t hint = 0;

	ksft_test_result(placed(&hint, 0, HUGE) && placed(&hint, 0, 8 * MIB), "whole huge pages\n");
	ksft_test_result(placed(&hint, 0, HUGE + 4096) && placed(&hint, 0, 3 * MIB - 4096),
			 "lengths that are none\n");
	ksft_test_result(placed(&hint, MIB, HUGE) && placed(&hint, 4096, 5 * MIB) &&
			 placed(&hint, 3 * HUGE - 4096, HUGE), "offsets inside a huge page\n");
	ksft_test_result(placed(&hint, 0, HUGE + 1), "the length is rounded up to pages\n");
	hint = 0;
	ksft_test_result(placed(&hint, HUGE - 4096, HUGE), "such an offset as the first of all\n");
}

static void test_neighbours(void)
{
	_Atomic uintptr_t hint = 0;
	char *first, *second, *third, *again;

	first = map(&hint, 0, HUGE);
	second = map(&hint, 0, 2 * HUGE);
	third = map(&hint, MIB, HUGE);
	ksft_test_result(first && second == first - 2 * HUGE && third == second - 2 * HUGE + MIB,
			 "one below the other\n");
	ksft_test_result(!towi_unmap(&hint, third, HUGE) && !towi_unmap(&hint, second, 2 * HUGE) &&
			 hint == (uintptr_t)first, "addresses come back in reverse order\n");
	again = map(&hint, 0, HUGE);
	ksft_test_result(again == first - HUGE, "and are used again\n");
	ksft_test_result(!towi_unmap(&hint, first, HUGE) && hint == (uintptr_t)again,
			 "not what is not the lowest\n");
	towi_unmap(&hint, again, HUGE);
}

static void test_obstacle(void)
{
	_Atomic uintptr_t hint = 0;
	char *first, *obstacle, *mapped;

	first = map(&hint, 0, HUGE);
	if (!first)
		ksft_exit_fail_msg("no mapping\n");
	obstacle = mmap(first - 4096, 4096, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	/* Someone is there already: all the better. */
	if (obstacle == MAP_FAILED)
		obstacle = NULL;
	else
		memset(obstacle, 'o', 4096);
	mapped = map(&hint, 0, HUGE);
	ksft_test_result(mapped && mapped != first - HUGE && (uintptr_t)mapped % HUGE == 0 &&
			 shows(mapped, 0, HUGE), "what is in the way is gone around\n");
	ksft_test_result(!obstacle || (obstacle[0] == 'o' && obstacle[4095] == 'o'),
			 "and left as it was\n");
	ksft_test_result(placed(&hint, 0, HUGE) && placed(&hint, MIB, HUGE),
			 "the next ones find a place\n");
	towi_unmap(&hint, mapped, HUGE);
	towi_unmap(&hint, first, HUGE);
	if (obstacle)
		munmap(obstacle, 4096);
}

static void test_small(void)
{
	_Atomic uintptr_t hint = 0;
	char *small = map(&hint, 4096, HUGE - 4096);

	ksft_test_result(small && !hint && shows(small, 4096, HUGE - 4096),
			 "less than 2 MiB is mapped plainly\n");
	ksft_test_result(!towi_unmap(&hint, small, HUGE - 4096) && !hint, "and leaves the hint alone\n");
}

static void test_edges(void)
{
	_Atomic uintptr_t hint = 4 * HUGE;
	void *addr = NULL;
	char *mapped;

	mapped = map(&hint, 0, HUGE);
	ksft_test_result(mapped && (uintptr_t)mapped > 4 * HUGE && hint == (uintptr_t)mapped,
			 "a hint too low is given up\n");
	towi_unmap(&hint, mapped, HUGE);
	ksft_test_result(towi_map(&hint, memory, PROT_READ, 0, SIZE_MAX, &addr) == -ENOMEM &&
			 towi_map(&hint, memory, PROT_READ, 0, SIZE_MAX / 2 - HUGE, &addr) == -ENOMEM &&
			 !addr, "more than there are addresses\n");
	hint = 0;
	ksft_test_result(towi_map(&hint, -1, PROT_READ, 0, HUGE, &addr) == -EBADF && !hint && !addr,
			 "a bad descriptor, the long way\n");
	mapped = map(&hint, 0, HUGE);
	ksft_test_result(towi_map(&hint, -1, PROT_READ, 0, HUGE, &addr) == -EBADF &&
			 hint == (uintptr_t)mapped && !addr, "a bad descriptor, the short way\n");
	towi_unmap(&hint, mapped, HUGE);
}

static void test_no_rest(void)
{
	_Atomic uintptr_t hint = 0;
	char *mapped[32];
	int before = count_mappings();

	for (size_t i = 0; i < ARRAY_SIZE(mapped); i++)
		mapped[i] = map(&hint, i * 4096, HUGE + i * 8192);
	for (size_t i = 0; i < ARRAY_SIZE(mapped); i++)
		if (!mapped[i] || towi_unmap(&hint, mapped[i], HUGE + i * 8192))
			break;
	ksft_test_result(count_mappings() <= before, "no reservation is left over\n");
}

struct shared {
	_Atomic uintptr_t hint;
	_Atomic int wrong;
};

static void *map_often(void *arg)
{
	struct shared *shared = arg;

	for (int i = 0; i < ROUNDS; i++)
		if (!placed(&shared->hint, (uint64_t)(i % 5) * MIB, HUGE + (size_t)(i % 3) * MIB))
			shared->wrong++;
	return NULL;
}

static void test_threads(void)
{
	struct shared shared = { 0 };
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, map_often, &shared))
			ksft_exit_fail_msg("no thread\n");
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ksft_test_result(!shared.wrong, "threads that map and unmap at once\n");
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(5 + 4 + 3 + 2 + 4 + 1 + 1);
	make_memory();
	test_places();
	test_neighbours();
	test_obstacle();
	test_small();
	test_edges();
	test_no_rest();
	test_threads();
	ksft_finished();
}

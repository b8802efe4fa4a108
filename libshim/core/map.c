// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Where mappings go.
 *
 * The kernel can map 2 MiB with one page fault where an address and the offset
 * behind it are alike modulo 2 MiB, and mmap(2) by itself does not see to that.
 * The first mapping of a device is placed inside a reservation that is too large
 * by 2 MiB, and cut to size.  Each later one is asked for just below the last,
 * where there usually is room, and is one system call; if the kernel puts it
 * elsewhere, it takes the long way, too.
 *
 * The hint belongs to all threads.  Taking addresses from it is no claim to
 * them: only mmap(2) decides, and without MAP_FIXED it never replaces what
 * somebody else mapped there.
 */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

#define HUGE	((size_t)2 << 20)

/* Below it are programs that were linked for fixed addresses, and their heaps. */
#define LOWEST	((uintptr_t)1 << (sizeof(uintptr_t) == 8 ? 32 : 28))

static uintptr_t huge_down(uintptr_t address)
{
	return address & ~(uintptr_t)(HUGE - 1);
}

static uintptr_t huge_up(uintptr_t address)
{
	return huge_down(address + HUGE - 1);
}

/* Addresses are the hint's numbers until mmap(2) makes pointers of them. */
static void *pointer(uintptr_t address)
{
	return (void *)address; /* NOLINT(performance-no-int-to-ptr) */
}

/* Take span bytes below the hint; 0 when there is none, or no room below it. */
static uintptr_t take_below(_Atomic uintptr_t *hint, size_t span)
{
	uintptr_t last = atomic_load_explicit(hint, memory_order_relaxed);

	do {
		if (last < LOWEST || last - LOWEST < span)
			return 0;
	} while (!atomic_compare_exchange_weak_explicit(hint, &last, last - span,
							memory_order_relaxed,
							memory_order_relaxed));
	return last - span;
}

/* What was taken last is free again: the next one gets it, not the one below. */
static void give_back(_Atomic uintptr_t *hint, uintptr_t base, size_t span)
{
	atomic_compare_exchange_strong_explicit(hint, &base, base + span, memory_order_relaxed,
						memory_order_relaxed);
}

static int map_below(_Atomic uintptr_t *hint, int fd, int prot, uint64_t offset, size_t length,
		     void **addr)
{
	size_t within = offset % HUGE;
	size_t span = huge_up(within + length);
	uintptr_t base = take_below(hint, span);
	void *got;

	if (!base)
		return -EAGAIN;
	got = mmap(pointer(base + within), length, prot, MAP_SHARED, fd, (off_t)offset);
	if (got == MAP_FAILED) {
		give_back(hint, base, span);
		return -errno;
	}
	if ((uintptr_t)got % HUGE != within) {
		munmap(got, length);
		return -EAGAIN;
	}
	*addr = got;
	return 0;
}

static void trim(uintptr_t from, uintptr_t to)
{
	if (from < to)
		munmap(pointer(from), to - from);
}

/* length is whole pages here, so that what is cut off begins where it ends. */
static int map_reserved(_Atomic uintptr_t *hint, int fd, int prot, uint64_t offset, size_t length,
			void **addr)
{
	size_t within = offset % HUGE;
	size_t room = huge_up(within + length) + HUGE;
	uintptr_t reserved, start;
	void *got;
	int ret;

	got = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (got == MAP_FAILED)
		return -errno;
	reserved = (uintptr_t)got;
	start = huge_up(reserved) + within;
	got = mmap(pointer(start), length, prot, MAP_SHARED | MAP_FIXED, fd, (off_t)offset);
	if (got == MAP_FAILED) {
		ret = -errno;
		munmap(pointer(reserved), room);
		return ret;
	}
	trim(reserved, start);
	trim(start + length, reserved + room);
	atomic_store_explicit(hint, huge_down(start), memory_order_relaxed);
	*addr = got;
	return 0;
}

int towi_map(_Atomic uintptr_t *hint, int fd, int prot, uint64_t offset, size_t length,
	     void **addr)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *got;
	int ret;

	/* Nothing to gain; and the mapping's slot of 2 MiB would be wasted. */
	if (length < HUGE) {
		got = mmap(NULL, length, prot, MAP_SHARED, fd, (off_t)offset);
		if (got == MAP_FAILED)
			return -errno;
		*addr = got;
		return 0;
	}
	/* More than there are addresses: mmap(2)'s answer, without the overflow. */
	if (length > SIZE_MAX / 2)
		return -ENOMEM;
	length = (length + page - 1) & ~(page - 1);
	ret = map_below(hint, fd, prot, offset, length, addr);
	if (ret == -EAGAIN)
		ret = map_reserved(hint, fd, prot, offset, length, addr);
	return ret;
}

int towi_map_nothing(size_t length, void **addr)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uintptr_t reserved, start;
	void *got;

	if (length > SIZE_MAX / 2)
		return -ENOMEM;
	length = (length + page - 1) & ~(page - 1);
	got = mmap(NULL, length + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		   0);
	if (got == MAP_FAILED)
		return -errno;
	reserved = (uintptr_t)got;
	start = huge_up(reserved);
	trim(reserved, start);
	trim(start + length, reserved + length + HUGE);
	*addr = pointer(start);
	return 0;
}

int towi_unmap(_Atomic uintptr_t *hint, void *addr, size_t length)
{
	uintptr_t start = (uintptr_t)addr;

	if (munmap(addr, length))
		return -errno;
	if (length >= HUGE)
		give_back(hint, huge_down(start), huge_up(start + length) - huge_down(start));
	return 0;
}

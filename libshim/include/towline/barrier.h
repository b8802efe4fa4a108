/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * libtowline: the indices of a ring, between a program and the kernel.
 *
 * C11's memory model in the words of the compilers, which C++ has, too, and which
 * take the plain integers that the kernel's header has.
 *
 * Who writes entries stores the index behind them with tow_store_release(); who
 * sees that index with tow_load_acquire() sees the entries.  An index that only
 * this program writes needs neither.
 */
#ifndef TOW_BARRIER_H
#define TOW_BARRIER_H

#include <stdint.h>

/**
 * tow_load_acquire() - read an index that the other side writes
 * @index: in a ring
 *
 * Return: the index; what was written before it was stored is seen from now on.
 */
static inline uint32_t tow_load_acquire(const uint32_t *index)
{
	return __atomic_load_n(index, __ATOMIC_ACQUIRE);
}

/**
 * tow_load_acquire64() - the same of a number of 64 bits, that of a slot
 * @number: which only the kernel writes
 *
 * Return: the number; what was written before it was stored is seen from now on.
 */
static inline uint64_t tow_load_acquire64(const uint64_t *number)
{
	return __atomic_load_n(number, __ATOMIC_ACQUIRE);
}

/**
 * tow_store_release() - write an index that the other side reads
 * @index: in a ring
 * @value: what it is now; who sees it sees all that was written before
 */
static inline void tow_store_release(uint32_t *index, uint32_t value)
{
	__atomic_store_n(index, value, __ATOMIC_RELEASE);
}

/**
 * tow_full_barrier() - between an index that is stored and a flag that is loaded
 *
 * For who tells somebody who may be falling asleep: each of the two says what he has
 * done, has this, and looks at what the other one says; so one of them sees the other.
 */
static inline void tow_full_barrier(void)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

#endif /* TOW_BARRIER_H */

// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Whose an object is.
 *
 * A child that was forked has a copy of all that its parent's objects are made of, as threads
 * left them that it does not have, with locks that nobody will let go of; and what they are
 * about it shares: regions, and what peers believe.  So it leaves them alone.
 *
 * It knows them by a number that each process takes for itself: an object keeps that of who
 * made it, and the process's own is in a page that the kernel wipes in children.  To compare
 * them takes no call and no lock.  Queues, whose memory is wiped like that, say by themselves
 * whose they are.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>

#include "internal.h"

/* This process's number; 0: it has none yet. */
static _Atomic uint64_t *_Atomic number;
/* What was taken last, by this process or by those that it comes from. */
static _Atomic uint64_t last;

void *towi_wiped(size_t wiped, size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);

	if (memory == MAP_FAILED)
		return NULL;
	if (!madvise(memory, wiped, MADV_WIPEONFORK))
		return memory;
	munmap(memory, bytes);
	return NULL;
}

/* Where the number is; NULL: there is no memory. */
static _Atomic uint64_t *place(void)
{
	_Atomic uint64_t *known = atomic_load_explicit(&number, memory_order_acquire), *made;

	if (known)
		return known;
	made = towi_wiped(sizeof(*made), sizeof(*made));
	if (!made || atomic_compare_exchange_strong(&number, &known, made))
		return made;
	munmap(made, sizeof(*made));
	return known;
}

uint64_t towi_process(void)
{
	_Atomic uint64_t *at = place();
	uint64_t own = at ? atomic_load_explicit(at, memory_order_relaxed) : 0, mine;

	if (own || !at)
		return own;
	mine = atomic_fetch_add(&last, 1) + 1;
	return atomic_compare_exchange_strong(at, &own, mine) ? mine : own;
}

bool towi_ours(uint64_t process)
{
	return process == towi_process();
}

bool towi_at_rest(pthread_mutex_t *lock)
{
	if (pthread_mutex_trylock(lock))
		return false;
	pthread_mutex_unlock(lock);
	return true;
}

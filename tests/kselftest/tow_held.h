/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A thread that is stopped in the middle of a call, with whatever locks it has there: at one of
 * the allocations that the call makes.  For one source file of a program.
 */
#ifndef TOW_HELD_H
#define TOW_HELD_H

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

/* How glibc lets a program have a malloc(3) of its own, and still ask for its. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

/* At which allocation, counted from when this was set, its thread stops; 0: at none. */
static __thread unsigned int tow_hold_at;
static atomic_bool tow_hold_is;
static sem_t tow_hold_said, tow_hold_over;

static void tow_hold(void)
{
	if (!tow_hold_at || --tow_hold_at)
		return;
	tow_hold_is = true;
	sem_post(&tow_hold_said);
	while (sem_wait(&tow_hold_over))
		;
}

/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name) */
void *malloc(size_t bytes)
{
	tow_hold();
	return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
	tow_hold();
	return __libc_calloc(count, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
	tow_hold();
	return __libc_memalign(alignment, bytes);
}
/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */

/*
 * What a thread calls: @call does what is needed before, sets tow_hold_at to @hold_at, and to 0
 * again behind what is to be stopped.
 */
struct tow_held {
	int (*call)(void *arg, unsigned int hold_at);
	void *arg;
	unsigned int hold_at;
	int ret;
	pthread_t thread;
};

static inline void *tow_held_run(void *arg)
{
	struct tow_held *held = arg;

	held->ret = held->call(held->arg, held->hold_at);
	/* It has made no so many. */
	if (!tow_hold_is)
		sem_post(&tow_hold_said);
	return NULL;
}

/* True: it stands, or has ended without; false: there is no thread. */
static inline bool tow_held_begin(struct tow_held *held)
{
	tow_hold_is = false;
	sem_init(&tow_hold_said, 0, 0);
	sem_init(&tow_hold_over, 0, 0);
	if (pthread_create(&held->thread, NULL, tow_held_run, held))
		return false;
	while (sem_wait(&tow_hold_said))
		;
	return true;
}

/* It goes on: what it returned in the end. */
static inline int tow_held_end(struct tow_held *held)
{
	sem_post(&tow_hold_over);
	pthread_join(held->thread, NULL);
	return held->ret;
}

#endif /* TOW_HELD_H */

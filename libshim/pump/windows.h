/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * Windows: regions that another process, the other end, may read, or write; and views: those of
 * the other end, as this one has found them.
 *
 * A region becomes a window when something in it is first to be reached, and is one until
 * its owner, which may be an edge, or the region ends.  Each owner has its own: when they end,
 * what the other end has begun is over, and nobody else's is disturbed.  A window's name is
 * made of its owner's number, which is random, and its own, which is never used again; those
 * numbers travel, and who gets them finds it by its name, once.
 */
#ifndef TOW_WINDOWS_INSIDE_H
#define TOW_WINDOWS_INSIDE_H

#include <bsd/sys/tree.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "../alloc/arena.h"
#include "pump.h"

/* Views that one viewer keeps: as many as an arena of 64 GiB has regions. */
#define TOWI_VIEWS_MAX	1024U

struct towi_window;

/* What an owner shows: part of it. */
struct towi_windows {
	struct towi_watch watch;		/* first */
	struct tow_arena *arena;
	struct tow_device *dev;			/* NULL: it has not begun */
	uint32_t rights;
	pthread_mutex_t lock;			/* innermost */
	struct towi_window *first;
	uint64_t number, last;
};

/* A place that the other end is told of. */
struct towi_place {
	uint64_t edge, window;			/* the owner's number, and its own; 0: nowhere */
	uint64_t offset;
};

/*
 * Of @arena's regions, or any other of @dev's; to be read (TOW_RIGHT_READ), or written
 * (TOW_RIGHT_WRITE).  Without the pump's lock: 0 or a negative errno.
 */
int towi_windows_begin(struct towi_windows *windows, struct tow_arena *arena,
		       struct tow_device *dev, uint32_t rights);

/* Nobody reaches anything by them any more.  Without the pump's lock. */
void towi_windows_end(struct towi_windows *windows);

/*
 * Where @bytes at @ptr, which are used, are for the other end: 0; as towi_place(); -EAGAIN: in a
 * region that is no window, and is not to become one now (@makes), which takes a while, and wants
 * no lock; and what tow_export() returns.
 */
int towi_window(struct towi_windows *windows, const void *ptr, uint64_t bytes, bool makes,
		struct towi_place *place);

/* Who looks for windows. */
struct towi_viewer {
	struct towi_runner *runner;		/* goes on when one was found */
	struct tow_peer *peer;			/* where the other end is */
	const _Atomic int *error;		/* not 0: nothing is to be found any more */
};

/* A window of the other end's. */
struct towi_view {
	RB_ENTRY(towi_view) node;
	const struct towi_viewer *viewer;
	uint64_t number, window;
	struct tow_remote *remote;		/* once it was found */
	struct tow_remote *stale;		/* of another one, which goes before that */
	int error;
	bool looking;				/* for it */
	uint32_t busy;				/* operations on it */
	uint64_t used;				/* when, for who looks for the oldest */
	uint32_t rights;
	struct towi_errand errand;		/* which looks for it */
};

RB_HEAD(towi_view_tree, towi_view);

/* All 0 but for viewer before the first towi_view(). */
struct towi_views {
	struct towi_viewer viewer;
	struct towi_view_tree all;
	uint32_t count;
	uint64_t uses;
};

/*
 * The view of @place, of @bytes: 0; -EAGAIN: it is looked for, by a thread of its own, and
 * the viewer's runner goes on when that is over, or there are too many at the moment; -ERANGE:
 * there is no such place; and what tow_resolve() returns, once.  With the pump's lock.
 */
int towi_view(struct towi_views *views, const struct towi_place *place, uint64_t bytes,
	      uint32_t rights, struct towi_view **shown);

/* Without the lock. */
void towi_views_free(struct towi_views *views);

#endif /* TOW_WINDOWS_INSIDE_H */

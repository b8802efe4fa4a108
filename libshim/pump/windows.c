// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Windows and views.
 *
 * Finding a view waits for the other node, and nobody who only looks whether something has
 * come may wait: it is an errand.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "../core/internal.h"
#include "windows.h"

#define NAME_BYTES	64

struct towi_window {
	struct towi_window *next;
	uint64_t region;		/* its handle */
	uint64_t number;
	struct tow_exported *exported;
};

static void name_window(char name[NAME_BYTES], uint64_t number, uint64_t window, uint32_t rights)
{
	snprintf(name, NAME_BYTES, "tow/%016" PRIx64 "/%" PRIu64 "/%c", number, window,
		 rights & TOW_RIGHT_WRITE ? 'w' : 'r');
}

/* ---- windows ---------------------------------------------------------------- */

/* One of @region, or any if that is 0, which is not in the list any more. */
static struct towi_window *take_window(struct towi_windows *windows, uint64_t region)
{
	struct towi_window **link, *window;

	pthread_mutex_lock(&windows->lock);
	for (link = &windows->first; *link; link = &(*link)->next)
		if (!region || (*link)->region == region)
			break;
	window = *link;
	if (window)
		*link = window->next;
	pthread_mutex_unlock(&windows->lock);
	return window;
}

static void end_windows(struct towi_windows *windows, uint64_t region)
{
	struct towi_window *window;

	while ((window = take_window(windows, region))) {
		/* Nobody else could do better; the region's end says more. */
		tow_unexport(window->exported);
		free(window);
	}
}

static void gone(struct towi_watch *watch, uint64_t region)
{
	end_windows((struct towi_windows *)watch, region);
}

int towi_windows_begin(struct towi_windows *windows, struct tow_arena *arena,
		       struct tow_device *dev, uint32_t rights)
{
	if (getrandom(&windows->number, sizeof(windows->number), 0) < 0)
		return -errno;
	/* 0 is nowhere. */
	windows->number |= 1;
	windows->rights = rights;
	windows->watch.gone = gone;
	pthread_mutex_init(&windows->lock, NULL);
	windows->arena = arena;
	windows->dev = dev;
	towi_watch(dev, &windows->watch);
	return 0;
}

void towi_windows_end(struct towi_windows *windows)
{
	if (!windows->dev)
		return;
	towi_unwatch(windows->dev, &windows->watch);
	end_windows(windows, 0);
	pthread_mutex_destroy(&windows->lock);
	windows->dev = NULL;
}

/* Called with the lock; NULL: it is none. */
static struct towi_window *window_of(const struct towi_windows *windows, uint64_t region)
{
	struct towi_window *window;

	for (window = windows->first; window; window = window->next)
		if (window->region == region)
			break;
	return window;
}

/* Without the lock, which others only look for windows with. */
static int make_window(struct towi_windows *windows, struct tow_region *region, uint64_t number,
		       struct towi_window **made)
{
	struct tow_region_info info = { .size = sizeof(info) };
	struct towi_window *window;
	char name[NAME_BYTES];
	int ret;

	ret = tow_region_info(region, &info);
	if (ret)
		return ret;
	window = malloc(sizeof(*window));
	if (!window)
		return -ENOMEM;
	*window = (struct towi_window){ NULL, towi_region_handle(region), number, NULL };
	name_window(name, windows->number, window->number, windows->rights);
	/* What was imported is not mapped. */
	ret = tow_export(region, 0, info.map_bytes ? info.map_bytes : info.bytes, name,
			 windows->rights, &window->exported);
	if (ret) {
		free(window);
		return ret;
	}
	*made = window;
	return 0;
}

/* A window becomes one of the list, unless somebody else has made it of its region meanwhile. */
static struct towi_window *keep_window(struct towi_windows *windows, struct towi_window *made)
{
	struct towi_window *window;

	pthread_mutex_lock(&windows->lock);
	window = window_of(windows, made->region);
	if (!window) {
		made->next = windows->first;
		windows->first = made;
	}
	pthread_mutex_unlock(&windows->lock);
	if (!window)
		return made;
	tow_unexport(made->exported);
	free(made);
	return window;
}

int towi_window(struct towi_windows *windows, const void *ptr, uint64_t bytes, bool makes,
		struct towi_place *place)
{
	struct towi_window *window;
	struct tow_region *region;
	uint64_t number;
	int ret;

	ret = towi_place(windows->arena, windows->dev, ptr, bytes, &region, &place->offset);
	if (ret)
		return ret;
	pthread_mutex_lock(&windows->lock);
	window = window_of(windows, towi_region_handle(region));
	number = windows->last += makes && !window;
	pthread_mutex_unlock(&windows->lock);
	if (!window && !makes)
		return -EAGAIN;
	if (!window) {
		ret = make_window(windows, region, number, &window);
		if (ret)
			return ret;
		window = keep_window(windows, window);
	}
	/* It stays while there is something in its region that is used. */
	place->edge = windows->number;
	place->window = window->number;
	return 0;
}

/* ---- views ------------------------------------------------------------------ */

static int compare(const struct towi_view *one, const struct towi_view *other)
{
	if (one->number != other->number)
		return one->number < other->number ? -1 : 1;
	return (one->window > other->window) - (one->window < other->window);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
RB_GENERATE_INTERNAL(towi_view_tree, towi_view, node, compare, static)
#pragma GCC diagnostic pop

static void drop_view(struct towi_views *views, struct towi_view *view)
{
	RB_REMOVE(towi_view_tree, &views->all, view);
	views->count--;
	tow_remote_release(view->remote);
	tow_remote_release(view->stale);
	free(view);
}

/* The oldest that nothing needs goes, but for what it has found: NULL: there is none. */
static struct tow_remote *drop_oldest(struct towi_views *views)
{
	struct tow_remote *stale;
	struct towi_view *view, *oldest = NULL;

	RB_FOREACH(view, towi_view_tree, &views->all)
		if (!view->busy && !view->looking && (!oldest || view->used < oldest->used))
			oldest = view;
	if (!oldest)
		return NULL;
	stale = oldest->remote;
	oldest->remote = NULL;
	drop_view(views, oldest);
	return stale;
}

/* 0; -EAGAIN: there are too many at the moment; -ENOMEM. */
static int add_view(struct towi_views *views, const struct towi_place *place,
		    struct towi_view **added)
{
	struct towi_view *view = malloc(sizeof(*view));

	if (!view)
		return -ENOMEM;
	*view = (struct towi_view){ .number = place->edge, .window = place->window,
				    .viewer = &views->viewer };
	if (views->count >= TOWI_VIEWS_MAX) {
		view->stale = drop_oldest(views);
		if (!view->stale) {
			free(view);
			return -EAGAIN;
		}
	}
	RB_INSERT(towi_view_tree, &views->all, view);
	views->count++;
	*added = view;
	return 0;
}

static struct towi_view *view_of(struct towi_errand *errand)
{
	return (struct towi_view *)(void *)((char *)errand - offsetof(struct towi_view, errand));
}

/* Without the lock. */
static int find(struct towi_errand *errand)
{
	struct towi_view *view = view_of(errand);
	const struct towi_viewer *viewer = view->viewer;
	char name[NAME_BYTES];
	int error;

	tow_remote_release(view->stale);
	view->stale = NULL;
	/* Nothing is to be found by a viewer that is over, or is to be closed. */
	error = *viewer->error;
	if (error)
		return error;
	name_window(name, view->number, view->window, view->rights);
	/* Whoever told of it has it: nobody waits for it to come. */
	return tow_resolve(viewer->peer, name, view->rights, 0, &view->remote);
}

/* Whoever looks for the view takes it, and what has become of it. */
static void found(struct towi_errand *errand, int ret)
{
	struct towi_view *view = view_of(errand);

	view->error = ret == -ENOENT || ret == -ETIMEDOUT ? -ESTALE : ret;
	view->looking = false;
}

static int look_for(struct towi_view *view, uint32_t rights)
{
	view->looking = true;
	view->rights = rights;
	view->errand = (struct towi_errand){ .runner = view->viewer->runner, .run = find,
					     .done = found };
	return towi_pump_errand(&view->errand);
}

/* Found; or it could not be, which is told once. */
static int result_of(struct towi_views *views, struct towi_view *view,
		     const struct towi_place *place, uint64_t bytes)
{
	int error = view->error;

	if (view->looking)
		return -EAGAIN;
	if (error) {
		drop_view(views, view);
		return error;
	}
	if (place->offset > tow_remote_bytes(view->remote) ||
	    bytes > tow_remote_bytes(view->remote) - place->offset)
		return -ERANGE;
	return 0;
}

int towi_view(struct towi_views *views, const struct towi_place *place, uint64_t bytes,
	      uint32_t rights, struct towi_view **shown)
{
	struct towi_view look = { .number = place->edge, .window = place->window }, *view;
	int ret;

	/* Nowhere. */
	if (!place->edge || !place->window)
		return -ERANGE;
	view = RB_FIND(towi_view_tree, &views->all, &look);
	if (view) {
		view->used = ++views->uses;
		*shown = view;
		return result_of(views, view, place, bytes);
	}
	ret = add_view(views, place, &view);
	if (ret)
		return ret;
	view->used = ++views->uses;
	ret = look_for(view, rights);
	if (ret)
		drop_view(views, view);
	return ret ? ret : -EAGAIN;
}

void towi_views_free(struct towi_views *views)
{
	struct towi_view *view;

	while ((view = RB_MIN(towi_view_tree, &views->all)))
		drop_view(views, view);
}

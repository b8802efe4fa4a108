// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Windows and views.
 *
 * Finding a view waits for the other node, and nobody who only looks whether a tensor has
 * come may wait: a thread of the worker's does it, which begins with the first that is to
 * be found.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "../core/internal.h"
#include "edge.h"

#define NAME_BYTES	64

struct towi_window {
	struct towi_window *next;
	uint64_t region;		/* its handle */
	uint64_t number;
	struct tow_exported *exported;
};

static void name_window(char name[NAME_BYTES], uint64_t edge, uint64_t window, uint32_t rights)
{
	snprintf(name, NAME_BYTES, "tow/%016" PRIx64 "/%" PRIu64 "/%c", edge, window,
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

int towi_windows_begin(struct towi_windows *windows, const struct tow_worker *worker,
		       uint32_t rights)
{
	if (getrandom(&windows->number, sizeof(windows->number), 0) < 0)
		return -errno;
	/* 0 is nowhere. */
	windows->number |= 1;
	windows->rights = rights;
	windows->watch.gone = gone;
	pthread_mutex_init(&windows->lock, NULL);
	windows->worker = worker;
	towi_watch(worker->dev, &windows->watch);
	return 0;
}

void towi_windows_end(struct towi_windows *windows)
{
	if (!windows->worker)
		return;
	towi_unwatch(windows->worker->dev, &windows->watch);
	end_windows(windows, 0);
	pthread_mutex_destroy(&windows->lock);
	windows->worker = NULL;
}

static int make_window(struct towi_windows *windows, struct tow_region *region,
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
	*window = (struct towi_window){
		windows->first, towi_region_handle(region), ++windows->last, NULL,
	};
	name_window(name, windows->number, window->number, windows->rights);
	/* What was imported is not mapped. */
	ret = tow_export(region, 0, info.map_bytes ? info.map_bytes : info.bytes, name,
			 windows->rights, &window->exported);
	if (ret) {
		free(window);
		return ret;
	}
	windows->first = window;
	*made = window;
	return 0;
}

int towi_window(struct towi_windows *windows, const void *ptr, uint64_t bytes,
		struct towi_place *place)
{
	struct towi_window *window;
	struct tow_region *region;
	int ret;

	ret = towi_place(windows->worker->arena, windows->worker->dev, ptr, bytes, &region,
			 &place->offset);
	if (ret)
		return ret;
	pthread_mutex_lock(&windows->lock);
	for (window = windows->first; window; window = window->next)
		if (window->region == towi_region_handle(region))
			break;
	if (!window)
		ret = make_window(windows, region, &window);
	if (!ret) {
		place->edge = windows->number;
		place->window = window->number;
	}
	pthread_mutex_unlock(&windows->lock);
	return ret;
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
	free(view);
}

/* The oldest that nothing needs goes: false: there is none. */
static bool drop_oldest(struct towi_views *views)
{
	struct towi_view *view, *oldest = NULL;

	RB_FOREACH(view, towi_view_tree, &views->all)
		if (!view->busy && !view->looking && (!oldest || view->used < oldest->used))
			oldest = view;
	if (oldest)
		drop_view(views, oldest);
	return oldest;
}

/* 0; -EAGAIN: there are too many at the moment; -ENOMEM. */
static int add_view(struct towi_views *views, const struct towi_place *place,
		    struct towi_view **added)
{
	struct towi_view *view;

	if (views->count >= TOWI_VIEWS_MAX && !drop_oldest(views))
		return -EAGAIN;
	view = malloc(sizeof(*view));
	if (!view)
		return -ENOMEM;
	*view = (struct towi_view){ .number = place->edge, .window = place->window };
	RB_INSERT(towi_view_tree, &views->all, view);
	views->count++;
	*added = view;
	return 0;
}

static void look_for(struct tow_edge *edge, struct towi_view *view, uint32_t rights)
{
	struct towi_finder *finder = &edge->common.worker->finder;

	view->looking = true;
	view->rights = rights;
	view->edge = edge;
	view->next = NULL;
	*finder->last = view;
	finder->last = &view->next;
	pthread_cond_signal(&finder->called);
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

static int begin_finder(struct tow_worker *worker);

int towi_view(struct tow_edge *edge, struct towi_views *views, const struct towi_place *place,
	      uint64_t bytes, uint32_t rights, struct towi_view **found)
{
	struct towi_view look = { .number = place->edge, .window = place->window }, *view;
	int ret;

	/* Nowhere. */
	if (!place->edge || !place->window)
		return -ERANGE;
	view = RB_FIND(towi_view_tree, &views->all, &look);
	if (view) {
		view->used = ++views->uses;
		*found = view;
		return result_of(views, view, place, bytes);
	}
	ret = begin_finder(edge->common.worker);
	if (!ret)
		ret = add_view(views, place, &view);
	if (ret)
		return ret;
	view->used = ++views->uses;
	look_for(edge, view, rights);
	return -EAGAIN;
}

bool towi_views_busy(const struct towi_views *views)
{
	struct towi_view *view;

	RB_FOREACH(view, towi_view_tree, (struct towi_view_tree *)&views->all)
		if (view->busy || view->looking)
			return true;
	return false;
}

void towi_views_free(struct towi_views *views)
{
	struct towi_view *view;

	while ((view = RB_MIN(towi_view_tree, &views->all)))
		drop_view(views, view);
}

/* ---- the thread that finds them --------------------------------------------- */

/* Called with the lock, which it lets go of meanwhile. */
static void find(struct tow_worker *worker, struct towi_view *view)
{
	struct tow_edge *edge = view->edge;
	struct tow_remote *remote = NULL;
	char name[NAME_BYTES];
	int ret;

	/* Of an edge that is over, or is to be closed, nothing is to be found. */
	ret = edge->error;
	if (!ret) {
		name_window(name, view->number, view->window, view->rights);
		towi_worker_unlock_quietly(worker);
		/* Whoever told of it has it: nobody waits for it to come. */
		ret = tow_resolve(edge->peer, name, view->rights, 0, &remote);
		towi_worker_lock(worker);
	}
	view->remote = remote;
	view->error = ret == -ENOENT || ret == -ETIMEDOUT ? -ESTALE : ret;
	view->looking = false;
	/* Whoever looks for the view takes it, and what has become of it. */
	towi_worker_noticed(worker, edge);
	/* Nothing else may tell of it. */
	towi_edge_nudge(edge);
	/* What was begun is handed over. */
	towi_worker_unlock_quietly(worker);
	towi_worker_lock(worker);
}

static void *find_all(void *arg)
{
	struct tow_worker *worker = arg;
	struct towi_finder *finder = &worker->finder;
	struct towi_view *view;

	towi_worker_lock(worker);
	while (!finder->ends) {
		view = finder->first;
		if (!view) {
			pthread_cond_wait(&finder->called, &worker->lock);
			continue;
		}
		finder->first = view->next;
		if (!finder->first)
			finder->last = &finder->first;
		find(worker, view);
	}
	towi_worker_unlock_quietly(worker);
	return NULL;
}

void towi_finder_begin(struct towi_finder *finder)
{
	finder->last = &finder->first;
	pthread_cond_init(&finder->called, NULL);
}

/* Signals are the program's. */
static int begin_finder(struct tow_worker *worker)
{
	struct towi_finder *finder = &worker->finder;
	sigset_t all, before;
	int ret;

	if (finder->runs)
		return 0;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ret = pthread_create(&finder->thread, NULL, find_all, worker);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	finder->runs = !ret;
	/* -EAGAIN would be another thing here. */
	return ret ? -ENOMEM : 0;
}

void towi_finder_end(struct tow_worker *worker)
{
	struct towi_finder *finder = &worker->finder;

	if (finder->runs) {
		towi_worker_lock(worker);
		finder->ends = true;
		pthread_cond_signal(&finder->called);
		towi_worker_unlock(worker);
		pthread_join(finder->thread, NULL);
	}
	pthread_cond_destroy(&finder->called);
}

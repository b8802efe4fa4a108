// SPDX-License-Identifier: GPL-2.0
/* What one end keeps of the other's windows: each is found once, and not lost while it is used. */
/* build: link -Wl,--wrap=tow_resolve -Wl,--wrap=tow_remote_bytes -Wl,--wrap=tow_remote_release -Wl,--wrap=tow_queue_enter */
#include <errno.h>
#include <stdatomic.h>

#include <kselftest.h>

#include "../pump/windows.h"
#include "tow_ring.h"

#define NUMBER		7U
#define WINDOW_BYTES	4096U
#define MANY		64U

/* ---- the other node ------------------------------------------------------------ */

static atomic_uint resolved, released;
static _Atomic int error;
static char remote;

int __wrap_tow_resolve(struct tow_peer *peer, const char *name, uint32_t rights,
		       uint32_t timeout_ms, struct tow_remote **found);
uint64_t __wrap_tow_remote_bytes(const struct tow_remote *of);
int __wrap_tow_remote_release(struct tow_remote *of);

int __wrap_tow_resolve(struct tow_peer *peer, const char *name, uint32_t rights,
		       uint32_t timeout_ms, struct tow_remote **found)
{
	(void)peer;
	(void)name;
	(void)rights;
	(void)timeout_ms;
	atomic_fetch_add(&resolved, 1);
	*found = error ? NULL : (struct tow_remote *)(void *)&remote;
	return error;
}

uint64_t __wrap_tow_remote_bytes(const struct tow_remote *of)
{
	(void)of;
	return WINDOW_BYTES;
}

int __wrap_tow_remote_release(struct tow_remote *of)
{
	released += of != NULL;
	return 0;
}

/* ---- who looks ----------------------------------------------------------------- */

static void ring_turn(struct tow_queue *queue)
{
	(void)queue;
}

static void go_on(struct towi_runner *runner)
{
	(void)runner;
}

static const struct towi_runner_ops ops = { .go_on = go_on };
static struct towi_pump pump = { .wake_fd = -1 };
static struct towi_runner runner = { .ops = &ops };
static _Atomic int over;
static struct towi_views views = { .viewer = { .runner = &runner, .error = &over } };

/* What is said of a window at once; the view, if it was found. */
static int ask(uint64_t window, struct towi_view **view)
{
	const struct towi_place place = { .edge = NUMBER, .window = window };
	int ret;

	towi_pump_lock(&pump);
	ret = towi_view(&views, &place, WINDOW_BYTES, TOW_RIGHT_READ, view);
	towi_pump_unlock_quietly(&pump);
	return ret;
}

/* The same, once it was looked for. */
static int find(uint64_t window, struct towi_view **view)
{
	int ret;

	while ((ret = ask(window, view)) == -EAGAIN) {
		towi_pump_lock(&pump);
		towi_pump_sleep(&pump, towi_until(1000));
		towi_pump_unlock(&pump);
	}
	return ret;
}

static bool finds_all(uint64_t first, uint64_t count)
{
	struct towi_view *view;
	bool good = true;

	for (uint64_t window = first; window < first + count; window++)
		good = good && !find(window, &view);
	return good;
}

static bool resolves(unsigned int wanted)
{
	unsigned int did = atomic_exchange(&resolved, 0);

	if (did != wanted)
		ksft_print_msg("%u were resolved, not %u\n", did, wanted);
	return did == wanted;
}

/* All that there may be are in use: there is no room for another one until one is not. */
static bool waits_for_room(void)
{
	struct towi_view *view, *last = NULL;
	bool good = true;

	for (uint64_t window = 1; window <= TOWI_VIEWS_MAX; window++) {
		good = good && !find(window, &last);
		last->busy = 1;
	}
	atomic_store(&resolved, 0);
	good = good && ask(TOWI_VIEWS_MAX + 1, &view) == -EAGAIN && resolves(0);
	last->busy = 0;
	good = good && !find(TOWI_VIEWS_MAX + 1, &view) && resolves(1);
	for (uint64_t window = 1; window < TOWI_VIEWS_MAX; window++) {
		good = good && !find(window, &view);
		view->busy = 0;
	}
	return good && resolves(0);
}

static bool tells_once(void)
{
	struct towi_view *view;
	bool good;

	error = -ENOENT;
	good = find(1000000, &view) == -ESTALE && resolves(1);
	error = 0;
	return good && !find(1000000, &view) && resolves(1);
}

static bool finds_nothing(void)
{
	struct towi_view *view;
	bool good;

	over = -ECANCELED;
	good = find(2000000, &view) == -ECANCELED && resolves(0);
	over = 0;
	return good && !find(2000000, &view) && resolves(1);
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(6);
	towi_pump_init(&pump, ring_make(16), 0, 0);
	towi_pump_join(&pump, &runner);
	/* In turn: what was found longest ago is wanted next. */
	ksft_test_result(finds_all(1, MANY) && finds_all(1, MANY) && finds_all(1, MANY) &&
			 resolves(MANY), "each of many is found once\n");
	ksft_test_result(finds_all(1, TOWI_VIEWS_MAX + MANY) && released == MANY &&
			 resolves(TOWI_VIEWS_MAX), "the oldest goes when there are too many\n");
	ksft_test_result(waits_for_room(), "none goes that is in use\n");
	ksft_test_result(tells_once(), "that one could not be found is told once\n");
	ksft_test_result(finds_nothing(), "nothing is looked for any more by who is over\n");
	released = 0;
	towi_views_free(&views);
	ksft_test_result(released == TOWI_VIEWS_MAX, "all are given back\n");
	ksft_finished();
}

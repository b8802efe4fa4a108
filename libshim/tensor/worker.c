// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/* Workers. */
#include <errno.h>
#include <stdlib.h>

#include <towline/mailbox.h>

#include "../alloc/arena.h"
#include "worker.h"

#define ENTRIES		256U
#define ENTRIES_MIN	16U
/* What waits besides edges: of the mailbox eight ends of lines that nobody has, and lines. */
#define LINES		(8U + 24U)
/* Of an arena for nothing but lines and headers. */
#define WORDS_BYTES	((uint64_t)2 << 20)
#define ATTR_SIZE_FIRST	(offsetof(struct tow_worker_attr, timeout_ms) + sizeof(uint32_t))

TOW_PUBLIC int tow_worker_progress(struct tow_worker *worker, uint32_t timeout_us)
{
	struct towi_pump *pump;
	uint64_t until, before;
	int ret = 0, count;

	if (!worker)
		return -EINVAL;
	pump = &worker->pump;
	if (!towi_pump_usable(pump))
		return -EPERM;
	until = towi_until(timeout_us);
	towi_pump_lock(pump);
	before = pump->ended;
	towi_pump_look(pump);
	while (timeout_us && pump->ended == before && !ret)
		ret = towi_pump_sleep(pump, until);
	count = (int)(pump->ended - before);
	towi_pump_unlock(pump);
	if (count)
		return count;
	return ret == -ETIMEDOUT ? 0 : ret;
}

static int begin_pump(struct tow_worker *worker, struct tow_device *dev,
		      const struct tow_worker_attr *attr)
{
	uint32_t entries = attr->entries ? attr->entries : ENTRIES;

	if (entries < ENTRIES_MIN)
		entries = ENTRIES_MIN;
	/* As many as there may be edges that wait for something. */
	return towi_pump_begin(&worker->pump, dev, entries, 2 * entries + LINES,
			       attr->timeout_ms);
}

static int get_words(struct tow_worker *worker)
{
	const struct tow_arena_attr attr = { .size = sizeof(attr), .region_bytes = WORDS_BYTES };

	if (towi_arena_far(worker->arena))
		return tow_arena_create(worker->dev, &attr, &worker->words);
	worker->words = worker->arena;
	return 0;
}

static void free_worker(struct tow_worker *worker)
{
	if (worker->words != worker->arena)
		tow_arena_destroy(worker->words);
	free(worker);
}

TOW_PUBLIC int tow_worker_create(struct tow_device *dev, struct tow_arena *arena,
				 const struct tow_worker_attr *attr, struct tow_worker **worker)
{
	struct tow_worker_attr known;
	struct tow_worker *made;
	int ret;

	if (!dev || !arena || !worker)
		return -EINVAL;
	if (!towi_ours(dev->process) || !towi_arena_ours(arena))
		return -EPERM;
	ret = towi_take(attr, ATTR_SIZE_FIRST, &known, sizeof(known));
	if (ret)
		return ret;
	made = calloc(1, sizeof(*made));
	if (!made)
		return -ENOMEM;
	made->dev = dev;
	made->arena = arena;
	ret = towi_crc32c_wanted(&made->crc32c);
	if (!ret)
		ret = get_words(made);
	if (!ret)
		ret = begin_pump(made, dev, &known);
	if (ret)
		free_worker(made);
	else
		*worker = made;
	return ret;
}

TOW_PUBLIC int tow_worker_destroy(struct tow_worker *worker)
{
	if (!worker)
		return 0;
	if (!towi_pump_usable(&worker->pump)) {
		tow_mailbox_destroy(worker->box);
		towi_pump_forget(&worker->pump);
		free_worker(worker);
		return -EPERM;
	}
	if (!TAILQ_EMPTY(&worker->pump.all))
		return -EBUSY;
	towi_pump_end(&worker->pump);
	free_worker(worker);
	return 0;
}

TOW_PUBLIC int tow_worker_fd(const struct tow_worker *worker)
{
	return worker ? tow_queue_fd(worker->pump.queue) : -EINVAL;
}

TOW_PUBLIC uint64_t tow_worker_copied(const struct tow_worker *worker)
{
	return worker ? atomic_load_explicit(&worker->copied, memory_order_relaxed) : 0;
}

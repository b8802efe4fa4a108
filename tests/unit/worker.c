// SPDX-License-Identifier: GPL-2.0
/* What workers and edges decide by themselves: by the clock, and by where a tensor is. */
/* build: link -Wl,--wrap=tow_queue_enter -Wl,--wrap=tow_channel_get -Wl,--wrap=tow_channel_put -Wl,--wrap=tow_slot_create -Wl,--wrap=tow_slot_destroy -Wl,--wrap=tow_export -Wl,--wrap=towi_region_far -Wl,--wrap=towi_region_lost -Wl,--wrap=towi_peer_number -Wl,--wrap=tow_device_query */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include <kselftest.h>

#include "../tensor/steps.h"
#include "tow_ring.h"
#include "tow_source.h"

#define TIMEOUT_MS	1000U
#define MOMENT_US	100000U

static void ended(struct towi_op *op, int status)
{
	(void)op;
	(void)status;
}

static void go_on(struct towi_runner *runner)
{
	(void)runner;
}

/* An edge with one step on its way. */
static void begin(struct tow_edge *edge, struct tow_worker *worker, uint32_t timeout_ms)
{
	static const struct towi_runner_ops ops = { .go_on = go_on };

	*worker = (struct tow_worker){ .pump.wake_fd = -1 };
	towi_pump_init(&worker->pump, ring_make(16), 0, timeout_ms);
	*edge = (struct tow_edge){ .runner.ops = &ops, .worker = worker };
	towi_pump_join(&worker->pump, &edge->runner);
	if (towi_steps_make(edge, ended))
		ksft_exit_fail_msg("no memory\n");
	towi_steps_give(edge->steps, towi_steps_next(edge->steps), NULL, NULL);
	towi_steps_begun(edge, towi_step(edge->steps, 1));
}

/* The error of an edge when somebody looks at the clock so much after its step had begun. */
static int error_after(int64_t us, uint32_t timeout_ms, bool over)
{
	struct tow_worker worker;
	struct tow_edge edge;

	begin(&edge, &worker, timeout_ms);
	towi_step(edge.steps, 1)->timed.since_us -= (uint64_t)us;
	if (over)
		towi_steps_over(&edge, towi_step(edge.steps, 1), 0);
	worker.pump.ticked_us = 0;
	tow_worker_progress(&worker, 0);
	towi_steps_free(&edge);
	ring_free(worker.pump.queue);
	return edge.error;
}

/* ---- who has a turn ----------------------------------------------------------------- */

#define RUNNERS		3000U
#define ONCE		1024U
#define RING_ENTRIES	4096U

/* Nobody notifies anything: what waits for a slot ends with that. */
static void ring_turn(struct tow_queue *queue)
{
	const struct tow_sqe *sqe;

	while ((sqe = ring_take(queue)))
		ring_complete(queue, sqe->user_data, -ESTALE);
}

struct counted {
	struct towi_runner runner;	/* first */
	uint32_t had;
};

static uint32_t turns;

static void count_turn(struct towi_runner *runner, uint64_t now_us)
{
	(void)now_us;
	((struct counted *)runner)->had++;
	turns++;
}

/* How many had one when the clock said so. */
static uint32_t tick(struct tow_worker *worker)
{
	turns = 0;
	worker->pump.ticked_us = 0;
	tow_worker_progress(worker, 0);
	return turns;
}

/* So many at once; of those that want none nobody is held up. */
static bool have_turns(void)
{
	static const struct towi_runner_ops ops = { .go_on = go_on, .tick = count_turn };
	static const struct towi_runner_ops idle_ops = { .go_on = go_on };
	static struct counted runners[RUNNERS];
	struct tow_worker worker = { .pump.wake_fd = -1 };
	uint32_t had[2];
	bool good;

	towi_pump_init(&worker.pump, ring_make(RING_ENTRIES), 0, 0);
	for (uint32_t i = 0; i < RUNNERS; i++) {
		runners[i].runner.ops = i & 1 ? &ops : &idle_ops;
		towi_pump_join(&worker.pump, &runners[i].runner);
	}
	for (uint32_t i = 0; i < 2; i++)
		had[i] = tick(&worker);
	good = had[0] == ONCE && had[1] == ONCE;
	for (uint32_t i = 1; i < RUNNERS; i += 2)
		good = good && runners[i].had;
	if (!good)
		ksft_print_msg("%u, %u had a turn\n", had[0], had[1]);
	ring_free(worker.pump.queue);
	return good;
}

/* ---- where tensors are --------------------------------------------------------------- */

#define TENSOR_BYTES	64U

/* What becomes of a tensor at @at: its place; a copy; or an error. */
static int staged(struct tow_worker *worker, const char *at, bool clone, bool copies)
{
	struct tow_edge edge = { .worker = worker };
	void *copied = NULL;
	int ret = towi_edge_stage(&edge, at, TENSOR_BYTES, clone, &copied);

	if (!ret && !copied == copies)
		ret = -EXDEV;
	tow_arena_free(worker->words, copied);
	return ret;
}

bool __wrap_towi_region_far(const struct tow_region *region, const void *ptr);
bool __wrap_towi_region_lost(const struct tow_region *region);

bool __wrap_towi_region_far(const struct tow_region *region, const void *ptr)
{
	(void)region;
	(void)ptr;
	return false;
}

bool __wrap_towi_region_lost(const struct tow_region *region)
{
	(void)region;
	return false;
}

/* In the arena, not in it, and at either end of its memory. */
static void test_places(void)
{
	struct source source = { 0 };
	struct tow_worker worker = { .arena = source_arena(&source, NULL) };
	char ordinary[TENSOR_BYTES] = { 0 }, *block = tow_arena_alloc(worker.arena, TENSOR_BYTES);
	struct source_region *made;
	struct tow_region *region;
	uint64_t offset;
	char *begin, *end;

	worker.words = worker.arena;
	if (!block || tow_arena_find(worker.arena, block, &region, &offset))
		ksft_exit_fail_msg("no memory\n");
	made = (struct source_region *)region;
	begin = made->at;
	end = begin + made->bytes;
	ksft_test_result(!staged(&worker, block, false, false) &&
			 !staged(&worker, end - TENSOR_BYTES, false, false),
			 "a tensor in a region is sent from there\n");
	ksft_test_result(!staged(&worker, ordinary, false, true) &&
			 !staged(&worker, block, true, true), "others are copied\n");
	ksft_test_result(staged(&worker, end - TENSOR_BYTES + 1, false, false) == -EINVAL &&
			 staged(&worker, end - 1, true, false) == -EINVAL,
			 "one that ends behind a region is refused\n");
	ksft_test_result(staged(&worker, begin - 1, false, false) == -EINVAL,
			 "and one that begins before it\n");
	tow_arena_free(worker.arena, block);
	tow_arena_destroy(worker.arena);
}

/* ---- a receiver, which is asked without the lock ---------------------------------------- */

/* What the kernel has counted: of the edge, and of nobody else. */
static uint64_t number, nothing;
static struct tow_slot slot = { .number = &number }, other_slot = { .number = &nothing };

int __wrap_tow_channel_get(struct tow_queue *queue, const struct tow_peer *peer, uint32_t qp,
			   struct tow_channel **channel);
int __wrap_tow_channel_put(struct tow_channel *channel);
int __wrap_tow_slot_create(struct tow_region *region, uint64_t offset, const char *name,
			   struct tow_slot **made);
int __wrap_tow_slot_destroy(struct tow_slot *of);
int __wrap_tow_export(struct tow_region *region, uint64_t offset, uint64_t bytes,
		      const char *name, uint32_t rights, struct tow_exported **exported);
uint64_t __wrap_towi_peer_number(const struct tow_peer *peer);
int __wrap_tow_device_query(const struct tow_device *dev, struct tow_device_attr *attr);

int __wrap_tow_device_query(const struct tow_device *dev, struct tow_device_attr *attr)
{
	(void)dev;
	(void)attr;
	return 0;
}

int __wrap_tow_channel_get(struct tow_queue *queue, const struct tow_peer *peer, uint32_t qp,
			   struct tow_channel **channel)
{
	static struct tow_channel only = { .qps = 1 };

	(void)queue;
	(void)peer;
	(void)qp;
	*channel = &only;
	return 0;
}

int __wrap_tow_channel_put(struct tow_channel *channel)
{
	(void)channel;
	return 0;
}

int __wrap_tow_slot_create(struct tow_region *region, uint64_t offset, const char *name,
			   struct tow_slot **made)
{
	(void)region;
	(void)offset;
	*made = strcmp(name, "name/arrived") ? &other_slot : &slot;
	return 0;
}

int __wrap_tow_slot_destroy(struct tow_slot *of)
{
	(void)of;
	return 0;
}

int __wrap_tow_export(struct tow_region *region, uint64_t offset, uint64_t bytes,
		      const char *name, uint32_t rights, struct tow_exported **exported)
{
	(void)region;
	(void)offset;
	(void)bytes;
	(void)name;
	(void)rights;
	*exported = NULL;
	return 0;
}

uint64_t __wrap_towi_peer_number(const struct tow_peer *peer)
{
	(void)peer;
	return 1;
}

/* As a sender does: 0, or how it does not fit. */
static void greet(const struct tow_edge *edge, uint64_t bytes)
{
	struct towi_header *header = (void *)(edge->letters + TOWI_HELLO_AT);

	*header = towi_edge_header(edge);
	header->bytes = bytes;
	number = 1;
}

/* While somebody else has it. */
static void test_receiver(void)
{
	static const struct tow_tensor_type type = { { TOW_DTYPE_FLOAT, 32, 1 }, 1, { 16 } };
	struct source source = { 0 };
	struct tow_worker worker = { .pump.wake_fd = -1, .arena = source_arena(&source, NULL) };
	struct tow_edge *edge = NULL;
	uint64_t step = 0;
	void *data = NULL;
	bool good;

	worker.words = worker.arena;
	towi_pump_init(&worker.pump, ring_make(16), 16, 0);
	/* Nobody looks into a peer here. */
	if (tow_static_receiver(&worker, (struct tow_peer *)(void *)&number, "name", &type, 2, &edge))
		ksft_exit_fail_msg("no edge\n");
	towi_pump_lock(&worker.pump);
	good = tow_edge_test(edge, &data, &step) == 0;
	greet(edge, TENSOR_BYTES + 1);
	good = good && tow_edge_test(edge, &data, &step) == -EPROTO;
	greet(edge, TENSOR_BYTES);
	good = good && tow_edge_test(edge, &data, &step) == 0;
	number = 3;
	good = good && tow_edge_test(edge, &data, &step) == 1 && step == 1 &&
	       data == edge->letters + TOWI_LETTERS_AT;
	towi_edge_fail(edge, -ESTALE);
	good = good && tow_edge_test(edge, &data, &step) == 1;
	number = 1;
	ksft_test_result(good && tow_edge_test(edge, &data, &step) == -ESTALE,
			 "whether a tensor has come is said without the lock\n");
	towi_pump_unlock(&worker.pump);
	tow_edge_close(edge);
	ring_free(worker.pump.queue);
	tow_arena_destroy(worker.arena);
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(11);
	ksft_test_result(!error_after(0, TIMEOUT_MS, false) &&
			 !error_after(TIMEOUT_MS * 1000LL / 2, TIMEOUT_MS, false),
			 "a step has all of its time\n");
	ksft_test_result(error_after(TIMEOUT_MS * 1000LL + MOMENT_US, TIMEOUT_MS, false) == -ETIMEDOUT,
			 "then it is late\n");
	ksft_test_result(!error_after(TIMEOUT_MS * 1000LL + MOMENT_US, TIMEOUT_MS, true),
			 "one that is over is not\n");
	/* Another peer was lost meanwhile, and that let the step begin. */
	ksft_test_result(!error_after(-(int64_t)MOMENT_US, TIMEOUT_MS, false),
			 "nor is one that began after the clock was looked at\n");
	ksft_test_result(!error_after(TIMEOUT_MS * 1000LL + MOMENT_US, 0, false),
			 "without a limit nothing is\n");
	test_places();
	test_receiver();
	ksft_test_result(have_turns(), "many have turns\n");
	ksft_finished();
}

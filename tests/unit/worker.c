// SPDX-License-Identifier: GPL-2.0
/* What workers and edges decide by themselves: by the clock, and by where a tensor is. */
/* build: link -Wl,--wrap=tow_queue_enter -Wl,--wrap=tow_channel_get -Wl,--wrap=tow_channel_put -Wl,--wrap=tow_slot_create -Wl,--wrap=tow_slot_destroy -Wl,--wrap=tow_export -Wl,--wrap=towi_peer_number */
#include <errno.h>
#include <stdint.h>

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

/* ---- who looks for the other end --------------------------------------------------- */

#define EDGES		3000U
#define ONCE		1024U
#define RING_ENTRIES	4096U

static void ring_turn(struct tow_queue *queue)
{
	(void)queue;
}

static void probe(struct towi_runner *runner, uint64_t now_us)
{
	towi_edge_probe((struct tow_edge *)runner, now_us);
}

/* How many looked in a tick. */
static uint32_t tick(struct tow_worker *worker)
{
	uint32_t before = worker->pump.in_flight;

	worker->pump.ticked_us = 0;
	tow_worker_progress(worker, 0);
	return worker->pump.in_flight - before;
}

/* Many edges, of which none has an answer: they have turns. */
static bool have_turns(void)
{
	static const struct towi_runner_ops ops = { .go_on = go_on, .tick = probe };
	static struct tow_edge edges[EDGES];
	static const struct { uint64_t handle; } range;
	static struct tow_channel channel;
	struct source source = { 0 };
	struct tow_worker worker = {
		.pump.wake_fd = -1, .arena = source_arena(&source, NULL),
	};
	char *own = tow_arena_zeroed(worker.arena, 1, TOWI_OWN_AT);
	uint32_t looked[3];
	bool good;

	towi_pump_init(&worker.pump, ring_make(RING_ENTRIES), 0, 0);
	for (uint32_t i = 0; i < EDGES; i++) {
		edges[i] = (struct tow_edge){
			.runner.ops = &ops, .worker = &worker,
			.sends = true, .own = own, .channel = &channel,
			.range = (struct tow_remote *)(uintptr_t)&range,
		};
		towi_edge_op(&edges[i], &edges[i].probe);
		towi_pump_join(&worker.pump, &edges[i].runner);
	}
	for (uint32_t i = 0; i < 3; i++)
		looked[i] = tick(&worker);
	good = looked[0] == ONCE && looked[1] == ONCE && looked[2] == EDGES - 2 * ONCE;
	if (!good)
		ksft_print_msg("%u, %u, %u edges looked\n", looked[0], looked[1], looked[2]);
	ring_free(worker.pump.queue);
	tow_arena_free(worker.arena, own);
	tow_arena_destroy(worker.arena);
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
	tow_arena_free(worker->arena, copied);
	return ret;
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

/* What the kernel has counted. */
static uint64_t number;
static struct tow_slot slot = { .number = &number };

int __wrap_tow_channel_get(struct tow_queue *queue, const struct tow_peer *peer, uint32_t qp,
			   struct tow_channel **channel);
int __wrap_tow_channel_put(struct tow_channel *channel);
int __wrap_tow_slot_create(struct tow_region *region, uint64_t offset, const char *name,
			   struct tow_slot **made);
int __wrap_tow_slot_destroy(struct tow_slot *of);
int __wrap_tow_export(struct tow_region *region, uint64_t offset, uint64_t bytes,
		      const char *name, uint32_t rights, struct tow_exported **exported);
uint64_t __wrap_towi_peer_number(const struct tow_peer *peer);

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
	(void)name;
	*made = &slot;
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
	ksft_test_result(have_turns(), "many edges look for their other ends in turns\n");
	ksft_finished();
}

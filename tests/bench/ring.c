// SPDX-License-Identifier: GPL-2.0
/*
 * How long reads and writes take through a queue.
 *
 * The node at ADDRESS (-a) has the other end of them; without, it is our own.  With -k
 * the kernel's poller takes entries, and there are no calls.  With -q they go by so many
 * queue pairs, one after the other; not with batches.
 * work.h has the other options.  What is done (-m):
 *
 *	each	one after the other, each timed: the median, the 99th percentile
 *		and the mean in microseconds
 *	many	as many at a time as the window has: what one takes, and how much
 *		that makes in a second
 *	list	the same, with each batch as one entry of many pieces
 *	among	the same with EXPORTS (-e) exports over at most 500 regions, of which
 *		1,000 are used (all, if there are fewer), by chance
 *	import	as many, from places by chance in MEBIBYTES (-i) of our own memory, whose
 *		pages are scattered
 *	serve	be the other end, until killed
 */
#include <getopt.h>
#include <poll.h>
#include "ring.h"
#include "work.h"

#define NAME		"bench"
#define REGIONS_MAX	500U
#define REGION_BYTES	((uint64_t)64 << 10)
#define EXPORT_BYTES	((uint64_t)4 << 10)
#define REMOTES_MAX	1000U
#define CHANNELS_MAX	8U

struct state {
	struct work work;
	const char *address;
	bool polled;
	uint32_t exports, mebibytes;
	/* Where they may begin in our region, one after the other. */
	uint32_t starts;
	int device;
	struct ring ring;
	int channels[CHANNELS_MAX];
	uint32_t channel_count;
	__u64 peer;
	/* "list": of a batch; NULL: each operation is an entry. */
	struct tow_vector *list;
	__u64 list_region;
	/* "among" has many of both, the others one. */
	__u64 regions[REGIONS_MAX], remotes[REMOTES_MAX];
	uint32_t region_count, remote_count;
	uint32_t random;
};

static int must(const char *what, int ret)
{
	if (ret < 0)
		die(what, -ret);
	return ret;
}

/* ---- the parts ------------------------------------------------------------- */

/* TOW_LAB_ADDRS begins with it. */
static const char *own_address(void)
{
	static char own[64];
	const char *all = getenv("TOW_LAB_ADDRS");

	if (!all)
		die("TOW_LAB_ADDRS", ENOENT);
	snprintf(own, sizeof(own), "%.*s", (int)strcspn(all, ","), all);
	return own;
}

static void open_device(struct state *state)
{
	state->device = must(state->work.device, ring_open_device(state->work.device));
}

static void make_memory(struct state *state)
{
	must("region", ring_region(state->device, work_memory(&state->work),
			   &state->regions[0]));
	state->region_count = 1;
}

/* Page by page, and neighbours not one after the other. */
static char *make_scattered(size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), count = bytes / page;
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		die("memory", errno);
	must("madvise", madvise(memory, bytes, MADV_NOHUGEPAGE) ? -errno : 0);
	for (size_t i = 0; i < count; i++)
		memory[i * 104729 % count * page] = 1;
	return memory;
}

static void import_memory(struct state *state)
{
	struct tow_region_import_user import = {
		.size = sizeof(import),
		.bytes = (uint64_t)state->mebibytes << 20,
	};

	import.address = (uintptr_t)make_scattered(import.bytes);
	must("import", ioctl(state->device, TOW_IOCTL_REGION_IMPORT_USER, &import) ? -errno : 0);
	state->regions[0] = import.handle;
	state->region_count = 1;
	state->starts = (uint32_t)(import.bytes / state->work.bytes);
}

static void publish(struct state *state, const char *name)
{
	__u64 region = 0;

	must("region", ring_region(state->device, work_memory(&state->work), &region));
	must("export", ring_export(state->device, region, 0, work_memory(&state->work), name));
}

static void connect_peer(struct state *state)
{
	const char *address = state->address ? state->address : own_address();

	must("connect", ring_connect(state->device, address, &state->peer));
}

static void make_queue(struct state *state)
{
	must("queue", ring_make(state->device, 2 * WORK_WINDOW_MAX, state->polled,
				&state->ring));
	for (uint32_t i = 0; i < state->channel_count; i++)
		state->channels[i] = must("channel", ring_channel(&state->ring, state->peer, i));
}

/* One region at each end. */
static void make_ends(struct state *state)
{
	char name[32] = NAME;

	open_device(state);
	make_memory(state);
	/* Others of our user may do the same. */
	if (!state->address) {
		snprintf(name, sizeof(name), NAME "-%d", (int)getpid());
		publish(state, name);
	}
	connect_peer(state);
	must("resolve", ring_resolve(state->device, state->peer, name, &state->remotes[0]));
	state->remote_count = 1;
	make_queue(state);
}

static uint32_t any_of(struct state *state, uint32_t count)
{
	if (count == 1)
		return 0;
	state->random = state->random * 1664525 + 1013904223;
	return (uint32_t)(((uint64_t)state->random * count) >> 32);
}

/* The operation of a number; @last of those that are submitted together. */
static void prepare(struct state *state, uint32_t number, bool last)
{
	uint64_t offset = work_offset(&state->work, number);
	struct tow_sqe *sqe = ring_next(&state->ring);

	*sqe = (struct tow_sqe){
		.opcode = state->work.read ? TOW_OP_READ : TOW_OP_WRITE,
		.flags = last ? 0 : TOW_SQE_SILENT,
		.channel = (__u16)state->channels[number % state->channel_count],
		.user_data = number,
		.region = state->regions[any_of(state, state->region_count)],
		.offset = offset + (uint64_t)any_of(state, state->starts) * state->work.bytes,
		.remote = state->remotes[any_of(state, state->remote_count)],
		.remote_offset = offset,
		.bytes = state->work.bytes,
	};
}

/* A batch from a number on, as one entry. */
static void prepare_list(struct state *state, uint32_t number)
{
	struct tow_sqe *sqe = ring_next(&state->ring);

	for (uint32_t i = 0; i < state->work.batch; i++) {
		uint64_t offset = work_offset(&state->work, number + i);

		state->list[i] = (struct tow_vector){
			.offset = offset, .remote_offset = offset, .bytes = state->work.bytes,
		};
	}
	*sqe = (struct tow_sqe){
		.opcode = state->work.read ? TOW_OP_READ : TOW_OP_WRITE,
		.flags = TOW_SQE_VECTOR,
		.channel = (__u16)state->channels[0],
		.user_data = number,
		.region = state->regions[0],
		.vector = state->list_region,
		.remote = state->remotes[0],
		.bytes = state->work.batch * sizeof(struct tow_vector),
	};
}

static void prepare_batch(struct state *state, uint32_t number)
{
	uint32_t batch = state->work.batch;

	if (state->list)
		prepare_list(state, number);
	else
		for (uint32_t i = 0; i < batch; i++)
			prepare(state, number + i, i == batch - 1);
}

static void reap(struct state *state, uint32_t *completed)
{
	int status = 0;

	*completed += ring_reap(&state->ring, &status) * state->work.batch;
	must("operation", status);
}

/* One call for each batch; it waits where the window has no room for another. */
static void run(struct state *state, uint32_t count)
{
	const struct work *work = &state->work;
	uint32_t posted = 0, completed = 0;

	while (completed < count) {
		bool room = posted < count && posted - completed + work->batch <= work->window;

		if (room) {
			prepare_batch(state, posted);
			posted += work->batch;
		}
		room = posted < count && posted - completed + work->batch <= work->window;
		must("enter", ring_enter(&state->ring, room ? 0 : 1));
		reap(state, &completed);
	}
}

/* ---- what is done ---------------------------------------------------------- */

/* As a program does that waits for other things, too. */
static void sleep_for_one(struct state *state)
{
	struct pollfd wait = { .fd = state->ring.fd, .events = POLLIN };

	if (poll(&wait, 1, RING_WAIT_MS) != 1)
		die("poll", errno);
}

static void run_each(struct state *state)
{
	double *sample = calloc(state->work.count, sizeof(*sample));
	uint32_t completed = 0;
	double before, after;

	if (!sample)
		die("memory", ENOMEM);
	make_ends(state);
	run(state, state->work.window);
	before = now_us();
	for (uint32_t i = 0; i < state->work.count; i++) {
		prepare(state, i, true);
		must("enter", ring_enter(&state->ring, state->work.asleep ? 0 : 1));
		if (state->work.asleep)
			sleep_for_one(state);
		reap(state, &completed);
		after = now_us();
		sample[i] = after - before;
		before = after;
	}
	report(sample, state->work.count);
	free(sample);
}

static void time_many(struct state *state)
{
	double before;

	run(state, state->work.window);
	before = now_us();
	run(state, state->work.count);
	work_report(now_us() - before, state->work.count, state->work.bytes);
}

static void run_many(struct state *state)
{
	make_ends(state);
	time_many(state);
}

static void run_list(struct state *state)
{
	struct tow_region_create call = {
		.size = sizeof(call), .bytes = WORK_LIST_MAX * sizeof(*state->list),
	};

	make_ends(state);
	must("list", ring_call(state->device, TOW_IOCTL_REGION_CREATE, &call));
	state->list_region = call.handle;
	state->list = mmap(NULL, call.map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, call.fd, 0);
	if (state->list == MAP_FAILED)
		die("list", errno);
	time_many(state);
}

static const char *name_of(uint32_t number)
{
	static char name[48];

	snprintf(name, sizeof(name), "model.layers.%010u.gradient", number);
	return name;
}

static void publish_many(struct state *state)
{
	state->region_count = state->exports < REGIONS_MAX ? state->exports : REGIONS_MAX;
	for (uint32_t i = 0; i < state->region_count; i++)
		must("region", ring_region(state->device, REGION_BYTES, &state->regions[i]));
	for (uint32_t i = 0; i < state->exports; i++)
		must("export", ring_export(state->device, state->regions[i % state->region_count],
					   i / state->region_count * EXPORT_BYTES % REGION_BYTES,
					   EXPORT_BYTES, name_of(i)));
}

static void run_among(struct state *state)
{
	open_device(state);
	publish_many(state);
	connect_peer(state);
	state->remote_count = state->exports < REMOTES_MAX ? state->exports : REMOTES_MAX;
	for (uint32_t i = 0; i < state->remote_count; i++) {
		uint32_t number = (uint32_t)((uint64_t)i * state->exports / state->remote_count);

		must("resolve", ring_resolve(state->device, state->peer, name_of(number),
					     &state->remotes[i]));
	}
	make_queue(state);
	time_many(state);
}

static void run_import(struct state *state)
{
	open_device(state);
	import_memory(state);
	publish(state, NAME);
	connect_peer(state);
	must("resolve", ring_resolve(state->device, state->peer, NAME, &state->remotes[0]));
	state->remote_count = 1;
	make_queue(state);
	time_many(state);
}

static void run_serve(struct state *state)
{
	open_device(state);
	publish(state, NAME);
	for (;;)
		pause();
}

static const struct {
	const char *name;
	void (*run)(struct state *state);
} modes[] = {
	{ "each", run_each }, { "many", run_many }, { "list", run_list },
	{ "among", run_among }, { "import", run_import }, { "serve", run_serve },
};

/* ---- the program ----------------------------------------------------------- */

static void __attribute__((noreturn)) usage(void)
{
	fputs("usage: ring -m each|many|list|among|import|serve [-k] [-a ADDRESS] [-e EXPORTS]\n"
	      "            [-i MEBIBYTES] [-q QUEUE_PAIRS]\n"
	      "            " WORK_USAGE "\n", stderr);
	exit(2);
}

static size_t mode_of(const char *name)
{
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		if (!strcmp(modes[i].name, name))
			return i + 1;
	}
	usage();
}

int main(int argc, char **argv)
{
	static struct state state = { .work = WORK_DEFAULT, .exports = 1,
				      .mebibytes = 1, .starts = 1, .channel_count = 1 };
	size_t mode = 0;
	int option;

	while ((option = getopt(argc, argv, WORK_OPTIONS "km:a:e:i:q:")) != -1) {
		if (option == 'm')
			mode = mode_of(optarg);
		else if (option == 'a')
			state.address = optarg;
		else if (option == 'k')
			state.polled = true;
		else if (option == 'e' ? !work_number(optarg, 1, 10000000, &state.exports) :
			 option == 'i' ? !work_number(optarg, 1, 4096, &state.mebibytes) :
			 option == 'q' ? !work_number(optarg, 1, CHANNELS_MAX,
						      &state.channel_count) :
			 !work_option(&state.work, option, optarg))
			usage();
	}
	if (!mode || optind != argc || !work_valid(&state.work))
		usage();
	modes[mode - 1].run(&state);
	return 0;
}

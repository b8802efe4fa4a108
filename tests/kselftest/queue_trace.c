// SPDX-License-Identifier: GPL-2.0
/*
 * What is quick about a queue, by the kernel's own trace events: entries that are
 * taken, begun and completed allocate nothing and register nothing, and a call that
 * is not to wait does not sleep.
 *
 * What soft-RoCE allocates for its packets is not towline's: each event comes with
 * the stack that it came from, and whoever called the allocator is the first one
 * there who is neither the kernel's nor the RDMA core's.  Two controls: calls that do
 * allocate and register are seen to; and every entry's completion is, where it
 * belongs.
 */
#include <sys/resource.h>
#include "tow_queue.h"
#include "tow_tracing.h"

#define POOL_BYTES	(8 * TOW_SLAB)
#define REGION_BYTES	(2 * TOW_SLAB)
#define ENTRIES		64U
#define ROUNDS		3U

static const char * const allocating[] = {
	"kmem/kmalloc", "kmem/kmalloc_node", "kmem/kmem_cache_alloc", "kmem/kmem_cache_alloc_node",
	"kmem/mm_page_alloc", "percpu/percpu_alloc_percpu", "vmalloc/alloc_vmap_area",
	"towline/tow_slab_make", "towline/tow_chunk_alloc",
};

static const char * const registering[] = {
	"rdma_core/mr_alloc", "rdma_core/mr_integ_alloc", "rdma_core/mr_dereg",
	"towline/tow_mr_register", "towline/tow_mr_invalidate",
};

#define COMPLETING	"towline/tow_entry"

#define EVENTS_MAX	(ARRAY_SIZE(allocating) + ARRAY_SIZE(registering) + 1)

static size_t all_events(const char **events)
{
	size_t count = 0, i;

	for (i = 0; i < ARRAY_SIZE(allocating); i++)
		events[count++] = allocating[i];
	for (i = 0; i < ARRAY_SIZE(registering); i++)
		events[count++] = registering[i];
	events[count++] = COMPLETING;
	return count;
}

FIXTURE(trace)
{
	struct tow_user user;
	struct tow_mapped own, target;
	__u64 remote;
};

FIXTURE_SETUP(trace)
{
	ASSERT_EQ(0, tow_queue_fresh(POOL_BYTES));
	ASSERT_EQ(0, tow_user_make(&self->user, ENTRIES, 0));
	ASSERT_EQ(0, tow_make_target(&self->user, REGION_BYTES, &self->own, &self->target,
				     &self->remote));
}

FIXTURE_TEARDOWN_PARENT(trace)
{
	const char *events[EVENTS_MAX];

	if (!tow_tracing_end(events, all_events(events)))
		TH_LOG("events are still traced");
}

static int make_trace(void)
{
	const char *events[EVENTS_MAX];

	return tow_tracing_make(events, all_events(events));
}

/* ---- what a trace tells ----------------------------------------------------------------- */

/* Whose call it was, by its stack. */
enum whose {
	NOBODYS,
	TOWLINES,	/* towline called the allocator, or the event is its own */
	DRIVERS,	/* the RDMA device's driver did */
};

struct event {
	char name[64];
	long pid;
	enum whose whose;
	bool decided;	/* who it was */
	bool way;	/* on the way of an entry */
};

/* What was heard, in events. */
struct heard {
	unsigned int all;
	unsigned int allocations;	/* by towline, of this process or on an entry's way */
	unsigned int registrations;	/* likewise */
	unsigned int completions;	/* of entries, on their way */
	unsigned int drivers;		/* allocations by the driver */
	char example[64];		/* one of @allocations or @registrations */
};

static bool is_one_of(const char *name, const char * const *events, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++)
		if (!strcmp(name, strchr(events[i], '/') + 1))
			return true;
	return false;
}

/* Where a call that takes and begins entries, or who completes them, comes along. */
static bool is_way(const char *function)
{
	static const char * const way[] = {
		"tow_queue_enter", "tow_cq_work", "tow_cq_serve", "tow_queue_run_later",
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(way); i++)
		if (!strncmp(function, way[i], strlen(way[i])))
			return true;
	return false;
}

/*
 * Whoever was interrupted has called nobody; nor has who is watched by a kernel that
 * writes down which objects there are.
 */
static bool is_not_asked(const char *function)
{
	return !strncmp(function, "asm_", 4) || strstr(function, "softirq") ||
	       strstr(function, "debug_object");
}

/* " => function+0x1/0x2 [module]", the innermost first. */
static void hear_frame(struct event *event, const char *line)
{
	char function[128] = "", module[64] = "";

	if (sscanf(line, " => %127s [%63[^]]", function, module) < 1)
		return;
	if (is_way(function) && !strcmp(module, "towline"))
		event->way = true;
	if (event->decided)
		return;
	if (is_not_asked(function)) {
		event->decided = true;
	} else if (module[0] && strcmp(module, "ib_core")) {
		event->decided = true;
		event->whose = strcmp(module, "towline") ? DRIVERS : TOWLINES;
	}
}

/* "  name-PID  [cpu] flags  seconds: event: …"; or another line, and there is none. */
static void hear_begin(struct event *event, const char *line)
{
	const char *cpu = strstr(line, " ["), *at;
	char name[sizeof(event->name)];

	event->name[0] = '\0';
	if (line[0] == '#' || !cpu || sscanf(cpu, " [%*d] %*s %*[0-9.]: %63[^: ]", name) != 1)
		return;
	for (at = cpu; at > line && *at != '-'; at--)
		;
	*event = (struct event){ .pid = strtol(at + 1, NULL, 10) };
	memcpy(event->name, name, sizeof(name));
}

static void hear_end(struct heard *heard, const struct event *event)
{
	bool counts = event->whose == TOWLINES && (event->pid == getpid() || event->way);
	unsigned int *which = NULL;

	if (!event->name[0])
		return;
	heard->all++;
	if (is_one_of(event->name, allocating, ARRAY_SIZE(allocating)))
		which = &heard->allocations;
	if (is_one_of(event->name, registering, ARRAY_SIZE(registering)))
		which = &heard->registrations;
	heard->completions += !strcmp(event->name, "tow_entry") && event->way;
	heard->drivers += which == &heard->allocations && event->whose == DRIVERS;
	if (!which || !counts)
		return;
	(*which)++;
	memcpy(heard->example, event->name, sizeof(heard->example));
}

/* Events whose stack has not come yet: those that were interrupted wait for theirs. */
#define NESTED_MAX	8U

/*
 * What one processor has told; the stack comes behind its event, in a line of its own.
 * False: too many events have none, and nothing is known of them.
 */
static bool hear_processor(struct heard *heard, FILE *file)
{
	struct event waiting[NESTED_MAX], event = { .pid = 0 };
	unsigned int count = 0;
	char line[512];

	while (fgets(line, sizeof(line), file)) {
		if (!strncmp(line, " => ", 4)) {
			hear_frame(&event, line);
			continue;
		}
		hear_end(heard, &event);
		hear_begin(&event, line);
		if (strstr(line, "<stack trace>")) {
			event = count ? waiting[--count] : (struct event){ .pid = 0 };
			continue;
		}
		if (event.name[0] && count == NESTED_MAX)
			return false;
		if (event.name[0])
			waiting[count++] = event;
		event.name[0] = '\0';
	}
	hear_end(heard, &event);
	return true;
}

/*
 * What was traced since tow_tracing_on(): one processor after the other, as a stack is
 * next to its event in no other way.
 */
static int hear(struct heard *heard)
{
	glob_t found;
	size_t i;
	int ret;

	memset(heard, 0, sizeof(*heard));
	ret = tow_tracing_put("tracing_on", "0");
	if (ret)
		return ret;
	if (glob(TOW_TRACING "/per_cpu/cpu*/trace", 0, NULL, &found))
		return -ENOENT;
	for (i = 0; i < found.gl_pathc; i++) {
		FILE *file = fopen(found.gl_pathv[i], "re");

		if (!file || !hear_processor(heard, file))
			ret = -EBADMSG;
		if (file)
			fclose(file);
	}
	globfree(&found);
	if (ret)
		return ret;
	return tow_tracing_lost() ? -EOVERFLOW : 0;
}

/* ---- what is done ------------------------------------------------------------------------- */

/* Reads and writes of a few lengths, some of them neighbours: all of the ring. */
static bool fill(FIXTURE_DATA(trace) *self, unsigned int round)
{
	static const __u64 bytes[] = { 8, 64, 4096, 20000 };
	unsigned int i;

	for (i = 0; i < ENTRIES; i++) {
		__u8 opcode = i / 4 % 2 ? TOW_OP_READ : TOW_OP_WRITE;
		__u64 length = bytes[(i / 8 + round) % ARRAY_SIZE(bytes)];
		__u64 at = i % 2 ? length * i : (__u64)32768 * i;
		struct tow_sqe sqe = tow_move(&self->user, opcode, self->own.made.handle, at,
					      self->remote, at, length);

		sqe.flags = i % 16 == 5 ? TOW_SQE_LINK : i % 16 == 11 ? TOW_SQE_FENCE : 0;
		if (!tow_rings_put(&self->user.rings, &sqe))
			return false;
	}
	return true;
}

/* All of them have ended well; without a system call. */
static int finish(FIXTURE_DATA(trace) *self)
{
	struct tow_patience patience = tow_patience(TOW_LONG_US / 1e6);
	struct tow_cqe cqe;
	int ret = 0;

	while (tow_rings_ready(&self->user.rings) < ENTRIES)
		if (!tow_patient(&patience))
			return -ETIMEDOUT;
	while (tow_rings_take(&self->user.rings, &cqe))
		ret = ret ? ret : cqe.status;
	return ret;
}

/* Entries by calls that wait for @complete of them. */
static int go(FIXTURE_DATA(trace) *self, unsigned int round, __u32 complete)
{
	int ret;

	if (!fill(self, round))
		return -EXFULL;
	ret = tow_rings_enter(&self->user.rings, complete, TOW_LONG_US);
	if (ret != (int)ENTRIES)
		return ret < 0 ? ret : -EXFULL;
	return finish(self);
}

/* ---- the test ------------------------------------------------------------------------------- */

static void check_way(struct __test_metadata *_metadata, FIXTURE_DATA(trace) *self,
		      __u32 complete)
{
	struct heard heard;
	unsigned int round;

	ASSERT_EQ(0, make_trace());
	/* The first ones make what stays: the driver's, and pages that are touched. */
	ASSERT_EQ(0, go(self, 0, complete));
	ASSERT_EQ(0, tow_tracing_on());
	for (round = 0; round < ROUNDS; round++)
		ASSERT_EQ(0, go(self, round, complete));
	ASSERT_EQ(0, hear(&heard));
	TH_LOG("%u events: %u completions, %u allocations of the driver", heard.all,
	       heard.completions, heard.drivers);
	EXPECT_EQ(0, heard.allocations)
		TH_LOG("%s", heard.example);
	EXPECT_EQ(0, heard.registrations)
		TH_LOG("%s", heard.example);
	/* Nothing was missed, and stacks lead where they must. */
	EXPECT_EQ(ROUNDS * ENTRIES, heard.completions);
	EXPECT_LT(0, heard.drivers);
}

TEST_F_TIMEOUT(trace, entries_allocate_and_register_nothing, 120)
{
	check_way(_metadata, self, 0);
}

TEST_F_TIMEOUT(trace, nor_do_calls_that_wait, 120)
{
	check_way(_metadata, self, ENTRIES);
}

/* The same ears hear those who do. */
TEST_F_TIMEOUT(trace, others_are_heard, 120)
{
	struct tow_rings rings;
	struct tow_channel_open channel;
	struct heard heard;
	__u64 exported;

	ASSERT_EQ(0, make_trace());
	ASSERT_EQ(0, tow_tracing_on());
	ASSERT_EQ(0, tow_rings_make(self->user.fd, 1, 0, &rings));
	ASSERT_EQ(0, hear(&heard));
	EXPECT_LT(0, heard.allocations);
	EXPECT_EQ(0, heard.registrations);
	EXPECT_EQ(0, heard.completions);
	ASSERT_EQ(0, tow_tracing_on());
	ASSERT_EQ(0, tow_channel_open(rings.made.fd, self->user.peer, 0, &channel));
	ASSERT_EQ(0, hear(&heard));
	EXPECT_LT(0, heard.allocations);
	EXPECT_EQ(0, heard.registrations);
	/* Of memory that is not registered with these rights yet. */
	ASSERT_EQ(0, tow_tracing_on());
	ASSERT_EQ(0, tow_publish_for(self->user.fd, self->own.made.handle, "own", REGION_BYTES,
				     TOW_RIGHT_READ, &exported));
	ASSERT_EQ(0, hear(&heard));
	EXPECT_LT(0, heard.allocations);
	EXPECT_LT(0, heard.registrations);
	tow_rings_end(&rings);
}

/* How often this process gave its processor away. */
static long sleeps(void)
{
	struct rusage usage;

	return getrusage(RUSAGE_THREAD, &usage) ? -1 : usage.ru_nvcsw;
}

TEST_F_TIMEOUT(trace, who_is_not_to_wait_does_not_sleep, 120)
{
	struct tow_rings *rings = &self->user.rings;
	unsigned int round;
	long before;

	ASSERT_EQ(0, go(self, 0, 0));
	before = sleeps();
	ASSERT_LE(0, before);
	for (round = 0; round < 20 * ROUNDS; round++) {
		ASSERT_TRUE(fill(self, round));
		ASSERT_EQ(ENTRIES, tow_rings_enter(rings, 0, 0));
		ASSERT_EQ(0, finish(self));
	}
	EXPECT_EQ(before, sleeps());
	/* Who is to wait does. */
	EXPECT_EQ(-ETIMEDOUT, tow_enter(rings->made.fd, 0, 1, 10000));
	EXPECT_LT(before, sleeps());
}

TEST_HARNESS_MAIN

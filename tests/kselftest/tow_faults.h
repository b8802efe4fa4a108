/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Letting the n-th allocation fail that a task makes on towline's behalf, or
 * the n-th copy from or to user space; loading and unloading the module as a
 * task that can be told so.
 *
 * For kernels with fault injection.
 */
#ifndef TOW_FAULTS_H
#define TOW_FAULTS_H

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "tow_rdma.h"
#include "tow_test.h"

#define DEBUGFS		"/sys/kernel/debug/"
#define ROUNDS_MAX	4000

/* Which allocations fail; the others are filtered out by an empty range. */
enum fault { FAIL_SLAB, FAIL_PAGE, FAIL_USERCOPY, FAULTS };

static const char * const fault_dir[] = {
	DEBUGFS "failslab", DEBUGFS "fail_page_alloc", DEBUGFS "fail_usercopy",
};

struct range {
	unsigned long start, end;
};

static const struct range nothing = { 1, 2 };

static inline bool put(const char *dir, const char *file, const char *format, unsigned long value)
{
	char path[320];
	FILE *out;
	bool ok;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	out = fopen(path, "we");
	if (!out)
		return false;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	ok = fprintf(out, format, value) > 0;
#pragma GCC diagnostic pop
	return !fclose(out) && ok;
}

/* Only @fault, only below functions in @range; armed by fail-nth. */
static inline bool filter(enum fault fault, struct range range)
{
	bool ok = true;
	int i;

	for (i = 0; i < FAULTS; i++) {
		struct range want = i == (int)fault ? range : nothing;

		ok &= put(fault_dir[i], "probability", "%lu\n", 0);
		ok &= put(fault_dir[i], "verbose", "%lu\n", 0);
		ok &= put(fault_dir[i], "stacktrace-depth", "%lu\n", 32);
		ok &= put(fault_dir[i], "require-start", "0x%lx\n", want.start);
		ok &= put(fault_dir[i], "require-end", "0x%lx\n", want.end);
	}
	ok &= put(fault_dir[FAIL_SLAB], "ignore-gfp-wait", "N\n", 0);
	ok &= put(fault_dir[FAIL_PAGE], "ignore-gfp-wait", "N\n", 0);
	ok &= put(fault_dir[FAIL_PAGE], "ignore-gfp-highmem", "N\n", 0);
	ok &= put(fault_dir[FAIL_PAGE], "min-order", "%lu\n", 0);
	return ok;
}

/*
 * From the symbol @first up to the next one; without it, from the module's lowest
 * function to the end of the page that its highest one begins in.  @module: NULL: the
 * kernel itself
 */
static inline struct range text_of(const char *first, const char *module)
{
	struct range range = { ULONG_MAX, 0 };
	char line[512], name[256], owner[64];
	unsigned long address, found = 0, next = ULONG_MAX;
	FILE *symbols = fopen("/proc/kallsyms", "re");
	char type;

	while (symbols && fgets(line, sizeof(line), symbols)) {
		owner[0] = '\0';
		if (sscanf(line, "%lx %c %255s [%63[^]]", &address, &type, name, owner) < 3)
			continue;
		if (type != 't' && type != 'T')
			continue;
		if (strcmp(owner, module ? module : ""))
			continue;
		if (!first && address < range.start)
			range.start = address;
		if (!first && address > range.end)
			range.end = address;
		if (first && !found && !strcmp(name, first))
			found = address;
	}
	if (first && symbols) {
		rewind(symbols);
		while (fgets(line, sizeof(line), symbols))
			if (sscanf(line, "%lx %c", &address, &type) == 2 && address > found &&
			    address < next)
				next = address;
		range = (struct range){ found, next };
	} else {
		range.end = (range.end | 4095) + 1;
	}
	if (symbols)
		fclose(symbols);
	return range;
}

static inline struct range module_text(void)
{
	return text_of(NULL, "towline");
}

/* A task's fail-nth; -1 if it has gone. */
static inline long get_nth(const char *task)
{
	char path[300], line[32];

	snprintf(path, sizeof(path), "/proc/%s/fail-nth", task);
	tow_test_read_line(path, line, sizeof(line));
	return line[0] ? atol(line) : -1;
}

static inline bool set_nth(const char *task, long nth)
{
	char dir[300];

	snprintf(dir, sizeof(dir), "/proc/%s", task);
	return put(dir, "fail-nth", "%lu", (unsigned long)nth);
}

/* From here on the n-th of one's own fails. */
static inline bool begin_nth(long nth)
{
	return set_nth("self", nth);
}

/* No more: did one fail? */
static inline bool end_nth(void)
{
	bool failed = get_nth("self") == 0;

	set_nth("self", 0);
	return failed;
}

/* What fails now and then; all of it is handed a test's fixture. */
struct action {
	const char *name;
	int (*act)(void *self);
	int (*undo)(void *self);
	bool allocates[FAULTS];		/* or copies: one at least makes it fail */
};

/*
 * The first, then the second, … of what it needs fails, until none is left to fail.
 * @settled: nothing is left of what was done last.
 */
static inline void all_rounds(struct __test_metadata *_metadata, void *self,
			      const struct action *action, enum fault fault,
			      bool (*settled)(void *self))
{
	const int error = fault == FAIL_USERCOPY ? -EFAULT : -ENOMEM;
	int rounds = 0, failures = 0, ret;
	bool injected;
	long nth;

	for (nth = 1; nth < ROUNDS_MAX; nth++) {
		ASSERT_TRUE(filter(fault, module_text()));
		ASSERT_TRUE(begin_nth(nth));
		ret = action->act(self);
		injected = end_nth();
		ASSERT_TRUE(filter(FAULTS, nothing));
		/* Some shortages are got round: smaller pages, a retry. */
		EXPECT_TRUE(!ret || (injected && ret == error))
			TH_LOG("%s, %ld: %s", action->name, nth, strerror(-ret));
		rounds += injected;
		failures += ret != 0;
		if (ret) {
			ASSERT_TRUE(settled(self))
				TH_LOG("%s, %ld leaves something", action->name, nth);
			ASSERT_EQ(0, action->act(self))
				TH_LOG("%s, after %ld failed", action->name, nth);
		}
		ASSERT_EQ(0, action->undo(self))
			TH_LOG("%s, %ld", action->name, nth);
		ASSERT_TRUE(settled(self));
		if (!injected)
			break;
	}
	TH_LOG("%s: %d were made to fail, %d calls failed", action->name, rounds, failures);
	EXPECT_GT(ROUNDS_MAX, nth);
	if (action->allocates[fault]) {
		EXPECT_LT(0, failures);
	}
}

#define TOW_ALL_TIMES	1000000

/* From here on everybody's fail that are made below functions in @range, in any context. */
static inline bool begin_all(enum fault fault, struct range range)
{
	const char *dir = fault_dir[fault];

	return filter(fault, range) && put(dir, "task-filter", "N\n", 0) &&
	       put(dir, "interval", "%lu\n", 1) &&
	       put(dir, "times", "%lu\n", TOW_ALL_TIMES) &&
	       put(dir, "probability", "%lu\n", 100);
}

/* How many have failed since?  -1: it cannot be read. */
static inline long count_all(enum fault fault)
{
	char path[256], line[32];

	snprintf(path, sizeof(path), "%s/times", fault_dir[fault]);
	tow_test_read_line(path, line, sizeof(line));
	return line[0] ? TOW_ALL_TIMES - atol(line) : -1;
}

/* No more: how many have failed?  -1: it cannot be read. */
static inline long end_all(enum fault fault)
{
	return put(fault_dir[fault], "probability", "%lu\n", 0) ? count_all(fault) : -1;
}

/*
 * Make the lab's device, or take it away, in a task of which the n-th
 * allocation fails: did one?  @rc: 0: it succeeded; 1: not.
 */
static inline bool link_with_nth(bool add, long nth, int *rc)
{
	char task[16];
	siginfo_t info;
	bool failed;
	int status;
	pid_t child;

	fflush(NULL);
	child = fork();
	if (!child) {
		if (!freopen("/dev/null", "w", stderr) || !begin_nth(nth))
			_exit(127);
		_exit(add ? tow_rdma_link_add("rxe0", "rxe", "eth0") != 0 :
		      tow_rdma_link_del("rxe0") != 0);
	}
	/* Not reaped yet, so that it still has a fail-nth. */
	waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT);
	snprintf(task, sizeof(task), "%d", child);
	failed = get_nth(task) == 0;
	waitpid(child, &status, 0);
	*rc = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	return failed;
}

/* set_nth() for all unbound workers: how many; get: whether one has failed. */
static inline int each_worker(long nth, bool *hit)
{
	struct dirent *entry;
	char path[300], line[64];
	DIR *proc = opendir("/proc");
	int workers = 0;

	while (proc && (entry = readdir(proc))) {
		if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%s/comm", entry->d_name);
		tow_test_read_line(path, line, sizeof(line));
		if (strncmp(line, "kworker/u", 9))
			continue;
		if (hit && get_nth(entry->d_name) == 0)
			*hit = true;
		if (set_nth(entry->d_name, nth))
			workers++;
	}
	if (proc)
		closedir(proc);
	return workers;
}

static inline bool loaded(void)
{
	return !access("/sys/module/towline", F_OK);
}

static inline int load_module(void)
{
	static char path[512];
	int fd, ret;

	if (!path[0]) {
		FILE *modinfo = popen("modinfo -n towline", "re");

		if (!modinfo || !fgets(path, sizeof(path), modinfo))
			path[0] = '\0';
		if (modinfo)
			pclose(modinfo);
		path[strcspn(path, "\n")] = '\0';
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	ret = syscall(SYS_finit_module, fd, "", 0) ? -errno : 0;
	close(fd);
	return ret;
}

static inline int unload_module(void)
{
	return syscall(SYS_delete_module, "towline", O_NONBLOCK) ? -errno : 0;
}

/* The device answers, and its maintenance queue pair gets ready. */
static inline int device_works(void)
{
	struct tow_patience patience = tow_patience(15);
	struct tow_query query;
	int fd = open(TOW_TEST_DEVICES "/rxe0", O_RDWR | O_CLOEXEC);
	int ret;

	if (fd < 0)
		return -errno;
	do {
		ret = tow_test_query(fd, &query);
		if (ret || query.maint_state == TOW_MAINT_READY)
			break;
		tow_test_sleep_ms(20);
		ret = -ETIMEDOUT;
	} while (tow_patient(&patience));
	close(fd);
	return ret;
}

#endif /* TOW_FAULTS_H */

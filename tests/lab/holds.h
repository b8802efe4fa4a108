/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the kernel holds: numbers with names, taken at one moment, and what two
 * moments have to differ in before something counts as left behind.
 *
 *	rdma	each number of `rdma resource show` (pd, cq, qp, mr, cm_id, ctx,
 *		srq) of each device.  Any difference.
 *	pins	pages pinned now: nr_foll_pin_acquired - nr_foll_pin_released.
 *		Any difference.
 *	vmalloc	bytes mapped by each RDMA or towline module (a QP of soft-RoCE
 *		holds its queues there).  Any difference.
 *	module	references on towline.ko.  Any difference.
 *	dma	what the kernel found wrong with DMA, and whether it still looks
 *		(debug kernels).  Any difference.
 *	thread	kernel threads named tow*.  Any difference.
 *	slab	objects in use in the caches that towline's memory comes from:
 *		caches of its own (towline*, tow_*): any difference.
 *		kmalloc-*, radix_tree_node, kernfs_node_cache: the whole system
 *		uses these, so only growth counts, by more than 64 objects and
 *		by as many as there were operations in between, or more.  64 is
 *		above what file reading, modprobe and rdma link leave behind
 *		once the dentry and inode caches are dropped, as is done here
 *		(measured on 6.1 and 6.12: 51 at most); a leak of one object in
 *		each operation is thus seen from 65 operations on.  Not looked
 *		at on kernels with kmemleak: KASAN's quarantine keeps freed
 *		objects there, and kmemleak sees single ones.
 */
#ifndef TOW_HOLDS_H
#define TOW_HOLDS_H

#include <ctype.h>
#include <dirent.h>
#include <glob.h>
#include <stdarg.h>
#include "../kselftest/tow_rdma.h"

#define HOLDS_MOST	1024
#define HOLDS_NOISE	64
#define HOLDS_KMEMLEAK	"/sys/kernel/debug/kmemleak"
#define HOLDS_DMA	"/sys/kernel/debug/dma-api"

struct hold {
	char name[96];
	long long number;
};

/**
 * struct holds - what the kernel holds at one moment
 * @count: how many names
 * @all: they, in no order
 */
struct holds {
	size_t count;
	struct hold all[HOLDS_MOST];
};

static inline struct hold *holds_find(struct holds *holds, const char *name)
{
	size_t i;

	for (i = 0; i < holds->count; i++)
		if (!strcmp(holds->all[i].name, name))
			return &holds->all[i];
	return NULL;
}

static inline long long holds_number(struct holds *holds, const char *name)
{
	struct hold *hold = holds_find(holds, name);

	return hold ? hold->number : 0;
}

/* Numbers of one name add up. */
static inline void holds_add(struct holds *holds, const char *name, long long number)
{
	struct hold *hold = holds_find(holds, name);

	if (!hold) {
		if (holds->count == HOLDS_MOST) {
			fprintf(stderr, "oracle: more than %d names\n", HOLDS_MOST);
			exit(2);
		}
		hold = &holds->all[holds->count++];
		snprintf(hold->name, sizeof(hold->name), "%s", name);
		hold->number = 0;
	}
	hold->number += number;
}

__attribute__((format(printf, 3, 4)))
static inline void holds_add_of(struct holds *holds, long long number,
				const char *format, ...)
{
	char name[sizeof(holds->all[0].name)];
	va_list args;

	va_start(args, format);
	vsnprintf(name, sizeof(name), format, args);
	va_end(args);
	holds_add(holds, name, number);
}

/* ---- where they come from ------------------------------------------------- */

/* Each line of a file that can be read. */
static inline void holds_lines(struct holds *holds, const char *path,
			       void (*line)(struct holds *holds, const char *words))
{
	FILE *file = fopen(path, "re");
	char *words = NULL;
	size_t room = 0;

	if (!file)
		return;
	while (getline(&words, &room, file) > 0)
		line(holds, words);
	free(words);
	fclose(file);
}

static inline void holds_rdma(void *context, const void *attributes, size_t bytes)
{
	const struct nlattr *device, *summary, *entry;
	struct holds *holds = context;
	const void *entries;
	size_t left, length;

	device = tow_rdma_find(attributes, bytes, RDMA_NLDEV_ATTR_DEV_NAME);
	summary = tow_rdma_find(attributes, bytes, RDMA_NLDEV_ATTR_RES_SUMMARY);
	if (!device || !summary)
		return;
	entries = tow_rdma_value(summary, &left);
	entry = tow_rdma_find(entries, left, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY);
	for (; entry; entry = tow_rdma_next(entry, &left)) {
		const void *inner = tow_rdma_value(entry, &length);
		const struct nlattr *name, *now;
		uint64_t number;

		name = tow_rdma_find(inner, length, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME);
		now = tow_rdma_find(inner, length, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR);
		if (!name || !now)
			continue;
		memcpy(&number, tow_rdma_value(now, &length), sizeof(number));
		holds_add_of(holds, number, "rdma.%s.%s",
			     (const char *)tow_rdma_value(device, &length),
			     (const char *)tow_rdma_value(name, &length));
	}
}

static inline void holds_pins(struct holds *holds, const char *words)
{
	long long number;

	if (sscanf(words, "nr_foll_pin_acquired %lld", &number) == 1)
		holds_add(holds, "pins", number);
	else if (sscanf(words, "nr_foll_pin_released %lld", &number) == 1)
		holds_add(holds, "pins", -number);
}

static inline void holds_module(struct holds *holds, const char *words)
{
	long long refs;

	if (sscanf(words, "towline %*d %lld", &refs) != 1)
		return;
	holds_add(holds, "module.loaded", 1);
	holds_add(holds, "module.refs", refs);
}

static inline void holds_dma_errors(struct holds *holds, const char *words)
{
	holds_add(holds, "dma.errors", atoll(words));
}

static inline void holds_dma_disabled(struct holds *holds, const char *words)
{
	holds_add(holds, "dma.disabled", *words == 'Y');
}

static inline void holds_vmalloc(struct holds *holds, const char *words)
{
	static const char * const whose[] = { "tow", "rdma_", "ib_" };
	long long bytes;
	char module[64];
	size_t i;

	/* from-to bytes function+at/of [module] … */
	if (sscanf(words, "%*s %lld %*s [%63[^]]]", &bytes, module) != 2)
		return;
	for (i = 0; i < sizeof(whose) / sizeof(whose[0]); i++)
		if (!strncmp(module, whose[i], strlen(whose[i])))
			holds_add_of(holds, bytes, "vmalloc.%s", module);
}

static inline bool holds_is_own(const char *cache)
{
	return !strncmp(cache, "tow", 3);
}

static inline bool holds_is_shared(const char *cache)
{
	return !strncmp(cache, "kmalloc-", 8) || !strncmp(cache, "radix_tree_node", 15) ||
	       !strncmp(cache, "kernfs_node_cache", 17);
}

static inline void holds_slab(struct holds *holds, const char *words)
{
	long long objects;
	char cache[64];

	if (sscanf(words, "%63s %lld", cache, &objects) == 2 && holds_is_own(cache))
		holds_add_of(holds, objects, "slab.%s", cache);
}

static inline void holds_shared_slab(struct holds *holds, const char *words)
{
	long long objects;
	char cache[64];

	if (sscanf(words, "%63s %lld", cache, &objects) == 2 && holds_is_shared(cache))
		holds_add_of(holds, objects, "slab.%s", cache);
}

static inline long long holds_threads(void)
{
	DIR *processes = opendir("/proc");
	struct dirent *entry;
	long long threads = 0;

	while (processes && (entry = readdir(processes))) {
		char path[300], name[4] = "";
		int fd;

		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		snprintf(path, sizeof(path), "/proc/%s/comm", entry->d_name);
		/* It may be gone by now. */
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		if (read(fd, name, 3) == 3 && !strcmp(name, "tow"))
			threads++;
		close(fd);
	}
	if (processes)
		closedir(processes);
	return threads;
}

static inline void holds_say(const char *path, const char *word)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	/* What cannot be done changes no number. */
	if (write(fd, word, strlen(word)) < 0)
		errno = 0;
	close(fd);
}

/*
 * What the file systems cache comes and goes with the files read; per-CPU and
 * partial slabs count free objects as used until they are flushed.
 */
static inline void holds_flush(void)
{
	static const char * const caches[] = {
		"kmalloc-*", "tow*", "radix_tree_node", "kernfs_node_cache"
	};
	char path[128];
	glob_t found;
	size_t i, j;

	holds_say("/proc/sys/vm/drop_caches", "2");
	for (i = 0; i < sizeof(caches) / sizeof(caches[0]); i++) {
		snprintf(path, sizeof(path), "/sys/kernel/slab/%s/shrink", caches[i]);
		if (glob(path, 0, NULL, &found))
			continue;
		for (j = 0; j < found.gl_pathc; j++)
			holds_say(found.gl_pathv[j], "1");
		globfree(&found);
	}
}

/**
 * holds_take - what the kernel holds now
 * @holds: where to
 * @exact: without what the whole system uses: for what reads many files
 */
static inline void holds_take(struct holds *holds, bool exact)
{
	bool slabs = access(HOLDS_KMEMLEAK, F_OK);
	struct tow_rdma_request request;
	int ret;

	holds->count = 0;
	if (slabs && !exact)
		holds_flush();
	/* Each processor keeps some of the counts of pages to itself for a while. */
	holds_say("/proc/sys/vm/stat_refresh", "1");
	holds_add(holds, "module.loaded", 0);
	holds_add(holds, "thread", holds_threads());
	tow_rdma_begin(&request, RDMA_NLDEV_CMD_RES_GET, NLM_F_DUMP);
	ret = tow_rdma_talk(&request, holds_rdma, holds);
	if (ret) {
		fprintf(stderr, "oracle: RDMA resources: %s\n", strerror(-ret));
		exit(2);
	}
	holds_lines(holds, "/proc/vmstat", holds_pins);
	holds_lines(holds, "/proc/modules", holds_module);
	holds_lines(holds, "/proc/vmallocinfo", holds_vmalloc);
	holds_lines(holds, HOLDS_DMA "/error_count", holds_dma_errors);
	holds_lines(holds, HOLDS_DMA "/disabled", holds_dma_disabled);
	if (slabs)
		holds_lines(holds, "/proc/slabinfo", holds_slab);
	if (slabs && !exact)
		holds_lines(holds, "/proc/slabinfo", holds_shared_slab);
}

/* ---- files ---------------------------------------------------------------- */

static inline bool holds_write(const struct holds *holds, const char *path)
{
	FILE *file = fopen(path, "we");
	size_t i;

	if (!file)
		return false;
	for (i = 0; i < holds->count; i++)
		fprintf(file, "%s\t%lld\n", holds->all[i].name, holds->all[i].number);
	return !fclose(file);
}

static inline void holds_read_line(struct holds *holds, const char *words)
{
	struct hold hold;

	if (sscanf(words, "%95[^\t]\t%lld", hold.name, &hold.number) == 2)
		holds_add(holds, hold.name, hold.number);
}

static inline bool holds_read(struct holds *holds, const char *path)
{
	holds->count = 0;
	holds_lines(holds, path, holds_read_line);
	return holds->count;
}

/* ---- differences ---------------------------------------------------------- */

static inline bool holds_is_leak(const char *name, long long grown, long long ops)
{
	if (strncmp(name, "slab.", 5) || holds_is_own(name + 5))
		return grown;
	return grown > HOLDS_NOISE && grown >= ops;
}

/**
 * holds_differ - what was left behind between two moments
 * @before: the first
 * @after: the second; gets the names that only the first one has
 * @ops: how many operations there were in between
 * @prefix: what each line about it begins with; NULL: print nothing
 *
 * Return: 0: nothing; 1: something; 2: they cannot be compared.
 */
static inline int holds_differ(struct holds *before, struct holds *after, long long ops,
			       const char *prefix)
{
	bool rdma = false;
	int ret = 0;
	size_t i;

	if (holds_number(before, "module.loaded") != holds_number(after, "module.loaded")) {
		if (prefix)
			printf("%stowline is loaded in one state and not in the other\n", prefix);
		return 2;
	}
	for (i = 0; i < before->count; i++)
		holds_add(after, before->all[i].name, 0);
	for (i = 0; i < after->count; i++) {
		const char *name = after->all[i].name;
		long long was = holds_number(before, name);

		if (!holds_is_leak(name, after->all[i].number - was, ops))
			continue;
		ret = 1;
		rdma = rdma || !strncmp(name, "rdma.", 5);
		if (prefix)
			printf("%s%s: %lld before, %lld now\n", prefix, name, was,
			       after->all[i].number);
	}
	if (!prefix || !rdma)
		return ret;
	/* Who holds them: the kernel names the owner of each RDMA object. */
	fflush(stdout);
	if (system("for kind in pd cq qp mr cm_id; do"
		   " rdma resource show $kind | sed \"s/^/  $kind: /\"; done"))
		puts("  rdma resource show failed");
	return ret;
}

/**
 * holds_compare - what has been left behind since a moment
 * @before: that moment
 * @now: where the present goes
 * @exact: as for holds_take()
 * @ops: as for holds_differ()
 * @prefix: as for holds_differ()
 *
 * Waits a moment for what is freed behind RCU and work queues.
 */
static inline int holds_compare(struct holds *before, struct holds *now, bool exact,
				long long ops, const char *prefix)
{
	static const unsigned int pauses_ms[] = { 50, 150, 500, 1000, 2000 };
	size_t i;

	for (i = 0; i < sizeof(pauses_ms) / sizeof(pauses_ms[0]); i++) {
		holds_take(now, exact);
		if (holds_differ(before, now, ops, NULL) != 1)
			break;
		usleep(pauses_ms[i] * 1000);
	}
	if (i == sizeof(pauses_ms) / sizeof(pauses_ms[0]))
		holds_take(now, exact);
	return holds_differ(before, now, ops, prefix);
}

#endif /* TOW_HOLDS_H */

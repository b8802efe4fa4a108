// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Sites, and which of them are sent.
 *
 * Who allocates in a step that is not traced reads two words of its node's and takes no
 * lock.  Numbers and sets only grow, and what they grow out of stays until the end, so
 * that readers need none.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>

#include <bsd/sys/tree.h>
#include <towline/tracer.h>

#include "../core/internal.h"
#include "arena.h"

#define REPORT_SIZE_FIRST	(offsetof(struct tow_tracer_report, sites) + sizeof(uint64_t))

#define NODES_OF_A_CHUNK	1024U
#define CHUNKS			1024U
/* No node allocates more often in a run; what it does beyond is never traced. */
#define SITES_OF_A_NODE		(1U << 20)
#define HEADER			"towline-sites 1\n"

/* Which of a node's allocations are sent: a bit each. */
struct set {
	struct set *before;	/* what it has outgrown */
	size_t words;
	_Atomic uint64_t bits[];
};

struct node {
	const char *name;		/* @text, but for a key to look for */
	uint32_t number;
	_Atomic uint32_t next;		/* allocation of this run */
	struct set *_Atomic set;	/* or NULL: none is sent */
	char text[];
};

/* A buffer, and where it came from. */
struct buffer {
	RB_ENTRY(buffer) node;
	const char *at;
	size_t bytes;
	struct node *from;
	uint32_t index;
};

RB_HEAD(buffers, buffer);

struct counts {
	_Atomic uint64_t zero_copy, zero_copy_bytes, copied, copied_bytes, unknown, refused;
};

struct tow_tracer {
	struct tow_arena *arena;
	struct node *_Atomic *_Atomic chunks[CHUNKS];
	_Atomic uint32_t nodes;
	_Atomic uint64_t sites;
	_Atomic uint64_t step;
	_Atomic bool running;
	_Atomic bool tracing;
	_Atomic bool again;		/* trace the next step */
	_Atomic size_t buffers_count;
	struct counts counts;
	pthread_mutex_t lock;		/* around everything below, and growth */
	struct buffers buffers;
	void *names;			/* of nodes: a tree of <search.h> */
};

static int by_address(const struct buffer *one, const struct buffer *other)
{
	return (one->at > other->at) - (one->at < other->at);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
RB_GENERATE_INTERNAL(buffers, buffer, node, by_address, static)
#pragma GCC diagnostic pop

static void count(_Atomic uint64_t *number, uint64_t by)
{
	atomic_fetch_add_explicit(number, by, memory_order_relaxed);
}

static uint64_t counted(const _Atomic uint64_t *number)
{
	return atomic_load_explicit(number, memory_order_relaxed);
}

/* A child's copy is asked what it knows, and learns nothing more. */
static bool is_ours(const struct tow_tracer *tracer)
{
	return towi_arena_ours(tracer->arena);
}

/* ---- nodes ------------------------------------------------------------------ */

/* One of the nodes that there are. */
static struct node *node_at(const struct tow_tracer *tracer, uint32_t number)
{
	struct node *_Atomic *chunk =
		atomic_load_explicit(&tracer->chunks[number / NODES_OF_A_CHUNK],
				     memory_order_acquire);

	return atomic_load_explicit(&chunk[number % NODES_OF_A_CHUNK], memory_order_acquire);
}

static struct node *node_of(const struct tow_tracer *tracer, uint32_t number)
{
	return number < atomic_load_explicit(&tracer->nodes, memory_order_acquire) ?
		       node_at(tracer, number) : NULL;
}

static int by_name(const void *one, const void *other)
{
	return strcmp(((const struct node *)one)->name, ((const struct node *)other)->name);
}

static void free_node(struct node *node)
{
	struct set *set, *before;

	for (set = atomic_load(&node->set); set; set = before) {
		before = set->before;
		free(set);
	}
	free(node);
}

/* Room for the node of that number, with the lock: 0 or a negative errno. */
static int make_room(struct tow_tracer *tracer, uint32_t number)
{
	struct node *_Atomic *_Atomic *chunk = &tracer->chunks[number / NODES_OF_A_CHUNK];
	struct node *_Atomic *made;

	if (atomic_load_explicit(chunk, memory_order_relaxed))
		return 0;
	made = calloc(NODES_OF_A_CHUNK, sizeof(*made));
	if (!made)
		return -ENOMEM;
	atomic_store_explicit(chunk, made, memory_order_release);
	return 0;
}

/* With the lock. */
static int new_node(struct tow_tracer *tracer, const char *name, struct node **made)
{
	uint32_t number = atomic_load_explicit(&tracer->nodes, memory_order_relaxed);
	size_t length = strlen(name) + 1;
	struct node *node;

	if (number == NODES_OF_A_CHUNK * CHUNKS)
		return -ENOSPC;
	if (make_room(tracer, number))
		return -ENOMEM;
	node = calloc(1, sizeof(*node) + length);
	if (!node)
		return -ENOMEM;
	node->number = number;
	node->name = memcpy(node->text, name, length);
	if (!tsearch(node, &tracer->names, by_name)) {
		free_node(node);
		return -ENOMEM;
	}
	atomic_store_explicit(&tracer->chunks[number / NODES_OF_A_CHUNK]
					     [number % NODES_OF_A_CHUNK],
			      node, memory_order_release);
	atomic_store_explicit(&tracer->nodes, number + 1, memory_order_release);
	*made = node;
	return 0;
}

/* The node of that name, with the lock; made if there is none. */
static int node_named(struct tow_tracer *tracer, const char *name, struct node **node)
{
	struct node key = { .name = name };
	struct node **known = tfind(&key, &tracer->names, by_name);

	if (!known)
		return new_node(tracer, name, node);
	*node = *known;
	return 0;
}

TOW_PUBLIC int tow_tracer_node(struct tow_tracer *tracer, const char *name, uint32_t *node)
{
	struct node *known;
	int ret;

	if (!tracer || !name || !node || !*name || strchr(name, '\n'))
		return -EINVAL;
	if (!is_ours(tracer))
		return -EPERM;
	pthread_mutex_lock(&tracer->lock);
	ret = node_named(tracer, name, &known);
	pthread_mutex_unlock(&tracer->lock);
	if (!ret)
		*node = known->number;
	return ret;
}

TOW_PUBLIC int tow_tracer_node_begin(struct tow_tracer *tracer, uint32_t node)
{
	struct node *known = tracer ? node_of(tracer, node) : NULL;

	if (!known)
		return -EINVAL;
	if (!is_ours(tracer))
		return -EPERM;
	atomic_store_explicit(&known->next, 0, memory_order_relaxed);
	return 0;
}

/* ---- the set S -------------------------------------------------------------- */

static bool is_sent(const struct node *node, uint32_t index)
{
	const struct set *set = atomic_load_explicit(&node->set, memory_order_acquire);

	return set && index / 64 < set->words &&
	       atomic_load_explicit(&set->bits[index / 64], memory_order_relaxed) >> index % 64 & 1;
}

/* A set with room for @index, with the lock. */
static struct set *grown(struct node *node, uint32_t index)
{
	struct set *before = atomic_load_explicit(&node->set, memory_order_relaxed), *set;
	size_t words = before ? before->words : 1;

	while (words <= index / 64)
		words *= 2;
	if (before && words == before->words)
		return before;
	set = calloc(1, sizeof(*set) + words * sizeof(set->bits[0]));
	if (!set)
		return NULL;
	set->words = words;
	set->before = before;
	for (size_t i = 0; before && i < before->words; i++)
		set->bits[i] = counted(&before->bits[i]);
	atomic_store_explicit(&node->set, set, memory_order_release);
	return set;
}

/* With the lock: 0 or -ENOMEM. */
static int join(struct tow_tracer *tracer, struct node *node, uint32_t index)
{
	struct set *set;

	if (is_sent(node, index))
		return 0;
	set = grown(node, index);
	if (!set)
		return -ENOMEM;
	atomic_fetch_or_explicit(&set->bits[index / 64], (uint64_t)1 << index % 64,
				 memory_order_relaxed);
	count(&tracer->sites, 1);
	return 0;
}

/* ---- buffers ---------------------------------------------------------------- */

/* The one that @at is in, with the lock. */
static struct buffer *buffer_at(struct tow_tracer *tracer, const char *at)
{
	struct buffer key = { .at = at }, *buffer;

	buffer = RB_NFIND(buffers, &tracer->buffers, &key);
	if (buffer && buffer->at == at)
		return buffer;
	buffer = buffer ? RB_PREV(buffers, &tracer->buffers, buffer)
			: RB_MAX(buffers, &tracer->buffers);
	return buffer && (size_t)(at - buffer->at) < buffer->bytes ? buffer : NULL;
}

static void drop(struct tow_tracer *tracer, struct buffer *buffer)
{
	RB_REMOVE(buffers, &tracer->buffers, buffer);
	atomic_fetch_sub_explicit(&tracer->buffers_count, 1, memory_order_relaxed);
	free(buffer);
}

/* The newest wins: what was there before is gone, whoever forgot to say so. */
static void drop_older(struct tow_tracer *tracer, const char *at, size_t bytes)
{
	struct buffer *older = buffer_at(tracer, at), key = { .at = at };

	if (older)
		drop(tracer, older);
	while ((older = RB_NFIND(buffers, &tracer->buffers, &key)) &&
	       (size_t)(older->at - at) < bytes)
		drop(tracer, older);
}

static int note(struct tow_tracer *tracer, struct node *node, uint32_t index, const void *ptr,
		size_t bytes)
{
	struct buffer *buffer = malloc(sizeof(*buffer)), *other;

	if (!buffer)
		return -ENOMEM;
	buffer->at = ptr;
	buffer->bytes = bytes ? bytes : 1;
	buffer->from = node;
	buffer->index = index;
	pthread_mutex_lock(&tracer->lock);
	drop_older(tracer, buffer->at, buffer->bytes);
	other = RB_INSERT(buffers, &tracer->buffers, buffer);
	atomic_fetch_add_explicit(&tracer->buffers_count, !other, memory_order_relaxed);
	pthread_mutex_unlock(&tracer->lock);
	/* Nothing else begins there any more. */
	if (other)
		free(buffer);
	return 0;
}

/* Nothing is noted of it, nor of what was there before. */
static void forget_older(struct tow_tracer *tracer, const void *ptr, size_t bytes)
{
	if (!atomic_load_explicit(&tracer->buffers_count, memory_order_relaxed))
		return;
	pthread_mutex_lock(&tracer->lock);
	drop_older(tracer, ptr, bytes ? bytes : 1);
	pthread_mutex_unlock(&tracer->lock);
}

static void forget(struct tow_tracer *tracer, const void *ptr)
{
	struct buffer *buffer, key = { .at = ptr };

	/* Nobody frees what is only being noted. */
	if (!atomic_load_explicit(&tracer->buffers_count, memory_order_relaxed))
		return;
	pthread_mutex_lock(&tracer->lock);
	buffer = RB_FIND(buffers, &tracer->buffers, &key);
	if (buffer)
		drop(tracer, buffer);
	pthread_mutex_unlock(&tracer->lock);
}

/* ---- allocation ------------------------------------------------------------- */

static bool is_tracing(const struct tow_tracer *tracer)
{
	return atomic_load_explicit(&tracer->tracing, memory_order_relaxed);
}

/*
 * Is it to be noted where a buffer of ordinary memory comes from?  In a traced step; and
 * if it is one that is sent, and has no room in the arena.
 */
static bool is_noted(const struct tow_tracer *tracer, const struct node *node, uint32_t index)
{
	return index < SITES_OF_A_NODE && (is_tracing(tracer) || is_sent(node, index));
}

static uint32_t next_index(struct node *node)
{
	return atomic_fetch_add_explicit(&node->next, 1, memory_order_relaxed);
}

static void *alloc_sent(struct tow_tracer *tracer, size_t bytes)
{
	struct tow_region *region;
	uint64_t offset;
	void *ptr = tow_arena_alloc(tracer->arena, bytes);

	/* An arena may give out ordinary memory, too. */
	if (!ptr || tow_arena_find(tracer->arena, ptr, &region, &offset)) {
		count(&tracer->counts.refused, 1);
		tow_arena_free(tracer->arena, ptr);
		ptr = NULL;
	}
	return ptr;
}

static void *alloc_ordinary(size_t bytes)
{
	void *ptr;
	int ret = posix_memalign(&ptr, TOW_ARENA_ALIGNMENT, bytes ? bytes : 1);

	if (ret)
		errno = ret;
	return ret ? NULL : ptr;
}

TOW_PUBLIC void *tow_tracer_alloc(struct tow_tracer *tracer, uint32_t node, size_t bytes)
{
	struct node *known = tracer ? node_of(tracer, node) : NULL;
	uint32_t index;
	void *ptr;

	if (!known || !is_ours(tracer)) {
		errno = known ? EPERM : EINVAL;
		return NULL;
	}
	index = next_index(known);
	if (is_sent(known, index)) {
		ptr = alloc_sent(tracer, bytes);
		if (ptr)
			return ptr;
	}
	ptr = alloc_ordinary(bytes);
	if (ptr && is_noted(tracer, known, index) &&
	    note(tracer, known, index, ptr, bytes)) {
		free(ptr);
		errno = ENOMEM;
		ptr = NULL;
	}
	return ptr;
}

TOW_PUBLIC int tow_tracer_allocated(struct tow_tracer *tracer, uint32_t node, const void *ptr,
				    size_t bytes)
{
	struct node *known = tracer ? node_of(tracer, node) : NULL;
	uint32_t index;

	if (!known || !ptr)
		return -EINVAL;
	if (!is_ours(tracer))
		return -EPERM;
	index = next_index(known);
	if (!is_noted(tracer, known, index)) {
		forget_older(tracer, ptr, bytes);
		return 0;
	}
	return note(tracer, known, index, ptr, bytes);
}

TOW_PUBLIC int tow_tracer_free(struct tow_tracer *tracer, void *ptr)
{
	struct tow_region *region;
	uint64_t offset;

	if (!tracer)
		return -EINVAL;
	if (!ptr)
		return 0;
	if (!is_ours(tracer))
		return -EPERM;
	if (!tow_arena_find(tracer->arena, ptr, &region, &offset))
		return tow_arena_free(tracer->arena, ptr);
	forget(tracer, ptr);
	free(ptr);
	return 0;
}

TOW_PUBLIC void tow_tracer_freed(struct tow_tracer *tracer, const void *ptr)
{
	if (tracer && ptr && is_ours(tracer))
		forget(tracer, ptr);
}

/* ---- transfers -------------------------------------------------------------- */

static int transferred_copied(struct tow_tracer *tracer, const void *ptr, size_t bytes)
{
	struct buffer *buffer;
	int ret = 0;

	count(&tracer->counts.copied, 1);
	count(&tracer->counts.copied_bytes, bytes);
	pthread_mutex_lock(&tracer->lock);
	buffer = buffer_at(tracer, ptr);
	if (buffer)
		ret = join(tracer, buffer->from, buffer->index);
	pthread_mutex_unlock(&tracer->lock);
	if (ret)
		return ret;
	if (buffer)
		return TOW_TRACER_JOINS;
	count(&tracer->counts.unknown, 1);
	/* What a traced step does not know another one will not know either. */
	if (!is_tracing(tracer))
		atomic_store_explicit(&tracer->again, true, memory_order_relaxed);
	return TOW_TRACER_UNKNOWN;
}

TOW_PUBLIC int tow_tracer_transferred(struct tow_tracer *tracer, const void *ptr, size_t bytes)
{
	struct tow_region *region;
	uint64_t offset;

	if (!tracer || !ptr)
		return -EINVAL;
	if (!is_ours(tracer))
		return -EPERM;
	if (tow_arena_find(tracer->arena, ptr, &region, &offset))
		return transferred_copied(tracer, ptr, bytes);
	count(&tracer->counts.zero_copy, 1);
	count(&tracer->counts.zero_copy_bytes, bytes);
	return TOW_TRACER_ZERO_COPY;
}

/* ---- steps ------------------------------------------------------------------ */

TOW_PUBLIC int tow_tracer_step_begin(struct tow_tracer *tracer)
{
	uint32_t nodes;

	if (tracer && !is_ours(tracer))
		return -EPERM;
	if (!tracer || atomic_exchange(&tracer->running, true))
		return -EINVAL;
	nodes = atomic_load(&tracer->nodes);
	for (uint32_t i = 0; i < nodes; i++)
		atomic_store_explicit(&node_at(tracer, i)->next, 0, memory_order_relaxed);
	/* The first one is, and what is before it; then those after a surprise. */
	atomic_store(&tracer->tracing, atomic_exchange(&tracer->again, false));
	for (size_t i = 0; i < sizeof(tracer->counts) / sizeof(_Atomic uint64_t); i++)
		atomic_store_explicit((_Atomic uint64_t *)&tracer->counts + i, 0,
				      memory_order_relaxed);
	atomic_fetch_add(&tracer->step, 1);
	return 0;
}

TOW_PUBLIC int tow_tracer_step_end(struct tow_tracer *tracer)
{
	if (tracer && !is_ours(tracer))
		return -EPERM;
	return !tracer || !atomic_exchange(&tracer->running, false) ? -EINVAL : 0;
}

TOW_PUBLIC int tow_tracer_report(struct tow_tracer *tracer, struct tow_tracer_report *report)
{
	struct tow_tracer_report known = { .size = sizeof(known) };

	if (!tracer || !report || !towi_size_valid(report->size, REPORT_SIZE_FIRST))
		return -EINVAL;
	known.traced = is_tracing(tracer);
	known.step = counted(&tracer->step);
	known.zero_copy = counted(&tracer->counts.zero_copy);
	known.zero_copy_bytes = counted(&tracer->counts.zero_copy_bytes);
	known.copied = counted(&tracer->counts.copied);
	known.copied_bytes = counted(&tracer->counts.copied_bytes);
	known.unknown = counted(&tracer->counts.unknown);
	known.refused = counted(&tracer->counts.refused);
	known.sites = counted(&tracer->sites);
	return towi_give(&known, REPORT_SIZE_FIRST, report);
}

/* ---- from run to run -------------------------------------------------------- */

static void write_sites(const struct tow_tracer *tracer, FILE *file)
{
	uint32_t nodes = atomic_load(&tracer->nodes);

	fputs(HEADER, file);
	for (uint32_t i = 0; i < nodes; i++) {
		const struct node *node = node_at(tracer, i);
		const struct set *set = atomic_load(&node->set);

		for (uint32_t index = 0; set && index < set->words * 64; index++) {
			if (is_sent(node, index))
				fprintf(file, "%u %s\n", index, node->name);
		}
	}
}

/* Write it all to @fd, which is closed in any case: 0 or a negative errno. */
static int write_file(const struct tow_tracer *tracer, int fd)
{
	FILE *file = fdopen(fd, "w");
	int ret = 0;

	if (!file) {
		ret = -errno;
		close(fd);
		return ret;
	}
	write_sites(tracer, file);
	if (fflush(file) || ferror(file) || fsync(fd))
		ret = errno ? -errno : -EIO;
	if (fclose(file) && !ret)
		ret = -errno;
	return ret;
}

/* A new file beside @path, with the rights that any file gets; or -1, and errno. */
static int new_file(const char *path, char **name)
{
	static _Atomic unsigned int number;
	int fd;

	do {
		if (asprintf(name, "%s.%d.%u", path, (int)getpid(),
			     atomic_fetch_add(&number, 1)) < 0)
			return -1;
		fd = open(*name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		if (fd >= 0)
			return fd;
		/* Leaves errno alone. */
		free(*name);
	} while (errno == EEXIST);
	return -1;
}

TOW_PUBLIC int tow_tracer_save(struct tow_tracer *tracer, const char *path)
{
	char *other;
	int ret, fd;

	if (!tracer || !path)
		return -EINVAL;
	if (!is_ours(tracer))
		return -EPERM;
	fd = new_file(path, &other);
	if (fd < 0)
		return -errno;
	ret = write_file(tracer, fd);
	if (!ret && rename(other, path))
		ret = -errno;
	if (ret)
		unlink(other);
	free(other);
	return ret;
}

/* One line, without its end: its site, and where the name in it begins. */
static bool read_site(char *line, uint32_t *index, char **name)
{
	unsigned long number;

	if (*line < '0' || *line > '9')
		return false;
	errno = 0;
	number = strtoul(line, name, 10);
	if (errno || number >= SITES_OF_A_NODE || **name != ' ' || !(*name)[1])
		return false;
	*index = (uint32_t)number;
	++*name;
	return true;
}

/* All lines; what is in them joins if @take, with the lock. */
static int read_sites(struct tow_tracer *tracer, FILE *file, bool take)
{
	char *line = NULL, *name;
	struct node *node;
	size_t room = 0;
	uint32_t index;
	ssize_t length;
	int ret = 0;

	errno = 0;
	length = getline(&line, &room, file);
	if (length < 0 && !feof(file))
		ret = errno ? -errno : -EIO;
	else if (length < 0 || strcmp(line, HEADER))
		ret = -EBADMSG;
	while (!ret && (length = getline(&line, &room, file)) > 0) {
		if (line[length - 1] != '\n' || strlen(line) != (size_t)length) {
			ret = -EBADMSG;
			break;
		}
		line[length - 1] = '\0';
		if (!read_site(line, &index, &name))
			ret = -EBADMSG;
		if (!ret && take)
			ret = node_named(tracer, name, &node);
		if (!ret && take)
			ret = join(tracer, node, index);
	}
	if (!ret && !feof(file))
		ret = errno ? -errno : -EIO;
	free(line);
	return ret;
}

TOW_PUBLIC int tow_tracer_load(struct tow_tracer *tracer, const char *path)
{
	FILE *file;
	int ret;

	if (!tracer || !path)
		return -EINVAL;
	if (!is_ours(tracer))
		return -EPERM;
	file = fopen(path, "re");
	if (!file)
		return -errno;
	/* All of it is right, or nothing is taken. */
	ret = read_sites(tracer, file, false);
	if (!ret) {
		rewind(file);
		pthread_mutex_lock(&tracer->lock);
		ret = read_sites(tracer, file, true);
		pthread_mutex_unlock(&tracer->lock);
	}
	fclose(file);
	return ret;
}

/* ---- begin and end ---------------------------------------------------------- */

TOW_PUBLIC int tow_tracer_create(struct tow_arena *arena, struct tow_tracer **tracer)
{
	struct tow_tracer *made;

	if (!arena || !tracer)
		return -EINVAL;
	if (!towi_arena_ours(arena))
		return -EPERM;
	/* What is not sent is ordinary memory. */
	if (towi_arena_far(arena))
		return -EOPNOTSUPP;
	made = calloc(1, sizeof(*made));
	if (!made)
		return -ENOMEM;
	made->arena = arena;
	pthread_mutex_init(&made->lock, NULL);
	RB_INIT(&made->buffers);
	atomic_init(&made->tracing, true);
	atomic_init(&made->again, true);
	*tracer = made;
	return 0;
}

/* Nodes are freed by their numbers. */
static void keep_node(void *node)
{
	(void)node;
}

TOW_PUBLIC void tow_tracer_destroy(struct tow_tracer *tracer)
{
	struct buffer *buffer;
	uint32_t nodes;

	if (!tracer || (!is_ours(tracer) && !towi_at_rest(&tracer->lock)))
		return;
	while ((buffer = RB_ROOT(&tracer->buffers)))
		drop(tracer, buffer);
	tdestroy(tracer->names, keep_node);
	nodes = atomic_load(&tracer->nodes);
	for (uint32_t i = 0; i < nodes; i++)
		free_node(node_at(tracer, i));
	for (size_t i = 0; i < CHUNKS; i++)
		free((void *)atomic_load(&tracer->chunks[i]));
	pthread_mutex_destroy(&tracer->lock);
	free(tracer);
}

// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/* All ranks tell each other something, by rank 0's memory. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <towline/queue.h>

#include "../core/internal.h"
#include "inside.h"

#define MAGIC		0x656c626174776f74ULL	/* "towtable" */
#define VERSION		1U

#define FIRST_ROUND	1U
#define ENTRIES		4U
/* How long to sleep between looks, at first and at last. */
#define LOOK_US		100U
#define LOOK_MAX_US	5000U
/* What an operation may take when there is no time left. */
#define ANSWER_US	1000000U
/* How long rank 0 waits for others when something went wrong. */
#define GOODBYE_US	5000000U

/* At the beginning of the table. */
struct header {
	uint64_t magic;
	uint32_t version;
	uint32_t ranks;
	uint64_t complete;	/* the last round that is */
	uint64_t missing;	/* a rank, and 1, that was waited for in vain; or 0 */
	uint64_t reserved[28];
};

/* What a rank has told in a round. */
struct cell {
	uint64_t round;		/* written behind the data */
	uint64_t read;		/* the same, when it has read what the others told */
	uint64_t reserved[2];
	unsigned char data[TOW_GROUP_GATHER_MAX];
};

_Static_assert(sizeof(struct cell) == 256 && sizeof(struct header) == 256, "no gaps");

struct towi_table {
	uint32_t rank, ranks;
	uint64_t round;
	int error;			/* what has ended it */
	struct tow_region *region;
	/* Rank 0: the table.  Others: what they have read of it, and their own cell behind. */
	char *memory;
	size_t memory_bytes;
	struct tow_exported *exported;	/* rank 0 */
	struct tow_remote *remote;	/* others, as what follows */
	struct tow_queue *queue;
	struct tow_channel *channel;
};

static uint64_t half_at(const struct towi_table *table, uint64_t round)
{
	return sizeof(struct header) + (round % 2) * table->ranks * sizeof(struct cell);
}

static uint64_t cell_at(const struct towi_table *table, uint64_t round, uint32_t rank)
{
	return half_at(table, round) + rank * sizeof(struct cell);
}

static uint64_t bytes_of(uint32_t ranks)
{
	return sizeof(struct header) + 2ULL * ranks * sizeof(struct cell);
}

static struct header *header_of(const struct towi_table *table)
{
	return (struct header *)(void *)table->memory;
}

static struct cell *cell_of(const struct towi_table *table, uint64_t round, uint32_t rank)
{
	return (struct cell *)(void *)(table->memory + cell_at(table, round, rank));
}

/* Sleep for a while, longer each time; false: it is too late. */
static bool sleep_before(uint64_t until, unsigned int *look_us)
{
	if (towi_now_ns() / 1000 >= until)
		return false;
	usleep(*look_us);
	*look_us = *look_us < LOOK_MAX_US / 2 ? *look_us * 2 : LOOK_MAX_US;
	return true;
}

/* ---- one operation at a time ---- */

/* One operation: its end. */
static int carry_out(struct towi_table *table, uint8_t opcode, uint64_t at, uint64_t bytes,
		     uint64_t until)
{
	struct tow_sqe *sqe = tow_queue_get_sqe(table->queue);
	uint64_t soon = towi_until(ANSWER_US);
	const struct tow_cqe *cqe;
	int ret;

	if (!sqe)
		return -EBUSY;
	/* Too late for others is not yet too late for rank 0's node. */
	if (until < soon)
		until = soon;
	/* What is in the memory is at the same place of the table. */
	tow_prep_transfer(sqe, opcode, table->channel, table->region, at, table->remote, at, bytes,
			  0);
	do {
		ret = tow_queue_submit(table->queue);
	} while (ret == -EINTR);
	if (ret < 0)
		return ret;
	do {
		ret = tow_queue_wait_cqe(table->queue, &cqe, towi_left_us(until));
	} while (ret == -EINTR);
	if (ret)
		return ret;
	ret = cqe->status;
	tow_queue_cqe_seen(table->queue);
	return ret;
}

static int write_there(struct towi_table *table, uint64_t at, uint64_t bytes, uint64_t until)
{
	return carry_out(table, TOW_OP_WRITE, at, bytes, until);
}

static int read_here(struct towi_table *table, uint64_t at, uint64_t bytes, uint64_t until)
{
	return carry_out(table, TOW_OP_READ, at, bytes, until);
}

/* ---- a round ---- */

/* The first that is not in the round. */
static uint32_t first_missing(const struct towi_table *table, uint64_t round)
{
	for (uint32_t rank = 0; rank < table->ranks; rank++)
		if (tow_load_acquire64(&cell_of(table, round, rank)->round) != round)
			return rank;
	return TOW_NO_RANK;
}

/* Of those who have told something, nobody has to read any more. */
static bool is_read(const struct towi_table *table, uint32_t rank)
{
	const struct cell *cell = cell_of(table, table->round, rank);

	return tow_load_acquire64(&cell->round) != table->round ||
	       tow_load_acquire64(&cell->read) == table->round;
}

/* Rank 0: until others have read what they were told. */
static void let_read(const struct towi_table *table, uint64_t until)
{
	unsigned int look_us = LOOK_US;
	uint32_t rank = 0;

	while (table->round && rank < table->ranks) {
		if (is_read(table, rank))
			rank++;
		else if (!sleep_before(until, &look_us))
			break;
	}
}

/* Rank 0: until all have told. */
static int collect(struct towi_table *table, uint64_t until, uint32_t *blamed)
{
	unsigned int look_us = LOOK_US;
	uint32_t rank = 0;

	while (rank < table->ranks) {
		if (tow_load_acquire64(&cell_of(table, table->round, rank)->round) == table->round) {
			rank++;
		} else if (!sleep_before(until, &look_us)) {
			*blamed = rank;
			__atomic_store_n(&header_of(table)->missing, rank + 1ULL, __ATOMIC_RELEASE);
			/* The program may end at once. */
			let_read(table, towi_until(GOODBYE_US));
			return -ETIMEDOUT;
		}
	}
	__atomic_store_n(&header_of(table)->complete, table->round, __ATOMIC_RELEASE);
	return 0;
}

static int tell_root(struct towi_table *table, const void *mine, size_t bytes, uint64_t until)
{
	struct cell *own = cell_of(table, table->round, table->rank);
	uint64_t at = cell_at(table, table->round, table->rank);
	int ret = 0;

	if (bytes) {
		memcpy(own->data, mine, bytes);
		ret = write_there(table, at + offsetof(struct cell, data), bytes, until);
	}
	if (ret)
		return ret;
	own->round = table->round;
	return write_there(table, at, sizeof(own->round), until);
}

/* What was told is not needed any more. */
static int have_read(struct towi_table *table, uint64_t until)
{
	struct cell *own = cell_of(table, table->round, table->rank);
	uint64_t at = cell_at(table, table->round, table->rank) + offsetof(struct cell, read);

	own->read = table->round;
	return write_there(table, at, sizeof(own->read), until);
}

/* Rank 0 has given up; it waits a moment for who wants to know. */
static int give_up(struct towi_table *table, uint64_t missing, uint64_t until,
		   uint32_t *blamed)
{
	/* Other ranks could have written there. */
	if (missing <= table->ranks)
		*blamed = (uint32_t)missing - 1;
	have_read(table, until);
	return -ETIMEDOUT;
}

/* Who is not there, as far as rank 0's memory tells. */
static int find_missing(struct towi_table *table, uint64_t until, uint32_t *blamed)
{
	/* If it cannot be read, it may be on its way still, and nobody would see more. */
	if (!read_here(table, half_at(table, table->round), table->ranks * sizeof(struct cell),
		       until)) {
		*blamed = first_missing(table, table->round);
		have_read(table, until);
	}
	return -ETIMEDOUT;
}

/* Others: until rank 0 says that all have told, and what. */
static int hear_root(struct towi_table *table, uint64_t until, uint32_t *blamed)
{
	const struct header *header = header_of(table);
	unsigned int look_us = LOOK_US;
	uint64_t missing;
	int ret;

	for (;;) {
		ret = read_here(table, 0, sizeof(*header), until);
		if (ret)
			return ret;
		if (tow_load_acquire64(&header->complete) == table->round)
			break;
		missing = tow_load_acquire64(&header->missing);
		if (missing)
			return give_up(table, missing, until, blamed);
		if (!sleep_before(until, &look_us))
			return find_missing(table, until, blamed);
	}
	ret = read_here(table, half_at(table, table->round), table->ranks * sizeof(struct cell),
			until);
	return ret ? ret : have_read(table, until);
}

static bool root_is_gone(int error)
{
	return error == -ETIMEDOUT || error == -ESTALE || error == -ECONNRESET;
}

int towi_table_gather(struct towi_table *table, const void *mine, size_t bytes, void *all,
		      uint64_t until, uint32_t *blamed)
{
	struct cell *own;
	int ret;

	if (table->error)
		return table->error;
	table->round++;
	if (table->rank) {
		ret = tell_root(table, mine, bytes, until);
		if (!ret)
			ret = hear_root(table, until, blamed);
		if (*blamed == TOW_NO_RANK && root_is_gone(ret))
			*blamed = 0;
	} else {
		own = cell_of(table, table->round, 0);
		if (bytes)
			memcpy(own->data, mine, bytes);
		own->round = own->read = table->round;
		ret = collect(table, until, blamed);
	}
	table->error = ret;
	for (uint32_t rank = 0; !ret && bytes && rank < table->ranks; rank++)
		memcpy((char *)all + rank * bytes, cell_of(table, table->round, rank)->data, bytes);
	return ret;
}

/* ---- life ---- */

static int make_memory(struct towi_table *table, struct tow_device *dev)
{
	void *memory;
	int ret;

	table->memory_bytes = bytes_of(table->ranks);
	ret = tow_region_create(dev, table->memory_bytes, NULL, &table->region);
	if (!ret)
		ret = tow_region_map(table->region, 0, table->memory_bytes,
				     PROT_READ | PROT_WRITE, &memory);
	if (!ret)
		table->memory = memory;
	return ret;
}

static int publish(struct towi_table *table, const char *name)
{
	*header_of(table) = (struct header){ .magic = MAGIC, .version = VERSION,
					     .ranks = table->ranks };
	return tow_export(table->region, 0, table->memory_bytes, name,
			  TOW_RIGHT_READ | TOW_RIGHT_WRITE, &table->exported);
}

/* Is it a table for as many, in which nobody is this rank? */
static int look_at(struct towi_table *table, uint64_t until)
{
	const struct header *header = header_of(table);
	int ret;

	if (tow_remote_bytes(table->remote) < sizeof(*header))
		return -EPROTO;
	ret = read_here(table, 0, sizeof(*header), until);
	if (ret)
		return ret;
	if (header->magic != MAGIC || header->version != VERSION ||
	    header->ranks != table->ranks ||
	    tow_remote_bytes(table->remote) < table->memory_bytes)
		return -EPROTO;
	ret = read_here(table, cell_at(table, FIRST_ROUND, table->rank), sizeof(struct cell),
			until);
	if (ret)
		return ret;
	return cell_of(table, FIRST_ROUND, table->rank)->round ? -EEXIST : 0;
}

static int find_table(struct towi_table *table, struct tow_device *dev, struct tow_peer *root,
		      const char *name, uint64_t until)
{
	int ret;

	ret = tow_resolve(root, name, TOW_RIGHT_READ | TOW_RIGHT_WRITE, towi_left_ms(until),
			  &table->remote);
	if (!ret)
		ret = tow_queue_create(dev, ENTRIES, 0, &table->queue);
	if (!ret)
		ret = tow_channel_get(table->queue, root, 0, &table->channel);
	return ret ? ret : look_at(table, until);
}

static void free_table(struct towi_table *table)
{
	tow_queue_destroy(table->queue);
	if (table->remote)
		tow_remote_release(table->remote);
	tow_unexport(table->exported);
	if (table->memory)
		tow_region_unmap(table->region, table->memory, table->memory_bytes);
	tow_region_destroy(table->region);
	free(table);
}

int towi_table_create(struct tow_device *dev, struct tow_peer *root, const char *name,
		      uint32_t rank, uint32_t ranks, uint64_t until, struct towi_table **table)
{
	struct towi_table *made = calloc(1, sizeof(*made));
	int ret;

	if (!made)
		return -ENOMEM;
	made->rank = rank;
	made->ranks = ranks;
	ret = make_memory(made, dev);
	if (!ret)
		ret = rank ? find_table(made, dev, root, name, until) : publish(made, name);
	if (ret)
		free_table(made);
	else
		*table = made;
	return ret;
}

void towi_table_destroy(struct towi_table *table, uint64_t until)
{
	if (!table)
		return;
	if (!table->rank && !table->error)
		let_read(table, until);
	free_table(table);
}

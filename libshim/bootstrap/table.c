// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/* All ranks tell each other something, by rank 0's memory. */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <towline/queue.h>

#include "../core/internal.h"
#include "inside.h"

#define MAGIC		0x656c626174776f74ULL	/* "towtable" */
#define VERSION		2U

#define FIRST_ROUND	1U
#define ENTRIES		4U
/* How long to sleep between looks, at first and at last. */
#define LOOK_US		100U
#define LOOK_MAX_US	5000U
/* What an operation may take when there is no time left. */
#define ANSWER_US	1000000U
/* How often rank 0 asks, while it waits, whether one that it waits for lives. */
#define PROBE_US	1000000U
/* How long rank 0 waits for others when something went wrong. */
#define GOODBYE_US	5000000U
/* In place of a round: this rank has left. */
#define LEFT		UINT64_MAX

/* At the beginning of the table. */
struct header {
	uint64_t magic;
	uint32_t version;
	uint32_t ranks;
	uint64_t complete;	/* the last round that is */
	uint64_t missing;	/* a rank, and 1, that was waited for in vain; or 0 */
	uint64_t life;		/* by chance: of this table, and of no other one of that name */
	uint32_t error;		/* what is wrong with that rank; stored before @missing */
	uint32_t disputed;	/* another process wanted to be a rank that is here */
	uint64_t reserved[26];
};

/* What a rank has told in a round. */
struct cell {
	uint64_t round;		/* written behind the data */
	uint64_t read;		/* the same, when it has read what the others told */
	uint64_t life;		/* the table's, for which it was written; with the data */
	uint64_t reserved;
	unsigned char data[TOW_GROUP_GATHER_MAX];
};

_Static_assert(sizeof(struct cell) == 256 && sizeof(struct header) == 256, "no gaps");

struct towi_table {
	uint32_t rank, ranks;
	uint64_t round;
	uint64_t life;
	int error;			/* what has ended it */
	struct tow_region *region;
	/* Rank 0: the table.  Others: what they have read of it, and their own cell behind. */
	char *memory;
	size_t memory_bytes;
	towi_table_find_fn *find;	/* rank 0, as what follows */
	void *arg;
	struct tow_exported *exported;	/* rank 0: all of it; others: that they live */
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

/* Sleep for a while, longer each time: 0; -ETIMEDOUT; -EINTR: the caller wants to end. */
static int sleep_before(uint64_t until, unsigned int *look_us)
{
	if (towi_now_ns() / 1000 >= until)
		return -ETIMEDOUT;
	usleep(*look_us);
	*look_us = *look_us < LOOK_MAX_US / 2 ? *look_us * 2 : LOOK_MAX_US;
	return towi_goes_on() ? 0 : -EINTR;
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
	ret = tow_queue_submit(table->queue);
	if (ret < 0)
		return ret;
	ret = tow_queue_wait_cqe(table->queue, &cqe, towi_left_us(until));
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
		else if (sleep_before(until, &look_us))
			break;
	}
}

/* Rank 0: has a rank told?  1; 0: not yet; or what is wrong with it. */
static int has_told(const struct towi_table *table, uint32_t rank)
{
	const struct cell *cell = cell_of(table, table->round, rank);
	uint64_t round = tow_load_acquire64(&cell->round);

	if (round == LEFT)
		return -ECANCELED;
	/* Two jobs of one name: who has come to this table need not be of this one. */
	if (table->round == FIRST_ROUND &&
	    __atomic_load_n(&header_of(table)->disputed, __ATOMIC_ACQUIRE))
		return -EEXIST;
	if (round != table->round)
		return 0;
	return cell->life == table->life ? 1 : -EPROTO;
}

/* What a rank exports as long as it lives. */
static void name_of_life(const struct towi_table *table, uint32_t rank,
			 char name[TOW_EXPORT_NAME_MAX + 1])
{
	snprintf(name, TOW_EXPORT_NAME_MAX + 1, "towline/group/%016" PRIx64 "/%" PRIu32,
		 table->life, rank);
}

/* The next behind @rank, or that one, who has not told. */
static uint32_t next_missing(const struct towi_table *table, uint32_t rank)
{
	uint32_t i;

	for (i = 0; i < table->ranks; i++) {
		rank = (rank + 1) % table->ranks;
		if (!has_told(table, rank))
			break;
	}
	return rank;
}

/* Rank 0: is a rank there that is waited for?  0, or it cannot be said; what has become of it. */
static int look_after(struct towi_table *table, uint32_t rank)
{
	char name[TOW_EXPORT_NAME_MAX + 1];
	struct tow_remote *remote;
	struct tow_peer *peer;
	int ret;

	/* Who has never been there is only waited for. */
	if (table->round == FIRST_ROUND || !rank)
		return 0;
	peer = table->find(table->arg, rank);
	if (!peer)
		return 0;
	name_of_life(table, rank, name);
	ret = tow_resolve(peer, name, TOW_RIGHT_READ, 0, &remote);
	tow_peer_release(peer);
	if (!ret)
		tow_remote_release(remote);
	if (ret == -ENOENT)
		return -ESTALE;
	return ret == -ESTALE || ret == -ECONNRESET || ret == -EINTR ? ret : 0;
}

/* Rank 0: until all have told. */
static int collect(struct towi_table *table, uint64_t until, uint32_t *blamed)
{
	struct header *header = header_of(table);
	uint64_t probe = towi_until(PROBE_US);
	unsigned int look_us = LOOK_US;
	uint32_t rank = 0, asked = 0;
	int ret = 0;

	while (ret >= 0 && rank < table->ranks) {
		ret = has_told(table, rank);
		if (ret == 1) {
			rank++;
			continue;
		}
		if (!ret)
			ret = sleep_before(until, &look_us);
		if (ret || towi_left_us(probe))
			continue;
		probe = towi_until(PROBE_US);
		asked = next_missing(table, asked);
		ret = look_after(table, asked);
		if (ret)
			rank = asked;
	}
	if (ret >= 0) {
		__atomic_store_n(&header->complete, table->round, __ATOMIC_RELEASE);
		return 0;
	}
	/* Nobody is to blame for two jobs of one name. */
	if (ret == -EEXIST)
		rank = table->ranks;
	else if (ret == -EINTR)
		rank = 0;
	else
		*blamed = rank;
	header->error = ret == -EINTR ? ECANCELED : (uint32_t)-ret;
	__atomic_store_n(&header->missing, rank + 1ULL, __ATOMIC_RELEASE);
	/* The program may end at once. */
	let_read(table, towi_until(GOODBYE_US));
	return ret;
}

static int tell_root(struct towi_table *table, const void *mine, size_t bytes, uint64_t until)
{
	struct cell *own = cell_of(table, table->round, table->rank);
	uint64_t at = cell_at(table, table->round, table->rank);
	int ret;

	own->life = table->life;
	if (bytes)
		memcpy(own->data, mine, bytes);
	ret = write_there(table, at + offsetof(struct cell, life),
			  offsetof(struct cell, data) - offsetof(struct cell, life) + bytes, until);
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
	uint32_t error = header_of(table)->error;

	/* Other ranks could have written there. */
	if (missing <= table->ranks)
		*blamed = (uint32_t)missing - 1;
	have_read(table, until);
	switch (error) {
	case ECANCELED:
	case ECONNRESET:
	case EEXIST:
	case EPROTO:
	case ESTALE:
		return -(int)error;
	default:
		return -ETIMEDOUT;
	}
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
		ret = sleep_before(until, &look_us);
		if (ret == -EINTR)
			return ret;
		if (ret)
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
		own->life = table->life;
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
	if (getrandom(&table->life, sizeof(table->life), 0) != sizeof(table->life))
		return -errno;
	*header_of(table) = (struct header){ .magic = MAGIC, .version = VERSION,
					     .ranks = table->ranks, .life = table->life };
	return tow_export(table->region, 0, table->memory_bytes, name,
			  TOW_RIGHT_READ | TOW_RIGHT_WRITE, &table->exported);
}

/*
 * Somebody else is this rank: two jobs have one name, or one was started twice.  While ranks still
 * meet nobody can say which is whose, so nobody goes on; ranks that have met are left alone.
 */
static void dispute(struct towi_table *table, uint64_t until)
{
	struct header *header = header_of(table);

	if (header->complete)
		return;
	header->disputed = 1;
	write_there(table, offsetof(struct header, disputed), sizeof(header->disputed), until);
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
	table->life = header->life;
	ret = read_here(table, cell_at(table, FIRST_ROUND, table->rank), sizeof(struct cell),
			until);
	if (ret)
		return ret;
	if (table->rank && !cell_of(table, FIRST_ROUND, table->rank)->round)
		return 0;
	dispute(table, until);
	return -EEXIST;
}

static int find_table(struct towi_table *table, struct tow_device *dev, struct tow_peer *root,
		      const char *name, uint64_t until)
{
	char own[TOW_EXPORT_NAME_MAX + 1];
	int ret;

	ret = tow_resolve(root, name, TOW_RIGHT_READ | TOW_RIGHT_WRITE, towi_left_ms(until),
			  &table->remote);
	if (!ret)
		ret = tow_queue_create(dev, ENTRIES, 0, &table->queue);
	if (!ret)
		ret = tow_channel_get(table->queue, root, 0, &table->channel);
	if (!ret)
		ret = look_at(table, until);
	if (ret)
		return ret;
	name_of_life(table, table->rank, own);
	return tow_export(table->region, 0, sizeof(uint64_t), own, TOW_RIGHT_READ,
			  &table->exported);
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

void towi_table_watch(struct towi_table *table, towi_table_find_fn *find, void *arg)
{
	table->find = find;
	table->arg = arg;
}

void towi_table_dispute(struct tow_device *dev, struct tow_peer *root, const char *name,
			uint32_t ranks)
{
	struct towi_table *made = calloc(1, sizeof(*made));

	if (!made)
		return;
	made->ranks = ranks;
	if (!make_memory(made, dev))
		find_table(made, dev, root, name, towi_until(ANSWER_US));
	free_table(made);
}

/* Who waits for this rank need not wait any longer. */
static void leave(struct towi_table *table)
{
	uint64_t until = towi_until(ANSWER_US), round;

	for (round = table->round; round <= table->round + 1; round++) {
		cell_of(table, round, table->rank)->round = LEFT;
		if (write_there(table, cell_at(table, round, table->rank), sizeof(uint64_t), until))
			break;
	}
}

void towi_table_destroy(struct towi_table *table, uint64_t until)
{
	if (!table)
		return;
	if (!table->rank && !table->error)
		let_read(table, until);
	else if (table->rank && table->queue->ring && !root_is_gone(table->error))
		leave(table);
	free_table(table);
}

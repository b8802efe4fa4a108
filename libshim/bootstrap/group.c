// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/* The ranks of a job, which meet at rank 0. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../core/internal.h"
#include "inside.h"

#define ATTR_SIZE_FIRST		(offsetof(struct tow_group_attr, arg) + sizeof(void *))
/* How long one try to reach rank 0's node may take, and the pause before the next one. */
#define TRY_MS			10000U
#define PAUSE_US		50000U
#define PAUSE_MAX_US		1000000U
/* What telling another rank 0 of this name that there is this one may take. */
#define DISPUTE_US	5000000U

/* What a rank says of itself first. */
struct card {
	uint32_t ranks;
	int32_t status;		/* why this rank cannot take part, or 0 */
	uint8_t incarnation[TOW_INCARNATION_BYTES];
	char address[TOW_GROUP_ADDRESS_BYTES];
};

_Static_assert(sizeof(struct card) <= TOW_GROUP_GATHER_MAX, "is told at once");

struct tow_group {
	struct tow_device *dev;
	struct tow_world world;
	/* By what rank 0's node is reached; "": by what rank 0 says. */
	char root[TOW_WORLD_ROOT_BYTES];
	uint32_t timeout_ms;
	uint64_t process;		/* whose it is: a child shares its memory */
	tow_group_gather_fn *gather;
	void *arg;
	struct towi_table *table;	/* without @gather, and with more than one rank */
	struct card *cards;		/* by rank */
	void *told;			/* by rank: of towi_group_gather() */
	pthread_mutex_t lock;		/* around what follows */
	struct tow_peer **peers;	/* by the first rank of their node, once connected */
};

/* ---- telling ---------------------------------------------------------------- */

static uint64_t until_of(const struct tow_group *group)
{
	return towi_until_ms(group->timeout_ms);
}

static int gather(struct tow_group *group, const void *mine, size_t bytes, void *all,
		  uint32_t *blamed)
{
	if (group->gather)
		return group->gather(group->arg, mine, bytes, all);
	if (group->table)
		return towi_table_gather(group->table, mine, bytes, all, until_of(group), blamed);
	if (bytes)
		memcpy(all, mine, bytes);
	return 0;
}

TOW_PUBLIC int tow_group_gather(struct tow_group *group, const void *mine, size_t bytes, void *all,
				uint32_t *blamed)
{
	uint32_t rank = TOW_NO_RANK;
	int ret;

	if (!group || bytes > TOW_GROUP_GATHER_MAX || (bytes && (!mine || !all)))
		return -EINVAL;
	if (blamed)
		*blamed = rank;
	if (!towi_group_ours(group))
		return -EPERM;
	ret = gather(group, mine, bytes, all, &rank);
	if (blamed)
		*blamed = rank;
	return ret;
}

int towi_group_gather(struct tow_group *group, const void *mine, size_t bytes, void **all,
		      uint32_t *blamed)
{
	*all = group->told;
	return tow_group_gather(group, mine, bytes, group->told, blamed);
}

/* ---- meeting ---------------------------------------------------------------- */

/* Ranks of other runs, and of other starts of the same, look for another name. */
static void name_of(const struct tow_group *group, const char *name, char to[TOWI_TABLE_NAME_BYTES])
{
	snprintf(to, TOWI_TABLE_NAME_BYTES, "%s/%u/%s", group->world.session, group->world.restart,
		 name ? name : "");
}

static int own_card(struct tow_group *group, const char *address, struct card *card)
{
	struct tow_device_attr attr = { .size = sizeof(attr) };
	int ret = tow_device_query(group->dev, &attr);

	if (ret)
		return ret;
	memcpy(card->incarnation, attr.incarnation, sizeof(card->incarnation));
	if (!address)
		address = secure_getenv("TOW_ADDRESS");
	if (!address)
		return towi_own_address(TOWI_RDMA_CLASS, attr.device_name, attr.port,
					card->address);
	if (strlen(address) >= sizeof(card->address))
		return -EINVAL;
	memcpy(card->address, address, strlen(address));
	return 0;
}

/*
 * By what rank 0's node is reached.  A loopback address, or another one of this node, means this
 * node; rank 0 says by which address others reach it, and that is this one's, too.
 */
static int find_address(struct tow_group *group)
{
	struct towi_address where;
	int ret;

	if (!group->world.root[0])
		return 0;
	ret = towi_address(group->world.root, &where);
	if (!ret && !towi_is_own(&where))
		memcpy(group->root, group->world.root, sizeof(group->root));
	return ret;
}

/* Where rank 0 is. */
static int find_root(struct tow_group *group, const struct card *own, uint64_t until,
		     struct tow_peer **root)
{
	uint32_t left = towi_left_ms(until);
	int ret = find_address(group);

	if (ret)
		return ret;
	return tow_peer_connect(group->dev, group->root[0] ? group->root : own->address, NULL,
				left < TRY_MS ? left : TRY_MS, root);
}

static int find_table(struct tow_group *group, const char *name, const struct card *own,
		      uint64_t until)
{
	struct tow_peer *root;
	int ret = find_root(group, own, until, &root);

	return ret ? ret : towi_table_create(group->dev, root, name, group->world.rank,
					     group->world.world_size, until, &group->table);
}

/* Does this node have a cluster key?  Then it is the other one that has none so far. */
static bool has_key(const struct tow_group *group)
{
	struct tow_device_attr attr = { .size = sizeof(attr) };
	char path[256], key[128];

	if (tow_device_query(group->dev, &attr))
		return false;
	snprintf(path, sizeof(path), TOWI_SYSFS_CLASS "/%s/cluster_key", attr.device_name);
	return towi_read_line(path, key, sizeof(key)) && strcmp(key, "none") != 0;
}

/* May that be over when rank 0's node has come up? */
static bool may_pass(const struct tow_group *group, int error)
{
	switch (error) {
	case -EAGAIN:
	case -ECONNREFUSED:
	case -ECONNRESET:
	case -EHOSTUNREACH:
	case -ENETUNREACH:
	case -ENOENT:
	case -ESTALE:
	case -ETIMEDOUT:
		return true;
	case -ENOKEY:
		return has_key(group);
	default:
		return false;
	}
}

/* The node may boot, its module be loaded, its interface come up, its name be known later. */
static int wait_for_table(struct tow_group *group, const char *name, const struct card *own,
			  uint64_t until, uint32_t *blamed)
{
	unsigned int pause_us = PAUSE_US;
	int ret;

	while (may_pass(group, ret = find_table(group, name, own, until)) && towi_left_us(until)) {
		usleep(pause_us);
		pause_us = pause_us < PAUSE_MAX_US / 2 ? pause_us * 2 : PAUSE_MAX_US;
		if (!towi_goes_on())
			return -EINTR;
	}
	if (may_pass(group, ret))
		*blamed = 0;
	return ret;
}

/* On this node is another rank 0 of that name, which is told. */
static void dispute(struct tow_group *group, const char *name, const struct card *own)
{
	struct towi_table *theirs;
	struct tow_peer *here;

	if (!tow_peer_connect(group->dev, own->address, NULL, TRY_MS, &here) &&
	    !towi_table_create(group->dev, here, name, 0, group->world.world_size,
			       towi_until(DISPUTE_US), &theirs))
		towi_table_destroy(theirs);
}

static bool same_node(const struct tow_group *group, uint32_t one, uint32_t other)
{
	return !memcmp(group->cards[one].incarnation, group->cards[other].incarnation,
		       TOW_INCARNATION_BYTES);
}

/* By what it is reached: rank 0's node by what it was found by. */
static const char *address_of(const struct tow_group *group, uint32_t rank)
{
	return group->root[0] && same_node(group, rank, 0) ? group->root :
							     group->cards[rank].address;
}

static int make_table(struct tow_group *group, const char *name, const struct card *own,
		      uint32_t *blamed)
{
	char full[TOWI_TABLE_NAME_BYTES];
	uint64_t until = until_of(group);
	int ret;

	name_of(group, name, full);
	if (group->world.rank)
		return wait_for_table(group, full, own, until, blamed);
	ret = towi_table_create(group->dev, NULL, full, 0, group->world.world_size, until,
				&group->table);
	if (ret == -EEXIST)
		dispute(group, full, own);
	return ret;
}

/* Can all take part, and do they agree? */
static int look_at_cards(const struct tow_group *group, const struct card *own, uint32_t *blamed)
{
	const struct card *card = group->cards;

	if (own->status)
		return own->status;
	for (uint32_t rank = 0; rank < group->world.world_size; rank++) {
		if (card[rank].status) {
			*blamed = rank;
			return towi_is_error(card[rank].status) ? card[rank].status : -EPROTO;
		}
		if (card[rank].ranks != group->world.world_size ||
		    !memchr(card[rank].address, '\0', sizeof(card[rank].address)))
			return -EPROTO;
	}
	return 0;
}

static int meet(struct tow_group *group, const struct tow_group_attr *attr, uint32_t *blamed)
{
	struct card own = { .ranks = group->world.world_size, .status = attr->status };
	int ret;

	if (!own.status)
		own.status = own_card(group, attr->address, &own);
	/* Who is alone needs no address. */
	if (own.status == -EADDRNOTAVAIL && group->world.world_size == 1)
		own.status = 0;
	if (group->gather) {
		/* If it is not found: rank 0 says by what address others reach it. */
		find_address(group);
	} else if (own.status) {
		return own.status;
	} else if (group->world.world_size > 1) {
		ret = make_table(group, attr->name, &own, blamed);
		if (ret)
			return ret;
	}
	ret = gather(group, &own, sizeof(own), group->cards, blamed);
	return ret ? ret : look_at_cards(group, &own, blamed);
}

/* ---- life ------------------------------------------------------------------- */

static int take_world(const struct tow_world *given, struct tow_world *world)
{
	int ret = towi_take(given, TOWI_WORLD_SIZE_FIRST, world, sizeof(*world));

	if (ret)
		return ret;
	return !given || !world->world_size || world->world_size > TOW_RANKS_MAX ||
	       world->rank >= world->world_size ||
	       !memchr(world->root, '\0', sizeof(world->root)) ||
	       !memchr(world->session, '\0', sizeof(world->session)) ? -EINVAL : 0;
}

static void free_group(struct tow_group *group)
{
	for (uint32_t rank = 0; group->peers && rank < group->world.world_size; rank++)
		tow_peer_release(group->peers[rank]);
	free(group->peers);
	free(group->cards);
	free(group->told);
	pthread_mutex_destroy(&group->lock);
	free(group);
}

static struct tow_group *new_group(struct tow_device *dev, const struct tow_world *world,
				   const struct tow_group_attr *attr)
{
	struct tow_group *made = calloc(1, sizeof(*made));

	if (!made)
		return NULL;
	pthread_mutex_init(&made->lock, NULL);
	made->dev = dev;
	made->process = towi_process();
	made->world = *world;
	made->timeout_ms = attr->timeout_ms ? attr->timeout_ms : TOWI_TIMEOUT_MS;
	made->gather = attr->gather;
	made->arg = attr->arg;
	made->cards = calloc(world->world_size, sizeof(*made->cards));
	made->told = calloc(world->world_size, TOW_GROUP_GATHER_MAX);
	made->peers = calloc(world->world_size, sizeof(struct tow_peer *));
	if (made->cards && made->told && made->peers)
		return made;
	free_group(made);
	return NULL;
}

TOW_PUBLIC int tow_group_create(struct tow_device *dev, const struct tow_world *world,
				const struct tow_group_attr *attr, struct tow_group **group,
				uint32_t *blamed)
{
	struct tow_group_attr known;
	struct tow_world in;
	struct tow_group *made;
	uint32_t rank = TOW_NO_RANK;
	int ret;

	if (blamed)
		*blamed = rank;
	if (!group)
		return -EINVAL;
	if (dev && !towi_ours(dev->process))
		return -EPERM;
	ret = take_world(world, &in);
	if (!ret)
		ret = towi_take(attr, ATTR_SIZE_FIRST, &known, sizeof(known));
	/* Who has nothing to take part with only says so. */
	if (!ret && (known.reserved || (!dev && !known.status) ||
		     (known.status && (!known.gather || !towi_is_error(known.status)))))
		ret = -EINVAL;
	if (!ret && known.name && strlen(known.name) > TOW_GROUP_NAME_MAX)
		ret = -EINVAL;
	if (ret)
		return ret;
	made = new_group(dev, &in, &known);
	if (!made)
		return -ENOMEM;
	ret = meet(made, &known, &rank);
	if (blamed)
		*blamed = rank;
	if (ret)
		tow_group_destroy(made);
	else
		*group = made;
	return ret;
}

TOW_PUBLIC void tow_group_destroy(struct tow_group *group)
{
	if (!group)
		return;
	towi_table_destroy(group->table);
	free_group(group);
}

TOW_PUBLIC uint32_t tow_group_rank(const struct tow_group *group)
{
	return group->world.rank;
}

TOW_PUBLIC uint32_t tow_group_size(const struct tow_group *group)
{
	return group->world.world_size;
}

bool towi_group_ours(const struct tow_group *group)
{
	return towi_ours(group->process);
}

struct tow_device *towi_group_device(const struct tow_group *group)
{
	return group->dev;
}

uint32_t towi_group_timeout_ms(const struct tow_group *group)
{
	return group->timeout_ms;
}

/* ---- nodes ------------------------------------------------------------------ */

int towi_group_peer(struct tow_group *group, uint32_t rank, uint32_t timeout_ms,
		    struct tow_peer **peer)
{
	uint32_t first = 0;
	int ret = 0;

	while (!same_node(group, first, rank))
		first++;
	pthread_mutex_lock(&group->lock);
	if (!group->peers[first] && !address_of(group, first)[0])
		ret = -EADDRNOTAVAIL;
	else if (!group->peers[first])
		ret = tow_peer_connect(group->dev, address_of(group, first), NULL,
				       timeout_ms, &group->peers[first]);
	if (!ret)
		*peer = group->peers[first];
	pthread_mutex_unlock(&group->lock);
	return ret;
}

TOW_PUBLIC int tow_group_peer(struct tow_group *group, uint32_t rank, struct tow_peer **peer)
{
	if (!group || !peer || rank >= group->world.world_size)
		return -EINVAL;
	if (!towi_group_ours(group))
		return -EPERM;
	return towi_group_peer(group, rank, group->timeout_ms, peer);
}

// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/* The ranks of a job, which meet at rank 0. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "../core/internal.h"
#include "inside.h"

#define ATTR_SIZE_FIRST		(offsetof(struct tow_group_attr, arg) + sizeof(void *))
#define TIMEOUT_MS		30000U

/* What a rank says of itself first. */
struct card {
	uint64_t number;	/* by chance: whether the cell holds what this process wrote */
	uint32_t ranks;
	uint32_t reserved;
	uint8_t incarnation[TOW_INCARNATION_BYTES];
	char address[TOW_GROUP_ADDRESS_BYTES];
};

_Static_assert(sizeof(struct card) <= TOW_GROUP_GATHER_MAX, "fits in a cell");

struct tow_group {
	struct tow_device *dev;
	struct tow_world world;
	uint32_t timeout_ms;
	uint64_t process;		/* whose it is: a child shares its memory */
	tow_group_gather_fn *gather;
	void *arg;
	struct towi_table *table;	/* without @gather, and with more than one rank */
	struct card *cards;		/* by rank */
	pthread_mutex_t lock;		/* around what follows */
	struct tow_peer **peers;	/* by the first rank of their node, once connected */
};

/* ---- telling ---------------------------------------------------------------- */

static uint64_t until_of(const struct tow_group *group)
{
	return towi_until(group->timeout_ms * 1000ULL);
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

/* ---- meeting ---------------------------------------------------------------- */

/* Ranks of other runs, and of other starts of the same, look for another name. */
static int name_of(const struct tow_group *group, const char *name,
		   char to[TOW_EXPORT_NAME_MAX + 1])
{
	int length = snprintf(to, TOW_EXPORT_NAME_MAX + 1, "towline/group/%s/%u/%s",
			      group->world.session, group->world.restart, name ? name : "");

	return length > (int)TOW_EXPORT_NAME_MAX ? -EINVAL : 0;
}

static int own_card(struct tow_group *group, const char *address, struct card *card)
{
	struct tow_device_attr attr = { .size = sizeof(attr) };
	int ret;

	*card = (struct card){ .ranks = group->world.world_size };
	if (getrandom(&card->number, sizeof(card->number), 0) != sizeof(card->number))
		return -errno;
	ret = tow_device_query(group->dev, &attr);
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

/* Where rank 0 is; the caller releases it. */
static int find_root(struct tow_group *group, const struct card *own, uint64_t until,
		     struct tow_peer **root)
{
	const char *address = group->world.root[0] ? group->world.root : own->address;

	return tow_peer_connect(group->dev, address, NULL, towi_left_ms(until), root);
}

static int make_table(struct tow_group *group, const char *name, const struct card *own)
{
	char full[TOW_EXPORT_NAME_MAX + 1];
	uint64_t until = until_of(group);
	struct tow_peer *root = NULL;
	int ret = name_of(group, name, full);

	if (!ret && group->world.rank)
		ret = find_root(group, own, until, &root);
	if (!ret)
		ret = towi_table_create(group->dev, root, full, group->world.rank,
					group->world.world_size, until, &group->table);
	tow_peer_release(root);
	return ret;
}

/* Do they agree, and is nobody there twice? */
static int look_at_cards(const struct tow_group *group, const struct card *own)
{
	const struct card *card = group->cards;

	if (card[group->world.rank].number != own->number)
		return -EEXIST;
	for (uint32_t rank = 0; rank < group->world.world_size; rank++) {
		if (card[rank].ranks != group->world.world_size ||
		    !memchr(card[rank].address, '\0', sizeof(card[rank].address)))
			return -EPROTO;
	}
	return 0;
}

static int meet(struct tow_group *group, const struct tow_group_attr *attr, uint32_t *blamed)
{
	struct card own;
	int ret = own_card(group, attr->address, &own);

	/* Who is alone needs no address. */
	if (ret == -EADDRNOTAVAIL && group->world.world_size == 1)
		ret = 0;
	if (!ret && !group->gather && group->world.world_size > 1) {
		ret = make_table(group, attr->name, &own);
		/* Nobody has exported it. */
		if (ret == -ETIMEDOUT)
			*blamed = 0;
	}
	if (!ret)
		ret = gather(group, &own, sizeof(own), group->cards, blamed);
	return ret ? ret : look_at_cards(group, &own);
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
	made->timeout_ms = attr->timeout_ms ? attr->timeout_ms : TIMEOUT_MS;
	made->gather = attr->gather;
	made->arg = attr->arg;
	made->cards = calloc(world->world_size, sizeof(*made->cards));
	made->peers = calloc(world->world_size, sizeof(struct tow_peer *));
	if (made->cards && made->peers)
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
	if (!dev || !group)
		return -EINVAL;
	if (!towi_ours(dev->process))
		return -EPERM;
	ret = take_world(world, &in);
	if (!ret)
		ret = towi_take(attr, ATTR_SIZE_FIRST, &known, sizeof(known));
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
	towi_table_destroy(group->table, towi_group_ours(group) ? until_of(group) : towi_until(0));
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

static bool same_node(const struct tow_group *group, uint32_t one, uint32_t other)
{
	return !memcmp(group->cards[one].incarnation, group->cards[other].incarnation,
		       TOW_INCARNATION_BYTES);
}

/* By what it is reached: rank 0's node by what it was found by. */
static const char *address_of(const struct tow_group *group, uint32_t rank)
{
	return group->world.root[0] && same_node(group, rank, 0) ? group->world.root :
								   group->cards[rank].address;
}

TOW_PUBLIC int tow_group_peer(struct tow_group *group, uint32_t rank, struct tow_peer **peer)
{
	uint32_t first = 0;
	int ret = 0;

	if (!group || !peer || rank >= group->world.world_size)
		return -EINVAL;
	if (!towi_group_ours(group))
		return -EPERM;
	while (!same_node(group, first, rank))
		first++;
	pthread_mutex_lock(&group->lock);
	if (!group->peers[first] && !address_of(group, first)[0])
		ret = -EADDRNOTAVAIL;
	else if (!group->peers[first])
		ret = tow_peer_connect(group->dev, address_of(group, first), NULL,
				       group->timeout_ms, &group->peers[first]);
	if (!ret)
		*peer = group->peers[first];
	pthread_mutex_unlock(&group->lock);
	return ret;
}

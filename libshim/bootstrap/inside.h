/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/* What a group is made of, inside. */
#ifndef TOW_BOOTSTRAP_INSIDE_H
#define TOW_BOOTSTRAP_INSIDE_H

#include <errno.h>
#include <stdbool.h>

#include <towline/bootstrap.h>

#include "../core/internal.h"

/* Of struct tow_world, when it was first published. */
#define TOWI_WORLD_SIZE_FIRST \
	(offsetof(struct tow_world, launcher) + sizeof(char *))

/* Nobody else is to blame for that. */
static inline bool towi_is_own_error(int error)
{
	return error == -ENODEV || error == -EPERM || error == -ENOSPC || error == -EDQUOT ||
	       error == -ENOMEM;
}

/* ---- own.c ---- */

/*
 * An address of the device's port, as tow_peer_connect() takes it: the first of IPv4, or else
 * of IPv6.  @class: where devices are told of; TOWI_RDMA_CLASS.  0, or -EADDRNOTAVAIL.
 */
#define TOWI_RDMA_CLASS	"/sys/class/infiniband"
int towi_own_address(const char *class, const char *device, uint32_t port,
		     char address[TOW_GROUP_ADDRESS_BYTES]);

/* Is that this node: a loopback address, or one of an interface that is here? */
bool towi_is_own(const struct towi_address *address);

/* The first line of a file, without its end: whether there is the file. */
bool towi_read_line(const char *path, char *line, size_t bytes);

/* ---- group.c ---- */

/* Is it this process's, and not its parent's? */
bool towi_group_ours(const struct tow_group *group);

/* The group's device, which was open before it. */
struct tow_device *towi_group_device(const struct tow_group *group);

/* As tow_group_peer(), with a time for connecting; by any thread. */
int towi_group_peer(struct tow_group *group, uint32_t rank, uint32_t timeout_ms,
		    struct tow_peer **peer);

/*
 * As tow_group_gather(), to memory of the group's, until the next one: whoever has no memory takes
 * part all the same, so that others are told and do not wait.
 */
int towi_group_gather(struct tow_group *group, const void *mine, size_t bytes, void **all,
		      uint32_t *blamed);

/* How long each of its calls may wait for other ranks. */
uint32_t towi_group_timeout_ms(const struct tow_group *group);

/* ---- table.c ---- */

/*
 * Lines between rank 0 and all others, by which they tell each other something at once.  A round is
 * one such exchange.
 */
struct towi_table;

/* Of what makes a table's name: session, restart, and the group's. */
#define TOWI_TABLE_NAME_BYTES \
	(TOW_WORLD_SESSION_BYTES + sizeof("/4294967295/") + TOW_GROUP_NAME_MAX)

/*
 * Rank 0: @root is NULL, and others find it by @name from now on.  Others: find it at @root, until
 * @until; that peer is released with the table, or by this call if it fails.  0; -EEXIST: all
 * have met without this rank; or what making and finding return.  What rank 0 has to say against
 * this rank, or what has failed there before, is what towi_table_gather() returns.
 *
 * Rank 0 with @root says to another rank 0 that there are two of that name: who still meets there
 * fails.
 */
int towi_table_create(struct tow_device *dev, struct tow_peer *root, const char *name,
		      uint32_t rank, uint32_t ranks, uint64_t until, struct towi_table **table);

/* Others are told that this rank has left. */
void towi_table_destroy(struct towi_table *table);

/* As tow_group_gather(), until @until; its arguments are as they should be. */
int towi_table_gather(struct towi_table *table, const void *mine, size_t bytes, void *all,
		      uint64_t until, uint32_t *blamed);

#endif /* TOW_BOOTSTRAP_INSIDE_H */

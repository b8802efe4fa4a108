/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/* What a group is made of, inside. */
#ifndef TOW_BOOTSTRAP_INSIDE_H
#define TOW_BOOTSTRAP_INSIDE_H

#include <stdbool.h>

#include <towline/bootstrap.h>

/* Of struct tow_world, when it was first published. */
#define TOWI_WORLD_SIZE_FIRST \
	(offsetof(struct tow_world, launcher) + sizeof(char *))

/* ---- own.c ---- */

/*
 * An address of the device's port, as tow_peer_connect() takes it: the first of IPv4, or else
 * of IPv6.  @class: where devices are told of; TOWI_RDMA_CLASS.  0, or -EADDRNOTAVAIL.
 */
#define TOWI_RDMA_CLASS	"/sys/class/infiniband"
int towi_own_address(const char *class, const char *device, uint32_t port,
		     char address[TOW_GROUP_ADDRESS_BYTES]);

/* ---- group.c ---- */

/* Is it this process's, and not its parent's? */
bool towi_group_ours(const struct tow_group *group);

/* The group's device, which was open before it. */
struct tow_device *towi_group_device(const struct tow_group *group);

/* How long each of its calls may wait for other ranks. */
uint32_t towi_group_timeout_ms(const struct tow_group *group);

/* ---- table.c ---- */

/*
 * Rank 0's memory, in which all ranks write what they tell, and which they read when all have.
 * A round is one such exchange; what is of round N is in one half of the table, what is of
 * N + 1 in the other: nobody begins N + 2 before all have ended N.
 */
struct towi_table;

/*
 * Rank 0: make the table, and let others find it as @name; @root is NULL.  Others: find it at
 * @root, until @until.  0; -EPROTO: it is not for @ranks of them; or what making and finding
 * return.
 */
int towi_table_create(struct tow_device *dev, struct tow_peer *root, const char *name,
		      uint32_t rank, uint32_t ranks, uint64_t until, struct towi_table **table);

/* Rank 0 waits until others have read what they were told, until @until. */
void towi_table_destroy(struct towi_table *table, uint64_t until);

/* As tow_group_gather(), until @until; its arguments are as they should be. */
int towi_table_gather(struct towi_table *table, const void *mine, size_t bytes, void *all,
		      uint64_t until, uint32_t *blamed);

#endif /* TOW_BOOTSTRAP_INSIDE_H */

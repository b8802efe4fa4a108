// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Members: other ranks, as this one finds them when it first needs to.
 *
 * What a rank has others find by a number of its own, which all learn when the communicator is made.
 * Looking for it waits for another node, and is an errand.
 */
#include <errno.h>

#include "../bootstrap/inside.h"
#include "calls.h"

/* How long a node is given to be connected to. */
#define CONNECT_MS	10000U

static bool is_missing(int error)
{
	return error == -ENOENT || error == -ETIMEDOUT;
}

static int find(struct towi_errand *errand)
{
	struct towi_member *member = TOWI_OUTER(errand, struct towi_member, finds);
	struct tow_comm *comm = member->comm;
	int ret;

	ret = towi_group_peer(comm->group, comm->places[member->rank], CONNECT_MS,
			      &member->seen_peer);
	if (!ret && !member->seen_channel)
		ret = tow_channel_get(comm->pump.queue, member->seen_peer, 0,
				      &member->seen_channel);
	if (!ret)
		ret = towi_board_find(member);
	return is_missing(ret) && towi_left_us(member->until_us) ? -EAGAIN : ret;
}

/* There was such a name; so if there is none any more, it has ended. */
static void found(struct towi_errand *errand, int ret)
{
	struct towi_member *member = TOWI_OUTER(errand, struct towi_member, finds);
	struct tow_comm *comm = member->comm;

	member->finding = false;
	if (ret) {
		member->error = is_missing(ret) ? -ESTALE : ret;
	} else {
		member->peer = member->seen_peer;
		member->channel = member->seen_channel;
		member->board = member->seen_board;
		towi_board_found(member);
	}
	if (comm->calls)
		towi_pump_ready(&comm->calls->runner);
}

bool towi_member_found(struct towi_member *member)
{
	struct tow_comm *comm = member->comm;

	if (member->board || member->finding || member->error)
		return member->board;
	/* Where all have met there is such a name, or it is over. */
	member->until_us = comm->split ? towi_until(comm->timeout_ms * 1000ULL) : 0;
	member->finds = (struct towi_errand){ .runner = &comm->runner, .run = find,
					      .done = found };
	member->finding = !towi_pump_errand(&member->finds);
	if (!member->finding)
		member->error = -ENOMEM;
	return false;
}

bool towi_members_are_sought(const struct tow_comm *comm)
{
	uint32_t rank;

	for (rank = 0; rank < comm->ranks; rank++)
		if (comm->members[rank].finding)
			return true;
	return false;
}

int towi_member_find(struct towi_member *member, uint64_t until)
{
	int ret = 0;

	while (!towi_member_found(member) && !member->error && (!ret || ret == -EINTR))
		ret = towi_pump_sleep(&member->comm->pump, until);
	if (member->board)
		return 0;
	return member->error ? member->error : ret;
}

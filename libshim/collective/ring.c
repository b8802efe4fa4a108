// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * The ring: each rank sends to the next one, and gets from the one before.
 *
 *	reduce-scatter	P - 1 steps.  In step S a rank sends the shard of the rank 1 + S before
 *			it, with what it and those between have added; its own comes last, whole
 *	all-gather	P - 1 steps.  In step S it sends the shard of the rank S before it
 *	AllReduce	one, then the other
 *	broadcast	from the root to the last before it: as one step for each
 *
 * A shard is cut into pieces, which go their way by themselves: while one is reduced others
 * travel.  Pieces are dealt to lanes, each with a slot that counts its messages and a queue pair
 * of its own.  A lane's messages are numbered: step after step, and in each all of its pieces, of
 * which there are "lag".  Message N + lag is what becomes of message N, and those before lag are what
 * a rank begins with.
 *
 * Who is written to, and when
 *
 * What is to be reduced is written to the next rank's scratch, with a place for each message of a
 * call; what has been to its place in @out.  An AllReduce needs no leave for that.  Who has ended
 * one has every shard, and each has gone through all ranks' hands, so nobody's scratch is needed
 * any more; and a shard that is whole was made of what its next reader gave, when he began the
 * call.  All others say to the one before them that they have begun ("ready").
 *
 * Who passes on what is whole
 *
 * This process, while it is awake.  Before it sleeps it leaves it to the kernel (relay.c), and
 * is not woken until there is nothing more to pass on, or all has come.
 */

#include "inside.h"

#define LANES_MAX	4U

struct lane {
	struct tow_slot *slot;		/* what comes */
	struct towi_way way;		/* to the next one's */
	struct towi_op sleeper;
	struct towi_relay relay;	/* what the kernel sends in between */
	uint64_t sent, come;		/* messages of this call */
};

struct ring {
	struct tow_collective all;	/* first */
	struct towi_target next, before;
	struct tow_remote *scratch, *out;	/* the next one's */
	uint32_t lanes, lag;
	uint64_t begins_with;		/* messages of a lane that wait for nothing */
	uint64_t comes, goes;		/* messages of a lane in a call */
	bool asks;			/* may send when the next one is ready */
	bool says;			/* is to say that it is ready, */
	bool said;			/* and has */
	struct tow_slot *ready;
	struct towi_way ready_there;
	struct towi_op ready_sleeper;
	struct lane lane[LANES_MAX];
};

static struct ring *ring_of(struct tow_collective *collective)
{
	return (struct ring *)collective;
}

static const struct ring *const_ring_of(const struct tow_collective *collective)
{
	return (const struct ring *)collective;
}

/* The rank so many before this one. */
static uint32_t behind(const struct tow_comm *comm, uint64_t ranks)
{
	return (uint32_t)((comm->rank + comm->ranks - ranks % comm->ranks) % comm->ranks);
}

/* ---- what a message is -------------------------------------------------------- */

/* Steps in which shards are reduced: those before the others. */
static uint64_t reducing_steps(const struct ring *ring)
{
	uint32_t kind = ring->all.attr.kind;

	return kind == TOW_ALLGATHER || kind == TOW_BROADCAST ? 0 : ring->all.comm->ranks - 1;
}

static uint32_t piece_of(const struct ring *ring, uint32_t lane, uint64_t message)
{
	return lane + (uint32_t)(message % ring->lag) * ring->lanes;
}

/* Where what is to be reduced in a step has its place. */
static uint64_t scratch_at(const struct ring *ring, uint64_t step, uint32_t piece)
{
	return (step * ring->all.pieces + piece) * ring->all.piece_bytes;
}

/* Whose shard is whole, and sent in a step after the others. */
static uint32_t whole_shard(const struct ring *ring, uint64_t step)
{
	return ring->all.attr.kind == TOW_BROADCAST ? 0 : behind(ring->all.comm, step);
}

/* ---- sending ------------------------------------------------------------------ */

/* What was reduced so far goes to the next one, who adds its own. */
static struct towi_send part(const struct ring *ring, uint64_t step, uint32_t piece)
{
	const struct tow_collective *all = &ring->all;
	uint32_t shard = behind(all->comm, step + 1);

	return (struct towi_send){
		.from = step ? &all->scratch : &all->in,
		.from_at = step ? scratch_at(ring, step - 1, piece) :
				  towi_piece_at(all, shard, piece),
		.to = ring->scratch,
		.to_at = scratch_at(ring, step, piece),
		.bytes = towi_piece_bytes(all, shard, piece),
	};
}

static struct towi_send whole(const struct ring *ring, uint64_t step, uint32_t piece)
{
	const struct tow_collective *all = &ring->all;
	uint32_t shard = whole_shard(ring, step);
	uint64_t at = towi_piece_at(all, shard, piece);

	return (struct towi_send){
		.from = &all->out,
		.from_at = at,
		.to = ring->out,
		.to_at = at,
		.bytes = towi_piece_bytes(all, shard, piece),
	};
}

static struct towi_send message_of(const struct ring *ring, uint32_t lane, uint64_t message)
{
	uint64_t step = message / ring->lag, reducing = reducing_steps(ring);
	uint32_t piece = piece_of(ring, lane, message);
	struct towi_send send = step < reducing ? part(ring, step, piece) :
						  whole(ring, step - reducing, piece);

	send.way = &ring->lane[lane].way;
	return send;
}

static bool send_message(struct ring *ring, uint32_t lane, uint64_t message)
{
	struct towi_send send = message_of(ring, lane, message);

	return towi_send(&ring->next, &send);
}

static bool may_send(const struct ring *ring)
{
	return !ring->asks || tow_slot_value(ring->ready) >= ring->all.begun;
}

static bool lane_sends(struct ring *ring, uint32_t which)
{
	struct lane *lane = &ring->lane[which];
	bool any = false;

	/* In their order: what was left to the kernel goes first. */
	if (lane->relay.entries)
		return false;
	while (lane->sent < ring->goes && lane->sent < lane->come + ring->begins_with &&
	       send_message(ring, which, lane->sent)) {
		lane->sent++;
		any = true;
	}
	return any;
}

/* ---- what comes --------------------------------------------------------------- */

static void reduce(struct ring *ring, uint64_t step, uint32_t piece)
{
	struct tow_collective *all = &ring->all;
	uint32_t shard = behind(all->comm, step + 2);
	uint64_t bytes = towi_piece_bytes(all, shard, piece);
	uint64_t at = towi_piece_at(all, shard, piece);
	bool last = step + 1 == reducing_steps(ring);
	char *part, *to;

	if (!bytes)
		return;
	part = towi_at(&all->scratch, scratch_at(ring, step, piece));
	to = last ? towi_at(&all->out, at) : part;
	/* The first step's part is what the rank before has given. */
	towi_combine(all, to, part, !step, towi_at(&all->in, at), bytes);
	if (last)
		towi_average(all, to, bytes);
}

/* How many messages of a lane there are by now, of this call. */
static uint64_t there(const struct ring *ring, const struct lane *lane)
{
	return tow_slot_value(lane->slot) - (ring->all.begun - 1) * ring->comes;
}

static bool lane_takes(struct ring *ring, uint32_t which)
{
	struct lane *lane = &ring->lane[which];
	uint64_t step = lane->come / ring->lag;

	if (lane->come >= ring->comes || lane->come >= there(ring, lane))
		return false;
	if (step < reducing_steps(ring))
		reduce(ring, step, piece_of(ring, which, lane->come));
	lane->come++;
	return true;
}

static bool ring_goes_on(struct tow_collective *collective)
{
	struct ring *ring = ring_of(collective);
	bool any = false, more, sends;
	uint32_t i;

	if (ring->says && !ring->said)
		ring->said = towi_tell(&ring->before, &ring->ready_there);
	do {
		more = false;
		sends = may_send(ring);
		for (i = 0; i < ring->lanes; i++) {
			more |= lane_takes(ring, i);
			if (sends)
				more |= lane_sends(ring, i);
		}
		/* While others travel, this rank reduces. */
		if (more)
			towi_pump_submit(&collective->comm->pump);
		any |= more;
	} while (more && !collective->comm->error);
	return any;
}

static bool ring_done(const struct tow_collective *collective)
{
	const struct ring *ring = const_ring_of(collective);
	uint32_t i;

	for (i = 0; i < ring->lanes; i++)
		if (ring->lane[i].come < ring->comes || ring->lane[i].sent < ring->goes)
			return false;
	return ring->said || !ring->says;
}

/* What a lane's slot says when message N of this call has come. */
static uint64_t number_of(const struct ring *ring, uint64_t message)
{
	return (ring->all.begun - 1) * ring->comes + message + 1;
}

/* Messages of a lane that are reduced; those after them need nobody to be passed on. */
static uint64_t reduced(const struct ring *ring)
{
	return reducing_steps(ring) * ring->lag;
}

/* The kernel passes on what comes while this process sleeps, as far as there is room. */
static void relay(struct ring *ring, uint32_t which)
{
	struct lane *lane = &ring->lane[which];
	uint64_t left = ring->goes - lane->sent;
	struct towi_send send;
	uint32_t room;

	if (lane->relay.entries || !left || lane->sent < reduced(ring) + ring->begins_with)
		return;
	room = towi_relay_begin(&lane->relay);
	for (left = left < room ? left : room; left--; lane->sent++) {
		send = message_of(ring, which, lane->sent);
		towi_relay_add(&lane->relay, lane->slot,
			       number_of(ring, lane->sent - ring->begins_with), &send, !left);
	}
}

/* How many messages have come when there is something to do. */
static uint64_t next_of_use(const struct ring *ring, const struct lane *lane)
{
	if (lane->come >= reduced(ring) &&
	    (lane->relay.entries || lane->sent == ring->goes))
		return ring->comes;
	return lane->come + 1;
}

/* False: the lane has something to do now. */
static bool arm_lane(struct ring *ring, uint32_t which)
{
	struct lane *lane = &ring->lane[which];

	if (may_send(ring))
		relay(ring, which);
	if (lane->come >= ring->comes)
		return true;
	return towi_sleep_for(&lane->sleeper, lane->slot,
			     number_of(ring, next_of_use(ring, lane) - 1));
}

static bool ring_arms(struct tow_collective *collective)
{
	struct ring *ring = ring_of(collective);
	uint32_t i;

	if (ring->asks && !may_send(ring) &&
	    !towi_sleep_for(&ring->ready_sleeper, ring->ready, collective->begun))
		return false;
	for (i = 0; i < ring->lanes; i++)
		if (!arm_lane(ring, i))
			return false;
	return true;
}

static uint32_t ring_waits_for(const struct tow_collective *collective)
{
	const struct ring *ring = const_ring_of(collective);

	return may_send(ring) ? ring->before.rank : ring->next.rank;
}

static void ring_starts(struct tow_collective *collective)
{
	struct ring *ring = ring_of(collective);
	uint32_t i;

	ring->said = false;
	for (i = 0; i < ring->lanes; i++) {
		ring->lane[i].sent = 0;
		ring->lane[i].come = 0;
	}
}

/* What the kernel is to pass on is this rank's no longer. */
static void ring_stops(struct tow_collective *collective)
{
	struct ring *ring = ring_of(collective);
	uint32_t i;

	for (i = 0; i < ring->lanes; i++) {
		if (ring->lane[i].relay.entries) {
			tow_slot_destroy(ring->lane[i].slot);
			ring->lane[i].slot = NULL;
		}
	}
}

/* ---- life --------------------------------------------------------------------- */

/* How far this rank is from the root, in a broadcast. */
static uint32_t from_root(const struct tow_collective *collective)
{
	return behind(collective->comm, collective->attr.root);
}

static void count_broadcast(struct ring *ring)
{
	uint32_t distance = from_root(&ring->all);

	ring->comes = distance ? ring->lag : 0;
	ring->goes = distance + 1 < ring->all.comm->ranks ? ring->lag : 0;
	ring->begins_with = distance ? 0 : ring->lag;
}

static void count_messages(struct ring *ring)
{
	uint64_t steps = ring->all.comm->ranks - 1ULL;

	if (ring->all.attr.kind == TOW_BROADCAST) {
		count_broadcast(ring);
		return;
	}
	if (ring->all.attr.kind == TOW_ALLREDUCE || ring->all.attr.kind == TOW_BARRIER)
		steps *= 2;
	ring->comes = steps * ring->lag;
	ring->goes = ring->comes;
	ring->begins_with = ring->lag;
}

static void plan(struct ring *ring)
{
	struct tow_collective *all = &ring->all;
	bool reduces_all = all->attr.kind == TOW_ALLREDUCE || all->attr.kind == TOW_BARRIER;
	uint32_t i;

	towi_cut(all, LANES_MAX);
	ring->lanes = all->pieces < LANES_MAX ? all->pieces : LANES_MAX;
	ring->lag = all->pieces / ring->lanes;
	count_messages(ring);
	ring->says = !reduces_all && ring->comes;
	ring->asks = !reduces_all && ring->goes;
	towi_target_init(&ring->next, all, (all->comm->rank + 1) % all->comm->ranks);
	towi_target_init(&ring->before, all, behind(all->comm, 1));
	towi_sleeper_init(&ring->ready_sleeper, &all->runner);
	for (i = 0; i < ring->lanes; i++) {
		towi_sleeper_init(&ring->lane[i].sleeper, &all->runner);
		towi_relay_init(&ring->lane[i].relay, all, ring->before.rank, ring->next.rank);
	}
}

static uint64_t scratch_bytes(const struct ring *ring)
{
	return ring->all.shard_bytes ? scratch_at(ring, reducing_steps(ring), 0) : 0;
}

/* What others write to when it is whole. */
static uint64_t out_bytes(const struct ring *ring)
{
	return ring->all.attr.kind == TOW_REDUCE_SCATTER ? 0 : ring->all.whole_bytes;
}

static int ring_make(struct tow_collective *collective)
{
	struct ring *ring = ring_of(collective);
	uint32_t i;
	int ret;

	plan(ring);
	ret = towi_array_make(collective->comm, (LANES_MAX + 1) * (uint64_t)TOWI_LINE,
			      &collective->numbers);
	if (!ret)
		ret = towi_array_make(collective->comm, scratch_bytes(ring), &collective->scratch);
	if (!ret)
		ret = towi_array_export(collective, "scratch", &collective->scratch,
					&collective->scratch_exported);
	if (!ret && out_bytes(ring))
		ret = towi_array_export(collective, "out", &collective->out,
					&collective->out_exported);
	for (i = 0; !ret && i < ring->lanes; i++)
		ret = towi_slot_make(collective, "lane", ring->before.rank, i,
				     &ring->lane[i].slot);
	return ret ? ret : towi_slot_make(collective, "ready", ring->next.rank, LANES_MAX,
					  &ring->ready);
}

static int ring_find(struct tow_collective *collective, uint64_t until, uint32_t *blamed)
{
	struct ring *ring = ring_of(collective);
	uint32_t i;
	int ret;

	*blamed = ring->next.rank;
	ret = towi_find_array(&ring->next, "scratch", scratch_bytes(ring), until, &ring->scratch);
	if (!ret)
		ret = towi_find_array(&ring->next, "out", out_bytes(ring), until, &ring->out);
	for (i = 0; !ret && i < ring->lanes; i++)
		ret = towi_find_way(&ring->next, "lane", i, until, &ring->lane[i].way);
	if (ret)
		return ret;
	*blamed = ring->before.rank;
	return towi_find_way(&ring->before, "ready", LANES_MAX, until, &ring->ready_there);
}

static void ring_close(struct tow_collective *collective)
{
	struct ring *ring = ring_of(collective);
	uint32_t i;

	tow_remote_release(ring->scratch);
	tow_remote_release(ring->out);
	towi_way_end(&ring->ready_there);
	for (i = 0; i < ring->lanes; i++) {
		towi_way_end(&ring->lane[i].way);
		tow_slot_destroy(ring->lane[i].slot);
	}
	tow_slot_destroy(ring->ready);
}

const struct towi_algorithm towi_ring = {
	.bytes = sizeof(struct ring),
	.make = ring_make,
	.find = ring_find,
	.close = ring_close,
	.start = ring_starts,
	.go_on = ring_goes_on,
	.done = ring_done,
	.arm = ring_arms,
	.stop = ring_stops,
	.waits_for = ring_waits_for,
};

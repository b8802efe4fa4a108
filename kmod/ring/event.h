/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Events of peers, which are reported to queues' programs.
 */
#ifndef TOW_EVENT_H
#define TOW_EVENT_H

#include <linux/types.h>

struct tow_peer;

/**
 * struct tow_peer_events - what has happened to a peer
 * @broken: how often its connection has failed; wraps around, like the next two
 * @back: how often another session has carried its association
 * @lost: how often its association was lost
 * @error: why, the last time, a negative errno
 * @broken_ns: when it broke last, CLOCK_MONOTONIC
 * @lost_ns: when it was lost last, CLOCK_MONOTONIC
 *
 * A peer's are under tow_peers.lock.
 */
struct tow_peer_events {
	u32	broken;
	u32	back;
	u32	lost;
	int	error;
	u64	broken_ns;
	u64	lost_ns;
};

/* event.c: caller holds tow_peers.lock; queue.h has the rest */
void tow_event_broken(struct tow_peer *peer, int error);
void tow_event_back(struct tow_peer *peer);
void tow_event_lost(struct tow_peer *peer, int error);

#endif /* TOW_EVENT_H */

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What happens to peers, as queues' programs are told.
 */
#ifndef TOW_EVENT_H
#define TOW_EVENT_H

#include <linux/types.h>

struct tow_peer;

/**
 * struct tow_peer_events - what has happened to a peer
 * @broken: how often its connection failed; this and what follows wraps around
 * @back: how often what was on it went on
 * @lost: how often that ended
 * @error: why, the last time
 * @broken_ns: when that was, CLOCK_MONOTONIC
 * @lost_ns: likewise
 */
struct tow_peer_events {
	u32	broken;
	u32	back;
	u32	lost;
	int	error;
	u64	broken_ns;
	u64	lost_ns;
};

/* event.c, for those who have tow_peers.lock; queue.h has the rest of it */
void tow_event_broken(struct tow_peer *peer, int error);
void tow_event_back(struct tow_peer *peer);
void tow_event_lost(struct tow_peer *peer, int error);

#endif /* TOW_EVENT_H */

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The states of a peer, and what leads from one to the next.
 */
#ifndef TOW_PEER_STATE_H
#define TOW_PEER_STATE_H

#include "uapi/towline.h"

/**
 * enum tow_peer_event - what changes a peer's state
 * @TOW_EVENT_CONNECT: a session of the peer is being made
 * @TOW_EVENT_ESTABLISHED: it is READY
 * @TOW_EVENT_BROKE: it is ENDING
 * @TOW_EVENT_CLOSED: it is ENDED, and that was wanted; or the association that was
 *	waiting
 * @TOW_EVENT_FAILED: likewise, and that was not wanted
 * @TOW_EVENT_KEPT: it is ENDED, and its association waits for another session
 */
enum tow_peer_event {
	TOW_EVENT_CONNECT,
	TOW_EVENT_ESTABLISHED,
	TOW_EVENT_BROKE,
	TOW_EVENT_CLOSED,
	TOW_EVENT_FAILED,
	TOW_EVENT_KEPT
};

/**
 * struct tow_peer_rule - one line of the table
 * @from: enum tow_peer_state
 * @event: enum tow_peer_event
 * @to: enum tow_peer_state
 */
struct tow_peer_rule {
	int	from;
	int	event;
	int	to;
};

/* Ends with one that has -1 everywhere. */
extern const struct tow_peer_rule tow_peer_rules[];

int tow_peer_next_state(int state, int event);
const char *tow_peer_state_name(int state);

#endif /* TOW_PEER_STATE_H */

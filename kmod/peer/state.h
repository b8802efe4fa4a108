/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The states of a peer, and the events that change them.
 */
#ifndef TOW_PEER_STATE_H
#define TOW_PEER_STATE_H

#include "uapi/towline.h"

/**
 * enum tow_peer_event - what changes a peer's state
 * @TOW_EVENT_CONNECT: a session has become the peer's present one
 * @TOW_EVENT_ESTABLISHED: the present session is READY
 * @TOW_EVENT_BROKE: the present session is ENDING, or is replaced
 * @TOW_EVENT_CLOSED: the present session, or the association that waited for
 *	another one, has ended in good order
 * @TOW_EVENT_FAILED: either has ended with a failure
 * @TOW_EVENT_KEPT: the present session is ENDED, and the association waits for
 *	another session
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

/* The last entry is -1 everywhere. */
extern const struct tow_peer_rule tow_peer_rules[];

int tow_peer_next_state(int state, int event);
const char *tow_peer_state_name(int state);

#endif /* TOW_PEER_STATE_H */

// SPDX-License-Identifier: GPL-2.0
/*
 * The table of all transitions between the states of a peer.
 * tests/unit/peer_state.c keeps it in step with Documentation/models/connect.pml.
 */
#include "state.h"

const struct tow_peer_rule tow_peer_rules[] = {
	{ TOW_PEER_IDLE,	TOW_EVENT_CONNECT,	TOW_PEER_CONNECTING },
	{ TOW_PEER_DEAD,	TOW_EVENT_CONNECT,	TOW_PEER_CONNECTING },
	{ TOW_PEER_BROKEN,	TOW_EVENT_CONNECT,	TOW_PEER_CONNECTING },
	{ TOW_PEER_CONNECTING,	TOW_EVENT_ESTABLISHED,	TOW_PEER_READY },
	{ TOW_PEER_CONNECTING,	TOW_EVENT_BROKE,	TOW_PEER_BROKEN },
	{ TOW_PEER_READY,	TOW_EVENT_BROKE,	TOW_PEER_BROKEN },
	{ TOW_PEER_BROKEN,	TOW_EVENT_CLOSED,	TOW_PEER_IDLE },
	{ TOW_PEER_BROKEN,	TOW_EVENT_FAILED,	TOW_PEER_DEAD },
	{ TOW_PEER_BROKEN,	TOW_EVENT_KEPT,		TOW_PEER_RECONNECTING },
	{ TOW_PEER_RECONNECTING, TOW_EVENT_CONNECT,	TOW_PEER_CONNECTING },
	{ TOW_PEER_RECONNECTING, TOW_EVENT_CLOSED,	TOW_PEER_IDLE },
	{ TOW_PEER_RECONNECTING, TOW_EVENT_FAILED,	TOW_PEER_DEAD },
	{ -1, -1, -1 }
};

/**
 * tow_peer_next_state - the state that an event leads to
 * @state: enum tow_peer_state
 * @event: enum tow_peer_event
 *
 * Return: enum tow_peer_state; -1: the event cannot happen in that state.
 */
int tow_peer_next_state(int state, int event)
{
	const struct tow_peer_rule *rule;

	for (rule = tow_peer_rules; rule->from >= 0; rule++) {
		if (rule->from == state && rule->event == event)
			break;
	}
	return rule->to;
}

/**
 * tow_peer_state_name - a state's name, for the log and for sysfs
 * @state: enum tow_peer_state
 *
 * Return: a string that is never freed.
 */
const char *tow_peer_state_name(int state)
{
	switch (state) {
	case TOW_PEER_IDLE:
		return "idle";
	case TOW_PEER_CONNECTING:
		return "connecting";
	case TOW_PEER_READY:
		return "ready";
	case TOW_PEER_BROKEN:
		return "broken";
	case TOW_PEER_DEAD:
		return "dead";
	case TOW_PEER_RECONNECTING:
		return "reconnecting";
	default:
		return "unknown";
	}
}

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Attempts to connect: what connect.c, which begins them, and try.c share.
 */
#ifndef TOW_ATTEMPT_H
#define TOW_ATTEMPT_H

#include <linux/kref.h>
#include <linux/list.h>
#include <linux/workqueue.h>

#include "core/core.h"
#include "peer.h"

/**
 * struct tow_goal - whom to connect to, and how
 * @dev: the device
 * @sought: the peer, at any of its addresses; NULL: whoever is at @address
 * @address: where, if @sought is NULL; else where the last try was made
 * @settings: how to connect
 * @limit_ms: how long an attempt may take
 */
struct tow_goal {
	struct tow_device		*dev;
	struct tow_peer			*sought;
	struct tow_address		address;
	struct tow_conn_settings	settings;
	u32				limit_ms;
};

/**
 * struct tow_attempt - an attempt to connect
 * @refs: held by tow_peers.attempts or the work item, and by each seeker
 * @link: in tow_peers.attempts, until @done
 * @goal: whom to connect to; the device and the peer with references
 * @account: whose turn it waits for: of those who want it the one whose user has the
 *	fewest attempts, with a reference; NULL: it did not have to wait
 * @charge: for its place
 * @sought: for being there, if a program's seeker made it
 * @tried: how many of the sought peer's addresses were tried
 * @busy_ms: the pause before the next try if the peer is busy
 * @begun: when the attempt began, in jiffies
 * @placed: it has its place, and @work is queued; this and what follows, up to
 *	@seekers, is written under tow_peers.lock
 * @again: the peer was connected before, and an association waits for it
 * @deadline: when to give up, in jiffies
 * @waiters: how many seekers
 * @seekers: those that are to be woken
 * @work: tow_attempt_work()
 * @done: @error and @peer are valid; the three are under tow_peers.lock
 * @error: the result: 0 or a negative errno
 * @peer: the peer, with a reference, if @error is 0
 */
struct tow_attempt {
	struct kref			refs;
	struct list_head		link;
	struct tow_goal			goal;
	struct tow_account		*account;
	struct tow_charge		charge;
	struct tow_charge		sought;
	unsigned int			tried;
	unsigned int			busy_ms;
	unsigned long			begun;
	bool				placed;
	bool				again;
	unsigned long			deadline;
	unsigned int			waiters;
	struct list_head		seekers;
	struct work_struct		work;
	bool				done;
	int				error;
	struct tow_peer			*peer;
};

/* try.c */
struct tow_session *tow_peer_session_get(struct tow_peer *peer);
int tow_attempt_run(struct tow_attempt *attempt, struct tow_peer **peer);

#endif /* TOW_ATTEMPT_H */

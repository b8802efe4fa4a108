/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Notifications: how they come in, and how many may be on their way.
 *
 *	init.c		a device's and a session's part begins and ends
 *	receive.c	receives and their completions
 *	credit.c	how many are on their way in a session, each way
 *	slot.c		they are counted, and waits for them end
 *	op_wait.c	entries that wait for a slot
 *	sequence.h	their numbers
 */
#ifndef TOW_NOTIFY_H
#define TOW_NOTIFY_H

#include <linux/atomic.h>
#include <linux/types.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

struct tow_assoc;
struct tow_assoc_client;
struct tow_device;
struct tow_link;
struct tow_link_ops;
struct tow_session;
struct tow_slot_wait;

/**
 * struct tow_notify - what a device keeps for notifications
 * @slots: struct tow_slot by number; looked up by RCU
 * @next_slot: where the search for a free number begins
 * @wait_ended: an entry's wait has ended, and has its status; it may be gone
 *	afterwards.  In any context, with tow_slot.lock held
 */
struct tow_notify {
	struct xarray	slots;
	u32		next_slot;
	void		(*wait_ended)(struct tow_slot_wait *wait);
};

/**
 * struct tow_session_notify - what a session keeps for notifications
 * @arrived: the peer's notifications, wrapping around
 * @told: the @arrived that credit was last returned for; under tow_session.pump
 * @tell: returns credit to the peer
 * @room: how many more notifications we may send
 * @dealt: our notifications that the peer has returned credit for
 * @go_on: unparks flows that wait for credit; has a reference to the session
 *	while it is queued
 */
struct tow_session_notify {
	atomic_t		arrived;
	u32			told;
	struct work_struct	tell;
	atomic_t		room;
	u32			dealt;
	struct work_struct	go_on;
};

/* init.c */
int tow_notify_init(struct tow_device *dev);
void tow_notify_cleanup(struct tow_device *dev);
extern const struct tow_assoc_client tow_rma_client;

/* qp.c */
extern const struct tow_link_ops tow_qp_link_ops;

/* receive.c */
int tow_receives_post(struct tow_link *link);

/* credit.c */
void tow_credit_drain(struct tow_assoc *assoc);
size_t tow_credit_fill(struct tow_session *session, u8 *type, u32 *request,
		       void *body);
bool tow_credit_take(struct tow_session *session);
void tow_credit_untake(struct tow_session *session);
void tow_credit_wake(struct tow_assoc *assoc);

#endif /* TOW_NOTIFY_H */

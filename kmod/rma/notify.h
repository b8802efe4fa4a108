/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Notifications: how they come in, and how many may be on their way.
 *
 *	init.c		a device's and a session's part begins and ends
 *	srq.c		shared receive queues and their completions
 *	credit.c	how many are on their way in a session, each way
 *	slot.c		they are counted, and waits for them end
 *	op_wait.c	entries that wait for a slot
 *	sequence.h	their numbers
 */
#ifndef TOW_NOTIFY_H
#define TOW_NOTIFY_H

#include <linux/atomic.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/types.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

struct tow_device;
struct tow_link;
struct tow_session;
struct tow_srq;
struct tow_assoc;
struct tow_wire_notified;

/* Receives of a shared receive queue. */
#define TOW_SRQ_DEPTH_MIN	256
#define TOW_SRQ_DEPTH_MAX	32768

/**
 * struct tow_notify - what a device keeps for notifications
 * @slots: struct tow_slot by number; looked up by RCU
 * @next_slot: where the search for a free number begins
 * @srq_depth: receives of the next shared receive queue; a file in sysfs, read
 *	with READ_ONCE()
 * @lock: protects @srq, and tow_srq.users and .promised
 * @srq: the queue of new sessions, which its sessions own; NULL: none so far
 */
struct tow_notify {
	struct xarray	slots;
	u32		next_slot;
	u32		srq_depth;
	/* protects srq, and parts of it */
	struct mutex	lock;
	struct tow_srq	*srq;
};

/**
 * struct tow_session_notify - what a session keeps for notifications
 * @srq: the shared receive queue of its data queue pairs, which the session is
 *	a user of; NULL: the device has none left, or the session has no data
 *	queue pairs so far
 * @chosen: @srq will not be chosen again
 * @window: notifications that the peer may have on their way: 0 or
 *	TOW_NOTIFY_WINDOW; written under tow_assoc_dir.lock, read in softirqs
 * @arrived: the peer's notifications, wrapping around; written under
 *	tow_srq.lock
 * @told: the @arrived that credit was last returned for; under tow_session.pump
 * @tell: returns credit to the peer
 * @room: how many more notifications we may send
 * @dealt: our notifications that the peer has returned credit for
 * @go_on: unparks flows that wait for credit; has a reference to the session
 *	while it is queued
 */
struct tow_session_notify {
	struct tow_srq		*srq;
	bool			chosen;
	u32			window;
	u32			arrived;
	u32			told;
	struct work_struct	tell;
	atomic_t		room;
	u32			dealt;
	struct work_struct	go_on;
};

/* init.c */
int tow_notify_init(struct tow_device *dev);
void tow_notify_cleanup(struct tow_device *dev);
void tow_credit_init(struct tow_session *session);
void tow_credit_gone(struct tow_session *session);
int tow_credit_returned(struct tow_session *session,
			const struct tow_wire_notified *body);

/* srq.c: called by link.c, too */
void tow_srq_get(struct tow_session *session);
void tow_srq_put(struct tow_session *session);
struct ib_srq *tow_srq_device_srq(struct tow_srq *srq);
struct ib_cq *tow_srq_device_cq(struct tow_srq *srq);
void tow_srq_add_link(struct tow_srq *srq, struct tow_link *link);
void tow_srq_remove_link(struct tow_srq *srq, struct tow_link *link);
void tow_srq_link_gone(struct tow_srq *srq);
void tow_srq_drain(struct tow_srq *srq);
bool tow_srq_promise(struct tow_srq *srq, u32 receives);

/* credit.c */
bool tow_credit_open(struct tow_assoc *assoc);
bool tow_credit_keep(struct tow_session *session);
void tow_credit_drain(struct tow_assoc *assoc);
size_t tow_credit_fill(struct tow_session *session, u8 *type, void *body);
bool tow_credit_take(struct tow_session *session);
void tow_credit_untake(struct tow_session *session);
void tow_credit_wake(struct tow_assoc *assoc);

#endif /* TOW_NOTIFY_H */

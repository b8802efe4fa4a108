/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Associations: what two nodes have of each other, and one session after the other
 * carries.  Documentation/design/failure.md tells why it is so.
 *
 *	assoc.c		an association begins, waits for another session, ends
 *	resume.c	which session carries it: what AUTH and AUTHED say
 *	resend.c	messages that are said again
 *	rma/replay.c	what becomes of operations
 */
#ifndef TOW_ASSOC_H
#define TOW_ASSOC_H

#include <linux/atomic.h>
#include <linux/kref.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#include "conn/wire.h"
#include "directory.h"
#include "session.h"

struct tow_device;
struct tow_link;
struct tow_peer;

/* How long an end waits for its old queue pairs to go before it is tried again. */
#define TOW_ASSOC_QUIET_MS	1500

/**
 * struct tow_logged - a message that may have to be said again
 * @type: enum tow_wire_type
 * @request: as in the header
 * @bytes: of @body
 * @credit: what tow_session.credits_used was when it had been sent
 * @body: the message but its header
 */
struct tow_logged {
	u8	type;
	u32	request;
	u32	bytes;
	u32	credit;
	u8	body[TOW_WIRE_BODY_BYTES];
};

/**
 * struct tow_assoc_log - messages of the directory, in both directions
 * @dealt: those of the other end that were dealt with; written by the receiving
 *	end's completions only
 * @first: number of the oldest that the other end may not have dealt with, counted
 *	from 1; this and what follows is under tow_session.pump of who carries the
 *	association
 * @next: of the one that is said next for the first time
 * @again: of the one that is to be said again; @next: none is
 * @messages: TOW_WIRE_CREDITS of them: those from @first on, by number
 */
struct tow_assoc_log {
	u64			dealt;
	u64			first;
	u64			next;
	u64			again;
	struct tow_logged	*messages;
};

/**
 * struct tow_assoc - what we have of a peer, and it has of us
 * @refs: held by tow_peer.association, by sessions that carry it or did, by remote
 *	ranges, by plugs, by queued work, and by whoever looks
 * @dev: the device, with a reference
 * @peer: whose it is, with a reference
 * @index: number of the first session that carried it: by that slots know it
 * @name: what both ends call it
 * @lasts: it outlives its session
 * @qps: data queue pairs
 * @data: their links
 * @turn: whose flows are the first to go on, when there is room for notifications
 * @users: remote ranges and grants: while there are any the session is not idle
 * @dir: what the directory keeps of it
 * @error: why it has ended, when it is lost
 * @windowed: the peer was promised receives: each session has to; under
 *	tow_assoc_dir.lock
 *
 * @settled: a session that carried it was READY; this and what follows is under
 *	tow_peers.lock
 * @tells: programs are told when it ends
 * @idle: none carries it, and nothing of the last one is left
 * @waiting: it was idle, and has not gone on since
 * @giving_up: it shall not be carried any more: why; 0: it may be
 * @orderly: then: that was wanted
 * @patience: when it ends if it is @waiting still, in jiffies
 * @pause_ms: until it is tried again
 *
 * @lock: protects @session
 * @session: that carries it, or did last, with a reference; NULL: it has ended
 * @work: asks for another session, or ends it; has a reference while it is queued
 * @log: messages
 */
struct tow_assoc {
	struct kref		refs;
	struct tow_device	*dev;
	struct tow_peer		*peer;
	u64			index;
	u8			name[TOW_WIRE_ASSOC_BYTES];
	bool			lasts;
	unsigned int		qps;
	struct tow_link		*data;
	atomic_t		turn;
	atomic_t		users;
	struct tow_assoc_dir	dir;
	int			error;
	bool			windowed;

	bool			settled;
	bool			tells;
	bool			idle;
	bool			waiting;
	int			giving_up;
	bool			orderly;
	unsigned long		patience;
	unsigned int		pause_ms;

	/* protects session */
	spinlock_t		lock;
	struct tow_session	*session;
	struct delayed_work	work;
	struct tow_assoc_log	log;
};

/* Does anybody here use what a session carries? */
static inline bool tow_session_used(const struct tow_session *session)
{
	/* Pairs with tow_assoc_carry(). */
	const struct tow_assoc *assoc = smp_load_acquire(&session->assoc);

	return assoc && atomic_read(&assoc->users);
}

/* assoc.c */
struct tow_assoc *tow_assoc_new(struct tow_session *session);
void tow_assoc_get(struct tow_assoc *assoc);
void tow_assoc_put(struct tow_assoc *assoc);
struct tow_session *tow_assoc_session(struct tow_assoc *assoc);
void tow_assoc_fail(struct tow_assoc *assoc, int error, u32 reason, const char *why);
void tow_assoc_note(struct tow_assoc *assoc, const char *stage, u64 subject,
		    int error);
void tow_assoc_kick(struct tow_assoc *assoc);
bool tow_assoc_keeps(struct tow_session *session);
void tow_assoc_leave(struct tow_session *session, bool keep);
void tow_assoc_went_on(struct tow_session *session);

/* resume.c */
int tow_assoc_ask(struct tow_session *session, struct tow_wire_auth *auth);
int tow_assoc_asked(struct tow_session *session,
		    const struct tow_wire_auth *auth,
		    struct tow_wire_authed *authed);
int tow_assoc_answered(struct tow_session *session,
		       const struct tow_wire_authed *authed);

/* assoc.c, for those who have tow_peers.lock */
void tow_assoc_give_up(struct tow_assoc *assoc, int error, bool orderly);
void tow_assoc_pause(struct tow_assoc *assoc);

/* resend.c */
int tow_assoc_log_init(struct tow_assoc_log *log);
void tow_assoc_log_cleanup(struct tow_assoc_log *log);
int tow_assoc_log_again(struct tow_assoc_log *log, u64 dealt);
bool tow_assoc_log_next(struct tow_session *session, u8 *type, u32 *request,
			void *body, size_t *bytes);
bool tow_assoc_log_has_room(struct tow_session *session);
void tow_assoc_log_add(struct tow_session *session, u8 type, u32 request,
		       const void *body, size_t bytes);
void tow_assoc_log_posted(struct tow_session *session);
void tow_assoc_log_received(struct tow_session *session, u8 type);

/* rma/replay.c */
size_t tow_replay_fill(struct tow_assoc *assoc, void *body);
int tow_replay_receive(struct tow_session *session,
		       const struct tow_wire_sync *body, size_t bytes);

#endif /* TOW_ASSOC_H */

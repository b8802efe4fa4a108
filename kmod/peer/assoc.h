/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Associations: what two nodes have of each other over several sessions, one of
 * which carries the association at a time.  Documentation/design/failure.md has
 * the reasons.
 *
 *	assoc.c		an association begins, waits for another session, ends
 *	resume.c	which session carries it: AUTH and AUTHED
 *	rma/replay.c	operations that are posted again
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

/*
 * How long a new session waits for the end of the one that carried the
 * association.
 */
#define TOW_ASSOC_QUIET_MS	1500

/**
 * struct tow_assoc - what we have of a peer, and the peer has of us
 * @refs: held by tow_peer.assoc, by sessions (@assoc, @asked), by remote ranges
 *	and plugs, by @other_end of another one, by the directory's queued revoke
 *	timer, by @work and @kick while they are queued, and by callers
 * @dev: the device, with a reference
 * @peer: the peer, with a reference
 * @other_end: of loopback's initiator: the responder's association, with a
 *	reference; else NULL
 * @copied_at: when an operation was copied to @other_end last, in jiffies; read and
 *	written without a lock
 * @index: number of the first session that carried the association; identifies
 *	the association to slots
 * @name: the association's name at both ends
 * @lasts: the association may outlive its session; set under tow_peers.lock
 * @qps: data queue pairs
 * @width: of slots, at most: 1 if the peer, for its life, knows of none
 * @data: their links, owned
 * @turn: which link tow_ops_unpark() unparks first, modulo their number; read and
 *	written without a lock
 * @users: remote ranges and grants; the session is not idle while there are any
 * @dir: the directory's part
 * @error: why the association is lost, a negative errno; written under
 *	tow_peers.lock
 *
 * @settled: a session that carried the association has become READY; this and
 *	what follows, up to @pause_ms, is under tow_peers.lock
 * @tells: programs get LOST when the association ends
 * @idle: no session carries or claims the association, and its queue pairs are
 *	destroyed
 * @waiting: the association has become idle, and no session since has shown
 *	that the connection works
 * @giving_up: why no session may carry the association any more, a negative
 *	errno; 0: a session may
 * @orderly: @giving_up was wanted, and is no failure
 * @patience: when the association ends if it is @waiting and @idle then, in
 *	jiffies; moved by the time in which a session had resumed it
 * @resumed_at: when the session that carries the association has resumed it, in
 *	jiffies; 0: it has not
 * @pause_ms: the last pause between tries to connect, in ms, without the random
 *	part
 *
 * @lock: protects @session
 * @session: the session that carries the association, or carried it last, with
 *	a reference; NULL: the association has ended, or has not begun
 * @work: has the peer connected, or ends the association; has a reference while
 *	it is queued
 * @kick: sends what the directory has to send; has a reference while it is queued
 */
struct tow_assoc {
	struct kref		refs;
	struct tow_device	*dev;
	struct tow_peer		*peer;
	struct tow_assoc	*other_end;
	unsigned long		copied_at;
	u64			index;
	u8			name[TOW_WIRE_ASSOC_BYTES];
	bool			lasts;
	unsigned int		qps;
	unsigned int		width;
	struct tow_link		*data;
	unsigned int		turn;
	atomic_t		users;
	struct tow_assoc_dir	dir;
	int			error;

	bool			settled;
	bool			tells;
	bool			idle;
	bool			waiting;
	int			giving_up;
	bool			orderly;
	unsigned long		patience;
	unsigned long		resumed_at;
	unsigned int		pause_ms;

	/* protects session */
	spinlock_t		lock;
	struct tow_session	*session;
	struct delayed_work	work;
	struct work_struct	kick;
};

/**
 * struct tow_assoc_client - who uses associations
 * @session_init: a session begins
 * @session_gone: its queue pairs are destroyed
 * @tick: twice in a heartbeat's interval of a session that is READY, and heard
 * @receive: as tow_session_ops.receive, of a session that is READY.  0 for another
 *	client's types; -EPROTO ends the association, too.  The body may be
 *	changed
 * @fill: fill in the next message of a session that is READY, and give its body's
 *	size; caller holds its @pump, and has set type and request to 0.  If the
 *	type stays 0 there is none.  Called again after tow_assoc_kick()
 * @init: an association was made
 * @carried: another session carries it, and has no data queue pairs yet; caller
 *	holds the session's @setup
 * @suspend: nothing more is posted; if it is over nothing will be again, and what
 *	waits ends
 * @apart: no session carries it for now; the queue pairs of the last one are
 *	destroyed: the peer reaches nothing
 * @lost: nothing begins any more, calls that wait end with an error; operations
 *	may still be in flight.  May be called twice
 * @gone: likewise, but the queue pairs are destroyed: the peer reaches nothing
 * @release: the last reference is gone
 * @event: tow_peer.events have changed; caller holds tow_peers.lock
 *
 * Each may be NULL.  In process context; may sleep, but not for long: a session
 * handles no other message meanwhile.  tow_peers.clients has all of a device.
 */
struct tow_assoc_client {
	void	(*session_init)(struct tow_session *session);
	void	(*session_gone)(struct tow_session *session);
	void	(*tick)(struct tow_session *session);
	int	(*receive)(struct tow_session *session, u8 type, u32 request,
			   void *body, size_t bytes);
	size_t	(*fill)(struct tow_session *session, u8 *type, u32 *request,
			void *body);
	void	(*init)(struct tow_assoc *assoc);
	void	(*carried)(struct tow_assoc *assoc);
	void	(*suspend)(struct tow_assoc *assoc, bool over);
	void	(*apart)(struct tow_assoc *assoc);
	void	(*lost)(struct tow_assoc *assoc);
	void	(*gone)(struct tow_assoc *assoc);
	void	(*release)(struct tow_assoc *assoc);
	void	(*event)(struct tow_peer *peer);
};

/* Call @what of each client that has it, in their order. */
#define tow_clients_call(dev, what, ...)				\
do {									\
	const struct tow_assoc_client *const *_at = (dev)->peers->clients; \
									\
	for (; *_at; _at++) {						\
		__auto_type _call = (**_at).what;			\
									\
		if (_call)						\
			_call(__VA_ARGS__);				\
	}								\
} while (0)

/* Has a session's association remote ranges or grants? */
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

/* assoc.c: caller holds tow_peers.lock */
void tow_assoc_give_up(struct tow_assoc *assoc, int error, bool orderly);
void tow_assoc_pause(struct tow_assoc *assoc);

#endif /* TOW_ASSOC_H */

// SPDX-License-Identifier: GPL-2.0
/*
 * Messages of the directory are dealt with once, in order, for as long as an
 * association is there.
 *
 * Who sends one keeps it until the other end says, by credits, that it was dealt
 * with.  When another session carries the association each end has said how many it has
 * dealt with in all (AUTH, AUTHED); what comes after those is said again, before
 * anything else.  There are no more of them than messages can be on their way.
 */
#include <linux/slab.h>

#include "assoc.h"

static struct tow_logged *tow_assoc_log_entry(struct tow_assoc_log *log, u64 number)
{
	return &log->messages[number % TOW_WIRE_CREDITS];
}

/**
 * tow_assoc_log_init - nothing was said so far
 * @log: where to, zeroed
 *
 * Return: 0 or -ENOMEM.
 */
int tow_assoc_log_init(struct tow_assoc_log *log)
{
	log->messages = kcalloc(TOW_WIRE_CREDITS, sizeof(*log->messages),
				GFP_KERNEL);
	if (!log->messages)
		return -ENOMEM;
	log->first = 1;
	log->next = 1;
	log->again = 1;
	return 0;
}

/**
 * tow_assoc_log_cleanup - undo tow_assoc_log_init()
 * @log: the log; may not have been initialised, then zeroed
 */
void tow_assoc_log_cleanup(struct tow_assoc_log *log)
{
	kfree(log->messages);
}

/**
 * tow_assoc_log_again - another session carries the association
 * @log: its messages; nobody sends by the session before any more
 * @dealt: how many the other end has dealt with, as it says
 *
 * Return: 0; -EPROTO: it cannot have.
 */
int tow_assoc_log_again(struct tow_assoc_log *log, u64 dealt)
{
	if (dealt < log->first - 1 || dealt >= log->next)
		return -EPROTO;
	log->first = dealt + 1;
	log->again = log->first;
	return 0;
}

/**
 * tow_assoc_log_next - is something to be said again?
 * @session: that is to say it; the caller has its @pump
 * @type: where to
 * @request: where to
 * @body: where to, TOW_WIRE_BODY_BYTES
 * @bytes: where to: of the body
 *
 * tow_assoc_log_posted() is due when it was posted.
 *
 * Return: whether something is.
 */
bool tow_assoc_log_next(struct tow_session *session, u8 *type, u32 *request,
			void *body, size_t *bytes)
{
	struct tow_assoc_log *log = &session->assoc->log;
	struct tow_logged *logged = tow_assoc_log_entry(log, log->again);

	lockdep_assert_held(&session->pump);
	if (log->again == log->next)
		return false;
	*type = logged->type;
	*request = logged->request;
	*bytes = logged->bytes;
	memcpy(body, logged->body, logged->bytes);
	return true;
}

/**
 * tow_assoc_log_has_room - may another message be said?
 * @session: that is to say it; the caller has its @pump
 *
 * What the other end has dealt with is forgotten here.
 *
 * Return: whether it may.
 */
bool tow_assoc_log_has_room(struct tow_session *session)
{
	struct tow_assoc_log *log = &session->assoc->log;
	u32 granted = READ_ONCE(session->granted);

	lockdep_assert_held(&session->pump);
	while (log->first < log->again &&
	       (s32)(granted -
		     tow_assoc_log_entry(log, log->first)->credit) >= 0)
		log->first++;
	return log->next - log->first < TOW_WIRE_CREDITS;
}

/**
 * tow_assoc_log_add - a message is about to be said for the first time
 * @session: that will say it; the caller has its @pump, and there is room
 * @type: as in the header
 * @request: the same
 * @body: the message but its header
 * @bytes: of @body
 */
void tow_assoc_log_add(struct tow_session *session, u8 type, u32 request,
		       const void *body, size_t bytes)
{
	struct tow_assoc_log *log = &session->assoc->log;
	struct tow_logged *logged = tow_assoc_log_entry(log, log->next++);

	lockdep_assert_held(&session->pump);
	logged->type = type;
	logged->request = request;
	logged->bytes = bytes;
	memcpy(logged->body, body, bytes);
}

/**
 * tow_assoc_log_posted - the message that is to be said next was posted
 * @session: by which; the caller has its @pump
 */
void tow_assoc_log_posted(struct tow_session *session)
{
	struct tow_assoc_log *log = &session->assoc->log;

	lockdep_assert_held(&session->pump);
	tow_assoc_log_entry(log, log->again)->credit = session->credits_used;
	log->again++;
}

/**
 * tow_assoc_log_received - a message was dealt with
 * @session: by which it came
 * @type: as in the header
 *
 * Before the other end is given credit for it.
 */
void tow_assoc_log_received(struct tow_session *session, u8 type)
{
	struct tow_assoc_log *log;

	if (!tow_wire_lasts(type))
		return;
	log = &session->assoc->log;
	WRITE_ONCE(log->dealt, log->dealt + 1);
}

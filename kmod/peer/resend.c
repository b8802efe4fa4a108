// SPDX-License-Identifier: GPL-2.0
/*
 * Resending: messages that last (tow_wire_lasts()) are handled once, in order,
 * for the life of an association.
 *
 * The sender keeps each of them until the other end's credits say that it was
 * handled.  When another session begins to carry the association, each end says
 * how many it has handled in all (AUTH, AUTHED), and the other end resends
 * those after them before it sends anything else.  At most TOW_WIRE_CREDITS are
 * kept.
 */
#include <linux/slab.h>

#include "assoc.h"

static struct tow_logged *tow_assoc_log_entry(struct tow_assoc_log *log, u64 number)
{
	return &log->messages[number % TOW_WIRE_CREDITS];
}

/**
 * tow_assoc_log_init - make an empty log
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
 * @log: the log; may be zeroed instead of initialised
 */
void tow_assoc_log_cleanup(struct tow_assoc_log *log)
{
	kfree(log->messages);
}

/**
 * tow_assoc_log_again - prepare to resend messages in another session
 * @log: the association's log; the session that carried it sends no more
 * @dealt: how many messages the other end says that it has handled
 *
 * Return: 0; -EPROTO: @dealt is impossible.
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
 * tow_assoc_log_next - get the next message to resend
 * @session: the session that sends; caller holds its @pump
 * @type: where to
 * @request: where to
 * @body: where to, TOW_WIRE_BODY_BYTES
 * @bytes: where to: size of the body
 *
 * The caller calls tow_assoc_log_posted() when the message was posted.
 *
 * Return: true; false: there is none.
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
 * tow_assoc_log_has_room - has the log room for another message?
 * @session: the session that sends; caller holds its @pump
 *
 * Drops messages that the other end has handled.
 *
 * Return: true: it has.
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
 * tow_assoc_log_add - keep a message that is about to be sent for the first
 *	time
 * @session: the session that sends; caller holds its @pump, and the log has
 *	room
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
 * tow_assoc_log_posted - the log's next message was posted
 * @session: the session that sends; caller holds its @pump
 */
void tow_assoc_log_posted(struct tow_session *session)
{
	struct tow_assoc_log *log = &session->assoc->log;

	lockdep_assert_held(&session->pump);
	tow_assoc_log_entry(log, log->again)->credit = session->credits_used;
	log->again++;
}

/**
 * tow_assoc_log_received - count a message that was handled
 * @session: the session that received it
 * @type: as in the header
 *
 * Called before the other end gets credit for the message.
 */
void tow_assoc_log_received(struct tow_session *session, u8 type)
{
	struct tow_assoc_log *log;

	if (!tow_wire_lasts(type))
		return;
	log = &session->assoc->log;
	WRITE_ONCE(log->dealt, log->dealt + 1);
}

/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * libtowline: mailboxes, by which processes tell each other what is short.
 *
 * A mailbox has a name on its node.  A line leads from one mailbox to another and carries messages
 * both ways: each whole, once, in the order in which they were sent on that line; those that are
 * sent together travel in one write.  Each end has memory for so many, and the sender knows how much
 * of the other end's is free: who finds too little is told so, and waits for nobody.
 *
 *	one process	tow_mailbox_create() with a name, then tow_mailbox_accept() for each line
 *			that others have begun
 *	others		tow_mailbox_create() without one, tow_mailbox_connect(), and, as soon as
 *			the line is open, tow_mailbox_send(), whatever the first one does meanwhile
 *	both		tow_mailbox_receive(), tow_mailbox_send(), and tow_mailbox_close()
 *
 * A worker drives them (tow_worker_progress(), tow_worker_fd()).  No call waits for another process
 * but those that say so.  All functions may be called by any number of threads at once; in a child
 * that was forked they return -EPERM of its parent's mailboxes and lines.
 */
#ifndef TOW_MAILBOX_H
#define TOW_MAILBOX_H

#include <stdint.h>

#include <towline/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of the longest message. */
#define TOW_MESSAGE_MAX		2016U
/* Of a mailbox's name, without the 0 at its end. */
#define TOW_MAILBOX_NAME_MAX	224U

/* Bytes that an end of a line has for messages, at least and at most. */
#define TOW_LINE_BYTES_MIN	4096U
#define TOW_LINE_BYTES_MAX	262144U

/* Lines that may have come and not been looked at, at most: see struct tow_mailbox_attr. */
#define TOW_BACKLOG_MAX		64U

struct tow_mailbox;	/* made by tow_mailbox_create(), ended by tow_mailbox_destroy() */
struct tow_line;	/* ended by tow_mailbox_close() */

/**
 * struct tow_mailbox_attr - what a mailbox is to be like
 * @size: sizeof(struct tow_mailbox_attr)
 * @bytes: that each line's end here has for messages that have come and were not received, a power
 *	of two from TOW_LINE_BYTES_MIN to TOW_LINE_BYTES_MAX; 0: 8,192.  A message takes 32 more
 *	than it is long, rounded up to a multiple of 64
 * @lines: how many there may be at once, those included that others may begin; 0: 1,024
 * @backlog: how many others may begin while nobody drives the worker, 1 to TOW_BACKLOG_MAX; 0: 8.
 *	For each of them there is memory, an export and a slot, and one of those things that may
 *	wait at once (struct tow_worker_attr.entries).  Who comes when there is none left waits until
 *	the worker is driven
 */
struct tow_mailbox_attr {
	uint32_t size;
	uint32_t bytes;
	uint32_t lines;
	uint32_t backlog;
};

/**
 * tow_mailbox_create() - make a mailbox
 * @worker: what drives it; lives longer
 * @name: by which processes of the same job find it on this node, 1 to TOW_MAILBOX_NAME_MAX bytes,
 *	as for tow_export(); NULL: nobody does, and it only connects
 * @attr: what it is to be like, or NULL
 * @mailbox: stored here; ended with tow_mailbox_destroy()
 *
 * Others may connect, and send, as soon as this returns.
 *
 * Return: 0, or
 *  -E2BIG: @attr asks for what this library does not know;
 *  -EINVAL: an argument is NULL, or not as above;
 *  -EEXIST: the name is taken;
 *  -EOVERFLOW: as many things of the worker's wait as may;
 *  -ENOSPC, -EDQUOT, -ENOMEM: no memory, or the arena has only ordinary memory;
 *  -EPERM: in a child;
 *  and what tow_slot_create() and tow_export() return.
 */
int tow_mailbox_create(struct tow_worker *worker, const char *name,
		       const struct tow_mailbox_attr *attr, struct tow_mailbox **mailbox);

/**
 * tow_mailbox_destroy() - end a mailbox
 * @mailbox: which no other thread uses; or NULL
 *
 * Lines that others have begun, and that were not accepted, end: -ESTALE there.  Waits until nobody
 * reaches its memory any more.
 *
 * Return: 0; -EBUSY: it has lines that were connected or accepted, and nothing has changed; -EPERM:
 * in a child, whose copy is freed; and as tow_unexport(), and then it is gone all the same.
 */
int tow_mailbox_destroy(struct tow_mailbox *mailbox);

/**
 * tow_mailbox_connect() - begin a line
 * @mailbox: this end
 * @peer: where the other one is; not released before the line is closed
 * @name: its name
 * @timeout_ms: how long to look for it, and for room in its backlog, in milliseconds;
 *	TOW_WAIT_FOREVER
 * @line: stored here; ended with tow_mailbox_close()
 *
 * Returns at once.  tow_mailbox_info() says when the line is open; then messages may be sent, though
 * nobody has accepted it.
 *
 * Return: 0, or
 *  -EINVAL: an argument is NULL, or not as above;
 *  -EMLINK: there are as many lines as the mailbox may have;
 *  -EOVERFLOW, -ENOSPC, -EDQUOT, -ENOMEM, -EPERM, and others: as tow_mailbox_create();
 *  or what has ended the worker.
 */
int tow_mailbox_connect(struct tow_mailbox *mailbox, struct tow_peer *peer, const char *name,
			uint32_t timeout_ms, struct tow_line **line);

/**
 * tow_mailbox_accept() - a line that another process has begun
 * @mailbox: a mailbox with a name
 * @line: stored here; ended with tow_mailbox_close()
 *
 * In the order in which they came.  It is open, both ways; or it has ended, as whoever began it
 * has: what that one had sent is there to be received.
 *
 * Return: 1: there was one; 0: there is none; -EINVAL; -EPERM.
 */
int tow_mailbox_accept(struct tow_mailbox *mailbox, struct tow_line **line);

/**
 * struct tow_line_info - how a line is
 * @size: sizeof(struct tow_line_info)
 * @status: 0: open.  -EINPROGRESS: not yet.  Or what has ended it:
 *	-ETIMEDOUT: nobody has that name, nothing came free in its backlog, or its node does not
 *	answer within the worker's timeout_ms;
 *	-ESTALE: the other end's process, or its mailbox, has ended, or has closed the line;
 *	-ECONNRESET, -ETIMEDOUT: its node is lost;
 *	-EPROTO: what came makes no sense, or is of another version of this library;
 *	and what tow_resolve(), tow_channel_get() and the worker's operations fail with
 * @room: bytes of the longest message that can be sent now; 0: none
 * @waiting: bytes of the message that is received next; 0: there is none
 * @incarnation: which node the other end is on (struct tow_peer_info)
 * @name: of its mailbox, terminated and filled up with zeroes; empty if it has none.  Of a line
 *	that was accepted it is what the other end says
 * @sent: how much was sent so far, in units of the library's; only grows
 * @there: how much of that the other end has: what was sent is there when this has come up to what
 *	@sent was then
 */
struct tow_line_info {
	uint32_t size;
	int32_t status;
	uint32_t room;
	uint32_t waiting;
	uint8_t incarnation[TOW_INCARNATION_BYTES];
	char name[TOW_MAILBOX_NAME_MAX + 8];
	uint64_t sent;
	uint64_t there;
};

/**
 * tow_mailbox_info() - how a line is
 * @line: the line
 * @info: stored here; its size is filled in before
 *
 * Return: 0; -EINVAL; -EPERM.
 */
int tow_mailbox_info(struct tow_line *line, struct tow_line_info *info);

/**
 * tow_mailbox_send() - send a message
 * @line: a line that is open
 * @data: what; copied, and the caller's again when this returns
 * @bytes: how much, 1 to TOW_MESSAGE_MAX
 *
 * It is on its way when this returns, or when what was sent before is there.
 *
 * Return: 0, or
 *  -EAGAIN: the other end has no room for it; nothing was sent, and TOW_MAILBOX_ROOM says when
 *	there is some;
 *  -ENOTCONN: the line is not open yet;
 *  -EINVAL: an argument is NULL, or not as above;
 *  -EPERM: in a child;
 *  or what has ended it (struct tow_line_info).
 */
int tow_mailbox_send(struct tow_line *line, const void *data, uint32_t bytes);

/**
 * tow_mailbox_receive() - take the next message
 * @line: the line
 * @data: where to; its room is the sender's again then
 * @room: bytes there
 * @bytes: how many it has is stored here, also with -EMSGSIZE
 *
 * What had come before a line ended comes first.
 *
 * Return: 1: a message; 0: there is none; -EMSGSIZE: it is longer than @room, and stays; -EINVAL;
 * -EPERM; or what has ended the line.
 */
int tow_mailbox_receive(struct tow_line *line, void *data, uint32_t room, uint32_t *bytes);

/* What a mailbox tells of, and what may be waited for. */
enum tow_mailbox_what {
	/* there is a message to receive; of a mailbox: a line to accept */
	TOW_MAILBOX_CAME	= 1 << 0,
	/* the line has been opened; or there is room for what tow_mailbox_send() had none for */
	TOW_MAILBOX_ROOM	= 1 << 1,
	/* the line has ended */
	TOW_MAILBOX_ENDED	= 1 << 2
};

/**
 * typedef tow_mailbox_news - something has happened
 * @arg: as it was given to tow_mailbox_watch()
 * @line: to which line; NULL: there is one to accept
 * @what: bits of enum tow_mailbox_what
 *
 * Called by a thread that is in a function of the worker's, as for tow_edge_send().  Once for each
 * thing, until somebody has looked: received until there was nothing, sent, accepted.  So a line is
 * looked at once when it was accepted.  It may call all functions but those that wait.
 */
typedef void tow_mailbox_news(void *arg, struct tow_line *line, uint32_t what);

/**
 * tow_mailbox_watch() - have a function called when something happens
 * @mailbox: to it, or to one of its lines
 * @news: the function; NULL: none any more, though one that is being called may be still
 * @arg: for the function
 *
 * It is told of what is there already, too.
 *
 * Return: 0; -EINVAL; -EPERM.
 */
int tow_mailbox_watch(struct tow_mailbox *mailbox, tow_mailbox_news *news, void *arg);

/**
 * tow_mailbox_wait() - wait until something has happened
 * @mailbox: the mailbox
 * @line: one of its lines; NULL: for one to accept
 * @what: for which of enum tow_mailbox_what; for TOW_MAILBOX_ENDED in any case.  ROOM: the line is
 *	open, and has room for what tow_mailbox_send() had none for
 * @timeout_us: how long, in microseconds; TOW_WAIT_FOREVER
 *
 * Takes no processor time, and drives the worker meanwhile.
 *
 * Return: what of it is so; -ETIMEDOUT; -EINTR (tow_on_signal()); -EINVAL; -EPERM; -ENODEV.
 */
int tow_mailbox_wait(struct tow_mailbox *mailbox, struct tow_line *line, uint32_t what,
		     uint32_t timeout_us);

/**
 * tow_mailbox_close() - end a line
 * @line: the line, which no other thread uses; or NULL
 *
 * Waits until what was sent is there, but a second at most, and then until nobody reaches the line's
 * memory any more.  What has come and was not received is lost.
 *
 * Return: 0; -EPERM: in a child, whose copy is freed; and as tow_unexport(), and then it is gone all
 * the same.
 */
int tow_mailbox_close(struct tow_line *line);

#ifdef __cplusplus
}
#endif

#endif /* TOW_MAILBOX_H */

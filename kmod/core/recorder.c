// SPDX-License-Identifier: GPL-2.0
/*
 * The flight recorder: what happened last with a peer.
 *
 * Noting takes a short lock and no memory, so it works in any context.  Readers
 * copy one event at a time under the lock, so a writer waits for one copy at
 * most; readers miss events that are overwritten meanwhile.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/math64.h>
#include <linux/printk.h>
#include <linux/ratelimit.h>
#include <linux/sched/clock.h>
#include <linux/string.h>
#include <linux/sysfs.h>
#include <linux/time64.h>

#include "core/core.h"
#include "core/trace.h"

/* Bytes of a line of the log or of the file, at most: a file is a page. */
#define TOW_RECORDER_LINE	120

static_assert(TOW_RECORDER_EVENTS * TOW_RECORDER_LINE < 4096);

/* Dumps in each interval: the log must stay readable. */
#define TOW_RECORDER_DUMPS	4
#define TOW_RECORDER_INTERVAL	(10 * HZ)

/**
 * tow_recorder_init - nothing has happened yet
 * @recorder: the recorder
 * @dev: the device of the peer
 * @peer: the peer's number
 */
void tow_recorder_init(struct tow_recorder *recorder, struct tow_device *dev,
		       u64 peer)
{
	recorder->dev = dev;
	recorder->peer = peer;
	spin_lock_init(&recorder->lock);
	recorder->count = 0;
}

/**
 * tow_recorder_note - something happened
 * @recorder: the recorder
 * @epoch: in which session of the peer
 * @stage: what: a string that is never freed
 * @subject: an export's, grant's or request's number, or 0
 * @error: a negative errno, or 0
 *
 * In any context.
 */
void tow_recorder_note(struct tow_recorder *recorder, u32 epoch,
		       const char *stage, u64 subject, int error)
{
	struct tow_event event = {
		.epoch		= epoch,
		.stage		= stage,
		.subject	= subject,
		.error		= error,
	};
	unsigned long flags;

	trace_tow_peer_event(recorder, epoch, stage, subject, error);
	spin_lock_irqsave(&recorder->lock, flags);
	/* Under the lock, so that times do not go backwards from line to line. */
	event.time_ns = local_clock();
	recorder->events[recorder->count % TOW_RECORDER_EVENTS] = event;
	WRITE_ONCE(recorder->count, recorder->count + 1);
	spin_unlock_irqrestore(&recorder->lock, flags);
}

/*
 * Event @number as a line, with the time as the log writes it: "12.345678".  False: it
 * was overwritten.
 */
static bool tow_recorder_line(struct tow_recorder *recorder, u64 number,
			      char line[TOW_RECORDER_LINE])
{
	struct tow_event event;
	unsigned long flags;
	u64 seconds;
	bool there;
	u32 rest;
	int used;

	spin_lock_irqsave(&recorder->lock, flags);
	there = recorder->count - number <= TOW_RECORDER_EVENTS;
	event = recorder->events[number % TOW_RECORDER_EVENTS];
	spin_unlock_irqrestore(&recorder->lock, flags);
	if (!there)
		return false;
	seconds = div_u64_rem(event.time_ns, NSEC_PER_SEC, &rest);
	used = scnprintf(line, TOW_RECORDER_LINE, "%llu.%06u epoch=%u %s",
			 seconds, rest / (u32)NSEC_PER_USEC, event.epoch,
			 event.stage);
	if (event.subject)
		used += scnprintf(line + used, TOW_RECORDER_LINE - used,
				  " subject=%llu", event.subject);
	if (event.error)
		scnprintf(line + used, TOW_RECORDER_LINE - used, " error=%d",
			  event.error);
	return true;
}

/**
 * tow_recorder_show - write the events to a file in sysfs, the oldest first
 * @recorder: the recorder
 * @buf: where to, a page; each event is a line
 *
 * Return: bytes that were written.
 */
int tow_recorder_show(struct tow_recorder *recorder, char *buf)
{
	u64 count = READ_ONCE(recorder->count);
	char line[TOW_RECORDER_LINE];
	u64 number;
	int used = 0;

	for (number = count - min_t(u64, count, TOW_RECORDER_EVENTS);
	     number < count; number++) {
		if (tow_recorder_line(recorder, number, line))
			used += sysfs_emit_at(buf, used, "%s\n", line);
	}
	return used;
}

/**
 * tow_recorder_dump - write the last events to the kernel log
 * @recorder: the recorder
 * @device: the device's name
 * @peer: the peer's address
 * @why: what went wrong: "revoke: not acknowledged in time"
 *
 * At most four dumps in ten seconds, of all peers together: where a hundred
 * peers fail at once the first ones suffice, and sysfs has the others'
 * events.
 */
void tow_recorder_dump(struct tow_recorder *recorder, const char *device,
		       const char *peer, const char *why)
{
	static DEFINE_RATELIMIT_STATE(dumps, TOW_RECORDER_INTERVAL,
				      TOW_RECORDER_DUMPS);
	u64 count = READ_ONCE(recorder->count);
	char line[TOW_RECORDER_LINE];
	u64 number;

	if (!__ratelimit(&dumps))
		return;
	pr_warn("%s: peer %s: %s; what happened before:\n", device, peer, why);
	for (number = count - min_t(u64, count, TOW_RECORDER_DUMPED);
	     number < count; number++) {
		if (tow_recorder_line(recorder, number, line))
			pr_warn("%s: peer %s:   %s\n", device, peer, line);
	}
}

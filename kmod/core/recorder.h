/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The flight recorder: what happened last with a peer, kept in a bounded ring,
 * to be read in debugfs, and written to the log when something times out.
 */
#ifndef TOW_RECORDER_H
#define TOW_RECORDER_H

#include <linux/seq_file.h>
#include <linux/spinlock.h>
#include <linux/types.h>

struct tow_device;

/* What is remembered of each peer. */
#define TOW_RECORDER_EVENTS	64

/* How many of them go to the log when something times out. */
#define TOW_RECORDER_DUMPED	16

/**
 * struct tow_event - something that happened
 * @time_ns: when, by the clock that the log uses
 * @epoch: in which session of the peer
 * @stage: what: a string that is never freed, "connect: address resolved"
 * @subject: an export's, grant's or request's number, or 0
 * @error: a negative errno, or 0
 */
struct tow_event {
	u64		time_ns;
	u32		epoch;
	const char	*stage;
	u64		subject;
	int		error;
};

/**
 * struct tow_recorder - a ring of events
 * @dev: the device, for the trace; whoever has the recorder keeps it
 * @peer: the peer's number, for the trace
 * @lock: protects what follows; taken in any context
 * @count: events that there were
 * @events: the last of them
 */
struct tow_recorder {
	struct tow_device	*dev;
	u64			peer;
	/* protects count, events */
	spinlock_t		lock;
	u64			count;
	struct tow_event	events[TOW_RECORDER_EVENTS];
};

void tow_recorder_init(struct tow_recorder *recorder, struct tow_device *dev,
		       u64 peer);
void tow_recorder_note(struct tow_recorder *recorder, u32 epoch,
		       const char *stage, u64 subject, int error);
void tow_recorder_show(struct tow_recorder *recorder, struct seq_file *file);
void tow_recorder_dump(struct tow_recorder *recorder, const char *device,
		       const char *peer, const char *why);

#endif /* TOW_RECORDER_H */

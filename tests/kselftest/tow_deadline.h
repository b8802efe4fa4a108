/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Entries with deadlines, with the node as its own peer, and what comes of them.
 *
 * An operation is on its way for long there if it is large and little of it may be on
 * its way at once.
 */
#ifndef TOW_DEADLINE_H
#define TOW_DEADLINE_H

#include "tow_notify.h"
#include "tow_places.h"

#define ENTRIES		64U
#define LARGE_BYTES	(4 * TOW_MB)
#define POOL_BYTES	(3 * LARGE_BYTES + 8 * TOW_MB)
#define LITTLE		(64 * TOW_KB)	/* on its way at once */
#define FAR_MS		30000U
/* What an emulated machine may need beside the time itself. */
#define SLACK_S		5.0

/* What entries are of: the connection's first queue pair; who notifies has another one. */
struct tow_timed {
	struct tow_knobs before;
	struct tow_user user;
	struct tow_rings side;
	__u16 side_channel;
	struct tow_mapped own, target;
	__u64 remote;
	__u64 slot, slot_export;	/* in the first bytes of "own" */
	__u32 epoch;
	uint64_t late;
};

static inline int tow_timed_make_side(struct tow_timed *timed)
{
	struct tow_channel_open channel = { .size = sizeof(channel) };
	int ret = tow_rings_make(timed->user.fd, 4, 0, &timed->side);

	if (!ret)
		ret = tow_channel_open(timed->side.made.fd, timed->user.peer, 1, &channel);
	timed->side_channel = (__u16)channel.channel;
	return ret;
}

static inline int tow_timed_make(struct tow_timed *timed)
{
	struct tow_user *user = &timed->user;
	int ret;

	tow_knobs_save(&timed->before);
	ret = tow_queue_fresh(POOL_BYTES);
	if (!ret)
		ret = tow_sysfs_set("inflight_bytes", LITTLE);
	if (!ret)
		ret = tow_user_make(user, ENTRIES, 0);
	if (!ret)
		ret = tow_make_target(user, LARGE_BYTES, &timed->own, &timed->target,
				      &timed->remote);
	if (!ret)
		ret = tow_slot_make(user->fd, timed->own.made.handle, 0, "slot",
				    &timed->slot_export);
	if (!ret)
		ret = tow_slot_find(user->fd, user->peer, "slot", &timed->slot);
	if (!ret)
		ret = tow_timed_make_side(timed);
	timed->epoch = tow_peer_epoch(user->fd, user->peer);
	timed->late = tow_sysfs_get("stats/timeouts");
	return ret;
}

/* Whatever was late, the connection is the same; 0, or what is wrong. */
static inline int tow_timed_restore(const struct tow_timed *timed)
{
	int fd = tow_test_open(O_RDWR), ret = tow_knobs_restore(&timed->before);

	if (!ret && (!timed->epoch || timed->epoch != tow_peer_epoch(fd, timed->user.peer)))
		ret = -ECONNRESET;
	close(fd);
	return ret;
}

/* The queue works. */
static inline void expect_works(struct __test_metadata *_metadata, struct tow_timed *timed)
{
	struct tow_sqe sqe = { .user_data = 99, .flags = TOW_SQE_FENCE };

	EXPECT_EQ(0, tow_rings_do(&timed->user.rings, &sqe));
}

/* ---- entries, in short ------------------------------------------------------------------ */

static inline struct tow_sqe move(const struct tow_timed *timed, __u8 opcode, size_t place,
			   size_t bytes, __u32 timeout_ms)
{
	struct tow_sqe sqe = tow_move(&timed->user, opcode, timed->own.made.handle, place,
				      timed->remote, place, bytes);

	sqe.timeout_ms = timeout_ms;
	return sqe;
}

static inline struct tow_sqe notify(const struct tow_timed *timed)
{
	struct tow_sqe sqe = tow_notify(&timed->user, timed->slot);

	sqe.channel = timed->side_channel;
	return sqe;
}

/* Until the slot is at that number. */
static inline struct tow_sqe wait_for(const struct tow_timed *timed, __u64 number, __u32 timeout_ms)
{
	struct tow_sqe sqe = tow_wait_for(timed->slot_export, number);

	sqe.timeout_ms = timeout_ms;
	return sqe;
}

static inline struct tow_sqe nop(__u8 flags, __u32 timeout_ms)
{
	return (struct tow_sqe) { .flags = flags, .timeout_ms = timeout_ms };
}

/* The slot is at its next number. */
static inline int go_on(struct tow_timed *timed)
{
	struct tow_sqe sqe = notify(timed);

	return tow_rings_do(&timed->side, &sqe);
}

/* Of this number, to be looked for in what comes of them. */
static inline void put(struct __test_metadata *_metadata, struct tow_rings *rings, struct tow_sqe sqe,
		__u8 flags, __u64 number)
{
	sqe.flags = flags;
	sqe.user_data = number;
	ASSERT_TRUE(tow_rings_put(rings, &sqe));
}

static inline void submit(struct __test_metadata *_metadata, struct tow_rings *rings, int count)
{
	ASSERT_EQ(count, tow_rings_enter(rings, 0, 0));
}

/* ---- what comes of them ------------------------------------------------------------------ */

/* Of an entry: its first completion, and the second if it was HELD. */
struct fate {
	int status, released;
	bool held;
	unsigned int firsts, seconds;
	unsigned int order;		/* of the last one of them, among all */
	double at;			/* when the first one was there */
};

static inline bool is_over(const struct fate *fate)
{
	return fate->firsts && fate->seconds == fate->held;
}

/* False: it must not come, or not like that. */
static inline bool note(struct fate *fate, const struct tow_cqe *cqe, unsigned int order)
{
	fate->order = order;
	if (cqe->flags == TOW_CQE_RELEASED) {
		fate->released = cqe->status;
		return fate->firsts == 1 && fate->held && ++fate->seconds == 1;
	}
	fate->status = cqe->status;
	fate->held = cqe->flags == TOW_CQE_HELD;
	fate->at = tow_test_now();
	return (!cqe->flags || (fate->held && cqe->status == -ETIMEDOUT)) && ++fate->firsts == 1;
}

/* Completions, until so many of these entries are over: 0 or a negative errno. */
static inline int collect(struct tow_rings *rings, struct fate *fates, unsigned int count,
		   unsigned int wanted)
{
	unsigned int over = 0, order = 0;
	struct tow_cqe cqe;
	int ret;

	while (over < wanted) {
		ret = tow_rings_wait(rings, &cqe);
		if (ret)
			return ret;
		if (cqe.user_data >= count)
			return -ERANGE;
		if (!note(&fates[cqe.user_data], &cqe, order++))
			return -EILSEQ;
		over += is_over(&fates[cqe.user_data]);
	}
	return 0;
}

/* Nothing more comes. */
static inline bool silence(struct tow_rings *rings)
{
	tow_test_sleep_ms(20);
	return !tow_rings_ready(rings);
}

static inline uint64_t late_now(struct tow_timed *timed)
{
	uint64_t late = tow_sysfs_get("stats/timeouts") - timed->late;

	timed->late += late;
	return late;
}

#endif /* TOW_DEADLINE_H */

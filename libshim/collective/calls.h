/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * Calls, inside: joints, which carry out schedules, and pairs, by which ranks reach each other.
 *
 * What a rank sends to another one is a message of the joint's call.  A small one, at most
 * comm->eager_bytes, travels in a record of the pair's wire, in parts, and waits at the receiver until
 * its joint wants it.  A larger one is written where the receiver has said, by a credit: a slot of
 * its pool, or its array.  Each credit is answered by one notification of its lane, also when its
 * call has failed; so the number of a lane's slot says which credits were answered, and messages
 * have no headers.  Who answers one without a message says so before, and is heard: what is notified
 * and what a record says come in any order.
 *
 * Credits go out in the order of calls, and within one in that of its writes; they are used in the
 * order in which they came.  Records are taken as they come, whoever they are for.  So no call waits
 * for one that was made after it: by schedule.h's argument about rounds, of calls and rounds.
 */
#ifndef TOW_CALLS_H
#define TOW_CALLS_H

#include "../pump/windows.h"
#include "../pump/wire.h"
#include "inside.h"
#include "schedule.h"

/* What has @ptr as that member. */
#define TOWI_OUTER(ptr, type, member) \
	((type *)(void *)((char *)(ptr) - offsetof(type, member)))

/* Calls that are carried out at once: the first ones that have not ended. */
#define TOWI_CALLS_OPEN		64U
/* Calls that are remembered by their marks. */
#define TOWI_CALLS_KNOWN	1024U
/* Queue pairs that what is large is dealt to. */
#define TOWI_LANES		4U
/* Credits that a rank may have and not have answered, of each other rank. */
#define TOWI_CREDITS		16U
/* Of a call's array, so many pieces may come that are not wanted yet; of more each needs a credit. */
#define TOWI_EARLY_PIECES	16U

/* ---- slots.c: memory of the communicator's ---- */

/* So many places, of that many bytes, in the arena. */
#define TOWI_SLOTS		16U
#define TOWI_SLOT_BYTES		(256U << 10)

struct towi_slots {
	char *at;			/* NULL: nobody has needed them so far */
	struct tow_region *region;
	uint64_t offset;
	struct towi_place place;	/* of a pool: where others write */
	uint32_t used;			/* a bit each */
};

/* Others write there, too (@shown).  0 or a negative errno.  Without the pump's lock. */
int towi_slots_need(struct tow_comm *comm, struct towi_slots *slots, bool shown);
void towi_slots_free(struct tow_comm *comm, struct towi_slots *slots);

/* One that is free, or -1. */
int towi_slots_take(struct towi_slots *slots);
void towi_slots_give(struct towi_slots *slots, int slot);
static inline bool towi_slots_full(const struct towi_slots *slots)
{
	return slots->used == (1ULL << TOWI_SLOTS) - 1;
}

static inline char *towi_slot_at(const struct towi_slots *slots, int slot)
{
	return slots->at + (uint64_t)slot * TOWI_SLOT_BYTES;
}

/* ---- what is asked for ---- */

/* Something that a program may wait for. */
struct tow_work {
	LIST_ENTRY(tow_work) all;	/* among those that were not freed */
	struct tow_comm *comm;		/* NULL: it has ended, too */
	_Atomic bool ended;
	bool freed;
	int fd;				/* an eventfd, if it was asked for: plus 1 */
	int status;			/* when it has ended, or is to */
	uint32_t blamed;
	uint64_t until_us;
	STAILQ_HEAD(towi_sents, towi_sent) open;	/* in the order of their rounds */
	const struct towi_work_ops *ops;
};

struct towi_work_ops {
	/* Whom it waits for; or TOW_NO_RANK. */
	uint32_t (*waits_for)(const struct tow_work *work);
	/* It has waited for a while.  Or NULL. */
	void (*waits)(struct tow_work *work);
	/* Whom it waits for has left. */
	void (*gone)(struct tow_work *work, uint32_t rank);
	/* Its time is over. */
	void (*late)(struct tow_work *work);
	/* What it was, when it has ended.  Or NULL. */
	void (*tell)(const struct tow_work *work, struct tow_work_info *info);
};

/* Something large that is on its way. */
struct towi_sent {
	struct towi_op op;		/* first */
	STAILQ_ENTRY(towi_sent) next;
	struct tow_work *work;		/* NULL: a credit that nobody uses is answered */
	struct towi_pair *pair;
	struct towi_view *view;		/* or NULL */
	uint64_t round;
	int slot;			/* that it was copied to, or -1 */
	bool ended;
};

/* As towi_take(). */
int towi_take_call_attr(const struct tow_call_attr *attr, struct tow_call_attr *known);

/* May it go on?  0 or a negative errno. */
int towi_comm_usable(const struct tow_comm *comm);

/* The caller's, who gives no place for it if he waits.  0, or what it has ended with. */
int towi_work_give(struct tow_work *work, struct tow_work **given);

/* It is asked for, and in the list of its communicator's. */
void towi_work_begin(struct tow_work *work);

/* It is in that list no more, as it is gone, or asked for once more. */
void towi_work_leave(struct tow_work *work);

/* It has ended, as its status says, and may be gone when this returns. */
void towi_work_end(struct tow_work *work);

/* Have some not ended, those that were @freed included? */
bool towi_works_open(const struct tow_comm *comm, bool freed);

/* What they wait for may be late, or gone. */
void towi_works_doubt(struct tow_comm *comm);

/* The communicator ends; those that were not freed say how they have ended. */
void towi_works_leave(struct tow_comm *comm);

/* Its own thread, if it is to have one: 0 or -ENOMEM; and without it. */
int towi_comm_drive(struct tow_comm *comm);
void towi_comm_drive_end(struct tow_comm *comm);

/* ---- pair.c, record.c: this rank and another one ---- */

/* What a record is about: its tag. */
enum towi_tag {
	TOWI_TAG_MESSAGE = 1,		/* struct towi_part, and a part of a message */
	TOWI_TAG_CREDIT,		/* struct towi_credit */
	TOWI_TAG_ENDED,			/* uint64_t: all calls before that one have ended here */
	TOWI_TAG_MARK,			/* struct towi_mark: what one who waits does */
	TOWI_TAG_DISPUTE,		/* struct towi_dispute, to rank 0 */
	TOWI_TAG_VERDICT,		/* struct towi_verdict, of rank 0 */
	TOWI_TAG_VOID,			/* uint64_t: nothing comes for that call's credits, */
	TOWI_TAG_HEARD,			/* uint64_t: and the other end waits for nothing of it */
	TOWI_TAG_LETTER,		/* struct towi_letter_head, and a part of the letter */
	TOWI_TAG_REQUEST,		/* the same, of a letter that comes when it is wanted */
	TOWI_TAG_WANTED,		/* uint64_t: the number of a small one */
	TOWI_TAG_LETTER_CREDIT,		/* struct towi_credit */
	TOWI_TAG_TAKEN,			/* uint64_t: letters that were, as they are counted */
	TOWI_TAG_REFUSED,		/* uint64_t: the number of one that is too long */
};

struct towi_part {
	uint64_t call, mark;
	uint32_t bytes;			/* of the message */
	uint32_t at;			/* where in it this part is */
};

struct towi_credit {
	uint64_t call, mark;
	struct towi_place place;
	uint64_t bytes;
};

struct towi_mark {
	uint64_t call, mark;
};

struct towi_dispute {
	uint64_t call;
	uint64_t marks[2];
	uint32_t ranks[2];
};

struct towi_verdict {
	uint64_t call;
	uint32_t blamed;
	uint32_t reserved;
};

struct towi_letter_head {
	uint64_t number, bytes;
	uint32_t tag;
	uint32_t at;			/* where in it a part is */
};

/* A record that found no room. */
struct towi_later {
	STAILQ_ENTRY(towi_later) next;
	uint8_t tag;
	uint16_t bytes;
	char data[];
};

/* A message, or what has come of it. */
struct towi_early {
	STAILQ_ENTRY(towi_early) next;
	struct towi_part head;		/* .at: how much there is */
	_Alignas(TOWI_LINE) char data[];
};

/* A credit that this rank has given. */
struct towi_grant {
	uint64_t call;
	uint64_t bytes;
	int slot;			/* of the pool; -1: in the work's array */
	bool done;			/* what landed there is not needed any more */
};

struct towi_lane {
	struct tow_slot *slot;		/* of this end */
	struct towi_op sleeper;
	struct tow_channel *channel;	/* to the other one, */
	struct tow_remote *there;	/* and its slot */
};

struct towi_record_write {
	struct towi_op op;		/* first */
	struct towi_pair *pair;
	uint64_t batch;
};

/*
 * What is large goes by lanes, and where, by credits: of calls, and, so that neither waits for the
 * other, of letters.
 */
enum towi_track_of { TOWI_OF_CALLS, TOWI_OF_LETTERS, TOWI_TRACKS };

struct towi_track {
	struct towi_pair *pair;
	uint64_t *numbers;		/* in the arena: of this end's slots */
	struct towi_lane lanes[TOWI_LANES];
	struct towi_errand finds;
	bool made, finding, found;
	uint64_t seen;			/* answers to this end's credits, when they were looked at */
	/* Credits of the other end's, by number, and of this one's. */
	struct towi_credit credits[TOWI_CREDITS];
	uint64_t credits_used, credits_come;
	struct towi_grant grants[TOWI_CREDITS];
	uint64_t grants_done, grants_given;
};

TAILQ_HEAD(towi_letters, towi_letter);

/* What a rank has asked for of one other. */
struct towi_letter {
	struct tow_work work;		/* first */
	TAILQ_ENTRY(towi_letter) next;
	struct towi_letters *in;	/* which list that is, or NULL */
	struct towi_pair *pair;		/* NULL: to this rank itself, or from any */
	uint32_t rank, tag;		/* that are wanted, or what it has */
	uint64_t number;
	struct towi_array array;
	struct towi_place place;	/* .edge 0: what comes lands in the pool */
	uint64_t bytes;			/* its own; before it has come, what there is room for */
	uint64_t done, granted;		/* bytes that were sent, or have landed; and may come */
};

TAILQ_HEAD(towi_came, came);

/* Letters of a pair. */
struct towi_post {
	struct towi_letters to_say;	/* nothing was said of them */
	struct towi_letters put;	/* small, in the wire */
	struct towi_letters said;	/* the other end knows of them, */
	uint32_t said_count;		/* so many, and does not want them so far */
	struct towi_letters called;	/* small, that the other end wants */
	struct towi_letters coming;	/* to this rank, by credits */
	uint64_t told_count;		/* to the other end, ever, */
	uint64_t heard_count;		/* and from it */
	uint32_t kept_count;		/* that it has told of, and nobody has wanted so far */
	/* Of small ones, with what each is counted more: */
	uint64_t sent, theirs_taken;	/* to the other end, and what it does not keep any more */
	uint64_t heard, taken, told_taken;	/* from it, and what this one does not keep */
};

struct towi_pair {
	TAILQ_ENTRY(towi_pair) next;
	struct tow_comm *comm;
	uint32_t rank;
	bool over;			/* the other rank has left */
	/* Records. */
	struct towi_wire wire;
	char *outbox;
	struct tow_slot *slot;		/* of what comes */
	struct towi_op sleeper;
	struct towi_record_write writes[TOWI_WIRE_WRITES];
	struct tow_remote *inbox, *there;
	struct towi_errand finds;
	bool finding, found;
	STAILQ_HEAD(, towi_later) later;
	uint64_t unsaid;		/* the first call of which something is not on its way */
	/* Messages that have come and are not wanted yet. */
	STAILQ_HEAD(, towi_early) early;
	uint64_t early_bytes;
	/* Of small messages: */
	uint64_t sent_call;		/* behind the last call that was sent for, */
	uint64_t sent_first;		/* and the first that may not be over there */
	uint64_t theirs_ended;		/* calls there, as far as was told */
	uint64_t heard_call;		/* behind the last one that the other end has sent for */
	uint64_t told_ended;		/* calls here, as far as the other end was told */
	struct towi_track tracks[TOWI_TRACKS];
	uint64_t voided;		/* behind the last call that is void at this end, */
	bool void_heard;		/* as the other one knows */
	struct towi_views views;
	struct towi_post post;
};

TAILQ_HEAD(towi_pairs, towi_pair);

/* Memory that others write records to: 0 or a negative errno. */
int towi_pairs_make(struct tow_comm *comm);
/* Nobody reaches this rank any more. */
void towi_pairs_hide(struct tow_comm *comm);
/* This rank reaches nobody any more. */
void towi_pairs_release(struct tow_comm *comm);
void towi_pairs_free(struct tow_comm *comm);

/* The pair with that rank; NULL: the communicator has failed, as there is no memory. */
struct towi_pair *towi_pair_of(struct tow_comm *comm, uint32_t rank);

/* Those of whom something has come have one: what has come is taken.  True: there was something. */
bool towi_pairs_look(struct tow_comm *comm);

/* What is to go out does.  True: something did. */
bool towi_pairs_go_on(struct tow_comm *comm);

/* All that was to be said for that call, and those before, is on its way. */
bool towi_pairs_said(const struct tow_comm *comm, uint64_t call);

/* All records have arrived, and all answers. */
bool towi_pairs_idle(const struct tow_comm *comm);

/* All are found, if they can be, that this rank knows, or that know it. */
bool towi_pairs_found(struct tow_comm *comm);

/* Something comes when there is a record, or what was granted: false: there is already. */
bool towi_pairs_arm(struct tow_comm *comm);

/* A record for the other end, about a call; it goes before messages when there is no room now. */
void towi_pair_tell(struct towi_pair *pair, enum towi_tag tag, uint64_t call, const void *data,
		    uint16_t bytes);

/* A whole message; false: not now. */
bool towi_pair_send(struct towi_pair *pair, const struct towi_part *head, const char *data);

/* The same of a letter. */
bool towi_pair_send_letter(struct towi_pair *pair, const struct towi_letter_head *head,
			   const char *data);

/* What it has can be written to; if not, it is looked for. */
bool towi_pair_found(struct towi_pair *pair);

/* Something sent there has failed; or something there was not found. */
void towi_pair_failed(struct towi_pair *pair, int status);
void towi_pair_not_found(struct towi_pair *pair, int status);

struct towi_pair_name {
	char text[TOW_EXPORT_NAME_MAX + 1];
};

/* What rank @of has for rank @to. */
struct towi_pair_name towi_pair_name(const struct tow_comm *comm, const char *what, uint32_t index,
				     uint32_t of, uint32_t to);

/* Its message for that call, whole; NULL: it has not come. */
struct towi_early *towi_pair_early(struct towi_pair *pair, uint64_t call);
void towi_pair_take_early(struct towi_pair *pair, struct towi_early *early);

/* ---- track.c: what is large ---- */

void towi_track_begin(struct towi_track *track, struct towi_pair *pair);
void towi_track_hide(struct towi_track *track);
void towi_track_release(struct towi_track *track);

/* What lands from now on has not been looked at. */
void towi_track_look(struct towi_track *track);

/* Something comes when what was granted has landed: false: something has, since that. */
bool towi_track_arm(struct towi_track *track);

/* Ways to answer credits: false: they are looked for. */
bool towi_track_found(struct towi_track *track);

/* A credit of the other end's has come. */
void towi_track_take(struct towi_track *track, const struct towi_credit *credit);

/* The first that was not used; NULL: there is none. */
static inline const struct towi_credit *towi_track_credit(const struct towi_track *track)
{
	return track->credits_used == track->credits_come ? NULL :
		&track->credits[track->credits_used % TOWI_CREDITS];
}

/* May one more be given? */
static inline bool towi_track_has_room(const struct towi_track *track)
{
	return track->grants_given - track->grants_done < TOWI_CREDITS;
}

/*
 * Give one: @credit, for what lands in @slot of a pool, or where the credit says (-1).  False: the
 * communicator has failed.
 */
bool towi_track_grant(struct towi_track *track, const struct towi_credit *credit, int slot);

static inline struct towi_grant *towi_grant_at(struct towi_track *track, uint64_t number)
{
	return &track->grants[number % TOWI_CREDITS];
}

/* It has been answered. */
static inline bool towi_grant_landed(const struct towi_track *track, uint64_t number)
{
	return tow_slot_value(track->lanes[number % TOWI_LANES].slot) > number / TOWI_LANES;
}

/* The first for that call, or letter, that is not done with; false: there is none. */
bool towi_grant_of(struct towi_track *track, uint64_t call, uint64_t *number);

/* What landed there is not needed any more. */
void towi_grant_end(struct towi_track *track, uint64_t number);

/*
 * What a credit is used for: @bytes at @from_offset of an array in a region, or, if it is in none,
 * at @from.
 */
struct towi_answer {
	const struct towi_array *array;
	uint64_t offset;		/* in it */
	struct tow_work *work;		/* knows of it until it ends: it is among .open */
	uint64_t round;
};

/* Of those that are open, the first, if it has ended; or NULL. */
struct towi_sent *towi_sent_take(struct tow_work *work);

/* The first credit is used for that; NULL: for nothing.  False: not now. */
bool towi_track_answer(struct towi_track *track, const struct towi_answer *answer);

/* ---- steps.c, call.c: what a work does ---- */

struct towi_cursor {
	struct towi_schedule schedule;
	struct towi_step step;
	bool more;
};

static inline void towi_cursor_advance(struct towi_cursor *cursor)
{
	cursor->more = towi_schedule_next(&cursor->schedule, &cursor->step);
}

struct towi_joint {
	struct tow_work work;		/* first */
	TAILQ_ENTRY(towi_joint) next;	/* among those that have not ended, in their order */
	uint64_t number, mark;
	struct towi_plan plan;
	bool reduces;
	enum tow_reduction reduction;
	enum towi_reduce_type type;
	uint32_t element;		/* bytes */
	bool all_large;			/* pieces need credits, small as they are */
	bool made;			/* a collective's (made.h): there are no credits */
	struct towi_array in, out, sums;
	struct towi_place out_place;	/* .edge 0: what comes to it lands in the pool */
	struct towi_cursor sends, writes, grants;
	/* It stands still until rank 0 has said who is to blame; and will, if another one knows that. */
	bool disputed;
	bool told;			/* whom it waits for knows its mark */
};

TAILQ_HEAD(towi_joints, towi_joint);

/* Of a communicator. */
struct towi_calls {
	struct towi_runner runner;	/* first */
	struct tow_comm *comm;
	/* Inboxes, and the numbers of their slots, by rank. */
	struct towi_array inboxes, numbers;
	struct tow_exported *exported;
	struct tow_slot **slots;
	uint32_t units;			/* of a wire */
	uint32_t eager_bytes;
	uint32_t *order;		/* ranks, nodes together */
	struct towi_pair **pair;	/* by rank, or NULL */
	struct towi_pairs pairs;
	struct towi_windows windows;
	struct towi_slots pools[TOWI_TRACKS], stage;
	struct towi_joints joints;
	struct towi_joints made_ones;	/* of collectives that have begun, in no order */
	struct towi_letters wanted;	/* that have not come */
	struct towi_letters to_self;	/* that nobody has wanted */
	struct towi_letters ending;	/* when nothing of them is on its way */
	struct towi_came came;		/* that nobody has wanted */
	LIST_HEAD(, tow_work) all;
	struct towi_joint *granting;	/* whose credits go out, or NULL */
	uint64_t made;			/* calls */
	uint64_t marks[TOWI_CALLS_KNOWN];
	uint64_t judged[TOWI_CALLS_KNOWN / 64];	/* at rank 0: a bit each */
	struct towi_quarrels *quarrels;
	uint32_t quarrels_count;
	bool going, again;		/* a thread goes on with them, and is to do so once more */
	bool unarmed;			/* somebody sleeps until it has */
	bool asking;			/* a thread finds out who is late, */
	struct tow_work *late;		/* for that one; NULL: it is gone by now */
	bool over;			/* nothing goes on any more */
	uint32_t held;			/* nothing goes on so far: how often that was asked for */
	uint64_t *waited_us;		/* by rank */
	struct tow_comm_stats stats;
};

/* What a rank has for another one's records. */
static inline uint64_t towi_inbox_bytes(const struct towi_calls *calls)
{
	return (towi_ring_bytes(calls->units) + TOWI_LINE - 1) / TOWI_LINE * TOWI_LINE;
}

/* What others find: 0 or a negative errno.  Without the lock; ended in any case. */
int towi_calls_make(struct tow_comm *comm);
/* Ranks of one node are neighbours: 0 or -ENOMEM. */
int towi_calls_order(struct tow_comm *comm);
/* Is there anything that has not ended, and may? */
bool towi_calls_busy(struct tow_comm *comm);
/* What ended calls have said has arrived, or it takes too long. */
void towi_calls_flush(struct tow_comm *comm);
/* Nobody reaches this rank any more, and nothing is on its way, or it seems never to end. */
void towi_calls_end(struct tow_comm *comm);

/* A call begins; or that of a collective.  With the lock. */
void towi_call_begin(struct towi_joint *joint);
void towi_call_begin_made(struct towi_joint *joint);
extern const struct towi_work_ops towi_call_ops;

/* What those do, for a collective's: what others have at @places is @started, or they are late. */
uint32_t towi_call_waits_for(const struct tow_work *work);
void towi_call_gone(struct tow_work *work, uint32_t rank);
void towi_call_late(struct tow_work *work, const uint64_t *places, uint64_t started);

static inline uint64_t towi_step_bytes(const struct towi_joint *joint, const struct towi_step *step)
{
	return step->count * joint->element;
}

/* Is what comes only stored in the result? */
static inline bool towi_is_stored(const struct towi_step *step)
{
	return step->to == TOWI_OUT && step->right == TOWI_NOWHERE;
}

/* Does its message travel in records? */
static inline bool towi_step_is_small(const struct towi_joint *joint, const struct towi_step *step)
{
	return !joint->all_large &&
	       towi_step_bytes(joint, step) <= joint->work.comm->calls->eager_bytes;
}

/* From the beginning of its plan; and what can be done now: true: something was. */
void towi_joint_begin(struct towi_joint *joint);
bool towi_joint_go_on(struct towi_joint *joint);

/* Where an operand of a step is that is an array. */
struct towi_span {
	const struct towi_array *array;
	uint64_t offset, bytes;
};

struct towi_span towi_joint_span(const struct towi_joint *joint, enum towi_operand operand,
				 const struct towi_step *step);

/* Its plan, and its mark: 0; or the kind does not go that way: -EOPNOTSUPP. */
int towi_joint_plan(struct towi_joint *joint, const struct tow_collective_attr *attr);

/* WORK of its plan: 0 or a negative errno. */
int towi_joint_take_sums(struct towi_joint *joint);

/* The round of the first send that has not completed. */
uint64_t towi_joint_sent(const struct towi_joint *joint);

/* Nobody goes on with what has come, or another thread does: this one has not looked at all of it. */
bool towi_calls_passed(const struct tow_comm *comm);
/* What is asked for begins at once: 0, or -EBUSY (tow_calls_begin()).  Without the lock. */
int towi_calls_begun(struct tow_comm *comm);
/* Something comes, or wakes, when there is something to do: false: there is already. */
bool towi_calls_arm(struct tow_comm *comm);

/* Of a collective's (made.c): the next step is carried out, if it can be now. */
bool towi_made_send(struct towi_joint *joint);
/* What was received is there, and where; NULL: nothing is to be done with it. */
bool towi_made_come(struct towi_joint *joint, char **received);
/* Others are told that it has begun: true: some were now; and whether all were. */
bool towi_made_tell(struct towi_joint *joint);
bool towi_made_told(struct towi_joint *joint);
/* Something comes when there is something to do: false: there is already. */
bool towi_made_arm(struct towi_joint *joint);
/* The communicator has failed: what waits in the kernel ends, soon. */
void towi_made_stop(struct towi_joint *joint);
/* It has ended, well or not. */
void towi_made_end(struct towi_joint *joint);

/* The open one of that number, or NULL. */
struct towi_joint *towi_call_of(const struct tow_comm *comm, uint64_t number);

/* It ends so, as soon as nobody reads or writes its arrays. */
void towi_call_fail(struct towi_joint *joint, int status, uint32_t blamed);

/* How many have ended, before the first that has not. */
uint64_t towi_calls_ended(const struct tow_comm *comm);

/* ---- plan.c: how a call is done ---- */

/* What a rank would go by. */
struct towi_choices towi_choices_of(const struct tow_comm_attr *attr);
/* Can they be gone by?  They came from another rank. */
bool towi_choices_good(const struct towi_choices *choices);

/* In how many pieces what goes to a rank in a step is sent. */
uint32_t towi_plan_pieces(const struct towi_joint *joint);

/* Its type is known: all else that the plan is made of is filled in. */
void towi_plan_call(struct towi_joint *joint, const struct tow_collective_attr *attr);
/* How it was done. */
void towi_plan_tell(const struct tow_work *work, struct tow_work_info *info);

/* ---- letter.c: from one rank to one other ---- */

/* What has come.  False: it makes no sense. */
bool towi_letter_part(struct towi_pair *pair, const struct towi_letter_head *head, const char *data,
		      uint32_t bytes);
bool towi_letter_request(struct towi_pair *pair, const struct towi_letter_head *head);
bool towi_letter_taken(struct towi_pair *pair, uint64_t taken);
bool towi_letter_wanted(struct towi_pair *pair, uint64_t number);
bool towi_letter_refused(struct towi_pair *pair, uint64_t number);

/* What can be done now: true: something was. */
bool towi_letters_go_on(struct tow_comm *comm);
bool towi_letters_end(struct tow_comm *comm);
/* What was freed, and nobody has sent. */
void towi_letters_withdraw(struct tow_comm *comm);
void towi_letters_free(struct tow_comm *comm);

/* ---- quarrel.c: ranks that make different calls ---- */

/* Is what @rank says of a call what this rank does?  If not, rank 0 is asked. */
void towi_quarrel_check(struct tow_comm *comm, uint64_t call, uint64_t mark, uint32_t rank);

/* One that waits says what it does. */
void towi_quarrel_hear_mark(struct tow_comm *comm, const struct towi_mark *mark, uint32_t rank);

/* Rank 0 is told that two ranks differ; all others what it says. */
void towi_quarrel_hear(struct tow_comm *comm, const struct towi_dispute *dispute);
void towi_quarrel_end(struct tow_comm *comm, const struct towi_verdict *verdict);

/* A call has begun, of which others may have said something. */
void towi_quarrel_begun(struct towi_joint *joint);
/* Ranks that are as they should be do not say so much before it is due. */
bool towi_quarrels_full(const struct tow_comm *comm);
void towi_quarrels_free(struct tow_comm *comm);

#endif /* TOW_CALLS_H */

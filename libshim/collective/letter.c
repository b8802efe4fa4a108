// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Letters: what one rank sends to one other, which takes it by a tag.
 *
 * Letters of a pair have numbers, and are said in their order: small ones whole, in records, as long
 * as the other end has not more of them than it has memory for; others by their number and size.
 * Those come when they are wanted: small ones in records, too, and large ones by credits, of a track
 * and a pool of their own.  So whatever is sent and not received holds up nothing but its own work.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

/* Small ones that a rank keeps of each other one, in bytes, each counted with a record. */
#define KEPT_BYTES	(64U << 10)
/* That have been told of and were not wanted so far. */
#define SAID_MAX	4096U

/* What has come, and nobody has wanted so far. */
struct came {
	TAILQ_ENTRY(came) next;
	struct towi_pair *pair;		/* NULL: from this rank */
	struct towi_letter *own;	/* that */
	struct towi_letter_head head;	/* .at: how much of it there is */
	bool said;			/* it comes when it is wanted */
	char data[];
};

static uint64_t weight_of(uint64_t bytes)
{
	return bytes + TOWI_UNIT;
}

/* ---- ends ---------------------------------------------------------------------------- */

static void leave(struct towi_letter *letter)
{
	if (letter->in)
		TAILQ_REMOVE(letter->in, letter, next);
	letter->in = NULL;
}

static void put_in(struct towi_letter *letter, struct towi_letters *list)
{
	leave(letter);
	letter->in = list;
	TAILQ_INSERT_TAIL(list, letter, next);
}

/* It has, or will have when nothing of it is on its way. */
static void end(struct towi_letter *letter, int status)
{
	if (status && !letter->work.status) {
		letter->work.status = status;
		letter->work.blamed = letter->rank;
	}
	put_in(letter, &letter->work.comm->calls->ending);
}

static bool end_some(struct towi_calls *calls)
{
	struct towi_letter *letter, *next;
	bool any = false;

	TAILQ_FOREACH_SAFE(letter, &calls->ending, next, next) {
		if (!STAILQ_EMPTY(&letter->work.open))
			continue;
		leave(letter);
		any = true;
		towi_work_end(&letter->work);
	}
	return any;
}

static void fail_list(struct towi_letters *list, int error, uint32_t blamed)
{
	struct towi_letter *letter;

	while ((letter = TAILQ_FIRST(list))) {
		end(letter, error);
		letter->work.blamed = blamed;
	}
}

static void fail_all(struct tow_comm *comm)
{
	struct towi_calls *calls = comm->calls;
	struct towi_pair *pair;

	fail_list(&calls->wanted, comm->error, comm->blamed);
	fail_list(&calls->to_self, comm->error, comm->blamed);
	TAILQ_FOREACH(pair, &calls->pairs, next) {
		fail_list(&pair->post.to_say, comm->error, comm->blamed);
		fail_list(&pair->post.put, comm->error, comm->blamed);
		fail_list(&pair->post.said, comm->error, comm->blamed);
		fail_list(&pair->post.called, comm->error, comm->blamed);
		fail_list(&pair->post.coming, comm->error, comm->blamed);
	}
}

static bool is_small(const struct towi_letter *letter)
{
	return letter->bytes <= letter->work.comm->calls->eager_bytes;
}

/* ---- matching ------------------------------------------------------------------------- */

static bool is_for(const struct towi_letter *wanted, uint32_t from, uint32_t tag)
{
	return (wanted->rank == TOW_ANY_RANK || wanted->rank == from) &&
	       (wanted->tag == TOW_ANY_TAG || wanted->tag == tag);
}

static uint32_t sender_of(const struct tow_comm *comm, const struct came *came)
{
	return came->pair ? came->pair->rank : comm->rank;
}

static bool is_whole(const struct came *came)
{
	return came->said || came->own || came->head.at == came->head.bytes;
}

/* The other end has memory for as much more. */
static void tell_taken(struct towi_pair *pair, uint64_t bytes)
{
	struct towi_post *post = &pair->post;

	post->taken += weight_of(bytes);
	if (post->taken - post->told_taken < KEPT_BYTES / 4)
		return;
	post->told_taken = post->taken;
	towi_pair_tell(pair, TOWI_TAG_TAKEN, UINT64_MAX, &post->taken, sizeof(post->taken));
}

static void take_own(struct towi_letter *letter, struct towi_letter *own, bool fits)
{
	if (fits && own->bytes)
		memmove(letter->array.at, own->array.at, own->bytes);
	end(own, fits ? 0 : -EMSGSIZE);
	end(letter, fits ? 0 : -EMSGSIZE);
}

static void take_small(struct towi_letter *letter, const struct came *came, bool fits)
{
	if (fits && came->head.bytes)
		memcpy(letter->array.at, came->data, came->head.bytes);
	tell_taken(came->pair, came->head.bytes);
	end(letter, fits ? 0 : -EMSGSIZE);
}

static void take_said(struct towi_letter *letter, const struct came *came, bool fits)
{
	came->pair->post.kept_count--;
	letter->number = came->head.number;
	if (fits) {
		put_in(letter, &came->pair->post.coming);
		if (is_small(letter))
			towi_pair_tell(came->pair, TOWI_TAG_WANTED, UINT64_MAX, &letter->number,
				       sizeof(letter->number));
		return;
	}
	towi_pair_tell(came->pair, TOWI_TAG_REFUSED, UINT64_MAX, &letter->number,
		       sizeof(letter->number));
	end(letter, -EMSGSIZE);
}

static void take(struct towi_letter *letter, struct came *came)
{
	struct tow_comm *comm = letter->work.comm;
	bool fits = came->head.bytes <= letter->bytes;

	letter->rank = sender_of(comm, came);
	letter->pair = came->pair;
	letter->tag = came->head.tag;
	letter->bytes = came->head.bytes;
	TAILQ_REMOVE(&comm->calls->came, came, next);
	if (came->own)
		take_own(letter, came->own, fits);
	else if (came->said)
		take_said(letter, came, fits);
	else
		take_small(letter, came, fits);
	free(came);
}

/* Something has come: the first who wants it has it. */
static void match_came(struct tow_comm *comm, struct came *came)
{
	struct towi_letter *wanted;

	TAILQ_FOREACH(wanted, &comm->calls->wanted, next) {
		if (is_for(wanted, sender_of(comm, came), came->head.tag)) {
			take(wanted, came);
			return;
		}
	}
}

/* Somebody wants something: he has the first that there is. */
static void match_wanted(struct towi_letter *wanted)
{
	struct tow_comm *comm = wanted->work.comm;
	struct came *came;

	TAILQ_FOREACH(came, &comm->calls->came, next) {
		if (is_whole(came) && is_for(wanted, sender_of(comm, came), came->head.tag)) {
			take(wanted, came);
			return;
		}
	}
}

/* ---- what comes ------------------------------------------------------------------------ */

static struct came *new_came(struct tow_comm *comm, struct towi_pair *pair,
			     const struct towi_letter_head *head, uint64_t bytes)
{
	struct came *came = malloc(sizeof(*came) + bytes);

	if (!came) {
		towi_comm_fail(comm, -ENOMEM, comm->rank);
		return NULL;
	}
	*came = (struct came){ .pair = pair, .head = *head };
	TAILQ_INSERT_TAIL(&comm->calls->came, came, next);
	return came;
}

/* The last one of that pair, if a part of it is missing. */
static struct came *unfinished(struct towi_pair *pair)
{
	struct came *came;

	TAILQ_FOREACH_REVERSE(came, &pair->comm->calls->came, towi_came, next)
		if (came->pair == pair)
			return is_whole(came) ? NULL : came;
	return NULL;
}

/* Letters are said in their order, each once. */
static bool is_next(struct towi_post *post, const struct towi_letter_head *head)
{
	return head->number == post->heard_count++;
}

static bool may_come(const struct towi_pair *pair, const struct towi_letter_head *head)
{
	const struct towi_post *post = &pair->post;

	return head->bytes <= pair->comm->calls->eager_bytes &&
	       post->heard + weight_of(head->bytes) - post->told_taken <= KEPT_BYTES;
}

static struct towi_letter *letter_of(struct towi_letters *list, uint64_t number)
{
	struct towi_letter *letter;

	TAILQ_FOREACH(letter, list, next)
		if (letter->number == number)
			return letter;
	return NULL;
}

/* A part of one that was said to be wanted: false: it makes no sense. */
static bool take_part(struct towi_letter *letter, const struct towi_letter_head *head,
		      const char *data, uint32_t bytes)
{
	if (!is_small(letter) || head->at != letter->done || bytes > letter->bytes - letter->done)
		return false;
	/* One of no bytes may be nowhere. */
	if (bytes)
		memcpy(letter->array.at + letter->done, data, bytes);
	letter->done += bytes;
	if (letter->done == letter->bytes)
		end(letter, 0);
	return true;
}

bool towi_letter_part(struct towi_pair *pair, const struct towi_letter_head *head, const char *data,
		      uint32_t bytes)
{
	struct towi_letter *letter = letter_of(&pair->post.coming, head->number);
	struct came *came = unfinished(pair);

	if (letter)
		return take_part(letter, head, data, bytes);
	if (!head->at) {
		if (came || !is_next(&pair->post, head) || !may_come(pair, head))
			return false;
		pair->post.heard += weight_of(head->bytes);
		came = new_came(pair->comm, pair, head, head->bytes);
		if (!came)
			return true;
	}
	if (!came || came->head.number != head->number || came->head.at != head->at ||
	    bytes > came->head.bytes - head->at)
		return false;
	memcpy(came->data + head->at, data, bytes);
	came->head.at += bytes;
	if (is_whole(came))
		match_came(pair->comm, came);
	return true;
}

bool towi_letter_request(struct towi_pair *pair, const struct towi_letter_head *head)
{
	struct came *came;

	if (unfinished(pair) || !is_next(&pair->post, head) || pair->post.kept_count == SAID_MAX)
		return false;
	came = new_came(pair->comm, pair, head, 0);
	if (!came)
		return true;
	came->said = true;
	pair->post.kept_count++;
	match_came(pair->comm, came);
	return true;
}

bool towi_letter_taken(struct towi_pair *pair, uint64_t taken)
{
	struct towi_post *post = &pair->post;

	if (taken < post->theirs_taken || taken > post->sent)
		return false;
	post->theirs_taken = taken;
	return true;
}

bool towi_letter_wanted(struct towi_pair *pair, uint64_t number)
{
	struct towi_letter *letter = letter_of(&pair->post.said, number);

	if (!letter || !is_small(letter))
		return false;
	pair->post.said_count--;
	put_in(letter, &pair->post.called);
	return true;
}

bool towi_letter_refused(struct towi_pair *pair, uint64_t number)
{
	struct towi_letter *letter = letter_of(&pair->post.said, number);

	if (!letter || letter->done)
		return false;
	pair->post.said_count--;
	end(letter, -EMSGSIZE);
	return true;
}

/* ---- saying ---------------------------------------------------------------------------- */

static struct towi_letter_head head_of(const struct towi_letter *letter)
{
	return (struct towi_letter_head){
		.number = letter->number,
		.bytes = letter->bytes,
		.tag = letter->tag,
	};
}

static bool send(struct towi_pair *pair, struct towi_letter *letter)
{
	const struct towi_letter_head head = head_of(letter);

	if (!towi_pair_send_letter(pair, &head, letter->array.at))
		return false;
	pair->comm->calls->stats.sent_bytes += letter->bytes;
	pair->comm->calls->stats.eager_bytes += letter->bytes;
	put_in(letter, &pair->post.put);
	return true;
}

/* Has the other end no memory for it? */
static bool is_full(const struct towi_post *post, const struct towi_letter *letter)
{
	return post->sent + weight_of(letter->bytes) - post->theirs_taken > KEPT_BYTES;
}

static bool send_unasked(struct towi_pair *pair, struct towi_letter *letter)
{
	struct towi_post *post = &pair->post;

	if (!is_small(letter) || is_full(post, letter) || !send(pair, letter))
		return false;
	post->sent += weight_of(letter->bytes);
	return true;
}

static bool say(struct towi_pair *pair, struct towi_letter *letter)
{
	const struct towi_letter_head head = head_of(letter);

	/* For a small one there will be memory, or room in the wire. */
	if (pair->post.said_count == SAID_MAX || (is_small(letter) && !is_full(&pair->post, letter)))
		return false;
	towi_pair_tell(pair, TOWI_TAG_REQUEST, UINT64_MAX, &head, sizeof(head));
	pair->post.said_count++;
	put_in(letter, &pair->post.said);
	return true;
}

static bool say_some(struct towi_pair *pair)
{
	struct towi_letter *letter;
	bool any = false;

	while ((letter = TAILQ_FIRST(&pair->post.called)) && send(pair, letter))
		any = true;
	while ((letter = TAILQ_FIRST(&pair->post.to_say)) && !pair->comm->error) {
		/* Until now it could be withdrawn; and numbers are said without gaps. */
		letter->number = pair->post.told_count;
		if (!send_unasked(pair, letter) && !say(pair, letter))
			break;
		pair->post.told_count++;
		any = true;
	}
	return any;
}

/* ---- what is large ----------------------------------------------------------------------- */

static bool answer_some(struct towi_pair *pair)
{
	struct towi_track *track = &pair->tracks[TOWI_OF_LETTERS];
	const struct towi_credit *credit;
	struct towi_answer answer;
	struct towi_letter *letter;
	bool any = false;

	while ((credit = towi_track_credit(track)) && !pair->comm->error) {
		letter = letter_of(&pair->post.said, credit->call);
		if (!letter || is_small(letter) || credit->bytes > letter->bytes - letter->done) {
			towi_comm_fail(pair->comm, -EPROTO, pair->rank);
			break;
		}
		answer = (struct towi_answer){
			.array = &letter->array, .offset = letter->done, .work = &letter->work,
		};
		letter->done += credit->bytes;
		if (!towi_track_answer(track, &answer)) {
			letter->done -= credit->bytes;
			break;
		}
		any = true;
		if (letter->done == letter->bytes) {
			pair->post.said_count--;
			end(letter, 0);
		}
	}
	return any;
}

static bool grant(struct towi_pair *pair, struct towi_letter *letter)
{
	struct towi_track *track = &pair->tracks[TOWI_OF_LETTERS];
	struct towi_slots *pool = &pair->comm->calls->pools[TOWI_OF_LETTERS];
	uint64_t left = letter->bytes - letter->granted;
	struct towi_credit credit = {
		.call = letter->number,
		.bytes = left < TOWI_SLOT_BYTES ? left : TOWI_SLOT_BYTES,
		.place = letter->place,
	};
	int slot = -1;

	if (!left || is_small(letter) || !towi_track_has_room(track))
		return false;
	if (letter->place.edge) {
		credit.place.offset += letter->granted;
	} else {
		slot = towi_slots_take(pool);
		if (slot < 0)
			return false;
		credit.place = pool->place;
		credit.place.offset += (uint64_t)slot * TOWI_SLOT_BYTES;
	}
	letter->granted += credit.bytes;
	return towi_track_grant(track, &credit, slot);
}

static bool grant_some(struct towi_pair *pair)
{
	struct towi_letter *letter;
	bool any = false;

	TAILQ_FOREACH(letter, &pair->post.coming, next) {
		while (!pair->comm->error && grant(pair, letter))
			any = true;
		if (letter->granted < letter->bytes && !is_small(letter))
			break;
	}
	return any;
}

/* In their order. */
static void land(struct towi_pair *pair, uint64_t number)
{
	struct towi_track *track = &pair->tracks[TOWI_OF_LETTERS];
	const struct towi_grant *grant = towi_grant_at(track, number);
	struct towi_letter *letter = letter_of(&pair->post.coming, grant->call);
	struct towi_calls *calls = pair->comm->calls;

	if (grant->slot >= 0) {
		memcpy(letter->array.at + letter->done,
		       towi_slot_at(&calls->pools[TOWI_OF_LETTERS], grant->slot), grant->bytes);
		calls->stats.copied_bytes += grant->bytes;
	}
	letter->done += grant->bytes;
	towi_grant_end(track, number);
	if (letter->done == letter->bytes)
		end(letter, 0);
}

static bool land_some(struct towi_pair *pair)
{
	struct towi_track *track = &pair->tracks[TOWI_OF_LETTERS];
	bool any = false;

	while (track->grants_done != track->grants_given &&
	       towi_grant_landed(track, track->grants_done)) {
		land(pair, track->grants_done);
		any = true;
	}
	return any;
}

/* ---- going on ------------------------------------------------------------------------------ */

bool towi_letters_go_on(struct tow_comm *comm)
{
	struct towi_pair *pair;
	bool any = false;

	TAILQ_FOREACH(pair, &comm->calls->pairs, next) {
		if (comm->error)
			break;
		any |= land_some(pair);
		if (pair->over)
			continue;
		any |= grant_some(pair);
		any |= say_some(pair);
		any |= answer_some(pair);
	}
	return any;
}

/* Who has left takes nothing; all that it has told of had come before, seen or not so far. */
static void end_of_over(struct towi_pair *pair)
{
	fail_list(&pair->post.to_say, -ESTALE, pair->rank);
	fail_list(&pair->post.said, -ESTALE, pair->rank);
	fail_list(&pair->post.called, -ESTALE, pair->rank);
}

bool towi_letters_end(struct tow_comm *comm)
{
	struct towi_calls *calls = comm->calls;
	struct towi_pair *pair;

	if (comm->error)
		fail_all(comm);
	TAILQ_FOREACH(pair, &calls->pairs, next) {
		if (pair->over)
			end_of_over(pair);
		/* It is the kernel's to carry them. */
		if (pair->over || towi_wire_written(&pair->wire))
			fail_list(&pair->post.put, 0, TOW_NO_RANK);
	}
	return end_some(calls);
}

void towi_letters_free(struct tow_comm *comm)
{
	struct came *came;

	while ((came = TAILQ_FIRST(&comm->calls->came))) {
		TAILQ_REMOVE(&comm->calls->came, came, next);
		free(came);
	}
}

/* ---- as works -------------------------------------------------------------------------------- */

static struct towi_letter *letter_of_work(struct tow_work *work)
{
	return (struct towi_letter *)work;
}

static uint32_t waits_for(const struct tow_work *work)
{
	const struct towi_letter *letter = (const struct towi_letter *)work;

	return letter->rank == TOW_ANY_RANK || letter->rank == work->comm->rank ? TOW_NO_RANK :
										  letter->rank;
}

/* It was not begun to be carried; or nobody has taken it (@letter is this rank's to itself). */
static bool withdraw(struct towi_letter *letter, int error)
{
	struct towi_calls *calls = letter->work.comm->calls;
	struct came *came;

	if (letter->in == &calls->to_self) {
		TAILQ_FOREACH(came, &calls->came, next)
			if (came->own == letter)
				break;
		TAILQ_REMOVE(&calls->came, came, next);
		free(came);
	} else if (letter->in != &calls->wanted &&
		   !(letter->pair && letter->in == &letter->pair->post.to_say)) {
		return false;
	}
	end(letter, error);
	return true;
}

void towi_letters_withdraw(struct tow_comm *comm)
{
	struct towi_letter *letter, *next;

	TAILQ_FOREACH_SAFE(letter, &comm->calls->wanted, next, next)
		if (letter->work.freed)
			withdraw(letter, -ECANCELED);
}

static void late(struct tow_work *work)
{
	struct towi_letter *letter = letter_of_work(work);

	/* Another thread ends it, and needs the lock for that. */
	if (letter->in == &work->comm->calls->ending)
		return;
	if (!withdraw(letter, -ETIMEDOUT))
		towi_comm_fail(work->comm, -ETIMEDOUT, letter->rank);
	towi_pump_ready(&work->comm->calls->runner);
}

static void gone(struct tow_work *work, uint32_t rank)
{
	struct towi_letter *letter = letter_of_work(work);

	if (letter->pair && letter->pair->rank == rank)
		letter->pair->over = true;
	withdraw(letter, -ESTALE);
	towi_pump_ready(&work->comm->calls->runner);
}

static void tell(const struct tow_work *work, struct tow_work_info *info)
{
	const struct towi_letter *letter = (const struct towi_letter *)work;

	info->rank = letter->rank;
	info->tag = letter->tag;
	info->bytes = letter->bytes;
}

static const struct towi_work_ops ops = {
	.waits_for = waits_for,
	.gone = gone,
	.late = late,
	.tell = tell,
};

/* ---- as programs ask for them ------------------------------------------------------------- */

struct asked {
	struct tow_comm *comm;
	void *data;
	uint64_t count;
	struct tow_dtype dtype;
	uint32_t rank, tag;
	bool sends;
};

static int check(const struct asked *asked, const struct tow_call_attr *attr, uint64_t *bytes)
{
	uint64_t bits = (uint64_t)asked->dtype.bits * asked->dtype.lanes;

	if (attr->algorithm || attr->piece_bytes || !bits ||
	    (asked->rank >= asked->comm->ranks && (asked->sends || asked->rank != TOW_ANY_RANK)) ||
	    (asked->sends && asked->tag == TOW_ANY_TAG) || (asked->count && !asked->data))
		return -EINVAL;
	if (bits % 8)
		return -EOPNOTSUPP;
	if (__builtin_mul_overflow(asked->count, bits / 8, bytes) || *bytes > TOWI_BYTES_MAX)
		return -EOVERFLOW;
	return 0;
}

static int take_places(struct towi_letter *letter, bool sends)
{
	struct tow_comm *comm = letter->work.comm;
	struct towi_calls *calls = comm->calls;

	if (is_small(letter) || comm->ranks == 1)
		return 0;
	if (sends)
		return letter->array.region ? 0 : towi_slots_need(comm, &calls->stage, false);
	/* Where others cannot write they write to the pool. */
	if (letter->array.region && towi_window(&calls->windows, letter->array.at, letter->bytes,
						true, &letter->place))
		letter->place = (struct towi_place){ 0 };
	return letter->place.edge ? 0 :
	       towi_slots_need(comm, &calls->pools[TOWI_OF_LETTERS], true);
}

static void begin_send(struct towi_letter *letter)
{
	struct tow_comm *comm = letter->work.comm;
	const struct towi_letter_head head = { .bytes = letter->bytes, .tag = letter->tag };
	struct came *came;

	if (letter->rank != comm->rank) {
		put_in(letter, &letter->pair->post.to_say);
		return;
	}
	put_in(letter, &comm->calls->to_self);
	came = new_came(comm, NULL, &head, 0);
	if (!came)
		return;
	came->own = letter;
	match_came(comm, came);
}

static int begin(struct towi_letter *letter, bool sends, uint32_t timeout_ms)
{
	struct tow_comm *comm = letter->work.comm;
	int ret;

	towi_pump_lock(&comm->pump);
	if (letter->rank != TOW_ANY_RANK && letter->rank != comm->rank)
		letter->pair = towi_pair_of(comm, letter->rank);
	/* What had come is matched no more when it has failed. */
	ret = comm->error;
	if (!ret) {
		letter->work.until_us = timeout_ms ? towi_until(timeout_ms * 1000ULL) : UINT64_MAX;
		towi_work_begin(&letter->work);
		if (sends) {
			begin_send(letter);
		} else {
			put_in(letter, &comm->calls->wanted);
			match_wanted(letter);
		}
	}
	towi_pump_unlock(&comm->pump);
	return ret;
}

static int make(const struct asked *asked, const struct tow_call_attr *attr, struct tow_work **made)
{
	struct tow_comm *comm = asked->comm;
	struct towi_letter *letter;
	uint64_t bytes;
	int ret = check(asked, attr, &bytes);

	if (ret)
		return ret;
	letter = calloc(1, sizeof(*letter));
	if (!letter)
		return -ENOMEM;
	letter->work.comm = comm;
	letter->work.ops = &ops;
	letter->rank = asked->rank;
	letter->tag = asked->tag;
	letter->bytes = bytes;
	ret = towi_take_array(comm, asked->data, bytes, &letter->array);
	if (!ret)
		ret = take_places(letter, asked->sends);
	if (!ret)
		ret = begin(letter, asked->sends, attr->timeout_ms);
	if (ret)
		free(letter);
	else
		*made = &letter->work;
	return ret;
}

static int ask(const struct asked *asked, const struct tow_call_attr *attr, struct tow_work **work)
{
	struct tow_call_attr known;
	struct tow_work *made = NULL;
	int ret;

	if (!asked->comm)
		return -EINVAL;
	ret = towi_take_call_attr(attr, &known);
	if (!ret)
		ret = towi_comm_usable(asked->comm);
	if (!ret && !work)
		ret = towi_calls_begun(asked->comm);
	if (!ret)
		ret = make(asked, &known, &made);
	return ret ? ret : towi_work_give(made, work);
}

TOW_PUBLIC int tow_send(struct tow_comm *comm, const void *data, uint64_t count,
			struct tow_dtype dtype, uint32_t to, uint32_t tag,
			const struct tow_call_attr *attr, struct tow_work **work)
{
	const struct asked asked = {
		.comm = comm,
		/* NOLINTNEXTLINE(performance-no-int-to-ptr): arrays are of one type */
		.data = (void *)(uintptr_t)data,
		.count = count, .dtype = dtype, .rank = to, .tag = tag, .sends = true,
	};

	return ask(&asked, attr, work);
}

TOW_PUBLIC int tow_receive(struct tow_comm *comm, void *data, uint64_t count,
			   struct tow_dtype dtype, uint32_t from, uint32_t tag,
			   const struct tow_call_attr *attr, struct tow_work **work)
{
	const struct asked asked = {
		.comm = comm, .data = data, .count = count, .dtype = dtype, .rank = from,
		.tag = tag,
	};

	return ask(&asked, attr, work);
}

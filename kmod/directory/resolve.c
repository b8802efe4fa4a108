// SPDX-License-Identifier: GPL-2.0
/*
 * Messages about remote ranges, at the resolver's end: requests to the owner of
 * an export, and its answers.  Answers are checked before they are used; a
 * message that the owner must not send ends the association.
 */
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/overflow.h>

#include "assoc.h"
#include "conn/wire.h"
#include "core/core.h"
#include "remote.h"

/*
 * Requests of one association that were sent and not answered, at most.  More
 * than TOW_WAITING_MAX, so that requests that need not wait are answered; less
 * than TOW_ANSWERS_MAX, above which the owner ends the association.
 */
#define TOW_ASKED_MAX		2048

/* ---- RESOLVED ------------------------------------------------------------- */

static int tow_answer_error(u32 status)
{
	switch (status) {
	case TOW_WIRE_NOT_FOUND:
		return -ENOENT;
	case TOW_WIRE_FORBIDDEN:
		return -EACCES;
	case TOW_WIRE_STALE:
		return -ESTALE;
	case TOW_WIRE_TOO_MANY:
		return -ENOSPC;
	case TOW_WIRE_NO_MEMORY:
		return -ENOMEM;
	case TOW_WIRE_TAKEN:
		return -EBUSY;
	default:
		return -EPROTO;
	}
}

static size_t tow_answer_bytes(const struct tow_wire_resolved *body)
{
	return struct_size(body, segments, le32_to_cpu(body->count));
}

/*
 * Is the first answer of a RESOLVED well-formed?  Whether it fits its request is
 * checked later.
 */
static int tow_answer_check(const struct tow_wire_resolved *body, size_t left)
{
	u32 total, first, count;

	if (left < sizeof(*body))
		return -EPROTO;
	total = le32_to_cpu(body->total);
	first = le32_to_cpu(body->first);
	count = le32_to_cpu(body->count);
	if (count > TOW_WIRE_SEGMENTS_MAX || left < tow_answer_bytes(body))
		return -EPROTO;
	if (body->status)
		return le32_to_cpu(body->status) > TOW_WIRE_TAKEN ||
		       body->grant || body->bytes || body->rights || total ||
		       first || count ? -EPROTO : 0;
	if (!body->grant || !count || total > TOW_SEGMENTS_MAX ||
	    first > total || count > total - first ||
	    total > le64_to_cpu(body->bytes))
		return -EPROTO;
	return 0;
}

/* For how many segments is there room, if so many of so many are known? */
static u32 tow_answer_room(u32 have, u32 total)
{
	return have ? min_t(u64, roundup_pow_of_two(have), total) : 0;
}

/*
 * Make room for an answer with a grant.  Caller holds no lock: only answers use
 * the array before the range is VALID, and they are handled one at a time.
 */
static int tow_answer_make_room(struct tow_remote *remote,
				const struct tow_wire_resolved *body)
{
	u32 total = le32_to_cpu(body->total);
	u32 room = tow_answer_room(remote->have + le32_to_cpu(body->count), total);
	struct tow_segment *segments;

	/* tow_answer_next() refuses an answer that is out of order. */
	if (room == tow_answer_room(remote->have, remote->total) ||
	    le32_to_cpu(body->first) != remote->have)
		return 0;
	segments = kvmalloc_array(room, sizeof(*segments), GFP_KERNEL);
	if (!segments)
		return -ENOMEM;
	if (remote->have)
		memcpy(segments, remote->segments,
		       remote->have * sizeof(*segments));
	kvfree(remote->segments);
	remote->segments = segments;
	return 0;
}

/* Add a segment; the array has room for it. */
static int tow_answer_add(struct tow_remote *remote,
			  const struct tow_wire_segment *from)
{
	struct tow_segment *segment = &remote->segments[remote->have];
	u32 bytes = le32_to_cpu(from->bytes);
	u64 end;

	segment->address = le64_to_cpu(from->address);
	segment->key = le32_to_cpu(from->key);
	segment->offset = remote->known;
	/* The segment's last byte may be the last of the address space. */
	if (!bytes || bytes > remote->bytes - remote->known ||
	    check_add_overflow(segment->address, (u64)bytes - 1, &end))
		return -EPROTO;
	remote->known += bytes;
	remote->have++;
	return 0;
}

/* Does the answer describe a slot, if the request was for a slot? */
static bool tow_answer_is_slot(const struct tow_remote *remote)
{
	if (!tow_remote_is_slot(remote))
		return true;
	return remote->total == 1 && remote->bytes == sizeof(u64) &&
	       remote->segments[0].key < TOW_SLOTS_MAX;
}

/* Add an answer's segments; then request more, or make the range VALID. */
static int tow_answer_add_all(struct tow_remote *remote,
			      const struct tow_wire_resolved *body)
{
	u32 count = le32_to_cpu(body->count);
	u32 i;
	int ret = 0;

	for (i = 0; i < count && !ret; i++)
		ret = tow_answer_add(remote, &body->segments[i]);
	if (ret)
		return ret;
	if (remote->have < remote->total) {
		tow_remote_ask(remote);
		tow_assoc_kick(remote->assoc);
		return 0;
	}
	if (remote->known != remote->bytes || !tow_answer_is_slot(remote))
		return -EPROTO;
	tow_remote_make_valid(remote);
	return 0;
}

static int tow_answer_first(struct tow_remote *remote,
			    const struct tow_wire_resolved *body)
{
	int ret;

	if (body->first || le32_to_cpu(body->rights) != remote->rights)
		return -EPROTO;
	ret = tow_remote_granted(remote, le64_to_cpu(body->grant));
	if (ret)
		return ret;
	remote->bytes = le64_to_cpu(body->bytes);
	remote->total = le32_to_cpu(body->total);
	return 0;
}

static int tow_answer_next(struct tow_remote *remote,
			   const struct tow_wire_resolved *body)
{
	return le64_to_cpu(body->grant) != remote->grant ||
	       le64_to_cpu(body->bytes) != remote->bytes ||
	       le32_to_cpu(body->total) != remote->total ||
	       le32_to_cpu(body->rights) != remote->rights ||
	       le32_to_cpu(body->first) != remote->have ? -EPROTO : 0;
}

/* Handle an answer with a grant.  @error: there is no room for its segments. */
static int tow_answer_granted(struct tow_remote *remote,
			      const struct tow_wire_resolved *body, int error)
{
	int ret;

	if (remote->have)
		ret = tow_answer_next(remote, body);
	else
		ret = tow_answer_first(remote, body);
	if (!ret)
		ret = error ?: tow_answer_add_all(remote, body);
	return ret;
}

static int tow_answer_refused(struct tow_remote *remote, u32 status)
{
	/* A request that waits for the name is never answered so. */
	if (remote->wait && !remote->have && status == TOW_WIRE_NOT_FOUND)
		return -EPROTO;
	/* Only slots are not shared. */
	if (status == TOW_WIRE_TAKEN && !tow_remote_is_slot(remote))
		return -EPROTO;
	return tow_answer_error(status);
}

/*
 * No call waits for the answer any more.  If the answer has a grant it is
 * released; but if segments were known the grant was, and is ending already.
 */
static int tow_answer_unwanted(struct tow_remote *remote,
			       const struct tow_wire_resolved *body)
{
	int ret;

	if (body->status || remote->have)
		return 0;
	ret = tow_remote_granted(remote, le64_to_cpu(body->grant));
	if (!ret)
		tow_remote_end(remote, true);
	return ret;
}

/* Caller holds tow_assoc_dir.lock, and has a reference. */
static int tow_answer_take(struct tow_remote *remote,
			   const struct tow_wire_resolved *body, int error)
{
	u32 status = le32_to_cpu(body->status);
	int ret;

	/* It may be in tow_assoc_dir.cancels: too late. */
	if (remote->state == TOW_REMOTE_ENDED)
		list_del_init(&remote->link);
	if (remote->state != TOW_REMOTE_ASKING)
		return tow_answer_unwanted(remote, body);
	ret = status ? tow_answer_refused(remote, status) :
		       tow_answer_granted(remote, body, error);
	if (ret)
		tow_remote_refuse(remote, ret);
	/* Other errors concern only this request. */
	return ret == -EPROTO ? ret : 0;
}

/*
 * Caller holds tow_assoc_dir.lock.  Return: the remote range whose request has
 * the number, with a reference; NULL: no such request was sent.
 */
static struct tow_remote *tow_answer_find(struct tow_assoc *assoc,
					  u32 number)
{
	struct tow_remote *remote = xa_load(&assoc->dir.requests, number);

	if (!remote)
		return NULL;
	/* The request is still in tow_assoc_dir.asks. */
	if (remote->state == TOW_REMOTE_ASKING && !list_empty(&remote->link))
		return NULL;
	tow_remote_get(remote);
	return remote;
}

static int tow_receive_answer(struct tow_assoc *assoc,
			      const struct tow_wire_resolved *body)
{
	struct tow_assoc_dir *sdir = &assoc->dir;
	struct tow_remote *remote;
	int ret, error = 0;

	mutex_lock(&sdir->lock);
	remote = tow_answer_find(assoc, le32_to_cpu(body->request));
	ret = sdir->lost ? -ECONNRESET : -EPROTO;
	mutex_unlock(&sdir->lock);
	if (!remote)
		return ret;
	ret = 0;
	if (body->grant)
		error = tow_answer_make_room(remote, body);
	mutex_lock(&sdir->lock);
	/* Unless the association was lost meanwhile. */
	if (remote->number) {
		ret = tow_answer_take(remote, body, error);
		tow_remote_asked(remote);
	}
	mutex_unlock(&sdir->lock);
	tow_remote_put(remote);
	return ret;
}

/*
 * Check all answers of a message, and reserve their grants: nothing would release
 * a grant that cannot be recorded.  @end: where to: up to where that is done, also
 * after an error.
 */
static int tow_answers_reserve(struct tow_assoc *assoc, const u8 *body,
			       size_t bytes, size_t *end)
{
	const struct tow_wire_resolved *answer;
	u64 grant;
	int ret;

	for (*end = 0; *end < bytes; *end += tow_answer_bytes(answer)) {
		answer = (const void *)(body + *end);
		ret = tow_answer_check(answer, bytes - *end);
		if (ret)
			return ret;
		grant = le64_to_cpu(answer->grant);
		ret = grant ? xa_reserve(&assoc->dir.remotes, grant, GFP_KERNEL) :
			      0;
		if (ret)
			return ret;
	}
	return 0;
}

/*
 * If there is no memory for one of its grants none of its answers is used, and the
 * session ends.  The next one's SYNC does not know these grants, so the owner ends
 * them, and their names are asked for again.
 */
static int tow_receive_resolved(struct tow_assoc *assoc, const u8 *body,
				size_t bytes)
{
	const struct tow_wire_resolved *answer;
	size_t at, end;
	int ret;

	ret = tow_answers_reserve(assoc, body, bytes, &end);
	for (at = 0; at < end && !ret; at += tow_answer_bytes(answer)) {
		answer = (const void *)(body + at);
		ret = tow_receive_answer(assoc, answer);
	}
	/* Unless they are recorded. */
	for (at = 0; at < end; at += tow_answer_bytes(answer)) {
		answer = (const void *)(body + at);
		xa_release(&assoc->dir.remotes, le64_to_cpu(answer->grant));
	}
	return ret;
}

/* ---- REVOKE --------------------------------------------------------------- */

/*
 * Caller holds tow_assoc_dir.lock.  A grant that is not found was released, or its
 * answer got lost; one that is ENDING will be acknowledged or released.
 */
static void tow_revoke_one(struct tow_assoc *assoc, u64 grant)
{
	struct tow_remote *remote = xa_load(&assoc->dir.remotes, grant);
	enum tow_remote_state state;

	if (!remote)
		return;
	state = remote->state;
	if (state != TOW_REMOTE_ASKING && state != TOW_REMOTE_VALID)
		return;
	tow_remote_get(remote);
	tow_remote_end(remote, false);
	if (state == TOW_REMOTE_ASKING)
		tow_remote_wake(remote, -ESTALE);
	tow_remote_put(remote);
}

static int tow_receive_revoke(struct tow_assoc *assoc,
			      const struct tow_wire_grants *body, size_t bytes)
{
	u32 i, count = tow_wire_grants_count(body, bytes);

	if (!count)
		return -EPROTO;
	tow_assoc_note(assoc, "revoke: received",
		       le64_to_cpu(body->grants[0]), 0);
	mutex_lock(&assoc->dir.lock);
	for (i = 0; i < count; i++)
		tow_revoke_one(assoc, le64_to_cpu(body->grants[i]));
	mutex_unlock(&assoc->dir.lock);
	return 0;
}

/**
 * tow_answer_receive - handle a message of an owner
 * @assoc: the association
 * @type: TOW_WIRE_RESOLVED or TOW_WIRE_REVOKE
 * @number: from the header
 * @body: the message but its header
 * @bytes: size of @body
 *
 * Return: 0; -EPROTO: the owner must not send such a message; -ENOMEM;
 * -ECONNRESET: the association is lost.
 */
int tow_answer_receive(struct tow_assoc *assoc, u8 type, u32 number,
		       void *body, size_t bytes)
{
	if (type == TOW_WIRE_RESOLVED)
		return number ? -EPROTO :
				tow_receive_resolved(assoc, body, bytes);
	return tow_receive_revoke(assoc, body, bytes);
}

/* ---- messages to owners -------------------------------------------------- */

/* Forget the grants that the owner knows to have ended. */
static void tow_answer_forget(struct tow_session *session)
{
	struct list_head *released = &session->assoc->dir.released;
	struct tow_remote *remote;

	while ((remote = list_first_entry_or_null(released, struct tow_remote, link)) &&
	       tow_session_handled(session, remote->mark))
		tow_remote_forget(remote);
}

/* REVOKED or RELEASE. */
static size_t tow_fill_grants(struct tow_session *session,
			      struct list_head *list,
			      struct tow_wire_grants *body)
{
	struct tow_remote *remote, *next;
	u32 count = 0;

	list_for_each_entry_safe(remote, next, list, link) {
		if (count == TOW_WIRE_GRANTS_MAX)
			break;
		body->grants[count++] = cpu_to_le64(remote->grant);
		remote->mark = tow_session_mark(session);
		list_move_tail(&remote->link, &session->assoc->dir.released);
	}
	body->count = cpu_to_le32(count);
	body->reserved = 0;
	return struct_size(body, grants, count);
}

/* Fill in a request for a name, if it fits.  Return: its size; or 0. */
static size_t tow_fill_resolve(struct tow_remote *remote,
			       struct tow_wire_resolve *body, size_t room)
{
	const struct tow_label *label = &remote->label;
	size_t bytes = tow_wire_resolve_bytes(label->bytes);

	if (bytes > room)
		return 0;
	memset(body, 0, bytes);
	memcpy(body->job_id, label->job_id, sizeof(body->job_id));
	body->uid = cpu_to_le32(label->uid);
	body->rights = cpu_to_le32(remote->rights);
	body->wait = remote->wait;
	body->name_bytes = label->bytes;
	body->request = cpu_to_le32(remote->number);
	memcpy(body->name, label->name, label->bytes);
	return bytes;
}

/* Whose request is sent next: tenants have it in turns.  NULL: no more may be sent. */
static struct tow_remote *tow_ask_next(struct tow_assoc_dir *sdir)
{
	unsigned int i;

	if (sdir->asked >= TOW_ASKED_MAX)
		return NULL;
	for (i = 0; i < TOW_TENANTS; i++) {
		if (!list_empty(&sdir->asks[sdir->turn]))
			return list_first_entry(&sdir->asks[sdir->turn],
						struct tow_remote, link);
		sdir->turn = (sdir->turn + 1) % TOW_TENANTS;
	}
	return NULL;
}

/* The request of tow_ask_next() is in a message. */
static void tow_ask_sent(struct tow_assoc_dir *sdir, struct tow_remote *remote)
{
	list_del_init(&remote->link);
	sdir->asked++;
	sdir->turn = (sdir->turn + 1) % TOW_TENANTS;
}

/* As many requests for names as fit, in their order. */
static size_t tow_fill_resolves(struct tow_assoc *assoc, u8 *body)
{
	struct tow_assoc_dir *sdir = &assoc->dir;
	struct tow_remote *remote;
	size_t bytes, at = 0;

	while ((remote = tow_ask_next(sdir)) && !remote->have) {
		bytes = tow_fill_resolve(remote, (void *)(body + at),
					 TOW_WIRE_BODY_BYTES - at);
		if (!bytes)
			break;
		at += bytes;
		tow_ask_sent(sdir, remote);
	}
	return at;
}

static size_t tow_fill_more(struct tow_remote *remote,
			    struct tow_wire_resolve_more *body)
{
	body->grant = cpu_to_le64(remote->grant);
	body->first = cpu_to_le32(remote->have);
	body->reserved = 0;
	return sizeof(*body);
}

static size_t tow_fill_ask(struct tow_assoc *assoc, struct tow_remote *remote,
			   u8 *type, u32 *number, void *body)
{
	if (!remote->have) {
		*type = TOW_WIRE_RESOLVE;
		return tow_fill_resolves(assoc, body);
	}
	tow_ask_sent(&assoc->dir, remote);
	*number = remote->number;
	*type = TOW_WIRE_RESOLVE_MORE;
	return tow_fill_more(remote, body);
}

/* CANCEL: as many as fit. */
static size_t tow_fill_cancels(struct tow_assoc *assoc, __le32 *numbers)
{
	struct tow_remote *remote, *next;
	u32 count = 0;

	list_for_each_entry_safe(remote, next, &assoc->dir.cancels, link) {
		if (count == TOW_WIRE_CANCELS_MAX)
			break;
		list_del_init(&remote->link);
		numbers[count++] = cpu_to_le32(remote->number);
	}
	return count * sizeof(*numbers);
}

/**
 * tow_answer_fill - fill in the next message to an owner
 * @session: the session that sends; caller holds its @pump, and
 *	tow_assoc_dir.lock
 * @type: where to: enum tow_wire_type; unchanged: there is no message
 * @number: where to: for the header
 * @body: where to, TOW_WIRE_BODY_BYTES
 *
 * Return: size of @body.
 */
size_t tow_answer_fill(struct tow_session *session, u8 *type, u32 *number,
		       void *body)
{
	struct tow_assoc_dir *sdir = &session->assoc->dir;
	struct tow_remote *next;

	tow_answer_forget(session);
	if (!list_empty(&sdir->acks)) {
		*type = TOW_WIRE_REVOKED;
		return tow_fill_grants(session, &sdir->acks, body);
	}
	if (!list_empty(&sdir->releases)) {
		*type = TOW_WIRE_RELEASE;
		return tow_fill_grants(session, &sdir->releases, body);
	}
	if (!list_empty(&sdir->cancels)) {
		*type = TOW_WIRE_CANCEL;
		return tow_fill_cancels(session->assoc, body);
	}
	next = tow_ask_next(sdir);
	return next ? tow_fill_ask(session->assoc, next, type, number, body) : 0;
}

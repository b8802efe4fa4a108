// SPDX-License-Identifier: GPL-2.0
/*
 * The server of names: requests of peers, and their answers.
 *
 * Every request is answered exactly once: when it comes, when the name is
 * published, or when the peer cancels.  A RESOLVE has several requests, and a
 * RESOLVED the answers to any, as many as fit.  Answers, like all messages
 * of the owner's side, are in lists until the session can send a message, so a
 * peer that asks much and reads little fills its own association's lists up to
 * a bound.
 *
 * A grant is given with the answer (grant.c).  Its segments do not change, so an
 * answer may be sent even if the grant was revoked since: the REVOKE is sent after it.
 *
 * "Both locks" are tow_directory.lock and the tow_assoc_dir.lock of the peer's
 * association.
 */
#include <linux/slab.h>

#include "assoc.h"
#include "core/core.h"
#include "core/trace.h"
#include "directory.h"
#include "export.h"
#include "slot.h"

/*
 * Requests of one association that wait for a name, at most.  A tenant has no
 * more than are left, so those who come later find room.
 */
#define TOW_WAITING_MAX		1024

/* Answers of one association, at most.  More than a peer's TOW_ASKED_MAX. */
#define TOW_ANSWERS_MAX		4096

/**
 * struct tow_request - a request of a peer, until its answer is sent
 * @label: of a RESOLVE: the name, in tow_directory.waiting while it waits
 * @assoc: the peer's association, which outlives its requests
 * @link: in tow_assoc_dir.answers, when it has an answer; in a list of its
 *	message before
 * @number: the peer's number for it
 * @wait: of a RESOLVE: it is answered when the name is published
 * @status: the answer: enum tow_wire_status
 * @fresh: of a RESOLVE: the grant that may be given, until it is; else NULL, also if
 *	there was no memory for it
 * @grant: number of the grant that was given, or that a RESOLVE_MORE is about
 * @first: number of the answer's first segment
 * @name: of @label
 *
 * While it waits it is under both locks, in the list of answers under
 * tow_assoc_dir.lock.
 */
struct tow_request {
	struct tow_label	label;
	struct tow_assoc	*assoc;
	struct list_head	link;
	u32			number;
	bool			wait;
	u32			status;
	struct tow_grant	*fresh;
	u64			grant;
	u32			first;
	u8			name[];
};

/* ---- requests ------------------------------------------------------------- */

static struct tow_request *tow_request_new(struct tow_assoc *assoc,
					   u32 number, size_t name_bytes)
{
	struct tow_request *request;

	request = kzalloc(struct_size(request, name, name_bytes), GFP_KERNEL);
	if (!request)
		return NULL;
	INIT_LIST_HEAD(&request->link);
	request->assoc = assoc;
	request->number = number;
	return request;
}

static void tow_request_free(struct tow_request *request)
{
	kfree(request->fresh);
	kfree(request);
}

/* Caller holds tow_assoc_dir.lock; the request does not wait any more. */
static void tow_request_answer(struct tow_request *request, u32 status)
{
	struct tow_assoc_dir *sdir = &request->assoc->dir;

	lockdep_assert_held(&sdir->lock);
	request->status = status;
	list_add_tail(&request->link, &sdir->answers);
	sdir->answer_count++;
	tow_assoc_kick(request->assoc);
}

/* Caller holds both locks. */
static void tow_request_grant(struct tow_request *request,
			      struct tow_exported *exported)
{
	u32 status = tow_grant_give(request->fresh, exported);

	request->grant = request->fresh->id;
	if (!status)
		request->fresh = NULL;
	tow_request_answer(request, status);
}

/*
 * Caller holds both locks; the number is reserved in tow_assoc_dir.waiting.
 * Return: OK: the request waits; else the answer.
 */
static u32 tow_request_wait(struct tow_request *request)
{
	struct tow_assoc *assoc = request->assoc;
	struct tow_assoc_dir *sdir = &assoc->dir;
	u16 *own = &sdir->waiting_of[tow_label_tenant(&request->label)];

	if (*own >= TOW_WAITING_MAX - sdir->waiting_count)
		return TOW_WIRE_TOO_MANY;
	if (tow_labels_add(&assoc->dev->directory->waiting, &request->label))
		return TOW_WIRE_NO_MEMORY;
	xa_store(&sdir->waiting, request->number, request, 0);
	sdir->waiting_count++;
	(*own)++;
	atomic_inc(&assoc->users);
	return TOW_WIRE_OK;
}

/* Caller holds both locks; the request waits. */
static void tow_request_wait_no_more(struct tow_request *request)
{
	struct tow_assoc *assoc = request->assoc;

	tow_labels_remove(&assoc->dev->directory->waiting, &request->label);
	xa_erase(&assoc->dir.waiting, request->number);
	assoc->dir.waiting_count--;
	assoc->dir.waiting_of[tow_label_tenant(&request->label)]--;
	atomic_dec(&assoc->users);
}

/* Caller holds both locks.  A new request is answered or waits. */
static void tow_request_resolve(struct tow_request *request)
{
	struct tow_directory *dir = request->assoc->dev->directory;
	struct tow_label *found = tow_labels_first(&dir->exports,
						   &request->label);
	u32 status = TOW_WIRE_NOT_FOUND;

	tow_stat_inc(request->assoc->dev, TOW_STAT_RESOLVES);
	if (!request->fresh) {
		tow_request_answer(request, TOW_WIRE_NO_MEMORY);
		return;
	}
	if (found) {
		tow_request_grant(request,
				  container_of(found, struct tow_exported,
					       label));
		return;
	}
	if (request->wait)
		status = tow_request_wait(request);
	if (status)
		tow_request_answer(request, status);
}

/* Caller holds tow_directory.lock; the export has just got its name. */
static void tow_grant_answer_waiting(struct tow_exported *exported)
{
	struct tow_directory *dir = exported->dev->directory;
	struct tow_label *label;

	lockdep_assert_held(&dir->lock);
	while ((label = tow_labels_first(&dir->waiting, &exported->label))) {
		struct tow_request *request =
			container_of(label, struct tow_request, label);
		struct tow_assoc_dir *sdir = &request->assoc->dir;

		mutex_lock(&sdir->lock);
		tow_request_wait_no_more(request);
		tow_request_grant(request, exported);
		mutex_unlock(&sdir->lock);
		cond_resched();
	}
}

/* ---- an export is published ------------------------------------------------ */

/* Caller holds tow_directory.lock. */
static int tow_exported_name(struct tow_exported *exported)
{
	struct tow_directory *dir = exported->dev->directory;
	int ret;

	ret = tow_exported_may_be(exported);
	if (!ret)
		ret = tow_labels_add(&dir->exports, &exported->label);
	if (ret)
		return ret;
	/* tow_exported_next() finds it from here on. */
	kref_get(&exported->refs);
	xa_store(&dir->by_id, exported->id, exported, 0);
	if (exported->region->backing)
		atomic_inc(&exported->region->backing->exports);
	tow_stat_inc(exported->dev, TOW_STAT_EXPORTS);
	trace_tow_export_publish(exported);
	tow_grant_answer_waiting(exported);
	return 0;
}

/**
 * tow_exported_publish - let an export be found
 * @exported: from tow_exported_new(); caller is still a user of the device
 *
 * Requests that wait for the name are answered.
 *
 * Return: 0; -EEXIST, -ENOMEM, -ENODEV, -EFAULT.
 */
int tow_exported_publish(struct tow_exported *exported)
{
	struct tow_directory *dir = exported->dev->directory;
	int ret;

	xa_lock(&dir->by_id);
	exported->id = ++dir->last_id;
	xa_unlock(&dir->by_id);
	/* The client may have to wait for its memory, but nobody else. */
	lockdep_assert_not_held(&dir->lock);
	ret = xa_reserve(&dir->by_id, exported->id, GFP_KERNEL_ACCOUNT);
	if (!ret) {
		mutex_lock(&dir->lock);
		ret = tow_exported_name(exported);
		mutex_unlock(&dir->lock);
	}
	if (ret)
		xa_release(&dir->by_id, exported->id);
	return ret;
}

/* ---- messages of peers --------------------------------------------------- */

/*
 * Read the first request of a RESOLVE.  Return: how many bytes it has, and @label
 * points into it; -EPROTO: it is not well-formed.
 */
static int tow_resolve_check(const struct tow_wire_resolve *body, size_t left,
			     struct tow_label *label)
{
	size_t bytes, end;

	if (left < sizeof(*body))
		return -EPROTO;
	bytes = tow_wire_resolve_bytes(body->name_bytes);
	end = sizeof(*body) + body->name_bytes;
	if (left < bytes || memchr_inv((u8 *)body + end, 0, bytes - end))
		return -EPROTO;
	memset(label, 0, sizeof(*label));
	memcpy(label->job_id, body->job_id, sizeof(label->job_id));
	label->uid = le32_to_cpu(body->uid);
	label->bytes = body->name_bytes;
	label->name = body->name;
	if (body->wait > 1 ||
	    memchr_inv(body->reserved, 0, sizeof(body->reserved)) ||
	    !tow_rights_valid(le32_to_cpu(body->rights)) ||
	    !tow_label_valid(label))
		return -EPROTO;
	return bytes;
}

/* As tow_resolve_check(); make the request, and add it to @requests. */
static int tow_resolve_read(struct tow_assoc *assoc,
			    const struct tow_wire_resolve *body, size_t left,
			    struct list_head *requests)
{
	struct tow_request *request;
	struct tow_label label;
	int bytes, ret = 0;

	bytes = tow_resolve_check(body, left, &label);
	if (bytes < 0)
		return bytes;
	if (tow_rights_width(le32_to_cpu(body->rights)) > assoc->width)
		return -EPROTO;
	request = tow_request_new(assoc, le32_to_cpu(body->request), label.bytes);
	if (!request)
		return -ENOMEM;
	tow_label_copy(&request->label, &label, request->name);
	/* Without memory for the grant it is answered at once. */
	request->fresh = tow_grant_new(assoc, le32_to_cpu(body->rights));
	request->wait = body->wait && request->fresh;
	/* Reserves the number.  EBUSY: a request with this number waits. */
	if (request->wait)
		ret = xa_insert(&assoc->dir.waiting, request->number, NULL,
				GFP_KERNEL);
	if (ret) {
		tow_request_free(request);
		return ret == -EBUSY ? -EPROTO : ret;
	}
	list_add_tail(&request->link, requests);
	return bytes;
}

/* Caller holds both locks.  The requests of one message are answered or wait. */
static int tow_resolve_all(struct tow_assoc *assoc, struct list_head *requests)
{
	struct tow_assoc_dir *sdir = &assoc->dir;
	struct tow_request *request, *next;

	if (sdir->lost)
		return -ECONNRESET;
	list_for_each_entry_safe(request, next, requests, link) {
		u32 number = request->number;
		bool reserved = request->wait;

		if (sdir->answer_count >= TOW_ANSWERS_MAX ||
		    xa_load(&sdir->waiting, number))
			return -EPROTO;
		list_del_init(&request->link);
		tow_request_resolve(request);
		/*
		 * Unless it waits.  A later request of the message may have reserved
		 * the same number.
		 */
		if (reserved)
			xa_release(&sdir->waiting, number);
	}
	return 0;
}

/*
 * All requests of the message are made before one is answered: a message that is not
 * well-formed is refused whole.  If there is no memory for one of them the session
 * ends, and the peer asks again in the next one.
 */
static int tow_receive_resolve(struct tow_assoc *assoc, const u8 *body,
			       size_t bytes)
{
	struct tow_directory *dir = assoc->dev->directory;
	struct tow_request *request, *next;
	LIST_HEAD(requests);
	size_t at;
	int ret = 0;

	for (at = 0; at < bytes && ret >= 0; at += ret)
		ret = tow_resolve_read(assoc, (const void *)(body + at),
				       bytes - at, &requests);
	if (ret >= 0) {
		mutex_lock(&dir->lock);
		mutex_lock(&assoc->dir.lock);
		ret = tow_resolve_all(assoc, &requests);
		mutex_unlock(&assoc->dir.lock);
		mutex_unlock(&dir->lock);
	}
	list_for_each_entry_safe(request, next, &requests, link) {
		if (request->wait)
			xa_release(&assoc->dir.waiting, request->number);
		tow_request_free(request);
	}
	return ret;
}

static int tow_receive_more(struct tow_assoc *assoc, u32 number,
			    const struct tow_wire_resolve_more *body)
{
	struct tow_assoc_dir *sdir = &assoc->dir;
	struct tow_request *request;
	struct tow_grant *grant;
	int ret = 0;

	/* The answer to the RESOLVE has the first segment. */
	if (body->reserved || !body->first)
		return -EPROTO;
	request = tow_request_new(assoc, number, 0);
	if (!request)
		return -ENOMEM;
	request->grant = le64_to_cpu(body->grant);
	request->first = le32_to_cpu(body->first);
	mutex_lock(&sdir->lock);
	grant = xa_load(&sdir->grants, request->grant);
	if (sdir->lost)
		ret = -ECONNRESET;
	else if (sdir->answer_count >= TOW_ANSWERS_MAX ||
		 (grant && request->first >=
			   tow_exported_segments(grant->exported)))
		ret = -EPROTO;
	else
		tow_request_answer(request, TOW_WIRE_OK);
	mutex_unlock(&sdir->lock);
	if (ret)
		kfree(request);
	return ret;
}

/* A request that is not found is answered already. */
static int tow_receive_cancel(struct tow_assoc *assoc, const __le32 *numbers,
			      size_t bytes)
{
	struct tow_directory *dir = assoc->dev->directory;
	struct tow_assoc_dir *sdir = &assoc->dir;
	struct tow_request *request;
	size_t i;

	if (bytes % sizeof(*numbers))
		return -EPROTO;
	mutex_lock(&dir->lock);
	mutex_lock(&sdir->lock);
	for (i = 0; i < bytes / sizeof(*numbers); i++) {
		request = xa_load(&sdir->waiting, le32_to_cpu(numbers[i]));
		if (!request)
			continue;
		tow_request_wait_no_more(request);
		tow_request_answer(request, TOW_WIRE_NOT_FOUND);
	}
	mutex_unlock(&sdir->lock);
	mutex_unlock(&dir->lock);
	return 0;
}

/* Caller holds both locks. */
static int tow_receive_release(struct tow_assoc *assoc, u8 type, u64 id)
{
	struct tow_grant *grant = xa_load(&assoc->dir.grants, id);

	/* A grant that has ended: our REVOKE and the peer's RELEASE crossed. */
	if (!grant)
		return id && id <= assoc->dir.last_grant ? 0 : -EPROTO;
	if (type == TOW_WIRE_REVOKED && list_empty(&grant->link))
		return -EPROTO;
	tow_grant_end(grant);
	return 0;
}

/* Caller holds tow_assoc_dir.lock.  Is one of the grants of a slot? */
static bool tow_grants_have_slot(struct tow_assoc *assoc,
				 const struct tow_wire_grants *body, u32 count)
{
	struct tow_grant *grant;

	lockdep_assert_held(&assoc->dir.lock);
	while (count--) {
		grant = xa_load(&assoc->dir.grants,
				le64_to_cpu(body->grants[count]));
		if (grant && grant->exported->slot)
			return true;
	}
	return false;
}

/* REVOKED or RELEASE. */
static int tow_receive_grants(struct tow_assoc *assoc, u8 type,
			      const struct tow_wire_grants *body, size_t bytes)
{
	struct tow_directory *dir = assoc->dev->directory;
	u32 i, count = tow_wire_grants_count(body, bytes);
	int ret = 0;
	bool slot;

	if (!count)
		return -EPROTO;
	mutex_lock(&assoc->dir.lock);
	slot = tow_grants_have_slot(assoc, body, count);
	mutex_unlock(&assoc->dir.lock);
	/* Count earlier notifications before the slot gets another holder. */
	if (slot)
		tow_credit_drain(assoc);
	mutex_lock(&dir->lock);
	mutex_lock(&assoc->dir.lock);
	for (i = 0; i < count && !ret; i++)
		ret = tow_receive_release(assoc, type,
					  le64_to_cpu(body->grants[i]));
	mutex_unlock(&assoc->dir.lock);
	mutex_unlock(&dir->lock);
	if (type == TOW_WIRE_REVOKED)
		tow_assoc_note(assoc, "revoke: acknowledged",
			       le64_to_cpu(body->grants[0]), ret);
	return ret;
}

/**
 * tow_grant_receive - handle a message of a resolver
 * @assoc: the association
 * @type: TOW_WIRE_RESOLVE, _RESOLVE_MORE, _CANCEL, _REVOKED or _RELEASE
 * @number: from the header
 * @body: the message but its header
 * @bytes: size of @body
 *
 * Return: 0; -EPROTO: the resolver must not send such a message; -ENOMEM;
 * -ECONNRESET: the association is lost.
 */
int tow_grant_receive(struct tow_assoc *assoc, u8 type, u32 number,
		      void *body, size_t bytes)
{
	switch (type) {
	case TOW_WIRE_RESOLVE:
		return number ? -EPROTO :
				tow_receive_resolve(assoc, body, bytes);
	case TOW_WIRE_RESOLVE_MORE:
		return tow_receive_more(assoc, number, body);
	case TOW_WIRE_CANCEL:
		return tow_receive_cancel(assoc, body, bytes);
	default:
		return tow_receive_grants(assoc, type, body, bytes);
	}
}

/* ---- messages to resolvers ----------------------------------------------- */

/* How many segments an answer has, from @first on. */
static u32 tow_fill_count(struct tow_grant *grant, u32 first)
{
	return min_t(u32, tow_exported_segments(grant->exported) - first,
		     TOW_WIRE_SEGMENTS_MAX);
}

static void tow_fill_segments(struct tow_grant *grant, u32 first,
			      struct tow_wire_resolved *body)
{
	struct tow_exported *exported = grant->exported;
	u32 count = tow_fill_count(grant, first);
	u32 i;

	for (i = 0; i < count; i++)
		tow_exported_segment(exported, grant->rights, first + i,
				     &body->segments[i]);
	body->rights = cpu_to_le32(grant->rights);
	body->grant = cpu_to_le64(grant->id);
	body->bytes = cpu_to_le64(exported->bytes);
	body->total = cpu_to_le32(tow_exported_segments(exported));
	body->first = cpu_to_le32(first);
	body->count = cpu_to_le32(count);
}

/*
 * Caller holds tow_assoc_dir.lock.  Return: the request's grant; NULL: it has
 * ended, or it is being revoked and the request is for more segments.
 */
static struct tow_grant *tow_fill_grant(struct tow_assoc *assoc,
					struct tow_request *request)
{
	struct tow_grant *grant = xa_load(&assoc->dir.grants,
					  request->grant);

	if (!grant || (request->first && !list_empty(&grant->link)))
		return NULL;
	return request->first < tow_exported_segments(grant->exported) ? grant :
								NULL;
}

/*
 * Caller holds tow_assoc_dir.lock.  Fill in the answer to a request, if it fits.
 * Return: its size; 0: it has not so much room.
 */
static size_t tow_fill_answer(struct tow_request *request,
			      struct tow_wire_resolved *body, size_t room)
{
	u32 status = request->status;
	struct tow_grant *grant = NULL;
	size_t bytes;

	if (status == TOW_WIRE_OK) {
		grant = tow_fill_grant(request->assoc, request);
		if (!grant)
			status = TOW_WIRE_STALE;
	}
	bytes = struct_size(body, segments,
			    grant ? tow_fill_count(grant, request->first) : 0);
	if (bytes > room)
		return 0;
	memset(body, 0, sizeof(*body));
	if (grant)
		tow_fill_segments(grant, request->first, body);
	body->status = cpu_to_le32(status);
	body->request = cpu_to_le32(request->number);
	return bytes;
}

/* Caller holds tow_assoc_dir.lock.  As many answers as fit. */
static size_t tow_fill_answers(struct tow_assoc *assoc, u8 *body)
{
	struct tow_assoc_dir *sdir = &assoc->dir;
	struct tow_request *request, *next;
	size_t bytes, at = 0;

	list_for_each_entry_safe(request, next, &sdir->answers, link) {
		bytes = tow_fill_answer(request, (void *)(body + at),
					TOW_WIRE_BODY_BYTES - at);
		if (!bytes)
			break;
		at += bytes;
		list_del(&request->link);
		sdir->answer_count--;
		tow_request_free(request);
	}
	return at;
}

/**
 * tow_grant_fill - fill in the next message to a resolver
 * @session: the session that sends; caller holds its @pump, and
 *	tow_assoc_dir.lock
 * @type: where to: enum tow_wire_type; unchanged: there is no message
 * @number: where to: for the header
 * @body: where to, TOW_WIRE_BODY_BYTES
 *
 * Return: size of @body.
 */
size_t tow_grant_fill(struct tow_session *session, u8 *type, u32 *number,
		      void *body)
{
	/* In this order: a grant's answer is sent before its REVOKE. */
	if (!list_empty(&session->assoc->dir.answers)) {
		*type = TOW_WIRE_RESOLVED;
		return tow_fill_answers(session->assoc, body);
	}
	return tow_revoke_fill(session, type, body);
}

/* ---- associations ----------------------------------------------------------------- */

/**
 * tow_grant_assoc_init - prepare the owner's side of an association
 * @assoc: the association, new
 */
void tow_grant_assoc_init(struct tow_assoc *assoc)
{
	struct tow_assoc_dir *sdir = &assoc->dir;

	xa_init(&sdir->waiting);
	xa_init(&sdir->grants);
	init_rwsem(&sdir->reach);
	INIT_LIST_HEAD(&sdir->answers);
	tow_revoke_assoc_init(assoc);
}

/**
 * tow_request_drop_all - drop all requests of an association
 * @assoc: the association, apart or lost; caller holds both locks
 */
void tow_request_drop_all(struct tow_assoc *assoc)
{
	struct tow_assoc_dir *sdir = &assoc->dir;
	struct tow_request *request, *next;
	unsigned long number;

	xa_for_each(&sdir->waiting, number, request) {
		tow_request_wait_no_more(request);
		tow_request_free(request);
	}
	list_for_each_entry_safe(request, next, &sdir->answers, link) {
		list_del(&request->link);
		tow_request_free(request);
	}
	sdir->answer_count = 0;
}

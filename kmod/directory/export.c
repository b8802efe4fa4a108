// SPDX-License-Identifier: GPL-2.0
/*
 * Exports: what this node lets peers reach.
 *
 * An export is made here, and gets its name when it is published (serve.c).
 *
 * How an export ends
 *
 * First it loses its name: peers do not find it any more, and another export
 * may have the name.  Then all its grants are revoked (grant.c).  A grant ends
 * when the peer acknowledges or releases it, or when the queue pairs by which
 * the peer reaches us are destroyed.  When the last grant has ended the export
 * is dead: its keys are invalidated, the region is put, the charge is undone.
 * The directory's work item does that, or the call that ends an export without
 * grants.  Only then may its memory go to another region: an access error would
 * break a queue pair that all tenants share, and invalidation does not stop an
 * operation whose key is already checked.
 */
#include <linux/atomic.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "core/core.h"
#include "core/trace.h"
#include "directory.h"
#include "export.h"
#include "memory/memory.h"
#include "slot.h"

/* The registration with the fewest rights that includes @rights. */
static enum tow_rights tow_exported_kind(u32 rights)
{
	return rights & ~TOW_RIGHT_READ ? TOW_RIGHTS_WRITE : TOW_RIGHTS_READ;
}

/* How many kinds: a peer that asks only to read gets a read-only key. */
static unsigned int tow_exported_kinds(u32 rights)
{
	return rights & TOW_RIGHT_READ && rights & ~TOW_RIGHT_READ ? 2 : 1;
}

/* The kind of the n-th exposure of each slab. */
static enum tow_rights tow_exported_nth_kind(struct tow_exported *exported,
					     unsigned int n)
{
	if (tow_exported_kinds(exported->rights) == 1)
		return tow_exported_kind(exported->rights);
	return n ? TOW_RIGHTS_WRITE : TOW_RIGHTS_READ;
}

/**
 * tow_exported_segments - how many segments has an export?
 * @exported: the export
 *
 * Return: their number.
 */
u32 tow_exported_segments(const struct tow_exported *exported)
{
	return exported->slot ? 1 : exported->count;
}

/*
 * A slot's segment has the number after which notifications begin as the address,
 * and the slot's number as the key.
 */
static void tow_exported_slot_segment(struct tow_exported *exported,
				      struct tow_wire_segment *segment)
{
	segment->address = cpu_to_le64(tow_slot_begin(exported->slot));
	segment->key = cpu_to_le32(exported->slot->number);
	segment->bytes = cpu_to_le32(exported->bytes);
}

/**
 * tow_exported_segment - fill in a segment of an export for a peer
 * @exported: the export
 * @rights: bits of enum tow_right: the grant's, which the export has
 * @index: the segment's number, below tow_exported_segments()
 * @segment: where to
 */
void tow_exported_segment(struct tow_exported *exported, u32 rights,
			  unsigned int index, struct tow_wire_segment *segment)
{
	u64 slab_bytes = exported->region->slab_bytes;
	u64 begin = index ? 0 : exported->skip;
	u64 before = index ? index * slab_bytes - exported->skip : 0;
	u64 bytes = min(slab_bytes - begin, exported->bytes - before);
	const struct tow_exposure *exposure;

	if (exported->slot) {
		tow_exported_slot_segment(exported, segment);
		return;
	}
	/* Those of the second kind are behind all of the first. */
	if (tow_exported_kind(rights) != tow_exported_nth_kind(exported, 0))
		index += exported->count;
	exposure = &exported->exposures[index];
	segment->address = cpu_to_le64(exposure->address + begin);
	segment->key = cpu_to_le32(exposure->key);
	segment->bytes = cpu_to_le32(bytes);
}

/* ---- making --------------------------------------------------------------- */

/**
 * tow_label_of_client - a name in a client's job
 * @label: where to
 * @client: the client
 * @name: the name; the label points to it
 * @bytes: length of @name
 */
void tow_label_of_client(struct tow_label *label, struct tow_client *client,
			 const u8 *name, u32 bytes)
{
	memset(label, 0, sizeof(*label));
	tow_client_job(client, label->job_id);
	if (!tow_job_has_key(label->job_id))
		label->uid = from_kuid(&init_user_ns, client->kuid);
	label->name = name;
	label->bytes = bytes;
}

static void tow_exported_release(struct kref *refs)
{
	struct tow_exported *exported = container_of(refs, struct tow_exported,
						     refs);
	struct tow_device *dev = exported->dev;

	if (exported->slot)
		tow_slot_put(exported->slot);
	if (exported->region)
		tow_region_put(exported->region);
	tow_uncharge(&exported->charge);
	put_pid(exported->pid);
	kvfree(exported);
	tow_device_put(dev);
}

/**
 * tow_exported_put - give a reference back
 * @exported: the export; may be gone afterwards
 *
 * May sleep.
 */
void tow_exported_put(struct tow_exported *exported)
{
	kref_put(&exported->refs, tow_exported_release);
}

static struct tow_exported *tow_exported_alloc(struct tow_client *client,
					       const struct tow_export *call,
					       unsigned int count)
{
	size_t exposures = (size_t)count * tow_exported_kinds(call->rights);
	struct tow_exported *exported;
	struct tow_label label;

	/* The name follows the last exposure. */
	exported = tow_zalloc_long(struct_size(exported, exposures, exposures) +
				   call->name_bytes);
	if (!exported)
		return NULL;
	kref_init(&exported->refs);
	INIT_LIST_HEAD(&exported->grants);
	INIT_LIST_HEAD(&exported->dead);
	init_completion(&exported->ended);
	kref_get(&client->dev->refs);
	exported->dev = client->dev;
	tow_label_of_client(&label, client, call->name, call->name_bytes);
	tow_label_copy(&exported->label, &label,
		       (u8 *)&exported->exposures[exposures]);
	exported->kuid = client->kuid;
	exported->pid = get_pid(client->pid);
	exported->offset = call->offset;
	exported->bytes = call->bytes;
	exported->rights = call->rights;
	exported->count = count;
	return exported;
}

/* An error of the maintenance queue pair, as the contract has it. */
static int tow_exported_error(int error)
{
	switch (error) {
	case 0:
	case -ENOSPC:
	case -ENOMEM:
	case -ENODEV:
	case -EFAULT:
	case -EINTR:
		return error;
	default:
		return -EAGAIN;
	}
}

/* Make the next of the export's exposures. */
static int tow_exported_expose_one(struct tow_exported *exported)
{
	unsigned int n = exported->exposed / exported->count;
	unsigned int index = exported->exposed % exported->count;
	struct tow_exposure *exposure = &exported->exposures[exported->exposed];
	int ret;

	/* The caller is a user of the device: removal waits for it. */
	if (tow_device_going(exported->dev))
		return -ENODEV;
	if (fatal_signal_pending(current))
		return -EINTR;
	ret = towk_slab_expose(exported->region->slabs[exported->first + index],
			       tow_exported_nth_kind(exported, n),
			       &exposure->key, &exposure->address);
	if (!ret)
		exported->exposed++;
	return tow_exported_error(ret);
}

/**
 * tow_exported_hide - invalidate an export's keys, or end its slot
 * @exported: the export, without grants
 */
void tow_exported_hide(struct tow_exported *exported)
{
	/* Afterwards no notification is written to the region's memory. */
	if (exported->slot)
		tow_slot_end(exported->slot, exported->dev);
	while (exported->exposed) {
		unsigned int at = --exported->exposed;
		unsigned int n = at / exported->count;
		unsigned int index = at % exported->count;

		towk_slab_hide(exported->region->slabs[exported->first + index],
			       tow_exported_nth_kind(exported, n));
		cond_resched();
	}
}

static int tow_exported_expose(struct tow_exported *exported)
{
	unsigned int all = exported->count * tow_exported_kinds(exported->rights);
	int ret = 0;

	while (exported->exposed < all && !ret) {
		ret = tow_exported_expose_one(exported);
		cond_resched();
	}
	if (ret)
		tow_exported_hide(exported);
	return ret;
}

/**
 * tow_exported_may_be - may an export get its name?
 * @exported: the export; caller holds tow_directory.lock
 *
 * Return: 0; -ENODEV: the device is going; -EFAULT: the region's memory was
 * taken back; -EEXIST: another export has the name.
 */
int tow_exported_may_be(struct tow_exported *exported)
{
	struct tow_directory *dir = exported->dev->directory;

	lockdep_assert_held(&dir->lock);
	if (dir->stopping)
		return -ENODEV;
	if (tow_region_invalid(exported->region))
		return -EFAULT;
	return tow_labels_first(&dir->exports, &exported->label) ? -EEXIST : 0;
}

/* The slot's count is written to the export's 8 bytes, which are in a page. */
static int tow_exported_make_slot(struct tow_exported *exported)
{
	const struct tow_region *region = exported->region;
	unsigned int index = exported->first;
	u64 offset = exported->skip;
	u8 *page;

	page = page_address(tow_region_page(region, index, offset));
	return tow_slot_new(exported->dev,
			    (u64 *)(page + offset_in_page(offset)),
			    &exported->slot);
}

/* Charge and expose, unless publishing would fail anyway. */
static int tow_exported_prepare(struct tow_exported *exported,
				struct tow_client *client)
{
	const u64 amount[TOW_RESOURCES] = { [TOW_RES_EXPORTS] = 1 };
	struct tow_directory *dir = exported->dev->directory;
	int ret;

	mutex_lock(&dir->lock);
	ret = tow_exported_may_be(exported);
	mutex_unlock(&dir->lock);
	if (!ret)
		ret = tow_charge(&exported->charge, client->account, amount);
	if (!ret)
		ret = exported->rights == TOW_RIGHT_NOTIFY ?
		      tow_exported_make_slot(exported) :
		      tow_exported_expose(exported);
	return ret;
}

/**
 * tow_exported_new - make an export that is not published yet
 * @client: the export's client; caller is a user of the device
 * @region: the export's region; the export takes a reference
 * @call: the client's call; caller has checked it except for the range
 *
 * Return: the export, for tow_exported_publish(); or an ERR_PTR(): see
 * TOW_IOCTL_EXPORT.
 */
struct tow_exported *tow_exported_new(struct tow_client *client,
				      struct tow_region *region,
				      const struct tow_export *call)
{
	struct tow_exported *exported;
	u64 begin, end;
	int ret;

	if (!call->bytes || call->bytes > region->bytes ||
	    call->offset > region->bytes - call->bytes)
		return ERR_PTR(-EINVAL);
	begin = region->skip + call->offset;
	/* Imported memory may begin at any byte. */
	if (call->rights == TOW_RIGHT_NOTIFY &&
	    (call->bytes != sizeof(u64) ||
	     !IS_ALIGNED(call->offset, sizeof(u64)) ||
	     !IS_ALIGNED(begin, sizeof(u64))))
		return ERR_PTR(-EINVAL);
	end = div64_u64(begin + call->bytes - 1, region->slab_bytes) + 1;
	begin = div64_u64(begin, region->slab_bytes);
	if (end - begin > TOW_SEGMENTS_MAX)
		return ERR_PTR(-ENOSPC);
	exported = tow_exported_alloc(client, call,
				      call->rights == TOW_RIGHT_NOTIFY ? 0 :
				      end - begin);
	if (!exported)
		return ERR_PTR(-ENOMEM);
	tow_region_get(region);
	exported->region = region;
	exported->region_id = region->id;
	exported->first = begin;
	exported->skip = region->skip + call->offset -
			 begin * region->slab_bytes;
	ret = tow_exported_prepare(exported, client);
	if (ret) {
		tow_exported_put(exported);
		return ERR_PTR(ret);
	}
	return exported;
}

/* ---- ending --------------------------------------------------------------- */

/**
 * tow_exported_check_dead - have an export finished, if it is dead
 * @exported: the export; caller holds tow_directory.lock, and has just set
 *	@ending or ended a grant
 *
 * The work item finishes it, unless tow_exported_claim() comes before.
 */
void tow_exported_check_dead(struct tow_exported *exported)
{
	struct tow_directory *dir = exported->dev->directory;

	lockdep_assert_held(&dir->lock);
	/* tow_grant_revoke() may have ended the last grant, and added it. */
	if (!exported->ending || exported->grant_count ||
	    !list_empty(&exported->dead))
		return;
	list_add_tail(&exported->dead, &dir->dead);
	tow_directory_queue(dir, &dir->dead_work);
}

/**
 * tow_exported_claim - may the caller finish an export?
 * @exported: the export, ending
 *
 * Return: true: the caller must call tow_exported_finish(); false: it is not
 * dead, or another task has claimed it.
 */
bool tow_exported_claim(struct tow_exported *exported)
{
	struct tow_directory *dir = exported->dev->directory;
	bool dead;

	mutex_lock(&dir->lock);
	dead = !list_empty(&exported->dead);
	list_del_init(&exported->dead);
	mutex_unlock(&dir->lock);
	return dead;
}

/**
 * tow_exported_finish - finish a dead export
 * @exported: the export, claimed.  Caller is a user of the device, or removal
 *	waits for the caller
 */
void tow_exported_finish(struct tow_exported *exported)
{
	struct tow_device *dev = exported->dev;

	tow_exported_hide(exported);
	trace_tow_export_end(exported);
	tow_uncharge(&exported->charge);
	xa_erase(&dev->directory->by_id, exported->id);
	tow_stat_dec(dev, TOW_STAT_EXPORTS);
	tow_stat_inc(dev, TOW_STAT_REVOKES);
	if (exported->region->backing)
		atomic_dec(&exported->region->backing->exports);
	/* A handle may keep the export; its memory may go now. */
	tow_region_put(exported->region);
	exported->region = NULL;
	complete_all(&exported->ended);
	tow_exported_put(exported);
}

static struct tow_exported *tow_exported_next_dead(struct tow_directory *dir)
{
	struct tow_exported *exported;

	mutex_lock(&dir->lock);
	exported = list_first_entry_or_null(&dir->dead, struct tow_exported,
					    dead);
	if (exported)
		list_del_init(&exported->dead);
	mutex_unlock(&dir->lock);
	return exported;
}

/**
 * tow_exported_reap - finish all dead exports
 * @dir: the directory; the caller is its work item
 */
void tow_exported_reap(struct tow_directory *dir)
{
	struct tow_exported *exported;

	while ((exported = tow_exported_next_dead(dir))) {
		tow_exported_finish(exported);
		cond_resched();
	}
}

/* ---- looking -------------------------------------------------------------- */

/**
 * tow_exported_is_of - is an export of a client's user and in the client's job?
 * @exported: the export
 * @client: the client
 *
 * Return: true if it is.
 */
bool tow_exported_is_of(struct tow_exported *exported,
			struct tow_client *client)
{
	u8 job_id[TOW_JOB_ID_BYTES];

	tow_client_job(client, job_id);
	return uid_eq(exported->kuid, client->kuid) &&
	       !memcmp(exported->label.job_id, job_id, TOW_JOB_ID_BYTES) &&
	       tow_client_has_job(client, job_id);
}

/**
 * tow_exported_next - go through the exports
 * @dir: the directory
 * @cursor: id of the export that the last call returned, at first 0; moved on
 *
 * Return: an export with a reference for the caller, or NULL: there are no more.
 */
struct tow_exported *tow_exported_next(struct tow_directory *dir, u64 *cursor)
{
	unsigned long index = *cursor + 1;
	struct tow_exported *exported;

	/* A program's cursor of U64_MAX: no export comes after it. */
	if (!index)
		return NULL;
	xa_lock(&dir->by_id);
	exported = xa_find(&dir->by_id, &index, ULONG_MAX, XA_PRESENT);
	if (exported) {
		kref_get(&exported->refs);
		*cursor = index;
	}
	xa_unlock(&dir->by_id);
	return exported;
}

/**
 * tow_exported_of_region - may peers reach what a client exported of a region?
 * @region: the region
 * @account: the client's account
 *
 * Return: true: an export of the region is not hidden yet.
 */
bool tow_exported_of_region(const struct tow_region *region,
			    const struct tow_account *account)
{
	struct tow_directory *dir = region->dev->directory;
	struct tow_exported *exported;
	bool found = false;
	u64 cursor = 0;

	while (!found && (exported = tow_exported_next(dir, &cursor))) {
		/* The charge is undone after the memory was hidden. */
		found = exported->region_id == region->id &&
			READ_ONCE(exported->charge.account) == account;
		tow_exported_put(exported);
		cond_resched();
	}
	return found;
}

/**
 * tow_exported_describe - describe an export for TOW_IOCTL_EXPORT_LIST
 * @exported: the export
 * @info: where to, zeroed
 */
void tow_exported_describe(struct tow_exported *exported,
			   struct tow_export_info *info)
{
	struct tow_directory *dir = exported->dev->directory;

	info->id = exported->id;
	info->region_id = exported->region_id;
	info->offset = exported->offset;
	info->bytes = exported->bytes;
	info->rights = exported->rights;
	info->uid = from_kuid_munged(current_user_ns(), exported->kuid);
	info->pid = tow_pid_number(exported->pid);
	info->name_bytes = exported->label.bytes;
	memcpy(info->job_id, exported->label.job_id, TOW_JOB_ID_BYTES);
	memcpy(info->name, exported->label.name, exported->label.bytes);
	mutex_lock(&dir->lock);
	info->grants = exported->grant_count;
	if (exported->ending)
		info->flags |= TOW_EXPORT_REVOKING;
	mutex_unlock(&dir->lock);
}

// SPDX-License-Identifier: GPL-2.0
/*
 * Labels: see label.h.
 */
#include <linux/jhash.h>
#include <linux/random.h>
#include <linux/string.h>

#include "core/core.h"
#include "label.h"

static u32 tow_tenant_seed __ro_after_init;

static u32 tow_label_hash(const void *data, u32 length, u32 seed)
{
	const struct tow_label *label = data;
	u32 hash = jhash(label->job_id, TOW_JOB_ID_BYTES, seed ^ label->uid);

	return jhash(label->name, label->bytes, hash);
}

/* Return: 0: the labels are equal. */
static int tow_label_compare(struct rhashtable_compare_arg *arg,
			     const void *object)
{
	const struct tow_label *one = arg->key;
	const struct tow_label *other = object;

	return one->uid != other->uid || one->bytes != other->bytes ||
	       memcmp(one->job_id, other->job_id, TOW_JOB_ID_BYTES) ||
	       memcmp(one->name, other->name, one->bytes);
}

static const struct rhashtable_params tow_labels_params = {
	.head_offset		= offsetof(struct tow_label, node),
	.hashfn			= tow_label_hash,
	.obj_hashfn		= tow_label_hash,
	.obj_cmpfn		= tow_label_compare,
	.automatic_shrinking	= true,
};

/**
 * tow_labels_init - make a table
 * @labels: zeroed memory
 *
 * Return: 0 or -ENOMEM.
 */
int tow_labels_init(struct tow_labels *labels)
{
	return rhltable_init(&labels->table, &tow_labels_params);
}

/**
 * tow_labels_cleanup - undo tow_labels_init()
 * @labels: the table, empty
 *
 * May sleep.
 */
void tow_labels_cleanup(struct tow_labels *labels)
{
	rhltable_destroy(&labels->table);
}

/**
 * tow_labels_add - put a label into a table
 * @labels: the table
 * @label: the label, in no table
 *
 * Return: 0 or -ENOMEM.
 */
int tow_labels_add(struct tow_labels *labels, struct tow_label *label)
{
	/* Any error means that there is no memory for a larger table. */
	return rhltable_insert(&labels->table, &label->node,
			       tow_labels_params) ? -ENOMEM : 0;
}

/**
 * tow_labels_remove - take a label out of its table
 * @labels: the table
 * @label: the label
 */
void tow_labels_remove(struct tow_labels *labels, struct tow_label *label)
{
	WARN_ON_ONCE(rhltable_remove(&labels->table, &label->node,
				     tow_labels_params));
}

/**
 * tow_labels_first - find a label
 * @labels: the table
 * @key: the label to look for
 *
 * Return: the label equal to @key that was added last, or NULL.
 */
struct tow_label *tow_labels_first(struct tow_labels *labels,
				   const struct tow_label *key)
{
	struct rhlist_head *node;

	/* For the table, which may be resized meanwhile; the labels stay. */
	rcu_read_lock();
	node = rhltable_lookup(&labels->table, key, tow_labels_params);
	rcu_read_unlock();
	return node ? container_of(node, struct tow_label, node) : NULL;
}

/**
 * tow_labels_next - find the next equal label
 * @label: from tow_labels_first() or tow_labels_next()
 *
 * Return: another label equal to @label, or NULL.
 */
struct tow_label *tow_labels_next(struct tow_label *label)
{
	struct rhlist_head *node = rcu_dereference_protected(label->node.next,
							     true);

	return node ? container_of(node, struct tow_label, node) : NULL;
}

/**
 * tow_label_copy - copy a label
 * @label: where to; in no table
 * @from: the label to copy
 * @name: where to: the name, @from->bytes
 */
void tow_label_copy(struct tow_label *label, const struct tow_label *from,
		    u8 *name)
{
	memcpy(label->job_id, from->job_id, TOW_JOB_ID_BYTES);
	label->uid = from->uid;
	label->bytes = from->bytes;
	label->name = name;
	memcpy(name, from->name, from->bytes);
}

/**
 * tow_label_valid - is a label as the contract wants it?
 * @label: a label from a program or a peer
 *
 * Return: true if it is.
 */
bool tow_label_valid(const struct tow_label *label)
{
	u32 i;

	if (!label->bytes || label->bytes > TOW_EXPORT_NAME_MAX)
		return false;
	/* A label in a job has no user. */
	if (label->uid && tow_job_has_key(label->job_id))
		return false;
	for (i = 0; i < label->bytes; i++) {
		if (label->name[i] < ' ' || label->name[i] == 0x7f)
			return false;
	}
	return true;
}

/**
 * tow_label_tenants_init - choose how tow_label_tenant() numbers
 */
void __init tow_label_tenants_init(void)
{
	tow_tenant_seed = get_random_u32();
}

/**
 * tow_label_tenant - a number for the job or user of a label
 * @label: the label
 *
 * Nobody can choose a job or user that has the number of another.
 *
 * Return: below TOW_TENANTS; the same for all labels of the job or user.
 */
unsigned int tow_label_tenant(const struct tow_label *label)
{
	return jhash(label->job_id, TOW_JOB_ID_BYTES,
		     tow_tenant_seed ^ label->uid) % TOW_TENANTS;
}

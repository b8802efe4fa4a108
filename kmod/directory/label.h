/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Labels: names in jobs, as nodes exchange them, and tables of them.
 */
#ifndef TOW_LABEL_H
#define TOW_LABEL_H

#include <linux/rhashtable.h>
#include <linux/types.h>

#include "uapi/towline.h"

/**
 * struct tow_label - a name in a job
 * @node: in a struct tow_labels
 * @job_id: the job; all zero: the own job of the user @uid
 * @uid: in the own job of a user: the user, as the initial user namespace has
 *	it; else 0
 * @bytes: length of @name
 * @name: not terminated; owned by the structure that contains the label
 */
struct tow_label {
	struct rhlist_head	node;
	u8			job_id[TOW_JOB_ID_BYTES];
	u32			uid;
	u32			bytes;
	const u8		*name;
};

/* tow_label_tenant() tells so many tenants apart. */
#define TOW_TENANTS		32

/**
 * struct tow_labels - a hash table of labels
 * @table: struct tow_label; several may be equal
 *
 * Callers use a table one at a time, so a label may be freed once it is
 * removed.
 */
struct tow_labels {
	struct rhltable		table;
};

int tow_labels_init(struct tow_labels *labels);
void tow_labels_cleanup(struct tow_labels *labels);
int tow_labels_add(struct tow_labels *labels, struct tow_label *label);
void tow_labels_remove(struct tow_labels *labels, struct tow_label *label);
struct tow_label *tow_labels_first(struct tow_labels *labels,
				   const struct tow_label *key);
struct tow_label *tow_labels_next(struct tow_label *label);
void tow_label_copy(struct tow_label *label, const struct tow_label *from,
		    u8 *name);
bool tow_label_valid(const struct tow_label *label);
void tow_label_tenants_init(void);
unsigned int tow_label_tenant(const struct tow_label *label);

#endif /* TOW_LABEL_H */

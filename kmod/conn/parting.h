/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Partings: connections whose end cannot be reported to the other end now
 * (parting.c).
 */
#ifndef TOW_PARTING_H
#define TOW_PARTING_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/workqueue.h>
#include <rdma/rdma_cm.h>

struct tow_device;

/**
 * struct tow_partings - a device's identifiers that wait for a route
 * @lock: protects @list
 * @list: struct tow_parting, owned
 * @work: destroys identifiers that have a route again
 * @ending: @work destroys all; written once, read without a lock
 */
struct tow_partings {
	/* protects list */
	struct mutex		lock;
	struct list_head	list;
	struct work_struct	work;
	bool			ending;
};

/**
 * enum tow_parting_choice - what the routing table may choose
 * @TOW_CHOICE_NONE: nothing: interface and address are given
 * @TOW_CHOICE_ADDRESS: an address of the interface
 * @TOW_CHOICE_INTERFACE: both
 */
enum tow_parting_choice {
	TOW_CHOICE_NONE,
	TOW_CHOICE_ADDRESS,
	TOW_CHOICE_INTERFACE
};

bool tow_parting_leads(const struct ib_gid_attr *gid,
		       const struct sockaddr_storage *from,
		       const struct sockaddr_storage *to,
		       enum tow_parting_choice choice);
bool tow_parting_possible(const struct rdma_cm_id *id);
void tow_parting_begin(struct tow_device *dev, struct rdma_cm_id *id);
void tow_partings_retry(struct tow_device *dev);
void tow_partings_init(struct tow_partings *partings);
void tow_partings_end(struct tow_device *dev);

#endif /* TOW_PARTING_H */

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Limits: how much of what a client, a user and a device may have.
 *
 * What a region takes is counted three times: for the client that made it, for
 * the client's user and for the device.  A charge is made before anything is
 * taken and undone after it was given back, so the counts are never too low.
 */
#ifndef TOW_LIMITS_H
#define TOW_LIMITS_H

#include <linux/kref.h>
#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/uidgid.h>

/* What is counted. */
enum tow_resource {
	TOW_RES_BYTES,		/* of slabs and of imported pages */
	TOW_RES_MRS,		/* memory regions of the RDMA device */
	TOW_RES_REGIONS,	/* regions, and handles of others' regions */
	TOW_RES_EXPORTS,	/* exports, until peers have let go of them */
	TOW_RES_QUEUE_ENTRIES,	/* of completion rings: what may be in flight */
	TOW_RES_POLLERS,	/* of clients without CAP_SYS_NICE */
	TOW_RESOURCES
};

/* For whom: the levels of a charge. */
enum tow_level {
	TOW_LEVEL_CLIENT,
	TOW_LEVEL_USER,
	TOW_LEVEL_DEVICE,
	TOW_LEVELS
};

/* No limit.  Less than what u64 holds, so that sums do not wrap. */
#define TOW_UNLIMITED		(U64_MAX >> 1)

struct tow_limits;

/**
 * struct tow_account - what one client or one user has
 * @refs: held by the client and by each of its charges, which may outlive it;
 *	for a user's: by its clients, through theirs
 * @limits: of the device
 * @user: a client's: its user's account, with a reference; a user's: NULL
 * @key: a user's: whom it is for
 * @link: a user's: in tow_limits.users
 * @used: what it has; under tow_limits.lock
 */
struct tow_account {
	struct kref		refs;
	struct tow_limits	*limits;
	struct tow_account	*user;
	kuid_t			key;
	struct list_head	link;
	u64			used[TOW_RESOURCES];
};

/**
 * struct tow_limits - a device's limits and what is used of them
 * @lock: protects @max, @used, @users and every account's numbers
 * @max: what each account of a level may have, or the device in all
 * @used: what the device's users have in all
 * @users: accounts of users that have clients or regions
 */
struct tow_limits {
	/* protects max, used, users and tow_account.used */
	spinlock_t		lock;
	u64			max[TOW_LEVELS][TOW_RESOURCES];
	u64			used[TOW_RESOURCES];
	struct list_head	users;
};

/**
 * struct tow_charge - what one region, or one handle, is charged
 * @account: the client's, with a reference; NULL: nothing is charged
 * @amount: how much of each
 */
struct tow_charge {
	struct tow_account	*account;
	u64			amount[TOW_RESOURCES];
};

void tow_limits_init(struct tow_limits *limits, u32 hardware_mrs);
struct tow_account *tow_account_new(struct tow_limits *limits, kuid_t key);
void tow_account_put(struct tow_account *account);
int tow_charge(struct tow_charge *charge, struct tow_account *account,
	       const u64 amount[TOW_RESOURCES]);
void tow_uncharge(struct tow_charge *charge);
struct tow_account *tow_charge_leave(struct tow_charge *charge, u64 bytes);
void tow_account_uncharge(struct tow_account *account, u64 bytes);
int tow_charge_move(struct tow_charge *charge, struct tow_account *to,
		    struct tow_account **from);
void tow_charge_move_back(struct tow_charge *charge, struct tow_account *from);
int tow_limits_take_mr(struct tow_limits *limits);
void tow_limits_give_mr(struct tow_limits *limits);
void tow_limits_refuse_mr(struct tow_limits *limits);
u64 tow_limits_mrs(struct tow_limits *limits);
u64 tow_limits_cgroup(void);
u64 tow_limits_get(struct tow_limits *limits, enum tow_level level,
		   enum tow_resource resource);
void tow_limits_set(struct tow_limits *limits, enum tow_level level,
		    enum tow_resource resource, u64 max);
const char *tow_limits_file(enum tow_level level, enum tow_resource resource);

#endif /* TOW_LIMITS_H */

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The maintenance queue pair: the one that registers memory.
 *
 * A fast registration is a work request, so it needs a queue pair in the
 * registration's protection domain that is ready to send.  Each device has
 * one, connected to itself, over which no data goes but two words when the device is
 * tried.  It is made, and made again when it breaks, by a work item; nobody waits for
 * more than the first attempt.
 */
#ifndef TOW_MAINT_H
#define TOW_MAINT_H

#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

#include "slab.h"
#include "uapi/towline.h"

struct tow_device;

/* Work requests that may be posted at a time. */
#define TOW_MAINT_SEND_WR	16
#define TOW_MAINT_RECV_WR	1

/* What a device may turn out not to do, whatever its driver says. */
enum tow_lack {
	TOW_LACKS_ATOMICS,	/* be asked for, or allowed to peers */
	TOW_LACKS_READ_ONLY,	/* register memory that it does not write to */
	TOW_LACKS_LARGE_PAGES,	/* register memory in pages above PAGE_SIZE */
};

/**
 * struct tow_trial - the memory that a device is tried with
 * @mr: its memory region
 * @page: its first page
 * @bytes: its size: of one page of @mr
 * @dma: where the RDMA device sees it
 * @mapped: it does
 */
struct tow_trial {
	struct ib_mr	*mr;
	struct page	*page;
	u32		bytes;
	dma_addr_t	dma;
	bool		mapped;
};

/**
 * struct tow_maint - a device's maintenance queue pair
 * @dev: the device
 * @lock: protects the fields up to @stopping; taken in any context
 * @state: see enum tow_maint_state for what leads where
 * @error: what tow_query.maint_error shows
 * @rebuilds: what tow_query.maint_rebuilds shows
 * @broken: why the present queue pair is of no use any more; 0 if it is
 * @changed: something happened that may help, or that moved our address
 * @stopping: the device is going; set once, never cleared
 * @wait: whoever waits for the queue pair; woken by changes of the state and by
 *	stopping
 * @work: makes the queue pair, and makes it anew
 * @use: held by whoever makes, uses or destroys the queue pair; protects what
 *	follows
 * @attempts: how often it was tried since things last looked well
 * @ready_at: when it became ready, in jiffies
 * @was_ready: it was ready before
 * @cq: polled directly, only with @use held
 * @qp: what registrations are posted to
 * @gid: RoCE: our address at the time
 * @gid_index: RoCE: where @gid stands in the port's table
 * @lid: InfiniBand: our address at the time
 * @request: the work requests that are being executed; @request.broken: their end
 *	was the queue pair's
 * @trial: what trying the device needs, while it goes on
 * @untried: the device did not reach itself: what it can do with keys is not known
 * @lacks: what it turned out not to do: bits by enum tow_lack, never cleared; read
 *	without the lock
 * @page_bytes: the largest page of a memory region that worked; read without the lock
 */
struct tow_maint {
	struct tow_device	*dev;
	/* protects state, error, rebuilds, broken, changed, stopping */
	spinlock_t		lock;
	enum tow_maint_state	state;
	int			error;
	u32			rebuilds;
	int			broken;
	bool			changed;
	bool			stopping;

	wait_queue_head_t	wait;
	struct delayed_work	work;
	/* protects what follows */
	struct mutex		use;

	unsigned int		attempts;
	unsigned long		ready_at;
	bool			was_ready;
	struct ib_cq		*cq;
	struct ib_qp		*qp;
	union ib_gid		gid;
	int			gid_index;
	u32			lid;

	struct {
		struct ib_cqe		cqe;
		unsigned int		outstanding;
		enum ib_wc_status	status;
		bool			broken;
	} request;

	struct tow_trial	trial;
	bool			untried;
	unsigned long		lacks;
	u32			page_bytes;
};

/* Is there something that the device turned out not to do?  False if it was not tried. */
static inline bool tow_maint_lacks(const struct tow_maint *maint,
				   enum tow_lack lack)
{
	return READ_ONCE(maint->lacks) & BIT(lack);
}

/* maint.c */
void tow_maint_init(struct tow_maint *maint, struct tow_device *dev);
void tow_maint_start(struct tow_maint *maint);
void tow_maint_stop_begin(struct tow_maint *maint);
void tow_maint_stop(struct tow_maint *maint);
int tow_maint_run(struct tow_maint *maint, struct ib_send_wr *first);
void tow_maint_changed(struct tow_maint *maint);
void tow_maint_describe(struct tow_maint *maint, struct tow_query *query);

/* maint_qp.c */
bool tow_device_atomics(struct tow_device *dev);
void tow_maint_broken(struct tow_maint *maint, int error);
int tow_maint_build(struct tow_maint *maint);
void tow_maint_teardown(struct tow_maint *maint);
bool tow_maint_address_valid(struct tow_maint *maint);
bool tow_maint_port_active(struct tow_maint *maint);
int tow_maint_execute(struct tow_maint *maint, struct ib_send_wr *first);

/* maint_trial.c */
int tow_maint_try(struct tow_maint *maint);
void tow_maint_trial_free(struct tow_maint *maint);
int tow_maint_access(struct tow_maint *maint, enum tow_rights rights);

#endif /* TOW_MAINT_H */

// SPDX-License-Identifier: GPL-2.0
/*
 * tow_hostile: a node that says whatever it is told to.
 *
 * It connects to a node's listener as any other would, its own included, with
 * whatever private data, or listens itself; knows the keys that it is given; and
 * sends and receives messages as they are.  What it says is made by the test:
 * tow_hostile.h lists the calls of /dev/tow_hostile.
 *
 * A file is one connection, and ends with it; or it listens, and others take from
 * it the connections that somebody made; or it is a data queue pair, and keeps the
 * file of its control queue pair open.  While there is a connection, the RDMA
 * device must not go: it would wait for the file.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/file.h>
#include <linux/jiffies.h>
#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/wait.h>
#include <net/net_namespace.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

#include "kmod/core/address.h"
#include "kmod/conn/auth.c"
#include "kmod/core/quirks.h"
#include "tow_hostile.h"

/* For one answer of the connection manager or of the network. */
#define HOSTILE_MS	10000

/* What was said last may be just behind the connection manager's word. */
#define HOSTILE_LAST_MS	200

/* More than towline.ko ever has on its way. */
#define HOSTILE_RECEIVES	20

/* How far a connection is. */
enum hostile_step { HOSTILE_NEW, HOSTILE_ADDRESS, HOSTILE_ROUTE, HOSTILE_UP };

/**
 * struct hostile_buffer - a message that is received, or was
 * @cqe: its completion
 * @link: in hostile_file.received
 * @dma: of @data
 * @mapped: @dma holds
 * @bytes: that came
 * @data: the message
 */
struct hostile_buffer {
	struct ib_cqe		cqe;
	struct list_head	link;
	u64			dma;
	bool			mapped;
	u32			bytes;
	u8			data[TOW_HOSTILE_BYTES_MAX];
};

/* Connections that nobody has taken yet; more are not let in. */
#define HOSTILE_CALLERS		16

/**
 * struct hostile_caller - somebody wants to connect
 * @link: in hostile_file.callers
 * @id: the connection
 * @bytes: of @data
 * @data: what came with the request
 */
struct hostile_caller {
	struct list_head	link;
	struct rdma_cm_id	*id;
	u32			bytes;
	u8			data[TOW_HOSTILE_DATA_MAX];
};

/**
 * struct hostile_file - an open file, and its connection
 * @calls: held by each call
 * @id: the connection manager's; NULL: none
 * @control: of a data queue pair: the file of its control queue pair, with a
 *	reference, as its identifier keeps @device; NULL: it is none
 * @device: the queue pair's
 * @qp: the queue pair, also @id's; NULL: none
 * @pd: for the queue pair
 * @cq: for the queue pair
 * @auth: the session's keys
 * @wait: woken when something of what follows changes
 * @lock: protects what follows
 * @step: how far it is
 * @error: why not further
 * @down: the other end has gone
 * @sent: the message has completed
 * @send_status: how: enum ib_wc_status
 * @answer: what came with the answer
 * @answer_bytes: its size
 * @noted: notifications that have come
 * @immediate: the last one's
 * @received: struct hostile_buffer that nobody has asked for
 * @callers: of a file that listens: struct hostile_caller
 * @caller_count: how many
 * @out: the message that is being sent
 * @in: what is received
 */
struct hostile_file {
	/* serialises calls */
	struct mutex		calls;
	struct rdma_cm_id	*id;
	struct file		*control;
	struct ib_device	*device;
	struct ib_qp		*qp;
	struct ib_pd		*pd;
	struct ib_cq		*cq;
	struct tow_auth		auth;
	wait_queue_head_t	wait;
	/* protects step to caller_count */
	spinlock_t		lock;
	enum hostile_step	step;
	int			error;
	bool			down;
	bool			sent;
	int			send_status;
	u8			answer[TOW_HOSTILE_DATA_MAX];
	u32			answer_bytes;
	u32			noted;
	u32			immediate;
	struct list_head	received;
	struct list_head	callers;
	unsigned int		caller_count;
	struct hostile_buffer	out;
	struct hostile_buffer	in[HOSTILE_RECEIVES];
};

static const struct file_operations hostile_fops;

/* ---- the connection ------------------------------------------------------- */

static void hostile_note(struct hostile_file *file, enum hostile_step step,
			 int error, bool down)
{
	unsigned long flags;

	spin_lock_irqsave(&file->lock, flags);
	if (step > file->step)
		file->step = step;
	if (error && !file->error)
		file->error = error;
	file->down |= down;
	spin_unlock_irqrestore(&file->lock, flags);
	wake_up_all(&file->wait);
}

static void hostile_answer(struct hostile_file *file, const void *data, u8 bytes)
{
	unsigned long flags;

	spin_lock_irqsave(&file->lock, flags);
	file->answer_bytes = data ? min_t(u32, bytes, TOW_HOSTILE_DATA_MAX) : 0;
	memcpy(file->answer, data, file->answer_bytes);
	spin_unlock_irqrestore(&file->lock, flags);
}

static int hostile_event(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct hostile_file *file = id->context;
	const void *data;
	u8 bytes = 0;

	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		hostile_note(file, HOSTILE_ADDRESS, 0, false);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		hostile_note(file, HOSTILE_ROUTE, 0, false);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		hostile_answer(file, event->param.conn.private_data,
			       event->param.conn.private_data_len);
		hostile_note(file, HOSTILE_UP, 0, false);
		break;
	case RDMA_CM_EVENT_REJECTED:
		data = rdma_consumer_reject_data(id, event, &bytes);
		hostile_answer(file, data, bytes);
		hostile_note(file, HOSTILE_NEW, -ECONNREFUSED, true);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		hostile_note(file, HOSTILE_NEW, 0, true);
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	default:
		hostile_note(file, HOSTILE_NEW, event->status < 0 ?
			     event->status : -EHOSTUNREACH, true);
		break;
	}
	return 0;
}

/*
 * Of a file that listens: somebody comes, or what came has gone meanwhile, as
 * whoever takes it will find.
 */
static int hostile_called(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	const struct rdma_conn_param *param = &event->param.conn;
	struct hostile_file *file = id->context;
	struct hostile_caller *caller;
	unsigned long flags;
	bool room;

	if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST)
		return 0;
	caller = kzalloc(sizeof(*caller), GFP_KERNEL);
	if (!caller)
		return -ENOMEM;
	caller->id = id;
	if (param->private_data)
		caller->bytes = min_t(u32, param->private_data_len,
				      TOW_HOSTILE_DATA_MAX);
	memcpy(caller->data, param->private_data, caller->bytes);
	spin_lock_irqsave(&file->lock, flags);
	room = file->caller_count < HOSTILE_CALLERS;
	if (room) {
		list_add_tail(&caller->link, &file->callers);
		file->caller_count++;
	}
	spin_unlock_irqrestore(&file->lock, flags);
	if (!room) {
		kfree(caller);
		return -ENOSPC;
	}
	wake_up_all(&file->wait);
	return 0;
}

static struct hostile_caller *hostile_next_caller(struct hostile_file *file)
{
	struct hostile_caller *caller;

	spin_lock_irq(&file->lock);
	caller = list_first_entry_or_null(&file->callers,
					  struct hostile_caller, link);
	if (caller) {
		list_del(&caller->link);
		file->caller_count--;
	}
	spin_unlock_irq(&file->lock);
	return caller;
}

static bool hostile_reached(struct hostile_file *file, enum hostile_step step)
{
	return READ_ONCE(file->error) || READ_ONCE(file->step) >= step;
}

static int hostile_wait(struct hostile_file *file, enum hostile_step step,
			u32 timeout_ms)
{
	if (!wait_event_timeout(file->wait, hostile_reached(file, step),
				msecs_to_jiffies(timeout_ms)))
		return -ETIMEDOUT;
	return READ_ONCE(file->error);
}

/* ---- messages ------------------------------------------------------------- */

static int hostile_post_receive(struct hostile_file *file,
				struct hostile_buffer *buffer);

/* Nobody has to ask for it; the receive is there for the next one. */
static void hostile_notified(struct hostile_file *file,
			     struct hostile_buffer *buffer, u32 immediate)
{
	unsigned long flags;

	hostile_post_receive(file, buffer);
	spin_lock_irqsave(&file->lock, flags);
	file->noted++;
	file->immediate = immediate;
	spin_unlock_irqrestore(&file->lock, flags);
	wake_up_all(&file->wait);
}

static void hostile_received(struct ib_cq *cq, struct ib_wc *wc)
{
	struct hostile_buffer *buffer = container_of(wc->wr_cqe,
						     struct hostile_buffer,
						     cqe);
	struct hostile_file *file = cq->cq_context;
	unsigned long flags;

	if (wc->status != IB_WC_SUCCESS) {
		hostile_note(file, HOSTILE_NEW, 0, true);
		return;
	}
	if (wc->wc_flags & IB_WC_WITH_IMM) {
		hostile_notified(file, buffer, be32_to_cpu(wc->ex.imm_data));
		return;
	}
	spin_lock_irqsave(&file->lock, flags);
	buffer->bytes = wc->byte_len;
	list_add_tail(&buffer->link, &file->received);
	spin_unlock_irqrestore(&file->lock, flags);
	wake_up_all(&file->wait);
}

static int hostile_post_receive(struct hostile_file *file,
				struct hostile_buffer *buffer)
{
	struct ib_sge sge = {
		.addr	= buffer->dma,
		.length	= sizeof(buffer->data),
		.lkey	= file->pd->local_dma_lkey,
	};
	struct ib_recv_wr wr = {
		.wr_cqe		= &buffer->cqe,
		.sg_list	= &sge,
		.num_sge	= 1,
	};

	buffer->cqe.done = hostile_received;
	ib_dma_sync_single_for_device(file->device, buffer->dma,
				      sizeof(buffer->data), DMA_FROM_DEVICE);
	return ib_post_recv(file->qp, &wr, NULL);
}

static void hostile_sent(struct ib_cq *cq, struct ib_wc *wc)
{
	struct hostile_file *file = cq->cq_context;
	unsigned long flags;

	spin_lock_irqsave(&file->lock, flags);
	file->send_status = wc->status;
	file->sent = true;
	spin_unlock_irqrestore(&file->lock, flags);
	wake_up_all(&file->wait);
}

static int hostile_post_send(struct hostile_file *file, u32 bytes, u32 key)
{
	struct hostile_buffer *buffer = &file->out;
	struct ib_sge sge = {
		.addr	= buffer->dma,
		.length	= bytes,
		.lkey	= file->pd->local_dma_lkey,
	};
	struct ib_send_wr wr = {
		.wr_cqe		= &buffer->cqe,
		.sg_list	= &sge,
		.num_sge	= bytes ? 1 : 0,
		.opcode		= key ? IB_WR_SEND_WITH_INV : IB_WR_SEND,
		.send_flags	= IB_SEND_SIGNALED,
	};

	if (key)
		wr.ex.invalidate_rkey = key;
	buffer->cqe.done = hostile_sent;
	WRITE_ONCE(file->sent, false);
	ib_dma_sync_single_for_device(file->device, buffer->dma,
				      sizeof(buffer->data), DMA_TO_DEVICE);
	return ib_post_send(file->qp, &wr, NULL);
}

/* A write of nothing, with an immediate. */
static int hostile_post_notify(struct hostile_file *file, u32 immediate)
{
	struct ib_rdma_wr wr = {
		.wr = {
			.wr_cqe		= &file->out.cqe,
			.opcode		= IB_WR_RDMA_WRITE_WITH_IMM,
			.send_flags	= IB_SEND_SIGNALED,
			.ex.imm_data	= cpu_to_be32(immediate),
		},
	};

	file->out.cqe.done = hostile_sent;
	WRITE_ONCE(file->sent, false);
	return ib_post_send(file->qp, &wr.wr, NULL);
}

/* Until the other end has said whether it took it. */
static int hostile_wait_sent(struct hostile_file *file)
{
	if (!wait_event_timeout(file->wait, READ_ONCE(file->sent),
				msecs_to_jiffies(HOSTILE_MS)))
		return -ETIMEDOUT;
	return file->send_status == IB_WC_SUCCESS ? 0 : -EIO;
}

static int hostile_map(struct hostile_file *file, struct hostile_buffer *buffer,
		       enum dma_data_direction direction)
{
	buffer->dma = ib_dma_map_single(file->device, buffer->data,
					sizeof(buffer->data), direction);
	if (ib_dma_mapping_error(file->device, buffer->dma))
		return -ENOMEM;
	buffer->mapped = true;
	return 0;
}

static void hostile_unmap(struct hostile_file *file,
			  struct hostile_buffer *buffer,
			  enum dma_data_direction direction)
{
	if (buffer->mapped)
		ib_dma_unmap_single(file->device, buffer->dma,
				    sizeof(buffer->data), direction);
	buffer->mapped = false;
}

/* ---- making and ending it ------------------------------------------------- */

static int hostile_make_buffers(struct hostile_file *file, u32 receives)
{
	unsigned int i;
	int ret;

	ret = hostile_map(file, &file->out, DMA_TO_DEVICE);
	for (i = 0; !ret && i < HOSTILE_RECEIVES; i++)
		ret = hostile_map(file, &file->in[i], DMA_FROM_DEVICE);
	/* A notification brings nothing, so that some may have the same one. */
	for (i = 0; !ret && i < receives; i++)
		ret = hostile_post_receive(file,
					   &file->in[i % HOSTILE_RECEIVES]);
	return ret;
}

/* A data queue pair, by the way that the control queue pair goes; to @join. */
static int hostile_modify(struct hostile_file *file, enum ib_qp_state state,
			  const struct tow_hostile_join *join)
{
	const struct hostile_file *control = file->control->private_data;
	struct ib_qp_attr attr = { .qp_state = state };
	int mask, ret;

	ret = rdma_init_qp_attr(control->id, &attr, &mask);
	if (ret)
		return ret;
	if (state == IB_QPS_RTR) {
		attr.dest_qp_num = join->qp_num;
		attr.rq_psn = join->far_psn;
		attr.path_mtu = join->mtu;
	} else if (state == IB_QPS_RTS) {
		attr.sq_psn = join->psn;
	}
	return ib_modify_qp(file->qp, &attr, mask);
}

static int hostile_create_qp(struct hostile_file *file, u32 notifications)
{
	u32 receives = HOSTILE_RECEIVES + notifications;
	struct ib_qp_init_attr attr = {
		.cap.max_send_wr	= 2,
		.cap.max_recv_wr	= receives,
		.cap.max_send_sge	= 1,
		.cap.max_recv_sge	= 1,
		.sq_sig_type		= IB_SIGNAL_REQ_WR,
		.qp_type		= IB_QPT_RC,
	};
	struct ib_pd *pd;
	struct ib_cq *cq;
	int ret;

	pd = ib_alloc_pd(file->device, 0);
	if (IS_ERR(pd))
		return PTR_ERR(pd);
	file->pd = pd;
	cq = ib_alloc_cq_any(file->device, file, receives + 2,
			     IB_POLL_WORKQUEUE);
	if (IS_ERR(cq))
		return PTR_ERR(cq);
	file->cq = cq;
	attr.send_cq = cq;
	attr.recv_cq = cq;
	if (file->control) {
		file->qp = ib_create_qp(pd, &attr);
		ret = PTR_ERR_OR_ZERO(file->qp);
		if (ret)
			file->qp = NULL;
		else
			ret = hostile_modify(file, IB_QPS_INIT, NULL);
	} else {
		ret = rdma_create_qp(file->id, pd, &attr);
		if (!ret)
			file->qp = file->id->qp;
	}
	return ret ?: hostile_make_buffers(file, receives);
}

static int hostile_make_qp(struct hostile_file *file)
{
	file->device = file->id->device;
	/* Who finds no receive here tries again soon. */
	rdma_set_min_rnr_timer(file->id, 1);
	return hostile_create_qp(file, 0);
}

/* Nobody comes any more when the identifier that listens is gone. */
static void hostile_send_away(struct hostile_file *file)
{
	struct hostile_caller *caller;

	while ((caller = hostile_next_caller(file))) {
		rdma_destroy_id(caller->id);
		kfree(caller);
	}
}

static void hostile_end(struct hostile_file *file)
{
	unsigned int i;

	tow_auth_cleanup(&file->auth);
	if (!file->id && !file->device)
		return;
	if (file->id && file->id->event_handler == hostile_called) {
		rdma_destroy_id(file->id);
		hostile_send_away(file);
		return;
	}
	if (file->qp && file->id) {
		rdma_disconnect(file->id);
		rdma_destroy_qp(file->id);
	} else if (file->qp) {
		ib_destroy_qp(file->qp);
	}
	if (file->cq) {
		tow_rxe_run_tasklets(file->cq->device);
		ib_free_cq(file->cq);
	}
	hostile_unmap(file, &file->out, DMA_TO_DEVICE);
	for (i = 0; i < HOSTILE_RECEIVES; i++)
		hostile_unmap(file, &file->in[i], DMA_FROM_DEVICE);
	if (file->pd)
		ib_dealloc_pd(file->pd);
	if (file->id)
		rdma_destroy_id(file->id);
	if (file->control)
		fput(file->control);
}

static int hostile_resolve(struct hostile_file *file,
			   const struct tow_hostile_prepare *call)
{
	struct tow_address address = {
		.scope_id	= call->scope_id,
		.port		= call->port,
	};
	struct sockaddr_storage target;
	struct rdma_cm_id *id;
	int ret;

	memcpy(&address.in6, call->address, sizeof(address.in6));
	tow_address_to(&address, &target);
	id = rdma_create_id(&init_net, hostile_event, file, RDMA_PS_TCP,
			    IB_QPT_RC);
	if (IS_ERR(id))
		return PTR_ERR(id);
	file->id = id;
	ret = rdma_resolve_addr(id, NULL, (struct sockaddr *)&target,
				HOSTILE_MS);
	if (!ret)
		ret = hostile_wait(file, HOSTILE_ADDRESS, HOSTILE_MS);
	if (!ret)
		ret = rdma_resolve_route(id, HOSTILE_MS);
	if (!ret)
		ret = hostile_wait(file, HOSTILE_ROUTE, HOSTILE_MS);
	return ret;
}

/* ---- calls ---------------------------------------------------------------- */

static int hostile_prepare(struct hostile_file *file, void *arg)
{
	struct tow_hostile_prepare *call = arg;
	struct in6_addr source;
	int ret;

	if (file->id)
		return -EBUSY;
	ret = hostile_resolve(file, call);
	if (!ret)
		ret = hostile_make_qp(file);
	if (ret)
		return ret;
	tow_address_of(&file->id->route.addr.src_addr, &source, NULL);
	memcpy(call->source, &source, sizeof(source));
	if (memchr_inv(call->gid, 0, sizeof(call->gid)))
		memcpy(&file->id->route.path_rec->sgid, call->gid,
		       sizeof(call->gid));
	call->qp_num = file->qp->qp_num;
	return 0;
}

static int hostile_connect(struct hostile_file *file, void *arg)
{
	struct tow_hostile_connect *call = arg;
	struct rdma_conn_param param = {
		.private_data		= call->data,
		.private_data_len	= call->bytes,
		.responder_resources	= 1,
		.initiator_depth	= 1,
		.retry_count		= 6,
		.rnr_retry_count	= 6,
	};
	int ret;

	if (!file->id || !file->qp || call->bytes > TOW_HOSTILE_DATA_MAX)
		return -EINVAL;
	ret = rdma_connect(file->id, &param);
	if (!ret)
		ret = hostile_wait(file, HOSTILE_UP, call->timeout_ms);
	spin_lock_irq(&file->lock);
	call->bytes = file->answer_bytes;
	memcpy(call->data, file->answer, sizeof(call->data));
	spin_unlock_irq(&file->lock);
	return ret;
}

static int hostile_derive(struct hostile_file *file, void *arg)
{
	struct tow_hostile_derive *call = arg;
	struct tow_handshake handshake;
	u8 mac[TOW_WIRE_MAC_BYTES];
	struct crypto_shash *hmac;
	int ret;

	if (call->key_bytes > sizeof(call->key))
		return -EINVAL;
	memcpy(&handshake.request, call->request, sizeof(call->request));
	memcpy(&handshake.reply, call->reply, sizeof(call->reply));
	memcpy(&handshake.initiator, call->initiator, sizeof(call->initiator));
	memcpy(&handshake.responder, call->responder, sizeof(call->responder));
	if (call->key_bytes)
		hmac = tow_auth_keyed(call->key, call->key_bytes);
	else
		hmac = tow_auth_keyed(tow_auth_no_key, sizeof(tow_auth_no_key));
	if (IS_ERR(hmac))
		return PTR_ERR(hmac);
	tow_auth_cleanup(&file->auth);
	ret = tow_auth_request_mac(hmac, &handshake, mac) ?:
	      tow_auth_derive_from(&file->auth, hmac, &handshake,
				   !call->answered, call->reply_mac);
	memcpy(call->request_mac, mac, sizeof(call->request_mac));
	crypto_free_shash(hmac);
	if (ret)
		tow_auth_cleanup(&file->auth);
	memcpy(call->initiator_mac, file->auth.initiator_mac,
	       sizeof(call->initiator_mac));
	return ret;
}

static int hostile_send(struct hostile_file *file, void *arg)
{
	struct tow_hostile_message *call = arg;
	int ret = 0;

	if (!file->qp || (!call->bytes && !call->key) ||
	    call->bytes > TOW_HOSTILE_BYTES_MAX)
		return -EINVAL;
	memcpy(file->out.data, call->data, call->bytes);
	if (call->sign)
		ret = tow_auth_sign(&file->auth, file->out.data, call->bytes);
	if (!ret)
		ret = hostile_post_send(file, call->bytes, call->key);
	return ret ?: hostile_wait_sent(file);
}

static int hostile_notify(struct hostile_file *file, void *arg)
{
	struct tow_hostile_notify *call = arg;
	u32 taken, immediate = call->immediate;
	int ret = 0;

	if (!file->qp)
		return -EINVAL;
	for (taken = 0; !ret && taken < call->count; taken += !ret) {
		ret = hostile_post_notify(file, immediate);
		if (!ret)
			ret = hostile_wait_sent(file);
		immediate += call->step;
	}
	call->count = taken;
	return ret;
}

static int hostile_noted(struct hostile_file *file, void *arg)
{
	struct tow_hostile_noted *call = arg;

	wait_event_timeout(file->wait, READ_ONCE(file->down) ||
			   READ_ONCE(file->noted) >= call->count,
			   msecs_to_jiffies(call->timeout_ms));
	spin_lock_irq(&file->lock);
	call->count = file->noted;
	call->immediate = file->immediate;
	spin_unlock_irq(&file->lock);
	return 0;
}

/* The connection manager is not told. */
static int hostile_deaf(struct hostile_file *file, void *arg)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_RESET };

	if (!file->qp)
		return -EINVAL;
	return ib_modify_qp(file->qp, &attr, IB_QP_STATE);
}

static struct hostile_buffer *hostile_next(struct hostile_file *file)
{
	struct hostile_buffer *buffer;

	spin_lock_irq(&file->lock);
	buffer = list_first_entry_or_null(&file->received,
					  struct hostile_buffer, link);
	if (buffer)
		list_del(&buffer->link);
	spin_unlock_irq(&file->lock);
	return buffer;
}

static int hostile_receive(struct hostile_file *file, void *arg)
{
	struct tow_hostile_message *call = arg;
	struct hostile_buffer *buffer;

	if (!file->qp)
		return -EINVAL;
	wait_event_timeout(file->wait, READ_ONCE(file->down) ||
			   !list_empty_careful(&file->received),
			   msecs_to_jiffies(call->timeout_ms));
	if (READ_ONCE(file->down))
		wait_event_timeout(file->wait,
				   !list_empty_careful(&file->received),
				   msecs_to_jiffies(HOSTILE_LAST_MS));
	buffer = hostile_next(file);
	if (!buffer)
		return READ_ONCE(file->down) ? -ENOTCONN : -ETIMEDOUT;
	ib_dma_sync_single_for_cpu(file->device, buffer->dma,
				   sizeof(buffer->data), DMA_FROM_DEVICE);
	call->bytes = buffer->bytes;
	memcpy(call->data, buffer->data, buffer->bytes);
	call->sign = tow_auth_verify(&file->auth, buffer->data, buffer->bytes);
	return READ_ONCE(file->down) ? 0 : hostile_post_receive(file, buffer);
}

static int hostile_listen(struct hostile_file *file, void *arg)
{
	struct tow_hostile_listen *call = arg;
	struct tow_address address = { .port = call->port };
	struct sockaddr_storage source;
	struct rdma_cm_id *id;
	int ret;

	if (file->id)
		return -EBUSY;
	memcpy(&address.in6, call->address, sizeof(address.in6));
	tow_address_to(&address, &source);
	id = rdma_create_id(&init_net, hostile_called, file, RDMA_PS_TCP,
			    IB_QPT_RC);
	if (IS_ERR(id))
		return PTR_ERR(id);
	file->id = id;
	ret = rdma_bind_addr(id, (struct sockaddr *)&source);
	return ret ?: rdma_listen(id, HOSTILE_CALLERS);
}

/* The connection is this file's from now on, and so is what happens to it. */
static void hostile_adopt(struct hostile_file *file, struct rdma_cm_id *id)
{
	rdma_lock_handler(id);
	id->event_handler = hostile_event;
	id->context = file;
	rdma_unlock_handler(id);
	file->id = id;
}

static int hostile_take_from(struct hostile_file *file,
			     struct hostile_file *listener,
			     struct tow_hostile_take *call)
{
	struct hostile_caller *caller;
	struct in6_addr address;

	wait_event_timeout(listener->wait,
			   !list_empty_careful(&listener->callers),
			   msecs_to_jiffies(call->timeout_ms));
	caller = hostile_next_caller(listener);
	if (!caller)
		return -ETIMEDOUT;
	hostile_adopt(file, caller->id);
	call->bytes = caller->bytes;
	memcpy(call->data, caller->data, caller->bytes);
	kfree(caller);
	tow_address_of(&file->id->route.addr.dst_addr, &address, NULL);
	memcpy(call->source, &address, sizeof(address));
	tow_address_of(&file->id->route.addr.src_addr, &address, NULL);
	memcpy(call->address, &address, sizeof(address));
	return 0;
}

static int hostile_take(struct hostile_file *file, void *arg)
{
	struct tow_hostile_take *call = arg;
	struct file *filp;
	int ret = -EINVAL;

	if (file->id)
		return -EBUSY;
	filp = fget(call->listener);
	if (!filp)
		return -EBADF;
	if (filp->f_op == &hostile_fops && filp->private_data != file)
		ret = hostile_take_from(file, filp->private_data, call);
	fput(filp);
	if (ret)
		return ret;
	ret = hostile_make_qp(file);
	/* The connection manager makes no queue pair for what is over. */
	if (ret)
		return ret == -EINVAL ? -ENOTCONN : ret;
	call->qp_num = file->qp->qp_num;
	return 0;
}

static int hostile_reply(struct hostile_file *file, void *arg)
{
	struct tow_hostile_answer *call = arg;
	struct rdma_conn_param param = {
		.private_data		= call->data,
		.private_data_len	= call->bytes,
		.responder_resources	= 1,
		.initiator_depth	= 1,
		.retry_count		= 6,
		.rnr_retry_count	= 6,
	};
	int ret;

	if (!file->id || !file->qp || call->bytes > TOW_HOSTILE_DATA_MAX)
		return -EINVAL;
	if (call->reject)
		return rdma_reject(file->id, call->data, call->bytes,
				   call->reject);
	rdma_lock_handler(file->id);
	ret = rdma_accept(file->id, &param);
	rdma_unlock_handler(file->id);
	if (!ret && call->timeout_ms)
		ret = hostile_wait(file, HOSTILE_UP, call->timeout_ms);
	return ret;
}

static int hostile_data(struct hostile_file *file, void *arg)
{
	struct tow_hostile_data *call = arg;
	struct hostile_file *other;
	struct file *filp;
	int ret;

	if (file->id || file->device)
		return -EBUSY;
	if (call->notifications > TOW_HOSTILE_NOTIFICATIONS_MAX)
		return -EINVAL;
	filp = fget(call->control);
	if (!filp)
		return -EBADF;
	other = filp->private_data;
	if (filp->f_op != &hostile_fops || !other->id || !other->qp) {
		fput(filp);
		return -EINVAL;
	}
	file->control = filp;
	file->device = other->device;
	ret = hostile_create_qp(file, call->notifications);
	if (!ret)
		call->qp_num = file->qp->qp_num;
	return ret;
}

static int hostile_join(struct hostile_file *file, void *arg)
{
	struct tow_hostile_join *call = arg;
	int ret;

	if (!file->control || !file->qp)
		return -EINVAL;
	ret = hostile_modify(file, IB_QPS_RTR, call);
	return ret ?: hostile_modify(file, IB_QPS_RTS, call);
}

static const struct {
	int (*call)(struct hostile_file *file, void *arg);
	size_t bytes;
} hostile_calls[] = {
	{ hostile_prepare, sizeof(struct tow_hostile_prepare) },
	{ hostile_connect, sizeof(struct tow_hostile_connect) },
	{ hostile_derive, sizeof(struct tow_hostile_derive) },
	{ hostile_data, sizeof(struct tow_hostile_data) },
	{ hostile_send, sizeof(struct tow_hostile_message) },
	{ hostile_receive, sizeof(struct tow_hostile_message) },
	{ hostile_listen, sizeof(struct tow_hostile_listen) },
	{ hostile_take, sizeof(struct tow_hostile_take) },
	{ hostile_reply, sizeof(struct tow_hostile_answer) },
	{ hostile_notify, sizeof(struct tow_hostile_notify) },
	{ hostile_noted, sizeof(struct tow_hostile_noted) },
	{ hostile_deaf, sizeof(u32) },
	{ hostile_join, sizeof(struct tow_hostile_join) },
};

static long hostile_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	struct hostile_file *file = filp->private_data;
	void __user *user = (void __user *)arg;
	unsigned int number = _IOC_NR(cmd);
	void *room;
	int ret;

	if (_IOC_TYPE(cmd) != TOW_HOSTILE_TYPE ||
	    number >= ARRAY_SIZE(hostile_calls))
		return -ENOTTY;
	room = memdup_user(user, hostile_calls[number].bytes);
	if (IS_ERR(room))
		return PTR_ERR(room);
	mutex_lock(&file->calls);
	ret = hostile_calls[number].call(file, room);
	mutex_unlock(&file->calls);
	/* After errors too: a rejection says why. */
	if (copy_to_user(user, room, hostile_calls[number].bytes))
		ret = -EFAULT;
	kfree_sensitive(room);
	return ret;
}

static int hostile_open(struct inode *inode, struct file *filp)
{
	struct hostile_file *file = kzalloc(sizeof(*file), GFP_KERNEL);

	if (!file)
		return -ENOMEM;
	mutex_init(&file->calls);
	init_waitqueue_head(&file->wait);
	spin_lock_init(&file->lock);
	INIT_LIST_HEAD(&file->received);
	INIT_LIST_HEAD(&file->callers);
	filp->private_data = file;
	return 0;
}

static int hostile_release(struct inode *inode, struct file *filp)
{
	struct hostile_file *file = filp->private_data;

	hostile_end(file);
	kfree(file);
	return 0;
}

static const struct file_operations hostile_fops = {
	.owner		= THIS_MODULE,
	.open		= hostile_open,
	.release	= hostile_release,
	.unlocked_ioctl	= hostile_ioctl,
};

static struct miscdevice hostile_misc = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= "tow_hostile",
	.fops	= &hostile_fops,
};

module_misc_device(hostile_misc);

MODULE_DESCRIPTION("a node that says whatever it is told to, for towline's tests");
MODULE_LICENSE("GPL");

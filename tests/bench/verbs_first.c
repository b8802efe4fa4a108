// SPDX-License-Identifier: GPL-2.0
/*
 * How long a new process takes until its first write to a peer has completed,
 * without towline: from exec, over librdmacm's connection, memory of its own
 * that it registers, and the write.  COUNT processes one after the other; the
 * median, the 99th percentile and the mean in microseconds.
 *
 * The peer is a thread of the process that starts them, with memory that was
 * registered once; it tells where that is when it accepts.  ring_first.c does the
 * same through towline.
 */
/* build: link -lrdmacm -libverbs */
#include <getopt.h>
#include <pthread.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include "spawn.h"
#include "work.h"

#define BYTES		((size_t)64 << 10)
#define PAGE		4096UL
#define PORT		"18516"
#define WAIT_MS		5000

/* What travels with the answer. */
struct target {
	uint64_t address;
	uint32_t key;
	uint32_t reserved;
};

static void check(const char *what, int ret)
{
	if (ret)
		die(what, ret < 0 ? errno : ret);
}

static struct ibv_mr *make_memory(struct ibv_pd *pd)
{
	void *memory = aligned_alloc(PAGE, BYTES);
	struct ibv_mr *mr;

	if (!memory)
		die("memory", ENOMEM);
	memset(memory, 0, BYTES);
	mr = ibv_reg_mr(pd, memory, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!mr)
		die("ibv_reg_mr", errno);
	return mr;
}

static void make_qp(struct rdma_cm_id *id, struct ibv_pd *pd)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	/* With completion queues of its own. */
	check("rdma_create_qp", rdma_create_qp(id, pd, &attr));
}

/* ---- the new process --------------------------------------------------------- */

static void await_completion(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int found;

	do {
		found = ibv_poll_cq(cq, 1, &wc);
	} while (!found);
	if (found < 0 || wc.status != IBV_WC_SUCCESS)
		die("write", EIO);
}

static void write_to(struct rdma_cm_id *id, const struct ibv_mr *mr, const struct target *target)
{
	struct ibv_sge sge = { .addr = (uintptr_t)mr->addr, .length = 8, .lkey = mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = target->address, .rkey = target->key },
	};
	struct ibv_send_wr *bad;

	check("ibv_post_send", ibv_post_send(id->qp, &wr, &bad));
	await_completion(id->send_cq);
}

static void write_once(const char *address, int done)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *found;
	struct rdma_conn_param param = { .retry_count = 6 };
	struct rdma_cm_id *id;
	struct target target;
	struct ibv_mr *mr;

	check("rdma_getaddrinfo", rdma_getaddrinfo(address, PORT, &hints, &found));
	/* Without an event channel each step is waited for. */
	check("rdma_create_id", rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	check("rdma_resolve_addr", rdma_resolve_addr(id, NULL, found->ai_dst_addr, WAIT_MS));
	check("rdma_resolve_route", rdma_resolve_route(id, WAIT_MS));
	make_qp(id, NULL);
	mr = make_memory(id->pd);
	check("rdma_connect", rdma_connect(id, &param));
	if (!id->event || id->event->param.conn.private_data_len < sizeof(target))
		die("what the peer said", EPROTO);
	memcpy(&target, id->event->param.conn.private_data, sizeof(target));
	write_to(id, mr, &target);
	spawn_done(done);
	rdma_disconnect(id);
}

/* ---- the peer ------------------------------------------------------------------ */

struct server {
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
};

static void accept_one(struct server *server, struct rdma_cm_id *id)
{
	struct target target;
	struct rdma_conn_param param = {
		.private_data = &target, .private_data_len = sizeof(target), .rnr_retry_count = 6,
	};

	/* All of them are on one device. */
	if (!server->mr) {
		struct ibv_pd *pd = ibv_alloc_pd(id->verbs);

		if (!pd)
			die("ibv_alloc_pd", errno);
		server->mr = make_memory(pd);
	}
	make_qp(id, server->mr->pd);
	target = (struct target){
		.address = (uintptr_t)server->mr->addr, .key = server->mr->rkey,
	};
	check("rdma_accept", rdma_accept(id, &param));
}

static void *serve(void *argument)
{
	struct server *server = argument;
	struct rdma_cm_event *event;

	while (!rdma_get_cm_event(server->events, &event)) {
		struct rdma_cm_id *id = event->id;
		enum rdma_cm_event_type type = event->event;

		if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
			accept_one(server, id);
		rdma_ack_cm_event(event);
		if (type == RDMA_CM_EVENT_DISCONNECTED) {
			rdma_destroy_qp(id);
			rdma_destroy_id(id);
		}
	}
	return NULL;
}

static void start_server(const char *address)
{
	static struct server server;
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *found;
	pthread_t thread;

	server.events = rdma_create_event_channel();
	if (!server.events)
		die("rdma_create_event_channel", errno);
	check("rdma_getaddrinfo", rdma_getaddrinfo(address, PORT, &hints, &found));
	check("rdma_create_id", rdma_create_id(server.events, &server.id, NULL, RDMA_PS_TCP));
	check("rdma_bind_addr", rdma_bind_addr(server.id, found->ai_src_addr));
	check("rdma_listen", rdma_listen(server.id, 1));
	check("pthread_create", pthread_create(&thread, NULL, serve, &server));
}

int main(int argc, char **argv)
{
	const char *address = NULL;
	uint32_t count = 1, done = 0;
	bool valid = true;
	int option;

	while ((option = getopt(argc, argv, "a:n:c:")) != -1) {
		switch (option) {
		case 'a': address = optarg; break;
		case 'n': valid = valid && work_number(optarg, 1, 100000, &count); break;
		case 'c': valid = valid && work_number(optarg, 3, 1000, &done); break;
		default: valid = false;
		}
	}
	if (!valid || !address || optind != argc) {
		fputs("usage: verbs_first -a OWN_ADDRESS [-n COUNT]\n", stderr);
		return 2;
	}
	if (done) {
		write_once(address, (int)done);
		return 0;
	}
	start_server(address);
	spawn_report((char *[]){ argv[0], (char *)"-a", (char *)address, NULL, NULL, NULL }, count);
	return 0;
}

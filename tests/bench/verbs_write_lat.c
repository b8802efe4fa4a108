// SPDX-License-Identifier: GPL-2.0
/*
 * How long a small RDMA write takes through plain libibverbs, measured the
 * way perftest does it, so that the two agree and what later measures say
 * about towline can be believed.
 *
 * Two processes, each with its own context and QP on the same device, which
 * so talks to itself:
 *
 *	-m pingpong	as ib_write_lat: each side writes when it sees the other's
 *			write in its memory; half a round trip.
 *	-m completion	as ib_write_bw -t 1: one side posts and waits for the
 *			completion, the other sleeps.
 *
 * Prints the median, the 99th percentile and the mean in microseconds.
 */
/* build: link -libverbs */
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include "sample.h"
#include "tests/kselftest/tow_verbs.h"

/* What perftest uses, so that both ask the device for the same. */
#define PORT		1
#define PSN		0x1234
#define QP_TIMEOUT	14
#define QP_RETRIES	7
#define RNR_TIMER	12
#define INLINE_BYTES	220
#define SEND_DEPTH	1
#define BUFFER_BYTES	4096UL

struct options {
	const char *device;
	int gid_index;
	uint32_t bytes;
	unsigned int count;
	bool pingpong;
	int cpu[2];
};

/* One side of the pair. */
struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	/* first half is written by the peer, second half is sent from */
	volatile uint8_t *incoming;
	uint8_t *outgoing;
	uint32_t bytes;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
};

/* What the other side must know of this one. */
struct address {
	union ibv_gid gid;
	uint64_t memory;
	uint32_t rkey;
	uint32_t qp_number;
	uint32_t mtu;
};

static void __attribute__((noreturn)) die(const char *what)
{
	fprintf(stderr, "verbs_write_lat: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void make_qp(struct side *side)
{
	struct ibv_qp_init_attr init = {
		.send_cq = side->cq,
		.recv_cq = side->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {
			.max_send_wr = SEND_DEPTH,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = INLINE_BYTES,
		},
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = PORT,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};

	side->qp = ibv_create_qp(side->pd, &init);
	if (!side->qp)
		die("ibv_create_qp");
	if (ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
			  IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("QP to INIT");
}

static void open_side(struct side *side, const struct options *options)
{
	uint8_t *memory = aligned_alloc(BUFFER_BYTES, 2 * BUFFER_BYTES);

	if (!memory)
		die("memory");
	memset(memory, 0, 2 * BUFFER_BYTES);
	side->incoming = memory;
	side->outgoing = memory + BUFFER_BYTES;
	side->bytes = options->bytes;
	side->context = tow_verbs_open(options->device);
	if (!side->context)
		die(options->device);
	side->pd = ibv_alloc_pd(side->context);
	if (!side->pd)
		die("ibv_alloc_pd");
	side->mr = ibv_reg_mr(side->pd, memory, 2 * BUFFER_BYTES,
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!side->mr)
		die("ibv_reg_mr");
	side->cq = ibv_create_cq(side->context, SEND_DEPTH + 1, NULL, NULL, 0);
	if (!side->cq)
		die("ibv_create_cq");
	make_qp(side);
}

static struct address address_of(const struct side *side, const struct options *options)
{
	struct address own = {
		.memory = (uintptr_t)side->incoming,
		.rkey = side->mr->rkey,
		.qp_number = side->qp->qp_num,
	};
	struct ibv_port_attr port;

	if (ibv_query_port(side->context, PORT, &port))
		die("ibv_query_port");
	own.mtu = port.active_mtu;
	if (ibv_query_gid(side->context, PORT, options->gid_index, &own.gid))
		die("ibv_query_gid");
	return own;
}

static void connect_side(struct side *side, const struct options *options,
			 const struct address *peer)
{
	struct ibv_qp_attr ready_to_receive = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = peer->mtu,
		.dest_qp_num = peer->qp_number,
		.rq_psn = PSN,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = RNR_TIMER,
		.ah_attr = {
			.is_global = 1,
			.port_num = PORT,
			.grh = {
				.dgid = peer->gid,
				.sgid_index = options->gid_index,
				.hop_limit = 64,
			},
		},
	};
	struct ibv_qp_attr ready_to_send = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = PSN,
		.timeout = QP_TIMEOUT,
		.retry_cnt = QP_RETRIES,
		.rnr_retry = QP_RETRIES,
		.max_rd_atomic = 1,
	};

	if (ibv_modify_qp(side->qp, &ready_to_receive,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		die("QP to RTR");
	if (ibv_modify_qp(side->qp, &ready_to_send,
			  IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			  IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC))
		die("QP to RTS");
	side->sge = (struct ibv_sge) {
		.addr = (uintptr_t)side->outgoing,
		.length = side->bytes,
		.lkey = side->mr->lkey,
	};
	side->wr = (struct ibv_send_wr) {
		.sg_list = &side->sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED |
			      (side->bytes <= INLINE_BYTES ? IBV_SEND_INLINE : 0),
		.wr.rdma = { .remote_addr = peer->memory, .rkey = peer->rkey },
	};
}

static void exchange(int fd, const struct address *own, struct address *peer)
{
	if (write(fd, own, sizeof(*own)) != sizeof(*own) ||
	    read(fd, peer, sizeof(*peer)) != sizeof(*peer))
		die("the other side is gone");
}

/* Both are ready to receive before either sends. */
static void meet(int fd)
{
	char byte = 0;

	if (write(fd, &byte, 1) != 1 || read(fd, &byte, 1) != 1)
		die("the other side is gone");
}

static void post(struct side *side, uint8_t mark)
{
	struct ibv_send_wr *bad;

	side->outgoing[side->bytes - 1] = mark;
	if (ibv_post_send(side->qp, &side->wr, &bad))
		die("ibv_post_send");
}

static void await_completion(struct side *side)
{
	struct ibv_wc wc;
	int found;

	do {
		found = ibv_poll_cq(side->cq, 1, &wc);
	} while (!found);
	if (found < 0 || wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "verbs_write_lat: completion: %s\n",
			found < 0 ? "cannot poll" : ibv_wc_status_str(wc.status));
		exit(1);
	}
}

static void await_write(const struct side *side, uint8_t mark)
{
	while (side->incoming[side->bytes - 1] != mark)
		;
}

/* The side that measures. */
static void run_client(struct side *side, const struct options *options)
{
	double *sample = calloc(options->count, sizeof(*sample));
	double before, after;

	if (!sample)
		die("memory");
	before = now_us();
	for (unsigned int i = 0; i < options->count; i++) {
		post(side, i + 1);
		await_completion(side);
		if (options->pingpong)
			await_write(side, i + 1);
		after = now_us();
		sample[i] = (after - before) / (options->pingpong ? 2 : 1);
		before = after;
	}
	report(sample, options->count);
	free(sample);
}

static void run_server(struct side *side, const struct options *options)
{
	for (unsigned int i = 0; options->pingpong && i < options->count; i++) {
		await_write(side, i + 1);
		post(side, i + 1);
		await_completion(side);
	}
}

static void run_side(const struct options *options, int fd, bool client)
{
	struct side side = { 0 };
	struct address own, peer;
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(options->cpu[client], &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus))
		die("pinning");
	open_side(&side, options);
	own = address_of(&side, options);
	exchange(fd, &own, &peer);
	connect_side(&side, options, &peer);
	meet(fd);
	if (client)
		run_client(&side, options);
	else
		run_server(&side, options);
	/* Nobody leaves while the other's writes are on their way. */
	meet(fd);
	ibv_destroy_qp(side.qp);
	ibv_destroy_cq(side.cq);
	ibv_dereg_mr(side.mr);
	ibv_dealloc_pd(side.pd);
	ibv_close_device(side.context);
	free((void *)side.incoming);
}

static void __attribute__((noreturn)) usage(void)
{
	fputs("usage: verbs_write_lat -d DEVICE [-x GID_INDEX] [-s BYTES] [-n COUNT]\n"
	      "                       [-m pingpong|completion] [-c SERVER_CPU,CLIENT_CPU]\n", stderr);
	exit(2);
}

static unsigned int number(const char *text, unsigned int least, unsigned int most)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (!*text || *end || value < least || value > most)
		usage();
	return value;
}

static void parse_cpus(struct options *options, char *text)
{
	char *second = strchr(text, ',');

	if (!second)
		usage();
	*second = 0;
	options->cpu[0] = number(text, 0, CPU_SETSIZE - 1);
	options->cpu[1] = number(second + 1, 0, CPU_SETSIZE - 1);
}

static struct options parse(int argc, char **argv)
{
	struct options options = {
		.gid_index = 1, .bytes = 8, .count = 1000, .pingpong = true, .cpu = { 0, 0 },
	};
	int option;

	while ((option = getopt(argc, argv, "d:x:s:n:m:c:")) != -1) {
		switch (option) {
		case 'd': options.device = optarg; break;
		case 'x': options.gid_index = number(optarg, 0, 255); break;
		case 's': options.bytes = number(optarg, 1, BUFFER_BYTES); break;
		case 'n': options.count = number(optarg, 1, 10000000); break;
		case 'c': parse_cpus(&options, optarg); break;
		case 'm':
			options.pingpong = !strcmp(optarg, "pingpong");
			if (!options.pingpong && strcmp(optarg, "completion"))
				usage();
			break;
		default: usage();
		}
	}
	if (!options.device || optind != argc)
		usage();
	return options;
}

int main(int argc, char **argv)
{
	struct options options = parse(argc, argv);
	int fd[2], status;
	pid_t server;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd))
		die("socketpair");
	server = fork();
	if (server < 0)
		die("fork");
	if (server == 0) {
		/* A server whose client failed would wait for ever. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fd[1]);
		run_side(&options, fd[0], false);
		return 0;
	}
	close(fd[0]);
	run_side(&options, fd[1], true);
	if (waitpid(server, &status, 0) < 0 || status)
		return 1;
	return 0;
}

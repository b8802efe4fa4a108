// SPDX-License-Identifier: GPL-2.0
/*
 * How long reads and writes take through plain libibverbs: what ring.c and
 * raw.c measure, by a program that does it as quickly as verbs let it.
 *
 * Two queue pairs on the device, which so talks to itself.  Small writes are
 * handed over with their request (inline), completions are polled for, or (-z) come by
 * a channel.
 *
 * work.h has most options, and
 *
 *	-x INDEX	of the address in the device's table
 *	-k COUNT	each operation counts as so many, which the program merged
 *			by itself
 *	-m each		one after the other, each timed: the median, the 99th
 *			percentile and the mean in microseconds
 *	-m many		as many at a time as the window has: what one takes, and how
 *			much that makes in a second
 */
/* build: link -libverbs */
#include <getopt.h>
#include <infiniband/verbs.h>
#include "tests/kselftest/tow_verbs.h"
#include "work.h"

#define PORT		1
#define PSN		0x1234
#define QP_TIMEOUT	14
#define QP_RETRIES	6
#define RNR_TIMER	12
/* As many as towline's own queue pairs have. */
#define READS		16
/* What perftest takes. */
#define INLINE_BYTES	220
#define PAGE		4096UL

enum end { ASKS, ANSWERS, ENDS };

struct state {
	struct work work;
	bool each;
	uint32_t gid_index, merged;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp[ENDS];
	struct ibv_mr *mr[ENDS];
	struct ibv_send_wr wr[WORK_LIST_MAX];
	struct ibv_sge sge[WORK_LIST_MAX];
};

/* ---- two ends ---------------------------------------------------------------- */

static void make_memory(struct state *state, enum end end)
{
	size_t bytes = (work_memory(&state->work) + PAGE - 1) / PAGE * PAGE;
	void *memory = aligned_alloc(PAGE, bytes);

	if (!memory)
		die("memory", ENOMEM);
	memset(memory, 0, bytes);
	state->mr[end] = ibv_reg_mr(state->pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE |
				    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	if (!state->mr[end])
		die("ibv_reg_mr", errno);
}

static void make_qp(struct state *state, enum end end)
{
	struct ibv_qp_init_attr init = {
		.send_cq = state->cq,
		.recv_cq = state->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {
			.max_send_wr = state->work.window > WORK_WINDOW_MAX ?
				       WORK_LIST_MAX : WORK_WINDOW_MAX,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = INLINE_BYTES,
		},
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = PORT,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
	};

	state->qp[end] = ibv_create_qp(state->pd, &init);
	if (!state->qp[end])
		die("ibv_create_qp", errno);
	if (ibv_modify_qp(state->qp[end], &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
			  IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("QP to INIT", errno);
}

static void connect_qp(struct state *state, enum end end)
{
	struct ibv_qp_attr receive = {
		.qp_state = IBV_QPS_RTR,
		.dest_qp_num = state->qp[!end]->qp_num,
		.rq_psn = PSN,
		.max_dest_rd_atomic = READS,
		.min_rnr_timer = RNR_TIMER,
		.ah_attr = {
			.is_global = 1,
			.port_num = PORT,
			.grh = { .sgid_index = (uint8_t)state->gid_index, .hop_limit = 64 },
		},
	};
	struct ibv_qp_attr send = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = PSN,
		.timeout = QP_TIMEOUT,
		.retry_cnt = QP_RETRIES,
		.rnr_retry = QP_RETRIES,
		.max_rd_atomic = READS,
	};
	struct ibv_port_attr port;

	if (ibv_query_port(state->context, PORT, &port) ||
	    ibv_query_gid(state->context, PORT, (int)state->gid_index,
			  &receive.ah_attr.grh.dgid))
		die("port", errno);
	receive.path_mtu = port.active_mtu;
	if (ibv_modify_qp(state->qp[end], &receive,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		die("QP to RTR", errno);
	if (ibv_modify_qp(state->qp[end], &send,
			  IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			  IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC))
		die("QP to RTS", errno);
}

static void make_ends(struct state *state)
{
	state->context = tow_verbs_open(state->work.device);
	if (!state->context)
		die(state->work.device, errno);
	state->pd = ibv_alloc_pd(state->context);
	if (!state->pd)
		die("ibv_alloc_pd", errno);
	if (state->work.asleep) {
		state->channel = ibv_create_comp_channel(state->context);
		if (!state->channel)
			die("ibv_create_comp_channel", errno);
	}
	state->cq = ibv_create_cq(state->context, 2 * (int)WORK_WINDOW_MAX, NULL,
				  state->channel, 0);
	if (!state->cq)
		die("ibv_create_cq", errno);
	for (enum end end = 0; end < ENDS; end++) {
		make_memory(state, end);
		make_qp(state, end);
	}
	for (enum end end = 0; end < ENDS; end++)
		connect_qp(state, end);
}

/* ---- posting and polling ----------------------------------------------------- */

/* The chain stays as it is; only the places move on. */
static void prepare(struct state *state)
{
	const struct work *work = &state->work;
	bool handed_over = !work->read && work->bytes <= INLINE_BYTES;

	for (uint32_t i = 0; i < work->batch; i++) {
		bool last = i == work->batch - 1;

		state->sge[i].length = work->bytes;
		state->sge[i].lkey = state->mr[ASKS]->lkey;
		state->wr[i] = (struct ibv_send_wr){
			.next = last ? NULL : &state->wr[i + 1],
			.sg_list = &state->sge[i],
			.num_sge = 1,
			.opcode = work->read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
			.send_flags = (last ? IBV_SEND_SIGNALED : 0) |
				      (handed_over ? IBV_SEND_INLINE : 0),
			.wr.rdma.rkey = state->mr[ANSWERS]->rkey,
		};
	}
}

static void post(struct state *state, uint32_t first)
{
	struct ibv_send_wr *bad;

	for (uint32_t i = 0; i < state->work.batch; i++) {
		uint64_t offset = work_offset(&state->work, first + i);

		state->sge[i].addr = (uintptr_t)state->mr[ASKS]->addr + offset;
		state->wr[i].wr.rdma.remote_addr = (uintptr_t)state->mr[ANSWERS]->addr + offset;
	}
	if (ibv_post_send(state->qp[ASKS], &state->wr[0], &bad))
		die("ibv_post_send", errno);
}

/* Sleep until something has completed; the queue was armed before it was posted. */
static void sleep_for_one(struct state *state)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(state->channel, &cq, &context))
		die("ibv_get_cq_event", errno);
	ibv_ack_cq_events(cq, 1);
	if (ibv_req_notify_cq(cq, 0))
		die("ibv_req_notify_cq", errno);
}

/* Wait for completions: how many operations have completed. */
static uint32_t await(struct state *state)
{
	struct ibv_wc wc[16];
	int found;

	if (state->channel)
		sleep_for_one(state);
	do {
		found = ibv_poll_cq(state->cq, 16, wc);
	} while (!found);
	for (int i = 0; i < found; i++) {
		if (wc[i].status != IBV_WC_SUCCESS)
			die(ibv_wc_status_str(wc[i].status), EIO);
	}
	if (found < 0)
		die("ibv_poll_cq", EIO);
	return (uint32_t)found * state->work.batch;
}

static void run(struct state *state, uint32_t count)
{
	const struct work *work = &state->work;
	uint32_t posted = 0, completed = 0;

	while (completed < count) {
		for (; posted < count && posted - completed < work->window;
		     posted += work->batch)
			post(state, posted);
		completed += await(state);
	}
}

/* ---- what is done ------------------------------------------------------------ */

static void run_each(struct state *state)
{
	double *sample = calloc(state->work.count, sizeof(*sample));
	double before, after;

	if (!sample)
		die("memory", ENOMEM);
	before = now_us();
	for (uint32_t i = 0; i < state->work.count; i++) {
		post(state, i);
		await(state);
		after = now_us();
		sample[i] = after - before;
		before = after;
	}
	report(sample, state->work.count);
	free(sample);
}

static void run_many(struct state *state)
{
	double before = now_us();

	run(state, state->work.count);
	work_report(now_us() - before, (double)state->work.count * state->merged,
		    (double)state->work.bytes / state->merged);
}

static bool parse_option(struct state *state, int option, const char *value)
{
	switch (option) {
	case 'x': return work_number(value, 0, 255, &state->gid_index);
	case 'k': return work_number(value, 1, 4096, &state->merged);
	case 'm':
		state->each = !strcmp(value, "each");
		return state->each || !strcmp(value, "many");
	default: return work_option(&state->work, option, value);
	}
}

int main(int argc, char **argv)
{
	static struct state state = { .work = WORK_DEFAULT, .gid_index = 1, .merged = 1 };
	int option;

	while ((option = getopt(argc, argv, WORK_OPTIONS "x:k:m:")) != -1) {
		if (!parse_option(&state, option, optarg))
			goto usage;
	}
	if (optind != argc || !work_valid(&state.work))
		goto usage;
	make_ends(&state);
	prepare(&state);
	if (state.channel && ibv_req_notify_cq(state.cq, 0))
		die("ibv_req_notify_cq", errno);
	run(&state, state.work.window);
	if (state.each)
		run_each(&state);
	else
		run_many(&state);
	return 0;
usage:
	fputs("usage: verbs_ops -m each|many [-x GID_INDEX] [-k MERGED]\n"
	      "            " WORK_USAGE "\n", stderr);
	return 2;
}

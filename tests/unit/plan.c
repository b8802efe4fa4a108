// SPDX-License-Identifier: GPL-2.0
/*
 * Plans of graphs: against what is written down here for small ones, and for thousands of random
 * ones against a checker that knows nothing of how they are made.  It looks at all pairs of what is
 * in a rank's region.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kselftest.h>

#include "libshim/graph/inside.h"
#include "libshim/pump/line.h"
#include "libshim/tensor/edge.h"

#define MANY		10000U
#define GRAPHS		4000U
#define NODES_MAX	24U
#define EDGES_MAX	48U
#define RANKS_MAX	5U
/* What an end of an edge has besides tensors. */
#define HEAD		((uint64_t)TOWI_KEPT_BYTES + TOWI_LETTERS_AT)

#define FLOAT32		((struct tow_dtype){ TOW_DTYPE_FLOAT, 32, 1 })

static unsigned int seed = 1;

static uint32_t below(uint32_t bound)
{
	return bound ? (uint32_t)rand_r(&seed) % bound : 0;
}

/* ---- making graphs ----------------------------------------------------------- */

struct graph {
	struct tow_graph_node nodes[MANY];
	struct tow_graph_edge edges[2 * MANY];
	struct tow_plan_attr attr;
	uint32_t node, edge;	/* what is wrong */
	struct tow_plan *plan;
};

static struct graph graph;

static void begin(uint32_t ranks, uint32_t nodes)
{
	memset(&graph, 0, sizeof(graph));
	graph.attr = (struct tow_plan_attr){ .size = sizeof(graph.attr), .ranks = ranks,
					     .node_count = nodes, .nodes = graph.nodes,
					     .edges = graph.edges };
	for (uint32_t i = 0; i < nodes; i++)
		graph.nodes[i].rank = i % ranks;
}

/* With dimensions that are not known, and nothing that they can be at most. */
static struct tow_graph_edge *add(uint32_t from, uint32_t to, uint32_t ndim, int64_t dim)
{
	struct tow_graph_edge *edge = &graph.edges[graph.attr.edge_count++];

	*edge = (struct tow_graph_edge){ .from = from, .to = to,
					 .type = { .dtype = FLOAT32, .ndim = ndim } };
	for (uint32_t i = 0; i < TOW_DIMS_MAX; i++) {
		edge->type.dims[i] = dim;
		edge->most[i] = TOW_DIM_UNKNOWN;
	}
	return edge;
}

static int make(void)
{
	graph.plan = NULL;
	return tow_plan_create(&graph.attr, &graph.plan, &graph.node, &graph.edge);
}

static void end(void)
{
	tow_plan_destroy(graph.plan);
	graph.plan = NULL;
}

static struct tow_plan_edge edge_of(uint32_t number)
{
	struct tow_plan_edge edge = { .size = sizeof(edge) };

	if (tow_plan_edge_info(graph.plan, number, &edge))
		ksft_exit_fail_msg("no edge %u\n", number);
	return edge;
}

static struct tow_plan_rank rank_of(uint32_t number)
{
	struct tow_plan_rank rank = { .size = sizeof(rank) };

	if (tow_plan_rank_info(graph.plan, number, &rank))
		ksft_exit_fail_msg("no rank %u\n", number);
	return rank;
}

/* ---- the checker ------------------------------------------------------------- */

static bool wrong;

static void want(bool so, const char *what)
{
	if (!so && !wrong)
		ksft_print_msg("seed %u: %s\n", seed, what);
	wrong |= !so;
}

struct place {
	uint64_t at, bytes;
	int edge;		/* whose tensors they are; -1: nobody else's */
};

static bool apart(const struct place *one, const struct place *other)
{
	return one->at + one->bytes <= other->at || other->at + other->bytes <= one->at;
}

/*
 * Does an edge's tensor come only when another one's was read, of so many steps before?  Going back
 * from each to the one that it waits for finds it.
 */
static bool waits(uint32_t number, uint32_t other, uint32_t steps)
{
	struct tow_plan_edge edge = edge_of(number);

	for (uint32_t turns = 0; turns <= tow_plan_edge_count(graph.plan); turns++) {
		if (edge.steps > steps)
			return false;
		steps -= edge.steps;
		if (edge.after == other)
			return !steps;
		edge = edge_of(edge.after);
	}
	return false;
}

/* Two edges' tensors in the same memory. */
static void check_shared(uint32_t a, uint32_t b)
{
	struct tow_plan_edge one = edge_of(a), other = edge_of(b);

	want(graph.attr.flags & TOW_PLAN_SHARE, "shared, though nobody asked");
	want(one.slots == 1 && other.slots == 1, "shared by edges of several slots");
	want(one.tensors_offset == other.tensors_offset, "shared in part");
	want(one.last < other.first || other.last < one.first, "two tensors are there at once");
	want(one.last < other.first ? waits(b, a, 0) && waits(a, b, 1) :
	     waits(a, b, 0) && waits(b, a, 1), "one does not wait for the other");
}

static void check_places(const struct place *places, uint32_t count, uint64_t region)
{
	for (uint32_t i = 0; i < count; i++) {
		want(places[i].at % 64 == 0, "a place is not aligned");
		want(places[i].at + places[i].bytes <= region, "a place is not in the region");
		for (uint32_t j = 0; j < i; j++) {
			if (apart(&places[i], &places[j]))
				continue;
			want(places[i].edge >= 0 && places[j].edge >= 0, "two places overlap");
			if (places[i].edge >= 0 && places[j].edge >= 0)
				check_shared((uint32_t)places[i].edge, (uint32_t)places[j].edge);
		}
	}
}

static bool same_output(const struct tow_plan_edge *one, const struct tow_plan_edge *other)
{
	return graph.edges[one->edge].from == graph.edges[other->edge].from &&
	       graph.edges[one->edge].output == graph.edges[other->edge].output;
}

static void check_rank(uint32_t rank)
{
	static struct place places[3 * EDGES_MAX];
	struct tow_plan_rank info = rank_of(rank);
	uint32_t count = 0, receives = 0, sends = 0, outputs = 0;
	struct tow_plan_edge before = { .edge = TOW_PLAN_NONE };
	uint64_t sent = 0;

	for (uint32_t i = 0; i < tow_plan_edge_count(graph.plan); i++) {
		struct tow_plan_edge edge = edge_of(i);

		if (edge.to_rank == rank) {
			receives++;
			places[count++] = (struct place){ edge.offset, edge.bytes, -1 };
			places[count++] = (struct place){ edge.tensors_offset,
							  edge.tensors_bytes, (int)i };
		}
		if (edge.from_rank != rank)
			continue;
		sends++;
		if (before.edge == TOW_PLAN_NONE || !same_output(&before, &edge)) {
			outputs++;
			sent += edge.send_bytes;
			places[count++] = (struct place){ edge.send_offset, edge.send_bytes, -1 };
		} else {
			want(edge.send_offset == before.send_offset &&
			     edge.send_bytes == before.send_bytes, "one output in two places");
		}
		before = edge;
	}
	check_places(places, count, info.region_bytes);
	want(info.receives == receives && info.sends == sends && info.send_bytes == sent &&
	     info.registrations == receives + outputs && info.exports - receives <= 1,
	     "a rank's numbers are wrong");
	want(info.pool_bytes % TOWI_PLAN_SLAB == 0 && info.pool_bytes >= info.region_bytes,
	     "the pool is too small, or not of whole slabs");
}

/* Of the largest tensor there can be; -1: there is no largest one. */
static int64_t largest(const struct tow_graph_edge *edge)
{
	int64_t bytes = 4;

	if (edge->type.ndim == TOW_NDIM_UNKNOWN)
		return -1;
	for (uint32_t i = 0; i < edge->type.ndim; i++) {
		int64_t most = edge->type.dims[i] < 0 ? edge->most[i] : edge->type.dims[i];

		if (most < 0)
			return -1;
		bytes *= most;
	}
	return bytes;
}

static bool knows_all(const struct tow_graph_edge *edge)
{
	for (uint32_t i = 0; edge->type.ndim != TOW_NDIM_UNKNOWN && i < edge->type.ndim; i++)
		if (edge->type.dims[i] < 0)
			return false;
	return true;
}

static void check_kind(const struct tow_plan_edge *edge, int64_t bytes, bool known)
{
	uint64_t of_all = 0;

	want(edge->kind == (bytes < 0 ? TOW_PLAN_DYNAMIC : known ? TOW_PLAN_STATIC :
			    TOW_PLAN_BOUNDED), "it is of another kind");
	want(edge->bytes == HEAD, "what an end has is of another size");
	if (bytes < 0) {
		want(!edge->tensors_bytes && !edge->send_bytes && !edge->tensor_bytes,
		     "a dynamic edge has memory");
		return;
	}
	want(edge->tensor_bytes == (uint64_t)bytes, "a tensor is of another size");
	want(!tow_static_bytes(&edge->type, edge->slots, &of_all) &&
	     of_all == edge->bytes + edge->tensors_bytes, "an end does not fit");
	want(edge->send_bytes >= edge->tensors_bytes, "less is computed than sent");
}

/* What the graph says of one of its edges, and the plan of who carries it. */
static void check_edge(uint32_t number)
{
	const struct tow_graph_edge *edge = &graph.edges[number];
	uint32_t carrier = tow_plan_edge_of(graph.plan, number);
	uint32_t from = graph.nodes[edge->from].rank, to = graph.nodes[edge->to].rank;
	struct tow_plan_edge planned;

	want((carrier == TOW_PLAN_NONE) == (from == to), "who crosses is not carried, or the reverse");
	if (carrier == TOW_PLAN_NONE)
		return;
	planned = edge_of(carrier);
	want(planned.from_rank == from && planned.to_rank == to, "it goes elsewhere");
	want(graph.edges[planned.edge].from == edge->from &&
	     graph.edges[planned.edge].output == edge->output, "it carries something else");
	want(planned.first <= edge->to && planned.last >= edge->to, "it is taken before or behind");
	want(planned.slots >= edge->slots && planned.slots >= 1, "it has fewer slots");
	check_kind(&planned, largest(edge), knows_all(edge));
}

static void check_credit(uint32_t number)
{
	struct tow_plan_edge edge = edge_of(number), after = edge_of(edge.after);

	want(after.to_rank == edge.to_rank, "it waits for another rank");
	if (edge.after == number)
		want(edge.steps == edge.slots, "it waits for itself, not as long as it has slots");
	else
		want(edge.steps == !(after.last < edge.first) &&
		     after.tensors_offset == edge.tensors_offset, "it waits for no neighbour");
}

static void check_plan(void)
{
	uint32_t carried = 0;

	for (uint32_t i = 0; i < graph.attr.edge_count; i++)
		check_edge(i);
	for (uint32_t i = 0; i < tow_plan_edge_count(graph.plan); i++) {
		check_credit(i);
		carried += edge_of(i).edges;
	}
	for (uint32_t i = 0; i < graph.attr.edge_count; i++)
		carried -= tow_plan_edge_of(graph.plan, i) != TOW_PLAN_NONE;
	want(!carried, "an edge is carried twice, or not");
	for (uint32_t i = 0; i < graph.attr.ranks; i++)
		check_rank(i);
}

/* ---- random graphs ----------------------------------------------------------- */

static void add_random(uint32_t nodes)
{
	uint32_t from = below(nodes), output = below(2);
	struct tow_graph_edge *edge = add(from, below(nodes), below(4), 0);
	/* All of an output's are alike, as they are made from the same numbers. */
	unsigned int of_output = 7919 * from + output;

	edge->output = output;
	edge->type.ndim = (uint32_t)rand_r(&of_output) % 5;
	if (edge->type.ndim == 4)
		edge->type.ndim = TOW_NDIM_UNKNOWN;
	for (uint32_t i = 0; i < TOW_DIMS_MAX; i++) {
		edge->type.dims[i] = rand_r(&of_output) % 40;
		if (rand_r(&of_output) % 5 == 0)
			edge->type.dims[i] = TOW_DIM_UNKNOWN;
		if (rand_r(&of_output) % 3)
			edge->most[i] = rand_r(&of_output) % 60;
	}
	edge->slots = below(3) ? 0 : below(4);
}

static void test_random(void)
{
	uint32_t shared = 0, whole = 0, dynamic = 0, bounded = 0, merged = 0;

	for (uint32_t i = 0; i < GRAPHS && !wrong; i++) {
		uint32_t nodes = 1 + below(NODES_MAX), edges = below(EDGES_MAX + 1);

		begin(1 + below(RANKS_MAX), nodes);
		for (uint32_t j = 0; j < nodes; j++)
			graph.nodes[j].rank = below(graph.attr.ranks);
		for (uint32_t j = 0; j < edges; j++)
			add_random(nodes);
		graph.attr.flags = below(2) ? TOW_PLAN_SHARE : 0;
		graph.attr.slots = below(3) ? 0 : below(4);
		want(!make(), "it cannot be planned");
		if (wrong)
			break;
		check_plan();
		for (uint32_t j = 0; j < tow_plan_edge_count(graph.plan); j++) {
			struct tow_plan_edge edge = edge_of(j);

			shared += edge.after != j;
			whole += edge.kind == TOW_PLAN_STATIC;
			bounded += edge.kind == TOW_PLAN_BOUNDED;
			dynamic += edge.kind == TOW_PLAN_DYNAMIC;
			merged += edge.edges > 1;
		}
		end();
	}
	end();
	ksft_print_msg("edges: %u static, %u bounded, %u dynamic; %u share, %u are several\n", whole,
		       bounded, dynamic, shared, merged);
	ksft_test_result(!wrong && shared > 1000 && whole > 1000 && bounded > 1000 &&
			 dynamic > 1000 && merged > 1000, "random graphs\n");
}

/* ---- small ones -------------------------------------------------------------- */

static void test_kinds(void)
{
	struct tow_graph_edge *edge;
	bool good;

	begin(2, 8);
	add(0, 1, 2, 10);
	edge = add(2, 3, 3, 10);
	edge->type.dims[1] = TOW_DIM_UNKNOWN;
	edge->most[1] = 50;
	edge = add(4, 5, 2, 10);
	edge->type.dims[0] = TOW_DIM_UNKNOWN;
	add(6, 7, TOW_NDIM_UNKNOWN, 10);
	/* The same rank's, a scalar, and nothing at all. */
	add(0, 2, 1, 10)->output = 1;
	add(1, 2, 0, 10)->slots = 3;
	add(3, 4, 1, 0);
	good = !make() && tow_plan_edge_count(graph.plan) == 6;
	if (good)
		check_plan();
	good &= edge_of(0).kind == TOW_PLAN_STATIC && edge_of(0).tensor_bytes == 400 &&
		edge_of(0).tensors_bytes == 896 && edge_of(0).slots == 2;
	good &= edge_of(2).kind == TOW_PLAN_BOUNDED && edge_of(2).tensor_bytes == 20000 &&
		edge_of(2).type.dims[1] == 50;
	good &= edge_of(4).kind == TOW_PLAN_DYNAMIC && edge_of(5).kind == TOW_PLAN_DYNAMIC &&
		edge_of(4).type.dims[0] == TOW_DIM_UNKNOWN;
	good &= edge_of(1).tensor_bytes == 4 && edge_of(1).slots == 3 && edge_of(3).tensor_bytes == 0 &&
		edge_of(3).kind == TOW_PLAN_STATIC;
	good &= rank_of(1).receives == 4 && rank_of(1).exports == 4 && rank_of(0).exports == 3 &&
		rank_of(0).registrations == 6 && rank_of(0).peers == 1 && rank_of(0).nodes == 4;
	good &= tow_plan_edge_of(graph.plan, 4) == TOW_PLAN_NONE &&
		tow_plan_edge_of(graph.plan, 7) == TOW_PLAN_NONE && tow_plan_edge_of(graph.plan, 3) == 5;
	end();
	ksft_test_result(good && !wrong, "static, bounded, dynamic\n");
}

/* One output that two nodes of a rank take crosses once, with the most slots; to a third rank again. */
static void test_carried(void)
{
	bool good;

	begin(3, 6);
	add(0, 4, 1, 16)->slots = 3;
	add(0, 1, 1, 16)->slots = 1;
	add(0, 2, 1, 16)->slots = 4;
	add(0, 4, 1, 16)->output = 1;
	good = !make() && tow_plan_edge_count(graph.plan) == 3;
	if (good)
		check_plan();
	good &= edge_of(0).edges == 2 && edge_of(0).first == 1 && edge_of(0).last == 4 &&
		edge_of(0).slots == 3 && edge_of(0).edge == 0;
	good &= edge_of(1).to_rank == 2 && edge_of(1).send_offset == edge_of(0).send_offset &&
		edge_of(1).send_bytes == 256 && rank_of(0).registrations == 2 &&
		rank_of(0).peers == 2;
	end();
	graph.edges[2].type.dims[0] = 17;
	good &= make() == -EINVAL && graph.edge == 2;
	/* The same where only one of them crosses, or none. */
	begin(3, 6);
	add(0, 3, 1, 16);
	add(0, 1, 1, 17);
	good &= make() == -EINVAL && graph.edge == 1;
	graph.edges[1].to = 3;
	good &= make() == -EINVAL && graph.edge == 1;
	ksft_test_result(good && !wrong, "an output goes to a rank once\n");
}

/* Node 0 of rank 0 computes all; rank 1's nodes take one after the other. */
static void test_sharing(void)
{
	uint64_t apart_bytes, shared_bytes;
	bool good;

	begin(2, 6);
	for (uint32_t i = 1; i < 6; i++) {
		graph.nodes[i].rank = 1;
		add(0, i, 1, 1000 * (int64_t)i)->output = i;
	}
	graph.attr.slots = 1;
	good = !make();
	apart_bytes = rank_of(1).region_bytes;
	end();
	graph.attr.flags = TOW_PLAN_SHARE;
	graph.attr.slots = 0;
	good &= !make();
	check_plan();
	shared_bytes = rank_of(1).region_bytes;
	/* A ring of five. */
	good &= edge_of(0).after == 4 && edge_of(0).steps == 1 && edge_of(1).after == 0 &&
		edge_of(1).steps == 0 && edge_of(4).after == 3;
	good &= apart_bytes == 5 * HEAD + 60096 &&
		shared_bytes == 5 * HEAD + 20032;
	end();
	/* The third one stays until the end, and so does the block that it is in. */
	add(0, 5, 1, 3000)->output = 3;
	good &= !make();
	check_plan();
	good &= rank_of(1).region_bytes > shared_bytes && edge_of(3).after != 2 && edge_of(4).after != 2;
	end();
	/* Who has two slots is left alone. */
	graph.edges[4].slots = 2;
	good &= !make();
	check_plan();
	good &= edge_of(4).after == 4 && edge_of(4).steps == 2;
	end();
	ksft_test_result(good && !wrong, "memory is shared by lifetime\n");
}

/* The same plan, whatever the order of the edges. */
static void test_order(void)
{
	struct tow_plan_edge before[EDGES_MAX];
	uint32_t count;
	bool good;

	begin(3, 12);
	for (uint32_t i = 0; i < EDGES_MAX / 2; i++) {
		add(i % 11, (i + 1 + i / 12) % 12, 1, 1 + i % 11)->slots = 1;
		graph.edges[i].output = i / 12;
	}
	graph.attr.flags = TOW_PLAN_SHARE;
	good = !make();
	count = tow_plan_edge_count(graph.plan);
	good &= count > 10 && count <= EDGES_MAX;
	for (uint32_t i = 0; good && i < count; i++)
		before[i] = edge_of(i);
	end();
	for (uint32_t i = 0; i < EDGES_MAX / 4; i++) {
		struct tow_graph_edge edge = graph.edges[i];

		graph.edges[i] = graph.edges[EDGES_MAX / 2 - 1 - i];
		graph.edges[EDGES_MAX / 2 - 1 - i] = edge;
	}
	good &= !make() && tow_plan_edge_count(graph.plan) == count;
	for (uint32_t i = 0; good && i < count; i++) {
		struct tow_plan_edge edge = edge_of(i);

		edge.edge = before[i].edge;
		good = !memcmp(&edge, &before[i], sizeof(edge));
	}
	end();
	ksft_test_result(good && !wrong, "edges may be given in any order\n");
}

/* ---- what is wrong ----------------------------------------------------------- */

static bool refused(int error, uint32_t node, uint32_t edge)
{
	int ret = make();

	if (ret == error && graph.node == node && graph.edge == edge && !graph.plan)
		return true;
	ksft_print_msg("%d, node %u, edge %u\n", ret, graph.node, graph.edge);
	end();
	return false;
}

static void small(void)
{
	begin(2, 4);
	add(0, 1, 1, 10);
	add(2, 3, 1, 10);
}

static void test_refused(void)
{
	const uint32_t none = TOW_PLAN_NONE;
	bool good;

	small();
	graph.edges[1].to = 4;
	good = refused(-EINVAL, none, 1);
	graph.edges[0].from = UINT32_MAX;
	good &= refused(-EINVAL, none, 0);
	graph.nodes[3].rank = 2;
	good &= refused(-EINVAL, 3, none);
	small();
	graph.edges[1].type.ndim = TOW_DIMS_MAX + 1;
	good &= refused(-EINVAL, none, 1);
	small();
	graph.edges[1].type.dims[0] = -2;
	good &= refused(-EINVAL, none, 1);
	graph.edges[1].type.dims[0] = TOW_DIM_UNKNOWN;
	graph.edges[1].most[0] = INT64_MIN;
	good &= refused(-EINVAL, none, 1);
	small();
	graph.edges[0].type.dtype.lanes = 0;
	good &= refused(-EINVAL, none, 0);
	small();
	graph.edges[0].slots = TOW_EDGE_SLOTS_MAX + 1;
	good &= refused(-EINVAL, none, 0);
	ksft_test_result(good, "nodes and edges that are wrong are named\n");
	small();
	graph.attr.ranks = 0;
	good = refused(-EINVAL, none, none);
	graph.attr.ranks = UINT32_MAX;
	good &= refused(-EINVAL, none, none);
	small();
	graph.attr.slots = TOW_EDGE_SLOTS_MAX + 1;
	good &= refused(-EINVAL, none, none);
	small();
	graph.attr.flags = 2;
	good &= refused(-EINVAL, none, none);
	small();
	graph.attr.edges = NULL;
	good &= refused(-EINVAL, none, none);
	small();
	graph.attr.size = 4;
	good &= refused(-EINVAL, none, none) && tow_plan_create(NULL, &graph.plan, NULL, NULL) == -EINVAL;
	small();
	good &= tow_plan_create(&graph.attr, NULL, NULL, NULL) == -EINVAL;
	ksft_test_result(good, "so is what is asked for\n");
}

static void test_overflow(void)
{
	const uint32_t none = TOW_PLAN_NONE;
	bool good;

	small();
	graph.edges[1].type.dims[0] = INT64_MAX;
	good = refused(-EOVERFLOW, none, 1);
	graph.edges[1].type.dims[0] = INT64_MAX / 8;
	good &= refused(-EOVERFLOW, none, 1);
	graph.edges[1].type.dims[0] = TOW_DIM_UNKNOWN;
	graph.edges[1].most[0] = INT64_MAX;
	good &= refused(-EOVERFLOW, none, 1);
	/* Each alone would do, but for what is beside it. */
	small();
	for (uint32_t i = 0; i < 2; i++) {
		graph.edges[i].slots = 1;
		graph.edges[i].type.dims[0] = ((int64_t)1 << 59) - 1024;
	}
	good &= !make();
	good &= rank_of(1).region_bytes == ((uint64_t)1 << 62) - 8192 + 2 * HEAD;
	end();
	add(2, 3, 1, (int64_t)1 << 58)->output = 1;
	good &= refused(-EOVERFLOW, none, 2);
	/* No dimension is larger than all of them. */
	small();
	graph.edges[0].type.ndim = TOW_DIMS_MAX;
	for (uint32_t i = 0; i < TOW_DIMS_MAX; i++)
		graph.edges[0].type.dims[i] = i ? INT64_MAX : 0;
	good &= !make() && edge_of(0).tensor_bytes == 0;
	end();
	ksft_test_result(good && !wrong, "sizes that are too large are refused\n");
}

/* ---- how long it takes ------------------------------------------------------- */

static double now(void)
{
	struct timespec at;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at);
	return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

/* All edges cross, and all of them share. */
static void test_many(void)
{
	double seconds;
	int ret;

	begin(64, MANY);
	for (uint32_t i = 0; i < 2 * MANY; i++) {
		uint32_t from = i % (MANY - 1);

		add(from, i < MANY ? from + 1 : from + 1 + below(MANY - 1 - from), 1, 1 + below(1 << 20));
		graph.edges[i].output = i / (MANY - 1);
	}
	graph.attr.flags = TOW_PLAN_SHARE;
	seconds = now();
	ret = make();
	seconds = now() - seconds;
	ksft_print_msg("%u nodes, %u edges: %.1f ms\n", MANY, 2 * MANY, seconds * 1e3);
	ksft_test_result(!ret && tow_plan_edge_count(graph.plan) > MANY && seconds <= 1,
			 "10,000 nodes take no second\n");
	end();
}

/* ---- answers ----------------------------------------------------------------- */

static void test_answers(void)
{
	struct tow_plan_edge edge = { .size = sizeof(edge) };
	struct tow_plan_rank rank = { .size = sizeof(rank) };
	bool good;

	small();
	good = !make();
	good &= tow_plan_edge_info(graph.plan, 2, &edge) == -EINVAL &&
		tow_plan_edge_info(NULL, 0, &edge) == -EINVAL &&
		tow_plan_edge_info(graph.plan, 0, NULL) == -EINVAL &&
		tow_plan_rank_info(graph.plan, 2, &rank) == -EINVAL &&
		tow_plan_rank_info(NULL, 0, &rank) == -EINVAL &&
		tow_plan_rank_info(graph.plan, 0, NULL) == -EINVAL && tow_plan_edge_count(NULL) == 0 &&
		tow_plan_edge_of(NULL, 0) == TOW_PLAN_NONE;
	edge.size = sizeof(edge) - 8;
	rank.size = 0;
	good &= tow_plan_edge_info(graph.plan, 0, &edge) == -EINVAL &&
		tow_plan_rank_info(graph.plan, 0, &rank) == -EINVAL;
	end();
	begin(1, 0);
	good &= !make() && rank_of(0).pool_bytes == 0;
	end();
	ksft_test_result(good, "what cannot be asked\n");
}

/* What the layers below have is no more than the planner thinks. */
static void test_needs(void)
{
	/* How large a worker's own mailbox makes rings, and how many spares it has (pump/mailbox.c). */
	const uint64_t ring = towi_ring_bytes(32768 / TOWI_UNIT), spares = 8;
	const uint64_t line = TOWI_RING_AT + 2 * ring + TOWI_DESK_BYTES;

	ksft_test_result(TOWI_OWN_BYTES <= TOWI_PLAN_END_BYTES && line <= TOWI_PLAN_LINE_BYTES &&
			 sizeof(struct towi_door) + spares * line <= TOWI_PLAN_WORKER_BYTES &&
			 TOWI_PLAN_GRAIN >= TOWI_LINE, "what ends and lines have\n");
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(11);
	test_kinds();
	test_carried();
	test_sharing();
	test_order();
	test_refused();
	test_overflow();
	test_many();
	test_answers();
	test_needs();
	test_random();
	ksft_finished();
}

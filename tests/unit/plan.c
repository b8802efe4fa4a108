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
/* What has a number in it, or a bounded tensor's dimensions. */
#define LINE		((uint64_t)64)

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

/* What is seen of a rank by looking at all edges. */
struct seen {
	struct place places[3 * EDGES_MAX];
	uint32_t count;
	uint32_t receives, sends, outputs;
	uint32_t planned_in, planned_out, dynamic_in, dynamic_out;
	uint64_t sent;
};

/* Is it by a dynamic end that a tensor may come? */
static bool has_dynamic_end(const struct tow_plan_edge *edge)
{
	return edge->kind == TOW_PLAN_DYNAMIC || graph.edges[edge->edge].flags;
}

/* What a rank has for an edge that it receives: others write there. */
static void see_received(struct seen *seen, uint32_t number, const struct tow_plan_rank *rank)
{
	struct tow_plan_edge edge = edge_of(number);

	seen->receives++;
	seen->dynamic_in += has_dynamic_end(&edge);
	if (edge.kind == TOW_PLAN_DYNAMIC)
		return;
	seen->planned_in++;
	seen->places[seen->count++] = (struct place){ edge.offset, LINE, -1 };
	seen->places[seen->count++] = (struct place){ edge.tensors_offset, edge.tensors_bytes,
						      (int)number };
	want(edge.offset + LINE <= rank->receive_bytes &&
	     edge.tensors_offset + edge.tensors_bytes <= rank->receive_bytes,
	     "what is received is not where others may write");
}

/* The same of one that it sends: nobody else writes there. */
static void see_sent(struct seen *seen, uint32_t number, const struct tow_plan_rank *rank)
{
	struct tow_plan_edge edge = edge_of(number), before = number ? edge_of(number - 1) : edge;
	bool first = !number || !same_output(&before, &edge);

	seen->sends++;
	seen->outputs += first;
	seen->dynamic_out += has_dynamic_end(&edge);
	if (edge.kind == TOW_PLAN_DYNAMIC)
		return;
	seen->planned_out++;
	seen->places[seen->count++] = (struct place){ edge.credit_offset, LINE, -1 };
	want(edge.credit_offset >= rank->receive_bytes &&
	     edge.credit_offset + LINE <= rank->region_bytes - rank->send_bytes,
	     "a credit is not between what is received and what is sent");
	want(first || (edge.send_offset == before.send_offset &&
		       edge.send_bytes == before.send_bytes), "one output in two places");
	if (!first || !edge.send_bytes)
		return;
	seen->sent += edge.send_bytes;
	seen->places[seen->count++] = (struct place){ edge.send_offset, edge.send_bytes, -1 };
	want(edge.send_offset >= rank->region_bytes - rank->send_bytes,
	     "what is sent is not at the end");
}

static void check_exports(const struct seen *seen, const struct tow_plan_rank *rank)
{
	uint32_t exports = seen->planned_in + seen->planned_out + 2 * seen->dynamic_in +
			   seen->dynamic_out;

	exports += seen->planned_in > 0;
	exports += rank->peers > 0;
	exports += seen->dynamic_in + seen->dynamic_out > 0;
	want(rank->exports == exports, "it exports more, or less");
	want((rank->receive_bytes > 0) == (seen->planned_in > 0),
	     "nothing to write to, or something for nobody");
}

/* Its region, and in its arena a mailbox, with another one for its dynamic ends. */
static void check_pool(const struct seen *seen, const struct tow_plan_rank *rank)
{
	uint64_t ends = seen->dynamic_in + seen->dynamic_out, lines = TOWI_PLAN_BOX_LINES + 2 * rank->peers;
	uint64_t bytes = lines * TOWI_PLAN_LINE_BYTES, slabs;

	if (ends)
		bytes += lines * TOWI_PLAN_END_LINE_BYTES + ends * TOWI_PLAN_END_BYTES;
	slabs = (rank->region_bytes + TOWI_PLAN_SLAB - 1) / TOWI_PLAN_SLAB;
	if (rank->peers)
		slabs += (bytes + TOWI_PLAN_SLAB - 1) / TOWI_PLAN_SLAB;
	want(rank->pool_bytes == slabs * TOWI_PLAN_SLAB, "the pool is too small, or too large");
}

static void check_rank(uint32_t rank)
{
	struct tow_plan_rank info = rank_of(rank);
	static struct seen seen;

	memset(&seen, 0, sizeof(seen));
	for (uint32_t i = 0; i < tow_plan_edge_count(graph.plan); i++) {
		if (edge_of(i).to_rank == rank)
			see_received(&seen, i, &info);
		if (edge_of(i).from_rank == rank)
			see_sent(&seen, i, &info);
	}
	check_places(seen.places, seen.count, info.region_bytes);
	check_exports(&seen, &info);
	want(info.receives == seen.receives && info.sends == seen.sends &&
	     info.send_bytes == seen.sent && info.registrations == seen.receives + seen.outputs,
	     "a rank's numbers are wrong");
	check_pool(&seen, &info);
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

/* Are all tensors of one shape? */
static bool knows_all(const struct tow_graph_edge *edge)
{
	if (edge->flags)
		return false;
	for (uint32_t i = 0; edge->type.ndim != TOW_NDIM_UNKNOWN && i < edge->type.ndim; i++)
		if (edge->type.dims[i] < 0)
			return false;
	return true;
}

static void check_dynamic(const struct tow_plan_edge *edge)
{
	want(!edge->tensor_bytes && !edge->stride && !edge->offset && !edge->bytes &&
	     !edge->tensors_offset && !edge->tensors_bytes && !edge->credit_offset &&
	     !edge->send_offset && !edge->send_bytes, "a dynamic edge has memory");
}

static void check_kind(const struct tow_plan_edge *edge, int64_t bytes, bool known)
{
	uint64_t whole = ((uint64_t)bytes + 63) / 64 * 64;

	want(edge->kind == (bytes < 0 ? TOW_PLAN_DYNAMIC : known ? TOW_PLAN_STATIC :
			    TOW_PLAN_BOUNDED), "it is of another kind");
	if (bytes < 0) {
		check_dynamic(edge);
		return;
	}
	want(edge->bytes == LINE, "a number has no line of its own");
	want(edge->tensor_bytes == (uint64_t)bytes, "a tensor is of another size");
	want(edge->stride == (known ? whole : LINE + whole), "tensors are not so far apart");
	want(edge->tensors_bytes == edge->slots * edge->stride, "there is memory for more, or less");
	want(edge->send_bytes >= edge->tensors_bytes && (!edge->stride ||
	     edge->send_bytes % edge->stride == 0), "less is computed than sent");
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
	want(planned.flags == edge->flags, "it falls back otherwise");
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
	if (edge->type.ndim && largest(edge) >= 0 && rand_r(&of_output) % 4 == 0)
		edge->flags = TOW_GRAPH_FALLBACK;
	edge->slots = below(3) ? 0 : below(4);
}

static void test_random(void)
{
	uint32_t shared = 0, whole = 0, dynamic = 0, bounded = 0, merged = 0, fallback = 0;

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
			fallback += edge.flags == TOW_GRAPH_FALLBACK;
		}
		end();
	}
	end();
	ksft_print_msg("edges: %u static, %u bounded, %u dynamic; %u share, %u are several, %u fall back\n",
		       whole, bounded, dynamic, shared, merged, fallback);
	ksft_test_result(!wrong && shared > 1000 && whole > 1000 && bounded > 1000 &&
			 dynamic > 1000 && merged > 1000 && fallback > 1000, "random graphs\n");
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
		edge_of(0).tensors_bytes == 896 && edge_of(0).slots == 2 && edge_of(0).stride == 448;
	good &= edge_of(2).kind == TOW_PLAN_BOUNDED && edge_of(2).tensor_bytes == 20000 &&
		edge_of(2).type.dims[1] == 50 && edge_of(2).stride == 20096;
	good &= edge_of(4).kind == TOW_PLAN_DYNAMIC && edge_of(5).kind == TOW_PLAN_DYNAMIC &&
		edge_of(4).type.dims[0] == TOW_DIM_UNKNOWN;
	good &= edge_of(1).tensor_bytes == 4 && edge_of(1).slots == 3 && edge_of(3).tensor_bytes == 0 &&
		edge_of(3).kind == TOW_PLAN_STATIC && edge_of(3).tensors_bytes == 0;
	/* Of rank 1: all that it receives, a number each way for two, three for each dynamic one. */
	good &= rank_of(1).receives == 4 && rank_of(1).exports == 11 && rank_of(0).exports == 9 &&
		rank_of(0).registrations == 6 && rank_of(0).peers == 1 && rank_of(0).nodes == 4;
	good &= tow_plan_edge_of(graph.plan, 4) == TOW_PLAN_NONE &&
		tow_plan_edge_of(graph.plan, 7) == TOW_PLAN_NONE && tow_plan_edge_of(graph.plan, 3) == 5;
	end();
	ksft_test_result(good && !wrong, "static, bounded, dynamic\n");
}

/* What may fall back is planned as a bounded edge, and needs what a dynamic one does besides. */
static void test_fallback(void)
{
	struct tow_plan_rank before, after;
	bool good;

	begin(16, 16);
	for (uint32_t i = 1; i < 16; i++)
		add(0, i, 2, 10)->output = i;
	good = !make();
	before = rank_of(0);
	end();
	for (uint32_t i = 0; i < 15; i++)
		graph.edges[i].flags = TOW_GRAPH_FALLBACK;
	good &= !make();
	if (good)
		check_plan();
	after = rank_of(0);
	good &= edge_of(0).kind == TOW_PLAN_BOUNDED && edge_of(0).flags == TOW_GRAPH_FALLBACK &&
		edge_of(0).type.dims[1] == 10 && edge_of(0).tensor_bytes == 400 && edge_of(0).stride == 512;
	/* Of each edge a credit, and now a window, too; a mailbox, and one of those ends. */
	good &= before.exports == 16 && after.exports == 32;
	/* Of the receiver a number, its range and a mailbox, and of the dynamic end as much. */
	good &= rank_of(1).exports == 6;
	/* The region, and 39 lines of 28 KiB, and of 80 KiB. */
	good &= before.pool_bytes == 2 * TOWI_PLAN_SLAB && after.pool_bytes == 4 * TOWI_PLAN_SLAB;
	end();
	ksft_test_result(good && !wrong, "what may fall back has a dynamic end, too\n");
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
	graph.edges[1].type.dims[0] = 16;
	graph.edges[1].flags = TOW_GRAPH_FALLBACK;
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
	good &= apart_bytes == 5 * LINE + 60096 && shared_bytes == 5 * LINE + 20032;
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
	small();
	graph.edges[1].reserved = 1;
	good &= refused(-EINVAL, none, 1);
	small();
	graph.edges[1].flags = TOW_GRAPH_FALLBACK << 1;
	good &= refused(-EINVAL, none, 1);
	/* Nothing to fall back from: no dimensions, one without a bound, or not even their number. */
	small();
	graph.edges[1].flags = TOW_GRAPH_FALLBACK;
	graph.edges[1].type.ndim = 0;
	good &= refused(-EINVAL, none, 1);
	graph.edges[1].type.ndim = TOW_NDIM_UNKNOWN;
	good &= refused(-EINVAL, none, 1);
	graph.edges[1].type.ndim = 1;
	graph.edges[1].type.dims[0] = TOW_DIM_UNKNOWN;
	good &= refused(-EINVAL, none, 1);
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
	good &= rank_of(1).region_bytes == ((uint64_t)1 << 62) - 8192 + 2 * LINE;
	end();
	add(2, 3, 1, (int64_t)1 << 58)->output = 1;
	good &= refused(-EOVERFLOW, none, 2);
	/* What rank 0 receives leaves no room for a credit. */
	begin(2, 4);
	add(1, 2, 1, ((int64_t)1 << 60) - 16)->slots = 1;
	add(0, 3, 1, 1);
	good &= refused(-EOVERFLOW, none, 1);
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

/* Of an end of a line, with what it has to send; an arena may round up by an eighth. */
static uint64_t line_bytes(uint64_t bytes)
{
	uint64_t ring = towi_ring_bytes((uint32_t)bytes / TOWI_UNIT);

	return (TOWI_RING_AT + 2 * ring) / 8 * 9 + TOWI_DESK_BYTES;
}

/* What the layers below have is no more than the planner thinks. */
static void test_needs(void)
{
	/*
	 * How large rings of programs' mailboxes are, and of a worker's own; and how many spares, of
	 * nine lines that a mailbox has (pump/mailbox.c).
	 */
	const uint64_t small_line = line_bytes(8192), large_line = line_bytes(32768), spares = 8;

	ksft_test_result(TOWI_OWN_BYTES + TOWI_LETTERS_AT <= TOWI_PLAN_END_BYTES &&
			 small_line <= TOWI_PLAN_LINE_BYTES &&
			 large_line <= TOWI_PLAN_END_LINE_BYTES &&
			 sizeof(struct towi_door) + spares * small_line <=
			 TOWI_PLAN_BOX_LINES * TOWI_PLAN_LINE_BYTES &&
			 TOWI_PLAN_GRAIN >= TOWI_LINE, "what ends and lines have\n");
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(12);
	test_kinds();
	test_fallback();
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

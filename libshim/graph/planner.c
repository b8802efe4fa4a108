// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Plans: which edges cross, how, and where in memory.
 *
 * Edges are sorted by who sends them, by output and by who receives them: so those of one output can
 * be compared, and of those that cross what is the same then is one transfer.  Each takes its places
 * from the front of its receiver's region, then edges that share memory do: that is all that others
 * write to.  Behind it are the credits of what is sent, and what is sent.  So nothing depends on the
 * order in which edges are given.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "../core/internal.h"
#include "inside.h"

#define SLOTS		2U
#define ATTR_SIZE_FIRST	sizeof(struct tow_plan_attr)
#define EDGE_SIZE_FIRST	sizeof(struct tow_plan_edge)
#define RANK_SIZE_FIRST	sizeof(struct tow_plan_rank)

/* An edge, which crosses if its nodes are of two ranks. */
struct crossing {
	uint32_t from, output, to_rank, edge;
};

static int order_of(uint32_t one, uint32_t other)
{
	return (one > other) - (one < other);
}

static int by_output(const void *a, const void *b)
{
	const struct crossing *one = a, *other = b;
	int order = order_of(one->from, other->from);

	if (!order)
		order = order_of(one->output, other->output);
	if (!order)
		order = order_of(one->to_rank, other->to_rank);
	return order ? order : order_of(one->edge, other->edge);
}

/* ---- what is asked for ------------------------------------------------------- */

static bool dim_valid(int64_t dim)
{
	return dim >= 0 || dim == TOW_DIM_UNKNOWN;
}

static bool type_valid(const struct tow_graph_edge *edge)
{
	const struct tow_tensor_type *type = &edge->type;

	if (!type->dtype.bits || !type->dtype.lanes)
		return false;
	if (type->ndim == TOW_NDIM_UNKNOWN)
		return true;
	if (type->ndim > TOW_DIMS_MAX)
		return false;
	for (uint32_t i = 0; i < type->ndim; i++)
		if (!dim_valid(type->dims[i]) ||
		    (type->dims[i] == TOW_DIM_UNKNOWN && !dim_valid(edge->most[i])))
			return false;
	return true;
}

static int check_nodes(const struct tow_plan_attr *attr, uint32_t *node)
{
	for (uint32_t i = 0; i < attr->node_count; i++) {
		if (attr->nodes[i].rank < attr->ranks && !attr->nodes[i].reserved)
			continue;
		*node = i;
		return -EINVAL;
	}
	return 0;
}

/* What an edge is if nothing falls back. */
static enum tow_plan_kind shape_kind(const struct tow_graph_edge *edge)
{
	enum tow_plan_kind kind = TOW_PLAN_STATIC;

	if (edge->type.ndim == TOW_NDIM_UNKNOWN)
		return TOW_PLAN_DYNAMIC;
	for (uint32_t i = 0; i < edge->type.ndim; i++) {
		if (edge->type.dims[i] != TOW_DIM_UNKNOWN)
			continue;
		if (edge->most[i] == TOW_DIM_UNKNOWN)
			return TOW_PLAN_DYNAMIC;
		kind = TOW_PLAN_BOUNDED;
	}
	return kind;
}

/* Of an edge whose type is valid: has it nothing but flags that are known, and dimensions to fall back from? */
static bool flags_valid(const struct tow_graph_edge *edge)
{
	if (edge->flags & ~TOW_GRAPH_FALLBACK || edge->reserved)
		return false;
	return !edge->flags || (edge->type.ndim && shape_kind(edge) != TOW_PLAN_DYNAMIC);
}

static int check_edges(const struct tow_plan_attr *attr, uint32_t *edge)
{
	for (uint32_t i = 0; i < attr->edge_count; i++) {
		const struct tow_graph_edge *one = &attr->edges[i];

		if (one->from < attr->node_count && one->to < attr->node_count &&
		    one->slots <= TOW_EDGE_SLOTS_MAX && type_valid(one) && flags_valid(one))
			continue;
		*edge = i;
		return -EINVAL;
	}
	return 0;
}

static int check(const struct tow_plan_attr *attr, uint32_t *node, uint32_t *edge)
{
	int ret;

	if (attr->flags & ~TOW_PLAN_SHARE || !attr->ranks || attr->ranks > TOW_PLAN_RANKS_MAX ||
	    attr->slots > TOW_EDGE_SLOTS_MAX ||
	    attr->node_count == TOW_PLAN_NONE || attr->edge_count == TOW_PLAN_NONE ||
	    (attr->node_count && !attr->nodes) || (attr->edge_count && !attr->edges))
		return -EINVAL;
	ret = check_nodes(attr, node);
	return ret ? ret : check_edges(attr, edge);
}

/* ---- which edges cross ------------------------------------------------------- */

static bool same_type(const struct tow_graph_edge *one, const struct tow_graph_edge *other)
{
	if (memcmp(&one->type.dtype, &other->type.dtype, sizeof(one->type.dtype)) ||
	    one->type.ndim != other->type.ndim || one->flags != other->flags)
		return false;
	for (uint32_t i = 0; one->type.ndim != TOW_NDIM_UNKNOWN && i < one->type.ndim; i++)
		if (one->type.dims[i] != other->type.dims[i] ||
		    (one->type.dims[i] == TOW_DIM_UNKNOWN && one->most[i] != other->most[i]))
			return false;
	return true;
}

/* One more of the graph's edges that the plan's carries. */
static void carry(struct tow_plan *plan, const struct tow_graph_edge *edge, uint32_t number,
		  uint32_t slots)
{
	struct tow_plan_edge *one = &plan->edges[plan->edges_count - 1];

	if (edge->slots)
		slots = edge->slots;
	if (slots > one->slots)
		one->slots = slots;
	if (!one->edges++ || edge->to < one->first)
		one->first = edge->to;
	if (edge->to > one->last)
		one->last = edge->to;
	plan->carries[number] = plan->edges_count - 1;
}

static void add_edge(struct tow_plan *plan, const struct tow_plan_attr *attr,
		     const struct crossing *crossing)
{
	const struct tow_graph_edge *edge = &attr->edges[crossing->edge];
	struct tow_plan_edge *one = &plan->edges[plan->edges_count++];

	one->size = sizeof(*one);
	/* What may fall back says of each tensor whether it does. */
	one->kind = edge->flags & TOW_GRAPH_FALLBACK ? TOW_PLAN_BOUNDED : shape_kind(edge);
	one->flags = edge->flags;
	one->from_rank = attr->nodes[edge->from].rank;
	one->to_rank = crossing->to_rank;
	one->edge = crossing->edge;
	one->type = edge->type;
	if (one->kind != TOW_PLAN_BOUNDED)
		return;
	for (uint32_t i = 0; i < edge->type.ndim; i++)
		if (edge->type.dims[i] == TOW_DIM_UNKNOWN)
			one->type.dims[i] = edge->most[i];
}

static bool same_output(const struct crossing *one, const struct crossing *other)
{
	return one->from == other->from && one->output == other->output;
}

static void add_edges(struct tow_plan *plan, const struct tow_plan_attr *attr,
		      const struct crossing *crossings, uint32_t count)
{
	uint32_t slots = attr->slots ? attr->slots : attr->flags & TOW_PLAN_SHARE ? 1 : SLOTS;

	for (uint32_t i = 0; i < count; i++) {
		if (!i || !same_output(&crossings[i - 1], &crossings[i]) ||
		    crossings[i - 1].to_rank != crossings[i].to_rank)
			add_edge(plan, attr, &crossings[i]);
		carry(plan, &attr->edges[crossings[i].edge], crossings[i].edge, slots);
	}
}

/* All edges, sorted; NULL: there is no memory. */
static struct crossing *sort(const struct tow_plan_attr *attr)
{
	struct crossing *all = calloc((size_t)attr->edge_count + 1, sizeof(*all));

	for (uint32_t i = 0; all && i < attr->edge_count; i++) {
		const struct tow_graph_edge *edge = &attr->edges[i];

		all[i] = (struct crossing){ edge->from, edge->output,
					    attr->nodes[edge->to].rank, i };
	}
	if (all)
		qsort(all, attr->edge_count, sizeof(*all), by_output);
	return all;
}

/* Those that cross come first, as @count says: 0, or -EINVAL if edges of one output are not alike. */
static int cross(struct tow_plan *plan, const struct tow_plan_attr *attr, struct crossing *all,
		 uint32_t *count, uint32_t *edge)
{
	struct crossing last = { 0 };

	*count = 0;
	for (uint32_t i = 0; i < attr->edge_count; i++) {
		struct crossing one = all[i];

		if (i && same_output(&last, &one) &&
		    !same_type(&attr->edges[last.edge], &attr->edges[one.edge])) {
			*edge = one.edge;
			return -EINVAL;
		}
		last = one;
		plan->carries[one.edge] = TOW_PLAN_NONE;
		if (attr->nodes[one.from].rank != one.to_rank)
			all[(*count)++] = one;
	}
	return 0;
}

/* ---- where they are ---------------------------------------------------------- */

int towi_plan_take(struct tow_plan_rank *rank, uint64_t bytes, uint64_t *offset)
{
	if (bytes > TOWI_PLAN_MOST - rank->region_bytes)
		return -EOVERFLOW;
	*offset = rank->region_bytes;
	rank->region_bytes += bytes;
	return 0;
}

/* How large tensors are, how far apart, and how much memory there is for them: 0, or -EOVERFLOW. */
static int measure(struct tow_plan_edge *edge)
{
	int ret = tow_tensor_bytes(&edge->type, &edge->tensor_bytes);

	if (ret)
		return ret;
	/* They are no larger than 2^62. */
	edge->stride = (edge->tensor_bytes + TOWI_PLAN_GRAIN - 1) / TOWI_PLAN_GRAIN * TOWI_PLAN_GRAIN;
	if (edge->kind == TOW_PLAN_BOUNDED)
		edge->stride += TOWI_PLAN_GRAIN;
	return __builtin_mul_overflow(edge->slots, edge->stride, &edge->tensors_bytes) ? -EOVERFLOW : 0;
}

static int place_received(struct tow_plan *plan, uint32_t number, bool share)
{
	struct tow_plan_edge *edge = &plan->edges[number];
	struct tow_plan_rank *rank = &plan->ranks[edge->to_rank];
	int ret;

	edge->after = number;
	edge->steps = edge->slots;
	if (edge->kind == TOW_PLAN_DYNAMIC)
		return 0;
	edge->bytes = TOWI_PLAN_GRAIN;
	ret = measure(edge);
	if (!ret)
		ret = towi_plan_take(rank, edge->bytes, &edge->offset);
	if (!ret && edge->tensors_bytes && !(share && towi_plan_shares(edge)))
		ret = towi_plan_take(rank, edge->tensors_bytes, &edge->tensors_offset);
	rank->receive_bytes = rank->region_bytes;
	return ret;
}

static int place_credit(struct tow_plan *plan, uint32_t number)
{
	struct tow_plan_edge *edge = &plan->edges[number];

	if (edge->kind == TOW_PLAN_DYNAMIC)
		return 0;
	return towi_plan_take(&plan->ranks[edge->from_rank], TOWI_PLAN_GRAIN, &edge->credit_offset);
}

/* What is sent, of the @count edges of one output from @first on. */
static int place_sent(struct tow_plan *plan, uint32_t first, uint32_t count)
{
	struct tow_plan_edge *edges = &plan->edges[first];
	struct tow_plan_rank *rank = &plan->ranks[edges->from_rank];
	uint64_t bytes = 0, offset = 0;
	int ret = 0;

	/* What is sent is as large as what is received, but for the slots. */
	for (uint32_t i = 0; i < count; i++)
		bytes = edges[i].tensors_bytes > bytes ? edges[i].tensors_bytes : bytes;
	if (bytes)
		ret = towi_plan_take(rank, bytes, &offset);
	if (ret)
		return ret;
	rank->send_bytes += bytes;
	rank->registrations++;
	for (uint32_t i = 0; i < count; i++) {
		edges[i].send_offset = offset;
		edges[i].send_bytes = bytes;
	}
	return 0;
}

static int place_all_sent(struct tow_plan *plan, const struct tow_plan_attr *attr, uint32_t *wrong)
{
	uint32_t count;
	int ret = 0;

	for (uint32_t i = 0; i < plan->edges_count && !ret; i += count) {
		const struct tow_graph_edge *one = &attr->edges[plan->edges[i].edge], *other;

		for (count = 1; i + count < plan->edges_count; count++) {
			other = &attr->edges[plan->edges[i + count].edge];
			if (one->from != other->from || one->output != other->output)
				break;
		}
		*wrong = i;
		ret = place_sent(plan, i, count);
	}
	return ret;
}

/* 0, or a negative errno of the edge of the plan with the number *@wrong. */
static int place(struct tow_plan *plan, const struct tow_plan_attr *attr, uint32_t *wrong)
{
	bool share = attr->flags & TOW_PLAN_SHARE;
	int ret = 0;

	for (uint32_t i = 0; i < plan->edges_count && !ret; i++) {
		*wrong = i;
		ret = place_received(plan, i, share);
	}
	if (!ret && share)
		ret = towi_plan_share(plan, wrong);
	for (uint32_t i = 0; i < plan->edges_count && !ret; i++) {
		*wrong = i;
		ret = place_credit(plan, i);
	}
	return ret ? ret : place_all_sent(plan, attr, wrong);
}

/* ---- what ranks need --------------------------------------------------------- */

static int by_number(const void *a, const void *b)
{
	const uint64_t *one = a, *other = b;

	return (*one > *other) - (*one < *other);
}

/* The ranks that each one has edges from or to. */
static int count_peers(struct tow_plan *plan)
{
	uint64_t *pairs = calloc((size_t)plan->edges_count + 1, sizeof(*pairs));

	if (!pairs)
		return -ENOMEM;
	for (uint32_t i = 0; i < plan->edges_count; i++) {
		uint64_t from = plan->edges[i].from_rank, to = plan->edges[i].to_rank;

		pairs[i] = from < to ? from << 32 | to : to << 32 | from;
	}
	qsort(pairs, plan->edges_count, sizeof(*pairs), by_number);
	for (uint32_t i = 0; i < plan->edges_count; i++) {
		if (i && pairs[i] == pairs[i - 1])
			continue;
		plan->ranks[pairs[i] >> 32].peers++;
		plan->ranks[pairs[i] & UINT32_MAX].peers++;
	}
	free(pairs);
	return 0;
}

static uint64_t whole_slabs(uint64_t bytes)
{
	return (bytes + TOWI_PLAN_SLAB - 1) / TOWI_PLAN_SLAB * TOWI_PLAN_SLAB;
}

/* What somebody has who has edges at all; @dynamic of them have a dynamic end. */
static void count_rank(struct tow_plan_rank *rank, uint64_t dynamic)
{
	uint64_t lines = TOWI_PLAN_BOX_LINES + (uint64_t)2 * rank->peers;
	uint64_t bytes = lines * TOWI_PLAN_LINE_BYTES;

	rank->registrations += rank->receives;
	rank->pool_bytes = whole_slabs(rank->region_bytes);
	if (!rank->peers)
		return;
	rank->exports += 1 + !!rank->receive_bytes + !!dynamic;
	if (dynamic)
		bytes += lines * TOWI_PLAN_END_LINE_BYTES + dynamic * TOWI_PLAN_END_BYTES;
	rank->pool_bytes += whole_slabs(bytes);
}

static void count_edge(struct tow_plan *plan, const struct tow_plan_edge *edge, uint32_t *dynamic)
{
	struct tow_plan_rank *from = &plan->ranks[edge->from_rank];
	struct tow_plan_rank *to = &plan->ranks[edge->to_rank];
	bool planned = edge->kind != TOW_PLAN_DYNAMIC;
	bool is_dynamic = !planned || edge->flags & TOW_GRAPH_FALLBACK;

	from->sends++;
	to->receives++;
	/* What is sent is read, or a credit counted; a dynamic end that receives has a range, too. */
	from->exports += planned + is_dynamic;
	to->exports += planned + 2 * is_dynamic;
	dynamic[edge->from_rank] += is_dynamic;
	dynamic[edge->to_rank] += is_dynamic;
}

static int count(struct tow_plan *plan, const struct tow_plan_attr *attr)
{
	uint32_t *dynamic = calloc(plan->ranks_count, sizeof(*dynamic));
	int ret = dynamic ? count_peers(plan) : -ENOMEM;

	if (ret) {
		free(dynamic);
		return ret;
	}
	for (uint32_t i = 0; i < attr->node_count; i++)
		plan->ranks[attr->nodes[i].rank].nodes++;
	for (uint32_t i = 0; i < plan->edges_count; i++)
		count_edge(plan, &plan->edges[i], dynamic);
	for (uint32_t i = 0; i < plan->ranks_count; i++)
		count_rank(&plan->ranks[i], dynamic[i]);
	free(dynamic);
	return 0;
}

/* ---- plans ------------------------------------------------------------------- */

static struct tow_plan *new_plan(const struct tow_plan_attr *attr)
{
	struct tow_plan *plan = calloc(1, sizeof(*plan));

	if (!plan)
		return NULL;
	plan->ranks_count = attr->ranks;
	plan->graph_count = attr->edge_count;
	plan->ranks = calloc(attr->ranks, sizeof(*plan->ranks));
	plan->carries = calloc((size_t)attr->edge_count + 1, sizeof(*plan->carries));
	if (!plan->ranks || !plan->carries) {
		tow_plan_destroy(plan);
		return NULL;
	}
	for (uint32_t i = 0; i < attr->ranks; i++)
		plan->ranks[i].size = sizeof(plan->ranks[i]);
	return plan;
}

static int make_edges(struct tow_plan *plan, const struct tow_plan_attr *attr, uint32_t *edge)
{
	struct crossing *crossings = sort(attr);
	uint32_t crossing;
	int ret = crossings ? cross(plan, attr, crossings, &crossing, edge) : -ENOMEM;

	if (!ret) {
		plan->edges = calloc((size_t)crossing + 1, sizeof(*plan->edges));
		ret = plan->edges ? 0 : -ENOMEM;
	}
	if (!ret)
		add_edges(plan, attr, crossings, crossing);
	free(crossings);
	return ret;
}

static int make(struct tow_plan *plan, const struct tow_plan_attr *attr, uint32_t *edge)
{
	uint32_t wrong = TOW_PLAN_NONE;
	int ret = make_edges(plan, attr, edge);

	if (ret)
		return ret;
	ret = place(plan, attr, &wrong);
	if (ret == -EOVERFLOW)
		*edge = plan->edges[wrong].edge;
	return ret ? ret : count(plan, attr);
}

TOW_PUBLIC int tow_plan_create(const struct tow_plan_attr *attr, struct tow_plan **plan,
			       uint32_t *node, uint32_t *edge)
{
	uint32_t no_node, no_edge;
	struct tow_plan_attr known;
	struct tow_plan *made;
	int ret;

	node = node ? node : &no_node;
	edge = edge ? edge : &no_edge;
	*node = TOW_PLAN_NONE;
	*edge = TOW_PLAN_NONE;
	if (!attr || !plan)
		return -EINVAL;
	ret = towi_take(attr, ATTR_SIZE_FIRST, &known, sizeof(known));
	if (!ret)
		ret = check(&known, node, edge);
	if (ret)
		return ret;
	made = new_plan(&known);
	if (!made)
		return -ENOMEM;
	ret = make(made, &known, edge);
	if (ret)
		tow_plan_destroy(made);
	else
		*plan = made;
	return ret;
}

TOW_PUBLIC void tow_plan_destroy(struct tow_plan *plan)
{
	if (!plan)
		return;
	free(plan->ranks);
	free(plan->edges);
	free(plan->carries);
	free(plan);
}

/* ---- answers ----------------------------------------------------------------- */

TOW_PUBLIC uint32_t tow_plan_edge_count(const struct tow_plan *plan)
{
	return plan ? plan->edges_count : 0;
}

TOW_PUBLIC int tow_plan_edge_info(const struct tow_plan *plan, uint32_t number,
				  struct tow_plan_edge *edge)
{
	if (!plan || !edge || number >= plan->edges_count)
		return -EINVAL;
	return towi_give(&plan->edges[number], EDGE_SIZE_FIRST, edge);
}

TOW_PUBLIC uint32_t tow_plan_edge_of(const struct tow_plan *plan, uint32_t edge)
{
	return plan && edge < plan->graph_count ? plan->carries[edge] : TOW_PLAN_NONE;
}

TOW_PUBLIC int tow_plan_rank_info(const struct tow_plan *plan, uint32_t rank,
				  struct tow_plan_rank *info)
{
	if (!plan || !info || rank >= plan->ranks_count)
		return -EINVAL;
	return towi_give(&plan->ranks[rank], RANK_SIZE_FIRST, info);
}

/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * libtowline: how the tensors of a graph move, decided before any of them does.
 *
 * A graph has nodes, each of which one rank runs once a step, and edges: which output of which
 * node another one takes, and what is known of that tensor.  Edges between ranks cross, and the
 * shapes decide how: section 3.4 of "Fast Distributed Deep Learning over RDMA" (EuroSys '19).
 *
 *	static		all dimensions are known: the receiver's buffers are planned
 *	bounded		each is known, or the most that it can be: buffers for the largest
 *			tensor, of which as much is sent as there is, behind its dimensions
 *	dynamic		anything else: nothing is planned; the receiver allocates when a tensor comes
 *
 * Where a static or bounded edge may fall back (TOW_GRAPH_FALLBACK) it is planned as bounded, and has the
 * ends of a dynamic one besides, by which a tensor goes that is of another shape.
 *
 * All that a rank receives by static and bounded edges is at places in one region of its own, and so
 * is what it sends by them, so that nodes compute there what is sent from there.  What others write
 * tensors to comes first.
 *
 * A plan is made of numbers alone: no device is opened, no memory but the plan's own is taken, and
 * it is the same for the same graph, on every rank.  Functions may be called by any number of
 * threads at once, and in children that were forked.
 */
#ifndef TOW_GRAPH_H
#define TOW_GRAPH_H

#include <stdint.h>

#include <towline/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of a dimension: it is not known; and as an upper bound: there is none. */
#define TOW_DIM_UNKNOWN		(-1)
/* The same of how many dimensions there are. */
#define TOW_NDIM_UNKNOWN	UINT32_MAX
/* No node, no edge. */
#define TOW_PLAN_NONE		UINT32_MAX
/* The most ranks of a plan. */
#define TOW_PLAN_RANKS_MAX	65536U

/*
 * What a rank receives shares memory where no two tensors are there at once; only edges of one slot
 * do, and of an edge that does not say how many it has there is one then, and not two.
 */
#define TOW_PLAN_SHARE		(1U << 0)

/*
 * Of an edge: dimensions are what tensors have as a rule; one of another shape is sent nevertheless, as
 * by a dynamic edge.
 */
#define TOW_GRAPH_FALLBACK	(1U << 0)

/**
 * struct tow_graph_node - a node
 * @rank: which rank runs it.  A rank runs its nodes in the order in which they are given
 * @reserved: 0
 */
struct tow_graph_node {
	uint32_t rank;
	uint32_t reserved;
};

/**
 * struct tow_graph_edge - that a node takes what another one computes
 * @from: the number of the node that computes it
 * @output: which of its outputs it is.  All edges of one output are of the same @flags, @type and @most
 * @to: the number of the node that takes it
 * @slots: how many steps there is memory for, at most TOW_EDGE_SLOTS_MAX; 0: as the plan has it
 * @flags: TOW_GRAPH_FALLBACK, where there are dimensions and all are known or bounded; or 0
 * @reserved: 0
 * @type: what is known of the tensor: @type.ndim may be TOW_NDIM_UNKNOWN, and each of its @dims
 *	TOW_DIM_UNKNOWN
 * @most: of each dimension that is not known the most that it can be, or TOW_DIM_UNKNOWN
 */
struct tow_graph_edge {
	uint32_t from;
	uint32_t output;
	uint32_t to;
	uint32_t slots;
	uint32_t flags;
	uint32_t reserved;
	struct tow_tensor_type type;
	int64_t most[TOW_DIMS_MAX];
};

/**
 * struct tow_plan_attr - what is to be planned
 * @size: sizeof(struct tow_plan_attr)
 * @flags: TOW_PLAN_*
 * @ranks: how many there are, 1 to TOW_PLAN_RANKS_MAX
 * @slots: of edges that do not say it, at most TOW_EDGE_SLOTS_MAX; 0: 2, or with TOW_PLAN_SHARE 1
 * @node_count: how many nodes there are, less than TOW_PLAN_NONE
 * @edge_count: how many edges, likewise
 * @nodes: the nodes; not looked at when the plan is made
 * @edges: the edges, likewise
 */
struct tow_plan_attr {
	uint32_t size;
	uint32_t flags;
	uint32_t ranks;
	uint32_t slots;
	uint32_t node_count;
	uint32_t edge_count;
	const struct tow_graph_node *nodes;
	const struct tow_graph_edge *edges;
};

/* Made by tow_plan_create(), ended by tow_plan_destroy(). */
struct tow_plan;

/**
 * tow_plan_create() - plan how a graph's tensors move
 * @attr: the graph, and how
 * @plan: stored here; ended with tow_plan_destroy()
 * @node: the number of a node that is wrong is stored here, or TOW_PLAN_NONE; or NULL
 * @edge: the same of an edge
 *
 * Takes as long as it takes to sort the edges.  Whether the nodes can be run in their order at all,
 * or would wait for each other, is not looked at.
 *
 * Return: 0, or
 *  -E2BIG: @attr asks for what this library does not know;
 *  -EINVAL: an argument is NULL that must not be, or @attr is not as above; or what is said of
 *	*@node or *@edge: there is no such rank, node, type or flag, or it has more slots than there may
 *	be, or nothing to fall back from, or is of another type, or falls back otherwise, than an edge
 *	before it of the same output;
 *  -ENOMEM: out of memory;
 *  -EOVERFLOW: there is no memory as large as *@edge takes, or as large as a rank would need with
 *	it.
 */
int tow_plan_create(const struct tow_plan_attr *attr, struct tow_plan **plan, uint32_t *node,
		    uint32_t *edge);

/**
 * tow_plan_destroy() - forget a plan
 * @plan: the plan, or NULL
 */
void tow_plan_destroy(struct tow_plan *plan);

/* How an edge crosses. */
enum tow_plan_kind {
	TOW_PLAN_STATIC		= 1,
	TOW_PLAN_BOUNDED	= 2,
	TOW_PLAN_DYNAMIC	= 3
};

/**
 * struct tow_plan_edge - an edge that crosses
 * @size: sizeof(struct tow_plan_edge)
 * @kind: enum tow_plan_kind
 * @from_rank: who sends it
 * @to_rank: who receives it, once, for all nodes of this rank that take this output
 * @edge: which of the graph's edges it is; of several the first one
 * @edges: how many it is
 * @first: the first node of those that take it, in the receiver's order
 * @last: the last one; a step was read when all of them have run
 * @slots: how many steps there is memory for: the most that any of those edges says
 * @steps: a step's tensor may be sent when the step that is so many before it
 * @after: was read of this edge of the plan: of itself and @slots steps before, or, where it shares
 *	its memory, of the one that has that before it, in the same step (0) or the one before (1)
 * @flags: TOW_GRAPH_FALLBACK: it is bounded, and has a dynamic end beside it; or 0
 * @type: of the tensors; of a bounded edge, of the largest one; of a dynamic one as it was given
 * @tensor_bytes: how large such a tensor is; of a dynamic edge that is 0, as all else below
 * @stride: how far apart tensors are, at the receiver and at the sender: @tensor_bytes, rounded up to
 *	64; of a bounded edge 64 more, as each tensor is behind a line of 64 bytes that says its
 *	dimensions (an int64_t for each, in the order of bytes of the machine), and is sent with it
 * @offset: where in the receiver's region it is counted how many steps have come: 8 bytes, at the
 *	beginning of a line that nothing else is in
 * @bytes: how large that line is: 64
 * @tensors_offset: where the tensors come to, and how large that is: @slots times @stride.  Behind
 * @tensors_bytes: that line, unless the memory is shared
 * @credit_offset: where in the sender's region it is counted how many steps the receiver has given
 *	back: 8 bytes in a line of 64, likewise
 * @send_offset: where in the sender's region nodes compute what is sent, for all edges of this
 *	output, and how
 * @send_bytes: large that is: as many tensors, at places as far apart, as the edge of that output
 *	has slots that has most
 *
 * All places are multiples of 64 bytes.
 */
struct tow_plan_edge {
	uint32_t size;
	uint32_t kind;
	uint32_t from_rank;
	uint32_t to_rank;
	uint32_t edge;
	uint32_t edges;
	uint32_t first;
	uint32_t last;
	uint32_t slots;
	uint32_t steps;
	uint32_t after;
	uint32_t flags;
	struct tow_tensor_type type;
	uint64_t tensor_bytes;
	uint64_t stride;
	uint64_t offset;
	uint64_t bytes;
	uint64_t tensors_offset;
	uint64_t tensors_bytes;
	uint64_t credit_offset;
	uint64_t send_offset;
	uint64_t send_bytes;
};

/**
 * tow_plan_edge_count() - how many edges cross
 * @plan: the plan
 *
 * Return: their number; 0: @plan is NULL.
 */
uint32_t tow_plan_edge_count(const struct tow_plan *plan);

/**
 * tow_plan_edge_info() - how one of them does
 * @plan: the plan
 * @number: which one, from 0; in the order of the nodes that send, then of outputs, then of ranks
 * @edge: answered here; @edge->size must be set
 *
 * Return: 0; -EINVAL: an argument is NULL, there is no such edge, or @edge's size is none that there
 * ever was.
 */
int tow_plan_edge_info(const struct tow_plan *plan, uint32_t number, struct tow_plan_edge *edge);

/**
 * tow_plan_edge_of() - which of them carries an edge of the graph
 * @plan: the plan
 * @edge: the number of the graph's edge
 *
 * Return: its number, for tow_plan_edge_info(); TOW_PLAN_NONE: it does not cross, or there is none.
 */
uint32_t tow_plan_edge_of(const struct tow_plan *plan, uint32_t edge);

/**
 * struct tow_plan_rank - what a rank needs
 * @size: sizeof(struct tow_plan_rank)
 * @nodes: how many nodes it runs
 * @receives: how many edges of the plan it receives
 * @sends: how many it sends
 * @peers: how many ranks those are from and to
 * @exports: how many ranges of its memory other ranks find by name.  One for all that is received
 *	by static and bounded edges; a number for each of those, received (what has come) or sent
 *	(credits); a mailbox, if it has peers.  Ends of dynamic edges, and of those that may fall back: a
 *	receiver's number and its range; a sender's tensors, one if all are in one region; and one
 *	mailbox for all of them.
 *	What lines of mailboxes have besides, two for each end, is not in it
 * @registrations: how many memory regions of the device a program on verbs would register, one for
 *	each buffer: what is received by each edge, and each output that is sent.  With towline
 *	there is none of the program's
 * @reserved: 0
 * @region_bytes: how large its region is, all of which has its place in the plan
 * @receive_bytes: how much of that, from its beginning on, is what others write tensors to
 * @send_bytes: how much of it is what it sends, at its end
 * @pool_bytes: what it takes of the device's pool before the first step: the region; and, in its
 *	worker's arena, a mailbox with a line of 8,192 bytes to each peer, and ends of dynamic edges
 *	with what they have such lines for; each in whole 2 MiB.  Tensors that come by dynamic edges,
 *	or go by them, are not in it
 */
struct tow_plan_rank {
	uint32_t size;
	uint32_t nodes;
	uint32_t receives;
	uint32_t sends;
	uint32_t peers;
	uint32_t exports;
	uint32_t registrations;
	uint32_t reserved;
	uint64_t region_bytes;
	uint64_t receive_bytes;
	uint64_t send_bytes;
	uint64_t pool_bytes;
};

/**
 * tow_plan_rank_info() - what a rank needs
 * @plan: the plan
 * @rank: which one
 * @info: answered here; @info->size must be set
 *
 * Return: 0; -EINVAL: an argument is NULL, there is no such rank, or @info's size is none that there
 * ever was.
 */
int tow_plan_rank_info(const struct tow_plan *plan, uint32_t rank, struct tow_plan_rank *info);

#ifdef __cplusplus
}
#endif

#endif /* TOW_GRAPH_H */

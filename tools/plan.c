// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * towline plan: how the tensors of a graph move, as a table, JSON or a picture; and how two plans
 * differ.  No device is asked.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "graph.h"
#include "tool.h"

/* Of the JSON, whose meaning does not change as long as it is the same. */
#define VERSION	1
/* "edges", "graph", "ranks" and "version" */
#define PLAN_KEYS	4

static const char *const kinds[] = {
	[TOW_PLAN_STATIC] = "static",
	[TOW_PLAN_BOUNDED] = "bounded",
	[TOW_PLAN_DYNAMIC] = "dynamic",
};

/* ---- a plan as JSON ----------------------------------------------------------- */

static void add_number(struct json_object *object, const char *key, uint64_t number)
{
	json_object_object_add(object, key, json_object_new_int64((int64_t)number));
}

/* What the graph says of one of its edges. */
static struct json_object *graph_edge(const struct graph *graph, uint32_t number)
{
	return json_object_array_get_idx(json_object_object_get(graph->json, "edges"), number);
}

static struct json_object *graph_value(const struct graph *graph, uint32_t number, const char *key)
{
	return json_object_get(json_object_object_get(graph_edge(graph, number), key));
}

/* Its keys in their order.  The nodes that take it are added as they are found. */
static struct json_object *edge_object(const struct graph *graph, const struct tow_plan_edge *edge)
{
	struct json_object *object = json_object_new_object();

	add_number(object, "after", edge->after);
	add_number(object, "bytes", edge->bytes);
	add_number(object, "credit_offset", edge->credit_offset);
	json_object_object_add(object, "dims", graph_value(graph, edge->edge, "dims"));
	json_object_object_add(object, "dtype", graph_value(graph, edge->edge, "dtype"));
	if (edge->flags & TOW_GRAPH_FALLBACK)
		json_object_object_add(object, "fallback", json_object_new_boolean(true));
	json_object_object_add(object, "from", graph_value(graph, edge->edge, "from"));
	add_number(object, "from_rank", edge->from_rank);
	json_object_object_add(object, "kind", word_object(kinds, COUNT(kinds), edge->kind));
	add_number(object, "offset", edge->offset);
	json_object_object_add(object, "output", graph_value(graph, edge->edge, "output"));
	add_number(object, "send_bytes", edge->send_bytes);
	add_number(object, "send_offset", edge->send_offset);
	add_number(object, "slots", edge->slots);
	add_number(object, "steps", edge->steps);
	add_number(object, "stride", edge->stride);
	add_number(object, "tensor_bytes", edge->tensor_bytes);
	add_number(object, "tensors_bytes", edge->tensors_bytes);
	add_number(object, "tensors_offset", edge->tensors_offset);
	json_object_object_add(object, "to", json_object_new_array());
	add_number(object, "to_rank", edge->to_rank);
	return object;
}

static struct json_object *rank_object(uint32_t number, const struct tow_plan_rank *rank)
{
	struct json_object *object = json_object_new_object();

	add_number(object, "exports", rank->exports);
	add_number(object, "nodes", rank->nodes);
	add_number(object, "peers", rank->peers);
	add_number(object, "pool_bytes", rank->pool_bytes);
	add_number(object, "rank", number);
	add_number(object, "receive_bytes", rank->receive_bytes);
	add_number(object, "receives", rank->receives);
	add_number(object, "region_bytes", rank->region_bytes);
	add_number(object, "registrations", rank->registrations);
	add_number(object, "send_bytes", rank->send_bytes);
	add_number(object, "sends", rank->sends);
	return object;
}

static struct json_object *edges_of(const struct graph *graph, const struct tow_plan *plan)
{
	struct tow_plan_edge edge = { .size = sizeof(edge) };
	struct json_object *edges = json_object_new_array(), *carrier;
	uint32_t number;

	for (uint32_t i = 0; !tow_plan_edge_info(plan, i, &edge); i++)
		json_object_array_add(edges, edge_object(graph, &edge));
	/* The graph's are in the order of the nodes that take them. */
	for (uint32_t i = 0; i < graph->edges_count; i++) {
		number = tow_plan_edge_of(plan, i);
		if (number == TOW_PLAN_NONE)
			continue;
		carrier = json_object_array_get_idx(edges, number);
		json_object_array_add(json_object_object_get(carrier, "to"),
				      graph_value(graph, i, "to"));
	}
	return edges;
}

static struct json_object *plan_object(const struct graph *graph, const struct tow_plan *plan)
{
	struct json_object *object = json_object_new_object(), *ranks = json_object_new_array();
	struct tow_plan_rank rank = { .size = sizeof(rank) };

	for (uint32_t i = 0; !tow_plan_rank_info(plan, i, &rank); i++)
		json_object_array_add(ranks, rank_object(i, &rank));
	json_object_object_add(object, "edges", edges_of(graph, plan));
	json_object_object_add(object, "graph", json_object_get(graph->json));
	json_object_object_add(object, "ranks", ranks);
	add_number(object, "version", VERSION);
	return object;
}

static int refused(const struct graph *graph, int error, uint32_t edge)
{
	const char *from, *to;

	if (edge == TOW_PLAN_NONE)
		return graph_wrong(graph->path, NULL, 0, "%s", tow_strerror(error));
	from = json_object_get_string(json_object_object_get(graph_edge(graph, edge), "from"));
	to = json_object_get_string(json_object_object_get(graph_edge(graph, edge), "to"));
	return graph_wrong(graph->path, "edge", graph->numbers[edge], "from '%s' to '%s': %s", from, to,
			   error == -EOVERFLOW ? "nothing is as large as that" :
			   "it has nothing to fall back from");
}

int plan_make(const struct graph *graph, struct json_object **json)
{
	const struct tow_plan_attr attr = {
		.size = sizeof(attr), .flags = graph->share ? TOW_PLAN_SHARE : 0,
		.ranks = graph->ranks, .slots = graph->slots,
		.node_count = (uint32_t)graph->nodes_count, .nodes = graph->nodes,
		.edge_count = (uint32_t)graph->edges_count, .edges = graph->edges,
	};
	struct tow_plan *plan;
	uint32_t edge;
	int ret = tow_plan_create(&attr, &plan, NULL, &edge);

	if (ret)
		return refused(graph, ret, edge);
	*json = plan_object(graph, plan);
	tow_plan_destroy(plan);
	return 0;
}

/* ---- a plan in a file --------------------------------------------------------- */

/* What it is must be the same; other numbers may have been planned by another version. */
static int same_identity(struct json_object *one, struct json_object *planned, const char *const *others)
{
	int64_t number;

	if (json_object_object_length(one) != json_object_object_length(planned))
		return -1;
	json_object_object_foreach(planned, key, value) {
		size_t i = 0;

		while (others[i] && strcmp(others[i], key) != 0)
			i++;
		if (others[i] ? graph_number(one, key, INT64_MAX, &number) :
		    strcmp(key, "kind") != 0 &&
		    !json_object_equal(value, json_object_object_get(one, key)))
			return -1;
	}
	return 0;
}

static int same_edge(struct json_object *edge, struct json_object *planned)
{
	static const char *const others[] = { "slots", "after", "steps", "tensor_bytes", "stride",
					      "offset", "bytes", "tensors_offset", "tensors_bytes",
					      "credit_offset", "send_offset", "send_bytes", NULL };
	static const char *const places[] = { "stride", "offset", "tensors_offset",
					      "credit_offset", "send_offset" };
	int64_t number;

	if (!json_object_is_type(edge, json_type_object) || same_identity(edge, planned, others) ||
	    graph_number(edge, "slots", TOW_EDGE_SLOTS_MAX, &number) || !number)
		return -1;
	for (size_t i = 0; i < COUNT(places); i++)
		if (graph_number(edge, places[i], INT64_MAX, &number) || number % 64)
			return -1;
	for (size_t i = 0; i < COUNT(kinds); i++)
		if (kinds[i] && strcmp(kinds[i], text_of(edge, "kind")) == 0)
			return 0;
	return -1;
}

static int same_rank(struct json_object *rank, struct json_object *planned)
{
	static const char *const others[] = { "exports", "registrations", "region_bytes",
					      "receive_bytes", "send_bytes", "pool_bytes", NULL };

	return json_object_is_type(rank, json_type_object) ? same_identity(rank, planned, others) : -1;
}

static int same_list(const char *path, const char *what, struct json_object *list,
		     struct json_object *planned,
		     int (*same)(struct json_object *one, struct json_object *other))
{
	size_t count = json_object_array_length(planned);

	if (!json_object_is_type(list, json_type_array) || json_object_array_length(list) != count)
		return graph_wrong(path, NULL, 0, "it does not have as many %ss as its graph", what);
	for (size_t i = 0; i < count; i++)
		if (same(json_object_array_get_idx(list, i), json_object_array_get_idx(planned, i)))
			return graph_wrong(path, what, i, "this is not planned of the plan's graph");
	return 0;
}

/* Each edge waits for one of the plan's. */
static int check_after(const char *path, struct json_object *edges)
{
	int64_t count = (int64_t)json_object_array_length(edges), number;

	for (int64_t i = 0; i < count; i++)
		if (graph_number(json_object_array_get_idx(edges, (size_t)i), "after", count - 1, &number))
			return graph_wrong(path, "edge", (size_t)i, "there is no edge that it is after");
	return 0;
}

int plan_check(const char *path, struct json_object *plan)
{
	struct json_object *planned = NULL, *edges = json_object_object_get(plan, "edges");
	struct graph graph;
	int64_t version;
	int ret;

	if (graph_number(plan, "version", INT64_MAX, &version) || version != VERSION)
		return graph_wrong(path, NULL, 0, "it is a plan of another version than %d", VERSION);
	if (json_object_object_length(plan) != PLAN_KEYS)
		return graph_wrong(path, NULL, 0, "it is a plan with a key that is not known");
	ret = graph_take(&graph, path, json_object_object_get(plan, "graph"));
	if (!ret && !json_object_equal(graph.json, json_object_object_get(plan, "graph")))
		ret = graph_wrong(path, NULL, 0, "the graph in the plan is of another form");
	if (!ret)
		ret = plan_make(&graph, &planned);
	if (!ret)
		ret = same_list(path, "edge", edges, json_object_object_get(planned, "edges"), same_edge);
	if (!ret)
		ret = same_list(path, "rank", json_object_object_get(plan, "ranks"),
				json_object_object_get(planned, "ranks"), same_rank);
	if (!ret)
		ret = check_after(path, edges);
	json_object_put(planned);
	graph_forget(&graph);
	return ret;
}

/* The plan in a file, or of the graph in it: 0, or -1. */
static int take_plan(const char *path, struct json_object **plan)
{
	struct json_object *json;
	struct graph graph;
	int ret = json_read(path, &json);

	*plan = NULL;
	if (ret)
		return ret;
	if (json_object_object_get(json, "graph")) {
		ret = plan_check(path, json);
		if (!ret)
			*plan = json_object_get(json);
	} else {
		ret = graph_take(&graph, path, json);
		if (!ret)
			ret = plan_make(&graph, plan);
		graph_forget(&graph);
	}
	json_object_put(json);
	return ret;
}

/* ---- the command --------------------------------------------------------------- */

struct options {
	bool json, dot;
	int count;
	const char *paths[2];
};

/* NOLINTNEXTLINE(readability-non-const-parameter): argp's type */
static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case 'j':
		options->json = true;
		return 0;
	case 'g':
		options->dot = true;
		return 0;
	case ARGP_KEY_ARG:
		if (options->count == (int)COUNT(options->paths))
			argp_error(state, "one file, or two to compare");
		options->paths[options->count++] = arg;
		return 0;
	case ARGP_KEY_END:
		if (!options->count)
			argp_error(state, "which file?");
		if (options->dot && (options->json || options->count > 1))
			argp_error(state, "--dot is for one file, and without --json");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void show(const struct options *options, struct json_object *plan)
{
	if (options->json)
		print_json(plan);
	else if (options->dot)
		plan_dot(plan);
	else
		plan_show(plan);
}

/* The exit status: whether they are the same. */
static int compare(const struct options *options, struct json_object *one, struct json_object *other)
{
	struct json_object *differences = plan_differ(one, other);
	int status = json_object_array_length(differences) ? EXIT_FAILURE : EXIT_SUCCESS;

	if (options->json)
		print_json(differences);
	else
		plan_show_differences(differences);
	json_object_put(differences);
	return status;
}

int command_plan(int argc, char **argv)
{
	static const struct argp_option known[] = {
		{ "json", 'j', NULL, 0, "the plan as JSON; of two files, a list of differences", 0 },
		{ "dot", 'g', NULL, 0, "a picture, for dot(1) of Graphviz", 0 },
		{ 0 },
	};
	static const struct argp argp = {
		.options = known,
		.parser = parse,
		.args_doc = "FILE [OTHER]",
		.doc = "How the tensors of a graph move between ranks, or where two plans differ.",
	};
	struct json_object *plans[2] = { NULL, NULL };
	struct options options = { 0 };
	int status = EXIT_FAILURE;

	if (argp_parse(&argp, argc, argv, 0, NULL, &options))
		return EXIT_FAILURE;
	if (!take_plan(options.paths[0], &plans[0])) {
		if (options.count == 1) {
			show(&options, plans[0]);
			status = EXIT_SUCCESS;
		} else if (!take_plan(options.paths[1], &plans[1])) {
			status = compare(&options, plans[0], plans[1]);
		}
	}
	json_object_put(plans[0]);
	json_object_put(plans[1]);
	return status;
}

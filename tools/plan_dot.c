// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Plans as pictures, in the language of Graphviz: ranks are boxes around their nodes, and the edges
 * between them have the colours of their kinds.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "graph.h"
#include "tool.h"

/* Within quotes; a line break is "\n", which the caller writes. */
static void print_quoted(const char *text)
{
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			putchar('\\');
		putchar(*text);
	}
}

static const char *colour_of(struct json_object *edge)
{
	const char *kind = text_of(edge, "kind");

	if (strcmp(kind, "static") == 0)
		return "forestgreen";
	return strcmp(kind, "bounded") == 0 ? "darkorange" : "firebrick";
}

/* The nodes' numbers by their names, and all nodes of the ranks, each in its box. */
static void print_nodes(struct json_object *nodes, struct json_object *numbers, int64_t ranks)
{
	size_t count = json_object_array_length(nodes);

	for (size_t i = 0; i < count; i++)
		json_object_object_add(numbers, text_of(json_object_array_get_idx(nodes, i), "name"),
				       json_object_new_int64((int64_t)i));
	for (int64_t rank = 0; rank < ranks; rank++)
		printf("  subgraph cluster_%" PRId64 " { label=\"rank %" PRId64 "\"; color=gray; }\n",
		       rank, rank);
	for (size_t i = 0; i < count; i++) {
		struct json_object *node = json_object_array_get_idx(nodes, i);

		printf("  subgraph cluster_%s { n%zu [label=\"", text_of(node, "rank"), i);
		print_quoted(text_of(node, "name"));
		if (json_object_object_get(node, "op")) {
			printf("\\n");
			print_quoted(text_of(node, "op"));
		}
		printf("\"]; }\n");
	}
}

/* Edges within a rank, of which nothing is planned. */
static void print_inner(struct json_object *graph, struct json_object *numbers)
{
	struct json_object *edges = json_object_object_get(graph, "edges");
	struct json_object *nodes = json_object_object_get(graph, "nodes");

	for (size_t i = 0; i < json_object_array_length(edges); i++) {
		struct json_object *edge = json_object_array_get_idx(edges, i);
		const char *from = text_of(numbers, text_of(edge, "from"));
		const char *to = text_of(numbers, text_of(edge, "to"));
		struct json_object *one = json_object_array_get_idx(nodes, strtoul(from, NULL, 10));
		struct json_object *other = json_object_array_get_idx(nodes, strtoul(to, NULL, 10));

		if (json_object_equal(json_object_object_get(one, "rank"),
				      json_object_object_get(other, "rank")))
			printf("  n%s -> n%s [color=gray];\n", from, to);
	}
}

/* One arrow to each node that takes it; the first one says what it is. */
static void print_crossing(struct json_object *edge, struct json_object *numbers)
{
	struct json_object *to = json_object_object_get(edge, "to");
	const char *colour = colour_of(edge);
	char dims[DIMS_TEXT], size[SIZE_TEXT];

	for (size_t i = 0; i < json_object_array_length(to); i++) {
		const char *name = json_object_get_string(json_object_array_get_idx(to, i));

		printf("  n%s -> n%s [color=%s", text_of(numbers, text_of(edge, "from")),
		       text_of(numbers, name), colour);
		if (!i) {
			printf(", fontcolor=%s, label=\"", colour);
			print_quoted(dims_words(json_object_object_get(edge, "dims"), dims));
			if (strcmp(text_of(edge, "kind"), "dynamic") != 0)
				printf("\\n%s", size_of(edge, "tensor_bytes", size));
			printf("\"");
		}
		printf("];\n");
	}
}

void plan_dot(struct json_object *plan)
{
	struct json_object *graph = json_object_object_get(plan, "graph");
	struct json_object *edges = json_object_object_get(plan, "edges");
	struct json_object *numbers = json_object_new_object();

	printf("digraph plan {\n  node [shape=box];\n");
	print_nodes(json_object_object_get(graph, "nodes"), numbers,
		    json_object_get_int64(json_object_object_get(graph, "ranks")));
	print_inner(graph, numbers);
	for (size_t i = 0; i < json_object_array_length(edges); i++)
		print_crossing(json_object_array_get_idx(edges, i), numbers);
	printf("}\n");
	json_object_put(numbers);
}

/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * Graphs and plans as towline plan reads and shows them: Documentation/design/graph.md has their
 * JSON.
 */
#ifndef TOW_TOOL_GRAPH_H
#define TOW_TOOL_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <json-c/json.h>
#include <towline/graph.h>

/* ---- graph.c: a graph out of a file ---- */

struct graph {
	const char *path;		/* for words about what is wrong */
	uint32_t ranks, slots;
	bool share;
	size_t nodes_count, edges_count;
	struct tow_graph_node *nodes;
	struct tow_graph_edge *edges;	/* by their nodes' numbers and outputs, as in JSON */
	size_t *numbers;		/* which ones they are in the file */
	struct json_object *names;	/* a number for each */
	struct json_object *json;	/* all of it, keys sorted, and nothing else */
};

/*
 * The JSON in a file: 0, and it is given back by json_object_put(); or -1, about which everything
 * is said.
 */
int json_read(const char *path, struct json_object **json);

/* A graph, which is forgotten by graph_forget() in any case: 0, or -1, as json_read(). */
int graph_take(struct graph *graph, const char *path, struct json_object *json);
void graph_forget(struct graph *graph);

/* Say what is wrong with "node" or "edge" number @number of a file, or with all of it: -1. */
__attribute__((format(printf, 4, 5)))
int graph_wrong(const char *path, const char *what, size_t number, const char *format, ...);

/* What there is under @key and is a number up to @most: 0, or -1. */
int graph_number(struct json_object *object, const char *key, int64_t most, int64_t *number);

/* "[32, seq<=512, ?]" */
#define DIMS_TEXT 512
const char *dims_words(struct json_object *dims, char text[DIMS_TEXT]);

/* ---- plan.c: what is planned of it ---- */

/* Plans a graph: 0, and its JSON; or -1, about which everything is said. */
int plan_make(const struct graph *graph, struct json_object **json);

/* A plan in a file that has one: 0, or -1, as graph_take(). */
int plan_check(const char *path, struct json_object *plan);

/* ---- plan_show.c, plan_dot.c, plan_differ.c ---- */

void plan_show(struct json_object *plan);
void plan_dot(struct json_object *plan);

/* A list of how they differ; each is an object with "what", "key", "a" and "b". */
struct json_object *plan_differ(struct json_object *one, struct json_object *other);
void plan_show_differences(struct json_object *differences);

/* The edge of a plan in words: "conv1:0". */
#define EDGE_TEXT 320
const char *edge_words(struct json_object *edge, char text[EDGE_TEXT]);

#endif /* TOW_TOOL_GRAPH_H */

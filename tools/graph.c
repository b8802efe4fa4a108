// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Graphs: from JSON, which anybody may have written, to the planner's arrays and to JSON of one form.
 */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "graph.h"
#include "tool.h"

#define DEPTH	16
/* The longest name of a node, an operator or a dimension, in bytes. */
#define NAME_MAX_BYTES	255

int graph_wrong(const char *path, const char *what, size_t number, const char *format, ...)
{
	va_list args;

	fprintf(stderr, "towline: %s: ", path);
	if (what)
		fprintf(stderr, "%s %zu: ", what, number);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	return -1;
}

/* ---- files ------------------------------------------------------------------- */

/* Its text, to be given to free(), and how long that is; or NULL. */
static char *read_text(const char *path, int *length)
{
	FILE *file = fopen(path, "re");
	char *text = NULL;
	size_t room = 0;
	ssize_t count;

	if (!file) {
		graph_wrong(path, NULL, 0, "%s", strerror(errno));
		return NULL;
	}
	errno = 0;
	count = getdelim(&text, &room, '\0', file);
	if (ferror(file) || (count < 0 && errno))
		graph_wrong(path, NULL, 0, "%s", strerror(errno ? errno : EIO));
	else if (count <= 0)
		graph_wrong(path, NULL, 0, "it is empty");
	else if (!text[count - 1] || count > INT_MAX)
		graph_wrong(path, NULL, 0, "this is no text, or too long");
	else
		*length = (int)count;
	fclose(file);
	if (*length)
		return text;
	free(text);
	return NULL;
}

static size_t line_of(const char *text, size_t end)
{
	size_t line = 1;

	for (size_t i = 0; i < end; i++)
		line += text[i] == '\n';
	return line;
}

/* The first or second half of a character of two escapes, as @digits says: "89ab" or "cdef". */
static bool is_half(const char *escape, const char *digits)
{
	return strncasecmp(escape, "\\ud", 3) == 0 && strchr(digits, escape[3] | 0x20);
}

/* Does what is in too many bytes begin so, or is no character?  json-c has seen that they are there. */
static bool wrong_bytes(const char *text)
{
	unsigned char first = (unsigned char)text[0], second = (unsigned char)text[1];

	return first == 0xc0 || first == 0xc1 || first > 0xf4 || (first == 0xe0 && second < 0xa0) ||
	       (first == 0xed && second >= 0xa0) || (first == 0xf0 && second < 0x90) ||
	       (first == 0xf4 && second >= 0x90);
}

/* What is wrong with a character that is outside of strings, and follows another one; or NULL. */
static const char *wrong_outside(const char *text, char before)
{
	if (*text == '\'')
		return "strings are in double quotes";
	if (*text == '0' && !isdigit((unsigned char)before) && isdigit((unsigned char)text[1]))
		return "a number begins with 0";
	return NULL;
}

/*
 * What json-c takes and others do not: strings in single quotes, what is no character, and 00.  How
 * many members all objects have is counted, as json-c keeps one of those that have the same key.
 * NULL, or what is wrong at @end.
 */
static const char *look_through(const char *text, size_t length, size_t *end, size_t *members)
{
	const char *wrong = NULL;
	bool string = false;

	*members = 0;
	for (size_t i = 0; i < length && !wrong; i++) {
		*end = i;
		if (wrong_bytes(&text[i]))
			return "this is not UTF-8";
		if (text[i] == '"') {
			string = !string;
		} else if (string && text[i] == '\\') {
			bool first = is_half(&text[i], "89ab");

			if (strncmp(&text[i], "\\u0000", 6) == 0 || is_half(&text[i], "cdef") ||
			    (first && !is_half(&text[i + 6], "cdef")))
				return "a string has what is no character";
			i += first ? 11 : 1;
		} else if (!string) {
			*members += text[i] == ':';
			wrong = wrong_outside(&text[i], i ? text[i - 1] : ' ');
		}
	}
	return wrong;
}

static size_t members_of(struct json_object *json)
{
	size_t count = 0;

	if (json_object_is_type(json, json_type_array)) {
		for (size_t i = 0; i < json_object_array_length(json); i++)
			count += members_of(json_object_array_get_idx(json, i));
	} else if (json_object_is_type(json, json_type_object)) {
		json_object_object_foreach(json, key, value) {
			(void)key;
			count += 1 + members_of(value);
		}
	}
	return count;
}

/* The text of @json is what it is for others, too: 0, or -1. */
static int check_text(const char *path, const char *text, size_t length, struct json_object *json)
{
	size_t end, members;
	const char *wrong = look_through(text, length, &end, &members);

	if (wrong)
		return graph_wrong(path, "line", line_of(text, end), "%s", wrong);
	if (members != members_of(json))
		return graph_wrong(path, NULL, 0, "an object has a key twice");
	return 0;
}

int json_read(const char *path, struct json_object **json)
{
	struct json_tokener *tokener = json_tokener_new_ex(DEPTH);
	enum json_tokener_error error = json_tokener_success;
	int length = 0, ret = -1;
	char *text = tokener ? read_text(path, &length) : NULL;

	*json = NULL;
	if (text) {
		json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
		*json = json_tokener_parse_ex(tokener, text, length);
		error = json_tokener_get_error(tokener);
		if (error == json_tokener_success)
			ret = check_text(path, text, (size_t)length, *json);
		else
			graph_wrong(path, "line", line_of(text, json_tokener_get_parse_end(tokener)),
				    "%s", error == json_tokener_continue ? "it ends too early" :
				    json_tokener_error_desc(error));
	}
	if (ret) {
		json_object_put(*json);
		*json = NULL;
	}
	free(text);
	json_tokener_free(tokener);
	return ret;
}

/* ---- values ------------------------------------------------------------------ */

int graph_number(struct json_object *object, const char *key, int64_t most, int64_t *number)
{
	struct json_object *value = json_object_object_get(object, key);

	if (!json_object_is_type(value, json_type_int) || json_object_get_int64(value) < 0 ||
	    json_object_get_uint64(value) > (uint64_t)most)
		return -1;
	*number = json_object_get_int64(value);
	return 0;
}

static bool has(struct json_object *object, const char *key)
{
	return json_object_object_get_ex(object, key, NULL);
}

/* The same, but that it may not be there: then *@number stays. */
static int may_number(struct json_object *object, const char *key, int64_t most, int64_t *number)
{
	return has(object, key) ? graph_number(object, key, most, number) : 0;
}

/* What may be shown: not empty, of one line, and nothing that a terminal obeys; or NULL. */
static const char *name_of(struct json_object *value)
{
	const unsigned char *text;
	size_t length;

	if (!json_object_is_type(value, json_type_string))
		return NULL;
	text = (const unsigned char *)json_object_get_string(value);
	length = (size_t)json_object_get_string_len(value);
	if (!length || length > NAME_MAX_BYTES)
		return NULL;
	for (size_t i = 0; i < length; i++)
		if (text[i] < 0x20 || text[i] == 0x7f ||
		    (text[i] == 0xc2 && text[i + 1] >= 0x80 && text[i + 1] < 0xa0))
			return NULL;
	return (const char *)text;
}

/* A key of an object that is none of @keys, or NULL. */
static const char *unknown_key(struct json_object *object, const char *const *keys)
{
	json_object_object_foreach(object, key, value) {
		size_t i = 0;

		(void)value;
		while (keys[i] && strcmp(keys[i], key) != 0)
			i++;
		if (!keys[i])
			return key;
	}
	return NULL;
}

/* Is it an object with keys that are known, of a file's "node" or "edge" @number?  0, or -1. */
static int check_keys(const char *path, const char *what, size_t number, struct json_object *object,
		      const char *const *keys)
{
	struct json_object *name;
	const char *key;

	if (!json_object_is_type(object, json_type_object))
		return graph_wrong(path, what, number, "it is no object");
	key = unknown_key(object, keys);
	if (!key)
		return 0;
	name = json_object_new_string(key);
	key = name_of(name);
	graph_wrong(path, what, number, "it has a key that is not known%s%s", key ? ": " : "", key ? key : "");
	json_object_put(name);
	return -1;
}

/* ---- elements and dimensions -------------------------------------------------- */

static const struct {
	const char *name;
	struct tow_dtype dtype;
} dtypes[] = {
	{ "bfloat16", { TOW_DTYPE_BFLOAT, 16, 1 } },
	{ "bool", { TOW_DTYPE_BOOL, 8, 1 } },
	{ "complex128", { TOW_DTYPE_COMPLEX, 128, 1 } },
	{ "complex64", { TOW_DTYPE_COMPLEX, 64, 1 } },
	{ "float16", { TOW_DTYPE_FLOAT, 16, 1 } },
	{ "float32", { TOW_DTYPE_FLOAT, 32, 1 } },
	{ "float4_e2m1fn", { TOW_DTYPE_FLOAT4_E2M1FN, 4, 1 } },
	{ "float64", { TOW_DTYPE_FLOAT, 64, 1 } },
	{ "float6_e2m3fn", { TOW_DTYPE_FLOAT6_E2M3FN, 6, 1 } },
	{ "float6_e3m2fn", { TOW_DTYPE_FLOAT6_E3M2FN, 6, 1 } },
	{ "float8_e3m4", { TOW_DTYPE_FLOAT8_E3M4, 8, 1 } },
	{ "float8_e4m3", { TOW_DTYPE_FLOAT8_E4M3, 8, 1 } },
	{ "float8_e4m3b11fnuz", { TOW_DTYPE_FLOAT8_E4M3B11FNUZ, 8, 1 } },
	{ "float8_e4m3fn", { TOW_DTYPE_FLOAT8_E4M3FN, 8, 1 } },
	{ "float8_e4m3fnuz", { TOW_DTYPE_FLOAT8_E4M3FNUZ, 8, 1 } },
	{ "float8_e5m2", { TOW_DTYPE_FLOAT8_E5M2, 8, 1 } },
	{ "float8_e5m2fnuz", { TOW_DTYPE_FLOAT8_E5M2FNUZ, 8, 1 } },
	{ "float8_e8m0fnu", { TOW_DTYPE_FLOAT8_E8M0FNU, 8, 1 } },
	{ "int16", { TOW_DTYPE_INT, 16, 1 } },
	{ "int32", { TOW_DTYPE_INT, 32, 1 } },
	{ "int4", { TOW_DTYPE_INT, 4, 1 } },
	{ "int64", { TOW_DTYPE_INT, 64, 1 } },
	{ "int8", { TOW_DTYPE_INT, 8, 1 } },
	{ "uint16", { TOW_DTYPE_UINT, 16, 1 } },
	{ "uint32", { TOW_DTYPE_UINT, 32, 1 } },
	{ "uint4", { TOW_DTYPE_UINT, 4, 1 } },
	{ "uint64", { TOW_DTYPE_UINT, 64, 1 } },
	{ "uint8", { TOW_DTYPE_UINT, 8, 1 } },
};

static int take_dtype(struct json_object *value, struct tow_dtype *dtype)
{
	const char *name = name_of(value);

	for (size_t i = 0; name && i < COUNT(dtypes); i++) {
		if (strcmp(dtypes[i].name, name) != 0)
			continue;
		*dtype = dtypes[i].dtype;
		return 0;
	}
	return -1;
}

/*
 * A dimension, the most that it can be, and both as JSON of one form; null if nothing is known of it.
 * 0, or -1: it is none.
 */
static int take_dim(struct json_object *value, int64_t *dim, int64_t *most, struct json_object **json)
{
	static const char *const keys[] = { "name", "max", NULL };
	struct json_object *name = json_object_object_get(value, "name");

	*dim = TOW_DIM_UNKNOWN;
	*most = TOW_DIM_UNKNOWN;
	*json = NULL;
	if (!value)
		return 0;
	if (json_object_is_type(value, json_type_int)) {
		if (json_object_get_int64(value) < 0 || json_object_get_uint64(value) > INT64_MAX)
			return -1;
		*dim = json_object_get_int64(value);
		*json = json_object_new_int64(*dim);
		return 0;
	}
	if (!json_object_is_type(value, json_type_object) || unknown_key(value, keys) ||
	    !json_object_object_length(value) || (has(value, "name") && !name_of(name)) ||
	    may_number(value, "max", INT64_MAX, most))
		return -1;
	*json = json_object_new_object();
	if (*most != TOW_DIM_UNKNOWN)
		json_object_object_add(*json, "max", json_object_new_int64(*most));
	if (name)
		json_object_object_add(*json, "name", json_object_get(name));
	return 0;
}

/* 0, and the dimensions as JSON of one form; or -1. */
static int take_dims(struct json_object *value, struct tow_graph_edge *edge, struct json_object **json)
{
	struct json_object *dim;
	size_t count;

	*json = NULL;
	edge->type.ndim = TOW_NDIM_UNKNOWN;
	if (!value)
		return 0;
	if (!json_object_is_type(value, json_type_array))
		return -1;
	count = json_object_array_length(value);
	if (count > TOW_DIMS_MAX)
		return -1;
	*json = json_object_new_array();
	edge->type.ndim = (uint32_t)count;
	for (size_t i = 0; i < count; i++) {
		if (take_dim(json_object_array_get_idx(value, i), &edge->type.dims[i],
			     &edge->most[i], &dim)) {
			json_object_put(*json);
			return -1;
		}
		json_object_array_add(*json, dim);
	}
	return 0;
}

static size_t add_dim(struct json_object *dim, char *text, size_t room)
{
	struct json_object *most = json_object_object_get(dim, "max");
	const char *name = json_object_get_string(json_object_object_get(dim, "name"));
	int count;

	if (json_object_is_type(dim, json_type_int))
		count = snprintf(text, room, "%s", json_object_get_string(dim));
	else if (most)
		count = snprintf(text, room, "%s<=%s", name ? name : "?", json_object_get_string(most));
	else
		count = snprintf(text, room, "%s", name ? name : "?");
	return (size_t)count < room ? (size_t)count : room - 1;
}

const char *dims_words(struct json_object *dims, char text[DIMS_TEXT])
{
	size_t used = 1, count;

	snprintf(text, DIMS_TEXT, "%s", dims ? "[" : "?");
	if (!dims)
		return text;
	count = json_object_array_length(dims);
	/* Names that are too long for all of this are cut off, and so is what is behind them. */
	for (size_t i = 0; i < count && used < DIMS_TEXT - 8; i++) {
		if (i)
			used += (size_t)snprintf(text + used, DIMS_TEXT - used, ", ");
		used += add_dim(json_object_array_get_idx(dims, i), text + used, DIMS_TEXT - 2 - used);
	}
	snprintf(text + used, DIMS_TEXT - used, "]");
	return text;
}

/* ---- nodes ------------------------------------------------------------------- */

static int take_node(struct graph *graph, struct json_object *value, size_t number,
		     struct json_object *nodes)
{
	static const char *const keys[] = { "name", "rank", "op", NULL };
	struct json_object *name = json_object_object_get(value, "name"), *node;
	struct json_object *op = json_object_object_get(value, "op");
	int64_t rank;

	if (check_keys(graph->path, "node", number, value, keys))
		return -1;
	if (!name_of(name))
		return graph_wrong(graph->path, "node", number, "it has no name, or none of one line");
	if (json_object_object_get(graph->names, name_of(name)))
		return graph_wrong(graph->path, "node", number, "'%s' is another node's name already",
				   name_of(name));
	if (graph_number(value, "rank", (int64_t)graph->ranks - 1, &rank))
		return graph_wrong(graph->path, "node", number, "the rank of '%s' is none of the %u",
				   name_of(name), graph->ranks);
	if (has(value, "op") && !name_of(op))
		return graph_wrong(graph->path, "node", number, "the op of '%s' is no text of one line",
				   name_of(name));
	graph->nodes[number].rank = (uint32_t)rank;
	json_object_object_add(graph->names, name_of(name), json_object_new_int64((int64_t)number));
	node = json_object_new_object();
	json_object_object_add(node, "name", json_object_get(name));
	if (op)
		json_object_object_add(node, "op", json_object_get(op));
	json_object_object_add(node, "rank", json_object_new_int64(rank));
	json_object_array_add(nodes, node);
	return 0;
}

static int take_nodes(struct graph *graph, struct json_object *values, struct json_object *nodes)
{
	if (!json_object_is_type(values, json_type_array))
		return graph_wrong(graph->path, NULL, 0, "\"nodes\" is no list");
	graph->nodes_count = json_object_array_length(values);
	graph->nodes = calloc(graph->nodes_count + 1, sizeof(*graph->nodes));
	if (!graph->nodes || graph->nodes_count >= TOW_PLAN_NONE)
		return graph_wrong(graph->path, NULL, 0, "it has more nodes than there is memory for");
	for (size_t i = 0; i < graph->nodes_count; i++)
		if (take_node(graph, json_object_array_get_idx(values, i), i, nodes))
			return -1;
	return 0;
}

/* ---- edges ------------------------------------------------------------------- */

struct read_edge {
	struct tow_graph_edge edge;
	struct json_object *json;
	size_t number;
};

/* The number of the node that is named under @key: 0, or -1. */
static int take_end(const struct graph *graph, struct json_object *value, const char *key,
		    size_t number, uint32_t *node)
{
	const char *name = name_of(json_object_object_get(value, key));
	struct json_object *found;

	if (!name)
		return graph_wrong(graph->path, "edge", number, "\"%s\" is no node's name", key);
	found = json_object_object_get(graph->names, name);
	if (!found)
		return graph_wrong(graph->path, "edge", number, "no node is called '%s'", name);
	*node = (uint32_t)json_object_get_int64(found);
	return 0;
}

/* Keys in their order; @dims becomes part of it. */
static struct json_object *edge_object(struct json_object *value, const struct tow_graph_edge *edge,
				       struct json_object *dims)
{
	struct json_object *json = json_object_new_object();

	json_object_object_add(json, "dims", dims);
	json_object_object_add(json, "dtype", json_object_get(json_object_object_get(value, "dtype")));
	if (edge->flags)
		json_object_object_add(json, "fallback", json_object_new_boolean(true));
	json_object_object_add(json, "from", json_object_get(json_object_object_get(value, "from")));
	json_object_object_add(json, "output", json_object_new_int64(edge->output));
	if (edge->slots)
		json_object_object_add(json, "slots", json_object_new_int64(edge->slots));
	json_object_object_add(json, "to", json_object_get(json_object_object_get(value, "to")));
	return json;
}

static int take_edge(struct graph *graph, struct json_object *value, struct read_edge *read)
{
	static const char *const keys[] = { "from", "output", "to", "dtype", "dims", "slots", "fallback",
					    NULL };
	struct tow_graph_edge *edge = &read->edge;
	int64_t output = 0, slots = 0;
	struct json_object *fallback = json_object_object_get(value, "fallback"), *dims;
	const char *wrong = NULL;

	if (check_keys(graph->path, "edge", read->number, value, keys) ||
	    take_end(graph, value, "from", read->number, &edge->from) ||
	    take_end(graph, value, "to", read->number, &edge->to))
		return -1;
	if (edge->from >= edge->to)
		wrong = "nodes are not in the order of a step";
	else if (may_number(value, "output", UINT32_MAX, &output))
		wrong = "output is no number";
	else if (may_number(value, "slots", TOW_EDGE_SLOTS_MAX, &slots) ||
		 (has(value, "slots") && !slots))
		wrong = "slots are no number from 1 to 64";
	else if (take_dtype(json_object_object_get(value, "dtype"), &edge->type.dtype))
		wrong = "dtype is none that is known";
	else if (has(value, "fallback") && !json_object_is_type(fallback, json_type_boolean))
		wrong = "fallback is neither true nor false";
	else if (!has(value, "dims"))
		wrong = "dims are missing";
	else if (take_dims(json_object_object_get(value, "dims"), edge, &dims))
		wrong = "dims are no list of at most 8 numbers, objects with a max or a name, or nulls";
	if (wrong)
		return graph_wrong(graph->path, "edge", read->number, "from '%s' to '%s': its %s",
				   json_object_get_string(json_object_object_get(value, "from")),
				   json_object_get_string(json_object_object_get(value, "to")), wrong);
	edge->output = (uint32_t)output;
	edge->slots = (uint32_t)slots;
	edge->flags = json_object_get_boolean(fallback) ? TOW_GRAPH_FALLBACK : 0;
	read->json = edge_object(value, edge, dims);
	return 0;
}

static int order_of(uint64_t one, uint64_t other)
{
	return (one > other) - (one < other);
}

static int by_nodes(const void *a, const void *b)
{
	const struct read_edge *one = a, *other = b;
	int order = order_of(one->edge.from, other->edge.from);

	if (!order)
		order = order_of(one->edge.output, other->edge.output);
	if (!order)
		order = order_of(one->edge.to, other->edge.to);
	return order ? order : order_of(one->number, other->number);
}

static bool same_value(const struct read_edge *one, const struct read_edge *other, const char *key)
{
	return json_object_equal(json_object_object_get(one->json, key),
				 json_object_object_get(other->json, key));
}

/* What two edges of one output must not be. */
static const char *clash(const struct read_edge *one, const struct read_edge *other)
{
	if (one->edge.from != other->edge.from || one->edge.output != other->edge.output)
		return NULL;
	if (one->edge.to == other->edge.to)
		return "it is there twice";
	/* The planner knows no names of dimensions. */
	if (!same_value(one, other, "dims") || !same_value(one, other, "dtype") ||
	    !same_value(one, other, "fallback"))
		return "its dtype, dims or fallback are not those of another edge of the same output";
	return NULL;
}

static int keep_edges(struct graph *graph, struct read_edge *read, struct json_object *edges)
{
	const char *wrong;

	qsort(read, graph->edges_count, sizeof(*read), by_nodes);
	for (size_t i = 1; i < graph->edges_count; i++) {
		wrong = clash(&read[i - 1], &read[i]);
		if (wrong)
			return graph_wrong(graph->path, "edge", read[i].number, "from '%s' to '%s': %s",
					   text_of(read[i].json, "from"), text_of(read[i].json, "to"),
					   wrong);
	}
	for (size_t i = 0; i < graph->edges_count; i++) {
		graph->edges[i] = read[i].edge;
		graph->numbers[i] = read[i].number;
		json_object_array_add(edges, read[i].json);
		read[i].json = NULL;
	}
	return 0;
}

static int take_each(struct graph *graph, struct json_object *values, struct json_object *edges,
		     struct read_edge *read)
{
	int ret = 0;

	for (size_t i = 0; i < graph->edges_count && !ret; i++) {
		read[i].number = i;
		ret = take_edge(graph, json_object_array_get_idx(values, i), &read[i]);
	}
	if (!ret)
		ret = keep_edges(graph, read, edges);
	for (size_t i = 0; i < graph->edges_count; i++)
		json_object_put(read[i].json);
	return ret;
}

static int take_edges(struct graph *graph, struct json_object *values, struct json_object *edges)
{
	struct read_edge *read;
	int ret;

	if (!json_object_is_type(values, json_type_array))
		return graph_wrong(graph->path, NULL, 0, "\"edges\" is no list");
	graph->edges_count = json_object_array_length(values);
	graph->edges = calloc(graph->edges_count + 1, sizeof(*graph->edges));
	graph->numbers = calloc(graph->edges_count + 1, sizeof(*graph->numbers));
	read = calloc(graph->edges_count + 1, sizeof(*read));
	if (graph->edges && graph->numbers && read && graph->edges_count < TOW_PLAN_NONE)
		ret = take_each(graph, values, edges, read);
	else
		ret = graph_wrong(graph->path, NULL, 0, "it has more edges than there is memory for");
	free(read);
	return ret;
}

/* ---- graphs ------------------------------------------------------------------ */

static int take_head(struct graph *graph, struct json_object *json)
{
	static const char *const keys[] = { "ranks", "slots", "share", "nodes", "edges", NULL };
	struct json_object *share = json_object_object_get(json, "share");
	int64_t ranks, slots = 0;

	if (check_keys(graph->path, NULL, 0, json, keys))
		return -1;
	if (graph_number(json, "ranks", TOW_PLAN_RANKS_MAX, &ranks) || !ranks)
		return graph_wrong(graph->path, NULL, 0, "\"ranks\" is no number from 1 to %u",
				   TOW_PLAN_RANKS_MAX);
	if (may_number(json, "slots", TOW_EDGE_SLOTS_MAX, &slots) ||
	    (has(json, "slots") && !slots))
		return graph_wrong(graph->path, NULL, 0, "\"slots\" is no number from 1 to %u",
				   TOW_EDGE_SLOTS_MAX);
	if (has(json, "share") && !json_object_is_type(share, json_type_boolean))
		return graph_wrong(graph->path, NULL, 0, "\"share\" is neither true nor false");
	graph->ranks = (uint32_t)ranks;
	graph->slots = (uint32_t)slots;
	graph->share = json_object_get_boolean(share);
	return 0;
}

int graph_take(struct graph *graph, const char *path, struct json_object *json)
{
	struct json_object *nodes = json_object_new_array(), *edges = json_object_new_array();
	int ret;

	*graph = (struct graph){ .path = path, .names = json_object_new_object(),
				 .json = json_object_new_object() };
	json_object_object_add(graph->json, "edges", edges);
	json_object_object_add(graph->json, "nodes", nodes);
	ret = take_head(graph, json);
	if (!ret)
		ret = take_nodes(graph, json_object_object_get(json, "nodes"), nodes);
	if (!ret)
		ret = take_edges(graph, json_object_object_get(json, "edges"), edges);
	json_object_object_add(graph->json, "ranks", json_object_new_int64(graph->ranks));
	json_object_object_add(graph->json, "share", json_object_new_boolean(graph->share));
	if (graph->slots)
		json_object_object_add(graph->json, "slots", json_object_new_int64(graph->slots));
	return ret;
}

void graph_forget(struct graph *graph)
{
	json_object_put(graph->names);
	json_object_put(graph->json);
	free(graph->nodes);
	free(graph->edges);
	free(graph->numbers);
}

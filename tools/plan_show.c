// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Plans as tables: the edges that cross, and what ranks need.
 */
#include <string.h>

#include "graph.h"
#include "tool.h"

#define CELL_TEXT	600

/*
 * Columns are as wide as what is in them: what a row has under @key, or what @text makes of that.
 */
struct column {
	const char *head;
	bool right;
	const char *key;
	const char *(*text)(struct json_object *plan, struct json_object *row, const char *key,
			    char cell[CELL_TEXT]);
};

const char *edge_words(struct json_object *edge, char text[EDGE_TEXT])
{
	snprintf(text, EDGE_TEXT, "%s:%s", text_of(edge, "from"), text_of(edge, "output"));
	return text;
}

static int64_t number_of(struct json_object *object, const char *key)
{
	return json_object_get_int64(json_object_object_get(object, key));
}

static bool is_dynamic(struct json_object *edge)
{
	return strcmp(text_of(edge, "kind"), "dynamic") == 0;
}

/* ---- cells -------------------------------------------------------------------- */

static const char *from_cell(struct json_object *plan, struct json_object *edge, const char *key,
			     char cell[CELL_TEXT])
{
	(void)plan;
	(void)key;
	return edge_words(edge, cell);
}

/* The first node that takes it, and how many more do. */
static const char *to_cell(struct json_object *plan, struct json_object *edge, const char *key,
			   char cell[CELL_TEXT])
{
	struct json_object *to = json_object_object_get(edge, key);
	size_t count = json_object_array_length(to);
	const char *first = json_object_get_string(json_object_array_get_idx(to, 0));

	(void)plan;
	if (count < 2)
		return first;
	snprintf(cell, CELL_TEXT, "%s +%zu", first, count - 1);
	return cell;
}

static const char *ranks_cell(struct json_object *plan, struct json_object *edge, const char *key,
			      char cell[CELL_TEXT])
{
	(void)plan;
	snprintf(cell, CELL_TEXT, "%s>%s", text_of(edge, "from_rank"), text_of(edge, key));
	return cell;
}

static const char *dims_cell(struct json_object *plan, struct json_object *edge, const char *key,
			     char cell[CELL_TEXT])
{
	(void)plan;
	return dims_words(json_object_object_get(edge, key), cell);
}

static const char *size_cell(struct json_object *plan, struct json_object *row, const char *key,
			     char cell[CELL_TEXT])
{
	(void)plan;
	return is_dynamic(row) ? "-" : size_of(row, key, cell);
}

static const char *offset_cell(struct json_object *plan, struct json_object *edge, const char *key,
			       char cell[CELL_TEXT])
{
	(void)plan;
	snprintf(cell, CELL_TEXT, "%s", is_dynamic(edge) ? "-" : text_of(edge, key));
	return cell;
}

/* Whose memory it has when that was read; "-": its own. */
static const char *after_cell(struct json_object *plan, struct json_object *edge, const char *key,
			      char cell[CELL_TEXT])
{
	struct json_object *edges = json_object_object_get(plan, "edges");
	struct json_object *after = json_object_array_get_idx(edges, (size_t)number_of(edge, key));

	return after == edge ? "-" : edge_words(after, cell);
}

static const struct column edge_columns[] = {
	{ "FROM", false, "from", from_cell },
	{ "TO", false, "to", to_cell },
	{ "RANKS", false, "to_rank", ranks_cell },
	{ "KIND", false, "kind", NULL },
	{ "DTYPE", false, "dtype", NULL },
	{ "DIMS", false, "dims", dims_cell },
	{ "TENSOR", true, "tensor_bytes", size_cell },
	{ "SLOTS", true, "slots", NULL },
	{ "OFFSET", true, "tensors_offset", offset_cell },
	{ "AFTER", false, "after", after_cell },
};

static const struct column rank_columns[] = {
	{ "RANK", true, "rank", NULL },
	{ "NODES", true, "nodes", NULL },
	{ "RECEIVES", true, "receives", NULL },
	{ "SENDS", true, "sends", NULL },
	{ "REGION", true, "region_bytes", size_cell },
	{ "POOL", true, "pool_bytes", size_cell },
	{ "EXPORTS", true, "exports", NULL },
	{ "ON-VERBS", true, "registrations", NULL },
};

/* ---- tables ------------------------------------------------------------------ */

#define COLUMNS_MAX	16

/* As it is seen: characters that take several bytes are one. */
static int width_of(const char *text)
{
	int width = 0;

	for (; *text; text++)
		width += ((unsigned char)*text & 0xc0) != 0x80;
	return width;
}

static void print_cell(const struct column *column, const char *text, int width, bool last)
{
	int blanks = width - width_of(text);

	if (column->right)
		printf("%*s%s", blanks, "", text);
	else if (last)
		printf("%s", text);
	else
		printf("%s%*s", text, blanks, "");
	printf("%s", last ? "\n" : "  ");
}

static const char *cell_of(struct json_object *plan, struct json_object *row,
			   const struct column *column, char cell[CELL_TEXT])
{
	return column->text ? column->text(plan, row, column->key, cell) : text_of(row, column->key);
}

static void print_table(struct json_object *plan, const char *key, const struct column *columns,
			size_t count)
{
	struct json_object *rows = json_object_object_get(plan, key), *row;
	size_t length = json_object_array_length(rows);
	int widths[COLUMNS_MAX], width;
	char cell[CELL_TEXT];

	for (size_t i = 0; i < count; i++) {
		widths[i] = width_of(columns[i].head);
		for (size_t j = 0; j < length; j++) {
			row = json_object_array_get_idx(rows, j);
			width = width_of(cell_of(plan, row, &columns[i], cell));
			widths[i] = width > widths[i] ? width : widths[i];
		}
	}
	for (size_t i = 0; i < count; i++)
		print_cell(&columns[i], columns[i].head, widths[i], i + 1 == count);
	for (size_t j = 0; j < length; j++) {
		row = json_object_array_get_idx(rows, j);
		for (size_t i = 0; i < count; i++)
			print_cell(&columns[i], cell_of(plan, row, &columns[i], cell), widths[i],
				   i + 1 == count);
	}
}

static void print_sum(struct json_object *plan)
{
	struct json_object *edges = json_object_object_get(plan, "edges"), *edge;
	size_t count = json_object_array_length(edges), dynamic = 0, bounded = 0;
	uint64_t bytes = 0;
	char text[SIZE_TEXT];

	for (size_t i = 0; i < count; i++) {
		edge = json_object_array_get_idx(edges, i);
		dynamic += is_dynamic(edge);
		bounded += strcmp(text_of(edge, "kind"), "bounded") == 0;
		bytes += (uint64_t)number_of(edge, "tensor_bytes");
	}
	printf("%zu cross: %zu static, %zu bounded, %zu dynamic; ", count, count - dynamic - bounded,
	       bounded, dynamic);
	printf("%s a step at most, without those that are dynamic\n", size_words(bytes, text));
}

void plan_show(struct json_object *plan)
{
	struct json_object *graph = json_object_object_get(plan, "graph");
	size_t count = COUNT(edge_columns);

	/* Nobody shares: who is behind whom need not be said. */
	if (!json_object_get_boolean(json_object_object_get(graph, "share")))
		count--;
	if (json_object_array_length(json_object_object_get(plan, "edges")))
		print_table(plan, "edges", edge_columns, count);
	print_sum(plan);
	putchar('\n');
	print_table(plan, "ranks", rank_columns, COUNT(rank_columns));
}

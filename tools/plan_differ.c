// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * How two plans differ: edges by who computes them, which output it is and who receives it; ranks by
 * their numbers.
 */
#include <string.h>

#include "graph.h"
#include "tool.h"

#define WHAT_TEXT	(EDGE_TEXT + 32)

/* @one and @other become part of it; NULL is null. */
static void add_difference(struct json_object *list, const char *what, const char *key,
			   struct json_object *one, struct json_object *other)
{
	struct json_object *object = json_object_new_object();

	json_object_object_add(object, "a", one);
	json_object_object_add(object, "b", other);
	json_object_object_add(object, "key", json_object_new_string(key));
	json_object_object_add(object, "what", json_object_new_string(what));
	json_object_array_add(list, object);
}

static const char *edge_name(struct json_object *edge, char what[WHAT_TEXT])
{
	char words[EDGE_TEXT];

	snprintf(what, WHAT_TEXT, "%s to rank %s", edge_words(edge, words), text_of(edge, "to_rank"));
	return what;
}

static const char *rank_name(struct json_object *rank, char what[WHAT_TEXT])
{
	snprintf(what, WHAT_TEXT, "rank %s", text_of(rank, "rank"));
	return what;
}

typedef const char *name_function(struct json_object *row, char what[WHAT_TEXT]);

/* What a plan has under @key, by name.  Of edges "after" is the name of that edge, as numbers move. */
static struct json_object *by_name(struct json_object *plan, const char *key, name_function *name)
{
	struct json_object *rows = json_object_object_get(plan, key), *after, *copy;
	struct json_object *named = json_object_new_object();
	char what[WHAT_TEXT];

	for (size_t i = 0; i < json_object_array_length(rows); i++) {
		copy = NULL;
		if (json_object_deep_copy(json_object_array_get_idx(rows, i), &copy, NULL))
			continue;
		after = json_object_object_get(copy, "after");
		if (after) {
			after = json_object_array_get_idx(rows, (size_t)json_object_get_int64(after));
			json_object_object_add(copy, "after", json_object_new_string(name(after, what)));
		}
		json_object_object_add(named, name(copy, what), copy);
	}
	return named;
}

static void differ_in(struct json_object *list, const char *what, struct json_object *one,
		      struct json_object *other)
{
	json_object_object_foreach(one, key, value) {
		struct json_object *theirs = json_object_object_get(other, key);

		if (!json_object_equal(value, theirs))
			add_difference(list, what, key, json_object_get(value), json_object_get(theirs));
	}
	json_object_object_foreach(other, their_key, their_value)
		if (!json_object_object_get_ex(one, their_key, NULL))
			add_difference(list, what, their_key, NULL, json_object_get(their_value));
}

static void differ_by(struct json_object *list, struct json_object *one, struct json_object *other)
{
	json_object_object_foreach(one, name, value) {
		struct json_object *theirs = json_object_object_get(other, name);

		if (theirs)
			differ_in(list, name, value, theirs);
		else
			add_difference(list, name, "", json_object_get(value), NULL);
	}
	json_object_object_foreach(other, their_name, their_value)
		if (!json_object_object_get(one, their_name))
			add_difference(list, their_name, "", NULL, json_object_get(their_value));
}

static void differ_rows(struct json_object *list, struct json_object *one, struct json_object *other,
			const char *key, name_function *name)
{
	struct json_object *ours = by_name(one, key, name), *theirs = by_name(other, key, name);

	differ_by(list, ours, theirs);
	json_object_put(ours);
	json_object_put(theirs);
}

struct json_object *plan_differ(struct json_object *one, struct json_object *other)
{
	struct json_object *list = json_object_new_array();

	differ_rows(list, one, other, "edges", edge_name);
	differ_rows(list, one, other, "ranks", rank_name);
	return list;
}

static void print_value(const char *key, struct json_object *value)
{
	char text[DIMS_TEXT];

	if (strcmp(key, "dims") == 0)
		printf("%s", dims_words(value, text));
	else
		printf("%s", value ? json_object_get_string(value) : "nothing");
}

static void print_difference(struct json_object *difference)
{
	struct json_object *one = json_object_object_get(difference, "a");
	struct json_object *other = json_object_object_get(difference, "b");
	const char *key = text_of(difference, "key");

	if (!*key) {
		printf("%s: only in the %s\n", text_of(difference, "what"), one ? "first" : "second");
		return;
	}
	printf("%s: %s ", text_of(difference, "what"), key);
	print_value(key, one);
	printf(" in the first, ");
	print_value(key, other);
	printf(" in the second\n");
}

void plan_show_differences(struct json_object *differences)
{
	size_t count = json_object_array_length(differences);

	for (size_t i = 0; i < count; i++)
		print_difference(json_object_array_get_idx(differences, i));
	if (!count)
		printf("the plans are the same\n");
}

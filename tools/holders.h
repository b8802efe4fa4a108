/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
#ifndef TOW_TOOL_HOLDERS_H
#define TOW_TOOL_HOLDERS_H

#include <json-c/json.h>

/* By whom or what "towline pool --by" sums up; HOLDERS_NONE: it does not. */
enum holders {
	HOLDERS_NONE,
	HOLDERS_USER,
	HOLDERS_CGROUP,
	HOLDERS_NODE,
};

/* HOLDERS_NONE: there is no such word. */
enum holders holders_of(const char *word);

/* An ask_function; @by is an enum holders, and not NONE. */
int ask_holders(const char *device, const void *by, struct json_object *answers);

/* The same of a class folder in sysfs and HOLDERS_NODE. */
int nodes_add(const char *class_dir, const char *device, struct json_object *answers);

/* To be shown as what was asked for: an object has either key. */
void print_holders(struct json_object *answers);

#endif /* TOW_TOOL_HOLDERS_H */

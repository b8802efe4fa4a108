/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
#ifndef TOW_TOOL_POOL_H
#define TOW_TOOL_POOL_H

#include <stdint.h>

#include <json-c/json.h>

/*
 * What the files of @device below @class_dir say: 0 with an object, which has
 * their names as keys, and those of stats/ in an object "stats"; or a negative
 * errno.
 */
int pool_object(const char *class_dir, const char *device, struct json_object **object);

/*
 * Size a pool, and say what came of it if that is not @bytes.  0, or a negative
 * errno, about which everything is said.
 */
int pool_set(const char *class_dir, const char *device, uint64_t bytes);

#endif /* TOW_TOOL_POOL_H */

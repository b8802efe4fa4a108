/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
#ifndef TOW_TOOL_REGIONS_H
#define TOW_TOOL_REGIONS_H

#include <json-c/json.h>
#include <towline/towline.h>

/* A region as JSON: its device's name, and the fields of struct tow_region_info. */
struct json_object *region_object(const char *device, const struct tow_region_info *info);

#endif /* TOW_TOOL_REGIONS_H */

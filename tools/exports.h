/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
#ifndef TOW_TOOL_EXPORTS_H
#define TOW_TOOL_EXPORTS_H

#include <json-c/json.h>
#include <towline/towline.h>

/* An export as JSON: its device's name, and the fields of struct tow_export_info. */
struct json_object *export_object(const char *device, const struct tow_export_info *info);

#endif /* TOW_TOOL_EXPORTS_H */

/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
#ifndef TOW_TOOL_APPLY_H
#define TOW_TOOL_APPLY_H

#include <stdbool.h>

/*
 * Write what the files in @conf_dir say of @device to its files below @class_dir;
 * with @dry_run, say what would be written.  0, or -1 if anything failed, about which
 * everything is said.
 */
int apply_device(const char *conf_dir, const char *class_dir, const char *device, bool dry_run);

#endif /* TOW_TOOL_APPLY_H */

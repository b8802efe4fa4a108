// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * towline exports: which memory peers may reach, and by which names.
 */
#include <stdio.h>

#include "commands.h"
#include "exports.h"
#include "tool.h"

/* By bit. */
static const char *const flag_names[] = { "revoking" };
static const char *const right_names[] = { "read", "write", "atomic", "notify" };

struct json_object *export_object(const char *device, const struct tow_export_info *info)
{
	struct json_object *object = json_object_new_object();
	/* A length that a kernel would not say. */
	uint32_t name_bytes = info->name_bytes < sizeof(info->name) ? info->name_bytes :
								      sizeof(info->name);

#define ADD(key, value) json_object_object_add(object, key, value)
	ADD("device", json_object_new_string(device));
	ADD("id", json_object_new_uint64(info->id));
	ADD("name", text_object(info->name, name_bytes));
	ADD("flags", bits_object(flag_names, COUNT(flag_names), info->flags));
	ADD("region_id", json_object_new_uint64(info->region_id));
	ADD("offset", json_object_new_uint64(info->offset));
	ADD("bytes", json_object_new_uint64(info->bytes));
	ADD("rights", bits_object(right_names, COUNT(right_names), info->rights));
	ADD("grants", json_object_new_int64(info->grants));
	ADD("uid", json_object_new_int64(info->uid));
	ADD("pid", json_object_new_int64(info->pid));
	ADD("job_id", hex_object(info->job_id, sizeof(info->job_id)));
#undef ADD
	return object;
}

DEFINE_ASK_LIST(export, export_object)

/* ---- plain text ---- */

#define ROW "%-10s %6s %7s %12s %10s %-17s %7s %-10s %7s  %-9s %s\n"

static void print_export(struct json_object *export)
{
	char bytes[SIZE_TEXT], rights[WORDS_TEXT], state[WORDS_TEXT];

	printf(ROW, text_of(export, "device"), text_of(export, "id"), text_of(export, "region_id"),
	       text_of(export, "offset"), size_of(export, "bytes", bytes),
	       words_joined(json_object_object_get(export, "rights"), rights),
	       text_of(export, "grants"), user_of(export), text_of(export, "pid"),
	       words_joined(json_object_object_get(export, "flags"), state),
	       text_of(export, "name"));
}

static void print_head(void)
{
	printf(ROW, "DEVICE", "ID", "REGION", "OFFSET", "SIZE", "RIGHTS", "GRANTS", "USER", "PID",
	       "STATE", "NAME");
}

static void print_all(struct json_object *exports)
{
	print_rows(exports, print_head, print_export);
}

int command_exports(int argc, char **argv)
{
	static const struct listing_command command = {
		.doc = "The exports that this user has in this job (TOW_JOB), on each device.",
		.all = "everybody's exports, not only this user's in this job",
		.ask = ask_exports,
		.print = print_all,
	};

	return run_listing(argc, argv, &command);
}

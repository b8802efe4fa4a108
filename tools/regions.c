// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * towline regions: who has which memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "regions.h"
#include "tool.h"

/* By bit. */
static const char *const flag_names[] = {
	"readonly", "persistent", "lingering", "user_memory", "dmabuf",
};

struct json_object *region_object(const char *device, const struct tow_region_info *info)
{
	struct json_object *object = json_object_new_object();

#define ADD(key, value) json_object_object_add(object, key, value)
	ADD("device", json_object_new_string(device));
	ADD("id", json_object_new_uint64(info->id));
	ADD("name", json_object_new_string(info->name));
	ADD("flags", bits_object(flag_names, COUNT(flag_names), info->flags));
	ADD("bytes", json_object_new_uint64(info->bytes));
	ADD("map_bytes", json_object_new_uint64(info->map_bytes));
	ADD("charged_bytes", json_object_new_uint64(info->charged_bytes));
	ADD("mrs", json_object_new_int64(info->mrs));
	ADD("slabs", json_object_new_int64(info->slabs));
	ADD("uid", json_object_new_int64(info->uid));
	ADD("pid", json_object_new_int64(info->pid));
	ADD("cgroup_id", json_object_new_uint64(info->cgroup_id));
	ADD("linger_s", json_object_new_int64(info->linger_s));
	ADD("linger_left_ms", json_object_new_int64(info->linger_left_ms));
	ADD("fds", json_object_new_int64(info->fds));
	ADD("job_id", hex_object(info->job_id, sizeof(info->job_id)));
#undef ADD
	return object;
}

DEFINE_ASK_LIST(region, region_object)

/* ---- plain text ---- */

#define ROW "%-10s %6s %10s %10s %6s %-10s %7s  %-26s %s\n"

/* "persistent, lingering 12 s" */
static void state_of(struct json_object *region, char *text, size_t room)
{
	struct json_object *names = json_object_object_get(region, "flags");
	int64_t left = json_object_get_int64(json_object_object_get(region, "linger_left_ms"));
	size_t i, used = 0;

	text[0] = '\0';
	for (i = 0; i < json_object_array_length(names) && used < room; i++) {
		const char *name = json_object_get_string(json_object_array_get_idx(names, i));

		used += (size_t)snprintf(text + used, room - used, "%s%s", i ? "," : "", name);
		if (strcmp(name, "lingering") == 0 && used < room)
			used += (size_t)snprintf(text + used, room - used, " %" PRId64 " s",
						 (left + 999) / 1000);
	}
}

static void print_region(struct json_object *region)
{
	char bytes[SIZE_TEXT], charged[SIZE_TEXT], state[80];

	state_of(region, state, sizeof(state));
	printf(ROW, text_of(region, "device"), text_of(region, "id"),
	       size_of(region, "bytes", bytes), size_of(region, "charged_bytes", charged),
	       text_of(region, "mrs"), user_of(region), text_of(region, "pid"),
	       *state ? state : "-", text_of(region, "name"));
}

static void print_head(void)
{
	printf(ROW, "DEVICE", "ID", "SIZE", "CHARGED", "MRS", "USER", "PID", "STATE", "NAME");
}

static void print_all(struct json_object *regions)
{
	print_rows(regions, print_head, print_region);
}

/* ---- --end ---- */

static int end_region(const struct choice *choice, uint64_t id, struct json_object *answers)
{
	struct tow_region_end call = { .size = sizeof(call), .id = id };
	char device[TOW_DEVICE_NAME_MAX];
	struct json_object *object;
	int fd, ret;

	ret = choose_one(choice->device, device);
	if (ret)
		return ret;
	fd = open_device(device, O_RDWR);
	if (fd < 0) {
		complain(device, fd);
		return fd;
	}
	ret = call_device(fd, TOW_IOCTL_REGION_END, &call);
	close(fd);
	if (ret == -EBUSY)
		fprintf(stderr, "towline: %s: region %" PRIu64 " does not outlive its client: it ends with those who have it\n",
			device, id);
	else if (ret == -ENOENT)
		fprintf(stderr, "towline: %s: there is no such region\n", device);
	else if (ret)
		complain(device, say_end(ret));
	if (ret)
		return ret;
	object = json_object_new_object();
	json_object_object_add(object, "device", json_object_new_string(device));
	json_object_object_add(object, "id", json_object_new_uint64(id));
	json_object_object_add(object, "pid", json_object_new_int64(call.pid));
	json_object_object_add(object, "fds", json_object_new_int64(call.fds));
	json_object_array_add(answers, object);
	return 0;
}

static void print_end(struct json_object *answers)
{
	struct json_object *answer = json_object_array_get_idx(answers, 0);

	if (!answer)
		return;
	if (strcmp(text_of(answer, "pid"), "0") != 0)
		printf("Region %s has no name any more, and ends with process %s (towline clients --end %s).\n",
		       text_of(answer, "id"), text_of(answer, "pid"), text_of(answer, "pid"));
	else if (strcmp(text_of(answer, "fds"), "0") != 0)
		printf("Region %s ends when its last descriptor or mapping does: there are %s.\n",
		       text_of(answer, "id"), text_of(answer, "fds"));
	else
		printf("Region %s has ended.\n", text_of(answer, "id"));
}

int command_regions(int argc, char **argv)
{
	static const struct listing_command command = {
		.doc = "The regions that this user has, on each device.",
		.all = "everybody's regions, not only this user's",
		.ask = ask_regions,
		.print = print_all,
		.end_what = "ID",
		.end = "have region ID, which outlives its client, linger no more",
		.run_end = end_region,
		.print_end = print_end,
	};

	return run_listing(argc, argv, &command);
}

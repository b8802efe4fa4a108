// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * towline clients: which processes use a device, and what they have of it.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "commands.h"
#include "tool.h"

/* By bit. */
static const char *const flag_names[] = { "ended" };

static struct json_object *client_object(const char *device, const struct tow_account_info *info)
{
	struct json_object *object = json_object_new_object();

#define ADD(key, value) json_object_object_add(object, key, value)
	ADD("device", json_object_new_string(device));
	ADD("id", json_object_new_uint64(info->id));
	ADD("flags", bits_object(flag_names, COUNT(flag_names), info->flags));
	ADD("pid", json_object_new_int64(info->pid));
	ADD("uid", json_object_new_int64(info->uid));
	ADD("cgroup_id", json_object_new_uint64(info->cgroup_id));
	ADD("charged_bytes", json_object_new_uint64(info->charged_bytes));
	ADD("held_bytes", json_object_new_uint64(info->held_bytes));
	ADD("mrs", json_object_new_int64(info->mrs));
	ADD("regions", json_object_new_int64(info->regions));
	ADD("exports", json_object_new_int64(info->exports));
	ADD("queue_entries", json_object_new_int64(info->queue_entries));
	ADD("job_id", hex_object(info->job_id, sizeof(info->job_id)));
#undef ADD
	return object;
}

static void add_client(const char *device, const struct tow_account_info *info, const void *arg,
		       struct json_object *answers)
{
	(void)arg;
	/* This program is a client itself, to ask; what is left of others' is no process. */
	if (info->pid != getpid() && !(info->flags & TOW_ACCOUNT_CLOSED))
		json_object_array_add(answers, client_object(device, info));
}

static int ask_clients(const char *device, const void *listing, struct json_object *answers)
{
	int ret = ask_accounts(device, listing_flags(listing), add_client, NULL, answers);

	return ret ? say_listing(listing, ret) : 0;
}

/* ---- plain text ---- */

#define ROW "%-10s %7s %-10s %10s %6s %7s %7s %7s  %s\n"

static void print_client(struct json_object *client)
{
	char charged[SIZE_TEXT], flags[WORDS_TEXT];

	printf(ROW, text_of(client, "device"), text_of(client, "pid"), user_of(client),
	       size_of(client, "charged_bytes", charged), text_of(client, "mrs"),
	       text_of(client, "regions"), text_of(client, "exports"),
	       text_of(client, "queue_entries"),
	       words_joined(json_object_object_get(client, "flags"), flags));
}

static void print_head(void)
{
	printf(ROW, "DEVICE", "PID", "USER", "CHARGED", "MRS", "REGIONS", "EXPORTS", "ENTRIES",
	       "STATE");
}

static void print_all(struct json_object *clients)
{
	print_rows(clients, print_head, print_client);
}

/* ---- --end ---- */

/* Its clients may be another device's. */
static int end_on_device(const char *device, const void *arg, struct json_object *answers)
{
	struct tow_client_end call = { .size = sizeof(call), .pid = *(const int *)arg };
	struct json_object *object;
	int fd = open_device(device, O_RDWR), ret;

	if (fd < 0)
		return fd;
	ret = call_device(fd, TOW_IOCTL_CLIENT_END, &call);
	close(fd);
	if (ret)
		return ret == -ESRCH ? 0 : say_end(ret);
	object = json_object_new_object();
	json_object_object_add(object, "device", json_object_new_string(device));
	json_object_object_add(object, "pid", json_object_new_int64(call.pid));
	json_object_object_add(object, "clients", json_object_new_int64(call.count));
	json_object_array_add(answers, object);
	return 0;
}

static int end_clients(const struct choice *choice, uint64_t number, struct json_object *answers)
{
	int pid = number > INT_MAX ? INT_MAX : (int)number;
	int ret = ask_devices(choice, end_on_device, &pid, answers);

	if (ret || json_object_array_length(answers))
		return ret;
	fprintf(stderr, "towline: there is no such process, or it has no client\n");
	return -ESRCH;
}

static void print_ended(struct json_object *answer)
{
	printf("%s: %s of process %s ended.\n", text_of(answer, "device"),
	       text_of(answer, "clients"), text_of(answer, "pid"));
}

static void print_end(struct json_object *answers)
{
	size_t i;

	for (i = 0; i < json_object_array_length(answers); i++)
		print_ended(json_object_array_get_idx(answers, i));
}

int command_clients(int argc, char **argv)
{
	static const struct listing_command command = {
		.doc = "This user's processes that use a device, and what is charged to them.",
		.all = "everybody's, not only this user's",
		.ask = ask_clients,
		.print = print_all,
		.end_what = "PID",
		.end = "end all clients of process PID, as if it had exited",
		.run_end = end_clients,
		.print_end = print_end,
	};

	return run_listing(argc, argv, &command);
}

// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Subcommands that list what somebody has, and what everybody has with --all.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tool.h"

/* Accounts of one call. */
#define ROOM 256

struct listing {
	struct choice choice;
	bool all;
	bool end;
	uint64_t number;	/* of what is to end */
};

static uint64_t parse_number(const char *text, struct argp_state *state)
{
	char *rest;
	uint64_t number;

	errno = 0;
	number = strtoull(text, &rest, 10);
	if (errno || *rest || !number || *text < '0' || *text > '9')
		argp_error(state, "'%s' is no number of something that could end", text);
	return number;
}

/* NOLINTNEXTLINE(readability-non-const-parameter): argp's type */
static error_t parse_listing(int key, char *arg, struct argp_state *state)
{
	struct listing *listing = state->input;

	(void)arg;
	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &listing->choice;
		return 0;
	case 'a':
		listing->all = true;
		return 0;
	case 'e':
		listing->end = true;
		listing->number = parse_number(arg, state);
		return 0;
	case ARGP_KEY_END:
		if (listing->all && listing->end)
			argp_error(state, "--all and --end are two commands");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

uint32_t listing_flags(const void *listing)
{
	const struct listing *asked = listing;

	return asked && asked->all ? TOW_LIST_ALL : 0;
}

int say_listing(const void *listing, int error)
{
	if (error == -EPERM && listing_flags(listing))
		fprintf(stderr, "towline: --all takes CAP_NET_ADMIN: run it as root, outside any container\n");
	return error;
}

int open_device(const char *device, int flags)
{
	char path[sizeof("/dev/towline/") + TOW_DEVICE_NAME_MAX];
	int fd;

	snprintf(path, sizeof(path), "/dev/towline/%s", device);
	fd = open(path, flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int call_device(int fd, unsigned long command, void *arg)
{
	return ioctl(fd, command, arg) < 0 ? -errno : 0;
}

int list_accounts(int fd, const char *device, uint32_t flags, add_account_function *add,
		  const void *arg, struct json_object *answers)
{
	struct tow_account_info entries[ROOM];
	struct tow_account_list call = {
		.size = sizeof(call), .flags = flags, .entries = (uintptr_t)entries,
	};
	unsigned int i;
	int ret;

	do {
		call.entry_size = sizeof(entries[0]);
		call.count = ROOM;
		/* An older kernel may know less of each. */
		memset(entries, 0, sizeof(entries));
		ret = call_device(fd, TOW_IOCTL_ACCOUNT_LIST, &call);
		for (i = 0; !ret && i < call.count; i++)
			add(device, &entries[i], arg, answers);
	} while (!ret && call.count);
	return ret == -ENOTTY ? -EPROTONOSUPPORT : ret;
}

int ask_accounts(const char *device, uint32_t flags, add_account_function *add, const void *arg,
		 struct json_object *answers)
{
	/* One file for all of it: each is a client of its own. */
	int fd = open_device(device, O_RDONLY), ret;

	if (fd < 0)
		return fd;
	ret = list_accounts(fd, device, flags, add, arg, answers);
	close(fd);
	return ret;
}

int list_regions(const struct tow_device *dev, const char *device, add_region_function *add,
		 const void *arg, struct json_object *answers)
{
	struct tow_region_info info;
	struct tow_regions *list;
	size_t i;
	int ret;

	ret = tow_region_list_get(dev, TOW_LIST_ALL, &list);
	if (ret)
		return ret;
	for (i = 0; !ret && i < tow_region_list_count(list); i++) {
		info.size = sizeof(info);
		ret = tow_region_list_entry(list, i, &info);
		if (!ret)
			add(device, &info, arg, answers);
	}
	tow_region_list_free(list);
	return ret;
}

int say_end(int error)
{
	if (error == -EPERM)
		fprintf(stderr, "towline: --end takes CAP_NET_ADMIN: run it as root, outside any container\n");
	return error;
}

int run_listing(int argc, char **argv, const struct listing_command *command)
{
	const struct argp_option known[] = {
		{ "all", 'a', NULL, 0, command->all, 0 },
		/* The end of the list, where there is none. */
		{ command->run_end ? "end" : NULL, command->run_end ? 'e' : 0, command->end_what, 0,
		  command->end, 0 },
		{ 0 },
	};
	static const struct argp_child children[] = { { &choice_argp, 0, NULL, 0 }, { 0 } };
	const struct argp argp = {
		.options = known,
		.parser = parse_listing,
		.children = children,
		.doc = command->doc,
	};
	struct listing listing = { 0 };
	struct json_object *answers;
	int ret;

	if (argp_parse(&argp, argc, argv, 0, NULL, &listing))
		return EXIT_FAILURE;
	answers = json_object_new_array();
	if (listing.end && command->run_end) {
		ret = command->run_end(&listing.choice, listing.number, answers);
		return show_answers(&listing.choice, ret, answers, command->print_end);
	}
	ret = ask_devices(&listing.choice, command->ask, &listing, answers);
	return show_answers(&listing.choice, ret, answers, command->print);
}

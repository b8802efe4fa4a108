// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Subcommands that list what somebody has, and what everybody has with --all.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "tool.h"

struct listing {
	struct choice choice;
	bool all;
};

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

int run_listing(int argc, char **argv, const struct listing_command *command)
{
	const struct argp_option known[] = { { "all", 'a', NULL, 0, command->all, 0 }, { 0 } };
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
	ret = ask_devices(&listing.choice, command->ask, &listing, answers);
	return show_answers(&listing.choice, ret, answers, command->print);
}

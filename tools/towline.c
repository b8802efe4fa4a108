// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * towline: look at a node's devices, size their pools, connect and measure them.
 *
 * The first argument that is no option names a subcommand, which parses the
 * rest with an argp of its own.  Results go to stdout, words about failures to
 * stderr.  Exit status: 0 success, 1 failure, 2 wrong usage.
 */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <towline/towline.h>

#include "commands.h"

#define EXIT_USAGE 2

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
} commands[] = {
	{ "info", command_info },
	{ "pool", command_pool },
	{ "clients", command_clients },
	{ "apply", command_apply },
	{ "drain", command_drain },
	{ "regions", command_regions },
	{ "exports", command_exports },
	{ "peers", command_peers },
	{ "perf", command_perf },
	{ "plan", command_plan },
	{ "top", command_top },
};

static void print_version(FILE *stream, struct argp_state *state)
{
	(void)state;
	fprintf(stream, "towline %s\n", TOW_VERSION);
}

static error_t run_command(const char *name, struct argp_state *state)
{
	int *status = state->input;
	char full_name[64];
	size_t i;

	for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (strcmp(name, commands[i].name) != 0)
			continue;
		/* In --help and errors the subcommand is called by both names. */
		snprintf(full_name, sizeof(full_name), "towline %s", name);
		state->argv[state->next - 1] = full_name;
		*status = commands[i].run(state->argc - state->next + 1,
					  &state->argv[state->next - 1]);
		state->next = state->argc;
		return 0;
	}
	argp_error(state, "no subcommand '%s'", name);
	return EINVAL;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case ARGP_KEY_ARG:
		return run_command(arg, state);
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "which subcommand?");
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		.parser = parse,
		.args_doc = "SUBCOMMAND [OPTION...]",
		.doc = "Look at towline's devices on this node, size their pools, connect and measure them."
		       "\vSubcommands:\n"
		       "  info     what each device can do, and which instance it is\n"
		       "  pool     the memory of each device's pool, and its limits; --set sizes it\n"
		       "  clients  which processes use a device; --end ends their use\n"
		       "  apply    give devices the settings of /etc/towline\n"
		       "  drain    let nothing begin, and wait, so that the module can go\n"
		       "  regions  who has which memory\n"
		       "  exports  which memory peers may reach, and by which names\n"
		       "  peers    which nodes this one knows; connect and disconnect\n"
		       "  perf     how fast reads, writes and atomics to a node are\n"
		       "  plan     how the tensors of a graph move between ranks\n"
		       "  top      what this node, or several, do every second\n"
		       "\n"
		       "towline SUBCOMMAND --help says more.  "
		       "Exit status: 0 success, 1 failure, 2 wrong usage.",
	};
	int status = EXIT_FAILURE;
	error_t error;

	argp_err_exit_status = EXIT_USAGE;
	argp_program_version_hook = print_version;
	argp_program_bug_address = NULL;
	error = argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &status);
	if (error) {
		fprintf(stderr, "towline: %s\n", strerror(error));
		return EXIT_FAILURE;
	}
	/* A full disk or a closed pipe is a failure, too. */
	if (fflush(stdout) || ferror(stdout)) {
		perror("towline: standard output");
		return EXIT_FAILURE;
	}
	return status;
}

// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * towline top: what a device and its peers do, time and again.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "tool.h"
#include "top.h"

#define INTERVAL_LEAST_S	0.1
#define INTERVAL_MOST_S		3600.0
#define COUNT_MAX		1000000000ULL

struct options {
	struct choice choice;
	bool serves;
	bool cluster;
	double interval_s;
	uint64_t count;
};

/* ---- plain text ---- */

#define ROW "%-26s %-10s %9s %14s %14s  %s\n"

static void print_peer(struct json_object *peer)
{
	int error = json_object_get_int(json_object_object_get(peer, "last_error"));
	char operations[SIZE_TEXT], written[SIZE_TEXT], read[SIZE_TEXT];

	printf(ROW, text_of(peer, "address"), text_of(peer, "state"),
	       top_rate_words(peer, "operations_per_s", operations),
	       top_bytes_words(peer, "bytes_written_per_s", written),
	       top_bytes_words(peer, "bytes_read_per_s", read),
	       error ? tow_strerror(error) : "-");
}

static void print_device(struct json_object *answer)
{
	struct json_object *stats = json_object_object_get(answer, "stats");
	struct json_object *peers = json_object_object_get(answer, "peers");
	char used[SIZE_TEXT], all[SIZE_TEXT], operations[SIZE_TEXT], written[SIZE_TEXT];
	char read[SIZE_TEXT], notifications[SIZE_TEXT];

	printf("%s: pool %s of %s in use, %s memory regions\n", text_of(answer, "device"),
	       top_bytes_words(answer, "pool_used_bytes", used),
	       top_bytes_words(answer, "pool_bytes", all), text_of(answer, "mr_used"));
	printf("  %s regions, %s exports, %s remotes, %s queues, %s of %s peers ready\n",
	       text_of(stats, "regions"), text_of(stats, "exports"), text_of(stats, "remotes"),
	       text_of(stats, "queues"), text_of(answer, "peers_ready"), text_of(stats, "peers"));
	printf("  per second: %s operations, %s written, %s read",
	       top_rate_words(answer, "operations_per_s", operations),
	       top_bytes_words(answer, "bytes_written_per_s", written),
	       top_bytes_words(answer, "bytes_read_per_s", read));
	if (json_object_object_get(answer, "notifications_per_s"))
		printf(", %s notifications",
		       top_rate_words(answer, "notifications_per_s", notifications));
	printf("\n" ROW, "PEER", "STATE", "OPS/S", "WRITTEN/S", "READ/S", "LAST ERROR");
	for (size_t i = 0; i < json_object_array_length(peers); i++)
		print_peer(json_object_array_get_idx(peers, i));
}

/* ---- this node ---- */

static int watch(const char *device, struct top_pace *pace)
{
	struct top_sample before, now;
	bool more = true;
	int ret;

	ret = top_sample_take(SYSFS_CLASS, device, NULL, &before);
	if (ret) {
		complain(device, ret);
		return ret;
	}
	while (more && top_next(pace)) {
		ret = top_sample_take(SYSFS_CLASS, device, &before, &now);
		if (ret)
			break;
		more = top_show(pace, top_object(device, &now, &before), print_device);
		top_sample_free(&before);
		before = now;
	}
	top_sample_free(&before);
	if (ret)
		complain(device, top_gone(ret));
	return ret;
}

/* ---- the command ---- */

static int act(const struct options *options)
{
	struct top_pace pace = {
		.json = options->choice.json,
		.interval_ns = (uint64_t)(options->interval_s * 1e9),
		.count = options->count,
	};
	char name[TOW_DEVICE_NAME_MAX];
	int ret;

	ret = choose_one(options->choice.device, name);
	if (ret)
		return ret;
	top_begin(&pace);
	if (options->serves)
		return top_serve(name, &pace);
	return options->cluster ? top_cluster(name, &pace) : watch(name, &pace);
}

static double parse_interval(const char *text, struct argp_state *state)
{
	double seconds;
	char *end;

	seconds = strtod(text, &end);
	/* Also refuses what is no number at all. */
	if (!(seconds >= INTERVAL_LEAST_S && seconds <= INTERVAL_MOST_S) || *end || end == text)
		argp_error(state, "'%s' is no number of seconds from %g to %g", text,
			   INTERVAL_LEAST_S, INTERVAL_MOST_S);
	return seconds;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &options->choice;
		return 0;
	case 'C':
		options->cluster = true;
		return 0;
	case 'S':
		options->serves = true;
		return 0;
	case 'i':
		options->interval_s = parse_interval(arg, state);
		return 0;
	case 'n':
		if (size_parse(arg, &options->count) || options->count > COUNT_MAX)
			argp_error(state, "'%s' is no number up to %llu", arg, COUNT_MAX);
		return 0;
	case ARGP_KEY_END:
		if (options->serves && options->cluster)
			argp_error(state, "--serve and --cluster are two commands");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option known[] = {
	{ "cluster", 'C', NULL, 0, "this node, and others, on which --serve runs", 0 },
	{ "serve", 'S', NULL, 0, "let others see this node in --cluster, until a signal comes", 0 },
	{ "interval", 'i', "SECONDS", 0, "how often (1)", 0 },
	{ "count", 'n', "N", 0, "end after N times (0: until a signal comes)", 0 },
	{ 0 },
};

int command_top(int argc, char **argv)
{
	static const struct argp_child children[] = { { &choice_argp, 0, NULL, 0 }, { 0 } };
	static const struct argp argp = {
		.options = known,
		.parser = parse,
		.children = children,
		.doc = "What a device and its peers do, every second.\v"
		       "--serve and --cluster find each other as the same user, or in the same "
		       "job.  With --json each time is one object on a line of its own.",
	};
	struct options options = { .interval_s = 1 };

	if (argp_parse(&argp, argc, argv, 0, NULL, &options))
		return EXIT_FAILURE;
	return act(&options) ? EXIT_FAILURE : EXIT_SUCCESS;
}

// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * towline peers: which nodes this one knows, and how it stands with them;
 * connecting to one, and ending the connection to one.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "peers.h"
#include "tool.h"

/* What is done before peers are shown. */
enum action { SHOW, CONNECT, DISCONNECT };

/* An option without a letter. */
enum { HISTORY = 256 };

struct options {
	struct choice choice;
	enum action action;
	bool history;
	const char *address;
};

static const char *const states[] = {
	[TOW_PEER_IDLE] = "idle",
	[TOW_PEER_CONNECTING] = "connecting",
	[TOW_PEER_READY] = "ready",
	[TOW_PEER_BROKEN] = "broken",
	[TOW_PEER_RECONNECTING] = "reconnecting",
	[TOW_PEER_DEAD] = "dead",
};

/* By bit. */
static const char *const flag_names[] = { "loopback", "authenticated" };

/* Files of a peer's that struct tow_peer_info has no field for. */
static const char *const counts[] = {
	"bytes_written", "bytes_read", "operations", "replayed", "rtt_ns", "rtt_min_ns",
};

#define FOLDER_TEXT (ADDRESS_TEXT + 32)

static bool is_folder(const char *class_dir, const char *device, const char *folder,
		      const char *incarnation)
{
	char file[sizeof("peers//incarnation") + FOLDER_TEXT], text[SYSFS_TEXT];

	snprintf(file, sizeof(file), "peers/%s/incarnation", folder);
	return !sysfs_read(class_dir, device, file, text) && !strcmp(text, incarnation);
}

/* Named by the peer's address, or by the one that it had when it came. */
static bool find_folder(const char *class_dir, const char *device, const char *incarnation,
			char folder[FOLDER_TEXT])
{
	char **names = NULL;
	size_t i, count = 0;
	bool found = is_folder(class_dir, device, folder, incarnation);

	if (found || sysfs_list(class_dir, device, "peers", &names, &count))
		return found;
	for (i = 0; i < count; i++) {
		if (!found && is_folder(class_dir, device, names[i], incarnation)) {
			snprintf(folder, FOLDER_TEXT, "%.*s", FOLDER_TEXT - 1, names[i]);
			found = true;
		}
		free(names[i]);
	}
	free(names);
	return found;
}

/* Older kernels do not have them, and a peer may be gone by now. */
static void add_counts(const char *class_dir, const char *device, const char *address,
		       struct json_object *object)
{
	char file[sizeof("peers//") + FOLDER_TEXT + 32], text[SYSFS_TEXT];
	char folder[FOLDER_TEXT];
	uint64_t count;
	size_t i;

	snprintf(folder, sizeof(folder), "%s", address);
	if (!find_folder(class_dir, device, text_of(object, "incarnation"), folder))
		return;
	for (i = 0; i < COUNT(counts); i++) {
		snprintf(file, sizeof(file), "peers/%s/%s", folder, counts[i]);
		if (!sysfs_read(class_dir, device, file, text) && !size_parse(text, &count))
			json_object_object_add(object, counts[i], json_object_new_uint64(count));
	}
}

struct json_object *peer_object(const char *class_dir, const char *device,
				const struct tow_peer_info *info)
{
	struct json_object *object = json_object_new_object();
	char address[ADDRESS_TEXT];

	address_words(info->address, info->scope_id, address);
#define ADD(key, value) json_object_object_add(object, key, value)
	ADD("device", json_object_new_string(device));
	ADD("peer", json_object_new_uint64(info->peer));
	ADD("address", json_object_new_string(address));
	ADD("port", json_object_new_int64(info->port));
	ADD("incarnation", hex_object(info->incarnation, sizeof(info->incarnation)));
	ADD("flags", bits_object(flag_names, COUNT(flag_names), info->flags));
	ADD("state", word_object(states, COUNT(states), info->state));
	ADD("last_error", json_object_new_int(info->last_error));
	ADD("epoch", json_object_new_int64(info->epoch));
	ADD("qps", json_object_new_int64(info->qps));
	ADD("reconnects", json_object_new_int64(info->reconnects));
	ADD("grants", json_object_new_int64(info->grants));
	ADD("remotes", json_object_new_int64(info->remotes));
	ADD("messages_sent", json_object_new_uint64(info->messages_sent));
	ADD("messages_received", json_object_new_uint64(info->messages_received));
	ADD("idle_ms", json_object_new_uint64(info->idle_ms));
#undef ADD
	/* Who was never connected has no folder. */
	if (info->epoch)
		add_counts(class_dir, device, address, object);
	return object;
}

/* The lines of @text, which is cut up. */
static struct json_object *lines_object(char *text)
{
	struct json_object *lines = json_object_new_array();
	char *rest = NULL, *line;

	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		json_object_array_add(lines, json_object_new_string(line));
	return lines;
}

static int add_history(const char *class_dir, struct json_object *peer)
{
	char file[sizeof("peers//history") + FOLDER_TEXT], text[SYSFS_TEXT];
	const char *device = text_of(peer, "device"), *name = text_of(peer, "incarnation");
	char folder[FOLDER_TEXT];
	int ret;

	snprintf(folder, sizeof(folder), "%s", text_of(peer, "address"));
	/* Who was never connected has none. */
	if (!find_folder(class_dir, device, name, folder))
		return 0;
	snprintf(file, sizeof(file), "peers/%s/history", folder);
	ret = sysfs_read_lines(class_dir, device, file, text);
	if (!ret)
		json_object_object_add(peer, "history", lines_object(text));
	/* It may be gone by now. */
	return find_folder(class_dir, device, name, folder) ? ret : 0;
}

int peers_add_histories(const char *class_dir, struct json_object *peers)
{
	int ret, first_error = 0;
	struct json_object *peer;
	size_t i;

	for (i = 0; i < json_object_array_length(peers); i++) {
		peer = json_object_array_get_idx(peers, i);
		ret = add_history(class_dir, peer);
		if (ret)
			fprintf(stderr, "towline: %s: what happened with %s: %s\n",
				text_of(peer, "device"), text_of(peer, "address"),
				tow_strerror(ret));
		if (!first_error)
			first_error = ret;
	}
	return first_error;
}

static struct json_object *peer_here(const char *device, const struct tow_peer_info *info)
{
	return peer_object(SYSFS_CLASS, device, info);
}

DEFINE_ASK_LIST(peer, peer_here)

/* ---- plain text ---- */

#define ROW "%-10s %-26s %-10s %4s %6s %7s %7s %9s %8s  %-28s %s\n"

/* "192.0.2.1:18600"; peers that came to us may not have said their port. */
static void place_of(struct json_object *peer, char *text, size_t room)
{
	const char *address = text_of(peer, "address"), *port = text_of(peer, "port");

	if (strcmp(port, "0") == 0)
		snprintf(text, room, "%s", address);
	else
		snprintf(text, room, strchr(address, ':') ? "[%s]:%s" : "%s:%s", address, port);
}

/* "12.3 us": how long its device takes to acknowledge a message. */
static const char *rtt_of(struct json_object *peer, char text[SIZE_TEXT])
{
	uint64_t ns = json_object_get_uint64(json_object_object_get(peer, "rtt_ns"));

	if (!ns)
		return "-";
	snprintf(text, SIZE_TEXT, "%.1f us", (double)ns / 1e3);
	return text;
}

static void print_history(struct json_object *lines)
{
	size_t i;

	for (i = 0; i < json_object_array_length(lines); i++)
		printf("  %s\n", json_object_get_string(json_object_array_get_idx(lines, i)));
}

static void print_peer(struct json_object *peer)
{
	struct json_object *history = json_object_object_get(peer, "history");
	int error = json_object_get_int(json_object_object_get(peer, "last_error"));
	uint64_t idle_ms = json_object_get_uint64(json_object_object_get(peer, "idle_ms"));
	char place[ADDRESS_TEXT + 16], idle[32], flags[WORDS_TEXT], rtt[SIZE_TEXT];

	place_of(peer, place, sizeof(place));
	snprintf(idle, sizeof(idle), "%" PRIu64 " s", idle_ms / 1000);
	printf(ROW, text_of(peer, "device"), place, text_of(peer, "state"), text_of(peer, "qps"),
	       text_of(peer, "epoch"), text_of(peer, "grants"), text_of(peer, "remotes"),
	       rtt_of(peer, rtt), idle, words_joined(json_object_object_get(peer, "flags"), flags),
	       error ? tow_strerror(error) : "-");
	if (history)
		print_history(history);
}

static void print_head(void)
{
	printf(ROW, "DEVICE", "ADDRESS", "STATE", "QPS", "EPOCH", "GRANTS", "REMOTES", "RTT",
	       "IDLE", "FLAGS", "LAST ERROR");
}

static void print_all(struct json_object *peers)
{
	print_rows(peers, print_head, print_peer);
}

/* What went well needs no words. */
static void print_nothing(struct json_object *peers)
{
	(void)peers;
}

/* ---- connect, disconnect ---- */

/* What the peer is afterwards, which is not there if it is gone altogether. */
static int add_peer(const char *device, const struct tow_peer *peer, struct json_object *answers)
{
	struct tow_peer_info info = { .size = sizeof(info) };
	int ret = tow_peer_info(peer, &info);

	if (!ret)
		json_object_array_add(answers, peer_here(device, &info));
	return ret;
}

static int connect_peer(struct tow_device *dev, const char *device, const char *address,
			struct json_object *answers)
{
	struct tow_peer *peer;
	int ret;

	ret = tow_peer_connect(dev, address, NULL, 0, &peer);
	if (ret)
		return ret;
	ret = add_peer(device, peer, answers);
	tow_peer_release(peer);
	return ret;
}

static int disconnect_peer(struct tow_device *dev, const char *address)
{
	struct tow_peer *peer;
	int ret;

	ret = tow_peer_find(dev, address, &peer);
	if (!ret)
		ret = tow_peer_disconnect(peer);
	return ret;
}

/* Words about a failure that know what was tried. */
static void say_why(const struct options *options, const char *device, int error)
{
	if (error == -EINVAL)
		fprintf(stderr, "towline: '%s' is no address of a node: 192.0.2.1, 192.0.2.1:18600, [fe80::1%%eth0]:18600\n",
			options->address);
	else if (error == -EPERM && options->action == DISCONNECT)
		fprintf(stderr, "towline: %s: ending a connection takes CAP_NET_ADMIN: run it as root, outside any container\n",
			device);
	else
		fprintf(stderr, "towline: %s: %s: %s\n", device, options->address,
			tow_strerror(error));
	if (error == -ENOKEY)
		fprintf(stderr, "towline: see cluster_key and allow_unauthenticated in towline(4)\n");
}

/* One device only: an address is one device's. */
static int act(const struct options *options, struct json_object *answers)
{
	char name[TOW_DEVICE_NAME_MAX];
	struct tow_device *dev;
	int ret;

	ret = choose_one(options->choice.device, name);
	if (ret)
		return ret;
	ret = tow_device_open(name, 0, &dev);
	if (ret) {
		complain(name, ret);
		return ret;
	}
	if (options->action == CONNECT)
		ret = connect_peer(dev, name, options->address, answers);
	else
		ret = disconnect_peer(dev, options->address);
	tow_device_close(dev);
	if (ret)
		say_why(options, name, ret);
	return ret;
}

/* ---- the command ---- */

static void take_argument(struct options *options, const char *arg, struct argp_state *state)
{
	if (options->action != SHOW && !options->address)
		options->address = arg;
	else if (options->action == SHOW && strcmp(arg, "connect") == 0)
		options->action = CONNECT;
	else if (options->action == SHOW && strcmp(arg, "disconnect") == 0)
		options->action = DISCONNECT;
	else
		argp_error(state, "unexpected argument '%s'", arg);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case HISTORY:
		options->history = true;
		return 0;
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &options->choice;
		return 0;
	case ARGP_KEY_ARG:
		take_argument(options, arg, state);
		return 0;
	case ARGP_KEY_END:
		if (options->action != SHOW && !options->address)
			argp_error(state, "which address?");
		if (options->history && options->action == DISCONNECT)
			argp_error(state, "--history shows peers");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int command_peers(int argc, char **argv)
{
	static const struct argp_child children[] = { { &choice_argp, 0, NULL, 0 }, { 0 } };
	static const struct argp_option argp_options[] = {
		{ "history", HISTORY, NULL, 0, "What happened last with each of them (as root)", 0 },
		{ 0 },
	};
	static const struct argp argp = {
		.options = argp_options,
		.parser = parse,
		.children = children,
		.args_doc = "[connect|disconnect ADDR]",
		.doc = "The nodes that each device knows, and how it stands with them.\v"
		       "connect finds the node at ADDR, connecting if need be, and shows it; "
		       "disconnect ends the connection to it, for everybody.  "
		       "ADDR is 192.0.2.1, 192.0.2.1:18600, [fe80::1%eth0]:18600 or a name.",
	};
	struct options options = { 0 };
	struct json_object *peers;
	int ret, history;

	if (argp_parse(&argp, argc, argv, 0, NULL, &options))
		return EXIT_FAILURE;
	peers = json_object_new_array();
	if (options.action == SHOW)
		ret = ask_devices(&options.choice, ask_peers, NULL, peers);
	else
		ret = act(&options, peers);
	history = options.history ? peers_add_histories(SYSFS_CLASS, peers) : 0;
	return show_answers(&options.choice, ret ? ret : history, peers,
			    options.action == DISCONNECT ? print_nothing : print_all);
}

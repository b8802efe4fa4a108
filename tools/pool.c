// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * towline pool: how much memory a device's pool has, who may have how much of
 * it, and making it larger or smaller; who has it is holders.c's.
 *
 * Everything is in sysfs.  JSON has each file's value under the file's name;
 * plain text says the same in words.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "holders.h"
#include "pool.h"
#include "tool.h"

static const char *const files[] = {
	"pool_bytes", "pool_used_bytes", "pool_high_water_bytes", "slab_bytes",
	"mr_limit", "mr_used",
	"client_bytes_limit", "user_bytes_limit",
	"client_mr_limit", "user_mr_limit",
	"client_region_limit", "user_region_limit", "device_region_limit",
	"linger_max_s",
};

int pool_object(const char *class_dir, const char *device, struct json_object **object)
{
	struct json_object *pool = json_object_new_object();
	struct json_object *counts = json_object_new_object();
	int ret;

	json_object_object_add(pool, "device", json_object_new_string(device));
	ret = sysfs_add(class_dir, device, files, COUNT(files), pool);
	if (!ret)
		ret = sysfs_add_folder(class_dir, device, "stats", counts);
	json_object_object_add(pool, "stats", counts);
	if (ret)
		json_object_put(pool);
	else
		*object = pool;
	return ret;
}

static int ask_pool(const char *device, const void *arg, struct json_object *answers)
{
	struct json_object *object;
	int ret;

	(void)arg;
	ret = pool_object(SYSFS_CLASS, device, &object);
	if (!ret)
		json_object_array_add(answers, object);
	return ret;
}

/* ---- plain text ---- */

/* "max" in words that fit before what it limits. */
static const char *limit_of(struct json_object *pool, const char *key)
{
	const char *text = text_of(pool, key);

	return strcmp(text, "max") == 0 ? "any number of" : text;
}

static const char *bytes_limit_of(struct json_object *pool, const char *key, char text[SIZE_TEXT])
{
	const char *words = size_of(pool, key, text);

	return strcmp(words, "max") == 0 ? "any amount" : words;
}

static void print_limits(struct json_object *pool)
{
	char text[SIZE_TEXT];

	printf("  %-18s %s of memory, %s memory regions, %s regions\n", "a client may have",
	       bytes_limit_of(pool, "client_bytes_limit", text),
	       limit_of(pool, "client_mr_limit"), limit_of(pool, "client_region_limit"));
	printf("  %-18s %s of memory, %s memory regions, %s regions\n", "a user may have",
	       bytes_limit_of(pool, "user_bytes_limit", text),
	       limit_of(pool, "user_mr_limit"), limit_of(pool, "user_region_limit"));
	printf("  %-18s %s memory regions, %s regions\n", "all may have",
	       limit_of(pool, "mr_limit"), limit_of(pool, "device_region_limit"));
	printf("  %-18s %s s after their client at most\n", "regions linger",
	       limit_of(pool, "linger_max_s"));
}

static void print_pool(struct json_object *pool)
{
	struct json_object *counts = json_object_object_get(pool, "stats");
	char text[SIZE_TEXT];

	printf("%s\n", text_of(pool, "device"));
	printf("  %-18s %s\n", "pool", size_of(pool, "pool_bytes", text));
	printf("  %-18s %s", "in use", size_of(pool, "pool_used_bytes", text));
	printf("; the most so far was %s\n", size_of(pool, "pool_high_water_bytes", text));
	printf("  %-18s %s, %s of them small; %s free, %s to be zeroed, %s just given back\n",
	       "slabs", text_of(counts, "slabs"), text_of(counts, "small_slabs"),
	       text_of(counts, "free_slabs"), text_of(counts, "dirty_slabs"),
	       text_of(counts, "draining_slabs"));
	printf("  %-18s %s\n", "regions", text_of(counts, "regions"));
	printf("  %-18s %s\n", "memory regions", text_of(pool, "mr_used"));
	print_limits(pool);
	printf("  %-18s %s by a client's or user's limit, %s by the device's, %s by the machine's memory\n",
	       "refused", text_of(counts, "quota_refusals"), text_of(counts, "pool_refusals"),
	       text_of(counts, "memory_refusals"));
}

static void print_all(struct json_object *pools)
{
	print_apart(pools, print_pool);
}

/* ---- --set ---- */

static int read_bytes(const char *class_dir, const char *device, uint64_t *bytes)
{
	char text[SYSFS_TEXT];
	int ret = sysfs_read(class_dir, device, "pool_bytes", text);

	return ret ? ret : size_parse(text, bytes);
}

/* What could be had is kept, so the failure is only half of what to say. */
static void say_partial(const char *class_dir, const char *device, uint64_t wanted)
{
	char had[SIZE_TEXT], asked[SIZE_TEXT];
	uint64_t bytes;

	if (read_bytes(class_dir, device, &bytes))
		return;
	fprintf(stderr, "towline: %s: the machine had no more memory to give: the pool has %s of the %s asked for, and keeps them\n",
		device, size_words(bytes, had), size_words(wanted, asked));
	fprintf(stderr, "towline: to have more, free memory and set the size again\n");
}

static void say_why(const char *class_dir, const char *device, uint64_t wanted, int error)
{
	if (error == -ENOMEM)
		say_partial(class_dir, device, wanted);
	else if (error == -EACCES || error == -EPERM)
		fprintf(stderr, "towline: %s: sizing the pool takes root, with CAP_NET_ADMIN outside any container\n",
			device);
	else if (error == -ERANGE)
		fprintf(stderr, "towline: %s: the pool cannot be that large\n", device);
	else
		complain(device, error);
}

/* Memory that is in use leaves when it is freed; the write has succeeded. */
static void say_if_shrinking(const char *class_dir, const char *device, uint64_t wanted)
{
	char now[SIZE_TEXT], asked[SIZE_TEXT];
	uint64_t bytes, used;
	char text[SYSFS_TEXT];

	if (read_bytes(class_dir, device, &bytes) || bytes <= wanted ||
	    sysfs_read(class_dir, device, "pool_used_bytes", text) || size_parse(text, &used) ||
	    used <= wanted)
		return;
	fprintf(stderr, "towline: %s: the pool still has %s, which are in use, and becomes %s as they are freed\n",
		device, size_words(bytes, now), size_words(wanted, asked));
}

int pool_set(const char *class_dir, const char *device, uint64_t bytes)
{
	char text[SYSFS_TEXT];
	int ret;

	snprintf(text, sizeof(text), "%" PRIu64, bytes);
	ret = sysfs_write(class_dir, device, "pool_bytes", text);
	if (ret)
		say_why(class_dir, device, bytes, ret);
	else
		say_if_shrinking(class_dir, device, bytes);
	return ret;
}

struct options {
	struct choice choice;
	enum holders by;
	bool set;
	uint64_t bytes;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &options->choice;
		return 0;
	case 's':
		options->set = true;
		if (size_parse(arg, &options->bytes))
			argp_error(state, "'%s' is no size: digits, and k, m, g or t behind them", arg);
		return 0;
	case 'b':
		options->by = holders_of(arg);
		if (!options->by)
			argp_error(state, "--by is user, cgroup or node, not '%s'", arg);
		return 0;
	case ARGP_KEY_END:
		if (options->set && options->by)
			argp_error(state, "--set and --by are two commands");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* Never all devices by default: which one is meant must be clear. */
static int set_and_ask(const struct options *options, struct json_object *pools)
{
	char name[TOW_DEVICE_NAME_MAX];
	int ret, shown;

	ret = choose_one(options->choice.device, name);
	if (ret)
		return ret;
	ret = pool_set(SYSFS_CLASS, name, options->bytes);
	if (ret && ret != -ENOMEM)
		return ret;
	/* What there is now, also when it is less than what was asked for. */
	shown = ask_pool(name, NULL, pools);
	if (shown)
		complain(name, shown);
	return ret ? ret : shown;
}

int command_pool(int argc, char **argv)
{
	static const struct argp_option known[] = {
		{ "set", 's', "SIZE", 0, "make the pool this large: 512m, 64g, ...", 0 },
		{ "by", 'b', "WHAT", 0, "who has it: by user, cgroup or node (where it is)", 0 },
		{ 0 },
	};
	static const struct argp_child children[] = { { &choice_argp, 0, NULL, 0 }, { 0 } };
	static const struct argp argp = {
		.options = known,
		.parser = parse,
		.children = children,
		.doc = "The memory of each device's pool, and who may have how much of it.",
	};
	struct options options = { 0 };
	struct json_object *pools;
	int ret;

	if (argp_parse(&argp, argc, argv, 0, NULL, &options))
		return EXIT_FAILURE;
	pools = json_object_new_array();
	if (options.set)
		ret = set_and_ask(&options, pools);
	else if (options.by)
		ret = ask_devices(&options.choice, ask_holders, &options.by, pools);
	else
		ret = ask_devices(&options.choice, ask_pool, NULL, pools);
	return show_answers(&options.choice, ret, pools, options.by ? print_holders : print_all);
}

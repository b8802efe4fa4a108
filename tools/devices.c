// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Which devices a subcommand is about, and how their answers are shown.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

#define HEX_BYTES_MAX 32

static error_t parse_choice(int key, char *arg, struct argp_state *state)
{
	struct choice *choice = state->input;

	switch (key) {
	case 'd':
		choice->device = arg;
		return 0;
	case 'j':
		choice->json = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "unexpected argument '%s'", arg);
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option choice_options[] = {
	{ "device", 'd', "IBDEV", 0, "only this RDMA device", 0 },
	{ "json", 'j', NULL, 0, "JSON: a list of objects", 0 },
	{ 0 },
};

const struct argp choice_argp = { .options = choice_options, .parser = parse_choice };

void complain(const char *device, int error)
{
	if (device && error == -EINVAL)
		fprintf(stderr, "towline: '%s' cannot be the name of an RDMA device\n", device);
	else if (device)
		fprintf(stderr, "towline: %s: %s\n", device, tow_strerror(error));
	else
		fprintf(stderr, "towline: %s\n", tow_strerror(error));
	if (error == -ENOPKG)
		fprintf(stderr, "towline: load it with: modprobe towline\n");
	if (error == -ENXIO)
		fprintf(stderr, "towline: see the kernel log for RDMA devices that were left alone, and why\n");
}

/* The only device's name: 0 or a negative errno. */
static int only_device(char name[TOW_DEVICE_NAME_MAX])
{
	struct tow_device_list *list;
	int ret;

	ret = tow_device_list_get(&list);
	if (ret)
		return ret;
	if (tow_device_list_count(list) == 1)
		snprintf(name, TOW_DEVICE_NAME_MAX, "%s", tow_device_list_name(list, 0));
	else
		ret = tow_device_list_count(list) ? -ENOTUNIQ : -ENXIO;
	tow_device_list_free(list);
	return ret;
}

int choose_one(const char *asked, char name[TOW_DEVICE_NAME_MAX])
{
	const char *preferred = getenv("TOW_DEVICE");
	int ret = 0;

	if (!asked && preferred && *preferred)
		asked = preferred;
	if (!asked)
		ret = only_device(name);
	else if (snprintf(name, TOW_DEVICE_NAME_MAX, "%s", asked) >= TOW_DEVICE_NAME_MAX)
		ret = -EINVAL;
	if (ret)
		complain(asked, ret);
	if (ret == -ENOTUNIQ)
		fprintf(stderr, "towline: or say which with -d\n");
	return ret;
}

int each_device(void (*visit)(const char *device, void *arg), void *arg)
{
	struct tow_device_list *list;
	size_t i;
	int ret;

	ret = tow_device_list_get(&list);
	if (ret) {
		complain(NULL, ret);
		return ret;
	}
	for (i = 0; i < tow_device_list_count(list); i++)
		visit(tow_device_list_name(list, i), arg);
	tow_device_list_free(list);
	return 0;
}

static int ask_one(const char *device, ask_function *ask, const void *arg,
		   struct json_object *answers)
{
	int ret = ask(device, arg, answers);

	if (ret)
		complain(device, ret);
	return ret;
}

static int ask_all(ask_function *ask, const void *arg, struct json_object *answers)
{
	struct tow_device_list *list;
	int ret, first_error = 0;
	size_t i;

	ret = tow_device_list_get(&list);
	if (!ret && tow_device_list_count(list) == 0) {
		tow_device_list_free(list);
		ret = -ENXIO;
	}
	if (ret) {
		complain(NULL, ret);
		return ret;
	}
	for (i = 0; i < tow_device_list_count(list); i++) {
		ret = ask_one(tow_device_list_name(list, i), ask, arg, answers);
		if (ret && !first_error)
			first_error = ret;
	}
	tow_device_list_free(list);
	return first_error;
}

int ask_devices(const struct choice *choice, ask_function *ask, const void *arg,
		struct json_object *answers)
{
	if (choice->device)
		return ask_one(choice->device, ask, arg, answers);
	return ask_all(ask, arg, answers);
}

void print_json(struct json_object *value)
{
	puts(json_object_to_json_string_ext(value, JSON_C_TO_STRING_PRETTY |
						   JSON_C_TO_STRING_NOSLASHESCAPE));
}

void print_rows(struct json_object *answers, void (*print_head)(void),
		void (*print_one)(struct json_object *answer))
{
	size_t i, count = json_object_array_length(answers);

	print_head();
	for (i = 0; i < count; i++)
		print_one(json_object_array_get_idx(answers, i));
}

void print_apart(struct json_object *answers, void (*print_one)(struct json_object *answer))
{
	size_t i, count = json_object_array_length(answers);

	for (i = 0; i < count; i++) {
		if (i)
			putchar('\n');
		print_one(json_object_array_get_idx(answers, i));
	}
}

int show_answers(const struct choice *choice, int ret, struct json_object *answers,
		 void (*print)(struct json_object *answers))
{
	if (choice->json)
		print_json(answers);
	else if (!ret || json_object_array_length(answers))
		print(answers);
	json_object_put(answers);
	return ret ? EXIT_FAILURE : EXIT_SUCCESS;
}

struct json_object *hex_object(const uint8_t *bytes, size_t count)
{
	char text[2 * HEX_BYTES_MAX + 1] = "";
	size_t i;

	for (i = 0; i < count && i < HEX_BYTES_MAX; i++)
		snprintf(&text[2 * i], 3, "%02x", bytes[i]);
	return json_object_new_string(text);
}

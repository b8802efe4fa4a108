// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * towline info: what each device can do, and which instance it is.
 *
 * One table says what is shown, in which order and how; plain text and JSON
 * are two ways of going through it.  JSON keys that sysfs has a file for have
 * that file's name.
 */
#include <argp.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <json-c/json.h>
#include <towline/towline.h>

#include "commands.h"

struct options {
	const char *device;
	bool json;
};

/* How a field of struct tow_device_attr is read and shown. */
enum kind { TEXT, HEX, U32, S32, U64, VERSION, FEATURES, TRANSPORT, STATE, ERROR };

struct field {
	const char *key;
	enum kind kind;
	size_t offset;
	const char *unit;
};

#define FIELD(name, kind, unit) { #name, kind, offsetof(struct tow_device_attr, name), unit }

static const struct field fields[] = {
	{ "device", TEXT, offsetof(struct tow_device_attr, device_name), NULL },
	FIELD(incarnation, HEX, NULL),
	FIELD(transport, TRANSPORT, NULL),
	FIELD(port, U32, NULL),
	FIELD(features, FEATURES, NULL),
	FIELD(numa_node, S32, NULL),
	FIELD(driver_version, VERSION, NULL),
	FIELD(uapi_version, U32, NULL),
	FIELD(maint_state, STATE, NULL),
	FIELD(maint_error, ERROR, NULL),
	FIELD(maint_rebuilds, U32, NULL),
	FIELD(page_size, U32, "bytes"),
	FIELD(max_mr_size, U64, "bytes"),
	FIELD(max_msg_size, U64, "bytes"),
	FIELD(max_mr, U32, NULL),
	FIELD(max_fast_reg_pages, U32, "pages"),
	FIELD(max_pd, U32, NULL),
	FIELD(max_qp, U32, NULL),
	FIELD(max_qp_wr, U32, NULL),
	FIELD(max_send_sge, U32, NULL),
	FIELD(max_recv_sge, U32, NULL),
	FIELD(max_sge_rd, U32, NULL),
	FIELD(max_cq, U32, NULL),
	FIELD(max_cqe, U32, NULL),
	FIELD(max_srq, U32, NULL),
	FIELD(max_srq_wr, U32, NULL),
	FIELD(max_qp_rd_atom, U32, NULL),
	FIELD(max_qp_init_rd_atom, U32, NULL),
};

static const char *const transports[] = {
	[TOW_TRANSPORT_IB] = "infiniband",
	[TOW_TRANSPORT_ROCE] = "roce",
	[TOW_TRANSPORT_IWARP] = "iwarp",
};

static const char *const states[] = {
	[TOW_MAINT_WAITING] = "waiting",
	[TOW_MAINT_CONNECTING] = "connecting",
	[TOW_MAINT_READY] = "ready",
	[TOW_MAINT_FAILED] = "failed",
};

/* By bit. */
static const char *const features[] = { "write_imm", "atomics", "srq", "virt_dma" };

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static uint32_t get_u32(const void *value)
{
	uint32_t number;

	memcpy(&number, value, sizeof(number));
	return number;
}

static uint64_t get_u64(const void *value)
{
	uint64_t number;

	memcpy(&number, value, sizeof(number));
	return number;
}

/* A kernel newer than this program may know values that have no name here. */
static struct json_object *named(const char *const *names, size_t count, uint32_t value)
{
	if (value < count && names[value])
		return json_object_new_string(names[value]);
	return json_object_new_int64(value);
}

static struct json_object *feature_names(uint64_t bits)
{
	struct json_object *names = json_object_new_array();
	char unnamed[16];
	size_t bit;

	for (bit = 0; bit < 64; bit++) {
		if (!(bits >> bit & 1))
			continue;
		snprintf(unnamed, sizeof(unnamed), "bit_%zu", bit);
		json_object_array_add(names, json_object_new_string(
			bit < COUNT(features) ? features[bit] : unnamed));
	}
	return names;
}

static struct json_object *hex(const uint8_t *bytes, size_t count)
{
	char text[2 * TOW_INCARNATION_BYTES + 1];
	size_t i;

	for (i = 0; i < count; i++)
		snprintf(&text[2 * i], 3, "%02x", bytes[i]);
	return json_object_new_string(text);
}

static struct json_object *version(uint32_t number)
{
	char text[32];

	snprintf(text, sizeof(text), "%u.%u.%u", number >> 16, number >> 8 & 0xff, number & 0xff);
	return json_object_new_string(text);
}

static struct json_object *field_value(const struct field *field, const struct tow_device_attr *attr)
{
	const void *value = (const char *)attr + field->offset;

	switch (field->kind) {
	case TEXT:
		return json_object_new_string(value);
	case HEX:
		return hex(value, TOW_INCARNATION_BYTES);
	case U32:
		return json_object_new_int64(get_u32(value));
	case S32:
	case ERROR:
		return json_object_new_int((int32_t)get_u32(value));
	case U64:
		return json_object_new_uint64(get_u64(value));
	case VERSION:
		return version(get_u32(value));
	case FEATURES:
		return feature_names(get_u64(value));
	case TRANSPORT:
		return named(transports, COUNT(transports), get_u32(value));
	case STATE:
		return named(states, COUNT(states), get_u32(value));
	}
	return NULL;
}

static struct json_object *device_object(const struct tow_device_attr *attr)
{
	struct json_object *object = json_object_new_object();
	size_t i;

	for (i = 0; i < COUNT(fields); i++)
		json_object_object_add(object, fields[i].key, field_value(&fields[i], attr));
	return object;
}

static void print_features(struct json_object *names)
{
	size_t i;

	for (i = 0; i < json_object_array_length(names); i++)
		printf("%s%s", i ? " " : "", json_object_get_string(json_object_array_get_idx(names, i)));
}

static void print_value(const struct field *field, struct json_object *value)
{
	int error = json_object_get_int(value);

	if (field->kind == FEATURES)
		print_features(value);
	else if (field->kind == ERROR)
		printf("%s", error ? strerror(-error) : "none");
	else
		printf("%s%s%s", json_object_get_string(value), field->unit ? " " : "",
		       field->unit ? field->unit : "");
}

/* The same values as in JSON, a line each, under the device's name. */
static void print_device(struct json_object *object)
{
	size_t i;

	printf("%s\n", json_object_get_string(json_object_object_get(object, fields[0].key)));
	for (i = 1; i < COUNT(fields); i++) {
		printf("  %-20s ", fields[i].key);
		print_value(&fields[i], json_object_object_get(object, fields[i].key));
		putchar('\n');
	}
}

static void complain(const char *device, int error)
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

/* 0 with the device's object, or a negative errno. */
static int query_device(const char *name, struct json_object **object)
{
	struct tow_device_attr attr = { .size = sizeof(attr) };
	struct tow_device *dev;
	int ret;

	ret = tow_device_open(name, 0, &dev);
	if (ret)
		return ret;
	ret = tow_device_query(dev, &attr);
	tow_device_close(dev);
	if (!ret)
		*object = device_object(&attr);
	return ret;
}

static int add_device(struct json_object *devices, const char *name)
{
	struct json_object *object = NULL;
	int ret;

	ret = query_device(name, &object);
	if (ret) {
		complain(name, ret);
		return ret;
	}
	json_object_array_add(devices, object);
	return 0;
}

static int add_all_devices(struct json_object *devices)
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
		ret = add_device(devices, tow_device_list_name(list, i));
		if (ret && !first_error)
			first_error = ret;
	}
	tow_device_list_free(list);
	return first_error;
}

static void print_all(struct json_object *devices, bool json)
{
	size_t i, count = json_object_array_length(devices);

	if (json) {
		puts(json_object_to_json_string_ext(devices, JSON_C_TO_STRING_PRETTY |
						    JSON_C_TO_STRING_NOSLASHESCAPE));
		return;
	}
	for (i = 0; i < count; i++) {
		if (i)
			putchar('\n');
		print_device(json_object_array_get_idx(devices, i));
	}
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case 'd':
		options->device = arg;
		return 0;
	case 'j':
		options->json = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "unexpected argument '%s'", arg);
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int command_info(int argc, char **argv)
{
	static const struct argp_option known[] = {
		{ "device", 'd', "IBDEV", 0, "only this RDMA device (default: all)", 0 },
		{ "json", 'j', NULL, 0, "a JSON list with an object for each device", 0 },
		{ 0 },
	};
	static const struct argp argp = {
		.options = known,
		.parser = parse,
		.doc = "What each device can do, and which instance it is.",
	};
	struct options options = { 0 };
	struct json_object *devices;
	int ret;

	if (argp_parse(&argp, argc, argv, 0, NULL, &options))
		return EXIT_FAILURE;
	devices = json_object_new_array();
	if (options.device)
		ret = add_device(devices, options.device);
	else
		ret = add_all_devices(devices);
	print_all(devices, options.json);
	json_object_put(devices);
	return ret ? EXIT_FAILURE : EXIT_SUCCESS;
}

// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * towline info: what each device can do, and which instance it is.
 *
 * One table says what is shown, in which order and how; plain text and JSON
 * are two ways of going through it.  JSON keys that sysfs has a file for have
 * that file's name.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "tool.h"

/* How a field of struct tow_device_attr is read and shown. */
enum kind { TEXT, HEX, U32, S32, U64, VERSION, FEATURES, TRANSPORT, STATE, ERROR };

struct field {
	const char *key;
	enum kind kind;
	size_t offset;
	const char *unit;
};

/* Where its driver counts what its port did: retransmissions, for one. */
#define COUNTERS "hw_counters"

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
};

static const char *const states[] = {
	[TOW_MAINT_WAITING] = "waiting",
	[TOW_MAINT_CONNECTING] = "connecting",
	[TOW_MAINT_READY] = "ready",
	[TOW_MAINT_FAILED] = "failed",
};

/* By bit. */
static const char *const features[] = { [1] = "atomics", "srq", "virt_dma" };

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
		return hex_object(value, TOW_INCARNATION_BYTES);
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
		return bits_object(features, COUNT(features), get_u64(value));
	case TRANSPORT:
		return word_object(transports, COUNT(transports), get_u32(value));
	case STATE:
		return word_object(states, COUNT(states), get_u32(value));
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

/* Many drivers count, each what it likes; those that do not have no such folder. */
static void add_counters(const struct tow_device_attr *attr, struct json_object *device)
{
	struct json_object *counters = json_object_new_object();
	char folder[64];

	snprintf(folder, sizeof(folder), "ports/%u/" COUNTERS, attr->port);
	sysfs_add_folder("/sys/class/infiniband", attr->device_name, folder, counters);
	/* How old they may be, in ms: a setting. */
	json_object_object_del(counters, "lifespan");
	json_object_object_add(device, COUNTERS, counters);
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

/* The same as in JSON, a line each, under the device's name; counters without those at 0. */
static void print_device(struct json_object *object)
{
	size_t i;

	printf("%s\n", json_object_get_string(json_object_object_get(object, fields[0].key)));
	for (i = 1; i < COUNT(fields); i++) {
		printf("  %-20s ", fields[i].key);
		print_value(&fields[i], json_object_object_get(object, fields[i].key));
		putchar('\n');
	}
	json_object_object_foreach(json_object_object_get(object, COUNTERS), name, count) {
		if (json_object_get_uint64(count))
			printf("  %-20s %s\n", name, json_object_get_string(count));
	}
}

static int ask_info(const char *name, const void *arg, struct json_object *answers)
{
	struct tow_device_attr attr = { .size = sizeof(attr) };
	struct json_object *device;
	struct tow_device *dev;
	int ret;

	(void)arg;
	ret = tow_device_open(name, 0, &dev);
	if (ret)
		return ret;
	ret = tow_device_query(dev, &attr);
	tow_device_close(dev);
	if (ret)
		return ret;
	device = device_object(&attr);
	add_counters(&attr, device);
	json_object_array_add(answers, device);
	return 0;
}

static void print_all(struct json_object *devices)
{
	print_apart(devices, print_device);
}

int command_info(int argc, char **argv)
{
	static const struct argp_child children[] = { { &choice_argp, 0, NULL, 0 }, { 0 } };
	/* No parser of its own: the input goes to the child's. */
	static const struct argp argp = {
		.children = children,
		.doc = "What each device can do, and which instance it is.",
	};
	struct choice choice = { 0 };
	struct json_object *devices;
	int ret;

	if (argp_parse(&argp, argc, argv, 0, NULL, &choice))
		return EXIT_FAILURE;
	devices = json_object_new_array();
	ret = ask_devices(&choice, ask_info, NULL, devices);
	return show_answers(&choice, ret, devices, print_all);
}

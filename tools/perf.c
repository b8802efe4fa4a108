// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * towline perf: how fast reads, writes and atomics to another node are.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <towline/queue.h>

#include "commands.h"
#include "perf.h"
#include "tool.h"

#define LISTEN_BYTES	(16ULL << 20)
#define RUN_BYTES	(64ULL << 10)
#define RUN_ITERATIONS	1000
#define ATOMIC_BYTES	8
#define NOTIFY_BYTES	8

struct options {
	struct choice choice;
	bool listens;
	const char *address;
	/* What was said only of a run. */
	bool of_a_run;
	bool sized;
	struct perf_plan plan;
};

static const char *const types[] = {
	[PERF_WRITE] = "write",
	[PERF_READ] = "read",
	[PERF_ATOMIC] = "atomic",
	[PERF_NOTIFY] = "notify",
};

/* With three digits behind the point: what is measured is not more exact. */
static struct json_object *rounded_object(double value)
{
	char text[64];

	snprintf(text, sizeof(text), "%.3f", value);
	return json_object_new_double_s(value, text);
}

struct json_object *perf_object(const char *device, const char *address,
				const struct perf_plan *plan, const struct perf_result *result)
{
	struct json_object *object = json_object_new_object();

#define ADD(key, value) json_object_object_add(object, key, value)
	ADD("device", json_object_new_string(device));
	ADD("address", json_object_new_string(address));
	ADD("type", json_object_new_string(types[plan->type]));
	ADD("bytes", json_object_new_uint64(plan->bytes));
	ADD("iterations", json_object_new_uint64(plan->iterations));
	ADD("qps", json_object_new_int64(plan->qps));
	ADD("batch", json_object_new_int64(plan->batch));
	ADD("bidir", json_object_new_boolean(plan->bidir));
	ADD("poller", json_object_new_boolean(plan->polls));
	ADD("sleep", json_object_new_boolean(plan->sleeps));
	ADD("seconds", rounded_object(result->seconds));
	ADD("latency_min_us", rounded_object(result->latency_min_us));
	ADD("latency_median_us", rounded_object(result->latency_median_us));
	ADD("latency_p99_us", rounded_object(result->latency_p99_us));
	ADD("operations_per_s", rounded_object(result->operations_per_s));
	ADD("bytes_per_s", rounded_object(result->bytes_per_s));
#undef ADD
	return object;
}

/* ---- plain text ---- */

static double number_of(struct json_object *object, const char *key)
{
	return json_object_get_double(json_object_object_get(object, key));
}

static void print_run(struct json_object *run)
{
	char bytes[SIZE_TEXT], bandwidth[SIZE_TEXT];
	bool bidir = json_object_get_boolean(json_object_object_get(run, "bidir"));
	bool sleeps = json_object_get_boolean(json_object_object_get(run, "sleep"));

	printf("%s to %s: %s, %s, %s times, %s at a time, %s queue pair%s%s%s\n",
	       text_of(run, "device"), text_of(run, "address"), text_of(run, "type"),
	       size_of(run, "bytes", bytes), text_of(run, "iterations"), text_of(run, "batch"),
	       text_of(run, "qps"), number_of(run, "qps") > 1 ? "s" : "",
	       bidir ? ", both directions" : "", sleeps ? ", asleep" : "");
	printf("  latency    median %.2f us, 99 %% within %.2f us, least %.2f us\n",
	       number_of(run, "latency_median_us"), number_of(run, "latency_p99_us"),
	       number_of(run, "latency_min_us"));
	printf("  rate       %.0f per second\n", number_of(run, "operations_per_s"));
	printf("  bandwidth  %s per second\n",
	       size_words((uint64_t)number_of(run, "bytes_per_s"), bandwidth));
}

static void print_all(struct json_object *runs)
{
	print_apart(runs, print_run);
}

/* ---- the side that measures ---- */

static void say_failure(const struct options *options, const char *device,
			const struct perf_failure *failure)
{
	if (!failure->what && failure->error == -EINVAL)
		fprintf(stderr, "towline: '%s' is no address of a node: see towline peers --help\n",
			options->address);
	else
		fprintf(stderr, "towline: %s: %s: %s%s%s\n", device, options->address,
			failure->what ? failure->what : "", failure->what ? ": " : "",
			tow_strerror(failure->error));
}

static int measure(const struct options *options, struct tow_device *dev, const char *device,
		   struct json_object *answers)
{
	struct perf_failure failure;
	struct perf_result result;
	bool good;

	if (options->plan.type == PERF_NOTIFY)
		good = perf_measure_notify(dev, options->address, &options->plan, &result,
					   &failure);
	else
		good = perf_measure(dev, options->address, &options->plan, &result, &failure);
	if (!good) {
		say_failure(options, device, &failure);
		return failure.error;
	}
	json_object_array_add(answers, perf_object(device, options->address, &options->plan,
						   &result));
	return 0;
}

/* ---- the side that listens ---- */

static struct json_object *listener_object(const char *device, uint64_t bytes)
{
	struct json_object *object = json_object_new_object();

	json_object_object_add(object, "device", json_object_new_string(device));
	json_object_object_add(object, "name", json_object_new_string(PERF_NAME));
	json_object_object_add(object, "bytes", json_object_new_uint64(bytes));
	return object;
}

static void say_ready(const struct options *options, const char *device)
{
	struct json_object *object = listener_object(device, options->plan.bytes);
	char bytes[SIZE_TEXT];

	if (options->choice.json)
		print_json(object);
	else
		printf("%s: peers can measure with %s; end it with a signal (control-C)\n", device,
		       size_of(object, "bytes", bytes));
	fflush(stdout);
	json_object_put(object);
}

/* Until a signal comes; where there are notifications they are answered. */
static int wait_for_the_end(const struct options *options, struct tow_device *dev,
			    struct tow_region *region, const char *device)
{
	struct answerer *answerer;
	sigset_t ends;
	int came, ret;

	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGHUP);
	sigprocmask(SIG_BLOCK, &ends, NULL);
	ret = perf_answer_make(dev, region, options->plan.bytes, &ends, &answerer);
	/* Reads and writes need nothing of that. */
	if (ret == -ENOSPC || ret == -EDQUOT)
		fprintf(stderr, "towline: %s: notifications are not answered: %s\n", device,
			tow_strerror(ret));
	else if (ret && ret != -EOPNOTSUPP)
		return ret;
	say_ready(options, device);
	if (!ret)
		return perf_answer(answerer);
	sigwait(&ends, &came);
	return 0;
}

static int may_be_done(struct tow_device *dev, uint32_t *rights)
{
	struct tow_device_attr attr = { .size = sizeof(attr) };
	int ret = tow_device_query(dev, &attr);

	*rights = TOW_RIGHT_READ | TOW_RIGHT_WRITE;
	if (!ret && attr.features & TOW_FEATURE_ATOMICS)
		*rights |= TOW_RIGHT_ATOMIC;
	return ret;
}

static int listen_with(const struct options *options, struct tow_device *dev,
		       struct tow_region *region, uint32_t rights, const char *device)
{
	struct tow_exported *exported;
	int ret, end;

	ret = tow_export(region, 0, options->plan.bytes, PERF_NAME, rights, &exported);
	if (ret)
		return ret;
	ret = wait_for_the_end(options, dev, region, device);
	end = tow_unexport(exported);
	return ret ? ret : end;
}

static int listen_on(const struct options *options, struct tow_device *dev, const char *device)
{
	struct tow_region *region;
	uint32_t rights;
	int ret;

	ret = may_be_done(dev, &rights);
	if (ret)
		goto out;
	ret = tow_region_create(dev, options->plan.bytes, NULL, &region);
	if (ret)
		goto out;
	ret = listen_with(options, dev, region, rights, device);
	tow_region_destroy(region);
out:
	if (ret == -EEXIST)
		fprintf(stderr, "towline: %s: somebody listens already\n", device);
	else if (ret)
		complain(device, ret);
	return ret;
}

/* ---- the command ---- */

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
	if (options->listens)
		ret = listen_on(options, dev, name);
	else
		ret = measure(options, dev, name, answers);
	tow_device_close(dev);
	return ret;
}

static enum perf_type parse_type(const char *text, struct argp_state *state)
{
	for (size_t i = 0; i < COUNT(types); i++)
		if (strcmp(text, types[i]) == 0)
			return (enum perf_type)i;
	argp_error(state, "'%s' cannot be measured: write, read, atomic or notify", text);
	return PERF_WRITE;
}

/* A number of at least 1. */
static uint64_t parse_number(const char *text, uint64_t most, struct argp_state *state)
{
	uint64_t number = 0;

	if (size_parse(text, &number) || number < 1 || number > most)
		argp_error(state, "'%s' is no number from 1 to %" PRIu64, text, most);
	return number;
}

static error_t parse_run_option(int key, const char *arg, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case 't':
		options->plan.type = parse_type(arg, state);
		break;
	case 'n':
		options->plan.iterations = parse_number(arg, PERF_ITERATIONS_MAX, state);
		break;
	case 'q':
		options->plan.qps = (uint32_t)parse_number(arg, PERF_QPS_MAX, state);
		break;
	case 'b':
		options->plan.batch = (uint32_t)parse_number(arg, PERF_BATCH_MAX, state);
		break;
	case 'B':
		options->plan.bidir = true;
		break;
	case 'p':
		options->plan.polls = true;
		break;
	case 'w':
		options->plan.sleeps = true;
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	options->of_a_run = true;
	return 0;
}

/* Notifications go to and fro, one by one. */
static void check_notify(const struct perf_plan *plan, struct argp_state *state)
{
	if (plan->type != PERF_NOTIFY && plan->sleeps)
		argp_error(state, "--sleep is for -t notify");
	if (plan->type != PERF_NOTIFY)
		return;
	if (plan->batch != 1 || plan->qps != 1)
		argp_error(state, "a notification is answered before there is another");
	if (plan->bidir)
		argp_error(state, "notifications go both ways already");
	if (plan->polls)
		argp_error(state, "--poller is not for -t notify");
}

static uint64_t usual_bytes(const struct options *options)
{
	if (options->listens)
		return LISTEN_BYTES;
	if (options->plan.type == PERF_ATOMIC)
		return ATOMIC_BYTES;
	return options->plan.type == PERF_NOTIFY ? NOTIFY_BYTES : RUN_BYTES;
}

/* What was said must fit together; what was not said gets its default. */
static void check_options(struct options *options, struct argp_state *state)
{
	bool atomic = options->plan.type == PERF_ATOMIC;

	if (options->listens && (options->address || options->of_a_run))
		argp_error(state, "--listen takes -d, -s and --json only");
	if (!options->listens && !options->address)
		argp_error(state, "which address? (or --listen)");
	if (atomic && options->sized && options->plan.bytes != ATOMIC_BYTES)
		argp_error(state, "an atomic has %d bytes", ATOMIC_BYTES);
	if (atomic && options->plan.bidir)
		argp_error(state, "an atomic goes both ways already");
	check_notify(&options->plan, state);
	if (!options->sized)
		options->plan.bytes = usual_bytes(options);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &options->choice;
		return 0;
	case 'l':
		options->listens = true;
		return 0;
	case 's':
		options->plan.bytes = parse_number(arg, UINT64_MAX >> 1, state);
		options->sized = true;
		return 0;
	case ARGP_KEY_ARG:
		if (options->address)
			argp_error(state, "unexpected argument '%s'", arg);
		options->address = arg;
		return 0;
	case ARGP_KEY_END:
		check_options(options, state);
		return 0;
	default:
		return parse_run_option(key, arg, state);
	}
}

static const struct argp_option known[] = {
	{ "listen", 'l', NULL, 0, "be the side that has the memory, until a signal comes", 0 },
	{ "type", 't', "write|read|atomic|notify", 0, "what is measured (write)", 0 },
	{ "size", 's', "BYTES", 0, "of one operation (64k); of the memory that is listened with (16m)",
	  0 },
	{ "iterations", 'n', "ITERS", 0, "how often (1000)", 0 },
	{ "qps", 'q', "QPS", 0, "over so many queue pairs, in turn (1)", 0 },
	{ "batch", 'b', "N", 0, "hand over N at a time, and have as many on their way (1)", 0 },
	{ "poller", 'p', NULL, 0, "hand over without a call: a thread of the kernel's looks", 0 },
	{ "sleep", 'w', NULL, 0, "notify: both sides sleep, instead of looking at memory", 0 },
	{ "bidir", 'B', NULL, 0, "writes and reads in turn: data goes both ways", 0 },
	{ 0 },
};

int command_perf(int argc, char **argv)
{
	static const struct argp_child children[] = { { &choice_argp, 0, NULL, 0 }, { 0 } };
	static const struct argp argp = {
		.options = known,
		.parser = parse,
		.children = children,
		.args_doc = "--listen\nADDR",
		.doc = "How fast operations on another node's memory are.\v"
		       "Somebody must listen there: the same user, or in the same job.  "
		       "ADDR is as for 'towline peers connect'.",
	};
	struct options options = {
		.plan = { .iterations = RUN_ITERATIONS, .batch = 1, .qps = 1 },
	};
	struct json_object *answers;
	int ret;

	if (argp_parse(&argp, argc, argv, 0, NULL, &options))
		return EXIT_FAILURE;
	answers = json_object_new_array();
	ret = act(&options, answers);
	/* Who listens has said what there is to say. */
	if (options.listens) {
		json_object_put(answers);
		return ret ? EXIT_FAILURE : EXIT_SUCCESS;
	}
	return show_answers(&options.choice, ret, answers, print_all);
}

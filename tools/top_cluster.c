// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * towline top --cluster: a line for this node, and for each that it is connected to.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "top_nodes.h"

/* Nothing new in so many of the longer one of the two nodes' intervals: silent. */
#define SILENT_AFTER 3

/* How long pages are waited for at most; shorter intervals allow half of one. */
#define PATIENCE_NS 2000000000ULL

/* ---- JSON ---- */

static void add_report(struct json_object *object, const struct top_report *report,
		       const struct top_rates *rates)
{
	const uint8_t *node = (const uint8_t *)report->node;
	const uint8_t *device = (const uint8_t *)report->device;

	json_object_object_add(object, "node", text_object(node, strlen(report->node)));
	json_object_object_add(object, "device", text_object(device, strlen(report->device)));
	json_object_object_add(object, "incarnation",
			       hex_object(report->incarnation, sizeof(report->incarnation)));
	top_add_counts(object, report->counts);
	top_add_rates(object, rates);
}

static void add_age(struct json_object *object, double seconds)
{
	char text[64];

	snprintf(text, sizeof(text), "%.3f", seconds);
	json_object_object_add(object, "age_s", json_object_new_double_s(seconds, text));
}

static struct json_object *self_object(const char *device, const struct top_sample *now,
				       const struct top_sample *before,
				       const struct top_pace *pace)
{
	struct json_object *object = json_object_new_object();
	struct top_report report, earlier;
	struct top_rates rates;

	top_report_fill(&report, device, now, 2, pace->interval_ns);
	top_report_fill(&earlier, device, before, 1, pace->interval_ns);
	rates = top_report_rates(&report, &earlier);
	json_object_object_add(object, "state", json_object_new_string("here"));
	json_object_object_add(object, "last_error", json_object_new_int(0));
	add_age(object, 0);
	add_report(object, &report, &rates);
	return object;
}

static const char *state_word(const struct top_node *node, uint64_t interval_ns)
{
	static const char *const words[] = {
		[NODE_NO_PAGE] = "no page",
		[NODE_READY] = "ready",
		[NODE_LOST] = "lost",
		[NODE_FAILED] = "failed",
	};
	uint64_t theirs_ns = node->report.interval_ms * 1000000;

	if (node->state == NODE_READY &&
	    top_now_ns() - node->reported_ns >
		    SILENT_AFTER * (theirs_ns > interval_ns ? theirs_ns : interval_ns))
		return "silent";
	return words[node->state];
}

static struct json_object *node_object(const struct top_node *node, uint64_t interval_ns)
{
	static const struct top_rates unknown = { -1, -1, -1, -1 };
	struct json_object *object = json_object_new_object();
	const char *state = state_word(node, interval_ns);
	bool silent = strcmp(state, "silent") == 0;

	json_object_object_add(object, "address", json_object_new_string(node->address));
	json_object_object_add(object, "state", json_object_new_string(state));
	json_object_object_add(object, "last_error", json_object_new_int(node->error));
	if (!node->reported)
		return object;
	add_age(object, (double)(top_now_ns() - node->reported_ns) / 1e9);
	add_report(object, &node->report, silent ? &unknown : &node->rates);
	return object;
}

/* ---- plain text ---- */

#define ROW "%-20s %-22s %-8s %9s %12s %12s %10s %10s %8s %7s %6s %7s  %s\n"

static const char *word_of(struct json_object *object, const char *key)
{
	return json_object_object_get(object, key) ? text_of(object, key) : "-";
}

static void print_node(struct json_object *node)
{
	struct json_object *stats = json_object_object_get(node, "stats");
	struct json_object *age = json_object_object_get(node, "age_s");
	int error = json_object_get_int(json_object_object_get(node, "last_error"));
	char operations[SIZE_TEXT], written[SIZE_TEXT], read[SIZE_TEXT], used[SIZE_TEXT];
	char pool[SIZE_TEXT], old[SIZE_TEXT] = "-";

	if (age)
		snprintf(old, sizeof(old), "%.1f s", json_object_get_double(age));
	printf(ROW, word_of(node, "node"), word_of(node, "address"), text_of(node, "state"),
	       top_rate_words(node, "operations_per_s", operations),
	       top_bytes_words(node, "bytes_written_per_s", written),
	       top_bytes_words(node, "bytes_read_per_s", read),
	       top_bytes_words(node, "pool_used_bytes", used),
	       top_bytes_words(node, "pool_bytes", pool), word_of(stats, "regions"),
	       word_of(stats, "queues"), word_of(node, "peers_ready"), old,
	       error ? tow_strerror(error) : "-");
}

static void print_cluster(struct json_object *answer)
{
	struct json_object *nodes = json_object_object_get(answer, "nodes");

	printf(ROW, "NODE", "ADDRESS", "STATE", "OPS/S", "WRITTEN/S", "READ/S", "POOL USED", "POOL",
	       "REGIONS", "QUEUES", "PEERS", "AGE", "LAST ERROR");
	for (size_t i = 0; i < json_object_array_length(nodes); i++)
		print_node(json_object_array_get_idx(nodes, i));
}

/* ---- the command ---- */

static bool show(const char *device, struct top_pace *pace, const struct top_sample *now,
		 const struct top_sample *before, const struct top_nodes *nodes)
{
	struct json_object *answer = json_object_new_object(), *list = json_object_new_array();

	json_object_array_add(list, self_object(device, now, before, pace));
	for (size_t i = 0; i < nodes->count; i++)
		json_object_array_add(list, node_object(nodes->all[i], pace->interval_ns));
	json_object_object_add(answer, "device", json_object_new_string(device));
	json_object_object_add(answer, "nodes", list);
	return top_show(pace, answer, print_cluster);
}

static int read_pages(const struct top_pace *pace, struct top_nodes *nodes)
{
	uint64_t half_ns = pace->interval_ns / 2;

	return top_nodes_round(nodes, top_now_ns() +
			       (half_ns < PATIENCE_NS ? half_ns : PATIENCE_NS));
}

static int watch(const char *device, struct top_pace *pace, struct top_nodes *nodes)
{
	struct top_sample before, now;
	bool more = true;
	int ret;

	ret = top_sample_take(SYSFS_CLASS, device, NULL, &before);
	/* So that there are rates the first time. */
	if (!ret)
		ret = read_pages(pace, nodes);
	while (!ret && more && top_next(pace)) {
		ret = read_pages(pace, nodes);
		if (ret || top_stopped())
			break;
		ret = top_sample_take(SYSFS_CLASS, device, &before, &now);
		if (ret)
			break;
		more = show(device, pace, &now, &before, nodes);
		top_sample_free(&before);
		before = now;
	}
	top_sample_free(&before);
	return ret;
}

int top_cluster(const char *device, struct top_pace *pace)
{
	struct top_nodes nodes;
	struct tow_device *dev;
	int ret;

	ret = tow_device_open(device, 0, &dev);
	if (ret) {
		complain(device, ret);
		return ret;
	}
	ret = top_nodes_open(&nodes, dev);
	if (!ret)
		ret = watch(device, pace, &nodes);
	top_nodes_close(&nodes);
	tow_device_close(dev);
	/* Ended while it asked: that is no failure. */
	if (ret == -EINTR && top_stopped())
		ret = 0;
	if (ret)
		complain(device, top_gone(ret));
	return ret;
}

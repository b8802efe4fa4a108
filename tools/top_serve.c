// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * towline top --serve: this node's statistics page, renewed every interval.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "top_page.h"

void top_report_fill(struct top_report *report, const char *device,
		     const struct top_sample *sample, uint64_t sequence, uint64_t interval_ns)
{
	memset(report, 0, sizeof(*report));
	report->sequence = sequence;
	report->time_ns = sample->time_ns;
	report->interval_ms = interval_ns / 1000000;
	memcpy(report->incarnation, sample->incarnation, sizeof(report->incarnation));
	snprintf(report->device, sizeof(report->device), "%s", device);
	if (gethostname(report->node, sizeof(report->node) - 1))
		report->node[0] = '\0';
	memcpy(report->counts, sample->counts, sizeof(report->counts));
}

/* Says that it is there. */
static void say_ready(const char *device, const struct top_pace *pace)
{
	struct json_object *object;

	if (!pace->json) {
		printf("%s: peers can see this node; end it with a signal (control-C)\n", device);
		fflush(stdout);
		return;
	}
	object = json_object_new_object();
	json_object_object_add(object, "device", json_object_new_string(device));
	json_object_object_add(object, "name", json_object_new_string(TOP_PAGE_NAME));
	json_object_object_add(object, "bytes", json_object_new_int(TOP_PAGE_BYTES));
	puts(json_object_to_json_string_ext(object, JSON_C_TO_STRING_PLAIN));
	fflush(stdout);
	json_object_put(object);
}

/* Take the counts and write them: 0, with @sample renewed, or a negative errno. */
static int renew(const char *device, struct top_pace *pace, void *page,
		 struct top_sample *sample)
{
	bool first = !pace->shown;
	struct top_report report;
	struct top_sample now;
	int ret;

	ret = top_sample_take(SYSFS_CLASS, device, first ? NULL : sample, &now);
	if (ret)
		return ret;
	top_sample_free(sample);
	*sample = now;
	top_report_fill(&report, device, sample, ++pace->shown, pace->interval_ns);
	top_page_write(page, &report);
	return 0;
}

static int serve(const char *device, struct top_pace *pace, struct tow_region *region, void *page)
{
	struct top_sample sample = { 0 };
	struct tow_exported *exported;
	int ret, ended;

	/* First the page, then its name: nobody finds it empty. */
	ret = renew(device, pace, page, &sample);
	if (ret)
		return ret;
	ret = tow_export(region, 0, TOP_PAGE_BYTES, TOP_PAGE_NAME, TOW_RIGHT_READ, &exported);
	if (ret)
		goto out;
	say_ready(device, pace);
	while (!ret && pace->shown != pace->count && top_next(pace))
		ret = renew(device, pace, page, &sample);
	ret = ret ? top_gone(ret) : 0;
	ended = tow_unexport(exported);
	if (!ret)
		ret = ended;
out:
	top_sample_free(&sample);
	return ret;
}

static int serve_on(const char *device, struct top_pace *pace, struct tow_device *dev)
{
	struct tow_region *region;
	void *page;
	int ret;

	ret = tow_region_create(dev, TOP_PAGE_BYTES, NULL, &region);
	if (ret)
		return ret;
	ret = tow_region_map(region, 0, 0, PROT_READ | PROT_WRITE, &page);
	if (!ret)
		ret = serve(device, pace, region, page);
	tow_region_destroy(region);
	return ret;
}

int top_serve(const char *device, struct top_pace *pace)
{
	struct tow_device *dev;
	int ret;

	ret = tow_device_open(device, 0, &dev);
	if (!ret) {
		ret = serve_on(device, pace, dev);
		tow_device_close(dev);
	}
	if (ret == -EEXIST)
		fprintf(stderr, "towline: %s: somebody serves already\n", device);
	else if (ret)
		complain(device, ret);
	return ret;
}

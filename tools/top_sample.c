// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * A device's counts at one moment, from its files in sysfs, and how fast they go up.
 *
 * Files are read one after the other, so what they say is of about one moment.  Peers
 * come and go in between: one whose files are gone is left out, one that was not there
 * before has done all that it did in the meantime.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "top.h"

#define STATS "stats/"

/* Those that have no file are of the peers. */
static const struct {
	const char *key;
	const char *file;
} counted[TOP_COUNTS] = {
	[TOP_POOL_BYTES] = { "pool_bytes", "pool_bytes" },
	[TOP_POOL_USED_BYTES] = { "pool_used_bytes", "pool_used_bytes" },
	[TOP_MR_USED] = { "mr_used", "mr_used" },
	[TOP_REGIONS] = { "regions", STATS "regions" },
	[TOP_EXPORTS] = { "exports", STATS "exports" },
	[TOP_GRANTS] = { "grants", STATS "grants" },
	[TOP_REMOTES] = { "remotes", STATS "remotes" },
	[TOP_QUEUES] = { "queues", STATS "queues" },
	[TOP_PEERS] = { "peers", STATS "peers" },
	[TOP_SESSIONS] = { "sessions", STATS "sessions" },
	[TOP_NOTIFICATIONS] = { "notifications", STATS "notifications" },
	[TOP_NOTIFICATIONS_SENT] = { "notifications_sent", STATS "notifications_sent" },
	[TOP_PEERS_READY] = { "peers_ready", NULL },
	[TOP_OPERATIONS] = { "operations", NULL },
	[TOP_BYTES_WRITTEN] = { "bytes_written", NULL },
	[TOP_BYTES_READ] = { "bytes_read", NULL },
};

/* ---- one peer ---- */

/* A word of at most @room characters; "" if it cannot be read. */
static bool peer_word(const char *class_dir, const char *device, const char *folder,
		      const char *name, char *word, size_t room)
{
	char file[ADDRESS_TEXT + 64], text[SYSFS_TEXT] = "";
	int ret;

	snprintf(file, sizeof(file), "%s/%s", folder, name);
	ret = sysfs_read(class_dir, device, file, text);
	snprintf(word, room, "%.*s", (int)room - 1, text);
	return !ret;
}

static uint64_t peer_count(const char *class_dir, const char *device, const char *folder,
			   const char *name)
{
	char text[SYSFS_TEXT];
	uint64_t count;

	if (!peer_word(class_dir, device, folder, name, text, sizeof(text)) ||
	    size_parse(text, &count))
		return TOP_ABSENT;
	return count;
}

/* False: it has gone. */
static bool peer_read(const char *class_dir, const char *device, const char *address,
		      struct top_peer *peer)
{
	char folder[sizeof("peers/") + ADDRESS_TEXT], error[SYSFS_TEXT];

	snprintf(folder, sizeof(folder), "peers/%s", address);
	snprintf(peer->address, sizeof(peer->address), "%.*s", ADDRESS_TEXT - 1, address);
	if (!peer_word(class_dir, device, folder, "state", peer->state, sizeof(peer->state)))
		return false;
	peer_word(class_dir, device, folder, "incarnation", peer->incarnation,
		  sizeof(peer->incarnation));
	peer_word(class_dir, device, folder, "last_error", error, sizeof(error));
	peer->last_error = strtol(error, NULL, 10);
	peer->operations = peer_count(class_dir, device, folder, "operations");
	peer->bytes_written = peer_count(class_dir, device, folder, "bytes_written");
	peer->bytes_read = peer_count(class_dir, device, folder, "bytes_read");
	return true;
}

const struct top_peer *top_peer_before(const struct top_sample *before,
				       const struct top_peer *peer, size_t guess)
{
	const struct top_peer *other;

	/* Lists change little from one to the next: it is found at once, as a rule. */
	for (size_t i = 0; before && i < before->peer_count; i++) {
		other = &before->peers[(guess + i) % before->peer_count];
		if (strcmp(other->incarnation, peer->incarnation) == 0 &&
		    (peer->incarnation[0] || strcmp(other->address, peer->address) == 0))
			return other;
	}
	return NULL;
}

/* ---- all of them ---- */

static int read_peers(const char *class_dir, const char *device, struct top_sample *sample)
{
	size_t i, count;
	char **names;
	int ret;

	ret = sysfs_list(class_dir, device, "peers", &names, &count);
	if (ret)
		/* A module that is too old has no peers. */
		return ret == -EPROTONOSUPPORT ? 0 : ret;
	sample->peers = calloc(count + 1, sizeof(*sample->peers));
	for (i = 0; i < count; i++) {
		if (sample->peers && peer_read(class_dir, device, names[i],
					       &sample->peers[sample->peer_count]))
			sample->peer_count++;
		free(names[i]);
	}
	free(names);
	return sample->peers ? 0 : -ENOMEM;
}

/* How much was done since, which is all of it for a peer that is new. */
static uint64_t more(uint64_t now, uint64_t before)
{
	if (now == TOP_ABSENT)
		return 0;
	return before == TOP_ABSENT || now < before ? now : now - before;
}

static void add_peers(struct top_sample *sample, const struct top_sample *before)
{
	static const struct top_peer nothing = { .operations = 0 };
	const struct top_peer *peer, *then;
	uint64_t *counts = sample->counts;

	counts[TOP_PEERS_READY] = 0;
	counts[TOP_OPERATIONS] = before ? before->counts[TOP_OPERATIONS] : 0;
	counts[TOP_BYTES_WRITTEN] = before ? before->counts[TOP_BYTES_WRITTEN] : 0;
	counts[TOP_BYTES_READ] = before ? before->counts[TOP_BYTES_READ] : 0;
	for (size_t i = 0; i < sample->peer_count; i++) {
		peer = &sample->peers[i];
		then = top_peer_before(before, peer, i);
		if (!then)
			then = &nothing;
		counts[TOP_PEERS_READY] += strcmp(peer->state, "ready") == 0;
		counts[TOP_OPERATIONS] += more(peer->operations, then->operations);
		counts[TOP_BYTES_WRITTEN] += more(peer->bytes_written, then->bytes_written);
		counts[TOP_BYTES_READ] += more(peer->bytes_read, then->bytes_read);
	}
}

static int read_counts(const char *class_dir, const char *device, uint64_t counts[TOP_COUNTS])
{
	char text[SYSFS_TEXT];
	int ret;

	for (size_t i = 0; i < TOP_COUNTS; i++) {
		counts[i] = TOP_ABSENT;
		if (!counted[i].file)
			continue;
		ret = sysfs_read(class_dir, device, counted[i].file, text);
		/* A module that does not count that. */
		if (ret == -EPROTONOSUPPORT)
			continue;
		if (ret)
			return ret;
		if (size_parse(text, &counts[i]))
			counts[i] = TOP_ABSENT;
	}
	return 0;
}

/* Hexadecimal digits; false if they are none. */
static bool read_digits(const char *text, uint8_t *bytes, size_t count)
{
	unsigned int byte;

	for (size_t i = 0; i < count; i++) {
		if (strspn(text + 2 * i, "0123456789abcdef") < 2)
			return false;
		/* NOLINTNEXTLINE(cert-err34-c): these are two digits */
		sscanf(text + 2 * i, "%2x", &byte);
		bytes[i] = (uint8_t)byte;
	}
	return true;
}

int top_sample_take(const char *class_dir, const char *device, const struct top_sample *before,
		    struct top_sample *sample)
{
	char text[SYSFS_TEXT];
	int ret;

	memset(sample, 0, sizeof(*sample));
	sample->time_ns = top_now_ns();
	ret = sysfs_read(class_dir, device, "incarnation", text);
	if (!ret && !read_digits(text, sample->incarnation, sizeof(sample->incarnation)))
		ret = -EPROTONOSUPPORT;
	if (!ret)
		ret = read_counts(class_dir, device, sample->counts);
	if (!ret)
		ret = read_peers(class_dir, device, sample);
	if (ret) {
		top_sample_free(sample);
		return ret;
	}
	/* Another life of the device's counts from the beginning. */
	if (before && memcmp(before->incarnation, sample->incarnation,
			     sizeof(sample->incarnation)) != 0)
		before = NULL;
	add_peers(sample, before);
	return 0;
}

void top_sample_free(struct top_sample *sample)
{
	free(sample->peers);
	sample->peers = NULL;
	sample->peer_count = 0;
}

/* ---- rates ---- */

static double rate_of(uint64_t now, uint64_t before, double seconds)
{
	if (now == TOP_ABSENT || before == TOP_ABSENT || now < before || seconds <= 0)
		return -1;
	return (double)(now - before) / seconds;
}

struct top_rates top_rates_of(const uint64_t counts[TOP_COUNTS], const uint64_t *before,
			      double seconds)
{
	struct top_rates rates = { -1, -1, -1, -1 };

	if (!before)
		return rates;
#define RATE(count) rate_of(counts[count], before[count], seconds)
	rates.operations = RATE(TOP_OPERATIONS);
	rates.bytes_written = RATE(TOP_BYTES_WRITTEN);
	rates.bytes_read = RATE(TOP_BYTES_READ);
	rates.notifications = RATE(TOP_NOTIFICATIONS);
#undef RATE
	return rates;
}

struct top_rates top_peer_rates(const struct top_peer *peer, const struct top_peer *before,
				double seconds)
{
	return (struct top_rates){
		.operations = rate_of(peer->operations, before ? before->operations : 0, seconds),
		.bytes_written = rate_of(peer->bytes_written, before ? before->bytes_written : 0,
					 seconds),
		.bytes_read = rate_of(peer->bytes_read, before ? before->bytes_read : 0, seconds),
		.notifications = -1,
	};
}

/* ---- JSON ---- */

void top_add_counts(struct json_object *object, const uint64_t counts[TOP_COUNTS])
{
	struct json_object *stats = json_object_new_object(), *into;

	for (size_t i = 0; i < TOP_COUNTS; i++) {
		if (counts[i] == TOP_ABSENT)
			continue;
		into = counted[i].file && strncmp(counted[i].file, STATS, strlen(STATS)) == 0 ?
			       stats : object;
		json_object_object_add(into, counted[i].key, json_object_new_uint64(counts[i]));
	}
	json_object_object_add(object, "stats", stats);
}

static void add_rate(struct json_object *object, const char *key, double rate)
{
	char text[64];

	if (rate < 0)
		return;
	snprintf(text, sizeof(text), "%.3f", rate);
	json_object_object_add(object, key, json_object_new_double_s(rate, text));
}

void top_add_rates(struct json_object *object, const struct top_rates *rates)
{
	add_rate(object, "operations_per_s", rates->operations);
	add_rate(object, "bytes_written_per_s", rates->bytes_written);
	add_rate(object, "bytes_read_per_s", rates->bytes_read);
	add_rate(object, "notifications_per_s", rates->notifications);
}

static struct json_object *peer_as_object(const struct top_peer *peer,
					  const struct top_rates *rates)
{
	struct json_object *object = json_object_new_object();

#define ADD(key, value) json_object_object_add(object, key, value)
	ADD("address", json_object_new_string(peer->address));
	ADD("state", json_object_new_string(peer->state));
	ADD("incarnation", json_object_new_string(peer->incarnation));
	ADD("last_error", json_object_new_int64(peer->last_error));
	if (peer->operations != TOP_ABSENT)
		ADD("operations", json_object_new_uint64(peer->operations));
	if (peer->bytes_written != TOP_ABSENT)
		ADD("bytes_written", json_object_new_uint64(peer->bytes_written));
	if (peer->bytes_read != TOP_ABSENT)
		ADD("bytes_read", json_object_new_uint64(peer->bytes_read));
#undef ADD
	top_add_rates(object, rates);
	return object;
}

struct json_object *top_object(const char *device, const struct top_sample *sample,
			       const struct top_sample *before)
{
	struct json_object *object = json_object_new_object(), *peers = json_object_new_array();
	const struct top_peer *peer, *then;
	bool same = !memcmp(sample->incarnation, before->incarnation, sizeof(sample->incarnation));
	double seconds = (double)(sample->time_ns - before->time_ns) / 1e9;
	struct top_rates rates = top_rates_of(sample->counts, same ? before->counts : NULL,
					      seconds);

	json_object_object_add(object, "device", json_object_new_string(device));
	json_object_object_add(object, "incarnation",
			       hex_object(sample->incarnation, sizeof(sample->incarnation)));
	json_object_object_add(object, "seconds", json_object_new_double(seconds));
	top_add_counts(object, sample->counts);
	top_add_rates(object, &rates);
	for (size_t i = 0; i < sample->peer_count; i++) {
		peer = &sample->peers[i];
		then = top_peer_before(before, peer, i);
		/* No time passed for a device that began anew. */
		rates = top_peer_rates(peer, then, same ? seconds : 0);
		json_object_array_add(peers, peer_as_object(peer, &rates));
	}
	json_object_object_add(object, "peers", peers);
	return object;
}

/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * towline top: what is counted (top_sample.c), the pace and the end of it (top_pace.c),
 * and what is shown of it, of this node (top.c) and of several (top_cluster.c).
 */
#ifndef TOW_TOP_H
#define TOW_TOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tool.h"

/* ---- top_sample.c: a device's counts at one moment ---- */

/*
 * What is counted.  The order is that of the statistics page (top_page.h): new ones
 * go to the end.
 */
enum top_count {
	TOP_POOL_BYTES,
	TOP_POOL_USED_BYTES,
	TOP_MR_USED,
	TOP_REGIONS,
	TOP_EXPORTS,
	TOP_GRANTS,
	TOP_REMOTES,
	TOP_QUEUES,
	TOP_PEERS,
	TOP_SESSIONS,
	TOP_NOTIFICATIONS,
	TOP_NOTIFICATIONS_SENT,
	/* The rest is of the peers, added up. */
	TOP_PEERS_READY,
	TOP_OPERATIONS,
	TOP_BYTES_WRITTEN,
	TOP_BYTES_READ,
	TOP_COUNTS
};

/* In place of a count: nobody says. */
#define TOP_ABSENT UINT64_MAX

#define TOP_WORD 32

/* A peer's files; what cannot be read is "" or TOP_ABSENT. */
struct top_peer {
	char address[ADDRESS_TEXT];
	char state[TOP_WORD];
	char incarnation[2 * TOW_INCARNATION_BYTES + 1];
	int64_t last_error;
	uint64_t operations;
	uint64_t bytes_written;
	uint64_t bytes_read;
};

/*
 * @counts of what the peers did never go down: a peer that is forgotten does not take
 * what it counted with it.  They begin with what the peers of the first sample have.
 */
struct top_sample {
	uint64_t time_ns;
	uint8_t incarnation[TOW_INCARNATION_BYTES];
	uint64_t counts[TOP_COUNTS];
	struct top_peer *peers;
	size_t peer_count;
};

/* Per second; negative: not known. */
struct top_rates {
	double operations;
	double bytes_written;
	double bytes_read;
	double notifications;
};

/*
 * Read a device's files, @before being what they were last time, or NULL.  0, with
 * @sample to be given to top_sample_free(); or a negative errno of towline's.
 */
int top_sample_take(const char *class_dir, const char *device, const struct top_sample *before,
		    struct top_sample *sample);

void top_sample_free(struct top_sample *sample);

/* The same peer in an earlier sample, looked for at @guess first; or NULL. */
const struct top_peer *top_peer_before(const struct top_sample *before,
				       const struct top_peer *peer, size_t guess);

/* How fast counts went up in @seconds; not known if @before is NULL. */
struct top_rates top_rates_of(const uint64_t counts[TOP_COUNTS], const uint64_t *before,
			      double seconds);

/* The same of a peer, with all it did as new if there is no @before. */
struct top_rates top_peer_rates(const struct top_peer *peer, const struct top_peer *before,
				double seconds);

/* Add them to @object under the names of their files, those of stats/ in "stats". */
void top_add_counts(struct json_object *object, const uint64_t counts[TOP_COUNTS]);

/* Add those that are known: "operations_per_s" and so on. */
void top_add_rates(struct json_object *object, const struct top_rates *rates);

/* This node's device, and its peers, at one moment; @before as for the rates. */
struct json_object *top_object(const char *device, const struct top_sample *sample,
			       const struct top_sample *before);

/* ---- top_pace.c: one thing after the other, until somebody ends it ---- */

struct top_pace {
	bool json;
	uint64_t interval_ns;
	/* How often; 0: until a signal comes. */
	uint64_t count;
	uint64_t next_ns;
	uint64_t shown;
};

uint64_t top_now_ns(void);

/* From here on signals that end a program end a wait instead. */
void top_begin(struct top_pace *pace);

/* Has such a signal come? */
bool top_stopped(void);

/* Wait for the end of the interval: false if a signal came. */
bool top_next(struct top_pace *pace);

/* What it means that the files of a device that was there cannot be read: an errno. */
int top_gone(int error);

/*
 * Show @answer, as one line of JSON or by @print on an empty screen if there is one,
 * and give it back.  False when that was the last time, or nobody takes it.
 */
bool top_show(struct top_pace *pace, struct json_object *answer,
	      void (*print)(struct json_object *answer));

/* Words for the terminal: "1.5 MiB", "17", and "-" for what is not known. */
const char *top_bytes_words(struct json_object *object, const char *key, char text[SIZE_TEXT]);
const char *top_rate_words(struct json_object *object, const char *key, char text[SIZE_TEXT]);

/* ---- top_serve.c, top_cluster.c: 0 or a negative errno, all of which is said ---- */

int top_serve(const char *device, struct top_pace *pace);
int top_cluster(const char *device, struct top_pace *pace);

/* What this node says of itself on its page; @sequence is of the page. */
struct top_report;
void top_report_fill(struct top_report *report, const char *device,
		     const struct top_sample *sample, uint64_t sequence, uint64_t interval_ns);

#endif /* TOW_TOP_H */

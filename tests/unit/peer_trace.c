// SPDX-License-Identifier: GPL-2.0
/*
 * Do the trace events tow_peer_state tell of a peer whose states follow the
 * module's table?
 *
 *	peer_trace FILE		a trace: exit status 1 if it does not, or if it tells of
 *				nothing at all; tests/lab/peer-states collects it
 *	peer_trace		shows with planted lines what is refused, and that nothing
 *				else is
 *
 * Each change is one line of the table, compiled from the module's own source, and
 * begins where the one before it has ended.  A peer of which nothing is known yet may
 * be in any state; a number that begins from IDLE once more is another life of the
 * device, whose peers are counted from the beginning.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kselftest.h>

#include "kmod/peer/state.h"

#define EVENT		" tow_peer_state: "
#define PEERS_MAX	1024

/* What a trace has told so far. */
struct story {
	struct {
		char device[64];
		unsigned long long peer;
		int state;
	} known[PEERS_MAX];
	int peers;
	unsigned long changes;
	unsigned long wrong;
};

static bool in_table(int from, int to)
{
	for (const struct tow_peer_rule *rule = tow_peer_rules; rule->from >= 0; rule++)
		if (rule->from == from && rule->to == to)
			return true;
	return false;
}

static int *state_of(struct story *story, const char *device, unsigned long long peer, int first)
{
	int i;

	for (i = 0; i < story->peers; i++)
		if (story->known[i].peer == peer && !strcmp(story->known[i].device, device))
			return &story->known[i].state;
	if (i == PEERS_MAX)
		return NULL;
	story->peers++;
	snprintf(story->known[i].device, sizeof(story->known[i].device), "%s", device);
	story->known[i].peer = peer;
	story->known[i].state = first;
	return &story->known[i].state;
}

/* NULL: it may happen; or why not. */
static const char *judge(struct story *story, const char *device, unsigned long long peer,
			 int from, int to)
{
	int *state = state_of(story, device, peer, from);
	int before;

	if (!state)
		return "more peers than there is room for";
	before = *state;
	*state = to;
	if (!in_table(from, to))
		return "not in the table";
	if (before != from && from != TOW_PEER_IDLE)
		return "not the state that it was in";
	return NULL;
}

static void hear(struct story *story, const char *line)
{
	const char *event = strstr(line, EVENT);
	const char *why = "not understood";
	unsigned long long peer;
	char device[64];
	int from, to;

	/* Comments say how many there were; what was thrown away is lost. */
	if (line[0] == '#' || (!event && !strstr(line, "LOST")))
		return;
	story->changes++;
	if (event && sscanf(event + strlen(EVENT), "%63s peer=%llu from=%d to=%d", device, &peer,
			    &from, &to) == 4)
		why = judge(story, device, peer, from, to);
	if (!why)
		return;
	story->wrong++;
	ksft_print_msg("%s: %s%s", why, line, strchr(line, '\n') ? "" : "\n");
}

static int check_file(const char *path)
{
	static struct story story;
	FILE *file = fopen(path, "r");
	char line[512];

	if (!file) {
		ksft_print_msg("%s: cannot be read\n", path);
		return EXIT_FAILURE;
	}
	while (fgets(line, sizeof(line), file))
		hear(&story, line);
	fclose(file);
	ksft_print_msg("%lu changes of the states of %d peers, %lu of them wrong\n",
		       story.changes, story.peers, story.wrong);
	return story.changes && !story.wrong ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- that it refuses what is to be refused -------------------------------------- */

#define LINE(device, peer, from, to) \
	"  kworker/u4:1-55 [001] ..... 17: tow_peer_state: " device " peer=" #peer \
	" from=" #from " to=" #to "\n"

struct planted {
	const char *name;
	unsigned long wrong;
	const char *lines[6];
};

static const struct planted planted[] = {
	{ "a whole life", 0, {
		LINE("rxe0", 1, 0, 1), LINE("rxe0", 1, 1, 2), LINE("rxe0", 1, 2, 3),
		LINE("rxe0", 1, 3, 4), LINE("rxe0", 1, 4, 1), LINE("rxe0", 1, 1, 3) } },
	{ "two peers at once, and one on another device", 0, {
		LINE("rxe0", 1, 0, 1), LINE("rxe0", 2, 0, 1), LINE("rxe0", 1, 1, 3),
		LINE("rxe1", 1, 0, 1), LINE("rxe0", 2, 1, 2), LINE("rxe1", 1, 1, 2) } },
	{ "known from the middle on", 0, { LINE("rxe0", 7, 2, 3), LINE("rxe0", 7, 3, 0) } },
	{ "another life of the device", 0, { LINE("rxe0", 1, 1, 2), LINE("rxe0", 1, 0, 1) } },
	{ "other events, and comments", 0, {
		"# tracer: nop\n", "  x-1 [0] 1: tow_session: rxe0 session=1 stage=\"x\"\n" } },
	{ "READY without CONNECTING", 1, { LINE("rxe0", 1, 0, 2) } },
	{ "DEAD without BROKEN", 1, { LINE("rxe0", 1, 0, 1), LINE("rxe0", 1, 1, 2),
		LINE("rxe0", 1, 2, 4) } },
	{ "no change at all", 1, { LINE("rxe0", 1, 2, 2) } },
	{ "a state that there is not", 2, { LINE("rxe0", 1, 3, 6), LINE("rxe0", 1, -1, 1) } },
	{ "a change that nobody told of", 1, { LINE("rxe0", 1, 1, 2), LINE("rxe0", 1, 3, 0) } },
	{ "a line of another shape", 1, { "  x-1 [0] 1: tow_peer_state: rxe0 peer=1\n" } },
	{ "events that were lost", 1, { LINE("rxe0", 1, 0, 1), "CPU:1 [LOST 3 EVENTS]\n" } },
};

static int show(void)
{
	ksft_print_header();
	ksft_set_plan(sizeof(planted) / sizeof(planted[0]));
	for (size_t i = 0; i < sizeof(planted) / sizeof(planted[0]); i++) {
		static struct story story;

		memset(&story, 0, sizeof(story));
		for (int line = 0; line < 6 && planted[i].lines[line]; line++)
			hear(&story, planted[i].lines[line]);
		ksft_test_result(story.wrong == planted[i].wrong, "%s\n", planted[i].name);
	}
	ksft_finished();
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return check_file(argv[1]);
	show();
}

// SPDX-License-Identifier: GPL-2.0
/*
 * The module's table of a peer's states, compiled from its own source, is the one
 * that spin has looked through, with what another page adds, line by line; and its
 * states have the names that programs and people see.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <kselftest.h>

#include "kmod/peer/state.h"

#define MODEL	"Documentation/models/connect.pml"
#define ADDED	"Documentation/design/failure.md"
#define ABI	"Documentation/ABI/testing/sysfs-class-towline"

#define STATES	(TOW_PEER_RECONNECTING + 1)
#define EVENTS	(TOW_EVENT_KEPT + 1)

static const char *const states[STATES] = {
	[TOW_PEER_IDLE]		= "IDLE",
	[TOW_PEER_CONNECTING]	= "CONNECTING",
	[TOW_PEER_READY]	= "READY",
	[TOW_PEER_BROKEN]	= "BROKEN",
	[TOW_PEER_DEAD]		= "DEAD",
	[TOW_PEER_RECONNECTING]	= "RECONNECTING",
};

static const char *const events[EVENTS] = {
	[TOW_EVENT_CONNECT]	= "CONNECT",
	[TOW_EVENT_ESTABLISHED]	= "ESTABLISHED",
	[TOW_EVENT_BROKE]	= "BROKE",
	[TOW_EVENT_CLOSED]	= "CLOSED",
	[TOW_EVENT_FAILED]	= "FAILED",
	[TOW_EVENT_KEPT]	= "KEPT",
};

/* What the model and the page say, as tow_peer_next_state() would. */
static int model[STATES][EVENTS];

static int index_of(const char *name, const char *const *names, int count)
{
	for (int i = 0; i < count; i++)
		if (!strcmp(names[i], name))
			return i;
	ksft_print_msg("the model knows %s, the module does not\n", name);
	return -1;
}

/* 1: it is one more rule; -1: not understood, or another rule says so. */
static int add_rule(const char *from, const char *event, const char *to)
{
	int f, e, t;

	f = index_of(from, states, STATES);
	e = index_of(event, events, EVENTS);
	t = index_of(to, states, STATES);
	if (f < 0 || e < 0 || t < 0 || model[f][e] >= 0)
		return -1;
	model[f][e] = t;
	return 1;
}

/* One line of the model: 1: a rule; 0: something else; -1: a rule not understood. */
static int read_line(const char *line)
{
	char from[32], event[32], to[32];
	int end = 0;

	if (strncmp(line, "\tT(", 3))
		return 0;
	if (sscanf(line, "\tT(%31[A-Z], %31[A-Z], %31[A-Z])%n", from, event, to, &end) != 3 || !end)
		return -1;
	return add_rule(from, event, to);
}

/* The same of the page: a line of the table whose first column is a state. */
static int read_added(const char *line)
{
	char from[32], event[32], to[32];
	int end = 0;

	if (sscanf(line, "| %31[A-Z] | %31[A-Z]: %*[^|]| %31[A-Z] |%n", from, event, to, &end) != 3 || !end)
		return 0;
	return add_rule(from, event, to);
}

static bool read_rules(const char *path, int (*read)(const char *line))
{
	FILE *file = fopen(path, "r");
	bool good = true;
	int rules = 0;
	char line[512];

	if (!file)
		return false;
	while (fgets(line, sizeof(line), file)) {
		int found = read(line);

		if (found < 0) {
			ksft_print_msg("not understood: %s", line);
			good = false;
		}
		rules += found > 0;
	}
	fclose(file);
	return good && rules > 0;
}

static bool read_model(void)
{
	memset(model, -1, sizeof(model));
	return read_rules(MODEL, read_line) && read_rules(ADDED, read_added);
}

static bool every_pair_agrees(void)
{
	bool good = true;

	for (int state = 0; state < STATES; state++) {
		for (int event = 0; event < EVENTS; event++) {
			int next = tow_peer_next_state(state, event);

			if (next == model[state][event])
				continue;
			ksft_print_msg("%s %s: %d in the module, %d in the model\n", states[state],
				       events[event], next, model[state][event]);
			good = false;
		}
	}
	return good;
}

static bool nothing_else_leads_anywhere(void)
{
	for (int state = -2; state < STATES + 2; state++)
		for (int event = -2; event < EVENTS + 2; event++)
			if ((state < 0 || state >= STATES || event < 0 || event >= EVENTS) &&
			    tow_peer_next_state(state, event) != -1)
				return false;
	return true;
}

/* From IDLE every state can be reached, and from every state READY. */
static bool reachable(int from, int to)
{
	bool reached[STATES] = { false };

	reached[from] = true;
	for (int round = 0; round < STATES; round++)
		for (int state = 0; state < STATES; state++)
			for (int event = 0; reached[state] && event < EVENTS; event++)
				if (tow_peer_next_state(state, event) >= 0)
					reached[tow_peer_next_state(state, event)] = true;
	return reached[to];
}

static bool no_state_is_a_trap(void)
{
	for (int state = 0; state < STATES; state++)
		if (!reachable(TOW_PEER_IDLE, state) || !reachable(state, TOW_PEER_READY))
			return false;
	return true;
}

/* The model's words in small letters. */
static bool names_are_the_states(void)
{
	for (int state = 0; state < STATES; state++) {
		const char *name = tow_peer_state_name(state);

		if (strlen(name) != strlen(states[state]))
			return false;
		for (size_t i = 0; name[i]; i++)
			if (name[i] != states[state][i] - 'A' + 'a')
				return false;
	}
	return !strcmp(tow_peer_state_name(STATES), "unknown") &&
	       !strcmp(tow_peer_state_name(-1), "unknown");
}

/* Each name, in quotes, in what is said of a peer's state in sysfs. */
static bool sysfs_documents_the_names(void)
{
	static char text[256 * 1024];
	FILE *file = fopen(ABI, "r");
	char *start, *end;
	size_t bytes;

	if (!file)
		return false;
	bytes = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[bytes] = '\0';
	start = strstr(text, "/peers/<address>/state\n");
	if (!start)
		return false;
	end = strstr(start, "\nWhat:");
	if (end)
		*end = '\0';
	for (int state = 0; state < STATES; state++) {
		char quoted[32];

		snprintf(quoted, sizeof(quoted), "\"%s\"", tow_peer_state_name(state));
		if (!strstr(start, quoted)) {
			ksft_print_msg("%s is not documented\n", quoted);
			return false;
		}
	}
	return true;
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(6);
	ksft_test_result(read_model(), "the model's table is understood\n");
	ksft_test_result(every_pair_agrees(), "every state and event lead where the model and the page say\n");
	ksft_test_result(nothing_else_leads_anywhere(), "nothing else leads anywhere\n");
	ksft_test_result(no_state_is_a_trap(), "every state is reached, and leads to READY\n");
	ksft_test_result(names_are_the_states(), "the names are the states'\n");
	ksft_test_result(sysfs_documents_the_names(), "sysfs documents them\n");
	ksft_finished();
}

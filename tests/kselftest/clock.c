// SPDX-License-Identifier: GPL-2.0
/*
 * Bounds on time in a guest: what is the host's, and what is not.
 *
 * $TOW_CLOCK_LIMIT_MS: what house/stood-still allows for a chain of pauses, while
 * it has the host take the processors away.
 */
#include <sys/wait.h>

#include "tow_hotplug.h"
#include "tow_rdma.h"

#define PAUSES		20
#define PAUSE_MS	50
#define DEAF		"/sys/kernel/debug/tow_plant/deaf"
#define DEAF_MS		"1500"

static long limit_ms(void)
{
	const char *limit = getenv("TOW_CLOCK_LIMIT_MS");

	return limit ? strtol(limit, NULL, 10) : 20000;
}

/* Each pause ends only when a processor runs again. */
static void chain(void)
{
	/* For who waits for that. */
	puts("# begun");
	fflush(stdout);
	for (int i = 0; i < PAUSES; i++)
		tow_test_sleep_ms(PAUSE_MS);
}

TEST(a_bound)
{
	double begin = tow_clock_begin();

	chain();
	EXPECT_LE(PAUSES * PAUSE_MS / 1e3, tow_test_now() - begin);
	TOW_WITHIN(begin, limit_ms());
}

TEST(patience)
{
	struct tow_patience patience = tow_patience((double)limit_ms() / 1e3);
	pid_t child = fork();
	int status = -1;

	if (!child) {
		chain();
		_exit(0);
	}
	while (!waitpid(child, &status, WNOHANG) && tow_patient(&patience))
		tow_test_sleep_ms(10);
	EXPECT_EQ(0, status);
	kill(child, SIGKILL);
}

/* A processor that hears nothing is the guest's own doing. */
TEST(interrupts_off)
{
	struct tow_judged judged;
	double begin;
	int file;

	ASSERT_EQ(0, tow_module_load("tow_plant", ""));
	file = open(DEAF, O_WRONLY | O_CLOEXEC);
	ASSERT_LE(0, file);
	begin = tow_clock_begin();
	ASSERT_EQ((ssize_t)strlen(DEAF_MS), write(file, DEAF_MS, strlen(DEAF_MS)));
	judged = tow_clock_judge(begin, tow_test_now(), 500);
	close(file);
	EXPECT_EQ(0, tow_module_unload("tow_plant"));
	TH_LOG(TOW_CLOCK_WORDS, TOW_CLOCK_NUMBERS(judged));
	if (judged.verdict == TOW_STOOD_STILL)
		SKIP(return, "stood still: " TOW_CLOCK_WORDS, TOW_CLOCK_NUMBERS(judged));
	EXPECT_EQ(TOW_MISSED, judged.verdict);
}

/* What was over before does not become late by what came then. */
TEST(a_bound_of_then)
{
	double begin = tow_clock_begin(), end = tow_test_now();

	tow_test_sleep_ms(300);
	TOW_WITHIN_AT(begin, end, 200);
}

TEST_HARNESS_MAIN

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Bounds on time, judged with the machine in view: a guest that the host did not let run
 * says nothing about towline.
 *
 *	double begin = tow_clock_begin();
 *	...
 *	TOW_WITHIN(begin, 1000);		it took a second at most
 *
 * A bound is kept, or missed, or the machine stood still: without what the host took
 * meanwhile it would have been kept.  The case then ends as a skip whose reason begins with
 * "stood still: ", and scripts/check repeats the program.  It ends there and then, as by
 * ASSERT_EQ(): where threads run, or something is to be put right, note the moments, and judge
 * last, by TOW_WITHIN_AT(begin, end, 1000).  Where waiting is all there is, a
 * loop with patience needs no repeating: it waits longer by what the host took.
 *
 *	struct tow_patience patience = tow_patience(20);
 *
 *	while (!condition && tow_patient(&patience))
 *		tow_test_sleep_ms(10);
 *
 * The host keeps a record (scripts/lab/towlab/meter.py) and is asked, through the lab's
 * agent, only when a bound was passed: nothing that is measured takes longer by it.  Outside
 * the lab there is nobody to ask, and no excuse; nor is there for what the guest does to
 * itself, such as a long time with interrupts off.
 */
#ifndef TOW_CLOCK_H
#define TOW_CLOCK_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "scripts/lab/guest/frame.h"

/* The host answers at once; what it may take where nobody stands still for ever. */
#define TOW_CLOCK_ASK_MS	10000

enum tow_verdict { TOW_KEPT, TOW_MISSED, TOW_STOOD_STILL };

/* In seconds: what it took, what was allowed, and the most of it that was the host's. */
struct tow_judged {
	double elapsed, limit, host;
	enum tow_verdict verdict;
};

/* Seconds of the machine's own time: until when, and from when on. */
struct tow_patience {
	double begin, seconds, end;
};

static inline double tow_test_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static inline void tow_test_sleep_ms(long ms)
{
	struct timespec pause = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

	nanosleep(&pause, NULL);
}

/* ---- what the host took ----------------------------------------------------------------- */

/* What the host prints, which is one frame, as a number; 0 if nothing comes. */
static inline double tow_clock_answer(int agent)
{
	struct pollfd ready = { .fd = agent, .events = POLLIN };
	struct lab_frame frame;
	char text[64];

	if (poll(&ready, 1, TOW_CLOCK_ASK_MS) != 1 || !lab_read(agent, &frame, sizeof(frame)) ||
	    frame.type != 'O' || frame.len >= sizeof(text) || !lab_read(agent, text, frame.len))
		return 0;
	text[frame.len] = '\0';
	return strtod(text, NULL);
}

/* Seconds, between two moments of the monotonic clock, at most; 0 where nobody can say. */
static inline double tow_clock_host(double begin, double end)
{
	double now = tow_test_now(), took;
	int agent = lab_connect(), bytes;
	char request[128];

	if (agent < 0)
		return 0;
	bytes = snprintf(request, sizeof(request), "ctl%c/%ctook%c%.0f%c%.0f", 0, 0, 0,
			 (now - begin) * 1e3, 0, (now - end) * 1e3);
	lab_send(agent, 'Q', 0, request, (uint32_t)bytes + 1);
	took = tow_clock_answer(agent) / 1e9;
	close(agent);
	return took;
}

/* ---- bounds ------------------------------------------------------------------------------ */

static inline double tow_clock_begin(void)
{
	return tow_test_now();
}

static inline enum tow_verdict tow_clock_verdict(double elapsed, double limit, double host)
{
	if (elapsed <= limit)
		return TOW_KEPT;
	return elapsed - host <= limit ? TOW_STOOD_STILL : TOW_MISSED;
}

/* Something that ended when it did. */
static inline struct tow_judged tow_clock_judge(double begin, double end, double limit_ms)
{
	struct tow_judged judged = { .elapsed = end - begin, .limit = limit_ms / 1e3 };

	if (judged.elapsed > judged.limit)
		judged.host = tow_clock_host(begin, end);
	judged.verdict = tow_clock_verdict(judged.elapsed, judged.limit, judged.host);
	return judged;
}

/* Something that ends now. */
static inline enum tow_verdict tow_clock_end(double begin, double limit_ms)
{
	return tow_clock_judge(begin, tow_test_now(), limit_ms).verdict;
}

/* ---- cases of the harness ---------------------------------------------------------------- */

#define TOW_CLOCK_WORDS		"%.0f ms of %.0f, %.0f of them the host's"
#define TOW_CLOCK_NUMBERS(judged) \
	(judged).elapsed * 1e3, (judged).limit * 1e3, (judged).host * 1e3

/*
 * The case fails and goes on if the bound was missed, with a handler behind it like those of
 * EXPECT_EQ(); it ends if the machine stood still, but does not forget what failed before.
 */
#define TOW_CLOCK_SAY(verdict, words, ...) do { \
	if ((verdict) == TOW_STOOD_STILL && _metadata->exit_code != KSFT_FAIL) \
		SKIP(longjmp(_metadata->env, 1), "stood still: " words, __VA_ARGS__); \
	if ((verdict) != TOW_KEPT) { \
		__TH_LOG(words, __VA_ARGS__); \
		_metadata->exit_code = KSFT_FAIL; \
		_metadata->trigger = 1; \
	} \
} while (0)

#define TOW_WITHIN_AT(begin, end, limit_ms) do { \
	struct tow_judged tow_judged_ = tow_clock_judge(begin, end, limit_ms); \
	TOW_CLOCK_SAY(tow_judged_.verdict, TOW_CLOCK_WORDS, TOW_CLOCK_NUMBERS(tow_judged_)); \
} while (0); OPTIONAL_HANDLER(0)

#define TOW_WITHIN(begin, limit_ms) TOW_WITHIN_AT(begin, tow_test_now(), limit_ms)

/*
 * Was there, since then, what can be seen only where processors run at the same time?  A
 * tenth of the time without one of them is no time to look.
 */
#define TOW_SEEN(seen, begin) do { \
	double tow_elapsed_ = tow_test_now() - (begin), tow_host_ = 0; \
	enum tow_verdict tow_verdict_ = TOW_KEPT; \
	if (!(seen)) { \
		tow_host_ = tow_clock_host(begin, (begin) + tow_elapsed_); \
		tow_verdict_ = tow_clock_verdict(tow_elapsed_, 0.9 * tow_elapsed_, tow_host_); \
	} \
	TOW_CLOCK_SAY(tow_verdict_, "not seen in %.0f ms, %.0f of them the host's", \
		      tow_elapsed_ * 1e3, tow_host_ * 1e3); \
} while (0); OPTIONAL_HANDLER(0)

/* ---- waiting ----------------------------------------------------------------------------- */

static inline struct tow_patience tow_patience(double seconds)
{
	double now = tow_test_now();

	return (struct tow_patience) { .begin = now, .seconds = seconds, .end = now + seconds };
}

/* Is there any left?  The host is asked where there seems to be none. */
static inline bool tow_patient(struct tow_patience *patience)
{
	double now = tow_test_now(), host;

	if (now < patience->end)
		return true;
	host = tow_clock_host(patience->begin, now);
	/* Nobody stood still for longer than it took. */
	if (host > now - patience->begin)
		host = now - patience->begin;
	patience->end = patience->begin + patience->seconds + host;
	return now < patience->end;
}

#endif /* TOW_CLOCK_H */

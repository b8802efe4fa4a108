// SPDX-License-Identifier: GPL-2.0
/*
 * How bounds on time are judged, without a lab: tests/kselftest/tow_clock.h.
 */
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include "tests/kselftest/tow_clock.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#include "kselftest_harness.h"

TEST(kept)
{
	EXPECT_EQ(TOW_KEPT, tow_clock_verdict(0, 1, 0));
	EXPECT_EQ(TOW_KEPT, tow_clock_verdict(1, 1, 0));
	/* However much the host took. */
	EXPECT_EQ(TOW_KEPT, tow_clock_verdict(1, 1, 5));
}

TEST(missed)
{
	EXPECT_EQ(TOW_MISSED, tow_clock_verdict(1.001, 1, 0));
	/* It took some, and would have been late without that. */
	EXPECT_EQ(TOW_MISSED, tow_clock_verdict(3, 1, 1.999));
}

TEST(stood_still)
{
	EXPECT_EQ(TOW_STOOD_STILL, tow_clock_verdict(3, 1, 2.001));
	/* Two of its processors waited at the same time. */
	EXPECT_EQ(TOW_STOOD_STILL, tow_clock_verdict(3, 1, 6));
}

/* Nobody can be asked on the host: what is late was late. */
TEST(no_lab_no_excuse)
{
	double begin = tow_clock_begin();
	struct tow_judged judged = tow_clock_judge(begin - 2, begin, 1000);

	EXPECT_EQ(TOW_MISSED, judged.verdict);
	EXPECT_EQ(0, judged.host);
	EXPECT_LT(fabs(judged.elapsed - 2), 1e-6);
	EXPECT_EQ(TOW_KEPT, tow_clock_end(begin, 60000));
	EXPECT_EQ(TOW_MISSED, tow_clock_end(begin - 61, 60000));
}

TEST(patience_ends)
{
	struct tow_patience patience = tow_patience(0.05);

	EXPECT_TRUE(tow_patient(&patience));
	tow_test_sleep_ms(60);
	EXPECT_FALSE(tow_patient(&patience));
}

/* A case of this program that is late fails, and what is behind goes on. */
TEST(a_late_case_fails)
{
	bool on = false, handled = false;
	int before = _metadata->exit_code;

	TOW_WITHIN(tow_clock_begin() - 2, 1000)
		handled = true;
	on = true;
	EXPECT_TRUE(handled && on);
	EXPECT_EQ(KSFT_FAIL, _metadata->exit_code) {
		return;
	}
	_metadata->exit_code = before;
}

/* The same of what could not be seen. */
TEST(not_seen)
{
	bool handled = false;
	int before = _metadata->exit_code;

	TOW_SEEN(false, tow_clock_begin() - 2)
		handled = true;
	EXPECT_TRUE(handled);
	EXPECT_EQ(KSFT_FAIL, _metadata->exit_code) {
		return;
	}
	_metadata->exit_code = before;
}

TEST(a_case_in_time)
{
	TOW_WITHIN_AT(1, 1.5, 1000);
	TOW_SEEN(true, tow_clock_begin() - 2);
	EXPECT_EQ(KSFT_PASS, _metadata->exit_code);
}

TEST_HARNESS_MAIN

// SPDX-License-Identifier: GPL-2.0
/*
 * The numbers of notifications, from the module's own source: what an immediate says
 * at every count around the places where numbers wrap, and what either side of a
 * window makes of the other's word.
 */
#include <kselftest.h>

#include "tests/unit/tow_kernel.h"
#include "kmod/rma/sequence.h"
#include "uapi/towline.h"

#define WINDOW	TOW_NOTIFY_WINDOW

/* Counts that something wraps around at, or near. */
static const u64 counts[] = {
	0, 1, 2046, 2047, 2048, 4094, 4095, 4096, 4097, 8191, 8192, UINT32_MAX - 1,
	UINT32_MAX, (u64)UINT32_MAX + 1, (u64)UINT32_MAX + 4096, UINT64_MAX - 4097,
};

#define COUNTS	(sizeof(counts) / sizeof(counts[0]))

static bool both_parts_come_back(void)
{
	const u32 slots[] = { 0, 1, 4095, 4096, TOW_SLOTS_MAX - 1 };
	size_t i, j;

	for (i = 0; i < sizeof(slots) / sizeof(slots[0]); i++) {
		for (j = 0; j < COUNTS; j++) {
			if (tow_imm_slot(tow_imm(slots[i], counts[j])) != slots[i])
				return false;
		}
	}
	return tow_imm(TOW_SLOTS_MAX - 1, 4095) == UINT32_MAX && tow_imm(5, 4096) == 5 << 12;
}

/* Whatever slot it is: half of the numbers are ahead, and the others were before. */
static bool half_is_ahead(void)
{
	size_t i;
	u32 by;

	for (i = 0; i < COUNTS; i++) {
		for (by = 0; by < 4096; by++) {
			u32 ahead = tow_imm_ahead(tow_imm(i, counts[i] + by), counts[i]);

			if (ahead != (by < 2048 ? by : 0))
				return false;
		}
	}
	return true;
}

/* One after the other, each is one ahead; a second time it is not. */
static bool each_counts_once(void)
{
	size_t i;
	int step;

	for (i = 0; i < COUNTS; i++) {
		u64 count = counts[i];

		for (step = 0; step < 5000; step++) {
			u32 imm = tow_imm(77, count + 1);

			if (tow_imm_ahead(imm, count) != 1)
				return false;
			count++;
			if (tow_imm_ahead(imm, count))
				return false;
		}
	}
	return true;
}

/* All that a window lets be on its way is understood, however late. */
static bool a_window_is_understood(void)
{
	return WINDOW < 2048 && tow_imm_ahead(tow_imm(3, 4090 + WINDOW), 4090) == WINDOW;
}

static bool the_receiver_counts(void)
{
	u32 told = UINT32_MAX - 10, by;

	for (by = 0; by <= 2 * WINDOW; by++) {
		if (tow_credit_exceeded(told + by, told) != (by > WINDOW) ||
		    tow_credit_due(told + by, told) != (by >= WINDOW / 2))
			return false;
		/* Another queue pair's notification was counted, and told of, first. */
		if (tow_credit_exceeded(told, told + by) || tow_credit_due(told, told + by))
			return false;
	}
	return true;
}

static bool the_sender_believes_what_can_be(void)
{
	u32 before = UINT32_MAX - 5, out, by;

	for (out = 0; out <= WINDOW; out++) {
		for (by = 0; by <= WINDOW + 1; by++) {
			int gain = tow_credit_gain(before + by, before, out);

			if (by && by <= out ? gain != (int)by : gain >= 0)
				return false;
		}
		/* It cannot go back. */
		if (tow_credit_gain(before - 1, before, out) >= 0)
			return false;
	}
	return true;
}

/* Two ends that do as these say: the sender never stops for good, nor is it too much. */
static bool ends_get_on(void)
{
	u32 sent = UINT32_MAX - 1000, arrived = sent, told = sent, dealt = sent, outstanding = 0;
	int step, gain;

	for (step = 0; step < 10000; step++) {
		if (outstanding < WINDOW) {
			sent++;
			outstanding++;
			arrived++;
			if (tow_credit_exceeded(arrived, told))
				return false;
			continue;
		}
		if (!tow_credit_due(arrived, told))
			return false;
		told = arrived;
		gain = tow_credit_gain(told, dealt, outstanding);
		if (gain <= 0)
			return false;
		dealt = told;
		outstanding -= gain;
	}
	return sent == arrived;
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(7);
	ksft_test_result(both_parts_come_back(), "an immediate has a slot and a number\n");
	ksft_test_result(half_is_ahead(), "half of all numbers are ahead\n");
	ksft_test_result(each_counts_once(), "each counts once, one after the other\n");
	ksft_test_result(a_window_is_understood(), "a window of them is understood\n");
	ksft_test_result(the_receiver_counts(), "the receiver knows what is too much\n");
	ksft_test_result(the_sender_believes_what_can_be(),
			 "the sender believes what can be\n");
	ksft_test_result(ends_get_on(), "two ends get on with each other\n");
	ksft_finished();
}

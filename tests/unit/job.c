// SPDX-License-Identifier: GPL-2.0
/*
 * TOW_JOB: 64 hexadecimal digits and nothing else, read as the bytes they are.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <kselftest.h>

#include "internal.h"

#define DIGITS "00112233445566778899aAbBcCdDeEfF0123456789abcdefFEDCBA9876543210"

static const uint8_t digits_key[TOW_JOB_KEY_BYTES] = {
	0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff,
	0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10,
};

static bool reads(const char *text, const uint8_t *want)
{
	uint8_t key[TOW_JOB_KEY_BYTES];

	memset(key, 0x5a, sizeof(key));
	return towi_job_key(text, key) == 0 && memcmp(key, want, sizeof(key)) == 0;
}

/* What was read before the mistake must not lie about, either. */
static bool refuses(const char *text)
{
	static const uint8_t nothing[TOW_JOB_KEY_BYTES];
	uint8_t key[TOW_JOB_KEY_BYTES];
	/* On the heap, so that the sanitizer sees a byte read past the end. */
	char *copy = strdup(text);
	bool refused;

	memset(key, 0x5a, sizeof(key));
	refused = copy && towi_job_key(copy, key) == -EINVAL &&
		  memcmp(key, nothing, sizeof(key)) == 0;
	free(copy);
	return refused;
}

/* Each character that is no digit, at the first, a middle and the last place. */
static bool refuses_other_characters(void)
{
	static const size_t places[] = { 0, 31, 63 };

	for (int c = 1; c < 256; c++) {
		if (strchr("0123456789abcdefABCDEF", c))
			continue;
		for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
			char text[] = DIGITS;

			text[places[i]] = (char)c;
			if (!refuses(text)) {
				ksft_print_msg("character %d at %zu\n", c, places[i]);
				return false;
			}
		}
	}
	return true;
}

static bool refuses_other_lengths(void)
{
	char text[] = DIGITS;

	for (size_t length = 0; length < strlen(DIGITS); length++) {
		memcpy(text, DIGITS, sizeof(text));
		text[length] = '\0';
		if (!refuses(text))
			return false;
	}
	return refuses(DIGITS "0") && refuses(DIGITS "\n") && refuses(DIGITS DIGITS);
}

static int open_in(const char *job)
{
	struct tow_device *dev = NULL;
	int ret;

	if (setenv("TOW_JOB", job, 1))
		ksft_exit_fail_perror("setenv");
	ret = tow_device_open("nosuch0", 0, &dev);
	tow_device_close(dev);
	return ret;
}

int main(void)
{
	uint8_t key[TOW_JOB_KEY_BYTES] = { 0 };
	struct tow_device *dev = (struct tow_device *)key;

	ksft_print_header();
	ksft_set_plan(8);
	ksft_test_result(reads(DIGITS, digits_key), "digits of either case, in order\n");
	ksft_test_result(refuses_other_lengths(), "fewer and more digits are refused\n");
	ksft_test_result(refuses_other_characters(), "anything but digits is refused\n");
	ksft_test_result(refuses("0x" DIGITS) && refuses(" " DIGITS), "nothing before the digits\n");
	ksft_test_result(tow_job_join(NULL, key) == -EINVAL, "join: no device\n");
	ksft_test_result(tow_job_join(dev, NULL) == -EINVAL, "join: no key\n");
	ksft_test_result(open_in("cafe") == -EINVAL, "open: a malformed TOW_JOB is refused\n");
	/* Without the module, or without the device; but the job is fine. */
	ksft_test_result(open_in(DIGITS) != -EINVAL && open_in("") != -EINVAL,
			 "open: a good TOW_JOB, and an empty one, are not\n");
	ksft_finished();
}

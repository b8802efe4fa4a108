// SPDX-License-Identifier: GPL-2.0
/*
 * tow_strerror(): every error has words, no two of towline's own share them,
 * and no value that is no error crashes or is taken for one.
 */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>

#include <kselftest.h>
#include <towline/towline.h>

/* The errors that towline.h documents. */
static const int documented[] = {
	-E2BIG, -EACCES, -EADDRNOTAVAIL, -EAGAIN, -EBADF, -EBADMSG, -EBUSY, -ECANCELED, -ECONNREFUSED,
	-ECONNRESET, -EDQUOT, -EEXIST, -EFAULT, -EHOSTUNREACH, -EINTR, -EINVAL, -EIO,
	-EKEYREJECTED, -ELIBACC, -EMFILE, -EMLINK, -EMSGSIZE, -ENETUNREACH, -ENFILE, -ENODEV, -ENOENT,
	-ENOKEY, -ENOMEM,
	-ENOMEDIUM, -ENOPKG, -ENOSPC, -ENOTCONN, -ENOTUNIQ, -ENXIO, -EOPNOTSUPP, -EOVERFLOW, -EPERM, -EPROTO,
	-EPROTONOSUPPORT, -EPROTOTYPE,
	-ERANGE, -ESHUTDOWN, -ESTALE, -ETIMEDOUT, -EUCLEAN, -EXDEV,
};

static bool documented_are_distinct(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(documented); i++) {
		const char *words = tow_strerror(documented[i]);

		if (!strcmp(words, "unknown error") || !strcmp(words, tow_strerror(0)))
			return false;
		for (size_t j = 0; j < i; j++)
			if (!strcmp(words, tow_strerror(documented[j])))
				return false;
	}
	return true;
}

static bool every_int_has_words(void)
{
	for (int error = -5000; error <= 5000; error++)
		if (!tow_strerror(error) || !*tow_strerror(error))
			return false;
	return tow_strerror(INT_MIN) && tow_strerror(INT_MAX);
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(6);
	ksft_test_result(!strcmp(tow_strerror(0), "success"), "zero is success\n");
	ksft_test_result(documented_are_distinct(), "documented errors have words of their own\n");
	ksft_test_result(every_int_has_words(), "every int has words\n");
	ksft_test_result(!strcmp(tow_strerror(-EPIPE), strerrordesc_np(EPIPE)),
			 "an errno without a meaning of ours keeps the C library's\n");
	ksft_test_result(!strcmp(tow_strerror(EINVAL), "unknown error"),
			 "a positive errno is no result of ours\n");
	ksft_test_result(!strcmp(tow_strerror(INT_MIN), "unknown error") &&
			 !strcmp(tow_strerror(-4095), "unknown error"),
			 "the smallest int and an unused errno are unknown\n");
	ksft_finished();
}

// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Jobs: a key that processes share puts their names into one place.
 *
 * The key is a secret.  It is the kernel's to keep; no copy of it outlives a
 * call here.
 */
#include <errno.h>
#include <string.h>

#include "internal.h"

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

int towi_job_key(const char *text, uint8_t key[TOW_JOB_KEY_BYTES])
{
	size_t i;

	/* Not beyond the first digit that is none: that may be the string's end. */
	for (i = 0; i < (size_t)2 * TOW_JOB_KEY_BYTES; i++) {
		int value = digit(text[i]);

		if (value < 0)
			goto forget;
		key[i / 2] = (uint8_t)(i % 2 ? key[i / 2] << 4 | value : value);
	}
	if (!text[i])
		return 0;
forget:
	explicit_bzero(key, TOW_JOB_KEY_BYTES);
	return -EINVAL;
}

int towi_job_join(const struct tow_device *dev, const uint8_t key[TOW_JOB_KEY_BYTES])
{
	struct tow_join join = { .size = sizeof(join) };
	int ret;

	memcpy(join.job_key, key, sizeof(join.job_key));
	ret = towi_call(dev, TOW_IOCTL_JOIN, &join);
	explicit_bzero(&join, sizeof(join));
	return ret;
}

TOW_PUBLIC int tow_job_join(struct tow_device *dev, const uint8_t key[TOW_JOB_KEY_BYTES])
{
	return dev && key ? towi_job_join(dev, key) : -EINVAL;
}

// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Words for what towline's functions return.
 *
 * An errno has one meaning here, the one that towline gives it; errors that
 * towline has no meaning of its own for keep the C library's words.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include <towline/towline.h>

#include "internal.h"

static const struct {
	int error;
	const char *words;
} meanings[] = {
	{ 0, "success" },
	{ EACCES, "no permission to open the towline device (is this user in the group rdma?)" },
	{ EINVAL, "invalid argument" },
	{ ENODEV, "the RDMA device was removed" },
	{ ENOENT, "no towline device of that name" },
	{ ENOPKG, "the towline kernel module is not loaded" },
	{ ENOTUNIQ, "several towline devices, and none was named (set TOW_DEVICE)" },
	{ ENXIO, "no towline device on this node" },
	{ EOPNOTSUPP, "soft-RoCE works in the initial network namespace only" },
	{ EPERM, "the RDMA device belongs to another network namespace" },
	{ EPROTONOSUPPORT, "the towline kernel module is older than libtowline" },
};

TOW_PUBLIC const char *tow_strerror(int error)
{
	const char *words;
	size_t i;

	for (i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++)
		if (error == -meanings[i].error)
			return meanings[i].words;

	/* INT_MIN has no positive counterpart. */
	words = error < 0 && error >= -4095 ? strerrordesc_np(-error) : NULL;
	return words ? words : "unknown error";
}

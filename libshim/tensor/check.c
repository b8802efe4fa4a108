// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Sums that travel with tensors.
 *
 * CRC32C (RFC 3720, B.4) is ISA-L's, which is loaded by who asks for it: others need not
 * have it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define LIBRARY		"libisal.so.2"
#define FUNCTION	"crc32_iscsi"
/* Its lengths are ints. */
#define AT_ONCE		((uint64_t)1 << 30)

int towi_crc32c_wanted(towi_crc32c **how)
{
	const char *validate = getenv("TOW_VALIDATE");
	void *library;

	*how = NULL;
	if (!validate || !*validate || !strcmp(validate, "0"))
		return 0;
	/* Never closed: it may be somebody else's, too. */
	library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (library)
		*(void **)how = dlsym(library, FUNCTION);
	return *how ? 0 : -ELIBACC;
}

uint32_t towi_crc32c_of(towi_crc32c *how, const void *data, uint64_t bytes)
{
	unsigned char *at = (unsigned char *)data;
	unsigned int sum = ~0U;

	for (; bytes > AT_ONCE; bytes -= AT_ONCE, at += AT_ONCE)
		sum = how(at, (int)AT_ONCE, sum);
	return ~how(at, (int)bytes, sum);
}

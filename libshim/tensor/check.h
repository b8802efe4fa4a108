/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/* Sums that travel with tensors: TOW_VALIDATE. */
#ifndef TOW_CHECK_INSIDE_H
#define TOW_CHECK_INSIDE_H

#include <stddef.h>
#include <stdint.h>

/* ISA-L's crc32_iscsi(). */
typedef unsigned int towi_crc32c(unsigned char *data, int bytes, unsigned int before);

/*
 * How to sum, if TOW_VALIDATE says so, else NULL: 0, or -ELIBACC: ISA-L is not there.
 */
int towi_crc32c_wanted(towi_crc32c **how);

uint32_t towi_crc32c_of(towi_crc32c *how, const void *data, uint64_t bytes);

#endif /* TOW_CHECK_INSIDE_H */

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the kernel's <linux/types.h> has and that of programs has not: for the parts
 * of the module that need nothing else of the kernel.
 */
#ifndef TOW_KERNEL_H
#define TOW_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;

#endif /* TOW_KERNEL_H */

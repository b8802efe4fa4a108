/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Every difference between kernel versions, and nothing else.
 *
 * Differences are probed by what a kernel has, not by its version: vendors
 * carry changes back, and a version says nothing then.
 */
#ifndef TOW_COMPAT_H
#define TOW_COMPAT_H

#include <linux/device/class.h>
#include <linux/stddef.h>
#include <linux/types.h>

/*
 * class.devnode takes a const struct device since 6.2.  Both functions are
 * written; the compiler picks the one that the member's type asks for.
 */
#define TOW_CLASS_DEVNODE(plain, constant)				\
	__builtin_choose_expr(						\
		__builtin_types_compatible_p(				\
			typeof(((struct class *)NULL)->devnode),	\
			char *(*)(struct device *, umode_t *)),		\
		plain, constant)

#endif /* TOW_COMPAT_H */

// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/* What tensors are. */
#include <errno.h>
#include <string.h>

#include "../core/internal.h"
#include "edge.h"

TOW_PUBLIC int tow_tensor_bytes(const struct tow_tensor_type *type, uint64_t *bytes)
{
	uint64_t bits, count = 1;
	bool none = false;

	if (!type || !bytes || type->ndim > TOW_DIMS_MAX || !type->dtype.bits ||
	    !type->dtype.lanes)
		return -EINVAL;
	for (uint32_t i = 0; i < type->ndim; i++) {
		if (type->dims[i] < 0)
			return -EINVAL;
		none |= !type->dims[i];
	}
	/* What is empty is so whatever its other dimensions are. */
	for (uint32_t i = 0; i < type->ndim && !none; i++)
		if (__builtin_mul_overflow(count, (uint64_t)type->dims[i], &count))
			return -EOVERFLOW;
	bits = (uint64_t)type->dtype.bits * type->dtype.lanes;
	if (none)
		count = 0;
	/* So many bits may be more than a number has, where their bytes are not. */
	if (count > ((uint64_t)1 << 62) / ((bits + 7) / 8))
		return -EOVERFLOW;
	*bytes = bits % 8 ? (count / 8) * bits + (count % 8 * bits + 7) / 8 : count * (bits / 8);
	return 0;
}

int towi_type_compare(const struct tow_tensor_type *a, const struct tow_tensor_type *b)
{
	if (memcmp(&a->dtype, &b->dtype, sizeof(a->dtype)))
		return -EPROTOTYPE;
	/* Either may have come from another node. */
	if (a->ndim != b->ndim || a->ndim > TOW_DIMS_MAX ||
	    memcmp(a->dims, b->dims, a->ndim * sizeof(a->dims[0])))
		return -EMSGSIZE;
	return 0;
}

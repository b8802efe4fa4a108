/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * Rendezvous: tensors by key and step, as the receiver asks for them.
 *
 * Requests and replies are messages on the edge's line; each request has one reply, in any order.
 * A request says where the tensor is to go, if the receiver knows from the last one of that key
 * how large it is; then the sender writes it there.  Otherwise, and when that has changed, the
 * reply says what the tensor is, and the receiver asks again.
 *
 * A tensor and its reply go by different channels, so either may be there first.  Each tensor
 * notifies the receiver's slot, NAME/data, after the sender's header and all by one channel, and
 * the reply says which of the slot's numbers says that it is there: nothing else does.  A large one
 * goes by several channels, and notifies a slot that is as wide, NAME/large.
 *
 * The receiver has no more requests without a reply than the sender has room for; what is cancelled
 * is one more.
 */
#ifndef TOW_RENDEZVOUS_INSIDE_H
#define TOW_RENDEZVOUS_INSIDE_H

#include <stddef.h>
#include <string.h>

#include "edge.h"
#include "names.h"

/* The receiver's: as much of the key goes as there is. */
struct towi_request {
	uint32_t tag;				/* the reply's, too */
	uint32_t flags;
	struct towi_place target;
	struct tow_tensor_type type;		/* of what fits there */
	struct towi_name name;			/* last */
};

_Static_assert(offsetof(struct towi_request, name.key) + sizeof(((struct towi_name *)0)->key) ==
	       sizeof(struct towi_request), "the key is at its end");

/* Of what is no request for a tensor. */
#define TOWI_NO_TAG		UINT32_MAX

#define TOWI_REQUEST_TARGET	(1U << 0)
#define TOWI_REQUEST_CANCEL	(1U << 1)	/* the one of that name */

/* The sender's. */
struct towi_reply {
	uint64_t number;			/* of the receiver's slot; 0: no tensor comes */
	uint32_t tag;
	uint32_t flags;
	int32_t status;
	uint32_t crc32c;
	struct tow_tensor_type type;
};

#define TOWI_REPLY_TYPE		(1U << 0)	/* that is what it is: ask again */
#define TOWI_REPLY_CRC32C	(1U << 1)
#define TOWI_REPLY_LARGE	(1U << 2)	/* the number is the other slot's */

/* How many of so many may be without a reply: each may be cancelled, which is one more. */
#define TOWI_LETTERS_OF(requests) (2 * (requests))

static inline bool towi_same_type(const struct tow_tensor_type *one,
				  const struct tow_tensor_type *other)
{
	return !memcmp(&one->dtype, &other->dtype, sizeof(one->dtype)) &&
	       one->ndim == other->ndim &&
	       !memcmp(one->dims, other->dims, one->ndim * sizeof(one->dims[0]));
}

#endif /* TOW_RENDEZVOUS_INSIDE_H */

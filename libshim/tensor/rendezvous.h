/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * Rendezvous: tensors by key and step, as the receiver asks for them.
 *
 * A request is a letter in the sender's range, a reply one in the receiver's; each request has
 * one reply, in any order.  A request says where the tensor is to go, if the receiver knows
 * from the last one of that key how large it is; then the sender writes the reply, and behind it
 * the tensor, which notifies.  Otherwise, and when that has changed, the reply says what the tensor
 * is, and the receiver asks again.
 *
 * Letters are counted, and need no credits: the receiver has no more requests without a reply
 * than there are letters, the sender takes requests in their order, and the receiver replies.
 * So who replies to a request has taken all before it, and who asks again the replies.
 *
 * Requests are notified in their order, and so are replies: all that the sender writes goes by the
 * one channel that its slot is used with.  Whoever has counted N replies has the N first letters,
 * and the tensors that came with them.
 */
#ifndef TOW_RENDEZVOUS_INSIDE_H
#define TOW_RENDEZVOUS_INSIDE_H

#include <string.h>

#include "edge.h"
#include "names.h"

/* The receiver's letter. */
struct towi_request {
	uint64_t number;			/* from 1 */
	uint32_t tag;				/* the reply's, too */
	uint32_t flags;
	struct towi_name name;
	struct towi_place target;
	struct tow_tensor_type type;		/* of what fits there */
};

#define TOWI_REQUEST_BYTES	448U
/* Of what is no request for a tensor. */
#define TOWI_NO_TAG		UINT32_MAX

#define TOWI_REQUEST_TARGET	(1U << 0)
#define TOWI_REQUEST_CANCEL	(1U << 1)	/* the one of that name */

/* The sender's. */
struct towi_reply {
	uint64_t number;			/* from 1 */
	uint32_t tag;
	uint32_t flags;
	int32_t status;
	uint32_t crc32c;
	struct tow_tensor_type type;
};

#define TOWI_REPLY_BYTES	128U
#define TOWI_REPLY_TYPE		(1U << 0)	/* that is what it is: ask again */
#define TOWI_REPLY_CRC32C	(1U << 1)

/* Letters for so many requests: each may be cancelled, which is one more. */
#define TOWI_LETTERS_OF(requests) (2 * (requests))

_Static_assert(sizeof(struct towi_request) <= TOWI_REQUEST_BYTES, "each has its place");
_Static_assert(sizeof(struct towi_reply) <= TOWI_REPLY_BYTES, "each has its place");

static inline bool towi_same_type(const struct tow_tensor_type *one,
				  const struct tow_tensor_type *other)
{
	return !memcmp(&one->dtype, &other->dtype, sizeof(one->dtype)) &&
	       one->ndim == other->ndim &&
	       !memcmp(one->dims, other->dims, one->ndim * sizeof(one->dims[0]));
}

#endif /* TOW_RENDEZVOUS_INSIDE_H */

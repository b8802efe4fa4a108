// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Remote ranges: exports of peers, found by their names.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "internal.h"

/* How long a slot may be taken that this process has just given up, and when to look again. */
#define SOON_US		1000000U
#define AGAIN_US	1000U

struct tow_remote {
	/* First: tow_handle_of() reads it in programs, too. */
	uint64_t handle;
	const struct tow_device *dev;
	uint64_t bytes;
};

_Static_assert(offsetof(struct tow_remote, handle) == 0, "programs read it there");

/*
 * Until somebody exports the name, or the call's time is over.  A slot that was found as a
 * signal came is this process's for a moment longer, and the peer says that somebody has it.
 */
static int resolve(const struct tow_device *dev, struct tow_resolve *call)
{
	uint64_t until = towi_until_ms(call->timeout_ms), soon = 0;
	int ret;

	for (;;) {
		ret = towi_call(dev, TOW_IOCTL_RESOLVE, call);
		if (ret == -EBUSY && towi_left_us(soon))
			usleep(AGAIN_US);
		else if (ret != -EINTR || !towi_goes_on())
			return ret;
		else
			soon = towi_until(SOON_US);
		if (call->timeout_ms)
			call->timeout_ms = towi_left_ms(until);
	}
}

TOW_PUBLIC int tow_resolve(struct tow_peer *peer, const char *name, uint32_t rights,
			   uint32_t timeout_ms, struct tow_remote **remote)
{
	struct tow_resolve call = {
		.size = sizeof(call),
		.rights = rights,
		.timeout_ms = timeout_ms,
	};
	struct tow_remote *made;
	int ret;

	if (!peer || !remote)
		return -EINVAL;
	ret = towi_export_name(name, call.name, &call.name_bytes);
	if (ret)
		return ret;
	made = malloc(sizeof(*made));
	if (!made)
		return -ENOMEM;
	made->dev = towi_peer_device(peer);
	call.peer = towi_peer_number(peer);
	ret = resolve(made->dev, &call);
	if (ret) {
		free(made);
		return ret;
	}
	made->handle = call.handle;
	made->bytes = call.bytes;
	*remote = made;
	return 0;
}

int towi_remote_new(const struct tow_device *dev, uint64_t handle, uint64_t bytes,
		    struct tow_remote **remote)
{
	struct tow_remote *made = malloc(sizeof(*made));

	if (!made)
		return -ENOMEM;
	*made = (struct tow_remote){ .handle = handle, .dev = dev, .bytes = bytes };
	*remote = made;
	return 0;
}

TOW_PUBLIC uint64_t tow_remote_bytes(const struct tow_remote *remote)
{
	return remote->bytes;
}

TOW_PUBLIC int tow_remote_release(struct tow_remote *remote)
{
	struct tow_release call = { .size = sizeof(call) };
	const struct tow_device *dev;

	if (!remote)
		return 0;
	dev = remote->dev;
	call.handle = remote->handle;
	free(remote);
	return towi_call(dev, TOW_IOCTL_RELEASE, &call);
}

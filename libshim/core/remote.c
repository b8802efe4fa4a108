// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Remote ranges: exports of peers, found by their names.
 */
#include <errno.h>
#include <stdlib.h>

#include "internal.h"

struct tow_remote {
	/* First: tow_handle_of() reads it in programs, too. */
	uint64_t handle;
	const struct tow_device *dev;
	uint64_t bytes;
};

_Static_assert(offsetof(struct tow_remote, handle) == 0, "programs read it there");

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
	ret = towi_call(made->dev, TOW_IOCTL_RESOLVE, &call);
	if (ret) {
		free(made);
		return ret;
	}
	made->handle = call.handle;
	made->bytes = call.bytes;
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

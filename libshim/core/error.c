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
	{ E2BIG, "this asks for something newer than the towline that is installed" },
	{ EACCES, "no permission: to open the towline device (is this user in the group rdma? usermod -aG rdma USER, and a new login), to write a read-only region, or beyond the rights of an export or a remote range" },
	{ EADDRNOTAVAIL, "this device has no address that leads there" },
	{ EAGAIN, "not at this moment: the device cannot register memory, the peer is busy, names are not resolved, or nothing has completed; try again" },
	{ EBADF, "not an open descriptor, or no region, remote range or channel of this client" },
	{ EBADMSG, "the file, or the tensor, is not what it should be" },
	{ EBUSY, "taken: the region's owner lives, this client is in another job, somebody else has the slot, or the queue is full" },
	{ ECANCELED, "not begun: what it was to wait for has failed, or its client ended" },
	{ ECONNREFUSED, "no towline listens at that address" },
	{ ECONNRESET, "the connection to the peer ended" },
	{ EDQUOT, "a limit of this client or its user is reached (the kernel log says which)" },
	{ EEXIST, "there is a persistent region, an export or a rank of that name already (two runs of one name? set TOW_SESSION, or another MASTER_PORT)" },
	{ EFAULT, "there is no such memory, or it cannot be written" },
	{ EHOSTUNREACH, "nobody answers at that address" },
	{ EINTR, "a signal came while the call waited, and the program wanted it to end" },
	{ EINVAL, "invalid argument" },
	{ EIO, "the peer's RDMA device refused it, or ours" },
	{ EKEYREJECTED, "the peer's cluster key is another one" },
	{ ELIBACC, "a library that this needs is not installed" },
	{ EMLINK, "there are as many as there can be: collectives of a communicator (TOW_COLLECTIVES_MAX, 4,096), lines of a mailbox" },
	{ EMSGSIZE, "the other end's tensors have another shape, or the message is longer than the room for it, or packets as long as both ports take do not arrive (set mtu)" },
	{ ENETUNREACH, "the network has no route to that address" },
	{ ENODEV, "the RDMA device was removed" },
	{ ENOENT, "no towline device, region, peer, export or host of that name" },
	{ ENOKEY, "a cluster key is missing, here or at the peer (keyctl padd logon towline:cluster @s < KEYFILE; echo towline:cluster > /sys/class/towline/DEVICE/cluster_key); or, in a container, a job's key (set TOW_JOB to 64 hexadecimal digits)" },
	{ ENOMEM, "out of the machine's memory, or of what this process may have or lock of it" },
	{ ENOMEDIUM, "the device has no node in /dev/towline: in a container, give it one (--device /dev/towline/DEVICE); else udev did not make it (udevadm trigger)" },
	{ ENOPKG, "the towline kernel module is not loaded (modprobe towline)" },
	{ ENOSPC, "the device's pool is empty (echo BYTES > /sys/class/towline/DEVICE/pool_bytes), or a limit of the device, or of the peer's, is reached (the kernel log says which)" },
	{ ENOTUNIQ, "several towline devices, and none was named (set TOW_DEVICE)" },
	{ ENOTCONN, "not connected so far" },
	{ ENXIO, "no towline device on this node (rdma link; the kernel log says why one was left alone)" },
	{ EOPNOTSUPP, "not possible with this device or memory: soft-RoCE outside the initial network namespace, memory that cannot be pinned, passed on or mapped, or atomics where there are none" },
	{ EOVERFLOW, "larger than anything can be, or as many things wait as may" },
	{ EPERM, "not for this process: the device is another network namespace's, or another process opened it, or an administrator ended this one's use of it, or it takes CAP_NET_ADMIN" },
	{ EPROTO, "what the peer said makes no sense" },
	{ EPROTONOSUPPORT, "versions do not fit: the towline kernel module is older than libtowline, or the peer's speaks another language" },
	{ EPROTOTYPE, "the other end's tensors have elements of another type" },
	{ ERANGE, "not within the region, or not within the remote range" },
	{ ESHUTDOWN, "not begun: an administrator drains the RDMA device (towline drain)" },
	{ ESTALE, "what was exported is not any more, or the connection to it ended" },
	{ ETIMEDOUT, "nothing came in time: no answer of the peer's, nobody exported the name, or nothing completed" },
	{ EUCLEAN, "something was written before the begin of this memory, or behind its end" },
	{ EXDEV, "the region is another device's, or of an earlier life of this one" },
};

TOW_PUBLIC const char *tow_strerror(int error)
{
	const char *words;
	size_t i;

	for (i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++)
		if (error == -meanings[i].error)
			return meanings[i].words;

	words = towi_is_error(error) ? strerrordesc_np(-error) : NULL;
	return words ? words : "unknown error";
}

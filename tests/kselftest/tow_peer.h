/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Peers, exports and remote ranges by raw calls; the node is its own peer.
 */
#ifndef TOW_PEER_H
#define TOW_PEER_H

#include <arpa/inet.h>
#include <glob.h>
#include <stdbool.h>
#include <stdint.h>
#include "tow_test.h"

#define TOW_WAIT_MS	10000

/* The node's own address in the lab, IPv4-mapped. */
static inline void tow_own_address(__u8 address[TOW_ADDRESS_BYTES])
{
	const char *all = getenv("TOW_LAB_ADDRS");
	struct in_addr in = {};
	char first[64];

	memset(address, 0, TOW_ADDRESS_BYTES);
	snprintf(first, sizeof(first), "%.*s", all ? (int)strcspn(all, ",") : 0, all ? all : "");
	if (inet_pton(AF_INET, first, &in) != 1)
		return;
	address[10] = 0xff;
	address[11] = 0xff;
	memcpy(address + 12, &in, sizeof(in));
}

static inline int tow_connect_self(int fd, __u64 *peer)
{
	struct tow_peer_connect call = { .size = sizeof(call), .timeout_ms = TOW_WAIT_MS };
	int ret;

	tow_own_address(call.address);
	ret = tow_test_ioctl(fd, TOW_IOCTL_PEER_CONNECT, &call);
	*peer = call.peer;
	return ret;
}

/* To be read. */
static inline int tow_publish_part(int fd, __u64 region, const char *name, __u64 offset,
				   __u64 bytes, __u64 *handle)
{
	struct tow_export call = {
		.size = sizeof(call), .region = region, .offset = offset, .bytes = bytes,
		.rights = TOW_RIGHT_READ, .name_bytes = (__u32)strlen(name),
	};
	int ret;

	memcpy(call.name, name, strlen(name));
	ret = tow_test_ioctl(fd, TOW_IOCTL_EXPORT, &call);
	*handle = call.handle;
	return ret;
}

/* From its beginning. */
static inline int tow_publish(int fd, __u64 region, const char *name, __u64 bytes, __u64 *handle)
{
	return tow_publish_part(fd, region, name, 0, bytes, handle);
}

static inline int tow_end_handle(int fd, unsigned long command, __u64 handle)
{
	struct tow_unexport call = { .size = sizeof(call), .handle = handle };

	return tow_test_ioctl(fd, command, &call);
}

static inline int tow_find(int fd, __u64 peer, const char *name, struct tow_resolve *call)
{
	*call = (struct tow_resolve) {
		.size = sizeof(*call), .peer = peer, .rights = TOW_RIGHT_READ,
		.name_bytes = (__u32)strlen(name),
	};
	memcpy(call->name, name, strlen(name));
	return tow_test_ioctl(fd, TOW_IOCTL_RESOLVE, call);
}

/* How many exports a client sees; or a negative errno. */
static inline int tow_count_exports(int fd, __u32 flags)
{
	static struct tow_export_info entries[64];
	struct tow_export_list call = {
		.size = sizeof(call), .flags = flags, .entries = (uintptr_t)entries,
		.entry_size = sizeof(entries[0]), .count = 64,
	};
	int ret = tow_test_ioctl(fd, TOW_IOCTL_EXPORT_LIST, &call);

	return ret ? ret : (int)call.count;
}

static inline int tow_enter_job(int fd, __u8 job)
{
	struct tow_join call = { .size = sizeof(call) };

	memset(call.job_key, job, sizeof(call.job_key));
	return tow_test_ioctl(fd, TOW_IOCTL_JOIN, &call);
}

static inline int tow_disconnect(int fd, __u64 peer)
{
	struct tow_peer_disconnect call = { .size = sizeof(call), .peer = peer };

	return tow_test_ioctl(fd, TOW_IOCTL_PEER_DISCONNECT, &call);
}

/* A peer as PEER_LIST has it: 0, -ENOENT, … */
static inline int tow_peer_look(int client, __u64 peer, struct tow_peer_info *info)
{
	struct tow_peer_info entries[16];
	struct tow_peer_list call = {
		.size = sizeof(call), .entries = (uintptr_t)entries,
		.entry_size = sizeof(entries[0]), .count = 16,
	};
	int ret = tow_test_ioctl(client, TOW_IOCTL_PEER_LIST, &call);
	__u32 i;

	for (i = 0; !ret && i < call.count; i++) {
		if (entries[i].peer != peer)
			continue;
		*info = entries[i];
		return 0;
	}
	return ret ? ret : -ENOENT;
}

/* What was recorded of a peer (its history in sysfs) has this in it. */
static inline bool tow_peer_recorded(const char *text)
{
	bool found = false;
	char line[256];
	glob_t files;
	FILE *file;

	if (glob("/sys/class/towline/*/peers/*/history", 0, NULL, &files))
		return false;
	for (size_t i = 0; i < files.gl_pathc; i++) {
		file = fopen(files.gl_pathv[i], "re");
		while (file && fgets(line, sizeof(line), file))
			found |= strstr(line, " epoch=") && strstr(line, text);
		if (file)
			fclose(file);
	}
	globfree(&files);
	return found;
}

/* Until none that is connected was used for so long: true, or false after a while. */
static inline bool tow_peers_idle(int client, __u64 ms)
{
	struct tow_patience patience = tow_patience(30);
	struct tow_peer_info entries[16];
	bool idle = false;

	while (!idle && tow_patient(&patience)) {
		struct tow_peer_list call = {
			.size = sizeof(call), .entries = (uintptr_t)entries,
			.entry_size = sizeof(entries[0]), .count = 16,
		};

		tow_test_sleep_ms(20);
		idle = !tow_test_ioctl(client, TOW_IOCTL_PEER_LIST, &call);
		for (__u32 i = 0; idle && i < call.count; i++)
			idle = entries[i].state != TOW_PEER_CONNECTING &&
			       (entries[i].state != TOW_PEER_READY || entries[i].idle_ms > ms);
	}
	return idle;
}

#endif /* TOW_PEER_H */

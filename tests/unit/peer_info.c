// SPDX-License-Identifier: GPL-2.0
/* One of many peers is described: the kernel is asked for that one. */
/* build: link -Wl,--wrap=towi_call */
#include <errno.h>
#include <string.h>

#include <kselftest.h>

#include "internal.h"

#define PEERS		10000U
/* Numbers with gaps: every third. */
#define NUMBER(i)	(3ULL * ((i) + 1))

static uint32_t calls, told;
/* Who is connected next. */
static uint64_t next;

int __wrap_towi_call(const struct tow_device *dev, unsigned long command, void *arg);

/* As the kernel lists: in the order of their numbers, those behind the cursor. */
static void list_peers(struct tow_peer_list *list)
{
	struct tow_peer_info *entries = (struct tow_peer_info *)(uintptr_t)list->entries;
	uint32_t room = list->count;

	list->count = 0;
	for (uint32_t i = 0; i < PEERS && list->count < room; i++) {
		if (NUMBER(i) <= list->cursor)
			continue;
		entries[list->count] = (struct tow_peer_info){
			.size = sizeof(*entries), .peer = NUMBER(i), .epoch = i,
		};
		list->cursor = NUMBER(i);
		list->count++;
		told++;
	}
}

int __wrap_towi_call(const struct tow_device *dev, unsigned long command, void *arg)
{
	(void)dev;
	calls++;
	if (command == TOW_IOCTL_PEER_LIST)
		list_peers(arg);
	else if (command == TOW_IOCTL_PEER_CONNECT)
		((struct tow_peer_connect *)arg)->peer = next;
	else
		return -EINVAL;
	return 0;
}

static bool describes(uint64_t number, int want)
{
	struct tow_peer_info info = { .size = sizeof(info) };
	struct tow_device dev = { .fd = -1 };
	struct tow_peer *peer;
	int ret;

	next = number;
	if (tow_peer_connect(&dev, "192.0.2.1", NULL, 0, &peer))
		return false;
	calls = 0;
	told = 0;
	ret = tow_peer_info(peer, &info);
	tow_peer_release(peer);
	if (ret == want && (ret || (info.peer == number && NUMBER(info.epoch) == number)) &&
	    calls == 1 && told <= 1)
		return true;
	ksft_print_msg("%llu: %d, %u calls, %u peers were told\n", (unsigned long long)number, ret,
		       calls, told);
	return false;
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(4);
	ksft_test_result(describes(NUMBER(0), 0), "the first\n");
	ksft_test_result(describes(NUMBER(PEERS - 1), 0), "the last of many\n");
	ksft_test_result(describes(NUMBER(70) + 1, -ENOENT), "one that is gone\n");
	ksft_test_result(describes(NUMBER(PEERS), -ENOENT), "one that was the last\n");
	ksft_finished();
}

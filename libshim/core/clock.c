// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/* Until when to wait. */
#include <time.h>

#include "internal.h"

uint64_t towi_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t towi_until(uint64_t timeout_us)
{
	return timeout_us == TOW_WAIT_FOREVER ? UINT64_MAX : towi_now_ns() / 1000 + timeout_us;
}

uint64_t towi_until_ms(uint32_t timeout_ms)
{
	return timeout_ms == TOW_WAIT_FOREVER ? UINT64_MAX : towi_until(timeout_ms * 1000ULL);
}

uint32_t towi_left_us(uint64_t until)
{
	uint64_t now = towi_now_ns() / 1000, left = until > now ? until - now : 0;

	return left < TOW_WAIT_FOREVER ? (uint32_t)left : TOW_WAIT_FOREVER;
}

uint32_t towi_left_ms(uint64_t until)
{
	uint64_t now = towi_now_ns() / 1000, left = until > now ? (until - now) / 1000 : 0;

	return left < TOW_WAIT_FOREVER - 1 ? (uint32_t)left + 1 : TOW_WAIT_FOREVER;
}

// SPDX-License-Identifier: GPL-2.0
/*
 * However many slabs a region has, who takes them and gives them back keeps nobody from
 * running meanwhile: a real-time thread on the same processor, which wakes up each 200
 * microseconds, is no later with 32,768 slabs than with 2,048.  A device whose
 * registrations hold 16 pages has slabs of 64 KiB, so that many fit into the machine.
 */
#define TOW_ONLY_SOFT_ROCE
#include <pthread.h>
#include <stdatomic.h>
#include <sched.h>
#include "tow_hotplug.h"
#include "tow_identity.h"
#include "tow_region.h"

#define PARAMETER	"/sys/module/rxe_dma/parameters/page_list"
#define PERIOD_NS	200000
#define FEW		2048ULL
#define MANY		32768ULL
#define ROUNDS		8

/* How late the host alone makes it now and then, however it is asked. */
#define NOISE_NS	1000000ULL

struct clock {
	pthread_t thread;
	atomic_bool stop;
	_Atomic uint64_t latest_ns;
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

static void *wake_up(void *arg)
{
	struct clock *clock = arg;

	while (!clock->stop) {
		uint64_t due = now_ns() + PERIOD_NS, late;
		struct timespec at = { (time_t)(due / 1000000000ULL), (long)(due % 1000000000ULL) };

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
		late = now_ns() - due;
		if (late > clock->latest_ns)
			clock->latest_ns = late;
	}
	return NULL;
}

/* On the caller's processor. */
static int clock_start(struct clock *clock)
{
	struct sched_param priority = { .sched_priority = 50 };
	pthread_attr_t attr;
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(0, &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus))
		return -errno;
	pthread_attr_init(&attr);
	pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(&attr, SCHED_FIFO);
	pthread_attr_setschedparam(&attr, &priority);
	return -pthread_create(&clock->thread, &attr, wake_up, clock);
}

FIXTURE(stall)
{
	char name[NAME_MAX + 1];
	char interface[64];
	struct tow_knobs knobs;
	struct clock clock;
	int fd;
};

FIXTURE_SETUP(stall)
{
	if (access(PARAMETER, F_OK))
		SKIP(return, "this device's registrations hold what they hold");
	snprintf(self->name, sizeof(self->name), "%s", tow_test_device());
	snprintf(self->interface, sizeof(self->interface), "%s", tow_link_interface());
	tow_knobs_save(&self->knobs);
	ASSERT_EQ(0, tow_write_file(PARAMETER, "16"));
	ASSERT_TRUE(tow_link_del(self->name));
	ASSERT_TRUE(tow_link_restore(self->name, self->interface));
	self->fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(TOW_SMALL_SLAB, tow_sysfs_get("slab_bytes"));
	ASSERT_EQ(0, tow_pool_fresh(MANY * TOW_SMALL_SLAB));
	ASSERT_EQ(0, clock_start(&self->clock));
}

FIXTURE_TEARDOWN_PARENT(stall)
{
	if (access(PARAMETER, F_OK))
		return;
	EXPECT_EQ(0, tow_sysfs_put("pool_bytes", "0"));
	EXPECT_EQ(0, tow_write_file(PARAMETER, "0"));
	tow_link_del(self->name);
	EXPECT_TRUE(tow_link_restore(self->name, self->interface));
	EXPECT_EQ(0, tow_knobs_restore(&self->knobs));
}

static void take_and_give(struct __test_metadata *_metadata, int fd, uint64_t slabs)
{
	struct tow_region_create made;

	ASSERT_EQ(0, tow_region_create(fd, slabs * TOW_SMALL_SLAB, &made));
	ASSERT_EQ(0, tow_region_end(fd, &made));
	/* All are zeroed: it is taking and giving that is measured. */
	ASSERT_EQ(MANY, tow_sysfs_wait("stats/free_slabs", MANY));
}

/*
 * The least of some rounds: what others of the machine did was not in all of them.  A
 * round is as many slabs in all, however many at a time.
 */
static uint64_t latest_with(struct __test_metadata *_metadata, FIXTURE_DATA(stall) *self,
			    uint64_t slabs)
{
	uint64_t least = UINT64_MAX, done;
	int i;

	for (i = 0; i < ROUNDS; i++) {
		self->clock.latest_ns = 0;
		for (done = 0; done < MANY; done += slabs)
			take_and_give(_metadata, self->fd, slabs);
		if (self->clock.latest_ns < least)
			least = self->clock.latest_ns;
	}
	TH_LOG("%llu slabs at a time: at most %llu us late", (unsigned long long)slabs,
	       (unsigned long long)least / 1000);
	return least;
}

TEST_F_TIMEOUT(stall, no_later_with_many_slabs, 120)
{
	uint64_t few = latest_with(_metadata, self, FEW);
	uint64_t many = latest_with(_metadata, self, MANY);

	EXPECT_GE(2 * few + NOISE_NS, many);
	self->clock.stop = true;
	pthread_join(self->clock.thread, NULL);
}

TEST_HARNESS_MAIN

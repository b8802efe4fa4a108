// SPDX-License-Identifier: GPL-2.0
/*
 * How long a real-time thread waits for its processor while a region of many slabs is
 * made, published, taken back and destroyed: one thread on each processor, woken every
 * 200 microseconds.
 *
 *	slab_delay DEVICE BYTES ROUNDS
 *
 * Prints the longest delay and the 99.9th percentile, in microseconds.
 */
/* build: link -lpthread */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "sample.h"
#include "uapi/towline.h"

#define PERIOD_NS	200000
#define SAMPLES		1000000UL
#define CPUS_MAX	64

struct watch {
	pthread_t thread;
	int cpu;
	unsigned long count;
	double *delay;
};

static atomic_bool over;

static void __attribute__((noreturn)) die(const char *what, int error)
{
	fprintf(stderr, "slab_delay: %s: %s\n", what, strerror(error));
	exit(1);
}

static void *watch(void *arg)
{
	struct watch *watch = arg;
	struct timespec due;

	clock_gettime(CLOCK_MONOTONIC, &due);
	while (!atomic_load(&over) && watch->count < SAMPLES) {
		due.tv_nsec += PERIOD_NS;
		if (due.tv_nsec >= 1000000000) {
			due.tv_nsec -= 1000000000;
			due.tv_sec++;
		}
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
		watch->delay[watch->count++] =
			now_us() - ((double)due.tv_sec * 1e6 + (double)due.tv_nsec / 1e3);
	}
	return NULL;
}

static void watch_begin(struct watch *watch_on, int cpu)
{
	struct sched_param param = { .sched_priority = 50 };
	pthread_attr_t attr;
	cpu_set_t cpus;
	int ret;

	watch_on->cpu = cpu;
	watch_on->delay = calloc(SAMPLES, sizeof(*watch_on->delay));
	if (!watch_on->delay)
		die("memory", ENOMEM);
	/* Its own page faults are no delay of the kernel's. */
	memset(watch_on->delay, 1, SAMPLES * sizeof(*watch_on->delay));
	CPU_ZERO(&cpus);
	CPU_SET((size_t)cpu, &cpus);
	pthread_attr_init(&attr);
	pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(&attr, SCHED_FIFO);
	pthread_attr_setschedparam(&attr, &param);
	pthread_attr_setaffinity_np(&attr, sizeof(cpus), &cpus);
	ret = pthread_create(&watch_on->thread, &attr, watch, watch_on);
	if (ret)
		die("pthread_create", ret);
	pthread_attr_destroy(&attr);
}

static void call(int client, unsigned long cmd, void *arg, const char *what)
{
	if (ioctl(client, cmd, arg))
		die(what, errno);
}

static void once(int client, unsigned long bytes)
{
	struct tow_region_create made = { .size = sizeof(made), .bytes = bytes };
	struct tow_export export = {
		.size = sizeof(export), .bytes = bytes, .rights = TOW_RIGHT_WRITE,
		.name = "delay", .name_bytes = 5,
	};
	struct tow_region_destroy destroy = { .size = sizeof(destroy) };
	struct tow_unexport unexport = { .size = sizeof(unexport) };

	call(client, TOW_IOCTL_REGION_CREATE, &made, "TOW_IOCTL_REGION_CREATE");
	close(made.fd);
	export.region = made.handle;
	call(client, TOW_IOCTL_EXPORT, &export, "TOW_IOCTL_EXPORT");
	unexport.handle = export.handle;
	call(client, TOW_IOCTL_UNEXPORT, &unexport, "TOW_IOCTL_UNEXPORT");
	destroy.handle = made.handle;
	call(client, TOW_IOCTL_REGION_DESTROY, &destroy, "TOW_IOCTL_REGION_DESTROY");
}

static void end(struct watch *watches, int cpus)
{
	double most = 0, late = 0;

	for (int i = 0; i < cpus; i++) {
		struct watch *one = &watches[i];

		pthread_join(one->thread, NULL);
		qsort(one->delay, one->count, sizeof(*one->delay), by_value);
		if (one->count && one->delay[one->count - 1] > most)
			most = one->delay[one->count - 1];
		if (one->count && one->delay[one->count * 999 / 1000] > late)
			late = one->delay[one->count * 999 / 1000];
		free(one->delay);
	}
	printf("max_us %.1f p999_us %.1f\n", most, late);
}

int main(int argc, char **argv)
{
	struct watch watches[CPUS_MAX] = {};
	int cpus = (int)sysconf(_SC_NPROCESSORS_ONLN), client;
	char path[100];

	if (argc != 4 || cpus > CPUS_MAX) {
		fputs("usage: slab_delay DEVICE BYTES ROUNDS\n", stderr);
		return 2;
	}
	snprintf(path, sizeof(path), "/dev/towline/%s", argv[1]);
	client = open(path, O_RDWR | O_CLOEXEC);
	if (client < 0)
		die(path, errno);
	for (int i = 0; i < cpus; i++)
		watch_begin(&watches[i], i);
	for (unsigned long i = strtoul(argv[3], NULL, 10); i; i--)
		once(client, strtoul(argv[2], NULL, 10));
	atomic_store(&over, true);
	end(watches, cpus);
	return 0;
}

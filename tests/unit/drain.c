// SPDX-License-Identifier: GPL-2.0
/*
 * towline drain, over devices that are played here: open(2), access(2) and ioctl(2) are this
 * file's for what is the module's.  tests/lab/drain has a real one.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <kselftest.h>
#include <towline/towline.h>
#include <towline/uapi.h>

#include "tow_says.h"
#include "tow_scratch.h"

#include "tools/commands.h"

#define DEVICES		2
#define PEERS		4
/* How long the end of a connection takes. */
#define PARTING_S	0.5
#define FDS		1024
#define PATH_TEXT	256
#define CLASS		"/sys/class/towline"

static struct played {
	char name[32];		/* of its folder and its node; "": it has none just now */
	char next[32];		/* the one that it gets later */
	bool gone;
	bool refuses;		/* to be drained */
	int client;		/* a process that uses it, or 0 */
	double told[PEERS];	/* when each of its peers was; 0: never */
} played[DEVICES];

static struct played *opened[FDS];
static int asked, begun, rename_at, remove_at;

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static bool is_over(const struct played *device, int peer)
{
	return device->told[peer] > 0 && now() >= device->told[peer] + PARTING_S;
}

/* ---- sysfs ---- */

static void move(struct played *device, const char *name)
{
	char from[PATH_TEXT], to[PATH_TEXT];

	snprintf(from, sizeof(from), "%s/class/%s", scratch, *device->name ? device->name : "../.no");
	snprintf(to, sizeof(to), "%s/class/%s", scratch, *name ? name : "../.no");
	if (rename(from, to))
		ksft_exit_fail_perror(from);
	snprintf(device->name, sizeof(device->name), "%s", name);
}

/* What happens while the devices are drained happens between two questions. */
static void turn(void)
{
	asked++;
	if (asked == rename_at)
		move(&played[0], "");
	if (asked == rename_at + 3 && *played[0].next)
		move(&played[0], played[0].next);
	if (asked == remove_at) {
		move(&played[0], "");
		played[0].gone = true;
	}
}

static void count_sessions(const struct played *device)
{
	char folder[64], text[16];
	int count = 0;

	for (int i = 0; i < PEERS; i++)
		count += !is_over(device, i);
	snprintf(folder, sizeof(folder), "class/%s/stats", device->name);
	snprintf(text, sizeof(text), "%d\n", count);
	write_file(folder, "sessions", text);
}

/* The file that is there for one of the module's. */
static const char *path_of(const char *path, char text[PATH_TEXT])
{
	if (strncmp(path, CLASS, strlen(CLASS)))
		return path;
	snprintf(text, PATH_TEXT, "%s/class%s", scratch, path + strlen(CLASS));
	return text;
}

/* Whose file @folder<its name>@file it is, or NULL. */
static struct played *device_of(const char *path, const char *folder, const char *file)
{
	char text[PATH_TEXT];

	for (int i = 0; i < DEVICES; i++) {
		snprintf(text, sizeof(text), "%s/%s%s", folder, played[i].name, file);
		if (*played[i].name && strcmp(path, text) == 0)
			return &played[i];
	}
	return NULL;
}

static int open_there(const char *path, int flags)
{
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0600);
}

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
int open(const char *path, int flags, ...)
{
	struct played *device = device_of(path, CLASS, "/stats/sessions");
	char text[PATH_TEXT];
	int fd;

	if (device)
		count_sessions(device);
	else if (strstr(path, "/stats/sessions"))
		turn();
	device = device_of(path, CLASS, "/drain");
	if (device && flags & O_WRONLY) {
		begun++;
		if (device->refuses) {
			errno = EPERM;
			return -1;
		}
	}
	device = device_of(path, "/dev/towline", "");
	fd = open_there(device ? "/dev/null" : path_of(path, text), flags);
	if (device && fd >= 0 && fd < FDS)
		opened[fd] = device;
	return fd;
}

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
int access(const char *path, int mode)
{
	char text[PATH_TEXT];

	return (int)syscall(SYS_faccessat, AT_FDCWD, path_of(path, text), mode);
}

/* ---- calls ---- */

static int list_accounts(const struct played *device, struct tow_account_list *call)
{
	struct tow_account_info *info = (void *)(uintptr_t)call->entries;

	turn();
	call->count = device->client && !call->cursor++;
	if (call->count)
		*info = (struct tow_account_info){ .size = sizeof(*info), .pid = device->client };
	return device->gone ? -ENODEV : 0;
}

static int list_peers(const struct played *device, struct tow_peer_list *call)
{
	struct tow_peer_info *info = (void *)(uintptr_t)call->entries;

	call->count = call->cursor ? 0 : PEERS;
	call->cursor = 1;
	for (unsigned int i = 0; i < call->count; i++)
		info[i] = (struct tow_peer_info){
			.size = sizeof(*info), .peer = i,
			.state = is_over(device, (int)i) ? TOW_PEER_IDLE : TOW_PEER_READY,
		};
	return 0;
}

static int part(struct played *device, const struct tow_peer_disconnect *call)
{
	const struct timespec moment = { .tv_nsec = 1000000 };

	if (device->told[call->peer] <= 0)
		device->told[call->peer] = now();
	while (!is_over(device, (int)call->peer))
		if (nanosleep(&moment, NULL))
			return -EINTR;
	return 0;
}

static int answer(struct played *device, unsigned long command, void *arg)
{
	struct tow_query *query = arg;

	if (device->gone)
		return -ENODEV;
	switch (command) {
	case TOW_IOCTL_QUERY:
		query->uapi_version = TOW_UAPI_VERSION;
		snprintf(query->device_name, sizeof(query->device_name), "%s",
			 *device->name ? device->name : device->next);
		return 0;
	case TOW_IOCTL_ACCOUNT_LIST:
		return list_accounts(device, arg);
	case TOW_IOCTL_REGION_LIST:
		((struct tow_region_list *)arg)->count = 0;
		return 0;
	case TOW_IOCTL_PEER_LIST:
		return list_peers(device, arg);
	case TOW_IOCTL_PEER_DISCONNECT:
		return part(device, arg);
	default:
		return -ENOTTY;
	}
}

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
int ioctl(int fd, unsigned long command, ...)
{
	va_list arguments;
	int ret;

	va_start(arguments, command);
	ret = answer(opened[fd], command, va_arg(arguments, void *));
	va_end(arguments);
	if (ret >= 0)
		return ret;
	errno = -ret;
	return -1;
}

/* ---- the tests ---- */

static void begin(void)
{
	char folder[64];

	scratch_remove("class");
	scratch_remove(".no");
	make_folder("class");
	for (int i = 0; i < DEVICES; i++) {
		played[i] = (struct played){ 0 };
		snprintf(played[i].name, sizeof(played[i].name), "rxe%d", i);
		snprintf(folder, sizeof(folder), "class/rxe%d", i);
		make_folder(folder);
		write_file(folder, "drain", "0\n");
		snprintf(folder, sizeof(folder), "class/rxe%d/stats", i);
		make_folder(folder);
	}
	asked = begun = rename_at = remove_at = 0;
}

static bool holds(const char *device, const char *want)
{
	char path[PATH_TEXT], text[8] = "";
	int fd;

	snprintf(path, sizeof(path), "%s/class/%s/drain", scratch, device);
	fd = open_there(path, O_RDONLY);
	if (fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 && strncmp(text, want, 1) == 0) {
		close(fd);
		return true;
	}
	ksft_print_msg("%s: '%s', not '%s'\n", device, text, want);
	close(fd);
	return false;
}

static int drain_both(const void *seconds)
{
	const char *argv[] = { "drain", "--timeout", seconds, "rxe0", "rxe1", NULL };

	return command_drain(5, (char **)argv);
}

static bool drain_says(const char *seconds, int want, const char *words)
{
	return command_says(drain_both, seconds, want, words);
}

static void test_begin(void)
{
	begin();
	played[1].refuses = true;
	ksft_test_result(drain_says("0", 1, "rxe1: draining takes root") && holds("rxe0", "0") &&
			 !asked, "one refuses: none is drained\n");
	begin();
	played[1].refuses = true;
	write_file("class/rxe0", "drain", "1\n");
	ksft_test_result(drain_says("0", 1, "rxe1: draining takes root") && holds("rxe0", "1"),
			 "one refuses: what was drained before is\n");
	begin();
	scratch_remove("class/rxe1");
	ksft_test_result(drain_says("0", 1, "rxe1: no towline device") && holds("rxe0", "0") &&
			 !begun, "one is not there: nothing begins\n");
}

static void test_names(void)
{
	begin();
	played[0] = (struct played){ .name = "rxe0", .next = "rxe0_new", .client = 1 };
	rename_at = 2;
	ksft_test_result(drain_says("1", 1, "rxe0_new: process 1 (") && asked > rename_at + 3 &&
			 holds("rxe0_new", "1"), "renamed: it is the same device\n");
	begin();
	played[0] = (struct played){ .name = "rxe0", .next = "rxe0_new" };
	rename_at = 1;
	ksft_test_result(drain_says("1", 0, "nobody uses these devices") && played[0].told[0] > 0,
			 "renamed: its peers are told\n");
	begin();
	remove_at = 2;
	played[0].client = 1;
	ksft_test_result(drain_says("5", 0, "nobody uses these devices"),
			 "removed: nobody uses it\n");
}

/* All before the first has gone. */
static void test_peers(void)
{
	double first, last;

	begin();
	ksft_test_result(drain_says("0", 0, "nobody uses these devices"), "peers have gone\n");
	first = last = played[0].told[0];
	for (int i = 0; i < DEVICES * PEERS; i++) {
		double told = played[i / PEERS].told[i % PEERS];

		first = told < first ? told : first;
		last = told > last ? told : last;
	}
	ksft_test_result(first > 0 && last < first + PARTING_S, "peers are told together\n");
}

int main(void)
{
	scratch_make();
	ksft_print_header();
	ksft_set_plan(3 + 3 + 2);
	test_begin();
	test_names();
	test_peers();
	ksft_finished();
}

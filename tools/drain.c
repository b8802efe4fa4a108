// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * towline drain: nothing new begins on devices, who uses them is waited for, their
 * peers are told, and what is left is named: then the module can go, or be replaced.
 *
 * A device is used by clients, by regions of which somebody has a descriptor or a
 * mapping, and by those that linger, whose contents would be lost.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "commands.h"
#include "tool.h"

#define TIMEOUT_S 30
#define TIMEOUT_MAX_S 86400

/* How long programs have to end that learn of it by losing their peers, and peers to go. */
#define PARTED_S 5

#define PAUSE_MS 200

/* How long a peer's end is waited for before the next is told. */
#define TELLING_US 1000

/* Open files stay with a device that is renamed; names and nodes do not. */
struct device {
	char name[TOW_DEVICE_NAME_MAX + 1];	/* one that is too long stays so */
	bool before;				/* was it being drained already? */
	struct tow_device *dev;			/* NULL: it is not open */
	int fd;
};

struct options {
	bool undo;
	unsigned int timeout_s;
	struct device *devices;
	size_t count;
	bool named;
};

/* ---- who uses a device ---- */

/* For plain text; a process may call itself anything. */
static struct json_object *command_of(int pid)
{
	char path[32], name[32] = "?";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	file = fopen(path, "re");
	if (file) {
		if (!fgets(name, sizeof(name), file))
			snprintf(name, sizeof(name), "?");
		fclose(file);
	}
	name[strcspn(name, "\n")] = '\0';
	return text_object((const uint8_t *)name, strlen(name));
}

static void add_client(const char *device, const struct tow_account_info *info, const void *arg,
		       struct json_object *users)
{
	struct json_object *user;

	(void)arg;
	/* This program has the device open itself, to ask. */
	if (info->pid == getpid() || info->flags & TOW_ACCOUNT_CLOSED)
		return;
	user = json_object_new_object();
#define ADD(key, value) json_object_object_add(user, key, value)
	ADD("device", json_object_new_string(device));
	ADD("pid", json_object_new_int64(info->pid));
	ADD("command", command_of(info->pid));
	ADD("uid", json_object_new_int64(info->uid));
	ADD("regions", json_object_new_int64(info->regions));
	ADD("exports", json_object_new_int64(info->exports));
	ADD("entries", json_object_new_int64(info->queue_entries));
#undef ADD
	json_object_array_add(users, user);
}

/* Is it a client's, which is named already? */
static bool is_client(struct json_object *users, const char *device, int pid)
{
	struct json_object *user;
	size_t i;

	for (i = 0; i < json_object_array_length(users); i++) {
		user = json_object_array_get_idx(users, i);
		if (pid && json_object_get_int64(json_object_object_get(user, "pid")) == pid &&
		    strcmp(text_of(user, "device"), device) == 0)
			return true;
	}
	return false;
}

static void add_region(const char *device, const struct tow_region_info *info, const void *arg,
		       struct json_object *users)
{
	bool lingers = info->flags & TOW_REGION_LINGERING;
	struct json_object *user;

	(void)arg;
	if (!lingers && (!info->fds || is_client(users, device, info->pid)))
		return;
	user = json_object_new_object();
#define ADD(key, value) json_object_object_add(user, key, value)
	ADD("device", json_object_new_string(device));
	ADD("region", json_object_new_uint64(info->id));
	ADD("name", json_object_new_string(info->name));
	ADD("uid", json_object_new_int64(info->uid));
	ADD("fds", json_object_new_int64(info->fds));
	if (lingers)
		ADD("seconds", json_object_new_int64((info->linger_left_ms + 999) / 1000));
#undef ADD
	json_object_array_add(users, user);
}

static int add_users(const struct device *device, struct json_object *users)
{
	int ret = list_accounts(device->fd, device->name, TOW_LIST_ALL, add_client, NULL, users);

	return ret ? ret : list_regions(device->dev, device->name, add_region, NULL, users);
}

static void print_client(struct json_object *user)
{
	if (strcmp(text_of(user, "pid"), "0") == 0)
		printf("%s: somebody has the file of a process of %s that is not there any more",
		       text_of(user, "device"), user_of(user));
	else
		printf("%s: process %s (%s) of %s", text_of(user, "device"), text_of(user, "pid"),
		       text_of(user, "command"), user_of(user));
	printf(": regions %s, exports %s, queue entries %s\n", text_of(user, "regions"),
	       text_of(user, "exports"), text_of(user, "entries"));
}

static void print_region(struct json_object *user)
{
	printf("%s: region %s \"%s\" of %s", text_of(user, "device"), text_of(user, "region"),
	       text_of(user, "name"), user_of(user));
	if (json_object_object_get(user, "seconds"))
		printf(" lingers for %s s (towline regions -d %s --end %s)",
		       text_of(user, "seconds"), text_of(user, "device"),
		       text_of(user, "region"));
	if (strcmp(text_of(user, "fds"), "0") != 0)
		printf(" has descriptors or mappings: %s", text_of(user, "fds"));
	putchar('\n');
}

static void print_users(struct json_object *users)
{
	struct json_object *user;
	size_t i;

	for (i = 0; i < json_object_array_length(users); i++) {
		user = json_object_array_get_idx(users, i);
		if (json_object_object_get(user, "pid"))
			print_client(user);
		else
			print_region(user);
	}
	fflush(stdout);
}

/* ---- what else there is ---- */

/* Takes its present name; false: it has gone. */
static bool is_there(struct device *device)
{
	struct tow_device_attr attr = { .size = sizeof(attr) };
	int ret = tow_device_query(device->dev, &attr);

	if (!ret)
		snprintf(device->name, sizeof(device->name), "%s", attr.device_name);
	return ret != -ENODEV;
}

/* Connections, those that are being made or end among them. */
static uint64_t sessions_of(struct device *device)
{
	char text[SYSFS_TEXT];
	uint64_t count;

	if (!is_there(device))
		return 0;
	/* Its files are away while it is renamed. */
	if (sysfs_read(SYSFS_CLASS, device->name, "stats/sessions", text) ||
	    size_parse(text, &count))
		return 1;
	return count;
}

/* The others have nothing that would have to end. */
static bool is_connected(const struct tow_peer_info *info)
{
	return info->state != TOW_PEER_IDLE && info->state != TOW_PEER_DEAD;
}

static void interrupt(int signal)
{
	(void)signal;
}

/* Each waits until its connection has ended, which a signal cuts short: the next is told. */
static void disconnect(int fd, const struct tow_peers *list)
{
	const struct sigaction action = { .sa_handler = interrupt };
	struct itimerval every = { { .tv_usec = TELLING_US }, { .tv_usec = TELLING_US } };
	struct tow_peer_info info;
	size_t i;

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
	for (i = 0; i < tow_peer_list_count(list); i++) {
		info.size = sizeof(info);
		if (!tow_peer_list_entry(list, i, &info) && is_connected(&info)) {
			struct tow_peer_disconnect call = {
				.size = sizeof(call), .peer = info.peer,
			};

			/* One that fails is connected still, and seen the next time. */
			call_device(fd, TOW_IOCTL_PEER_DISCONNECT, &call);
		}
	}
	every = (struct itimerval){ 0 };
	setitimer(ITIMER_REAL, &every, NULL);
}

/* Tell all peers that the device goes: 0 or a negative errno. */
static int part(const struct device *device)
{
	struct tow_peers *list;
	int ret;

	ret = tow_peer_list_get(device->dev, 0, &list);
	if (ret)
		return ret;
	disconnect(device->fd, list);
	tow_peer_list_free(list);
	return 0;
}

/* References to the module, which this program has none of now. */
static uint64_t references(void)
{
	char text[SYSFS_TEXT];
	uint64_t count = 0;

	if (sysfs_read("/sys/module", "towline", "refcnt", text) || size_parse(text, &count))
		return 0;
	return count;
}

/* ---- draining ---- */

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void pause_shortly(void)
{
	const struct timespec pause = { .tv_nsec = PAUSE_MS * 1000000L };

	nanosleep(&pause, NULL);
}

/* Who uses the devices; NULL: that cannot be known, and why was said. */
static struct json_object *users_of(const struct options *options)
{
	struct json_object *users = json_object_new_array();
	struct device *device;
	size_t i;
	int ret;

	for (i = 0; i < options->count; i++) {
		device = &options->devices[i];
		ret = is_there(device) ? add_users(device, users) : 0;
		/* Nobody uses a device that has gone meanwhile. */
		if (ret && ret != -ENODEV) {
			complain(device->name, ret);
			json_object_put(users);
			return NULL;
		}
	}
	return users;
}

/* Wait until nobody uses the devices; who does in the end, as users_of(). */
static struct json_object *wait_for_users(const struct options *options, unsigned int seconds)
{
	double end = now() + seconds;
	struct json_object *users;

	for (;;) {
		users = users_of(options);
		if (!users || !json_object_array_length(users) || now() >= end)
			return users;
		json_object_put(users);
		pause_shortly();
	}
}

static uint64_t sessions(const struct options *options)
{
	uint64_t count = 0;
	size_t i;

	for (i = 0; i < options->count; i++)
		count += sessions_of(&options->devices[i]);
	return count;
}

/* Tell all peers, and wait for them together: 0 or a negative errno. */
static int part_all(const struct options *options)
{
	double end = now() + PARTED_S;
	int ret, first_error = 0;
	size_t i;

	do {
		for (i = 0; i < options->count; i++) {
			ret = part(&options->devices[i]);
			if (ret && ret != -ENODEV && !first_error) {
				complain(options->devices[i].name, ret);
				first_error = ret;
			}
		}
		if (!first_error && sessions(options))
			pause_shortly();
	} while (!first_error && sessions(options) && now() < end);
	return first_error;
}

static void close_all(const struct options *options)
{
	struct device *device;
	size_t i;

	for (i = 0; i < options->count; i++) {
		device = &options->devices[i];
		if (device->dev)
			close(device->fd);
		tow_device_close(device->dev);
		device->dev = NULL;
	}
}

/* All but those who have been named: may the module go?  Says why not. */
static bool is_free(const struct options *options)
{
	double end = now() + PARTED_S;
	uint64_t count;

	/* What somebody had may end a moment after him. */
	while ((count = sessions(options)) && now() < end)
		pause_shortly();
	if (count) {
		fprintf(stderr, "towline: %llu connections have not ended (towline peers)\n",
			(unsigned long long)count);
		return false;
	}
	close_all(options);
	while (!options->named && (count = references()) && now() < end)
		pause_shortly();
	if (count)
		fprintf(stderr, "towline: something else uses the module: it has %llu references (fuser -v /dev/towline/*)\n",
			(unsigned long long)count);
	return !count;
}

static int drain(const struct options *options)
{
	struct json_object *users = wait_for_users(options, options->timeout_s);
	bool left = users && json_object_array_length(users);

	if (left) {
		fprintf(stderr, "towline: after %u s there are still:\n", options->timeout_s);
		print_users(users);
	}
	json_object_put(users);
	if (!users || part_all(options))
		return EXIT_FAILURE;
	users = wait_for_users(options, left ? PARTED_S : 0);
	left = users && json_object_array_length(users);
	if (left) {
		fprintf(stderr, "towline: not drained: when their peers had gone there were still:\n");
		print_users(users);
		fprintf(stderr, "towline: have them end (kill PID, towline regions -d DEVICE --end ID), and drain again; or go back (towline drain --undo)\n");
	}
	json_object_put(users);
	if (!users || left || !is_free(options))
		return EXIT_FAILURE;
	printf("Drained: %s\n", options->named ? "nobody uses these devices." :
	       "the module can go (modprobe -r towline).");
	return EXIT_SUCCESS;
}

static int set_drain(const char *device, const char *value)
{
	int ret = sysfs_write(SYSFS_CLASS, device, "drain", value);

	if (ret == -EACCES || ret == -EPERM)
		fprintf(stderr, "towline: %s: draining takes root, with CAP_NET_ADMIN outside any container\n",
			device);
	else if (ret)
		complain(device, ret);
	return ret;
}

static int begin(struct device *device)
{
	int ret = set_drain(device->name, "1");

	if (ret)
		return ret;
	device->fd = open_device(device->name, O_RDWR);
	ret = device->fd < 0 ? device->fd : tow_device_open(device->name, 0, &device->dev);
	if (!ret)
		return 0;
	if (device->fd >= 0)
		close(device->fd);
	complain(device->name, ret);
	if (!device->before)
		set_drain(device->name, "0");
	return ret;
}

/* Are all there?  Says which are not, and notes which are being drained already. */
static bool look_before(struct options *options)
{
	bool there = true;
	struct device *device;
	char text[SYSFS_TEXT];
	size_t i;
	int ret;

	for (i = 0; i < options->count; i++) {
		device = &options->devices[i];
		ret = sysfs_read(SYSFS_CLASS, device->name, "drain", text);
		device->before = !ret && strcmp(text, "0") != 0;
		if (ret) {
			complain(device->name, ret);
			there = false;
		}
	}
	return there;
}

/*
 * On all devices, or on none: programs heed that it begins, and the uevent, so nothing is
 * written before all are known to be there.
 */
static bool begin_all(struct options *options)
{
	size_t i;

	if (!look_before(options))
		return false;
	for (i = 0; i < options->count && !begin(&options->devices[i]); i++)
		;
	if (i == options->count)
		return true;
	while (i--) {
		if (!options->devices[i].before)
			set_drain(options->devices[i].name, "0");
	}
	return false;
}

static int undo_all(const struct options *options)
{
	int status = EXIT_SUCCESS;
	size_t i;

	for (i = 0; i < options->count; i++) {
		if (set_drain(options->devices[i].name, "0"))
			status = EXIT_FAILURE;
	}
	return status;
}

/* ---- the command ---- */

static void add_device(const char *device, void *arg)
{
	struct options *options = arg;
	struct device *devices = reallocarray(options->devices, options->count + 1,
					      sizeof(*devices));

	if (!devices)
		err(EXIT_FAILURE, NULL);
	options->devices = devices;
	devices[options->count] = (struct device){ 0 };
	snprintf(devices[options->count++].name, sizeof(devices->name), "%s", device);
}

static unsigned int parse_seconds(const char *text, struct argp_state *state)
{
	unsigned long seconds;
	char *end;

	errno = 0;
	seconds = strtoul(text, &end, 10);
	if (errno || *end || *text < '0' || *text > '9' || seconds > TIMEOUT_MAX_S)
		argp_error(state, "'%s' is no number of seconds up to %d", text, TIMEOUT_MAX_S);
	return (unsigned int)seconds;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case 'u':
		options->undo = true;
		return 0;
	case 't':
		options->timeout_s = parse_seconds(arg, state);
		return 0;
	case ARGP_KEY_ARG:
		options->named = true;
		add_device(arg, options);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int command_drain(int argc, char **argv)
{
	static const struct argp_option known[] = {
		{ "timeout", 't', "SECONDS", 0, "how long who uses a device is waited for (30)", 0 },
		{ "undo", 'u', NULL, 0, "let things begin again", 0 },
		{ 0 },
	};
	static const struct argp argp = {
		.options = known,
		.parser = parse,
		.args_doc = "[DEVICE...]",
		.doc = "Let nothing new begin on devices, wait for who uses them, and tell their peers.\v"
		       "Exit status: 0: nobody uses them, and without DEVICE modprobe -r towline "
		       "succeeds; 1: something does, and is named.",
	};
	struct options options = { .timeout_s = TIMEOUT_S };
	int status = EXIT_FAILURE;

	if (!argp_parse(&argp, argc, argv, 0, NULL, &options) &&
	    (options.named || !each_device(add_device, &options))) {
		if (options.undo)
			status = undo_all(&options);
		else if (begin_all(&options))
			status = drain(&options);
	}
	close_all(&options);
	free(options.devices);
	return status;
}

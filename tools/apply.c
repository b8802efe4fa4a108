// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * towline apply: the settings that an administrator keeps in /etc/towline.
 *
 * GLOB.conf holds lines "KEY = VALUE" for the devices whose names match GLOB; a key
 * is a file in the device's folder in sysfs.  Files count in the order of their
 * names, lines in the order of the file, and of several with one key the last.  The
 * pool is sized last, as that may take minutes, and the cluster key is taken just
 * before.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apply.h"
#include "commands.h"
#include "tool.h"

#define CONF_DIR "/etc/towline"
#define CONF_SUFFIX ".conf"

#define KEY_TEXT 64
/* A cgroup's path, and a number. */
#define VALUE_TEXT (PATH_MAX + 32)

/* One line, and where it is: "FILE:LINE". */
struct setting {
	char key[KEY_TEXT];
	char value[VALUE_TEXT];
	char where[PATH_MAX + 16];
};

/* What all files say of one device. */
struct settings {
	struct setting *list;
	size_t count;
	bool failed;
};

/* ---- reading ---- */

/* Of "PATH VALUE", as cgroup_bytes_limit has one for each PATH, those before VALUE; else 0. */
static size_t cgroup_bytes(const char *key, const char *value)
{
	return strcmp(key, "cgroup_bytes_limit") == 0 ? strcspn(value, " ") + 1 : 0;
}

/* Is it what a line with this key and value sets? */
static bool is_setting(const struct setting *setting, const char *key, const char *value)
{
	return strcmp(setting->key, key) == 0 &&
	       strncmp(setting->value, value, cgroup_bytes(key, value)) == 0;
}

/* The setting of a line, or room for one more behind the last; NULL: no memory. */
static struct setting *find_setting(struct settings *settings, const char *key, const char *value)
{
	struct setting *list;
	size_t i;

	for (i = 0; i < settings->count; i++) {
		if (is_setting(&settings->list[i], key, value))
			return &settings->list[i];
	}
	list = reallocarray(settings->list, settings->count + 1, sizeof(*list));
	if (!list)
		return NULL;
	settings->list = list;
	list[settings->count] = (struct setting){ 0 };
	snprintf(list[settings->count].key, KEY_TEXT, "%s", key);
	return &list[settings->count++];
}

static void keep(struct settings *settings, const char *key, const char *value, const char *path,
		 unsigned int line)
{
	struct setting *setting = find_setting(settings, key, value);

	if (!setting) {
		fprintf(stderr, "towline: %s\n", strerror(ENOMEM));
		settings->failed = true;
		return;
	}
	snprintf(setting->value, sizeof(setting->value), "%s", value);
	snprintf(setting->where, sizeof(setting->where), "%s:%u", path, line);
}

/* A comment begins a line, or follows a blank.  What is left has no blanks at its ends. */
static char *strip(char *line)
{
	char *end, *start = line + strspn(line, " \t");

	for (end = start; *end && *end != '\n'; end++) {
		if (*end == '#' && (end == start || strchr(" \t", end[-1])))
			break;
	}
	while (end > start && strchr(" \t\r", end[-1]))
		end--;
	*end = '\0';
	return start;
}

static void read_line(struct settings *settings, const char *path, unsigned int number, char *line,
		      size_t length)
{
	/* What follows a NUL would not be seen. */
	bool whole = strlen(line) == length;
	char key[KEY_TEXT];
	int value = 0;

	line = strip(line);
	if (!*line && whole)
		return;
	if (sscanf(line, "%63[a-z0-9_] = %n", key, &value) == 1 && value && line[value] && whole &&
	    strlen(line + value) < VALUE_TEXT) {
		keep(settings, key, line + value, path, number);
		return;
	}
	fprintf(stderr, "towline: %s:%u: this is no KEY = VALUE\n", path, number);
	settings->failed = true;
}

static void read_conf(struct settings *settings, const char *path)
{
	FILE *file = fopen(path, "re");
	unsigned int number = 0;
	char *line = NULL;
	size_t room = 0;
	ssize_t length;

	if (file) {
		while ((length = getline(&line, &room, file)) >= 0)
			read_line(settings, path, ++number, line, (size_t)length);
		free(line);
	}
	if (!file || ferror(file)) {
		fprintf(stderr, "towline: %s: %s\n", path, strerror(errno));
		settings->failed = true;
	}
	if (file)
		fclose(file);
}

static int is_conf(const struct dirent *entry)
{
	size_t length = strlen(entry->d_name), suffix = strlen(CONF_SUFFIX);

	return entry->d_name[0] != '.' && length > suffix &&
	       strcmp(entry->d_name + length - suffix, CONF_SUFFIX) == 0;
}

static bool is_for(const char *name, const char *device)
{
	char glob[NAME_MAX + 1];

	snprintf(glob, sizeof(glob), "%.*s", (int)(strlen(name) - strlen(CONF_SUFFIX)), name);
	return fnmatch(glob, device, 0) == 0;
}

static void read_conf_in(struct settings *settings, const char *conf_dir, const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", conf_dir, name);
	read_conf(settings, path);
}

/* No folder: nothing is to be set. */
static void read_all(struct settings *settings, const char *conf_dir, const char *device)
{
	struct dirent **entries = NULL;
	int i, count = scandir(conf_dir, &entries, is_conf, alphasort);

	if (count < 0 && errno != ENOENT) {
		fprintf(stderr, "towline: %s: %s\n", conf_dir, strerror(errno));
		settings->failed = true;
	}
	for (i = 0; i < count; i++) {
		if (is_for(entries[i]->d_name, device))
			read_conf_in(settings, conf_dir, entries[i]->d_name);
		free(entries[i]);
	}
	free(entries);
}

/* ---- writing ---- */

static const char *reason_of(int error)
{
	switch (error) {
	case -EINVAL:
		return "that is no value of this setting";
	case -ERANGE:
		return "that is too large or too small";
	case -ENOKEY:
		return "no key of type logon and of that description is in the keyrings of this process";
	case -EACCES:
	case -EPERM:
		return "this takes root, with CAP_NET_ADMIN outside any container";
	case -ENOMEM:
		return "the machine has no more memory to give; what could be had is kept";
	case -EAGAIN:
		return "the device is being renamed; apply the settings to its new name";
	case -EPROTONOSUPPORT:
		return "the device has no such setting";
	case -EROFS:
		return "this is not for writing";
	default:
		return tow_strerror(error);
	}
}

static int complain_of(const struct setting *setting, int error)
{
	fprintf(stderr, "towline: %s: %s = %s: %s\n", setting->where, setting->key,
		setting->value, reason_of(error));
	return error;
}

/* Is the file's value what the line says, in whatever words? */
static bool is_so(const char *present, const char *wanted)
{
	uint64_t have, want;

	if (strcmp(present, wanted) == 0)
		return true;
	return !size_parse(present, &have) && !size_parse(wanted, &want) && have == want;
}

/* What the file says of what the line sets: the line's cgroup, or the first line. */
static const char *present_of(char *text, const struct setting *setting)
{
	size_t bytes = cgroup_bytes(setting->key, setting->value);
	char *line;

	while ((line = strsep(&text, "\n"))) {
		if (!bytes)
			return line;
		if (strncmp(line, setting->value, bytes) == 0)
			return line + bytes;
	}
	return "default";
}

static int say(const char *class_dir, const char *device, const struct setting *setting)
{
	size_t bytes = cgroup_bytes(setting->key, setting->value);
	const char *present, *wanted = setting->value + bytes;
	char text[SYSFS_TEXT];
	int ret = bytes > strlen(setting->value) ? -EINVAL :
		  sysfs_read_lines(class_dir, device, setting->key, text);

	if (ret)
		return complain_of(setting, ret);
	present = present_of(text, setting);
	if (is_so(present, wanted))
		printf("%s: %s is %s already (%s)\n", device, setting->key, setting->value,
		       setting->where);
	else
		printf("%s: %s would become %s; it is %s (%s)\n", device, setting->key,
		       setting->value, present, setting->where);
	return 0;
}

/* 0 or a negative errno, about which everything is said. */
static int apply_one(const char *class_dir, const char *device, const struct setting *setting,
		     bool dry_run)
{
	int ret = sysfs_settable(class_dir, device, setting->key);

	if (!ret && dry_run)
		return say(class_dir, device, setting);
	if (!ret)
		ret = sysfs_write(class_dir, device, setting->key, setting->value);
	return ret ? complain_of(setting, ret) : 0;
}

/* In which turn a setting is written. */
static unsigned int turn_of(const struct setting *setting)
{
	if (strcmp(setting->key, "pool_bytes") == 0)
		return 2;
	return strcmp(setting->key, "cluster_key") == 0;
}

/* One that fails keeps none of the others back: most of them are limits. */
static void apply_all(struct settings *settings, const char *class_dir, const char *device,
		      bool dry_run)
{
	size_t i, failed = 0;
	unsigned int turn;

	for (turn = 0; turn <= 2; turn++) {
		for (i = 0; i < settings->count; i++) {
			if (turn_of(&settings->list[i]) == turn &&
			    apply_one(class_dir, device, &settings->list[i], dry_run))
				failed++;
		}
	}
	if (!failed)
		return;
	settings->failed = true;
	fprintf(stderr, "towline: %s: %zu of %zu settings failed; the others %s\n", device, failed,
		settings->count, dry_run ? "would be made" : "are made");
}

int apply_device(const char *conf_dir, const char *class_dir, const char *device, bool dry_run)
{
	struct settings settings = { 0 };
	char text[SYSFS_TEXT];
	int ret;

	ret = sysfs_read(class_dir, device, "incarnation", text);
	if (ret) {
		complain(device, ret);
		return -1;
	}
	read_all(&settings, conf_dir, device);
	apply_all(&settings, class_dir, device, dry_run);
	if (dry_run && !settings.count)
		printf("%s: no file in %s sets anything\n", device, conf_dir);
	free(settings.list);
	return settings.failed ? -1 : 0;
}

/* ---- the command ---- */

struct options {
	bool dry_run;
	bool named;
	bool failed;
};

static void apply_named(const char *device, void *arg)
{
	struct options *options = arg;

	if (apply_device(CONF_DIR, SYSFS_CLASS, device, options->dry_run))
		options->failed = true;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case 'n':
		options->dry_run = true;
		return 0;
	case ARGP_KEY_ARG:
		options->named = true;
		apply_named(arg, options);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int command_apply(int argc, char **argv)
{
	static const struct argp_option known[] = {
		{ "dry-run", 'n', NULL, 0, "say what would be written, and write nothing", 0 },
		{ 0 },
	};
	static const struct argp argp = {
		.options = known,
		.parser = parse,
		.args_doc = "[DEVICE...]",
		.doc = "Give devices the settings that " CONF_DIR "/GLOB" CONF_SUFFIX " has for them.",
	};
	struct options options = { 0 };

	if (argp_parse(&argp, argc, argv, 0, NULL, &options))
		return EXIT_FAILURE;
	if (!options.named && each_device(apply_named, &options))
		options.failed = true;
	return options.failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

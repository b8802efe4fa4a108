// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * The devices' files in sysfs: one value each.
 *
 * A path that is not there has one of three reasons, and each is an error of its
 * own: the module is not loaded, it has no such device, or it is too old to have
 * such a file.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tool.h"

static bool is_name(const char *device)
{
	return *device && strlen(device) < TOW_DEVICE_NAME_MAX && !strchr(device, '/') &&
	       strcmp(device, ".") != 0 && strcmp(device, "..") != 0;
}

static int missing(const char *class_dir, const char *device)
{
	char *folder;
	int ret;

	if (access(class_dir, F_OK))
		return -ENOPKG;
	if (asprintf(&folder, "%s/%s", class_dir, device) < 0)
		return -ENOMEM;
	ret = access(folder, F_OK) ? -ENOENT : -EPROTONOSUPPORT;
	free(folder);
	return ret;
}

/* A file descriptor or a negative errno. */
static int open_file(const char *class_dir, const char *device, const char *file, int flags)
{
	char *path;
	int fd, error;

	if (!is_name(device))
		return -EINVAL;
	if (asprintf(&path, "%s/%s/%s", class_dir, device, file) < 0)
		return -ENOMEM;
	fd = open(path, flags | O_CLOEXEC);
	error = errno;
	free(path);
	if (fd >= 0)
		return fd;
	return error == ENOENT ? missing(class_dir, device) : -error;
}

int sysfs_read_lines(const char *class_dir, const char *device, const char *file,
		     char text[SYSFS_TEXT])
{
	int fd = open_file(class_dir, device, file, O_RDONLY);
	ssize_t length;
	int error;

	if (fd < 0)
		return fd;
	length = read(fd, text, SYSFS_TEXT - 1);
	error = errno;
	close(fd);
	if (length < 0)
		return -error;
	text[length] = '\0';
	return 0;
}

int sysfs_read(const char *class_dir, const char *device, const char *file,
	       char text[SYSFS_TEXT])
{
	int ret = sysfs_read_lines(class_dir, device, file, text);

	if (!ret)
		text[strcspn(text, "\n")] = '\0';
	return ret;
}

int sysfs_write(const char *class_dir, const char *device, const char *file, const char *text)
{
	int fd = open_file(class_dir, device, file, O_WRONLY);
	size_t length = strlen(text);
	ssize_t written;
	int error;

	if (fd < 0)
		return fd;
	/* In one piece, or the kernel would take the rest for another value. */
	written = write(fd, text, length);
	error = errno;
	close(fd);
	if (written < 0)
		return -error;
	return (size_t)written == length ? 0 : -EIO;
}

int sysfs_settable(const char *class_dir, const char *device, const char *file)
{
	struct stat status;
	int error, fd = open_file(class_dir, device, file, O_PATH);

	if (fd < 0)
		return fd;
	error = fstat(fd, &status) ? errno : 0;
	close(fd);
	if (error)
		return -error;
	/* Each device of any class has a file uevent, which is no setting. */
	if (!S_ISREG(status.st_mode) || !(status.st_mode & S_IWUSR) || strcmp(file, "uevent") == 0)
		return -EROFS;
	return 0;
}

/* A number as one, whatever else ("max") as it stands. */
static struct json_object *value_object(const char *text)
{
	uint64_t number;

	if (size_parse(text, &number) || strspn(text, "0123456789") != strlen(text))
		return json_object_new_string(text);
	return json_object_new_uint64(number);
}

static int add_file(const char *class_dir, const char *device, const char *file, const char *key,
		    struct json_object *object)
{
	char text[SYSFS_TEXT];
	int ret = sysfs_read(class_dir, device, file, text);

	if (!ret)
		json_object_object_add(object, key, value_object(text));
	return ret;
}

int sysfs_add(const char *class_dir, const char *device, const char *const *files, size_t count,
	      struct json_object *object)
{
	size_t i;
	int ret = 0;

	for (i = 0; i < count && !ret; i++)
		ret = add_file(class_dir, device, files[i], files[i], object);
	return ret;
}

static int is_shown(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

static int add_entry(const char *class_dir, const char *device, const char *folder,
		     const char *name, struct json_object *object)
{
	char *file;
	int ret;

	if (asprintf(&file, "%s/%s", folder, name) < 0)
		return -ENOMEM;
	ret = add_file(class_dir, device, file, name, object);
	free(file);
	return ret;
}

/* Copies of their names, which are given back: NULL if there is no memory. */
static char **take_names(struct dirent **entries, size_t count)
{
	char **names = calloc(count + 1, sizeof(*names));
	bool whole = names;
	size_t i;

	for (i = 0; i < count; i++) {
		if (names)
			names[i] = strdup(entries[i]->d_name);
		whole = whole && names[i];
		free(entries[i]);
	}
	free(entries);
	if (whole)
		return names;
	for (i = 0; names && i < count; i++)
		free(names[i]);
	free(names);
	return NULL;
}

int sysfs_list(const char *class_dir, const char *device, const char *folder, char ***names,
	       size_t *count)
{
	struct dirent **entries;
	int fd, found, error;

	*names = NULL;
	*count = 0;
	fd = open_file(class_dir, device, folder, O_RDONLY | O_DIRECTORY);
	if (fd < 0)
		return fd;
	found = scandirat(fd, ".", &entries, is_shown, alphasort);
	error = errno;
	close(fd);
	if (found < 0)
		return -error;
	*names = take_names(entries, (size_t)found);
	if (!*names)
		return -ENOMEM;
	*count = (size_t)found;
	return 0;
}

int sysfs_add_folder(const char *class_dir, const char *device, const char *folder,
		     struct json_object *object)
{
	size_t i, count;
	char **names;
	int ret;

	ret = sysfs_list(class_dir, device, folder, &names, &count);
	if (ret)
		return ret;
	for (i = 0; i < count; i++) {
		if (!ret)
			ret = add_entry(class_dir, device, folder, names[i], object);
		free(names[i]);
	}
	free(names);
	return ret;
}

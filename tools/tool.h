/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * What the subcommands share: their common options, going over the devices,
 * words about failures, sizes, and the devices' files in sysfs.
 */
#ifndef TOW_TOOL_H
#define TOW_TOOL_H

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <json-c/json.h>
#include <towline/towline.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define SYSFS_CLASS "/sys/class/towline"

/* ---- devices.c: which devices, and how their answers are shown ---- */

/* The options that all subcommands have. */
struct choice {
	const char *device;
	bool json;
};

/* Their parser, for argp's children; its input is a struct choice. */
extern const struct argp choice_argp;

/*
 * Asks one device and adds what it says to the list @answers: 0 or a negative
 * errno.  Leaves words about failures to its caller.
 */
typedef int ask_function(const char *device, const void *arg, struct json_object *answers);

/*
 * Ask the chosen device, or else all, and say which cannot be asked.  0, or the
 * first failure; the answers of the others are there all the same.
 */
int ask_devices(const struct choice *choice, ask_function *ask, const void *arg,
		struct json_object *answers);

/*
 * The one device that is meant: @asked, else that of TOW_DEVICE, else the only
 * one there is.  0, or a negative errno, about which everything is said.
 */
int choose_one(const char *asked, char name[TOW_DEVICE_NAME_MAX]);

/* Call @visit for each device there is: 0, or a negative errno, about which everything is said. */
int each_device(void (*visit)(const char *device, void *arg), void *arg);

/* Say on standard error what a negative errno of towline's means. */
void complain(const char *device, int error);

/*
 * The end of a subcommand: the list @answers as JSON or, if there is anything in
 * it or nothing went wrong, as @print shows it; they are given back.  Returns the
 * exit status for @ret.
 */
int show_answers(const struct choice *choice, int ret, struct json_object *answers,
		 void (*print)(struct json_object *answers));

/* For @print: a line of words over the columns, then one for each answer. */
void print_rows(struct json_object *answers, void (*print_head)(void),
		void (*print_one)(struct json_object *answer));

/* For @print: one after the other, with an empty line in between. */
void print_apart(struct json_object *answers, void (*print_one)(struct json_object *answer));

void print_json(struct json_object *value);

/* Bytes as hexadecimal digits; at most 64 of them. */
struct json_object *hex_object(const uint8_t *bytes, size_t count);

/* ---- listing.c: subcommands that list what somebody has, and can for all ---- */

/* What is different from one of them to the next. */
struct listing_command {
	const char *doc;
	const char *all;	/* what --all is good for */
	ask_function *ask;	/* made by DEFINE_ASK_LIST() */
	void (*print)(struct json_object *answers);
	/* The following are NULL where there is no --end: */
	const char *end_what;	/* the name of its argument */
	const char *end;	/* what it is good for */
	/* Ends number @number, and adds what became of it: 0 or a negative errno. */
	int (*run_end)(const struct choice *choice, uint64_t number,
		       struct json_object *answers);
	void (*print_end)(struct json_object *answers);
};

/* Parse the options, ask, show: the exit status. */
int run_listing(int argc, char **argv, const struct listing_command *command);

/* Of a listing, or NULL: what the library's calls are to be given. */
uint32_t listing_flags(const void *listing);

/* Words about --all if @error has to do with it; returns @error. */
int say_listing(const void *listing, int error);

/*
 * For calls of a device that the library has no functions for: a descriptor or a negative
 * errno; and 0 or a negative errno.
 */
int open_device(const char *device, int flags);
int call_device(int fd, unsigned long command, void *arg);

/* Adds an account to the answers; @arg is that of ask_accounts(). */
typedef void add_account_function(const char *device, const struct tow_account_info *info,
				  const void *arg, struct json_object *answers);

/* What is charged to this user's clients, or to everybody's: 0 or a negative errno. */
int ask_accounts(const char *device, uint32_t flags, add_account_function *add, const void *arg,
		 struct json_object *answers);

/* The same of a device that is open, and called @device. */
int list_accounts(int fd, const char *device, uint32_t flags, add_account_function *add,
		  const void *arg, struct json_object *answers);

/* The same of a device's regions, everybody's. */
typedef void add_region_function(const char *device, const struct tow_region_info *info,
				 const void *arg, struct json_object *answers);
int list_regions(const struct tow_device *dev, const char *device, add_region_function *add,
		 const void *arg, struct json_object *answers);

/* Words about --end if @error has to do with it; returns @error. */
int say_end(int error);

/*
 * An ask_function ask_KINDs(), over the library's calls tow_KIND_list_*():
 * OBJECT(device, info) makes JSON of a struct tow_KIND_info.
 */
#define DEFINE_ASK_LIST(KIND, OBJECT)							\
static int add_##KIND##s(const char *device, const struct tow_##KIND##s *list,		\
			 struct json_object *answers)					\
{											\
	struct tow_##KIND##_info info;							\
	size_t i;									\
	int ret;									\
											\
	for (i = 0; i < tow_##KIND##_list_count(list); i++) {				\
		info.size = sizeof(info);						\
		ret = tow_##KIND##_list_entry(list, i, &info);				\
		if (ret)								\
			return ret;							\
		json_object_array_add(answers, OBJECT(device, &info));			\
	}										\
	return 0;									\
}											\
											\
static int ask_##KIND##s(const char *device, const void *listing,			\
			 struct json_object *answers)					\
{											\
	struct tow_##KIND##s *list;							\
	struct tow_device *dev;								\
	int ret;									\
											\
	ret = tow_device_open(device, 0, &dev);						\
	if (ret)									\
		return ret;								\
	ret = tow_##KIND##_list_get(dev, listing_flags(listing), &list);		\
	tow_device_close(dev);								\
	if (ret)									\
		return say_listing(listing, ret);					\
	ret = add_##KIND##s(device, list, answers);					\
	tow_##KIND##_list_free(list);							\
	return ret;									\
}

/* ---- sizes.c ---- */

#define SIZE_TEXT 32

/* "64 MiB", "1.5 GiB", "1000 bytes": for people, so not more exact than that. */
const char *size_words(uint64_t bytes, char text[SIZE_TEXT]);

/*
 * "4096", "64m", "2G": 0, -EINVAL when it is no size, or -ERANGE when it is too
 * large for 64 bits.
 */
int size_parse(const char *text, uint64_t *bytes);

/* ---- words.c: what the kernel says in numbers and bytes, and JSON as words ---- */

/* The name of @value; a kernel newer than this program may know more: a number. */
struct json_object *word_object(const char *const *names, size_t count, uint32_t value);

/* The names of the bits that are set, "bit_7" for those without. */
struct json_object *bits_object(const char *const *names, size_t count, uint64_t bits);

#define WORDS_TEXT 80

/* A list of words with commas; "-" for an empty one. */
const char *words_joined(struct json_object *list, char text[WORDS_TEXT]);

/* An IPv6 address, "%", and a number; and its end. */
#define ADDRESS_TEXT 64

/* "192.0.2.1", "fe80::1%2": as the peers' folders in sysfs are called. */
const char *address_words(const uint8_t address[TOW_ADDRESS_BYTES], uint32_t scope_id,
			  char text[ADDRESS_TEXT]);

/*
 * Somebody's bytes as text that is safe to print: what is no UTF-8, and control
 * characters, become U+FFFD.
 */
struct json_object *text_object(const uint8_t *bytes, size_t count);

/* For plain text: what @object has under @key; "?" if this kernel does not say. */
const char *text_of(struct json_object *object, const char *key);

/* The same as a size, but for words ("max"). */
const char *size_of(struct json_object *object, const char *key, char text[SIZE_TEXT]);

/* The user whose number is under "uid": his name, if he has one here. */
const char *user_of(struct json_object *object);

/* ---- sysfs.c ---- */

/* The longest: pool_numa_bytes, where there are many nodes. */
#define SYSFS_TEXT 4096

/* All lines of a device's file: 0 or a negative errno of towline's. */
int sysfs_read_lines(const char *class_dir, const char *device, const char *file,
		     char text[SYSFS_TEXT]);

/* The same of a file with one line, without its end. */
int sysfs_read(const char *class_dir, const char *device, const char *file,
	       char text[SYSFS_TEXT]);

int sysfs_write(const char *class_dir, const char *device, const char *file, const char *text);

/* Is the file a setting?  0; -EROFS: it is not for writing; or as sysfs_read(). */
int sysfs_settable(const char *class_dir, const char *device, const char *file);

/* Add some of a device's files to @object, each under its name. */
int sysfs_add(const char *class_dir, const char *device, const char *const *files, size_t count,
	      struct json_object *object);

/*
 * What a folder of a device's has: 0, with *@count sorted names in *@names, all of which
 * are to be given to free(), as is the list; or a negative errno of towline's.
 */
int sysfs_list(const char *class_dir, const char *device, const char *folder, char ***names,
	       size_t *count);

/* Add every file of a folder of a device's. */
int sysfs_add_folder(const char *class_dir, const char *device, const char *folder,
		     struct json_object *object);

#endif /* TOW_TOOL_H */

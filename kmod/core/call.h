/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Calls of programs: a structure that begins with its size, in and out.
 *
 * chardev.c has the table of all calls of the device's node.  A call's function gets its
 * structure, copied in and as large as the module knows it, and answers in it.
 */
#ifndef TOW_CALL_H
#define TOW_CALL_H

#include <linux/types.h>

struct tow_client;

/* No structure of a call in the table is larger. */
#define TOW_CALL_BYTES		512

/**
 * struct tow_answer - where a call's answer goes
 * @user: the program's structure
 * @known: its size, as the module knows it
 * @user_size: its size, as the program said it
 */
struct tow_answer {
	void __user	*user;
	u32		known;
	u32		user_size;
};

/**
 * struct tow_listing - what is listed, and how
 * @flags: those that the call takes
 * @entry_published: published size of an entry
 * @entry_bytes: its size, as the module knows it
 * @next: describes the next one that the client may see, from @cursor on, in
 *	@info, which is zeroed, and moves @cursor; false: there is no more
 */
struct tow_listing {
	u32	flags;
	u32	entry_published;
	u32	entry_bytes;
	bool	(*next)(struct tow_client *client, u32 flags, u64 *cursor,
			void *info);
};

/**
 * struct tow_call - a call of the device's node
 * @cmd: its number
 * @known: the size of its structure, as the module knows it
 * @published: and of the first version that had it, for ever
 * @changes: it changes something: for the process that opened the file for writing
 * @function: does it, with the structure in @data; 0 or a negative errno
 * @listing: instead of @function: it lists something
 */
struct tow_call {
	unsigned int			cmd;
	u32				known;
	u32				published;
	bool				changes;
	int				(*function)(struct tow_client *client,
						    void *data,
						    const struct tow_answer *answer);
	const struct tow_listing	*listing;
};

/* The beginning of a struct tow_call. */
#define TOW_CALL(_cmd, _struct, _published)				\
	.cmd = _cmd, .known = sizeof(struct _struct), .published = (_published)

int tow_call_run(const struct tow_call *call, struct tow_client *client,
		 void __user *user);
int tow_call_answer(const struct tow_answer *answer, void *data);
int tow_call_copy_in(void *to, u32 known, u32 published,
		     const void __user *from, u32 *user_size);
int tow_call_copy_out(void __user *user, void *from, u32 known, u32 user_size);

#endif /* TOW_CALL_H */

/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * What the core's files share, and programs never see.  Functions here are
 * named towi_* so that the static library claims no other names.
 */
#ifndef TOW_INTERNAL_H
#define TOW_INTERNAL_H

#include <bsd/sys/queue.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <towline/towline.h>

#define TOW_PUBLIC __attribute__((visibility("default")))

/* Where the kernel shows its devices: one entry each, named like the device. */
#define TOWI_SYSFS_CLASS "/sys/class/towline"
#define TOWI_DEV_FOLDER "/dev/towline"

/* No structure is longer: a size above is one that was never set. */
#define TOWI_SIZE_MAX	4096

/* Structures when they were first published. */
#define TOWI_INFO_SIZE_FIRST \
	(offsetof(struct tow_region_info, job_id) + TOW_JOB_ID_BYTES)
#define TOWI_PEER_INFO_SIZE_FIRST \
	(offsetof(struct tow_peer_info, idle_ms) + sizeof(uint64_t))
#define TOWI_EXPORT_INFO_SIZE_FIRST \
	(offsetof(struct tow_export_info, name) + TOW_EXPORT_NAME_MAX + 1)

/* Memory of a region that has an address in this process. */
struct towi_range {
	uintptr_t at;
	size_t bytes;
	uintptr_t furthest;	/* where it ends, or one that begins before it, whichever is later */
	uint64_t offset;	/* in the region */
	struct tow_region *region;
};

/* All of a device's, by their addresses. */
struct towi_mapped {
	pthread_mutex_t lock;	/* innermost */
	struct towi_range *sorted;
	size_t count, room;
};

/* Who wants to know of regions that end. */
struct towi_watch {
	LIST_ENTRY(towi_watch) next;
	/* Before the kernel ends it; @region is its handle, which is never used again. */
	void (*gone)(struct towi_watch *watch, uint64_t region);
};

struct tow_device {
	int fd;
	uint64_t process;	/* whose it is: towi_ours() */
	/* Where the last mapping of 2 MiB or more begins; 0: there was none. */
	_Atomic uintptr_t map_hint;
	struct towi_mapped mapped;
	/* Around the watches, also while one is told. */
	pthread_mutex_t watching;
	LIST_HEAD(, towi_watch) watches;
};

/*
 * A call of the kernel's: what it answers, 0 for most, or a negative errno.  A call
 * that the kernel does not have is -EPROTONOSUPPORT.
 */
int towi_ioctl(int fd, unsigned long command, void *arg);

/* The same on a device. */
int towi_call(const struct tow_device *dev, unsigned long command, void *arg);

/*
 * May name be an RDMA device's?  Says nothing about whether there is one, only
 * that using it as one component of a path is safe.
 */
bool towi_name_valid(const char *name);

/*
 * The list of the sysfs class folder @class_dir, or NULL with the reason, a
 * negative errno, in @error.
 */
struct tow_device_list *towi_list(const char *class_dir, int *error);

/*
 * The device to open: @asked if given, else @preferred (TOW_DEVICE) if given,
 * else the only one in @class_dir.  Copies its name to @name.
 */
int towi_choose(const char *class_dir, const char *asked, const char *preferred,
		char name[TOW_DEVICE_NAME_MAX]);

/* Of what somebody else says: is it a negative errno?  It is kept in an int then, and has a positive. */
static inline bool towi_is_error(int64_t status)
{
	return status < 0 && status >= -4095;
}

/* The kernel's answer in the library's structure, its size filled in. */
void towi_attr_from_query(const struct tow_query *query, struct tow_device_attr *attr);

/* As towi_give(). */
int towi_attr_give(const struct tow_device_attr *known, struct tow_device_attr *attr);

/* ---- entries.c ---- */

/*
 * May a structure be of that size, which was of @first bytes when it was first
 * published?
 */
bool towi_size_valid(uint32_t size, size_t first);

/*
 * What the caller asks for: @given, which may be NULL, and of an older or newer
 * version, as @known, of @known_bytes.  0, -EINVAL, or -E2BIG when it asks for
 * what is not known here.  Both begin with their size.
 */
int towi_take(const void *given, size_t first, void *known, size_t known_bytes);

/*
 * Copy @known to the caller's @answer, whose size says how much room there is:
 * less than today's where the caller is older than the library, more where it
 * is newer.  @known's says how much the kernel told.  0, or -EINVAL when no
 * version ever had a structure of that size.
 */
int towi_give(const void *known, size_t first, void *answer);

/* What one of the kernel's calls that list has told; each begins with its size. */
struct towi_entries {
	size_t count;
	size_t room;
	size_t entry_bytes;
	unsigned char *bytes;
};

/*
 * Ask for all entries, of @entry_bytes each.  0, and then they are freed with
 * towi_entries_free(); or a negative errno.
 */
int towi_entries_ask(const struct tow_device *dev, unsigned long command, uint32_t flags,
		     size_t entry_bytes, struct towi_entries *entries);

/* NULL past the end. */
const void *towi_entry(const struct towi_entries *entries, size_t index);

/* As towi_give(); -EINVAL past the end, and without an @answer, too. */
int towi_entry_give(const struct towi_entries *entries, size_t index, size_t first, void *answer);

void towi_entries_free(struct towi_entries *entries);

/* The same in memory of its own, for towi_list_free(), which takes NULL, too. */
int towi_list_new(const struct tow_device *dev, unsigned long command, uint32_t flags,
		  size_t entry_bytes, struct towi_entries **list);
void towi_list_free(struct towi_entries *list);

/* ---- signal.c ---- */

/*
 * A signal came while a call waited: is it to go on?  Also asked by calls that look now and
 * then, between two looks: a signal that came elsewhere than in a wait is noticed there.
 */
bool towi_goes_on(void);

/*
 * A call of the kernel's that waits for *@timeout_ms, which is part of @arg: goes on after
 * signals, with what is left of that.  0 stays 0, whatever it means to the call.
 */
int towi_call_for(const struct tow_device *dev, unsigned long command, void *arg,
		  uint32_t *timeout_ms);

/* ---- fork.c ---- */

/* Memory of which the first @wiped bytes, whole pages, are zeroes in children; or NULL. */
void *towi_wiped(size_t wiped, size_t bytes);

/* This process, by a number that no child of it has; 0: there is no memory to know it. */
uint64_t towi_process(void);

/* Is what was made in that process this one's, and not its parent's?  Takes no lock. */
bool towi_ours(uint64_t process);

/*
 * In a child, of its parent's: may what the lock protects be taken apart?  Not if another thread
 * had it when the child was forked, and was maybe changing it.
 */
bool towi_at_rest(pthread_mutex_t *lock);

/* ---- clock.c ---- */

/*
 * How long ranks wait for each other unless they were told: who loads a checkpoint or
 * compiles comes minutes later than others, and who has died is noticed long before.
 */
#define TOWI_TIMEOUT_MS	600000U

/* Now, in nanoseconds, by CLOCK_MONOTONIC. */
uint64_t towi_now_ns(void);

/* Now, and a time-out after it, in microseconds; TOW_WAIT_FOREVER is UINT64_MAX. */
uint64_t towi_until(uint64_t timeout_us);

/*
 * How much later @now is than @since: 0 if it is not.  Something may have begun after the clock was
 * looked at.
 */
static inline uint64_t towi_passed(uint64_t since, uint64_t now)
{
	return now > since ? now - since : 0;
}

/* The same from milliseconds, of which TOW_WAIT_FOREVER is for ever, too. */
uint64_t towi_until_ms(uint32_t timeout_ms);

/* How long until then, as a time-out. */
uint32_t towi_left_us(uint64_t until);

/* The same in milliseconds, for calls that take no microseconds; at least 1. */
uint32_t towi_left_ms(uint64_t until);

/* ---- job.c ---- */

/*
 * The 64 hexadecimal digits of @text (TOW_JOB), as the key they are.  0, or
 * -EINVAL when @text is anything else.
 */
int towi_job_key(const char *text, uint8_t key[TOW_JOB_KEY_BYTES]);

int towi_job_join(const struct tow_device *dev, const uint8_t key[TOW_JOB_KEY_BYTES]);

/* ---- region.c ---- */

/* As towi_take(). */
int towi_region_attr_take(const struct tow_region_attr *given, struct tow_region_attr *attr);

/* @name, filled up with zeroes.  0, or -EINVAL when it is too long. */
int towi_region_name(const char *name, char to[TOW_REGION_NAME_MAX]);

struct tow_device *towi_region_device(const struct tow_region *region);
uint64_t towi_region_handle(const struct tow_region *region);

/* A number in a region, to be read by this process. */
struct towi_word {
	const uint64_t *at;
	void *mapped;		/* NULL: the process has it anyway */
	size_t bytes;
};

/*
 * The 8 bytes at @offset, a multiple of 8: 0 or a negative errno.  They stay when
 * @region is destroyed, until towi_word_end().
 */
int towi_region_word(struct tow_region *region, uint64_t offset, struct towi_word *word);
void towi_word_end(const struct towi_word *word);

/* Can it be sent from and not written?  Of a region that has an address in this process. */
bool towi_region_readonly(const struct tow_region *region);

/*
 * All of it in this process, to be written, for one arena: 0, and where it begins, what is there,
 * and whether that is a device's memory, for which the addresses only stand (@far); -EBUSY:
 * another one has it; -EACCES: it is read-only; and what tow_region_map() returns.
 */
int towi_region_adopt(struct tow_region *region, void **at, uint64_t *bytes, bool *far);
/* The reverse: 0 or a negative errno. */
int towi_region_leave(struct tow_region *region, void *at);

/* Does an address in a region only stand for a device's memory?  Then nobody touches it. */
bool towi_region_far(const struct tow_region *region, const void *ptr);

/* Of a region of a device's memory: has that been taken back? */
bool towi_region_lost(const struct tow_region *region);

/* ---- mapped.c ---- */

void towi_mapped_begin(struct tow_device *dev);
void towi_mapped_end(struct tow_device *dev);

/* @bytes at @at are @region's, from @offset on: 0 or -ENOMEM.  And not any more. */
int towi_mapped_add(struct tow_device *dev, struct tow_region *region, const void *at,
		    uint64_t offset, size_t bytes);
void towi_mapped_drop(struct tow_device *dev, const struct tow_region *region, const void *at);

/* As tow_region_find(). */
int towi_mapped_find(struct tow_device *dev, const void *ptr, struct tow_region **region,
		     uint64_t *offset, uint64_t *bytes);

/* From now on, and not any more; @watch is the caller's. */
void towi_watch(struct tow_device *dev, struct towi_watch *watch);
void towi_unwatch(struct tow_device *dev, struct towi_watch *watch);

/* That region is about to end. */
void towi_tell_gone(struct tow_device *dev, uint64_t region);

/* ---- map.c ---- */

/*
 * Map @length bytes of @fd from @offset on, so that address and offset are
 * alike modulo 2 MiB if that much is mapped.  @hint says where to try first, and
 * is brought up to date.  0 or a negative errno.
 */
int towi_map(_Atomic uintptr_t *hint, int fd, int prot, uint64_t offset, size_t length,
	     void **addr);

/* The same of addresses behind which there is nothing: at a multiple of 2 MiB. */
int towi_map_nothing(size_t length, void **addr);

/* The reverse of both, for the same @length: 0 or a negative errno. */
int towi_unmap(_Atomic uintptr_t *hint, void *addr, size_t length);

/* ---- address.c ---- */

/* Where a node listens, as the kernel is told. */
struct towi_address {
	uint8_t bytes[TOW_ADDRESS_BYTES];
	uint32_t scope_id;
	uint16_t port;		/* 0: not said */
};

/*
 * @text as an address: see tow_peer_connect() for what it may be.  0, or a
 * negative errno of towline's.
 */
int towi_address(const char *text, struct towi_address *address);

/* ---- remote.c ---- */

/* A remote range that the kernel has found for @dev. */
int towi_remote_new(const struct tow_device *dev, uint64_t handle, uint64_t bytes,
		    struct tow_remote **remote);

/* ---- peer.c ---- */

const struct tow_device *towi_peer_device(const struct tow_peer *peer);
uint64_t towi_peer_number(const struct tow_peer *peer);

/* That peer of @dev: to be released with tow_peer_release().  0 or -ENOMEM. */
int towi_peer_new(const struct tow_device *dev, uint64_t number, struct tow_peer **peer);

/* The same peer once more, to be released with tow_peer_release(): 0 or -ENOMEM. */
int towi_peer_copy(const struct tow_peer *peer, struct tow_peer **copy);

/*
 * Which of some peers, struct tow_peer_info, is the one at @address: NULL when
 * none is.  Of several the one that is connected, or else the youngest.
 */
const struct tow_peer_info *towi_peer_at(const struct towi_entries *peers,
					 const struct towi_address *address);

/*
 * The peer that is that life of a device: to be released with tow_peer_release().  0; -ENOENT:
 * there is none; or another negative errno.
 */
int towi_peer_named(const struct tow_device *dev,
		    const uint8_t incarnation[TOW_INCARNATION_BYTES], struct tow_peer **peer);

/* ---- export.c ---- */

/*
 * An export's name, filled up with zeroes, and its length.  0, or -EINVAL when
 * it is NULL, empty or too long.
 */
int towi_export_name(const char *name, uint8_t to[TOW_EXPORT_NAME_MAX + 1], uint32_t *bytes);

/* Export a range: 0 and the kernel's handle, or a negative errno. */
int towi_export(const struct tow_region *region, uint64_t offset, uint64_t bytes,
		const char *name, uint32_t rights, uint64_t *handle);

/* End that. */
int towi_unexport(const struct tow_device *dev, uint64_t handle);

#endif /* TOW_INTERNAL_H */

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What tow_expose.ko does, as calls.
 */
#ifndef TOW_PROBE_H
#define TOW_PROBE_H

#include "tow_region.h"
#include "tow_hotplug.h"
#include "tests/modules/tow_expose.h"

static inline int tow_expose_open(void)
{
	int fd;

	if (access(TOW_EXPOSE_NODE, F_OK) && tow_module_load("tow_expose", ""))
		return -ENOPKG;
	if (!tow_wait_path(TOW_EXPOSE_NODE, true))
		return -ENOENT;
	fd = open(TOW_EXPOSE_NODE, O_RDWR | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/*
 * All cases of a program use the module; it goes when the program's first
 * process ends.  Should it not go, towline does not either, and the lab says so.
 */
__attribute__((destructor))
static void tow_expose_unload(void)
{
	if (!access("/sys/module/tow_expose", F_OK))
		tow_module_unload("tow_expose");
}

static inline int tow_expose(int fd, int region_fd, uint32_t slab, uint32_t rights,
			     struct tow_expose_slab *exposed)
{
	*exposed = (struct tow_expose_slab){
		.region_fd = region_fd, .slab = slab, .rights = rights,
	};
	return tow_test_ioctl(fd, TOW_EXPOSE_EXPOSE, exposed);
}

static inline int tow_hide(int fd, const struct tow_expose_slab *exposed)
{
	return ioctl(fd, TOW_EXPOSE_HIDE, (unsigned long)exposed->id) < 0 ? -errno : 0;
}

/* What became of it, TOW_EXPOSE_SUCCESS or another status; or a negative errno. */
static inline int tow_probe(int fd, uint32_t op, uint32_t key, uint64_t address, void *data,
			    uint32_t bytes)
{
	struct tow_expose_probe probe = {
		.op = op, .key = key, .address = address,
		.data = (uintptr_t)data, .bytes = bytes,
	};
	int ret = tow_test_ioctl(fd, TOW_EXPOSE_PROBE, &probe);

	return ret ? ret : (int)probe.status;
}

/* Words at an offset of the exposed slab. */
static inline int tow_probe_write(int fd, const struct tow_expose_slab *to, uint64_t offset,
				  uint64_t word)
{
	return tow_probe(fd, TOW_EXPOSE_RDMA_WRITE, to->key, to->address + offset, &word,
			 sizeof(word));
}

static inline int tow_probe_read(int fd, const struct tow_expose_slab *from, uint64_t offset,
				 uint64_t *word)
{
	return tow_probe(fd, TOW_EXPOSE_RDMA_READ, from->key, from->address + offset, word,
			 sizeof(*word));
}

/* @word: in: what to add; out: what was there. */
static inline int tow_probe_add(int fd, const struct tow_expose_slab *to, uint64_t offset,
				uint64_t *word)
{
	return tow_probe(fd, TOW_EXPOSE_FETCH_ADD, to->key, to->address + offset, word,
			 sizeof(*word));
}

/* The device's maintenance queue pair is ready: 0, or an errno after a while. */
static inline int tow_maint_wait(int fd, struct tow_query *query)
{
	struct tow_patience patience = tow_patience(TOW_SETTLE_SECONDS);
	int ret;

	while (!(ret = tow_test_query(fd, query)) && query->maint_state != TOW_MAINT_READY) {
		if (!tow_patient(&patience))
			return -ETIMEDOUT;
		tow_test_sleep_ms(10);
	}
	return ret;
}

#endif /* TOW_PROBE_H */

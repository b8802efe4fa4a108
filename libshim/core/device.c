// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * A device is an open file of the kernel's; the library adds nothing to it but
 * the choice of the file and the check that both speak the same language.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "internal.h"

/* The size of struct tow_device_attr when it was first published. */
#define ATTR_SIZE_FIRST	(offsetof(struct tow_device_attr, maint_rebuilds) + sizeof(uint32_t))

/*
 * The oldest kernel interface that a device can be opened with; calls that it
 * does not have say so when they are made.
 */
#define UAPI_VERSION_NEEDED 1

int towi_ioctl(int fd, unsigned long command, void *arg)
{
	int ret = ioctl(fd, command, arg);

	if (ret >= 0)
		return ret;
	return errno == ENOTTY ? -EPROTONOSUPPORT : -errno;
}

int towi_call(const struct tow_device *dev, unsigned long command, void *arg)
{
	return towi_ioctl(dev->fd, command, arg);
}

static int query_kernel(const struct tow_device *dev, struct tow_query *query)
{
	memset(query, 0, sizeof(*query));
	query->size = sizeof(*query);
	return towi_call(dev, TOW_IOCTL_QUERY, query);
}

/* What errno of open(2) means for a file below TOWI_DEV_FOLDER. */
static int open_error(const char *name, int error)
{
	char path[sizeof(TOWI_SYSFS_CLASS "/") + TOW_DEVICE_NAME_MAX];

	switch (error) {
	case ENOENT:
	case ENOTDIR:
		if (access(TOWI_SYSFS_CLASS, F_OK))
			return -ENOPKG;
		snprintf(path, sizeof(path), TOWI_SYSFS_CLASS "/%s", name);
		return access(path, F_OK) ? -ENOENT : -ENOMEDIUM;
	case ENXIO:
		/* The file is there, its device is not any more. */
		return -ENODEV;
	default:
		return -error;
	}
}

static int open_file(const char *name)
{
	char path[sizeof(TOWI_DEV_FOLDER "/") + TOW_DEVICE_NAME_MAX];
	int fd;

	snprintf(path, sizeof(path), TOWI_DEV_FOLDER "/%s", name);
	do {
		fd = open(path, O_RDWR | O_CLOEXEC);
	} while (fd < 0 && errno == EINTR);
	return fd < 0 ? open_error(name, errno) : fd;
}

static int check_language(const struct tow_device *dev)
{
	struct tow_query query;
	int ret;

	ret = query_kernel(dev, &query);
	if (ret)
		return ret;
	return query.uapi_version < UAPI_VERSION_NEEDED ? -EPROTONOSUPPORT : 0;
}

static int open_device(const char *name, struct tow_device **dev)
{
	struct tow_device *opened;
	int ret;

	opened = calloc(1, sizeof(*opened));
	if (!opened)
		return -ENOMEM;
	opened->process = towi_process();
	if (!opened->process) {
		ret = -ENOMEM;
		goto free_dev;
	}
	opened->fd = open_file(name);
	if (opened->fd < 0) {
		ret = opened->fd;
		goto free_dev;
	}
	ret = check_language(opened);
	if (ret)
		goto close_fd;
	towi_mapped_begin(opened);
	*dev = opened;
	return 0;

close_fd:
	close(opened->fd);
free_dev:
	free(opened);
	return ret;
}

/* Open a device and enter the job whose key is @job: 64 digits, or NULL. */
static int open_in_job(const char *name, const char *job, struct tow_device **dev)
{
	uint8_t key[TOW_JOB_KEY_BYTES];
	struct tow_device *opened = NULL;
	int ret = 0;

	if (job)
		ret = towi_job_key(job, key);
	if (ret)
		return ret;
	ret = open_device(name, &opened);
	if (ret)
		goto forget_key;
	if (job)
		ret = towi_job_join(opened, key);
	if (ret)
		tow_device_close(opened);
	else
		*dev = opened;
forget_key:
	explicit_bzero(key, sizeof(key));
	return ret;
}

TOW_PUBLIC int tow_device_open(const char *name, uint32_t flags, struct tow_device **dev)
{
	const char *job = secure_getenv("TOW_JOB");
	char chosen[TOW_DEVICE_NAME_MAX];
	int ret;

	if (!dev || flags)
		return -EINVAL;
	ret = towi_choose(TOWI_SYSFS_CLASS, name, secure_getenv("TOW_DEVICE"), chosen);
	if (ret)
		return ret;
	/* An empty TOW_JOB is one that was not set. */
	return open_in_job(chosen, job && *job ? job : NULL, dev);
}

TOW_PUBLIC void tow_device_close(struct tow_device *dev)
{
	if (!dev)
		return;
	towi_mapped_end(dev);
	close(dev->fd);
	free(dev);
}

void towi_attr_from_query(const struct tow_query *query, struct tow_device_attr *attr)
{
	memset(attr, 0, sizeof(*attr));
	attr->size = sizeof(*attr);
	attr->uapi_version = query->uapi_version;
	attr->driver_version = query->driver_version;
	attr->transport = query->transport;
	memcpy(attr->device_name, query->device_name, sizeof(attr->device_name));
	memcpy(attr->incarnation, query->incarnation, sizeof(attr->incarnation));
	attr->features = query->features;
	attr->max_mr_size = query->max_mr_size;
	attr->max_msg_size = query->max_msg_size;
	attr->port = query->port;
	attr->page_size = query->page_size;
	attr->numa_node = query->numa_node;
	attr->max_mr = query->max_mr;
	attr->max_fast_reg_pages = query->max_fast_reg_pages;
	attr->max_pd = query->max_pd;
	attr->max_qp = query->max_qp;
	attr->max_qp_wr = query->max_qp_wr;
	attr->max_send_sge = query->max_send_sge;
	attr->max_recv_sge = query->max_recv_sge;
	attr->max_sge_rd = query->max_sge_rd;
	attr->max_cq = query->max_cq;
	attr->max_cqe = query->max_cqe;
	attr->max_srq = query->max_srq;
	attr->max_srq_wr = query->max_srq_wr;
	attr->max_qp_rd_atom = query->max_qp_rd_atom;
	attr->max_qp_init_rd_atom = query->max_qp_init_rd_atom;
	attr->maint_state = query->maint_state;
	attr->maint_error = query->maint_error;
	attr->maint_rebuilds = query->maint_rebuilds;
}

int towi_attr_give(const struct tow_device_attr *known, struct tow_device_attr *attr)
{
	return towi_give(known, ATTR_SIZE_FIRST, attr);
}

TOW_PUBLIC int tow_device_query(const struct tow_device *dev, struct tow_device_attr *attr)
{
	struct tow_device_attr known;
	struct tow_query query;
	int ret;

	if (!dev || !attr)
		return -EINVAL;
	ret = query_kernel(dev, &query);
	if (ret)
		return ret;
	towi_attr_from_query(&query, &known);
	return towi_attr_give(&known, attr);
}

/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * libtowline: programs' side of towline.
 *
 * towline keeps RDMA memory, registrations and connections once per node, in
 * the kernel; this library gives programs handles to them.
 *
 * Every function that can fail returns 0 or a negative errno value; each value
 * has one meaning, listed below and said in words by tow_strerror().  The
 * library never prints, never calls exit(), and keeps no state of its own: all
 * functions may be called from any number of threads at once, on the same
 * object too, except that nothing may use an object while it is closed or
 * freed, or afterwards.
 *
 *  -EACCES		no permission to open the device file
 *  -EINVAL		an argument is invalid
 *  -ENODEV		the RDMA device was removed
 *  -ENOENT		there is no towline device of that name
 *  -ENOMEM		out of memory
 *  -ENOPKG		the kernel module is not loaded
 *  -ENOTUNIQ		several devices, and none was named
 *  -ENXIO		the module is loaded, but no RDMA device is usable
 *  -EOPNOTSUPP		soft-RoCE outside the initial network namespace
 *  -EPERM		the RDMA device belongs to another network namespace
 *  -EPROTONOSUPPORT	the module is older than the library
 */
#ifndef TOW_TOWLINE_H
#define TOW_TOWLINE_H

#include <stddef.h>
#include <stdint.h>

#include <towline/uapi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An open device.  Made by tow_device_open(), ended by tow_device_close(). */
struct tow_device;

/* The names of a node's devices at one moment. */
struct tow_device_list;

/**
 * tow_strerror() - words for a result of this library
 * @error: 0, or a negative errno value that a function here returned
 *
 * Return: a string that lives as long as the program and must not be freed;
 * "unknown error" for values that no function returns.  Never NULL.
 */
const char *tow_strerror(int error);

/**
 * tow_device_list_get() - the devices that towline serves on this node
 * @list: where to put the list; the caller frees it with
 *	tow_device_list_free().  Left alone on failure.
 *
 * A list may be empty.  Devices come and go: the list is right for the moment
 * it was made.
 *
 * Return: 0; -ENOPKG when the module is not loaded; -EINVAL when @list is
 * NULL; -ENOMEM; or what reading sysfs returned.
 */
int tow_device_list_get(struct tow_device_list **list);

/**
 * tow_device_list_count() - how many names a list has
 * @list: from tow_device_list_get()
 *
 * Return: the number of names.
 */
size_t tow_device_list_count(const struct tow_device_list *list);

/**
 * tow_device_list_name() - one name of a list
 * @list: from tow_device_list_get()
 * @index: from 0; names are sorted
 *
 * Return: the name, owned by @list, or NULL when @index is past the end.
 */
const char *tow_device_list_name(const struct tow_device_list *list, size_t index);

/**
 * tow_device_list_free() - free a list and its names
 * @list: from tow_device_list_get(), or NULL
 */
void tow_device_list_free(struct tow_device_list *list);

/**
 * tow_device_open() - open an RDMA device through towline
 * @name: the RDMA device's name ("mlx5_0"), or NULL: the one that the
 *	environment's TOW_DEVICE names, or else the only one there is
 * @flags: 0; other values are kept for later
 * @dev: where to put the device; the caller closes it with
 *	tow_device_close().  Left alone on failure.
 *
 * The file behind it is closed on exec.
 *
 * Implements "create device" of Xue et al., EuroSys '19, section 3 (a remote
 * machine is a device): what the paper makes per process exists once per node
 * here, so opening it only takes a handle.
 *
 * Return: 0; -EINVAL when @dev is NULL, @flags are unknown or @name cannot be
 * a device's; -ENOPKG, -ENXIO, -ENOTUNIQ or -ENOENT when there is no such
 * device; -EACCES, -EPERM or -EOPNOTSUPP when this process may not use it, or
 * not from here; -ENODEV when it is just being removed; -EPROTONOSUPPORT when
 * the module is older than this library; -ENOMEM; or what open(2) returned
 * (-EMFILE, say).
 */
int tow_device_open(const char *name, uint32_t flags, struct tow_device **dev);

/**
 * tow_device_close() - close a device
 * @dev: from tow_device_open(), or NULL
 */
void tow_device_close(struct tow_device *dev);

/**
 * struct tow_device_attr - what a device is, and how it is
 * @size: in: sizeof(struct tow_device_attr), as the caller was compiled; out:
 *	bytes filled in
 * @uapi_version: the kernel's TOW_UAPI_VERSION
 * @driver_version: of the module: major << 16 | minor << 8 | patch
 * @transport: enum tow_transport: InfiniBand, RoCE or iWARP
 * @device_name: of the RDMA device; the present one if it was renamed
 * @incarnation: names this life of this device among all nodes: chosen at
 *	random whenever the device appears or the module is loaded
 * @features: bits of enum tow_feature
 * @max_mr_size: largest memory region, in bytes
 * @max_msg_size: largest message, in bytes
 * @port: the port of the RDMA device that towline uses, counted from 1
 * @page_size: the kernel's page size, in bytes
 * @numa_node: the memory node nearest to the device; -1 if there is none
 * @max_mr: memory regions, of the whole device
 * @max_fast_reg_pages: pages in one fast registration
 * @max_pd: protection domains
 * @max_qp: queue pairs
 * @max_qp_wr: work requests outstanding on one queue of a queue pair
 * @max_send_sge: local ranges in one send or write
 * @max_recv_sge: local ranges in one receive
 * @max_sge_rd: local ranges in one RDMA read
 * @max_cq: completion queues
 * @max_cqe: entries of one completion queue
 * @max_srq: shared receive queues
 * @max_srq_wr: work requests outstanding on one shared receive queue
 * @max_qp_rd_atom: reads and atomics in flight towards one queue pair
 * @max_qp_init_rd_atom: reads and atomics in flight from one queue pair
 * @maint_state: enum tow_maint_state: of the kernel's queue pair that
 *	registers memory
 * @maint_error: why that queue pair is not ready: a negative errno value, or 0
 * @maint_rebuilds: how often it became ready again after it had been broken
 *
 * The limits are the RDMA device's.  Later versions of the library add fields
 * at the end only.
 */
struct tow_device_attr {
	uint32_t size;
	uint32_t uapi_version;
	uint32_t driver_version;
	uint32_t transport;
	char device_name[TOW_DEVICE_NAME_MAX];
	uint8_t incarnation[TOW_INCARNATION_BYTES];
	uint64_t features;
	uint64_t max_mr_size;
	uint64_t max_msg_size;
	uint32_t port;
	uint32_t page_size;
	int32_t numa_node;
	uint32_t max_mr;
	uint32_t max_fast_reg_pages;
	uint32_t max_pd;
	uint32_t max_qp;
	uint32_t max_qp_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_sge_rd;
	uint32_t max_cq;
	uint32_t max_cqe;
	uint32_t max_srq;
	uint32_t max_srq_wr;
	uint32_t max_qp_rd_atom;
	uint32_t max_qp_init_rd_atom;
	uint32_t maint_state;
	int32_t maint_error;
	uint32_t maint_rebuilds;
};

/**
 * tow_device_query() - ask what a device is, and how it is
 * @dev: from tow_device_open()
 * @attr: answered here; @attr->size must be set.  A caller compiled against a
 *	later version than the library that runs gets the fields that the
 *	library knows, and zeroes after them.
 *
 * Return: 0; -EINVAL when @dev or @attr is NULL, or @attr->size is below that
 * of the first version or above 4096; -ENODEV when the device was removed: it will answer
 * nothing else any more.
 */
int tow_device_query(const struct tow_device *dev, struct tow_device_attr *attr);

#ifdef __cplusplus
}
#endif

#endif /* TOW_TOWLINE_H */

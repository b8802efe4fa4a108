/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The same RDMA device through plain libibverbs.
 */
#ifndef TOW_VERBS_H
#define TOW_VERBS_H

#include <errno.h>
#include <string.h>
#include <infiniband/verbs.h>

/* NULL if there is no such device, or it cannot be opened; errno tells. */
static inline struct ibv_context *tow_verbs_open(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;
	int i;

	if (list)
		errno = ENODEV;
	for (i = 0; list && list[i] && !context; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	return context;
}

#endif /* TOW_VERBS_H */

// SPDX-License-Identifier: GPL-2.0
/*
 * What TOW_IOCTL_QUERY says must agree with what others say about the same
 * device: libibverbs, sysfs, the C library.
 */
/* build: link -libverbs */

#include <infiniband/verbs.h>
#include "tow_test.h"

#define KNOWN_FEATURES	(TOW_FEATURE_ATOMICS | TOW_FEATURE_SRQ | TOW_FEATURE_VIRT_DMA)

FIXTURE(fields)
{
	int fd;
	struct tow_query query;
	struct ibv_context *verbs;
	struct ibv_device_attr attr;
};

static struct ibv_context *open_verbs(const char *name)
{
	struct ibv_context *context = NULL;
	struct ibv_device **list;
	int i, count;

	list = ibv_get_device_list(&count);
	if (!list)
		return NULL;
	for (i = 0; i < count; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	return context;
}

FIXTURE_SETUP(fields)
{
	self->fd = tow_test_open(O_RDONLY);
	ASSERT_LE(0, self->fd)
		TH_LOG("%s: %s", tow_test_path(), strerror(-self->fd));
	ASSERT_EQ(0, tow_test_query(self->fd, &self->query));
	self->verbs = open_verbs(tow_test_device());
	ASSERT_NE(NULL, self->verbs);
	ASSERT_EQ(0, ibv_query_device(self->verbs, &self->attr));
}

FIXTURE_TEARDOWN(fields)
{
	ibv_close_device(self->verbs);
	close(self->fd);
}

TEST_F(fields, name)
{
	size_t length = strlen(tow_test_device());
	size_t i;

	ASSERT_GT(sizeof(self->query.device_name), length);
	EXPECT_STREQ(tow_test_device(), self->query.device_name);
	for (i = length; i < sizeof(self->query.device_name); i++) {
		EXPECT_EQ(0, self->query.device_name[i]);
	}
}

TEST_F(fields, versions)
{
	unsigned int major, minor, patch;
	char line[64];

	tow_test_read_line("/sys/module/towline/version", line, sizeof(line));
	ASSERT_EQ(3, sscanf(line, "%u.%u.%u", &major, &minor, &patch))
		TH_LOG("module version '%s'", line);
	EXPECT_EQ(major << 16 | minor << 8 | patch, self->query.driver_version);
	EXPECT_STREQ(TOW_VERSION, line);
	EXPECT_EQ(TOW_UAPI_VERSION, self->query.uapi_version);
}

TEST_F(fields, incarnation)
{
	char path[512], line[64], hex[2 * TOW_INCARNATION_BYTES + 1];
	struct tow_query again;
	int bits = 0;
	size_t i;
	int fd;

	for (i = 0; i < TOW_INCARNATION_BYTES; i++) {
		snprintf(hex + 2 * i, 3, "%02x", self->query.incarnation[i]);
		bits += __builtin_popcount(self->query.incarnation[i]);
	}
	snprintf(path, sizeof(path), "/sys/class/towline/%s/incarnation", tow_test_device());
	tow_test_read_line(path, line, sizeof(line));
	EXPECT_STREQ(hex, line);
	/* 128 random bits: outside of this once in 10^12 devices. */
	EXPECT_LT(24, bits);
	EXPECT_GT(104, bits);

	/* The same for every file, for as long as the device lives. */
	fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, tow_test_query(fd, &again));
	EXPECT_EQ(0, memcmp(self->query.incarnation, again.incarnation, TOW_INCARNATION_BYTES));
	close(fd);
}

TEST_F(fields, transport)
{
	struct ibv_port_attr port;
	__u32 expected = TOW_TRANSPORT_IB;

	ASSERT_LE(1, self->query.port);
	ASSERT_GE(self->attr.phys_port_cnt, self->query.port);
	ASSERT_EQ(0, ibv_query_port(self->verbs, (uint8_t)self->query.port, &port));
	if (port.link_layer == IBV_LINK_LAYER_ETHERNET)
		expected = TOW_TRANSPORT_ROCE;
	EXPECT_EQ(expected, self->query.transport);
	EXPECT_EQ(port.max_msg_sz, self->query.max_msg_size);
}

TEST_F(fields, features)
{
	__u64 features = self->query.features;
	char path[512];

	EXPECT_EQ(0, features & ~(__u64)KNOWN_FEATURES);
	EXPECT_EQ(self->attr.max_srq > 0, !!(features & TOW_FEATURE_SRQ));
	EXPECT_EQ(self->attr.atomic_cap != IBV_ATOMIC_NONE, !!(features & TOW_FEATURE_ATOMICS));
	/* A device that is only software has no device of a bus as its parent. */
	if (!strncmp(tow_test_device(), "rxe", 3)) {
		snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device/subsystem",
			 tow_test_device());
		EXPECT_EQ(!!access(path, F_OK), !!(features & TOW_FEATURE_VIRT_DMA));
	}
}

TEST_F(fields, limits)
{
	struct tow_query *query = &self->query;
	struct ibv_device_attr *attr = &self->attr;

	EXPECT_EQ(attr->max_mr_size, query->max_mr_size);
	EXPECT_EQ(attr->max_mr, query->max_mr);
	EXPECT_EQ(attr->max_pd, query->max_pd);
	EXPECT_EQ(attr->max_qp, query->max_qp);
	EXPECT_EQ(attr->max_qp_wr, query->max_qp_wr);
	EXPECT_EQ(attr->max_cq, query->max_cq);
	EXPECT_EQ(attr->max_cqe, query->max_cqe);
	EXPECT_EQ(attr->max_srq, query->max_srq);
	EXPECT_EQ(attr->max_srq_wr, query->max_srq_wr);
	EXPECT_EQ(attr->max_qp_rd_atom, query->max_qp_rd_atom);
	EXPECT_EQ(attr->max_qp_init_rd_atom, query->max_qp_init_rd_atom);
	/* Verbs have one number for sends and receives: the smaller. */
	EXPECT_LE(attr->max_sge, query->max_send_sge);
	EXPECT_LE(attr->max_sge, query->max_recv_sge);
	EXPECT_EQ(attr->max_sge_rd, query->max_sge_rd);
	/* Verbs do not show it; without any the device would not be here. */
	EXPECT_LE(1, query->max_fast_reg_pages);
	if (!strncmp(tow_test_device(), "rxe", 3)) {
		EXPECT_EQ(512, query->max_fast_reg_pages);
	}
}

TEST_F(fields, machine)
{
	char path[512], line[64];

	EXPECT_EQ(sysconf(_SC_PAGESIZE), self->query.page_size);
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device/numa_node",
		 tow_test_device());
	tow_test_read_line(path, line, sizeof(line));
	EXPECT_EQ(line[0] ? atoi(line) : -1, self->query.numa_node);
}

/* Made in the background: ready within seconds where the port is up. */
TEST_F(fields, maintenance_queue_pair)
{
	struct tow_patience patience = tow_patience(10);

	while (self->query.maint_state != TOW_MAINT_READY && tow_patient(&patience)) {
		tow_test_sleep_ms(50);
		ASSERT_EQ(0, tow_test_query(self->fd, &self->query));
	}
	EXPECT_EQ(TOW_MAINT_READY, self->query.maint_state);
	EXPECT_EQ(0, self->query.maint_error);
	EXPECT_EQ(0, self->query.maint_rebuilds);
}

TEST_HARNESS_MAIN

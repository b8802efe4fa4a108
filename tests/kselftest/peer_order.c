// SPDX-License-Identifier: GPL-2.0
/*
 * One node (tow_hostile.ko plays it) that proves itself for several connections:
 * the newest proof counts, whatever order proofs and requests arrive in, and none
 * that was given up costs one that goes on.
 */
#include "tow_evil.h"
#include "tow_rdma.h"

#define R_REPLACED	12

FIXTURE(order)
{
	/* Requested in this order. */
	struct evil first;
	struct evil second;
};

FIXTURE_SETUP(order)
{
	ASSERT_EQ(0, tow_module_load("tow_hostile", ""));
	ASSERT_EQ(0, evil_share_key());
	ASSERT_EQ(0, evil_begin(&self->first, 1));
	ASSERT_EQ(0, evil_begin(&self->second, 1));
	ASSERT_EQ(2, evil_count("sessions"));
}

FIXTURE_TEARDOWN(order)
{
	evil_end(&self->first);
	evil_end(&self->second);
	EXPECT_EQ(0, evil_wait("sessions", 0));
	EXPECT_EQ(0, tow_module_unload("tow_hostile"));
}

/* @older was sent before @newer. */
static void sent(struct evil *older, struct evil *newer)
{
	newer->auth.order = (uint64_t)(tow_test_now() * 1e9);
	older->auth.order = newer->auth.order - 1;
}

static int prove(struct evil *e)
{
	int ret = evil_say_last(e, T_AUTH, 0, &e->auth, sizeof(e->auth));

	return ret ? ret : evil_how_it_ends(e);
}

/* It goes on, and alone. */
static void goes_on(struct __test_metadata *_metadata, struct evil *e)
{
	EXPECT_EQ(1, evil_wait("sessions", 1));
	EXPECT_EQ(0, evil_complete(e));
	EXPECT_EQ(1, evil_count("sessions"));
}

/* Its request was the later one; it was given up all the same. */
TEST_F(order, a_late_proof_of_what_was_given_up)
{
	sent(&self->second, &self->first);
	ASSERT_EQ(0, evil_prove(&self->first));
	EXPECT_EQ(R_CROSSED, prove(&self->second));
	goes_on(_metadata, &self->first);
}

TEST_F(order, the_newer_one_whose_request_was_earlier)
{
	sent(&self->second, &self->first);
	ASSERT_EQ(0, evil_prove(&self->second));
	ASSERT_EQ(0, evil_prove(&self->first));
	EXPECT_EQ(R_REPLACED, evil_how_it_ends(&self->second));
	goes_on(_metadata, &self->first);
}

TEST_F(order, the_newer_one_whose_request_was_later)
{
	sent(&self->first, &self->second);
	ASSERT_EQ(0, evil_prove(&self->first));
	ASSERT_EQ(0, evil_prove(&self->second));
	EXPECT_EQ(R_REPLACED, evil_how_it_ends(&self->first));
	goes_on(_metadata, &self->second);
}

/* What was READY is gone, and nothing that was sent before comes instead. */
TEST_F(order, remembered_longer_than_the_session)
{
	sent(&self->second, &self->first);
	ASSERT_EQ(0, evil_prove(&self->first));
	evil_end(&self->first);
	EXPECT_EQ(1, evil_wait("sessions", 1));
	EXPECT_EQ(R_CROSSED, prove(&self->second));
	EXPECT_EQ(0, evil_wait("sessions", 0));
}

TEST_F(order, the_same_number_again)
{
	sent(&self->first, &self->second);
	self->first.auth.order = self->second.auth.order;
	ASSERT_EQ(0, evil_prove(&self->second));
	EXPECT_EQ(R_CROSSED, prove(&self->first));
	goes_on(_metadata, &self->second);
}

/* There is no such number; who proves that he is somebody may not say it. */
TEST_F(order, none)
{
	self->first.auth.order = 0;
	EXPECT_EQ(R_PROTOCOL, prove(&self->first));
	ASSERT_EQ(0, evil_prove(&self->second));
	goes_on(_metadata, &self->second);
}

TEST_HARNESS_MAIN

// SPDX-License-Identifier: GPL-2.0
/*
 * A node that lies (tow_hostile.ko) against the real one: handshakes that must be
 * refused, proofs that are none, and messages that must not be, from outside and
 * from who holds the cluster key.  Whatever it says, it is told no, counted, and
 * forgotten, and the next honest node is served.
 */
#include "tow_evil.h"
#include "tow_halt.h"
#include "tow_sysfs.h"
#include "tow_rdma.h"

#define HANDSHAKES	200
#define SILENT		100
#define MESSAGES	10000
/* How many sessions may be half open: kmod/peer/collision.c. */
#define HALF_OPEN	64
/* What ending one may take, on an emulated debug kernel that is busy. */
#define ENDING_SECONDS	20

/* What the node counted before, and that nothing stays. */
FIXTURE(hostile)
{
	long long refused;
	long long lies;
};

FIXTURE_SETUP(hostile)
{
	ASSERT_EQ(0, tow_module_load("tow_hostile", ""));
	ASSERT_EQ(0, evil_share_key());
	ASSERT_EQ(0, evil_set("allow_unauthenticated", "0"));
	ASSERT_EQ(0, evil_patience(EVIL_PATIENT));
	ASSERT_EQ(0, evil_set("pool_bytes", "16m"));
	self->refused = evil_count("auth_refused");
	self->lies = evil_count("hostile_messages");
	ASSERT_LE(0, self->refused);
	ASSERT_LE(0, self->lies);
}

/* An honest session works, and is the only one. */
FIXTURE_TEARDOWN(hostile)
{
	struct evil honest;

	EXPECT_EQ(0, evil_wait("sessions", 0));
	EXPECT_EQ(0, evil_ready(&honest, 1));
	EXPECT_EQ(1, evil_count("sessions"));
	evil_end(&honest);
	EXPECT_EQ(0, evil_wait("sessions", 0));
	EXPECT_EQ(0, tow_module_unload("tow_hostile"));
}

/* ---- handshakes ------------------------------------------------------------ */

struct spoilt {
	const char *name;
	size_t offset;		/* of the bytes in the request that are other ones */
	size_t bytes;
	uint64_t value;
	int reason;
};

#define SPOILT(field, to, why) { #field " is " #to, offsetof(struct evil_request, field), \
		sizeof(((struct evil_request *)0)->field), to, why }
#define VERSIONS(highest, lowest, why) { "versions " #lowest " to " #highest, \
		offsetof(struct evil_request, version), 2, (highest) | (lowest) << 8, why }

static const struct spoilt spoilt[] = {
	SPOILT(magic, 0, R_MALFORMED),
	SPOILT(magic, 0x4c574f55, R_MALFORMED),
	VERSIONS(0, 0, R_BAD_VERSION),
	/* What version 5 said: it had no lowest one. */
	VERSIONS(EVIL_LOWEST - 1, 0, R_BAD_VERSION),
	VERSIONS(EVIL_LOWEST - 1, EVIL_LOWEST - 1, R_BAD_VERSION),
	VERSIONS(EVIL_VERSION + 1, EVIL_VERSION + 1, R_BAD_VERSION),
	VERSIONS(0xff, EVIL_VERSION + 1, R_BAD_VERSION),
	VERSIONS(EVIL_VERSION - 1, EVIL_VERSION, R_MALFORMED),
	VERSIONS(EVIL_VERSION, EVIL_VERSION + 1, R_MALFORMED),
	SPOILT(qps, 0, R_MALFORMED),
	SPOILT(qps, 65, R_MALFORMED),
	SPOILT(qps, 0xff, R_MALFORMED),
	SPOILT(mtu, 0, R_MALFORMED),
	SPOILT(mtu, 6, R_MALFORMED),
	SPOILT(mtu, 0xff, R_MALFORMED),
	SPOILT(features, 2 | EVIL_KEYED, R_MALFORMED),
	SPOILT(features, 0x80000001, R_MALFORMED),
	SPOILT(features, 0, R_NO_KEY),
};

static int spoil(const struct spoilt *how, int *reason)
{
	struct evil e;
	int ret = evil_prepare(&e, 1);

	if (ret)
		return ret;
	memcpy((char *)&e.request + how->offset, &how->value, how->bytes);
	ret = evil_ask(&e, reason);
	evil_end(&e);
	return ret;
}

/* Refused and counted, each of them; and the log, which says so, is not flooded. */
TEST_F_TIMEOUT(hostile, bad_handshakes, 1000)
{
	int count = tow_test_count(tow_test_slow() ? 60 : HANDSHAKES);
	int lines, log = tow_log_open();
	double begin = tow_test_now();

	ASSERT_LE(0, log);
	for (int i = 0; i < count; i++) {
		const struct spoilt *how = &spoilt[(size_t)i % ARRAY_SIZE(spoilt)];
		int reason = -1;

		ASSERT_EQ(-ECONNREFUSED, spoil(how, &reason)) {
			TH_LOG("%s", how->name);
		}
		ASSERT_EQ(how->reason, reason) {
			TH_LOG("%s", how->name);
		}
	}
	EXPECT_EQ(self->refused + count, evil_count("auth_refused"));
	EXPECT_EQ(0, evil_count("sessions"));
	lines = tow_log_count(log, "towline", "was refused");
	EXPECT_LE(1, lines);
	/* The kernel's own measure: ten in five seconds. */
	EXPECT_GE(10 * (2 + (int)((tow_test_now() - begin) / 5)), lines);
	close(log);
}

/* Who does not have the key, and changes a good request of another. */
TEST_F(hostile, requests_of_strangers)
{
	struct evil e;
	int reason;

	for (int bit = 0; bit < 64; bit += 21) {
		ASSERT_EQ(0, evil_prepare(&e, 1));
		ASSERT_EQ(0, evil_sign(&e));
		e.request.mac[bit / 8] ^= (uint8_t)(1 << bit % 8);
		EXPECT_EQ(-ECONNREFUSED, evil_connect(e.fd, &e.request, sizeof(e.request),
						      &e.reply, sizeof(e.reply), &reason));
		EXPECT_EQ(R_BAD_MAC, reason);
		evil_end(&e);
	}
	ASSERT_EQ(0, evil_prepare(&e, 1));
	ASSERT_EQ(0, evil_sign(&e));
	e.request.nonce[0] ^= 1;
	EXPECT_EQ(-ECONNREFUSED, evil_connect(e.fd, &e.request, sizeof(e.request), &e.reply,
					      sizeof(e.reply), &reason));
	EXPECT_EQ(R_BAD_MAC, reason);
	evil_end(&e);
	EXPECT_EQ(self->refused + 5, evil_count("auth_refused"));
	EXPECT_EQ(0, evil_count("sessions"));
}

/* Who speaks later versions, too, and whose packets are small. */
TEST_F(hostile, what_both_can)
{
	struct evil e;
	int reason;

	ASSERT_EQ(0, evil_prepare(&e, 1));
	e.request.version = EVIL_VERSION + 1;
	e.request.features |= 1U << 31;
	e.request.mtu = 1;
	ASSERT_EQ(0, evil_ask(&e, &reason));
	EXPECT_EQ(EVIL_VERSION, e.reply.version);
	EXPECT_EQ(EVIL_KEYED, e.reply.features);
	EXPECT_EQ(1, e.reply.mtu);
	EXPECT_EQ(0, evil_derive(&e));
	evil_end(&e);
	EXPECT_EQ(0, evil_wait("sessions", 0));
}

/* The connection manager fills up with zeroes what is short. */
TEST_F(hostile, requests_of_other_lengths)
{
	static const size_t lengths[] = { 0, 1, 7, 8, 24, 55 };
	struct evil_reply reply;
	struct evil e;
	int reason;

	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		ASSERT_EQ(0, evil_prepare(&e, 1));
		ASSERT_EQ(0, evil_sign(&e));
		EXPECT_GT(0, evil_connect(e.fd, &e.request, lengths[i], &reply, sizeof(reply),
					  &reason)) {
			TH_LOG("%zu bytes", lengths[i]);
		}
		evil_end(&e);
		if (lengths[i] == 24)
			break;
	}
	EXPECT_LT(self->refused, evil_count("auth_refused"));
}

/* What is behind the end of a request is not looked at, and does no harm. */
TEST_F(hostile, a_long_request)
{
	uint8_t data[TOW_HOSTILE_DATA_MAX];
	struct evil_reply reply;
	struct evil e;
	int ret, reason;

	ASSERT_EQ(0, evil_prepare(&e, 1));
	memset(data, 0xa5, sizeof(data));
	memcpy(data, &e.request, sizeof(e.request));
	ret = evil_connect(e.fd, data, sizeof(data), &reply, sizeof(reply), &reason);
	/* RoCE's connection manager does not even send it. */
	EXPECT_TRUE(!ret || ret == -EINVAL || ret == -ECONNREFUSED) {
		TH_LOG("%d", ret);
	}
	evil_end(&e);
}

/* ---- proofs ---------------------------------------------------------------- */

static int prove_with(struct __test_metadata *_metadata, struct evil *e, const uint8_t mac[32])
{
	struct evil_auth auth = { .order = e->auth.order };

	memcpy(auth.mac, mac, sizeof(auth.mac));
	ASSERT_EQ(0, evil_say_last(e, T_AUTH, 0, &auth, sizeof(auth)));
	return evil_how_it_ends(e);
}

/* Told why, or not worth an answer: the connection is hardly made. */
static bool is_refused(int ended)
{
	return ended == R_BAD_MAC || ended == -ENOTCONN;
}

TEST_F(hostile, proofs_that_are_none)
{
	struct evil e, old;

	/* One bit is another. */
	for (int bit = 0; bit < 256; bit += 85) {
		ASSERT_EQ(0, evil_begin(&e, 1));
		e.auth.mac[bit / 8] ^= (uint8_t)(1 << bit % 8);
		EXPECT_TRUE(is_refused(prove_with(_metadata, &e, e.auth.mac)));
		evil_end(&e);
	}
	/* What the other end said, sent back. */
	ASSERT_EQ(0, evil_begin(&e, 1));
	EXPECT_TRUE(is_refused(prove_with(_metadata, &e, e.reply.mac)));
	evil_end(&e);
	/* What was good once, with the request that it was good for. */
	ASSERT_EQ(0, evil_begin(&old, 1));
	ASSERT_EQ(0, evil_prove(&old));
	ASSERT_EQ(0, evil_begin(&e, 1));
	EXPECT_TRUE(is_refused(prove_with(_metadata, &e, old.auth.mac)));
	evil_end(&e);
	evil_end(&old);
	EXPECT_EQ(self->refused + 6, evil_wait("auth_refused", self->refused + 6));
	EXPECT_EQ(0, evil_wait("sessions", 0));
}

/* Who says that he is the node itself is believed as little; without the key at once. */
TEST_F(hostile, the_nodes_own_name)
{
	char path[PATH_MAX], line[64];
	struct evil e;
	int reason;

	snprintf(path, sizeof(path), "/sys/class/towline/%s/incarnation", tow_test_device());
	tow_test_read_line(path, line, sizeof(line));
	ASSERT_EQ(32, strlen(line));
	for (uint32_t features = 0; features <= EVIL_KEYED; features++) {
		ASSERT_EQ(0, evil_prepare(&e, 1));
		for (size_t i = 0; i < 16; i++)
			ASSERT_EQ(1, sscanf(line + 2 * i, "%2hhx", &e.request.incarnation[i]));
		e.request.features = features;
		if (features & EVIL_KEYED) {
			ASSERT_EQ(0, evil_ask(&e, &reason));
			EXPECT_EQ(-EKEYREJECTED, evil_derive(&e));
			/* Not even its goodbye can be understood. */
			EXPECT_GT(0, prove_with(_metadata, &e, e.auth.mac));
		} else {
			EXPECT_EQ(-ECONNREFUSED, evil_ask(&e, &reason));
			EXPECT_EQ(R_NO_KEY, reason);
		}
		evil_end(&e);
	}
	EXPECT_EQ(self->refused + 2, evil_wait("auth_refused", self->refused + 2));
}

/* Everything of a connection that was good, once more. */
TEST_F(hostile, a_replayed_request)
{
	struct evil old, e;
	int reason, ret;

	ASSERT_EQ(0, evil_ready(&old, 1));
	ASSERT_EQ(0, evil_prepare(&e, 1));
	e.request = old.request;
	ret = evil_connect(e.fd, &e.request, sizeof(e.request), &e.reply, sizeof(e.reply),
			   &reason);
	if (ret) {
		/* The queue pair is another, and RoCE says so. */
		EXPECT_EQ(-ECONNREFUSED, ret);
		EXPECT_EQ(R_MALFORMED, reason);
	} else {
		EXPECT_NE(0, memcmp(e.reply.nonce, old.reply.nonce, sizeof(e.reply.nonce)));
		ASSERT_EQ(0, evil_derive(&e));
		EXPECT_TRUE(is_refused(prove_with(_metadata, &e, old.auth.mac)));
	}
	evil_end(&e);
	/* The good one did not notice. */
	EXPECT_EQ(0, evil_say(&old, T_HEARTBEAT, 0, NULL, 0));
	EXPECT_EQ(1, evil_wait("sessions", 1));
	evil_end(&old);
}

TEST_F(hostile, two_proofs)
{
	struct evil e;

	ASSERT_EQ(0, evil_begin(&e, 1));
	ASSERT_EQ(0, evil_prove(&e));
	EXPECT_EQ(R_PROTOCOL, prove_with(_metadata, &e, e.auth.mac));
	evil_end(&e);
	EXPECT_EQ(self->lies + 1, evil_wait("hostile_messages", self->lies + 1));
}

/* A tie that it cannot have: the proof is right. */
TEST_F(hostile, ties_that_are_none)
{
	struct {
		struct evil_auth auth;
		uint8_t more[8];
	} says = {};
	struct evil_authed authed;
	struct evil e;

	/* Longer than it is. */
	ASSERT_EQ(0, evil_begin(&e, 1));
	says.auth = e.auth;
	ASSERT_EQ(0, evil_say_last(&e, T_AUTH, 0, &says, sizeof(says)));
	EXPECT_EQ(R_PROTOCOL, evil_how_it_ends(&e));
	evil_end(&e);
	/* One that nobody knows: a new one begins, and it is told so. */
	ASSERT_EQ(0, evil_begin(&e, 1));
	memset(e.auth.tie, 7, sizeof(e.auth.tie));
	EXPECT_EQ(0, evil_prove(&e));
	memcpy(&authed, e.last.data + EVIL_HEADER, sizeof(authed));
	for (size_t i = 0; i < sizeof(authed.tie); i++)
		EXPECT_EQ(0, authed.tie[i]);
	evil_end(&e);
}

/* Before it has proved anything, and before it says that it is ready. */
TEST_F(hostile, out_of_turn)
{
	static const int early[] = { T_AUTHED, T_READY, T_HEARTBEAT, T_CREDIT, T_QPS, T_CANCEL };
	const uint32_t number = 1;
	struct evil e;

	for (size_t i = 0; i < ARRAY_SIZE(early); i++) {
		ASSERT_EQ(0, evil_begin(&e, 1));
		ASSERT_EQ(0, evil_say_last(&e, early[i], 0, &number,
					   early[i] == T_CANCEL ? sizeof(number) : 0));
		/* Who is not refused hears nothing, and is cut off later. */
		EXPECT_EQ(R_PROTOCOL, evil_how_it_ends(&e)) {
			TH_LOG("type %d, not authenticated", early[i]);
		}
		evil_end(&e);
	}
	ASSERT_EQ(0, evil_begin(&e, 1));
	ASSERT_EQ(0, evil_prove(&e));
	ASSERT_EQ(0, evil_say_last(&e, T_CANCEL, 0, &number, sizeof(number)));
	EXPECT_EQ(R_PROTOCOL, evil_how_it_ends(&e));
	evil_end(&e);
}

/* ---- data queue pairs ------------------------------------------------------ */

/* To where it is its turn to say which data queue pairs it has. */
static int begin_to_qps(struct evil *e)
{
	int ret = evil_begin(e, 1);

	if (!ret)
		ret = evil_prove(e);
	if (!ret)
		ret = evil_data_make_all(e);
	return ret ? ret : evil_hear_qps(e);
}

TEST_F_TIMEOUT(hostile, bad_data_queue_pairs, 60)
{
	const long long count = ARRAY_SIZE(evil_bad_qps);
	struct evil e;

	for (size_t i = 0; i < ARRAY_SIZE(evil_bad_qps); i++) {
		ASSERT_EQ(0, begin_to_qps(&e));
		ASSERT_EQ(0, evil_heard(evil_say_qps_with(&e, &evil_bad_qps[i])));
		EXPECT_EQ(R_PROTOCOL, evil_how_it_ends(&e)) {
			TH_LOG("%s", evil_bad_qps[i].name);
		}
		evil_end(&e);
	}
	EXPECT_EQ(self->lies + count, evil_wait("hostile_messages", self->lies + count));
	EXPECT_EQ(0, evil_wait("sessions", 0));
}

TEST_F(hostile, data_queue_pairs_out_of_turn)
{
	struct evil e;

	/* Its control queue pair has proved nothing. */
	ASSERT_EQ(0, evil_begin(&e, 1));
	ASSERT_EQ(0, evil_data_make_all(&e));
	ASSERT_EQ(0, evil_heard(evil_say_qps(&e)));
	EXPECT_EQ(R_PROTOCOL, evil_how_it_ends(&e));
	evil_end(&e);
	EXPECT_EQ(self->refused + 1, evil_wait("auth_refused", self->refused + 1));
	/* Twice is once too often. */
	ASSERT_EQ(0, begin_to_qps(&e));
	ASSERT_EQ(0, evil_join(&e));
	ASSERT_EQ(0, evil_say_qps(&e));
	ASSERT_EQ(0, evil_heard(evil_say_qps(&e)));
	EXPECT_EQ(R_PROTOCOL, evil_how_it_ends(&e));
	evil_end(&e);
	EXPECT_EQ(self->lies + 1, evil_wait("hostile_messages", self->lies + 1));
	EXPECT_EQ(0, evil_wait("sessions", 0));
}

/* It need not wait for the other end's: what it says is kept until those are made. */
TEST_F_TIMEOUT(hostile, data_queue_pairs_said_first, 60)
{
	struct evil e;

	ASSERT_EQ(0, tow_halt_begin("tow_qp_create"));
	ASSERT_EQ(0, evil_begin(&e, 1));
	ASSERT_EQ(0, evil_prove(&e));
	ASSERT_EQ(0, evil_data_make_all(&e));
	EXPECT_TRUE(tow_halt_wait());
	EXPECT_EQ(0, evil_say_qps(&e));
	/* CREDIT comes when half of all credits are used: QPS was handled by then. */
	for (int i = 2; i < EVIL_CREDITS / 2; i++)
		EXPECT_EQ(0, evil_say(&e, T_HEARTBEAT, 0, NULL, 0));
	EXPECT_EQ(T_CREDIT, evil_hear_any(&e, EVIL_WAIT_MS));
	EXPECT_EQ(0, tow_halt_end());
	ASSERT_EQ(0, evil_hear_qps(&e));
	ASSERT_EQ(0, evil_join(&e));
	ASSERT_EQ(0, evil_hear_proofs(&e));
	ASSERT_EQ(0, evil_say_proofs(&e, EVIL_MTU_BYTES));
	e.ready = evil_hear(&e, EVIL_WAIT_MS) == T_READY;
	ASSERT_TRUE(e.ready);
	EXPECT_EQ(0, evil_use(&e));
	evil_end(&e);
	EXPECT_EQ(self->lies, evil_count("hostile_messages"));
}

/* No data can arrive there. */
static const struct evil_qps_change lost_qps[] = {
	EVIL_QPS_CHANGE(qp_num[0], 0, 0),
	EVIL_QPS_CHANGE(qp_num[0], 0xffffff, 0),
};

/* More than anybody has: the smaller number of both ends counts. */
static const struct evil_qps_change odd_qps[] = {
	EVIL_QPS_CHANGE(answers, 0xffff, 0),
	EVIL_QPS_CHANGE(asks, 0xffff, 0),
};

/* The packet is sent seven times, a second apart; soft-RoCE of 6.1 takes twice as long. */
#define LOST_WAITS 3

static int how_it_ends_when_lost(struct evil *e)
{
	int how = -ETIMEDOUT;

	for (int i = 0; how == -ETIMEDOUT && i < LOST_WAITS; i++)
		how = evil_how_it_ends(e);
	return how;
}

TEST_F_TIMEOUT(hostile, data_queue_pairs_that_nobody_has, 90)
{
	struct evil e;

	for (size_t i = 0; i < ARRAY_SIZE(lost_qps); i++) {
		ASSERT_EQ(0, begin_to_qps(&e));
		ASSERT_EQ(0, evil_join(&e));
		ASSERT_EQ(0, evil_say_qps_with(&e, &lost_qps[i]));
		EXPECT_EQ(-ENOTCONN, how_it_ends_when_lost(&e)) {
			TH_LOG("%s", lost_qps[i].name);
		}
		evil_end(&e);
	}
	EXPECT_EQ(self->lies, evil_count("hostile_messages"));
	EXPECT_EQ(0, evil_wait("sessions", 0));
}

/* Until ours are next. */
static int begin_to_proofs(struct evil *e)
{
	int ret = begin_to_qps(e);

	ret = ret ? ret : evil_join(e);
	ret = ret ? ret : evil_say_qps(e);
	return ret ? ret : evil_hear_proofs(e);
}

/* What should be one long packet is something else. */
TEST_F(hostile, proofs_of_the_path_that_are_none)
{
	struct tow_hostile_message not_short = { .bytes = 2 };
	struct tow_hostile_notify notify = { .count = 1 };
	struct evil e;

	ASSERT_EQ(0, begin_to_proofs(&e));
	(void)tow_test_ioctl(e.data[0], TOW_HOSTILE_NOTIFY, &notify);
	EXPECT_EQ(R_PROTOCOL, evil_how_it_ends(&e));
	evil_end(&e);
	/* The short one is not short. */
	ASSERT_EQ(0, begin_to_proofs(&e));
	(void)tow_test_ioctl(e.data[0], TOW_HOSTILE_SEND, &not_short);
	EXPECT_EQ(R_PROTOCOL, evil_how_it_ends(&e));
	evil_end(&e);
	/* The long one is of another length. */
	ASSERT_EQ(0, begin_to_proofs(&e));
	(void)evil_say_proofs(&e, EVIL_MTU_BYTES - 1);
	EXPECT_EQ(R_PROTOCOL, evil_how_it_ends(&e));
	evil_end(&e);
	EXPECT_EQ(self->lies + 3, evil_wait("hostile_messages", self->lies + 3));
	EXPECT_EQ(0, evil_wait("sessions", 0));
}

TEST_F(hostile, odd_data_queue_pairs)
{
	struct evil e;

	for (size_t i = 0; i < ARRAY_SIZE(odd_qps); i++) {
		ASSERT_EQ(0, begin_to_qps(&e));
		ASSERT_EQ(0, evil_join(&e));
		ASSERT_EQ(0, evil_say_qps_with(&e, &odd_qps[i]));
		ASSERT_EQ(0, evil_hear_proofs(&e));
		ASSERT_EQ(0, evil_say_proofs(&e, EVIL_MTU_BYTES));
		e.ready = evil_hear(&e, EVIL_WAIT_MS) == T_READY;
		EXPECT_TRUE(e.ready) {
			TH_LOG("%s", odd_qps[i].name);
		}
		EXPECT_EQ(0, evil_use(&e)) {
			TH_LOG("%s", odd_qps[i].name);
		}
		evil_end(&e);
		EXPECT_EQ(0, evil_wait("sessions", 0));
	}
	EXPECT_EQ(self->lies, evil_count("hostile_messages"));
}

/* ---- silence --------------------------------------------------------------- */

/*
 * One whose time is over is not half open any more, and counts as a session until its
 * queue pair is gone, a moment later: here it may be the one too many.
 */
static long long half_open_sessions(void)
{
	struct tow_patience patience = tow_patience(ENDING_SECONDS);
	long long count;

	while ((count = evil_count("sessions")) > HALF_OPEN && tow_patient(&patience))
		tow_test_sleep_ms(10);
	return count;
}

TEST_F_TIMEOUT(hostile, who_says_nothing, 300)
{
	static struct evil silent[SILENT];
	int accepted = 0, busy = 0, reason;

	for (int i = 0; i < SILENT; i++) {
		int ret = evil_prepare(&silent[i], 1);

		ASSERT_EQ(0, ret);
		ret = evil_ask(&silent[i], &reason);
		if (!ret) {
			accepted++;
		} else {
			ASSERT_EQ(-ECONNREFUSED, ret);
			ASSERT_EQ(R_BUSY, reason);
			busy++;
		}
		ASSERT_GE(HALF_OPEN, half_open_sessions());
	}
	TH_LOG("%d accepted, %d too many", accepted, busy);
	EXPECT_LE(HALF_OPEN / 2, accepted);
	/* All of them are counted, those that were waited for as well. */
	EXPECT_EQ(0, evil_wait("sessions", 0));
	EXPECT_EQ(self->refused + SILENT, evil_wait("auth_refused", self->refused + SILENT));
	for (int i = 0; i < SILENT; i++)
		evil_end(&silent[i]);
}

/* ---- messages: those that end it ------------------------------------------- */

struct lie {
	const char *name;
	int type;
	uint32_t request;
	size_t bytes;
	uint8_t body[sizeof(struct evil_auth)];
};

/* RESOLVE: job 16, uid 4, rights 4, wait 1, name_bytes 1, reserved 2, request 4, name. */
#define RIGHTS(value)	[20] = (value)
#define WAIT(value)	[24] = (value)
#define NAME(bytes, ...) [25] = (bytes), [32] = __VA_ARGS__

static const struct lie lies[] = {
	{ "no type", 0, 0, 0, {} },
	{ "a type that there is not", 8, 0, 0, {} },
	{ "QPS once more", T_QPS, 0, 16, {} },
	{ "another", 15, 0, 0, {} },
	{ "another", 25, 0, 0, {} },
	{ "the last type", 255, 0, 0, {} },
	{ "AUTH", T_AUTH, 0, sizeof(struct evil_auth), { [32] = 1 } },
	{ "AUTHED", T_AUTHED, 0, sizeof(struct evil_authed), {} },
	{ "READY", T_READY, 0, 0, {} },
	{ "a heartbeat with a body", T_HEARTBEAT, 0, 1, {} },
	{ "a heartbeat with a request", T_HEARTBEAT, 1, 0, {} },
	{ "a goodbye that is short", T_GOODBYE, 0, 4, {} },
	{ "a goodbye with more", T_GOODBYE, 0, 8, { 11, 0, 0, 0, 1 } },
	{ "RESOLVE of nothing", T_RESOLVE, 0, 0, {} },
	{ "RESOLVE that is short", T_RESOLVE, 0, 31, { RIGHTS(1) } },
	{ "RESOLVE without a name", T_RESOLVE, 0, 32, { RIGHTS(1) } },
	{ "RESOLVE of a short name", T_RESOLVE, 0, 36, { RIGHTS(1), NAME(5, 'w') } },
	{ "RESOLVE of a long name", T_RESOLVE, 0, 40, { RIGHTS(1), NAME(2, 'w', 'w') } },
	{ "RESOLVE without its padding", T_RESOLVE, 0, 33, { RIGHTS(1), NAME(1, 'w') } },
	{ "RESOLVE with another padding", T_RESOLVE, 0, 36, { RIGHTS(1), NAME(1, 'w', 'w') } },
	{ "RESOLVE of a control character", T_RESOLVE, 0, 36, { RIGHTS(1), NAME(1, '\n') } },
	{ "RESOLVE without rights", T_RESOLVE, 0, 36, { RIGHTS(0), NAME(1, 'w') } },
	{ "RESOLVE with other rights", T_RESOLVE, 0, 36, { RIGHTS(16), NAME(1, 'w') } },
	{ "RESOLVE of a slot to read", T_RESOLVE, 0, 36, { RIGHTS(9), NAME(1, 'w') } },
	{ "RESOLVE with atomics alone", T_RESOLVE, 0, 36, { RIGHTS(4), NAME(1, 'w') } },
	{ "RESOLVE that waits twice", T_RESOLVE, 0, 36, { RIGHTS(1), WAIT(2), NAME(1, 'w') } },
	{ "RESOLVE with more", T_RESOLVE, 0, 36, { RIGHTS(1), [26] = 1, NAME(1, 'w') } },
	{ "RESOLVE with more", T_RESOLVE, 0, 36, { RIGHTS(1), [27] = 1, NAME(1, 'w') } },
	{ "RESOLVE with a number", T_RESOLVE, 1, 36, { RIGHTS(1), NAME(1, 'w') } },
	{ "RESOLVE of a job and a user", T_RESOLVE, 0, 36,
	  { 1, [16] = 1, RIGHTS(1), NAME(1, 'w') } },
	{ "RESOLVE of a name, and of half of one", T_RESOLVE, 0, 60, { RIGHTS(1), NAME(1, 'w') } },
	{ "RESOLVE_MORE of the first", T_RESOLVE_MORE, 1, 16, { 1 } },
	{ "RESOLVE_MORE with more", T_RESOLVE_MORE, 1, 16, { 1, [8] = 1, [12] = 1 } },
	{ "RESOLVE_MORE that is long", T_RESOLVE_MORE, 1, 17, { 1, [8] = 1 } },
	{ "CANCEL of nothing", T_CANCEL, 0, 0, {} },
	{ "CANCEL of one and a half", T_CANCEL, 0, 6, { 1 } },
	{ "CANCEL with a number", T_CANCEL, 1, 4, { 1 } },
	{ "no answer", T_RESOLVED, 0, 0, {} },
	{ "an answer to nothing", T_RESOLVED, 0, 40, { [16] = 1, [36] = 1 } },
	{ "an answer with a number", T_RESOLVED, 1, 40, { [16] = 1, [36] = 1 } },
	{ "an answer that is short", T_RESOLVED, 0, 39, {} },
	{ "an answer that says that it is long", T_RESOLVED, 0, 40, { 1, [24] = 1, [32] = 1 } },
	{ "REVOKE of none", T_REVOKE, 0, 8, {} },
	{ "REVOKE of more than there are", T_REVOKE, 0, 16, { 2 } },
	{ "REVOKE of fewer than there are", T_REVOKE, 0, 24, { 1 } },
	{ "REVOKE of very many", T_REVOKE, 0, 16, { 255, 255, 255, 255 } },
	{ "REVOKE with a request", T_REVOKE, 1, 16, { 1, [8] = 1 } },
	{ "REVOKE with more", T_REVOKE, 0, 16, { 1, [4] = 1, [8] = 1 } },
	{ "REVOKED of none", T_REVOKED, 0, 8, {} },
	{ "REVOKED of what was not given", T_REVOKED, 0, 16, { 1, [12] = 1 } },
	{ "REVOKED of no name", T_REVOKED, 0, 16, { 1 } },
	{ "RELEASE of what was not given", T_RELEASE, 0, 16, { 1, [12] = 1 } },
	{ "RELEASE of the largest number", T_RELEASE, 0, 16,
	  { 1, [8] = 255, 255, 255, 255, 255, 255, 255, 255 } },
	{ "NOTIFIED of nothing", T_NOTIFIED, 0, 8, {} },
	{ "NOTIFIED of what was not sent", T_NOTIFIED, 0, 8, { 1 } },
	{ "NOTIFIED of very many", T_NOTIFIED, 0, 8, { 255, 255, 255, 255 } },
	{ "NOTIFIED that is short", T_NOTIFIED, 0, 7, { 1 } },
	{ "NOTIFIED that is long", T_NOTIFIED, 0, 9, { 1 } },
	{ "NOTIFIED with more", T_NOTIFIED, 0, 8, { 1, [4] = 1 } },
	{ "NOTIFIED with a request", T_NOTIFIED, 1, 8, { 1 } },
	{ "SYNC, and nothing was before", T_SYNC, 0, 20, { [4] = 1 } },
	{ "SYNC that is short", T_SYNC, 0, 15, {} },
	{ "SYNC with a request", T_SYNC, 1, 20, { [4] = 1 } },
	{ "RELEASE that overflows", T_RELEASE, 0, 16, { [3] = 0x20, [8] = 1 } },
};

static int tell(struct evil *e, const struct lie *lie)
{
	double begin = tow_test_now(), said;
	int ret = evil_say_last(e, lie->type, lie->request, lie->body, lie->bytes);
	int ends = 0;

	said = tow_test_now();
	if (!ret)
		ends = evil_how_it_ends(e);
	if (ret || ends < 0)
		printf("# saying it: %d, %.3f s; hearing how it ends: %d, %.3f s\n", ret, said - begin,
		       ends, tow_test_now() - said);
	return ret ? ret : ends;
}

TEST_F_TIMEOUT(hostile, lies_end_it, 600)
{
	struct evil e;

	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		ASSERT_EQ(0, evil_ready(&e, 1)) {
			TH_LOG("before: %s", lies[i].name);
		}
		EXPECT_EQ(R_PROTOCOL, tell(&e, &lies[i])) {
			TH_LOG("%s", lies[i].name);
		}
		evil_end(&e);
	}
	EXPECT_EQ(self->lies + (long long)ARRAY_SIZE(lies),
		  evil_wait("hostile_messages", self->lies + (long long)ARRAY_SIZE(lies)));
}

enum twist { LENGTH, RESERVED, RESERVED2, AGAIN, AHEAD, MORE_CREDIT, LESS_CREDIT, NO_MAC, BIT, TWISTS };

static const char * const twist_name[TWISTS] = {
	"another length", "the first reserved byte", "the last reserved bytes",
	"the counter of before", "a counter ahead", "credit for what was not said",
	"credit taken back", "no MAC", "one bit",
};

static int twisted(struct evil *e, enum twist twist)
{
	struct evil_header header = evil_header(e, T_HEARTBEAT, 0, 0);
	struct tow_hostile_message call = { .bytes = sizeof(header), .sign = twist != NO_MAC };
	int ret;

	header.bytes = (uint16_t)(header.bytes + (twist == LENGTH));
	header.reserved = twist == RESERVED;
	header.reserved2 = twist == RESERVED2 ? 1U << 31 : 0;
	header.counter += twist == AHEAD ? 1 : twist == AGAIN ? -1ULL : 0;
	if (twist == MORE_CREDIT)
		header.credits += 1000;
	if (twist == LESS_CREDIT)
		header.credits -= 2;
	memcpy(call.data, &header, sizeof(header));
	/* It says what it had signed before. */
	if (twist == BIT) {
		call.sign = false;
		memcpy(call.data, e->last.data, sizeof(header));
	}
	ret = evil_heard(tow_test_ioctl(e->fd, TOW_HOSTILE_SEND, &call));
	return ret ? ret : evil_how_it_ends(e);
}

TEST_F_TIMEOUT(hostile, headers_that_lie, 300)
{
	struct evil e;

	for (int i = 0; i < TWISTS; i++) {
		ASSERT_EQ(0, evil_ready(&e, 1));
		EXPECT_EQ(i < NO_MAC ? R_PROTOCOL : R_BAD_MAC, twisted(&e, (enum twist)i)) {
			TH_LOG("%s", twist_name[i]);
		}
		evil_end(&e);
	}
	EXPECT_EQ(self->lies + TWISTS, evil_wait("hostile_messages", self->lies + TWISTS));
}

/* Less than a header; more than there is room for. */
TEST_F(hostile, messages_of_other_sizes)
{
	static const size_t sizes[] = { 1, 39, 513, 1024 };
	static const uint8_t nonsense[TOW_HOSTILE_BYTES_MAX];
	struct evil e;

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		ASSERT_EQ(0, evil_patience(EVIL_PATIENT));
		ASSERT_EQ(0, evil_ready(&e, 1));
		/* A queue pair that takes no such message may say so itself. */
		ASSERT_EQ(0, evil_patience(EVIL_HASTY));
		(void)evil_say_raw(&e, nonsense, sizes[i], false);
		EXPECT_NE(-ETIMEDOUT, evil_how_it_ends(&e)) {
			TH_LOG("%zu bytes", sizes[i]);
		}
		evil_end(&e);
		EXPECT_EQ(0, evil_wait("sessions", 0));
	}
	ASSERT_EQ(0, evil_patience(EVIL_PATIENT));
}

/* ---- messages: those that are answered, or let pass ------------------------ */

/* Answers come later; those that are there are taken, so that there is room. */
static int drain(struct evil *e)
{
	int type = 0;

	while (type >= 0)
		type = evil_hear(e, 0);
	return type == -ETIMEDOUT ? 0 : type;
}

static int say_nonsense(struct evil *e, uint32_t round)
{
	uint8_t body[48] = { 1, [8] = (uint8_t)round, (uint8_t)(round >> 8), 1 };
	struct evil_resolve name = evil_resolve('w', round, TOW_RIGHT_READ);
	struct evil_resolve names[] = { name, name, name };

	names[1].wait = 1;
	names[1].name[0] = (char)('a' + round % 26);
	names[2].request = round + (1U << 24);
	switch (round % 6) {
	case 0:
		return evil_say(e, T_HEARTBEAT, 0, NULL, 0);
	case 1:
		return evil_say(e, T_RESOLVE, 0, &name, sizeof(name));
	case 2:
		return evil_say(e, T_RESOLVE, 0, names, sizeof(names));
	case 3:
		return evil_cancel(e, round - 1);
	case 4:
		return evil_cancel(e, round * 77);
	default:
		return evil_say(e, T_RESOLVE_MORE, round, body, 16);
	}
}

TEST_F_TIMEOUT(hostile, many_messages, 1000)
{
	uint32_t count = (uint32_t)tow_test_count(tow_test_slow() ? MESSAGES / 5 : MESSAGES);
	uint32_t said = 0, sessions = 0;
	struct evil e;

	while (said < count) {
		ASSERT_EQ(0, evil_ready(&e, 1));
		for (int i = 0; i < 250 && said < count; i++, said++) {
			ASSERT_EQ(0, evil_await_room(&e));
			ASSERT_EQ(0, say_nonsense(&e, said)) {
				TH_LOG("message %u", said);
			}
			ASSERT_EQ(0, drain(&e)) {
				TH_LOG("message %u", said);
			}
		}
		ASSERT_EQ(0, evil_await_room(&e));
		EXPECT_EQ(R_PROTOCOL, tell(&e, &lies[sessions % ARRAY_SIZE(lies)]));
		evil_end(&e);
		sessions++;
	}
	EXPECT_EQ(self->lies + sessions, evil_wait("hostile_messages", self->lies + sessions));
	EXPECT_EQ(0, evil_wait("grants", 0));
}

TEST_HARNESS_MAIN

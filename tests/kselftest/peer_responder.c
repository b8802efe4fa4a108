// SPDX-License-Identifier: GPL-2.0
/*
 * The node connects to one that lies (tow_hostile.ko): its answer makes no sense, is
 * another's or an old one, was changed on the way or is missing; it says nothing at
 * each stage, hangs up at each, or says what must not be.  Whoever wanted the peer is
 * told by the documented errno, nothing is left behind, and the same node is connected
 * to as soon as it is honest.  (To be run by tests/lab/evil-nodes.)
 */
#include <glob.h>
#include <pthread.h>
#include <stdatomic.h>

#include "tow_evil_again.h"
#include "tow_evil_range.h"
#include "tow_halt.h"

/* One try, where tries are repeated; and long enough for an honest one. */
#define SHORT_MS	"1500"
#define LONG_MS		"10000"
/* As many as the module makes when connections end in the middle. */
#define RESET_TRIES	3
/* More than there are of any kind. */
#define TRIES_MOST	100
/* A node's lives, one after the other. */
#define LIVES		20
/* Sessions of one association: more than fit into this time with pauses between. */
#define SYNCS_MOST	20
#define SYNCS_MS	"10000"
/* Of them an operation breaks so many at most: it is posted again eight times. */
#define BROKEN_BY_ONE	9
/* More than all pauses between those. */
#define PAUSES_MS	"60000"

/* ---- what the node under test does ------------------------------------------------ */

/* The peers that it knows, and the last of them; or a negative errno. */
static int count_peers(int fd, struct tow_peer_info *last)
{
	struct tow_peer_info entries[16];
	struct tow_peer_list call = {
		.size = sizeof(call), .entries = (uintptr_t)entries,
		.entry_size = sizeof(entries[0]), .count = ARRAY_SIZE(entries),
	};
	int ret = tow_test_ioctl(fd, TOW_IOCTL_PEER_LIST, &call);

	if (ret)
		return ret;
	if (call.count)
		*last = entries[call.count - 1];
	return (int)call.count;
}

/* enum ib_cm_rej_reason */
#define CM_STALE_CONN		10
#define CM_CONSUMER_DEFINED	28

/* ---- what the lying one does --------------------------------------------------------- */

enum act {
	SILENT,		/* say nothing more */
	HANG_UP,
	REPLY,		/* a field of the answer is another one, and proved so */
	FORGE,		/* bits of a field are others, and the proof is not of that */
	CUT,		/* only the first @bytes of the answer */
	REJECT,		/* the request: @type is the reason */
	TELL,		/* QPS, with @change */
	SAY,		/* a message: @type */
	SAY_UNSIGNED,
	SAY_AHEAD	/* with a counter that is not the next */
};

struct lie {
	const char *name;
	enum evil_stage stage;	/* up to here it is honest */
	enum act act;
	int error;		/* for the caller */
	size_t offset;		/* of the field in struct evil_reply */
	size_t bytes;
	uint64_t value;
	int type;
	uint32_t reason;	/* of T_GOODBYE; of REJECT: the connection manager's */
	const struct evil_qps_change *change;
	bool counted;		/* in hostile_messages */
};

static void spoil(struct evil_reply *reply, const struct lie *lie)
{
	uint8_t *at = (uint8_t *)reply + lie->offset;

	if (lie->act == CUT)
		memset((char *)reply + lie->bytes, 0, sizeof(*reply) - lie->bytes);
	else if (lie->act == REPLY)
		memcpy(at, &lie->value, lie->bytes);
	else
		*at ^= (uint8_t)lie->value;
}

static int tell_reply(struct evil *e, const struct lie *lie)
{
	int ret;

	if (lie->act == REPLY)
		spoil(&e->reply, lie);
	ret = evil_make_keys(e, true, e->reply.mac);
	if (lie->act != REPLY)
		spoil(&e->reply, lie);
	/* It may be refused before it is established. */
	(void)evil_accept(e->fd, &e->reply, lie->act == CUT ? lie->bytes : sizeof(e->reply));
	return ret;
}

static int tell_reject(int fd, const struct lie *lie)
{
	struct {
		uint32_t magic;
		uint8_t version, lowest;
		uint16_t reason;
	} said = {
		.magic = EVIL_MAGIC, .version = EVIL_VERSION, .lowest = EVIL_VERSION, .reason = (uint16_t)lie->type,
	};

	memcpy((char *)&said + lie->offset, &lie->value, lie->bytes);
	return evil_reject(fd, lie->reason ?: CM_CONSUMER_DEFINED, &said, sizeof(said));
}

static int tell_qps(struct evil *e, const struct lie *lie)
{
	int ret = lie->stage < EVIL_TOLD ? evil_data_make_all(e) : 0;

	return ret ? ret : evil_heard(evil_say_qps_with(e, lie->change));
}

static int tell_message(struct evil *e, const struct lie *lie)
{
	uint32_t body[2] = { lie->reason, 0 };
	size_t bytes = lie->type == T_GOODBYE ? sizeof(body) : lie->bytes;
	uint8_t message[EVIL_HEADER + sizeof(body)];
	struct evil_header header = evil_header(e, lie->type, 0, bytes);

	header.counter += lie->act == SAY_AHEAD;
	memcpy(message, &header, sizeof(header));
	memcpy(message + sizeof(header), body, sizeof(body));
	return evil_heard(evil_say_raw(e, message, sizeof(header) + bytes,
				       lie->act != SAY_UNSIGNED));
}

/* A connection that has been taken, to its end. */
static int tell(struct evil *e, const struct lie *lie)
{
	int ret = evil_serve(e, lie->stage);

	if (ret || lie->act == HANG_UP)
		return ret;
	switch (lie->act) {
	case REPLY:
	case FORGE:
	case CUT:
		ret = tell_reply(e, lie);
		break;
	case REJECT:
		/* Who rejects is not told any more of it. */
		return tell_reject(e->fd, lie);
	case TELL:
		ret = tell_qps(e, lie);
		break;
	case SAY:
	case SAY_UNSIGNED:
	case SAY_AHEAD:
		ret = tell_message(e, lie);
		break;
	default:
		break;
	}
	/* Not before the other end has judged it. */
	(void)evil_how_it_ends(e);
	return ret;
}

FIXTURE(responder)
{
	struct evil_host host;
	long long refused;
	long long lies;
};

/* Tries of the node, and those of them in whose middle the guest may have stood still. */
struct tries {
	int all, doubtful;
};

/* Of the others there are no more than so many, and of all no fewer. */
static bool tried(const struct tries *tries, int count)
{
	return tries->all - tries->doubtful <= count && count <= tries->all;
}

/* As often as the node tries; @tries, and what its caller is told. */
static int play(FIXTURE_DATA(responder) *self, const struct lie *lie, struct tries *tries)
{
	struct evil_connecting *work = &self->host.work;
	double since = tow_test_now();
	struct evil e;
	int ret;

	*tries = (struct tries){};
	ret = evil_host_begin(work, self->host.fd);
	while (!ret && !atomic_load(&work->done)) {
		ret = evil_called(&e, self->host.listener, 100);
		if (!ret) {
			ret = tell(&e, lie);
			tries->all++;
			if (lie->act != SILENT && evil_stood_still(&since)) {
				tries->doubtful++;
				ret = 0;
			}
		} else if (ret == -ETIMEDOUT || ret == -ENOTCONN) {
			ret = 0;
		}
		evil_end(&e);
	}
	pthread_join(work->thread, NULL);
	return ret ? ret : work->ret;
}

/* Whatever a case has left: connections first, then peers. */
static int forget_all(int fd)
{
	struct tow_peer_info info;
	int count, tries = 0;

	while ((count = count_peers(fd, &info)) > 0 && tries++ < TRIES_MOST)
		(void)evil_host_disconnect(fd, info.peer);
	return count;
}

FIXTURE_SETUP(responder)
{
	struct tow_peer_info info;

	ASSERT_EQ(0, evil_share_key());
	ASSERT_EQ(0, evil_set("allow_unauthenticated", "0"));
	ASSERT_EQ(0, evil_set("qps_per_peer", "2"));
	self->host.listener = evil_listen(EVIL_HOST_PORT);
	ASSERT_LE(0, self->host.listener);
	self->host.fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->host.fd);
	ASSERT_EQ(0, count_peers(self->host.fd, &info));
	self->refused = evil_count("auth_refused");
	self->lies = evil_count("hostile_messages");
}

/* Now it is honest; and all are forgotten in the end, for the next case. */
FIXTURE_TEARDOWN(responder)
{
	struct tow_peer_info info = {};
	struct evil e;

	EXPECT_EQ(0, evil_wait("sessions", 0));
	EXPECT_EQ(0, evil_set("reconnect_timeout_ms", LONG_MS));
	EXPECT_EQ(0, evil_host_serve(&self->host, &e, 0));
	EXPECT_EQ(1, count_peers(self->host.fd, &info));
	EXPECT_EQ(TOW_PEER_READY, info.state);
	EXPECT_EQ(self->host.work.call.peer, info.peer);
	/* Nobody asked us for anything, hence nobody was refused. */
	EXPECT_EQ(self->refused, evil_count("auth_refused"));
	EXPECT_EQ(0, evil_host_disconnect(self->host.fd, info.peer));
	evil_end(&e);
	EXPECT_EQ(0, forget_all(self->host.fd));
	EXPECT_EQ(0, evil_wait("sessions", 0));
	close(self->host.fd);
	close(self->host.listener);
}

static void play_all(struct __test_metadata *_metadata, FIXTURE_DATA(responder) *self,
		     const struct lie *lies, size_t count)
{
	long long counted = 0;
	struct tries tries;

	for (size_t i = 0; i < count; i++) {
		EXPECT_EQ(lies[i].error, play(self, &lies[i], &tries)) {
			TH_LOG("%s", lies[i].name);
		}
		EXPECT_TRUE(tried(&tries, lies[i].error == -ECONNRESET ? RESET_TRIES : 1)) {
			TH_LOG("%s: %d tries, %d of them doubtful", lies[i].name,
			       tries.all, tries.doubtful);
		}
		counted += lies[i].counted;
	}
	EXPECT_EQ(self->lies + counted, evil_wait("hostile_messages", self->lies + counted));
}

/* ---- answers ------------------------------------------------------------------------ */

#define FIELD(field)	.offset = offsetof(struct evil_reply, field), \
			.bytes = sizeof(((struct evil_reply *)0)->field)

#define PROVED_AS(field, to, why) \
	{ #field " is " #to, EVIL_CALLED, REPLY, why, FIELD(field), .value = (to) }
#define FORGED(field, to) \
	{ #field " was changed", EVIL_CALLED, FORGE, -EKEYREJECTED, FIELD(field), .value = (to) }
#define CUT_TO(size, why) \
	{ #size " bytes", EVIL_CALLED, CUT, why, .bytes = (size) }

/* RoCE fills up with zeroes what is cut off. */
static const struct lie bad_replies[] = {
	PROVED_AS(magic, 0, -EPROTO),
	PROVED_AS(magic, 0x4c574f55, -EPROTO),
	PROVED_AS(version, 0, -EPROTONOSUPPORT),
	PROVED_AS(version, EVIL_LOWEST - 1, -EPROTONOSUPPORT),
	PROVED_AS(version, EVIL_VERSION + 1, -EPROTONOSUPPORT),
	PROVED_AS(qp_num, 1, -EPROTO),
	PROVED_AS(features, 0, -ENOKEY),
	PROVED_AS(features, EVIL_KEYED | 2, -ENOKEY),
	PROVED_AS(qps, 0, -EPROTO),
	PROVED_AS(qps, 3, -EPROTO),
	PROVED_AS(qps, 0xff, -EPROTO),
	PROVED_AS(mtu, 0, -EPROTO),
	/* More than it was asked for: that is 5. */
	PROVED_AS(mtu, 6, -EPROTO),
	PROVED_AS(reserved0, 1, -EPROTO),
	PROVED_AS(reserved[0], 1, -EPROTO),
	PROVED_AS(reserved[7], 1, -EPROTO),
	FORGED(incarnation[0], 1),
	FORGED(nonce[0], 1),
	FORGED(qps, 3),
	FORGED(mac[0], 1),
	FORGED(mac[31], 1),
	CUT_TO(0, -EPROTO),
	CUT_TO(8, -EPROTO),
	CUT_TO(64, -EKEYREJECTED),
	CUT_TO(72, -EKEYREJECTED),
};

TEST_F_TIMEOUT(responder, replies_that_are_none, 300)
{
	play_all(_metadata, self, bad_replies, ARRAY_SIZE(bad_replies));
}

/* All of an answer that was good once, for the queue pair of now. */
TEST_F_TIMEOUT(responder, a_replayed_reply, 100)
{
	struct evil_reply old;
	struct evil e;

	ASSERT_EQ(0, evil_host_serve(&self->host, &e, 0));
	old = e.reply;
	ASSERT_EQ(0, evil_host_disconnect(self->host.fd, self->host.work.call.peer));
	evil_end(&e);
	ASSERT_EQ(0, evil_host_begin(&self->host.work, self->host.fd));
	ASSERT_EQ(0, evil_called(&e, self->host.listener, EVIL_WAIT_MS));
	old.qp_num = e.reply.qp_num;
	(void)evil_accept(e.fd, &old, sizeof(old));
	/* Not even its goodbye is for us. */
	EXPECT_GT(0, evil_how_it_ends(&e));
	evil_end(&e);
	pthread_join(self->host.work.thread, NULL);
	EXPECT_EQ(-EKEYREJECTED, self->host.work.ret);
}

/* What the initiator would prove with; and what only the node itself can. */
TEST_F_TIMEOUT(responder, proofs_of_others, 100)
{
	char path[PATH_MAX], line[64];
	uint8_t mac[32];
	struct evil e;

	snprintf(path, sizeof(path), "/sys/class/towline/%s/incarnation", tow_test_device());
	tow_test_read_line(path, line, sizeof(line));
	ASSERT_EQ(32, strlen(line));
	for (int own = 0; own < 2; own++) {
		ASSERT_EQ(0, evil_host_begin(&self->host.work, self->host.fd));
		ASSERT_EQ(0, evil_called(&e, self->host.listener, EVIL_WAIT_MS));
		for (size_t i = 0; own && i < 16; i++)
			ASSERT_EQ(1, sscanf(line + 2 * i, "%2hhx", &e.reply.incarnation[i]));
		ASSERT_EQ(0, evil_make_keys(&e, true, mac));
		memcpy(e.reply.mac, own ? mac : e.auth.mac, sizeof(mac));
		(void)evil_accept(e.fd, &e.reply, sizeof(e.reply));
		(void)evil_how_it_ends(&e);
		evil_end(&e);
		pthread_join(self->host.work.thread, NULL);
		EXPECT_EQ(-EKEYREJECTED, self->host.work.ret);
	}
}

/* ---- rejections ----------------------------------------------------------------------- */

#define REJECTED(why, error) { "rejected: " #why, EVIL_CALLED, REJECT, error, .type = (why) }

static const struct lie rejections[] = {
	REJECTED(R_MALFORMED, -EPROTO),
	REJECTED(R_BAD_VERSION, -EPROTONOSUPPORT),
	REJECTED(R_NO_KEY, -ENOKEY),
	REJECTED(R_BAD_MAC, -EKEYREJECTED),
	REJECTED(R_PROTOCOL, -EPROTO),
	REJECTED(9, -ENOSPC),
	REJECTED(0, -ECONNRESET),
	REJECTED(999, -ECONNRESET),
	{ "rejected by who knows what", EVIL_CALLED, REJECT, -ECONNREFUSED,
	  .offset = 0, .bytes = 4, .value = 0x1234 },
	{ "rejected in another version", EVIL_CALLED, REJECT, -EPROTONOSUPPORT,
	  .offset = 4, .bytes = 2, .value = 0x909, .type = R_NO_KEY },
};

TEST_F_TIMEOUT(responder, rejections_with_reasons, 200)
{
	play_all(_metadata, self, rejections, ARRAY_SIZE(rejections));
}

/* It has too much to do, or an earlier connection, each time it is asked. */
TEST_F_TIMEOUT(responder, busy_for_ever, 100)
{
	static const struct lie busy[] = {
		REJECTED(R_BUSY, -EAGAIN),
		{ "rejected as stale", EVIL_CALLED, REJECT, -EAGAIN, .reason = CM_STALE_CONN },
	};
	struct tries tries;

	ASSERT_EQ(0, evil_set("reconnect_timeout_ms", "6000"));
	for (size_t i = 0; i < ARRAY_SIZE(busy); i++) {
		EXPECT_EQ(busy[i].error, play(self, &busy[i], &tries))
			TH_LOG("%s", busy[i].name);
		EXPECT_LT(1, tries.all);
		EXPECT_GE(6000 / 100 + 1, tries.all);
	}
}

/* ---- data queue pairs ----------------------------------------------------------------- */

TEST_F_TIMEOUT(responder, data_queue_pairs_that_are_none, 300)
{
	struct lie lies[ARRAY_SIZE(evil_bad_qps)];

	for (size_t i = 0; i < ARRAY_SIZE(lies); i++)
		lies[i] = (struct lie) {
			.name = evil_bad_qps[i].name, .stage = EVIL_AUTHED, .act = TELL,
			.error = -EPROTO, .change = &evil_bad_qps[i], .counted = true,
		};
	play_all(_metadata, self, lies, ARRAY_SIZE(lies));
}

/* QPS as it should be, but not then. */
static const struct lie untimely_qps[] = {
	{ "QPS before AUTHED", EVIL_PROVED, TELL, -EPROTO, .counted = true },
	{ "QPS once more", EVIL_TOLD, TELL, -EPROTO, .counted = true },
	{ "QPS once more, after the answer", EVIL_HEARD, TELL, -EPROTO, .counted = true },
};

TEST_F_TIMEOUT(responder, data_queue_pairs_out_of_turn, 100)
{
	play_all(_metadata, self, untimely_qps, ARRAY_SIZE(untimely_qps));
}

/* The node knows of our data queue pairs, and has not said yet which it has itself. */
TEST_F_TIMEOUT(responder, ready_before_the_answer_to_qps, 60)
{
	struct evil e;

	ASSERT_EQ(0, tow_halt_begin("tow_qp_create"));
	ASSERT_EQ(0, evil_host_begin(&self->host.work, self->host.fd));
	ASSERT_EQ(0, evil_host_called(&self->host, &e));
	ASSERT_EQ(0, evil_serve(&e, EVIL_TOLD));
	EXPECT_TRUE(tow_halt_wait());
	EXPECT_EQ(0, evil_say_last(&e, T_READY, 0, NULL, 0));
	/* It is refused while the node makes its queue pairs still. */
	EXPECT_EQ(self->lies + 1, evil_wait("hostile_messages", self->lies + 1));
	EXPECT_EQ(0, tow_halt_end());
	EXPECT_EQ(R_PROTOCOL, evil_how_it_ends(&e));
	evil_end(&e);
	pthread_join(self->host.work.thread, NULL);
	EXPECT_EQ(-EPROTO, self->host.work.ret);
}

/* ---- silence, and hanging up ------------------------------------------------------------ */

#define SILENCE(at)	{ .name = "silent at " #at, .stage = (at), .act = SILENT, \
			  .error = -ETIMEDOUT }
#define HANGS_UP(at, why) { .name = "hangs up at " #at, .stage = (at), .act = HANG_UP, \
			    .error = (why) }

static const struct lie silences[] = {
	SILENCE(EVIL_CALLED),
	SILENCE(EVIL_ACCEPTED),
	SILENCE(EVIL_AUTHED),
	SILENCE(EVIL_TOLD),
	SILENCE(EVIL_HEARD),
	SILENCE(EVIL_PACKETS),
};

static const struct lie hang_ups[] = {
	HANGS_UP(EVIL_CALLED, -ECONNREFUSED),
	HANGS_UP(EVIL_ACCEPTED, -ECONNRESET),
	HANGS_UP(EVIL_PROVED, -ECONNRESET),
	HANGS_UP(EVIL_AUTHED, -ECONNRESET),
	HANGS_UP(EVIL_TOLD, -ECONNRESET),
	HANGS_UP(EVIL_HEARD, -ECONNRESET),
	HANGS_UP(EVIL_PACKETS, -ECONNRESET),
};

TEST_F_TIMEOUT(responder, silent_at_every_stage, 200)
{
	ASSERT_EQ(0, evil_set("reconnect_timeout_ms", SHORT_MS));
	play_all(_metadata, self, silences, ARRAY_SIZE(silences));
}

TEST_F_TIMEOUT(responder, hangs_up_at_every_stage, 300)
{
	play_all(_metadata, self, hang_ups, ARRAY_SIZE(hang_ups));
}

/* ---- messages ----------------------------------------------------------------------------- */

#define SAYS(stage, what, size) \
	{ #what " at " #stage, stage, SAY, -EPROTO, .type = (what), .bytes = (size), \
	  .counted = true }
#define GOODBYE(why, error) \
	{ "goodbye: " #why, EVIL_PROVED, SAY, error, .type = T_GOODBYE, .reason = (why) }

static const struct lie messages[] = {
	SAYS(EVIL_PROVED, 0, 0),
	SAYS(EVIL_PROVED, 255, 0),
	SAYS(EVIL_PROVED, T_AUTH, 0),
	SAYS(EVIL_PROVED, T_AUTHED, 1),
	SAYS(EVIL_PROVED, T_READY, 0),
	SAYS(EVIL_PROVED, T_HEARTBEAT, 0),
	SAYS(EVIL_PROVED, T_CREDIT, 0),
	SAYS(EVIL_PROVED, T_CANCEL, 0),
	SAYS(EVIL_AUTHED, T_AUTHED, 0),
	/* The answer to QPS, and there was none. */
	SAYS(EVIL_AUTHED, T_READY, 0),
	SAYS(EVIL_AUTHED, T_QPS, 0),
	SAYS(EVIL_AUTHED, T_CANCEL, 0),
	SAYS(EVIL_HEARD, T_READY, 1),
	/* No long packets have come. */
	SAYS(EVIL_HEARD, T_READY, 0),
	{ "not signed", EVIL_PROVED, SAY_UNSIGNED, -EKEYREJECTED, .type = T_AUTHED,
	  .counted = true },
	{ "one message too many", EVIL_PROVED, SAY_AHEAD, -EPROTO, .type = T_AUTHED,
	  .counted = true },
	GOODBYE(R_BAD_VERSION, -EPROTONOSUPPORT),
	GOODBYE(R_NO_KEY, -ENOKEY),
	GOODBYE(R_BAD_MAC, -EKEYREJECTED),
	GOODBYE(R_PROTOCOL, -EPROTO),
	GOODBYE(9, -ENOSPC),
};

TEST_F_TIMEOUT(responder, messages_that_must_not_be, 300)
{
	play_all(_metadata, self, messages, ARRAY_SIZE(messages));
}

/* Before it has heard the other end's proof; nothing of ours may be believed yet. */
TEST_F_TIMEOUT(responder, garbage_as_the_first_message, 100)
{
	static const struct lie garbage = {
		"garbage", EVIL_ACCEPTED, SAY_UNSIGNED, 0, .type = 0xa5, .bytes = 8,
	};
	struct tries tries;
	int ret = play(self, &garbage, &tries);

	/* It depends on whether it was known by then who we are. */
	EXPECT_TRUE(ret == -EKEYREJECTED || ret == -ECONNRESET) {
		TH_LOG("%d", ret);
	}
	EXPECT_GE(RESET_TRIES, tries.all - tries.doubtful);
}

/* ---- who it is --------------------------------------------------------------------------- */

/* Another life of the node at that address: the earlier one is taken out. */
TEST_F_TIMEOUT(responder, another_incarnation, 100)
{
	struct tow_peer_info info;
	struct evil e;
	__u64 first;

	ASSERT_EQ(0, evil_host_serve(&self->host, &e, 1));
	first = self->host.work.call.peer;
	evil_end(&e);
	EXPECT_EQ(0, evil_wait("sessions", 0));
	ASSERT_EQ(0, evil_host_serve(&self->host, &e, 2));
	EXPECT_NE(first, self->host.work.call.peer);
	EXPECT_EQ(1, count_peers(self->host.fd, &info));
	EXPECT_EQ(2, info.incarnation[15]);
	EXPECT_EQ(-ENOENT, evil_host_disconnect(self->host.fd, first));
	evil_end(&e);
}

/* Who looks which peers there are, again and again. */
struct looker {
	int fd;
	atomic_bool stop;
	int looks;
	int wrong;
	pthread_t thread;
};

/* Once a life is READY, whoever looks then finds no other beside it. */
static void *look(void *arg)
{
	struct tow_peer_info before = {}, after = {};
	struct looker *looker = arg;
	int count;

	while (!atomic_load(&looker->stop)) {
		count = count_peers(looker->fd, &before);
		looker->looks++;
		if (count < 2 || before.state != TOW_PEER_READY)
			continue;
		/* What was listed first may have gone since. */
		count = count_peers(looker->fd, &after);
		looker->wrong += count > 1 && after.peer == before.peer;
	}
	return NULL;
}

/* The life that is to be seen in sysfs; -1: none. */
static int life_shown(void)
{
	char path[PATH_MAX], line[64];
	unsigned int life;
	glob_t found;

	snprintf(path, sizeof(path), "/sys/class/towline/%s/peers/*/incarnation",
		 tow_test_device());
	if (glob(path, 0, NULL, &found))
		return -1;
	tow_test_read_line(found.gl_pathv[0], line, sizeof(line));
	globfree(&found);
	return strlen(line) == 32 && sscanf(line + 30, "%2x", &life) == 1 ? (int)life : -1;
}

/* Nobody sees the new life READY and an earlier one there, or none. */
TEST_F_TIMEOUT(responder, one_life_at_a_time, 100)
{
	struct looker looker = { .fd = self->host.fd };
	struct tow_peer_info info;
	struct evil e;

	ASSERT_EQ(0, pthread_create(&looker.thread, NULL, look, &looker));
	for (int life = 1; life <= LIVES; life++) {
		EXPECT_EQ(0, evil_host_serve(&self->host, &e, (uint8_t)life));
		EXPECT_EQ(life, life_shown());
		EXPECT_EQ(1, count_peers(self->host.fd, &info));
		EXPECT_EQ(self->host.work.call.peer, info.peer);
		evil_end(&e);
		EXPECT_EQ(0, evil_wait("sessions", 0));
	}
	atomic_store(&looker.stop, true);
	pthread_join(looker.thread, NULL);
	EXPECT_LT(LIVES, looker.looks);
	EXPECT_EQ(0, looker.wrong);
}

/* ---- what outlives a session ------------------------------------------------------------- */

/* A queue ends just as the next session takes on what the one before had. */
TEST_F_TIMEOUT(responder, a_queue_ends_while_a_tie_is_carried_on, 60)
{
	struct tow_channel_open channel;
	struct tow_rings rings;
	struct evil e;

	ASSERT_EQ(0, evil_host_serve(&self->host, &e, 0));
	ASSERT_EQ(0, tow_rings_make(self->host.fd, 8, 8, &rings));
	ASSERT_EQ(0, tow_channel_open(rings.made.fd, self->host.work.call.peer, 0, &channel));
	ASSERT_EQ(0, tow_halt_begin("tow_grant_assoc_carried"));
	/* Without a word: it breaks, and is to go on. */
	evil_hang_up(&e);
	EXPECT_EQ(0, evil_host_serve_again(&self->host, &e));
	EXPECT_TRUE(tow_halt_wait());
	/* What its operations wait for is looked at once more, by a work item. */
	tow_rings_end(&rings);
	tow_test_sleep_ms(300);
	EXPECT_EQ(0, tow_halt_end());
	EXPECT_EQ(0, evil_host_disconnect(self->host.fd, self->host.work.call.peer));
	evil_end(&e);
}

/* The peer goes on with what both have, and breaks it, again and again: it is given up. */
TEST_F_TIMEOUT(responder, breaks_after_each_sync, 100)
{
	static const struct evil_authed none;
	int ret = 0, syncs = 0;
	struct evil e;

	ASSERT_EQ(0, evil_host_serve(&self->host, &e, 0));
	ASSERT_EQ(0, evil_patience(SYNCS_MS));
	while (!ret && syncs < SYNCS_MOST) {
		evil_hang_up(&e);
		ret = evil_host_serve_again(&self->host, &e);
		/* It may call once more when it has given up: it names nothing then. */
		if (ret || !memcmp(&e.authed, &none, sizeof(none)))
			break;
		ret = evil_resume(&e, 0, false);
		syncs += !ret;
	}
	TH_LOG("%d sessions", syncs);
	EXPECT_TRUE(!ret || ret == -ETIMEDOUT);
	EXPECT_LT(2, syncs);
	EXPECT_GT(SYNCS_MOST, syncs);
	evil_end(&e);
}

/* Until the node ends the session, or an entry has completed. */
static int broken_or_done(struct evil *e, const struct tow_rings *rings)
{
	struct tow_patience patience = tow_patience(EVIL_WAIT_MS / 1e3);
	int type = 0;

	while (type >= 0 && type != T_GOODBYE && !tow_rings_ready(rings)) {
		type = evil_hear_any(e, 100);
		if (type == -ETIMEDOUT && tow_patient(&patience))
			type = 0;
	}
	/* It says nothing to who may not hear it. */
	return type < 0 && type != -ENOTCONN ? type : 0;
}

/* Messages find their way and data does not: a write ends, and what both have goes on. */
static void write_in_vain(struct __test_metadata *_metadata, FIXTURE_DATA(responder) *self)
{
	struct evil_range range = {};
	struct tow_release release = { .size = sizeof(release) };
	struct tow_region_create made;
	struct tow_channel_open channel;
	struct tow_cqe cqe = {};
	struct tow_rings rings;
	/* It has time enough: what it meets is not that. */
	struct tow_sqe sqe = {
		.opcode = TOW_OP_WRITE, .bytes = EVIL_BYTES, .timeout_ms = 600000,
	};
	uint64_t late = tow_sysfs_get("stats/timeouts");
	__u32 unused = 0;
	int ret, syncs;

	ASSERT_EQ(0, tow_pool_fresh(2 * TOW_SLAB));
	ASSERT_EQ(0, evil_host_serve(&self->host, &range.e, 0));
	ASSERT_EQ(0, evil_patience(PAUSES_MS));
	range.peer = self->host.work.call.peer;
	ASSERT_EQ(0, evil_range_find(&range, self->host.fd));
	ASSERT_EQ(0, tow_region_create(self->host.fd, EVIL_BYTES, &made));
	ASSERT_EQ(0, tow_rings_make(self->host.fd, 8, 8, &rings));
	ASSERT_EQ(0, tow_channel_open(rings.made.fd, range.peer, 0, &channel));
	ASSERT_EQ(0, tow_test_ioctl(range.e.data[0], TOW_HOSTILE_DEAF, &unused));
	sqe.channel = (__u16)channel.channel;
	sqe.region = made.handle;
	sqe.remote = range.remote;
	ASSERT_TRUE(tow_rings_put(&rings, &sqe));
	ASSERT_EQ(1, tow_rings_enter(&rings, 0, 0));
	for (syncs = 0; syncs < SYNCS_MOST; syncs++) {
		ret = broken_or_done(&range.e, &rings);
		ASSERT_EQ(0, ret);
		if (tow_rings_ready(&rings))
			break;
		evil_hang_up(&range.e);
		ASSERT_EQ(0, evil_host_serve_again(&self->host, &range.e));
		ASSERT_EQ(0, evil_resume(&range.e, 0, true));
	}
	EXPECT_EQ(BROKEN_BY_ONE, syncs);
	ASSERT_TRUE(tow_rings_take(&rings, &cqe));
	EXPECT_EQ(-ETIMEDOUT, cqe.status);
	EXPECT_EQ(0, cqe.flags);
	EXPECT_EQ(late, tow_sysfs_get("stats/timeouts"));
	tow_rings_end(&rings);
	EXPECT_EQ(0, tow_region_end(self->host.fd, &made));
	release.handle = range.remote;
	/* It is not stale. */
	EXPECT_EQ(0, tow_test_ioctl(self->host.fd, TOW_IOCTL_RELEASE, &release));
	EXPECT_EQ(0, evil_host_disconnect(self->host.fd, range.peer));
	evil_end(&range.e);
}

/* The RDMA device says so. */
TEST_F_TIMEOUT(responder, no_way_for_data, 100)
{
	write_in_vain(_metadata, self);
}

/* It would take longer than the node waits. */
TEST_F_TIMEOUT(responder, data_that_stalls, 100)
{
	long long stalls = evil_count("stalls");
	struct tow_knobs knobs;

	tow_knobs_save(&knobs);
	ASSERT_EQ(0, evil_set("timeout", "20"));
	ASSERT_EQ(0, evil_set("op_stall_ms", "100"));
	write_in_vain(_metadata, self);
	EXPECT_EQ(stalls + BROKEN_BY_ONE, evil_count("stalls"));
	EXPECT_EQ(0, tow_knobs_restore(&knobs));
}

TEST_HARNESS_MAIN

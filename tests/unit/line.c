// SPDX-License-Identifier: GPL-2.0
/*
 * The two ends of a line over a wire that is played here, and does all that the contract of the
 * kernel's rings lets it: writes of one channel take effect in their order, but late, in parts,
 * byte by byte in any order, and again for as long as they have not completed; they complete in
 * any order, before they are counted or after; and each is counted once, in their order, when it
 * and all before it are there.  Then ends whose other end writes whatever it likes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <kselftest.h>

#include "../pump/wire.h"

#define SEEDS		60U
#define MESSAGES	400U
#define TURNS		2000000U
#define UNITS_MIN	64U
#define HOSTILE		200000U
/* The largest ring, and how many may be on their way, or not counted. */
#define UNITS_MAX	(8 * UNITS_MIN)
#define RING_MAX	((UNITS_MAX + TOWI_SPARE_UNITS + TOWI_RECORD_UNITS) * (size_t)TOWI_UNIT)
#define WRITES		128U
/* Messages that have come and are not done with. */
#define KEPT		UNITS_MAX

/* ---- chance, the same each time ---- */

static uint64_t state;

static uint32_t chance(uint32_t below)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t)(state >> 33) % below;
}

/* ---- the wire ---- */

struct write {
	uint64_t number;
	uint64_t offset, bytes;
	bool placed, counted, completed;
};

/* One way: from one end's .out to the other's ring. */
struct way {
	struct towi_wire *from;
	unsigned char *ring;		/* of exactly so many bytes */
	struct write writes[WRITES];
	/* Where each is in the ring, as it was sent first: by number. */
	unsigned char (*first)[RING_MAX];
	uint32_t count;			/* on their way, or not counted, in their order */
	uint32_t slow;			/* how seldom one completes */
	uint64_t arrived;		/* the slot's number */
	uint64_t begun;
};

static void begin_writes(struct way *way)
{
	struct write *write;

	while (way->count < WRITES) {
		write = &way->writes[way->count];
		*write = (struct write){ .number = way->from->next };
		if (!towi_wire_batch(way->from, &write->offset, &write->bytes))
			return;
		way->count++;
		way->begun++;
		if (way->from->next - way->from->first > TOWI_WIRE_WRITES)
			ksft_exit_fail_msg("too many writes\n");
	}
}

/* Some of its bytes, in any order: of what is there now, or, again, of what was sent first. */
static void place_some(struct way *way, const struct write *write)
{
	const unsigned char *from = way->from->out;

	if (write->placed && chance(2))
		from = way->first[write->number % WRITES];
	for (uint64_t i = write->offset + write->bytes; i-- > write->offset;)
		if (chance(2))
			way->ring[i] = from[i];
}

static void place_all(struct way *way, struct write *write)
{
	const unsigned char *from = way->from->out + write->offset;

	if (!write->placed)
		memcpy(way->first[write->number % WRITES] + write->offset, from, write->bytes);
	memcpy(way->ring + write->offset, from, write->bytes);
	write->placed = true;
}

static void complete(struct way *way, struct write *write)
{
	write->completed = true;
	towi_wire_ended(way->from, write->number);
}

static void forget_over(struct way *way)
{
	while (way->count && way->writes[0].counted && way->writes[0].completed) {
		way->count--;
		memmove(&way->writes[0], &way->writes[1], way->count * sizeof(way->writes[0]));
	}
}

/* Something happens. */
static void play(struct way *way)
{
	uint32_t index = way->count ? chance(way->count) : 0;
	struct write *write = &way->writes[index];
	bool next = !index || way->writes[index - 1].placed;

	if (!way->count)
		return;
	switch (chance(5)) {
	case 0:
		if (!write->completed && next)
			place_some(way, write);
		break;
	case 1:
		if (!write->completed && next)
			place_all(way, write);
		break;
	case 2:
		if (write->placed && !write->counted && (!index || way->writes[index - 1].counted)) {
			write->counted = true;
			way->arrived++;
		}
		break;
	case 3:
		if (write->placed && !write->completed && !chance(way->slow))
			complete(way, write);
		break;
	default:
		break;
	}
	forget_over(way);
}

/* ---- the ends ---- */

struct end {
	struct towi_wire wire;
	struct way *in, *out;
	uint64_t sends, comes;		/* messages so far */
	uint32_t kept[KEPT];	/* units of what has come and is not done with */
	uint32_t first, last;
	uint64_t credits;		/* that came */
	bool greeted, said_bye, bye;
};

static uint32_t length_of(uint64_t number, bool one_way)
{
	uint64_t mixed = (number * 2 + one_way) * 0x9e3779b97f4a7c15ULL >> 40;

	/* Many that are short. */
	return 1 + (uint32_t)(mixed % 3 ? mixed % 40 : mixed % TOWI_MESSAGE_MAX);
}

static unsigned char byte_of(uint64_t number, bool one_way, uint32_t at)
{
	return (unsigned char)((number * 2 + one_way) * 31 + (uint64_t)at * 7 + (at >> 8));
}

static void fill(unsigned char *data, uint64_t number, bool one_way, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++)
		data[i] = byte_of(number, one_way, i);
}

static bool is_filled(const unsigned char *data, uint64_t number, bool one_way, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++)
		if (data[i] != byte_of(number, one_way, i))
			return false;
	return true;
}

static void send_some(struct end *end, bool one_way, uint64_t messages)
{
	static const struct towi_record hello = { .kind = TOWI_HELLO },
					bye = { .kind = TOWI_BYE };
	struct towi_record record = { .kind = TOWI_MESSAGE };
	unsigned char data[TOWI_MESSAGE_MAX] = { 0 };
	uint32_t bytes;

	if (one_way && !end->greeted) {
		end->greeted = true;
		if (towi_wire_put(&end->wire, &hello, data, 280))
			ksft_exit_fail_msg("no room for the first record\n");
	}
	for (uint32_t i = chance(20); i && end->sends < messages; i--) {
		bytes = length_of(end->sends, one_way);
		fill(data, end->sends, one_way, bytes);
		record.port = (uint32_t)end->sends;
		record.generation = ~record.port;
		record.tag = (uint8_t)end->sends;
		if (towi_wire_put(&end->wire, &record, data, bytes))
			break;
		end->sends++;
	}
	if (end->sends == messages && !end->said_bye)
		end->said_bye = !towi_wire_put(&end->wire, &bye, NULL, 0);
}

/* False: it is not what was sent. */
static bool take_some(struct end *end, bool one_way)
{
	unsigned char data[TOWI_MESSAGE_MAX];
	struct towi_record record;
	int ret;

	while ((ret = towi_wire_take(&end->wire, end->in->arrived, &record, data)) > 0) {
		if (end->bye && record.kind != TOWI_CREDIT)
			return false;
		end->bye = end->bye || record.kind == TOWI_BYE;
		end->credits += record.kind == TOWI_CREDIT;
		if (record.kind != TOWI_MESSAGE)
			continue;
		if (record.port != (uint32_t)end->comes || record.generation != ~record.port ||
		    record.tag != (uint8_t)end->comes ||
		    record.bytes != length_of(end->comes, one_way) ||
		    !is_filled(data, end->comes, one_way, record.bytes))
			return false;
		end->comes++;
		end->kept[end->last++ % KEPT] = towi_units(record.bytes);
	}
	return !ret;
}

static void receive_some(struct end *end)
{
	for (uint32_t i = chance(10); i && end->first != end->last; i--)
		towi_wire_taken(&end->wire, end->kept[end->first++ % KEPT]);
}

struct pair {
	struct end ends[2];
	struct way ways[2];
};

static void *zeroed(uint64_t bytes)
{
	void *memory = calloc(1, bytes);

	if (!memory)
		ksft_exit_fail_perror("calloc");
	return memory;
}

/* Each end has its own size. */
static void begin_pair(struct pair *pair, const uint32_t units[2])
{
	static unsigned char first[2][WRITES][RING_MAX];

	memset(pair, 0, sizeof(*pair));
	for (int i = 0; i < 2; i++) {
		struct end *end = &pair->ends[i];
		struct way *way = &pair->ways[i];	/* from this end to the other */

		way->from = &end->wire;
		way->slow = 1;
		way->first = first[i];
		way->ring = zeroed(towi_ring_bytes(units[!i]));
		end->wire.out = zeroed(towi_ring_bytes(units[!i]));
		end->wire.theirs = units[!i];
		end->wire.ours = units[i];
		end->out = way;
		end->in = &pair->ways[!i];
	}
	for (int i = 0; i < 2; i++)
		pair->ends[i].wire.in = pair->ways[!i].ring;
}

static void end_pair(struct pair *pair)
{
	for (int i = 0; i < 2; i++) {
		free(pair->ways[i].ring);
		free(pair->ends[i].wire.out);
	}
}

static bool is_over(const struct pair *pair, uint64_t messages)
{
	for (int i = 0; i < 2; i++) {
		const struct end *end = &pair->ends[i];

		if (end->comes != messages || end->first != end->last || !end->bye ||
		    !towi_wire_idle(&end->wire) || pair->ways[i].count)
			return false;
	}
	return true;
}

/* Both send at once; now and then one of them does nothing for a while. */
static bool converse(struct pair *pair, uint64_t messages)
{
	uint32_t sleeps[2] = { 0 };

	for (uint32_t turn = 0; turn < TURNS; turn++) {
		int one = (int)chance(2);
		struct end *end = &pair->ends[one];

		if (!chance(2000))
			sleeps[one] = chance(5000);
		if (sleeps[one]) {
			sleeps[one]--;
		} else {
			/* As a line does: what has come, what is to go, credit. */
			if (!take_some(end, !one))
				return false;
			receive_some(end);
			send_some(end, one, messages);
			towi_wire_credit(&end->wire);
			begin_writes(end->out);
		}
		for (uint32_t i = chance(30); i; i--)
			play(&pair->ways[chance(2)]);
		if (is_over(pair, messages))
			return true;
	}
	return false;
}

static void test_order(void)
{
	static struct pair pair;
	bool good = true;
	uint64_t batches = 0;

	for (uint32_t seed = 0; good && seed < SEEDS; seed++) {
		const uint32_t units[2] = { UNITS_MIN << seed % 3, UNITS_MIN << seed / 3 % 4 };

		state = seed;
		begin_pair(&pair, units);
		pair.ways[seed % 2].slow = 1 + seed % 5 * 10;
		good = converse(&pair, MESSAGES);
		batches += pair.ways[0].begun + pair.ways[1].begun;
		if (!good)
			ksft_print_msg("chance %u\n", seed);
		end_pair(&pair);
	}
	ksft_test_result(good, "each message whole, once, in order, both ways\n");
	ksft_print_msg("%llu batches\n", (unsigned long long)batches);
	ksft_test_result(good && batches < 2ULL * SEEDS * MESSAGES,
			 "several travel in one write\n");
}

/* ---- room ---- */

/* Everything that was begun is there, and over. */
static void deliver(struct way *way)
{
	begin_writes(way);
	while (way->count) {
		struct write *write = &way->writes[0];

		place_all(way, write);
		write->counted = true;
		way->arrived++;
		complete(way, write);
		forget_over(way);
		begin_writes(way);
	}
}

static uint32_t send_all(struct end *end, uint32_t bytes)
{
	static const unsigned char data[TOWI_MESSAGE_MAX];
	const struct towi_record record = { .kind = TOWI_MESSAGE };
	uint32_t count = 0;

	while (!towi_wire_put(&end->wire, &record, data, bytes))
		count++;
	return count;
}

static bool take_all(struct end *end)
{
	unsigned char data[TOWI_MESSAGE_MAX];
	struct towi_record record;
	int ret;

	while ((ret = towi_wire_take(&end->wire, end->in->arrived, &record, data)) > 0) {
		end->credits += record.kind == TOWI_CREDIT;
		if (record.kind == TOWI_MESSAGE)
			end->kept[end->last++ % KEPT] = towi_units(record.bytes);
	}
	return !ret;
}

static void receive_all(struct end *end)
{
	while (end->first != end->last)
		towi_wire_taken(&end->wire, end->kept[end->first++ % KEPT]);
}

static void test_room(void)
{
	static const uint32_t units[2] = { UNITS_MIN, 2 * UNITS_MIN };
	static struct pair pair;
	struct end *one = &pair.ends[0], *other = &pair.ends[1];
	uint64_t begun;
	bool good;

	begin_pair(&pair, units);
	good = towi_wire_room(&one->wire) == TOWI_RECORD_UNITS;
	good = good && send_all(one, 8) == 2 * UNITS_MIN && !towi_wire_room(&one->wire);
	deliver(one->out);
	ksft_test_result(good && !send_all(one, 1), "as many as the other end has memory for\n");
	good = take_all(other);
	towi_wire_credit(&other->wire);
	deliver(other->out);
	good = good && take_all(one) && !one->credits && !send_all(one, 1);
	ksft_test_result(good, "what has come and was not received takes room\n");
	receive_all(other);
	towi_wire_credit(&other->wire);
	deliver(other->out);
	good = take_all(one) && one->credits == 1;
	ksft_test_result(good && send_all(one, 8) == 2 * UNITS_MIN, "and none when it was\n");
	deliver(one->out);
	/* The other way, while that end has seen nothing. */
	good = send_all(other, 8) == UNITS_MIN;
	deliver(other->out);
	good = good && take_all(one);
	receive_all(one);
	towi_wire_credit(&one->wire);
	deliver(one->out);
	good = good && take_all(other) && other->credits == 1 && send_all(other, 8) == UNITS_MIN;
	ksft_test_result(good, "credit comes by a ring that is full\n");
	deliver(other->out);
	receive_all(other);
	for (int i = 0; i < 2; i++) {
		good = good && take_all(&pair.ends[i]);
		receive_all(&pair.ends[i]);
	}
	begun = 0;
	for (int i = 0; i < 20; i++) {
		uint64_t before = pair.ways[0].begun + pair.ways[1].begun;

		for (int j = 0; j < 2; j++) {
			good = good && take_all(&pair.ends[j]);
			towi_wire_credit(&pair.ends[j].wire);
			deliver(pair.ends[j].out);
		}
		begun += i > 2 ? pair.ways[0].begun + pair.ways[1].begun - before : 0;
	}
	ksft_test_result(good && !begun, "no credit for credit\n");
	ksft_test_result(send_all(one, TOWI_MESSAGE_MAX) == 4, "the longest that there are\n");
	end_pair(&pair);
}

/* ---- ends that mean no good ---- */

/* Whatever is in the ring, it is read within the ring, and is a record, nothing, or nonsense. */
static void test_garbage(void)
{
	static const uint32_t units[2] = { UNITS_MIN, UNITS_MIN };
	unsigned char data[TOWI_MESSAGE_MAX];
	struct towi_record record;
	static struct pair pair;
	uint64_t taken = 0, nonsense = 0;
	struct towi_wire *wire;
	unsigned char *ring;
	bool good = true;
	int ret;

	state = 1;
	for (uint32_t i = 0; good && i < HOSTILE; i++) {
		if (!i || !chance(50)) {
			if (i)
				end_pair(&pair);
			begin_pair(&pair, units);
			pair.ends[0].wire.sent = chance(UNITS_MIN);
		}
		wire = &pair.ends[0].wire;
		ring = pair.ends[0].in->ring;
		/* As it has to be, but for one byte or two. */
		record = (struct towi_record){ .position = wire->position,
			.taken = wire->freed + chance(2), .batch = 1 + chance(80),
			.bytes = (uint16_t)(1 + chance(TOWI_MESSAGE_MAX)),
			.kind = (uint8_t)(1 + chance(4)) };
		for (uint32_t j = chance(3); j; j--)
			((unsigned char *)&record)[chance(sizeof(record))] = (unsigned char)chance(256);
		memcpy(ring + wire->position % towi_places(UNITS_MIN) * TOWI_UNIT, &record,
		       sizeof(record));
		ret = towi_wire_take(wire, chance(2) ? UINT64_MAX : wire->batches_in + chance(2), &record,
				     data);
		taken += ret == 1;
		nonsense += ret == -EPROTO;
		good = ret == 0 || ret == 1 || ret == -EPROTO;
		good = good && wire->came - wire->taken <= UNITS_MIN + TOWI_RECORD_UNITS &&
		       wire->freed <= wire->sent;
		if (ret == 1 && record.kind == TOWI_MESSAGE && chance(2))
			towi_wire_taken(wire, towi_units(record.bytes));
		/* Nothing is looked at behind that. */
		if (ret == -EPROTO) {
			end_pair(&pair);
			begin_pair(&pair, units);
		}
	}
	end_pair(&pair);
	ksft_test_result(good && taken > HOSTILE / 20 && nonsense > HOSTILE / 20,
			 "what makes no sense is refused, and nothing beyond the ring read\n");
}

/* One record in its place, after a message of one unit each way. */
static int take_one(const struct towi_record *record)
{
	static const uint32_t units[2] = { UNITS_MIN, UNITS_MIN };
	unsigned char data[TOWI_MESSAGE_MAX];
	struct towi_record taken;
	static struct pair pair;
	struct end *end = &pair.ends[0];
	int ret;

	begin_pair(&pair, units);
	for (int i = 0; i < 2; i++) {
		static const struct towi_record message = { .kind = TOWI_MESSAGE };

		towi_wire_put(&pair.ends[i].wire, &message, "x", 1);
		deliver(&pair.ways[i]);
	}
	take_all(end);
	memcpy(end->in->ring + TOWI_UNIT, record, sizeof(*record));
	ret = towi_wire_take(&end->wire, 2, &taken, data);
	end_pair(&pair);
	return ret;
}

static void test_rules(void)
{
	static const struct towi_record right = { .position = 1, .batch = 1, .taken = 1, .bytes = 32,
						  .kind = TOWI_MESSAGE };
	static const struct {
		size_t at, bytes;
		uint64_t value;
		int ret;
		const char *what;
	} rules[] = {
		{ offsetof(struct towi_record, position), 8, 1, 1, "as it is to be" },
		{ offsetof(struct towi_record, position), 8, 0, -EPROTO, "an earlier position" },
		{ offsetof(struct towi_record, position), 8, 2, -EPROTO, "a later one" },
		{ offsetof(struct towi_record, taken), 8, 2, -EPROTO, "more taken than was sent" },
		{ offsetof(struct towi_record, batch), 4, 0, -EPROTO, "an empty batch" },
		{ offsetof(struct towi_record, batch), 4, 1000, -EPROTO, "one beyond the ring" },
		{ offsetof(struct towi_record, bytes), 2, 33, -EPROTO, "a message beyond its batch" },
		{ offsetof(struct towi_record, bytes), 2, 0, -EPROTO, "one of no bytes" },
		{ offsetof(struct towi_record, bytes), 2, TOWI_MESSAGE_MAX + 1, -EPROTO, "too long a one" },
		{ offsetof(struct towi_record, kind), 1, 0, -EPROTO, "of no kind" },
		{ offsetof(struct towi_record, kind), 1, TOWI_MESSAGE + 1, -EPROTO, "of an unknown one" },
		{ offsetof(struct towi_record, kind), 1, TOWI_HELLO, -EPROTO, "who it is, too late" },
		{ offsetof(struct towi_record, kind), 1, TOWI_BYE, 1, "its end" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
		struct towi_record record = right;

		memcpy((char *)&record + rules[i].at, &rules[i].value, rules[i].bytes);
		ksft_test_result(take_one(&record) == rules[i].ret, "%s\n", rules[i].what);
	}
}

/* Whoever has counted far ahead writes as fast as is read, and all of it is done with: how many. */
static uint32_t flood(uint8_t kind, uint64_t taken)
{
	static const uint32_t units[2] = { UNITS_MIN, UNITS_MIN };
	unsigned char data[TOWI_MESSAGE_MAX];
	static struct pair pair;
	struct towi_wire *wire = &pair.ends[0].wire;
	uint32_t count;

	begin_pair(&pair, units);
	wire->sent = 1;
	for (count = 0; count < 10 * UNITS_MIN; count++) {
		struct towi_record record = { .position = wire->position, .taken = taken, .batch = 1,
					      .bytes = kind == TOWI_MESSAGE, .kind = kind };

		memcpy(pair.ends[0].in->ring + wire->position % towi_places(UNITS_MIN) * TOWI_UNIT,
		       &record, sizeof(record));
		if (towi_wire_take(wire, UINT64_MAX, &record, data) != 1)
			break;
		if (kind == TOWI_MESSAGE)
			towi_wire_taken(wire, 1);
	}
	end_pair(&pair);
	return count;
}

static void test_flood(void)
{
	ksft_test_result(flood(TOWI_MESSAGE, 0) == UNITS_MIN,
			 "no more than this end has said that there is room for\n");
	ksft_test_result(flood(TOWI_CREDIT, 0) == 0 && flood(TOWI_CREDIT, 1) == 1,
			 "no credit that is none\n");
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(2 + 6 + 1 + 13 + 2);
	test_order();
	test_room();
	test_garbage();
	test_rules();
	test_flood();
	ksft_finished();
}

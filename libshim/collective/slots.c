// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/* Slots: memory of a communicator's, for what cannot be where the caller has it. */
#include "calls.h"

_Static_assert(TOWI_SLOTS <= 32, "a bit for each");

static int make(struct tow_comm *comm, struct towi_slots *slots)
{
	uint64_t bytes = TOWI_SLOTS * (uint64_t)TOWI_SLOT_BYTES;
	struct towi_array made;
	int ret = towi_array_make(comm, bytes, &made);

	if (ret) {
		towi_array_free(comm, &made);
		return ret;
	}
	towi_pump_lock(&comm->pump);
	if (!slots->at) {
		slots->region = made.region;
		slots->offset = made.offset;
		slots->at = made.at;
		made.owned = false;
	}
	towi_pump_unlock_plainly(&comm->pump);
	/* Another thread was first. */
	towi_array_free(comm, &made);
	return 0;
}

static int show(struct tow_comm *comm, struct towi_slots *slots)
{
	struct towi_place place;
	int ret = towi_window(&comm->calls->windows, slots->at,
			      TOWI_SLOTS * (uint64_t)TOWI_SLOT_BYTES, true, &place);

	if (ret)
		return ret;
	towi_pump_lock(&comm->pump);
	slots->place = place;
	towi_pump_unlock_plainly(&comm->pump);
	return 0;
}

int towi_slots_need(struct tow_comm *comm, struct towi_slots *slots, bool shown)
{
	bool made, is_shown;
	int ret = 0;

	towi_pump_lock(&comm->pump);
	made = slots->at;
	is_shown = slots->place.edge;
	towi_pump_unlock_plainly(&comm->pump);
	if (!made)
		ret = make(comm, slots);
	return ret || !shown || is_shown ? ret : show(comm, slots);
}

void towi_slots_free(struct tow_comm *comm, struct towi_slots *slots)
{
	tow_arena_free(comm->arena, slots->at);
	slots->at = NULL;
}

int towi_slots_take(struct towi_slots *slots)
{
	uint32_t free = ~slots->used & ((1ULL << TOWI_SLOTS) - 1);
	int slot;

	if (!free)
		return -1;
	slot = __builtin_ctz(free);
	slots->used |= 1U << slot;
	return slot;
}

void towi_slots_give(struct towi_slots *slots, int slot)
{
	if (slot >= 0)
		slots->used &= ~(1U << slot);
}

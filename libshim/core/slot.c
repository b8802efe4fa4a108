// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * Slots: numbers that peers' notifications are counted in.
 *
 * A slot is an export of the kernel's, and a mapping of its number: one of its own,
 * so that the slot does not depend on what becomes of the region in this process.
 * The mapping is for reading, as the kernel alone writes the number.
 */
#include <errno.h>
#include <stdlib.h>

#include <towline/slot.h>

#include "internal.h"

#define NUMBER_BYTES	sizeof(uint64_t)

struct slot {
	struct tow_slot shown;
	const struct tow_device *dev;
	struct towi_word word;
};

_Static_assert(offsetof(struct slot, shown) == 0, "programs have only this");
_Static_assert(offsetof(struct tow_slot, handle) == 0, "tow_handle_of() reads it there");

TOW_PUBLIC int tow_slot_create(struct tow_region *region, uint64_t offset, const char *name,
			       struct tow_slot **slot)
{
	struct slot *made;
	int ret;

	if (!region || !slot || offset % NUMBER_BYTES)
		return -EINVAL;
	made = malloc(sizeof(*made));
	if (!made)
		return -ENOMEM;
	made->dev = towi_region_device(region);
	/* Before anybody can find it, and count in it. */
	ret = towi_region_word(region, offset, &made->word);
	if (ret)
		goto free_made;
	ret = towi_export(region, offset, NUMBER_BYTES, name, TOW_RIGHT_NOTIFY,
			  &made->shown.handle);
	if (ret)
		goto end_word;
	made->shown.number = made->word.at;
	*slot = &made->shown;
	return 0;

end_word:
	towi_word_end(&made->word);
free_made:
	free(made);
	return ret;
}

TOW_PUBLIC int tow_slot_destroy(struct tow_slot *slot)
{
	struct slot *made = (struct slot *)slot;
	int ret;

	if (!slot)
		return 0;
	ret = towi_unexport(made->dev, slot->handle);
	towi_word_end(&made->word);
	free(made);
	return ret;
}

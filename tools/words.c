// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/*
 * What the kernel says in numbers and bytes, as words; and what JSON has of it, as
 * plain text shows it.
 */
#include <arpa/inet.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

struct json_object *word_object(const char *const *names, size_t count, uint32_t value)
{
	if (value < count && names[value])
		return json_object_new_string(names[value]);
	return json_object_new_int64(value);
}

struct json_object *bits_object(const char *const *names, size_t count, uint64_t bits)
{
	struct json_object *list = json_object_new_array();
	char unnamed[16];
	size_t bit;

	for (bit = 0; bit < 64; bit++) {
		if (!(bits >> bit & 1))
			continue;
		snprintf(unnamed, sizeof(unnamed), "bit_%zu", bit);
		json_object_array_add(list, json_object_new_string(bit < count && names[bit] ?
								   names[bit] : unnamed));
	}
	return list;
}

const char *words_joined(struct json_object *list, char text[WORDS_TEXT])
{
	size_t i, used = 0;

	snprintf(text, WORDS_TEXT, "-");
	for (i = 0; i < json_object_array_length(list) && used < WORDS_TEXT; i++)
		used += (size_t)snprintf(text + used, WORDS_TEXT - used, "%s%s", i ? "," : "",
					 json_object_get_string(json_object_array_get_idx(list, i)));
	return text;
}

const char *address_words(const uint8_t address[TOW_ADDRESS_BYTES], uint32_t scope_id,
			  char text[ADDRESS_TEXT])
{
	static const uint8_t mapped[] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };
	size_t length;

	if (!memcmp(address, mapped, sizeof(mapped)))
		return inet_ntop(AF_INET, address + sizeof(mapped), text, ADDRESS_TEXT);
	inet_ntop(AF_INET6, address, text, ADDRESS_TEXT);
	length = strlen(text);
	if (scope_id)
		snprintf(text + length, ADDRESS_TEXT - length, "%%%u", scope_id);
	return text;
}

/* The least character that takes so many bytes, by that many. */
static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };

static size_t length_of(uint8_t first)
{
	if (first < 0x80)
		return 1;
	if (first >> 5 == 0x6)
		return 2;
	if (first >> 4 == 0xe)
		return 3;
	return first >> 3 == 0x1e ? 4 : 0;
}

/* May it be shown?  Control characters would be the terminal's to obey. */
static bool is_text(uint32_t character, size_t length)
{
	return character >= least[length] && character <= 0x10ffff &&
	       (character < 0xd800 || character > 0xdfff) && character >= 0x20 &&
	       (character < 0x7f || character > 0x9f);
}

/* How many bytes the UTF-8 character takes that is there; 0: there is none. */
static size_t character_at(const uint8_t *bytes, size_t count)
{
	size_t i, length = length_of(bytes[0]);
	uint32_t character;

	if (!length || length > count)
		return 0;
	character = length == 1 ? bytes[0] : bytes[0] & (0x7fU >> length);
	for (i = 1; i < length; i++) {
		if (bytes[i] >> 6 != 2)
			return 0;
		character = character << 6 | (bytes[i] & 0x3fU);
	}
	return is_text(character, length) ? length : 0;
}

struct json_object *text_object(const uint8_t *bytes, size_t count)
{
	static const char no_text[] = { '\xef', '\xbf', '\xbd' };	/* U+FFFD */
	struct json_object *object;
	size_t i, length, used = 0;
	/* Each byte may become the three that stand for no text. */
	char *text = calloc(sizeof(no_text), count + 1);

	if (!text)
		return NULL;
	for (i = 0; i < count; i += length ? length : 1) {
		length = character_at(bytes + i, count - i);
		if (length) {
			memcpy(text + used, bytes + i, length);
			used += length;
		} else {
			memcpy(text + used, no_text, sizeof(no_text));
			used += sizeof(no_text);
		}
	}
	object = json_object_new_string_len(text, (int)used);
	free(text);
	return object;
}

const char *text_of(struct json_object *object, const char *key)
{
	struct json_object *value = json_object_object_get(object, key);

	return value ? json_object_get_string(value) : "?";
}

const char *size_of(struct json_object *object, const char *key, char text[SIZE_TEXT])
{
	struct json_object *value = json_object_object_get(object, key);

	if (json_object_is_type(value, json_type_string))
		return json_object_get_string(value);
	return size_words(json_object_get_uint64(value), text);
}

const char *user_of(struct json_object *object)
{
	struct json_object *uid = json_object_object_get(object, "uid");
	const struct passwd *user = getpwuid((uid_t)json_object_get_int64(uid));

	return user ? user->pw_name : json_object_get_string(uid);
}

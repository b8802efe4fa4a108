/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
#ifndef TOW_TOOL_PEERS_H
#define TOW_TOOL_PEERS_H

#include <json-c/json.h>
#include <towline/towline.h>

/*
 * A peer as JSON: its device's name, the fields of struct tow_peer_info, and of
 * the peer's files below @class_dir those that are there and say more.
 */
struct json_object *peer_object(const char *class_dir, const char *device,
				const struct tow_peer_info *info);

/*
 * Add to each of some peers, as peer_object() made them, the list "history": what
 * happened last, a line each.  0, also for one that has none, or the first failure, a
 * negative errno of towline's; which ones failed is said, and the others have theirs.
 */
int peers_add_histories(const char *class_dir, struct json_object *peers);

#endif /* TOW_TOOL_PEERS_H */

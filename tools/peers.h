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
 * Add to a peer, as peer_object() made it, the list "history": what happened last, a
 * line each.  0, also if it has none, or a negative errno of towline's.
 */
int peer_add_history(const char *class_dir, struct json_object *peer);

#endif /* TOW_TOOL_PEERS_H */

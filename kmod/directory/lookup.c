// SPDX-License-Identifier: GPL-2.0
/*
 * Lookups: a program looks for an export of a peer.  A lookup connects to the peer
 * if need be, and opens a remote range; one that dials only connects, to the peer at an
 * address.  It never waits: tow_lookup_step() does what
 * can be done, and the lookup is woken when to call it again.  RESOLVE waits itself
 * in between; the lookups of a queue are work items (ring/lookup.c).
 */
#include <linux/jiffies.h>
#include <linux/minmax.h>
#include <linux/slab.h>

#include "assoc.h"
#include "core/core.h"
#include "remote.h"
#include "session.h"

/*
 * Without a time-out the peer answers at once, if it is connected, and is not kept busy
 * by others; but not for ever.
 */
#define TOW_LOOKUP_AT_ONCE_MS	60000

/**
 * tow_lookup_send - have the requests of lookups sent
 * @asked: from tow_lookup_step(); NULL afterwards
 */
void tow_lookup_send(struct tow_assoc **asked)
{
	if (!*asked)
		return;
	tow_assoc_kick(*asked);
	tow_assoc_put(*asked);
	*asked = NULL;
}

/* Connect to the peer, and open the remote range. */
static int tow_lookup_open(struct tow_lookup *lookup, struct tow_assoc **asked)
{
	struct tow_session *session;
	int ret;

	ret = tow_peer_use_begin(lookup->peer, lookup->client->account,
				 &lookup->seeker, &session);
	if (ret)
		return ret;
	lookup->session = session;
	if (*asked != session->assoc) {
		tow_lookup_send(asked);
		tow_assoc_get(session->assoc);
		*asked = session->assoc;
	}
	ret = tow_remote_open(session->assoc, lookup->fresh, lookup,
			      &lookup->remote);
	if (!ret)
		lookup->fresh = NULL;
	return ret;
}

static void tow_lookup_close(struct tow_lookup *lookup)
{
	if (lookup->remote) {
		tow_remote_unlook(lookup->remote, lookup);
		tow_remote_close(lookup->remote);
	}
	lookup->remote = NULL;
	if (lookup->session)
		tow_session_put(lookup->session);
	lookup->session = NULL;
}

/* How long to wait until the peer is connected. */
static unsigned long tow_lookup_patience(const struct tow_lookup *lookup)
{
	const struct tow_conn_settings *settings =
		&lookup->client->dev->peers->settings;

	return msecs_to_jiffies(READ_ONCE(settings->reconnect_timeout_ms));
}

/*
 * Was the association lost only because its session was idle, or was replaced?  Then the
 * lookup begins anew, once.
 */
static bool tow_lookup_again(struct tow_lookup *lookup, int error)
{
	struct tow_session *session = lookup->session;
	const struct tow_remote *old = lookup->remote;
	u32 reason;

	if (!session || !error || error == -EINPROGRESS || lookup->again ||
	    !READ_ONCE(session->assoc->dir.lost))
		return false;
	reason = READ_ONCE(session->reason);
	if (reason != TOW_WIRE_IDLE && reason != TOW_WIRE_REPLACED)
		return false;
	if (old)
		lookup->fresh = tow_remote_new(&old->label, old->rights,
					       old->wait);
	if (!lookup->fresh)
		return false;
	tow_lookup_close(lookup);
	lookup->again = true;
	lookup->seek_until = jiffies + tow_lookup_patience(lookup);
	return true;
}

static int tow_lookup_dial(struct tow_lookup *lookup)
{
	struct tow_client *client = lookup->client;

	return lookup->peer ? 0 :
	       tow_peer_reach_begin(client->dev, client->account,
				    &lookup->address, &lookup->seeker,
				    &lookup->peer);
}

/**
 * tow_lookup_step - do what can be done for a lookup without waiting
 * @lookup: from tow_lookup_begin(); called by one task at a time
 * @asked: where to: the association with a reference in which requests were made, which
 *	the caller has sent by tow_lookup_send(); before the first lookup NULL
 *
 * Many lookups of one peer may be stepped through before: their requests share messages.
 *
 * Return: 0: the remote range is, or was, VALID, or the peer is connected; -EINPROGRESS:
 * the lookup is woken when to call again, unless tow_lookup_left() is over before; else
 * as TOW_IOCTL_RESOLVE, or TOW_IOCTL_PEER_CONNECT.
 */
int tow_lookup_step(struct tow_lookup *lookup, struct tow_assoc **asked)
{
	int ret;

	if (lookup->dials)
		return tow_lookup_dial(lookup);
	do {
		ret = lookup->remote ? 0 : tow_lookup_open(lookup, asked);
		if (!ret)
			ret = tow_remote_look(lookup->remote, lookup);
	} while (tow_lookup_again(lookup, ret));
	return ret;
}

/**
 * tow_lookup_left - how long may a lookup wait?
 * @lookup: the lookup; tow_lookup_step() has answered -EINPROGRESS
 *
 * Return: in jiffies; 0 or less: tow_lookup_late().
 */
long tow_lookup_left(const struct tow_lookup *lookup)
{
	return (lookup->session ? lookup->until : lookup->seek_until) - jiffies;
}

/**
 * tow_lookup_late - the error of a lookup whose time is over
 * @lookup: the lookup
 *
 * Return: -ETIMEDOUT; -EAGAIN: it was not its user's turn to connect.
 */
int tow_lookup_late(const struct tow_lookup *lookup)
{
	return lookup->session ? -ETIMEDOUT : tow_seeker_late(&lookup->seeker);
}

static void tow_lookup_connected(struct tow_seeker *seeker)
{
	struct tow_lookup *lookup = container_of(seeker, struct tow_lookup,
						 seeker);

	lookup->wake(lookup);
}

/**
 * tow_lookup_init - begin a lookup
 * @lookup: zeroed but for @wake
 * @client: the program's
 * @peer: the peer, with a reference, which is the lookup's from now on; NULL: the lookup
 *	dials its @address
 * @timeout_ms: as in struct tow_resolve, or in struct tow_peer_connect
 *
 * tow_lookup_end() ends it.
 */
void tow_lookup_init(struct tow_lookup *lookup, struct tow_client *client,
		     struct tow_peer *peer, u32 timeout_ms)
{
	unsigned long patience, answer;

	tow_seeker_init(&lookup->seeker, tow_lookup_connected);
	INIT_HLIST_NODE(&lookup->link);
	lookup->peer = peer;
	lookup->dials = !peer;
	kref_get(&client->refs);
	lookup->client = client;
	patience = tow_lookup_patience(lookup);
	if (!timeout_ms)
		answer = patience + msecs_to_jiffies(TOW_LOOKUP_AT_ONCE_MS);
	else if (timeout_ms == TOW_WAIT_FOREVER)
		answer = MAX_JIFFY_OFFSET;
	else
		/* Of the present one a part is over. */
		answer = msecs_to_jiffies(timeout_ms) + 1;
	lookup->until = jiffies + answer;
	if (lookup->dials && timeout_ms)
		patience = msecs_to_jiffies(min_t(u32, timeout_ms, INT_MAX));
	lookup->seek_until = jiffies + patience;
}

/**
 * tow_lookup_begin_dial - begin a lookup that dials
 * @lookup: zeroed but for @wake
 * @client: the client
 * @request: the address and the time-out
 *
 * tow_lookup_end() ends it.
 *
 * Return: 0; -EINVAL as TOW_IOCTL_PEER_CONNECT: it has not begun.
 */
int tow_lookup_begin_dial(struct tow_lookup *lookup, struct tow_client *client,
			  const struct tow_resolve_request *request)
{
	int ret;

	if (request->name || request->name_bytes || request->rights ||
	    request->reserved || request->reserved1)
		return -EINVAL;
	ret = tow_address_take(&lookup->address, request->address,
			       request->scope_id, request->port);
	if (!ret)
		tow_lookup_init(lookup, client, NULL, request->timeout_ms);
	return ret;
}

/**
 * tow_lookup_end - end a lookup
 * @lookup: the lookup; it is not woken any more
 *
 * The remote range is closed, and the handle's number given back, unless the client has
 * them.
 */
void tow_lookup_end(struct tow_lookup *lookup)
{
	tow_seeker_end(&lookup->seeker, lookup->client->dev);
	tow_lookup_close(lookup);
	if (lookup->fresh)
		tow_remote_put(lookup->fresh);
	if (lookup->number)
		tow_client_unreserve_handle(lookup->client, lookup->number);
	/* tow_client_find_handle() may still see it. */
	if (lookup->handle)
		kfree_rcu(lookup->handle, rcu);
	if (lookup->peer)
		tow_peer_put(lookup->peer);
	tow_client_put(lookup->client);
}

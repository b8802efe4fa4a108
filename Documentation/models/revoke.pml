/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Revoke and slab reuse: memory that a peer could reach goes to somebody else.
 *
 * Node A owns two slabs and gives keys to them to node B.  Node B writes with
 * them through one queue pair that all of B's clients share.  A slab's life is
 *
 *	FREE -> OWNED -> DRAINING -> DIRTY -> FREE	or
 *			 DRAINING -> HELD -> DIRTY	(pages pinned elsewhere)
 *
 * and its MR is HIDDEN, or EXPOSED as long as it is exported.
 *
 * What soft-RoCE gives, and the rules must do with:
 *	invalidating a key (LOCAL_INV) is not a fence: a responder that is past
 *	its key check still copies;
 *	key bits wrap, here after two registrations: an old key may fit again;
 *	a request that was sent arrives even if its sender has died;
 *	a destroyed queue pair is quiet, and drops what arrives for it later.
 *
 * What must hold:
 *	(1) no transfer lands in memory of another owner	assert in responder
 *	    (a remote write) and module (an own read)
 *	(2) a stale key never reaches the wire			assert in responder
 *	(3) a slab is never given out before it is zeroed	assert in user
 *	(4) memory pinned elsewhere is never given out		assert in user
 *	(5) revoke always ends					ltl revoke_ends
 *	(6) a slab comes back, unless it is held		ltl slab_returns
 *	(7) nobody waits for ever				no invalid end state
 *
 * What may happen: a node or a link fails at most MAX_FAULTS times (B dies, B
 * comes back, B's queue pair breaks, the connection breaks, a control message
 * is lost).  A time-out, and the death of an owner, may happen at any moment.
 *
 * Each rule can be switched off (-DNO_ACK and so on, all in the table in
 * README.md); tests/models/revoke requires that spin then finds the violation.
 */

#ifndef MAX_FAULTS
#define MAX_FAULTS 2
#endif
#ifndef SLABS
#define SLABS	2
#endif

/* Nobody; also what zeroed memory holds.  Owners are 1 and 2. */
#define NOBODY	0

mtype:slab = { FREE, OWNED, DRAINING, DIRTY, HELD };

/* ---- node A -------------------------------------------------------------- */

typedef Slab {
	mtype:slab state;
	byte owner;		/* of its last life, until the next takes it */
	byte content;		/* whose data it holds */
	bool pinned;		/* a page is held by something else in A's kernel */
	bool ours;		/* a transfer of the owner's own reads into it */
	bool exposed;		/* the MR is valid under this key: */
	bit key;
	bool given;		/* B has the key */
	bool revoking;		/* from here on nobody gets the key */
	bool quiet;		/* no operation of B on it is left, none can come */
	bool logged;		/* revoked, and B has not heard of it yet */
}
Slab slab[SLABS];

/* A's end of the connection: UP, ERR (waits for the responder), DOWN. */
mtype:qp = { UP, ERR, DOWN };
mtype:qp link = UP;

/* The responder of A's queue pair: past the key check, about to copy. */
bool copying;
byte copying_slab;
byte copying_for;

/* ---- node B -------------------------------------------------------------- */

/*
 * An operation is POSTED until its completion, UNKNOWN when the queue pair
 * broke before it: it may be on its way still.  It is posted again when there
 * is a new connection.
 */
mtype:op = { NONE, POSTED, UNKNOWN };

typedef Handle {
	bool valid;
	bool revoked;		/* new operations fail: -ESTALE */
	bit key;
	byte whose;		/* memory it was when the key was given */
	mtype:op op;
}
Handle handle[SLABS];
bool b_alive = true;

/* B's end: GOOD; FLUSHED: the data queue pair broke, control works; CUT. */
mtype:end = { GOOD, FLUSHED, CUT };
mtype:end b_end = GOOD;

/* ---- between them -------------------------------------------------------- */

/* Writes on their way to A: slab, key, whose memory B believes it to be. */
chan wire = [2] of { byte, bit, byte };

/* Control messages, in order for each slab. */
mtype:msg = { KEY, REVOKE, ACK };
typedef Control {
	chan to_b = [2] of { mtype:msg, bit, byte };
	chan to_a = [1] of { mtype:msg };
}
Control control[SLABS];

byte faults;
byte n;				/* loop counter, always 0 outside d_step */

/* ---- node A: the process that has a slab --------------------------------- */

/*
 * Takes the slab, uses it, and ends: by closing or by SIGKILL makes no
 * difference, and it may come while a revoke is under way.
 */
proctype user(byte s)
{
	byte me;
end:
	do
	:: atomic {
		slab[s].state == FREE ->
		assert(slab[s].content == NOBODY);	/* (3) */
		assert(!slab[s].pinned);		/* (4) */
		if
		:: me = 1
		/* alike, unless an owner before left something behind */
		:: len(wire) > 0 || copying || len(control[s].to_b) > 0 ||
		   handle[s].whose != NOBODY -> me = 2
		fi;
		slab[s].owner = me;
		slab[s].content = me;
		slab[s].state = OWNED;
		me = NOBODY
	}
	:: atomic {	/* REG_MR, under the next key */
		slab[s].state == OWNED && !slab[s].exposed ->
		slab[s].key = 1 - slab[s].key;
		slab[s].exposed = true
	}
	:: atomic {	/* vmsplice, O_DIRECT, another driver's registration */
		s == 0 && slab[s].state == OWNED && !slab[s].pinned ->
		slab[s].pinned = true
	}
#ifdef OWN_TRANSFERS
	:: atomic {
		slab[s].state == OWNED && !slab[s].ours ->
		slab[s].ours = true
	}
#endif
	:: atomic {
		slab[s].state == OWNED ->
		slab[s].state = DRAINING
	}
	od
}

/* ---- node A: the module's work for a slab -------------------------------- */

/* LOCAL_INV.  From here on the key does not work, for who has yet to show it. */
inline hide(s)
{
	d_step {
		slab[s].exposed = false;
		slab[s].given = false;
		slab[s].quiet = false;
		slab[s].revoking = false
	}
}

/* The queue pairs go; whoever waits goes on when they are gone. */
#if defined(INVALIDATE_IS_FENCE)
#define TIMED_OUT	break
#elif defined(REUSE_BEFORE_DESTROY)
#define TIMED_OUT	link = ERR; break
#else
#define TIMED_OUT	link = ERR
#endif

/*
 * Phase one: tell B and wait until it has nothing left, or until the queue
 * pairs are gone.  Phase two: invalidate.
 */
inline revoke(s)
{
	atomic {
		slab[s].revoking = true;
		/* Without a key, or without a connection, nothing can come. */
		slab[s].quiet = !slab[s].given || link == DOWN;
		if
		:: slab[s].given && link == DOWN -> slab[s].logged = true
		:: slab[s].given && link == UP -> control[s].to_b!REVOKE(0, 0)
		:: else
		fi
	}
#ifndef NO_ACK
	do
	:: slab[s].quiet -> break
	:: atomic { control[s].to_a?ACK -> slab[s].quiet = true }
#ifndef NO_TIMEOUT
	:: atomic {
		!slab[s].quiet && link == UP ->	/* time-out */
		TIMED_OUT
	}
#endif
	od;
#endif
	hide(s)
}

#if defined(RELEASE_DOES_NOT_WAIT)
#define RELEASABLE(s)	(!slab[s].ours)
#elif defined(OWN_TRANSFER_NOT_HELD)
#define RELEASABLE(s)	(!slab[s].exposed)
#else
#define RELEASABLE(s)	(!slab[s].exposed && !slab[s].ours)
#endif

proctype module(byte s)
{
end:
	do
	/* B resolves the name; A notes that before it answers. */
	:: atomic {
		slab[s].exposed && !slab[s].given && link == UP && b_end != CUT &&
		len(control[s].to_b) < 2 && slab[s].state == OWNED ->
		slab[s].given = true;
		control[s].to_b!KEY(slab[s].key, slab[s].owner)
	}
#ifdef OWN_TRANSFERS
	/* What the owner asked for arrives, though it may have ended. */
	:: atomic {
		slab[s].ours ->
		assert(slab[s].state == OWNED || slab[s].state == DRAINING);	/* (1) */
		slab[s].content = slab[s].owner;
		slab[s].ours = false
	}
#endif
	/* The owner asked for it at some moment, or has ended. */
	:: slab[s].exposed -> revoke(s)
	:: atomic {
		slab[s].state == DRAINING && RELEASABLE(s) ->
		if
#ifndef NO_PIN_CHECK
		:: slab[s].pinned -> slab[s].state = HELD
#endif
		:: else -> slab[s].state = DIRTY
		fi
	}
	:: atomic {
		slab[s].state == DIRTY ->
#ifndef NO_ZERO
		slab[s].content = NOBODY;
#endif
		slab[s].owner = NOBODY;
		slab[s].key = 0;	/* wraps: the next owner's first key is this one's */
		slab[s].state = FREE
	}
	/* Looked for once a second. */
	:: atomic {
		slab[s].state == HELD && !slab[s].pinned ->
		slab[s].state = DIRTY
	}
	od
}

/* ---- node A: the NIC ----------------------------------------------------- */

/*
 * Between check and copy anything may happen.  That the sender hears of a copy
 * at once leaves nothing out: hearing later, it waits longer.
 */
proctype responder()
{
	byte s, whose;
	bit key;
end:
	do
	:: atomic {
		!copying && link == UP && wire?[s, key, whose] ->
		wire?s, key, whose;
		assert(slab[s].exposed && slab[s].key == key);	/* (2) */
		assert(slab[s].owner == whose);			/* (2), wrapped */
		copying = true;
		copying_slab = s;
		copying_for = whose;
		s = 0; key = 0; whose = NOBODY
	}
	:: atomic {
		copying ->
		assert((slab[copying_slab].state == OWNED ||
			slab[copying_slab].state == DRAINING) &&
		       slab[copying_slab].owner == copying_for);	/* (1) */
		slab[copying_slab].content = copying_for;
		if
		:: b_end == GOOD && handle[copying_slab].op == POSTED ->
			handle[copying_slab].op = NONE
		:: else
		fi;
		copying = false;
		copying_slab = 0;
		copying_for = NOBODY
	}
	od
}

/* ---- node A: the connection ---------------------------------------------- */

/* Nothing arrives for a destroyed queue pair, and nothing is left to do on it. */
inline destroy()
{
	d_step {
		link = DOWN;
		do
		:: len(wire) > 0 -> wire?_, _, _
		:: else -> break
		od;
		n = 0;
		do
		:: n < SLABS ->
			do
			:: len(control[n].to_b) > 0 -> control[n].to_b?_, _, _
			:: len(control[n].to_a) > 0 -> control[n].to_a?_
			:: else -> break
			od;
			slab[n].quiet = slab[n].revoking;
			slab[n].logged = slab[n].logged ||
				(slab[n].revoking && slab[n].given);
			if
			:: b_end != CUT && handle[n].op == POSTED ->
				handle[n].op = UNKNOWN
			:: else
			fi;
			n++
		:: else -> break
		od;
		n = 0;
		b_end = CUT
	}
}

/*
 * A new connection.  First of all B hears what was revoked without it, and
 * forgets those keys and the operations that it would post again.
 */
inline connect()
{
	d_step {
		n = 0;
		do
		:: n < SLABS ->
#ifndef NO_LOG
			if
			:: slab[n].logged ->
				handle[n].valid = false;
				handle[n].revoked = false;
				handle[n].key = 0;
				handle[n].whose = NOBODY;
				handle[n].op = NONE
			:: else
			fi;
#endif
			slab[n].logged = false;
			/* another incarnation of B knows nothing */
			slab[n].given = handle[n].valid;
			n++
		:: else -> break
		od;
		n = 0;
		link = UP;
		b_end = GOOD
	}
}

proctype connection()
{
end:
	do
	:: link == UP && b_alive && b_end != GOOD -> link = ERR
	:: atomic { link == ERR && !copying -> destroy() }
	:: atomic { link == DOWN && b_alive -> connect() }
	od
}

/* ---- node B -------------------------------------------------------------- */

#if defined(ACK_EARLY)
#define DONE(s)	true
#elif defined(FLUSH_IS_DONE)
#define DONE(s)	(handle[s].op != POSTED)
#else
#define DONE(s)	(handle[s].op == NONE)
#endif

proctype resolver(byte s)
{
end:
	do
	:: atomic {
		b_end != CUT && control[s].to_b?[KEY] ->
		control[s].to_b?KEY(handle[s].key, handle[s].whose);
		handle[s].valid = true
	}
	/* A write, or one again whose fate the old connection left open. */
	:: atomic {
		handle[s].valid && b_end == GOOD && len(wire) < 2 &&
		((handle[s].op == NONE && !handle[s].revoked) ||
		 handle[s].op == UNKNOWN) ->
		handle[s].op = POSTED;
		wire!s, handle[s].key, handle[s].whose
	}
	:: atomic {
		b_end != CUT && control[s].to_b?[REVOKE] ->
		control[s].to_b?REVOKE(_, _);
		handle[s].revoked = true
	}
	:: atomic {
		b_end != CUT && handle[s].revoked && DONE(s) ->
		handle[s].valid = false;
		handle[s].revoked = false;
		handle[s].key = 0;
		handle[s].whose = NOBODY;
		handle[s].op = NONE;
		control[s].to_a!ACK
	}
	od
}

/* ---- what goes wrong ----------------------------------------------------- */

/* What B knew is gone; what it sent is not. */
inline b_dies()
{
	d_step {
		b_alive = false;
		b_end = CUT;
		n = 0;
		do
		:: n < SLABS ->
			handle[n].valid = false;
			handle[n].revoked = false;
			handle[n].key = 0;
			handle[n].whose = NOBODY;
			handle[n].op = NONE;
			n++
		:: else -> break
		od;
		n = 0
	}
}

/* B's provider reports every operation as flushed; A's responder goes on. */
inline b_flushes()
{
	d_step {
		b_end = FLUSHED;
		n = 0;
		do
		:: n < SLABS ->
			if
			:: handle[n].op == POSTED -> handle[n].op = UNKNOWN
			:: else
			fi;
			n++
		:: else -> break
		od;
		n = 0
	}
}

proctype fate()
{
end:
	do
	:: atomic { faults < MAX_FAULTS && b_alive -> faults++; b_dies() }
	:: atomic { !b_alive -> b_alive = true }
	:: atomic { faults < MAX_FAULTS && b_end == GOOD -> faults++; b_flushes() }
	:: atomic { faults < MAX_FAULTS && link == UP -> faults++; link = ERR }
	:: atomic { faults < MAX_FAULTS && len(control[0].to_b) > 0 ->
			faults++; control[0].to_b?_, _, _ }
	:: atomic { faults < MAX_FAULTS && len(control[0].to_a) > 0 ->
			faults++; control[0].to_a?_ }
	/* whoever pinned a page lets it go, or never does */
	:: atomic { slab[0].pinned -> slab[0].pinned = false }
	od
}

init {
	atomic {
		n = 0;
		do
		:: n < SLABS ->
			slab[n].state = FREE;
			handle[n].op = NONE;
			n++
		:: else -> break
		od;
		n = 0;
		run user(0); run module(0); run resolver(0);
#if SLABS > 1
		run user(1); run module(1); run resolver(1);
#endif
		run responder();
		run connection();
		run fate()
	}
}

/* The slabs are alike, so the first stands for both. */
ltl revoke_ends { [] (slab[0].revoking -> <> !slab[0].revoking) }
ltl slab_returns {
	[] (slab[0].state == DRAINING -> <> (slab[0].state == FREE || slab[0].state == HELD))
}

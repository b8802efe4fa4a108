/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Ties: what two nodes have of each other, which one session after the other carries.
 *
 * A session is made by two messages (connect.pml has the rest of it): AUTH names the tie
 * that the initiator has, AUTHED the one that goes on, or none.  If both ends have the
 * same it goes on; if not, both drop what they have, and another begins.  READY goes both
 * ways, and then SYNC, over which what was under way is decided (epochs.pml).
 *
 * A session breaks, each end notices at a moment of its own, and its queue pairs are
 * there for a while; then its tie is idle, if it was READY at this end ever; if not,
 * it ends.  An idle one is carried by another session, or ends when its end's patience
 * does, of which the other end hears nothing.
 *
 * What must hold:
 *	(1) two ends of a session carry the same tie		enters()
 *	(2) what goes on at one end goes on at the other	sync()
 *	(3) what programs were told is lost does not come back	carry()
 *	(4) no two sessions carry a tie				carry()
 *	(5) in the end there is a session, and no tie waits	monitor
 *
 * What may happen, MAX_FAULTS times: a session breaks, in the middle of being made, too;
 * an end's patience ends; a node dies and comes back without any memory; the responder
 * does not wait any longer for queue pairs to go, and refuses.
 *
 * Left out: crossing connects, of which connect.pml leaves one.  Each rule can be
 * switched off, see README.md.
 */

#ifndef MAX_FAULTS
#define MAX_FAULTS 3
#endif

/* More than are ever needed: (5). */
#define CONNS	(2 * MAX_FAULTS + 2)

mtype:session = { OFF, DIALLED, HELD, UP };
mtype:tie = { NONE, CARRIED, IDLE };
mtype:message = { AUTH, AUTHED, READY, SYNC };

typedef Node {
	mtype:session st;
	byte conn;		/* of its session, or of its last */
	bool dials;		/* it is the initiator */
	mtype:tie ts;
	byte tie;		/* its name: of the connection that it began with */
	bool settled;		/* a session that carried it was READY here */
	bool old;		/* queue pairs of a session that broke are there */
	bool goes_on;		/* SYNC is to come */
	byte asked;		/* AUTH has come, by this connection; 0: none */
	byte name;		/* ... and names this tie */
}
Node node[2];

/* By tie: programs were told, on that node. */
typedef Ties {
	bool is[CONNS + 1];
}
Ties lost[2];

byte conns;			/* so many there were */
bool broken[CONNS + 1];
chan to[2] = [4] of { mtype:message, byte, byte };

byte faults = MAX_FAULTS;	/* that may still happen */
#define FAULT	(faults > 0)

/* ---- ties ---------------------------------------------------------------------- */

inline forget(n)
{
	node[n].ts = NONE;
	node[n].tie = 0;
	node[n].settled = false;
	node[n].old = false;
	node[n].goes_on = false
}

inline lose(n)
{
	lost[n].is[node[n].tie] = true;
	forget(n)
}

inline drop(n)
{
	if
	:: node[n].ts != NONE -> lose(n)
	:: else
	fi
}

/* It is there already; its session goes on with it. */
inline carry(n)
{
	assert(!lost[n].is[node[n].tie]);			/* (3) */
	assert(!node[n].old);					/* (4) */
	node[n].ts = CARRIED;
	node[n].goes_on = true
}

inline begin(n, number)
{
	drop(n);
	node[n].tie = number;
	node[n].ts = CARRIED
}

/* ---- sessions ------------------------------------------------------------------ */

/* This end has noticed that its session is over. */
inline breaks(n)
{
	if
	:: (node[n].st == HELD || node[n].st == UP) && node[n].settled ->
		node[n].old = true;
		node[n].goes_on = false
	:: (node[n].st == HELD || node[n].st == UP) && !node[n].settled ->
		lose(n)
	:: else
	fi;
	node[n].dials = false;
	node[n].st = OFF
}

inline dial(n)
{
	conns++;
	assert(conns <= CONNS);					/* (5) */
	node[n].conn = conns;
	node[n].st = DIALLED;
	node[n].dials = true;
	to[1 - n]!AUTH(conns, node[n].tie)
}

/*
 * The responder's: is the initiator's tie ours?  Its queue pairs must have gone, which
 * is waited for.
 */
#ifdef NO_NAMES
#define SAME(n)		(node[n].ts != NONE)
#else
#define SAME(n)		(node[n].ts != NONE && node[n].tie == node[n].name)
#endif
#ifdef CARRY_EARLY
#define MAY_CARRY(n)	true
#else
#define MAY_CARRY(n)	(node[n].ts == IDLE)
#endif

inline answer(n)
{
	node[n].conn = node[n].asked;
	node[n].asked = 0;
	if
	:: SAME(n) ->
		carry(n);
		to[1 - n]!AUTHED(node[n].conn, node[n].tie)
	:: else ->
		begin(n, node[n].conn);
		to[1 - n]!AUTHED(node[n].conn, 0)
	fi;
	node[n].name = 0;
	node[n].st = HELD
}

/* The initiator's: that one goes on, or none. */
inline answered(n, what)
{
	if
	:: what != 0 && node[n].tie == what ->
		carry(n);
		node[n].st = HELD
	/* Its patience has ended meanwhile. */
	:: what != 0 && node[n].tie != what ->
#ifdef CARRY_LOST
		forget(n);
		node[n].tie = what;
		carry(n);
		node[n].st = HELD
#else
		broken[node[n].conn] = true;
		node[n].dials = false;
		node[n].st = OFF
#endif
	:: what == 0 ->
#ifdef KEEP_MINE
		if
		:: node[n].ts == IDLE -> carry(n)
		:: else -> begin(n, node[n].conn)
		fi;
#else
		begin(n, node[n].conn);
#endif
		node[n].st = HELD
	fi;
	if
	:: node[n].st == HELD -> to[1 - n]!READY(node[n].conn, 0)
	:: else
	fi
}

inline enters(n)
{
	node[n].st = UP;
	node[n].settled = true;
	if
	:: node[1 - n].conn == node[n].conn && node[1 - n].st == UP ->
		assert(node[0].tie == node[1].tie)		/* (1) */
	:: else
	fi;
	if
	:: !node[n].dials -> to[1 - n]!READY(node[n].conn, 0)
	:: else
	fi;
	if
	:: node[n].goes_on -> to[1 - n]!SYNC(node[n].conn, node[n].tie)
	:: else
	fi
}

inline sync(n, what)
{
	assert(node[n].goes_on && node[n].tie == what);		/* (2) */
	node[n].goes_on = false
}

/*
 * What is not of the present session is not looked at; AUTH is of the next.  A broken
 * connection may deliver something, or not.
 */
inline receive(n)
{
	if
	:: broken[by]
	:: kind == AUTH && by > node[n].conn ->
		node[n].asked = by;
		node[n].name = what
	:: kind == AUTHED && by == node[n].conn && node[n].st == DIALLED ->
		answered(n, what)
	:: kind == READY && by == node[n].conn && node[n].st == HELD -> enters(n)
	:: kind == SYNC && by == node[n].conn && node[n].st == UP -> sync(n, what)
	:: else
	fi;
	kind = 0;
	by = 0;
	what = 0
}

/* ---- what happens -------------------------------------------------------------- */

proctype end(byte n)
{
	mtype:message kind;
	byte by, what;

endless:
	do
	:: atomic { to[n]?kind, by, what -> receive(n) }
	:: atomic { node[n].st != OFF && broken[node[n].conn] -> breaks(n) }
	/* The other end has given it up, and asks for another one. */
	:: atomic { node[n].asked != 0 && node[n].st != OFF ->
		broken[node[n].conn] = true;
		breaks(n)
	}
	:: atomic { node[n].asked != 0 && node[n].st == OFF &&
		    (!SAME(n) || MAY_CARRY(n)) -> answer(n) }
	:: atomic { node[n].asked != 0 && broken[node[n].asked] ->
		node[n].asked = 0;
		node[n].name = 0
	}
	:: atomic { node[n].old -> node[n].old = false; node[n].ts = IDLE }
	:: atomic { node[n].st == OFF && node[n].asked == 0 && !node[n].old &&
		    node[1 - n].st != DIALLED -> dial(n) }
	/* faults */
	:: atomic { FAULT && node[n].st != OFF && !broken[node[n].conn] ->
		faults--;
		broken[node[n].conn] = true
	}
	:: atomic { FAULT && node[n].ts == IDLE -> faults--; lose(n) }
	:: atomic { FAULT && node[n].asked != 0 && node[n].st == OFF && SAME(n) &&
		    node[n].ts == CARRIED ->
		faults--;
		broken[node[n].asked] = true;
		node[n].asked = 0;
		node[n].name = 0
	}
	:: atomic { FAULT && (node[n].ts != NONE || node[n].st != OFF) ->
		faults--;
		broken[node[n].conn] = true;
		broken[conns] = true;
		forget(n);
		node[n].asked = 0;
		node[n].name = 0;
		node[n].dials = false;
		node[n].st = OFF
	}
	od
}

proctype monitor()
{
	timeout;
	assert(node[0].st == UP && node[1].st == UP);		/* (5) */
	assert(node[0].conn == node[1].conn && node[0].tie == node[1].tie);
	assert(!node[0].goes_on && !node[1].goes_on)
}

init {
	atomic {
		do
		:: faults > 0 -> faults--
		:: break
		od;
		node[0].st = OFF;
		node[1].st = OFF;
		node[0].ts = NONE;
		node[1].ts = NONE;
		run end(0); run end(1); run monitor()
	}
}

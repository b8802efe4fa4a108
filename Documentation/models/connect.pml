/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Connect: two nodes become peers, whoever asks first, and anew when the session
 * breaks or one of them starts again.  This is what kmod/peer/collision.c does,
 * and Documentation/protocol.md says.
 *
 *	initiator				responder
 *	REQ: nonce, incarnation		->	a half-open session
 *					<-	REP: nonce, incarnation, MAC
 *	begin()
 *	AUTH: MAC, order		->	authenticated()
 *					<-	AUTHED
 *					<-	QPS, which is left out
 *	SAY_READY, for its QPS		->	READY
 *	READY				<-	SAY_READY
 *
 * A session is one connection, and nothing outlives it.  Each end has a state of
 * its own for it (st), and at each node one object stands for each incarnation
 * of the other one, with the session that is present.  The transitions are those
 * of kmod/peer/state.c, which tests/unit/peer_state.c compares:
 */
#define TRANSITIONS \
	T(IDLE, CONNECT, CONNECTING) \
	T(DEAD, CONNECT, CONNECTING) \
	T(BROKEN, CONNECT, CONNECTING) \
	T(CONNECTING, ESTABLISHED, READY) \
	T(CONNECTING, BROKE, BROKEN) \
	T(READY, BROKE, BROKEN) \
	T(BROKEN, CLOSED, IDLE) \
	T(BROKEN, FAILED, DEAD)
/*
 * What must hold:
 *	(1) whoever is believed made that MAC, for this connection	REALLY
 *	(2) when all is quiet: READY at both ends, of the same session, or at
 *	    neither; and no call still waits				monitor
 *	(3) no call fails unless a node died: the faults are fewer than the
 *	    tries, and CROSSED uses up none				ended()
 *	(4) nor is a call told CROSSED again and again: each time takes up to
 *	    2 s of its 10						ended()
 *	(5) no READY session is replaced while its other end has it, nor one
 *	    that the same node is making; what is refused as old was
 *	    given up						authenticated()
 *	(6) nothing READY breaks while nothing went wrong, whatever an attacker
 *	    without the key says					move()
 *	(7) another life of a node takes the place of an earlier one, never of a
 *	    later one							established()
 *	(8) no transition but those above				move()
 *
 * What may happen, MAX_FAULTS times: a request or its answer is lost; a timer is
 * early or a queue pair breaks, at one end, at any stage; a node dies, and comes
 * back once as another incarnation (which is larger than the other's, or not).
 * Ends of sessions, and messages of different connections, are dealt with at any
 * time and in any order.  With -DATTACKS=n an attacker without the key acts n
 * times: it takes messages away, and asks; and it says whatever it has seen.
 *
 * -DADDRESSES=2: each node is known by two addresses, and asked at both.
 *
 * Left out: the loopback peer; data queue pairs (which fail as connections
 * break) and what QPS says of them; the rule that a peer which is heard at another
 * address is told BUSY; and that too many half-open sessions are refused.
 */
#ifndef MAX_FAULTS
#define MAX_FAULTS	2
#endif
#ifndef TRIES
#define TRIES		3
#endif
#ifndef CROSSINGS
#define CROSSINGS	3
#endif
#ifndef ATTACKS
#define ATTACKS		0
#endif
#ifndef ADDRESSES
#define ADDRESSES	1
#endif
#ifndef CALLS_0
#define CALLS_0		1
#endif
#ifndef CALLS_1
#define CALLS_1		1
#endif
#ifndef CONNS
#define CONNS		4
#endif
#ifndef DEATH
#define DEATH		FAULT
#endif
#ifndef EARLY
#define EARLY		FAULT
#endif
#define FAULT		(faults > 0)

mtype:state = { IDLE, CONNECTING, READY, BROKEN, DEAD };
mtype:event = { CONNECT, ESTABLISHED, BROKE, CLOSED, FAILED };
mtype:msg = { NOTHING, REQ, REP, AUTH, AUTHED, SAY_READY };

/*
 * One end of a session.  ENTERED: the session is READY, the peer is not told yet.
 * ENDING: it is the present one, and cannot go on.
 */
mtype:stage = { NONE, DIALLED, HALF, PROVEN, AUTHENTICATED, ENTERED, UP, ENDING, EVIL };
mtype:why = { FINE, CROSSED, REPLACED, OTHER };
mtype:attempt = { OFF, DIAL, TRY, WAIT };

/* Index 0 of each array: the initiator's end; 1: the responder's. */
typedef Conn {
	bit by;			/* the node that is the initiator */
	bit address;		/* that it asked at */
	bit life[2];		/* which life of each node */
	mtype:stage st[2];
	mtype:msg mail[2];	/* arrived, and not dealt with */
	mtype:why bye[2];	/* GOODBYE, behind it */
	mtype:why error[2];	/* of an end that is ENDING */
	byte opened[2];
	byte ready[2];
	byte order;		/* in AUTH; 0: not sent, or not the newest any more */
#if ATTACKS
	byte ni;
	byte nr;
#endif
}
Conn conn[CONNS];

typedef Node {
	bool alive;
	bool returns;		/* dead, but not for ever */
	bit life;
	byte inc;		/* of this life: larger wins */
	byte calls;		/* that users will still make */
	mtype:state st[2];	/* the object for each life of the other node */
	byte present[2];	/* its connection, plus 1 */
}
Node node[2];

/* Somebody wants the peer at an address. */
typedef Attempt {
	mtype:attempt at;
	byte on;		/* a connection */
	bit life;		/* whose READY it waits for */
	byte tries;
	byte crossed;
}
Attempt attempts[4];

byte faults;			/* that may still happen */
bool wrong;			/* one has happened */
bool died;			/* a node has died */
#if ATTACKS
byte fresh;			/* nonces */
#endif

#define OTHERS(i)	(1 - (i))
#define NODE(c, e)	((e) == 0 -> conn[c].by : 1 - conn[c].by)
#define END(c, i)	(conn[c].by == (i) -> 0 : 1)
#define ALIVE(c, e) \
	(conn[c].st[e] != NONE && conn[c].st[e] != ENDING && conn[c].st[e] != EVIL)
#define FREE(c) \
	(conn[c].st[0] == NONE && conn[c].st[1] == NONE && conn[c].mail[1] == NOTHING)

/* The attempt that is behind the initiator's end. */
#define BEHIND(c)	attempts[2 * conn[c].by + conn[c].address]

#define T(from, event, to) \
	:: node[n].st[l] == from && what == event -> node[n].st[l] = to

inline move(happens)
{
	what = happens;
	if
	:: what == BROKE && node[n].st[l] == READY -> assert(wrong)	/* (6) */
	:: else
	fi;
	if
	TRANSITIONS
	:: else -> assert(false)	/* (8) */
	fi
}

/* One more than all that is remembered: the order is all that counts. */
inline stamp(time)
{
	time = 0;
	k = 0;
	do
	:: k < CONNS ->
		if
		:: conn[k].opened[END(k, n)] > time -> time = conn[k].opened[END(k, n)]
		:: else
		fi;
		if
		:: conn[k].ready[END(k, n)] > time -> time = conn[k].ready[END(k, n)]
		:: else
		fi;
		k++
	:: else -> break
	od;
	time++;
	k = 0
}

/* Nobody remembers it. */
inline sweep(c)
{
	if
	:: FREE(c) ->
		conn[c].by = 0;
		conn[c].address = 0;
		conn[c].life[0] = 0;
		conn[c].life[1] = 0;
		conn[c].mail[0] = NOTHING;
		conn[c].bye[0] = FINE;
		conn[c].bye[1] = FINE;
		conn[c].order = 0;
#if ATTACKS
		conn[c].ni = 0;
		conn[c].nr = 0
#endif
	:: else
	fi
}

#ifdef CROSSED_FAILS
#define COUNTS_NOT	false
#else
#define COUNTS_NOT	true
#endif
/* Nothing is left of that end; what an attempt does then. */
inline ended(c, e, error_)
{
	conn[c].st[e] = NONE;
	conn[c].mail[e] = NOTHING;
	conn[c].bye[e] = FINE;
	conn[c].opened[e] = 0;
	conn[c].ready[e] = 0;
	if
	:: e == 0 && BEHIND(c).at == TRY && BEHIND(c).on == c ->
		BEHIND(c).on = 0;
		if
		:: error_ == CROSSED && COUNTS_NOT ->
			BEHIND(c).crossed++;
			assert(BEHIND(c).crossed <= CROSSINGS);	/* (4) */
			BEHIND(c).at = WAIT
		:: else ->
			BEHIND(c).tries--;
			BEHIND(c).life = 0;
			if
			:: BEHIND(c).tries == 0 ->
				assert(died);			/* (3) */
				BEHIND(c).at = OFF;
				BEHIND(c).crossed = 0
			:: else ->
				BEHIND(c).at = DIAL
			fi
		fi
	:: else
	fi;
	conn[c].error[e] = FINE;
	sweep(c)
}

#define PRESENT(c, e) \
	(node[NODE(c, e)].present[conn[c].life[1 - (e)]] == (c) + 1)

/*
 * tow_session_fail(): an error for whoever waits here, a reason for the other
 * end (FINE: it is told nothing).  A present session takes its time.
 */
inline fail(c, e, error_, reason)
{
	if
	:: reason != FINE && ALIVE(c, 1 - e) -> conn[c].bye[1 - e] = reason
	:: else
	fi;
	if
	:: PRESENT(c, e) && conn[c].st[e] != DIALLED && conn[c].st[e] != HALF ->
		conn[c].st[e] = ENDING;
		conn[c].error[e] = error_;
		conn[c].mail[e] = NOTHING;
		conn[c].bye[e] = FINE
	:: else -> ended(c, e, error_)
	fi
}

/* tow_peer_install(): end @e of @c; whatever was there before is out. */
inline install(c, e)
{
	if
	:: node[n].st[l] == READY || node[n].st[l] == CONNECTING -> move(BROKE)
	:: else
	fi;
	node[n].present[l] = c + 1;
	move(CONNECT)
}

#define SAME_LIFE(c) \
	(conn[k].by == conn[c].by && conn[k].life[0] == conn[c].life[0])

/*
 * AUTH tells how many that life of the node has sent: one more than the last.
 * Those that are not on their way any more need no number of their own.
 */
inline number(c)
{
	k = 0;
	do
	:: k < CONNS ->
		if
		:: SAME_LIFE(c) && conn[k].order > o -> o = conn[k].order
		:: else
		fi;
		k++
	:: else -> break
	od;
	conn[c].order = o + 1;
	o = 0;
	k = 0
}

/* The responder has seen that one: what was sent before is not believed. */
inline newest(c)
{
	o = conn[c].order;
	k = 0;
	do
	:: k < CONNS ->
		if
		:: SAME_LIFE(c) && conn[k].order <= o -> conn[k].order = 0
		:: else
		fi;
		k++
	:: else -> break
	od;
	o = 0;
	k = 0
}

#define PRESENT_ALIVE	(p != 0 && ALIVE(p - 1, END(p - 1, n)))
#ifdef NO_BEGIN
#define MAY_BEGIN	true
#else
#define MAY_BEGIN	!PRESENT_ALIVE
#endif

/* tow_peer_begin(): the responder has proved itself. */
inline begin(c)
{
	n = conn[c].by;
	l = conn[c].life[1];
	p = node[n].present[l];
	BEHIND(c).life = l;
	if
	:: MAY_BEGIN ->
		install(c, 0);
		conn[c].st[0] = PROVEN;
		number(c);
#ifndef OPENED_AT_REQUEST
		stamp(conn[c].opened[0]);
#endif
		if
		:: ALIVE(c, 1) -> conn[c].mail[1] = AUTH
		:: else
		fi
	:: else -> fail(c, 0, CROSSED, CROSSED)
	fi;
	n = 0; l = 0; p = 0
}

/* tow_peer_may_replace(): q is the present session's end, p - 1 the session. */
#ifdef NO_CROSSING
#define WE_WIN		false
#else
#define WE_WIN		(q == 0 && conn[p - 1].ready[0] == 0 && \
			 node[n].inc > node[OTHERS(n)].inc)
#endif
#ifdef NO_READY_ORDER
#define OF_BEFORE(c)	false
#else
#define OF_BEFORE(c)	(q == 0 && conn[p - 1].ready[0] > conn[c].opened[1])
#endif
#ifdef NO_ENTERED
#define JUST_READY	false
#else
#define JUST_READY	(q == 0 && conn[p - 1].st[0] == ENTERED)
#endif
#if defined(NO_AUTH_ORDER)
#define IS_OLD(c)	false
#elif defined(REQUEST_ORDER)
#define IS_OLD(c)	(p != 0 && q == 1 && \
			 conn[p - 1].opened[1] > conn[c].opened[1])
#else
#define IS_OLD(c)	(conn[c].order == 0)
#endif
#ifdef READY_STAYS
#define STAYS		(conn[p - 1].st[q] == UP)
#else
#define STAYS		false
#endif
#define MAY_REPLACE(c) \
	(!WE_WIN && !OF_BEFORE(c) && !JUST_READY && !STAYS)

inline replace(c)
{
	if
	:: p != 0 && (q == 1 || conn[p - 1].st[q] == UP || conn[p - 1].st[q] == ENTERED) ->
		assert(!ALIVE(p - 1, 1 - q))			/* (5) */
	:: else
	fi;
	install(c, 1);
	conn[c].st[1] = AUTHENTICATED;
	if
	:: ALIVE(c, 0) -> conn[c].mail[0] = AUTHED
	:: else
	fi;
	if
	:: p != 0 -> p--; fail(p, q, CROSSED, REPLACED)
	:: else
	fi
}

/* tow_peer_authenticated(): the initiator has proved itself. */
inline authenticated(c)
{
	n = 1 - conn[c].by;
	l = conn[c].life[0];
	p = node[n].present[l];
	if
	:: PRESENT_ALIVE -> q = END(p - 1, n)
	:: else -> p = 0
	fi;
	if
	:: IS_OLD(c) ->
		assert(!ALIVE(c, 0));				/* (5) */
		fail(c, 1, CROSSED, CROSSED)
	:: else ->
		newest(c);
		if
		:: p != 0 && !MAY_REPLACE(c) -> fail(c, 1, CROSSED, CROSSED)
		:: else -> replace(c)
		fi
	fi;
	n = 0; l = 0; p = 0; q = 0
}

#ifdef FORGET_ALL
#define EARLIER(c, e)	true
#else
#define EARLIER(c, e)	(conn[p - 1].opened[q] < conn[c].opened[e])
#endif

/* tow_peer_session_ready() */
inline established(c, e)
{
	n = NODE(c, e);
	l = conn[c].life[1 - e];
	conn[c].st[e] = UP;
	stamp(conn[c].ready[e]);
	move(ESTABLISHED);
	if
	:: e == 0 && BEHIND(c).at == TRY && BEHIND(c).on == c ->
		BEHIND(c).at = OFF;
		BEHIND(c).on = 0;
		BEHIND(c).life = 0;
		BEHIND(c).tries = 0;
		BEHIND(c).crossed = 0
	:: else
	fi;
	/* Another life of that node is over. */
	p = node[n].present[1 - l];
	if
	:: PRESENT_ALIVE ->
		q = END(p - 1, n);
		if
		:: EARLIER(c, e) ->
			assert(l == 1);				/* (7) */
			p--;
			fail(p, q, OTHER, REPLACED)
		:: else
		fi
	:: else
	fi;
	n = 0; l = 0; p = 0; q = 0
}

/* A request of the other node, or of who says that he is it. */
inline request(c)
{
	conn[c].mail[1] = NOTHING;
	n = 1 - conn[c].by;
	if
	:: !node[n].alive -> ended(c, 1, FINE)
	:: else ->
		conn[c].st[1] = HALF;
		conn[c].life[1] = node[n].life;
		stamp(conn[c].opened[1]);
#if ATTACKS
		fresh++;
		conn[c].nr = fresh;
#endif
#ifdef BELIEVE_REQ
		p = node[n].present[conn[c].life[0]];
		if
		:: PRESENT_ALIVE -> q = END(p - 1, n); p--; fail(p, q, CROSSED, REPLACED)
		:: else
		fi;
		p = 0; q = 0;
#endif
		if
		:: conn[c].st[0] == DIALLED -> conn[c].mail[0] = REP
		:: else
		fi
	fi;
	n = 0
}

/* The other end is gone, and says nothing any more. */
#define SILENT(e) \
	(ALIVE(c, e) && conn[c].mail[e] == NOTHING && conn[c].bye[e] == FINE && \
	 conn[c].st[1 - (e)] == NONE && conn[c].mail[1] != REQ)

/* What an end of a session does. */
#define STEPS(e) \
	:: atomic { SILENT(e) -> fail(c, e, OTHER, FINE) } \
	:: atomic { \
		ALIVE(c, e) && conn[c].mail[e] == NOTHING && conn[c].bye[e] != FINE && \
		conn[c].st[e] != DIALLED -> \
		fail(c, e, conn[c].bye[e], FINE) \
	} \
	:: atomic { conn[c].st[e] == ENTERED && PRESENT(c, e) -> established(c, e) } \
	:: atomic { \
		conn[c].st[e] == ENDING && PRESENT(c, e) && \
		node[NODE(c, e)].st[conn[c].life[1 - e]] != BROKEN -> \
		n = NODE(c, e); \
		l = conn[c].life[1 - e]; \
		move(BROKE); \
		n = 0; l = 0 \
	} \
	:: atomic { \
		conn[c].st[e] == ENDING && \
		(!PRESENT(c, e) || \
		 node[NODE(c, e)].st[conn[c].life[1 - e]] == BROKEN) -> \
		n = NODE(c, e); \
		l = conn[c].life[1 - e]; \
		if \
		:: PRESENT(c, e) -> \
			node[n].present[l] = 0; \
			if \
			:: conn[c].error[e] == CROSSED || \
			   conn[c].error[e] == REPLACED -> move(CLOSED) \
			:: else -> move(FAILED) \
			fi \
		:: else \
		fi; \
		n = 0; l = 0; \
		ended(c, e, conn[c].error[e]) \
	} \
	:: atomic {	/* a fault: a timer is early, a queue pair breaks */ \
		EARLY && ALIVE(c, e) -> \
		faults--; \
		wrong = true; \
		fail(c, e, OTHER, FINE) \
	}

proctype session(byte c)
{
	mtype:event what;
	byte k, o, p;
	bit n, l, q;
end:
	do
	:: atomic { conn[c].mail[1] == REQ -> request(c) }
	:: atomic {
		conn[c].st[0] == DIALLED && conn[c].mail[0] == REP ->
		conn[c].mail[0] = NOTHING;
		begin(c)
	}
	:: atomic {
		conn[c].st[1] == HALF && conn[c].mail[1] == AUTH ->
		conn[c].mail[1] = NOTHING;
		authenticated(c)
	}
	:: atomic {
		conn[c].st[0] == PROVEN && conn[c].mail[0] == AUTHED ->
		conn[c].mail[0] = NOTHING;
		conn[c].st[0] = AUTHENTICATED;
		if
		:: ALIVE(c, 1) -> conn[c].mail[1] = SAY_READY
		:: else
		fi
	}
	:: atomic {
		conn[c].st[1] == AUTHENTICATED && conn[c].mail[1] == SAY_READY ->
		conn[c].mail[1] = NOTHING;
		conn[c].st[1] = ENTERED;
		if
		:: ALIVE(c, 0) -> conn[c].mail[0] = SAY_READY
		:: else
		fi
	}
	:: atomic {
		conn[c].st[0] == AUTHENTICATED && conn[c].mail[0] == SAY_READY ->
		conn[c].mail[0] = NOTHING;
		conn[c].st[0] = ENTERED
	}
	STEPS(0)
	STEPS(1)
	:: atomic {
		FAULT && (conn[c].mail[1] == REQ || conn[c].mail[0] == REP) ->
		faults--;
		wrong = true;
		if
		:: conn[c].mail[1] == REQ ->
			conn[c].mail[1] = NOTHING;
			if
			:: conn[c].st[0] == NONE -> ended(c, 0, FINE)
			:: else
			fi
		:: else ->
			conn[c].mail[0] = NOTHING;
			fail(c, 0, OTHER, FINE)
		fi
	}
	od
}

/*
 * Who waits for the other node's session waits 2 s: long enough for whatever
 * takes no time by itself.
 */
#define AT_ONCE(c) \
	(conn[c].mail[0] != NOTHING || conn[c].mail[1] != NOTHING || \
	 conn[c].bye[0] != FINE || conn[c].bye[1] != FINE || \
	 conn[c].st[0] == ENTERED || conn[c].st[1] == ENTERED || \
	 conn[c].st[0] == ENDING || conn[c].st[1] == ENDING)
#define COMING(c) \
	(AT_ONCE(c) || \
	 (conn[c].by == OTHERS(i) && ALIVE(c, 0) && conn[c].st[0] != UP))
#define ANY_COMING	(COMING(0) || COMING(1) || COMING(2) || COMING(CONNS - 1))
#define WAITED_FOR(a) \
	(node[i].present[attempts[2 * i + a].life] != 0 && \
	 ALIVE(node[i].present[attempts[2 * i + a].life] - 1, \
	       END(node[i].present[attempts[2 * i + a].life] - 1, i)))
#ifdef CROSSED_WAITS
#define MAY_RETRY(a)	false
#else
#define MAY_RETRY(a)	(!WAITED_FOR(a) && !ANY_COMING)
#endif

#define ATTEMPTS(a) \
	:: atomic { \
		node[i].alive && node[i].calls > 0 && attempts[2 * i + a].at == OFF && \
		node[i].st[0] != READY && node[i].st[1] != READY -> \
		node[i].calls--; \
		attempts[2 * i + a].at = DIAL; \
		attempts[2 * i + a].tries = TRIES \
	} \
	:: atomic { \
		attempts[2 * i + a].at == DIAL && \
		(FREE(0) || FREE(1) || FREE(2) || FREE(CONNS - 1)) -> \
		do \
		:: FREE(c) -> break \
		:: else -> c++ \
		od; \
		conn[c].by = i; \
		conn[c].address = a; \
		conn[c].life[0] = node[i].life; \
		conn[c].st[0] = DIALLED; \
		conn[c].mail[1] = REQ; \
		DIALLING; \
		attempts[2 * i + a].at = TRY; \
		attempts[2 * i + a].on = c; \
		c = 0 \
	} \
	:: atomic { \
		attempts[2 * i + a].at == WAIT && \
		node[i].st[attempts[2 * i + a].life] == READY -> \
		attempts[2 * i + a].at = OFF; \
		attempts[2 * i + a].tries = 0; \
		attempts[2 * i + a].life = 0; \
		attempts[2 * i + a].crossed = 0 \
	} \
	:: atomic { \
		attempts[2 * i + a].at == WAIT && \
		node[i].st[attempts[2 * i + a].life] != READY && MAY_RETRY(a) -> \
		attempts[2 * i + a].at = DIAL; \
		attempts[2 * i + a].life = 0 \
	} \
	:: atomic { \
		EARLY && attempts[2 * i + a].at == WAIT && \
		node[i].st[attempts[2 * i + a].life] != READY && !MAY_RETRY(a) -> \
		faults--; \
		wrong = true; \
		attempts[2 * i + a].at = DIAL; \
		attempts[2 * i + a].life = 0 \
	}

#if ATTACKS
#define DIALLING \
	fresh++; \
	assert(fresh < 60); \
	conn[c].ni = fresh
#elif defined(OPENED_AT_REQUEST)
#define DIALLING	n = i; stamp(conn[c].opened[0]); n = 0
#else
#define DIALLING	skip
#endif

inline end_of(c, e)
{
	if
	:: NODE(c, e) == i && conn[c].st[e] != NONE && conn[c].st[e] != EVIL ->
		ended(c, e, FINE)
	:: else
	fi
}

inline forget(a)
{
	attempts[2 * i + a].at = OFF;
	attempts[2 * i + a].on = 0;
	attempts[2 * i + a].life = 0;
	attempts[2 * i + a].tries = 0;
	attempts[2 * i + a].crossed = 0
}

proctype peer(bit i)
{
	byte c;
#ifdef OPENED_AT_REQUEST
	byte k;
	bit n;
#endif
end:
	do
	ATTEMPTS(0)
#if ADDRESSES > 1
	ATTEMPTS(1)
#endif
	:: atomic {
		DEATH && node[i].alive ->
		faults--;
		wrong = true;
		died = true;
		forget(0);
		forget(1);
		do
		:: c < CONNS -> end_of(c, 0); end_of(c, 1); c++
		:: else -> break
		od;
		c = 0;
		node[i].alive = false;
		node[i].calls = 0;
		node[i].st[0] = IDLE;
		node[i].st[1] = IDLE;
		node[i].present[0] = 0;
		node[i].present[1] = 0;
		node[i].inc = 0;
		if
		:: node[i].life == 0 -> node[i].returns = true
		:: true
		fi
	}
	:: atomic {
		node[i].returns ->
		node[i].returns = false;
		node[i].alive = true;
		node[i].life = 1;
		node[i].calls = 1;
		if
		:: node[OTHERS(i)].inc != 1 -> node[i].inc = 1
		:: node[OTHERS(i)].inc != 4 -> node[i].inc = 4
		fi
	}
	od
}

/*
 * Sees everything, has one MAC at a time, and never the key.  Its requests have
 * no other end that dials; a proof of its own that is accepted must be true, and
 * changes nothing then: who only hands on what others say is the network.
 */
#if ATTACKS
#define ROLE_R		0
#define ROLE_I		1
#define ID(c, e)	(2 * NODE(c, e) + conn[c].life[e])

/* What a MAC must cover: who says it, both nonces, both incarnations. */
#ifdef NO_ROLE
#define SAME_ROLE(r)	true
#else
#define SAME_ROLE(r)	(role == (r))
#endif
#ifdef NO_RESPONDER_NONCE
#define SAME_NR(n)	true
#else
#define SAME_NR(n)	(nr == (n))
#endif
#ifdef NO_INITIATOR_NONCE
#define SAME_NI(n)	true
#else
#define SAME_NI(n)	(ni == (n))
#endif
#ifdef NO_INCARNATIONS
#define SAME_IDS(i, r)	true
#else
#define SAME_IDS(i, r)	(id_i == (i) && id_r == (r))
#endif
#define MAC_IS(r, a, b, i, j) \
	(nr != 0 && SAME_ROLE(r) && SAME_NI(a) && SAME_NR(b) && SAME_IDS(i, j))

/* (1): what the check must have made sure of */
#define REALLY(r, a, b, i, j) \
	(role == (r) && ni == (a) && nr == (b) && id_i == (i) && id_r == (j))

#define SEEN(r) \
	role = r; \
	ni = conn[c].ni; \
	nr = conn[c].nr; \
	id_i = ID(c, 0); \
	id_r = ID(c, 1)

proctype attacker()
{
	byte acts, c, ni, nr, id_i, id_r, x, who;
	bit role, b;
end:
	do
	:: atomic {
		if
		:: c = 0
		:: c = 1
		:: c = 2
		:: c = 3
		fi;
		if
		:: conn[c].mail[0] == REP -> SEEN(ROLE_R)
		:: conn[c].st[0] == EVIL && conn[c].st[1] == HALF -> SEEN(ROLE_R)
		:: conn[c].mail[1] == AUTH -> SEEN(ROLE_I)
		:: acts < ATTACKS && conn[c].mail[1] == REQ && conn[c].st[0] == DIALLED ->
			acts++;
			wrong = true;
			conn[c].mail[1] = NOTHING
		:: acts < ATTACKS && FREE(c) ->
			acts++;
			if
			:: b = 0
			:: b = 1
			fi;
			conn[c].by = b;
			if
			:: conn[c].life[0] = 0
			:: conn[c].life[0] = 1
			fi;
			if
			:: x = ni
			:: x = conn[0].ni
			:: x = conn[1].ni
			fi;
			conn[c].ni = x;
			conn[c].st[0] = EVIL;
			conn[c].mail[1] = REQ;
			x = 0; b = 0
		:: conn[c].st[0] == EVIL -> conn[c].mail[1] = NOTHING; conn[c].st[0] = NONE; sweep(c)
		:: conn[c].st[0] == EVIL && conn[c].st[1] == HALF &&
		   MAC_IS(ROLE_I, conn[c].ni, conn[c].nr, ID(c, 0), ID(c, 1)) ->
			assert(REALLY(ROLE_I, conn[c].ni, conn[c].nr, ID(c, 0), ID(c, 1)))
		:: conn[c].st[0] == DIALLED ->
			if
			:: who = 2 * (1 - conn[c].by)
			:: who = 2 * (1 - conn[c].by) + 1
			fi;
			assert(!MAC_IS(ROLE_R, conn[c].ni, nr, ID(c, 0), who) ||
			       REALLY(ROLE_R, conn[c].ni, nr, ID(c, 0), who));
			who = 0
		:: else
		fi;
		c = 0
	}
	od
}
#endif

/* When nothing more can happen. */
proctype monitor()
{
	byte c;
	timeout;
	assert(attempts[0].at == OFF && attempts[1].at == OFF &&	/* (2) */
	       attempts[2].at == OFF && attempts[3].at == OFF);
	assert(node[0].st[OTHERS(node[1].life)] != READY);
	assert(node[1].st[OTHERS(node[0].life)] != READY);
	assert(node[0].st[node[1].life] != READY || node[1].alive);
	assert(node[1].st[node[0].life] != READY || node[0].alive);
	assert((node[0].st[node[1].life] == READY) == (node[1].st[node[0].life] == READY));
	assert(node[0].present[node[1].life] == node[1].present[node[0].life]);
	do
	:: c < CONNS ->
		assert(FREE(c) || c + 1 == node[0].present[node[1].life]);
		c++
	:: else -> break
	od
}

init {
	atomic {
		byte c;
		do
		:: faults < MAX_FAULTS -> faults++
		:: break
		od;
		node[0].inc = 2; node[1].inc = 3;
		node[0].alive = true; node[1].alive = true;
		node[0].calls = CALLS_0; node[1].calls = CALLS_1;
		node[0].st[0] = IDLE; node[0].st[1] = IDLE;
		node[1].st[0] = IDLE; node[1].st[1] = IDLE;
		do
		:: c < 4 -> attempts[c].at = OFF; c++
		:: else -> break
		od;
		c = 0;
		do
		:: c < CONNS ->
			conn[c].st[0] = NONE; conn[c].st[1] = NONE;
			conn[c].mail[0] = NOTHING; conn[c].mail[1] = NOTHING;
			conn[c].bye[0] = FINE; conn[c].bye[1] = FINE;
			conn[c].error[0] = FINE; conn[c].error[1] = FINE;
			run session(c);
			c++
		:: else -> break
		od;
		c = 0;
		run peer(0); run peer(1); run monitor()
#if ATTACKS
		; run attacker()
#endif
	}
}

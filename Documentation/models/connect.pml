/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Connect: two nodes become peers, whoever asks first, and become peers again
 * when the connection breaks or one of them starts anew.
 *
 *	initiator				responder
 *	REQ: nonce, incarnation		->
 *					<-	REP: nonce, incarnation, MAC
 *	AUTH: MAC, session		->	each knows now who the other is
 *					<-	SYNC: session
 *	data REQ			->
 *					<-	data REP
 *	DONE				->	READY
 *	READY				<-	DONE
 *
 * REQ, REP, REJ and those for data are rdma_cm's; AUTH (the first SEND), SYNC
 * and DONE travel on the control queue pair.  A connection goes by the nonce of
 * its responder here.  A session is what both ends remember of each other; it
 * goes on over a new connection if both still have it, and it has the name of
 * its first connection.
 *
 * At each end one object stands for the other node.  When it is DEAD another
 * takes its place, IDLE.  The transitions are those of the module:
 */
#define TRANSITIONS \
	T(IDLE, CONNECT, CONNECTING) \
	T(IDLE, VERIFIED, CONNECTING) \
	T(CONNECTING, ESTABLISHED, READY) \
	T(CONNECTING, FAILED, IDLE) \
	T(READY, BROKE, BROKEN) \
	T(BROKEN, QUIET, RECONNECTING) \
	T(RECONNECTING, ESTABLISHED, READY) \
	T(RECONNECTING, EXPIRED, DEAD) \
	T(RECONNECTING, STRANGER, DEAD)
/*
 *	CONNECT		somebody here wants the peer
 *	VERIFIED	the other end's request has proved itself
 *	ESTABLISHED	DONE was received
 *	FAILED		no request is left to try, and none of the other end's came
 *	BROKE		queue pair error, silence, or a newer connection
 *	QUIET		the old queue pairs are destroyed
 *	EXPIRED		as FAILED, when there was a session: it is over
 *	STRANGER	the other end has no such session: another incarnation, or
 *			it has forgotten
 *
 * What must hold:
 *	(1) whoever is verified made that MAC, for this connection	REALLY
 *	(2) READY at both ends of a connection: the same session	establish()
 *	(3) nothing ends in anything but READY at both ends, or IDLE	monitor
 *	(4) no call waits for ever					monitor
 *	(5) no call fails, no session ends, unless a node died or more went
 *	    wrong than the tries a call has: CROSSED is no failure	give_up()
 *	(6) nothing breaks while nothing went wrong, whatever an attacker
 *	    without the key says					broke()
 *	(7) a data queue pair belongs to the connection that asked for it
 *	(8) no transition but those above				move()
 *
 * What may happen, MAX_FAULTS times: a message of rdma_cm is lost; a timer is
 * early or a queue pair breaks, at one end, at any stage; a node dies, and comes
 * back as another incarnation (which is larger than the other's, or not).  With
 * -DATTACKS=n an attacker without the key acts n times: it takes messages away,
 * and makes its own of all that it has seen; then (3) and (4) are not looked at,
 * as it never rests.
 *
 * Left out: equal incarnations, the loopback peer.
 */

#ifndef MAX_FAULTS
#define MAX_FAULTS 2
#endif
#ifndef TRIES
#define TRIES	3
#endif
#ifndef ATTACKS
#define ATTACKS	0
#endif
#ifndef CALLS
#define CALLS	1
#endif
#ifndef CALLS_0
#define CALLS_0	CALLS
#endif

#define OTHER(i)	(1 - (i))

mtype:state = { IDLE, CONNECTING, READY, BROKEN, RECONNECTING, DEAD };
mtype:event = { CONNECT, VERIFIED, ESTABLISHED, FAILED, BROKE, QUIET, EXPIRED, STRANGER };
mtype:msg = { NOTHING, REQ, REP, REJ, AUTH, SYNC, DONE, DATA_REQ, DATA_REP, SORRY };

/* How far a request is, then a connection. */
mtype:stage = { NONE, SENT, CROSSED, PROVEN, SYNCED, DATA };

typedef Node {
	bool alive;
	bool returns;		/* dead, but not for ever */
	byte inc;		/* this incarnation */
	byte fresh;		/* for nonces */
	byte calls;		/* that users will still make */
	bool wanted;		/* a call waits */
	byte tries;		/* requests that may still be sent */

	mtype:state st;		/* the object for the other node: */
	byte session;		/* 0: none */

	mtype:stage out;	/* own request: NONE, SENT, CROSSED (waits for theirs) */
	byte out_n;

	bool up;		/* the connection, verified here */
	bool mine;		/* initiator of it */
	byte nr;		/* its name */
	byte who;		/* the incarnation at its other end */
	byte theirs;		/* the session that its other end has */
	byte upto;		/* the last request that it has given up */
	mtype:stage at;
	mtype:msg mail;		/* arrived on its control queue pair */
}
Node node[2];

/* Requests of others, answered and not yet verified: two for each node. */
typedef Half {
	byte nr;		/* 0: free */
	byte ni;
	byte who;		/* says the request */
	bool auth;		/* AUTH has arrived: */
	byte theirs;
	bit role;		/* what its MAC covers, and who made it */
	byte mac_i;
	byte mac_r;
	byte mac_inc_i;
	byte mac_inc_r;
}
Half half[4];
#define HALF(i, k)	half[2 * (i) + (k)]

#define ROLE_R	0
#define ROLE_I	1

/* rdma_cm: message, nonces, incarnation; for REP what the MAC covers. */
chan cm[2] = [4] of { mtype:msg, byte, byte, byte, bit, byte, byte, byte, byte };

/* The same for data queue pairs: connection, session. */
chan data[2] = [3] of { mtype:msg, byte, byte };

byte faults;			/* that may still happen */
bool wrong;			/* one has happened */
bool died;			/* a node has died */
byte used;			/* incarnations, as bits */

/* An own request that may still come to something. */
#define IN_FLIGHT(i) \
	(node[i].alive && (node[i].out == SENT || \
			   (node[i].up && node[i].mine && node[i].st != READY)))

#define HAS_HALF(i, n) \
	(node[i].alive && (HALF(i, 0).nr == (n) || HALF(i, 1).nr == (n)))
#define HOLDS(i, n) \
	(node[i].alive && node[i].up && node[i].nr == (n))

/* ---- the object for the other node ---------------------------------------- */

#define T(from, event, to) :: node[i].st == from && e == event -> node[i].st = to

inline move(what)
{
	e = what;
	if
	TRANSITIONS
	:: else -> assert(false)	/* (8) */
	fi
}

inline forget_half(k)
{
	HALF(i, k).nr = 0;
	HALF(i, k).ni = 0;
	HALF(i, k).who = 0;
	HALF(i, k).auth = false;
	HALF(i, k).theirs = 0;
	HALF(i, k).role = 0;
	HALF(i, k).mac_i = 0;
	HALF(i, k).mac_r = 0;
	HALF(i, k).mac_inc_i = 0;
	HALF(i, k).mac_inc_r = 0
}

/*
 * The other end has given up what it asked for before this, though an AUTH of
 * it may come yet.
 */
inline forget_halves(number)
{
#ifdef KEEP_OLD_HALF
	skip
#else
	if
	:: HALF(i, 0).who == node[i].who && HALF(i, 0).ni <= number -> forget_half(0)
	:: else
	fi;
	if
	:: HALF(i, 1).who == node[i].who && HALF(i, 1).ni <= number -> forget_half(1)
	:: else
	fi
#endif
}

inline drop()
{
	node[i].up = false;
	node[i].mine = false;
	node[i].nr = 0;
	node[i].who = 0;
	node[i].theirs = 0;
	node[i].upto = 0;
	node[i].at = NONE;
	node[i].mail = NOTHING
}

/* The connection is no more; the state says what that means. */
inline broke()
{
	if
	:: node[i].st == READY ->
		assert(wrong);		/* (6) */
		move(BROKE)
	:: else
	fi;
	drop()
}

/* The session is over; whoever waited for the peer waits for the next. */
inline bury()
{
	assert(node[i].st == DEAD);
	node[i].st = IDLE;
	node[i].session = 0
}

/* No request is left. */
inline give_up()
{
	assert(died || MAX_FAULTS + ATTACKS >= TRIES);	/* (5) */
	if
	:: node[i].st == CONNECTING -> move(FAILED)
	:: else -> move(EXPIRED); bury()
	fi;
	node[i].wanted = false
}

/*
 * Both have said which session they have.  If it is not the same both begin a
 * new one.
 */
#ifdef NO_SYNC
#define GOES_ON	(node[i].session != 0)
#else
#define GOES_ON	(node[i].session != 0 && node[i].session == node[i].theirs)
#endif
inline synced()
{
	if
	:: GOES_ON
	:: else ->
		if
		:: node[i].st == RECONNECTING ->
			assert(died || wrong);
			move(STRANGER);
			bury()
		:: else
		fi;
		if
		:: node[i].st == IDLE -> move(VERIFIED)
		:: else
		fi
	fi;
	node[i].at = SYNCED
}

inline establish()
{
	if
	:: !GOES_ON -> node[i].session = node[i].nr
	:: else
	fi;
	node[i].theirs = 0;
	move(ESTABLISHED);
	node[i].wanted = false;
	node[i].tries = 0;
	assert(!(HOLDS(OTHER(i), node[i].nr) && node[OTHER(i)].st == READY) ||
	       node[OTHER(i)].session == node[i].session)	/* (2) */
}

/*
 * Spares states: where nothing else is left, and nobody remembers, names start
 * again.
 */
inline rename()
{
	if
#if !ATTACKS
	:: HOLDS(OTHER(i), node[i].nr) && node[OTHER(i)].st == READY &&
	   empty(cm[0]) && empty(cm[1]) && empty(data[0]) && empty(data[1]) &&
	   half[0].nr == 0 && half[1].nr == 0 && half[2].nr == 0 && half[3].nr == 0 &&
	   node[0].session == node[1].session ->
		node[0].nr = 1;
		node[1].nr = 1;
		node[0].session = 1;
		node[1].session = 1;
		node[0].fresh = 0;
		node[1].fresh = 0
#endif
	:: else
	fi
}

/* ---- requests -------------------------------------------------------------- */

/* Larger incarnation, and a request of its own: theirs is not needed. */
#ifdef NO_CROSSING
#define WINS(theirs)	false
#else
#define WINS(theirs)	(IN_FLIGHT(i) && node[i].inc > (theirs))
#endif

#define NEW_NONCE	(2 * node[i].fresh + i)

/*
 * Honest nodes do not ask twice with one nonce, so without an attacker that
 * does for both, and spares states.
 */
inline answer(k)
{
#if ATTACKS
	node[i].fresh++;
	m_nr = NEW_NONCE;
#else
	m_nr = m_ni;
#endif
	HALF(i, k).nr = m_nr;
	HALF(i, k).ni = m_ni;
	HALF(i, k).who = m_who;
	cm[OTHER(i)]!REP, m_ni, m_nr, node[i].inc,
		ROLE_R, m_ni, m_nr, m_who, node[i].inc
}

/* What a MAC must cover: who says it, both nonces, both incarnations. */
#ifdef NO_ROLE
#define SAME_ROLE(role)	true
#else
#define SAME_ROLE(role)	(m_role == (role))
#endif
#ifdef NO_RESPONDER_NONCE
#define SAME_NR(nr)	true
#else
#define SAME_NR(nr)	(m_mac_r == (nr))
#endif
#ifdef NO_INITIATOR_NONCE
#define SAME_NI(ni)	true
#else
#define SAME_NI(ni)	(m_mac_i == (ni))
#endif
#ifdef NO_INCARNATIONS
#define SAME_INC(a, b)	true
#else
#define SAME_INC(a, b)	(m_inc_i == (a) && m_inc_r == (b))
#endif
#define MAC_IS(role, ni, nr, inc_i, inc_r) \
	(SAME_ROLE(role) && SAME_NI(ni) && SAME_NR(nr) && SAME_INC(inc_i, inc_r))

/* (1): what the check must have made sure of */
#define REALLY(role, ni, nr, inc_i, inc_r) \
	(m_role == (role) && m_mac_i == (ni) && m_mac_r == (nr) && \
	 m_inc_i == (inc_i) && m_inc_r == (inc_r))

inline receive_cm()
{
	cm[i]?t, m_ni, m_nr, m_who, m_role, m_mac_i, m_mac_r, m_inc_i, m_inc_r;
	if
	:: !node[i].alive
	:: else ->
	   if
	   :: t == REQ ->
		if
		:: m_who == node[i].inc		/* says that it is us */
		:: m_who != node[i].inc && WINS(m_who) ->
			cm[OTHER(i)]!REJ, m_ni, 0, 0, 0, 0, 0, 0, 0
		:: else ->
#ifdef BELIEVE_REQ
			/* must be another: the one we knew is gone */
			node[i].out = NONE;
			node[i].out_n = 0;
			if
			:: node[i].up -> broke()
			:: else
			fi;
#endif
			if
			:: HALF(i, 0).nr == 0 -> answer(0)
			:: HALF(i, 0).nr != 0 && HALF(i, 1).nr == 0 -> answer(1)
			:: else ->	/* no room: come again */
				cm[OTHER(i)]!REJ, m_ni, 0, 0, 0, 0, 0, 0, 0
			fi
		fi
	   :: t == REP ->
		if
		:: node[i].out == SENT && node[i].out_n == m_ni ->
			node[i].out = NONE;
			node[i].out_n = 0;
			if
			:: MAC_IS(ROLE_R, m_ni, m_nr, node[i].inc, m_who) ->
				assert(REALLY(ROLE_R, m_ni, m_nr, node[i].inc, m_who));
				verified_theirs()
			:: else
			fi
		:: else
		fi
	   :: t == REJ ->
		if
		:: node[i].out == SENT && node[i].out_n == m_ni ->
			node[i].out_n = 0;
#ifdef CROSSED_FAILS
			node[i].out = NONE
#else
			node[i].out = CROSSED;
			node[i].tries++
#endif
		:: else
		fi
	   fi
	fi;
	t = NOTHING;
	m_ni = 0; m_nr = 0; m_who = 0; m_role = 0;
	m_mac_i = 0; m_mac_r = 0; m_inc_i = 0; m_inc_r = 0
}

#define POST_AUTH(k) \
	HALF(OTHER(i), k).auth = true; \
	HALF(OTHER(i), k).theirs = node[i].session; \
	HALF(OTHER(i), k).role = ROLE_I; \
	HALF(OTHER(i), k).mac_i = m_ni; \
	HALF(OTHER(i), k).mac_r = m_nr; \
	HALF(OTHER(i), k).mac_inc_i = node[i].inc; \
	HALF(OTHER(i), k).mac_inc_r = m_who

/* The responder has proved itself: the connection is up, as seen from here. */
inline verified_theirs()
{
	node[i].up = true;
	node[i].mine = true;
	node[i].nr = m_nr;
	node[i].who = m_who;
	node[i].at = PROVEN;
	if
	:: HALF(OTHER(i), 0).nr == m_nr -> POST_AUTH(0)
	:: HALF(OTHER(i), 1).nr == m_nr -> POST_AUTH(1)
	:: else		/* gone again */
	fi
}

/*
 * AUTH has arrived for a request that was answered.  It shows that its sender
 * has nothing better: whatever was there before goes, unless the own request
 * wins.
 */
#ifdef CROSSED_AT_REQ_ONLY
#define WINS_NOW(k)	false
#else
#define WINS_NOW(k)	WINS(HALF(i, k).who)
#endif
inline receive_auth(k)
{
	m_role = HALF(i, k).role;
	m_mac_i = HALF(i, k).mac_i; m_mac_r = HALF(i, k).mac_r;
	m_inc_i = HALF(i, k).mac_inc_i; m_inc_r = HALF(i, k).mac_inc_r;
	if
	:: !MAC_IS(ROLE_I, HALF(i, k).ni, HALF(i, k).nr, HALF(i, k).who, node[i].inc) ->
		forget_half(k)
	:: else ->
		assert(REALLY(ROLE_I, HALF(i, k).ni, HALF(i, k).nr, HALF(i, k).who,
			      node[i].inc));
		if
		:: WINS_NOW(k) ->
			if
			:: HOLDS(OTHER(i), HALF(i, k).nr) ->
				node[OTHER(i)].mail = SORRY
			:: else
			fi;
			forget_half(k)
		:: else ->
			node[i].out = NONE;
			node[i].out_n = 0;
			if
			:: node[i].up -> broke()
			:: else
			fi;
			if
			:: node[i].st == IDLE -> move(VERIFIED)
			:: else
			fi;
			node[i].up = true;
			node[i].mine = false;
			node[i].nr = HALF(i, k).nr;
			node[i].who = HALF(i, k).who;
			node[i].theirs = HALF(i, k).theirs;
			node[i].at = PROVEN;
			m_ni = HALF(i, k).ni;
			forget_half(k);
			forget_halves(m_ni);
			m_ni = 0
		fi
	fi;
	m_role = 0;
	m_mac_i = 0; m_mac_r = 0; m_inc_i = 0; m_inc_r = 0
}

inline receive_data()
{
	data[i]?t, m_nr, m_ni;
	if
	:: t == DATA_REQ && node[i].up && !node[i].mine && node[i].at == SYNCED &&
#ifdef DATA_BY_SESSION
	   (GOES_ON -> m_ni == node[i].session : m_ni == node[i].nr) ->
#else
	   m_nr == node[i].nr ->
#endif
		assert(m_nr == node[i].nr);		/* (7) */
		node[i].at = DATA;
		data[OTHER(i)]!DATA_REP, m_nr, m_ni
	:: t == DATA_REP && node[i].up && node[i].mine && node[i].at == SYNCED &&
	   m_nr == node[i].nr ->
		node[i].at = DATA;
		if
		:: HOLDS(OTHER(i), m_nr) -> node[OTHER(i)].mail = DONE
		:: else
		fi
	:: else
	fi;
	t = NOTHING;
	m_nr = 0; m_ni = 0
}

#ifdef CROSSED_WAITS
#define MAY_RETRY(i)	false
#else
#define MAY_RETRY(i) \
	(!node[OTHER(i)].alive || \
	 (!IN_FLIGHT(OTHER(i)) && HAS_HALF(OTHER(i), 0)))
#endif

#define ON_ITS_WAY(i) \
	(cm[OTHER(i)]??[REQ, eval(node[i].out_n), x, x, y, x, x, x, x] || \
	 cm[i]??[REP, eval(node[i].out_n), x, x, y, x, x, x, x] || \
	 cm[i]??[REJ, eval(node[i].out_n), x, x, y, x, x, x, x])

/* What is going on at the other end for a request that was answered there. */
#define ABANDONED(i, k) \
	(HALF(i, k).nr != 0 && !HALF(i, k).auth && \
	 !(node[OTHER(i)].alive && node[OTHER(i)].out == SENT && \
	   node[OTHER(i)].out_n == HALF(i, k).ni) && \
	 !HOLDS(OTHER(i), HALF(i, k).nr))

#define FAULT	(faults > 0)
#ifndef EARLY
#define EARLY	FAULT
#endif
#ifndef DEATH
#define DEATH	FAULT
#endif

proctype peer(byte i)
{
	mtype:event e;
	mtype:msg t;
	byte m_ni, m_nr, m_who, m_mac_i, m_mac_r, m_inc_i, m_inc_r, x;
	bit m_role, y;
end:
	do
	/* A process wants the peer. */
	:: atomic {
		node[i].alive && node[i].calls > 0 && node[i].st == IDLE ->
		node[i].calls--;
		node[i].wanted = true;
		node[i].tries = TRIES;
		move(CONNECT)
	}
	:: atomic {
		node[i].alive && node[i].calls > 0 && node[i].st == CONNECTING &&
		!node[i].wanted ->
		node[i].calls--;
		node[i].wanted = true;
		node[i].tries = TRIES
	}
	:: atomic {
		node[i].alive && node[i].calls > 0 &&
		(node[i].st == BROKEN || node[i].st == RECONNECTING) ->
		node[i].calls--;
		node[i].wanted = true
	}

	:: atomic {
		node[i].alive && node[i].tries > 0 && node[i].out == NONE &&
		!node[i].up && nfull(cm[OTHER(i)]) &&
		(node[i].st == CONNECTING || node[i].st == RECONNECTING) ->
		node[i].tries--;
		node[i].fresh++;
		assert(node[i].fresh < 60);
		node[i].out = SENT;
		node[i].out_n = NEW_NONCE;
		cm[OTHER(i)]!REQ, NEW_NONCE, 0, node[i].inc, 0, 0, 0, 0, 0
	}
	:: atomic { nempty(cm[i]) && nfull(cm[OTHER(i)]) -> receive_cm() }
	:: atomic { node[i].alive && HALF(i, 0).auth -> receive_auth(0) }
	:: atomic { node[i].alive && HALF(i, 1).auth -> receive_auth(1) }
	:: atomic {
		/* not before the old queue pairs are gone, and counted */
		node[i].alive && node[i].up && !node[i].mine && node[i].at == PROVEN &&
		node[i].st != BROKEN ->
		if
		:: HOLDS(OTHER(i), node[i].nr) ->
			node[OTHER(i)].mail = SYNC;
			node[OTHER(i)].theirs = node[i].session;
			node[OTHER(i)].upto = NEW_NONCE
		:: else
		fi;
		synced()
	}
	:: atomic {
		node[i].mail == SYNC && nfull(data[OTHER(i)]) ->
		node[i].mail = NOTHING;
		forget_halves(node[i].upto);
		node[i].upto = 0;
		synced();
		data[OTHER(i)]!DATA_REQ, node[i].nr,
			(GOES_ON -> node[i].session : node[i].nr)
	}
	:: atomic {	/* our request lost after all */
		node[i].mail == SORRY ->
		broke();
		node[i].out = CROSSED;
		node[i].tries++
	}
	:: atomic { nempty(data[i]) && nfull(data[OTHER(i)]) -> receive_data() }
	:: atomic {
		node[i].mail == DONE && !node[i].mine ->
		assert(node[i].at == DATA);
		node[i].mail = NOTHING;
		if
		:: HOLDS(OTHER(i), node[i].nr) -> node[OTHER(i)].mail = DONE
		:: else
		fi;
		establish()
	}
	:: atomic {
		node[i].mail == DONE && node[i].mine ->
		assert(node[i].at == DATA);
		node[i].mail = NOTHING;
		establish();
		rename()
	}

	/* Silence, for as long as each of them lasts. */
	:: atomic {
		node[i].alive && node[i].up && node[i].mail == NOTHING &&
		!HOLDS(OTHER(i), node[i].nr) && !HAS_HALF(OTHER(i), node[i].nr) ->
		broke()
	}
	:: atomic { node[i].alive && ABANDONED(i, 0) -> forget_half(0) }
	:: atomic { node[i].alive && ABANDONED(i, 1) -> forget_half(1) }
	:: atomic {
		node[i].alive && node[i].out == SENT && !ON_ITS_WAY(i) ->
		node[i].out = NONE;
		node[i].out_n = 0
	}
	:: atomic {
		node[i].alive && node[i].out == CROSSED && MAY_RETRY(i) ->
		node[i].out = NONE
	}
	:: atomic {
		node[i].alive && node[i].st == BROKEN ->
		move(QUIET);
		node[i].tries = TRIES
	}
	:: atomic {
		node[i].alive && node[i].out == NONE && !node[i].up &&
		!IN_FLIGHT(OTHER(i)) && node[i].tries == 0 &&
		(node[i].st == RECONNECTING ||
		 (node[i].st == CONNECTING && node[i].wanted)) ->
		give_up()
	}
	:: atomic {	/* it was theirs, and nobody here asked */
		node[i].alive && node[i].out == NONE && !node[i].up &&
		node[i].st == CONNECTING && !node[i].wanted ->
		move(FAILED);
		node[i].tries = 0
	}

	/* Faults: a timer is early, a queue pair breaks. */
	:: atomic {
		EARLY && node[i].alive && node[i].out == SENT ->
		faults--;
		wrong = true;
		node[i].out = NONE;
		node[i].out_n = 0
	}
	:: atomic {
		EARLY && node[i].alive && node[i].out == CROSSED ->
		faults--;
		wrong = true;
		node[i].out = NONE
	}
	:: atomic {
		FAULT && node[i].alive && node[i].up ->
		faults--;
		wrong = true;
		broke()
	}
	:: atomic {
		EARLY && node[i].alive && HALF(i, 0).nr != 0 ->
		faults--;
		wrong = true;
		forget_half(0)
	}
	:: atomic {
		FAULT && nempty(cm[i]) ->
		faults--;
		wrong = true;
		cm[i]?_, _, _, _, _, _, _, _, _
	}
	:: atomic {
		DEATH && node[i].alive ->
		faults--;
		wrong = true;
		died = true;
		drop();
		forget_half(0);
		forget_half(1);
		node[i].alive = false;
		if
		:: node[i].returns = true
		:: skip
		fi;
		node[i].inc = 0;
		node[i].calls = 0;
		node[i].wanted = false;
		node[i].tries = 0;
		node[i].st = IDLE;
		node[i].session = 0;
		node[i].out = NONE;
		node[i].out_n = 0
	}
	:: atomic {
		node[i].returns ->
		node[i].returns = false;
		node[i].alive = true;
		node[i].calls = 1;
		if
		:: !(used & 2) -> node[i].inc = 1; used = used | 2
		:: !(used & 16) -> node[i].inc = 4; used = used | 16
		fi
	}
	od
}

/*
 * Sees everything, and repeats any of it; has one MAC at a time, and never the
 * key.  A taken message counts as something that went wrong, a made one not.
 */
#if ATTACKS
proctype attacker()
{
	byte acts, x, y, r, inc_i, inc_r;
	bit role, z;
	byte mac_i, mac_r, mac_inc_i, mac_inc_r;
	byte i, who;
	mtype:msg t;
end:
	do
	:: atomic {
		if
		:: i = 0
		:: i = 1
		fi;
		if
		:: cm[i]?[REP, x, y, who, z, x, r, inc_i, inc_r] ->
			cm[i]?<t, x, y, who, role, mac_i, mac_r, mac_inc_i, mac_inc_r>
		:: HALF(i, 0).auth ->
			role = HALF(i, 0).role;
			mac_i = HALF(i, 0).mac_i;
			mac_r = HALF(i, 0).mac_r;
			mac_inc_i = HALF(i, 0).mac_inc_i;
			mac_inc_r = HALF(i, 0).mac_inc_r
		:: acts < ATTACKS && nempty(cm[i]) ->
			acts++;
			wrong = true;
			cm[i]?_, _, _, _, _, _, _, _, _
		:: acts < ATTACKS && nfull(cm[i]) ->
			acts++;
			if
			:: who = 2
			:: who = 3
			:: who = 4
			fi;
			if
			:: x = node[0].out_n
			:: x = node[1].out_n
			:: x = mac_i
			fi;
			if
			:: cm[i]!REQ, x, 0, who, 0, 0, 0, 0, 0
			:: mac_i != 0 -> cm[i]!REP, x, mac_r, who,
				role, mac_i, mac_r, mac_inc_i, mac_inc_r
			fi
		:: acts < ATTACKS && mac_i != 0 && HALF(i, 0).nr != 0 && !HALF(i, 0).auth ->
			acts++;
			HALF(i, 0).auth = true;
			HALF(i, 0).theirs = 0;
			HALF(i, 0).role = role;
			HALF(i, 0).mac_i = mac_i;
			HALF(i, 0).mac_r = mac_r;
			HALF(i, 0).mac_inc_i = mac_inc_i;
			HALF(i, 0).mac_inc_r = mac_inc_r
		:: skip
		fi;
		x = 0; y = 0; i = 0; who = 0; t = NOTHING
	}
	od
}
#endif

/* When nothing more can happen. */
proctype monitor()
{
	timeout;
	assert(empty(cm[0]) && empty(cm[1]));
	assert(!node[0].wanted && !node[1].wanted);		/* (4) */
	assert(node[0].st == IDLE || node[0].st == READY);	/* (3) */
	assert(node[1].st == IDLE || node[1].st == READY);
	assert((node[0].st == READY) == (node[1].st == READY));
	assert(node[0].st != READY ||
	       (node[0].session == node[1].session && node[0].nr == node[1].nr &&
		node[0].who == node[1].inc && node[1].who == node[0].inc));
}

init {
	atomic {
		do
		:: faults < MAX_FAULTS -> faults++
		:: break
		od;
		node[0].inc = 2; node[1].inc = 3; used = 12;
		node[0].alive = true; node[1].alive = true;
		node[0].calls = CALLS_0; node[1].calls = CALLS;
		node[0].st = IDLE; node[1].st = IDLE;
		node[0].out = NONE; node[1].out = NONE;
		node[0].at = NONE; node[1].at = NONE;
		node[0].mail = NOTHING; node[1].mail = NOTHING;
		run peer(0); run peer(1); run monitor()
#if ATTACKS
		; run attacker()
#endif
	}
}

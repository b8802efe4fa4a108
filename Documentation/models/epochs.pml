/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Epochs: a connection breaks, comes back, and what was under way is completed
 * or replayed, each operation once.
 *
 * Node A posts operations on two queue pairs to memory of node B: writes,
 * writes with a notification, reads, atomics.  Which are which, what they touch
 * and where they go is left open.  When the connection breaks:
 *
 *	each end	moves its queue pairs to ERR, at a moment of its own
 *	B		waits until its responder is quiet, polls its receive
 *			queue empty, keeps the counts, destroys
 *	A		destroys; nothing arrives in its buffers any more
 *	B -> A		the notifications that it has ever received in this
 *			session on each queue pair, and what was revoked
 *	A		up to the last notification counted on its queue pair a
 *			write is complete and a read is replayed; behind it writes
 *			and reads are replayed, in order; an atomic without a
 *			completion is over: -ECONNRESET
 *
 * What a queue pair gives: requests are executed in order; completions come in
 * order; a request that was sent is executed even when its sender has seen an
 * error, until the responder is quiet.  Notifications are receive completions,
 * seen when they are polled.
 *
 * What must hold:
 *	(1) no notification is lost, doubled or out of order	poll()
 *	(2) every operation ends, once				finish(), monitor
 *	(3) an atomic is executed at most once			execute()
 *	(4) a stale key never reaches the wire: no access, and
 *	    so no write, to memory that has another owner	execute()
 *	(5) nothing arrives in a buffer whose read has ended	arrive()
 *	(6) no read sees a source that its reader let go	execute()
 *	(7) what ended well was executed			finish()
 *
 * What may happen, MAX_FAULTS times: the connection breaks, noticed first by A
 * or by B; B dies and comes back without any memory of A; A's patience ends.
 * Target 0 may be revoked by B at any moment; it then has another owner.
 *
 * Each rule can be switched off, see README.md.
 */

#ifndef MAX_FAULTS
#define MAX_FAULTS 2
#endif
#ifndef OPS
#define OPS	3
#endif
#define LAST	(OPS - 1)
#define QPS	2

mtype:kind = { WRITE, NOTIFY, READ, ATOMIC };
mtype:state = { FREE, POSTED, OK, RESET, STALE, CANCELED, GONE };

/* On the current connection: not sent; on its way; executed, no answer yet. */
mtype:wire = { NOWHERE, SENT, DONE };

typedef Op {
	mtype:kind kind;
	mtype:state st;
	mtype:wire wire;
	bit qp;
	bit target;
	byte num;		/* of a notification, on its queue pair */
	bool frees;		/* ... that lets go the sources of earlier reads */
	bool executed;
	bool cqe;		/* ... and B has not polled it yet */
	bool arrived;		/* what a read asked for */
	bool let_go;		/* B may use the source of this read for else */
}
Op op[OPS];
byte posted;			/* so many of them */

/* QUIET: the responder has stopped, completions can still be polled. */
mtype:qp = { UP, ERR, QUIET, DOWN };
mtype:qp a_end = UP;
mtype:qp b_end = UP;

/* A */
byte sent[QPS];			/* notifications posted in this session */
bool closed;			/* the slot: a number is missing */
bool a_knows;			/* that target 0 is revoked */
bool a_session = true;

/* B */
byte last[QPS];			/* the last notification polled in this session */
byte count[QPS];		/* what B tells A */
bool b_session = true;
bool revoking;			/* target 0: A is asked */
bool revoked;
bool alive = true;
bool returns;

byte faults = MAX_FAULTS;	/* that may still happen */
#define FAULT	(faults > 0)

#define PENDING(k)	(op[k].st == POSTED)

/* Spares states: what nobody looks at any more. */
inline clear(k)
{
	if
	:: op[k].st != FREE && op[k].st != POSTED && op[k].wire == NOWHERE &&
	   !op[k].cqe && (op[k].st != OK || op[k].num <= last[op[k].qp]) ->
		op[k].kind = WRITE;
		op[k].st = GONE;
		op[k].qp = 0;
		op[k].target = 0;
		op[k].num = 0;
		op[k].frees = false;
		op[k].executed = false;
		op[k].arrived = false;
		op[k].let_go = false
	:: else
	fi
}

inline finish(k, how)
{
	assert(op[k].st == POSTED);				/* (2) */
	assert(how != OK || op[k].executed);			/* (7) */
	assert(how != OK || op[k].kind != READ || op[k].arrived);
	op[k].st = how;
	clear(k)
}

/* ---- A ------------------------------------------------------------------------ */

#define READING(k)	(PENDING(k) && op[k].kind == READ)

inline post()
{
	if
	:: op[posted].kind = WRITE
	:: op[posted].kind = NOTIFY
#ifdef NO_FENCE
	/* with the rule it waits for them, and is like any other */
	:: READING(0) || READING(1) ->
		op[posted].kind = NOTIFY;
		op[posted].frees = true
#endif
	:: op[posted].kind = READ
	:: op[posted].kind = ATOMIC
	fi;
	if
	:: op[posted].qp = 0
	:: posted > 0 -> op[posted].qp = 1
	fi;
	if
	:: !a_knows -> op[posted].target = 0
	:: op[posted].target = 1
	fi;
	op[posted].st = POSTED;
	if
	:: op[posted].kind == NOTIFY && closed -> finish(posted, CANCELED)
	:: else ->
		op[posted].wire = (b_end == DOWN -> NOWHERE : SENT);
		if
		:: op[posted].kind == NOTIFY ->
			sent[op[posted].qp]++;
			op[posted].num = sent[op[posted].qp]
		:: else
		fi
	fi;
	posted++
}

/* Nobody goes on with the session: nothing is known about what is pending. */
inline forget()
{
	k = 0;
	do
	:: k < OPS ->
		if
		:: PENDING(k) -> finish(k, STALE)
		:: else
		fi;
		k++
	:: else -> break
	od;
	k = 0;
	sent[0] = 0;
	sent[1] = 0;
	closed = false;
	a_session = false
}

/* ---- B ------------------------------------------------------------------------ */

/* What was on the queue pairs is gone. */
inline destroy()
{
	k = 0;
	do
	:: k < OPS -> op[k].wire = NOWHERE; op[k].cqe = false; k++
	:: else -> break
	od;
	k = 0;
	b_end = DOWN
}

inline take_counts()
{
#ifdef COUNT_PER_CONNECTION
	count[0] = last[0] - count[0];
	count[1] = last[1] - count[1]
#else
	count[0] = last[0];
	count[1] = last[1]
#endif
}

/* Requests of a queue pair go by the order in which they were posted. */
#define FIRST(k, w) \
	(op[k].wire == w && \
	 !(k > 0 && op[0].qp == op[k].qp && op[0].wire == w) && \
	 !(k > 1 && op[1].qp == op[k].qp && op[1].wire == w))
#define FIRST_CQE(k) \
	(op[k].cqe && \
	 !(k > 0 && op[0].qp == op[k].qp && op[0].cqe) && \
	 !(k > 1 && op[1].qp == op[k].qp && op[1].cqe))

inline execute(k)
{
	assert(!(op[k].target == 0 && revoked));		/* (4) */
	assert(b_session);					/* (4) */
	assert(op[k].kind != ATOMIC || !op[k].executed);	/* (3) */
	assert(op[k].kind != READ || !op[k].let_go);		/* (6) */
	op[k].executed = true;
	op[k].wire = DONE;
	op[k].cqe = (op[k].kind == NOTIFY)
}

inline poll(k)
{
	op[k].cqe = false;
	assert(op[k].num == last[op[k].qp] + 1);		/* (1) */
	last[op[k].qp] = op[k].num;
	if
	:: op[k].frees ->
		op[0].let_go = true;
		if
		:: k > 1 -> op[1].let_go = true
		:: else
		fi
	:: else
	fi;
	clear(k)
}

/* ---- a new connection ---------------------------------------------------------- */

#if defined(COMPLETE_NONE)
#define COUNTED_BY(k, j)	false
#else
#define COUNTED_BY(k, j) \
	((j) >= (k) && (j) < posted && op[j].kind == NOTIFY && \
	 op[j].qp == op[k].qp && op[j].num > 0 && op[j].num <= count[op[j].qp])
#endif
#ifdef COMPLETE_ALL
#define COUNTED(k)	true
#else
#define COUNTED(k)	(COUNTED_BY(k, 0) || COUNTED_BY(k, 1) || COUNTED_BY(k, LAST))
#endif
#ifdef REPLAY_ATOMICS
#define NEVER_AGAIN(k)	false
#else
#define NEVER_AGAIN(k)	(op[k].kind == ATOMIC)
#endif
#ifdef COMPLETE_READS
#define NO_ANSWER_NEEDED(k)	true
#else
#define NO_ANSWER_NEEDED(k)	(op[k].kind == WRITE || op[k].kind == NOTIFY)
#endif
#ifdef NO_LOG
#define REVOKED(k)	false
#else
#define REVOKED(k)	(op[k].target == 0 && (revoking || revoked))
#endif

inline resume()
{
	k = 0;
	do
	:: k < posted ->
		if
		:: !PENDING(k)
		:: PENDING(k) && NEVER_AGAIN(k) -> finish(k, RESET)
		:: PENDING(k) && !NEVER_AGAIN(k) && COUNTED(k) && NO_ANSWER_NEEDED(k) ->
			finish(k, OK)
		:: else ->
			if
			:: REVOKED(k) ->
#ifndef NO_CLOSE
				closed = closed || op[k].kind == NOTIFY;
#endif
				finish(k, STALE)
			:: else ->
				if
				:: op[k].kind == NOTIFY && closed -> finish(k, CANCELED)
				:: else -> op[k].wire = SENT
				fi
			fi
		fi;
		k++
	:: else -> break
	od;
	k = 0
#ifndef NO_LOG
	;
	a_knows = revoking || revoked
#endif
}

#ifdef RESUME_FORGOTTEN
#define GOES_ON	a_session
#else
#define GOES_ON	(a_session && b_session)
#endif

inline reconnect()
{
	if
	:: GOES_ON -> resume()
	:: else ->
		forget();
		do
		:: k < OPS -> op[k].num = 0; k++
		:: else -> break
		od;
		k = 0;
		last[0] = 0;
		last[1] = 0;
		count[0] = 0;
		count[1] = 0;
		a_session = true;
		b_session = true;
		a_knows = revoking || revoked
	fi;
	a_end = UP;
	b_end = UP
}

proctype a()
{
	byte k;
end:
	do
	:: atomic { a_end == UP && posted < OPS -> post() }
	:: atomic { a_end == UP && b_end == UP && revoking && !a_knows -> a_knows = true }
	:: atomic { a_end == UP && b_end != UP -> a_end = ERR }
	:: atomic { a_end == UP && FAULT -> faults--; a_end = ERR }
	/* its queue pairs are destroyed: nothing arrives any more */
	:: atomic { a_end == ERR -> a_end = DOWN }
#ifdef END_BEFORE_DESTROY
	:: atomic { a_end != UP && a_session && FAULT -> faults--; forget() }
#else
	:: atomic { a_end == DOWN && a_session && FAULT -> faults--; forget() }
#endif
	:: atomic { a_end == DOWN && a_session && !alive && !returns -> forget() }
	:: atomic { a_end == DOWN && b_end == DOWN && alive -> reconnect() }
	od
}

/* What happens to one operation, on the wire and at both its ends. */
proctype operation(byte k)
{
end:
	do
	:: atomic { FIRST(k, SENT) && (b_end == UP || b_end == ERR) -> execute(k) }
	:: atomic { FIRST_CQE(k) && b_end != DOWN -> poll(k) }
	:: atomic {
		op[k].kind == READ && op[k].wire == DONE && !op[k].arrived &&
		a_end != DOWN ->
		assert(PENDING(k));				/* (5) */
		op[k].arrived = true
	}
	:: atomic {
		FIRST(k, DONE) && a_end == UP &&
		!(k > 0 && op[0].qp == op[k].qp && PENDING(0)) &&
		!(k > 1 && op[1].qp == op[k].qp && PENDING(1)) &&
		(op[k].kind != READ || op[k].arrived) ->
		op[k].wire = NOWHERE;
		finish(k, OK)
	}
	od
}

#define CQES	(op[0].cqe || op[1].cqe || op[LAST].cqe)
#ifdef DESTROY_BEFORE_POLL
#define POLLED	true
#else
#define POLLED	(!CQES)
#endif
#define PENDING_ON_0(k)	(PENDING(k) && op[k].target == 0)

proctype b()
{
	byte k;
end:
	do
	:: atomic { b_end == UP && (a_end != UP) ->
		b_end = ERR;
#ifdef COUNT_BEFORE_QUIET
		take_counts()
#endif
	}
	:: atomic { b_end == UP && FAULT ->
		faults--;
		b_end = ERR;
#ifdef COUNT_BEFORE_QUIET
		take_counts()
#endif
	}
	:: atomic { b_end == ERR -> b_end = QUIET }
	:: atomic { b_end == QUIET && POLLED ->
#ifndef COUNT_BEFORE_QUIET
		take_counts();
#endif
		destroy()
	}
	/* Revoke, in two phases; with a silent peer the connection goes. */
	:: atomic { alive && !revoking && !revoked -> revoking = true }
	:: atomic {
		revoking && (b_end == DOWN || (a_end == UP && b_end == UP && a_knows &&
		!PENDING_ON_0(0) && !PENDING_ON_0(1) && !PENDING_ON_0(LAST))) ->
		revoking = false;
		revoked = true
	}
	:: atomic { revoking && b_end == UP -> b_end = ERR;
#ifdef COUNT_BEFORE_QUIET
		take_counts()
#endif
	}
	:: atomic {
		alive && FAULT ->
		faults--;
		alive = false;
		if
		:: returns = true
		:: skip
		fi;
		b_session = false;
		last[0] = 0;
		last[1] = 0;
		count[0] = 0;
		count[1] = 0;
		destroy()
	}
	:: atomic { returns -> returns = false; alive = true }
	od
}

proctype monitor()
{
	byte k;

	timeout;
	do
	:: k < OPS ->
		assert(op[k].st != POSTED);			/* (2) */
		assert(op[k].st != FREE || !alive);
		assert(op[k].st != OK || op[k].num <= last[op[k].qp] || !alive);	/* (1) */
		k++
	:: else -> break
	od
}

init {
	atomic {
		byte k;
		do
		:: faults > 0 -> faults--
		:: break
		od;
		do
		:: k < OPS -> op[k].st = FREE; op[k].wire = NOWHERE; op[k].kind = WRITE; k++
		:: else -> break
		od;
		run a(); run b(); run operation(0); run operation(1);
#if OPS > 2
		run operation(2);
#endif
		
		run monitor()
	}
}

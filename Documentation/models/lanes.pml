/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Lanes: what goes by several queue pairs is told of when all of it is in place.
 *
 * Node A sends steps to node B, each in a part by each of two queue pairs.  Each part
 * ends in a notification, with a number of its queue pair's own.  B counts for each,
 * and the consumer reads the least of the counts.
 *
 * What a queue pair gives: parts are executed in order, and acknowledged then.  Where
 * the data is by then is open: it is in place, for certain, when B polls the receive
 * completion of its own queue pair (relaxed order).  epochs.pml has more of that.
 *
 * What must hold:
 *	(1) when the number is N each part of step N is in place	tell()
 *	(2) a number is counted once, and in order			poll()
 *
 * What may happen, MAX_FAULTS times: a part is not sent (it was refused, late or
 * canceled), of which A's program is told, so it sends what is next; the connection breaks, and what was not counted is sent again; what is to
 * be sent again must not be any more; and once A gives the slot back, at any moment when
 * nothing is on its way, and the next holder counts on.
 *
 * Each rule can be switched off, see README.md.
 */

#ifndef MAX_FAULTS
#define MAX_FAULTS 2
#endif
#define STEPS	3
#define LANES	2

typedef Lane {
	byte next;		/* the step whose part is sent next; beyond STEPS: none */
	byte given;		/* numbers that A has given in this holder's time */
	byte executed;		/* by the RDMA device of B: up to this number */
	byte counted;		/* by B */
	byte step[STEPS + 1];	/* which step's part has the number */
	bool placed[STEPS + 1];	/* is it in place? */
}
Lane lane[LANES];
bool closed;			/* the slot */
#ifdef CLOSE_LATER
bool owed;			/* it is to be closed */
#endif
bool gave_back;
byte faults = MAX_FAULTS;
#define FAULT	(faults > 0)

#define MIN(a, b)	(a < b -> a : b)
/* Of this holder's steps. */
#ifdef ONE_TELLS
/* The first queue pair's own, posted after all of it was acknowledged. */
#define NUMBER	MIN(lane[0].counted, lane[1].executed)
#else
#ifdef ANY_COUNTS
#define NUMBER	(lane[0].counted + lane[1].counted) / LANES
#else
#define NUMBER	MIN(lane[0].counted, lane[1].counted)
#endif
#endif

/* The consumer looks at all up to the number. */
inline tell()
{
	n = 1;
	do
	:: n <= NUMBER ->
		assert(lane[0].step[n] == lane[1].step[n]);		/* (1) */
		assert(lane[0].placed[n] && lane[1].placed[n]);		/* (1) */
		n++
	:: else -> break
	od;
	n = 0
}

inline missed()
{
#ifdef NO_CLOSE
	skip
#else
#ifdef CLOSE_LATER
	owed = true
#else
	closed = true
#endif
#endif
}

proctype queue_pair(byte l)
{
	byte n;
end:
	do
	/* A: a part is sent, or is not. */
	:: atomic {
		lane[l].next <= STEPS && !closed ->
		lane[l].given++;
		lane[l].step[lane[l].given] = lane[l].next;
		lane[l].next++
	}
	:: atomic { lane[l].next <= STEPS && closed -> lane[l].next = STEPS + 1 }
	:: atomic {
		lane[l].next <= STEPS && FAULT ->
		faults--;
		lane[l].next++;
		missed()
	}
	/* B */
	:: atomic { lane[l].executed < lane[l].given -> lane[l].executed++; tell() }
	:: atomic {
		lane[l].executed > lane[l].counted && !lane[l].placed[lane[l].executed] ->
		lane[l].placed[lane[l].executed] = true
	}
	:: atomic {
		lane[l].counted < lane[l].executed ->
		lane[l].counted++;
		assert(lane[l].counted <= lane[l].given);		/* (2) */
		lane[l].placed[lane[l].counted] = true;
		tell()
	}
	od
}

inline poll_empty(l)
{
	do
	:: lane[l].counted < lane[l].executed ->
		lane[l].counted++;
		lane[l].placed[lane[l].counted] = true
	:: else -> break
	od
}

/*
 * What was not counted is sent again, each with its number; or the first of it must not be, and
 * those behind it get the numbers before theirs, unless the slot is closed.
 */
inline again(l)
{
	if
	:: lane[l].given > lane[l].counted && FAULT ->
		faults--;
		missed();
#ifdef NO_CLOSE
		n = lane[l].counted + 1;
		do
		:: n < lane[l].given -> lane[l].step[n] = lane[l].step[n + 1]; n++
		:: else -> break
		od;
		n = 0;
		lane[l].given--
#else
		lane[l].given = lane[l].counted
#endif
	:: true
	fi
}

proctype others()
{
	byte n, number;
end:
	do
#ifdef CLOSE_LATER
	:: atomic { owed -> owed = false; closed = true }
#endif
	/* The connection breaks, and another one takes its place. */
	:: atomic {
		FAULT ->
		faults--;
		poll_empty(0);
		poll_empty(1);
		tell();
		again(0);
		again(1)
	}
	/* What was sent has been acknowledged, and B polls before it reads of it. */
	:: atomic {
		!gave_back && lane[0].executed == lane[0].given &&
		lane[1].executed == lane[1].given ->
		gave_back = true;
		poll_empty(0);
		poll_empty(1);
		tell();
		number = NUMBER;
		closed = false;
		do
		:: n < LANES ->
			lane[n].next = 1;
			lane[n].given = 0;
			lane[n].executed = 0;
#ifdef KEEP_LANES
			lane[n].counted = lane[n].counted - number;
#else
			lane[n].counted = 0;
#endif
			lane[n].placed[1] = false;
			lane[n].placed[2] = false;
			lane[n].placed[3] = false;
			n++
		:: else -> break
		od;
		n = 0;
		number = 0
	}
	od
}

init {
	atomic {
		do
		:: faults > 0 -> faults--
		:: break
		od;
		lane[0].next = 1;
		lane[1].next = 1;
		run queue_pair(0);
		run queue_pair(1);
		run others()
	}
}

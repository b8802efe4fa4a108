/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Calls: what is large goes where a credit says, and no call waits for a later one.
 *
 * Three ranks (or four) make two calls, each when it likes.  In a call each sends two messages to the next
 * rank: the first at once, the second when it has used the first of the rank before it, as in a ring.
 * A message needs a credit, which holds one of the receiver's slots, two or one, until the message has been
 * used.  A rank sends one message, or answers one credit, at a time.
 *
 * One rank makes another call than the others, in one place (but with ALIKE): whoever sees that stands still with
 * it until rank 0's verdict comes, which may be at any time.  Then the call is over at that rank, and
 * credits for it are answered without messages.  Answers come by a lane, in their order; verdicts,
 * and what ranks say to each other, come by records: in any order with answers.
 *
 * What must hold:
 *	(1) what a rank uses is the message that it takes it for	use()
 *	(2) all calls end, at all ranks					end states
 *
 * Each rule can be switched off, see README.md.
 */

#ifndef RANKS
#define RANKS		3
#endif
#define CALLS		2
#define MESSAGES	2
#ifndef SLOTS
#define SLOTS		2
#endif
#define SLOTS_MAX	2

#define NEXT(r)		((r + 1) % RANKS)
#define BEFORE(r)	((r + RANKS - 1) % RANKS)
/* A rank's messages are numbered, call by call. */
#define AT(c, m)	((c) * MESSAGES + (m))
#define CALL(a)		((a) / MESSAGES)
#define INDEX(a)	((a) % MESSAGES)
#define NOTHING		(CALLS * MESSAGES)

mtype = { UNKNOWN, GRANTED, FULL, EMPTY, WRONG, OVER };

typedef Rank {
	byte begun;				/* calls */
	byte sent[CALLS];			/* messages to the next rank */
	byte used[CALLS];			/* of the one before */
	byte granted[CALLS];			/* to the one before */
	byte slots;				/* that are free */
	mtype message[CALLS * MESSAGES];	/* of the rank before: what its credit has become */
	byte given[SLOTS_MAX];			/* credits that were not answered, the oldest first; */
	byte gives;				/* so many */
	byte credit[SLOTS_MAX];		/* of the next rank: the oldest first; */
	byte credits;				/* so many */
	byte posted;				/* the message that is on its way, or NOTHING */
	bool doubts[CALLS];			/* it stands still */
	bool judged[CALLS];			/* it is over, as ranks differ */
	bool says[CALLS];			/* to the next rank: nothing comes for that call; */
	bool heard[CALLS];			/* who has heard it */
}
Rank rank[RANKS];

byte odd = RANKS;				/* who makes another call, or RANKS, */
byte odd_call;					/* and which */
bool disputed;					/* rank 0 has been told */

#define DIFFER(r, c)	(odd_call == (c) && (odd == r || odd == NEXT(r)))
#define STANDS(r, c)	(rank[r].doubts[c] || rank[r].judged[c])
#define COMPLETE(r, c)	(rank[r].sent[c] == MESSAGES && rank[r].used[c] == MESSAGES && \
			 rank[r].posted == NOTHING)
#define AWAITED(r, a)	(rank[r].message[a] == GRANTED)
/* Nobody writes for it any more. */
#define ENDED(r, c)	(COMPLETE(r, c) || \
			 (rank[r].judged[c] && rank[r].posted == NOTHING && \
			  !AWAITED(r, AT(c, 0)) && !AWAITED(r, AT(c, 1))))

#ifdef ANY_CALL
#define TURN(r, c)	true
#else
#define TURN(r, c)	((c) == 0 || rank[r].granted[0] == MESSAGES || rank[r].judged[0])
#endif
#define MAY_GRANT(r, c)	(rank[r].begun > (c) && rank[r].slots > 0 && \
			 rank[r].granted[c] < MESSAGES && !STANDS(r, c) && TURN(r, c))

#define C(r, i)		CALL(rank[r].credit[i])
#define M(r, i)		INDEX(rank[r].credit[i])
#define MAY_SEND(r, i)	(rank[r].credits > (i) && rank[r].posted == NOTHING && \
			 rank[r].begun > C(r, i) && !STANDS(r, C(r, i)) && \
			 rank[r].sent[C(r, i)] == M(r, i) && \
			 (M(r, i) == 0 || rank[r].used[C(r, i)] >= M(r, i)))

#define USED(r, c)	AT(c, rank[r].used[c])
#define MAY_USE(r, c)	(rank[r].used[c] < rank[r].granted[c] && !STANDS(r, c) && \
			 rank[r].message[USED(r, c)] != GRANTED)

/* A credit that nobody uses. */
#define IS_VOID(r)	(rank[r].credits > 0 && rank[r].judged[C(r, 0)])
#ifdef NO_WORD
#define IS_HEARD(r)	true
#else
#define IS_HEARD(r)	rank[r].heard[C(r, 0)]
#endif

inline grant(c)
{
	a = AT(c, rank[r].granted[c]);
	rank[r].message[a] = GRANTED;
	rank[r].granted[c]++;
	rank[r].slots--;
	rank[r].given[rank[r].gives] = a;
	rank[r].gives++;
	rank[BEFORE(r)].credit[rank[BEFORE(r)].credits] = a;
	rank[BEFORE(r)].credits++;
	a = 0
}

inline drop_credit(i)
{
	if
	:: (i) == 0 -> rank[r].credit[0] = rank[r].credit[1]
	:: else -> skip
	fi;
	rank[r].credits--;
	rank[r].credit[rank[r].credits] = 0
}

/* The next rank takes it for the answer to the oldest of its credits. */
inline answer(what, whose)
{
	a = rank[NEXT(r)].given[0];
	rank[NEXT(r)].given[0] = rank[NEXT(r)].given[1];
	rank[NEXT(r)].gives--;
	rank[NEXT(r)].given[rank[NEXT(r)].gives] = 0;
	rank[NEXT(r)].message[a] = (what == EMPTY || a == whose -> what : WRONG);
	a = 0
}

inline send(i)
{
	if
	:: DIFFER(r, C(r, i)) -> rank[r].doubts[C(r, i)] = true; disputed = true
	:: else ->
		rank[r].posted = rank[r].credit[i];
		rank[r].sent[C(r, i)]++;
		drop_credit(i)
	fi
}

inline use(c)
{
	assert(rank[r].message[USED(r, c)] == FULL);			/* (1) */
	rank[r].message[USED(r, c)] = OVER;
	rank[r].used[c]++;
	rank[r].slots++
}

#define TO_FORGET(r, a)	(rank[r].message[a] == FULL || rank[r].message[a] == EMPTY)

/* What has landed for a call that is over. */
inline forget(c, m)
{
	if
	:: TO_FORGET(r, AT(c, m)) ->
		rank[r].message[AT(c, m)] = OVER;
		rank[r].slots++
	:: else -> skip
	fi
}

proctype call(byte r)
{
	byte a;

	do
	:: atomic { rank[r].begun < CALLS -> rank[r].begun++ }
	:: atomic { MAY_GRANT(r, 0) -> grant(0) }
	:: atomic { MAY_GRANT(r, 1) -> grant(1) }
	:: atomic { MAY_SEND(r, 0) -> send(0) }
#ifdef ANY_CREDIT
	:: atomic { MAY_SEND(r, 1) -> send(1) }
#endif
	:: atomic {
		rank[r].posted != NOTHING ->
		answer(FULL, rank[r].posted);
		rank[r].posted = NOTHING
	}
	:: atomic { MAY_USE(r, 0) -> use(0) }
	:: atomic { MAY_USE(r, 1) -> use(1) }
	/* Records */
	:: atomic {
		disputed && rank[0].begun > odd_call && rank[r].begun > odd_call &&
		!rank[r].judged[odd_call] && !COMPLETE(r, odd_call) ->
		rank[r].judged[odd_call] = true
	}
	:: atomic {
		rank[r].judged[odd_call] &&
		(TO_FORGET(r, AT(odd_call, 0)) || TO_FORGET(r, AT(odd_call, 1))) ->
		forget(odd_call, 0);
		forget(odd_call, 1)
	}
	:: atomic { IS_VOID(r) && !rank[r].says[C(r, 0)] -> rank[r].says[C(r, 0)] = true }
	:: atomic {
		rank[BEFORE(r)].says[odd_call] && !rank[BEFORE(r)].heard[odd_call] ->
		rank[r].doubts[odd_call] = true;
		rank[BEFORE(r)].heard[odd_call] = true
	}
	:: atomic { IS_VOID(r) && rank[r].posted == NOTHING && IS_HEARD(r) -> answer(EMPTY, 0); drop_credit(0) }
	:: atomic { ENDED(r, 0) && ENDED(r, 1) -> break }
	od;
	/* It answers for what others still ask. */
end:	do
	:: atomic { IS_VOID(r) && !rank[r].says[C(r, 0)] -> rank[r].says[C(r, 0)] = true }
	:: atomic {
		rank[BEFORE(r)].says[odd_call] && !rank[BEFORE(r)].heard[odd_call] ->
		rank[r].doubts[odd_call] = true;
		rank[BEFORE(r)].heard[odd_call] = true
	}
	:: atomic { IS_VOID(r) && rank[r].posted == NOTHING && IS_HEARD(r) -> answer(EMPTY, 0); drop_credit(0) }
	od
}

init
{
	byte i;

	atomic {
		do
		:: i < RANKS ->
			rank[i].slots = SLOTS;
			rank[i].posted = NOTHING;
			i++
		:: else -> break
		od;
#ifndef ALIKE
		if
		:: odd = 0
		:: odd = 1
		:: odd = 2
		fi;
		if
		:: odd_call = 1
		:: skip
		fi;
#endif
		run call(0);
		run call(1);
		run call(2);
#if RANKS > 3
		run call(3);
#endif
	}
}

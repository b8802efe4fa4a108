/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Resynchronisation: what is said again when a connection is made again.
 *
 * A resolver asks an owner for two names, uses what it was granted, and releases it.
 * The owner answers when the name is there, and revokes when it is there no more.  The
 * connection breaks at any moment: all that is on its way is lost, neither end knows
 * what of that the other had dealt with, and no copy of it is kept.  The owner
 * forgets what it was asked.  In the next connection each end says REVOKE and SYNC
 * first; then the resolver asks again, and releases again.
 *
 * What must hold:
 *	(1) a grant that has ended is not used			use
 *	(2) nothing is answered that was not asked for		RESOLVED
 *	(3) in the end nobody waits, and the owner has no grant
 *	    that the resolver does not know			monitor
 *
 * What may happen: the connection breaks MAX_FAULTS times.  Credits come at any time
 * after what they are for, or not at all.  Left out: revoke in a connection that works,
 * which is revoke.pml; segments.  Each rule can be switched off, see README.md.
 */

#ifndef MAX_FAULTS
#define MAX_FAULTS 2
#endif
#define NAMES	2
/* Grants: for each name one, and one more for each answer that is lost. */
#define GRANTS	(NAMES * (MAX_FAULTS + 1))
#define DEPTH	2

mtype:message = { RESOLVE, RESOLVED, CANCEL, NOT_FOUND, RELEASE, REVOKE, SYNC };
/* What an end has to say of something: not, it is to be said, it was. */
mtype:say = { NOT, TO_SAY, SAID };

/* ---- the owner ------------------------------------------------------------- */

mtype:say there[NAMES];		/* TO_SAY: not yet; SAID: it is; NOT: not any more */
bool waits[NAMES];		/* a request for the name */
#ifdef NUMBER_EARLY
byte number[NAMES];
#endif
bool given[GRANTS + 1];
byte what[GRANTS + 1];		/* the name */
mtype:say revoke[GRANTS + 1];	/* ended while there was no connection */
byte revoke_mark[GRANTS + 1];
byte last;

/* ---- the resolver ---------------------------------------------------------- */

mtype:say ask[NAMES];
mtype:say cancel[NAMES];
bool wanted[NAMES];
byte have[NAMES];		/* the grant; 0: none */
mtype:say release[GRANTS + 1];
byte release_mark[GRANTS + 1];
byte releases;			/* that are to be said */
byte heard;

/* ---- the connection --------------------------------------------------------- */

bool up;
bool synced[2];			/* the owner, the resolver has said SYNC */
bool open;			/* ... and the owner's has come */
byte sent[2], dealt[2], credit[2];	/* messages of the owner, of the resolver */
chan to_owner = [DEPTH] of { mtype:message, byte };
chan to_resolver = [DEPTH] of { mtype:message, byte };
byte faults = MAX_FAULTS;
byte n;

#define OWNER		0
#define RESOLVER	1

inline answer(name)
{
#ifdef NUMBER_EARLY
	x = number[name];
#else
	last++;
	x = last;
#endif
	given[x] = true;
	what[x] = name;
	waits[name] = false;
	sent[OWNER]++;
	to_resolver!RESOLVED(x);
	x = 0
}

/* The queue pairs of both ends are destroyed. */
inline breaks()
{
	up = false; open = false;
	do
	:: len(to_owner) > 0 -> to_owner?_, _
	:: len(to_resolver) > 0 -> to_resolver?_, _
	:: else -> break
	od;
	for (n : OWNER .. RESOLVER) {
		sent[n] = 0; dealt[n] = 0; credit[n] = 0; synced[n] = false
	}
	for (n : 0 .. NAMES - 1) {
#ifndef REMEMBER_REQUESTS
		waits[n] = false;
#endif
#ifndef ASK_ONCE
		if
		:: ask[n] == SAID && wanted[n] -> ask[n] = TO_SAY
		:: ask[n] == SAID && !wanted[n] -> ask[n] = NOT
		:: else
		fi;
#endif
		cancel[n] = NOT
	}
	for (n : 1 .. GRANTS) {
		if
		:: release[n] == SAID -> release[n] = TO_SAY; releases++
		:: else
		fi;
		if
		:: revoke[n] == SAID -> revoke[n] = TO_SAY
		:: else
		fi
	}
	n = 0
}

proctype owner()
{
	byte x;
end:
	do
	:: atomic { there[0] == TO_SAY -> there[0] = SAID }
	:: atomic { there[1] == TO_SAY -> there[1] = SAID }
	:: atomic { waits[0] && there[0] == SAID && up && nfull(to_resolver) -> answer(0) }
	:: atomic { waits[1] && there[1] == SAID && up && nfull(to_resolver) -> answer(1) }
	/* The export ends while there is no connection: so do its grants. */
	:: atomic {
		!up && there[0] == SAID ->
		there[0] = NOT;
		for (x : 1 .. GRANTS) {
			if
			:: given[x] && what[x] == 0 -> given[x] = false; revoke[x] = TO_SAY
			:: else
			fi
		}
		x = 0
	}
	:: atomic {
		up && nfull(to_resolver) && !synced[OWNER] ->
		x = 1;
		do
		:: x > GRANTS -> break
		:: x <= GRANTS && revoke[x] == TO_SAY -> break
		:: else -> x++
		od;
		sent[OWNER]++;
		if
		:: x <= GRANTS ->
#ifdef REVOKE_ONCE
			revoke[x] = NOT;
#else
			revoke[x] = SAID; revoke_mark[x] = sent[OWNER];
#endif
			to_resolver!REVOKE(x)
		:: else -> synced[OWNER] = true; to_resolver!SYNC(0)
		fi;
		x = 0
	}
	/* Credits: the resolver knows that it has ended. */
	:: atomic {
		up && credit[OWNER] < dealt[OWNER] ->
		credit[OWNER] = dealt[OWNER];
		for (x : 1 .. GRANTS) {
			if
			:: revoke[x] == SAID && revoke_mark[x] <= credit[OWNER] -> revoke[x] = NOT
			:: else
			fi
		}
		x = 0
	}
	:: atomic {
		to_owner?RESOLVE(x) ->
		dealt[RESOLVER]++;
		assert(!waits[x]);	/* (2) */
		waits[x] = true;
#ifdef NUMBER_EARLY
		last++;
		number[x] = last;
#endif
		x = 0
	}
	:: atomic {
		up && nfull(to_resolver) && to_owner?[CANCEL] -> to_owner?CANCEL(x);
		dealt[RESOLVER]++;
		if
		:: waits[x] -> waits[x] = false; sent[OWNER]++; to_resolver!NOT_FOUND(x)
		:: else
		fi;
		x = 0
	}
	:: atomic { to_owner?RELEASE(x) -> dealt[RESOLVER]++; given[x] = false; x = 0 }
	:: atomic {
		to_owner?SYNC(x) ->
		dealt[RESOLVER]++;
#ifndef KEEP_UNHEARD
		for (x : x + 1 .. GRANTS) { given[x] = false }
#endif
		x = 0
	}
	od
}

/* Who has it lets it go. */
inline let_go(name)
{
	release[have[name]] = TO_SAY;
	releases++;
	have[name] = 0;
	wanted[name] = false
}

proctype resolver(byte name)
{
	byte x;
end:
	do
	:: atomic {
		up && nfull(to_owner) && synced[RESOLVER] && ask[name] == TO_SAY ->
		ask[name] = SAID; sent[RESOLVER]++; to_owner!RESOLVE(name)
	}
	/* It does not wait any longer. */
	:: atomic {
		wanted[name] && !have[name] && name == 1 ->
		wanted[name] = false;
		if
		:: ask[name] == SAID -> cancel[name] = TO_SAY
		:: else -> ask[name] = NOT
		fi
	}
	:: atomic {
		up && nfull(to_owner) && synced[RESOLVER] && cancel[name] == TO_SAY ->
		cancel[name] = SAID; sent[RESOLVER]++; to_owner!CANCEL(name)
	}
	:: atomic { have[name] && open -> assert(given[have[name]]) }	/* (1) */
	:: atomic { have[name] -> let_go(name) }
	od
}

proctype control()
{
	byte x;
end:
	do
	:: atomic {
		up && nfull(to_owner) && !synced[RESOLVER] ->
		synced[RESOLVER] = true; sent[RESOLVER]++; to_owner!SYNC(heard)
	}
	:: atomic {
		to_resolver?RESOLVED(x) ->
		dealt[OWNER]++;
		assert(ask[what[x]] == SAID);	/* (2) */
		ask[what[x]] = NOT;
		cancel[what[x]] = NOT;
		heard = (x > heard -> x : heard);
		if
		:: wanted[what[x]] -> have[what[x]] = x
		:: else -> release[x] = TO_SAY; releases++
		fi;
		x = 0
	}
	:: atomic {
		to_resolver?NOT_FOUND(x) ->
		dealt[OWNER]++;
		assert(ask[x] == SAID && !wanted[x]);
		ask[x] = NOT; cancel[x] = NOT;
		x = 0
	}
	:: atomic {
		to_resolver?REVOKE(x) ->
		dealt[OWNER]++;
		if
		:: have[what[x]] == x -> have[what[x]] = 0; wanted[what[x]] = false
		:: else
		fi;
		x = 0
	}
	:: atomic { to_resolver?SYNC(_) -> dealt[OWNER]++; open = true }
	:: atomic {
		up && nfull(to_owner) && synced[RESOLVER] && releases > 0 ->
		x = 1;
		do
		:: release[x] == TO_SAY -> break
		:: else -> x++
		od;
		releases--;
		sent[RESOLVER]++;
#ifdef RELEASE_ONCE
		release[x] = NOT;
#else
		release[x] = SAID; release_mark[x] = sent[RESOLVER];
#endif
		to_owner!RELEASE(x);
		x = 0
	}
	:: atomic {
		up && credit[RESOLVER] < dealt[RESOLVER] ->
		credit[RESOLVER] = dealt[RESOLVER];
		for (x : 1 .. GRANTS) {
			if
			:: release[x] == SAID && release_mark[x] <= credit[RESOLVER] ->
				release[x] = NOT
			:: else
			fi
		}
		x = 0
	}
	od
}

proctype connection()
{
end:
	do
	:: atomic { !up -> up = true }
	:: atomic { up && faults > 0 -> faults--; breaks() }
	od
}

/* Nothing happens any more: (3). */
proctype monitor()
{
end:
	timeout ->
	for (n : 0 .. NAMES - 1) {
		assert(!wanted[n] || there[n] == NOT);
		assert(!waits[n] || there[n] == NOT)
	}
	for (n : 1 .. GRANTS) { assert(!given[n]) }
}

init {
	atomic {
		for (n : 0 .. NAMES - 1) {
			there[n] = TO_SAY; ask[n] = TO_SAY; cancel[n] = NOT; wanted[n] = true
		}
		for (n : 0 .. GRANTS) { release[n] = NOT; revoke[n] = NOT }
		n = 0;
		run owner(); run resolver(0); run resolver(1); run control();
		run connection(); run monitor()
	}
}

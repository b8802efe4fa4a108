/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * libtowline: a parameter server.
 *
 * Servers hold the variables of a model, workers compute gradients.  In each step a worker
 * pushes a gradient for each variable, its server updates the variable, and the worker pulls
 * what has become of it; variables are dealt out to servers in turn: "Fast Distributed Deep
 * Learning over RDMA" (EuroSys '19), section 5.  Each push and each pull is one write of its
 * sender's, over a static edge of its own (towline/tensor.h).
 *
 *	server	tow_store_create(), tow_ps_create(), tow_ps_serve(), tow_ps_destroy()
 *	worker	tow_ps_create(), tow_ps_wait() for the first values; then for each step
 *		tow_ps_push() for each variable, and tow_ps_wait(); tow_ps_destroy()
 *
 * Synchronously a variable is updated once for each step, by the average of all workers'
 * gradients, added in the order of their ranks: what comes out is the same, bit for bit, from
 * run to run, and the same as of one process that adds in that order.  With a bounded
 * staleness each gradient updates the variable when it comes, and a worker waits only if it is
 * more than so many steps ahead of the slowest ("More Effective Distributed ML via a Stale
 * Synchronous Parallel Parameter Server", NIPS 2013).
 *
 * A store is there when servers and workers have gone: when one of them dies all others are told
 * which, make a new group, and go on where all of them can (tow_ps_create()).
 *
 * A store, and a tow_ps, are used by one thread at a time.  In a child that was forked they are
 * neither served, used nor updated (-EPERM), and nobody hears of it when they are destroyed.
 */
#ifndef TOW_SERVER_H
#define TOW_SERVER_H

#include <stddef.h>
#include <stdint.h>

#include <towline/arena.h>
#include <towline/bootstrap.h>
#include <towline/tensor.h>

#ifdef __cplusplus
/* One function is called like the structure that it fills in. */
#ifdef __GNUC__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif
extern "C" {
#endif

/* ---- stores ---- */

/* Variables of a store, or of a tow_ps, at most. */
#define TOW_VARIABLES_MAX	4096U

/**
 * enum tow_optimizer - how a variable p is updated by a gradient g
 * @TOW_SGD: with momentum: v = momentum v + g; p = p - rate v.  Without momentum v is g
 * @TOW_ADAM: m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g g; in update t:
 *	p = p - rate (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
 *	("Adam: A Method for Stochastic Optimization", 2015, algorithm 1)
 *
 * Each operation is rounded to the variable's type, and none is fused with another one.
 */
enum tow_optimizer {
	TOW_SGD		= 0,
	TOW_ADAM	= 1
};

/**
 * struct tow_store_attr - how a store updates its variables
 * @size: sizeof(struct tow_store_attr), as the caller was compiled
 * @optimizer: enum tow_optimizer
 * @rate: the learning rate: more than 0
 * @momentum: of TOW_SGD: 0 to less than 1
 * @beta1: of TOW_ADAM: 0 to less than 1, as is @beta2
 * @beta2: of TOW_ADAM
 * @epsilon: of TOW_ADAM: 0 or more
 *
 * What the other optimizer has is not looked at.  Later versions of the library add fields at
 * the end only.
 */
struct tow_store_attr {
	uint32_t size;
	uint32_t optimizer;
	double rate;
	double momentum;
	double beta1;
	double beta2;
	double epsilon;
};

/* Variables and what an optimizer has of them.  Made by tow_store_create(). */
struct tow_store;

/**
 * tow_store_create() - make a store
 * @arena: where variables are: it must live as long as the store
 * @attr: how they are updated
 * @types: what each variable is: of one lane of float32 or float64
 * @initial: where the first value of each is, which is copied; NULL: zeroes
 * @count: how many, 1 to TOW_VARIABLES_MAX
 * @store: stored here; ended with tow_store_destroy()
 *
 * Of each variable, and of what its optimizer has, there are two, this update's and the one's
 * before: it takes 4 times a variable's bytes with momentum, 2 without, 6 with TOW_ADAM.
 *
 * Return: 0; -EINVAL: an argument but @initial is NULL, or not as above; -E2BIG: @attr asks for
 * what this library does not know; -EOPNOTSUPP: a variable is of another type; -EOVERFLOW: one
 * is larger than anything; -EDQUOT, -ENOSPC, -ENOMEM: no memory, as tow_arena_alloc().
 */
int tow_store_create(struct tow_arena *arena, const struct tow_store_attr *attr,
		     const struct tow_tensor_type *types, const void *const *initial,
		     uint32_t count, struct tow_store **store);

/**
 * tow_store_destroy() - end a store
 * @store: from tow_store_create(), or NULL
 *
 * Return: 0; -EBUSY: a tow_ps serves it, and nothing was done; -EPERM: in a child that was forked,
 * where nothing but its copy ends.
 */
int tow_store_destroy(struct tow_store *store);

/**
 * tow_store_value() - a variable
 * @store: from tow_store_create()
 * @variable: which one, from 0
 *
 * Return: its value, to be read until its next update but one; NULL: there is none such.
 */
const void *tow_store_value(const struct tow_store *store, uint32_t variable);

/**
 * tow_store_updates() - how often a variable was updated
 * @store: from tow_store_create()
 * @variable: which one, from 0
 *
 * Return: how often; UINT64_MAX: there is none such.
 */
uint64_t tow_store_updates(const struct tow_store *store, uint32_t variable);

/**
 * tow_store_update() - update a variable
 * @store: from tow_store_create()
 * @variable: which one, from 0
 * @gradients: where gradients are, @count of them, of the variable's type
 * @count: how many: their average, added in this order, counts; 1 or more
 *
 * For a process without servers, and for whoever averages by other means.
 *
 * Return: 0; -EINVAL: an argument is NULL, or not as above; -EBUSY: a tow_ps serves the store;
 * -EPERM in a child that was forked.
 */
int tow_store_update(struct tow_store *store, uint32_t variable, const void *const *gradients,
		     uint32_t count);

/* ---- servers and workers ---- */

/* Synchronous steps: struct tow_ps_attr.staleness. */
#define TOW_PS_SYNCHRONOUS	UINT32_MAX

/* All variables: tow_ps_wait(). */
#define TOW_PS_ALL		UINT32_MAX

/**
 * struct tow_ps_attr - what this rank is, and what is moved
 * @size: sizeof(struct tow_ps_attr), as the caller was compiled
 * @servers: how many ranks serve: ranks 0 to @servers - 1 do, the others work; the same at all,
 *	1 or more, and at least one rank works
 * @staleness: by how many steps a worker may be ahead of the slowest; or TOW_PS_SYNCHRONOUS; the
 *	same at all ranks
 * @timeout_ms: how long a step may wait for a worker when another one's gradient is there, in
 *	milliseconds, before it is blamed; and a worker for a server, a second more; 0: 600,000
 * @count: how many variables, 1 to TOW_VARIABLES_MAX
 * @types: what each variable is, the same at all ranks; variable V is that of server V % @servers,
 *	and number V / @servers of its store
 * @store: a server's, which has variables of just these types; NULL: of a worker, and of a server
 *	that no variable is left for
 *
 * Nothing of it is kept but @store.  Later versions of the library add fields at the end only.
 */
struct tow_ps_attr {
	uint32_t size;
	uint32_t servers;
	uint32_t staleness;
	uint32_t timeout_ms;
	uint32_t count;
	const struct tow_tensor_type *types;
	struct tow_store *store;
};

/* What this rank has of a parameter server.  Made by tow_ps_create(). */
struct tow_ps;

/**
 * tow_ps_create() - find servers and workers
 * @group: from tow_group_create(); it must be there for as long as the tow_ps
 * @arena: from tow_arena_create(), of the group's device: where gradients and values come to; a
 *	server's store is in it, too, or what is sent is copied first
 * @attr: what this rank is
 * @ps: where to put it; ended by tow_ps_destroy().  Left alone on failure.
 * @blamed: where to put the rank that is to blame, or TOW_NO_RANK; or NULL
 *
 * All ranks call it; signals wait until it returns.  Servers whose stores are of a step before, when one of them has died in
 * mid-step, agree synchronously: variables that are an update ahead are taken back, so that all
 * go on after the last step that was whole (tow_ps_step()).  With staleness nothing is taken back.
 *
 * Return: 0; -EINVAL: an argument but @blamed is NULL, or @attr is not as above; -E2BIG: it asks
 * for what this library does not know; -EOVERFLOW: there are more edges than a queue has entries;
 * -EPROTO: @blamed has other ideas of variables, servers or staleness, or its store was updated
 * so often that nobody can go on there; -EPROTOTYPE, -EMSGSIZE: variables are of other types there;
 * -ECANCELED: @blamed could not; -EBUSY: another tow_ps
 * serves the store; what tow_group_gather(), tow_group_peer(), tow_worker_create(),
 * tow_static_receiver() and tow_edge_connect() return.
 */
int tow_ps_create(struct tow_group *group, struct tow_arena *arena, const struct tow_ps_attr *attr,
		  struct tow_ps **ps, uint32_t *blamed);

/**
 * tow_ps_leave() - say that this rank leaves
 * @ps: from tow_ps_create(), or NULL
 *
 * A worker's servers are told that it has left; and what went wrong, if something did: they tell
 * others.  A server's workers are told that it could not go on, if they have not left.  Values stay
 * where they are, and nothing else is done any more.
 */
void tow_ps_leave(struct tow_ps *ps);

/**
 * tow_ps_destroy() - leave, and end it
 * @ps: from tow_ps_create(), or NULL
 */
void tow_ps_destroy(struct tow_ps *ps);

/**
 * tow_ps_step() - in which step this is
 * @ps: from tow_ps_create()
 *
 * Return: how many steps were done before, of this training synchronously (of its store's updates,
 * that is); with staleness of this tow_ps; 0: @ps is NULL.
 */
uint64_t tow_ps_step(const struct tow_ps *ps);

/**
 * tow_ps_serve() - a server's work
 * @ps: a server's, from tow_ps_create()
 * @timeout_us: how long, in microseconds; TOW_WAIT_FOREVER
 * @blamed: where to put the rank that is to blame, or TOW_NO_RANK; or NULL
 *
 * Sleeps while there is nothing to do.
 *
 * Return: 0: all workers have left; -ETIMEDOUT with TOW_NO_RANK: time is over, call it again;
 * -ESTALE: rank @blamed has died, or left while others went on synchronously; -ECONNRESET: its
 * node does not answer; -ETIMEDOUT: it did not come in time; another error with @blamed: what
 * that rank has left with; -EINTR: tow_on_signal(); -ENODEV: this node's RDMA device is gone;
 * -EPERM in a child that was forked; -EINVAL: @ps is no server's.  Of one that has failed all
 * workers were told, and it has the same error ever after; -ECANCELED when it was left.
 */
int tow_ps_serve(struct tow_ps *ps, uint32_t timeout_us, uint32_t *blamed);

/**
 * tow_ps_push() - a gradient of a variable
 * @ps: a worker's, from tow_ps_create()
 * @variable: of which one, from 0; once in a step, when tow_ps_wait() has shown its value, and
 *	synchronously those of all others of the step before
 * @gradient: of the variable's type; in a region it is sent from there (tow_edge_send()), elsewhere
 *	copied first.  It is not changed before tow_ps_wait() for the variable.
 *
 * The variable's value is not read any more: the next one may come there at any time.  Does not
 * wait for the server.
 *
 * Return: 0; -EINVAL: an argument is NULL or not as above, or @ps is a server's; -EBUSY: it was
 * pushed, and tow_ps_wait() was not called for it, or for another one of the step before;
 * -EDQUOT, -ENOSPC, -ENOMEM: no room for a copy; what tow_ps_wait() returns.
 */
int tow_ps_push(struct tow_ps *ps, uint32_t variable, const void *gradient);

/**
 * tow_ps_wait() - until a variable's value is there
 * @ps: a worker's, from tow_ps_create()
 * @variable: which one, from 0; or TOW_PS_ALL
 * @blamed: where to put the rank that is to blame, or TOW_NO_RANK; or NULL
 *
 * Sleeps meanwhile.
 *
 * Return: 0: it is (tow_ps_value()), and the gradient is the caller's again; -ESTALE: rank
 * @blamed has died, or left; -ECONNRESET: its node does not answer; -ETIMEDOUT: it did not come
 * in time; another error with @blamed: what that rank says that it could not go on for; -EINTR:
 * tow_on_signal(), call it again; -ENODEV: this node's RDMA device is gone; -EPERM in a child that was forked;
 * -EINVAL: @ps is no worker's, or there is no such variable.  A tow_ps that has failed
 * has the same error and blames the same rank ever after.
 */
int tow_ps_wait(struct tow_ps *ps, uint32_t variable, uint32_t *blamed);

/**
 * tow_ps_value() - where a variable's value is
 * @ps: a worker's, from tow_ps_create()
 * @variable: which one, from 0
 *
 * Always the same place, aligned to 64 bytes.  To be read after tow_ps_wait() and before
 * tow_ps_push(); it may be changed then, too, which the server does not see.
 *
 * Return: the value; NULL: @ps is no worker's, there is no such variable, or none has come yet.
 */
void *tow_ps_value(const struct tow_ps *ps, uint32_t variable);

/**
 * struct tow_ps_stats - what this rank has done
 * @size: sizeof(struct tow_ps_stats), as the caller was compiled
 * @servers: how many ranks serve
 * @workers: how many work
 * @variables: how many of them this rank moves: a worker all
 * @sent_bytes: gradients that a worker has pushed, values that a server has sent
 * @received_bytes: values that a worker has waited for, gradients that a server has had
 * @copied_bytes: of @sent_bytes, what was in no region
 * @waited_ns: for how long tow_ps_wait() or tow_ps_serve() has slept or looked for something to
 *	come, in nanoseconds
 * @updates: that a server has made
 */
struct tow_ps_stats {
	uint32_t size;
	uint32_t servers;
	uint32_t workers;
	uint32_t variables;
	uint64_t sent_bytes;
	uint64_t received_bytes;
	uint64_t copied_bytes;
	uint64_t waited_ns;
	uint64_t updates;
};

/**
 * tow_ps_stats() - what this rank has done
 * @ps: from tow_ps_create()
 * @stats: told here; @stats->size is set before
 *
 * Return: 0; -EINVAL: an argument is NULL, or the size is none that there ever was.
 */
int tow_ps_stats(const struct tow_ps *ps, struct tow_ps_stats *stats);

#ifdef __cplusplus
}
#ifdef __GNUC__
#pragma GCC diagnostic pop
#endif
#endif

#endif /* TOW_SERVER_H */

/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * libtowline: what a launcher says of this process.
 *
 * A launcher starts the processes of a job and tells each in its environment which one it is.
 * Known are, in this order, since one may run within another:
 *
 *	towline		TOW_RANK, TOW_WORLD_SIZE, TOW_LOCAL_RANK, TOW_ROOT; TOW_LOCAL_SIZE,
 *			TOW_RESTART, TOW_SESSION
 *	torchrun	RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR; LOCAL_WORLD_SIZE,
 *			TORCHELASTIC_RESTART_COUNT, TORCHELASTIC_RUN_ID, MASTER_PORT
 *	Open MPI	OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK,
 *			TOW_ROOT; OMPI_COMM_WORLD_LOCAL_SIZE, OMPI_MCA_orte_num_restarts,
 *			PMIX_NAMESPACE
 *	Slurm		SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, SLURM_STEP_NODELIST;
 *			SLURM_RESTART_COUNT, SLURM_JOB_ID, SLURM_STEP_ID
 *
 * Those behind a semicolon may be missing; where the root is may be, too, when all ranks are on
 * this node.  TOW_ROOT and TOW_RESTART count whoever the launcher is.  Open MPI does not say
 * where rank 0 is: mpirun -x TOW_ROOT=ADDRESS does.  What is set to nothing is missing.
 * MASTER_PORT only tells runs of one host apart: torch listens there.
 */
#ifndef TOW_BOOTSTRAP_H
#define TOW_BOOTSTRAP_H

#include <stddef.h>
#include <stdint.h>

#include <towline/towline.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The most ranks of a job. */
#define TOW_RANKS_MAX		65536U

/* Room for an address or a host's name, and for a run's name, each with a zero at its end. */
#define TOW_WORLD_ROOT_BYTES	256U
#define TOW_WORLD_SESSION_BYTES	128U

/**
 * struct tow_world - what a launcher says of this process
 * @size: sizeof(struct tow_world)
 * @rank: which one this is, 0 to @world_size - 1
 * @world_size: how many there are
 * @local_rank: which one of this node
 * @restart: how often the job was started again; processes of different starts never meet
 * @root: where rank 0 is, an address or a host's name, not looked up; "": all are on this node
 * @session: what the launcher calls this run, or ""
 * @launcher: "towline", "torchrun", "Open MPI" or "Slurm"; nobody frees it
 */
struct tow_world {
	uint32_t size;
	uint32_t rank;
	uint32_t world_size;
	uint32_t local_rank;
	uint32_t restart;
	char root[TOW_WORLD_ROOT_BYTES];
	char session[TOW_WORLD_SESSION_BYTES];
	const char *launcher;
};

/**
 * tow_world_detect() - what the launcher says of this process
 * @world: stored here; @world->size is set before
 * @variable: which one is missing, or what it holds cannot be, is stored here; or NULL
 *
 * A launcher is there when one of its variables for the rank and the number of ranks is.  No
 * memory is kept; setenv(3) must not run meanwhile.
 *
 * Return: 0; -ENOENT: @variable is missing; without any launcher's that is TOW_WORLD_SIZE;
 * -EINVAL: @variable is not what it must be: no number, one that is too large, or too long a
 * text; or @world is NULL, or its size none that there is: then @variable is NULL.  After an
 * error @world is as it was.
 */
int tow_world_detect(struct tow_world *world, const char **variable);

/* ---- groups ---- */

/* What one rank can tell all others at once, in bytes. */
#define TOW_GROUP_GATHER_MAX	224U

/* A group's name, without the zero at its end, and an address, with it. */
#define TOW_GROUP_NAME_MAX	63U
#define TOW_GROUP_ADDRESS_BYTES	80U

/* No rank is to blame. */
#define TOW_NO_RANK		UINT32_MAX

/* Processes of a job that know each other; see tow_group_create(). */
struct tow_group;

/**
 * typedef tow_group_gather_fn - the caller's way to tell all ranks something
 * @arg: struct tow_group_attr.arg
 * @mine: what this rank tells
 * @bytes: how much, the same at all ranks
 * @all: where to put what each has told, by rank: @bytes of each
 *
 * As MPI_Allgather() does.  All ranks call it as often, in the same order.
 *
 * Return: 0 or a negative errno, which is what the function returns that asked.
 */
typedef int tow_group_gather_fn(void *arg, const void *mine, size_t bytes, void *all);

/**
 * struct tow_group_attr - how a group is to be made
 * @size: sizeof(struct tow_group_attr), as the caller was compiled
 * @timeout_ms: how long each call may wait for other ranks, in milliseconds; 0: 600,000;
 *	TOW_WAIT_FOREVER
 * @name: which of several groups of the run it is, at most TOW_GROUP_NAME_MAX bytes; NULL: ""
 * @address: by which other nodes reach this one, as for tow_peer_connect(); NULL: TOW_ADDRESS
 *	of the environment, or the first that the device's port has
 * @gather: by which ranks tell each other, in place of the group's own way, or NULL
 * @arg: for @gather
 * @status: 0, or a negative errno: why this rank cannot take part, as what tow_device_open()
 *	returned; with @gather only
 * @reserved: 0
 *
 * A rank with @status may have no device.  All ranks are told, and all calls return it, the others'
 * with that rank blamed; so nobody waits for a rank that could not come so far.
 *
 * Nothing of it is kept but @gather and @arg.  Later versions of the library add fields at the
 * end only.
 */
struct tow_group_attr {
	uint32_t size;
	uint32_t timeout_ms;
	const char *name;
	const char *address;
	tow_group_gather_fn *gather;
	void *arg;
	int32_t status;
	uint32_t reserved;
};

/**
 * tow_group_create() - meet the other ranks
 * @dev: from tow_device_open(); all ranks are of one job (tow_job_join()).  NULL with
 *	@attr->status
 * @world: from tow_world_detect(), or filled in by the caller
 * @attr: how, or NULL
 * @group: where to put the group; the caller ends it with tow_group_destroy().  Left alone on
 *	failure.
 * @blamed: where to put the rank that was waited for in vain, or TOW_NO_RANK; or NULL
 *
 * Rank 0 has a mailbox, with which all others begin lines; so only rank 0's node has to be known
 * (@world->root).  Without one all ranks are on this node; a loopback address, and any address or
 * name of this node's own, mean this node, too.  The mailbox's name holds @world's session and
 * restart.
 *
 * Rank 0's node need not be up: while it is not reached, or its name is not known, that is tried
 * again until the time is over.
 *
 * Return: 0; -EINVAL: @dev, @world or @group is NULL, or @world or @attr is not as above;
 * -E2BIG: @attr asks for what this library does not know; -ETIMEDOUT: @blamed did not come in
 * time; -ECANCELED: @blamed has left, or could not go on; -EPROTO: ranks disagree on how many there
 * are; -EEXIST: another process has said that it is this rank, or some other rank that has not met all
 * others: two runs have one session; -EADDRNOTAVAIL: the device has no address that is known, and
 * @attr has none; -ESTALE, -ECONNRESET: rank 0 has ended; -ECONNREFUSED, -EHOSTUNREACH and the like
 * (tow_peer_connect()) with rank 0 as @blamed: its node was not reached in all the time; -EINTR
 * (tow_on_signal()); what tow_arena_create(), tow_worker_create(), tow_mailbox_create(),
 * tow_mailbox_connect(), tow_peer_connect() and tow_resolve() return; @attr->gather's error; a rank's
 * @attr->status, with @blamed.
 */
int tow_group_create(struct tow_device *dev, const struct tow_world *world,
		     const struct tow_group_attr *attr, struct tow_group **group,
		     uint32_t *blamed);

/**
 * tow_group_destroy() - leave a group
 * @group: from tow_group_create(), or NULL
 *
 * Ranks but 0 say that they have left, and whoever waits for them learns it at once.  The peers that
 * tow_group_peer() has given are gone.
 */
void tow_group_destroy(struct tow_group *group);

/**
 * tow_group_rank() - which rank this process is
 * @group: from tow_group_create()
 *
 * Return: the rank.
 */
uint32_t tow_group_rank(const struct tow_group *group);

/**
 * tow_group_size() - how many ranks there are
 * @group: from tow_group_create()
 *
 * Return: their number.
 */
uint32_t tow_group_size(const struct tow_group *group);

/**
 * tow_group_gather() - all ranks tell each other something
 * @group: from tow_group_create()
 * @mine: what this rank tells; may be NULL if @bytes is 0
 * @bytes: how much, at most TOW_GROUP_GATHER_MAX, the same at all ranks
 * @all: where to put what each has told, by rank: @bytes of each; may be NULL if @bytes is 0
 * @blamed: as for tow_group_create()
 *
 * Called by all ranks as often, in the same order, and by one thread at a time.  Returns when
 * all have called it: with 0 bytes it is a barrier.  It is for what is told once, as names and
 * sizes: rank 0 sends all of it to each.
 *
 * Rank 0, before it says that somebody did not come, waits five seconds at most until others have
 * that.
 *
 * Return: 0; -EINVAL: an argument is not as above; -ETIMEDOUT: @blamed did not call it in time;
 * -ECANCELED: @blamed has left, or its call was ended (-EINTR, tow_on_signal()); -ESTALE,
 * -ECONNRESET: @blamed has died, or its node is lost; -EPROTO: @blamed tells another number of
 * bytes; -ENODEV; -EPERM in a child that was forked;
 * @attr->gather's error.  A group with which something went wrong has the same error ever after.
 */
int tow_group_gather(struct tow_group *group, const void *mine, size_t bytes, void *all,
		     uint32_t *blamed);

/**
 * tow_group_peer() - the node of a rank
 * @group: from tow_group_create()
 * @rank: whose
 * @peer: where to put the peer, which is the group's and ends with it
 *
 * Connects to it if nobody has so far.  Ranks of one node have the same peer; this node is its
 * own peer.
 *
 * Return: 0; -EINVAL: an argument is NULL, or there is no such rank; -EADDRNOTAVAIL: it is the
 * only one, and has no address that is known; -EPERM in a child that was forked; what
 * tow_peer_connect() returns.
 */
int tow_group_peer(struct tow_group *group, uint32_t rank, struct tow_peer **peer);

#ifdef __cplusplus
}
#endif

#endif /* TOW_BOOTSTRAP_H */

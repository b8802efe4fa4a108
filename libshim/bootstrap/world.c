// SPDX-License-Identifier: LGPL-2.1-only OR MIT
/* What a launcher says of this process. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "../core/internal.h"
#include "inside.h"

/* Variables by what they say; NULL: the launcher says nothing of it. */
struct launcher {
	const char *name;
	const char *rank, *world_size, *local_rank, *root;
	const char *local_size;		/* all on this node: no root is needed */
	const char *restart;
	const char *session[2];		/* both, with a dot between */
	bool host_list;			/* the root is the first one of a list of hosts */
};

static const struct launcher launchers[] = {
	{
		.name = "towline", .rank = "TOW_RANK", .world_size = "TOW_WORLD_SIZE",
		.local_rank = "TOW_LOCAL_RANK", .root = "TOW_ROOT",
		.local_size = "TOW_LOCAL_SIZE", .session = { "TOW_SESSION" },
	}, {
		.name = "torchrun", .rank = "RANK", .world_size = "WORLD_SIZE",
		.local_rank = "LOCAL_RANK", .root = "MASTER_ADDR",
		.local_size = "LOCAL_WORLD_SIZE",
		.restart = "TORCHELASTIC_RESTART_COUNT",
		/* The run's name is "none" where nobody gave one; no two have one port. */
		.session = { "TORCHELASTIC_RUN_ID", "MASTER_PORT" },
	}, {
		.name = "Open MPI", .rank = "OMPI_COMM_WORLD_RANK",
		.world_size = "OMPI_COMM_WORLD_SIZE", .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
		.root = "TOW_ROOT", .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
		.restart = "OMPI_MCA_orte_num_restarts", .session = { "PMIX_NAMESPACE" },
	}, {
		.name = "Slurm", .rank = "SLURM_PROCID", .world_size = "SLURM_NTASKS",
		.local_rank = "SLURM_LOCALID", .root = "SLURM_STEP_NODELIST",
		.restart = "SLURM_RESTART_COUNT", .session = { "SLURM_JOB_ID", "SLURM_STEP_ID" },
		.host_list = true,
	},
};

/* What is set to nothing is not set. */
static const char *value_of(const char *variable)
{
	const char *value = variable ? secure_getenv(variable) : NULL;

	return value && *value ? value : NULL;
}

static int wrong(const char *variable, int error, const char **which)
{
	*which = variable;
	return error;
}

/* A number below @end: 0, -ENOENT or -EINVAL. */
static int number_of(const char *variable, uint32_t end, uint32_t *number, const char **which)
{
	const char *value = value_of(variable);
	unsigned long long parsed;
	char *rest;

	if (!value)
		return wrong(variable, -ENOENT, which);
	errno = 0;
	parsed = strtoull(value, &rest, 10);
	/* No sign, and no space before it. */
	if (*value < '0' || *value > '9' || *rest || errno || parsed >= end)
		return wrong(variable, -EINVAL, which);
	*number = (uint32_t)parsed;
	return 0;
}

/* The same, of one that may be missing. */
static int number_if_any(const char *variable, uint32_t *number, const char **which)
{
	return value_of(variable) ? number_of(variable, UINT32_MAX, number, which) : 0;
}

static int copy(const char *variable, const char *value, size_t length, char *to, size_t bytes,
		const char **which)
{
	if (!length || length >= bytes)
		return wrong(variable, -EINVAL, which);
	memcpy(to, value, length);
	to[length] = '\0';
	return 0;
}

/*
 * The first host of Slurm's list, as "node[07-09,12],other" or "login,node": the prefix, and
 * the first number of the first range.  0 or -EINVAL.
 */
static int first_host(const char *variable, const char *list, struct tow_world *world,
		      const char **which)
{
	size_t prefix = strcspn(list, "[,"), digits = 0;
	const char *end;

	if (list[prefix] == '[') {
		digits = strspn(list + prefix + 1, "0123456789");
		end = strchr(list, ']');
		/* One number a host: "rack[1-2]node[3-4]" is beyond this. */
		if (!digits || !end || (end[1] && end[1] != ','))
			return wrong(variable, -EINVAL, which);
	}
	if (prefix + digits >= sizeof(world->root) || !(prefix + digits))
		return wrong(variable, -EINVAL, which);
	memcpy(world->root, list, prefix);
	memcpy(world->root + prefix, list + prefix + 1, digits);
	world->root[prefix + digits] = '\0';
	return 0;
}

static int find_root(const struct launcher *launcher, struct tow_world *world, const char **which)
{
	const char *own = value_of("TOW_ROOT"), *root = value_of(launcher->root);
	uint32_t local = 0;
	int ret;

	if (own)
		return copy("TOW_ROOT", own, strlen(own), world->root, sizeof(world->root), which);
	ret = number_if_any(launcher->local_size, &local, which);
	if (ret || world->world_size == 1 || local == world->world_size)
		return ret;
	if (!root)
		return wrong(launcher->root, -ENOENT, which);
	if (launcher->host_list)
		return first_host(launcher->root, root, world, which);
	return copy(launcher->root, root, strlen(root), world->root, sizeof(world->root), which);
}

/* The run's name, as much as there is of it. */
static int find_session(const struct launcher *launcher, struct tow_world *world,
			const char **which)
{
	size_t length = 0;
	int ret = 0;

	for (int i = 0; i < 2 && !ret; i++) {
		const char *value = value_of(launcher->session[i]);

		if (!value)
			continue;
		if (length)
			world->session[length++] = '.';
		ret = copy(launcher->session[i], value, strlen(value), world->session + length,
			   sizeof(world->session) - length, which);
		length += strlen(value);
	}
	return ret;
}

static int ask(const struct launcher *launcher, struct tow_world *world, const char **which)
{
	int ret;

	world->launcher = launcher->name;
	ret = number_of(launcher->world_size, TOW_RANKS_MAX + 1, &world->world_size, which);
	if (!ret && !world->world_size)
		ret = wrong(launcher->world_size, -EINVAL, which);
	if (!ret)
		ret = number_of(launcher->rank, world->world_size, &world->rank, which);
	if (!ret)
		ret = number_of(launcher->local_rank, world->world_size, &world->local_rank,
				which);
	if (!ret)
		ret = number_if_any(launcher->restart, &world->restart, which);
	if (!ret)
		ret = number_if_any("TOW_RESTART", &world->restart, which);
	if (!ret)
		ret = find_root(launcher, world, which);
	return ret ? ret : find_session(launcher, world, which);
}

/* The first one of which there is a rank, or a number of them. */
static const struct launcher *find_launcher(void)
{
	for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++)
		if (value_of(launchers[i].rank) || value_of(launchers[i].world_size))
			return &launchers[i];
	return &launchers[0];
}

TOW_PUBLIC int tow_world_detect(struct tow_world *world, const char **variable)
{
	struct tow_world found = { .size = sizeof(found) };
	const char *which = NULL;
	int ret;

	if (variable)
		*variable = NULL;
	if (!world || !towi_size_valid(world->size, TOWI_WORLD_SIZE_FIRST))
		return -EINVAL;
	ret = ask(find_launcher(), &found, &which);
	if (variable)
		*variable = which;
	return ret ? ret : towi_give(&found, TOWI_WORLD_SIZE_FIRST, world);
}

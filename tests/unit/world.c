// SPDX-License-Identifier: GPL-2.0
/*
 * What launchers say of a process, by their variables: those of the four that are known, which
 * one counts where one runs within another, and each that is missing or cannot be, by its name.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kselftest.h>

#include <towline/bootstrap.h>

#define OPEN_MPI	"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_RANK=1 "
#define SLURM		"SLURM_PROCID=3 SLURM_NTASKS=8 SLURM_LOCALID=1 "
#define TORCHRUN	"RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 "
#define TOWLINE		"TOW_RANK=3 TOW_WORLD_SIZE=8 TOW_LOCAL_RANK=1 "

/* Who says what is found: all but the root and the session are the same in most. */
struct found {
	const char *said, *environment;
	const char *launcher, *root, *session;
	uint32_t restart;
};

static const struct found found[] = {
	{ "own variables", TOWLINE "TOW_ROOT=10.0.0.1", "towline", "10.0.0.1", "", 0 },
	{ "all own variables",
	  TOWLINE "TOW_ROOT=fe80::1%eth0 TOW_RESTART=7 TOW_SESSION=mine TOW_LOCAL_SIZE=2",
	  "towline", "fe80::1%eth0", "mine", 7 },
	{ "no root is needed on one node", TOWLINE "TOW_LOCAL_SIZE=8", "towline", "", "", 0 },
	{ "torchrun", TORCHRUN "MASTER_ADDR=node1 MASTER_PORT=29500 LOCAL_WORLD_SIZE=2",
	  "torchrun", "node1", "29500", 0 },
	{ "torchrun, of several runs on a host",
	  TORCHRUN "MASTER_ADDR=node1 MASTER_PORT=29501 TORCHELASTIC_RUN_ID=none",
	  "torchrun", "node1", "none.29501", 0 },
	{ "torchrun, once more",
	  TORCHRUN "MASTER_ADDR=node1 TORCHELASTIC_RESTART_COUNT=2 TORCHELASTIC_RUN_ID=abc",
	  "torchrun", "node1", "abc", 2 },
	{ "Open MPI on one node", OPEN_MPI "OMPI_COMM_WORLD_LOCAL_SIZE=8 PMIX_NAMESPACE=123456",
	  "Open MPI", "", "123456", 0 },
	{ "Open MPI on several", OPEN_MPI "OMPI_COMM_WORLD_LOCAL_SIZE=4 TOW_ROOT=node1 "
	  "OMPI_MCA_orte_num_restarts=1", "Open MPI", "node1", "", 1 },
	{ "Slurm", SLURM "SLURM_STEP_NODELIST=node1 SLURM_JOB_ID=42 SLURM_STEP_ID=1",
	  "Slurm", "node1", "42.1", 0 },
	{ "Slurm's restarts", SLURM "SLURM_STEP_NODELIST=node1 SLURM_RESTART_COUNT=3",
	  "Slurm", "node1", "", 3 },
	{ "the step alone", SLURM "SLURM_STEP_NODELIST=node1 SLURM_STEP_ID=1", "Slurm", "node1",
	  "1", 0 },
	{ "hosts in a row", SLURM "SLURM_STEP_NODELIST=node1,node2", "Slurm", "node1", "", 0 },
	{ "hosts by numbers", SLURM "SLURM_STEP_NODELIST=node[07-09,12],other", "Slurm", "node07",
	  "", 0 },
	{ "hosts that are numbers", SLURM "SLURM_STEP_NODELIST=[3,5]", "Slurm", "3", "", 0 },
	{ "a domain", SLURM "SLURM_STEP_NODELIST=a-b.example,c", "Slurm", "a-b.example", "", 0 },
	{ "own root and start before the launcher's",
	  TORCHRUN "MASTER_ADDR=node1 TORCHELASTIC_RESTART_COUNT=2 TOW_ROOT=10.0.0.9 TOW_RESTART=5",
	  "torchrun", "10.0.0.9", "", 5 },
	{ "mpirun within Slurm", OPEN_MPI "TOW_ROOT=node1 SLURM_PROCID=0 SLURM_NTASKS=2 "
	  "SLURM_LOCALID=0 SLURM_STEP_NODELIST=other SLURM_JOB_ID=42", "Open MPI", "node1", "", 0 },
	{ "torchrun within mpirun", TORCHRUN "MASTER_ADDR=node1 OMPI_COMM_WORLD_RANK=0 "
	  "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0", "torchrun", "node1", "", 0 },
	{ "own variables before all", TOWLINE "TOW_ROOT=node1 RANK=0 WORLD_SIZE=2 SLURM_PROCID=0",
	  "towline", "node1", "", 0 },
	{ "nothing is as good as none", TOWLINE "TOW_ROOT=node1 TOW_RESTART= TOW_SESSION=",
	  "towline", "node1", "", 0 },
};

/* Which variable is at fault. */
struct refused {
	const char *said, *environment;
	int error;
	const char *variable;
};

static const struct refused refused[] = {
	{ "nobody has launched it", "", -ENOENT, "TOW_WORLD_SIZE" },
	{ "no number of ranks", "TOW_RANK=0", -ENOENT, "TOW_WORLD_SIZE" },
	{ "no rank", "WORLD_SIZE=2", -ENOENT, "RANK" },
	{ "no local rank", "SLURM_PROCID=0 SLURM_NTASKS=2", -ENOENT, "SLURM_LOCALID" },
	{ "no root of its own", TOWLINE, -ENOENT, "TOW_ROOT" },
	{ "no root of torchrun's", TORCHRUN "LOCAL_WORLD_SIZE=7", -ENOENT, "MASTER_ADDR" },
	{ "no root of Open MPI's", OPEN_MPI "OMPI_COMM_WORLD_LOCAL_SIZE=7", -ENOENT, "TOW_ROOT" },
	{ "no root of Slurm's", SLURM, -ENOENT, "SLURM_STEP_NODELIST" },
	{ "a rank that is none", "TOW_RANK=x TOW_WORLD_SIZE=8", -EINVAL, "TOW_RANK" },
	{ "something behind it", "TOW_RANK=3x TOW_WORLD_SIZE=8", -EINVAL, "TOW_RANK" },
	{ "a sign", "TOW_RANK=+3 TOW_WORLD_SIZE=8", -EINVAL, "TOW_RANK" },
	{ "less than nothing", "TOW_RANK=-1 TOW_WORLD_SIZE=8", -EINVAL, "TOW_RANK" },
	{ "one rank too many", "TOW_RANK=8 TOW_WORLD_SIZE=8", -EINVAL, "TOW_RANK" },
	{ "more than any", "TOW_RANK=99999999999999999999 TOW_WORLD_SIZE=8", -EINVAL, "TOW_RANK" },
	{ "no ranks at all", "TOW_RANK=0 TOW_WORLD_SIZE=0", -EINVAL, "TOW_WORLD_SIZE" },
	{ "too many", "TOW_RANK=0 TOW_WORLD_SIZE=65537", -EINVAL, "TOW_WORLD_SIZE" },
	{ "a local rank beyond", "TOW_RANK=0 TOW_WORLD_SIZE=8 TOW_LOCAL_RANK=8", -EINVAL,
	  "TOW_LOCAL_RANK" },
	{ "a start that is none", TOWLINE "TOW_ROOT=a TOW_RESTART=once", -EINVAL, "TOW_RESTART" },
	{ "a launcher's start that is none", TORCHRUN "TORCHELASTIC_RESTART_COUNT=once", -EINVAL,
	  "TORCHELASTIC_RESTART_COUNT" },
	{ "a local size that is none", TOWLINE "TOW_LOCAL_SIZE=all", -EINVAL, "TOW_LOCAL_SIZE" },
	{ "hosts by two numbers", SLURM "SLURM_STEP_NODELIST=rack[1-2]node[3-4]", -EINVAL,
	  "SLURM_STEP_NODELIST" },
	{ "hosts by none", SLURM "SLURM_STEP_NODELIST=node[]", -EINVAL, "SLURM_STEP_NODELIST" },
	{ "numbers without an end", SLURM "SLURM_STEP_NODELIST=node[1", -EINVAL,
	  "SLURM_STEP_NODELIST" },
	{ "no host", SLURM "SLURM_STEP_NODELIST=,node1", -EINVAL, "SLURM_STEP_NODELIST" },
};

/* The words NAME=VALUE of @text, and nothing else. */
static void set_environment(const char *text)
{
	char *words = strdup(text), *rest = words, *word, *value;

	clearenv();
	while ((word = strsep(&rest, " "))) {
		value = strchr(word, '=');
		if (!value)
			continue;
		*value++ = '\0';
		setenv(word, value, 1);
	}
	free(words);
}

static bool finds(const struct found *want)
{
	struct tow_world world = { .size = sizeof(world) };
	const char *variable = "";

	set_environment(want->environment);
	if (tow_world_detect(&world, &variable) || variable)
		return false;
	return world.rank == 3 && world.world_size == 8 && world.local_rank == 1 &&
	       world.restart == want->restart && !strcmp(world.root, want->root) &&
	       !strcmp(world.session, want->session) && !strcmp(world.launcher, want->launcher) &&
	       !tow_world_detect(&world, NULL);
}

static bool refuses(const char *environment, int error, const char *want)
{
	struct tow_world world = { .size = sizeof(world), .rank = 77, .root = "before" };
	const char *variable = NULL;

	set_environment(environment);
	return tow_world_detect(&world, &variable) == error && variable &&
	       !strcmp(variable, want) && world.rank == 77 && !world.world_size &&
	       !strcmp(world.root, "before") && !world.launcher;
}

/* As long as there is room for, and one more. */
static bool bounded(const char *variable, const char *others, size_t bytes)
{
	struct tow_world world = { .size = sizeof(world) };
	char environment[1024];

	snprintf(environment, sizeof(environment), "%s %s=%0*d", others, variable,
		 (int)bytes - 1, 0);
	set_environment(environment);
	if (tow_world_detect(&world, NULL))
		return false;
	snprintf(environment, sizeof(environment), "%s %s=%0*d", others, variable, (int)bytes, 0);
	return refuses(environment, -EINVAL, variable);
}

/* One rank needs nobody else. */
static bool alone(void)
{
	struct tow_world world = { .size = sizeof(world) };

	set_environment("RANK=0 WORLD_SIZE=1 LOCAL_RANK=0");
	return !tow_world_detect(&world, NULL) && world.world_size == 1 && !world.root[0];
}

static bool refuses_arguments(void)
{
	struct tow_world world = { .size = sizeof(world) - 1 };
	const char *variable = "";

	set_environment(TOWLINE "TOW_ROOT=a");
	return tow_world_detect(&world, &variable) == -EINVAL && !variable &&
	       tow_world_detect(NULL, &variable) == -EINVAL;
}

int main(void)
{
	ksft_print_header();
	ksft_set_plan(ARRAY_SIZE(found) + ARRAY_SIZE(refused) + 5);
	for (size_t i = 0; i < ARRAY_SIZE(found); i++)
		ksft_test_result(finds(&found[i]), "%s\n", found[i].said);
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
		ksft_test_result(refuses(refused[i].environment, refused[i].error,
					 refused[i].variable), "refused: %s\n", refused[i].said);
	ksft_test_result(alone(), "alone\n");
	ksft_test_result(bounded("TOW_ROOT", TOWLINE, TOW_WORLD_ROOT_BYTES), "a long root\n");
	ksft_test_result(bounded("TOW_SESSION", TOWLINE "TOW_ROOT=a", TOW_WORLD_SESSION_BYTES),
			 "a long session\n");
	ksft_test_result(bounded("SLURM_STEP_ID", SLURM "SLURM_STEP_NODELIST=a SLURM_JOB_ID=1",
				 TOW_WORLD_SESSION_BYTES - 2), "a long session of two parts\n");
	ksft_test_result(refuses_arguments(), "arguments\n");
	ksft_finished();
}

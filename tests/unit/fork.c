// SPDX-License-Identifier: GPL-2.0
/* What tells a child that was forked what is its own. */
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kselftest.h>

#include "internal.h"

#define PAGE	((size_t)64 << 10)

static uint64_t parent;
static unsigned char *memory;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER, rests = PTHREAD_MUTEX_INITIALIZER;
static sem_t has, ends;

/* What a child of ours finds: that of @what. */
static bool in_child(bool (*what)(void))
{
	int status = -1;
	pid_t pid = fork();

	if (!pid) {
		alarm(20);
		_exit(what() ? 0 : 1);
	}
	return waitpid(pid, &status, 0) == pid && status == 0;
}

static bool is_another(void)
{
	uint64_t own = towi_process();

	return own && own != parent && towi_process() == own && towi_ours(own) &&
	       !towi_ours(parent);
}

/* Of a child that has never asked, too. */
static bool has_another(void)
{
	return in_child(is_another);
}

static bool is_another_of_another(void)
{
	uint64_t own = towi_process();
	bool good = is_another();

	parent = own;
	return good && in_child(is_another);
}

static bool is_wiped(void)
{
	return !memory[0] && !memory[PAGE - 1] && memory[PAGE] == 3;
}

static void *hold(void *arg)
{
	pthread_mutex_lock(&held);
	sem_post(&has);
	sem_wait(&ends);
	pthread_mutex_unlock(&held);
	return arg;
}

static bool sees_who_rests(void)
{
	return !towi_at_rest(&held) && towi_at_rest(&rests) && towi_at_rest(&rests);
}

int main(void)
{
	pthread_t thread;

	ksft_print_header();
	ksft_set_plan(6);
	parent = towi_process();
	ksft_test_result(parent && towi_process() == parent && towi_ours(parent),
			 "a process has a number\n");
	ksft_test_result(in_child(is_another), "its child has another one\n");
	ksft_test_result(in_child(has_another), "and so has the child of one that has none\n");
	ksft_test_result(in_child(is_another_of_another) && towi_ours(parent),
			 "and of one that has\n");
	memory = towi_wiped(PAGE, PAGE + 1);
	if (!memory)
		ksft_exit_fail_msg("no memory\n");
	memset(memory, 3, PAGE + 1);
	ksft_test_result(in_child(is_wiped) && memory[0] == 3 && memory[PAGE] == 3,
			 "memory is wiped in children, so far\n");
	sem_init(&has, 0, 0);
	sem_init(&ends, 0, 0);
	if (pthread_create(&thread, NULL, hold, NULL))
		ksft_exit_fail_msg("no thread\n");
	sem_wait(&has);
	ksft_test_result(in_child(sees_who_rests), "what a thread has at a fork does not rest\n");
	sem_post(&ends);
	pthread_join(thread, NULL);
	ksft_finished();
}

// SPDX-License-Identifier: GPL-2.0
/*
 * The end of clients: it holds up nobody else's; and what begins a client, open(2), is
 * stopped by no signal.
 */
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include "tow_halt.h"
#include "tow_region.h"

#define POOL_BYTES	(4 * TOW_SLAB)

FIXTURE(client)
{
	struct tow_knobs before;
	int fd;
};

FIXTURE_SETUP(client)
{
	tow_knobs_save(&self->before);
	ASSERT_EQ(0, tow_pool_fresh(POOL_BYTES));
	self->fd = tow_test_open(O_RDWR);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN_PARENT(client)
{
	EXPECT_TRUE(tow_pool_unused())
		TH_LOG("something is still there");
	EXPECT_EQ(0, tow_knobs_restore(&self->before));
}

/* ---- how it ends -------------------------------------------------------------------- */

/* A process that opens the device and waits to be killed; or a negative number. */
static pid_t start_client(void)
{
	int ends[2];
	char byte;
	pid_t child;

	if (pipe2(ends, O_CLOEXEC))
		return -1;
	child = fork();
	if (!child) {
		int fd = tow_test_open(O_RDWR);

		close(ends[0]);
		if (fd < 0 || write(ends[1], "", 1) != 1)
			_exit(1);
		close(ends[1]);
		pause();
		_exit(1);
	}
	close(ends[1]);
	if (read(ends[0], &byte, 1) != 1) {
		waitpid(child, NULL, 0);
		child = -1;
	}
	close(ends[0]);
	return child;
}

/* An end that takes long, as one does while a device with much memory goes. */
TEST_F_TIMEOUT(client, slow_end_holds_up_nobody, 60)
{
	pid_t slow = start_client(), other = start_client();
	double begun;
	int status;

	ASSERT_LT(0, slow);
	ASSERT_LT(0, other);
	ASSERT_EQ(0, tow_halt_begin("tow_directory_client_end"));
	kill(slow, SIGKILL);
	EXPECT_TRUE(tow_halt_wait());
	begun = tow_test_now();
	kill(other, SIGKILL);
	EXPECT_EQ(other, waitpid(other, &status, 0));
	TOW_WITHIN(begun, 5000);
	/* Who is dead has not closed the file so far. */
	EXPECT_EQ(0, waitpid(slow, &status, WNOHANG));
	EXPECT_EQ(0, tow_halt_end());
	EXPECT_EQ(slow, waitpid(slow, &status, 0));
}

/* ---- open(2) ------------------------------------------------------------------------ */

#define OPENS		200
#define SIGNAL_US	100

static volatile sig_atomic_t signals;

static void count_signal(int number)
{
	(void)number;
	signals++;
}

/* The first client of a process makes the kernel look whether signals are there. */
TEST_F_TIMEOUT(client, opened_while_signals_come, 60)
{
	const struct itimerval often = { .it_interval = { .tv_usec = SIGNAL_US },
					 .it_value = { .tv_usec = SIGNAL_US } };
	struct sigaction action = { .sa_handler = count_signal }, before;
	int i, fd = 0;

	close(self->fd);
	ASSERT_EQ(0, sigaction(SIGALRM, &action, &before));
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &often, NULL));
	for (i = 0; i < OPENS && fd >= 0; i++) {
		fd = tow_test_open(O_RDWR);
		if (fd >= 0)
			close(fd);
	}
	setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, NULL);
	sigaction(SIGALRM, &before, NULL);
	EXPECT_LE(0, fd)
		TH_LOG("open %d of %d: %s", i, OPENS, strerror(-fd));
	EXPECT_LT(0, signals);
}

TEST_HARNESS_MAIN

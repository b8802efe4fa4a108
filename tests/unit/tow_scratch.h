/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A made-up sysfs: a folder that goes with the program.  For one source file of a
 * program; after <kselftest.h>.
 */
#ifndef TOW_SCRATCH_H
#define TOW_SCRATCH_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static char scratch[32] = "/tmp/towline-unit.XXXXXX";

static inline int scratch_remove_one(const char *path, const struct stat *status, int type,
				     struct FTW *where)
{
	(void)status;
	(void)type;
	(void)where;
	return remove(path);
}

/* A folder of it, with all that is in there; "": all of it. */
static inline void scratch_remove(const char *folder)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", scratch, folder);
	nftw(path, scratch_remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static inline void scratch_cleanup(void)
{
	scratch_remove("");
}

static inline void scratch_make(void)
{
	if (!mkdtemp(scratch))
		ksft_exit_fail_perror("mkdtemp");
	atexit(scratch_cleanup);
}

static inline void make_folder(const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", scratch, name);
	if (mkdir(path, 0700))
		ksft_exit_fail_perror("mkdir");
}

static inline void write_file(const char *folder, const char *name, const char *text)
{
	char path[256];
	FILE *file;
	int len = snprintf(path, sizeof(path), "%s/%s/%s", scratch, folder, name);

	if (len < 0 || (size_t)len >= sizeof(path))
		ksft_exit_fail_msg("%s/%s: too long\n", folder, name);
	file = fopen(path, "we");
	if (!file || fputs(text, file) < 0 || fclose(file))
		ksft_exit_fail_perror(path);
}

#endif /* TOW_SCRATCH_H */

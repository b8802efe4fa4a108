/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a command of the tool prints; after <kselftest.h>.
 */
#ifndef TOW_SAYS_H
#define TOW_SAYS_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Does it end so, with these words on its standard output or error? */
static inline bool command_says(int (*command)(const void *arg), const void *arg, int want,
				const char *words)
{
	int pair[2] = { dup(STDOUT_FILENO), dup(STDERR_FILENO) }, ret;
	char *text = NULL;
	FILE *file = tmpfile();
	size_t room = 0;
	bool found;

	fflush(NULL);
	dup2(fileno(file), STDOUT_FILENO);
	dup2(fileno(file), STDERR_FILENO);
	ret = command(arg);
	fflush(NULL);
	dup2(pair[0], STDOUT_FILENO);
	dup2(pair[1], STDERR_FILENO);
	close(pair[0]);
	close(pair[1]);
	rewind(file);
	found = getdelim(&text, &room, '\0', file) > 0 && strstr(text, words);
	fclose(file);
	if (ret != want || !found)
		ksft_print_msg("%d, '%s' does not say '%s'\n", ret, text, words);
	free(text);
	return ret == want && found;
}

#endif /* TOW_SAYS_H */

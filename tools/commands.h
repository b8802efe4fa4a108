/* SPDX-License-Identifier: LGPL-2.1-only OR MIT */
/*
 * The subcommands.  Each gets its own arguments, argv[0] being its name, and
 * returns the exit status of the program.
 */
#ifndef TOW_COMMANDS_H
#define TOW_COMMANDS_H

/* towline clients [--all | --end PID] [-d IBDEV] [--json] */
int command_clients(int argc, char **argv);

/* towline apply [--dry-run] [DEVICE...] */
int command_apply(int argc, char **argv);

/* towline drain [--timeout SECONDS] [--undo] [DEVICE...] */
int command_drain(int argc, char **argv);

/* towline exports [--all] [-d IBDEV] [--json] */
int command_exports(int argc, char **argv);

/* towline info [-d IBDEV] [--json] */
int command_info(int argc, char **argv);

/* towline peers [connect|disconnect ADDR] [-d IBDEV] [--json] */
int command_peers(int argc, char **argv);

/* towline perf [--listen | ADDR] [OPTION...] [-d IBDEV] [--json] */
int command_perf(int argc, char **argv);

/* towline plan [--json | --dot] FILE [OTHER] */
int command_plan(int argc, char **argv);

/* towline pool [--set SIZE | --by user|cgroup|node] [-d IBDEV] [--json] */
int command_pool(int argc, char **argv);

/* towline regions [--all | --end ID] [-d IBDEV] [--json] */
int command_regions(int argc, char **argv);

/* towline top [--cluster | --serve] [--interval SECONDS] [--count N] [-d IBDEV] [--json] */
int command_top(int argc, char **argv);

#endif /* TOW_COMMANDS_H */

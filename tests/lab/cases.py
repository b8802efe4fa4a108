# SPDX-License-Identifier: GPL-2.0
"""Cases of a test with two nodes, one after the other, as KTAP."""

import os
import subprocess
import sys
import time

import clock
from peers_node import Node


class Wrong(Exception):
    """Something is not as it must be."""


def must(good, *said):
    """Go on only if that is so."""
    if not good:
        raise Wrong(" ".join(str(word) for word in said))


# Runs a program whose lines can be looked at meanwhile; what it says and how it ends stay.
ALOUD = ('file=$1; shift; "$@" > "$file" 2>&1; status=$?; cat "$file"; '
         '[ "$status" -lt 128 ] || kill -"$((status - 128))" $$; exit "$status"')


def aloud(file, *words):
    """The words of a command that does so, with what it says in that file."""
    return "sh", "-c", ALOUD, "sh", file, *words


def await_line(node, file, line, seconds=60):
    """Until it has said that."""
    patience = clock.Patience(seconds)
    while node.run("grep", "-qx", line, file)[0]:
        must(patience.left(), f"waited in vain for {line} in {file}")
        time.sleep(0.2)


def run(cases, key, settings, programs):
    """All cases, or those that are named, with both nodes.

    A case is check_NAME(a, b).  After one that fails the programs end that
    may still run.
    """
    cases = [case for case in cases
             if not sys.argv[1:] or case.__name__[6:] in sys.argv[1:]]
    print(f"KTAP version 1\n1..{len(cases)}", flush=True)
    nodes = [Node(0), Node(1)]
    for node in nodes:
        node.open()
        node.prepare(key, False, settings)
    failed = False
    for number, case in enumerate(cases, 1):
        start, error = time.monotonic(), None
        try:
            case(*nodes)
        except (clock.StoodStill, Wrong, OSError, RuntimeError, TimeoutError,
                subprocess.CalledProcessError) as problem:
            error = problem
            for node in nodes:
                for name in programs:
                    node.run("pkill", "-KILL", "-x", name)
        print(f"# {time.monotonic() - start:.1f} s")
        failed |= clock.result(number, case.__name__[6:], error)
    for node in Node.every:
        node.end()
    sys.stdout.flush()
    # Threads may still wait for what nodes never said.
    os._exit(failed)

# SPDX-License-Identifier: GPL-2.0
"""Lab tests: those that need the same machine share one boot."""

import contextlib
import dataclasses
import itertools
import math
import shlex
import shutil
import time

import towlab

from . import TOP, say
from .judge import Outcome, Result, judge, may_pass

AROUND = "build/tests/lab/around"
# Loading, unloading and looking for leaks under the slowest kernel.
AROUND_SECONDS = 120
# How often a test is repeated that the host kept standing still.
REPEATS = 3
# How long tests run before leaks are looked for, though the boot goes on.
SEARCH_SECONDS = 900
# Machines of this process, maybe of several threads; none begins any more.
_machines = set()
_ending = False


class Ended(Exception):
    """end_all() was called: what a machine's test showed is not its fault."""


def end_all():
    """Power every machine off, and let none boot again."""
    global _ending                      # pylint: disable=global-statement
    _ending = True
    for boot in list(_machines):
        boot.close()


def _text(data):
    return data.decode(errors="replace")


class Boot:
    """A machine that runs tests, and is booted again when it dies.

    on_boot is called with the lab after each boot, on_end before it is
    closed in good order: coverage puts its module in and takes its data out.
    """

    def __init__(self, machine, logs, on_boot=None, on_end=None):
        self.machine = machine
        self.logs = logs
        self.on_boot, self.on_end = on_boot, on_end
        self.lab = None
        self.boots = 0
        self.boot_seconds = 0.0

    def __enter__(self):
        _machines.add(self)
        return self

    def __exit__(self, *_):
        _machines.discard(self)
        self.end()

    def end(self):
        """Power off in good order."""
        if self.lab is not None and self.on_end is not None:
            with contextlib.suppress(towlab.ChannelClosed):
                self.on_end(self.lab)
        self.close()

    def close(self):
        """Power off."""
        lab, self.lab = self.lab, None
        if lab is not None:
            lab.close()

    @property
    def searches_leaks(self):
        """Whether kmemleak is asked at the end of a boot."""
        return self.machine.kernel in towlab.kernels.KMEMLEAK_KERNELS

    def ready(self):
        """The running lab; booted if there is none."""
        if self.lab is not None and self.lab.alive:
            return self.lab
        self.close()
        machine = self.machine
        started = time.monotonic()
        self.boots += 1
        name = f"boot-{machine}-{self.boots}".replace(", ", "-")
        lab = self.lab = towlab.Lab(
            kernel=machine.kernel, nodes=machine.nodes, smp=machine.smp,
            mem=machine.mem, provider=machine.provider,
            logdir=self.logs / name.replace(" ", ""))
        try:
            # end_all() has seen this machine, or is seen here.
            if _ending:
                raise Ended
            lab.boot()
            if self.on_boot is not None:
                self.on_boot(lab)
        except BaseException:
            self.close()
            raise
        seconds = time.monotonic() - started
        self.boot_seconds += seconds
        say.result(machine.kernel, "boot", "", seconds,
                   str(machine).partition(", ")[2])
        return lab


class _Steps:
    """The commands of one test on a lab, and what they showed together."""

    def __init__(self, lab, log):
        self.lab, self.log = lab, log
        self.trouble = []

    def run(self, words, **how):
        """One command; complaints of any node are the test's trouble."""
        self.log.write(f"$ {shlex.join(words)}\n")
        self.log.flush()

        def output(data):
            self.log.write(_text(data))
            self.log.flush()
        result = self.lab.run(list(words), output=output, **how)
        for complaint in result.complaints:
            self.log.write(f"--- kernel complaint\n{complaint.text}\n")
            self.trouble.append(f"kernel complaint: {complaint}")
        if result.allowed:
            self.log.write(f"--- {result.allowed} allow-listed complaint(s)\n")
        if result.node_died:
            self.trouble.append("the machine died")
        return result

    def around(self, verb, test):
        """Prepare or finish on every node; whether it went well."""
        words = [AROUND, verb, "module" if test.module else "none"]
        result = self.run(words, on="all", timeout=AROUND_SECONDS)
        if result.rc == 0:
            return True
        if result.timed_out:
            self.trouble.append(f"'{verb}' not done after {AROUND_SECONDS} s")
        elif not result.node_died:
            said = _text(result.stdout + result.stderr).strip().splitlines()
            self.trouble.append("; ".join(line.strip() for line in said[:3])
                                or f"{verb}: exit status {result.rc}")
        return False


def run_test(boot, test, log_path, env=None):
    """Run one test on a machine: its outcome."""
    log_path.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    try:
        lab = boot.ready()
    except towlab.BootError as error:
        log_path.write_text(f"boot failed: {error}\n")
        return Outcome(None, "", "", time.monotonic() - started,
                       trouble=("boot failed: " +
                                str(error).splitlines()[0],))
    started = time.monotonic()
    with open(log_path, "w") as log:
        steps = _Steps(lab, log)
        outcome = _run_steps(steps, test, env or {})
    outcome.seconds = time.monotonic() - started
    outcome.trouble = tuple(steps.trouble)
    # A machine with a stuck or broken kernel serves no further test.
    if outcome.rc is None or steps.trouble:
        boot.close()
    return outcome


def _run_steps(steps, test, env):
    if not steps.around("prepare", test):
        return Outcome(None, "", "", 0)
    result = steps.run(test.command, timeout=test.timeout, env=env)
    if not result.node_died and not result.timed_out:
        steps.around("finish", test)
    return Outcome(result.rc, _text(result.stdout), _text(result.stderr), 0,
                   result.timed_out)


class _Runs:
    """Tests on a machine, each until it is known what is to be said of it.

    keep hears of each result once it counts: where leaks are looked for at the end of
    a boot, after that, if there are none.
    """

    def __init__(self, boot, logs, skips, keep):
        self.boot, self.logs, self.skips, self.keep = boot, logs, skips, keep
        self.results = []
        self.pending = []       # (boot, result)
        self.searched = time.monotonic()

    def once(self, test):
        """Run it: (result, whether it may pass the next time)."""
        kernel = self.boot.machine.kernel
        outcome = absent(test) or run_test(self.boot, test,
                                           self.log(test))
        if _ending:
            raise Ended
        result = judge(test, kernel, outcome, self.skips)
        say.result(kernel, test.name, result.status, result.seconds,
                   result.reason)
        return result, result.status == "fail" and may_pass(test, outcome)

    def log(self, test, which=""):
        """Where its log is."""
        return self.logs / f"{test.name}-{self.boot.machine.kernel}{which}.log"

    def settled(self, test, result, may, alone):
        """Run it again where that may show something else: the result.

        Nothing else runs on the host then.
        """
        for _ in range(REPEATS):
            if result.status != "slow":
                break
            with alone():
                result, may = self.once(test)
        if not may:
            return result
        self.log(test).rename(self.log(test, "-first"))
        with alone():
            self.end_boot()
            self.boot.end()
            second, _ = self.once(test)
        if second.status != "pass":
            return second
        return dataclasses.replace(second, status="flaky",
                                   reason=result.reason)

    def add(self, result):
        """This is what is to be said of it."""
        self.results.append(result)
        self.pending.append((self.boot.boots, result))

    def long_unsearched(self):
        """Whether much would have to run again if the check were interrupted."""
        return time.monotonic() - self.searched > SEARCH_SECONDS

    def end_boot(self):
        """Look for leaks: what ran in this boot counts if it was searched, with none."""
        self.searched = time.monotonic()
        found = leaked(self.boot, self.logs)
        self.results += found
        clean = all(leak.status == "pass" for leak in found)
        if self.boot.searches_leaks:
            clean = clean and bool(found)
        for boots, result in self.pending:
            if clean and (boots == self.boot.boots or
                          not self.boot.searches_leaks):
                self.keep(result)
        self.pending = []


def run_group(machine, tests, logs, skips, turn, keep=lambda result: None,
              until=math.inf, **hooks):
    """Run all tests of one machine: (results, what to say of the time).

    Those that want no other machine's beside them come first, in one turn.  From then on
    (until, of the monotonic clock) none begins.
    """
    tests = sorted(tests, key=lambda test: not test.alone)
    with Boot(machine, logs, **hooks) as boot:
        runs = _Runs(boot, logs, skips, keep)

        def one(test, first, alone):
            with first():
                if time.monotonic() >= until:
                    runs.results.append(Result(
                        test.name, machine.kernel, machine.nodes, "left", 0,
                        "the time was over"))
                    return
                begun = runs.once(test)
            result = runs.settled(test, *begun, alone)
            runs.add(result)
            if result.status == "fail" or not boot.searches_leaks or runs.long_unsearched():
                with first():
                    runs.end_boot()
            # What it left behind is no other test's.
            if result.status == "fail":
                boot.end()

        def turned(alone):
            return lambda: turn.taken(alone)

        for alone, some in itertools.groupby(tests, lambda test: test.alone):
            if alone:
                # A boot disturbs nobody, and would have the other machine wait.
                with (turn.taken(alone=False),
                      contextlib.suppress(towlab.BootError)):
                    boot.ready()
                with turn.taken(alone=True):
                    for test in some:
                        one(test, contextlib.nullcontext, contextlib.nullcontext)
                continue
            for test in some:
                one(test, turned(False), turned(True))
        with turn.taken(alone=False):
            runs.end_boot()
        spent = sum(result.seconds for result in runs.results)
        note = (f"{machine}: {len(tests)} tests in {spent:.0f} s, "
                f"{boot.boots} boot(s) in {boot.boot_seconds:.0f} s")
    return runs.results, note


def leaked(boot, logs):
    """What kmemleak finds after all tests of a boot: no result, or one.

    A scan takes many seconds, too many to have one after each test.
    """
    lab = boot.lab
    if lab is None or not lab.alive or not lab.kernel.has_kmemleak:
        return []
    started = time.monotonic()
    places = lab.mark()
    lab.scan_leaks()
    lab.mark()
    complaints, _ = lab.complaints_since(places)
    machine = boot.machine
    # kmemleak for the machine most tests share, kmemleak-2-nodes and so on.
    what = str(machine).partition(", ")[2].replace(",", "").replace(" ", "-")
    name = "kmemleak" if what == "1-node" else f"kmemleak-{what}"
    (logs / f"{name}-{machine.kernel}.log").write_text(
        "\n".join(complaint.text for complaint in complaints))
    result = Result(name, machine.kernel, machine.nodes,
                    "fail" if complaints else "pass",
                    round(time.monotonic() - started, 1),
                    "; ".join(map(str, complaints)))
    say.result(machine.kernel, result.name, result.status, result.seconds,
               result.reason)
    return [result]


def absent(test):
    """A test that is listed but not there: an outcome that fails; or None."""
    program = test.command[0]
    if "/" not in program and shutil.which(program):
        return None
    path = TOP / program
    if path.is_file() and path.stat().st_mode & 0o111:
        return None
    return Outcome(None, "", "", 0, trouble=(f"{program} is missing",))


def clear_logs(folder):
    """A fresh folder for logs and results."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)

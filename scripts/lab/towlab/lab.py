# SPDX-License-Identifier: GPL-2.0
"""The lab: N guests on one private segment, and what ctl can do to them.

	lab = Lab(kernel="6.1", nodes=2)
	lab.boot()
	result = lab.run(["build/tests/kselftest/query"])
	lab.close()

Guests see the host's root read-only under a tmpfs overlay: whatever they
write is gone with them.
"""

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import shlex
import shutil
import struct
import subprocess
import tempfile
import threading
import time

from . import complaints, kernels, wire
from .meter import Meter
from .node import BootError, Node, die_with_parent

BOOT_TIMEOUT = {"tcg": 180, "kvm": 60}
RUNS_KEPT = 8
# Others may be about to use theirs.
YOUNG_SECONDS = 60
# Printed when a command is not done in time.
WHERE_SECONDS = 20
WHERE = r"""
for task in /proc/[0-9]*/task/[0-9]*; do
	read -r stat < $task/stat || continue
	name=${stat%)*}; state=${stat##*) }
	# Of the kernel's threads those that wait for something in particular.
	[ "$(tr -d '\0' < $task/cmdline)" ] || [ "${state%% *}" = D ] || continue
	echo "# where: ${name#* }) ${state%% *}, task ${task##*/}"
	sed 's/^/#	/' $task/stack
done 2> /dev/null
"""
CTL_USAGE = """\
usage: ctl kill NODE              power cut
       ctl start NODE             boot it again
       ctl cut NODE               nothing passes to or from it; carrier stays
       ctl heal NODE
       ctl netem NODE ARGS...     tc-netem(8) on what it sends: delay 20ms, loss 5%
       ctl netem NODE off
       ctl exec NODE CMD...       run CMD there, as ssh would
       ctl stats                  frames switched and dropped
       ctl took [SINCE [UNTIL]]   nanoseconds that the host took from all nodes, between
                                  so many milliseconds ago and so many
"""


@dataclasses.dataclass
class Result:
    """What a command did, and what the kernels said meanwhile."""
    rc: int | None = None           # None: timed out, or the node died
    timed_out: bool = False
    node_died: bool = False
    stdout: bytes = b""
    stderr: bytes = b""
    seconds: float = 0.0
    complaints: list = dataclasses.field(default_factory=list)
    allowed: int = 0


def age(path):
    """When a folder was changed; of one that is gone already: long ago."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0


def new_logdir():
    """build/lab/run-…, with build/lab/last pointing at it; old ones go."""
    base = kernels.BUILD / "lab"
    base.mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("run-%Y%m%d-%H%M%S-") + str(os.getpid())
    path = pathlib.Path(tempfile.mkdtemp(prefix=stamp + "-", dir=base))
    path.chmod(0o755)
    # Named like the folder: one process may begin several labs at once.
    link = base / (".last-" + path.name)
    link.symlink_to(path.name)
    link.rename(base / "last")
    for old in sorted(base.glob("run-*"), key=age)[:-RUNS_KEPT]:
        if age(old) > time.time() - YOUNG_SECONDS:
            break
        shutil.rmtree(old, ignore_errors=True)
    return path


class Lab:
    """N nodes with one kernel.

    kernel	one of kernels.KERNELS
    smp, mem	virtual CPUs and MiB of each node
    icount	guest time counts instructions (one CPU, stock kernels)
    provider	one of kernels.PROVIDERS (all of them soft-RoCE): the RDMA device made on
		each node's NIC
    checks	boot stock kernels with slab and page checking (off for measuring)
    logdir	where node*.dmesg go; default a new build/lab/run-…
    """

    def __init__(self, kernel, nodes=1, smp=2, mem=2048, icount=False, provider="rxe",
                 checks=True, logdir=None):
        self.kernel = kernels.Kernel(kernel)
        self.smp, self.mem, self.icount = smp, mem, icount
        if provider == "dma-low":
            self.mem = max(mem, kernels.HIGH_MEMORY)
        self.provider, self.checks = provider, checks
        self.accel = "tcg" if icount else kernels.accel()
        if logdir is None:
            self.logdir = new_logdir()
        else:
            self.logdir = pathlib.Path(logdir).resolve()
            self.logdir.mkdir(parents=True, exist_ok=True)
        self.rundir = pathlib.Path(tempfile.mkdtemp(prefix="towlab-"))
        built = kernels.built_provider(provider)
        if built:
            subprocess.run([kernels.LAB / "kernel", built, kernel], check=True)
        self.modroot = self.kernel.modroot()
        self.allow = complaints.AllowList(kernels.LAB / "allow")
        self.nodes = [Node(self, i) for i in range(nodes)]
        self.switch = None
        self.switch_lock = threading.Lock()
        self.markers = 0
        self.meter = None
        # Guests die with the thread that started them, so one thread does.
        self.spawner = concurrent.futures.ThreadPoolExecutor(max_workers=1)
        self.ctl_server = None
        self.boot_seconds = None

    @staticmethod
    def address(index):
        return "10.77.0.%d" % (index + 1)

    # -------------------------------------------------------------- lifetime

    def boot(self, timeout=None):
        """Bring every node up; BootError if one does not come."""
        start = time.monotonic()
        timeout = timeout or BOOT_TIMEOUT[self.accel]
        self.meter = Meter()
        self.spawner.submit(self._spawn_switch).result()
        self.meter.watch(self.switch.pid)
        for node in self.nodes:
            self.spawner.submit(node.start).result()
        self._each(self.nodes, lambda node: self._bring_up(node, timeout))
        self.boot_seconds = time.monotonic() - start

    def _spawn_switch(self):
        self.switch = subprocess.Popen(
            [kernels.switch_binary(), self.rundir / "switch"], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=die_with_parent)
        if self.switch.stdout.readline().strip() != "ok":
            raise BootError("the switch between the nodes did not start")

    def _bring_up(self, node, timeout):
        node.connect(timeout)
        self.meter.watch(node.process.pid)
        node.setup(timeout)

    @staticmethod
    def _each(nodes, what):
        """what(node) for all nodes at once; the first exception is raised."""
        pool = concurrent.futures.ThreadPoolExecutor(max_workers=len(nodes))
        try:
            return list(pool.map(what, nodes))
        finally:
            # Whoever interrupts this closes the lab, which ends what the
            # others wait for; waiting for them here would be for long.
            pool.shutdown(wait=False, cancel_futures=True)

    def close(self):
        if self.meter is not None:
            self.meter.close()
        for node in self.nodes:
            node.kill()
        if self.switch is not None:
            self.switch.kill()
            self.switch.wait()
        if self.ctl_server is not None:
            self.ctl_server.close()
        self.spawner.shutdown()
        shutil.rmtree(self.rundir, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def alive(self):
        """No node has died unasked."""
        return not any(node.died for node in self.nodes)

    def took_ns(self, since_s=None, until_s=0):
        """What the host took between so many seconds ago and so many, at most: meter.py."""
        # Guest time that counts instructions stands still with the guest.
        return 0 if self.icount else self.meter.took_ns(since_s, until_s)

    # ---------------------------------------------------------- kernel logs

    def _mark(self, node, text):
        """Write a line to a node's kernel log and wait for it on the console.

        Returns where the console log ends after it; None if it never came.
        """
        line = "towlab: " + text
        try:
            node.agent.send("L", 0, ("<5>%s\n" % line).encode())
        except wire.ChannelClosed:
            return None
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            data = node.console.read_bytes()
            at = data.rfind(line.encode())
            if at >= 0:
                return at + len(line)
            if not node.alive:
                return None
            time.sleep(0.02)
        return None

    def mark(self):
        """Where every node's log is now, after a marker."""
        self.markers += 1
        name = "marker %d" % self.markers
        living = [node for node in self.nodes if node.alive]
        places = {}
        if living:
            for node, at in zip(living, self._each(living, lambda n: self._mark(n, name))):
                places[node.index] = at if at is not None else node.console.stat().st_size
        for node in self.nodes:
            places.setdefault(node.index, node.console.stat().st_size)
        return places

    def complaints_since(self, places):
        """(complaints that count, allowed ones) since mark() returned places."""
        found = []
        for node in self.nodes:
            log = node.console.read_bytes()[places[node.index]:]
            found += complaints.find(log.decode(errors="replace"), node.index)
        return self.allow.split(self.kernel.name, found)

    def scan_leaks(self, clear=False):
        """kmemleak on every node that has it; reports go to the kernel log.

        An object counts when it is unreferenced in two scans and older than
        five seconds, hence the wait.
        """
        if not self.kernel.has_kmemleak:
            return
        path = "/sys/kernel/debug/kmemleak"
        if clear:
            script = "echo scan > %s; echo clear > %s" % (path, path)
        else:
            script = ("echo scan > %s; sleep 6; echo scan > %s; "
                      "head -c 20000 %s > /dev/kmsg" % (path, path, path))
        self._each([n for n in self.nodes if n.alive],
                   lambda node: self._quietly(node, script, 240))

    @staticmethod
    def _quietly(node, script, timeout):
        try:
            session = node.exec(script)
            session.close_stdin()
            return session.wait(timeout)
        except wire.ChannelClosed:
            return None

    # --------------------------------------------------------------- running

    def run(self, argv, on=0, timeout=120, env=None, output=None, stdin=None, leaks=False):
        """Run a command and watch every node's kernel meanwhile.

        argv	a list, or a string for the shell
        on	a node's index, or "all" (rc is then the largest)
        timeout	seconds; then the command's process group is killed
        output	called with each piece of stdout and stderr (bytes) as it comes
        stdin	bytes; without it the command reads nothing
        leaks	scan for leaked memory before and after (debug kernels; slow)
        """
        if leaks:
            self.scan_leaks(clear=True)
        places = self.mark()
        start = time.monotonic()
        nodes = self.nodes if on == "all" else [self.nodes[int(on)]]
        parts = self._each(nodes, lambda node: self._run_on(node, argv, timeout, env,
                                                            output, stdin))
        result = Result(
            rc=None if any(p.rc is None for p in parts) else max(p.rc for p in parts),
            timed_out=any(p.timed_out for p in parts),
            node_died=any(p.node_died for p in parts),
            stdout=b"".join(p.stdout for p in parts),
            stderr=b"".join(p.stderr for p in parts),
            seconds=time.monotonic() - start)
        if leaks:
            self.scan_leaks()
        self.mark()
        if result.node_died:
            time.sleep(0.3)     # let QEMU write the last of the console
        result.complaints, allowed = self.complaints_since(places)
        result.allowed = len(allowed)
        return result

    def _run_on(self, node, argv, timeout, env, output, stdin):
        out, err = bytearray(), bytearray()

        def stream(name, data):
            (out if name == "out" else err).extend(data)
            if output:
                output(data)

        part = Result()
        try:
            session = node.exec(argv, env, stream)
            if stdin:
                session.feed(stdin)
            session.close_stdin()
            part.rc = session.wait(timeout)
            if part.rc is None:
                part.timed_out = True
                self._say_where(node, stream)
                session.kill()
                session.wait(10)
        except wire.ChannelClosed:
            part.node_died = True
        part.stdout, part.stderr = bytes(out), bytes(err)
        return part

    @staticmethod
    def _say_where(node, stream):
        """Where a node's processes, and what of its kernel sleeps deeply, are: to stderr."""
        session = node.exec(["sh", "-c", WHERE], {}, lambda _, data: stream("err", data))
        session.close_stdin()
        if session.wait(WHERE_SECONDS) is None:
            session.kill()
            session.wait(10)

    # ------------------------------------------------------------------- ctl

    def node_index(self, word):
        """A node by index, name or address."""
        for node in self.nodes:
            if word in (str(node.index), "node%d" % node.index, self.address(node.index)):
                return node
        raise ValueError("no node '%s' here (0 to %d)" % (word, len(self.nodes) - 1))

    def _switch_command(self, line):
        with self.switch_lock:
            self.switch.stdin.write(line + "\n")
            self.switch.stdin.flush()
            answer = []
            while True:
                reply = self.switch.stdout.readline()
                if not reply:
                    raise ValueError("the switch is gone")
                if reply.strip() == "ok":
                    return "".join(answer)
                if reply.startswith("error"):
                    raise ValueError(reply.strip())
                answer.append(reply)

    def ctl(self, verb, *args):
        """Everything ctl does but exec; returns what it prints."""
        if verb == "stats" and not args:
            return self._switch_command("stats")
        if verb == "took":
            return "%d\n" % self.took_ns(*(float(word) / 1000 for word in args))
        if verb not in ("kill", "start", "cut", "heal", "netem") or not args:
            raise ValueError(CTL_USAGE.rstrip())
        node = self.node_index(args[0])
        if verb == "netem":
            return self._netem(node, args[1:])
        if len(args) != 1:
            raise ValueError(CTL_USAGE.rstrip())
        if verb == "kill":
            node.kill()
        elif verb == "start":
            if node.alive:
                raise ValueError("node%d is running" % node.index)
            self.spawner.submit(node.start).result()
            self._bring_up(node, BOOT_TIMEOUT[self.accel])
        else:
            self._switch_command("%s %d" % (verb, node.index))
        return ""

    def _netem(self, node, args):
        if not args:
            raise ValueError(CTL_USAGE.rstrip())
        # Once it is there it is only changed: each qdisc that comes or goes stops the interface for a moment, in
        # which soft-RoCE may lose its way for good.
        if args == ("off",):
            args = ("limit", "1000", "delay", "0ms", "loss", "0%")
        words = ["tc", "qdisc", "replace", "dev", "eth0", "root", "netem", *args]
        session = node.exec(words)
        session.close_stdin()
        code = session.wait(30)
        if code != 0:
            raise ValueError("netem on node%d: %s" % (
                node.index, session.err.decode(errors="replace").strip()))
        return ""

    def guest_request(self, agent, chan, fields):
        """lab-exec or lab-ctl, called in a guest."""
        verb, cwd, args = fields[0], fields[1], fields[2:]
        if verb == "ctl" and args[:1] == ["exec"]:
            verb, args = "exec", args[1:]
        if verb == "exec":
            code = self.exec_relay(args, cwd, agent.inbox(chan),
                                   lambda kind, data: agent.send(kind, chan, data))
        else:
            code = self.ctl_reply(args, lambda kind, data: agent.send(kind, chan, data))
        agent.send("X", chan, struct.pack("<i", code << 8))

    def ctl_reply(self, args, send):
        try:
            text = self.ctl(*args) if args else CTL_USAGE
            if text:
                send("O", text.encode())
            return 0 if args else 2
        except (ValueError, TypeError, BootError) as err:
            send("R", ("ctl: %s\n" % err).encode())
            return 2

    def exec_relay(self, args, cwd, inbox, send):
        """Run "NODE CMD…" as ssh would, streams passed through; exit code."""
        if len(args) < 2:
            send("R", b"usage: lab-exec NODE CMD...\n")
            return 2
        try:
            node = self.node_index(args[0])
            session = node.exec(
                " ".join(args[1:]), cwd=cwd,
                output=lambda name, data: send("O" if name == "out" else "R", data))
        except ValueError as err:
            send("R", ("lab-exec: %s\n" % err).encode())
            return 2
        except wire.ChannelClosed:
            send("R", ("lab-exec: node %s is down\n" % args[0]).encode())
            return 255
        threading.Thread(target=self.pump, args=(session, inbox), daemon=True).start()
        try:
            return session.wait()
        except wire.ChannelClosed:
            send("R", ("lab-exec: node %s went down\n" % args[0]).encode())
            return 255
        finally:
            inbox.put(("end", b""))

    @staticmethod
    def pump(session, inbox):
        """What the asking side sends: stdin, its end, or that it went away."""
        try:
            while True:
                kind, data = inbox.get()
                if kind == "I":
                    session.feed(data)
                elif kind == "C":
                    session.close_stdin()
                elif kind == "D":
                    session.kill()
                    return
                else:
                    return
        except wire.ChannelClosed:
            pass

    # --------------------------------------------------------------- records

    def describe(self, command):
        """For people who look into result.json later."""
        return {"kernel": self.kernel.name, "release": self.kernel.release,
                "nodes": len(self.nodes), "smp": self.smp, "mem": self.mem,
                "icount": self.icount, "provider": self.provider, "accel": self.accel,
                "command": shlex.join(command), "boot_seconds": self.boot_seconds}

    def write_result(self, command, result, exit_code):
        record = {**self.describe(command), "exit": exit_code, "rc": result.rc,
                  "timed_out": result.timed_out, "node_died": result.node_died,
                  "seconds": round(result.seconds, 3), "allowed": result.allowed,
                  "complaints": [dataclasses.asdict(c) for c in result.complaints]}
        (self.logdir / "result.json").write_text(json.dumps(record, indent=1) + "\n")

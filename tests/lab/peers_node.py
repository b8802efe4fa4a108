# SPDX-License-Identifier: GPL-2.0
"""Nodes as the tests of peers have them: each does what it is told.

On every node runs one process that takes calls as lines of JSON and answers
likewise, so that a test on node 0 can let several nodes do things at the same
moment, and no program has to be started for each of them.

	node = Node(1)			on another node, or here: Node(0)
	node.connect("10.77.0.1")	a call: its answer, or OSError
	node.start("connect", "…")	the same without waiting: a Future
"""

import concurrent.futures
import contextlib
import ctypes
import errno
import fcntl
import glob
import ipaddress
import json
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import clock

STATES = ("idle", "connecting", "ready", "broken", "dead", "reconnecting")
LOOPBACK, AUTHENTICATED = 1, 2
READ, WRITE = 1, 2
PERSISTENT = 2
FOREVER = 0xffffffff
# Peers that are listed by one call.
AT_ONCE = 64
# System calls of x86-64; the session's keyring, which a child inherits.
ADD_KEY, SESSION_KEYRING = 248, -3
SET_DEATH_SIGNAL = 1
# What a node is asked may take long on an emulated debug kernel.
PATIENCE_S = 60

CONNECT = struct.Struct("<IIQ16sIHHIiIIIIIIII16s")
DISCONNECT = struct.Struct("<IIQ")
LIST = struct.Struct("<IIQQII")
PEER = struct.Struct("<IIQ16sIHH16sIiIIIIIIQQQ")
REGION = struct.Struct("<IIQQQiI64s")
EXPORT = struct.Struct("<IIQQQQII256s")
RESOLVE = struct.Struct("<IIQQQIIII256s")
HANDLE = struct.Struct("<IIQ")
JOIN = struct.Struct("<II32s16s")

# The lab's RDMA device.
DEVICE = "rxe0"


def sysfs(file):
    """A file of the device's."""
    return f"/sys/class/towline/{DEVICE}/{file}"


class Actor:
    """What a node can be told: each public method is a call."""

    def __init__(self):
        self.fd = -1
        self.region = 0

    def ioctl(self, command, packed):
        """One of towline's calls: what it filled in."""
        room = bytearray(packed)
        fcntl.ioctl(self.fd, 0xBA00 | command, room, True)
        return bytes(room)

    # ---- the node ----

    def prepare(self, key=None, allow=False, settings=None):
        """A cluster key (hexadecimal), or none; what else is to be set."""
        self.use_key("cluster_key", "towline:cluster", key)
        self.set("allow_unauthenticated", int(allow))
        for file, value in (settings or {}).items():
            self.set(file, value)

    def use_key(self, file, name, key):
        """A key (hexadecimal) of that name, or none, is what the file is for."""
        if key:
            payload = bytes.fromhex(key)
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.syscall(ctypes.c_long(ADD_KEY), b"logon", name.encode(),
                            payload, ctypes.c_long(len(payload)),
                            ctypes.c_long(SESSION_KEYRING)) < 0:
                raise OSError(ctypes.get_errno(), "add_key")
        self.set(file, name if key else "none")

    def set(self, file, value):
        """Write a file of the device's."""
        with open(sysfs(file), "w", encoding="ascii") as out:
            out.write(str(value))

    def get(self, file):
        """Read a file of the device's."""
        with open(sysfs(file), encoding="ascii") as content:
            return content.read().strip()

    def peers_folders(self):
        """What sysfs says of peers."""
        found = {}
        for folder in glob.glob(sysfs("peers/*")):
            with open(folder + "/state", encoding="ascii") as state:
                found[os.path.basename(folder)] = state.read().strip()
        return found

    def addresses(self):
        """IPv6 addresses of the lab's interface: link-local, and global."""
        found = {"link": None, "global": None}
        with open("/proc/net/if_inet6", encoding="ascii") as lines:
            for line in lines:
                digits, _, _, scope, _, name = line.split()
                kind = {"20": "link", "00": "global"}.get(scope)
                if name == "eth0" and kind:
                    found[kind] = str(ipaddress.IPv6Address(int(digits, 16)))
        return found

    def run(self, *command):
        """Run a command: its exit status and what it said."""
        done = subprocess.run(command, stdin=subprocess.DEVNULL, check=False,
                              stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        return [done.returncode, done.stdout.decode(errors="replace")]

    def signal_rank(self, name, rank, number=signal.SIGKILL):
        """A rank of that program gets a signal."""
        for folder in glob.glob("/proc/[0-9]*"):
            # What has ended meanwhile is not it.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError), \
                    open(folder + "/comm", encoding="utf-8") as comm, \
                    open(folder + "/environ", "rb") as environ:
                if comm.read() == name + "\n" and \
                        f"TOW_RANK={rank}".encode() in environ.read().split(b"\0"):
                    os.kill(int(os.path.basename(folder)), number)

    # ---- a client ----

    def open(self):
        """Be a client."""
        self.fd = os.open(f"/dev/towline/{DEVICE}", os.O_RDWR)

    def close(self):
        """Be none, and have nothing."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1
        self.region = 0

    def join(self, key):
        """Enter a job."""
        self.ioctl(1, JOIN.pack(JOIN.size, 0, bytes.fromhex(key), bytes(16)))

    def connect(self, address, timeout_ms=0):
        """Connect: the peer's number."""
        text, _, scope = address.partition("%")
        ip = ipaddress.ip_address(text)
        packed = ip.packed
        if ip.version == 4:
            packed = bytes(10) + b"\xff\xff" + packed
        room = CONNECT.pack(CONNECT.size, 0, 0, packed,
                            socket.if_nametoindex(scope) if scope else 0, 0,
                            0, timeout_ms, *([0] * 9), bytes(16))
        return CONNECT.unpack(self.ioctl(0x20, room))[2]

    def disconnect(self, peer):
        """End the connection."""
        self.ioctl(0x21, DISCONNECT.pack(DISCONNECT.size, 0, peer))

    def peers(self):
        """All that there are."""
        buffer = ctypes.create_string_buffer(PEER.size * AT_ONCE)
        found, cursor, count = [], 0, AT_ONCE
        while count == AT_ONCE:
            _, _, cursor, _, _, count = LIST.unpack(self.ioctl(0x22, LIST.pack(
                LIST.size, 0, cursor, ctypes.addressof(buffer), PEER.size,
                AT_ONCE)))
            found += [self.a_peer(buffer, at * PEER.size)
                      for at in range(count)]
        return found

    @staticmethod
    def a_peer(buffer, place):
        """What is there, by the names of <towline/uapi.h>."""
        names = ("size", "flags", "peer", "address", "scope_id", "port",
                 "reserved", "incarnation", "state", "last_error", "epoch",
                 "qps", "reconnects", "grants", "remotes", "reserved2",
                 "sent", "received", "idle_ms")
        peer = dict(zip(names, PEER.unpack_from(buffer, place)))
        peer["incarnation"] = peer["incarnation"].hex()
        address = ipaddress.IPv6Address(peer["address"])
        peer["address"] = str(address.ipv4_mapped or address)
        peer["state"] = STATES[peer["state"]]
        return peer

    def settled(self, address, seconds):
        """Wait for one connection, to the node there: what there is, if not."""
        patience = clock.Patience(seconds)
        while True:
            sessions = int(self.get("stats/sessions"))
            mine = [peer for peer in self.peers()
                    if not peer["flags"] & LOOPBACK]
            if (sessions == 1 and
                    [peer["address"] for peer in mine
                     if peer["state"] == "ready"] == [address] and
                    sum(peer["address"] == address for peer in mine) == 1):
                return None
            if not patience.left():
                return [sessions, mine]
            time.sleep(0.01)

    def disconnect_from(self, address):
        """End the connection to the node there."""
        for peer in self.peers():
            if peer["address"] == address:
                self.disconnect(peer["peer"])

    def export(self, name, size=65536, rights=READ, offset=0):
        """Publish something: the handle."""
        if not self.region:
            room = self.ioctl(0x10, REGION.pack(REGION.size, 0, 65536, 0, 0,
                                                -1, 0, bytes(64)))
            _, _, _, self.region, _, fd, _, _ = REGION.unpack(room)
            os.close(fd)
        name = name.encode()
        room = EXPORT.pack(EXPORT.size, 0, self.region, offset, size, 0,
                           rights, len(name), name)
        return EXPORT.unpack(self.ioctl(0x30, room))[5]

    def unexport(self, handle):
        """End that."""
        self.ioctl(0x31, HANDLE.pack(HANDLE.size, 0, handle))

    def resolve(self, peer, name, timeout_ms=0, rights=READ):
        """Find it: the handle and how large it is."""
        name = name.encode()
        room = RESOLVE.pack(RESOLVE.size, 0, peer, 0, 0, rights, timeout_ms,
                            len(name), 0, name)
        return RESOLVE.unpack(self.ioctl(0x33, room))[3:5]

    def release(self, handle):
        """Give that up."""
        self.ioctl(0x34, HANDLE.pack(HANDLE.size, 0, handle))

    # ---- another process ----

    def publisher(self, names):
        """A process that publishes some names, until it is killed: its id."""
        def publish():
            self.open()
            for name in names:
                self.export(name)
        return self.child(publish)

    def keeper(self, name):
        """A process that has closed the device, and has a persistent region mapped."""
        def keep():
            self.open()
            room = self.ioctl(0x10, REGION.pack(REGION.size, PERSISTENT, 65536, 0, 0, -1, 600,
                                                name.encode()))
            self.memory = mmap.mmap(REGION.unpack(room)[5], 65536)
            os.close(REGION.unpack(room)[5])
            os.close(self.fd)
        return self.child(keep)

    def crowd(self, uid, addresses):
        """A user's process that connects to all of them at once, until it is killed."""
        def insist(address):
            while True:
                try:
                    self.connect(address, 10000)
                except OSError:
                    time.sleep(0.01)

        def begin():
            os.setresuid(uid, uid, uid)
            self.open()
            for address in addresses:
                threading.Thread(target=insist, args=(address,), daemon=True).start()
        os.chmod(f"/dev/towline/{DEVICE}", 0o666)
        return self.child(begin)

    def hasty(self, addresses):
        """Connect to each for a millisecond: which of them are connected."""
        found = []
        for address in addresses:
            try:
                self.connect(address, 1)
                found.append(address)
            except OSError:
                pass
        return found

    @staticmethod
    def together(devices, address, timeout_ms):
        """A client of each of these devices connects to an address, all at the same moment:
        how many seconds each took, or what went wrong."""
        begin, took = threading.Event(), {}

        def one(device):
            actor = Actor()
            actor.fd = os.open(f"/dev/towline/{device}", os.O_RDWR)
            begin.wait()
            start = time.monotonic()
            try:
                actor.connect(address, timeout_ms)
                took[device] = time.monotonic() - start
            except OSError as error:
                took[device] = f"{device}: {errno.errorcode[error.errno]}"
            os.close(actor.fd)

        threads = [threading.Thread(target=one, args=(device,)) for device in devices]
        for thread in threads:
            thread.start()
        begin.set()
        for thread in threads:
            thread.join()
        return list(took.values())

    def child(self, begin):
        """A process that begins so, and lives until it is killed: its id."""
        ends = os.pipe()
        child = os.fork()
        if not child:
            # Whatever happens: never back into the parent's code.
            try:
                ctypes.CDLL(None).prctl(SET_DEATH_SIGNAL, signal.SIGKILL)
                self.close()
                begin()
                os.write(ends[1], b"r")
                while True:
                    signal.pause()
            finally:
                os._exit(1)
        os.close(ends[1])
        ready = os.read(ends[0], 1)
        os.close(ends[0])
        if not ready:
            os.waitpid(child, 0)
            raise OSError(errno.ECHILD, "the process failed")
        return child

    def kill(self, child):
        """End it as the kernel does; it has ended afterwards."""
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    def storm(self, address, seconds, pause_ms=0):
        """Connect, find nothing, disconnect, all the time: how often."""
        end = time.monotonic() + seconds
        done = 0
        while time.monotonic() < end:
            try:
                peer = self.connect(address, 2000)
                self.disconnect(peer)
                done += 1
            except OSError as error:
                if error.errno == errno.ENODEV:
                    break
            time.sleep(pause_ms / 1000)
        return done


    def insist(self, address, name, seconds):
        """Connect, find a name, disconnect, all the time: how often, and the errors."""
        end = time.monotonic() + seconds
        done, errors = 0, []
        while time.monotonic() < end:
            try:
                peer = self.connect(address, 20000)
                handle, _ = self.resolve(peer, name)
                self.release(handle)
                self.disconnect(peer)
                done += 1
            except OSError as error:
                errors.append(errno.errorcode[error.errno])
        return [done, errors]


def serve(actor):
    """Take calls, one thread for each, until there are no more."""
    lock = threading.Lock()

    def do(line):
        number, name, arguments, named = json.loads(line)
        try:
            answer = [number, None, getattr(actor, name)(*arguments, **named)]
        except OSError as error:
            answer = [number, error.errno or errno.EIO, str(error)]
        # Whatever it was: somebody waits for the answer.
        except Exception as error:      # pylint: disable=broad-except
            answer = [number, 0, repr(error)]
        with lock:
            print(json.dumps(answer), flush=True)

    with concurrent.futures.ThreadPoolExecutor(max_workers=64) as pool:
        for line in sys.stdin:
            pool.submit(do, line)
    # The kernel ends what we had.
    os._exit(0)


class Node:
    """A node, seen from node 0."""

    every = []
    program = "tests/lab/peers_node.py"

    def __init__(self, index):
        self.every.append(self)
        self.index = index
        self.address = os.environ["TOW_LAB_ADDRS"].split(",")[index]
        self.waiting = {}
        self.lock = threading.Lock()
        command = ["python3", self.program]
        if index:
            command = ["lab-exec", str(index), *command]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True,
                                        bufsize=1)
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        """Hand answers to who waits for them."""
        for line in self.process.stdout:
            number, error, answer = json.loads(line)
            future = self.waiting.pop(number)
            if error is None:
                future.set_result(answer)
            else:
                future.set_exception(OSError(error, answer) if error else
                                     RuntimeError(answer))
        with self.lock:
            for future in self.waiting.values():
                future.set_exception(ConnectionError("the node has gone"))
            self.waiting = None

    def start(self, name, *arguments, **named):
        """A call without waiting for its answer."""
        future = concurrent.futures.Future()
        with self.lock:
            if self.waiting is None:
                raise ConnectionError("the node has gone")
            number = id(future)
            self.waiting[number] = future
        self.process.stdin.write(
            json.dumps([number, name, arguments, named]) + "\n")
        return future

    def __getattr__(self, name):
        """Any other method is a call."""
        def call(*arguments, **named):
            return self.start(name, *arguments, **named).result(PATIENCE_S)
        return call

    def peer(self, address):
        """What it says of the node at an address, or None."""
        found = [peer for peer in self.peers() if peer["address"] == address]
        return found[0] if found else None

    def end(self):
        """No more calls."""
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.wait(PATIENCE_S)


if __name__ == "__main__":
    serve(Actor())

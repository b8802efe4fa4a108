# SPDX-License-Identifier: GPL-2.0
"""The channel to a guest's agent: frames over a virtio-serial port.

The frames are described at the top of guest/lab-guest.c.
"""

import collections
import os
import queue
import signal
import socket
import struct
import threading
import time

HEADER = struct.Struct("<BII")
LOCAL = 0x80000000
CHUNK = 65536


class ChannelClosed(Exception):
    """The guest is gone."""


class Session:
    """One command running in a guest.

    output(stream, data) is called from the reader thread with stream "out"
    or "err"; without it the output is collected.
    """

    def __init__(self, agent, chan, output=None):
        self.agent = agent
        self.chan = chan
        self.output = output
        self.out = bytearray()
        self.err = bytearray()
        self.status = None
        self.done = threading.Event()

    def feed(self, data):
        for at in range(0, len(data), CHUNK):
            self.agent.send("I", self.chan, data[at:at + CHUNK])

    def close_stdin(self):
        self.agent.send("C", self.chan)

    def kill(self, sig=signal.SIGKILL):
        self.agent.send("K", self.chan, struct.pack("<i", sig))

    def wait(self, timeout=None):
        """The exit code as a shell has it; None after timeout seconds."""
        if not self.done.wait(timeout):
            return None
        if self.status is None:
            raise ChannelClosed
        if os.WIFEXITED(self.status):
            return os.WEXITSTATUS(self.status)
        return 128 + os.WTERMSIG(self.status)

    # from the reader thread
    def _stream(self, name, data):
        if self.output:
            self.output(name, data)
        elif name == "out":
            self.out += data
        else:
            self.err += data


class Agent:
    """The host's end of one node's channel.

    requests: called as requests(agent, chan, fields) in a thread of its own
    when a program in the guest asks the host for something; it answers with
    send("O"/"R"/"X", chan, …) and reads what the program sends from
    inbox(chan).
    """

    def __init__(self, path, requests=None):
        self.requests = requests
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.lock = threading.Lock()
        self.sessions = {}
        self.inboxes = collections.defaultdict(queue.Queue)
        self.next_chan = 1
        self.hello = threading.Event()
        self.closed = threading.Event()
        deadline = time.monotonic() + 30
        while True:
            try:
                self.sock.connect(path)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        threading.Thread(target=self._reader, daemon=True).start()

    def close(self):
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def send(self, kind, chan, data=b""):
        try:
            with self.lock:
                self.sock.sendall(HEADER.pack(ord(kind), chan, len(data)) + data)
        except OSError as err:
            raise ChannelClosed from err

    def start(self, argv, env, cwd="/", output=None, size=None):
        """Start a command; size=(rows, cols) gives it a terminal."""
        with self.lock:
            chan = self.next_chan
            self.next_chan += 1
        session = Session(self, chan, output)
        self.sessions[chan] = session
        strings = ["%d %d" % (size or (0, 0)), cwd, str(len(env)), str(len(argv))]
        strings += ["%s=%s" % item for item in env.items()]
        strings += argv
        self.send("E", chan, b"".join(os.fsencode(s) + b"\0" for s in strings))
        if self.closed.is_set():
            session.done.set()
        return session

    def inbox(self, chan):
        return self.inboxes[chan]

    def _read(self, size):
        data = bytearray()
        while len(data) < size:
            part = self.sock.recv(size - len(data))
            if not part:
                raise ChannelClosed
            data += part
        return bytes(data)

    def _reader(self):
        try:
            while True:
                kind, chan, size = HEADER.unpack(self._read(HEADER.size))
                self._frame(chr(kind), chan, self._read(size))
        except (OSError, ChannelClosed):
            pass
        self.closed.set()
        self.hello.set()
        for session in list(self.sessions.values()):
            session.done.set()
        for inbox in list(self.inboxes.values()):
            inbox.put(("D", b""))

    def _frame(self, kind, chan, data):
        if kind == "H":
            self.hello.set()
        elif chan & LOCAL:
            self._client_frame(kind, chan, data)
        else:
            session = self.sessions.get(chan)
            if session is None:
                return
            if kind == "O":
                session._stream("out", data)
            elif kind == "R":
                session._stream("err", data)
            elif kind == "X":
                session.status = struct.unpack("<i", data)[0]
                del self.sessions[chan]
                session.done.set()

    def _client_frame(self, kind, chan, data):
        if kind == "Q":
            fields = [os.fsdecode(f) for f in data.split(b"\0")[:-1]]
            self.inboxes[chan]
            threading.Thread(target=self._request, args=(chan, fields),
                             daemon=True).start()
        elif chan in self.inboxes:
            self.inboxes[chan].put((kind, data))

    def _request(self, chan, fields):
        try:
            self.requests(self, chan, fields)
        except ChannelClosed:
            pass
        finally:
            self.inboxes.pop(chan, None)

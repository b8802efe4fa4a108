# SPDX-License-Identifier: GPL-2.0
"""How scripts/lab/ctl and scripts/lab/shell reach a running lab.

The lab listens on a socket in its private folder; build/lab/last/lab.json
names it.  The frames are those of wire.py, with channel 0; the asking side
sends Q (verb, cwd, arguments), then I, C or D.
"""

import json
import os
import queue
import select
import socket
import struct
import sys
import threading

from . import kernels, wire


class Control:
    """Serve ctl while a lab runs: a context manager."""

    def __init__(self, lab):
        self.lab = lab
        self.path = str(lab.rundir / "ctl")
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.bind(self.path)
        self.sock.listen(16)
        record = {"ctl": self.path, "pid": os.getpid(), "nodes": len(lab.nodes),
                  "kernel": lab.kernel.name}
        (lab.logdir / "lab.json").write_text(json.dumps(record) + "\n")
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        (self.lab.logdir / "lab.json").unlink(missing_ok=True)
        self.sock.close()

    def _accept(self):
        while True:
            try:
                peer, _ = self.sock.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer):
        lock = threading.Lock()
        inbox = queue.Queue()

        def send(kind, data):
            with lock:
                peer.sendall(wire.HEADER.pack(ord(kind), 0, len(data)) + data)

        try:
            kind, data = read_frame(peer)
            fields = [os.fsdecode(f) for f in data.split(b"\0")[:-1]]
            threading.Thread(target=self._inbox, args=(peer, inbox), daemon=True).start()
            verb, cwd, args = fields[0], fields[1], fields[2:]
            if verb == "shell":
                code = self._shell(args, inbox, send)
            elif args[:1] == ["exec"]:
                code = self.lab.exec_relay(args[1:], cwd, inbox, send)
            else:
                code = self.lab.ctl_reply(args, send)
            send("X", struct.pack("<i", code << 8))
        except (OSError, EOFError, wire.ChannelClosed):
            pass
        finally:
            peer.close()

    @staticmethod
    def _inbox(peer, inbox):
        try:
            while True:
                inbox.put(read_frame(peer))
        except (OSError, EOFError):
            inbox.put(("D", b""))

    def _shell(self, args, inbox, send):
        """An interactive shell with a terminal: NODE ROWS COLS TERM."""
        try:
            node = self.lab.node_index(args[0])
        except ValueError as err:
            send("R", ("shell: %s\r\n" % err).encode())
            return 2
        session = node.exec(["/bin/bash", "--norc", "-i"], size=(int(args[1]), int(args[2])),
                            env={"TERM": args[3], "PS1": "node%d# " % node.index},
                            output=lambda name, data: send("O", data))
        threading.Thread(target=self.lab.pump, args=(session, inbox), daemon=True).start()
        return session.wait()


def read_frame(sock):
    def exactly(size):
        data = bytearray()
        while len(data) < size:
            part = sock.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    kind, _, size = wire.HEADER.unpack(exactly(wire.HEADER.size))
    return chr(kind), exactly(size)


def find():
    """The control socket of the lab that runs now; None without one."""
    try:
        record = json.loads((kernels.BUILD / "lab" / "last" / "lab.json").read_text())
        os.kill(record["pid"], 0)
        return record["ctl"]
    except (OSError, ValueError, KeyError):
        return None


def ask(path, verb, args, stdin=None):
    """Ask a lab; relay its streams; the exit code.

    stdin	a file descriptor to pass on, or None
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(path)

    def send(kind, data=b""):
        sock.sendall(wire.HEADER.pack(ord(kind), 0, len(data)) + data)

    send("Q", b"".join(os.fsencode(f) + b"\0" for f in [verb, os.getcwd(), *args]))
    watched = [sock] if stdin is None else [sock, stdin]
    if stdin is None:
        send("C")
    while True:
        for ready in select.select(watched, [], [])[0]:
            if ready is sock:
                kind, data = read_frame(sock)
                if kind == "X":
                    return struct.unpack("<i", data)[0] >> 8
                stream = sys.stdout if kind == "O" else sys.stderr
                stream.buffer.write(data)
                stream.buffer.flush()
            else:
                data = os.read(stdin, wire.CHUNK)
                send("I" if data else "C", data)
                if not data:
                    watched.remove(stdin)

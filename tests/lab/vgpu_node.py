# SPDX-License-Identifier: GPL-2.0
"""Nodes of tests/lab/vgpu: those of queue_node.py, which may have their memory in another
device (tow_vgpu.ko)."""

import fcntl
import mmap
import os
import struct
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
# pylint: disable=wrong-import-position
import peers_node
import queue_node

IMPORT = struct.Struct("<IIiIQQQ")
ALLOC = struct.Struct("<QQIi")
MOVE = struct.Struct("<iIIIQQ")
STATUS = struct.Struct("<iIIIIIQ")
PAGE = 4096


def vgpu(number, size):
    """A call of tow_vgpu.h's that reads and writes."""
    return 0xc0000000 | size << 16 | ord("v") << 8 | number


class Actor(queue_node.Actor):
    """One region, of the device's memory if it has that, and one queue."""

    def __init__(self):
        super().__init__()
        self.device = self.buffer = -1

    def close(self):
        """Be no client, and have nothing."""
        super().close()
        for fd in (self.buffer, self.device):
            if fd >= 0:
                os.close(fd)
        self.device = self.buffer = -1

    def have_device(self, size):
        """A region of the other device's memory, in as many parts as there are pages."""
        subprocess.run(["modprobe", "tow_vgpu"], check=True)
        self.device = os.open("/dev/tow_vgpu", os.O_RDWR)
        room = bytearray(ALLOC.pack(size, PAGE, 0, -1))
        fcntl.ioctl(self.device, vgpu(0, ALLOC.size), room, True)
        self.buffer = ALLOC.unpack(room)[3]
        self.memory = mmap.mmap(self.buffer, size)
        self.have_again(size)

    def have_again(self, size):
        """Another region of it; the first one ends."""
        if self.region:
            self.ioctl(0x11, peers_node.HANDLE.pack(peers_node.HANDLE.size, 0,
                                                    self.region))
        self.region = IMPORT.unpack(self.ioctl(0x18, IMPORT.pack(
            IMPORT.size, 0, self.buffer, 0, 0, size, 0)))[6]

    def move(self, timeout_ms):
        """The device wants its place: have the fences signaled; how many mappings are left;
        how long it took, in seconds."""
        room = bytearray(MOVE.pack(self.buffer, timeout_ms, 0, 0, 0, 0))
        fcntl.ioctl(self.device, vgpu(3, MOVE.size), room, True)
        _, _, signaled, mappings, waited, _ = MOVE.unpack(room)
        return [signaled, mappings, waited / 1e6]

    def landed(self):
        """Bytes that came to the old place since."""
        room = bytearray(STATUS.pack(self.buffer, *[0] * 6))
        fcntl.ioctl(self.device, vgpu(4, STATUS.size), room, True)
        return STATUS.unpack(room)[6]

    def give_back(self):
        """Have nothing, and no driver of the device's."""
        self.close()
        subprocess.run(["rmmod", "tow_vgpu"], check=True)


class Node(peers_node.Node):
    """A node, seen from node 0."""

    program = "tests/lab/vgpu_node.py"


if __name__ == "__main__":
    peers_node.serve(Actor())

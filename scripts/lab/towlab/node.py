# SPDX-License-Identifier: GPL-2.0
"""One guest: its QEMU process, its agent, its console."""

import ctypes
import json
import signal
import socket
import subprocess
import time

from . import kernels, wire

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent():
    """In the child: no QEMU outlives the lab that started it."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class BootError(Exception):
    """A guest did not come up; the console is in the log folder."""


class Node:
    """A guest and what the host holds of it."""

    def __init__(self, lab, index):
        self.lab = lab
        self.index = index
        self.console = lab.logdir / ("node%d.dmesg" % index)
        self.process = None
        self.agent = None
        self.expected_death = False
        self.console.write_bytes(b"")

    @property
    def alive(self):
        return self.process is not None and self.process.poll() is None

    @property
    def died(self):
        """It ended, and nobody asked for that."""
        return self.process is not None and not self.alive and not self.expected_death

    def _dma_devices(self):
        """An IOMMU, before all that is behind it, and a device that has no DMA of its own."""
        words = kernels.DMA_PROVIDERS.get(self.lab.provider)
        if words is None:
            return []
        iommu = ["-device", "intel-iommu,intremap=off"] if "intel_iommu" in words else []
        return [*iommu, "-device", "pci-testdev"]

    def _command(self):
        lab, kernel = self.lab, self.lab.kernel
        run = lab.rundir
        mac = "52:54:00:77:00:%02x" % (self.index + 1)
        if lab.icount:
            machine = ["-cpu", kernels.TCG_CPU, "-accel", "tcg,thread=single",
                       "-icount", "shift=1,sleep=off", "-smp", "1"]
        elif lab.accel == "kvm":
            machine = ["-cpu", "host", "-accel", "kvm", "-smp", str(lab.smp)]
        else:
            machine = ["-cpu", kernels.TCG_CPU, "-accel", "tcg,thread=multi",
                       "-smp", str(lab.smp)]
        return ["qemu-system-x86_64", *machine, "-m", str(lab.mem),
                # Each thread says what it is for: see meter.py.
                "-name", "towlab-node%d,debug-threads=on" % self.index,
                "-nodefaults", "-nographic", "-no-reboot", "-M", "q35", *self._dma_devices(),
                "-kernel", str(kernel.image), "-initrd", str(kernel.initrd()),
                "-append", kernel.cmdline(lab.checks, lab.provider),
                "-chardev", "file,id=console,path=%s,append=on" % self.console,
                "-serial", "chardev:console",
                "-device", "virtio-serial-pci",
                "-chardev", "socket,id=agent,path=%s/agent%d,server=on,wait=off" %
                (run, self.index),
                "-device", "virtserialport,chardev=agent,name=towline.lab",
                "-virtfs", "local,id=root,path=/,mount_tag=root,security_model=none,"
                "readonly=on,multidevs=remap",
                "-netdev", "stream,id=net,server=off,addr.type=unix,addr.path=%s/switch" % run,
                "-device", "virtio-net-pci,netdev=net,mac=%s,speed=10000,duplex=full" % mac,
                "-device", "virtio-rng-pci", *self._vgpu(),
                "-qmp", "unix:%s/qmp%d,server=on,wait=off" % (run, self.index)]

    def _vgpu(self):
        """A device with memory of its own, which tow_vgpu.ko drives."""
        if self.lab.provider not in kernels.DMA_PROVIDERS:
            return []
        return ["-object", "memory-backend-ram,id=vgpu,size=64M,share=on",
                "-device", "ivshmem-plain,memdev=vgpu"]

    def start(self):
        """Start QEMU.  From the lab's spawning thread, with which it dies."""
        for name in ("agent", "qmp"):
            (self.lab.rundir / (name + str(self.index))).unlink(missing_ok=True)
        self.expected_death = False
        self.process = subprocess.Popen(
            self._command(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=open(self.lab.logdir / ("node%d.qemu" % self.index), "ab"),
            preexec_fn=die_with_parent)

    def connect(self, timeout):
        """Wait for the agent's first word."""
        deadline = time.monotonic() + timeout
        path = self.lab.rundir / ("agent%d" % self.index)
        while not path.exists():
            if not self.alive or time.monotonic() > deadline:
                raise BootError(self._why("QEMU did not start"))
            time.sleep(0.02)
        self.agent = wire.Agent(str(path), self.lab.guest_request)
        while not self.agent.hello.wait(0.2):
            if not self.alive or time.monotonic() > deadline:
                raise BootError(self._why("no word from the guest in %d s" % timeout))
        if self.agent.closed.is_set():
            raise BootError(self._why("the guest died while booting"))

    def _why(self, what):
        tail = self.console.read_text(errors="replace").splitlines()[-15:]
        tail += (self.lab.logdir / ("node%d.qemu" % self.index)).read_text(
            errors="replace").splitlines()[-5:]
        return "node%d (%s): %s\n%s" % (self.index, self.lab.kernel.name, what,
                                        "\n".join("    " + line for line in tail))

    def environment(self):
        lab = self.lab
        return {
            "PATH": "/run/towlab/bin:%s/bin:/usr/local/sbin:/usr/local/bin:"
                    "/usr/sbin:/usr/bin:/sbin:/bin" % kernels.BUILD,
            "HOME": "/root", "USER": "root", "LOGNAME": "root", "SHELL": "/bin/sh",
            "LANG": "C.UTF-8", "TERM": "dumb",
            "PYTHONDONTWRITEBYTECODE": "1",
            "TOW_LAB_NODE": str(self.index),
            "TOW_LAB_NODES": str(len(lab.nodes)),
            "TOW_LAB_ADDRS": ",".join(lab.address(i) for i in range(len(lab.nodes))),
            "TOW_LAB_KERNEL": lab.kernel.name,
            "TOW_LAB_PROVIDER": lab.provider,
            "LD_LIBRARY_PATH": "%s/lib" % kernels.BUILD,
        }

    def exec(self, argv, env=None, output=None, cwd=None, size=None):
        """Start argv (or a shell string) on this node: a wire.Session."""
        if isinstance(argv, str):
            argv = ["/bin/sh", "-c", argv]
        if self.agent is None or self.agent.closed.is_set():
            raise wire.ChannelClosed
        return self.agent.start(argv, {**self.environment(), **(env or {})},
                                cwd or str(kernels.TOP), output, size)

    def setup(self, timeout):
        session = self.exec([str(kernels.LAB / "guest" / "setup")],
                            env={"TOW_LAB_MODROOT": str(self.lab.modroot)})
        session.close_stdin()
        code = session.wait(timeout)
        if code != 0:
            raise BootError(self._why("setup %s: %s" % (
                "did not end" if code is None else "failed (%d)" % code,
                session.err.decode(errors="replace").strip())))

    def qmp(self, command, **arguments):
        """One QMP command; its return value."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(10)
            sock.connect(str(self.lab.rundir / ("qmp%d" % self.index)))
            stream = sock.makefile("rw")
            stream.readline()
            for name, args in (("qmp_capabilities", {}), (command, arguments)):
                stream.write(json.dumps({"execute": name, "arguments": args}) + "\n")
                stream.flush()
                answer = json.loads(stream.readline())
                while "event" in answer:
                    answer = json.loads(stream.readline())
            return answer

    def kill(self):
        """Power cut: nothing is flushed, nobody is told."""
        self.expected_death = True
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        if self.agent is not None:
            self.agent.close()

# SPDX-License-Identifier: GPL-2.0
"""What a guest boots from: image, modules tree, initramfs, QEMU's words."""

import fcntl
import functools
import hashlib
import lzma
import os
import pathlib
import shutil
import subprocess
import tempfile

from . import cache

TOP = pathlib.Path(__file__).resolve().parents[3]
LAB = TOP / "scripts" / "lab"
BUILD = TOP / "build"
KERNELS = ("6.1", "6.12", "debug", "debug-6.1", "kcsan")
KMEMLEAK_KERNELS = ("debug", "debug-6.1")
# Soft-RoCE that is built here, as rxe_NAME.
BUILT_PROVIDERS = ("hostile", "dma")
# Loaded by the initramfs, with what they depend on, where not built in.
BOOT_MODULES = ("virtio_pci", "virtio_console", "virtio_net", "9pnet_virtio", "9p",
                "overlay", "virtio_rng")

# The provider with DMA, and what it has between it and memory, in the kernel's words:
# an IOMMU; one that is told late; nothing; copies of everything, or of what a device
# of 32 bits cannot reach.
DMA_PROVIDERS = {
    "dma": "intel_iommu=on iommu.passthrough=0 iommu.strict=1",
    "dma-lazy": "intel_iommu=on iommu.passthrough=0 iommu.strict=0",
    "dma-off": "",
    "dma-swiotlb": "swiotlb=force",
    "dma-low": "",
}
# With so many MiB some of a guest's memory is beyond 32 bits.
HIGH_MEMORY = 3072
PROVIDERS = ("rxe", "hostile", *DMA_PROVIDERS, "none")

# Without pclmul soft-RoCE's CRC is 1.6 times faster under TCG, and rep movs
# is slow there (Documentation/lab.md).
TCG_CPU = "max,-erms,-fsrm,-pclmulqdq"


class KernelMissing(Exception):
    """The kernel was not fetched or built."""


def built_provider(provider):
    """Which of BUILT_PROVIDERS it is; None: the kernel's own, or none."""
    name = provider.partition("-")[0]
    return name if name in BUILT_PROVIDERS else None


def _locked(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = open(path, "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


class Kernel:
    """One of KERNELS, as scripts/lab/kernel left it under build/kernels."""

    def __init__(self, name):
        cache.hold()
        self.name = name
        self.dir = BUILD / "kernels" / name
        if not (self.dir / "version").exists():
            raise KernelMissing("kernel %s is not there: scripts/lab/kernel ensure %s" %
                                (name, name))
        self.release = (self.dir / "release").read_text().strip()
        self.image = self.dir / "vmlinuz"
        self.ours = name not in ("6.1", "6.12")     # built here, from debug.config
        self.has_kmemleak = name in KMEMLEAK_KERNELS

    # -------------------------------------------------------- modules tree

    def modroot(self):
        """A tree for /lib/modules: the kernel's own, and ours as updates/.

        Made again whenever a module of ours or the kernel changed.
        """
        root = BUILD / "lab" / "modroot" / self.name
        tree = root / "lib" / "modules" / self.release
        ours = sorted((BUILD / "modules" / self.release).glob("*.ko"))
        ours += sorted((BUILD / "modules" / self.release / "tests/modules").glob("*.ko"))
        for provider in BUILT_PROVIDERS:
            built = BUILD / "kernels" / ("%s-%s" % (provider, self.name))
            ours += sorted(built.glob("rxe_%s.ko" % provider))
        stamp = "\n".join([(self.dir / "version").read_text()] +
                          ["%s %d" % (ko, ko.stat().st_mtime_ns) for ko in ours])
        with _locked(BUILD / "lab" / "modroot" / (self.name + ".lock")):
            if (root / "stamp").exists() and (root / "stamp").read_text() == stamp:
                return root
            shutil.rmtree(root, ignore_errors=True)
            (tree / "updates").mkdir(parents=True)
            for entry in (self.dir / "modules").iterdir():
                if entry.name in ("kernel", "modules.builtin", "modules.builtin.modinfo",
                                  "modules.order"):
                    (tree / entry.name).symlink_to(entry.resolve())
            for ko in ours:
                (tree / "updates" / ko.name).symlink_to(ko)
            subprocess.run(["/sbin/depmod", "-b", root, self.release], check=True,
                           capture_output=True)
            (root / "stamp").write_text(stamp)
        return root

    # ----------------------------------------------------------- initramfs

    def _boot_modules(self):
        """Paths of BOOT_MODULES and what they need, in loading order."""
        order = []
        base = (self.dir / "modules").resolve().parents[2]
        for name in BOOT_MODULES:
            result = subprocess.run(
                ["/sbin/modprobe", "-S", self.release, "-d", base, "--show-depends", name],
                capture_output=True, text=True, check=False)
            for line in result.stdout.splitlines():
                word, _, path = line.partition(" ")
                if word == "insmod" and path.strip() not in order:
                    order.append(path.strip().split()[0])
        return [pathlib.Path(p) for p in order]

    def initrd(self):
        guest = guest_binary()
        init = LAB / "guest" / "init"
        key = hashlib.sha256(guest.read_bytes() + init.read_bytes() +
                             (self.dir / "version").read_bytes() +
                             repr(BOOT_MODULES).encode()).hexdigest()[:16]
        path = BUILD / "lab" / ("initrd-%s-%s" % (self.name, key))
        if path.exists():
            return path
        with _locked(BUILD / "lab" / "initrd.lock"):
            # Another boot may have made it meanwhile, and is using it.
            if path.exists():
                return path
            for old in (BUILD / "lab").glob("initrd-%s-*" % self.name):
                if len(old.name) == len(path.name):
                    old.unlink()
            with tempfile.TemporaryDirectory(dir=BUILD / "lab") as tmp:
                self._fill_initrd(pathlib.Path(tmp), guest, init)
                names = subprocess.run(["find", "."], cwd=tmp, check=True,
                                       capture_output=True).stdout
                data = subprocess.run(["cpio", "-o", "-H", "newc", "-R", "0:0", "--quiet"],
                                      cwd=tmp, input=names, check=True,
                                      capture_output=True).stdout
            new = path.with_suffix(".new")
            new.write_bytes(data)
            new.rename(path)
        return path

    def _fill_initrd(self, root, guest, init):
        for name in ("bin", "dev", "proc", "sys", "lower", "rw", "newroot", "modules"):
            (root / name).mkdir()
        shutil.copy("/bin/busybox", root / "bin" / "busybox")
        for applet in ("sh", "mount", "mkdir", "insmod", "ln", "cp", "echo", "switch_root"):
            (root / "bin" / applet).symlink_to("busybox")
        shutil.copy(guest, root / "lab-guest")
        shutil.copy(init, root / "init")
        names = []
        for path in self._boot_modules():
            data = path.read_bytes()
            if path.suffix == ".xz":
                data = lzma.decompress(data)
            name = path.name.removesuffix(".xz")
            (root / "modules" / name).write_bytes(data)
            names.append(name + "\n")
        (root / "modules" / "order").write_text("".join(names))

    # --------------------------------------------------------- command line

    def cmdline(self, checks, provider="rxe"):
        words = ["console=ttyS0", "ignore_loglevel", "panic=-1", "net.ifnames=0",
                 # A busy host stretches guest time: these are for real hangs.
                 "watchdog_thresh=60", "rcupdate.rcu_cpu_stall_timeout=120",
                 "workqueue.watchdog_thresh=0",
                 # QEMU 7.2 emulating two processors may go on running an int3
                 # that one of them has patched in and out again while the other
                 # runs there, and the guest oopses (int3).  Most patching is at
                 # boot, most often seen where the scheduler's clock is found
                 # stable: so one processor boots and guest/init adds the others.
                 "maxcpus=1", "noreplace-smp",
                 # For the same reason: on a busy host the clock watchdog would
                 # find the TSC skewed and switch it off by patching code.
                 "tsc=reliable"]
        if self.ours:
            # While identify_cpu() asks for the processor's features anew it seems
            # to have none, not even five levels of page tables; an interrupt then
            # sees memory where KASAN knows of none, and complains without end.
            words += ["kasan_multi_shot", "no5lvl"]
        elif checks:
            # Not who allocated and freed (U): a third of what some tests take, for
            # words in a report that the debug kernel has as well.
            words += ["slub_debug=FZP", "page_poison=1"]
            if self.name != "6.1":
                words += ["kfence.sample_interval=10"]
        words += DMA_PROVIDERS.get(provider, "").split()
        return " ".join(words)


def _compile(source, target, *flags):
    newest = max(path.stat().st_mtime for path in source.parent.glob("*.[ch]"))
    with _locked(BUILD / "lab" / "bin" / ".lock"):
        if not target.exists() or target.stat().st_mtime < newest:
            new = target.with_suffix(".new")
            subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-Werror", *flags,
                            "-o", new, source], check=True)
            new.rename(target)
    return target


def guest_binary():
    return _compile(LAB / "guest" / "lab-guest.c", BUILD / "lab" / "bin" / "lab-guest",
                    "-static")


def switch_binary():
    return _compile(LAB / "switch" / "lab-switch.c", BUILD / "lab" / "bin" / "lab-switch")


@functools.cache
def accel():
    """"kvm" where a probing boot succeeds, else "tcg".

    /dev/kvm may be there, may be ours to open, and still hang at the first
    instruction; only a boot tells.  Remembered until the host boots again.
    """
    forced = os.environ.get("TOW_LAB_ACCEL")
    if forced:
        return forced
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    memo = BUILD / "lab" / "accel"
    boot_id = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with _locked(BUILD / "lab" / "accel.lock"):
        if memo.exists() and memo.read_text().startswith(boot_id):
            return memo.read_text().split()[1]
        answer = "kvm" if _probe_kvm() else "tcg"
        memo.write_text("%s %s\n" % (boot_id, answer))
    return answer


def _probe_kvm():
    """Does a guest under KVM reach its kernel's first line?"""
    for name in KERNELS:
        image = BUILD / "kernels" / name / "vmlinuz"
        if image.exists():
            break
    else:
        return False
    # No init and panic=-1: a working guest panics at once and QEMU ends.
    command = ["qemu-system-x86_64", "-accel", "kvm", "-cpu", "host", "-m", "512",
               "-nodefaults", "-nographic", "-no-reboot", "-serial", "stdio",
               "-kernel", str(image), "-append", "console=ttyS0 panic=-1"]
    try:
        result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True,
                                timeout=20, check=False)
    except (subprocess.TimeoutExpired, OSError):
        return False
    return b"Linux version" in result.stdout

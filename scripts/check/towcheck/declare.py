# SPDX-License-Identifier: GPL-2.0
"""Test declarations: tests/*/tests.toml (see Documentation/testing.md)."""

import dataclasses
import fnmatch
import os
import tomllib

from towlab import PROVIDERS

from . import DEFAULT_KERNELS, EXTRA_KERNELS, TOP, UserError

WHERE = ("host", "lab")
PROTOCOLS = ("ktap", "exit")
# Where a test runs once more, with the provider that has DMA of its own.
DMA_KERNELS = ("6.1", "6.12", "debug")
DMA_KERNELS_NODES = ("6.12", "debug")


@dataclasses.dataclass(frozen=True)
class Machine:
    """What a lab test needs; tests that need the same share one boot."""
    kernel: str
    nodes: int
    smp: int
    mem: int
    provider: str

    def __str__(self):
        words = [self.kernel, f"{self.nodes} node{'s'[:self.nodes > 1]}"]
        if self.provider != "rxe":
            words.append(self.provider)
        if self.smp != 2:
            words.append(f"{self.smp} CPUs")
        if self.mem != 2048:
            words.append(f"{self.mem} MiB")
        return ", ".join(words)


@dataclasses.dataclass(frozen=True)
class Test:
    """One declared test."""
    name: str
    where: str
    command: tuple
    protocol: str = "exit"
    kernels: tuple = DEFAULT_KERNELS
    check: tuple = ()
    makes: tuple = ()
    turn: str = ""
    nodes: int = 1
    smp: int = 2
    mem: int = 2048
    provider: str = "rxe"
    dma: tuple | None = None
    dma_check: tuple = ()
    module: bool = False
    timeout: int = 120
    quick: bool = False
    alone: bool = False
    full: bool = True
    soak: dict = dataclasses.field(default_factory=dict, hash=False)

    def machine(self, kernel):
        """The machine this test needs under a kernel."""
        return Machine(kernel, self.nodes, self.smp, self.mem, self.provider)

    def with_dma(self, folder):
        """The same with the provider that has DMA of its own, if it is for that."""
        kernels = self.dma
        if kernels is None:
            usual = DMA_KERNELS if self.nodes == 1 else DMA_KERNELS_NODES
            fits = self.provider == "rxe" and self.module and (
                folder == "kselftest" or folder == "lab" and self.nodes > 1)
            kernels = [kernel for kernel in usual if fits and kernel in self.kernels]
        if not kernels:
            return None
        return dataclasses.replace(self, name=self.name + "-dma", provider="dma",
                                   kernels=tuple(kernels), check=self.dma_check,
                                   quick=False, turn="", soak={})


_TYPES = {
    "name": str, "where": str, "command": list, "protocol": str,
    "kernels": list, "check": list, "makes": list, "turn": str,
    "nodes": int, "smp": int, "mem": int, "provider": str, "dma": list, "dma_check": list,
    "module": bool, "timeout": int, "quick": bool, "alone": bool, "full": bool, "soak": dict,
}
_SOAK_TYPES = {"count": int, "round": int, "timeout": int, "kernels": list}


def _check_types(where, table, types):
    for key, value in table.items():
        if key not in types:
            raise UserError(f"{where}: unknown key '{key}'")
        if type(value) is not types[key]:
            raise UserError(f"{where}: '{key}' must be of type "
                            f"{types[key].__name__}")


def _check_kernels(where, kernels):
    for kernel in kernels:
        if kernel not in DEFAULT_KERNELS + EXTRA_KERNELS:
            raise UserError(f"{where}: unknown kernel '{kernel}'")


def _check_values(where, table):
    for key, allowed in (("where", WHERE), ("protocol", PROTOCOLS),
                         ("provider", PROVIDERS)):
        if key in table and table[key] not in allowed:
            raise UserError(f"{where}: '{key}' must be one of "
                            f"{', '.join(allowed)}")
    _check_kernels(where, table.get("kernels", ()))
    own = ("host",) if table["where"] == "host" else table.get(
        "kernels", DEFAULT_KERNELS)
    others = set(table.get("check", ())) - set(own)
    if others:
        raise UserError(f"{where}: 'check' has '{min(others)}', which is not "
                        "one of its kernels")
    for words in (table.get("soak", {}).get("kernels", ()), table.get("dma", ()),
                  table.get("dma_check", ())):
        _check_kernels(where, words)
    for key in ("nodes", "smp", "mem", "timeout"):
        if table.get(key, 1) < 1:
            raise UserError(f"{where}: '{key}' must be positive")
    if not table["command"] or not all(isinstance(word, str)
                                       for word in table["command"]):
        raise UserError(f"{where}: 'command' must be a list of words")
    if table["where"] == "host":
        for key in ("kernels", "turn", "nodes", "smp", "mem", "provider",
                    "dma", "dma_check", "module", "soak"):
            if key in table:
                raise UserError(f"{where}: '{key}' is for lab tests")


def _parse(path, folder, number, table):
    where = f"{path}: test {table.get('name', number)!r}"
    _check_types(where, table, _TYPES)
    for key in ("name", "where", "command"):
        if key not in table:
            raise UserError(f"{where}: '{key}' is missing")
    _check_values(where, table)
    soak = table.get("soak", {})
    _check_types(f"{where}: soak", soak, _SOAK_TYPES)
    if soak and soak.get("count", 0) < 1:
        raise UserError(f"{where}: soak needs a positive 'count'")
    fields = dict(table, name=f"{folder}/{table['name']}" if folder
                  else table["name"])
    if table["where"] == "host":
        fields.setdefault("check", ("host",))
    for key in ("command", "kernels", "check", "makes", "dma", "dma_check"):
        if key in fields:
            fields[key] = tuple(fields[key])
    return Test(**fields)


def load_file(path, folder):
    """The tests that one file declares."""
    try:
        with open(path, "rb") as file:
            data = tomllib.load(file)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: {error}") from None
    if set(data) - {"test"}:
        raise UserError(f"{path}: unknown table '{min(set(data) - {'test'})}'")
    tests = [_parse(path, folder, number, table)
             for number, table in enumerate(data.get("test", []), 1)]
    return tests + [again for again in (test.with_dma(folder) for test in tests) if again]


def load(top=TOP):
    """All declared tests, in the order of their folders."""
    tests = [Test(name="lint", where="host", command=("scripts/lint",),
                  check=("host",), timeout=3600, quick=True, alone=True)]
    for path in sorted(top.glob("tests/*/tests.toml")):
        tests += load_file(path, path.parent.name)
    names = [test.name for test in tests]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"two tests are named '{name}'")
    return tests


def select(tests, globs):
    """The tests whose name matches one of the globs; all without globs."""
    if not globs:
        return tests
    for glob in globs:
        if not any(fnmatch.fnmatchcase(test.name, glob) for test in tests):
            raise UserError(f"no test is named like '{glob}'")
    return [test for test in tests
            if any(fnmatch.fnmatchcase(test.name, glob) for glob in globs)]


def for_check(tests, taken):
    """The tests that make check runs, on the kernels that it runs them on.

    taken picks one of several that take turns.
    """
    turns = {}
    for test in tests:
        if test.turn:
            turns.setdefault(test.turn, []).append(test.name)
    off = {name for names in turns.values() for name in names
           if name != taken(names)}
    return [dataclasses.replace(test, kernels=test.check) for test in tests
            if test.check and test.name not in off]


def words_of(variable):
    """The words of an environment variable that make passed on."""
    return os.environ.get(variable, "").split()


def kernels_of(default=DEFAULT_KERNELS):
    """KERNELS, or the default."""
    kernels = tuple(words_of("KERNELS")) or default
    _check_kernels("KERNELS", kernels)
    return kernels


def groups(tests, kernels):
    """(machine, tests) for each boot, kernels in the order given."""
    machines = {}
    for kernel in kernels:
        for test in tests:
            if test.where == "lab" and kernel in test.kernels:
                machines.setdefault(test.machine(kernel), []).append(test)
    order = {kernel: place for place, kernel in enumerate(kernels)}
    return sorted(machines.items(),
                  key=lambda item: (order[item[0].kernel], item[0].nodes,
                                    item[0].provider))

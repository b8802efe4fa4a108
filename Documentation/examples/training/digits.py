# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""The 1,797 handwritten digits of scikit-learn, and who computes with which of them when."""

import gzip
import importlib.util
import pathlib
from typing import NamedTuple

import numpy as np

PIXELS = 64
CLASSES = 10
HELD_OUT = 0.2
# What is held out does not depend on the training's seed: accuracies can be compared.
SPLIT_SEED = 1797


class Digits(NamedTuple):
    """Pixels from 0 to 1, a row each, and which digit a row is."""

    pixels: np.ndarray
    labels: np.ndarray
    held_out_pixels: np.ndarray
    held_out_labels: np.ndarray


def load() -> Digits:
    """Read the digits and hold a fifth of them out.

    Importing scikit-learn takes half a minute in an emulated machine, and all that
    is wanted of it is a file.
    """
    package = importlib.util.find_spec("sklearn")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("the digits are scikit-learn's: apt-get install python3-sklearn")
    path = pathlib.Path(package.submodule_search_locations[0], "datasets/data/digits.csv.gz")
    with gzip.open(path, "rt", encoding="ascii") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    # RandomState's numbers are promised to stay what they are; Generator's are not.
    table = table[np.random.RandomState(SPLIT_SEED).permutation(len(table))]
    pixels = np.ascontiguousarray(table[:, :PIXELS]) / np.float32(16)
    labels = table[:, PIXELS].astype(np.int64)
    held_out = round(len(table) * HELD_OUT)
    return Digits(pixels[held_out:], labels[held_out:], pixels[:held_out], labels[:held_out])


class Batches:
    """Which rows a step takes: all of them once in each epoch, shuffled anew.

    Rows that do not fill an epoch's last batch are left out of that epoch.
    """

    def __init__(self, rows: int, batch: int, seed: int) -> None:
        if not 0 < batch <= rows:
            raise ValueError(f"a batch of {batch} of {rows} rows")
        self._rows = rows
        self._batch = batch
        self._seed = seed
        self._epoch = -1
        self._order = np.empty(0, np.int64)

    def share(self, step: int, rank: int, size: int) -> np.ndarray:
        """The rows of worker `rank` of `size` in a step; the first step is 1."""
        if self._batch % size:
            raise ValueError(f"a batch of {self._batch} for {size} workers")
        epoch, place = divmod(step - 1, self._rows // self._batch)
        if epoch != self._epoch:
            self._order = np.random.RandomState([self._seed, epoch]).permutation(self._rows)
            self._epoch = epoch
        share = self._batch // size
        begin = place * self._batch + rank * share
        return self._order[begin:begin + share]

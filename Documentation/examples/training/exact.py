# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""Settings without which the same numbers give other bits elsewhere."""

import os
import sys
import warnings


def before_numpy() -> None:
    """Set them; to be called before NumPy is imported."""
    if "numpy" in sys.modules:
        raise ImportError("NumPy was imported before exact.before_numpy()")
    # Threads add numbers up in another order.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    # NumPy has its loops several times, for vectors of several widths, and exp() is not the same
    # in all of them.  What all processors have is the same everywhere; and emulated ones need not
    # be trusted with the rest: QEMU 7.2 faults in a gather of AVX2 where np.maximum() reads a
    # scalar.
    os.environ["NPY_DISABLE_CPU_FEATURES"] = (
        "AVX2 FMA3 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL")
    # It says which of them this processor does not have anyway.
    warnings.filterwarnings("ignore", "During parsing environment variable", RuntimeWarning)

# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""NumPy's types and shapes, and the library's (DLPack's)."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from ._lib import DIMS_MAX, DType, TensorType

_ml: Any = None
with contextlib.suppress(ImportError):
    _ml = importlib.import_module("ml_dtypes")

# bfloat16: that of the package ml_dtypes where it is installed, else the bits, which NumPy cannot
# compute with: array.view(numpy.uint16) has them.
bfloat16: np.dtype[Any] = np.dtype(_ml.bfloat16 if _ml else [("bfloat16", "<u2")])

Shape = int | Iterable[int]
Array = np.ndarray[Any, np.dtype[Any]]
# What array_of() takes.
AnyArray = Any

_INT, _UINT, _FLOAT, _OPAQUE, _BFLOAT, _COMPLEX, _BOOL = range(7)
_CODE_OF_KIND = {"i": _INT, "u": _UINT, "f": _FLOAT, "c": _COMPLEX, "b": _BOOL}
_KIND_OF_CODE = {code: kind for kind, code in _CODE_OF_KIND.items()}
# Of one byte, which NumPy has only with ml_dtypes.
_FLOAT8 = {"float8_e3m4": 7, "float8_e4m3": 8, "float8_e4m3b11fnuz": 9, "float8_e4m3fn": 10,
           "float8_e4m3fnuz": 11, "float8_e5m2": 12, "float8_e5m2fnuz": 13,
           "float8_e8m0fnu": 14}


def dtype_of(dtype: np.dtype[Any]) -> DType:
    """The library's type of an element.

    Everything that has no number of DLPack's goes as so many opaque bytes.
    TypeError: references to objects, or the other byte order.
    """
    if dtype.hasobject:
        raise TypeError(f"{dtype} refers to Python objects, which do not travel")
    if not dtype.isnative:
        raise TypeError(f"{dtype} is of the other byte order")
    if dtype == bfloat16:
        return DType(_BFLOAT, 16, 1)
    if dtype.name in _FLOAT8:
        return DType(_FLOAT8[dtype.name], 8, 1)
    if dtype.kind in _CODE_OF_KIND and dtype.itemsize * 8 < 256:
        return DType(_CODE_OF_KIND[dtype.kind], dtype.itemsize * 8, 1)
    if not 0 < dtype.itemsize < 65536:
        raise TypeError(f"elements of {dtype.itemsize} bytes do not travel")
    return DType(_OPAQUE, 8, dtype.itemsize)


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """NumPy's type of an element that has come.

    TypeError: NumPy has none, as for elements of less than a byte.
    """
    bits = dtype.bits * dtype.lanes
    if dtype.lanes == 1:
        if dtype.code == _BFLOAT and bits == 16:
            return bfloat16
        name = next((name for name, code in _FLOAT8.items() if code == dtype.code), None)
        if name and bits == 8 and _ml and hasattr(_ml, name):
            return np.dtype(getattr(_ml, name))
        kind = _KIND_OF_CODE.get(dtype.code)
        if kind and bits % 8 == 0:
            return np.dtype(f"{kind}{bits // 8}")
    if bits == 0 or bits % 8:
        raise TypeError(f"NumPy has no elements of {bits} bits")
    return np.dtype(f"V{bits // 8}")


def shape_of(shape: Shape) -> tuple[int, ...]:
    """A shape as a tuple; an int is one dimension.  ValueError: it is none."""
    try:
        dims: tuple[int, ...] = (int(shape),)   # type: ignore[arg-type]
    except TypeError:
        dims = tuple(int(dim) for dim in shape)     # type: ignore[union-attr]
    if len(dims) > DIMS_MAX or any(dim < 0 for dim in dims):
        raise ValueError(f"{dims} is no shape of at most {DIMS_MAX} dimensions")
    return dims


def bytes_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """How many bytes such an array has."""
    count = dtype.itemsize
    for dim in shape:
        count *= dim
    return count


def tensor_type(shape: Shape, dtype: Any) -> TensorType:
    """The library's type of such an array."""
    dims = shape_of(shape)
    made = TensorType(dtype_of(np.dtype(dtype)), len(dims))
    made.dims[:len(dims)] = dims
    return made


def numpy_type(kind: TensorType) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of an array that has come."""
    return tuple(kind.dims[:kind.ndim]), numpy_dtype(kind.dtype)


def array_of(source: AnyArray, what: str) -> Array:
    """A NumPy array as it is, or one of another's memory, which is not copied.

    source: has the buffer protocol, __array_interface__, or __dlpack__ in the CPU's memory.
    TypeError: it has none of these.  ValueError: it is in a device's memory.  Or what its __dlpack__
    raises: PyTorch's does for a tensor that requires grad.
    """
    if isinstance(source, np.ndarray):
        return source
    with contextlib.suppress(TypeError, BufferError):
        array = np.asarray(source if hasattr(source, "__array_interface__") else memoryview(source))
        # Else it is a copy, as of NumPy's numbers.
        if not array.flags.owndata:
            return array
    if hasattr(source, "__dlpack__"):
        from ._dlpack import taken
        return taken(source, what)
    raise TypeError(f"{what} must be a NumPy array, or share its memory by __dlpack__, __array_interface__ "
                    f"or the buffer protocol: {type(source).__name__} does not")


def whole(source: AnyArray, what: str, writable: bool = False) -> Array:
    """As array_of(), if it can be used where it is.

    ValueError: also if it has gaps, or cannot be written.
    """
    array = array_of(source, what)
    if not array.flags.c_contiguous:
        raise ValueError(f"{what} has gaps, or another order than C's: numpy.ascontiguousarray() "
                         "makes one that has not")
    if writable and not array.flags.writeable:
        raise ValueError(f"{what} cannot be written")
    return array


def address_of(array: Array) -> int:
    """Where its elements are."""
    return int(array.__array_interface__["data"][0])


def same_type(shape: tuple[int, ...], dtype: np.dtype[Any], array: Array,
              what: str) -> Array:
    """The array.  ValueError: it is of another shape or type."""
    if array.shape != shape or array.dtype != dtype:
        raise ValueError(f"{what} is {array.shape} of {array.dtype}, not {shape} of {dtype}")
    return array

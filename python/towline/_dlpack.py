# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""DLPack, by which PyTorch, JAX and others share arrays: out of it and into it."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_uint64, c_void_p, py_object
from typing import Any

import numpy as np

from ._lib import DType
from ._numpy import c_api, capsule_get
from ._types import Array, _OPAQUE, AnyArray, array_of, dtype_of, numpy_dtype

CPU, CUDA_HOST = 1, 3
# Of each size one that every NumPy exports.
_EXPORTED = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}

_capsule_set_name = c_api("PyCapsule_SetName", ctypes.c_int, py_object, c_char_p)
FULL, USED = b"dltensor", b"used_dltensor"
# A capsule has its name's address only, and may outlive this module.
c_api("Py_IncRef", None, py_object)(USED)


class DLTensor(ctypes.Structure):
    """Of dlpack.h.  Strides are in elements; without them there are no gaps."""
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32),
                ("ndim", c_int32), ("dtype", DType), ("shape", POINTER(c_int64)),
                ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


class DLManagedTensor(ctypes.Structure):
    """Of dlpack.h.  Any thread may call its deleter; Python's lock is kept, as some need it."""
    _fields_ = [("dl_tensor", DLTensor), ("manager_ctx", c_void_p),
                ("deleter", ctypes.PYFUNCTYPE(None, c_void_p))]


class _Taken:
    """A tensor that was taken, until no array views it."""

    __slots__ = ("__array_interface__", "_managed", "_address")

    def __init__(self, managed: DLManagedTensor, interface: dict[str, Any]) -> None:
        self._managed = managed
        self._address = ctypes.addressof(managed)
        self.__array_interface__ = interface

    def __del__(self) -> None:
        if self._managed.deleter:
            self._managed.deleter(self._address)


def taken(source: Any, what: str) -> Array:
    """What has __dlpack__, as an array of the same memory.

    TypeError: NumPy has no such elements.  ValueError: it is in a device's memory.
    """
    capsule = source.__dlpack__()
    managed = DLManagedTensor.from_address(capsule_get(capsule, FULL))
    tensor = managed.dl_tensor
    if tensor.device_type not in (CPU, CUDA_HOST):
        raise ValueError(f"{what} is not in the CPU's memory, but in that of a device (DLPack's type "
                         f"{tensor.device_type})")
    dtype = numpy_dtype(tensor.dtype)
    shape = tuple(tensor.shape[:tensor.ndim]) if tensor.ndim else ()
    strides = tuple(stride * dtype.itemsize for stride in tensor.strides[:tensor.ndim]) \
        if tensor.ndim and tensor.strides else None
    interface = {"version": 3, "typestr": f"|V{dtype.itemsize}", "shape": shape, "strides": strides,
                 "data": ((tensor.data or 0) + tensor.byte_offset, False)}
    # From here on the capsule does not call the deleter, and _Taken does.
    _capsule_set_name(capsule, USED)
    return np.asarray(_Taken(managed, interface)).view(dtype)


class dlpack:   # pylint: disable=invalid-name
    """An array as others take it: torch.from_dlpack(towline.dlpack(array)) shares its memory.

    array: of any type that DLPack has, also of those that NumPy's own __dlpack__ refuses, as
    bfloat16.  It is kept until who has taken it lets go of it.

    Raises TypeError: DLPack has no such type.  __dlpack__() raises what NumPy's does for an array that
    cannot be written.
    """

    def __init__(self, array: AnyArray) -> None:
        array = array_of(array, "array")
        self._dtype = dtype_of(array.dtype)
        if self._dtype.code == _OPAQUE:
            raise TypeError(f"DLPack has no {array.dtype}")
        self._array = array.view(_EXPORTED[array.dtype.itemsize])

    def __dlpack__(self, stream: Any = None, copy: bool | None = None, **_: Any) -> Any:
        # NumPy's capsule, whose deleter is compiled and any thread may call, also as the interpreter
        # ends.  Only the type is another one.
        capsule = (self._array.copy() if copy else self._array).__dlpack__()
        managed = DLManagedTensor.from_address(capsule_get(capsule, FULL))
        managed.dl_tensor.dtype = self._dtype
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0

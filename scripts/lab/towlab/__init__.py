# SPDX-License-Identifier: GPL-2.0
"""Virtual machines with real kernels and soft-RoCE, for tests and measures."""

from .complaints import AllowList, Complaint
from .kernels import KERNELS, PROVIDERS, TOP, KernelMissing
from .lab import Lab, Result, new_logdir
from .node import BootError
from .wire import ChannelClosed

__all__ = ["AllowList", "BootError", "ChannelClosed", "Complaint", "KERNELS",
           "KernelMissing", "Lab", "PROVIDERS", "Result", "TOP", "new_logdir"]

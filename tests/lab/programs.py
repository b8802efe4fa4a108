# SPDX-License-Identifier: GPL-2.0
"""Programs of this folder, as modules for each other."""

import importlib.machinery
import importlib.util
import pathlib


def program(name):
    """One of them, as a module."""
    loader = importlib.machinery.SourceFileLoader(
        name, str(pathlib.Path(__file__).with_name(name)))
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module

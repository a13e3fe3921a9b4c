"""Names of a package that are imported when they are asked for.

For packages whose users need a part of them: what is not asked for is not loaded, and need not be
there. This module must not import what it finds homes for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["homes"]


def homes(package: str, modules: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """The ``__getattr__`` of `package`: each module of `modules` (relative ones begin with a dot)
    is the home of its names."""
    home_of = {name: module for module, names in modules.items() for name in names}

    def find(name: str) -> Any:
        home = home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home, package), name)
        setattr(sys.modules[package], name, value)
        return value

    return find

"""Lazy imports: names of a package that are imported on first access.

For packages whose users need only some of their names: a name that is not used is not loaded, and
its dependencies need not be installed. This module must not import the modules it resolves.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(package: str, modules: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of `package`, which imports each name from its module.

    `modules` maps modules (relative ones begin with a dot) to their names.
    """
    home_of = {name: module for module, names in modules.items() for name in names}

    def find(name: str) -> Any:
        home = home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home, package), name)
        setattr(sys.modules[package], name, value)
        return value

    return find

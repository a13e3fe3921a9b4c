"""Which hook leads to a kind of source: the class whose connections have the kind for their type.

The provider's manifest says it, so that commands and the page know no kind by its name. Imports the
module of the hook that is asked for, and reads no connection.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tubemq_provider.get_provider_info import get_provider_info

__all__ = ["hook_class"]


def hook_class(source: str) -> type[Any] | None:
    """The hook of connections of the type `source`; None where no type has that name."""
    kinds: Any = get_provider_info()["connection-types"]
    for kind in kinds:
        if kind["connection-type"] == source:
            module, _, name = kind["hook-class-name"].rpartition(".")
            found: type[Any] = getattr(import_module(module), name)
            return found
    return None

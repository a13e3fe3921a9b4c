"""Hook class of a kind of source: the one whose connections have the kind as their type.

Read from the provider's manifest, or made for a plug-in, so that commands and the page hard-code no
kind. Imports the module of the requested hook, and reads no connection.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tubemq_provider.extensions import is_known
from tubemq_provider.get_provider_info import get_provider_info
from tubemq_provider.hooks.plugin import plugin_hook


def hook_class(source: str) -> type[Any] | None:
    """Return the hook of connections of type `source`; None for an unknown type."""
    kinds: Any = get_provider_info()["connection-types"]
    for kind in kinds:
        if kind["connection-type"] == source:
            module, _, name = kind["hook-class-name"].rpartition(".")
            hook: type[Any] = getattr(import_module(module), name)
            return hook
    if is_known("source", source):
        return plugin_hook(source)
    return None

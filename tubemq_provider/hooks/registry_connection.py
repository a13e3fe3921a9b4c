"""Schema registries of decode specs, opened from Airflow connections.

A connection of type ``http``: its host (or whole address), port, schema (``https``), login and
password. This module must not ask a registry anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tubemq_client.errors import ConfigError
from tubemq_provider.rows.registry import SchemaRegistry, register

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from tubemq_provider.rows.spec import DecodeSpec

__all__ = ["open_registries"]


def open_registries(
    specs: Iterable[DecodeSpec | None], connection: Callable[[str], Connection]
) -> None:
    """Register the registry of each spec that names one. Raises `ConfigError`."""
    for name in sorted({name for spec in specs if spec is not None for name in spec.registries}):
        found = connection(name)
        if not found.host:
            raise ConfigError(f"connection {name!r} has no host", subject="schema_registry")
        url = found.host
        if "://" not in url:
            url = f"{found.schema or 'http'}://{url}"
        if found.port:
            url = f"{url}:{found.port}"
        register(name, SchemaRegistry(url, found.login, found.password))

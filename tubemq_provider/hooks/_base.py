"""Bases of the hooks of every kind of source: one validated connection, blocking or on asyncio.

A kind's hook names the model of its connection and opens its clients. Imports no client. Private to
this room.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

from airflow.sdk import BaseHook

from tubemq_client import errors
from tubemq_provider.hooks.connection import ConnectionFields

ConfigT = TypeVar("ConfigT", bound=ConnectionFields)


class ClusterHook(BaseHook, Generic[ConfigT]):
    """Hook of one connection, whose id is the attribute that `conn_name_attr` names."""

    conn_name_attr: ClassVar[str]
    model: ClassVar[type[Any]]
    """Model of the connection."""

    def __init__(self, consumer_config: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.consumer_config = dict(consumer_config or {})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._conn_id!r})"

    @property
    def _conn_id(self) -> str:
        return str(getattr(self, self.conn_name_attr))

    @cached_property
    def config(self) -> ConfigT:
        """Validated connection. Raises `errors.ConfigError` that lists every problem."""
        config: ConfigT = self.model.from_connection(self.get_connection(self._conn_id))
        return config

    @property
    def cluster(self) -> str:
        """The cluster's alias: the connection's field, or else the connection id."""
        return self.config.cluster

    def expect_cluster(self, cluster: str) -> None:
        """Raise `errors.ConfigError` unless the connection's cluster is `cluster`.

        Assets are named when a Dag is parsed, before any connection may be read. This check
        compares the two, so that offsets are never stored under another cluster's name.
        """
        if self.cluster != cluster:
            raise errors.ConfigError(
                f"connection {self._conn_id!r} says cluster {self.cluster!r}, the task says "
                f"{cluster!r}: pass cluster={self.cluster!r} to the task, "
                f"or set 'cluster' among the extras of the connection to {cluster!r}",
                subject="cluster",
            )


class AsyncClusterHook(Generic[ConfigT]):
    """Hook of the connection `conn_id` for look-ups without blocking, in one event loop."""

    model: ClassVar[type[Any]]
    """Model of the connection."""

    def __init__(self, conn_id: str, consumer_config: Mapping[str, Any] | None = None) -> None:
        self._conn_id = conn_id
        self._consumer_config = dict(consumer_config or {})
        self._config: ConfigT | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._conn_id!r})"

    async def config(self) -> ConfigT:
        """Return the validated connection. Raises `errors.ConfigError` with every problem."""
        if self._config is None:
            connection = await BaseHook.aget_connection(self._conn_id)
            self._config = self.model.from_connection(connection)
        return self._config

    async def settings(self) -> Any:
        """Return the client's settings, with the options of reading. Raises
        `errors.ConfigError`."""
        return (await self.config()).reader_settings(self._consumer_config)

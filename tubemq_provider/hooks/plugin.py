"""Hook of connections for sources that another distribution brings.

The options are the extra of the connection, with host, port, login, password and schema where these
are set; the source's own model judges them. Imports no client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseHook

from tubemq_client import errors
from tubemq_provider.hooks.connection import extra_fields
from tubemq_provider.sources.consumer_config import consumer_options_of
from tubemq_provider.sources.registry import config_of, open_source
from tubemq_provider.windows.spaces import source_module

if TYPE_CHECKING:
    from tubemq_provider.sources.base import Source
    from tubemq_provider.windows.spaces import Ends

__all__ = ["PluginHook", "plugin_hook"]


class PluginHook(BaseHook):
    """Hook of the connection `conn_id`; `plugin_hook` makes the class of one kind of source.

    ``cluster`` in the extra is the alias of the cluster; by default it is the connection id.
    """

    admin_url: ClassVar[str | None] = None
    conn_name_attr: ClassVar[str] = "conn_id"
    conn_type: ClassVar[str]
    default_conn_name: ClassVar[str]

    def __init__(self, conn_id: str, consumer_config: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.conn_id, self.consumer_config = conn_id, dict(consumer_config or {})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.conn_id!r})"

    @cached_property
    def _options(self) -> dict[str, Any]:
        connection = self.get_connection(self.conn_id)
        names = ("host", "port", "login", "password", "schema")
        fields = {name: getattr(connection, name, None) for name in names}
        return {
            **{name: value for name, value in fields.items() if value not in (None, "")},
            **extra_fields(connection),
        }

    @property
    def cluster(self) -> str:
        """The cluster's alias: ``cluster`` in the extra, or else the connection id."""
        return str(self._options.get("cluster", self.conn_id))

    def expect_cluster(self, cluster: str) -> None:
        """Raise `errors.ConfigError` unless the connection's cluster is `cluster`."""
        if self.cluster != cluster:
            raise errors.ConfigError(
                f"connection {self.conn_id!r} says cluster {self.cluster!r}, the task says "
                f"{cluster!r}: pass cluster={self.cluster!r} to the task",
                subject="cluster",
            )

    def get_settings(self) -> Any:
        """Return the settings that the source's model makes of the connection, with the options of
        `consumer_config`, if the source takes them, in their place.

        Raises `errors.ConfigError` with every problem.
        """
        options = {name: value for name, value in self._options.items() if name != "cluster"}
        try:
            settings = config_of(self.conn_type).parse(options).settings()
        except errors.ConfigError as exc:
            raise errors.ConfigError(exc.problems, subject=f"connection {self.conn_id!r}") from None
        if not self.consumer_config:
            return settings
        return consumer_options_of(self.conn_type).applied(settings, self.consumer_config)

    @property
    def servers(self) -> str:
        """Addresses, if the source's settings have them under this name."""
        return str(getattr(self.get_settings(), "servers", ""))

    def test_connection(self) -> tuple[bool, str]:
        """Ask the cluster, if the source's module has `test_connection`; else judge the options."""
        try:
            settings = self.get_settings()
            test = getattr(source_module(self.conn_type), "test_connection", None)
            return True, "the options are valid" if test is None else str(test(settings))
        except errors.TubeMQError as exc:
            return False, str(exc)

    def source(self, topic: str, group: str, filters: Sequence[str] = ()) -> Source:
        """Return the source that windows of `group` are planned from and read."""
        return open_source(
            self.conn_type,
            self.get_settings(),
            identity=self.cluster,
            topic=topic,
            group=group,
            filters=filters,
        )

    def reachable_ends(self, topic: str, group: str, *, stable: bool) -> Mapping[Any, Ends]:
        """Return the ends of the partitions whose brokers answer."""
        with self.source(topic, group) as source:
            return source.ends("stable" if stable else "latest")

    def group_offsets(self, topic: str, group: str) -> Mapping[Any, int | None]:  # noqa: ARG002 - of every kind of hook
        """Raise `errors.ConfigError`: a source is not asked for positions at its brokers."""
        raise errors.ConfigError(
            f"offsets at the brokers are not available for {self.conn_type}", subject="brokers"
        )

    def observed_ends(self, topic: str) -> Mapping[Any, Ends]:
        """Return stable ends for the web page, which looks without a group."""
        return self.reachable_ends(topic, "observer", stable=True)


@cache
def plugin_hook(source: str) -> type[PluginHook]:
    """Return the class of hooks of the kind `source`, whose connections have it as their type."""
    members = {"conn_type": source, "default_conn_name": f"{source}_default"}
    return type("PluginHook", (PluginHook,), {**members, "__module__": __name__})

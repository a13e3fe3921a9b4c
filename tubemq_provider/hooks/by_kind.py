"""Hook class of a kind of source: the one whose connections have the kind as their type.

Read from the provider's manifest, or made for a plug-in, so that commands and the page hard-code no
kind. Imports the module of the requested hook, and reads no connection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from tubemq_provider.extensions import is_known
from tubemq_provider.get_provider_info import get_provider_info
from tubemq_provider.hooks.plugin import plugin_hook

if TYPE_CHECKING:
    from tubemq_provider.sources.base import Source
    from tubemq_provider.windows.spaces import Ends


class TopicHook(Protocol):
    """Hook of one connection, as tasks and commands use it for any kind of source."""

    @property
    def cluster(self) -> str:
        """Alias of the cluster."""

    @property
    def servers(self) -> str:
        """Servers of the connection, as text."""

    @property
    def admin_url(self) -> str | None:
        """HTTP address of the admin page in the connection."""

    def expect_cluster(self, cluster: str) -> None:
        """Raise `errors.ConfigError` unless the connection's cluster is `cluster`."""

    def source(self, topic: str, group: str, filters: Sequence[str] = ()) -> Source:
        """Return the source that windows of `group` are planned from and read."""

    def reachable_ends(self, topic: str, group: str, *, stable: bool) -> Mapping[Any, Ends]:
        """Return the ends of the partitions whose brokers answer."""

    def group_offsets(self, topic: str, group: str) -> Mapping[Any, int | None]:
        """Return the brokers' offsets of `group`, by partition."""

    def get_connection(self, conn_id: str) -> Any:
        """Return any connection, such as the sink's."""

    def test_connection(self) -> tuple[bool, str]:
        """Test it, and return success and a report."""


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

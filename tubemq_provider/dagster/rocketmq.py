"""RocketMQ for Dagster: the same assets over another resource, and another resolver.

The work of an asset is in `ingest`; here are only the resource and defaults. It connects to nothing
when definitions are loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any

import dagster as dg
from pydantic import Field

from rocketmq_client.config import ClientConfig
from rocketmq_client.model import ClientSettings
from tubemq_client.config import from_file
from tubemq_provider.dagster.ingest import build_tubemq_asset
from tubemq_provider.dagster.resource import SourceResource
from tubemq_provider.ingest.validation import ClusterAlias
from tubemq_provider.sources.rocketmq.source import RocketMQSource
from tubemq_provider.sources.rocketmq.space import SPACE
from tubemq_provider.windows.protocols import Sink

__all__ = ["RocketMQResource", "build_rocketmq_asset"]


class RocketMQResource(SourceResource):
    """RocketMQ cluster, and the directory with the progress of its groups."""

    name_servers: str = Field(description="host:port[;host:port…] of the name servers")
    cluster: ClusterAlias = Field(
        "rocketmq", description="alias of the cluster in window ids; never change it for a group"
    )
    options: dict[str, str] = Field(
        default_factory=dict, description="further client options, such as rpc_timeout_ms"
    )
    access_key: str | None = Field(None, description="the key, if the brokers ask for one")
    secret_key: str | None = Field(
        None, repr=False, description="signs requests; give it as an EnvVar"
    )
    config_file: str | None = Field(
        None, description="file of client options (TOML), such as those of TLS"
    )

    def settings(self) -> ClientSettings:
        """Return the client's settings; fields here override the file.

        Raises `errors.ConfigError` that lists every problem.
        """
        options = dict(from_file(self.config_file)) if self.config_file else {}
        options.update(self.options, name_servers=self.name_servers)
        if self.access_key or self.secret_key:
            options["auth"] = {
                "access_key": self.access_key or "",
                "secret_key": self.secret_key or "",
            }
        return ClientConfig.parse(options).settings()

    def source(self, topic: str, group: str, filters: Sequence[str] = ()) -> RocketMQSource:
        """Return the source that windows of `group` are planned from and read; filters are tags.

        Connects to nothing yet.
        """
        return RocketMQSource(
            self.settings(), identity=self.cluster, topic=topic, group=group, tags=filters
        )


def build_rocketmq_asset(
    name: str,
    *,
    topic: str,
    group: str,
    sink: str | PathLike[str] | Sink,
    partitions_def: dg.TimeWindowPartitionsDefinition | None = None,
    resource_key: str = "rocketmq",
    **options: Any,
) -> dg.AssetsDefinition:
    """Return an asset that ingests `topic` of RocketMQ into `sink`, exactly once.

    Takes the arguments of `build_tubemq_asset`. Partitions are queues (``broker-a:0``), `filters`
    are
    tags, and with `partitions_def` a window has the records that brokers stored in its interval
    (``resolver="store_time"``) unless `boundaries` or another `resolver` is given.
    """
    if partitions_def is not None and options.get("boundaries") is None:
        options.setdefault("resolver", "store_time")
    return build_tubemq_asset(
        name,
        topic=topic,
        group=group,
        sink=sink,
        partitions_def=partitions_def,
        resource_key=resource_key,
        source=SPACE.source,
        **options,
    )

"""HTTP administration of masters and brokers: topics, brokers, groups, positions, lag, history.

Needs the `admin` extra (httpx), imported when a client is created. Nothing here registers a
consumer; positions move only in methods that document it, and those methods take `dry_run`. The
client for asyncio is imported on first use: Spark's executors do not get it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubemq_client._lazy import lazy_names
from tubemq_client.admin._web import web_urls
from tubemq_client.admin.client import AdminClient
from tubemq_client.admin.model import (
    BrokerInfo,
    BrokerStatus,
    ClusterSettings,
    ConsumeControl,
    GroupDetail,
    GroupInfo,
    GroupLag,
    GroupMember,
    MasterGroup,
    MasterNode,
    OffsetChange,
    PartitionPosition,
    PositionSample,
    ResourceControl,
    TopicControl,
    TopicDeployment,
    TopicInfo,
    TopicProperties,
)

if TYPE_CHECKING:
    from tubemq_client.admin.aio import AsyncAdminClient

__all__ = [
    "AdminClient",
    "AsyncAdminClient",
    "BrokerInfo",
    "BrokerStatus",
    "ClusterSettings",
    "ConsumeControl",
    "GroupDetail",
    "GroupInfo",
    "GroupLag",
    "GroupMember",
    "MasterGroup",
    "MasterNode",
    "OffsetChange",
    "PartitionPosition",
    "PositionSample",
    "ResourceControl",
    "TopicControl",
    "TopicDeployment",
    "TopicInfo",
    "TopicProperties",
    "web_urls",
]
__getattr__ = lazy_names(__name__, {".aio": ("AsyncAdminClient",)})

"""Ingest operators of RocketMQ, one window of a topic into a sink, and samples of queue ends.

The operators of TubeMQ with another hook and source: planning, retries, stores, sinks and events of
a window are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tubemq_provider.hooks.failures import ErrorContext
from tubemq_provider.hooks.rocketmq import RocketMQHook, error_context
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator, TubeMQWindowIngestOperator
from tubemq_provider.operators.sample import TubeMQSampleEndsOperator
from tubemq_provider.sources.rocketmq.space import SPACE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubemq_provider.ingest.values import Value
    from tubemq_provider.operators.base import IngestOperator

__all__ = [
    "RocketMQCursorIngestOperator",
    "RocketMQSampleEndsOperator",
    "RocketMQWindowIngestOperator",
]


def _template_fields(kind: type[IngestOperator]) -> tuple[str, ...]:
    names = (name for name in kind.template_fields if name != "tubemq_conn_id")
    return (*names, "rocketmq_conn_id")


class _OnRocketMQ:
    """Source and connection of the operators of RocketMQ."""

    ui_color = "#f6d9c6"
    source = SPACE.source
    rocketmq_conn_id: str
    topic: str
    group: str

    def _hook(self) -> RocketMQHook:
        return RocketMQHook(self.rocketmq_conn_id)

    def _error_context(self) -> ErrorContext:
        return error_context(self.rocketmq_conn_id, self.topic, self.group)


class RocketMQCursorIngestOperator(_OnRocketMQ, TubeMQCursorIngestOperator):
    """Write the next window of `topic` into a sink: from where the group's last one ended to the
    end of the queues; each record once, retried or not.

    Takes the arguments of `TubeMQCursorIngestOperator`, with these differences. Partitions are
    queues (``broker-a:0``), offsets count records, `filters` are tags. Progress is stored on the
    offsets asset ``rocketmq:<cluster>/<topic>/<group>``. Brokers see ``<group>_reader``, which has
    no members and commits nothing.

    :param rocketmq_conn_id: the connection; also the cluster's alias unless `cluster` is given.
    """

    template_fields: Sequence[str] = _template_fields(TubeMQCursorIngestOperator)

    def __init__(
        self,
        *,
        rocketmq_conn_id: str = RocketMQHook.default_conn_name,
        cluster: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.rocketmq_conn_id = rocketmq_conn_id
        super().__init__(cluster=cluster or rocketmq_conn_id, **kwargs)


class RocketMQWindowIngestOperator(_OnRocketMQ, TubeMQWindowIngestOperator):
    """Write one window of `topic`, of time or of explicit offsets, into a sink: each record once,
    retried or not.

    Takes the arguments of `TubeMQWindowIngestOperator`, with the differences that
    `RocketMQCursorIngestOperator` has, and these.

    :param rocketmq_conn_id: the connection; also the cluster's alias unless `cluster` is given.
    :param resolver: ``store_time`` (default without explicit offsets or boundaries), or
        `StoreTime(late_allowance=…)`: the brokers' own time of storing. ``boundaries`` and
        ``explicit`` as for the other source; ``timeline`` uses the samples of
        `RocketMQSampleEndsOperator`.
    """

    template_fields: Sequence[str] = _template_fields(TubeMQWindowIngestOperator)

    def __init__(
        self,
        *,
        rocketmq_conn_id: str = RocketMQHook.default_conn_name,
        cluster: str | None = None,
        resolver: str | Value | None = None,
        **kwargs: Any,
    ) -> None:
        self.rocketmq_conn_id = rocketmq_conn_id
        offset_arguments = ("boundaries", "starting_offsets", "ending_offsets")
        if resolver is None and not any(kwargs.get(name) for name in offset_arguments):
            resolver = "store_time"
        super().__init__(cluster=cluster or rocketmq_conn_id, resolver=resolver, **kwargs)


class RocketMQSampleEndsOperator(_OnRocketMQ, TubeMQSampleEndsOperator):
    """Add one sample of `topic`'s ends to the timeline of `group`, for ``resolver="timeline"``.

    Like `TubeMQSampleEndsOperator`, on the offsets asset ``rocketmq:<cluster>/<topic>/<group>``. A
    run records nothing while a broker does not answer. The default of time windows, the brokers'
    own store time, needs no samples.

    :param rocketmq_conn_id: the connection; also the cluster's alias unless `cluster` says another.
    """

    ui_color = "#f6e3d6"

    def __init__(
        self,
        *,
        topic: str,
        group: str,
        rocketmq_conn_id: str = RocketMQHook.default_conn_name,
        cluster: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.rocketmq_conn_id = rocketmq_conn_id
        super().__init__(topic=topic, group=group, cluster=cluster or rocketmq_conn_id, **kwargs)

"""`TubeMQSampleEndsOperator`: sample the current ends of a topic's logs.

Each run adds one sample of (time, ends) to the offsets asset's state; the `timeline` resolver turns
such samples into the offsets of an instant. Run it from a separate Dag, every minute or so. It
reads no record and moves no position.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from tubemq_client.errors import ConfigError
from tubemq_provider._airflow import needs_asset_state
from tubemq_provider.assets import declared, offsets_asset
from tubemq_provider.extensions import BUILT_IN
from tubemq_provider.hooks.by_kind import TopicHook, hook_class
from tubemq_provider.hooks.failures import ErrorContext, fatal_errors_fail_the_task
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.offsets.asset_state import AssetTimeline
from tubemq_provider.rendered import RefusesEmptyRendering
from tubemq_provider.task_arguments import (
    ClusterAlias,
    SourceGroup,
    SourceTopic,
    TaskArguments,
    check_literals,
    is_mapped,
    parse,
    require_inlet,
)
from tubemq_provider.windows.canonical import rfc3339
from tubemq_provider.windows.spaces import FIRST_SOURCE, space_of
from tubemq_provider.windows.time_resolvers.samples import instant_of
from tubemq_provider.windows.time_resolvers.timeline import record_sample

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context


__all__ = ["TubeMQSampleEndsOperator"]


class SampleArguments(TaskArguments):
    """Arguments of `TubeMQSampleEndsOperator`."""

    source: str = FIRST_SOURCE
    topic: SourceTopic
    group: SourceGroup
    cluster: ClusterAlias


class TubeMQSampleEndsOperator(RefusesEmptyRendering, BaseOperator):
    """Add one sample of `topic`'s ends to the timeline of `group`.

    The ends are those in memory, fetched after the clock was read: all records that had arrived by
    then are below them. The timeline is the key ``watch`` of the offsets asset's state; the asset
    becomes an inlet of the task (so Airflow keeps the state), and no event is emitted. A run that
    fails records nothing, and windows then wait for the next sample.

    :param topic: topic to sample. Names an asset, so no template; so do `group` and `cluster`.
    :param group: group whose windows use the timeline.
    :param tubemq_conn_id: the connection.
    :param cluster: the connection's cluster alias; needed where that is not the connection id.
    :param source: kind of the topic, if a plug-in brings it.

    A mapped task needs ``inlets=[offsets_asset(cluster, topic, group)]`` in its ``.partial()``.

    XCom: ``{"at", "samples", "since", "ends": {"1/0": 2800}}``; `ends` are keyed by store.
    """

    template_fields: Sequence[str] = ()
    ui_color = "#d6eef2"
    source: str = FIRST_SOURCE
    """Kind of source; subclasses for another kind override it."""

    def __init__(
        self,
        *,
        topic: str,
        group: str,
        tubemq_conn_id: str = TubeMQHook.default_conn_name,
        cluster: str | None = None,
        source: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if source not in (None, self.source):
            space_of(str(source))
            if self.source != FIRST_SOURCE or source in BUILT_IN["source"]:
                raise ConfigError(
                    f"{type(self).__name__} samples {self.source}; {source!r} has an operator of "
                    f"its own",
                    subject="source",
                )
            self.source = str(source)
        self.tubemq_conn_id = tubemq_conn_id
        self.topic, self.group, self.cluster = topic, group, cluster or tubemq_conn_id
        check_literals(
            SampleArguments,
            self._arguments(),
            static=dict.fromkeys(SampleArguments.model_fields, "it names the offsets asset"),
            task=self,
        )
        self.offsets_asset = offsets_asset(self.cluster, topic, group, self.source)
        if not is_mapped(self) and not declared(self.offsets_asset, self.inlets):
            self.inlets = [*self.inlets, self.offsets_asset]

    def execute(self, context: Context) -> dict[str, Any]:
        """Add a sample: one look-up per store, one read and one write of the asset's state."""
        with fatal_errors_fail_the_task(self.log, about=self._error_context()):
            arguments = parse(SampleArguments, self._arguments())
            hook = self._hook()
            hook.expect_cluster(arguments.cluster)
            require_inlet(self, self.offsets_asset)
            store: Any = context.get("asset_state_store")
            if store is None:
                raise ConfigError(needs_asset_state("a timeline of ends"), subject="Airflow")
            timeline = record_sample(
                arguments.topic,
                AssetTimeline(store[self.offsets_asset]),
                lambda: hook.reachable_ends(arguments.topic, arguments.group, stable=False),
                lambda: datetime.now(UTC),
                source=self.source,
            )
        newest = timeline.samples[-1]
        return {
            "at": rfc3339(instant_of(newest.at_ms)),
            "samples": len(timeline.samples),
            "since": rfc3339(instant_of(timeline.samples[0].at_ms)),
            "ends": dict(newest.ends),
        }

    def _hook(self) -> TopicHook:
        kind: Any = hook_class(self.source)
        hook: TopicHook = kind(self.tubemq_conn_id)
        return hook

    def _error_context(self) -> ErrorContext:
        return ErrorContext(self.tubemq_conn_id, self.topic, self.group)

    def _arguments(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in SampleArguments.model_fields}

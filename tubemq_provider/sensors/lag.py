"""`TubeMQLagSensor`: wait until a group has a minimum lag.

The natural guard before a cursor window: it uses the same ends and the same position as the ingest
task, and reads nothing. Positions are either those that Airflow stores on the offsets asset, or
those that brokers keep for TubeMQ's own consumers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from airflow.sdk import PokeReturnValue
from pydantic import Field

from tubemq_provider.assets import declared, offsets_asset
from tubemq_provider.hooks.metrics import gauge_group
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.offsets.group_position import inlet_position
from tubemq_provider.sensors._base import End, SensorArguments, TubeMQSensor, ends_document
from tubemq_provider.task_arguments import (
    ClusterAlias,
    SourceGroup,
    SourceTopic,
    check_literals,
    is_mapped,
    parse,
    require_inlet,
)
from tubemq_provider.windows.lag import lag_between, regressed
from tubemq_provider.windows.spaces import FIRST_SOURCE, space_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Asset, Context

    from tubemq_provider.triggers.offsets import TubeMQOffsetTrigger
    from tubemq_provider.windows.spaces import Ends

__all__ = ["TubeMQLagSensor"]

Of = Literal["cursor", "broker"]

_LOOK_AGAIN_S: Final = 3600.0
"""Seconds after which a deferred sensor reads the position again."""


class LagArguments(SensorArguments):
    """Arguments of `TubeMQLagSensor`."""

    topic: SourceTopic
    group: SourceGroup
    cluster: ClusterAlias
    of: Of = "cursor"
    min_lag: int = Field(1, ge=1)
    end: End = "stable"

    def cross_field_problems(self, unknown: frozenset[str]) -> list[str]:
        """Refuse positions at brokers of kinds whose brokers are not asked for them."""
        if unknown & {"of", "source"} or self.of == "cursor" or self.source == FIRST_SOURCE:
            return []
        return [f"of='broker' is not available for {self.source}; say of='cursor'"]


class TubeMQLagSensor(TubeMQSensor):
    """Succeed when `group` has a lag of at least `min_lag` index entries on `topic`.

    Lag is Σ over stores of max(end - position), in entries: an upper bound on records, since
    partitions of a store share its log and filters leave records out.

    :param topic: topic to check.
    :param group: group that the position belongs to.
    :param of: ``cursor``: the position that the ingest task keeps on the offsets asset (the newer
        of cursor, in asset state or the ledger, and commit event); without any, everything in the
        logs is lag. ``broker``: the position that brokers keep for the group, asked over HTTP (see
        the connection's admin URL).
    :param min_lag: index entries to wait for.
    :param end: ``stable`` (on the broker's disk; what windows plan with) or ``latest`` (in its
        memory; a window may not take it yet, so expect empty ones).
    :param tubemq_conn_id: the connection.
    :param cluster: the connection's cluster alias; needed where that is not the connection id.
    :param deferrable: wait in the triggerer, without a worker slot. Default: Airflow's
        ``[operators] default_deferrable``.
    :param source: kind of the topic, if a plug-in brings it.
    :param consumer_config: options of the client, as the ingest operators take them.
    :param wait_for_topic: False fails the task if the topic does not exist, instead of waiting.

    A mapped sensor needs ``inlets=[offsets_asset(cluster, topic, group)]`` in its ``.partial()``.

    A log that ends before the position has no lag, but waiting does not help: a broker lost records
    or the topic was recreated. The sensor then succeeds with a warning, so that the ingest task
    fails with advice, or follows its `on_offset_regression`.

    Deferred, it detects new records at once, and a position that was moved back within an hour.

    XCom: ``{"topic", "group", "of", "end", "ends": {"1:0": 2800}, "positions", "lag",
    "lag_by_store", "regressed": {"1:0": [position, end]}}``.
    """

    template_fields: Sequence[str] = ("min_lag", "consumer_config")
    model = LagArguments
    ui_color = "#d6eef2"

    def __init__(
        self,
        *,
        topic: str,
        group: str,
        of: Of = "cursor",
        min_lag: int | str = 1,
        end: End = "stable",
        tubemq_conn_id: str = TubeMQHook.default_conn_name,
        cluster: str | None = None,
        source: str = FIRST_SOURCE,
        **kwargs: Any,
    ) -> None:
        super().__init__(topic=topic, tubemq_conn_id=tubemq_conn_id, end=end, **kwargs)
        self._choose_source(source)
        self.group = group
        self.of = of
        self.min_lag = min_lag
        self.cluster = cluster or tubemq_conn_id
        self._looked_from: dict[str, int] = {}
        reason = "it names the offsets asset, which Airflow must know before a run"
        static = dict.fromkeys(("source", "topic", "group", "cluster"), reason)
        check_literals(LagArguments, self._arguments(), static=static, task=self)
        asset = offsets_asset(self.cluster, topic, group, self.source)
        if of == "cursor" and not is_mapped(self) and not declared(asset, self.inlets):
            # Only the state and events of a task's inlets can be read.
            self.inlets = [*self.inlets, asset]

    def look(self, context: Context) -> PokeReturnValue:
        """Check position and ends once."""
        arguments = parse(LagArguments, self._arguments())
        hook = self.hook
        hook.expect_cluster(arguments.cluster)
        if arguments.of == "cursor":
            require_inlet(self, self._asset(arguments))
        positions = self._positions(arguments, hook, context)
        self._looked_from = {partition.key: offset for partition, offset in positions.items()}
        stable = arguments.end == "stable"
        ends = hook.reachable_ends(arguments.topic, arguments.group, stable=stable)
        report = _report(arguments, ends, positions)
        shorter = regressed(ends, positions)
        if shorter and arguments.of == "broker":
            # Consumers commit offsets of records in memory; only an end before those is a shorter
            # log.
            latest = hook.ends(arguments.topic, arguments.group, stable=False)
            shorter = regressed(latest, positions)
            # Otherwise the trigger would treat records in memory as a shorter log, and fire at
            # once, again and again, until the broker has written them to disk.
            self._looked_from |= {
                partition_.key: min(offset, ends[partition_].max_offset)
                for partition_, offset in positions.items()
                if partition_ in ends
            }
        report["regressed"] = shorter
        if shorter:
            self.log.warning(
                "logs of topic %s end before the position of the group (partition: position, end): "
                "%s; broker lost records, or the topic was recreated. The wait ends, as waiting "
                "does not help: the ingest task has the advice",
                arguments.topic,
                shorter,
            )
        self.log.info("lag %s of at least %s", report["lag"], arguments.min_lag)
        gauge_group(arguments.cluster, arguments.topic, arguments.group, lag=report["lag"])
        done = bool(shorter) or report["lag"] >= arguments.min_lag
        return PokeReturnValue(is_done=done, xcom_value=report)

    def trigger(self) -> TubeMQOffsetTrigger:
        """Return a trigger that fires when ends are `min_lag` ahead of the last position."""
        from tubemq_provider.triggers.offsets import TubeMQOffsetTrigger

        arguments = parse(LagArguments, self._arguments())
        return TubeMQOffsetTrigger(
            group=arguments.group,
            min_lag=arguments.min_lag,
            positions=self._looked_from,
            # The sensor has just checked. If it found no position, the trigger counts everything as
            # lag, and the two would call each other without a pause.
            first_look_after=self.poke_interval,
            # The position may be moved back, which the trigger does not notice.
            look_again_after=_LOOK_AGAIN_S,
            tubemq_conn_id=self.tubemq_conn_id,
            **self._trigger_options(),
        )

    @staticmethod
    def _asset(arguments: LagArguments) -> Asset:
        return offsets_asset(arguments.cluster, arguments.topic, arguments.group, arguments.source)

    def _positions(self, arguments: LagArguments, hook: Any, context: Context) -> dict[Any, int]:
        topic, group = arguments.topic, arguments.group
        if arguments.of == "broker":
            offsets: dict[Any, int] = hook.group_offsets(topic, group)
            return offsets
        stored = inlet_position(context, self._asset(arguments))
        space = space_of(arguments.source)
        return {space.partition(topic, key): offset for key, offset in stored.items()}


def _report(
    arguments: LagArguments,
    ends: Mapping[Any, Ends],
    positions: Mapping[Any, int],
) -> dict[str, Any]:
    lag = lag_between(ends, positions, space_of(arguments.source))
    return {
        "topic": arguments.topic,
        "group": arguments.group,
        "of": arguments.of,
        "end": arguments.end,
        "ends": ends_document(ends),
        "positions": {p.key: offset for p, offset in sorted(positions.items())},
        "lag": lag.total,
        "lag_by_store": dict(lag.stores),
    }

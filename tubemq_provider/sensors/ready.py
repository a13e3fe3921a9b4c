"""`TubeMQPartitionReadySensor`: wait until partitions can be read, up to given offsets.

The natural guard before a time window with known boundaries: the records are on a live broker, and
(with stable ends) on its disk. It reads nothing and moves no position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import PokeReturnValue

from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.sensors._base import End, SensorArguments, TubeMQSensor, ends_document
from tubemq_provider.task_arguments import (
    GivenOffsets,
    PartitionKeys,
    SourceGroup,
    SourceTopic,
    check_literals,
    is_template,
    offsets_for_topic,
    parse,
)
from tubemq_provider.windows.lag import lag_between
from tubemq_provider.windows.spaces import FIRST_SOURCE, space_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from tubemq_provider.triggers.offsets import TubeMQOffsetTrigger
    from tubemq_provider.windows.spaces import Ends

__all__ = ["TubeMQPartitionReadySensor"]

_LOOKUP_GROUP = "tubemq_ready"


class ReadyArguments(SensorArguments):
    """Arguments of `TubeMQPartitionReadySensor`."""

    topic: SourceTopic
    partitions: PartitionKeys | None = None
    until_offsets: GivenOffsets | None = None
    group: SourceGroup | None = None
    end: End = "stable"

    def cross_field_problems(self, unknown: frozenset[str]) -> list[str]:
        """Check offsets together with their topic."""
        if "topic" in unknown or is_template(self.until_offsets):
            return []
        try:
            self.until()
        except ValueError as exc:
            return [str(exc)]
        return []

    def until(self) -> dict[str, int]:
        """Return offsets to wait for, by partition key."""
        if not self.until_offsets:
            return {}
        offsets = offsets_for_topic(
            self.until_offsets, self.topic, "until_offsets", source=self.source
        )
        return {key: int(offset) for key, offset in offsets.items()}


class TubeMQPartitionReadySensor(TubeMQSensor):
    """Succeed when every named partition is subscribable on a live broker and reaches its offset.

    :param topic: topic to check.
    :param partitions: partition keys such as ``["1:0", "2:0"]`` (or ``"1:0,2:0"``). Default: those
        of `until_offsets`, or else all that the master announces, at least one.
    :param until_offsets: ``{"1:0": 2800}`` or ``{"<topic>": {"1:0": 2800}}``, also as JSON: the
        partition's end must be at or beyond the offset. Empty, as of a task that had nothing to
        send: nothing to wait for.
    :param end: ``stable`` (on the broker's disk; what windows plan with) or ``latest`` (in its
        memory; a broker crash can take it back).
    :param group: consumer group for the look-ups (``<group>.e`` is used). Default: the
        connection's default group, or ``tubemq_ready``.
    :param tubemq_conn_id: the connection.
    :param deferrable: wait in the triggerer, without a worker slot. Default: Airflow's
        ``[operators] default_deferrable``.
    :param source: kind of the topic, if a plug-in brings it.
    :param consumer_config: options of the client, as the ingest operators take them.
    :param wait_for_topic: False fails the task if the topic does not exist, instead of waiting.

    XCom: ``{"topic", "end", "ends": {"1:0": 2800}, "lag", "lag_by_store"}``; here lag counts from
    the start of the logs: index entries a new group would find, an upper bound on records.
    """

    template_fields: Sequence[str] = (
        *("topic", "partitions", "until_offsets", "group"),
        "consumer_config",
    )
    model = ReadyArguments
    ui_color = "#d6eef2"

    def __init__(
        self,
        *,
        topic: str,
        partitions: Sequence[str] | str | None = None,
        until_offsets: Mapping[str, Any] | str | None = None,
        end: End = "stable",
        group: str | None = None,
        tubemq_conn_id: str = TubeMQHook.default_conn_name,
        source: str = FIRST_SOURCE,
        **kwargs: Any,
    ) -> None:
        super().__init__(topic=topic, tubemq_conn_id=tubemq_conn_id, end=end, **kwargs)
        self._choose_source(source)
        self.partitions = partitions
        self.until_offsets = until_offsets
        self.group = group
        check_literals(ReadyArguments, self._arguments(), static={}, task=self)

    def look(self, context: Context) -> PokeReturnValue:  # noqa: ARG002 - no state is needed here
        """Check partitions and ends once."""
        arguments = parse(ReadyArguments, self._arguments())
        until = arguments.until()
        if arguments.source == FIRST_SOURCE:
            missing, ends = self._at_brokers(arguments, until)
        else:
            hook, stable = self.hook, arguments.end == "stable"
            group = _look_up_group(arguments, hook)
            known = hook.reachable_ends(arguments.topic, group, stable=stable)
            partitions = _partitions_of(arguments, until, known)
            missing = [each.key for each in partitions if each not in known]
            ends = {each: known[each] for each in partitions if each in known}
        if missing or not ends:
            names = ", ".join(missing) or "no partition announced yet"
            self.log.info("not yet: %s of %s cannot be read", names, arguments.topic)
            return PokeReturnValue(is_done=False)
        short = _short(ends, until)
        if short:
            self.log.info("not yet: %s", "; ".join(short))
        return PokeReturnValue(is_done=not short, xcom_value=self._report(arguments, ends))

    def _at_brokers(
        self, arguments: ReadyArguments, until: Mapping[str, int]
    ) -> tuple[list[str], Mapping[Any, Ends]]:
        """Return partitions of TubeMQ that cannot be subscribed to, or the ends of all."""
        hook = self.hook
        group = _look_up_group(arguments, hook)
        with hook.get_conn() as client:
            metadata = client.topic(arguments.topic, group)
            partitions = _partitions_of(arguments, until, metadata.partitions)
            missing = [p for p in partitions if not metadata.partitions.get(p)]
            if missing or not partitions:
                return [p.key for p in missing], {}
            return [], client.ends(
                arguments.topic,
                group,
                partitions,
                stable=arguments.end == "stable",
                metadata=metadata,
            )

    def trigger(self) -> TubeMQOffsetTrigger:
        """Return a trigger that fires when the partitions exist and their ends reach the
        offsets."""
        from tubemq_provider.triggers.offsets import TubeMQOffsetTrigger

        arguments = parse(ReadyArguments, self._arguments())
        return TubeMQOffsetTrigger(
            group=_look_up_group(arguments, self.hook),
            until=arguments.until(),
            partitions=list(arguments.partitions or ()),
            tubemq_conn_id=self.tubemq_conn_id,
            **self._trigger_options(),
        )

    @staticmethod
    def _report(arguments: ReadyArguments, ends: Mapping[Any, Ends]) -> dict[str, Any]:
        lag = lag_between(ends, {}, space_of(arguments.source))
        return {
            "topic": arguments.topic,
            "end": arguments.end,
            "ends": ends_document(ends),
            "lag": lag.total,
            "lag_by_store": dict(lag.stores),
        }


def _look_up_group(arguments: ReadyArguments, hook: Any) -> str:
    if arguments.group is None and arguments.source == FIRST_SOURCE:
        return hook.config.default_group or _LOOKUP_GROUP
    return arguments.group or _LOOKUP_GROUP


def _partitions_of(
    arguments: ReadyArguments, until: Mapping[str, int], announced: Mapping[Any, Any]
) -> list[Any]:
    keys = {*(arguments.partitions or ()), *until}
    if not keys:
        return sorted(announced)
    space = space_of(arguments.source)
    return sorted(space.partition(arguments.topic, key) for key in keys)


def _short(ends: Mapping[Any, Ends], until: Mapping[str, int]) -> list[str]:
    """Return a sentence for each partition whose end is below its offset."""
    return [
        f"{partition.key} ends at {ends_there.max_offset}, {until[partition.key]} is wanted"
        for partition, ends_there in sorted(ends.items())
        if partition.key in until and ends_there.max_offset < until[partition.key]
    ]

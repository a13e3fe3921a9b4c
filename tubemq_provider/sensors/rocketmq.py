"""`RocketMQPartitionReadySensor` and `RocketMQLagSensor`: sensors on RocketMQ queues.

They use the RocketMQ hook on the base of all sensors, read nothing and move no position. Deferred,
they wait in the triggerer with `RocketMQOffsetTrigger`.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from airflow.sdk import PokeReturnValue
from pydantic import BeforeValidator, Field

from tubemq_provider.hooks.failures import ErrorContext
from tubemq_provider.hooks.rocketmq import RocketMQHook, error_context
from tubemq_provider.sensors._base import End, SensorArguments, TubeMQSensor, ends_document
from tubemq_provider.sources.rocketmq.space import SPACE
from tubemq_provider.task_arguments import (
    GivenOffsets,
    check_literals,
    is_template,
    offsets_for_topic,
    parse,
)
from tubemq_provider.triggers.rocketmq import RocketMQOffsetTrigger
from tubemq_provider.windows.canonical import in_utc
from tubemq_provider.windows.errors import WindowNotReady
from tubemq_provider.windows.lag import lag_between, regressed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from rocketmq_client.model import Queue, QueueEnds

__all__ = ["RocketMQLagSensor", "RocketMQPartitionReadySensor"]


def _instant(until: datetime | str | None) -> datetime | None:
    """Return an instant with a zone, from a datetime or the text of a template.

    The machine's zone must not decide which records are waited for.
    """
    instant = datetime.fromisoformat(until) if isinstance(until, str) else until
    if instant is not None and instant.utcoffset() is None:
        text = instant.isoformat()
        raise ValueError(f"{text} has no time zone; write {text}Z for UTC")
    return None if instant is None else in_utc(instant)


class ReadyArguments(SensorArguments):
    """Arguments of `RocketMQPartitionReadySensor`."""

    topic: str = Field(min_length=1)
    until_offsets: GivenOffsets | None = None
    until: Annotated[datetime | None, BeforeValidator(_instant)] = None
    end: End = "stable"

    def cross_field_problems(self, unknown: frozenset[str]) -> list[str]:
        """Check offsets together with their topic."""
        if unknown & {"topic", "until_offsets"} or is_template([self.topic, self.until_offsets]):
            return []
        try:
            self.offsets()
        except ValueError as exc:
            return [str(exc)]
        return []

    def offsets(self) -> dict[str, int]:
        """Return offsets to wait for, by queue key."""
        if not self.until_offsets:
            return {}
        offsets = offsets_for_topic(
            self.until_offsets, self.topic, "until_offsets", source=SPACE.source
        )
        return {key: int(offset) for key, offset in offsets.items()}


class LagArguments(SensorArguments):
    """Arguments of `RocketMQLagSensor`."""

    topic: str = Field(min_length=1)
    group: str = Field(min_length=1)
    min_records: int = Field(1, ge=1)
    end: End = "stable"


class _RocketMQSensor(TubeMQSensor):
    """Base with the connection."""

    source = SPACE.source

    def __init__(self, *, topic: str, rocketmq_conn_id: str, end: End, **kwargs: Any) -> None:
        super().__init__(topic=topic, tubemq_conn_id=rocketmq_conn_id, end=end, **kwargs)
        self.rocketmq_conn_id = rocketmq_conn_id

    def error_context(self) -> ErrorContext:
        """Return the connection, and how to test it."""
        return error_context(self.rocketmq_conn_id, self.topic)

    @property
    def hook(self) -> RocketMQHook:
        """Hook of the sensor's connection."""
        return RocketMQHook(self.rocketmq_conn_id, **self._reading())

    def _ends(self) -> Mapping[Queue, QueueEnds]:
        return self.hook.ends(self.topic, stable=self.end == "stable")

    def _trigger(self, **condition: Any) -> RocketMQOffsetTrigger:
        return RocketMQOffsetTrigger(
            rocketmq_conn_id=self.rocketmq_conn_id, **self._trigger_options(), **condition
        )


class RocketMQPartitionReadySensor(_RocketMQSensor):
    """Succeed when every named queue can be read and reaches its offset, or an instant is over.

    :param topic: topic to check.
    :param until_offsets: ``{"broker-a:0": 2800}`` or ``{"<topic>": {"broker-a:0": 2800}}``, also as
        JSON: the queue's end must be at or beyond it.
    :param until: an instant, RFC 3339 or datetime: succeed when no record with an earlier store
        time can
        arrive, by every broker's own clock, and ends reach all of them. The condition of a window
        of time with ``store_time``.
    :param end: ``stable`` (on the brokers' disks) or ``latest``.
    :param rocketmq_conn_id: the connection.
    :param deferrable: wait in the triggerer, without a worker slot. Default: Airflow's
        ``[operators] default_deferrable``.
    :param consumer_config: options of the client, as the ingest operators take them.
    :param wait_for_topic: False fails the task if the topic does not exist, instead of waiting.

    XCom: ``{"topic", "end", "ends": {"broker-a:0": 2800}}``.
    """

    template_fields: Sequence[str] = ("topic", "until_offsets", "until", "consumer_config")
    model = ReadyArguments

    def __init__(
        self,
        *,
        topic: str,
        until_offsets: Mapping[str, Any] | str | None = None,
        until: datetime | str | None = None,
        end: End = "stable",
        rocketmq_conn_id: str = RocketMQHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(topic=topic, rocketmq_conn_id=rocketmq_conn_id, end=end, **kwargs)
        self.until_offsets = until_offsets
        self.until = until
        check_literals(ReadyArguments, self._arguments(), static={}, task=self)

    def look(self, context: Context) -> PokeReturnValue:  # noqa: ARG002 - no state is needed here
        """Check the queues and their ends once."""
        arguments = parse(ReadyArguments, self._arguments())
        offsets = arguments.offsets()
        if arguments.until is not None:
            try:
                before = self.hook.offset_at(self.topic, arguments.until)
            except WindowNotReady as error:
                self.log.info("not yet: %s", error)
                return PokeReturnValue(is_done=False)
            # A window that ends at the instant reads up to the stable ends.
            offsets = {
                key: max(at, offsets.get(key, 0)) for key, at in {**offsets, **before}.items()
            }
        ends = self._ends()
        reached = ends_document(ends)
        short = [
            f"{key} ends at {reached.get(key, 'nothing')}, {offset} is wanted"
            for key, offset in offsets.items()
            if reached.get(key, -1) < offset
        ]
        if short:
            self.log.info("not yet: %s", "; ".join(short))
        report = {"topic": self.topic, "end": self.end, "ends": reached}
        return PokeReturnValue(is_done=bool(ends) and not short, xcom_value=report)

    def trigger(self) -> RocketMQOffsetTrigger:
        """Return a trigger that fires after the instant, when ends reach the offsets."""
        arguments = parse(ReadyArguments, self._arguments())
        instant = None if arguments.until is None else arguments.until.isoformat()
        return self._trigger(until=arguments.offsets(), instant=instant)


class RocketMQLagSensor(_RocketMQSensor):
    """Succeed when `group` has a lag of at least `min_records` to its offsets at the brokers.

    :param topic: topic to check.
    :param group: a consumer group, or one whose task has ``commit_to_broker=True``.
    :param min_records: minimum lag, in records.
    :param end: ``stable`` (on the brokers' disks) or ``latest``.
    :param rocketmq_conn_id: the connection.
    :param deferrable: wait in the triggerer, without a worker slot. Default: Airflow's
        ``[operators] default_deferrable``.
    :param consumer_config: options of the client, as the ingest operators take them.
    :param wait_for_topic: False fails the task if the topic does not exist, instead of waiting.

    A queue that ends before the group's offset has no lag, but waiting does not help: a broker lost
    records or the topic was recreated. The sensor then succeeds with a warning.

    XCom: ``{"topic", "group", "end", "lag", "regressed": {"broker-a:0": [offset, end]}}``.
    """

    template_fields: Sequence[str] = ("topic", "group", "min_records", "consumer_config")
    model = LagArguments

    def __init__(
        self,
        *,
        topic: str,
        group: str,
        min_records: int | str = 1,
        end: End = "stable",
        rocketmq_conn_id: str = RocketMQHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(topic=topic, rocketmq_conn_id=rocketmq_conn_id, end=end, **kwargs)
        self.group = group
        self.min_records = min_records
        check_literals(LagArguments, self._arguments(), static={}, task=self)

    def look(self, context: Context) -> PokeReturnValue:  # noqa: ARG002 - no state is needed here
        """Check the ends and the group's offsets once."""
        arguments = parse(LagArguments, self._arguments())
        # Ends last: else commits of a live group in between would look like a shorter log.
        committed, ends = self.hook.group_offsets(self.topic, arguments.group), self._ends()
        lag, shorter = lag_between(ends, committed, SPACE).total, regressed(ends, committed)
        report: dict[str, Any] = {"topic": self.topic, "group": arguments.group, "end": self.end}
        report |= {"lag": lag, "regressed": shorter}
        if shorter:
            self.log.warning(
                "queues of topic %s end before the offset of the group (queue: offset, end): %s; "
                "broker lost records, or the topic was recreated. The wait ends, as waiting does "
                "not help",
                self.topic,
                shorter,
            )
        done = bool(shorter) or lag >= arguments.min_records
        return PokeReturnValue(is_done=done, xcom_value=report)

    def trigger(self) -> RocketMQOffsetTrigger:
        """Return a trigger that fires when ends are `min_records` ahead of the group's offsets."""
        arguments = parse(LagArguments, self._arguments())
        return self._trigger(group=arguments.group, min_lag=arguments.min_records)

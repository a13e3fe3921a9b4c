"""`RocketMQPartitionReadySensor` and `RocketMQLagSensor`: what the other kind of source has, for
RocketMQ's queues.

They look through `sources.base.Source` on the base of all sensors, read nothing and move no
position. They poke; there is no trigger for them.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import PokeReturnValue

from tubemq_client.errors import ConfigError
from tubemq_provider.arguments import is_template
from tubemq_provider.hooks.rocketmq import RocketMQHook
from tubemq_provider.sensors._base import End, TubeMQSensor, ends_document
from tubemq_provider.sources.rocketmq.space import SPACE
from tubemq_provider.windows.errors import WindowNotReady
from tubemq_provider.windows.lag import lag_between

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

__all__ = ["RocketMQLagSensor", "RocketMQPartitionReadySensor"]


class _RocketMQSensor(TubeMQSensor):
    """The connection, and no trigger."""

    def __init__(
        self, *, topic: str, group: str | None, rocketmq_conn_id: str, end: End, **kwargs: Any
    ) -> None:
        if kwargs.get("deferrable"):
            raise ConfigError("deferrable: sensors of RocketMQ poke", subject="arguments")
        super().__init__(
            tubemq_conn_id=rocketmq_conn_id, end=end, **{**kwargs, "deferrable": False}
        )
        self.rocketmq_conn_id = rocketmq_conn_id
        self.topic, self.group = topic, group

    def trigger(self) -> NoReturn:
        """There is none."""
        raise NotImplementedError

    def _ends(self) -> Mapping[Any, Any]:
        hook = RocketMQHook(self.rocketmq_conn_id)
        return hook.ends(self.topic, stable=self.end == "stable")


class RocketMQPartitionReadySensor(_RocketMQSensor):
    """Succeed when every named queue can be read and reaches its offset, or an instant is over.

    :param topic: topic to look at.
    :param until_offsets: ``{"broker-a:0": 2800}``: the queue's end must be at or beyond it.
    :param until: an instant, RFC 3339 or datetime: succeed when nothing stored before it can come
        any more, by every broker's own clock. What a window of time with ``store_time`` waits for.
    :param end: ``stable`` (on the brokers' disks) or ``latest``.
    :param rocketmq_conn_id: the connection.

    XCom: ``{"topic", "end", "ends": {"broker-a:0": 2800}}``.
    """

    template_fields: Sequence[str] = ("topic", "until_offsets", "until")

    def __init__(
        self,
        *,
        topic: str,
        until_offsets: Mapping[str, int] | None = None,
        until: datetime | str | None = None,
        end: End = "stable",
        rocketmq_conn_id: str = RocketMQHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            topic=topic, group=None, rocketmq_conn_id=rocketmq_conn_id, end=end, **kwargs
        )
        self.until_offsets = until_offsets
        self.until = until
        wrong = [
            f"until_offsets: {key!r} is not {SPACE.key_form}"
            for key in until_offsets or {}
            if not SPACE.is_key(key)
        ]
        if until is not None and not is_template(until):
            try:
                _instant(until)
            except ConfigError as error:
                wrong += error.problems
        if wrong:
            raise ConfigError(wrong, subject="arguments")

    def look(self, context: Context) -> PokeReturnValue:  # noqa: ARG002 - no state is needed here
        """One look at the queues and their ends."""
        if self.until is not None:
            try:
                RocketMQHook(self.rocketmq_conn_id).offset_at(self.topic, _instant(self.until))
            except WindowNotReady as error:
                self.log.info("not yet: %s", error)
                return PokeReturnValue(is_done=False)
        ends = {queue.key: found for queue, found in self._ends().items()}
        wanted = self.until_offsets or {}
        reached = {key: found.max_offset for key, found in ends.items()}
        short = [
            f"{key} ends at {reached.get(key, 'nothing')}, {offset} is wanted"
            for key, offset in wanted.items()
            if reached.get(key, -1) < offset
        ]
        if short:
            self.log.info("not yet: %s", "; ".join(short))
        report = {"topic": self.topic, "end": self.end, "ends": ends_document(self._by_queue(ends))}
        return PokeReturnValue(is_done=bool(ends) and not short, xcom_value=report)

    @staticmethod
    def _by_queue(ends: Mapping[str, Any]) -> dict[Any, Any]:
        return {found.queue: found for found in ends.values()}


class RocketMQLagSensor(_RocketMQSensor):
    """Succeed when at least `min_records` lie behind the offsets that `group` has committed at the
    brokers.

    :param topic: topic to look at.
    :param group: whose offsets: a consumer group, or one whose task has ``commit_to_broker=True``.
    :param min_records: how many records there must be.
    :param end: ``stable`` (on the brokers' disks) or ``latest``.
    :param rocketmq_conn_id: the connection.

    XCom: ``{"topic", "group", "end", "lag"}``.
    """

    template_fields: Sequence[str] = ("topic", "group", "min_records")
    group: str

    def __init__(
        self,
        *,
        topic: str,
        group: str,
        min_records: int = 1,
        end: End = "stable",
        rocketmq_conn_id: str = RocketMQHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            topic=topic, group=group, rocketmq_conn_id=rocketmq_conn_id, end=end, **kwargs
        )
        self.min_records = min_records

    def look(self, context: Context) -> PokeReturnValue:  # noqa: ARG002 - no state is needed here
        """One look at the ends and the group's offsets."""
        hook = RocketMQHook(self.rocketmq_conn_id)
        lag = lag_between(self._ends(), hook.group_offsets(self.topic, self.group), SPACE).total
        report = {"topic": self.topic, "group": self.group, "end": self.end, "lag": lag}
        return PokeReturnValue(is_done=lag >= int(self.min_records), xcom_value=report)


def _instant(until: datetime | str) -> datetime:
    """An instant as given, or as a template says. Raises `ConfigError` without an offset of time:
    the machine's own zone must not decide which records are waited for."""
    try:
        found = datetime.fromisoformat(until) if isinstance(until, str) else until
    except ValueError as error:
        raise ConfigError(f"until: {error}", subject="arguments") from None
    if found.utcoffset() is None:
        raise ConfigError(
            f"until: {found.isoformat()} has no time zone; write {found.isoformat()}Z for UTC",
            subject="arguments",
        )
    return found

"""What both sensors share: the connection, which end counts, and when to keep waiting.

A sensor waits out what time can cure (a broker restarting, a topic not announced yet) and fails at
once on what it cannot (wrong arguments, no permission, a port of something else). Private to this
room.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk import BaseSensorOperator, PokeReturnValue
from airflow.sdk.exceptions import AirflowFailException

from tubemq_client import errors
from tubemq_provider.hooks.failures import fatal_errors_fail_the_task
from tubemq_provider.hooks.tubemq import TubeMQHook

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tubemq_client.model import Partition, PartitionEnds

__all__ = ["End", "TubeMQSensor", "ends_document"]

End = Literal["stable", "latest"]


class TubeMQSensor(BaseSensorOperator):
    """Base of the sensors: `look` says whether to go on, errors say whether to wait."""

    def __init__(self, *, tubemq_conn_id: str, end: End, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tubemq_conn_id = tubemq_conn_id
        self.end = end

    @property
    def hook(self) -> TubeMQHook:
        """A hook on the sensor's connection."""
        return TubeMQHook(self.tubemq_conn_id)

    @abstractmethod
    def look(self, context: Context) -> PokeReturnValue:
        """One look at the cluster. Raises `errors.TubeMQError` as the clients do."""

    def poke(self, context: Context) -> PokeReturnValue:
        """One look; trouble that may pass counts as "not yet" and is logged."""
        try:
            with fatal_errors_fail_the_task():
                return self._look_or_wait(context)
        except errors.ProtocolViolation as exc:
            # What listens there is no TubeMQ, or one that no waiting makes readable.
            raise AirflowFailException(f"{type(exc).__name__}: {exc}") from exc
        except errors.TubeMQError as exc:
            self.log.warning("not yet: %s", exc)
            return PokeReturnValue(is_done=False)

    def _look_or_wait(self, context: Context) -> PokeReturnValue:
        try:
            return self.look(context)
        except errors.UnknownTopic as exc:
            # Fatal elsewhere; here the topic may be announced any moment.
            self.log.info("not yet: %s", exc)
            return PokeReturnValue(is_done=False)


def ends_document(ends: dict[Partition, PartitionEnds]) -> dict[str, int]:
    """Ends by partition key, as XCom carries them."""
    return {partition.key: found.max_offset for partition, found in sorted(ends.items())}

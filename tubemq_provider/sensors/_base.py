"""Base of the sensors: connection, kind of end, and conditions of waiting.

A sensor waits for what may recover (a broker that restarts, a topic not announced yet) and fails at
once on permanent errors (wrong arguments, no permission, the port of another service). Private to
this room.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

from airflow.sdk import BaseSensorOperator, PokeReturnValue
from pydantic import Field

from tubemq_client import errors
from tubemq_provider._airflow import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowTaskTimeout,
    conf,
)
from tubemq_provider.extensions import BUILT_IN
from tubemq_provider.hooks.failures import (
    ErrorContext,
    explained,
    fatal_errors_fail_the_task,
)
from tubemq_provider.hooks.plugin import plugin_hook
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.rendered import RefusesEmptyRendering
from tubemq_provider.task_arguments import ConsumerConfig, TaskArguments, near_names, parse
from tubemq_provider.windows.errors import is_final
from tubemq_provider.windows.spaces import FIRST_SOURCE, space_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Context
    from airflow.triggers.base import BaseTrigger

    from tubemq_provider.windows.spaces import Ends

End = Literal["stable", "latest"]

_FAIL: Final = "__fail__"
"""Method name that Airflow passes when a deferral has timed out."""


class SensorArguments(TaskArguments):
    """Arguments that all sensors have."""

    source: str = FIRST_SOURCE
    consumer_config: ConsumerConfig = Field(default_factory=dict, repr=False)


class TubeMQSensor(RefusesEmptyRendering, BaseSensorOperator):
    """Base of the sensors: `look` decides success, the class of an error decides waiting.

    A deferrable sensor pokes once in a worker and then waits in the triggerer; after the trigger
    event a worker pokes again with the current position. `timeout`, and `execution_timeout` of a
    deferrable one, count from the first poke of a try, deferrals included. A topic that does not
    exist is waited for, with a warning each time, unless `wait_for_topic` is False.
    """

    model: type[SensorArguments]
    """Arguments, which are attributes of the sensor."""
    group: str | None = None
    source: str = FIRST_SOURCE
    """Kind of the topic: the sensor's own, or a plug-in's."""

    def __init__(
        self,
        *,
        topic: str,
        tubemq_conn_id: str,
        end: End,
        deferrable: bool | None = None,
        wait_for_topic: bool = True,
        consumer_config: Mapping[str, Any] | str | None = None,
        **kwargs: Any,
    ) -> None:
        with near_names(type(self)):
            super().__init__(**kwargs)
        self.topic = topic
        self.consumer_config = consumer_config
        self.wait_for_topic = wait_for_topic
        self.tubemq_conn_id = tubemq_conn_id
        self.end = end
        if deferrable is None:
            deferrable = conf.getboolean("operators", "default_deferrable", fallback=False)
        self.deferrable = deferrable
        self._started: float | None = None

    @property
    def hook(self) -> Any:
        """Hook of the sensor's connection: TubeMQ's, or that of a plug-in's kind."""
        kind: Any = TubeMQHook if self.source == FIRST_SOURCE else plugin_hook(self.source)
        return kind(self.tubemq_conn_id, **self._reading())

    def _reading(self) -> dict[str, Any]:
        """Return the rendered `consumer_config` as an argument of hooks and triggers, if any."""
        options = parse(self.model, self._arguments()).consumer_config
        return {"consumer_config": options} if options else {}

    def _choose_source(self, source: str) -> None:
        """Look at another kind of topic. Raises `errors.ConfigError` for an unknown one, and for
        one that has its own sensors."""
        if source == FIRST_SOURCE:
            return
        space_of(source)
        if source in BUILT_IN["source"]:
            raise errors.ConfigError(
                f"{type(self).__name__} looks at {FIRST_SOURCE} and plug-ins; {source!r} has "
                f"sensors of its own",
                subject="source",
            )
        self.source = source

    @abstractmethod
    def look(self, context: Context) -> PokeReturnValue:
        """Check the cluster once. Raises `errors.TubeMQError` like the clients."""

    def error_context(self) -> ErrorContext:
        """Return connection, topic and group, which error texts end with."""
        return ErrorContext(self.tubemq_conn_id, self.topic, self.group)

    @abstractmethod
    def trigger(self) -> BaseTrigger:
        """Return the trigger that waits for the next poke; called after `look`."""

    def _arguments(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.model.model_fields}

    def _trigger_options(self) -> dict[str, Any]:
        """Return the arguments that triggers of all conditions take."""
        return {
            "topic": self.topic,
            "stable": self.end == "stable",
            "poll_interval": self.poke_interval,
            "wait_for_topic": self.wait_for_topic,
            **({} if self.source in BUILT_IN["source"] else {"source": self.source}),
            **self._reading(),
        }

    def execute(self, context: Context) -> Any:
        """Wait as `mode` or `deferrable` defines; return the report of the last poke."""
        self._started = time.time()
        return super().execute(context)

    def execute_complete(self, context: Context, event: Mapping[str, Any], started: float) -> Any:
        """Poke after the trigger event, and defer again if it was too early."""
        if event.get("status") != "ready":
            raise AirflowFailException(str(event.get("message", event)))
        self._started = started
        return super().execute(context)

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context
    ) -> Any:
        """Distinguish the timeouts of a deferral.

        Airflow treats each as the sensor's `timeout`, which is never retried; after
        `execution_timeout` a retry follows.
        """
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except AirflowSensorTimeout as exc:
            if next_method != _FAIL or self._limit == self.timeout:
                raise
            raise self._out_of_time() from exc

    def poke(self, context: Context) -> PokeReturnValue:
        """Check once; errors that may pass are logged and count as "not yet"."""
        result = self._poke(context)
        if not result.is_done and self.deferrable:
            self._defer()
        return result

    def _defer(self) -> NoReturn:
        started = time.time() if self._started is None else self._started
        left = self._limit - (time.time() - started)
        if left <= 0:
            raise self._out_of_time()
        self.defer(
            trigger=self.trigger(),
            method_name="execute_complete",
            kwargs={"started": started},
            timeout=timedelta(seconds=left),
        )

    @property
    def _limit(self) -> float:
        """Seconds that a try may wait in all; Airflow may end a deferred task a little later."""
        limit = self.execution_timeout
        return self.timeout if limit is None else min(self.timeout, limit.total_seconds())

    def _out_of_time(self) -> BaseException:
        kind = AirflowSensorTimeout if self._limit == self.timeout else AirflowTaskTimeout
        return kind(f"still waiting after {self._limit:.0f} s")

    def _poke(self, context: Context) -> PokeReturnValue:
        about = self.error_context()
        with fatal_errors_fail_the_task(self.log, about=about):
            try:
                return self._look_or_wait(context)
            except errors.TubeMQError as exc:
                if is_final(exc):
                    raise
                self.log.warning("not yet: %s", explained(exc, about))
                return PokeReturnValue(is_done=False)

    def _look_or_wait(self, context: Context) -> PokeReturnValue:
        try:
            return self.look(context)
        except errors.UnknownTopic as exc:
            # Fatal elsewhere; here the topic may be announced any moment.
            if not self.wait_for_topic:
                raise
            self.log.warning(
                "not yet: %s\nif it will not be created, wait_for_topic=False fails the task",
                explained(exc, self.error_context()),
            )
            return PokeReturnValue(is_done=False)


def ends_document(ends: Mapping[Any, Ends]) -> dict[str, int]:
    """Return ends by partition key, for XCom."""
    return {partition.key: end.max_offset for partition, end in sorted(ends.items())}

"""`TubeMQNotifier`: outcome of a task, a Dag or a deadline, as a record on a topic.

For consumers of a topic instead of a mailbox: other systems, other Dags. Works as a callback (in
Airflow's Dag processor) and for deadlines (in the triggerer). A notification that cannot be sent is
an error in the log of the sending process; nothing else fails.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import BaseNotifier

from tubemq_client import Record
from tubemq_client.aio import Producer
from tubemq_provider.hooks.aio import TubeMQAsyncHook
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.rendered import RefusesEmptyRendering

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["TubeMQNotifier"]

_MESSAGE: Final = (
    "{{ dag.dag_id if dag is defined else dag_run.dag_id }} "
    "{{ ti.task_id ~ ' ' if ti is defined else '' }}"
    "{{ run_id if run_id is defined else dag_run.dag_run_id }}"
)
"""The context of a deadline has the Dag run only, and that of a Dag's callback may have no task."""


class TubeMQNotifier(RefusesEmptyRendering, BaseNotifier):
    """Send one record to `topic`.

    :param topic: topic to send to.
    :param message: the record's body: text, or a mapping that becomes JSON; templates allowed, with
        the callback's context (for a deadline `dag_run` and `deadline`). Default: Dag, task and
        run.
    :param stream_id: the record's stream, which readers can filter by.
    :param tubemq_conn_id: the connection.
    """

    template_fields: Sequence[str] = ("topic", "message", "stream_id")
    own_data = frozenset({"message"})

    def __init__(
        self,
        *,
        topic: str,
        message: str | Mapping[str, Any] = _MESSAGE,
        stream_id: str | None = None,
        tubemq_conn_id: str = TubeMQHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.topic = topic
        self.message = message
        self.stream_id = stream_id
        self.tubemq_conn_id = tubemq_conn_id

    def __call__(self, *args: Any) -> None:
        """Run one callback on a copy.

        Airflow renders templates in place, and may call one notifier for several runs or tasks.
        """
        BaseNotifier.__call__(copy(self), *args)

    def notify(self, context: Context) -> None:  # noqa: ARG002 - templates are rendered already
        """Send the record and wait for the receipt."""
        list(TubeMQHook(self.tubemq_conn_id).produce(self.topic, [self._record()]))

    async def async_notify(self, context: Context) -> None:  # noqa: ARG002
        """Send the record without blocking, for the triggerer."""
        settings = (await TubeMQAsyncHook(self.tubemq_conn_id).config()).settings()
        async with Producer(settings) as producer:
            record = self._record()
            await producer.send(self.topic, record.body, stream_id=record.stream_id)

    def _record(self) -> Record:
        text = self.message if isinstance(self.message, str) else json.dumps(self.message)
        return Record(text.encode(), stream_id=self.stream_id)

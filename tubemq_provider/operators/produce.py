"""`TubeMQProduceOperator`: send records to a topic; the task fails if one is not delivered.

The records come from the Dag, from a function or from a file. A record is delivered when its
receipt arrives (the broker has it in memory); the task succeeds with the receipt of every record.
If the source yields the same records in the same order, a retry continues after the last receipt.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from airflow.sdk import BaseOperator
from pydantic import BeforeValidator

from tubemq_client.config import TopicName
from tubemq_client.errors import ConfigError
from tubemq_client.model import ProducerSettings
from tubemq_provider._airflow import determine_kwargs, needs_asset_state
from tubemq_provider.assets import declared, topic_asset
from tubemq_provider.hooks.failures import ErrorContext, fatal_errors_fail_the_task
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.operators.records_to_send import RecordsHash, RecordsToSend, of_file, of_values
from tubemq_provider.rendered import RefusesEmptyRendering
from tubemq_provider.sources.tubemq.space import SPACE
from tubemq_provider.task_arguments import (
    ClusterAlias,
    TaskArguments,
    check_literals,
    from_json,
    is_mapped,
    parse,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tubemq_client import Record, SendReceipt

__all__ = ["TubeMQProduceOperator"]

_SENT: Final = "tubemq_sent"
"""Task state: how many records of the source have receipts."""
_ENDS: Final = "tubemq_ends"
"""Task state: the offset after the last of them, by partition."""
_TRAIL: Final = "tubemq_trail"
"""Task state: count and hash of those records, ``{"count", "hash"}``; absent in earlier
releases."""
_SHOWN: Final = 1_000
"""XCom has the ends of at most this many partitions; more do not fit."""
_NOTE_EVERY: Final = 10_000

Values = Annotated[list[Any] | None, BeforeValidator(from_json)]


class ProduceArguments(TaskArguments):
    """Arguments of `TubeMQProduceOperator`, described in its docstring."""

    topic: TopicName
    cluster: ClusterAlias
    records: Values = None
    producer_function: Callable[..., Any] | None = None
    file: str | None = None
    stream_field: str | None = None
    large_records: Literal["refuse", "send"] = "refuse"
    on_retry: Literal["continue", "send_again"] | None = None

    def cross_field_problems(self, unknown: frozenset[str]) -> list[str]:
        """Require one source, and a file of a known format."""
        if unknown & {"records", "producer_function", "file"}:
            return []
        sources = [
            name
            for name in ("records", "producer_function", "file")
            if getattr(self, name) is not None
        ]
        problems = []
        if len(sources) != 1:
            problems.append("give one of records, producer_function and file")
        if self.file is not None and PurePath(self.file).suffix not in (".csv", ".jsonl", ".txt"):
            problems.append(f"file: {self.file!r} is neither .csv nor .jsonl nor .txt")
        return problems

    @property
    def continues(self) -> bool:
        """True if a retry continues after the last receipt."""
        if self.on_retry is None:
            return self.producer_function is None
        return self.on_retry == "continue"


class TubeMQProduceOperator(RefusesEmptyRendering, BaseOperator):
    """Send records to `topic`; fail with the first one that is not delivered.

    A record is text, bytes, a `tubemq_client.Record`, or another value, whose JSON is the body.
    Every
    record has a receipt before the task succeeds; the broker sends it before writing to disk.
    Delivery is at least once: records in flight when a task dies may be sent twice.

    :param topic: topic to send to; it must exist.
    :param records: the records, in order: a list, its JSON, or the output of another task.
    :param producer_function: called with the values of the context that its signature names;
        returns
        or yields the records.
    :param file: file whose rows are the records: ``.csv`` (a JSON object for each row), ``.jsonl``
        and ``.txt`` (each line is a body).
    :param stream_field: field of JSON objects whose value becomes the stream id, which readers can
        filter by.
    :param on_retry: ``continue``: a retry begins after the last receipt if the source yields the
        same
        records in the same order up to there, else with the first record; default for `records`
        and `file`. ``send_again``: send all records again; default for `producer_function`.
    :param large_records: ``refuse`` (default) or ``send`` records that groups may never receive.
    :param tubemq_conn_id: the connection.
    :param cluster: the connection's cluster alias; needed where that is not the connection id. With
        `topic` it names the asset ``tubemq:<cluster>/<topic>``, which becomes an outlet; in a
        mapped task the author declares it, ``outlets=[topic_asset(cluster, topic)]`` in its
        ``.partial()``; otherwise no Dag is triggered by the records.

    XCom: ``{"topic", "records", "bytes", "continued_after", "ends": {"1:0": 2800}}``; `ends` are
    offsets that a reader has to reach for these records, of earlier tries too (left out beyond
    1 000 partitions), such as `until_offsets` of `TubeMQPartitionReadySensor`.
    """

    template_fields: Sequence[str] = (
        "records",
        "file",
        "stream_field",
        "on_retry",
        "large_records",
        "tubemq_conn_id",
    )
    template_fields_renderers = {"records": "json"}  # noqa: RUF012 - Airflow's declaration
    own_data = frozenset({"records"})
    ui_color = "#d6eef2"

    def __init__(
        self,
        *,
        topic: str,
        records: Iterable[Any] | str | None = None,
        producer_function: Callable[..., Any] | None = None,
        file: str | None = None,
        stream_field: str | None = None,
        on_retry: str | None = None,
        large_records: str = "refuse",
        tubemq_conn_id: str = TubeMQHook.default_conn_name,
        cluster: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.topic = topic
        self.cluster = cluster or tubemq_conn_id
        self.records = records
        self.producer_function = producer_function
        self.file = file
        self.stream_field = stream_field
        self.on_retry = on_retry
        self.large_records = large_records
        self.tubemq_conn_id = tubemq_conn_id
        static = dict.fromkeys(("topic", "cluster"), "it names the topic's asset")
        check_literals(ProduceArguments, self._arguments(), static=static, task=self)
        self._asset = topic_asset(self.cluster, topic)
        if not is_mapped(self) and not declared(self._asset, self.outlets):
            self.outlets = [*self.outlets, self._asset]

    def execute(self, context: Context) -> dict[str, Any]:
        """Send the records without receipts, and wait for all receipts."""
        about = ErrorContext(self.tubemq_conn_id, self.topic)
        with fatal_errors_fail_the_task(self.log, about=about):
            arguments = parse(ProduceArguments, self._arguments())
            hook = TubeMQHook(self.tubemq_conn_id)
            hook.expect_cluster(arguments.cluster)
            state: Any = context.get("task_state_store") if arguments.continues else None
            if arguments.continues and state is None:
                raise ConfigError(
                    needs_asset_state("on_retry='continue'", "say on_retry='send_again'"),
                    subject="Airflow",
                )
            noted, records = self._begun(arguments, context, _Noted.of(state))
            outgoing = RecordsToSend(records)
            producer = ProducerSettings(large_records=arguments.large_records)
            receipts = hook.produce(arguments.topic, outgoing, producer=producer)
            totals = self._sent(outgoing, receipts, noted)
        # A cleared task sends all records again, as documented.
        noted.forget()
        self.log.info("%s -> %s: all delivered", totals["records"], arguments.topic)
        if not declared(self._asset, self.outlets):
            self.log.info(
                "no event on asset %s: for one, a mapped task needs "
                "outlets=[tubemq_provider.assets.topic_asset(%r, %r)] in its .partial()",
                self._asset.name,
                self.cluster,
                self.topic,
            )
        return {"topic": arguments.topic, **totals, "continued_after": noted.done}

    def _arguments(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ProduceArguments.model_fields}

    def _records(self, arguments: ProduceArguments, context: Context) -> Iterator[Record]:
        if arguments.file is not None:
            return of_file(arguments.file, arguments.stream_field)
        values: Any = arguments.records
        if arguments.producer_function is not None:
            named = determine_kwargs(arguments.producer_function, (), context)
            values = arguments.producer_function(**named)
        return of_values(values, arguments.stream_field)

    def _begun(
        self, arguments: ProduceArguments, context: Context, noted: _Noted
    ) -> tuple[_Noted, Iterator[Record]]:
        """Return the records that have no receipt yet.

        If the source has changed since, all of its records are returned.
        """
        records = self._records(arguments, context)
        if not noted.done:
            return noted, records
        if noted.passes(records):
            self.log.info("%s records have receipts from an earlier try", noted.done)
            return noted, records
        self.log.warning(
            "%s records have receipts from an earlier try, but the records have changed since: all "
            "of them are sent, and unchanged ones may be in the topic twice",
            noted.done,
        )
        return _Noted(noted.state), self._records(arguments, context)

    def _sent(
        self, outgoing: RecordsToSend, receipts: Iterator[SendReceipt], noted: _Noted
    ) -> dict[str, Any]:
        """Take the receipts and return totals; also stores progress on a failure."""
        count = 0
        try:
            for count, receipt in enumerate(receipts, 1):
                noted.ends[receipt.partition.key] = receipt.offset + SPACE.step
                noted.trail.add(outgoing.under_way.popleft())
                if count % _NOTE_EVERY == 0:
                    noted.store(count)
        finally:
            self.log.info("%s records have receipts", count)
            if count:
                noted.store(count)
        if outgoing.failure is not None:
            raise outgoing.failure
        shown = {"ends": dict(sorted(noted.ends.items()))} if len(noted.ends) <= _SHOWN else {}
        return {"records": count, "bytes": outgoing.bytes, **shown}


@dataclass(frozen=True, slots=True)
class _Noted:
    """Progress of earlier tries: `done` records with receipts, up to `ends`; stored in `state`.

    `trail` is the hash of the records with receipts; `stored_hash` is the one that an earlier try
    stored.
    """

    state: Any
    done: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    stored_hash: str | None = None
    trail: RecordsHash = field(default_factory=RecordsHash)

    @classmethod
    def of(cls, state: Any) -> _Noted:
        """Return the progress that earlier tries stored."""
        if state is None:
            return cls(None)
        done, trail = int(state.get(_SENT, 0)), state.get(_TRAIL) or {}
        ends = dict(state.get(_ENDS, {}))
        if int(trail.get("count", 0)) < max(done, 1):
            return cls(state, done, ends)
        return cls(state, int(trail["count"]), ends, str(trail["hash"]))

    def passes(self, records: Iterator[Record]) -> bool:
        """Skip the records that have receipts; return True if they are the same ones."""
        count = 0
        for count, record in enumerate(itertools.islice(records, self.done), 1):  # noqa: B007
            self.trail.add(record)
        return count == self.done and self.stored_hash in (None, self.trail.hash)

    def store(self, count: int) -> None:
        """Store `count` further records.

        Ends are stored first: after a crash they may be ahead of the count, and records that are
        sent again end later still.
        """
        if self.state is not None:
            done = self.done + count
            self.state.set(_ENDS, self.ends)
            self.state.set(_TRAIL, {"count": done, "hash": self.trail.hash})
            self.state.set(_SENT, done)

    def forget(self) -> None:
        """Delete the progress when all records are sent."""
        if self.state is not None:
            for key in (_SENT, _TRAIL, _ENDS):
                self.state.delete(key)

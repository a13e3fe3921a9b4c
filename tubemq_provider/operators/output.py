"""The half of the ingest operator's arguments that says where records go, and by what means.

A base class only because a long list of arguments reads better in two: it keeps them as attributes,
which Airflow renders, and judges nothing. `ingest` has the documentation and the checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["OutputArguments"]


class OutputArguments(BaseOperator):
    """Sink, engine, files and what is told of them, of `TubeMQSparkIngestOperator`."""

    def __init__(
        self,
        *,
        path: str | None = None,
        sink: str | None = None,
        sink_conn_id: str | None = None,
        exactly_once: bool = True,
        staging_root: str | None = None,
        engine: str = "session",
        spark_conf: Mapping[str, str] | None = None,
        landing: str = "auto",
        target_file_bytes: int | str | None = None,
        commit_to_broker: bool = False,
        skip_if_empty: bool = False,
        emit_replayed: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.path = path
        self.sink = sink
        self.sink_conn_id = sink_conn_id
        self.exactly_once = exactly_once
        self.staging_root = staging_root
        self.engine = engine
        self.spark_conf = spark_conf
        self.landing = landing
        self.target_file_bytes = target_file_bytes
        self.commit_to_broker = commit_to_broker
        self.skip_if_empty = skip_if_empty
        self.emit_replayed = emit_replayed

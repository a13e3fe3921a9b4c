"""Airflow's half of an ingest: from connections to a source, a sink and a job.

Reads connections in the running task and opens nothing; the job is `ingest.job.IngestJob`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

from tubemq_provider.hooks.registry_connection import open_registries
from tubemq_provider.hooks.sink_connection import open_sink
from tubemq_provider.hooks.spark_connection import spark_settings
from tubemq_provider.ingest.job import IngestJob, needs_interval
from tubemq_provider.operators.intervals import no_interval
from tubemq_provider.sinks.routed import RoutedSink

if TYPE_CHECKING:
    from tubemq_provider.ingest.arguments import IngestArguments
    from tubemq_provider.ingest.job import Interval
    from tubemq_provider.sinks.routed import Route
    from tubemq_provider.sources.base import Source
    from tubemq_provider.windows.protocols import Document, Sink

__all__ = ["SourceHook", "open_job"]


class SourceHook(Protocol):
    """Hook of an ingest, for any kind of source."""

    @property
    def admin_url(self) -> str | None:
        """HTTP address of the admin page in the connection."""

    def expect_cluster(self, cluster: str) -> None:
        """Raise `errors.ConfigError` unless the connection's cluster is `cluster`."""

    def source(self, topic: str, group: str, filters: Sequence[str] = ()) -> Source:
        """Return the source that windows of `group` are planned from and read."""

    def get_connection(self, conn_id: str) -> Any:
        """Return any connection, such as the sink's."""


def open_job(
    arguments: IngestArguments,
    hook: SourceHook,
    interval: Interval,
    stack: ExitStack,
    *,
    timeline: Callable[[], Document | None] = lambda: None,
) -> IngestJob:
    """Return the job of `arguments`, with the credentials of the connections that they name.

    Raises `errors.ConfigError`, which never contains a secret, and `MissingExtraError`.
    """
    if needs_interval(arguments, interval):
        raise no_interval()
    sink = (
        open_sink(
            arguments.destination,
            arguments.sink_conn_id,
            hook.get_connection,
            **arguments.sink_options,
        )
        if arguments.destination
        else arguments.sink
    )
    routes = arguments.route_set
    decoded = [arguments.decoding]
    decoded += [] if routes is None else [route.decode for route in routes.routes]
    open_registries(decoded, hook.get_connection)
    if routes is not None:

        def open_table(route: Route, address: str) -> Sink:
            options = {**route.options, "staging_root": arguments.staging_root}
            following = {} if route.following is None else {"following": route.following}
            return open_sink(address, route.conn_id, hook.get_connection, **options, **following)

        sink = RoutedSink(sink, routes, open_table)
    if arguments.spark_conn_id is not None:
        connection = hook.get_connection(arguments.spark_conn_id)
        connection_conf = spark_settings(connection, arguments.engine)
        conf = {**connection_conf, **arguments.spark_conf}
        arguments = arguments.model_copy(update={"spark_conf": conf})
    source = hook.source(arguments.topic, arguments.group, arguments.filters)
    return IngestJob(arguments, source, sink, stack, interval=interval, timeline=timeline)

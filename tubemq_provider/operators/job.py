"""Airflow's half of an ingest: from connections to a source, a sink and a job.

Reads connections in the running task and opens nothing; the job is `ingest.job.IngestJob`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tubemq_client.errors import ConfigError
from tubemq_provider.hooks.sink_connection import open_sink
from tubemq_provider.hooks.spark_connection import spark_settings
from tubemq_provider.ingest.job import IngestJob, needs_interval
from tubemq_provider.operators.intervals import no_interval
from tubemq_provider.rows.registry import SchemaRegistry, register
from tubemq_provider.sinks.routed import RoutedSink

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from tubemq_provider.hooks.by_kind import TopicHook
    from tubemq_provider.ingest.arguments import IngestArguments
    from tubemq_provider.ingest.job import Interval
    from tubemq_provider.rows.spec import DecodeSpec
    from tubemq_provider.sinks.routed import Route
    from tubemq_provider.windows.protocols import Document, Sink

__all__ = ["open_job"]


def open_job(
    arguments: IngestArguments,
    hook: TopicHook,
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
    _open_registries(decoded, hook.get_connection)
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


def _open_registries(
    specs: Iterable[DecodeSpec | None], connection: Callable[[str], Connection]
) -> None:
    """Register the schema registry of each spec that names one, from its connection of type
    ``http``: host or whole address, port, schema (``https``), login, password. Asks it nothing.

    Raises `ConfigError`."""
    for name in sorted({name for spec in specs if spec is not None for name in spec.registries}):
        found = connection(name)
        if not found.host:
            raise ConfigError(f"connection {name!r} has no host", subject="schema_registry")
        url = found.host
        if "://" not in url:
            url = f"{found.schema or 'http'}://{url}"
        if found.port:
            url = f"{url}:{found.port}"
        register(name, SchemaRegistry(url, found.login, found.password))

"""From a sink's address, as a Dag says it, and a connection to the sink itself.

A Dag, its rendered fields, plans and assets hold the address only. Credentials live in an Airflow
connection that is read here, in the running task, and end in the sink object. Opens nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from tubemq_client import errors
from tubemq_provider.sinks.factory import sink_for, sink_word

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from tubemq_provider.operators.arguments import IngestArguments
    from tubemq_provider.windows.protocols import Sink

__all__ = ["open_sink"]

_STORAGE_NAMES = {
    "endpoint_url": "endpoint",
    "region_name": "region",
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
}
"""Names of Amazon connections, as obstore and delta-rs know them."""


def open_sink(arguments: IngestArguments, connection: Callable[[str], Connection]) -> Sink:
    """The sink that `arguments` mean; `connection` looks one up by its id.

    Raises `errors.ConfigError` that never repeats a secret, and `MissingExtraError`.
    """
    spec, conn_id = arguments.destination, arguments.sink_conn_id
    options: dict[str, Any] = {
        "exactly_once": arguments.exactly_once,
        "staging_root": arguments.staging_root,
    }
    if conn_id is None:
        return sink_for(spec, **options)
    found = connection(conn_id)
    word = sink_word(spec)
    if word == "iceberg":
        return sink_for(spec, **options, catalog_properties=_catalog_properties(found))
    if "://" in spec and word in ("s3", "gs", "az", "delta", "append"):
        return sink_for(spec, **options, storage_options=_storage_options(found))
    return sink_for(_with_login(spec, found), **options)


def _with_login(spec: str, connection: Connection) -> str:
    """The address of a database with login and password; they go nowhere but to its host."""
    head, _, rest = spec.partition("://")
    host = urlsplit(f"x://{rest}").hostname or ""
    if connection.host and connection.host.lower() != host.lower():
        raise errors.ConfigError(
            f"connection {connection.conn_id!r} is for host {connection.host!r}, the sink is on "
            f"{host!r}; its password is not sent there",
            subject="sink_conn_id",
        )
    if not connection.login:
        raise errors.ConfigError(
            f"connection {connection.conn_id!r} has no login", subject="sink_conn_id"
        )
    secret = f":{quote(connection.password, safe='')}" if connection.password else ""
    return f"{head}://{quote(connection.login, safe='')}{secret}@{rest}"


def _storage_options(connection: Connection) -> dict[str, str]:
    """Login and password are the key and its secret; the rest is in the extra."""
    given = {"access_key_id": connection.login, "secret_access_key": connection.password}
    options = {name: value for name, value in given.items() if value}
    options |= _texts(connection.extra_dejson, _STORAGE_NAMES)
    if options.get("endpoint", "").startswith("http://"):
        options.setdefault("allow_http", "true")
    return options


def _catalog_properties(connection: Connection) -> dict[str, str]:
    return _texts(connection.extra_dejson, {})


def _texts(extra: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, str]:
    return {
        names.get(key, key): str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in extra.items()
        if value not in (None, "")
    }

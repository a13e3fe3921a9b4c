"""Build a sink from its address in a Dag and a connection.

A Dag, its rendered fields, plans and assets have the address only. Credentials are in an Airflow
connection that is read here, in the running task, and are passed to the sink object. Opens nothing
else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from tubemq_client import errors
from tubemq_provider.extensions import BUILT_IN
from tubemq_provider.hooks.connection import extra_fields
from tubemq_provider.sinks._database_address import (
    DATABASES,
    DEFAULT_PORTS,
    DatabaseAddress,
    address_problems,
    database_address,
)
from tubemq_provider.sinks.factory import needless_connection, sink_for, sink_word

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from tubemq_provider.windows.protocols import Sink

_STORAGE_NAMES = {
    "endpoint_url": "endpoint",
    "region_name": "region",
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
}
"""Extra names of Amazon connections, with the names of obstore and delta-rs."""


def open_sink(
    spec: str,
    conn_id: str | None,
    connection: Callable[[str], Connection],
    **options: Any,
) -> Sink:
    """Return the sink of `spec`, with the credentials of the connection `conn_id`.

    `connection` looks it up; `options` are those of `sink_for`. Raises `errors.ConfigError` that
    never contains a secret, and `MissingExtraError`.
    """
    if conn_id is None:
        return sink_for(spec, **options)
    word = sink_word(spec)
    if problem := needless_connection(spec):
        raise errors.ConfigError(problem, subject="sink_conn_id")
    sink_connection = connection(conn_id)
    # Airflow ignores unreadable extras, and another store would be used.
    extra_fields(sink_connection)
    if word == "iceberg":
        return sink_for(spec, **options, catalog_properties=_catalog_properties(sink_connection))
    if word in DATABASES:
        return sink_for(_with_login(spec, word, sink_connection), **options)
    if word not in BUILT_IN["sink"]:
        return sink_for(spec, **options, connection=sink_connection)
    return sink_for(spec, **options, storage_options=_storage_options(sink_connection))


def _with_login(spec: str, word: str, connection: Connection) -> str:
    """Return the address of a database with login and password.

    They are only sent to the connection's host and port.
    """
    head, _, rest = spec.partition(":")
    if problems := address_problems(word, rest):
        raise errors.ConfigError(problems, subject="sink")
    allowed = _place_of_connection(word, connection)
    sink_host = database_address(word, rest)
    if allowed != sink_host:
        raise errors.ConfigError(
            f"connection {connection.conn_id!r} is for {allowed}, the sink is on {sink_host}; its "
            "password is not sent there. Host and port of the connection have to be the sink's (no "
            "port means the usual one of the database)",
            subject="sink_conn_id",
        )
    if not connection.login:
        raise errors.ConfigError(
            f"connection {connection.conn_id!r} has no login", subject="sink_conn_id"
        )
    secret = f":{quote(connection.password, safe='')}" if connection.password else ""
    address = f"{head}://{quote(connection.login, safe='')}{secret}@{rest.removeprefix('//')}"
    parameters = _extra(connection).get("url_parameters") or {}
    if not isinstance(parameters, Mapping):
        raise errors.ConfigError(
            f"connection {connection.conn_id!r}: 'url_parameters' of its extra is no object",
            subject="sink_conn_id",
        )
    return f"{address}&{urlencode(parameters, doseq=True)}" if parameters else address


def _extra(connection: Connection) -> Mapping[str, Any]:
    """Return the extra fields as read by Airflow, which masks sensitive names in logs.

    Raises `errors.ConfigError` for text that is no JSON object, or has a name twice.
    """
    extra_fields(connection)
    extras: Mapping[str, Any] = connection.extra_dejson
    return extras


def _place_of_connection(word: str, connection: Connection) -> DatabaseAddress:
    host = connection.host or ""
    if not host:
        raise errors.ConfigError(
            f"connection {connection.conn_id!r} names no host; give it the one that its password "
            "is for",
            subject="sink_conn_id",
        )
    if host.startswith("/") or "," in host:
        return DatabaseAddress(host if host.startswith("/") else host.lower(), None)
    return DatabaseAddress(host.strip("[]").lower(), connection.port or DEFAULT_PORTS.get(word))


def _storage_options(connection: Connection) -> dict[str, str]:
    """Return options of an object store: login and password are the key and its secret."""
    credentials = {"access_key_id": connection.login, "secret_access_key": connection.password}
    options = {name: value for name, value in credentials.items() if value}
    options |= _texts(_extra(connection), _STORAGE_NAMES)
    if options.get("endpoint", "").startswith("http://"):
        options.setdefault("allow_http", "true")
    return options


def _catalog_properties(connection: Connection) -> dict[str, str]:
    return _texts(_extra(connection), {})


def _texts(extra: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, str]:
    return {
        names.get(key, key): str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in extra.items()
        if value not in (None, "")
    }

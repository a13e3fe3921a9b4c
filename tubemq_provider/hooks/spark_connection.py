"""Airflow connections of types ``spark`` and ``spark_connect``, without the provider of these
types.

That provider cannot be installed together with pyspark: it brings a package that overwrites
pyspark's files. Airflow stores connections of any type. Fields become settings of Spark; fields
without effect are refused. Opens nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from tubemq_client.errors import ConfigError
from tubemq_provider.hooks.connection import extra_fields

if TYPE_CHECKING:
    from airflow.sdk import Connection

_SETTINGS: Final = {
    "queue": "spark.yarn.queue",
    "namespace": "spark.kubernetes.namespace",
    "principal": "spark.kerberos.principal",
    "keytab": "spark.kerberos.keytab",
    "deploy-mode": "spark.submit.deployMode",
}
"""Extras that are settings of Spark under another name."""
_FIXED: Final = {"spark-binary": "spark-submit"}
"""Extras with the only value that is accepted."""

_MASTER: Final = "spark.master"
_REMOTE: Final = "spark.remote"
_AUTHENTICATE: Final = "spark.connect.authenticate.token"
_WORD: Final = re.compile(r"yarn|local(-cluster)?(\[.+\])?")
"""Masters without an address. A host may be called ``localhost``, or ``yarn1``."""


def spark_settings(connection: Connection, engine: str) -> dict[str, str]:
    """Return the settings of Spark that `connection` defines for `engine`.

    They include ``spark.master`` or, for ``connect``, ``spark.remote``. Raises `ConfigError` with
    every problem.
    """
    needed = "spark_connect" if engine == "connect" else "spark"
    if connection.conn_type != needed:
        raise ConfigError(
            f"its type is {connection.conn_type!r}, not {needed!r}, which engine={engine!r} takes",
            subject=f"connection {connection.conn_id!r}",
        )
    return _of_server(connection) if engine == "connect" else _of_cluster(connection)


def _of_server(connection: Connection) -> dict[str, str]:
    """Return the settings for a Spark Connect server.

    Host and port are the server's, the login is the user, the password the token. The extra may
    have ``use_ssl``, and settings of the session by their names.
    """
    problems = [] if connection.host else ["it has no host, the server of Spark Connect"]
    settings, parameters = {}, {}
    if connection.login:
        parameters["user_id"] = connection.login
    for name, value in extra_fields(connection).items():
        if name == _REMOTE:
            problems.append(_set_by_host(name))
        elif name == "use_ssl" and isinstance(value, bool | str):
            parameters[name] = _text(value).lower()
        elif name.startswith("spark.") and isinstance(value, str | int | float):
            settings[name] = _text(value)
        else:
            problems.append(
                f"extra {name!r} has no effect here: it may have use_ssl and settings of a "
                f"session by their names"
            )
    if problems:
        raise ConfigError(problems, subject=f"connection {connection.conn_id!r}")
    if connection.password:
        settings[_AUTHENTICATE] = connection.password
    return {_REMOTE: _remote(connection, parameters), **settings}


def _remote(connection: Connection, parameters: Mapping[str, str]) -> str:
    host = _bracketed(str(connection.host).removeprefix("sc://"))
    address = f"sc://{host}:{connection.port}" if connection.port else f"sc://{host}"
    parameters_text = ";".join(
        f"{name}={quote(value, safe='')}" for name, value in parameters.items()
    )
    return f"{address}/;{parameters_text}" if parameters_text else address


def _of_cluster(connection: Connection) -> dict[str, str]:
    """Return the settings for a cluster; host (and port) are the master.

    ``spark://host``, ``yarn``, ``k8s://https://host``, ``local[4]``; a host without a scheme is a
    standalone master. The extra may have ``queue``, ``namespace``, ``principal``, ``keytab``,
    ``deploy-mode``, and settings by their names. Raises `ConfigError` with every problem.
    """
    problems = [] if connection.host else ["it has no host, the master of Spark"]
    settings = {}
    for name, value in extra_fields(connection).items():
        key = _SETTINGS.get(name.replace("_", "-"), name)
        if key == _MASTER:
            problems.append(_set_by_host(name))
        elif key.startswith("spark.") and isinstance(value, str | int | float):
            settings[key] = _text(value)
        elif _FIXED.get(name.replace("_", "-")) != value:
            problems.append(
                f"extra {name!r} has no effect here: it may have "
                f"{', '.join(_SETTINGS)} and settings of Spark by their names"
                if name.replace("_", "-") not in _FIXED
                else f"extra {name!r}: only {_FIXED[name.replace('_', '-')]!r} is possible here"
            )
    if problems:
        raise ConfigError(problems, subject=f"connection {connection.conn_id!r}")
    return {_MASTER: _master(connection), **settings}


def _master(connection: Connection) -> str:
    host = _bracketed(str(connection.host))
    plain = "://" in host or _WORD.fullmatch(host)
    address = host if plain else f"spark://{host}"
    return f"{address}:{connection.port}" if connection.port else address


def _set_by_host(name: str) -> str:
    return f"extra {name!r} is set by host and port; give it there"


def _bracketed(host: str) -> str:
    """Return the host so that a port can follow; Airflow strips the brackets of an IPv6 address."""
    try:
        IPv6Address(host)
    except ValueError:
        return host
    return f"[{host}]"


def _text(value: str | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

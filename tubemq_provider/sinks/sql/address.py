"""SQLAlchemy's URL of a database, and the address that may be shown: without login and options.

Apart from `_database_address`, which works on text and needs no SQLAlchemy. This module must not
open a connection, and repeats no part of an address that it could not parse.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tubemq_client.errors import ConfigError, require_extra
from tubemq_provider.sinks._database_address import DEFAULT_PORTS, REFUSED

__all__ = ["name_problem", "normal_address", "parse_address"]

_LONGEST_NAME: Final = 63
"""Bytes of a name that PostgreSQL keeps."""

_OF_POSTGRESQL: Final = frozenset(("cmax", "cmin", "ctid", "tableoid", "xmax", "xmin"))
"""Columns that every table of PostgreSQL has."""


def parse_address(url: str) -> tuple[Any, str]:
    """SQLAlchemy's URL, and the address without credentials and options."""
    try:
        import sqlalchemy as sa
    except ImportError as exc:
        raise require_extra("lake", exc) from exc
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        # Its message repeats the text, in which a password may be.
        raise ConfigError("the URL of the database cannot be parsed", subject="sink") from None
    backend = parsed.get_backend_name()
    if backend in REFUSED:
        raise ConfigError(REFUSED[backend], subject="sink")
    if backend == "sqlite":
        if parsed.database in (None, "", ":memory:"):
            raise ConfigError("SQLite in memory keeps nothing; name a file", subject="sink")
        path = Path(str(parsed.database)).absolute()
        return parsed.set(database=str(path)), f"sqlite:{path}"
    return parsed, _address_of(parsed, str(_host_of(parsed)), parsed.port)


def normal_address(url: Any, address: str) -> str:
    """Return the address in the form of identities; DNS names and proxies are not resolved."""
    if url.get_backend_name() == "sqlite":
        return address
    host = str(_host_of(url))
    default = DEFAULT_PORTS.get(url.get_backend_name())
    # A name of a host has no case; the path of a socket has.
    host = host if host.startswith("/") else host.lower()
    return _address_of(url, host, None if url.port == default else url.port)


def name_problem(name: str, backend: str) -> str | None:
    """Return why a name is not possible for a table or column, or None. PostgreSQL truncates long
    names with a notice only, and the table would not be found again by its name."""
    if not name:
        return "has no name"
    if backend != "postgresql":
        return None
    if name in _OF_POSTGRESQL:
        return "has a name that PostgreSQL keeps for a column of its own"
    if (size := len(name.encode())) > _LONGEST_NAME:
        return f"has a name of {size} bytes, of which PostgreSQL keeps {_LONGEST_NAME}"
    return None


def _host_of(url: Any) -> object:
    hosts = url.host or url.query.get("host") or ""
    return hosts if isinstance(hosts, str) else ",".join(hosts)


def _address_of(url: Any, host: str, port: int | None) -> str:
    where = f"{host}:{port}" if port else host
    return f"{url.get_backend_name()}://{where}/{url.database or ''}"

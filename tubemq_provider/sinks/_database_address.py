"""Addresses of databases as text: what may stand in one that others read, and where it leads.

Drivers take parameters of an address for more than options: libpq lets ``?host=``, ``?hostaddr=``
and ``?port=`` overrule the address itself, pyodbc takes a whole login in one. So parameters are
allowed by name, and what leads somewhere is compared as a whole. Works on text alone: needs no
SQLAlchemy, opens nothing, and repeats no value of a parameter in an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote

__all__ = [
    "CREDENTIALS",
    "DATABASES",
    "DEFAULT_PORTS",
    "REFUSED",
    "DatabaseAddress",
    "address_problems",
    "database_address",
    "environment_problems",
    "lagging_replica_problem",
    "meaning_problems",
    "overruling",
    "without_login",
]

CREDENTIALS: Final = "credentials do not belong here; name a connection that has them"

DEFAULT_PORTS: Final = {
    "postgresql": 5432,
    "mysql": 3306,
    "mariadb": 3306,
    "mssql": 1433,
    "oracle": 1521,
}
DATABASES: Final = (*DEFAULT_PORTS, "sqlite")

_NOT_MYSQL: Final = (
    "{0}: is no sink: its columns for texts and bodies end at 64 KB, and without strict mode it "
    "cuts what is longer and reports nothing; use a table of PostgreSQL (postgresql://…?table=…), "
    "or files (a path, s3://…) from which {0} loads them"
)
REFUSED: Final = {name: _NOT_MYSQL.format(name) for name in ("mysql", "mariadb")}
"""Databases that would not keep every record as it is, and what to use instead."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MYSQL: Final = _words(
    """charset connect_timeout read_timeout write_timeout ssl_ca ssl_cert ssl_key
    ssl_check_hostname ssl_verify_cert ssl_verify_identity"""
)
_PARAMETERS: Final[dict[str, frozenset[str]]] = {
    "postgresql": _words(
        """host application_name channel_binding client_encoding connect_timeout gssencmode
        keepalives keepalives_count keepalives_idle keepalives_interval options sslcert sslcrl
        sslkey sslmode sslrootcert ssl_min_protocol_version target_session_attrs tcp_user_timeout"""
    ),
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
    "mssql": _words("driver encrypt trustservercertificate multisubnetfailover timeout"),
    "oracle": _words("service_name encoding nencoding"),
    "sqlite": _words("timeout"),
}
"""Parameters that neither hold a secret nor lead to another server. `host` may name a socket, where
the address has no host."""

_OVERRULING: Final = _words(
    """hostaddr port dbname database service servicefile server dsn odbc_connect unix_socket addr
    address"""
)

_HARMLESS: Final = _words(
    """lock_timeout statement_timeout idle_in_transaction_session_timeout idle_session_timeout
    timezone transaction_timeout deadlock_timeout application_name work_mem maintenance_work_mem
    temp_buffers synchronous_commit tcp_keepalives_idle tcp_keepalives_interval tcp_keepalives_count
    tcp_user_timeout client_connection_check_interval jit"""
)
"""Settings of PostgreSQL that change neither what a name means nor what a value is; the sink sets
the zone of each transaction itself."""

_SETTING: Final = re.compile(
    r"(?:(?<=\s)|^)(?:-c\s*|--)(?P<name>[\w.-]+)\s*=(?:\\.|[^\s\\])*", re.DOTALL
)
_WRITABLE: Final = ("read-write", "primary")
_READ_ONLY: Final = ("read-only", "standby", "prefer-standby")
_NO_DATABASE: Final = re.compile(r"[=?#/\\\x00-\x1f]|:(?=//)")
_SEARCH_PATH: Final = "name the schema instead: ?table=<schema>.<table>"

# As SQLAlchemy splits an address: a password ends at the next @.
_LOGIN: Final = re.compile(r"//[^:/]*(?::[^@]*)?@")
_ADDRESS: Final = re.compile(
    r"//(?P<host>\[[0-9A-Fa-f:.]+\]|[\w.\\-]*)(?::(?P<port>\d{1,5}))?(?:/[^/?#@=]*)?(?:\?(?P<query>[^#@]*))?"
)
_FILE: Final = re.compile(r"//(?P<host>)(?P<port>)/[^?#]*(?:\?(?P<query>[^#]*))?")
_ODBC: Final = re.compile(r"[\w .-]*")


class DatabaseAddress(NamedTuple):
    """Return host and port of an address: `host` in lower case (several joined by commas; a
    socket's path unchanged), the dialect's default port if none is named; None for a socket or for
    several hosts, which carry their own ports."""

    host: str
    port: int | None

    def __str__(self) -> str:
        return f"host {self.host!r}" + (f", port {self.port}" if self.port else "")


def without_login(rest: str) -> tuple[str, str]:
    """Split the part after ``dialect:`` of an address into ``//user:password@`` or ``//``, and the
    rest."""
    login = _LOGIN.match(rest)
    if login is not None:
        return login[0], rest[login.end() :]
    return ("//", rest[2:]) if rest.startswith("//") else ("", rest)


def address_problems(backend: str, rest: str) -> list[str]:
    """Return the problems of an address without credentials; `rest` is the part after the colon."""
    if "@" in rest and backend != "sqlite":
        return [f"{CREDENTIALS} (an @ that is none of them is written %40)"]
    parts = _matched(backend, rest)
    if parts is None:
        return ["the address of a database has to be dialect://host:port/database?table=<name>"]
    parameters = parse_qsl(parts["query"] or "", keep_blank_values=True)
    place = rest.partition("?")[0]
    database = place[3:] if rest.startswith("///") else place[2:].partition("/")[2]
    if problems := meaning_problems(backend, unquote(database), parameters):
        return problems
    if parts["port"] and not 0 < int(parts["port"]) < 1 << 16:
        return [f"port {parts['port']} is none; ports go from 1 to 65535"]
    names = {name.lower() for name, _ in parameters} - {"table"}
    if parts["host"]:
        names = {"host!" if name == "host" else name for name in names}
    # What is given to ODBC is joined to one text, in which a semicolon begins a parameter.
    plain = backend != "mssql" or all(_ODBC.fullmatch(value) for _, value in parameters)
    if names <= _PARAMETERS[backend] and plain:
        return []
    allowed = ", ".join(sorted(_PARAMETERS[backend] - {"host"}))
    problem = (
        f"{CREDENTIALS}, in its extra as 'url_parameters' too: of the parameters of a {backend} "
        f"address only these lead nowhere else and hold no secret: table, {allowed}"
    )
    return [problem]


def meaning_problems(
    backend: str, database: str, parameters: Iterable[tuple[str, str]]
) -> list[str]:
    """Return the reasons why an address could mean another table on another worker or in another
    run: session settings that change the meaning of names or values, files without an absolute
    path."""
    given = list(parameters)
    if backend == "sqlite":
        return _file_problems(database, [name.lower() for name, _ in given])
    if backend != "postgresql":
        return []
    options = [value for name, value in given if name.lower() == "options"]
    return [
        *_database_problems(database),
        *_case_problems(name for name, _ in given),
        *_server_problems(given),
        *(problem for value in options for problem in _option_problems(value)),
    ]


def _database_problems(database: str) -> Iterator[str]:
    if not database:
        yield (
            "the address names no database, and PostgreSQL would take the one that is called like "
            "the user; name it, as postgresql://host/database?table=<name>"
        )
    elif setting := _NO_DATABASE.search(database):
        yield (
            f"the name of the database has the character {setting[0]!r}, with which another "
            f"address begins; name a database without it"
        )


def _case_problems(names: Iterable[str]) -> Iterator[str]:
    known_parameters = _PARAMETERS["postgresql"] | {"table"}
    for name in names:
        if name != name.lower() and name.lower() in known_parameters:
            yield f"PostgreSQL knows no parameter {name}; write {name.lower()}"


def _server_problems(parameters: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, value in parameters:
        if name == "target_session_attrs" and value in _READ_ONLY:
            yield (
                f"target_session_attrs={value} may lead to a server that cannot be written to; "
                f"say {' or '.join(_WRITABLE)}"
            )


def lagging_replica_problem(backend: str, parameters: Iterable[tuple[str, str]]) -> str | None:
    """Return the reason why an address of several servers may reach a lagging replica, where a
    missing window would count as lost and writes fail. None if it cannot."""
    given = list(parameters)
    hosts = [host for name, value in given if name == "host" for host in value.split(",")]
    attributes = dict(given).get("target_session_attrs")
    if backend != "postgresql" or len(hosts) < 2 or attributes in _WRITABLE:
        return None
    return (
        "the address names several hosts, one of which may be a copy that lags behind; add "
        "target_session_attrs=read-write"
    )


def _option_problems(options: str) -> Iterator[str]:
    """Of libpq's ``options``: command-line words of the server."""
    words = _SETTING.sub("", options).split()
    names = [found["name"].lower().replace("-", "_") for found in _SETTING.finditer(options)]
    if words:
        yield (
            f"options of a postgresql address may only set parameters, as "
            f"options=-c%20lock_timeout%3D10min, and {len(words)} words of it do not"
        )
    for name in names:
        if name in _HARMLESS:
            continue
        hint = f"; {_SEARCH_PATH}" if name == "search_path" else ""
        yield (
            f"options set {name}, which may change where records go or what they are, and is no "
            f"part of the sink's identity{hint}. Only these may be set: "
            f"{', '.join(sorted(_HARMLESS))}"
        )


def _file_problems(database: str, names: Iterable[str]) -> list[str]:
    """Of SQLite's ``database``, as SQLAlchemy takes it from an address."""
    if database in ("", ":memory:"):
        return ["SQLite in memory keeps nothing; name a file, as sqlite:////data/lake.db"]
    if database.startswith("file:") or "uri" in names:
        return ["a file: URI of SQLite has parameters of its own; name the file by its path"]
    if database.endswith("/"):
        return [f"{database!r} is a directory; name a file, as sqlite:////data/lake.db"]
    if not database.startswith("/"):
        problem = f"{database!r} is relative to where a worker happens to stand; write four slashes"
        return [f"{problem} before an absolute path, as sqlite:////{database}"]
    return []


def environment_problems(environment: Mapping[str, str], *, named: bool, port: bool) -> list[str]:
    """Variables of libpq by which this process would get to another database, or to other tables of
    it, than the address says. `named`, `port`: the address has a host, and a port."""
    wrong = [name for name in ("PGHOSTADDR", "PGSERVICE") if environment.get(name)]
    if not named and environment.get("PGHOST"):
        wrong.append("PGHOST")
    if not port and environment.get("PGPORT", "5432") not in ("", "5432"):
        wrong.append("PGPORT")
    problems = [
        f"{name} of the environment leads elsewhere than the address says; unset it for the "
        f"worker, name host and port in the address, or give identity="
        for name in wrong
    ]
    said = [*_option_problems(environment.get("PGOPTIONS", ""))]
    return problems + [f"PGOPTIONS of the environment: {problem}" for problem in said]


def database_address(backend: str, rest: str) -> DatabaseAddress:
    """Return the target of a valid address."""
    parts = _matched(backend, rest)
    if parts is None:
        return DatabaseAddress("", None)
    hosts = [
        value
        for name, value in parse_qsl(parts["query"] or "", keep_blank_values=True)
        if name.lower() == "host"
    ]
    if not parts["host"] and hosts:
        joined = ",".join(hosts)
        return DatabaseAddress(joined if joined.startswith("/") else joined.lower(), None)
    port = int(parts["port"]) if parts["port"] else DEFAULT_PORTS.get(backend)
    return DatabaseAddress(parts["host"].strip("[]").lower(), port)


def overruling(host: str | None, parameters: Iterable[str]) -> list[str]:
    """Names of parameters that lead elsewhere than the address says."""
    names = {name.lower(): name for name in parameters}
    wrong = _OVERRULING | ({"host"} if host else set())
    return sorted(names[name] for name in names.keys() & wrong)


def _matched(backend: str, rest: str) -> re.Match[str] | None:
    return (_FILE if backend == "sqlite" else _ADDRESS).fullmatch(rest)

"""From what a user writes down to a sink: one string per kind of sink.

=========================================  ====================================================
``/data/orders``, ``file:///data/orders``  `ParquetSink`: a directory per window
``s3://``, ``gs://``, ``az://``            `ObjectStoreSink`: a manifest per window
``delta:/data/orders``, ``delta:s3://…``   `DeltaSink`
``iceberg:<catalog>/<namespace>.<table>``  `IcebergSink`, catalog from pyiceberg's configuration
``postgresql://…?table=schema.orders``     `SqlSink`; any dialect of SQLAlchemy
``append:/data/orders``                    `AppendSink`, only with ``exactly_once=False``
``markers:/data/done``                     `MarkerSink`: which windows are done, and no records
=========================================  ====================================================

Judges only the words; each sink judges its own place. Imports a sink, and what it needs, only when
it is asked for. Credentials in an address of a database are never repeated in an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import parse_qsl, urlencode

from tubemq_client.errors import ConfigError, require_extra
from tubemq_provider.extensions import (
    BUILT_IN,
    asked,
    call,
    is_known,
    load,
    parsed_options,
    plugin_of,
    words,
)
from tubemq_provider.sinks._database_address import (
    CREDENTIALS,
    DATABASES,
    REFUSED,
    address_problems,
    without_login,
)
from tubemq_provider.sinks._object_storage import prefix_problems
from tubemq_provider.windows.following import Following
from tubemq_provider.windows.protocols import Sink

if TYPE_CHECKING:
    from tubemq_provider.files.staging import Verify
    from tubemq_provider.sinks._evolution import Evolution

__all__ = [
    "SUPPORTED",
    "SinkOptions",
    "accepted_options",
    "missing_extra",
    "needless_connection",
    "sink_for",
    "sink_uri",
    "sink_word",
    "spec_problems",
]

SUPPORTED: Final = (
    "/path or file:///path (Parquet; extra arrow)",
    "s3://bucket/prefix, gs://…, az://… (Parquet by manifest; extra lake)",
    "delta:/path or delta:s3://bucket/prefix (extra lake)",
    "iceberg:<catalog>/<namespace>.<table> (extra lake)",
    "postgresql://host/database?table=schema.name (extra lake, and a driver)",
    "sqlite:////file?table=name (extra lake)",
    "append:/path or append:s3://bucket/prefix (only with exactly_once=False)",
    "markers:/path or markers:s3://bucket/prefix (only which windows are done)",
)
"""Forms that `sink_for` understands, for errors and help texts."""

_OF_FACTS: Final = ("verify", "partition_by", "max_partitions", "schema_evolution")
_OF_SINKS: Final = (*_OF_FACTS, "following")
_OBJECTS: Final = ("s3", "gs", "az")
_HDFS: Final = (
    "HDFS is not written to here; name an object store or a table, or let Spark of your own write "
    "there between TubeMQPlanWindowOperator and TubeMQCommitWindowOperator"
)
_AZURE: Final = "write az://<container>/<prefix>, with the account in the connection"
_ELSEWHERE: Final = {
    **dict.fromkeys(("hdfs", "viewfs", "webhdfs"), _HDFS),
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), _AZURE),
    **dict.fromkeys(("s3a", "s3n"), "write s3://<bucket>/<prefix>"),
    "dbfs": "name the object store behind it, as s3://<bucket>/<prefix>",
}
"""Hints for schemes that other tools use for a place."""
_LOCAL: Final = ("parquet", "sqlite")
_WORD: Final = re.compile(r"([A-Za-z][A-Za-z0-9.+_-]*):(.*)", re.DOTALL)


def sink_for(
    spec: str | PathLike[str] | Sink,
    *,
    exactly_once: bool = True,
    storage_options: Mapping[str, str] | None = None,
    staging_root: str | Path | None = None,
    catalog_properties: Mapping[str, str] | None = None,
    verify: Verify | None = None,
    partition_by: Sequence[str] | str = (),
    max_partitions: int | None = None,
    schema_evolution: Evolution | None = None,
    plugin_options: Mapping[str, Any] | None = None,
    connection: Any = None,
    following: Following | None = None,
) -> Sink:
    """Return the sink that `spec` means; a `Sink` is returned unchanged.

    `catalog_properties` are pyiceberg's, for ``iceberg:…``; `verify` says how files are checked,
    where tasks can tell what they hold; `partition_by` the partition columns (columns,
    ``day(<column>)``, ``hour(<column>)``) and `max_partitions` how many of those a task may make;
    `schema_evolution` what becomes of columns that a table has not; `following` how a table follows
    changes; `plugin_options` are the options of a plug-in's own model, and `connection` has its
    credentials. Raises `ConfigError` that lists what is supported, or names the option that would
    have no effect, and `MissingExtraError` with the install line. Opens nothing in a storage.
    """
    if not isinstance(spec, str | PathLike):
        if not isinstance(spec, Sink):
            raise _unknown(f"{type(spec).__name__} is no sink")
        options_set = (verify, partition_by, max_partitions, schema_evolution, following)
        _refuse_late(name for name, value in zip(_OF_SINKS, options_set, strict=True) if value)
        return spec
    word, _ = _split(fspath(spec))
    kind = sink_word(spec)
    if not is_known("sink", kind):
        raise _unknown(_unknown_kind(word))
    if _promises(kind) and not exactly_once:
        raise ConfigError(
            "exactly_once=False has no effect here: all sinks but append:… are exactly-once",
            subject="sink",
        )
    partition_columns = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    of_files = (verify, partition_columns, max_partitions, schema_evolution, following)
    options = SinkOptions(
        exactly_once,
        storage_options,
        staging_root,
        catalog_properties,
        *of_files,
        connection=connection,
        own=parsed_options("sink", kind, plugin_options or {}),
    )
    if kind in BUILT_IN["sink"]:
        if kind != "iceberg":
            options.refuse(f"{kind} sink", "catalog_properties")
        if kind not in ("delta", "iceberg", *DATABASES):
            options.refuse(f"{kind} sink", "following")
    else:
        options.refuse(
            f"{kind} sink", *(set(_OF_SINKS) - accepted_options(kind)), "catalog_properties"
        )
    return cast("Sink", call("sink", kind, fspath(spec), options))


def _refuse_late(said: Iterable[str]) -> None:
    """Options of a sink that is made already. Raises `ConfigError`."""
    if problems := [f"{name} has no effect: say it where the sink is made" for name in said]:
        raise ConfigError(problems, subject="sink")


def sink_word(spec: str | PathLike[str]) -> str:
    """Return the kind of sink in one word: ``parquet``, ``s3``, ``delta``, ``postgresql`` …"""
    word, _ = _split(fspath(spec))
    return word.partition("+")[0] or "parquet"


def spec_problems(spec: str, *, exactly_once: bool = True) -> list[str]:
    """Return the problems of a spec that is stored where others can read it: unknown words,
    relative paths, credentials. Needs no extra, opens nothing."""
    word, rest = _split(spec)
    kind = word.partition("+")[0]
    if (kind or "parquet") not in BUILT_IN["sink"]:
        return _plugin_problems(spec, kind, exactly_once=exactly_once)
    problems = []
    if (word == "append") == exactly_once:
        problems.append(
            "append:… needs exactly_once=False"
            if exactly_once
            else "exactly_once=False has no effect: all sinks but append:… are exactly-once"
        )
    if kind in DATABASES:
        problems += [REFUSED[kind]] if kind in REFUSED else address_problems(kind, rest)
        table = _table_of(rest)[1]
        if _names_two_tables(rest):
            problems.append("the address has table= more than once")
        if not table:
            problems.append("the address of a database needs ?table=<name>")
        elif not all(table.split(".")):
            problems.append(f"table {table!r} has an empty part; write ?table=<schema>.<name>")
        elif kind == "sqlite" and table.rpartition(".")[0].lower() not in ("", "main"):
            problems.append(
                f"table {table!r} has a schema, which in SQLite is another file that is attached, "
                f"or temporary; name that file in the address"
            )
    elif kind == "iceberg" and "." not in rest.strip("/").partition("/")[2]:
        problems.append("iceberg: needs a catalog and a table, as iceberg:lake/sales.orders")
    elif kind in ("", "delta", "append", "markers"):
        problems += _place_problems(_path_of(rest))
    if kind in _OBJECTS:
        problems += _prefix_problems(f"{word}:{rest}")
    return problems


def missing_extra(spec: str) -> str | None:
    """Return what to install if a package that the sink imports is missing, or None.

    Looks for the package and imports none, so that a Dag file stays quick to parse.
    """
    package, extra = _PACKAGES.get(sink_word(spec), ("pyarrow", "arrow"))
    if _is_installed(package):
        return None
    return str(require_extra(extra, ImportError(name=package)))


@cache
def _is_installed(package: str) -> bool:
    """Return True if the package can be imported: looked for once, as a Dag file may have a
    thousand operators."""
    return find_spec(package) is not None


def _plugin_problems(spec: str, kind: str, *, exactly_once: bool) -> list[str]:
    """Return the problems of an address of another distribution's sink."""
    if not is_known("sink", kind):
        return _unknown(_unknown_kind(kind)).problems
    try:
        plugin = load("sink", kind)
    except ConfigError as exc:
        return exc.problems
    problems = [CREDENTIALS] if without_login(_split(spec)[1])[0] else []
    if _promises(kind) and not exactly_once:
        problems.append(f"exactly_once=False has no effect: {kind} sinks are exactly-once")
    if not _promises(kind) and exactly_once:
        problems.append(f"{kind}:… needs exactly_once=False")
    if judge := getattr(plugin, "problems", None):
        try:
            problems += asked(plugin_of("sink", kind), judge, spec)
        except ConfigError as exc:
            problems += exc.problems
    return problems


def _promises(kind: str) -> bool:
    """Return True if sinks of this kind are exactly-once."""
    if kind in BUILT_IN["sink"]:
        return kind != "append"
    return bool(getattr(load("sink", kind), "exactly_once", True))


def accepted_options(kind: str) -> frozenset[str]:
    """Return the options for only some sinks that another distribution's sink takes, as its
    attribute `accepts` has them; none for the sinks of this package."""
    if kind in BUILT_IN["sink"] or not is_known("sink", kind):
        return frozenset()
    return frozenset(getattr(load("sink", kind), "accepts", ()))


def needless_connection(spec: str) -> str | None:
    """Return why a connection would have no effect, or None."""
    word = sink_word(spec)
    local = word in _LOCAL or (word in ("delta", "append") and "://" not in spec)
    return f"sink_conn_id has no effect: {spec} needs no credentials" if local else None


def _place_problems(place: str) -> list[str]:
    scheme, separator, _ = place.partition("://")
    if separator and scheme.lower() not in ("file", *_OBJECTS):
        forms = "use a path, file://, s3://, gs:// or az://"
        return [f"{scheme}://… is no place for files; {_ELSEWHERE.get(scheme.lower(), forms)}"]
    if separator:
        return [] if scheme.lower() == "file" else _prefix_problems(place)
    if any(char < " " or char == "\x7f" for char in place):
        return [f"{place!r} has a control character; choose another path"]
    if not PurePath(place).is_absolute():
        return [f"{place!r} is relative; give an absolute path, or file://"]
    return []


def _prefix_problems(url: str) -> list[str]:
    return [CREDENTIALS] if _has_credentials(url) else prefix_problems(url)


def _has_credentials(url: str) -> bool:
    """Return True if a place in a storage has a login, with any characters in its password, or
    parameters: signed addresses carry secrets there."""
    authority = url.partition("://")[2].partition("/")[0]
    return "@" in authority or (":" in authority and "@" in url) or bool(set("?#") & set(url))


def sink_uri(spec: str | PathLike[str]) -> str:
    """Return a URI that names the data of a sink, for assets and lineage: no credentials, no
    options.

    Needs no extra, opens nothing; raises `ConfigError` for what `sink_for` does not know.
    """
    word, rest = _split(fspath(spec))
    if word in ("", "delta", "append", "markers"):
        inner, _ = _split(_path_of(rest))
        place = _path_of(rest)
        return place if inner else f"file://{Path(place).absolute()}"
    if word in _OBJECTS:
        return f"{word}:{rest}".rstrip("/")
    if word == "iceberg":
        return f"iceberg://{rest.strip('/')}"
    if word.partition("+")[0] in DATABASES:
        address, table = _table_of(without_login(rest)[1])
        plain = address.partition("?")[0]
        return f"{word.partition('+')[0]}://{plain}/{table}"
    if is_known("sink", word):
        address = without_login(rest)[1].partition("?")[0]
        return f"{word}://{address.strip('/')}"
    raise _unknown(_unknown_kind(word))


class SinkOptions(NamedTuple):
    """Options of a sink besides its address.

    `own` are those of a plug-in's model `Options`, and `connection` is the Airflow connection of
    `sink_conn_id`, for a plug-in to take its credentials from.
    """

    exactly_once: bool = True
    storage_options: Mapping[str, str] | None = None
    staging_root: str | Path | None = None
    catalog_properties: Mapping[str, str] | None = None
    verify: Verify | None = None
    partition_by: tuple[str, ...] = ()
    max_partitions: int | None = None
    schema_evolution: Evolution | None = None
    following: Following | None = None
    connection: Any = None
    own: Any = None

    def __repr__(self) -> str:
        """Return text without values, some of which are secrets."""
        chosen = [name for name, value in self._asdict().items() if value]
        return f"SinkOptions({', '.join(chosen)})"

    def refuse(self, subject: str, *names: str) -> None:
        """Raise `ConfigError` for options that would have no effect."""
        problems = [f"{name} has no effect" for name in names if getattr(self, name)]
        if problems:
            raise ConfigError(problems, subject=subject)

    @property
    def stored(self) -> dict[str, Any]:
        """Options of sinks in storage, local or remote."""
        return {"storage_options": self.storage_options, "staging_root": self.staging_root}

    @property
    def checked(self) -> dict[str, Any]:
        """Options of sinks that check files by their facts."""
        options = {"partition_by": self.partition_by, "max_partitions": self.max_partitions}
        return {**options, **({} if self.verify is None else {"verify": self.verify})}

    @property
    def of_table(self) -> dict[str, Any]:
        """Options of table sinks, which evolve a schema."""
        grows = self.schema_evolution
        return {**self.checked, **({} if grows is None else {"schema_evolution": grows})}


def make_parquet(address: str, options: SinkOptions) -> Sink:
    """Return the sink of a directory of Parquet files."""
    from tubemq_provider.sinks.parquet import ParquetSink

    _, path = _split(address)
    options.refuse("parquet sink", "storage_options", "schema_evolution")
    return ParquetSink(path, staging_root=options.staging_root, **options.checked)


def make_object_store(address: str, options: SinkOptions) -> Sink:
    """Return the sink of an object store."""
    from tubemq_provider.sinks.object_store import ObjectStoreSink

    word, rest = _split(address)
    options.refuse("object store sink", "schema_evolution")
    return ObjectStoreSink(f"{word}:{rest}", **options.stored, **options.checked)


def make_delta(address: str, options: SinkOptions) -> Sink:
    """Return the sink of a Delta table."""
    from tubemq_provider.sinks.delta import DeltaSink

    _, rest = _split(address)
    return DeltaSink(
        _path_of(rest), **options.stored, **options.of_table, following=options.following
    )


def make_append(address: str, options: SinkOptions) -> Sink:
    """Return the sink of appended files."""
    from tubemq_provider.sinks.append import AppendSink

    _, rest = _split(address)
    options.refuse("append sink", *_OF_FACTS)
    return AppendSink(_path_of(rest), exactly_once=options.exactly_once, **options.stored)


def make_markers(address: str, options: SinkOptions) -> Sink:
    """Return the sink of markers only."""
    from tubemq_provider.sinks.markers import MarkerSink

    _, rest = _split(address)
    options.refuse("marker sink", "staging_root", *_OF_FACTS)
    return MarkerSink.at(_path_of(rest), storage_options=options.storage_options)


def make_iceberg(address: str, options: SinkOptions) -> Sink:
    """Return the sink of an Iceberg table."""
    from tubemq_provider.sinks.iceberg import IcebergSink

    _, rest = _split(address)
    catalog, separator, identifier = rest.strip("/").partition("/")
    if not separator:
        raise _unknown("iceberg: needs a catalog and a table, as iceberg:lake/sales.orders")
    return IcebergSink(
        identifier,
        catalog=catalog,
        catalog_properties=options.catalog_properties,
        **options.stored,
        **options.of_table,
        following=options.following,
    )


def make_database(address: str, options: SinkOptions) -> Sink:
    """Return the sink of a table of a database."""
    from tubemq_provider.sinks.sql import SqlSink

    word, rest = _split(address)
    options.refuse("jdbc sink", "storage_options", *_OF_FACTS)
    database, table = _table_of(rest)
    if _names_two_tables(rest):
        raise ConfigError("the address has table= more than once", subject="sink")
    if not table:
        raise _unknown(f"{word}: the address of a database needs ?table=<name>")
    return SqlSink(
        f"{word}:{database}",
        table,
        staging_root=options.staging_root,
        following=options.following,
    )


_PACKAGES: Final = {
    "delta": ("deltalake", "lake"),
    "iceberg": ("pyiceberg", "lake"),
    **dict.fromkeys(_OBJECTS, ("obstore", "lake")),
    **dict.fromkeys(DATABASES, ("sqlalchemy", "lake")),
}
"""Package and extra by kind of sink; all others need pyarrow."""


def _table_of(rest: str) -> tuple[str, str]:
    """Return an address without the parameter `table`, and that parameter's value."""
    login, place = without_login(rest)
    address, _, query = place.partition("?")
    address = login + address
    parameters = parse_qsl(query, keep_blank_values=True)
    remaining = urlencode([(key, value) for key, value in parameters if key != "table"])
    table = next((value for key, value in parameters if key == "table"), "")
    return f"{address}?{remaining}" if remaining else address, table


def _names_two_tables(rest: str) -> bool:
    """Return True if an address names two tables."""
    query = without_login(rest)[1].partition("?")[2]
    names = [name.lower() for name, _ in parse_qsl(query, keep_blank_values=True)]
    return names.count("table") > 1


def _split(text: str) -> tuple[str, str]:
    """Split a spec into the word before the first colon in lower case, empty for a path or
    ``file://``, and the rest."""
    match = _WORD.fullmatch(text)
    if match is None or match[1].lower() == "file":
        return "", text
    return match[1].lower(), match[2]


def _path_of(rest: str) -> str:
    """Return the place after ``delta:`` or ``append:``; ``delta:///x`` means ``/x``."""
    return f"/{rest.lstrip('/')}" if rest.startswith("//") else rest.removeprefix("file://")


def _unknown_kind(word: str) -> str:
    hint = _ELSEWHERE.get(word.lower())
    return f"{word}:… is no known kind of sink" + (f"; {hint}" if hint else "")


def _unknown(problem: str) -> ConfigError:
    others = (f"{word}:… (plug-in)" for word in words("sink") if word not in BUILT_IN["sink"])
    lines = [f"supported: {line}" for line in (*SUPPORTED, *others)]
    return ConfigError([problem, *lines], subject="sink")

"""Helpers for owners of a Spark session: options for a plan, registration, and the zip.

Driver only. Nothing here starts a session (`tubemq_provider.engines.session` does) or moves a
record. pyspark is imported inside functions.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tubemq_client.errors import ConfigError, require_extra
from tubemq_provider.spark.formats import executor_rooms, format_module, not_on_executors
from tubemq_provider.spark.options import parse_options
from tubemq_provider.windows.spaces import FIRST_SOURCE, SOURCES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tubemq_provider.spark.range_planner import PlannedRead

_SUBPACKAGES = {
    "tubemq_client": ("_core", "_io", "_pb", "_wire", "admin", "config", "sync", "tdmsg"),
    "tubemq_provider": ("files", "rows", "sources", "spark", "windows"),
    "pyspark_tubemq": (),
}
"""Subpackages that tasks import for reading, planning and writing files; top-level modules of a
package are included."""
_LEFT_OUT = (
    *("assets.py", "decorators.py", "get_provider_info.py", "links.py", "task_arguments.py"),
    *("_airflow.py", "notifications.py", "plugins.py", "rendered.py"),
    *("windows/planning/", "windows/run/", "windows/time_resolvers/"),
    *("sources/registry.py", "sources/commit_offsets.py", "sources/topic.py"),
    *("sources/consumer_config.py", "sources/counting.py"),
    *("sources/tubemq/dead_letters.py", "sources/tubemq/source.py"),
    *("sources/tubemq/history_resolver.py", "sources/tubemq/message_time_resolver.py"),
    *("windows/coverage.py", "windows/cursor.py", "windows/lag.py", "windows/verify.py"),
    "windows/protocols.py",
    *("files/durable.py", "files/mounts.py", "files/staging.py"),
    *("rows/inference.py", "rows/changes/inference.py", "spark/error_hints.py"),
    *("_io/asyncio_", "admin/aio.py", "metrics.py"),
    *("tdmsg/_building.py", "tdmsg/_packet_building.py"),
    *("_core/assigned", "_core/slow_fetches.py", "_core/balance.py", "_core/balance_fetch.py"),
    *("_core/balance_partitions.py", "_core/breaker.py"),
    *("_core/broker_heartbeats.py", "_core/fencing.py"),
    *("_core/flow_control.py", "_core/group.py", "_core/group_options.py"),
    "_io/codec.py",
    *("_io/consumer_base.py", "sync/_member.py", "sync/assigned_consumer.py", "sync/consumer.py"),
)
"""Modules that a task never imports: planning, running and publishing windows, asyncio, metrics,
members of groups."""
_FROZEN = (
    *("topic", "subscribe", "subscribePattern", "assign", "admin", "partitions"),
    *("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
    *("endingTimestamp", "endingOffsetsByTimestamp"),
)
"""Options that a frozen read replaces."""
_EPOCH = (1980, 1, 1, 0, 0, 0)


def freeze(options: Mapping[str, str]) -> dict[str, str]:
    """Replace words such as "stable" in `options` by the offsets they mean now.

    Asks the master and brokers. A `load()` freezes by itself; this is for ranges that several
    loads, or a record in some other system, must share.
    """
    from tubemq_provider.spark.range_planner import plan_read

    parsed = parse_options(options)
    if parsed.window is not None:
        return dict(options)
    planned: PlannedRead = plan_read(parsed, parsed.settings())
    fixed = planned.options()
    replaced = {name.lower() for name in (*fixed, *_FROZEN)}
    other_options = {name: value for name, value in options.items() if name.lower() not in replaced}
    return {**other_options, **fixed}


def register(spark: SparkSession) -> None:
    """Register `format("tubemq")` with this session.

    Not needed where the package is installed in the driver's Python: Spark finds it by itself.
    Needed where it was shipped as a zip (`spark_artifacts`), and always harmless.
    """
    try:
        from tubemq_provider.spark.source import TubeMQDataSource
    except ImportError as error:
        raise require_extra("spark", error) from error
    spark.dataSource.register(TubeMQDataSource)


def spark_artifacts(directory: str | Path | None = None, *, kind: str = FIRST_SOURCE) -> Path:
    """Build a zip for reading a source of `kind`, for ``--py-files`` or ``addArtifacts(…,
    pyfile=True)``; a kind of another distribution must be installed separately.

    Executors also need protobuf and pyarrow installed; call `register` after adding it. The name
    contains a hash of the content; an existing file is reused if it has that content and only this
    user, or root, can change it, else replaced. A wheel would not do: Spark does not add wheels to
    the path. Raises `ConfigError` if the file in `directory` cannot be replaced, or other users
    could do so.
    """
    from tubemq_provider.files.private import refuse_open_to_others

    files = dict(_sources(kind))
    digest = hashlib.sha256()
    for name, data in files.items():
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    folder = Path(directory) if directory is not None else Path(tempfile.mkdtemp(prefix="tubemq-"))
    folder.mkdir(parents=True, exist_ok=True)
    refuse_open_to_others(folder, subject="directory of artifacts")
    target = folder / f"tubemq-spark-{digest.hexdigest()[:12]}.zip"
    content = _zip(files)
    if not _is_trusted(target, content):
        _put(target, content)
    return target


def _is_trusted(target: Path, content: bytes) -> bool:
    """Return True if `target` has just this content, and no other user can change it afterwards. A
    predictable name proves nothing about code that executors will run."""
    try:
        status = target.lstat()
        unchanging = status.st_uid in (os.geteuid(), 0) and not status.st_mode & 0o022
        return stat.S_ISREG(status.st_mode) and unchanging and target.read_bytes() == content
    except OSError:
        return False


def _put(target: Path, content: bytes) -> None:
    """Write the file atomically, replacing any existing one."""
    draft = ""
    try:
        descriptor, draft = tempfile.mkstemp(prefix=".tubemq-spark-", dir=target.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(draft).chmod(0o644)
        Path(draft).replace(target)
    except OSError as error:
        if draft:
            Path(draft).unlink(missing_ok=True)
        raise ConfigError(
            f"{target} cannot be written ({error.strerror}), and what is there is not what this "
            "release would write; give another directory, one that belongs to this user",
            subject="artifacts",
        ) from error


def _sources(kind: str) -> Iterator[tuple[str, bytes]]:
    left_out, of_kind = (*_LEFT_OUT, *_not_for_kind(kind)), not_on_executors(kind)
    for package, rooms in {**_SUBPACKAGES, **executor_rooms(kind)}.items():
        spec = find_spec(package)
        places = spec.submodule_search_locations if spec is not None else None
        if not places:
            raise ConfigError(f"package {package} is not installed", subject="artifacts")
        root = Path(next(iter(places)))
        modules = [*root.glob("*.py")]
        modules += [path for room in rooms for path in (root / room).rglob("*.py")]
        for path in sorted(modules):
            name = path.relative_to(root.parent)
            if not path.relative_to(root).as_posix().startswith(left_out) and not (
                name.as_posix().startswith(of_kind)
            ):
                yield str(name), path.read_bytes()


def _not_for_kind(kind: str) -> Iterator[str]:
    """Yield modules that only planning of the kind needs, and those that only other kinds need."""
    if kind in SOURCES:
        yield "spark/windows.py"
    if kind == FIRST_SOURCE:
        yield from ("sources/base.py", "windows/policies.py")
    for name, package in SOURCES.items():
        place = f"sources/{package.rpartition('.')[2]}/"
        if name == kind:
            yield f"{place}source.py"
        elif name != FIRST_SOURCE:
            yield place
            yield f"spark/{(format_module(name) or '').rpartition('.')[2]}.py"


def _zip(files: Mapping[str, bytes]) -> bytes:
    """Return the same bytes for the same sources."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED, 9)
    return buffer.getvalue()

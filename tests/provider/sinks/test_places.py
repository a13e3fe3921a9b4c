"""Places that cannot be written to: every sink tells them in an error of this product."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.provider.sinks.windows import plan_of, publish
from tubemq_client.errors import TubeMQError
from tubemq_provider.sinks.append import AppendSink
from tubemq_provider.sinks.delta import DeltaSink
from tubemq_provider.sinks.iceberg import IcebergSink
from tubemq_provider.sinks.markers import MarkerSink
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.sinks.sql import SqlSink
from tubemq_provider.windows.protocols import Sink


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to the temporary directory, where a sink of markers would stage: it stages nowhere."""
    monkeypatch.chdir(tmp_path)


def iceberg(path: Path) -> Sink:
    catalog = SqlCatalog("test", uri="sqlite:///:memory:", warehouse=f"file://{path}")
    return IcebergSink("sales.orders", catalog=catalog)


SINKS: dict[str, Callable[[Path], Sink]] = {
    "parquet": ParquetSink,
    "delta": DeltaSink,
    "iceberg": iceberg,
    "append": lambda path: AppendSink(str(path), exactly_once=False),
    "markers": lambda path: MarkerSink.at(str(path)),
    "sqlite": lambda path: SqlSink(f"sqlite:///{path}", "orders"),
}


def file(root: Path) -> Path:
    path = root / "lake"
    path.write_text("no directory")
    return path


def below_a_file(root: Path) -> Path:
    return file(root) / "below"


def dangling_link(root: Path) -> Path:
    (root / "lake").symlink_to(root / "away" / "lake")
    return root / "lake"


def link_to_itself(root: Path) -> Path:
    (root / "lake").symlink_to(root / "lake")
    return root / "lake"


def long_name(root: Path) -> Path:
    return root / ("n" * 300)


def long_path(root: Path) -> Path:
    return root.joinpath(*["d" * 200] * 25)


def files_for_directories(root: Path) -> Path:
    (root / "lake").mkdir()
    for name in ("_tubemq", "_delta_log", "windows", "sales"):
        (root / "lake" / name).write_text("no directory")
    return root / "lake"


PLACES = [
    file,
    below_a_file,
    dangling_link,
    link_to_itself,
    long_name,
    long_path,
    files_for_directories,
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
@pytest.mark.parametrize("kind", SINKS)
def test_a_place_without_write_access_is_reported(
    kind: str, place: Callable[[Path], Path], tmp_path: Path
) -> None:
    if kind in ("parquet", "append") and place is files_for_directories:
        pytest.skip("it makes none of these directories")
    path = place(tmp_path)
    sink = SINKS[kind](path)
    with pytest.raises(TubeMQError) as caught:
        publish(sink, plan_of(sink))
    assert str(path)[:60] in str(caught.value) or "lake" in str(caught.value)
    with suppress(TubeMQError):
        assert [*SINKS[kind](path).window_ids()] == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.parametrize("kind", SINKS)
def test_a_directory_of_another_user_is_reported(kind: str, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir(mode=0o500)
    sink = SINKS[kind](tmp_path / "theirs" / "lake")
    with pytest.raises(TubeMQError):
        publish(sink, plan_of(sink))

"""Staging areas: private on a machine that others use; refusals before publication."""

from __future__ import annotations

import getpass
import os
import tempfile
from pathlib import Path

import pytest

from tests.provider.sinks.openers import jdbc
from tests.provider.sinks.windows import COUNTS, ignore, plan_of, stage
from tubemq_client.errors import ConfigError
from tubemq_provider.sinks.sql import SqlSink
from tubemq_provider.windows.canonical import sha256_hex


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a temporary directory to which every user can write."""
    place = tmp_path / "tmp"
    place.mkdir()
    place.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@pytest.fixture
def sink(tmp_path: Path, shared: Path) -> SqlSink:
    return SqlSink(f"sqlite:///{tmp_path}/lake.db", "orders")


def test_only_this_user_can_look_into_a_try(sink: SqlSink, shared: Path) -> None:
    before = os.umask(0)
    try:
        staging = sink.begin(plan_of(sink), "a")
    finally:
        os.umask(before)
    found = Path(staging.path).stat()
    assert (found.st_mode & 0o777, found.st_uid) == (0o700, os.geteuid())
    # The directory above it is the shared one: there is none between that another could own.
    assert Path(staging.path).parent == shared


def test_a_place_that_another_made_beforehand_is_not_used(sink: SqlSink, shared: Path) -> None:
    """Earlier releases staged below a directory whose name every user could work out."""
    identity = sha256_hex(sink.identity)[:10]
    for name in (getpass.getuser(), os.environ.get("USER", "user")):
        (shared / f"tubemq-staging-{name}-{identity}").mkdir(mode=0o777, exist_ok=True)
    traps = set(shared.iterdir())
    places = {Path(sink.begin(plan_of(sink), "same").path) for _ in range(3)}
    assert len(places) == 3
    assert not any(trap in place.parents for place in places for trap in traps)


def test_a_try_that_was_opened_to_others_is_not_published(
    sink: SqlSink, shared: Path, tmp_path: Path
) -> None:
    plan = plan_of(sink)
    staging = sink.begin(plan, "a")
    stage(staging, "a")
    Path(staging.path).chmod(0o777)
    with pytest.raises(ConfigError, match="staging_root"):
        sink.publish(staging, plan, COUNTS, ignore)
    assert sink.marker(plan.window_id) is None
    # The way out that the error names.
    elsewhere = jdbc(f"sqlite:///{tmp_path}/lake.db", "orders", tmp_path / "mine")
    staging = elsewhere.begin(plan, "a")
    stage(staging, "a")
    assert elsewhere.publish(staging, plan, COUNTS, ignore).won


def test_a_link_in_the_place_of_a_try_is_not_followed(sink: SqlSink, shared: Path) -> None:
    plan = plan_of(sink)
    staging = sink.begin(plan, "a")
    stage(staging, "a")
    elsewhere = shared / "elsewhere"
    Path(staging.path).rename(elsewhere)
    Path(staging.path).symlink_to(elsewhere)
    with pytest.raises(ConfigError, match="open to other users"):
        sink.publish(staging, plan, COUNTS, ignore)


def test_tidying_takes_the_tries_of_one_window(sink: SqlSink, shared: Path) -> None:
    plan, other = plan_of(sink), plan_of(sink, seq=10)
    tries = [sink.begin(plan, "a"), sink.begin(plan, "b")]
    kept = sink.begin(other, "a")
    sink.tidy(plan.window_id)
    assert not any(Path(staging.path).exists() for staging in tries)
    assert Path(kept.path).exists()

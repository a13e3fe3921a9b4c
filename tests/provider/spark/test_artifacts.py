"""The zip that executors run: its content counts, not its name."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from tubemq_client.errors import ConfigError
from tubemq_provider.spark import spark_artifacts


def code_in(path: Path) -> bytes:
    with zipfile.ZipFile(path) as archive:
        return archive.read("tubemq_client/__init__.py")


def test_a_zip_of_the_same_content_is_reused(tmp_path: Path) -> None:
    first = spark_artifacts(tmp_path)
    made = first.stat()
    assert spark_artifacts(tmp_path) == first
    assert first.stat().st_ino == made.st_ino
    assert made.st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [first]


def test_a_zip_that_another_put_there_is_replaced(tmp_path: Path) -> None:
    target = spark_artifacts(tmp_path)
    genuine = code_in(target)
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("tubemq_client/__init__.py", "import os; os.abort()")
    assert spark_artifacts(tmp_path) == target
    assert code_in(target) == genuine


def test_a_zip_that_others_may_change_later_is_replaced(tmp_path: Path) -> None:
    target = spark_artifacts(tmp_path)
    target.chmod(0o666)
    before = target.stat().st_ino
    spark_artifacts(tmp_path)
    assert (target.stat().st_ino, target.stat().st_mode & 0o022) != (before, 0o022)
    assert target.stat().st_mode & 0o022 == 0


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    target = spark_artifacts(tmp_path / "mine")
    trap = tmp_path / "trap"
    trap.mkdir()
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (trap / target.name).symlink_to(victim)
    (trap / target.with_suffix(".draft").name).symlink_to(victim)
    found = spark_artifacts(trap)
    assert code_in(found) == code_in(target)
    assert not found.is_symlink()
    assert victim.read_text() == "precious"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_of_others_is_refused_with_the_way_out(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match="give another directory"):
        spark_artifacts(tmp_path)


def test_a_place_that_cannot_be_taken_is_refused_with_the_way_out(tmp_path: Path) -> None:
    target = spark_artifacts(tmp_path / "mine")
    taken = tmp_path / "taken" / target.name
    taken.mkdir(parents=True)
    (taken / "in the way").touch()
    with pytest.raises(ConfigError, match="give another directory"):
        spark_artifacts(taken.parent)
    assert spark_artifacts(tmp_path / "another").exists()


@pytest.mark.parametrize(("kind", "most"), [("tubemq", 437), ("rocketmq", 535)])
def test_an_executor_is_sent_no_more_than_it_imports(kind: str, most: int, tmp_path: Path) -> None:
    path = spark_artifacts(tmp_path, kind=kind)
    assert path.stat().st_size <= most * 1024
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    assert not [name for name in names if "balance_fetch" in name or "_member" in name]

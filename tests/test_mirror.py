"""The tests mirror the packages: where a room's tests lie follows from the room's name."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {
    "tubemq_client": ROOT / "tests" / "client",
    "tubemq_provider": ROOT / "tests" / "provider",
    "rocketmq_client": ROOT / "tests" / "rocketmq",
}
ELSEWHERE = {
    "tubemq_client/_pb": "generated; every test of client/wire goes through it",
    "tubemq_client/sync": "system/behaviour plays each scenario on both shells",
    "rocketmq_client/sync": "rocketmq/behaviour plays each scenario on both shells",
    "rocketmq_client/aio": "rocketmq/behaviour plays each scenario on both shells",
    "tubemq_provider/queues": "provider/triggers: a queue only names a trigger",
}
BESIDE_ROOMS = {
    "client/balance": "groups that a master balances, over the whole of _core",
    "provider/changes": "followed tables and routes, over decoders, engines and sinks",
    "provider/edits": "Dags that are edited between tries, at real operators",
    "provider/weeks": "what happens to a group over weeks, at operators and commands",
    "rocketmq/behaviour": "scenarios over both shells",
    "rocketmq/real": "genuine servers",
    "rocketmq/windows": "windows of its topics, through the provider",
}


def rooms(package: str) -> list[str]:
    folders = (path.parent for path in (ROOT / package).glob("*/__init__.py"))
    return sorted(f"{package}/{folder.name}" for folder in folders)


def folder_of(room: str) -> Path:
    package, name = room.split("/")
    return FOLDERS[package] / name.removeprefix("_")


@pytest.mark.parametrize("package", FOLDERS)
def test_every_room_has_its_tests_under_its_name(package: str) -> None:
    bare = [r for r in rooms(package) if not list(folder_of(r).rglob("test_*.py"))]
    assert [room for room in bare if room not in ELSEWHERE] == []


def test_modules_tested_elsewhere_have_no_separate_folder() -> None:
    assert [room for room in ELSEWHERE if list(folder_of(room).glob("test_*.py"))] == []


@pytest.mark.parametrize("package", FOLDERS)
def test_every_folder_of_tests_has_its_room(package: str) -> None:
    names = {path.name.removeprefix("_") for path in (ROOT / package).iterdir()}
    names |= {Path(name).stem for name in names}
    folders = {path.parent for path in FOLDERS[package].glob("*/test_*.py")}
    strays = sorted(f"{f.parent.name}/{f.name}" for f in folders if f.name not in names)
    assert [stray for stray in strays if stray not in BESIDE_ROOMS] == []

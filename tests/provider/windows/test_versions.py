"""Documents of earlier releases are read for ever; those of later ones are refused with a hint.

`frozen/` has documents as version 1 wrote them. They are never edited: if one of these tests fails,
a migration is missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tubemq_provider.windows.cursor import Cursor, Position, position_of_event
from tubemq_provider.windows.errors import DocumentError
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.planning.claims import ClaimBook
from tubemq_provider.windows.versions import MIGRATIONS, VERSIONS, migrated

FROZEN = Path(__file__).parent / "frozen"
SCOPE = WindowScope("c1", "orders", "g1", "parquet:/lake", ("news",))
NEXT = {"1:0": 2**62 // 28 * 28, "2:10002": 0}


def frozen(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((FROZEN / f"{name}.json").read_text())
    return document


@pytest.mark.parametrize("name", ["plan-cursor-1", "plan-time-1", "plan-explicit-1"])
def test_plans_of_version_1_are_read_and_keep_their_hash(name: str) -> None:
    document = frozen(name)
    plan = WindowPlan.from_document(document)
    assert (plan.window_id, plan.hash) == (document["id"], document["hash"])
    assert plan.ends["1:0"] == NEXT["1:0"]


def test_cursors_and_events_of_version_1_are_read() -> None:
    position = Position(7, NEXT)
    cursor = Cursor.from_document(frozen("cursor-1"), SCOPE)
    assert (cursor.position, cursor.rev, cursor.by) == (position, 9, "dag|run|task|-1")
    assert position_of_event(frozen("event-1"), SCOPE) == position
    book = ClaimBook.from_document(frozen("claims-1"), SCOPE)
    assert (set(book.pending), set(book.done)) == (
        {f"c-8-{SCOPE.scope_hash}"},
        {f"c-9-{SCOPE.scope_hash}"},
    )


@pytest.mark.parametrize("name", ["plan-cursor-1", "cursor-1", "event-1"])
def test_a_newer_version_is_refused_with_what_to_install(name: str) -> None:
    newer = VERSIONS[name.partition("-")[0]] + 1
    document = {**frozen(name), "v": newer}
    readers: dict[str, Callable[[], object]] = {
        "plan": lambda: WindowPlan.from_document(document),
        "cursor": lambda: Cursor.from_document(document, SCOPE),
        "event": lambda: position_of_event(document, SCOPE),
    }
    with pytest.raises(DocumentError, match="install that one on every worker"):
        readers[name.partition("-")[0]]()


@pytest.mark.parametrize("found", [0, -1, None, True, "1", 1.0])
def test_what_no_release_wrote_is_refused(found: object) -> None:
    with pytest.raises(DocumentError, match="unknown here"):
        migrated("cursor", {**frozen("cursor-1"), "v": found}, "cursor")


def test_a_document_passes_through_every_version_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Convert like a release that writes version 3: what version 1 called `next` moves twice."""
    monkeypatch.setitem(VERSIONS, "cursor", 3)
    steps = {
        1: lambda d: {**d, "goes_on": {key: [value] for key, value in d["next"].items()}},
        2: lambda d: {**d, "next": {key: value[0] for key, value in d["goes_on"].items()}},
    }
    for version, migrate in steps.items():
        monkeypatch.setitem(MIGRATIONS, ("cursor", version), migrate)
    old = frozen("cursor-1")
    document = migrated("cursor", old, "cursor")
    assert document["v"] == 3
    assert document["goes_on"]["1:0"] == [NEXT["1:0"]]
    assert old == frozen("cursor-1")
    assert Cursor.from_document(old, SCOPE).position == Position(7, NEXT)


def test_a_plan_of_a_thousand_partitions_is_one_value_and_longer_ones_are_cut() -> None:
    from tubemq_provider.offsets.chunking import PIECE_BYTES, split

    def plan(partitions: int) -> WindowPlan:
        big = NEXT["1:0"]
        ranges = {f"{1 + n % 9}:{n // 9 * 10000}": (big - 28 * n, big) for n in range(partitions)}
        return WindowPlan.cursor(SCOPE, 1, ranges)

    sizes = {n: len(json.dumps(plan(n).to_document())) for n in (1000, 5000)}
    assert sizes[1000] < 65_535 < sizes[5000]
    assert split(plan(1000).to_document())[1] == {}
    _, pieces = split(plan(5000).to_document())
    assert pieces
    assert all(len(json.dumps(piece)) <= PIECE_BYTES for piece in pieces.values())

"""The embedded server answers every table like a genuine one, and a genuine one still does.

What takes a genuine server long, or changes what its other users see, is left to
``make conformance``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.system.conformance.playing import Difference, Server, compare, play
from tests.system.conformance.rows import Row, answers
from tests.system.conformance.servers import embedded_server, genuine_server
from tests.system.conformance.tables import TABLES, explained, idle_explanations
from tools.devkit.tubemq.genuine import GenuineTubeMQ

ROWS = [pytest.param(table, row, id=row.name) for table, rows in TABLES.items() for row in rows]
SHORT = [
    pytest.param(table, row, id=row.name)
    for table, rows in TABLES.items()
    for row in rows
    if not row.long
]


@pytest.fixture(scope="module")
def embedded() -> Iterator[Server]:
    with embedded_server() as server:
        yield server


@pytest.fixture(scope="module")
def differences(embedded: Server) -> list[Difference]:
    found = []
    for table, rows in TABLES.items():
        recorded = answers(table)
        for row in rows:
            found += compare(row, play(row, embedded), recorded.get(row.name, []))
    return found


@pytest.mark.parametrize(("table", "row"), ROWS)
def test_the_embedded_server_answers_alike(
    differences: list[Difference], table: str, row: Row
) -> None:
    assert row.name in answers(table)
    odd = [
        item
        for item in differences
        if item.row == row.name and not explained(row.name, item.question)
    ]

    assert odd == []


def test_every_explanation_explains_something(differences: list[Difference]) -> None:
    assert idle_explanations(differences) == []


@pytest.mark.real
@pytest.mark.parametrize(("table", "row"), SHORT)
def test_a_genuine_server_answers_as_recorded(genuine: GenuineTubeMQ, table: str, row: Row) -> None:
    played = play(row, genuine_server(genuine))

    assert compare(row, played, answers(table)[row.name]) == []

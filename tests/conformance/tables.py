"""All tables, the topics they need, and why the embedded server may differ in a row."""

from __future__ import annotations

from collections.abc import Iterable

from tests.conformance import balance, controls, http, life_cycle, sequences
from tests.conformance.playing import Difference
from tests.conformance.rows import Row

__all__ = ["EXPLAINED", "TABLES", "TOPIC_SHAPES", "explained", "idle_explanations"]

TABLES: dict[str, tuple[Row, ...]] = {
    "sequences": sequences.ROWS,
    "balance": balance.ROWS,
    "controls": controls.ROWS,
    "http": http.ROWS,
    "life_cycle": life_cycle.ROWS,
    "cluster": controls.CLUSTER_ROWS,
}
"""In this order: the last ones leave their mark on a server."""

_SEVERAL = {"conf_three": 3, "conf_w9": 3, "conf_w10": 3, "conf_w11": 3}

TOPIC_SHAPES: dict[str, int] = {
    name: _SEVERAL.get(name, 1)
    for name in (
        *(f"conf_w{number}" for number in (1, 2, 3, 4, 5, 6, 7, 9, 10, 11)),
        *("conf_three", "conf_auth", "conf_life", "conf_grow"),
        *("conf_http", "conf_http7", "conf_alone"),
    )
}
"""Partitions of each topic; one store, in files and fsynced soon."""

EXPLAINED: dict[tuple[str, str], str] = {
    ("5.5 the broker at the master", "master(method='admin_query_master_group_info'"): (
        "it says what stores its settings, and that is not ZooKeeper here"
    ),
    ("4.11 a topic ends", "n1.meta()"): (
        "a removed topic is forgotten at once, not with the next report of its broker"
    ),
    ("4.11 a broker that never runs", "change(method='admin_delete_broker_configure'"): (
        "brokers have the system topic only if they write it, so this one is empty"
    ),
}
"""Why the embedded server answers a question (row, beginning of its text) differently."""


def explained(row: str, question: str) -> str | None:
    """The reason for a difference, None if there is none to be."""
    for (name, beginning), reason in EXPLAINED.items():
        if name == row and question.startswith(beginning):
            return reason
    return None


def idle_explanations(
    found: Iterable[Difference], tables: Iterable[str] = TABLES
) -> list[tuple[str, str]]:
    """Explanations of differences that are not there."""
    items = list(found)
    played = {row.name for table in tables for row in TABLES[table]}
    return [
        (name, beginning)
        for name, beginning in EXPLAINED
        if name in played
        and not any(item.row == name and item.question.startswith(beginning) for item in items)
    ]

"""All tables, the topics they need, and why the embedded server may differ in a row."""

from __future__ import annotations

from collections.abc import Iterable

from tests.system.conformance import balance, batches, controls, http, life_cycle, sequences
from tests.system.conformance.playing import Difference
from tests.system.conformance.rows import Row

__all__ = ["EXPLAINED", "TABLES", "TOPIC_SHAPES", "explained", "idle_explanations"]

TABLES: dict[str, tuple[Row, ...]] = {
    "sequences": sequences.ROWS,
    "balance": balance.ROWS,
    "controls": controls.ROWS,
    "http": http.ROWS,
    "batches": batches.ROWS,
    "life_cycle": life_cycle.ROWS,
    "cluster": controls.CLUSTER_ROWS,
}
"""In this order: the last ones leave their mark on a server."""

_SEVERAL = {"conf_three": 3, "conf_w9": 3, "conf_w10": 3, "conf_w11": 3}

TOPIC_SHAPES: dict[str, int] = {
    name: _SEVERAL.get(name, 1)
    for name in (
        *(f"conf_w{number}" for number in (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12)),
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
    (
        "5.4 permissions of several groups at once",
        "change(method='admin_batch_update_group_csmctrl_info', modifyUser='uu', groupCsmJsonSet='",
    ): ("what is no list of objects is refused alike, in the words of another JSON parser"),
    (
        "5.4 several brokers and topics at once",
        "change(method='admin_bath_add_topic_deploy_info'",
    ): ("an item for an unknown broker is refused by itself; a genuine one writes a broken body"),
}
"""Reasons for different answers of the embedded server, by row and beginning of the question."""


def explained(row: str, question: str) -> str | None:
    """Return the reason for a difference, None if there is none."""
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

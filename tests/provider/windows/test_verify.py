"""Counts must agree with the plan and with the files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tubemq_provider.windows.errors import CountMismatch
from tubemq_provider.windows.facts import FileFact
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.protocols import IngestCounts
from tubemq_provider.windows.verify import chain_problems, check_counts, check_files, check_staged

SCOPE = WindowScope("c1", "orders", "g1", "memory:x")
PLAN = WindowPlan.cursor(SCOPE, 1, {"1:0": (0, 280), "1:1": (28, 28)}, gaps={"1:0": ((28, 56),)})
GOOD = IngestCounts({"1:0": 9, "1:1": 0}, 100, pieces={"1:0": [[56, 140], [0, 28], [140, 280]]})


def test_counts_that_fit_pass() -> None:
    check_counts(PLAN, GOOD)
    check_staged(PLAN, GOOD, {"1:0": 9}, 9)
    check_staged(PLAN, GOOD, None, 9)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        (IngestCounts({"1:0": 9}), "1:1 was not counted"),
        (IngestCounts({"1:0": 10, "1:1": 0}), "at most 9"),
        (IngestCounts({"1:0": 9, "1:1": 1}), "at most 0"),
        (IngestCounts({"1:0": 9, "1:1": 0, "2:0": 1}), "not in the plan"),
        (IngestCounts({"1:0": 9, "1:1": 0}, pieces={"1:0": [[0, 28], [56, 140]]}), "planned"),
        (IngestCounts({"1:0": 9, "1:1": 0}, pieces={"1:0": [[0, 280]]}), "planned"),
        (
            IngestCounts({"1:0": 9, "1:1": 0}, pieces={"1:0": [[0, 28], [56, 168], [140, 280]]}),
            "planned",
        ),
    ],
)
def test_counts_that_cannot_be_those_of_the_plan(counts: IngestCounts, message: str) -> None:
    with pytest.raises(CountMismatch, match=message):
        check_counts(PLAN, counts)


@pytest.mark.parametrize(("staged", "total"), [({"1:0": 8, "1:1": 1}, 9), ({"1:0": 9}, 10)])
def test_files_that_hold_something_else(staged: dict[str, int], total: int) -> None:
    with pytest.raises(CountMismatch, match="in files"):
        check_staged(PLAN, GOOD, staged, total)


def test_a_chain_with_holes_gaps_and_overlaps_says_where() -> None:
    plans = [
        WindowPlan.cursor(SCOPE, 1, {"1:0": (0, 28)}),
        WindowPlan.cursor(SCOPE, 2, {"1:0": (28, 56)}),
        WindowPlan.cursor(SCOPE, 3, {"1:0": (28, 84)}),
        WindowPlan.cursor(SCOPE, 5, {"1:0": (84, 84)}),
    ]
    assert chain_problems(plans[:2]) == []
    assert len(chain_problems(reversed(plans))) == 2


FACT = FileFact("a", 9, 100, {"1:0": 9}, (("1:0", 0, 28, 1), ("1:0", 56, 280, 8)), '"t"')


def check_said(fact: FileFact, *more: FileFact, others: tuple[str, ...] = ()) -> None:
    counts = replace(GOOD, files=(fact, *more))
    check_files(PLAN, counts, {"a": (100, '"t"'), "b": (1, "")}, others)


def test_facts_that_fit_pass() -> None:
    check_said(FACT)
    check_said(replace(FACT, tag=""))
    check_said(replace(FACT, pieces=()))


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ((replace(FACT, path="c"),), "c is not there, 100 were written"),
        ((replace(FACT, size=99),), "a has 100 bytes, 99 were written"),
        ((replace(FACT, tag='"u"'),), "a has other bytes"),
        ((FACT, FACT), "a is named 2 times"),
        ((replace(FACT, pieces=FACT.pieces[1:]),), "do not have its 9 rows"),
        ((replace(FACT, pieces=(("1:0", 0, 56, 9),)),), r"files have \[0, 56\)"),
        ((replace(FACT, pieces=(("1:1", 0, 28, 9),)),), r"1:1: files have \[0, 28\)"),
        (
            (FACT, FileFact("b", 1, 1, {"1:0": 1}, (("1:0", 252, 280, 1),))),
            "1:0: files overlap before offset 280",
        ),
    ],
)
def test_facts_that_cannot_be_those_of_the_plan(facts: tuple[FileFact, ...], message: str) -> None:
    with pytest.raises(CountMismatch, match=message):
        check_said(*facts)


def test_files_that_nobody_told_of_are_refused_where_they_would_be_published() -> None:
    with pytest.raises(CountMismatch, match="stray: no fact describes it"):
        check_said(FACT, others=("stray",))

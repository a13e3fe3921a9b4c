"""Change records against the answers of Flink's formats, which `freeze` has kept."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyarrow")

from tests.provider.rows.differential.changes import FROZEN, explanation, our_answer, sample


def test_changes_are_read_as_flink_reads_them_or_the_difference_is_explained() -> None:
    answers = [json.loads(line) for line in FROZEN.read_text().splitlines()]
    cases = sample()
    assert [[case.format, case.name] for case in cases] == [one[:2] for one in answers]
    unexplained = [
        (case.format, case.name, ours, flinks)
        for case, (_, _, flinks) in zip(cases, answers, strict=True)
        if explanation(case, ours := our_answer(case), flinks) is None
    ]
    assert unexplained == []

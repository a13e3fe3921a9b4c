"""Commands that `tubemq` prints are typed where they are printed, and lead on."""

from __future__ import annotations

import shlex

from tests.client.cli.conftest import Run
from tests.client.cli.rows import Outcome
from tubemq_client.embedded import EmbeddedTubeMQ

DEAD = "127.0.0.1:1"


def typed(run: Run, printed: str, command: str, *more: str) -> Outcome:
    """Run `command`, which `printed` has to name."""
    assert command in " ".join(printed.split())
    return run(*shlex.split(command)[1:], *more)


def test_the_doctor_of_an_error_names_the_step_that_fails(run: Run) -> None:
    error = run("partitions", "orders", "--masters", DEAD).err
    found = typed(run, error, "tubemq doctor", "--masters", DEAD, "-o", "jsonl")
    assert found.code == 4
    (failed,) = (row for row in found.rows() if row["state"] == "failed")
    assert failed["step"] == "masters"
    assert failed["target"] == DEAD


def test_a_topic_that_exists_is_shown_and_modified(run: Run, fresh: str) -> None:
    error = run("topics", "create", fresh).err
    assert typed(run, error, f"tubemq topics show {fresh}").code == 0
    changed = typed(run, error, "tubemq topics modify", fresh, "--partitions", "3", "--yes")
    assert changed.code == 0
    rows = run("topics", "show", fresh, "-o", "jsonl").rows()
    assert {row["partitions"] for row in rows} == {3}


def test_groups_that_there_are_instead_of_an_unknown_one(run: Run, fresh: str) -> None:
    run("produce", fresh, text='{"number": 1}\n')
    run("offsets", "set", "known_here", fresh, "earliest", "--yes")
    note = run("lag", fresh, "--group", "known_hree").err
    assert "known_here" in typed(run, note, "tubemq groups list").out


def test_topics_that_there_are_instead_of_an_unknown_one(run: Run, fresh: str) -> None:
    hint = run("doctor", "--topic", "nowhere", "-o", "jsonl").out
    assert fresh in typed(run, hint, "tubemq topics list").out


def test_a_broker_that_is_off_line_is_found_and_put_on_line(
    run: Run, mq: EmbeddedTubeMQ, fresh: str
) -> None:
    brokers = [str(number) for number in (1, 2)]
    assert run("brokers", "offline", *brokers, "--yes").code == 0
    try:
        hint = run("doctor", "--topic", fresh, "-o", "jsonl").out
        listed = typed(run, hint, "tubemq brokers list", "-o", "jsonl")
        assert not any("online" in str(row["state"]) for row in listed.rows())
    finally:
        assert run("brokers", "online", *brokers, "--yes").code == 0
    assert run("doctor", "--topic", fresh).code == 0


def test_a_group_that_may_not_read_is_let_in(run: Run, fresh: str) -> None:
    """A permission of the group itself does not help: ranges are read under names with a dot."""
    run("produce", fresh, text='{"number": 1}\n')
    assert run("topics", "modify", fresh, "--authorisation", "--yes").code == 0
    found = run("doctor", "--topic", fresh, "--group", "closed", "-o", "jsonl")
    assert found.code == 6
    let_in = typed(run, found.out, f"tubemq topics modify {fresh} --no-authorisation", "--yes")
    assert let_in.code == 0, let_in.err
    assert run("doctor", "--topic", fresh, "--group", "closed").code == 0

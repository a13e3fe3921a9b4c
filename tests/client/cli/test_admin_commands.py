"""Topics, brokers, groups, offsets and lag over HTTP: output, confirmations, changes and
refusals."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from tests.client.cli.conftest import Run
from tests.client.cli.rows import TOPIC
from tubemq_client import AssignedConsumer, ClientSettings, Partition, Producer, Record, errors
from tubemq_client.cli.lag import _looks, _Sample
from tubemq_client.cli.options import JsonRows, Output
from tubemq_client.embedded import EmbeddedTubeMQ


@pytest.fixture
def filled(fresh: str, settings: ClientSettings) -> str:
    """Create a topic with ten records in one store."""
    with Producer(settings) as producer:
        one = Partition(1, fresh, 0)
        list(producer.send_many(fresh, [Record(b"x", partition=one)] * 10))
    return fresh


def test_topics_are_listed_and_shown(run: Run) -> None:
    rows = {row["topic"]: row for row in run("topics", "list", "-o", "jsonl").rows()}
    assert rows[TOPIC]["partitions"] == 8
    assert rows[TOPIC]["brokers"] == [1, 2]
    (first, _) = run("topics", "show", TOPIC, "-o", "jsonl").rows()
    assert (first["broker"], first["stores"], first["status"]) == (1, 2, "normal")
    assert "8 of 8 partitions" in run("topics", "show", TOPIC).err
    assert run("topics", "show", "nowhere").code == 1


def test_a_topic_is_created_changed_and_deleted(run: Run) -> None:
    assert run("topics", "create", "cli_made", "--partitions", 2).code == 0
    again = run("topics", "create", "cli_made")
    assert (again.code, "code 402" in again.err) == (1, True)
    assert "topic cli_made exists: tubemq topics show cli_made" in again.err
    asked = run("topics", "modify", "cli_made", "--partitions", 3, text="n\n")
    assert (asked.code, "not confirmed" in asked.err) == (2, True)
    assert run("topics", "modify", "cli_made", "--partitions", 3, text="y\n").code == 0
    assert run("topics", "show", "cli_made", "-o", "jsonl").rows()[0]["partitions"] == 3
    assert run("topics", "modify", "cli_made", "--partitions", 0, "--yes").code == 2
    assert run("topics", "modify", "cli_made", "--partitions", 1, "--yes").code == 1
    assert run("topics", "delete", "cli_made", "--remove-data", text="").code == 2
    assert run("topics", "delete", "cli_made", "--remove-data", "--yes").code == 0


def test_brokers_are_listed_and_closed(run: Run, mq: EmbeddedTubeMQ) -> None:
    rows = run("brokers", "list", "-o", "jsonl").rows()
    assert [(row["broker"], row["runs"]) for row in rows] == [(1, "running"), (2, "running")]
    assert rows[1]["address"] == mq.broker(2).address
    assert run("brokers", "access", 2, "--no-publish", "--yes").code == 0
    assert run("brokers", "list", "-o", "jsonl").rows()[1]["set_to"] == "only-read"
    assert run("brokers", "access", 2, "--publish", "--yes").code == 0
    assert run("brokers", "offline", 2, text="n\n").code == 2
    assert run("brokers", "reload", 1, 2).code == 0
    assert run("brokers", "online", 77, "--yes").code == 1


def test_groups_are_listed_with_members(run: Run, fresh: str, settings: ClientSettings) -> None:
    with AssignedConsumer(settings, "cli_online", {fresh: ()}) as consumer:
        consumer.assign(Partition(1, fresh, 0), 0)
        rows = {r["group"]: r for r in run("groups", "list", "-o", "jsonl").rows()}
        assert rows["cli_online"]["members"] == 1
        assert rows["cli_online"]["topics"] == [fresh]
        (member,) = run("groups", "show", "cli_online", "-o", "jsonl").rows()
        assert member["member"].startswith("cli_online")
        assert "client-rebalance" in run("groups", "show", "cli_online").err
        assert [r["group"] for r in run("groups", "list", "-t", fresh, "-o", "jsonl").rows()] == [
            "cli_online"
        ]
    assert run("groups", "show", "cli_online").err == "members of cli_online: none\n"


def test_positions_are_shown_set_copied_and_removed(run: Run, filled: str) -> None:
    def stored(group: str) -> dict[str, int]:
        rows = run("offsets", "show", group, "--topic", filled, "-o", "jsonl").rows()
        return {r["partition"]: r["position"] for r in rows if r["position"] is not None}

    dry = run(
        "offsets", "set", "cli_moved", filled, "1:0=84", "1:1=latest", "--dry-run", "-o", "jsonl"
    )
    assert [(r["before"], r["after"], r["applied"]) for r in dry.rows()] == [
        (None, 84, False),
        (None, 280, False),
    ]
    assert stored("cli_moved") == {}
    assert run("offsets", "set", "cli_moved", filled, "1:0=84", text="n\n").code == 2
    assert stored("cli_moved") == {}
    done = run("offsets", "set", "cli_moved", filled, "1:0=84", "--yes")
    assert (done.code, "1 positions changed" in done.err) == (0, True)
    assert stored("cli_moved") == {"1:0": 84}
    wrong = run("offsets", "set", "cli_moved", filled, "1:0=85", "9:9=0", "2:0=28", "--yes")
    assert wrong.code == 2
    assert wrong.err.count("\n  - ") == 3

    copied = run("offsets", "clone", "cli_moved", "cli_copy", "--yes", "-o", "jsonl")
    assert copied.rows()[0]["after"] == 84
    assert stored("cli_copy") == {"1:0": 84}
    assert run("offsets", "clone", "cli_nobody", "cli_copy", "--yes").code == 2
    assert run("offsets", "remove", "cli_copy", "--dry-run").code == 0
    assert stored("cli_copy") == {"1:0": 84}
    assert run("offsets", "remove", "cli_copy", "--yes").code == 0
    again = run("offsets", "remove", "cli_misspelt", "--yes", "--topic", "plain")
    assert (again.code, "group cli_misspelt has no position on plain" in again.err) == (2, True)
    assert stored("cli_copy") == {}


def test_lag_is_watched_with_rates(run: Run, filled: str, mq: EmbeddedTubeMQ) -> None:
    mq.broker(1).flush()
    run("offsets", "set", "cli_watched", filled, "1:0=84", "1:1=84", "--yes")
    options = ("lag", filled, "--group", "cli_watched", "--watch", "--looks", 2, "--every", 0.1)
    first, second = run(*options, "-o", "jsonl").rows()
    assert first == {
        "total_lag": 7,
        "written_per_s": None,
        "read_per_s": None,
        "caught_up_in": None,
    }
    assert (second["total_lag"], second["written_per_s"], second["read_per_s"]) == (7, 0.0, 0.0)
    assert "never at these rates" in run(*options).err


def test_secrets_are_not_printed(run: Run) -> None:
    refused = run("topics", "create", "cli_secret", "--admin-token", "s3cret-token")
    assert refused.code == 1
    assert "unauthorized" in refused.err
    assert "s3cret" not in refused.err + refused.out
    missing = run("brokers", "reload", 1, "--admin-token", "")
    assert missing.code in (1, 2)


@pytest.mark.parametrize(
    "command",
    [
        ("topics", "list"),
        ("brokers", "list"),
        ("groups", "list"),
        ("offsets", "show", "cli_x"),
        ("offsets", "remove", "cli_x", "--yes"),
    ],
    ids=lambda command: "-".join(command[:2]),
)
def test_a_dead_web_address_ends_with_one_in_one_line(run: Run, command: tuple[str, ...]) -> None:
    outcome = run(*command, "--admin", "http://127.0.0.1:1")
    assert outcome.code == 1
    assert outcome.err.startswith("tubemq: ")
    assert outcome.err.count("\n") == 1
    assert run(*command, "--admin", "ftp://x").code == 2


def test_controls_are_set_shown_and_forgotten(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "rules.json"
    file.write_text('[{"type": 1, "rule": [{"zeroCnt": 3, "freqInMs": 500}]}]')
    said = ("groups", "control", "cli_said")
    assert run(*said).err == "controls of cli_said: none\n"
    denied = run(*said, "--topic", TOPIC, "--deny", "--reason", "greedy", "--yes", "-o", "jsonl")
    about = [(r["topic"], r["may_read"], r["reason"]) for r in denied.rows() if r["topic"]]
    assert about == [(TOPIC, False, "greedy")]
    assert run(*said, "--topic", TOPIC, "--allow", text="n\n").code == 2
    assert run(*said, "--flow-rules", file, "--yes").code == 0
    rules = [r["flow_rules"] for r in run(*said, "-o", "jsonl").rows() if r["flow_rules"]]
    assert json.loads(rules[-1])[0]["rule"][0]["zeroCnt"] == 3
    assert run(*said, "--forget", "--yes", "-o", "jsonl").rows() == []


def test_wrong_controls_end_with_two(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "rules.json"
    file.write_text("{}")
    refused = run("groups", "control", "cli_slow", "--flow-rules", file, "--yes")
    assert (refused.code, "not a JSON list" in refused.err) == (2, True)
    assert run("groups", "control", "cli_slow", "--deny", "--yes").code == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--topic", TOPIC, "--stream", "paid"), ("--topic", "--stream", "--allow or --deny")),
        (("--reason", "slow"), ("--reason", "--allow or --deny")),
        (("--no-flow-rules", "--flow-rules", "FILE"), ("exclude each other",)),
    ],
)
def test_controls_that_would_change_nothing_are_refused(
    run: Run, tmp_path: Path, options: tuple[str, ...], words: tuple[str, ...]
) -> None:
    file = tmp_path / "rules.json"
    file.write_text("[]")
    given = [str(file) if word == "FILE" else word for word in options]
    outcome = run("groups", "control", "cli_idle", *given, "--yes")
    assert outcome.code == 2
    assert all(word in outcome.err for word in words)


def test_an_empty_name_does_not_mean_all(run: Run, filled: str) -> None:
    """An unset variable of a script gives an empty name."""
    assert run("offsets", "set", "cli_kept", filled, "latest", "--yes").code == 0
    denied = run("groups", "control", "cli_kept", "--deny", "--topic", TOPIC, "--yes").out
    for words in (
        ("offsets", "remove", "cli_kept", "--topic", ""),
        ("offsets", "clone", "cli_kept", "cli_other", "--topic", " "),
        ("groups", "control", "", "--forget"),
    ):
        refused = run(*words, "--yes")
        assert (refused.code, "an empty name would mean all" in refused.err) == (2, True)
    rows = run("offsets", "show", "cli_kept", "-o", "jsonl").rows()
    assert {row["position"] for row in rows if row["partition"].startswith("1:0")} == {280}
    assert run("groups", "control", "cli_kept").out == denied
    assert run("groups", "control", "cli_kept", "--forget", "--yes").code == 0


def test_nothing_is_changed_before_everything_is_agreed_on(run: Run) -> None:
    control = ("groups", "control", "cli_asked")
    both = ("--allow", "--topic", TOPIC, "--clients-per-broker", 2)
    refused = run(*control, *both, text="y\nn\n")
    assert (refused.code, "nothing was changed" in refused.err) == (2, True)
    assert run(*control, "-o", "jsonl").rows() == []
    assert run(*control, *both, text="y\ny\n").code == 0
    assert run(*control, "--forget", "--deny", "--yes").code == 2  # without a topic
    assert len(run(*control, "-o", "jsonl").rows()) == 2
    assert run(*control, "--forget", "--yes").code == 0


def test_the_question_names_the_brokers_that_are_meant(run: Run, fresh: str) -> None:
    asked = run("topics", "delete", fresh, "--broker", 2, text="n\n")
    assert "on brokers 2?" in asked.err
    assert "on brokers 1, 2?" in run("topics", "delete", fresh, text="n\n").err


def test_a_pipe_gets_a_line_of_json_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    come = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(come))
    JsonRows(Output.JSONL).add({"total_lag": 3})
    assert json.loads(come.getvalue()) == {"total_lag": 3}


def test_an_offset_of_one_partition_counts_more_than_those_of_all(run: Run, filled: str) -> None:
    change = ("offsets", "set", "cli_both", filled)
    for words in (("1:0=28", "latest"), ("latest", "1:0=28")):
        rows = {
            row["partition"]: row for row in run(*change, *words, "--dry-run", "-o", "jsonl").rows()
        }
        assert (rows["1:0"]["after"], rows["1:1"]["after"]) == (28, 280)
    for words in (("1:0=28", "1:0=56"), ("latest", "earliest")):
        refused = run(*change, *words, "--yes")
        assert (refused.code, f"{words[1]!r}: given more than once" in refused.err) == (2, True)


@pytest.mark.parametrize("every", ["inf", "nan", "1e300", "0"])
def test_a_watch_without_a_next_look_is_refused(every: str, run: Run, filled: str) -> None:
    found = run("lag", filled, "--group", "cli_watched", "--watch", "--every", every)
    assert (found.code, "--every" in found.err) == (2, True), found


def test_a_watch_continues_when_a_query_fails(capsys: pytest.CaptureFixture[str]) -> None:
    away = errors.ConnectError("the master is away")
    answers = iter([_Sample(0.0, {}, {}), away, _Sample(2.0, {}, {}), errors.ConfigError("wrong")])

    def look() -> _Sample:
        found = next(answers)
        if isinstance(found, errors.TubeMQError):
            raise found
        return found

    pairs = _looks(look, 0.01, None)
    assert [now.at for _, now in (next(pairs), next(pairs))] == [0.0, 2.0]
    assert "the master is away; retrying" in capsys.readouterr().err
    with pytest.raises(errors.ConfigError, match="wrong"):
        next(pairs)

"""Common rules of all commands: help with examples, letters, formats, answers to mistakes."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
from rich.progress import Progress

from tests.client.cli.conftest import Run
from tests.client.cli.rows import TOPIC
from tests.client.cli.test_docs import COMMANDS
from tools.devkit.patience import PATIENCE
from tubemq_client.cli.app import build_app, load_command
from tubemq_client.cli.commands import COMMANDS as ENTRIES
from tubemq_client.cli.commands import EXAMPLES, OPTIONS, help_text

GROUPS = [word for word in ENTRIES if word not in COMMANDS]


def options_of(command: Any) -> dict[str, Any]:
    return {o: p for p in command.params for o in (*p.opts, *p.secondary_opts) if o[0] == "-"}


@pytest.mark.parametrize("words", ["", *GROUPS, *COMMANDS])
def test_help_ends_with_examples(words: str, run: Run) -> None:
    shown = run(*words.split(), "--help")
    assert shown.code == 0
    examples = shown.out.partition("Examples")[2]
    lines = [line.strip() for line in examples.splitlines() if line.strip()]
    joined = re.split(r"^\$ ", "\n".join(lines), flags=re.MULTILINE)[1:]
    assert [" ".join(line.split()) for line in joined] == list(EXAMPLES[words])
    assert len(joined) >= 2


@pytest.mark.parametrize("words", [*COMMANDS])
def test_an_example_is_a_use_of_its_command(words: str) -> None:
    for line in EXAMPLES[words]:
        own = f"tubemq {words} "
        assert f"{line} ".startswith(own)
        given = shlex.split(line.removeprefix(own.strip()))
        missing = ["--masters", "m1:8715", "--admin", "http://m1:8080"]
        known = options_of(COMMANDS[words])
        for option, value in zip(missing[::2], missing[1::2], strict=True):
            if option in known and option not in given:
                given += [option, value]
        for option in (word for word in given if word.startswith("-")):
            assert option in known, line


def test_summaries_are_those_of_the_commands() -> None:
    for word, entry in ENTRIES.items():
        assert " ".join((load_command(word).help or "").split("\n\n")[0].split()) == entry.summary


def test_a_letter_has_one_meaning() -> None:
    meanings: dict[str, set[str]] = {}
    for command in COMMANDS.values():
        for option, param in options_of(command).items():
            if not option.startswith("--"):
                meanings.setdefault(option, set()).add(param.opts[0])
    assert {letter: names for letter, names in meanings.items() if len(names) > 1} == {}


@pytest.mark.parametrize("words", [words for words in COMMANDS if words != "completion"])
def test_every_command_takes_output(words: str) -> None:
    output = options_of(COMMANDS[words])["-o"]
    assert output.opts == ["--output", "-o"]
    assert output.default in ("table", "jsonl")
    assert "--json" not in options_of(COMMANDS[words])


def test_json_is_one_array_and_jsonl_a_line_for_each(run: Run) -> None:
    for words in (("partitions", TOPIC), ("topics", "list"), ("doctor", "--topic", TOPIC)):
        rows = json.loads(run(*words, "-o", "json").out)
        assert len(rows) > 1
        lines = run(*words, "-o", "jsonl").rows()
        assert [set(row) for row in lines] == [set(row) for row in rows]


def test_changes_tell_what_was_done_as_json(run: Run) -> None:
    made = run("topics", "create", "told", "-o", "json")
    assert json.loads(made.out) == [
        {"topic": "told", "broker": 1, "done": "created"},
        {"topic": "told", "broker": 2, "done": "created"},
    ]
    reloaded = run("brokers", "reload", 1, "-o", "jsonl")
    assert reloaded.rows() == [{"broker": 1, "done": "reloaded"}]
    assert run("brokers", "reload", 1).out == ""


def test_records_as_an_array_and_as_a_table(run: Run, fresh: str) -> None:
    assert json.loads(run("consume", fresh, "-o", "json").out) == []
    assert run("consume", fresh, "-o", "table").out == ""
    run("produce", fresh, text='{"number": 1}\n{"number": 2}\n{"number": 3}\n')
    rows = json.loads(run("consume", fresh, "-o", "json").out)
    # A group's records have an index offset only where the broker's reply shows it for sure.
    again = run("consume", fresh).rows()
    assert [row | {"offset": None} for row in rows] == [row | {"offset": None} for row in again]
    assert len(rows) == 3
    table = run("consume", fresh, "-o", "table").out
    assert all(row["value"] in table for row in rows)
    entry = rows[0]
    words = ("read-range", fresh, entry["partition"], 0, 28)
    assert [row["value"] for row in json.loads(run(*words, "-o", "json").out)] == [entry["value"]]
    assert entry["value"] in run(*words, "-o", "table").out


def test_an_array_is_closed_when_a_limit_ends_it(run: Run, fresh: str) -> None:
    run("produce", fresh, text='{"number": 1}\n{"number": 2}\n')
    assert len(json.loads(run("consume", fresh, "-n", 1, "-o", "json").out)) == 1


def test_a_wrong_word_lists_the_commands(run: Run) -> None:
    def told(*words: str) -> str:
        outcome = run(*words)
        assert outcome.code == 2
        return " ".join(outcome.err.replace("│", " ").split())

    said = told("nonsense")
    assert all(word in said for word in ENTRIES)
    assert "Did you mean" not in said
    assert "Did you mean 'topics'? Commands: partitions, ends," in told("topcs")
    assert "Did you mean 'list'? Commands: list, show, create" in told("topics", "lst")


NEEDED = {"partition": "1:0", "start": 0, "end": 28, "topic": TOPIC, "group": "lake"}
WITH_TIME = [words for words, c in COMMANDS.items() if "--rpc-timeout-ms" in options_of(c)]


@pytest.mark.parametrize("words", WITH_TIME)
def test_a_bad_value_is_one_error_with_the_name_of_the_option(words: str, run: Run) -> None:
    """Administration ended with a traceback, other commands named a setting in place of it."""
    given: list[object] = [*words.split()]
    for param in COMMANDS[words].params:
        if param.required and param.param_type_name == "argument":
            given.append(NEEDED.get(param.name, 1))
        elif param.required and param.name == "group":
            given += ["--group", "lake"]
    given += ["--yes"] if "--yes" in options_of(COMMANDS[words]) else []
    given += {"groups control": ["--topic", TOPIC, "--allow"]}.get(words, [])
    for value in (-5, 10**20):
        outcome = run(*given, "--rpc-timeout-ms", value)
        assert outcome.code == 2
        assert outcome.err.startswith(f"tubemq: invalid options: --rpc-timeout-ms: {value}")
        assert outcome.err.count("\n") == 1


def test_version(run: Run) -> None:
    assert run("--version").out == run("-V").out == "0.1.0\n"


@pytest.mark.parametrize("words", ["partitions missing", "ends missing", "produce missing"])
def test_an_unknown_topic_names_the_command_that_lists_topics(run: Run, words: str) -> None:
    outcome = run(*words.split(), text='{"number": 1}\n')
    assert outcome.code == 1
    assert "topic" in outcome.err
    assert outcome.err.rstrip().endswith("tubemq topics list")


def test_an_unknown_group_is_told(run: Run, fresh: str) -> None:
    run("produce", fresh, text='{"number": 1}\n{"number": 2}\n')
    unknown = run("lag", fresh, "--group", "nobody")
    assert unknown.code == 0
    assert "group nobody is unknown" in " ".join(unknown.err.split())
    assert "airflow tubemq offsets list" in " ".join(unknown.err.split())
    run("offsets", "set", "elsewhere", TOPIC, "earliest", "--yes")
    other = run("lag", fresh, "--group", "elsewhere")
    assert f"group elsewhere has no position on topic {fresh}" in " ".join(other.err.split())
    run("offsets", "set", "elsewhere", fresh, "earliest", "--yes")
    assert "elsewhere has" not in run("lag", fresh, "--group", "elsewhere").err


def test_a_dead_master_names_the_doctor(run: Run) -> None:
    outcome = run("partitions", "orders", "--masters", "127.0.0.1:1")
    assert outcome.code == 1
    assert outcome.err.count("tubemq doctor") == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rows.jsonl", '{"at": "2013-01-01"}\n{"at": oops}\n'),
        ("rows.jsonl", '{"at": "2013-01-01"}\n["oops"]\n'),
        ("rows.jsonl", '{"at": "2013-01-01"}\n{"at": "oops"}\n'),
        ("rows.jsonl", '{"at": "2013-01-01"}\n{"other": "oops"}\n'),
        ("rows.csv", "at,number\n2013-01-01,1\noops\n"),
        ("rows.csv", "at,number\n2013-01-02,1\n2013-01-01,oops\n"),
    ],
)
def test_a_bad_row_is_shown(name: str, text: str, run: Run, fresh: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(text)
    outcome = run("produce", fresh, "--file", file, "--time-field", "at")
    assert outcome.code == 2
    said = outcome.err.partition("; the row: ")
    assert "row 2" in said[0]
    assert "oops" in said[2]
    assert len(said[2]) < 250


def test_a_long_bad_row_is_cut(run: Run, fresh: str) -> None:
    outcome = run("produce", fresh, text="x" * 100_000)
    assert outcome.err.rstrip().endswith("; the row: " + "x" * 200 + "…")


def test_the_progress_of_a_file_has_its_total(
    run: Run, fresh: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    totals = []
    original = Progress.add_task

    def add_task(self: Any, description: str, total: float | None = None, **options: Any) -> Any:
        totals.append(total)
        return original(self, description, total=total, **options)

    monkeypatch.setattr("rich.progress.Progress.add_task", add_task)
    run("produce", fresh, "--file", file)
    run("produce", fresh, "--file", file, "--limit", 7)
    run("produce", fresh, text='{"number": 1}\n')
    assert totals == [180, 7, None]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_and_options(shell: str) -> None:
    def completed(line: str) -> set[str]:
        words = line.split(" ")
        environment = os.environ | {
            "_TUBEMQ_COMPLETE": f"complete_{shell}",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
            "_TYPER_COMPLETE_ARGS": line,
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        }
        done = subprocess.run(
            [sys.executable, "-m", "tubemq_client.cli"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60 * PATIENCE,
            check=False,
        )
        return set(re.findall(r"[-a-z]+", done.stdout))

    assert {"topics", "produce", "read-range"} <= completed("tubemq ")
    assert {"create", "modify"} <= completed("tubemq topics ")
    assert "--follow" in completed("tubemq consume orders --fo")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_printed(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tubemq_client.cli", "completion", shell],
        capture_output=True,
        text=True,
        timeout=60 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0
    assert "_TUBEMQ_COMPLETE" in done.stdout
    assert shell in done.stdout


def test_the_list_of_commands_imports_no_command() -> None:
    code = (
        "import sys, json\n"
        "from tubemq_client.cli.app import build_app\n"
        "try: build_app()(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = ('pydantic', 'asyncio', 'tubemq_client.sync', 'tubemq_client.cli.options')\n"
        "sys.stderr.write(json.dumps([m for m in heavy if m in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60 * PATIENCE,
        check=False,
    )
    assert json.loads(done.stderr) == []
    assert "read-range" in done.stdout


def test_help_of_the_command_line_is_that_of_the_application() -> None:
    group: Any = typer.main.get_command(build_app())
    helps = {param.opts[0]: param.help for param in options_of(group).values()}
    assert helps | {"--help": OPTIONS["--help"]} == OPTIONS
    shown = " ".join(help_text().split())
    letters = [o for o in options_of(group) if not o.startswith("--")]
    assert all(f", {letter} " in shown for letter in ["-h", *letters])
    texts = [group.help, *OPTIONS.values(), *(entry.summary for entry in ENTRIES.values())]
    assert [text for text in [*texts, *EXAMPLES[""]] if text not in shown] == []


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_imports_no_terminal_library(word: str) -> None:
    """Importing typer takes longer than everything else that the list of commands needs."""
    code = (
        "import sys; sys.argv[1:] = [sys.argv[1]]\n"
        "from tubemq_client.cli import main; main()\n"
        "sys.stderr.write(str([m for m in ('typer', 'rich', 'pydantic') if m in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, word],
        capture_output=True,
        text=True,
        timeout=60 * PATIENCE,
        check=True,
    )
    assert done.stdout == help_text() + "\n"
    assert done.stderr == "[]"


def test_the_application_lists_every_command() -> None:
    group: Any = typer.main.get_command(build_app())
    assert list(group.commands) == list(ENTRIES)

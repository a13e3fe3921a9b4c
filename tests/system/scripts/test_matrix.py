"""`tools/scripts/spark_matrix.py`, `tools/scripts/airflow_matrix.py`: runs that break off are no
success."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools.scripts import airflow_matrix, environments, spark_matrix

PASSED = '<testsuites><testsuite tests="3" skipped="1" failures="0" errors="0"/></testsuites>'


def program(path: Path, then: str, *, report: bool = True) -> Path:
    """In the place of an environment's Python: leaves a report without failures, and then …"""
    write = f"echo '{PASSED}' > ${{argument#--junitxml=}}" if report else ":"
    path.write_text(
        "#!/bin/sh\n"
        f'for argument; do case "$argument" in --junitxml=*) {write};; esac; done\n'
        f"{then}\n"
    )
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("given", "releases", "more"),
    [
        ([], ["4.1", "4.2", "4.3"], []),
        (["-k", "format"], ["4.1", "4.2", "4.3"], ["-k", "format"]),
        (["4.2", "-k", "4.1"], ["4.2"], ["-k", "4.1"]),
    ],
)
def test_releases_stand_in_front_of_what_is_for_pytest(
    given: list[str],
    releases: list[str],
    more: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(spark_matrix, "_environment", lambda release: tmp_path)
    monkeypatch.setattr(spark_matrix, "_run_tests", lambda *args: played.append(args[::2]) or True)
    monkeypatch.setattr(sys, "argv", ["spark_matrix", *given])
    assert spark_matrix.main() == 0
    assert played == [(release, more) for release in releases]


def test_a_release_that_is_not_in_the_matrix_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["spark_matrix", "4.0", "-k", "format"])
    with pytest.raises(SystemExit):
        spark_matrix.main()
    assert "4.0: not one of 4.1, 4.2, 4.3" in capsys.readouterr().err


def test_a_release_whose_tests_ran_to_their_end_has_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(environments, "ROOT", tmp_path)
    assert spark_matrix._run_tests("4.2", program(tmp_path / "python", "exit 0"), [])
    assert capsys.readouterr().out == "PySpark 4.2: 2 passed, 0 failed, 1 skipped\n"


@pytest.mark.parametrize(
    ("then", "report", "said"),
    [
        ("exit 3", True, "2 passed, 0 failed, 1 skipped; aborted with exit code 3"),
        ("kill -SEGV $$", False, "0 passed, 0 failed, 0 skipped; aborted with exit code 139"),
        ("exec sleep 60", True, "2 passed, 0 failed, 1 skipped; aborted with exit code 124"),
    ],
)
def test_a_release_whose_tests_broke_off_has_not(
    then: str,
    report: bool,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(environments, "ROOT", tmp_path)
    monkeypatch.setattr(spark_matrix, "LIMIT_S", 2)
    assert not spark_matrix._run_tests("4.2", program(tmp_path / "python", then, report=report), [])
    assert capsys.readouterr().out.splitlines()[-1] == f"PySpark 4.2: {said}"


def test_an_airflow_that_does_not_end_lets_the_next_one_play(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    programs = {
        "airflow-3.1": program(tmp_path / "slow", "exec sleep 60"),
        "airflow-3.2": program(tmp_path / "quick", f"touch {tmp_path}/played"),
    }
    monkeypatch.setattr(airflow_matrix, "environment", lambda name, *_: programs[name])
    monkeypatch.setattr(airflow_matrix, "LIMIT_S", 2)
    monkeypatch.setattr(sys, "argv", ["airflow_matrix"])
    assert airflow_matrix.main() == 1
    assert "3.1: aborted with exit code 124" in capsys.readouterr().out
    assert (tmp_path / "played").exists()

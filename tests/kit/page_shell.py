"""A process that runs the commands of documentation pages, with a real Airflow on SQLite.

    python -m tests.kit.page_shell    reads a request as JSON per line, answers with a line

Airflow is imported once and its database is made once, so a command takes a second and not ten.
Everything runs in this process: `airflow …`, `tubemq …` and `python3 FILE` as well; other programs
run in a shell. Output is captured as the terminal would have it, with standard error.

Requests: ``{"do": "page", "folder": …}`` changes to the folder of a page, ``{"do": "command",
"line": …}`` runs a command, ``{"do": "python", "text": …}`` a block in the page's names.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from functools import cache
from typing import Any

from typer.testing import CliRunner

_PIPE = re.compile(r" \| (?=tubemq )")
ENVIRONMENT = dict(os.environ)
"""Variables at the start; what a page exports is forgotten with it."""
names: dict[str, Any] = {}


@cache
def _airflow() -> Any:
    from airflow.cli import cli_parser

    return cli_parser.get_parser()


def run_airflow(words: list[str]) -> None:
    arguments = _airflow().parse_args(words)
    arguments.func(arguments)


def run_tubemq(words: list[str], text: str | None) -> None:
    from tubemq_client.cli.app import build_app

    result = CliRunner().invoke(build_app(), words, input=text)
    print(result.output, end="")
    sys.exit(result.exit_code)


def run_command(line: str, text: str | None = None) -> None:
    first, *rest = _PIPE.split(line, maxsplit=1)
    if rest:
        code, text = captured(lambda: run_command(first))
        if code:
            print(text)
            sys.exit(code)
        run_command(rest[0], text)
        return
    program, *words = shlex.split(line) if line.startswith(("airflow ", "tubemq ")) else ["", line]
    if program == "airflow":
        run_airflow(words)
    elif program == "tubemq":
        run_tubemq(words, text)
    elif line.startswith("export "):
        for word in shlex.split(line)[1:]:
            name, _, value = word.partition("=")
            os.environ[name] = value
    elif line.startswith("python3 ") and line.endswith(".py"):
        runpy.run_path(line.split()[1], run_name="__main__")
    else:
        sys.stdout.flush()
        python = re.sub(r"^python3 ", f"{sys.executable} ", line)
        sys.exit(subprocess.run(["bash", "-c", python], check=False).returncode)


def captured(work: Callable[[], Any]) -> tuple[int, str]:
    """Run `work`; return its exit code, and what was written to both outputs."""
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile("w+") as output:
        kept = os.dup(1), os.dup(2)
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        code = 0
        try:
            work()
        except SystemExit as exc:
            code = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
            if isinstance(exc.code, str):
                print(exc.code)
        except BaseException:  # noqa: BLE001 - what a user would see in the terminal
            traceback.print_exc()
            code = 1
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, copy in enumerate(kept, 1):
                os.dup2(copy, number)
                os.close(copy)
        output.seek(0)
        return code, output.read()


def answer(request: dict[str, Any]) -> tuple[int, str]:
    match request["do"]:
        case "page":
            os.chdir(request["folder"])
            os.environ.clear()
            os.environ.update(ENVIRONMENT)
            names.clear()
            return 0, ""
        case "python":
            code = compile(request["text"], "page", "exec")
            return captured(lambda: exec(code, names))
        case _:
            return captured(lambda: run_command(request["line"]))


def main() -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print between commands is no answer
    for line in sys.stdin:
        code, output = answer(json.loads(line))
        print(json.dumps({"code": code, "output": output}), file=answers, flush=True)


if __name__ == "__main__":
    main()

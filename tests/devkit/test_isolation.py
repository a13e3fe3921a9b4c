"""A command in its own network namespace: loopback only, its own exit code, plain errors."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tools.devkit.isolation import can_isolate, isolated_command

pytestmark = pytest.mark.timeout(60)

RUN = [sys.executable, "-m", "tools.devkit.isolation"]

LOOPBACK_TALK = """
import socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname(), timeout=5)
print([name for _, name in socket.if_nameindex()])
"""


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=40)


@pytest.mark.skipif(not can_isolate(), reason="the kernel refuses network namespaces")
class TestInsideANamespace:
    def test_only_loopback_exists_and_it_works(self) -> None:
        result = run([*RUN, "--", sys.executable, "-c", LOOPBACK_TALK])
        assert (result.returncode, result.stdout) == (0, "['lo']\n"), result.stderr

    def test_the_exit_code_is_the_commands(self) -> None:
        assert run([*RUN, "--", "sh", "-c", "exit 7"]).returncode == 7

    def test_nested_use_stays_in_the_same_namespace(self) -> None:
        show = [sys.executable, "-c", "import os; print(os.readlink('/proc/self/ns/net'))"]
        script = f'"$@"; {sys.executable} -m tools.devkit.isolation -- "$@"'
        result = run(isolated_command(["sh", "-c", script, "sh", *show]))
        outer, inner = result.stdout.split()
        assert outer == inner


def test_a_missing_program_is_reported() -> None:
    result = run([*RUN, "--", "no-such-program"])
    assert result.returncode == 127
    assert "cannot run no-such-program" in result.stderr


def test_without_a_command_there_is_usage() -> None:
    result = run(RUN)
    assert result.returncode == 2
    assert result.stderr.startswith("usage:")

"""Runs a command in a new network namespace, in which only loopback exists and is up.

The genuine TubeMQ servers listen on every interface without authentication and have no option
against it; inside such a namespace "every interface" is loopback. Used as ``python -m
tools.devkit.isolation -- <command> …``: the command replaces this process, so its exit code and
signals are the command's. If the kernel refuses namespaces, the command runs on the host's network
after one warning line. Linux only; nothing here needs root or knows the command.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence

__all__ = ["can_isolate", "is_isolated", "isolated_command", "loopback_up", "main"]

_INSIDE = "--inside"
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1


def can_isolate() -> bool:
    """Return True if this kernel and user may create a network namespace. Creates one to test."""
    unshare = shutil.which("unshare")
    if sys.platform != "linux" or unshare is None:
        return False
    try:
        attempt = subprocess.run(
            [unshare, "-rn", "true"], check=False, capture_output=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return attempt.returncode == 0


def is_isolated() -> bool:
    """Return True if this process sees no interface but loopback."""
    # /sys/class/net would show the interfaces of the namespace that mounted it.
    return [name for _, name in socket.if_nameindex()] == ["lo"]


def isolated_command(command: Sequence[str]) -> list[str]:
    """Return `command` wrapped so that it runs inside a new namespace with loopback up."""
    return ["unshare", "-rn", *_self(_INSIDE), "--", *command]


def loopback_up() -> None:
    """Set `lo` up in the current namespace. Raises `OSError` without the permission."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh14x", b"lo", 0)
        answer = fcntl.ioctl(control, _SIOCGIFFLAGS, request)
        flags = struct.unpack("16sh14x", answer)[1]
        if not flags & _IFF_UP:
            request = struct.pack("16sh14x", b"lo", flags | _IFF_UP)
            fcntl.ioctl(control, _SIOCSIFFLAGS, request)


def main(arguments: Sequence[str] | None = None) -> int:
    """Replace this process by the command after ``--``; returns only if that is impossible."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    inside = words[:1] == [_INSIDE]
    command = words[inside:]
    if command[:1] != ["--"] or len(command) < 2:
        print(
            "usage: python -m tools.devkit.isolation -- COMMAND …",
            file=sys.stderr,
        )
        return 2
    command = command[1:]
    if inside or is_isolated():
        loopback_up()
    elif can_isolate():
        command = isolated_command(command)
    else:
        print(
            "warning: no network namespace here; the command runs on the host's own network",
            file=sys.stderr,
        )
    return _replace_process(command)


def _self(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tools.devkit.isolation", *arguments]


def _replace_process(command: Sequence[str]) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvp(command[0], list(command))
    except OSError as exc:
        print(f"cannot run {command[0]}: {exc.strerror}", file=sys.stderr)
    return 127


if __name__ == "__main__":
    sys.exit(main())

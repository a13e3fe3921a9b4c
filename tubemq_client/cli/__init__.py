"""The `tubemq` command: produce, read exact ranges, inspect topics, run a server.

`main` is the console entry point. typer and rich come with the extra `cli`; without it the command
explains how to install it. Exit codes: 0 done, 1 the cluster refused or could not be reached, 2
wrong options or input.
"""

from __future__ import annotations

import signal
import sys
from importlib.util import find_spec

from tubemq_client import errors

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit. SIGTERM acts like Ctrl-C: state is saved and partitions are
    released."""
    if sys.stdout is None:  # `>&-`: no results could be printed
        sys.stderr.write("tubemq: standard output is closed; to show nothing, use >/dev/null\n")
        raise SystemExit(2)
    try:
        for package in ("typer", "rich"):  # typer needs rich once it has something to show
            if find_spec(package) is None:
                raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    except ImportError as error:
        sys.stderr.write(f"tubemq: {errors.require_extra('cli', error)}\n")
        raise SystemExit(2) from None
    if sys.argv[1:] in (["--help"], ["-h"]):
        from tubemq_client.cli.commands import help_text

        print(help_text())
        return
    from tubemq_client.cli.app import build_app

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    build_app()(prog_name="tubemq")

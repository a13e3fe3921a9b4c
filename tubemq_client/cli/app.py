"""Assembles the commands and turns errors into one line and an exit code.

Each command lives in a module by subject; this one only wires. Options that commands share are
declared once in `options`.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Annotated, ParamSpec

import typer

from tubemq_client import __version__, errors
from tubemq_client.cli import (
    consume,
    doctor,
    groups,
    inspect,
    lag,
    offsets,
    produce,
    read,
    serve,
    topics,
)
from tubemq_client.cli.options import use_config
from tubemq_client.terminal import VisibleFormatter, visible

__all__ = ["build_app"]

P = ParamSpec("P")

_CALLERS_FAULT = 2
_CLUSTERS_FAULT = 1


def build_app() -> typer.Typer:
    """Return the typer application."""
    app = typer.Typer(
        name="tubemq",
        help="Produce to, read from and look at Apache InLong TubeMQ.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options_before_commands)
    app.command("partitions")(_reporting(inspect.partitions))
    app.command("ends")(_reporting(inspect.ends))
    app.command("lag")(_reporting(lag.lag))
    for name, commands in (
        ("topics", topics.topics),
        ("brokers", topics.brokers),
        ("groups", groups.groups),
        ("offsets", offsets.offsets),
    ):
        app.add_typer(_reporting_all(commands), name=name)
    app.command("produce")(_reporting(produce.produce))
    app.command("consume")(_reporting(consume.consume))
    app.command("read-range")(_reporting(read.read_range))
    app.command("doctor")(_reporting(doctor.doctor))
    app.command("serve")(_reporting(serve.serve))
    return app


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(__version__)
        raise typer.Exit


def _options_before_commands(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            envvar="TUBEMQ_CONFIG",
            help="Options of the connection: TOML with our names, or an INI file of the C++ SDK.",
        ),
    ] = None,
) -> None:
    del version  # handled by its callback
    _log_to_stderr()
    _reporting(use_config)(context, config)


def _log_to_stderr() -> None:
    """Log warnings of the library to standard error, with control characters of servers made
    visible."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(VisibleFormatter("tubemq: %(message)s"))


def _reporting(command: Callable[P, None]) -> Callable[P, None]:
    """Wrap `command`: a `TubeMQError` or `OSError` (a full disk) becomes a message and an exit
    code."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except errors.TubeMQError as error:
            typer.echo(f"tubemq: {visible(_one_line(error), lines=True)}", err=True)
            is_local = isinstance(error, errors.LocalError)
            raise typer.Exit(_CALLERS_FAULT if is_local else _CLUSTERS_FAULT) from None
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # the reader closed the pipe; typer exits silently
            typer.echo(f"tubemq: {error}", err=True)
            _discard_output()
            raise typer.Exit(_CLUSTERS_FAULT) from None

    return run


def _discard_output() -> None:
    """Redirect standard output to /dev/null, so that the exit does not retry the failed write."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _reporting_all(commands: typer.Typer) -> typer.Typer:
    """Return a copy of `commands` with every command wrapped; the originals stay as they are."""
    wrapped = typer.Typer(no_args_is_help=True, help=commands.info.help)
    for item in commands.registered_commands:
        assert item.callback is not None, "a command without a function"
        wrapped.command(item.name)(_reporting(item.callback))
    return wrapped


def _one_line(error: errors.TubeMQError) -> str:
    """Return the message; a list of problems with a single entry is written in line."""
    if isinstance(error, errors.ConfigError) and len(error.problems) == 1:
        return str(error).replace(":\n  - ", ": ", 1)
    return str(error)

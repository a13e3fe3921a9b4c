"""Assembles the commands and turns errors into one line and an exit code.

Each command lives in a module by subject, which is imported when the command is run; this one only
wires. Options that commands share are declared once in `options`.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import wraps
from importlib import import_module
from typing import Annotated, Any, NoReturn, ParamSpec, get_args, get_type_hints

import typer
from typer.core import TyperGroup
from typer.models import OptionInfo

from tubemq_client import __version__, errors
from tubemq_client.cli.commands import COMMANDS, DESCRIPTION, EXAMPLES, OPTIONS
from tubemq_client.terminal import VisibleFormatter, visible

__all__ = ["build_app", "load_command"]

P = ParamSpec("P")

_HINTS = {
    errors.NetworkError: "; to see which step fails: tubemq doctor",
    errors.UnknownTopic: "; to see which topics there are: tubemq topics list",
}
"""End of the message of an error, by its class."""

_PARAMETERS = {"timeout_ms": "rpc_timeout_ms", "filters.0": "stream"}
"""Parameters of commands by the names of settings that are other words."""

_CALLERS_FAULT = 2
_CLUSTERS_FAULT = 1


_HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}


class _Words(TyperGroup):
    """Group of commands that answers a wrong word with the near ones and the whole list."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command of the first word."""
        word = args[0]
        if word not in self.commands and not word.startswith("-") and not ctx.resilient_parsing:
            near = get_close_matches(word, self.commands)
            hint = f"Did you mean {' or '.join(map(repr, near))}? " if near else ""
            ctx.fail(f"No such command {word!r}. {hint}Commands: {', '.join(self.commands)}.")
        return super().resolve_command(ctx, args)


class _WordsOnDemand(_Words):
    """The same for the first word: its command is imported here."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command of the first word."""
        if args[0] in COMMANDS:
            self.commands[args[0]] = load_command(args[0])
        return super().resolve_command(ctx, args)


def build_app() -> typer.Typer:
    """Return the typer application. Its commands are listed, and imported only when they run."""
    app = typer.Typer(
        name="tubemq",
        cls=_WordsOnDemand,
        help=DESCRIPTION,
        epilog=_examples(""),
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings=_HELP_OPTIONS,
    )
    app.callback()(_options_before_commands)
    for word, entry in COMMANDS.items():
        app.command(word, help=entry.summary)(_not_loaded)
    return app


def load_command(word: str) -> Any:
    """Import the command, or the group of commands, behind a first word."""
    entry = COMMANDS[word]
    found = getattr(import_module(f"tubemq_client.cli.{entry.module}"), entry.attribute)
    if isinstance(found, typer.Typer):
        app = _typer(word, cls=_Words, help=entry.summary, epilog=_examples(word))
        for item in found.registered_commands:
            assert item.callback is not None, "a command without a function"
            epilog = _examples(f"{word} {item.name}")
            app.command(item.name, epilog=epilog)(_reporting(item.callback))
    else:
        app = _typer(word)
        app.command(word, epilog=_examples(word))(_reporting(found))
    return typer.main.get_command(app)


def _typer(name: str, **options: Any) -> typer.Typer:
    return typer.Typer(
        name=name,
        no_args_is_help="cls" in options,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        **options,
    )


def _not_loaded() -> NoReturn:
    raise AssertionError("a command was run before it was imported")


def _examples(words: str) -> str:
    lines = (f"$ {line}".replace("[", r"\[") for line in EXAMPLES[words])
    return "\n".join(["[bold]Examples[/]", *lines])


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(__version__)
        raise typer.Exit


def _options_before_commands(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", callback=_print_version, is_eager=True, help=OPTIONS["--version"]
        ),
    ] = False,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            envvar="TUBEMQ_CONFIG",
            help=OPTIONS["--config"],
        ),
    ] = None,
) -> None:
    from tubemq_client.cli.options import use_config

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
            if isinstance(error, errors.ConfigError):
                error = _in_words_of_options(error, command, kwargs)
            hint = "".join(text for kind, text in _HINTS.items() if isinstance(error, kind))
            typer.echo(f"tubemq: {visible(_one_line(error), lines=True)}{hint}", err=True)
            is_local = isinstance(error, errors.LocalError)
            raise typer.Exit(_CALLERS_FAULT if is_local else _CLUSTERS_FAULT) from None
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # the reader closed the pipe; typer exits silently
            typer.echo(f"tubemq: {error}", err=True)
            _discard_output()
            raise typer.Exit(_CLUSTERS_FAULT) from None

    return run


def _in_words_of_options(
    error: errors.ConfigError, command: Callable[..., None], given: Mapping[str, object]
) -> errors.ConfigError:
    """Return the error with the options that the user typed in place of the settings' names.

    What the file of `--config` has keeps the name that it has there.
    """
    from tubemq_client.cli.options import from_config_file

    options = _options_of(command)
    problems = []
    for problem in error.problems:
        name, colon, rest = problem.partition(": ")
        word = _PARAMETERS.get(name, name)
        value = given.get(word)
        known = colon and word in options and value not in (None, from_config_file(name))
        problems.append(f"{options[word]}: {rest}" if known else problem)
    return error if problems == error.problems else errors.ConfigError(problems)


def _options_of(command: Callable[..., None]) -> dict[str, str]:
    """Return the long options of a command, by parameter."""
    options = {}
    for name, hint in get_type_hints(command, include_extras=True).items():
        for extra in get_args(hint)[1:]:
            if isinstance(extra, OptionInfo):
                long = (word for word in extra.param_decls or () if word.startswith("--"))
                options[name] = next(long, f"--{name.replace('_', '-')}").partition("/")[0]
    return options


def _discard_output() -> None:
    """Redirect standard output to /dev/null, so that the exit does not retry the failed write."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _one_line(error: errors.TubeMQError) -> str:
    """Return the message; a list of problems with a single entry is written in line."""
    if isinstance(error, errors.ConfigError) and len(error.problems) == 1:
        return str(error).replace(":\n  - ", ": ", 1)
    return str(error)

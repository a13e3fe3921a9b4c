"""`tubemq completion`: the script by which a shell completes commands, options and their values.

typer writes the script; the command gives it a name that all command lines of this project have.
It changes no file.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import show_callback

__all__ = ["completion"]


class Shell(StrEnum):
    """Shells with a completion script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    context: typer.Context,
    shell: Annotated[Shell, typer.Argument(help="Shell that will read it.", show_default=False)],
) -> None:
    """Print the completion script of a shell.

    `tubemq --install-completion` writes it to the shell's start-up files instead.
    """
    show_callback(context, context.command.params[0], shell.value)

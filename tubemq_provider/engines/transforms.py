"""What is done to a window's frame before it is written: a function, its dotted path, or SQL.

The result must keep the column `partition` as it is, by which windows are verified. This module
must not read or write a frame.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from tubemq_client.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["VIEW", "Transform", "sql_transform", "transform_of"]

Transform = Callable[["DataFrame"], "DataFrame"]

VIEW: Final = "records"
"""What SQL calls the window."""

_PART: Final = re.compile(
    r"""
      (?P<nothing> [\s;]+ | --(?:\\\n|[^\r\n])* )
    | (?P<comment> /\*(?!\+) )
    | [rR]'[^']*' | [rR]"[^"]*"
    | '(?:\\.|[^'\\])*' | "(?:\\.|[^"\\])*" | `[^`]*`
    | \w+
    | .
    """,
    re.VERBOSE | re.DOTALL,
)
"""One part of a query: blanks and semicolons, or a comment of one line; the beginning of another
comment (a hint is none); a text, a name, or a sign."""
_QUOTES: Final = ("'", '"', "`")


def transform_of(given: Transform | str) -> Transform:
    """The function, or the one at the dotted path. Raises `ConfigError`."""
    if not isinstance(given, str):
        return given
    module, _, name = given.rpartition(".")
    try:
        function: Transform = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{given!r}: {error}", subject="transform") from error
    if not callable(function):
        raise ConfigError(f"{given!r} cannot be called", subject="transform")
    return function


def sql_transform(query: str) -> Transform:
    """Runs `query`, in which the window is the table `records`.

    The name means the window in this query only: the frame is bound to it, no view of the session
    is made or replaced.
    """

    def run(frame: DataFrame) -> DataFrame:
        spark, name = frame.sparkSession, f"{VIEW}_{uuid4().hex}"
        frame.createTempView(name)
        try:
            return spark.sql(_bound(query, name))
        finally:
            # A server of Spark Connect looks the name up later, and drops it with the session.
            if "connect" not in type(spark).__module__.split("."):
                spark.catalog.dropTempView(name)

    return run


def _bound(query: str, view: str) -> str:
    """`query`, whatever it begins with, where `records` is `view`."""
    return f"WITH {VIEW} AS (TABLE {view}) (\n{_to_its_end(query)}\n)"


def _to_its_end(query: str) -> str:
    """`query` without the semicolons, blanks and comments behind it, which may stand in any order
    there; in parentheses Spark takes no semicolon. One with a text or comment that never ends stays
    as it is: Spark says so."""
    at = end = 0
    while part := _PART.match(query, at):
        closed = _comment_end(query, at) if part["comment"] else part.end()
        if closed is None or part[0] in _QUOTES:
            return query.strip()
        at = closed
        if not part["nothing"] and not part["comment"]:
            end = at
    return query[:end].lstrip()


def _comment_end(query: str, start: int) -> int | None:
    """Where the comment ends that begins at `start` and may hold others; None if it never does."""
    depth = 0
    for sign in re.compile(r"/\*(?!\+)|\*/").finditer(query, start):
        depth += 1 if sign[0] == "/*" else -1
        if depth == 0:
            return sign.end()
    return None

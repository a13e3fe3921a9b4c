"""What is done to a window's frame before it is written: a function, its dotted path, or SQL.

The result must be a frame that keeps the column `partition` as it is, by which windows are
verified, and whose columns every reader can tell apart. This module must not read or write a frame.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from tubemq_client.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["VIEW", "Transform", "check_result", "sql_transform", "transform_of"]

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


def check_result(made: Any) -> DataFrame:
    """What a transform has `made`. Raises `ConfigError` for what cannot be a window.

    Names are compared as the session does. Its own writer refuses what it could not read again; the
    direct write would write it.
    """
    columns = getattr(made, "columns", None)
    if not isinstance(columns, list) or not hasattr(made, "isStreaming"):
        hint = "; does it lack a 'return'?" if made is None else ""
        raise ConfigError(
            f"its result is {type(made).__name__}, and must be a frame of Spark{hint}",
            subject="transform",
        )
    frame: DataFrame = made
    problems = []
    if frame.isStreaming:
        problems.append("its result is a stream; make it of the frame that it is given")
    if "partition" not in columns:
        problems.append(
            f"its result has the columns {', '.join(columns)}; keep "
            "'partition', by which windows are counted"
        )
    problems += _names_alike(frame, columns)
    if problems:
        raise ConfigError(problems, subject="transform")
    return frame


def _names_alike(frame: DataFrame, columns: list[str]) -> list[str]:
    exact = (frame.sparkSession.conf.get("spark.sql.caseSensitive") or "").lower() == "true"
    seen: dict[str, str] = {}
    problems = []
    for name in columns:
        key = name if exact else name.lower()
        if key not in seen:
            seen[key] = name
        elif seen[key] == name:
            problems.append(f"its result has two columns {name!r}; rename one")
        else:
            problems.append(
                f"its result has the columns {seen[key]!r} and {name!r}, which differ in case "
                "alone, and most readers take them for one; rename one"
            )
    return problems


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

"""Transform of a window's frame before it is written: a function, its dotted path, or SQL.

The result must be a frame that keeps the column `partition` unchanged, by which windows are
verified, and whose column names every reader can distinguish. This module must not read or write a
frame.
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
"""Name of the window's table in SQL."""

_QUERY_TOKEN: Final = re.compile(
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
"""Token of a query: blanks and semicolons or a line comment (`nothing`); the start of a block
comment (a hint is none); a literal, a name, or any other character."""
_QUOTES: Final = ("'", '"', "`")


def transform_of(transform: Transform | str) -> Transform:
    """Return the function, or the one at the dotted path. Raises `ConfigError`."""
    if not isinstance(transform, str):
        return transform
    module, _, name = transform.rpartition(".")
    try:
        function: Transform = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{transform!r}: {error}", subject="transform") from error
    if not callable(function):
        raise ConfigError(f"{transform!r} cannot be called", subject="transform")
    return function


def check_result(result: Any) -> DataFrame:
    """Check the result of a transform and return it. Raises `ConfigError` if it cannot be a window.

    Names are compared with the session's case sensitivity. Spark's own writer refuses columns that
    it could not read again; the direct write would write them.
    """
    columns = getattr(result, "columns", None)
    if not isinstance(columns, list) or not hasattr(result, "isStreaming"):
        hint = "; does it lack a 'return'?" if result is None else ""
        raise ConfigError(
            f"its result is {type(result).__name__}, and must be a frame of Spark{hint}",
            subject="transform",
        )
    frame: DataFrame = result
    problems = []
    if frame.isStreaming:
        problems.append("its result is a stream; make it of the frame that it is given")
    if "partition" not in columns:
        problems.append(
            f"its result has the columns {', '.join(columns)}; keep "
            "'partition', by which windows are counted"
        )
    problems += _name_problems(frame, columns)
    if problems:
        raise ConfigError(problems, subject="transform")
    return frame


def _name_problems(frame: DataFrame, columns: list[str]) -> list[str]:
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
                "alone, and most readers treat them as one; rename one"
            )
    return problems


def sql_transform(query: str) -> Transform:
    """Return a transform that runs `query`, in which the window is the table `records`.

    The name refers to the window in this query only: the frame is bound to it, no view of the
    session is created or replaced.
    """

    def run(frame: DataFrame) -> DataFrame:
        spark, name = frame.sparkSession, f"{VIEW}_{uuid4().hex}"
        frame.createTempView(name)
        try:
            return spark.sql(_bound(query, name))
        finally:
            # A Spark Connect server resolves the name later, and drops it with the session.
            if "connect" not in type(spark).__module__.split("."):
                spark.catalog.dropTempView(name)

    return run


def _bound(query: str, view: str) -> str:
    """Return `query`, of any kind of statement, with `records` bound to `view`."""
    return f"WITH {VIEW} AS (TABLE {view}) (\n{_without_trailer(query)}\n)"


def _without_trailer(query: str) -> str:
    """Return `query` without trailing semicolons, blanks and comments, in any order; Spark takes no
    semicolon in parentheses. A query with an unterminated literal or comment is returned unchanged:
    Spark reports it."""
    at = end = 0
    while part := _QUERY_TOKEN.match(query, at):
        closed = _comment_end(query, at) if part["comment"] else part.end()
        if closed is None or part[0] in _QUOTES:
            return query.strip()
        at = closed
        if not part["nothing"] and not part["comment"]:
            end = at
    return query[:end].lstrip()


def _comment_end(query: str, start: int) -> int | None:
    """Return the end of the possibly nested comment that begins at `start`; None if it is
    unterminated."""
    depth = 0
    for sign in re.compile(r"/\*(?!\+)|\*/").finditer(query, start):
        depth += 1 if sign[0] == "/*" else -1
        if depth == 0:
            return sign.end()
    return None

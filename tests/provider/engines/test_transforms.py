"""SQL as users write it becomes one query in parentheses; `test_frame_write` runs it in Spark."""

from __future__ import annotations

import pytest

from tubemq_provider.engines.transforms import _bound

QUERY = "SELECT partition, value FROM records"

BEHIND = [
    ";",
    " ;; \n",
    "; -- the whole window",
    ";\n-- the whole window; all of it\n",
    "; /* the /* whole */ window */ ;",
    " -- no semicolon, 'and a quote",
    "; -- goes on \\\nhere",
]
WHOLE = [
    "SELECT ';--' AS a FROM records",
    'SELECT "/*" AS a FROM records',
    r"SELECT 'it\'s; -- ' AS a",
    r"SELECT r'\' AS a, ';' AS b",
    r"SELECT bar '\';' AS a",
    "SELECT `a;--b`",
    "SELECT 1 - -1 /* two */",
    "SELECT a -- the first\n, b FROM records",
    "SELECT /*+ BROADCAST(n) */ partition FROM records",
    "SELECT 'it''s'",
    "SELECT 'never closed; --",
    "SELECT 1 /* never closed ;",
]


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("query", WHOLE[:10])
def test_trailing_semicolons_and_comments_of_a_query_are_dropped(query: str, behind: str) -> None:
    expected = query.removesuffix(" /* two */")
    assert _bound(f"\n {query}{behind}", "w") == f"WITH records AS (TABLE w) (\n{expected}\n)"


@pytest.mark.parametrize("query", WHOLE)
def test_a_query_stays_as_it_was_written(query: str) -> None:
    assert query.removesuffix(" /* two */") in _bound(query, "w")

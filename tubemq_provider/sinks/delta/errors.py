"""Errors of delta-rs, reported without the replies of an object store.

delta-rs hands on a store's whole reply, which can quote keys, tokens and signed requests. What it
was about to do and the status of the reply are kept; the reply itself, addresses and what comes
after them are not. This module knows texts of delta-rs and no table.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from tubemq_provider.files.objects import StoreFailed, answer_in, is_refusal, refusal

__all__ = ["explains_store_errors", "gist", "is_of_store"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_REQUEST: Final = "Error performing"
_REPLY: Final = re.compile(rf":?\s*\W*{_REQUEST}|\n|<|{{")
"""Start of a store's reply in an error text: addresses, further lines, XML or JSON."""


def gist(exc: Exception) -> str:
    """Return an error of delta-rs as one line: its kind, its subject, the store's status."""
    text = _COLOURS.sub("", str(exc))
    about = _REPLY.split(text, maxsplit=1)[0].strip()
    answer = answer_in(text)
    return f"{type(exc).__name__}: {about}" + (f" ({answer})" if answer else "")


def explains_store_errors(
    method: Callable[Concatenate[Any, _P], _T],
) -> Callable[Concatenate[Any, _P], _T]:
    """Wrap a method so that it raises `ConfigError` where the store refuses delta-rs, and
    `StoreFailed` for other errors of the store. All other errors pass unchanged."""

    @wraps(method)
    def telling(self: Any, /, *args: _P.args, **given: _P.kwargs) -> _T:
        try:
            return method(self, *args, **given)
        except Exception as exc:
            if not is_of_store(exc):
                raise
            answer, url = answer_in(_COLOURS.sub("", str(exc))), self.storage.url
            if is_refusal(answer):
                raise refusal(url, answer) from None
            raise StoreFailed(f"{url}: {gist(exc)}") from None

    return telling


def is_of_store(exc: Exception) -> bool:
    """Return True for an error of the store below a table, False for one of its log."""
    text = str(exc)
    local = isinstance(exc, OSError) and "Kernel error" in text
    return local or _REQUEST in text or "Invalid table location" in text

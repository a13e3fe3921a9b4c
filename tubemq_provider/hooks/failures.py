"""Which errors Airflow should retry, and how they read in a task's log.

The client and `windows` say of each error whether a person has to change something first
(`fatal`). Retrying such a task wastes its retries and buries the reason, so it fails at once.
Airflow does not wrap lines: a sentence of 400 characters shows its first quarter.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airflow.sdk.exceptions import AirflowFailException

from tubemq_client import errors

__all__ = ["explained", "fatal_errors_fail_the_task"]

_WIDTH = 80


@contextmanager
def fatal_errors_fail_the_task(log: Any = None, *, look_further: str = "") -> Iterator[None]:
    """Turn fatal errors into `AirflowFailException`, which is never retried; let others pass.

    What speaks another protocol is fatal here: no retry makes a TubeMQ of it. With `log` the error
    is told there first, in short lines above any traceback, ending with what to look at further.
    """
    try:
        yield
    except errors.TubeMQError as exc:
        if log is not None:
            # Without its traceback, which would push the remedy off the screen.
            log.error("%s", explained(exc, look_further))  # noqa: TRY400
            log.debug("where it was raised", exc_info=exc)
        if not exc.fatal and not isinstance(exc, errors.ProtocolViolation):
            raise
        # The cause is told above; a second traceback would only repeat it.
        raise AirflowFailException(f"{type(exc).__name__}: {exc}") from None


def explained(error: errors.TubeMQError, look_further: str = "") -> str:
    """The error in lines of at most 80 characters; words that are longer stay whole."""
    lines = [f"{type(error).__name__}: {error}", *([look_further] if look_further else [])]
    return "\n".join(
        wrapped
        for paragraph in "\n".join(lines).splitlines()
        for wrapped in textwrap.wrap(
            paragraph,
            _WIDTH,
            subsequent_indent="    " if paragraph.startswith("  ") else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        or [""]
    )

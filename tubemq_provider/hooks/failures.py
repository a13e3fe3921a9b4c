"""Which errors Airflow should retry.

The client and `windows` say of each error whether a person has to change something first
(`fatal`). Retrying such a task wastes its retries and buries the reason, so it fails at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk.exceptions import AirflowFailException

from tubemq_client import errors

__all__ = ["fatal_errors_fail_the_task"]


@contextmanager
def fatal_errors_fail_the_task() -> Iterator[None]:
    """Turn fatal errors into `AirflowFailException`, which is never retried; let others pass.

    What speaks another protocol is fatal here: no retry makes a TubeMQ of it.
    """
    try:
        yield
    except errors.TubeMQError as exc:
        if not exc.fatal and not isinstance(exc, errors.ProtocolViolation):
            raise
        raise AirflowFailException(f"{type(exc).__name__}: {exc}") from exc

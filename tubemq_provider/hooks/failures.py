"""Errors that fail a task without retries, and their text in the task's log.

The client and `windows` mark each error that a person has to fix (`fatal`). Retrying such a task
wastes its retries and buries the reason, so it fails at once. Airflow does not wrap lines: of a
sentence of 400 characters a quarter is visible. So an error is logged in short lines above any
traceback: the cause, what to do, what it was about, and a command.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from tubemq_client import errors
from tubemq_provider._airflow import AirflowFailException, AirflowNotFoundException
from tubemq_provider.sources.tubemq.space import SPACE
from tubemq_provider.windows.errors import is_final

_WIDTH = 80


class ErrorContext(NamedTuple):
    """Connection, topic and group of a task, for the lines below an error."""

    conn_id: str
    topic: str | None = None
    group: str | None = None
    command: str | None = None
    """Command for further diagnosis; by default it checks the connection."""
    conn_type: str = "tubemq"
    port: str = "8715"
    masters: Callable[[], str] = lambda: "HOST:PORT"
    """Masters of the connection, as `tubemq --masters` takes them; called when an error needs
    them."""

    def lines(self) -> list[str]:
        """Return the line of names, and the command on a separate line, to be copied."""
        named = {"connection": self.conn_id, "topic": self.topic, "group": self.group}
        about = ", ".join(f"{what} {name!r}" for what, name in named.items() if name)
        command = self.command or f"airflow tubemq check --conn-id {self.conn_id}"
        return [about, f"to look further: {command}"]


def fatal_errors_fail_the_task(
    log: Any = None, *, about: ErrorContext | None = None
) -> AbstractContextManager[None]:
    """Turn fatal errors into `AirflowFailException`, which is never retried; let others pass.

    With `log` the error is logged there first, in short lines above any traceback, ending with a
    command for further diagnosis. Airflow shows the end of a log, so the raised error has no frames
    of the client, which would push those lines off the screen. The log has them at DEBUG.
    """
    return _ErrorLogger(log, about)


class _ErrorLogger(AbstractContextManager[None]):
    """Context manager behind `fatal_errors_fail_the_task`.

    Not a generator: `contextlib` would restore all frames of an exception that passes through one.
    """

    def __init__(self, log: Any, about: ErrorContext | None) -> None:
        self._log = log
        self._about = about

    def __exit__(self, _kind: object, exc: BaseException | None, _trace: object) -> None:
        # Airflow retries a missing connection, since a secrets backend may be unavailable.
        if not isinstance(exc, (AirflowNotFoundException, errors.TubeMQError)):
            return
        _log_error(self._log, exc, self._about)
        if isinstance(exc, errors.TubeMQError) and is_final(exc):
            raise AirflowFailException(f"{type(exc).__name__}: {exc}") from None
        # The socket's own error only repeats it.
        raise exc.with_traceback(None) from None


def _log_error(log: Any, exc: Exception, about: ErrorContext | None) -> None:
    if log is not None:
        log.error("%s", explained(exc, about))
        log.debug("where it was raised", exc_info=exc)


def explained(error: Exception, about: ErrorContext | None = None) -> str:
    """Return the error in lines of at most 80 characters.

    Longer words stay whole, and so does the command for further diagnosis.
    """
    lines = f"{type(error).__name__}: {error}".splitlines()
    if about is not None and (remedy := _remedy(error, about)):
        lines.append(f"to mend it: {remedy}")
    wrapped = [short for line in lines for short in _short(line)]
    if about is not None and (command := _read_command(error, about)):
        wrapped.append(f"to see the record: {command}")
    return "\n".join([*wrapped, *(about.lines() if about is not None else ())])


def _short(paragraph: str) -> Iterator[str]:
    """Yield the lines of a paragraph; a part after a semicolon, often the remedy, begins a new
    one."""
    inside = "    " if paragraph.startswith("  ") else ""
    parts = [paragraph] if len(paragraph) <= _WIDTH else paragraph.split("; ")
    last = len(parts) - 1
    for number, part in enumerate(parts):
        yield from textwrap.wrap(
            part + (";" if number < last else ""),
            _WIDTH,
            initial_indent=inside if number else "",
            subsequent_indent=inside,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]


def _remedy(error: Exception, about: ErrorContext) -> str | None:
    """Return what to do about errors whose text cannot say it, since it knows no connection."""
    named = f"connection {about.conn_id!r}"
    if isinstance(error, AirflowNotFoundException):
        return _missing_connection_remedy(error, about)
    if isinstance(error, errors.TlsError):
        return f"compare the TLS fields of {named} with the certificates of the servers"
    if isinstance(error, errors.NetworkError):
        return (
            f"compare host and port of {named} with the servers (port {about.port}, by default) "
            "and see that they run and can be reached from this worker"
        )
    if type(error) is errors.ProtocolViolation and "frame starts" in str(error):
        return f"name the port of the servers in {named} ({about.port}, by default)"
    return _access_remedy(error, about) if isinstance(error, _REFUSED) else None


def _read_command(error: Exception, about: ErrorContext) -> str | None:
    """Return the command that prints a record that does not decode; None for other errors."""
    found = _BAD_RECORD.search(str(error))
    if found is None or about.conn_type != "tubemq" or about.topic is None:
        return None
    start = int(found["offset"])
    end = start + SPACE.step * (int(found["position"]) + 1)
    words = ["tubemq", "read-range", about.topic, found["partition"], str(start), str(end)]
    return shlex.join([*words, "--masters", about.masters()])


def _access_remedy(error: Exception, about: ErrorContext) -> str:
    """Return what grants access.

    A TubeMQ master that knows the user may not know the group, or not allow it to read the topic.
    """
    if type(error) is errors.NotAuthorized and about.conn_type == "tubemq" and about.topic:
        return (
            f"let the group and those below its name read the topic; 'tubemq groups names "
            f"{about.group or '<group>'}' lists them, 'tubemq groups control <name> --topic "
            f"{about.topic} --allow' does it for one, with the masters' token"
        )
    return (
        f"compare login and password of connection {about.conn_id!r} with the users of the cluster"
    )


def _missing_connection_remedy(error: Exception, about: ErrorContext) -> str:
    """Return how to add the missing connection; a task has others too, of its sink and of Spark."""
    missing = match[1] if (match := _CONN_ID.search(str(error))) else about.conn_id
    kind = f" of type {about.conn_type}" if missing == about.conn_id else ""
    variable = f"AIRFLOW_CONN_{missing.upper()}"
    return f"add connection {missing!r}{kind}, in the UI or as {variable}"


_BAD_RECORD = re.compile(
    r"record (?P<position>\d+) of the batch at offset (?P<offset>\d+) of partition "
    r"(?P<partition>\S+) \(message id -?\d+\) does not decode"
)
"""Place of a record that does not decode; the error may come from a Spark executor, as text."""

_CONN_ID = re.compile(r"conn_id `([^`]+)`")
"""Id of a connection that Airflow did not find."""

_REFUSED = (errors.AuthenticationFailed, errors.NotAuthorized)

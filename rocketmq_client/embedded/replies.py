"""Shared by embedded servers: answers, and refusals of unknown requests.

Pure functions over commands; `broker` and `name_server` handle the requests.
"""

from __future__ import annotations

from rocketmq_client._wire.commands import ANSWER, Command

__all__ = ["SERVER_VERSION", "Refused", "answer", "int_field"]

SERVER_VERSION = 513
"""Version that a genuine 5.5.0 reports."""


class Refused(Exception):
    """The request is refused with `code` and `remark`."""

    def __init__(self, code: int, remark: str) -> None:
        self.code = code
        self.remark = remark
        super().__init__(remark)


def answer(
    request: Command,
    code: int = 0,
    remark: str | None = None,
    fields: dict[str, str] | None = None,
    body: bytes = b"",
) -> Command:
    """Build the answer to `request`, with a JSON header as 5.x writes it."""
    return Command(code, request.opaque, fields or {}, body, ANSWER, remark, "JAVA", SERVER_VERSION)


def int_field(request: Command, name: str, default: int | None = None) -> int:
    """Return a header field as a number. Raises `Refused` as a genuine decoder does."""
    text = request.fields.get(name)
    if text is None and default is not None:
        return default
    try:
        return int(text or "")
    except ValueError:
        raise Refused(
            1, f"the custom field <{name}> is {'null' if text is None else text}"
        ) from None

"""Foreign text on a terminal: control characters are made visible.

Others choose topic names, messages of servers and attributes of records. ESC, the other C0 controls
and the C1 controls (U+009B alone begins a sequence in many terminals) move the cursor, set titles,
and with some terminals type; directional controls make one name look like another. Commands print
through these functions; nothing here knows the meaning of the text.
"""

from __future__ import annotations

import logging
import re

__all__ = ["VisibleFormatter", "visible", "visible_json"]

_STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_OF_ONE_LINE = re.compile(_STEERING.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))


def visible(text: str, *, lines: bool = False) -> str:
    r"""Return `text` with control characters spelled as ``\x1b`` or ``\u202e``.

    With `lines`, line feeds and tabs stay. The result can be encoded in UTF-8.
    """
    return (_OF_ONE_LINE if lines else _STEERING).sub(_spelled, text)


def visible_json(text: str) -> str:
    """Return JSON with the control characters of its strings escaped: the same value."""
    return _OF_ONE_LINE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class VisibleFormatter(logging.Formatter):
    """Formatter of log lines for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, or lines if there is a traceback."""
        return visible(super().format(record), lines=True)


def _spelled(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"

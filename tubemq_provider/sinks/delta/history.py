"""The history of a Delta table, as far as it tells whether a window is part of the table.

`RESTORE` takes files of later commits away and leaves what applications have noted: a window that
was restored away still counts as committed. Its commit is found from the newest one back, which is
one look where no other commit came since. This module must not open tables or change anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

__all__ = ["in_history"]

_LOOKS: Final = 1000


def in_history(read: Callable[[int], bytes | None], newest: int, window_id: str) -> bool:
    """Return True if the commit of a window is an ancestor of the commit `newest`. `read` returns a
    commit of the log, None for one that log clean-up removed; the answer is then True unless a
    restore went back to before what is left. Raises `ValueError` for a commit that is damaged."""
    restored: dict[int, int | datetime] = {}
    times: dict[int, datetime] = {}
    at, oldest, whole = None, newest, newest < _LOOKS
    for version in range(newest, max(-1, newest - _LOOKS), -1):
        data = read(version)
        if data is None:
            whole = False
            break
        try:
            info = _info(data)
        except (ValueError, LookupError) as exc:
            raise ValueError(f"commit {version} of the log is no JSON of actions ({exc})") from exc
        oldest = version
        if _names(data, info, window_id):
            at = version
        if (taken := _time(info.get("timestamp"))) is not None:
            times[version] = taken
        if (target := _restored_to(info)) is not None:
            restored[version] = target
        if at is not None:
            break
    if at is None and whole:
        return False
    known = oldest if at is None else at
    version = newest
    while version > known:
        target = restored.get(version, version - 1)
        if isinstance(target, datetime):
            target = max((n for n, time in times.items() if time <= target), default=-1)
        version = min(target, version - 1)
    return version == known


def _actions(data: bytes, kind: str) -> list[dict[str, Any]]:
    start = f'{{"{kind}"'.encode()
    lines = (line for line in data.splitlines() if line.replace(b" ", b"").startswith(start))
    actions = (json.loads(line)[kind] for line in lines)
    return [action for action in actions if isinstance(action, dict)]


def _info(data: bytes) -> dict[str, Any]:
    return next(iter(_actions(data, "commitInfo")), {})


def _names(data: bytes, info: dict[str, Any], window_id: str) -> bool:
    """Return True if a commit added the window."""
    if f'"{window_id}"' in str(info.get("tubemq", "")):
        return True
    return any(
        window_id in str(action.get("appId", "")).split("/") for action in _actions(data, "txn")
    )


def _restored_to(info: dict[str, Any]) -> int | datetime | None:
    """Return the version, or the time, that a commit has restored the table to."""
    if str(info.get("operation", "")).upper() != "RESTORE":
        return None
    parameters = info.get("operationParameters") or {}
    version = str(parameters.get("version", ""))
    if version.isdecimal():
        return int(version)
    for name in ("timestamp", "datetime"):
        if (time := _time(parameters.get(name))) is not None:
            return time
    return -1  # unknown target: assume it is older than any window


def _time(value: object) -> datetime | None:
    try:
        if isinstance(value, int) or str(value).isdecimal():
            return datetime.fromtimestamp(int(str(value)) / 1000).astimezone()
        return datetime.fromisoformat(str(value)).astimezone()
    except (ValueError, OverflowError, OSError):
        return None

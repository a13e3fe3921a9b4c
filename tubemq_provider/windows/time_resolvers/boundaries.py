"""Resolver `boundaries`: instants and offsets as the user supplies them.

The producer of the data (or a process that measures it) knows best where an hour ends. This
resolver takes the offsets from a dict, a JSON file or a URL that fsspec can open, and answers for
exactly those instants. It never rounds or interpolates. fsspec is imported only for URLs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

from tubemq_client.errors import ConfigError
from tubemq_client.json_text import RepeatedName, load_unique_json
from tubemq_provider.windows.canonical import parse_instant, rfc3339
from tubemq_provider.windows.errors import WindowNotReady
from tubemq_provider.windows.policies import parse_offsets
from tubemq_provider.windows.spaces import FIRST_SOURCE, space_of

__all__ = ["Boundaries"]

_NEAREST = 2


class Boundaries:
    """Offsets by instant: ``{"2026-11-21T08:00:00Z": {"<topic>": {"1:0": 2800}}}``.

    Instants are RFC 3339 with any offset from UTC; other topics in the same mapping are ignored.
    All problems of the mapping are listed in one `ConfigError`.
    """

    name = "boundaries"
    exact = True

    def __init__(
        self, mapping: Mapping[str, Any], topic: str, *, source: str = FIRST_SOURCE
    ) -> None:
        self._topic = topic
        self._file = "FILE"
        self._space = space_of(source)
        self._offsets: dict[datetime, dict[str, int]] = {}
        problems: list[str] = []
        for text, topics in mapping.items():
            try:
                self._add(text, topics)
            except ConfigError as exc:
                problems += [f"{text}: {problem}" for problem in exc.problems]
            except ValueError as exc:
                problems.append(str(exc))
        if problems:
            raise ConfigError(problems, subject="boundaries")

    @classmethod
    def load(
        cls,
        given: Mapping[str, Any] | str | PathLike[str],
        topic: str,
        *,
        source: str = FIRST_SOURCE,
    ) -> Boundaries:
        """Load a mapping, the path of a JSON file, or a URL (needs fsspec).

        The file is read now, once; load it again to see additions. Errors show neither login nor
        parameters of a URL.
        """
        if isinstance(given, Mapping):
            return cls(given, topic, source=source)
        text = str(given)
        try:
            mapping = load_unique_json(_read(text))
        except ConfigError:
            raise
        except Exception as exc:  # noqa: BLE001 - drivers of fsspec raise what they like
            problem = (
                f"{_shown(text)} cannot be read: {_reason(text, exc)}; the worker must see the "
                "file, which 'tubemq produce --boundaries' writes"
            )
        else:
            if isinstance(mapping, dict):
                boundaries = cls(mapping, topic, source=source)
                boundaries._file = _shown(text)
                return boundaries
            problem = f"{_shown(text)} holds no JSON object"
        # Outside of `except`: a chained exception is shown too, and drivers repeat the URL.
        raise ConfigError(problem, subject="boundaries")

    def offsets_at(self, instant: datetime) -> Mapping[str, int]:
        """Return the offsets given for exactly `instant`.

        Raises `WindowNotReady` for an instant after the newest boundary, which its producer may
        still write, and `ConfigError` with the nearest instants for one that was left out.
        """
        offsets = self._offsets.get(instant)
        if offsets is not None:
            return offsets
        at = rfc3339(instant)
        newest = max(self._offsets, default=None)
        if newest is None or instant > newest:
            known = "there is none yet" if newest is None else f"the newest is {rfc3339(newest)}"
            raise WindowNotReady(
                f"no boundary of topic {self._topic!r} at {at} yet; {known}. The "
                f"producer of the records adds it, for example: tubemq produce {self._topic} "
                f"--file ROWS --time-field NAME --to {at} --boundaries {self._file}"
            )
        nearest = sorted(self._offsets, key=lambda other: abs(other - instant))[:_NEAREST]
        raise ConfigError(
            f"no boundary of topic {self._topic!r} at {at}; nearest known: "
            f"{', '.join(map(rfc3339, sorted(nearest)))}",
            subject="boundaries",
        )

    def _add(self, text: str, topics: object) -> None:
        instant = parse_instant(text)
        if not isinstance(topics, Mapping):
            raise ConfigError(f"{topics!r} is not an object of topics", subject="boundary")
        if self._topic not in topics:
            return
        offsets = parse_offsets(
            {self._topic: topics[self._topic]},
            self._topic,
            subject="boundary",
            space=self._space,
            allow_keywords=False,
        )
        if self._offsets.setdefault(instant, offsets) != offsets:  # type: ignore[arg-type]
            raise ValueError(f"{text}: the same instant is given twice with different offsets")


def _is_url(text: str) -> bool:
    return "://" in text and not text.startswith("file://")


def _shown(text: str) -> str:
    """Return a URL without user, password and parameters, which may be a signature."""
    if not _is_url(text):
        return text
    scheme, _, rest = text.partition("://")
    return f"{scheme}://{re.split('[?#]', rest.rpartition('@')[2])[0]}"


def _reason(text: str, error: Exception) -> str:
    if not _is_url(text) or isinstance(error, (json.JSONDecodeError, RepeatedName)):
        return str(error)
    message = getattr(error, "strerror", None) or ""
    status = getattr(error, "status", None)
    codes = [str(status)] if isinstance(status, int) else []
    return ", ".join(
        [type(error).__name__, *codes, *([message] if "://" not in message else [])]
    ).strip(", ")


def _read(text: str) -> str:
    if not _is_url(text):
        return Path(text.removeprefix("file://")).read_text(encoding="utf-8")
    try:
        fsspec: Any = import_module("fsspec")
    except ImportError as exc:
        raise ConfigError(
            f"{_shown(text)} is a URL; install fsspec (and its driver) to read it, or give a local "
            "path",
            subject="boundaries",
        ) from exc
    with fsspec.open(text, "rt", encoding="utf-8") as file:
        return str(file.read())

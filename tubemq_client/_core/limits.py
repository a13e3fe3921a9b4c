"""Limits of upstream's clients: names of groups and topics, filters, session keys, policies.

Servers refuse some values beyond these limits late, and some not at all (`TBaseConstants.java`,
`const_config.h`, `config.go`). Option models and consumers both check here, so that they accept the
same names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from tubemq_client import errors
from tubemq_client._wire import strings
from tubemq_client.model import CorruptRecords, GapPolicy

__all__ = [
    "FILTER",
    "GROUP",
    "MAX_FILTERS",
    "MAX_FILTER_LENGTH",
    "MAX_GROUP_LENGTH",
    "MAX_SESSION_KEY_LENGTH",
    "MAX_TOPIC_LENGTH",
    "TOPIC",
    "check_reader",
    "check_topic",
    "filter_problems",
    "group_problem",
    "no_settings",
    "session_key_problem",
    "topic_problem",
    "word_problem",
]

GROUP: Final = re.compile(r"[a-zA-Z][\w-]+", re.ASCII)
TOPIC: Final = re.compile(r"[a-zA-Z]\w+", re.ASCII)
FILTER: Final = re.compile(r"[\w-]+", re.ASCII)
MAX_GROUP_LENGTH: Final = 1024
MAX_TOPIC_LENGTH: Final = 64
MAX_FILTER_LENGTH: Final = 256
MAX_FILTERS: Final = 500
MAX_SESSION_KEY_LENGTH: Final = 1024

_SUFFIX_LENGTH: Final = len(".r00")

_SYSTEM_TOPICS: Final = frozenset({"__offset_history__"})


def group_problem(name: str) -> str | None:
    """Return the reason why `name` is not a valid group name, or None."""
    return _problem(name, "group name", GROUP, MAX_GROUP_LENGTH)


def topic_problem(name: str) -> str | None:
    """Return the reason why `name` is not a valid topic name, or None.

    The brokers' system topic is valid.
    """
    return None if name in _SYSTEM_TOPICS else _problem(name, "topic name", TOPIC, MAX_TOPIC_LENGTH)


def check_topic(name: str) -> None:
    """Raise `errors.ConfigError` if `name` is not a valid topic name."""
    if problem := topic_problem(name):
        raise errors.ConfigError(problem, subject="topic")


def check_reader(
    group: str,
    filters: Iterable[str],
    *,
    corrupt_records: str = "fail",
    gap_policy: str = "fail",
    can_quarantine: bool = False,
) -> None:
    """Raise `errors.ConfigError` for values of a reader that brokers or policies do not allow.

    The group is only part of the reader's own group name, so it need not be a valid member's.
    """
    filter_items = [filters] if isinstance(filters, str) else list(filters)
    problems = [
        f"filters: {item!r} is blank or contains '#' or ','"
        for item in filter_items
        if not strings.is_filter_item(item)
    ]
    problems += [f"filters: {problem}" for problem in filter_problems(filter_items)]
    if isinstance(filters, str):
        problems.append(f"filters: {filters!r} is a text; give a list")
    longest = MAX_GROUP_LENGTH - _SUFFIX_LENGTH
    if not group.strip() or len(group) > longest:
        problems.append(f"group: give a name of at most {longest} characters")
    problems += word_problem("corrupt_records", corrupt_records, *CorruptRecords)
    problems += word_problem("gap_policy", gap_policy, *GapPolicy)
    if corrupt_records == CorruptRecords.QUARANTINE and not can_quarantine:
        problems.append("corrupt_records: 'quarantine' needs a callback: quarantine=…")
    if problems:
        raise errors.ConfigError(problems, subject="reader")


def filter_problems(items: Iterable[str]) -> list[str]:
    """Return problems with number and length of the filters of one topic."""
    filters = list(items)
    problems = [
        f"a filter has {len(item)} characters, at most {MAX_FILTER_LENGTH} are possible"
        for item in filters
        if len(item) > MAX_FILTER_LENGTH
    ]
    if len(filters) > MAX_FILTERS:
        problems.append(f"{len(filters)} filters, at most {MAX_FILTERS} are possible")
    return problems


def word_problem(option: str, word: str, *known: str) -> list[str]:
    """Return a problem if `word` is not one of the `known` values of `option`."""
    return [] if word in known else [f"{option}: {word!r} is not one of {', '.join(known)}"]


def session_key_problem(key: str) -> str | None:
    """Return the reason why `key` cannot name a bound start, or None."""
    if not key.strip():
        return "session_key is empty"
    if len(key) > MAX_SESSION_KEY_LENGTH:
        return f"session_key has {len(key)} characters, at most {MAX_SESSION_KEY_LENGTH} possible"
    return None


def _problem(name: str, what: str, pattern: re.Pattern[str], limit: int) -> str | None:
    if pattern.fullmatch(name) and len(name) <= limit:
        return None
    quoted = repr(name if len(name) <= limit else f"{name[:limit]}…")
    return (
        f"{quoted} is not a {what}: it has two characters or more, a letter first (it must match "
        f"{pattern.pattern}), and at most {limit}"
    )


def no_settings(given: object) -> str:
    """Return the problem with a value that was passed in place of `ClientSettings`."""
    hint = (
        "write config.settings()"
        if callable(getattr(given, "settings", None))
        else 'ClientConfig.parse({"masters": "<host>:<port>"}).settings() makes them'
    )
    return f"settings are of type {type(given).__name__}, not ClientSettings; {hint}"

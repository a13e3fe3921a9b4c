"""Policies for lost, regressed, corrupt or unexpected data; most defaults raise an error.

Values are enums, so that all misspelt options are reported together before anything is read. This
module must not do I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final

from tubemq_client.errors import ConfigError
from tubemq_client.model import CorruptRecords, GapPolicy
from tubemq_provider.windows.spaces import OffsetSpace

__all__ = [
    "EARLIEST",
    "LATEST",
    "STABLE",
    "NewPartitionPosition",
    "OnClear",
    "OnMissingInterval",
    "OnOtherScope",
    "Policies",
    "RegressionPolicy",
    "end_word",
    "parse_offsets",
    "words_in",
]

EARLIEST: Final = "earliest"
"""First offset that a broker still holds."""

STABLE: Final = "stable"
"""End at planning time that a broker crash cannot take back."""

LATEST: Final = "latest"
"""End in the broker's memory, for sensors, the data source and the command line.

Windows never end there: as the start or end of a window it is read as `STABLE`.
"""


class RegressionPolicy(StrEnum):
    """Policy for a log that ends before the position (truncated or recreated): raise
    `LogTruncated`, or continue at its end (skips its records) or its start (may repeat records)."""

    FAIL = "fail"
    RESET_TO_END = "reset_to_end"
    RESET_TO_START = "reset_to_start"


class NewPartitionPosition(StrEnum):
    """First offset of a partition that appears after the group's first window."""

    EARLIEST = "earliest"
    STABLE = "stable"

    @classmethod
    def _missing_(cls, value: object) -> NewPartitionPosition | None:
        return cls.STABLE if value == LATEST else None


class OnClear(StrEnum):
    """Policy for a cleared task whose window is published: verify it, or rewrite it if the sink can
    replace a window in one step."""

    VERIFY = "verify"
    REWRITE = "rewrite"


class OnOtherScope(StrEnum):
    """Policy for a scope without windows (a renamed connection creates one) in a sink that has
    windows of the same topic and group under another scope: raise `OtherScopeFound`, or begin
    independently of them, which may store records twice."""

    FAIL = "fail"
    START_ANEW = "start_anew"


class OnMissingInterval(StrEnum):
    """Policy for an interval between a time window and its nearest published neighbour that no
    published window covers: warn in log, result and event, or raise `IntervalMissing`."""

    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Policies:
    """One value per policy. `Policies.of` parses option texts and reports all problems."""

    gap_policy: GapPolicy = GapPolicy.FAIL
    on_offset_regression: RegressionPolicy = RegressionPolicy.FAIL
    new_partition_position: NewPartitionPosition = NewPartitionPosition.EARLIEST
    corrupt_records: CorruptRecords = CorruptRecords.FAIL
    on_clear: OnClear = OnClear.VERIFY
    on_other_scope: OnOtherScope = OnOtherScope.FAIL
    on_missing_interval: OnMissingInterval = OnMissingInterval.WARN
    max_files: int | None = None
    """Most data files of one window; None: any number."""

    @classmethod
    def of(cls, **options: str) -> Policies:
        """Parse option texts; the other policies keep their defaults. Raises `ConfigError`."""
        defaults = {item.name: item.default for item in fields(cls)}
        problems: list[str] = []
        values: dict[str, Any] = {}
        for name, text in options.items():
            kind = type(defaults.get(name))
            if name not in defaults:
                problems.append(f"unknown policy {name!r}; known: {', '.join(defaults)}")
            elif not issubclass(kind, StrEnum):
                values[name] = text  # a limit, which the options' model has judged
            else:
                try:
                    values[name] = kind(text)
                except ValueError:
                    problems.append(f"{name} {text!r} is none of {', '.join(kind)}")
        if problems:
            raise ConfigError(problems, subject="policies")
        return cls(**values)

    @classmethod
    def from_options(cls, options: object) -> Policies:
        """Return the policies among options that have their names, such as `IngestFields`. Raises
        `ConfigError`."""
        return cls.of(**{item.name: getattr(options, item.name) for item in fields(cls)})


def parse_offsets(
    value: object, topic: str, *, subject: str, space: OffsetSpace, allow_keywords: bool = True
) -> dict[str, int | str]:
    """Parse a user's ``{"<topic>": {"1:0": 2800, "1:1": "earliest"}}`` into offsets by partition.

    Raises `ConfigError` listing every problem. `allow_keywords` accepts earliest and stable (and
    latest, which becomes stable).
    """
    if not isinstance(value, Mapping) or set(value) != {topic}:
        raise ConfigError(
            f'expected {{"{topic}": {{"{space.key_form[1:-1]}": offset}}}}, not {value!r}',
            subject=subject,
        )
    offsets = value[topic]
    if not isinstance(offsets, Mapping) or not offsets:
        raise ConfigError(f"{topic}: {offsets!r} names no partition", subject=subject)
    problems = [
        bad
        for key, offset in offsets.items()
        for bad in _problems(space, key, offset, allow_keywords=allow_keywords)
    ]
    if problems:
        raise ConfigError(problems, subject=subject)
    return {key: end_word(offset) for key, offset in offsets.items()}


def end_word(word: Any) -> Any:
    """Return `STABLE` for `LATEST`, anything else unchanged."""
    return STABLE if word == LATEST else word


def words_in(value: object) -> set[str]:
    """Return the keywords in a position: one keyword, or those among offsets by partition."""
    if isinstance(value, Mapping):
        return set().union(*map(words_in, value.values()))
    return {value} if isinstance(value, str) else set()


def _problems(
    space: OffsetSpace, key: object, offset: object, *, allow_keywords: bool
) -> list[str]:
    if not space.is_key(key):
        return [f"{key!r} is not {space.key_form}"]
    if isinstance(offset, str):
        if allow_keywords and offset in (EARLIEST, STABLE, LATEST):
            return []
        allowed = "an offset, 'earliest' or 'stable'" if allow_keywords else "an offset"
        return [f"{key}: {offset!r} is not {allowed}"]
    problem = space.offset_problem(offset)
    return [f"{key}: {problem}"] if problem else []

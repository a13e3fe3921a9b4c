"""What a window run does when the world is not as planned; every default fails loudly.

Values are enums so that a misspelt option is caught before anything is read, together with every
other misspelt option. This module must not do I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final

from tubemq_client.errors import ConfigError
from tubemq_provider.windows.spaces import OffsetSpace

__all__ = [
    "EARLIEST",
    "LATEST",
    "STABLE",
    "CorruptRecords",
    "GapPolicy",
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
"""The first offset a broker still holds."""

STABLE: Final = "stable"
"""The end at planning that a broker crash cannot take back."""

LATEST: Final = "latest"
"""The end in memory to sensors, the data source and the command line; windows never end there.
Where a window begins or ends it is an old word for `STABLE`, still understood.
"""


class GapPolicy(StrEnum):
    """Retention removed offsets that the window should contain: raise `DataLoss`, or go on and
    record the lost range in plan, result and event."""

    FAIL = "fail"
    SKIP = "skip"


class RegressionPolicy(StrEnum):
    """A log now ends before the position (truncated, or rebuilt): raise `LogTruncated`, or go on
    from its end (skips what is there) or its start (may read records twice)."""

    FAIL = "fail"
    RESET_TO_END = "reset_to_end"
    RESET_TO_START = "reset_to_start"


class NewPartitionPosition(StrEnum):
    """Where a partition begins that appeared after the group's first window."""

    EARLIEST = "earliest"
    STABLE = "stable"

    @classmethod
    def _missing_(cls, value: object) -> NewPartitionPosition | None:
        return cls.STABLE if value == LATEST else None


class CorruptRecords(StrEnum):
    """A record fails its checksum: raise, leave it out and count it, or leave it out, count it and
    keep what the broker sent in a file beside the window."""

    FAIL = "fail"
    DROP = "drop"
    QUARANTINE = "quarantine"


class OnClear(StrEnum):
    """A cleared task finds its window written: leave it (`verify`), or write it again where the
    sink can replace a window in one step."""

    VERIFY = "verify"
    REWRITE = "rewrite"


class OnOtherScope(StrEnum):
    """A scope without windows (a renamed connection makes one) meets windows of the same topic and
    group under another scope: raise `OtherScopeFound`, or begin anew beside them, which may store
    records again."""

    FAIL = "fail"
    START_ANEW = "start_anew"


class OnMissingInterval(StrEnum):
    """Between a window of time and its nearest published neighbour lies time that no published
    window has: say it in log, result and event, or raise `IntervalMissing`."""

    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Policies:
    """One value per policy. `Policies.of` takes the options' texts and lists all problems."""

    gap_policy: GapPolicy = GapPolicy.FAIL
    on_offset_regression: RegressionPolicy = RegressionPolicy.FAIL
    new_partition_position: NewPartitionPosition = NewPartitionPosition.EARLIEST
    corrupt_records: CorruptRecords = CorruptRecords.FAIL
    on_clear: OnClear = OnClear.VERIFY
    on_other_scope: OnOtherScope = OnOtherScope.FAIL
    on_missing_interval: OnMissingInterval = OnMissingInterval.WARN

    @classmethod
    def of(cls, **options: str) -> Policies:
        """Policies from texts; the rest keep their defaults. Raises `ConfigError`."""
        kinds: dict[str, type[StrEnum]] = {
            item.name: type(item.default)  # type: ignore[misc]
            for item in fields(cls)
        }
        problems: list[str] = []
        values: dict[str, Any] = {}
        for name, text in options.items():
            kind = kinds.get(name)
            if kind is None:
                problems.append(f"unknown policy {name!r}; known: {', '.join(kinds)}")
            else:
                try:
                    values[name] = kind(text)
                except ValueError:
                    problems.append(f"{name} {text!r} is none of {', '.join(kind)}")
        if problems:
            raise ConfigError(problems, subject="policies")
        return cls(**values)


def parse_offsets(
    value: object, topic: str, *, subject: str, space: OffsetSpace, allow_keywords: bool = True
) -> dict[str, int | str]:
    """Offsets by partition key from what a user types: ``{"<topic>": {"1:0": 2800, "1:1":
    "earliest"}}``. Raises `ConfigError` listing every problem; `words` allows earliest and stable
    (and latest, which becomes stable).
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
    """`STABLE` for its old word `LATEST`; anything else as it is."""
    return STABLE if word == LATEST else word


def words_in(value: object) -> set[str]:
    """The words in a position: a word itself, or those among offsets by partition."""
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

"""What a member of a group is made of, from a configuration or from single arguments.

`Consumer(config)` and `Consumer(settings, group, topics, …)` mean the same. The option models stand
above the shells, so a configuration is known here by its shape. Nothing is ignored: an argument
beside a configuration, or an option that this kind of member cannot obey, is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, cast

from tubemq_client import errors
from tubemq_client._core.balance_orders import BoundStart
from tubemq_client._core.limits import no_settings, word_problem
from tubemq_client.model import ClientSettings, ConsumerSettings

__all__ = ["GroupConfig", "GroupOptions", "group_options"]

Corrupt = Literal["fail", "drop"]


class GroupConfig(Protocol):
    """`config.ConsumerConfig`, or whatever has its shape."""

    @property
    def group(self) -> str:
        """Name of the group."""
        ...

    @property
    def subscription(self) -> Mapping[str, Sequence[str]]:
        """Topics with their filters."""
        ...

    @property
    def bound_start(self) -> BoundStart | None:
        """Where the whole group starts."""
        ...

    @property
    def corrupt_records(self) -> str:
        """What to do with a record whose checksum is wrong."""
        ...

    def settings(self) -> ClientSettings:
        """How to reach the cluster."""
        ...

    def consumer_settings(self) -> ConsumerSettings:
        """How a member behaves."""
        ...


class GroupOptions(NamedTuple):
    """All of it."""

    settings: ClientSettings
    group: str
    topics: Mapping[str, Sequence[str]]
    consumer: ConsumerSettings
    bound: BoundStart | None
    corrupt_records: Corrupt


def group_options(
    given: ClientSettings | GroupConfig,
    group: str | None,
    topics: Mapping[str, Sequence[str]] | None,
    *,
    consumer: ConsumerSettings | None,
    corrupt_records: Corrupt | None,
    bound: BoundStart | None = None,
    takes_bound: bool = True,
) -> GroupOptions:
    """The options of a member. Raises `errors.ConfigError` with every problem."""
    if isinstance(given, ClientSettings):
        if group is None or topics is None:
            raise errors.ConfigError(
                "give group and topics beside the settings, or a ConsumerConfig alone",
                subject="consumer",
            )
        corrupt_records = corrupt_records or "fail"
        if problems := [*_no_policy(corrupt_records), *_no_topics(topics)]:
            raise errors.ConfigError(problems, subject="consumer")
        return GroupOptions(
            given, group, topics, consumer or ConsumerSettings(), bound, corrupt_records
        )
    beside: dict[str, Any] = {
        "group": group,
        "topics": topics,
        "consumer": consumer,
        "corrupt_records": corrupt_records,
        "bound": bound,
    }
    problems = _without_effect(given, beside, takes_bound=takes_bound)
    if problems:
        raise errors.ConfigError(problems, subject="consumer")
    return GroupOptions(
        given.settings(),
        given.group,
        given.subscription,
        given.consumer_settings(),
        given.bound_start,
        cast("Corrupt", given.corrupt_records),
    )


def _no_topics(topics: object) -> list[str]:
    """A list of names would be taken for a mapping. Texts for filters are judged with the names."""
    if not isinstance(topics, Mapping):
        kind = type(topics).__name__
        return [f"topics is of type {kind}, not a mapping to filters; write {{'orders': ()}}"]
    return [
        f"topics: the filters of {name!r} are {filters!r}, not a list of stream ids (or () for all)"
        for name, filters in topics.items()
        if isinstance(filters, bytes) or not isinstance(filters, Iterable)
    ]


def _without_effect(
    config: GroupConfig, beside: Mapping[str, Any], *, takes_bound: bool
) -> list[str]:
    """What would be ignored if it were not refused. Raises `errors.ConfigError` for what is no
    configuration."""
    if not hasattr(config, "consumer_settings"):
        raise errors.ConfigError(no_settings(config), subject="consumer")
    problems = [
        f"{name}: the configuration has it; change it there"
        for name, value in beside.items()
        if value is not None
    ]
    if config.bound_start is not None and not takes_bound:
        problems.append("bound: a member that assigns partitions itself begins where it says")
    return problems + _no_policy(config.corrupt_records)


def _no_policy(corrupt_records: str) -> list[str]:
    """Why a member cannot do as `corrupt_records` says."""
    if corrupt_records == "quarantine":
        return ["corrupt_records: a member of a group cannot quarantine records: fail or drop"]
    return word_problem("corrupt_records", corrupt_records, "fail", "drop")

"""Options of a group member, from a configuration or from single arguments.

`Consumer(config)` and `Consumer(settings, group, topics, …)` are equivalent. The option models are
in a layer above, so a configuration is recognised by its attributes. Nothing is ignored: arguments
next to a configuration, and options that this kind of member does not support, are refused.
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
    """`config.ConsumerConfig`, or any object with its attributes."""

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
        """Start of the whole group."""
        ...

    @property
    def corrupt_records(self) -> str:
        """Policy for a record whose checksum is wrong."""
        ...

    def settings(self) -> ClientSettings:
        """Return the settings that reach the cluster."""
        ...

    def consumer_settings(self) -> ConsumerSettings:
        """Return the settings of a member."""
        ...


class GroupOptions(NamedTuple):
    """Options of a member, complete."""

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
    """Return the options of a member; raise `errors.ConfigError` with every problem."""
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
    arguments: dict[str, Any] = {
        "group": group,
        "topics": topics,
        "consumer": consumer,
        "corrupt_records": corrupt_records,
        "bound": bound,
    }
    problems = _without_effect(given, arguments, takes_bound=takes_bound)
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
    """Return the problems of `topics`: a list of names is not a mapping to filters.

    Filters that are texts are checked together with the names.
    """
    if not isinstance(topics, Mapping):
        kind = type(topics).__name__
        return [f"topics is of type {kind}, not a mapping to filters; write {{'orders': ()}}"]
    return [
        f"topics: the filters of {name!r} are {filters!r}, not a list of stream ids (or () for all)"
        for name, filters in topics.items()
        if isinstance(filters, bytes) or not isinstance(filters, Iterable)
    ]


def _without_effect(
    config: GroupConfig, arguments: Mapping[str, Any], *, takes_bound: bool
) -> list[str]:
    """Return the problems with arguments and options that would have no effect.

    Raises `errors.ConfigError` if `config` is no configuration.
    """
    if not hasattr(config, "consumer_settings"):
        raise errors.ConfigError(no_settings(config), subject="consumer")
    problems = [
        f"{name}: the configuration has it; change it there"
        for name, value in arguments.items()
        if value is not None
    ]
    if config.bound_start is not None and not takes_bound:
        problems.append("bound: a member that assigns partitions itself begins where it says")
    return problems + _no_policy(config.corrupt_records)


def _no_policy(corrupt_records: str) -> list[str]:
    """Return the problem with a policy that members do not support."""
    if corrupt_records == "quarantine":
        return ["corrupt_records: a member of a group cannot quarantine records: fail or drop"]
    return word_problem("corrupt_records", corrupt_records, "fail", "drop")

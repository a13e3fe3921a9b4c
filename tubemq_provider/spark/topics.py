"""Topics and partitions of a read: `topic`, `subscribe`, `subscribePattern` or `assign`.

Validates the options, and asks the cluster once for existing topics. Topics by pattern come from
the masters' HTTP administration, because TubeMQ's own protocol cannot list them. This module does
not depend on offsets.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tubemq_client import errors
from tubemq_client.json_text import load_unique_json
from tubemq_client.model import Partition
from tubemq_provider.sources.tubemq.space import SPACE

if TYPE_CHECKING:
    from tubemq_client import TopicMetadata
    from tubemq_client.sync import Metadata
    from tubemq_provider.spark.option_parser import OptionParser

_CHOICES = ("topic", "subscribe", "subscribePattern", "assign")
_SYSTEM = "__offset_history__"
"""Internal topic of the brokers, which no pattern matches."""


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """Selected topics. `names` are empty with a `pattern`, which is resolved through `admin` (HTTP
    addresses of masters); `partitions` None means all of them."""

    names: tuple[str, ...]
    pattern: str | None = None
    admin: str | None = None
    partitions: tuple[Partition, ...] | None = None

    @property
    def known(self) -> Collection[str] | None:
        """Topics that options may refer to; None if only the cluster knows them."""
        return self.names or None


def choose_topics(values: OptionParser) -> TopicChoice:
    """Return the topics of the options, exactly one of which is set; problems are collected in
    `values`."""
    options = [name for name in _CHOICES if values.text(name) is not None]
    if not options:
        values.problems.append("topic: is needed (or 'subscribe', 'subscribePattern', 'assign')")
    if len(options) > 1:
        values.problems.append(f"{options[1]}: cannot be combined with {options[0]!r}")
    if values.text("admin") is not None and "subscribePattern" not in options:
        values.problems.append("admin: is used with 'subscribePattern' only")
    if "assign" in options:
        return _assigned(values)
    if "subscribePattern" in options:
        return _by_pattern(values)
    names = tuple(dict.fromkeys(values.words("subscribe"))) or tuple(
        name for name in [values.text("topic")] if name
    )
    return TopicChoice(names, partitions=_partitions(values, names))


def look_up_topics(
    metadata: Metadata, choice: TopicChoice, group: str
) -> Mapping[str, TopicMetadata]:
    """Return the master's metadata of each topic. Raises `errors.UnknownTopic` for one without
    partitions, and for a pattern that no topic matches."""
    topics = {}
    for name in choice.names or _matching(choice):
        topics[name] = metadata.topic(name, group)
        if not topics[name].partitions:
            raise errors.UnknownTopic(431, f"topic {name!r} has no partition")
    return topics


def unknown_partitions(
    option: str, partitions: Iterable[Partition], existing: Iterable[Partition]
) -> list[str]:
    """Return a sentence for each partition that is not in `existing`."""
    existing = sorted(existing)
    problems = []
    for partition in sorted(set(partitions).difference(existing)):
        listing = ", ".join(p.key for p in existing if p.topic == partition.topic)
        problem = (
            f"has no partition {partition.key}; it has {listing}" if listing else "is not read"
        )
        problems.append(f"{option}: topic {partition.topic!r} {problem}")
    return problems


def _assigned(values: OptionParser) -> TopicChoice:
    example = '{"<topic>": ["1:0", "1:1"]}'
    if values.text("partitions") is not None:
        values.problems.append("partitions: cannot be combined with 'assign', which names them")
    try:
        document = load_unique_json(values.value("assign"))
        lists = {topic: _listed(keys) for topic, keys in document.items()}
        partitions = [SPACE.partition(topic, str(key)) for topic in lists for key in lists[topic]]
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        values.problems.append(f"assign: {error}; write {example}")
        return TopicChoice(())
    if not partitions or not all(lists.values()):
        values.problems.append(f"assign: names no partition; write {example}")
    return TopicChoice(tuple(lists), partitions=tuple(sorted(set(partitions))))


def _listed(keys: Any) -> list[Any]:
    if not isinstance(keys, list):
        raise TypeError("partitions of a topic are a list")
    return keys


def _by_pattern(values: OptionParser) -> TopicChoice:
    pattern = values.value("subscribePattern")
    try:
        re.compile(pattern)
    except re.error as error:
        values.problems.append(f"subscribePattern: {pattern!r} is no regular expression: {error}")
    if values.text("partitions") is not None:
        values.problems.append("partitions: needs one topic; use 'assign' for several")
    if values.text("admin") is None:
        values.problems.append(
            "admin: is needed with 'subscribePattern' ('http://master1:8080,…'), because only the "
            "masters' HTTP administration lists topics; or name the topics with 'subscribe'"
        )
    return TopicChoice((), pattern, values.text("admin"))


def _partitions(values: OptionParser, names: Collection[str]) -> tuple[Partition, ...] | None:
    words = values.words("partitions")
    if words and len(names) > 1:
        values.problems.append("partitions: needs one topic; use 'assign' for several")
        return None
    partitions = set()
    for key in words:
        try:
            partitions.add(SPACE.partition(next(iter(names), ""), key))
        except ValueError as error:
            values.problems.append(f"partitions: {error}")
    return tuple(sorted(partitions)) or None


def _matching(choice: TopicChoice) -> list[str]:
    from tubemq_client.admin import AdminClient

    assert choice.pattern is not None
    assert choice.admin is not None
    with AdminClient(choice.admin) as client:
        names = [info.name for info in client.topics() if info.name != _SYSTEM]
    matching = [name for name in names if re.fullmatch(choice.pattern, name)]
    if not matching:
        raise errors.UnknownTopic(
            431, f"subscribePattern: none of {len(names)} topics matches {choice.pattern!r}"
        )
    return matching

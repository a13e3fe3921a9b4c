"""Options of a group's subscription: topics with their filters, and a start from given offsets.

Users write them, so every source of options accepts them: a mapping in a file, JSON in a URL or the
environment, a plain list if there are no filters. `models.ConsumerConfig` combines them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from tubemq_client._core.balance_orders import BoundStart
from tubemq_client._core.limits import (
    FILTER,
    MAX_FILTER_LENGTH,
    MAX_FILTERS,
    MAX_SESSION_KEY_LENGTH,
    group_problem,
    topic_problem,
)
from tubemq_client.config.base import CommonOptions
from tubemq_client.json_text import load_unique_json
from tubemq_client.model import Partition

__all__ = ["Bound", "BoundConfig", "FilterItem", "GroupName", "TopicName", "Topics"]


def _group(value: object) -> object:
    return _checked(value, group_problem)


def _topic(value: object) -> object:
    return _checked(value, topic_problem)


def _checked(value: object, find_problem: Any) -> object:
    if problem := find_problem(value if isinstance(value, str) else repr(value)):
        raise ValueError(problem)
    return value


def _filter(value: object) -> object:
    if not isinstance(value, str) or not FILTER.fullmatch(value) or len(value) > MAX_FILTER_LENGTH:
        raise ValueError(
            f"{value!r} is not a stream id to filter by: it must match {FILTER.pattern} and have "
            f"at most {MAX_FILTER_LENGTH} characters"
        )
    return value


GroupName = Annotated[str, BeforeValidator(_group)]
TopicName = Annotated[str, BeforeValidator(_topic)]
FilterItem = Annotated[str, BeforeValidator(_filter)]
Filters = Annotated[tuple[FilterItem, ...], Field(max_length=MAX_FILTERS)]


def _of_json(value: object) -> object:
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            return load_unique_json(value)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not valid JSON ({error})") from None
    return value


def _topics(value: object) -> object:
    """Accept `{"orders": ["a"], "clicks": []}`, the same as JSON, a list, or `"orders,clicks"`."""
    value = _of_json(value)
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",") if name.strip()]
    if isinstance(value, list | tuple):
        if wrong := [name for name in value if not isinstance(name, str)]:
            raise ValueError(f"{wrong[0]!r} is no name of a topic")
        return dict.fromkeys(value, ())
    if isinstance(value, Mapping):
        return {
            name: (items,) if isinstance(items, str) else items for name, items in value.items()
        }
    return value


Topics = Annotated[
    Annotated[dict[TopicName, Filters], Field(min_length=1)] | None, BeforeValidator(_topics)
]
Offsets = Annotated[
    dict[TopicName, dict[str, Annotated[int, Field(ge=0)]]], BeforeValidator(_of_json)
]


class BoundConfig(CommonOptions):
    """Start a whole group from offsets ("bound consume"); see `BoundStart`."""

    session_key: str = Field(
        min_length=1,
        max_length=MAX_SESSION_KEY_LENGTH,
        description="names this start; all members give the same",
    )
    source_count: int = Field(ge=1, le=1_000_000, description="how many members there will be")
    offsets: Offsets = Field(
        default_factory=dict, description="where partitions start, `{topic: {partition: offset}}`"
    )
    select_big: bool = Field(
        default=True, description="of several offsets for a partition the largest counts"
    )
    session_start_ms: int | None = Field(
        None, ge=0, description="when the start was asked for, for operators; default is now"
    )

    def start(self) -> BoundStart:
        """Return the plain value that a consumer takes."""
        offsets = {
            Partition.from_key(topic, key): offset
            for topic, by_key in self.offsets.items()
            for key, offset in by_key.items()
        }
        return BoundStart(
            self.session_key, self.source_count, offsets, self.select_big, self.session_start_ms
        )


Bound = Annotated[
    BoundConfig | None, Field(None, description="start the whole group from these offsets")
]

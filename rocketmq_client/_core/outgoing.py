"""Checks of records to send: a body of bytes, text properties, and sizes that fit.

They run before the send, so an error names the record and no broker has to refuse it. Keys and tags
are properties with reserved names; brokers store all properties as one text.

Source: `docs/rocketmq-protocol/records.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_client import errors
from rocketmq_client._wire.properties import KEYS, TAGS, UNIQ_KEY, WAIT, encode_properties
from rocketmq_client.model import OutgoingMessage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = [
    "MOST_IN_A_BATCH",
    "check_in_batch",
    "check_record",
    "delay_properties",
    "outgoing",
    "property_text",
]

_RESERVED: Final = frozenset({KEYS, TAGS, UNIQ_KEY, WAIT})
_MOST_PROPERTY_BYTES: Final = 32_767
MOST_IN_A_BATCH: Final = _MOST_PROPERTY_BYTES - 1_024
"""4.x brokers append the batch's properties (among them the name of their cluster) to those of each
of its records without checking the limit: a record that exceeds it corrupts their log, so that no
later record of any topic is found, and a restart truncates all of them."""
_IGNORED_IN_A_BATCH: Final = frozenset(
    {"DELAY", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TRAN_MSG"}
)
"""Properties that delay a record; brokers ignore them for records of a batch."""
_FLAGS: Final = range(-(2**31), 2**31)


def outgoing(
    body: bytes,
    tags: str | None,
    keys: str | Sequence[str],
    properties: Mapping[str, str] | None,
    flag: int = 0,
) -> OutgoingMessage:
    """Return the record of a producer's arguments; one key may be given as a text."""
    return OutgoingMessage(body, tags, _key_words(keys), dict(properties or {}), flag)


def check_record(message: OutgoingMessage) -> None:
    """Raise `errors.ConfigError` with all reasons why a record cannot be sent."""
    problems = [*_of_texts(message), *_of_keys(message)]
    if not isinstance(message.body, bytes | bytearray | memoryview):
        problems.append(f"body: a {type(message.body).__name__} is not bytes")
    if type(message.flag) is not int or message.flag not in _FLAGS:
        problems.append(f"flag: {message.flag!r:.40} is not a 32-bit number")
    if taken := _RESERVED & (message.properties or {}).keys():
        problems.append(
            f"properties {', '.join(sorted(taken))} have separate arguments (tags, keys) or "
            "belong to the client"
        )
    if problems:
        raise errors.ConfigError(problems, subject="record")


def delay_properties(message: OutgoingMessage) -> frozenset[str]:
    """Return the properties that make brokers deliver a record later; only a single send supports
    them."""
    return _IGNORED_IN_A_BATCH & (message.properties or {}).keys()


def check_in_batch(message: OutgoingMessage) -> None:
    """Run `check_record` for a record that is sent in a batch."""
    check_record(message)
    if ignored := delay_properties(message):
        raise errors.ConfigError(
            f"properties {', '.join(sorted(ignored))} have no effect in a batch, brokers would "
            "deliver the record at once: send it by itself",
            subject="record",
        )


def property_text(
    message: OutgoingMessage, message_id: str, most: int = _MOST_PROPERTY_BYTES
) -> str:
    """Return all properties of a checked record, as brokers store them.

    Raises `errors.ConfigError` for more than `most` bytes.
    """
    properties = dict(message.properties or {})
    if message.keys:
        properties[KEYS] = " ".join(_key_words(message.keys))
    properties[UNIQ_KEY] = message_id
    properties[WAIT] = "true"
    if message.tags is not None:
        properties[TAGS] = message.tags
    text = encode_properties(properties)
    if len(text.encode()) > most:
        raise errors.ConfigError(
            f"properties, tags and keys have {len(text.encode())} bytes; a record can have "
            f"{_MOST_PROPERTY_BYTES}, in a batch {MOST_IN_A_BATCH}",
            subject="record",
        )
    return text


def _of_texts(message: OutgoingMessage) -> Iterator[str]:
    texts = [] if message.tags is None else [("tags", message.tags)]
    for name, value in (message.properties or {}).items():
        texts += [("the name of a property", name), (f"property {name!r}", value)]
    for what, text in texts:
        if not _is_text(text):
            yield f"{what}: {text!r:.40} is not text"
    for name, value in (message.properties or {}).items():
        if "" in (name, value):  # a broker re-encodes properties, except those of a batch
            yield f"property {name!r}: {value!r:.40} is left out by brokers; none can be empty"


def _of_keys(message: OutgoingMessage) -> Iterator[str]:
    """Yield the problems of the keys: they share one text, separated by blanks."""
    if wrong := [word for word in _key_words(message.keys) if not _is_key(word)]:
        yield (
            f"keys {', '.join(map(repr, wrong))}: a key is a text, not empty and without blanks; "
            "give several as separate items"
        )


def _key_words(keys: str | Sequence[str]) -> tuple[str, ...]:
    return (keys,) if isinstance(keys, str) else tuple(keys)


def _is_key(word: object) -> bool:
    return _is_text(word) and str(word).split() == [word]


def _is_text(value: object) -> bool:
    """Return False for a lone surrogate (`\\ud800`), which has no UTF-8."""
    try:
        return isinstance(value, str) and bool(value.encode() or True)
    except UnicodeEncodeError:
        return False

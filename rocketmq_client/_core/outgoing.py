"""What a record must be to be sent: bytes with texts beside them, whose properties fit.

Judged before anything is sent, so that a mistake names the record and no broker has to refuse it.
Keys and tags are properties under names of their own; brokers store all of them as one text.

Source: `docs/rocketmq-protocol/records.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_client import errors
from rocketmq_client._wire.properties import KEYS, TAGS, UNIQ_KEY, WAIT, encode_properties

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rocketmq_client.model import OutgoingMessage

__all__ = ["MOST_IN_A_BATCH", "check_in_batch", "check_record", "held_back_by", "property_text"]

_RESERVED: Final = frozenset({KEYS, TAGS, UNIQ_KEY, WAIT})
_MOST_PROPERTY_BYTES: Final = 32_767
MOST_IN_A_BATCH: Final = _MOST_PROPERTY_BYTES - 1_024
"""4.x brokers append the batch's own properties (among them the name of their cluster) to those of
each of its records, and look at no limit: a record that grows beyond it breaks their log, so that
no record of any topic behind it is found again, and a restart cuts all of them off."""
_IGNORED_IN_A_BATCH: Final = frozenset(
    {"DELAY", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TRAN_MSG"}
)
"""What holds a record back until later: brokers deliver those of a batch at once all the same."""
_FLAGS: Final = range(-(2**31), 2**31)


def check_record(message: OutgoingMessage) -> None:
    """Raises `errors.ConfigError` with everything about a record that cannot be sent."""
    problems = [*_of_texts(message), *_of_keys(message)]
    if not isinstance(message.body, bytes | bytearray | memoryview):
        problems.append(f"body: a {type(message.body).__name__} is no bytes")
    if type(message.flag) is not int or message.flag not in _FLAGS:
        problems.append(f"flag: {message.flag!r:.40} is no number of 32 bits")
    if taken := _RESERVED & (message.properties or {}).keys():
        problems.append(
            f"properties {', '.join(sorted(taken))} have arguments of their own (tags, keys) or "
            "are the client's"
        )
    if problems:
        raise errors.ConfigError(problems, subject="record")


def held_back_by(message: OutgoingMessage) -> frozenset[str]:
    """Properties that let brokers deliver a record later, which only a single send can ask for."""
    return _IGNORED_IN_A_BATCH & (message.properties or {}).keys()


def check_in_batch(message: OutgoingMessage) -> None:
    """As `check_record`, for a record that is sent in a batch."""
    check_record(message)
    if ignored := held_back_by(message):
        raise errors.ConfigError(
            f"properties {', '.join(sorted(ignored))} have no effect in a batch, brokers would "
            "deliver the record at once: send it by itself",
            subject="record",
        )


def property_text(
    message: OutgoingMessage, message_id: str, most: int = _MOST_PROPERTY_BYTES
) -> str:
    """All properties of a record that was checked, as brokers store them.

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
    given = [] if message.tags is None else [("tags", message.tags)]
    for name, value in (message.properties or {}).items():
        given += [("the name of a property", name), (f"property {name!r}", value)]
    for what, text in given:
        if not _is_text(text):
            yield f"{what}: {text!r:.40} is no text"
    for name, value in (message.properties or {}).items():
        if "" in (name, value):  # a broker reads and writes properties anew, those of a batch not
            yield f"property {name!r}: {value!r:.40} is left out by brokers; none can be empty"


def _of_keys(message: OutgoingMessage) -> Iterator[str]:
    """Keys lie in one text, with blanks between them."""
    if wrong := [word for word in _key_words(message.keys) if not _is_key(word)]:
        yield (
            f"keys {', '.join(map(repr, wrong))}: a key is a text, not empty and without blanks; "
            "give several as items of their own"
        )


def _key_words(keys: str | Sequence[str]) -> tuple[str, ...]:
    return (keys,) if isinstance(keys, str) else tuple(keys)


def _is_key(word: object) -> bool:
    return _is_text(word) and str(word).split() == [word]


def _is_text(value: object) -> bool:
    """Half of a pair (`\\ud800`) is none: it has no UTF-8."""
    try:
        return isinstance(value, str) and bool(value.encode() or True)
    except UnicodeEncodeError:
        return False

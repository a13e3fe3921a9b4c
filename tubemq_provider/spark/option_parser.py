"""Typed access to option strings that collects problems instead of stopping at the first.

Handles names, aliases, defaults and value types; the only option it knows by its meaning is
`decode`, which every kind of source has. A wrong value is reported in `problems` and replaced by a
harmless one, so that checking continues. Used by the modules that define the options of reads and
writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, NamedTuple

from tubemq_client.errors import ConfigError, shown_addresses
from tubemq_provider.rows.spec import DecodeSpec

if TYPE_CHECKING:
    from tubemq_client.model import Address

_TRUE = ("true", "1", "yes")
_FALSE = ("false", "0", "no")
_ADDRESS = re.compile(r"(?:\[([\w:.%]+)\]|([\w.-]+))(?::([0-9]{0,6}))?")
"""IPv6 address in brackets, or host name; and an optional port."""


class Option(NamedTuple):
    """Option with its documented name, its aliases, and its default as text."""

    name: str
    aliases: tuple[str, ...] = ()
    default: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadShape:
    """Options that every kind has, besides the ranges to read.

    `max_records` is the upper bound of index entries per split, `min_partitions` the minimal number
    of splits, `batch_bytes` the approximate size of a batch for Spark, `report_dir` the directory
    of the splits' reports. `corrupt_records` is ``fail`` or ``drop``.
    """

    columns: tuple[str, ...]
    decode: DecodeSpec | None
    corrupt_records: str
    max_records: int
    min_partitions: int | None
    batch_bytes: int
    report_dir: str | None


class OptionParser:
    """User options under their documented names, and the list of `problems` so far.

    `refused` maps refused names to the reason, `refused_prefix` does so for all names with a
    prefix; their values are never repeated in a message, since they may be passwords.
    """

    def __init__(
        self,
        known: Sequence[Option],
        given: Mapping[str, str],
        *,
        refused: Mapping[str, str],
        refused_prefix: tuple[str, str] | None = None,
    ) -> None:
        self.problems: list[str] = []
        self._defaults = {option.name: option.default for option in known}
        self._values: dict[str, str] = {}
        self._names = {name.lower(): o.name for o in known for name in (o.name, *o.aliases)}
        for key, value in given.items():
            if refused_prefix and key.lower().startswith(refused_prefix[0]):
                refused = {key.lower(): refused_prefix[1], **refused}
            self._take(key, value, refused)

    def text(self, name: str) -> str | None:
        """Return the stripped value; None if missing."""
        return self._values.get(name)

    def value(self, name: str) -> str:
        """Return the value, or the option's default."""
        return self._values.get(name) or self._defaults[name] or ""

    def words(self, name: str) -> list[str]:
        """Split a comma-separated list, without blanks."""
        return [word.strip() for word in self.value(name).split(",") if word.strip()]

    def integer(self, name: str, *, low: int, high: int | None = None) -> int | None:
        """Parse a whole number in `[low, high]`; None if missing (or wrong, which is reported)."""
        text = self.value(name)
        if not text:
            return None
        number = int(text) if text.isascii() and text.isdecimal() else -1
        if number < low or (high is not None and number > high):
            limits = f">= {low}" if high is None else f"between {low} and {high}"
            self.problems.append(f"{name}: {text!r} is not a whole number {limits}")
            return None
        return number

    def number(self, name: str, *, low: int, high: int | None = None) -> int:
        """Parse as `integer` does, for an option that has a default."""
        number = self.integer(name, low=low, high=high)
        return low if number is None else number

    def flag(self, name: str) -> bool:
        """Parse true or false, in any case."""
        text = self.value(name).lower()
        if text not in _TRUE + _FALSE:
            self.problems.append(f"{name}: {self.value(name)!r} is neither 'true' nor 'false'")
        return text in _TRUE

    def choice(self, name: str, allowed: Sequence[str]) -> str:
        """Return the value if it is one of `allowed`."""
        text = self.value(name).lower()
        if text not in allowed:
            self.problems.append(f"{name}: {text!r} is not one of {_listing(allowed)}")
            return allowed[0]
        return text

    def choices(self, name: str, allowed: Sequence[str]) -> tuple[str, ...]:
        """Return several of `allowed` in the order of the value, each once."""
        words = self.words(name)
        for word in words:
            if word not in allowed:
                self.problems.append(f"{name}: {word!r} is not one of {_listing(allowed)}")
        if len(set(words)) != len(words):
            self.problems.append(f"{name}: names a column twice")
        return tuple(words)

    def addresses(self, name: str, *, default_port: int) -> tuple[Address, ...]:
        """Parse ``host:port,host``; the port is optional."""
        words = self.words(name)
        if not words:
            self.problems.append(f"{name}: is needed, for example 'master1:{default_port}'")
        addresses = [self._address(word, default_port) for word in words]
        wrong = [word for word, address in zip(words, addresses, strict=True) if address is None]
        if wrong:
            self.problems.append(f"{name}: {shown_addresses(wrong)} is not '<host>:<port>'")
        return tuple(address or ("", 0) for address in addresses)

    @staticmethod
    def _address(text: str, default_port: int) -> Address | None:
        if _is_ipv6(text):
            return (text, default_port)
        match = _ADDRESS.fullmatch(text)
        port = int(match[3] or default_port) if match is not None else 0
        if match is None or not 0 < port < 65_536:
            return None
        return (match[1] or match[2], port)

    def _take(self, key: str, value: str, refused: Mapping[str, str]) -> None:
        lowered = key.lower()
        if lowered in refused:
            self.problems.append(f"{key}: {refused[lowered]}")
            return
        name = self._names.get(lowered)
        if name is None:
            self.problems.append(self._unknown(key))
        elif name in self._values:
            self.problems.append(f"{name}: given twice, under two names")
        elif not str(value).strip():
            # As a missing one, a blank filter or offset would mean that everything is read.
            self.problems.append(f"{name}: is blank; give a value, or leave the option out")
        else:
            self._values[name] = str(value).strip()

    def _unknown(self, key: str) -> str:
        close = get_close_matches(key.lower(), self._names, n=1, cutoff=0.6)
        if close:
            return f"{key}: unknown option; did you mean {self._names[close[0]]!r}?"
        return f"{key}: unknown option; known are {', '.join(sorted(self._defaults))}"


def decode_option(values: OptionParser, columns: tuple[str, ...]) -> DecodeSpec | None:
    """Return the spec of the option `decode`; unless it has `columns`, it keeps `columns` except
    for the body."""
    text = values.text("decode")
    if text is None:
        return None
    try:
        spec = DecodeSpec.parse(text)
    except ConfigError as error:
        values.problems.extend(f"decode: {problem}" for problem in error.problems)
        return None
    if spec.columns is not None:
        return spec
    return replace(spec, columns=tuple(name for name in columns if name != "value"))


def _is_ipv6(text: str) -> bool:
    """Return True for an IPv6 address without brackets, which cannot have a port."""
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


def _listing(words: Iterable[str]) -> str:
    return ", ".join(repr(word) for word in words)

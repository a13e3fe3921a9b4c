"""Typed access to option strings that collects problems instead of stopping at the first.

Knows names, aliases, defaults and value shapes; of what options are for only `decode`, which
every kind of source has. A value
that is wrong is reported in `problems` and replaced by something harmless, so that checking can go
on. Used by the modules that say what the options of reads and writes are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, NamedTuple

from tubemq_client.errors import ConfigError, shown_addresses
from tubemq_provider.rows.spec import DecodeSpec

if TYPE_CHECKING:
    from tubemq_client.model import Address

__all__ = ["Option", "OptionParser", "decode_option"]

_TRUE = ("true", "1", "yes")
_FALSE = ("false", "0", "no")
_ADDRESS = re.compile(r"(?:\[([\w:.%]+)\]|([\w.-]+))(?::([0-9]{0,6}))?")
"""An address of IPv6 in brackets, or a name; and a port, which may be left out."""


class Option(NamedTuple):
    """One option: its name as documented, other names it answers to, its default as text."""

    name: str
    aliases: tuple[str, ...] = ()
    default: str | None = None


class OptionParser:
    """The given options under their documented names, and the list of `problems` so far.

    `refused` maps names to why they are not taken, `refused_prefix` does so for all that begin
    alike; their values are never repeated in a message, since one of them is a password.
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
        """The value as given, stripped; None if missing or blank."""
        return self._values.get(name)

    def value(self, name: str) -> str:
        """The value, or the option's default."""
        return self._values.get(name) or self._defaults[name] or ""

    def words(self, name: str) -> list[str]:
        """A comma-separated list without blanks."""
        return [word.strip() for word in self.value(name).split(",") if word.strip()]

    def integer(self, name: str, *, low: int, high: int | None = None) -> int | None:
        """A whole number in `[low, high]`, or None if missing (or wrong, then reported)."""
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
        """Like `integer`, for an option that has a default."""
        found = self.integer(name, low=low, high=high)
        return low if found is None else found

    def flag(self, name: str) -> bool:
        """True or false, in any case."""
        text = self.value(name).lower()
        if text not in _TRUE + _FALSE:
            self.problems.append(f"{name}: {self.value(name)!r} is neither 'true' nor 'false'")
        return text in _TRUE

    def choice(self, name: str, allowed: Sequence[str]) -> str:
        """One of `allowed`."""
        text = self.value(name).lower()
        if text not in allowed:
            self.problems.append(f"{name}: {text!r} is not one of {_listing(allowed)}")
            return allowed[0]
        return text

    def choices(self, name: str, allowed: Sequence[str]) -> tuple[str, ...]:
        """Several of `allowed` in the order given, each once."""
        words = self.words(name)
        for word in words:
            if word not in allowed:
                self.problems.append(f"{name}: {word!r} is not one of {_listing(allowed)}")
        if len(set(words)) != len(words):
            self.problems.append(f"{name}: names a column twice")
        return tuple(words)

    def addresses(self, name: str, *, default_port: int) -> tuple[Address, ...]:
        """``host:port,host``; the port may be left out."""
        words = self.words(name)
        if not words:
            self.problems.append(f"{name}: is needed, for example 'master1:{default_port}'")
        found = [self._address(word, default_port) for word in words]
        wrong = [word for word, address in zip(words, found, strict=True) if address is None]
        if wrong:
            self.problems.append(f"{name}: {shown_addresses(wrong)} is not '<host>:<port>'")
        return tuple(address or ("", 0) for address in found)

    @staticmethod
    def _address(text: str, default_port: int) -> Address | None:
        if _is_ipv6(text):
            return (text, default_port)
        found = _ADDRESS.fullmatch(text)
        port = int(found[3] or default_port) if found is not None else 0
        if found is None or not 0 < port < 65_536:
            return None
        return (found[1] or found[2], port)

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
        elif str(value).strip():
            self._values[name] = str(value).strip()

    def _unknown(self, key: str) -> str:
        close = get_close_matches(key.lower(), self._names, n=1, cutoff=0.6)
        if close:
            return f"{key}: unknown option; did you mean {self._names[close[0]]!r}?"
        return f"{key}: unknown option; known are {', '.join(sorted(self._defaults))}"


def decode_option(values: OptionParser, columns: tuple[str, ...]) -> DecodeSpec | None:
    """What the option `decode` says; without columns of its own it keeps those of `columns` but the
    body."""
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
    """Whether it is an address without brackets, behind which there can be no port."""
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


def _listing(words: Iterable[str]) -> str:
    return ", ".join(repr(word) for word in words)

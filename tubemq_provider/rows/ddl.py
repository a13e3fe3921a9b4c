"""Schemas in Spark SQL's DDL, to Arrow and back: ``id bigint, tags array<string>``.

One notation for the inline engine and for Spark, whose own parser is not needed here. Columns are
nullable and times are UTC microseconds, as everywhere in this project. A schema is checked without
pyarrow, which a Dag file must not load. This module does not depend on records.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from tubemq_client.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MAX_NESTING", "check_ddl", "ddl_of", "parse_ddl", "quoted"]

_TOKEN: Final = re.compile(
    r"""(?:\s|--[^\n]*(?:\n|\Z)|/\*(?s:.*?)\*/)*
    (?:`((?:[^`]|``)+)`
    |([rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |([A-Za-z0-9_]+)
    |([<>(),:]))""",
    re.VERBOSE | re.DOTALL,
)
"""Token after blanks and comments: a quoted name, a literal, a word or number, a sign."""
_REST: Final = re.compile(r"(?:\s|--[^\n]*(?:\n|\Z)|/\*(?s:.*?)\*/)*\Z")
MAX_NESTING: Final = 64
"""Maximal nesting of types."""


class _Type(NamedTuple):
    """A parsed type: its word, and precision and scale, element types, or members."""

    word: str
    numbers: tuple[int, ...] = ()
    members: tuple[tuple[str, _Type], ...] = ()


def parse_ddl(text: str) -> pa.Schema:
    """Parse `text` into an Arrow schema. Raises `ConfigError` that quotes the unexpected part."""
    import pyarrow as pa

    simple = _simple()
    return pa.schema([(name, _arrow_type(kind, simple)) for name, kind in _columns(text)])


def check_ddl(text: str) -> None:
    """Raise `ConfigError` if `text` is no schema; needs no pyarrow."""
    _columns(text)


def _columns(text: str) -> list[tuple[str, _Type]]:
    if text.lstrip().startswith("{"):
        raise ConfigError(
            "it is JSON; write the same as DDL, which df.schema.simpleString() of Spark prints",
            subject="schema",
        )
    columns = _Parser(text).columns()
    names = [name.lower() for name, _ in columns]
    if duplicates := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"column {duplicates[0]!r} is named twice", subject="schema")
    return columns


def ddl_of(fields: Iterable[pa.Field], *, instants: str = "timestamp") -> str:
    """Format the schema as Spark SQL's DDL; `instants` is the type name for instants. Raises
    `ConfigError` for a type that Spark does not have."""
    return ", ".join(f"{quoted(field.name)} {_type_text(field.type, instants)}" for field in fields)


def quoted(name: str) -> str:
    """Quote a name of a column for Spark SQL and delta-rs."""
    return "`" + name.replace("`", "``") + "`"


def _simple() -> dict[str, pa.DataType]:
    import pyarrow as pa

    return {
        "boolean": pa.bool_(),
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
        "time": pa.time64("us"),
    }


def _arrow_type(kind: _Type, simple: dict[str, pa.DataType]) -> pa.DataType:
    import pyarrow as pa

    if kind.word in simple:
        return simple[kind.word]
    if kind.word == "decimal":
        return pa.decimal128(*kind.numbers)
    members = [(name, _arrow_type(member, simple)) for name, member in kind.members]
    if kind.word == "struct":
        return pa.struct(members)
    types = [member for _, member in members]
    return pa.list_(*types) if kind.word == "array" else pa.map_(*types)


_SIMPLE: Final = (
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary"),
    *("date", "timestamp", "timestamp_ntz", "time"),
)
"""Types of one word, the keys of `_simple`."""

_ALIASES: Final = {
    "bool": "boolean",
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "timestamp_ltz": "timestamp",
    "dec": "decimal",
    "numeric": "decimal",
}


_LENGTHS: Final = ("varchar", "char", "character")
"""String types with a length, which is parsed and has no effect, as in Spark when it reads data."""

_NO_COLUMN: Final = {
    "interval": "a bigint of its unit, or its text as a string",
    "variant": "a string of its JSON",
    "void": "the type that its values will have",
    "geometry": "binary or string",
    "geography": "binary or string",
}
"""Types of Spark that no column here has, and their replacements."""


def _type_text(type_: pa.DataType, instants: str) -> str:
    import pyarrow.types as pt

    for name, simple in _simple().items():
        if type_.equals(simple):
            return instants if name == "timestamp" else name
    if pt.is_decimal128(type_):
        return f"decimal({type_.precision},{type_.scale})"
    if pt.is_struct(type_):
        members = ", ".join(f"{quoted(f.name)}: {_type_text(f.type, instants)}" for f in type_)
        return f"struct<{members}>"
    if pt.is_list(type_):
        return f"array<{_type_text(type_.value_type, instants)}>"
    if pt.is_map(type_):
        key, item = (_type_text(each, instants) for each in (type_.key_type, type_.item_type))
        return f"map<{key}, {item}>"
    type_names = ", ".join((*_SIMPLE, "decimal", "array", "map", "struct"))
    raise ConfigError(f"type {type_} is none of {type_names}", subject="schema")


class _Parser:
    """Recursive descent parser over the tokens of one schema."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def columns(self) -> list[tuple[str, _Type]]:
        """Parse the fields of a schema, which may be printed as one ``struct<…>``."""
        if self._skip_word("struct"):
            if self._skip("<"):
                fields = self.fields(closing=">")
                if not self._is_at_end():
                    raise self._error("the end")
                return fields
            self._at = 0
        return self.fields(closing=None)

    def fields(self, closing: str | None) -> list[tuple[str, _Type]]:
        """Parse ``name type, name: type`` up to `closing`, or the end."""
        fields: list[tuple[str, _Type]] = []
        while True:
            name = self._name()
            self._skip(":")
            fields.append((name, self._type()))
            self._skip_constraints()
            if self._skip(","):
                continue
            if (closing is None and self._is_at_end()) or (closing and self._skip(closing)):
                return fields
            raise self._error("a comma or the end")

    def _skip_constraints(self) -> None:
        """Skip ``NOT NULL COMMENT 'text'``, as Spark prints them. Columns are nullable anyway, as
        in Spark when it reads data."""
        if self._skip_word("not") and not self._skip_word("null"):
            raise self._error("NULL")
        for word in ("default", "generated"):
            if self._skip_word(word):
                raise ConfigError(
                    f"{self._text!r}: {word.upper()} has no effect where records are decoded: a "
                    "missing value is null; leave it out",
                    subject="schema",
                )
        if self._skip_word("comment"):
            token = self._next()
            if token is None or token[2] is None:
                raise self._error("a text in quotes")
            while token is not None and token[2] is not None:
                self._at = token.end()
                token = self._next()

    def _type(self) -> _Type:
        word = self._name().lower()
        word = _ALIASES.get(word, word)
        if word == "timestamp" and self._skip_word("without"):
            for expected in ("time", "zone"):
                if not self._skip_word(expected):
                    raise self._error(expected.upper())
            word = "timestamp_ntz"
        if word == "time":
            self._precision()
        if word in _LENGTHS:
            self._need("(")
            self._number()
            self._need(")")
            word = "string"
        if word == "string" and self._skip_word("collate"):
            self._name()
        if word in _SIMPLE:
            return _Type(word)
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise self._error(f"at most {MAX_NESTING} types in each other")
        nested = self._nested(word)
        self._depth -= 1
        return nested

    def _precision(self) -> None:
        """Parse the precision of a time, which keeps microseconds in any case."""
        if self._skip("("):
            if self._number() > 6:
                raise self._error("time(0) to time(6)")
            self._need(")")

    def _nested(self, word: str) -> _Type:
        if word == "decimal":
            return self._decimal()
        if word in ("array", "map", "struct"):
            self._need("<")
            if word == "struct":
                return _Type(word, members=tuple(self.fields(closing=">")))
            first = self._type()
            if word == "array":
                self._need(">")
                return _Type(word, members=(("element", first),))
            self._need(",")
            second = self._type()
            self._need(">")
            return _Type(word, members=(("key", first), ("value", second)))
        if word in _NO_COLUMN:
            raise ConfigError(
                f"{self._text!r}: type {word!r} of Spark has no column here; write "
                f"{_NO_COLUMN[word]}",
                subject="schema",
            )
        type_names = ", ".join((*_SIMPLE, "decimal(p,s)", "array<…>", "map<…>", "struct<…>"))
        raise ConfigError(
            f"{self._text!r}: {word!r} is no type; known are {type_names}", subject="schema"
        )

    def _decimal(self) -> _Type:
        precision, scale = 10, 0
        if self._skip("("):
            precision = self._number()
            if self._skip(","):
                scale = self._number()
            self._need(")")
        if not (0 < precision <= 38 and 0 <= scale <= precision):
            raise self._error("decimal(p,s) with p from 1 to 38 and s from 0 to p")
        return _Type("decimal", numbers=(precision, scale))

    def _next(self) -> re.Match[str] | None:
        return _TOKEN.match(self._text, self._at)

    def _name(self) -> str:
        token = self._next()
        if token is None or (token[1] is None and token[3] is None):
            raise self._error("a name")
        if token[3] is not None and token[3].isdigit():
            raise self._error("a name, in `…` if it is a number,")
        self._at = token.end()
        return token[1].replace("``", "`") if token[1] is not None else token[3]

    def _number(self) -> int:
        token = self._next()
        if token is None or token[3] is None or not token[3].isdigit():
            raise self._error("a number")
        self._at = token.end()
        return int(token[3])

    def _skip_word(self, word: str) -> bool:
        token = self._next()
        if token is None or token[3] is None or token[3].lower() != word:
            return False
        self._at = token.end()
        return True

    def _skip(self, mark: str) -> bool:
        token = self._next()
        if token is None or token[4] != mark:
            return False
        self._at = token.end()
        return True

    def _need(self, mark: str) -> None:
        if not self._skip(mark):
            raise self._error(repr(mark))

    def _is_at_end(self) -> bool:
        return _REST.match(self._text, self._at) is not None

    def _error(self, expected: str) -> ConfigError:
        rest = self._text[self._at :].strip()[:40] or "the end"
        return ConfigError(
            f"{self._text!r}: expected {expected} before {rest!r}; write 'id bigint, tags "
            "array<string>'",
            subject="schema",
        )

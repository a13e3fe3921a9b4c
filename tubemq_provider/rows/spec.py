"""User's description of bodies: `decode="json"`, or a mapping with the format, schema and options.

`DecodeSpec` reports all problems at once when it is created, is plain JSON on its way to executors,
and includes the contents of files (schemas, descriptors), so that tasks need no file. This module
must not decode anything.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tubemq_client.errors import ConfigError
from tubemq_client.json_text import load_unique_json
from tubemq_provider.extensions import is_known, load, plugin_of, written_options
from tubemq_provider.extensions import words as known_words
from tubemq_provider.rows.ddl import check_ddl

__all__ = [
    "CHANGES",
    "FORMATS",
    "FRAMED_AVRO",
    "INFERRED",
    "NEEDS_PARTITION",
    "SUBJECT",
    "DecodeSpec",
    "function_spec",
    "schema_of",
]

NEEDS_PARTITION: Final = "decode: columns must keep 'partition', by which windows are verified"
"""Problem of a spec whose rows do not tell their partition."""

SUBJECT: Final = "decode"

CHANGES: Final = ("debezium", "canal", "maxwell", "ogg")
"""Formats of database changes, in JSON."""
FORMATS: Final = ("json", "csv", "avro", "protobuf", "tdmsg", "function", *CHANGES)
INFERRED: Final = ("json", *CHANGES)
"""Formats whose schema may be inferred from the first records."""

_DELIMITER: Final = ","
_QUOTE: Final = '"'

_TAKES: Final = {
    "json": {"schema", "schema_file", "unknown_fields", "nanoseconds", "schema_registry"},
    "csv": {"schema", "schema_file", "delimiter", "quote", "escape", "null_values", "nanoseconds"},
    "avro": {
        *("schema", "schema_file", "skip_bytes", "schemas"),
        *("unsupported_fields", "nanoseconds", "time_of_day", "schema_registry"),
    },
    "protobuf": {
        *("message", "schema_file", "descriptor", "skip_bytes"),
        *("unsupported_fields", "nanoseconds", "schema_registry"),
    },
    "tdmsg": {"then"},
    "function": {"function", "schema", "schema_file", "arguments"},
    **{
        changes: {
            *("schema", "schema_file", "unknown_fields", "nanoseconds"),
            *("before", "tables", "on_ddl", "times", "decimals", "schema_registry"),
        }
        for changes in CHANGES
    },
}
"""Options of each format, besides `format`, `columns` and `prefix`, which all formats have."""

_FRAME: Final = 5
"""Size of a schema registry's frame: a zero byte and the schema's id."""
FRAMED_AVRO: Final = (
    f"skip_bytes: {_FRAME} bytes before Avro are the frame of a schema registry, and a body of "
    "another id would be read by the wrong schema; set schemas={id: schema} with the schema of "
    "each id, or schema_registry=<connection id>, in place of 'skip_bytes'"
)

_WORDS: Final = {
    "unknown_fields": ("ignore", "fail"),
    "unsupported_fields": ("fail", "json", "leave_out"),
    "nanoseconds": ("fail", "cut"),
    "time_of_day": ("time", "number"),
    "on_ddl": ("fail", "ignore"),
    "times": ("schema", "ms", "us", "ns"),
    "decimals": ("text", "base64"),
}
"""Options with a fixed set of values, the default first."""


@dataclass(frozen=True, slots=True)
class DecodeSpec:
    """Decoding of bodies into columns.

    `format`: ``json``, ``csv``, ``avro``, ``protobuf``, ``tdmsg`` (InLong's packed bodies, whose
    records `then` decodes, or leaves as they are), ``function`` (`function` is the dotted path of
    one that takes and returns Arrow; `arguments` are its keyword arguments), or one of database
    changes: ``debezium``, ``canal``, ``maxwell``, ``ogg``.

    Changes have the row's columns of `schema`, then ``_op``, ``_database``, ``_table``,
    ``_source_position``, ``_source_time`` and ``_transaction_id``; with `before` the row before the
    change as ``_before``. `tables` (``database.table``) are those to decode, others are counted.
    `on_ddl` is ``fail`` or ``ignore``: DDL and truncated tables are then only counted. `times` is
    the unit of times that are numbers, and `decimals` is ``base64`` for Debezium's precise mode,
    where the envelope has no schema.

    `schema`: Spark SQL's DDL, for avro Avro's JSON. `schema_file` is a file on the driver with the
    same content; for json it may be missing: then the schema inferred from the first records is
    kept there. For protobuf it is a file descriptor set, which `descriptor` holds in base64 on the
    way to tasks, and `message` the full name.

    `columns` are the columns of records that are kept (default: all without ``value``), `prefix` is
    put before the names of decoded ones. `unknown_fields`: ``ignore`` or ``fail``.

    `skip_bytes` of each body come before the data. The frame of a schema registry has 5: Avro needs
    `schemas` for it, the schemas by their ids: each body is read with its own, and its fields are
    resolved to the columns of `schema` (by default the only one of `schemas`) by name. For Protobuf
    5 bytes that begin with zero are such a frame.

    `schema_registry` is the connection id of a registry: bodies have its frame, and their schemas
    are looked up by id (Avro, Protobuf, JSON Schema). Avro is read with the schema that wrote it.

    `unsupported_fields`: policy for fields of avro and protobuf that no column can hold: ``fail``
    (the spec is refused, they are named), ``json`` (JSON text) or ``leave_out``. `nanoseconds`:
    policy for times that microseconds cannot express: ``fail`` (the record is bad) or ``cut``.
    `time_of_day` of avro: ``time``, or ``number`` for tables without such a type.
    """

    format: str
    schema: str | None = None
    schema_file: str | None = None
    message: str | None = None
    descriptor: str | None = None
    function: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    then: DecodeSpec | None = None
    columns: tuple[str, ...] | None = None
    prefix: str = ""
    delimiter: str = _DELIMITER
    quote: str = _QUOTE
    escape: str | None = None
    null_values: tuple[str, ...] = ("",)
    unknown_fields: str = "ignore"
    skip_bytes: int = 0
    schemas: Mapping[str, str] = field(default_factory=dict)
    unsupported_fields: str = "fail"
    nanoseconds: str = "fail"
    time_of_day: str = "time"
    before: bool = False
    tables: tuple[str, ...] = ()
    on_ddl: str = "fail"
    times: str = "schema"
    decimals: str = "text"
    schema_registry: str | None = None

    @property
    def infers(self) -> bool:
        """True while the schema is to be inferred from the first records."""
        return self.format in INFERRED and self.schema is None

    @property
    def registries(self) -> frozenset[str]:
        """Connection ids of the schema registries of the bodies, packed ones too."""
        specs = (self,) if self.then is None else (self, self.then)
        return frozenset(spec.schema_registry for spec in specs if spec.schema_registry)

    @classmethod
    def judge(cls, option: str | Mapping[str, Any]) -> list[str]:
        """Return the problems of a spec that can be found without reading a file."""
        try:
            document = _document(option)
        except ConfigError as error:
            return error.problems
        then = document.get("then")
        inner = [] if then is None else [f"then: {problem}" for problem in cls.judge(then)]
        return [*(_problems(document) or _problems_of_schema(document)), *inner]

    @classmethod
    def parse(cls, option: str | Mapping[str, Any] | DecodeSpec) -> DecodeSpec:
        """Parse ``"json"``, ``"package.module.function"``, JSON text or a mapping; read schema
        files. Raises `ConfigError` with every problem."""
        if isinstance(option, DecodeSpec):
            return option
        document = _document(option)
        problems = _problems(document)
        if problems:
            raise ConfigError(problems, subject=SUBJECT)
        values = dict(document)
        for name in ("columns", "null_values", "tables"):
            if name in values:
                values[name] = tuple(values[name])
        if values.get("schema_registry") and values["format"] in ("avro", "protobuf"):
            values["skip_bytes"] = _FRAME
        if "schemas" in values:
            values["schemas"] = {str(id_): _text(one) for id_, one in values["schemas"].items()}
            if not (values.get("schema") or values.get("schema_file")):
                (values["schema"],) = values["schemas"].values()
        if values.get("then") is not None:
            values["then"] = _checked_then(cls.parse(values["then"]))
        return _with_files(cls(**values))

    def to_json(self) -> str:
        """Return JSON that `parse` reads back, without defaults."""
        return json.dumps(self.document(), sort_keys=True)

    def document(self) -> dict[str, Any]:
        """Return the spec as plain values, without defaults."""
        plain = DecodeSpec(self.format)
        changed = {
            item.name: value
            for item in fields(self)
            if (value := getattr(self, item.name)) != getattr(plain, item.name)
        }
        if self.then is not None:
            changed["then"] = self.then.document()
        return {"format": self.format, **changed}

    def with_schema(self, schema: str) -> DecodeSpec:
        """Return the spec with `schema` in place of its file."""
        return replace(self, schema=schema, schema_file=None)


def _document(option: str | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(option, Mapping):
        return _of_plugin(dict(option))
    if not isinstance(option, str):
        raise ConfigError(f"{option!r} is neither a mapping nor a text", subject=SUBJECT)
    text = option.strip()
    if text.startswith("{"):
        try:
            document = load_unique_json(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"not valid JSON: {error}", subject=SUBJECT) from error
        return _of_plugin(dict(document))
    if text not in FORMATS and "." in text:
        return {"format": "function", "function": text}
    return _of_plugin({"format": text})


def _of_plugin(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document with the function of a plug-in in place of its word.

    Executors then import the function, and need no registry.
    """
    word = document.get("format")
    if not isinstance(word, str) or word in FORMATS or not is_known("decoder", word):
        return document
    decoder = load("decoder", word)
    spec = function_spec(decoder, plugin_of("decoder", word).value)
    known = ("format", "schema", "schema_file", "columns", "prefix")
    options = {name: value for name, value in document.items() if name not in known}
    kept = {name: document[name] for name in known[1:] if name in document}
    if hasattr(decoder, "Options"):
        model, problems = written_options("decoder", word, options)
        if problems:
            raise ConfigError(problems, subject=SUBJECT)
        options = model.model_dump(mode="json", exclude_unset=True)
    if "schema_file" in kept:
        spec.pop("schema", None)
    return {**spec, **kept, **({"arguments": options} if options else {})}


def function_spec(function: Any, place: str | None = None) -> dict[str, Any]:
    """Return the description of a decoder that is the callable `function`, to be found at `place`.

    Its attribute `schema` is the DDL of its columns. Raises `ValueError` for a callable that cannot
    be imported by name, such as a lambda.
    """
    name = getattr(function, "__qualname__", "")
    path = (place or f"{getattr(function, '__module__', '')}:{name}").replace(":", ".")
    module, _, attribute = path.rpartition(".")
    try:
        same = getattr(import_module(module), attribute) is function
    except (ImportError, AttributeError, ValueError):
        same = False
    if not same:
        raise ValueError(
            f"{path} cannot be imported; put the function into a module that the workers have"
        )
    schema = getattr(function, "schema", None)
    return {"format": "function", "function": path, **({"schema": schema} if schema else {})}


def _problems(document: Mapping[str, Any]) -> list[str]:
    format_ = document.get("format")
    if format_ not in FORMATS:
        formats = ", ".join(known_words("decoder"))
        return [f"format: {format_!r} is none of {formats}, and no dotted path of a function"]
    takes = _TAKES[format_] | {"format", "columns", "prefix"}
    problems = [
        f"{name}: is not used by format {format_!r}, which takes {', '.join(sorted(takes))}"
        for name in document
        if name not in takes
    ]
    problems += _missing(format_, document)
    if document.get("schema") and document.get("schema_file"):
        problems.append("schema_file: has no effect beside 'schema', which says the same; give one")
    for name, words in _WORDS.items():
        if document.get(name, words[0]) not in words:
            problems.append(f"{name}: {document[name]!r} is none of {', '.join(map(repr, words))}")
    registry = document.get("schema_registry")
    if registry is not None and (not isinstance(registry, str) or not registry.strip()):
        problems.append(f"schema_registry: {registry!r} is not the id of a connection")
    if registry is not None:
        problems += [
            f"{name}: has no effect beside 'schema_registry', which knows the schemas of frames"
            for name in ("schemas", "skip_bytes")
            if name in document and (name, document[name]) != ("skip_bytes", _FRAME)
        ]
    skip = document.get("skip_bytes", 0)
    if isinstance(skip, bool) or not isinstance(skip, int) or skip < 0:
        problems.append(f"skip_bytes: {skip!r} is not a whole number >= 0")
    problems += _problems_of_signs(document)
    problems += _problems_of_ids(document)
    if not isinstance(document.get("before", False), bool):
        problems.append(f"before: {document['before']!r} is neither true nor false")
    for name in ("columns", "null_values", "tables"):
        if name in document and not _is_texts(document[name]):
            problems.append(f"{name}: {document[name]!r} is not a list of texts, like ['a', 'b']")
    return [*problems, *_problems_of_then(document.get("then"))]


def _problems_of_ids(document: Mapping[str, Any]) -> list[str]:
    """Return the problems of a registry's schemas."""
    schemas = document.get("schemas")
    if schemas is None:
        framed = document["format"] == "avro" and document.get("skip_bytes") == _FRAME
        framed = framed and document.get("schema_registry") is None
        return [FRAMED_AVRO] if framed else []
    if not isinstance(schemas, Mapping) or not schemas:
        return [f"schemas: {schemas!r} is not a mapping from ids to schemas, like {{'7': '…'}}"]
    problems = []
    for id_, schema in schemas.items():
        if not (str(id_).isascii() and str(id_).isdigit() and int(id_) < 2**32):
            problems.append(f"schemas: {id_!r} is not the id of a schema, a whole number")
        if not isinstance(schema, (str, Mapping)):
            problems.append(f"schemas: {id_}: {schema!r} is neither an Avro schema nor its JSON")
        elif isinstance(schema, str):
            problems += [f"schemas: {id_}: {problem}" for problem in _problems_of_avro(schema)]
    if len({int(id_) for id_ in schemas if str(id_).isdigit()}) < len(schemas) and not problems:
        problems.append("schemas: an id is named twice")
    if document.get("skip_bytes", _FRAME) != _FRAME:
        problems.append("skip_bytes: has no effect beside 'schemas', whose frames have 5 bytes")
    return problems


def _text(schema: str | Mapping[str, Any]) -> str:
    return schema if isinstance(schema, str) else json.dumps(schema)


def _problems_of_signs(document: Mapping[str, Any]) -> list[str]:
    """Return the problems of delimited text. Characters that Arrow refuses would make every record
    a bad one."""
    problems = []
    for name in ("delimiter", "quote", "escape"):
        sign = document.get(name)
        if name not in document or (name == "escape" and sign is None):
            continue
        if not isinstance(sign, str) or len(sign.encode()) != 1:
            problems.append(f"{name}: {sign!r} is not one ASCII character")
        elif sign in "\r\n\0":
            problems.append(f"{name}: {sign!r} cannot be one: a line break or NUL")
    if document.get("delimiter", _DELIMITER) == document.get("quote", _QUOTE):
        problems.append("quote: is the same as 'delimiter'")
    if (escape := document.get("escape")) is not None and escape in (
        document.get("delimiter", _DELIMITER),
        document.get("quote", _QUOTE),
    ):
        problems.append("escape: is the same as 'delimiter' or 'quote'; doubled quotes need none")
    return problems


def _problems_of_schema(document: Mapping[str, Any]) -> list[str]:
    """Return the problems of a schema inside the document itself."""
    schema = document.get("schema")
    if not schema:
        return []
    if not isinstance(schema, str):
        return [f"schema: {schema!r} is not a text"]
    if document["format"] == "avro":
        return [f"schema: {problem}" for problem in _problems_of_avro(schema)]
    try:
        check_ddl(schema)
    except ConfigError as error:
        return [f"schema: {problem}" for problem in error.problems]
    return []


def _problems_of_avro(schema: str) -> list[str]:
    try:
        load_unique_json(schema)
    except (ValueError, RecursionError) as error:
        return [f"not valid JSON: {error}"]
    return []


def _is_texts(value: Any) -> bool:
    """Return True for a list of texts. A single text is none: it would be iterated by character."""
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)


def _problems_of_then(option: str | Mapping[str, Any] | None) -> list[str]:
    if option is None:
        return []
    try:
        then = _document(option)
    except ConfigError:
        return []  # reported by the caller
    problems = [
        f"then: {name}: has no effect on what packs hold; write it beside 'then'"
        for name in ("columns", "prefix")
        if name in then
    ]
    if then.get("format") == "tdmsg":
        problems.append("then: packed bodies do not hold packed bodies")
    return problems


def _checked_then(then: DecodeSpec) -> DecodeSpec:
    if then.infers:
        raise ConfigError(
            f"then: schema_file: {then.schema_file} is not there, and schemas are not inferred "
            "from packed records; write the schema",
            subject=SUBJECT,
        )
    return then


def _missing(format_: str, document: Mapping[str, Any]) -> list[str]:
    has_schema = bool(document.get("schema") or document.get("schema_file"))
    if format_ == "avro" and isinstance(schemas := document.get("schemas"), Mapping):
        has_schema = has_schema or len(schemas) == 1
    problems = []
    if format_ in ("csv", "avro", "function", *INFERRED) and not has_schema:
        more = ", or a file to keep what is inferred once" if format_ in INFERRED else ""
        problems.append(f"schema: is needed by format {format_!r} (or 'schema_file'{more})")
    if format_ == "protobuf":
        if not document.get("message"):
            problems.append("message: is needed by format 'protobuf' ('package.Message')")
        if not (document.get("schema_file") or document.get("descriptor")):
            problems.append(
                "schema_file: is needed by format 'protobuf': a file descriptor set (protoc "
                "--include_imports --descriptor_set_out=FILE)"
            )
    if format_ == "function" and not document.get("function"):
        problems.append("function: is needed ('package.module.name')")
    return problems


def _with_files(spec: DecodeSpec) -> DecodeSpec:
    if spec.schema_file is None or spec.schema is not None or spec.descriptor is not None:
        return spec
    path = Path(spec.schema_file)
    if spec.format in INFERRED and not path.exists():
        return spec  # `inference` makes it
    try:
        data = path.read_bytes()
        if spec.format == "protobuf":
            text = base64.b64encode(data).decode("ascii")
            return replace(spec, descriptor=text, schema_file=None)
        text = data.decode("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"schema_file: {path}: {error}", subject=SUBJECT) from error
    if spec.format != "avro":
        schema_of(path, text)
    return replace(spec, schema=text, schema_file=None)


def schema_of(path: Path, text: str) -> str:
    """Return `text`, the content of the file at `path`, if it is a schema. Raises `ConfigError`
    that names the file."""
    try:
        check_ddl(text)
    except ConfigError as error:
        raise ConfigError(
            [f"schema_file: {path}: {problem}" for problem in error.problems], subject=SUBJECT
        ) from error
    return text

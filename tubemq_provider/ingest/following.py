"""Arguments of tables that follow changes: `apply` and what goes with it.

What a sink or an order of windows cannot promise is refused here, before anything is read. This
module must not know how a sink merges.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tubemq_client.errors import ConfigError
from tubemq_provider.ingest.validation import is_template
from tubemq_provider.rows.spec import CHANGES, NEEDS_PARTITION, DecodeSpec
from tubemq_provider.windows.following import Following

if TYPE_CHECKING:
    from tubemq_provider.ingest.fields import IngestFields

__all__ = ["decoding_of", "following_of", "following_problems"]

_WITH_APPLY = ("key", "version", "soft_delete")


def following_of(arguments: IngestFields) -> Following | None:
    """Return how the sink's table follows changes, or None."""
    if arguments.apply == "append":
        return None
    return Following(
        arguments.apply, tuple(arguments.key), arguments.version, arguments.soft_delete
    )


def decoding_of(arguments: IngestFields) -> DecodeSpec:
    """Return how bodies are decoded. Rows of a followed table keep the partition, by which windows
    are verified, and with ``apply='changes'`` the row before, in which a changed key is seen."""
    spec = DecodeSpec.parse(arguments.decode or {})
    if arguments.apply == "append":
        return spec
    if spec.columns is None:
        spec = replace(spec, columns=("partition",))
    if arguments.apply == "changes":
        if spec.then is not None:
            return replace(spec, then=replace(spec.then, before=True))
        return replace(spec, before=True)
    return spec


def following_problems(arguments: IngestFields) -> list[str]:
    """Return combinations of `apply` that cannot work, or would not be exact."""
    if arguments.apply == "append":
        return [
            f"{name} has no effect without apply='upsert' or 'changes'"
            for name in _WITH_APPLY
            if getattr(arguments, name)
        ]
    problems = []
    if getattr(arguments, "direct_write", "auto") == "off":
        problems.append("apply needs the direct write: unavailable with direct_write='off'")
    problems += [
        f"{name} is not available with apply, which looks at the rows of decode"
        for name in ("transform", "sql")
        if getattr(arguments, name, None)
    ]
    if not arguments.key:
        problems.append(f"key is needed by apply={arguments.apply!r}: the columns that name a row")
    if not all(map(str.strip, arguments.key)):
        problems.append("key: a blank text is no column")
    if twice := sorted({name for name in arguments.key if arguments.key.count(name) > 1}):
        problems.append(f"key: {', '.join(twice)} is named twice")
    if arguments.partition_by:
        problems.append("partition_by is not available with apply: a change may move a row")
    if getattr(arguments, "schema_evolution", "refuse") != "refuse":
        problems.append("schema_evolution is not available with apply: add columns to the table")
    if arguments.on_clear == "rewrite":
        problems.append(
            "on_clear='rewrite' is not available with apply: later windows have changed its rows"
        )
    if arguments.soft_delete and arguments.apply == "upsert":
        problems.append("soft_delete has no effect with apply='upsert', which deletes nothing")
    problems += _of_order(arguments)
    return [*problems, *_of_decode(arguments)]


def _of_order(arguments: IngestFields) -> list[str]:
    """Refuse windows that may be published in another order than the table can take."""
    if arguments.mode == "cursor" and arguments.offset_store != "ledger":
        return []
    following = following_of(arguments)
    if following is None or following.any_order:
        return []
    missing = "version" if arguments.version is None else "soft_delete"
    why = (
        "windows of time or offsets may be written in any order"
        if arguments.mode == "time"
        else "with offset_store='ledger' windows may be written side by side"
    )
    reason = (
        "nothing would tell an earlier change from a later one"
        if missing == "version"
        else "an earlier change would bring a deleted row back"
    )
    return [f"{missing} is needed with apply={arguments.apply!r}: {why}, and {reason}"]


def _of_decode(arguments: IngestFields) -> list[str]:
    decode: Any = arguments.decode
    if decode is None:
        return [f"decode is needed by apply={arguments.apply!r}, which looks at columns"]
    if is_template(decode):
        return []
    try:
        document = decode if isinstance(decode, dict) else DecodeSpec.parse(decode).document()
    except ConfigError:
        return []  # listed as a problem of decode
    then = document.get("then")
    word = document.get("format")
    if word == "tdmsg" and then is not None:
        word = then.get("format") if isinstance(then, dict) else then
    problems = []
    if document.get("prefix"):
        problems.append("decode: prefix is not available with apply, which looks at _op")
    if arguments.apply == "changes" and word not in CHANGES:
        problems.append(
            f"apply='changes' needs a format of changes in decode ({', '.join(CHANGES)}), not "
            f"{word!r}; rows of other formats are upserts"
        )
    if arguments.apply == "upsert" and word in CHANGES:
        problems.append(f"apply='upsert' would keep rows that {word} deletes; use apply='changes'")
    columns = document.get("columns")
    if columns is not None and "partition" not in columns:
        problems.append(NEEDS_PARTITION)
    return problems

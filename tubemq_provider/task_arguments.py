"""Arguments of operators and sensors, checked twice by one model.

A Dag author's mistakes should show when the Dag is parsed, all at once, but templated values are
known only when the task runs. So each operator has one pydantic model (see `ingest.validation`):
`check_literals` applies it at parse time and ignores what is still a template, `parse` applies it
in full at run time.

Cheap by rule: no connection, no file, no network. Knows nothing of windows.
"""

from __future__ import annotations

import marshal
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from inspect import signature
from typing import TYPE_CHECKING, Any, Final

from tubemq_client import errors
from tubemq_provider.ingest.validation import (
    ClusterAlias,
    ConsumerConfig,
    GivenOffsets,
    PartitionKeys,
    SourceGroup,
    SourceTopic,
    TaskArguments,
    blank_is_none,
    from_json,
    is_template,
    offsets_for_topic,
    parse,
    validated,
    with_zone,
)

if TYPE_CHECKING:
    from airflow.sdk import Asset

__all__ = [
    "ClusterAlias",
    "ConsumerConfig",
    "GivenOffsets",
    "PartitionKeys",
    "SourceGroup",
    "SourceTopic",
    "TaskArguments",
    "blank_is_none",
    "check_literals",
    "from_json",
    "is_mapped",
    "is_template",
    "near_names",
    "offsets_for_topic",
    "parse",
    "require_inlet",
    "with_zone",
]


def is_mapped(task: object) -> bool:
    """Return True if a worker creates `task` from a mapped one.

    The scheduler has then seen only .partial(): assets that are added now would look declared
    without being so.
    """
    return bool(getattr(task, "_BaseOperator__from_mapped", False))


def require_inlet(task: Any, asset: Asset) -> None:
    """Raise `errors.ConfigError` unless `asset` is an inlet of `task`.

    Without the inlet Airflow would return nothing. Only a mapped task can lack it, which its author
    must declare.
    """
    from tubemq_provider.assets import declared

    if not declared(asset, task.inlets):
        raise errors.ConfigError(
            f"a mapped task must declare the offsets asset: pass inlets=[a] to .partial(), where a "
            f"= tubemq_provider.assets.offsets_asset({task.cluster!r}, {task.topic!r}, "
            f"{task.group!r}); so topic and group cannot be mapped",
            subject="assets",
        )


def check_literals(
    model: type[TaskArguments],
    arguments: Mapping[str, Any],
    *,
    static: Mapping[str, str],
    problems: Iterable[str] = (),
    task: Any = None,
) -> None:
    """Check literal arguments. Raises `errors.ConfigError` with every problem.

    `static` names arguments that may not be templates, each with the reason; `problems` are those
    of
    the caller; the text names `task`. Iterators are refused: they would be empty in the run.
    """
    defaults = _defaults(model)
    given = {
        name: value
        for name, value in arguments.items()
        if name not in defaults or value is not defaults[name]
    }
    problems = list(problems)
    key = None if problems else _key((model, tuple(static)), given)
    if key in _SOUND:
        return
    templates = {name for name, value in given.items() if is_template(value)}
    problems = [
        *problems,
        *(
            f"{name}: cannot be a template, {reason}"
            for name, reason in static.items()
            if name in templates
        ),
        *(
            f"{name}: a {type(value).__name__} can be read only once, and a run reads it again; "
            f"give a list"
            for name, value in given.items()
            if isinstance(value, Iterator)
        ),
    ]
    result = validated(model, given)
    if not isinstance(result, model):
        # Messages of cross-field rules begin with the name of an argument.
        about = ((name or text.partition(":")[0], text) for name, text in result)
        problems += [
            text for name, text in about if name not in templates or name in model.MEMBER_WISE
        ]
    if problems:
        of = f" of {type(task).__name__} {task.task_id!r}" if task is not None else ""
        raise errors.ConfigError(sorted(set(problems)), subject=f"arguments{of}")
    if key is not None and len(_SOUND) < _MOST_SOUND:
        _SOUND.add(key)


_SOUND: Final[set[object]] = set()
"""Arguments of tasks without a problem: a Dag file often creates many tasks alike."""
_MOST_SOUND: Final = 1024


def _key(rules: Hashable, given: Mapping[str, Any]) -> object:
    """Return what `given` arguments are recognised by; None unless they are plain values."""
    try:
        return rules, marshal.dumps({**given}, 2)  # equal values have equal bytes
    except ValueError:
        return None


@cache
def _defaults(model: type[TaskArguments]) -> dict[str, Any]:
    """Return the defaults of `model`, which need no check in each task of a Dag."""
    fields = model.model_fields.items()
    return {name: field.default for name, field in fields if not field.is_required()}


@contextmanager
def near_names(kind: type, elsewhere: Callable[[], Mapping[str, str]] = dict) -> Iterator[None]:
    """Add hints to Airflow's own `TypeError` for unknown arguments of `kind`.

    The hint is a near match, or what to do about the argument, from `elsewhere`.
    """
    try:
        yield
    except TypeError as exc:
        from difflib import get_close_matches  # large, for an error only

        written_as = elsewhere()
        wrong = re.findall(r"'(\w+)': ", str(exc)) if "Invalid arguments" in str(exc) else []
        names = [name for base in kind.__mro__ for name in signature(base).parameters]
        near = {name: get_close_matches(name, names, n=1, cutoff=0.75) for name in wrong}
        hints = [
            f"{name}: {written_as[name]}" if name in written_as else f"{name}: did you mean {item}?"
            for name in wrong
            for item in (near[name] or ([""] if name in written_as else []))
        ]
        if not hints:
            raise
        raise TypeError("\n".join([str(exc), *hints])) from None

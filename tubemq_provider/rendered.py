"""Refusal of template fields that render to nothing, for every operator here.

Jinja renders "" for a parameter that is missing or empty, "None" for None, and "[]" for a list
without members. As filters each would mean "read everything", as SQL "unchanged", as a group one
called None: an argument that a Dag's author has set is never treated as missing. An empty list that
is written in the Dag itself is one. Knows no argument of any operator.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any, ClassVar

from tubemq_client.errors import ConfigError
from tubemq_provider._airflow import AirflowFailException
from tubemq_provider.ingest.validation import is_template

__all__ = ["RefusesEmptyRendering"]

_BLANK = ("", "None")
_EMPTY_LIST = re.compile(r"\[\s*\]|\(\s*\)|set\(\)|frozenset\(\)")


class RefusesEmptyRendering:
    """Mix-in for templated classes; comes before Airflow's own class.

    - `own_data`: template fields whose members are data of the user, in which a blank text is a
      value, and which may have none; the field itself must not be blank.
    - `passed_unchanged`: template fields that are passed unchanged to a function of the user.
    """

    own_data: ClassVar[frozenset[str]] = frozenset()
    passed_unchanged: ClassVar[frozenset[str]] = frozenset(
        {"op_args", "op_kwargs", "templates_dict"}
    )

    def _do_render_template_fields(
        self, parent: Any, template_fields: Iterable[str], *args: Any, **kwargs: Any
    ) -> None:
        """Render like Airflow, for this object and, as `parent`, for value objects in its
        fields."""
        names = [name for name in template_fields if name not in self.passed_unchanged]
        templates = {name: getattr(parent, name, None) for name in names}
        super()._do_render_template_fields(  # type: ignore[misc]
            parent, template_fields, *args, **kwargs
        )
        files = tuple(getattr(self, "template_ext", ()) or ())
        problems = [
            f"{where}: its template rendered to nothing ({rendered!r}), which is not treated as a "
            f"missing argument. Render a value, or leave the argument out"
            for name, template in templates.items()
            for where, rendered in _nothing(
                name, template, getattr(parent, name, None), files, inside=name not in self.own_data
            )
        ]
        if problems:
            error = ConfigError(problems, subject="rendered arguments")
            if hasattr(self, "task_id"):
                raise AirflowFailException(f"{type(error).__name__}: {error}")
            raise error


def _nothing(
    where: str, template: Any, rendered: Any, files: tuple[str, ...], *, inside: bool
) -> Iterator[tuple[str, Any]]:
    """Yield where parts of `template` have rendered to nothing in `rendered`, with the result.

    `files` are suffixes of texts that name a template's file. `inside`: an empty list is nothing,
    and members are looked at.
    """
    if isinstance(template, str):
        templated = is_template(template) or (files and template.endswith(files))
        if templated and _is_nothing(rendered, lists=inside):
            yield where, rendered
    elif isinstance(template, Mapping) and isinstance(rendered, Mapping):
        for key in template if inside else ():
            yield from _nothing(
                f"{where}[{key!r}]", template[key], rendered.get(key), (), inside=True
            )
    elif isinstance(template, list | tuple) and isinstance(rendered, list | tuple):
        for number, (one, other) in enumerate(zip_longest(template, rendered) if inside else ()):
            yield from _nothing(f"{where}[{number}]", one, other, files, inside=True)
    elif isinstance(template, set | frozenset):
        blank = [item for item in rendered or () if _is_nothing(item, lists=True)]
        if inside and is_template(template) and blank:
            yield where, blank[0]
    elif is_template(template) and _is_nothing(rendered, lists=inside):
        yield where, rendered  # the output of another task


def _is_nothing(rendered: Any, *, lists: bool) -> bool:
    text = str(rendered).strip()
    return text in _BLANK or (lists and _EMPTY_LIST.fullmatch(text) is not None)

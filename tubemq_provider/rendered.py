"""Template fields that were asked for and render to nothing are refused, for every operator here.

Jinja makes "" of a parameter that is missing or empty, and "None" of None. As filters that would
mean "read everything", as SQL "as it is", as a group one called None: an argument that a Dag's
author has given is never taken for one that was left out. Knows no argument of any operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any, ClassVar

from tubemq_client.errors import ConfigError
from tubemq_provider._airflow import AirflowFailException
from tubemq_provider.ingest.validation import is_template

__all__ = ["RefusesNothing"]

_NOTHING = ("", "None")


class RefusesNothing:
    """Mixed into what Airflow renders; stands before Airflow's own class.

    - `own_data`: template fields whose members are data of the user, in which a blank text is one
      value like others; the field itself has to be something.
    - `given_through`: template fields that are passed on as they are, to a function of the user.
    """

    own_data: ClassVar[frozenset[str]] = frozenset()
    given_through: ClassVar[frozenset[str]] = frozenset({"op_args", "op_kwargs", "templates_dict"})

    def _do_render_template_fields(
        self, parent: Any, template_fields: Iterable[str], *args: Any, **kwargs: Any
    ) -> None:
        """As Airflow's, for this object and, as `parent`, for values in its fields."""
        names = [name for name in template_fields if name not in self.given_through]
        asked = {name: getattr(parent, name, None) for name in names}
        super()._do_render_template_fields(  # type: ignore[misc]
            parent, template_fields, *args, **kwargs
        )
        files = tuple(getattr(self, "template_ext", ()) or ())
        problems = [
            f"{where}: its template rendered to nothing ({found!r}), and what was asked for is not "
            f"taken for left out. Render a value, or leave the argument out"
            for name, given in asked.items()
            for where, found in _nothing(
                name, given, getattr(parent, name, None), files, inside=name not in self.own_data
            )
        ]
        if problems:
            error = ConfigError(problems, subject="rendered arguments")
            if hasattr(self, "task_id"):
                raise AirflowFailException(f"{type(error).__name__}: {error}")
            raise error


def _nothing(
    where: str, given: Any, found: Any, files: tuple[str, ...], *, inside: bool
) -> Iterator[tuple[str, Any]]:
    """Where templates in `given` have become nothing in `found`, each with what it became; `files`
    are endings of texts that name a template's file."""
    if isinstance(given, str):
        asked = is_template(given) or (files and given.endswith(files))
        if asked and (found is None or (isinstance(found, str) and found.strip() in _NOTHING)):
            yield where, found
    elif isinstance(given, Mapping) and isinstance(found, Mapping):
        for key in given if inside else ():
            yield from _nothing(f"{where}[{key!r}]", given[key], found.get(key), (), inside=True)
    elif isinstance(given, list | tuple) and isinstance(found, list | tuple):
        for number, (one, other) in enumerate(zip_longest(given, found) if inside else ()):
            yield from _nothing(f"{where}[{number}]", one, other, files, inside=True)
    elif isinstance(given, set | frozenset):
        blank = [item for item in found or () if str(item).strip() in _NOTHING]
        if inside and is_template(given) and blank:
            yield where, blank[0]
    elif is_template(given) and (found is None or str(found).strip() in _NOTHING):
        yield where, found  # the output of another task
